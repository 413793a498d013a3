"""Laplace's approximation of Gaussian processes, for any likelihood of targets.

A likelihood provides, for values f of the process at the rows and targets y,
log p(y | f), its derivative, and a curvature W in place of minus its second derivative.

With log densities log p(y_i | f_i) and weights s_i, the posterior of f is approximated
by a normal distribution at its mode, with the curvature W = diag(s_i w_i), w_i being
that of the likelihood:

    log p(y) ≈ Σ s_i log p(y_i | f_i) − ½fᵀK⁻¹f − ½ log det(I + W^½KW^½)

(Rasmussen & Williams 2006, section 3.4; the gradient is their algorithm 5.1). On
features f = Zb, fᵀK⁻¹f = ‖b‖², and the determinant is that of I + ZᵀWZ. The mode is
found by Newton's method, in weights of features or in weights of rows.

For several classes P(y = c | x) = exp(f_c)/Σ_d exp(f_d), with the same kernel for all
f_c. With π the probabilities at the mode, weights s and D_c = diag(s π_c), minus the
second derivative of the log likelihood is W = diag(D_c) − ΠS Πᵀ, and with
E_c = (K + D_c⁻¹)⁻¹

    log det(I + KW) = Σ_c log det(I + D_c^½KD_c^½) + log det Σ_c E_c − Σ_i log s_i

(Rasmussen & Williams 2006, section 3.5 and algorithm 3.3).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, gammaln, roots_hermitenorm
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.models._gp_likelihood import (
    Basis,
    Evidence,
    Likelihood,
    Posterior,
    WeightPosterior,
)
from randkern.models._newton import descend
from randkern.models.feature_matrix import (
    FeatureMatrix,
    GramFactor,
    add_combinations,
    products,
)
from randkern.models.logistic import LogisticLoss, curvature_grams
from randkern.models.memory import SUMMED_ROWS, check_matrices, laplace_bytes
from randkern.plan import Plan

# The largest and smallest number of rows to learn from; between them, as many as this
# number of operations allows, of order n³ per column of targets.
_MAX_LEARNED_ROWS = 1000
_MIN_LEARNED_ROWS = 300
_LEARNING_OPERATIONS = 1e9
# exp of this is still far from overflow.
_LARGEST_LOGARITHM = 500.0


class Terms(NamedTuple):
    """The terms of the log likelihood per row, each with the shape of f."""

    # log p(y | f), and its derivative in f.
    log: np.ndarray
    slope: np.ndarray
    # Non-negative curvatures: for steps of Newton's method, and W, of the posterior.
    step: np.ndarray
    curvature: np.ndarray
    # ∂W/∂f.
    change: np.ndarray


class LaplaceLikelihood(Likelihood):
    """A likelihood whose posterior is approximated at its mode."""

    noise: float | None = None
    # Log odds and log rates with 10 times their initial standard deviation are large
    # enough for any data; beyond, the approximation fails.
    scale_range: ClassVar[float] = 1e2
    merges_rows: ClassVar[bool] = True
    # Whether the functions of all columns of targets have a joint posterior.
    is_joint: ClassVar[bool] = False

    def most_rows(self, plan: Plan | None, n_targets: int) -> int:
        affordable = round((_LEARNING_OPERATIONS / n_targets) ** (1 / 3))
        return max(_MIN_LEARNED_ROWS, min(_MAX_LEARNED_ROWS, affordable))

    def check_memory(
        self, plan: Plan | None, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        most = min(rows.n_rows, self.most_rows(plan, rows.n_targets))
        needed = laplace_bytes(plan, rows, most, joined=self.is_joint)
        check_matrices(plan, rows, needed, limit)

    def evidence(
        self, rows: ArrayRows, kernel: Kernel, plan: Plan | None, stream: Stream
    ) -> Evidence:
        return LaplaceEvidence(rows, kernel, plan, self)

    def posterior(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Any:
        if basis.plan is not None:
            matrix = FeatureMatrix(rows, basis.plan, limit // 4)
            functions = self.of_functions(matrix, matrix.n_components)
        else:
            # Pivots may be fewer than the components of the matrix.
            factor = GramFactor(basis.kernel, sample.X, *sample.targets())
            functions = self.of_functions(factor, len(factor.pivots))
            X = sample.X[factor.pivots]
            basis = replace(basis, X=X, triangle=factor.triangle)
        if not all(ops_of(f.factor).is_finite(f.factor) for f in functions):
            raise ValueError(
                f"features overflow {rows.dtype}: rows of X are too large for "
                f"{basis.kernel._formula()}; scale the input down, or use float64."
            )
        return Posterior(basis, functions)

    @abstractmethod
    def of_functions(
        self, features: FeatureMatrix, D: int
    ) -> Sequence[LaplacePosterior]:
        """Return the posterior of the D weights of every function f."""

    @abstractmethod
    def problems(
        self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray
    ) -> Sequence[Any]:
        """Return the problems at the mode whose evidences add up to that of rows."""


class RowLikelihood(LaplaceLikelihood):
    """A density of targets given values of a process, row by row.

    The columns of targets are independent; they share the kernel.
    """

    # Whether Newton's steps use another curvature than the posterior.
    steps_apart: ClassVar[bool] = False

    def of_functions(
        self, features: FeatureMatrix, D: int
    ) -> Sequence[LaplacePosterior]:
        columns = range(features.n_targets)
        return [LaplacePosterior.of(features, D, self, column) for column in columns]

    def problems(
        self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray
    ) -> Sequence[Any]:
        return [_RowProblem(K, self, y, weight) for y in Y.T]

    @abstractmethod
    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        """Return log p(y | f) of rows, and the terms for maximising it."""

    def noise_slopes(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        """Return ∂ log p/∂ log σ² of rows, and ∂ log W/∂ log σ²."""
        raise NotImplementedError

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of E[y | f], or of new targets y.

        f is normal, with this mean and variance.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Bernoulli(RowLikelihood):
    """P(y | f) = 1/(1 + exp(−yf)) for signs y."""

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        ops = ops_of(f)
        expit = ops.special.expit
        curvature = expit(f) * expit(-f)
        change = curvature * (1 - 2 * expit(f))
        slope = y * expit(-y * f)
        return Terms(-ops.softplus(-y * f), slope, curvature, curvature, change)


@dataclass(frozen=True)
class Poisson(RowLikelihood):
    """Counts y with the rate exp(f + offset)."""

    offset: float

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        ops = ops_of(f)
        logarithm = f + self.offset
        rate = ops.xp.exp(logarithm.clip(-_LARGEST_LOGARITHM, _LARGEST_LOGARITHM))
        constant = ops.float64_like(gammaln(ops.to_host(y) + 1), f)
        log = y * logarithm - rate - constant
        return Terms(log, y - rate, rate, rate, rate)

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        # The rate is log-normal.
        xp = ops_of(mean).xp
        rate = xp.exp(mean + self.offset + 0.5 * variance)
        spread = rate**2 * xp.expm1(variance)
        return rate, spread + rate if of_targets else spread


@dataclass(frozen=True)
class StudentT(RowLikelihood):
    """y = f + σt, with t following Student's t with ν degrees of freedom.

    The second derivative of log p has both signs. Newton's method uses the curvature
    (ν + 1)/(νσ² + r²) of the parabola that touches log p from below, r = y − f: steps
    never decrease it (they are those of expectation maximisation). W is Fisher's
    information (ν + 1)/((ν + 3)σ²), the mean of minus the second derivative: the
    Laplace-Fisher approximation (Hartmann & Vanhatalo 2019, "Laplace approximation and
    natural gradient for Gaussian process regression with heteroscedastic Student-t
    model", section 3.2).
    """

    scale_range: ClassVar[float] = 1e10
    has_outliers: ClassVar[bool] = True
    steps_apart: ClassVar[bool] = True

    noise: float
    freedom: float = 4.0

    def at(self, noise: float) -> StudentT:
        return replace(self, noise=noise)

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        xp = ops_of(f).xp
        nu = self.freedom
        residual, width = y - f, nu * self.noise
        log = -0.5 * (nu + 1) * xp.log1p(residual**2 / width)
        log = log + float(gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu))
        log = log - 0.5 * math.log(math.pi * width)
        step = (nu + 1) / (width + residual**2)
        information = (nu + 1) / ((nu + 3) * self.noise)
        return Terms(log, step * residual, step, information + 0 * f, 0 * f)

    def noise_slopes(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        square = (y - f) ** 2
        width = self.freedom * self.noise
        return 0.5 * ((self.freedom + 1) * square / (width + square) - 1), -1.0

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        own = self.noise * self.freedom / (self.freedom - 2)
        return mean, variance + own if of_targets else variance


def likelihood_of(
    name: str, rows: TrainingData, noise: float, counted: bool, normalized: bool
) -> StudentT | Poisson:
    """Return the likelihood of this name for the rows.

    `counted` says whether weights count rows, `normalized` whether targets were scaled.
    """
    if rows.n_targets > 1:
        raise ValueError(
            f"likelihood={name!r} supports a single target, got {rows.n_targets}; use "
            "sklearn.multioutput.MultiOutputRegressor."
        )
    if not counted:
        raise ValueError(
            f"likelihood={name!r} needs weights='counts' (a row of weight 2 counts as "
            "two), got weights='precision'."
        )
    if name == "student-t":
        return StudentT(noise)
    if normalized:
        raise ValueError(
            "likelihood='poisson' expects counts; use normalize_y=False, got True."
        )
    mean = float(rows.survey().target_mean[0])
    n_negative = rows.reduce(_n_negative)
    if n_negative or not mean > 0:
        raise ValueError(
            "likelihood='poisson' expects counts that are not all 0, got "
            f"{n_negative} negative targets and the mean {mean:.3g}; use "
            "likelihood='gaussian'."
        )
    return Poisson(math.log(mean))


def _n_negative(rows: TrainingData) -> int:
    return sum(int((block.Y < 0).sum()) for block in rows.blocks(SUMMED_ROWS))


_ROWS = 1024
_MIN_CURVATURE = 1e-200
# Newton's method stops if the predicted gain of a step is less than this share of the
# objective, or than the precision of the features.
DECREMENT = 1e-14
# A larger share is worth a warning.
_SHORT = 1e-6
_MAX_STEPS = 200
_MAX_HALVINGS = 20


class Problem(ABC):
    """A log posterior of weights, up to a constant, evaluated at a point."""

    value: float

    @abstractmethod
    def go_to(self, at: np.ndarray) -> None:
        """Evaluate the posterior at a point."""

    @abstractmethod
    def step(self) -> tuple[np.ndarray, float]:
        """Return the step of Newton's method from the point, and its predicted gain."""

    def better_of(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the point of larger value: another K may have moved f far away."""
        self.go_to(one)
        value = self.value
        self.go_to(other)
        return one if value > self.value else other


def newton(problem: Problem, start: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the approximate maximum, where the problem is evaluated in the end."""
    at = start
    problem.go_to(at)
    step, promise = problem.step()
    for _ in range(_MAX_STEPS):
        if promise <= tolerance * max(1.0, abs(problem.value)):
            break
        length, before = 1.0, problem.value
        for _ in range(_MAX_HALVINGS):
            problem.go_to(at + length * step)
            if problem.value > before:
                break
            length /= 2
        else:
            problem.go_to(at)
            break  # no further digit can be gained
        at = at + length * step
        step, promise = problem.step()
    if not promise <= max(_SHORT, tolerance) * max(1.0, abs(problem.value)):
        warn(
            "Newton's method stopped short of the mode of the posterior (another step "
            f"would gain {promise:.2g}): use float64 rows, or a smaller scale.",
            ConvergenceWarning,
        )
    return at


class LaplacePosterior(WeightPosterior):
    """The normal approximation of the posterior, with the precision I + ZᵀWZ."""

    @classmethod
    def of(
        cls, features: FeatureMatrix, D: int, likelihood: RowLikelihood, target: int
    ) -> LaplacePosterior:
        """Return the posterior given a column of targets, by Newton's method."""
        ops = ops_of(features.like)
        start = ops.float64_zeros(D, features.like)
        if features.cached is not None and features.n_rows < D:
            # Finding the mode in values of the rows is cheaper.
            (block,) = features.blocks(features.n_rows)
            Z = ops.as_float64(block.values[:, :D])
            rows = _RowProblem(Z @ Z.T, likelihood, block.Y[:, target], block.weight)
            start = Z.T @ newton(rows, ops.float64_zeros(len(Z), Z), DECREMENT)
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


def _weighted_terms(
    likelihood: RowLikelihood, f: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> Terms:
    """Return the terms of rows times their weights."""
    terms = likelihood.terms(f, y)
    return terms if weight is None else Terms(*(weight * term for term in terms))


class _FeatureProblem(Problem):
    """The log posterior of weights of features, from sums over the rows."""

    def __init__(self, features: FeatureMatrix, likelihood: RowLikelihood, target: int):
        self.features = features
        self.likelihood = likelihood
        self.target = target

    def go_to(self, at: np.ndarray) -> None:
        self.at = at
        value, slope, gram = self._sums("step")
        self.value = value - 0.5 * float(at @ at)
        self.gradient = slope - at
        self.factor = self._factor_of(gram)

    def _sums(self, curvature: str) -> tuple[float, np.ndarray, np.ndarray]:
        return self.features.reduce(
            _sums, self.at, self.likelihood, self.target, curvature
        )

    def step(self) -> tuple[np.ndarray, float]:
        step = ops_of(self.factor).algebra.factor_solve(self.factor, self.gradient)
        return step, float(self.gradient @ step)

    def posterior_factor(self) -> np.ndarray:
        """Return the factor of I + ZᵀWZ, which may differ from that of the steps."""
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
    likelihood: RowLikelihood,
    target: int,
    curvature: str,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return Σ log p, its gradient in the weights, and ZᵀWZ, W being `curvature`."""
    D = len(at)
    like = features.like
    ops = ops_of(like)
    weights = features.padded(at[None])
    total = 0.0
    slopes = ops.float64_zeros(weights.shape, like)
    gram = ops.float64_zeros((D, D), like)
    for block in features.blocks():
        Z, y = block.values, block.Y[:, target]
        terms = _weighted_terms(likelihood, products(Z, weights)[:, 0], y, block.weight)
        total += float(terms.log.sum())
        add_combinations(Z, terms.slope[:, None], slopes)
        root = ops.asarray(getattr(terms, curvature) ** 0.5, Z)[:, None]
        ops.add_gram(Z[:, :D] * root, gram)
    return total, slopes[0, :D], gram


class LaplaceEvidence(Evidence):
    """The approximate log p(y | θ) of some rows, and its gradient.

    Evaluated with n × n matrices.
    """

    def __init__(
        self,
        rows: ArrayRows,
        kernel: Kernel,
        plan: Plan | None,
        likelihood: LaplaceLikelihood,
    ):
        super().__init__(rows, kernel, plan)
        self.likelihood = likelihood
        # The modes at the last θ, where Newton's method starts.
        self._modes: dict[int, np.ndarray] = {}

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        size = self.hyper.size
        has_noise = len(theta) > size
        likelihood = self.likelihood
        if has_noise:
            likelihood = likelihood.at(math.exp(theta[-1]))
        K, add_gradient = self._covariance(self.hyper.at(theta[:size]))
        out = np.zeros(len(theta))
        slopes = ops_of(K).float64_zeros(K.shape, K)
        total = 0.0
        problems = likelihood.problems(K, self.rows.Y, self._weight)
        for i, problem in enumerate(problems):
            zero = problem.zero
            start = problem.better_of(self._modes.get(i, zero), zero)
            self._modes[i] = newton(problem, start, DECREMENT)
            total += problem.evidence()
            if gradient:
                slopes += problem.slopes()
                if has_noise:
                    out[-1] += problem.noise_slope()
        if gradient:
            add_gradient(slopes, out[:size])
        return total, out


class _RowProblem(Problem):
    """The log posterior of weights a of rows, with values f = Ka (algorithm 3.1)."""

    def __init__(
        self,
        K: np.ndarray,
        likelihood: RowLikelihood,
        y: np.ndarray,
        weight: np.ndarray | None,
    ):
        self.K = K
        self.likelihood = likelihood
        self.y = y
        self.weight = weight
        self.zero = 0.0 * y

    def go_to(self, at: np.ndarray) -> None:
        self.at = at
        self.f = self.K @ at
        self.terms = _weighted_terms(self.likelihood, self.f, self.y, self.weight)
        self.value = float(self.terms.log.sum()) - 0.5 * float(at @ self.f)

    def step(self) -> tuple[np.ndarray, float]:
        terms = self.terms
        self._factorise(terms.step)
        step = self._shrunk(terms.step * self.f + terms.slope) - self.at
        return step, float((self.K @ step) @ (terms.slope - self.at))

    def _factorise(self, curvature: np.ndarray) -> None:
        self.root = curvature.clip(_MIN_CURVATURE) ** 0.5
        B = self.K * self.root[:, None] * self.root
        algebra = ops_of(B).algebra
        algebra.add_to_diagonal(B, 1.0)
        self.factor = algebra.lower_factor(B)

    def evidence(self) -> float:
        """Return the log marginal likelihood, after a step from the mode."""
        self._factorise(self.terms.curvature)
        determinant = ops_of(self.K).algebra.log_determinant(self.factor)
        return self.value - 0.5 * determinant

    def _shrunk(self, right: np.ndarray) -> np.ndarray:
        """Return (I − RK)·right = W^½B⁻¹W^-½·right.

        If K is large, as for a mean with a vague prior, the difference has no correct
        digits.
        """
        algebra = ops_of(right).algebra
        return self.root * algebra.factor_solve(self.factor, right / self.root)

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, a symmetric matrix."""
        # At the mode, a is ∇log p, which has fewer correct digits if K is large.
        K = self.K
        slope = self.at
        ops = ops_of(self.K)
        # R = W^½B⁻¹W^½.
        root = self.root[:, None]
        R = root * ops.algebra.factor_solve(
            self.factor, root * ops.algebra.identity(len(K), K)
        )
        # The diagonal of the symmetric K − KRK, or, if K is large, of the then smaller
        # difference W^-½(I − B⁻¹)W^-½.
        W = self.root**2
        prior = K.diagonal()
        known = (1.0 - R.diagonal() / W) / W
        left = prior - ops.algebra.column_products(R @ K, K)
        self.variance = ops.xp.where(W * prior > 1.0, known, left)
        # W depends on f, which changes by (I − KR) dK ∇log p.
        moved = self._shrunk(-0.5 * self.variance * self.terms.change)
        cross = moved[:, None] * slope
        return 0.5 * (slope[:, None] * slope - R + cross + cross.T)

    def noise_slope(self) -> float:
        """Return the derivative in log σ², after `slopes`, for W independent of f."""
        by_log, by_curvature = self.likelihood.noise_slopes(self.f, self.y)
        determinant = float(self.terms.curvature @ self.variance) * by_curvature
        return float(self.weight @ by_log) - 0.5 * determinant


def mean_probability(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return E[1/(1 + exp(−f))] for normal f, to about 1e-10.

    By Gauss-Hermite quadrature up to variance 1; above, where the logistic function is
    narrower than the normal density, by the trapezoidal rule for E[Φ((mean − u)/σ)]
    over a logistic variable u.
    """
    ops = ops_of(mean)
    out = ops.float64_zeros(len(mean), mean)
    nodes, weights = roots_hermitenorm(40)
    grid = np.arange(-40, 40.25, 0.25)
    tables = nodes, weights / weights.sum(), grid, 0.25 * expit(grid) * expit(-grid)
    nodes, weights, logistic, density = (ops.float64_like(x, mean) for x in tables)
    for rows in row_blocks(len(mean), _ROWS):
        m, deviation = mean[rows, None], variance[rows, None] ** 0.5
        narrow = ops.special.expit(m + deviation * nodes) @ weights
        wide = ops.special.ndtr((m - logistic) / deviation.clip(1.0)) @ density
        out[rows] = ops.xp.where(deviation[:, 0] <= 1, narrow, wide)
    return out.clip(0.0, 1.0)


_MAX_PRODUCTS = 1000
# Relative residual of the systems of Newton's steps to the mode.
_MAX_RESIDUAL = 0.05
# Number of points that probabilities are averaged over: errors of about 1e-3.
_POINTS = 512
_ROWS_OF_CLASSES = 256


class _ClassProblem(Problem):
    """The log posterior of weights a of rows, (n, k), with values f = Ka."""

    def __init__(self, K: np.ndarray, signs: np.ndarray, weight: np.ndarray):
        self.K = K
        self.weight = weight[:, None]
        self.own = ops_of(K).as_float64(signs > 0)
        self.zero = 0.0 * self.own

    def go_to(self, at: np.ndarray) -> None:
        special = ops_of(at).special
        self.at = at
        self.f = self.K @ at
        self.chance = special.softmax(self.f, 1)
        self.slope = self.weight * (self.own - self.chance)
        log = (self.own * self.f).sum(axis=1) - special.logsumexp(self.f, 1)
        self.value = float(self.weight[:, 0] @ log) - 0.5 * float((at * self.f).sum())

    def step(self) -> tuple[np.ndarray, float]:
        self._factorise()
        f, chance = self.f, self.chance
        right = self.weight * chance * (f - (chance * f).sum(axis=1)[:, None])
        right += self.slope
        step = right - self._product(self.K @ right) - self.at
        promise = float(((self.K @ step) * (self.slope - self.at)).sum())
        return step, promise

    def _factorise(self) -> None:
        """Set E_c, and the factor of Σ_c E_c and the determinant of I + KW."""
        K = self.K
        algebra = ops_of(self.K).algebra
        self.E = []
        self.determinant = -float(ops_of(K).xp.log(self.weight).sum())
        for curvature in (self.weight * self.chance).T:
            root = curvature**0.5
            B = K * root[:, None] * root
            algebra.add_to_diagonal(B, 1.0)
            factor = algebra.lower_factor(B)
            self.determinant += algebra.log_determinant(factor)
            E = algebra.inverse_by_factor(factor)
            E *= root[:, None]
            E *= root
            self.E.append(E)
        self.factor = algebra.lower_factor(sum(self.E[1:], self.E[0] + 0.0))
        self.determinant += algebra.log_determinant(self.factor)

    def evidence(self) -> float:
        return self.value - 0.5 * self.determinant

    def _product(self, right: np.ndarray) -> np.ndarray:
        """Return R·right, (n, k), for R = E − E(Σ_c E_c)⁻¹E = (K + W⁻¹)⁻¹."""
        ops = ops_of(right)
        parts = [E @ right[:, c] for c, E in enumerate(self.E)]
        shared = ops.algebra.factor_solve(self.factor, sum(parts[1:], parts[0]))
        left = [part - E @ shared for part, E in zip(parts, self.E, strict=True)]
        return ops.xp.stack(left, axis=1)

    def slopes(self) -> np.ndarray:
        K = self.K
        chance = self.chance
        algebra = ops_of(self.K).algebra
        product = algebra.column_products
        halves = [algebra.triangular_solve(self.factor, E) for E in self.E]
        moved = [half @ K for half in halves]
        out, by_mode = 0.0 * K, 0.0 * chance
        # From the covariance of the classes at each row, less twice its product with π.
        for c, (E, half) in enumerate(zip(self.E, halves, strict=True)):
            own = K.diagonal() - product(E @ K, K)
            by_mode[:, c] = own + product(moved[c], moved[c])
            by_mode[:, c] -= 2 * chance[:, c] * own
            for d, other in enumerate(moved):
                by_mode[:, c] -= 2 * chance[:, d] * product(moved[c], other)
            out -= E - half.T @ half
        by_mode -= (chance * by_mode).sum(axis=1)[:, None]
        by_mode *= -0.5 * self.weight * chance
        change = by_mode - self._product(K @ by_mode)
        cross = change @ self.slope.T
        return 0.5 * (out + self.slope @ self.slope.T + cross + cross.T)


@dataclass(frozen=True)
class Softmax(LaplaceLikelihood):
    """P(y = c | f) = exp(f_c)/Σ_d exp(f_d), with targets ±1 in a column per class."""

    is_joint: ClassVar[bool] = True

    def problems(
        self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray
    ) -> Sequence[Any]:
        return [_ClassProblem(K, Y, weight)]

    def posterior(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Any:
        """Return the posterior given rows, with the evidence of the sample."""
        plan = None if basis.omits else basis.plan
        evidence = LaplaceEvidence(sample, basis.kernel, plan, self)
        value, _ = evidence(evidence.hyper.theta, False)
        posterior = super().posterior(basis, rows, sample, limit)
        share = value / rows.n_targets
        functions = [replace(f, evidence=share) for f in posterior.of_functions]
        return replace(posterior, of_functions=functions)

    def of_functions(
        self, features: FeatureMatrix, D: int
    ) -> Sequence[LaplacePosterior]:
        """Return the posterior of the weights of every class, at their joint mode.

        Each has the precision I + ZᵀD_cZ, as if classes were independent. Probabilities
        depend only on differences of classes. These have the variances of Laplace's
        approximation if no class is certain and the data determine much, or nothing;
        between, and if one class is certain, their variances are smaller, down to a
        half.
        """
        ops = ops_of(features.like)
        loss = LogisticLoss(features, 1.0)
        tolerance = max(DECREMENT, ops.precision(features.dtype))

        def reached(value: float, slope: np.ndarray) -> bool:
            return 0.5 * float(slope @ slope) <= tolerance * max(1.0, value)

        start = ops.float64_zeros(loss.size, features.like)
        flat, _ = descend(
            loss,
            loss.curvature,
            start,
            reached,
            _MAX_PRODUCTS,
            max_residual=_MAX_RESIDUAL,
        )
        weights = flat.reshape(loss.shape)
        # The curvature as if classes were independent: π.
        grams = features.reduce(curvature_grams, _softmax, weights, D)
        out = []
        for mean, gram in zip(weights, grams, strict=True):
            ops.algebra.add_to_diagonal(gram, 1.0)
            factor = ops.algebra.lower_factor(gram)
            out.append(LaplacePosterior(mean[:D], factor, math.nan))
        return out


def _softmax(values: Any) -> Any:
    return ops_of(values).special.softmax(values, 1)


def mean_softmax(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return E[softmax(f)] of independent normal f, both (n, k), to about 1e-3."""
    ops = ops_of(means)
    k = means.shape[1]
    # Moved to the centres of intervals, away from 0.
    points = stats.qmc.Sobol(k, scramble=False).random(_POINTS) + 0.5 / _POINTS
    points = stats.norm.ppf(points)
    points = ops.float64_like(points, means)
    out = ops.float64_zeros(means.shape, means)
    for rows in row_blocks(len(means), _ROWS_OF_CLASSES):
        f = means[rows, None] + variances[rows, None] ** 0.5 * points
        out[rows] = ops.special.softmax(f, 2).sum(axis=1) / _POINTS
    return out
