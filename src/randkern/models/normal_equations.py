"""The normal equations of ridge regression on features, summed block by block.

With rows z_i of features, targets y_i, weights w_i and z̄, ȳ their weighted means (0
without an intercept):

(Σ w_i (z_i − z̄)(z_i − z̄)ᵀ + αI) W = Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._validation import Array, Rows, is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import TrainingData
from randkern.models.left_out import ProbedRows
from randkern.models.memory import (
    CROSS_ROWS,
    ROWS_AT_ONCE,
    block_rows,
)
from randkern.plan import Plan, evaluate
from randkern.solvers import Cholesky, CholeskyState, Solution, mirror_upper

_COLUMNS = 1024


@dataclass
class NormalEquations:
    """Sufficient statistics of ridge regression on features, in float64."""

    gram: np.ndarray
    cross: np.ndarray
    feature_sum: np.ndarray
    target_sum: np.ndarray
    weight_sum: float = 0.0

    @classmethod
    def empty(
        cls,
        n_components: int,
        n_targets: int,
        like: Rows = None,
    ) -> NormalEquations:
        """Return the equations of no rows, on the device of `like`."""
        zeros = ops_of(like).float64_zeros
        return cls(
            zeros((n_components, n_components), like),
            zeros((n_components, n_targets), like),
            zeros(n_components, like),
            zeros(n_targets, like),
        )

    @classmethod
    def of_features(cls, Z: Array, Y: Array) -> NormalEquations:
        """Return the equations of rows of features, (n, D), and targets, (n, k)."""
        out = cls.empty(Z.shape[1], Y.shape[1], Z)
        for rows in row_blocks(len(Z), block_rows(Z[:1].nbytes)):
            out.add_features(Z[rows], Y[rows])
        return out

    def add(
        self, plan: Plan, X: Rows, Y: np.ndarray, sample_weight: np.ndarray | None
    ) -> None:
        """Add rows; `Y` has shape (n, k)."""
        block = block_rows(plan.n_components * X.dtype.itemsize)
        buffer = ops_of(X).empty((min(block, X.shape[0]), plan.n_components), X)
        for rows in row_blocks(X.shape[0], block):
            Z = evaluate(plan, X[rows], out=buffer[: rows.stop - rows.start])
            weight = None if sample_weight is None else sample_weight[rows]
            self.add_features(Z, Y[rows], weight)

    def add_features(self, Z: Array, targets: Array, weight: Array = None) -> None:
        """Add rows of features, which are overwritten if they have weights."""
        ops = ops_of(Z)
        root = ops.float64_ones((len(targets), 1), Z)
        if weight is not None:
            root = (weight**0.5)[:, None]
            Z *= ops.asarray(root, Z)
        ops.add_gram(Z, self.gram)
        # The mean of the targets may be far larger than their deviations from it:
        # their products are computed in float64.
        right = ops.hstack([targets * root, root])
        products = ops.float64_zeros((Z.shape[1], right.shape[1]), Z)
        for part in row_blocks(len(right), CROSS_ROWS):
            products += ops.as_float64(Z[part]).T @ right[part]
        self.cross += products[:, :-1]
        self.feature_sum += products[:, -1]
        self.target_sum += (targets * root**2).sum(axis=0)
        self.weight_sum += float((root**2).sum())

    def leading(self, n_components: int) -> NormalEquations:
        """Return the equations of the first columns of features alone, as views."""
        return replace(
            self,
            gram=self.gram[:n_components, :n_components],
            cross=self.cross[:n_components],
            feature_sum=self.feature_sum[:n_components],
        )

    def absorb(self, other: NormalEquations) -> NormalEquations:
        """Add the sums over other rows."""
        for name in _SUMS:
            total = getattr(self, name)
            total += getattr(other, name)
        self.weight_sum += other.weight_sum
        return self

    __iadd__ = absorb

    def _mapped(self, function: Callable[[Any], Any]) -> NormalEquations:
        return replace(self, **{name: function(getattr(self, name)) for name in _SUMS})

    def copied(self) -> NormalEquations:
        """Return a deep copy."""
        return self._mapped(ops_of(self.gram).copy)

    def saved(self) -> Callable[[], None]:
        """Return a function that undoes later additions.

        Additions only change the upper triangle of an array: it is copied below the
        diagonal, which takes no memory. Tensors are copied as a whole.
        """
        gram = self.gram
        ops = ops_of(self.gram)
        diagonal = ops.copy(gram.diagonal())
        original = ops.copy(gram) if is_tensor(gram) else mirror_upper(gram).T
        before = self._mapped(lambda sums: sums if sums is gram else ops.copy(sums))

        def undo() -> None:
            vars(self).update(vars(before))
            for rows in row_blocks(len(gram), _COLUMNS):
                gram[rows, rows.start :] = ops.xp.triu(
                    original[rows, rows.start :], k=1
                )
            ops.algebra.add_to_diagonal(gram, diagonal)
            mirror_upper(gram)

        return undo

    def moved(self, shift: Sequence[float]) -> NormalEquations:
        """Return the equations for targets shifted by numbers (k,)."""
        by = ops_of(self.cross).float64_like(np.array(shift), self.cross)
        return replace(
            self,
            cross=self.cross + self.feature_sum[:, None] * by,
            target_sum=self.target_sum + self.weight_sum * by,
        )

    def centred(
        self, fit_intercept: bool, *, overwrite: bool
    ) -> tuple[Any, Any, Any, Any]:
        """Return both sides of the equations, (D, D) and (D, k), and z̄ and ȳ.

        Of the first only the upper triangle; with `overwrite` it is computed in place.
        """
        ops = ops_of(self.gram)
        gram = self.gram if overwrite else ops.copy(self.gram)
        cross = self.cross
        if not fit_intercept or self.weight_sum == 0:
            zeros = ops.float64_zeros(cross.shape[1], gram)
            return gram, cross, ops.float64_zeros(len(gram), gram), zeros
        mean = self.feature_sum / self.weight_sum
        for rows in row_blocks(len(gram), _COLUMNS):
            gram[rows] -= mean[rows, None] * self.feature_sum
        cross = cross - mean[:, None] * self.target_sum
        return gram, cross, mean, self.target_sum / self.weight_sum

    def solve(
        self, alpha: float, *, fit_intercept: bool, overwrite: bool
    ) -> SolvedEquations:
        """Return the weights and the intercepts for a penalty.

        With `overwrite` the statistics are overwritten by the factor, which otherwise
        takes as much memory again.
        """
        scale = float(self.gram.diagonal().mean())
        gram, cross, mean, target_mean = self.centred(
            fit_intercept, overwrite=overwrite
        )
        solver = Cholesky()
        state = solver.init(gram, alpha, scale)
        solution = solver.solve(state, cross)
        return SolvedEquations(
            solution,
            intercept=target_mean - mean @ solution.value,
            state=state,
            mean=mean,
            weight_sum=self.weight_sum if fit_intercept else np.inf,
        )


@dataclass(frozen=True)
class SolvedEquations:
    """The solution of normal equations, and what leave-one-out residuals take."""

    # The weights, (D, k), and the intercepts, (k,).
    solution: Solution
    intercept: Array
    # The factor of the centred equations, z̄, and Σw (infinite without an intercept).
    state: CholeskyState
    mean: Array
    weight_sum: float

    def left_out_residuals(self, plan: Plan, probed: ProbedRows) -> Array:
        """Return the leave-one-out residuals of rows of the fit, (m, k)."""
        columns_of = probed.columns(plan)
        right = probed.right_hand_side(plan, columns_of, self.mean)
        return probed.residuals_of_weights(
            plan,
            columns_of,
            self.solution.value,
            self.intercept,
            self.state.apply_inverse(right),
            self.mean,
            self.weight_sum,
        )


def normal_equations_of(rows: TrainingData, plan: Plan) -> NormalEquations:
    """Return the normal equations of rows, for ``rows.reduce``."""
    D, k = plan.n_components, rows.n_targets
    total = NormalEquations.empty(D, k, rows.like)
    for block in rows.blocks(ROWS_AT_ONCE):
        total.add(plan, block.X, block.Y, block.weight)
    return total


# The attributes that are sums over rows, except for the sum of the weights.
_SUMS = ("gram", "cross", "feature_sum", "target_sum")
