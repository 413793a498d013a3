"""Printed tables from tidy tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import t as student

__all__ = [
    "Fitted",
    "TextTable",
    "count",
    "edge_notes",
    "fitted_power",
    "groups",
    "listing",
    "mean_interval",
    "megabytes",
    "number",
    "of",
    "percent",
    "pivot",
    "points",
    "seconds",
    "skip_notes",
    "words",
]

Records = Sequence[Mapping[str, Any]]
Form = str | Callable[[Any], str]
#: A key of the records, with the format of its value, or a function of the record.
Column = str | tuple[str, Form] | Callable[[Any], str]


class Fitted(str):
    """A text with exponents or intervals, which smoke runs do not print.

    Their few small sizes only show that an experiment runs.
    """

    __slots__ = ()


@dataclass(frozen=True)
class TextTable:
    """A table to print.

    Attributes
    ----------
    title : str
    columns : tuple of str
        Headings. The first column is left-aligned, the others right-aligned.
    rows : list of tuple of str
    caption : str
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    caption: str = ""


def of(records: Records, **named: Any) -> list[Any]:
    """Return the records that have these values.

    Examples
    --------
    >>> from randkern_lab.tables import of
    >>> of([{"n": 1, "seed": 0}, {"n": 2, "seed": 0}], n=2)
    [{'n': 2, 'seed': 0}]
    """
    return [record for record in records if named.items() <= record.items()]


def groups(records: Records, *keys: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the values of some keys, and the records with these values.

    Examples
    --------
    >>> from randkern_lab.tables import groups
    >>> list(groups([{"n": 1, "seed": 0}, {"n": 2, "seed": 0}, {"n": 1}], "n"))
    [({'n': 1}, [{'n': 1, 'seed': 0}, {'n': 1}]), ({'n': 2}, [{'n': 2, 'seed': 0}])]
    """
    found: dict[tuple[Any, ...], list[Any]] = {}
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), []).append(record)
    for values, own in found.items():
        yield dict(zip(keys, values, strict=True)), own


def pivot(
    title: str,
    records: Records,
    row: str | Sequence[str],
    column: str,
    cell: tuple[str, Form] | Callable[[Any], str],
    *,
    headings: Mapping[Any, str] | None = None,
    corner: str | None = None,
    label: Callable[..., str] | None = None,
) -> TextTable:
    """Return a table with a row per value of some keys, and a column per value of one.

    Parameters
    ----------
    title : str
    records : sequence of mapping
    row, column : str
        Keys of the records; `row` may be several. Numeric rows are sorted, with the
        exact kernel (None) last.
    cell : (str, str or callable) or callable
        A key, whose mean over the records of a row and column is formatted; or a
        function of the dataframe of these records that returns a text.
    headings : mapping, optional
        The values of `column` and their headings; by default all values. Columns
        without records are omitted.
    corner : str, optional
        Heading of the first column.
    label : callable, optional
        Text of the values of `row`; by default, :func:`count` of each.

    Examples
    --------
    >>> from randkern_lab.tables import pivot
    >>> records = [{"D": d, "kernel": k, "e": 1 / d} for d in (20, 10) for k in "ab"]
    >>> pivot("", records, "D", "kernel", ("e", ".2f")).rows
    [('10', '0.10', '0.10'), ('20', '0.05', '0.05')]
    """
    import pandas as pd

    keys = [row] if isinstance(row, str) else list(row)
    found = list(dict.fromkeys(record[column] for record in records))
    headings = headings or {value: str(value) for value in found}
    shown = {value: text for value, text in headings.items() if value in found}
    table = TextTable(title, (corner or _corner(keys), *shown.values()))
    places = list(dict.fromkeys(tuple(r[key] for key in keys) for r in records))
    for place in sorted(places, key=_position):
        own = of(records, **dict(zip(keys, place, strict=True)))
        cells = []
        for value in shown:
            group = [record for record in own if record[column] == value]
            if not group:
                cells.append("")
            elif callable(cell):
                cells.append(cell(pd.DataFrame(group)))
            else:
                cells.append(_mean(group, *cell))
        text = label(*place) if label else ", ".join(count(value) for value in place)
        table.rows.append((text, *cells))
    return table


def listing(
    title: str, records: Records, columns: Mapping[str, Column], caption: str = ""
) -> TextTable:
    """Return a table with a row per record, omitting empty columns.

    Examples
    --------
    >>> from randkern_lab.tables import listing, seconds
    >>> listing("", [{"took": 0.5, "n": 3}], {"time": ("took", seconds), "n": "n"}).rows
    [('500 ms', '3')]
    """
    cells = {
        name: [_text(r, column) for r in records] for name, column in columns.items()
    }
    cells = {name: texts for name, texts in cells.items() if any(texts)}
    return TextTable(
        title, tuple(cells), list(zip(*cells.values(), strict=True)), caption
    )


def _text(record: Mapping[str, Any], column: Column) -> str:
    if callable(column):
        return column(record)
    key, form = (column, "") if isinstance(column, str) else column
    return _written(record.get(key), form)


def _written(value: Any, form: Form) -> str:
    if value is None or value != value:
        return ""
    return form(value) if callable(form) else format(value, form)


def _mean(records: Records, key: str, form: Form) -> str:
    found = [r[key] for r in records if r[key] is not None]
    return _written(float(np.mean(found)) if found else None, form)


def _corner(keys: Sequence[str]) -> str:
    short = {"n_components": "D", "n_train": "n"}
    return ", ".join(short.get(key, key) for key in keys)


def _position(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sort numbers, with None last; leave strings in their order."""
    return tuple(
        (value is None, value if isinstance(value, int | float) else 0)
        for value in place
    )


# -- texts ---------------------------------------------------------------------------


def count(value: Any) -> str:
    """Format a number of features or rows; None is the exact kernel.

    Examples
    --------
    >>> from randkern_lab.tables import count
    >>> count(1000), count(None)
    ('1,000', 'exact')
    """
    if value is None or value != value:
        return "exact"
    return value if isinstance(value, str) else f"{value:,.0f}"


def number(value: float | None, digits: int = 3) -> str:
    """Format with significant digits, and commas from 100 on; "" for None."""
    if value is None or value != value:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """Format seconds, or milliseconds below one; "" for None."""
    if value is None or value != value:
        return ""
    return f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.2f} s"


