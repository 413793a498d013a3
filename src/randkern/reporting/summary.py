"""Summary of a table's columns, with warnings about possible problems."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from randkern._tables import is_numeric
from randkern.datasets.schema import TableSchema
from randkern.plots.drawing import number
from randkern.tabular.leakage import suspected_leakage

if TYPE_CHECKING:
    import pandas as pd


_MANY_MISSING = 0.5
_RARE_CLASS = 10
#: Columns whose values are described; a page shows no more.
MAX_COLUMNS = 30


@dataclass(frozen=True)
class Column:
    """A column of a table: its kind in a :class:`TableSchema`, and its values.

    `values` tells the minimum, mean and maximum, or the most frequent categories, and
    `placeholders` the texts that were read as missing. Of many columns, only the first
    ones have these two.
    """

    name: str
    kind: str
    n_missing: int
    n_distinct: int
    values: str = ""
    placeholders: str = ""


@dataclass(frozen=True)
class Summary:
    """The columns of a table, and warnings about them, one sentence each."""

    n_rows: int
    columns: list[Column]
    warnings: list[str]
    leaks: list[str]


def summarise(
    X: pd.DataFrame,
    y: np.ndarray,
    task: str,
    schema: TableSchema | None = None,
    dependence: str | None = None,
) -> Summary:
    """Describe a table and its target.

    `leaks` are the warnings that scores on held-out rows may mislead; `schema` says how
    the table was read from a file, for instance which numbers are days of dates.
    `dependence` is ``"group"`` or ``"time"`` if rows are held out accordingly, so that
    this needs no warning.
    """
    from pandas.util import hash_pandas_object

    schema = schema or TableSchema({})
    columns = _columns(X, schema)
    # Hashes of 64 bits: two different rows of 10⁶ have equal ones once in 4·10⁷ tables.
    hashes = hash_pandas_object(X, index=False)
    # Whatever tells copies of a row apart from other rows determines their target.
    first = ~hashes.to_frame().assign(target=np.asarray(y)).duplicated().to_numpy()
    known = X[first], np.asarray(y)[first]
    suspicions = suspected_leakage(*known, task, dates=schema.dates)
    suspicions = [item for item in suspicions if item.kind != dependence]
    leaks = [suspicion.message for suspicion in suspicions]
    determining = {
        name
        for suspicion in suspicions
        if suspicion.kind == "target"
        for name in suspicion.columns
    }
    n_repeated = int(hashes.duplicated().sum())
    others = _warnings(X, y, task, columns, determining, n_repeated)
    return Summary(len(X), columns, [*leaks, *others], leaks)


def _columns(X: pd.DataFrame, schema: TableSchema) -> list[Column]:
    """Return the columns of a table; the values of the first ones are described."""
    missing = X.isna().sum().tolist()
    distinct = X.nunique().tolist()
    columns = []
    for at, (label, values) in enumerate(X.items()):
        name = str(label)
        kind = str(schema.kinds.get(name, "number"))
        if kind != "text" and not is_numeric(values):
            kind = "category"
        elif name not in schema.kinds and values.dtype == bool:
            kind = "boolean"
        known: tuple[str, ...] = ()
        if at < MAX_COLUMNS:
            known = (_described(values, kind), schema.placeholders(name))
        columns.append(Column(name, kind, missing[at], distinct[at], *known))
    return columns


def _described(values: pd.Series, kind: str) -> str:
    """Return the minimum, mean and maximum, or the most frequent categories."""
    if kind == "text":
        words = values.dropna().astype(str).str.split().str.len()
        return f"{words.mean():.0f} words on average"
    if kind in ("date", "number") and values.notna().any():
        numbers = values.min(), values.mean(), values.max()
        if kind == "date":
            return " / ".join(map(str, np.floor(numbers).astype("M8[D]")))
        return " / ".join(_rounded(value, numbers) for value in numbers)
    counts = values.value_counts(normalize=True).head(3)
    return ", ".join(f"{value} ({share:.0%})" for value, share in counts.items())


def _rounded(value: float, numbers: Sequence[float]) -> str:
    """Return a number, rounded to a thousandth of the range of all."""
    spread = numbers[-1] - numbers[0] or abs(value) or 1.0
    if not np.isfinite(spread):
        return number(value)
    return number(float(round(value, 3 - math.floor(math.log10(spread)))))


def _warnings(
    X: pd.DataFrame,
    y: np.ndarray,
    task: str,
    columns: list[Column],
    determining: Collection[str],
    n_repeated: int,
) -> Iterator[str]:
    n = len(X)
    y = np.asarray(y)
    numbers = [column.name for column in columns if column.kind == "number" and n > 2]
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(X[numbers].to_numpy(dtype=float, na_value=np.nan), axis=0)
    numbered = {*np.array(numbers, dtype=object)[(steps == 1).all(axis=0)]}
    for column in columns:
        if column.n_missing == n:
            yield f"{column.name!r} holds no value and is ignored."
        elif column.n_distinct == 1 and not column.n_missing:
            yield f"{column.name!r} has one value in all rows."
        elif column.n_missing > _MANY_MISSING * n:
            yield f"{column.name!r} is missing in {column.n_missing / n:.0%} of rows."
        elif column.kind == "category" and column.n_distinct == n:
            yield f"{column.name!r} differs in every row, as an identifier does."
        elif column.name in numbered:
            yield (
                f"{column.name!r} numbers the rows: leave it out (--drop "
                f"{shlex.quote(column.name)}), unless the order of the rows matters."
            )
        elif column.name not in determining:
            values = X[column.name].to_numpy()
            if values.dtype.kind == y.dtype.kind and np.array_equal(values, y):
                yield (
                    f"{column.name!r} equals the target: does it reveal what is asked?"
                )
    if n_repeated:
        yield (
            f"{n_repeated:,} rows repeat others: where they are both in training and "
            "in test rows, errors look smaller than they are."
        )
    if task == "classification":
        labels, counts = np.unique(y, return_counts=True)
        rare = [str(label) for label in labels[counts < _RARE_CLASS]]
        if rare:
            yield f"Classes of fewer than {_RARE_CLASS} rows: {', '.join(rare)}."
