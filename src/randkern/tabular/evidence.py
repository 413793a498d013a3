"""What the search maximises: the evidence of a kernel, with its derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from randkern.backend.blas import short_on_one_thread
from randkern.kernels import Kernel, Laplacian, Sum
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.tabular.leave_one_out import (
    centred_inverse,
    least_penalty,
    leave_one_out,
    residuals_of,
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


def centred(table: Table) -> np.ndarray:
    """Return the targets of rows with weights of mean 1, less their mean."""
    return table.Y - table.weight @ table.Y / len(table)


# The smallest quadratic form per row: exactly predicted targets leave rounding errors.
_MIN_FORM = 1e-30


class Evidence:
    """Minus the logarithm of the evidence, per row and target, with its gradient.

    With C = (K + αW⁻¹)⁻¹ and u = C1, targets Y (n, k) that are independent Gaussian
    processes of unknown means and one unknown variance have the restricted likelihood

        −2/((n − 1)k) log p(Y)
            = log tr(YᵀPY) + (log det C⁻¹ + log 1ᵀu)/(n − 1) + constant,

    with P = C − uuᵀ/(1ᵀu), in which the variance is the most probable one (Patterson &
    Thompson 1971, "Recovery of inter-block information when block sizes are unequal",
    Biometrika 58; Rasmussen & Williams 2006, "Gaussian processes for machine learning",
    section 5.4). Its derivative is tr(dK M) with M = P/(n − 1) − PYYᵀP/tr(YᵀPY).
    Several tables are independent, with the same kernel, penalty and variance: traces
    and determinants are summed, and each has a mean of its own. The effects of groups
    are part of K.

    The last entry of θ is log α; the others are hyperparameters, first lengthscales,
    which the columns of a block share. A normal prior on these has the mean `origin`,
    if there is one; its precision grows with the number of tables, which differ.
    `allowed` is asked before every evaluation; only the first is computed in any case.
    `best` is the smallest value, and its θ.
    """

    def __init__(
        self,
        kernel: Kernel,
        tables: Sequence[Table],
        blocks: np.ndarray,
        allowed: Callable[[], bool] = lambda: True,
    ):
        self.hyper = Hyperparameters(kernel)
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
        solved, form, determinants = [], 0.0, 0.0
        for table in self.tables:
            gram = np.array(hyper.kernel._gram(table.X, None))
            table.folds.add_effect(gram)
            penalty = (alpha + least_penalty(gram.diagonal())) / table.weight
            try:
                P, determinant = centred_inverse(gram.copy(), penalty)
            except np.linalg.LinAlgError:
                return 1e3, np.zeros_like(theta)
            Y = centred(table)
            A, _ = residuals_of(gram, P, penalty, Y)
            form += float((A * Y).sum())
            determinants += determinant
            solved.append((P, A))
        n = sum(map(len, self.tables))
        m, form = max(n - len(self.tables), 1), max(form, _MIN_FORM * n)
        value, gradient = math.log(form / m) + determinants / m, np.zeros_like(theta)
        for table, (P, A) in zip(self.tables, solved, strict=True):
            M, slope = P / m - A @ (A.T / form), np.zeros(hyper.size)
            add_symmetric_gradient(hyper, table.X, M, slope)
            by_alpha = alpha * float((M.diagonal() / table.weight).sum())
            gradient += np.append(np.bincount(self.ties, slope), by_alpha)
        if self.origin is not None:
            n = sum(each.folds.n_independent for each in self.tables)
            precision = PRECISIONS[self.tables[0].labels is not None]
            precision *= len(self.tables) / n
            away = theta[:-1] - self.origin
            value += precision * float(away @ away)
            gradient[:-1] += 2 * precision * away
        if value < self.best[0]:
            self.best = (value, theta.copy())
        return value, gradient

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
