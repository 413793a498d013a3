"""The matrices of ridge regression as products, for iterative solvers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend import cpu
from randkern.blocks import row_blocks, rows_within
from randkern.models._systems import power_of_two
from randkern.plan import Plan, evaluate

__all__ = ["FeatureOperator", "operator_bytes"]

# A block of features stays in the last level of the cache between the two
# products that it takes part in.
_BLOCK_BYTES = 16 * 2**20
_COLUMNS = 2048
# Sampled rows for every eigenpair of the preconditioner.
_OVERSAMPLING = 4
# Eigenvalues below this share of the first are rounding noise in float32.
_SMALLEST_SHARE = 1e-6


def operator_bytes(plan: Plan, X: Rows, n_targets: int, rank: int) -> int:
    """Memory of conjugate gradients on features that are not kept."""
    D, itemsize = plan.n_components, X.dtype.itemsize
    n_samples = min(X.shape[0], _OVERSAMPLING * rank)
    sample = 2 * 8 * n_samples**2 + n_samples * _COLUMNS * itemsize
    vectors = 8 * 10 * D * n_targets
    blocks = max(2 * _BLOCK_BYTES, 32 * D * itemsize)
    stored = plan.stored_bytes(itemsize)
    return D * rank * itemsize + sample + vectors + blocks + stored


class FeatureOperator:
    """The matrix Σ w_i (z_i − z̄)(z_i − z̄)ᵀ of features, never formed.

    Features are made again for every product, in blocks of rows that fit the
    cache, unless `kept_bytes` allows to keep them all.

    Parameters
    ----------
    plan : Plan
    X : Rows
    sample_weight : ndarray or None
    center : bool
        Whether to subtract the weighted means z̄.
    stream : Stream
        Seeds the sample of rows behind the preconditioner.
    kept_bytes : int
        Features are kept if they take no more than this.
    """

    def __init__(
        self,
        plan: Plan,
        X: Rows,
        sample_weight: np.ndarray | None,
        center: bool,
        stream: Stream,
        kept_bytes: int = 0,
    ):
        self.plan = plan
        self.X = X
        self.center = center
        self.stream = stream
        self.weight_unit = power_of_two(sample_weight)
        n = X.shape[0]
        weight = np.ones(n) if sample_weight is None else sample_weight
        self.weight = weight / self.weight_unit
        self.feature_sum = np.zeros(plan.n_components)
        itemsize = X.dtype.itemsize
        row_bytes = plan.n_components * itemsize
        self.block = rows_within(_BLOCK_BYTES, row_bytes, at_least=32) // 16 * 16
        self._kept: np.ndarray | None = None
        if n * row_bytes <= kept_bytes:
            self._kept = evaluate(plan, X)

    @property
    def size(self) -> int:
        return self.plan.n_components

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield rows and their features; the array is used again."""
        n = self.X.shape[0]
        if self._kept is not None:
            for rows in row_blocks(n, self.block):
                yield rows, self._kept[rows]
            return
        buffer = np.empty((min(self.block, n), self.size), self.X.dtype)
        for rows in row_blocks(n, self.block):
            out = buffer[: rows.stop - rows.start]
            yield rows, evaluate(self.plan, self.X[rows], out=out)

    def right_hand_side(self, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ, (D, k), and the means ȳ, (k,).

        Sets the sum of features that centring needs: call it first.
        """
        total = float(self.weight.sum())
        means = np.zeros(Y.shape[1])
        if self.center:
            means = self.weight @ Y / total
        targets = np.column_stack([(Y - means), np.ones(len(Y))])
        targets *= self.weight[:, None]
        size = np.abs(targets).max(axis=0)
        size[size == 0] = 1.0
        cross = np.zeros((self.size, targets.shape[1]))
        for rows, Z in self.blocks():
            cross += Z.T @ (targets[rows] / size).astype(Z.dtype)
        cross *= size
        self.feature_sum = cross[:, -1].copy()
        return cross[:, :-1], means

    def intercept(self, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return ȳ − z̄·W."""
        if not self.center:
            return np.zeros(weights.shape[1])
        return means - self.feature_sum @ weights / self.weight.sum()

    def matmat(self, V: np.ndarray) -> np.ndarray:
        """Return AV in float64; products within a block in the dtype of X."""
        size = float(np.abs(V).max(initial=0.0)) or 1.0
        right = (V / size).astype(self.X.dtype)
        out = np.zeros(V.shape)
        for rows, Z in self.blocks():
            inner = Z @ right
            inner *= self.weight[rows, None].astype(inner.dtype)
            out += Z.T @ inner
        out *= size
        if self.center:
            total = self.weight.sum()
            out -= np.outer(self.feature_sum, self.feature_sum @ V / total)
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return leading eigenpairs from a sample of rows.

        The eigenvalues of the sample's Gram matrix, scaled up to all rows,
        stand for those of A; u_i = Zₛᵀq_i/√λ_i for the eigenvectors.
        """
        n = self.X.shape[0]
        n_samples = min(n, _OVERSAMPLING * rank)
        rows = np.arange(n)
        if n_samples < n:
            generator = self.stream.child("sample").generator()
            rows = np.sort(generator.choice(n, n_samples, replace=False))
        root = np.sqrt(self.weight[rows])[:, None].astype(self.X.dtype)
        X = self.X[rows]
        gram = np.zeros((n_samples, n_samples))
        for columns in row_blocks(self.size, _COLUMNS):
            cpu.add_gram(self._sampled(X, columns, root).T, gram)
        first = max(0, n_samples - rank)
        values, vectors = scipy.linalg.eigh(
            gram.T, lower=True, subset_by_index=(first, n_samples - 1),
            overwrite_a=True, check_finite=False,
        )  # fmt: skip
        values, vectors = values[::-1], vectors[:, ::-1]
        kept = values > _SMALLEST_SHARE * max(values[0], np.finfo(float).tiny)
        values, vectors = values[kept], vectors[:, kept]
        transform = (vectors / np.sqrt(values)).astype(self.X.dtype)
        basis = np.empty((self.size, len(values)), self.X.dtype)
        for columns in row_blocks(self.size, _COLUMNS):
            basis[columns] = self._sampled(X, columns, root).T @ transform
        return values * (n / n_samples), _orthonormalised(basis)

    def _sampled(self, X: Rows, columns: slice, root: np.ndarray) -> np.ndarray:
        Z = evaluate(self.plan, X, columns)
        if self.center:
            Z -= self.feature_sum[columns] / self.weight.sum()
        Z *= root
        return Z


def _orthonormalised(basis: np.ndarray) -> np.ndarray:
    """Return nearly orthonormal columns made orthonormal (Cholesky QR)."""
    gram = np.zeros((basis.shape[1], basis.shape[1]))
    cpu.add_gram(basis, gram)
    factor = scipy.linalg.cholesky(gram, lower=False, check_finite=False)
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)))
    inverse = inverse.astype(basis.dtype)
    for rows in row_blocks(len(basis), _COLUMNS):
        basis[rows] = basis[rows] @ inverse
    return basis
