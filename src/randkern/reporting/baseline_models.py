"""Baselines of a tabular model: a constant, a linear model, boosted trees."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from randkern._tables import kind_of, numbers_of, objects_of
from randkern._warnings import warn
from randkern.reporting.scores import EvaluatedModel
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.target_encoding import TextEncoder

if TYPE_CHECKING:
    import pandas as pd

#: Names of baselines: of the linear ones by task, and of boosted trees.
LINEAR = {"classification": "logistic regression", "regression": "ridge regression"}
TREES = "boosted trees"
# Each may take this share of the time limit.
_SHARE = 0.1
# The most rows for the linear model, and its seconds per row and column.
_LINEAR_ROWS = 50_000
_LINEAR_CELL = 3e-6


def baselines(
    X: Any,
    y: np.ndarray,
    task: str,
    texts: Sequence[str] = (),
    time_limit: float = math.inf,
) -> dict[str, Any]:
    """Return a constant, a linear model and boosted trees, fitted, by their names.

    `texts` are the columns of free text. The linear model is fitted to 50,000 rows at
    most: more would hardly change it. Those that would take more than a tenth of
    `time_limit` seconds, by the size of the table, are left out.
    """
    planned = planned_seconds(X, y, task, time_limit)
    classes = task == "classification"
    if classes:
        fitted = {"most frequent class": DummyClassifier().fit(X, y)}
        linear = LogisticRegression(max_iter=1000)
    else:
        fitted = {"mean": DummyRegressor().fit(X, y)}
        linear = RidgeCV(np.logspace(-3, 4, 15))
    read_texts = [TextEncoder(texts, classes=classes)] if texts else []
    rows = np.linspace(0, len(y) - 1, min(len(y), _LINEAR_ROWS)).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if LINEAR[task] in planned:
            model = make_pipeline(*read_texts, TabularEncoder(), linear)
            with _reported(LINEAR[task]):
                fitted[LINEAR[task]] = model.fit(X.iloc[rows], y[rows])
        if TREES in planned:
            with _reported(TREES):
                trees = make_pipeline(*read_texts, *_trees(X, texts, classes))
                fitted[TREES] = trees.fit(X, y)
    return fitted


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Report what ends the fit of a baseline: the model does not depend on it."""
    try:
        yield
    except Exception as error:
        what = f"{name} could not be fitted ({type(error).__name__}: {error})"
        warn(f"the report lacks a baseline: {what}", UserWarning)


def not_fitted(evaluated: EvaluatedModel) -> list[str]:
    """Return the baselines for which there was no time, none if none were asked for."""
    others = evaluated.others
    if not others:
        return []
    task = "classification" if is_classifier(evaluated.model) else "regression"
    return [name for name in (LINEAR[task], TREES) if name not in others]


def planned_seconds(
    X: Any, y: np.ndarray, task: str, time_limit: float
) -> dict[str, float]:
    """Return the baselines for which there is time, with their seconds.

    Those of trees follow from their 100 iterations of a tree per class, each with a
    pass over the rows and with the histograms of all leaves.
    """
    n, d = X.shape
    n_classes = len(np.unique(y)) if task == "classification" else 1
    n_trees = 100 * (n_classes if n_classes > 2 else 1)
    seconds = {
        LINEAR[task]: _LINEAR_CELL * min(n, _LINEAR_ROWS) * d,
        TREES: n_trees * d * (3e-5 + 6e-9 * n),
    }
    return {name: s for name, s in seconds.items() if s <= _SHARE * time_limit}


def _trees(X: Any, texts: Sequence[str], classes: bool) -> list[Any]:
    """Return the steps of boosted trees for a table, with scikit-learn's defaults."""
    # Trees do not take a column without any value.
    used = [name for name in X.columns if name not in texts and X[name].notna().any()]
    n_categories = sum(kind_of(X[name]) == "category" for name in used)
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=254,  # more do not fit into the bins of the trees
    )
    encoder = make_column_transformer(
        (codes, make_column_selector(dtype_include=object)), remainder="passthrough"
    )
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(categorical_features=range(n_categories), random_state=0)
    empty = [name for name in X.columns if name not in (*used, *texts)]
    plain = FunctionTransformer(_plain_columns, kw_args={"without": empty})
    return [plain, encoder, model]


def _plain_columns(X: pd.DataFrame, without: Sequence[str]) -> pd.DataFrame:
    """Return a table of floats, and of categories as texts, missing ones as None."""
    plain = {}
    for name in X.columns.difference(without, sort=False):
        if kind_of(X[name]) != "category":
            plain[name] = numbers_of(X[name])
        else:
            values = objects_of(X[name])
            values[:] = [None if value is None else str(value) for value in values]
            plain[name] = values
    return type(X)(plain, dtype=None).astype(
        {name: object for name, values in plain.items() if values.dtype == object}
    )
