r"""Exact kernels in overlapping cells of rows.

A binary tree divides rows at hyperplanes, until no cell has more than a given number.
Near a hyperplane rows belong to both sides, and the weights of the sides change
smoothly from 0 to 1 across this band: with :math:`s(u) = u^2 (3 - 2u)` and :math:`u`
the position in the band, the right side gets :math:`s(u)` and the left one
:math:`1 - s(u)`. The weight :math:`w_c(x)` of a cell is the product along its path, so
that the weights are continuous, at least 0, and sum to 1. The prediction

.. math:: f(x) = \sum_c w_c(x) f_c(x)

is therefore as smooth as the fits :math:`f_c` to the rows of single cells. As these
share no parameters, the prediction for a row by fits without it is the same mean of
their leave-one-out predictions.

Hyperplanes divide a node so that all cells get about as many rows. A node of n rows
gives :math:`\beta \sqrt{m/n}` of them to both sides, m being the number of rows of a
cell. The total number of rows in all cells is then at most a multiple of n that does
not depend on n, so that fits and predictions take time linear in the number of rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._fitting import is_late
from randkern._memory import check_memory
from randkern._random import Stream
from randkern._validation import Rows, is_tensor
from randkern.backend.namespace import ops_of
from randkern.backend.tasks import map_on_threads
from randkern.data import row_blocks, rows_within
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.kernels.draw import fit_plan
from randkern.kernels.stationary import Stationary
from randkern.models.alpha_search import squared_error
from randkern.models.dual import exact_gram, solve_dual
from randkern.models.memory import dual_search_bytes
from randkern.models.ridge_path import DualPath
from randkern.plan import evaluate
from randkern.solvers import Solution

# β, the share of the rows of a node of twice the size of a cell (times √2) that lie in
# its band.
OVERLAP = 0.25
# Rows of a node from which its hyperplane is computed, and steps of power iteration.
_DIRECTION_ROWS = 2000
_POWER_STEPS = 20
# Features that stand for the kernel's own distance if it has no lengthscale.
_N_FEATURES = 256
# Up to this many penalties, factorising the matrix with each takes less time than its
# eigenvectors.
_MAX_FACTORISED = 6
# About how many rows of a cell are fitted if it is late.
_LATE_ROWS = 200
# Rows assigned to cells at a time by predictions, and the size of their kernel values.
_PREDICTED_ROWS = 65_536
_GRAM_BYTES = 64 * 10**6


def _node_sizes(overlap: float) -> Iterator[float]:
    """Yield the rows of nodes with 1, 2, 3, ... cells, in rows of a cell.

    A node of s cells' rows gives s + overlap √s to its two children.
    """
    sizes = [0.0, 1.0]
    while True:
        yield sizes[-1]
        n = len(sizes)
        both = sizes[n // 2] + sizes[n - n // 2]
        sizes.append((math.sqrt(overlap**2 / 4 + both) - overlap / 2) ** 2)


def rows_of_cells(n: int, n_cells: int) -> int:
    """Return into how many rows per cell n different rows are divided."""
    size = next(islice(_node_sizes(OVERLAP), n_cells - 1, None))
    return math.ceil(n / size)


def scaled_columns(kernel: Kernel, X: Any) -> Any:
    """Return the columns that stationary kernels read, over their lengthscales.

    The result is an array (n, e) like `X`; None if there is no such kernel.
    """
    ops = ops_of(X)
    parts = []
    for leaf in kernel.leaves():
        if isinstance(leaf, Stationary):
            selected = leaf._select(X)
            parts.append(selected / leaf._lengthscale(selected.shape[1]))
    return ops.xp.concat(parts, axis=1) if parts else None


def scaled_rows(kernel: Kernel, X: Rows, stream: Stream) -> np.ndarray:
    """Return rows (n, e) whose Euclidean distances resemble those of the kernel.

    Columns are divided by the lengthscales of the stationary kernels that read them.
    Random features replace the rows of kernels without lengthscales, and sparse rows.
    """
    ops = ops_of(X)
    scaled = None if sp.issparse(X) else scaled_columns(kernel, ops.to_host(X))
    if scaled is None:
        plan = fit_plan(kernel, X, None, _N_FEATURES, stream)
        scaled = ops.to_host(evaluate(plan, X))
    return np.ascontiguousarray(scaled, dtype=np.float64)


@dataclass(frozen=True)
class CellTree:
    """Hyperplanes that divide rows into overlapping cells.

    Node 0 is the root. Rows with ``row @ directions[i] <= low[i]`` belong to the left
    child of node i alone, those at or beyond ``high[i]`` to the right one alone. The
    child ``~c`` is cell c.

    Attributes
    ----------
    directions : ndarray of shape (n_nodes, e)
    low, high : ndarray of shape (n_nodes,)
    children : ndarray of int of shape (n_nodes, 2)
    n_cells : int
    """

    directions: np.ndarray
    low: np.ndarray
    high: np.ndarray
    children: np.ndarray
    n_cells: int

    @classmethod
    def grow(
        cls, rows: np.ndarray, cell_rows: int, overlap: float = OVERLAP
    ) -> CellTree:
        """Divide rows (n, e) into cells of about equal size, at most `cell_rows`.

        Cells of rows that no hyperplane separates, because they are equal, are larger.
        """
        directions: list[np.ndarray] = []
        bands: list[tuple[float, float]] = []
        children: list[list[int]] = []
        n_cells = 0
        # Of nodes with 0, 1, 2, ... cells, as far as there are any.
        sizes = [0.0]
        growing = _node_sizes(overlap)
        while sizes[-1] * cell_rows < len(rows):
            sizes.append(next(growing))
        # Each entry: the rows of a node, and where its number belongs.
        pending: list[tuple[np.ndarray, int, int]] = [(np.arange(len(rows)), -1, 0)]
        while pending:
            members, parent, side = pending.pop()
            split = None
            if len(members) > cell_rows:
                share = overlap * math.sqrt(cell_rows / len(members))
                parts = bisect_left(sizes, len(members) / cell_rows)
                left_share = sizes[parts // 2]
                left_share /= left_share + sizes[parts - parts // 2]
                split = _split(rows[members], share, left_share)
            if split is None:
                number = ~n_cells
                n_cells += 1
            else:
                number = len(directions)
                direction, low, high = split
                directions.append(direction)
                bands.append((low, high))
                children.append([0, 0])
                position = rows[members] @ direction
                pending.append((members[position > low], number, 1))
                pending.append((members[position < high], number, 0))
            if parent >= 0:
                children[parent][side] = number
        n_nodes = len(directions)
        limits = np.array(bands, dtype=float).reshape(n_nodes, 2)
        return cls(
            directions=np.array(directions).reshape(n_nodes, rows.shape[1]),
            low=limits[:, 0],
            high=limits[:, 1],
            children=np.array(children, dtype=np.int64).reshape(n_nodes, 2),
            n_cells=n_cells,
        )

    def cells(self, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield cells, the numbers of their rows, and the weights of the cell there.

        Only cells that have any of these rows are yielded. The weights of the cells of
        a row sum to 1.
        """
        root = 0 if len(self.low) else ~0
        pending = [(root, np.arange(len(rows)), np.ones(len(rows)))]
        while pending:
            node, members, weight = pending.pop()
            if not len(members):
                continue
            if node < 0:
                yield ~node, members, weight
                continue
            low, high = self.low[node], self.high[node]
            position = rows[members] @ self.directions[node]
            share = _smooth_step(np.clip((position - low) / (high - low), 0.0, 1.0))
            for child, part in zip(
                self.children[node, ::-1], (share, 1.0 - share), strict=True
            ):
                inside = part > 0
                pending.append((child, members[inside], (weight * part)[inside]))

    def weights(self, rows: Any) -> Iterator[tuple[int, Any]]:
        """Yield every cell, and its weights (n, 1) at rows of any array library.

        The weight of a single cell is the number 1.
        """
        pending: list[tuple[int, Any]] = [(0 if len(self.low) else ~0, 1.0)]
        while pending:
            node, weight = pending.pop()
            if node < 0:
                yield ~int(node), weight
                continue
            low = float(self.low[node])
            high = float(self.high[node])
            position = rows @ self.directions[node][:, None]
            share = _smooth_step(
                ((position - low) * (1.0 / (high - low))).clip(0.0, 1.0)
            )
            left, right = self.children[node]
            pending += [(right, weight * share), (left, weight * (1.0 - share))]


