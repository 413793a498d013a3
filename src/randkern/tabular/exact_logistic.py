"""Logistic regression with the exact kernel of all of many rows, whole or in cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.exact_logistic_work import TRIED, fit_seconds
from randkern.tabular.learning import Learning, descended
from randkern.tabular.local import MIN_SHARE, cells_within, learned_in_cells
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
from randkern.tabular.work import LOCAL_FIT_SECONDS, Stage, largest

# Divisors of the penalty that few rows have chosen.
_DIVISORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# The fewest rows that choose one besides held-out ones, and the most, for two classes
# and for several; and the kernels that they compare.
_MIN_CHOOSING, _CHOOSING_ROWS, _N_COMPARED = 1000, (8000, 5000), 2
# Shares of the time for learning a kernel further and for choosing the penalty, where
# the exact kernel of all rows takes too long.
_LEARNING_SHARE, _CHOOSING_SHARE = 0.25, 0.25
# The most rows of a cell.
_MAX_ROWS = 16_000


def _choosing_seconds(n: int, n_columns: int, n_classes: int) -> float:
    """Return the work of choosing the kernel and the penalty with n rows in all."""
    return _N_COMPARED * fit_seconds(n, n_columns, n_classes, TRIED)


def all_seconds(n: int, n_columns: int, n_classes: int, n_held: int) -> float:
    """Return the work of choosing the penalty with held-out rows, and of the fit."""
    m = min(n, _CHOOSING_ROWS[n_classes > 2] + n_held)
    choosing = _choosing_seconds(m, n_columns, n_classes)
    return choosing + fit_seconds(n, n_columns, n_classes)


class _Penalties:
    """Fits of a kernel to the same rows with different penalties.

    They start from each other. The first `n_held` rows are held out.
    """

    def __init__(self, kernel: Kernel, rows: Table, n_held: int, seed: int):
        self.dual = DualLogistic.of(
            with_constant(kernel),
            rows.X,
            rows.Y,
            resolve_memory_limit(MEMORY_LIMIT),
            Stream(seed),
        )
        self.weight = rows.weight * (np.arange(len(rows)) >= n_held)
        self.n_held = n_held
        self._last: DualWeights | None = None

    def probabilities(self, C: float, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return those of the held-out rows."""
        weight = C * self.weight
        self._last = self.dual.minimise(weight, TOL, MAX_ITER, self._last, stop)
        F = self._last.values[: self.n_held]
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P.clip(MIN_CHANCE)


def _with_best_penalty(
    part: Part, rows: Table, n_held: int, seed: int, stage: Stage
) -> Part:
    """Return a part with the penalty of smallest log loss of the first, held-out rows.

    Its probabilities are theirs.
    """
    fits = _Penalties(part.trial.kernel, rows, n_held, seed)
    labels, weight = rows.labels[:n_held], rows.weight[:n_held]
    late = replace(stage, until=math.inf)  # all work is planned

    def evaluate(at: int) -> Part:
        assert part.share is not None
        candidate = replace(part, share=part.share / _DIVISORS[at])
        P = fits.probabilities(strength(candidate), stopping(late))
        return replace(candidate, P=P, loss=mean_log_loss(P, labels, weight))

    start = _DIVISORS.index(1.0)
    return descended(evaluate, start, len(_DIVISORS), lambda: late.over)


def _n_classes(table: Table) -> int:
    return max(table.Y.shape[1], 2)


def chosen_for_all_rows(
    trials: Sequence[Trial],
    part: Part,
    learning: Learning,
    held: np.ndarray,
    rest: np.ndarray,
    is_exact: bool,
    seed: int,
    stage: Stage,
) -> Part | None:
    """Return a part with the kernel and the penalty of smallest log loss for all rows.

    Its kernel is the one that few rows have chosen, or is learned further: in cells,
    or, if rows depend on each other, adapted to more rows. The rows `held` compare fits
    to the `rest`, which have the classes in the same shares as the table: those of
    single cells may hardly have one. More rows usually choose a smaller penalty. The
    part has the probabilities of the first held-out rows.

    None if there is no time for it. `is_exact` is whether the exact kernel of all rows
    is fitted afterwards.
    """
    table, k = learning.table, _n_classes(learning.table)
    n, n_columns = len(table), max(map(learning.n_columns, trials))
    n_held, most = len(held), _CHOOSING_ROWS[k > 2]
    spare = stage.left - all_seconds(n, n_columns, k, n_held)
    m = min(len(rest), most)
    if not is_exact:
        spare = _LEARNING_SHARE * stage.left
        m = largest(
            lambda m: _choosing_seconds(m + min(n_held, m // 2), n_columns, k),
            _CHOOSING_SHARE * stage.left,
            min(_MIN_CHOOSING, m),
            m,
        )
        n_held = min(n_held, m // 2)
    seconds = _choosing_seconds(m + n_held, n_columns, k)
    if not is_exact and not stage.fits(2 * seconds):
        return None
    learn = stage.part(spare)
    if table.folds is None:
        U = learning.encoded(trials[0], table.X, "float32")
        learned = learned_in_cells(trials, U, learning, learn, Stream(seed))
    else:
        learned = learning.adapted(part.trial, learn)
    compared = [part.trial] if learned is part.trial else [part.trial, learned]
    rows = table.take(np.concatenate([held[:n_held], rest[:m]]))
    stage.work.charge(seconds * len(compared) / _N_COMPARED)
    parts = [
        _with_best_penalty(
            replace(part, trial=trial),
            learning.encoded_table(trial, rows, "float32"),
            n_held,
            seed,
            stage,
        )
        for trial in compared
    ]
    return min(parts, key=lambda candidate: candidate.loss)


def fit_all_rows(part: Part, learning: Learning, seed: int, stage: Stage) -> Member:
    """Fit the exact kernel to all rows of the table."""
    encoded = learning.encoded_table(part.trial, learning.table, "float32")
    k = _n_classes(learning.table)
    stage.work.charge(fit_seconds(len(encoded), encoded.X.shape[1], k))
    model = logistic(part.trial.kernel, strength(part), None, seed)
    return _fitted(model, part, encoded, learning, stage)


def fit_all_in_cells(part: Part, learning: Learning, seed: int, stage: Stage) -> Member:
    """Fit all rows in cells as large as possible."""
    n, k = len(learning.table), _n_classes(learning.table)
    n_columns = learning.n_columns(part.trial)

    def cell_seconds(rows: int) -> float:
        return LOCAL_FIT_SECONDS + fit_seconds(rows, n_columns, k)

    def within(seconds: float) -> tuple[int, float]:
        return cells_within(n, n_columns, seconds, cell_seconds, _MAX_ROWS)

    rows, seconds = within(max(stage.left, MIN_SHARE * stage.work.limit))
    if (allowed := stage.affordable(seconds)) < seconds:
        rows, seconds = within(allowed)
    stage.work.charge(seconds)
    encoded = learning.encoded_table(part.trial, learning.table, "float32")
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
