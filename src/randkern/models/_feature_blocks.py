"""Features of training rows, block by block: made again, or kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from randkern.backend import thin
from randkern.blocks import row_blocks, rows_within
from randkern.models._rows import TrainingBlock, TrainingRows
from randkern.plan import Plan, evaluate

__all__ = ["FeatureBlock", "FeatureBlocks", "feature_block_rows"]

# A block of features stays in the last level of the cache between the two
# products that it takes part in.
_BLOCK_BYTES = 16 * 2**20
# Fewer rows than this cost more for the sums of the second product than they save.
_LEAST_ROWS = 128
_MOST_ROWS = 4096
# What blocks come down to where memory is short.
_FEWEST_ROWS = 16
# Scales and weights of a row that is kept, besides its targets.
_EXTRA_BYTES = 24
# Features that are kept take part in one call, which may be interrupted after it.
_ROWS_AT_ONCE = 2**17


def feature_block_rows(n_components: int, itemsize: int) -> list[int]:
    """Return how many rows a block of features may have, from the best size down."""
    row = thin.padded(n_components) * itemsize
    n_rows = min(_MOST_ROWS, rows_within(_BLOCK_BYTES, row, at_least=_LEAST_ROWS))
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
    values: np.ndarray
    scales: np.ndarray | None
    weight: np.ndarray | None


class FeatureBlocks:
    """The features Z of training rows, and their products.

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
        Whether features may be kept in 16 bits.
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
        self.width = thin.padded(plan.n_components)
        row = self.width * rows.dtype.itemsize
        self.block = (
            block or feature_block_rows(plan.n_components, rows.dtype.itemsize)[0]
        )
        self.n_kept = 0
        self._values = np.empty((0, self.width), rows.dtype)
        self._scales: np.ndarray | None = None
        self._weights: np.ndarray | None = None
        self._targets = np.empty((0, rows.n_targets))
        extra = _EXTRA_BYTES + 8 * rows.n_targets
        if rows.n_rows * (row + extra) <= kept_bytes:
            self._keep(rows.n_rows, rows.dtype)
        elif compress:
            n_kept = kept_bytes // (2 * self.width + extra)
            self._keep(n_kept, np.dtype(np.int16))

    def _keep(self, n_kept: int, dtype: np.dtype) -> None:
        """Fill the memory with the features of the first rows."""
        n_kept = min(n_kept, self.rows.n_rows)
        if n_kept == 0:
            return
        values = np.zeros((n_kept, self.width), dtype)
        compressed = dtype == np.int16
        scales = np.empty(n_kept, self.rows.dtype)
        weights = np.ones(n_kept)
        targets = np.empty((n_kept, self.rows.n_targets))
        D = self.plan.n_components
        buffer = self._buffer()
        for rows in self.rows.blocks(self.block):
            block = self._made(rows, buffer)
            stop = min(block.rows.stop, n_kept)
            here, n = slice(block.rows.start, stop), stop - block.rows.start
            if compressed:
                thin.quantize(block.values[:n, :D], values[here], scales[here])
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

    def _buffer(self) -> np.ndarray:
        shape = (min(self.block, self.rows.n_rows), self.width)
        return np.zeros(shape, self.rows.dtype)

    def _made(self, block: TrainingBlock, buffer: np.ndarray) -> FeatureBlock:
        """Return the features of some rows, made in the buffer."""
        values = buffer[: len(block.Y)]
        evaluate(self.plan, block.X, out=values[:, : self.plan.n_components])
        weight = None if block.weight is None else block.weight / self.weight_unit
        return FeatureBlock(block.rows, values, None, weight)

    def _kept(self, rows: slice) -> FeatureBlock:
        assert self._weights is not None
        scales = None if self._scales is None else self._scales[rows]
        return FeatureBlock(rows, self._values[rows], scales, self._weights[rows])

    def _with_targets(self) -> Iterator[tuple[FeatureBlock, np.ndarray]]:
        """Yield all rows with their targets."""
        for rows in row_blocks(self.n_kept, self.block):
            yield self._kept(rows), self._targets[rows]
        if self.n_kept < self.rows.n_rows:
            buffer = self._buffer()
            for block in self.rows.blocks(self.block, self.n_kept):
                yield self._made(block, buffer), block.Y

    def sample(
        self, rows: np.ndarray
    ) -> tuple[Callable[[slice], np.ndarray], np.ndarray | None]:
        """Return a function that gives columns of some rows' features; their weights.

        The rows' numbers ascend.
        """
        if self.n_kept < self.rows.n_rows:
            block = self.rows.take(rows)
            weight = None if block.weight is None else block.weight / self.weight_unit
            return lambda columns: evaluate(self.plan, block.X, columns), weight
        assert self._weights is not None
        scales = None if self._scales is None else self._scales[rows, None]

        def features(columns: slice) -> np.ndarray:
            values = self._values[rows, columns]
            if scales is None:
                return values
            return (values * scales).astype(self.rows.dtype)

        return features, self._weights[rows]

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return Σ w_i z_i ((y_i − means)/sizes, 1), transposed: shape (k + 1, D).

        The sizes bring the targets into the range of float32.
        """
        out = np.zeros((len(means) + 1, self.width))
        for made, Y in self._with_targets():
            targets = np.ones((len(Y), len(means) + 1))
            targets[:, :-1] = (Y - means) / sizes
            if made.weight is not None:
                targets *= made.weight[:, None]
            _add(made, targets, out)
        return out[:, : self.plan.n_components]

    def product(self, V: np.ndarray) -> np.ndarray:
        """Return Σ w_i z_i z_iᵀ V, transposed.

        V is transposed, of shape (k, D), with entries of at most about 1.
        """
        k, D = V.shape
        right = np.zeros((k, self.width), self.rows.dtype)
        right[:, :D] = V
        single = right.astype(np.float32, copy=False)
        out = np.zeros((k, self.width))
        for made in self.blocks(_ROWS_AT_ONCE):
            factors = np.ones(len(made.values))
            if made.scales is not None:
                factors *= made.scales**2
            if made.weight is not None:
                factors *= made.weight
            compressed = made.scales is not None
            thin.add_gram_product(
                made.values, factors, single if compressed else right, out
            )
        return out[:, :D]


def _add(made: FeatureBlock, inner: np.ndarray, out: np.ndarray) -> None:
    """Add Zᵀ·inner, transposed."""
    if made.scales is not None:
        inner = inner * made.scales[:, None]
    wide = made.values.dtype == np.float64
    inner = np.ascontiguousarray(inner, np.float64 if wide else np.float32)
    thin.add_transposed(made.values, inner, out)
