"""Dual activations: power series that compose kernels.

The dual of an activation σ with E[σ(U)²] = 1 is σ̂(ρ) = E[σ(U)σ(V)] for standard
normal U, V with correlation ρ. It is a power series Σ aₗρˡ with aₗ ≥ 0 and Σ aₗ = 1, so
it maps kernels to kernels, and its coefficients are the distribution of the number of
factors of a random feature: :mod:`randkern.backend.paths` draws from it by inverting
its distribution function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from randkern._validation import Array, check_count, check_positive
from randkern.backend.namespace import ops_of

#: Larger degrees are not drawn; each distribution states the probability of these.
MAX_DEGREE = 10_000


@dataclass(frozen=True, eq=False)
class DegreeDistribution:
    """The probabilities of the degrees of a power series, its coefficients.

    Attributes
    ----------
    probabilities : ndarray of shape (L + 1,)
        Probabilities of the degrees 0, ..., L: the coefficients of the series, divided
        by their sum.
    omitted : float
        Probability of the degrees above L before that division.

    Examples
    --------
    >>> from randkern import skeletons
    >>> degrees = skeletons.ReLU().degree_distribution()
    >>> degrees.probabilities[:4].round(3)
    array([0.318, 0.5  , 0.159, 0.   ])
    >>> degrees.omitted < 1e-7
    True
    """

    probabilities: np.ndarray
    omitted: float

    @classmethod
    def of(cls, coefficients: np.ndarray) -> DegreeDistribution:
        """Return the distribution from the first coefficients of a series of sum 1."""
        coefficients = np.asarray(coefficients, dtype=np.float64)
        total = float(coefficients.sum())
        if not total > 0:  # all probability is above the degrees that are drawn
            coefficients = np.ones(1)
            total = 0.0
        # Drop degrees too rare for one draw in 10¹⁶, which would make the table long.
        length = int(np.flatnonzero(coefficients > 1e-18).max(initial=0)) + 1
        probabilities = coefficients[:length] / coefficients[:length].sum()
        probabilities.flags.writeable = False
        return cls(probabilities, max(0.0, 1.0 - total))

    @property
    def mean(self) -> float:
        """The mean degree under the truncated distribution."""
        return float(np.arange(len(self.probabilities)) @ self.probabilities)

    @property
    def cumulative(self) -> np.ndarray:
        """The distribution function at 0, ..., L; exactly 1 at the end."""
        table = np.cumsum(self.probabilities)
        table[-1] = 1.0
        return table

    def generating(self, x: float) -> float:
        """Return E[xˡ] under the truncated distribution."""
        degrees = np.arange(len(self.probabilities))
        return float(self.probabilities @ np.power(float(x), degrees))


# Beyond, the normal density times the polynomials used here vanishes.
_RANGE = 16.0


def from_function(
    function: Callable[[np.ndarray], Any],
    *,
    max_degree: int = 200,
    tolerance: float = 1e-3,
    name: str = "",
) -> PowerSeries:
    """Return the dual activation of a function of one real variable.

    With the Hermite series f = Σ bₗhₗ, hₗ orthonormal under the standard normal
    distribution, the dual of f/√E[f(Z)²] is Σ aₗρˡ, aₗ = bₗ²/E[f(Z)²]. The bₗ are
    computed by Gauss-Legendre quadrature on panels of [−16, 16], and checked on panels
    half as wide.

    Parameters
    ----------
    function : callable
        Maps an array of reals to an array of the same shape. It is not stored: the
        series replaces it.
    max_degree : int
        Larger degrees are omitted.
    tolerance : float
        Largest probability that may be omitted, and largest difference between the two
        quadratures.
    name : str, optional
        Name of the activation in its repr; by default the function's name.

    Raises
    ------
    ValueError
        If the function has non-finite values, vanishes, or has a series that converges
        too slowly or cannot be computed to the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern import skeletons
    >>> skeletons.from_function(np.tanh).coefficients(4).round(3)
    array([0.   , 0.93 , 0.   , 0.056])
    """
    max_degree = check_count("max_degree", max_degree)
    check_positive("tolerance", tolerance)
    if not callable(function):
        raise ValueError(
            "function must be a function of an array, such as np.tanh, got "
            f"{function!r}; use the name of a known activation directly."
        )
    label = name or getattr(function, "__name__", "function")
    panels = 0.5, 0.25
    coarse, fine = (_series(function, label, max_degree, size) for size in panels)
    difference = float(np.abs(coarse - fine).sum())
    if difference > tolerance:
        raise ValueError(
            f"the Hermite series of {label} differs by {difference:.2g} between two "
            f"quadratures, more than tolerance={tolerance:g}: the function has jumps, "
            "or varies too fast; pass its series as a PowerSeries instead."
        )
    omitted = 1.0 - float(fine.sum())
    if omitted > tolerance:
        raise ValueError(
            f"degrees above max_degree={max_degree} contain {omitted:.2g} of the "
            f"Hermite series of {label}, more than tolerance={tolerance:g}; increase "
            "max_degree or tolerance."
        )
    return PowerSeries(tuple((fine / fine.sum()).tolist()), name=label)


def _series(
    function: Callable[[np.ndarray], Any], label: str, max_degree: int, panel: float
) -> np.ndarray:
    """Return bₗ²/E[f²] for l up to `max_degree`."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    # Panels meet at 0, where most activations have their kink or jump.
    starts = np.arange(-_RANGE, _RANGE, panel)
    x = (starts[:, None] + panel * (nodes + 1) / 2).ravel()
    w = np.tile(weights * panel / 2, len(starts))
    with np.errstate(all="ignore"):
        try:
            values = np.asarray(function(x.copy()))
        except TypeError as error:
            raise ValueError(
                f"{label} cannot be applied to an array of real numbers ({error}); "
                "pass a function such as np.tanh, or np.vectorize(function)."
            ) from error
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{label} must return real numbers, got values of type {values.dtype}."
        )
    values = values.astype(float)
    if values.shape != x.shape or not np.all(np.isfinite(values)):
        raise ValueError(
            f"{label} must return an array of finite numbers of the shape of its "
            f"argument, for arguments in [{-_RANGE:g}, {_RANGE:g}], got shape "
            f"{values.shape}."
        )
    # h_l(x) e^{−x²/4} stays in range where h_l(x) overflows.
    half = np.exp(-(x**2) / 4) / (2 * math.pi) ** 0.25
    weighted = w * values * half
    square = float(w @ (values * half) ** 2)
    if not 0 < square < math.inf:
        raise ValueError(
            f"E[f(Z)²] of {label} must be positive and finite, got {square}; rescale "
            "the function, or use one that does not vanish."
        )
    before = np.zeros_like(x)
    current = half
    series = np.empty(max_degree + 1)
    for degree in range(max_degree + 1):
        series[degree] = (weighted @ current) ** 2 / square
        after = (x * current - math.sqrt(degree) * before) / math.sqrt(degree + 1)
        before, current = current, after
    # Smaller ones are squares of rounding errors.
    return np.where(series < 1e-26, 0.0, series)


