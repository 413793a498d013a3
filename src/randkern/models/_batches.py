"""Training rows in batches, for stochastic gradients on features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from randkern.backend import thin
from randkern.blocks import row_blocks
from randkern.models._feature_blocks import feature_block_rows
from randkern.models._operators import FeatureOperator
from randkern.models._rows import TrainingBlock, TrainingRows
from randkern.plan import evaluate

__all__ = ["FeatureBatches"]

# Features of sampled rows that the length of a step is found from.
_SAMPLED_BYTES = 64 * 10**6


class FeatureBatches:
    """The matrix of a :class:`FeatureOperator`, whose rows come in batches.

    Parameters
    ----------
    operator : FeatureOperator
    rows : TrainingRows
    spare_bytes : int
        Memory for sampled features, then for rows of a stream that batches are drawn
        from.
    at_once : int, optional
        Rows of features that are made at a time.
    """

    def __init__(
        self,
        operator: FeatureOperator,
        rows: TrainingRows,
        spare_bytes: int = 3 * _SAMPLED_BYTES,
        at_once: int | None = None,
    ):
        self._operator = operator
        self._rows = rows
        self._spare_bytes = spare_bytes
        itemsize = rows.dtype.itemsize
        self._at_once = at_once or feature_block_rows(operator.size, itemsize)[0]
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
        # They are there three times while the preconditioner is applied to them.
        most = min(_SAMPLED_BYTES, self._spare_bytes // 3) // n_bytes
        n = min(self._rows.n_rows, max(1, self._at_once // 2, most))
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
        most = min(self._at_once, n_rows, self._rows.n_rows)
        buffer = np.zeros((most, width), self._rows.dtype)
        for block in self._rows.batches(n_rows, generator, self._spare_bytes):
            yield _Batch(self, buffer, block)

    def features_of(self, block: TrainingBlock, buffer: np.ndarray) -> np.ndarray:
        """Return the features of some rows, made in the buffer."""
        values = buffer[: len(block.Y)]
        evaluate(self._operator.plan, block.X, out=values[:, : self.size])
        if self.center is not None:
            values[:, : self.size] -= self.center.astype(values.dtype)
        return values

    def targets_of(self, block: TrainingBlock) -> np.ndarray:
        """Return the targets, centred if there is an intercept."""
        return block.Y - self._operator.means

    def weights_of(self, block: TrainingBlock) -> np.ndarray:
        """Return the weights of some rows in their unit."""
        if block.weight is None:
            return np.ones(len(block.Y))
        return block.weight / self.weight_unit


class _Batch:
    """Some rows whose features are made a part at a time."""

    def __init__(self, source: FeatureBatches, buffer: np.ndarray, rows: TrainingBlock):
        self._source, self._buffer, self._rows = source, buffer, rows

    @property
    def weight(self) -> float:
        return float(self._source.weights_of(self._rows).sum())

    def gradient(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ w_i z_i (z_i·W − y_i), (D, k), and Σ w_i (z_i·W − y_i)², (k,)."""
        D, k = W.shape
        at_once, width = self._buffer.shape
        size = float(np.abs(W).max(initial=0.0)) or 1.0
        right = np.zeros((k, width), self._buffer.dtype)
        right[:, :D] = (W / size).T
        loss = np.zeros(k)
        gradient = np.zeros((k, width))
        for rows in row_blocks(len(self._rows.Y), at_once):
            part = self._rows.part(rows.start, rows.stop)
            Z = self._source.features_of(part, self._buffer)
            weight = self._source.weights_of(part)
            residual = thin.multiply(Z, right) * size - self._source.targets_of(part)
            loss += weight @ residual**2
            residual *= weight[:, None]
            largest = float(np.abs(residual).max(initial=0.0)) or 1.0
            out = np.zeros((k, width))
            thin.add_transposed(Z, (residual / largest).astype(Z.dtype), out)
            gradient += out * largest
        return np.ascontiguousarray(gradient[:, :D].T), loss
