"""Newton's method for margins, whose dual variables have bounds.

With rows m_i = y_i z_i of M,

    min ½‖w‖²  subject to  Mw ≥ 1,

where violations of row i cost U_i per unit. The multipliers a are the dual variables.
Each iteration minimises the augmented Lagrangian in w,

    ½‖w‖² + Σ_i max over 0 ≤ b ≤ U_i of b (1 − m_i·w) − (b − a_i)²/2σ,

and takes the maximisers b = clip(a + σ(1 − Mw), 0, U) as the next a (Rockafellar 1976,
"Augmented Lagrangians and applications of the proximal point algorithm"). Newton's
method finds the minimum: its second derivative I + σ FᵀF has only the rows F whose
variables lie within their bounds (Mangasarian 2002, "A finite Newton method for
classification"; Li, Sun & Toh 2018, "A highly efficient semismooth Newton augmented
Lagrangian method for solving Lasso problems"), and the number of steps hardly depends
on U. Once these rows are those of the solution, a linear system gives it to rounding.
In regression, targets stand in place of 1, and a tube around them costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.models.feature_matrix import FeatureMatrix, combined, products
from randkern.models.memory import SIGNED_ROWS

# The weight σ of the first iteration, the factor by which it grows, and its bound.
FIRST_WEIGHT = 10.0
_GROWTH = 10.0
_MAX_WEIGHT = 1e10
# It does not grow after an iteration of this many steps.
_MANY_STEPS = 15
_MAX_ITERATIONS = 50
_MAX_STEPS = 40
# The line search stops when the slope is reduced to this share.
_SLOPE = 0.1
_MAX_TRIALS = 40
# Below this gap, `_MAX_STALLED` iterations that do not reduce it show that only
# rounding errors are left; above it, more such iterations may precede a reduction.
_SMALL_GAP = 0.1
_MAX_STALLED = 4
_MAX_STALLED_BEFORE = 12
# The largest number of free variables that are solved for directly.
MAX_FREE = 1000
# Dual variables up to this size can be squared and summed.
_MAX_COST = 1e100


def check_costs(upper: np.ndarray, formula: str, advice: str) -> None:
    """Raise if dual variables up to these bounds leave the range of floats."""
    largest = float(upper.max(initial=0.0))
    if not largest <= _MAX_COST:
        raise ValueError(
            f"the losses of rows are multiplied by {formula}, got up to {largest:.3g}, "
            f"expected at most {_MAX_COST:g}: divide sample_weight by its mean, or "
            f"{advice}."
        )


class DualSolution(NamedTuple):
    """Dual variables (n,), the relative duality gap, and Newton's steps."""

    alpha: np.ndarray
    gap: float
    n_steps: int


def solve_box(
    features: FeatureMatrix,
    signs: np.ndarray,
    upper: np.ndarray,
    tol: float,
    longest: float,
    start: np.ndarray | None = None,
    target: Any = 1.0,
    tube: float = 0.0,
    lower: np.ndarray | None = None,
    first_weight: float = FIRST_WEIGHT,
) -> DualSolution:
    """Return the dual variables of one margin, starting from some, (n,), if given.

    Features are float64, and `longest` is the norm of the longest row. Stops at a
    relative duality gap of `tol`, or if rounding errors leave no more. Values that are
    below `target`, (n,) or a number, by more than `tube` cost `upper`, (n,), per unit;
    those above it cost −`lower`, nothing if it is None. These are the bounds of the
    dual variables. `first_weight` is σ of the first iteration.
    """
    problem = _Problem(features, signs, upper, longest, target, tube, lower)
    if start is None:
        at = problem.at(problem.ops.float64_zeros(len(signs), signs))
    else:
        # The direct solve leads far away if too many rows are taken as free.
        start = problem.square * start
        at = problem.polished(start, _SMALL_GAP) or problem.at(start)
    best = at
    total = 0
    weight = first_weight
    stalled = 0
    for _ in range(_MAX_ITERATIONS):
        if best.gap <= tol:
            break
        after, n_steps = problem.iterate(at, weight)
        total += n_steps
        if n_steps == _MAX_STEPS:
            weight /= _GROWTH
            continue
        stalled += 1
        at = problem.polished(after.alpha, after.gap) or after
        if at.gap < best.gap:
            best, stalled = at, 0
        max_stalled = _MAX_STALLED if best.gap < _SMALL_GAP else _MAX_STALLED_BEFORE
        if stalled > max_stalled:
            break
        if n_steps < _MANY_STEPS:
            weight = min(_GROWTH * weight, _MAX_WEIGHT)
    return DualSolution(best.alpha / problem.square, best.gap, total)


@dataclass(frozen=True)
class _Point:
    """Dual variables, their weights w = Mᵀa, the values Mw, and the gap."""

    alpha: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    gap: float


