"""The ridge benchmark: its records, figures, tables and complaints, at tiny sizes."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import randkern as rk
from _lab import here
from randkern_lab import contenders
from randkern_lab.benchmarks import ridge
from randkern_lab.benchmarks.classifiers import fit_classifier
from randkern_lab.benchmarks.ridge import METHODS, Options, Ridge
from randkern_lab.benchmarks.ridge_models import peer_bytes
from randkern_lab.benchmarks.rows import RowFile, Rows, load_rows, saved, write_rows
from randkern_lab.process import in_fresh_process
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
    *("axis", "n_components", "n", "d", "seconds_per_iteration"),
}


REQUEST = {
    **{"family": "gaussian", "n_components": 400, "seed": 0, "alpha": 1e-3},
    **{"lengthscale": 2.5, "degree": 2.0},
    **{"memory_limit": None, "n_train": None},
    **{"module": "randkern_lab.benchmarks.ridge", "experiment": "Ridge"},
}


def run(**options):
    """A run on iris, without libraries that are seldom installed."""
    small = {"data": "iris", "lengthscale": "2", "libraries": ()}
    return Ridge.run(Options(**small | options))


@pytest.fixture(scope="module")
def results():
    """A comparison whose fits have processes of their own."""
    return run(n_components=(20,), solvers=("pcg",))


@pytest.fixture(scope="module")
def arrays():
    """A folder with the arrays of a task."""
    with saved(load_rows(Options(n=600, n_test=300))[0]) as folder:
        yield folder


# the comparison


@pytest.mark.nightly
def test_records_of_fresh_processes(results):
    assert all(set(record) == RECORD_KEYS for record in results["records"])
    peer, _, own, _, exact = results["records"]
    methods = [record["method"] for record in results["records"]]
    assert methods == ["RBFSampler", "Nystroem", "pcg", "landmarks", "cholesky"]
    assert peer["outcome"] == "cholesky"
    assert peer["iterations"] is peer["residual"] is own["features_seconds"] is None
    assert own["iterations"] >= 1
    assert exact["residual"] < 1e-8
    for record in results["records"]:
        assert record["test_accuracy"] == 1 - record["test_error"] > 0.8
        parts = (record["features_seconds"] or 0.0) + record["fit_seconds"]
        assert record["train_seconds"] == pytest.approx(parts, rel=1e-3, abs=1e-5)
        total = record["train_seconds"] + record["predict_seconds"]
        assert record["total_seconds"] == pytest.approx(total, abs=1e-5)
        inside = record["warm_up_seconds"] + record["total_seconds"]
        assert inside < record["process_seconds"] < 120
        # Imports alone take more than 50 MB; the smaller count leaves files out.
        assert record["peak_memory_bytes"] > 50e6
        anonymous = record["peak_anonymous_bytes"]
        assert anonymous is None or 20e6 < anonymous < record["peak_memory_bytes"]
    json.dumps(results, allow_nan=False)


@pytest.mark.nightly
def test_summary_sets_contenders_beside_the_peer(results):
    peer, _, own, *_ = results["summary"]
    assert set(peer) == set(own) == SUMMARY_KEYS
    assert peer["speedup_over_peer"] == peer["memory_of_peer"] == 1.0
    seconds = [entry["train_seconds"] for entry in (peer, own)]
    assert own["speedup_over_peer"] == pytest.approx(seconds[0] / seconds[1])
    assert peer["test_error_std"] is None


@pytest.mark.nightly
def test_early_stops_are_marked_beside_complete_fits(results):
    (note,) = (note for note in results["notes"] if "residual of" in note)
    assert note.startswith("randkern, pcg, D = 20: ")
    assert note.endswith("solved exactly, as is ours by cholesky")
    alone = {**results, "summary": results["summary"][:3]}
    assert "cholesky, which was skipped" in next(iter(Ridge.notes(alone)))


@pytest.mark.parametrize(
    ("solvers", "peers", "own"),
    [
        (("pcg",), True, ["pcg", "landmarks", "cholesky"]),
        (("auto",), True, ["auto", "landmarks", "cholesky"]),
        (("cholesky", "pcg"), True, ["cholesky", "pcg", "landmarks"]),
        (("pcg",), False, ["pcg"]),
    ],
)
def test_an_iteration_beside_factorisations_brings_our_own(solvers, peers, own):
    bench = Ridge(Options(solvers=solvers, peers=peers, libraries=()))
    assert bench.methods == ["RBFSampler", "Nystroem"] * peers + own


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_contenders_take_turns_over_seeds():
    seen = []
    options = Options(
        **{"data": "iris", "lengthscale": "median", "n_components": (30, 10)},
        **{"n": 60, "n_test": 20, "repeats": 2, "libraries": ()},
    )
    results = Ridge.run(options, lambda *step: seen.append(step))
    order = [(r["seed"], r["n_components"], r["method"]) for r in results["records"]]
    methods = ("RBFSampler", "Nystroem", "pcg", "cholesky", "landmarks")
    assert order == [(s, D, m) for s in (0, 1) for D in (10, 30) for m in methods]
    assert [done for done, total, _ in seen if total == 20] == list(range(21))
    assert results["dataset"]["n_train"] == 60
    assert results["dataset"]["n_test"] == 20
    assert isinstance(results["arguments"]["lengthscale"], float)
    assert all(entry["n_seeds"] == 2 for entry in results["summary"])
    assert all(entry["test_error_std"] is not None for entry in results["summary"])
    axes = Ridge.figures(results)["ridge.png"].axes[0]
    assert set(axes.get_legend_handles_labels()[1]) == {
        *("RBFSampler + RidgeClassifier", "Nystroem + RidgeClassifier"),
        *("randkern, pcg", "randkern, cholesky", "randkern, landmarks"),
    }
    assert [len(curve.get_xdata()) for curve in axes.lines] == 5 * [2]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("kernel", "peer"),
    [("optical", "two products"), ("polynomial", "PolynomialCountSketch")],
)
def test_other_kernels_have_peers_of_their_own(kernel, peer):
    results = run(kernel=kernel, degree=2, n_components=(20,), seed=3, n_test=30)
    records = results["records"]
    methods = [record["method"] for record in records]
    assert methods == [peer, "pcg", "cholesky"]
    assert {record["seed"] for record in records} == {3}
    assert results["arguments"]["lengthscale"] is None
    (table,) = Ridge.tables(results)
    assert table.title.startswith(f"{kernel}, degree 2")
    assert all(entry["speedup_over_peer"] for entry in results["summary"])


@pytest.mark.slow
def test_contenders_agree_on_the_classes(arrays):
    def error(method, family="gaussian", alpha=1e-3):
        named = {"method": method, "family": family, "alpha": alpha}
        return fit_classifier({**REQUEST, **named, "folder": arrays})["test_error"]

    # One stops before it has met every label: it may be better, not worse.
    assert error("pcg") < error("cholesky") + 0.01
    methods = ("RBFSampler", "Nystroem", "pcg", "landmarks")
    assert max(map(error, methods)) < 0.06
    for family, peer in (
        ("optical", "two products"),
        ("polynomial", "PolynomialCountSketch"),
    ):
        errors = [error(method, family, 10.0) for method in (peer, "cholesky")]
        assert abs(errors[0] - errors[1]) < 0.08
        assert max(errors) < 0.2


def test_xgpr_classifies_like_the_others(arrays):
    pytest.importorskip("xGPR")
    found = fit_classifier({**REQUEST, "method": "xgpr", "folder": arrays})
    assert found["test_error"] < 0.1
    assert found["outcome"] == "exact"


def test_falkon_has_our_kernel_and_penalty(arrays):
    pytest.importorskip("falkon")
    found = fit_classifier({**REQUEST, "method": "falkon", "folder": arrays})
    assert found["test_error"] < 0.06


def test_peers_have_the_kernel_and_the_intercept_of_the_models():
    request = {**REQUEST, "n_components": 10, "alpha": 0.5, "lengthscale": 3.0}
    peer = METHODS["RBFSampler"].make({**request, "method": "RBFSampler"})
    assert peer.features.gamma == pytest.approx(1 / 18)
    assert peer.model.alpha == 0.5
    assert peer.model.fit_intercept
    model = METHODS["pcg"].make(request)
    assert isinstance(model, rk.KernelRidgeClassifier)
    assert (model.kernel.lengthscale, model.alpha, model.solver) == (3.0, 0.5, "pcg")
    assert model.fit_intercept
    optical = {**request, "family": "optical", "degree": 4.0}
    assert METHODS["cholesky"].make(optical).kernel.degree == 4.0
    model = ridge.PCG.make(request)
    assert isinstance(model, rk.KernelRidgeRegressor)
    assert (model.solver, model.fit_intercept) == ("pcg", True)


@pytest.mark.nightly
def test_memory_of_a_peer_is_estimated(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # each thread has a buffer
    n, D = 6000, 1500
    X = np.random.default_rng(0).standard_normal((n, 20), dtype=np.float32)
    y = np.arange(n) % 3
    with saved(Rows(X, y, X[:100], y[:100])) as folder:
        request = {**REQUEST, "method": "RBFSampler", "folder": folder}
        peaks = [
            in_fresh_process(fit_classifier, {**request, "n_components": size})
            for size in (10, D)
        ]
    added = peaks[1]["peak_memory_bytes"] - peaks[0]["peak_memory_bytes"]
    assert 0.7 < added / peer_bytes(n, 20, D) < 1.2


# what is skipped


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_what_is_skipped_is_named_with_the_reason():
    results = run(n_components=(20, 200), repeats=2)
    reasons = {
        (s["method"], s["n_components"]): s["reason"] for s in results["skipped"]
    }
    assert len(reasons) == len(results["skipped"])  # once, whatever the seeds
    who = ("Nystroem + RidgeClassifier", "randkern, landmarks")
    assert set(reasons) == {(name, 200) for name in who}
    assert "one component per training row: 112" in reasons[who[0], 200]
    assert all(note["family"] == "gaussian" for note in results["skipped"])
    assert any(
        note.startswith("skipped gaussian, randkern") for note in results["notes"]
    )


def test_peers_beyond_memory_and_rows_are_not_started(monkeypatch):
    monkeypatch.setattr(contenders, "available_memory", lambda: 10**6)
    with pytest.raises(SkippedCase, match="1.0 MB are free"):
        METHODS["RBFSampler"].check(112, 4, 3000)
    METHODS["pcg"].check(112, 4, 3000)
    with pytest.raises(SkippedCase, match="one component per training row: 112"):
        METHODS["Nystroem"].check(112, 4, 3000)


@pytest.mark.parametrize("method", ["falkon", "xgpr"])
def test_missing_libraries_say_how_to_install_them(method, monkeypatch):
    monkeypatch.setattr(contenders, "find_spec", lambda name: None)
    with pytest.raises(SkippedCase, match=r"is not installed; .*pip install"):
        METHODS[method].check(112, 4, 10)


@pytest.mark.usefixtures("in_process")
def test_nothing_to_run_is_an_error():
    with pytest.raises(ValueError, match=r"nothing could be run: .*memory_limit"):
        run(n_components=(50,), solvers=("pcg",), peers=False, memory_limit="10")


@pytest.mark.nightly
def test_output_of_libraries_is_not_part_of_an_answer(monkeypatch):
    paths = [str(Path(__file__).parent), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    assert in_fresh_process(chatter, {})["value"] == 3


def chatter(request):
    """Print as some libraries do."""
    sys.stdout.write("starting")
    return {"value": 3}


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


def test_a_full_disk_raises_before_writing(tmp_path):
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


SIZES = {
    **{"n_components": [20, 40], "n": [100, 200, 300], "fixed_n": 150},
    **{"fixed_n_components": 30, "d": 8, "memory_limit": "200MB"},
}


@pytest.fixture(scope="module")
def scaling():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "in_fresh_process", here)
        patch.setattr(ridge, "FULL", SIZES)
        return Ridge.run(Options(comparison=False, scaling=True))


@pytest.mark.slow
def test_scaling_varies_one_size_at_a_time(scaling):
    found = scaling["scaling"]
    assert set(found) == {"arguments", "records", "exponents", "skipped"}
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
    assert (scaling["dataset"], scaling["records"], scaling["summary"]) == (
        None,
        [],
        [],
    )
    json.dumps(scaling, allow_nan=False)


def test_scaling_prints(scaling):
    assert Ridge.figures(scaling) == {}
    tables = Ridge.tables(scaling)
    assert [len(table.rows) for table in tables] == [2, 3]
    assert "exponents (all points, last two): fit " in tables[0].caption


@pytest.mark.usefixtures("in_process")
def test_scaling_skips_what_does_not_fit(monkeypatch):
    sizes = {"n_components": [20], "n": [100], "fixed_n": 50}
    sizes |= {"fixed_n_components": 30, "d": 3, "memory_limit": "1kB"}
    monkeypatch.setattr(ridge, "FULL", sizes)
    results = run(comparison=False, scaling=True)
    (note,) = results["scaling"]["skipped"]
    assert (note["n_components"], note["n"]) == (30, 100)
    assert "memory_limit" in note["reason"]
    slopes = results["scaling"]["exponents"]["n"]["train_seconds"]
    assert slopes == {"all": None, "last": None}
    (told,) = (line for line in results["notes"] if line.startswith("skipped"))
    assert told.startswith("skipped randkern, pcg, D = 30, n = 100: ")


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


@pytest.mark.nightly
@pytest.mark.usefixtures("in_process")
def test_command(command, tmp_path):
    result = command(
        *("ridge", "--data", "iris", "--n-components", "10,20", "--lengthscale", 2),
        *("--libraries", "", "--n", 16),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert set(results) >= {"records", "summary", "skipped"}
    assert results["command"] == "bench ridge"
    assert (tmp_path / "ridge.png").read_bytes().startswith(b"\x89PNG")
    for text in ("RBFSampler", "× faster", "skipped gaussian, randkern"):
        assert text in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--kernel", "nosuch"),
            "unknown kernel 'nosuch'; expected one or more of gaussian",
        ),
        (
            ("--solvers", "nosuch"),
            "unknown solver 'nosuch'; expected one or more of pcg",
        ),
        (("--solvers", "", "--no-peers"), "nothing to run: name some of pcg"),
        (("--libraries", "nosuch"), "unknown library 'nosuch'"),
        (("--alpha", "0"), "alpha must be a positive number"),
        (("--degree", "-1"), "degree must be a positive number"),
        (("--n-components", "1e3"), "positive integers"),
        (("--n", "0"), "n must be 1 or more"),
        (("--memory-limit", "lots"), "memory_limit must be"),
        (("--repeats", "0"), "repeats must be 1 or more"),
        (("--data", "nosuch"), "unknown data set 'nosuch'"),
        (("--data", "diabetes"), "diabetes is a regression"),
        (("--no-comparison",), "--no-comparison leaves nothing to do"),
    ],
)
def test_bad_values_are_one_line(command, arguments, message):
    result = command("ridge", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
