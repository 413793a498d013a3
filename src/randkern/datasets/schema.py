"""How the columns of files are read: as asked for, and as at the fit of a model."""

import difflib
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from randkern._cells import cell
from randkern._tables import days_of, is_numeric, is_time
from randkern._warnings import warn
from randkern.data.columns import with_known_types
from randkern.data.written import (
    check_dates,
    days_of_texts,
    example_of_ambiguous_dates,
    numbers_of_texts,
)
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "text"]

# Texts that stand for missing numbers, in addition to those of pandas (an empty
# field, NA, NaN, None, null, n/a, ...), in lower case.
_PLACEHOLDERS = frozenset(
    {
        "?",
        "-",
        "--",
        "---",
        ".",
        "..",
        "...",
        "*",
        "n.a.",
        "n.a",
        "na",
        "nil",
        "none",
        "missing",
        "unknown",
        "unk",
        "not available",
        "not applicable",
        "#value!",
        "#ref!",
        "#div/0!",
        "#num!",
        "#name?",
        "—",
        "–",  # noqa: RUF001
        "0000-00-00",
    }
)
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
_THOUSANDS_SIGNS = (",", ".", " ", "'", "’", "_")
# What is before or after the digits of an amount.
_UNIT = re.compile(r"^[$€£¥] ?|^[A-Z]{3} (?=\d)| ?[%$€£¥]$|(?<=\d) ?[^\W\d_]+$")
# Texts that are codes, not numbers that could not be read: V57, but not <0.5.
_CODE = re.compile(r"[^\W\d_]+[-. ]?\d")
# Of a column that is numeric except for some texts, so many numbers are different, or
# it may be one of categories.
_FEW_CATEGORIES = 20
# The share of texts of which a column of categories may be one of numbers.
_FEW_TEXTS = 0.05
_MAX_SHOWN = 3


