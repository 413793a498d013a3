"""The ridge benchmark: its records, figures, tables and complaints, at tiny sizes."""

import importlib.util
import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import randkern as rk
from _lab import COMMON, in_this_process
from randkern_lab.benchmarks import ridge
from randkern_lab.benchmarks.row_file import RowFile, write_rows
from randkern_lab.benchmarks.rows import RowOptions, load_rows, saved_arrays
from randkern_lab.process import _last_words, in_fresh_process
from randkern_lab.runner import SkippedCase

pytestmark = pytest.mark.slow

MEASURED_KEYS = {
    *("features_seconds", "fit_seconds", "train_seconds", "predict_seconds"),
    *("total_seconds", "warm_up_seconds", "process_seconds", "test_error"),
    *("iterations", "residual", "outcome", "peak_memory_bytes"),
    "peak_anonymous_bytes",
}
RECORD_KEYS = MEASURED_KEYS | {
    *("family", "method", "label", "library", "n_components", "seed"),
    "test_accuracy",
}
SUMMARY_KEYS = {
    *("family", "method", "label", "library", "n_components", "n_seeds"),
    *("features_seconds", "fit_seconds", "train_seconds", "predict_seconds"),
    *("total_seconds", "process_seconds", "iterations", "test_accuracy"),
    *("test_error", "test_error_std", "residual", "peak_memory_bytes"),
    *("outcome", "speedup_over_peer", "memory_of_peer"),
}
SCALING_KEYS = MEASURED_KEYS | {
    *("axis", "family", "method", "n_components", "n", "d", "seconds_per_iteration"),
}
DIGITS = RowOptions(data="digits", n=600, n_test=300)


def run(progress=None, **given):
    return ridge.Ridge.run(ridge.Options(**({"data": "iris"} | given)), progress)


def scaling(**given):
    given = {"scaling_n_components": (20,), "scaling_n": (100,)} | given
    return run(comparison=False, scaling=True, **given)["scaling"]


def request(method, size, family="gaussian", alpha=1e-3, **given):
    """What a process is asked for."""
    named = {"method": method, "family": family, "n_components": size, "alpha": alpha}
    rest = {"lengthscale": 2.5, "degree": 2.0, "intercept": True, "seed": 0}
    return {**named, **rest, "memory_limit": None, **given}


@pytest.fixture
def in_process(monkeypatch):
    """Fit in this process: for what does not depend on a fresh one."""
    in_this_process(monkeypatch)


@pytest.fixture(scope="module")
def results():
    """A comparison whose fits have processes of their own."""
    return run(n_components=(20,), lengthscale="2", solvers=("pcg",))


@pytest.fixture(scope="module")
def arrays():
    """A folder with the arrays of a task."""
    with load_rows(DIGITS).saved() as folder:
        yield folder


# the comparison


def test_records_of_fresh_processes(results):
    assert all(set(record) == RECORD_KEYS for record in results["records"])
    peer, own = results["records"]
    assert (peer["method"], own["method"]) == ("RBFSampler", "pcg")
    assert peer["outcome"] == "cholesky"
    assert peer["iterations"] is peer["residual"] is own["features_seconds"] is None
    assert own["iterations"] >= 1
    for record in results["records"]:
        assert record["test_accuracy"] == 1 - record["test_error"] > 0.8
        parts = (record["features_seconds"] or 0.0) + record["fit_seconds"]
        assert record["train_seconds"] == pytest.approx(parts, rel=1e-3)
        total = record["train_seconds"] + record["predict_seconds"]
        assert record["total_seconds"] == pytest.approx(total)
        inside = record["warm_up_seconds"] + record["total_seconds"]
        assert inside < record["process_seconds"] < 60
        # Imports alone take more than 50 MB; the smaller count leaves files out.
        assert record["peak_memory_bytes"] > 50e6
        anonymous = record["peak_anonymous_bytes"]
        assert anonymous is None or 20e6 < anonymous < record["peak_memory_bytes"]
    json.dumps(results, allow_nan=False)


def test_summary_sets_contenders_beside_the_peer(results):
    peer, own = results["summary"]
    assert set(peer) == set(own) == SUMMARY_KEYS
    assert peer["speedup_over_peer"] == peer["memory_of_peer"] == 1.0
    seconds = [entry["train_seconds"] for entry in (peer, own)]
    assert own["speedup_over_peer"] == pytest.approx(seconds[0] / seconds[1])


