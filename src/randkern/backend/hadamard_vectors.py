"""Vector instructions for the Walsh-Hadamard kernels, for compiled code only.

A tile holds the p entries of ``ROWS`` rows of X as vectors of 64 bytes, a cache line
and an AVX-512 register: lane ROWS·k + r of vector v is entry G·v + k of row r, with
G = 4 entries per vector in float32 and 2 in float64. So few rows keep the tile in the
L1 cache up to p = 1,024, and in the L2 cache up to p = 32,768.

Each function here emits straight-line LLVM vector code. It loads all its operands
before it stores any, so the compiler needs no alias checks; strides may be run-time
values, and one compilation serves every p. On machines with shorter registers LLVM
splits the vectors.

Positions in a tile count vectors; ``offset`` and ``pitch`` count elements. Signs are
masks of 16 bits per vector, one per lane, set for a minus. Nothing is checked: callers
must stay within their buffers.
"""

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import for_range, raw_memcpy
from numba.extending import intrinsic

# Bytes of a vector.
CACHE_LINE = 64
# Rows of X in a tile.
ROWS = 4

# Actions of a step: a butterfly of 2^2, 2^3 or 2^4 vectors (which leaves half of
# AVX-512's 32 registers for intermediate values); signs; or, within each vector, a
# transform, signs, and a transform. There are no more because every radix lengthens
# the compilation.
BUTTERFLY_4, BUTTERFLY_8, BUTTERFLY_16, SIGNS, SIGNS_WITHIN = 2, 3, 4, 5, 6


def entries(dtype):
    """Return G, the entries of one row per vector: 4 in float32, 2 in float64."""
    return CACHE_LINE // (ROWS * np.dtype(dtype).itemsize)


class Memory:
    """Vector access to one array argument of an intrinsic."""

    def __init__(self, context, builder, array_type, array):
        self.builder = builder
        self.data = context.make_array(array_type)(context, builder, value=array).data
        self.element = context.get_value_type(array_type.dtype)
        self.item_bytes = array_type.dtype.bitwidth // 8
        self.lanes = CACHE_LINE // self.item_bytes
        self.vector = ir.VectorType(self.element, self.lanes)

    def pointer(self, offset):
        return self.builder.gep(self.data, [offset])

    def _vector_pointer(self, offset):
        return self.builder.bitcast(self.pointer(offset), self.vector.as_pointer())

    def load(self, offset):
        """Load the vector whose first element is at `offset`."""
        return self.builder.load(self._vector_pointer(offset), align=self.item_bytes)

    def store(self, value, offset):
        pointer = self._vector_pointer(offset)
        self.builder.store(value, pointer, align=self.item_bytes)

    def offsets(self, positions):
        """Return the offsets of vectors, given their positions in a tile."""
        return [self.builder.mul(entry, count(self.lanes)) for entry in positions]

    def store_all(self, values, offsets):
        for value, offset in zip(values, offsets, strict=True):
            self.store(value, offset)

    def load_mask(self, position, n_lanes):
        """Load one element as a vector of booleans."""
        bits = self.builder.load(self.pointer(position))
        if n_lanes < self.element.width:
            bits = self.builder.trunc(bits, ir.IntType(n_lanes))
        return self.builder.bitcast(bits, ir.VectorType(ir.IntType(1), n_lanes))


def memories(context, builder, signature, args):
    """Return vector access to the arguments that are arrays."""
    return [
        Memory(context, builder, kind, value)
        for kind, value in zip(signature.args, args, strict=True)
        if isinstance(kind, types.Array)
    ]


def count(value):
    """Return an integer constant."""
    return ir.Constant(ir.IntType(64), value)


def series(builder, first, stride, n):
    """Return first + k·stride for k = 0, ..., n - 1."""
    return [builder.add(first, builder.mul(stride, count(k))) for k in range(n)]


