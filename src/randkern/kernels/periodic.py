"""The periodic kernel."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ive

from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import DrawSlopes, FactorDraws
from randkern.nonlinearities import Polar
from randkern.projections import Distribution, Stored


@dataclass(frozen=True, eq=False, kw_only=True)
class Harmonics(Stored):
    """Frequencies k drawn for one κ = ℓ⁻²; gives √(p_κ(k)/p_drawn(k)) and k·x."""

    name = "harmonics"
    drawn: float
    kappa: float

    def project(self, X: Rows, start: int, stop: int) -> tuple[Any, Any]:
        k, modulus = (part[start:stop] for part in self.matrices(X))
        ones = ops_of(X).asarray(np.ones((X.shape[0], 1)), X)
        return ones * modulus, densify(ops_of(X).precise_product(X, k.T))

    def draw(self) -> tuple[np.ndarray, ...]:
        generator = self.stream.child("harmonics").generator()
        uniform = generator.random((self.n_draws, 2, self.width))
        # Approximately normal with variance κ for large κ.
        halves = ive(np.arange(int(12 * np.sqrt(self.drawn) + 40)), self.drawn)
        k = np.searchsorted(np.cumsum(2 * halves) - halves[0], uniform[:, 0])
        k = np.minimum(k, len(halves) - 1) * np.where(uniform[:, 1] < 0.5, 1, -1)
        ratio = ive(abs(k), self.kappa) / ive(abs(k), self.drawn)
        return k, np.sqrt(ratio.prod(axis=1))

    def log_slopes(self) -> np.ndarray:
        """Return the derivative of the logarithm of each modulus in log ℓ."""
        k = abs(self.draw()[0])
        bessel = ive(k, self.kappa)
        bessel_next = ive(k + 1, self.kappa)
        # A draw of vanishing probability has the modulus 0.
        ratio = np.divide(
            bessel_next, bessel, out=np.zeros_like(bessel), where=bessel > 0
        )
        return self.kappa * (1.0 - ratio - k / self.kappa).sum(axis=1)


class Periodic(Leaf):
    """The periodic kernel, for patterns that repeat with a period.

        k(x, y) = Π_j exp(−2 sin²(π(x_j − y_j)/P)/ℓ²)

    Frequencies are independent 2πk_j/P, P(k_j = ±k) = I_k(ℓ⁻²) e^{−ℓ⁻²}, I_k a modified
    Bessel function. When P and ℓ are learned, draws are weighted by likelihood ratios.

    Parameters
    ----------
    period, lengthscale : float
        P and ℓ, positive; ℓ has no data-dependent rule, as it is not in the units of x.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.31; Abramowitz & Stegun, 9.6.34 (the series).

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Periodic(period=2.0)([[0.0]], [[2.0], [1.0]]).round(3)
    array([[1.   , 0.135]])
    """

    positive = learnable = ("period", "lengthscale")
    nonlinearity = Polar()

    def __init__(
        self, period: float = 1.0, lengthscale: float = 1.0, *, columns: Any = None
    ):
        self.period = period
        self.lengthscale = lengthscale
        self.columns = columns

    def inverse_scale(self, width: int) -> float:
        return 2 * np.pi / float(self.period)

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Harmonics:
        if self.lengthscale < 1e-4:  # long tables, and Bessel functions that overflow
            raise ValueError(
                "random features of Periodic need a lengthscale of at least 1e-4, got "
                f"{self.lengthscale!r}; use a longer one, or the exact kernel."
            )
        kappa = float(self.lengthscale) ** -2
        stream = draws.stream(width)
        return Harmonics(
            stream, n_draws, width, Distribution(), drawn=kappa, kappa=kappa
        )

    def projection_like(self, projection: Any) -> Harmonics:
        return replace(projection, kappa=float(self.lengthscale) ** -2, _cache={})

    def _angles(self, X: Rows, Y: Rows) -> Iterator[Any]:
        for x, y in zip(densify(X).T, densify(Y).T, strict=True):
            yield (np.pi / self.period) * (x[:, None] - y)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        functions = ops_of(X).xp
        squares = sum(functions.sin(angle) ** 2 for angle in self._angles(X, Y))
        return functions.exp(-2 * squares / self.lengthscale**2)

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        sin = ops_of(X).xp.sin
        period = 0.0
        lengthscale = 0.0
        weight = M * self._tile(X, Y, False) * (2 / self.lengthscale**2)
        for angle in self._angles(X, Y):
            period += float((weight * angle * sin(2 * angle)).sum())
            lengthscale += 2 * float((weight * sin(angle) ** 2).sum())
        return {"period": period, "lengthscale": lengthscale}

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        drawn = factors[0].projection
        block = factors[0].inputs.apply(slopes.X)
        phase = slopes.phase * drawn.project(block, 0, drawn.n_draws)[1]
        ratios = ops_of(block).to_host(slopes.amplitude.sum(axis=0))
        return {"period": -phase.sum(), "lengthscale": ratios @ drawn.log_slopes()}
