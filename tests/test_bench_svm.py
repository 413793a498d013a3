"""The benchmark of support vector machines: its records, table, figure and command."""

import json
import sys

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from randkern_lab.benchmarks.labelled_rows import LabelledRows
from randkern_lab.benchmarks.svm_figures import plot_svm
from randkern_lab.oldcli.bench_svm import svm_table

from randkern.datasets import load_dataset
from randkern_lab.benchmarks import svm

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

    def ask(module, request):
        assert module == svm.__name__
        measured = svm._answer(json.loads(json.dumps(request)))
        return measured | {"process_seconds": 1.0, "peak_anonymous_bytes": None}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svm, "ask_process", ask)
        return svm.run(
            load_dataset("digits"),
            (300, 600),
            lengthscale=2.0,
            n=400,
            n_test=300,
            exact_rows=200,
            no_peer_above=300,
        )


def test_documented_keys(results):
    assert set(results) == {
        *("command", "arguments", "versions", "machine"),
        *("dataset", "records", "skipped"),
    }
    assert all(set(record) == RECORD for record in results["records"])
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert results["skipped"] == [
        {
            "method": "linear-svc",
            "n_components": 600,
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
    rows = LabelledRows.of(load_dataset("iris"), None, None)
    request = {"method": "features", "n_train": 50, "n_components": 10, "seed": 0}
    request |= {"lengthscale": 1.0, "C": 1.0, "memory_limit": None}
    measured = svm._measure(rows, request)
    assert measured["process_seconds"] > measured["train_seconds"]
    assert measured["test_error"] < 0.5


def test_it_prints_and_draws(results):
    assert svm_table(results).row_count == len(results["records"])
    (axes,) = plot_svm(results).axes
    assert len(axes.lines) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "laplace"], "unknown method 'laplace'; expected some of"),
        (["--methods", ""], "nothing to run: name some of features, linear-svc"),
        (["--n-components", "0"], "positive whole numbers"),
        (["--penalty", "0"], "--penalty takes a positive number, got 0"),
        (["--penalty", "nan"], "--penalty takes a positive number, got nan"),
        (["--exact-rows", "0"], "exact_rows must be positive whole numbers"),
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
