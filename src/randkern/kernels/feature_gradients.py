"""Derivatives of features in their phases, and of phases in the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.plan import Factor, Group, Plan, evaluate

__all__ = ["column_slopes", "phase_slopes"]

_DRAWS = 4096


class _Turned(Group):
    """A group whose single cosines are turned by a quarter: their derivatives."""

    def draw_offsets(self, start: int, stop: int, dtype: Any) -> np.ndarray:
        angles = super().draw_offsets(start, stop, np.float64)
        return (angles + np.pi / 2).astype(dtype)


def phase_slopes(
    group: Group, X: Rows, Z: np.ndarray, G: np.ndarray, n_features: int
) -> np.ndarray:
    """Return Σ G ∂z/∂p for the phase p of every row and draw."""
    n_pairs = group.width // 2
    even, odd = slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
    slopes = G[:, odd] * Z[:, even] - G[:, even] * Z[:, odd]
    if group.width == 2 * n_pairs:
        return slopes
    turned = _Turned(
        group.factors, 0, group.width, group.weight, group.output, group.offsets
    )
    last = slice(group.width - 1, group.width)
    sines = evaluate(Plan((turned,), n_features), X, last)
    return ops_of(Z).hstack([slopes, G[:, last] * sines])


def column_slopes(factor: Factor, X: Rows, slopes: np.ndarray) -> np.ndarray:
    """Return Σ_i Σ_r slopes_ir ω_rj x_ij for every column j of the factor's input."""
    X = factor.inputs.apply(X)
    algebra = ops_of(X).algebra
    basis = algebra.identity(X.shape[1], X)
    total = ops_of(X).zeros(X.shape[1], X)
    for draws in row_blocks(slopes.shape[1], _DRAWS):
        rows = factor.projection.project(basis, draws.start, draws.stop)
        total += algebra.column_products(X, slopes[:, draws] @ rows.T)
    return ops_of(X).to_host(total)
