"""The duals of support vector machines, by coordinate descent and multipliers.

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

For each column y of signs

    P(w) = ½‖w‖² + Σ_i U_i max(0, 1 − y_i w·z_i),
    D(α) = Σ_i α_i − ½‖w‖²,  w = Σ_i α_i y_i z_i,  0 ≤ α_i ≤ U_i,

and D ≤ P with equality at the solution: the difference is the stopping criterion.

An intercept b makes Σ_i α_i y_i = 0 a constraint of the dual. The method of multipliers
meets it, too: the features have a last column of ones, whose weight v = Σ_i α_i y_i is
penalised like the others; for the targets 1 − y_i b in place of 1 the solution has the
intercept b + v, which is the next b, and v tends to 0.

If the features of all rows do not fit in memory, coordinate descent works on rows that
violate the conditions of optimality; a pass over all rows, whose features are
recomputed, finds the next ones (a decomposition like that of Osuna, Freund and Girosi
1997, with working sets as large as memory allows).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.models.feature_matrix import (
    FeatureMatrix,
    add_combinations,
    combined,
    products,
    scores_of,
)
from randkern.models.memory import MIN_BLOCK_ROWS, SIGNED_ROWS, newton_bytes

# The weight σ of the first iteration, its growth and its bound; it is not raised after
# an iteration of this many steps.
_FIRST_WEIGHT, _GROWTH, _LARGEST_WEIGHT = 10.0, 10.0, 1e10
_MANY_STEPS = 15
_MAX_ITERATIONS, _MAX_STEPS = 50, 40
# The line search stops when the slope is reduced to this share.
_SLOPE = 0.1
_MAX_TRIALS = 40
# Stop after this many iterations that do not reduce the gap: only rounding errors are
# left. While the gap is large, more such iterations may precede a reduction.
_STALLED, _NEAR = 4, 0.1
_MAX_STALLED = 12


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
    first_weight: float = _FIRST_WEIGHT,
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
        at = problem.polished(start, _NEAR) or problem.at(start)
    best, total, weight, stalled = at, 0, first_weight, 0
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
        if stalled > (_STALLED if best.gap < _NEAR else _MAX_STALLED):
            break
        if n_steps < _MANY_STEPS:
            weight = min(_GROWTH * weight, _LARGEST_WEIGHT)
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
        self.square, self.factors = unit**2, signs / unit
        self.features, self.upper = features, self.square * upper
        self.ops, self.target = ops_of(signs), target + 0.0 * signs
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
        weights = self.weights(alpha)
        values = self.values(weights)
        square, missing = float(weights @ weights), self.target - values
        primal = 0.5 * square + float(self.upper @ (missing - self.tube).clip(0.0))
        primal -= float(self.lower @ (-missing - self.tube).clip(0.0))
        total = float(alpha @ self.target) - self.tube * float(abs(alpha).sum())
        dual = total - 0.5 * square
        return _Point(alpha, weights, values, (primal - dual) / (primal or 1.0))

    def iterate(self, at: _Point, weight: float) -> tuple[_Point, int]:
        """Return the next variables and the number of Newton's steps they took."""
        weights, values, where = at.weights, at.values, self.ops.xp.where
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
            length = self._length(at, weight, (weights, values), (step, change))
            if length == 0.0:
                break
            weights, values = weights + length * step, values + length * change
            before = state
        return self.at(alpha), n_steps

    def _are_free(self, alpha: np.ndarray) -> np.ndarray:
        free = (alpha > self.lower) & (alpha < self.upper)
        return free & (alpha != 0) if self.tube else free

    def _variables(self, at: _Point, weight: float, values: np.ndarray) -> np.ndarray:
        alpha, reach = at.alpha + weight * (self.target - values), weight * self.tube
        if reach:
            alpha = alpha - alpha.clip(-reach, reach)
        return alpha.clip(self.lower).clip(max=self.upper)

    def _newton_step(
        self, free: np.ndarray, weight: float, gradient: np.ndarray
    ) -> np.ndarray:
        """Return −(I + σ FᵀF)⁻¹g, using the smaller of FFᵀ and FᵀF."""
        numbers, algebra = self.ops.flatnonzero(free), self.ops.algebra
        if len(numbers) > len(gradient):
            gram = self.gram(free)
            algebra.add_to_diagonal(gram, 1 / weight)
            return algebra.factor_solve(algebra.lower_factor(gram), -gradient / weight)
        F = self.take(numbers)
        products = F @ F.T
        algebra.add_to_diagonal(products, 1 / weight)
        factor = algebra.lower_factor(products)
        return algebra.factor_solve(factor, F @ gradient) @ F - gradient

    def _length(self, at: _Point, weight: float, place: tuple, step: tuple) -> float:
        """Return the step length: 1, or where the slope nearly vanishes."""
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
        for _ in range(_MAX_TRIALS):
            length = 0.5 * (low + high)
            reached = slope(length)
            if abs(reached) <= _SLOPE * steepest:
                break
            low, high = (low, length) if reached > 0 else (length, high)
        return length

    def polished(self, alpha: np.ndarray, gap: float) -> _Point | None:
        """Return variables such that the margins of free rows are 1.

        None if their gap is not below `gap`, or if too many rows are free.
        """
        ops, is_free = self.ops, self._are_free(alpha)
        free = ops.flatnonzero(is_free)
        if not 0 < len(free) <= min(_MAX_FREE, self.features.width):
            return None
        F, side = self.take(free), ops.xp.sign(alpha[free])
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


