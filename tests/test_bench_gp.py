"""The benchmark of Gaussian processes: its records, table, figure and command."""

import importlib.util

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("matplotlib")

from randkern_lab.benchmarks import gaussian_process, gp_peers
from randkern_lab.benchmarks.gaussian_process import (
    METHODS,
    GaussianProcesses,
    Options,
)
from randkern_lab.benchmarks.gp_peers import climb
from randkern_lab.benchmarks.rows import Rows, saved
from randkern_lab.process import in_fresh_process

pytestmark = pytest.mark.slow

RECORD = {
    *("dataset", "method", "seed", "label", "n_train", "n_components", "rmse", "nlpd"),
    *("coverage", "coverage_50", "steps", "out_of_time", "seconds", "cpu_seconds"),
    *("warm_up_seconds", "process_seconds"),
    *("peak_memory_bytes", "peak_anonymous_bytes"),
}


@pytest.fixture(scope="module")
def bench(quick):
    return quick("gp")


@pytest.mark.slow
def test_documented_keys(bench):
    assert set(bench) >= {"command", "arguments", "datasets", "records", "skipped"}
    assert bench["command"] == "bench gp"
    assert all(set(record) == RECORD for record in bench["records"])
    assert {"torch", "gpytorch", "xGPR"} <= set(bench["versions"])
    assert bench["arguments"]["n_features"] == 10


def test_scores_are_plausible(bench):
    """Better than the mean of the targets, and no better than their noise allows."""
    described = {d["name"]: d for d in bench["datasets"]}
    without = -stats.norm.logpdf(0) + 0.5  # of targets of variance 1
    own = [r for r in bench["records"] if r["method"] in ("features", "scikit-learn")]
    assert len(own) == 4
    for record in own:
        noise = described[record["dataset"]]["noise_rmse"] or 0.5
        assert noise < record["rmse"] < 0.9
        assert -stats.norm.logpdf(0, 0, noise) < record["nlpd"] < 1.05 * without
        assert 0.8 < record["coverage"] < 0.99
        assert 0.2 < record["coverage_50"] < 0.8
        # An interpreter with NumPy and SciPy, and no gigabyte.
        assert 5e7 < record["peak_memory_bytes"] < 5e9
    exact = [r for r in own if r["method"] == "scikit-learn"]
    assert all(r["n_train"] == 80 and r["n_components"] is None for r in exact)


@pytest.mark.nightly
@pytest.mark.usefixtures("in_process")
def test_both_exact_processes_learn_the_same():
    """Where the likelihood has one maximum; that of few rows of diabetes has two."""
    options = Options(quick=True, methods=("exact", "scikit-learn"))
    results = GaussianProcesses.run(options)
    own, peer = (r for r in results["records"] if r["dataset"] == "friedman")
    assert (own["method"], peer["method"]) == ("exact", "scikit-learn")
    assert own["rmse"] == pytest.approx(peer["rmse"], abs=0.02)
    assert own["nlpd"] == pytest.approx(peer["nlpd"], abs=0.05)


@pytest.mark.parametrize(
    ("package", "method", "command"),
    [("gpytorch", "rff", "pip install gpytorch"), ("xGPR", "xgpr", "pip install xgpr")],
)
def test_missing_peers_are_named(bench, package, method, command):
    if importlib.util.find_spec(package) is not None:
        assert method in {record["method"] for record in bench["records"]}
        return
    skipped = [note for note in bench["skipped"] if note["method"] == method]
    assert len(skipped) == 2
    assert all(f"not installed; {command}" in note["reason"] for note in skipped)
    assert any(command in note for note in bench["notes"])


