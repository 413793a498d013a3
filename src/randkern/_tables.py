"""The columns of tables: their types, their values as numbers, categories as codes.

Equal categories get equal codes, so a kernel that only compares categories for equality
gives the same values as on the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._cells import cell, check_categories, is_missing, rows_of_text

# What categories may be.
_PLAIN = (str, int, float, complex, np.generic)


def is_table(X: Any) -> bool:
    """Return whether `X` is a dataframe (pandas or polars)."""
    # The shape first: asking a LazyFrame for its columns is expensive.
    return hasattr(X, "shape") and hasattr(X, "columns") and hasattr(X, "dtypes")


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a dataframe if all are strings, otherwise None."""
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
    """Return whether a dataframe's column holds numbers or booleans."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    import pandas as pd

    numeric = pd.api.types.is_numeric_dtype(dtype)
    return numeric and not pd.api.types.is_complex_dtype(dtype)


def is_time(column: Any) -> bool:
    """Return whether a dataframe's column holds dates or durations."""
    return str(column.dtype).lower().startswith(("date", "timedelta", "duration"))


def kind_of(column: Any) -> str:
    """Return "number" (also of booleans), "date", "duration" or "category"."""
    if is_numeric(column):
        return "number"
    if is_time(column):
        return "date" if str(column.dtype).lower().startswith("date") else "duration"
    return "category"


def days_of(column: Any) -> np.ndarray:
    """Return dates as days since 1970, durations as days, missing values as NaN.

    Whole days and the remainder are counted separately: int64 nanoseconds end in 2262,
    and 9999-12-31 often stands for "never".
    """
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column.to_numpy())
    if values.dtype == object:
        values = values.copy()
        values[np.asarray(column.isna(), dtype=bool)] = None
        values = values.astype("M8[us]")
    whole_days = values.astype(f"{values.dtype.kind}8[D]")
    days = whole_days.astype(np.int64) + (values - whole_days) / np.timedelta64(1, "D")
    return np.where(np.isnat(values), np.nan, days)


