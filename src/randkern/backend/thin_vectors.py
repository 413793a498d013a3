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

__all__ = ["COLUMNS", "ROWS_ADDED", "add_rows", "multiply_rows", "rows_at_once"]

# Both loops may read features beyond the last up to a multiple of this number.
COLUMNS = 64
# Sums held in registers, of which AVX-512 has 32.
_SUMS = 20
_MOST_ROWS = 8
# Rows whose features are in registers together.
ROWS_ADDED = 8
_FUSED = ("contract",)


def _power_of_two(n: int) -> int:
    """Return the largest power of two that is not above n."""
    return 1 << (n.bit_length() - 1)


def rows_at_once(n_targets: int) -> int:
    """Return how many rows :func:`multiply_rows` takes."""
    return _power_of_two(min(_MOST_ROWS, _SUMS // n_targets))


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
        """Return places for sums, which become registers."""
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        return [
            cgutils.alloca_once_value(self.builder, zero, name="sum") for _ in range(n)
        ]

    def add_product(self, place: Any, a: Any, b: Any) -> None:
        product = self.builder.fmul(a, b, flags=_FUSED)
        value = self.builder.fadd(self.builder.load(place), product, flags=_FUSED)
        self.builder.store(value, place)

    def not_beyond(self, row: Any, last: Any) -> Any:
        beyond = self.builder.icmp_signed(">", row, last)
        return self.builder.select(beyond, last, row)

    def sum_lanes(self, value: Any) -> Any:
        element = self.other.element
        bits = 64 // self.lanes * 8
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{bits}"
        kind = ir.FunctionType(element, [element, self.vector])
        reduce = self.builder.module.declare_intrinsic(name, fnty=kind)
        start = ir.Constant(element, -0.0)
        return self.builder.call(reduce, [start, value], fastmath=("reassoc",))

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
    for j from `begin` to `end`, a multiple of the lanes of a vector apart, and rows r
    from `first` on, :func:`rows_at_once` of them; `last` stands for those after it.
    """
    n_targets = targets.count
    n_rows = rows_at_once(n_targets)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pitch, first, last = args[2], args[3], args[4]
        kinds = (signature.args[1], signature.args[5])
        factors = _Factors(context, builder, kinds, (args[1], args[5]))
        results = Memory(context, builder, signature.args[10], args[10])
        places = factors.zero_sums(n_rows * n_targets)
        factors.clear(places)
        rows = []
        for i in range(n_rows):
            rows.append(factors.not_beyond(builder.add(first, count(i)), last))
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
        for i in range(n_rows):
            at = builder.add(args[11], builder.mul(rows[i], args[12]))
            for t in range(n_targets):
                total = factors.sum_lanes(builder.load(places[i * n_targets + t]))
                if total.type != results.element:
                    total = builder.fpext(total, results.element)
                builder.store(total, results.pointer(builder.add(at, count(t))))
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(
        *(targets, Z, int64, int64, int64, V, int64, int64, int64, int64),
        *(out, int64, int64),
    ), generate


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
        kinds = (signature.args[1], signature.args[7])
        factors = _Factors(context, builder, kinds, (args[1], args[7]))
        sums = Memory(context, builder, signature.args[10], args[10])
        starts, weights = [], []
        for i in range(ROWS_ADDED):
            row = builder.add(first, count(i))
            at = builder.add(args[8], builder.mul(row, args[9]))
            for t in range(n_targets):
                pointer = factors.other.pointer(builder.add(at, count(t)))
                weights.append(factors.other.splat(builder.load(pointer)))
            starts.append(builder.mul(factors.not_beyond(row, last), pitch))
        step = count(factors.lanes)
        with cgutils.for_range_slice(builder, begin, end, step) as (j, _):
            z = [factors.load_features(builder.add(start, j)) for start in starts]
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
