"""Search directions of block conjugate gradients."""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = ["normalised", "orthonormal"]


def orthonormal(S: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns of S that are not dependent."""
    scale = np.linalg.norm(S, axis=0)
    S = S[:, scale > 0] / scale[scale > 0]
    if S.shape[1] == 0:
        return S
    q, r, _ = scipy.linalg.qr(S, mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diagonal(r))
    return q[:, : int(np.sum(diagonal > 1e-10 * diagonal[0]))]


def normalised(
    P: np.ndarray, Q: np.ndarray, precision: float, largest: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Rescale P and Q = AP so that PᵀQ = I, without directions that A shrinks to noise.

    A step along one of them is as long as rounding likes. Returns the largest pᵀAp so
    far, too.
    """
    inner = P.T @ Q
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    largest = max(values[-1], largest, np.finfo(float).tiny)
    kept = values > precision * largest
    transform = vectors[:, kept] / np.sqrt(values[kept])
    return P @ transform, Q @ transform, largest
