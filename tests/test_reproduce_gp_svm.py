"""Gaussian processes and support vector machines beside what was published of them."""

import json
from itertools import product

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import randkern as rk
from _lab import COMMON as BENCH_COMMON
from randkern_lab.papers import fourier_svm, kitchen_sinks_gp

pytestmark = pytest.mark.slow

COMMON = BENCH_COMMON | {"experiment"}
MEASURES = {
    "rows": {
        *("measure", "dataset", "method", "n_train", "n_components", "accuracy"),
        *("seconds", "cpu_seconds", "predict_seconds"),
    },
    "soft": {
        *("measure", "dataset", "kernel", "fourier", "n_train", "n_components"),
        *("seed", "accuracy", "seconds", "cpu_seconds", "predict_seconds"),
    },
    "hard": {
        *("measure", "dataset", "kernel", "fourier", "n_train", "n_components"),
        *("margin", "gap", "least", "support", "accuracy", "seconds"),
        *("cpu_seconds", "predict_seconds"),
    },
    "certificate": {
        *("measure", "dataset", "kernel", "fourier", "n_train", "n_components"),
        *("error", "least", "sum", "support", "residual"),
    },
}


@pytest.fixture(scope="module")
def processes():
    return kitchen_sinks_gp.KitchenSinks.run(kitchen_sinks_gp.Options(quick=True))


@pytest.fixture(scope="module")
def machines():
    return fourier_svm.FourierSVM.run(fourier_svm.Options(quick=True))


def of(results, measure):
    return [r for r in results["records"] if r["measure"] == measure]


# -- kitchen-sinks-gp ---------------------------------------------------------------


@pytest.mark.slow
def test_processes_have_their_documented_keys(processes):
    own = {"curves", "n_components", "exponents", "conventions", "difference"}
    own |= {"learned"}
    assert set(processes) == COMMON | own
    keys = {"convention", "n_components", "seed", "mean_error", "sd_error", "seconds"}
    assert all(set(r) == keys for r in processes["records"])
    assert json.loads(json.dumps(processes, allow_nan=False)) == processes


def test_the_conventions_give_the_same_features(processes):
    assert processes["difference"]["features"] < 1e-10
    assert processes["difference"]["posterior"] < 1e-6
    for deviation in processes["conventions"].values():
        # 150 frequencies: the standard error of their deviation is 1/√300.
        assert abs(deviation["found"] / deviation["expected"] - 1) < 5 / np.sqrt(300)


@pytest.fixture
def task():
    """An experiment with its rows drawn."""
    experiment = kitchen_sinks_gp.KitchenSinks(kitchen_sinks_gp.Options())
    experiment.prepare()
    return experiment


def test_the_traditional_convention_is_that_of_the_notes(task):
    """Eq. 9 with w ~ N(0, (2πℓ)⁻²), and the posterior of its features."""
    w = task.frequencies(100_000, np.random.default_rng(0))
    # The standard error of a standard deviation is 1/√(2n) of it.
    expected = 1 / (2 * np.pi * task.options.lengthscale)
    assert abs(w.std() / expected - 1) < 5 / np.sqrt(200_000)
    w = w[:10]
    Z = task.basis(w, task.X)
    phases = 2 * np.pi * task.X * w
    np.testing.assert_allclose(Z[:, :10], np.cos(phases) / np.sqrt(10))
    np.testing.assert_allclose(Z[:, 10:], np.sin(phases) / np.sqrt(10))
    # As a process with the kernel that these features have.
    Z_new = task.basis(w, task.grid)
    K = Z @ Z.T + task.options.noise * np.eye(len(Z))
    cross = Z_new @ Z.T
    mean, sd = task.written_out(w)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(K, task.y), atol=1e-9)
    variance = 1 - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    np.testing.assert_allclose(sd**2, variance, atol=1e-9)


def test_hyperparameters_are_learned(processes):
    exact, features = processes["learned"]
    assert exact["n_components"] is None and features["n_components"] == 300
    for learned in (exact, features):  # drawn with 0.5 and 0.05, 60 rows
        assert 0.25 < learned["lengthscale"] < 1.0
        assert 0.02 < learned["noise"] < 0.12


def test_errors_fall_with_the_number_of_features(processes):
    """A tenfold D makes errors 3.2 times smaller; two are seen with 10 draws."""
    for convention, key in product(kitchen_sinks_gp.CONVENTIONS, ("mean", "sd")):
        few, many = (
            kitchen_sinks_gp.root_mean_square(
                processes["records"], convention, size, f"{key}_error"
            )
            for size in (30, 300)
        )
        assert many < few / 2
        assert processes["exponents"][convention][key] < 0


def test_exact_curves_are_those_of_the_dense_formula(processes, task):
    kernel = rk.Gaussian(task.options.lengthscale)
    K = kernel(task.X) + task.options.noise * np.eye(len(task.X))
    cross = kernel(task.grid, task.X)
    variance = 1 - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    exact = processes["curves"]["exact"]
    np.testing.assert_allclose(
        exact["mean"], cross @ np.linalg.solve(K, task.y), atol=1e-8
    )
    np.testing.assert_allclose(exact["sd"], np.sqrt(variance), atol=1e-7)


@pytest.mark.parametrize("name", ["lengthscale", "noise"])
def test_numbers_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be a positive number, got 0"):
        kitchen_sinks_gp.Options(**{name: 0.0})


