"""Logistic regression of two classes with the exact kernel of all of many rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from scipy.special import expit

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.learning import Learning, descended
from randkern.tabular.local import learned_in_cells
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
from randkern.tabular.work import RATE, Stage, gram_seconds

# Divisors of the penalty that few rows have chosen, and the most rows that choose one.
_DIVISORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_CHOOSING_ROWS = 8000
# Operations of a product with the kernel per n²; products of a fit, and of some that
# start from each other; and how often the Gram matrix's time until the first product.
_PRODUCT, _FIT_PRODUCTS, _CHOOSING_PRODUCTS, _GRAMS = 20.0, 20, 45, 2


def fit_seconds(n: int, n_columns: int, n_products: int = _FIT_PRODUCTS) -> float:
    """Return the work of a fit to n rows."""
    products = n_products * _PRODUCT * float(n) ** 2 / RATE
    return _GRAMS * gram_seconds(n, n_columns) + products


def all_seconds(n: int, n_columns: int, n_held: int) -> float:
    """Return the work of choosing the penalty with held-out rows, and of the fit."""
    m = min(n, _CHOOSING_ROWS + n_held)
    # With two kernels.
    choosing = 2 * fit_seconds(m, n_columns, _CHOOSING_PRODUCTS)
    return choosing + fit_seconds(n, n_columns)


def _with_best_penalty(
    part: Part, known: Table, n_held: int, seed: int, stage: Stage
) -> Part:
    """Return a part with the penalty of smallest log loss of the first rows.

    The others are fitted. The probabilities of the part are those of the first rows.
    """
    n, n_columns = known.X.shape
    stage.work.charge(fit_seconds(n, n_columns, _CHOOSING_PRODUCTS))
    dual = DualLogistic.of(
        with_constant(part.trial.kernel),
        known.X,
        2.0 * known.labels - 1,
        resolve_memory_limit(MEMORY_LIMIT),
        Stream(seed),
    )
    weight = known.weight * (np.arange(n) >= n_held)
    labels, held_weight = known.labels[:n_held], known.weight[:n_held]
    last: DualWeights | None = None
    late = replace(stage, until=math.inf)  # all work is planned

    def evaluate(at: int) -> Part:
        nonlocal last
        assert part.share is not None
        tried = replace(part, share=part.share / _DIVISORS[at])
        last = dual.minimise(
            strength(tried) * weight, TOL, MAX_ITER, last, stopping(late)
        )
        f = last.values[:n_held]
        P = np.column_stack([expit(-f), expit(f)]).clip(MIN_CHANCE)
        loss = mean_log_loss(P, labels, held_weight)
        return replace(tried, P=P, loss=loss)

    start = _DIVISORS.index(1.0)
    return descended(evaluate, start, len(_DIVISORS), lambda: late.over)


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
    in the end; the part has their probabilities before that.
    """
    table = learning.table
    n_columns = max(map(learning.n_columns, trials))
    spare = stage.left - all_seconds(len(table), n_columns, len(held))
    U = learning.encoded(trials[0], table.X, "float32")
    trial = learned_in_cells(trials, U, learning, stage.part(spare), Stream(seed))
    some = table.take(np.concatenate([held, rest[:_CHOOSING_ROWS]]))
    parts = []
    for kernel in (part.trial, trial):  # rows of cells may prefer another one
        known = learning.encoded_table(kernel, some, "float32")
        tried = replace(part, trial=kernel)
        parts.append(_with_best_penalty(tried, known, len(held), seed, stage))
    part = min(parts, key=lambda tried: tried.loss)
    trial = part.trial
    encoded = learning.encoded_table(trial, table, "float32")
    stage.work.charge(fit_seconds(*encoded.X.shape))
    model = logistic(trial.kernel, strength(part), None, seed)
    weight = None if learning.counts is None else table.weight
    fit_quietly(model, encoded.X, encoded.labels, weight)
    encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
    return part, Member(1.0, encoder, model, trial.turn)
