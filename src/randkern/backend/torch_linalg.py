"""Linear algebra of :mod:`randkern.backend.torch_ops`, on tensors."""

import torch

__all__ = [
    "cholesky",
    "cholesky_solve",
    "inverse_factor",
    "leading_eigenpairs",
    "norm",
    "singular_values",
    "smallest_eigenvalue",
    "symmetric_eigenpairs",
]


def cholesky(matrix):
    """Return the lower Cholesky factor, None where there is none."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    return factor if int(info) == 0 else None


def cholesky_solve(factor, rhs):
    """Return the solution of LLᵀx = b."""
    return torch.cholesky_solve(rhs, factor)


def inverse_factor(gram):
    """Return R⁻¹ for RᵀR = gram, given by its upper triangle."""
    gram = torch.triu(gram) + torch.triu(gram, 1).T
    factor = torch.linalg.cholesky(gram, upper=True)
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.linalg.solve_triangular(factor, identity, upper=True)


def leading_eigenpairs(matrix, rank):
    """Return leading eigenpairs, falling, of a matrix given by its upper triangle."""
    values, vectors = torch.linalg.eigh(matrix, UPLO="U")
    return values.flip(0)[:rank], vectors.flip(1)[:, :rank]


def norm(values):
    """Return the root of the sum of squares as a float."""
    return float(torch.linalg.vector_norm(values))


def singular_values(matrix):
    """Return singular values, falling."""
    return torch.linalg.svdvals(matrix)


def smallest_eigenvalue(factor, steps=8):
    """Return an estimate of the least eigenvalue of LLᵀ, by inverse iteration."""
    generator = torch.Generator(device=factor.device).manual_seed(0)
    v = torch.randn(
        len(factor), 1, dtype=factor.dtype, device=factor.device, generator=generator
    )
    size = 1.0
    for _ in range(steps):
        v = torch.cholesky_solve(v / torch.linalg.vector_norm(v), factor)
        size = float(torch.linalg.vector_norm(v))
    return 1.0 / size


def symmetric_eigenpairs(matrix):
    """Return eigenvalues, rising, and eigenvectors of a matrix.

    Its upper triangle is read.
    """
    return torch.linalg.eigh(matrix, UPLO="U")
