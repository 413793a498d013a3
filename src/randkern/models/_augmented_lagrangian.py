"""The duals of support vector machines by the method of multipliers.

With rows m_i = y_i z_i of M,

    min ½‖w‖²  subject to  Mw ≥ 1,

softly: each unit that a row lacks costs U_i, which may be infinite. The multipliers a
are the dual variables. Each iteration minimises the augmented Lagrangian in w,

    ½‖w‖² + Σ_i max over 0 ≤ b ≤ U_i of b (1 − m_i·w) − (b − a_i)²/2σ,

and takes the maximisers b = clip(a + σ(1 − Mw), 0, U) as the next a (Rockafellar 1976,
"Augmented Lagrangians and applications of the proximal point algorithm"). Newton's
method finds the minimum: its second derivative I + σ FᵀF has only the rows F whose
variables lie within their bounds (Mangasarian 2002, "A finite Newton method for
classification"; Li, Sun & Toh 2018, "A highly efficient semismooth Newton augmented
Lagrangian method for solving Lasso problems"), and the number of steps hardly depends
on U. Once these rows are those of the solution, equations give it to rounding.

Where U is infinite and no w exists, a grows along a combination of rows that vanishes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.models.feature_matrix import FeatureMatrix, combined, products
from randkern.models.memory import SIGNED_ROWS

# The weight σ of the first iteration, its growth and its bound; steps beyond which an
# iteration was hard enough not to raise it.
_FIRST_WEIGHT, _GROWTH, _LARGEST_WEIGHT = 10.0, 10.0, 1e10
_MANY_STEPS = 15
_MOST_ITERATIONS, _MOST_STEPS = 50, 40
# A step is as long as leaves this share of the slope along it.
_SLOPE = 0.1
_MOST_TRIALS = 40
# So many iterations that do not lower the gap: rounding errors are all that is left.
# Those of a gap that is still large may come before it falls.
_STALLED, _NEAR = 4, 0.1
_MOST_STALLED = 12
# Dual variables within their bounds that equations are solved for, at most.
_MOST_FREE = 2000
# The norm of a combination of rows that is 0 but for rounding errors.
_VANISHING = 1e-13


@dataclass
class DualSolution:
    """What is known of the dual variables of a margin.

    Attributes
    ----------
    alpha : ndarray of shape (n,)
        Between 0 and their bounds.
    gap : float
        The relative duality gap; infinite where a hard margin has not been reached.
    n_steps : int
        Newton's.
    shares : ndarray of shape (n,)
        Of a hard margin: non-negative numbers of sum 1, which combine the rows to a
        vector of norm `residual`, relative to the longest row.
    residual : float
    """

    alpha: np.ndarray
    gap: float = math.inf
    n_steps: int = 0
    shares: np.ndarray | None = None
    residual: float = math.inf


def solve_box(
    features: FeatureMatrix,
    signs: np.ndarray,
    upper: np.ndarray,
    tol: float,
    longest: float,
    start: np.ndarray | None = None,
) -> DualSolution:
    """Return the dual variables of one margin.

    Parameters
    ----------
    features : FeatureMatrix
        Float64.
    signs : ndarray of shape (n,)
    upper : ndarray of shape (n,)
        Positive; all infinite for a hard margin.
    tol : float
        The relative duality gap to stop at; it may end earlier, where rounding errors
        leave no more.
    longest : float
        The norm of the longest row.
    start : ndarray of shape (n,), optional
        Dual variables to start from.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models.feature_matrix import FeatureArray
    >>> from randkern.models._augmented_lagrangian import solve_box
    >>> Z, signs = np.zeros((2, 64)), np.array([1.0, -1.0])
    >>> Z[:, 0] = 1.0, -2.0
    >>> found = solve_box(FeatureArray(Z), signs, np.full(2, 10.0), 1e-10, 2.0)
    >>> found.alpha.round(6)
    array([1., 0.])
    """
    rows = _SignedRows(features, signs, longest)
    problem = _Problem(rows, rows.square * upper)
    if start is None:
        at = problem.at(rows.ops.zeros(len(signs), signs))
    else:
        # Equations lead far away where too many rows are taken for free.
        start = rows.square * start
        at = problem.polished(start, _NEAR) or problem.at(start)
    best, weight, stalled = DualSolution(at.alpha, at.gap), _FIRST_WEIGHT, 0
    for _ in range(_MOST_ITERATIONS):
        if best.gap <= tol or best.residual <= _VANISHING:
            break
        after, n_steps = problem.iterate(at, weight)
        best.n_steps += n_steps
        if n_steps == _MOST_STEPS:
            weight /= _GROWTH
            continue
        stalled += 1
        if problem.is_hard and problem.note_ray(after.alpha - at.alpha, best):
            stalled = 0
        at = problem.polished(after.alpha, after.gap) or after
        if at.gap < best.gap:
            best.alpha, best.gap, stalled = at.alpha, at.gap, 0
        if stalled > (_STALLED if best.gap < _NEAR else _MOST_STALLED):
            break
        if n_steps < _MANY_STEPS:
            weight = min(_GROWTH * weight, _LARGEST_WEIGHT)
    best.alpha = best.alpha / rows.square
    return best


@dataclass(frozen=True)
class _Point:
    """Dual variables, the weights Mᵀa that they make, their values Mw, and the gap."""

    alpha: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    gap: float


class _Problem:
    """A margin of rows of length at most 1, whose dual variables have bounds."""

    def __init__(self, rows: _SignedRows, upper: np.ndarray):
        self.rows, self.upper, self.ops = rows, upper, rows.ops
        self.is_hard = math.isinf(rows.ops.largest(upper))

    def at(self, alpha: np.ndarray) -> _Point:
        weights = self.rows.weights(alpha)
        values = self.rows.values(weights)
        square, total = float(weights @ weights), float(alpha.sum())
        missing = (1.0 - values).clip(0.0)
        if self.is_hard:
            # Longer by as much as makes all margins 1.
            left = 1.0 - self.ops.largest(missing)
            if left <= 0:
                return _Point(alpha, weights, values, math.inf)
            primal, dual = 0.5 * square / left**2, (total - 0.5 * square / left) / left
        else:
            primal, dual = (
                0.5 * square + float(self.upper @ missing),
                total - 0.5 * square,
            )
        return _Point(alpha, weights, values, (primal - dual) / (primal or 1.0))

    def iterate(self, at: _Point, weight: float) -> tuple[_Point, int]:
        """Return the next variables and the number of Newton's steps they took."""
        weights, values, where = at.weights, at.values, self.ops.xp.where
        before, length = None, 0.0
        for n_steps in range(_MOST_STEPS + 1):  # noqa: B007
            alpha = self._variables(at, weight, values)
            # Where they are: at a bound, 0 or 2, or within, 1.
            state = where(alpha > 0, 1, 0) + where(alpha >= self.upper, 1, 0)
            if length == 1.0 and bool((state == before).all()):
                break
            gradient = weights - self.rows.weights(alpha)
            step = self._newton_step(state == 1, weight, gradient)
            change = self.rows.values(step)
            length = self._length(at, weight, (weights, values), (step, change))
            if length == 0.0:
                break
            weights, values = weights + length * step, values + length * change
            before = state
        return self.at(alpha), n_steps

    def _variables(self, at: _Point, weight: float, values: np.ndarray) -> np.ndarray:
        return (at.alpha + weight * (1.0 - values)).clip(0.0).clip(max=self.upper)

    def _newton_step(
        self, free: np.ndarray, weight: float, gradient: np.ndarray
    ) -> np.ndarray:
        """Return −(I + σ FᵀF)⁻¹g by whichever of FFᵀ and FᵀF is smaller."""
        numbers, algebra = self.ops.flatnonzero(free), self.ops.algebra
        if len(numbers) > len(gradient):
            gram = self.rows.gram(free)
            algebra.add_to_diagonal(gram, 1 / weight)
            return algebra.factor_solve(algebra.lower_factor(gram), -gradient / weight)
        F = self.rows.take(numbers)
        products = F @ F.T
        algebra.add_to_diagonal(products, 1 / weight)
        factor = algebra.lower_factor(products)
        return algebra.factor_solve(factor, F @ gradient) @ F - gradient

    def _length(self, at: _Point, weight: float, place: tuple, step: tuple) -> float:
        """Return how far to go along a step: 1, or where the slope nearly vanishes."""
        (weights, values), (along, change) = place, step

        def slope(length: float) -> float:
            alpha = self._variables(at, weight, values + length * change)
            return float(along @ (weights + length * along) - alpha @ change)

        steepest = -slope(0.0)
        if steepest <= 0.0:
            return 0.0  # rounding errors
        if slope(1.0) <= 1e-9 * steepest:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_MOST_TRIALS):
            length = 0.5 * (low + high)
            found = slope(length)
            if abs(found) <= _SLOPE * steepest:
                break
            low, high = (low, length) if found > 0 else (length, high)
        return length

    def polished(self, alpha: np.ndarray, gap: float) -> _Point | None:
        """Return variables by which rows within the bounds have margins of 1.

        None if their gap is no less than `gap`, or these rows are too many.
        """
        ops, full = self.ops, alpha >= self.upper
        free = ops.flatnonzero((alpha > 0) & ~full)
        if not 0 < len(free) <= min(_MOST_FREE, self.rows.width):
            return None
        F = self.rows.take(free)
        out = ops.xp.where(full, alpha, 0.0)
        # Equal rows share their variable: the shortest solution.
        found = ops.algebra.shortest_solution(F @ F.T, 1.0 - F @ self.rows.weights(out))
        out[free] = found.clip(0.0).clip(max=self.upper[free])
        after = self.at(out)
        return after if after.gap < gap else None

    def note_ray(self, increase: np.ndarray, best: DualSolution) -> bool:
        """Keep shares by which the variables grow, if they combine to half or less."""
        increase = increase.clip(0.0)
        total = float(increase.sum())
        if total == 0:
            return False
        shares = increase / total
        norm = self.ops.algebra.norm(self.rows.weights(shares))
        if not norm <= 0.5 * best.residual * self.rows.longest:
            return False
        best.shares, best.residual = shares, norm / self.rows.longest
        return True


