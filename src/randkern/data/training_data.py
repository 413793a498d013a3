"""Training data: rows with their targets and weights, and the class for arrays.

A fit uses the same few methods for all data, above all ``rows.reduce(function)``: the
sum of a function over the rows, computed in place. Rows of this process are passed to
the function all at once, and it loops over their blocks; partitions on a cluster are
passed one at a time, by their workers, and their sums are added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from randkern._validation import Array, Rows, is_tensor
from randkern.backend.namespace import empty_on, ops_of
from randkern.data.sample import RowSample, stacked
from randkern.data.target_statistics import TargetStatistics


def row_blocks(n_rows: int, block: int) -> Iterator[slice]:
    """Yield slices of at most `block` rows that cover ``range(n_rows)``."""
    for start in range(0, n_rows, block):
        yield slice(start, min(start + block, n_rows))


def rows_within(n_bytes: int, bytes_per_row: int, *, at_least: int = 1) -> int:
    """Return how many rows of `bytes_per_row` fit in `n_bytes`."""
    return max(at_least, n_bytes // max(1, bytes_per_row))


class TargetReader(Protocol):
    """How targets are read: a value.

    Targets in memory are read at once. Those of blocks and partitions are summarised in
    a first pass, a reader learns from all summaries, and each pass after it reads the
    targets again. Targets (n, k) are float64 on the device of the rows.
    """

    def read(self, X: Rows, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Return a reader that has seen all targets, the targets, and the weights."""

    def summary(self, X: Rows, y: Any, weight: Any) -> Any:
        """Return what must be known of the targets of a block."""

    def learned(self, summaries: list[Any]) -> Any:
        """Return a reader that has seen blocks with these summaries."""


class KnownTargets(Protocol):
    """A reader that has seen all targets."""

    @property
    def n_columns(self) -> int:
        """The number of columns of targets, k."""

    @property
    def attributes(self) -> dict[str, Any]:
        """What a fitted estimator says of them."""

    def columns(self, X: Rows, y: Any, weight: Any) -> tuple[Any, Any]:
        """Return the targets of a block, and its weights."""


# Rows per block when targets are summed.
_STATISTICS_ROWS = 65_536


