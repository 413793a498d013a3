"""The posterior of a Gaussian process: what is known of f after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.kernels import Kernel
from randkern.models._feature_model import check_same_device
from randkern.models.memory import block_rows
from randkern.plan import Plan, evaluate


class Mode(NamedTuple):
    """The normal posterior of weights w of features or of kernel values.

    Its factor of a function f is L, with LLᵀ the precision of w on features, and
    LLᵀ = I + SKS for kernel values, S being the diagonal matrix of the square roots of
    the curvatures of the log likelihood: 1/σ² if it is normal.
    """

    # The means of w, (D, k), one column for each f.
    mean: np.ndarray
    # L, (D, D), and for kernel values the diagonals of S, (D,): one for each f, or one
    # for all of them.
    factors: Sequence[np.ndarray]
    roots: Sequence[np.ndarray] | None
    # The log marginal likelihood, or an approximation.
    evidence: float


@dataclass(frozen=True)
class Posterior:
    """A normal posterior of functions f(x) = z(x)·w.

    z(x) are the D features of a plan, or the exact kernel values with D rows `X` of the
    fit. With the notation of :class:`Mode`,

        Var f(x) = ‖L⁻¹z(x)‖² on features, k(x, x) − ‖L⁻¹Sz(x)‖² for kernel values.
    """

    kernel: Kernel
    plan: Plan | None
    X: Rows | None
    mean: np.ndarray
    factors: Sequence[np.ndarray]
    roots: Sequence[np.ndarray] | None
    evidence: float

    @property
    def _has_landmarks(self) -> bool:
        return self.plan is not None and self.plan.triangle is not None

    def values(self, X: Rows) -> np.ndarray:
        """Return z(x) of float64 rows."""
        if self.plan is None:
            return self.kernel._gram(X, self.X)
        return evaluate(self.plan, X)

    def half(self, Z: np.ndarray, number: int = 0) -> np.ndarray:
        """Return L⁻¹z(x), or L⁻¹Sz(x), of the rows of Z, in columns."""
        rows = Z if self.roots is None else Z * self.roots[number]
        return ops_of(Z).algebra.triangular_solve(self.factors[number], rows.T)

    def moments_of(self, X: Rows, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means (n, k) and variances (n, m) at rows with z(x) in the rows of Z.

        `m` is the number of factors. Landmarks omit the variance k(x, x) − ‖z(x)‖².
        """
        ops = ops_of(Z)
        halves = [self.half(Z, number) for number in range(len(self.factors))]
        squares = [ops.algebra.column_products(half, half) for half in halves]
        variances = ops.hstack([square[:, None] for square in squares])
        if self.plan is None:
            variances = self.kernel._diag(X)[:, None] - variances
        elif self._has_landmarks:
            omitted = self.kernel._diag(X) - ops.float64_squared_norms(Z)
            variances = variances + omitted.clip(0.0)[:, None]
        return Z @ self.mean, variances

    def moments(self, X: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return means (n, k) and variances (n, m) of f at rows."""
        check_same_device(X, self.mean)
        ops = ops_of(X)
        n = X.shape[0]
        means = ops.float64_zeros((n, self.mean.shape[1]), X)
        variances = ops.float64_zeros((n, len(self.factors)), X)
        for rows in row_blocks(n, block_rows(8 * len(self.mean), at_least=16)):
            part = ops.as_float64(X[rows])
            means[rows], variances[rows] = self.moments_of(part, self.values(part))
        if not (ops.is_finite(means) and ops.is_finite(variances)):
            raise ValueError(
                "predictions overflow: rows of X are too far from those of the fit "
                "for this kernel; scale the input down."
            )
        return means, variances

    def covariance(self, X: Rows) -> np.ndarray:
        """Return the covariance of the first f at all rows."""
        check_same_device(X, self.mean)
        X = ops_of(X).as_float64(X)
        Z = self.values(X)
        half = self.half(Z)
        if self.plan is None:
            return self.kernel._gram(X, None) - half.T @ half
        if self._has_landmarks:
            return half.T @ half + self.kernel._gram(X, None) - Z @ Z.T
        return half.T @ half
