"""Fitting to rows that are read block by block: what the first pass learns."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern._validation import Rows, check_block_weights, validate_rows
from randkern.blocks import RowBlock, RowBlocks
from randkern.blocks.dask import is_dask
from randkern.models._rows import StreamedRows, stacked, stored_bytes

__all__ = [
    "RowSample",
    "Seen",
    "StreamReader",
    "block_rows",
    "predicted_in_blocks",
    "read_stream",
]

# Memory of the rows that stand for all of them where a kernel looks at its data.
_SAMPLE_BYTES = 16 * 10**6
_LEAST_SAMPLE = 1000
# Targets of a stream that are kept, so that sums over them need no pass over the rows.
_TARGET_BYTES = 16 * 10**6


# What an estimator sees in the targets of a block: whatever it wants to learn from.
Seen = Any


class StreamReader(Protocol):
    """An estimator whose targets come in blocks."""

    def _seen_in(self, X: Rows, y: Any, weight: Any) -> Seen:
        """Return what a block of the first pass tells, changing nothing."""

    def _learn_from(self, seen: list[Seen]) -> int:
        """Learn from all blocks; return the number of columns of targets."""

    def _targets_of(
        self, X: Rows, y: Any, weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return targets (n, k) and weights of a block of a later pass."""


def read_stream(
    estimator: Any, blocks: RowBlocks, stream: Stream
) -> tuple[StreamedRows, RowSample]:
    """Read all rows once, check them, and return what later passes need.

    Sets what validation sets on the estimator. Returns the rows, and a sample of them
    that a kernel may be resolved on.
    """
    sample, generator = RowSample(), stream.child("first pass").generator()
    seen: list[Seen] = []
    n_rows, n_bytes, dtypes = 0, 0, set()
    targets, kept_bytes = [], 0
    for number, block in enumerate(blocks):
        if block.y is None:
            raise ValueError(
                f"{type(estimator).__name__} requires y: blocks must be (X, y) or "
                "(X, y, sample_weight)."
            )
        with _located(number, n_rows):
            X, weight = _checked(estimator, blocks, block, first=number == 0)
            seen.append(estimator._seen_in(X, block.y, weight))
        if kept_bytes <= _TARGET_BYTES:
            # Copies: the stream may fill the same memory with its next block.
            y = np.array(block.y)
            targets.append((y, None if weight is None else weight.copy()))
            kept_bytes += y.nbytes + 8 * len(y)
            if kept_bytes > _TARGET_BYTES:
                targets.clear()
        sample.add(X, weight, generator)
        n_rows += X.shape[0]
        n_bytes += stored_bytes(X)
        dtypes.add(X.dtype)
    if n_rows == 0:
        raise ValueError("the stream has no rows: found 0 samples, 1 is required.")
    dtype = np.result_type(*dtypes)
    n_targets = estimator._learn_from(seen)

    def read(
        generator: np.random.Generator | None,
    ) -> Iterator[tuple[Rows, np.ndarray, np.ndarray | None]]:
        start = 0
        in_order = generator is None
        for number, block in enumerate(
            blocks if generator is None else blocks.shuffled(generator)
        ):
            with _located(number, start) if in_order else contextlib.nullcontext():
                X, weight = _checked(estimator, blocks, block, first=False)
                Y, weight = estimator._targets_of(X, block.y, weight)
            yield X.astype(dtype, copy=False), Y, weight
            start += X.shape[0]

    rows = StreamedRows(read, n_rows, n_targets, dtype, n_bytes)
    if kept_bytes <= _TARGET_BYTES:
        coded = (estimator._targets_of(y, y, weight) for y, weight in targets)
        rows.learn_targets(coded)
    return rows, sample


def block_rows(blocks: RowBlocks, block: RowBlock) -> Any:
    """Return the X of a block, with the names of its columns where they are known."""
    names = blocks.column_names
    if names is None or not isinstance(block.X, np.ndarray):
        return block.X
    pandas = import_extra("pandas", "RowBlocks with named columns", "data")
    return pandas.DataFrame(block.X, columns=list(names), copy=False)


