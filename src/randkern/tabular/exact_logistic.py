"""Logistic regression with the exact kernel of all of many rows, whole or in cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.exact_logistic_work import TRIED, fit_seconds
from randkern.tabular.learning import Learning, descended
from randkern.tabular.local import (
    LEARNING_SHARE,
    MIN_SHARE,
    cells_within,
    learned_in_cells,
    some_cells,
)
from randkern.tabular.logistic import (
    MAX_ITER,
    MIN_CHANCE,
    TOL,
    logistic,
    with_constant,
)
from randkern.tabular.members import MEMORY_LIMIT, Member, fit_quietly, stopping
from randkern.tabular.parts import Part, strength
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial
from randkern.tabular.work import LOCAL_FIT_SECONDS, Stage

# Divisors of the penalty that few rows have chosen.
_DIVISORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# The most rows that choose one besides held-out ones, for two classes and for several;
# those of single cells, of which a share is held out, and the number of these cells.
_CHOOSING_ROWS, _CHOOSING_CELL_ROWS = (8000, 5000), 4000
_HELD_SHARE, _N_CHOOSING = 0.25, 2
# The most rows of a cell.
_MAX_ROWS = 16_000


def all_seconds(n: int, n_columns: int, n_classes: int, n_held: int) -> float:
    """Return the work of choosing the penalty with held-out rows, and of the fit."""
    m = min(n, _CHOOSING_ROWS[n_classes > 2] + n_held)
    # With two kernels.
    choosing = 2 * fit_seconds(m, n_columns, n_classes, TRIED)
    return choosing + fit_seconds(n, n_columns, n_classes)


@dataclass(frozen=True)
class _Choosing:
    """Rows of which the first `n_held` choose a penalty, by fits to the others."""

    table: Table
    n_held: int


class _Penalties:
    """Fits to the same rows with different penalties, which start from each other."""

    def __init__(self, part: Part, rows: _Choosing, seed: int):
        known, n = rows.table, len(rows.table)
        self.dual = DualLogistic.of(
            with_constant(part.trial.kernel),
            known.X,
            known.Y,
            resolve_memory_limit(MEMORY_LIMIT),
            Stream(seed),
        )
        self.weight = known.weight * (np.arange(n) >= rows.n_held)
        self.n_held = rows.n_held
        self._last: DualWeights | None = None

    def probabilities(self, part: Part, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return those of the held-out rows."""
        C = strength(part) * self.weight
        self._last = self.dual.minimise(C, TOL, MAX_ITER, self._last, stop)
        F = self._last.values[: self.n_held]
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P.clip(MIN_CHANCE)


def _with_best_penalty(
    part: Part, pieces: Sequence[_Choosing], n_classes: int, seed: int, stage: Stage
) -> Part:
    """Return a part with the penalty of smallest log loss of held-out rows.

    Its probabilities are theirs.
    """
    for piece in pieces:
        n, n_columns = piece.table.X.shape
        stage.work.charge(fit_seconds(n, n_columns, n_classes, TRIED))
    fits = [_Penalties(part, piece, seed) for piece in pieces]
    held = [piece.table.take(np.arange(piece.n_held)) for piece in pieces]
    labels = np.concatenate([rows.labels for rows in held])
    weight = np.concatenate([rows.weight for rows in held])
    late = replace(stage, until=math.inf)  # all work is planned

    def evaluate(at: int) -> Part:
        assert part.share is not None
        tried = replace(part, share=part.share / _DIVISORS[at])
        P = [fit.probabilities(tried, stopping(late)) for fit in fits]
        both = np.concatenate(P)
        return replace(tried, P=both, loss=mean_log_loss(both, labels, weight))

    start = _DIVISORS.index(1.0)
    return descended(evaluate, start, len(_DIVISORS), lambda: late.over)


def _best(
    part: Part,
    trials: Sequence[Trial],
    pieces: Sequence[tuple[Table, int]],
    learning: Learning,
    seed: int,
    stage: Stage,
) -> Part:
    """Return a part with the kernel, of some, and the penalty of least log loss.

    Of each piece, the first rows, as many as its number says, are held out.
    """
    parts = []
    n_classes = _n_classes(learning.table)
    for trial in trials:
        encoded = [
            _Choosing(learning.encoded_table(trial, rows, "float32"), n_held)
            for rows, n_held in pieces
        ]
        tried = replace(part, trial=trial)
        parts.append(_with_best_penalty(tried, encoded, n_classes, seed, stage))
    return min(parts, key=lambda tried: tried.loss)


