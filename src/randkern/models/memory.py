"""The memory that fits take, and the sizes of their blocks of rows.

Every fit is counted here before anything large is allocated: its budget
(:func:`memory_for`), the share that each way to solve takes, and the resulting block
sizes. :mod:`randkern._memory` reads limits and raises if they are exceeded.
"""

from __future__ import annotations

import bisect
from typing import Any

from randkern._memory import check_memory, check_rank_memory, resolve_memory_limit
from randkern._validation import is_tensor
from randkern.backend.blas import GRAM_COLUMNS
from randkern.backend.namespace import ops_of
from randkern.data import rows_within
from randkern.data.training_data import TrainingData
from randkern.plan import Plan
from randkern.solvers import IterativeSolver, cholesky_bytes

# Size of a block of features, large enough for matrix products at full speed, and of a
# block of predictions, at every penalty or with variances.
_BLOCK_BYTES = 64 * 10**6
# Number of rows whose phases are in memory while features are computed from them.
_COMPUTED_ROWS = 1024
# Number of rows whose products with targets are summed at a time.
CROSS_ROWS = 512
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


def block_rows(row_bytes: int) -> int:
    """Return the number of rows of this size per block for matrix products."""
    return rows_within(_BLOCK_BYTES, row_bytes, at_least=256)


def feature_block_rows(plan: Plan, itemsize: int) -> int:
    """Return the number of rows of features per block for matrix products."""
    return block_rows(plan.n_components * itemsize)


def computing_bytes(plan: Plan, n_rows: int, itemsize: int) -> int:
    """Memory beside a block of features while these are computed."""
    entries = min(n_rows, _COMPUTED_ROWS) * plan.n_components
    if plan.triangle is None:
        return entries * itemsize
    # Blocks of float64: products, distances and values at landmarks, and these solved
    # with the factor.
    return 6 * 8 * entries


def block_rows_within(plan: Plan, like: Any, n_bytes: int) -> int:
    """Return the rows of features, in the dtype of `like`, to compute at a time.

    They take at most `n_bytes`, unless even the smallest blocks take more.
    """
    sizes = feature_block_sizes(plan.n_components, like)
    itemsize = like.dtype.itemsize
    row = ops_of(like).skinny_gemm.padded(plan.n_components) * itemsize
    fitting = (
        size
        for size in sizes
        if size * row + computing_bytes(plan, size, itemsize) <= n_bytes
    )
    return next(fitting, sizes[-1])


def feature_block_sizes(n_components: int, like: Any) -> list[int]:
    """Return the sizes of row blocks for products with few columns, the best first.

    Features have the dtype and the device of `like`.
    """
    thin = ops_of(like).skinny_gemm
    row = thin.padded(n_components) * like.dtype.itemsize
    # In smaller blocks, the sums of the second product cost more than they save.
    n_rows = min(4096, rows_within(thin.BLOCK_BYTES, row, at_least=128))
    sizes = []
    while n_rows > MIN_BLOCK_ROWS:
        sizes.append(n_rows)
        n_rows //= 2
    return [*sizes, MIN_BLOCK_ROWS]


def float64_block_rows(width: int, at_least: int = 16) -> int:
    """Return the number of rows of `width` float64 numbers per block."""
    return rows_within(_BLOCK_BYTES, 8 * width, at_least=at_least)


# -- ridge regression by factorisations ----------------------------------------------


def normal_equations_bytes(
    plan: Plan, n_rows: int, n_targets: int, itemsize: int, like: Any = None
) -> int:
    """Memory of normal equations, of the projection and one block of features.

    With `like`, an array, also the memory for solving on its device.
    """
    D = plan.n_components
    rows = min(feature_block_rows(plan, itemsize), n_rows)
    # In addition to a block of features, while it is computed and while it is summed.
    computing = computing_bytes(plan, rows, itemsize)
    tiles = 2 * min(D, GRAM_COLUMNS) ** 2 * itemsize
    beside = max(computing, tiles + 8 * min(rows, CROSS_ROWS) * D)
    targets = 8 * n_targets * (n_rows + 2 * D)
    solving = 8 * D**2 + cholesky_bytes(D, like)
    block = rows * D * itemsize + beside
    return solving + targets + plan.stored_bytes(itemsize) + block


def dual_bytes(n: int, n_targets: int, like: Any = None) -> int:
    """Memory of an n × n system and of the tiles it is computed from.

    With `like`, an array, also the memory for solving on its device.
    """
    tiles = 6 * min(n, GRAM_TILE) ** 2  # while exact values are computed
    return 8 * (n * (n + 5 * n_targets) + tiles) + cholesky_bytes(n, like)


