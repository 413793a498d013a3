"""Turns dataframes into a `Dataset`: target, task, and types of columns."""

import difflib
import re
import warnings
from collections.abc import Collection, Hashable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from randkern._extras import import_extra
from randkern._validation import (
    cell,
    check_not_infinite,
    days_of,
    is_time,
    n_free_texts,
    objects_of,
    rows_of_text,
)
from randkern.datasets.record import Dataset, Task
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

_TASKS = ("classification", "regression")
_MANY_FRACTIONAL = 20
_MANY_WHOLE = 100
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_START = datetime(1970, 1, 1, tzinfo=UTC)


def dataset_from_frame(
    frame: "pd.DataFrame",
    target: str | None,
    *,
    name: str,
    source: str,
    task: str | None = None,
) -> Dataset:
    """Split the target off a table and convert columns to types that models accept.

    Dates and durations become days, see `dates_as_days`; `name` is the data set's, and
    `source` that of the table in errors. Without `task`, `infer_task` of the target
    decides. A target that cannot be learned, and columns that are neither numbers nor
    categories, raise a DataFileError; arguments that do not suit the table, and
    infinite numbers, a ValueError.
    """
    if task is not None and task not in _TASKS:
        raise ValueError(f"task={task!r}, expected one of {', '.join(_TASKS)}, or None")
    columns = [str(column) for column in frame.columns]
    _check_target_name(target, columns, source)
    if not len(frame):
        raise DataFileError(f"{source}: the table has no rows")
    if len(columns) == 1:
        raise DataFileError(
            f"{source}: {target!r} is the only column, so there are no features; check "
            f"the separator"
        )
    y = _target_values(frame[target], source)
    found = cast(Task, task or infer_task(y))
    y = _checked_for_task(y, found, str(target), source, given=task is not None)
    X = _typed_features(dates_as_days(frame.drop(columns=[target])), source)
    for column in X.columns[[dtype.kind == "f" for dtype in X.dtypes]]:
        check_not_infinite(column, X[column].to_numpy())
    classes = np.unique(y) if found == "classification" else None
    detail = "" if classes is None else f" with {len(classes)} classes"
    return Dataset(
        name=name,
        X_train=X,
        y_train=y,
        task=found,
        feature_names=tuple(X.columns),
        target_names=None if classes is None else tuple(map(str, classes)),
        description=(
            f"{name}: n = {len(X):,}, {_told_columns(X)}, {found} of {target!r}{detail}"
        ),
    )


def _told_columns(X: "pd.DataFrame") -> str:
    n_categorical = sum(str(dtype) == "category" for dtype in X.dtypes)
    return f"d = {X.shape[1]:,} ({n_categorical} categorical)"


def dates_as_days(frame: "pd.DataFrame", keep: Collection[str] = ()) -> "pd.DataFrame":
    """Return a table with dates as days since 1970 and durations as days.

    Text files hold dates as strings: a column holds dates if all of its values look
    like 2026-11-22, with or without a time.

    Columns in `keep` are unchanged. A string column of which most values are dates,
    but not all, raises a DataFileError that names a row.
    """
    pandas = import_extra("pandas", "Reading dates", "data")
    found = {}
    for name in frame.columns:
        column = frame[name]
        if name in keep or pandas.api.types.is_numeric_dtype(column.dtype):
            continue
        days = days_of(column) if is_time(column) else _days_of_texts(name, column)
        if days is not None:
            found[name] = days
    frame = frame.copy(deep=False) if found else frame
    for name, days in found.items():
        frame[name] = days
    return frame


