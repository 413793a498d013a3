"""Measured numbers of README and docs are those of records, and none is typed."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import typer

from randkern_lab.render import main, pages, quoted, rendered, unmarked

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
    ],
    "benchmark_tables.md": [
        "(Nemenyi test, 5 %)",
        "(Nemenyi, 5 %;",
        "intervals of 90 %",
        "of 90 % intervals",
    ],
    "command_line.md": [
        "contain the target for 90 % of rows",
        "less than 20 seconds per kernel",
    ],
    "dask.md": ["a sample of at most 16 MB", "(at most 64 MB)"],
    "exact_limit.md": [
        "(by default 2 GB)",
        "within 2 % of its minimum",
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
    "deployment.md": ["(8 MB for 1,000 landmarks)"],
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


def test_pages_are_as_rendered():
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    old = [page for page, text in texts.items() if rendered(text, RECORDS) != text]
    assert not old, "run: make numbers"


def test_markers_in_tables_have_no_bars():
    for page in PAGES:
        rows = re.findall(r"^\|.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
        wrong = [row for row in rows if re.search(r"<!--[^>]*\|[^>]*-->", row)]
        assert not wrong, page.name


def test_no_measured_number_is_typed():
    for page in PAGES:
        assert typed(text_of(page), EXCEPTIONS.get(page.name, ())) == [], page.name


def test_typed_numbers_are_found():
    assert typed("It was 2.5× faster.") and typed("It took a sixth times 68 s.")
    assert not typed(unmarked("It was <!-- a -->5 %<!-- end -->."))


@pytest.fixture
def root(tmp_path):
    """A repository with a page, and a record."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("Nothing measured.\n")
    folder = tmp_path / "benchmarks"
    (folder / "some").mkdir(parents=True)
    listed = '[some]\ncommand = "reproduce a"\n[never]\ncommand = "reproduce b"\n'
    (folder / "records.toml").write_text(listed)
    rows = [{"n": n, "seed": s, "error": n + s / 2} for n in (1, 4) for s in (0, 1)]
    best = {"a": {"error": 2.0}, "b": {"error": 3.0}}
    results = {"records": rows, "best": best, "seconds": 90}
    (folder / "some" / "results.json").write_text(json.dumps(results))
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("f(r('some').records('n == 4 and seed == 1').error, '.2f')", "4.50"),
        ("f(r('some').records().error.mean(), '.3f')", "2.750"),
        ("f(r('some').best(\"key == 'b'\").error, '.0f')", "3"),
        ("duration(r('some').seconds)", "90 s"),
        ("percent(r('never').records().error)", None),
        ("percent(r('some').records().error)", None),  # four different values
        ("percent(r('some').records('n == 5').error)", None),  # none at all
        ("duration(r('other').seconds)", None),
    ],
)
def test_numbers_are_selected_from_rows(root, asked, expected):
    page, records = f"A <!-- {asked} -->0<!-- end -->.", quoted(root / "benchmarks")
    if expected is None:
        with pytest.raises(ValueError, match=re.escape(asked)):
            rendered(page, records)
    else:
        result = rendered(page, records)
        assert result == page.replace(">0<", f">{expected}<")
        assert rendered(result, records) == result


def test_the_command_writes_and_checks(root, capsys):
    page = root / "docs" / "a.md"
    page.write_text("It took <!-- duration(r('some').seconds) -->1 s<!-- end -->.\n")
    with pytest.raises(typer.Exit):
        main(root, check=True)
    assert "a.md: its numbers differ from records" in capsys.readouterr().out
    assert "1 s" in page.read_text()
    main(root)
    assert "90 s" in page.read_text()
    main(root, check=True)