class TrainingData:
    """Rows that can be read repeatedly.

    Attributes
    ----------
    n_rows, n_targets : int
    like : array
        An array of the dtype of the rows, on the device of their sums.
    in_memory : bool
        Whether all rows are a single array of this process: see :meth:`as_arrays`.
    in_one_place : bool
        Whether this process reads the rows itself, in their order.
    """

    n_rows: int
    n_targets: int
    like: Array
    in_memory = False
    in_one_place = True
    _statistics: TargetStatistics | None = None

    @property
    def dtype(self) -> Any:
        """The dtype of the rows."""
        return self.like.dtype

    def as_arrays(self) -> ArrayRows:
        """Return the rows as arrays, for data in memory."""
        raise ValueError(
            f"{type(self).__name__} are not in memory; use `blocks` or `reduce`."
        )

    def blocks(self, max_rows: int, start: int = 0) -> Iterator[ArrayRows]:
        """Yield blocks of at most `max_rows` that cover the rows from `start` on."""
        raise NotImplementedError

    def reduce(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of ``function(rows, *args)``, computed in place."""
        return function(self, *args)

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(rows, *args)``, or its values per shard, for reductions."""
        return function(self, *args)

    def take(self, numbers: Any) -> ArrayRows:
        """Return the rows of these ascending numbers."""
        parts = []
        for block in self.blocks(self.n_rows):
            low, high = np.searchsorted(numbers, (block.rows.start, block.rows.stop))
            if low < high:
                parts.append(block.take(numbers[low:high] - block.start))
        return merge(parts)

    def targets(self) -> tuple[Any, Any]:
        """Return the targets of all rows, (n, k), and their weights, (n,)."""
        parts = [block.targets() for block in self.blocks(self.n_rows)]
        Y, weight = zip(*parts, strict=True)
        return stacked(Y), stacked(weight)

    def survey(self) -> TargetStatistics:
        """Return the statistics of targets and weights.

        Raises a ValueError if targets are too large or too small to be squared.
        """
        if self._statistics is None:
            self._statistics = self.reduce(target_statistics_of)
        self._statistics.check_sizes()
        return self._statistics

    def rescaled(self, shift: Any, scale: Any) -> TrainingData:
        """Return the rows with targets minus shifts (k,), divided by scales (k,)."""
        raise NotImplementedError


class ArrayRows(TrainingData):
    """Rows in memory, or on disk behind an array; also a block or a shard.

    `Y` (n, k) and `weight` (n,) or None are float64; `start` is the number of the first
    row.
    """

    in_memory = True

    def __init__(self, X: Any, Y: Any, weight: Any = None, start: int = 0):
        self.X = X
        self.Y = Y
        self.weight = weight
        self.start = start
        self.n_rows = X.shape[0]
        self.n_targets = Y.shape[1]

    @property
    def like(self) -> Any:
        """None of the rows."""
        return self.X[:0]

    @property
    def rows(self) -> slice:
        """The numbers of the rows."""
        return slice(self.start, self.start + self.n_rows)

    def as_arrays(self) -> ArrayRows:
        return self

    def _apply(self, function: Callable[[Any], Any], start: int = 0) -> ArrayRows:
        """Return `function` of X, of the targets and of the weights."""
        weight = None if self.weight is None else function(self.weight)
        return ArrayRows(function(self.X), function(self.Y), weight, start)

    def part(self, start: int, stop: int) -> ArrayRows:
        """Return rows `start` to `stop`."""
        return self._apply(lambda array: array[start:stop], self.start + start)

    def copied(self) -> ArrayRows:
        """Return a copy of the rows."""
        return self._apply(ops_of(self.X).copy, self.start)

    def at(self, like: Array) -> ArrayRows:
        """Return the rows in the dtype and on the device of `like`."""
        ops = ops_of(like)
        if sp.issparse(self.X):
            X = self.X.astype(like.dtype, copy=False)
        else:
            X = ops.asarray(self.X, like)
        weight = None if self.weight is None else ops.float64_like(self.weight, like)
        return ArrayRows(X, ops.float64_like(self.Y, like), weight, self.start)

    def on(self, device: str) -> ArrayRows:
        """Return the rows on the named device."""
        return self.at(empty_on(device, self.dtype))

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays."""
        weight = 0 if self.weight is None else self.weight.nbytes
        return stored_bytes(self.X) + self.Y.nbytes + weight

    def blocks(self, max_rows: int, start: int = 0) -> Iterator[ArrayRows]:
        for part in row_blocks(self.n_rows - start, max_rows):
            yield self.part(start + part.start, start + part.stop)

    def take(self, numbers: Any) -> ArrayRows:
        take = ops_of(self.X).take
        return self._apply(lambda array: take(array, numbers))

    def targets(self) -> tuple[Any, Any]:
        ones = ops_of(self.Y).float64_ones
        weight = self.weight
        return self.Y, ones(self.n_rows, self.Y) if weight is None else weight

    def rescaled(self, shift: Any, scale: Any) -> ArrayRows:
        like = ops_of(self.Y).float64_like
        Y = (self.Y - like(shift, self.Y)) / like(scale, self.Y)
        return ArrayRows(self.X, Y, self.weight, self.start)


@dataclasses.dataclass(frozen=True)
class FitData:
    """What is read before a fit.

    Attributes
    ----------
    rows : TrainingData
    targets : KnownTargets
    sample : tuple
        Rows and their weights, or None, for resolving the kernel.
    kernel, plan
        The kernel with numbers, and its features, or None for the exact kernel.
    shift : tuple of float
        Was subtracted from the targets.
    limit : int
        The memory of the fit in bytes.
    stream : Stream
    """

    rows: TrainingData
    targets: Any
    sample: tuple[Rows, Any]
    kernel: Any = None
    plan: Any = None
    shift: tuple[float, ...] = ()
    limit: int = 0
    stream: Any = None

    @property
    def width(self) -> int:
        """The number of features, or of rows for the exact kernel."""
        return self.rows.n_rows if self.plan is None else self.plan.n_components

    @property
    def kept_rows(self) -> Any:
        """The rows that a model of the exact kernel keeps; else None."""
        return self.rows.as_arrays().X if self.plan is None else None


def weighted_sample(sample: RowSample, targets: KnownTargets) -> tuple[Rows, Any]:
    """Return sampled rows and their weights, including those of their classes."""
    X, y, weight = sample.rows()
    return X, targets.columns(X, y, weight)[1]


def target_statistics_of(rows: TrainingData) -> TargetStatistics:
    """Return the statistics of targets and weights of some rows."""
    blocks = rows.blocks(_STATISTICS_ROWS)
    return TargetStatistics.of(
        ((block.Y, block.weight) for block in blocks), rows.n_targets
    )


def merge(blocks: Sequence[ArrayRows]) -> ArrayRows:
    """Return the concatenated rows of blocks."""
    weights = [block.weight for block in blocks if block.weight is not None]
    return ArrayRows(
        stacked([block.X for block in blocks]),
        stacked([block.Y for block in blocks]),
        stacked(weights) if weights else None,
    )


def placed(value: Any, like: Array) -> Any:
    """Return rows, tensors, or collections of these, on the device of `like`."""
    if isinstance(value, ArrayRows):
        return value.at(like)
    if isinstance(value, tuple):
        return tuple(placed(part, like) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name for field in dataclasses.fields(value)}
        parts = {name: placed(getattr(value, name), like) for name in fields}
        return dataclasses.replace(value, **parts)
    if not is_tensor(value):  # numbers on the host stay there
        return value
    ops = ops_of(value)
    return ops.float64_like(value, like) if is_tensor(like) else ops.to_host(value)


def added(total: Any, value: Any) -> Any:
    """Return the sum of results of shards, overwriting the first."""
    if isinstance(total, tuple):
        return tuple(map(added, total, value))
    total += value
    return total


def stored_bytes(X: Any) -> int:
    """Return the memory of dense or sparse rows."""
    stored = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(array.nbytes for array in stored)