def _days_of_texts(name: str, column: "pd.Series") -> np.ndarray | None:
    """Return the days of a string column of dates, or None if it holds others."""
    import pandas

    given = column.dropna()
    n_alike = sum(_DATE.match(str(value)) is not None for value in given)
    if not n_alike or n_alike < len(given) / 2:
        return None
    times = pandas.to_datetime(
        column.astype(object), format="ISO8601", errors="coerce", utc=True
    )
    days = days_of(times)
    for row in np.flatnonzero(times.isna() & column.notna()):
        days[row] = _day(str(column.iloc[row]))
    odd = np.flatnonzero(np.isnan(days) & column.notna())
    if len(odd) > len(given) / 2:
        return None
    if len(odd):
        raise DataFileError(
            f"column {name!r} holds dates but for {len(odd):,} rows: "
            f"{cell(column, odd)}; mend or empty it"
        )
    return days


def _day(text: str) -> float:
    """Return the days since 1970 of a date beyond pandas 2's range, NaN if invalid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _START
    return since / timedelta(days=1)


def without_free_texts(table: Dataset) -> Dataset:
    """Drop string columns whose values hardly repeat, with a warning.

    Raises a ValueError if no column is left, or if one is numeric except for a few
    strings.
    """
    X: Any = table.X_train
    if not hasattr(X, "columns"):
        return table
    dropped = {
        name: n
        for name in X.columns
        if X[name].dtype == "category"
        and (n := n_free_texts(name, objects_of(X[name])))
    }
    if not dropped:
        return table
    told = ", ".join(f"{name!r} ({n:,} different)" for name, n in dropped.items())
    advice = "put what they say into columns of numbers or of few categories"
    if len(dropped) == X.shape[1]:
        raise ValueError(
            f"{table.name}: all columns hold texts that hardly repeat: {told}; {advice}"
        )
    told = f"left out, as texts that hardly repeat: {told}; {advice}"
    warnings.warn(told, UserWarning, stacklevel=2)
    left: Any = X.drop(columns=list(dropped))
    test: Any = table.X_test
    return replace(
        table,
        X_train=left,
        X_test=None if test is None else test.drop(columns=list(dropped)),
        feature_names=tuple(left.columns),
        description=table.description.replace(_told_columns(X), _told_columns(left)),
    )


def infer_task(y: np.ndarray) -> Task:
    """Guess the task from the values of a target.

    Strings and booleans are classes. Numbers with many distinct values are
    regression targets, others classes: many is more than 20 (or half of the
    rows, if that is fewer) for values with fractions, and more than 100 for
    integers, which are more often codes of classes.
    """
    if y.dtype.kind not in "iuf":
        return "classification"
    n_distinct = len(np.unique(y))
    if y.dtype.kind == "f" and np.any(y != np.floor(y)):
        many = n_distinct > min(_MANY_FRACTIONAL, len(y) / 2)
    else:
        many = n_distinct > _MANY_WHOLE
    return "regression" if many else "classification"


def _check_target_name(target: str | None, columns: list[str], source: str) -> None:
    shown = ", ".join(map(repr, columns[:50]))
    if len(columns) > 50:
        shown += f", and {len(columns) - 50:,} more"
    if target is None:
        raise ValueError(
            f"{source}: which column is to be predicted? Give target=, one of {shown}"
        )
    if target not in columns:
        close = difflib.get_close_matches(target, columns, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"{source}: no column {target!r}{hint}; the columns are {shown}"
        )


def _target_values(column: "pd.Series", source: str) -> np.ndarray:
    n_missing = int(column.isna().sum())
    if n_missing:
        raise DataFileError(
            f"{source}: {n_missing:,} of {len(column):,} rows have no value of the "
            f"target {column.name!r} (empty, NA, None, null, ... count as missing); "
            f"remove those rows, or rename a class that is called so; row "
            f"{int(np.argmax(column.isna())):,} is empty (the first row is 0)"
        )
    typed = _typed(column)
    if typed is None:
        raise DataFileError(
            f"{source}: the target {column.name!r} is of type {column.dtype}, expected "
            f"numbers, text, booleans or categories"
        )
    if typed.dtype.name == "category" and column.dtype.name != "category":
        # A single type, so that classes can be sorted.
        return column.astype(str).to_numpy(dtype=object)
    values = np.asarray(typed)
    wide: dict[str, Any] = {"f": np.float64, "i": np.int64, "u": _whole_dtype(values)}
    return values.astype(wide.get(values.dtype.kind, values.dtype))


def _checked_for_task(
    y: np.ndarray, task: Task, target: str, source: str, *, given: bool
) -> np.ndarray:
    """Check that the values suit the task; return them in the task's dtype."""
    if task == "regression":
        if y.dtype.kind not in "iuf":
            texts = np.array(rows_of_text(y) if y.dtype.kind == "O" else [])
            raise ValueError(
                f"{source}: task='regression', but the target {target!r} holds "
                f"{y.dtype} values such as {y[0]!r}; use task='classification'"
                + (f"; {cell(y, texts)}" if len(texts) else "")
            )
        infinite = np.flatnonzero(~np.isfinite(y))
        if len(infinite):
            raise DataFileError(
                f"{source}: {len(infinite):,} values of the target {target!r} are "
                f"infinite; remove those rows; {cell(y, infinite)}"
            )
        return y.astype(np.float64)
    if not given and y.dtype.kind == "O" and len(set(y)) > _MANY_FRACTIONAL:
        texts = rows_of_text(y)
        if 0 < len(texts) < len(y) / 2:
            raise DataFileError(
                f"the target {target!r} holds numbers and text: {cell(y, texts)}; mend "
                "such rows, or say --task classification (in Python "
                "task='classification') if each value is a class"
            )
    if len(np.unique(y)) < 2:
        (value,) = y[:1].tolist()
        raise DataFileError(
            f"{source}: one class only: {target!r} is {value!r} in all {len(y):,} "
            "rows; choose another target"
        )
    return y


