"""Least squares with an exact kernel, evaluated by rows that it leaves out."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from sklearn.base import RegressorMixin

from randkern._fitting import is_late
from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.models.dual import exact_gram, solve_dual
from randkern.tabular.folds import Folds
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.presets import LATE_ROWS, VALIDATION_ROWS
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
        Y, folds = y.reshape(len(X), -1)[rows], Folds.of_rows(len(rows))
        table = Table(X[rows], Y, weight[rows], folds)
        self.solve(table, np.arange(0))
        return self

    def solve(self, encoded: Table, evaluated: np.ndarray) -> float:
        """Fit encoded rows, and leave out some; return the residual of the system."""
        gram = exact_gram(self._kernel_or_default, encoded.X)
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
    n, are_rows = len(encoded), encoded.folds.are_rows
    last = np.arange(max(n - VALIDATION_ROWS, 0), n)
    with ignoring(IllConditionedWarning):
        while True:
            fit = ExactRidge(kernel, alpha)
            with suppress(np.linalg.LinAlgError):
                residual = fit.solve(encoded, last if are_rows else last[:0])
                if residual <= _LARGEST_RESIDUAL:
                    break
            alpha *= 10.0
    if not are_rows:
        tail = encoded.take(last)
        residuals = leave_one_out(kernel, alpha, tail)
        assert residuals is not None  # the matrix is part of one that was factorised
        fit.evaluated, fit.residuals = last[tail.folds.predicted], residuals
    return fit