@pytest.mark.usefixtures("in_process")
def test_contenders_take_turns_over_seeds():
    seen = []
    results = run(
        lambda *step: seen.append(step),
        n_components=(30, 10),
        lengthscale="median",
        nystroem=True,
        n=60,
        n_test=20,
        repeats=2,
    )
    order = [(r["seed"], r["n_components"], r["method"]) for r in results["records"]]
    methods = ("RBFSampler", "Nystroem", "pcg", "cholesky")
    assert order == [(s, D, m) for s in (0, 1) for D in (10, 30) for m in methods]
    assert [done for done, of, _ in seen if of == 16] == list(range(17))
    assert results["dataset"]["n_train"] == 60
    assert results["dataset"]["n_test"] == 20
    assert isinstance(results["arguments"]["lengthscale"], float)
    assert all(entry["n_seeds"] == 2 for entry in results["summary"])
    assert all(entry["test_error_std"] is not None for entry in results["summary"])
    curves = ridge.Ridge.figures(results)["ridge.png"].axes[0].lines
    assert [curve.get_label() for curve in curves] == [
        *("randkern, pcg", "randkern, cholesky"),
        *("RBFSampler + RidgeClassifier", "Nystroem + RidgeClassifier"),
    ]
    assert all(len(curve.get_xdata()) == 2 for curve in curves)


def test_contenders_agree_on_the_classes(arrays):
    def error(method, family="gaussian", alpha=1e-3, size=400):
        asked = request(method, size, family, alpha, folder=arrays)
        return ridge.fit_arrays(asked)["test_error"]

    # One stops before it has met every label: it may be better, not worse.
    assert error("pcg") < error("cholesky") + 0.01
    assert max(map(error, ("RBFSampler", "Nystroem", "pcg"))) < 0.06
    errors = [error(method, "optical", 10.0) for method in ("two products", "pcg")]
    assert abs(errors[0] - errors[1]) < 0.05
    assert max(errors) < 0.12
    sketched = ("PolynomialCountSketch", "cholesky")
    errors = [error(method, "polynomial", 10.0) for method in sketched]
    assert max(errors) < 0.12


def test_peers_have_the_kernel_and_the_intercept_of_the_models():
    asked = request("RBFSampler", 10, alpha=0.5, lengthscale=3.0)
    assert ridge._feature_map(asked).gamma == pytest.approx(1 / 18)
    assert ridge._classifier(asked, 100).alpha == 0.5
    assert ridge._classifier(asked, 100).fit_intercept
    own = request("pcg", 10, alpha=0.5, lengthscale=3.0, intercept=False)
    model = ridge._classifier(own, 100)
    assert isinstance(model, rk.KernelRidgeClassifier)
    assert (model.kernel.lengthscale, model.alpha, model.solver) == (3.0, 0.5, "pcg")
    assert not model.fit_intercept
    optical = request("cholesky", 10, "optical", degree=4.0)
    assert ridge._model(optical, rk.KernelRidgeRegressor).kernel.degree == 4.0


def test_falkon_says_how_it_is_installed():
    if importlib.util.find_spec("falkon") is not None:
        return
    with pytest.raises(ValueError, match="falkon is not installed; https://"):
        ridge._classifier(request("Falkon", 10), 100)