# Largest number of intercepts.
_MAX_SHIFTS = 100
# The first tolerance of coordinate descent on gradients, and the later ones as a share
# of the largest gradient left.
_FIRST_TOLERANCE, _SHARE = 0.1, 0.2
# Number of rows of the first working set.
_FIRST_ROWS = 8192
# Largest number of epochs of coordinate descent on a working set, and on each part of
# one, whose solution the other parts change.
_MAX_EPOCHS, _EPOCHS_PER_PART = 300, 50
# Rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 4.0
# The round after which Newton's method is tried, and the factor to the next; the most
# free dual variables, so that its steps take seconds; its target gap. If the features
# have at most this many entries, it also ends each descent; with more, it would take
# longer than the descent.
_NEWTON_ROUND, _LATER, _MAX_FREE, _EXACT = 4, 4, 1000, 1e-12
_FEW_ENTRIES = 2 * 10**7


class SVMDual:
    """One support vector machine per column of signs, (n, k).

    Features that are tensors must be float64; the bounds `upper`, (n,), of the dual
    variables may be 0. Newton's method takes at most `spare_bytes` for its matrices.
    With an intercept, the last component of the features is 1.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        signs: np.ndarray,
        upper: np.ndarray,
        *,
        cache_bytes: int,
        spare_bytes: int,
        has_intercept: bool = False,
    ):
        self.has_intercept = has_intercept
        self.features, self.signs, self.upper = features, signs, upper
        self.cache_bytes, self.spare_bytes = cache_bytes, spare_bytes
        self.ops = ops = ops_of(signs)
        # The dual variables, (n, k), the weights (k, width), and P − D relative to P.
        self.alpha = ops.float64_zeros(signs.shape, signs)
        self.weights = ops.float64_zeros((signs.shape[1], features.width), signs)
        self.gap = ops.float64_zeros(signs.shape[1], signs) + np.inf
        # The intercepts of the last solution, and the margins that rows are to reach.
        self.shift = ops.float64_zeros(signs.shape[1], signs)
        self.targets = ops.float64_ones(signs.shape, signs)
        # Passes over all rows, or steps of Newton's method for tensors.
        self.n_rounds = 0
        # Whether a report stopped the last solution.
        self.is_stopped = False

    def solve(
        self,
        tol: float,
        max_iter: int,
        stream: Stream,
        report: Callable[[int], bool] = lambda number: False,
    ) -> None:
        """Solve to a relative gap of `tol`, in at most `max_iter` passes over all rows.

        The stream determines the order of rows. `report` is called with the number of
        each pass, or, for tensors, of each column of signs; it returns whether to stop.
        """
        if is_tensor(self.signs):
            self._update(self.weights)
            for _ in range(_MAX_SHIFTS):
                self.n_rounds += self._follow_newton(report)
                if self.is_stopped or self._is_settled(tol):
                    break
                self._shift()
        else:
            self._descend(tol, max_iter, stream.generator(), report)
        if is_tensor(self.signs):
            reason = "Newton's method came no nearer; raise tol, or lower C."
        else:
            reason = (
                f"max_iter={max_iter} passes came no nearer; raise max_iter or tol, or "
                "lower C."
            )
        if self._is_solved(tol):
            reason = (
                "rounding errors leave no more at so large a C; lower C, or raise tol."
            )
        gap = float((self.gap + self._excess).max())
        if not self.is_stopped and (
            (self.gap > tol).any() or not self._is_settled(tol)
        ):
            warn(
                f"the duality gap is {gap:.2g} of the objective, "
                f"above tol={tol:g}: {reason}",
                ConvergenceWarning,
            )

    # -- the state ---------------------------------------------------------------------

    @property
    def intercept(self) -> np.ndarray:
        """The intercepts, (k,)."""
        return self.shift + self._last if self.has_intercept else self.shift

    @property
    def weights_of_features(self) -> np.ndarray:
        """The weights (k, width), with 0 for the column of ones."""
        if not self.has_intercept:
            return self.weights
        weights = self.ops.copy(self.weights)
        weights[:, self.features.n_components - 1] = 0.0
        return weights

    @property
    def _last(self) -> np.ndarray:
        """The weights of the column of ones, Σ_i α_i y_i."""
        return self.weights[:, self.features.n_components - 1]

    @property
    def _excess(self) -> np.ndarray:
        """By how much, relative to the objective, the dual may exceed its maximum.

        That is because Σ_i α_i y_i is not 0 yet.
        """
        if not self.has_intercept:
            return 0.0 * self.gap
        return abs(self._last) * (1 + abs(self.intercept)) / self._size

    def _is_settled(self, tol: float) -> bool:
        """Return whether the intercepts, if there are any, need not change."""
        return bool((self._excess <= tol + self._rounding).all())

    def _shift(self) -> None:
        """Move on to the next intercepts."""
        self.shift = self.intercept
        self.targets = 1 - self.signs * self.shift
        self._update(self.weights)

    def _update(self, weights: np.ndarray) -> None:
        """Set the weights, in float64, and the gaps."""
        self.weights, ops = weights, self.ops
        scores, self._longest = scores_of(self.features, weights)
        squares = ops.algebra.column_products(weights.T, weights.T)
        self._margins = self.signs * scores
        missing = (self.targets - self._margins).clip(0.0)
        objective = 0.5 * squares + self.upper @ missing
        if not ops.is_finite(objective):
            raise ValueError(
                "the objective overflows: C, the weights or the kernel values of X are "
                "too large; lower C, or scale the input down."
            )
        size = objective + (objective <= 0)
        dual = (self.alpha * self.targets).sum(axis=0) - 0.5 * squares
        self.gap, self._size = (objective - dual) / size, size
        # The gap that rounding errors of the scores alone may cause.
        error = _ROUNDING * ops.precision(self.features.dtype) * self._longest
        bounds = self.upper @ ops.asarray(self.alpha > 0, self.alpha)
        self._rounding = error * squares**0.5 * bounds / objective

    def _is_solved(self, tol: float) -> bool:
        is_reached = bool((self.gap <= tol + self._rounding).all())
        return is_reached and self._is_settled(tol)

    # -- coordinate descent ------------------------------------------------------------

    def _descend(
        self,
        tol: float,
        max_iter: int,
        generator: np.random.Generator,
        report: Callable[[int], bool],
    ) -> None:
        """Descend along coordinates, and by Newton's method if that is slow.

        Intercepts change as soon as the gap is no larger than the error that is due to
        them.
        """
        is_small = len(self.signs) * self.features.width <= _FEW_ENTRIES
        tolerance = _FIRST_TOLERANCE
        newton_round = _NEWTON_ROUND if is_small else _LATER * _NEWTON_ROUND
        working = np.flatnonzero(self.upper)
        if self.features.cached is None and len(working) > _FIRST_ROWS:
            working = np.sort(generator.choice(working, _FIRST_ROWS, replace=False))
        first_newton_round = newton_round
        n_same = 0  # rounds with the same intercepts
        while self.n_rounds < max_iter:
            self.n_rounds += 1
            n_same += 1
            self._descend_along(working, tolerance, generator)
            is_due = n_same == newton_round
            if is_due or self._is_solved(tol):
                self._go_on_in_float64(tol)
                if is_due or is_small:
                    newton_round *= _LATER
                    if self._may_follow_newton():
                        self._follow_newton()
            self.is_stopped = report(self.n_rounds)
            if self.is_stopped or self._is_solved(tol):
                break
            if not self._is_settled(tol) and self.gap.max() <= self._excess.max():
                self._shift()
                n_same, newton_round = 0, first_newton_round
            errors = self._errors()
            tolerance = min(tolerance, _SHARE * float(errors.max()))
            if self.features.cached is None:
                free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
                wrong = free | (errors > 0.5 * tolerance)
                working = np.flatnonzero(wrong.any(axis=1))

    def _errors(self) -> np.ndarray:
        """Return the absolute projected gradients."""
        wrong = self._margins - self.targets
        np.minimum(wrong, 0.0, out=wrong, where=self.alpha == 0)
        np.maximum(wrong, 0.0, out=wrong, where=self.alpha == self.upper[:, None])
        wrong[self.upper == 0] = 0.0
        return np.abs(wrong)

    def _descend_along(
        self, working: np.ndarray, tolerance: float, generator: np.random.Generator
    ) -> None:
        """Descend along the working rows, in parts whose features fit in memory."""
        cached, k = self.features.cached, self.signs.shape[1]
        capacity, out = len(working), self.weights.copy()
        if cached is None:
            row = self.features.width * self.features.dtype.itemsize + 24 * k
            capacity = max(MIN_BLOCK_ROWS, self.cache_bytes // row)
        # w includes the contributions of the other rows.
        weights = out.astype(self.features.dtype)
        order = generator.permutation(len(working))
        n_parts = max(1, -(-len(working) // max(capacity, 1)))
        for part in np.array_split(order, n_parts):
            rows = np.sort(working[part])
            Z = self.features.take(rows) if cached is None else cached
            places = np.arange(len(rows)) if cached is None else rows
            before, signs = self.alpha[rows], self.signs[rows]
            alpha, targets = before.T.copy(), self.targets[rows]
            descend(
                Z,
                places,
                np.ascontiguousarray(signs.T),
                self.upper[rows],
                alpha,
                weights,
                tolerance,
                _MAX_EPOCHS if n_parts == 1 else _EPOCHS_PER_PART,
                int(generator.integers(2**31)),
                np.ascontiguousarray(targets.T),
            )
            self.alpha[rows] = alpha.T
            changes = np.zeros((len(Z), k))
            changes[places] = (alpha.T - before) * signs
            add_combinations(Z, changes, out)
            del Z  # before the features of the next part are computed
        self._update(out)

    def _go_on_in_float64(self, tol: float) -> None:
        """Recompute cached float32 features in float64 if the gap is above `tol`.

        Not if features are recomputed in every pass: that would double the passes.
        """
        Z = self.features.cached
        is_precise = self.features.dtype.itemsize == 8
        if Z is None or is_precise or 2 * Z.nbytes > self.cache_bytes:
            return
        if (self.gap > tol).any():
            self.features = self.features.in_float64(self.cache_bytes)
            self._update(self.weights)

    # -- Newton's method ---------------------------------------------------------------

    def _may_follow_newton(self) -> bool:
        """Return whether Newton's method is applicable, in little time and memory."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        return (
            self.features.cached is not None
            and self.features.dtype.itemsize == 8
            and int(free.sum(axis=0).max()) <= _MAX_FREE
            and newton_bytes(*self.features.cached.shape) <= self.spare_bytes
            and bool((self.gap > _EXACT).any())
        )

    def _follow_newton(
        self, report: Callable[[int], bool] = lambda number: False
    ) -> int:
        """Solve the problems with a gap; return the largest number of steps of one."""
        usable = self.ops.flatnonzero(self.upper)
        features, upper, n_steps = self.features, self.upper[usable], 0
        if len(usable) < len(self.upper):
            features = features.part(usable)
        for t, gap in enumerate(self.gap):
            if gap <= _EXACT:
                continue
            signs, start = self.signs[usable, t], self.alpha[usable, t]
            target = self.targets[usable, t]
            solution = solve_box(
                features, signs, upper, _EXACT, self._longest, start, target
            )
            n_steps = max(n_steps, solution.n_steps)
            if solution.gap < gap:
                self.alpha[usable, t] = solution.alpha
            self.is_stopped = report(t + 1)
            if self.is_stopped:
                break
        self._update(combined(self.features, self.alpha * self.signs))
        return n_steps
