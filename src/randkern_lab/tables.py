"""Tables of texts, from dataframes of what was measured.

Texts are templates (:func:`text`): ``"{curve}, D = {n_components:count}"``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

Form = str | Callable[[Any], str]
#: A template of means, or a function of a dataframe.
Cell = str | Callable[[Any], str]
#: Headings of columns.
HEADINGS = {"n_components": "D", "n_train": "n"}


# -- tables --------------------------------------------------------------------------


def pivot(
    records: pd.DataFrame,
    title: str,
    row: str | Sequence[str],
    column: str,
    cell: Cell,
    headings: Mapping[Any, str] | Sequence[Any] | None = None,
    *,
    per: str = "",
    corner: str | None = None,
    label: Callable[..., str] | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield a dataframe with a row per value of some keys, a column per value of one.

    Cells show means over the records of their row and column, or what a function says
    of the dataframe of these records. Numbers of rows are sorted, with the exact kernel
    (None) last. `title` is a template of the dataframe's ``attrs`` and of the first
    record, `column` a key, or a template; `headings` are the values of the columns, or
    map them to texts; `corner` is the heading of the first column, `label` the text of
    the values of its rows. With a key `per` there is a table for each of its values.
    """
    keys = [row] if isinstance(row, str) else list(row)
    label = label or (lambda *values: ", ".join(map(count, values)))
    corner = corner or ", ".join(HEADINGS.get(key, key) for key in keys)
    for own in _parts(records, per):
        known = text(title, {**records.attrs, **own.iloc[0]})
        if "{" in column:
            own = own.assign(**{column: own.apply(lambda r: text(column, r), axis=1)})
        names = headings or list(own[column].unique())
        if not isinstance(names, Mapping):
            names = {value: str(value) for value in names}
        shown = {v: name for v, name in names.items() if v in set(own[column])}
        cells: dict[Any, dict[Any, str]] = {}
        for (*place, value), group in own.groupby(
            [*keys, column], sort=False, dropna=False
        ):
            key = tuple(None if pd.isna(part) else part for part in place)
            cells.setdefault(key, {})[value] = _cell(group, cell)
        rows = [
            (label(*place), *(cells[place].get(value, "") for value in shown))
            for place in sorted(cells, key=_position)
        ]
        yield _table(known, (corner, *shown.values()), rows)


def listing(
    records: pd.DataFrame,
    title: str,
    headings: str,
    row: str,
    caption: str = "",
    *,
    per: str = "",
) -> Iterator[pd.DataFrame]:
    """Yield a dataframe with a row per record, omitting empty columns.

    `headings` are separated as in "kernel | D", and `row` has the templates of what is
    below them, separated likewise; `title` and `caption` are templates of the
    dataframe's ``attrs`` and of the first record.
    """
    pairs = list(zip(headings.split(" | "), row.split(" | "), strict=True))
    for own in _parts(records, per):
        entries = own.to_dict("records")
        texts = {name: [text(cell, r) for r in entries] for name, cell in pairs}
        texts = {name: column for name, column in texts.items() if any(column)}
        rows = list(zip(*texts.values(), strict=True))
        known = {**records.attrs, **own.iloc[0]}
        yield _table(text(title, known), texts, rows, text(caption, known))


def _table(title: str, columns: Iterable[str], rows: Any, caption: str = "") -> Any:
    """Return a dataframe of texts, with its title and its caption in ``attrs``."""
    table = pd.DataFrame(rows, columns=list(columns), dtype=object)
    table.attrs = {"title": title, "caption": caption}
    return table


def _parts(records: pd.DataFrame, per: str) -> list[pd.DataFrame]:
    """Return records for each value of a key, or all; none for none."""
    if per and len(records):
        return [part for _, part in records.groupby(per, sort=False)]
    return [records] if len(records) else []


def _cell(records: pd.DataFrame, shown: Cell) -> str:
    """Return what is shown of the means of some records."""
    if callable(shown):
        return shown(records)
    keys = {key for _, key, _, _ in Formatter().parse(shown) if key}
    return text(shown, records[list(keys & set(records))].astype(float).mean())


