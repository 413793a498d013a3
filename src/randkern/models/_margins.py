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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend import thin
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks, rows_within
from randkern.models._margin_interior import affordable, solve_box
from randkern.models._rows import ArrayRows, TrainingRows
from randkern.plan import Plan, evaluate

__all__ = [
    "FactorFeatures",
    "FeatureRows",
    "MarginSolution",
    "PlanFeatures",
    "maximise_margin",
]

_BLOCK_BYTES = 32 * 2**20
_TENSOR_BLOCK_BYTES = 512 * 2**20
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
# Passes after which an interior-point method takes over, and how far below `tol` it is
# to go. A gap above so many times `tol` is worth a warning, whatever its cause.
_INTERIOR_ROUND = 8
_INTERIOR_TOLERANCE = 1e-2
_LARGE_GAP = 100.0


class FeatureRows(Protocol):
    """Rows of features, of a width that is filled up with zeros."""

    n_rows: int
    width: int
    dtype: np.dtype
    # An array that lies where they do.
    like: Any

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all rows in order; an array may be used again for the next block."""

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return some rows, whose numbers ascend."""

    @property
    def kept(self) -> np.ndarray | None:
        """All rows, where they are in memory."""


class PlanFeatures:
    """Random features of training rows, kept if `kept_bytes` hold them."""

    def __init__(self, plan: Plan, rows: TrainingRows, kept_bytes: int):
        self.plan = plan
        self.rows = rows
        self.n_rows = rows.n_rows
        self.dtype = rows.dtype
        self.like = rows.X if isinstance(rows, ArrayRows) else np.empty(0, rows.dtype)
        self.width = ops_of(self.like).algebra.padded(plan.n_components)
        self.kept: np.ndarray | None = None
        row_bytes = self.width * self.dtype.itemsize
        block = _TENSOR_BLOCK_BYTES if is_tensor(self.like) else _BLOCK_BYTES
        self._most = rows_within(block, row_bytes, at_least=64)
        if self.n_rows * row_bytes <= kept_bytes:
            made = self._empty(self.n_rows)
            for part, Z in self._fresh():
                made[part] = Z
            self.kept = made

    def _empty(self, n: int) -> np.ndarray:
        """Return unset rows, with zeros where no feature will be."""
        out = ops_of(self.like).empty((n, self.width), self.like)
        out[:, self.plan.n_components :] = 0
        return out

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        if self.kept is None:
            yield from self._fresh()
            return
        for part in row_blocks(self.n_rows, _ROWS_AT_ONCE):
            yield part, self.kept[part]

    def _fresh(self) -> Iterator[tuple[slice, np.ndarray]]:
        buffer = self._empty(min(self.n_rows, self._most))
        for block in self.rows.blocks(len(buffer)):
            Z = buffer[: len(block.Y)]
            evaluate(self.plan, block.X, out=Z[:, : self.plan.n_components])
            yield block.rows, Z

    def take(self, numbers: np.ndarray) -> np.ndarray:
        if self.kept is not None:
            return self.kept[numbers]
        Z = self._empty(len(numbers))
        if len(numbers):
            X = self.rows.take(numbers).X
            for part in row_blocks(len(numbers), self._most):
                evaluate(self.plan, X[part], out=Z[part, : self.plan.n_components])
        return Z


