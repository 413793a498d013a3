"""How the text of a table is to be read."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass

_THOUSANDS_SIGNS = (",", ".", " ", "'", "’", "_")


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
