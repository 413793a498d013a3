"""Published experiments: what they measure, what they record, and the command."""

import json
import math
import re
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import randkern as rk
from _lab import COMMON as EVERYWHERE
from randkern_lab import energy
from randkern_lab.catalogue import BENCHMARKS, EXPERIMENTS, load
from randkern_lab.energy import EnergyMeter, Joules, cpu_meter, gpu_meter
from randkern_lab.options import CommonOptions
from randkern_lab.panels import shown_ticks
from randkern_lab.papers import (
    nested_ridge,
    optical_convergence,
    optical_curves,
    optical_device,
    optical_hyperparameters,
    optical_ridge,
    projection_cost,
    transfer_learning,
)
from randkern_lab.papers.device_counts import acquired_counts
from randkern_lab.papers.extraction import load_features
from randkern_lab.papers.images import load_binary_images
from randkern_lab.papers.optical_settings import KernelSetting, optical_settings
from randkern_lab.papers.published import published_rows
from randkern_lab.papers.transfer_learning import standardised
from randkern_lab.provenance import thread_counts
from randkern_lab.runner import SMOKE
from randkern_lab.scoring import random_rows

pytestmark = pytest.mark.slow

COMMON = EVERYWHERE | {"experiment"}
OWN = {
    "optical-ridge": {
        *("hyperparameters", "device", "overtaking", "device_loss", "compared"),
    },
    "optical-hyperparameters": {"best", "published_best", "at_published_best"},
    "optical-device": {"hyperparameters", "losses"},
    "transfer-learning": {"device", "device_loss"},
    "projection-cost": {"energy", "crossings", "published_crossings", "growth"},
    "optical-convergence": {"exponents", "variances", "constants"},
}
RECORDS = {
    "optical-ridge": {
        *("curve", "kernel", "n_components", "seed", "n_train", "test_error"),
        *("fit_seconds", "predict_seconds", "solver_iterations", "outcome"),
        *("rule", "residual"),
    },
    "optical-hyperparameters": {"kernel", "hyperparameters", "validation_error"},
    "optical-device": {
        *("variant", "n_components", "penalty", "bias", "mean_count", "saturated"),
        "test_error",
    },
    "transfer-learning": {
        *("method", "n_components", "hyperparameters", "validation_error"),
        *("test_error", "fit_seconds", "predict_seconds", "inputs", "n_train"),
        "at_edge",
    },
    "projection-cost": {
        *("method", "n_components", "columns", "batch", "seconds", "joules"),
        *("repeats", "growth"),
    },
    "optical-convergence": {"measure", "degree", "n_components"},
}
OPTICAL = tuple(name for name in OWN if name in EXPERIMENTS)
EVERY = (*EXPERIMENTS, *BENCHMARKS)


# -- every experiment ---------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTICAL)
def test_results_have_their_documented_keys(name, quick):
    results = quick(name)
    assert set(results) == COMMON | OWN[name]
    assert results["command"] == "reproduce"
    assert results["experiment"] == name
    assert all(set(r) >= RECORDS[name] for r in results["records"])
    assert json.loads(json.dumps(results, allow_nan=False)) == results