class _SignedRows:
    """Rows m_i = y_i z_i of length at most 1."""

    def __init__(self, features: FeatureMatrix, signs: np.ndarray, longest: float):
        self._features, self.ops, self.width = features, ops_of(signs), features.width
        # By a power of 2, which rounds nothing.
        unit = 2.0 ** math.frexp(longest)[1]
        self.longest, self.square, self._factors = longest / unit, unit**2, signs / unit

    def weights(self, alpha: np.ndarray) -> np.ndarray:
        """Return Mᵀa."""
        return combined(self._features, (alpha * self._factors)[:, None])[0]

    def values(self, weights: np.ndarray) -> np.ndarray:
        """Return Mw."""
        out = self.ops.zeros(self._features.n_rows, weights)
        for block in self._features.blocks():
            out[block.rows] = products(block.values, weights[None])[:, 0]
        return self._factors * out

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return some rows."""
        return self._features.take(numbers) * self._factors[numbers, None]

    def gram(self, free: np.ndarray) -> np.ndarray:
        """Return FᵀF of the rows that are free."""
        gram = self.ops.zeros((self.width, self.width), self._factors)
        factors = self._factors * free
        for block in self._features.blocks(SIGNED_ROWS):
            self.ops.add_gram(block.values * factors[block.rows, None], gram)
        return gram
