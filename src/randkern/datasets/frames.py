"""Turns dataframes into a `Dataset`: target, task, and types of columns."""

import difflib
import shlex
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from randkern._cells import cell, check_not_infinite, rows_of_text
from randkern._tables import is_numeric, is_time, no_numbers, objects_of
from randkern._warnings import warn
from randkern.data.columns import (
    Reading,
    as_texts,
    categories_of,
    check_format,
    codes_in,
    integer_dtype,
    n_free_texts,
    read_column,
    read_dtype,
    read_texts,
    with_known_types,
)
from randkern.data.table_format import TableFormat
from randkern.data.written import units_of_texts
from randkern.datasets.record import Dataset, Task
from randkern.datasets.schema import TableSchema
from randkern.datasets.tables import place_of_row
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

_TASKS = ("classification", "regression")
_MANY_TEXTS = 20
# Columns that an error names.
_MAX_SHOWN = 50
# Different whole numbers that are classes: at most this many, each in some rows, unless
# there are only a few; above another number only if they count from 0 or 1.
_MAX_CLASSES = 100
_FEW_CLASSES = 5
_ROWS_PER_CLASS = 5
_MAX_LEVELS = 20
# What the last row of a spreadsheet may be called, and the rows of a smallest table.
_TOTALS = {"total", "totals", "grand total", "sum", "subtotal"}
_MIN_ROWS_OF_TOTAL = 4


def dataset_from_frame(
    frame: "pd.DataFrame",
    target: str | None,
    *,
    name: str,
    source: str,
    task: str | None = None,
    form: TableFormat | None = None,
) -> Dataset:
    """Split the target off a table and convert columns to types that models accept.

    Dates and durations become days; `name` is the data set's, and `source` that of the
    table in errors; `form` says how to read columns whose values
    are ambiguous. Without `task`, `infer_task` of the target decides. A target that
    cannot be learned, and columns that are neither numbers nor categories, raise a
    DataFileError; arguments that do not suit the table, and infinite numbers, a
    ValueError.
    """
    if task is not None and task not in _TASKS:
        raise ValueError(f"task={task!r}, expected one of {', '.join(_TASKS)}, or None")
    form = form or TableFormat()
    columns = [str(column) for column in frame.columns]
    form.check_names({*columns, *form.drop}, source)
    _check_target_name(target, columns, source)
    if not len(frame):
        raise DataFileError(f"{source}: the table has no rows")
    if len(columns) == 1:
        raise DataFileError(
            f"{source}: {target!r} is the only column, so there are no features; check "
            "the separator (--sep), and --drop"
        )
    typed = with_known_types(frame)
    column = typed[target]
    y, known, unit = _target_values(column, source, form, task)
    inferred = cast(Task, task or ("regression" if unit else infer_task(y)))
    y = _checked_for_task(y, inferred, column, source, form, is_stated=task is not None)
    X, schema = _typed_features(typed.drop(columns=[target]), source, form)
    _warn_of_totals(frame, X, source)
    schema.kinds[str(target)] = "category" if y.dtype.kind in "OUT" else "number"
    numbers = X.select_dtypes("floating")
    for infinite in numbers.columns[np.isinf(numbers.to_numpy()).any(axis=0)]:
        check_not_infinite(infinite, X[infinite].to_numpy())
    X = _rows_with_target(X, known)
    if unit:
        schema.units[str(target)] = unit
    classes = np.unique(y) if inferred == "classification" else None
    detail = "" if classes is None else f" with {len(classes)} classes"
    return Dataset(
        name=name,
        X_train=X,
        y_train=y,
        task=inferred,
        feature_names=tuple(X.columns),
        schema=schema,
        target_names=None if classes is None else tuple(map(str, classes)),
        description=(
            f"{name}: n = {len(X):,}, {_column_counts(X)}, {inferred} of "
            f"{target!r}{f' in {unit}' if unit else ''}{detail}"
        ),
    )


def _column_counts(X: "pd.DataFrame") -> str:
    n_categorical = sum(str(dtype) == "category" for dtype in X.dtypes)
    return f"d = {X.shape[1]:,} ({n_categorical} categorical)"


