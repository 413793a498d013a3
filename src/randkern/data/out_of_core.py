"""Training data that is reread in every pass, and its first pass."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._cells import NotFiniteError
from randkern._extras import import_extra
from randkern._random import Stream
from randkern._validation import (
    Array,
    Rows,
    check_weights,
    is_device_array,
    place_of,
    validate_rows,
)
from randkern.backend.namespace import empty_on, ops_of
from randkern.data.blocks import RowBlock, RowBlocks, as_blocks, block_name
from randkern.data.devices import DeviceBlocks, check_dense, split_device
from randkern.data.passes import PassSums, rows_changed
from randkern.data.sample import RowSample
from randkern.data.sharded import dask_blocks, is_dask
from randkern.data.target_statistics import TargetStatistics
from randkern.data.training_data import (
    ArrayRows,
    FitData,
    TargetReader,
    TrainingData,
    weighted_sample,
)

# Targets of a stream up to this size are cached, which saves a pass over the rows.
_TARGET_BYTES = 16 * 10**6
_NOT_FITTED = "Nothing was fitted."


class StreamedRows(TrainingData):
    """Rows that are reread in every pass.

    `read` returns an iterator over blocks of checked rows, the same in every call, each
    with the number of its first row. `like` is an array of the dtype of the rows, on
    their device.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[ArrayRows]],
        n_rows: int,
        n_targets: int,
        like: Any,
    ):
        self._read = read
        self.n_rows = n_rows
        self.n_targets = n_targets
        self.like = like
        # Functions applied to each block that is read.
        self._changes: tuple[Callable[[ArrayRows], ArrayRows], ...] = ()

    def blocks(self, max_rows: int, start: int = 0) -> Iterator[ArrayRows]:
        for block in self._read():
            if block.rows.stop > start:
                for change in self._changes:
                    block = change(block)
                yield from block.blocks(max_rows, max(0, start - block.start))

    def _changed(self, change: Callable[[ArrayRows], ArrayRows]) -> StreamedRows:
        rows = copy.copy(self)
        rows._changes = (*self._changes, change)
        rows._statistics = None
        return rows

    def rescaled(self, shift: Any, scale: Any) -> StreamedRows:
        return self._changed(partial(ArrayRows.rescaled, shift=shift, scale=scale))


class _CheckedBlocks:
    """The rows of a stream, checked for an estimator in every pass.

    All blocks are arrays of one library on one device. Rows stay on their device,
    unless :class:`DeviceBlocks` move them to another. Every pass must give the rows of
    the first, as far as :class:`PassSums` can tell.
    """

    def __init__(
        self,
        estimator: Any,
        targets: TargetReader,
        blocks: RowBlocks,
        device: str | None,
    ):
        self.estimator = estimator
        # Known after a first pass.
        self.targets: Any = targets
        self.blocks = blocks
        self.device = device
        # An array of the dtype and on the device of the rows, known after a first pass.
        self.like: Any = None
        self._kinds: tuple[str, ...] = ()
        self._first = PassSums()
        self._n_passes = 0

    def first_pass(self) -> Iterator[tuple[RowBlock, Any]]:
        """Yield checked blocks, and the summaries of their targets."""
        self._n_passes = 1
        for block in _read(self.blocks, "of the first pass", _NOT_FITTED):
            with located(block):
                if block.y is None:
                    raise ValueError(
                        f"{type(self.estimator).__name__} requires y; blocks must be "
                        "(X, y) or (X, y, sample_weight)."
                    )
                X, weight = self._of(block, first=block.start == 0)
                summary = self.targets.summary(X, block.y, weight)
            self._first.add(block.y, weight)
            yield replace(block, X=X, sample_weight=weight), summary

    def read(self) -> Iterator[ArrayRows]:
        """Yield blocks with their targets."""
        self._n_passes += 1
        in_pass = f"in pass {self._n_passes}"
        sums = PassSums()
        for block in _read(self.blocks, in_pass, _NOT_FITTED):
            start = _start_of(block)
            location = f"{block_name(block.number, start)}, {in_pass},"
            try:
                X, weight = self._of(block)
                sums.add(block.y, weight)
                Y, weight = self.targets.columns(X, block.y, weight)
            except (ValueError, TypeError) as error:  # not raised in the first pass
                raise rows_changed(location, f" ({error})") from error
            yield ArrayRows(X, Y, weight, start).at(self.like)
        sums.check(self._first, f"pass {self._n_passes} over the rows")

    def _of(self, block: RowBlock, first: bool = False) -> tuple[Rows, Any]:
        """Return the rows of a block and their weights."""
        X = named_rows(self.blocks, block)
        kinds = kind_of(X), kind_of(block.y)
        self._kinds = self._kinds or kinds
        for name, kind, first_kind in zip("Xy", kinds, self._kinds, strict=True):
            if kind != first_kind:
                raise ValueError(
                    f"{name} is {kind}, but in the first block it is {first_kind}; use "
                    "the same kind of array in all blocks."
                )
        X = validate_rows(self.estimator, X, reset=first)
        if self.device is not None:
            check_dense(X)
        encoder = getattr(self.estimator, "table_encoder_", None)
        if not first and encoder is not None:
            encoder.check_known(X)
        return X, check_weights(block.sample_weight, X, of_block=True)


