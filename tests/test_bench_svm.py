"""The benchmark of support vector machines: its records, table, figure and command."""

import json
import sys

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")


from _lab import COMMON, in_this_process
from randkern_lab.benchmarks import svm
from randkern_lab.benchmarks.rows import RowOptions, load_rows
from randkern_lab.process import in_fresh_process

pytestmark = pytest.mark.slow

RECORD = {
    *("method", "label", "n_train", "n_components", "test_accuracy", "test_error"),
    *("train_seconds", "train_cpu_seconds", "predict_seconds", "warm_up_seconds"),
    *("process_seconds", "n_support", "duality_gap"),
    *("peak_memory_bytes", "peak_anonymous_bytes"),
}


@pytest.fixture(scope="module")
def results():
    """Of a run whose fits are all in this process, which is quicker."""

    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        return svm.Machines.run(
            svm.Options(
                n_components=(300, 600),
                lengthscale="2",
                n=400,
                n_test=300,
                exact_rows=200,
                no_peer_above=300,
            )
        )


def test_documented_keys(results):
    assert set(results) == COMMON
    assert all(set(record) == RECORD for record in results["records"])
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert results["skipped"] == [
        {
            "method": "linear-svc",
            "n_components": 600,
            "n_train": 400,
            "reason": "it was asked for up to 300 features only",
        }
    ]


def test_contenders_agree(results):
    """About: the machines on features have draws of their own."""
    own = {(r["method"], r["n_components"]): r for r in results["records"]}
    assert own["features", 600]["test_accuracy"] > 0.93
    for pair in (("features", 300), ("linear-svc", 300)), (("exact", None),) * 2:
        accuracies = [own[key]["test_accuracy"] for key in pair]
        assert abs(accuracies[0] - accuracies[1]) < 0.05
    assert own["exact", None]["n_train"] == own["svc", None]["n_train"] == 200
    assert abs(own["exact", None]["test_error"] - own["svc", None]["test_error"]) < 0.06
    assert own["features", 300]["duality_gap"] < 1e-4
    assert own["linear-svc", 300]["n_support"] is None


def test_a_fit_has_a_process_of_its_own():
    request = {"method": "features", "n_train": 50, "n_components": 10, "seed": 0}
    request |= {"lengthscale": 1.0, "C": 1.0, "memory_limit": None}
    with load_rows(RowOptions(data="iris")).saved() as folder:
        measured = in_fresh_process(svm.fit_machine, request | {"folder": folder})
    assert measured["process_seconds"] > measured["train_seconds"]
    assert measured["test_error"] < 0.5
    # Imports alone take more than 50 MB; the smaller count leaves files out.
    assert measured["peak_memory_bytes"] > 50e6
    anonymous = measured["peak_anonymous_bytes"]
    assert anonymous is None or 20e6 < anonymous < measured["peak_memory_bytes"]


def test_it_prints_and_draws(results):
    (table,) = svm.Machines.tables(results)
    assert len(table.rows) == len(results["records"])
    (axes,) = svm.Machines.figure(results).axes
    assert len(axes.lines) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "laplace"], "unknown method 'laplace'; expected some of"),
        (["--methods", ""], "nothing to run: name some of features, linear-svc"),
        (["--n-components", "0"], "positive whole numbers"),
        (["--penalty", "0"], "penalty must be a positive number, got 0"),
        (["--penalty", "nan"], "penalty must be a positive number, got nan"),
        (["--exact-rows", "0"], "exact_rows must be 1 or more, got 0"),
        (["--data", "diabetes"], "diabetes is a regression"),
    ],
)
def test_mistakes_are_one_line(arguments, message, monkeypatch, capsys, tmp_path):
    from randkern.cli import main

    command = ["randkern", "bench", "svm", *arguments, "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
