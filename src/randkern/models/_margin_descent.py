"""Margins by coordinate descent in the dual, for arrays.

If the features of all rows do not fit in memory, it works on rows that violate the
conditions of optimality; a pass over all rows, whose features are recomputed, finds the
next ones (a decomposition like that of Osuna, Freund and Girosi 1997, with working sets
as large as memory allows). Newton's method continues where descent is slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import warn
from randkern.backend.descent import descend
from randkern.models._margin import Intercepts, Margins, Solution, are_free, balanced
from randkern.models._margin_newton import (
    EXACT,
    MAX_FREE,
    VERY_FEW_ENTRIES,
    solve_by_newton,
)
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import add_combinations
from randkern.models.memory import MIN_BLOCK_ROWS, newton_bytes

# The first tolerance on gradients, in units of the scale of targets, and later ones, as
# a share of the largest gradient that remains.
_FIRST_TOLERANCE = 0.05
_TOLERANCE_SHARE = 0.2
# The weight of the square of a sum of dual variables, as a share of the square of the
# longest row, while the intercept moves: a larger one makes all steps shorter, a
# smaller one lets the sum swing.
_SPRING = 0.05
# Number of rows of the first working set.
_FIRST_ROWS = 8192
# Largest number of epochs on a working set, and on each part of one, whose solution the
# other parts change.
_MAX_EPOCHS = 300
_EPOCHS_PER_PART = 50
# Newton's method, with at most `MAX_FREE` free dual variables, so that its steps take
# seconds, is tried after this round, and again after that times a factor; later if the
# features have more than `_FEW_ENTRIES`. If they have very few,
# it ends every descent.
_NEWTON_ROUND = 6
_NEWTON_GROWTH = 4
_FEW_ENTRIES = 2 * 10**7


def solve_by_descent(
    problem: Margins,
    tol: float,
    max_iter: int,
    stream: Stream,
    *,
    cache_bytes: int,
    spare_bytes: int,
    report: FitReport,
) -> tuple[Solution, int]:
    """Solve to a relative gap of `tol`, in at most `max_iter` passes over all rows.

    Returns also their number. The stream determines the order of rows. Newton's method
    takes at most `spare_bytes` for its matrices. A warning is issued if the gap remains
    larger.
    """
    run = _Run(problem, stream.generator(), cache_bytes, spare_bytes)
    n_entries = len(problem.targets) * problem.features.width
    newton_round = _NEWTON_ROUND * (_NEWTON_GROWTH if n_entries > _FEW_ENTRIES else 1)
    exact = EXACT if n_entries <= VERY_FEW_ENTRIES else tol
    is_stopped = is_rounded = False
    n_rounds = 0
    while not (is_stopped or is_rounded or run.is_solved(tol)) and n_rounds < max_iter:
        n_rounds += 1
        run.descend(tol)
        is_rounded = bool((run.solution.gap <= tol + run.solution.rounding).all())
        if is_rounded or n_rounds == newton_round:
            is_rounded = not run.continue_in_float64(tol) and is_rounded
        if n_rounds == newton_round:
            newton_round *= _NEWTON_GROWTH
            run.continue_by_newton(min(tol, exact))
        elif run.is_solved(tol):
            run.continue_by_newton(exact)
        is_stopped = report.step(n_rounds, run.solution)
    gap = float(run.solution.gap.max())
    if gap > tol and not is_stopped:
        reason = (
            f"max_iter={max_iter} passes came no nearer; raise max_iter or tol, or "
            "lower C."
        )
        if is_rounded:
            reason = (
                "rounding errors leave no more at so large a C; lower C, or raise tol."
            )
        warn(
            f"the duality gap is {gap:.2g} of the objective, above tol={tol:g}: "
            f"{reason}",
            ConvergenceWarning,
        )
    return run.solution, n_rounds


class _Run:
    """The state of a descent: a solution, intercepts, and the next working set."""

    def __init__(
        self,
        problem: Margins,
        generator: np.random.Generator,
        cache_bytes: int,
        spare_bytes: int,
    ):
        self.problem = problem
        self.generator = generator
        self.cache_bytes = cache_bytes
        self.spare_bytes = spare_bytes
        # The mean of signs, and one of targets that outliers hardly move.
        low, high = problem.constant - problem.scale, problem.constant + problem.scale
        near = np.clip(problem.targets, low, high)
        start = 0.0 * problem.constant
        if problem.has_intercept:
            widths = problem.upper - problem.lower
            start = (widths * near).sum(axis=0) / widths.sum(axis=0)
        self.search = Intercepts(start)
        self.tolerance = _FIRST_TOLERANCE * float(problem.scale.max())
        self.working = np.flatnonzero((problem.lower < problem.upper).any(axis=1))
        if problem.features.cached is None and len(self.working) > _FIRST_ROWS:
            few = generator.choice(self.working, _FIRST_ROWS, replace=False)
            self.working = np.sort(few)
        self.solution = problem.constants()

    def is_solved(self, tol: float) -> bool:
        """Return whether no gap is above `tol`."""
        return bool((self.solution.gap <= tol).all())

    def descend(self, tol: float) -> None:
        """Descend along the working rows, and choose the next ones."""
        active = np.flatnonzero(self.solution.gap > tol)
        alpha, weights = self._descend_along(active)
        self.solution = after = self.problem.solution(alpha, weights)
        violations = self._violations()[:, after.gap > tol]
        largest = float(violations.max(initial=0.0))
        self.tolerance = min(self.tolerance, _TOLERANCE_SHARE * largest)
        if self.problem.features.cached is None:
            free = self._are_free(after.alpha)[:, after.gap > tol]
            wrong = free | (violations > 0.5 * self.tolerance)
            self.working = np.flatnonzero(wrong.any(axis=1))

    def _are_free(self, alpha: np.ndarray) -> Any:
        problem = self.problem
        return are_free(alpha, problem.lower, problem.upper, problem.tube)

    def _violations(self) -> np.ndarray:
        """Return the absolute projected gradients, for the next intercepts."""
        problem, solution = self.problem, self.solution
        alpha, tube = solution.alpha, problem.tube
        slope = self.search.values - solution.intercept - solution.residuals
        right = slope + np.where(alpha >= 0, tube, -tube)
        left = slope + np.where(alpha > 0, tube, -tube)
        rising = np.where(alpha < problem.upper, -right, 0.0)
        falling = np.where(alpha > problem.lower, left, 0.0)
        return np.maximum(rising, falling).clip(0.0)

    def _descend_along(self, active: np.ndarray) -> tuple[Any, Any]:
        """Descend along the working rows, in parts whose features fit in memory.

        Returns dual variables, whose sums are 0, and weights.
        """
        problem = self.problem
        features, k = problem.features, len(active)
        cached = features.cached
        targets = problem.targets[:, active]
        lower, upper = problem.lower[:, active], problem.upper[:, active]
        alpha = self.solution.alpha.copy()
        out = self.solution.weights[active]
        # Weights include the contributions of the other rows. Intercepts take the place
        # of the column of ones.
        used = slice(problem.ones if problem.has_intercept else None)
        weights = np.array(out[:, used], dtype=features.dtype, order="C")
        sums = alpha[:, active].sum(axis=0)
        intercepts = self.search.values[active]
        capacity = len(self.working)
        if cached is None:
            row = features.width * features.dtype.itemsize + 24 * k
            capacity = max(MIN_BLOCK_ROWS, self.cache_bytes // row)
        order = self.generator.permutation(len(self.working))
        n_parts = max(1, -(-len(order) // max(capacity, 1)))
        options: dict[str, Any] = {}
        if problem.has_intercept:
            # Parts solve one problem only if it has one intercept.
            spring = max(problem.longest**2 - 1.0, 0.0) or 1.0
            spring *= _SPRING if n_parts == 1 else 1.0
            options = {"intercepts": intercepts, "sums": sums, "spring": spring}
            options["moves"] = n_parts == 1
        for number, part in enumerate(np.array_split(order, n_parts), start=1):
            rows = np.sort(self.working[part])
            Z = features.take(rows) if cached is None else cached
            places = np.arange(len(rows)) if cached is None else rows
            before = alpha[np.ix_(rows, active)]
            a = before.T.copy()
            descend(
                Z,
                places,
                np.ascontiguousarray(targets[rows].T),
                np.ascontiguousarray(lower[rows].T),
                np.ascontiguousarray(upper[rows].T),
                problem.tube,
                a,
                weights,
                **options,
                tolerance=self.tolerance,
                max_epochs=_MAX_EPOCHS if n_parts == 1 else _EPOCHS_PER_PART,
                seed=int(self.generator.integers(2**31)),
            )
            alpha[np.ix_(rows, active)] = a.T
            if problem.has_intercept and number == n_parts:
                # By the rows whose features are at hand.
                sums = alpha[:, active].sum(axis=0)  # without errors of updates
                if n_parts == 1:
                    values = self.search.values.copy()
                    values[active] = intercepts
                    self.search = Intercepts(values)
                else:
                    all_sums = np.zeros(problem.targets.shape[1])
                    all_sums[active] = spring * sums
                    self.search.step(all_sums)
                a = balanced(a.T, lower[rows], upper[rows], problem.tube, sums).T
                alpha[np.ix_(rows, active)] = a.T
            changes = np.zeros((len(Z), k))
            changes[places] = a.T - before
            add_combinations(Z, changes, out)
            del Z  # before the features of the next part are computed
        all_weights = self.solution.weights.copy()
        all_weights[active] = out
        return alpha, all_weights

    def continue_in_float64(self, tol: float) -> bool:
        """Recompute cached float32 features in float64 if the gap is above `tol`.

        Not if features are recomputed in every pass: that would double the passes.
        Returns whether they were recomputed.
        """
        features = self.problem.features
        fits = features.cached is not None and (
            2 * features.cached.nbytes <= self.cache_bytes
        )
        if not fits or features.dtype.itemsize == 8 or self.is_solved(tol):
            return False
        self.problem.features = features.in_float64(self.cache_bytes)
        self.solution = self.problem.solution(self.solution.alpha)
        return True

    def continue_by_newton(self, tol: float) -> None:
        """Solve the columns with a gap by Newton's method, if that takes little."""
        problem, solution = self.problem, self.solution
        cached = problem.features.cached
        n_free = self._are_free(solution.alpha).sum(axis=0)
        wrong = solution.gap > tol
        if (
            cached is None
            or cached.dtype.itemsize != 8
            or int(n_free[wrong].max(initial=0)) > MAX_FREE
            or newton_bytes(*cached.shape) > self.spare_bytes
        ):
            return
        alpha, weights = solution.alpha.copy(), solution.weights.copy()
        for t in np.flatnonzero(wrong).tolist():
            after = solve_by_newton(
                problem.column(t),
                tol,
                start=alpha[:, t],
                intercept=self.search.values[t : t + 1],
            ).solution
            if after.gap[0] < solution.gap[t]:
                alpha[:, t], weights[t] = after.alpha[:, 0], after.weights[0]
                self.search.values[t] = after.intercept[0]
        self.solution = problem.solution(alpha, weights)
