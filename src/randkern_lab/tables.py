"""Tables to print, and the summaries of records that they show.

Texts are templates (:func:`text`): ``"{curve}, D = {n_components:count}"``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

import numpy as np
from scipy.stats import t as student

Record = Mapping[str, Any]
Records = Sequence[Record]
Form = str | Callable[[Any], str]
#: A template of means, or a function of a dataframe.
Cell = str | Callable[[Any], str]
#: Headings of columns.
HEADINGS = {"n_components": "D", "n_train": "n"}


# -- tables --------------------------------------------------------------------------


def frame(results: Mapping[str, Any], query: str = "", key: str = "records") -> Any:
    """Return the records of results, or what is under another key, as a dataframe."""
    import pandas as pd

    table = pd.DataFrame(results[key])
    if not query or table.empty:
        return table
    return table.query(query, engine="python", local_dict={}, global_dict={})


def plain(value: Any) -> Any:
    """Return a dataframe as JSON: rows as dicts, None for what is missing."""
    if not hasattr(value, "to_dict"):
        return value
    return value.astype(object).where(value.notna(), None).to_dict("records")


def pivot(
    results: Mapping[str, Any],
    records: Any,
    title: str,
    row: str | Sequence[str],
    column: str,
    cell: Cell,
    headings: Mapping[Any, str] | Sequence[Any] | None = None,
    *,
    per: str = "",
    corner: str | None = None,
    label: Callable[..., str] | None = None,
) -> Iterator[Any]:
    """Yield a dataframe with a row per value of some keys, a column per value of one.

    Cells show means over the records of their row and column, or what a function says
    of the dataframe of these records. Numbers of rows are sorted, with the exact kernel
    (None) last. `title` is a template of the results and of the first record, `column`
    a key, or a template; `headings` are the values of the columns, or map them to
    texts; `corner` is the heading of the first column, `label` the text of the values
    of its rows. With a key `per` there is a table for each of its values.
    """
    keys = [row] if isinstance(row, str) else list(row)
    label = label or (lambda *values: ", ".join(map(count, values)))
    corner = corner or ", ".join(HEADINGS.get(key, key) for key in keys)
    for own in _parts(records, per):
        known = text(title, {**results, **own.iloc[0]})
        if "{" in column:
            own = own.assign(**{column: own.apply(lambda r: text(column, r), axis=1)})
        names = headings or list(own[column].unique())
        if not isinstance(names, Mapping):
            names = {value: str(value) for value in names}
        shown = {v: name for v, name in names.items() if v in set(own[column])}
        places = own[keys].astype(object).where(own[keys].notna(), None)
        cells: dict[Any, dict[Any, str]] = {}
        by = [*(places[key] for key in keys), own[column]]
        for (*place, value), group in own.groupby(by, sort=False, dropna=False):
            place = tuple(None if part != part else part for part in place)
            cells.setdefault(place, {})[value] = _cell(group, cell)
        rows = [
            (label(*place), *(cells[place].get(value, "") for value in shown))
            for place in sorted(cells, key=_position)
        ]
        yield _table(known, (corner, *shown.values()), rows)


def listing(
    results: Mapping[str, Any],
    records: Any,
    title: str,
    headings: str,
    row: str,
    caption: str = "",
    *,
    per: str = "",
) -> Iterator[Any]:
    """Yield a dataframe with a row per record, omitting empty columns.

    `headings` are separated as in "kernel | D", and `row` has the templates of what is
    below them, separated likewise; `title` and `caption` are templates of the results
    and of the first record.
    """
    pairs = list(zip(headings.split(" | "), row.split(" | "), strict=True))
    for own in _parts(records, per):
        texts = {
            name: [text(cell, r) for _, r in own.iterrows()] for name, cell in pairs
        }
        texts = {name: column for name, column in texts.items() if any(column)}
        rows = list(zip(*texts.values(), strict=True))
        known = {**results, **own.iloc[0]}
        yield _table(text(title, known), texts, rows, text(caption, known))


def _table(title: str, columns: Iterable[str], rows: Any, caption: str = "") -> Any:
    """Return a dataframe of texts, with its title and its caption in ``attrs``."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=list(columns), dtype=object)
    table.attrs = {"title": title, "caption": caption}
    return table


def _parts(records: Any, per: str) -> list[Any]:
    """Return records for each value of a key, or all; none for none."""
    import pandas as pd

    own = pd.DataFrame(records)
    if per and len(own):
        return [part for _, part in own.groupby(per, sort=False)]
    return [own] if len(own) else []