@pytest.mark.nightly
@pytest.mark.parametrize("name", EVERY)
def test_every_experiment_prints_and_draws(name, quick):
    experiment, results = load(name), quick(name)
    tables = experiment.tables(results)
    assert tables and all(table.rows for table in tables)
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    figures = experiment.figures(results)
    assert figures and all(figure.axes for figure in figures.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", EVERY)
def test_progress_ends_at_its_total(name, smoke):
    calls = smoke(name)[1]
    done, total, _ = calls[-1]
    assert done == total > 0
    counted = [done for done, of, _ in calls if of == total]
    assert counted == sorted(counted)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_options_are_documented(name):
    options = load(name).Options
    assert issubclass(options, CommonOptions)
    for each in fields(options):
        assert each.metadata["text"].endswith((".", "?"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_results_say_where_they_come_from(name, quick):
    results = quick(name)
    origin = results["provenance"]
    assert origin["command"].startswith(f"randkern {load(name).command} {name} --quick")
    assert results["machine"]["threads"] == thread_counts()
    assert json.loads(json.dumps(results, allow_nan=False)) == results


@pytest.mark.parametrize("name", EVERY)
def test_smoke_runs_say_so_and_note_no_exponents(name, quick):
    first, *others = quick(name)["notes"]
    assert first == SMOKE
    fitted = [n for n in others if re.search(r"[nD]\^|interval|\bexponents?\b", n)]
    assert not fitted


# -- published numbers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "n_rows"),
    [
        ("fashion-mnist-features", 184),
        ("fashion-mnist-kernels", 4),
        ("fashion-mnist-grid-gaussian", 432),
        ("fashion-mnist-grid-optical-2", 252),
        ("fashion-mnist-grid-optical-4", 252),
        ("cifar10-transfer-learning", 12),
        ("projection-cost-p100", 92),
    ],
)
def test_published_tables_are_whole(table, n_rows):
    rows = published_rows(table)
    assert len(rows) == n_rows
    assert len({tuple(row) for row in rows}) == 1


def test_published_numbers_are_those_of_the_paper():
    accuracy = {
        (row["features"], row["n_components"]): row["test_accuracy"]
        for row in published_rows("fashion-mnist-features")
    }
    assert accuracy["sim_opu_2", 100_000] == 0.8871
    assert accuracy["real_opu_4", 100_000] == 0.8822
    final = published_rows("cifar10-transfer-learning")[-1]
    assert (final["rbf_fourier"], final["rbf_kernel_limit"]) == (14.8, 13.0)


def test_an_unknown_published_table_is_named():
    with pytest.raises(ValueError, match="no published table 'x'; expected one of"):
        published_rows("x")


# -- data ---------------------------------------------------------------------------


@pytest.mark.nightly
def test_bits_are_those_above_ten(data_dir):
    images = load_binary_images("mnist", data_dir)
    raw = rk.datasets.load_dataset("mnist", data_dir=data_dir)
    expected = np.round(raw.X_train[:500] * 255) > 10
    np.testing.assert_array_equal(images.X_train[:500], expected)
    assert images.complete
    published = replace(images, name="fashion-mnist")
    assert optical_settings(published, ["optical:2"])["optical:2"].value == 16


def test_auto_takes_digits_without_a_directory():
    images = load_binary_images("auto", None)
    assert images.name == "digits"
    assert set(np.unique(images.X_train)) == {0, 1}


def test_auto_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="has none of the folders fashion-mnist"):
        load_binary_images("auto", tmp_path)


def test_tables_are_refused_as_images():
    with pytest.raises(ValueError, match="must be images with classes, got 'iris'"):
        load_binary_images("iris", None)


def test_a_setting_builds_its_kernel():
    setting = KernelSetting("optical:4", 16.0, 3.0, "somewhere")
    assert (setting.build().degree, setting.build().bias) == (4, 16.0)
    assert setting.describe()["origin"] == "somewhere"


def write_features(folder, n_train=60, n_test=20, labels=None):
    rng = np.random.default_rng(0)
    for part, n in (("train", n_train), ("test", n_test)):
        y = np.arange(n) % 3
        X = rng.standard_normal((n, 5)) + y[:, None]
        np.save(folder / f"final_{part}.npy", X.astype(np.float16))
        np.save(folder / f"labels_{part}.npy", y[:labels])


def test_features_are_read_from_files(tmp_path):
    write_features(tmp_path)
    features = load_features("final", tmp_path)
    assert features.X_train.shape == (60, 5)
    train, test = standardised(features)
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-4)
    assert test.shape == (20, 5)


def test_missing_features_are_named(tmp_path):
    write_features(tmp_path)
    with pytest.raises(ValueError, match="other_train.npy is missing"):
        load_features("other", tmp_path)


def test_labels_must_belong_to_the_features(tmp_path):
    write_features(tmp_path, labels=7)
    with pytest.raises(ValueError, match="a row of features and one label an image"):
        load_features("final", tmp_path)


def test_features_need_a_directory():
    with pytest.raises(ValueError, match="give --data-dir, or --quick"):
        load_features("final", None)


def test_unknown_layers_are_named(tmp_path):
    with pytest.raises(ValueError, match="no layer 'L9' of 'ResNet34'; expected one"):
        load_features("L9", tmp_path, network="ResNet34")


# -- the device ---------------------------------------------------------------------


