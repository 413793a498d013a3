"""Fused kernels for GPUs, in Triton.

:func:`hadamard_features` transforms, scales and makes features in one pass, which
writes each feature once; :func:`generated_product` multiplies by a random matrix whose
entries it makes inside the tiles of the product, so that the matrix is never in memory.
Both give what :mod:`randkern.backend.torch_hadamard` and
:mod:`randkern.backend.torch_random` give, to rounding; these take over where Triton is
not installed, for sizes that do not fit, and where a gradient is wanted.

With ``TRITON_INTERPRET=1`` in the environment Triton interprets the kernels on the
processor: slowly, for tests.
"""

import os

import torch
import triton
import triton.language as tl

__all__ = ["generated_product", "hadamard_features", "runs_on", "takes_block"]

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Least and largest blocks of a transform that is done in registers.
_LEAST_BLOCK, _LARGEST_BLOCK = 256, 8192
_TILE_ENTRIES = 4096
_ROWS, _DRAWS = (16, 64) if _INTERPRETED else (128, 64)
# What torch.set_float32_matmul_precision chooses, in Triton's words.
_PRECISIONS = {"highest": "ieee", "high": "tf32", "medium": "tf32"}
PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3


def runs_on(*tensors):
    """Tell whether the kernels run on these tensors, none of which is tracked."""
    tracked = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    on_gpu = all(each.is_cuda for each in tensors) or _INTERPRETED
    return on_gpu and not tracked and all(e.dtype == torch.float32 for e in tensors)


def takes_block(p):
    """Tell whether a transform of p entries is done in registers."""
    return _LEAST_BLOCK <= p <= _LARGEST_BLOCK


def _precision():
    return _PRECISIONS[torch.get_float32_matmul_precision()]


# -- Walsh-Hadamard transforms ----------------------------------------------------


@triton.jit
def _sylvester(N: tl.constexpr):
    """Return the Hadamard matrix of order N: entry (i, j) is the parity of i & j."""
    i = tl.arange(0, N)
    bits = i[:, None] & i[None, :]
    bits = bits ^ (bits >> 4)
    bits = bits ^ (bits >> 2)
    bits = bits ^ (bits >> 1)
    return (1 - 2 * (bits & 1)).to(tl.float32)


@triton.jit
def _transform(
    Y, Hb, Ha, R: tl.constexpr, A: tl.constexpr, B: tl.constexpr, P: tl.constexpr
):
    """Transform rows of (R, A, B); the result is (R, B, A)."""
    Y = tl.dot(tl.reshape(Y, (R * A, B)), Hb, input_precision=P)
    Y = tl.permute(tl.reshape(Y, (R, A, B)), (0, 2, 1))
    Y = tl.dot(tl.reshape(Y, (R * B, A)), Ha, input_precision=P)
    return tl.reshape(Y, (R, B, A))


@triton.jit
def _turned(
    Y, Hb, Ha, R: tl.constexpr, A: tl.constexpr, B: tl.constexpr, P: tl.constexpr
):
    """Transform rows of (R, B, A); the result is (R, A, B)."""
    Y = tl.dot(tl.reshape(Y, (R * B, A)), Ha, input_precision=P)
    Y = tl.permute(tl.reshape(Y, (R, B, A)), (0, 2, 1))
    Y = tl.dot(tl.reshape(Y, (R * A, B)), Hb, input_precision=P)
    return tl.reshape(Y, (R, A, B))


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
def _unitary(
    Y,
    a2,
    b2,
    a3,
    b3,
    Hb,
    Ha,
    R: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    P: tl.constexpr,
):
    """Return the parts of H S3 H S2 Y, the entries of S being (a + ib)/√2."""
    half = 0.5  # of both stages together
    real = _turned(Y * a2, Hb, Ha, R, A, B, P)
    imag = _turned(Y * b2, Hb, Ha, R, A, B, P)
    turned_real = _transform(half * (a3 * real - b3 * imag), Hb, Ha, R, A, B, P)
    turned_imag = _transform(half * (a3 * imag + b3 * real), Hb, Ha, R, A, B, P)
    return turned_real, turned_imag


