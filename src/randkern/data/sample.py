"""A sample of rows, from which kernels are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._validation import Array, Rows, is_tensor
from randkern.backend.namespace import ops_of

_SAMPLE_BYTES = 16 * 10**6
_MIN_SAMPLE = 1000


def stacked(blocks: Sequence[Any]) -> Any:
    """Return arrays of rows, or vectors, concatenated."""
    if sp.issparse(blocks[0]):
        return sp.csr_array(sp.vstack(blocks))
    return ops_of(blocks[0]).concatenate(blocks)


def sample_size(row_bytes: int) -> int:
    """Return the number of rows of a sample."""
    return max(_MIN_SAMPLE, _SAMPLE_BYTES // max(row_bytes, 1))


class RowSample:
    """A uniform sample of a stream: the rows with the smallest random keys.

    Rows of weight 0 are excluded. The sample is on the device of the rows.
    """

    def __init__(self) -> None:
        self._keys: Any = None
        self._X: list[Rows] = []
        # Targets and weights, or None.
        self._columns: list[tuple[Any, Any]] = []
        self._size = 0

    def add(
        self, X: Rows, y: Array, weight: Array, generator: np.random.Generator
    ) -> None:
        """Add a block."""
        ops = ops_of(X)
        keys = ops.float64_like(generator.random(X.shape[0]), X)
        if not self._size:
            self._size = sample_size(X.shape[1] * X.dtype.itemsize)
        eligible = keys >= 0 if weight is None else weight > 0
        if self._keys is not None and len(self._keys) >= self._size:
            eligible &= keys < self._keys.max()
        numbers = ops.flatnonzero(eligible)
        numbers = numbers[_smallest(keys[numbers], self._size)]
        # A copy: the stream may reuse the memory for its next block.
        columns = _at(numbers, y), _at(numbers, weight)
        self._append([X[numbers]], [columns], keys[numbers])

    @classmethod
    def merged(cls, samples: Iterable[RowSample]) -> RowSample:
        """Return a sample of the rows of all samples, with the size of one."""
        total = cls()
        for sample in samples:
            if sample._keys is not None:
                total._size = max(total._size, sample._size)
                total._append(sample._X, sample._columns, sample._keys)
        if total._keys is not None:
            total._trim()
        return total

    def _append(self, X: list[Rows], columns: list[Any], keys: Any) -> None:
        self._X += X
        self._columns += columns
        self._keys = keys if self._keys is None else stacked([self._keys, keys])
        if len(self._keys) > 2 * self._size:
            self._trim()

    def _trim(self) -> None:
        """Drop all rows but those with the smallest keys."""
        smallest = _smallest(self._keys, self._size)
        parts, start = [], 0
        for X in self._X:
            parts.append(X[smallest[start : start + X.shape[0]]])
            start += X.shape[0]
        y, weight = (
            None if values[0] is None else _at(smallest, stacked(values))
            for values in zip(*self._columns, strict=True)
        )
        self._X = [stacked(parts)]
        self._columns = [(y, weight)]
        self._keys = self._keys[smallest]

    def rows(self) -> tuple[Rows, Any, Any]:
        """Return the sampled rows, their targets and their weights."""
        if self._keys is None:
            raise ValueError(
                "X has no rows: found 0 samples, but at least 1 is required."
            )
        self._trim()
        if len(self._keys) == 0:
            raise ValueError(
                "every sample_weight is zero; at least one row needs a positive weight."
            )
        return self._X[0], *self._columns[0]


def _at(chosen: Any, values: Any) -> Any:
    """Return the chosen entries of targets or weights, wherever these are."""
    if values is None:
        return None
    if not is_tensor(values):
        values, chosen = np.asarray(values), ops_of(chosen).to_host(chosen)
    return ops_of(values).take(values, chosen)


def _smallest(keys: Any, size: int) -> Any:
    """Return a mask of the `size` smallest keys."""
    if len(keys) <= size:
        return keys >= 0
    return keys <= keys[keys.argsort()[size - 1]]
