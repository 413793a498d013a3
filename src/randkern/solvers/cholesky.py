"""Direct solution of symmetric positive definite systems."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from randkern.backend.blas_threads import short_on_one_thread
from randkern.data import row_blocks
from randkern.exceptions import IllConditionedWarning
from randkern.solvers._solution import Outcome, Solution

__all__ = ["Cholesky", "CholeskyState"]

_TILE = 1024
REFINEMENTS = 2
# Least eigenvalues, relative to the size of A, at which weights are lost, or have few
# digits: the error is n·eps over them. That of predictions at the rows of the fit is
# less, but not at others.
LOST = 2.0**-39
UNCERTAIN = 2.0**-33
# A relative residual above this says that half of the digits are lost.
LARGE_RESIDUAL = 2.0**-26


@dataclass(frozen=True)
class CholeskyState:
    """A factorised matrix, its factor and the matrix itself in one array.

    The strict upper triangle of `factor_and_matrix` holds that of the factor,
    the strict lower one that of the matrix.
    """

    factor_and_matrix: np.ndarray
    diagonal: np.ndarray
    jitter: float
    outcome: Outcome


class Cholesky:
    """Solve (A + shift·I)x = b by Cholesky factorisation in float64.

    `init` factorises once, `solve` uses the factor for any number of
    right-hand sides, with up to two steps of iterative refinement. Where the
    factorisation breaks down, multiples of the identity are added, with an
    `IllConditionedWarning`; the same warning tells of a matrix that is
    singular to working precision.

    Parameters
    ----------
    first_jitter : float or None
        The first multiple of the identity, relative to the size of A. None:
        its rounding error, n·2⁻⁵². Where b may lie outside the range of A
        (interpolation of rows that repeat) 2⁻²⁶ balances bias and rounding.
    """

    def __init__(self, first_jitter: float | None = None):
        self.first_jitter = first_jitter

    @short_on_one_thread(lambda self, matrix, *_, **__: len(matrix) ** 3)
    def init(
        self, matrix: np.ndarray, shift: float = 0.0, scale: float | None = None
    ) -> CholeskyState:
        """Factorise A + shift·I.

        Parameters
        ----------
        matrix : ndarray of shape (n, n), float64, C-contiguous
            A, of which the upper triangle is read. **Overwritten.**
        shift : float
        scale : float, optional
            Size of the numbers that A was computed from, if larger than its
            mean diagonal: what its rounding error is relative to.
        """
        _check_square(matrix)
        n = len(matrix)
        if n == 0:
            return CholeskyState(matrix, np.zeros(0), 0.0, Outcome.SUCCESS)
        _mirror_upper(matrix)
        diagonal = np.diagonal(matrix) + shift
        with np.errstate(invalid="ignore", over="ignore"):
            norm = _one_norm(matrix, diagonal)
        if not np.isfinite(norm):
            raise ValueError(
                "the Gram matrix overflowed: it is not finite. Scale the input down "
                "(for instance with sklearn.preprocessing.MaxAbsScaler)."
            )
        scale = max(scale or 0.0, float(np.mean(np.abs(diagonal)))) or 1.0
        first = self.first_jitter or n * np.finfo(float).eps
        jitter = 0.0
        while True:
            np.fill_diagonal(matrix, diagonal + jitter)
            # The transpose of a C-ordered array is Fortran-ordered: LAPACK works
            # in place on its lower triangle, our upper one.
            _, info = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
            if info == 0:
                reciprocal, _ = dpocon(matrix.T, norm, uplo="L")
                smallest = reciprocal * norm  # about the least eigenvalue
                if jitter or not self.first_jitter or smallest > LOST * scale:
                    break
            _mirror_lower(matrix)
            jitter = max(10 * jitter, first * scale)
            if jitter > scale:
                raise np.linalg.LinAlgError(
                    "the matrix is far from positive definite: it could not be "
                    "factorised even after adding its mean diagonal."
                )
        outcome = self._judge(jitter, smallest / scale)
        return CholeskyState(matrix, diagonal + jitter, jitter, outcome)

    @staticmethod
    def _judge(jitter: float, smallest: float) -> Outcome:
        """Return the outcome, and warn unless it is a success."""
        if jitter > 0:
            return warned(Outcome.JITTERED, f"jitter {jitter:.3g}")
        if smallest <= UNCERTAIN:
            detail = f"the least eigenvalue is about {smallest:.3g} of its size"
            return warned(Outcome.ILL_CONDITIONED, detail)
        return Outcome.SUCCESS

    @short_on_one_thread(lambda self, state, rhs: len(rhs) * rhs.size)
    def solve(self, state: CholeskyState, rhs: np.ndarray) -> Solution:
        """Solve for one right-hand side or several, shape (n,) or (n, k)."""
        n = len(state.diagonal)
        if len(rhs) != n:
            raise ValueError(
                f"the matrix has {n} rows, the right-hand side {len(rhs)}."
            )
        if n == 0:
            return Solution(np.zeros(rhs.shape), 0.0, 0, state.outcome)
        b = rhs.reshape(n, -1).astype(np.float64)
        size = float(np.abs(b).max(initial=0.0)) or 1.0
        b = b / size
        factor = state.factor_and_matrix.T
        x, _ = dpotrs(factor, b, lower=1)
        if not np.all(np.isfinite(x)):
            raise np.linalg.LinAlgError(
                "the solution is not finite: the right-hand side is not, or the "
                "system is too badly scaled; rescale the targets."
            )
        x, residual, steps = self._refined(state, x, b)
        outcome = state.outcome
        if outcome is Outcome.SUCCESS and residual > LARGE_RESIDUAL:
            outcome = warned(Outcome.ILL_CONDITIONED, f"residual {residual:.3g}")
        return Solution(
            size * x.reshape(rhs.shape), residual, steps, outcome, state.jitter
        )

    def _refined(
        self, state: CholeskyState, x: np.ndarray, b: np.ndarray
    ) -> tuple[np.ndarray, float, int]:
        """Return the refined solution, its residual and the number of steps."""
        norms = np.linalg.norm(b, axis=0)
        norms[norms == 0] = 1.0

        def relative(residual: np.ndarray) -> float:
            return float(np.max(np.linalg.norm(residual, axis=0) / norms, initial=0.0))

        residual = self._residual(state, x, b)
        size = relative(residual)
        steps = 0
        while steps < REFINEMENTS and size > np.finfo(float).eps:
            correction, _ = dpotrs(state.factor_and_matrix.T, residual, lower=1)
            better = x + correction
            residual = self._residual(state, better, b)
            if not relative(residual) < size:
                break
            x, size, steps = better, relative(residual), steps + 1
        if state.jitter:
            # What is left of the system that was asked for.
            size = relative(self._residual(state, x, b) + state.jitter * x)
        return x, size, steps

    @staticmethod
    def _residual(state: CholeskyState, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        # The upper triangle of the transpose holds the matrix, except for its
        # diagonal, which is the factor's: it is lent the matrix's for a moment.
        matrix = state.factor_and_matrix
        factor_diagonal = np.diagonal(matrix).copy()
        np.fill_diagonal(matrix, state.diagonal)
        product = dsymm(1.0, matrix.T, x, lower=0)
        np.fill_diagonal(matrix, factor_diagonal)
        return b - product


def warned(outcome: Outcome, detail: str) -> Outcome:
    warnings.warn(f"{outcome.value} ({detail}).", IllConditionedWarning, stacklevel=4)
    return outcome


def _check_square(matrix: np.ndarray) -> None:
    if (
        matrix.ndim != 2
        or matrix.shape[0] != matrix.shape[1]
        or matrix.dtype != np.float64
        or not matrix.flags.c_contiguous
    ):
        raise ValueError(
            "expected a square, C-contiguous float64 array, which is factorised in "
            f"place, got shape {matrix.shape}, dtype {matrix.dtype}; use "
            "numpy.ascontiguousarray(matrix, dtype=float)."
        )


def _one_norm(matrix: np.ndarray, diagonal: np.ndarray) -> float:
    sums = np.zeros(len(matrix))
    for rows in row_blocks(len(matrix), _TILE):
        sums[rows] = np.abs(matrix[rows]).sum(axis=1)
    sums += np.abs(diagonal) - np.abs(np.diagonal(matrix))
    return float(sums.max(initial=0.0))


def _mirror_upper(matrix: np.ndarray) -> None:
    """Copy the strict upper triangle to the lower one."""
    for rows in row_blocks(len(matrix), _TILE):
        for columns in row_blocks(rows.start, _TILE):
            matrix[rows, columns] = matrix[columns, rows].T
        tile = matrix[rows, rows]
        lower = np.tril_indices(len(tile), -1)
        tile[lower] = tile.T[lower]


def _mirror_lower(matrix: np.ndarray) -> None:
    """Copy the strict lower triangle to the upper one."""
    _mirror_upper(matrix.T)
