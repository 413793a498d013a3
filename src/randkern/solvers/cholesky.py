"""Direct solution of symmetric positive definite systems, on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpocon, dpotrs, dtrtri

from randkern._validation import Array, is_tensor
from randkern._warnings import warn
from randkern.backend.blas import factorise_upper, panel_bytes, short_on_one_thread
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.solvers.iteration import Outcome, Solution

_TILE = 1024
# Size of the row blocks whose absolute values are summed.
_SUMMED_BYTES = 2**24
_REFINEMENTS = 2
# The same if jitter was added.
_JITTERED_REFINEMENTS = 20
# Smallest eigenvalues, relative to the size of A, below which weights have no correct
# digits, or only few: their relative error is n·eps over the eigenvalue. Predictions at
# the training rows have a smaller error, others do not.
_LOST = 2.0**-39
_UNCERTAIN = 2.0**-33
# A larger relative residual means that half of the digits are lost.
_LARGE_RESIDUAL = 2.0**-26


def cholesky_bytes(n: int, like: Array) -> int:
    """Return the memory that the solver takes besides an n × n matrix.

    Arrays are factorised in place, large ones by panels; tensors take a second array,
    and tiles.

    Parameters
    ----------
    n : int
        Number of rows of the matrix.
    like : array or tensor
        An array of the same library as the matrix.
    """
    if not is_tensor(like):
        return panel_bytes(n)
    return 8 * (n**2 + 4 * min(n, _TILE) ** 2)


def mirror_upper(matrix: Array) -> Array:
    """Copy the strict upper triangle to the lower one, and return the matrix.

    Parameters
    ----------
    matrix : array or tensor of shape (n, n)
        Changed in place.
    """
    triu = ops_of(matrix).xp.triu
    for rows in row_blocks(len(matrix), _TILE):
        for columns in row_blocks(rows.start, _TILE):
            matrix[rows, columns] = matrix[columns, rows].T
        tile = matrix[rows, rows]
        matrix[rows, rows] = triu(tile) + triu(tile, k=1).T
    return matrix


class CholeskyState(ABC):
    """A factorised matrix A + (shift + jitter)·I.

    Parameters
    ----------
    matrix : array of shape (n, n)
        A, symmetric, both of its triangles filled.
    diagonal : array of shape (n,)
        The diagonal of A plus the shift.
    """

    def __init__(self, matrix: Array, diagonal: Array):
        self.diagonal = diagonal
        self.norm = _one_norm(matrix, diagonal)
        self.jitter = 0.0
        self.outcome = Outcome.SUCCESS

    @abstractmethod
    def factorise(self, jitter: float) -> float | None:
        """Factorise, and estimate the least eigenvalue; None if factorising fails."""

    @abstractmethod
    def apply_inverse(self, b: Array) -> Array:
        """Return the solutions for right-hand sides (n, k), using the factor."""

    @abstractmethod
    def product(self, x: Array) -> Array:
        """Return the product of the matrix with x (n, k)."""

    def inverse_diagonal(self, positions: np.ndarray) -> Array:
        """Return entries of the diagonal of the inverse, at sorted positions."""
        n = len(self.diagonal)
        m = len(positions)
        ops = ops_of(self.diagonal)
        if m == 0:
            return ops.float64_zeros(0, self.diagonal)
        if m == n:
            return self._inverse_diagonal()
        unit = ops.float64_zeros((n, m), self.diagonal)
        unit[positions, np.arange(m)] = 1.0
        if positions[0] == n - m:
            # The last block of the factor is that of the Schur complement, whose
            # inverse is the last block of the inverse.
            last = ops.contiguous(self._factor_from(n - m))
            half = ops.algebra.triangular_solve(last, unit[n - m :])
            return (half**2).sum(axis=0)
        return self.apply_inverse(unit)[positions, np.arange(m)]

    def _inverse_diagonal(self) -> Array:
        """Return the diagonal of the inverse."""
        eye = ops_of(self.diagonal).xp.diag(1.0 + 0.0 * self.diagonal)
        factor = ops_of(self.diagonal).contiguous(self._factor_from(0))
        half = ops_of(self.diagonal).algebra.triangular_solve(factor, eye)
        return (half**2).sum(axis=0)

    @abstractmethod
    def _factor_from(self, first: int) -> Array:
        """Return the trailing block of the lower factor, from row `first` on."""

    @abstractmethod
    def lower_factor(self) -> Array:
        """Return the lower triangular factor; invalidates the state."""


class _InPlace(CholeskyState):
    """A matrix and its factor, stored in one array.

    The strict upper triangle of `factor_and_matrix` holds that of the factor, the
    strict lower triangle that of the matrix.
    """

    def __init__(self, matrix: np.ndarray, shift: float):
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
        self.factor_and_matrix = mirror_upper(matrix)
        super().__init__(matrix, np.diagonal(matrix) + shift)

    @short_on_one_thread(lambda self, jitter: len(self.diagonal) ** 3)
    def factorise(self, jitter: float) -> float | None:
        matrix = self.factor_and_matrix
        if jitter:  # this is not the first attempt
            mirror_upper(matrix.T)
        self.diagonal += jitter - self.jitter
        self.jitter = jitter
        np.fill_diagonal(matrix, self.diagonal)
        if not factorise_upper(matrix):
            return None
        # The transpose of a C-ordered array is Fortran-ordered: our upper triangle is
        # LAPACK's lower one.
        reciprocal, _ = dpocon(matrix.T, self.norm, uplo="L")
        return float(reciprocal) * self.norm

    @short_on_one_thread(lambda self, b: len(b) * b.size)
    def apply_inverse(self, b: np.ndarray) -> np.ndarray:
        return dpotrs(self.factor_and_matrix.T, b, lower=1)[0]

    @short_on_one_thread(lambda self, x: len(x) * x.size)
    def product(self, x: np.ndarray) -> np.ndarray:
        # The upper triangle of the transpose holds the matrix except for its diagonal,
        # which is the factor's and is replaced for the product.
        matrix = self.factor_and_matrix
        factor_diagonal = np.diagonal(matrix).copy()
        np.fill_diagonal(matrix, self.diagonal)
        product = dsymm(1.0, matrix.T, x, lower=0)
        np.fill_diagonal(matrix, factor_diagonal)
        return product

    @short_on_one_thread(lambda self: len(self.diagonal) ** 3 / 3)
    def _inverse_diagonal(self) -> np.ndarray:
        # A third of the operations of solving with the identity.
        inverse, _ = dtrtri(self._factor_from(0), lower=1, overwrite_c=1)
        return np.einsum("ij,ij->j", inverse, inverse)

    def _factor_from(self, first: int) -> np.ndarray:
        return np.tril(self.factor_and_matrix.T[first:, first:])

    def lower_factor(self) -> np.ndarray:
        factor = self.factor_and_matrix.T
        for rows in row_blocks(len(factor), _TILE):
            factor[rows, rows] = np.tril(factor[rows, rows])
            factor[rows, rows.stop :] = 0.0
        return factor


class _Beside(CholeskyState):
    """A tensor and its factor, stored separately."""

    def __init__(self, matrix: Array, shift: float):
        self.matrix = mirror_upper(matrix)
        self.factor = None
        self._algebra = ops_of(matrix).algebra
        self._algebra.add_to_diagonal(matrix, shift)
        super().__init__(matrix, matrix.diagonal())

    def factorise(self, jitter: float) -> float | None:
        self.diagonal += jitter - self.jitter
        self.jitter = jitter
        self.factor = None  # free the old factor first
        self.factor = self._algebra.cholesky(self.matrix)
        if self.factor is None:
            return None
        return self._algebra.smallest_eigenvalue(self.factor)

    def apply_inverse(self, b: Array) -> Array:
        return self._algebra.factor_solve(self.factor, b)

    def product(self, x: Array) -> Array:
        return self.matrix @ x

    def _factor_from(self, first: int) -> Array:
        assert self.factor is not None
        return self.factor[first:, first:]

    def lower_factor(self) -> Array:
        return self.factor


class Cholesky:
    """Solve (A + shift·I)x = b by Cholesky factorisation in float64.

    `init` factorises once, `solve` uses the factor for any number of right-hand sides,
    with up to two steps of iterative refinement. If the factorisation breaks down,
    multiples of the identity are added, with an `IllConditionedWarning`, which is also
    issued for matrices that are singular to working precision.

    Arrays are factorised in place. A tensor is symmetrised in place and its factor is
    stored separately (see :func:`cholesky_bytes`); its least eigenvalue, by which
    singular matrices are detected, is estimated by inverse iteration.

    Parameters
    ----------
    first_jitter : float or None
        The first multiple of the identity, relative to the size of A. None:
        its rounding error, n·2⁻⁵². If b may lie outside the range of A
        (interpolation of repeated rows), 2⁻²⁶ balances bias and rounding.
    """

    def __init__(self, first_jitter: float | None = None):
        self.first_jitter = first_jitter

    def init(
        self, matrix: Array, shift: float = 0.0, scale: float | None = None
    ) -> CholeskyState:
        """Factorise A + shift·I.

        Parameters
        ----------
        matrix : array of shape (n, n), float64, C-contiguous
            A; only its upper triangle is read. **Overwritten.**
        shift : float
        scale : float, optional
            Size of the numbers that A was computed from, if larger than its mean
            diagonal; its rounding error is relative to them.
        """
        kind = _Beside if is_tensor(matrix) else _InPlace
        state = kind(matrix, shift)
        n = len(matrix)
        if n == 0:
            return state
        scale = max(scale or 0.0, float(abs(state.diagonal).mean())) or 1.0
        first = self.first_jitter or n * np.finfo(float).eps
        smallest = state.factorise(0.0)
        jitter = 0.0
        lost = _LOST * scale if self.first_jitter else -np.inf
        while smallest is None or (not jitter and smallest <= lost):
            jitter = max(10 * jitter, first * scale)
            if jitter > scale:
                raise np.linalg.LinAlgError(
                    "the matrix is far from positive definite: it could not be "
                    "factorised even after adding its mean diagonal."
                )
            smallest = state.factorise(jitter)
        if jitter > 0:
            state.outcome = _warned(Outcome.JITTERED, f"jitter {jitter:.3g}")
        elif smallest / scale <= _UNCERTAIN:
            state.outcome = _warned(
                Outcome.ILL_CONDITIONED,
                f"the least eigenvalue is about {smallest / scale:.3g} of its size",
            )
        return state

    def solve(self, state: CholeskyState, rhs: Array) -> Solution:
        """Solve for one right-hand side or several, shape (n,) or (n, k)."""
        ops = ops_of(rhs)
        n = len(state.diagonal)
        if len(rhs) != n:
            raise ValueError(
                f"the matrix has {n} rows, the right-hand side {len(rhs)}."
            )
        if n == 0:
            return Solution(rhs, 0.0, 0, state.outcome)
        b = ops.as_float64(rhs.reshape(n, -1))
        # By column, as the sizes of targets may differ greatly.
        size = ops.column_max_abs(b)
        size = size + (size == 0)
        b = b / size
        norms = (b * b).sum(axis=0) ** 0.5
        norms = norms + (norms == 0)

        def relative(residual: Array) -> float:
            return ops.largest_or_zero((residual * residual).sum(axis=0) ** 0.5 / norms)

        x = state.apply_inverse(b)
        if not ops.is_finite(x):
            raise np.linalg.LinAlgError(
                "the solution is not finite: the right-hand side is not, or the "
                "system is too badly scaled; rescale the targets."
            )
        residual = b - state.product(x)
        steps = 0
        while steps < _REFINEMENTS and relative(residual) > np.finfo(float).eps:
            better = x + state.apply_inverse(residual)
            after = b - state.product(better)
            if not relative(after) < relative(residual):
                break
            x = better
            residual = after
            steps = steps + 1
        # The residual of the system without jitter.
        residual = residual + state.jitter * x
        while state.jitter and steps < _JITTERED_REFINEMENTS:
            # Each step divides errors along an eigenvector by 1 + λ/jitter. They end
            # where b lies outside the range of A, or A is no more than rounding errors.
            better = x + state.apply_inverse(residual)
            after = b - state.product(better) + state.jitter * better
            if not relative(after) <= 0.5 * relative(residual):
                break
            x = better
            residual = after
            steps = steps + 1
        error = relative(residual)
        outcome = state.outcome
        if outcome is Outcome.SUCCESS and error > _LARGE_RESIDUAL:
            outcome = _warned(Outcome.ILL_CONDITIONED, f"residual {error:.3g}")
        value = (size * x).reshape(rhs.shape)
        return Solution(value, error, steps, outcome, state.jitter)


def _warned(outcome: Outcome, detail: str) -> Outcome:
    warn(f"{outcome.value} ({detail}).", IllConditionedWarning)
    return outcome


def _one_norm(matrix: Array, diagonal: Array) -> float:
    """Return the largest sum of absolute values of a row of A + shift·I."""
    ops = ops_of(matrix)
    largest = 0.0
    matrix_diagonal = matrix.diagonal()
    with np.errstate(invalid="ignore", over="ignore"):
        for rows in row_blocks(
            len(matrix), rows_within(_SUMMED_BYTES, 8 * len(matrix))
        ):
            sums = abs(matrix[rows]).sum(axis=1)
            sums = sums + abs(diagonal[rows]) - abs(matrix_diagonal[rows])
            if not ops.is_finite(sums):
                raise ValueError(
                    "the Gram matrix overflowed: it is not finite. Scale the input "
                    "down (for instance with sklearn.preprocessing.MaxAbsScaler)."
                )
            largest = max(largest, ops.largest_or_zero(sums))
    return largest
