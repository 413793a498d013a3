"""Least squares with an exact kernel, evaluated by rows that it leaves out."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.models.dual import exact_gram, solve_dual
from randkern.solvers import Solution
from randkern.tabular.folds import predicted_rows
from randkern.tabular.leave_one_out import Loss, leave_one_out, log_squares
from randkern.tabular.presets import (
    MAX_LEFT_OUT,
    MIN_GAIN,
    SHORTER,
    SMALLER,
    VALIDATION_ROWS,
    Deadline,
)
from randkern.tabular.rows import Table

# Products with the kernel are computed in blocks of so many bytes.
_BLOCK_BYTES = 64 * 10**6

# The solution of a linear system must leave at most this share of the targets: 2⁻²⁶
# of the matrix may have been added to it, and so of well predicted targets.
_LARGEST_RESIDUAL = 1e-6


@dataclass
class ExactRidge:
    """Σ_i a_i k(x, x_i) + c, with leave-one-out residuals.

    `residuals`, (m, k), belong to the rows `evaluated`.
    """

    kernel: Kernel
    alpha: float
    X: np.ndarray
    dual: np.ndarray
    intercept: np.ndarray
    evaluated: np.ndarray
    residuals: np.ndarray

    def predict(self, X: np.ndarray) -> np.ndarray:
        out = np.empty((len(X), self.dual.shape[1]))
        for rows in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(self.X))):
            out[rows] = self.kernel._gram(X[rows], self.X) @ self.dual
        return out + self.intercept


def fit_ridge(
    kernel: Kernel, alpha: float, encoded: Table, order: np.ndarray
) -> ExactRidge:
    """Fit the exact kernel to encoded rows, and evaluate it on the last in `order`.

    Weights have mean 1. The penalty is increased until the linear system is solved: the
    Gram matrix may be singular to working precision.
    """
    encoded = encoded.take(order)
    fit = fit_tail if encoded.folds is None else _fit_and_leave_out
    mean = np.average(encoded.Y, axis=0, weights=encoded.weight)
    # A large mean would cost accuracy.
    centred = replace(encoded, Y=encoded.Y - mean)
    with ignoring(IllConditionedWarning):
        while True:
            try:
                fitted = fit(kernel, alpha, centred)
            except np.linalg.LinAlgError:
                alpha *= 10.0
                continue
            fitted.intercept = fitted.intercept + mean
            return fitted


def _check_solved(solution: Solution) -> None:
    """Raise if a measured residual is too large."""
    if not solution.residual <= _LARGEST_RESIDUAL:
        raise np.linalg.LinAlgError(f"the residual is {solution.residual:.2g}.")


def _gram_of(kernel: Kernel, encoded: Table) -> np.ndarray:
    """Return the upper triangle of the Gram matrix, with the effects of groups."""
    gram = exact_gram(kernel, encoded.X)
    if encoded.folds is not None:
        encoded.folds.add_effect(gram)
    return gram


def fit_tail(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge:
    """Fit, and leave out the last rows one at a time."""
    n = len(encoded)
    evaluated = np.arange(max(n - VALIDATION_ROWS, 0), n)
    solution, intercept, residuals = solve_dual(
        _gram_of(kernel, encoded),
        encoded.Y,
        encoded.weight,
        alpha,
        fit_intercept=True,
        left_out=evaluated,
    )
    _check_solved(solution)
    return ExactRidge(
        kernel, alpha, encoded.X, solution.value, intercept, evaluated, residuals
    )


def _fit_and_leave_out(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge:
    """Fit, and leave out folds of the last rows, at most 6,000."""
    fit, n = fit_tail(kernel, alpha, encoded), len(encoded)
    last = np.arange(max(n - MAX_LEFT_OUT, 0), n)
    tail = encoded.take(last)
    residuals = leave_one_out(kernel, alpha, tail.X, tail.Y, tail.weight, tail.folds)
    if residuals is None:
        raise np.linalg.LinAlgError("the Gram matrix plus its penalty is not positive.")
    evaluated = last[predicted_rows(tail.folds, len(tail))]
    return replace(fit, evaluated=evaluated, residuals=residuals)


def adapted(
    kernel: Kernel,
    alpha: float,
    encoded: Table,
    deadline: Deadline,
    loss: Loss = log_squares,
) -> tuple[Kernel, float]:
    """Return a kernel and its penalty for more rows than it was learned from.

    More rows resolve more detail: all lengthscales are multiplied by one factor and the
    penalty by another, as long as the leave-one-out loss of the last rows decreases and
    there is time.
    """

    def error(at: tuple[int, int]) -> float:
        fit = fit_tail(*_stepped(kernel, alpha, at), encoded)
        if not np.isfinite(fit.residuals).all():
            return math.inf
        targets = encoded.Y[fit.evaluated]
        weight = encoded.weight[fit.evaluated]
        return loss(targets - fit.residuals, targets, weight)[0]

    best, done = (0, 0), set()
    with suppress(np.linalg.LinAlgError), ignoring(IllConditionedWarning):
        # An error: the penalty is too small for these rows.
        least = error(best)
        tried = {best}
        while best not in done:
            done.add(best)
            for step in ((1, 0), (0, 1), (-1, 0), (0, -1)):
                at = (best[0] + step[0], best[1] + step[1])
                if at in tried or deadline.ends("the last fit"):
                    continue
                tried.add(at)
                candidate = error(at)
                if candidate < least - MIN_GAIN:
                    best, least = at, candidate
    return _stepped(kernel, alpha, best)


def _stepped(kernel: Kernel, alpha: float, at: tuple[int, int]) -> tuple[Kernel, float]:
    """Return a kernel with shorter lengthscales, and a smaller penalty."""
    shorter = clone(kernel)
    for leaf in shorter.leaves():
        if "lengthscale" in leaf.get_params():
            leaf.set_params(lengthscale=leaf.lengthscale * SHORTER ** at[0])
    return shorter, alpha * SMALLER ** at[1]
