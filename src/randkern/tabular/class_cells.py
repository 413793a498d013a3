"""Classes of many rows: exact logistic regression in overlapping cells.

Its kernel and its penalty are those of smallest log loss of rows that are left out of
fits to single cells, which are as dense as the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import LocalClassifier
from randkern.tabular.learning import Learning
from randkern.tabular.local import learned_in_cells, some_cells
from randkern.tabular.logistic import HeldOut, Part, logistic, with_best_strength
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.presets import (
    CHOOSING_CELLS,
    FIRST_STRENGTH,
    HELD_SHARE,
    Plan,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


def used_rows(table: Table, plan: Plan, stream: Stream) -> Table:
    """Return the rows for which there is time, and one of each class."""
    if plan.fitted_rows >= len(table):
        return table
    order = stream.child("rows").generator().permutation(len(table))
    _, first = np.unique(table.labels[order], return_index=True)
    chosen = np.union1d(np.arange(plan.fitted_rows), first)
    return table.take(np.sort(order[chosen]))


def chosen_in_cells(
    trials: Sequence[Trial], learning: Learning, seed: int
) -> tuple[Part, Table]:
    """Return the kernel and the penalty of smallest log loss.

    The kernel is the first of the trials, or is learned further in cells, unless rows
    depend on each other. The part has the probabilities of rows by fits that do not
    know them, which are returned with it.
    """
    table, plan = learning.table, learning.plan
    U = learning.encoded(trials[0], table.X, "float32")
    compared = [trials[0]]
    if table.folds.are_rows:
        learned = learned_in_cells(trials, U, learning, Stream(seed))
        compared += [learned] if learned is not trials[0] else []
    generator = Stream(seed).child("choosing").generator()
    kernel, rows = trials[0].kernel, plan.choosing_rows
    pieces = []
    for cell in some_cells(kernel, U, rows, CHOOSING_CELLS, generator):
        order = generator.permutation(cell)
        n_held = math.ceil(HELD_SHARE * len(cell))
        rest, held = table.folds.divided(order, n_held)
        pieces.append((table.take(np.append(held, rest)), len(held)))
    parts = []
    for trial in compared:
        fits = []
        for piece, n_held in pieces:
            encoded = learning.encoded_table(trial, piece, "float32")
            fits.append(HeldOut(trial.kernel, encoded, n_held, seed))
        options = fits, FIRST_STRENGTH, learning.deadline
        parts.append(with_best_strength(trial, *options))
    labels = np.concatenate([piece.labels[:n] for piece, n in pieces])
    weight = np.concatenate([piece.weight[:n] for piece, n in pieces])
    held_out = Table(None, np.empty((len(labels), 0)), weight, labels)
    return min(parts, key=lambda candidate: candidate.loss), held_out


def fit_all_in_cells(part: Part, learning: Learning, seed: int) -> Member:
    """Fit all rows in cells as large as planned."""
    encoded = learning.encoded_table(part.trial, learning.table, "float32")
    exact = logistic(part.trial.kernel, part.C, seed)
    model: Any = exact
    if learning.plan.cell_rows < len(encoded):
        model = LocalClassifier(exact, learning.plan.cell_rows)
    weight = encoded.own_weight
    fit_quietly(model, encoded.X, encoded.labels, weight, learning.deadline)
    encoder = copy(learning.encoders[part.trial.numbers]).set_params(dtype="float32")
    return Member(1.0, encoder, model)
