"""The linear systems behind ridge regression, accumulated block by block.

With rows z_i of features, targets y_i, weights w_i and z̄, ȳ their weighted
means (0 without an intercept):

primal  (Σ w_i (z_i − z̄)(z_i − z̄)ᵀ + αI) W = Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ
dual    (S(K − centring)S + αI) A = S(Y − ȳ),  S = diag(√w_i)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._memory import check_memory
from randkern._tensors import is_tensor
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.backend.products import GRAM_COLUMNS
from randkern.data import row_blocks, rows_within
from randkern.data.target_statistics import unit_of
from randkern.kernels import Kernel
from randkern.plan import Plan, evaluate
from randkern.solvers import Solution, cholesky_bytes, cholesky_for

__all__ = [
    "NormalEquations",
    "check_memory",
    "check_rank_memory",
    "dual_bytes",
    "exact_gram",
    "feature_gram",
    "feature_gram_bytes",
    "mirrored",
    "solve_dual",
]

# A block of features: long enough for matrix products at full speed.
_BLOCK_BYTES = 64 * 10**6
_COLUMNS = 1024
# Tiles of that size that exact values may take at a time.
_TILES = 6
_CROSS_ROWS = 512
# Phases of so many rows are there while features are made of them.
_MADE_ROWS = 1024


def check_rank_memory(
    n_bytes: Callable[[int], int],
    rank: int,
    limit: int,
    what: str,
    solver: str,
    otherwise: str = "",
) -> None:
    """Raise if a preconditioner of this rank exceeds `limit`, naming one that does not.

    `otherwise` is the advice where none does.
    """
    fitting = bisect.bisect_right(range(rank), limit, key=n_bytes) - 1
    advice = f"Use a smaller rank, as solver={solver}(rank={fitting})"
    check_memory(n_bytes(rank), limit, what, advice if fitting >= 0 else otherwise)


def feature_block_rows(plan: Plan, itemsize: int) -> int:
    """Return how many rows of features make a block."""
    return rows_within(_BLOCK_BYTES, plan.n_components * itemsize, at_least=256)


@dataclass
class NormalEquations:
    """Sufficient statistics of ridge regression on features, in float64."""

    gram: np.ndarray
    cross: np.ndarray
    feature_sum: np.ndarray
    target_sum: np.ndarray
    weight_sum: float = 0.0
    # Rows are weighted relative to this power of two, so that no weight leaves
    # the range of float32; the penalty is divided by it.
    weight_unit: float | None = None

    @classmethod
    def empty(
        cls,
        n_components: int,
        n_targets: int,
        weight_unit: float | None = None,
        like: Rows = None,
    ) -> NormalEquations:
        """Return those of no rows, where the array `like` lies."""
        zeros = ops_of(like).zeros
        return cls(
            zeros((n_components, n_components), like),
            zeros((n_components, n_targets), like),
            zeros(n_components, like),
            zeros(n_targets, like),
            weight_unit=weight_unit,
        )

    @staticmethod
    def n_bytes(
        plan: Plan, n_rows: int, n_targets: int, itemsize: int, like: Rows = None
    ) -> int:
        """Memory of the statistics, the projection and one block of features.

        With `like`, an array, also what solving takes where it lies.
        """
        D = plan.n_components
        rows = min(feature_block_rows(plan, itemsize), n_rows)
        block = rows * D * itemsize + _block_temporaries(rows, D, itemsize)
        targets = 8 * n_targets * (n_rows + 2 * D)
        solving = 8 * D**2 + cholesky_bytes(D, like)
        return solving + targets + plan.stored_bytes(itemsize) + block

    def add(
        self, plan: Plan, X: Rows, Y: np.ndarray, sample_weight: np.ndarray | None
    ) -> None:
        """Add rows; `Y` has shape (n, k)."""
        if self.weight_unit is None:
            self.weight_unit = power_of_two(sample_weight)
        block = feature_block_rows(plan, X.dtype.itemsize)
        ops = ops_of(X)
        buffer = ops.empty((min(block, X.shape[0]), plan.n_components), X)
        for rows in row_blocks(X.shape[0], block):
            Z = evaluate(plan, X[rows], out=buffer[: rows.stop - rows.start])
            targets = Y[rows]
            root = ops.ones((len(targets), 1), X)
            if sample_weight is not None:
                root = ((sample_weight[rows] / self.weight_unit) ** 0.5)[:, None]
                Z *= ops.asarray(root, Z)
            ops.add_gram(Z, self.gram)
            # The mean of the targets may be far larger than what is left of them
            # once it is subtracted: their products are taken in float64.
            right = ops.hstack([targets * root, root])
            products = ops.zeros((plan.n_components, right.shape[1]), X)
            for part in row_blocks(len(right), _CROSS_ROWS):
                products += ops.as_float64(Z[part]).T @ right[part]
            self.cross += products[:, :-1]
            self.feature_sum += products[:, -1]
            self.target_sum += (targets * root**2).sum(axis=0)
            self.weight_sum += float((root**2).sum())

    def __add__(self, other: NormalEquations) -> NormalEquations:
        """Return those of the rows of both, whose weights have one unit."""
        return NormalEquations(
            self.gram + other.gram,
            self.cross + other.cross,
            self.feature_sum + other.feature_sum,
            self.target_sum + other.target_sum,
            self.weight_sum + other.weight_sum,
            self.weight_unit,
        )

    def saved(self) -> Callable[[], None]:
        """Return a function that undoes what is added from now on.

        Of an array only the upper triangle is added to: it is copied below the
        diagonal, which takes no memory. Tensors are copied as a whole.
        """
        gram, ops = self.gram, ops_of(self.gram)
        before = replace(
            self,
            gram=ops.copy(gram) if is_tensor(gram) else mirrored(gram).T,
            cross=ops.copy(self.cross),
            feature_sum=ops.copy(self.feature_sum),
            target_sum=ops.copy(self.target_sum),
        )
        diagonal = ops.copy(gram.diagonal())

        def undo() -> None:
            vars(self).update(vars(before) | {"gram": gram})
            for rows in row_blocks(len(gram), _COLUMNS):
                upper = ops.triu(before.gram[rows, rows.start :], 1)
                gram[rows, rows.start :] = upper
            ops.algebra.add_to_diagonal(gram, diagonal)
            mirrored(gram)

        return undo

    def moved(self, shift: Sequence[float]) -> NormalEquations:
        """Return those of targets to which a number (k,) has been added."""
        by = ops_of(self.cross).float64_like(np.array(shift), self.cross)
        return replace(
            self,
            cross=self.cross + self.feature_sum[:, None] * by,
            target_sum=self.target_sum + self.weight_sum * by,
        )

    def on_host(self) -> NormalEquations:
        """Return them as NumPy arrays."""
        to_host = ops_of(self.gram).to_host
        return NormalEquations(
            to_host(self.gram),
            to_host(self.cross),
            to_host(self.feature_sum),
            to_host(self.target_sum),
            self.weight_sum,
            self.weight_unit,
        )

    def solve(
        self, alpha: float, fit_intercept: bool, *, overwrite: bool
    ) -> tuple[Solution, np.ndarray]:
        """Return the weights, (D, k), and the intercepts, (k,).

        With `overwrite` the statistics are used up.
        """
        ops = ops_of(self.gram)
        gram = self.gram if overwrite else ops.copy(self.gram)
        cross = self.cross
        scale = float(gram.diagonal().mean())
        if fit_intercept and self.weight_sum > 0:
            mean = self.feature_sum / self.weight_sum
            target_mean = self.target_sum / self.weight_sum
            for rows in row_blocks(len(gram), _COLUMNS):
                gram[rows] -= mean[rows, None] * self.feature_sum
            cross = cross - mean[:, None] * self.target_sum
        solver = cholesky_for(gram)
        shift = alpha / (self.weight_unit or 1.0)
        solution = solver.solve(solver.init(gram, shift, scale), cross)
        if not fit_intercept or self.weight_sum == 0:
            return solution, ops.zeros(cross.shape[1], gram)
        return solution, target_mean - mean @ solution.value


def mirrored(gram: Any) -> Any:
    """Copy the strict upper triangle to the lower one, and return the array."""
    triu = ops_of(gram).triu
    for rows in row_blocks(len(gram), _COLUMNS):
        gram[rows, : rows.start] = gram[: rows.start, rows].T
        gram[rows, rows] = triu(gram[rows, rows], 0) + triu(gram[rows, rows], 1).T
    return gram


def _block_temporaries(n_rows: int, n_components: int, itemsize: int) -> int:
    """Memory beside a block of features while it is made, and while it is summed."""
    made = min(n_rows, _MADE_ROWS) * n_components * itemsize
    tiles = 2 * min(n_components, GRAM_COLUMNS) ** 2 * itemsize
    return max(made, tiles + 8 * min(n_rows, _CROSS_ROWS) * n_components)


def power_of_two(sample_weight: np.ndarray | None) -> float:
    """Return a power of two near the largest weight, as `unit_of` does."""
    return unit_of(1.0 if sample_weight is None else float(sample_weight.max()))


def dual_bytes(n: int, n_targets: int, like: Rows = None) -> int:
    """Memory of an n × n system and of the tiles it is made of.

    With `like`, an array, also what solving takes where it lies.
    """
    tiles = _TILES * min(n, _COLUMNS) ** 2
    return 8 * (n * (n + 5 * n_targets) + tiles) + cholesky_bytes(n, like)


def feature_gram_bytes(plan: Plan, n: int, itemsize: int) -> int:
    """Memory that :func:`feature_gram` takes beside its result."""
    width = min(plan.n_components, _COLUMNS)
    return plan.stored_bytes(itemsize) + 2 * n * width * itemsize


def feature_gram(plan: Plan, X: Rows) -> np.ndarray:
    """Return Φ Φᵀ, the upper triangle, float64, accumulated over columns."""
    ops = ops_of(X)
    gram = ops.zeros((X.shape[0], X.shape[0]), X)
    for columns in row_blocks(plan.n_components, _COLUMNS):
        Z = evaluate(plan, X, columns)
        ops.add_gram(Z.T, gram)
    return gram


def exact_gram(kernel: Kernel, X: Rows) -> np.ndarray:
    """Return the exact Gram matrix in float64, its upper triangle."""
    n = X.shape[0]
    ops = ops_of(X)
    gram = ops.zeros((n, n), X)
    for rows in row_blocks(n, _COLUMNS):
        X_rows = ops.as_float64(X[rows])
        gram[rows, rows] = kernel._gram(X_rows, None)
        for columns in row_blocks(n, _COLUMNS):
            if columns.start > rows.start:
                X_columns = ops.as_float64(X[columns])
                gram[rows, columns] = kernel._gram(X_rows, X_columns)
    return gram


def solve_dual(
    make_gram: Callable[[], np.ndarray],
    Y: np.ndarray,
    sample_weight: np.ndarray | None,
    alpha: float,
    fit_intercept: bool,
) -> tuple[Solution, np.ndarray]:
    """Return the dual weights, (n, k), and the intercepts, (k,).

    The prediction at x is Σ_i A_i k(x, x_i) + intercept.
    """
    gram = make_gram()
    n = len(gram)
    ops = ops_of(gram)
    unit = power_of_two(sample_weight)
    weight = ops.ones(n, gram) if sample_weight is None else sample_weight / unit
    root = weight**0.5
    share = weight / max(float(weight.sum()), np.finfo(float).tiny)
    targets = Y
    scale = float(gram.diagonal().mean())
    if fit_intercept:
        target_mean = share @ Y
        targets = Y - target_mean
        # (I − 1sᵀ) K (I − s1ᵀ), with s the shares: centred features.
        means = symmetric_product(gram, share)
        grand = float(share @ means)
        for rows in row_blocks(n, _COLUMNS):
            gram[rows] -= means[rows, None] + means - grand
    if sample_weight is not None:
        for rows in row_blocks(n, _COLUMNS):
            gram[rows] *= root[rows, None] * root
        targets = targets * root[:, None]
    solver = cholesky_for(gram, first_jitter=2.0**-26)
    solution = solver.solve(solver.init(gram, alpha / unit, scale), targets)
    dual = solution.value * root[:, None]
    if not fit_intercept:
        return _with_value(solution, dual), ops.zeros(Y.shape[1], gram)
    dual = dual - share[:, None] * dual.sum(axis=0)
    return _with_value(solution, dual), target_mean - means @ dual


def symmetric_product(gram: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return Kv given the upper triangle of K."""
    ops = ops_of(gram)
    out = ops.zeros(len(gram), gram)
    for rows in row_blocks(len(gram), _COLUMNS):
        tile = ops.triu(gram[rows, rows], 0)
        out[rows] += tile @ vector[rows] + ops.triu(tile, 1).T @ vector[rows]
        right = slice(rows.stop, len(gram))
        out[rows] += gram[rows, right] @ vector[right]
        out[right] += gram[rows, right].T @ vector[rows]
    return out


def _with_value(solution: Solution, value: np.ndarray) -> Solution:
    return replace(solution, value=value)
