"""Rows of a fit: as they are passed, merged if they are copies, and encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._sklearn import safe_indexing
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.folds import Folds
from randkern.tabular.presets import MAX_FACTORISED

# If more than this share of the distinct rows differ only in their targets, equal rows
# are not treated as copies.
_MAX_MIXED = 0.1


@dataclass(frozen=True)
class Table:
    """Rows with targets (n, k), or codes of labels, weights, folds, and labels, if any.

    `sample_weight` are the weights that are passed to `fit`, which repeat rows if they
    are whole numbers, and `weight` their ratios to `unit`.
    """

    X: Any
    Y: np.ndarray
    sample_weight: np.ndarray
    folds: Folds
    labels: Any = None
    unit: float = 1.0

    def __len__(self) -> int:
        return len(self.Y)

    @property
    def weight(self) -> np.ndarray:
        return self.sample_weight / self.unit

    @property
    def own_weight(self) -> np.ndarray | None:
        """The weights, None if they are equal: they fit what none fit."""
        are_equal = (self.sample_weight == self.sample_weight[0]).all()
        return None if are_equal else self.weight

    def normalised(self) -> Table:
        """Return rows whose weights have mean 1."""
        return replace(self, unit=float(self.sample_weight.mean()))

    def take(self, rows: np.ndarray) -> Table:
        """Return some of the rows."""
        return replace(
            self,
            X=safe_indexing(self.X, rows),
            Y=self.Y[rows],
            sample_weight=self.sample_weight[rows],
            folds=self.folds.take(rows),
            labels=None if self.labels is None else self.labels[rows],
        )

    def used(self, name: str) -> Table:
        """Return the rows with positive weight; raise if an estimator needs more."""
        used = np.flatnonzero(self.sample_weight)
        if len(used) < 2:
            raise ValueError(
                f"{name} needs at least 2 rows with positive weight, "
                f"got n_samples = {len(used)}."
            )
        return self if len(used) == len(self) else self.take(used)

    def merged(self, encoder: TabularEncoder) -> Table:
        """Merge copies of a row in a fold and sum their weights.

        Otherwise the leave-one-out errors of copies would be too small. Merged rows are
        sorted, so that neither the order nor the repetition of rows matters. If many
        equal rows have different targets, others that agree are no copies either.
        """
        if len(self) > MAX_FACTORISED:
            return self
        U = encoder.transform(self.X)
        if not self.folds.are_rows:
            U = np.column_stack([U, self.folds.codes])
        targets = self.Y if self.labels is None else self.labels
        different, rows, copies = np.unique(
            np.column_stack([U, targets]),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        are_equal = (np.diff(different[:, : U.shape[1]], axis=0) == 0).all(axis=1)
        is_mixed = np.append(are_equal, False) | np.append(False, are_equal)
        has_copies = len(rows) < len(self) or self.own_weight is not None
        if is_mixed.mean() > _MAX_MIXED or len(rows) < 2 or not has_copies:
            return self
        # NumPy 2.0 has a column of copies.
        sample_weight = np.bincount(copies.ravel(), self.sample_weight)
        return replace(self.take(rows), sample_weight=sample_weight)
