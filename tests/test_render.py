"""Measured numbers of README and docs are those of records, and none is typed."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import typer

from randkern_lab.options import CommonOptions
from randkern_lab.render import main, pages, quoted, rendered, unmarked
from randkern_lab.tables import TextTable

ROOT = Path(__file__).resolve().parents[1]
RECORDS = quoted(ROOT / "benchmarks")
PAGES = pages(ROOT)
NUMBER = (
    r"(?:\d[\d,.]*|\b(?:two|three|four|five|six|seven|eight|nine|ten|half|third|quarter"
    r"|fifth|sixth|seventh|eighth|ninth|tenth|hundredth)s?)"
)
UNIT = (
    r"(?:(?:s|ms|µs|ns|kB|MB|GB|TB|J|times|points|fold|seconds?|minutes?|hours?)\b|%)"
)
MEASURED = re.compile(rf"{NUMBER}[ -]?{UNIT}", re.IGNORECASE)
# What has the form of a measured number and is none, with the reason.
EXCEPTIONS = {
    r"\b(50|90|95) % (and 95 % )?(intervals?|of rows|of the training rows|quantile)"
    r"|intervals of 90 %|those 95 %|5 % level|(test|Nemenyi), 5 %|\(95 %\)": "a level",
    r"(within|more than) [12] %|the 2 % refer|(35|85|15) %": "a tolerance of the code",
    r"2 GB|(16|64|200|500) MB|200 seconds": "a limit of the code",
    r"(2\.4|6) GB|(8|260) MB": "follows from a formula beside it",
    r"four times the(m| features)|(8|and 4|10|eight) times|half the work": "a ratio",
    r"some tens of megabytes": "an order of magnitude",
    r"500 µs|18 % of the variance|every 10 ms": "a setting of an experiment",
    r"Five minutes": "of reading",
}


def text_of(page):
    """The prose and tables of a page, without code, formulas and rendered numbers."""
    text = unmarked(page.read_text(encoding="utf-8"))
    for pattern in (r"^ *```.*?^ *```", r"`[^`]*`", r"\$[^$]*\$", r"\]\([^)]*\)"):
        text = re.sub(pattern, " ", text, flags=re.M | re.S)
    return " ".join(text.split())


def typed(text):
    """The measured numbers of a text that stand outside of markers."""
    for pattern in EXCEPTIONS:
        text = re.sub(pattern, " ", text)
    return [
        text[max(0, m.start() - 50) : m.end() + 20] for m in MEASURED.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_rendered(page):
    text = page.read_text(encoding="utf-8")
    assert rendered(text, RECORDS) == text, "run: make numbers"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_measured_number_is_typed(page):
    assert typed(text_of(page)) == []


def test_exceptions_are_needed():
    text = " ".join(map(text_of, PAGES))
    assert [pattern for pattern in EXCEPTIONS if not re.search(pattern, text)] == []


@pytest.mark.parametrize(
    "text", ["took 68 s", "a sixth times", "1.8 points", "2,313 MB", "22 times", "5 %"]
)
def test_typed_numbers_are_found(text):
    assert typed(f"It was {text}.")
    assert not typed(unmarked(f"It was <!-- a: b as s -->{text}<!-- end -->."))


class Printed:
    """An experiment that prints one table."""

    name, title, command, Options = "printed", "A table.", "reproduce", CommonOptions

    @staticmethod
    def tables(results):
        rows = [("first", "1.5", ""), ("second", "2", "x")]
        return [TextTable("Errors of methods", ("method", "error", "sign"), rows)]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with a page, and a record of an experiment."""
    monkeypatch.setattr("randkern_lab.records.load", lambda name: Printed)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("Nothing measured.\n")
    folder = tmp_path / "benchmarks" / "some"
    folder.mkdir(parents=True)
    (tmp_path / "benchmarks" / "records.toml").write_text(
        '[some]\ncommand = "reproduce printed"\n'
    )
    results = {
        "records": [
            {"n": n, "seed": s, "error": n + s / 2} for n in (1, 4) for s in (0, 1)
        ],
        "best": {"a": {"error": 2.0}, "b": {"error": 3.0}},
        "notes": ["a | first note", "another"],
        "machine": {"cpu_count": 2, "processor": "x"},
        "provenance": {
            "date": "2026-01-02",
            "commit": "0123456789",
            "command": "randkern reproduce printed",
            "sources": {"a.py": "0"},
            "clean": True,
        },
        "seconds": 90,
    }
    (folder / "results.json").write_text(json.dumps(results))
    return tmp_path


