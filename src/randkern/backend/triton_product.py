"""Products with random matrices whose entries are made inside the tiles.

The matrix is never in memory. Every tile makes its entries itself, so that the product
is bound by the instructions that this takes, which its rows share.
"""

import math

import torch
import triton
import triton.language as tl

from randkern.backend.triton_elementary import LAUNCH, cos_sin_reduced, log

#: Rows, draws, warps and stages of tiles, by what they multiply in: the most rows that
#: registers hold.
TILES = {
    "ieee": (128, 64, 4, 3),
    "tf32x3": (256, 64, 8, 2),
    "tf32": (256, 64, 8, 2),
}
_LEAST_ROWS = 16
# GPUs whose tensor cores multiply in TF32 at eight times the speed of their float32
# units; on the others three products in TF32 take longer than one in float32.
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
    """Return the two normals of the words of columns j and j + 32."""
    u = (radius_word.to(tl.float32) + 1.0) * _TWO_TO_MINUS_32
    radius = tl.sqrt(-2.0 * log(u))
    # The low 31 bits are a signed fraction of a half turn, the top bit says which half.
    fraction = (angle_word << 1).to(tl.int32, bitcast=True).to(tl.float32)
    cosine, sine = cos_sin_reduced(fraction * _PI_OF_WORD)
    radius = radius.to(tl.uint32, bitcast=True) | (angle_word & 0x80000000)
    radius = radius.to(tl.float32, bitcast=True)
    return radius * cosine, radius * sine


@triton.jit
def _leading(x):
    """Return the 11 leading bits of float32 numbers: what TF32 holds."""
    bits = x.to(tl.uint32, bitcast=True) & 0xFFFFE000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _add_product(
    total, at, column, d, w, PRECISION: tl.constexpr, MASKED: tl.constexpr
):
    """Return total + x w, x being what lies at `at`: columns below d."""
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
    # Programs that share their draws run one after the other: their rows of X stay in
    # the cache, and every program makes its entries itself.
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
        here, column = at + first, (first + lane)[None, :]
        total = _add_product(total, here, column, d, first_cosine, PRECISION, MASKED)
        total = _add_product(
            *(total, here + 16, column + 16, d, cosine, PRECISION, MASKED)
        )
        total = _add_product(
            *(total, here + 32, column + 32, d, first_sine, PRECISION, MASKED)
        )
        total = _add_product(
            *(total, here + 48, column + 48, d, sine, PRECISION, MASKED)
        )
    to = out + rows[:, None] * out_stride + (draws - start)[None, :]
    tl.store(to, total * scale, mask=(rows < n)[:, None] & (draws < stop)[None, :])


def product_precision(device):
    """Return what products are computed in on a device: a key of Triton's tiles.

    ``torch.set_float32_matmul_precision`` decides: "highest" is float32, ``"ieee"``,
    or the sum of three products of leading and trailing parts in TF32, ``"tf32x3"``,
    whose rounding is no larger, where tensor cores are faster; others are ``"tf32"``.
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
    key, to float32 rounding; they are made in registers.

    Parameters
    ----------
    X : float32 tensor of shape (n, d), d below 2³⁴
    key : int
    start, stop : int
        Below 2³¹.
    precision : {"ieee", "tf32x3", "tf32"}, optional
        None is :func:`product_precision`.
    """
    X = X if X.stride(1) == 1 else X.contiguous()
    n, d = X.shape
    out = torch.empty((n, stop - start), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    precision = precision or product_precision(X.device)
    rows, draws, warps, stages = TILES[precision]
    if n <= rows // 2:
        rows, warps = max(_LEAST_ROWS, triton.next_power_of_2(n)), 4
    grid = (triton.cdiv(n, rows) * triton.cdiv(stop - start, draws),)
    with torch.cuda.device_of(X):  # where Triton launches
        _generated_kernel[grid](
            *(X, out, n, d, start, stop, X.stride(0), out.stride(0)),
            *(key & 0xFFFFFFFF, key >> 32, float(scale)),
            ROWS=rows,
            DRAWS=draws,
            PRECISION=precision,
            MASKED=d % 64 != 0,
            num_warps=warps,
            num_stages=stages,
            **LAUNCH,
        )
    return out
