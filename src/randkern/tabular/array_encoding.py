"""A fitted table encoder as array operations of any library.

It serves tensors and arrays that trace ONNX operators; dataframes are encoded by
:class:`~randkern.TabularEncoder` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.target_encoding import CategoryScores

# Compares a column of categories with those of the fit (objects, None for missing
# values), and returns booleans (n, n_categories).
IsKnown = Callable[[Any, np.ndarray], Any]


def encode_columns(encoder: TabularEncoder, columns: list[Any], known: IsKnown) -> Any:
    """Return the encoded rows of a table, (n, n_features_out), in float64.

    Columns are (n, 1): missing numbers are NaN, dates days since 1970.
    """
    numbers = [
        ops_of(columns[j]).as_float64(columns[j]) for j in encoder.numeric_columns
    ]
    codes = [
        _rows_of(encoder.codes_[j], known(columns[j], levels))
        for j, levels in encoder.levels_.items()
    ]
    joined = ops_of(numbers[0]).hstack(numbers) if numbers else None
    rows = encoder._encoded(joined, codes)
    # Models fitted in single precision expect such rows.
    return ops_of(rows).as_float64(rows)


def score_columns(
    scores: CategoryScores,
    columns: list[Any],
    levels: list[np.ndarray],
    known: IsKnown,
) -> list[Any]:
    """Return the scores of categories, columns (n, 1) that follow those of a table.

    `levels` are the levels of each column to compare values with.
    """
    names, out = scores.feature_names_in_.tolist(), []
    for at, name in enumerate(scores.columns):
        is_known = known(columns[names.index(name)], levels[at])
        result = _rows_of(scores.scores_of(at, levels[at]), is_known)
        out += [result[:, [j]] for j in range(result.shape[1])]
    return out


def _rows_of(codes: np.ndarray, is_known: Any) -> Any:
    """Return the code of each category, the last for those that are not known."""
    ops = ops_of(is_known)
    is_known = ops.as_float64(is_known)
    codes = ops.float64_like(codes, is_known)
    return is_known @ (codes[:-1] - codes[-1]) + codes[-1]


def equals(x: Any, values: np.ndarray) -> Any:
    """Compare numbers with values; a NaN, always the last value, equals NaN."""
    ops, missing = ops_of(x), np.isnan(values)
    x = ops.as_float64(x)
    result = x == ops.float64_like(values[~missing], x)
    return ops.hstack([result, ops.xp.isnan(x)]) if missing.any() else result
