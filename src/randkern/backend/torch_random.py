"""Entries of random matrices and random signs, generated on a tensor's device.

The bits are those of :mod:`randkern.backend.counter` (Philox4x32-10) and of
:mod:`randkern.backend.hadamard` (SplitMix64). 32-bit words are held in int64, whose
products and sums wrap around modulo 2^64; a right shift copies the sign bit, which is
masked off.
"""

import math

import torch

from randkern.backend.counter import DISTRIBUTIONS
from randkern.backend.hadamard_kernels import N_SIGN_STAGES

_LOW = 0xFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15


def _signed(value):
    """Return a 64-bit word as the int64 with the same bits."""
    return value - 2**64 if value >= 2**63 else value


def _philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 on words held in int64."""
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0 = ((p1 >> 32) & _LOW) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = ((p0 >> 32) & _LOW) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


def _words(key, distribution, rows, first, stop, device):
    """Return the words of whole blocks of 64 columns, (rows, blocks, 4, 16)."""
    i = torch.arange(rows.start, rows.stop, device=device)[:, None, None]
    block = torch.arange(first // 64, -(-stop // 64), device=device)[:, None]
    lane = torch.arange(16, device=device)
    c0 = 16 * block + lane
    c1 = i & _LOW
    c2 = i >> 32
    shape = torch.broadcast_shapes(c0.shape, c1.shape)
    tag = torch.full(shape, DISTRIBUTIONS[distribution].stream, device=device)
    counter = (c0.expand(shape), c1.expand(shape), c2.expand(shape), tag)
    return torch.stack(_philox(*counter, key & _LOW, key >> 32), dim=2)


def _half_turns(words):
    """Return words as signed fractions, [−1/2, 1/2), in float32."""
    signed = words - ((words >> 31) << 32)
    return signed.to(torch.float32) * 2.0**-32


def _normal(words):
    # Words 0 and 1 of a counter give radii, 2 and 3 the angles; cosines go to the
    # first half of a block, sines to the second.
    radius_words, angle_words = words[:, :, :2], words[:, :, 2:]
    u = (radius_words.to(torch.float32) + 1.0) * 2.0**-32
    radius = torch.sqrt(-2.0 * torch.log(u))
    angle = math.pi * _half_turns((angle_words << 1) & _LOW)
    # The top bit adds half a turn.
    radius = torch.where(angle_words >> 31 == 1, -radius, radius)
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2)


def _transformed(distribution, words):
    if distribution == "normal":
        return _normal(words)
    if distribution == "cauchy":
        return 1.0 / torch.tan(math.pi * _half_turns(words | 1))
    sign = 1.0 - 2.0 * (words >> 31).to(torch.float32)
    if distribution == "laplace":
        u = ((words & 0x7FFFFFFF).to(torch.float32) + 1.0) * 2.0**-31
        return sign * torch.log(u)
    if distribution == "uniform":
        return (words >> 8).to(torch.float32) * 2.0**-24
    return sign


def random_matrix(key, distribution, row_start, row_stop, col_start, col_stop, device):
    """Return :func:`randkern.backend.counter.random_matrix` as a tensor on a device.

    The entries are the same to float32 rounding.
    """
    shape = (max(row_stop - row_start, 0), max(col_stop - col_start, 0))
    if 0 in shape:
        return torch.empty(shape, device=device)
    rows = slice(row_start, row_stop)
    words = _words(key, distribution, rows, col_start, col_stop, device)
    values = _transformed(distribution, words).reshape(shape[0], -1)
    first = col_start % 64
    return values[:, first : first + shape[1]]


def signs(key, first_block, n_blocks, p, device):
    """Return the ±1 of all stages of Hadamard blocks, int8, (blocks, stages, p).

    Bit j of a SplitMix64 word is the sign of entry j of its run of 64.
    """
    n_words = p // 64
    block = torch.arange(first_block, first_block + n_blocks, device=device)
    stage = torch.arange(N_SIGN_STAGES, device=device)
    word = torch.arange(n_words, device=device)
    count = ((block[:, None] * N_SIGN_STAGES + stage) * n_words)[..., None] + word + 1
    z = count * _signed(_GOLDEN) + _signed(key)
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _signed(0x94D049BB133111EB)
    z = z ^ ((z >> 31) & (2**33 - 1))
    bits = (z[..., None] >> torch.arange(64, device=device)) & 1
    return (1 - 2 * bits).to(torch.int8).reshape(n_blocks, N_SIGN_STAGES, p)
