"""Fingerprints of rows: does a later pass over a stream give those of the first?

The fingerprint of a block is a sum over its rows, modulo 2⁶⁴, of a hash of the row, its
target and its weight times an odd number that depends on the row's place in the stream.
Fingerprints of blocks add up to that of a pass, whatever the order in which the blocks
are read and wherever the stream is cut. Another value in a single cell always changes
it, and other changes go unnoticed only by chance. Hashing takes one multiplication per
entry of X, as much as one more column of a dense projection.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from randkern._validation import Array, Rows, is_device_array
from randkern.backend.namespace import ops_of
from randkern.exceptions import RowsChangedError

_MODULUS = 2**64
# An odd number of random bits (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
# number generators").
_MIX = np.uint64(0xBF58476D1CE4E5B9)
# seeds of the multipliers of their columns
_X = 0
_TARGETS = 1
_WEIGHTS = 2


def fingerprint_of(X: Rows, y: Any, weight: Array, start: int) -> int:
    """Return the fingerprint of a block of rows, the first of which is row `start`."""
    hashes = row_hashes(X, y)
    if weight is not None:
        hashes = hashes + _hashes(weight[:, None], _WEIGHTS)
    # Not linear in the cells: equal changes of two rows must not cancel.
    hashes = (hashes ^ (hashes >> np.uint64(32))) * _MIX
    hashes = hashes ^ (hashes >> np.uint64(29))
    places = np.arange(start, start + len(hashes), dtype=np.uint64)
    return int((hashes * (np.uint64(2) * places + np.uint64(1))).sum())


def row_hashes(X: Rows, y: Any) -> np.ndarray:
    """Return hashes of rows with their targets, which are equal for equal rows."""
    return _hashes(X, _X) + _target_hashes(y)


def _hashes(values: Array, seed: int) -> np.ndarray:
    return ops_of(values).row_hashes(values, _multipliers(seed, values.shape[1]))


def _target_hashes(y: Any) -> np.ndarray:
    """Return hashes of targets or labels: of numbers their bits, or else their text."""
    y = y if is_device_array(y) else np.asarray(y)
    ops = ops_of(y)
    if not is_device_array(y) and y.dtype.kind not in "biuf":
        y = np.ascontiguousarray(y.astype(str)).reshape(len(y), -1).view(np.int32)
    elif ops.xp.isdtype(y.dtype, "real floating"):
        y = ops.as_float64(y)
    else:
        y = ops.xp.astype(y, ops.xp.int64, copy=False)
    return _hashes(y.reshape(len(y), -1), _TARGETS)


@lru_cache(maxsize=8)
def _multipliers(seed: int, n: int) -> np.ndarray:
    """Return n odd random numbers, the first of which do not depend on n."""
    raw = np.random.PCG64(seed).random_raw(n)
    return (raw | np.uint64(1)).view(np.int64)


class PassRecord:
    """The fingerprints of the blocks of a pass, and how a later pass differs."""

    def __init__(self) -> None:
        self.total = 0
        # The end and the fingerprint of each block, by its first row.
        self._blocks: dict[int, tuple[int, int]] = {}

    def add(self, X: Rows, y: Any, weight: Array, start: int) -> None:
        """Record a block."""
        value = fingerprint_of(X, y, weight, start)
        self.total = (self.total + value) % _MODULUS
        self._blocks[start] = start + X.shape[0], value

    def check_block(self, first: PassRecord, start: int, location: str) -> None:
        """Raise unless the block from `start` on is that of the first pass.

        If blocks were cut elsewhere in the first pass, only all of them can tell.
        """
        current = self._blocks[start]
        first_block = first._blocks.get(start, (None, 0))
        if current[0] == first_block[0] and current[1] != first_block[1]:
            raise rows_changed(location)

    def check_all(self, first: PassRecord, location: str) -> None:
        """Raise unless all blocks together are those of the first pass."""
        if self.total != first.total:
            raise rows_changed(location)


def rows_changed(location: str, detail: str = "") -> RowsChangedError:
    """Return the error for rows that differ from those of the first pass."""
    return RowsChangedError(
        f"{location} differs from the first pass of this fit{detail}; every pass must "
        "yield the same rows, targets and weights in the same order: check that the "
        "data did not change, that every pass starts from the first row, and that "
        "nothing is shuffled or drawn again. Nothing was fitted."
    )
