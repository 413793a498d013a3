"""Training rows in batches, for stochastic gradients on features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows
from randkern.models.linear_operators import FeatureOperator
from randkern.plan import evaluate

# Features of sampled rows from which the step size is estimated.
_SAMPLED_BYTES = 64 * 10**6


class FeatureBatches:
    """The matrix of a :class:`FeatureOperator`, whose rows come in batches.

    Features, targets and gradients lie where the rows do.

    Parameters
    ----------
    operator : FeatureOperator
    spare_bytes : int
        Memory for sampled features, then for rows of a stream that batches are drawn
        from.
    """

    def __init__(
        self, operator: FeatureOperator, spare_bytes: int = 3 * _SAMPLED_BYTES
    ):
        self._operator = operator
        self._plan, self._rows = operator.features.plan, operator.features.rows
        self._spare_bytes = spare_bytes
        self._at_once = operator.features.block_rows
        self.size, self.n_targets = operator.size, self._rows.n_targets
        self.weight_unit = operator.weight_unit
        self.weight_sum = operator.survey.weight_sum / operator.weight_unit
        self.center = (
            operator.feature_sum / self.weight_sum if operator.center else None
        )
        self.leading_eigenpairs = operator.leading_eigenpairs

    def sampled_features(self) -> Any:
        """Return features of some rows, each times the root of its weight."""
        n_bytes = self.size * self._rows.dtype.itemsize
        # Applying the preconditioner takes three copies of them.
        most = min(_SAMPLED_BYTES, self._spare_bytes // 3) // n_bytes
        n = min(self._rows.n_rows, max(1, self._at_once // 2, most))
        generator = self._operator.stream.child("step").generator()
        numbers = np.sort(generator.choice(self._rows.n_rows, n, replace=False))
        block = self._rows.take(numbers)
        Z = evaluate(self._plan, block.X)
        asarray = ops_of(Z).asarray
        if self.center is not None:
            Z -= asarray(self.center, Z)
        if block.weight is not None:
            Z *= asarray((block.weight / self.weight_unit) ** 0.5, Z)[:, None]
        return Z

    def batches(self, n_rows: int, epoch: int) -> Iterator[_Batch]:
        """Yield all rows in batches."""
        generator = self._operator.stream.child("epoch", epoch).generator()
        most = min(self._at_once, n_rows, self._rows.n_rows)
        like = self._rows.like
        buffer = ops_of(like).skinny_gemm.empty_padded(most, self.size, like)
        for block in self._rows.batches(n_rows, generator, self._spare_bytes):
            yield _Batch(self, buffer, block)

    def features_of(self, block: ArrayRows, buffer: Any) -> Any:
        """Return the features of some rows, made in the buffer."""
        values = buffer[: len(block.Y)]
        evaluate(self._plan, block.X, out=values[:, : self.size])
        if self.center is not None:
            values[:, : self.size] -= ops_of(values).asarray(self.center, values)
        return values

    def targets_of(self, block: ArrayRows) -> Any:
        """Return the targets, centred if there is an intercept."""
        return block.Y - ops_of(block.Y).float64_like(self._operator.means, block.Y)

    def weights_of(self, block: ArrayRows) -> Any:
        """Return the weights of some rows in their unit."""
        if block.weight is None:
            return ops_of(block.Y).ones(len(block.Y), block.Y)
        return block.weight / self.weight_unit


class _Batch:
    """Some rows whose features are made a part at a time."""

    def __init__(self, source: FeatureBatches, buffer: Any, rows: ArrayRows):
        self._source, self._buffer, self._rows = source, buffer, rows

    @property
    def weight(self) -> float:
        return float(self._source.weights_of(self._rows).sum())

    def gradient(self, W: Any) -> tuple[Any, Any]:
        """Return Σ w_i z_i (z_i·W − y_i), (D, k), and Σ w_i (z_i·W − y_i)², (k,)."""
        ops = ops_of(W)
        thin, largest = ops.skinny_gemm, ops.largest
        D, k = W.shape
        at_once, width = self._buffer.shape
        size = largest(abs(W)) or 1.0
        right = thin.empty_padded(k, D, self._buffer)
        right[:, :D] = (W / size).T
        loss = ops.zeros(k, W)
        gradient = ops.zeros((k, width), W)
        for rows in row_blocks(len(self._rows.Y), at_once):
            part = self._rows.part(rows.start, rows.stop)
            Z = self._source.features_of(part, self._buffer)
            weight = self._source.weights_of(part)
            residual = thin.multiply(Z, right) * size - self._source.targets_of(part)
            loss += weight @ residual**2
            residual *= weight[:, None]
            unit = largest(abs(residual)) or 1.0
            out = ops.zeros((k, width), W)
            thin.add_transposed(Z, thin.pack(residual / unit, Z), out)
            gradient += out * unit
        return ops.contiguous(gradient[:, :D].T), loss
