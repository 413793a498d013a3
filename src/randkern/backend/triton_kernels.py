"""Fused kernels for GPUs, in Triton.

They use the polynomials of :mod:`randkern.backend.cpu` and
:mod:`randkern.backend.counter`, which have no slow branch: with the functions of the
CUDA library, each of thousands of entries would carry the code that reduces huge
arguments.

The kernel of Hadamard features is bound by instructions rather than memory: transforms
are only additions, log2 p of them per entry.

Matrices whose entries are functions of their position are never in memory. Every tile
generates its entries, so the product is bound by these instructions, whose cost is
shared by its rows.

The results equal those of :mod:`randkern.backend.torch_hadamard`,
:mod:`randkern.backend.torch_trig` and :mod:`randkern.backend.torch_random` to rounding;
these modules are used if Triton is not installed, for sizes that do not fit, and if a
gradient is needed.

With ``TRITON_INTERPRET=1`` in the environment Triton interprets the kernels on the CPU:
slowly, for tests.
"""

import math
import os

import torch
import triton
import triton.language as tl

from randkern.backend import counter, cpu

#: Options of every kernel: the reductions are written for fused multiply-adds.
LAUNCH = {"enable_fp_fusion": True}
# Phases per tile.
_MAX_PHASES = 1024

_S0, _S1, _S2, _S3 = (tl.constexpr(float(value)) for value in cpu.SINE_F32)
_C0, _C1, _C2, _C3, _C4 = (tl.constexpr(float(value)) for value in cpu.COSINE_F32)
_PI1, _PI2, _PI3 = (tl.constexpr(float(value)) for value in cpu.PI_PARTS_F32)
_INVERSE_PI = tl.constexpr(float(cpu.INVERSE_PI_F32))
_INVERSE_PI_F64 = tl.constexpr(1.0 / math.pi)
_PI_F64, _PI_REST_F64 = tl.constexpr(math.pi), tl.constexpr(1.2246467991473532e-16)
_LARGEST = tl.constexpr(2.0**53)
_FAST_LIMIT = tl.constexpr(float(cpu.FAST_LIMIT_F32))
_ROUND = tl.constexpr(float(cpu.ROUND_F32))
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7 = (
    tl.constexpr(float(value)) for value in counter.LOG_F32
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
    """Return the same as :func:`_reduced` for all numbers, in float64.

    tl.cos is avoided: for each entry it would add the code and registers of an integer
    reduction, which the fast path does not need.
    """
    wide = x.to(tl.float64)
    k = tl.floor(wide * _INVERSE_PI_F64 + 0.5)
    r = tl.fma(-k, _PI_REST_F64, tl.fma(-k, _PI_F64, wide)).to(tl.float32)
    # Larger numbers are multiples of 2^30, where any phase will do. inf gives nan.
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

    Tensors are float32 and contiguous along their columns.
    """
    n, m = phase.shape
    if n * m == 0:
        return
    width = min(_MAX_PHASES, triton.next_power_of_2(m))
    with torch.cuda.device_of(phase):  # Triton launches on the current device
        _cos_sin_kernel[(n * triton.cdiv(m, width),)](
            phase,
            phase if offsets is None else offsets.contiguous(),
            out,
            m,
            phase.stride(0),
            out.stride(0),
            float(weight),
            SHIFTED=offsets is not None,
            WIDTH=width,
            **LAUNCH,
        )


PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3
TILE_ENTRIES = 4096
# Smallest and largest blocks transformed in registers.
_MIN_BLOCK, _MAX_BLOCK = 64, 8192


def takes_block(p):
    """Return whether transforms of p entries are done in registers."""
    return _MIN_BLOCK <= p <= _MAX_BLOCK


@triton.jit
def _transform(Y, R: tl.constexpr, P: tl.constexpr, BITS: tl.constexpr):
    """Transform rows of (R, P).

    Each step adds and subtracts neighbours and moves the lowest bit of the index to the
    top: after all steps the original order is restored.
    """
    for _ in tl.static_range(BITS):
        a, b = tl.split(tl.reshape(Y, (R, P // 2, 2)))
        Y = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (R, P))
    return Y


@triton.jit
def _power(real, imag, HALF: tl.constexpr):
    square = real * real + imag * imag
    if HALF == 1.0:
        return square
    elif HALF == 2.0:
        return square * square
    elif HALF == 0.5:
        return tl.sqrt(square)
    elif HALF == 1.5:
        return square * tl.sqrt(square)
    else:
        return tl.where(square > 0, tl.exp(HALF * tl.log(square)), 0.0)


@triton.jit
def _signs(stage):
    """Return signs of a stage as a row of float32."""
    return tl.load(stage).to(tl.float32)[None, :]


@triton.jit
def _unitary(Y, stage, R: tl.constexpr, P: tl.constexpr, BITS: tl.constexpr):
    """Return the parts of H S₃ H S₂ Y, where S has entries (a + ib)/√2."""
    real = _transform(Y * _signs(stage + P), R, P, BITS)
    imag = _transform(Y * _signs(stage + 4 * P), R, P, BITS)
    a, b = 0.5 * _signs(stage + 2 * P), 0.5 * _signs(stage + 5 * P)
    turned = _transform(a * real - b * imag, R, P, BITS)
    return turned, _transform(a * imag + b * real, R, P, BITS)


@triton.jit
def _store(
    to, value, inside, first, low, high, COLUMNS: tl.constexpr, WIDTH: tl.constexpr
):
    """Write features of draws low to high, from draw `first`, COLUMNS per draw."""
    entry = tl.arange(0, WIDTH)
    draw = first + entry // COLUMNS
    wanted = (draw >= low) & (draw < high)
    column = COLUMNS * (first - low) + entry
    tl.store(to + column[None, :], value, mask=inside & wanted[None, :])


@triton.jit
def _hadamard_kernel(
    X,
    signs,
    norms,
    offsets,
    out,
    n,
    d,
    n_blocks,
    x_stride,
    out_stride,
    row_start,
    row_stop,
    first_block,
    scale,
    bias,
    weight,
    KIND: tl.constexpr,
    HALF: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
    BITS: tl.constexpr,
):
    # Programs that share rows run consecutively, so that the rows stay in the cache.
    block = tl.program_id(0) % n_blocks
    rows = (tl.program_id(0) // n_blocks).to(tl.int64) * R + tl.arange(0, R)
    entry = tl.arange(0, P)
    at = X + tl.minimum(rows, n - 1)[:, None] * x_stride + entry[None, :]
    Y = scale * tl.load(at, mask=(entry < d)[None, :], other=0.0)
    Y += tl.where(entry == d, bias, 0.0)[None, :]
    stage = signs + block.to(tl.int64) * 6 * P + entry
    Y = _transform(Y * _signs(stage), R, P, BITS)
    first = (block + first_block) * P
    column = first - row_start + entry
    wanted = (column >= 0) & (column < row_stop - row_start)
    norm = tl.load(norms + column, mask=wanted, other=0.0)[None, :]
    to, inside = out + rows[:, None] * out_stride, (rows < n)[:, None]
    if KIND == 3:
        real, imag = _unitary(Y, stage, R, P, BITS)
        value = weight * _power(real * norm, imag * norm, HALF)
        _store(to, value, inside, first, row_start, row_stop, 1, P)
    else:
        Y = _transform(Y * _signs(stage + P), R, P, BITS)
        value = _transform(Y * _signs(stage + 2 * P), R, P, BITS) * norm
        if KIND == 1:
            cosine, sine = cos_sin(value)
            value = tl.reshape(tl.join(weight * cosine, weight * sine), (R, 2 * P))
            _store(to, value, inside, first, row_start, row_stop, 2, 2 * P)
        else:
            if KIND == 2:
                value += tl.load(offsets + column, mask=wanted, other=0.0)[None, :]
                cosine, _ = cos_sin(value)
                value = weight * cosine
            _store(to, value, inside, first, row_start, row_stop, 1, P)


def warps(p):
    """Return the number of warps for a tile of transforms of p entries."""
    return max(4, p // 1024)


def hadamard_features(
    X,
    signs,
    norms,
    row_start,
    row_stop,
    kind,
    weight,
    out,
    *,
    scale=1.0,
    bias=0.0,
    offsets=None,
    power=2.0,
):
    """Write features of rows `row_start` to `row_stop` of a projection.

    X, float32 and contiguous along its columns, is multiplied by `scale`; its column d
    is taken to be `bias`, and further columns up to p to be 0. `signs`, of
    :func:`randkern.backend.torch_random.signs`, are those of the blocks that hold these
    rows, and `norms` theirs, divided by p^(3/2). PROJECT uses no weight.
    """
    (n, d), p = X.shape, signs.shape[2]
    if n == 0:
        return
    R = max(1, TILE_ENTRIES // p)
    grid = (triton.cdiv(n, R) * len(signs),)
    with torch.cuda.device_of(X):  # Triton launches on the current device
        _hadamard_kernel[grid](
            X,
            signs,
            norms,
            norms if offsets is None else offsets,
            out,
            n,
            d,
            len(signs),
            X.stride(0),
            out.stride(0),
            row_start,
            row_stop,
            row_start // p,
            float(scale),
            float(bias),
            float(weight),
            KIND=kind,
            HALF=power / 2,
            R=R,
            P=p,
            BITS=p.bit_length() - 1,
            num_warps=warps(p),
            **LAUNCH,
        )


#: Rows, draws, warps and stages of tiles, by the dtype of the product: as many rows as
#: fit in registers.
TILES = {
    "ieee": (128, 64, 4, 3),
    "tf32x3": (256, 64, 8, 2),
    "tf32": (256, 64, 8, 2),
}
_MIN_ROWS = 16
# GPUs whose tensor cores multiply in TF32 eight times as fast as their float32 units;
# on others three TF32 products take longer than one in float32.
_FAST_TF32 = {(8, 0), (9, 0), (10, 0), (10, 3)}
_TWO_TO_MINUS_32 = tl.constexpr(2.0**-32)
_PI_OF_WORD = tl.constexpr(math.pi * 2.0**-32)


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    M0: tl.constexpr = 0xD2511F53
    M1: tl.constexpr = 0xCD9E8D57
    for _ in tl.static_range(10):
        p0 = c0.to(tl.uint64) * M0
        p1 = c2.to(tl.uint64) * M1
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = p1.to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p0.to(tl.uint32)
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _normals(radius_word, angle_word):
    """Return the two normals from the words of columns j and j + 32."""
    u = (radius_word.to(tl.float32) + 1.0) * _TWO_TO_MINUS_32
    radius = tl.sqrt(-2.0 * log(u))
    # The low 31 bits are a signed fraction of a half turn, the top bit the half.
    fraction = (angle_word << 1).to(tl.int32, bitcast=True).to(tl.float32)
    cosine, sine = cos_sin_reduced(fraction * _PI_OF_WORD)
    radius = radius.to(tl.uint32, bitcast=True) | (angle_word & 0x80000000)
    radius = radius.to(tl.float32, bitcast=True)
    return radius * cosine, radius * sine


@triton.jit
def _leading(x):
    """Return float32 numbers cut to their 11 leading bits, the precision of TF32."""
    bits = x.to(tl.uint32, bitcast=True) & 0xFFFFE000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _add_product(
    total, at, column, d, w, PRECISION: tl.constexpr, MASKED: tl.constexpr
):
    """Return total + x w, where x is loaded from `at`, in columns below d."""
    if MASKED:
        x = tl.load(at, mask=column < d, other=0.0)
    else:
        x = tl.load(at)
    if PRECISION == "tf32x3":
        x_high, w_high = _leading(x), _leading(w)
        total = tl.dot(x - x_high, w_high, total, input_precision="tf32")
        total = tl.dot(x_high, w - w_high, total, input_precision="tf32")
        total = tl.dot(x_high, w_high, total, input_precision="tf32")
    else:
        total = tl.dot(x, w, total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["key_low", "key_high"])
def _generated_kernel(
    X,
    out,
    n,
    d,
    start,
    stop,
    x_stride,
    out_stride,
    key_low,
    key_high,
    scale,
    ROWS: tl.constexpr,
    DRAWS: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
):
    # Programs that share draws run consecutively, so that their rows of X stay in the
    # cache; every program generates its entries itself.
    n_tiles = tl.cdiv(n, ROWS)
    rows = (tl.program_id(0) % n_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    draws = start + (tl.program_id(0) // n_tiles) * DRAWS + tl.arange(0, DRAWS)
    lane = tl.arange(0, 16)
    at = X + tl.minimum(rows, n - 1)[:, None] * x_stride + lane[None, :]
    k0, k1 = key_low.to(tl.uint32), key_high.to(tl.uint32)
    c1 = tl.broadcast_to(draws.to(tl.uint32)[None, :], (16, DRAWS))
    zero = tl.zeros((16, DRAWS), dtype=tl.uint32)
    total = tl.zeros((ROWS, DRAWS), dtype=tl.float32)
    for first in range(0, d, 64):
        c0 = tl.broadcast_to((first // 4 + lane).to(tl.uint32)[:, None], (16, DRAWS))
        w0, w1, w2, w3 = _philox(c0, c1, zero, zero, k0, k1)
        first_cosine, first_sine = _normals(w0, w2)
        cosine, sine = _normals(w1, w3)
        position, column = at + first, (first + lane)[None, :]
        total = _add_product(
            total, position, column, d, first_cosine, PRECISION, MASKED
        )
        total = _add_product(
            total, position + 16, column + 16, d, cosine, PRECISION, MASKED
        )
        total = _add_product(
            total, position + 32, column + 32, d, first_sine, PRECISION, MASKED
        )
        total = _add_product(
            total, position + 48, column + 48, d, sine, PRECISION, MASKED
        )
    to = out + rows[:, None] * out_stride + (draws - start)[None, :]
    tl.store(to, total * scale, mask=(rows < n)[:, None] & (draws < stop)[None, :])


def product_precision(device):
    """Return the precision of products on a device, a key of `TILES`.

    ``torch.set_float32_matmul_precision`` decides: "highest" is float32, ``"ieee"``, or
    ``"tf32x3"`` if tensor cores are faster, the sum of three TF32 products of leading
    and trailing parts, with no larger rounding error; other settings are ``"tf32"``.
    """
    if torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    if device.type != "cuda":
        return "ieee"
    fast = torch.cuda.get_device_capability(device) in _FAST_TF32
    return "tf32x3" if fast else "ieee"


def generated_product(X, key, start, stop, scale=1.0, precision=None):
    """Return scale·XΩᵀ for rows `start` to `stop` of a matrix of standard normals.

    The entries are those of :func:`randkern.backend.counter.random_matrix` for this
    key, to float32 rounding, and are generated in registers. X, float32, has less than
    2³⁴ columns, and rows are below 2³¹. The precision is one of `TILES`; if None,
    :func:`product_precision`.
    """
    X = X if X.stride(1) == 1 else X.contiguous()
    n, d = X.shape
    out = torch.empty((n, stop - start), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    precision = precision or product_precision(X.device)
    rows, draws, warps, stages = TILES[precision]
    if n <= rows // 2:
        rows, warps = max(_MIN_ROWS, triton.next_power_of_2(n)), 4
    grid = (triton.cdiv(n, rows) * triton.cdiv(stop - start, draws),)
    with torch.cuda.device_of(X):  # Triton launches on the current device
        _generated_kernel[grid](
            X,
            out,
            n,
            d,
            start,
            stop,
            X.stride(0),
            out.stride(0),
            key & 0xFFFFFFFF,
            key >> 32,
            float(scale),
            ROWS=rows,
            DRAWS=draws,
            PRECISION=precision,
            MASKED=d % 64 != 0,
            num_warps=warps,
            num_stages=stages,
            **LAUNCH,
        )
    return out


_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def runs_on(*tensors):
    """Return whether the kernels run on these tensors, none of which is tracked."""
    tracked = torch.is_grad_enabled() and any(value.requires_grad for value in tensors)
    on_gpu = all(value.is_cuda for value in tensors) or _INTERPRETED
    return on_gpu and not tracked and all(e.dtype == torch.float32 for e in tensors)