def numbers_of(column: Any) -> np.ndarray:
    """Return numbers as float64, dates as days; missing values are NaN."""
    if not is_numeric(column):
        return days_of(column)
    if hasattr(column, "isna"):
        return np.asarray(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.to_numpy()
    if values.dtype == object:  # booleans of polars with missing values
        values = np.array(column.to_list(), dtype=float)
    return np.asarray(values, dtype=float)


def count_missing(values: Any) -> int:
    """Return the number of missing values of a column, table or object array.

    NaN in a float array does not count.
    """
    if hasattr(values, "isna"):
        return int(np.asarray(values.isna()).sum())
    if hasattr(values, "null_count"):  # polars
        n_missing = values.null_count()
        return n_missing if isinstance(n_missing, int) else sum(n_missing.row(0))
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return 0
    return sum(is_missing(value) for value in values.ravel())


def objects_of(column: Any) -> np.ndarray:
    """Return a column of categories as an object array, missing values as None.

    Values of other types than texts, numbers and booleans that can be sorted, such as
    intervals, are texts, which model files can hold.
    """
    # Categories that are integers stay such beside missing ones.
    listed = (column.astype(object) if hasattr(column, "iloc") else column).to_list()
    values = np.fromiter(listed, dtype=object, count=len(column))
    missing = column.is_null() if hasattr(column, "is_null") else column.isna()
    values[np.asarray(missing, dtype=bool)] = None
    try:
        present = set(listed) - {None}
    except TypeError:
        kinds = [type(v).__name__ for v in listed if not isinstance(v, Hashable)]
        raise ValueError(
            f"column {column.name!r} holds {(*kinds, 'nested')[0]} values, which are "
            "neither numbers nor categories; split them into separate columns, or drop "
            "the column."
        ) from None
    if any(not isinstance(value, _PLAIN) for value in present):
        with suppress(TypeError):  # what cannot be sorted is refused later
            sorted(present)
            values[:] = [None if value is None else str(value) for value in values]
    return values


def no_numbers(column: Any) -> str:
    """Describe a non-numeric column by its first text, or its dtype."""
    values = objects_of(column)
    texts = rows_of_text(values)
    return cell(values, texts) if len(texts) else f"is {column.dtype}"


def check_numeric(
    X: Any,
    since: str = " now, but held numbers when the model was fitted",
    encoded: Container[int] = (),
) -> None:
    """Raise if a column of a table other than those in `encoded` is not numeric.

    `since` ends the message.
    """
    for j, name in enumerate(X.columns):
        if j not in encoded and not is_numeric(X[name]):
            raise ValueError(f"column {name!r} is {X[name].dtype}{since}.")


def without_sparse_columns(X: Any, *, dense: bool = False) -> Any:
    """Return a pandas table with dense columns.

    A table whose columns are all sparse with fill value 0 is returned unchanged, to
    become a CSR matrix, unless `dense` is set.
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


def levels_of(name: Any, values: np.ndarray, least: int = 1) -> np.ndarray:
    """Return the categories that at least so many rows have, sorted, None as the last.

    Raise if the values of the column are no categories, or cannot be sorted.
    """
    check_categories(name, values)
    counts = Counter(values.tolist())
    frequent = [level for level, n in counts.items() if n >= least]
    levels = np.empty(len(frequent), dtype=object)
    levels[:] = sorted(frequent, key=lambda level: (level is None, level))
    return levels


def places_of(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the position of each value among the levels, or else their number."""
    place = {level: at for at, level in enumerate(levels.tolist())}
    others = len(levels)
    return np.array([place.get(value, others) for value in values.tolist()], dtype=int)


def unknown_values(name: Any, values: np.ndarray, levels: np.ndarray) -> str | None:
    """Describe a column that has categories, but none of the known levels.

    None for other columns. Raise if the categories are of another type than the levels.
    """
    present = [value for value in values.tolist() if value is not None]
    known = [level for level in levels.tolist() if level is not None]
    if not present or not known or not {*known}.isdisjoint(present):
        return None
    described = (
        f"column {name!r} holds no value that is known from the fit, such as "
        f"{known[0]!r}, but values such as {present[0]!r}"
    )
    if {*map(type, present)} != {*map(type, known)}:
        raise ValueError(f"{described}; convert it.")
    return described


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Encodes a dataframe as numbers: text and categorical columns become codes.

    Codes are 0, 1, ... in sorted order, with the last for a missing category, and -1
    for a category that was not in the table the encoder learned from.

    Attributes
    ----------
    names : tuple
        The columns.
    levels : dict of int to ndarray of object
        The categories of each column that is not numeric, by its position.
    """

    names: tuple[Any, ...]
    levels: dict[int, np.ndarray]

    @classmethod
    def of(cls, X: Any) -> TableEncoder:
        """Learn the categories of the columns of `X` that are not numeric."""
        levels = {}
        for j, name in enumerate(X.columns):
            column = X[name]
            if is_numeric(column):
                continue
            dtype = str(column.dtype).lower()
            if any(word in dtype for word in ("date", "time", "duration", "complex")):
                raise ValueError(
                    f"column {name!r} holds {column.dtype} values, expected real "
                    "numbers; convert the column, or drop it."
                )
            levels[j] = levels_of(name, objects_of(column))
        return cls(tuple(X.columns), levels)

    def check_numbers(self, columns: tuple[int, ...], reader: Any) -> None:
        """Raise if `reader`, which needs numbers, reads categories."""
        text = sorted({*columns} & {*self.levels})
        if text:
            raise ValueError(
                f"column {self.names[text[0]]!r} holds categories, but {reader} needs "
                "numbers; restrict the kernel with columns=, and use "
                "Categorical(columns=...) for the others."
            )

    def n_categories(self, column: int) -> int | None:
        """Return the number of categories of a column, not counting a missing one.

        None for a numeric column.
        """
        if column not in self.levels:
            return None
        return sum(level is not None for level in self.levels[column])

    def check_known(self, X: np.ndarray) -> None:
        """Raise if encoded rows hold unknown categories."""
        for j in self.levels:
            if np.any(X[:, j] == -1):
                raise ValueError(
                    f"column {self.names[j]!r} holds categories that the first block "
                    "of rows lacks; put a row of each category into the first block."
                )

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows of `X` as a float64 array of the same width."""
        check_numeric(X, encoded=self.levels)
        out = np.empty(X.shape)
        for j, name in enumerate(X.columns):
            if j not in self.levels:
                out[:, j] = numbers_of(X[name])
                continue
            values, levels = objects_of(X[name]), self.levels[j]
            unknown_values(name, values, levels)  # raises for those of another type
            places = places_of(values, levels)
            out[:, j] = np.where(places < len(levels), places, -1)
        return out


def check_column_order(estimator: Any, X: Any, *, reset: bool) -> None:
    """Store or compare the names of a dataframe's columns if some are no strings.

    scikit-learn compares names only if all are strings; others, such as the integers
    of ``pd.DataFrame(array)``, would be taken by position.
    """
    names = [str(name) for name in X.columns] if is_table(X) else None
    if reset:
        vars(estimator).pop("_column_names", None)
        if names is not None and not all(isinstance(name, str) for name in X.columns):
            estimator._column_names = names
        return
    fitted = getattr(estimator, "_column_names", None)
    if fitted is None or names is None or names == fitted:
        return
    others = [name for name in names if name not in fitted]
    if others:
        problem = f"has columns that it lacked, such as {others[0]!r}"
    elif len(names) < len(fitted):
        problem = "lacks some of its columns"
    else:
        problem = "has its columns in another order"
    raise ValueError(
        f"X {problem}: {type(estimator).__name__} was fitted to the columns "
        f"{', '.join(fitted[:10])}; pass X[columns] with these, in this order."
    )
