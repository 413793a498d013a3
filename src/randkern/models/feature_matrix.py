"""Random features of training data: cached, cached in 16 bits, or recomputed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randkern._memory import warn_if_not_free
from randkern._validation import Array, Rows, is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import FitData, TrainingData
from randkern.kernels import Kernel
from randkern.models.memory import block_rows_within
from randkern.plan import Plan, evaluate

# Cached rows per compiled call; only between calls can the fit be interrupted.
_ROWS_AT_ONCE = 2**15


@dataclass(frozen=True)
class FeatureBlock:
    """A block of rows of features, ``scales[:, None] * values``, targets and weights.

    The values are padded with columns of zeros; scales and weights are None if they are
    all 1. The arrays may be reused for the next block.
    """

    rows: slice
    values: Array
    scales: Any = None
    Y: Array = None
    weight: Array = None

    def part(self, rows: slice) -> FeatureBlock:
        """Return some rows of the block, numbered from its start."""

        def rows_of(array: Any) -> Any:
            return None if array is None else array[rows]

        return FeatureBlock(
            rows,
            self.values[rows],
            rows_of(self.scales),
            rows_of(self.Y),
            rows_of(self.weight),
        )


def products(Z: Array, weights: Array) -> Any:
    """Return w·z of rows of features for weights (k, width) of any size, (n, k)."""
    ops = ops_of(weights)
    size = ops.largest_or_zero(abs(weights)) or 1.0
    return size * ops.skinny_gemm.multiply(Z, ops.asarray(weights / size, Z))


def add_combinations(Z: Array, factors: Array, out: Array) -> None:
    """Add factorsᵀZ, for factors (n, k) of any size, to `out`, (k, width)."""
    ops = ops_of(out)
    thin = ops_of(out).skinny_gemm
    sizes = ops.column_max_abs(factors)
    sizes = sizes + (sizes == 0)
    part = ops.float64_zeros(out.shape, out)
    thin.add_transposed(Z, thin.pack(factors / sizes, Z), part)
    out += sizes[:, None] * part


def combined(features: FeatureMatrix, factors: Array) -> Any:
    """Return factorsᵀZ of all rows, (k, width), for factors (n, k) of any size."""
    out = ops_of(factors).float64_zeros((factors.shape[1], features.width), factors)
    for block in features.blocks():
        add_combinations(block.values, factors[block.rows], out)
    return out


def scores_of(features: FeatureMatrix, weights: Array) -> Any:
    """Return w·z of all rows, (n, k), for weights (k, width)."""
    scores = ops_of(weights).float64_zeros((features.n_rows, len(weights)), weights)
    for block in features.blocks():
        scores[block.rows] = products(block.values, weights)
    return scores


def longest_row(features: FeatureMatrix) -> float:
    """Return the largest ‖z‖."""
    ops = ops_of(features.like)
    square = 0.0
    for block in features.blocks():
        Z = block.values
        square = max(square, ops.largest_or_zero(ops.algebra.column_products(Z.T, Z.T)))
    return square**0.5


class FeatureMatrix:
    """The features Z of training data.

    If memory allows, all rows are cached in the first pass. Else they are recomputed in
    every pass. Shards are summed in place (:meth:`reduce`), each as a separate matrix.

    `cache_bytes` is the memory for features; with `precise` they are float64, whatever
    the dtype of the rows. With `partly`, as many rows are cached as fit, and with
    `compress` in 16 bits (with an error of 1.6e-5 of the largest entry of a row).
    `block_rows` rows are computed at a time; by default, as many as take no more memory
    than the cache. The `width` is the number of components plus padding with zeros, and
    `like` an array in the dtype and on the device of the features.
    """

    def __init__(
        self,
        rows: TrainingData,
        plan: Plan,
        cache_bytes: int = 0,
        precise: bool = False,
        partly: bool = False,
        compress: bool = False,
        block_rows: int | None = None,
    ):
        self.plan = plan
        self.rows = rows
        self.cache_bytes = cache_bytes
        self.precise = precise
        self.partly = partly
        self.compress = compress
        self._place(ops_of(rows.like).as_float64(rows.like) if precise else rows.like)
        self.n_rows = rows.n_rows
        self.n_targets = rows.n_targets
        self.n_components = plan.n_components
        self.width = self._gemm.padded(plan.n_components)
        if block_rows is None:
            max_bytes = cache_bytes or sys.maxsize
            block_rows = block_rows_within(plan, self.like, max_bytes)
        self.block_rows = block_rows

    def _place(self, like: Array) -> None:
        self.like = like
        self.dtype = like.dtype
        self._ops = ops_of(like)
        self._gemm = ops_of(like).skinny_gemm

    @property
    def rounding(self) -> float:
        """The relative rounding error of products."""
        # Features in 16 bits are multiplied in single precision.
        compressed = self._cache is not None and self._cache.scales is not None
        dtype = np.float32 if compressed else self._ops.numpy_dtype(self.like)
        return float(np.finfo(dtype).eps)

    @property
    def cached(self) -> Any:
        """All features, if they are cached uncompressed, else None."""
        cache = self._cache
        if cache is None or cache.scales is not None or cache.rows.stop < self.n_rows:
            return None
        return cache.values

    @cached_property
    def _cache(self) -> FeatureBlock | None:
        """The cached features of the first rows, or of all; shards have their own."""
        if not self.rows.in_one_place:
            return None

        def n_fitting(itemsize: int) -> int:
            # With scales and weights, and targets.
            row_bytes = self.width * itemsize + 24 + 8 * self.n_targets
            return min(self.n_rows, self.cache_bytes // row_bytes)

        n_cached = n_fitting(self.dtype.itemsize)
        if n_cached == self.n_rows:
            return self._filled(n_cached, compressed=False)
        compressed = self.compress and hasattr(self._gemm, "quantize")
        if compressed:
            n_cached = n_fitting(2)
        return self._filled(n_cached, compressed) if self.partly and n_cached else None

    def _filled(self, n_cached: int, compressed: bool) -> FeatureBlock:
        """Return a cache with the features of the first `n_cached` rows.

        With `compressed` they are stored in 16 bits, with a scale per row.
        """
        ops = self._ops
        like = self.like
        D = self.plan.n_components
        itemsize = 2 if compressed else self.dtype.itemsize
        if not is_tensor(like):
            warn_if_not_free(n_cached * self.width * itemsize, "caching features")
        stored = np.empty(0, np.int16) if compressed else like
        values = self._gemm.empty_padded(n_cached, D, stored)
        scales = ops.empty(n_cached, like)
        weights = ops.float64_ones(n_cached, like)
        targets = ops.float64_zeros((n_cached, self.n_targets), like)
        buffer: Any = None
        if compressed:
            buffer = self.empty(min(self.block_rows, n_cached))
        for block in self.rows.blocks(min(self.block_rows, self.n_rows)):
            stop = min(block.rows.stop, n_cached)
            part = slice(block.rows.start, stop)
            n = stop - block.rows.start
            if compressed:
                self._evaluate(block.X[:n], buffer[:n])
                self._gemm.quantize(buffer[:n, :D], values[part], scales[part])
            else:
                self._evaluate(block.X[:n], values[part])
            targets[part] = block.Y[:n]
            if block.weight is not None:
                weights[part] = block.weight[:n]
            # A pass over all rows goes to its end, where a stream is checked.
            if stop == n_cached < self.n_rows:
                break
        wide = scales.astype(np.float64) if compressed else None
        return FeatureBlock(slice(0, n_cached), values, wide, targets, weights)

    def blocks(self, cached_rows: int = _ROWS_AT_ONCE) -> Iterator[FeatureBlock]:
        """Yield all rows in order; cached ones in blocks of `cached_rows`."""
        cache = self._cache
        n_cached = 0
        if cache is not None:
            n_cached = cache.rows.stop
            for part in row_blocks(n_cached, cached_rows):
                yield cache.part(part)
        if n_cached < self.n_rows:
            yield from self.computed(n_cached)

    def computed(self, start: int = 0) -> Iterator[FeatureBlock]:
        """Yield features of rows from `start` on, computed in the same array."""
        buffer = self.empty(min(self.block_rows, self.n_rows))
        for block in self.rows.blocks(len(buffer), start):
            values = buffer[: block.n_rows]
            self._evaluate(block.X, values)
            yield FeatureBlock(block.rows, values, None, block.Y, block.weight)

    def padded(self, weights: Array) -> Any:
        """Return weights (k, D) padded to (k, width), on the device of the features."""
        out = self._ops.float64_zeros((len(weights), self.width), self.like)
        out[:, : weights.shape[1]] = self._ops.float64_like(weights, self.like)
        return out

    def empty(self, n_rows: int) -> Any:
        """Return an array for rows, with zeros as padding."""
        out = self._gemm.empty_padded(n_rows, self.plan.n_components, self.like)
        out[:, self.plan.n_components :] = 0
        return out

    def _evaluate(self, X: Any, out: Array) -> None:
        X = ops_of(X).as_float64(X) if self.precise else X
        evaluate(self.plan, X, out=out[:, : self.plan.n_components])

    def take(self, numbers: Any) -> Any:
        """Return the features of these ascending row numbers."""
        if self.cached is not None:
            return self.cached[numbers]
        Z = self.empty(len(numbers))
        if len(numbers):
            X = self.rows.take(numbers).X
            for part in row_blocks(len(numbers), self.block_rows):
                self._evaluate(X[part], Z[part])
        return Z

    def part(self, numbers: Any) -> FeatureMatrix:
        """Return the feature matrix of these ascending row numbers."""
        if self.cached is not None:
            return FeatureArray(self.cached[numbers])
        rows = self.rows.take(numbers)
        return FeatureMatrix(
            rows, self.plan, precise=self.precise, block_rows=self.block_rows
        )

    def in_float64(self, cache_bytes: int) -> FeatureMatrix:
        """Return the features in float64; the cache of these is released."""
        self._cache = None
        return FeatureMatrix(self.rows, self.plan, cache_bytes, precise=True)

    def sample(self, numbers: np.ndarray) -> tuple[Callable[[slice], Any], Any]:
        """Return a function for columns of the features of rows, and their weights.

        The row numbers must be ascending.
        """
        cache = self._cache
        if cache is None or cache.rows.stop < self.n_rows:
            block = self.rows.take(numbers)
            return lambda columns: evaluate(self.plan, block.X, columns), block.weight
        take = self._ops.take
        scales = None if cache.scales is None else cache.scales[numbers, None]

        def features(columns: slice) -> Any:
            values = take(cache.values[:, columns], numbers)
            if scales is None:
                return values
            return (values * scales).astype(self.dtype)

        return features, take(cache.weight, numbers)

    def reduce(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of ``function(features, *args)``, computed in place."""
        if self.rows.in_one_place:
            return function(self, *args)
        return self._shards.reduce(function, *args)

    @cached_property
    def _shards(self) -> Any:
        return self.rows.map(
            FeatureMatrix,
            self.plan,
            0,  # workers cache rows, and no features
            self.precise,
            False,  # partly cached
            False,  # in 16 bits
            # Workers may compute on devices, where other block sizes are best.
            self.block_rows if is_tensor(self.like) else None,
        )


