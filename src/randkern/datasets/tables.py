"""Reads tables from text, spreadsheets, JSON lines and Parquet files."""

import codecs
import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from randkern._extras import import_extra
from randkern._warnings import warn
from randkern.data.columns import codes_in
from randkern.data.table_format import TableFormat
from randkern.datasets.files import guess_content, open_data
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
# The names of columns are looked for in so many rows below a title.
_TITLE_ROWS = 5
_PACKED = ("", ".gz", ".bz2", ".xz", ".zst")
_SHEETS = (".xlsx", ".xlsm")
TABLE_SUFFIXES = (
    tuple(
        kind + packed
        for kind in (*_SEPARATORS, *_JSON_LINES, ".parquet")
        for packed in _PACKED
    )
    + _SHEETS
)
#: What files are tables, for messages.
ENDINGS = (
    f"{', '.join((*_SEPARATORS, *_JSON_LINES))} or .parquet, also compressed "
    f"({', '.join(_PACKED[1:])}), or {_SHEETS[0]}"
)
# Texts that stand for missing values, as in pandas.read_csv.
_MISSING = {
    *("#N/A N/A", *"#N/A #NA <NA> N/A n/a NA NULL null None NaN nan".split()),
    *"-NaN -nan 1.#IND 1.#QNAN -1.#IND -1.#QNAN".split(),
}
# Signs that may separate fields, and how many bytes tell which does.
_SIGNS = (",", ";", "\t", "|")
_SAMPLE = 65_536
# Lines that tell the separator, and the byte order marks of UTF-16.
_LINES = 100
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Advice for unsupported files, by suffix.
_ADVICE = {
    ".json": "; one object per line is .jsonl (pandas: orient='records', lines=True)",
    ".txt": "; name it .csv or .tsv, after what is between its fields",
}
# First bytes of files that are not text.
_STARTS = {
    b"PAR1": ".parquet",
    b"PK\x03\x04": ".xlsx",
}


def read_table(
    path: str | Path,
    form: TableFormat | None = None,
    *,
    texts: Collection[str] = (),
    strip: bool = True,
) -> "pd.DataFrame":
    r"""Read a table from a file.

    Parameters
    ----------
    path : str or Path
        ``.csv`` and ``.tsv`` (text with the column names in the first row), ``.xlsx``
        (the first sheet), ``.jsonl`` and ``.ndjson`` (one JSON object per line),
        ``.parquet``. Each may be compressed (``.gz``, ``.bz2``, ``.xz``, ``.zst``;
        recognised by content).
        Missing values in text are pandas' defaults: an empty field, NA, NaN, None,
        null, ...
    form : TableFormat, optional
        How text files are written, and columns to read as texts, or not at all.
    texts : collection of str
        More columns to read as texts.
    strip : bool, default=True
        Remove spaces around names of columns and around texts.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    ValueError
        If the name has another suffix, or the file lacks a column to drop.
    DataFileError
        If the file is empty, ragged or damaged, or column names repeat.
    ImportError
        If pandas, or for Parquet pyarrow, is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from randkern.datasets import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "sizes.jsonl")
    ...     _ = path.write_text('{"size": 1.5, "unit": "m"}\n')
    ...     read_table(path)
       size unit
    0   1.5    m
    """
    path = Path(path)
    kind = _kind_of(path)
    form = form or TableFormat()
    texts = {*texts, *form.categorical, *form.text}
    if kind in _SEPARATORS:
        frame = _read_text(path, _SEPARATORS[kind], form, texts)
    elif kind in _JSON_LINES:
        frame = _read_json_lines(path)
    elif kind in _SHEETS:
        frame = _read_sheet(path, form)
    else:
        frame = _read_parquet(path)
    missing = {"", *form.na_values}
    if kind in _JSON_LINES:  # elsewhere pandas knows them, or the file its own
        missing |= _MISSING
    frame = _cleaned(path, frame, missing, strip=strip)
    frame = _without_numbers(frame, form.na_values)
    columns = [str(name) for name in frame.columns]
    replace(form, categorical=(), numeric=(), text=()).check_names(columns, str(path))
    return frame.drop(columns=list(form.drop))


