"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of one cell are as
dense as the table, so each step of learning here uses those of another cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models import LocalRegressor
from randkern.models.cells import CellTree, scaled_rows
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.presets import (
    CELL_STEPS,
    TRIED_STEPS,
    VALIDATION_CELLS,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch, Trial


@dataclass(frozen=True)
class _Cells:
    """Rows of some cells, m of each, encoded for some trials."""

    m: int
    table: Table
    codes: dict[str, np.ndarray]

    def loss(self, trial: Trial, cells: range, learning: Learning) -> float:
        """Return the mean leave-one-out loss of the rows of single cells."""
        total = 0.0
        for cell in cells:
            here = slice(cell * self.m, (cell + 1) * self.m)
            X = self.codes[trial.numbers][here]
            Y, weight = self.table.Y[here], self.table.weight[here]
            weight = weight / weight.mean()
            residuals = leave_one_out(trial.kernel, trial.alpha, X, Y, weight)
            if residuals is None:
                return np.inf
            total += learning.loss(Y - residuals, Y, weight)[0] / len(cells)
        return total


def some_cells(
    kernel: Kernel, U: np.ndarray, m: int, n_cells: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the rows of some cells of at most m rows each."""
    scaled = scaled_rows(kernel, U, Stream(0))
    _, numbers = CellTree.grow(scaled, m)
    drawn = generator.permutation(len(numbers))[:n_cells]
    return [numbers[cell] for cell in drawn]


def learned_in_cells(
    trials: Sequence[Trial],
    U: np.ndarray,
    learning: Learning,
    stream: Stream,
) -> Trial:
    """Return the kernel with the smallest leave-one-out loss in cells.

    Every trial takes some steps on cells, the best one more. Rows U are those of the
    table, encoded for the first trial, whose metric divides them into cells.
    """
    table, m, deadline = learning.table, learning.plan.learned_rows, learning.deadline
    scaled = scaled_rows(trials[0].kernel, U, Stream(0))
    tree, numbers = CellTree.grow(scaled, 2 * m)
    n_learned = min(tree.n_cells - VALIDATION_CELLS, TRIED_STEPS + CELL_STEPS)
    if n_learned < 2 * VALIDATION_CELLS or deadline.ends(COMPARISON):
        return trials[0]
    generator = stream.child("cells").generator()
    drawn = generator.permutation(len(numbers))[: n_learned + VALIDATION_CELLS]
    m = min(m, min(len(numbers[cell]) for cell in drawn))
    rows = [generator.choice(numbers[cell], m, replace=False) for cell in drawn]
    some = table.take(np.concatenate(rows))
    cells = _Cells(m, some, learning.codes_of(trials, some.X))
    validation = range(n_learned, n_learned + VALIDATION_CELLS)
    learning_rows = np.arange(n_learned * m)
    search = KernelSearch(
        cells.codes,
        learning.blocks,
        some.normalised(),
        learning_rows,
        learning.loss,
        deadline,
        COMPARISON,
    )
    found: list[Trial] = []
    for trial in trials:
        if found and deadline.ends(COMPARISON):
            break
        found += [trial, search.stream(search.started(trial), m, TRIED_STEPS)]
    losses = [cells.loss(trial, validation, learning) for trial in found]
    best = int(np.argmin(losses))
    if deadline.ends(COMPARISON):
        return found[best]
    search.order = np.roll(learning_rows, -TRIED_STEPS * m)
    last = search.stream(search.started(found[best]), m, CELL_STEPS)
    is_better = cells.loss(last, validation, learning) < losses[best]
    return replace(last if is_better else found[best], n_rows=len(table))


def fit_in_cells(
    trials: Sequence[Trial], table: Table, learning: Learning, stream: Stream
) -> tuple[Trial, Member]:
    """Learn a kernel in cells and fit it to all rows, in cells as large as planned.

    All cells have the penalty that is learned with the kernel: if each chose its own,
    the same work would allow cells of little more than half as many rows, and errors
    would be larger. Rows that depend on each other do not learn kernels in cells, as
    their leave-one-out errors are too small.
    """
    trial = trials[0]
    U = learning.encoded(trial, table.X, "float32")
    if table.folds is None:
        trial = learned_in_cells(trials, U, learning, stream)
    if trial.numbers != trials[0].numbers:
        U = learning.encoded(trial, table.X, "float32")
    ridge = ExactRidge(trial.kernel, float(trial.alpha))
    model = LocalRegressor(ridge, learning.plan.cell_rows)
    fit_quietly(model, U, table.Y, table.own_weight, learning.deadline)
    encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
    return trial, Member(1.0, encoder, model)


def fit_again(member: Member, trial: Trial, table: Table, learning: Learning) -> Member:
    """Return a fit to other rows with the same kernel and penalty."""
    U, model = learning.encoded(trial, table.X, "float32"), clone(member.fit)
    fit_quietly(model, U, table.Y, table.own_weight)
    return replace(member, fit=model)
