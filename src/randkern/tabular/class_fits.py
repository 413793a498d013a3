"""The fits of a classifier, chosen by rows that they do not know.

Of few rows, kernels and penalties are chosen by folds. Of many, they are chosen by some
rows of single cells, which are as dense as the table, and fitted in overlapping cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import LocalClassifier
from randkern.tabular.combine import blend_probabilities
from randkern.tabular.exact_logistic import (
    ExactLogistic,
    HeldOut,
    Part,
    dual_logistic,
    with_best_strength,
)
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.local import learned_in_cells, some_cells
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.out_of_fold import Evaluated
from randkern.tabular.presets import HELD_SHARE, MAX_MEMBERS, Plan
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
) -> tuple[Chosen, Table]:
    """Return the parts whose mean has the least log loss, and the rows held out."""
    splits = list(known.folds.splits())
    unknown = known.take(np.concatenate([rows for _, rows in splits]))
    parts: list[Part] = []
    for kernel in kernels[: learning.plan.n_members]:
        if parts and learning.deadline.ends(COMPARISON):
            break
        X = learning.codes[kernel.trial.numbers][: len(known)]
        fits: list[HeldOut] = []
        before = None
        for trial, split in zip(kernel.without, splits, strict=True):
            if trial is not before:  # all folds may have the same
                problem, before = dual_logistic(trial.kernel, X, known.Y), trial
            fits.append(HeldOut(problem, known, *split))
        options = fits, unknown, learning.deadline
        parts.append(with_best_strength(kernel.trial, *options))
    weights = blend_probabilities([part.chances for part in parts], unknown.weight)
    order = np.argsort(-weights, kind="stable")
    return [(float(weights[at]), parts[at]) for at in order if weights[at]], unknown


def chosen_in_cells(
    trials: Sequence[Trial], learning: Learning, stream: Stream
) -> tuple[Chosen, Table]:
    """Return the part of the least log loss of rows held out of some cells, and these.

    Its kernel is one of the best of those that are learned in cells.
    """
    table, plan = learning.table, learning.plan
    U = learning.encoded(trials[0], table.X, "float32")
    learned = learned_in_cells(trials, U, learning, stream)
    generator = stream.child("choosing").generator()
    splits = []
    kernel, rows = trials[0].kernel, plan.learned_rows
    for cell in some_cells(kernel, U, table.Y, rows, generator):
        n_held = math.ceil(HELD_SHARE * len(cell))
        splits.append(table.folds.divided(generator.permutation(cell), n_held))
    # Fits to one class say nothing of the penalty.
    several = [each for each in splits if np.ptp(table.labels[each[0]])]
    splits = several or splits
    unknown = table.take(np.concatenate([held for _, held in splits]))
    parts: list[Part] = []
    for trial in learned[:MAX_MEMBERS]:
        if parts and learning.deadline.ends(COMPARISON):
            break
        fits = []
        for known, held in splits:
            piece = table.take(np.append(known, held))
            encoded = learning.encoded_table(trial, piece, "float32")
            problem = dual_logistic(trial.kernel, encoded.X, encoded.Y)
            positions = np.split(np.arange(len(piece)), [len(known)])
            fits.append(HeldOut(problem, encoded, *positions))
        options = fits, unknown, learning.deadline
        parts.append(with_best_strength(trial, *options))
    return [(1.0, min(parts, key=lambda part: part.loss))], unknown


def fit_parts(chosen: Chosen, learning: Learning) -> list[tuple[Member, Trial]]:
    """Fit all rows, in cells if that is planned."""
    plan, table, deadline = learning.plan, learning.table, learning.deadline
    dtype = "float32" if plan.in_cells else "float64"
    pairs: list[tuple[Member, Trial]] = []
    for share, part in chosen:
        if pairs and deadline.ends("the last fit"):
            break
        trial = part.trial
        model: Any = ExactLogistic(trial.kernel, part.C)
        if 0 < plan.cell_rows < len(table):
            model = LocalClassifier(model, plan.cell_rows)
        encoded = learning.encoded_table(trial, table, dtype)
        fit_quietly(model, encoded.X, table.labels, table.own_weight, deadline)
        encoder = copy(learning.encoders[trial.numbers]).set_params(dtype=dtype)
        pairs.append((Member(share, encoder, model), trial))
    return pairs
