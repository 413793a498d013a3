"""Vector instructions of the thin products, for compiled code only.

A product of a long block of features with few columns reads every feature once or
twice, so that it is bound by memory unless the features are in the cache; there it is
bound by the loads of the other factor. Both loops here hold a tile of 16 sums in
registers, which takes two loads for three multiplications.

Features may be 16-bit integers: they become floating-point numbers in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from randkern.backend.hadamard_vectors import Memory, count

__all__ = ["COLUMNS", "add_columns", "multiply_rows"]

# Both loops may read features beyond the last up to a multiple of this number.
COLUMNS = 64
# Sums held in registers: of AVX-512's 32, half are left for the factors.
_SUMS = 16
_MOST_ROWS = 8
_MOST_VECTORS = 4
_FUSED = ("contract",)


class _Factors:
    """The features, and the other factor as vectors of the sums' type."""

    def __init__(self, context: Any, builder: Any, kinds: Any, arrays: Any) -> None:
        self.builder = builder
        self.features = Memory(context, builder, kinds[0], arrays[0])
        self.other = Memory(context, builder, kinds[1], arrays[1])
        self.vector = self.other.vector
        self.lanes = self.other.lanes

    def load_features(self, offset: Any) -> Any:
        """Load as many features as a sum has lanes, as floating-point numbers."""
        element = self.features.element
        kind = ir.VectorType(element, self.lanes)
        pointer = self.features.pointer(offset)
        pointer = self.builder.bitcast(pointer, kind.as_pointer())
        value = self.builder.load(pointer, align=self.features.item_bytes)
        if isinstance(element, ir.IntType):
            return self.builder.sitofp(value, self.vector)
        return value

    def zero_sums(self, n: int) -> list[Any]:
        """Return places for sums that are zero; the optimiser keeps them in registers."""
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        return [
            cgutils.alloca_once_value(self.builder, zero, name="sum") for _ in range(n)
        ]

    def add_product(self, place: Any, a: Any, b: Any) -> None:
        product = self.builder.fmul(a, b, flags=_FUSED)
        value = self.builder.fadd(self.builder.load(place), product, flags=_FUSED)
        self.builder.store(value, place)

    def clear(self, places: list[Any]) -> None:
        for place in places:
            self.builder.store(ir.Constant(self.vector, [0.0] * self.lanes), place)


