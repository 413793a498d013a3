"""The matrices of ridge regression as products, for iterative solvers."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from randkern._random import Stream
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.models._feature_blocks import FeatureBlocks, feature_block_rows
from randkern.models._rows import TrainingRows
from randkern.models._survey import Survey
from randkern.models._systems import check_rank_memory
from randkern.plan import Plan

__all__ = ["FeatureOperator", "LocalParts", "Parts", "leading", "operator_memory"]

_COLUMNS = 2048
# Sampled rows for every eigenpair of the preconditioner.
_OVERSAMPLING = 4
# Eigenvalues below this share of the first are rounding noise in float32.
_SMALLEST_SHARE = 1e-6


def operator_memory(
    plan: Plan, rows: Any, n_targets: int, solver: Any, limit: int
) -> tuple[int, int]:
    """Return how many bytes an iterative solver takes on features that are not kept.

    Also how many rows a block of features has: fewer where memory is short.
    """
    D, itemsize = plan.n_components, rows.dtype.itemsize
    stored, padded = plan.stored_bytes(itemsize), ops_of(rows.like).skinny_gemm.padded

    def n_bytes(n_components: int, rank: int, block: int) -> int:
        n_samples = min(rows.n_rows, _OVERSAMPLING * rank)
        columns = min(_COLUMNS, n_components)
        sample = 2 * 8 * n_samples**2 + n_samples * columns * itemsize
        vectors = 8 * 12 * n_components * n_targets
        blocks = 2 * min(block, rows.n_rows) * padded(n_components) * itemsize
        basis = n_components * rank * itemsize
        projection = -(-stored * n_components // D)
        return basis + max(sample, vectors) + blocks + projection

    rank, sizes = solver.chosen_rank(D), feature_block_rows(D, rows.like)
    for block in sizes:
        if n_bytes(D, rank, block) <= limit:
            return n_bytes(D, rank, block), block

    def least_bytes(n_components: int) -> int:
        return n_bytes(n_components, solver.chosen_rank(n_components), sizes[-1])

    # A projection may come in blocks.
    fewer = bisect.bisect_right(range(D), 0.8 * limit, key=least_bytes) - 1
    check_rank_memory(
        lambda rank: n_bytes(D, rank, sizes[-1]),
        rank,
        limit,
        f"solving for n_components={D} with {rank} eigenpairs",
        type(solver).__name__,
        f"Use n_components={fewer}" if fewer > 0 else "",
    )
    raise AssertionError("unreachable: the last size has been found too large")


class Parts(Protocol):
    """Training rows, wherever they are, and sums over them, where `like` is."""

    n_rows: int
    like: Any

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> Any: ...

    def product(self, V: Any) -> Any: ...

    def sample(self, rows: np.ndarray) -> tuple[Callable[[slice], Any], Any]: ...


class LocalParts:
    """Rows that this process reads."""

    def __init__(
        self,
        plan: Plan,
        rows: TrainingRows,
        weight_unit: float,
        kept_bytes: int = 0,
        compress: bool = False,
        block: int | None = None,
    ):
        self.features = FeatureBlocks(
            plan, rows, kept_bytes, compress, weight_unit, block
        )
        self.n_rows, self.like = rows.n_rows, rows.like
        self.cross = self.features.cross
        self.product = self.features.product
        self.sample = self.features.sample


class FeatureOperator:
    """The matrix Σ w_i (z_i − z̄)(z_i − z̄)ᵀ of features, never formed.

    What has D rows lies where the parts join their sums.

    Parameters
    ----------
    plan : Plan
    parts : Parts
        The rows, with weights relative to the survey's unit.
    survey : Survey
    center : bool
        Whether to subtract the weighted means z̄.
    stream : Stream
        Seeds the sample of rows behind the preconditioner.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        survey: Survey,
        center: bool,
        stream: Stream,
    ):
        self.plan = plan
        self.parts = parts
        self.survey = survey
        self.center = center
        self.stream = stream
        # vᵀAv is a sum of squares, each rounded relative to the largest.
        self.rounding = float(np.finfo(ops_of(parts.like).numpy_dtype(parts.like)).eps)
        self.precision = max(100 * self.rounding**2, float(np.finfo(float).eps))
        self.weight_unit = survey.weight_unit
        self.feature_sum = ops_of(parts.like).zeros(plan.n_components, parts.like)

    @property
    def size(self) -> int:
        return self.plan.n_components

    @property
    def _weight_sum(self) -> float:
        return self.survey.weight_sum / self.weight_unit

    @property
    def means(self) -> np.ndarray:
        """The means ȳ that are subtracted from the targets, (k,)."""
        mean = self.survey.target_mean
        return mean if self.center else np.zeros_like(mean)

    @property
    def loss_without_features(self) -> np.ndarray:
        """Σ w_i (y_i − ȳ)², (k,): the loss of W = 0."""
        survey = self.survey
        squares = survey.target_squares if self.center else survey.moments.all_squares
        return squares / self.weight_unit

    def right_hand_side(self) -> Any:
        """Return Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ, (D, k).

        Sets the sum of features that centring needs: call it first.
        """
        sizes = np.sqrt(self.loss_without_features / max(self._weight_sum, 1e-300))
        sizes[sizes == 0] = 1.0
        cross = self.parts.cross(self.means, sizes)
        ops = ops_of(cross)
        self.feature_sum = ops.copy(cross[-1])
        sizes = ops.float64_like(sizes, cross)
        return ops.contiguous((cross[:-1] * sizes[:, None]).T)

    def intercept(self, weights: Any) -> Any:
        """Return ȳ − z̄·W."""
        ops = ops_of(weights)
        if not self.center:
            return ops.zeros(weights.shape[1], weights)
        means = ops.float64_like(self.means, weights)
        return means - self.feature_sum @ weights / self._weight_sum

    def matmat(self, V: Any) -> Any:
        """Return AV in float64; products within a block in the dtype of X."""
        ops = ops_of(V)
        size = ops.largest(abs(V)) or 1.0
        out = ops.contiguous(self.parts.product((V / size).T).T)
        out *= size
        if self.center:
            mean = self.feature_sum / self._weight_sum
            out -= mean[:, None] * (self.feature_sum @ V)
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return leading eigenpairs from a sample of rows.

        The eigenvalues of the sample's Gram matrix, scaled up to all rows,
        stand for those of A; u_i = Zₛᵀq_i/√λ_i for the eigenvectors.
        """
        n = self.parts.n_rows
        n_samples = min(n, _OVERSAMPLING * rank)
        if n_samples < n:
            generator = self.stream.child("sample").generator()
            rows = np.sort(generator.choice(n, n_samples, replace=False))
        else:
            rows = np.arange(n)
        features, weight = self.parts.sample(rows)
        like = features(slice(0, 1))
        ops = ops_of(like)
        if weight is None:
            weight = ops.ones(n_samples, like)
        root = ops.asarray(weight**0.5, like)[:, None]
        gram = ops.zeros((n_samples, n_samples), like)
        for columns in row_blocks(self.size, _COLUMNS):
            ops.add_gram(self._scaled(features(columns), columns, root).T, gram)
        # Sums of products in single precision have no digits for more.
        values, vectors = leading(ops.asarray(gram, like), rank)
        transform = ops.asarray(vectors / values**0.5, like)
        basis = ops.empty((self.size, len(values)), like)
        for columns in row_blocks(self.size, _COLUMNS):
            Z = self._scaled(features(columns), columns, root)
            basis[columns] = Z.T @ transform
        return ops.to_host(values) * (n / n_samples), _orthonormalised(basis)

    def _scaled(self, Z: Any, columns: slice, root: Any) -> Any:
        """Centre some columns of sampled features, and weight their rows."""
        if self.center:
            Z -= ops_of(Z).asarray(self.feature_sum[columns] / self._weight_sum, Z)
        Z *= root
        return Z


def leading(gram: Any, rank: int) -> tuple[Any, Any]:
    """Return leading eigenpairs, falling, of a matrix given by its upper triangle."""
    values, vectors = ops_of(gram).algebra.leading_eigenpairs(gram, rank)
    largest = max(float(values[0]), np.finfo(float).tiny)
    kept = values > _SMALLEST_SHARE * largest
    return values[kept], vectors[:, kept]


def _orthonormalised(basis: Any) -> Any:
    """Return nearly orthonormal columns made orthonormal (Cholesky QR)."""
    ops = ops_of(basis)
    gram = ops.zeros((basis.shape[1], basis.shape[1]), basis)
    ops.add_gram(basis, gram)
    inverse = ops.asarray(ops.algebra.inverse_factor(gram), basis)
    for rows in row_blocks(len(basis), _COLUMNS):
        basis[rows] = basis[rows] @ inverse
    return basis
