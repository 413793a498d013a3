"""The vector instructions of Zᵀ P for few columns of P, for compiled code only.

Each feature is read once for all the columns of P, whose entries of ROWS_ADDED rows are
in registers: twice as fast as what a compiler makes of the same loops. Features may be
16-bit integers, which become floating-point numbers in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from randkern.backend.hadamard_vectors import Memory, count, memories

# Features beyond the last may be read up to a multiple of this number.
COLUMNS = 64
# Rows whose features are in registers together.
ROWS_ADDED = 8
_FUSED = ("contract",)


def _load_features(features: Memory, offset: Any, like: Memory) -> Any:
    """Load as many features as a vector of `like` has lanes, as its numbers."""
    kind = ir.VectorType(features.element, like.lanes)
    pointer = features.builder.bitcast(features.pointer(offset), kind.as_pointer())
    value = features.builder.load(pointer, align=features.item_bytes)
    if isinstance(features.element, ir.IntType):
        return features.builder.sitofp(value, like.vector)
    return value


@intrinsic
def add_rows(
    typing_context: Any,
    targets: Any,
    Z: Any,
    pitch: Any,
    first: Any,
    last: Any,
    begin: Any,
    end: Any,
    P: Any,
    p_start: Any,
    p_pitch: Any,
    sums: Any,
    s_start: Any,
    s_pitch: Any,
) -> Any:
    """Add some columns of Zᵀ P over ROWS_ADDED rows, from `first` on.

    sums[s_start + t·s_pitch + j - begin] += Σ_r Z[r·pitch + j]·P[p_start + r·p_pitch +
    t] for j from `begin` to `end`, a multiple of the lanes of a vector apart. Row
    `last` stands for those after it, for which P is zero.
    """
    n_targets = targets.count

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pitch, first, last, begin, end = args[2:7]
        features, other, sums = memories(context, builder, signature, args)
        starts, weights = [], []
        for i in range(ROWS_ADDED):
            row = builder.add(first, count(i))
            at = builder.add(args[8], builder.mul(row, args[9]))
            for t in range(n_targets):
                pointer = other.pointer(builder.add(at, count(t)))
                weights.append(other.splat(builder.load(pointer)))
            beyond = builder.icmp_signed(">", row, last)
            starts.append(builder.mul(builder.select(beyond, last, row), pitch))
        step = count(other.lanes)
        with cgutils.for_range_slice(builder, begin, end, step) as (j, _):
            at = [builder.add(start, j) for start in starts]
            z = [_load_features(features, each, other) for each in at]
            here = builder.add(args[11], builder.sub(j, begin))
            for t in range(n_targets):
                at = builder.add(here, builder.mul(args[12], count(t)))
                total = sums.load(at)
                for i in range(ROWS_ADDED):
                    weight = weights[i * n_targets + t]
                    product = builder.fmul(weight, z[i], flags=_FUSED)
                    total = builder.fadd(total, product, flags=_FUSED)
                sums.store(total, at)
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(
        *(targets, Z, int64, int64, int64, int64, int64, P, int64, int64),
        *(sums, int64, int64),
    ), generate
