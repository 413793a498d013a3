"""Measured numbers in README and docs: written from records, never typed.

``python -m randkern_lab.render`` (``make numbers``) writes what stands between markers,
HTML comments that no reader of the page sees, in README.md and ``docs/*.md``; with
``--check`` it only names the pages that it would change. A marker is an expression of
jinja2::

    <!-- duration(r("svm-mnist").records("method == 'svc'").seconds) -->9 s<!-- end -->

``r`` finds a record by its name, a folder of ``benchmarks``. ``r(name).KEY`` is the
value of a key of its ``results.json``, or, called with a query, its rows as a dataframe
of pandas: ``published("n > 2").error.max()``. What is computed from the records has the
name of a function of the script. A column alone must have a single value; ``only``
returns it, to calculate with. Formats are the functions of
:data:`.tables.FORMS` and ``f``, of Python: ``f(value, ".2f")``; ``".2p"`` are
percentage points. (The bars of jinja2's filters would separate the cells of tables.) At
the beginning of a line there are::

    <!-- r(name).table("words of its title", rows=query, columns=names, best="least")
    -->
    <!-- r(name).notes("regular expression") -->
    <!-- r(name).figure("file.png", "alternative text") -->
    <!-- index() -->

A table is one that the experiment prints, and names commit, date and machine; ``best``
sets the least (or ``greatest``) number of each row in bold. Notes are the sentences
below it. The index lists all records, with commands and costs.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from jinja2 import Environment, StrictUndefined

from randkern.cli.console import user_messages

from .records import Record, read_records
from .runner import notes_of
from .tables import FORMS, written

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/randkern/randkern"

_NUMERIC = r"exact|[-+]?\d.*|"  # and nothing
_MARK = re.compile(r"<!-- ((?:(?!-->).)*?)\s*-->((?:(?!<!--).)*)<!-- end -->", re.S)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages with numbers."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


class Quoted:
    """What a record has to quote."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """The results, with the frame of their rows."""
        return {"records": self.record.frame, **self.record.frame.attrs}

    def __getattr__(self, key: str) -> Any:
        """Return the value of a key of the results, or the function of its rows."""
        value = self.results.get(key)
        if value is None:
            value = getattr(self.record.script, key)(self.record.frame)
        if isinstance(value, str | int | float):
            return value
        return lambda query="": _rows(value, query)

    def table(
        self, words: str, *, rows: str = "", columns: str = "", best: str = ""
    ) -> str:
        """Return some rows and columns of a table that the experiment prints."""
        tables = list(self.record.script.tables(self.record.frame))
        shown = next((t for t in tables if words in t.attrs["title"]), None)
        if shown is None:
            titles = "; ".join(t.attrs["title"] for t in tables)
            raise ValueError(f"no title has {words!r}, of: {titles}")
        if rows:
            shown = shown.query(rows, engine="python", local_dict={}, global_dict={})
        if columns:
            shown = shown[re.split(r",\s+", columns)]
        if shown.empty:
            raise ValueError("no rows are left")
        origin, machine = self.results["provenance"], self.results["machine"]
        processor = machine.get("processor_name") or machine["processor"]
        return (
            f"{_markdown(shown, best)}\n\n*Record {self.link}, {origin['date']}, "
            f"commit {origin['commit'][:9]}, {machine['cpu_count']} cores "
            f"({processor}).*"
        )

    @property
    def link(self) -> str:
        """A link to its folder."""
        name = self.record.name
        return f"[{name}]({REPOSITORY}/tree/main/benchmarks/{name})"

    def notes(self, pattern: str) -> str:
        """Return the notes that match, in the experiment's present words."""
        notes = notes_of(self.record.script, self.record.frame)
        notes = [note for note in notes if re.search(pattern, note)]
        if not notes:
            raise ValueError("no note matches")
        return "\n".join(f"* {_cell(note)}" for note in notes)

    def figure(self, file: str, text: str) -> str:
        """Return an image, as the documentation draws it."""
        if self.record.frame.empty:
            raise ValueError(f"{self.record.name} has no figures")
        return f"![{text}](generated/records/{self.record.name}/{file})"


