"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of one cell are as
dense as the table, so each step of learning here uses those of another cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models.cells import CellTree, rows_of_cells, scaled_rows
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.members import MEMORY_LIMIT, fit_quietly
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch
from randkern.tabular.trials import Trial
from randkern.tabular.work import Stage, cells_seconds, evaluation_seconds, largest

# The least and the largest number of rows of cells from which kernels are learned.
_MIN_LEARNED, _MAX_LEARNED = 200, 1000
# Steps of all kernels, of the best one, and cells that evaluate them.
_TRIED_STEPS, _STEPS, _N_VALIDATION = 12, 24, 4
# Share of the time for learning, or, if rows depend on others, for adapting the kernel
# to more rows; and the least share of the whole for the fit.
LEARNING_SHARE, MIN_SHARE = 0.4, 0.05
# The fewest rows of a cell, and the most, whose matrices take a gigabyte.
_MIN_ROWS, _MAX_ROWS = 250, 6000


def cells_within(
    n: int,
    n_columns: int,
    seconds: float,
    cell_seconds: Callable[[int], float] | None = None,
    most: int = _MAX_ROWS,
) -> tuple[int, float]:
    """Return the rows of the largest cells that are fitted in time, and the work.

    If there is no time for the smallest cells, these. `cell_seconds` returns the work
    of a cell of so many rows, by default that of least squares.
    """
    n_cells = 1
    while True:
        rows = rows_of_cells(n, n_cells)
        work = cells_seconds(n_cells, rows, n_columns)
        if cell_seconds is not None:
            work = n_cells * cell_seconds(rows)
        if rows <= _MIN_ROWS or (rows <= most and work <= seconds):
            return rows, work
        n_cells += 1 + n_cells // 20


def most_in_cells(seconds: float) -> int:
    """Return the number of rows that the smallest cells fit in about `seconds`."""
    n = 10**6
    return int(seconds * n / cells_within(n, 0, 0.0)[1]) + 1


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
            learning.work.charge(evaluation_seconds(len(X), X.shape[1], Y.shape[1]))
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
    numbers = [rows for _, rows, _ in CellTree.grow(scaled, m).cells(scaled)]
    drawn = generator.permutation(len(numbers))[:n_cells]
    return [numbers[cell] for cell in drawn]


def learned_in_cells(
    trials: Sequence[Trial],
    U: np.ndarray,
    learning: Learning,
    stage: Stage,
    stream: Stream,
) -> Trial:
    """Return the kernel with the smallest leave-one-out loss in cells.

    Every trial takes some steps on cells, the best one more. Rows U are those of the
    table, encoded for the first trial, whose metric divides them into cells.
    """
    table, n_columns = learning.table, max(map(learning.n_columns, trials))
    k = table.Y.shape[1]
    evaluations = (
        len(trials) * (_TRIED_STEPS + 2 * _N_VALIDATION) + _STEPS + _N_VALIDATION
    )
    m = largest(
        lambda m: evaluations * evaluation_seconds(m, n_columns, k),
        stage.left,
        _MIN_LEARNED,
        _MAX_LEARNED,
    )
    scaled = scaled_rows(trials[0].kernel, U, Stream(0))
    tree = CellTree.grow(scaled, 2 * m)
    n_learned = min(tree.n_cells - _N_VALIDATION, _TRIED_STEPS + _STEPS)
    if n_learned < 2 * _N_VALIDATION or stage.over:
        return trials[0]
    generator = stream.child("cells").generator()
    numbers = [members for _, members, _ in tree.cells(scaled)]
    drawn = generator.permutation(len(numbers))[: n_learned + _N_VALIDATION]
    m = min(m, min(len(numbers[cell]) for cell in drawn))
    rows = [generator.choice(numbers[cell], m, replace=False) for cell in drawn]
    some = table.take(np.concatenate(rows))
    cells = _Cells(m, some, learning.codes_of(trials, some.X))
    blocks = {name: learning.encoders[name].blocks_ for name in cells.codes}
    weight = some.weight / some.weight.mean()
    search = KernelSearch(
        cells.codes,
        blocks,
        some.Y,
        weight,
        stage,
        stream,
        lambda _: False,
        learning.loss,
    )
    validation = range(n_learned, n_learned + _N_VALIDATION)
    learning_rows = np.arange(n_learned * m)
    found: list[Trial] = []
    for trial in trials:
        if found and stage.over:
            break
        search.order = learning_rows
        found += [trial, search.stream(search.started(trial), m, _TRIED_STEPS)]
    losses = [cells.loss(trial, validation, learning) for trial in found]
    best = int(np.argmin(losses))
    if stage.over:
        return found[best]
    search.order = np.roll(learning_rows, -_TRIED_STEPS * m)
    last = search.stream(search.started(found[best]), m, _STEPS)
    is_better = cells.loss(last, validation, learning) < losses[best]
    return replace(last if is_better else found[best], n_rows=len(table))


def fit_in_cells(
    make: Callable[..., Any],
    trials: Sequence[Trial],
    y: np.ndarray,
    weight: np.ndarray | None,
    learning: Learning,
    stream: Stream,
    seed: int,
    stage: Stage,
    are_independent: bool = True,
) -> tuple[Trial, Any]:
    """Learn a kernel in cells and fit it to all rows, in cells as large as possible.

    `make` is a ridge model, `y` its targets or labels. All cells have the penalty that
    is learned with the kernel: if each chose its own, the same work would allow cells
    of little more than half as many rows, and errors would be larger. Rows that depend
    on each other do not learn kernels in cells, as their leave-one-out errors are too
    small.
    """
    X = learning.table.X
    U = learning.encoded(trials[0], X, "float32")
    learn = stage.part(LEARNING_SHARE * stage.left)
    if are_independent:
        trial = learned_in_cells(trials, U, learning, learn, stream)
    else:
        trial = learning.adapted(trials[0], learn)
    if trial.numbers != trials[0].numbers:
        U = learning.encoded(trial, X, "float32")
    least = MIN_SHARE * stage.work.limit
    n, n_columns = U.shape
    rows, seconds = cells_within(n, n_columns, max(stage.left, least))
    if (allowed := stage.affordable(seconds)) < seconds:
        rows, seconds = cells_within(n, n_columns, allowed)
    stage.work.charge(seconds)
    model = make(
        trial.kernel,
        float(trial.alpha),
        rows,
        features="local",
        fit_intercept=True,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )
    fit_quietly(model, U, y, weight, stage)
    return trial, model
