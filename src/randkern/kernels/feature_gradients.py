"""Derivatives of features in the phases and amplitudes of their draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.plan import Factor, Group, Plan, evaluate

_DRAWS = 4096


class _Turned(Group):
    """A group whose single cosines are turned by a quarter: their derivatives."""

    def draw_offsets(self, start: int, stop: int, dtype: Any) -> np.ndarray:
        angles = super().draw_offsets(start, stop, np.float64)
        return (angles + np.pi / 2).astype(dtype)


@dataclass(frozen=True, eq=False)
class DrawSlopes:
    """Derivatives of Σ G∘Z in the phase and the amplitude of every row and draw.

    Parameters
    ----------
    group : Group
    X : float64 rows of shape (n, n_features_in)
    Z, G : arrays of shape (n, width)
        The features of the group, and the derivatives in them.
    """

    group: Group
    X: Rows
    Z: np.ndarray
    G: np.ndarray

    @cached_property
    def phase(self) -> np.ndarray:
        """Σ G ∂z/∂p, shape (n, n_draws).

        The derivative of a cosine in its phase is minus the sine beside it.
        """
        G, Z = self.G, self.Z
        even, odd = self._pairs
        slopes = G[:, odd] * Z[:, even] - G[:, even] * Z[:, odd]
        group = self.group
        if group.width % 2 == 0:
            return slopes
        turned = _Turned(
            group.factors, 0, group.width, group.weight, group.output, group.offsets
        )
        last = slice(group.width - 1, group.width)
        sines = evaluate(Plan((turned,), self.X.shape[1]), self.X, last)
        return ops_of(Z).hstack([slopes, G[:, last] * sines])

    @cached_property
    def amplitude(self) -> np.ndarray:
        """Σ G ∂z/∂log A, shape (n, n_draws)."""
        products = self.G * self.Z
        even, odd = self._pairs
        if self.group.output != "pair":
            return products
        sums = products[:, even] + products[:, odd]
        return ops_of(self.Z).hstack([sums, products[:, 2 * (self.group.width // 2) :]])

    @property
    def _pairs(self) -> tuple[slice, slice]:
        stop = 2 * (self.group.width // 2)
        return slice(0, stop, 2), slice(1, stop, 2)


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