def test_records_that_were_never_made_say_so(root):
    listed = root / "benchmarks" / "records.toml"
    listed.write_text(listed.read_text() + '[never]\ncommand = "reproduce printed"\n')
    records = quoted(root / "benchmarks")
    page = "It is <!-- never: error as .1f -->0<!-- end -->."
    assert rendered(page, records) == page.replace("-->0<", "-->not recorded<")
    for asked in (
        "table never: Errors",
        "notes never: first",
        "figure never: a.png, b",
    ):
        result = rendered(f"<!-- {asked} -->\n<!-- end -->", records)
        assert "the record never was never made" in result
    figure = rendered("<!-- figure some: a.png, A text -->\n<!-- end -->", records)
    assert "![A text](generated/records/some/a.png)" in figure
    index = rendered("<!-- index of records -->\n<!-- end -->", records)
    assert "1 of the 1 records" in index


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("some: error where n == 4 and seed == 1 as .2f", "4.50"),
        ("some: max(error) where n == 1 as .1p", "150.0"),
        ("some: mean(error) as .3f", "2.750"),
        ("some: mean(error) where n == 4 / mean(error) where n == 1 as .1f", "3.4"),
        ("some: max(error) - min(error) as .1f", "3.5"),
        ('some.best: error where key == "b" as d', None),
        ('some.best: error where key == "b" as .0f', "3"),
        ("some.seconds: seconds as duration", "90 s"),
        ("some: error as .1f", None),  # four different values
        ("some: best(error) as .1f", None),
        ("some: error where m == 4 as .1f", None),
        ("some: error where n == 5 as .1f", None),  # none at all
        ("other: error as .1f", None),
    ],
)
def test_numbers_are_selected_from_rows(root, asked, expected):
    page = f"A <!-- {asked} -->0<!-- end -->."
    records = quoted(root / "benchmarks")
    if expected is None:
        with pytest.raises(ValueError, match=re.escape(asked)):
            rendered(page, records)
    else:
        result = rendered(page, records)
        assert result == f"A <!-- {asked} -->{expected}<!-- end -->."
        assert rendered(result, records) == result


def test_tables_name_their_record_and_notes_are_selected(root):
    page = (
        "<!-- table some: of methods\ncolumns: method, error\n-->\n<!-- end -->\n"
        "<!-- notes some: first -->\n<!-- end -->\n"
        "<!-- index of records -->\n<!-- end -->\n"
    )
    result = rendered(page, quoted(root / "benchmarks"))
    assert "| method | error |\n| --- | ---: |\n| first | 1.5 |\n" in result
    assert "| second | 2 |\n\n*Record [some](" in result
    assert "2026-01-02, commit 012345678, 2 cores (x).*" in result
    assert "\n* a \\| first note\n\n<!-- end -->" in result
    assert "1 of the 1 records are older than the code" in result
    assert "| 90 s |" in result


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("A <!-- some: n as d -->0", "without its"),
        ("<!-- some: max(n) as d -->0<!-- end -->", "at the beginning of a line"),
        ("A <!-- notes some: first --><!-- end -->", "at the beginning of a line"),
        ("<!-- notes some: third --><!-- end -->", "no note"),
        ("<!-- table some: prices --><!-- end -->", "no title has these words"),
        ("<!-- table some: Errors\norder: D\n--><!-- end -->", "rows and columns"),
        ('<!-- table some: Errors\nrows: sign == "7"\n--><!-- end -->', "no rows"),
    ],
)
def test_markers_that_ask_for_what_is_not_there_are_errors(root, page, message):
    if message == "without its":
        page += "<!-- end --><!-- end -->"
    with pytest.raises(ValueError, match=message):
        rendered(page, quoted(root / "benchmarks"))


def test_the_command_writes_and_checks(root, capsys):
    page = root / "docs" / "a.md"
    page.write_text(
        "It took <!-- some.seconds: seconds as duration -->1 s<!-- end -->.\n"
    )
    with pytest.raises(typer.Exit):
        main(root, check=True)
    assert "a.md: its numbers differ from records" in capsys.readouterr().out
    assert "1 s" in page.read_text()
    main(root)
    assert "90 s" in page.read_text()
    main(root, check=True)
