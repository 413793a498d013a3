"""How large residuals are near a row, by the kernel that a model has learned."""

from __future__ import annotations

import numpy as np

from randkern.data import row_blocks, rows_within
from randkern.kernels import Kernel

__all__ = ["chosen_power", "local_sizes"]

_BLOCK_BYTES = 64 * 10**6
# Powers of the similarity; the higher, the nearer are the rows that count.
_POWERS = (1.0, 4.0, 16.0, 64.0)
# The mean size counts as this many equal rows.
_PRIOR_ROWS = 2.0
_LEAST_ROWS = 40
# What a power must take off the mean negative logarithm of the likelihood.
_LEAST_GAIN = 0.01


def local_sizes(
    kernel: Kernel,
    power: float,
    X: np.ndarray,
    rows: np.ndarray,
    sizes: np.ndarray,
    own: bool = False,
) -> np.ndarray:
    """Return weighted means of sizes (m, k) of residuals near rows X, (n, k).

    The weight of a row is its similarity, between 0 and 1, to a power (Nadaraya &
    Watson 1964); of power 0, all are alike.

    Parameters
    ----------
    kernel : Kernel
    power : float
    X : ndarray of shape (n, d)
    rows : ndarray of shape (m, d)
        Those of the residuals.
    sizes : ndarray of shape (m, k)
    own : bool, default=False
        Whether X are the rows: each is then left out of its own mean.
    """
    mean = sizes.mean(axis=0)
    out = np.tile(mean, (len(X), 1))
    if not power:
        return out
    largest = np.sqrt(np.maximum(kernel._diag(rows), 1e-300))
    for part in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(rows))):
        here = np.sqrt(np.maximum(kernel._diag(X[part]), 1e-300))
        weight = kernel._gram(X[part], rows) / (here[:, None] * largest)
        weight = np.clip(weight, 0.0, 1.0) ** power
        if own:
            weight[np.arange(len(weight)), np.arange(part.start, part.stop)] = 0.0
        total = weight.sum(axis=1, keepdims=True) + _PRIOR_ROWS
        out[part] = (weight @ sizes + _PRIOR_ROWS * mean) / total
    return out


def chosen_power(kernel: Kernel, rows: np.ndarray, sizes: np.ndarray) -> float:
    """Return the power of the best sizes for rows left out, 0 where none helps.

    By the likelihood of residuals whose law is Laplace's, of these mean sizes.
    """
    if len(sizes) < _LEAST_ROWS or not (sizes.mean(axis=0) > 0).all():
        return 0.0

    def loss(power: float) -> float:
        local = local_sizes(kernel, power, rows, rows, sizes, own=True)
        return float((np.log(local) + sizes / local).mean())

    least, best = loss(0.0) - _LEAST_GAIN, 0.0
    for power in _POWERS:
        found = loss(power)
        if found < least:
            least, best = found, power
    return best
