"""The benchmarks of features and of accuracy: records, figures, tables, complaints."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import randkern as rk
from randkern.projections import PROJECTIONS
from randkern_lab import contenders as peers
from randkern_lab.benchmarks.accuracy import (
    Accuracy,
    gram_errors,
    gram_matrix,
    ridge_scores,
    summarise,
)
from randkern_lab.benchmarks.accuracy import Options as AccuracyOptions
from randkern_lab.benchmarks.feature_maps import (
    PEERS,
    FeatureMap,
    known_projections,
)
from randkern_lab.benchmarks.features import (
    FeatureCost,
    Options,
    make_rows,
    peak_of_map,
)
from randkern_lab.benchmarks.timing import interleave
from randkern_lab.process import SkippedCase, in_fresh_process
from randkern_lab.tables import paired_ratio

pytestmark = pytest.mark.slow

FEATURE_KEYS = {
    *("family", "method", "library", "dtype", "fit_seconds", "seconds"),
    *("repeats_seconds", "ns_per_feature", "output_bytes", "peak_memory_bytes"),
    *("speedup_over_float32", "speedup_over_float64", "bound_ns"),
}
ACCURACY_KEYS = {
    *("family", "method", "centered", "n_components", "seed", "gram_error"),
    *("gram_error_all", "test_error", "alpha", "fit_seconds", "transform_seconds"),
    "solve_seconds",
}


@pytest.fixture(scope="module")
def timed(quick):
    return quick("features")


@pytest.fixture(scope="module")
def measured():
    return Accuracy.run(
        AccuracyOptions(
            data="iris",
            n=60,
            n_components=(16, 48, 200),
            lengthscale="2",
            seeds=3,
            projections=("dense", "orthogonal"),
        )
    )


def run_features(**options):
    """A run of one round, without processes."""
    small = {"repeats": 1, "memory": False}
    return FeatureCost.run(Options(**small | options))


# features: contenders and records


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROJECTIONS if name != "auto"])
@pytest.mark.parametrize("family", ["gaussian", "optical"])
def test_contenders_estimate_the_same_kernel(family, name):
    d, n_components = 70, 6000
    X = make_rows(6, d, "float32", seed=1)
    kernel = rk.Gaussian(math.sqrt(d)) if family == "gaussian" else rk.Optical(2)
    contender = FeatureMap(family, name, lengthscale=math.sqrt(d))
    Z = contender.build(n_components, 0).fit(X).transform(X)
    exact = kernel(X.astype(float))
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("contender", "kernel"),
    [
        *(
            (FeatureMap("gaussian", "RBFSampler", dtype, 2.0, 3.0), rk.Gaussian(3))
            for dtype in ("float32", "float64")
        ),
        (FeatureMap("optical", "two products"), rk.Optical(2)),
        (FeatureMap("optical", "two products", degree=4.0), rk.Optical(4)),
        (FeatureMap("polynomial", "PolynomialCountSketch"), rk.Polynomial(2)),
        (FeatureMap("polynomial", "dense"), rk.Polynomial(2)),
    ],
)
def test_peers_estimate_the_same_kernel_in_their_type(contender, kernel):
    X = make_rows(5, 9, contender.dtype, seed=0)
    Z = contender.build(40_000, seed=0).fit(X).transform(X)
    exact = kernel(X.astype(float))
    if contender.family != "polynomial":
        assert Z.dtype == contender.dtype
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.parametrize("method", ["Nystroem", "landmarks"])
def test_as_many_landmarks_as_rows_are_exact(method):
    contender = FeatureMap("gaussian", method, "float64", lengthscale=3.0)
    X = make_rows(12, 9, "float64", seed=0)
    Z = contender.build(12, seed=0).fit(X).transform(X)
    np.testing.assert_allclose(Z @ Z.T, rk.Gaussian(3)(X), atol=1e-6)
    contender.check(12, 12)
    with pytest.raises(SkippedCase, match="one component per training row: 12"):
        contender.check(12, 13)


@pytest.mark.slow
def test_the_simulated_device_sees_bits():
    pytest.importorskip("lightonml")
    contender = FeatureMap("optical", "simulated device")
    X = make_rows(30, 64, "float32", seed=0)
    Z = contender.build(4000, seed=0).fit(X).transform(X)
    # Its intensities are proportional to the optical kernel's features of the bits.
    bits = (X > 0).astype(float)
    exact = rk.Optical(2)(bits)
    G = Z.astype(float) @ Z.astype(float).T
    G *= np.trace(exact) / np.trace(G)
    assert np.linalg.norm(G - exact) < 0.1 * np.linalg.norm(exact)


def test_missing_peers_say_how_to_install_them(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    for name in (*peers.INSTALLATION, "gpytorch"):
        told = f"{name} is not installed; .*pip install"
        with pytest.raises(SkippedCase, match=told):
            peers.check_package(name)
    device = FeatureMap("optical", "simulated device")
    with pytest.raises(SkippedCase, match="lightonml is not installed"):
        device.check(10, 10)


def test_projections_are_those_of_the_library():
    assert known_projections() == [name for name in PROJECTIONS if name != "auto"]
    assert known_projections(["qmc", "dense", "qmc"]) == ["qmc", "dense"]


@pytest.mark.nightly
def test_features_records(timed):
    assert all(set(record) == FEATURE_KEYS for record in timed["records"])
    found = [(record["family"], record["method"]) for record in timed["records"]]
    skipped = [(note["family"], note["method"]) for note in timed["skipped"]]
    every = [("gaussian", "RBFSampler float64")]
    for family, methods in PEERS.items():
        every += [(family, f"{method} float32") for method in methods]
        every += [(family, name) for name in known_projections()]
    assert sorted(found + skipped) == sorted(every)
    assert {family for family, _ in found} == set(PEERS)
    for record in timed["records"]:
        assert record["seconds"] == np.median(record["repeats_seconds"])
        expected = 1e9 * record["seconds"] / (66 * 80)
        assert record["ns_per_feature"] == pytest.approx(expected)
        wide = record["dtype"] == "float64" or "CountSketch" in record["method"]
        if record["library"] != "lightonml":
            assert record["output_bytes"] == 66 * 80 * (8 if wide else 4)


@pytest.mark.nightly
def test_the_working_memory_of_a_peer_counts():
    results = run_features(
        **{"d": 30, "n_components": 400, "n": 100},
        projections=("dense",),
        families=("polynomial",),
        memory_limit="1MB",
    )
    assert [record["method"] for record in results["records"]] == ["dense"]
    (note,) = results["skipped"]
    assert note["method"] == "PolynomialCountSketch float32"
    assert "input and output 2.7 MB" in note["reason"]


@pytest.mark.nightly
def test_every_projection_is_in_the_table(timed):
    """Slower ones than the peer too."""
    for table in FeatureCost.tables(timed)[:2]:
        assert {row[0] for row in table.rows} >= set(known_projections())


@pytest.mark.nightly
def test_speedups_are_over_the_first_peer_of_the_kernel(timed):
    seconds = {(r["family"], r["method"]): r["seconds"] for r in timed["records"]}
    dense = {r["family"]: r for r in timed["records"] if r["method"] == "dense"}
    single, double = "speedup_over_float32", "speedup_over_float64"
    for family, peer in (
        ("gaussian", "RBFSampler float32"),
        ("optical", "two products float32"),
        ("polynomial", "PolynomialCountSketch float32"),
    ):
        ratio = seconds[family, peer] / seconds[family, "dense"]
        assert dense[family][single] == pytest.approx(ratio)
    assert dense["optical"][double] is None
    assert dense["gaussian"][double] == pytest.approx(
        seconds["gaussian", "RBFSampler float64"] / seconds["gaussian", "dense"]
    )


@pytest.mark.nightly
def test_roofline_scales_with_the_product_of_each_method(timed):
    bounds = timed["roofline"]
    assert bounds["product_ns"] == pytest.approx(2 * 70 / bounds["product_gflops"])
    dense = {
        r["family"]: r["bound_ns"] for r in timed["records"] if r["method"] == "dense"
    }
    for family, products in (("gaussian", 0.5), ("optical", 2.0), ("polynomial", 1.0)):
        least = max(products * bounds["product_ns"], bounds["write_new_ns"])
        assert dense[family] == least
    for record in timed["records"]:
        if record["dtype"] == "float64":
            assert record["bound_ns"] is None
        if record["method"] == "structured":
            assert record["bound_ns"] == bounds["write_new_ns"]


@pytest.mark.nightly
def test_who_exceeds_the_limit_is_skipped_with_the_reason():
    results = run_features(
        **{"d": 300, "n_components": 400, "n": 10},
        projections=("dense", "streamed"),
        families=("gaussian",),
        memory_limit="100kB",
    )
    assert [record["method"] for record in results["records"]] == ["streamed"]
    assert results["records"][0]["speedup_over_float32"] is None
    reasons = {note["method"]: note["reason"] for note in results["skipped"]}
    assert "one component per training row: 10" in reasons.pop("Nystroem float32")
    assert set(reasons) == {"RBFSampler float64", "RBFSampler float32", "dense"}
    assert "its matrix takes 1.4 MB" in reasons["RBFSampler float32"]
    assert "limit of 100.0 kB" in reasons["dense"]
    assert FeatureCost.figures(results)


def test_nothing_to_run_is_an_error():
    with pytest.raises(ValueError, match=r"nothing could be run: its matrix takes"):
        run_features(
            d=50, n_components=60, n=10, projections=("dense",), memory_limit="10"
        )


@pytest.mark.nightly
def test_width_beyond_a_projection_is_skipped_with_its_own_words():
    results = run_features(
        **{"d": 21_300, "n_components": 4, "n": 2},
        projections=("qmc", "streamed"),
        families=("gaussian",),
    )
    (note,) = (note for note in results["skipped"] if note["method"] == "qmc")
    assert "dimensions" in note["reason"]


@pytest.mark.nightly
def test_peak_memory_is_that_of_one_contender():
    contender = FeatureMap("optical", "two products")
    request = {"contender": asdict(contender), "seed": 0}
    request |= {"n": 2000, "d": 50, "n_components": 3000}
    measured = in_fresh_process(peak_of_map, request)
    assert measured["output_bytes"] == 4 * 2000 * 3000
    # Two matrices and two products; pages are counted a little late.
    arrays = 2 * measured["output_bytes"] + 2 * 4 * 50 * 3000
    assert 0.9 * arrays < measured["peak_memory_bytes"] < 1.3 * arrays


@pytest.mark.usefixtures("in_process")
def test_memory_is_in_the_records():
    results = run_features(
        **{"d": 20, "n_components": 30, "n": 40, "memory": True},
        projections=("dense",),
        families=("gaussian",),
    )
    peaks = [record["peak_memory_bytes"] for record in results["records"]]
    assert None not in peaks


def test_interleaved_calls_take_turns():
    order = []
    interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    # Each call that is timed follows one that is not.
    assert order == ["a", "a", "b", "b"] * 2


# accuracy


@pytest.mark.nightly
def test_accuracy_records(measured):
    assert all(set(record) == ACCURACY_KEYS for record in measured["records"])
    methods = {
        (record["family"], record["method"], record["centered"])
        for record in measured["records"]
    }
    names = ("dense", "orthogonal")
    assert methods == {
        *{("gaussian", name, False) for name in names},
        *{
            ("gaussian", name, False)
            for name in ("RBFSampler", "Nystroem", "landmarks")
        },
        *{("optical", name, centered) for name in names for centered in (False, True)},
        *{("polynomial", name, False) for name in ("dense", "PolynomialCountSketch")},
    }
    assert {record["seed"] for record in measured["records"]} == {0, 1, 2}
    for record in measured["records"]:
        assert (record["test_error"] is None) == (record["family"] != "gaussian")
    named = measured["arguments"]
    assert (named["alphas"], named["n_seeds"]) == ([1e-3, 1e-2, 1e-1, 1.0, 10.0], 3)
    json.dumps(measured, allow_nan=False)


def test_landmarks_stop_at_the_rows(measured):
    for method in ("Nystroem", "landmarks"):
        (note,) = (n for n in measured["skipped"] if n["method"] == method)
        assert note["n_components"] == 200
        assert "one component per training row: 60" in note["reason"]


def test_errors_fall_and_centring_helps(measured):
    summary = {
        (e["family"], e["method"], e["centered"], e["n_components"]): e
        for e in measured["summary"]
    }
    dense = [summary["gaussian", "dense", False, size] for size in (16, 200)]
    assert dense[1]["gram_error"] < 0.7 * dense[0]["gram_error"]
    assert dense[0]["ratio_to_dense"] == 1.0
    assert dense[0]["ratio_se"] == 0.0
    centred = summary["optical", "dense", True, 200]
    assert centred["ratio_to_plain"] == centred["ratio_to_dense"] < 0.9
    assert measured["exact"]["test_error"] < 0.4


def test_gram_error_is_the_relative_frobenius_norm(rng):
    Z = rng.normal(size=(7, 1500)).astype(np.float32)
    G = gram_matrix(Z)
    np.testing.assert_allclose(G, Z.astype(float) @ Z.T.astype(float), rtol=1e-5)
    K = rng.normal(size=(7, 7))
    off = ~np.eye(7, dtype=bool)
    expected = (
        np.linalg.norm((G - K)[off]) / np.linalg.norm(K[off]),
        np.linalg.norm(G - K) / np.linalg.norm(K),
    )
    assert gram_errors(G, K) == pytest.approx(expected)


@pytest.mark.parametrize("n_components", [5, 40])
def test_ridge_agrees_with_scikit_learn(rng, n_components):
    from sklearn.linear_model import Ridge

    Z, Z_test = (rng.normal(size=(n, n_components)) for n in (20, 6))
    Y = rng.normal(size=(20, 3))
    peer = Ridge(alpha=0.1, fit_intercept=False).fit(Z, Y)
    scores = ridge_scores(Z, Y, Z_test, alpha=0.1)
    np.testing.assert_allclose(scores, peer.predict(Z_test), rtol=1e-8)


def test_paired_ratio_and_its_standard_error(rng):
    base = rng.uniform(1, 2, size=400)
    errors = 0.8 * base + rng.normal(scale=0.1, size=400)
    ratio, standard_error = paired_ratio(list(zip(errors, base, strict=True)))
    assert abs(ratio - 0.8) < 4 * standard_error
    assert standard_error == pytest.approx(0.1 / 1.5 / math.sqrt(400), rel=0.15)
    assert paired_ratio([(2.0, 4.0)]) == (0.5, None)
    # The same ratio in every pair.
    assert paired_ratio([(0.9, 1.0), (1.8, 2.0)]) == (0.9, 0.0)
    assert paired_ratio([]) == (None, None)


def test_seeds_are_paired_by_number():
    def record(method, seed, error):
        return {
            "family": "gaussian",
            "method": method,
            "centered": False,
            "n_components": 8,
            "seed": seed,
            "gram_error": error,
            "gram_error_all": error,
            "test_error": 0.1,
            "alpha": 1.0,
            **{"fit_seconds": 1.0, "transform_seconds": 1.0, "solve_seconds": 1.0},
        }

    summary = summarise(
        [
            *(record("dense", seed, error) for seed, error in ((0, 1.0), (1, 2.0))),
            *(record("qmc", seed, error) for seed, error in ((1, 1.0), (0, 0.5))),
        ]
    )
    assert summary[1]["ratio_to_dense"] == 0.5
    assert summary[1]["ratio_se"] == 0.0


# figures and tables


def test_the_accuracy_figure_names_every_method(measured):
    (legend,) = Accuracy.figure(measured).legends
    names = {text.get_text() for text in legend.get_texts()}
    assert {"dense", "orthogonal", "RBFSampler", "Nystroem", "landmarks"} <= names
    assert "exact kernel" in names


def test_accuracy_without_the_optical_kernel():
    results = Accuracy.run(
        AccuracyOptions(
            data="iris", n_components=(8,), seeds=1, projections=("dense",),
            n=40, optical=False,
        )
    )  # fmt: skip
    axes = Accuracy.figures(results)["accuracy.png"].axes
    assert sum(each.get_visible() for each in axes) == 4
    families = [t.title.partition(",")[0] for t in Accuracy.tables(results)]
    assert families == ["gaussian", "polynomial"]


@pytest.mark.nightly
def test_features_figure_has_a_bar_for_each_record(timed):
    figure = FeatureCost.figures(timed)["features.png"]
    bars = [patch for axes in figure.axes for patch in axes.patches]
    assert len(bars) == len(timed["records"])


# the command line


@pytest.mark.nightly
def test_accuracy_command(command, tmp_path):
    result = command(
        *("accuracy", "--data", "iris", "--n-components", "8,32", "--seeds", 2),
        *("--lengthscale", "scale", "--projections", "dense,qmc"),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert set(results) >= {"exact", "records", "summary", "skipped"}
    assert results["arguments"]["data"] == "iris"
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    for text in (
        "ratio to dense",
        "centred / plain",
        "exact Gaussian kernel",
    ):
        assert text in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "unknown benchmark 'nosuch'; expected one of features, accuracy"),
        (("features", "--projections", "nosuch"), "unknown projection 'nosuch'"),
        (("features", "--projections", ""), "nothing to run: name some of dense"),
        (("features", "--families", "nosuch"), "unknown family 'nosuch'"),
        (("features", "--n", "0"), "n must be 1 or more"),
        (("features", "--memory-limit", "lots"), "memory_limit must be"),
        (("accuracy", "--lengthscale", "long"), "lengthscale must be a positive"),
        (("accuracy", "--data", "nosuch"), "unknown data set 'nosuch'"),
        (("accuracy", "--data", "diabetes"), "diabetes is a regression"),
        (("accuracy", "--n-components", "1e3"), "positive integers"),
        (("accuracy", "--n", "1"), "n must be 2 or more"),
        (("accuracy", "--seeds", "0"), "seeds must be 1 or more"),
        (("accuracy", "--alpha", "1,auto"), "--alpha takes numbers"),
        (("accuracy", "--alpha", "0"), "alpha must be a positive number"),
        (("accuracy", "--alpha", ""), "alpha must be positive numbers"),
    ],
)
def test_bad_values_are_one_line(command, arguments, message):
    result = command(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
