"""Predictions for blocks of rows, from the weights of features or of rows."""

from __future__ import annotations

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.kernels import Kernel
from randkern.models.memory import feature_block_rows, float64_block_rows
from randkern.plan import Plan, evaluate

# The exact kernel is factorised up to here: n³/3 operations against some n²·50·k.
MOST_EXACT_ROWS = 20_000


def predict_by_features(plan: Plan, weights: np.ndarray, X: Rows) -> np.ndarray:
    """Return φ(x)·W for weights of shape (D,) or (D, k), in float64."""
    # Products are taken in the dtype of X; weights of any size fit in it once they
    # are divided by the largest.
    ops = ops_of(X)
    weights, plan = plan.solve(weights, transposed=True), plan.raw
    size = ops_of(weights).largest(abs(weights)) or 1.0
    coef = ops.asarray(weights / size, X)
    out = ops.zeros((X.shape[0], *weights.shape[1:]), X)
    for rows in row_blocks(X.shape[0], feature_block_rows(plan, X.dtype.itemsize)):
        with np.errstate(over="ignore", invalid="ignore"):
            out[rows] = evaluate(plan, X[rows]) @ coef
    return out * size


def predict_by_rows(
    kernel: Kernel, X_fit: Rows, weights: np.ndarray, X: Rows
) -> np.ndarray:
    """Return k(X, X_fit)·A for weights of shape (n_fit,) or (n_fit, k), in float64."""
    n_fit = X_fit.shape[0]
    # A kernel that was too large for float64 is not worth it here either.
    ops = ops_of(X)
    precise = X.dtype.itemsize == 8 or n_fit <= MOST_EXACT_ROWS
    out = ops.zeros((X.shape[0], *weights.shape[1:]), X)
    for rows in row_blocks(X.shape[0], float64_block_rows(n_fit, at_least=64)):
        part = ops.as_float64(X[rows]) if precise else X[rows]
        gram = kernel._gram(part, X_fit, precise=precise)
        out[rows] = ops.as_float64(gram) @ weights
    return out
