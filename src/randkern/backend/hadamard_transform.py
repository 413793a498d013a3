"""The compiled interpreter of a schedule: signs and panels.

Real blocks are R H S3 H S2 H S1 with random signs in S1, S2, S3; unitary ones have
random phases (±1 ± i)/√2 in S2 and S3 instead, so that the first transform is real.
Nothing is normalised here: H has entries ±1 and the phases are ±1 ± i.

The functions are inlined before they are compiled, which compiles everything once.
"""

from typing import Any

import numpy as np
from numba import njit

from randkern.backend.hadamard_vectors import SIGNS, expand_signs, panel_step

# Stages of signs a block: three, and three more for the imaginary parts, of which
# the first is not used.
N_SIGN_STAGES = 6

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(inline="always")
def tile_vector(v: int, pads: np.ndarray) -> int:
    """Return where the tile keeps vector v of the block."""
    position = v
    for i in range(pads.shape[0]):
        position += v >> pads[i]
    return position


@njit(inline="always")
def draw_signs(
    parts: tuple[int, ...],
    masks: np.ndarray,
    n_vectors: int,
    key: np.uint64,
    block: int,
    p: int,
    group: int,
    pads: np.ndarray,
    tile: np.ndarray,
) -> None:
    """Write the signs of a block, placed as the tile's vectors are.

    Word i of stage s is the output of SplitMix64 (Steele, Lea and Flood, 2014) in
    its state number (block·N_SIGN_STAGES + s)·p/64 + i + 1, seeded by the key; its
    bits, lowest first, are the signs of entries 64·i on. Stages 3 to 5 are the
    imaginary parts. `group` is the number of entries a vector.
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
def run_panel(
    parts: tuple[int, ...],
    schedule: Any,
    v: int,
    outer: int,
    start: int,
    unit: int,
    first_vector: int,
    last_vector: int,
    masks: np.ndarray,
    tile: np.ndarray,
) -> None:
    """Run the operations of visit v on one panel, at vector `start` of the tile."""
    n_vectors, _, visits, operations = schedule
    for i in range(visits[v, 3], visits[v, 4]):
        low, above = operations[i, 1], operations[i, 2]
        free = visits[v, 1] - above
        first, stop = np.int64(0), np.int64(1) << free
        if operations[i, 3] == 1:  # only the blocks that hold a wanted row
            base = outer << free
            if (first_vector >> above) > base:
                first = (first_vector >> above) - base
            if (last_vector >> above) - base + 1 < stop:
                stop = (last_vector >> above) - base + 1
        low, above = low - visits[v, 0], above - visits[v, 0]
        # Rows of the lowest group are consecutive, as the columns of the others are:
        # either way the inner loop is the long one.
        rows, columns = np.int64(1) << low, visits[v, 2]
        if visits[v, 0] == 0:
            rows, columns = np.int64(1), rows
        # Of a unitary block the imaginary part comes with the second signs.
        action, transform = operations[i, 0], operations[i, 4]
        n_parts = len(parts) if action < SIGNS and transform > 1 else 1
        for part in range(n_parts):
            panel_step(
                parts, masks, tile, action, (transform - 1) * len(parts) * n_vectors,
                start + parts[part] + first * (unit << above), unit << low,
                stop - first, unit << above, rows, unit, columns,
            )  # fmt: skip
