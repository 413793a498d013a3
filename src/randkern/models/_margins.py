"""Soft margins: support vector machines on features that need not be kept.

For each column y of signs

    P(w) = ½‖w‖² + Σ_i U_i max(0, 1 − y_i w·z_i),
    D(α) = Σ_i α_i − ½‖w‖²,  w = Σ_i α_i y_i z_i,  0 ≤ α_i ≤ U_i,

and D ≤ P with equality at the solution: the difference is what tells when to stop.
Where the features of all rows do not fit in memory, coordinate descent works on rows
that break the conditions of optimality, whose features do; a pass over all rows, whose
features are made again, finds the next ones (a decomposition as that of Osuna, Freund
and Girosi 1997, with working sets as large as memory takes).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.models._feature_rows import (
    FEWEST_ROWS,
    FeatureRows,
    KeptFeatures,
    PlanFeatures,
)
from randkern.models._margin_interior import affordable, n_bytes, solve_box

__all__ = ["MarginSolution", "maximise_margin"]

_ROWS_AT_ONCE = 2**15
# The difference of gradients that coordinate descent stops at; then a share of the
# largest that is left.
_FIRST_TOLERANCE = 0.1
_SHARE = 0.2
# Rows of a working set that is not all rows: those of the first one.
_FIRST_ROWS = 8192
# Coordinate descent on a working set stops after so many passes; on a part of one,
# which the others make obsolete, earlier.
_MOST_EPOCHS = 300
_EPOCHS_A_PART = 50
# Rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 4.0
# Dual variables within their bounds that are solved for directly, at most; after how
# many passes; how small the gap then is; how often coordinate descent goes on where it
# is small enough, but not that small.
_MOST_FREE = 1000
_EVERY = 4
_EXACT = 1e-12
_ATTEMPTS = 4
_NEARLY_EXACT = 1e-10
# Margins that lack so much of 1, and the share of its bound that a variable is moved
# off it: then equations settle it.
_VIOLATION = 1e-9
_NUDGE = 1e-12
# Passes after which an interior-point method takes over, and how far below `tol` it is
# to go.
_INTERIOR_ROUND = 8
_INTERIOR_TOLERANCE = 1e-2


@dataclass(frozen=True)
class MarginSolution:
    """Where a fit of margins has ended.

    Attributes
    ----------
    weights : ndarray of shape (k, width)
    alpha : ndarray of shape (n, k)
        The dual variables, between 0 and their bounds.
    objective : ndarray of shape (k,)
        P(w).
    gap : ndarray of shape (k,)
        P − D, relative to P.
    n_rounds : int
        Passes over all rows.
    """

    weights: np.ndarray
    alpha: np.ndarray
    objective: np.ndarray
    gap: np.ndarray
    n_rounds: int


def maximise_margin(
    features: FeatureRows,
    signs: np.ndarray,
    upper: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    kept_bytes: int,
    spare_bytes: int,
    stream: Stream,
) -> MarginSolution:
    """Solve one support vector machine a column of signs.

    Parameters
    ----------
    features : FeatureRows
    signs : ndarray of shape (n, k)
    upper : ndarray of shape (n,)
        Bounds U ≥ 0 of the dual variables.
    tol : float
        The relative gap to stop at.
    max_iter : int
        Passes over all rows, at most.
    kept_bytes : int
        Memory for the features of a working set.
    spare_bytes : int
        Memory for the matrices of an interior-point method.
    stream : Stream
        Of the orders of rows.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        If `max_iter` passes do not reach `tol`, or rounding errors do not let it.
    """
    if is_tensor(signs):
        return _InteriorPoint(features, signs, upper, kept_bytes).run(tol)
    solver = _Decomposition(features, signs, upper, kept_bytes, spare_bytes, stream)
    return solver.run(tol, max_iter)


class _Margins:
    """Dual variables, the weights and scores of rows that they make, and their gap.

    Parameters
    ----------
    features : FeatureRows
    signs : ndarray of shape (n, k)
    upper : ndarray of shape (n,)
    kept_bytes : int
        Memory for features.
    """

    def __init__(
        self,
        features: FeatureRows,
        signs: np.ndarray,
        upper: np.ndarray,
        kept_bytes: int,
    ):
        n, k = signs.shape
        self.features, self.signs, self.upper = features, signs, upper
        self.kept_bytes = kept_bytes
        self.ops = ops = ops_of(signs)
        self.alpha = ops.zeros((n, k), signs)
        self.weights = ops.zeros((k, features.width), signs)
        self.scores = ops.zeros((n, k), signs)
        self.longest = 0.0

    @property
    def capacity(self) -> int:
        """Rows of features that there is memory for: all that are kept."""
        if self.features.kept is not None:
            return self.features.n_rows
        row = self.features.width * self.features.dtype.itemsize
        return max(FEWEST_ROWS, self.kept_bytes // (row + 24 * self.signs.shape[1]))

    def _may_be_precise(self) -> bool:
        """Tell whether features of float32 are kept that could be of float64.

        Features that are made again in every pass would take twice as many passes.
        """
        Z = self.features.kept
        return (
            not self._is_precise() and Z is not None and 2 * Z.nbytes <= self.kept_bytes
        )

    def _go_on_in_float64(self) -> None:
        """Make the features again, where those of float32 do not tell enough."""
        assert isinstance(self.features, PlanFeatures)
        self.features = self.features.in_float64(self.kept_bytes)

    def _update(self) -> None:
        """Sum the weights up in float64, then the scores of all rows by them."""
        ops, algebra = self.ops, self.ops.algebra
        shape = self.weights.shape
        self.weights = ops.zeros(shape, self.signs)
        support = ops.flatnonzero((self.alpha != 0).any(axis=1))
        factors = self.alpha * self.signs
        at_once = min(self.capacity, _ROWS_AT_ONCE)
        for rows in row_blocks(len(support), at_once):
            here = support[rows]
            Z = self.features.take(here)
            size = ops.largest(abs(factors[here])) or 1.0
            part = ops.zeros(shape, self.signs)
            ops.thin.add_transposed(Z, ops.asarray(factors[here] / size, Z), part)
            self.weights += size * part
        size = ops.largest(abs(self.weights)) or 1.0
        for where, Z in self.features.blocks():
            right = ops.asarray(self.weights / size, Z)
            self.scores[where] = size * ops.thin.multiply(Z, right)
            squares = algebra.column_products(Z.T, Z.T)
            self.longest = max(self.longest, ops.largest(squares) ** 0.5)

    def _rounding(self) -> np.ndarray:
        """Return what the gap may be for rounding errors of the scores alone."""
        precision = self.ops.precision(self.features.dtype)
        error = _ROUNDING * precision * self.longest
        support = self.upper @ self.ops.asarray(self.alpha > 0, self.alpha)
        return error * _squared_lengths(self.weights) ** 0.5 * support

    def _gap(self) -> tuple[np.ndarray, np.ndarray]:
        penalty = 0.5 * _squared_lengths(self.weights)
        losses = (1 - self.signs * self.scores).clip(0.0)
        objective = penalty + self.upper @ losses
        if not self.ops.is_finite(objective):
            raise ValueError(
                "features overflow: rows of X are too large for this kernel; scale the "
                "input down."
            )
        gap: Any = objective - (self.alpha.sum(axis=0) - penalty)
        return objective, gap / (objective + (objective <= 0))

    def _is_reached(self, objective: np.ndarray, gap: np.ndarray, tol: float) -> bool:
        return bool((gap <= tol + self._rounding() / objective).all())

    def _polishes(self, gap: np.ndarray) -> bool:
        """Tell whether equations may still find the very optimum."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        precise = self.features.kept is not None and self._is_precise()
        few = int(free.sum(axis=0).max()) <= _MOST_FREE
        return precise and few and bool((gap > _EXACT).any())

    def _is_precise(self) -> bool:
        return self.features.dtype.itemsize == 8

    def _polish(
        self, objective: np.ndarray, gap: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve for the dual variables within their bounds, whose margins are 1.

        Where coordinate descent has found which ones these are, this is the optimum.
        """
        if not self._polishes(gap):
            return objective, gap
        before = self.ops.copy(self.alpha)
        for t in range(len(gap)):
            self.alpha[:, t] = self._solved(t)
        return self._kept_if_better(before, gap)

    def _kept_if_better(
        self, before: np.ndarray, gap: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go back to the variables before where the gap has grown."""
        self._update()
        after = self._gap()
        worse = after[1] > gap
        if worse.any():
            self.alpha[:, worse] = before[:, worse]
            self._update()
            after = self._gap()
        return after

    def _unless_reached(
        self, inner: np.ndarray, objective: np.ndarray, gap: np.ndarray, tol: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Take variables that no bound was rounded to, if the gap is then smaller.

        Where C is large it matters how near a variable is to its bound.
        """
        if self._is_reached(objective, gap, tol):
            return objective, gap
        before, self.alpha = self.alpha, inner
        return self._kept_if_better(before, gap)

    def _solved(self, t: int) -> np.ndarray:
        """Return dual variables that give the free rows of a problem margins of 1."""
        alpha, signs = self.alpha[:, t], self.signs[:, t]
        ops = self.ops
        free = ops.flatnonzero((alpha > 0) & (alpha < self.upper))
        bound = ops.flatnonzero((alpha > 0) & (alpha == self.upper))
        Z = self.features.take(free)
        fixed = (alpha * signs)[bound] @ self.features.take(bound)
        # Equal rows share their variable: the shortest solution.
        factors = ops.algebra.shortest_solution(Z @ Z.T, signs[free] - Z @ fixed)
        out = ops.copy(alpha)
        out[free] = (signs[free] * factors).clip(0.0).clip(max=self.upper[free])
        return out

    def _rounded(self, gap: np.ndarray, tol: float) -> str:
        """Return a warning, for a gap that only rounding errors explain."""
        return (
            f"the duality gap is {float(gap.max()):.2g} of the objective, above "
            f"tol={tol:g}: rounding errors leave no more at so large a C; lower C, or "
            "raise tol."
        )

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, ConvergenceWarning, stacklevel=5)


class _Decomposition(_Margins):
    """Coordinate descent on working sets of rows."""

    def __init__(
        self,
        features: FeatureRows,
        signs: np.ndarray,
        upper: np.ndarray,
        kept_bytes: int,
        spare_bytes: int,
        stream: Stream,
    ):
        super().__init__(features, signs, upper, kept_bytes)
        self.generator = stream.generator()
        self.spare_bytes = spare_bytes
        self.tolerance = _FIRST_TOLERANCE

    def run(self, tol: float, max_iter: int) -> MarginSolution:
        working = self._first()
        n_rounds, attempts = 0, 0
        for n_rounds in range(1, max_iter + 1):
            self._improve(working)
            self._update()
            objective, gap = self._gap()
            reached = self._is_reached(objective, gap, tol)
            stopped = reached or n_rounds >= _INTERIOR_ROUND
            if stopped and self._may_be_precise() and (gap > tol).any():
                self._go_on_in_float64()
                self._update()
                objective, gap = self._gap()
                reached = self._is_reached(objective, gap, tol)
            if not reached and n_rounds == _INTERIOR_ROUND:
                objective, gap = self._solve_interior(objective, gap, tol)
            if reached or n_rounds % _EVERY == 0:
                objective, gap = self._polish(objective, gap)
                reached = self._is_reached(objective, gap, tol)
            if reached:
                attempts += 1
                if attempts > _ATTEMPTS or not self._polishes(gap):
                    break
            working = self._next()
        else:
            self._warn(
                f"the duality gap is {gap.max():.2g} of the objective after "
                f"max_iter={max_iter} passes, above tol={tol:g}: raise max_iter or "
                "tol, or lower C."
            )
        if reached and gap.max() > tol:
            self._warn(self._rounded(gap, tol))
        return MarginSolution(self.weights, self.alpha, objective, gap, n_rounds)

    def _solve_interior(
        self, objective: np.ndarray, gap: np.ndarray, tol: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve what descent has not solved in so many passes another way."""
        Z, usable = self.features.kept, np.flatnonzero(self.upper)
        slow = np.flatnonzero(gap > tol)
        size = len(usable), self.features.width
        if Z is None or not affordable(*size, len(slow)):
            return objective, gap
        if n_bytes(*size) > self.spare_bytes:
            return objective, gap
        rows = KeptFeatures(Z if len(usable) == len(Z) else Z[usable])
        before, inner = self.alpha.copy(), self.alpha.copy()
        for t in slow:
            signs, upper = self.signs[usable, t], self.upper[usable]
            found = solve_box(rows, signs, upper, _INTERIOR_TOLERANCE * tol)
            self.alpha[usable, t], inner[usable, t] = found.value, found.inner
        objective, gap = self._polish(*self._kept_if_better(before, gap))
        return self._unless_reached(inner, objective, gap, tol)

    def _first(self) -> np.ndarray:
        usable = np.flatnonzero(self.upper)
        most = min(self.capacity, _FIRST_ROWS)
        if self.features.kept is not None or len(usable) <= most:
            return usable
        return np.sort(self.generator.choice(usable, most, replace=False))

    def _next(self) -> np.ndarray:
        """Return the rows to work on, and set how far."""
        # Projected gradients: what coordinate descent drives to 0.
        wrong = self.signs * self.scores - 1
        np.minimum(wrong, 0.0, out=wrong, where=self.alpha == 0)
        full = (self.alpha == self.upper[:, None]) & (self.alpha > 0)
        np.maximum(wrong, 0.0, out=wrong, where=full)
        wrong[self.upper == 0] = 0.0
        np.abs(wrong, out=wrong)
        self.tolerance = min(self.tolerance, _SHARE * float(wrong.max()))
        if self.features.kept is not None:
            return np.flatnonzero(self.upper)
        free = (self.alpha > 0) & ~full
        return np.flatnonzero((free | (wrong > 0.5 * self.tolerance)).any(axis=1))

    def _improve(self, working: np.ndarray) -> None:
        """Descend along the working rows, in parts whose features fit in memory."""
        order = self.generator.permutation(len(working))
        n_parts = max(1, -(-len(working) // self.capacity))
        # What other rows contribute stays in w.
        weights = self.weights.astype(self.features.dtype)
        for part in np.array_split(order, n_parts):
            rows = np.sort(working[part])
            kept = self.features.kept
            places = np.arange(len(rows)) if kept is None else rows
            alpha = np.ascontiguousarray(self.alpha[rows].T)
            descend(
                self.features.take(rows) if kept is None else kept,
                places.astype(np.int64),
                np.ascontiguousarray(self.signs[rows].T),
                self.upper[rows],
                alpha,
                weights,
                self.tolerance,
                _MOST_EPOCHS if n_parts == 1 else _EPOCHS_A_PART,
                int(self.generator.integers(2**31)),
            )
            self.alpha[rows] = alpha.T


class _InteriorPoint(_Margins):
    """An interior-point method for each problem, dense linear algebra throughout.

    What tensors take, wherever they lie: coordinate descent goes from row to row.
    """

    def run(self, tol: float) -> MarginSolution:
        usable = self.ops.flatnonzero(self.upper)
        features, upper = self.features, self.upper
        if len(usable) < len(upper):
            features, upper = features.part(usable), upper[usable]
        tolerance = _INTERIOR_TOLERANCE * tol
        if self._is_precise():  # so that equations may find the very optimum
            tolerance = min(tolerance, _NEARLY_EXACT)
        inner, steps = self.ops.zeros(self.alpha.shape, self.signs), 0
        for t, signs in enumerate(self.signs.T):
            found = solve_box(features, signs[usable], upper, tolerance)
            self.alpha[usable, t], inner[usable, t] = found.value, found.inner
            steps = max(steps, found.n_steps)
        self._update()
        objective, gap = self._gap()
        for _ in range(_ATTEMPTS):
            objective, gap = self._polish(objective, gap)
            if not self._polishes(gap):
                break
            self._release()
        objective, gap = self._unless_reached(inner, objective, gap, tol)
        if self._may_be_precise() and (gap > tol).any():
            self._go_on_in_float64()
            return self.run(tol)
        if not self._is_reached(objective, gap, tol):
            self._warn(
                f"the duality gap is {float(gap.max()):.2g} of the objective, above "
                f"tol={tol:g}: the interior-point method came no nearer; raise tol, or "
                "lower C."
            )
        elif gap.max() > tol:
            self._warn(self._rounded(gap, tol))
        return MarginSolution(self.weights, self.alpha, objective, gap, steps)

    def _release(self) -> None:
        """Move variables off bounds that their margins say they do not belong to."""
        where, upper = self.ops.elementwise.where, self.upper[:, None]
        missing = 1 - self.signs * self.scores
        low = (self.alpha == 0) & (missing > _VIOLATION) & (upper > 0)
        high = (self.alpha == upper) & (missing < -_VIOLATION) & (upper > 0)
        moved = where(high, (1 - _NUDGE) * upper, self.alpha)
        self.alpha = where(low, _NUDGE * upper, moved)


def _squared_lengths(weights: np.ndarray) -> np.ndarray:
    """Return the squared length of every row."""
    return ops_of(weights).algebra.column_products(weights.T, weights.T)