def _n_classes(table: Table) -> int:
    return max(table.Y.shape[1], 2)


def fit_all_rows(
    trials: Sequence[Trial],
    part: Part,
    learning: Learning,
    held: np.ndarray,
    rest: np.ndarray,
    seed: int,
    stage: Stage,
) -> tuple[Part, Member]:
    """Learn a kernel in cells, choose it or another, and fit all rows of the table.

    The rows `held` choose kernel and penalty, by fits to the `rest`, and are fitted too
    in the end; the part has their probabilities before that. Rows that depend on each
    other learn no kernel in cells.
    """
    table, k = learning.table, _n_classes(learning.table)
    n_columns = max(map(learning.n_columns, trials))
    spare = stage.left - all_seconds(len(table), n_columns, k, len(held))
    tried = [part.trial]
    if table.folds is None:  # rows of cells may prefer another one
        U = learning.encoded(trials[0], table.X, "float32")
        learn = stage.part(spare)
        tried += [learned_in_cells(trials, U, learning, learn, Stream(seed))]
    some = np.concatenate([held, rest[: _CHOOSING_ROWS[k > 2]]])
    pieces = [(table.take(some), len(held))]
    part = _best(part, tried, pieces, learning, seed, stage)
    encoded = learning.encoded_table(part.trial, table, "float32")
    stage.work.charge(fit_seconds(len(table), encoded.X.shape[1], k))
    model = logistic(part.trial.kernel, strength(part), None, seed)
    return part, _fitted(model, part, encoded, learning, stage)


def fit_all_in_cells(
    trials: Sequence[Trial], part: Part, learning: Learning, seed: int, stage: Stage
) -> Member:
    """Learn a kernel in cells, and fit all rows in cells as large as possible.

    Rows of single cells, some of them held out, choose the kernel and the penalty.
    """
    table, k = learning.table, _n_classes(learning.table)
    n, n_columns = len(table), max(map(learning.n_columns, trials))

    def cell_seconds(rows: int) -> float:
        return LOCAL_FIT_SECONDS + fit_seconds(rows, n_columns, k)

    def within(seconds: float) -> tuple[int, float]:
        return cells_within(n, n_columns, seconds, cell_seconds, _MAX_ROWS)

    U = learning.encoded(trials[0], table.X, "float32")
    learn = stage.part(LEARNING_SHARE * stage.left)
    trial = learned_in_cells(trials, U, learning, learn, Stream(seed))
    m, _ = within(stage.left)
    m = min(m, _CHOOSING_CELL_ROWS)
    choosing = 2 * _N_CHOOSING * fit_seconds(m, n_columns, k, TRIED)
    rows, seconds = within(max(stage.left - choosing, MIN_SHARE * stage.work.limit))
    if seconds + choosing <= stage.left:
        generator = Stream(seed).child("choosing").generator()
        pieces = [
            (table.take(generator.permutation(cell)[:m]), int(_HELD_SHARE * m))
            for cell in some_cells(trials[0].kernel, U, m, _N_CHOOSING, generator)
        ]
        part = _best(part, [part.trial, trial], pieces, learning, seed, stage)
    else:
        part = replace(part, trial=trial)
    if (allowed := stage.affordable(seconds)) < seconds:
        rows, seconds = within(allowed)
    stage.work.charge(seconds)
    encoded = learning.encoded_table(part.trial, table, "float32")
    model = logistic(part.trial.kernel, strength(part), rows, seed)
    model.set_params(features="local")
    return _fitted(model, part, encoded, learning, stage)


def _fitted(
    model: Any, part: Part, encoded: Table, learning: Learning, stage: Stage
) -> Member:
    weight = None if learning.counts is None else encoded.weight
    fit_quietly(model, encoded.X, encoded.labels, weight, stage)
    encoder = copy(learning.encoders[part.trial.numbers]).set_params(dtype="float32")
    return Member(1.0, encoder, model, part.trial.turn)
