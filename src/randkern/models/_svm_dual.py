"""The duals of support vector machines, on features that need not be cached.

For each column y of signs

    P(w) = ½‖w‖² + Σ_i U_i max(0, 1 − y_i w·z_i),
    D(α) = Σ_i α_i − ½‖w‖²,  w = Σ_i α_i y_i z_i,  0 ≤ α_i ≤ U_i,

and D ≤ P with equality at the solution: the difference is what tells when to stop.
Coordinate descent takes one block of rows after the other (Yu, Hsieh, Chang & Lin 2010,
"Large linear classification when data cannot fit in memory"), all rows where their
features are cached.
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
from randkern.models.memory import newton_bytes

__all__ = ["SVMDual"]

# The difference of gradients that coordinate descent stops at, and by how much it falls
# in each round.
_FIRST_TOLERANCE, _SHARE = 0.1, 0.2
# Coordinate descent on all rows stops after so many epochs; on a block of them, which
# the others make obsolete, earlier.
_MOST_EPOCHS, _EPOCHS_PER_BLOCK = 300, 10
# Rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 4.0
# The round after which Newton's method is tried, and by how much later again; how many
# dual variables may lie within their bounds, so that its steps are a matter of seconds;
# the gap it is to reach.
_NEWTON_ROUND, _LATER, _MOST_FREE, _EXACT = 4, 4, 1000, 1e-12


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
        objective = 0.5 * squares + self.upper @ (1 - self.signs * scores).clip(0.0)
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
        tolerance, newton_round = _FIRST_TOLERANCE, _NEWTON_ROUND
        for self.n_rounds in range(1, max_iter + 1):
            self._update(self._pass_over_rows(tolerance, generator))
            tolerance *= _SHARE
            if self._is_reached(tol) or self.n_rounds == newton_round:
                self._go_on_in_float64(tol)
                newton_round *= _LATER
                if self._may_follow_newton():
                    self._follow_newton()
                if self._is_reached(tol):
                    break

    def _pass_over_rows(
        self, tolerance: float, generator: np.random.Generator
    ) -> np.ndarray:
        """Descend along all rows, a block at a time, and return the weights."""
        n_rows = self.features.n_rows
        weights = self.weights.astype(self.features.dtype)
        out = np.zeros_like(self.weights)
        for block in self.features.blocks(n_rows):
            rows = np.flatnonzero(self.upper[block.rows])
            here = block.rows.start + rows
            alpha = np.ascontiguousarray(self.alpha[here].T)
            descend(
                block.values,
                rows,
                np.ascontiguousarray(self.signs[here].T),
                self.upper[here],
                alpha,
                weights,
                tolerance,
                _MOST_EPOCHS if len(block.values) == n_rows else _EPOCHS_PER_BLOCK,
                int(generator.integers(2**31)),
            )
            self.alpha[here] = alpha.T
            factors = self.alpha[block.rows] * self.signs[block.rows]
            add_combinations(block.values, factors, out)
        return out

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
        """Tell whether it may find the very optimum, in little time and memory."""
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
