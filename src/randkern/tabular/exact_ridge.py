"""Least squares with an exact kernel, evaluated by rows that it leaves out."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin

from randkern._fitting import is_late
from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.models.dual import exact_gram, solve_dual
from randkern.tabular.folds import predicted_rows
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.presets import LATE_ROWS, MAX_LEFT_OUT, VALIDATION_ROWS
from randkern.tabular.rows import Table

# Products with the kernel are computed in blocks of so many bytes.
_BLOCK_BYTES = 64 * 10**6

# The solution of a linear system must leave at most this share of the targets: 2⁻²⁶
# of the matrix may have been added to it, and so of well predicted targets.
_LARGEST_RESIDUAL = 1e-6


class ExactRidge(RegressorMixin, TakesKernel):
    """Least squares with the exact kernel, Σ_i a_i k(x, x_i) + c.

    `residuals`, (m, k), are those of the rows `evaluated`, by fits without each of
    them, or without its fold.
    """

    X: np.ndarray
    dual: np.ndarray
    intercept: np.ndarray
    evaluated: np.ndarray
    residuals: np.ndarray

    def __init__(self, kernel: Kernel | None = None, alpha: float = 1.0):
        self.kernel = kernel
        self.alpha = alpha

    def fit(
        self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> ExactRidge:
        """Fit the rows; once it is late, few of them."""
        rows = np.arange(0, len(X), -(-len(X) // LATE_ROWS) if is_late() else 1)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        table = Table(X[rows], y.reshape(len(X), -1)[rows], weight[rows])
        self.solve(table, np.arange(0))
        return self

    def solve(self, encoded: Table, evaluated: np.ndarray) -> float:
        """Fit encoded rows, and leave out some; return the residual of the system."""
        gram = exact_gram(self._kernel_or_default, encoded.X)
        if encoded.folds is not None:
            encoded.folds.add_effect(gram)
        # A large mean would cost accuracy.
        mean = np.average(encoded.Y, axis=0, weights=encoded.weight)
        solution, intercept, self.residuals = solve_dual(
            gram,
            encoded.Y - mean,
            encoded.weight,
            self.alpha,
            fit_intercept=True,
            left_out=evaluated,
        )
        self.X, self.dual = encoded.X, solution.value
        self.intercept, self.evaluated = intercept + mean, evaluated
        return float(solution.residual)

    def predict(self, X: np.ndarray) -> np.ndarray:
        X, kernel = X.astype(np.float64, copy=False), self._kernel_or_default
        out = np.empty((len(X), self.dual.shape[1]))
        for rows in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(self.X))):
            out[rows] = kernel._gram(X[rows], self.X) @ self.dual
        out += self.intercept
        return out[:, 0] if out.shape[1] == 1 else out


def fit_ridge(
    kernel: Kernel, alpha: float, encoded: Table, order: np.ndarray
) -> ExactRidge:
    """Fit the exact kernel to encoded rows, and evaluate it on the last in `order`.

    Weights have mean 1. The penalty is increased until the linear system is solved: the
    Gram matrix may be singular to working precision.
    """
    encoded = encoded.take(order)
    with ignoring(IllConditionedWarning):
        while (fit := _solved(kernel, alpha, encoded)) is None:
            alpha *= 10.0
    return fit


def _solved(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge | None:
    """Fit, and leave out the last rows, one at a time or in folds.

    None if the penalty is too small for an accurate solution.
    """
    fit, n, folds = ExactRidge(kernel, alpha), len(encoded), encoded.folds
    last = np.arange(
        max(n - (VALIDATION_ROWS if folds is None else MAX_LEFT_OUT), 0), n
    )
    try:
        residual = fit.solve(encoded, last if folds is None else last[:0])
    except np.linalg.LinAlgError:
        return None
    if not residual <= _LARGEST_RESIDUAL:
        return None
    if folds is not None:
        tail = encoded.take(last)
        Y = tail.Y - np.average(tail.Y, axis=0, weights=tail.weight)
        residuals = leave_one_out(kernel, alpha, tail.X, Y, tail.weight, tail.folds)
        if residuals is None:
            return None
        fit.evaluated = last[predicted_rows(tail.folds, len(tail))]
        fit.residuals = residuals
    return fit
