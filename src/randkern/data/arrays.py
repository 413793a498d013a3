"""Blocks of arrays, by slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import check_count
from randkern.data.ranges import row_blocks, rows_within

_BLOCK_BYTES = 16 * 10**6
# A chunk is decoded as a whole, however few of its rows are requested: bands of
# chunks up to this size are read at once.
_BAND_BYTES = 256 * 10**6
# Rows that are read together where their order is random.
_SLICE_BYTES = 10**6
_ASSUMED_ITEMSIZE = 8


@dataclass(frozen=True, eq=False)
class ArraySource:
    """X, y and sample_weight as arrays, read in slices of `block_rows` rows."""

    X: Any
    y: Any
    sample_weight: Any
    block_rows: int

    @classmethod
    def of(
        cls, X: Any, y: Any, sample_weight: Any, block_rows: int | None
    ) -> ArraySource:
        """Check shapes, which reads no rows, and settle the size of the blocks."""
        X = _sliceable("X", X)
        if len(X.shape) != 2:
            raise ValueError(f"X must have two dimensions, got shape {X.shape}.")
        rest = {"y": y, "sample_weight": sample_weight}
        for name, part in rest.items():
            if part is None:
                continue
            rest[name] = part = _sliceable(name, part)
            if not part.shape or part.shape[0] != X.shape[0]:
                raise ValueError(
                    f"{name} has shape {part.shape}, but X has {X.shape[0]} rows; "
                    "they must have the same length."
                )
        if block_rows is None:
            block_rows = default_block_rows(X)
        return cls(X, block_rows=check_count("block_rows", block_rows), **rest)

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        for rows in row_blocks(self.n_rows, self.block_rows):
            yield self._rows(rows)

    def shuffled(
        self, generator: np.random.Generator
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield slices in a random order: of 1 MB, or of whole chunks."""
        most = min(self.block_rows, default_block_rows(self.X, _SLICE_BYTES))
        slices = list(row_blocks(self.n_rows, most))
        for i in generator.permutation(len(slices)):
            yield self._rows(slices[i])

    def _rows(self, rows: slice) -> tuple[Any, Any, Any]:
        parts = (self.X, self.y, self.sample_weight)
        X, y, weight = (_read(part, rows) for part in parts)
        return X, y, weight


def default_block_rows(X: Any, n_bytes: int = _BLOCK_BYTES) -> int:
    """Return how many rows of `X` take so many bytes, in whole chunks if it has any."""
    n, d = X.shape
    if hasattr(X, "nnz"):
        entry = X.data.itemsize + X.indices.itemsize
        bytes_per_row = entry * X.nnz // max(n, 1)
    else:
        dtype = getattr(X, "dtype", None)
        bytes_per_row = d * int(getattr(dtype, "itemsize", _ASSUMED_ITEMSIZE))
    block = rows_within(n_bytes, bytes_per_row)
    chunks = getattr(X, "chunks", None)  # None for a contiguous data set of h5py
    chunk = chunks[0] if chunks else 1
    if not isinstance(chunk, int) or chunk * bytes_per_row > _BAND_BYTES:
        return block
    return max(chunk, block // chunk * chunk)


def _sliceable(name: str, part: Any) -> Any:
    """Return something with a shape that gives rows when it is sliced."""
    if not hasattr(part, "shape"):
        return np.asarray(part)
    form = getattr(part, "format", None)
    if hasattr(part, "nnz") and form != "csr":
        raise ValueError(
            f"{name} is a sparse matrix in {form} format, whose rows cannot be "
            f"sliced quickly; pass {name}.tocsr()."
        )
    return part


def _read(part: Any, rows: slice) -> Any:
    """Return some rows; for dataframes by position, whatever their index."""
    if part is None:
        return None
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]
