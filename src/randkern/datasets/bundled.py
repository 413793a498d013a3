"""The small data sets that scikit-learn brings along."""

import numpy as np
from sklearn import datasets as sklearn_datasets

from randkern.datasets.record import Dataset

_LOADERS = {
    "digits": sklearn_datasets.load_digits,
    "breast-cancer": sklearn_datasets.load_breast_cancer,
    "diabetes": sklearn_datasets.load_diabetes,
    "wine": sklearn_datasets.load_wine,
    "iris": sklearn_datasets.load_iris,
}
BUNDLED_NAMES = tuple(_LOADERS)


def load_bundled(name: str) -> Dataset:
    """Load one of scikit-learn's bundled sets, without a test split.

    Parameters
    ----------
    name : {"digits", "breast-cancer", "diabetes", "wine", "iris"}

    Returns
    -------
    Dataset
        Digits are images, float32 in [0, 1] (scikit-learn's 0..16 over 16);
        the others float64 arrays as scikit-learn gives them. y is int64, and
        float64 for diabetes, the one regression.
    """
    bunch = _LOADERS[name]()
    X, y = bunch.data, bunch.target
    regression = name == "diabetes"
    images = name == "digits"
    task = "regression" if regression else "classification"
    return Dataset(
        name=name,
        X_train=(X / 16).astype(np.float32) if images else X,
        y_train=y.astype(np.float64 if regression else np.int64),
        task="regression" if regression else "classification",
        feature_names=tuple(map(str, bunch.feature_names)),
        target_names=None if regression else tuple(map(str, bunch.target_names)),
        image_shape=(8, 8, 1) if images else None,
        description=(
            f"{name}, bundled with scikit-learn: n = {X.shape[0]:,}, "
            f"d = {X.shape[1]}, {task}"
        ),
    )
