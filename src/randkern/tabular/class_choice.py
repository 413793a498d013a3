"""The kernel and the penalty of classes of many rows, chosen by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.exact_logistic import TRIED, fit_seconds, n_classes_of
from randkern.tabular.learning import Learning, descended
from randkern.tabular.local import learned_in_cells, some_cells
from randkern.tabular.logistic import (
    MAX_ITER,
    MIN_CHANCE,
    TOL,
    Part,
    strength,
    with_constant,
)
from randkern.tabular.members import MEMORY_LIMIT, stopping
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial
from randkern.tabular.work import Stage, largest

# Divisors of the penalty that few rows have chosen.
_DIVISORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# The fewest rows that choose one besides held-out ones, and the most, for two classes
# and for several; and the kernels that they compare.
_MIN_CHOOSING, _CHOOSING_ROWS, _N_COMPARED = 1000, (8000, 3000), 2
# For fits in cells: the rows of single cells, of which a share is held out, and the
# fewest and most of these cells. They are as dense as all rows; few cells may hardly
# have one of the classes.
_CELL_ROWS, _HELD_SHARE, _CHOOSING_CELLS = 1000, 0.25, (4, 16)
# Shares of the time for learning a kernel further and for choosing the penalty, where
# the exact kernel of all rows takes too long; and of the time on the clock after which
# both end for the sake of the fits.
_LEARNING_SHARE, _CHOOSING_SHARE, _LATE_SHARE = 0.25, 0.25, 0.6


def _choosing_seconds(n: int, n_columns: int, n_classes: int) -> float:
    """Return the work of choosing the kernel and the penalty with n rows in all."""
    return _N_COMPARED * fit_seconds(n, n_columns, n_classes, TRIED)


def all_seconds(n: int, n_columns: int, n_classes: int, n_held: int) -> float:
    """Return the work of choosing the penalty with held-out rows, and of the fit."""
    m = min(n, _CHOOSING_ROWS[n_classes > 2] + n_held)
    choosing = _choosing_seconds(m, n_columns, n_classes)
    return choosing + fit_seconds(n, n_columns, n_classes)


@dataclass(frozen=True)
class _Choosing:
    """Rows of which the first `n_held` choose a penalty, by fits to the others."""

    table: Table
    n_held: int


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
    part: Part, pieces: Sequence[_Choosing], seed: int, stage: Stage
) -> Part:
    """Return a part with the penalty of smallest log loss of held-out rows.

    Its probabilities are theirs.
    """
    fits = [_Penalties(part.trial.kernel, piece, seed) for piece in pieces]
    held = [piece.table.take(np.arange(piece.n_held)) for piece in pieces]
    labels = np.concatenate([rows.labels for rows in held])
    weight = np.concatenate([rows.weight for rows in held])
    late = replace(stage, until=math.inf)  # all work is planned

    def evaluate(at: int) -> Part:
        assert part.share is not None
        candidate = replace(part, share=part.share / _DIVISORS[at])
        C = strength(candidate)
        P = np.concatenate([fit.probabilities(C, stopping(late)) for fit in fits])
        return replace(candidate, P=P, loss=mean_log_loss(P, labels, weight))

    start = _DIVISORS.index(1.0)
    return descended(evaluate, start, len(_DIVISORS), lambda: late.over)


@dataclass(frozen=True)
class _Plan:
    """How much a choice learns, and the rows that it compares fits with.

    `learning` and `seconds` are the work of learning the kernel and of the choice. The
    rows are those of `n_cells` single cells, or, for 0, `n_held` held-out and `m` other
    ones.
    """

    learning: float
    seconds: float
    n_held: int = 0
    m: int = 0
    n_cells: int = 0


def _planned(
    sizes: tuple[int, int, int, int],
    n_columns: int,
    is_exact: bool,
    in_cells: bool,
    left: float,
) -> _Plan:
    """Plan a choice.

    `sizes` are the numbers of all rows, of those to hold out, of the others, and of
    classes.
    """
    n, n_held, n_rest, k = sizes
    m, limit = min(n_rest, _CHOOSING_ROWS[k > 2]), _CHOOSING_SHARE * left
    learning = _LEARNING_SHARE * left
    if in_cells:
        seconds = _choosing_seconds(_CELL_ROWS, n_columns, k)
        n_cells = largest(lambda cells: cells * seconds, limit, *_CHOOSING_CELLS)
        return _Plan(learning, n_cells * seconds, n_cells=n_cells)
    if is_exact:
        learning = left - all_seconds(n, n_columns, k, n_held)
    else:
        m = largest(
            lambda m: _choosing_seconds(m + min(n_held, m // 2), n_columns, k),
            limit,
            min(_MIN_CHOOSING, m),
            m,
        )
        n_held = min(n_held, m // 2)
    return _Plan(learning, _choosing_seconds(m + n_held, n_columns, k), n_held, m)


def chosen_for_all_rows(
    trials: Sequence[Trial],
    part: Part,
    learning: Learning,
    held: np.ndarray,
    rest: np.ndarray,
    seed: int,
    stage: Stage,
    *,
    is_exact: bool,
    in_cells: bool,
) -> Part | None:
    """Return a part with the kernel and the penalty of smallest log loss for all rows.

    Its kernel is the one that few rows have chosen, or is learned further: in cells,
    or, if rows depend on each other, adapted to more rows. More rows usually choose a
    smaller penalty. If the fit is in cells, rows of some of them compare fits to the
    others; else the rows `held` compare fits to the `rest`, and the part has the
    probabilities of the first of them. `is_exact` is whether the exact kernel of all
    rows is fitted, for which time is left.

    None if there is no time for it.
    """
    table = learning.table
    sizes = len(table), len(held), len(rest), n_classes_of(table)
    n_columns = max(map(learning.n_columns, trials))
    plan = _planned(sizes, n_columns, is_exact, in_cells, stage.left)
    if not is_exact and not stage.fits(2 * plan.seconds):
        return None
    elapsed = stage.work.elapsed
    deadline = elapsed + _LATE_SHARE * (stage.deadline - elapsed)
    stage = replace(stage, name="the choice of a penalty", deadline=deadline)
    learn = stage.part(plan.learning)
    if table.folds is None:
        U = learning.encoded(trials[0], table.X, "float32")
        learned = learned_in_cells(trials, U, learning, learn, Stream(seed))
    else:
        learned = learning.adapted(part.trial, learn)
    if in_cells:
        generator = Stream(seed).child("choosing").generator()
        drawn = some_cells(trials[0].kernel, U, _CELL_ROWS, plan.n_cells, generator)
        cells = [table.take(generator.permutation(cell)) for cell in drawn]
        pieces = [_Choosing(cell, int(_HELD_SHARE * len(cell))) for cell in cells]
    else:
        rows = np.concatenate([held[: plan.n_held], rest[: plan.m]])
        pieces = [_Choosing(table.take(rows), plan.n_held)]
    compared = [part.trial] if learned is part.trial else [part.trial, learned]
    stage.work.charge(plan.seconds * len(compared) / _N_COMPARED)
    parts = []
    for trial in compared:
        encoded = [
            replace(piece, table=learning.encoded_table(trial, piece.table, "float32"))
            for piece in pieces
        ]
        candidate = replace(part, trial=trial)
        parts.append(_with_best_penalty(candidate, encoded, seed, stage))
    return min(parts, key=lambda candidate: candidate.loss)