def _without_numbers(
    frame: "pd.DataFrame", na_values: Collection[str]
) -> "pd.DataFrame":
    """Return a table in which numbers that stand for missing values are missing.

    pandas replaces those in CSV files; other files store numbers.
    """
    numbers = []
    for value in na_values:
        with suppress(ValueError):
            numbers.append(float(value))
    if numbers:
        frame = frame.copy()
        for name, column in frame.select_dtypes("number").items():
            frame[name] = column.mask(column.isin(numbers))
    return frame


def _kind_of(path: Path) -> str:
    """Return the suffix of a table's name, without that of its compression."""
    suffix = next((s for s in TABLE_SUFFIXES if path.name.lower().endswith(s)), None)
    if path.suffix.lower() in (".xls", ".ods"):
        raise ValueError(
            f"{path}: of spreadsheets, {' and '.join(_SHEETS)} are read; save it as one"
        )
    if suffix is None:
        raise ValueError(
            f"{path}: unsupported extension; expected {ENDINGS}"
            + _ADVICE.get(path.suffix.lower(), "")
        )
    return suffix[: suffix.index(".", 1)] if "." in suffix[1:] else suffix


def _read_text(
    path: Path, usual: str, form: TableFormat, texts: Collection[str]
) -> "pd.DataFrame":
    """Read a CSV file."""
    pandas = import_extra("pandas", "Reading a CSV file", "data")
    encoding = form.encoding or "utf-8-sig"
    try:
        encoding, separator = _dialect(path, usual, form)
        with open_data(path) as stream:
            _check_rows(path, stream, separator, encoding, form)
        read = partial(
            pandas.read_csv,
            sep=separator,
            header=form.header,
            skiprows=form.skiprows,
            # Without it, pandas takes the first column for row names if rows end in a
            # separator.
            index_col=False,
            low_memory=False,
            encoding=encoding,
            decimal=form.decimal,
            thousands=form.thousands,
            na_values=list(form.na_values),
        )
        with open_data(path) as stream:
            names = read(stream, nrows=0).columns
        stripped = {text.strip() for text in texts}
        types = {name: str for name in names if str(name).strip() in stripped}
        with open_data(path) as stream:
            frame = read(stream, dtype=types)
        whole = [name for name in frame.columns if _may_be_codes(frame[name], form)]
        if whole:  # 01000 is no number
            with open_data(path) as stream:
                written = read(stream, dtype=str, usecols=whole)
            codes = [name for name in whole if codes_in(written[name])]
            frame[codes] = written[codes]
    except LookupError as error:  # of an encoding
        raise ValueError(f"{error}; expected one such as utf-8 or cp1252") from error
    except UnicodeError as error:
        with path.open("rb") as stream:
            seen = guess_content(stream.read(32))
        raise DataFileError(
            f"{path}: not {encoding.removesuffix('-sig').upper()} text{seen}: {error}; "
            "save the table as UTF-8 (in Excel: CSV UTF-8), or say --encoding cp1252 "
            "or another (in Python TableFormat(encoding=...))"
        ) from error
    except (csv.Error, pandas.errors.ParserError, pandas.errors.EmptyDataError) as err:
        raise DataFileError(f"{path}: cannot be read as a table: {err}") from err
    return frame.rename(columns=str)


def _dialect(path: Path, usual: str, form: TableFormat) -> tuple[str, str]:
    """Return the encoding of a text file, and what separates its fields."""
    with open_data(path) as stream:
        sample = stream.read(_SAMPLE)
    encoding = form.encoding or "utf-8-sig"
    if form.encoding is None and sample.startswith(_UTF16):
        encoding = "utf-16"
    elif form.encoding is None and b"\0" in sample:
        seen = guess_content(sample)
        # In UTF-16, every second byte of most letters is zero.
        if not seen and 4 * sample.count(b"\0") > len(sample):
            seen = (
                "; if it is UTF-16 without a byte order mark, say --encoding utf-16-le "
                "(in Python TableFormat(encoding=...))"
            )
        raise DataFileError(f"{path}: not a text file, as it holds zero bytes{seen}")
    return encoding, form.sep or _separator(sample, encoding, usual, form)


