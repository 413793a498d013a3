"""The compiled driver of the Hadamard features: load, transform, store.

An item of work is one tile of X, or a few, and one block of p rows of the projection;
those of the same rows of X follow one another. Every feature is computed by the same
instructions wherever the ranges are cut, so that the bits do not depend on it.

The helpers are inlined before they are compiled, which compiles everything once.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from randkern.backend import hadamard_transform as transform
from randkern.backend import hadamard_vectors as vectors
from randkern.backend.hadamard_features import PAIRS, PROJECT, store_features

__all__ = ["compute_features"]


@njit(inline="always")
def _load(
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
    if j >= scale.shape[0]:
        vectors.clear_vectors(tile, at)
        return
    source, start, apart = X, first * pitch + j, pitch
    if j + width > d:
        # The last columns, with zeros after them and the bias's one.
        for i in range(n_rows):
            vectors.copy_elements(X, start + i * pitch, tail, i * width, d - j)
        source, start, apart = tail, np.int64(0), width
    vectors.load_columns(
        source, start, apart, n_rows, scale, j, masks, at, tile, at
    )  # fmt: skip


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
    results: Any,
    scratch: Any,
) -> None:
    """Make features of ROWS vectors of a tile, and store some of them.

    Of the columns from `column` on, those from `begin` to `end` are wanted.
    """
    norms, phases, weight, limit, outs, pitches = results
    tile, _, _, corner = scratch
    width = 64 // tile.itemsize
    each = 2 if kind == PAIRS else 1
    place = first * pitches[0] + each * column
    place_imag = first * pitches[1] + column
    # Norms and phases start `width` before the first row that is wanted.
    shift = width + column
    zero, pitch = np.int64(0), 2 * width
    half = vectors.ROWS * pitch
    to_corner = ((corner, corner), (zero, half), (pitch, pitch))
    direct = n_rows == vectors.ROWS and end - begin == width
    # What is wanted of a part goes through a corner of the scratch: made by the same
    # instructions as the whole, it has the same bits.
    to = (outs, (place, place_imag), pitches) if direct else to_corner
    what, far = kind, np.int64(0)
    for attempt in range(2):
        far = store_features(
            parts, what, tile, at, norms, phases, shift, weight, limit,
            to[0], to[1], to[2],
        )  # fmt: skip
        if attempt == 0 and not direct:
            for i in range(n_rows):
                vectors.copy_elements(
                    corner, pitch * i + each * begin, outs[0],
                    place + i * pitches[0] + each * begin, each * (end - begin),
                )  # fmt: skip
                if len(parts) == 2 and kind == PROJECT:
                    vectors.copy_elements(
                        corner, half + pitch * i + begin, outs[1],
                        place_imag + i * pitches[1] + begin, end - begin,
                    )  # fmt: skip
        if far == 0:
            break
        # Once more, for the phases of what the fast cosines do not reach.
        what, to = PROJECT, to_corner
    if what != kind:
        for i in range(n_rows):
            for j in range(begin, end):
                phase = corner[pitch * i + j] + phases[shift + j]
                if not abs(phase) <= limit:
                    target = place + i * pitches[0] + each * j
                    outs[0][target] = weight * type(weight)(math.cos(np.float64(phase)))
                    if kind == PAIRS:
                        sine = type(weight)(math.sin(np.float64(phase)))
                        outs[0][target + 1] = weight * sine


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
    tile, masks, tail, _ = scratch
    group = 16 // tile.itemsize
    first_vector, last_vector = low // group, (high - 1) // group
    for j in range(0, p // group, vectors.ROWS):
        at = transform.tile_vector(j, pads)
        _load(rows, first, n_rows, j * group, at, masks, tile, tail)
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
                    parts,
                    schedule,
                    v,
                    outer,
                    start,
                    unit,
                    first_vector,
                    last_vector,
                    masks,
                    tile,
                )


# Without reference counts (_nrt), which would be taken around every vector loop:
# the caller holds all arrays. Threads call this side by side, without the lock.
@njit(nogil=True, cache=True, no_cfunc_wrapper=True, _nrt=False)
def compute_features(
    parts: tuple[int, ...],
    items: tuple[int, int, int],
    kind: int,
    rows: Any,
    draws: Any,
    results: Any,
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
        PROJECT, PAIRS, COSINES, or MODULUS + 1, ..., MODULUS + 4 (the power).
    rows : tuple
        X, flat; its number of rows, pitch (row r starts at r·pitch) and number of
        columns; what multiplies the columns, with zeros up to whole vectors, after
        that of the bias's one.
    draws : tuple
        The key, first row of the projection and last + 1, and p.
    results : tuple
        Norms and phases, from as many rows before the first that is wanted as a
        vector has lanes, to as many after the last; the weight; the limit of the
        fast cosine; two outputs, flat (the second takes imaginary parts), and their
        two pitches.
    schedule : Schedule
    scratch : tuple of ndarray
        Tile; masks of signs; the last columns of X (zeros, and ones for the bias);
        place for ROWS vectors four times.
    """
    tile, masks, _, _ = scratch
    key, row_start, row_stop, p = draws
    X, n, pitch, d, scale = rows
    n_vectors, pads, _, _ = schedule
    width, group = 64 // tile.itemsize, 16 // tile.itemsize
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
                parts,
                first,
                n_rows,
                low,
                high,
                p,
                (X, pitch, d, scale),
                schedule,
                scratch,
            )
            for j in range(low - low % width, high, width):
                _store(
                    parts, kind, transform.tile_vector(j // group, pads),
                    block * p + j - row_start, low - j if low > j else 0,
                    high - j if high - j < width else width, first, n_rows,
                    results, scratch,
                )  # fmt: skip
