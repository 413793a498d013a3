"""Ridge regression at every penalty at once, from one eigendecomposition.

With M = V diag(λ) Vᵀ the matrix of a system of :mod:`randkern.models._systems`,
(M + αI)⁻¹ = V diag(1/(λ + α)) Vᵀ for every α. The hat matrix H of a fit, its
intercept included, then gives the residual that row i has in a fit without it,

e_i = (y_i − ŷ_i)/(1 − H_ii),

features and kernel being kept, and the generalised cross-validation score, in
which the mean of H_ii stands for each of them (Golub, Heath and Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.models._systems import (
    NormalEquations,
    mirrored,
    power_of_two,
    symmetric_product,
)

__all__ = ["DualPath", "PrimalPath", "added", "eigenpairs", "mirrored"]

_TILE = 1024
# LAPACK's divide and conquer overwrites the matrix by its eigenvectors and takes
# a workspace of twice its size.
EIGH_WORKSPACE = 2
# A residual of a fit that goes through its row says nothing about that row.
_LEAST_FREEDOM = np.finfo(float).eps


def eigenpairs(matrix: Any) -> tuple[Any, Any]:
    """Return eigenvalues, at least 0, and eigenvectors, (n, n), of M ⪰ 0.

    `matrix` is C-contiguous float64; its upper triangle is read, and it is
    **overwritten**.
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
    return values.clip(min=0.0), vectors


def added(parts: list[NormalEquations]) -> NormalEquations:
    """Return the statistics of all rows from those of some rows each."""
    first, *others = parts
    copy = ops_of(first.gram).copy
    total = replace(
        first,
        gram=copy(first.gram),
        cross=copy(first.cross),
        feature_sum=copy(first.feature_sum),
        target_sum=copy(first.target_sum),
    )
    for part in others:
        total.gram += part.gram
        total.cross += part.cross
        total.feature_sum += part.feature_sum
        total.target_sum += part.target_sum
        total.weight_sum += part.weight_sum
    return total


def _by_penalty(values: Any, n_alphas: int) -> Any:
    """Return (n, n_alphas·k) as (n_alphas, n, k)."""
    return values.reshape(len(values), n_alphas, -1).swapaxes(0, 1)


@dataclass(frozen=True)
class PrimalPath:
    """The weights of features at every penalty.

    Arrays lie where the normal equations do, but for `freedom`.

    Attributes
    ----------
    vectors : array of shape (D, D)
        Eigenvectors of Σ w_i (z_i − z̄)(z_i − z̄)ᵀ.
    shrinkage : array of shape (D, n_alphas)
        1/(λ + α).
    freedom : ndarray of shape (n_alphas,)
        D − tr H, with the intercept: n − D more are the degrees of freedom of the
        residual of n rows.
    weights : array of shape (D, n_alphas·k)
    mean, target_mean : array of shape (D,), (k,)
        z̄ and ȳ; zero without an intercept.
    weight_unit : float
        The unit of the weights w_i within.
    weight_sum : float
        Σ w_i; infinite without an intercept, which then has no leverage.
    """

    vectors: Any
    shrinkage: Any
    freedom: np.ndarray
    weights: Any
    mean: Any
    target_mean: Any
    weight_unit: float
    weight_sum: float

    @classmethod
    def of(
        cls, statistics: NormalEquations, alphas: np.ndarray, fit_intercept: bool
    ) -> PrimalPath:
        """Decompose the normal equations, whose Gram matrix is **overwritten**."""
        gram, cross = statistics.gram, statistics.cross
        ops = ops_of(gram)
        mean, target_mean = ops.zeros(len(gram), gram), ops.zeros(cross.shape[1], gram)
        if fit_intercept:
            mean = statistics.feature_sum / statistics.weight_sum
            target_mean = statistics.target_sum / statistics.weight_sum
            for rows in row_blocks(len(gram), _TILE):
                gram[rows] -= mean[rows, None] * statistics.feature_sum
            cross = cross - mean[:, None] * statistics.target_sum
        values, vectors = eigenpairs(gram)
        unit = statistics.weight_unit or 1.0
        shifts = ops.float64_like(alphas / unit, gram)
        shrinkage = 1.0 / (values[:, None] + shifts)
        rotated = shrinkage[:, :, None] * (vectors.T @ cross)[:, None, :]
        return cls(
            vectors=vectors,
            shrinkage=shrinkage,
            freedom=ops.to_host((shifts * shrinkage).sum(axis=0)) - fit_intercept,
            weights=vectors @ rotated.reshape(len(gram), -1),
            mean=mean,
            target_mean=target_mean,
            weight_unit=unit,
            weight_sum=statistics.weight_sum if fit_intercept else np.inf,
        )

    def predict(self, Z: Any) -> Any:
        """Return predictions for rows of features, (n_alphas, n, k)."""
        return self._predict(Z - self.mean)

    def leave_one_out(self, Z: Any, Y: Any, weight: Any) -> Any:
        """Return what fits without row i predict for it, (n_alphas, n, k)."""
        centred = Z - self.mean  # float64, as the mean is
        ops = ops_of(Z)
        relative = ops.ones(len(Z), Z) if weight is None else weight / self.weight_unit
        leverage = ((centred @ self.vectors) ** 2) @ self.shrinkage
        leverage += 1.0 / self.weight_sum
        freedom = (1.0 - relative[:, None] * leverage).clip(min=_LEAST_FREEDOM)
        return Y - (Y - self._predict(centred)) / freedom.T[:, :, None]

    def _predict(self, centred: Any) -> Any:
        values = _by_penalty(centred @ self.weights, self.shrinkage.shape[1])
        return values + self.target_mean