def test_leading_outputs_are_features_of_the_same_kernel():
    """The mean product over leading outputs is the kernel, in five sigma."""
    X = (np.random.default_rng(0).random((6, 100)) < 0.4).astype(np.uint8)
    device = rk.optics.SimulatedOPU(8192, random_state=1)
    with acquired_counts(device, [(X, X[:, 0])], bias=9) as stored:
        block = next(iter(stored.blocks(0, 4096, 2))).X
    exact = rk.Optical(2, 9)(X.astype(float))
    variance = rk.Optical(4, 9)(X.astype(float)) - exact**2
    deviation = np.abs(block @ block.T - exact) / np.sqrt(variance / 4096)
    # Calibration is on these rows, and noise adds some 2 % to the diagonal.
    assert np.all(deviation < 6)


def test_counts_need_room(monkeypatch, tmp_path):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X = np.ones((4, 10), dtype=np.uint8)
    with (
        pytest.raises(OSError, match="GB free; set TMPDIR to another disk"),
        acquired_counts(rk.optics.SimulatedOPU(100), [(X, X[:, 0])]),
    ):
        pass
    assert not list(tmp_path.iterdir())


# -- optical-ridge ------------------------------------------------------------------


def test_errors_fall_towards_those_of_the_exact_kernels(quick):
    records = quick("optical-ridge")["records"]
    errors = {(r["curve"], r["n_components"]): r["test_error"] for r in records}
    computed = "fourier", "fourier-pair", "optical-2", "optical-4", "optical-6"
    for curve in (*computed, "device-2-own", "device-4-own"):
        falling = [errors[curve, size] for size in (10, 30, 100, 300)]
        assert falling == sorted(falling, reverse=True)
        if curve == "optical-6":  # without its kernel
            continue
        # Of 450 rows: five standard errors of a difference, were they independent.
        kernel = curve.replace("device", "optical").removesuffix("-own")
        limit = errors[kernel.removesuffix("-pair"), None]
        assert abs(falling[-1] - limit) < 5 * math.sqrt(2 * limit * (1 - limit) / 450)


def test_errors_of_exact_kernels_are_those_of_the_dense_formula(quick):
    results = quick("optical-ridge")
    images = load_binary_images("digits", None)
    chosen = np.random.default_rng(0).permutation(len(images.X_train))[:500]
    X, X_test = (Z.astype(float) for Z in (images.X_train[chosen], images.X_test))
    targets = 2.0 * np.eye(10)[images.y_train[chosen]] - 1
    exact = [r for r in results["records"] if r["n_components"] is None]
    dots, test_dots = X @ X.T, X_test @ X.T
    norms = np.multiply.outer(X.sum(axis=1), X.sum(axis=1))
    test_norms = np.multiply.outer(X_test.sum(axis=1), X.sum(axis=1))
    assert len(exact) == 6
    for record in exact:
        named = results["hyperparameters"][record["kernel"]]
        if record["kernel"] == "gaussian":
            kernel = rk.Gaussian(named["lengthscale"])
            K, K_test = kernel(X), kernel(X_test, X)
        elif record["kernel"] == "linear":
            K, K_test = dots + 64, test_dots + 64
        elif record["curve"].endswith("dot"):
            # The bias is in the dot product alone (eq. 7).
            K, K_test = (
                pairs**2 + (dot + named["bias"]) ** 2
                if named["degree"] == 2
                else 4 * (pairs**2 + 4 * pairs * bias_dot**2 + bias_dot**4)
                for pairs, dot in ((norms**0.5, dots), (test_norms**0.5, test_dots))
                for bias_dot in (dot + named["bias"],)
            )
        else:
            kernel = rk.Optical(named["degree"], named["bias"])
            K, K_test = kernel(X), kernel(X_test, X)
        weights = np.linalg.solve(K + named["alpha"] * np.eye(500), targets)
        wrong = (K_test @ weights).argmax(axis=1) != images.y_test
        # Conjugate gradients stop at a residual of 1e-4, which may turn a row or two.
        assert abs(record["test_error"] - np.mean(wrong)) <= 2 / len(wrong)


def test_overtaking_is_where_degree_four_stays_ahead():
    low, high = {10: 0.5, 20: 0.3, 30: 0.2}, {10: 0.4, 20: 0.35, 30: 0.1, None: 0.1}
    assert optical_ridge._overtaking(low, high) == 30
    assert optical_ridge._overtaking(high, low) is None
    assert optical_ridge._overtaking({}, {}) is None


