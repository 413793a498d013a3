"""The compiled driver of the Hadamard features: load, transform, store.

An item of work is one tile (up to a vector of rows of X) and one block of p rows
of the projection; items are ordered by tile. Every item is computed by the same
instructions wherever the ranges are cut, so that the bits do not depend on it.

The helpers are inlined before they are compiled, which compiles everything once.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from randkern.backend import hadamard_transform as transform
from randkern.backend import hadamard_vectors as vectors
from randkern.backend.trig import cos_sin, float_to_bits

__all__ = ["COSINES", "MODULUS", "PAIRS", "PROJECT", "SEGMENT", "compute_features"]

PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3

# Columns that are turned to row order, and made features, at a time.
SEGMENT = 64


@njit(inline="always")
def _load(
    parts: tuple[int, ...],
    rows: Any,
    first: int,
    n_rows: int,
    j: int,
    at: int,
    masks: np.ndarray,
    tile: np.ndarray,
    tail: np.ndarray,
) -> None:
    """Write columns j on of some rows of X, scaled and with the signs S1, to a tile.

    They are as many as a vector has lanes, and go to the tile's vectors from `at` on.
    """
    X, pitch, d, scale = rows
    width = 64 // tile.itemsize
    for part in range(len(parts)):
        if j + width <= d:
            vectors.load_columns(
                X, first * pitch + j, pitch, n_rows, scale, j,
                masks, at + parts[part], tile, at + parts[part],
            )
        elif j < scale.shape[0]:
            # The last columns, with zeros after them and the bias's one.
            for i in range(n_rows):
                source = (first + i) * pitch + j
                vectors.copy_elements(X, source, tail, i * width, d - j)
            vectors.load_columns(
                tail, np.int64(0), width, n_rows, scale, j,
                masks, at + parts[part], tile, at + parts[part],
            )
        else:
            vectors.clear_vectors(tile, at + parts[part])


def _emit(
    parts: tuple[int, ...],
    kind: int,
    values: np.ndarray,
    norms: np.ndarray,
    phases: np.ndarray,
    weight: float,
    parameter: float,
    line: np.ndarray,
    place: Any,
    outs: Any,
) -> None:
    """Make features of a segment of some rows and store them (compiled code only).

    `place` tells how many rows there are, which of the 64 columns are wanted, first
    and last + 1, and where they go: the first element of both outputs, and their
    pitches. The parameter is the limit of the fast cosine or the power of a modulus.
    """
    raise NotImplementedError


@overload(_emit)
def _overload_emit(
    parts, kind, values, norms, phases, weight, parameter, line, place, outs
) -> Callable[..., None]:
    return _emit_real if parts.count == 1 else _emit_unitary


def _emit_real(
    parts, kind, values, norms, phases, weight, parameter, line, place, outs
) -> None:
    n_rows, begin, end, at, _, pitch, _ = place
    each = 2 if kind == PAIRS else 1
    limit = float_to_bits(parameter)
    magnitude = type(limit)(~float_to_bits(-type(weight)(0)))
    for i in range(n_rows):
        # The largest phase as an integer, whose order is that of the magnitudes,
        # with nan on top: a floating-point maximum would not vectorise.
        largest = type(limit)(0)
        if kind == PROJECT:
            for j in range(SEGMENT):
                line[j] = norms[j] * values[i, j]
        else:
            for j in range(SEGMENT):
                phase = norms[j] * values[i, j] + phases[j]
                bits = type(limit)(float_to_bits(phase) & magnitude)
                largest = bits if bits > largest else largest
                cosine, sine = cos_sin(phase)
                line[2 * j] = weight * cosine
                line[2 * j + 1] = weight * sine
        if largest > limit:
            for j in range(SEGMENT):
                phase = norms[j] * values[i, j] + phases[j]
                if not abs(phase) <= parameter:
                    line[2 * j] = weight * type(weight)(math.cos(np.float64(phase)))
                    line[2 * j + 1] = weight * type(weight)(math.sin(np.float64(phase)))
        if kind == COSINES:
            for j in range(SEGMENT):
                line[j] = line[2 * j]
        vectors.copy_elements(
            line, each * begin, outs[0], at + i * pitch, each * (end - begin)
        )


def _emit_unitary(
    parts, kind, values, norms, phases, weight, parameter, line, place, outs
) -> None:
    n_rows, begin, end, at, at_imag, pitch, pitch_imag = place
    half = type(weight)(0.5) * parameter
    for i in range(n_rows):
        if kind == PROJECT:
            for j in range(SEGMENT):
                line[j] = norms[j] * values[i, j]
                line[SEGMENT + j] = norms[j] * values[vectors.ROWS + i, j]
            vectors.copy_elements(
                line, SEGMENT + begin, outs[1], at_imag + i * pitch_imag, end - begin
            )
        else:
            for j in range(SEGMENT):
                real = norms[j] * values[i, j]
                imag = norms[j] * values[vectors.ROWS + i, j]
                line[j] = real * real + imag * imag
            if parameter == 1:
                for j in range(SEGMENT):
                    line[j] = weight * math.sqrt(line[j])
            elif parameter == 2:
                for j in range(SEGMENT):
                    line[j] = weight * line[j]
            elif parameter == 3:
                for j in range(SEGMENT):
                    line[j] = weight * (line[j] * math.sqrt(line[j]))
            elif parameter == 4:
                for j in range(SEGMENT):
                    line[j] = weight * (line[j] * line[j])
            else:
                for j in range(SEGMENT):
                    line[j] = weight * line[j] ** half
        vectors.copy_elements(line, begin, outs[0], at + i * pitch, end - begin)


@njit(inline="always")
def _store(
    parts: tuple[int, ...],
    kind: int,
    at: int,
    column: int,
    begin: int,
    end: int,
    first: int,
    n_rows: int,
    features: Any,
    scratch: Any,
) -> None:
    """Make features of a segment from vector `at` of a tile on, and store some.

    Of the 64 columns from `column` on, those from `begin` to `end` are wanted.
    """
    norms, phases, weight, parameter, outs, pitches = features
    tile, _, values, line, _ = scratch
    width = 64 // tile.itemsize
    for part in range(len(parts)):
        for i in range(SEGMENT // width):
            vectors.store_columns(
                tile, at + parts[part] + i * vectors.ROWS,
                values, part * vectors.ROWS * SEGMENT + i * width, SEGMENT,
            )
    shift = (2 if kind == PAIRS else 1) * (column + begin)
    place = (
        *(n_rows, begin, end),
        *(first * pitches[0] + shift, first * pitches[1] + shift),
        *(pitches[0], pitches[1]),
    )
    # A segment may start up to 63 rows before the first that is wanted.
    norms, phases = norms[SEGMENT + column :], phases[SEGMENT + column :]
    _emit(parts, kind, values, norms, phases, weight, parameter, line, place, outs)


@njit(inline="always")
def _transform(
    parts: tuple[int, ...],
    first: int,
    n_rows: int,
    low: int,
    high: int,
    p: int,
    rows: Any,
    schedule: Any,
    scratch: Any,
) -> None:
    """Compute rows `low` to `high` - 1 of a block for a tile, whose signs are drawn."""
    _, pads, visits, operations = schedule
    tile, masks, _, _, tail = scratch
    group = 16 // tile.itemsize
    first_vector, last_vector = low // group, (high - 1) // group
    for j in range(0, p // group, vectors.ROWS):
        at = transform.tile_vector(j, pads)
        _load(parts, rows, first, n_rows, j * group, at, masks, tile, tail)
    for v in range(visits.shape[0]):
        bottom, above, columns = visits[v, 0], visits[v, 1], visits[v, 2]
        unit = transform.tile_vector(np.int64(1) << bottom, pads)
        begin, end = np.int64(0), p // group >> above
        if operations[visits[v, 3], 3] == 1:
            begin, end = first_vector >> above, (last_vector >> above) + 1
        for outer in range(begin, end):
            for inner in range(0, 1 << bottom, columns):
                start = transform.tile_vector((outer << above) + inner, pads)
                transform.run_panel(
                    parts, schedule, v, outer, start, unit,
                    first_vector, last_vector, masks, tile,
                )


@njit(nogil=True, cache=True, no_cfunc_wrapper=True, _nrt=False)
def compute_features(
    parts: tuple[int, ...],
    items: tuple[int, int, int],
    kind: int,
    rows: Any,
    draws: Any,
    features: Any,
    schedule: Any,
    scratch: Any,
) -> None:
    """Run some items of a projection.

    Parameters
    ----------
    parts : tuple of int
        (0,) for real blocks; (0, number of vectors of a tile) for unitary ones.
    items : tuple of three int
        First item, last + 1, and rows of X an item. Item i is chunk i // n_blocks of
        the rows and block first_block + i % n_blocks.
    kind : int
        PROJECT, PAIRS, COSINES or MODULUS.
    rows : tuple
        X, flat; its number of rows, pitch (row r starts at r·pitch) and number of
        columns; what multiplies the columns, with zeros up to whole vectors, after
        that of the bias's one.
    draws : tuple
        The key, first row of the projection and last + 1, and p.
    features : tuple
        Norms and phases, from 64 rows before the first one that is wanted to 64
        after the last; the weight; the limit of the fast cosine, or the power; two
        outputs, flat (the second takes imaginary parts), and their two pitches.
    schedule : Schedule
    scratch : tuple of ndarray
        Tile, masks of signs, a segment, a line, the last columns of X (zeros, and
        ones for the bias).
    """
    tile, masks, _, _, _ = scratch
    key, row_start, row_stop, p = draws
    X, n, pitch, d, scale = rows
    n_vectors, pads, _, _ = schedule
    group = 16 // tile.itemsize
    first_block = row_start // p
    n_blocks = (row_stop - 1) // p - first_block + 1
    for item in range(items[0], items[1]):
        block = first_block + item % n_blocks
        low = row_start - block * p if row_start > block * p else 0
        high = row_stop - block * p if row_stop < (block + 1) * p else p
        transform.draw_signs(parts, masks, n_vectors, key, block, p, group, pads, tile)
        chunk = item // n_blocks * items[2]
        chunk_stop = chunk + items[2] if chunk + items[2] < n else n
        for first in range(chunk, chunk_stop, vectors.ROWS):
            n_rows = chunk_stop - first
            n_rows = n_rows if n_rows < vectors.ROWS else vectors.ROWS
            _transform(
                parts, first, n_rows, low, high, p,
                (X, pitch, d, scale), schedule, scratch,
            )
            for j in range(low - low % SEGMENT, high, SEGMENT):
                _store(
                    parts, kind, transform.tile_vector(j // group, pads),
                    block * p + j - row_start, low - j if low > j else 0,
                    high - j if high - j < SEGMENT else SEGMENT, first, n_rows,
                    features, scratch,
                )
