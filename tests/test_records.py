"""Records of the repository: their commands, their figures, and the chart of choices.

The figures of the chart are those of one row of the tables that a record prints, but
for rounding, and for units of a thousandth or a hundredth.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import typer

from _docs import script
from randkern_lab.cli import command_of
from randkern_lab.records import read_records
from randkern_lab.runner import figures_of, names_of, notes_of

ROOT = Path(__file__).resolve().parents[1]
RECORDS = {record.name: record for record in read_records(ROOT / "benchmarks")}
UNITS = (1.0, 1e-2, 1e-3)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def numbers(text):
    """The numbers of a text as they are written, without signs and commas."""
    return NUMBER.findall(re.sub(r"(?<=\d),(?=\d{3})", "", text))


def is_rounded(text, number):
    """Whether a number of the docs is one of a record, in some unit."""
    digits = text.partition("e")[0].partition(".")[2]
    half = 0.5 * 10.0 ** -len(digits) * (1 + 1e-9)
    if "e" in text:
        return text == number
    return any(abs(float(text) - unit * float(number)) <= half for unit in UNITS)


def holds(row, line):
    """Whether a row of a record has all numbers of a line of the docs."""
    left = list(row)
    for text in numbers(line):
        result = next((n for n in left if n == text), None)
        result = result or next((n for n in left if is_rounded(text, n)), None)
        if result is None:
            return False
        left.remove(result)
    return True


def rows_of(record):
    """The rows of all tables that a record prints, with headings, and its notes."""
    frame = record.frame
    beside = {}  # rows of all tables that begin alike: docs may join them
    for table in record.script.tables(frame):
        words = table.attrs["title"], *table.columns, table.attrs["caption"]
        heading = numbers(" ".join(words))
        for row in table.itertuples(index=False, name=None):
            result = numbers(" ".join(row)) + heading
            beside[row[0]] = beside.get(row[0], []) + result
            yield result
    yield from beside.values()
    for note in frame.attrs.get("notes") or notes_of(record.script, frame):
        yield numbers(note)


MEASURED = [choice for choice in script("drawings").CHOICES if choice.measured]


@pytest.mark.parametrize("choice", MEASURED, ids=lambda choice: choice.answer)
def test_figures_of_the_chart_are_those_of_the_record(choice):
    assert any(holds(row, choice.measured) for row in rows_of(RECORDS[choice.record]))


def test_the_chart_has_figures_and_its_page_names_their_records():
    assert len(MEASURED) >= 6
    page = (ROOT / "docs" / "choose.md").read_text("utf-8")
    section = page.partition("The figures in italics")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", section)) == {c.record for c in MEASURED}


def test_a_wrong_number_is_detected():
    record = RECORDS["compositional-tables"]
    rows = list(rows_of(record))
    line = "| wine, exact | 1.8 | 1.3 | 1.3 | 1.3 |"
    assert any(holds(row, line) for row in rows)
    assert not any(holds(row, line.replace("1.8", "1.7")) for row in rows)


def test_every_folder_is_listed():
    folders = {path.parent.name for path in ROOT.glob("benchmarks/*/results.json")}
    assert folders <= set(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_commands_are_understood(record):
    group, name, *words = shlex.split(record.command)
    assert names_of(record.script.Options) == (group, name)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command()(command_of(record.script))
    command = typer.main.get_command(single)
    context = command.make_context(name, [*words, "--out", "x"])
    assert ("data_dir" in context.params) >= record.data
    assert ("folder" in context.params) >= bool(record.tables)


@pytest.mark.nightly
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_records_can_be_drawn_and_contain_no_paths(record):
    if record.results is None:
        return
    drawn = figures_of(record.script, record.frame)
    assert bool(drawn) == bool(record.results["records"])
    text = json.dumps(record.results)
    assert not re.search(r'"/(home|root|work|tmp|Users)', text)


def test_every_published_second_is_drawn_as_it_was_published():
    record = RECORDS["optical-ridge-fashion-mnist"]
    figure = record.script.figure(record.frame)["optical-ridge.png"]
    panel = next(a for a in figure.axes if "from features to weights" in a.get_title())
    drawn = {tuple(p) for line in panel.get_lines() for p in line.get_xydata()}
    rows = record.script.published(record.frame).dropna(subset="n_components")
    rows = rows[rows.curve.isin(["fourier", "optical-2", "optical-4"])]
    published = set(zip(rows.n_components, rows.regression_seconds, strict=True))
    assert len(published) > 60
    assert published <= drawn