@dataclass(frozen=True)
class TableFormat:
    r"""How to read the columns of a table whose values are ambiguous.

    Parameters
    ----------
    categorical : tuple of str
        Columns that are read as texts, each of which is a category: ``007`` stays so.
    numeric : tuple of str
        Columns of numbers, of which other texts are missing values.
    drop : tuple of str
        Columns to leave out.
    decimal : {".", ","}, default="."
        The decimal sign of numbers. With a comma, the fields of a ``.csv`` file may be
        separated by semicolons.
    thousands : str, optional
        What separates thousands, such as ``","`` in ``1,234``.
    dayfirst : bool, optional
        Whether dates such as ``03/04/2026`` begin with the day or with the month. By
        default other dates of the column tell, such as ``13/04/2026``; if none does,
        they are refused.
    strip : bool, default=False
        Remove spaces around names of columns and around texts.
    text : tuple of str
        Columns of free text, whose words are read.
    date_format : str, optional
        The format of dates, such as ``"%d.%m.%y"``, if it is none of the usual ones.
    sep, header, skiprows, encoding, na_values
        How a text file is divided into cells, with the names and the meaning of
        :func:`pandas.read_csv`. By default `sep` is the sign that divides most
        lines into as many fields, and the encoding is UTF-8, or UTF-16 if the file
        begins with its byte order mark; `header` and `skiprows` also apply to
        spreadsheets, and `na_values` to all files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from randkern.datasets import TableFormat, read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "prices.csv")
    ...     _ = path.write_text("code;price\n007;1.234,5\n")
    ...     read_table(path, TableFormat(("code",), decimal=",", thousands="."))
      code   price
    0  007  1234.5
    """

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    decimal: str = "."
    thousands: str | None = None
    dayfirst: bool | None = None
    strip: bool = False
    text: tuple[str, ...] = ()
    date_format: str | None = None
    sep: str | None = None
    header: int | None = 0
    skiprows: int = 0
    encoding: str | None = None
    na_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}")
        if self.thousands not in (None, *_THOUSANDS_SIGNS):
            raise ValueError(
                f"thousands must be one of {', '.join(map(repr, _THOUSANDS_SIGNS))}, "
                f"got {self.thousands!r}"
            )
        if self.thousands == self.decimal:
            raise ValueError(
                f"decimal and thousands are both {self.decimal!r}; they must differ"
            )
        names = [*self.categorical, *self.numeric, *self.drop, *self.text]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"{', '.join(twice)}: named more than once in categorical, numeric, "
                "drop and text"
            )

    def check_names(self, columns: Collection[str], source: str) -> None:
        """Raise for a column that the table does not have."""
        for name in (*self.categorical, *self.numeric, *self.drop, *self.text):
            if name not in columns:
                close = difflib.get_close_matches(name, columns, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise ValueError(f"{source}: no column {name!r}{hint}")


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table that a model was fitted to, for files that it predicts.

    Attributes
    ----------
    kinds : dict of str to {"number", "boolean", "category", "date", "text"}
    form : TableFormat
    missing : dict of str to tuple of str
        Texts of columns of numbers that were read as missing values.
    missing_shares : dict of str to float
        The share of rows of each column whose value is missing.
    units : dict of str to str
        Units of columns of numbers, such as kg or $.
    """

    kinds: dict[str, Kind]
    form: TableFormat = field(default_factory=TableFormat)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing_shares: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The columns that are read as texts."""
        texts = ("category", "text")
        return [name for name, kind in self.kinds.items() if kind in texts]

    @property
    def free_texts(self) -> list[str]:
        """The columns of free text, whose words are read."""
        return [name for name, kind in self.kinds.items() if kind == "text"]

    @property
    def dates(self) -> list[str]:
        """The columns of dates, which become days."""
        return [name for name, kind in self.kinds.items() if kind == "date"]

    def placeholders(self, name: str) -> str:
        """Return the texts of a column that were read as missing, such as ``'?'``."""
        texts = self.missing.get(name, ())
        return shown_texts(texts)

    def apply(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return a table with its columns as at the fit.

        Values that are no numbers, in a column of numbers, are left to the model, whose
        error names them; those that are no dates raise a DataFileError.
        """
        frame = with_known_types(frame)
        typed = frame.drop(columns=list(self.form.drop), errors="ignore")
        for name, kind in self.kinds.items():
            if name not in frame.columns:
                continue
            column = frame[name]
            if kind in ("category", "text"):
                typed[name] = as_texts(column)
            elif is_time(column):
                typed[name] = days_of(column)
            elif kind == "date":
                typed[name] = self._days(name, column)
            elif not is_numeric(column):
                typed[name] = self._numbers(name, column)
        return typed

    def _days(self, name: str, column: "pd.Series") -> Any:
        if column.notna().any() and is_numeric(column):
            raise DataFileError(
                f"column {name!r} had dates when the model was fitted, but has numbers "
                "now; write dates as 2026-11-22"
            )
        texts = as_texts(column)
        days = days_of_texts(texts, self.form.dayfirst, self.form.date_format)
        if not self._missing(name, texts, np.isnan(days)):
            check_dates(name, column, days)
        return days

    def _numbers(self, name: str, column: "pd.Series") -> "pd.Series":
        """Return a column of texts as numbers; unchanged if some are none."""
        texts = as_texts(column)
        numbers = truths(texts)
        if numbers is None:
            form = self.form
            known = self.units.get(name, "")
            numbers, unit = numbers_of_texts(
                texts, form.decimal, form.thousands, known_unit=known
            )
            if unit not in ("", known):
                raise DataFileError(
                    f"column {name!r} is in {unit!r}, but it "
                    + (f"was in {known!r}" if known else "had no unit")
                    + " when the model was fitted; convert it"
                )
        return numbers if self._missing(name, texts, numbers.isna()) else column

    def _missing(self, name: str, texts: "pd.Series", is_odd: Any) -> bool:
        """Return whether the values that could not be read are missing ones.

        They are, if they are placeholders, or if there were others at the fit.
        """
        known = {*self.missing.get(name, ())}
        odd = texts[is_odd & texts.notna()].drop_duplicates()
        unknown = [text for text in odd if text not in known]
        if all(map(is_placeholder, known)) and not all(map(is_placeholder, unknown)):
            return False
        if unknown:
            warn(
                f"column {name!r}: {shown_texts(unknown)} is read as missing",
                UserWarning,
            )
        return True


def is_placeholder(text: str) -> bool:
    """Return whether a text stands for a missing number."""
    return text.strip().casefold() in _PLACEHOLDERS


def as_texts(column: "pd.Series") -> "pd.Series":
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


def truths(texts: "pd.Series") -> "pd.Series | None":
    """Return texts that are all true or false as 1 and 0, or None."""
    words = {text: text.strip().casefold() for text in texts.dropna().unique()}
    if not words or not {*words.values()} <= {"true", "false"}:
        return None
    known = {text: float(word == "true") for text, word in words.items()}
    return texts.map(known).astype(float)


@dataclass(frozen=True)
class Reading:
    """A column of texts as numbers, days or categories.

    `odd` are the texts that are read as missing, and `n_odd` the rows that hold them.
    """

    values: "pd.Series"
    kind: Kind
    unit: str = ""
    odd: tuple[str, ...] = ()
    n_odd: int = 0

    def warn(self, name: str, *, asked: bool) -> None:
        """Warn of the texts that are read as missing."""
        if self.odd:
            advice = f"; --categorical {shlex.quote(name)} reads it as categories"
            what = "numeric" if self.kind == "number" else "of dates"
            more = len(self.odd) - _MAX_SHOWN
            warn(
                f"column {name!r} is {what}, except for "
                f"{', '.join(map(repr, self.odd[:_MAX_SHOWN]))}"
                + f" and {more} other texts" * (more > 0)
                + f" in {self.n_odd:,} rows, read as missing"
                + advice * (not asked),
                UserWarning,
            )


def read_texts(
    name: str, column: "pd.Series", form: TableFormat, *, all_of_them: bool = False
) -> Reading:
    """Read a column of texts: as truths, dates or numbers, if most of them are such.

    Others are missing values then, unless they may be codes or categories, and unless
    `all_of_them` have to be read.
    """
    import pandas

    texts = as_texts(column)
    asked = name in form.numeric
    n_present = int(texts.notna().sum())
    booleans = None if asked else truths(texts)
    if booleans is not None:
        return Reading(booleans, "boolean")
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
    if asked or (2 * n_numbers > n_present and (may_be_missing and not all_of_them)):
        odd = texts.isin(distinct)
        return Reading(numbers, "number", unit, tuple(distinct), int(odd.sum()))
    if n_numbers == n_present > 0:
        return Reading(numbers, "number", unit)
    days = days_of_texts(texts, form.dayfirst, form.date_format)
    is_odd = np.isnan(days) & texts.notna().to_numpy()
    distinct = texts[is_odd].drop_duplicates()
    if 2 * int(is_odd.sum()) < n_present:
        values = pandas.Series(days, index=column.index)
        return Reading(values, "date", "", tuple(distinct), int(is_odd.sum()))
    return Reading(column, "category")


def check_format(name: str, column: "pd.Series", subject: str = "column") -> None:
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


def warn_of_few_texts(name: str, values: "pd.Series") -> None:
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