class FactorFeatures:
    """Rows of a factor F of an exact Gram matrix, K = FFᵀ, as features.

    F is that of a Cholesky factorisation with pivoting, of as many columns as K has
    rank: equal rows stay equal.
    """

    def __init__(self, gram: np.ndarray):
        self.kept, self.pivots = ops_of(gram).algebra.pivoted_factor(gram)
        self.like, self.dtype = self.kept, self.kept.dtype
        self.n_rows, self.width = self.kept.shape
        self.triangle = self.kept[self.pivots][:, : len(self.pivots)]

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for part in row_blocks(self.n_rows, _ROWS_AT_ONCE):
            yield part, self.kept[part]

    def take(self, numbers: np.ndarray) -> np.ndarray:
        return self.kept[numbers]


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
    stream : Stream
        Of the orders of rows.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        If `max_iter` passes do not reach `tol`.
    """
    return _Decomposition(features, signs, upper, kept_bytes, stream).run(tol, max_iter)


class _Decomposition:
    def __init__(
        self,
        features: FeatureRows,
        signs: np.ndarray,
        upper: np.ndarray,
        kept_bytes: int,
        stream: Stream,
    ):
        n, k = signs.shape
        self.features, self.signs, self.upper = features, signs, upper
        self.generator = stream.generator()
        self.capacity = n
        if features.kept is None:
            row = features.width * features.dtype.itemsize + 24 * k
            self.capacity = max(64, kept_bytes // row)
        self.alpha = np.zeros((n, k))
        self.weights = np.zeros((k, features.width))
        self.scores = np.zeros((n, k))
        self.tolerance = _FIRST_TOLERANCE
        self.longest = 0.0

    def run(self, tol: float, max_iter: int) -> MarginSolution:
        working = self._first()
        n_rounds, attempts = 0, 0
        for n_rounds in range(1, max_iter + 1):
            self._improve(working)
            self._update()
            objective, gap = self._gap()
            reached = np.all(gap <= tol + self._rounding() / objective)
            if not reached and n_rounds == _INTERIOR_ROUND:
                objective, gap = self._solve_interior(objective, gap, tol)
            if reached or n_rounds % _EVERY == 0:
                objective, gap = self._polish(objective, gap)
                reached = np.all(gap <= tol + self._rounding() / objective)
            if reached:
                attempts += 1
                if attempts > _ATTEMPTS or not self._polishes(gap):
                    break
            working = self._next()
        else:
            self._warn(
                f"the duality gap is {gap.max():.2g} of the objective after "
                f"max_iter={max_iter} passes, above tol={tol:g}: raise max_iter or "
                f"tol, {self._advice()}."
            )
        if reached and gap.max() > _LARGE_GAP * tol:
            self._warn(
                f"the duality gap is {gap.max():.2g} of the objective, above "
                f"tol={tol:g}: rounding errors leave no more at so large a C; "
                f"{self._advice()}."
            )
        return MarginSolution(self.weights, self.alpha, objective, gap, n_rounds)

    def _advice(self) -> str:
        precise = self.features.dtype == np.float64
        return "lower C" if precise else "lower C, or pass float64 rows"

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, ConvergenceWarning, stacklevel=5)

    def _solve_interior(
        self, objective: np.ndarray, gap: np.ndarray, tol: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve what descent has not solved in so many passes another way."""
        Z, usable = self.features.kept, np.flatnonzero(self.upper)
        slow = np.flatnonzero(gap > tol)
        if Z is None or not affordable(len(usable), self.features.width, len(slow)):
            return objective, gap
        Z = Z if len(usable) == len(Z) else Z[usable]
        before = self.alpha.copy()
        for t in slow:
            self.alpha[usable, t] = solve_box(
                Z, self.signs[usable, t], self.upper[usable], _INTERIOR_TOLERANCE * tol
            )
        return self._kept_if_better(before, gap)

    def _kept_if_better(
        self, before: np.ndarray, gap: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go back to the variables before where the gap has grown."""
        self._update()
        after = self._gap()
        worse = after[1] > gap
        if np.any(worse):
            self.alpha[:, worse] = before[:, worse]
            self._update()
            after = self._gap()
        return after

    def _polishes(self, gap: np.ndarray) -> bool:
        """Tell whether equations may still find the very optimum."""
        free = (self.alpha > 0) & (self.alpha < self.upper[:, None])
        precise = self.features.kept is not None and self.features.dtype == np.float64
        few = int(free.sum(axis=0).max(initial=0)) <= _MOST_FREE
        return precise and few and bool(np.any(gap > _EXACT))

    def _polish(
        self, objective: np.ndarray, gap: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve for the dual variables within their bounds, whose margins are 1.

        Where coordinate descent has found which ones these are, this is the optimum.
        """
        if not self._polishes(gap):
            return objective, gap
        before = self.alpha.copy()
        for t in range(len(gap)):
            self.alpha[:, t] = self._solved(t)
        return self._kept_if_better(before, gap)

    def _solved(self, t: int) -> np.ndarray:
        """Return dual variables that give the free rows of a problem margins of 1."""
        alpha, signs = self.alpha[:, t], self.signs[:, t]
        free = np.flatnonzero((alpha > 0) & (alpha < self.upper))
        bound = np.flatnonzero((alpha > 0) & (alpha == self.upper))
        Z = self.features.take(free)
        fixed = (alpha * signs)[bound] @ self.features.take(bound)
        # Equal rows share their variable: the shortest solution.
        factors, *_ = scipy.linalg.lstsq(Z @ Z.T, signs[free] - Z @ fixed)
        out = alpha.copy()
        out[free] = np.clip(signs[free] * factors, 0.0, self.upper[free])
        return out

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

    def _update(self) -> None:
        """Sum the weights up in float64, then the scores of all rows by them."""
        k = self.signs.shape[1]
        self.weights = np.zeros((k, self.features.width))
        dtype = self.features.dtype
        support = np.flatnonzero(self.alpha.any(axis=1))
        factors = self.alpha * self.signs
        for rows in row_blocks(len(support), min(self.capacity, _ROWS_AT_ONCE)):
            here = support[rows]
            Z = self.features.take(here)
            size = float(np.abs(factors[here]).max(initial=0.0)) or 1.0
            part = np.zeros_like(self.weights)
            right = np.ascontiguousarray(factors[here] / size, dtype)
            thin.add_transposed(Z, right, part)
            self.weights += size * part
        size = float(np.abs(self.weights).max(initial=0.0)) or 1.0
        right = np.ascontiguousarray(self.weights / size, dtype)
        for where, Z in self.features.blocks():
            self.scores[where] = size * thin.multiply(Z, right)
            longest = np.einsum("ij,ij->i", Z, Z).max(initial=0.0)
            self.longest = max(self.longest, float(np.sqrt(longest)))

    def _rounding(self) -> np.ndarray:
        """Return what the gap may be for rounding errors of the scores alone."""
        precision = float(np.finfo(self.features.dtype).eps)
        error = _ROUNDING * precision * self.longest
        support = self.upper @ (self.alpha > 0)
        return error * np.linalg.norm(self.weights, axis=1) * support

    def _gap(self) -> tuple[np.ndarray, np.ndarray]:
        penalty = 0.5 * np.einsum("ij,ij->i", self.weights, self.weights)
        losses = np.maximum(1 - self.signs * self.scores, 0.0)
        objective = penalty + self.upper @ losses
        if not np.all(np.isfinite(objective)):
            raise ValueError(
                "features overflow: rows of X are too large for this kernel; scale the "
                "input down."
            )
        gap: Any = objective - (self.alpha.sum(axis=0) - penalty)
        return objective, gap / np.where(objective > 0, objective, 1.0)
