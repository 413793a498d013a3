"""Residuals of ridge regression for rows that it leaves out, and their losses.

With C = (K + αW⁻¹)⁻¹, W the weights of rows, and u = C1, the inverse of ridge
regression with an intercept is P = C − uuᵀ/(1ᵀu). The leave-one-out residual of row i
is e_i = (PY)_i/P_ii (Rifkin & Lippert 2007); rows S that are left out together have
e_S = P_SS⁻¹ (PY)_S.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import log_softmax

from randkern.backend.blas import short_on_one_thread
from randkern.kernels import Kernel
from randkern.models.calibration import smoothed_share, temperature_of
from randkern.solvers import mirror_upper
from randkern.tabular.folds import Folds
from randkern.tabular.rows import Table

# The least penalty, relative to the mean of the Gram matrix's diagonal.
_MIN_PENALTY = 2.0**-34
_EPS = float(np.finfo(float).eps)


def thread_operations(rows: int) -> float:
    """Return what decides about threads: with up to 1,500 rows one is the fastest."""
    return rows**3 / 4


def centred_inverse(gram: np.ndarray, penalty: Any) -> tuple[np.ndarray, float]:
    """Return P, which overwrites `gram`, and log det C⁻¹ + log 1ᵀu.

    `penalty` is α, or a vector of α/w_i. Raises LinAlgError if K + αW⁻¹ is not positive
    definite.
    """
    gram.flat[:: len(gram) + 1] += penalty
    factor, failed = scipy.linalg.lapack.dpotrf(gram.T, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError(
            "the Gram matrix plus its penalty is not positive definite in floating "
            "point."
        )
    determinant = 2 * float(np.log(factor.diagonal()).sum())
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    P = mirror_upper(inverse.T)
    sums = P.sum(axis=1)
    total = float(sums.sum())
    P -= np.outer(sums, sums / total)
    return P, determinant + math.log(total)


def least_penalty(diagonal: np.ndarray) -> float:
    """Return what is added to every penalty, from the diagonal of the Gram matrix.

    It bounds the condition number of K + αW⁻¹ relative to the size of K, which a linear
    term of large weight makes much larger than one.
    """
    return _MIN_PENALTY * float(diagonal.mean())


def residuals_of(
    gram: np.ndarray, P: np.ndarray, penalty: Any, Y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return dual weights, (n, k), and leave-one-out residuals with their rounding.

    The weights PY are refined once by the residual that they leave. A fit is evaluated
    no more accurately than eps·Σ_j |K_ij a_j|, which weights that nearly cancel make
    large: residuals are enlarged by it, so that rounding errors never look like
    accurate predictions.
    """
    penalty = np.broadcast_to(penalty, len(Y))[:, None]
    A = P @ Y
    left = Y - gram @ A - penalty * A
    A += P @ (left - left.mean(axis=0))
    size = np.sqrt(gram.diagonal())[:, None]
    rounding = _EPS * (size * (size * abs(A)).sum(axis=0) + penalty * abs(A))
    E = A / P.diagonal()[:, None]
    return A, np.copysign(np.hypot(E, rounding), E)


def left_out(
    gram: np.ndarray, penalty: np.ndarray, Y: np.ndarray, folds: Folds
) -> np.ndarray:
    """Return the residuals of folds left out of a fit, of rows that are predicted.

    Raises LinAlgError if K + αW⁻¹ is not positive definite.
    """
    if folds.is_forward:
        return _residuals_of_periods(gram, penalty, Y, folds)
    P, _ = centred_inverse(gram.copy(), penalty)
    dual, E = residuals_of(gram, P, penalty, Y)
    if not folds.are_rows:
        for _, S in folds.splits():
            E[S] = scipy.linalg.solve(P[np.ix_(S, S)], dual[S], assume_a="pos")
    return E


def _residuals_of_periods(
    gram: np.ndarray, penalty: np.ndarray, Y: np.ndarray, folds: Folds
) -> np.ndarray:
    """Return the residuals of periods of time predicted from the rows before them."""
    E = np.empty_like(Y)
    for known, out in folds.splits():
        matrix = gram[np.ix_(known, known)] + np.diag(penalty[known])
        both = np.column_stack([np.ones(len(known)), Y[known]])
        both = scipy.linalg.solve(matrix, both, assume_a="pos")
        intercept = both[:, 1:].sum(axis=0) / both[:, 0].sum()
        dual = both[:, 1:] - both[:, :1] * intercept
        E[out] = Y[out] - gram[np.ix_(out, known)] @ dual - intercept
    return E[folds.predicted]


@short_on_one_thread(lambda kernel, alpha, table: thread_operations(len(table)))
def leave_one_out(kernel: Kernel, alpha: float, table: Table) -> np.ndarray | None:
    """Return the residuals of encoded rows left out, (m, k).

    They are those of all rows, but for the first period of time. None if the Gram
    matrix with the penalty is not positive definite in floating point.
    """
    gram = np.array(kernel._gram(table.X, None))
    table.folds.add_effect(gram)
    penalty = (alpha + least_penalty(gram.diagonal())) / table.weight
    # A large mean would cost accuracy.
    Y = table.Y - np.average(table.Y, axis=0, weights=table.weight)
    try:
        return left_out(gram, penalty, Y, table.folds)
    except np.linalg.LinAlgError:
        return None


# Of predictions (n, k), targets and weights.
Loss = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def log_squares(F: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> float:
    """Return the logarithm of the mean squared error."""
    total = float((weight @ (Y - F) ** 2).sum())
    return math.log(max(total / len(Y), 1e-30))


def log_loss(F: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> float:
    """Return twice the mean log loss of calibrated decisions.

    Decisions F are divided by the temperature with the smallest log loss; codes Y are
    ±1, with one column for two classes. Labels are those of `temperature_of`.
    """
    if Y.shape[1] == 1:
        F, Y = np.hstack([-F, F]) / 2, np.hstack([-Y, Y])
    temperature = temperature_of(F, Y > 0, weight)
    spread = smoothed_share(len(Y), weight)
    labels = (1 - spread) * (Y > 0) + spread / Y.shape[1]
    P = log_softmax(F / temperature, axis=1)
    return -2 * float(weight @ (labels * P).sum(axis=1)) / len(Y)