@triton.jit
def _hadamard_kernel(
    X,
    signs,
    norms,
    offsets,
    out,
    n,
    x_stride,
    out_stride,
    row_start,
    row_stop,
    first_block,
    weight,
    KIND: tl.constexpr,
    HALF: tl.constexpr,
    R: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    PRECISION: tl.constexpr,
):
    p: tl.constexpr = A * B
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    block = tl.program_id(1)
    Ha, Hb = _sylvester(A), _sylvester(B)
    # Entry i·B + j of a row is at (i, j) of (A, B), and at (j, i) of (B, A).
    index = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    turned = tl.arange(0, A)[None, :] * B + tl.arange(0, B)[:, None]
    inside = (rows < n)[:, None, None]
    Y = tl.load(X + rows[:, None, None] * x_stride + index[None], mask=inside, other=0)
    stage = signs + block.to(tl.int64) * 6 * p
    Y = Y * tl.load(stage + index).to(tl.float32)[None]
    Y = _transform(Y, Hb, Ha, R, A, B, PRECISION)
    second = tl.load(stage + p + turned).to(tl.float32)[None]
    third = tl.load(stage + 2 * p + index).to(tl.float32)[None]
    draw = (block + first_block) * p + turned
    wanted = (draw >= row_start) & (draw < row_stop)
    column = draw - row_start
    norm = tl.load(norms + column, mask=wanted, other=0.0)[None]
    if KIND == 3:
        b2 = tl.load(stage + 4 * p + turned).to(tl.float32)[None]
        b3 = tl.load(stage + 5 * p + index).to(tl.float32)[None]
        real, imag = _unitary(Y, second, b2, third, b3, Hb, Ha, R, A, B, PRECISION)
        value = weight * _power(real * norm, imag * norm, HALF)
        at = out + rows[:, None, None] * out_stride + column[None]
        tl.store(at, value, mask=inside & wanted[None])
    else:
        Y = _turned(Y * second, Hb, Ha, R, A, B, PRECISION) * third
        phase = _transform(Y, Hb, Ha, R, A, B, PRECISION) * norm
        if KIND == 1:
            at = out + rows[:, None, None] * out_stride + 2 * column[None]
            tl.store(at, weight * tl.cos(phase), mask=inside & wanted[None])
            tl.store(at + 1, weight * tl.sin(phase), mask=inside & wanted[None])
        else:
            at = out + rows[:, None, None] * out_stride + column[None]
            if KIND == 2:
                phase += tl.load(offsets + column, mask=wanted, other=0.0)[None]
                phase = weight * tl.cos(phase)
            tl.store(at, phase, mask=inside & wanted[None])


