"""Kernels by what they predict for rows that they do not know.

This is the only evaluation of kernels after their search. It chooses between them and
weights them; classes are calibrated by it, and few rows get the widths of intervals.

A kernel that is learned from all rows has seen the targets by which it is evaluated:
with few rows and many columns, errors of rows that only the fit leaves out are much too
small. Learned again without a fold, it knows nothing of its targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


@dataclass(frozen=True)
class Evaluated:
    """A kernel, and what least squares with it leave of rows that they do not know.

    `without` has the kernels of the fits without each fold: learned again without its
    rows, or the same for all. `residuals`, (m, k), are those of the rows that are
    predicted.
    """

    trial: Trial
    without: tuple[Trial, ...]
    residuals: np.ndarray
    loss: float

    @property
    def learned_again(self) -> bool:
        """Whether the kernels of the fits do not know the rows of their fold."""
        return self.without[0] is not self.trial


def evaluated(
    trials: Sequence[Trial], learning: Learning, n_again: int = 0
) -> tuple[Table, list[Evaluated]]:
    """Evaluate kernels by folds; return the rows with their folds, and the best first.

    The first `n_again` kernels are learned again without each fold. If it is 0, or it
    has to end early, the kernels of the trials are evaluated. The rows are the first of
    those that are searched.
    """
    plan = learning.plan
    known = learning.sample
    if not plan.n_refits:
        known = known.take(np.arange(min(plan.compared_rows, len(known))))
    # Numbers alone leave out single rows: with five folds, errors of airfoil are 1.04
    # times as large. Learning again and logistic regression take a fit without each.
    if known.folds.is_forward:  # few periods tell less of kernels than the evidence
        trials = trials[:1]
    elif n_again or known.labels is not None:
        known = replace(known, folds=known.folds.coarse())
    found: list[Evaluated] = []
    for trial in trials[:n_again]:
        again = _learned_again(trial, learning, known)
        if again is None:
            break
        found.append(again)
    for trial in [] if found else trials:
        if found and learning.deadline.ends(COMPARISON):
            break
        found.append(_evaluated(trial, learning, known))
    return known, sorted(found, key=attrgetter("loss"))


def _left_out(trial: Trial, learning: Learning, known: Table) -> np.ndarray | None:
    """Return the residuals of folds that a kernel leaves out."""
    encoded = replace(known, X=learning.codes[trial.numbers][: len(known)])
    return leave_one_out(trial.kernel, trial.alpha, encoded)


def _evaluated(trial: Trial, learning: Learning, known: Table) -> Evaluated:
    """Evaluate the kernel of a trial."""
    while (residuals := _left_out(trial, learning, known)) is None:
        # Other rows may need a larger penalty.
        trial = replace(trial, alpha=10 * trial.alpha)
    out = known.folds.predicted
    Y, weight = known.Y[out], known.weight[out]
    loss = learning.loss(Y - residuals, Y, weight)
    n_fits = len(np.unique(known.folds.codes[out]))
    return Evaluated(trial, (trial,) * n_fits, residuals, loss)


def _learned_again(trial: Trial, learning: Learning, known: Table) -> Evaluated | None:
    """Learn a kernel again; None if too few rows are left, or at the deadline."""
    without: list[Trial] = []
    residuals = np.empty_like(known.Y)
    for rest, rows in known.folds.splits():
        learned = learning.relearned(trial, rest)
        if learned is None:
            return None
        unknown = _left_out(learned, learning, known)
        if unknown is None:
            return None
        residuals[rows] = unknown[rows]
        without.append(learned)
    loss = learning.loss(known.Y - residuals, known.Y, known.weight)
    return Evaluated(trial, tuple(without), residuals, loss)