@pytest.mark.nightly
def test_a_fit_has_a_process_of_its_own():
    """It answers what this process does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=150)
    arrays = X[:100], y[:100], X[100:], y[100:]
    request = {"method": "features", "n_train": 50, "n_components": 10, "seed": 0}
    request |= {"budget": 1.0, "n_features": 3}
    with saved(Rows(*arrays)) as folder:
        asked = {**request, "folder": folder}
        measured = in_fresh_process(gaussian_process.learn, asked)
    assert measured["process_seconds"] > measured["seconds"] > 0
    model = METHODS["features"].make(request).fit(X[:50], y[:50])
    mean, variance = model.predict(X[100:])
    distribution = stats.norm(mean, np.sqrt(variance))
    residual = y[100:] - mean
    assert measured["rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)))
    assert measured["nlpd"] == pytest.approx(-distribution.logpdf(y[100:]).mean())
    low, high = distribution.interval(0.95)
    assert measured["coverage"] == np.mean((low < y[100:]) & (y[100:] < high))
    low, high = distribution.interval(0.5)
    assert measured["coverage_50"] == np.mean((low < y[100:]) & (y[100:] < high))


@pytest.mark.nightly
@pytest.mark.usefixtures("in_process")
def test_tables_of_numbers_stand_in_place_of_generated_rows(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=90), "same": 1.0, "kind": list("abc") * 30}
    numbers = pd.DataFrame(columns).assign(fold=np.arange(90) % 3)
    numbers["target"] = 5 + 2 * numbers["x"] + 3 * (numbers["kind"] == "b")
    numbers.to_csv(tmp_path / "numbers.csv.gz", index=False)
    numbers.to_csv(tmp_path / "others.csv", index=False)
    numbers.assign(target=numbers["kind"]).to_csv(tmp_path / "labels.csv", index=False)
    options = {"quick": True, "methods": ("features", "exact"), "data_dir": tmp_path}
    results = GaussianProcesses.run(Options(**options, exact_rows=59, seeds=2))
    assert [d["name"] for d in results["datasets"]] == ["numbers", "others"]
    table, record = results["datasets"][0], results["records"][0]
    assert (table["n_train"], table["n_test"]) == (60, 30)
    assert record["dataset"] == "numbers" and record["rmse"] < 2
    assert [r["seed"] for r in results["records"]] == 2 * [0, 1]
    assert "seed" in GaussianProcesses.tables(results)[0].columns
    assert {note["method"] for note in results["skipped"]} == {"exact"}
    assert "an exact process of 60 rows" in results["skipped"][0]["reason"]
    options = Options(**options, tables=("others",))
    (table,) = GaussianProcesses.run(options)["datasets"]
    assert table["name"] == "others"


def test_random_features_of_gpytorch_predict_by_their_weights(monkeypatch):
    pytest.importorskip("gpytorch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120)
    request = {"n_components": 20, "budget": 0.0, "seed": 0}
    ours = gp_peers.FourierProcess(request).fit(X[:100], y[:100])
    mean, variance = ours.predict(X[100:])
    assert mean.dtype == np.float64 and ours.steps_ == 1
    monkeypatch.setattr(
        gp_peers.FourierProcess, "predictive", gp_peers.GPyTorchProcess.predictive
    )
    own = gp_peers.FourierProcess(request).fit(X[:100], y[:100])
    assert own.steps_ == 1
    for result, expected in zip((mean, variance), own.predict(X[100:]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


# -- when peers stop ------------------------------------------------------------------


@pytest.fixture
def line():
    """A line, and how far it is from 0.5; its weight goes to 1, past that."""
    torch = pytest.importorskip("torch")
    modules = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False)])
    torch.nn.init.zeros_(modules[0].weight)
    message = {
        "loss": lambda: (modules[0].weight - 1).square().sum(),
        "density": lambda: abs(float(modules[0].weight.detach()) - 0.5),
    }
    return modules, message


@pytest.mark.nightly
def test_peers_stay_where_they_were_best(line):
    modules, message = line
    steps, out_of_time = climb(modules, **message, rate=0.05, every=2, budget=60.0)
    assert 15 < steps < 40 and not out_of_time
    assert message["density"]() < 0.06


@pytest.mark.nightly
def test_peers_end_with_their_budget(line):
    modules, message = line
    assert climb(modules, **message, rate=0.01, every=1000, budget=0.0) == (1, True)
    assert message["density"]() == pytest.approx(0.49, abs=1e-6)
    message["density"] = lambda: float("nan")
    with pytest.raises(ValueError, match="not finite"):
        climb(modules, **message, rate=0.01, every=1, budget=60.0)


def test_steps_that_the_budget_ended_are_marked(bench):
    record = bench["records"][0] | {"steps": 120, "out_of_time": True}
    (table,) = GaussianProcesses.tables(bench | {"records": [record]})
    assert "120*" in table.rows[0]
    assert "the budget of 1 CPU s" in table.caption


def test_it_prints_and_draws(bench):
    (table,) = GaussianProcesses.tables(bench)
    assert len(table.rows) == len(bench["records"])
    assert len(GaussianProcesses.figure(bench).axes) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "laplace"], "unknown method 'laplace'; expected one or more of"),
        (["--n-components", "0"], "n_components must be 1 or more"),
        (["--columns", "4"], "columns must be 5 or more"),
        (["--tables", "bike"], "--tables are files of --data-dir"),
    ],
)
def test_mistakes_are_one_line(command, arguments, message):
    result = command("gp", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
