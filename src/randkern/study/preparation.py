"""Prepares data sets as arrays on which kernels are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._sklearn import safe_indexing
from randkern.study.splitting import Splitting

if TYPE_CHECKING:
    from randkern.tabular.encoder import TabularEncoder

TEST_SHARE = 0.25
MIN_ROWS = 8


@dataclass(frozen=True)
class PreparedData:
    """Numeric training and test rows, and how they were prepared.

    Rows (n, d) are float32 for images, float64 for tables; `y_train` and `y_test` are
    labels or float64 targets, (n,). `split` says where the test rows
    come from, `preprocessing` what happened to columns; `encoder` is fitted to the
    training rows, None for images; `splitting` is how these rows are divided.
    """

    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    task: Literal["classification", "regression"]
    split: str
    preprocessing: str
    encoder: TabularEncoder | None = None
    splitting: Splitting = field(default_factory=Splitting)


def prepare(dataset: Any, *, random_state: int = 0) -> PreparedData:
    """Hold out test rows and encode all columns as numbers on a common scale.

    If the data set has no test rows, a quarter is held out by the seed `random_state`,
    stratified by class in classification; whole groups or the last rows in time, if the
    data set has either. Images, which the loaders scale to [0, 1],
    are unchanged. Columns of tables are encoded by :class:`randkern.TabularEncoder`,
    fitted to the training rows: numbers are standardised, missing ones are replaced by
    the median and marked by an indicator column, and categories are one-hot encoded.

    Fewer than 8 rows raise a ValueError.
    """
    y_train = _labels(dataset.y_train)
    X_train, X_test = dataset.X_train, dataset.X_test
    splitting = Splitting.of(dataset.groups, dataset.time)
    if len(y_train) < MIN_ROWS:
        raise ValueError(
            f"the data set has {len(y_train)} rows; expected {MIN_ROWS} or more"
        )
    if X_test is not None:
        y_test = _labels(dataset.y_test)
        split = "the data set's own test rows"
    else:
        splitting = splitting.with_copies_together(X_train)
        *rows, split = splitting.held_out(
            y_train, dataset.task, TEST_SHARE, random_state
        )
        X_train, X_test = (safe_indexing(X_train, part) for part in rows)
        y_train, y_test = (y_train[part] for part in rows)
        splitting = splitting.take(rows[0])
    encoder, preprocessing = None, "pixels in [0, 1]"
    if dataset.image_shape is not None:
        X_train = np.asarray(X_train)
        X_test = np.asarray(X_test)
    else:
        encoder = randkern.TabularEncoder().fit(X_train)
        X_train = encoder.transform(X_train)
        X_test = encoder.transform(X_test)
        preprocessing = _described(encoder)
    return PreparedData(
        X_train,
        y_train,
        X_test,
        y_test,
        dataset.task,
        split,
        preprocessing,
        encoder,
        splitting,
    )


def _described(encoder: TabularEncoder) -> str:
    """Describe what an encoder does to the columns of a table."""
    columns = encoder.columns_
    categories = np.array(list(encoder.levels_), dtype=int)
    width = int(np.isin(columns, categories).sum())
    n_numbers, n_missing, _ = encoder.widths_
    constant = encoder.n_features_in_ - len(np.unique(columns))
    parts = [
        (n_numbers, f"{n_numbers} numeric, standardised"),
        (
            n_missing,
            f"{n_missing} of them with missing values, marked by an indicator column",
        ),
        (len(categories), f"{len(categories)} categorical, one-hot ({width})"),
        (constant, f"{constant} constant, left out"),
    ]
    return "columns: " + ", ".join(text for n, text in parts if n)


def _labels(y: Any) -> NDArray[Any]:
    """Return targets, and labels that are objects as texts."""
    values = np.asarray(y)
    return values.astype(str) if values.dtype == object else values
