"""The compiled interpreter of a schedule: signs and panels.

Real blocks are R H S3 H S2 H S1 with random signs in S1, S2, S3; unitary ones
have the random phases (±1 ± i)/√2 instead. Nothing is normalised here: H has
entries ±1 and the phases are ±1 ± i.
"""

from typing import Any

import numpy as np
from numba import njit

from randkern.backend.hadamard_vectors import expand_signs, panel_steps

__all__ = ["N_SIGN_STAGES", "draw_signs", "run_panel", "tile_row"]

# Words of signs a block: three stages, and three more for the imaginary parts.
N_SIGN_STAGES = 6

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(inline="always")
def tile_row(row: int, pads: np.ndarray) -> int:
    """Return where the tile keeps a row of the block."""
    position = row
    for i in range(pads.shape[0]):
        position += row >> pads[i]
    return position


@njit(inline="always")
def draw_signs(
    parts: tuple[int, ...],
    signs: np.ndarray,
    key: np.uint64,
    block: int,
    stage: int,
    p: int,
    pads: np.ndarray,
) -> None:
    """Write the ±1 of one stage of a block, placed as the tile's rows are.

    Word i of a stage is the output of SplitMix64 (Steele, Lea and Flood, 2014) in
    its state number (block·N_SIGN_STAGES + stage)·p/64 + i + 1, seeded by the key.
    Stages 3 to 5 are the imaginary parts of the phases.
    """
    for part in range(len(parts)):
        first = (block * N_SIGN_STAGES + 3 * part + stage) * (p >> 6) + 1
        for i in range(p >> 6):
            z = key + np.uint64(first + i) * _GOLDEN
            z = (z ^ (z >> _S30)) * _MIX1
            z = (z ^ (z >> _S27)) * _MIX2
            row = parts[part] + tile_row(i << 6, pads)
            expand_signs(signs, row, z ^ (z >> _S31))


@njit(inline="always")
def run_panel(
    parts: tuple[int, ...],
    schedule: Any,
    v: int,
    outer: int,
    start: int,
    unit: int,
    first_row: int,
    last_row: int,
    signs: np.ndarray,
    tile: np.ndarray,
) -> None:
    """Run the operations of visit v on one panel, at tile row `start`."""
    _, _, visits, operations = schedule
    top = visits[v, 1]
    for i in range(visits[v, 3], visits[v, 4]):
        code, low, above = operations[i, 0], operations[i, 1], operations[i, 2]
        first, stop = np.int64(0), np.int64(1) << (top - above)
        if operations[i, 3] == 1:  # only the blocks that hold a wanted row
            base = outer << (top - above)
            if (first_row >> above) > base:
                first = (first_row >> above) - base
            if (last_row >> above) - base + 1 < stop:
                stop = (last_row >> above) - base + 1
        low -= visits[v, 0]
        columns = visits[v, 2]
        panel_steps(
            parts, signs, tile, code, start, unit, low, first, stop, columns
        )