def without_free_texts(table: Dataset, *, read: bool = False) -> Dataset:
    """Drop string columns whose values hardly repeat, with a warning.

    Those of free text stay if they are `read`. Raises a ValueError if no column is
    left, or if one is numeric except for a few strings.
    """
    X: Any = table.X_train
    if not hasattr(X, "columns"):
        return table
    texts = [] if table.schema is None else table.schema.free_texts
    dropped = {
        name: X[name].nunique() for name in X.columns if name in texts and not read
    }
    dropped |= {
        name: n
        for name in X.columns
        if X[name].dtype == "category"
        and (n := n_free_texts(name, objects_of(X[name])))
    }
    if not dropped:
        return table
    descriptions = ", ".join(
        f"{name!r} ({n:,} different)" for name, n in dropped.items()
    )
    advice = "replace them by columns of numbers, or of few categories"
    for name in dropped:
        if codes := codes_in(X[name]):
            advice += f"; --numeric {shlex.quote(name)} reads {codes[0]!r} as a number"
    if len(dropped) == X.shape[1]:
        raise ValueError(
            f"{table.name} has only columns of strings that rarely repeat: "
            f"{descriptions}; {advice}"
        )
    warn(
        f"dropped columns of strings that rarely repeat: {descriptions}; {advice}",
        UserWarning,
    )
    left: Any = X.drop(columns=list(dropped))
    test: Any = table.X_test
    return replace(
        table,
        X_train=left,
        X_test=None if test is None else test.drop(columns=list(dropped)),
        feature_names=tuple(left.columns),
        description=table.description.replace(_column_counts(X), _column_counts(left)),
    )


def with_dependent_rows(
    table: Dataset, groups: str | None, time: str | None
) -> Dataset:
    """Return a table that knows the groups of its rows, or their times, by a column.

    The column of groups is not a feature then; that of times remains one.
    """
    if groups is None and time is None:
        return table
    if groups is not None and time is not None:
        raise ValueError(
            "got both --groups and --time; name the groups if the model is to "
            "predict rows of new groups, the time if it is to predict later rows"
        )
    name = str(groups or time)
    X = cast(Any, table.X_train)
    if not hasattr(X, "columns"):
        raise ValueError(f"{table.name} has no column {name!r}, as it is not a table")
    _check_column(name, [str(column) for column in X.columns], table.name)
    column = X[name]
    if groups is not None and column.nunique() == len(X):
        warn(
            f"each row has a group of its own in column {name!r}: "
            f"--groups {shlex.quote(name)} leaves rows out one by one, as without "
            "groups.",
            UserWarning,
        )
    if n_missing := int(column.isna().sum()):
        raise ValueError(
            f"column {name!r} is missing in {n_missing:,} of {len(X):,} rows; remove "
            "these rows, or fill in their groups or times"
        )
    if time is not None:
        if not is_numeric(column):
            raise ValueError(
                f"--time {name}: expected a column of numbers or dates, by which rows "
                f"can be ordered, but {no_numbers(column)}; --date-format reads dates "
                "in an unusual spelling"
            )
        return replace(table, time=column.to_numpy(dtype=float))
    if X.shape[1] == 1:
        raise ValueError(f"{table.name} has no columns besides {name!r}")
    test = cast(Any, table.X_test)
    left = X.drop(columns=[name])
    return replace(
        table,
        groups=column.to_numpy(),
        X_train=left,
        X_test=test if test is None else test.drop(columns=[name]),
        feature_names=tuple(left.columns),
        description=table.description.replace(_column_counts(X), _column_counts(left)),
    )


def test_rows(table: Dataset, frame: "pd.DataFrame", target: str, name: str) -> Dataset:
    """Return a data set with the rows of another table as its test rows.

    Its columns have been read with the schema of the data set.
    """
    assert table.schema is not None and table.feature_names is not None
    _check_target_name(target, list(frame.columns), name)
    missing = [column for column in table.feature_names if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} has no column {', '.join(missing)}")
    X = frame[list(table.feature_names)]
    for column in X.columns:
        train = table.X_train[column]
        if is_numeric(train) and not is_numeric(X[column]):
            raise ValueError(
                f"column {column!r} is numeric in {table.name}, but in {name} "
                f"{no_numbers(X[column])}; fix or clear this value"
            )
        if X[column].dtype.kind == "f":
            check_not_infinite(column, X[column].to_numpy())
    y, known, _ = _target_values(frame[target], name, table.schema.form, table.task)
    if table.task == "regression":
        y = _real_targets(y, frame[target], name)
    return replace(table, X_test=_rows_with_target(X, known), y_test=y)


