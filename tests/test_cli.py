"""The command line: what it prints, writes and refuses."""

import importlib
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
from typer.testing import CliRunner

import randkern
from randkern import cli
from randkern.cli.console import start_of_process

QUICK = ("--kernels", "gaussian", "--n-components", "5,20", "--seeds", "2")


@pytest.fixture(scope="module")
def app():
    return cli._build_app()


def run(app, *arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def mixed_table():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 80
    weight = rng.uniform(1, 5, n)
    colour = rng.choice(["red", "green", "blue"], n)
    return pandas.DataFrame(
        {
            "weight": weight,
            "colour": colour,
            "fragile": rng.random(n) < 0.5,
            "constant": 1,
            "price": 10 * weight + 3 * (colour == "red") + rng.normal(0, 0.1, n),
            "sold": np.where(weight > 3, "yes", "no"),
        }
    )


def test_version(app):
    result = run(app, "--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"randkern {randkern.__version__}"


def test_help_lists_commands_and_options(app):
    assert "compare" in run(app, "--help").output
    text = run(app, "compare", "--help").output
    for option in (
        *("--data", "--data-dir", "--target", "--kernels", "--n-components"),
        *("--exact", "--no-exact", "--alpha", "--seeds", "--out"),
    ):
        assert option in text


@pytest.mark.slow
def test_compare_writes_results_and_figure(app, tmp_path):
    out = tmp_path / "new" / "folder"
    result = run(app, "compare", "--data", "breast-cancer", *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [(r["n_components"], r["seed"]) for r in results["records"]] == [
        *[(None, 0), *2 * [(5, 0), (5, 1), (20, 0), (20, 1)]]
    ]
    assert results["arguments"] == {
        "kernels": ["gaussian"],
        "n_components": [5, 20],
        "exact": True,
        "features": ["random", "nystrom"],
        "alpha": "auto",
        "n_seeds": 2,
        "memory_limit": None,
        "time_limit": 120,
        "metric": None,
        "data": "breast-cancer",
        "data_dir": None,
        "target": None,
        "task": None,
        "test": None,
        "format": {
            "categorical": [],
            "numeric": [],
            "drop": [],
            "decimal": ".",
            "thousands": None,
            "dayfirst": None,
            "text": [],
            "date_format": None,
            "sep": None,
            "header": 0,
            "skiprows": 0,
            "encoding": None,
            "na_values": [],
        },
        "groups": None,
        "time": None,
    }
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert str(out / "compare.png") in result.output


@pytest.mark.slow
def test_the_guess_says_why_and_what_changes_it(app, tmp_path, mixed_table):
    mixed_table["rings"] = np.arange(80) % 16
    path = tmp_path / "shells.csv"
    mixed_table.to_csv(path, index=False)
    for command in ("compare",):
        result = run(
            *(app, command, "--data", path, "--target", "rings", "--out", tmp_path),
            *("--kernels", "linear", "--n-components", "3"),
        )
        assert result.exit_code == 0, result.output
        assert (
            "classification of 'rings' with 16 classes, because it has only 16 "
            "different whole numbers; --task regression changes it\n"
        ) in result.output
        assert (
            "test rows: stratified 25% of the rows, seed 0; columns: 3" in result.output
        )
    result = run(
        *(app, "compare", "--data", path, "--target", "rings", "--out", tmp_path),
        *("--kernels", "linear", "--n-components", "3", "--task", "regression"),
    )
    assert "because" not in result.output


@pytest.mark.slow
def test_rows_of_another_file_validate_and_the_best_is_saved(
    app, tmp_path, mixed_table
):
    pandas = pytest.importorskip("pandas")
    train, test, saved = (tmp_path / name for name in ("a.csv", "b.csv", "best.skops"))
    mixed_table.to_csv(train, index=False)
    judges = mixed_table[:20][mixed_table.columns[::-1]]
    judges.to_csv(test, index=False)
    words = ("compare", "--data", train, "--target", "price", "--test", test)
    few = ("--kernels", "gaussian", "--n-components", "30", "--out", tmp_path)
    assert run(app, *words, *few, "--save", saved).exit_code == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (results["dataset"]["n_train"], results["dataset"]["n_test"]) == (80, 20)
    out = tmp_path / "predictions.csv"
    assert run(app, "predict", saved, test, "--out", out).exit_code == 0
    residual = pandas.read_csv(out)["prediction"] - judges["price"]
    error = float(np.sqrt((residual**2).mean()) / judges["price"].std(ddof=0))
    assert error == pytest.approx(min(r["test_error"] for r in results["records"]))
    test.write_text("weight,price\n1,2\n")
    result = run(app, *words)
    assert result.exit_code == 2
    assert "b.csv has no column" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernels", "gauss"), "unknown kernel 'gauss'; expected one of arc-cosine"),
        (("--kernels", "optical:-1"), "must be zero or a positive number"),
        (("--n-components", "0"), "positive integers"),
        (("--n-components", "1e3"), "positive integers"),
        (("--n-components", "", "--no-exact"), "nothing to compare"),
        (("--alpha", "big"), "auto or a positive number"),
        (("--alpha", "0"), "auto or a positive number"),
        (("--data", "nosuch"), "unknown data set 'nosuch'; expected one of digits"),
        (("--data", "nosuch.csv", "--target", "y"), "nosuch.csv"),
        (("--data", "mnist", "--data-dir", "nosuch"), "nosuch does not exist"),
        (("--data", "iris", "--task", "ranking"), "ranking"),
        (("--data", "iris", "--memory-limit", "5 apples"), "5 apples"),
        (("--data", "digits", "--metric", "r2"), "must be one of error, logloss, auc"),
        (("t.csv", "--data", "digits"), "--data 'digits', expected one of them"),
    ],
)
def test_bad_values_are_one_line(app, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run(app, "compare", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
    assert not (tmp_path / "randkern-compare" / "results.json").exists()


def test_unwritable_output_raises_before_the_work(app, tmp_path):
    (tmp_path / "file").write_text("")
    result = run(app, "compare", "--data", "iris", "--out", tmp_path / "file" / "x")
    assert result.exit_code == 2
    assert result.output.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_is_named(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from randkern.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert 'pip install "randkern[cli,plot]"' in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_a_time_limit_cuts_is_reported(app, tmp_path, monkeypatch):
    study = importlib.import_module("randkern.reporting.deadline")
    given = ("compare", "--data", "iris", "--out", tmp_path, *QUICK)
    whole = run(app, *given)
    assert "skipped" not in whole.output
    clock = itertools.count(4, 4)  # seconds for each look at the clock
    monkeypatch.setattr(study, "perf_counter", lambda: next(clock))
    began = start_of_process.set(0.0)
    result = run(app, *given, "--time-limit", 12)
    start_of_process.reset(began)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    # Few features come first, and what is measured is as without a limit.
    assert [each["n_components"] for each in found["records"]] == [5]
    told = " ".join(result.output.split())
    assert told.count("skipped ") == 1  # a line for all
    assert "exact" in told and "the time limit of 12 s is over" in told
    assert {note["n_components"] for note in found["skipped"]} == {None, 5, 20}


@pytest.mark.parametrize("limit", ["inf", "nan", "0"])
def test_time_limits_are_finite(app, limit):
    for command in (("fit", "x.csv", "--target", "y"), ("compare",)):
        result = run(app, *command, "--time-limit", limit)
        assert result.exit_code == 2
        assert "--time-limit" in result.output and "bug" not in result.output


@pytest.mark.slow
def test_without_matplotlib_there_is_still_a_table(app, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(app, "compare", "--data", "iris", *QUICK, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "matplotlib is not installed" in result.output
    assert (tmp_path / "results.json").exists()
    assert not (tmp_path / "compare.png").exists()


def test_compare_chooses_and_sorts_by_the_metric_and_fits_the_width(
    app, tmp_path, monkeypatch
):
    from randkern.cli import console

    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] + np.where(rng.random(150) < 0.1, 20.0, 0.0)
    file = tmp_path / "table.csv"
    np.savetxt(file, np.column_stack([X, y]), delimiter=",", header="a,b,c,y")
    file.write_text(file.read_text().lstrip("# "))
    options = ("--target", "y", "--n-components", "20", "--seeds", "1")
    options += ("--kernels", "rational-quadratic,linear", "--out", tmp_path)
    for metric in ("mae", "r2"):
        result = run(
            cli._build_app(), "compare", "--data", file, *options, "--metric", metric
        )
        assert result.exit_code == 0, result.output
        results = json.loads((tmp_path / "results.json").read_text())
        values = {}
        for record in results["records"]:
            values.setdefault(record["kernel"], []).append(record[metric])
        order = sorted(values, key=lambda name: min(values[name]))
        if metric == "r2":
            order = sorted(values, key=lambda name: -max(values[name]))
        lines = result.output.splitlines()
        rows = [line for line in lines if line.startswith("|")]
        names = [line.split("|")[1].strip() for line in rows]
        names = [name for name in names if name in values]
        assert list(dict.fromkeys(names)) == order
        record = results["records"][0]
        assert record["r2"] == pytest.approx(1 - record["test_error"] ** 2)
    monkeypatch.setattr(console, "PLAIN_COLUMNS", 60)
    narrow = run(
        cli._build_app(), "compare", "--data", file, *options
    ).output.splitlines()
    table = [line for line in narrow if line.startswith(("|", "+"))]
    assert len({*map(len, table)}) == 1 and len(table[0]) <= 60


def test_help_lists_every_kernel():
    from randkern.cli.options import Kernels
    from randkern.study.kernel_choices import KERNEL_NAMES

    (option,) = Kernels.__metadata__
    listed = option.help.removeprefix("Of ").removesuffix(".").split(", ")
    assert {name.partition("[")[0] for name in listed} == {*KERNEL_NAMES}
