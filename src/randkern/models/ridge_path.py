"""Ridge regression at every penalty at once, from one eigendecomposition.

With M = V diag(λ) Vᵀ the matrix of :mod:`randkern.models.normal_equations` or of
:mod:`randkern.models.dual`, (M + αI)⁻¹ = V diag(1/(λ + α)) Vᵀ for every α. The hat
matrix H of a fit, including its intercept, then gives the residual of row i in a fit
without it,

e_i = (y_i − ŷ_i)/(1 − H_ii),

for the same features and kernel, and the generalised cross-validation score, in
which each H_ii is replaced by their mean (Golub, Heath and Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.models.dual import DualSystem
from randkern.models.normal_equations import NormalEquations

_TILE = 1024
# If a fit interpolates a row, its residual contains no information about that row.
_MIN_FREEDOM = np.finfo(float).eps
# Eigenvalues of this multiple of the rounding error are kept.
_NOISE = 8.0


def eigenpairs(matrix: Any) -> tuple[Any, Any]:
    """Return non-negative eigenvalues, and eigenvectors, (n, n), of M ⪰ 0.

    `matrix` is C-contiguous float64; its upper triangle is read, and it is
    **overwritten**.

    Negative eigenvalues are rounding errors, about 10⁻⁸ of the largest eigenvalue for
    float32 features. Eigenvalues below a multiple of the most negative one are raised
    to it: divided by smaller ones, the errors would be amplified.
    """
    ops = ops_of(matrix)
    with np.errstate(over="ignore", invalid="ignore"):
        total = matrix.sum()
    if not ops.is_finite(total):
        raise ValueError(
            "the Gram matrix overflowed: it is not finite. Scale the input down "
            "(for instance with sklearn.preprocessing.MaxAbsScaler)."
        )
    values, vectors = ops.algebra.symmetric_eigenpairs(matrix)
    return values.clip(min=max(0.0, -_NOISE * float(values[0]))), vectors


def _solved(matrix: Any, right: Any, alphas: Any) -> tuple[Any, Any, Any]:
    """Return V, 1/(λ + α), (n, n_alphas), and the solutions, (n, n_alphas·k).

    The matrix is **overwritten**.
    """
    values, vectors = eigenpairs(matrix)
    shrinkage = 1.0 / (values[:, None] + alphas)
    rotated = shrinkage[:, :, None] * (vectors.T @ right)[:, None, :]
    return vectors, shrinkage, vectors @ rotated.reshape(len(matrix), -1)


def _by_penalty(values: Any, n_alphas: int) -> Any:
    """Return (n, n_alphas·k) as (n_alphas, n, k)."""
    return values.reshape(len(values), n_alphas, -1).swapaxes(0, 1)


@dataclass(frozen=True)
class PrimalPath:
    """The weights of features at every penalty.

    Arrays are on the device of the normal equations, except for `freedom`.
    """

    # Eigenvectors of Σ w_i (z_i − z̄)(z_i − z̄)ᵀ, (D, D).
    vectors: Any
    # 1/(λ + α), (D, n_alphas).
    shrinkage: Any
    # D − tr H, including the intercept, (n_alphas,); adding n − D gives the degrees of
    # freedom of the residual of n rows.
    freedom: np.ndarray
    # (D, n_alphas·k)
    weights: Any
    # z̄ and ȳ, (D,) and (k,); zero without an intercept.
    mean: Any
    target_mean: Any
    # Σ w_i; infinite without an intercept, so that this has no leverage.
    weight_sum: float

    @classmethod
    def of(
        cls, statistics: NormalEquations, alphas: Any, *, fit_intercept: bool
    ) -> PrimalPath:
        """Decompose the normal equations, whose Gram matrix is **overwritten**."""
        gram, cross, mean, target_mean = statistics.centred(
            fit_intercept, overwrite=True
        )
        ops = ops_of(gram)
        shifts = ops.float64_like(alphas, gram)
        vectors, shrinkage, weights = _solved(gram, cross, shifts)
        return cls(
            vectors=vectors,
            shrinkage=shrinkage,
            freedom=ops.to_host((shifts * shrinkage).sum(axis=0)) - fit_intercept,
            weights=weights,
            mean=mean,
            target_mean=target_mean,
            weight_sum=statistics.weight_sum if fit_intercept else np.inf,
        )

    def predict(self, Z: Any) -> Any:
        """Return predictions for rows of features, (n_alphas, n, k)."""
        return self._predict(Z - self.mean)

    def leave_one_out(self, Z: Any, Y: Any, weight: Any) -> Any:
        """Return the prediction for each row by a fit without it, (n_alphas, n, k)."""
        centred = Z - self.mean  # float64, like the mean
        ops = ops_of(Z)
        weight = ops.float64_ones(len(Z), Z) if weight is None else weight
        leverage = ((centred @ self.vectors) ** 2) @ self.shrinkage
        leverage += 1.0 / self.weight_sum
        freedom = (1.0 - weight[:, None] * leverage).clip(min=_MIN_FREEDOM)
        return Y - (Y - self._predict(centred)) / freedom.T[:, :, None]

    def _predict(self, centred: Any) -> Any:
        values = _by_penalty(centred @ self.weights, self.shrinkage.shape[1])
        return values + self.target_mean


@dataclass(frozen=True)
class DualPath:
    """The weights of rows at every penalty.

    Arrays are on the device of the Gram matrix, except for `freedom`.
    """

    # Its Gram matrix is overwritten.
    system: DualSystem
    # Y, (n, k).
    targets: Any
    # α, (n_alphas,).
    shifts: Any
    # (M + αI)⁻¹ S(Y − ȳ), (n, n_alphas·k).
    solved: Any
    # The diagonal of (I − H)/α, (n, n_alphas).
    diagonal: Any
    # tr(I − H), (n_alphas,).
    freedom: np.ndarray

    @classmethod
    def of(
        cls, gram: Any, Y: Any, weight: Any, alphas: Any, *, fit_intercept: bool
    ) -> DualPath:
        """Decompose a Gram matrix, which is **overwritten**; all w_i are positive."""
        n = len(gram)
        ops = ops_of(gram)
        system = DualSystem.of(gram, Y, weight, fit_intercept=fit_intercept)
        shifts = ops.float64_like(alphas, gram)
        vectors, shrinkage, solved = _solved(gram, system.right, shifts)
        diagonal = ops.float64_zeros((n, len(alphas)), gram)
        for rows in row_blocks(n, _TILE):
            diagonal[rows] = vectors[rows] ** 2 @ shrinkage
        of_null_vector = system.inverse_of_null_vector(shifts)
        diagonal -= system.share[:, None] * of_null_vector
        freedom = shrinkage.sum(axis=0) - of_null_vector
        diagonal = diagonal.clip(min=_MIN_FREEDOM / shifts)
        freedom = ops.to_host(shifts * freedom)
        return cls(system, Y, shifts, solved, diagonal, freedom)

    def predict(self, K: Any) -> Any:
        """Return predictions from kernel values of new rows and these, (m, n)."""
        dual, constant = self.system.weights_of(self.solved)
        values = _by_penalty(K @ dual + constant, len(self.shifts))
        return values + self.system.target_mean

    def residuals(self) -> Any:
        """Return Y − Ŷ, (n_alphas, n, k)."""
        return self.shifts[:, None, None] * self._unscaled()

    def leave_one_out(self) -> Any:
        """Return the prediction for each row by a fit without it, (n_alphas, n, k)."""
        return self.targets - self._unscaled() / self.diagonal.T[:, :, None]

    def _unscaled(self) -> Any:
        values = self.solved / self.system.root[:, None]
        return _by_penalty(values, len(self.shifts))
