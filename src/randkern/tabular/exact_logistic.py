"""Logistic regression of two classes with the exact kernel of all of many rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.tabular.learning import descended
from randkern.tabular.logistic import (
    MAX_ITER,
    MIN_CHANCE,
    TOL,
    logistic,
    with_constant,
)
from randkern.tabular.model import MEMORY_LIMIT, Table, fit_quietly, stopping
from randkern.tabular.parts import Part, mean_log_loss, strength
from randkern.tabular.work import RATE, Stage, gram_seconds

# Divisors of the penalty that few rows have chosen, and the most rows that choose one.
_DIVISORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_CHOOSING_ROWS = 12_000
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
    return fit_seconds(m, n_columns, _CHOOSING_PRODUCTS) + fit_seconds(n, n_columns)


@dataclass(frozen=True)
class _Tried:
    """A part with a penalty, and the weights of the fit without the held-out rows."""

    part: Part
    found: DualWeights

    @property
    def loss(self) -> float:
        return self.part.loss


def with_best_penalty(
    part: Part, encoded: Table, n_held: int, seed: int, stage: Stage
) -> Part:
    """Return a part with the penalty of smallest log loss of the first rows.

    The others are fitted. The probabilities of the part are those of the first rows.
    """
    known = encoded.take(np.arange(min(len(encoded), n_held + _CHOOSING_ROWS)))
    seconds = fit_seconds(*known.X.shape, _CHOOSING_PRODUCTS)
    stage.work.charge(seconds)
    dual = DualLogistic.of(
        with_constant(part.trial.kernel),
        known.X,
        2.0 * known.labels - 1,
        resolve_memory_limit(MEMORY_LIMIT),
        Stream(seed),
    )
    weight = known.weight * (np.arange(len(known)) >= n_held)
    labels, held_weight = known.labels[:n_held], known.weight[:n_held]
    last: DualWeights | None = None
    late = replace(stage, until=math.inf)  # all work is planned

    def evaluate(at: int) -> _Tried:
        nonlocal last
        assert part.share is not None
        tried = replace(part, share=part.share / _DIVISORS[at])
        last = dual.minimise(
            strength(tried) * weight, TOL, MAX_ITER, last, stopping(late)
        )
        f = last.values[:n_held]
        P = np.column_stack([expit(-f), expit(f)]).clip(MIN_CHANCE)
        loss = mean_log_loss(P, labels, held_weight)
        return _Tried(replace(tried, P=P, loss=loss), last)

    start = _DIVISORS.index(1.0)
    return descended(evaluate, start, len(_DIVISORS), lambda: late.over).part


def fit_exactly(part: Part, encoded: Table, seed: int, weighted: bool) -> Any:
    """Return the fit of a part to all rows."""
    model = logistic(part.trial.kernel, strength(part), None, seed)
    weight = encoded.weight if weighted else None
    fit_quietly(model, encoded.X, encoded.labels, weight)
    return model
