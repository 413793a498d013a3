"""Newton's method for margins.

With rows z_i of Z, targets t and multipliers a, the dual variables, each iteration
minimises the augmented Lagrangian in w,

    ½‖w‖² + Σ_i max over l_i ≤ b ≤ u_i of b (t_i − w·z_i) − ε|b| − (b − a_i)²/2σ,

and takes the maximisers b as the next a (Rockafellar 1976, "Augmented Lagrangians and
applications of the proximal point algorithm"): they are a + σ(t − Zw), drawn towards a
multiple of the tube, and clipped. Newton's method finds the minimum: its second
derivative I + σ FᵀF has only the rows F whose variables lie within their bounds
(Mangasarian 2002, "A finite Newton method for classification"; Li, Sun & Toh 2018, "A
highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
problems"), and the number of steps hardly depends on the bounds. Once these rows are
those of the solution, a linear system gives it to rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from randkern._warnings import warn
from randkern.models._margin import Intercepts, Margins, Solution, are_free
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import combined, products
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
# Below this share of the objective, `_MAX_STALLED` iterations that do not reduce the
# gap show that only rounding errors are left; above it, more may precede a reduction.
_SMALL_GAP = 0.1
_MAX_STALLED = 4
_MAX_STALLED_BEFORE = 12
# The largest number of free variables that are solved for directly.
MAX_FREE = 1000
# If features have very few entries, it takes no time to solve to this gap: weights of
# rows are then repetitions, whatever `tol`.
VERY_FEW_ENTRIES = 10**5
EXACT = 1e-12
# Largest number of intercepts, and of those in succession that do not reduce the gap;
# fewer of the latter are enough if rounding errors leave no smaller gap.
_MAX_SHIFTS = 200
_MAX_STALLED_SHIFTS = 20
_MAX_STALLED_BY_ROUNDING = 2
# The problem of the first intercept is solved to this gap, that of each other to this
# share of the gap of the one before it: six classes of satimage (C = 100) took 285 of
# Newton's steps, and 800 if each is solved to the end.
_FIRST_GAP = 1e-2
_GAP_SHARE = 0.1


class NewtonSolution(NamedTuple):
    """The best solution, the variables that led to it, (n,), and Newton's steps."""

    solution: Solution
    alpha: Any
    n_steps: int


def solve_by_newton(
    problem: Margins,
    tol: float,
    *,
    start: Any = None,
    intercept: Any = None,
    first_weight: float = FIRST_WEIGHT,
) -> NewtonSolution:
    """Solve a single column to a relative duality gap of `tol`, or as rounding permits.

    Features are float64. `start` are dual variables (n,), and `intercept` (1,) is one
    to start from: zeros and the best constant by default. `first_weight` is σ of the
    first iteration.
    """
    best = problem.constants()
    alpha = best.alpha[:, 0]
    if start is not None and float(best.gap[0]) > tol:
        alpha = start
        best = problem.solution(start[:, None])
    search = Intercepts(problem.constant if intercept is None else intercept)
    box = _Box(problem)
    n_steps = n_stalled = 0
    max_gap = _FIRST_GAP if problem.has_intercept else tol
    led = alpha
    for _ in range(_MAX_SHIFTS):
        gap = float(best.gap[0])
        if gap <= tol:
            break
        if problem.has_intercept:
            max_gap = max(_GAP_SHARE * min(max_gap, gap), _GAP_SHARE * tol)
        wanted = max_gap * float(best.size[0])
        shifted = problem.targets[:, 0] - search.values[0]
        alpha, reached, taken = box.solve(shifted, alpha, wanted, first_weight)
        n_steps += taken
        n_stalled += 1
        after = problem.solution(alpha[:, None])
        if float(after.gap[0]) < gap:
            best, led, n_stalled = after, alpha, 0
        is_rounded = reached > wanted and n_stalled >= _MAX_STALLED_BY_ROUNDING
        if n_stalled == _MAX_STALLED_SHIFTS or is_rounded:
            break
        if problem.has_intercept:
            search.step(alpha.sum(axis=0)[None])
        elif reached > wanted:
            break
    return NewtonSolution(best, led, n_steps)


def continued_by_newton(problem: Margins, solution: Solution, tol: float) -> Solution:
    """Return a solution whose columns with a gap above `tol` are solved again.

    A column is left as it is if its gap does not become smaller.
    """
    alpha = problem.ops.copy(solution.alpha)
    for t in range(alpha.shape[1]):
        if float(solution.gap[t]) <= tol:
            continue
        start, intercept = solution.alpha[:, t], solution.intercept[t : t + 1]
        column = problem.column(t)
        after = solve_by_newton(column, tol, start=start, intercept=intercept).solution
        if float(after.gap[0]) < float(solution.gap[t]):
            alpha[:, t] = after.alpha[:, 0]
    return problem.solution(alpha)


