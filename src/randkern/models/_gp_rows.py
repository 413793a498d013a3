"""The rows that hyperparameters of a Gaussian process are learned from."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.backend.namespace import ops_of
from randkern.data import rows_within
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.plan import Plan

# Most operations per evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_MIN_ROWS = 2000
# Memory of the sample of rows that are not in memory.
_SAMPLE_BYTES = 64 * 10**6
# Rows of the sample whose exact likelihood is maximised first, and the least and the
# largest number of those whose likelihood on features is maximised next.
FIRST_ROWS = 300
_MIDDLE_ROWS = (500, 1000)


def learning_rows(
    rows: TrainingData, max_rows: int | None, stream: Stream
) -> ArrayRows:
    """Return rows to learn from, in float64, without those of weight 0.

    A uniform sample of `max_rows` rows, or (None) all of them. For rows that are not in
    memory, at most as many as fit in 64 MB.
    """
    n = rows.n_rows
    usable: Any = np.arange(n)
    if rows.in_memory and (weight := rows.as_arrays().weight) is not None:
        usable = ops_of(weight).flatnonzero(weight)
    if max_rows is not None and not rows.in_memory:
        row_bytes = 8 * (rows.like.shape[1] + rows.n_targets + 1)
        affordable = rows_within(_SAMPLE_BYTES, row_bytes, at_least=_MIN_ROWS)
        max_rows = min(max_rows, affordable)
    if max_rows is not None and max_rows < len(usable):
        drawn = stream.generator().choice(len(usable), max_rows, replace=False)
        usable = ops_of(usable).take(usable, np.sort(drawn))
    block = rows.take(usable)
    ops = ops_of(block.X)
    X = ops.as_float64(block.X)
    Y = block.Y
    weight = block.weight
    if weight is not None and bool((weight == 0).any()):
        positive = ops.flatnonzero(weight)
        X = X[positive]
        Y = Y[positive]
        weight = weight[positive]
    if len(Y) == 0:
        raise ValueError(
            "no sampled row has a positive weight; remove rows with sample_weight 0."
        )
    return ArrayRows(X, Y, weight)


def most_learning_rows(n_components: int) -> int:
    """Return the largest number of rows for learning with this many features."""
    return max(_MIN_ROWS, int(_OPERATIONS / (4.0 * n_components**2)))


def uniform_sample(rows: ArrayRows, max_rows: int, stream: Stream) -> ArrayRows:
    """Return a sample of at most this many rows: all if they are few."""
    if rows.n_rows <= max_rows:
        return rows
    drawn = stream.generator().choice(rows.n_rows, max_rows, replace=False)
    return rows.take(np.sort(drawn))


def rows_of_stages(
    rows: ArrayRows, plan: Plan | None, has_lengthscales: bool, stream: Stream
) -> list[tuple[ArrayRows, Plan | None]]:
    """Return the rows of every stage, and their features, None for the exact kernel.

    The first 300 are for finding lengthscales, for which the exact kernel is cheapest.
    """
    stages = [(rows, plan)]
    least, most = _MIDDLE_ROWS
    if plan is not None and rows.n_rows > least:
        size = min(max(rows.n_rows // 4, least), most)
        stages.insert(0, (uniform_sample(rows, size, stream.child("middle")), plan))
    few = uniform_sample(rows, FIRST_ROWS, stream.child("smooth"))
    if few is not rows or (plan is not None and has_lengthscales):
        stages.insert(0, (few, None if has_lengthscales else plan))
    return stages
