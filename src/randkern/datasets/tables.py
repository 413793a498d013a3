"""Tables in CSV, TSV and Parquet files."""

import csv
import io
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from randkern._extras import import_extra
from randkern.datasets.files import guess_content, open_data
from randkern.datasets.frames import dataset_from_frame
from randkern.datasets.record import Dataset
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
TABLE_SUFFIXES = (*_SEPARATORS, ".parquet")


def load_table(path: Path, *, target: str | None, task: str | None = None) -> Dataset:
    """Load a table file.

    Parameters
    ----------
    path : Path
        ``.csv``, ``.csv.gz``, ``.tsv``, ``.tsv.gz`` or ``.parquet``, the first
        row of text files being the column names. Text is UTF-8; gzip is
        recognised by content. Missing values are pandas' defaults: an empty
        field, NA, NaN, None, null, ...
    target : str
        The column to predict; every other column is a feature.
    task : {"classification", "regression"}, optional
        By default inferred, see `randkern.datasets.load_dataset`.

    Returns
    -------
    Dataset
        ``X_train`` a pandas DataFrame: numeric and boolean columns as they
        are, text columns as ``category``; no test split.

    Raises
    ------
    DataFileError
        Empty, ragged or damaged file, duplicated column names, missing target
        values, one class only.
    ValueError
        ``target`` not given or not a column (the message lists the columns).
    ImportError
        Where pandas, or for Parquet pyarrow, is not installed.
    """
    suffix = next(s for s in TABLE_SUFFIXES if path.name.lower().endswith(s))
    if suffix == ".parquet":
        frame = _read_parquet(path)
    else:
        frame = _read_text(path, _SEPARATORS[suffix])
    return dataset_from_frame(
        frame, target, name=path.name, source=str(path), task=task
    )


def _read_text(path: Path, separator: str) -> "pd.DataFrame":
    pandas = import_extra("pandas", "Reading a CSV file", "data")
    try:
        with open_data(path) as stream:
            _check_rows(path, stream, separator)
        with open_data(path) as stream:
            # index_col=False: with a trailing separator pandas would otherwise
            # take the first column for row names.
            return pandas.read_csv(
                stream,
                sep=separator,
                index_col=False,
                low_memory=False,
                encoding="utf-8-sig",
            )
    except UnicodeDecodeError as error:
        with path.open("rb") as stream:
            seen = guess_content(stream.read(32))
        raise DataFileError(
            f"{path}: not UTF-8 text{seen}: {error}; save the table as UTF-8"
        ) from error
    except (csv.Error, pandas.errors.ParserError, pandas.errors.EmptyDataError) as err:
        raise DataFileError(f"{path}: not a readable table: {err}") from err


def _check_rows(path: Path, stream: BinaryIO, separator: str) -> None:
    """Check the names and that every row has as many fields.

    pandas fills short rows with missing values and renames duplicates, both
    silently.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=separator)
    rows = (row for row in reader if row)
    header = next(rows, None)
    if header is None:
        raise DataFileError(f"{path}: empty, expected a row of column names and data")
    twice = [name for name, n in Counter(header).items() if n > 1 and name]
    if twice:
        raise DataFileError(
            f"{path}: column names there more than once: {', '.join(twice)}; give "
            f"every column its own name in the first row"
        )
    unnamed = [str(i + 1) for i, name in enumerate(header) if not name]
    n_rows = 0
    for n_rows, row in enumerate(rows, start=1):  # noqa: B007
        if len(row) != len(header):
            raise DataFileError(
                f"{path}: line {reader.line_num} has {len(row)} fields, expected "
                f"{len(header)} as in the first row; mend the line (text that holds "
                f"{separator!r} must be quoted)"
            )
    if not n_rows:
        raise DataFileError(f"{path}: no rows below the column names")
    text.detach()
    if unnamed:
        warnings.warn(
            f"{path}: column {', '.join(unnamed)} has no name and is kept as a "
            f"feature; drop it if it is an index that was written with the table",
            UserWarning,
            stacklevel=2,
        )


def _read_parquet(path: Path) -> "pd.DataFrame":
    pandas = import_extra("pandas", "Reading a Parquet file", "data")
    pyarrow = import_extra("pyarrow", "Reading a Parquet file", "data")
    parquet = import_extra("pyarrow.parquet", "Reading a Parquet file", "data")
    with open_data(path) as stream:
        head = stream.read(32)
    try:
        names = parquet.read_schema(path).names
        twice = [name for name, n in Counter(names).items() if n > 1]
        frame = None if twice else pandas.read_parquet(path, engine="pyarrow")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        seen = "" if head.startswith(b"PAR1") else guess_content(head)
        raise DataFileError(
            f"{path}: not a readable Parquet file{seen}: {error}; copy or download it "
            f"again"
        ) from error
    if frame is None:
        raise DataFileError(
            f"{path}: column names there more than once: {', '.join(twice)}; rename "
            f"them before writing the file"
        )
    frame.columns = frame.columns.map(str)
    return frame.reset_index(drop=True)
