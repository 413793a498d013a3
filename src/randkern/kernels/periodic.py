"""The periodic kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ive

from randkern._validation import Rows, check_positive, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf, Learnable, Place
from randkern.kernels.factor_draws import FactorDraws
from randkern.kernels.feature_gradients import DrawSlopes
from randkern.nonlinearities import Polar
from randkern.plan import Factor
from randkern.projections import InputMap, Law, Projection

__all__ = ["Harmonics", "Periodic"]


class Periodic(Leaf):
    """The periodic kernel Π_j exp(−2 sin²(πτ_j/P)/ℓ²), τ = x − y.

    Frequencies are 2πk_j/P with P(k_j = ±k) = I_k(ℓ⁻²) e^{−ℓ⁻²}, I_k the modified
    Bessel function, independent over the columns. A Gaussian process learns both
    numbers: draws stay, and are weighted by the ratio of their probabilities.

    Parameters
    ----------
    period : float
        P > 0.
    lengthscale : float
        ℓ > 0; no rule: it is in units of the distance on the circle, not of x.
    columns : None, slice, or list of column numbers or names

    References
    ----------
    Rasmussen & Williams 2006, "Gaussian processes for machine learning", eq. 4.31; the
    series is that of e^{κ cos t} (Abramowitz & Stegun, 9.6.34).

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Periodic(period=2.0)([[0.0]], [[2.0], [1.0]]).round(3)
    array([[1.   , 0.135]])
    """

    def __init__(
        self, period: float = 1.0, lengthscale: float = 1.0, *, columns: Any = None
    ):
        self.period = period
        self.lengthscale = lengthscale
        self.columns = columns

    def _check_leaf(self, n_features: int) -> None:
        super()._check_leaf(n_features)
        for name in ("period", "lengthscale"):
            check_positive(name, getattr(self, name))

    def nonlinearity(self) -> Polar:
        return Polar()

    def law(self) -> Law:
        return Law()

    def inputs(self, n_features: int) -> InputMap:
        return self._input_map(n_features, 2 * np.pi / float(self.period), 0.0)

    def factors(
        self, n_features: int, n_draws: int, draws: FactorDraws
    ) -> tuple[Factor, ...]:
        inputs, kappa = self.inputs(n_features), float(self.lengthscale) ** -2
        stream = draws.stream(inputs.width)
        harmonics = Harmonics(
            stream, n_draws, inputs.width, self.law(), drawn=kappa, kappa=kappa
        )
        return (Factor(harmonics, self.nonlinearity(), inputs),)

    def rebound(
        self, factors: tuple[Factor, ...], n_features: int
    ) -> tuple[Factor, ...]:
        (factor,) = super().rebound(factors, n_features)
        old: Any = factor.projection
        kappa = float(self.lengthscale) ** -2
        projection = replace(old, kappa=kappa, _cache={})
        return (replace(factor, projection=projection),)

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray:
        return self._gram(2 * X, 2 * Y)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        return ops_of(X).ones(X.shape[0], X)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        xp = ops_of(X).xp
        return xp.exp(-2 * self._squares(X, Y)[0] / self.lengthscale**2)

    def _squares(self, X: Rows, Y: Rows) -> tuple[Any, Any]:
        """Return Σ_j sin²(πτ_j/P) and its derivative in log P."""
        xp, (X, Y) = ops_of(X).xp, (densify(X), densify(Y))
        total = slope = ops_of(X).zeros((X.shape[0], Y.shape[0]), X)
        for x, y in zip(X.T, Y.T, strict=True):
            angle = (np.pi / self.period) * (x[:, None] - y)
            total = total + xp.sin(angle) ** 2
            slope = slope - angle * xp.sin(2 * angle)
        return total, slope

    def _learnable(self, path: str) -> Iterator[Learnable]:
        for name in ("period", "lengthscale"):
            yield Learnable(self, name, f"{path}{name}")

    def _add_gradient(
        self, place: Place, X: Rows, Y: Rows, M: np.ndarray, out: np.ndarray
    ) -> None:
        X, Y = self._select(X), self._select(Y)
        squares, slope = self._squares(X, Y)
        weight = M * self._tile(X, Y, False) * (2 / self.lengthscale**2)
        out[place(self, "period")] -= float((weight * slope).sum())
        out[place(self, "lengthscale")] += 2 * float((weight * squares).sum())

    def _add_feature_gradient(
        self,
        place: Place,
        factors: tuple[Factor, ...],
        slopes: DrawSlopes,
        out: np.ndarray,
    ) -> None:
        (factor,) = factors
        harmonics: Any = factor.projection
        block = factor.inputs.apply(slopes.X)
        _, phase = harmonics.project(block, 0, harmonics.n_draws)
        out[place(self, "period")] -= float((slopes.phase * phase).sum())
        ratios = ops_of(slopes.X).to_host(slopes.amplitude.sum(axis=0))
        out[place(self, "lengthscale")] += float(ratios @ harmonics.log_slopes())


@dataclass(frozen=True, eq=False)
class Harmonics(Projection):
    """Integer frequencies drawn for one κ = ℓ⁻², with weights for another.

    Projected rows are the modulus √(p_κ(k)/p_drawn(k)) of each draw, and k·x.
    """

    name = "harmonics"
    drawn: float = 1.0
    kappa: float = 1.0

    def project(self, X: Rows, start: int, stop: int) -> tuple[Any, Any]:
        ops = ops_of(X)
        k, modulus = self.kept(
            X, lambda: tuple(ops.asarray(part, X) for part in self._draws())
        )
        phase = densify(X @ k[start:stop].T)
        return ops.asarray(np.ones((X.shape[0], 1)), X) * modulus[start:stop], phase

    def _draws(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the frequencies, (n_draws, width), and the moduli, (n_draws,)."""
        generator = self.stream.child("harmonics").generator()
        uniform = generator.random((self.n_draws, 2, self.width))
        # About normal of variance κ where κ is large.
        most = int(12 * np.sqrt(self.drawn) + 40)
        halves = ive(np.arange(most), self.drawn)
        k = np.searchsorted(np.cumsum(2 * halves) - halves[0], uniform[:, 0])
        k = np.minimum(k, most - 1) * np.where(uniform[:, 1] < 0.5, 1, -1)
        ratio = ive(abs(k), self.kappa) / ive(abs(k), self.drawn)
        return k, np.sqrt(ratio.prod(axis=1))

    def log_slopes(self) -> np.ndarray:
        """Return the derivative of the logarithm of each modulus in log ℓ."""
        k = abs(self._draws()[0])
        here = ive(k, self.kappa)
        beside = ive(abs(k - 1), self.kappa) + ive(k + 1, self.kappa)
        # A draw that is out of reach has the modulus 0.
        ratio = np.divide(beside, 2 * here, out=np.ones_like(here), where=here > 0)
        return -self.kappa * (ratio - 1.0).sum(axis=1)
