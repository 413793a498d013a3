"""Cosines, sines and logarithms in Triton, and features of phases.

The polynomials of :mod:`randkern.backend.trig` and :mod:`randkern.backend.counter`,
which have no slow branch: with the functions of the CUDA library each of thousands of
entries brings the code of a reduction for huge arguments with it.
"""

import math

import torch
import triton
import triton.language as tl

from randkern.backend import counter, trig

#: Options of every kernel: the reductions are written for fused multiply-adds.
LAUNCH = {"enable_fp_fusion": True}
# Phases of a tile.
_MOST_PHASES = 1024

_S0, _S1, _S2, _S3 = (tl.constexpr(float(each)) for each in trig.SINE_F32)
_C0, _C1, _C2, _C3, _C4 = (tl.constexpr(float(each)) for each in trig.COSINE_F32)
_PI1, _PI2, _PI3 = (tl.constexpr(float(each)) for each in trig.PI_PARTS_F32)
_INVERSE_PI = tl.constexpr(float(trig.INVERSE_PI_F32))
_INVERSE_PI_F64 = tl.constexpr(1.0 / math.pi)
_PI_F64, _PI_REST_F64 = tl.constexpr(math.pi), tl.constexpr(1.2246467991473532e-16)
_LARGEST = tl.constexpr(2.0**53)
_FAST_LIMIT = tl.constexpr(float(trig.FAST_LIMIT_F32))
_ROUND = tl.constexpr(float(trig.ROUND_F32))
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7 = (
    tl.constexpr(float(each)) for each in counter.LOG_F32
)
_SQRT_HALF_BITS = tl.constexpr(int(counter.SQRT_HALF_BITS))
_LN2 = tl.constexpr(math.log(2.0))


@triton.jit
def cos_sin_reduced(r):
    """Return cos r and sin r for |r| ≤ π/2."""
    z = r * r
    sine = (((_S3 * z + _S2) * z + _S1) * z + _S0) * z
    sine = sine * r + r
    cosine = ((_C4 * z + _C3) * z + _C2) * z + _C1
    cosine = (cosine * z + _C0) * z + 1.0
    return cosine, sine


@triton.jit
def _reduced(x):
    """Return x − kπ within ±π/2, and k's parity as a sign bit, for x up to a limit."""
    shifted = x * _INVERSE_PI + _ROUND
    k = shifted - _ROUND
    r = ((x - k * _PI1) - k * _PI2) - k * _PI3
    return r, shifted.to(tl.uint32, bitcast=True) << 31


@triton.jit
def _reduced_wide(x):
    """Return what :func:`_reduced` does, for all numbers, in float64.

    Not by tl.cos: for each entry that brings the code of a reduction in integers, and
    registers for it, which the fast path goes without.
    """
    wide = x.to(tl.float64)
    k = tl.floor(wide * _INVERSE_PI_F64 + 0.5)
    r = tl.fma(-k, _PI_REST_F64, tl.fma(-k, _PI_F64, wide)).to(tl.float32)
    # Larger numbers are multiples of 2^30: one phase is as good as another. inf is nan.
    r = tl.where(tl.abs(x) < _LARGEST, r, 0.0 * x)
    return r, k.to(tl.int64).to(tl.uint32) << 31


@triton.jit
def cos_sin(x):
    """Return the cosines and sines of a tile."""
    if tl.max(tl.abs(x)) <= _FAST_LIMIT:
        r, flip = _reduced(x)
    else:
        r, flip = _reduced_wide(x)
    cosine, sine = cos_sin_reduced(r)
    cosine = (cosine.to(tl.uint32, bitcast=True) ^ flip).to(tl.float32, bitcast=True)
    sine = (sine.to(tl.uint32, bitcast=True) ^ flip).to(tl.float32, bitcast=True)
    return cosine, sine


@triton.jit
def log(u):
    """Return log u of normal 0 < u < inf."""
    bits = u.to(tl.int32, bitcast=True)
    exponent = (bits - _SQRT_HALF_BITS) >> 23
    f = (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0
    p = (((_P7 * f + _P6) * f + _P5) * f + _P4) * f + _P3
    p = ((p * f + _P2) * f + _P1) * f + _P0
    square = f * f
    return exponent.to(tl.float32) * _LN2 + (f + ((p * f) * square - 0.5 * square))


@triton.jit
def _cos_sin_kernel(
    phase,
    offsets,
    out,
    m,
    phase_stride,
    out_stride,
    weight,
    SHIFTED: tl.constexpr,
    WIDTH: tl.constexpr,
):
    n_tiles = tl.cdiv(m, WIDTH)
    row = (tl.program_id(0) // n_tiles).to(tl.int64)
    first = (tl.program_id(0) % n_tiles) * WIDTH
    column = first + tl.arange(0, WIDTH)
    x = tl.load(phase + row * phase_stride + column, mask=column < m, other=0.0)
    if SHIFTED:
        x += tl.load(offsets + column, mask=column < m, other=0.0)
        cosine, _ = cos_sin(x)
        to = out + row * out_stride + column
        tl.store(to, weight * cosine, mask=column < m)
    else:
        cosine, sine = cos_sin(x)
        value = tl.reshape(tl.join(weight * cosine, weight * sine), (2 * WIDTH,))
        column = 2 * first + tl.arange(0, 2 * WIDTH)
        tl.store(out + row * out_stride + column, value, mask=column < 2 * m)


def cos_sin_features(phase, weight, out, offsets=None):
    """Write weighted cosines and sines, interleaved, or cosines of shifted phases.

    Parameters
    ----------
    phase : float32 tensor of shape (n, m), contiguous along its columns
    weight : float
    out : float32 tensor of shape (n, 2m), or (n, m) with offsets
        Contiguous along its columns.
    offsets : float32 tensor of shape (m,), optional
    """
    n, m = phase.shape
    if n * m == 0:
        return
    width = min(_MOST_PHASES, triton.next_power_of_2(m))
    with torch.cuda.device_of(phase):  # where Triton launches
        _cos_sin_kernel[(n * triton.cdiv(m, width),)](
            *(phase, phase if offsets is None else offsets.contiguous(), out),
            *(m, phase.stride(0), out.stride(0), float(weight)),
            SHIFTED=offsets is not None,
            WIDTH=width,
            **LAUNCH,
        )
