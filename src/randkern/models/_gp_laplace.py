"""Laplace's approximation of binary Gaussian process classification.

With signs y_i, weights s_i and π_i = 1/(1 + exp(−f_i)), the posterior of f is replaced
by a normal law at its mode, of curvature W = diag(s_i π_i(1 − π_i)):

    log p(y) ≈ Σ s_i log σ(y_i f_i) − ½fᵀK⁻¹f − ½ log det(I + W^½KW^½)

(Rasmussen & Williams 2006, section 3.4; the gradient is their algorithm 5.1). On
features f = Zb, fᵀK⁻¹f = ‖b‖², and the determinant is that of I + ZᵀWZ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.special import expit, ndtr, roots_hermitenorm

from randkern.backend import cpu, thin
from randkern.blocks import row_blocks
from randkern.kernels._gradients import (
    Hyperparameters,
    add_feature_gradient,
    add_gram_gradient,
    with_kernel,
)
from randkern.models._margins import FeatureRows
from randkern.models._rows import ArrayRows
from randkern.plan import Plan, evaluate

__all__ = ["LaplaceEvidence", "LaplacePosterior", "mean_probability"]

_ROWS = 1024
# Newton's method stops where a step promises less than this share of the objective, or
# less than the precision of the features.
_DECREMENT = 1e-14
_MOST_STEPS = 100
_MOST_HALVINGS = 20


@dataclass(frozen=True)
class LaplacePosterior:
    """The normal law of the weights of features that stands for their posterior.

    Attributes
    ----------
    mean : ndarray of shape (D,)
    factor : ndarray of shape (D, D)
        Lower triangular Cholesky factor of I + ZᵀWZ, the precision.
    evidence : float
    """

    mean: np.ndarray
    factor: np.ndarray
    evidence: float

    @classmethod
    def of(
        cls, features: FeatureRows, D: int, signs: np.ndarray, weight: np.ndarray
    ) -> LaplacePosterior:
        """Return the law given signs of shape (n,), by Newton's method."""
        start = np.zeros(D)
        if features.kept is not None and features.n_rows < D:
            # Its mode as values of the rows costs less.
            Z = features.kept[:, :D].astype(np.float64)
            dual = _Mode(Z @ Z.T, signs, weight, np.zeros(len(Z))).dual
            start = Z.T @ dual
        problem = _FeatureProblem(features, D, signs, weight)
        mode, value, factor = _newton(
            problem, start, max(_DECREMENT, float(np.finfo(features.dtype).eps))
        )
        evidence = value - float(np.sum(np.log(np.diagonal(factor))))
        return cls(mode, factor, evidence)

    def moments(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of f at rows of features."""
        Z = Z.astype(np.float64, copy=False)
        half = scipy.linalg.solve_triangular(
            self.factor, Z.T, lower=True, check_finite=False
        )
        return Z @ self.mean, np.einsum("ij,ij->j", half, half)


# Of weights: the objective, its gradient, and a factor of minus its Hessian.
_Problem = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def _newton(
    problem: _Problem, start: np.ndarray, tolerance: float
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return where a concave function is largest, its value and the factor there."""
    at = start
    value, gradient, factor = problem(at)
    for _ in range(_MOST_STEPS):
        step = scipy.linalg.cho_solve((factor, True), gradient, check_finite=False)
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
    return at, value, factor


class _FeatureProblem:
    """The log posterior of weights of features, summed up block by block."""

    def __init__(
        self, features: FeatureRows, D: int, signs: np.ndarray, weight: np.ndarray
    ):
        self.features, self.D = features, D
        self.signs, self.weight = signs, weight

    def __call__(self, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        D, dtype = self.D, self.features.dtype
        size = float(np.abs(b).max(initial=0.0)) or 1.0
        right = np.zeros((1, self.features.width), dtype)
        right[0, :D] = b / size
        gram, slopes = np.zeros((D, D)), np.zeros((1, self.features.width))
        value = -0.5 * float(b @ b)
        for part, Z in self.features.blocks():
            f = size * thin.multiply(Z, right)[:, 0]
            log, slope, curvature = _likelihood(f, self.signs[part], self.weight[part])
            value += log
            inner = np.ascontiguousarray(slope[:, None], dtype)
            thin.add_transposed(Z, inner, slopes)
            cpu.add_gram(Z[:, :D] * np.sqrt(curvature)[:, None].astype(dtype), gram)
        gram[np.diag_indices(D)] += 1.0
        # The upper triangle of a C-ordered array is LAPACK's lower one.
        factor = scipy.linalg.cholesky(
            gram.T, lower=True, overwrite_a=True, check_finite=False
        )
        return value, slopes[0, :D] - b, factor


def _likelihood(
    f: np.ndarray, signs: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return Σ s log σ(yf), and its first and minus its second derivatives."""
    log = -float(weight @ np.logaddexp(0, -signs * f))
    probability = expit(f)
    slope = weight * signs * expit(-signs * f)
    return log, slope, weight * probability * expit(-f)


class LaplaceEvidence:
    """The approximate log p(y | θ) of some rows, and its gradient.

    The sum over the columns of signs: several classes, one against the rest each,
    share one kernel. Evaluated by n × n matrices.

    Parameters
    ----------
    rows : ArrayRows
        Float64, of positive weight, with targets ±1.
    hyper : Hyperparameters
    plan : Plan or None
        None for the exact kernel.
    """

    def __init__(self, rows: ArrayRows, hyper: Hyperparameters, plan: Plan | None):
        self.rows, self.hyper, self.plan = rows, hyper, plan
        self._weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        # Newton's method starts from the mode of the last θ.
        self._modes = np.zeros((rows.n_targets, rows.n_rows))

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the evidence at θ and its gradient (zeros if not asked for)."""
        hyper, out = self.hyper.at(theta), np.zeros(self.hyper.size)
        X, Z = self.rows.X, None
        if self.plan is None:
            K = hyper.kernel._gram(X, None)
        else:
            plan = with_kernel(self.plan, self.hyper.kernel, hyper.kernel)
            Z = evaluate(plan, X)
            K = Z @ Z.T
        total, slopes = 0.0, np.zeros_like(K)
        for t, signs in enumerate(self.rows.Y.T):
            mode = _Mode(K, signs, self._weight, self._modes[t])
            self._modes[t] = mode.dual
            total += mode.evidence
            if gradient:
                slopes += mode.slopes()
        if not gradient:
            return total, out
        if Z is None:
            for part in row_blocks(len(K), _ROWS):
                add_gram_gradient(hyper, X[part], X, slopes[part], out)
        else:
            add_feature_gradient(hyper, plan, X, Z, 2 * (slopes @ Z), out)
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
        determinant = 2 * float(np.sum(np.log(np.diagonal(self.factor))))
        self.evidence = value - 0.5 * determinant

    def _move(self, a: np.ndarray) -> float:
        """Go to f = Ka; return the log posterior there."""
        self.f = self.K @ a
        log, self.slope, self.curvature = _likelihood(self.f, self.signs, self.weight)
        root = np.sqrt(self.curvature)
        B = self.K * root[:, None] * root
        B[np.diag_indices_from(B)] += 1.0
        self.factor = scipy.linalg.cholesky(B, lower=True, check_finite=False)
        self.root = root
        return log - 0.5 * float(a @ self.f)

    def _half_solved(self, right: np.ndarray) -> np.ndarray:
        """Return R·right for R = W^½B⁻¹W^½."""
        root = self.root if right.ndim == 1 else self.root[:, None]
        inner = scipy.linalg.cho_solve(
            (self.factor, True), root * right, check_finite=False
        )
        return root * inner

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, a symmetric matrix."""
        K, slope = self.K, self.slope
        R = self._half_solved(np.eye(len(K)))
        variance = np.diagonal(K) - np.einsum("ij,ij->i", K @ R, K)
        # W depends on f, which moves by (I − KR) dK ∇log p.
        change = self.curvature * (1 - 2 * expit(self.f))
        by_mode = -0.5 * variance * change
        moved = by_mode - R @ (K @ by_mode)
        cross = np.outer(moved, slope)
        return 0.5 * (np.outer(slope, slope) - R + cross + cross.T)


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
    out = np.empty(len(mean))
    nodes, weights = roots_hermitenorm(40)
    logistic = np.arange(-40, 40.25, 0.25)
    density = 0.25 * expit(logistic) * expit(-logistic)
    for rows in row_blocks(len(mean), _ROWS):
        m, deviation = mean[rows, None], np.sqrt(variance[rows, None])
        narrow = expit(m + deviation * nodes) @ (weights / weights.sum())
        wide = ndtr((m - logistic) / np.maximum(deviation, 1.0)) @ density
        out[rows] = np.where(deviation[:, 0] <= 1, narrow, wide)
    return np.clip(out, 0.0, 1.0, out=out)
