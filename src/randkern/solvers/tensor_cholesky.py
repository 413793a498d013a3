"""Direct solution of symmetric positive definite systems where tensors lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._tensors import is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.solvers._solution import Outcome, Solution
from randkern.solvers.cholesky import (
    LARGE_RESIDUAL,
    LOST,
    REFINEMENTS,
    Cholesky,
    warned,
)

__all__ = ["TensorCholesky", "TensorCholeskyState", "cholesky_bytes", "cholesky_for"]

_TILE = 1024
# Rows whose absolute values are summed up at a time.
_SUMMED_BYTES = 2**24


def cholesky_for(matrix: Any, first_jitter: float | None = None) -> Cholesky:
    """Return the solver for a matrix where it lies."""
    return (TensorCholesky if is_tensor(matrix) else Cholesky)(first_jitter)


def cholesky_bytes(n: int, like: Any) -> int:
    """Return the memory that the solver takes beside an n × n matrix.

    Arrays are factorised in place; tensors take a second array, and tiles.
    """
    return 8 * (n**2 + 4 * min(n, _TILE) ** 2) if is_tensor(like) else 0


@dataclass(frozen=True)
class TensorCholeskyState:
    """A factor and its matrix, two tensors."""

    factor: Any
    matrix: Any
    jitter: float
    outcome: Outcome


class TensorCholesky(Cholesky):
    """:class:`Cholesky` for tensors: the same jitter, refinement and outcomes.

    The matrix, which is made symmetric in place, and its factor take two arrays (see
    :func:`cholesky_bytes`); the least eigenvalue, that tells of a singular matrix, is
    estimated by inverse iteration.

    Parameters
    ----------
    first_jitter : float or None
        As in :class:`Cholesky`.
    """

    def init(  # type: ignore[override]
        self, matrix: Any, shift: float = 0.0, scale: float | None = None
    ) -> TensorCholeskyState:
        """Factorise A + shift·I, of which the upper triangle is read.

        The matrix is **overwritten**.
        """
        ops = ops_of(matrix)
        n = len(matrix)
        if n == 0:
            return TensorCholeskyState(matrix, matrix, 0.0, Outcome.SUCCESS)
        _mirror_upper(matrix)
        diagonal = matrix.diagonal()
        diagonal += shift
        size = float(abs(diagonal).mean())
        block = rows_within(_SUMMED_BYTES, 8 * n)
        total = sum(abs(matrix[rows]).sum() for rows in row_blocks(n, block))
        if not math.isfinite(float(total)):
            raise ValueError(
                "the Gram matrix overflowed: it is not finite. Scale the input down "
                "(for instance with sklearn.preprocessing.MaxAbsScaler)."
            )
        scale = max(scale or 0.0, size) or 1.0
        first = self.first_jitter or n * np.finfo(float).eps
        jitter = 0.0
        while True:
            factor = ops.algebra.cholesky(matrix)
            if factor is not None:
                smallest = ops.algebra.smallest_eigenvalue(factor)
                if jitter or not self.first_jitter or smallest > LOST * scale:
                    break
            del factor  # before there is another
            more = max(10 * jitter, first * scale) - jitter
            jitter += more
            diagonal += more
            if jitter > scale:
                raise np.linalg.LinAlgError(
                    "the matrix is far from positive definite: it could not be "
                    "factorised even after adding its mean diagonal."
                )
        outcome = self._judge(jitter, smallest / scale)
        return TensorCholeskyState(factor, matrix, jitter, outcome)

    def solve(  # type: ignore[override]
        self, state: TensorCholeskyState, rhs: Any
    ) -> Solution:
        """Solve for right-hand sides of shape (n, k)."""
        ops = ops_of(rhs)
        n = len(state.matrix)
        if len(rhs) != n:
            raise ValueError(
                f"the matrix has {n} rows, the right-hand side {len(rhs)}."
            )
        if n == 0:
            return Solution(rhs, 0.0, 0, state.outcome)
        size = ops.largest(abs(rhs)) or 1.0
        b = rhs / size
        norms = (b * b).sum(axis=0) ** 0.5
        norms = norms + (norms == 0)

        def relative(residual: Any) -> float:
            return float(((residual * residual).sum(axis=0) ** 0.5 / norms).max())

        x = ops.algebra.factor_solve(state.factor, b)
        if not ops.is_finite(x):
            raise np.linalg.LinAlgError(
                "the solution is not finite: the right-hand side is not, or the "
                "system is too badly scaled; rescale the targets."
            )
        residual, steps = b - state.matrix @ x, 0
        while steps < REFINEMENTS and relative(residual) > np.finfo(float).eps:
            better = x + ops.algebra.factor_solve(state.factor, residual)
            after = b - state.matrix @ better
            if not relative(after) < relative(residual):
                break
            x, residual, steps = better, after, steps + 1
        error = relative(residual + state.jitter * x)
        outcome = state.outcome
        if outcome is Outcome.SUCCESS and error > LARGE_RESIDUAL:
            outcome = warned(Outcome.ILL_CONDITIONED, f"residual {error:.3g}")
        return Solution(size * x, error, steps, outcome, state.jitter)


def _mirror_upper(matrix: Any) -> None:
    """Copy the strict upper triangle to the lower one."""
    triu = ops_of(matrix).triu
    for rows in row_blocks(len(matrix), _TILE):
        below = slice(rows.stop, len(matrix))
        matrix[below, rows] = matrix[rows, below].T
        tile = matrix[rows, rows]
        matrix[rows, rows] = triu(tile, 0) + triu(tile, 1).T
