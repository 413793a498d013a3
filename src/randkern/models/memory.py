"""The memory that fits take, and the sizes of their blocks of rows.

A fit has a limit (:func:`memory_for`). Before anything large is allocated it counts its
quadratic matrices together with one block of features, and raises if they exceed the
limit (:func:`check_matrices`). Iterative solvers and margins count what they hold and
cache features in what is left.
"""

from __future__ import annotations

from typing import Any

from randkern._memory import check_memory, resolve_memory_limit
from randkern._validation import is_tensor
from randkern.backend.blas import GRAM_COLUMNS
from randkern.backend.namespace import ops_of
from randkern.data import rows_within
from randkern.data.training_data import TrainingData
from randkern.plan import Plan
from randkern.solvers import cholesky_bytes

# Size of a block of features, large enough for matrix products at full speed, and of a
# block of predictions, at every penalty or with variances.
_BLOCK_BYTES = 64 * 10**6
# Number of rows whose phases are in memory while features are computed from them.
_COMPUTED_ROWS = 1024
# Number of rows whose products with targets are summed at a time.
CROSS_ROWS = 512
# Number of rows of targets per step of normal equations.
ROWS_AT_ONCE = 2**20
# Side of the tiles of n × n matrices.
GRAM_TILE = 1024

# Rows of the smallest blocks, if memory is short.
MIN_BLOCK_ROWS = 16

# Columns of sampled features, and side of tiles of the exact kernel, that iterative
# solvers compute at a time.
KERNEL_TILE = 2048
# Sampled rows per eigenpair of a preconditioner, of features and of the exact kernel.
ROWS_PER_EIGENPAIR = 4
KERNEL_ROWS_PER_EIGENPAIR = 2

# Number of rows that Gaussian processes copy to float64 at a time.
SUMMED_ROWS = 2**14
# Number of rows of features weighted at a time for the Gram matrix of a margin.
SIGNED_ROWS = 8192


def memory_for(memory_limit: Any, like: Any) -> int:
    """Return the bytes that a fit may take on the device of `like`."""
    if memory_limit is None:
        memory_limit = ops_of(like).memory_limit(like)
    return resolve_memory_limit(memory_limit)


# -- blocks ------------------------------------------------------------------------


def block_rows(row_bytes: int, at_least: int = 256) -> int:
    """Return the number of rows of this size per block for matrix products."""
    return rows_within(_BLOCK_BYTES, row_bytes, at_least=at_least)


def block_rows_within(plan: Plan, like: Any, n_bytes: int) -> int:
    """Return the rows of features, in the dtype of `like`, for products with vectors.

    With what computes them they take at most `n_bytes`, unless the smallest blocks
    take more.
    """
    itemsize = like.dtype.itemsize
    thin = ops_of(like).skinny_gemm
    row = thin.padded(plan.n_components) * itemsize
    # In smaller blocks, the sums of the second product cost more than they save.
    n_rows = min(4096, rows_within(thin.BLOCK_BYTES, row, at_least=128))
    while n_rows > MIN_BLOCK_ROWS:
        if n_rows * row + computing_bytes(plan, n_rows, itemsize) <= n_bytes:
            return n_rows
        n_rows //= 2
    return MIN_BLOCK_ROWS


def computing_bytes(plan: Plan, n_rows: int, itemsize: int) -> int:
    """Memory beside a block of features while these are computed."""
    entries = min(n_rows, _COMPUTED_ROWS) * plan.n_components
    # At landmarks in float64: products, distances and values, and these solved with the
    # factor.
    return (itemsize if plan.triangle is None else 6 * 8) * entries


# -- factorisations ------------------------------------------------------------------


def matrix_bytes(
    plan: Plan | None, rows: TrainingData, squares: int, *, dual: bool = False
) -> int:
    """Memory of a fit that holds `squares` float64 matrices of its system at a time.

    The system has an equation per feature, or one per row for the exact kernel and with
    `dual`. Also counted are the targets, what the factorisation takes, one block of
    features, and tiles.
    """
    n = rows.n_rows if rows.in_memory else min(rows.n_rows, ROWS_AT_ONCE)
    itemsize = rows.dtype.itemsize
    side = n if dual or plan is None else plan.n_components
    needed = 8 * (squares * side**2 + rows.n_targets * (n + 5 * side))
    needed += cholesky_bytes(side, rows.like)
    tile = min(n, GRAM_TILE)
    if plan is None:
        return needed + 6 * 8 * tile**2
    D = plan.n_components
    needed += plan.stored_bytes(itemsize)
    if not dual:
        block = min(n, block_rows(D * itemsize))
        beside = 2 * min(D, GRAM_COLUMNS) ** 2 * itemsize + 8 * min(n, CROSS_ROWS) * D
        beside = max(beside, computing_bytes(plan, block, itemsize))
        return needed + block * D * itemsize + beside
    if plan.triangle is None:
        return needed + 2 * itemsize * n * min(D, GRAM_TILE) + 6 * 8 * tile**2
    # All columns, of which a block is solved in float64.
    return needed + (itemsize * n + 3 * 8 * tile) * D


def check_matrices(
    plan: Plan | None,
    rows: TrainingData,
    needed: int,
    limit: int,
    *,
    dual: bool = False,
) -> None:
    """Raise if `needed`, mostly for the matrices of a system, is over the limit."""
    n = rows.n_rows
    if plan is None:
        subject = f"a fit with the exact {n} x {n} Gram matrix (n_components=None)"
        advice = "Use random features (for instance n_components=10_000)"
    elif dual:
        subject = f"the {n} x {n} dual system of n_components={plan.n_components}"
        advice = "Use fewer components than rows"
    else:
        D = plan.n_components
        subject = f"a fit with {D} x {D} matrices of n_components={D}"
        advice = "Use fewer components"
    check_memory(needed, limit, subject, advice)


