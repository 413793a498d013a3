"""Products of many features with few columns, for tensors.

These are the functions of :mod:`randkern.backend.skinny_gemm`, but rows need no padding
and are not stored in 16 bits.
"""

import torch

from randkern.backend.torch_constants import product

# A block of features, long enough for products at full speed.
BLOCK_BYTES = 512 * 2**20
# Rows whose products are accumulated in the dtype of the factors.
_ROWS = 4096


def padded(n_columns):
    """Return the width of rows with `n_columns` features: tensors need no padding."""
    return n_columns


def empty_padded(n_rows, n_columns, like):
    """Return uninitialised values in the dtype and on the device of `like`."""
    return torch.empty((n_rows, n_columns), dtype=like.dtype, device=like.device)


def pack(values, Z):
    """Return values in the dtype of Z."""
    return values.to(Z.dtype)


def multiply(Z, V):
    """Return Z V in float64, for V transposed, of shape (k, width)."""
    return product(Z, V.T).to(torch.float64)


def add_transposed(Z, P, out):
    """Add Zᵀ P, transposed, to `out`, of shape (k, width), in float64."""
    for features, part in zip(Z.split(_ROWS), P.split(_ROWS), strict=True):
        out += product(part.T, features)


def add_gram_product(Z, factors, V, out):
    """Add Zᵀ diag(factors) Z V, transposed, to `out`, of shape (k, width), float64."""
    right = V.T.contiguous()
    for features, part in zip(Z.split(_ROWS), factors.split(_ROWS), strict=True):
        inner = product(features, right)
        inner *= part.to(inner.dtype)[:, None]
        out += product(inner.T, features)
