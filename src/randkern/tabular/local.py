"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of a cell are as
dense as the table, so kernels are learned further there.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from randkern._random import Stream
from randkern.models import LocalRegressor
from randkern.models.cells import CellTree, scaled_rows
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import Learning
from randkern.tabular.model import Member, fit_member
from randkern.tabular.out_of_fold import evaluate
from randkern.tabular.presets import (
    COMPARISON,
    DRAWN_CELLS,
    N_BEST,
    STEPS_AGAIN,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial, learned


def drawn_cells(
    trial: Trial, learning: Learning
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the rows of cells that teach kernels, and of others that compare them.

    The metric of a kernel divides the table into cells. Those whose targets are all
    equal teach nothing; of the others, the same share is drawn everywhere, as
    neighbours follow each other. Three fifths of these teach kernels. A single one
    does both.
    """
    table, m = learning.table, learning.plan.learned_rows
    U = learning.encoded(trial.numbers, table.X, "float32")
    _, cells = CellTree.grow(scaled_rows(trial.kernel, U, Stream(0)), m)
    varied = [rows for rows in cells if np.ptp(table.Y[rows], axis=0).any()] or cells
    n_drawn = min(len(varied), DRAWN_CELLS)
    places = np.linspace(0, len(varied) - 1, n_drawn).astype(int)
    drawn = [varied[at] for at in places]
    teaching, others = drawn[::5] + drawn[2::5] + drawn[4::5], drawn[1::5] + drawn[3::5]
    return teaching, others or drawn


def learned_in_cells(
    trials: Sequence[Trial],
    teaching: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
    learning: Learning,
) -> list[Trial]:
    """Return kernels by their loss of rows left out of cells, the best first.

    The first trials are learned further by their evidence in the cells that teach, and
    compared in the others, before and after.
    """
    deadline = learning.deadline
    candidates: list[tuple[float, Trial]] = []
    for trial in trials[:N_BEST]:
        if candidates and deadline.ends(COMPARISON):
            break
        known, unknown = (
            [
                learning.encoded_table(trial.numbers, learning.table.take(rows))
                for rows in cells
            ]
            for cells in (teaching, others)
        )
        again = learned(
            trial, known, learning, STEPS_AGAIN, lambda: not deadline.ends(COMPARISON)
        )
        for each in (trial, again):
            evaluated, _, loss = evaluate(each, unknown, learning.loss)
            candidates.append((loss, evaluated))
    return [trial for _, trial in sorted(candidates, key=itemgetter(0))]


def fit_in_cells(
    trials: Sequence[Trial], table: Table, learning: Learning
) -> tuple[Trial, Member]:
    """Learn a kernel in cells and fit it to all rows, in cells as large as planned.

    All cells have the penalty that is learned with the kernel: if each chose its own,
    the same work would allow cells of little more than half as many rows, and errors
    would be larger.
    """
    cells = drawn_cells(trials[0], learning)
    trial = learned_in_cells(trials, *cells, learning)[0]
    ridge = ExactRidge(trial.kernel, float(trial.alpha))
    model = LocalRegressor(ridge, learning.plan.cell_rows)
    return trial, fit_member(1.0, trial, model, table, learning)
