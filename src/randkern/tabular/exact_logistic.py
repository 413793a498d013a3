"""Logistic regression with the exact kernel of all of many rows, whole or in cells."""

from __future__ import annotations

from copy import copy
from typing import Any

from randkern.models import LocalClassifier
from randkern.tabular.exact_logistic_work import fit_seconds
from randkern.tabular.learning import Learning
from randkern.tabular.local import (
    MIN_SHARE,
    cells_within,
)
from randkern.tabular.logistic import (
    logistic,
)
from randkern.tabular.members import Member, fit_quietly
from randkern.tabular.parts import Part, strength
from randkern.tabular.rows import Table
from randkern.tabular.work import LOCAL_FIT_SECONDS, Stage

# The most rows of a cell.
_MAX_ROWS = 16_000


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
