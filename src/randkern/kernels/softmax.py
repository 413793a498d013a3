"""The softmax kernel of attention, by positive random features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Array, Rows, check_choice, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import FactorDraws, Fourier, TermVariance
from randkern.nonlinearities import Nonlinearity
from randkern.projections import Antithetic, InputMap


@dataclass(frozen=True)
class ShiftedExponential(Nonlinearity):
    """Multiplies the amplitude by exp(w·x − ‖x‖²/2), w normal: its mean is 1."""

    can_center = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        ops = ops_of(block)
        shift = ops.asarray(ops.float64_squared_norms(block) / 2, block)
        return ops.xp.exp(projected - shift[:, None]), None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> float:
        return 1.0


class Softmax(Leaf):
    """The softmax kernel of attention, with positive random features.

        k(x, y) = exp(x·y/s²)

    A positive feature is exp(w·x/s − ‖x‖²/(2s²)), w ~ N(0, I). Hyperbolic features use
    both w and −w, which lowers the variance. As a factor of a product the kernel uses
    positive features.

    Parameters
    ----------
    scale : float
        s > 0; d^(1/4) for the attention of d columns.
    features : {"hyperbolic", "positive"}
        ``"positive"``: one exponential per draw w; ``"hyperbolic"``: those of w and −w,
        with a lower variance.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    Notes
    -----
    With N = ‖x‖² + ‖y‖² and c = x·y, in units of s², the variance of D features is
    (e^{N + 4c} − K²)/D if they are positive, and (e^{N + 4c} + e^{−N} − 2K²)/D if
    hyperbolic.

    References
    ----------
    Choromanski et al. 2021, "Rethinking attention with performers", lemma 1.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Softmax(scale=2.0)([[2.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]]).round(3)
    array([[2.718, 1.   ]])
    """

    positive = ("scale",)
    nonlinearity = ShiftedExponential()

    def __init__(
        self, scale: float = 1.0, *, features: str = "hyperbolic", columns: Any = None
    ):
        self.scale = scale
        self.features = features
        self.columns = columns

    def _check_leaf(self, width: int) -> None:
        check_choice("features", self.features, ("hyperbolic", "positive"))

    def inverse_scale(self, width: int) -> float:
        return 1.0 / float(self.scale)

    @property
    def can_center(self) -> bool:
        return self.features == "positive"  # centring needs independent draws

    def own_projection(
        self, draws: FactorDraws, n_columns: int, width: int
    ) -> Antithetic | None:
        if self.features == "positive":
            return None
        half = self.projection(draws, (n_columns + 1) // 2, width)
        return Antithetic(half.stream, n_columns, width, half.distribution, half=half)

    def own_variance(
        self, X: Rows, Y: Rows, weight: float, fourier: Fourier
    ) -> TermVariance | None:
        if self.features == "positive":
            return None
        square = self._gram(X, Y) ** 2
        moment = self.squared_amplitude(X, Y)
        norms = np.log(self._diag(X))[:, None] + np.log(self._diag(Y))
        matrices = moment - square, np.exp(-norms) - square

        def factors(width: int) -> tuple[float, float]:
            return weight**2 / width, weight**2 * (width - width % 2) / width**2

        return TermVariance(matrices, factors)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return np.outer(self._diag(X), self._diag(Y)) * self._gram(X, Y) ** 4

    def _diag_selected(self, X: Rows) -> np.ndarray:
        with np.errstate(over="ignore"):
            return ops_of(X).xp.exp(ops_of(X).float64_squared_norms(X) / self.scale**2)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        dots = densify(ops_of(X).precise_product(X, Y.T))
        return ops_of(X).xp.exp(dots / self.scale**2)
