"""Nyström features: a kernel approximated by its values at a few landmark rows.

With L the landmarks, K_LL = TTᵀ and k(L, x) the kernel's values at a row, the features
φ(x) = T⁻¹ k(L, x) have φ(x)·φ(y) = k(x, L) K_LL⁻¹ k(L, y): the best approximation of k
within the span of the functions k(l, ·), exact where x or y is a landmark.

A plan stores T separately from the columns k(L, x). Iterative solvers and predictions
multiply by the columns and solve with T for a few vectors, not for every row (Rudi,
Carratino and Rosasco 2017, "FALKON", section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._memory import check_memory
from randkern._random import Stream
from randkern._validation import Rows, densify, is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.kernels import Kernel
from randkern.nonlinearities import Signed
from randkern.plan import Factor, Group, Plan
from randkern.projections import Distribution, InputMap, Projection

# Landmarks that "auto" chooses as pivots. The others are drawn uniformly.
_MOST_PIVOTS = 1500
# They are chosen from this many rows per pivot, or from more, as far as so many
# operations allow: rows far from all others are landmarks only if they are among them.
# With heavy tails (41,157 rows, 9 columns) 1,000 landmarks from 5,000 rows had an error
# of .32, and from all rows one of .17.
_CANDIDATES = 5
_OPERATIONS = 5e10
# Landmarks are proposed in about this many blocks.
_PROPOSALS = 10
# Rows whose new columns are computed at a time.
_ROWS_AT_ONCE = 1024
# A smaller share of the trace is rounding error.
_ROUNDING = 1e-13
_DOUBLE = float(np.finfo(float).eps)
# Added to the diagonal for rows in single precision, in units of its rounding errors:
# about 1e-5 of the diagonal, as in Falkon.
_NUGGET = 64.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Landmarks(Projection):
    """Columns k(L, x) of a resolved kernel, written without a nonlinearity.

    `rows` are the landmarks: float64, an array, a CSR matrix or a tensor.
    `needs_float64` is set if they were chosen from rows in double precision: T is then
    so near singular that weights T⁻ᵀw cancel, and the columns need all digits.
    """

    name = "landmarks"
    writes_columns = True

    kernel: Kernel
    rows: Any
    needs_float64: bool = False

    def stored_bytes(self, itemsize: int) -> int:
        """Return the memory of a copy in another dtype, or on a device."""
        return itemsize * self.n_draws * self.width

    def project(self, X: Rows, start: int, stop: int) -> Any:
        """Return columns `start` to `stop` in the dtype of X."""
        rows = self.cached(X[:0], lambda: self._placed(X))
        return self.kernel._gram(X, rows[start:stop], precise=False)

    def write_columns(
        self, X: Rows, low: int, high: int, weight: float, out: np.ndarray
    ) -> None:
        """Write columns `low` to `high` times the weight."""
        out[:] = self.project(X, low, high)
        out *= weight  # without a copy of the block

    def _placed(self, like: Rows) -> Any:
        """Return the landmarks in the dtype and on the device of other rows."""
        if not sp.issparse(self.rows):
            return ops_of(like).asarray(self.rows, like)
        if is_tensor(like):
            return ops_of(like).asarray(densify(self.rows), like)
        return self.rows.astype(like.dtype, copy=False)


def needs_float64(plan: Plan) -> bool:
    """Return whether products with a plan's columns need double precision."""
    projections: Any = (f.projection for g in plan.groups for f in g.factors)
    return any(isinstance(p, Landmarks) and p.needs_float64 for p in projections)


def landmark_plan(
    kernel: Kernel,
    X: Rows,
    sample_weight: np.ndarray | None,
    n_components: int,
    stream: Stream,
    *,
    landmarks: Any = "auto",
    memory_limit: int | None = None,
) -> Plan:
    """Return the plan of Nyström features of a resolved kernel.

    `landmarks` says how they are chosen among the checked rows `X`, or holds the rows
    themselves. There are fewer columns than `n_components` if the Gram matrix of the
    landmarks has a lower rank in floating point. `memory_limit` is in bytes.
    """
    if isinstance(landmarks, str):
        numbers = choose_landmarks(
            kernel, X, sample_weight, n_components, landmarks, stream, memory_limit
        )
        landmarks = ops_of(X).take(X, numbers)
    ops = ops_of(landmarks)
    m = landmarks.shape[0]
    if memory_limit is not None:
        check_memory(
            8 * m * 2 * (m + landmarks.shape[1]),
            memory_limit,
            f"the {m} x {m} values of the kernel at the landmarks, and their factor,",
            "Use fewer components",
        )
    rows = ops.as_float64(landmarks)
    gram = kernel._gram(rows, None)
    precision = ops.precision(X.dtype)
    in_double = precision <= _DOUBLE
    if not in_double:
        # T⁻¹ would amplify the errors of single precision beyond the features.
        added = _NUGGET * precision * ops.copy(gram.diagonal())
        ops.algebra.add_to_diagonal(gram, added)
    factor, pivots = ops.algebra.pivoted_factor(gram)
    del gram
    _check_any(pivots, kernel)
    # With its rows in the order of the pivots, the factor is lower triangular.
    factor = factor[pivots]
    rank = len(pivots)
    width = rows.shape[1]
    chosen = ops.take(rows, ops.to_host(pivots))
    projection = Landmarks(
        stream,
        rank,
        width,
        Distribution(),
        kernel=kernel,
        rows=chosen,
        needs_float64=in_double,
    )
    factors = (Factor(projection, Signed(), InputMap(width)),)
    group = Group(factors, 0, rank, 1.0, "columns")
    return Plan((group,), width, ops.contiguous(factor[:, :rank]))