def test_published_degree_four_overtakes_sooner_on_the_device():
    rows = optical_curves.published_curves()
    published = {
        kind: optical_ridge._overtaking(*(optical_ridge._errors(rows, c) for c in pair))
        for kind, pair in optical_curves.PAIRS.items()
    }
    # Section 4.1 says "from D = 2·10⁴", of the simulation.
    assert published == {"optical": 20_000, "device": 900}


def test_what_is_concluded_of_a_device_is_of_its_published_penalty():
    """And its frames are described by records, which outlive an interruption."""
    errors = {"optical-2": 0.2, "device-2-own": 0.25, "device-2-new": 0.1}
    records = [
        {"curve": curve, "n_components": 10, "rule": "solved", "test_error": error}
        for curve, error in errors.items()
    ]
    dataset = {"name": "digits", "complete": True, "n_train": 1347}
    for record in records[1:]:
        record["described"] = {"bias": 0}
    experiment = optical_ridge.OpticalRidge(optical_ridge.Options(quick=True))
    experiment.sizes, experiment.settings = [10], {}
    found = experiment.conclude({"records": records, "dataset": dataset})
    assert found["device"] == [{"bias": 0}]
    (loss,) = found["device_loss"]
    assert loss == {"degree": 2, "n_components": 10, "loss": pytest.approx(0.05)}
    assert found["overtaking"] == {"optical": None, "device": None}
    assert not any("described" in record for record in records)


def test_one_draw_serves_all_sizes_up_to_ten_thousand():
    options = optical_ridge.Options(
        n_components=(10, 5000, 10_000, 20_000, 50_000), exact_rows=0
    )
    experiment = optical_ridge.OpticalRidge(options)
    experiment.sizes = sorted(options.n_components)
    experiment.settings = {
        kernel: KernelSetting(kernel, 1.0, 1.0, "")
        for kernel in ("gaussian", "optical:2", "optical:4", "optical:6")
    }
    draws = {
        curve: [
            (c["n_components"], c["seed"])
            for c in experiment.cases()
            if c["curve"] == curve
        ]
        for curve in ("optical-4", "optical-6", "device-4-own")
    }
    assert draws["optical-4"] == [
        *((size, seed) for size in (10_000, 20_000) for seed in range(5)),
        *((50_000, seed) for seed in range(3)),
    ]
    assert draws["optical-6"] == [(10_000, seed) for seed in range(5)]
    assert draws["device-4-own"] == [(10_000, 0), (20_000, 0), (50_000, 0)]


def test_first_columns_of_a_draw_are_a_smaller_draw():
    """Errors of nested sizes are those of fits of their own, by scikit-learn."""
    rng = np.random.default_rng(0)
    X = (rng.random((300, 70)) < 0.4).astype(np.float32)
    y, classes = (X[:, :5].sum(axis=1) > 2).astype(int), np.arange(2)
    X, X_test, y, y_test = X[:200], X[200:], y[:200], y[200:]
    for kernel in (rk.Gaussian(4.0), rk.Optical(2, 9.0)):
        large = rk.RandomFeatures(kernel, 160, fourier="offset", random_state=3).fit(X)
        equations = nested_ridge.normal_equations(
            lambda rows, large=large: large.transform(X[rows]),
            nested_ridge.class_targets(y, classes),
        )
        fits = list(nested_ridge.solved(equations, (40, 160), (0.3,)))
        errors = nested_ridge.class_errors(
            fits,
            lambda rows, large=large: large.transform(X_test[rows]),
            y_test,
            classes,
        )
        for fit, error in zip(fits, errors, strict=True):
            size = fit.n_components
            small = rk.RandomFeatures(
                kernel, size, fourier="offset", random_state=3
            ).fit(X)
            Z = small.transform(X).astype(float)
            np.testing.assert_allclose(
                large.transform(X)[:, :size] * (160 / size) ** 0.5, Z, rtol=1e-5
            )
            ridge = Ridge(0.3, fit_intercept=False)
            ridge.fit(Z, np.where(y[:, None] == classes, 1.0, -1.0))
            np.testing.assert_allclose(
                fit.weights * (size / 160) ** 0.5, ridge.coef_.T, rtol=1e-3, atol=1e-4
            )
            predicted = ridge.predict(small.transform(X_test)).argmax(axis=1)
            assert error == np.mean(predicted != y_test)


