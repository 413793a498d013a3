"""Fitting to rows that are read block by block: what the first pass learns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern._validation import (
    Rows,
    check_block_weights,
    is_device_array,
    place_of,
    validate_rows,
)
from randkern.backend.namespace import empty_on, ops_of
from randkern.data import DeviceBlocks, RowBlock, RowBlocks, as_blocks
from randkern.data.dask import dask_blocks, is_dask
from randkern.data.sample import RowSample, stacked
from randkern.models._rows import StreamedRows, stored_bytes

__all__ = [
    "Seen",
    "StreamReader",
    "check_dense",
    "mapped_blocks",
    "predicted_in_blocks",
    "read_stream",
]

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


class _CheckedBlocks:
    """The rows of a stream as an estimator takes them, checked in every pass.

    All blocks are of one namespace and device. Their rows are handed out where they
    lie, or on a device that they are moved to.
    """

    def __init__(self, estimator: Any, X: RowBlocks | DeviceBlocks, blocks: RowBlocks):
        self.estimator, self.blocks = estimator, blocks
        self.device = X.device if isinstance(X, DeviceBlocks) else None
        self.like: Any = None
        self._places: tuple[str, str] | None = None

    def of(self, block: RowBlock, first: bool = False) -> tuple[Rows, Any]:
        """Return the rows of a block and their weights, where they lie."""
        X = block_rows(self.blocks, block)
        places = (_place_given(X), _place_given(block.y))
        self._places = self._places or places
        for name, here, before in zip("Xy", places, self._places, strict=True):
            if here != before:
                raise ValueError(
                    f"{name} is {here}, but that of the first block is {before}; make "
                    "all blocks alike."
                )
        X = validate_rows(self.estimator, X, reset=first)
        if self.device is not None:
            check_dense(X)
        encoder = getattr(self.estimator, "table_encoder_", None)
        if not first and encoder is not None:
            encoder.check_known(X)
        return X, check_block_weights(block.sample_weight, X)

    def settle(self, X: Rows) -> None:
        """Hand rows out in the dtype of X from now on."""
        self.like = X if self.device is None else _empty_on(self.device, X)

    def read(
        self, generator: np.random.Generator | None
    ) -> Iterator[tuple[Rows, np.ndarray, np.ndarray | None]]:
        """Yield rows, targets and weights, in their order or in a random one."""
        start = 0
        in_order = generator is None
        for number, block in enumerate(
            self.blocks if generator is None else self.blocks.shuffled(generator)
        ):
            with _located(number, start) if in_order else contextlib.nullcontext():
                X, weight = self.of(block)
                Y, weight = self.estimator._targets_of(X, block.y, weight)
            yield self._placed(X, Y, weight)
            start += X.shape[0]

    def _placed(self, X: Rows, Y: Any, weight: Any) -> tuple[Any, Any, Any]:
        like, ops = self.like, ops_of(self.like)
        if self.device is not None:
            X, Y = ops.asarray(X, like), ops.float64_like(Y, like)
            weight = None if weight is None else ops.float64_like(weight, like)
        elif X.dtype != like.dtype:
            X = ops.as_float64(X)
        return X, Y, weight


class _KeptTargets:
    """Targets and weights of a first pass, if they take little memory."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, Any]] = []
        self._n_bytes = 0

    def add(self, y: Any, weight: Any) -> None:
        if self._n_bytes > _TARGET_BYTES:
            return
        # Copies: the stream may fill the same memory with its next block.
        y = _copied(y)
        self._kept.append((y, None if weight is None else ops_of(weight).copy(weight)))
        self._n_bytes += y.nbytes + 8 * len(y)
        if self._n_bytes > _TARGET_BYTES:
            self._kept.clear()

    def tell(self, rows: StreamedRows, estimator: StreamReader, like: Rows) -> None:
        """Let rows learn from the targets; `like` lies where they were checked."""
        if self._n_bytes <= _TARGET_BYTES:
            rows.learn_targets(
                # Stands for the rows that targets are checked beside.
                estimator._targets_of(ops_of(like).zeros((len(y), 0), like), y, weight)
                for y, weight in self._kept
            )


def check_dense(X: Rows) -> None:
    """Raise unless rows can be moved to a device."""
    if sp.issparse(X):
        raise ValueError(
            "sparse rows are not moved to a device: pass dense ones, such as "
            "X.toarray(), or leave DeviceBlocks out."
        )


def _empty_on(device: str, X: Rows) -> Any:
    """Return an empty tensor of the dtype of X on a device."""
    return empty_on(device, ops_of(X).numpy_dtype(X))


