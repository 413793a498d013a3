"""Dense linear algebra on tensors."""

import numpy as np
import torch
from sklearn.externals.array_api_compat import torch as array_namespace

from randkern.backend.array_ops import ArrayAlgebra

_EPS = 2.0**-52


def _columns(solve, right):
    """Return what `solve` makes of a matrix, or of a vector as one."""
    return solve(right[:, None])[:, 0] if right.ndim == 1 else solve(right)


class TorchAlgebra(ArrayAlgebra):
    """PyTorch's linear algebra."""

    xp = array_namespace

    def column_products(self, X, Y):
        """Return Σ_i x_ij y_ij of every column j."""
        return (X * Y).sum(dim=0)

    def lower_factor(self, matrix):
        """Return the lower Cholesky factor of a matrix given by its upper triangle.

        The matrix is used up.
        """
        factor, info = torch.linalg.cholesky_ex(matrix.T)
        if int(info):
            raise np.linalg.LinAlgError("the matrix is not positive definite.")
        return factor

    def factor_solve(self, factor, right):
        """Return the solution of LLᵀx = b, a vector or a matrix."""
        # torch.cholesky_solve would copy the factor each time.
        half = self.triangular_solve(factor, right)
        return self.triangular_solve(factor, half, transposed=True)

    def triangular_solve(self, factor, right, transposed=False):
        """Return L⁻¹b, or L⁻ᵀb."""
        matrix = factor.T if transposed else factor

        def solve(b):
            return torch.linalg.solve_triangular(matrix, b, upper=transposed)

        return _columns(solve, right)

    def extended_factor(self, factor, rows):
        """Return the lower factor of LLᵀ + RᵀR for rows R."""
        upper = torch.linalg.qr(torch.cat([factor.T, rows]), mode="r").R
        return (upper * torch.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T

    def inverse_by_factor(self, factor):
        """Return the inverse of LLᵀ."""
        return torch.cholesky_inverse(factor)

    def shortest_solution(self, matrix, right):
        """Return the shortest x of the least ‖Ax − b‖ for a symmetric A."""
        if not len(matrix):
            return right
        values, vectors = torch.linalg.eigh(matrix)
        sizes = values.abs()
        kept = sizes > len(values) * _EPS * sizes.max()
        inverse = torch.where(kept, 1.0 / torch.where(kept, values, 1.0), 0.0)
        return vectors @ (inverse * (vectors.T @ right))

    def pivoted_factor(self, gram):
        """Return F with FFᵀ = K up to rounding, and its pivots, as many as K has rank.

        By Cholesky factorisation with pivoting, column by column: the rows of F at the
        pivots, in their order, are lower triangular. It stops where LAPACK's does.
        """
        n = len(gram)
        factor = torch.zeros_like(gram)
        left = gram.diagonal().clone()
        pivots = torch.zeros(n, dtype=torch.int64, device=gram.device)
        if not bool(torch.isfinite(left).all()):
            raise np.linalg.LinAlgError("the Gram matrix is not finite.")
        least = n * _EPS * float(left.max())
        for rank in range(n):
            pivot = left.argmax()
            largest = left[pivot]
            if not float(largest) > least:
                return factor[:, :rank].clone(), pivots[:rank]
            row = factor.index_select(0, pivot[None])[0, :rank]
            column = gram.index_select(1, pivot[None])[:, 0] - factor[:, :rank] @ row
            # Rows that are pivots already, and what is left of them, are exactly 0.
            column = torch.where(torch.isinf(left), 0.0, column / largest.sqrt())
            factor[:, rank] = column
            pivots[rank] = pivot
            left = torch.where(torch.isinf(left), left, left - column * column)
            left[pivot] = -torch.inf
        return factor, pivots

    def cholesky(self, matrix):
        """Return the lower Cholesky factor, None where there is none."""
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if int(info) == 0 else None

    def inverse_factor(self, gram):
        """Return R⁻¹ for RᵀR = gram, given by its upper triangle."""
        gram = torch.triu(gram) + torch.triu(gram, 1).T
        factor = torch.linalg.cholesky(gram, upper=True)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        return torch.linalg.solve_triangular(factor, identity, upper=True)

    def leading_eigenpairs(self, matrix, rank):
        """Return leading eigenpairs, descending, of an upper triangle."""
        values, vectors = torch.linalg.eigh(matrix, UPLO="U")
        return values.flip(0)[:rank], vectors.flip(1)[:, :rank]

    def singular_values(self, matrix):
        """Return singular values, descending."""
        return torch.linalg.svdvals(matrix)

    def smallest_eigenvalue(self, factor, steps=8):
        """Return an estimate of the least eigenvalue of LLᵀ, by inverse iteration."""
        where = {"dtype": factor.dtype, "device": factor.device}
        generator = torch.Generator(device=factor.device).manual_seed(0)
        v = torch.randn(len(factor), 1, generator=generator, **where)
        size = 1.0
        for _ in range(steps):
            v = self.factor_solve(factor, v / torch.linalg.vector_norm(v))
            size = float(torch.linalg.vector_norm(v))
        return 1.0 / size

    def symmetric_eigenpairs(self, matrix):
        """Return eigenvalues, ascending, and eigenvectors of a matrix.

        Its upper triangle is read.
        """
        return torch.linalg.eigh(matrix, UPLO="U")

    def qr(self, matrix):
        """Return an orthonormal basis of the columns, and the upper triangle."""
        return torch.linalg.qr(matrix)