def process_bytes(plan: Plan | None, rows: TrainingData, learned: int) -> int:
    """Memory of a Gaussian process whose hyperparameters are learned from some rows.

    With `learned` 0 they are fixed.
    """
    # Factors of tensors are not computed in place.
    copies = 1 if is_tensor(rows.like) else 0
    if plan is None:
        return matrix_bytes(None, rows, (7 if learned else 3) + copies)
    D = plan.n_components
    needed = matrix_bytes(plan, rows, 2 + copies)
    if learned:
        # n × n matrices if there are fewer rows than features, otherwise D × D; and
        # features, their gradients, and derivatives in phases.
        needed += 8 * (6 * learned**2 if learned < D else 2 * D**2)
        needed += 3 * 8 * D * min(learned, block_rows(8 * D))
    return needed


def laplace_bytes(plan: Plan | None, rows: TrainingData, learned: int) -> int:
    """Memory of Laplace's approximation, learned from some rows.

    Several classes are learned jointly, and have a factor each.
    """
    k = rows.n_targets
    needed = 8 * 3 * k * learned**2 if k > 1 else 0
    if plan is None:
        return needed + matrix_bytes(None, rows, k + 7)
    D = plan.n_components
    needed += 8 * learned * (2 * D + 6 * learned)
    # Sums of shards are added in groups of four.
    sums = 0 if rows.in_one_place else 4 * k
    return needed + matrix_bytes(plan, rows, k + 3 + sums)


# -- iterations ----------------------------------------------------------------------


def iterating_bytes(
    plan: Plan, rows: TrainingData, like: Any, rank: int, limit: int
) -> tuple[int, int]:
    """Return the bytes that conjugate gradients take on features without a cache.

    Features have the dtype and the device of `like`. Also the rows per block of
    features: fewer if memory is short. Raises if even the smallest blocks take too
    much.
    """
    n, D, itemsize = rows.n_rows, plan.n_components, like.dtype.itemsize
    n_samples = min(n, ROWS_PER_EIGENPAIR * rank)
    if plan.triangle is None:
        basis = D * rank * itemsize
        sample = 2 * 8 * n_samples**2 + n_samples * min(KERNEL_TILE, D) * itemsize
    else:  # the factor of landmarks is multiplied with itself
        basis, sample = 8 * D**2, 2 * 8 * D**2
    vectors = 8 * 12 * D * rows.n_targets
    held = basis + plan.stored_bytes(itemsize) + max(sample, vectors)
    at_once = block_rows_within(plan, like, (limit - held) // 2)
    block = min(at_once, n)
    row = ops_of(like).skinny_gemm.padded(D) * itemsize
    held += 2 * block * row
    if plan.triangle is not None:
        held += 3 * min(block, _COMPUTED_ROWS) * D * itemsize
    check_memory(
        held,
        limit,
        f"solving for n_components={D} with {rank} eigenpairs",
        "Use fewer components, or a solver of a smaller rank",
    )
    return held, at_once


def kernel_operator_bytes(
    like: Any, n: int, n_targets: int, rank: int
) -> tuple[int, int]:
    """Memory of conjugate gradients on the exact kernel, without cached tiles.

    The peak while the preconditioner is built, and the memory of the iteration, for n
    rows in the dtype and on the device of `like`.
    """
    itemsize = like.dtype.itemsize
    n_samples = min(n, KERNEL_ROWS_PER_EIGENPAIR * rank)
    side = ops_of(like).skinny_gemm.padded(min(n, KERNEL_TILE))
    tiles = 6 * side**2 * itemsize
    vectors = 8 * 14 * n * n_targets + tiles
    iterating = n * rank * itemsize + vectors
    return iterating + n * n_samples * itemsize + 4 * 8 * n_samples**2, iterating


# -- margins -------------------------------------------------------------------------


def cache_bytes(
    plan: Plan | None, rows: TrainingData, limit: int, held: int, squares: int = 3
) -> tuple[int, int]:
    """Return the memory for cached features, and the rest.

    `held` are the bytes of the solver. Half of what they leave is for cached features,
    so that a block of features being computed fits in the other half. The exact kernel
    takes `squares` matrices of n rows. Raises if there is no room for them, or for a
    few rows of features at a time.
    """
    n = rows.n_rows
    if plan is None:
        check_matrices(None, rows, 8 * squares * n**2 + held, limit)
        # The factor and its triangle are there while the rest is used.
        return limit // 2, limit - 2 * 8 * n**2
    D = plan.n_components
    held += plan.stored_bytes(8)
    if plan.triangle is not None:
        held += 8 * D**2  # copied with a column of ones
    few = min(n, MIN_BLOCK_ROWS)
    block = 8 * D * few + computing_bytes(plan, few, 8)
    subject = f"a fit of {n} rows to {D} features, {few} rows at a time,"
    check_memory(held + 2 * block, limit, subject, "Use fewer components or rows")
    cache = (limit - held) // 2
    return cache, limit - held - cache


def curvature_bytes(D: int, row_bytes: int) -> int:
    """Return the memory of second derivatives (D, D), for rows of features of a size.

    They are summed over blocks of rows, and factorised; tensors not in place.
    """
    return 3 * 8 * D**2 + 2 * row_bytes * block_rows(row_bytes)


def newton_bytes(n: int, width: int) -> int:
    """Return the memory of Newton's steps of a margin, in addition to the features."""
    side = min(n, width)
    return 8 * (3 * side**2 + side * width + 2 * min(n, SIGNED_ROWS) * width + 20 * n)