def solve_columns_by_newton(
    problem: Margins, tol: float, report: FitReport
) -> tuple[Solution, int]:
    """Solve all columns, one after another; return the largest number of steps of one.

    A warning is issued if a gap remains above `tol`.
    """
    alpha = problem.ops.copy(0.0 * problem.targets)
    n_steps = 0
    is_stopped = False
    for t in range(alpha.shape[1]):
        column = solve_by_newton(problem.column(t), tol)
        n_steps = max(n_steps, column.n_steps)
        alpha[:, t] = column.solution.alpha[:, 0]
        is_stopped = report.step(t + 1, None, "class")
        if is_stopped:
            break
    solution = problem.solution(alpha)
    gap = float(solution.gap.max())
    if gap > tol and not is_stopped:
        warn(
            f"the duality gap is {gap:.2g} of the objective, above tol={tol:g}: "
            "Newton's method came no nearer; raise tol, or lower C.",
            ConvergenceWarning,
        )
    return solution, n_steps


class _Point(NamedTuple):
    """Dual variables, their weights Zᵀa, the values Zw, the gap and the objective."""

    alpha: Any
    weights: Any
    values: Any
    gap: float
    primal: float


class _Box:
    """A margin without an intercept, of rows of length at most 1.

    Rows are divided by a power of 2, which is exact, and dual variables multiplied.
    """

    def __init__(self, problem: Margins):
        self.ops = problem.ops
        self.features = problem.features
        self.tube = problem.tube
        self.unit = 2.0 ** math.frexp(problem.longest)[1]
        self.square = self.unit**2
        self.lower = self.square * problem.lower[:, 0]
        self.upper = self.square * problem.upper[:, 0]
        self.target = problem.targets[:, 0]

    def solve(
        self, target: Any, start: Any, wanted: float, first_weight: float
    ) -> tuple[Any, float, int]:
        """Return dual variables, their gap, and the number of Newton's steps.

        Stops at an absolute gap of `wanted`, or if rounding errors leave no more.
        """
        self.target = target
        wanted *= self.square
        start = self.square * start
        at = self.at(start)
        # The direct solve leads far away if too many rows are taken as free.
        at = self.polished(start, _SMALL_GAP * at.primal) or at
        best = at
        total = 0
        weight = first_weight
        stalled = 0
        for _ in range(_MAX_ITERATIONS):
            if best.gap <= wanted:
                break
            after, n_steps = self.iterate(at, weight)
            total += n_steps
            if n_steps == _MAX_STEPS:
                weight /= _GROWTH
                continue
            stalled += 1
            at = self.polished(after.alpha, after.gap) or after
            if at.gap < best.gap:
                best, stalled = at, 0
            is_near = best.gap < _SMALL_GAP * best.primal
            if stalled > (_MAX_STALLED if is_near else _MAX_STALLED_BEFORE):
                break
            if n_steps < _MANY_STEPS:
                weight = min(_GROWTH * weight, _MAX_WEIGHT)
        return best.alpha / self.square, best.gap / self.square, total

    def weights(self, alpha: Any) -> Any:
        """Return Zᵀa."""
        return combined(self.features, alpha[:, None] / self.unit)[0]

    def values(self, weights: Any) -> Any:
        """Return Zw."""
        out = self.ops.float64_zeros(self.features.n_rows, weights)
        for block in self.features.blocks():
            out[block.rows] = products(block.values, weights[None])[:, 0]
        return out / self.unit

    def take(self, numbers: Any) -> Any:
        """Return some rows."""
        return self.features.take(numbers) / self.unit

    def gram(self, free: Any) -> Any:
        """Return FᵀF of the free rows."""
        width = self.features.width
        gram = self.ops.float64_zeros((width, width), self.target)
        for block in self.features.blocks(SIGNED_ROWS):
            part = self.ops.flatnonzero(free[block.rows])
            self.ops.add_gram(block.values[part] / self.unit, gram)
        return gram

    def at(self, alpha: Any) -> _Point:
        """Return the weights, values and gap of dual variables."""
        weights = self.weights(alpha)
        values = self.values(weights)
        square = float(weights @ weights)
        missing = self.target - values
        primal = 0.5 * square + float(self.upper @ (missing - self.tube).clip(0.0))
        primal -= float(self.lower @ (-missing - self.tube).clip(0.0))
        dual = float(alpha @ self.target) - self.tube * float(abs(alpha).sum())
        gap = primal - (dual - 0.5 * square)
        return _Point(alpha, weights, values, gap, primal)

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
            free = are_free(alpha, self.lower, self.upper, self.tube)
            step = self._newton_step(free, weight, gradient)
            change = self.values(step)
            length = self._step_length(at, weight, weights, values, step, change)
            if length == 0.0:
                break
            weights, values = weights + length * step, values + length * change
            before = state
        return self.at(alpha), n_steps

    def _variables(self, at: _Point, weight: float, values: Any) -> Any:
        """Return the maximisers b of the augmented Lagrangian for values Zw."""
        alpha, reach = at.alpha + weight * (self.target - values), weight * self.tube
        if reach:
            alpha = alpha - alpha.clip(-reach, reach)
        return alpha.clip(self.lower).clip(max=self.upper)

    def _newton_step(self, free: Any, weight: float, gradient: Any) -> Any:
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
        self, at: _Point, weight: float, weights: Any, values: Any, step: Any,
        change: Any,
    ) -> float:  # fmt: skip
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

    def polished(self, alpha: Any, gap: float) -> _Point | None:
        """Return variables such that free rows lie on the margin or the tube's edge.

        None if their gap is not below `gap`, or if too many rows are free.
        """
        ops = self.ops
        is_free = are_free(alpha, self.lower, self.upper, self.tube)
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
