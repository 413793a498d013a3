"""Arc-cosine kernels: infinitely wide layers of rectified powers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.nonlinearities import RectifiedPower
from randkern.projections import InputMap, Law, NormalLaw

__all__ = ["ArcCosine"]


class ArcCosine(Leaf):
    """The arc-cosine kernel of order n, (1/π)‖x‖ⁿ‖y‖ⁿ J_n(θ).

    θ is the angle between x and y, J₀ = π − θ, J₁ = sin θ + (π − θ) cos θ and
    J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ). A feature is √2·max(0, w·x)ⁿ (a step
    for n = 0) with w ~ N(0, I).

    Parameters
    ----------
    order : {0, 1, 2}
        n.
    columns : None, slice, or list of column numbers or names

    Notes
    -----
    The variance of D features is (2 K_{2n} − K_n²)/D.

    References
    ----------
    Cho & Saul 2009, "Kernel methods for deep learning", eq. 1 to 6.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.ArcCosine(order=1)([[2.0, 0.0]], [[3.0, 0.0], [0.0, 3.0]]).round(3)
    array([[6.  , 1.91]])
    """

    def __init__(self, order: int = 1, *, columns: Any = None):
        self.order = order
        self.columns = columns

    def _check_leaf(self, n_features: int) -> None:
        super()._check_leaf(n_features)
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {self.order!r}.")

    def nonlinearity(self) -> RectifiedPower:
        return RectifiedPower(int(self.order))

    def law(self) -> Law:
        return NormalLaw()

    def inputs(self, n_features: int) -> InputMap:
        return self._input_map(n_features, 1.0, 0.0)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return 2 * _values(self._select(X), self._select(Y), False, 2 * self.order)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        norms = ops_of(X).squared_norms(X)
        # J_n(0)/π is 1·3·…·(2n − 1).
        return norms**self.order * (norms > 0) * (3.0 if self.order == 2 else 1.0)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return _values(X, Y, same, self.order)


def _angle(X: Rows, Y: Rows, cosine: Any, same: bool) -> Any:
    """Return the angles of unit rows.

    Below π/3 from their distances, as the arc cosine loses half the digits near 1.
    """
    ops = ops_of(X)
    functions = ops.xp
    squares = ops.scaled_squared_distances(X, Y, 1.0, same)
    near = 2 * functions.arcsin((squares.clip(max=1.0) ** 0.5) / 2)
    return functions.where(cosine > 0.5, near, functions.arccos(cosine))


def _values(X: Rows, Y: Rows, same: bool, n: int) -> np.ndarray:
    """Return (1/π)‖x‖ⁿ‖y‖ⁿ J_n(θ) for n = 0, 1, 2, 4."""
    ops = ops_of(X)
    X, x_norms = ops.unit_rows(X, 0.0)
    Y, y_norms = (X, x_norms) if same else ops.unit_rows(Y, 0.0)
    cosine = densify(X @ Y.T).clip(-1.0, 1.0)
    if same:
        ops.fill_diagonal(cosine, 1.0)
    # (1 − c)(1 + c) keeps its digits near ±1, unlike 1 − c².
    sine = ((1.0 - cosine) * (1.0 + cosine)) ** 0.5
    rest = math.pi - _angle(X, Y, cosine, same)
    if n == 0:
        values = rest
    elif n == 1:
        values = sine + rest * cosine
    elif n == 2:
        values = 3 * sine * cosine + rest * (1 + 2 * cosine**2)
    else:
        square = cosine**2
        values = 5 * sine * cosine * (10 * square + 11)
        values += 3 * rest * (8 * square**2 + 24 * square + 3)
    # A row of zeros has features of zeros, also for n = 0.
    values *= (x_norms**n * (x_norms > 0))[:, None] / math.pi
    values *= y_norms**n * (y_norms > 0)
    return values
