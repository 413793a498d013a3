"""Laplace's approximation of Gaussian processes, for any likelihood of targets.

With log densities log p(y_i | f_i) and weights s_i, the posterior of f is replaced by a
normal law at its mode, of curvature W = diag(s_i w_i), w_i that of the likelihood
(:mod:`randkern.models._gp_likelihoods`):

    log p(y) ≈ Σ s_i log p(y_i | f_i) − ½fᵀK⁻¹f − ½ log det(I + W^½KW^½)

(Rasmussen & Williams 2006, section 3.4; the gradient is their algorithm 5.1). On
features f = Zb, fᵀK⁻¹f = ‖b‖², and the determinant is that of I + ZᵀWZ. The mode is
found by Newton's method, in weights of features or in weights of rows.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod

import numpy as np
from scipy.special import expit, roots_hermitenorm
from sklearn.exceptions import ConvergenceWarning

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.models._gp_evidence import LikelihoodOfRows, WeightPosterior
from randkern.models._gp_likelihoods import Likelihood, Terms
from randkern.models.feature_matrix import FeatureMatrix, add_combinations, products
from randkern.plan import Plan

_ROWS = 1024
# Newton's method stops where a step promises less than this share of the objective, or
# less than the precision of the features.
DECREMENT = 1e-14
# More than this share is worth a warning.
_SHORT = 1e-6
_MOST_STEPS = 200
_MOST_HALVINGS = 20


class Problem(ABC):
    """A log posterior of weights, at some of them.

    Attributes
    ----------
    value : float
        The log posterior, but for a constant.
    """

    value: float

    @abstractmethod
    def go_to(self, at: np.ndarray) -> None:
        """Set what is known there."""

    @abstractmethod
    def step(self) -> tuple[np.ndarray, float]:
        """Return the step of Newton's method from there, and what it promises."""

    def better_of(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return where the value is larger: another K may have moved f far away."""
        self.go_to(one)
        value = self.value
        self.go_to(other)
        return one if value > self.value else other


def newton(problem: Problem, start: np.ndarray, tolerance: float) -> np.ndarray:
    """Return where a function is largest, about; the problem ends there."""
    at = start
    problem.go_to(at)
    step, promise = problem.step()
    for _ in range(_MOST_STEPS):
        if promise <= tolerance * max(1.0, abs(problem.value)):
            break
        length, before = 1.0, problem.value
        for _ in range(_MOST_HALVINGS):
            problem.go_to(at + length * step)
            if problem.value > before:
                break
            length /= 2
        else:
            problem.go_to(at)
            break  # no digit is left to be gained
        at = at + length * step
        step, promise = problem.step()
    if not promise <= max(_SHORT, tolerance) * max(1.0, abs(problem.value)):
        warnings.warn(
            "Newton's method stopped short of the mode of the posterior (a step still "
            f"promises {promise:.2g}): use float64 rows, or a smaller scale.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return at


class LaplacePosterior(WeightPosterior):
    """The law that stands for the posterior given targets, of precision I + ZᵀWZ."""

    @classmethod
    def of(
        cls,
        features: FeatureMatrix,
        D: int,
        likelihood: Likelihood,
        target: int,
    ) -> LaplacePosterior:
        """Return the law given a column of targets, by Newton's method."""
        ops = ops_of(features.like)
        start = ops.zeros(D, features.like)
        if features.cached is not None and features.n_rows < D:
            # Its mode as values of the rows costs less.
            (block,) = features.blocks(features.n_rows)
            Z = ops.as_float64(block.values[:, :D])
            rows = _RowProblem(Z @ Z.T, likelihood, block.Y[:, target], block.weight)
            start = Z.T @ newton(rows, ops.zeros(len(Z), Z), DECREMENT)
        problem = _FeatureProblem(features, likelihood, target)
        tolerance = max(DECREMENT, ops.precision(features.dtype))
        try:
            mode = newton(problem, start, tolerance)
            factor = problem.posterior_factor()
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "rounding errors hide the curvature of the likelihood: the values of "
                "the kernel are too large for the targets; multiply it by a small "
                "number, or scale the input down."
            ) from error
        evidence = problem.value - 0.5 * ops.algebra.log_determinant(factor)
        return cls(mode, factor, evidence)

    def moments(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of f at rows of features."""
        ops, half = ops_of(Z), self.half(Z)
        variance = ops.algebra.column_products(half, half)
        return ops.as_float64(Z) @ self.mean, variance


def _weighted_terms(
    likelihood: Likelihood, f: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> Terms:
    """Return the terms of rows times their weights."""
    terms = likelihood.terms(f, y)
    return terms if weight is None else Terms(*(weight * term for term in terms))


class _FeatureProblem(Problem):
    """The log posterior of weights of features, from sums over the rows."""

    def __init__(self, features: FeatureMatrix, likelihood: Likelihood, target: int):
        self.features, self.likelihood, self.target = features, likelihood, target

    def go_to(self, at: np.ndarray) -> None:
        self.at = at
        value, slope, gram = self._sums("step")
        self.value = value - 0.5 * float(at @ at)
        self.gradient = slope - at
        self.factor = self._factor_of(gram)

    def _sums(self, curvature: str) -> tuple[float, np.ndarray, np.ndarray]:
        given = self.at, self.likelihood, self.target, curvature
        return self.features.reduce(_sums, *given)

    def step(self) -> tuple[np.ndarray, float]:
        step = ops_of(self.factor).algebra.factor_solve(self.factor, self.gradient)
        return step, float(self.gradient @ step)

    def posterior_factor(self) -> np.ndarray:
        """Return the factor of I + ZᵀWZ, which steps may not go by."""
        if not self.likelihood.steps_apart:
            return self.factor
        return self._factor_of(self._sums("curvature")[2])

    def _factor_of(self, gram: np.ndarray) -> np.ndarray:
        algebra = ops_of(gram).algebra
        algebra.add_to_diagonal(gram, 1.0)
        return algebra.lower_factor(gram)


def _sums(
    features: FeatureMatrix,
    at: np.ndarray,
    likelihood: Likelihood,
    target: int,
    curvature: str,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return Σ log p, its gradient in the weights, and ZᵀWZ, W a field of the terms."""
    D, like = len(at), features.like
    ops, weights = ops_of(like), features.padded(at[None])
    total, slopes, gram = 0.0, ops.zeros(weights.shape, like), ops.zeros((D, D), like)
    for block in features.blocks():
        Z, y = block.values, block.Y[:, target]
        terms = _weighted_terms(likelihood, products(Z, weights)[:, 0], y, block.weight)
        total += float(terms.log.sum())
        add_combinations(Z, terms.slope[:, None], slopes)
        root = ops.asarray(getattr(terms, curvature) ** 0.5, Z)[:, None]
        ops.add_gram(Z[:, :D] * root, gram)
    return total, slopes[0, :D], gram


class LaplaceEvidence(LikelihoodOfRows):
    """The approximate log p(y | θ) of some rows, and its gradient.

    The sum over the columns of targets, which share one kernel (of several classes, one
    against the rest each). Evaluated by n × n matrices. If the likelihood has a noise,
    the last entry of θ is its logarithm.
    """

    def __init__(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        likelihood: Likelihood,
    ):
        super().__init__(rows, hyper, plan)
        self.likelihood = likelihood
        # Newton's method starts from the mode of the last θ.
        self._modes = ops_of(rows.Y).zeros((rows.n_targets, rows.n_rows), rows.Y)

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the evidence at θ and its gradient (zeros if not asked for)."""
        size, out, likelihood = self.hyper.size, np.zeros(len(theta)), self.likelihood
        if likelihood.noise is not None:
            likelihood = likelihood.at(math.exp(theta[-1]))
        hyper = self.hyper.at(theta[:size])
        K, add_gradient = self._covariance(hyper)
        total, slopes = 0.0, ops_of(K).zeros(K.shape, K)
        for t, y in enumerate(self.rows.Y.T):
            problem = _RowProblem(K, likelihood, y, self._weight)
            start = problem.better_of(self._modes[t], 0 * self._modes[t])
            self._modes[t] = newton(problem, start, DECREMENT)
            problem.end()
            total += problem.evidence
            if gradient:
                slopes += problem.slopes()
                if likelihood.noise is not None:
                    out[-1] += problem.noise_slope()
        if gradient:
            add_gradient(slopes, out[:size])
        return total, out


class _RowProblem(Problem):
    """The log posterior of weights a of rows, of values f = Ka (algorithm 3.1)."""

    def __init__(
        self,
        K: np.ndarray,
        likelihood: Likelihood,
        y: np.ndarray,
        weight: np.ndarray | None,
    ):
        self.K, self.likelihood, self.y, self.weight = K, likelihood, y, weight

    def go_to(self, at: np.ndarray) -> None:
        self.at, self.f = at, self.K @ at
        self.terms = _weighted_terms(self.likelihood, self.f, self.y, self.weight)
        self.value = float(self.terms.log.sum()) - 0.5 * float(at @ self.f)

    def step(self) -> tuple[np.ndarray, float]:
        terms = self.terms
        self._factorise(terms.step)
        right = terms.step * self.f + terms.slope
        step = right - self._half_solved(self.K @ right) - self.at
        return step, float((self.K @ step) @ (terms.slope - self.at))

    def _factorise(self, curvature: np.ndarray) -> None:
        self.root = curvature**0.5
        B = self.K * self.root[:, None] * self.root
        algebra = ops_of(B).algebra
        algebra.add_to_diagonal(B, 1.0)
        self.factor = algebra.lower_factor(B)

    def end(self) -> None:
        """Set the evidence at the mode, where the problem has gone."""
        self._factorise(self.terms.curvature)
        determinant = ops_of(self.K).algebra.log_determinant(self.factor)
        self.evidence = self.value - 0.5 * determinant

    def _half_solved(self, right: np.ndarray) -> np.ndarray:
        """Return R·right for R = W^½B⁻¹W^½."""
        root = self.root if right.ndim == 1 else self.root[:, None]
        algebra = ops_of(right).algebra
        return root * algebra.factor_solve(self.factor, root * right)

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, a symmetric matrix."""
        K, slope, ops = self.K, self.terms.slope, ops_of(self.K)
        R = self._half_solved(ops.algebra.identity(len(K), K))
        # K is symmetric.
        self.variance = K.diagonal() - ops.algebra.column_products(R @ K, K)
        # W depends on f, which moves by (I − KR) dK ∇log p.
        by_mode = -0.5 * self.variance * self.terms.change
        moved = by_mode - R @ (K @ by_mode)
        cross = moved[:, None] * slope
        return 0.5 * (slope[:, None] * slope - R + cross + cross.T)

    def noise_slope(self) -> float:
        """Return the derivative in log σ², after `slopes`, of a W that no f changes."""
        by_log, by_curvature = self.likelihood.noise_slopes(self.f, self.y)
        determinant = float(self.terms.curvature @ self.variance) * by_curvature
        return float(self.weight @ by_log) - 0.5 * determinant


def mean_probability(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return E[1/(1 + exp(−f))] for normal f, to about 1e-10.

    By Gauss-Hermite quadrature up to variance 1, and beyond, where the logistic
    function is the narrower of the two, by the trapezoidal rule for
    E[Φ((mean − u)/σ)] over a logistic variable u.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._gp_laplace import mean_probability
    >>> mean_probability(np.array([0.0, 2.0]), np.array([9.0, 0.0])).round(4)
    array([0.5   , 0.8808])
    """
    ops = ops_of(mean)
    out = ops.zeros(len(mean), mean)
    nodes, weights = roots_hermitenorm(40)
    grid = np.arange(-40, 40.25, 0.25)
    nodes, weights, logistic, density = (
        ops.float64_like(numbers, mean)
        for numbers in (
            *(nodes, weights / weights.sum()),
            *(grid, 0.25 * expit(grid) * expit(-grid)),
        )
    )
    for rows in row_blocks(len(mean), _ROWS):
        m, deviation = mean[rows, None], variance[rows, None] ** 0.5
        narrow = ops.special.expit(m + deviation * nodes) @ weights
        wide = ops.special.ndtr((m - logistic) / deviation.clip(1.0)) @ density
        out[rows] = ops.xp.where(deviation[:, 0] <= 1, narrow, wide)
    return out.clip(0.0, 1.0)