def _rows(entry: Any, query: str) -> pd.DataFrame:
    """Return some rows; those of a mapping of mappings have its ``key``."""
    if isinstance(entry, Mapping) and all(
        isinstance(value, Mapping) for value in entry.values()
    ):
        entry = [{"key": name, **value} for name, value in entry.items()]
    rows = entry if isinstance(entry, pd.DataFrame) else pd.json_normalize(entry)
    if query:
        rows = rows.query(query, engine="python", local_dict={}, global_dict={})
    if rows.empty:
        raise ValueError("there are no such rows")
    return rows


def _only(value: Any) -> Any:
    """Return a value, or the only one of a column."""
    if not isinstance(value, pd.Series):
        return value
    if value.nunique(dropna=False) != 1:
        raise ValueError(f"{len(value)} rows of different values: say which")
    return value.iloc[0]


def _form(form: str) -> Callable[[Any], str]:
    return lambda value: written(_only(value), form)


def quoted(folder: Path) -> dict[str, Quoted]:
    """Return the records of a folder by their names."""
    return {record.name: Quoted(record) for record in read_records(folder)}


def rendered(text: str, records: Mapping[str, Quoted]) -> str:
    """Return a page with all that stands between its markers written anew."""
    if text.count("<!-- end -->") != len(_MARK.findall(text)):
        raise ValueError("a marker without its <!-- end -->, or the reverse")
    language = Environment(undefined=StrictUndefined)
    known: dict[str, Any] = {name: _form(name) for name in FORMS}
    known |= {"r": records.__getitem__, "only": _only}
    known["f"] = lambda value, form: written(_only(value), form)

    known["index"] = lambda: _index(list(records.values()))

    def filled(mark: re.Match[str]) -> str:
        asked = mark[1]
        starts_line = mark.start() == 0 or text[mark.start() - 1] == "\n"
        try:
            expression = language.compile_expression(asked, undefined_to_none=False)
            value = str(expression(**known))
        except Exception as error:
            raise ValueError(f"<!-- {asked} -->: {error}") from error
        gap = "\n\n" if starts_line else ""
        return f"<!-- {asked} -->{gap}{value}{gap}<!-- end -->"

    return _MARK.sub(filled, text)


def unmarked(text: str) -> str:
    """Return a page without what is between markers, with the same lines."""
    return _MARK.sub(lambda mark: re.sub(r"[^\n]", " ", mark[0]), text)


def _index(records: list[Quoted]) -> str:
    """Return a table of all records that were made."""
    rows = []
    for source in records:
        if source.record.results is None:
            continue
        origin = source.results["provenance"]
        words = [*shlex.split(source.record.command), *source.record.data_words("DIR")]
        command = f"`randkern {shlex.join(words)}`"
        rows.append(
            {
                "record and command": f"{source.link}<br>{command}",
                "made": f"{origin['date']}, {origin['commit'][:9]}",
                "time": written(source.results["seconds"], "duration"),
                "memory": written(source.results["peak_memory_bytes"], "gigabytes"),
            }
        )
    return _markdown(pd.DataFrame(rows))


def _markdown(table: pd.DataFrame, best: str = "") -> str:
    """Return a table in Markdown, with columns of numbers right-aligned."""
    numeric = [table[name].str.fullmatch(_NUMERIC).all() for name in table]
    cells = table.map(_cell)
    if best:
        numbers = table.iloc[:, 1:].apply(pd.to_numeric)
        extreme = numbers.agg({"least": "min", "greatest": "max"}[best], axis=1)
        bold = numbers.eq(extreme, axis=0)
        bold = bold.reindex(columns=table.columns, fill_value=False)
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
