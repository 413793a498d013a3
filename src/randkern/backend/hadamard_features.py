"""From a tile to features: vector instructions of the last step of the kernels.

The cosines are those of :mod:`randkern.backend.trig`, with its constants, on vectors
as wide as the machine has (a loop over that module's functions gets half of AVX-512).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from randkern.backend import trig
from randkern.backend.hadamard_vectors import (
    ROWS,
    Memory,
    Vectors,
    branch,
    count,
    memories,
    series,
    shuffle,
    turn_to_rows,
)

__all__ = ["COSINES", "MODULUS", "PAIRS", "PROJECT", "store_features"]

# What is made of a projection; MODULUS + m is the m-th power of the modulus.
PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3
_FAST_POWERS = (1, 2, 3, 4)

_FUSED = ("contract",)


@intrinsic
def store_features(
    typing_context: Any,
    parts: Any,
    kind: Any,
    tile: Any,
    position: Any,
    norms: Any,
    phases: Any,
    column: Any,
    weight: Any,
    limit: Any,
    targets: Any,
    offsets: Any,
    pitches: Any,
) -> Any:
    """Make features of ROWS vectors of a tile, and store them in row order.

    The ROWS·G entries of each row are transformed inside the vectors, multiplied by
    the norms from `column` on, and made what `kind` says. Feature k of row r goes to
    targets[0][offsets[0] + r·pitches[0] + k]; the imaginary parts of a projection to
    targets[1]. Returns whether some phase is beyond `limit`, where the cosines are
    wrong.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emitter = _Emitter(context, builder, signature, args)
        far = builder.alloca(ir.IntType(64))
        builder.store(count(0), far)

        def cosines(interleaved: bool) -> None:
            builder.store(emitter.store_cosines(interleaved), far)

        cases: dict[int, Callable[[], None]] = {PROJECT: emitter.store_projection}
        if parts.count == 1:
            cases[PAIRS] = partial(cosines, True)
            cases[COSINES] = partial(cosines, False)
        else:
            for power in _FAST_POWERS:
                cases[MODULUS + power] = partial(emitter.store_modulus, power)
        branch(builder, args[1], cases)
        return builder.load(far)

    int64 = types.int64
    return types.int64(
        *(parts, int64, tile, int64, norms, phases, int64, weight, limit),
        *(targets, types.UniTuple(int64, 2), types.UniTuple(int64, 2)),
    ), generate


