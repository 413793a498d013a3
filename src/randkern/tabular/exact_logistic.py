"""Logistic regression with the exact kernel of all of many rows, whole or in cells."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from randkern.models import LocalClassifier
from randkern.models.dual_logistic import preconditioner_rank
from randkern.tabular.learning import Learning
from randkern.tabular.local import (
    MIN_SHARE,
    cells_within,
)
from randkern.tabular.logistic import Part, logistic, strength
from randkern.tabular.members import Member, fit_quietly
from randkern.tabular.rows import Table
from randkern.tabular.work import LOCAL_FIT_SECONDS, RATE, Stage, gram_seconds

# The most rows of a cell.
_MAX_ROWS = 16_000
# Products of a fit, for two classes and for several; operations of one with up to so
# many columns per n²; Newton steps; and fits in all that choose a penalty.
_PRODUCTS, _PRODUCT, _COLUMNS = (20, 90), 20.0, 8
_STEPS, TRIED = 8, 2.5
# How often the Gram matrix's time until the first product.
_GRAMS = 2


def fit_seconds(n: int, n_columns: int, n_classes: int, n_fits: float = 1.0) -> float:
    """Return the work of fits to n rows that start from each other."""
    several = n_classes > 2
    k = n_classes if several else 1
    product = math.ceil(k / _COLUMNS) * _PRODUCT * float(n) ** 2
    preparing = _STEPS * 2.0 * n * preconditioner_rank(n, 1) ** 2
    operations = n_fits * (_PRODUCTS[several] * product + preparing)
    return _GRAMS * gram_seconds(n, n_columns) + operations / RATE


def n_classes_of(table: Table) -> int:
    """Return the number of classes of a table of labels."""
    return max(table.Y.shape[1], 2)


def fit_all_rows(part: Part, learning: Learning, seed: int, stage: Stage) -> Member:
    """Fit the exact kernel to all rows of the table."""
    encoded = learning.encoded_table(part.trial, learning.table, "float32")
    k = n_classes_of(learning.table)
    stage.work.charge(fit_seconds(len(encoded), encoded.X.shape[1], k))
    model = logistic(part.trial.kernel, strength(part), None, seed)
    return _fitted(model, part, encoded, learning, stage)


def fit_all_in_cells(part: Part, learning: Learning, seed: int, stage: Stage) -> Member:
    """Fit all rows in cells as large as possible."""
    n, k = len(learning.table), n_classes_of(learning.table)
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
    exact = logistic(part.trial.kernel, strength(part), None, seed)
    model = LocalClassifier(exact, rows)
    return _fitted(model, part, encoded, learning, stage)


def _fitted(
    model: Any, part: Part, encoded: Table, learning: Learning, stage: Stage
) -> Member:
    weight = None if learning.counts is None else encoded.weight
    fit_quietly(model, encoded.X, encoded.labels, weight, stage)
    encoder = copy(learning.encoders[part.trial.numbers]).set_params(dtype="float32")
    return Member(1.0, encoder, model)
