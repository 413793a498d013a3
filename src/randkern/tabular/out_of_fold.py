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

from randkern.tabular.folds import Folds, folds_of
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


@dataclass(frozen=True)
class OutOfFold:
    """Kernels that are evaluated on the same rows, the best first.

    `known` are the first of the searched rows, of which some are `predicted`.
    """

    known: Table
    folds: Folds
    kernels: list[Evaluated]
    learned_again: bool

    @property
    def predicted(self) -> np.ndarray:
        """The positions of the rows that are predicted."""
        return self.folds.predicted


def evaluated(
    trials: Sequence[Trial], learning: Learning, n_again: int = 0
) -> OutOfFold:
    """Evaluate kernels by folds.

    The first `n_again` kernels are learned again without each fold. If it is 0, or it
    has to end early, the kernels of the trials are evaluated.
    """
    plan = learning.plan
    known = learning.sample
    if not plan.n_refits:
        known = known.take(np.arange(min(plan.compared_rows, len(known))))
    folds = folds_of(known.folds, len(known))
    if folds.is_forward:  # few periods tell less about kernels than the evidence
        trials = trials[:1]
    found: list[Evaluated] = []
    for trial in trials[:n_again]:
        again = _learned_again(trial, learning, known, folds)
        if again is None:
            break
        found.append(again)
    is_again = bool(found)
    for trial in [] if is_again else trials:
        if found and learning.deadline.ends(COMPARISON):
            break
        found.append(_evaluated(trial, learning, known, folds))
    found.sort(key=attrgetter("loss"))
    return OutOfFold(known, folds, found, is_again)


def _evaluated(
    trial: Trial, learning: Learning, known: Table, folds: Folds
) -> Evaluated:
    """Evaluate the kernel of a trial.

    Least squares alone leaves out single rows, or single groups; logistic regression is
    compared with it, and takes a fit without each fold.
    """
    U, out = learning.codes[trial.numbers][: len(known)], folds.predicted
    residuals = None
    left_out = known.folds if known.labels is None else folds
    while residuals is None:  # other rows may need a larger penalty
        options = known.Y, known.weight, left_out
        residuals = leave_one_out(trial.kernel, trial.alpha, U, *options)
        if residuals is None:
            trial = replace(trial, alpha=10 * trial.alpha)
    Y, weight = known.Y[out], known.weight[out]
    loss, _ = learning.loss(Y - residuals, Y, weight)
    return Evaluated(trial, (trial,) * len(list(folds.splits())), residuals, loss)


def _learned_again(
    trial: Trial, learning: Learning, known: Table, folds: Folds
) -> Evaluated | None:
    """Learn a kernel again; None if too few rows are left, or at the deadline."""
    without: list[Trial] = []
    residuals = np.empty_like(known.Y)
    for rest, rows in folds.splits():
        learned = learning.relearned(trial, rest)
        if learned is None:
            return None
        U = learning.codes[learned.numbers]
        options = known.Y, known.weight, folds
        unknown = leave_one_out(
            learned.kernel, learned.alpha, U[: len(known)], *options
        )
        if unknown is None:
            return None
        residuals[rows] = unknown[rows]
        without.append(learned)
    loss, _ = learning.loss(known.Y - residuals, known.Y, known.weight)
    return Evaluated(trial, tuple(without), residuals, loss)