def test_memory_of_a_peer_is_estimated(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # each thread has a buffer
    n, D = 6000, 1500
    X = np.random.default_rng(0).standard_normal((n, 20), dtype=np.float32)
    labels = np.arange(n) % 3
    with saved_arrays(X, labels, X[:100], labels[:100]) as folder:
        peaks = [
            in_fresh_process(
                ridge.fit_arrays, request("RBFSampler", size, folder=folder)
            )["peak_memory_bytes"]
            for size in (10, D)
        ]
    assert 0.7 < (peaks[1] - peaks[0]) / ridge.peer_bytes(n, 20, D) < 1.2


# what is skipped


@pytest.mark.usefixtures("in_process")
def test_what_is_skipped_is_named_with_the_reason():
    results = run(
        n_components=(20, 200),
        lengthscale="2",
        nystroem=True,
        memory_limit="20MB",
        no_peer_above=180,
        no_cholesky_above=20,
        repeats=2,
    )
    reasons = {
        (s["method"], s["n_components"]): s["reason"] for s in results["skipped"]
    }
    who = ("RBFSampler", "Nystroem", "cholesky")
    assert set(reasons) == {(name, 200) for name in who}
    assert "up to 180 features only" in reasons["RBFSampler", 200]
    assert "up to 20 features only" in reasons["cholesky", 200]
    assert all(note["family"] == "gaussian" for note in results["skipped"])
    assert [e["speedup_over_peer"] for e in results["summary"]][-1] is None


def test_peers_beyond_memory_and_rows_are_not_started(monkeypatch):
    bench = ridge.Ridge(ridge.Options(data="iris"))
    bench.shape = (112, 4)
    monkeypatch.setattr(ridge, "available_memory", lambda: 10**6)
    large = {"method": "RBFSampler", "n_components": 3000}
    with pytest.raises(SkippedCase, match="1.0 MB are free"):
        bench._check(large)
    bench._check(large | {"method": "pcg"})
    with pytest.raises(SkippedCase, match="one component a training row: 112"):
        bench._check(large | {"method": "Nystroem"})


@pytest.mark.usefixtures("in_process")
def test_nothing_to_run_is_an_error():
    with pytest.raises(ValueError, match="nothing could be run: .*memory_limit"):
        run(n_components=(50,), solvers=("pcg",), peers=False, memory_limit="10B")


def test_a_process_that_fails_gives_its_last_words(tmp_path):
    asked = request("pcg", 4, folder=str(tmp_path))
    with pytest.raises(ValueError, match=r"ended with status 1: .*X_train"):
        in_fresh_process(ridge.fit_arrays, asked)
    assert "signal 9; there may have been too little" in _last_words(-9, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": (0,)}, "n_components must be 1 or more"),
        ({"repeats": 0}, "repeats must be 1 or more"),
        ({"n": 0}, "n must be 1 or more"),
        ({"alpha": 0.0}, "alpha must be a positive number"),
        ({"degree": -1.0}, "degree must be a positive number"),
        ({"kernel": "cubic"}, "unknown kernel 'cubic'; expected some of gaussian"),
        ({"solvers": ("svd",)}, "unknown solver 'svd'; expected some of pcg"),
        ({"solvers": (), "peers": False}, "nothing to run: name some of pcg"),
        ({"memory_limit": "lots"}, "memory_limit must be"),
        ({"data": "diabetes"}, "diabetes is a regression"),
        ({"scaling_n": (0,)}, "scaling_n must be 1 or more"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        run(**({"n_components": (8,)} | change))


# rows in files


def test_rows_of_a_file_are_read_by_slices(tmp_path):
    X, y = write_rows(tmp_path, 70_000, 3, seed=1)
    rows = RowFile(X, (70_000, 3))
    every = rows[:]
    assert every.shape == (70_000, 3)
    assert every.dtype == np.float32
    np.testing.assert_array_equal(rows[65_530:65_540], every[65_530:65_540])
    np.testing.assert_array_equal(RowFile(X, (10, 3))[8:99], every[8:10])
    assert rows[5:5].shape == (0, 3)
    assert RowFile(y, (70_000,))[:7].shape == (7,)
    with pytest.raises(ValueError, match="step of 2"):
        rows[::2]
    spread = every.astype(float).var(axis=0)
    np.testing.assert_allclose(spread / spread[0], [1, 1 / 4, 1 / 9], rtol=0.05)
    assert spread.mean() == pytest.approx(1.0, rel=0.03)


def test_files_are_what_their_seed_says(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        path.mkdir()
        write_rows(path, 50, 2, seed)
    first, again, other = ((path / "X.float32").read_bytes() for path in paths)
    assert first == again != other


def test_a_full_disk_is_said_before_writing(tmp_path):
    with pytest.raises(ValueError, match="set TMPDIR to another disk"):
        write_rows(tmp_path, 10**15, 100)
    assert not list(tmp_path.iterdir())


def test_a_model_reads_row_files_as_it_does_arrays(tmp_path):
    X, y = write_rows(tmp_path, 400, 5)
    files = RowFile(X, (400, 5)), RowFile(y, (400,))
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, 64, random_state=0)
    streamed = model.fit(rk.RowBlocks.from_arrays(*files, block_rows=70)).coef_
    whole = model.fit(files[0][:], files[1][:]).coef_
    np.testing.assert_allclose(streamed, whole, rtol=1e-3, atol=1e-3)


# scaling


@pytest.mark.usefixtures("in_process")
def test_scaling_varies_one_size_at_a_time():
    results = run(
        comparison=False,
        scaling=True,
        scaling_n_components=(20, 40),
        scaling_n=(300, 100, 200),
        scaling_fixed_n_components=30,
        scaling_fixed_n=150,
        scaling_d=8,
    )
    found = results["scaling"]
    assert all(set(record) == SCALING_KEYS for record in found["records"])
    points = [(r["axis"], r["n_components"], r["n"]) for r in found["records"]]
    assert points == [
        *(("n_components", D, 150) for D in (20, 40)),
        *(("n", 30, n) for n in (100, 200, 300)),
    ]
    for record in found["records"]:
        each = record["train_seconds"] / record["iterations"]
        assert record["seconds_per_iteration"] == pytest.approx(each)
        assert record["test_error"] < 1.0
    assert set(found["exponents"]) == {"n_components", "n"}
    figure = ridge.Ridge.figures(results)["scaling.png"]
    labels = {axes.get_xlabel() for axes in figure.axes}
    assert labels == {"features D", "training rows n"}
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"fit", "peak memory, all resident"} <= names


@pytest.mark.usefixtures("in_process")
def test_scaling_skips_what_does_not_fit():
    found = scaling(
        scaling_fixed_n_components=30,
        scaling_fixed_n=50,
        scaling_d=3,
        scaling_memory_limit="1kB",
    )
    (note,) = found["skipped"]
    assert (note["n_components"], note["n"]) == (30, 100)
    assert "memory_limit" in note["reason"]
    assert found["exponents"]["n"]["train_seconds"] == {"all": None, "last": None}


def test_exponents_are_slopes():
    records = [
        {
            "axis": "n_components",
            "n_components": D,
            "train_seconds": 2e-3 * D**1.5,
            "seconds_per_iteration": 1e-3 * D,
            "peak_memory_bytes": 10**8,
        }
        for D in (1000, 10, 100)
    ]
    slopes = ridge.exponents(records)["n_components"]
    assert slopes["train_seconds"]["all"] == pytest.approx(1.5)
    assert slopes["seconds_per_iteration"]["last"] == pytest.approx(1.0)
    assert slopes["peak_memory_bytes"]["all"] == pytest.approx(0.0, abs=1e-12)


# the command line


@pytest.fixture(scope="module")
def app():
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from randkern import cli

    return cli._build_app()


def invoke(app, *arguments):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, ["bench", "ridge", *map(str, arguments)])


@pytest.mark.usefixtures("in_process")
def test_command(app, tmp_path):
    result = invoke(
        app,
        *("--data", "iris", "--n-components", "10,20", "--lengthscale", 2),
        *("--no-cholesky-above", 10, "--scaling", "--scaling-n-components", "10,20"),
        *("--scaling-n", "60,120", "--scaling-fixed-n", 50, "--scaling-d", 4),
        *("--scaling-fixed-n-components", 16, "--out", tmp_path / "new"),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "new" / "results.json").read_text("utf-8"))
    assert set(results) == COMMON | {"summary", "scaling"}
    assert results["command"] == "bench ridge"
    assert set(results["scaling"]) == {"records", "exponents", "skipped"}
    for name in ("ridge.png", "scaling.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
    for text in ("RBFSampler", "× faster", "exponents", "skipped gaussian, cholesky"):
        assert text in result.output
    tables = [
        line for line in result.output.splitlines() if line.startswith(("|", "+"))
    ]
    assert all(len(line) <= 100 for line in tables)


@pytest.mark.usefixtures("in_process")
def test_command_of_scaling_alone(app, tmp_path):
    result = invoke(
        app,
        *("--no-comparison", "--scaling", "--scaling-n-components", 10),
        *("--scaling-n", 60, "--scaling-fixed-n", 50, "--scaling-d", 4),
        *("--scaling-fixed-n-components", 16, "--scaling-memory-limit", "1kB"),
        *("--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["records"] == []
    assert "skipped randkern, pcg, 60, D = 16" in result.output
    assert not (tmp_path / "ridge.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "nosuch"), "unknown kernel 'nosuch'"),
        (("--solvers", "nosuch"), "unknown solver 'nosuch'"),
        (("--alpha", "0"), "alpha"),
        (("--n-components", "1e3"), "positive whole numbers"),
        (("--repeats", "0"), "repeats must be 1 or more"),
        (("--data", "nosuch"), "unknown data set 'nosuch'"),
        (("--no-comparison",), "--no-comparison leaves nothing to do"),
    ],
)
def test_bad_values_are_one_line(app, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = invoke(app, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
