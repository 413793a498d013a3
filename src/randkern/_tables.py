"""Columns of dataframes, of pandas or polars, without importing either."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from sklearn.utils._missing import is_pandas_na, is_scalar_nan

# Text of more different values, most of them in one row only, is no category.
_MOST_CATEGORIES = 200
_ROWS_PER_CATEGORY = 2


def is_table(X: Any) -> bool:
    """Tell whether `X` is a dataframe (pandas or polars)."""
    # The shape first: to tell its columns a LazyFrame looks for them.
    return hasattr(X, "shape") and hasattr(X, "columns") and hasattr(X, "dtypes")


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a dataframe whose names are all text."""
    if not is_table(X):
        return None
    names = list(X.columns)
    if not names:
        raise ValueError(
            f"X has no columns: found 0 feature(s) (shape={X.shape}), but at least 1 "
            "is required."
        )
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ValueError(f"the dataframe has the column {twice[0]!r} more than once.")
    return names if all(isinstance(name, str) for name in names) else None


def is_numeric(column: Any) -> bool:
    """Tell whether a dataframe's column holds numbers or booleans."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    import pandas as pd

    numeric = pd.api.types.is_numeric_dtype(dtype)
    return numeric and not pd.api.types.is_complex_dtype(dtype)


def is_time(column: Any) -> bool:
    """Tell whether a dataframe's column holds dates or durations."""
    dtype = str(column.dtype).lower()
    return dtype.startswith(("date", "timedelta", "duration"))


def days_of(column: Any) -> np.ndarray:
    """Return dates as days since 1970, durations as days, missing ones as NaN.

    Days and what is left of them are counted apart: nanoseconds end in 2262, and
    9999-12-31 often stands for "never".
    """
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column.to_numpy())
    if values.dtype == object:
        values = values.astype("M8[us]")
    whole = values.astype(f"{values.dtype.kind}8[D]")
    days = whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "D")
    return np.where(np.isnat(values), np.nan, days)


def numbers_of(column: Any) -> np.ndarray:
    """Return a column of numbers as float64, missing ones being NaN."""
    if hasattr(column, "isna"):
        return np.asarray(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.to_numpy()
    if values.dtype == object:  # booleans of polars, some of them missing
        values = np.array(column.to_list(), dtype=float)
    return np.asarray(values, dtype=float)


def check_not_infinite(name: object, values: np.ndarray) -> None:
    """Raise a ValueError that names the first row of an infinite number."""
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"column {name!r} contains infinity: {cell(values, infinite)}; "
            "replace it by a missing value or a large number."
        )


def count_missing(values: Any) -> int:
    """Return how many values of a column, a table or an array of objects are missing.

    NaN in an array of floats does not count.
    """
    if hasattr(values, "isna"):
        return int(np.asarray(values.isna()).sum())
    if hasattr(values, "null_count"):  # polars
        found = values.null_count()
        return found if isinstance(found, int) else sum(found.row(0))
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return 0
    others = (value for value in values.ravel() if not isinstance(value, str))
    return sum(
        value is None or is_pandas_na(value) or is_scalar_nan(value) for value in others
    )


def objects_of(column: Any) -> np.ndarray:
    """Return a column of categories as objects, every missing value as None."""
    values = np.fromiter(column.to_list(), dtype=object, count=len(column))
    missing = np.asarray(column.is_null() if hasattr(column, "is_null") else [])
    if not missing.size:
        missing = np.asarray(column.isna()) if hasattr(column, "isna") else missing
    if missing.any():
        values[missing] = None
    return values


def check_categories(name: Any, values: np.ndarray) -> None:
    """Raise if values of a column are no categories, or have no order among them."""
    types = {type(value).__name__ for value in values if value is not None}
    if len(types) > 1:
        raise ValueError(
            f"column {name!r} mixes {' and '.join(sorted(types))} values; convert it "
            "to one type."
        )
    try:
        sorted({value for value in values if value is not None})
    except TypeError:
        raise ValueError(
            f"column {name!r} holds {types.pop()} values, which are neither numbers "
            "nor categories; put what they hold into columns of their own, or drop it."
        ) from None


def n_free_texts(name: Any, values: np.ndarray) -> int:
    """Count different texts that hardly repeat: 0 if objects may be categories.

    Raises ValueError, which names a row, where most of them are numbers.
    """
    n = len({value for value in values if value is not None})
    if n <= max(_MOST_CATEGORIES, len(values) / _ROWS_PER_CATEGORY):
        return 0
    rows = rows_of_text(values)
    if not len(rows):
        raise ValueError(
            f"column {name!r} holds {n:,} different numbers as texts or categories; "
            "convert them to numbers, or name them (as in 'id 7') if they are names."
        )
    if len(rows) < len(values) / 2:
        raise ValueError(
            f"column {name!r} holds numbers but for {len(rows):,} rows: "
            f"{cell(values, rows)}; mend or empty it."
        )
    return n


def cell(values: Any, rows: np.ndarray) -> str:
    """Say what the first of some rows of a column holds."""
    row = int(rows[0])
    (value,) = np.asarray(values)[row : row + 1].tolist()
    return f"row {row:,} holds {value!r} (the first row is 0)"


def rows_of_text(values: np.ndarray) -> np.ndarray:
    """Return the rows of objects that are neither missing nor read as numbers."""

    def is_text(value: Any) -> bool:
        try:
            float(value)
        except (TypeError, ValueError):
            return value is not None
        return False

    return np.flatnonzero([is_text(value) for value in values])


def check_numeric(X: Any, since: str, encoded: tuple[int, ...] = ()) -> None:
    """Raise if other columns of a table than `encoded` hold anything but numbers.

    `since` ends the message.
    """
    for j, name in enumerate(X.columns):
        if j not in encoded and not is_numeric(X[name]):
            raise ValueError(f"column {name!r} is {X[name].dtype}{since}.")


def without_sparse_columns(X: Any, *, dense: bool = False) -> Any:
    """Return a table of pandas with dense columns.

    One whose columns all leave out zeros stays as it is, to become a CSR matrix,
    unless `dense` is asked for.
    """
    fills = {
        name: dtype.fill_value
        for name, dtype in zip(X.columns, X.dtypes, strict=True)
        if hasattr(dtype, "fill_value")
    }
    zeros = len(fills) == X.shape[1] and all(fill == 0 for fill in fills.values())
    if not fills or (zeros and not dense):
        return X
    return X.astype({name: X[name].dtype.subtype for name in fills})
