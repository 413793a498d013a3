"""What margin classifiers share: features kept or made again, labels, decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from randkern._memory import check_memory
from randkern.backend.namespace import ops_of
from randkern.data.sample import stacked
from randkern.models._feature_model import FeatureModel
from randkern.models._feature_rows import (
    FEWEST_ROWS,
    FactorFeatures,
    PlanFeatures,
)
from randkern.models._rows import ArrayRows, StreamedRows
from randkern.models._targets import ClassLabels

__all__ = ["MarginClassifier", "all_targets"]


class MarginClassifier(ClassLabels, ClassifierMixin, FeatureModel):
    """A classifier whose decisions are the signs or the largest of its values."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    def _features(
        self, rows: ArrayRows | StreamedRows, kept_bytes: int, precise: bool = False
    ) -> PlanFeatures | FactorFeatures:
        """Return the features of the rows: random ones, or a factor of the Gram."""
        if self.plan_ is not None:
            return PlanFeatures(self.plan_, rows, kept_bytes, precise)
        n = rows.n_rows
        check_memory(
            8 * 3 * n**2,
            self._memory_for(rows),
            f"the exact {n} x {n} Gram matrix (n_components=None) and its factor",
            "Use random features (for instance n_components=10_000)",
        )
        assert isinstance(rows, ArrayRows)
        X = ops_of(rows.X).as_float64(rows.X)
        return FactorFeatures(self.kernel_._gram(X, None))

    def _bytes_for_features(
        self, rows: ArrayRows | StreamedRows, per_row: int, per_feature: int
    ) -> int:
        """Return the memory for features that are kept: half of the limit at most.

        `per_row` and `per_feature` are the bytes that the solver has of each.

        Raises
        ------
        randkern.exceptions.MemoryLimitError
            If the limit does not even hold a few rows of features at a time.
        """
        limit, n = self._memory_for(rows), rows.n_rows
        if self.plan_ is None:  # its Gram matrix is what counts, and is checked
            return limit // 2
        width = self.plan_.n_components
        state = per_row * n + per_feature * width
        # A block of features that are made, and the rows that are worked on.
        few = 8 * width * min(n, FEWEST_ROWS)
        check_memory(
            state + 2 * few,
            limit,
            f"a fit to {n} rows by {width} features, {FEWEST_ROWS} rows of these at a "
            "time,",
            "Use fewer components or rows",
        )
        return min(limit // 2, limit - state - few)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return fitted values, (n,) for two classes, else (n, n_classes)."""
        return self._values(X)


def all_targets(
    rows: ArrayRows | StreamedRows,
) -> tuple[np.ndarray, np.ndarray]:
    """Return targets and weights of all rows, which fit in memory without X."""
    if isinstance(rows, ArrayRows):
        if rows.weight is None:
            return rows.Y, ops_of(rows.Y).ones(rows.n_rows, rows.Y)
        return rows.Y, rows.weight
    targets, weights = [], []
    for block in rows.blocks(rows.n_rows):
        ones = ops_of(block.Y).ones(len(block.Y), block.Y)
        targets.append(block.Y)
        weights.append(ones if block.weight is None else block.weight)
    return stacked(targets), stacked(weights)
