"""Dates in columns of tables, as days since 1970."""

import re
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from randkern._cells import cell
from randkern._extras import import_extra
from randkern._tables import days_of, is_time
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

_ISO = re.compile(r"\d{4}-\d\d-\d\d")
# Day and month, in either order, then the year.
WRITTEN_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})(?!\d)")
_START = datetime(1970, 1, 1, tzinfo=UTC)


def dates_as_days(
    frame: "pd.DataFrame",
    keep: Collection[str] = (),
    *,
    dayfirst: bool | None = None,
) -> "pd.DataFrame":
    """Return a table with dates as days since 1970 and durations as days.

    Text files hold dates as strings: a column holds dates if all of its values look
    like 2026-11-22, with or without a time; or, if `dayfirst` is True or False, like
    22/11/2026 or 11/22/2026.

    Columns in `keep` are unchanged. A string column of which most values are dates,
    but not all, raises a DataFileError that names a row.
    """
    pandas = import_extra("pandas", "Reading dates", "data")
    converted = {}
    for name in frame.columns:
        column = frame[name]
        if name in keep or pandas.api.types.is_numeric_dtype(column.dtype):
            continue
        if is_time(column):
            converted[name] = days_of(column)
        elif _are_mostly_dates(column, dayfirst):
            days = days_of_texts(name, column, dayfirst)
            if days is not None:
                converted[name] = days
    frame = frame.copy(deep=False) if converted else frame
    for name, days in converted.items():
        frame[name] = days
    return frame


def _are_mostly_dates(column: "pd.Series", dayfirst: bool | None) -> bool:
    counts = Counter(map(str, column.dropna().tolist()))
    n_dates = 0
    for text, n in counts.items():
        written = dayfirst is not None and WRITTEN_DATE.match(text) is not None
        n_dates += n * (written or _ISO.match(text) is not None)
    return 0 < n_dates and n_dates >= counts.total() / 2


def days_of_texts(
    name: str,
    column: "pd.Series",
    dayfirst: bool | None = None,
    *,
    expect_dates: bool = False,
) -> np.ndarray | None:
    """Return the days of a column of dates in texts.

    Values that are not dates raise a DataFileError that names a row. If more than half
    of the values are not (despite how they begin), return None, unless the column is
    known to hold dates (`expect_dates`).
    """
    import pandas

    texts = column.astype(object)
    if dayfirst is not None:
        texts = texts.map(lambda text: _as_iso(str(text), dayfirst), na_action="ignore")
    times = pandas.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
    days = days_of(times)
    for row in np.flatnonzero(times.isna() & column.notna()):
        days[row] = _day(str(texts.iloc[row]))
    odd = np.flatnonzero(np.isnan(days) & column.notna())
    if not expect_dates and len(odd) > column.notna().sum() / 2:
        return None
    if len(odd):
        raise DataFileError(
            f"column {name!r} has dates, except in {len(odd):,} rows: "
            f"{cell(column, odd)}; fix or clear these values"
        )
    return days


def _as_iso(text: str, dayfirst: bool) -> str:
    """Return a date such as 22/11/2026 as 2026-11-22; other texts are unchanged."""
    match = WRITTEN_DATE.match(text)
    if match is None:
        return text
    first, second, year = match.groups()
    day, month = (first, second) if dayfirst else (second, first)
    return f"{year}-{int(month):02}-{int(day):02}{text[match.end() :]}"


def _day(text: str) -> float:
    """Return the days since 1970 of a date beyond pandas 2's range, NaN if invalid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _START
    return since / timedelta(days=1)
