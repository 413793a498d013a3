"""Training rows in batches, for stochastic gradients on features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from randkern.backend import thin
from randkern.models._operators import FeatureOperator
from randkern.models._rows import TrainingBlock, TrainingRows
from randkern.plan import evaluate

__all__ = ["FeatureBatches"]

# Features of sampled rows that the length of a step is found from.
_SAMPLED_BYTES = 64 * 10**6


class FeatureBatches:
    """The matrix of a :class:`FeatureOperator`, whose rows come in batches.

    `pool_bytes` is the memory for rows of a stream that batches are drawn from.
    """

    def __init__(
        self, operator: FeatureOperator, rows: TrainingRows, pool_bytes: int = 0
    ):
        self._operator = operator
        self._rows = rows
        self._pool_bytes = pool_bytes
        self.size = operator.size
        self.weight_unit = operator.weight_unit
        self.weight_sum = operator.survey.weight_sum / operator.weight_unit
        self.center = (
            operator.feature_sum / self.weight_sum if operator.center else None
        )
        self.leading_eigenpairs = operator.leading_eigenpairs

    def sampled_features(self) -> np.ndarray:
        """Return features of some rows, each times the root of its weight."""
        n_bytes = self.size * self._rows.dtype.itemsize
        n = min(self._rows.n_rows, max(1, _SAMPLED_BYTES // n_bytes))
        generator = self._operator.stream.child("step").generator()
        numbers = np.sort(generator.choice(self._rows.n_rows, n, replace=False))
        block = self._rows.take(numbers)
        Z = evaluate(self._operator.plan, block.X)
        if self.center is not None:
            Z -= self.center.astype(Z.dtype)
        if block.weight is not None:
            Z *= np.sqrt(block.weight / self.weight_unit)[:, None].astype(Z.dtype)
        return Z

    def batches(self, n_rows: int, epoch: int) -> Iterator[_Batch]:
        """Yield all rows in batches."""
        generator = self._operator.stream.child("epoch", epoch).generator()
        width = thin.padded(self.size)
        buffer = np.zeros((min(n_rows, self._rows.n_rows), width), self._rows.dtype)
        for block in self._rows.batches(n_rows, generator, self._pool_bytes):
            values = buffer[: len(block.Y)]
            evaluate(self._operator.plan, block.X, out=values[:, : self.size])
            if self.center is not None:
                values[:, : self.size] -= self.center.astype(values.dtype)
            yield _Batch(self, values, block, self._operator.means)


class _Batch:
    """Features of some rows, with their targets and weights."""

    def __init__(
        self, source: FeatureBatches, Z: np.ndarray, block: TrainingBlock, means: Any
    ):
        self._Z = Z
        self._Y = block.Y - means
        self._size = source.size
        self._weight = np.ones(len(Z))
        if block.weight is not None:
            self._weight = block.weight / source.weight_unit

    @property
    def weight(self) -> float:
        return float(self._weight.sum())

    def gradient(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ w_i z_i (z_i·W − y_i), (D, k), and Σ w_i (z_i·W − y_i)², (k,)."""
        k, width = W.shape[1], self._Z.shape[1]
        size = float(np.abs(W).max(initial=0.0)) or 1.0
        right = np.zeros((k, width), self._Z.dtype)
        right[:, : self._size] = (W / size).T
        residual = thin.multiply(self._Z, right) * size - self._Y
        loss = self._weight @ residual**2
        residual *= self._weight[:, None]
        largest = float(np.abs(residual).max(initial=0.0)) or 1.0
        out = np.zeros((k, width))
        thin.add_transposed(self._Z, (residual / largest).astype(self._Z.dtype), out)
        return np.ascontiguousarray(out[:, : self._size].T) * largest, loss
