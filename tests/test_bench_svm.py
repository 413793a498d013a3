"""The benchmark of support vector machines: its records, table, figure and command."""

import pytest

pytest.importorskip("matplotlib")

from randkern_lab import contenders
from randkern_lab.benchmarks.classifiers import fit_classifier
from randkern_lab.benchmarks.rows import load_rows, saved
from randkern_lab.benchmarks.svm import METHODS, Machines, Options
from randkern_lab.process import SkippedCase, in_fresh_process

pytestmark = pytest.mark.slow

RECORD = {
    *("method", "label", "n_train", "n_components", "test_accuracy", "test_error"),
    *("train_seconds", "train_cpu_seconds", "predict_seconds", "warm_up_seconds"),
    *("process_seconds", "n_support", "duality_gap"),
    *("peak_memory_bytes", "peak_anonymous_bytes"),
}


@pytest.fixture(scope="module")
def results(quick):
    return quick("svm")


@pytest.mark.slow
def test_documented_keys(results):
    assert all(set(record) == RECORD for record in results["records"])
    assert results["arguments"]["C"] == 10.0
    assert results["skipped"] == []


def test_a_peer_beyond_memory_is_not_started(monkeypatch):
    monkeypatch.setattr(contenders, "available_memory", lambda: 10**6)
    with pytest.raises(SkippedCase, match="36.0 MB; 1.0 MB are free"):
        METHODS["linear-svc"].check(10_000, 64, 300)


def test_the_linear_peer_has_all_rows_and_sizes(monkeypatch):
    """Memory alone limits it, unless a limit is asked for."""
    bench = Machines(Options())
    bench.n = 1000
    monkeypatch.setattr(contenders, "available_memory", lambda: 10**9)
    assert {c["n_train"] for c in bench.cases() if c["method"] == "linear-svc"} == {
        1000
    }
    METHODS["linear-svc"].check(1000, 64, 50_000)
    with pytest.raises(SkippedCase, match="1.0 GB are free"):
        METHODS["linear-svc"].check(1000, 64, 100_000)


def test_contenders_agree(results):
    """About: the machines on features have draws of their own."""
    own = {(r["method"], r["n_components"]): r for r in results["records"]}
    assert own["features", 300]["test_accuracy"] > 0.9
    for pair in (("features", 100), ("linear-svc", 100)), (("exact", None),) * 2:
        accuracies = [own[key]["test_accuracy"] for key in pair]
        assert abs(accuracies[0] - accuracies[1]) < 0.06
    assert own["exact", None]["n_train"] == own["svc", None]["n_train"] == 200
    assert abs(own["exact", None]["test_error"] - own["svc", None]["test_error"]) < 0.06
    assert own["features", 300]["duality_gap"] < 1e-4
    assert own["linear-svc", 100]["n_support"] is None


@pytest.mark.nightly
def test_a_fit_has_a_process_of_its_own():
    request = {"method": "features", "n_train": 50, "n_components": 10, "seed": 0}
    request |= {"module": "randkern_lab.benchmarks.svm", "experiment": "Machines"}
    request |= {"lengthscale": 1.0, "penalty": 1.0, "memory_limit": None}
    with saved(load_rows(Options(data="iris"))[0]) as folder:
        asked = {**request, "folder": folder}
        measured = in_fresh_process(fit_classifier, asked)
    assert measured["process_seconds"] > measured["train_seconds"]
    assert measured["test_error"] < 0.5


def test_it_prints_and_draws(results):
    (table,) = Machines.tables(results)
    assert len(table.rows) == len(results["records"])
    (axes,) = Machines.figure(results).axes
    assert len(axes.lines) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "laplace"], "unknown method 'laplace'; expected one or more of"),
        (["--methods", ""], "nothing to run: name some of features, linear-svc"),
        (["--n-components", "0"], "positive integers"),
        (["--penalty", "0"], "penalty must be a positive number, got 0"),
        (["--penalty", "nan"], "penalty must be a positive number, got nan"),
        (["--exact-rows", "0"], "exact_rows must be 1 or more"),
        (["--data", "diabetes"], "diabetes is a regression"),
    ],
)
def test_mistakes_are_one_line(command, arguments, message):
    result = command("svm", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
