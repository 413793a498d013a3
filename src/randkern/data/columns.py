"""Columns of tables, and targets, by the types of their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._cells import cell, rows_of_text

# A text column with more distinct values, most of them in a single row, is free text,
# not categories.
_MAX_CATEGORIES = 200
_ROWS_PER_CATEGORY = 2
# Words of a typical free text.
_MIN_WORDS = 3
# If all of more than this many categories are numbers except for one text, in at most
# this share of the rows, the column is numeric with a placeholder such as "?"; several
# such texts are codes such as "V57".
_FEW_CATEGORIES = 20
_FEW_TEXTS = 0.05


def with_known_types(X: Any) -> Any:
    """Return a dataframe with the dtypes that its columns' values have.

    Columns of objects that are all numbers, dates or durations get such dtypes, as do
    Arrow's dates, periods and, in polars, times of the day.
    """
    if not hasattr(X, "iloc"):  # polars
        types = {
            name: str(dtype) for name, dtype in zip(X.columns, X.dtypes, strict=True)
        }
        times = [name for name, dtype in types.items() if dtype == "Time"]
        return X.with_columns(X[name].cast(int) for name in times) if times else X
    typed = X.copy(deep=False)
    for name in X.columns:
        if X[name].dtype != (column := _typed(X[name])).dtype:
            typed[name] = column
    return typed


def _typed(column: Any) -> Any:
    """Return a pandas column with the dtype of its values."""
    import pandas as pd

    name = str(column.dtype)
    if name.startswith("period"):
        return column.dt.to_timestamp()
    if name != "object" and not name.startswith(
        ("timestamp", "date32", "date64", "time32", "time64")
    ):
        return column
    column = column.astype(object)  # of Arrow's times, too
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in ("datetime", "datetime64", "date"):
        try:
            return pd.to_datetime(column)
        except pd.errors.OutOfBoundsDatetime:  # of pandas 2, whose unit is nanoseconds
            return column.astype("datetime64[us]")
        except ValueError:  # of several offsets from UTC
            return _in_utc(column)
    if kind == "time":
        return pd.to_timedelta(column.map(str, na_action="ignore"))
    if kind in ("timedelta", "timedelta64"):
        return pd.to_timedelta(column)
    if kind in ("integer", "floating", "mixed-integer-float", "decimal"):
        return column.where(column.notna()).astype(float)
    return column


def _in_utc(column: Any) -> Any:
    """Return dates of several offsets from UTC as dates in UTC."""
    import pandas as pd

    offsets = column.map(lambda time: time.utcoffset(), na_action="ignore")
    without = offsets.isna() & column.notna()
    if without.any():
        raise ValueError(
            f"column {column.name!r} mixes dates with and without a UTC offset; "
            f"{int(without.sum()):,} rows have none: "
            f"{cell(column, np.flatnonzero(without))}; write all dates in one way."
        )
    return pd.to_datetime(column, utc=True)


def is_free_text(values: np.ndarray) -> bool:
    """Return whether most values are different texts of several words.

    Missing values are None. Names, identifiers and codes have fewer words.
    """
    texts = [value for value in values if isinstance(value, str)]
    n_present = sum(value is not None for value in values)
    if len(texts) < n_present or len(set(texts)) <= max(
        _FEW_CATEGORIES, n_present / _ROWS_PER_CATEGORY
    ):
        return False
    return float(np.median([len(text.split()) for text in texts])) >= _MIN_WORDS


def n_free_texts(name: Any, values: np.ndarray) -> int:
    """Return the number of distinct free texts, 0 if the values may be categories.

    Raises a ValueError that names a row if most of them are numbers, or if one text in
    a few rows has turned a column of repeating numbers into text.
    """
    n = len({value for value in values if value is not None})
    if n <= _FEW_CATEGORIES:
        return 0
    many = n > max(_MAX_CATEGORIES, len(values) / _ROWS_PER_CATEGORY)
    rows = rows_of_text(values)
    if many and not len(rows):
        raise ValueError(
            f"column {name!r} has {n:,} distinct numbers, stored as strings or "
            "categories; convert the column to numbers, or, if they are identifiers, "
            "add a prefix (as in 'id 7')."
        )
    if many:
        max_share = 0.5
    elif len({values[row] for row in rows}) == 1:
        max_share = _FEW_TEXTS
    else:
        max_share = 0.0
    if len(rows) < max_share * len(values):
        raise ValueError(
            f"column {name!r} is numeric except in {len(rows):,} rows: "
            f"{cell(values, rows)}; fix or clear these values."
        )
    return n if many else 0


def split_target(X: Any, y: Any, target: str | None) -> tuple[Any, Any]:
    """Return a dataframe without the column `target`, and this column as targets.

    `X` and `y` are returned as they are if `target` is None.
    """
    if target is None:
        return X, y
    if y is not None:
        raise ValueError("got both y and target; pass one of them")
    if not hasattr(X, "columns"):
        raise TypeError(
            f"target={target!r} names a column of a dataframe, but X is of type "
            f"{type(X).__name__}; pass y"
        )
    names = list(X.columns)
    if target not in names:
        shown = ", ".join(map(repr, names[:10]))
        if len(names) > 10:
            shown += ", ..."
        raise ValueError(f"X has no column {target!r}; its columns are {shown}")
    return X[[name for name in names if name != target]], X[target]
