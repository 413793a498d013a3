"""The duals of support vector machines, on features that need not be kept.

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
from collections.abc import Iterable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.models._interior_point import affordable, solve_box
from randkern.models.feature_matrix import FeatureMatrix, add_combinations, products
from randkern.models.memory import FEWEST_ROWS, interior_point_bytes

__all__ = ["SVMDual", "scores_of"]

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
# Passes after which an interior-point method takes over, and how far below `tol` it is
# to go.
_INTERIOR_ROUND = 8
_INTERIOR_TOLERANCE = 1e-2


class SVMDual:
    """One support vector machine per column of signs.

    Parameters
    ----------
    features : FeatureMatrix
    signs : ndarray of shape (n, k)
    upper : ndarray of shape (n,)
        Bounds U ≥ 0 of the dual variables.
    kept_bytes : int
        Memory for the features of a working set.
    spare_bytes : int
        Memory for the matrices of an interior-point method.

    Attributes
    ----------
    alpha : ndarray of shape (n, k)
        The dual variables, between 0 and their bounds.
    weights : ndarray of shape (k, width)
    gap : ndarray of shape (k,)
        P − D, relative to P.
    n_rounds : int
        Passes over all rows, or steps of the interior-point method for tensors.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        signs: np.ndarray,
        upper: np.ndarray,
        *,
        kept_bytes: int,
        spare_bytes: int,
    ):
        self.features, self.signs, self.upper = features, signs, upper
        self.kept_bytes, self.spare_bytes = kept_bytes, spare_bytes
        self.ops = ops = ops_of(signs)
        self.alpha = ops.zeros(signs.shape, signs)
        self.weights = ops.zeros((signs.shape[1], features.width), signs)
        self.gap = ops.zeros(signs.shape[1], signs) + np.inf
        self.n_rounds = 0
        self._tolerance = _FIRST_TOLERANCE

    def solve(self, tol: float, max_iter: int, stream: Stream) -> SVMDual:
        """Solve to a relative gap of `tol`, in at most `max_iter` passes over all rows.

        The stream is that of the orders of rows. Returns itself.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If `max_iter` passes do not reach `tol`, or rounding errors do not let it.
        """
        if is_tensor(self.signs):
            self._solve_on_device(tol)
            reason = "the interior-point method came no nearer; raise tol, or lower C."
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

    def _descend(
        self, tol: float, max_iter: int, generator: np.random.Generator
    ) -> None:
        """Descend along the coordinates, and take other ways where that is slow."""
        working, attempts = self._first_rows(generator), 0
        for self.n_rounds in range(1, max_iter + 1):
            self._descend_along(working, generator)
            self._update()
            late = self.n_rounds >= _INTERIOR_ROUND
            if late or self._is_reached(tol):
                self._go_on_in_float64(tol)
            if self.n_rounds == _INTERIOR_ROUND and not self._is_reached(tol):
                slow = np.flatnonzero(self.gap > tol)
                if self._is_affordable(len(slow)):
                    self._follow_centre(slow, tol, _INTERIOR_TOLERANCE * tol)
            if self._is_reached(tol) or self.n_rounds % _EVERY == 0:
                self._polish()
            if self._is_reached(tol):
                attempts += 1
                if attempts > _ATTEMPTS or not self._may_polish():
                    break
            working = self._next_rows()

    def _solve_on_device(self, tol: float) -> None:
        """Take the interior-point method: coordinate descent goes from row to row."""
        for _ in range(2):
            tolerance = _INTERIOR_TOLERANCE * tol
            if self._is_precise():  # so that equations may find the very optimum
                tolerance = min(tolerance, _NEARLY_EXACT)
            every = range(self.signs.shape[1])
            self.n_rounds = self._follow_centre(every, tol, tolerance)
            if not self._go_on_in_float64(tol):
                break

    # -- the state ---------------------------------------------------------------------

    def _update(self) -> None:
        """Make the weights, in float64, the scores of all rows, and the gaps."""
        ops = self.ops
        self.weights = ops.zeros(self.weights.shape, self.signs)
        support = ops.flatnonzero((self.alpha != 0).any(axis=1))
        factors = self.alpha * self.signs
        for rows in row_blocks(len(support), min(self._capacity, _ROWS_AT_ONCE)):
            here = support[rows]
            add_combinations(self.features.take(here), factors[here], self.weights)
        scores, longest = scores_of(self.features, self.weights)
        self._margins = self.signs * scores
        squares = ops.algebra.column_products(self.weights.T, self.weights.T)
        objective = 0.5 * squares + self.upper @ (1 - self._margins).clip(0.0)
        if not ops.is_finite(objective):
            raise ValueError(
                "the objective overflows: C or the weights are too large, or rows of X "
                "are for this kernel; lower C, or scale the input down."
            )
        size = objective + (objective <= 0)
        self.gap = (objective - (self.alpha.sum(axis=0) - 0.5 * squares)) / size
        # What the gap may be for rounding errors of the scores alone.
        error = _ROUNDING * ops.precision(self.features.dtype) * longest
        bounds = self.upper @ ops.asarray(self.alpha > 0, self.alpha)
        self._rounding = error * squares**0.5 * bounds / objective

    def _replace(self, alpha: np.ndarray) -> None:
        """Take other dual variables, but for problems whose gap would grow."""
        before, gap = self.alpha, self.gap
        self.alpha = alpha
        self._update()
        worse = self.gap > gap
        if worse.any():
            self.alpha = self.ops.xp.where(worse, before, alpha)
            self._update()

    def _is_reached(self, tol: float) -> bool:
        return bool((self.gap <= tol + self._rounding).all())

    def _is_precise(self) -> bool:
        return self.features.dtype.itemsize == 8

    @property
    def _capacity(self) -> int:
        """Rows of features that there is memory for: all that are kept."""
        if self.features.cached is not None:
            return self.features.n_rows
        row = self.features.width * self.features.dtype.itemsize
        return max(FEWEST_ROWS, self.kept_bytes // (row + 24 * self.signs.shape[1]))

    def _go_on_in_float64(self, tol: float) -> bool:
        """Make kept features of float32 again, where they do not tell enough.

        Features that are recomputed in every pass would take twice as many passes.
        """
        Z = self.features.cached
        if self._is_precise() or Z is None or 2 * Z.nbytes > self.kept_bytes:
            return False
        if not (self.gap > tol).any():
            return False
        self.features = self.features.in_float64(self.kept_bytes)
        self._update()
        return True

    # -- equations ---------------------------------------------------------------------

    def _may_polish(self) -> bool:
        """Tell whether equations may still find the very optimum."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        precise = self.features.cached is not None and self._is_precise()
        few = int(free.sum(axis=0).max()) <= _MOST_FREE
        return precise and few and bool((self.gap > _EXACT).any())

    def _polish(self) -> None:
        """Solve for the dual variables within their bounds, whose margins are 1.

        Where the others are known to be at theirs, this is the optimum.
        """
        if self._may_polish():
            columns = [self._solved(t)[:, None] for t in range(len(self.gap))]
            self._replace(self.ops.hstack(columns))

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

    # -- the interior-point method -----------------------------------------------------

    def _is_affordable(self, n_problems: int) -> bool:
        n, width = int((self.upper > 0).sum()), self.features.width
        return (
            self.features.cached is not None
            and affordable(n, width, n_problems)
            and interior_point_bytes(n, width) <= self.spare_bytes
        )

    def _follow_centre(
        self, columns: Iterable[int], tol: float, tolerance: float
    ) -> int:
        """Solve some of the problems, and return the most steps that one took."""
        usable = self.ops.flatnonzero(self.upper)
        features, upper = self.features, self.upper[usable]
        if len(usable) < len(self.upper):
            features = features.part(usable)
        alpha, inner = self.ops.copy(self.alpha), self.ops.copy(self.alpha)
        n_steps = 0
        for t in columns:
            value, left, steps = solve_box(
                features, self.signs[usable, t], upper, tolerance
            )
            alpha[usable, t], inner[usable, t] = value, left
            n_steps = max(n_steps, steps)
        self._replace(alpha)
        self._polish()
        # Where C is large it matters how near a variable is to its bound: those that no
        # bound was rounded to may leave a smaller gap.
        if not self._is_reached(tol):
            self._replace(inner)
        return n_steps

    # -- coordinate descent ------------------------------------------------------------

    def _first_rows(self, generator: np.random.Generator) -> np.ndarray:
        usable = np.flatnonzero(self.upper)
        most = min(self._capacity, _FIRST_ROWS)
        if self.features.cached is not None or len(usable) <= most:
            return usable
        return np.sort(generator.choice(usable, most, replace=False))

    def _next_rows(self) -> np.ndarray:
        """Return the rows to work on, and set how far."""
        # Projected gradients: what coordinate descent drives to 0.
        wrong = self._margins - 1
        np.minimum(wrong, 0.0, out=wrong, where=self.alpha == 0)
        full = (self.alpha == self.upper[:, None]) & (self.alpha > 0)
        np.maximum(wrong, 0.0, out=wrong, where=full)
        wrong[self.upper == 0] = 0.0
        np.abs(wrong, out=wrong)
        self._tolerance = min(self._tolerance, _SHARE * float(wrong.max()))
        if self.features.cached is not None:
            return np.flatnonzero(self.upper)
        free = (self.alpha > 0) & ~full
        return np.flatnonzero((free | (wrong > 0.5 * self._tolerance)).any(axis=1))

    def _descend_along(
        self, working: np.ndarray, generator: np.random.Generator
    ) -> None:
        """Descend along the working rows, in parts whose features fit in memory."""
        order = generator.permutation(len(working))
        n_parts = max(1, -(-len(working) // self._capacity))
        # What other rows contribute stays in w.
        weights = self.weights.astype(self.features.dtype)
        for part in np.array_split(order, n_parts):
            rows = np.sort(working[part])
            kept = self.features.cached
            places = np.arange(len(rows)) if kept is None else rows
            alpha = np.ascontiguousarray(self.alpha[rows].T)
            descend(
                self.features.take(rows) if kept is None else kept,
                places.astype(np.int64),
                np.ascontiguousarray(self.signs[rows].T),
                self.upper[rows],
                alpha,
                weights,
                self._tolerance,
                _MOST_EPOCHS if n_parts == 1 else _EPOCHS_A_PART,
                int(generator.integers(2**31)),
            )
            self.alpha[rows] = alpha.T


def scores_of(features: FeatureMatrix, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return w·z of every row for k rows of weights, and the longest row's norm."""
    ops = ops_of(weights)
    scores, square = ops.zeros((features.n_rows, len(weights)), weights), 0.0
    for block in features.blocks():
        Z = block.values
        scores[block.rows] = products(Z, weights)
        square = max(square, ops.largest(ops.algebra.column_products(Z.T, Z.T)))
    return scores, square**0.5
