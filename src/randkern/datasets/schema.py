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
from randkern.data.dates import WRITTEN_DATE, days_of_texts
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
    }
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Other formats: of numbers whose thousands are separated (which a decimal comma may
# resemble), of numbers with a decimal comma, and of dates; and what to say.
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
    (
        WRITTEN_DATE,
        "dates",
        "say --dayfirst or --monthfirst (in Python TableFormat(dayfirst=True or "
        "False)), or write them as 2026-11-22",
    ),
)
# Amounts such as $326, 1,200 € and 12.5%.
_AMOUNT = re.compile(
    r"[+-]?[$€£¥] ?[+-]?\d[\d.,'’ ]*|[+-]?\d[\d.,'’ ]*[$€£¥%]", re.ASCII
)
_THOUSANDS_SIGNS = (",", ".", " ", "'", "’", "_")
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
        Whether dates such as ``03/04/2026`` begin with the day or with the month.
        Without it they are refused; dates such as ``2026-04-03`` are always read.
    strip : bool, default=False
        Remove spaces around names of columns and around texts.
    text : tuple of str
        Columns of free text, whose words are read.

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
    """

    kinds: dict[str, Kind]
    form: TableFormat = field(default_factory=TableFormat)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing_shares: dict[str, float] = field(default_factory=dict)

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
        shown = ", ".join(map(repr, texts[:_MAX_SHOWN]))
        return shown + ", ..." * (len(texts) > _MAX_SHOWN)

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
            elif kind == "date":
                typed[name] = self._days(name, column)
            elif is_time(column):
                typed[name] = days_of(column)
            elif not is_numeric(column):
                typed[name] = self._numbers(name, column)
        return typed

    def _days(self, name: str, column: "pd.Series") -> Any:
        if is_time(column):
            return days_of(column)
        if column.notna().any() and is_numeric(column):
            raise DataFileError(
                f"column {name!r} had dates when the model was fitted, but has numbers "
                "now; write dates as 2026-11-22"
            )
        return days_of_texts(name, column, self.form.dayfirst, expect_dates=True)

    def _numbers(self, name: str, column: "pd.Series") -> "pd.Series":
        """Return a column of texts as numbers; unchanged if some are none."""
        import pandas

        words = {"true": "1", "false": "0"}
        texts = as_texts(column).map(
            lambda text: words.get(text.casefold(), text), na_action="ignore"
        )
        known = {*self.missing.get(name, ())}
        numbers = pandas.to_numeric(texts, errors="coerce")
        odd = texts[numbers.isna() & texts.notna()].drop_duplicates()
        unknown = [text for text in odd if text not in known]
        if any(not is_placeholder(text) for text in unknown):
            return column
        if unknown:
            warn(
                f"column {name!r}: {', '.join(map(repr, unknown[:_MAX_SHOWN]))} is "
                "read as a missing number",
                UserWarning,
            )
        return numbers


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


def numbers_with_placeholders(
    name: str, column: "pd.Series", *, asked: bool
) -> "tuple[pd.Series, tuple[str, ...]] | None":
    """Return a column of texts as numbers, and texts that are read as missing.

    None if it is no column of numbers: other texts than placeholders are among them
    (unless it was `asked` for), or fewer numbers than placeholders.
    """
    import pandas

    texts = as_texts(column)
    distinct = texts.dropna().drop_duplicates()
    parsed = pandas.to_numeric(distinct, errors="coerce")
    different = tuple(distinct[parsed.isna()])
    if not asked and not all(map(is_placeholder, different)):
        return None
    known = dict(zip(distinct, parsed, strict=True))
    numbers = pandas.to_numeric(texts.map(known, na_action="ignore"))
    odd = texts[numbers.isna() & texts.notna()]
    n_numbers = int(numbers.notna().sum())
    if asked and not n_numbers and len(odd):
        raise DataFileError(
            f"column {name!r} cannot be numeric, as it contains no number: "
            f"{cell(column, np.flatnonzero(column.notna()))}"
        )
    if not asked and len(odd) >= n_numbers:
        return None
    if different:
        shown = ", ".join(map(repr, different[:_MAX_SHOWN]))
        more = f" and {len(different) - _MAX_SHOWN} other texts" * (
            len(different) > _MAX_SHOWN
        )
        advice = (
            ""
            if asked
            else f"; --categorical {shlex.quote(name)} reads it as categories"
        )
        warn(
            f"column {name!r} is numeric, except for {shown}{more} in {len(odd):,} "
            f"rows, read as missing{advice}",
            UserWarning,
        )
    return numbers, different


def example_of_amounts(column: "pd.Series") -> str | None:
    """Return an amount such as ``'$326'`` if half of the texts are amounts with a sign.

    None if they are not.
    """
    texts = [text.strip() for text in as_texts(column).dropna().drop_duplicates()]
    amounts = [text for text in texts if _AMOUNT.fullmatch(text)]
    return amounts[0] if amounts and len(amounts) >= len(texts) / 2 else None


def check_format(name: str, column: "pd.Series", subject: str = "column") -> None:
    """Raise for texts that are numbers or dates in a format that has to be named."""
    texts = as_texts(column).dropna().drop_duplicates()
    others = [text for text in map(str.strip, texts) if not _NUMBER.fullmatch(text)]
    for pattern, described, advice in _FORMATS:
        alike = [text for text in others if pattern.match(text)]
        if alike and len(alike) >= len(others) / 2:
            raise DataFileError(
                f"{subject} {name!r} holds {described} such as {alike[0]!r}: {advice}; "
                f"--categorical {shlex.quote(name)} reads it as categories"
            )
