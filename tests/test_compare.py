"""The comparison behind ``randkern compare``: data, selection, records."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import log_loss, roc_auc_score

import randkern
from randkern.datasets import Dataset, load_dataset
from randkern.exceptions import MemoryLimitError
from randkern.study import measure
from randkern.study.compare import compare
from randkern.study.kernel_choices import (
    KERNEL_NAMES,
    parse_kernel,
    parse_kernels,
)
from randkern.study.measure import Measurement
from randkern.study.preparation import prepare
from randkern.study.records import write_results
from randkern.study.selection import select_hyperparameters

pytestmark = pytest.mark.slow

RECORD_KEYS = {
    *("kernel", "n_components", "seed", "test_error", "fit_seconds"),
    *("predict_seconds", "peak_memory_bytes", "memory_before_bytes"),
    *("hyperparameters", "standard_error", "log_loss", "auc"),
}


def blobs(n=160, d=4, n_classes=3, **fields):
    X, y = make_blobs(n, d, centers=n_classes, cluster_std=3.0, random_state=0)
    return Dataset(name="blobs", X_train=X, y_train=y, **fields)


def wave(n=120, **fields):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    y = 1e3 * np.sin(X[:, 0]) + 10 * rng.standard_normal(n) + 5e4
    return Dataset(name="wave", X_train=X, y_train=y, task="regression", **fields)


@pytest.fixture(scope="module")
def results():
    return compare(blobs(), "gaussian,linear,optical:4", [4, 64], n_seeds=2)


# Results


@pytest.mark.slow
def test_results_have_the_documented_keys(results):
    assert set(results) == {
        *("command", "arguments", "dataset", "versions", "machine"),
        *("selection", "baselines", "records", "skipped", "warnings"),
    }
    assert results["command"] == "compare"
    for record in results["records"]:
        assert set(record) == RECORD_KEYS
        assert 0 <= record["test_error"] <= 1
        assert record["fit_seconds"] > 0
        assert record["predict_seconds"] > 0
        assert record["peak_memory_bytes"] >= record["memory_before_bytes"] > 0
    assert set(results["dataset"]) >= {
        *("name", "task", "metric", "n_train", "n_test", "n_features", "split")
    }
    assert results["machine"]["cpu_count"] >= 1
    assert results["versions"]["randkern"]


def test_one_record_a_kernel_size_and_seed(results):
    found = [(r["kernel"], r["n_components"], r["seed"]) for r in results["records"]]
    expected = [
        (kernel, size, seed)
        for kernel in ("gaussian", "linear", "optical:4")
        for size, seed in [(None, 0), (4, 0), (4, 1), (64, 0), (64, 1)]
        if not (kernel == "linear" and size == 64)
    ]
    assert found == expected


def test_features_that_diverge_from_their_kernel_are_named():
    """Of 120 training rows, 120 features fit the noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 4))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=160)
    data = Dataset(name="waves", X_train=X, y_train=y, task="regression")
    results = compare(data, "gaussian", [60, 120], alpha=1e-6, n_seeds=1)
    (note,) = results["warnings"]
    assert note["kernel"] == "gaussian" and note["n_components"] == 120
    assert "err more than a constant" in note["message"]


@pytest.mark.slow
def test_landmarks_are_shown_beside_random_features():
    both = compare(
        load_dataset("breast-cancer"),
        "gaussian",
        [10],
        features=("random", "nystrom"),
        n_seeds=1,
    )
    found = [(each["kernel"], each["n_components"]) for each in both["records"]]
    assert found == [("gaussian", None), ("gaussian", 10), ("gaussian, landmarks", 10)]
    random, landmarks = (each["test_error"] for each in both["records"][1:])
    assert random != landmarks
    with pytest.raises(ValueError, match="features"):
        compare(load_dataset("breast-cancer"), "gaussian", [10], features=["best"])


def test_linear_kernel_beyond_its_columns_is_skipped_once(results):
    (skipped,) = results["skipped"]
    assert (skipped["kernel"], skipped["n_components"]) == ("linear", 64)
    assert "4 features" in skipped["reason"]


