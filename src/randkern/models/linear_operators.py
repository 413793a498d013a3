"""The matrices of ridge regression as products, for iterative solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np

from randkern._random import Stream
from randkern._validation import Array
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.target_statistics import TargetStatistics
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models._feature_model import predict_by_rows
from randkern.models.feature_matrix import (
    FeatureMatrix,
    add_combinations,
)
from randkern.models.left_out import ProbedRows
from randkern.models.memory import (
    KERNEL_ROWS_PER_EIGENPAIR,
    KERNEL_TILE,
    ROWS_PER_EIGENPAIR,
)
from randkern.plan import Plan

# Cached rows per compiled call; only between calls can the fit be interrupted.
_ROWS_AT_ONCE = 2**17
# Eigenvalues below this share of the first are rounding noise in float32.
_SMALLEST_SHARE = 1e-6


class FeatureOperator:
    """The matrix Σ w_i (z_i − z̄)(z_i − z̄)ᵀ of features, never formed.

    Arrays of D rows are on the device of sums over shards. z are the features of the
    plan; `features` are these, or the raw columns of the plan. `feature_sum` is
    Σ w_i z_i, (D,), and z̄ its share of Σ w_i; without it, z̄ is 0. The stream seeds the
    sample of rows behind the preconditioner.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        plan: Plan,
        statistics: TargetStatistics,
        stream: Stream,
        feature_sum: Array = None,
    ):
        self.features = features
        self.plan = plan
        self.stream = stream
        self.feature_sum = feature_sum
        self.center = feature_sum is not None
        # vᵀAv is a sum of squares, each rounded relative to the largest.
        self.rounding = features.rounding
        self.precision = max(100 * self.rounding**2, float(np.finfo(float).eps))
        self.weight_sum = statistics.weight_sum
        self.size = plan.n_components
        # The means ȳ that are subtracted from the targets, (k,).
        self.means = statistics.target_mean
        # Σ w_i (y_i − ȳ)², the loss of W = 0, (k,).
        squares = statistics.target_squares
        if not self.center:
            squares = statistics.all_squares
            self.means = np.zeros_like(self.means)
        self.loss_without_features = squares

    @classmethod
    def with_right_hand_side(
        cls,
        features: FeatureMatrix,
        plan: Plan,
        statistics: TargetStatistics,
        stream: Stream,
        *,
        center: bool,
    ) -> tuple[Self, Array]:
        """Return the operator, and Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ, (D, k).

        That takes a pass over the rows, which also sums the features.
        """
        means = statistics.target_mean
        cross = features.reduce(_cross, means if center else np.zeros_like(means))
        cross = _solved(features, plan, cross.T)
        ops = ops_of(cross)
        feature_sum = ops.copy(cross[:, -1]) if center else None
        operator = cls(features, plan, statistics, stream, feature_sum)
        return operator, ops.contiguous(cross[:, :-1])

    @property
    def _mean(self) -> Array:
        """z̄, (D,)."""
        if not self.center:
            return ops_of(self.features.like).float64_zeros(
                self.size, self.features.like
            )
        return self.feature_sum / self.weight_sum

    def probes(self, probed: ProbedRows) -> Array:
        """Return the right-hand sides of probes, (D, s)."""
        return probed.right_hand_side(self.plan, self._columns_of(probed), self._mean)

    def _columns_of(self, probed: ProbedRows) -> Callable[[slice], Array]:
        """Return a function for raw columns at sampled rows, from the cache if any."""
        Z = self.features.cached
        if Z is None:
            return probed.columns(self.plan)
        take = ops_of(Z).take
        return lambda columns: take(Z[:, columns], probed.sample.numbers)

    def left_out_residuals(
        self, probed: ProbedRows, value: Array, of_probes: Array
    ) -> Any:
        """Return leave-one-out residuals of a solution and of those of the probes."""
        return probed.residuals_of_weights(
            self.plan,
            self._columns_of(probed),
            value,
            self.intercept(value),
            of_probes,
            self._mean,
            self.weight_sum if self.center else np.inf,
        )

    def intercept(self, weights: Array) -> Array:
        """Return ȳ − z̄·W."""
        ops = ops_of(weights)
        if not self.center:
            return ops.float64_zeros(weights.shape[1], weights)
        means = ops.float64_like(self.means, weights)
        return means - self.feature_sum @ weights / self.weight_sum

    @property
    def _has_raw_columns(self) -> bool:
        return self.features.plan is not self.plan

    def weights_of(self, value: Any) -> tuple[Any, Any]:
        """Return the weights of features and the intercepts of a solution."""
        return value, self.intercept(value)

    def value_of(self, weights: Array) -> Array:
        """Return the solution that has these weights of features."""
        return weights

    def matmat(self, V: Array) -> Array:
        """Return AV in float64; products within a block in the dtype of X."""
        ops = ops_of(V)
        right = self.plan.solve(V, transposed=True) if self._has_raw_columns else V
        # Columns of any size, none of which depends on the others.
        size = ops.column_max_abs(right)
        size = size + (size == 0)
        # Products are computed in the dtype of the features: send no more than that.
        right = ops.asarray((right / size).T, self.features.like)
        product = self.features.reduce(_product, right).T
        out = ops.contiguous(_solved(self.features, self.plan, product))
        out *= size
        if self.center:
            mean = self.feature_sum / self.weight_sum
            out -= mean[:, None] * (self.feature_sum @ V)
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return leading eigenpairs from a sample of rows.

        The eigenvalues of the sample's Gram matrix, scaled to all rows, estimate
        those of A; u_i = Zₛᵀq_i/√λ_i with its eigenvectors q_i.
        """
        n = self.features.n_rows
        n_samples = min(n, ROWS_PER_EIGENPAIR * rank)
        generator = self.stream.child("sample").generator()
        rows = np.sort(generator.choice(n, n_samples, replace=False))
        features, weight = self.features.sample(rows)
        like = self.features.like
        ops = ops_of(self.features.like)
        gram = ops.float64_zeros((n_samples, n_samples), like)
        for columns in row_blocks(self.size, KERNEL_TILE):
            ops.add_gram(self.scaled_features(features, weight, columns).T, gram)
        # Sums of products in single precision are no more accurate.
        values, vectors = _leading(ops.asarray(gram, like), rank)
        transform = ops.asarray(vectors / values**0.5, like)
        basis = ops.empty((self.size, len(values)), like)
        for columns in row_blocks(self.size, KERNEL_TILE):
            Z = self.scaled_features(features, weight, columns)
            basis[columns] = ops.precise_product(Z.T, transform)
        return ops.to_host(values) * (n / n_samples), _orthonormalised(basis)

    def approximation(self) -> Array:
        """Return the upper triangle of an estimate of A, None for random features.

        Row j of the factor T of landmarks holds the features of landmark j, so
        TᵀT·Σ_i w_i/m is the sum over the landmarks in place of all rows (Rudi,
        Carratino and Rosasco 2017, arXiv 1705.10958, section 3).
        """
        if not self._has_raw_columns:
            return None
        like = self.features.like
        ops = ops_of(like)
        factor = ops.float64_like(self.plan.triangle, like)
        gram = ops.float64_zeros((self.size, self.size), like)
        ops.add_gram(factor, gram)
        gram *= self.weight_sum / self.size
        return gram

    def scaled_features(
        self, features: Callable[[slice], Any], weight: Array, columns: slice
    ) -> Array:
        """Return some columns of sampled features, centred, with weighted rows."""
        Z = features(columns)
        asarray = ops_of(Z).asarray
        if self.center:
            Z -= asarray(self.feature_sum[columns] / self.weight_sum, Z)
        if weight is not None:
            Z *= asarray(weight**0.5, Z)[:, None]
        return Z


def _solved(features: FeatureMatrix, plan: Plan, V: Array) -> Array:
    """Return sums over `features` as sums over the features of the plan."""
    return V if features.plan is plan else plan.solve(V)


def _cross(features: FeatureMatrix, means: np.ndarray) -> Any:
    """Return Σ w_i z_i (y_i − means, 1), transposed: shape (k + 1, D)."""
    like, D = features.like, features.plan.n_components
    ops = ops_of(like)
    center = ops_of(like).float64_like(means, like)
    out = ops.float64_zeros((len(means) + 1, features.width), like)
    for block in features.blocks(features.block_rows):
        targets = ops.hstack(
            [block.Y - center, ops.float64_ones((len(block.Y), 1), like)]
        )
        for multiplier in (block.weight, block.scales):
            if multiplier is not None:
                targets *= multiplier[:, None]
        add_combinations(block.values, targets, out)
    return out[:, :D]


def _product(features: FeatureMatrix, V: Array) -> Any:
    """Return Σ w_i z_i z_iᵀ V, transposed.

    V is transposed, of shape (k, D), with entries of at most about 1.
    """
    like = features.like
    k, D = V.shape
    ops = ops_of(like)
    thin = ops_of(like).skinny_gemm
    right = thin.empty_padded(k, D, like)
    right[:, :D] = ops.asarray(V, like)
    out = ops.float64_zeros((k, features.width), like)
    for block in features.blocks(_ROWS_AT_ONCE):
        row_weights = ops.float64_ones(len(block.values), like)
        if block.scales is not None:
            row_weights *= block.scales**2
        if block.weight is not None:
            row_weights *= block.weight
        packed = thin.pack(right, block.values)
        thin.add_gram_product(block.values, row_weights, packed, out)
    return out[:, :D]


class KernelOperator:
    """The matrix S(I − 1sᵀ) K (I − s1ᵀ)S of the exact kernel, S = diag(√w).

    w are the weights of the rows, and s the normalised ones w/Σw
    with `center`, else 0. Only the upper triangle of the symmetric K is computed, in
    tiles, in the dtype and on the device of the rows. As many tiles as `cache_bytes`
    allow are cached, the others are recomputed for every product. The stream seeds the
    sample of rows behind the preconditioner.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: ArrayRows,
        stream: Stream,
        cache_bytes: int,
        *,
        center: bool,
    ):
        self.kernel = kernel
        self.rows = rows
        self.center = center
        self.stream = stream
        X = self.X = rows.X
        ops = self._ops = ops_of(X)
        statistics = rows.survey()
        _, weight = rows.targets()
        self.root = weight**0.5
        self.share = weight / weight.sum() if center else 0.0 * weight
        mean = statistics.target_mean
        self.means = ops.float64_like(mean if center else 0.0 * mean, X)
        self.precision = self.rounding = float(np.finfo(ops.numpy_dtype(X)).eps)
        # Of products with rows of the uncentred matrix.
        with np.errstate(over="ignore"):
            diagonal = ops.asarray(kernel._diag(X), X)
        if not ops.is_finite(diagonal):  # it holds the largest values
            raise ValueError(
                f"values of {type(kernel).__name__} overflow {ops.numpy_dtype(X)}; "
                "scale the input down (for instance with "
                "sklearn.preprocessing.MaxAbsScaler), or pass float64 rows."
            )
        trace = weight @ ops.as_float64(diagonal)
        self.noise = self.rounding / 2 * float(trace)
        self._side = ops.skinny_gemm.padded(min(X.shape[0], KERNEL_TILE))
        self._ranges = list(row_blocks(X.shape[0], KERNEL_TILE))
        self.size = X.shape[0]
        self._buffer = self._empty_tile()
        self._cached: dict[tuple[int, int], Any] = {}
        self._n_cached = cache_bytes // (self._side**2 * X.dtype.itemsize)

    def _empty_tile(self) -> Any:
        return self._ops.skinny_gemm.empty_padded(self._side, self._side, self.X)

    def _tiles(self) -> Iterator[tuple[int, int, Any]]:
        """Yield tiles of the upper triangle, with zeros beyond the last row."""
        for i, rows in enumerate(self._ranges):
            for j in range(i, len(self._ranges)):
                tile = self._cached.get((i, j))
                if tile is None:
                    tile = self._buffer
                    if len(self._cached) < self._n_cached:
                        tile = self._cached[i, j] = self._empty_tile()
                    columns = self._ranges[j]
                    other = None if i == j else self.X[columns]
                    values = self.kernel._gram(self.X[rows], other, precise=False)
                    tile[: values.shape[0], : values.shape[1]] = values
                    tile[:, values.shape[1] :] = 0.0
                yield i, j, tile

    def product(self, V: Array) -> Array:
        """Return KV in float64, for V of shape (n, k)."""
        ops = self._ops
        thin = self._ops.skinny_gemm
        k = V.shape[1]
        size = ops.largest_or_zero(abs(V)) or 1.0
        lengths = [rows.stop - rows.start for rows in self._ranges]
        right = [thin.empty_padded(k, self._side, self.X) for _ in lengths]
        sums = [ops.float64_zeros((k, self._side), self.X) for _ in lengths]
        for rows, n, part in zip(self._ranges, lengths, right, strict=True):
            part[:, :n] = V[rows].T / size
            part[:, n:] = 0.0
        for i, j, tile in self._tiles():
            tile = tile[: lengths[i]]
            sums[i][:, : lengths[i]] += thin.multiply(tile, right[j]).T
            if i != j:
                left = thin.pack(right[i][:, : lengths[i]].T, tile)
                thin.add_transposed(tile, left, sums[j])
        out = ops.float64_zeros(V.shape, self.X)
        for rows, n, part in zip(self._ranges, lengths, sums, strict=True):
            out[rows] = part[:, :n].T
        out *= size
        return out

    def right_hand_side(self) -> Array:
        """Return S(Y − ȳ), (n, k)."""
        return self.root[:, None] * (self.rows.Y - self.means)

    def weights_of(self, value: Any) -> tuple[Any, Any]:
        """Return the weights of rows and the intercepts of a solution."""
        dual = self.dual(value)
        return dual, self.means - self._means_of(dual)

    def value_of(self, weights: Array) -> Array:
        """Return a solution that has these weights of rows."""
        return weights / (self.root + (self.root == 0))[:, None]

    @cached_property
    def _mean_kernel(self) -> Array:
        """The weighted means of kernel values of all rows, (n,): one product."""
        return self.product(self.share[:, None])[:, 0]

    def _means_of(self, dual: Array) -> Array:
        """Return the weighted means sᵀKA of the values of weights; 0 if not centred."""
        if not self.center:
            return 0.0 * dual[0]
        return self._mean_kernel @ dual

    def probes(self, probed: ProbedRows) -> Array:
        """Return S(V − v̄) for probes at sampled rows, (n, s)."""
        numbers, probes = probed.sample.numbers, probed.probes
        out = self._ops.float64_zeros((self.size, probes.shape[1]), self.X)
        out[numbers] = probes
        out -= self.share[numbers] @ probes
        return self.root[:, None] * out

    def left_out_residuals(
        self, probed: ProbedRows, value: Array, of_probes: Array
    ) -> Any:
        """Return leave-one-out residuals of a solution and of those of the probes."""
        dual = self.dual(self._ops.hstack([value, of_probes]))
        values = predict_by_rows(self.kernel, self.X, dual, probed.sample.rows.X)
        means = self.share[probed.sample.numbers] @ probed.probes
        means = self._ops.hstack([self.means, means])
        values = values + means - self._means_of(dual)
        k = value.shape[1]
        return probed.left_out_residuals(values[:, :k], values[:, k:])

    def dual(self, V: Array) -> Array:
        """Return (I − s1ᵀ)SV, the weights of rows for a solution."""
        U = self.root[:, None] * V
        U -= self.share[:, None] * U.sum(axis=0)
        return U

    def matmat(self, V: Array) -> Array:
        """Return AV in float64; products within a tile in the dtype of X."""
        out = self.product(self.dual(V))
        out -= self.share @ out
        out *= self.root[:, None]
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return the leading eigenpairs of a Nyström approximation.

        A ≈ C K_m⁻¹ Cᵀ with the columns C of A's factor and the matrix K_m of m sampled
        rows (Williams and Seeger 2001).
        """
        ops = self._ops
        generator = self.stream.child("sample").generator()
        usable = ops.flatnonzero(self.root)
        n_samples = min(KERNEL_ROWS_PER_EIGENPAIR * rank, len(usable))
        sampled = np.sort(generator.choice(len(usable), n_samples, replace=False))
        X = ops.take(self.X, ops.take(usable, sampled))
        gram = ops.as_float64(self.kernel._gram(X, None))
        values, vectors = _leading(gram, n_samples)
        inverse_root = ops.asarray(vectors / values**0.5, self.X)
        factor = ops.empty((self.size, len(values)), self.X)
        means = ops.float64_zeros(len(values), self.X)
        for rows in self._ranges:
            columns = self.kernel._gram(self.X[rows], X, precise=False)
            factor[rows] = ops.precise_product(columns, inverse_root)
            means += self.share[rows] @ ops.as_float64(factor[rows])
        factor -= ops.asarray(means, factor)
        factor *= ops.asarray(self.root, factor)[:, None]
        inner = ops.float64_zeros((len(values), len(values)), self.X)
        ops.add_gram(factor, inner)
        values, vectors = _leading(inner, rank)
        turn = ops.asarray(vectors / values**0.5, factor)
        basis = ops.precise_product(factor, turn)
        return ops.to_host(values), basis


def _leading(gram: Array, rank: int) -> tuple[Any, Any]:
    """Return the leading eigenpairs, descending, given the upper triangle."""
    values, vectors = ops_of(gram).algebra.leading_eigenpairs(gram, rank)
    if not len(values):  # they are not finite
        raise ValueError(
            "products of features or of kernel values overflow; scale the input down "
            "(for instance with sklearn.preprocessing.MaxAbsScaler), or pass float64 "
            "rows."
        )
    largest = max(float(values[0]), np.finfo(float).tiny)
    significant = values > _SMALLEST_SHARE * largest
    return values[significant], vectors[:, significant]


def _orthonormalised(basis: Array) -> Any:
    """Orthonormalise columns that are nearly orthonormal (Cholesky QR)."""
    ops = ops_of(basis)
    gram = ops.float64_zeros((basis.shape[1], basis.shape[1]), basis)
    ops.add_gram(basis, gram)
    inverse = ops.asarray(ops.algebra.inverse_factor(gram), basis)
    for rows in row_blocks(len(basis), KERNEL_TILE):
        basis[rows] = ops.precise_product(basis[rows], inverse)
    return basis
