"""Numbers and dates as people write them: ``12 kg``, ``$3.2M``, ``7-Jul-26``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from randkern._cells import cell
from randkern._extras import import_extra
from randkern._tables import days_of
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

# Minus signs, and spaces of several widths, as typesetters write them.
_PLAIN = str.maketrans("−–\u00a0\u2007\u2009\u202f", "--    ")  # noqa: RUF001
_DIGITS = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# A number between a currency and a unit, of which there is at most one.
_AMOUNT = re.compile(
    r"(?P<sign>[+-]?) ?(?P<before>[$€£¥]|[A-Z]{3} )? ?"
    rf"(?P<digits>[+-]?{_DIGITS}) ?"
    r"(?P<after>[%‰$€£¥]|°?[^\W\d_]{1,8}[²³]?(?:/[^\W\d_]{1,8}[²³]?)?)?"
)
_FACTORS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun"]
_MONTHS += ["jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = rf"(?P<name>{'|'.join(_MONTHS)})[a-z]*\.?"
_TIME = r"(?P<time>[T ,]+\d{1,2}(:\d\d.*)?)?"
_DATES = [
    re.compile(pattern + _TIME, re.IGNORECASE)
    for pattern in (
        r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})[-/.](?P<second>\d{1,2})[-/.](?P<year>\d{4}|\d\d)",
        rf"(?:[a-z]+,? )?(?P<day>\d\d?)[-/. ]*{_MONTH}[-/., ]*(?P<year>\d{{4}}|\d\d)",
        rf"(?:[a-z]+,? )?{_MONTH} (?P<day>\d{{1,2}}),? (?P<year>\d{{4}})",
    )
]
# Years of two digits: 69 is 1969, and 68 is 2068, as in POSIX.
_CENTURY = 69
_START = datetime(1970, 1, 1, tzinfo=UTC)


def numbers_of_texts(
    texts: pd.Series,
    decimal: str = ".",
    thousands: str | None = None,
    known_unit: str | None = None,
) -> tuple[pd.Series, str]:
    """Return a column of texts as numbers, and their unit, ``""`` if they have none.

    Texts that are no numbers are NaN, and so are those of all units but the one of the
    most texts. K, M and B beside each other, or beside plain numbers, are thousands,
    millions and billions; so they are alone if the column is known to have no unit
    (`known_unit` is empty).
    """
    import pandas

    distinct = texts.dropna().drop_duplicates()
    amounts = {text: _amount(text, decimal, thousands) for text in distinct}
    units = Counter(amount[1] for amount in amounts.values() if amount is not None)
    factors = {"": 1.0}
    unit = ""
    are_factors = len(units) > 1 if known_unit is None else not known_unit
    if are_factors and units.keys() <= {"", *_FACTORS}:
        factors |= _FACTORS
    elif units.keys() - {""}:
        unit = max(units.keys() - {""}, key=units.__getitem__)
        factors[unit] = 1.0
    known = {
        text: amount[0] * factors[amount[1]]
        for text, amount in amounts.items()
        if amount is not None and amount[1] in factors
    }
    return pandas.to_numeric(texts.map(known), errors="coerce").astype(float), unit


def units_of_texts(texts: pd.Series, decimal: str, thousands: str | None) -> pd.Series:
    """Return the units of numbers, ``""`` without one, NaN for other texts."""

    def unit(text: str) -> str | float:
        amount = _amount(text, decimal, thousands)
        return np.nan if amount is None else amount[1]

    return texts.map(unit, na_action="ignore")


def _amount(text: str, decimal: str, thousands: str | None) -> tuple[float, str] | None:
    """Return a number and its unit or currency, None for other texts."""
    text = text.strip().translate(_PLAIN)
    if thousands is not None:
        text = text.replace(thousands, "")
    if decimal != ".":
        text = text.replace(decimal, ".")
    try:
        if "_" not in text:  # 17_204 is a number in Python alone
            return float(text), ""
    except ValueError:
        pass
    match = _AMOUNT.fullmatch(text)
    if match is None or (match["before"] and match["after"] not in (None, *_FACTORS)):
        return None
    number = float(match["sign"] + match["digits"].lstrip("+" if match["sign"] else ""))
    before = (match["before"] or "").strip()
    after = match["after"] or ""
    if before and after:  # $3.2M
        return number * _FACTORS[after], before
    return number, before or after


def days_of_texts(
    texts: pd.Series, dayfirst: bool | None = None, date_format: str | None = None
) -> np.ndarray:
    """Return texts as days since 1970, NaN for those that are no dates.

    `date_format`, as in :func:`pandas.to_datetime`, replaces the usual spellings:
    2026-11-22, 2026/11/22, 22/11/26, 22-Nov-26, 22 November 2026, Nov 22, 2026, with or
    without a time. Without `dayfirst`, the other dates of the column tell whether
    02/03/2026 begins with the day; all are NaN if they do not.
    """
    pandas = import_extra("pandas", "Reading dates", "data")
    distinct = texts.dropna().drop_duplicates().astype(object)
    if date_format is not None:
        times = pandas.to_datetime(
            distinct, format=date_format, errors="coerce", utc=True
        )
        return texts.map(dict(zip(distinct, days_of(times), strict=True))).to_numpy(
            float
        )
    matches = {
        text: match for text in distinct if (match := _match(text.strip())) is not None
    }
    if dayfirst is None:
        dayfirst = day_is_first(matches.values())
    written = {text: _iso(match, dayfirst) for text, match in matches.items()}
    iso = pandas.Series(written, dtype=object).dropna()
    if not len(iso):
        return np.full(len(texts), np.nan)
    times = pandas.to_datetime(iso, format="ISO8601", errors="coerce", utc=True)
    for at in np.flatnonzero(times.isna()):  # 3:30 PM, or 14:05 EST
        times.iloc[at] = pandas.to_datetime(iso.iloc[at], errors="coerce", utc=True)
    days = dict(zip(iso.index, days_of(times), strict=True))
    for text in times.index[times.isna()]:
        days[text] = _day(iso[text])
    return texts.map(days).to_numpy(dtype=float)


def example_of_ambiguous_dates(texts: pd.Series) -> str | None:
    """Return a date that begins with the day or the month, and nothing tells which.

    None if there is none, or if most texts are no dates.
    """
    distinct = texts.dropna().drop_duplicates()
    matches = {text: match for text in distinct if (match := _match(text.strip()))}
    if 2 * len(matches) <= len(distinct) or day_is_first(matches.values()) is not None:
        return None
    return next(text for text, match in matches.items() if "first" in match.groupdict())


def day_is_first(matches: Iterable[re.Match[str]]) -> bool | None:
    """Return whether dates of numbers alone begin with the day, None if unknown."""
    pairs = {
        (int(match["first"]), int(match["second"]))
        for match in matches
        if "first" in match.groupdict()
    }
    orders = [
        all(day <= 31 and month <= 12 for day, month in pairs),
        all(day <= 31 and month <= 12 for month, day in pairs),
    ]
    if all(orders) and any(day != month for day, month in pairs):
        return None
    return orders[0]


def _match(text: str) -> re.Match[str] | None:
    if not any(digit in text for digit in "0123456789") or len(text) > 50:
        return None
    return next((m for date in _DATES if (m := date.fullmatch(text))), None)


def _iso(match: re.Match[str], dayfirst: bool | None) -> str | None:
    """Return a date as 2026-11-22, with its time; None if its order is unknown."""
    found = match.groupdict()
    year = int(found["year"])
    if len(found["year"]) == 2:
        year += 1900 if year >= _CENTURY else 2000
    if "first" in found:
        if dayfirst is None:
            return None
        order = ("first", "second") if dayfirst else ("second", "first")
        day, month = (int(found[name]) for name in order)
    else:
        day = int(found["day"])
        name = found.get("name")
        month = int(found["month"]) if name is None else 1 + _MONTHS.index(name.lower())
    time = (found["time"] or "").lstrip("T ,")
    if time[1:2] in (":", "") and time:
        time = f"0{time}"
    return f"{year:04}-{month:02}-{day:02}" + (f"T{time}" if time else "")


def _day(text: str) -> float:
    """Return the days since 1970 of a date beyond pandas 2's range, NaN if invalid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _START
    return since / timedelta(days=1)


def check_dates(name: object, column: pd.Series, days: np.ndarray) -> None:
    """Raise for values of a column of dates that are none, naming the first row."""
    odd = np.flatnonzero(np.isnan(days) & column.notna().to_numpy())
    if len(odd):
        raise DataFileError(
            f"column {name!r} has dates, except in {len(odd):,} rows: "
            f"{cell(column, odd)}; fix or clear these values"
        )
