"""Arc-cosine kernels: infinitely wide layers of rectified powers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gamma

from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.nonlinearities import Nonlinearity
from randkern.projections import InputMap


class ArcCosine(Leaf):
    """The arc-cosine kernel, of an infinitely wide layer of steps or ReLU units.

        k(x, y) = (1/π) ‖x‖ⁿ ‖y‖ⁿ J_n(θ)

    θ is the angle between x and y, J₀ = π − θ, J₁ = sin θ + (π − θ) cos θ and
    J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ). A feature is √2·max(0, w·x)ⁿ (a step
    for n = 0) with w ~ N(0, I). The variance of D features is (2 K_{2n} − K_n²)/D.

    Parameters
    ----------
    order : {0, 1, 2}
        n.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

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

    def _check_leaf(self, width: int) -> None:
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {self.order!r}.")

    @property
    def nonlinearity(self) -> RectifiedPower:
        return RectifiedPower(int(self.order))

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return 2 * _values(self._select(X), self._select(Y), False, 2 * self.order)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        norms = ops_of(X).float64_squared_norms(X)
        # J_n(0)/π is 1·3·…·(2n − 1).
        return norms**self.order * (norms > 0) * (3.0 if self.order == 2 else 1.0)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return _values(X, Y, same, self.order)


def _values(X: Rows, Y: Rows, same: bool, n: int) -> np.ndarray:
    """Return (1/π)‖x‖ⁿ‖y‖ⁿ J_n(θ) for n = 0, 1, 2, 4."""
    ops = ops_of(X)
    X, x_norms = ops.unit_rows(X, 0.0)
    Y, y_norms = (X, x_norms) if same else ops.unit_rows(Y, 0.0)
    cosine = densify(ops.precise_product(X, Y.T))
    if same:
        ops.fill_diagonal(cosine, 1.0)
    # The arc cosine loses half the digits near 1: angles below π/3 are computed from
    # distances.
    functions = ops.xp
    squares = ops.scaled_squared_distances(X, Y, 1.0, same)
    near = 2 * functions.arcsin((squares.clip(max=1.0) ** 0.5) / 2)
    far = functions.arccos(cosine.clip(-1.0, 1.0))
    values = ops.arc_cosine(cosine, functions.where(cosine > 0.5, near, far), n)
    # The features of a row of zeros are zeros, even for n = 0.
    values *= (x_norms**n * (x_norms > 0))[:, None] / math.pi
    values *= y_norms**n * (y_norms > 0)
    return values


@dataclass(frozen=True)
class RectifiedPower(Nonlinearity):
    """Multiplies the amplitude by √2·max(0, w·x)^power, w normal (0: a step)."""

    power: int

    can_center = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        if self.power == 0:
            return ops_of(block).asarray(projected > 0, block) * math.sqrt(2), None
        return math.sqrt(2) * projected.clip(min=0) ** self.power, None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray:
        n = self.power
        half_moment = 2 ** (n / 2 - 1) * gamma((n + 1) / 2) / math.sqrt(math.pi)
        norms = inputs.float64_squared_norms(X)
        # At x = 0 a step is 0 for every draw.
        return math.sqrt(2) * half_moment * norms ** (n / 2) * (norms > 0)
