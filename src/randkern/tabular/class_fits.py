"""The fits of a classifier, chosen by rows that they do not know.

Of few rows, kernels and penalties are chosen by folds. Of many, they are chosen by some
rows of single cells, which are as dense as the table, and fitted in overlapping cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from operator import attrgetter
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import LocalClassifier
from randkern.tabular.exact_logistic import (
    ExactLogistic,
    HeldOut,
    Part,
    dual_logistic,
    with_best_strength,
)
from randkern.tabular.learning import Learning
from randkern.tabular.local import drawn_cells, learned_in_cells
from randkern.tabular.model import Member, fit_member
from randkern.tabular.out_of_fold import Evaluated
from randkern.tabular.presets import (
    COMPARISON,
    LAST_FIT,
    LEAST_WEIGHT,
    N_BEST,
    Plan,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial

# Parts with their weights, the best first.
Chosen = list[tuple[float, Part]]


def used_rows(table: Table, plan: Plan, stream: Stream) -> Table:
    """Return the rows for which there is time, and one of each class."""
    if plan.fitted_rows >= len(table):
        return table
    order = stream.child("rows").generator().permutation(len(table))
    _, first = np.unique(table.labels[order], return_index=True)
    chosen = np.union1d(np.arange(plan.fitted_rows), first)
    return table.take(np.sort(order[chosen]))


def chosen_in_folds(
    known: Table, kernels: Sequence[Evaluated], learning: Learning
) -> Chosen:
    """Return the parts whose mean has the least log loss in folds of the known rows."""
    splits = list(known.folds.splits())
    parts: list[Part] = []
    for kernel in kernels[: learning.plan.n_members]:
        if parts and learning.deadline.ends(COMPARISON):
            break
        X = learning.codes[kernel.trial.numbers][: len(known)]
        problems = [
            dual_logistic(trial.kernel, X, known.Y)
            for trial in kernel.without or [kernel.trial]
        ]
        fits = [
            HeldOut(problem, known, *split)
            for problem, split in zip(cycle(problems), splits, strict=False)
        ]
        parts.append(with_best_strength(kernel.trial, fits, learning.deadline))
    return _blended(parts)


def chosen_in_cells(trials: Sequence[Trial], learning: Learning) -> Chosen:
    """Return the parts whose mean has the least log loss in folds of some cells.

    Their kernels are the best of those that are learned in other cells.
    """
    teaching, others = drawn_cells(trials[0], learning)
    kernels = learned_in_cells(trials, teaching, others, learning)
    cells = [learning.table.take(rows) for rows in others]
    parts: list[Part] = []
    for trial in kernels[:N_BEST]:
        if parts and learning.deadline.ends(COMPARISON):
            break
        fits: list[HeldOut] = []
        for cell in cells:
            encoded = learning.encoded_table(trial.numbers, cell, "float32")
            problem = dual_logistic(trial.kernel, encoded.X, encoded.Y)
            splits = cell.folds.coarse().splits()
            fits += [HeldOut(problem, encoded, *split) for split in splits]
        parts.append(with_best_strength(trial, fits, learning.deadline))
    parts.sort(key=attrgetter("loss"))
    return _blended(parts[: learning.plan.n_members])


def _blended(parts: Sequence[Part]) -> Chosen:
    """Return parts with the weights of least log loss together, the heaviest first."""
    weights = blend_probabilities([part.chances for part in parts], parts[0].weight)
    order = np.argsort(-weights, kind="stable")
    return [(float(weights[at]), parts[at]) for at in order if weights[at]]


def fit_parts(chosen: Chosen, learning: Learning) -> list[tuple[Member, Trial]]:
    """Fit all rows, in cells if that is planned."""
    plan, table = learning.plan, learning.table
    pairs: list[tuple[Member, Trial]] = []
    for share, part in chosen:
        if pairs and learning.deadline.ends(LAST_FIT):
            break
        trial = part.trial
        model: Any = ExactLogistic(trial.kernel, part.C)
        if 0 < plan.cell_rows < len(table):
            model = LocalClassifier(model, plan.cell_rows)
        pairs.append((fit_member(share, trial, model, table, learning), trial))
    return pairs


def blend_probabilities(
    chances: Sequence[np.ndarray], weight: np.ndarray
) -> np.ndarray:
    """Return weights ≥ 0 with sum 1 of the smallest log loss of a mean.

    `chances`, (n,) each, are those that the fits give to the classes of rows. The EM
    algorithm for mixtures finds the weights.
    """
    shares = weight / weight.sum()
    rows = np.stack(chances)
    weights = np.full(len(rows), 1 / len(rows))
    for _ in range(300):
        weights = weights * ((rows / (weights @ rows)) @ shares)
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return weights / weights.sum()
