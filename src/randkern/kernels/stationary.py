"""Kernels of the difference τ = x − y, and their spectral measures.

In the convention K(τ) = E[e^{iω·τ}] (Rahimi & Recht 2007) the frequencies ω of
each kernel follow the distribution in its docstring. In the convention e^{2πi w·τ} the
same kernel has w = ω/(2π) and the features are cos(2πw·x), sin(2πw·x): the
same numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Array, Rows, check_choice, check_positive, densify
from randkern.backend.namespace import ops_of
from randkern.exceptions import UnresolvedKernelError
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import DrawSlopes, column_slopes
from randkern.kernels.lengthscales import (
    median_distance,
    standard_deviation,
    warn_of_scales,
)
from randkern.projections import (
    CauchyDistribution,
    Distribution,
    LaplaceDistribution,
    Mixing,
    NormalDistribution,
    Projection,
)

# Above this, powers of ν overflow, and the kernel equals that of ν = inf to rounding.
_LARGEST_NU = 1e50
# What a lengthscale may be taken from data by.
_RULES = ("scale", "median")


class Stationary(Leaf):
    """A kernel of (x − y)/ℓ with ℓ a number or one per column (ARD)."""

    #: The distance that lengthscales are in units of, by SciPy's name.
    metric: ClassVar[Literal["euclidean", "cityblock"]] = "euclidean"
    learnable: ClassVar[tuple[str, ...]] = ("lengthscale",)

    def __init__(self, lengthscale: Any = 1.0, *, columns: Any = None):
        self.lengthscale = lengthscale
        self.columns = columns

    def _lengthscale(self, width: int) -> float | np.ndarray:
        """Return ℓ as a positive float or a vector of `width` of them."""
        value = self.lengthscale
        if isinstance(value, str) and value in _RULES:
            raise UnresolvedKernelError(
                f"{self} takes its lengthscale from data: call "
                "kernel.resolve(X) first (models do it in fit)."
            )
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        is_positive = np.all((array > 0) & (array < np.inf))
        if not is_positive or array.ndim > 1 or np.asarray(value).dtype == bool:
            raise ValueError(
                "lengthscale must be a positive finite number, a vector of them, or "
                f"one of {list(_RULES)}, got {value!r}."
            )
        if array.ndim == 0:
            return float(array)
        if array.shape != (width,):
            raise ValueError(
                f"lengthscale has {array.size} entries, but {self} reads {width} "
                "columns; pass one entry per column, or a single number."
            )
        return array

    def _check_leaf(self, width: int) -> None:
        check_choice("metric", self.metric, ("euclidean", "cityblock"))
        if not (isinstance(self.lengthscale, str) and self.lengthscale in _RULES):
            self._lengthscale(width)

    def _resolve_leaf(self, X: Rows, weight: Array, stream: Stream, names: Any) -> None:
        if isinstance(self.lengthscale, str):
            warn_of_scales(X, names)
            if self.lengthscale == "median":
                self.lengthscale = median_distance(X, weight, stream, self.metric)
            else:
                deviation = standard_deviation(X, weight)
                # ℓ² = d·Var/2, or d·std, the size of a typical L1 distance.
                d = X.shape[1]
                factor = math.sqrt(d / 2) if self.metric == "euclidean" else float(d)
                self.lengthscale = deviation * factor or 1.0
        dtype = np.dtype(f"f{X.dtype.itemsize}")
        smallest = float(np.min(self.lengthscale))
        if smallest * float(np.finfo(dtype).max) < 1:
            raise ValueError(
                f"the inverse of the lengthscale {smallest:.3g} overflows {dtype}, as "
                "the entries of X are too small; scale the input up (for instance with "
                "sklearn.preprocessing.MaxAbsScaler)."
            )

    def inverse_scale(self, width: int) -> Any:
        return 1.0 / self._lengthscale(width)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        ops = ops_of(X)
        distances = self._distances(X, Y, self._inverse_scale(X), same)
        values = ops.map_rows(self._profile, distances)
        if same:
            ops.fill_diagonal(values, 1.0)
        return values

    def _distances(self, X: Rows, Y: Rows, scale: Any, same: bool) -> Any:
        """Return distances of rows times a scale: squared, unless overridden."""
        return ops_of(X).scaled_squared_distances(X, Y, scale, same)

    def _inverse_scale(self, X: Rows) -> Any:
        """Return 1/ℓ, a number or a vector on the device of X."""
        scale = self.inverse_scale(X.shape[1])
        if isinstance(scale, float):
            return scale
        return ops_of(X).float64_like(scale, X)

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        # θ is the logarithm of the lengthscale, one per column if it is a vector.
        scale = self._inverse_scale(X)
        columns = self._column_gradient(X * scale, Y * scale, M)
        return {"lengthscale": columns if np.ndim(self.lengthscale) else columns.sum()}

    def _column_gradient(self, X: Rows, Y: Rows, M: Array) -> Array:
        """Return Σ M ∂K/∂log ℓ_j for every column j of rows divided by ℓ.

        With a single lengthscale only the sum over columns is needed, and may be
        returned as one entry where that is cheaper.
        """
        ops = ops_of(X)
        squared = ops.scaled_squared_distances(X, Y, 1.0, False)
        weight = M * self._slope(ops.copy(squared))
        if not np.ndim(self.lengthscale):
            return ops.xp.stack([(weight * squared).sum()])
        # Σ W (x − y)² by matrix products, of centred rows to reduce cancellation.
        center = Y.mean(axis=0)
        X, Y = X - center, Y - center
        cross = ops.algebra.column_products(X, weight @ Y)
        return weight.sum(axis=1) @ X**2 + weight.sum(axis=0) @ Y**2 - 2 * cross

    def _slope(self, squared: np.ndarray) -> np.ndarray:
        """Return −2 f'(s) for K = f(s), s the squared distance (may be overwritten)."""
        raise NotImplementedError(
            f"the derivative of {type(self).__name__} in its lengthscale is not "
            "implemented; use optimizer=None."
        )

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        # p = ω·(x/ℓ): ∂p/∂log ℓ_j = −ω_j x_j/ℓ_j
        (factor,) = factors
        columns = -column_slopes(factor, slopes.X, slopes.phase)
        return {"lengthscale": columns if np.ndim(self.lengthscale) else columns.sum()}

    def _profile(self, distances: np.ndarray) -> np.ndarray:
        """Return the kernel at squared (or L1) distances, which it may overwrite."""
        raise NotImplementedError(
            f"{type(self).__name__} has no exact values; define `_profile`, or `_tile` "
            "if they are not a function of the distance."
        )