def infer_task(y: np.ndarray) -> Task:
    """Guess the task from the values of a target.

    Strings and booleans are classes, and so are two different numbers. Other numbers
    with fractions are regression targets, as in scikit-learn's ``type_of_target``;
    whole numbers are, if more than 100 are different, or if there are fewer than 5
    rows for each (and more than 5 different ones), or if more than 20 are different
    and do not number classes from 0 or 1, each in 5 rows, as ages do not. Ratings and
    counts that are to be predicted as numbers need ``task="regression"``.
    """
    if y.dtype.kind not in "iuf":
        return "classification"
    values, counts = np.unique(y, return_counts=True)
    n_distinct = len(values)
    if n_distinct <= 2:
        return "classification"
    if y.dtype.kind == "f" and np.any(y != np.floor(y)):
        return "regression"
    if n_distinct > _MAX_LEVELS:
        are_numbered = values[0] in (0, 1) and values[-1] - values[0] < n_distinct
        if not (are_numbered and counts.min() >= _ROWS_PER_CLASS):
            return "regression"
    max_classes = min(_MAX_CLASSES, max(_FEW_CLASSES, len(y) / _ROWS_PER_CLASS))
    return "regression" if n_distinct > max_classes else "classification"


def _warn_of_totals(frame: "pd.DataFrame", X: "pd.DataFrame", source: str) -> None:
    """Warn if the last row seems to be the sum of the others."""
    if len(X) < _MIN_ROWS_OF_TOTAL:
        return
    named = [
        str(value)
        for name, value in frame.iloc[-1].items()
        if str(value).strip().casefold() in _TOTALS
        and not (frame[name].iloc[:-1] == value).any()
    ]
    numbers = X.select_dtypes("number")
    others, last = numbers.iloc[:-1], numbers.iloc[-1]
    sums = others.sum()
    # A sum that is not larger than one of its terms may be one by chance.
    is_sum = np.isclose(sums, last) & (sums.abs() > others.abs().max())
    if named or (len(sums) and 2 * is_sum.sum() > len(sums)):
        what = f"is called {named[0]!r}" if named else "is the sum of the others"
        warn(
            f"{source}: the last row {what}; remove it, or it is fitted like the "
            "others",
            UserWarning,
        )


def _rows_with_target(X: "pd.DataFrame", known: np.ndarray) -> "pd.DataFrame":
    """Return the rows whose target is known, without categories of the others."""
    if known.all():
        return X
    X = X[known].reset_index(drop=True)
    for name in X.columns[[dtype == "category" for dtype in X.dtypes]]:
        X[name] = X[name].cat.remove_unused_categories()
    return X


def _check_target_name(target: str | None, columns: list[str], source: str) -> None:
    if target is None:
        raise ValueError(
            f"{source}: no target column is named; pass target= (on the command line "
            f"--target), one of {_shown(columns)}"
        )
    _check_column(target, columns, source)


def _check_column(name: str, columns: list[str], source: str) -> None:
    if name not in columns:
        close = difflib.get_close_matches(name, columns, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"{source}: no column {name!r}{hint}; the columns are {_shown(columns)}"
        )


def _shown(columns: list[str]) -> str:
    more = len(columns) - _MAX_SHOWN
    shown = ", ".join(map(repr, columns[:_MAX_SHOWN]))
    return shown + f", and {more:,} more" * (more > 0)