def _position(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sort numbers, with None last; leave strings in their order."""
    return tuple(
        (value is None, value if isinstance(value, int | float) else 0)
        for value in place
    )


# -- texts ---------------------------------------------------------------------------


def count(value: Any) -> str:
    """Format a number of features or rows; None is the exact kernel."""
    if value is None or value != value:
        return "exact"
    return value if isinstance(value, str) else f"{value:,.0f}"


def percent(value: float | None, spread: float | None = None) -> str:
    """Format a share in percent, with its standard deviation if given."""
    if value is None or value != value:
        return ""
    error = "" if spread is None or spread != spread else f" ± {100 * spread:.2f}"
    return f"{100 * value:.{2 if value >= 1e-3 or value <= 0 else 3}f}{error} %"


def duration(seconds: float) -> str:
    """Format the time that a run takes, in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


#: Formats by name, in templates and quantities.
FORMS: Mapping[str, Callable[[Any], str]] = {
    "count": count,
    "number": lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}",
    "seconds": lambda value: f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.2f} s",
    "megabytes": lambda size: f"{size / 1e6:,.0f} MB",
    "gigabytes": lambda size: f"{size / 1e9:.1f} GB",
    "duration": duration,
    "percent": percent,
    "complement": lambda value: f"{1 - value:.2e}",
    "words": lambda name: name.replace("_", " "),
    "upper": str.upper,
}


def written(value: Any, form: Form) -> str:
    """Format a value; None and NaN are "", but "exact" as a count."""
    if form != "count" and (value is None or value != value):
        return ""
    if isinstance(value, float) and form in ("", ",") and value.is_integer():
        value = int(value)  # pandas makes it a float beside missing values
    if isinstance(form, str) and form.endswith("p"):
        return format(100 * value, form[:-1] + "f")
    if isinstance(form, str) and form not in FORMS:
        return format(value, form)
    return form(value) if callable(form) else FORMS[form](value)


class _Template(Formatter):
    """Fills in nothing for keys that are missing."""

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key)

    def format_field(self, value: Any, spec: str) -> str:
        return written(value, spec)


def text(template: str, record: Any) -> str:
    """Fill a template with the values of a record.

    Formats are those of Python and :data:`FORMS`, and ``".2p"`` for percentage points.
    """
    return _Template().vformat(template, (), record)


# -- notes ---------------------------------------------------------------------------


def at_edges(
    chosen: Mapping[str, Any], tried: Mapping[str, Iterable[float]]
) -> list[str]:
    """Return the hyperparameters that are the least or greatest of those tried."""
    edges = []
    for name, values in tried.items():
        least, greatest = min(values), max(values)
        ends = np.isclose(chosen[name], [least, greatest], rtol=1e-9, atol=0)
        if least < greatest and ends.any():
            edges.append(name)
    return edges


def edge_notes(who: str, edges: Sequence[str]) -> list[str]:
    """Return a warning if hyperparameters were chosen at the edges of their grids."""
    chosen = " and ".join(edges)
    result = f"warning, {who}: the best {chosen} is at the edge of its grid"
    return [result] if edges else []


def skip_notes(skipped: Iterable[Mapping[str, Any]], *keys: str) -> list[str]:
    """Return a sentence per reason for skipped cases."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for note in skipped:
        named = (note.get(key) for key in keys if key != "n_components")
        who = ", ".join(str(value) for value in named if value)
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
    """Return the power p of the best-fitting curve y = c·xᵖ; None for a single x."""
    if len(set(x)) < 2:
        return None
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(y), 1)[0])


def mean_interval(values: Any) -> tuple[float, float, float]:
    """Return a mean and the ends of its 95 % interval by Student's t."""
    result = np.asarray(values, float)
    n, mean = len(result), float(result.mean())
    half = float(student.ppf(0.975, n - 1) * result.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
