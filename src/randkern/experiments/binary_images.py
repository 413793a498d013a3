"""Images of lit and dark pixels, as a micromirror device shows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import Dataset
from ..optics import ThresholdBinarizer
from .preparation import load_labelled_images, prepare

__all__ = ["BinaryImages", "load_binary_images"]

_FOLDERS = ("fashion-mnist", "mnist", "fashion-mnist-sample")
# A pixel is lit above 10 of 255 (Ohana et al. 2020, for Fashion-MNIST): pixels are
# multiples of 1/255 rounded to float32, so that the border lies between two of them.
_PIXEL_THRESHOLD = 10.5 / 255


@dataclass(frozen=True)
class BinaryImages:
    """A classification set of bits.

    Attributes
    ----------
    name : str
        Says so where the set is a sample.
    family : str
        ``"mnist"``, ``"fashion-mnist"`` or ``""``: what stored hyperparameters and
        published numbers are of.
    complete : bool
        Whether all rows of the family are there.
    X_train, X_test : ndarray of uint8, 0 or 1
    y_train, y_test : ndarray
    threshold : str
        Which values are lit.
    """

    name: str
    family: str
    complete: bool
    X_train: NDArray[np.uint8]
    y_train: NDArray[Any]
    X_test: NDArray[np.uint8]
    y_test: NDArray[Any]
    threshold: str

    def describe(self) -> dict[str, Any]:
        """Return what the records say about it."""
        return {
            "name": self.name,
            "complete": self.complete,
            "n_train": len(self.X_train),
            "n_test": len(self.X_test),
            "n_features": int(self.X_train.shape[1]),
            "n_classes": len(np.unique(self.y_train)),
            "threshold": self.threshold,
            "mean_lit": float(self.X_train.sum(axis=1, dtype=np.int64).mean()),
            "metric": "misclassified share",
        }

    def dataset(self, rows: NDArray[np.intp]) -> Dataset:
        """Return some training rows and all test rows, in float32.

        They count as images, which no preparation rescales.
        """
        return Dataset(
            name=self.name,
            X_train=self.X_train[rows].astype(np.float32),
            y_train=self.y_train[rows],
            X_test=self.X_test.astype(np.float32),
            y_test=self.y_test,
            image_shape=(1, self.X_train.shape[1], 1),
        )


def load_binary_images(data: str, data_dir: Path | None) -> BinaryImages:
    """Load an image set and binarize it.

    Parameters
    ----------
    data : str
        A name that :func:`randkern.datasets.load_dataset` knows. ``"auto"``: the
        first of the folders ``fashion-mnist``, ``mnist`` and
        ``fashion-mnist-sample`` in `data_dir`, and scikit-learn's digits without
        `data_dir`.
    data_dir : Path, optional

    Returns
    -------
    images : BinaryImages
        MNIST and Fashion-MNIST are lit above 10 of 255, other sets above the
        threshold of Otsu (:class:`randkern.optics.ThresholdBinarizer`).

    Raises
    ------
    ValueError
        If there is no such set, or its rows are not images with classes.
    OSError
        If its files cannot be read.

    Examples
    --------
    >>> from randkern.experiments.binary_images import load_binary_images
    >>> images = load_binary_images("digits", None)
    >>> images.X_train.shape, int(images.X_train.max())
    ((1347, 64), 1)
    """
    if data == "auto":
        data = _first_found(data_dir)
    dataset = load_labelled_images(data, data_dir)
    prepared = prepare(dataset)
    family = next((name for name in _FOLDERS[:2] if data.startswith(name)), "")
    binarizer = ThresholdBinarizer(_PIXEL_THRESHOLD if family else "auto")
    X_train = binarizer.fit_transform(prepared.X_train)
    threshold = "above 10 of 255"
    if not family:
        threshold = f"above {binarizer.threshold_:.3g} of 1 (Otsu)"
    return BinaryImages(
        name=dataset.name,
        family=family,
        complete="sample" not in dataset.name,
        X_train=X_train,
        y_train=prepared.y_train,
        X_test=binarizer.transform(prepared.X_test),
        y_test=prepared.y_test,
        threshold=threshold,
    )


def _first_found(data_dir: Path | None) -> str:
    if data_dir is None:
        return "digits"
    for folder in _FOLDERS:
        if (data_dir / folder).is_dir():
            return folder
    raise ValueError(
        f"{data_dir} has none of the folders {', '.join(_FOLDERS)}; name the data set "
        "with --data, or leave --data-dir out for scikit-learn's digits"
    )