class _Emitter:
    """Stores what is made of the projections of ROWS rows, one vector a row."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        parts, _, _, position, _, _, column, weight, limit = args[:9]
        tile, norms, phases = memories(context, builder, signature, args)
        self._builder = builder
        self._type = tile.vector
        self._weight, self._limit = tile.splat(weight), tile.splat(limit)
        self._phase = phases.load(column)
        norm = norms.load(column)
        self._rows: list[Vectors] = []
        for i in range(signature.args[0].count):
            at = builder.add(position, builder.extract_value(parts, i))
            values = turn_to_rows(builder, tile, at)
            self._rows.append([builder.fmul(norm, value) for value in values])
        self._outs = []
        for i in range(2):
            array, offset, pitch = (builder.extract_value(each, i) for each in args[9:])
            target = Memory(context, builder, signature.args[9].dtype, array)
            self._outs.append((target, series(builder, offset, pitch, ROWS)))

    def _constant(self, value: float) -> Any:
        element = ir.Constant(self._type.element, float(value))
        return ir.Constant(self._type, [element] * self._type.count)

    def store_projection(self) -> None:
        for values, (target, offsets) in zip(self._rows, self._outs, strict=False):
            for value, offset in zip(values, offsets, strict=True):
                target.store(value, offset)

    def store_cosines(self, interleaved: bool) -> Any:
        """Store cosines, and sines in between; return whether a phase is too far."""
        builder, n = self._builder, self._type.count
        target, offsets = self._outs[0]
        far = ir.Constant(ir.VectorType(ir.IntType(1), n), [0] * n)
        cos_sin = _cos_sin_f32 if n == 16 else _cos_sin_f64
        for value, offset in zip(self._rows[0], offsets, strict=True):
            angle = builder.fadd(value, self._phase)
            size = _bits_and(builder, angle, (1 << (512 // n - 1)) - 1)
            beyond = builder.fcmp_unordered(">", size, self._limit)
            far = builder.or_(far, beyond)
            results = cos_sin(builder, angle, self._constant)
            cosine, sine = (builder.fmul(self._weight, each) for each in results)
            if not interleaved:
                target.store(cosine, offset)
                continue
            lanes = [i // 2 + n * (i % 2) for i in range(2 * n)]
            target.store(shuffle(builder, cosine, sine, lanes[:n]), offset)
            after = builder.add(offset, count(n))
            target.store(shuffle(builder, cosine, sine, lanes[n:]), after)
        bits = builder.bitcast(far, ir.IntType(n))
        return builder.zext(bits, ir.IntType(64))

    def store_modulus(self, power: int) -> None:
        builder = self._builder
        target, offsets = self._outs[0]
        name = f"llvm.sqrt.v{self._type.count}f{512 // self._type.count}"
        root_type = ir.FunctionType(self._type, [self._type])
        root = builder.module.declare_intrinsic(name, fnty=root_type)
        for x, y, offset in zip(*self._rows, offsets, strict=True):
            square = builder.fadd(builder.fmul(x, x), builder.fmul(y, y))
            value = square
            if power in (1, 3):
                value = builder.call(root, [square])
            if power >= 3:
                value = builder.fmul(square, value)
            target.store(builder.fmul(self._weight, value), offset)


def _integers(builder: Any, value: Any) -> Any:
    n = value.type.count
    return builder.bitcast(value, ir.VectorType(ir.IntType(512 // n), n))


def _integer_constant(like: Any, value: int) -> Any:
    return ir.Constant(like.type, [value] * like.type.count)


def _bits_and(builder: Any, value: Any, mask: int) -> Any:
    bits = _integers(builder, value)
    masked = builder.and_(bits, _integer_constant(bits, mask))
    return builder.bitcast(masked, value.type)


def _flip_signs(builder: Any, value: Any, bits: Any) -> Any:
    return builder.bitcast(builder.xor(_integers(builder, value), bits), value.type)


class _Arithmetic:
    """Fused where the machine can; every shape of the loop is fused alike."""

    def __init__(self, builder: Any, constant: Callable[[float], Any]) -> None:
        self.builder = builder
        self.constant = constant

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FUSED)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FUSED)

    def subtract(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_FUSED)

    def horner(self, z: Any, *coefficients: Any) -> Any:
        """Return the polynomial in z, highest coefficient first."""
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.add(self.multiply(value, z), self.constant(coefficient))
        return value

    def reduce(self, x: Any, inverse: Any, rounding: Any, *steps: Any) -> Any:
        """Return (x·inverse + rounding, x less its nearest multiple of the steps)."""
        shift = self.constant(rounding)
        shifted = self.add(self.multiply(x, self.constant(inverse)), shift)
        k = self.subtract(shifted, shift)
        for step in steps:
            x = self.subtract(x, self.multiply(k, self.constant(step)))
        return shifted, x


def _cos_sin_f32(builder: Any, x: Any, constant: Any) -> tuple[Any, Any]:
    """Emit :func:`randkern.backend.trig.cos_sin_f32` on a vector."""
    do = _Arithmetic(builder, constant)
    shifted, r = do.reduce(
        *(x, trig._INVERSE_PI_F32, trig._ROUND_F32),
        *(trig._PI1_F32, trig._PI2_F32, trig._PI3_F32),
    )
    z = do.multiply(r, r)
    s = do.horner(z, trig._S3_F32, trig._S2_F32, trig._S1_F32, trig._S0_F32)
    sine = do.add(do.multiply(do.multiply(s, z), r), r)
    coefficients = (trig._C4_F32, trig._C3_F32, trig._C2_F32, trig._C1_F32)
    cosine = do.horner(z, *coefficients, trig._C0_F32, trig._ONE_F32)
    bits = _integers(builder, shifted)
    flip = builder.shl(bits, _integer_constant(bits, 31))
    return _flip_signs(builder, cosine, flip), _flip_signs(builder, sine, flip)


def _cos_sin_f64(builder: Any, x: Any, constant: Any) -> tuple[Any, Any]:
    """Emit :func:`randkern.backend.trig.cos_sin_f64` on a vector."""
    do = _Arithmetic(builder, constant)
    shifted, r = do.reduce(
        *(x, trig._INVERSE_HALF_PI, trig._ROUND_F64),
        *(trig._HALF_PI1, trig._HALF_PI2, trig._HALF_PI3),
    )
    z = do.multiply(r, r)
    odd_powers = (trig._S5_F64, trig._S4_F64, trig._S3_F64, trig._S2_F64)
    s = do.horner(z, *odd_powers, trig._S1_F64, trig._S0_F64)
    s = do.add(do.multiply(do.multiply(s, z), r), r)
    even_powers = (trig._C5_F64, trig._C4_F64, trig._C3_F64, trig._C2_F64)
    c = do.multiply(do.horner(z, *even_powers, trig._C1_F64, trig._C0_F64), z)
    near = do.subtract(constant(1.0), do.multiply(constant(0.5), z))
    c = do.add(do.multiply(c, z), near)
    quadrant = _integers(builder, shifted)
    one = _integer_constant(quadrant, 1)
    low_bit = builder.and_(quadrant, one)
    odd = builder.icmp_signed("!=", low_bit, _integer_constant(quadrant, 0))
    cosine, sine = builder.select(odd, s, c), builder.select(odd, c, s)
    sign_bit = _integer_constant(quadrant, 63)
    # cos changes sign in quadrants 1 and 2, sin in 2 and 3.
    second = builder.lshr(builder.add(quadrant, one), one)
    third = builder.lshr(quadrant, one)
    cosine = _flip_signs(builder, cosine, builder.shl(second, sign_bit))
    return cosine, _flip_signs(builder, sine, builder.shl(third, sign_bit))
