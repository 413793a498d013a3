"""What the columns of tables hold: numbers, booleans, dates, categories or free text.

`with_known_types` gives the columns of any dataframe the dtypes of their values, as
models need them; `read_column` also reads what their texts say, as files need it.
pandas decides what it can. What it leaves as texts is read here: units, dates in
several spellings, other minus signs and placeholders; errors and warnings name a cell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from randkern._cells import cell, rows_of_text
from randkern._tables import (
    days_of,
    is_numeric,
    is_time,
    numbers_of,
    objects_of,
    without_sparse_columns,
)
from randkern._warnings import warn
from randkern.data.table_format import TableFormat
from randkern.data.written import (
    days_of_texts,
    example_of_ambiguous_dates,
    numbers_of_texts,
    units_of_texts,
)
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "text"]

# Texts that stand for missing numbers, in addition to those of pandas (an empty
# field, NA, NaN, None, null, n/a, ...), in lower case.
_PLACEHOLDERS = {
    *"? - -- --- . .. ... * — – n.a. n.a na nil none missing unknown unk".split(),  # noqa: RUF001
    *"#value! #ref! #div/0! #num! #name? 0000-00-00".split(),
    "not available",
    "not applicable",
}
# Other formats: of numbers whose thousands are separated (which a decimal comma may
# resemble), and of numbers with a decimal comma; and what to say.
_FORMATS = (
    (
        re.compile(r"[+-]?\d{1,3}([, '’])\d{3}(\1\d{3})*(\.\d+)?$"),
        "numbers with separated thousands",
        "say --thousands with the sign (in Python TableFormat(thousands=...)), or "
        "--decimal ',' if that is a decimal comma",
    ),
    (
        re.compile(r"[+-]?\d+,\d+$"),
        "numbers with a decimal comma",
        "say --decimal ',' and --thousands . if a point separates thousands (in Python "
        "TableFormat(decimal=',', thousands='.'))",
    ),
    (
        re.compile(r"[+-]?\d{1,3}([. '’])\d{3}(\1\d{3})*(,\d+)?$"),
        "numbers with a decimal comma and separated thousands",
        "say --decimal ',' --thousands with the sign (in Python "
        "TableFormat(decimal=',', thousands='.'))",
    ),
)
# What is before or after the digits of an amount.
_UNIT = re.compile(r"^[$€£¥] ?|^[A-Z]{3} (?=\d)| ?[%$€£¥]$|(?<=\d) ?[^\W\d_]+$")
# Texts that are codes, not numbers that could not be read: V57, but not "about 5".
_CODE = re.compile(r"[^\W\d_]+-?\d")
# Codes are written in these alone.
_DIGITS = re.compile(r"\d+", re.ASCII)
# Dates without signs, as numbers: 20261122.
_FIRST_DATE, _LAST_DATE = 1900_01_01, 2099_12_31
# A text column with more distinct values, most of them in a single row, is free text,
# not categories.
_MAX_CATEGORIES = 200
_ROWS_PER_CATEGORY = 2
# Words of a typical free text.
_MIN_WORDS = 3
# A column of at most so many different values may be one of categories.
_FEW_CATEGORIES = 20
# Numbers with texts in at most this share of the rows are a column of numbers: if it is
# one text, such as "?", it stands for a missing value; several are codes such as "V57".
_FEW_TEXTS = 0.05
_MAX_SHOWN = 3


@dataclass(frozen=True)
class Reading:
    """A column as it was read: its values, their kind, and the unit of numbers.

    `odd` are the texts that are read as missing, and `n_odd` the rows that hold them;
    `n_bare` rows hold numbers without the unit of the others.
    """

    values: pd.Series
    kind: Kind
    unit: str = ""
    odd: tuple[str, ...] = ()
    n_odd: int = 0
    n_bare: int = 0

    def warn(self, name: str, *, asked: bool) -> None:
        """Warn of texts that are read as missing, and of numbers without a unit."""
        if self.n_bare:
            n = int(self.values.notna().sum())
            warn(
                f"column {name!r} has the unit {self.unit!r} in {n - self.n_bare:,} of "
                f"{n:,} rows, and none in the others, which are read as if they had "
                "it; convert them if they are in another unit",
                UserWarning,
            )
        if self.odd:
            advice = f"; --categorical {shlex.quote(name)} reads it as categories"
            what = "numeric" if self.kind == "number" else "of dates"
            more = len(self.odd) - _MAX_SHOWN
            warn(
                f"column {name!r} is {what}, except for "
                f"{', '.join(map(repr, self.odd[:_MAX_SHOWN]))}"
                + f" and {more} other texts" * (more > 0)
                + f" in {self.n_odd:,} row{'s' * (self.n_odd > 1)}, read as missing"
                + advice * (not asked),
                UserWarning,
            )


def with_known_types(X: Any) -> Any:
    """Return a dataframe with the dtypes that its columns' values have.

    Columns of objects that are all numbers, booleans, dates or durations get such
    dtypes, as do Arrow's dates, periods and, in polars, times of the day. Columns
    without a value are numbers, and sparse ones are dense.
    """
    if not hasattr(X, "iloc"):  # polars
        others = {"Time": int, "Null": float}
        casts = {
            name: others[str(dtype)]
            for name, dtype in zip(X.columns, X.dtypes, strict=True)
            if str(dtype) in others
        }
        return X.cast(casts) if casts else X
    X = without_sparse_columns(X, dense=True)
    typed = X.copy(deep=False)
    open_ones = {dtype for dtype in X.dtypes.unique() if _may_be_typed(str(dtype))}
    for name in X.columns[[dtype in open_ones for dtype in X.dtypes]]:
        if X[name].dtype != (column := _typed(X[name])).dtype:
            typed[name] = column
    return typed


def _may_be_typed(dtype: str) -> bool:
    """Return whether the values of a column may have another dtype than it has."""
    kinds = ("object", "str", "period", "timestamp", "date", "time")
    return dtype.startswith(kinds)


def _typed(column: Any) -> Any:
    """Return a pandas column with the dtype of its values."""
    import pandas as pd

    name = str(column.dtype)
    if name.startswith("period"):
        return column.dt.to_timestamp()
    if name.startswith("str") and not column.notna().any():
        return pd.Series(np.nan, index=column.index, name=column.name)
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
    if kind == "boolean":
        return column.astype("boolean")
    if kind in ("empty", "integer", "floating", "mixed-integer-float", "decimal"):
        return _floats(column.where(column.notna()))
    return column


def _floats(column: Any) -> Any:
    """Return numbers as floats; those beyond the range of floats are infinite."""
    try:
        return column.astype(float)
    except OverflowError:
        return column.map(str, na_action="ignore").astype(float)


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


def read_column(name: str, column: pd.Series, form: TableFormat) -> Reading | None:
    """Read a column of a file.

    None if it holds neither numbers nor categories. Texts that are numbers or dates in
    a format that has to be named raise a DataFileError.
    """
    if name in form.text:
        return Reading(as_texts(column), "text")
    if name in form.categorical:
        return Reading(as_texts(column).astype("category"), "category")
    reading = read_dtype(column)
    if reading is not None and (reading.kind != "category" or name not in form.numeric):
        days = None if name in form.numeric else days_of_numbers(column)
        return reading if days is None else Reading(days, "date")
    categories = categories_of(column)
    if categories is None:
        return None
    reading = read_texts(name, column, form)
    if reading.kind != "category":
        reading.warn(name, asked=name in form.numeric)
        return reading
    texts = as_texts(column)
    check_format(name, column)
    codes = codes_in(texts)
    if codes and not n_free_texts(name, objects_of(column)):
        warn(
            f"column {name!r} holds numbers that begin with a zero, such as "
            f"{codes[0]!r}, and is read as text; --numeric {shlex.quote(name)} reads "
            "them as numbers, --date-format as dates",
            UserWarning,
        )
    elif not codes:
        _warn_of_few_texts(name, texts.dropna())
    if is_free_text(objects_of(column)):
        return Reading(texts, "text")
    return Reading(categories, "category")


def read_dtype(column: pd.Series) -> Reading | None:
    """Return a column by its dtype, None for one of texts or objects.

    Missing values are NaN; dates and durations are days.
    """
    import pandas as pd
    from pandas.api import types

    dtype = column.dtype
    if is_time(column):
        days = pd.Series(days_of(column), index=column.index)
        return Reading(days, "number" if dtype.kind == "m" else "date")
    if isinstance(dtype, types.CategoricalDtype):
        return Reading(column, "category")
    if types.is_bool_dtype(dtype):
        return Reading(column.astype(float if column.isna().any() else bool), "boolean")
    if not is_numeric(column):
        return None
    if isinstance(dtype, np.dtype):
        return Reading(column, "number")
    # Nullable extension types become plain NumPy, with NaN for missing values.
    if types.is_float_dtype(dtype) or column.isna().any():
        return Reading(column.astype(np.float64), "number")
    return Reading(column.astype(integer_dtype(column)), "number")


def days_of_numbers(column: pd.Series, *, few: bool = False) -> pd.Series | None:
    """Return whole numbers such as 20261122 as days since 1970, None if any is no date.

    A number of this size is a date by chance in 4 % of cases: a `few` are not enough,
    unless the column is known to hold dates.
    """
    import pandas as pd

    if is_time(column) or not is_numeric(column):
        return None
    values = numbers_of(column)
    known = values[~np.isnan(values)]
    if not (known.size and _FIRST_DATE <= known.min() and known.max() <= _LAST_DATE):
        return None
    if (known % 1 != 0).any():
        return None
    if not few and len(np.unique(known)) <= _FEW_CATEGORIES:
        return None
    texts = pd.Series(known.astype(np.int64).astype(str))
    times = pd.to_datetime(texts, format="%Y%m%d", errors="coerce")
    if times.isna().any():
        return None
    days = np.full(len(column), np.nan)
    days[~np.isnan(values)] = days_of(times)
    return pd.Series(days, index=column.index)


def codes_in(texts: pd.Series) -> list[str]:
    """Return the different texts that begin with a zero, if digits of texts are codes.

    They are, like postcodes, if all have the same length or all begin with a zero.
    """
    distinct = texts.dropna().drop_duplicates()
    digits = [text for text in map(str.strip, distinct) if _DIGITS.fullmatch(text)]
    padded = [text for text in digits if text[0] == "0" and len(text) > 1]
    if 2 * len(digits) <= len(distinct):
        return []
    alike = len({*map(len, digits)}) == 1 or len(padded) == len(digits)
    return padded if alike else []


def integer_dtype(values: Any) -> type[np.integer]:
    """Return int64, or uint64 for numbers that would overflow it."""
    large = values.dtype.kind == "u" and int(values.max()) > np.iinfo(np.int64).max
    return np.uint64 if large else np.int64


def categories_of(column: pd.Series) -> pd.Series | None:
    """Return texts, objects or categories as categories, None if it is impossible."""
    from pandas.api.types import is_string_dtype

    # Any dtype of objects is one of strings to pandas.
    if column.dtype != "category" and not is_string_dtype(column.dtype):
        return None
    try:
        return column.astype("category")
    except TypeError:  # lists and dicts, which cannot be hashed
        return None


def read_texts(
    name: str, column: pd.Series, form: TableFormat, *, all_of_them: bool = False
) -> Reading:
    """Read a column of texts: as truths, dates or numbers, if most of them are such.

    Others are missing values then, unless they may be codes or categories, and unless
    `all_of_them` have to be read.
    """
    import pandas

    texts = as_texts(column)
    asked = name in form.numeric
    n_present = int(texts.notna().sum())
    if not (asked or all_of_them) and codes_in(texts):
        if form.date_format is not None:
            days = days_of_texts(texts, date_format=form.date_format)
            if not np.isnan(days[texts.notna()]).any():
                return Reading(pandas.Series(days, index=column.index), "date")
        return Reading(column, "category")
    booleans = None if asked else truths(texts)
    if booleans is not None:
        known = bool(booleans.notna().all())
        return Reading(booleans.astype(bool) if known else booleans, "boolean")
    numbers, unit = numbers_of_texts(texts, form.decimal, form.thousands)
    n_numbers = int(numbers.notna().sum())
    distinct = texts[numbers.isna()].dropna().drop_duplicates()
    if asked and not n_numbers and n_present:
        raise DataFileError(
            f"column {name!r} cannot be numeric, as it contains no number: "
            f"{cell(column, np.flatnonzero(column.notna()))}"
        )
    are_placeholders = all(map(is_placeholder, distinct))
    if n_numbers and not (are_placeholders or all_of_them):
        check_format(name, distinct)
    many = numbers.nunique() > _FEW_CATEGORIES
    are_codes = sum(_CODE.match(text.strip()) is not None for text in distinct)
    may_be_missing = are_placeholders or (many and 2 * are_codes < len(distinct))
    is_most = 2 * n_numbers > n_present and may_be_missing and not all_of_them
    if asked or is_most or n_numbers == n_present > 0:
        n_odd = int(texts.isin(distinct).sum())
        n_bare = 0
        if unit:
            units = units_of_texts(texts, form.decimal, form.thousands)
            n_bare = int((units == "").sum())
        return Reading(numbers, "number", unit, tuple(distinct), n_odd, n_bare)
    days = days_of_texts(texts, form.dayfirst, form.date_format)
    is_odd = np.isnan(days) & texts.notna().to_numpy()
    distinct = texts[is_odd].drop_duplicates()
    if 2 * int(is_odd.sum()) < n_present:
        values = pandas.Series(days, index=column.index)
        return Reading(values, "date", "", tuple(distinct), int(is_odd.sum()))
    return Reading(column, "category")


def check_format(name: str, column: pd.Series, subject: str = "column") -> None:
    """Raise for texts that are numbers or dates in a format that has to be named."""
    texts = as_texts(column).dropna().drop_duplicates()
    numbers = numbers_of_texts(texts)[0]
    others = [_UNIT.sub("", text.strip()) for text in texts[numbers.isna()]]
    categorical = f"--categorical {shlex.quote(name)} reads it as categories"
    for pattern, described, advice in _FORMATS:
        alike = [text for text in others if pattern.match(text)]
        if alike and len(alike) >= len(others) / 2:
            raise DataFileError(
                f"{subject} {name!r} holds {described} such as {alike[0]!r}: {advice}; "
                + categorical
            )
    if date := example_of_ambiguous_dates(texts):
        raise DataFileError(
            f"{subject} {name!r} holds dates such as {date!r}: say --dayfirst or "
            "--monthfirst (in Python TableFormat(dayfirst=True or False)), or write "
            f"them as 2026-11-22; {categorical}"
        )


def _warn_of_few_texts(name: str, values: pd.Series) -> None:
    """Warn that texts in few cells make categories of a column of numbers."""
    texts = values[numbers_of_texts(values)[0].isna()]
    if len(texts) <= _FEW_TEXTS * len(values):
        warn(
            f"column {name!r} holds numbers in {len(values) - len(texts):,} of "
            f"{len(values):,} cells, and texts in {len(texts):,} "
            f"({shown_texts(texts.unique())}): it is read as categories. On the "
            f"command line, --numeric {shlex.quote(name)} reads its texts as missing "
            f"values; --categorical {shlex.quote(name)} reads it so without a warning.",
            UserWarning,
        )


def is_placeholder(text: str) -> bool:
    """Return whether a text stands for a missing number."""
    return text.strip().casefold() in _PLACEHOLDERS


def as_texts(column: pd.Series) -> pd.Series:
    """Return the values of a column as text files write them, missing ones as NaN.

    Whole floats, which an integer column with missing values becomes, are integers.
    """
    from pandas.api.types import infer_dtype

    values = column.astype(object)
    if infer_dtype(values, skipna=True) == "string":
        return values
    return values.map(_text, na_action="ignore").astype(object)


def _text(value: Any) -> str:
    is_number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if is_number and float(value).is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def shown_texts(texts: Collection[str]) -> str:
    """Return the first texts in quotes."""
    shown = ", ".join(map(repr, list(texts)[:_MAX_SHOWN]))
    return shown + ", ..." * (len(texts) > _MAX_SHOWN)


def truths(texts: pd.Series) -> pd.Series | None:
    """Return texts that are all true or false as 1 and 0, or None."""
    words = {text: text.strip().casefold() for text in texts.dropna().unique()}
    if not words or not {*words.values()} <= {"true", "false"}:
        return None
    known = {text: float(word == "true") for text, word in words.items()}
    return texts.map(known).astype(float)


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
    if many and all(isinstance(value, str) for value in values if value is not None):
        import pandas as pd

        if codes_in(pd.Series(values)):
            return n
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