def test_equations_of_parts_are_those_of_all_rows(rng):
    Z = rng.standard_normal((50, 7)).astype(np.float32)
    Y = rng.standard_normal((50, 2))
    equations = nested_ridge.normal_equations(
        nested_ridge.shifted(Z.__getitem__, 20), Y[20:]
    )
    equations = nested_ridge.normal_equations(Z.__getitem__, Y[:20], equations)
    (fit,) = nested_ridge.solved(equations, [7], [0.5])
    ridge = Ridge(0.5, fit_intercept=False).fit(Z, Y)
    np.testing.assert_allclose(fit.weights, ridge.coef_.T, rtol=1e-4)


def test_exact_kernels_of_transfer_learning_are_exact():
    """Their errors are those of scikit-learn's ridge with all kernel values."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(300, 6)), rng.normal(size=(200, 6))
    y, y_test = (np.sin(2 * A[:, 0]) + A[:, 1] > 0 for A in (X, X_test))
    options = transfer_learning.Options(quick=True)
    experiment = transfer_learning.TransferLearning(options)
    experiment.rows, experiment.y = {"bits": (X, X_test)}, y
    experiment.data = SimpleNamespace(y_test=y_test)
    kernel = rk.Gaussian(0.4)  # so short that 1,000 features hardly distinguish rows
    record = experiment._exact(kernel, 0.1, "bits")
    K, K_test = kernel(X), kernel(X_test, X)
    rows = random_rows(300, options.exact_rows, 0)
    dual = np.linalg.solve(
        K[np.ix_(rows, rows)] + 0.1 * np.eye(len(rows)), 2.0 * y[rows] - 1
    )
    expected = np.mean((K_test[:, rows] @ dual > 0) != y_test)
    assert record["test_error"] == pytest.approx(expected, abs=0.011)
    assert record["n_train"] == len(rows) and record["residual"] < 0.1


def test_our_errors_stand_in_the_published_table(quick):
    """Means of the draws of each method, in percent, below the twelve layers."""
    results = quick("transfer-learning")
    rows = list(transfer_learning.table_1(results))
    assert [row["ours"] for row in rows] == [False] * 12 + [True] * 2
    assert rows[11]["optical-2-exact"] == 12.9
    own = [r for r in results["records"] if r["inputs"] == "bits"]
    for record in own:
        exact = record["n_components"] is None and record["method"] != "linear"
        key = record["method"] + "-exact" * exact
        assert rows[12][key] == pytest.approx(100 * record["test_error"])
    assert len(own) == 7


def test_ticks_of_many_values_are_powers_of_ten():
    sizes = optical_curves.PUBLISHED_SIZES
    assert len(sizes) == 27
    assert shown_ticks(sizes, 1.2) == [10, 100, 1000, 10_000, 100_000]
    assert shown_ticks((300, 10, 1000), 0.6) == [10, 300, 1000]
    doubled = (1000, 2000, 4000, 8000, 16_000, 32_000)
    assert shown_ticks(doubled, 0.1) == list(doubled)
    assert shown_ticks(doubled, 0.6) == [1000, 8000, 32_000]


def test_published_rows_stand_beside_ours():
    """With the difference in points, and with no reason on the published data."""
    record = {"curve": "fourier", "n_components": 1000, "rule": "solved"}
    records = [
        record | {"test_error": e, "seed": i} for i, e in enumerate((0.14, 0.15))
    ]
    dataset = {"name": "fashion-mnist", "complete": True, "n_train": 60_000}
    published = [
        r for r in optical_curves.published_curves() if r["curve"] == "fourier"
    ]
    results = {"records": records, "published": published, "dataset": dataset}
    (row,) = optical_ridge._compared(results)
    assert row["published"] == pytest.approx(1 - 0.8527)
    assert row["difference"] == pytest.approx(100 * (0.145 - 0.1473))
    assert (row["reasons"], row["draws"]) == ("", 2)
    assert row["published_regression_seconds"] == 0.921


def test_exact_rows_must_not_be_negative():
    with pytest.raises(ValueError, match="exact_rows must be 0 or more, got -1"):
        optical_ridge.Options(exact_rows=-1)


@pytest.mark.slow
def test_what_exceeds_the_memory_is_skipped():
    options = optical_ridge.Options(quick=True, n_components=(20,), memory_limit="2MB")
    results = optical_ridge.OpticalRidge.run(options)
    skipped = {(s["curve"], s["n_components"]) for s in results["skipped"]}
    assert ("fourier", None) in skipped
    assert any("skipped fourier, exact" in note for note in results["notes"])


# -- optical-hyperparameters --------------------------------------------------------


def test_cells_of_equal_penalty_and_scale_have_the_error_of_a_fit(quick):
    """The best cell of degree 2, by scikit-learn's ridge on the scaled features."""
    results = quick("optical-hyperparameters")
    images = load_binary_images("digits", None)
    rows = np.random.default_rng(0).permutation(len(images.X_train))[:300]
    held_out, fitted = rows[:60], rows[60:]
    best = results["best"]["optical:2"]
    named = best["hyperparameters"]
    kernel = rk.Optical(2, named["bias"])
    features = rk.RandomFeatures(kernel, 60, random_state=0).fit(images.X_train[:1])
    Z, Z_held = (
        named["scale"] * features.transform(images.X_train[part].astype(np.float32))
        for part in (fitted, held_out)
    )
    targets = 2.0 * np.eye(10)[images.y_train[fitted]] - 1
    ridge = Ridge(named["alpha"], fit_intercept=False).fit(Z.astype(float), targets)
    wrong = ridge.predict(Z_held).argmax(axis=1) != images.y_train[held_out]
    assert abs(best["validation_error"] - np.mean(wrong)) <= 1 / 60
    errors = {}
    for record in results["records"]:
        cell = record["hyperparameters"]
        key = (
            record["kernel"],
            record["value"],
            f"{cell['alpha'] / cell['scale'] ** 2:.3g}",
        )
        errors.setdefault(key, set()).add(record["validation_error"])
    assert all(len(same) == 1 for same in errors.values())