def predicted_in_blocks(
    model: Any, X: Any, y: Any, sample_weight: Any
) -> tuple[Any, Any, Any]:
    """Return targets, predictions and weights of rows, wherever they come from."""
    if is_dask(X):
        given = [
            None if each is None else np.asarray(each) for each in (y, sample_weight)
        ]
        return given[0], np.asarray(model.predict(X)), given[1]
    if not isinstance(X, RowBlocks):
        return y, model.predict(X), sample_weight
    if y is not None or sample_weight is not None:
        raise ValueError(
            "with RowBlocks pass neither y nor sample_weight: the blocks hold them."
        )
    targets, weights = [], []
    for number, block in enumerate(X):
        if block.y is None:
            raise ValueError(f"block {number} has no y to compare predictions with.")
        # Copies: the stream may fill the same memory with its next block.
        targets.append(np.array(block.y))
        weights.append(copy.copy(block.sample_weight))
    predictions = model.predict(X)
    weight = None if weights[0] is None else np.concatenate(weights)
    return np.concatenate(targets), predictions, weight


@contextlib.contextmanager
def _located(number: int, start: int) -> Iterator[None]:
    """Let an error tell in which block it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"block {number}, from row {start:,} on: {error}") from error


def _checked(
    estimator: Any, blocks: RowBlocks, block: RowBlock, first: bool
) -> tuple[Rows, np.ndarray | None]:
    """Return the rows of a block and their weights."""
    X = validate_rows(estimator, block_rows(blocks, block), reset=first)
    if is_tensor(X):
        raise TypeError("blocks of rows are NumPy arrays, got tensors.")
    encoder = getattr(estimator, "table_encoder_", None)
    if not first and encoder is not None:
        encoder.check_known(X)
    return X, check_block_weights(block.sample_weight, X)


class RowSample:
    """A uniform sample of a stream: the rows of the smallest random keys.

    Rows without weight say nothing about the data: they are left out.
    """

    def __init__(self) -> None:
        self._keys = np.empty(0)
        self._X: list[Rows] = []
        self._weights: list[np.ndarray | None] = []
        self._size = 0

    def add(
        self, X: Rows, weight: np.ndarray | None, generator: np.random.Generator
    ) -> None:
        """Take a block into account."""
        keys = generator.random(X.shape[0])
        if not self._size:
            row = X.shape[1] * X.dtype.itemsize
            self._size = max(_LEAST_SAMPLE, _SAMPLE_BYTES // max(row, 1))
        kept = np.ones(len(keys), bool) if weight is None else weight > 0
        if len(self._keys) >= self._size:
            kept &= keys < self._keys.max()
        numbers = np.flatnonzero(kept)
        if len(numbers) > self._size:
            order = np.argsort(keys[numbers], kind="stable")[: self._size]
            numbers = np.sort(numbers[order])
        # A copy: the stream may fill the same memory with its next block.
        weight = None if weight is None else weight[numbers]
        self._append([X[numbers]], [weight], keys[numbers])

    def join(self, other: RowSample) -> None:
        """Take another sample into account."""
        self._size = max(self._size, other._size)
        self._append(other._X, other._weights, other._keys)

    def _append(
        self, X: list[Rows], weights: list[np.ndarray | None], keys: np.ndarray
    ) -> None:
        self._X += X
        self._weights += weights
        self._keys = np.concatenate([self._keys, keys])
        if len(self._keys) > 2 * self._size:
            self._trim()

    def _trim(self) -> None:
        order = np.sort(np.argsort(self._keys, kind="stable")[: self._size])
        weight = None
        if self._weights[0] is not None:
            weight = np.concatenate([w for w in self._weights if w is not None])[order]
        ends = np.cumsum([X.shape[0] for X in self._X])
        cuts = np.searchsorted(order, ends)
        numbers = np.split(order, cuts[:-1])
        starts = ends - [X.shape[0] for X in self._X]
        parts = zip(self._X, numbers, starts, strict=True)
        self._X = [stacked([X[here - start] for X, here, start in parts])]
        self._weights, self._keys = [weight], self._keys[order]

    def rows(self) -> tuple[Rows, np.ndarray | None]:
        """Return the sampled rows and their weights."""
        self._trim()
        if len(self._keys) == 0:
            raise ValueError("every sample_weight is zero: no row is left to fit.")
        return self._X[0], self._weights[0]