def _smooth_step(u: Any) -> Any:
    """Return 3u² − 2u³, which rises from 0 to 1 with slopes 0 at both ends."""
    return u * u * (3.0 - 2.0 * u)


def _split(
    rows: np.ndarray, share: float, left: float
) -> tuple[np.ndarray, float, float] | None:
    """Return a hyperplane's normal, and the band around it with a share of the rows.

    Rows on the left side and on the right one are in the proportion of left to
    1 - left. None if all rows are equal.
    """
    step = max(len(rows) // _DIRECTION_ROWS, 1)
    sample = rows[::step]
    direction = _principal_axis(sample - sample.mean(axis=0))
    if direction is None:
        direction = _principal_axis(rows - rows.mean(axis=0))
    if direction is None:
        return None
    position = np.sort(rows @ direction)
    n = len(position)
    stop = (1 + share) * left
    low, high = np.quantile(position, (stop - share, stop))
    smallest, largest = position[0], position[-1]
    # Both sides must lose rows, also where many rows have the same position.
    if low < high and np.mean(position > low) < 0.9 and np.mean(position < high) < 0.9:
        return direction, float(low), float(high)
    steps = np.flatnonzero(np.diff(position) > 1e-12 * (largest - smallest))
    if not len(steps):
        return None
    at = steps[np.argmin(abs(steps + 1 - left * n))]
    return direction, float(position[at]), float(position[at + 1])


def _principal_axis(centred: np.ndarray) -> np.ndarray | None:
    """Return the direction of the largest variance, None if there is no variance."""
    sizes = np.einsum("ij,ij->i", centred, centred)
    direction = centred[sizes.argmax()]
    for _ in range(_POWER_STEPS):
        size = np.linalg.norm(direction)
        if not size > 0:
            return None
        direction = centred.T @ (centred @ (direction / size))
    size = np.linalg.norm(direction)
    return direction / size if size > 0 else None


@dataclass(frozen=True)
class CellFits:
    """Fits of the exact kernel to the rows of single cells, and their blend.

    Attributes
    ----------
    kernel : Kernel
        Resolved.
    tree : CellTree
    stream : Stream
        Of the features that stand for the kernel's distance, see :func:`scaled_rows`.
    rows : list of ndarray
        For each cell, the numbers of its rows.
    dual : list of ndarray of shape (n_rows_of_cell, k)
    intercepts : ndarray of shape (n_cells, k)
    """

    kernel: Kernel
    tree: CellTree
    stream: Stream
    rows: list[np.ndarray]
    dual: list[Any]
    intercepts: np.ndarray

    def predict(self, fitted: Rows, X: Rows) -> np.ndarray:
        """Return predictions (m, k) for rows X, from the rows of the fit."""
        ops = ops_of(X)
        out = ops.float64_zeros((X.shape[0], self.intercepts.shape[1]), X)
        for block in row_blocks(X.shape[0], _PREDICTED_ROWS):
            scaled = scaled_rows(self.kernel, X[block], self.stream)
            for cell, members, weight in self.tree.cells(scaled):
                X_cell = ops.as_float64(ops.take(fitted, self.rows[cell]))
                intercept = ops.float64_like(self.intercepts[cell], X)
                step = rows_within(_GRAM_BYTES, 8 * X_cell.shape[0])
                for part in row_blocks(len(members), step):
                    numbers = block.start + members[part]
                    gram = self.kernel._gram(
                        ops.as_float64(ops.take(X, numbers)), X_cell
                    )
                    values = gram @ self.dual[cell] + intercept
                    out[numbers] += ops.float64_like(weight[part, None], X) * values
        return out


@dataclass(frozen=True)
class Cells(CellFits):
    """Kernel ridge regressions of the rows of single cells, and their blend.

    Attributes
    ----------
    kernel, tree, stream, rows, dual, intercepts
        See :class:`CellFits`.
    alphas : ndarray of shape (n_cells,)
        The penalty of each cell.
    scores : ndarray of shape (n_alphas,)
        Minus the mean squared error of leave-one-out predictions at each of the
        penalties to choose from: the mean over cells, weighted by their rows.
    best_score : float
        The same at the penalty of each cell.
    solution : Solution
        The solution with the largest residual, without its value.
    left_out : array of shape (n, k)
        Predictions for each row by fits without it. Like `intercepts`, they lack the
        ``intercept_`` of the model. None in files of earlier versions.
    """

    alphas: np.ndarray
    scores: np.ndarray
    best_score: float
    solution: Solution
    left_out: Any = None


def divided_rows(
    kernel: Kernel, X: Rows, cell_rows: int, stream: Stream
) -> tuple[CellTree, list[np.ndarray], list[np.ndarray]]:
    """Return cells of at most `cell_rows` rows; the rows of each, and their weights."""
    scaled = scaled_rows(kernel, X, stream)
    tree = CellTree.grow(scaled, cell_rows)
    leaves = sorted(tree.cells(scaled), key=itemgetter(0))
    return tree, [rows for _, rows, _ in leaves], [share for _, _, share in leaves]


def fit_cells(
    kernel: Kernel,
    rows: ArrayRows,
    alphas: np.ndarray,
    cell_rows: int,
    fit_intercept: bool,
    limit: int,
    stream: Stream,
) -> Cells:
    """Fit the exact kernel to the rows of each cell.

    With several penalties, each cell takes the one with the smallest mean squared
    error of leave-one-out predictions. Once it is late, few rows of a cell are fitted.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    rows : ArrayRows
        Rows of positive weight.
    alphas : ndarray of shape (n_alphas,)
    cell_rows : int
        The largest number of rows of a cell.
    fit_intercept : bool
    limit : int
        Bytes of memory.
    stream : Stream

    Returns
    -------
    Cells
    """
    tree, members, shares = divided_rows(kernel, rows.X, cell_rows, stream)
    ops = ops_of(rows.Y)
    k = rows.n_targets
    needed = _check_cell(len(max(members, key=len)), k, len(alphas), limit)

    def fitted(numbers: np.ndarray) -> _CellFit:
        some = rows_in_time(numbers)
        fit = _fit_cell(kernel, rows.take(some), some, alphas, fit_intercept)
        return (
            fit if len(some) == len(numbers) else _extended(fit, kernel, rows, numbers)
        )

    # As many at a time as fit in memory. Tensors are factorised one after another.
    max_threads = 1 if is_tensor(rows.Y) else max(limit // needed, 1)
    ordered = list(map_on_threads(fitted, members, max_threads))
    left_out = ops.float64_zeros((rows.n_rows, k), rows.Y)
    for fit, numbers, share in zip(ordered, members, shares, strict=True):
        left_out[numbers] += ops.float64_like(share[:, None], rows.Y) * fit.left_out
    sizes = np.array([len(fit.rows) for fit in ordered])
    worst = max((fit.solution for fit in ordered), key=lambda result: result.residual)
    return Cells(
        kernel,
        tree,
        stream,
        rows=[fit.rows for fit in ordered],
        dual=[fit.solution.value for fit in ordered],
        intercepts=np.array([ops.to_host(fit.intercept) for fit in ordered]),
        alphas=np.array([fit.alpha for fit in ordered]),
        scores=np.average([fit.scores for fit in ordered], axis=0, weights=sizes),
        best_score=float(
            np.average([max(fit.scores) for fit in ordered], weights=sizes)
        ),
        solution=replace(worst, value=np.zeros((0, k))),
        left_out=left_out,
    )


def rows_in_time(numbers: np.ndarray) -> np.ndarray:
    """Return the rows of a cell that are fitted: all, or few if it is late."""
    step = -(-len(numbers) // _LATE_ROWS) if is_late() else 1
    return numbers[::step]


def _extended(
    fit: _CellFit, kernel: Kernel, rows: ArrayRows, numbers: np.ndarray
) -> _CellFit:
    """Return the fit of few rows of a cell with predictions for all of them."""
    ops = ops_of(rows.Y)
    X, known = (ops.as_float64(ops.take(rows.X, at)) for at in (numbers, fit.rows))
    left_out = kernel._gram(X, known) @ fit.solution.value + fit.intercept
    left_out[np.searchsorted(numbers, fit.rows)] = fit.left_out
    return replace(fit, left_out=left_out)


def _check_cell(n: int, k: int, n_alphas: int, limit: int) -> int:
    """Return the memory that the fit of a cell takes; raise if it exceeds the limit."""
    needed = 32 * n**2  # the matrix, a copy, and the inverse of its factor
    if n_alphas > _MAX_FACTORISED:
        needed = max(needed, dual_search_bytes(n, k, n_alphas))
    subject = f"the exact {n} x {n} Gram matrix of a cell in float64"
    check_memory(needed, limit, subject, "Use fewer n_components, the rows of a cell")
    return needed


@dataclass(frozen=True)
class _CellFit:
    """A ridge regression of the rows of a cell, or of some of them."""

    rows: np.ndarray
    solution: Solution
    intercept: Any
    alpha: float
    # Minus the mean squared error of leave-one-out predictions, (n_alphas,).
    scores: np.ndarray
    # Predictions, (n, k), for all rows of the cell by fits without them.
    left_out: Any


def _fit_cell(
    kernel: Kernel,
    rows: ArrayRows,
    numbers: np.ndarray,
    alphas: np.ndarray,
    fit_intercept: bool,
) -> _CellFit:
    """Fit the rows of a cell with the best of the penalties."""
    gram = exact_gram(kernel, rows.X)
    copy = ops_of(rows.Y).copy
    scores: Any = None
    if len(alphas) > _MAX_FACTORISED:
        path = DualPath.of(
            copy(gram), rows.Y, rows.weight, alphas, fit_intercept=fit_intercept
        )
        predictions = iter([(slice(0, rows.n_rows), path.leave_one_out())])
        scores = squared_error(predictions, rows.Y, rows.weight)
        alphas = alphas[[np.nanargmax(scores)]]
    all_rows = np.arange(rows.n_rows)
    trial_scores = []
    best = None
    for alpha in alphas:
        solution, intercept, residuals = solve_dual(
            copy(gram),
            rows.Y,
            rows.weight,
            float(alpha),
            fit_intercept=fit_intercept,
            left_out=all_rows,
        )
        left_out = rows.Y - residuals
        predictions = iter([(slice(0, rows.n_rows), left_out[None])])
        score = float(squared_error(predictions, rows.Y, rows.weight)[0])
        if best is None or score > max(trial_scores):
            best = solution, intercept, float(alpha), left_out
        trial_scores.append(score)
    assert best is not None
    solution, intercept, alpha, left_out = best
    scores = np.array(trial_scores) if scores is None else scores
    return _CellFit(numbers, solution, intercept, alpha, scores, left_out)
