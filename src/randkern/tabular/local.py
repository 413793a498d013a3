"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of a cell are as
dense as the table, so kernels are learned further there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models import LocalRegressor
from randkern.models.cells import CellTree, scaled_rows
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.objectives import LeaveOneOut
from randkern.tabular.presets import CELL_STEPS, DRAWN_CELLS
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


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

    The best of the trials is learned further in half of some cells, unless this makes
    it worse in the others. Rows U are those of the table, encoded for the first trial,
    whose metric divides them into cells.
    """
    table, m, deadline = learning.table, learning.plan.learned_rows, learning.deadline
    generator = stream.child("cells").generator()
    cells = some_cells(trials[0].kernel, U, m, DRAWN_CELLS, generator)
    if len(cells) < 4 or deadline.ends(COMPARISON):
        return trials[0]
    some = table.take(np.concatenate(cells))
    codes, half = learning.codes_of(trials, some.X), len(cells) // 2
    ends = np.cumsum([len(cell) for cell in cells])
    parts = [slice(end - len(c), end) for c, end in zip(cells, ends, strict=True)]

    def is_in_time() -> bool:
        return not deadline.ends(COMPARISON)

    def loss_in(parts: list[slice], trial: Trial) -> LeaveOneOut:
        X, blocks = codes[trial.numbers], learning.blocks[trial.numbers]
        tables = [Table(X[part], some.Y[part], some.weight[part]) for part in parts]
        return LeaveOneOut(trial.kernel, tables, blocks, learning.loss, is_in_time)

    def error(trial: Trial) -> float:
        loss = loss_in(parts[half:], trial)
        return loss(loss.start(trial.alpha))[0]

    best = min(trials, key=error)
    loss = loss_in(parts[:half], best)
    loss.descend(loss.start(best.alpha), CELL_STEPS)
    _, theta = loss.best
    learned = replace(best, kernel=loss.kernel(theta), alpha=loss.alpha(theta))
    return replace(min(best, learned, key=error), n_rows=len(table))


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
    if table.folds.are_rows:
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
