"""The duals of support vector machines, on features that need not be cached.

For each column y of signs

    P(w) = ½‖w‖² + Σ_i U_i max(0, 1 − y_i w·z_i),
    D(α) = Σ_i α_i − ½‖w‖²,  w = Σ_i α_i y_i z_i,  0 ≤ α_i ≤ U_i,

and D ≤ P with equality at the solution: the difference is what tells when to stop.
Where the features of all rows do not fit in memory, coordinate descent works on rows
that break the conditions of optimality, whose features do; a pass over all rows, whose
features are recomputed, finds the next ones (a decomposition as that of Osuna, Freund
and Girosi 1997, with working sets as large as memory takes).
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.models._augmented_lagrangian import solve_box
from randkern.models.feature_matrix import (
    FeatureMatrix,
    add_combinations,
    combined,
    scores_of,
)
from randkern.models.memory import FEWEST_ROWS, newton_bytes

# The difference of gradients that coordinate descent stops at; then a share of the
# largest that is left.
_FIRST_TOLERANCE, _SHARE = 0.1, 0.2
# Rows of the first working set that is not all rows.
_FIRST_ROWS = 8192
# Coordinate descent on a working set stops after so many epochs; on a part of one,
# which the others make obsolete, earlier.
_MOST_EPOCHS, _EPOCHS_PER_PART = 300, 50
# Rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 4.0
# The round after which Newton's method is tried, and by how much later again; how many
# dual variables may lie within their bounds, so that its steps are a matter of seconds;
# the gap it is to reach. Where the features have no more than so many entries, it also
# ends each descent; where they have more, it would take longer than the descent did.
_NEWTON_ROUND, _LATER, _MOST_FREE, _EXACT = 4, 4, 1000, 1e-12
_FEW_ENTRIES = 2 * 10**7


class SVMDual:
    """One support vector machine per column of signs.

    Parameters
    ----------
    features : FeatureMatrix
        Those of tensors are float64.
    signs : ndarray of shape (n, k)
    upper : ndarray of shape (n,)
        Bounds U ≥ 0 of the dual variables.
    cache_bytes : int
        Memory for features.
    spare_bytes : int
        Memory for the matrices of Newton's method.

    Attributes
    ----------
    alpha : ndarray of shape (n, k)
        The dual variables, between 0 and their bounds.
    weights : ndarray of shape (k, width)
    gap : ndarray of shape (k,)
        P − D, relative to P.
    n_rounds : int
        Passes over all rows, or steps of Newton's method for tensors.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        signs: np.ndarray,
        upper: np.ndarray,
        *,
        cache_bytes: int,
        spare_bytes: int,
    ):
        self.features, self.signs, self.upper = features, signs, upper
        self.cache_bytes, self.spare_bytes = cache_bytes, spare_bytes
        self.ops = ops = ops_of(signs)
        self.alpha = ops.zeros(signs.shape, signs)
        self.weights = ops.zeros((signs.shape[1], features.width), signs)
        self.gap = ops.zeros(signs.shape[1], signs) + np.inf
        self.n_rounds = 0

    def solve(self, tol: float, max_iter: int, stream: Stream) -> SVMDual:
        """Solve to a relative gap of `tol`, in at most `max_iter` passes over all rows.

        The stream is that of the orders of rows. Returns itself.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If `max_iter` passes do not reach `tol`, or rounding errors do not let it.
        """
        if is_tensor(self.signs):
            self._update(self.weights)
            self.n_rounds = self._follow_newton()
            reason = "Newton's method came no nearer; raise tol, or lower C."
        else:
            self._descend(tol, max_iter, stream.generator())
            reason = (
                f"max_iter={max_iter} passes came no nearer; raise max_iter or tol, or "
                "lower C."
            )
        if self._is_reached(tol):
            reason = (
                "rounding errors leave no more at so large a C; lower C, or raise tol."
            )
        if (self.gap > tol).any():
            warnings.warn(
                f"the duality gap is {float(self.gap.max()):.2g} of the objective, "
                f"above tol={tol:g}: {reason}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    # -- the state ---------------------------------------------------------------------

    def _update(self, weights: np.ndarray) -> None:
        """Set the weights, in float64, and the gaps."""
        self.weights, ops = weights, self.ops
        scores, self._longest = scores_of(self.features, weights)
        squares = ops.algebra.column_products(weights.T, weights.T)
        self._margins = self.signs * scores
        objective = 0.5 * squares + self.upper @ (1 - self._margins).clip(0.0)
        if not ops.is_finite(objective):
            raise ValueError(
                "the objective overflows: C or the weights are too large, or rows of X "
                "are for this kernel; lower C, or scale the input down."
            )
        size = objective + (objective <= 0)
        self.gap = (objective - (self.alpha.sum(axis=0) - 0.5 * squares)) / size
        # What the gap may be for rounding errors of the scores alone.
        error = _ROUNDING * ops.precision(self.features.dtype) * self._longest
        bounds = self.upper @ ops.asarray(self.alpha > 0, self.alpha)
        self._rounding = error * squares**0.5 * bounds / objective

    def _is_reached(self, tol: float) -> bool:
        return bool((self.gap <= tol + self._rounding).all())

    # -- coordinate descent ------------------------------------------------------------

    def _descend(
        self, tol: float, max_iter: int, generator: np.random.Generator
    ) -> None:
        """Descend along the coordinates, and by Newton's method where that is slow."""
        is_small = len(self.signs) * self.features.width <= _FEW_ENTRIES
        tolerance = _FIRST_TOLERANCE
        newton_round = _NEWTON_ROUND if is_small else _LATER * _NEWTON_ROUND
        working = np.flatnonzero(self.upper)
        if self.features.cached is None and len(working) > _FIRST_ROWS:
            working = np.sort(generator.choice(working, _FIRST_ROWS, replace=False))
        for self.n_rounds in range(1, max_iter + 1):
            self._descend_along(working, tolerance, generator)
            is_due = self.n_rounds == newton_round
            if is_due or self._is_reached(tol):
                self._go_on_in_float64(tol)
                if is_due or is_small:
                    newton_round *= _LATER
                    if self._may_follow_newton():
                        self._follow_newton()
                if self._is_reached(tol):
                    break
            errors = self._errors()
            tolerance = min(tolerance, _SHARE * float(errors.max()))
            if self.features.cached is None:
                free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
                wrong = free | (errors > 0.5 * tolerance)
                working = np.flatnonzero(wrong.any(axis=1))

    def _errors(self) -> np.ndarray:
        """Return the sizes of the gradients along which variables may move."""
        wrong = self._margins - 1
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
            capacity = max(FEWEST_ROWS, self.cache_bytes // row)
        # What other rows contribute stays in w.
        weights = out.astype(self.features.dtype)
        order = generator.permutation(len(working))
        n_parts = max(1, -(-len(working) // max(capacity, 1)))
        for part in np.array_split(order, n_parts):
            rows = np.sort(working[part])
            Z = self.features.take(rows) if cached is None else cached
            places = np.arange(len(rows)) if cached is None else rows
            before, signs = self.alpha[rows], self.signs[rows]
            alpha = before.T.copy()
            descend(
                Z,
                places,
                np.ascontiguousarray(signs.T),
                self.upper[rows],
                alpha,
                weights,
                tolerance,
                _MOST_EPOCHS if n_parts == 1 else _EPOCHS_PER_PART,
                int(generator.integers(2**31)),
            )
            self.alpha[rows] = alpha.T
            changes = np.zeros((len(Z), k))
            changes[places] = (alpha.T - before) * signs
            add_combinations(Z, changes, out)
        self._update(out)

    def _go_on_in_float64(self, tol: float) -> None:
        """Recompute cached features of float32 rows, where they do not tell enough.

        Features that are recomputed in every pass would take twice as many passes.
        """
        Z = self.features.cached
        if Z is None or self._is_precise() or 2 * Z.nbytes > self.cache_bytes:
            return
        if (self.gap > tol).any():
            self.features = self.features.in_float64(self.cache_bytes)
            self._update(self.weights)

    def _is_precise(self) -> bool:
        return self.features.dtype.itemsize == 8

    # -- Newton's method ---------------------------------------------------------------

    def _may_follow_newton(self) -> bool:
        """Return whether it may find the optimum, in little time and memory."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        return (
            self.features.cached is not None
            and self._is_precise()
            and int(free.sum(axis=0).max()) <= _MOST_FREE
            and newton_bytes(*self.features.cached.shape) <= self.spare_bytes
            and bool((self.gap > _EXACT).any())
        )

    def _follow_newton(self) -> int:
        """Solve the problems with a gap, and return the most steps that one took."""
        usable = self.ops.flatnonzero(self.upper)
        features, upper, n_steps = self.features, self.upper[usable], 0
        if len(usable) < len(self.upper):
            features = features.part(usable)
        for t, gap in enumerate(self.gap):
            if gap <= _EXACT:
                continue
            signs, start = self.signs[usable, t], self.alpha[usable, t]
            found = solve_box(features, signs, upper, _EXACT, self._longest, start)
            n_steps = max(n_steps, found.n_steps)
            if found.gap < gap:
                self.alpha[usable, t] = found.alpha
        self._update(combined(self.features, self.alpha * self.signs))
        return n_steps
