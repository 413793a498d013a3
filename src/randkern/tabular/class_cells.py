"""Classes of many rows: exact logistic regression in overlapping cells.

Its kernel and its penalty are those of smallest log loss of rows that are left out of
fits to single cells, which are as dense as the table; if rows depend on each other,
they are held out in whole folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models import LocalClassifier
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.models.grid_descent import descended
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.folds import divided
from randkern.tabular.learning import COMPARISON, Learning
from randkern.tabular.local import learned_in_cells, some_cells
from randkern.tabular.logistic import (
    MAX_ITER,
    MIN_CHANCE,
    TOL,
    Part,
    logistic,
    strength,
    with_constant,
)
from randkern.tabular.members import MEMORY_LIMIT, Member, fit_quietly
from randkern.tabular.presets import (
    CHOOSING_CELL_ROWS,
    DIVISORS,
    FIRST_PENALTY,
    HELD_ROWS,
    HELD_SHARE,
    Deadline,
    Plan,
)
from randkern.tabular.rows import Rows, Table
from randkern.tabular.trials import Trial


@dataclass(frozen=True)
class RowSplit:
    """The rows to fit.

    `held_out` is the seed of their choice, the number of rows that are not fitted, and
    that of the others; `note` says what that choice leaves out.
    """

    rows: Rows
    held_out: tuple[int, int, int] | None = None
    note: str = ""


def split_rows(rows: Rows, plan: Plan, stream: Stream) -> RowSplit:
    """Leave out the rows for which there is no time.

    Some fitted row has each of the labels.
    """
    from sklearn.model_selection import train_test_split

    n = len(rows)
    if (n_apart := n - plan.fitted_rows) <= 0:
        return RowSplit(rows)
    seed = int(stream.child("rows").generator().integers(2**31))
    used, others = train_test_split(np.arange(n), test_size=n_apart, random_state=seed)
    note = ""
    unseen = ~np.isin(rows.y[others], rows.y[used])
    if unseen.any():
        _, first = np.unique(rows.y[others[unseen]], return_index=True)
        used = np.append(used, others[unseen][first])
        note = f"{len(used):,} rows are fitted, among them one of each rare class."
    return RowSplit(rows.take(used), (seed, n - len(used), len(used)), note)


def table_of(rows: Rows, n_classes: int) -> Table:
    """Return rows with codes ±1 of their labels, one column for two classes."""
    Y = 2.0 * (rows.y[:, None] == np.arange(n_classes)) - 1
    Y = Y[:, 1:] if n_classes == 2 else Y
    folds = None if rows.folds is None else rows.folds.with_effect(Y)
    return Table(rows.X, Y, rows.weight, rows.y, folds)


@dataclass(frozen=True)
class _Choosing:
    """Rows of which the first `n_held` choose a penalty, by fits to the others."""

    table: Table
    n_held: int

    @property
    def held(self) -> Table:
        return self.table.take(np.arange(self.n_held))


class _Penalties:
    """Fits of a kernel to the same rows with different penalties.

    They start from each other.
    """

    def __init__(self, kernel: Kernel, rows: _Choosing, seed: int):
        known, n = rows.table, len(rows.table)
        self.dual = DualLogistic.of(
            with_constant(kernel),
            known.X,
            known.Y,
            resolve_memory_limit(MEMORY_LIMIT),
            Stream(seed),
        )
        self.weight = known.weight * (np.arange(n) >= rows.n_held)
        self.n_held = rows.n_held
        self._last: DualWeights | None = None

    def probabilities(self, C: float, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return those of the held-out rows."""
        weight = C * self.weight
        self._last = self.dual.minimise(weight, TOL, MAX_ITER, self._last, stop)
        F = self._last.values[: self.n_held]
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P.clip(MIN_CHANCE)


def _with_best_penalty(
    part: Part,
    fits: Sequence[_Penalties],
    labels: np.ndarray,
    weight: np.ndarray,
    deadline: Deadline,
) -> Part:
    """Return a part with the penalty of smallest log loss of held-out rows.

    Its probabilities are theirs.
    """

    def is_late(_: Any = None) -> bool:
        return deadline.ends(COMPARISON)

    def evaluate(at: int) -> Part:
        candidate = replace(part, share=FIRST_PENALTY / DIVISORS[at])
        C = strength(candidate)
        P = np.concatenate([fit.probabilities(C, is_late) for fit in fits])
        loss = mean_log_loss(P, labels, weight)
        return replace(candidate, P=P, loss=loss)

    return descended(evaluate, DIVISORS.index(1.0), len(DIVISORS), is_late)


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
        pieces = [_Choosing(cell, int(HELD_SHARE * len(cell))) for cell in cells]
    else:
        learned = trials[0]
        order = learning.order
        rest, held = divided(order, table.folds, n_held_of(len(order)))
        m = min(plan.choosing_rows, len(rest))
        held = held[: max(m // 2, 1)]
        both = table.take(np.append(held, rest[:m]))
        pieces = [_Choosing(both, len(held))]
    labels = np.concatenate([piece.held.labels for piece in pieces])
    weight = np.concatenate([piece.held.weight for piece in pieces])
    parts = []
    compared = [trials[0]] if learned is trials[0] else [trials[0], learned]
    for trial in compared:
        part = Part(trial, FIRST_PENALTY, np.empty((0, 0)), 0.0)
        encoded = [
            replace(piece, table=learning.encoded_table(trial, piece.table, "float32"))
            for piece in pieces
        ]
        fits = [_Penalties(trial.kernel, piece, seed) for piece in encoded]
        parts.append(_with_best_penalty(part, fits, labels, weight, learning.deadline))
    held_out = Table(None, np.empty((len(labels), 0)), weight, labels)
    return min(parts, key=lambda candidate: candidate.loss), held_out


def fit_all_in_cells(part: Part, learning: Learning, seed: int) -> Member:
    """Fit all rows in cells as large as planned."""
    encoded = learning.encoded_table(part.trial, learning.table, "float32")
    exact = logistic(part.trial.kernel, strength(part), seed)
    model: Any = exact
    if learning.plan.cell_rows < len(encoded):
        model = LocalClassifier(exact, learning.plan.cell_rows)
    weight = None if learning.counts is None else encoded.weight
    fit_quietly(model, encoded.X, encoded.labels, weight, learning.deadline)
    encoder = copy(learning.encoders[part.trial.numbers]).set_params(dtype="float32")
    return Member(1.0, encoder, model)
