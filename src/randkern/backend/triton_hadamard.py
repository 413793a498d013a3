"""Structured features in one kernel that transforms and writes each feature once.

It is bound by instructions rather than memory: transforms are additions alone, log2 p
of them an entry.
"""

import torch
import triton
import triton.language as tl

from randkern.backend.triton_elementary import LAUNCH, cos_sin

PROJECT, PAIRS, COSINES, MODULUS = 0, 1, 2, 3
TILE_ENTRIES = 4096
# Least and largest blocks of a transform that is done in registers.
_LEAST_BLOCK, _LARGEST_BLOCK = 64, 8192


def takes_block(p):
    """Tell whether a transform of p entries is done in registers."""
    return _LEAST_BLOCK <= p <= _LARGEST_BLOCK


@triton.jit
def _transform(Y, R: tl.constexpr, P: tl.constexpr, BITS: tl.constexpr):
    """Transform rows of (R, P).

    Each step adds and subtracts neighbours and turns the lowest bit of the index into
    the highest: after all of them the order is that of the beginning.
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
    """Return the parts of H S₃ H S₂ Y, the entries of S being (a + ib)/√2."""
    real = _transform(Y * _signs(stage + P), R, P, BITS)
    imag = _transform(Y * _signs(stage + 4 * P), R, P, BITS)
    a, b = 0.5 * _signs(stage + 2 * P), 0.5 * _signs(stage + 5 * P)
    turned = _transform(a * real - b * imag, R, P, BITS)
    return turned, _transform(a * imag + b * real, R, P, BITS)


@triton.jit
def _store(
    to, value, inside, first, low, high, EACH: tl.constexpr, WIDTH: tl.constexpr
):
    """Write features, EACH a draw from draw `first` on, of the draws low to high."""
    entry = tl.arange(0, WIDTH)
    draw = first + entry // EACH
    wanted = (draw >= low) & (draw < high)
    column = EACH * (first - low) + entry
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
    # Programs that share their rows run one after the other: those stay in the cache.
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
    """Return the warps of a tile of transforms of p entries."""
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
    """Write the features of rows.

    Parameters
    ----------
    X : float32 tensor of shape (n, d), contiguous along its columns
        Column d is `bias`, and further ones up to p are 0.
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
    scale : float
        Multiplies X.
    """
    (n, d), p = X.shape, signs.shape[2]
    if n == 0:
        return
    R = max(1, TILE_ENTRIES // p)
    grid = (triton.cdiv(n, R) * len(signs),)
    with torch.cuda.device_of(X):  # where Triton launches
        _hadamard_kernel[grid](
            *(X, signs, norms, norms if offsets is None else offsets, out),
            *(n, d, len(signs), X.stride(0), out.stride(0)),
            *(row_start, row_stop, row_start // p),
            *(float(scale), float(bias), float(weight)),
            KIND=kind,
            HALF=power / 2,
            R=R,
            P=p,
            BITS=p.bit_length() - 1,
            num_warps=warps(p),
            **LAUNCH,
        )