def megabytes(value: float | None) -> str:
    """Format a number of bytes in megabytes; "" for None."""
    return "" if value is None or value != value else f"{value / 1e6:,.0f} MB"


def percent(value: float | None, spread: float | None = None) -> str:
    """Format a share in percent, with its standard deviation if given.

    Examples
    --------
    >>> from randkern_lab.tables import percent
    >>> percent(0.0312), percent(0.0312, 0.001), percent(0.00031)
    ('3.12 %', '3.12 ± 0.10 %', '0.031 %')
    """
    if value is None or value != value:
        return ""
    error = "" if spread is None or spread != spread else f" ± {100 * spread:.2f}"
    return f"{100 * value:.{2 if value >= 1e-3 or value <= 0 else 3}f}{error} %"


def points(share: float) -> str:
    """Format a share in percent without the sign, which is in the title."""
    return f"{100 * share:.2f}"


def words(name: str) -> str:
    """Return the name of an outcome as words."""
    return name.replace("_", " ")


def edge_notes(who: str, edges: Sequence[str]) -> list[str]:
    """Return a warning for each hyperparameter chosen at an edge of its grid.

    Examples
    --------
    >>> from randkern_lab.tables import edge_notes
    >>> edge_notes("gaussian", ["alpha"])
    ['warning, gaussian: the best alpha is at the edge of its grid']
    """
    chosen = " and ".join(edges)
    found = f"warning, {who}: the best {chosen} is at the edge of its grid"
    return [found] if edges else []


def skip_notes(results: Mapping[str, Any], *keys: str) -> list[str]:
    """Return a sentence per reason for skipped cases.

    Examples
    --------
    >>> from randkern_lab.tables import skip_notes
    >>> notes = [{"method": "svc", "n_components": d, "reason": "big"} for d in (1, 2)]
    >>> skip_notes({"skipped": notes}, "method", "n_components")
    ['skipped svc, D = 1, 2: big']
    """
    reasons: dict[tuple[str, str], list[str]] = {}
    for note in results.get("skipped", ()):
        who = ", ".join(str(note[k]) for k in keys if k != "n_components" and note[k])
        size = note.get("n_components") if "n_components" in keys else ""
        reasons.setdefault((who, note["reason"]), []).append(count(size))
    return [
        f"skipped {who}{_sizes(sizes)}: {reason}"
        for (who, reason), sizes in reasons.items()
    ]


def _sizes(sizes: Sequence[str]) -> str:
    if not any(sizes):
        return ""
    return ", exact" if set(sizes) == {"exact"} else f", D = {', '.join(sizes)}"


# -- statistics ----------------------------------------------------------------------


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return the power p of the best-fitting curve y = c·xᵖ; None for a single x.

    Examples
    --------
    >>> from randkern_lab.tables import fitted_power
    >>> round(fitted_power([1, 4, 16], [8.0, 4.0, 2.0]), 6)
    -0.5
    """
    if len(set(x)) < 2:
        return None
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(y), 1)[0])


def mean_interval(values: Any) -> tuple[float, float, float]:
    """Return a mean and the ends of its 95 % interval by Student's t.

    Examples
    --------
    >>> from randkern_lab.tables import mean_interval
    >>> mean_interval([1.0, 2.0, 3.0])
    (2.0, -0.48, 4.48)
    """
    found = np.asarray(values, float)
    n, mean = len(found), float(found.mean())
    half = float(student.ppf(0.975, n - 1) * found.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
