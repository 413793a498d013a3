"""The columns of tables: their types, their values as numbers, categories as codes.

Equal categories get equal codes, so a kernel that only compares categories for equality
gives the same values as on the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import OrdinalEncoder

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
    return str(column.dtype).lower().startswith("date") or is_duration(column)


def is_duration(column: Any) -> bool:
    """Return whether a dataframe's column holds durations."""
    return str(column.dtype).lower().startswith(("timedelta", "duration"))


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
    """Return a column of numbers as float64, missing values as NaN."""
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
    encoded: tuple[int, ...] = (),
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


def _columns_of_objects(X: Any, columns: tuple[int, ...]) -> np.ndarray:
    return np.column_stack([objects_of(X[X.columns[j]]) for j in columns])


@dataclass(frozen=True)
class TableEncoder:
    """Encodes a dataframe as numbers: text and categorical columns become codes.

    Codes are 0, 1, ... in sorted order, with one for a missing category, and -1
    for a category that was not in the table the encoder learned from.
    """

    encoded: tuple[int, ...]
    names: tuple[Any, ...]
    encoder: OrdinalEncoder | None

    @classmethod
    def of(cls, X: Any) -> TableEncoder:
        """Learn the categories of the columns of `X` that are not numeric."""
        names = tuple(X.columns)
        encoded = tuple(j for j, name in enumerate(names) if not is_numeric(X[name]))
        for j in encoded:
            dtype = str(X[names[j]].dtype).lower()
            if any(word in dtype for word in ("date", "time", "duration", "complex")):
                raise ValueError(
                    f"column {names[j]!r} holds {X[names[j]].dtype} values, expected "
                    "real numbers; convert the column, or drop it."
                )
            check_categories(names[j], objects_of(X[names[j]]))
        if not encoded:
            return cls((), names, None)
        encoder = OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=-1,
            encoded_missing_value=-2,
        ).fit(_columns_of_objects(X, encoded))
        return cls(encoded, names, encoder)

    def check_numbers(self, columns: tuple[int, ...], reader: Any) -> None:
        """Raise if `reader`, which needs numbers, reads categories."""
        text = sorted(set(columns) & set(self.encoded))
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
        if column not in self.encoded or self.encoder is None:
            return None
        categories = self.encoder.categories_[self.encoded.index(column)]
        return sum(category is not None for category in categories)

    def check_known(self, X: np.ndarray) -> None:
        """Raise if encoded rows hold unknown categories."""
        for j in self.encoded:
            if np.any(X[:, j] == -1):
                raise ValueError(
                    f"column {self.names[j]!r} holds categories that the first block "
                    "of rows lacks; put a row of each category into the first block."
                )

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows of `X` as a float64 array of the same width."""
        check_numeric(X, encoded=self.encoded)
        out = np.empty(X.shape)
        for j, name in enumerate(X.columns):
            if j not in self.encoded:
                out[:, j] = numbers_of(X[name])
        if self.encoder is not None:
            self._check_texts(X)
            objects = _columns_of_objects(X, self.encoded)
            out[:, list(self.encoded)] = self.encoder.transform(objects)
        return out

    def _check_texts(self, X: Any) -> None:
        """Raise if a column of texts holds numbers: all would be unknown categories."""
        assert self.encoder is not None
        names = list(X.columns)
        for j, known in zip(self.encoded, self.encoder.categories_, strict=True):
            column = X[names[j]]
            texts = [value for value in known if value is not None]
            if not is_numeric(column) or not all(isinstance(v, str) for v in texts):
                continue
            # A column of missing values may have any dtype.
            if texts and not all(v is None for v in objects_of(column)):
                raise ValueError(
                    f"column {names[j]!r} is {column.dtype} now, but held text when "
                    "the model was fitted; convert it to text."
                )


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
