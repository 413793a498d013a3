"""Vector instructions of the Walsh-Hadamard kernels, for compiled code only.

A tile holds, for each of p logical rows, the values of one vector of
:func:`lanes` rows of X: 64 bytes, a cache line and an AVX-512 register. Each
function here emits straight-line LLVM vector code: it loads all its operands
before it stores any, so that no alias check is left to the compiler, strides
may be run-time values, and one compilation serves every p. On machines with
shorter registers LLVM splits the vectors.

Positions and strides count tile rows; ``offset`` and ``pitch`` count elements.
Nothing is checked: the callers keep within their buffers.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import for_range, memset, raw_memcpy
from numba.extending import intrinsic

__all__ = [
    "CACHE_LINE",
    "PLAIN",
    "SANDWICH",
    "STEP_BITS",
    "action_code",
    "clear_rows",
    "copy_elements",
    "expand_signs",
    "lanes",
    "load_transposed",
    "panel_steps",
    "store_transposed",
]

# What is done at a step of a transform.
PLAIN, SANDWICH = 0, 1

# Bits of a step: radix 8 or 16, which leaves half of AVX-512's 32 registers for
# intermediate values. Every length from 2^6 on is a product of these two, and each
# radix less halves the time of compilation.
STEP_BITS = (3, 4)

# Bytes of a tile row.
CACHE_LINE = 64

Vectors = list[Any]


def lanes(dtype: Any) -> int:
    """Return how many rows of X one tile row holds: 16 in float32, 8 in float64."""
    return CACHE_LINE // np.dtype(dtype).itemsize


class _Memory:
    """Vector access to one array argument of an intrinsic."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self.builder = builder
        self.data = context.make_array(array_type)(context, builder, value=array).data
        self.element = context.get_value_type(array_type.dtype)
        self.item_bytes = array_type.dtype.bitwidth // 8
        self.lanes = CACHE_LINE // self.item_bytes
        self.vector = ir.VectorType(self.element, self.lanes)

    def _pointer(self, offset: Any) -> Any:
        address = self.builder.gep(self.data, [offset])
        return self.builder.bitcast(address, self.vector.as_pointer())

    def load(self, offset: Any) -> Any:
        return self.builder.load(self._pointer(offset), align=self.item_bytes)

    def store(self, value: Any, offset: Any) -> None:
        self.builder.store(value, self._pointer(offset), align=self.item_bytes)

    def splat(self, offset: Any) -> Any:
        """Load one element into all the lanes."""
        scalar = self.builder.load(self.builder.gep(self.data, [offset]))
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, _index(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, mask)


