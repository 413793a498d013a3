"""What is wrong with values: the first bad cell of an array or a column, by its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from reprlib import repr as shortened
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite

from randkern._sklearn import is_pandas_na, is_scalar_nan


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    if isinstance(value, datetime | timedelta | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return value is None or is_pandas_na(value) or is_scalar_nan(value)


def cell(values: Any, rows: np.ndarray) -> str:
    """Describe the value of a column in the first of `rows`, for a message."""
    row = int(rows[0])
    (value,) = np.asarray(values)[row : row + 1].tolist()
    return f"row {row:,} holds {value!r} (the first row is 0)"


def with_places(message: str, place_of: Callable[[int], str]) -> str:
    """Return a message whose rows are named by their places, such as ``line 7``."""

    def renamed(found: re.Match[str]) -> str:
        return f"{place_of(int(found[1].replace(',', '')))} holds {found[2]}"

    cells = r"row ([\d,]+) holds (.*?) \(the first row is 0\)"
    return re.sub(cells, renamed, message)


def rows_of_text(values: np.ndarray) -> np.ndarray:
    """Return the positions of values that are neither missing nor parse as numbers."""

    def is_text(value: Any) -> bool:
        try:
            float(value)
        except (TypeError, ValueError):
            return value is not None
        return isinstance(value, str) and "_" in value  # a number in Python alone

    return np.flatnonzero([is_text(value) for value in values])


def check_categories(name: Any, values: np.ndarray) -> None:
    """Raise if the values of a column are not categories, or cannot be sorted."""
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
            "nor categories; split them into separate columns, or drop the column."
        ) from None


def check_not_infinite(name: object, values: np.ndarray) -> None:
    """Raise a ValueError that names the first row with an infinite number."""
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"column {name!r} contains infinity: {cell(values, infinite)}; "
            "replace it by a missing value or a large number."
        )


@contextmanager
def naming_cells(X: Any, name: str = "X") -> Iterator[None]:
    """Name the first entry of an object or string array that is not a number."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(X, (np.ndarray, list, tuple)) and not hasattr(X, "to_numpy"):
            raise
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        if array.ndim not in (1, 2) or array.dtype.kind not in "OUST":
            raise
        for (row, *column), value in np.ndenumerate(array):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError) as cause:
                kind = TypeError if isinstance(cause, TypeError) else ValueError
                place = f"row {row}" + "".join(f" of column {j}" for j in column)
                advice = " Pass a dataframe if columns hold text." if column else ""
                raise kind(
                    f"{place} of {name} holds {shortened(value)}, expected a number: "
                    f"{cause}.{advice}"
                ) from error
        raise


class NotFiniteError(ValueError):
    """An entry of an array is missing or infinite; `row` is the number of its row."""

    row: int


def check_finite(X: Any, names: Sequence[Any] | None, name: str) -> None:
    """Raise for missing and infinite numbers, naming the position of the first."""
    try:
        assert_all_finite(X, input_name=name)
    except ValueError as error:
        if sp.issparse(X):
            entries = X.tocoo()
            bad = np.flatnonzero(~np.isfinite(entries.data))[0]
            row = int(entries.row[bad])
            column = int(entries.col[bad])
        else:
            row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        label = column if names is None else repr(names[column])
        advice = ""
        if "NaN" in str(error):
            advice = (
                " Leave such rows out, or impute them, for instance with "
                "sklearn.impute.SimpleImputer."
            )
        located = NotFiniteError(
            f"{error} The first is in row {row} of column {label}.{advice}"
        )
        located.row = row
        raise located from None
