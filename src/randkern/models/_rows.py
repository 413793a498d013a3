"""Rows that a model is fitted on: checked blocks of inputs, targets and weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from randkern._validation import Rows
from randkern.backend.namespace import empty_on, ops_of
from randkern.data import row_blocks
from randkern.data.sample import stacked
from randkern.data.target_statistics import Survey

__all__ = [
    "ArrayRows",
    "StreamedRows",
    "TrainingBlock",
    "TrainingRows",
    "joined",
    "near_zero",
    "stored_bytes",
    "surveyed",
]

# Rows looked at together when targets are summed up.
_SURVEY_ROWS = 65_536
# Batches that rows in a random order are drawn from at least.
_POOLED_BATCHES = 16


@dataclass(frozen=True)
class TrainingBlock:
    """Some rows: their numbers, inputs, targets (n, k) and weights."""

    rows: slice
    X: Rows
    Y: np.ndarray
    weight: np.ndarray | None

    def part(self, start: int, stop: int) -> TrainingBlock:
        """Return rows `start` to `stop` of the block."""
        first = self.rows.start
        weight = None if self.weight is None else self.weight[start:stop]
        rows = slice(first + start, first + stop)
        return TrainingBlock(rows, self.X[start:stop], self.Y[start:stop], weight)

    def copied(self) -> TrainingBlock:
        """Return the block in memory of its own."""
        copy, weight = ops_of(self.X).copy, self.weight
        weight = None if weight is None else copy(weight)
        return TrainingBlock(self.rows, copy(self.X), copy(self.Y), weight)


class TrainingRows(Protocol):
    """Rows that can be read again and again, a block at a time."""

    n_rows: int
    n_targets: int
    dtype: np.dtype
    # An array in the dtype of the rows, where they lie.
    like: Any

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        """Yield blocks of at most `most_rows` that cover the rows from `start` on."""

    def batches(
        self, n_rows: int, generator: np.random.Generator, pool_bytes: int
    ) -> Iterator[TrainingBlock]:
        """Yield all rows in batches, shuffled as well as that memory allows."""

    def take(self, rows: np.ndarray) -> TrainingBlock:
        """Return the rows of these numbers, which ascend."""

    def survey(self) -> Survey:
        """Return what one pass tells."""

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> TrainingRows:
        """Return the rows with targets less shifts (k,), divided by scales (k,)."""


class _KeptCopies:
    """Copies of rows on devices, while somebody holds them."""

    def __init__(self) -> None:
        self._bytes: WeakKeyDictionary[ArrayRows, int] = WeakKeyDictionary()
        self._lock = Lock()

    def add(self, copy: ArrayRows) -> bool:
        """Count a copy if it may be kept beside the others of its device."""
        n_bytes = copy.X.nbytes + copy.Y.nbytes
        if copy.weight is not None:
            n_bytes += copy.weight.nbytes
        with self._lock:  # workers have several threads
            limit, device = ops_of(copy.like).memory_limit(copy.like), copy.like.device
            held = sum(
                taken
                for other, taken in self._bytes.items()
                if other.like.device == device
            )
            if limit is not None and held + n_bytes > limit // 2:
                return False
            self._bytes[copy] = n_bytes
            return True


# Each process counts what it has put on its devices.
_KEPT = _KeptCopies()


class ArrayRows:
    """Rows in memory, or on disk behind an array."""

    def __init__(self, X: Rows, Y: np.ndarray, weight: np.ndarray | None = None):
        self.X = X
        self.Y = Y
        self.weight = weight
        self.n_rows, self.n_targets = X.shape[0], Y.shape[1]
        self.dtype, self.like = X.dtype, X[:0]
        self._survey: Survey | None = None
        self._copy: ArrayRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What lies on the device of one process is made again in others.
        return self.__dict__ | {"_copy": None}

    def on(self, device: str, keep: bool) -> ArrayRows:
        """Return the rows on a device, by its name.

        The copy lives as long as the rows if it may be kept, and all copies that this
        process keeps there take no more than half of what a fit may take beside them
        (see `memory_limit` of :func:`ops_of`).
        """
        like = empty_on(device, self.dtype)
        if self._copy is not None and self._copy.like.device == like.device:
            return self._copy
        ops, weight = ops_of(like), self.weight
        copy = ArrayRows(
            ops.asarray(self.X, like),
            ops.float64_like(self.Y, like),
            None if weight is None else ops.float64_like(weight, like),
        )
        if keep and _KEPT.add(copy):
            self._copy = copy
        return copy

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        for part in row_blocks(self.n_rows - start, most_rows):
            yield self._block(slice(start + part.start, start + part.stop))

    def _block(self, rows: slice) -> TrainingBlock:
        weight = None if self.weight is None else self.weight[rows]
        return TrainingBlock(rows, self.X[rows], self.Y[rows], weight)

    def batches(
        self, n_rows: int, generator: np.random.Generator, pool_bytes: int = 0
    ) -> Iterator[TrainingBlock]:
        order = generator.permutation(self.n_rows)
        for part in row_blocks(self.n_rows, n_rows):
            yield self.take(np.sort(order[part]))

    def take(self, rows: np.ndarray) -> TrainingBlock:
        take = ops_of(self.X).take
        weight = None if self.weight is None else take(self.weight, rows)
        X, Y = take(self.X, rows), take(self.Y, rows)
        return TrainingBlock(slice(0, len(rows)), X, Y, weight)

    def survey(self) -> Survey:
        if self._survey is None:
            self._survey = surveyed(self.blocks(_SURVEY_ROWS), self.n_targets)
        return self._survey

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> ArrayRows:
        return ArrayRows(self.X, _rescaled(self.Y, shift, scale), self.weight)


class StreamedRows:
    """Rows that are read anew in every pass.

    Parameters
    ----------
    read : callable
        Returns an iterator over checked (X, Y, weight), always the same rows: in
        their own order given None, in a random one given a generator.
    n_rows, n_targets : int
    like : array
        Of the dtype of the rows, float32 or float64, where they are handed out.
    n_bytes : int
        Of all X.
    """

    def __init__(
        self,
        read: Callable[
            [np.random.Generator | None],
            Iterator[tuple[Rows, np.ndarray, np.ndarray | None]],
        ],
        n_rows: int,
        n_targets: int,
        like: Any,
        n_bytes: int,
    ):
        self._read = read
        self.n_rows, self.n_targets = n_rows, n_targets
        self.dtype, self.like = like.dtype, like
        self._survey: Survey | None = None
        # Targets and weights are float64.
        self._row_bytes = n_bytes / n_rows + 8 * (n_targets + 1)

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        first = 0
        for X, Y, weight in self._read(None):
            stop = first + len(Y)
            if stop > start:
                whole = TrainingBlock(slice(first, stop), X, Y, weight)
                skipped = max(0, start - first)
                for part in row_blocks(len(Y) - skipped, most_rows):
                    yield whole.part(skipped + part.start, skipped + part.stop)
            first = stop

    def batches(
        self, n_rows: int, generator: np.random.Generator, pool_bytes: int = 0
    ) -> Iterator[TrainingBlock]:
        """Yield batches drawn from a pool of rows that is filled up in a random order.

        Rows that all fit into the pool come in the order of those of an array.
        """
        # Rows are there as they were read, joined, and as batches.
        capacity = int(pool_bytes / (3 * self._row_bytes))
        capacity = max(_POOLED_BATCHES * n_rows, capacity)
        whole = self.n_rows <= capacity
        pool: list[TrainingBlock] = []
        n_pooled = 0
        for X, Y, weight in self._read(None if whole else generator):
            block = TrainingBlock(slice(0, len(Y)), X, Y, weight)
            for part in row_blocks(len(Y), max(1, capacity // 4)):
                # Copies: the stream may fill the same memory with its next block.
                pool.append(block.part(part.start, part.stop).copied())
                n_pooled += part.stop - part.start
                if n_pooled >= capacity and not whole:
                    rows = joined(pool)
                    order = generator.permutation(n_pooled)
                    n_drawn = n_rows * max(1, n_pooled // (2 * n_rows))
                    for drawn in row_blocks(n_drawn, n_rows):
                        yield rows.take(np.sort(order[drawn]))
                    rest = rows.take(np.sort(order[n_drawn:]))
                    pool, n_pooled = [rest], len(rest.Y)
        if n_pooled:
            yield from joined(pool).batches(n_rows, generator)

    def take(self, rows: np.ndarray) -> TrainingBlock:
        found = []
        for block in self.blocks(self.n_rows):
            low, high = np.searchsorted(rows, (block.rows.start, block.rows.stop))
            if low < high:
                here = ArrayRows(block.X, block.Y, block.weight)
                found.append(here.take(rows[low:high] - block.rows.start))
        return next(joined(found).blocks(len(rows)))

    def survey(self) -> Survey:
        if self._survey is None:
            self._survey = surveyed(self.blocks(_SURVEY_ROWS), self.n_targets)
        return self._survey

    def learn_targets(
        self, targets: Iterable[tuple[np.ndarray, np.ndarray | None]]
    ) -> None:
        """Survey targets and weights of blocks that have been read before."""
        self._survey = Survey.of(targets, self.n_targets)

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> StreamedRows:
        def read(generator: np.random.Generator | None) -> Iterator[Any]:
            for X, Y, weight in self._read(generator):
                yield X, _rescaled(Y, shift, scale), weight

        made = copy.copy(self)
        made._read, made._survey = read, None
        return made


def surveyed(blocks: Iterable[TrainingBlock], n_targets: int) -> Survey:
    """Return what a pass over some blocks tells."""
    return Survey.of(((block.Y, block.weight) for block in blocks), n_targets)


def near_zero(rows: Any) -> tuple[Any, tuple[float, ...]]:
    """Return the rows with targets near 0, and what was subtracted from them.

    Sums over targets that are all far from 0 have few digits for how they differ.
    """
    shift = rows.survey().target_shift
    # Numbers, which have no device.
    moved = rows.rescaled(shift, np.ones_like(shift)) if shift.any() else rows
    return moved, tuple(shift.tolist())


def _rescaled(Y: Any, shift: np.ndarray, scale: np.ndarray) -> Any:
    like = ops_of(Y).float64_like
    return (Y - like(shift, Y)) / like(scale, Y)


def joined(blocks: Sequence[TrainingBlock]) -> ArrayRows:
    """Return the rows of blocks one after the other."""
    weights = [block.weight for block in blocks if block.weight is not None]
    return ArrayRows(
        stacked([block.X for block in blocks]),
        stacked([block.Y for block in blocks]),
        stacked(weights) if weights else None,
    )


def stored_bytes(X: Rows) -> int:
    """Return the memory of dense or sparse rows."""
    stored = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(array.nbytes for array in stored)
