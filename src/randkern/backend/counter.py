"""Random matrices whose entries are a function of their position.

Entry (i, j) depends only on the key, the distribution and (i, j), so any rectangle of
an infinite matrix can be generated, repeatedly and in any order, without the rest: a
projection too large for memory is never stored.

The bits are those of Philox4x32-10. The counter of entry (i, j) is, in 32-bit
words, ``(16 * (j // 64) + j % 16, i mod 2^32, i div 2^32, distribution)``, and word
``(j % 64) // 16`` of its four outputs belongs to column j: the four words of
neighbouring counters go to four runs of 16 neighbouring columns, which lets the
compiler vectorise over counters. The normals of columns j and j + 32 of a block of 64
are computed from the two words of these columns.

References
----------
J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC'11 (2011), section 3.
"""

import math
from collections import namedtuple
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from randkern.backend.compiled_loops import output_rows, run_over_blocks
from randkern.backend.cpu import bits_of_f32, cos_sin_half_turn_f32, f32_of_bits

# Distributions are types, so that loops are compiled only for those in use. Each holds
# the last word of its counters, which must never be renumbered.
_Normal = namedtuple("_Normal", "stream")
_Cauchy = namedtuple("_Cauchy", "stream")
_Laplace = namedtuple("_Laplace", "stream")
_Uniform = namedtuple("_Uniform", "stream")
_Sign = namedtuple("_Sign", "stream")

DISTRIBUTIONS: dict[str, Any] = {
    "normal": _Normal(0),
    "cauchy": _Cauchy(1),
    "laplace": _Laplace(2),
    "uniform": _Uniform(3),
    "sign": _Sign(4),
}

_LANES = 16  # counters per vector
_BLOCK = 4 * _LANES  # columns of one block
_HALF_BLOCK = 2 * _LANES
_TILE = 16 * _BLOCK  # columns generated at a time, in the L1 cache
_HALF_TILE = _TILE // 2
_NANOSECONDS_PER_ENTRY = 2.0

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

_TWO_TO_MINUS_32 = np.float32(2.0**-32)
_TWO_TO_MINUS_31 = np.float32(2.0**-31)
_TWO_TO_MINUS_24 = np.float32(2.0**-24)
_ONE = np.float32(1.0)
_SIGN_BIT = np.int32(-(2**31))
_NOT_SIGN = np.int32(2**31 - 1)
_ONE_BITS = np.int32(0x3F800000)
_MINUS_HALF = np.float32(-0.5)
_MINUS_TWO = np.float32(-2.0)
_LN2 = np.float32(math.log(2.0))

# log(1 + f) = f - f^2/2 + f^3 P(f), minimax for sqrt(1/2) <= 1 + f <= sqrt(2);
# relative error 5.8e-9. Lowest powers come first.
_P0, _P1, _P2, _P3 = np.array(
    [0.333333317077, -0.250008210339, 0.200012268802, -0.166233573597], np.float32
)
_P4, _P5, _P6, _P7 = np.array(
    [0.142017579169, -0.131601821616, 0.127615775364, -0.07634497759], np.float32
)
_SQRT_HALF_BITS = np.int32(np.float32(math.sqrt(0.5)).view(np.int32))

# Python's division checks for zero, which keeps a loop scalar; NumPy's does not.
_inline = njit(forceinline=True, fastmath={"contract"}, error_model="numpy")


@_inline
def _log_f32(u):
    """Return log u of a normal float32 0 < u < inf; relative error 2e-7."""
    bits = bits_of_f32(u)
    # Numba widens integers to 64 bits; the casts keep them in 32-bit vectors.
    exponent = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> 23)
    f = f32_of_bits(bits - np.int32(exponent << 23)) - _ONE
    p = (((_P7 * f + _P6) * f + _P5) * f + _P4) * f + _P3
    p = ((p * f + _P2) * f + _P1) * f + _P0
    f2 = f * f
    y = (p * f) * f2 + _MINUS_HALF * f2
    return np.float32(exponent) * _LN2 + (f + y)


