"""Classes of many rows: exact logistic regression in overlapping cells.

Its kernel and its penalty are those of smallest log loss of rows that are left out of
fits to single cells, which are as dense as the table; if rows depend on each other,
they are held out in whole folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import LocalClassifier
from randkern.tabular.folds import divided
from randkern.tabular.learning import Learning
from randkern.tabular.local import learned_in_cells, some_cells
from randkern.tabular.logistic import HeldOut, Part, logistic, with_best_strength
from randkern.tabular.model import Member, fit_quietly
from randkern.tabular.presets import (
    CHOOSING_CELL_ROWS,
    FIRST_STRENGTH,
    HELD_ROWS,
    HELD_SHARE,
    Plan,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


def used_rows(table: Table, plan: Plan, stream: Stream) -> Table:
    """Return the rows for which there is time, some with each of the labels."""
    from sklearn.model_selection import train_test_split

    n, labels = len(table), table.labels
    if (n_apart := n - plan.fitted_rows) <= 0:
        return table
    seed = int(stream.child("rows").generator().integers(2**31))
    used, others = train_test_split(np.arange(n), test_size=n_apart, random_state=seed)
    unseen = ~np.isin(labels[others], labels[used])
    if unseen.any():
        _, first = np.unique(labels[others[unseen]], return_index=True)
        used = np.append(used, others[unseen][first])
    return table.take(used)


def n_held_of(n: int) -> int:
    """Return how many of n rows that depend on each other the search does not see."""
    return min(HELD_ROWS, n // 8)


def chosen_in_cells(
    trials: Sequence[Trial], learning: Learning, seed: int
) -> tuple[Part, Table]:
    """Return the kernel and the penalty of smallest log loss.

    The kernel is the first of the trials, or is learned further in cells, unless rows
    depend on each other. The part has the probabilities of rows by fits that do not
    know them, which are returned with it.
    """
    table, plan = learning.table, learning.plan
    if table.folds is None:
        U = learning.encoded(trials[0], table.X, "float32")
        learned = learned_in_cells(trials, U, learning, Stream(seed))
        generator = Stream(seed).child("choosing").generator()
        n_cells, rows = plan.choosing_cells, CHOOSING_CELL_ROWS
        drawn = some_cells(trials[0].kernel, U, rows, n_cells, generator)
        cells = [table.take(generator.permutation(cell)) for cell in drawn]
        pieces = [(cell, int(HELD_SHARE * len(cell))) for cell in cells]
    else:
        learned = trials[0]
        order = learning.order
        rest, held = divided(order, table.folds, n_held_of(len(order)))
        m = min(plan.choosing_rows, len(rest))
        held = held[: max(m // 2, 1)]
        both = table.take(np.append(held, rest[:m]))
        pieces = [(both, len(held))]
    compared = [trials[0]] if learned is trials[0] else [trials[0], learned]
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
