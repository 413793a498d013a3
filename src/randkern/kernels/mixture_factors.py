"""The factors of a component of a spectral mixture: a Gaussian and a cosine."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Array, Rows
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf, Slopes
from randkern.kernels.factor_draws import DrawSlopes, FactorDraws, column_slopes
from randkern.kernels.stationary import Gaussian
from randkern.projections import Distribution, Repeated


class _Part(Leaf):
    """A factor of a component; its derivatives are those in a row of the mixture."""

    mixture: Any
    row: int

    def _feature_slopes(self, factors: Array, slopes: DrawSlopes) -> Slopes:
        for name, value in self._feature_gradient(factors, slopes).items():
            gradient = np.zeros(np.shape(getattr(self.mixture, name)))
            gradient[self.row] = value
            yield self.mixture, name, gradient


class Envelope(_Part, Gaussian):
    """exp(−2π²‖τ∘σ_q‖²), of lengthscale 1/(2π σ_q)."""

    def __init__(self, mixture: Any, row: int):
        scale = np.asarray(mixture.scales, dtype=float)[row]
        super().__init__(1 / (2 * np.pi * scale), columns=mixture.columns)
        self.mixture = mixture
        self.row = row

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        return {"scales": -super()._gradient(X, Y, M)["lengthscale"]}

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        return {"scales": -super()._feature_gradient(factors, slopes)["lengthscale"]}


class Wave(_Part):
    """cos(2π μ_q·τ)."""

    def __init__(self, mixture: Any, row: int):
        self.mixture = mixture
        self.row = row
        self.columns = mixture.columns
        self.frequency = 2 * np.pi * np.asarray(mixture.means, dtype=float)[row]

    def inverse_scale(self, width: int) -> np.ndarray:
        return self.frequency

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Repeated:
        signed = draws.needs_signs()
        return Repeated(draws.stream(), n_draws, width, Distribution(), signed=signed)

    def _angle(self, X: Rows, Y: Rows) -> Any:
        # In float64 also for other rows: angles may be large.
        ops = ops_of(X)
        frequency = ops.float64_like(self.frequency, X)
        X = ops.as_float64(X)
        Y = ops.as_float64(Y)
        return (X @ frequency)[:, None] - Y @ frequency

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return ops_of(X).xp.cos(self._angle(X, Y))

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        odd = M * ops_of(X).xp.sin(self._angle(X, Y))
        slopes = odd.sum(axis=0) @ Y - odd.sum(axis=1) @ X
        return {"means": slopes * ops_of(X).float64_like(self.frequency, X)}

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        return {"means": column_slopes(factors[0], slopes.X, slopes.phase)}