class Activation(ABC):
    """A dual activation σ̂(ρ) = Σ aₗρˡ with aₗ ≥ 0 and Σ aₗ = 1.

    Subclasses define the three methods; a skeleton that uses one checks that the series
    sums to 1 and agrees with the closed form. For tensors, `dual` is called with
    tensors.
    """

    @abstractmethod
    def dual(self, rho: Array) -> Array:
        """Return σ̂(ρ) in closed form for |ρ| ≤ 1, as a new array or tensor."""

    @abstractmethod
    def derivative_at_one(self) -> float:
        """Return σ̂'(1) = Σ l·aₗ, the mean degree; infinite for some."""

    @abstractmethod
    def coefficients(self, n: int) -> np.ndarray:
        """Return a₀, ..., aₙ₋₁."""

    def degree_distribution(self, max_degree: int = MAX_DEGREE) -> DegreeDistribution:
        """Return the distribution of degrees up to `max_degree`."""
        return DegreeDistribution.of(self.coefficients(max_degree + 1))

    def truncated(self, max_degree: int = MAX_DEGREE) -> PowerSeries:
        """Return the series restricted to the degrees that features draw."""
        degrees = self.degree_distribution(max_degree)
        return PowerSeries(tuple(degrees.probabilities.tolist()))


def _every_other(n: int, first: int, values: np.ndarray) -> np.ndarray:
    """Return n coefficients, nonzero only at degrees `first`, `first` + 2, ...."""
    out = np.zeros(n)
    out[first::2] = values[: len(out[first::2])]
    return out


