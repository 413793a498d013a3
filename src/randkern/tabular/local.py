"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of a cell are as
dense as the table, so kernels are learned further there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from operator import itemgetter

import numpy as np
from sklearn.base import clone

from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models import LocalRegressor
from randkern.models.cells import CellTree, scaled_rows
from randkern.tabular.evidence import Evidence
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.leave_one_out import Loss, leave_one_out
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.presets import CELL_STEPS, DRAWN_CELLS, N_REFINED
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


def some_cells(
    kernel: Kernel, U: np.ndarray, Y: np.ndarray, m: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the rows of some cells of at most m rows each.

    Those whose targets Y differ come first: others teach no kernel, and no penalty.
    """
    _, cells = CellTree.grow(scaled_rows(kernel, U, Stream(0)), m)
    drawn = [cells[at] for at in generator.permutation(len(cells))]
    drawn.sort(key=lambda cell: not np.ptp(Y[cell], axis=0).any())
    return drawn[:DRAWN_CELLS]


def learned_in_cells(
    trials: Sequence[Trial], U: np.ndarray, learning: Learning, stream: Stream
) -> list[Trial]:
    """Return kernels by their loss of rows left out of single cells, the best first.

    The first trials are learned further by their evidence in two thirds of some cells,
    as independent processes with the same kernel and noise, and compared in the others,
    before and after. Rows U are those of the table, encoded for the first trial, whose
    metric divides them into cells.
    """
    table, m, deadline = learning.table, learning.plan.learned_rows, learning.deadline
    generator = stream.child("cells").generator()
    cells = some_cells(trials[0].kernel, U, table.Y, m, generator)
    if len(cells) < 4 or deadline.ends(COMPARISON):
        return list(trials[:1])
    parts, n_learned = [table.take(cell) for cell in cells], len(cells) * 2 // 3

    def is_in_time() -> bool:
        return not deadline.ends(COMPARISON)

    candidates: list[tuple[float, Trial]] = []
    for trial in trials[:N_REFINED]:
        if candidates and not is_in_time():
            break
        encoded = [learning.encoded_table(trial, part) for part in parts]
        blocks = learning.blocks[trial.numbers]
        goal = Evidence(trial.kernel, encoded[:n_learned], blocks, is_in_time)
        goal.descend(trial.alpha, CELL_STEPS)
        _, theta = goal.best
        again = replace(
            trial,
            kernel=goal.kernel(theta),
            alpha=goal.alpha(theta),
        )
        for each in (trial, again):
            loss = _loss_in_cells(each, encoded[n_learned:], learning.loss)
            candidates.append((loss, each))
    return [trial for _, trial in sorted(candidates, key=itemgetter(0))]


def _loss_in_cells(trial: Trial, cells: Sequence[Table], loss: Loss) -> float:
    """Return the loss of rows that are left out of fits to single cells."""
    predictions, targets, weights = [], [], []
    for cell in cells:
        residuals = leave_one_out(trial.kernel, trial.alpha, cell)
        if residuals is None:
            return math.inf
        out = cell.folds.predicted
        predictions.append(cell.Y[out] - residuals)
        targets.append(cell.Y[out])
        weights.append(cell.weight[out])
    return loss(*map(np.concatenate, (predictions, targets, weights)))


def fit_in_cells(
    trials: Sequence[Trial], table: Table, learning: Learning, stream: Stream
) -> tuple[Trial, Member]:
    """Learn a kernel in cells and fit it to all rows, in cells as large as planned.

    All cells have the penalty that is learned with the kernel: if each chose its own,
    the same work would allow cells of little more than half as many rows, and errors
    would be larger.
    """
    U = learning.encoded(trials[0], table.X, "float32")
    trial = learned_in_cells(trials, U, learning, stream)[0]
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
    fit_quietly(model, U, table.Y, table.own_weight, learning.deadline)
    return replace(member, fit=model)
