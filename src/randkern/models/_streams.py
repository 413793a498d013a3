"""Fitting to rows that are read block by block: what the first pass learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from randkern._random import Stream
from randkern._validation import Rows, check_block_weights, validate_rows
from randkern.blocks import RowBlock, RowBlocks
from randkern.models._rows import StreamedRows

__all__ = ["FirstPass", "StreamReader", "read_stream"]

# Memory of the rows that stand for all of them where a kernel looks at its data.
_SAMPLE_BYTES = 64 * 10**6
_LEAST_SAMPLE = 1000


class StreamReader(Protocol):
    """An estimator whose targets come in blocks."""

    def _see_targets(self, X: Rows, y: Any, weight: Any, *, first: bool) -> None:
        """Learn from a block of the first pass: classes, widths."""

    def _seen_all(self) -> int:
        """End the first pass; return the number of columns of targets."""

    def _targets_of(
        self, X: Rows, y: Any, weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return targets (n, k) and weights of a block of a later pass."""


@dataclass(frozen=True)
class FirstPass:
    """The rows, and a sample of them that a kernel may be resolved on."""

    rows: StreamedRows
    sample: Rows
    sample_weight: np.ndarray | None


def read_stream(estimator: Any, blocks: RowBlocks, stream: Stream) -> FirstPass:
    """Read all rows once, check them, and return what later passes need.

    Sets what validation sets on the estimator.
    """
    sample = _Sample(stream)
    n_rows, dtypes = 0, set()
    for block in blocks:
        first = n_rows == 0
        if block.y is None:
            raise ValueError(
                f"{type(estimator).__name__} requires y: blocks must be (X, y) or "
                "(X, y, sample_weight)."
            )
        X = _checked(estimator, block, first)
        weight = check_block_weights(block.sample_weight, X)
        estimator._see_targets(X, block.y, weight, first=first)
        sample.add(X, weight)
        n_rows += X.shape[0]
        dtypes.add(X.dtype)
    if n_rows == 0:
        raise ValueError("the stream has no rows: found 0 samples, 1 is required.")
    dtype = np.result_type(*dtypes)
    n_targets = estimator._seen_all()

    def read() -> Iterator[tuple[Rows, np.ndarray, np.ndarray | None]]:
        for block in blocks:
            X = _checked(estimator, block, False).astype(dtype, copy=False)
            weight = check_block_weights(block.sample_weight, X)
            yield X, *estimator._targets_of(X, block.y, weight)

    X, weight = sample.rows()
    if weight is not None and not np.any(weight):
        raise ValueError("every sample_weight is zero: no row is left to fit.")
    return FirstPass(
        StreamedRows(read, n_rows, n_targets, dtype),
        X.astype(dtype, copy=False),
        weight,
    )


def _checked(estimator: Any, block: RowBlock, first: bool) -> Rows:
    X = validate_rows(estimator, block.X, reset=first)
    encoder = getattr(estimator, "table_encoder_", None)
    if not first and encoder is not None:
        encoder.check_known(X)
    return X


class _Sample:
    """A uniform sample of a stream: the rows of the smallest random keys."""

    def __init__(self, stream: Stream):
        self._generator = stream.child("first pass").generator()
        self._keys = np.empty(0)
        self._X: list[Rows] = []
        self._weights: list[np.ndarray | None] = []
        self._size = 0

    def add(self, X: Rows, weight: np.ndarray | None) -> None:
        keys = self._generator.random(X.shape[0])
        if not self._size:
            row = X.shape[1] * X.dtype.itemsize
            self._size = max(_LEAST_SAMPLE, _SAMPLE_BYTES // max(row, 1))
        elif len(self._keys) >= self._size:
            kept = np.flatnonzero(keys < self._keys.max())
            X, keys = X[kept], keys[kept]
            weight = None if weight is None else weight[kept]
        if weight is not None:
            # Rows without weight say nothing about the data.
            kept = np.flatnonzero(weight)
            X, keys, weight = X[kept], keys[kept], weight[kept]
        self._X.append(X)
        self._weights.append(weight)
        self._keys = np.concatenate([self._keys, keys])
        if len(self._keys) > 2 * self._size:
            self._trim()

    def _trim(self) -> None:
        X, weight = _stacked(self._X), None
        order = np.sort(np.argsort(self._keys, kind="stable")[: self._size])
        if self._weights[0] is not None:
            weight = np.concatenate([w for w in self._weights if w is not None])[order]
        self._X, self._weights = [X[order]], [weight]
        self._keys = self._keys[order]

    def rows(self) -> tuple[Rows, np.ndarray | None]:
        self._trim()
        return self._X[0], self._weights[0]


def _stacked(blocks: list[Rows]) -> Rows:
    if sp.issparse(blocks[0]):
        return sp.csr_array(sp.vstack(blocks))
    return np.vstack(blocks)