def test_a_heatmap_above_each_published_one(quick):
    pytest.importorskip("matplotlib")
    results = quick("optical-hyperparameters")
    figure = optical_hyperparameters.OpticalHyperparameters.figure(results)
    panels = [axes for axes in figure.axes if axes.get_images()]
    shown = {(r["kernel"], r["value"]) for r in results["records"]}
    assert len(panels) == 2 * len(shown)
    errors = panels[0].get_images()[0].get_array()
    first = results["records"][0]["hyperparameters"]
    own = [
        record["validation_error"]
        for record in results["records"]
        if record["hyperparameters"] | {"alpha": 0} == first | {"alpha": 0}
    ]
    assert errors[0].tolist() == own
    for panel in (panel for panel in panels if panel.patches):
        j, i = (round(corner + 0.5) for corner in panel.patches[0].get_xy())
        errors = panel.get_images()[0].get_array()
        assert errors[i, j] == pytest.approx(errors.min(), abs=1e-12)
    figure.draw_without_rendering()


def test_half_of_the_grid_has_the_published_optimum():
    options = optical_hyperparameters.Options()
    experiment = optical_hyperparameters.OpticalHyperparameters(options)
    experiment.published = [
        row
        for kernel in optical_hyperparameters.KERNELS
        for row in optical_hyperparameters._published(kernel)
    ]
    values = {}
    for case in experiment.cases():
        values.setdefault(case["kernel"], []).append(case["value"])
    assert values["optical:2"] == [1, 16, 256]
    assert values["optical:4"] == [1, 256]
    assert [round(value, 2) for value in values["gaussian"]] == [
        2.83,
        5.66,
        11.31,
        22.63,
    ]


# -- optical-device -----------------------------------------------------------------


def test_causes_of_a_loss_are_separated_by_differences():
    errors = {"computed": 0.1, "computed-no-bias": 0.12, "device": 0.15, "2-bits": 0.2}
    records = [
        {"variant": name, "n_components": size, "penalty": 1.0, "test_error": e + extra}
        for name, e in errors.items()
        for size, extra in ((10, 0.3), (100, 0.0))
    ]
    stronger = records[3] | {"penalty": 2.0, "test_error": 0.16}
    losses = {r["cause"]: r for r in optical_device._losses([*records, stronger])}
    assert {r["n_components"] for r in losses.values()} == {100}
    expected = {"no bias": 0.02, "the device": 0.03, "2-bits": 0.05}
    expected |= {"2 times the penalty": 0.04}
    assert {name: r["loss"] for name, r in losses.items()} == pytest.approx(expected)


