"""The order in which a block H S3 H S2 H S1 is computed: a small program.

A transform of p = 2^k rows is k stages, one a bit of the row's index, in any
order. Here consecutive bits form *steps* (a butterfly of radix 2 to 16, in
registers) and consecutive steps form *groups*, small enough for the first-level
cache. The three transforms run through the bits down, up, and down again: so the
transforms meet twice at the same step, where "butterfly, signs, butterfly" is one
pass over the registers (a *sandwich*), and all steps of a group around a meeting
point run while its *panel* (the rows that differ in the group's bits, a few
columns wide) is in the cache. With two groups the tile is read four times in all.

The last transform starts at the highest bits, so that it is pruned to the rows
that are wanted: later steps skip the blocks that hold none.
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from randkern.backend.hadamard_vectors import PLAIN, SANDWICH, action_code

__all__ = ["MIN_BLOCK", "Schedule", "schedule"]

# Below 64 rows a product of signs and transforms is visibly not Gaussian.
MIN_BLOCK = 64

# Bits of the lowest group, whose panel is 2^bits consecutive tile rows (16 KB at
# most), and of the others: sums of steps.
_LOW_GROUP_BITS = (6, 7, 8)
_HIGH_GROUP_BITS = (3, 4, 6, 7)
_PANEL_ROWS = 256


class Schedule(NamedTuple):
    """A program for the compiled interpreter, as tables of int64.

    Attributes
    ----------
    p : int
        Rows of the block.
    n_tile_rows : int
        Rows that a tile takes, with one row of padding after every panel of each
        group: otherwise panel rows are a power of two apart and share one set of
        the cache.
    pads : ndarray
        Row j of the block is tile row j + Σ (j >> pads[i]).
    visits : ndarray of shape (V, 6)
        Lowest bit of the group, bit above it, columns of a panel, first and last
        + 1 operation, and which signs to draw before it (-1: none).
    operations : ndarray of shape (O, 4)
        Code of the action, lowest bit of the step, bit above it, and whether it may
        be pruned.
    """

    p: int
    n_tile_rows: int
    pads: np.ndarray
    visits: np.ndarray
    operations: np.ndarray

    @property
    def tables(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """What the compiled code reads: p, pads, visits and operations."""
        return self.p, self.pads, self.visits, self.operations


def _group_bits(k: int) -> tuple[int, ...]:
    """Split k bits into as few, as equal groups as there can be, lowest first."""
    if k in _LOW_GROUP_BITS:
        return (k,)
    n_high = -(-(k - max(_LOW_GROUP_BITS)) // max(_HIGH_GROUP_BITS))
    splits = [
        split
        for split in product(_LOW_GROUP_BITS, *[_HIGH_GROUP_BITS] * n_high)
        if sum(split) == k
    ]
    return min(splits, key=lambda split: (max(split[1:]), -split[0]))


def _step_bits(bits: int) -> tuple[int, ...]:
    """Split the bits of a group into as few steps as there can be."""
    n_steps = -(-bits // 4)
    n_short = 4 * n_steps - bits
    return (3,) * n_short + (4,) * (n_steps - n_short)


@cache
def schedule(p: int) -> Schedule:
    """Return the program for blocks of p rows.

    Parameters
    ----------
    p : int
        A power of two, at least ``MIN_BLOCK``.
    """
    groups = _group_bits(p.bit_length() - 1)
    top = len(groups) - 1
    positions = [sum(groups[:g]) for g in range(len(groups))]
    steps = []
    for position, bits in zip(positions, groups, strict=True):
        split = _step_bits(bits)
        starts = [position + sum(split[:i]) for i in range(len(split))]
        steps.append(list(zip(starts, split, strict=True)))

    visits: list[tuple[int, ...]] = []
    operations: list[tuple[int, ...]] = []

    def visit(g: int, signs: int, actions: list[tuple[int, ...]]) -> None:
        columns = 1 if g == 0 else max(1, _PANEL_ROWS >> groups[g])
        first = len(operations)
        operations.extend(actions)
        above = positions[g] + groups[g]
        visits.append((positions[g], above, columns, first, len(operations), signs))

    def plain(some: list[tuple[int, int]], pruned: int) -> list[tuple[int, ...]]:
        return [
            (action_code(PLAIN, bits), low, low + bits, pruned) for low, bits in some
        ]

    def single(action: int, low: int, bits: int) -> tuple[int, ...]:
        return (action_code(action, bits), low, low + bits, 0)

    down = [group[::-1] for group in steps]
    low_sandwich = single(SANDWICH, *steps[0][0])
    high_sandwich = single(SANDWICH, *steps[top][-1])
    if top == 0:
        # One panel is the whole tile: its signs change between the visits.
        inner = steps[0][1:-1]
        visit(0, 0, plain(steps[0][:0:-1], 0))
        visit(0, 1, [low_sandwich, *plain(inner, 0)])
        visit(0, 2, [high_sandwich])
    else:
        visit(top, 0, plain(down[top], 0))
        for g in range(top - 1, 0, -1):
            visit(g, -1, plain(down[g], 0))
        around = [*plain(down[0][:-1], 0), low_sandwich, *plain(steps[0][1:], 0)]
        visit(0, 1, around)
        for g in range(1, top):
            visit(g, -1, plain(steps[g], 0))
        around = plain(steps[top][:-1], 0)
        visit(top, 2, [*around, high_sandwich, *plain(down[top][1:], 1)])
        for g in range(top - 1, 0, -1):
            visit(g, -1, plain(down[g], 1))
    visit(0, -1, plain(down[0][1:] if top == 0 else down[0], 1))
    return Schedule(
        p=p,
        n_tile_rows=p + sum(p >> position for position in positions[1:]),
        pads=np.array(positions[1:], dtype=np.int64),
        visits=np.array(visits, dtype=np.int64),
        operations=np.array(operations, dtype=np.int64).reshape(-1, 4),
    )
