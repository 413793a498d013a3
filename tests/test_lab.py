"""The runner of experiments: cases, journals, tables, figures, records."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import typer
from typer.testing import CliRunner

from randkern import cli
from randkern.exceptions import MemoryLimitError
from randkern_lab.cli import command_of_all, rich_table
from randkern_lab.options import CommonOptions, DataOptions, option
from randkern_lab.panels import Panel, Style, draw
from randkern_lab.process import in_fresh_process
from randkern_lab.records import main, read_records
from randkern_lab.runner import Experiment, Journal, SkippedCase, grid
from randkern_lab.tables import (
    Fitted,
    Listing,
    Pivot,
    Quantity,
    TextTable,
    aggregated,
    at_edges,
    edge_notes,
    fitted_power,
    groups,
    mean_interval,
    of,
    percent,
    render,
    skip_notes,
    text,
)


@dataclass(frozen=True)
class Options(DataOptions):
    sizes: tuple[int, ...] = option((1, 2, 3), "Sizes.", quick=(1,))
    loud: bool = option(True, "Say so.")


class Squares(Experiment):
    """Squares of sizes, of which 2 is not to be had."""

    name, title, Options = "squares", "Squares of sizes.", Options
    measured: ClassVar[list[int]] = []

    def prepare(self):
        return {"name": "whole numbers"}

    def cases(self):
        return grid(kind=["square"], size=self.options.sizes)

    def measure(self, case):
        self.measured.append(case["size"])
        if case["size"] == 2:
            raise SkippedCase("it is even")
        if case["size"] == 4:
            raise MemoryLimitError("it is large")
        if case["size"] == 5 and len(self.measured) < 10:
            raise KeyboardInterrupt
        return {"value": case["size"] ** 2, "seed": 0}

    def conclude(self, results):
        return {"total": sum(r["value"] for r in results["records"])}

    listed = (Listing("", "size | value", "{size} | {value:,}"),)
    panels = (Panel("size", "value", "kind", {"square": Style("square")}),)


@pytest.fixture(autouse=True)
def _nothing_measured():
    Squares.measured.clear()


@pytest.mark.nightly
def test_cases_become_records_or_reasons():
    calls = []
    options = Options(sizes=(1, 2, 3, 4))
    results = Squares.run(options, lambda *call: calls.append(call))
    kind = {"kind": "square"}
    assert results["records"] == [
        {**kind, "size": size, "value": size**2, "seed": 0} for size in (1, 3)
    ]
    assert [(s["size"], s["reason"]) for s in results["skipped"]] == [
        (2, "it is even"),
        (4, "it is large"),
    ]
    assert results["total"] == 10
    assert results["dataset"] == {"name": "whole numbers"}
    assert [call[:2] for call in calls] == [(i, 4) for i in range(5)]
    assert results["notes"][-1].startswith("all in ")


def test_a_run_that_was_interrupted_continues(tmp_path):
    journal = tmp_path / "journal"
    options = Options(sizes=(1, 3, 5))
    with pytest.raises(KeyboardInterrupt):
        Squares.run(options, journal=journal)
    assert Squares.measured == [1, 3, 5]
    # A line that was cut short counts for nothing.
    journal.write_text(journal.read_text() + '{"case": "{')
    Squares.measured[:] = [0] * 10
    results = Squares.run(options, journal=journal)
    assert Squares.measured[10:] == [5]
    assert [r["value"] for r in results["records"]] == [1, 9, 25]
    assert not journal.exists()


def test_lines_after_a_truncated_line_are_read(tmp_path):
    path = tmp_path / "journal"
    Journal(path, "key").keep({"n": 1}, {"records": []})
    path.write_text(path.read_text() + '{"case": "{')
    Journal(path, "key").keep({"n": 2}, {"records": []})
    assert Journal(path, "key").recall({"n": 1}) is not None
    assert Journal(path, "key").recall({"n": 2}) is not None


def test_the_journal_of_another_run_is_not_continued(tmp_path):
    journal = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        Squares.run(Options(sizes=(1, 5)), journal=journal)
    Squares.measured[:] = [0] * 10
    Squares.run(Options(sizes=(1, 3)), journal=journal)
    assert Squares.measured[10:] == [1, 3]


def test_options_are_checked_and_shortened():
    assert Options(quick=True).sizes == (1,)
    assert Options(quick=True, sizes=(7, 8)).sizes == (7, 8)
    with pytest.raises(ValueError, match="sizes must be 1 or more, got 0"):
        Options(sizes=(1, 0))
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        CommonOptions(seed=-1)


def test_the_command_line_names_what_differs_and_no_directory(tmp_path):
    options = Options(sizes=(4, 5), loud=False, data_dir=tmp_path)
    line = "randkern reproduce squares --data-dir DIR --sizes 4,5 --no-loud"
    assert Squares.command_line(options) == line
    assert Squares.command_line(Options(quick=True)) == (
        "randkern reproduce squares --quick"
    )
    results = Squares.run(Options(sizes=(1,), data_dir=tmp_path))
    assert results["arguments"]["data_dir"] == "DIR"
    assert str(tmp_path) not in json.dumps(results)


# -- tables and figures -------------------------------------------------------------

RECORDS = [
    {"kernel": kernel, "n_components": size, "seed": seed, "e": seed + (size or 0)}
    for kernel in ("b", "a")
    for size in (30, None, 4)
    for seed in (0, 1)
]


def table_of(declared, records=RECORDS, **results):
    (table,) = render({"records": records, **results}, [declared])
    return table


@pytest.mark.parametrize(
    "cell", ["{e:.1f}", Quantity("e", ".1f"), lambda g: f"{g.e.mean():.1f}"]
)
def test_pivots_are_sorted_with_the_exact_kernel_last(cell):
    table = table_of(Pivot("t", "n_components", "kernel", cell))
    assert table.columns == ("D", "b", "a")
    assert table.rows == [
        ("4", "4.5", "4.5"),
        ("30", "30.5", "30.5"),
        ("exact", "0.5", "0.5"),
    ]


@pytest.mark.parametrize(
    ("headings", "shown"),
    [
        ({"a": "first", "c": "none", "b": "second"}, ("first", "second")),
        (("a", "c", "b"), ("a", "b")),
    ],
)
def test_headings_choose_columns_and_empty_cells_stay_empty(headings, shown):
    records = [r for r in RECORDS if (r["kernel"], r["n_components"]) != ("a", 4)]
    counted = Pivot("t", "n_components", "kernel", lambda g: str(len(g)), headings)
    table = table_of(counted, records)
    assert table.columns == ("D", *shown)
    assert table.rows[0] == ("4", "", "2")


def test_listings_leave_out_what_no_record_has():
    records = [{"kernel": "a", "e": 0.5}, {"kernel": "b", "e": None}]
    listed = Listing("", "kernel | error | seconds", "{kernel} | {e:.2p} | {s:.1f}")
    table = table_of(listed, records)
    assert table.columns == ("kernel", "error")
    assert table.rows == [("a", "50.00"), ("b", "")]


def test_titles_are_of_the_results_and_of_the_first_record():
    title = Fitted("{dataset[name]}: {kernel}, D = {n_components:count}")
    listed = Listing(title, "kernel | e", "{kernel} | {e}", where={"kernel": "a"})
    table = table_of(listed, dataset={"name": "digits"})
    assert table.title == "digits: a, D = 30"
    assert isinstance(table.title, Fitted)
    assert table.columns == ("kernel", "e")


def test_records_are_chosen_by_values_and_by_functions_of_them():
    most = Listing("", "e", "{e}", where={"n_components": max, "seed": 0})
    assert table_of(most).rows == [("30",), ("30",)]
    derived = Listing("", "d", "{d}", records=lambda results: [{"d": len(results)}])
    assert table_of(derived).rows == [("1",)]
    nothing = Listing("", "e", "{e}", where={"kernel": "c"})
    assert render({"records": RECORDS}, [nothing]) == []


def test_tables_of_each_value_are_together():
    listed = [Listing(f"{{kernel}} {i}", "e", "{e}", per="kernel") for i in (1, 2)]
    tables = render({"records": RECORDS}, [*listed, Listing("all", "e", "{e}")])
    assert [t.title for t in tables] == ["b 1", "b 2", "a 1", "a 2", "all"]


def test_templates_have_texts_for_what_is_missing():
    assert text("{a:.2f}, {b:count}, {c}", {"a": None, "b": None}) == ", exact, "


def test_numbers_become_texts():
    sizes = {"n": 1000, "D": None, "error": 0.125}
    assert text("{n:count}, {D:count}: {error:.2p} %", sizes) == "1,000, exact: 12.50 %"
    shares = [percent(0.0312), percent(0.0312, 0.001), percent(0.00031), percent(None)]
    assert shares == ["3.12 %", "3.12 ± 0.10 %", "0.031 %", ""]


def test_records_are_chosen_and_grouped_in_their_order():
    records = [{"n": 1, "seed": 0}, {"n": 2, "seed": 0}, {"n": 1, "seed": 1}]
    assert of(records, n=2) == [records[1]]
    assert of(records, seed=0, n=min) == [records[0]]
    found = list(groups(records, "n"))
    assert found == [({"n": 1}, records[::2]), ({"n": 2}, [records[1]])]


def test_notes_report_edges_and_reasons_once():
    chosen = {"alpha": 1.0, "bias": 2.0}
    assert at_edges(chosen, {"alpha": [0.1, 1.0], "bias": [2.0]}) == ["alpha"]
    told = ["warning, gaussian: the best alpha is at the edge of its grid"]
    assert edge_notes("gaussian", ["alpha"]) == told
    assert edge_notes("gaussian", []) == []
    notes = [{"method": "svc", "n_components": d, "reason": "big"} for d in (1, 2)]
    told = ["skipped svc, D = 1, 2: big"]
    assert skip_notes({"skipped": notes}, "method", "n_components") == told


def test_powers_means_and_intervals():
    assert fitted_power([1, 4, 16], [8.0, 4.0, 2.0]) == pytest.approx(-0.5)
    assert fitted_power([1], [8.0]) is None
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.484, 4.484), 1e-3)
    records = [{"D": 8, "seed": seed, "error": 0.5 * seed} for seed in (0, 1)]
    mean = {"D": 8, "n_seeds": 2, "error": 0.25}
    assert aggregated(records, ["D"], mean=["error"]) == [mean]


def test_tables_are_plain_where_redirected():
    shown = rich_table(TextTable("t", ("a", "b"), [("1", "2")], "c"), plain=True)
    assert (shown.row_count, shown.caption) == (1, "c")


def test_curves_are_means_and_records_without_x_are_levels():
    pytest.importorskip("matplotlib")
    panel = Panel(
        "n_components", "e", "kernel", {"a": Style("a")}, where={"kernel": "a"}
    )
    (axes,) = draw({"records": RECORDS}, [panel]).axes
    curve = axes.lines[0]
    assert curve.get_xydata().tolist() == [[4, 4.5], [30, 30.5]]
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_zorder() == 1]
    assert levels == [0.5]
    assert axes.get_xscale() == "log"


def test_panels_without_values_are_left_out():
    pytest.importorskip("matplotlib")
    styles = {"a": Style("a")}
    panels = [Panel("n_components", key, "kernel", styles) for key in ("e", "joules")]
    assert len(draw({"records": RECORDS}, panels).axes) == 1


def test_curves_may_be_of_several_keys():
    pytest.importorskip("matplotlib")
    error = Quantity("e", label="error of {n}", log=False, scale=10)
    styles = {("a", 1): Style("one", "red"), ("b", 0): Style("zero", "blue")}
    panel = Panel("n_components", error, ("kernel", "seed"), styles, title="{kernel}")
    (axes,) = draw({"records": RECORDS, "n": 5}, [panel]).axes
    curves = [line.get_xydata().tolist() for line in axes.lines[::2]]
    assert curves[:2] == [[[4, 50], [30, 310]], [[4, 40], [30, 300]]]
    assert (axes.get_ylabel(), axes.get_title()) == ("error of 5", "b")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


# -- processes ----------------------------------------------------------------------


@pytest.mark.slow
def test_work_of_a_new_process_is_answered_and_measured(monkeypatch):
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    found = in_fresh_process(_double, {"x": 21})
    assert found["double"] == 42
    assert found["peak_memory_bytes"] > 10e6
    with pytest.raises(ValueError, match="no x"):
        in_fresh_process(_double, {})


def _double(request):
    if "x" not in request:
        raise ValueError("no x")
    return {"double": 2 * request["x"]}


# -- records ------------------------------------------------------------------------

LISTED = """
[curve]
command = "reproduce optical-convergence --quick"

