"""Dense linear algebra on NumPy arrays: LAPACK, in place where it can be."""

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg.lapack import dpotri, dpstrf, dtpqrt
from sklearn.externals.array_api_compat import numpy as array_namespace

from randkern.backend.array_ops import ArrayAlgebra
from randkern.backend.blas_threads import short_on_one_thread
from randkern.backend.large_cholesky import factorise_upper
from randkern.backend.skinny_gemm import padded

_ROWS = 1024
# Reflections that LAPACK applies at once.
_REFLECTIONS = 32


def _cubed(algebra, matrix, *args):
    """Count the operations of a decomposition, but for a factor near 1."""
    return max(matrix.shape) * min(matrix.shape) ** 2


def _eigen(algebra, matrix, *args):
    """Count those of eigenvalues, singular values and what rests on them, roughly."""
    return 4 * _cubed(algebra, matrix)


def _solved(algebra, factor, right, *args, **kwargs):
    """Count those of one triangular solve."""
    return len(factor) * right.size


class NumpyAlgebra(ArrayAlgebra):
    """LAPACK, on one thread where that is short."""

    xp = array_namespace

    def column_products(self, X, Y):
        """Return Σ_i x_ij y_ij of every column j."""
        if sp.issparse(X):
            return np.asarray(X.multiply(Y).sum(axis=0)).ravel()
        return np.einsum("ij,ij->j", X, Y)

    @short_on_one_thread(_cubed)
    def lower_factor(self, matrix):
        """Return the lower Cholesky factor of a matrix given by its upper triangle.

        The matrix is used up.
        """
        matrix = np.require(matrix, float, ["C", "W"])
        if not factorise_upper(matrix):
            raise np.linalg.LinAlgError("the matrix is not positive to rounding.")
        for start in range(0, len(matrix), _ROWS):
            block = matrix[start : start + _ROWS, : start + _ROWS]
            block[:] = np.triu(block, start)
        return matrix.T

    @short_on_one_thread(_solved)
    def factor_solve(self, factor, right):
        """Return the solution of LLᵀx = b, a vector or a matrix."""
        return scipy.linalg.cho_solve((factor, True), right, check_finite=False)

    @short_on_one_thread(_solved)
    def triangular_solve(self, factor, right, transposed=False):
        """Return L⁻¹b, or L⁻ᵀb."""
        return scipy.linalg.solve_triangular(
            factor,
            right,
            lower=True,
            trans="T" if transposed else "N",
            check_finite=False,
        )

    def extended_factor(self, factor, rows):
        """Return the lower factor of LLᵀ + RᵀR for rows R, O(n²) operations each.

        By Householder's reflections of the rows of Lᵀ and of R, which keep Lᵀ
        triangular.
        """
        if not len(rows):
            return factor
        block = min(_REFLECTIONS, len(factor))
        upper, _, _, info = dtpqrt(0, block, factor.T, rows)
        if info:
            raise np.linalg.LinAlgError("the factor could not be extended.")
        lower = np.triu(upper).T
        return lower * np.where(lower.diagonal() < 0, -1.0, 1.0)

    @short_on_one_thread(_cubed)
    def inverse_by_factor(self, factor):
        """Return the inverse of LLᵀ."""
        inverse, info = dpotri(factor, lower=1)
        if info:
            raise np.linalg.LinAlgError("the covariance is singular.")
        # The upper triangle is filled in place: D x D matrices are what memory goes to.
        for start in range(0, len(inverse), _ROWS):
            rows = slice(start, start + _ROWS)
            inverse[rows, rows.stop :] = inverse[rows.stop :, rows].T
            corner = np.tril(inverse[rows, rows])
            inverse[rows, rows] = corner + np.tril(corner, -1).T
        return inverse

    @short_on_one_thread(_eigen)
    def shortest_solution(self, matrix, right):
        """Return the shortest x of the least ‖Ax − b‖ for a symmetric A."""
        return scipy.linalg.lstsq(matrix, right)[0]

    @short_on_one_thread(_cubed)
    def pivoted_factor(self, gram):
        """Return F with FFᵀ = K up to rounding, and its pivots, as many as K has rank.

        By Cholesky factorisation with pivoting: the rows of F at the pivots, in their
        order, are lower triangular. Zeros fill up its width. The Gram matrix is
        overwritten.
        """
        # Of the transpose, which is Fortran-ordered, so that nothing is copied.
        factor, pivots, rank, info = dpstrf(gram.T, lower=1, overwrite_a=1)
        if info < 0:
            raise np.linalg.LinAlgError("the Gram matrix is not finite.")
        pivots = pivots - 1
        out = np.zeros((len(gram), padded(rank)))
        for start in range(0, len(gram), _ROWS):  # no third matrix is made
            rows = slice(start, start + _ROWS)
            out[pivots[rows], :rank] = np.tril(factor[rows, :rank], start)
        return out, pivots[:rank]

    @short_on_one_thread(_eigen)
    def leading_eigenpairs(self, matrix, rank):
        """Return leading eigenpairs, descending, of an upper triangle."""
        n = len(matrix)
        values, vectors = scipy.linalg.eigh(
            matrix.T, lower=True, subset_by_index=(max(0, n - rank), n - 1),
            overwrite_a=True, check_finite=False,
        )  # fmt: skip
        return values[::-1], vectors[:, ::-1]

    @short_on_one_thread(_cubed)
    def inverse_factor(self, gram):
        """Return R⁻¹ for RᵀR = gram, given by its upper triangle."""
        factor = scipy.linalg.cholesky(gram, lower=False, check_finite=False)
        return scipy.linalg.solve_triangular(factor, np.eye(len(factor)))

    @short_on_one_thread(_cubed)
    def qr(self, matrix):
        """Return an orthonormal basis of the columns, and the upper triangle."""
        return scipy.linalg.qr(matrix, mode="economic", check_finite=False)

    @short_on_one_thread(_eigen)
    def symmetric_eigenpairs(self, matrix):
        """Return eigenvalues, ascending, and eigenvectors of a C-contiguous matrix.

        It is in float64; its upper triangle is read, and it is overwritten.
        """
        # The transpose of a C-ordered array is Fortran-ordered: LAPACK works in place
        # on its lower triangle, our upper one.
        return scipy.linalg.eigh(
            matrix.T, lower=True, overwrite_a=True, check_finite=False, driver="evd"
        )

    @short_on_one_thread(_eigen)
    def singular_values(self, matrix):
        """Return singular values, descending."""
        return np.linalg.svd(matrix, compute_uv=False)
