"""Mixtures of Gaussian spectral densities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf, Learnable, Place, Scale, Term
from randkern.kernels.factor_draws import FactorDraws
from randkern.kernels.feature_gradients import DrawSlopes, column_slopes
from randkern.kernels.stationary import Gaussian
from randkern.plan import Factor
from randkern.projections import Repeated

__all__ = ["SpectralMixture"]

_TURN = 2 * math.pi


class SpectralMixture(Leaf):
    """The spectral mixture kernel Σ_q w_q exp(−2π²‖τ∘σ_q‖²) cos(2π μ_q·τ), τ = x − y.

    Its frequencies are 2π(μ_q + σ_q∘z), z ~ N(0, I); columns are allotted to the
    components in proportion to their weights. A Gaussian process learns all three
    (entries of `means` that are 0 stay 0).

    Parameters
    ----------
    weights : array of shape (n_mixtures,)
        w_q > 0.
    means : array of shape (n_mixtures, d)
        μ_q, in cycles per unit of x.
    scales : array of shape (n_mixtures, d)
        σ_q > 0, in cycles per unit of x.
    columns : None, slice, or list of column numbers or names

    References
    ----------
    Wilson & Adams 2013, "Gaussian process kernels for pattern discovery and
    extrapolation", eq. 12.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.SpectralMixture([1.0, 0.5], [[0.0], [2.0]], [[0.1], [0.05]])
    >>> kernel([[0.0]], [[0.0], [0.5]]).round(3)
    array([[1.5  , 1.445]])
    """

    def __init__(self, weights: Any, means: Any, scales: Any, *, columns: Any = None):
        self.weights = weights
        self.means = means
        self.scales = scales
        self.columns = columns

    def terms(self) -> list[Term]:
        return [
            Term(
                float(w), (_Component(self, q),), frozenset([Scale(self, "weights", q)])
            )
            for q, w in enumerate(np.asarray(self.weights, dtype=float))
        ]

    def _check_leaf(self, n_features: int) -> None:
        super()._check_leaf(n_features)
        n_mixtures, width = np.size(self.weights), len(self._selected(n_features))
        for name in ("weights", "means", "scales"):
            values = np.asarray(getattr(self, name), dtype=float)
            shape = (n_mixtures,) if name == "weights" else (n_mixtures, width)
            in_range = np.isfinite(values) & ((values > 0) | (name == "means"))
            if values.shape != shape or not in_range.all():
                raise ValueError(
                    f"{name} must be {'finite' if name == 'means' else 'positive'} "
                    f"numbers of shape {shape}, got {values!r}."
                )

    def _diag_selected(self, X: Rows) -> np.ndarray:
        return float(np.sum(self.weights)) * ops_of(X).ones(X.shape[0], X)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        out = ops_of(X).zeros((X.shape[0], Y.shape[0]), X)
        for term in self.terms():
            out += term.weight * term.leaves[0]._tile(X, Y, same)
        return out

    def _learnable(self, path: str) -> Iterator[Learnable]:
        for name in ("weights", "means", "scales"):
            yield Learnable(self, name, f"{path}{name}")

    def _add_gradient(
        self, place: Place, X: Rows, Y: Rows, M: np.ndarray, out: np.ndarray
    ) -> None:
        ops = ops_of(X)
        X, Y = densify(self._select(X)), densify(self._select(Y))
        weights, means, scales = (
            out[place(self, name)].reshape(np.shape(getattr(self, name)))
            for name in ("weights", "means", "scales")
        )
        for q, term in enumerate(self.terms()):
            part: Any = term.leaves[0]
            decay, angle = part.decay(X, Y, False), part.angle(X, Y)
            even = term.weight * M * ops.xp.cos(angle)
            odd = term.weight * M * decay * ops.xp.sin(angle)
            weights[q] += float((even * decay).sum())
            slopes = odd.sum(axis=1) @ X - odd.sum(axis=0) @ Y
            means[q] -= _TURN * part.mean * ops.to_host(slopes)
            scale = part._inverse_scale(X)
            scales[q] -= ops.to_host(part._column_gradient(X * scale, Y * scale, even))


class _Component(Gaussian):
    """One component of a mixture, of weight 1: a Gaussian kernel times cos(2π μ·τ)."""

    n_factors = 2

    def __init__(self, mixture: SpectralMixture, index: int):
        scale = np.asarray(mixture.scales, dtype=float)[index]
        super().__init__(1 / (_TURN * scale), columns=mixture.columns)
        self.mixture, self.index = mixture, index
        self.mean = np.asarray(mixture.means, dtype=float)[index]

    def factors(
        self, n_features: int, n_draws: int, draws: FactorDraws
    ) -> tuple[Factor, ...]:
        (normal,) = super().factors(n_features, n_draws, draws)
        shift = Repeated(draws.stream(), n_draws, normal.inputs.width, self.law())
        return self.rebound((normal, replace(normal, projection=shift)), n_features)

    def rebound(
        self, factors: tuple[Factor, ...], n_features: int
    ) -> tuple[Factor, ...]:
        normal, shift = super().rebound(factors, n_features)
        inputs = replace(shift.inputs, inverse_scale=_TURN * self.mean)
        return normal, replace(shift, inputs=inputs)

    def decay(self, X: Rows, Y: Rows, same: bool) -> Any:
        """Return exp(−2π²‖τ∘σ‖²)."""
        return super()._tile(X, Y, same)

    def angle(self, X: Rows, Y: Rows) -> Any:
        """Return 2π μ·τ."""
        mean = ops_of(X).float64_like(_TURN * self.mean, X)
        return (X @ mean)[:, None] - Y @ mean

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        waves = ops_of(X).xp.cos(self.angle(X, Y))
        return self.decay(X, Y, same) * waves

    def _add_feature_gradient(
        self,
        place: Place,
        factors: tuple[Factor, ...],
        slopes: DrawSlopes,
        out: np.ndarray,
    ) -> None:
        for name, factor in zip(("scales", "means"), factors, strict=True):
            columns = column_slopes(factor, slopes.X, slopes.phase)
            first = self.index * len(columns)
            out[place(self.mixture, name)][first : first + len(columns)] += columns
