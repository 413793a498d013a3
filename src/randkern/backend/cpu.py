"""Array primitives compiled by Numba; products by NumPy's BLAS.

``math.cos`` and ``math.floor`` keep a compiled loop scalar, at some 10 ns per
element. The functions here are branch-free polynomials of one element, inlined
into the calling loop, where they become vector instructions (about 0.1 ns per
element and core with AVX-512 in float32).

Each comes in two ranges. The fast one (:func:`cos_sin_f32`,
:func:`cos_sin_f64`) is accurate up to ``FAST_LIMIT_F32`` or ``FAST_LIMIT_F64``
and wrong, though finite, beyond. The wide one (:func:`cos_sin_f32_wide`,
:func:`cos_sin_f64_wide`) is accurate everywhere, but slow. A loop checks a tile
of values once, with :func:`is_fast`, and then runs one of the two, so that the
inner loop has no branch. Both return nan for inf and nan (a tile that contains one
of these uses the wide range).

References
----------
The reduction in three constants is that of W. J. Cody and W. Waite, *Software
Manual for the Elementary Functions* (1980), section 8; the rounding to an
integer by adding and subtracting 1.5·2^(p-1) (p = 24 or 53 bits) assumes the
rounding mode of IEEE 754's default.

Every function has an oracle with the same signature in
``tests/oracles/primitives.py``. All write into `out`, whose rows must be
contiguous but may be any distance apart (a range of columns of a wider array);
inputs may be read-only. The results do not depend on the number of threads, except
for BLAS products, which agree to rounding.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from randkern.backend.compiled_loops import (
    check_out,
    input_rows,
    output_rows,
    run_over_ranges,
)

# Up to these limits, the products of the quotient with the first constants of the
# reduction are exact, with or without fused multiply-add.
FAST_LIMIT_F32 = np.float32(12800.0)
FAST_LIMIT_F64 = np.float64(1.0e6)

ROUND_F32 = np.float32(1.5 * 2**23)
_ROUND_F64 = np.float64(1.5 * 2**52)

# pi = 3.140625 (8 bits) + 11 bits + 24 bits: |k| < 2^12 keeps k * PI1 and
# k * PI2 exact in float32.
_PI_F32 = np.float32(math.pi)
INVERSE_PI_F32 = np.float32(1.0 / math.pi)
PI_PARTS_F32 = np.array(
    [3.140625, 0.000967502593994140625, 1.5099580252808664e-7], np.float32
)
_PI1_F32, _PI2_F32, _PI3_F32 = PI_PARTS_F32

# Minimax on |r| <= pi/2, in z = r^2: sin r = r + r z S(z), cos r = 1 + z C(z), lowest
# powers first; the polynomials' own errors are 4.7e-9 and 2.5e-10.
SINE_F32 = np.array(
    [-1.66666571e-01, 8.33301636e-03, -1.98065471e-04, 2.59990324e-06], np.float32
)
COSINE_F32 = np.array(
    [-4.99999995e-1, 4.16666406e-2, -1.38884021e-3, 2.47618081e-5, -2.60756625e-7],
    np.float32,
)
_S0_F32, _S1_F32, _S2_F32, _S3_F32 = SINE_F32
_C0_F32, _C1_F32, _C2_F32, _C3_F32, _C4_F32 = COSINE_F32
_ONE_F32 = np.float32(1.0)

# pi/2 = 33 bits + 33 bits + the rest: |k| < 2^20 keeps the products exact.
_INVERSE_HALF_PI = np.float64(2.0 / math.pi)
_HALF_PI1 = np.float64(float.fromhex("0x1.921fb54400000p+0"))
_HALF_PI2 = np.float64(float.fromhex("0x1.0b4611a600000p-34"))
_HALF_PI3 = np.float64(float.fromhex("0x1.3198a2e037073p-69"))

# The kernels of fdlibm (Sun Microsystems, 1993) on |r| <= pi/4.
_S0_F64, _S1_F64 = -1.66666666666666324348e-01, 8.33333333332248946124e-03
_S2_F64, _S3_F64 = -1.98412698298579493134e-04, 2.75573137070700676789e-06
_S4_F64, _S5_F64 = -2.50507602534068634195e-08, 1.58969099521155010221e-10
_C0_F64, _C1_F64 = 4.16666666666666019037e-02, -1.38888888888741095749e-03
_C2_F64, _C3_F64 = 2.48015872894767294178e-05, -2.75573143513906633035e-07
_C4_F64, _C5_F64 = 2.08757232129817482790e-09, -1.13596475577881948265e-11

# Only "contract": fused multiply-adds where the processor has them, but no
# reassociation, which would undo the rounding trick and the reduction.
_inline = njit(forceinline=True, fastmath={"contract"})


# Numba's `view` only accepts a variable that was cast to a NumPy scalar.
@_inline
def bits_of_f32(x: Any) -> np.int32:
    """Return the bits of a float32."""
    value = np.float32(x)
    return value.view(np.int32)


@_inline
def bits_of_f64(x: Any) -> np.int64:
    """Return the bits of a float64."""
    value = np.float64(x)
    return value.view(np.int64)


@_inline
def f32_of_bits(bits: Any) -> np.float32:
    """Return the float32 with the lowest 32 of some bits."""
    value = np.int32(bits)
    return value.view(np.float32)


@_inline
def f64_of_bits(bits: Any) -> np.float64:
    """Return the float64 with some bits."""
    value = np.int64(bits)
    return value.view(np.float64)


@_inline
def _cos_sin_reduced_f32(r: np.float32) -> tuple[np.float32, np.float32]:
    z = r * r
    sine = (((_S3_F32 * z + _S2_F32) * z + _S1_F32) * z + _S0_F32) * z
    sine = sine * r + r
    cosine = ((_C4_F32 * z + _C3_F32) * z + _C2_F32) * z + _C1_F32
    cosine = (cosine * z + _C0_F32) * z + _ONE_F32
    return cosine, sine


@_inline
def cos_sin_half_turn_f32(v: np.float32) -> tuple[np.float32, np.float32]:
    """Return (cos pi v, sin pi v) for |v| <= 1/2, to full relative precision."""
    return _cos_sin_reduced_f32(v * _PI_F32)


@_inline
def cos_sin_f32(x: Any) -> tuple[np.float32, np.float32]:
    """Return (cos x, sin x) for |x| <= FAST_LIMIT_F32, absolute error at most 2^-22."""
    shifted = x * INVERSE_PI_F32 + ROUND_F32
    k = shifted - ROUND_F32
    r = ((x - k * _PI1_F32) - k * _PI2_F32) - k * _PI3_F32
    cosine, sine = _cos_sin_reduced_f32(r)
    # The lowest bit of the shifted quotient is the parity of k, and flips both.
    flip = bits_of_f32(shifted) << 31
    cosine = f32_of_bits(bits_of_f32(cosine) ^ flip)
    sine = f32_of_bits(bits_of_f32(sine) ^ flip)
    return cosine, sine


@_inline
def cos_sin_f64(x: Any) -> tuple[np.float64, np.float64]:
    """Return (cos x, sin x) for |x| <= FAST_LIMIT_F64, absolute error at most 4e-16."""
    shifted = x * _INVERSE_HALF_PI + _ROUND_F64
    k = shifted - _ROUND_F64
    r = ((x - k * _HALF_PI1) - k * _HALF_PI2) - k * _HALF_PI3
    z = r * r
    s = ((_S5_F64 * z + _S4_F64) * z + _S3_F64) * z + _S2_F64
    s = (((s * z + _S1_F64) * z + _S0_F64) * z) * r + r
    c = ((_C5_F64 * z + _C4_F64) * z + _C3_F64) * z + _C2_F64
    c = ((c * z + _C1_F64) * z + _C0_F64) * z
    c = (c * z) + (1.0 - 0.5 * z)
    quadrant = bits_of_f64(shifted)
    odd = (quadrant & 1) != 0
    cosine = s if odd else c
    sine = c if odd else s
    # cos changes sign in quadrants 1 and 2, sin in 2 and 3.
    cosine = f64_of_bits(bits_of_f64(cosine) ^ ((quadrant + 1) >> 1 << 63))
    sine = f64_of_bits(bits_of_f64(sine) ^ (quadrant >> 1 << 63))
    return cosine, sine


@njit(fastmath=False)
def cos_sin_f64_wide(x: Any) -> tuple[float, float]:
    """Return (cos x, sin x) of any float64 by the C library; nan for inf."""
    return math.cos(x), math.sin(x)


@njit(fastmath=False)
def cos_sin_f32_wide(x: Any) -> tuple[np.float32, np.float32]:
    """Return (cos x, sin x) of any float32, reduced in float64; nan for inf."""
    y = np.float64(x)
    if abs(y) <= FAST_LIMIT_F64:
        cosine, sine = cos_sin_f64(y)
    else:
        cosine, sine = math.cos(y), math.sin(y)
    return np.float32(cosine), np.float32(sine)


def cos_sin(x: Any) -> Any:
    """Return (cos x, sin x) by :func:`cos_sin_f32` or :func:`cos_sin_f64`.

    In compiled code the type of `x` selects the function at compile time; from
    Python, NumPy computes the values.
    """
    return np.cos(x), np.sin(x)


def cos_sin_wide(x: Any) -> Any:
    """Return (cos x, sin x) for any `x`; otherwise like :func:`cos_sin`."""
    return np.cos(x), np.sin(x)


def is_fast(values: Any) -> bool:
    """Return whether all values of a vector are in the fast range of their dtype.

    Compiled, the largest absolute value is found on the bit patterns as integers, which
    have the order of the values, with nan above inf: unlike a floating-point maximum,
    that loop vectorises.
    """
    single = values.dtype == np.float32
    limit = FAST_LIMIT_F32 if single else FAST_LIMIT_F64
    return bool(np.all(np.abs(values) <= limit))


# Compiled code calls the function for its dtype by the general name.
@overload(cos_sin, jit_options={"forceinline": True, "fastmath": {"contract"}})
def _overload_cos_sin(x: Any) -> Callable[[Any], Any]:
    return cos_sin_f32.py_func if x == types.float32 else cos_sin_f64.py_func


@overload(cos_sin_wide)
def _overload_cos_sin_wide(x: Any) -> Callable[[Any], Any]:
    return (cos_sin_f32_wide if x == types.float32 else cos_sin_f64_wide).py_func


@overload(is_fast)
def _overload_is_fast(values: Any) -> Callable[[Any], bool]:
    single = values.dtype == types.float32
    integer = np.int32 if single else np.int64
    bits_of = bits_of_f32 if single else bits_of_f64
    limit = integer((FAST_LIMIT_F32 if single else FAST_LIMIT_F64).view(integer))
    magnitude, zero = integer(np.iinfo(integer).max), integer(0)

    def implementation(values: Any) -> bool:
        largest = zero
        for i in range(values.shape[0]):
            bits = integer(bits_of(values[i]) & magnitude)
            largest = bits if bits > largest else largest
        return largest <= limit

    return implementation


_TILE = 1024  # phases per range check, in the L1 cache

_compiled = njit(nogil=True, cache=True)
_contracted = njit(nogil=True, cache=True, fastmath={"contract"})


def _amplitude_of(amplitude, shape, dtype):
    """Return the amplitudes, or an empty array if there are none."""
    if amplitude is None:
        return np.empty((1, 0), dtype)
    if amplitude.shape != shape:
        raise ValueError(f"amplitude must have shape {shape}, got {amplitude.shape}.")
    return amplitude


def _run(function, inputs, numbers, out, nanoseconds):
    """Run a compiled function over ranges of rows, with flat views of the arrays."""
    if out.size == 0:
        return
    flat = [input_rows(array, out.dtype) for array in inputs]
    target, m = output_rows(out), inputs[0].shape[1]

    def task(start: int, stop: int) -> None:
        function(*flat, *numbers, target, (start, stop), m)

    run_over_ranges(task, len(out), nanoseconds)


@_compiled
def _part(rows, i, j, n):
    """Return n entries of row i, from column j on."""
    flat, stride = rows
    return flat[i * stride + j : i * stride + j + n]


@_compiled
def _cos_sin_tile(phase, weight, out):
    if is_fast(phase):
        for j in range(phase.shape[0]):
            cosine, sine = cos_sin(phase[j])
            out[2 * j] = weight * cosine
            out[2 * j + 1] = weight * sine
    else:
        for j in range(phase.shape[0]):
            cosine, sine = cos_sin_wide(phase[j])
            out[2 * j] = weight * cosine
            out[2 * j + 1] = weight * sine


@_compiled
def _cos_sin_pairs(phase, amplitude, weight, out, rows, m):
    for i in range(rows[0], rows[1]):
        for j in range(0, m, _TILE):
            n = min(_TILE, m - j)
            tile = _part(out, i, 2 * j, 2 * n)
            _cos_sin_tile(_part(phase, i, j, n), weight, tile)
            if amplitude[0].shape[0] > 0:
                factor = _part(amplitude, i, j, n)
                for k in range(n):
                    tile[2 * k] *= factor[k]
                    tile[2 * k + 1] *= factor[k]


def cos_sin_pairs(
    phase: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    r"""Write weighted cosines and sines of phases, interleaved.

    .. math:: out_{i,2j} = w A_{ij} \cos\phi_{ij},\quad
              out_{i,2j+1} = w A_{ij} \sin\phi_{ij}

    `phase` is (n, m), in radians, `amplitude` A too (None: 1), and `out` (n, 2m). nan
    and inf give nan.
    """
    n, m = phase.shape
    dtype = check_out(out, (n, 2 * m))
    inputs = phase, _amplitude_of(amplitude, phase.shape, dtype)
    _run(_cos_sin_pairs, inputs, (dtype.type(weight),), out, 0.15 * out.nbytes)


@_compiled
def _cosine_tile(angle, weight):
    if is_fast(angle):
        for j in range(angle.shape[0]):
            angle[j] = weight * cos_sin(angle[j])[0]
    else:
        for j in range(angle.shape[0]):
            angle[j] = weight * cos_sin_wide(angle[j])[0]


@_compiled
def _cosines(phase, amplitude, offsets, weight, out, rows, m):
    for i in range(rows[0], rows[1]):
        for j in range(0, m, _TILE):
            n = min(_TILE, m - j)
            tile, angle = _part(out, i, j, n), _part(phase, i, j, n)
            offset = offsets[j : j + n]
            for k in range(n):
                tile[k] = angle[k] + offset[k]
            _cosine_tile(tile, weight)
            if amplitude[0].shape[0] > 0:
                factor = _part(amplitude, i, j, n)
                for k in range(n):
                    tile[k] *= factor[k]


def cosines(
    phase: np.ndarray,
    offsets: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    r"""Write weighted cosines of shifted phases.

    .. math:: out_{ij} = w A_{ij} \cos(\phi_{ij} + b_j)

    Phases (n, m), which may be `out`, and offsets b (m,) are in radians. nan and inf
    give nan.
    """
    n, m = phase.shape
    dtype = check_out(out, (n, m))
    if offsets.shape != (m,):
        raise ValueError(f"offsets must have shape ({m},), got {offsets.shape}.")
    inputs = phase, _amplitude_of(amplitude, phase.shape, dtype)
    numbers = np.ascontiguousarray(offsets, dtype), dtype.type(weight)
    _run(_cosines, inputs, numbers, out, 0.25 * out.nbytes)


@_contracted
def _modulus_power(real, imag, half_power, weight, out, rows, m):
    for i in range(rows[0], rows[1]):
        x, y, z = _part(real, i, 0, m), _part(imag, i, 0, m), _part(out, i, 0, m)
        if half_power == 1.0:
            for j in range(m):
                z[j] = weight * (x[j] * x[j] + y[j] * y[j])
        elif half_power == 0.5:
            for j in range(m):
                z[j] = weight * math.sqrt(x[j] * x[j] + y[j] * y[j])
        elif half_power == 1.5:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * (square * math.sqrt(square))
        elif half_power == 2.0:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * (square * square)
        else:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * square**half_power


def modulus_power(
    real: np.ndarray, imag: np.ndarray, power: float, weight: float, out: np.ndarray
) -> None:
    r"""Write weighted powers of the modulus of complex numbers.

    .. math:: out_{ij} = w\,(\mathrm{re}_{ij}^2 + \mathrm{im}_{ij}^2)^{p/2}

    All arrays are (n, m); `out` may be `real` or `imag`. Squares must not overflow in
    the dtype of `out`. The powers 1, 2, 3 and 4 have vectorised loops.
    """
    n, m = real.shape
    dtype = check_out(out, (n, m))
    if imag.shape != (n, m):
        raise ValueError(f"imag must have the shape of real, {n, m}, got {imag.shape}.")
    if not power > 0:
        raise ValueError(f"power must be positive, got {power}.")
    numbers = dtype.type(0.5 * power), dtype.type(weight)
    nanoseconds = 0.5 if power in (1, 2, 3, 4) else 10.0
    _run(_modulus_power, (real, imag), numbers, out, nanoseconds * out.size)
