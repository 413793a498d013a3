"""The compiled driver of the Hadamard features: load, transform, store.

An item of work is one tile (up to a vector of rows of X) and one block of p rows
of the projection; items are ordered by tile. Every item is computed by the same
instructions wherever the ranges are cut, so that the bits do not depend on it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from randkern.backend import hadamard_transform as transform
from randkern.backend import hadamard_vectors as vectors
from randkern.backend.trig import cos_sin

__all__ = ["COSINES", "MODULUS", "PAIRS", "PROJECT", "SEGMENT", "compute_features"]

PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3

# Columns that are turned to row order, and made features, at a time.
SEGMENT = 64


@njit
def _load(
    X: np.ndarray,
    at: int,
    pitch: int,
    n_lanes: int,
    width: int,
    scale: np.ndarray,
    bias: float,
    tile: np.ndarray,
    p: int,
    pads: np.ndarray,
) -> None:
    """Write scaled rows of X, the bias entry and the zero padding to a tile."""
    d = scale.shape[0]
    done = d - d % width if n_lanes == width else 0
    for j in range(0, done, width):
        row = transform.tile_row(j, pads)
        vectors.load_transposed(X, at + j, pitch, scale, j, tile, row)
    row = transform.tile_row(done, pads)
    vectors.clear_rows(tile, row, transform.tile_row(p - 1, pads) + 1 - row)
    for j in range(done, d + (bias != 0)):
        row = transform.tile_row(j, pads) * width
        for i in range(n_lanes):
            tile[row + i] = X[at + i * pitch + j] * scale[j] if j < d else bias


# The sum may be taken in any order: a looser bound costs time, never a bit.
@njit(fastmath={"reassoc"})
def _sum_of_squares(tile: np.ndarray, n: int) -> float:
    total = tile[0] * tile[0]
    for i in range(1, n):
        total += tile[i] * tile[i]
    return total


def _emit(
    parts: tuple[int, ...],
    kind: int,
    values: np.ndarray,
    n_lanes: int,
    norms: np.ndarray,
    phases: np.ndarray,
    weight: float,
    parameter: float,
    far: bool,
    out: np.ndarray,
    offset: int,
    pitch: int,
) -> None:
    """Make features of one segment of projections, in row order (compiled only).

    The parameter is the limit of the fast cosine, which matters if some phase may
    be `far`, or the power of a modulus.
    """
    raise NotImplementedError


@overload(_emit)
def _overload_emit(
    parts, kind, values, n_lanes, norms, phases, weight, parameter, far, out, offset,
    pitch,
) -> Callable[..., None]:  # fmt: skip
    return _emit_real if parts.count == 1 else _emit_unitary


def _emit_real(
    parts, kind, values, n_lanes, norms, phases, weight, parameter, far, out, offset,
    pitch,
) -> None:  # fmt: skip
    for i in range(n_lanes):
        # Slices: an index that might be negative would keep the loops scalar.
        x = values[i * SEGMENT : (i + 1) * SEGMENT]
        z = out[offset + i * pitch : offset + i * pitch + 2 * SEGMENT]
        if kind == PROJECT:
            for j in range(SEGMENT):
                z[j] = norms[j] * x[j]
        elif kind == PAIRS:
            for j in range(SEGMENT):
                cosine, sine = cos_sin(norms[j] * x[j])
                z[2 * j] = weight * cosine
                z[2 * j + 1] = weight * sine
        else:
            for j in range(SEGMENT):
                cosine, _ = cos_sin(norms[j] * x[j] + phases[j])
                z[j] = weight * cosine
        if far:
            _emit_far(kind, x, norms, phases, weight, parameter, z)


@njit
def _emit_far(
    kind: int,
    x: np.ndarray,
    norms: np.ndarray,
    phases: np.ndarray,
    weight: float,
    limit: float,
    z: np.ndarray,
) -> None:
    """Redo those cosines and sines that the polynomials do not reach."""
    for j in range(SEGMENT):
        phase = norms[j] * x[j]
        if kind == COSINES:
            phase += phases[j]
        if not abs(phase) <= limit:
            cosine = weight * type(weight)(math.cos(np.float64(phase)))
            if kind == COSINES:
                z[j] = cosine
            else:
                z[2 * j] = cosine
                z[2 * j + 1] = weight * type(weight)(math.sin(np.float64(phase)))


def _emit_unitary(
    parts, kind, values, n_lanes, norms, phases, weight, parameter, far, out, offset,
    pitch,
) -> None:  # fmt: skip
    n = values.shape[0] // 2
    for i in range(n_lanes):
        x = values[i * SEGMENT : (i + 1) * SEGMENT]
        z = out[offset + i * pitch : offset + i * pitch + SEGMENT]
        if kind == PROJECT:
            for j in range(SEGMENT):
                z[j] = norms[j] * x[j]
            continue
        y = values[n + i * SEGMENT : n + (i + 1) * SEGMENT]
        for j in range(SEGMENT):
            real, imag = norms[j] * x[j], norms[j] * y[j]
            z[j] = real * real + imag * imag
        if parameter == 1:
            for j in range(SEGMENT):
                z[j] = weight * math.sqrt(z[j])
        elif parameter == 2:
            for j in range(SEGMENT):
                z[j] = weight * z[j]
        elif parameter == 3:
            for j in range(SEGMENT):
                z[j] = weight * (z[j] * math.sqrt(z[j]))
        elif parameter == 4:
            for j in range(SEGMENT):
                z[j] = weight * (z[j] * z[j])
        else:
            half = type(weight)(0.5) * parameter
            for j in range(SEGMENT):
                z[j] = weight * z[j] ** half


@njit(nogil=True, cache=True, no_cfunc_wrapper=True)
def compute_features(
    parts: tuple[int, ...],
    items: tuple[int, int],
    X: np.ndarray,
    pitch: int,
    n: int,
    scale: np.ndarray,
    bias: float,
    key: np.uint64,
    draws: tuple[int, int],
    norms: np.ndarray,
    phases: np.ndarray,
    schedule: Any,
    scratch: Any,
    bound: float,
    kind: int,
    weight: float,
    parameter: float,
    outs: tuple[np.ndarray, np.ndarray],
    out_pitches: tuple[int, int],
) -> None:
    """Run some items of a projection.

    Parameters
    ----------
    parts : tuple of int
        (0,) for real blocks; (0, number of tile rows) for unitary ones.
    items : tuple of two int
        First item, last + 1. Item i is tile i // n_blocks, block first_block + i %
        n_blocks.
    X, pitch, n : ndarray (flat), int, int
        Row r starts at r·pitch, r < n.
    scale, bias : ndarray of shape (d,), float
        What multiplies the columns, and the entry to append (0: none).
    key, draws : uint64, tuple of two int
        The random stream, and the first row of the projection, last + 1.
    norms, phases : ndarray
        One a row of the projection, from the first that is wanted; the phases are
        for COSINES only.
    schedule : tuple
        p, pads, visits and operations of a :class:`Schedule`.
    scratch : tuple of seven ndarray
        Source, tile, signs, segment, features of a segment, its norms, its phases.
    bound : float
        The norm of the scaled rows of a tile times this bounds their phases.
    kind : int
        PROJECT, PAIRS, COSINES or MODULUS.
    weight, parameter : float
        What multiplies the features; the limit of the fast cosine, or the power.
    outs, out_pitches : tuple of two ndarray (flat), tuple of two int
        Row r of the features starts at r·pitch; the second takes the imaginary
        parts.
    """
    p, pads, visits, _ = schedule
    source, tile, signs, values, features, some_norms, some_phases = scratch
    width = 64 // X.itemsize
    row_start, row_stop = draws
    first_block = row_start // p
    n_blocks = (row_stop - 1) // p - first_block + 1
    loaded, far = -1, False
    for item in range(items[0], items[1]):
        first = item // n_blocks * width
        n_lanes = n - first if n - first < width else width
        block = first_block + item % n_blocks
        if n_blocks == 1 or loaded != first:
            _load(X, first * pitch, pitch, n_lanes, width, scale, bias, source, p, pads)
            loaded = first
            if kind == PAIRS or kind == COSINES:
                squares = _sum_of_squares(source, source.shape[0])
                far = not bound * math.sqrt(squares) <= parameter
        low, high = row_start - block * p, row_stop - block * p
        low = 0 if low < 0 else low
        high = p if high > p else high
        n_columns = 2 if kind == PAIRS else 1
        for v in range(visits.shape[0]):
            if visits[v, 5] >= 0:
                transform.draw_signs(parts, signs, key, block, visits[v, 5], p, pads)
            _, _, _, operations = schedule
            bottom, above = visits[v, 0], visits[v, 0] + visits[v, 1]
            unit = transform.tile_row(np.int64(1) << bottom, pads)
            begin, end = np.int64(0), p >> above
            if operations[visits[v, 3], 3] == 1:
                begin, end = low >> above, ((high - 1) >> above) + 1
            for outer in range(begin, end):
                for inner in range(0, 1 << bottom, visits[v, 2]):
                    at = transform.tile_row((outer << above) + inner, pads)
                    transform.run_panel(
                        parts, schedule, v, outer, at, unit, low, high - 1, source,
                        signs, tile,
                    )  # fmt: skip
                if v < visits.shape[0] - 1:
                    continue
                at = transform.tile_row(outer << above, pads)
                for k in range(0, 1 << above, SEGMENT):
                    j = (outer << above) + k
                    begin_k = low - j if low > j else 0
                    end_k = high - j if high - j < SEGMENT else SEGMENT
                    if begin_k >= end_k:
                        continue
                    column = block * p + j - row_start
                    for i in range(begin_k, end_k):
                        some_norms[i] = norms[column + i]
                        some_phases[i] = phases[column + i] if kind == COSINES else 0
                    for part in range(len(parts)):
                        for i in range(0, SEGMENT, width):
                            vectors.store_transposed(
                                tile, parts[part] + at + k + i, values,
                                part * SEGMENT * width + i, SEGMENT,
                            )  # fmt: skip
                    for part in range(len(parts) if kind == PROJECT else 1):
                        place = first * out_pitches[part] + n_columns * column
                        target, offset = outs[part], place
                        target_pitch = out_pitches[part]
                        whole = end_k - begin_k == SEGMENT
                        if not whole:
                            # The same loops on a whole segment, for the same bits.
                            target, offset, target_pitch = features, 0, 2 * SEGMENT
                        _emit(
                            parts, kind, values[part * SEGMENT * width :], n_lanes,
                            some_norms, some_phases, weight, parameter, far, target,
                            offset, target_pitch,
                        )  # fmt: skip
                        if not whole:
                            for i in range(n_lanes):
                                for c in range(n_columns * begin_k, n_columns * end_k):
                                    outs[part][place + i * out_pitches[part] + c] = (
                                        features[i * 2 * SEGMENT + c]
                                    )
