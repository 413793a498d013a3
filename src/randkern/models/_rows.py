"""Rows that a model is fitted on: checked blocks of inputs, targets and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from randkern._tensors import is_tensor
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks

__all__ = [
    "ArrayRows",
    "StreamedRows",
    "Survey",
    "TrainingBlock",
    "TrainingRows",
    "refuse_tensors",
]

# Rows looked at together when targets are summed up.
_SURVEY_ROWS = 65_536
# Batches of a stream that are in memory together.
_SHUFFLED_BATCHES = 16


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


@dataclass(frozen=True)
class Survey:
    """What one pass over the rows tells.

    Attributes
    ----------
    n_rows : int
    largest_weight, weight_sum : float
        1 a row without weights.
    target_mean : ndarray of shape (k,)
        Weighted.
    target_squares : ndarray of shape (k,)
        Weighted sum of squares about the mean.
    """

    n_rows: int
    largest_weight: float
    weight_sum: float
    target_mean: np.ndarray
    target_squares: np.ndarray

    @classmethod
    def of(cls, blocks: Iterable[TrainingBlock], n_targets: int) -> Survey:
        """Sum up blocks of rows (Chan, Golub and LeVeque 1983, eq. 1.3)."""
        total = cls(0, 0.0, 0.0, np.zeros(n_targets), np.zeros(n_targets))
        for block in blocks:
            total = total.joined(cls._of_block(block))
        return total

    @classmethod
    def _of_block(cls, block: TrainingBlock) -> Survey:
        Y, n = block.Y, len(block.Y)
        ops = ops_of(Y)
        weight = ops.ones(n, Y) if block.weight is None else block.weight
        weight_sum = float(weight.sum())
        mean = weight @ Y / (weight_sum if weight_sum > 0 else 1.0)
        squares = weight @ (Y - mean) ** 2
        # One number a target: what follows from them is computed on the host.
        sums = ops.to_host(mean), ops.to_host(squares)
        return cls(n, ops.largest(weight), weight_sum, *sums)

    def joined(self, other: Survey) -> Survey:
        """Return the survey of the rows of both."""
        total = self.weight_sum + other.weight_sum
        share = other.weight_sum / total if total > 0 else 0.0
        apart = other.target_mean - self.target_mean
        return Survey(
            self.n_rows + other.n_rows,
            max(self.largest_weight, other.largest_weight),
            total,
            self.target_mean + share * apart,
            self.target_squares
            + other.target_squares
            + self.weight_sum * share * apart**2,
        )

    @property
    def weight_unit(self) -> float:
        """A power of two near the largest weight: division by it is exact."""
        if self.largest_weight <= 0:
            return 1.0
        return 2.0 ** math.floor(math.log2(self.largest_weight))


class TrainingRows(Protocol):
    """Rows that can be read again and again, a block at a time."""

    n_rows: int
    n_targets: int
    dtype: np.dtype

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        """Yield blocks of at most `most_rows` that cover the rows from `start` on."""

    def batches(self, n_rows: int, generator: Any) -> Iterator[TrainingBlock]:
        """Yield all rows in batches, shuffled as well as they can be."""

    def take(self, rows: np.ndarray) -> TrainingBlock:
        """Return the rows of these numbers, which ascend."""

    def survey(self) -> Survey:
        """Return what one pass tells."""


class ArrayRows:
    """Rows in memory, or on disk behind an array."""

    def __init__(self, X: Rows, Y: np.ndarray, weight: np.ndarray | None = None):
        self.X = X
        self.Y = Y
        self.weight = weight
        self.n_rows, self.n_targets = X.shape[0], Y.shape[1]
        self.dtype = X.dtype

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        for part in row_blocks(self.n_rows - start, most_rows):
            yield self._block(slice(start + part.start, start + part.stop))

    def _block(self, rows: slice) -> TrainingBlock:
        weight = None if self.weight is None else self.weight[rows]
        return TrainingBlock(rows, self.X[rows], self.Y[rows], weight)

    def batches(self, n_rows: int, generator: Any) -> Iterator[TrainingBlock]:
        order = generator.permutation(self.n_rows)
        for part in row_blocks(self.n_rows, n_rows):
            yield self.take(np.sort(order[part]))

    def take(self, rows: np.ndarray) -> TrainingBlock:
        take = ops_of(self.X).take
        weight = None if self.weight is None else take(self.weight, rows)
        X, Y = take(self.X, rows), take(self.Y, rows)
        return TrainingBlock(slice(0, len(rows)), X, Y, weight)

    def survey(self) -> Survey:
        return Survey.of(self.blocks(_SURVEY_ROWS), self.n_targets)


class StreamedRows:
    """Rows that are read anew in every pass.

    Parameters
    ----------
    read : callable
        Returns an iterator over checked (X, Y, weight), always the same rows.
    n_rows, n_targets : int
    dtype : dtype
        Of the rows: float32 or float64.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[Rows, np.ndarray, np.ndarray | None]]],
        n_rows: int,
        n_targets: int,
        dtype: Any,
    ):
        self._read = read
        self.n_rows, self.n_targets = n_rows, n_targets
        self.dtype = np.dtype(dtype)

    def blocks(self, most_rows: int, start: int = 0) -> Iterator[TrainingBlock]:
        first = 0
        for X, Y, weight in self._read():
            stop = first + len(Y)
            if stop > start:
                whole = TrainingBlock(slice(first, stop), X, Y, weight)
                skipped = max(0, start - first)
                for part in row_blocks(len(Y) - skipped, most_rows):
                    yield whole.part(skipped + part.start, skipped + part.stop)
            first = stop

    def batches(self, n_rows: int, generator: Any) -> Iterator[TrainingBlock]:
        """Yield batches of rows that are shuffled within blocks."""
        for block in self.blocks(_SHUFFLED_BATCHES * n_rows):
            here = ArrayRows(block.X, block.Y, block.weight)
            yield from here.batches(n_rows, generator)

    def take(self, rows: np.ndarray) -> TrainingBlock:
        found = []
        for block in self.blocks(self.n_rows):
            low, high = np.searchsorted(rows, (block.rows.start, block.rows.stop))
            if low < high:
                numbers = rows[low:high] - block.rows.start
                weight = None if block.weight is None else block.weight[numbers]
                found.append((block.X[numbers], block.Y[numbers], weight))
        X, Y, weights = zip(*found, strict=True)
        stack = sp.vstack if sp.issparse(X[0]) else np.vstack
        return TrainingBlock(
            slice(0, len(rows)),
            sp.csr_array(stack(X)) if sp.issparse(X[0]) else stack(X),
            np.vstack(Y),
            None if weights[0] is None else np.concatenate(weights),
        )

    def survey(self) -> Survey:
        return Survey.of(self.blocks(_SURVEY_ROWS), self.n_targets)


def refuse_tensors(rows: Any, what: str) -> None:
    """Raise if rows are tensors, for which there is no such thing."""
    if isinstance(rows, ArrayRows) and is_tensor(rows.X):
        raise ValueError(
            f"{what} takes no tensors; use solver='cholesky', or solver='pcg' with "
            "n_components set, or pass NumPy arrays."
        )