def feature_gram_bytes(plan: Plan, n: int, itemsize: int) -> int:
    """Memory for computing the matrix ΦΦᵀ of n rows, in addition to the matrix."""
    if plan.triangle is not None:  # all columns, of which a block is solved in float64
        D = plan.n_components
        solving = 3 * 8 * D * min(n, GRAM_TILE)
        return plan.stored_bytes(itemsize) + n * D * itemsize + solving
    width = min(plan.n_components, GRAM_TILE)
    return plan.stored_bytes(itemsize) + 2 * n * width * itemsize


def primal_search_bytes(plan: Plan, X: Any, n_targets: int, n_alphas: int) -> int:
    """Memory of normal equations at every penalty, in addition to X and Y."""
    n, D = X.shape[0], plan.n_components
    statistics = normal_equations_bytes(plan, n, n_targets, X.dtype.itemsize)
    # The total is in `statistics`; add those of a split's training rows, and one more.
    # LAPACK's divide and conquer overwrites the matrix by its eigenvectors and takes a
    # workspace of twice its size.
    matrices = 2 + 2
    weights = 8 * n_alphas * D * (3 * n_targets + 1)
    width = D + n_alphas * n_targets
    block = 8 * width * min(n, float64_block_rows(width))
    return statistics + 8 * D**2 * matrices + weights + 3 * block


def dual_search_bytes(n: int, n_targets: int, n_alphas: int) -> int:
    """Memory of an n × n system at every penalty, in addition to its computation."""
    copies = 1 + 2  # the eigenvectors, and a workspace
    rows = 8 * n * n_alphas * (6 * n_targets + 2)
    return dual_bytes(n, n_targets) + 8 * n**2 * copies + rows


# -- ridge regression by iterations ---------------------------------------------------