def read_stream(
    estimator: Any,
    targets: TargetReader,
    X: RowBlocks | DeviceBlocks,
    y: Any,
    sample_weight: Any,
    stream: Stream,
) -> FitData:
    """Read and check all rows once, for :func:`randkern.data.reading.read`."""
    source, device = split_device(X)
    to_blocks = dask_blocks if is_dask(source) else as_blocks
    blocks = to_blocks(source, y, sample_weight)
    checked = _CheckedBlocks(estimator, targets, blocks, device)
    sample = RowSample()
    generator = stream.child("first pass").generator()
    summaries: list[Any] = []
    cached: list[tuple[Any, Any]] = []
    n_rows = 0
    target_bytes = 0
    like: Array = None
    for block, summary in checked.first_pass():
        rows, weight = block.X, block.sample_weight
        summaries.append(summary)
        if target_bytes <= _TARGET_BYTES:
            # Copies: the stream may reuse the memory for its next block.
            y = copied(block.y)
            cached.append((y, copied(weight)))
            target_bytes += y.nbytes + 8 * len(y)
            if target_bytes > _TARGET_BYTES:
                cached.clear()
        sample.add(rows, block.y, weight, generator)
        n_rows += rows.shape[0]
        if like is None or like.dtype.itemsize < rows.dtype.itemsize:
            like = ops_of(rows).empty((0, rows.shape[1]), rows)
    if n_rows == 0:
        raise ValueError(
            "the stream has no rows: found 0 samples, but at least 1 is required; "
            "pass blocks with rows."
        )
    known = checked.targets = targets.learned(summaries)
    checked.like = like if device is None else _empty_on(device, like)
    streamed = StreamedRows(checked.read, n_rows, known.n_columns, checked.like)
    if target_bytes <= _TARGET_BYTES:
        read_targets = (
            # Rows without columns, against which targets are checked.
            known.columns(ops_of(like).float64_zeros((len(y), 0), like), y, weight)
            for y, weight in cached
        )
        streamed._statistics = TargetStatistics.of(read_targets, known.n_columns)
    return FitData(streamed, known, weighted_sample(sample, known))


def moved_blocks(model: Any, X: RowBlocks | DeviceBlocks) -> Iterator[Rows]:
    """Yield the checked rows of all blocks, on the device of the computation."""
    source, device = split_device(X)
    blocks = as_blocks(source)
    for block in _read(blocks, "to predict", "Nothing was predicted."):
        with located(block):
            rows = validate_rows(model, named_rows(blocks, block), reset=False)
            if device is not None:
                check_dense(rows)
                like = _empty_on(device, rows)
                rows = ops_of(like).asarray(rows, like)
        yield rows


def copied(part: Any) -> Any:
    """Return a copy of an array, or of a tensor on its device."""
    if part is None:
        return None
    array = part if is_device_array(part) else np.asarray(part)
    return ops_of(array).copy(array)


def named_rows(blocks: RowBlocks, block: RowBlock) -> Any:
    """Return the X of a block, with column names if they are known."""
    names = blocks.column_names
    if names is None or not isinstance(block.X, np.ndarray):
        return block.X
    pandas = import_extra("pandas", "RowBlocks with named columns", "data")
    return pandas.DataFrame(block.X, columns=list(names), copy=False)


def _empty_on(device: str, X: Rows) -> Any:
    """Return an empty array like the rows of X, on a device."""
    like = empty_on(device, ops_of(X).numpy_dtype(X))
    return ops_of(like).empty((0, X.shape[1]), like)


@contextlib.contextmanager
def located(block: RowBlock) -> Iterator[None]:
    """Name the block in error messages, and the row of the stream if it is known."""
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        message = f"{block_name(block.number, block.start)}: {error}"
        if isinstance(error, NotFiniteError) and block.start:
            message += f" Of all rows it is row {block.start + error.row}."
        raise kind(message) from error


def _read(
    blocks: Iterable[RowBlock], pass_name: str, consequence: str
) -> Iterator[RowBlock]:
    """Yield the blocks; say in errors of files which block was read, and what follows.

    The error has the type of that of the reader, or its nearest built-in base.
    """
    number = 0
    start = 0
    items = iter(blocks)
    while True:
        try:
            block = next(items)
        except StopIteration:
            return
        except OSError as error:
            kind = next(k for k in type(error).__mro__ if k.__module__ == "builtins")
            location = (
                f"while block {number} {pass_name} was read, after {start:,} rows"
            )
            message = f"{error.strerror or error} ({location}). {consequence}"
            if error.errno is None:
                raise kind(message) from error
            raise kind(error.errno, message, error.filename) from error
        yield block
        number, start = number + 1, start + block.n_rows


def _start_of(block: RowBlock) -> int:
    """Return the number of the first row, which fits know from their first pass."""
    assert block.start is not None
    return block.start


def kind_of(part: Any) -> str:
    """Describe what a block holds, for a message."""
    if sp.issparse(part):
        return "a sparse matrix"
    return place_of(part if is_device_array(part) else None)