def _cell(records: Any, shown: Cell) -> str:
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


# -- records -------------------------------------------------------------------------


def of(records: Records, **named: Any) -> list[Any]:
    """Return the records that have these values.

    A function, such as ``max``, chooses among the values that are left.
    """
    choices = {key: value for key, value in named.items() if callable(value)}
    plain = {key: value for key, value in named.items() if key not in choices}
    result = [record for record in records if plain.items() <= record.items()]
    for key, choose in choices.items():
        values = [r[key] for r in result if r.get(key) is not None]
        result = of(result, **{key: choose(values)}) if values else []
    return result


def groups(records: Records, *keys: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the values of some keys, and the records with these values."""
    result: dict[tuple[Any, ...], list[Any]] = {}
    for record in records:
        result.setdefault(tuple(record[key] for key in keys), []).append(record)
    for values, own in result.items():
        yield dict(zip(keys, values, strict=True)), own


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


def text(template: str, record: Record) -> str:
    """Fill a template with the values of a record.

    Formats are those of Python and :data:`FORMS`, and ``".2p"`` for percentage points.
    """
    return _Template().vformat(template, (), record)


def sentences(records: Iterable[Record], template: str) -> list[str]:
    """Return a template filled with each record."""
    return [text(template, record) for record in records]


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


def skip_notes(results: Mapping[str, Any], *keys: str) -> list[str]:
    """Return a sentence per reason for skipped cases."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for note in results.get("skipped", ()):
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


def fitted_powers(
    records: Records, x: str, y: str, *keys: str
) -> Iterator[tuple[dict[str, Any], float | None]]:
    """Yield the values of some keys, and the power of `x` that best fits `y` there."""
    for named, own in groups(records, *keys):
        yield named, fitted_power([r[x] for r in own], [r[y] for r in own])


def paired(
    records: Records, others: Records, key: str, by: str = "seed"
) -> list[tuple[Any, Any]]:
    """Return pairs of values of records with the same seed, sorted by it."""
    first, second = ({r[by]: r[key] for r in item} for item in (records, others))
    return [(first[seed], second[seed]) for seed in sorted(first.keys() & second)]


def aggregated(
    records: Records, keys: Sequence[str], **columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return an entry per value of some keys: ``n_seeds``, and columns over the seeds.

    These are named by pandas's aggregation; ``_std`` is appended for deviations. What
    is not a number is None.
    """
    import pandas as pd

    if not records:
        return []
    table = pd.DataFrame(records)
    table = table.astype({c: float for c in table if table[c].isna().all()})
    named = {
        f"{column}_std" if how == "std" else column: (column, how)
        for how, subset in columns.items()
        for column in subset
    }
    groups = table.groupby(list(keys), sort=False)
    result = groups.agg(n_seeds=("seed", "size"), **named).reset_index()
    return [
        {key: None if value != value else value for key, value in entry.items()}
        for entry in result.to_dict("records")
    ]


def paired_ratio(
    pairs: Sequence[tuple[float, float]],
) -> tuple[float | None, float | None]:
    """Return the ratio r = ā/b̄ of two means over seeds, and its standard error.

    The standard error is that of the mean of (a_s − r b_s)/b̄ over the seeds s (delta
    method for pairs), None for a single seed; both are None without pairs.
    """
    if not pairs:
        return None, None
    a, b = np.asarray(pairs, dtype=float).T
    ratio = float(a.mean() / b.mean())
    if len(a) < 2:
        return ratio, None
    residual = (a - ratio * b) / b.mean()
    return ratio, float(residual.std(ddof=1) / np.sqrt(len(a)))


def mean_interval(values: Any) -> tuple[float, float, float]:
    """Return a mean and the ends of its 95 % interval by Student's t."""
    result = np.asarray(values, float)
    n, mean = len(result), float(result.mean())
    half = float(student.ppf(0.975, n - 1) * result.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def columns(records: Records, *keys: str) -> list[Any]:
    """Return the values of each key as an array."""
    return [np.array([record[key] for record in records]) for key in keys]


def mean_of(records: Records, key: str) -> float:
    """Return the mean of the values of a key."""
    return float(np.mean([record[key] for record in records]))


def known_mean(records: Records, key: str) -> float | None:
    """Return the mean of the values that are not None, or None."""
    known = [record for record in records if record.get(key) is not None]
    return mean_of(known, key) if known else None