# -- fourier-svm --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [("rows", (1, 300)), ("hard_rows", 5), ("soft_rows", 2), ("penalty", 0.0)],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"^{option} must be"):
        fourier_svm.Options(quick=True, **{option: value})


@pytest.mark.slow
def test_legends_name_the_curves(machines, processes):
    figure = fourier_svm.FourierSVM.figure(machines)
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"scikit-learn's SVC", "Gaussian", "Cauchy, offset"} <= names
    figure = kitchen_sinks_gp.KitchenSinks.figure(processes)
    labels = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert {"300 columns", "exact", "exact ± 2 sd", "rows"} == labels


def test_machines_have_their_documented_keys(machines):
    assert set(machines) == COMMON | {"exponents"}
    for measure, keys in MEASURES.items():
        result = of(machines, measure)
        assert result and all(set(r) == keys for r in result), measure
    assert json.loads(json.dumps(machines, allow_nan=False)) == machines


def test_hard_margins_are_solved(machines):
    records = of(machines, "hard")
    assert {(r["kernel"], r["fourier"]) for r in records} == {
        (kernel, fourier)
        for kernel in fourier_svm.KERNELS
        for fourier in ("pair", "offset", None)
    }
    for record in records:
        assert record["gap"] < 1e-6
        assert record["least"] > 1 - 1e-5
        assert record["margin"] > 0


def test_certificates_prove_what_they_say(machines):
    for record in of(machines, "certificate"):
        assert record["error"] == "NotSeparableError"
        assert record["least"] >= 0
        assert record["sum"] == pytest.approx(1)
        assert record["residual"] < 1e-5


def test_both_maps_and_svc_learn(machines):
    assert {r["method"] for r in of(machines, "rows")} == {"SVC", *fourier_svm.KERNELS}
    exact = [r for r in of(machines, "soft") if r["n_components"] is None]
    assert {r["kernel"] for r in exact} == set(fourier_svm.KERNELS)
    X, y = fourier_svm.generate(1300, seed=0)
    X_test, y_test = X[800:], y[800:]
    # More than the larger class, by four standard errors of 500 rows.
    largest = max(y_test.mean(), 1 - y_test.mean())
    margin = 4 * np.sqrt(largest * (1 - largest) / 500)
    wide = [r for r in of(machines, "rows") if r["n_train"] > 200]
    assert len(wide) == 8
    assert all(r["accuracy"] > largest + margin for r in [*wide, *exact])
    for record in wide:
        if record["method"] == "SVC":
            continue
        n, D = record["n_train"], record["n_components"]
        kernel = fourier_svm.KERNELS[record["method"]]("scale")
        maps = rk.RandomFeatures(kernel, D, random_state=0).fit(X[:n])
        peer = LinearSVC(
            C=1.0, loss="hinge", fit_intercept=False, tol=1e-6, max_iter=10**6
        ).fit(maps.transform(X[:n]), y[:n])
        accuracy = peer.score(maps.transform(X_test), y_test)
        # Rows that are within the solvers' tolerance of the boundary.
        assert abs(record["accuracy"] - accuracy) <= 4 / 500


def test_a_pair_is_the_same_before_or_within_the_model():
    X, y = fourier_svm.generate(200, seed=0)
    X = X.astype(np.float64)
    own = fourier_svm.make_classifier(rk.Gaussian(2.0), 1.0, 60, "pair", 3).fit(X, y)
    Z = rk.RandomFeatures(rk.Gaussian(2.0), 60, random_state=3).fit_transform(X)
    linear = rk.KernelSVC(
        rk.Linear(), 1.0, 60, fit_intercept=False, random_state=3
    ).fit(Z, y)
    np.testing.assert_allclose(
        own.decision_function(X), linear.decision_function(Z), atol=1e-6
    )


def test_offset_features_solve_the_primal_of_the_slides():
    """The objective of version 2 of the map is least: LinearSVC finds no less."""
    X, y = fourier_svm.generate(200, seed=1)
    X = X.astype(np.float64)
    model = fourier_svm.make_classifier(rk.Gaussian(2.0), 1.0, 60, "offset", 0)
    model.fit(X, y)
    features = rk.RandomFeatures(rk.Gaussian(2.0), 60, fourier="offset", random_state=0)
    Z = features.fit_transform(X)
    peer = LinearSVC(
        loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6, random_state=0
    ).fit(Z, y)

    def objective(decision, w):
        return np.maximum(0, 1 - (2 * y - 1) * decision).sum() + w @ w / 2

    expected = objective(peer.decision_function(Z), peer.coef_[0])
    margin = model.margin_[0]
    result = np.maximum(0, 1 - (2 * y - 1) * model.decision_function(X)).sum()
    # A C that is 1 % off leaves 3e-6 of it.
    assert result + 0.5 / margin**2 == pytest.approx(expected, rel=1e-7)


@pytest.mark.slow
def test_rows_of_svc_may_be_limited():
    options = fourier_svm.Options(quick=True, rows=(100, 200), peer_rows=100)
    results = fourier_svm.FourierSVM.run(options)
    assert [s["n_train"] for s in results["skipped"]] == [200]
    assert any("skipped SVC, generated, 200" in note for note in results["notes"])
