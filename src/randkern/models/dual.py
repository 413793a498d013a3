"""The dual system of ridge regression: one equation per row.

With the Gram matrix K of features or of a kernel, weights w_i and normalised weights
s = w/Σw (0 without an intercept),

(S(I − 1sᵀ)K(I − s1ᵀ)S + αI) A = S(Y − ȳ),  S = diag(√w_i),

and the prediction at x is Σ_i (SA)_i k(x, x_i), centred, + ȳ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._validation import Array, Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models.memory import GRAM_TILE
from randkern.plan import Plan, evaluate
from randkern.solvers import Cholesky, Solution


def feature_gram(plan: Plan, X: Rows) -> np.ndarray:
    """Return the upper triangle of Φ Φᵀ in float64, accumulated over columns."""
    ops = ops_of(X)
    gram = ops.float64_zeros((X.shape[0], X.shape[0]), X)
    for columns in plan.column_blocks(GRAM_TILE):
        Z = evaluate(plan, X, columns)
        ops.add_gram(Z.T, gram)
    return gram


def gram_of(kernel: Kernel, plan: Plan | None, X: Rows) -> np.ndarray:
    """Return the upper triangle of the Gram matrix of features, or the exact one."""
    return exact_gram(kernel, X) if plan is None else feature_gram(plan, X)


def exact_gram(kernel: Kernel, X: Rows) -> np.ndarray:
    """Return the upper triangle of the exact Gram matrix in float64."""
    n = X.shape[0]
    ops = ops_of(X)
    gram = ops.float64_zeros((n, n), X)
    for rows in row_blocks(n, GRAM_TILE):
        X_rows = ops.as_float64(X[rows])
        gram[rows, rows] = kernel._gram(X_rows, None)
        for columns in row_blocks(n, GRAM_TILE):
            if columns.start > rows.start:
                X_columns = ops.as_float64(X[columns])
                gram[rows, columns] = kernel._gram(X_rows, X_columns)
    return gram


@dataclass(frozen=True)
class DualSystem:
    """The matrix S(I − 1sᵀ)K(I − s1ᵀ)S, and the weights that its solutions give.

    With an intercept √s is a null vector of it, along which targets have no part. It
    gets the mean eigenvalue: the inverse of one near 0 would hide the leverages, which
    it does not change, in rounding errors.
    """

    # The upper triangle of the matrix, (n, n).
    gram: Array
    # √w_i and the normalised weights, (n,).
    root: Array
    share: Array
    # S(Y − ȳ), (n, k).
    right: Array
    # Kᵀs and ȳ, (n,) and (k,); zero without an intercept.
    means: Array
    target_mean: Any
    fit_intercept: bool
    # The eigenvalue of √s, 0 without an intercept.
    of_null_vector: float

    @classmethod
    def of(
        cls, gram: Array, Y: Array, weight: Array, *, fit_intercept: bool
    ) -> DualSystem:
        """Centre and weight a Gram matrix, which is **overwritten**."""
        n = len(gram)
        ops = ops_of(gram)
        relative = ops.float64_ones(n, gram) if weight is None else weight
        root = relative**0.5
        share = relative / max(float(relative.sum()), np.finfo(float).tiny)
        means = ops.float64_zeros(n, gram)
        target_mean = ops.float64_zeros(Y.shape[1], gram)
        if fit_intercept:
            target_mean = share @ Y
            means = _symmetric_product(gram, share)
            grand = float(share @ means)
            for rows in row_blocks(n, GRAM_TILE):
                gram[rows] -= means[rows, None] + means - grand
        if weight is not None:
            for rows in row_blocks(n, GRAM_TILE):
                gram[rows] *= root[rows, None] * root
        of_null_vector = 0.0
        if fit_intercept:
            # That of equal rows is 0, up to rounding.
            of_null_vector = max(float(gram.diagonal().mean()), 0.0) or 1.0
            null = (of_null_vector * share) ** 0.5
            for rows in row_blocks(n, GRAM_TILE):
                gram[rows] += null[rows, None] * null
        right = root[:, None] * (Y - target_mean)
        return cls(
            gram, root, share, right, means, target_mean, fit_intercept, of_null_vector
        )

    def inverse_of_null_vector(self, shift: Any) -> Any:
        """Return the eigenvalue of the shifted inverse at √s, 0 without an intercept.

        It has no leverage: s times this is no part of the diagonal that gives those.
        """
        if not self.fit_intercept:
            return 0.0 * shift
        return 1.0 / (self.of_null_vector + shift)

    def weights_of(self, solved: Array) -> tuple[Any, Any]:
        """Return the weights of rows, (n, k), and intercepts minus ȳ, (k,)."""
        dual = solved * self.root[:, None]
        if not self.fit_intercept:
            return dual, ops_of(dual).float64_zeros(dual.shape[1], dual)
        dual = dual - self.share[:, None] * dual.sum(axis=0)
        return dual, -(self.means @ dual)


def solve_dual(
    gram: np.ndarray,
    Y: np.ndarray,
    sample_weight: np.ndarray | None,
    alpha: float,
    *,
    fit_intercept: bool,
    left_out: np.ndarray,
) -> tuple[Solution, np.ndarray, Any]:
    """Return dual weights, (n, k), intercepts, (k,), and leave-one-out residuals.

    The prediction at x is Σ_i A_i k(x, x_i) + intercept. Only the upper triangle of the
    Gram matrix is read; it is **overwritten**.

    Residuals, (m, k), are those of the rows `left_out`, sorted numbers of rows of
    positive weight; the last rows take the least work.
    """
    scale = float(gram.diagonal().mean())
    if sample_weight is not None:
        scale *= float(sample_weight.max())
    system = DualSystem.of(gram, Y, sample_weight, fit_intercept=fit_intercept)
    solver = Cholesky(first_jitter=2.0**-26)
    state = solver.init(gram, alpha, scale)
    solution = solver.solve(state, system.right)
    diagonal = state.inverse_diagonal(left_out)
    of_null_vector = system.inverse_of_null_vector(alpha + state.jitter)
    diagonal = diagonal - system.share[left_out] * of_null_vector
    scaled = system.root[left_out] * diagonal.clip(min=np.finfo(float).tiny)
    with np.errstate(over="ignore"):  # infinite for a leverage that rounds to 1
        residuals = solution.value[left_out] / scaled[:, None]
    dual, intercept = system.weights_of(solution.value)
    return replace(solution, value=dual), intercept + system.target_mean, residuals


def fit_dual(
    rows: ArrayRows,
    kernel: Kernel,
    plan: Plan | None,
    alpha: float,
    *,
    fit_intercept: bool,
    left_out: np.ndarray,
) -> tuple[Solution, Array, Any]:
    """Fit to rows; returns as :func:`solve_dual`.

    Rows that are left out, in ascending order, are moved to the end, where leaving them
    out is nearly free.
    """
    n = rows.n_rows
    ops = ops_of(rows.Y)
    is_left_out = ops.float64_zeros(n, rows.Y)
    is_left_out[left_out] = 1.0
    order = ops.xp.argsort(is_left_out, stable=True)
    if len(left_out) < n:
        rows = rows.take(order)
    solution, intercept, residuals = solve_dual(
        gram_of(kernel, plan, rows.X),
        rows.Y,
        rows.weight,
        alpha,
        fit_intercept=fit_intercept,
        left_out=np.arange(n - len(left_out), n),
    )
    value = ops.take(solution.value, ops.xp.argsort(order))
    return replace(solution, value=value), intercept, residuals


def _symmetric_product(gram: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return Kv, given the upper triangle of K."""
    ops = ops_of(gram)
    out = ops.float64_zeros(len(gram), gram)
    for rows in row_blocks(len(gram), GRAM_TILE):
        tile = ops.xp.triu(gram[rows, rows])
        out[rows] += tile @ vector[rows] + ops.xp.triu(tile, k=1).T @ vector[rows]
        right = slice(rows.stop, len(gram))
        out[rows] += gram[rows, right] @ vector[right]
        out[right] += gram[rows, right].T @ vector[rows]
    return out
