r"""Overlapping cells of near rows, and weights with which fits to them are blended.

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

Many copies of a row cannot be divided by a hyperplane. A node that consists of little
else gives every other row to each of its children, both of weight 1/2 everywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels import Kernel
from randkern.kernels.draw import fit_plan
from randkern.kernels.stationary import Stationary
from randkern.plan import evaluate

# β, the share of the rows of a node of twice the size of a cell (times √2) that lie in
# its band.
OVERLAP = 0.25
# Rows of a node from which its hyperplane is computed, and steps of power iteration.
_DIRECTION_ROWS = 2000
_POWER_STEPS = 20
# A hyperplane gives each side at most this share of the rows.
_MAX_SHARE = 0.9
# Features that stand for the kernel's own distance if it has no lengthscale.
_N_FEATURES = 256


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


def are_wide(X: Rows) -> bool:
    """Return whether rows are sparse with too many columns for a dense array."""
    return sp.issparse(X) and X.shape[1] > _N_FEATURES


def scaled_rows(kernel: Kernel, X: Rows, stream: Stream) -> np.ndarray:
    """Return rows (n, e) whose Euclidean distances resemble those of the kernel.

    Columns are divided by the lengthscales of the stationary kernels that read them.
    Features replace the rows of kernels without lengthscales, and sparse rows of many
    columns; of few columns, they are those of the same dense rows.
    """
    ops = ops_of(X)
    if sp.issparse(X) and not are_wide(X):
        X, ops = ops.densified(X), ops_of(np.empty(0))
    scaled = None if sp.issparse(X) else scaled_columns(kernel, ops.to_host(X))
    if scaled is None:
        exact = [term.exact_width(X.shape[1]) for term in kernel.terms()]
        known = [width for width in exact if width is not None]
        width = sum(known) if len(known) == len(exact) else _N_FEATURES
        plan = fit_plan(kernel, X, None, min(width, _N_FEATURES), stream)
        scaled = ops.to_host(evaluate(plan, X))
    return np.ascontiguousarray(scaled, dtype=np.float64)


@dataclass(frozen=True)
class CellTree:
    """Hyperplanes that divide rows into overlapping cells.

    Node 0 is the root. Rows with ``row @ directions[i] <= low[i]`` belong to the left
    child of node i alone, those at or beyond ``high[i]`` to the right one alone. The
    child ``~c`` is cell c. The direction 0 gives all rows to both children.

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
    ) -> tuple[CellTree, list[np.ndarray]]:
        """Divide rows (n, e) into cells of about equal size, at most `cell_rows`.

        Returns the tree, and the numbers of the rows of each cell, in ascending order.
        """
        directions: list[np.ndarray] = []
        bands: list[tuple[float, float]] = []
        children: list[list[int]] = []
        cells: list[np.ndarray] = []
        # Of nodes with 0, 1, 2, ... cells, as far as there are any.
        sizes = [0.0]
        growing = _node_sizes(overlap)
        while sizes[-1] * cell_rows < len(rows):
            sizes.append(next(growing))
        # Each entry: the rows of a node, and where its number belongs.
        pending: list[tuple[np.ndarray, int, int]] = [(np.arange(len(rows)), -1, 0)]
        while pending:
            members, parent, side = pending.pop()
            if len(members) > cell_rows:
                share = overlap * math.sqrt(cell_rows / len(members))
                parts = bisect_left(sizes, len(members) / cell_rows)
                left_share = sizes[parts // 2]
                left_share /= left_share + sizes[parts - parts // 2]
                number = len(directions)
                split = _split(rows[members], share, left_share)
                if split is None:
                    left, right = members[::2], members[1::2]
                    split = np.zeros(rows.shape[1]), -1.0, 1.0
                else:
                    direction, low, high = split
                    position = rows[members] @ direction
                    left, right = members[position < high], members[position > low]
                directions.append(split[0])
                bands.append(split[1:])
                children.append([0, 0])
                pending += [(right, number, 1), (left, number, 0)]
            else:
                number = ~len(cells)
                cells.append(members)
            if parent >= 0:
                children[parent][side] = number
        n_nodes = len(directions)
        limits = np.array(bands, dtype=float).reshape(n_nodes, 2)
        tree = cls(
            directions=np.array(directions).reshape(n_nodes, rows.shape[1]),
            low=limits[:, 0],
            high=limits[:, 1],
            children=np.array(children, dtype=np.int64).reshape(n_nodes, 2),
            n_cells=len(cells),
        )
        return tree, cells

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
    1 - left, as far as copies of rows permit. None if nearly all rows are copies.
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
    # Both sides must lose rows, also where many rows have the same position.
    right_share, left_share = np.mean(position > low), np.mean(position < high)
    if low < high and max(left_share, right_share) < _MAX_SHARE:
        return direction, float(low), float(high)
    steps = np.flatnonzero(np.diff(position) > 1e-12 * (position[-1] - position[0]))
    if not len(steps):
        return None
    at = steps[np.argmin(abs(steps + 1 - left * n))]
    if not 1 - _MAX_SHARE < (at + 1) / n < _MAX_SHARE:
        return None
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
