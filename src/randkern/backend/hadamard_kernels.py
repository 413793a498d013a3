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
from randkern.backend.trig import cos_sin, cos_sin_wide, is_fast

# What is made of a projection; MODULUS + m is the m-th power of the modulus.
PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3
# Columns of a projection that become features at a time: those of the least block.
CHUNK = 64


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


@njit(nogil=True)
def _cos_sin(angles: np.ndarray, weight: Any, limit: Any, out: np.ndarray) -> None:
    """Write weighted cosines and sines, interleaved."""
    for j in range(CHUNK):
        cosine, sine = cos_sin(angles[j])
        out[2 * j] = weight * cosine
        out[2 * j + 1] = weight * sine
    if not is_fast(angles):
        for j in range(CHUNK):
            if not abs(angles[j]) <= limit:
                cosine, sine = cos_sin_wide(angles[j])
                out[2 * j], out[2 * j + 1] = weight * cosine, weight * sine


@njit(inline="always")
def _cosines(angles: np.ndarray, weight: Any, limit: Any, out: np.ndarray) -> None:
    """Write weighted cosines."""
    for j in range(CHUNK):
        out[j] = weight * cos_sin(angles[j])[0]
    if not is_fast(angles):
        for j in range(CHUNK):
            if not abs(angles[j]) <= limit:
                out[j] = weight * cos_sin_wide(angles[j])[0]


@njit(inline="always")
def _moduli(x: np.ndarray, y: np.ndarray, power: int, weight: Any, out: Any) -> None:
    """Write weighted powers of moduli; `power` is 1, 2, 3 or 4."""
    for j in range(CHUNK):
        square = x[j] * x[j] + y[j] * y[j]
        if power == 1:
            out[j] = weight * math.sqrt(square)
        elif power == 2:
            out[j] = weight * square
        elif power == 3:
            out[j] = weight * (square * math.sqrt(square))
        else:
            out[j] = weight * (square * square)


@njit(inline="always")
def _store(
    parts: tuple[int, ...],
    kind: int,
    column: int,
    begin: int,
    end: int,
    first: int,
    n_rows: int,
    results: Any,
    projected: np.ndarray,
) -> None:
    """Make features of CHUNK projections of each row, and store some of them.

    Of the columns from `column` on, those from `begin` to `end` are wanted. All are
    computed, so that the bits of what is wanted do not depend on the range.
    """
    _, phases, weight, limit, outs, pitches = results
    each = 2 if kind == PAIRS else 1
    made = projected[2 * vectors.ROWS * CHUNK :]
    for r in range(n_rows):
        x = projected[r * CHUNK : (r + 1) * CHUNK]
        y = projected[(vectors.ROWS + r) * CHUNK : (vectors.ROWS + r + 1) * CHUNK]
        to = (first + r) * pitches[0] + each * column
        out = made
        if end - begin == CHUNK:
            out = outs[0][to : to + each * CHUNK]
        if kind == PROJECT:
            vectors.copy_elements(x, begin, outs[0], to + begin, end - begin)
            if len(parts) == 2:
                to = (first + r) * pitches[1] + column
                vectors.copy_elements(y, begin, outs[1], to + begin, end - begin)
        elif kind == PAIRS:
            _cos_sin(x, weight, limit, out)
        elif kind == COSINES:
            shift = phases[CHUNK + column : 2 * CHUNK + column]
            for j in range(CHUNK):
                x[j] += shift[j]
            _cosines(x, weight, limit, out)
        else:
            _moduli(x, y, kind - MODULUS, weight, out)
        if kind != PROJECT and end - begin < CHUNK:
            wanted = each * (end - begin)
            start = each * begin
            vectors.copy_elements(made, start, outs[0], to + start, wanted)


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
        Norms and phases, from CHUNK rows before the first that is wanted to as many
        after the last; the weight; the limit of the fast cosine; two outputs, flat
        (the second takes imaginary parts), and their two pitches.
    schedule : Schedule
    scratch : tuple of ndarray
        Tile; masks of signs; the last columns of X (zeros, and ones for the bias);
        CHUNK projections of ROWS rows, their imaginary parts, and features of one.
    """
    tile, masks, _, projected = scratch
    norms = results[0]
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
            for j in range(low - low % CHUNK, high, CHUNK):
                column = block * p + j - row_start
                for i in range(0, CHUNK, width):
                    vector = transform.tile_vector((j + i) // group, pads)
                    vectors.project_rows(
                        parts, tile, vector, norms, CHUNK + column + i,
                        projected, i, CHUNK,
                    )  # fmt: skip
                begin = low - j if low > j else 0
                end = high - j if high - j < CHUNK else CHUNK
                _store(
                    parts, kind, column, begin, end, first, n_rows, results, projected
                )