class FeatureArray(FeatureMatrix):
    """Features given as an array that is already padded.

    Targets and weights are optional.
    """

    def __init__(self, values: Any, Y: Any = None, weight: Any = None):
        self._place(values)
        self.n_rows, self.width = values.shape
        self.n_components = self.width
        self.n_targets = 0 if Y is None else Y.shape[1]
        self._cache = FeatureBlock(slice(0, self.n_rows), values, None, Y, weight)

    def reduce(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self, *args)


class GramFactor(FeatureArray):
    """Rows of a factor F of an exact Gram matrix, K = FFᵀ, as features.

    F is that of a pivoted Cholesky factorisation, with as many columns as the rank of
    K: equal rows stay equal. With `constant`, the last column has ones.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Rows,
        Y: Any = None,
        weight: Any = None,
        constant: bool = False,
    ):
        gram = kernel._gram(ops_of(X).as_float64(X), None)
        ops = ops_of(gram)
        factor, self.pivots = ops.algebra.pivoted_factor(gram)
        del gram  # at most three matrices of this size, as memory.py counts
        self.triangle = factor[self.pivots][:, : len(self.pivots)]
        if constant:
            rank = len(self.pivots)
            part = factor
            factor = ops.float64_zeros(
                (len(part), ops.skinny_gemm.padded(rank + 1)), part
            )
            factor[:, :rank], factor[:, -1] = part[:, :rank], 1.0
            del part
        super().__init__(factor, Y, weight)

    def rows_of(self, weights: Array) -> tuple[Any, Any]:
        """Return sorted row numbers, and kernel weights (rank, k) at these rows.

        They give the same values as weights (k, rank or more) of the columns: with
        K = FFᵀ, the weights Fᵀa have the values Ka.
        """
        rank = len(self.pivots)
        dual = ops_of(weights).algebra.triangular_solve(
            self.triangle, weights[:, :rank].T, transposed=True
        )
        order = self.pivots.argsort()
        return self.pivots[order], dual[order]


def features_of(
    data: FitData, cache_bytes: int, precise: bool = False, constant: bool = False
) -> FeatureMatrix:
    """Return the features of the rows of a fit, or a factor of the exact Gram matrix.

    With `constant`, a last column of ones.
    """
    if data.plan is not None:
        plan = data.plan.with_constant if constant else data.plan
        return FeatureMatrix(data.rows, plan, cache_bytes, precise)
    X = data.rows.as_arrays().X
    return GramFactor(data.kernel, X, *data.rows.targets(), constant=constant)