class Gaussian(Stationary):
    """The Gaussian kernel, also called RBF or squared exponential: smooth functions.

        k(x, y) = exp(−‖x − y‖²/(2ℓ²))

    RBF is short for radial basis function. Frequencies are drawn from N(0, ℓ⁻²I).

    Parameters
    ----------
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ. A vector divides each column by its own (ARD). ``"scale"``: ℓ² =
        d·Var/2 with Var the variance of all entries, as scikit-learn's
        ``gamma="scale"``; ``"median"``: the median distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Rahimi & Recht 2007, "Random features for large-scale kernel machines".

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Gaussian(lengthscale=2.0)([[0.0]], [[0.0], [2.0]]).round(3)
    array([[1.   , 0.607]])
    """

    def _profile(self, distances: np.ndarray) -> np.ndarray:
        distances *= -0.5
        return ops_of(distances).exp_of(distances)

    def _slope(self, squared: np.ndarray) -> np.ndarray:
        return self._profile(squared)


class Laplacian(Stationary):
    """The Laplacian kernel of the L1 distance, for functions with kinks.

        k(x, y) = exp(−‖x − y‖₁/ℓ)

    The distance is the sum of absolute differences; frequencies are drawn from Cauchy's
    distribution of scale 1/ℓ. Several packages use the same
    name for the Euclidean distance, which is ``Matern(nu=0.5)`` here.

    Parameters
    ----------
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ. ``"scale"``: ℓ = d·std, the size of a typical L1 distance;
        ``"median"``: the median L1 distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Laplacian(lengthscale=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(3)
    array([[0.368]])
    """

    metric = "cityblock"
    distribution = CauchyDistribution()

    def _distances(self, X: Rows, Y: Rows, scale: Any, same: bool) -> Any:
        ops = ops_of(X)
        distances = ops.float64_zeros((X.shape[0], Y.shape[0]), X)
        ops.manhattan_distances(densify(X) * scale, densify(Y) * scale, distances)
        return distances

    def _profile(self, distances: np.ndarray) -> np.ndarray:
        distances *= -1.0
        return ops_of(distances).exp_of(distances)

    def _column_gradient(self, X: Rows, Y: Rows, M: Array) -> Array:
        weight = M * self._profile(self._distances(X, Y, 1.0, False))
        pairs = zip(X.T, Y.T, strict=True)
        sums = [(weight * abs(x[:, None] - y)).sum() for x, y in pairs]
        return ops_of(X).xp.stack(sums)


class Cauchy(Stationary):
    """The Cauchy kernel, a product over columns with tails that fall slowly.

        k(x, y) = Π_j 1/(1 + (x_j − y_j)²/ℓ_j²)

    Frequencies ω_j are drawn from Laplace's distribution of scale 1/ℓ_j.

    Parameters
    ----------
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ; a vector divides each column by its own. ``"scale"``: ℓ² = d·Var/2 with Var
        the variance of all entries; ``"median"``: the median distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Cauchy()([[0.0, 0.0]], [[1.0, 1.0]])
    array([[0.25]])
    """

    distribution = LaplaceDistribution()

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        scale = self._inverse_scale(X)
        out = ops_of(X).float64_zeros((X.shape[0], Y.shape[0]), X)
        ops_of(X).cauchy_kernel(densify(X) * scale, densify(Y) * scale, out)
        return out

    def _column_gradient(self, X: Rows, Y: Rows, M: Array) -> Array:
        squares = [(x[:, None] - y) ** 2 for x, y in zip(X.T, Y.T, strict=True)]
        weight = 2 * M
        for square in squares:
            weight = weight / (1 + square)
        sums = [(weight * square / (1 + square)).sum() for square in squares]
        return ops_of(X).xp.stack(sums)


