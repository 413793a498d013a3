"""What the search minimises: evidence, or errors of rows left out, with derivatives.

With P, A = PY and e of :mod:`.leave_one_out`, and a loss L of the predictions y_i − e_i
with derivatives g_i in them,

    dL = tr(dK M),  M = ½ (UAᵀ + AUᵀ) − P diag(g_i·e_i/P_ii) P,  U = P (g/diag P),

so all derivatives, in the penalty and in one lengthscale per column, cost one more
product of n × n matrices. For rows S that are left out together,

    M = ½ (UAᵀ + AUᵀ) − P B P,  B_SS = ½ (e_S h_Sᵀ + h_S e_Sᵀ),
    h_S = P_SS⁻¹ g_S,  U = P h.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from randkern.backend.blas import short_on_one_thread
from randkern.kernels import Kernel, Laplacian, Sum
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.models.calibration import smoothed_share, temperature_of
from randkern.tabular.leave_one_out import (
    centred_inverse,
    least_penalty,
    leave_one_out,
    residuals_of,
    solved_in_folds,
    thread_operations,
)
from randkern.tabular.presets import PRECISIONS
from randkern.tabular.rows import Table

# Bounds of learned numbers.
LENGTHSCALES = (1e-3, 1e5)
PENALTIES = (1e-9, 1e3)
# A descent ends when a step lowers the logarithm of the error by less.
_MIN_DESCENT = 3e-5
# Rows whose distances in a column are computed at a time.
_BLOCK_ROWS = 64


# Of predictions (n, k), targets and weights: a number, and its gradient in the first.
Loss = Callable[[Any, Any, Any], tuple[float, np.ndarray]]


def is_noisy(loss: Loss) -> bool:
    """Return whether single targets carry little information, like labels.

    Learned numbers then have a narrower prior.
    """
    return loss is log_loss


class OutOfTimeError(Exception):
    """Ends a descent that runs out of time."""


def add_symmetric_gradient(
    hyper: Hyperparameters, X: np.ndarray, M: np.ndarray, out: np.ndarray
) -> None:
    """Add Σ_ij M_ij ∂k(x_i, x_j)/∂θ to `out`, for a symmetric M.

    For L1 distances symmetry makes this faster. M only gives a direction, for which
    single precision suffices.
    """
    kernel = hyper.kernel
    for part in (kernel.k1, kernel.k2) if isinstance(kernel, Sum) else (kernel,):
        if isinstance(part, Laplacian):
            slope = _manhattan_slopes(X / part.lengthscale, M * part._gram(X, None))
            hyper.add_slopes([(part, "lengthscale", slope)], out)
        else:
            hyper.add_slopes(part._slopes(X, X, M), out)


def _manhattan_slopes(X: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return Σ_ij M_ij |x_ik − x_jk| for every column k and a symmetric M."""
    out, low, gap = np.zeros(X.shape[1]), X.min(axis=0), np.ptp(X, axis=0)
    # In columns with two values, |x − y| is proportional to (x − y)².
    two = ((low == X) | (low + gap == X)).all(axis=0)
    B = (X[:, two] > low[two]).astype(np.float32)
    M = M.astype(np.float32)
    out[two] = 2 * gap[two] * (M.sum(axis=0) @ B - (B * (M @ B)).sum(axis=0))
    columns, others = np.ascontiguousarray(X.T, dtype=np.float32), np.flatnonzero(~two)
    for start in range(0, len(X), _BLOCK_ROWS):
        block = M[start : start + _BLOCK_ROWS, start:].copy()
        block[:, len(block) :] *= 2
        distances = np.empty_like(block)
        for k in others:
            x = columns[k, start:]
            np.subtract(x[: len(block), None], x, out=distances)
            np.abs(distances, out=distances)
            out[k] += np.vdot(distances, block)
    return out