def operator_memory(
    plan: Plan, rows: TrainingData, solver: IterativeSolver, limit: int
) -> tuple[int, int]:
    """Return the bytes that an iterative solver takes on features without a cache.

    Also the rows per block of features: fewer if memory is short. Raises if even the
    smallest blocks take too much.
    """
    D = plan.n_components
    itemsize = rows.dtype.itemsize
    k = rows.n_targets
    stored = plan.stored_bytes(itemsize)
    padded = ops_of(rows.like).skinny_gemm.padded

    def n_bytes(n_components: int, rank: int, block: int) -> int:
        n_samples = min(rows.n_rows, ROWS_PER_EIGENPAIR * rank)
        columns = min(KERNEL_TILE, n_components)
        if plan.triangle is not None:
            columns = 3 * n_components  # solved in float64
        sample = 2 * 8 * n_samples**2 + n_samples * columns * itemsize
        vectors = 8 * 12 * n_components * k
        blocks = 2 * min(block, rows.n_rows) * padded(n_components) * itemsize
        basis = n_components * rank * itemsize
        projection = -(-stored * n_components // D)
        if plan.triangle is not None:
            values = min(block, rows.n_rows, _COMPUTED_ROWS) * n_components
            # Products, distances and values at landmarks.
            blocks += 3 * values * itemsize
        return basis + max(sample, vectors) + blocks + projection

    rank = solver.chosen_rank(D)
    sizes = feature_block_sizes(D, rows.like)
    for block in sizes:
        if n_bytes(D, rank, block) <= limit:
            return n_bytes(D, rank, block), block

    def min_bytes(n_components: int) -> int:
        return n_bytes(n_components, solver.chosen_rank(n_components), sizes[-1])

    # The memory of projections may grow in blocks.
    fewer = bisect.bisect_right(range(D), 0.8 * limit, key=min_bytes) - 1
    check_rank_memory(
        lambda rank: n_bytes(D, rank, sizes[-1]),
        rank,
        limit,
        f"solving for n_components={D} with {rank} eigenpairs",
        type(solver).__name__,
        f"Use n_components={fewer}" if fewer > 0 else "",
    )
    raise AssertionError("unreachable: the smallest blocks exceed the limit")


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


# -- margins ---------------------------------------------------------------------------


def feature_cache_bytes(
    plan: Plan | None,
    n: int,
    limit: int,
    per_row: int,
    per_feature: int,
    n_squares: int = 3,
    beside: int = 0,
) -> tuple[int, int]:
    """Return the memory for cached features, and the rest.

    `per_row` and `per_feature` are the bytes that the solver needs for each, and
    `beside` those of its matrices. Half of what they leave is for cached features, so
    that a block of features being computed fits in the other half. The exact kernel
    takes `n_squares` matrices of n rows. Raises if there is no room for them, or for a
    few rows of features at a time.
    """
    if plan is None:
        check_memory(
            8 * n_squares * n**2 + beside,
            limit,
            f"the exact {n} x {n} Gram matrix (n_components=None) and its factor",
            "Use random features (for instance n_components=10_000)",
        )
        # The factor and its triangle are there while the rest is used.
        return limit // 2, limit - 2 * 8 * n**2
    width = plan.n_components
    # With a column of ones the factor of landmarks is copied.
    state = per_row * n + per_feature * width + plan.stored_bytes(8) + beside
    if plan.triangle is not None:
        state += 8 * width**2
    # A block of features being computed, and the rows in use.
    n_few = min(n, MIN_BLOCK_ROWS)
    few = 8 * width * n_few + computing_bytes(plan, n_few, 8)
    check_memory(
        state + 2 * few,
        limit,
        f"a fit to {n} rows by {width} features, {MIN_BLOCK_ROWS} rows of these at a "
        "time,",
        "Use fewer components or rows",
    )
    cache = (limit - state) // 2
    return cache, limit - state - cache


def curvature_bytes(D: int, row_bytes: int) -> int:
    """Return the memory of second derivatives (D, D), for rows of features of a size.

    They are summed over blocks of rows, and factorised; tensors not in place.
    """
    return 3 * 8 * D**2 + 2 * row_bytes * block_rows(row_bytes)


def newton_bytes(n: int, width: int) -> int:
    """Return the memory of Newton's steps of a margin, in addition to the features."""
    side = min(n, width)
    return 8 * (3 * side**2 + side * width + 2 * min(n, SIGNED_ROWS) * width + 20 * n)


# -- Gaussian processes ----------------------------------------------------------------


def check_process_memory(
    plan: Plan | None, rows: TrainingData, learned: int, limit: int
) -> None:
    """Raise if fitting a Gaussian process takes more than the limit.

    Hyperparameters are learned from `learned` rows, 0 if they are fixed.
    """
    n = rows.n_rows
    # Factors of tensors are not computed in place.
    copies = 2 if is_tensor(rows.like) else 0
    if plan is None:
        needed = 8 * n**2 * ((7 if learned else 3) + copies)
        subject = f"the exact process of {n} rows (n_components=None)"
        advice = "Use random features (for instance n_components=2_000)"
    else:
        D = plan.n_components
        current = min(n, SUMMED_ROWS)
        block = feature_block_rows(plan, 8)
        needed = 8 * D**2 * (1 + copies)
        needed += normal_equations_bytes(plan, current, rows.n_targets, 8)
        needed += 8 * D * min(current, block)
        if learned:
            # n × n matrices if there are fewer rows than features, otherwise D × D; in
            # addition features, their gradients, and derivatives in phases.
            needed += 8 * (6 * learned**2 if learned < D else 2 * D**2)
            needed += 3 * 8 * D * min(learned, block)
        subject = (
            f"a process on n_components={D} ({D} x {D} matrices and features of rows)"
        )
        advice = "Use fewer components"
    check_memory(needed, limit, subject, advice)


def check_neighbor_memory(rows: TrainingData, n_neighbors: int, limit: int) -> None:
    """Raise if a process of nearest rows takes more than the limit."""
    n, d = rows.n_rows, rows.like.shape[1]
    # Copies of the rows in random order and over their lengthscales, a tree of them,
    # and the neighbours of all rows with their distances.
    needed = 8 * n * (4 * d + 2 * n_neighbors)
    subject = f"the process of {n} rows with n_neighbors={n_neighbors}"
    check_memory(needed, limit, subject, "Use fewer neighbors")


def check_laplace_memory(
    plan: Plan | None, rows: TrainingData, learned: int, limit: int, joined: bool
) -> None:
    """Raise if fitting by Laplace's approximation takes more than the limit.

    Hyperparameters are learned from `learned` rows, for all columns of targets together
    if they are joined.
    """
    k, n = rows.n_targets, rows.n_rows
    if plan is None:
        needed, subject = 8 * n**2 * (k + 7), f"the exact process of {n} rows"
        advice = "Use random features (for instance n_components=1_000)"
    else:
        D = plan.n_components
        needed = 8 * D**2 * (k + 3) + plan.stored_bytes(8)
        needed += 8 * learned * (2 * D + 6 * learned)
        if not rows.in_one_place:  # sums of shards are added in groups of four
            needed += 8 * 4 * (k if joined else 1) * D**2
        subject = f"the {k} posteriors of n_components={D}, with blocks of features,"
        advice = "Use fewer components"
    if joined:
        needed += 8 * 3 * k * learned**2
    check_memory(needed, limit, subject, advice)