def _arcsine_series(c: float, n: int, divisor: float) -> np.ndarray:
    """Return the first n coefficients of arcsin(cρ)/divisor in ρ."""
    k = np.arange(n // 2 + 1, dtype=float)
    ratios = c**2 * (2 * k + 1) / (2 * k + 2)
    powers = c * np.cumprod(np.append(1.0, ratios[:-1]))  # C(2k, k) c²ᵏ⁺¹/4ᵏ
    return _every_other(n, 1, powers / ((2 * k + 1) * divisor))


@dataclass(frozen=True)
class _Monomial(Activation):
    """The Hermite polynomial of one degree, σ̂(ρ) = ρˡ."""

    degree: ClassVar[int]

    def dual(self, rho: Array) -> Array:
        return rho**self.degree

    def derivative_at_one(self) -> float:
        return float(self.degree)

    def coefficients(self, n: int) -> np.ndarray:
        return (np.arange(n) == self.degree).astype(float)


class Identity(_Monomial):
    """The identity, σ̂(ρ) = ρ: a node that averages its inputs.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Identity().coefficients(3)
    array([0., 1., 0.])
    """

    degree = 1


class Hermite2(_Monomial):
    """The second Hermite polynomial (x² − 1)/√2, σ̂(ρ) = ρ².

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Hermite2().derivative_at_one()
    2.0
    """

    degree = 2


@dataclass(frozen=True)
class ReLU(Activation):
    """√2·max(x, 0), the arc-cosine kernel of order 1.

    σ̂(ρ) = (√(1 − ρ²) + (π − arccos ρ)ρ)/π, with a₀ = 1/π, a₁ = 1/2, a₂ = 1/(2π),
    a₂ₖ₊₂/a₂ₖ = (2k − 1)²/((2k + 2)(2k + 1)). The degree has mean 1 and infinite
    variance.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern import skeletons
    >>> skeletons.ReLU().dual(np.array([-1.0, 0.0, 1.0])).round(3)
    array([0.   , 0.318, 1.   ])
    """

    def dual(self, rho: Array) -> Array:
        return ops_of(rho).duals.relu(rho)

    def derivative_at_one(self) -> float:
        return 1.0

    def coefficients(self, n: int) -> np.ndarray:
        k = np.arange((n + 1) // 2 + 1, dtype=float)
        ratios = (2 * k - 1) ** 2 / ((2 * k + 2) * (2 * k + 1))
        out = _every_other(n, 0, 1 / math.pi * np.cumprod(np.append(1.0, ratios)))
        out[1:2] = 0.5
        return out


@dataclass(frozen=True)
class Step(Activation):
    """√2·1[x > 0], the arc-cosine kernel of order 0.

    σ̂(ρ) = 1 − arccos(ρ)/π, with a₀ = 1/2 and a₂ₖ₊₁ = C(2k, k)/(π 4ᵏ(2k + 1)). The
    mean degree is infinite: features draw degrees up to 10,000, with mean 25, and
    omit a probability of 0.0025.

    Examples
    --------
    >>> from randkern import skeletons
    >>> degrees = skeletons.Step().degree_distribution()
    >>> round(degrees.omitted, 4), round(degrees.mean, 1)
    (0.0025, 25.5)
    """

    def dual(self, rho: Array) -> Array:
        return ops_of(rho).duals.step(rho)

    def derivative_at_one(self) -> float:
        return math.inf

    def coefficients(self, n: int) -> np.ndarray:
        out = _arcsine_series(1.0, n, math.pi)
        out[:1] = 0.5
        return out


def _poisson(mean: float, n: int) -> np.ndarray:
    """Return mean^l/l! for l < n, divided by e^mean."""
    degrees = np.arange(n)
    return np.exp(special.xlogy(degrees, mean) - special.gammaln(degrees + 1) - mean)


@dataclass(frozen=True)
class _Scaled(Activation):
    """An activation applied to a·x."""

    a: float = 1.0

    def __post_init__(self) -> None:
        # The square must be representable in float32.
        if not 1e-15 <= check_positive("a", self.a) <= 1e15:
            raise ValueError(
                f"a must be between 1e-15 and 1e+15, got {self.a:g}, whose square is "
                "outside the range of floating-point numbers; use the limit instead, "
                "such as Identity() for Sine and Erf with a small a."
            )


@dataclass(frozen=True)
class Exponential(_Scaled):
    """exp(a·x − a²), σ̂(ρ) = exp(a²(ρ − 1)): degrees are Poisson with mean a².

    Applied to the mean of d inner products of unit vectors, it is the Gaussian kernel
    of the concatenated vectors with lengthscale √d/a.

    Parameters
    ----------
    a : float
        Multiplies the argument of the activation.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Exponential(2.0).derivative_at_one()
    4.0
    """

    def dual(self, rho: Array) -> Array:
        return ops_of(rho).xp.exp(self.a**2 * (rho - 1.0))

    def derivative_at_one(self) -> float:
        return self.a**2

    def coefficients(self, n: int) -> np.ndarray:
        return _poisson(self.a**2, n)


@dataclass(frozen=True)
class Sine(_Scaled):
    """sin(a·x), normalised: σ̂(ρ) = sinh(a²ρ)/sinh(a²), odd degrees.

    Parameters
    ----------
    a : float
        Multiplies the argument of the activation.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Sine(1.0).coefficients(4).round(3)
    array([0.   , 0.851, 0.   , 0.142])
    """

    def dual(self, rho: Array) -> Array:
        # sinh(a²ρ)/sinh(a²) without overflow for large a, or cancellation for small.
        xp = ops_of(rho).xp
        size = abs(rho)
        square = self.a**2
        ratio = xp.expm1(-2 * square * size) / math.expm1(-2 * square)
        return xp.copysign(xp.exp(square * (size - 1)) * ratio, rho)

    def derivative_at_one(self) -> float:
        return self.a**2 / math.tanh(self.a**2)

    def coefficients(self, n: int) -> np.ndarray:
        twice = _poisson(self.a**2, n) * 2 / -math.expm1(-2 * self.a**2)
        return _every_other(n, 1, twice[1::2])


@dataclass(frozen=True)
class Cosine(_Scaled):
    """cos(a·x), normalised: σ̂(ρ) = cosh(a²ρ)/cosh(a²), even degrees.

    Parameters
    ----------
    a : float
        Multiplies the argument of the activation.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Cosine(1.0).coefficients(3).round(3)
    array([0.648, 0.   , 0.324])
    """

    def dual(self, rho: Array) -> Array:
        exp = ops_of(rho).xp.exp
        top = exp(self.a**2 * (rho - 1)) + exp(-(self.a**2) * (rho + 1))
        return top / (1 + math.exp(-2 * self.a**2))

    def derivative_at_one(self) -> float:
        return self.a**2 * math.tanh(self.a**2)

    def coefficients(self, n: int) -> np.ndarray:
        twice = _poisson(self.a**2, n) * 2 / (1 + math.exp(-2 * self.a**2))
        return _every_other(n, 0, twice[::2])


@dataclass(frozen=True)
class Erf(_Scaled):
    """erf(a·x), normalised: σ̂(ρ) = arcsin(cρ)/arcsin c, c = 2a²/(1 + 2a²).

    The coefficient of degree 2k + 1 is C(2k, k)c²ᵏ⁺¹/(4ᵏ(2k + 1) arcsin c).

    Parameters
    ----------
    a : float
        Multiplies the argument of the activation.

    Examples
    --------
    >>> from randkern import skeletons
    >>> round(skeletons.Erf(1.0).derivative_at_one(), 4)
    1.2257
    """

    @property
    def c(self) -> float:
        """2a²/(1 + 2a²), in (0, 1)."""
        return 2 * self.a**2 / (1 + 2 * self.a**2)

    def dual(self, rho: Array) -> Array:
        xp = ops_of(rho).xp
        inside = (self.c * rho).clip(-1.0, 1.0)
        return xp.arcsin(inside) / math.asin(self.c)

    def derivative_at_one(self) -> float:
        # 1 − c² = (1 + 4a²)/(1 + 2a²)² without cancellation.
        root = math.sqrt(1 + 4 * self.a**2) / (1 + 2 * self.a**2)
        return self.c / (root * math.asin(self.c))

    def coefficients(self, n: int) -> np.ndarray:
        return _arcsine_series(self.c, n, math.asin(self.c))


# Up to here C(m, m/2) is finite in float32, and the function is as accurate as the
# series.
_LARGE_DEGREE = 100.0


@dataclass(frozen=True)
class Optical(Activation):
    """The dual of |u·x|^m, u complex normal: σ̂ = K_m/K_m(1), even degrees.

    a₂ⱼ = C(m/2, j)²/C(m, m/2), so that σ̂(ρ) = ₂F₁(−m/2, −m/2; 1; ρ²)/C(m, m/2).

    Parameters
    ----------
    degree : float
        m > 0, up to 100,000.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Optical(2).coefficients(4).round(3)
    array([0.5, 0. , 0.5, 0. ])
    """

    degree: float = 2.0

    def __post_init__(self) -> None:
        check_positive("degree", self.degree)
        if self.degree > 1e5:
            raise ValueError(f"degree must be at most 100,000, got {self.degree:g}.")

    def dual(self, rho: Array) -> Array:
        if self.degree > _LARGE_DEGREE:
            # K_m(1) overflows here; the coefficients above m vanish.
            series = self.coefficients(int(self.degree) + 9)
            return ops_of(rho).duals.power_series(series, rho, self)
        ops = ops_of(rho)
        size = abs(rho).clip(0.0, 1.0)
        at_one = math.exp(self._log_value_at_one())
        return ops.binomial_squares(size, float(self.degree)) / at_one

    def derivative_at_one(self) -> float:
        return self.degree / 2

    def coefficients(self, n: int) -> np.ndarray:
        j = np.arange((n + 1) // 2 + 1, dtype=float)
        with np.errstate(divide="ignore"):  # an even degree has no terms above it
            ratios = 2 * np.log(np.abs(self.degree / 2 - j) / (j + 1))
        logs = np.append(0.0, np.cumsum(ratios)) - self._log_value_at_one()
        return _every_other(n, 0, np.exp(logs))

    def _log_value_at_one(self) -> float:
        """Return log C(m, m/2)."""
        m = float(self.degree)
        return math.lgamma(m + 1) - 2 * math.lgamma(m / 2 + 1)


@dataclass(frozen=True, repr=False)
class PowerSeries(Activation):
    """Any series Σ aₗρˡ with aₗ ≥ 0 and Σ aₗ = 1, given by its coefficients.

    Parameters
    ----------
    values : sequence of float
        a₀, a₁, ..., not negative and of sum 1 to 1e-6 (they are divided by their
        sum).
    name : str, optional
        Name in the repr.

    Raises
    ------
    ValueError
        If coefficients are negative or not finite, or have another sum.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.PowerSeries([0.5, 0.0, 0.5]).derivative_at_one()
    1.0
    """

    values: Sequence[float]
    name: str = ""

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=float)
        if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values)):
            raise ValueError(
                "values must be a list of finite coefficients a_0, a_1, ..., got "
                f"{self.values!r}."
            )
        if np.any(values < 0):
            raise ValueError(
                "the coefficients of a dual activation must be at least 0, got "
                f"{values.min():g} for degree {int(values.argmin())}."
            )
        if abs(values.sum() - 1) > 1e-6:
            raise ValueError(
                "the coefficients of a dual activation must sum to 1, got the sum "
                f"{values.sum():.6g}; divide them by it."
            )
        object.__setattr__(self, "values", tuple((values / values.sum()).tolist()))

    def __repr__(self) -> str:
        label = list(self.values) if len(self.values) <= 8 else "..."
        name = f", name={self.name!r}" if self.name else ""
        return f"PowerSeries({label}{name})"

    def dual(self, rho: Array) -> Array:
        return ops_of(rho).duals.power_series(np.asarray(self.values), rho, self)

    def derivative_at_one(self) -> float:
        return float(np.arange(len(self.values)) @ np.asarray(self.values))

    def coefficients(self, n: int) -> np.ndarray:
        out = np.zeros(n)
        out[: len(self.values)] = self.values[:n]
        return out


_NAMED = Cosine, Erf, Exponential, Hermite2, Identity, Optical, ReLU, Sine, Step
_BY_NAME: dict[str, type[Activation]] = {cls.__name__.lower(): cls for cls in _NAMED}


def activation_of(value: Any) -> Activation:
    """Return the activation with a name, or `value` itself if it is one."""
    if isinstance(value, Activation):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]()
    raise ValueError(
        f"an activation must be one of {sorted(_BY_NAME)} or an Activation such as "
        f"Exponential(2.0) or PowerSeries([0.5, 0.5]), got {value!r}."
    )