@intrinsic
def multiply_rows(
    typing_context: Any,
    targets: Any,
    Z: Any,
    pitch: Any,
    first: Any,
    last: Any,
    V: Any,
    v_start: Any,
    v_pitch: Any,
    begin: Any,
    end: Any,
    out: Any,
    out_start: Any,
    out_pitch: Any,
) -> Any:
    """Multiply some rows of features with `targets` rows of V over some columns.

    out[out_start + r·out_pitch + t] = Σ_j Z[r·pitch + j]·V[v_start + t·v_pitch + j]
    for j from `begin` to `end`, a multiple of the lanes of a vector apart, and up to
    8 rows r, ``16 // targets``, from `first` on; `last` stands for those after it.
    """
    n_targets = targets.count
    n_rows = min(_MOST_ROWS, _SUMS // n_targets)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pitch, first, last = args[2], args[3], args[4]
        kinds = (signature.args[1], signature.args[5])
        factors = _Factors(context, builder, kinds, (args[1], args[5]))
        results = Memory(context, builder, signature.args[10], args[10])
        places = factors.zero_sums(n_rows * n_targets)
        factors.clear(places)
        rows = []
        for i in range(n_rows):
            row = builder.add(first, count(i))
            beyond = builder.icmp_signed(">", row, last)
            rows.append(builder.select(beyond, last, row))
        starts = [builder.mul(row, pitch) for row in rows]
        v_starts = [
            builder.add(args[6], builder.mul(args[7], count(t)))
            for t in range(n_targets)
        ]
        step = count(factors.lanes)
        with cgutils.for_range_slice(builder, args[8], args[9], step) as (j, _):
            z = [factors.load_features(builder.add(start, j)) for start in starts]
            for t in range(n_targets):
                v = factors.other.load(builder.add(v_starts[t], j))
                for i in range(n_rows):
                    factors.add_product(places[i * n_targets + t], z[i], v)
        element = factors.other.element
        bits = 64 // factors.lanes * 8
        name = f"llvm.vector.reduce.fadd.v{factors.lanes}f{bits}"
        kind = ir.FunctionType(element, [element, factors.vector])
        reduce = builder.module.declare_intrinsic(name, fnty=kind)
        for i in range(n_rows):
            at = builder.add(args[11], builder.mul(rows[i], args[12]))
            for t in range(n_targets):
                value = builder.load(places[i * n_targets + t])
                start = ir.Constant(element, -0.0)
                total = builder.call(reduce, [start, value], fastmath=("reassoc",))
                if element != results.element:
                    total = builder.fpext(total, results.element)
                builder.store(total, results.pointer(builder.add(at, count(t))))
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(
        *(targets, Z, int64, int64, int64, V, int64, int64, int64, int64),
        *(out, int64, int64),
    ), generate


@intrinsic
def add_columns(
    typing_context: Any,
    targets: Any,
    Z: Any,
    pitch: Any,
    column: Any,
    begin: Any,
    end: Any,
    P: Any,
    p_start: Any,
    p_pitch: Any,
    out: Any,
    out_start: Any,
    out_pitch: Any,
) -> Any:
    """Add some columns of Zᵀ P, over the rows from `begin` to `end`, to float64 sums.

    out[out_start + t·out_pitch + j] += Σ_r Z[r·pitch + j]·P[p_start + r·p_pitch + t]
    for as many columns j from `column` on as :func:`columns_at_once` says.
    """
    n_targets = targets.count
    n_vectors = min(_MOST_VECTORS, _SUMS // n_targets)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pitch, column = args[2], args[3]
        kinds = (signature.args[1], signature.args[6])
        factors = _Factors(context, builder, kinds, (args[1], args[6]))
        results = Memory(context, builder, signature.args[9], args[9])
        places = factors.zero_sums(n_vectors * n_targets)
        lanes = factors.lanes
        n_passes = COLUMNS // (n_vectors * lanes)
        with cgutils.for_range(builder, count(n_passes)) as loop:
            factors.clear(places)
            offset = builder.mul(loop.index, count(n_vectors * lanes))
            here = builder.add(column, offset)
            with cgutils.for_range_slice(builder, args[4], args[5], count(1)) as (r, _):
                start = builder.add(builder.mul(r, pitch), here)
                z = [
                    factors.load_features(builder.add(start, count(lanes * c)))
                    for c in range(n_vectors)
                ]
                p_at = builder.add(args[7], builder.mul(r, args[8]))
                for t in range(n_targets):
                    at = factors.other.pointer(builder.add(p_at, count(t)))
                    p = factors.other.splat(builder.load(at))
                    for c in range(n_vectors):
                        factors.add_product(places[c * n_targets + t], z[c], p)
            wide = ir.VectorType(results.element, lanes)
            for t in range(n_targets):
                row = builder.add(args[10], builder.mul(args[11], count(t)))
                for c in range(n_vectors):
                    value = builder.load(places[c * n_targets + t])
                    if value.type != wide:
                        value = builder.fpext(value, wide)
                    at = builder.add(builder.add(row, here), count(lanes * c))
                    pointer = results.pointer(at)
                    pointer = builder.bitcast(pointer, wide.as_pointer())
                    total = builder.fadd(builder.load(pointer, align=8), value)
                    builder.store(total, pointer, align=8)
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(
        *(targets, Z, int64, int64, int64, int64, P, int64, int64),
        *(out, int64, int64),
    ), generate
