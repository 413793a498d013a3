"""Options that several commands share, and their parsers."""

import csv
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..datasets import TableFormat

Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="digits, breast-cancer, mnist, fashion-mnist, cifar10, or another name "
        "that randkern.datasets knows, a file such as .csv or .parquet, or - for "
        "standard input; by default digits.",
    ),
]
File = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="The same as --data.", show_default=False),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of the data set's files."),
]
Target = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column to predict, for a file.")
]
Task = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="classification or regression, for a file; by default guessed from the "
        "target's values.",
    ),
]
Test = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Table with the test rows, in place of a quarter of --data.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that names groups of rows, such as patients: whole groups are "
        "held out, and it is not a feature.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of dates or numbers that orders the rows in time: the last rows "
        "are held out, and predicted from earlier ones.",
    ),
]
LogTarget = Annotated[
    bool,
    typer.Option(
        "--log-target",
        help="Fit the logarithm of the target, such as a price (of 1 + the target if "
        "some are 0); predictions and scores are of the target itself.",
    ),
]


def table_of(file: str | None, data: str | None) -> str:
    """Return the data that the argument or --data names, by default the digits."""
    if file and data:
        raise ValueError(
            f"got {file!r} and --data {data!r}, expected one of them; leave --data out"
        )
    return file or data or "digits"


def finite(seconds: float) -> float:
    """Return seconds, or raise if they are no number."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(
            f"expected a number of seconds, such as 60, got {seconds}."
        )
    return seconds


TimeLimit = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        callback=finite,
        help="Seconds from the start of the command to its end. Less than 15 may leave "
        "no time for figures; about 5 are needed.",
    ),
]
StudyLimit = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        callback=finite,
        help="Seconds from the start of the command after which no further fit begins; "
        "the output names what was skipped.",
    ),
]
_METRICS = "error, logloss, auc (classification), nrmse, rmse, mae, r2 (regression)"
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"One of {_METRICS}: the best is chosen by it, and it is shown.",
    ),
]
ShownMetric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"One of {_METRICS}: shown first. The fit minimises log loss or squared "
        "error whatever the metric.",
    ),
]
Kernels = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Of gaussian, laplacian, cauchy, matern[:NU], "
        "rational-quadratic[:ALPHA], periodic[:PERIOD], linear, polynomial[:DEGREE], "
        "optical[:DEGREE], "
        "softmax[:FEATURES], arc-cosine[:ORDER], categorical, compositional[:DEPTH].",
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help='Memory that a model may use, such as "8GB"; larger models are skipped.',
    ),
]


def _option(kind: Any, metavar: str, text: str, *names: str, **more: Any) -> Any:
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=text, **more)]


_Texts = list[str] | None
# The options that say how a file is read, as the fields of TableFormat.
_FORMAT = {
    "categorical": _option(
        _Texts,
        "COLUMNS",
        "Columns that hold categories though they look like numbers or dates; "
        "separated by commas, with quotes around names that hold one.",
    ),
    "numeric": _option(
        _Texts, "COLUMNS", "Columns of numbers; texts there are missing values."
    ),
    "text": _option(
        _Texts, "COLUMNS", "Columns of free text, whose words become features."
    ),
    "drop": _option(_Texts, "COLUMNS", "Columns to leave out."),
    "decimal": _option(str, "SIGN", "Decimal sign: . or a comma."),
    "thousands": _option(
        str | None, "SIGN", "What separates thousands, such as , in 1,234."
    ),
    "dayfirst": _option(
        bool | None,
        "",
        "Read dates such as 03/04/2026 with the day or the month first.",
        "--dayfirst/--monthfirst",
    ),
    "date_format": _option(
        str | None, "FORMAT", 'Format of dates, such as "%d.%m.%y".'
    ),
    "sep": _option(str | None, "SIGN", "What separates fields; by default guessed."),
    "header": _option(
        str, "ROW", "Row of the names of columns, the first is 0; or none."
    ),
    "skiprows": _option(int, "N", "Lines above the names.", min=0),
    "encoding": _option(str | None, "NAME", "Encoding of text, such as cp1252."),
    "na_values": _option(_Texts, "TEXTS", "More texts that stand for missing values."),
}
_DEFAULTS = {"decimal": ".", "header": "0", "skiprows": 0}


def reads_files(*, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Give a command the options that say how a file is read, for its argument `form`.

    Typer reads a signature, so it gets one with these options in place of `form`.
    """
    options = {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=_DEFAULTS.get(name),
        )
        for name, annotation in _FORMAT.items()
        if name not in without
    }

    def decorated(command: Any) -> Any:
        def expanded(*args: Any, **kwargs: Any) -> None:
            values = {name: kwargs.pop(name) for name in options}
            command(*args, form=_table_format(values), **kwargs)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            is_form = parameter.name == "form"
            parameters += options.values() if is_form else [parameter]
        signature: Any = expanded
        signature.__signature__ = inspect.Signature(parameters)
        expanded.__annotations__ = {each.name: each.annotation for each in parameters}
        expanded.__doc__ = command.__doc__
        expanded.__module__ = command.__module__
        return expanded

    return decorated


def _table_format(values: dict[str, Any]) -> "TableFormat":
    """Return how the options say to read a table."""
    from ..datasets import TableFormat

    header = values["header"]
    if header != "none" and not header.isdecimal():
        raise ValueError(f"--header takes the number of a row or none, got {header!r}")
    values["header"] = None if header == "none" else int(header)
    for name in ("categorical", "numeric", "text", "drop", "na_values"):
        values[name] = _names(values.get(name))
    return TableFormat(**values)


def _names(values: list[str] | None) -> tuple[str, ...]:
    """Return names separated by commas; those that hold one are quoted."""
    rows = csv.reader(values or (), skipinitialspace=True)
    return tuple(part.strip() for row in rows for part in row if part.strip())


def parse_sizes(text: str, option: str = "--n-components") -> list[int]:
    """Read comma-separated numbers, for instance of features."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal() or int(part) < 1:
            raise ValueError(
                f"{option} must be positive integers separated by commas, such as "
                f"100,1000, got {part!r}"
            )
    return [int(part) for part in parts]


def parse_alpha(text: str) -> float | None:
    """Read ``auto`` (None) or a positive number."""
    if text.strip().lower() == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError(f"--alpha takes auto or a positive number, got {text!r}")
    return value


def parse_bytes(limit: str | None) -> int | str | None:
    """Return a plain number of bytes as an int; the models parse other texts."""
    return int(limit) if limit is not None and limit.isdecimal() else limit
