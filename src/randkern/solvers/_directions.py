"""Search directions of block conjugate gradients.

Blocks of directions stay where they are; k × k matrices are decomposed on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from randkern.backend.namespace import ops_of

__all__ = ["normalised", "orthonormal", "squared_sizes"]


def squared_sizes(S: Any) -> np.ndarray:
    """Return the squared norms of columns, on the host."""
    return ops_of(S).to_host((S * S).sum(axis=0))


def orthonormal(S: Any) -> Any:
    """Return an orthonormal basis of the columns of S that are not dependent."""
    ops = ops_of(S)
    scale = np.sqrt(squared_sizes(S))
    kept = np.flatnonzero(scale > 0)
    if len(kept) < len(scale):
        S, scale = ops.take(S.T, kept).T, scale[kept]
    if len(kept) == 0:
        return S
    basis, triangle = ops.algebra.qr(S / ops.float64_like(scale, S))
    # What each column adds, falling: pivoting the factor pivots the columns.
    rotation, triangle, _ = scipy.linalg.qr(
        ops.to_host(triangle), pivoting=True, check_finite=False
    )
    added = np.abs(np.diagonal(triangle))
    rotation = rotation[:, : int(np.sum(added > 1e-10 * added[0]))]
    return basis @ ops.float64_like(rotation, basis)


def normalised(
    P: Any, Q: Any, precision: float, largest: float
) -> tuple[Any, Any, float]:
    """Rescale P and Q = AP so that PᵀQ = I, without directions that A shrinks to noise.

    A step along one of them is as long as rounding likes. Returns the largest pᵀAp so
    far, too.
    """
    ops = ops_of(P)
    inner = ops.to_host(P.T @ Q)
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    largest = max(values[-1], largest, np.finfo(float).tiny)
    kept = values > precision * largest
    transform = ops.float64_like(vectors[:, kept] / np.sqrt(values[kept]), P)
    return P @ transform, Q @ transform, largest
