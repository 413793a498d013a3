"""Do the passes over a stream give the same rows? Their numbers and targets tell."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from randkern._validation import Array, is_device_array
from randkern.backend.namespace import ops_of
from randkern.exceptions import RowsChangedError

_GOLDEN = (5**0.5 - 1) / 2
# Relative rounding errors of sums whose blocks were cut elsewhere.
_ROUNDED = 1e-12


class PassSums:
    """The number of rows of a pass, and sums of their targets and weights.

    Each row has a factor between 1 and 2, another one at each place, so that rows in
    another order have other sums. Rows that change in X alone go unnoticed.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        # Of each target and of the weights, and of their sizes, to compare with.
        self.sums: np.ndarray = np.zeros(1)
        self.sizes: np.ndarray = np.zeros(1)

    def add(self, y: Any, weight: Array) -> None:
        """Add the next block of targets or labels, with its weights or None."""
        columns = _numbers(y)
        ops = ops_of(columns)
        places = np.arange(self.n_rows, self.n_rows + len(columns))
        factors = ops.float64_like(1.0 + places * _GOLDEN % 1.0, columns)
        if weight is not None:
            columns = ops.hstack([columns, ops.float64_like(weight[:, None], columns)])
        self.sums = self.sums + ops.to_host(factors @ columns)
        self.sizes = self.sizes + ops.to_host(factors @ abs(columns))
        self.n_rows += len(columns)

    def check(self, first: PassSums, location: str) -> None:
        """Raise a RowsChangedError unless these are the sums of the first pass."""
        same = self.n_rows == first.n_rows and self.sums.shape == first.sums.shape
        # Sums that overflow are compared as they are.
        if same and np.isfinite(self.sizes + first.sizes).all():
            difference = np.abs(self.sums - first.sums)
            same = bool(np.all(difference <= _ROUNDED * first.sizes))
        if not same:
            raise rows_changed(location)


def _numbers(y: Any) -> Array:
    """Return targets as float64 columns; texts as numbers that distinguish them."""
    y = y if is_device_array(y) else np.asarray(y)
    if not is_device_array(y) and y.dtype.kind not in "biuf":
        texts, codes = np.unique(y.astype(str), return_inverse=True)
        y = np.array([zlib.crc32(text.encode()) for text in texts], float)[codes]
    return ops_of(y).as_float64(y).reshape(len(y), -1)


def rows_changed(location: str, detail: str = "") -> RowsChangedError:
    """Return the error for rows that differ from those of the first pass."""
    return RowsChangedError(
        f"{location} differs from the first pass of this fit{detail}; every pass must "
        "yield the same rows, targets and weights in the same order: check that the "
        "data did not change, that every pass starts from the first row, and that "
        "nothing is shuffled or drawn again. Nothing was fitted."
    )
