"""Laplace's approximation of binary Gaussian process classification.

With signs y_i, weights s_i and π_i = 1/(1 + exp(−f_i)), the posterior of f is replaced
by a normal law at its mode, of curvature W = diag(s_i π_i(1 − π_i)):

    log p(y) ≈ Σ s_i log σ(y_i f_i) − ½fᵀK⁻¹f − ½ log det(I + W^½KW^½)

(Rasmussen & Williams 2006, section 3.4; the gradient is their algorithm 5.1). On
features f = Zb, fᵀK⁻¹f = ‖b‖², and the determinant is that of I + ZᵀWZ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit, roots_hermitenorm
from sklearn.exceptions import ConvergenceWarning

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.models._gp_evidence import LikelihoodOfRows, WeightPosterior
from randkern.models.feature_matrix import FeatureMatrix, add_combinations, products
from randkern.plan import Plan

__all__ = ["LaplaceEvidence", "LaplacePosterior", "mean_probability"]

_ROWS = 1024
# Newton's method stops where a step promises less than this share of the objective, or
# less than the precision of the features.
_DECREMENT = 1e-14
# More than this share is worth a warning.
_SHORT = 1e-6
_MOST_STEPS = 100
_MOST_HALVINGS = 20


class LaplacePosterior(WeightPosterior):
    """The law that stands for the posterior given signs, of precision I + ZᵀWZ."""

    @classmethod
    def of(
        cls, features: FeatureMatrix, D: int, signs: np.ndarray, weight: np.ndarray
    ) -> LaplacePosterior:
        """Return the law given signs of shape (n,), by Newton's method."""
        ops = ops_of(features.like)
        start = ops.zeros(D, signs)
        if features.cached is not None and features.n_rows < D:
            # Its mode as values of the rows costs less.
            Z = ops.as_float64(features.cached[:, :D])
            dual = _Mode(Z @ Z.T, signs, weight, ops.zeros(len(Z), Z)).dual
            start = Z.T @ dual
        problem = _FeatureProblem(features, D, signs, weight)
        try:
            mode, value, factor = _newton(
                problem, start, max(_DECREMENT, ops.precision(features.dtype))
            )
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "rounding errors hide the curvature of the likelihood: the values of "
                "the kernel are too large for labels; multiply it by a small number, "
                "or scale the input down."
            ) from error
        evidence = value - 0.5 * ops.algebra.log_determinant(factor)
        return cls(mode, factor, evidence)

    def moments(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of f at rows of features."""
        ops, half = ops_of(Z), self.half(Z)
        variance = ops.algebra.column_products(half, half)
        return ops.as_float64(Z) @ self.mean, variance


# Of weights: the objective, its gradient, and a factor of minus its Hessian.
_Problem = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def _newton(
    problem: _Problem, start: np.ndarray, tolerance: float
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return where a concave function is largest, its value and the factor there."""
    at = start
    factor_solve = ops_of(at).algebra.factor_solve
    value, gradient, factor = problem(at)
    for _ in range(_MOST_STEPS):
        step = factor_solve(factor, gradient)
        if float(gradient @ step) <= tolerance * max(1.0, abs(value)):
            break
        length = 1.0
        for _ in range(_MOST_HALVINGS):
            trial = at + length * step
            after = problem(trial)
            if after[0] > value:
                break
            length /= 2
        else:
            break  # no digit is left to be gained
        at, (value, gradient, factor) = trial, after
    left = float(gradient @ factor_solve(factor, gradient))
    if not left <= max(_SHORT, tolerance) * max(1.0, abs(value)):
        warnings.warn(
            "Newton's method stopped short of the mode of the posterior (a step still "
            f"promises {left:.2g}): use float64 rows, or a smaller scale.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return at, value, factor


class _FeatureProblem:
    """The log posterior of weights of features, summed up block by block."""

    def __init__(
        self, features: FeatureMatrix, D: int, signs: np.ndarray, weight: np.ndarray
    ):
        self.features, self.D = features, D
        self.signs, self.weight = signs, weight

    def __call__(self, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        D, width, ops = self.D, self.features.width, ops_of(b)
        weights = ops.zeros((1, width), b)
        weights[0, :D] = b
        gram, slopes = ops.zeros((D, D), b), ops.zeros((1, width), b)
        value = -0.5 * float(b @ b)
        for block in self.features.blocks():
            part, Z = block.rows, block.values
            f = products(Z, weights)[:, 0]
            log, slope, curvature = _likelihood(f, self.signs[part], self.weight[part])
            value += log
            add_combinations(Z, slope[:, None], slopes)
            ops.add_gram(Z[:, :D] * ops.asarray(curvature**0.5, Z)[:, None], gram)
        ops.algebra.add_to_diagonal(gram, 1.0)
        return value, slopes[0, :D] - b, ops.algebra.lower_factor(gram)


def _likelihood(
    f: np.ndarray, signs: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return Σ s log σ(yf), and its first and minus its second derivatives."""
    ops = ops_of(f)
    log = -float(weight @ ops.softplus(-signs * f))
    probability = ops.special.expit(f)
    slope = weight * signs * ops.special.expit(-signs * f)
    return log, slope, weight * probability * ops.special.expit(-f)


class LaplaceEvidence(LikelihoodOfRows):
    """The approximate log p(y | θ) of some rows, and its gradient.

    The sum over the columns of signs: several classes, one against the rest each,
    share one kernel. Evaluated by n × n matrices.

    Targets are ±1.
    """

    def __init__(self, rows: ArrayRows, hyper: Hyperparameters, plan: Plan | None):
        super().__init__(rows, hyper, plan)
        # Newton's method starts from the mode of the last θ.
        self._modes = ops_of(rows.Y).zeros((rows.n_targets, rows.n_rows), rows.Y)

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the evidence at θ and its gradient (zeros if not asked for)."""
        hyper, out = self.hyper.at(theta), np.zeros(self.hyper.size)
        K, add_gradient = self._covariance(hyper)
        total, slopes = 0.0, ops_of(K).zeros(K.shape, K)
        for t, signs in enumerate(self.rows.Y.T):
            mode = _Mode(K, signs, self._weight, self._modes[t])
            self._modes[t] = mode.dual
            total += mode.evidence
            if gradient:
                slopes += mode.slopes()
        if gradient:
            add_gradient(slopes, out)
        return total, out


class _Mode:
    """The mode of the values f = Ka for a Gram matrix K (algorithm 3.1)."""

    def __init__(
        self, K: np.ndarray, signs: np.ndarray, weight: np.ndarray, start: np.ndarray
    ):
        self.K, self.signs, self.weight = K, signs, weight
        a = start
        value = self._move(a)
        for _ in range(_MOST_STEPS):
            right = self.curvature * self.f + self.slope
            inner = self._half_solved(K @ right)
            step = right - inner - a
            length, before = 1.0, value
            for _ in range(_MOST_HALVINGS):
                value = self._move(a + length * step)
                if value >= before - 1e-12 * abs(before):
                    break
                length /= 2
            a = a + length * step
            if abs(value - before) <= 1e-13 * max(1.0, abs(value)):
                break
        self.dual = a
        algebra = ops_of(K).algebra
        self.evidence = value - 0.5 * algebra.log_determinant(self.factor)

    def _move(self, a: np.ndarray) -> float:
        """Go to f = Ka; return the log posterior there."""
        self.f = self.K @ a
        log, self.slope, self.curvature = _likelihood(self.f, self.signs, self.weight)
        root = self.curvature**0.5
        B = self.K * root[:, None] * root
        algebra = ops_of(B).algebra
        algebra.add_to_diagonal(B, 1.0)
        self.factor = algebra.lower_factor(B)
        self.root = root
        return log - 0.5 * float(a @ self.f)

    def _half_solved(self, right: np.ndarray) -> np.ndarray:
        """Return R·right for R = W^½B⁻¹W^½."""
        root = self.root if right.ndim == 1 else self.root[:, None]
        algebra = ops_of(right).algebra
        return root * algebra.factor_solve(self.factor, root * right)

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, a symmetric matrix."""
        K, slope, ops = self.K, self.slope, ops_of(self.K)
        R = self._half_solved(ops.algebra.identity(len(K), K))
        # K is symmetric.
        variance = K.diagonal() - ops.algebra.column_products(R @ K, K)
        # W depends on f, which moves by (I − KR) dK ∇log p.
        change = self.curvature * (1 - 2 * ops.special.expit(self.f))
        by_mode = -0.5 * variance * change
        moved = by_mode - R @ (K @ by_mode)
        cross = moved[:, None] * slope
        return 0.5 * (slope[:, None] * slope - R + cross + cross.T)


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
