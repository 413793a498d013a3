"""The duals of support vector machines, by coordinate descent and Newton's method.

For each column y of signs

    P(w) = ½‖w‖² + Σ_i U_i max(0, 1 − y_i w·z_i),
    D(α) = Σ_i α_i − ½‖w‖²,  w = Σ_i α_i y_i z_i,  0 ≤ α_i ≤ U_i,

and D ≤ P with equality at the solution: the difference is the stopping criterion.

Newton's method is that of :mod:`randkern.models._margin_newton`.

An intercept b makes Σ_i α_i y_i = 0 a constraint of the dual, which is met as in
:mod:`randkern.models._margin_intercept`, also by coordinate descent: for the margins
1 − y_i b in place of 1 it moves b by the weight of a column of ones.

If the features of all rows do not fit in memory, coordinate descent works on rows that
violate the conditions of optimality; a pass over all rows, whose features are
recomputed, finds the next ones (a decomposition like that of Osuna, Freund and Girosi
1997, with working sets as large as memory allows).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.models._margin_intercept import solve_with_intercept
from randkern.models._margin_newton import MAX_FREE, DualSolution, solve_box
from randkern.models.feature_matrix import (
    FeatureMatrix,
    add_combinations,
    combined,
    scores_of,
)
from randkern.models.memory import MIN_BLOCK_ROWS, newton_bytes

# The first tolerance of coordinate descent on gradients.
_FIRST_TOLERANCE = 0.1
# Later ones, as a share of the largest gradient that remains.
_TOLERANCE_SHARE = 0.2
# Number of rows of the first working set.
_FIRST_ROWS = 8192
# Largest number of epochs of coordinate descent on a working set.
_MAX_EPOCHS = 300
# The same on each part of one, whose solution the other parts change.
_EPOCHS_PER_PART = 50
# Rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 4.0
# Newton's method, with at most `MAX_FREE` free dual variables, so that its steps take
# seconds, is tried after this round, and again after that times a factor.
_NEWTON_ROUND = 4
_NEWTON_INTERVAL_GROWTH = 4
# The gap that it aims at, and the first gap with an intercept, as a share of the error
# that is due to the intercept.
_NEWTON_TOL = 1e-12
_GAP_SHARE = 0.1
# It also ends each descent if the features have at most this many entries; with more,
# it would take longer than the descent.
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
        self.features = features
        self.signs = signs
        self.upper = upper
        self.cache_bytes = cache_bytes
        self.spare_bytes = spare_bytes
        self.ops = ops = ops_of(signs)
        # The dual variables, (n, k), the weights (k, width), and P − D relative to P.
        self.alpha = ops.float64_zeros(signs.shape, signs)
        self.weights = ops.float64_zeros((signs.shape[1], features.width), signs)
        self.gap = ops.float64_zeros(signs.shape[1], signs) + np.inf
        # The intercepts of the last solution, and the margins that rows are to reach.
        self.intercepts_before = ops.float64_zeros(signs.shape[1], signs)
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
            self.n_rounds = self._polish_by_newton(report)
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
        return (
            self.intercepts_before + self._weights_of_ones
            if self.has_intercept
            else self.intercepts_before
        )

    @property
    def weights_of_features(self) -> np.ndarray:
        """The weights (k, width), with 0 for the column of ones."""
        if not self.has_intercept:
            return self.weights
        weights = self.ops.copy(self.weights)
        weights[:, self.features.n_components - 1] = 0.0
        return weights

    @property
    def _weights_of_ones(self) -> np.ndarray:
        """The weights of the column of ones, Σ_i α_i y_i."""
        return self.weights[:, self.features.n_components - 1]

    @property
    def _excess(self) -> np.ndarray:
        """By how much, relative to the objective, the dual may exceed its maximum.

        That is because Σ_i α_i y_i is not 0 yet.
        """
        if not self.has_intercept:
            return 0.0 * self.gap
        return abs(self._weights_of_ones) * (1 + abs(self.intercept)) / self._size

    def _is_settled(self, tol: float) -> bool:
        """Return whether the intercepts, if there are any, need not change."""
        return bool((self._excess <= tol + self._rounding).all())

    def _update(self, weights: np.ndarray) -> None:
        """Set the weights, in float64, and the gaps."""
        self.weights = weights
        ops = self.ops
        scores, self._longest = scores_of(self.features, weights)
        squares = ops.algebra.column_products(weights.T, weights.T)
        self._margins = self.signs * scores
        self.targets = 1 - self.signs * self.intercepts_before
        missing = (self.targets - self._margins).clip(0.0)
        objective = 0.5 * squares + self.upper @ missing
        if not ops.is_finite(objective):
            raise ValueError(
                "the objective overflows: C, the weights or the kernel values of X are "
                "too large; lower C, or scale the input down."
            )
        size = objective + (objective <= 0)
        dual = (self.alpha * self.targets).sum(axis=0) - 0.5 * squares
        self.gap = (objective - dual) / size
        self._size = size
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
        newton_round = (
            _NEWTON_ROUND if is_small else _NEWTON_INTERVAL_GROWTH * _NEWTON_ROUND
        )
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
                self._continue_in_float64(tol)
                if is_due or is_small:
                    newton_round *= _NEWTON_INTERVAL_GROWTH
                    if self._can_polish():
                        self._polish_by_newton()
            self.is_stopped = report(self.n_rounds)
            if self.is_stopped or self._is_solved(tol):
                break
            if not self._is_settled(tol) and self.gap.max() <= self._excess.max():
                self.intercepts_before = self.intercept
                self._update(self.weights)
                n_same, newton_round = 0, first_newton_round
            errors = self._errors()
            tolerance = min(tolerance, _TOLERANCE_SHARE * float(errors.max()))
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
        capacity = len(working)
        out = self.weights.copy()
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
            alpha = before.T.copy()
            targets = self.targets[rows]
            descend(
                Z,
                places,
                np.ascontiguousarray(signs.T),
                self.upper[rows],
                alpha,
                weights,
                tolerance=tolerance,
                max_epochs=_MAX_EPOCHS if n_parts == 1 else _EPOCHS_PER_PART,
                seed=int(generator.integers(2**31)),
                targets=np.ascontiguousarray(targets.T),
            )
            self.alpha[rows] = alpha.T
            changes = np.zeros((len(Z), k))
            changes[places] = (alpha.T - before) * signs
            add_combinations(Z, changes, out)
            del Z  # before the features of the next part are computed
        self._update(out)

    def _continue_in_float64(self, tol: float) -> None:
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

    def _can_polish(self) -> bool:
        """Return whether Newton's method is applicable, in little time and memory."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        return (
            self.features.cached is not None
            and self.features.dtype.itemsize == 8
            and int(free.sum(axis=0).max()) <= MAX_FREE
            and newton_bytes(*self.features.cached.shape) <= self.spare_bytes
            and bool((self.gap > _NEWTON_TOL).any())
        )

    def _polish_by_newton(
        self, report: Callable[[int], bool] = lambda number: False
    ) -> int:
        """Solve the problems with a gap; return the largest number of steps of one."""
        usable = self.ops.flatnonzero(self.upper)
        features = self.features
        upper = self.upper[usable]
        n_steps = 0
        if len(usable) < len(self.upper):
            features = features.part(usable)
        for t, gap in enumerate(self.gap + self._excess):
            if gap <= _NEWTON_TOL:
                continue
            signs, start = self.signs[usable, t], self.alpha[usable, t]
            if self.has_intercept:
                with_intercept = solve_with_intercept(
                    features,
                    signs,
                    upper * signs.clip(max=0.0),
                    upper * signs.clip(0.0),
                    _NEWTON_TOL,
                    start=start * signs,
                    shift=float(self.intercepts_before[t]),
                    first_gap=_GAP_SHARE * float(self._excess[t]),
                )
                solution = DualSolution(
                    with_intercept.alpha * signs,
                    with_intercept.gap,
                    with_intercept.n_steps,
                )
                shift = with_intercept.shift
            else:
                solution = solve_box(
                    features, signs, upper, _NEWTON_TOL, self._longest, start
                )
                shift = 0.0
            n_steps = max(n_steps, solution.n_steps)
            if solution.gap < gap:
                self.alpha[usable, t] = solution.alpha
                self.intercepts_before[t] = shift
            self.is_stopped = report(t + 1)
            if self.is_stopped:
                break
        self._update(combined(self.features, self.alpha * self.signs))
        return n_steps
