"""The order in which a block H S3 H S2 H S1 is computed: a small program.

A transform of 2^k vectors (and of the entries inside them) is k stages, one a bit of
the vector's index, in any order. Here consecutive bits form *steps* (a butterfly of
radix 4, 8 or 16, in registers) and consecutive steps form *groups*, small enough for
the first-level cache. The three transforms run through the bits down, up, and down
again: so they meet once inside the vectors and once at the highest step, and all
steps of a group around a meeting point run while its *panel* (the vectors that differ
in the group's bits, a few columns wide) is in the cache. With two groups the tile is
read four times in all.

The last transform starts at the highest bits, so that it is pruned to the rows that
are wanted: later steps skip the blocks that hold none.
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from randkern.backend.hadamard_vectors import SIGNS, SIGNS_WITHIN

# Below 64 rows a product of signs and transforms is visibly not Gaussian.
MIN_BLOCK = 64

# Bits of the lowest group, whose panel is 2^bits consecutive vectors (16 KB at
# most), and of the others.
_LOW_GROUP_BITS = (6, 7, 8)
_HIGH_GROUP_BITS = (2, 3, 4, 5, 6, 7)
_PANEL_VECTORS = 256

Step = tuple[int, int]  # lowest bit, bit above
Operation = tuple[int, int, int, int, int]
Visit = tuple[int, int, int, int, int]


class Schedule(NamedTuple):
    """A program for the compiled interpreter, as tables of int64.

    Attributes
    ----------
    n_vectors : int
        Vectors that a tile takes, with one of padding after every panel of each
        group: otherwise panel rows are a power of two apart and share one set of the
        cache.
    pads : ndarray
        Vector v of the block is vector v + Σ (v >> pads[i]) of the tile.
    visits : ndarray of shape (V, 5)
        Lowest bit of the group, bit above it, columns of a panel, first operation
        and last + 1.
    operations : ndarray of shape (O, 5)
        Action, lowest bit of the step, bit above it, whether it may be pruned, and
        which of the three transforms it is part of, or which of the three signs.
    """

    n_vectors: int
    pads: np.ndarray
    visits: np.ndarray
    operations: np.ndarray


def _group_bits(k: int) -> tuple[int, ...]:
    """Split k bits into as few, as equal groups as there can be, lowest first."""
    if k <= max(_LOW_GROUP_BITS):
        return (k,)
    n_high = -(-(k - max(_LOW_GROUP_BITS)) // max(_HIGH_GROUP_BITS))
    splits = [
        split
        for split in product(_LOW_GROUP_BITS, *[_HIGH_GROUP_BITS] * n_high)
        if sum(split) == k
    ]
    return min(splits, key=lambda split: (max(split[1:]), -split[0]))


def _steps(first: int, bits: int) -> list[Step]:
    """Split the bits of a group into as few steps as there can be."""
    splits = {2: [2], 3: [3], 4: [4], 5: [2, 3], 6: [3, 3], 7: [3, 4], 8: [4, 4]}
    split = splits[bits]
    lows = [first + sum(split[:i]) for i in range(len(split))]
    return [(low, low + size) for low, size in zip(lows, split, strict=True)]


def _butterflies(steps: list[Step], transform: int) -> list[Operation]:
    # The action of a butterfly is its number of bits; the last ones are pruned.
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
