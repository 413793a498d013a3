"""Rows of a fit: as they are passed, merged if they are copies, and encoded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._sklearn import safe_indexing
from randkern._validation import is_table
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.folds import Folds
from randkern.tabular.presets import MAX_FACTORISED

# If more than this share of the distinct rows differ only in their targets, equal rows
# are not treated as copies.
_MAX_MIXED = 0.1


@dataclass(frozen=True)
class Table:
    """Rows with targets (n, k), or codes of labels, and weights.

    Also the labels, if any, the folds of rows that depend on each other, and the `unit`
    that the weights have been divided by.
    """

    X: Any
    Y: np.ndarray
    weight: np.ndarray
    labels: Any = None
    folds: Folds | None = None
    unit: float = 1.0

    def __len__(self) -> int:
        return len(self.Y)

    def take(self, rows: np.ndarray) -> Table:
        """Return some of the rows."""
        return replace(
            self,
            X=safe_indexing(self.X, rows),
            Y=self.Y[rows],
            weight=self.weight[rows],
            labels=None if self.labels is None else self.labels[rows],
            folds=None if self.folds is None else self.folds.take(rows),
        )

    def used(self, name: str) -> Table:
        """Return the rows with positive weight; raise if an estimator needs more."""
        used = np.flatnonzero(self.weight)
        if len(used) < 2:
            raise ValueError(
                f"{name} needs at least 2 rows with positive weight, "
                f"got n_samples = {len(used)}."
            )
        return self if len(used) == len(self) else self.take(used)

    def merged(self, encoder: TabularEncoder) -> Table:
        """Merge copies of a row in a fold and sum their weights.

        Otherwise the leave-one-out errors of copies would be too small.
        """
        if len(self) > MAX_FACTORISED:
            return self
        if self.own_weight is None and are_different(self.X):
            return self
        U = encoder.transform(self.X)
        if self.folds is not None:
            U = np.column_stack([U, self.folds.codes])
        targets = self.Y if self.labels is None else self.labels
        different = different_rows(U, targets, self.weight)
        if different is None:
            return self
        rows, weight = different
        if len(rows) == len(self) and self.own_weight is None:
            return self
        return replace(self.take(rows), weight=weight)

    def normalised(self) -> Table:
        """Return rows whose weights have mean 1."""
        unit = float(self.weight.mean())
        return replace(self, weight=self.weight / unit, unit=unit)

    @property
    def own_weight(self) -> np.ndarray | None:
        """The weights, None if they are equal."""
        return None if are_equal(self.weight) else self.weight

    @property
    def counts(self) -> np.ndarray | None:
        """The weights before normalisation, which repeat rows; None if equal."""
        return None if are_equal(self.weight) else self.unit * self.weight


def are_equal(weight: np.ndarray) -> bool:
    """Return whether all weights are equal: they fit what none fit."""
    return bool((weight == weight[0]).all())


def different_rows(
    U: np.ndarray, Y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first copy of each row, and the sums of the copies' weights.

    They are sorted, so that neither the order nor the repetition of rows matters; by
    their numbers, because rounding errors of these change the order of bytes. If many
    equal rows of `U` have different targets, and so are not copies, return None.
    """
    both = np.column_stack([U, Y])
    _, rows, copies = np.unique(_bytes_of(both), return_index=True, return_inverse=True)
    _, place, counts = np.unique(
        _bytes_of(U[rows]), return_inverse=True, return_counts=True
    )
    if (counts[place] > 1).mean() > _MAX_MIXED or len(rows) < 2:
        return None
    total = np.bincount(copies.ravel(), weight)  # NumPy 2.0 returns a column
    order = np.lexsort(both[rows].T[::-1])
    return rows[order], total[order]


def are_different(X: Any) -> bool:
    """Return whether no two rows of an array or pandas dataframe are equal.

    That of rows of other tables is not known before they are encoded.
    """
    if not is_table(X):
        return len(np.unique(_bytes_of(X))) == len(X)
    if not hasattr(X, "iloc"):
        return False
    import pandas as pd

    with suppress(TypeError):  # values of several types
        return bool(pd.util.hash_pandas_object(X, index=False).is_unique)
    return False


def _bytes_of(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row, which are compared much faster than its numbers."""
    rows = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 equals 0.0
    return rows.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()