def test_darker_and_coarser_counts_cost_accuracy(quick):
    records = quick("optical-device")["records"]
    errors = {
        r["variant"]: r["test_error"]
        for r in records
        if (r["n_components"], r["penalty"]) == (100, 1.0)
    }
    assert errors["device"] < errors["count-2"] < errors["count-1"]
    assert errors["device"] < errors["2-bits"]
    light = {r["variant"]: (r["mean_count"], r["saturated"]) for r in records}
    assert light["computed"] == (None, None)
    assert light["count-64"][1] > 0.01 > light["device"][1]


# -- convergence --------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("degree", [1, 2])
def test_errors_follow_the_variance_formula(degree):
    """The ratio to it, whose standard deviation over seeds is some 3 %, is 1."""
    rows = np.random.default_rng(0).random((20, 8))
    X = optical_convergence.unit_rows(rows, 10, seed=0)
    record = optical_convergence.gram_error(X, degree, 30, 1000, seed=0)
    assert record["ratio"] == record["error"] / record["predicted"]
    assert abs(record["ratio"] - 1) < 0.16
    variance = rk.Optical(degree).feature_variance(X, n_components=30)
    expected = math.sqrt(variance.sum()) / np.linalg.norm(rk.Optical(degree)(X))
    assert record["predicted"] == pytest.approx(expected)


def test_every_degree_has_an_error_for_every_size(quick):
    records = quick("optical-convergence")["records"]
    found = [
        (r["degree"], r["n_components"]) for r in records if r["measure"] == "error"
    ]
    sizes = sorted({size for _, size in found})
    assert sorted(found) == [(m, size) for m in (1, 2, 3, 4) for size in sizes]
    for degree in (1, 2, 3, 4):
        errors = [
            r["predicted"]
            for r in records
            if r["measure"] == "error" and r["degree"] == degree
        ]
        scaled = np.array(errors) * np.sqrt(sizes)
        np.testing.assert_allclose(scaled, scaled[0])


def test_unit_products_have_the_mean_and_variance_of_theory():
    Z = optical_convergence.optical_features(np.array([[1.0, 0.0]]), 2, 200_000, seed=3)
    squares = Z[0] ** 2  # |u|⁴, of mean 2 and variance 20
    assert abs(squares.mean() - 2) < 5.2 * math.sqrt(20 / 200_000)


def test_norms_of_equation_22_are_those_of_an_exponential_distribution():
    """At x = y, exponentially distributed: E|X| = 2/e, and the supremum is at p = 1."""
    result = optical_convergence.sub_exponential_norm(0.0)
    assert abs(result - 2 / math.e) < 5 * math.sqrt((1 - 4 / math.e**2) / 2**20)


def test_equation_22_holds_with_its_constant(quick):
    records = quick("optical-convergence")["records"]
    tail = [r for r in records if r["measure"] == "tail"]
    for constant in optical_convergence.bernstein(tail):
        kept = ("pair", "n_components")
        own = [r for r in tail if r["degree"] == 1]
        own = [r for r in own if all(r[key] == constant[key] for key in kept)]
        for r in own:
            x = r["t"] / constant["K"]
            bound = 2 * math.exp(-constant["c"] * min(x**2, x) * r["n_components"])
            assert r["share"] + r["share_below"] <= bound * (1 + 1e-9)


def test_tails_grow_heavier_with_the_degree(quick):
    shares = {
        r["degree"]: r["share"]
        for r in quick("optical-convergence")["records"]
        if r["measure"] == "tail" and r["deviation"] == 4.0 and r["pair"] == "equal"
    }
    assert shares[1] < shares[2] < shares[3] < shares[4]


# -- cost ---------------------------------------------------------------------------


def test_the_device_takes_its_model(quick):
    for record in quick("projection-cost")["records"]:
        if record["method"] == "device":
            assert record["seconds"] == pytest.approx(5e-4 * record["batch"])
            assert record["joules"] == pytest.approx(30 * record["seconds"])


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([(10, 0.1), (100, 0.5)], None),
        ([(10, 2.0), (100, 3.0)], 0.0),
        ([(10, 0.1), (1000, 10.0)], 100.0),
        ([(10, 2.0), (100, 0.1), (10_000, 10.0)], 1000.0),
    ],
)
def test_crossings_are_interpolated(ratios, expected):
    assert projection_cost.crossing(ratios) == (
        None if expected is None else pytest.approx(expected)
    )


