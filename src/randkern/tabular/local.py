"""Exact kernels in overlapping cells of rows, learned where all rows are.

A random sample of a large table is sparse: on it, details that all rows would resolve
look like noise, and kernels learned from it are too smooth. The rows of one cell are as
dense as the table, so each step of learning here uses those of another cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from randkern._fitting import is_late
from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.models import LocalRegressor
from randkern.models.cells import CellTree, scaled_rows
from randkern.models.dual import exact_gram, solve_dual
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.members import fit_quietly
from randkern.tabular.presets import (
    CELL_STEPS,
    LATE_ROWS,
    TRIED_STEPS,
    VALIDATION_CELLS,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch
from randkern.tabular.trials import Trial


class CellRidge(RegressorMixin, TakesKernel):
    """Least squares with the exact kernel, also without each of the rows.

    `left_out_`, (n, k), are the predictions for the rows of the fit by fits without
    them. Once it is late, few rows are fitted.
    """

    ridge_: ExactRidge
    left_out_: np.ndarray

    def __init__(self, kernel: Kernel | None = None, alpha: float = 1.0):
        self.kernel = kernel
        self.alpha = alpha

    def fit(
        self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> CellRidge:
        kernel = self._kernel_or_default
        Y = y.reshape(len(X), -1)
        rows = np.arange(0, len(X), -(-len(X) // LATE_ROWS) if is_late() else 1)
        weight = None if sample_weight is None else sample_weight[rows]
        mean = np.average(Y[rows], axis=0, weights=weight)
        solution, intercept, residuals = solve_dual(
            exact_gram(kernel, X[rows]),
            Y[rows] - mean,
            weight,
            self.alpha,
            fit_intercept=True,
            left_out=np.arange(len(rows)),
        )
        intercept = intercept + mean
        self.ridge_ = ExactRidge(
            kernel, self.alpha, X[rows], solution.value, intercept, rows, residuals
        )
        all_fitted = len(rows) == len(X)
        self.left_out_ = np.empty(Y.shape) if all_fitted else self._values(X)
        self.left_out_[rows] = Y[rows] - residuals
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def _values(self, X: np.ndarray) -> np.ndarray:
        return self.ridge_.predict(X.astype(np.float64, copy=False))


def left_out_in_cells(model: LocalRegressor, X: np.ndarray) -> np.ndarray:
    """Return predictions (n, k) for the rows of a fit of `CellRidge` without them."""
    out: Any = 0.0
    scaled = scaled_rows(model.kernel_, X, Stream(0))
    for cell, members, weight in model.tree_.cells(scaled):
        fit = model.estimators_[cell]
        _, here, own = np.intersect1d(
            members, model.estimators_samples_[cell], return_indices=True
        )
        values = np.empty((len(members), fit.left_out_.shape[1]))
        values[here] = fit.left_out_[own]
        others = np.delete(np.arange(len(members)), here)
        if len(others):
            values[others] = fit.predict(X[members[others]]).reshape(len(others), -1)
        out = np.zeros((len(X), values.shape[1])) if np.ndim(out) == 0 else out
        out[members] += weight[:, None] * values
    # Copies of a row are one row of the fit, and are left out together.
    return out if model._copied is None else out[model._copied]


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
    blocks = {name: learning.encoders[name].blocks_ for name in cells.codes}
    weight = some.weight / some.weight.mean()
    search = KernelSearch(
        cells.codes,
        blocks,
        some.Y,
        weight,
        deadline,
        stream,
        loss=learning.loss,
    )
    search.step = COMPARISON
    validation = range(n_learned, n_learned + VALIDATION_CELLS)
    learning_rows = np.arange(n_learned * m)
    found: list[Trial] = []
    for trial in trials:
        if found and deadline.ends(COMPARISON):
            break
        search.order = learning_rows
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
    trials: Sequence[Trial],
    y: np.ndarray,
    weight: np.ndarray | None,
    learning: Learning,
    stream: Stream,
    are_independent: bool = True,
) -> tuple[Trial, LocalRegressor]:
    """Learn a kernel in cells and fit it to all rows, in cells as large as planned.

    All cells have the penalty that is learned with the kernel: if each chose its own,
    the same work would allow cells of little more than half as many rows, and errors
    would be larger. Rows that depend on each other do not learn kernels in cells, as
    their leave-one-out errors are too small.
    """
    X = learning.table.X
    U = learning.encoded(trials[0], X, "float32")
    trial = trials[0]
    if are_independent:
        trial = learned_in_cells(trials, U, learning, stream)
    if trial.numbers != trials[0].numbers:
        U = learning.encoded(trial, X, "float32")
    ridge = CellRidge(trial.kernel, float(trial.alpha))
    model = LocalRegressor(ridge, learning.plan.cell_rows)
    fit_quietly(model, U, y, weight, learning.deadline)
    return trial, model