[never]
command = "bench svm"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "records.toml").write_text(LISTED)
    (tmp_path / "curve").mkdir()
    return tmp_path


def record(folder):
    origin = {"commit": "abcdef012345", "clean": True, "date": "2026-02-01"}
    results = {"seconds": 12.0, "provenance": origin}
    (folder / "curve" / "results.json").write_text(json.dumps(results))
    return next(iter(read_records(folder)))


def test_records_are_listed_with_age_and_cost(folder, capsys):
    record(folder)
    main(folder)
    assert capsys.readouterr().out == (
        "never: never made\ncurve: 2026-02-01, commit abcdef012, took 12 s\n"
    )
    with pytest.raises(typer.Exit):
        main(folder, ["curves"])
    assert "no such record" in capsys.readouterr().err


@pytest.mark.slow
def test_a_record_that_fails_does_not_stop_the_others(folder, capfd):
    listed = LISTED + '\n[broken]\ncommand = "bench svm --data nowhere"\n'
    (folder / "records.toml").write_text(listed)
    record(folder)
    with pytest.raises(typer.Exit):
        main(folder, ["curve", "broken"], rerun=True)
    said = capfd.readouterr()
    assert "== broken (1 of 2)" in said.out and "== curve (2 of 2)" in said.out
    assert "broken failed; the others were made" in said.err
    results = json.loads((folder / "curve" / "results.json").read_text())
    assert results["records"] and results["provenance"]["date"] > "2026-02-01"
    assert (folder / "curve" / "optical-convergence.png").exists()
    assert not (folder / "curve" / "journal.jsonl").exists()


def test_only_records_that_fit_into_the_hours_are_run(folder, capsys, monkeypatch):
    record(folder)
    monkeypatch.setattr("subprocess.run", None)
    main(folder, rerun=True, hours=0.003)
    printed = capsys.readouterr().out
    assert "never does not fit into the hours" in printed
    assert "curve does not fit into the hours" in printed


@pytest.mark.nightly
def test_results_and_figures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    written = Squares.write(Squares.run(Options(sizes=(1, 3))), tmp_path)
    assert [path.name for path in written] == ["results.json", "squares.png"]


# -- the command --------------------------------------------------------------------


def test_commands_are_found_by_entry_points():
    app = cli._build_app()
    for name in ("reproduce", "bench"):
        done = CliRunner().invoke(app, [name, "--help"])
        assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["reproduce", "--help"]).output
    assert "optical-ridge" in shown and "In turn, each in a folder" in shown


class Impossible(Squares):
    name = "impossible"

    def prepare(self):
        raise ValueError(f"no data in {self.options.data_dir}")


def test_all_experiments_run_in_turn_and_failures_stop_none(tmp_path):
    app = typer.Typer()
    app.command()(command_of_all([Impossible, Squares]))
    arguments = ["--quick", "--data-dir", str(tmp_path), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert f"error: no data in {tmp_path}\n== squares" in done.output
    assert done.output.endswith("error: impossible did not run\n")
    results = json.loads((tmp_path / "squares" / "results.json").read_text())
    assert results["arguments"]["quick"] and Squares.measured == [1]


@pytest.mark.parametrize("arguments", [["reproduce"], ["bench", "svm", "--quick"]])
def test_commands_without_the_lab_name_the_extra(monkeypatch, arguments):
    monkeypatch.setattr(cli, "entry_points", lambda group: ())
    done = CliRunner().invoke(cli._build_app(), arguments)
    assert done.exit_code == 2
    assert f"what runs `randkern {arguments[0]}` is not installed" in done.output
    assert 'pip install "randkern[lab]"' in done.output
    assert done.output.count("\n") == 1


@pytest.mark.slow
def test_commands_without_pandas_name_the_extra():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "sys.argv = ['randkern', 'reproduce', 'optical-ridge']\n"
        "from randkern.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "randkern reproduce needs pandas" in done.stderr
    assert 'pip install "randkern[lab]"' in done.stderr
    assert done.stderr.count("\n") == 1