@_inline
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 on 32-bit words held in uint64."""
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _32) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _32) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@_inline
def _fill_words(counter, n_blocks, row, stream, k0, k1, words):
    """Write words 0 and 1 of each counter to the first half, 2 and 3 to the second."""
    c1 = row & _LOW
    c2 = row >> _32
    for block in range(n_blocks):
        start = block * _HALF_BLOCK
        for lane in range(_LANES):
            c0 = (counter + np.uint64(block * _LANES + lane)) & _LOW
            w0, w1, w2, w3 = philox(c0, c1, c2, stream, k0, k1)
            words[start + lane] = w0
            words[start + _LANES + lane] = w1
            words[_HALF_TILE + start + lane] = w2
            words[_HALF_TILE + start + _LANES + lane] = w3


@_inline
def _transform_normal(words, n, values):
    """Apply Box-Muller: a radius from one word, an angle from another."""
    for i in range(n):
        u = (np.float32(words[i]) + _ONE) * _TWO_TO_MINUS_32
        radius = math.sqrt(_MINUS_TWO * _log_f32(u))
        # The low 31 bits are a signed fraction of a half turn; the top bit selects
        # the half.
        word = np.int32(words[_HALF_TILE + i])
        fraction = np.float32(np.int32(word << 1)) * _TWO_TO_MINUS_32
        cosine, sine = cos_sin_half_turn_f32(fraction)
        radius = f32_of_bits(bits_of_f32(radius) | (word & _SIGN_BIT))
        values[i] = radius * cosine
        values[_HALF_TILE + i] = radius * sine


@_inline
def _transform_cauchy(words, n, values):
    for i in range(_HALF_TILE + n):
        # Odd, so never 0, and exact near 0, where the value is large.
        fraction = (
            np.float32(np.int32(np.int32(words[i]) | np.int32(1))) * _TWO_TO_MINUS_32
        )
        cosine, sine = cos_sin_half_turn_f32(fraction)
        values[i] = cosine / sine


@_inline
def _transform_laplace(words, n, values):
    for i in range(_HALF_TILE + n):
        word = np.int32(words[i])
        u = (np.float32(np.int32(word & _NOT_SIGN)) + _ONE) * _TWO_TO_MINUS_31
        log = bits_of_f32(_log_f32(u))
        values[i] = f32_of_bits(log ^ (word & _SIGN_BIT))


@_inline
def _transform_uniform(words, n, values):
    for i in range(_HALF_TILE + n):
        values[i] = np.float32(np.int32(words[i] >> 8)) * _TWO_TO_MINUS_24


@_inline
def _transform_sign(words, n, values):
    for i in range(_HALF_TILE + n):
        sign = np.int32(words[i]) & _SIGN_BIT
        values[i] = f32_of_bits(_ONE_BITS | sign)


_TRANSFORMS = {
    _Normal: _transform_normal,
    _Cauchy: _transform_cauchy,
    _Laplace: _transform_laplace,
    _Uniform: _transform_uniform,
    _Sign: _transform_sign,
}


def _transform(distribution, words, n, values):
    """Transform the first n words of both halves to values of the distribution."""
    raise NotImplementedError("_transform is for compiled code.")


@overload(_transform, jit_options={"forceinline": True})
def _overload_transform(distribution, words, n, values):
    transform = _TRANSFORMS[distribution.instance_class]
    return lambda distribution, words, n, values: transform(words, n, values)


@njit(nogil=True, cache=True)
def fill_entries(key, distribution, row_start, col_start, out, stride, n_rows, n_cols):
    """Write entries of a random matrix to a flat array with rows `stride` apart."""
    words = np.zeros(_TILE, dtype=np.uint32)
    values = np.empty(_TILE, dtype=np.float32)
    k0 = key & _LOW
    k1 = key >> _32
    stream = np.uint64(distribution.stream) & _LOW
    for i in range(n_rows):
        row = np.uint64(row_start + i)
        # Columns 0-31 of a tile's blocks are in its first half, 32-63 in the second.
        for first in range(0, n_cols + col_start % _BLOCK, _TILE):
            start = first - col_start % _BLOCK  # in columns of out, may be < 0
            n_blocks = min(_TILE // _BLOCK, (n_cols - start + _BLOCK - 1) // _BLOCK)
            counter = np.uint64((col_start + start) // 4)
            _fill_words(counter, n_blocks, row, stream, k0, k1, words)
            _transform(distribution, words, n_blocks * _HALF_BLOCK, values)
            for half in range(2 * n_blocks):
                source = half // 2 * _HALF_BLOCK + half % 2 * _HALF_TILE
                target = start + half * _HALF_BLOCK
                begin = max(-target, 0)
                end = min(n_cols - target, _HALF_BLOCK)
                target += i * stride
                for j in range(begin, end):
                    out[np.uint64(target + j)] = values[np.uint64(source + j)]


def random_matrix(
    key: int,
    distribution: str,
    row_start: int,
    row_stop: int,
    col_start: int,
    col_stop: int,
    dtype: np.dtype | type = np.float32,
) -> np.ndarray:
    """Return a rectangle of an infinite random matrix of independent entries.

    Entry (i, j) is a function of (key, distribution, i, j): overlapping rectangles
    agree bit for bit, with any number of threads. Different keys, 0 <= key < 2^64, and
    different distributions under one key give independent matrices. Row indices are
    below 2^63, columns go up to 2^34. Values are computed in float32, also with
    ``dtype=np.float64``.

    The distributions are "normal", N(0, 1) by Box-Muller, |x| <= 6.66; "cauchy",
    cot(pi v); "laplace", of density exp(-|x|)/2; "uniform" on [0, 1), in steps of
    2^-24; and "sign", +1 or -1.
    """
    if distribution not in DISTRIBUTIONS:
        names = sorted(DISTRIBUTIONS)
        raise ValueError(f"distribution must be one of {names}, got {distribution!r}.")
    if not 0 <= key < 2**64:
        raise ValueError(f"key must be between 0 and 2**64 - 1, got {key}.")
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    if row_start < 0 or col_start < 0 or col_stop > 2**34:
        raise ValueError(
            "The rectangle must start at or after (0, 0) and end by column 2**34, got "
            f"rows {row_start} to {row_stop} and columns {col_start} to {col_stop}."
        )
    shape = (max(row_stop - row_start, 0), max(col_stop - col_start, 0))
    out = np.empty(shape, dtype=dtype)
    if out.size == 0:
        return out
    key_word, entries = np.uint64(key), DISTRIBUTIONS[distribution]

    def task(rows: slice, columns: slice) -> None:
        part = out[rows, columns]
        row, column = row_start + rows.start, col_start + columns.start
        values, stride = output_rows(part)
        fill_entries(key_word, entries, row, column, values, stride, *part.shape)

    run_over_blocks(task, out.shape, _NANOSECONDS_PER_ENTRY * out.size, _TILE)
    return out