def hadamard_features(
    X, signs, norms, row_start, row_stop, kind, weight, out, offsets=None, power=2.0
):
    """Write the features of rows that are padded to p columns.

    Parameters
    ----------
    X : float32 tensor of shape (n, p), contiguous
    signs : int8 tensor of shape (blocks, 6, p)
        From :func:`randkern.backend.torch_random.signs`, of the blocks that hold rows
        `row_start` to `row_stop` of the projection.
    norms : float32 tensor of shape (row_stop - row_start,)
        Of these rows, divided by p^(3/2).
    kind : int
        PROJECT, PAIRS, COSINES or MODULUS.
    weight : float
        Of the features; those of PROJECT have none.
    out : float32 tensor, contiguous along its columns
    """
    n, p = X.shape
    bits = p.bit_length() - 1
    B = 2 ** (bits // 2)
    A = p // B
    R = max(1, _TILE_ENTRIES // p)
    grid = (triton.cdiv(n, R), len(signs))
    with torch.cuda.device_of(X):  # where Triton launches
        _hadamard_kernel[grid](
            *(X, signs, norms, norms if offsets is None else offsets, out),
            *(n, X.stride(0), out.stride(0)),
            *(row_start, row_stop, row_start // p, float(weight)),
            KIND=kind,
            HALF=power / 2,
            R=R,
            A=A,
            B=B,
            PRECISION="ieee",
        )


# -- products with entries that are made on the way -------------------------------


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, 0xD2511F53 + tl.zeros_like(c0))
        low0 = c0 * (0xD2511F53 + tl.zeros_like(c0))
        high1 = tl.umulhi(c2, 0xCD9E8D57 + tl.zeros_like(c2))
        low1 = c2 * (0xCD9E8D57 + tl.zeros_like(c2))
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _normals(radius_word, angle_word):
    """Return the two normals of the words of columns j and j + 32."""
    u = (radius_word.to(tl.float32) + 1.0) * 2.3283064365386963e-10
    radius = tl.sqrt(-2.0 * tl.log(u))
    # The low 31 bits are a signed fraction of a half turn, the top bit says which half.
    fraction = (angle_word << 1).to(tl.int32, bitcast=True).to(tl.float32)
    angle = fraction * (3.141592653589793 * 2.3283064365386963e-10)
    radius = tl.where((angle_word >> 31) == 1, -radius, radius)
    return radius * tl.cos(angle), radius * tl.sin(angle)


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
):
    # Programs that share their draws run one after the other: their rows of X stay in
    # the cache, and every program makes its entries itself.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    draws = start + tl.program_id(1) * DRAWS + tl.arange(0, DRAWS)
    lane = tl.arange(0, 16)
    total = tl.zeros((ROWS, DRAWS), dtype=tl.float32)
    k0 = key_low.to(tl.uint32)
    k1 = key_high.to(tl.uint32)
    for first in range(0, d, 64):
        low = (first // 4 + lane).to(tl.uint32)
        c0 = tl.broadcast_to(low[:, None], (16, DRAWS))
        c1 = tl.broadcast_to(draws.to(tl.uint32)[None, :], (16, DRAWS))
        zero = tl.zeros((16, DRAWS), dtype=tl.uint32)
        w0, w1, w2, w3 = _philox(c0, c1, zero, zero, k0 + zero, k1 + zero)
        cos0, sin0 = _normals(w0, w2)
        cos1, sin1 = _normals(w1, w3)
        at = X + rows[:, None] * x_stride + first + lane[None, :]
        inside = (rows < n)[:, None]
        column = first + lane[None, :]
        x = tl.load(at, mask=inside & (column < d), other=0.0)
        total = tl.dot(x, cos0, total, input_precision=PRECISION)
        x = tl.load(at + 16, mask=inside & (column + 16 < d), other=0.0)
        total = tl.dot(x, cos1, total, input_precision=PRECISION)
        x = tl.load(at + 32, mask=inside & (column + 32 < d), other=0.0)
        total = tl.dot(x, sin0, total, input_precision=PRECISION)
        x = tl.load(at + 48, mask=inside & (column + 48 < d), other=0.0)
        total = tl.dot(x, sin1, total, input_precision=PRECISION)
    to = out + rows[:, None] * out_stride + (draws - start)[None, :]
    tl.store(to, total * scale, mask=(rows < n)[:, None] & (draws < stop)[None, :])


def generated_product(X, key, start, stop, scale=1.0):
    """Return scale·XΩᵀ for rows `start` to `stop` of a matrix of standard normals.

    The entries are those of :func:`randkern.backend.counter.random_matrix` for this
    key, to float32 rounding; they are made in registers. Products are in float32, or in
    TF32 if ``torch.set_float32_matmul_precision`` allows it.

    Parameters
    ----------
    X : float32 tensor of shape (n, d), d below 2³⁴
    key : int
    start, stop : int
        Below 2³¹.
    """
    X = X if X.stride(1) == 1 else X.contiguous()
    n, d = X.shape
    out = torch.empty((n, stop - start), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    grid = (triton.cdiv(n, _ROWS), triton.cdiv(stop - start, _DRAWS))
    with torch.cuda.device_of(X):  # where Triton launches
        _generated_kernel[grid](
            *(X, out, n, d, start, stop, X.stride(0), out.stride(0)),
            *(key & 0xFFFFFFFF, key >> 32, float(scale)),
            ROWS=_ROWS,
            DRAWS=_DRAWS,
            PRECISION=_precision(),
        )
    return out
