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
    j: int,
    width: int,
    signs: np.ndarray,
    tile: np.ndarray,
    pads: np.ndarray,
) -> None:
    """Write `width` columns of X from j on, scaled and with the signs S1, to a tile."""
    X, pitch, scale = rows
    for part in range(len(parts)):
        row = transform.tile_row(j, pads) + parts[part]
        if j < scale.shape[0]:
            at = first * pitch + j
            vectors.load_transposed(X, at, pitch, scale, j, signs, tile, row)
        else:
            vectors.clear_rows(tile, row)


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
    n_lanes, begin, end, at, _, pitch, _ = place
    each = 2 if kind == PAIRS else 1
    limit = float_to_bits(parameter)
    magnitude = type(limit)(~float_to_bits(-type(weight)(0)))
    for i in range(n_lanes):
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
    n_lanes, begin, end, at, at_imag, pitch, pitch_imag = place
    width = values.shape[0] // 2
    half = type(weight)(0.5) * parameter
    for i in range(n_lanes):
        if kind == PROJECT:
            for j in range(SEGMENT):
                line[j] = norms[j] * values[i, j]
                line[SEGMENT + j] = norms[j] * values[width + i, j]
            vectors.copy_elements(
                line, SEGMENT + begin, outs[1], at_imag + i * pitch_imag, end - begin
            )
        else:
            for j in range(SEGMENT):
                real, imag = norms[j] * values[i, j], norms[j] * values[width + i, j]
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
    row: int,
    column: int,
    begin: int,
    end: int,
    first: int,
    n_lanes: int,
    features: Any,
    scratch: Any,
) -> None:
    """Make features of a segment from tile row `row` on, and store some of them.

    Of the 64 columns from `column` on, those from `begin` to `end` are wanted.
    """
    norms, phases, weight, parameter, outs, pitches = features
    tile, _, values, line = scratch
    width = 64 // tile.itemsize
    for part in range(len(parts)):
        for i in range(0, SEGMENT, width):
            vectors.store_transposed(
                tile, row + parts[part] + i, values, part * width * SEGMENT + i, SEGMENT
            )
    at = (2 if kind == PAIRS else 1) * (column + begin)
    place = (
        *(n_lanes, begin, end),
        *(first * pitches[0] + at, first * pitches[1] + at, pitches[0], pitches[1]),
    )
    # A segment may start up to 63 rows before the first that is wanted.
    norms, phases = norms[SEGMENT + column :], phases[SEGMENT + column :]
    _emit(parts, kind, values, norms, phases, weight, parameter, line, place, outs)


@njit(nogil=True, cache=True, no_cfunc_wrapper=True, _nrt=False)
def compute_features(
    parts: tuple[int, ...],
    items: tuple[int, int],
    n: int,
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
        (0,) for real blocks; (0, number of tile rows) for unitary ones.
    items : tuple of two int
        First item, last + 1. Item i is tile i // n_blocks, block first_block + i %
        n_blocks.
    kind : int
        PROJECT, PAIRS, COSINES or MODULUS.
    rows : tuple
        X, flat, of whole tiles; its pitch (row r starts at r·pitch); what multiplies
        its columns, as many as a multiple of the vector.
    draws : tuple
        The key, and the first row of the projection, last + 1.
    n : int
        Number of rows of X in use.
    features : tuple
        Norms and phases, from 64 rows before the first one that is wanted to 64
        after the last; the weight; the limit of the fast cosine, or the power; two
        outputs, flat (the second takes imaginary parts), and their two pitches.
    schedule : tuple
        p, pads, visits and operations of a :class:`Schedule`.
    scratch : tuple of ndarray
        Tile, signs, two segments, two lines.
    """
    p, pads, visits, operations = schedule
    tile, signs, _, _ = scratch
    key, row_start, row_stop = draws
    width = 64 // tile.itemsize
    first_block = row_start // p
    n_blocks = (row_stop - 1) // p - first_block + 1
    for item in range(items[0], items[1]):
        first = item // n_blocks * width
        n_lanes = n - first if n - first < width else width
        block = first_block + item % n_blocks
        low = row_start - block * p if row_start > block * p else 0
        high = row_stop - block * p if row_stop < (block + 1) * p else p
        for v in range(visits.shape[0]):
            if visits[v, 5] >= 0:
                transform.draw_signs(parts, signs, key, block, visits[v, 5], p, pads)
            bottom, above, columns = visits[v, 0], visits[v, 1], visits[v, 2]
            unit = transform.tile_row(np.int64(1) << bottom, pads)
            stripe = columns if columns > width else width
            begin, end = np.int64(0), p >> above
            if operations[visits[v, 3], 3] == 1:
                begin, end = low >> above, ((high - 1) >> above) + 1
            for outer in range(begin, end):
                base = outer << above
                for inner in range(0, 1 << bottom, columns):
                    if v == 0 and inner % stripe == 0:
                        for i in range(inner, inner + stripe, width):
                            step = 1 << bottom if bottom > 0 else width
                            for j in range(i, p, step):
                                _load(parts, rows, first, j, width, signs, tile, pads)
                    transform.run_panel(
                        parts, schedule, v, outer, transform.tile_row(base + inner, pads),
                        unit, low, high - 1, signs, tile,
                    )  # fmt: skip
                if v < visits.shape[0] - 1:
                    continue
                for j in range(base, base + (1 << above), SEGMENT):
                    if j < high and j + SEGMENT > low:
                        _store(
                            parts, kind, transform.tile_row(j, pads),
                            block * p + j - row_start, low - j if low > j else 0,
                            high - j if high - j < SEGMENT else SEGMENT, first,
                            n_lanes, features, scratch,
                        )  # fmt: skip
