"""Measured numbers in README and docs: written from records, never typed.

``python -m randkern_lab.render`` (``make numbers``) writes what stands between markers,
HTML comments that no reader of the page sees, in README.md and ``docs/*.md``; with
``--check`` it only names the pages that it would change. NAME is a record, the folder
``benchmarks/NAME``. A number in a sentence::

    error <!-- NAME: test_error where method == "dense" as percent -->2 %<!-- end -->

is a column of the record's rows, where a query of pandas holds. The rows must agree, or
a function sums them up: ``max(seconds) where n_train >= 1000 as seconds``. Two such
values are divided or subtracted by ``/`` or ``-`` between spaces. Formats are those of
Python and of :data:`.tables.FORMS`, such as ``.2f``, ``.1p`` (percentage points),
``percent``, ``seconds``. ``NAME.key`` has the rows under another key of the results:
its list, its mappings (with their ``key`` as a column), or a single row of what it is.

A marker at the beginning of a line is one of these, and fills lines of its own::

    <!-- table NAME: words of its title
    rows: pandas query over what is printed
    columns: heading, heading
    best: least
    -->
    <!-- notes NAME: regular expression -->
    <!-- figure NAME: file.png, alternative text -->
    <!-- index of records -->
    <!-- end -->

A table is one that the experiment prints, and names commit, date and machine; ``best``
sets the least (or ``greatest``) number of each row in bold. Notes are the sentences
below it. The index lists all records, with commands and costs. In place
of what a record would show that is listed, but was never made, pages say so.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from operator import sub, truediv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randkern.cli.console import user_messages

from .records import Record, read_records
from .tables import TextTable, written

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/randkern/randkern"

_NUMERIC = r"exact|[-+]?\d.*|"  # and nothing
_MARK = re.compile(r"<!-- ((?:(?!-->).)*?)\s*-->((?:(?!<!--).)*)<!-- end -->", re.S)
_FUNCTIONS = ("min", "max", "mean", "median", "sum", "count")


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages with numbers."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


class NeverMadeError(ValueError):
    """Raised if a record that is listed has no results yet."""


class Quoted:
    """What a record has to quote."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """The results; raises NeverMadeError if there are none."""
        results = self.record.results
        if results is None:
            raise NeverMadeError(f"{self.record.name} was never made")
        return results

    @cached_property
    def tables(self) -> list[TextTable]:
        """The tables that the experiment prints."""
        return self.record.experiment.tables(self.results)

    @cached_property
    def notes(self) -> list[str]:
        """The sentences below the tables, in the experiment's present words.

        The recorded ones where the results lack what these read.
        """
        try:
            return list(self.record.experiment.notes(self.results))
        except KeyError:
            return list(self.results["notes"])

    def rows(self, key: str) -> "pd.DataFrame":
        """Return what is under a key of the results as rows; nested keys have dots."""
        import pandas as pd

        entry = self.results[key]
        if isinstance(entry, Mapping) and all(
            isinstance(value, Mapping) for value in entry.values()
        ):
            entry = [{"key": name, **value} for name, value in entry.items()]
        elif not isinstance(entry, list | Mapping):
            entry = {key: entry}
        return pd.json_normalize(entry)

    @property
    def link(self) -> str:
        """Its name, as a link to its folder."""
        name = self.record.name
        return f"[{name}]({REPOSITORY}/tree/main/benchmarks/{name})"

    @property
    def origin(self) -> str:
        """The line below a table: the record, its day, its code and its machine."""
        source, machine = self.results["provenance"], self.results["machine"]
        return (
            f"*Record {self.link}, {source['date']}, commit {source['commit'][:9]}, "
            f"{machine['cpu_count']} cores ({machine['processor']}).*"
        )


def quoted(folder: Path) -> dict[str, Quoted]:
    """Return the records of a folder by their names."""
    return {record.name: Quoted(record) for record in read_records(folder)}


def rendered(text: str, records: Mapping[str, Quoted]) -> str:
    """Return a page with all that stands between its markers written anew."""
    if text.count("<!-- end -->") != len(_MARK.findall(text)):
        raise ValueError("a marker without its <!-- end -->, or the reverse")
    return _MARK.sub(lambda mark: _filled(mark, records), text)


def unmarked(text: str) -> str:
    """Return a page without what is between markers, with the same lines."""
    return _MARK.sub(lambda mark: re.sub(r"[^\n]", " ", mark[0]), text)


def _filled(mark: re.Match[str], records: Mapping[str, Quoted]) -> str:
    """Return a marker with what it asks for."""
    asked = mark[1]
    kind, _, rest = asked.partition(" ")
    starts_line = mark.start() == 0 or mark.string[mark.start() - 1] == "\n"
    try:
        if (kind in _BLOCKS) != starts_line:
            raise ValueError(
                "Markdown begins a block with a comment at the beginning of a line: "
                f"{', '.join(_BLOCKS)} belong there, and numbers elsewhere"
            )
        if kind in _BLOCKS:
            close = "\n-->" if "\n" in asked else " -->"
            try:
                block = _BLOCKS[kind](rest, records)
            except NeverMadeError as reason:
                block = f"*There is nothing to show yet: the record {reason}.*"
            return f"<!-- {asked}{close}\n\n{block}\n\n<!-- end -->"
        try:
            number = _number(asked, records)
        except NeverMadeError:
            number = "not recorded"
        return f"<!-- {asked} -->{number}<!-- end -->"
    except (KeyError, ValueError, NameError) as error:
        raise ValueError(f"<!-- {asked} -->: {error}") from error


# -- numbers in sentences ------------------------------------------------------------


def _number(asked: str, records: Mapping[str, Quoted]) -> str:
    source, _, rest = asked.partition(": ")
    expression, _, form = rest.rpartition(" as ")
    name, _, key = source.partition(".")
    rows = records[name].rows(key or "records")
    for sign, operation in ((" / ", truediv), (" - ", sub)):
        left, split, right = expression.partition(sign)
        if split:
            return written(operation(_value(rows, left), _value(rows, right)), form)
    return written(_value(rows, expression), form)


def _value(rows: "pd.DataFrame", expression: str) -> Any:
    """Return a column where a query holds: its only value, or a summary."""
    selected, _, query = expression.partition(" where ")
    call = re.fullmatch(r"(\w+)\((.+)\)", selected)
    function, name = call.groups() if call else ("", selected)
    column = (_where(rows, query) if query else rows)[name]
    if function in _FUNCTIONS:
        return getattr(column, function)()
    if function or column.nunique(dropna=False) != 1:
        raise ValueError(
            f"{len(column)} rows of different values: add a condition, or one of "
            f"{', '.join(_FUNCTIONS)}"
        )
    return column.iloc[0]


def _where(rows: "pd.DataFrame", query: str) -> "pd.DataFrame":
    """Return the rows where a query holds, which sees nothing but their columns."""
    return rows.query(query, engine="python", local_dict={}, global_dict={})


# -- blocks --------------------------------------------------------------------------


def _table(asked: str, records: Mapping[str, Quoted]) -> str:
    """Return some rows and columns of a table that a record prints."""
    import pandas as pd

    first, *lines = asked.splitlines()
    name, _, words = first.partition(": ")
    settings = dict(line.split(": ", 1) for line in lines)
    if not settings.keys() <= {"rows", "columns", "best"}:
        named = ", ".join(settings)
        raise ValueError(f"settings are rows, columns and best, not {named}")
    source = records[name]
    table = next((t for t in source.tables if words in t.title), None)
    if table is None:
        titles = "; ".join(t.title for t in source.tables)
        raise ValueError(f"no title has these words, of: {titles}")
    shown = pd.DataFrame(table.rows, columns=list(table.columns))
    if "rows" in settings:
        shown = _where(shown, settings["rows"])
    if "columns" in settings:
        shown = shown[re.split(r",\s+", settings["columns"])]
    if shown.empty:
        raise ValueError("no rows are left")
    best = _best_of_rows(shown, settings["best"]) if "best" in settings else None
    return f"{_markdown(shown, best)}\n\n{source.origin}"


def _notes(asked: str, records: Mapping[str, Quoted]) -> str:
    """Return the notes of a record that match a regular expression."""
    name, _, pattern = asked.partition(": ")
    notes = [note for note in records[name].notes if re.search(pattern, note)]
    if not notes:
        raise ValueError("no note matches")
    return "\n".join(f"* {_cell(note)}" for note in notes)


def _figure(asked: str, records: Mapping[str, Quoted]) -> str:
    """Return an image of a record, as the documentation draws it."""
    name, _, rest = asked.partition(": ")
    file, _, text = rest.partition(", ")
    if not records[name].results["records"]:
        raise ValueError(f"{name} has no figures")
    return f"![{text}](generated/records/{name}/{file})"


def _index(asked: str, records: Mapping[str, Quoted]) -> str:
    """Return a table of all records."""
    import pandas as pd

    known = [item for item in records.values() if item.record.results is not None]
    rows = []
    for source in known:
        results, origin = source.results, source.results["provenance"]
        rows.append(
            {
                "record and command": f"{source.link}<br>`{origin['command']}`",
                "made": f"{origin['date']}, {origin['commit'][:9]}",
                "time": written(results["seconds"], "duration"),
                "memory": written(results["peak_memory_bytes"], "gigabytes"),
            }
        )
    return _markdown(pd.DataFrame(rows))


_BLOCKS = {"table": _table, "notes": _notes, "figure": _figure, "index": _index}


def _best_of_rows(table: "pd.DataFrame", which: str) -> "pd.DataFrame":
    """Return where each row has its best number; the first column is its name."""
    import pandas as pd

    numbers = table.iloc[:, 1:].apply(pd.to_numeric)
    best = numbers.agg({"least": "min", "greatest": "max"}[which], axis=1)
    return numbers.eq(best, axis=0).reindex(columns=table.columns, fill_value=False)


def _markdown(table: "pd.DataFrame", bold: "pd.DataFrame | None" = None) -> str:
    """Return a table in Markdown, with columns of numbers right-aligned."""
    numeric = [table[name].str.fullmatch(_NUMERIC).all() for name in table]
    cells = table.map(_cell)
    if bold is not None:
        cells = cells.mask(bold, "**" + cells + "**")
    lines = [
        [_cell(name) for name in table.columns],
        ["---:" if right else "---" for right in numeric],
        *cells.to_numpy().tolist(),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text whose signs mean nothing to Markdown, outside of code."""
    return text if "`" in text else re.sub(r"[|*_]", r"\\\g<0>", text)


def main(
    root: Annotated[
        Path, typer.Argument(help="Of README.md, docs, benchmarks.")
    ] = ROOT,
    check: Annotated[bool, typer.Option("--check", help="Change nothing.")] = False,
) -> None:
    """Write the numbers of README.md and docs/*.md from the records."""
    changed = []
    with user_messages():
        records = quoted(root / "benchmarks")
        for path in pages(root):
            text = path.read_text("utf-8")
            try:
                result = rendered(text, records)
            except ValueError as error:
                raise ValueError(f"{path.relative_to(root)}: {error}") from error
            if result != text:
                changed.append(str(path.relative_to(root)))
                if not check:
                    path.write_text(result, "utf-8")
    for name in changed:
        typer.echo(
            f"{name}: {'its numbers differ from' if check else 'written from'} records"
        )
    if check and changed:
        raise typer.Exit(code=1)


if __name__ == "__main__":
    typer.run(main)
