"""Kernels by what they predict for rows that they do not know.

This is the only evaluation of kernels after their search. It chooses between them,
weights them, and sets the widths of intervals of few rows.

A kernel that is learned from all rows has seen the targets by which it is evaluated:
with few rows and many columns, errors of rows that only the fit leaves out are much too
small. Learned again without a fold, it knows nothing of its targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from scipy.optimize import nnls

from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import Loss, leave_one_out
from randkern.tabular.presets import COMPARISON, LEAST_WEIGHT
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch, Trial

# Fewer rows than this teach no kernel.
_MIN_LEARNED = 8


@dataclass(frozen=True)
class Evaluated:
    """A kernel, and what least squares with it leave of rows that they do not know.

    `residuals`, (m, k), are those of the rows that are predicted. `without` has the
    kernels that are learned again without each fold, if any.
    """

    trial: Trial
    residuals: np.ndarray
    loss: float
    without: tuple[Trial, ...] = ()


def evaluated(
    trials: Sequence[Trial], learning: Learning, relearn: bool
) -> tuple[Table, list[Evaluated]]:
    """Evaluate kernels by folds; return the rows with their folds, and the best first.

    If `relearn`, as many kernels as planned are learned again without each fold, but
    not in time, where the first would know few rows. Otherwise, or if that has to end
    early, the kernels of the trials are evaluated. The rows are the first of those that
    are searched.
    """
    plan, known = learning.plan, learning.sample
    n_again = plan.n_refits if relearn and not known.folds.is_forward else 0
    if not plan.n_refits:
        known = known.take(np.arange(min(plan.compared_rows, len(known))))
    # Numbers alone leave out single rows: with five folds, errors of airfoil are 1.04
    # times as large. Learning again and logistic regression take a fit without each.
    if known.folds.is_forward:  # few periods tell less of kernels than the evidence
        trials = trials[:1]
    elif n_again or known.labels is not None:
        known = replace(known, folds=known.folds.coarse())

    def encoded(trial: Trial) -> Table:
        return replace(known, X=learning.codes[trial.numbers][: len(known)])

    found: list[Evaluated] = []
    for trial in trials[:n_again]:
        again = _learned_again(trial, learning, encoded(trial))
        if again is None:
            break
        found.append(again)
    for trial in [] if found else trials:
        if found and learning.deadline.ends(COMPARISON):
            break
        found.append(Evaluated(*evaluate(trial, [encoded(trial)], learning.loss)))
    return known, sorted(found, key=attrgetter("loss"))


def evaluate(
    trial: Trial, tables: Sequence[Table], loss: Loss
) -> tuple[Trial, np.ndarray, float]:
    """Return residuals (m, k) of rows left out of fits to single tables, and a loss.

    Tables are encoded. The penalty of the trial is increased if their rows need that.
    """
    while True:
        residuals = [
            leave_one_out(trial.kernel, trial.alpha, table) for table in tables
        ]
        known = [each for each in residuals if each is not None]
        if len(known) == len(tables):
            break
        trial = replace(trial, alpha=10 * trial.alpha)
    E = np.concatenate(known)
    Y = np.concatenate([table.Y[table.folds.predicted] for table in tables])
    weight = np.concatenate([table.weight[table.folds.predicted] for table in tables])
    return trial, E, loss(Y - E, Y, weight)


def _learned_again(
    trial: Trial, learning: Learning, encoded: Table
) -> Evaluated | None:
    """Learn a kernel again; None if too few rows are left, or at the deadline."""
    without: list[Trial] = []
    residuals = np.empty_like(encoded.Y)
    for rest, rows in encoded.folds.splits():
        if len(rest) < _MIN_LEARNED or not np.ptp(encoded.Y[rest], axis=0).any():
            return None
        learned = KernelSearch(learning, rest, COMPARISON).again(trial)
        unknown = leave_one_out(learned.kernel, learned.alpha, encoded)
        if unknown is None or learning.deadline.ends(COMPARISON):
            return None
        residuals[rows] = unknown[rows]
        without.append(learned)
    loss = learning.loss(encoded.Y - residuals, encoded.Y, encoded.weight)
    return Evaluated(trial, residuals, loss, tuple(without))


def blended(known: Table, kernels: Sequence[Evaluated]) -> list[tuple[float, Trial]]:
    """Return kernels with the weights of least squared error together, best first."""
    root = np.sqrt(known.weight[known.folds.predicted])[:, None]
    weights = blend([root * each.residuals for each in kernels])
    pairs = zip(weights.tolist(), kernels, strict=True)
    chosen = [(weight, each.trial) for weight, each in pairs if weight > 0]
    return sorted(chosen, key=lambda pair: -pair[0])


def blend(residuals: Sequence[np.ndarray]) -> np.ndarray:
    """Return weights ≥ 0 with sum 1 that minimise the blended residuals."""
    E = np.stack([part.ravel() for part in residuals], axis=1)
    size = float(np.linalg.norm(E[:, 0])) or 1.0
    heavy = 1e3 * size
    rows = np.vstack([E, np.full(E.shape[1], heavy)])
    weights, _ = nnls(rows, np.append(np.zeros(len(E)), heavy))
    if weights.sum() == 0:
        return np.eye(E.shape[1])[0]
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return weights / weights.sum()