def choose_landmarks(
    kernel: Kernel,
    X: Rows,
    sample_weight: np.ndarray | None,
    n_landmarks: int,
    method: str,
    stream: Stream,
    memory_limit: int | None = None,
) -> np.ndarray:
    """Return the row numbers of landmarks, ascending.

    ``"uniform"``: drawn uniformly from the rows of positive weight. ``"rpcholesky"``:
    by accelerated randomly pivoted Cholesky factorisation of all rows, or of a uniform
    sample of as many as take 5·10^10 operations, at least five per landmark, within the
    memory. ``"auto"``: the same for the first 1,500, which include the rows far from
    all others; more are drawn uniformly from the other rows. See Chen, Epperly, Tropp
    and Webber 2022, arXiv 2207.06503, and Epperly, Tropp and Webber 2024, arXiv
    2410.03969, algorithm 2.
    """
    generator = stream.generator()
    usable = np.arange(X.shape[0])
    if sample_weight is not None:
        usable = np.flatnonzero(ops_of(sample_weight).to_host(sample_weight) > 0)
    n_landmarks = min(n_landmarks, len(usable))
    if method == "uniform":
        return np.sort(generator.choice(usable, n_landmarks, replace=False))
    n_pivots = min(n_landmarks, _MOST_PIVOTS) if method == "auto" else n_landmarks
    row_operations = n_pivots * (n_pivots + 2 * X.shape[1])
    n_candidates = max(_CANDIDATES * n_pivots, int(_OPERATIONS // row_operations))
    if memory_limit is not None:
        # One column of the factor per pivot, and rows in float64.
        row_bytes = 8 * (n_pivots + 2 * X.shape[1])
        n_candidates = min(n_candidates, memory_limit // (2 * row_bytes))
    n_candidates = min(max(n_candidates, n_pivots), len(usable))
    candidates = np.sort(generator.choice(usable, n_candidates, replace=False))
    rows = ops_of(X).as_float64(ops_of(X).take(X, candidates))
    pivots = _pivots(kernel, rows, n_pivots, generator)
    _check_any(pivots, kernel)
    chosen = candidates[pivots]
    others = np.setdiff1d(usable, chosen)
    drawn = generator.choice(others, n_landmarks - n_pivots, replace=False)
    return np.sort(np.concatenate([chosen, drawn]))


def _check_any(pivots: Any, kernel: Kernel) -> None:
    """Raise if there are no landmarks, because the kernel is zero on all rows."""
    if not len(pivots):
        raise ValueError(
            f"{kernel} is 0 on all rows of X, so none of them can be a landmark; "
            "use another kernel, or random features."
        )


def _pivots(
    kernel: Kernel, X: Rows, n_pivots: int, generator: np.random.Generator
) -> np.ndarray:
    """Return pivots, each drawn in proportion to the diagonal of the residual.

    Pivots are proposed in blocks, in proportion to the residual diagonal r before the
    block; each is accepted with probability r'/r, r' being its residual after the
    pivots of its block that were accepted before it.
    """
    ops = ops_of(X)
    to_host = ops.to_host
    residual = to_host(kernel._diag(X)).astype(np.float64)
    threshold = _ROUNDING * residual.sum()
    factor = ops.float64_zeros((X.shape[0], n_pivots), X)
    pivots: list[int] = []
    block = max(1, min(n_pivots, n_pivots // _PROPOSALS + 10))
    while len(pivots) < n_pivots and residual.sum() > threshold:
        proposed = generator.choice(len(residual), block, p=residual / residual.sum())
        n = len(pivots)
        earlier_columns = factor[proposed, :n]
        values = kernel._gram(ops.take(X, proposed), None)
        values = values - ops.precise_product(earlier_columns, earlier_columns.T)
        accepted, columns = _accepted(to_host(values), residual[proposed], generator)
        accepted = accepted[: n_pivots - n]
        if not len(accepted):
            break  # only rounding errors are left
        new = proposed[accepted]
        triangle = ops.asarray(columns[accepted, : len(accepted)], factor)
        for rows in row_blocks(len(residual), _ROWS_AT_ONCE):
            values = kernel._gram(ops.take(X, new), X[rows])
            values -= ops.precise_product(factor[new, :n], factor[rows, :n].T)
            part = ops.algebra.triangular_solve(triangle, values).T
            factor[rows, n : n + len(new)] = part
            residual[rows] -= to_host((part**2).sum(axis=1))
        residual = np.maximum(residual, 0.0)
        residual[new] = 0.0
        pivots += new.tolist()
    return np.array(pivots, dtype=int)


def _accepted(
    values: np.ndarray, diagonal: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the accepted proposals, and the columns of their Cholesky factor."""
    residual = values.copy()
    accepted, columns = [], []
    for number, level in enumerate(generator.random(len(diagonal)) * diagonal):
        remaining = residual[number, number]
        if remaining > max(level, _ROUNDING * values[number, number], 0.0):
            accepted.append(number)
            columns.append(residual[:, number] / np.sqrt(remaining))
            residual -= np.outer(columns[-1], columns[-1])
    return np.array(accepted, dtype=int), np.array(columns).T
