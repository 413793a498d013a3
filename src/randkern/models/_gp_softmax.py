"""Laplace's approximation of classification by the softmax of several processes.

P(y = c | x) = exp(f_c)/Σ_d exp(f_d), every f_c of one kernel. With π the probabilities
at the mode, weights s and D_c = diag(s π_c), minus the second derivative of the log
likelihood is W = diag(D_c) − ΠS Πᵀ, and with E_c = (K + D_c⁻¹)⁻¹

    log det(I + KW) = Σ_c log det(I + D_c^½KD_c^½) + log det Σ_c E_c − Σ_i log s_i

(Rasmussen & Williams 2006, section 3.5 and algorithm 3.3).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm, qmc

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.models._gp_evidence import LikelihoodOfRows
from randkern.models._gp_laplace import DECREMENT, LaplacePosterior, Problem, newton
from randkern.models._newton import descend
from randkern.models.feature_matrix import FeatureMatrix, products
from randkern.models.logistic import LogisticLoss
from randkern.plan import Plan

_MOST_PRODUCTS = 1000
# Points that probabilities are averaged over: errors of about 1e-3.
_POINTS = 512
_ROWS = 256


class SoftmaxEvidence(LikelihoodOfRows):
    """The approximate log p(y | θ) of some rows, and its gradient.

    Targets are ±1, one column per class. Evaluated by n × n matrices.
    """

    def __init__(self, rows: ArrayRows, hyper: Hyperparameters, plan: Plan | None):
        super().__init__(rows, hyper, plan)
        self._start = 0 * rows.Y

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the evidence at θ and its gradient (zeros if not asked for)."""
        hyper, out = self.hyper.at(theta), np.zeros(self.hyper.size)
        K, add_gradient = self._covariance(hyper)
        problem = _ClassProblem(K, self.rows.Y, self._weight)
        # Newton's method starts from the mode of the last θ.
        start = problem.better_of(self._start, 0 * self._start)
        self._start = newton(problem, start, DECREMENT)
        if gradient:
            add_gradient(problem.slopes(), out)
        return problem.evidence, out


class _ClassProblem(Problem):
    """The log posterior of weights a of rows, (n, k), of values f = Ka."""

    def __init__(self, K: np.ndarray, signs: np.ndarray, weight: np.ndarray):
        self.K, self.weight = K, weight[:, None]
        self.own = ops_of(K).as_float64(signs > 0)

    def go_to(self, at: np.ndarray) -> None:
        special = ops_of(at).special
        self.at, self.f = at, self.K @ at
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
        """Set E_c, Σ_c E_c and the evidence, as it is at a mode."""
        K, algebra = self.K, ops_of(self.K).algebra
        self.E, determinant = [], -float(ops_of(K).xp.log(self.weight).sum())
        for curvature in (self.weight * self.chance).T:
            root = curvature**0.5
            B = K * root[:, None] * root
            algebra.add_to_diagonal(B, 1.0)
            factor = algebra.lower_factor(B)
            determinant += algebra.log_determinant(factor)
            E = algebra.inverse_by_factor(factor)
            E *= root[:, None]
            E *= root
            self.E.append(E)
        self.factor = algebra.lower_factor(sum(self.E[1:], self.E[0] + 0.0))
        determinant += algebra.log_determinant(self.factor)
        self.evidence = self.value - 0.5 * determinant

    def _product(self, right: np.ndarray) -> np.ndarray:
        """Return R·right, (n, k), for R = E − E(Σ_c E_c)⁻¹E = (K + W⁻¹)⁻¹."""
        parts = [E @ right[:, c] for c, E in enumerate(self.E)]
        solve = ops_of(right).algebra.factor_solve
        shared = solve(self.factor, sum(parts[1:], parts[0]))
        return ops_of(right).hstack(
            [
                (part - E @ shared)[:, None]
                for part, E in zip(parts, self.E, strict=True)
            ]
        )

    def slopes(self) -> np.ndarray:
        """Return the derivatives of the evidence in K, a symmetric matrix."""
        K, chance, algebra = self.K, self.chance, ops_of(self.K).algebra
        product = algebra.column_products
        halves = [algebra.triangular_solve(self.factor, E) for E in self.E]
        moved = [half @ K for half in halves]
        out, by_mode = 0.0 * K, 0.0 * chance
        # Of the covariance of the classes at each row, less twice its product with π.
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


def softmax_posteriors(
    features: FeatureMatrix, D: int, value: float
) -> list[LaplacePosterior]:
    """Return the law of the weights of every class, at the mode of all together.

    With the precision I + ZᵀD_cZ each, as if classes were independent: differences of
    them, which is all that probabilities depend on, have the variances of Laplace's
    approximation where no class is certain and the data say much, or nothing. They have
    less between, and where one class is certain, down to a half. `value` is what the
    evidences add up to.
    """
    ops, k = ops_of(features.like), features.n_targets
    loss = LogisticLoss(features, 1.0)
    tolerance = max(DECREMENT, ops.precision(features.dtype))

    def reached(value: float, slope: np.ndarray) -> bool:
        return 0.5 * float(slope @ slope) <= tolerance * max(1.0, value)

    start = ops.zeros(loss.size, features.like)
    flat, _ = descend(loss, loss.curvature, start, reached, _MOST_PRODUCTS)
    weights = flat.reshape(loss.shape)
    grams = features.reduce(_class_grams, weights, D)
    out = []
    for mean, gram in zip(weights, grams, strict=True):
        ops.algebra.add_to_diagonal(gram, 1.0)
        factor = ops.algebra.lower_factor(gram)
        out.append(LaplacePosterior(mean[:D], factor, value / k))
    return out


def _class_grams(
    features: FeatureMatrix, weights: np.ndarray, D: int
) -> tuple[np.ndarray, ...]:
    """Return ZᵀD_cZ of every class c."""
    ops, weights = ops_of(features.like), features.padded(weights)
    grams = tuple(ops.zeros((D, D), features.like) for _ in weights)
    for block in features.blocks():
        Z = block.values
        chance = ops.special.softmax(products(Z, weights), 1)
        weight = 1.0 if block.weight is None else block.weight[:, None]
        roots = (weight * chance) ** 0.5
        for c, gram in enumerate(grams):
            ops.add_gram(Z[:, :D] * ops.asarray(roots[:, c], Z)[:, None], gram)
    return grams


def mean_softmax(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return E[softmax(f)] of independent normal f, both (n, k), to about 1e-3.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._gp_softmax import mean_softmax
    >>> mean_softmax(np.array([[0.0, 0.0, 9.0]]), np.ones((1, 3))).round(2)
    array([[0., 0., 1.]])
    """
    ops, k = ops_of(means), means.shape[1]
    points = norm.ppf(qmc.Sobol(k, rng=0).random(_POINTS))
    points = ops.float64_like(points, means)
    out = ops.zeros(means.shape, means)
    for rows in row_blocks(len(means), _ROWS):
        f = means[rows, None] + variances[rows, None] ** 0.5 * points
        out[rows] = ops.special.softmax(f, 2).sum(axis=1) / _POINTS
    return out