def test_too_large_and_too_slow_are_skipped():
    options = projection_cost.Options(
        quick=True, n_components=(64, 500, 5000), max_seconds=1e-5, memory_limit="9MB"
    )
    results = projection_cost.ProjectionCost.run(options)
    reasons = {s["method"]: s["reason"] for s in results["skipped"]}
    assert "more than the limit" in reasons["dense"]
    assert "it would take about" in reasons["streamed"]
    assert "structured" not in reasons


def test_rapl_counts_packages_and_wraps(tmp_path):
    for zone, count in (
        ("intel-rapl:0", 5),
        ("intel-rapl:1", 7),
        ("intel-rapl:0:0", 9),
    ):
        folder = tmp_path / zone
        folder.mkdir()
        (folder / "energy_uj").write_text(f"{count}\n")
        (folder / "max_energy_range_uj").write_text("99\n")
    meter = cpu_meter(tmp_path)
    with Joules(meter) as spent:
        (tmp_path / "intel-rapl:0" / "energy_uj").write_text("3\n")  # past its end
        (tmp_path / "intel-rapl:1" / "energy_uj").write_text("17\n")
    assert spent.joules == pytest.approx(108e-6)


def test_no_meter_says_why(tmp_path):
    nowhere = tmp_path / "nowhere"
    assert cpu_meter(nowhere).name == f"none: there is no {nowhere}"
    assert cpu_meter(tmp_path).name == f"none: {tmp_path} has no zone of RAPL"
    (tmp_path / "intel-rapl:0").mkdir()
    assert cpu_meter(tmp_path).name.startswith("none: RAPL cannot be read")
    assert gpu_meter().name
    with Joules(EnergyMeter("none", None)) as spent:
        pass
    assert spent.joules is None


# -- the command --------------------------------------------------------------------


def run_command(monkeypatch, *arguments):
    from randkern.cli import main

    monkeypatch.setattr(sys, "argv", ["randkern", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.nightly
def test_the_command_writes_and_prints(monkeypatch, tmp_path, capsys):
    code = run_command(
        *(monkeypatch, "projection-cost", "--quick", "--n-components", "50,100"),
        *("--batch", 64, "--out", tmp_path / "out"),
    )
    assert code == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["arguments"]["n_components"] == [50, 100]
    assert results["arguments"]["batch"] == 64
    assert (tmp_path / "out" / "projection-cost.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "structured" in printed
    assert "published" in printed
    assert "results.json" in printed


@pytest.mark.slow
def test_help_names_every_experiment(monkeypatch, capsys):
    assert run_command(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in EXPERIMENTS)


def test_help_of_an_experiment_has_its_options(monkeypatch, capsys):
    assert run_command(monkeypatch, "optical-ridge", "--help") == 0
    printed = capsys.readouterr().out
    for option in (
        "--data-dir",
        "--quick",
        "--n-components",
        "--exact-rows",
        "--out",
    ):
        assert option in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "unknown experiment 'nothing'; expected one of optical-ridge"),
        (["optical-ridge", "--exact-rows", "-3"], "exact_rows must be 0 or more"),
        (["optical-ridge", "--n-components", "ten"], "positive integers"),
        (["transfer-learning"], "give --data-dir, or --quick"),
    ],
)
def test_mistakes_are_one_line(arguments, message, monkeypatch, capsys, tmp_path):
    assert run_command(monkeypatch, *arguments, "--out", tmp_path) == 2
    printed = capsys.readouterr().err
    assert re.match(r"randkern: error: .*\n\Z", printed)
    assert message in printed


@pytest.mark.parametrize(
    ("n_seen", "asked"),
    [(2, ("uuid", "GPU-b")), (0, ("index", 1)), (None, ("index", 1))],
)
def test_a_gpu_is_metered_by_the_number_that_torch_gives_it(monkeypatch, n_seen, asked):
    handles = []

    def handle_by(name):
        return lambda value: handles.append((name, value)) or value

    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=handle_by("index"),
        nvmlDeviceGetHandleByUUID=handle_by("uuid"),
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 3,
    )
    cuda = SimpleNamespace(
        device_count=lambda: n_seen,
        get_device_properties=lambda index: SimpleNamespace(uuid="ab"[index]),
    )

    def import_extra(name, *_):
        if name == "torch" and n_seen is None:
            raise ImportError
        return nvml if name == "pynvml" else SimpleNamespace(cuda=cuda)

    monkeypatch.setattr(energy, "import_extra", import_extra)
    meter = gpu_meter(1)
    assert handles == [asked]
    assert meter.read() == [3000.0]
