"""Kernels that are learned again without each fold of the rows.

A kernel that is learned from all rows has seen the targets by which it is evaluated:
with few rows and many columns, leave-one-out errors are then much too small. Learned
again without a fold, it knows nothing of its targets. What it predicts there chooses
between kinds of kernels and weights them, calibrates probabilities, and sets the widths
of intervals.

On five tables of 150 × 25 of ``randkern bench families``, this and the evidence took
errors from 0.753 to 0.609 of the deviation of the targets, and on six tables of labels
the log loss from 0.771 to 0.722 (geometric means). On eight more, the mean of kernels
learned without each fold, fitted to all rows, was no better than one learned from all
(0.544 and 0.540).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from randkern.tabular.folds import Folds, refitted_folds
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.trials import Trial


@dataclass(frozen=True)
class Refit:
    """A kind of kernel, learned from all rows and again without each fold.

    `without` has one trial per fold, and `residuals` (n, k) are those of least squares
    with its kernel on the rows of the fold, which it does not know.
    """

    trial: Trial
    folds: Folds
    without: tuple[Trial, ...]
    residuals: np.ndarray
    loss: float


def is_refitted(learning: Learning) -> bool:
    """Return whether kernels are learned again without each fold.

    In time, the first of these kernels would know few rows.
    """
    folds = learning.table.folds
    return learning.plan.n_refits > 0 and not (folds is not None and folds.is_forward)


def refits_of(trials: Sequence[Trial], learning: Learning) -> list[Refit]:
    """Learn kernels again, as many as are planned; return the best first.

    Of trials of one kind, which differ in where they started, the first counts.
    """
    kinds: dict[tuple[str, str, str], Trial] = {}
    for trial in trials:
        kinds.setdefault((trial.form, trial.numbers, trial.metric), trial)
    refits: list[Refit] = []
    for trial in list(kinds.values())[: learning.plan.n_refits]:
        refit = _refit(trial, learning)
        if refit is None:
            break
        refits.append(refit)
    return sorted(refits, key=attrgetter("loss"))


def _refit(trial: Trial, learning: Learning) -> Refit | None:
    """Learn a kernel again; None if too few rows are left, or at the deadline."""
    known = learning.table.take(learning.searched)
    folds = refitted_folds(known.folds, len(known))
    without: list[Trial] = []
    residuals = np.empty_like(known.Y)
    for rest, rows in folds.splits():
        learned = learning.relearned(trial, rest)
        if learned is None:
            return None
        U, options = learning.sample(learned), (known.Y, known.weight, folds)
        unknown = leave_one_out(learned.kernel, learned.alpha, U, *options)
        if unknown is None:
            return None
        residuals[rows] = unknown[rows]
        without.append(learned)
    loss, _ = learning.loss(known.Y - residuals, known.Y, known.weight)
    return Refit(trial, folds, tuple(without), residuals, loss)