class _Problem:
    """A margin of rows m_i = y_i z_i of length at most 1; its variables have bounds.

    A variable is free strictly between its bounds; with a tube, not at 0 either, where
    it stays as long as the value is within the tube.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        signs: np.ndarray,
        upper: np.ndarray,
        longest: float,
        target: Any,
        tube: float = 0.0,
        lower: np.ndarray | None = None,
    ):
        # Divide by a power of 2, which is exact.
        unit = 2.0 ** math.frexp(longest)[1]
        self.square = unit**2
        self.factors = signs / unit
        self.features = features
        self.upper = self.square * upper
        self.ops = ops_of(signs)
        self.target = target + 0.0 * signs
        self.lower = self.square * (0.0 * upper if lower is None else lower)
        self.tube = tube

    def weights(self, alpha: np.ndarray) -> np.ndarray:
        """Return Mᵀa."""
        return combined(self.features, (alpha * self.factors)[:, None])[0]

    def values(self, weights: np.ndarray) -> np.ndarray:
        """Return Mw."""
        out = self.ops.float64_zeros(self.features.n_rows, weights)
        for block in self.features.blocks():
            out[block.rows] = products(block.values, weights[None])[:, 0]
        return self.factors * out

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return some rows."""
        return self.features.take(numbers) * self.factors[numbers, None]

    def gram(self, free: np.ndarray) -> np.ndarray:
        """Return FᵀF of the free rows."""
        width = self.features.width
        gram = self.ops.float64_zeros((width, width), self.factors)
        for block in self.features.blocks(SIGNED_ROWS):
            part = self.ops.flatnonzero(free[block.rows])
            factors = self.factors[block.rows][part, None]
            self.ops.add_gram(block.values[part] * factors, gram)
        return gram

    def at(self, alpha: np.ndarray) -> _Point:
        """Return the weights, values and gap of dual variables."""
        weights = self.weights(alpha)
        values = self.values(weights)
        square = float(weights @ weights)
        missing = self.target - values
        primal = 0.5 * square + float(self.upper @ (missing - self.tube).clip(0.0))
        primal -= float(self.lower @ (-missing - self.tube).clip(0.0))
        total = float(alpha @ self.target) - self.tube * float(abs(alpha).sum())
        dual = total - 0.5 * square
        return _Point(alpha, weights, values, (primal - dual) / (primal or 1.0))

    def iterate(self, at: _Point, weight: float) -> tuple[_Point, int]:
        """Return the next variables and the number of Newton's steps they took."""
        weights = at.weights
        values = at.values
        where = self.ops.xp.where
        before, length = None, 0.0
        for n_steps in range(_MAX_STEPS + 1):  # noqa: B007
            alpha = self._variables(at, weight, values)
            # At a bound (2 or −2), or between them: with a tube, on which side of it.
            state = self.ops.xp.sign(alpha) if self.tube else 0.0 * alpha
            state = where(alpha <= self.lower, -2.0, state)
            state = where(alpha >= self.upper, 2.0, state)
            if length == 1.0 and bool((state == before).all()):
                break
            gradient = weights - self.weights(alpha)
            step = self._newton_step(self._are_free(alpha), weight, gradient)
            change = self.values(step)
            length = self._step_length(at, weight, weights, values, step, change)
            if length == 0.0:
                break
            weights, values = weights + length * step, values + length * change
            before = state
        return self.at(alpha), n_steps

    def _are_free(self, alpha: np.ndarray) -> np.ndarray:
        """Return whether variables lie strictly between their bounds."""
        free = (alpha > self.lower) & (alpha < self.upper)
        return free & (alpha != 0) if self.tube else free

    def _variables(self, at: _Point, weight: float, values: np.ndarray) -> np.ndarray:
        """Return the maximisers b of the augmented Lagrangian for values Mw."""
        alpha, reach = at.alpha + weight * (self.target - values), weight * self.tube
        if reach:
            alpha = alpha - alpha.clip(-reach, reach)
        return alpha.clip(self.lower).clip(max=self.upper)

    def _newton_step(
        self, free: np.ndarray, weight: float, gradient: np.ndarray
    ) -> np.ndarray:
        """Return −(I + σ FᵀF)⁻¹g, using the smaller of FFᵀ and FᵀF."""
        numbers = self.ops.flatnonzero(free)
        algebra = self.ops.algebra
        if len(numbers) > len(gradient):
            gram = self.gram(free)
            algebra.add_to_diagonal(gram, 1 / weight)
            return algebra.factor_solve(algebra.lower_factor(gram), -gradient / weight)
        F = self.take(numbers)
        products = F @ F.T
        algebra.add_to_diagonal(products, 1 / weight)
        factor = algebra.lower_factor(products)
        return algebra.factor_solve(factor, F @ gradient) @ F - gradient

    def _step_length(
        self,
        at: _Point,
        weight: float,
        weights: np.ndarray,
        values: np.ndarray,
        step: np.ndarray,
        change: np.ndarray,
    ) -> float:
        """Return how far to go along a step: 1, or where the slope nearly vanishes.

        `change` is that of the values by the whole step.
        """

        def slope(length: float) -> float:
            alpha = self._variables(at, weight, values + length * change)
            return float(step @ (weights + length * step) - alpha @ change)

        steepest = -slope(0.0)
        if steepest <= 0.0:
            return 0.0  # rounding errors
        if slope(1.0) <= 1e-9 * steepest:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_MAX_TRIALS):
            length = 0.5 * (low + high)
            remaining = slope(length)
            if abs(remaining) <= _SLOPE * steepest:
                break
            low, high = (low, length) if remaining > 0 else (length, high)
        return length

    def polished(self, alpha: np.ndarray, gap: float) -> _Point | None:
        """Return variables such that the margins of free rows are 1.

        None if their gap is not below `gap`, or if too many rows are free.
        """
        ops = self.ops
        is_free = self._are_free(alpha)
        free = ops.flatnonzero(is_free)
        if not 0 < len(free) <= min(MAX_FREE, self.features.width):
            return None
        F = self.take(free)
        side = ops.xp.sign(alpha[free])
        out = ops.xp.where(is_free, 0.0, alpha)
        # Among equal rows the variable is shared: the shortest solution.
        missing = self.target[free] - self.tube * side - F @ self.weights(out)
        values = ops.algebra.shortest_solution(F @ F.T, missing)
        values = values.clip(self.lower[free]).clip(max=self.upper[free])
        if self.tube:
            values = side * (side * values).clip(0.0)
        out[free] = values
        after = self.at(out)
        return after if after.gap < gap else None