def test_json_refuses_what_it_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match=r"nan|JSON"):
        write_results({"test_error": float("nan")}, tmp_path / "results.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_every_kernel_runs_on_both_tasks(name):
    for dataset in (blobs(60), wave(60)):
        records = compare(dataset, name, [2], n_seeds=1)["records"]
        assert [record["n_components"] for record in records] == [None, 2]


def test_a_fixed_alpha_is_used():
    results = compare(blobs(60), "gaussian", [8], alpha=0.5, n_seeds=1)
    assert {r["hyperparameters"]["alpha"] for r in results["records"]} == {0.5}


def test_what_exceeds_the_memory_limit_is_skipped(monkeypatch):
    class Limited(randkern.KernelRidgeClassifier):
        def fit(self, X, y):
            if self.n_components is None:
                raise MemoryLimitError("the Gram matrix needs 28.8 GB")
            return super().fit(X, y)

    monkeypatch.setattr(randkern, "KernelRidgeClassifier", Limited, raising=False)
    results = compare(blobs(60), "gaussian", [8], n_seeds=1)
    assert [r["n_components"] for r in results["records"]] == [8]
    (skipped,) = results["skipped"]
    assert skipped["n_components"] is None
    assert "28.8 GB" in skipped["reason"]


def test_the_first_fit_is_measured_whatever_the_time_limit():
    results = compare(
        blobs(60), ["gaussian", "laplacian"], [8, 16], n_seeds=1, time_limit=1e-9
    )
    measured = [(r["kernel"], r["n_components"]) for r in results["records"]]
    assert measured == [("gaussian", 8)], results["skipped"]
    assert len(results["skipped"]) == 5


def test_every_size_is_measured_before_a_seed_is_repeated():
    """What a time limit leaves is a ladder of sizes."""
    tasks = []
    compare(
        blobs(60),
        *("gaussian", [4, 8]),
        exact=False,
        n_seeds=2,
        progress=lambda done, total, task: tasks.append(task),
    )
    seeds = [task[-1] for task in tasks if ", seed " in task]
    assert seeds == ["0", "0", "1", "1"]


def test_warnings_of_a_fit_are_recorded_once(monkeypatch):
    class Warns(randkern.KernelRidgeClassifier):
        def fit(self, X, y):
            import warnings

            warnings.warn("jitter was added", UserWarning, stacklevel=1)
            return super().fit(X, y)

    monkeypatch.setattr(randkern, "KernelRidgeClassifier", Warns, raising=False)
    results = compare(blobs(60), "gaussian", [8], n_seeds=3, exact=False)
    (note,) = results["warnings"]
    assert (note["kernel"], note["n_components"]) == ("gaussian", 8)
    assert note["message"] == "jitter was added"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": "gauss"}, "unknown kernel 'gauss'.*gaussian, laplacian"),
        ({"kernels": ""}, "expected one or more kernels, got none"),
        ({"n_components": [0]}, "n_components must be a positive integer, got 0"),
        ({"n_components": [2.5]}, "n_components must be a positive integer"),
        ({"n_components": [], "exact": False}, "nothing to compare"),
        ({"alpha": -1.0}, "alpha must be a positive finite number, got -1"),
        ({"n_seeds": 0}, "n_seeds must be a positive integer, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(wave(20), **arguments)


# Kernel names


def test_parameters_of_kernels():
    labels = [choice.label for choice in parse_kernels("Matern, matern:1.5,OPTICAL:3")]
    assert labels == ["matern", "optical:3"]
    assert parse_kernel("optical:3").build(0.5).get_params()["degree"] == 3
    assert parse_kernel("optical:0.5").build(0.5).get_params()["degree"] == 0.5
    assert parse_kernel("matern:2.5").build(1.0).get_params()["nu"] == 2.5
    rational = parse_kernel("rational-quadratic:3")
    assert rational.build(1.0).get_params()["alpha"] == 3
    assert rational.hyperparameters(2.0, 0.1) == {
        "kernel_alpha": 3.0,
        "lengthscale": 2.0,
        "alpha": 0.1,
    }


def test_every_public_kernel_has_a_name():
    leaves = [
        name
        for name in randkern.kernels.__all__
        if name not in ("Kernel", "Precomputed", "Product", "Scaled", "Sum")
    ]
    # The two spectral ones and coregionalization are made of arrays or functions.
    assert len(KERNEL_NAMES) == len(leaves) - 3
    for name in KERNEL_NAMES:
        kernel = parse_kernel(name).build(1.0)
        assert type(kernel).__name__.lower() == name.replace("-", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian:2", "takes no parameter"),
        ("optical:x", "positive number, got 'x'"),
        ("matern:-1", "positive number"),
        ("matern:", "positive number"),
        ("optical:inf", "positive number"),
        ("polynomial:2.5", "degree must be an integer"),
        ("arc-cosine:3", "order must be 0, 1 or 2"),
        ("softmax:odd", "features must be one of"),
        ("matern:1:2", "at most 1 parameter"),
        ("spectral", "sampler.* cannot be written on a command line"),
        ("spectral-mixture", "weights, means, scales.* cannot be written"),
    ],
)
def test_bad_kernel_parameters(text, message):
    with pytest.raises(ValueError, match=message):
        parse_kernel(text)


# Selection


@pytest.mark.nightly
@pytest.mark.parametrize("lengthscale", [0.25, 1.0, 16.0])
def test_planted_lengthscale_is_found(lengthscale):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (400, 2))
    K = randkern.Gaussian(lengthscale=lengthscale)(X)
    sample = np.linalg.cholesky(K + 1e-8 * np.eye(len(X))) @ rng.standard_normal(400)
    y = sample / sample.std() + 0.02 * rng.standard_normal(400)
    found = select_hyperparameters(parse_kernel("gaussian"), X, y, task="regression")
    # A lengthscale far beyond the data's extent only shows through the penalty.
    assert 0.4 * min(lengthscale, 4) < found.value < 2.5 * lengthscale
    values = [tried["value"] for tried in found.tried]
    assert len(values) == len(set(values)) <= 13


