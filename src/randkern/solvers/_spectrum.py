"""What the length of a step is found from: eigenvalues of sampled features."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of

__all__ = ["largest_eigenvalue", "peaks", "smallest_eigenvalue"]

_POWER_STEPS = 30
# Up to this side, the smallest eigenvalue of a matrix is computed.
_MOST_EXACT = 512


def peaks(Z: Any, values: np.ndarray, vectors: Any) -> np.ndarray:
    """Return the largest z·P⁻¹z for preconditioners of 1, 2, ... eigenpairs."""
    ops = ops_of(Z)
    inner = ops.as_float64(Z @ vectors) ** 2
    values = ops.float64_like(values, Z)
    rest = ops.squared_norms(Z)[:, None] - inner.cumsum(axis=1)
    shortened = (inner / values).cumsum(axis=1) * values
    return ops.to_host(ops.largest_sizes(rest.clip(min=0.0) + shortened))


def largest_eigenvalue(Z: Any) -> float:
    """Return about the largest eigenvalue of ZᵀZ, by power iterations."""
    ops = ops_of(Z)
    vector = ops.asarray(ops.as_float64(Z).sum(axis=0), Z)
    waves = ops.asarray(np.cos(np.arange(len(vector))), Z)
    vector += ops.largest(abs(vector)) * 1e-3 * waves
    value = 0.0
    for _ in range(_POWER_STEPS):
        size = ops.algebra.norm(vector)
        if size == 0:
            return 0.0
        vector = Z.T @ (Z @ (vector / size))
        value = ops.algebra.norm(vector)
    return value


def smallest_eigenvalue(Z: Any) -> float:
    """Return the smallest eigenvalue of ZᵀZ, or 0 where it is not worth the work."""
    ops = ops_of(Z)
    if Z.shape[1] > min(len(Z), _MOST_EXACT) or not ops.is_finite(Z):
        return 0.0
    values = ops.algebra.singular_values(Z)
    first, last = float(values[0]), float(values[-1])
    # Less is rounding.
    eps = float(np.finfo(ops.numpy_dtype(Z)).eps)
    noise = eps * max(Z.shape) * first
    return last**2 if last > noise else 0.0
