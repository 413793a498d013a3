"""Experiments on compositional kernels: their data, measures, records and command."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import randkern as rk
from _lab import COMMON as EVERY
from randkern.datasets import Dataset
from randkern_lab.catalogue import load
from randkern_lab.papers import (
    compositional_accuracy,
    compositional_bounds,
    compositional_cost,
    compositional_structure,
    compositional_tables,
    images,
)

pytestmark = pytest.mark.slow

GAINS = compositional_accuracy.GAINS

COMMON = EVERY | {"experiment"}
OWN = {
    "compositional-accuracy": {"medians", "gains", "slopes", "complexity"},
    "compositional-bounds": set(),
    "compositional-structure": {
        "lengthscales",
        "order",
        "growth_slopes",
        "growth_gaps",
    },
    "compositional-cost": set(),
    "compositional-tables": {"means", "differences", "edges"},
}
RECORDS = {
    "compositional-accuracy": {
        *("kernel", "method", "n_components", "seed", "mean_error", "rms_error"),
        *("max_error", "correlation", "function_error", "seconds"),
    },
    "compositional-bounds": {"measure", "n", "bound"},
    "compositional-structure": {
        *("measure", "data", "curve", "n_components", "n_train", "seed", "alpha"),
        *("validation_error", "test_error", "fit_seconds", "predict_seconds"),
        *("outcome", "at_edge"),
    },
    "compositional-cost": {"measure", "side", "method", "seconds"},
    "compositional-tables": {
        *("data", "method", "n_components", "seed", "setting", "alpha"),
        *("validation_loss", "test_error", "fit_seconds"),
    },
}
SMALL = {
    "compositional-accuracy": {"n_components": (64, 256), "gain_seeds": 4},
    "compositional-bounds": {},
    "compositional-structure": {"n_components": (40, 120)},
    "compositional-cost": {"n_components": (100, 400)},
    "compositional-tables": {},
}


@pytest.fixture(scope="module")
def small():
    """The results of a small run of an experiment, run once."""
    result = {}

    def run(name):
        if name not in result:
            experiment = load(name)
            options = experiment.Options(quick=True, **SMALL[name])
            result[name] = experiment.run(options)
        return result[name]

    return run


# -- results ------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("name", OWN)
def test_results_have_their_documented_keys(name, small):
    results = small(name)
    assert set(results) == COMMON | OWN[name]
    assert all(set(r) >= RECORDS[name] for r in results["records"])
    assert json.dumps(results, allow_nan=False)
    if name in ("compositional-accuracy", "compositional-structure"):
        assert results["dataset"]["name"] == "digits"


@pytest.mark.nightly
@pytest.mark.parametrize("name", OWN)
def test_tables_and_figures_are_of_the_results(name, small):
    experiment, results = load(name), small(name)
    for table in experiment.tables(results):
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
    expected = 4 if name == "compositional-structure" else 3
    assert len(experiment.figure(results).axes) == expected


@pytest.mark.nightly
def test_command_writes_its_results(monkeypatch, tmp_path, capsys):
    from randkern.cli import main

    arguments = ["--quick", "--n-components", "50,100", "--gain-seeds", "3"]
    settings = ["randkern", "reproduce", "compositional-accuracy", *arguments]
    settings += ["--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", settings)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["arguments"]["n_components"] == [50, 100]
    assert (tmp_path / "compositional-accuracy.png").stat().st_size > 10_000
    output = capsys.readouterr().out
    assert "a smoke run (--quick)" in output
    # Intervals are those of runs in earnest.
    assert "paired by seed" not in output
    assert "powers of D" not in output


# -- images -------------------------------------------------------------------------


def fake_images(name, **_):
    """Images of 32 × 32 whose pixels tell where they are."""
    rows, columns = np.mgrid[:32, :32] / 255
    image = np.stack([rows, columns, 0 * rows], axis=2).reshape(1, -1)
    X = np.repeat(image, 8, axis=0).astype(np.float32)
    y = np.arange(8) % 2
    return Dataset(name, X, y, X, y, image_shape=(32, 32, 3))


def test_large_images_are_cropped_to_their_centre(monkeypatch):
    monkeypatch.setattr(images, "load_dataset", fake_images)
    result = images.load_circle_images("cifar10", None, n_train=3, n_test=2)
    assert result.shape == (24, 24, 3)
    assert (len(result.X_train), len(result.X_test)) == (3, 2)
    first = result.X_train[0].reshape(24, 24, 3)[0, 0]
    expected = np.pi / 2 * (2 * np.array([4, 4, 0]) / 255 - 1)
    np.testing.assert_allclose(first, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "depth"),
    [
        ("linear", (8, 8, 1), 1),
        ("shallow", (24, 24, 3), 1),
        ("deep", (8, 8, 1), 3),
        ("deep", (24, 24, 3), 3),
        ("deep", (28, 28, 1), 3),
    ],
)
def test_skeletons_read_every_pixel(name, shape, depth):
    skeleton = images.build_skeleton(name, shape)
    assert skeleton.n_features == np.prod(shape)
    assert skeleton.depth == depth


def test_tables_are_refused_as_images():
    with pytest.raises(ValueError, match="must be images with classes, got 'iris'"):
        images.load_circle_images("iris", None, n_train=10)


def test_a_directory_without_images_is_named(tmp_path):
    with pytest.raises(ValueError, match="none of the folders cifar10, mnist"):
        images.available_images(tmp_path, ("cifar10", "mnist"))
    (tmp_path / "mnist").mkdir()
    assert images.available_images(tmp_path, ("cifar10", "mnist")) == ("mnist",)


# -- compositional-accuracy ---------------------------------------------------------


def test_the_shallow_kernel_is_gaussian_in_the_embedded_points():
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (6, 64)).astype(np.float32)
    shallow = compositional_accuracy.problems(X, (8, 8, 1))["shallow"]
    embedded = compositional_accuracy.embed(X.astype(np.float64))
    gaussian = rk.Gaussian(shallow.lengthscale)(embedded)
    np.testing.assert_allclose(shallow.exact, gaussian, rtol=1e-10)


def test_errors_are_those_off_the_diagonal():
    exact = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]])
    Z = np.sqrt(2) * np.eye(3)  # a Gram matrix of 0 off the diagonal, 2 on it
    errors = compositional_accuracy.gram_errors(Z, exact)
    assert errors["mean_error"] == pytest.approx(0.8 / 3)
    assert errors["rms_error"] == pytest.approx(np.sqrt(0.1))
    assert errors["max_error"] == pytest.approx(0.5)
    assert errors["correlation"] == 0.0
    factor = np.linalg.cholesky(exact)
    assert compositional_accuracy.gram_errors(factor, exact)["correlation"] > 0.999


def test_ratios_are_paired_by_seed():
    without = {seed: 10.0**seed for seed in range(5)}
    halved = {seed: 0.5 * value for seed, value in without.items()} | {9: 1.0}
    errors = {"skeleton": halved} | dict.fromkeys(GAINS.values(), without)
    records = [
        {**named, "method": method, "seed": seed, "mean_error": error}
        for named in ({"kernel": k, "n_components": 10} for k in ("shallow", "deep"))
        for method, by_seed in errors.items()
        for seed, error in by_seed.items()
    ]
    ratio, *_ = compositional_accuracy._gains(records, [10])
    assert ratio["seeds"] == 5
    assert ratio["low"] <= ratio["ratio"] <= ratio["high"]
    assert ratio["ratio"] == pytest.approx(0.5)


def test_functions_err_as_their_gram_matrix_does():
    """f̂ − f at the rows is (K̂ − K)a, of the norm-1 function that a stands for."""
    K = np.array([[1.0, 0.5], [0.5, 1.0]])
    Z = np.eye(2)
    a = np.random.default_rng(0).standard_normal(2)
    a /= np.sqrt(a @ K @ a)
    expected = np.sqrt(np.mean(((np.eye(2) - K) @ a) ** 2))
    result = compositional_accuracy.gram_errors(Z, K)["function_error"]
    assert result == pytest.approx(expected)


@pytest.mark.slow
def test_bounds_hold_and_grow_with_c(small):
    records = small("compositional-bounds")["records"]
    entries = [r for r in records if r["measure"] == "entry"]
    assert sorted({r["C2"] for r in entries}) == [1.5, 2.0, 4.0]
    for r in entries:
        assert 0 < r["quantile"] < r["bound"]
        expected = r["C2"] * np.sqrt(2 * np.log(40) / r["draws"])
        assert r["bound"] == pytest.approx(expected)


def test_functions_have_the_variance_of_their_terms():
    """Of nodes chosen at random: that of 4 f_j(x) about f(x), divided by the draws."""
    records = list(compositional_bounds.approximation(3, 400, 60, 0))
    r = next(r for r in records if r["measure"] == "function")
    assert r["bound"] == 1.5 / 200
    assert 0 < r["mean_square"] <= r["largest"] <= r["bound"]
    twice = list(compositional_bounds.approximation(3, 800, 60, 0))
    assert twice[1]["mean_square"] == pytest.approx(r["mean_square"] / 2, rel=0.15)


@pytest.mark.parametrize(
    "scheme", ["pair", "coordinate", "direction", "normal", "plane"]
)
def test_schemes_of_the_sphere_have_its_inner_products(scheme, rng):
    """The mean of z z* is I, within five standard errors of each entry."""
    n, draws = 5, 20_000
    Z = compositional_bounds.drawn(scheme, n, draws, rng)
    products = Z[:, :, None] * Z[:, None].conj()
    deviation = np.abs(products.mean(axis=0) - np.eye(n))
    assert np.all(deviation <= 5 * products.std(axis=0) / draws**0.5 + 1e-12)


def test_no_scheme_is_bounded_by_less_than_the_theorem_says(small, rng):
    norms = [
        r for r in small("compositional-bounds")["records"] if r["measure"] == "norm"
    ]
    assert {r["scheme"] for r in norms} == set(compositional_bounds.SCHEMES)
    assert all(r["ratio"] >= 1 - 1e-6 for r in norms)
    exact = {"pair": 1, "plane": 1, "coordinate": 2**0.5, "direction": 2**0.5}
    for r in norms:
        if r["scheme"] in exact:
            assert r["ratio"] == pytest.approx(exact[r["scheme"]], rel=1e-5)
    Z = compositional_bounds.balanced_set(rng.standard_normal((12, 3)) + 0j)
    np.testing.assert_allclose((Z.T @ Z.conj()).real / 12, np.eye(3), atol=1e-8)


def test_norms_are_the_greatest_products(rng):
    Z = rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))
    angles = np.linspace(0, np.pi, 20_001)
    largest = np.abs(Z @ np.array([np.cos(angles), np.sin(angles)])).max(axis=1)
    np.testing.assert_allclose(compositional_bounds.norms(Z), largest, rtol=1e-6)


def test_more_features_err_less(small):
    medians = small("compositional-accuracy")["medians"]
    for kernel, method in {(m["kernel"], m["method"]) for m in medians}:
        errors = {
            m["n_components"]: m["mean_error"]
            for m in medians
            if (m["kernel"], m["method"]) == (kernel, method)
        }
        assert errors[256] < errors[64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 2}, "images must be 3 or more, got 2"),
        ({"gain_seeds": 1}, "gain_seeds must be 3 or more, got 1"),
        ({"n_components": (0,)}, "n_components must be 1 or more, got 0"),
    ],
)
def test_bad_options_of_accuracy(options, message):
    with pytest.raises(ValueError, match=message):
        compositional_accuracy.Options(**options)


# -- compositional-structure --------------------------------------------------------


@pytest.mark.nightly
def test_every_part_is_measured(small):
    records = small("compositional-structure")["records"]
    parts = {(r["measure"], r["curve"], r["n_components"]) for r in records}
    for curve in compositional_structure.CURVES:
        assert {("features", curve, 40), ("features", curve, 120)} <= parts
    for curve in compositional_structure.EXACT:
        assert ("features", curve, None) in parts
    growth = [r for r in records if r["measure"] == "growth"]
    sizes = {(r["n_train"], r["n_components"]) for r in growth if r["n_components"]}
    assert {(240, 15), (240, 60), (240, 120), (240, 240)} < sizes
    assert {r["loss"] for r in growth} == {"ridge", "svc", "logistic"}
    full = [r for r in records if r["n_train"] == 240 and r["n_components"] != 15]
    assert all(0 <= r["test_error"] < 0.5 for r in full)  # chance: 0.9


def test_exact_kernels_stand_beside_features_that_grow(small):
    """At every n up to --n, of every loss."""
    results = small("compositional-structure")
    exact = {
        (r["curve"], r["n_train"])
        for r in results["records"]
        if r["measure"] == "growth" and r["n_components"] is None
    }
    assert exact == {(c, n) for c in ("shallow", "deep") for n in (120, 240)}
    gaps = results["growth_gaps"]
    assert {(g["curve"], g["n_train"]) for g in gaps} == exact
    assert len(gaps) == 3 * 4 * len(exact)
    assert all(0 < g["standard_error"] < 0.1 for g in gaps)
    slopes = {(s["curve"], s["exact"]) for s in results["growth_slopes"]}
    assert slopes == {(c, e) for c in ("shallow", "deep") for e in (False, True)}


@pytest.mark.parametrize("loss", compositional_structure.LOSSES)
def test_factors_of_kernels_learn_as_the_kernels_do(loss):
    """Scores of a machine on Cholesky rows are those of the machine on the kernel."""
    created = compositional_structure.CompositionalStructure(
        compositional_structure.Options(quick=True)
    )
    created.prepare()
    images, n = created.images, 120
    Z, Z_test, *_ = created._draw("deep", None, n, 0)
    X, y = images.X_train[:n], images.y_train[:n]
    linear = compositional_structure._model(loss, 0.1, Z).fit(Z, y)
    model, intercept = {
        "ridge": (rk.KernelRidgeClassifier, {"fit_intercept": True}),
        "svc": (rk.KernelSVC, {"fit_intercept": False}),
        "logistic": (rk.KernelLogistic, {"fit_intercept": False}),
    }[loss]
    exact = model(created.kernels["deep"], 0.1, None, **intercept).fit(X, y)
    expected = exact.decision_function(images.X_test)
    atol = 1e-2 if loss == "svc" else 1e-4
    np.testing.assert_allclose(linear.decision_function(Z_test), expected, atol=atol)


@pytest.mark.parametrize("loss", compositional_structure.LOSSES)
def test_penalties_of_two_classes_are_chosen_by_both(loss):
    """Noise is misclassified; of classes that lie apart no row is taken for another."""
    created = compositional_structure.CompositionalStructure(
        compositional_structure.Options(quick=True)
    )
    y = np.arange(60) % 2
    created.images = SimpleNamespace(y_train=y)
    noise = np.random.default_rng(0).standard_normal((60, 4))
    assert created._choose(loss, noise)[1] > 0.1
    assert created._choose(loss, noise + 18 * y[:, None] - 9)[1] == 0


def test_seconds_of_test_rows_are_of_the_prediction(small):
    """And those of a Gram matrix, made once, are counted to all that rest on it."""
    created = compositional_structure.CompositionalStructure(
        compositional_structure.Options(quick=True)
    )
    created.prepare()
    drawn = [created._draw("deep", None, n, 0) for n in (120, 240, 120)]
    assert len({(d.fit_seconds, d.predict_seconds) for d in drawn}) == 1
    assert all(seconds > 0 for seconds in drawn[0][2:])
    assert [d.Z.shape for d in drawn] == [(n, n) for n in (120, 240, 120)]
    records = created.measure(created._case("growth", "deep", None, 120))
    for record in records:
        assert record["fit_seconds"] > drawn[0].fit_seconds
        assert record["predict_seconds"] > drawn[0].predict_seconds


@pytest.mark.parametrize(
    ("loss", "penalty", "edges"),
    [
        ("ridge", 1e-5, ("alpha",)),
        ("ridge", 1.0, ()),
        ("svc", 10_000.0, ("C",)),
        ("logistic", 0.1, ("C",)),
        ("svc", 1.0, ()),
    ],
)
def test_penalties_at_the_edge_are_named(loss, penalty, edges):
    choice = compositional_structure._chosen(loss, penalty, 0.5)
    assert choice["at_edge"] == list(edges)
    records = [
        {
            **{"measure": "growth", "data": "digits", "curve": "deep", "loss": loss},
            **{"ratio": "1/2", "n_train": n, "at_edge": list(edges)},
        }
        for n in (500, 1000, 1000)
    ]
    notes = list(compositional_structure._edge_notes(records))
    assert notes == [
        f"warning, digits, deep, {loss}, D = n·1/2, n = 500, 1,000: the best {name} is "
        "at the edge of its grid"
        for name in edges
    ]


def test_powers_have_their_range_and_quick_runs_no_errors(small):
    results = small("compositional-structure")
    for slope in results["growth_slopes"]:
        assert (slope["least_n"], slope["most_n"]) == (120, 240)
    notes = list(compositional_structure.CompositionalStructure.notes(results))
    assert any("from n = 120 to 240" in note for note in notes)
    assert any("standard error" in note for note in notes)
    assert not any("standard error" in note for note in results["notes"])


def test_few_rows_suffice():
    options = compositional_structure.Options(
        quick=True, n=30, growth=(30,), n_components=(20,)
    )
    results = compositional_structure.CompositionalStructure.run(options)
    assert results["records"] and not results["skipped"]


def test_no_matrix_of_features_is_too_large():
    created = compositional_structure.CompositionalStructure(
        compositional_structure.Options(quick=True, entries=120 * 60)
    )
    created.prepare()
    growth = [c for c in created.cases() if c["measure"] == "growth"]
    sizes = {(c["n_train"], c["n_components"]) for c in growth if c["n_components"]}
    assert {(120, 60), (240, 15)} <= sizes
    assert all(n * size <= 120 * 60 for n, size in sizes)


def test_gaps_are_of_the_same_rows():
    def record(size, n, error):
        return {
            **{"measure": "growth", "data": "digits", "curve": "deep"},
            **{"loss": "ridge", "ratio": size and "1/2"},
            **{"n_components": size, "n_train": n, "test_error": error},
        }

    # Two draws on the same test rows tell no more of these than one.
    records = [record(50, 100, 0.5), record(None, 200, 0.3)]
    records += [record(100, 200, 0.35), record(100, 200, 0.45)]
    growth = compositional_structure.growing({"records": records})
    (gap,) = compositional_structure.growth_gaps(growth, {"digits": 100})
    assert gap["n_train"] == 200
    assert gap["difference"] == pytest.approx(0.1)
    assert gap["standard_error"] == pytest.approx(np.sqrt(0.0024 + 0.0021))


def test_features_approximate_their_exact_kernel(small):
    """At D = 120 and n = 240 digits; chance is 0.9."""
    errors = {
        (r["curve"], r["n_components"]): r["test_error"]
        for r in small("compositional-structure")["records"]
        if r["measure"] == "features"
    }
    for curve in compositional_structure.EXACT:
        assert errors[curve, None] < 0.15
        assert abs(errors[curve, 120] - errors[curve, None]) < 0.2


def test_order_is_by_error_at_the_largest_common_size():
    def record(curve, size, error):
        return {
            "measure": "features",
            "curve": curve,
            "n_components": size,
            "test_error": error,
        }

    errors = {"gaussian": 0.3, "linear": 0.4, "shallow": 0.2, "deep": 0.1}
    records = [record(curve, 100, error) for curve, error in errors.items()]
    records += [record("deep", 1000, 0.9), record("gaussian", 1000, 0.05)]
    order = compositional_structure.order(records)
    assert order == ["deep", "shallow", "gaussian", "linear"]
    assert compositional_structure.order(records[:3]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"growth": (500, 29)}, "growth must be 30 or more, got 29"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"n": 1}, "n must be 30 or more, got 1"),
    ],
)
def test_bad_options_of_structure(options, message):
    with pytest.raises(ValueError, match=message):
        compositional_structure.Options(**options)


# -- compositional-cost -------------------------------------------------------------


@pytest.mark.slow
def test_costs_are_of_what_they_say(small):
    records = small("compositional-cost")["records"]
    by_measure = {}
    for record in records:
        by_measure.setdefault(record["measure"], []).append(record)
    draws = [(r["side"], r["method"]) for r in by_measure["draw"]]
    methods = ("deep", "gaussian")
    assert draws == [(side, method) for side in (16, 24) for method in methods]
    result = {r["method"] for r in by_measure["evaluate"]}
    assert result == {*methods, "rahimi-recht", "structured"}
    for r in by_measure["draw"]:
        assert r["nanoseconds"] == pytest.approx(1e9 * r["seconds"] / r["n_draws"])
    for r in by_measure["evaluate"]:
        entries = r["rows"] * r["n_components"]
        assert r["nanoseconds"] == pytest.approx(1e9 * r["seconds"] / entries)
        if r["method"] not in methods:
            continue
        # No more pixels than factors, and no more than there are.
        assert 0 < r["pixels"] <= min(3 * r["side"] ** 2, r["factors"] * entries)
        assert 1 <= r["factors"] < 20
    (exact,) = by_measure["exact"]
    assert (exact["rows"], exact["side"]) == (40, 16)
    assert exact["peak_bytes"] >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sides": (8,)}, "sides must be 16 or more, got 8"),
        ({"sides": (-1,)}, "sides must be 16 or more, got -1"),
        ({"rows": 0}, "rows must be 1 or more, got 0"),
        ({"exact_rows": -1}, "exact_rows must be 0 or more, got -1"),
        ({"n_components": (0,)}, "n_components must be 1 or more, got 0"),
    ],
)
def test_bad_options_of_cost(options, message):
    with pytest.raises(ValueError, match=message):
        compositional_cost.Options(**options)


# -- compositional-tables -----------------------------------------------------------


@pytest.mark.nightly
def test_every_method_meets_every_table(small):
    results = small("compositional-tables")
    parts = {(r["data"], r["method"], r["n_components"]) for r in results["records"]}
    for data in compositional_tables.DATA:
        for method in compositional_tables.METHODS:
            sizes = {None} if method == "linear" else {None, 100}
            assert {(data, method, size) for size in sizes} <= parts
    wine = [m for m in results["means"] if m["data"] == "wine"]
    assert all(0 <= m["test_error"] < 0.25 for m in wine)  # chance: 0.6


def test_differences_are_paired_by_seed():
    def records(method, errors):
        return [
            {
                "data": "wine",
                "method": method,
                "n_components": None,
                "seed": seed,
                "test_error": error,
            }
            for seed, error in enumerate(errors)
        ]

    both = records("gaussian", [0.1, 0.5, 0.9])
    both += records("by-type", [0.2, 0.6, 1.0])[::-1]
    (result,) = list(compositional_tables._differences(both))
    assert result["method"] == "by-type"
    assert result["difference"] == pytest.approx(0.1)
    assert result["low"] == pytest.approx(result["high"])


def test_penalties_are_chosen_for_every_number_of_features():
    """Of 20 features for 96 rows the error and its penalty are others."""
    table = compositional_tables.DATA["generated"](120, 0)
    setting = {"scale": 1.0, "a": 1.0}
    chosen = [
        compositional_tables.validated(table, "by-type", setting, 0, size)
        for size in (None, 20)
    ]
    assert chosen[1][0] > chosen[0][0]
    assert chosen[1][1] > chosen[0][1]


def test_choices_at_the_ends_of_grids_are_counted():
    def record(alpha, scale, depth):
        setting = {"scale": scale, "depth": depth}
        named = {"data": "wine", "method": "by-type-relu", "n_components": None}
        return named | {"setting": setting, "alpha": alpha}

    scales = compositional_tables._BASE_SCALES
    records = [record(1.0, scales[0], 2), record(1e-6, scales[0], 8)]
    edges = compositional_tables._edges(records, False)
    shares = {e["parameter"]: (e["at_least"], e["at_greatest"]) for e in edges}
    assert shares == {"alpha": (0.5, 0), "scale": (1, 0), "depth": (0, 0.5)}


def test_the_generated_table_is_what_it_says():
    table = compositional_tables.DATA["generated"](4000, 0)
    x, city, kind = table.X[:, :2], table.X[:, 3], table.X[:, 4]
    expected = np.sin(2 * x[:, 0] + city * np.pi / 4) + x[:, 1] * (kind - 1)
    noise = table.y - expected
    assert abs(noise.std() - 0.5) < 0.04  # seven standard errors
    assert abs(noise.mean()) < 0.06
    assert [len(np.unique(table.X[:, j])) for j in table.categorical] == [8, 3, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 20}, "rows must be 100 or more, got 20"),
        ({"repeats": 1}, "repeats must be 2 or more"),
        ({"n_components": 0}, "n_components must be 1 or more, got 0"),
    ],
)
def test_bad_options_of_tables(options, message):
    with pytest.raises(ValueError, match=message):
        compositional_tables.Options(**options)


@pytest.mark.parametrize("names", [("wine", "moons"), ()])
def test_unknown_tables_are_named(names):
    options = compositional_tables.Options(data=names)
    with pytest.raises(ValueError, match=r"data must be of .*got ('moons'|none)"):
        compositional_tables.CompositionalTables.run(options)