@pytest.mark.parametrize("column", ["groups", "time"])
@pytest.mark.parametrize("data", [wave, blobs])
def test_dependent_rows_are_left_out_together_by_their_loss(data, column):
    n = len(data().y_train)
    results = compare(data(**{column: np.arange(n) // 4}), "gaussian", [], n_seeds=1)
    losses = [
        each["validation_loss"] for each in results["selection"]["gaussian"]["tried"]
    ]
    spread = 2.0 if data is blobs else np.var(data().y_train)
    assert 0 < min(losses) < 0.5 * spread  # the first is that of signs


# Data


def test_a_quarter_is_held_out_by_class():
    data = prepare(load_dataset("breast-cancer"))
    assert len(data.X_test) == pytest.approx(0.25 * 569, abs=1)
    assert np.mean(data.y_test) == pytest.approx(np.mean(data.y_train), abs=0.01)
    assert data.split.startswith("stratified 25%")
    np.testing.assert_allclose(data.X_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.X_train.std(axis=0), 1)
    assert abs(data.X_test.mean(axis=0)).max() > 1e-3  # scaled by training rows


def test_copies_of_rows_are_held_out_together():
    X = pytest.importorskip("pandas").DataFrame(
        np.random.default_rng(0).normal(size=(120, 2))
    )
    copies = X.iloc[np.arange(720) % 120].rename(columns=str).reset_index(drop=True)
    dataset = Dataset("copies", copies, np.arange(720.0), task="regression")
    with pytest.warns(UserWarning, match="600 of 720 rows are copies"):
        data = prepare(dataset)
    train, test = ({*map(tuple, rows)} for rows in (data.X_train, data.X_test))
    assert len(train) + len(test) == 120 and not train & test
    assert not data.splitting.is_random


def test_scores_beside_the_error():
    data = prepare(blobs())
    results = compare(blobs(), "gaussian", [40], n_seeds=1)
    model = randkern.KernelRidgeClassifier(
        randkern.Gaussian(results["selection"]["gaussian"]["value"]),
        alpha=results["selection"]["gaussian"]["alpha"],
        n_components=40,
        fit_intercept=True,
        random_state=0,
    ).fit(data.X_train, data.y_train)
    record = results["records"][1]
    P, n = model.predict_proba(data.X_test), len(data.y_test)
    assert record["log_loss"] == pytest.approx(log_loss(data.y_test, P))
    area = roc_auc_score(data.y_test, P, multi_class="ovr", average="weighted")
    assert record["auc"] == pytest.approx(area)
    error = record["test_error"]
    assert record["standard_error"] == pytest.approx((error * (1 - error) / n) ** 0.5)


def test_sampling_error_of_regression_is_that_of_a_bootstrap():
    results = compare(wave(400), "gaussian", [30], n_seeds=1, exact=False)
    data, (record,) = prepare(wave(400)), results["records"]
    chosen = results["selection"]["gaussian"]
    model = randkern.KernelRidgeRegressor(
        randkern.Gaussian(chosen["value"]),
        alpha=chosen["alpha"],
        n_components=30,
        fit_intercept=True,
        random_state=0,
    ).fit(data.X_train, data.y_train)
    squares = (model.predict(data.X_test) - data.y_test) ** 2
    draws = np.random.default_rng(0).integers(len(squares), size=(2000, len(squares)))
    spread = np.sqrt(squares[draws].mean(axis=1)).std() / data.y_test.std()
    # The spread of 2,000 draws is known to 1.6 %; the delta method leaves out 1/n.
    assert record["standard_error"] == pytest.approx(spread, rel=0.12)
    assert record["log_loss"] is record["auc"] is None


def test_baselines_are_a_constant_and_a_linear_model():
    found = compare(blobs(), "linear", [4], n_seeds=1)
    constant, linear = found["baselines"].values()
    assert list(found["baselines"]) == ["most frequent class", "linear model"]
    y = prepare(blobs()).y_test
    assert constant["test_error"] >= 1 - np.bincount(y).max() / len(y)
    assert linear["test_error"] < constant["test_error"]
    found = compare(wave(60), "linear", [2], n_seeds=1)["baselines"]
    assert found["mean"]["test_error"] == pytest.approx(1.0, abs=0.2)
    assert 0.1 < found["linear model"]["test_error"] < 1.0


def test_few_rows_are_refused():
    with pytest.raises(ValueError, match="7 rows; expected 8 or more"):
        prepare(wave(7))


# Measurement


@pytest.mark.slow
@pytest.mark.parametrize("method", ["VmHWM", "ru_maxrss"])
def test_peak_memory_sees_what_was_freed(method, monkeypatch):
    if method == "VmHWM" and measure.peak_memory_method() != method:
        pytest.skip("this system does not reset its high-water mark")
    monkeypatch.setattr(measure, "peak_memory_method", lambda: method)
    with Measurement() as measured:
        np.ones(2**24)
    if method == "ru_maxrss":  # since the process started: an upper bound
        assert measured.peak_bytes >= measured.before_bytes > 0
    else:
        # Not all of the block: the system may take other pages back meanwhile.
        assert measured.peak_bytes - measured.before_bytes > 2**26
