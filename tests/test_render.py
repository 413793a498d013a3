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
    r"(?:(?:s|ms|µs|ns|min|h|[kKMGT]i?B|k?J|W|x|times|points|fold|percent|seconds?"
    r"|minutes?|hours?|days?)\b|%|×(?! ?\d))"
)
MEASURED = re.compile(rf"{NUMBER}[ -]?{UNIT}", re.IGNORECASE)
# Phrases of a page with what has the form of a measured number and is none: levels of
# tests and intervals, limits and tolerances of the code, settings of experiments, and
# what follows from a formula beside it.
EXCEPTIONS = {
    "architecture.md": ["The default limit is fixed, 2 GB"],
    "benchmark_gp.md": ["(of 95 % intervals), (of 50 % intervals)"],
    "benchmark_ridge.md": [
        "with 2,048 features, within 200 MB",
        "a million rows of 64 columns take 260 MB",
        "read every 10 ms",
    ],
    "benchmark_tables.md": [
        "(Nemenyi test, 5 %)",
        "(Nemenyi, 5 %;",
        "intervals of 90 %",
        "of 90 % intervals",
    ],
    "command_line.md": ["contain the target for 90 % of rows"],
    "dask.md": ["a sample of at most 16 MB", "(at most 64 MB)"],
    "exact_limit.md": [
        "(by default 2 GB)",
        "within 2 % of its minimum",
        "within 1 % of the smallest",
    ],
    "gaussian_processes.md": [
        "a quarter of them and from four times them",
        "inside 50 % and 95 % intervals",
        "the limit of 200 seconds of CPU time",
    ],
    "how_many_features.md": ["half the error takes four times the features"],
    "hypothesis_tests.md": ["the 5 % level"],
    "index.md": ["Five minutes: install, fit, compare"],
    "optics.md": [
        "some tens of megabytes",
        "more than 2 % of the counts are saturated",
        "a frame of 500 µs",
        "30 W, whatever the number of outputs",
        "100,000 counts take 6 GB",
    ],
    "out_of_core.md": ["a uniform sample of 16 MB"],
    "paper_compositional.md": [
        "95 % quantile",
        "(95 % interval)",
        "its 95 % interval",
        "within 2 % of the labels' variance",
        "18 % of the variance",
        "(95 %)",
    ],
    "paper_fourier_svm.md": ["with 10 times the ."],
    "paper_optical.md": ["500 µs per row and 30 W"],
    "penalties.md": ["the best of ¼, ½, 1, 2 and 4 times the"],
    "persistence.md": ["(8 MB for 1,000 landmarks)"],
    "projections.md": ["streamed (over 500 MB)"],
    "support_vector_machines.md": ["a factor of it: 2.4 GB for 10,000 rows"],
}


def text_of(page):
    """The prose and tables of a page, without code, formulas and rendered numbers."""
    text = unmarked(page.read_text(encoding="utf-8"))
    for pattern in (r"^ *```.*?^ *```", r"`[^`]*`", r"\$[^$]*\$", r"\]\([^)]*\)"):
        text = re.sub(pattern, " ", text, flags=re.M | re.S)
    return " ".join(text.split())


def typed(text, exceptions=()):
    """The measured numbers of a text that stand outside of markers."""
    for phrase in exceptions:
        text = text.replace(phrase, " ")
    return [
        text[max(0, m.start() - 50) : m.end() + 20] for m in MEASURED.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_rendered(page):
    text = page.read_text(encoding="utf-8")
    assert rendered(text, RECORDS) == text, "run: make numbers"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_measured_number_is_typed(page):
    assert typed(text_of(page), EXCEPTIONS.get(page.name, ())) == []


def test_exceptions_are_needed():
    texts = {page.name: text_of(page) for page in PAGES}
    unused = [
        (name, phrase)
        for name, phrases in EXCEPTIONS.items()
        for phrase in phrases
        if phrase not in texts[name] or not typed(phrase)
    ]
    assert unused == []


@pytest.mark.parametrize(
    "text",
    [
        *("took 68 s", "a sixth times", "1.8 points", "2,313 MB", "22 times", "5 %"),
        *("2 GB", "3x faster", "2.5× faster", "8 times", "15 %", "1.5 h", "90 min"),
        *("4 GiB", "30 W", "12 percent"),
    ],
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
        tables = [("a", "1.50", "0.50"), ("b", "0.10", "0.10"), ("c", "2.00", "")]
        return [
            TextTable("Errors of methods", ("method", "error", "sign"), rows),
            TextTable("By table", ("table", "ours", "theirs"), tables),
        ]

    @staticmethod
    def notes(results):
        return ["a | first note", f"{results['seconds']} seconds"]


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
        "notes": ["a first note, in old words"],
        "machine": {"cpu_count": 2, "processor": "x"},
        "provenance": {
            "date": "2026-01-02",
            "commit": "0123456789",
            "command": "randkern reproduce printed",
            "sources": {"a.py": "0"},
            "clean": True,
        },
        "seconds": 90,
        "peak_memory_bytes": 2_000_000_000,
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
    # Notes are written anew, as tables are: records do not fix their words.
    assert "\n* a \\| first note\n\n<!-- end -->" in result
    assert "| 90 s | 2.0 GB |" in result


def test_notes_of_older_records_keep_their_words(root, monkeypatch):
    monkeypatch.setattr(Printed, "notes", staticmethod(lambda results: results["new"]))
    page = "<!-- notes some: first -->\n<!-- end -->\n"
    assert "* a first note, in old words" in rendered(page, quoted(root / "benchmarks"))


def test_the_best_number_of_a_row_is_bold(root):
    page = "<!-- table some: By table\nbest: least\n-->\n<!-- end -->\n"
    result = rendered(page, quoted(root / "benchmarks"))
    assert "| a | 1.50 | **0.50** |\n| b | **0.10** | **0.10** |\n" in result
    assert "| c | **2.00** |  |" in result
    greatest = rendered(page.replace("least", "greatest"), quoted(root / "benchmarks"))
    assert "| a | **1.50** | 0.50 |" in greatest


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("A <!-- some: n as d -->0", "without its"),
        ("<!-- some: max(n) as d -->0<!-- end -->", "at the beginning of a line"),
        ("A <!-- notes some: first --><!-- end -->", "at the beginning of a line"),
        ("<!-- notes some: third --><!-- end -->", "no note"),
        ("<!-- table some: prices --><!-- end -->", "no title has these words"),
        (
            "<!-- table some: Errors\norder: D\n--><!-- end -->",
            "rows, columns and best",
        ),
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
