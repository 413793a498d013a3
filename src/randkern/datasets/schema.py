"""How the columns of a table were read, so that others are read alike."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._tables import is_numeric, is_time
from randkern._warnings import warn
from randkern.data.columns import (
    Kind,
    Reading,
    as_texts,
    days_of_numbers,
    is_placeholder,
    read_dtype,
    shown_texts,
    truths,
    with_known_types,
)
from randkern.data.table_format import TableFormat
from randkern.data.written import check_dates, days_of_texts, numbers_of_texts
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd


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
        The share of rows whose value is missing, of columns that lack any.
    units : dict of str to str
        Units of columns of numbers, such as kg or $.
    """

    kinds: dict[str, Kind]
    form: TableFormat = field(default_factory=TableFormat)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing_shares: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, reading: Reading) -> None:
        """Add a column that has been read."""
        self.kinds[name] = reading.kind
        if reading.odd:
            self.missing[name] = reading.odd
        if reading.unit:
            self.units[name] = reading.unit

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
            if self.missing_shares.get(name) == 1:
                typed[name] = self._of_empty(name, column)
            elif kind in ("category", "text"):
                typed[name] = as_texts(column)
            elif kind == "date" and not is_time(column):
                typed[name] = self._days(name, column)
            else:
                reading = read_dtype(column)
                if reading is None or reading.kind == "category":
                    typed[name] = self._numbers(name, column)
                else:
                    typed[name] = reading.values
        return typed

    def _of_empty(self, name: str, column: "pd.Series") -> float:
        """Return the value of a column that held none when the model was fitted."""
        if column.notna().any():
            warn(
                f"column {name!r} was empty when the model was fitted, and is ignored",
                UserWarning,
            )
        return np.nan

    def _days(self, name: str, column: "pd.Series") -> Any:
        if column.notna().any() and is_numeric(column):
            if (known := days_of_numbers(column, few=True)) is not None:
                return known
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