def _place_given(array: Any) -> str:
    """Return where an array is computed on, in words."""
    return place_of(array if is_device_array(array) else None)


def _stream_of(
    X: RowBlocks | DeviceBlocks, y: Any = None, sample_weight: Any = None
) -> RowBlocks:
    """Return the blocks of rows, which hold their targets and weights.

    Of a Dask collection they are its partitions, one at a time.
    """
    rows = X.rows if isinstance(X, DeviceBlocks) else X
    if is_dask(rows):
        return dask_blocks(rows, y, sample_weight)
    return as_blocks(rows, y, sample_weight)


def read_stream(
    estimator: Any,
    X: RowBlocks | DeviceBlocks,
    y: Any,
    sample_weight: Any,
    stream: Stream,
) -> tuple[StreamedRows, RowSample]:
    """Read all rows once, check them, and return what later passes need.

    Sets what validation sets on the estimator. Returns the rows, and a sample of them
    that a kernel may be resolved on.
    """
    blocks = _stream_of(X, y, sample_weight)
    checked = _CheckedBlocks(estimator, X, blocks)
    sample, generator = RowSample(), stream.child("first pass").generator()
    seen: list[Seen] = []
    targets = _KeptTargets()
    n_rows, n_bytes = 0, 0
    like: Any = None
    for number, block in enumerate(blocks):
        if block.y is None:
            raise ValueError(
                f"{type(estimator).__name__} requires y: blocks must be (X, y) or "
                "(X, y, sample_weight)."
            )
        with _located(number, n_rows):
            rows, weight = checked.of(block, first=number == 0)
            seen.append(estimator._seen_in(rows, block.y, weight))
        targets.add(block.y, weight)
        sample.add(rows, weight, generator)
        n_rows += rows.shape[0]
        n_bytes += stored_bytes(rows)
        if like is None or like.dtype.itemsize < rows.dtype.itemsize:
            like = ops_of(rows).empty((0, 0), rows)
    if n_rows == 0:
        raise ValueError("the stream has no rows: found 0 samples, 1 is required.")
    n_targets = estimator._learn_from(seen)
    checked.settle(like)
    streamed = StreamedRows(checked.read, n_rows, n_targets, checked.like, n_bytes)
    targets.tell(streamed, estimator, like)
    return streamed, sample


def _copied(part: Any) -> Any:
    """Return an array in memory of its own, a tensor where it lies."""
    if part is None:
        return None
    array = part if is_device_array(part) else np.asarray(part)
    return ops_of(array).copy(array)


def mapped_blocks(
    model: Any, X: RowBlocks | DeviceBlocks, function: Callable[[Rows], Any]
) -> Any:
    """Return what `function` makes of the checked rows of all blocks, joined.

    Of rows that were moved to a device it is a NumPy array. A tuple is joined part by
    part.
    """
    blocks = _stream_of(X)
    moved = isinstance(X, DeviceBlocks)
    made: list[Any] = []
    for block in blocks:
        rows = validate_rows(model, block_rows(blocks, block), reset=False)
        if isinstance(X, DeviceBlocks):
            check_dense(rows)
            like = _empty_on(X.device, rows)
            rows = ops_of(like).asarray(rows, like)
        parts = function(rows)
        parts = parts if isinstance(parts, tuple) else (parts,)
        made.append(
            tuple(ops_of(part).to_host(part) for part in parts) if moved else parts
        )
    if not made:
        raise ValueError("the stream has no rows to predict.")
    joined = tuple(stacked(part) for part in zip(*made, strict=True))
    return joined if len(joined) > 1 else joined[0]


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
    if not isinstance(X, (RowBlocks, DeviceBlocks)):
        return y, model.predict(X), sample_weight
    targets, weights = [], []
    for number, block in enumerate(_stream_of(X, y, sample_weight)):
        if block.y is None:
            raise ValueError(f"block {number} has no y to compare predictions with.")
        # Copies: the stream may fill the same memory with its next block.
        targets.append(_copied(block.y))
        weights.append(_copied(block.sample_weight))
    given = [stacked(targets), None if weights[0] is None else stacked(weights)]
    predictions = model.predict(X)
    if isinstance(X, DeviceBlocks) or not is_tensor(predictions):
        given = [None if each is None else ops_of(each).to_host(each) for each in given]
        predictions = ops_of(predictions).to_host(predictions)
    return given[0], predictions, given[1]


@contextlib.contextmanager
def _located(number: int, start: int) -> Iterator[None]:
    """Let an error tell in which block it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"block {number}, from row {start:,} on: {error}") from error