class Matern(Stationary):
    """The Matérn kernel, for functions less smooth than with the Gaussian kernel.

        k(x, y) = 2^{1−ν}/Γ(ν) · (√(2ν) r)^ν · K_ν(√(2ν) r)

    Here r = ‖x − y‖/ℓ is the Euclidean distance, ν the smoothness, and K_ν the modified
    Bessel function. Frequencies are (1/ℓ)·z·√(2ν/χ²_{2ν}) with z ~ N(0, I): a
    multivariate t with 2ν degrees of freedom, one χ² per frequency.

    Parameters
    ----------
    nu : float
        ν > 0; 0.5 is exp(−r), ``inf`` the Gaussian kernel.
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ; a vector divides each column by its own. ``"scale"``: ℓ² = d·Var/2 with Var
        the variance of all entries; ``"median"``: the median distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Rasmussen & Williams 2006, "Gaussian processes for machine learning",
    eq. 4.14 and 4.15.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Matern(nu=0.5)([[0.0]], [[1.0]]).round(3)
    array([[0.368]])
    """

    def __init__(self, nu: float = 1.5, lengthscale: Any = 1.0, *, columns: Any = None):
        self.nu = nu
        self.lengthscale = lengthscale
        self.columns = columns

    def _check_leaf(self, width: int) -> None:
        super()._check_leaf(width)
        if self.nu != math.inf and check_positive("nu", self.nu) > _LARGEST_NU:
            raise ValueError(
                f"nu must be at most {_LARGEST_NU:.0e}, or inf (the Gaussian kernel), "
                f"got {self.nu!r}."
            )

    @property
    def distribution(self) -> Distribution:
        if self.nu == math.inf:
            return NormalDistribution()
        return NormalDistribution(Mixing("student", float(self.nu)))

    def _profile(self, distances: np.ndarray) -> np.ndarray:
        return ops_of(distances).matern_correlation(distances, float(self.nu))

    def _slope(self, squared: np.ndarray) -> np.ndarray:
        return ops_of(squared).matern_slope(squared, float(self.nu))


class RationalQuadratic(Stationary):
    """The rational quadratic kernel, a mixture of Gaussian kernels over lengthscales.

        k(x, y) = (1 + ‖x − y‖²/(2αℓ²))^{−α}

    Frequencies are √g·z/ℓ with z ~ N(0, I) and one g ~ Gamma(α, 1/α) per
    frequency.

    Parameters
    ----------
    alpha : float
        α > 0; large α approaches the Gaussian kernel.
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ; a vector divides each column by its own. ``"scale"``: ℓ² = d·Var/2 with Var
        the variance of all entries; ``"median"``: the median distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.19.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.RationalQuadratic(alpha=0.5)([[0.0]], [[1.0]]).round(3)
    array([[0.707]])
    """

    positive = ("alpha",)
    learnable = ("alpha", "lengthscale")

    def __init__(
        self, alpha: float = 1.0, lengthscale: Any = 1.0, *, columns: Any = None
    ):
        self.alpha = alpha
        self.lengthscale = lengthscale
        self.columns = columns

    @property
    def distribution(self) -> Distribution:
        return NormalDistribution(Mixing("gamma", float(self.alpha)))

    def _profile(self, distances: np.ndarray) -> np.ndarray:
        distances *= 0.5 / self.alpha
        ops = ops_of(distances)
        distances = ops.log1p_of(distances)
        distances *= -self.alpha
        return ops.exp_of(distances)

    def _slope(self, squared: np.ndarray) -> np.ndarray:
        profile = self._profile(ops_of(squared).copy(squared))
        return profile / (1 + squared / (2 * self.alpha))

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        # ∂ log k/∂ log α = α[u/(1 + u) − log(1 + u)], u = ‖x − y‖²/(2αℓ²).
        ops = ops_of(X)
        squared = self._distances(X, Y, self._inverse_scale(X), False)
        ratios = squared / (2 * self.alpha)
        slopes = ratios / (1 + ratios) - ops.xp.log1p(ratios)
        slopes *= self.alpha * M * self._profile(squared)
        return {"alpha": float(slopes.sum()), **super()._gradient(X, Y, M)}

    def projection_like(self, projection: Projection) -> Projection:
        mixing: Any = projection.distribution.mixing
        drawn = mixing.parameter if mixing.drawn is None else mixing.drawn
        distribution = NormalDistribution(Mixing("gamma", float(self.alpha), drawn))
        return replace(projection, distribution=distribution, _cache={})

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        # Frequencies are proportional to the factors of their rows.
        (factor,) = factors
        drawn = factor.projection
        block = factor.inputs.apply(slopes.X)
        phases = drawn.project(block, 0, drawn.n_draws)
        sums = ops_of(block).to_host((slopes.phase * phases).sum(axis=0))
        ratios = drawn.distribution.mixing.log_slopes(drawn.mixing_factors)
        lengthscales = super()._feature_gradient(factors, slopes)
        return {"alpha": float(sums @ ratios), **lengthscales}
