"""A fitted table encoder as array operations of any library.

It serves tensors and arrays that trace ONNX operators; dataframes are encoded by
:class:`~randkern.TabularEncoder` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from randkern.backend.namespace import ops_of
from randkern.tabular.category_scores import CategoryScores
from randkern.tabular.encoder import FARTHEST, TabularEncoder, phases

Levels = tuple[np.ndarray, np.ndarray]

_MIN_RANK = float(ndtr(-FARTHEST))


def encode_columns(
    encoder: TabularEncoder,
    columns: list[Any],
    levels: list[Levels],
    is_known: Callable[[Any, np.ndarray], Any],
) -> Any:
    """Return the encoded rows of a table, (n, n_features_out), in float64.

    Columns are (n, 1): missing numbers are NaN, dates days since 1970. `levels` are
    those of :func:`levels_of`; `is_known` compares a column of categories with those of
    the fit (objects, None for missing values), and returns booleans (n, n_categories).
    """
    numbers = [columns[j] for j in encoder._numbers]
    parts: list[Any] = []
    xp = ops_of(columns[0]).xp

    def filled(at: int) -> Any:
        x = as_float64(numbers[at])
        return xp.where(xp.isnan(x), float(encoder._medians[at]), x)

    for at in encoder._varying:
        scaled = _scaled(encoder, filled(at), len(parts))
        parts.append(scaled * (1.0 / float(encoder._spread[len(parts)])))
    for at, period in encoder._phases:
        parts += phases(filled(at), period, xp)
    for at in encoder._missing:
        parts.append(as_float64(xp.isnan(as_float64(numbers[at]))))
    for j, (known, become) in zip(encoder._categories, levels, strict=True):
        if become.shape[1]:
            become = ops_of(columns[0]).float64_like(become, columns[0])
            result = as_float64(is_known(columns[j], known))
            parts.append(result @ (become[:-1] - become[-1]) + become[-1])
    rows = xp.concat(parts, axis=1)
    # Models fitted in single precision expect such rows.
    return as_float64(xp.astype(rows, getattr(xp, encoder.dtype)))


def score_columns(
    scores: CategoryScores,
    columns: list[Any],
    levels: list[np.ndarray],
    is_known: Callable[[Any, np.ndarray], Any],
) -> list[Any]:
    """Return the scores of categories, columns (n, 1) that follow those of a table.

    `levels` are the levels of each column to compare values with.
    """
    names, out = scores.feature_names_in_.tolist(), []
    for at, name in enumerate(scores.columns):
        column = columns[names.index(name)]
        values = ops_of(column).float64_like(scores.scores_of(at, levels[at]), column)
        result = as_float64(is_known(column, levels[at]))
        result = result @ (values[:-1] - values[-1]) + values[-1]
        out += [result[:, [j]] for j in range(result.shape[1])]
    return out


def as_float64(x: Any) -> Any:
    """Return numbers in double precision."""
    return ops_of(x).as_float64(x)


def equals(x: Any, values: np.ndarray) -> Any:
    """Compare numbers with values; a NaN, always the last value, equals NaN."""
    ops, missing = ops_of(x), np.isnan(values)
    result = x == ops.float64_like(values[~missing], x)
    return ops.hstack([result, ops.xp.isnan(x)]) if missing.any() else result


def _scaled(encoder: TabularEncoder, x: Any, at: int) -> Any:
    scaler, x = encoder._scaler, x * (1.0 / float(encoder._range[at]))
    if encoder.numbers == "standard":
        return (x - float(scaler.mean_[at])) * (1.0 / float(scaler.scale_[at]))
    rank = _rank(scaler.quantiles_[:, at], scaler.references_, x)
    return ops_of(x).special.ndtri(rank.clip(_MIN_RANK, 1 - _MIN_RANK))


def _rank(quantiles: np.ndarray, references: np.ndarray, x: Any) -> Any:
    """Return the share of numbers below x, interpolated as in QuantileTransformer."""
    ops = ops_of(x)
    where = ops.xp.where
    knots, first = np.unique(quantiles, return_index=True)
    last = np.append(first[1:], len(quantiles)) - 1
    low, high = references[first], references[last]
    # Ranks jump at equal quantiles: use the middle.
    slope = np.zeros(len(knots))
    slope[:-1] = (low[1:] - high[:-1]) / np.diff(knots)
    n_below = as_float64(x >= ops.float64_like(knots, x)).sum(axis=1)
    interval = ops.xp.astype((n_below - 1).clip(0.0), ops.xp.int64)[:, None]
    knot, left, slope, middle = (
        ops.take(ops.float64_like(values, x), interval)
        for values in (knots, high, slope, (low + high) / 2)
    )
    rank = where(x == knot, middle, left + (x - knot) * slope)
    # As in scikit-learn, in its order: values within 1e-7 of an end count as the end.
    rank = where(x > float(quantiles[-1]) - 1e-7, 1.0, rank)
    return where(x < float(quantiles[0]) + 1e-7, 0.0, rank)


def levels_of(encoder: TabularEncoder) -> list[Levels]:
    """Return the categories of every column, and the codes of these and of others."""
    return [_levels(encoder, at) for at in range(len(encoder._categories))]


def _levels(encoder: TabularEncoder, at: int) -> Levels:
    one_hot = encoder._one_hot
    known = [np.array(values, dtype=object) for values in one_hot.categories_]
    rows = np.empty((len(known[at]) + 1, len(known)), dtype=object)
    rows[:] = [values[0] for values in known]
    rows[:-1, at] = known[at]
    rows[-1, at] = "\x00none of them"
    levels = encoder._levels(rows)
    n_before = len(encoder.columns_) - levels.shape[1]
    levels = levels[:, encoder.columns_[n_before:] == encoder._categories[at]]
    missing = [value is None or value != value for value in known[at]]
    known[at][missing] = None
    return known[at], levels
