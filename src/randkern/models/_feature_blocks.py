"""Features of training rows, block by block: made again, or kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks, rows_within
from randkern.models._rows import TrainingBlock, TrainingRows
from randkern.plan import Plan, evaluate

__all__ = ["FeatureBlock", "FeatureBlocks", "feature_block_rows"]

# Fewer rows than this cost more for the sums of the second product than they save.
_LEAST_ROWS = 128
_MOST_ROWS = 4096
# What blocks come down to where memory is short.
_FEWEST_ROWS = 16
# Scales and weights of a row that is kept, besides its targets.
_EXTRA_BYTES = 24
# Features that are kept take part in one call, which may be interrupted after it.
_ROWS_AT_ONCE = 2**17


def feature_block_rows(n_components: int, like: Any) -> list[int]:
    """Return how many rows a block of features may have, from the best size down.

    Features are of the dtype of `like`, and where that lies.
    """
    thin = ops_of(like).skinny_gemm
    row = thin.padded(n_components) * like.dtype.itemsize
    n_rows = min(_MOST_ROWS, rows_within(thin.BLOCK_BYTES, row, at_least=_LEAST_ROWS))
    sizes = []
    while n_rows > _FEWEST_ROWS:
        sizes.append(n_rows)
        n_rows //= 2
    return [*sizes, _FEWEST_ROWS]


@dataclass(frozen=True)
class FeatureBlock:
    """Some rows of features: ``scales[:, None] * values``, and their weights.

    The values have zeros in the columns that fill up their width; the scales are
    None where they are all 1.
    """

    rows: slice
    values: Any
    scales: np.ndarray | None
    weight: Any


class FeatureBlocks:
    """The features Z of training rows, and their products, where the rows lie.

    Rows are kept if the memory allows: all in the type of the inputs, or as many as
    possible in 16 bits (an error of 1.6e-5 of the largest of a row), if that precision
    is enough. The others are made again for every product.

    Parameters
    ----------
    plan : Plan
    rows : TrainingRows
    kept_bytes : int
        Memory for features.
    compress : bool
        Whether features of arrays may be kept in 16 bits.
    weight_unit : float
        Weights are divided by it.
    block : int, optional
        Rows that are made at a time.
    """

    def __init__(
        self,
        plan: Plan,
        rows: TrainingRows,
        kept_bytes: int = 0,
        compress: bool = False,
        weight_unit: float = 1.0,
        block: int | None = None,
    ):
        self.plan = plan
        self.rows = rows
        self.weight_unit = weight_unit
        self._ops = ops_of(rows.like)
        self._thin = self._ops.skinny_gemm
        self.width = self._thin.padded(plan.n_components)
        row = self.width * rows.dtype.itemsize
        self.block = block or feature_block_rows(plan.n_components, rows.like)[0]
        self.n_kept = 0
        self._values: Any = None
        self._scales: np.ndarray | None = None
        self._weights: Any = None
        self._targets: Any = None
        extra = _EXTRA_BYTES + 8 * rows.n_targets
        if rows.n_rows * (row + extra) <= kept_bytes:
            self._keep(rows.n_rows, compressed=False)
        elif compress and hasattr(self._thin, "quantize"):
            n_kept = kept_bytes // (2 * self.width + extra)
            self._keep(n_kept, compressed=True)

    def _keep(self, n_kept: int, compressed: bool) -> None:
        """Fill the memory with the features of the first rows."""
        n_kept = min(n_kept, self.rows.n_rows)
        if n_kept == 0:
            return
        ops, like, D = self._ops, self.rows.like, self.plan.n_components
        stored = np.empty(0, np.int16) if compressed else like
        values = self._thin.empty_padded(n_kept, D, stored)
        scales = ops.empty(n_kept, like)
        weights = ops.ones(n_kept, like)
        targets = ops.zeros((n_kept, self.rows.n_targets), like)
        buffer = self._buffer()
        for rows in self.rows.blocks(self.block):
            block = self._made(rows, buffer)
            stop = min(block.rows.stop, n_kept)
            here, n = slice(block.rows.start, stop), stop - block.rows.start
            if compressed:
                self._thin.quantize(block.values[:n, :D], values[here], scales[here])
            else:
                values[here, :D] = block.values[:n, :D]
            targets[here] = rows.Y[:n]
            if block.weight is not None:
                weights[here] = block.weight[:n]
            if stop == n_kept:
                break
        self._values, self._weights, self._targets = values, weights, targets
        self._scales = scales.astype(np.float64) if compressed else None
        self.n_kept = n_kept

    def blocks(self, kept_rows: int) -> Iterator[FeatureBlock]:
        """Yield all rows, of those kept `kept_rows` at a time.

        An array may be used again for the next block.
        """
        for rows in row_blocks(self.n_kept, kept_rows):
            yield self._kept(rows)
        if self.n_kept < self.rows.n_rows:
            yield from self._fresh(self.n_kept)

    def _fresh(self, start: int) -> Iterator[FeatureBlock]:
        buffer = self._buffer()
        for block in self.rows.blocks(self.block, start):
            yield self._made(block, buffer)

    def _buffer(self) -> Any:
        n_rows = min(self.block, self.rows.n_rows)
        return self._thin.empty_padded(n_rows, self.plan.n_components, self.rows.like)

    def _made(self, block: TrainingBlock, buffer: Any) -> FeatureBlock:
        """Return the features of some rows, made in the buffer."""
        values = buffer[: len(block.Y)]
        evaluate(self.plan, block.X, out=values[:, : self.plan.n_components])
        weight = None if block.weight is None else block.weight / self.weight_unit
        return FeatureBlock(block.rows, values, None, weight)

    def _kept(self, rows: slice) -> FeatureBlock:
        scales = None if self._scales is None else self._scales[rows]
        return FeatureBlock(rows, self._values[rows], scales, self._weights[rows])

    def _with_targets(self) -> Iterator[tuple[FeatureBlock, Any]]:
        """Yield all rows with their targets."""
        for rows in row_blocks(self.n_kept, self.block):
            yield self._kept(rows), self._targets[rows]
        if self.n_kept < self.rows.n_rows:
            buffer = self._buffer()
            for block in self.rows.blocks(self.block, self.n_kept):
                yield self._made(block, buffer), block.Y

    def sample(self, rows: np.ndarray) -> tuple[Callable[[slice], Any], Any]:
        """Return a function that gives columns of some rows' features; their weights.

        The rows' numbers ascend.
        """
        if self.n_kept < self.rows.n_rows:
            block = self.rows.take(rows)
            weight = None if block.weight is None else block.weight / self.weight_unit
            return lambda columns: evaluate(self.plan, block.X, columns), weight
        take = self._ops.take
        scales = None if self._scales is None else self._scales[rows, None]

        def features(columns: slice) -> Any:
            values = take(self._values[:, columns], rows)
            if scales is None:
                return values
            return (values * scales).astype(self.rows.dtype)

        return features, take(self._weights, rows)

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> Any:
        """Return Σ w_i z_i ((y_i − means)/sizes, 1), transposed: shape (k + 1, D).

        The sizes bring the targets into the range of float32.
        """
        ops, like = self._ops, self.rows.like
        out = ops.zeros((len(means) + 1, self.width), like)
        center, unit = ops.float64_like(means, like), ops.float64_like(sizes, like)
        for made, Y in self._with_targets():
            targets = ops.ones((len(Y), len(means) + 1), like)
            targets[:, :-1] = (Y - center) / unit
            if made.weight is not None:
                targets *= made.weight[:, None]
            if made.scales is not None:
                targets *= made.scales[:, None]
            factor = self._thin.pack(targets, made.values)
            self._thin.add_transposed(made.values, factor, out)
        return out[:, : self.plan.n_components]

    def product(self, V: Any) -> Any:
        """Return Σ w_i z_i z_iᵀ V, transposed.

        V is transposed, of shape (k, D), with entries of at most about 1.
        """
        ops, like = self._ops, self.rows.like
        k, D = V.shape
        right = self._thin.empty_padded(k, D, like)
        right[:, :D] = V
        out = ops.zeros((k, self.width), like)
        for made in self.blocks(_ROWS_AT_ONCE):
            factors = ops.ones(len(made.values), like)
            if made.scales is not None:
                factors *= made.scales**2
            if made.weight is not None:
                factors *= made.weight
            factor = self._thin.pack(right, made.values)
            self._thin.add_gram_product(made.values, factors, factor, out)
        return out[:, :D]
