"""Structured projections of tensors: :mod:`randkern.backend.hadamard` on a device.

The blocks R·H S₃ H S₂ H S₁ have the same signs and norms. H is applied as products with
Hadamard matrices of order at most 64, one per run of bits of the index: these are
signed additions, so their rounding is that of a fast transform. Signs are regenerated
on the device; nothing is copied to it.
"""

import math

import torch

from randkern.backend import hadamard, torch_random
from randkern.backend.hadamard import block_size
from randkern.backend.hadamard_kernels import COSINES, MODULUS, PAIRS, PROJECT
from randkern.backend.torch_constants import cached, product
from randkern.backend.torch_trig import cos_sin_pairs, cosines, modulus_power

_FACTOR_BITS = 6
# Entries of a tile of transformed rows, by the kind of device.
_TILE_ENTRIES = {"cpu": 2**21, "cuda": 2**26}


@cached(maxsize=16)
def _hadamard_matrix(bits, dtype, device):
    H = torch.ones((1, 1), dtype=dtype, device=device)
    for _ in range(bits):
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return H


def transform(X):
    """Return rows (..., p) transformed by the unnormalised Hadamard matrix."""
    shape = X.shape
    left = shape[-1].bit_length() - 1
    while left:
        bits = min(left, _FACTOR_BITS)
        left -= bits
        H = _hadamard_matrix(bits, X.dtype, X.device)
        if left == 0:
            X = product(X.reshape(-1, 2**bits), H)
        else:
            X = product(H, X.reshape(-1, 2**bits, 2**left))
    return X.reshape(shape)


def with_bias(X, scale, bias):
    """Return X·scale, with a last column `bias` unless that is 0."""
    if isinstance(scale, torch.Tensor):
        X = X * scale.to(X.dtype)
    elif scale != 1.0:
        X = X * scale
    return torch.cat([X, X.new_full((X.shape[0], 1), bias)], dim=1) if bias else X


def _real(block, signs):
    """Return (H S₃ H S₂ H S₁ x,) of every block, rows by blocks·p."""
    Y = block[:, None, :] * signs[:, 0]
    for stage in (1, 2):
        Y = transform(Y) * signs[:, stage]
    return (transform(Y).reshape(len(block), -1),)


def _complex(block, signs):
    """Return the real and imaginary parts for S₂ and S₃ with entries (±1 ± i)/√2."""
    half = math.sqrt(0.5)
    rows = len(block)
    real = transform(block[:, None, :] * signs[:, 0])
    real, imag = half * signs[:, 1] * real, half * signs[:, 4] * real
    real = transform(real)
    imag = transform(imag)
    a, b = half * signs[:, 2], half * signs[:, 5]
    real, imag = a * real - b * imag, a * imag + b * real
    return transform(real).reshape(rows, -1), transform(imag).reshape(rows, -1)


class StructuredRows(hadamard.StructuredRows):
    """Rows of a structured projection of tensors."""

    def _write(self, X, kind, weight, outs, offsets=None, power=2.0):
        out = outs[0]
        is_complex = kind == MODULUS or len(outs) == 2
        for rows, columns, parts in self._tiles(X, is_complex, out):
            if kind == PROJECT:
                for target, part in zip(outs, parts, strict=True):
                    target[rows, columns] = part
            elif kind == PAIRS:
                both = slice(2 * columns.start, 2 * columns.stop)
                cos_sin_pairs(parts[0], weight, out[rows, both])
            elif kind == COSINES:
                cosines(parts[0], offsets[columns], weight, out[rows, columns])
            else:
                real, imag = parts
                modulus_power(real, imag, power, weight, out[rows, columns])

    def _tiles(self, X, is_complex, out):
        """Yield (rows, columns, parts), projections of some rows by whole blocks."""
        n = X.shape[0]
        p = block_size(X.shape[1], self.bias)
        entries = _TILE_ENTRIES.get(X.device.type, _TILE_ENTRIES["cuda"])
        n_rows = max(1, min(n, entries // p))
        n_blocks = max(1, entries // (n_rows * p))
        for start in range(0, n, n_rows):
            rows = slice(start, min(start + n_rows, n))
            block = with_bias(X[rows].to(out.dtype), self.inverse_scale, self.bias)
            block = torch.nn.functional.pad(block, (0, p - block.shape[1]))
            for first, low, high, columns in self._blocks(p, n_blocks):
                count = -(-high // p) - first
                signs = torch_random.signs(self.key, first, count, p, X.device)
                parts = (_complex if is_complex else _real)(block, signs.to(out.dtype))
                scale = self.norms[columns].to(out.dtype) * p**-1.5
                within = slice(low - first * p, high - first * p)
                yield rows, columns, tuple(part[:, within] * scale for part in parts)

    def _blocks(self, p, n_blocks):
        """Yield (first block, first row, last + 1, columns of the output)."""
        start, stop = self.row_start, self.row_stop
        for first in range(start // p, -(-stop // p), n_blocks):
            low = max(first * p, start)
            high = min((first + n_blocks) * p, stop)
            yield first, low, high, slice(low - start, high - start)
