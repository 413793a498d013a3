"""Compiled kernels for Hadamard features: schedule, interpreter, driver.

A transform of 2^k vectors (and of the entries inside them) has k stages, one per bit of
the vector's index, in any order. Here consecutive bits form *steps* (a butterfly of
radix 4, 8 or 16, in registers) and consecutive steps form *groups*, small enough for
the L1 cache. The three transforms run through the bits down, up, and down again, so
that they meet once inside the vectors and once at the highest step, and all steps of a
group around a meeting point run while its *panel* (the vectors that differ in the
group's bits, a few columns wide) is in the cache. With two groups the tile is read four
times in all.

The last transform starts at the highest bits, so that it can be pruned to the requested
rows: later steps skip the blocks that hold none.

Real blocks are R H S3 H S2 H S1 with random signs in S1, S2, S3; unitary ones have
random phases (±1 ± i)/√2 in S2 and S3 instead, so that the first transform is real.
Nothing is normalised here: H has entries ±1 and the phases are ±1 ± i.

An item of work is one or a few tiles of X and one block of p rows of the projection;
items with the same rows of X are consecutive. Every feature is computed by the same
instructions wherever the ranges are cut, so its bits do not depend on them.

The helpers are inlined before they are compiled, which compiles everything once.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from randkern.backend import hadamard_vectors as vectors
from randkern.backend.cpu import cos_sin, cos_sin_wide, is_fast
from randkern.backend.hadamard_vectors import (
    SIGNS,
    SIGNS_WITHIN,
    expand_signs,
    panel_step,
)

# Below 64 rows a product of signs and transforms is visibly not Gaussian.
MIN_BLOCK = 64

# Largest numbers of bits of the lowest group, whose panel is 2^bits consecutive vectors
# (at most 16 KB), and of the others, and the smallest of these.
_MAX_LOW_BITS, _MAX_HIGH_BITS, _MIN_HIGH_BITS = 8, 7, 2
_PANEL_VECTORS = 256

Step = tuple[int, int]  # lowest bit, bit above
Operation = tuple[int, int, int, int, int]
Visit = tuple[int, int, int, int, int]


class Schedule(NamedTuple):
    """A program for the compiled interpreter, as tables of int64."""

    # Vectors per tile, including one of padding after every panel of each group:
    # otherwise panel rows would be a power of two apart and share a cache set.
    n_vectors: int
    # Vector v of the block is vector v + Σ (v >> pads[i]) of the tile.
    pads: np.ndarray
    # Lowest bit of the group, bit above it, columns of a panel, first operation and
    # last + 1.
    visits: np.ndarray
    # Action, lowest bit of the step, bit above it, whether it may be pruned, and the
    # number of its transform, or of its signs, of three.
    operations: np.ndarray


def _group_bits(k: int) -> tuple[int, ...]:
    """Split k bits into as few and as equal groups as possible, lowest first."""
    if k <= _MAX_LOW_BITS:
        return (k,)
    n_high = -(-(k - _MAX_LOW_BITS) // _MAX_HIGH_BITS)
    low = min(_MAX_LOW_BITS, k - _MIN_HIGH_BITS * n_high)
    return (low, *((k - low + i) // n_high for i in range(n_high)))


def _steps(first: int, bits: int) -> list[Step]:
    """Split the bits of a group into as few steps as possible."""
    split = [bits] if bits <= 4 else [bits // 2, bits - bits // 2]
    lows = [first + sum(split[:i]) for i in range(len(split))]
    return [(low, low + size) for low, size in zip(lows, split, strict=True)]


def _butterflies(steps: list[Step], transform: int) -> list[Operation]:
    # The action of a butterfly is its number of bits; the last transform is pruned.
    pruned = int(transform == 3)
    return [(above - low, low, above, pruned, transform) for low, above in steps]


@cache
def schedule(k: int) -> Schedule:
    """Return the program for tiles of 2^k vectors, k ≥ 4."""
    groups = _group_bits(k)
    top = len(groups) - 1
    lowest_bits = [sum(groups[:g]) for g in range(len(groups))]
    up = [_steps(low, bits) for low, bits in zip(lowest_bits, groups, strict=True)]
    down = [steps[::-1] for steps in up]

    visits: list[Visit] = []
    operations: list[Operation] = []

    def visit(g: int, actions: list[Operation]) -> None:
        columns = 1 if g == 0 else max(1, _PANEL_VECTORS >> groups[g])
        first = len(operations)
        operations.extend(actions)
        above = lowest_bits[g] + groups[g]
        visits.append((lowest_bits[g], above, columns, first, len(operations)))

    second = (SIGNS_WITHIN, groups[0], groups[0], 0, 2)
    third = (SIGNS, k, k, 0, 3)
    last = [*_butterflies(up[top], 2), third, *_butterflies(down[top], 3)]
    if top == 0:
        visit(0, [*_butterflies(down[0], 1), second, *last])
    else:
        for g in range(top, 0, -1):
            visit(g, _butterflies(down[g], 1))
        visit(0, [*_butterflies(down[0], 1), second, *_butterflies(up[0], 2)])
        for g in range(1, top):
            visit(g, _butterflies(up[g], 2))
        visit(top, last)
        for g in range(top - 1, -1, -1):
            visit(g, _butterflies(down[g], 3))
    return Schedule(
        n_vectors=(1 << k) + sum((1 << k) >> low for low in lowest_bits[1:]),
        pads=np.array(lowest_bits[1:], dtype=np.int64),
        visits=np.array(visits, dtype=np.int64),
        operations=np.array(operations, dtype=np.int64),
    )


# Stages of signs per block: three, and three more for the imaginary parts, the first of
# which is not used.
N_SIGN_STAGES = 6

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(inline="always")
def tile_vector(v, pads):
    """Return the position of the block's vector v in the tile."""
    position = v
    for i in range(pads.shape[0]):
        position += v >> pads[i]
    return position