def place_of_row(path: str | Path, row: int, form: TableFormat) -> str:
    """Return where the row of a table, the first of which is 0, is in its file."""
    path, above = Path(path), form.skiprows
    if form.header is not None:
        above += form.header + 1
    if not path.is_file():
        return f"row {row + 1:,}"
    kind = _kind_of(path)
    if kind in _SHEETS:
        return f"row {above + row + 1:,} of the sheet"
    if kind == ".parquet":
        return f"row {row + 1:,}"
    with open_data(path) as stream:
        if kind in _JSON_LINES:
            lines = (at for at, line in enumerate(stream, 1) if line.strip())
            return f"line {next(islice(lines, row, None), row + 1):,}"
        encoding, separator = _dialect(path, _SEPARATORS[kind], form)
        rows = _text_rows(stream, separator, encoding, form)
        numbers = (number for number, _ in rows)
        at = above - form.skiprows + row
        return f"line {next(islice(numbers, at, None), at + 1):,}"


def _text_rows(
    stream: BinaryIO, separator: str, encoding: str, form: TableFormat
) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not empty, also those of names, with the line of each."""
    text = io.TextIOWrapper(stream, encoding=encoding, newline="")
    for _ in range(form.skiprows):
        text.readline()
    reader = csv.reader(text, delimiter=separator)
    for row in reader:
        if row:
            yield form.skiprows + reader.line_num, row
    text.detach()


def _may_be_codes(column: "pd.Series", form: TableFormat) -> bool:
    """Return whether a column was read as whole numbers, and may have been codes."""
    if column.dtype.kind not in "iuf" or str(column.name) in form.numeric:
        return False
    values = column.to_numpy()
    return bool((np.isnan(values) | (values == np.floor(values))).all())


def _separator(sample: bytes, encoding: str, usual: str, form: TableFormat) -> str:
    """Return the sign that divides most lines into as many fields.

    Among equal ones the usual one is chosen, unless it is the decimal sign.
    """
    lines = sample.decode(encoding, "ignore").splitlines()[form.skiprows :]
    lines = [line for line in lines[:_LINES] if line.strip()]

    def preference(sign: str) -> tuple[float, bool, int]:
        widths = [len(row) for row in csv.reader(lines, delimiter=sign)]
        width, n = Counter(widths or [1]).most_common(1)[0]
        alike = n if width > 1 and widths[0] == width else 0
        return alike / max(len(widths), 1), sign == usual, width

    signs = [sign for sign in _SIGNS if sign != form.decimal]
    best = max(signs, key=preference)
    return best if preference(best)[0] else usual


def _check_rows(
    path: Path, stream: BinaryIO, separator: str, encoding: str, form: TableFormat
) -> None:
    """Check the names, and that every row has the same number of fields.

    pandas silently fills short rows with missing values and renames duplicates.
    """
    rows = _text_rows(stream, separator, encoding, form)
    header = next(islice(rows, form.header or 0, None), (0, None))[1]
    if header is None:
        raise DataFileError(f"{path}: empty, expected a row of column names and data")
    named = form.header is not None
    if named:
        advice = "give every column its own name in the first row"
        _check_unique(path, filter(None, header), advice)
    unnamed = [str(i + 1) for i, name in enumerate(header) if named and not name]
    n_rows = 0
    for n_rows, (line, row) in enumerate(rows, start=1):
        if len(row) != len(header):
            titled = len(row) > len(header) and n_rows <= _TITLE_ROWS
            raise DataFileError(
                f"{path}: line {line} has {len(row)} fields, expected "
                f"{len(header)} as in the first row; "
                + titled * "say --skiprows N to skip lines above the names, or "
                + f"fix the line (text that holds {separator!r} must be quoted)"
            )
    if not n_rows and named:
        raise DataFileError(
            f"{path} has column names, but no rows; add rows below them"
        )
    if unnamed:
        which, verb = f"column {unnamed[0]} has", "is kept as a feature"
        if len(unnamed) > 1:
            which = f"columns {', '.join(unnamed[:-1])} and {unnamed[-1]} have"
            verb = "are kept as features"
        warn(
            f"{path}: {which} no name and {verb}; drop an index that was written with "
            "the table",
            UserWarning,
        )


def _read_sheet(path: Path, form: TableFormat) -> "pd.DataFrame":
    """Read the first sheet of a spreadsheet."""
    pandas = import_extra("pandas", "Reading a spreadsheet", "data")
    import_extra("openpyxl", "Reading a spreadsheet", "data")
    with open_data(path) as stream:
        content = io.BytesIO(stream.read())
    try:
        frame = pandas.read_excel(
            content,
            engine="openpyxl",
            header=form.header,
            skiprows=form.skiprows,
            na_values=list(form.na_values),
        )
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise DataFileError(
            f"{path}: not a readable spreadsheet: {error}; save it again"
        ) from error
    if not len(frame):
        raise DataFileError(f"{path}: the first sheet has no rows; add rows to it")
    return frame.rename(columns=str)


def _check_unique(path: Path, names: Iterable[str], advice: str) -> None:
    """Raise if columns have the same name."""
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise DataFileError(
            f"{path} has duplicate column names: {', '.join(twice)}; {advice}"
        )


def _read_json_lines(path: Path) -> "pd.DataFrame":
    pandas = import_extra("pandas", "Reading a JSON file", "data")
    rows: list[dict[str, Any]] = []
    with open_data(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_int=_integer)
            except (ValueError, RecursionError) as error:
                raise DataFileError(
                    f"{path}: line {number} is not JSON ({error}); fix the line"
                ) from error
            if not isinstance(row, dict):
                raise DataFileError(
                    f"{path}: line {number} holds {row!r:.40}, expected an object "
                    'such as {"size": 1.5}'
                )
            rows.append(row)
    if not rows:
        raise DataFileError(f"{path}: empty, expected a JSON object per line")
    return pandas.DataFrame(rows)


def _integer(digits: str) -> int | float:
    """Return an integer, as a float if it has more digits than 64 bits hold."""
    return int(digits) if len(digits) < 20 else float(digits)


def _cleaned(
    path: Path, frame: "pd.DataFrame", missing: Collection[str], *, strip: bool
) -> "pd.DataFrame":
    """Return a table in which some texts are missing values.

    With `strip`, there are no spaces around names of columns and texts.
    """

    def cleaned(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        return None if text in missing else text if strip else value

    if strip:
        frame = frame.rename(columns=lambda name: str(name).strip())
        advice = "their names differ in spaces alone; rename one"
        _check_unique(path, frame.columns, advice)
    for name in frame.columns[[dtype in ("object", "str") for dtype in frame.dtypes]]:
        frame[name] = frame[name].map(cleaned)
    return frame


def guess_suffix(path: Path) -> str:
    """Return the suffix that matches the first decompressed bytes of a table."""
    with open_data(path) as stream:
        head = stream.read(65_536)
    for start, suffix in _STARTS.items():
        if head.startswith(start):
            return suffix
    line = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
    if line.startswith(b"{"):
        return _JSON_LINES[0]
    return ".tsv" if b"\t" in line and b"," not in line else ".csv"


def _read_parquet(path: Path) -> "pd.DataFrame":
    import_extra("pandas", "Reading a Parquet file", "data")
    pyarrow = import_extra("pyarrow", "Reading a Parquet file", "data")
    parquet = import_extra("pyarrow.parquet", "Reading Parquet", "data")
    source: Path | io.BytesIO = path
    with open_data(path) as stream, path.open("rb") as raw:
        head = stream.read(32)
        if raw.read(32) != head:  # the file is compressed
            source = io.BytesIO(head + stream.read())
    try:
        table = parquet.ParquetFile(source).read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        seen = "" if head.startswith(b"PAR1") else guess_content(head)
        raise DataFileError(
            f"{path}: not a readable Parquet file{seen}: {error}; copy or download it "
            "again"
        ) from error
    _check_unique(path, table.column_names, "rename them before writing the file")
    frame = table.to_pandas()
    frame.columns = frame.columns.map(str)
    return frame.reset_index(drop=True)