def _target_values(
    column: "pd.Series", source: str, form: TableFormat, task: str | None
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the values of a target, which rows have any, and their unit.

    The values are numbers, booleans or texts. Rows without are left out with a warning,
    unless they are the most.
    """
    name = str(column.name)
    reading = read_dtype(column)
    if name in form.categorical:
        reading = Reading(as_texts(column), "category")
    elif reading is None or (reading.kind == "category" and name in form.numeric):
        reading = _target_of_texts(name, column, source, form, task)
    if reading is None or is_time(column):
        raise DataFileError(
            f"{source}: the target {name!r} is of type {column.dtype}, expected "
            "numbers, text, booleans or categories; to predict a duration or a date, "
            "add a column with its number of days"
        )
    known = reading.values.notna().to_numpy()
    is_text = reading.kind == "category"
    _warn_of_missing(column, known, source, form, task, is_text=is_text)
    values = reading.values[known]
    if reading.kind == "boolean":
        values = values.astype(bool)
    elif not is_text and not known.all() and _are_whole(values):
        values = values.astype(np.int64)  # floats, as some were missing
    found = np.asarray(values)
    if task == "classification" and found.dtype.kind == "f" and not reading.unit:
        if np.any(found != np.floor(found)):
            found = as_texts(column[known]).to_numpy(dtype=object)
    wide: dict[str, Any] = {"f": np.float64, "i": np.int64, "u": integer_dtype(found)}
    found = found.astype(wide.get(found.dtype.kind, found.dtype))
    return found, known, reading.unit


def _target_of_texts(
    name: str, column: "pd.Series", source: str, form: TableFormat, task: str | None
) -> Reading | None:
    """Return a target of texts as numbers, booleans or labels, None of others."""
    import pandas

    if categories_of(column) is None:
        return None
    texts = as_texts(column)
    labels = Reading(texts, "category")
    reading = read_texts(name, column, form, all_of_them=True)
    if reading.kind == "date" and task != "classification":
        raise DataFileError(
            f"{source}: the target {name!r} is a date; predict a number instead, such "
            "as the days since the first date, or pass --task classification if each "
            "date is a class"
        )
    if reading.kind == "category" and task != "classification":
        check_format(name, column, f"{source}: the target")
    if reading.kind in ("category", "date"):
        return labels
    if reading.kind == "boolean":
        return reading
    reading.warn(name, asked=True)
    values = reading.values
    integers = pandas.to_numeric(texts, errors="coerce")
    if integers.dtype.kind in "iu":
        values = integers  # which floats may round
    if values.dtype.kind in "iu" or _are_whole(values.dropna()):
        may_be_labels = (
            task or infer_task(values.dropna().to_numpy())
        ) == "classification"
        if may_be_labels and texts.str.strip().str.match(r"[+-]?0\d").any():
            return Reading(texts.str.strip(), "category")
        if values.dtype.kind == "f" and values.notna().all():
            values = values.astype(np.int64)
    elif task == "classification":
        return labels
    return replace(reading, values=values)


def _check_units(target: str, texts: "pd.Series", form: TableFormat) -> None:
    """Raise if a target holds numbers of several units, or numbers and a few texts."""
    units = units_of_texts(texts, form.decimal, form.thousands)
    names = units.value_counts().index
    others = np.flatnonzero(texts.notna() & units.isna())
    if 0 < len(others) < len(texts) / 2:
        raise DataFileError(
            f"the target {target!r} holds numbers and text: {cell(texts, others)}; say "
            f"--numeric {shlex.quote(target)} to leave such rows out, or --task "
            "classification (in Python task='classification') if each value is a class"
        )
    if len(names) > 1 and not len(others):
        rows = np.flatnonzero(units == names[-1])
        raise DataFileError(
            f"the target {target!r} mixes units: {names[0]!r}, and in {len(rows):,} of "
            f"{len(texts):,} rows {names[-1]!r} ({cell(texts, rows)}); convert them to "
            f"one unit, or say --numeric {shlex.quote(target)} to leave such rows out"
        )


def _warn_of_missing(
    column: "pd.Series",
    known: np.ndarray,
    source: str,
    form: TableFormat,
    task: str | None,
    *,
    is_text: bool,
) -> None:
    """Warn of rows without a target; raise if they are the most."""
    n = len(column)
    n_missing = n - int(known.sum())
    if not n_missing:
        return
    row = int(np.argmin(known))
    text = (
        f"{source}: {n_missing:,} of {n:,} rows {'have' if n_missing > 1 else 'has'} "
        f"no value of the target {column.name!r} (empty, NA, None, null, ... count as "
        f"missing)"
    )
    where = f"the first is {place_of_row(source, row, form)}"
    if n_missing > n / 2:
        raise DataFileError(
            f"{text}, more than half; {where}; choose another target, or remove those "
            "rows"
        )
    text += f" and {'are' if n_missing > 1 else 'is'} left out; {where}"
    if task != "regression" and is_text:
        text += "; if it is the name of a class, rename it"
    warn(text, UserWarning)


def _are_whole(values: Any) -> bool:
    """Return whether numbers are floats, but whole and small enough to be exact."""
    if values.dtype.kind != "f" or not len(values):
        return False
    return bool(np.isfinite(values).all() and (np.floor(values) == values).all()) and (
        abs(values).max() < 2**53
    )


def _checked_for_task(
    y: np.ndarray,
    task: Task,
    column: "pd.Series",
    source: str,
    form: TableFormat,
    *,
    is_stated: bool,
) -> np.ndarray:
    """Check that the values of a column suit the task; return them in its dtype."""
    target = str(column.name)
    are_many = y.dtype.kind == "O" and len(set(y)) > _MANY_TEXTS
    if are_many and not (is_stated and task == "classification"):
        _check_units(target, as_texts(column), form)
    if task == "regression":
        return _real_targets(y, column, source)
    if not is_stated and y.dtype.kind == "O" and len(y) > _MANY_TEXTS:
        n_classes = len(set(y))
        if 2 * n_classes > len(y):
            raise DataFileError(
                f"{source}: the target {target!r} holds {n_classes:,} different texts "
                f"in {len(y):,} rows, such as {y[0]!r}: too many classes to learn; "
                "choose another target, or pass --task classification (in Python "
                "task='classification') if each is a class"
            )
    if _are_whole(y):
        y = y.astype(np.int64)  # class 1, not 1.0
    if len(np.unique(y)) < 2:
        (value,) = y[:1].tolist()
        if len(y) == 1:
            raise DataFileError(
                f"{source}: the table has 1 row, expected at least 2; add rows"
            )
        raise DataFileError(
            f"{source}: the target {target!r} is {value!r} in all {len(y):,} rows, "
            "expected at least two values; choose another target"
        )
    return y


def _target_cell(column: "pd.Series", rows: np.ndarray) -> str:
    """Describe the first of some of the targets that are not missing."""
    return cell(column, np.flatnonzero(column.notna())[rows])


def _real_targets(y: np.ndarray, column: "pd.Series", source: str) -> np.ndarray:
    """Return targets of a regression, the known values of a column, as float64."""
    target = str(column.name)
    if y.dtype.kind not in "iuf":
        texts = np.array(rows_of_text(y) if y.dtype.kind == "O" else [])
        raise ValueError(
            f"{source}: task='regression', but the target {target!r} holds "
            f"{y.dtype} values such as {y[0]!r}; use task='classification'"
            + (f"; {_target_cell(column, texts)}" if len(texts) else "")
        )
    infinite = np.flatnonzero(~np.isfinite(y))
    if len(infinite):
        raise DataFileError(
            f"{source}: {len(infinite):,} values of the target {target!r} are "
            f"infinite; remove those rows; {_target_cell(column, infinite)}"
        )
    return y.astype(np.float64)


def _typed_features(
    frame: "pd.DataFrame", source: str, form: TableFormat
) -> "tuple[pd.DataFrame, TableSchema]":
    """Return numbers, booleans, categories and free texts, and how they are read."""
    schema = TableSchema({}, form)
    typed = frame.rename(columns=str)
    refused = []
    for name, column in typed.items():
        reading = read_column(name, column, form)
        if reading is None:
            # The rows that hold lists or similar, or the first row if none do.
            odd = [not isinstance(value, Hashable) for value in column.tolist()]
            rows = np.flatnonzero(odd) if any(odd) else np.array([0])
            refused.append(f"{name!r} ({column.dtype}): {cell(column, rows)}")
            continue
        if reading.values is not column:
            typed[name] = reading.values
        schema.add(name, reading)
    if refused:
        raise DataFileError(
            f"{source}: columns that are neither numbers nor categories: "
            f"{'; '.join(refused)}; convert or drop them"
        )
    typed = typed.copy()  # in one block for each dtype
    shares = typed.isna().mean()
    schema.missing_shares.update(shares[shares > 0].to_dict())
    return typed, schema
