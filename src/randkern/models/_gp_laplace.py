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
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, gammaln, roots_hermitenorm
from sklearn.exceptions import ConvergenceWarning

from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, FitData, TrainingData
from randkern.kernels import Kernel
from randkern.models._gp_likelihood import Evidence, Likelihood
from randkern.models._gp_posterior import Mode, Posterior
from randkern.models._newton import descend
from randkern.models.feature_matrix import FeatureMatrix, add_combinations, products
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

    def most_rows(self, plan: Plan | None, n_targets: int) -> int:
        affordable = round((_LEARNING_OPERATIONS / n_targets) ** (1 / 3))
        return max(_MIN_LEARNED_ROWS, min(_MAX_LEARNED_ROWS, affordable))

    def check_memory(self, data: FitData, n_learned: int) -> None:
        rows = data.rows
        most = min(rows.n_rows, self.most_rows(data.plan, rows.n_targets))
        needed = laplace_bytes(data.plan, rows, most)
        check_matrices(data.plan, rows, needed, data.limit)

    def evidence(
        self, rows: ArrayRows, kernel: Kernel, plan: Plan | None
    ) -> LaplaceEvidence:
        return LaplaceEvidence(rows, kernel, plan, self)

    def posterior(self, data: FitData, sample: ArrayRows) -> Posterior:
        kernel, plan = data.kernel, data.plan
        try:
            if plan is None:
                problem = self.problem(kernel._gram(sample.X, None), *sample.targets())
                mode = problem.maximise(problem.zero, DECREMENT).mode()
            else:
                mode = self.mode(FeatureMatrix(data.rows, plan, data.limit // 4))
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "rounding errors hide the curvature of the likelihood: the values of "
                "the kernel are too large for the targets; multiply it by a small "
                "number, or scale the input down."
            ) from error
        if not all(ops_of(factor).is_finite(factor) for factor in mode.factors):
            raise ValueError(
                f"features overflow {data.rows.dtype}: rows of X are too large for "
                f"{kernel._formula()}; scale the input down."
            )
        return Posterior(kernel, plan, sample.X if plan is None else None, *mode)

    @abstractmethod
    def mode(self, features: FeatureMatrix) -> Mode:
        """Return the mode of the weights of features."""

    @abstractmethod
    def problem(self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> Any:
        """Return the problem of finding the mode given the Gram matrix of rows."""


class RowLikelihood(LaplaceLikelihood):
    """A density of targets, of a single column, given values of a process."""

    # Whether Newton's steps use another curvature than the posterior.
    steps_apart: ClassVar[bool] = False

    def mode(self, features: FeatureMatrix) -> Mode:
        ops = ops_of(features.like)
        start = ops.float64_zeros(features.n_components, features.like)
        tolerance = max(DECREMENT, ops.precision(features.dtype))
        return _FeatureProblem(features, self).maximise(start, tolerance).mode()

    def problem(self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> _RowProblem:
        return _RowProblem(K, self, Y[:, 0], weight)

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

    at: np.ndarray
    value: float

    @abstractmethod
    def go_to(self, at: np.ndarray) -> None:
        """Evaluate the posterior at a point."""

    @abstractmethod
    def step(self) -> tuple[np.ndarray, float]:
        """Return the step of Newton's method from the point, and its predicted gain."""

    def maximise(self, start: np.ndarray, tolerance: float) -> Any:
        """Go to the approximate maximum by Newton's method, and return the problem."""
        self.go_to(start)
        step, promise = self.step()
        for _ in range(_MAX_STEPS):
            if promise <= tolerance * max(1.0, abs(self.value)):
                break
            at, before = self.at, self.value
            for halvings in range(_MAX_HALVINGS):
                self.go_to(at + 0.5**halvings * step)
                if self.value > before:
                    break
            else:
                self.go_to(at)
                break  # no further digit can be gained
            step, promise = self.step()
        if not promise <= max(_SHORT, tolerance) * max(1.0, abs(self.value)):
            warn(
                "Newton's method stopped short of the mode of the posterior (another "
                f"step would gain {promise:.2g}): use float64 rows, or a smaller "
                "scale.",
                ConvergenceWarning,
            )
        return self


def _weighted_terms(
    likelihood: RowLikelihood, f: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> Terms:
    """Return the terms of rows times their weights."""
    terms = likelihood.terms(f, y)
    return terms if weight is None else Terms(*(weight * term for term in terms))


class _FeatureProblem(Problem):
    """The log posterior of weights of features, from sums over the rows."""

    def __init__(self, features: FeatureMatrix, likelihood: RowLikelihood):
        self.features = features
        self.likelihood = likelihood

    def go_to(self, at: np.ndarray) -> None:
        self.at = at
        value, slope, gram = self._sums("step")
        self.value = value - 0.5 * float(at @ at)
        self.gradient = slope - at
        self.factor = self._factor_of(gram)

    def _sums(self, curvature: str) -> tuple[float, np.ndarray, np.ndarray]:
        return self.features.reduce(_sums, self.at, self.likelihood, curvature)

    def step(self) -> tuple[np.ndarray, float]:
        step = ops_of(self.factor).algebra.factor_solve(self.factor, self.gradient)
        return step, float(self.gradient @ step)

    def mode(self) -> Mode:
        factor = self.factor
        if self.likelihood.steps_apart:
            factor = self._factor_of(self._sums("curvature")[2])
        determinant = ops_of(factor).algebra.log_determinant(factor)
        return Mode(self.at[:, None], [factor], None, self.value - 0.5 * determinant)

    def _factor_of(self, gram: np.ndarray) -> np.ndarray:
        algebra = ops_of(gram).algebra
        algebra.add_to_diagonal(gram, 1.0)
        return algebra.lower_factor(gram)


def _sums(
    features: FeatureMatrix, at: np.ndarray, likelihood: RowLikelihood, curvature: str
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
        Z, y = block.values, block.Y[:, 0]
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
        # The mode at the last θ, where Newton's method starts.
        self._last: np.ndarray | None = None

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        size = self.hyper.size
        has_noise = len(theta) > size
        likelihood = self.likelihood
        if has_noise:
            likelihood = likelihood.at(math.exp(theta[-1]))
        K, add_gradient = self._gram(self.hyper.at(theta[:size]))
        problem = likelihood.problem(K, self.rows.Y, self._weight)
        start = problem.zero
        if self._last is not None:
            # Another K may have moved f far away.
            problem.go_to(start)
            value = problem.value
            problem.go_to(self._last)
            if not value > problem.value:
                start = self._last
        problem.maximise(start, DECREMENT)
        self._last = problem.at
        evidence = problem.evidence()
        out = np.zeros(len(theta))
        if gradient:
            add_gradient(problem.slopes(), out[:size])
            if has_noise:
                out[-1] = problem.noise_slope()
        return evidence, out


def _factorised(K: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return W^½ and the Cholesky factor of I + W^½KW^½ for a diagonal W."""
    root = W.clip(_MIN_CURVATURE) ** 0.5
    B = K * root[:, None] * root
    algebra = ops_of(B).algebra
    algebra.add_to_diagonal(B, 1.0)
    return root, algebra.lower_factor(B)


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
        self.root, self.factor = _factorised(self.K, terms.step)
        step = self._shrunk(terms.step * self.f + terms.slope) - self.at
        return step, float((self.K @ step) @ (terms.slope - self.at))

    def evidence(self) -> float:
        """Return the log marginal likelihood, after a step from the mode."""
        if self.likelihood.steps_apart:
            self.root, self.factor = _factorised(self.K, self.terms.curvature)
        determinant = ops_of(self.K).algebra.log_determinant(self.factor)
        return self.value - 0.5 * determinant

    def mode(self) -> Mode:
        evidence = self.evidence()
        return Mode(self.at[:, None], [self.factor], [self.root], evidence)

    def _shrunk(self, right: np.ndarray) -> np.ndarray:
        """Return (I − RK)·right = W^½B⁻¹W^-½·right.

        If K is large, as for a mean with a vague prior, the difference has no correct
        digits.
        """
        algebra = ops_of(right).algebra
        return self.root * algebra.factor_solve(self.factor, right / self.root)

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, after `evidence`."""
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
        algebra = ops_of(self.K).algebra
        self.E = []
        self.determinant = -float(ops_of(self.K).xp.log(self.weight).sum())
        for curvature in (self.weight * self.chance).T:
            root, factor = _factorised(self.K, curvature)
            self.determinant += algebra.log_determinant(factor)
            E = algebra.inverse_by_factor(factor)
            E *= root[:, None]
            E *= root
            self.E.append(E)
        self.factor = algebra.lower_factor(sum(self.E[1:], self.E[0] + 0.0))
        self.determinant += algebra.log_determinant(self.factor)

    def evidence(self) -> float:
        return self.value - 0.5 * self.determinant

    def mode(self) -> Mode:
        """Return the mode, with the curvatures D_c, as if classes were independent."""
        parts = [_factorised(self.K, W) for W in (self.weight * self.chance).T]
        roots, factors = zip(*parts, strict=True)
        return Mode(self.at, factors, roots, self.evidence())

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
        # L⁻¹E_cK and the diagonal of K − KE_cK, for E_cK = I − E_cD_c⁻¹.
        D = (self.weight * chance).clip(_MIN_CURVATURE)
        inverse = algebra.triangular_solve(self.factor, algebra.identity(len(K), K))
        moved = [inverse - half / D[:, c] for c, half in enumerate(halves)]
        out, by_mode = 0.0 * K, 0.0 * chance
        # From the covariance of the classes at each row, less twice its product with π.
        for c, (E, half) in enumerate(zip(self.E, halves, strict=True)):
            own = (1.0 - E.diagonal() / D[:, c]) / D[:, c]
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

    def problem(
        self, K: np.ndarray, Y: np.ndarray, weight: np.ndarray
    ) -> _ClassProblem:
        return _ClassProblem(K, Y, weight)

    def posterior(self, data: FitData, sample: ArrayRows) -> Posterior:
        posterior = super().posterior(data, sample)
        if data.plan is None:
            return posterior
        # That of all rows takes matrices of as many rows.
        plan = None if data.plan.triangle is not None else data.plan
        evidence = self.evidence(sample, data.kernel, plan)
        value, _ = evidence(evidence.hyper.theta, False)
        return replace(posterior, evidence=value)

    def mode(self, features: FeatureMatrix) -> Mode:
        """Return the joint mode of the weights of all classes.

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
        D = features.n_components
        grams = features.reduce(curvature_grams, _softmax, weights, D)
        for gram in grams:
            ops.algebra.add_to_diagonal(gram, 1.0)
        factors = [ops.algebra.lower_factor(gram) for gram in grams]
        return Mode(weights[:, :D].T, factors, None, math.nan)


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