def shuffle(builder, a, b, lanes):
    """Return lanes of two vectors; the second's numbers continue the first's."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(a, b, mask)


def splat(builder, vector, scalar):
    """Return a vector of one value."""
    undefined = ir.Constant(vector, ir.Undefined)
    zero = ir.Constant(ir.IntType(32), 0)
    first = builder.insert_element(undefined, scalar, zero)
    return shuffle(builder, first, undefined, [0] * vector.count)


def _negate(builder, values, masks):
    return [
        builder.select(mask, builder.fneg(value), value)
        for value, mask in zip(values, masks, strict=True)
    ]


def _hadamard(builder, values):
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


def _hadamard_within(builder, value):
    """Return the transform over the entries inside a vector."""
    n = value.type.count
    bit = n // ROWS // 2
    while bit:
        swapped = shuffle(builder, value, value, [i ^ (ROWS * bit) for i in range(n)])
        signs = [-1.0 if i & (ROWS * bit) else 1.0 for i in range(n)]
        constants = [ir.Constant(value.type.element, sign) for sign in signs]
        # The product is exact, so fusing it changes no bit.
        signed = builder.fmul(
            value, ir.Constant(value.type, constants), flags=("contract",)
        )
        value = builder.fadd(signed, swapped, flags=("contract",))
        bit //= 2
    return value


def _transpose_blocks(builder, values):
    """Return the transpose of ROWS vectors of ROWS blocks."""
    values = list(values)
    n = values[0].type.count
    size = n // ROWS
    for bit in (1, 2):
        shift = bit * size
        low = [i if not i & shift else n + i - shift for i in range(n)]
        high = [i + shift if not i & shift else n + i for i in range(n)]
        for r in range(ROWS):
            if not r & bit:
                a, b = values[r], values[r | bit]
                values[r] = shuffle(builder, a, b, low)
                values[r | bit] = shuffle(builder, a, b, high)
    return values


def branch(builder, selector, cases):
    """Emit `if selector == value: ...` for each case.

    No jump table: some machines do not predict indirect branches.
    """
    after = builder.append_basic_block("after")
    for value, emit in cases.items():
        matches = builder.icmp_signed("==", selector, count(value))
        block = builder.append_basic_block(f"case_{value}")
        rest = builder.append_basic_block(f"not_{value}")
        builder.cbranch(matches, block, rest)
        builder.position_at_end(block)
        emit()
        builder.branch(after)
        builder.position_at_end(rest)
    builder.branch(after)
    builder.position_at_end(after)


@intrinsic
def panel_step(
    typing_context, parts, masks, tile, action, mask_origin, start, stride, loops
):
    """Run one step over a panel.

    The action is BUTTERFLY_4, ..., or SIGNS_WITHIN, on vectors `stride` apart. It runs
    over `loops`: blocks and their pitch, rows and theirs, and columns, from vector
    `start` of the tile on. Signs apply to all `parts`, the positions where the parts
    start in the tile: (0,) in a real block; those of the real and imaginary parts in a
    unitary one, whose signs are s + i·s'. Their masks start at `mask_origin` + parts.
    """

    def generate(context, builder, signature, args):
        masks, tile = memories(context, builder, signature, args)
        mask_origin, start, stride = args[4:7]
        origins = [builder.extract_value(args[0], i) for i in range(parts.count)]
        blocks, pitch, rows, unit, columns = (
            builder.extract_value(args[7], i) for i in range(5)
        )

        def loop(emit):
            """Call `emit` in the loops, at the position of every vector."""
            with for_range(builder, blocks) as block:
                first = builder.add(start, builder.mul(block.index, pitch))
                with for_range(builder, rows) as row:
                    base = builder.add(first, builder.mul(row.index, unit))
                    with for_range(builder, columns) as column:
                        emit(builder.add(base, column.index))

        def butterfly(bits, position):
            offsets = tile.offsets(series(builder, position, stride, 1 << bits))
            values = _hadamard(builder, [tile.load(offset) for offset in offsets])
            tile.store_all(values, offsets)

        def signs(multiply, position):
            at = [builder.add(position, origin) for origin in origins]
            mask_at = [builder.add(mask_origin, entry) for entry in at]
            offsets = tile.offsets(at)
            minus = [masks.load_mask(entry, tile.lanes) for entry in mask_at]
            tile.store_all(multiply(tile, offsets, minus), offsets)

        # Choose the action outside the loops: inside, the compiler would hoist the
        # addresses of all actions, and spill registers.
        actions = {
            bits: partial(butterfly, bits)
            for bits in (BUTTERFLY_4, BUTTERFLY_8, BUTTERFLY_16)
        }
        actions[SIGNS] = partial(signs, _turned)
        actions[SIGNS_WITHIN] = partial(signs, _turned_within)
        cases = {code: partial(loop, emit) for code, emit in actions.items()}
        branch(builder, args[3], cases)
        return context.get_dummy_value()

    numbers = [types.int64] * 4
    return types.void(parts, masks, tile, *numbers, loops), generate


def _turned_within(tile, offsets, masks):
    """Return real values times signs, between two transforms within vectors."""
    builder = tile.builder
    value = _hadamard_within(builder, tile.load(offsets[0]))
    values = _negate(builder, [value] * len(masks), masks)
    return [_hadamard_within(builder, value) for value in values]


def _turned(tile, offsets, masks):
    """Return values times signs, or the complex product if there are two parts."""
    builder, values = tile.builder, [tile.load(offset) for offset in offsets]
    if len(values) == 1:
        return _negate(builder, values, masks)
    (x, y), (c, s) = values, masks
    cx, sy, cy, sx = _negate(builder, [x, y, y, x], [c, s, c, s])
    return [builder.fsub(cx, sy), builder.fadd(cy, sx)]


@intrinsic
def expand_signs(typing_context, masks, position, word, like):
    """Write the 64 bits of a word, lowest first, as the masks of 64 / G vectors.

    Each of a vector's G entries takes one bit, for all the ROWS rows of X; `like` is
    an array of the dtype of the vectors.
    """
    group = entries(np.dtype(like.dtype.name))

    def generate(context, builder, signature, args):
        masks = Memory(context, builder, signature.args[0], args[0])
        n = 64 // group
        wide, narrow = (ir.VectorType(ir.IntType(bits), n) for bits in (64, 16))
        words = splat(builder, wide, args[2])
        shifted = builder.lshr(words, wide([group * i for i in range(n)]))
        bits = builder.trunc(shifted, narrow)
        bits = builder.and_(bits, narrow([(1 << group) - 1] * n))
        # Move bit k to bit ROWS·k, and copy it from there to the bits of all rows.
        spread = bits
        for k in range(1, group):
            shifted = builder.shl(bits, narrow([(ROWS - 1) * k] * n))
            spread = builder.or_(spread, shifted)
        spread = builder.and_(spread, narrow([0x1111] * n))
        filled = builder.mul(spread, narrow([(1 << ROWS) - 1] * n))
        start = builder.bitcast(masks.pointer(args[1]), narrow.as_pointer())
        builder.store(filled, start, align=masks.item_bytes)
        return context.get_dummy_value()

    return types.void(masks, types.int64, types.uint64, like), generate


@intrinsic
def load_columns(
    typing_context, X, offset, pitch, n_rows, scale, column, masks, mask, tile, row
):
    """Write ROWS·G columns of ROWS rows of X, scaled and signed, to ROWS vectors.

    X[offset + r·pitch + k]·scale[column + k] with the signs of the masks from `mask`
    on goes to vector row + k // G of the tile. Rows from `n_rows` on repeat the last
    one.
    """

    def generate(context, builder, signature, args):
        source, scales, masks, tile = memories(context, builder, signature, args)
        offset, pitch, n_rows = args[1:4]
        factor = scales.load(args[5])
        values = []
        for r in range(ROWS):
            last = builder.sub(n_rows, count(1))
            inside = builder.icmp_signed("<", count(r), n_rows)
            row = builder.select(inside, count(r), last)
            at = builder.add(offset, builder.mul(row, pitch))
            values.append(builder.fmul(source.load(at), factor))
        n, size = tile.lanes, tile.lanes // ROWS
        lanes = [i % ROWS * size + i // ROWS for i in range(n)]
        blocks = _transpose_blocks(builder, values)
        values = [shuffle(builder, value, value, lanes) for value in blocks]
        positions = series(builder, args[9], count(1), ROWS)
        mask_at = series(builder, args[7], count(1), ROWS)
        signs = [masks.load_mask(position, n) for position in mask_at]
        tile.store_all(_negate(builder, values, signs), tile.offsets(positions))
        return context.get_dummy_value()

    int64 = types.int64
    place = scale, int64, masks, int64, tile, int64
    return types.void(X, int64, int64, int64, *place), generate


@intrinsic
def project_rows(
    typing_context, parts, tile, position, norms, column, target, offset, pitch
):
    """Write ROWS·G columns of a transform in row order, times their norms.

    The entries of ROWS vectors from `position` on are transformed inside the vectors
    and multiplied by the norms from `column` on. Row r is written from
    target[offset + r·pitch] on, its imaginary part, if any, ROWS rows later.
    """

    def generate(context, builder, signature, args):
        tile, norms, target = memories(context, builder, signature, args)
        norm = norms.load(args[4])
        n, size = tile.lanes, tile.lanes // ROWS
        lanes = [i % size * ROWS + i // size for i in range(n)]
        to = series(builder, args[6], args[7], ROWS * parts.count)
        for part in range(parts.count):
            at = builder.add(args[2], builder.extract_value(args[0], part))
            offsets = tile.offsets(series(builder, at, count(1), ROWS))
            values = [_hadamard_within(builder, tile.load(entry)) for entry in offsets]
            blocks = [shuffle(builder, value, value, lanes) for value in values]
            for r, value in enumerate(_transpose_blocks(builder, blocks)):
                target.store(builder.fmul(norm, value), to[ROWS * part + r])
        return context.get_dummy_value()

    int64 = types.int64
    return types.void(parts, tile, int64, norms, int64, target, int64, int64), generate


@intrinsic
def copy_elements(typing_context, source, first, target, offset, n):
    """Copy n elements."""

    def generate(context, builder, signature, args):
        source, target = memories(context, builder, signature, args)
        start, end = source.pointer(args[1]), target.pointer(args[3])
        raw_memcpy(builder, end, start, args[4], source.item_bytes, source.item_bytes)
        return context.get_dummy_value()

    int64 = types.int64
    return types.void(source, int64, target, int64, int64), generate