@dataclass(frozen=True)
class DualPath:
    """The weights of rows at every penalty.

    Arrays lie where the Gram matrix does, but for `freedom`.

    Attributes
    ----------
    targets : array of shape (n, k)
        Y.
    root : ndarray of shape (n,)
        √w_i, the weights being relative to `weight_unit`.
    solved : ndarray of shape (n, n_alphas·k)
        C = (K̃ + αI)⁻¹ S(Y − ȳ), with K̃ = S(K − centring)S and S = diag(√w_i).
    diagonal : ndarray of shape (n, n_alphas)
        That of (I − H)/α.
    freedom : ndarray of shape (n_alphas,)
        tr(I − H).
    shifts : ndarray of shape (n_alphas,)
        α over the unit of the weights.
    means, target_mean : ndarray of shape (n,), (k,)
        Of the columns of K and of Y; zero without an intercept.
    """

    targets: Any
    root: Any
    solved: Any
    diagonal: Any
    freedom: np.ndarray
    shifts: Any
    means: Any
    target_mean: Any
    fit_intercept: bool

    @classmethod
    def of(
        cls,
        gram: Any,
        Y: Any,
        weight: Any,
        alphas: np.ndarray,
        fit_intercept: bool,
    ) -> DualPath:
        """Decompose a Gram matrix, which is **overwritten**; all w_i are positive."""
        n, n_targets = Y.shape
        unit = power_of_two(weight)
        ops = ops_of(gram)
        relative = ops.ones(n, gram) if weight is None else weight / unit
        root, shifts = relative**0.5, ops.float64_like(alphas / unit, gram)
        means, target_mean = ops.zeros(n, gram), ops.zeros(n_targets, gram)
        added_value = 0.0
        share = relative / relative.sum()
        if fit_intercept:
            target_mean = share @ Y
            means = symmetric_product(gram, share)
            grand = float(share @ means)
        for rows in row_blocks(n, _TILE):
            if fit_intercept:
                gram[rows] -= means[rows, None] + means - grand
            gram[rows] *= root[rows, None] * root
        if fit_intercept:
            # K̃ has the null vector √share, that of the intercept. It is given the
            # eigenvalue tr K̃: near zero rounding would decide what it adds.
            added_value = float(gram.diagonal().sum()) or 1.0
            null = (added_value * share) ** 0.5
            for rows in row_blocks(n, _TILE):
                gram[rows] += null[rows, None] * null
        values, vectors = eigenpairs(gram)
        shrinkage = 1.0 / (values[:, None] + shifts)
        rotated = vectors.T @ (root[:, None] * (Y - target_mean))
        solved = (shrinkage[:, :, None] * rotated[:, None, :]).reshape(n, -1)
        diagonal = ops.zeros((n, len(alphas)), gram)
        for rows in row_blocks(n, _TILE):
            diagonal[rows] = vectors[rows] ** 2 @ shrinkage
        freedom = shrinkage.sum(axis=0)
        if fit_intercept:
            diagonal -= share[:, None] / (added_value + shifts)
            freedom -= 1.0 / (added_value + shifts)
        return cls(
            targets=Y,
            root=root,
            solved=vectors @ solved,
            diagonal=diagonal.clip(min=_LEAST_FREEDOM / shifts),
            freedom=ops.to_host(shifts * freedom),
            shifts=shifts,
            means=means,
            target_mean=target_mean,
            fit_intercept=fit_intercept,
        )

    @property
    def n_alphas(self) -> int:
        return len(self.shifts)

    def predict(self, K: Any) -> Any:
        """Return predictions from kernel values of new rows with these, (m, n)."""
        dual = self.root[:, None] * self.solved
        constant = ops_of(dual).zeros(dual.shape[1], dual)
        if self.fit_intercept:
            share = self.root**2 / (self.root**2).sum()
            dual -= share[:, None] * dual.sum(axis=0)
            constant = -self.means @ dual
        return _by_penalty(K @ dual + constant, self.n_alphas) + self.target_mean

    def residuals(self) -> Any:
        """Return Y − Ŷ, (n_alphas, n, k)."""
        unscaled = _by_penalty(self.solved / self.root[:, None], self.n_alphas)
        return self.shifts[:, None, None] * unscaled

    def leave_one_out(self) -> Any:
        """Return what fits without row i predict for it, (n_alphas, n, k)."""
        unscaled = _by_penalty(self.solved / self.root[:, None], self.n_alphas)
        return self.targets - unscaled / self.diagonal.T[:, :, None]