def _typed_features(frame: "pd.DataFrame", source: str) -> "pd.DataFrame":
    """Keep numbers, booleans and categories; encode strings; reject the rest."""
    pandas = import_extra("pandas", "Reading a table", "data")
    columns = {str(name): _typed(frame[name]) for name in frame.columns}
    refused = []
    for name in frame.columns:
        if columns[str(name)] is None:
            # The rows that hold lists or similar, or the first row if none do.
            odd = [not isinstance(value, Hashable) for value in frame[name].tolist()]
            rows = np.flatnonzero(odd) if any(odd) else np.array([0])
            refused.append(f"{name!r} ({frame[name].dtype}): {cell(frame[name], rows)}")
    if refused:
        raise DataFileError(
            f"{source}: columns that are neither numbers nor categories: "
            f"{'; '.join(refused)}; convert or drop them"
        )
    return pandas.DataFrame(columns)


def _typed(column: "pd.Series") -> "pd.Series | None":
    """Return a column as numbers, booleans or categories, or None if impossible."""
    from pandas.api import types

    dtype, is_object = column.dtype, types.is_object_dtype(column.dtype)
    if isinstance(dtype, types.CategoricalDtype):
        return column
    if is_object and types.infer_dtype(column, skipna=True) == "decimal":
        return column.astype(np.float64)  # Parquet returns ``decimal.Decimal``
    if types.is_bool_dtype(dtype):
        return column.astype("category" if column.isna().any() else bool)
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        if isinstance(dtype, np.dtype):
            return column
        # Nullable extension types become plain NumPy, with NaN for missing values.
        if types.is_float_dtype(dtype) or column.isna().any():
            return column.astype(np.float64)
        return column.astype(_whole_dtype(column))
    if not types.is_string_dtype(dtype) and not is_object:
        return None
    try:
        return column.astype("category")
    except TypeError:  # lists and dicts, which cannot be hashed
        return None


def _whole_dtype(values: Any) -> type[np.integer]:
    """Return int64, or uint64 for numbers that would overflow it."""
    large = values.dtype.kind == "u" and int(values.max()) > np.iinfo(np.int64).max
    return np.uint64 if large else np.int64