@njit(inline="always")
def draw_signs(parts, masks, n_vectors, key, block, p, group, pads, tile):
    """Write the signs of a block in the layout of the tile's vectors.

    Word i of stage s is the output of SplitMix64 (Steele, Lea and Flood, 2014) in
    state number (block·N_SIGN_STAGES + s)·p/64 + i + 1, seeded by the key; its bits,
    lowest first, are the signs of entries from 64·i on. Stages 3 to 5 are the
    imaginary parts. `group` is the number of entries per vector.
    """
    for stage in range(3):
        for part in range(len(parts) if stage > 0 else 1):
            first = (block * N_SIGN_STAGES + 3 * part + stage) * (p >> 6) + 1
            origin = stage * len(parts) * n_vectors + parts[part]
            for i in range(p >> 6):
                z = key + np.uint64(first + i) * _GOLDEN
                z = (z ^ (z >> _S30)) * _MIX1
                z = (z ^ (z >> _S27)) * _MIX2
                at = origin + tile_vector(i * (64 // group), pads)
                expand_signs(masks, at, z ^ (z >> _S31), tile)


@njit(inline="always")
def run_panel(parts, schedule, v, outer, start, unit, wanted, masks, tile):
    """Run the operations of visit v on one panel, at vector `start` of the tile.

    The vectors from the first to the last that are wanted hold the requested rows.
    """
    n_vectors, _, visits, operations = schedule
    for i in range(visits[v, 3], visits[v, 4]):
        low, above = operations[i, 1], operations[i, 2]
        free = visits[v, 1] - above
        first, stop = np.int64(0), np.int64(1) << free
        if operations[i, 3] == 1:  # only the blocks that hold a requested row
            base = outer << free
            if (wanted[0] >> above) > base:
                first = (wanted[0] >> above) - base
            if (wanted[1] >> above) - base + 1 < stop:
                stop = (wanted[1] >> above) - base + 1
        low, above = low - visits[v, 0], above - visits[v, 0]
        # The lowest group's rows, and the other groups' columns, are consecutive:
        # in both cases the inner loop is the long one.
        rows, columns = np.int64(1) << low, visits[v, 2]
        if visits[v, 0] == 0:
            rows, columns = np.int64(1), rows
        # In a unitary block the imaginary part starts with the second signs.
        action, transform = operations[i, 0], operations[i, 4]
        n_parts = len(parts) if action < SIGNS and transform > 1 else 1
        for part in range(n_parts):
            panel_step(
                parts, masks, tile, action, (transform - 1) * len(parts) * n_vectors,
                start + parts[part] + first * (unit << above), unit << low,
                (stop - first, unit << above, rows, unit, columns),
            )  # fmt: skip


# Kinds of output; MODULUS + m is the m-th power of the modulus.
PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3
# Columns of a projection turned into features at a time: those of the smallest block.
CHUNK = 64


@njit(inline="always")
def _load(rows, first, n_rows, j, at, masks, tile, tail):
    """Write columns of some rows of X from j on, scaled and signed by S1, to a tile.

    As many columns as a vector has lanes go to the tile's vectors from `at` on.
    """
    X, pitch, d, scale = rows
    width = 64 // tile.itemsize
    if j >= scale.shape[0]:
        tile[at * width : (at + vectors.ROWS) * width] = 0
        return
    source, start, apart = X, first * pitch + j, pitch
    if j + width > d:
        # The last columns, followed by the bias's one and zeros.
        for i in range(n_rows):
            vectors.copy_elements(X, start + i * pitch, tail, i * width, d - j)
        source, start, apart = tail, np.int64(0), width
    vectors.load_columns(source, start, apart, n_rows, scale, j, masks, at, tile, at)


@njit(nogil=True)
def _cos_sin(angles, weight, limit, out):
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
def _cosines(angles, weight, limit, out):
    """Write weighted cosines."""
    for j in range(CHUNK):
        out[j] = weight * cos_sin(angles[j])[0]
    if not is_fast(angles):
        for j in range(CHUNK):
            if not abs(angles[j]) <= limit:
                out[j] = weight * cos_sin_wide(angles[j])[0]


@njit(inline="always")
def _moduli(x, y, power, weight, out):
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
def _store(parts, kind, column, stored, first, n_rows, results, projected):
    """Compute features from CHUNK projections of each row, and store some of them.

    Of the columns from `column` on, only a range is stored. All are computed, so that
    the stored bits do not depend on the range.
    """
    begin, end = stored
    _, phases, weight, limit, outs, pitches = results
    width = 2 if kind == PAIRS else 1
    features = projected[2 * vectors.ROWS * CHUNK :]
    for r in range(n_rows):
        x = projected[r * CHUNK : (r + 1) * CHUNK]
        y = projected[(vectors.ROWS + r) * CHUNK : (vectors.ROWS + r + 1) * CHUNK]
        to = (first + r) * pitches[0] + width * column
        out = features
        if end - begin == CHUNK:
            out = outs[0][to : to + width * CHUNK]
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
            wanted = width * (end - begin)
            start = width * begin
            vectors.copy_elements(features, start, outs[0], to + start, wanted)


@njit(inline="always")
def _transform(parts, first, n_rows, wanted, p, rows, schedule, scratch):
    """Compute some vectors of a block, with drawn signs, for a tile."""
    _, pads, visits, operations = schedule
    tile, masks, tail, _ = scratch
    group = 16 // tile.itemsize
    for j in range(0, p // group, vectors.ROWS):
        at = tile_vector(j, pads)
        _load(rows, first, n_rows, j * group, at, masks, tile, tail)
    for v in range(visits.shape[0]):
        bottom, above, columns = visits[v, 0], visits[v, 1], visits[v, 2]
        unit = tile_vector(np.int64(1) << bottom, pads)
        begin, end = np.int64(0), p // group >> above
        if operations[visits[v, 3], 3] == 1:
            begin, end = wanted[0] >> above, (wanted[1] >> above) + 1
        for outer in range(begin, end):
            for inner in range(0, 1 << bottom, columns):
                start = tile_vector((outer << above) + inner, pads)
                run_panel(parts, schedule, v, outer, start, unit, wanted, masks, tile)


# Without reference counting (_nrt), which would surround every vector loop: the caller
# holds all arrays. Threads call this in parallel, without the GIL.
@njit(nogil=True, cache=True, no_cfunc_wrapper=True, _nrt=False)
def compute_features(parts, items, kind, rows, draws, results, schedule, scratch):
    """Run a range of items of a projection.

    All arguments but the kind are tuples:

    - `parts`: (0,) for real blocks; (0, number of vectors of a tile) for unitary ones.
    - `items`: the first item, the last + 1, and rows of X per item. Item i is chunk
      i // n_blocks of the rows and block first_block + i % n_blocks.
    - `rows`: X, flat; its number of rows, pitch and number of columns; the factors of
      the columns and of the bias's one, padded with zeros to whole vectors.
    - `draws`: the key, the first row of the projection and the last + 1, and p.
    - `results`: norms and phases, from CHUNK rows before the first requested row to
      CHUNK rows after the last; the weight; the limit of the fast cosine; two flat
      outputs (the second for imaginary parts), and their pitches.
    - `scratch`: the tile; masks of signs; the last columns of X (zeros, and ones for
      the bias); CHUNK projections of ROWS rows, their imaginary parts, and features of
      one.
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
        draw_signs(parts, masks, n_vectors, key, block, p, group, pads, tile)
        chunk = item // n_blocks * items[2]
        chunk_stop = chunk + items[2] if chunk + items[2] < n else n
        for first in range(chunk, chunk_stop, vectors.ROWS):
            n_rows = chunk_stop - first
            n_rows = n_rows if n_rows < vectors.ROWS else vectors.ROWS
            wanted = low // group, (high - 1) // group
            columns = X, pitch, d, scale
            _transform(parts, first, n_rows, wanted, p, columns, schedule, scratch)
            for j in range(low - low % CHUNK, high, CHUNK):
                column = block * p + j - row_start
                for i in range(0, CHUNK, width):
                    vector = tile_vector((j + i) // group, pads)
                    vectors.project_rows(
                        parts, tile, vector, norms, CHUNK + column + i,
                        projected, i, CHUNK,
                    )  # fmt: skip
                stored = low - j if low > j else 0, min(high - j, CHUNK)
                _store(parts, kind, column, stored, first, n_rows, results, projected)
