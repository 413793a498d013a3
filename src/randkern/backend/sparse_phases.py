"""Features whose phases are sparse sums of the columns of a row.

Entry i of a map has the value

    ψᵢ(x) = Πₖ (aₖ·x + i bₖ·x)^{eₖ} · exp(i Σⱼ cᵢⱼ xⱼ)

with sparse c, a and b; most maps have only the phase. Rows are packed 64 at a time,
columns outermost, so that every step of every entry is one run of vector instructions
over rows, whichever columns it reads. Columns that no entry reads are not touched.

:mod:`randkern.backend.torch_sparse` holds the same functions for tensors; both are
``ops_of(array).sparse``.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from randkern.backend.compiled_loops import (
    check_out,
    input_rows,
    output_rows,
    run_over_ranges,
)
from randkern.backend.cpu import cos_sin, cos_sin_wide, is_fast

_ROWS = 64  # packed together
_TILE = 32  # entries per write to the output
_COLUMNS = 128  # read row by row


class SparseEntries(NamedTuple):
    """Entries of a sparse map, stored like CSR matrices.

    The phase of entry i is the sum of ``coefs[p] * x[slots[p]]`` over p from
    ``starts[i]`` to ``starts[i + 1] - 1``, plus ``shifts[i]``. Its factors start at
    ``factor_starts[i]`` and have exponents ``powers``; the real part of factor k is the
    sum of ``real_coefs * x[real_slots]`` from ``real_starts[k]`` on, its imaginary part
    ``imag_coefs[k] * x[imag_slots[k]]``, or 0 if that slot is -1.
    """

    starts: np.ndarray
    slots: np.ndarray
    coefs: np.ndarray
    weights: np.ndarray
    shifts: np.ndarray
    columns: np.ndarray  # where the one or two columns of each entry begin
    factor_starts: np.ndarray
    powers: np.ndarray
    real_starts: np.ndarray
    real_slots: np.ndarray
    real_coefs: np.ndarray
    imag_slots: np.ndarray
    imag_coefs: np.ndarray

    def compact(self) -> "tuple[SparseEntries, np.ndarray]":
        """Return the entries restricted to the slots they read, and these slots."""
        imaginary = self.imag_slots >= 0
        read = self.slots, self.real_slots, self.imag_slots[imaginary]
        used, position = np.unique(np.concatenate(read), return_inverse=True)
        slots, real_slots, imag_read = np.split(
            position.astype(np.int64), np.cumsum([len(part) for part in read])[:-1]
        )
        imag_slots = self.imag_slots.copy()
        imag_slots[imaginary] = imag_read
        parts = {"slots": slots, "real_slots": real_slots, "imag_slots": imag_slots}
        return self._replace(**parts), used.astype(np.int64)

    def astype(self, dtype: np.dtype) -> "SparseEntries":
        """Return the entries with their numbers cast to `dtype`."""
        return self._replace(
            **{
                name: np.ascontiguousarray(getattr(self, name), dtype=dtype)
                for name in ("coefs", "weights", "shifts", "real_coefs", "imag_coefs")
            }
        )


_compiled = njit(nogil=True, cache=True)
_contracted = njit(nogil=True, cache=True, fastmath={"contract"})


@_compiled
def _pack(x, stride, reads, start, n_rows, packed):
    for first in range(0, len(reads), _COLUMNS):
        stop = min(first + _COLUMNS, len(reads))
        for r in range(n_rows):
            row = (start + r) * stride
            for j in range(first, stop):
                packed[j * _ROWS + r] = x[row + reads[j]]


@_contracted
def _phase(entries, i, packed, phase):
    shift = entries.shifts[i]
    for r in range(_ROWS):
        phase[r] = shift
    for p in range(entries.starts[i], entries.starts[i + 1]):
        begin = entries.slots[p] * _ROWS
        column = packed[begin : begin + _ROWS]
        coef = entries.coefs[p]
        for r in range(_ROWS):
            phase[r] += coef * column[r]


@_compiled
def _trig(phase, weight, cosine, sine):
    if is_fast(phase):
        for r in range(_ROWS):
            c, s = cos_sin(phase[r])
            cosine[r] = weight * c
            sine[r] = weight * s
    else:
        for r in range(_ROWS):
            c, s = cos_sin_wide(phase[r])
            cosine[r] = weight * c
            sine[r] = weight * s


@_contracted
def _times_factors(entries, i, packed, real, imag, cosine, sine):
    """Multiply cosine + i·sine by the factors of an entry."""
    for k in range(entries.factor_starts[i], entries.factor_starts[i + 1]):
        for r in range(_ROWS):
            real[r] = 0
        for p in range(entries.real_starts[k], entries.real_starts[k + 1]):
            begin = entries.real_slots[p] * _ROWS
            column = packed[begin : begin + _ROWS]
            coef = entries.real_coefs[p]
            for r in range(_ROWS):
                real[r] += coef * column[r]
        if entries.imag_slots[k] < 0:
            for _ in range(entries.powers[k]):
                for r in range(_ROWS):
                    cosine[r] *= real[r]
                    sine[r] *= real[r]
            continue
        begin = entries.imag_slots[k] * _ROWS
        column = packed[begin : begin + _ROWS]
        coef = entries.imag_coefs[k]
        for r in range(_ROWS):
            imag[r] = coef * column[r]
        for _ in range(entries.powers[k]):
            for r in range(_ROWS):
                c = cosine[r] * real[r] - sine[r] * imag[r]
                sine[r] = cosine[r] * imag[r] + sine[r] * real[r]
                cosine[r] = c


@_compiled
def _store(tile, n_columns, n_rows, out, position, stride):
    """Write a tile, stored as columns by rows, to rows by columns."""
    for r in range(n_rows):
        row = out[position + r * stride : position + r * stride + n_columns]
        for c in range(n_columns):
            row[c] = tile[c * _ROWS + r]


@_compiled
def _features(x, x_stride, reads, entries, columns, span, has_waves, target, rows, n):
    """Write the features of a span of entries, or their phases if `has_waves` is not.

    The columns of entry i begin at ``columns[i]``.
    """
    (first, last), (out, out_stride) = span, target
    packed = np.zeros(len(reads) * _ROWS, x.dtype)
    tile = np.empty((2 * _TILE) * _ROWS, x.dtype)
    phase, spare = np.empty(_ROWS, x.dtype), np.empty(_ROWS, x.dtype)
    real, imag = np.empty(_ROWS, x.dtype), np.empty(_ROWS, x.dtype)
    has_factors = len(entries.powers) > 0
    origin = columns[first]
    for start in range(rows[0], rows[1], _ROWS):
        n_rows = min(_ROWS, n - start)
        _pack(x, x_stride, reads, start, n_rows, packed)
        for begin in range(first, last, _TILE):
            end = min(begin + _TILE, last)
            left = columns[begin]
            for i in range(begin, end):
                at = (columns[i] - left) * _ROWS
                cosine = tile[at : at + _ROWS]
                if not has_waves:
                    _phase(entries, i, packed, cosine)
                    continue
                sine = spare
                if columns[i + 1] - columns[i] == 2:
                    sine = tile[at + _ROWS : at + 2 * _ROWS]
                _phase(entries, i, packed, phase)
                _trig(phase, entries.weights[i], cosine, sine)
                if has_factors:
                    _times_factors(entries, i, packed, real, imag, cosine, sine)
            position = start * out_stride + left - origin
            _store(tile, columns[end] - left, n_rows, out, position, out_stride)


def _run(X, reads, entries, columns, span, has_waves, out):
    first, last = span
    check_out(out, (len(X), int(columns[last] - columns[first])))
    if out.size == 0:
        return
    n, rows_of_X, outs = len(X), input_rows(X, out.dtype), output_rows(out)
    settings = reads, entries, columns, span, has_waves

    def task(start: int, stop: int) -> None:
        _features(*rows_of_X, *settings, outs, (start, stop), n)

    n_terms = entries.starts[last] - entries.starts[first] + out.shape[1]
    run_over_ranges(task, n, 0.5 * n * (n_terms + len(reads)), _ROWS)


def product(owner, name, matrix, values):
    """Return matrix·values for a CSR matrix, which `owner` knows as `name`.

    For tensors the matrix is cached on the device for the lifetime of `owner`.
    """
    return matrix.astype(values.dtype, copy=False) @ values


def sparse_map(entries, like):
    """Return entries for rows like `like`, restricted to the slots read, and these."""
    return entries.astype(like.dtype).compact()


def sparse_features(X, reads, entries, first, last, out):
    """Write the columns of entries `first` to `last` for every row.

    An entry with two columns writes its real and imaginary parts times its weight, one
    with a single column its real part. Slot s reads column ``reads[s]`` of X. Numbers
    of entries are of the dtype of `out`.
    """
    _run(X, reads, entries, entries.columns, (first, last), True, out)


def sparse_phases(X, reads, entries, first, last, out):
    """Write the phases of entries `first` to `last` for every row, (n, last - first).

    The arguments are those of :func:`sparse_features`.
    """
    _run(X, reads, entries, np.arange(last + 1), (first, last), False, out)


def sparse_polar(X, reads, entries, first, last):
    """Return moduli and phases of entries with two columns, (n, last - first) each."""
    values = np.empty((X.shape[0], 2 * (last - first)), dtype=X.dtype)
    sparse_features(X, reads, entries, first, last, values)
    real, imag = values[:, ::2], values[:, 1::2]
    return np.hypot(real, imag), np.arctan2(imag, real)