def log_squares(
    F: np.ndarray, Y: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the logarithm of the mean squared error, and its gradient in F."""
    E = Y - F
    total = max(float((weight @ E**2).sum()), 1e-30 * len(Y))
    return math.log(total / len(Y)), (-2 / total) * weight[:, None] * E


def log_loss(
    F: np.ndarray, Y: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return twice the mean log loss of calibrated decisions, and its gradient in F.

    Decisions F are divided by the temperature with the smallest log loss, in which the
    gradient vanishes; codes Y are ±1, with one column for two classes. Labels are those
    of `temperature_of`.
    """
    is_binary = Y.shape[1] == 1
    if is_binary:
        F, Y = np.hstack([-F, F]) / 2, np.hstack([-Y, Y])
    temperature = temperature_of(F, Y > 0, weight)
    spread = smoothed_share(len(Y), weight)
    labels = (1 - spread) * (Y > 0) + spread / Y.shape[1]
    P = log_softmax(F / temperature, axis=1)
    value = -2 * float(weight @ (labels * P).sum(axis=1)) / len(Y)
    slopes = (2 / (len(Y) * temperature)) * weight[:, None] * (np.exp(P) - labels)
    return value, (slopes[:, 1:] - slopes[:, :1]) / 2 if is_binary else slopes


def centred(table: Table) -> np.ndarray:
    """Return the targets of rows with weights of mean 1, less their mean."""
    return table.Y - table.weight @ table.Y / len(table)


class Solved(NamedTuple):
    """P, A = PY, leave-one-out residuals and log det C⁻¹ + log 1ᵀu of a table."""

    table: Table
    P: np.ndarray
    A: np.ndarray
    E: np.ndarray
    determinants: float


class Objective(ABC):
    """A smooth function of a kernel's hyperparameters and penalty, with its gradient.

    Tables of encoded rows, most often a single one, have it in common. The last entry
    of θ is log α; the others are hyperparameters, first lengthscales, which the columns
    of a block share. A normal prior on these has the mean `origin`, if there is one.
    `allowed` is asked before every evaluation; only the first is computed in any case.
    `best` is the smallest value, and its θ.
    """

    def __init__(
        self,
        kernel: Kernel,
        tables: Sequence[Table],
        blocks: np.ndarray,
        loss: Loss,
        allowed: Callable[[], bool] = lambda: True,
    ):
        self.hyper, self.loss = Hyperparameters(kernel), loss
        others = np.arange(self.hyper.size - len(blocks))
        self.ties = np.append(blocks, blocks.max(initial=-1) + 1 + others)
        self.tables = [table.normalised() for table in tables]
        self.allowed = allowed
        self.origin: Any = None
        self.best: tuple[float, Any] = (math.inf, None)

    def start(self, alpha: float) -> np.ndarray:
        """Return θ of the kernel and a penalty."""
        sums = np.bincount(self.ties, self.hyper.theta)
        return np.append(sums / np.bincount(self.ties), math.log(alpha))

    def kernel(self, theta: np.ndarray) -> Kernel:
        return self._at(theta).kernel

    def _at(self, theta: np.ndarray) -> Hyperparameters:
        return self.hyper.at(theta[self.ties])

    def alpha(self, theta: np.ndarray) -> float:
        """Return the penalty, which includes the least one."""
        diagonal = self.kernel(theta)._diag(self.tables[0].X)
        return math.exp(theta[-1]) + least_penalty(diagonal)

    def error(self, theta: np.ndarray) -> float:
        """Return the error of rows left out, relative to that of the mean."""
        kernel, table = self.kernel(theta), self.tables[0]
        E = leave_one_out(kernel, math.exp(theta[-1]), table)
        if E is None:
            return math.inf
        out = table.folds.predicted
        weight = table.weight[out]
        variance = float((weight @ centred(table)[out] ** 2).sum())
        return math.sqrt(float((weight @ E**2).sum()) / (variance or len(E)))

    @short_on_one_thread(lambda self, theta: thread_operations(len(self.tables[0])))
    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        if not self.allowed() and self.best[1] is not None:
            raise OutOfTimeError
        hyper, alpha = self._at(theta), math.exp(theta[-1])
        solved: list[Solved] = []
        for table in self.tables:
            gram = np.array(hyper.kernel._gram(table.X, None))
            table.folds.add_effect(gram)
            penalty = (alpha + least_penalty(gram.diagonal())) / table.weight
            try:
                P, determinants = centred_inverse(gram.copy(), penalty)
            except np.linalg.LinAlgError:
                return 1e3, np.zeros_like(theta)
            A, E = residuals_of(gram, P, penalty, centred(table))
            solved.append(Solved(table, P, A, E, determinants))
        value, matrices = self._criterion(solved)
        gradient = np.zeros_like(theta)
        for table, M in zip(self.tables, matrices, strict=True):
            slope = np.zeros(hyper.size)
            add_symmetric_gradient(hyper, table.X, M, slope)
            by_alpha = alpha * float((M.diagonal() / table.weight).sum())
            gradient += np.append(np.bincount(self.ties, slope), by_alpha)
        if self.origin is not None:
            n = sum(each.folds.n_independent for each in self.tables)
            precision = PRECISIONS[is_noisy(self.loss)] / n
            away = theta[:-1] - self.origin
            value += precision * float(away @ away)
            gradient[:-1] += 2 * precision * away
        if value < self.best[0]:
            self.best = (value, theta.copy())
        return value, gradient

    @abstractmethod
    def _criterion(self, solved: list[Solved]) -> tuple[float, list[np.ndarray]]:
        """Return what is minimised, and M of its derivative for each table."""

    def descend(self, alpha: float, steps: int) -> None:
        """Minimise by L-BFGS from the start, which is the mean of the prior."""
        theta, (low, high) = self.start(alpha), np.log(LENGTHSCALES)
        bounds = [(low, high)] * (len(theta) - 1) + [tuple(np.log(PENALTIES))]
        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": _MIN_DESCENT}
        theta = np.clip(theta, *np.array(bounds).T)
        self.origin = theta[:-1].copy()
        descend = partial(
            minimize, self, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        with suppress(OutOfTimeError):
            descend(theta)
            # If the matrix is not positive definite, increase the penalty.
            while self.best[1] is None and theta[-1] < bounds[-1][1]:
                theta[-1] = min(theta[-1] + math.log(10.0), bounds[-1][1])
                descend(theta)


class LeaveOneOut(Objective):
    """The loss of rows of one table left out, one at a time or in whole groups."""

    def _criterion(self, solved: list[Solved]) -> tuple[float, list[np.ndarray]]:
        ((table, P, A, E, _),) = solved
        folds, are_rows = table.folds, table.folds.are_rows
        if not are_rows:
            E = solved_in_folds(P, A, folds)
        value, slopes = self.loss(table.Y - E, table.Y, table.weight)
        # M only gives a direction: float32 suffices, in half the time.
        if not are_rows:
            H, product = solved_in_folds(P, slopes, folds), P.astype(np.float32)
            for _, S in folds.splits():
                B = E[S] @ H[S].T
                product[:, S] = P[:, S] @ (B + B.T) / -2
            M, U = (product @ P.astype(np.float32)).astype(np.float64), P @ H
        else:
            slopes = slopes / P.diagonal()[:, None]
            curved, U = -(slopes * E).sum(axis=1), P @ slopes
            half = (P * np.sqrt(abs(curved))).astype(np.float32)
            M = (half @ half.T).astype(np.float64)
            if (curved < 0).any():
                half = half[:, curved < 0]
                M -= 2 * (half @ half.T)
        M += 0.5 * (U @ A.T)
        M += 0.5 * (A @ U.T)
        return value, [M]


# The smallest quadratic form per row: exactly predicted targets leave rounding errors.
_MIN_FORM = 1e-30


class Evidence(Objective):
    """Minus the logarithm of the evidence, per row and target, with its gradient.

    With C = (K + αW⁻¹)⁻¹ and u = C1, targets Y (n, k) that are independent Gaussian
    processes of unknown means and one unknown variance have the restricted likelihood

        −2/((n − 1)k) log p(Y)
            = log tr(YᵀPY) + (log det C⁻¹ + log 1ᵀu)/(n − 1) + constant,

    with P = C − uuᵀ/(1ᵀu), in which the variance is the most probable one (Patterson &
    Thompson 1971, "Recovery of inter-block information when block sizes are unequal",
    Biometrika 58; Rasmussen & Williams 2006, "Gaussian processes for machine learning",
    section 5.4). Its derivative is tr(dK M) with M = P/(n − 1) − PYYᵀP/tr(YᵀPY).

    Lengthscales that minimise the leave-one-out error of few rows overfit them more.
    That of groups, each left out, is worse: six groups are six values, whose effects
    are here part of K.
    """

    def _criterion(self, solved: list[Solved]) -> tuple[float, list[np.ndarray]]:
        n = sum(len(part.table) for part in solved)
        m = max(n - len(solved), 1)
        forms = sum(float((part.A * centred(part.table)).sum()) for part in solved)
        form = max(forms, _MIN_FORM * n)
        determinants = sum(part.determinants for part in solved)
        matrices = [part.P / m - part.A @ (part.A.T / form) for part in solved]
        return math.log(form / m) + determinants / m, matrices