def _index(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _count(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _offsets(builder: Any, first: Any, stride: Any, n: int) -> list[Any]:
    """Return first + k·stride for k = 0, ..., n - 1."""
    return [builder.add(first, builder.mul(stride, _count(k))) for k in range(n)]


def _hadamard(builder: Any, values: Vectors) -> Vectors:
    """Return the Walsh-Hadamard transform (natural order) of 2^b vectors.

    The highest bit of the index goes first.
    """
    values = list(values)
    half = len(values) // 2
    while half:
        for low in range(len(values)):
            if not low & half:
                a, b = values[low], values[low | half]
                values[low] = builder.fadd(a, b)
                values[low | half] = builder.fsub(a, b)
        half //= 2
    return values


def _transpose(builder: Any, values: Vectors) -> Vectors:
    """Return the transpose of n vectors of n lanes by n log2 n shuffles."""
    n = len(values)
    mask_type = ir.VectorType(ir.IntType(32), n)
    values = list(values)
    bit = 1
    while bit < n:
        low = [k if not k & bit else n + k - bit for k in range(n)]
        high = [k + bit if not k & bit else n + k for k in range(n)]
        for i in range(n):
            if not i & bit:
                a, b = values[i], values[i | bit]
                for j, mask in ((i, low), (i | bit, high)):
                    constant = ir.Constant(mask_type, mask)
                    values[j] = builder.shuffle_vector(a, b, constant)
        bit *= 2
    return values


def _branch(
    builder: Any,
    selector: Any,
    cases: Mapping[int, Callable[[], None]],
    otherwise: Callable[[], None] = lambda: None,
) -> None:
    """Emit `if selector == value: ...` for each case, and what to do otherwise.

    No jump table: some machines do not predict indirect branches.
    """
    after = builder.append_basic_block("after")
    for value, emit in cases.items():
        matches = builder.icmp_signed("==", selector, _count(value))
        block = builder.append_basic_block(f"case_{value}")
        rest = builder.append_basic_block(f"not_{value}")
        builder.cbranch(matches, block, rest)
        builder.position_at_end(block)
        emit()
        builder.branch(after)
        builder.position_at_end(rest)
    otherwise()
    builder.branch(after)
    builder.position_at_end(after)


def _memories(context: Any, builder: Any, signature: Any, args: Any) -> list[_Memory]:
    """Return vector access to those arguments that are arrays."""
    return [
        _Memory(context, builder, kind, value)
        for kind, value in zip(signature.args, args, strict=True)
        if isinstance(kind, types.Array)
    ]


class _Step:
    """The rows row, row + stride, ... of a tile and of its signs."""

    def __init__(
        self,
        builder: Any,
        signs: _Memory,
        tile: _Memory,
        row: Any,
        stride: Any,
        bits: int,
    ) -> None:
        self._signs, self._tile = signs, tile
        self._sign_at = _offsets(builder, row, stride, 1 << bits)
        self._at = _tile_offsets(builder, tile, row, stride, 1 << bits)

    def load(self) -> Vectors:
        return [self._tile.load(offset) for offset in self._at]

    def load_signs(self) -> Vectors:
        return [self._signs.splat(offset) for offset in self._sign_at]

    def store(self, values: Vectors) -> None:
        for value, offset in zip(values, self._at, strict=True):
            self._tile.store(value, offset)


def _tile_offsets(
    builder: Any, tile: _Memory, row: Any, stride: Any, n: int
) -> list[Any]:
    """Return the element offsets of n tile rows."""
    width = _count(tile.lanes)
    first, pitch = builder.mul(row, width), builder.mul(stride, width)
    return _offsets(builder, first, pitch, n)


def _multiply(builder: Any, first: Vectors, second: Vectors) -> Vectors:
    return [builder.fmul(a, b) for a, b in zip(first, second, strict=True)]


def action_code(action: int, bits: int) -> int:
    """Return the selector of an action (PLAIN or SANDWICH) on a step."""
    return 8 * action + bits


@intrinsic
def panel_steps(
    typing_context: Any,
    parts: Any,
    signs: Any,
    tile: Any,
    code: Any,
    start: Any,
    unit: Any,
    low: Any,
    first: Any,
    stop: Any,
    columns: Any,
) -> Any:
    """Run one step over a panel.

    `parts` is where the parts of the tile and of the signs start: (0,) in a real
    block, those of the real and the imaginary part in a unitary one, whose signs
    are s + i·s'. `code` is that of :func:`action_code`: PLAIN transforms the rows of
    the tile in place, SANDWICH transforms, multiplies by the signs and transforms
    again. The panel starts at tile row `start`, its rows are `unit` apart and
    `columns` wide; the step is at bit `low` of the panel's row index, and runs over
    blocks `first` to `stop` - 1 of it.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        signs, tile = _memories(context, builder, signature, args)
        origins = [builder.extract_value(args[0], i) for i in range(parts.count)]
        emit = _emit_real_step if parts.count == 1 else _emit_unitary_step
        _emit_loops(builder, signs, tile, origins, args[3:], emit)
        return context.get_dummy_value()

    return types.void(parts, signs, tile, *[types.int64] * 7), generate


def _emit_loops(
    builder: Any,
    signs: _Memory,
    tile: _Memory,
    origins: list[Any],
    args: Any,
    emit: Callable[..., None],
) -> None:
    """Emit the loops over the butterflies of a panel, once for each code.

    Inside the loops only one butterfly is left: with the choice in there the
    compiler would hoist the addresses of all of them, and spill.
    """
    code, start, unit, low, first, stop, columns = args
    stride = builder.shl(unit, low)

    def loops(action: int, bits: int) -> None:
        pitch = builder.shl(stride, _count(bits))
        blocks = builder.sub(stop, first)
        origin = builder.add(start, builder.mul(first, pitch))
        with for_range(builder, blocks) as high:
            block = builder.add(origin, builder.mul(high.index, pitch))
            with for_range(builder, builder.shl(_count(1), low)) as middle:
                base = builder.add(block, builder.mul(middle.index, unit))
                with for_range(builder, columns) as column:
                    at = builder.add(base, column.index)
                    rows = [builder.add(at, part) for part in origins]
                    steps = [
                        _Step(builder, signs, tile, row, stride, bits) for row in rows
                    ]
                    emit(builder, action, *steps)

    cases = {
        action_code(action, bits): partial(loops, action, bits)
        for action in (PLAIN, SANDWICH)
        for bits in STEP_BITS
    }
    _branch(builder, code, cases)


def _emit_real_step(builder: Any, action: int, step: _Step) -> None:
    values = _hadamard(builder, step.load())
    if action == SANDWICH:
        values = _hadamard(builder, _multiply(builder, values, step.load_signs()))
    step.store(values)


def _emit_unitary_step(builder: Any, action: int, real: _Step, imag: _Step) -> None:
    if action == PLAIN:
        for part in (real, imag):
            part.store(_hadamard(builder, part.load()))
        return
    x, y = (_hadamard(builder, part.load()) for part in (real, imag))
    c, s = real.load_signs(), imag.load_signs()
    pairs = (c, x), (s, y), (c, y), (s, x)
    cx, sy, cy, sx = (_multiply(builder, *pair) for pair in pairs)
    real.store(_hadamard(builder, list(map(builder.fsub, cx, sy))))
    imag.store(_hadamard(builder, list(map(builder.fadd, cy, sx))))


@intrinsic
def expand_signs(typing_context: Any, signs: Any, offset: Any, word: Any) -> Any:
    """Write the 64 bits of a word, lowest first, as +1 (bit 0) or -1 (bit 1)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (memory,) = _memories(context, builder, signature, args)
        n = memory.lanes
        plus = ir.Constant(memory.vector, [ir.Constant(memory.element, 1.0)] * n)
        minus = ir.Constant(memory.vector, [ir.Constant(memory.element, -1.0)] * n)
        for first in range(0, 64, n):
            shifted = builder.lshr(args[2], _count(first))
            few = builder.trunc(shifted, ir.IntType(n))
            bits = builder.bitcast(few, ir.VectorType(ir.IntType(1), n))
            values = builder.select(bits, minus, plus)
            memory.store(values, builder.add(args[1], _count(first)))
        return context.get_dummy_value()

    return types.void(signs, types.int64, types.uint64), generate


@intrinsic
def load_transposed(
    typing_context: Any,
    X: Any,
    offset: Any,
    pitch: Any,
    scale: Any,
    column: Any,
    signs: Any,
    tile: Any,
    row: Any,
) -> Any:
    """Write a square of X, times scales and signs of its columns, to the tile.

    X[offset + i·pitch + k]·scale[column + k]·signs[row + k] goes to lane i of tile
    row row + k.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, scales, signs, tile = _memories(context, builder, signature, args)
        factor = builder.fmul(scales.load(args[4]), signs.load(args[7]))
        values = [
            builder.fmul(source.load(offset), factor)
            for offset in _offsets(builder, args[1], args[2], tile.lanes)
        ]
        at = _tile_offsets(builder, tile, args[7], _count(1), tile.lanes)
        for value, offset in zip(_transpose(builder, values), at, strict=True):
            tile.store(value, offset)
        return context.get_dummy_value()

    return types.void(
        X, types.int64, types.int64, scale, types.int64, signs, tile, types.int64
    ), generate


@intrinsic
def store_transposed(
    typing_context: Any, tile: Any, row: Any, target: Any, offset: Any, pitch: Any
) -> Any:
    """Write lane i of tile row row + k to target[offset + i·pitch + k]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, target = _memories(context, builder, signature, args)
        at = _tile_offsets(builder, tile, args[1], _count(1), tile.lanes)
        values = _transpose(builder, [tile.load(offset) for offset in at])
        positions = _offsets(builder, args[3], args[4], tile.lanes)
        for value, offset in zip(values, positions, strict=True):
            target.store(value, offset)
        return context.get_dummy_value()

    return types.void(tile, types.int64, target, types.int64, types.int64), generate


@intrinsic
def clear_rows(typing_context: Any, tile: Any, row: Any) -> Any:
    """Set as many tile rows as one has lanes to zero, from `row` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (tile,) = _memories(context, builder, signature, args)
        start = builder.gep(tile.data, [builder.mul(args[1], _count(tile.lanes))])
        memset(builder, start, _count(CACHE_LINE * tile.lanes), 0)
        return context.get_dummy_value()

    return types.void(tile, types.int64), generate


@intrinsic
def copy_elements(
    typing_context: Any, source: Any, first: Any, target: Any, offset: Any, n: Any
) -> Any:
    """Copy n elements; 64 and 128 are fast."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target = _memories(context, builder, signature, args)
        start = builder.gep(source.data, [args[1]])
        end = builder.gep(target.data, [args[3]])

        def copy(n: Any) -> None:
            raw_memcpy(builder, end, start, n, source.item_bytes, source.item_bytes)

        cases = {n: partial(copy, _count(n)) for n in (64, 128)}
        _branch(builder, args[4], cases, lambda: copy(args[4]))
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate
