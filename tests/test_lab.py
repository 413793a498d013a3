"""Experiments and benchmarks: every one in its quick form, the runner, the commands."""

import json
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
import pandas as pd
import typer
from typer.testing import CliRunner

from randkern import cli
from randkern.exceptions import MemoryLimitError
from randkern_lab.catalogue import BENCHMARKS, EXPERIMENTS, load
from randkern_lab.cli import bench, command_of_all
from randkern_lab.figures import Style, curves, panels
from randkern_lab.options import DataOptions, option
from randkern_lab.process import in_fresh_process
from randkern_lab.records import main, read_records
from randkern_lab.runner import (
    SkippedCase,
    frame_of,
    grid,
    measure_all,
    names_of,
    run,
    write,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
QUICK = {"optical-convergence"}


# -- every experiment in its quick form ------------------------------------------------


def documented():
    """All that the pages of papers and benchmarks set as code."""
    pages = [*DOCS.glob("paper*.md"), *DOCS.glob("benchmark*.md"), DOCS / "gpu.md"]
    return {
        word
        for page in pages
        for code in re.findall(r"`([^`\n]+)`", page.read_text("utf-8"))
        for word in re.findall(r"[\w.-]+", code)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly)
        for name in EXPERIMENTS
    ],
)
def test_every_experiment_runs_prints_and_draws(name, tmp_path):
    check_quick_form(name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "tables"])
def test_every_benchmark_runs_prints_and_draws(name, tmp_path):
    if name == "gpu":
        pytest.importorskip("torch")
    check_quick_form(name, tmp_path)


def check_quick_form(name, folder):
    script = load(name)
    results = run(script, script.Options(quick=True))
    assert results["records"]
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    keys = {*results, *(key for record in results["records"] for key in record)}
    assert keys - documented() == set()
    tables = list(script.tables(frame_of(results)))
    assert tables and all(len(table) for table in tables)
    assert all(isinstance(cell, str) for t in tables for cell in t.to_numpy().flat)
    assert all(path.is_file() for path in write(script, results, folder))
    assert list(folder.glob("*.png"))
    origin, (group, _) = results["provenance"], names_of(script.Options)
    assert origin["command"].startswith(f"randkern {group} {name} --quick")
    assert results["machine"]["processor"] and origin["date"]


@pytest.mark.nightly
def test_tables_of_files(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=90), "b": rng.choice(list("xyz"), 90)})
    X["target"] = np.sin(3 * X["a"]) + (X["b"] == "x")
    X["fold"] = np.arange(90) % 3
    X.to_csv(tmp_path / "wavy.csv", index=False)
    script = load("tables")
    results = run(script, script.Options(folder=tmp_path, time_limit=0.3, folds=2))
    assert results["records"] and script.figure(frame_of(results)).axes


def test_bars_of_equal_values_have_no_length():
    figure, (axes,) = panels(1)
    frame = pd.DataFrame({"method": "a", "n": 1, "value": [0.1] * 3})
    styles = {"a": Style("a")}
    curves(axes, frame, "n", "value", styles, bars="spread", log="")
    assert len(axes.containers) == 1  # the mean of three 0.1 is above 0.1


# -- the runner ------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(DataOptions):
    sizes: tuple[int, ...] = option((1, 2, 3), "Sizes.", quick=(1,))
    loud: bool = option(True, "Say so.")
    kinds: tuple[str, ...] = option(("even", "odd"), "Kinds.", among=("even", "odd"))


MEASURED = []


def square(case):
    MEASURED.append(case["size"])
    if case["size"] == 2:
        raise SkippedCase("it is even")
    if case["size"] == 4:
        raise MemoryLimitError("it is large")
    if case["size"] == 5 and len(MEASURED) < 3:
        raise KeyboardInterrupt
    return {"value": case["size"] ** 2, "seed": 0}


def squares(options):
    cases = grid(kind=["square"], size=options.sizes)
    records = measure_all(options, cases, square)
    records.attrs["dataset"] = {"name": "whole numbers"}
    return records


def script_of(name, work):
    """A script that draws and prints nothing."""
    nothing = {"tables": lambda frame: [], "figure": lambda frame: {}}
    own = type("Options", (Options,), {"__module__": f"papers.{name}"})
    return SimpleNamespace(__doc__="Of sizes.", Options=own, run=work, **nothing)


SQUARES = script_of("squares", squares)


@pytest.fixture(autouse=True)
def _nothing_measured():
    MEASURED.clear()


def test_cases_become_records_or_reasons():
    results = run(SQUARES, SQUARES.Options(sizes=(1, 2, 3, 4)))
    assert results["records"] == [
        {"kind": "square", "size": size, "value": size**2, "seed": 0} for size in (1, 3)
    ]
    reasons = [s["reason"] for s in results["skipped"]]
    assert reasons == ["it is even", "it is large"]
    assert results["dataset"] == {"name": "whole numbers"}
    assert results["provenance"]["command"] == (
        "randkern reproduce squares --sizes 1,2,3,4"
    )


def test_an_interrupted_run_continues(tmp_path):
    options = SQUARES.Options(sizes=(1, 5), out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(SQUARES, options)
    results = run(SQUARES, options)
    assert MEASURED == [1, 5, 5]
    assert [r["value"] for r in results["records"]] == [1, 25]
    assert list(tmp_path.iterdir()) == []


def test_options_are_checked():
    assert Options(quick=True).sizes == (1,)
    with pytest.raises(ValueError, match="sizes must be 1 or more, got 0"):
        Options(sizes=(0,))
    with pytest.raises(ValueError, match="kinds must be of even, odd, got 'prime'"):
        Options(kinds=("prime",))
    assert Options(sizes=(3, 1, 3), kinds=("odd", "even")) == Options(sizes=(1, 3))


@pytest.mark.slow
def test_work_of_a_new_process_is_answered_and_measured():
    answer = in_fresh_process(dict, {"x": 4})
    assert answer["x"] == 4 and answer["peak_memory_bytes"] > 1e7
    with pytest.raises(SkippedCase, match="at least one data point"):
        in_fresh_process(statistics.mean, {})


# -- records ---------------------------------------------------------------------------

LISTED = """
[curve]
command = "reproduce optical-convergence --quick"

[broken]
command = "bench classifiers --data nowhere"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "records.toml").write_text(LISTED)
    (tmp_path / "curve").mkdir()
    origin = {"commit": "abcdef012345", "clean": True, "date": "2026-02-01"}
    results = {"seconds": 12.0, "provenance": origin}
    (tmp_path / "curve" / "results.json").write_text(json.dumps(results))
    return tmp_path


def test_records_are_listed_with_age_and_cost(folder, capsys):
    main(folder)
    assert capsys.readouterr().out == (
        "broken: never made\ncurve: 2026-02-01, commit abcdef012, took 12 s\n"
    )
    with pytest.raises(typer.Exit):
        main(folder, ["curves"])
    assert "no such record" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_record_that_fails_does_not_stop_the_others(folder, capfd):
    with pytest.raises(typer.Exit):
        main(folder, rerun=True)
    assert "broken failed; the others were made" in capfd.readouterr().err
    results = json.loads((folder / "curve" / "results.json").read_text())
    assert results["provenance"]["date"] > "2026-02-01"
    assert next(iter(read_records(folder))).name == "curve"


# -- the commands ----------------------------------------------------------------------


def test_commands_are_found_by_entry_points():
    app = cli._build_app()
    for name, listed in (("reproduce", "optical-ridge"), ("bench", "features")):
        done = CliRunner().invoke(app, [name, "--help"])
        assert done.exit_code == 0 and listed in done.output


def impossible(options):
    raise ValueError(f"no data in {options.data_dir}")


def test_all_experiments_run_in_turn_and_failures_stop_none(tmp_path):
    app = typer.Typer()
    app.command()(command_of_all([script_of("impossible", impossible), SQUARES]))
    arguments = ["--quick", "--data-dir", str(tmp_path), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert f"error: no data in {tmp_path}\n== squares" in done.output
    assert done.output.endswith("error: impossible did not run\n")
    assert (tmp_path / "squares" / "results.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "optical-rigde"], "optical-ridge"),
        (["reproduce", "optical-ridge", "--quick", "--seeds", "0"], "seeds must be 1"),
        (["reproduce", "optical-ridge", "--curves", "cubic"], "curves"),
        (["reproduce", "compositional-tables", "--data", "iris"], "got 'iris'"),
        (["reproduce", "optical-ridge", "--data", "own.csv.gz"], "got 'own.csv.gz'"),
        (["bench", "features", "--families", "cubic"], "families must be of"),
        (["bench", "classifiers", "--data", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path):
    if "--help" not in arguments and len(arguments) > 2:
        arguments = [*arguments, "--out", str(tmp_path)]
    done = CliRunner().invoke(cli._build_app(), arguments)
    assert done.exit_code == 2
    said = [line for line in done.output.splitlines() if "error" in line.lower()]
    assert len(said) == 1 and message in done.output


@pytest.mark.parametrize(
    "arguments", [["reproduce"], ["bench", "classifiers", "--quick"]]
)
def test_commands_without_the_lab_name_the_extra(monkeypatch, arguments):
    monkeypatch.setattr(cli, "entry_points", lambda group: ())
    done = CliRunner().invoke(cli._build_app(), arguments)
    assert done.exit_code == 2
    assert 'pip install "randkern[lab]"' in done.output


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
    assert 'pip install "randkern[lab]"' in done.stderr


def test_earlier_names_still_work():
    result = CliRunner().invoke(bench, ["ridge", "--help"])
    assert result.exit_code == 0
    assert "--methods" in result.output
