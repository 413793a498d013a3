"""The benchmarks: their records, figures, tables and complaints, at tiny sizes."""

import io
import json
import math
from dataclasses import asdict

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import randkern as rk
from _lab import COMMON
from randkern.projections import PROJECTIONS
from randkern_lab.benchmarks import features
from randkern_lab.benchmarks.accuracy import (
    Accuracy,
    equal_cost,
    paired_ratio,
    summarise,
)
from randkern_lab.benchmarks.contenders import Contender, known_projections, make_rows
from randkern_lab.benchmarks.features import FeatureCost
from randkern_lab.benchmarks.scores import gram_errors, gram_matrix, ridge_scores
from randkern_lab.benchmarks.timing import interleave
from randkern_lab.process import in_fresh_process

pytestmark = pytest.mark.slow

FEATURE_KEYS = {
    *("family", "method", "library", "dtype", "fit_seconds", "seconds"),
    *("repeats_seconds", "ns_per_feature", "ns_per_feature_in_place"),
    *("speedup_over_float32", "speedup_over_float64", "bound_ns"),
    *("output_bytes", "peak_memory_bytes", "first_call_seconds"),
    "cold_call_seconds",
}
ACCURACY_KEYS = {
    *("family", "method", "centered", "n_components", "seed", "gram_error"),
    *("gram_error_all", "test_error", "alpha", "fit_seconds", "transform_seconds"),
    "solve_seconds",
}


def cost_of(progress=None, **changed):
    """Results of the cost of features at small sizes."""
    given = {"d": 20, "n_components": 66, "n": 60, "repeats": 2, "memory": False}
    given |= {"cold": False, "projections": ("dense", "orthogonal")}
    return FeatureCost.run(features.Options(**(given | changed)), progress)


@pytest.fixture(scope="module")
def timed():
    return cost_of()


@pytest.fixture(scope="module")
def measured():
    return Accuracy.run(
        Accuracy.Options(
            data="iris",
            n_components=(16, 48, 200),
            n=60,
            lengthscale="2",
            seeds=3,
            projections=("dense", "orthogonal"),
        )
    )


# features: contenders and records


@pytest.mark.parametrize("name", [name for name in PROJECTIONS if name != "auto"])
@pytest.mark.parametrize("family", ["gaussian", "optical"])
def test_contenders_estimate_the_same_kernel(family, name):
    d, n_components = 70, 6000
    X = make_rows(6, d, "float32", seed=1)
    kernel = rk.Gaussian(math.sqrt(d)) if family == "gaussian" else rk.Optical(2)
    Z = Contender(family, "randkern", name, "float32").build(d, n_components, 0)
    Z = Z.fit(X).transform(X)
    exact = kernel(X.astype(float))
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("contender", "kernel"),
    [
        *(
            (Contender("gaussian", "scikit-learn", "RBFSampler", dtype), rk.Gaussian(3))
            for dtype in ("float32", "float64")
        ),
        (Contender("optical", "numpy", "two products", "float32"), rk.Optical(2)),
        (Contender("optical", "numpy", "two products", "float32", 4.0), rk.Optical(4)),
    ],
)
def test_peers_estimate_the_same_kernel_in_their_type(contender, kernel):
    X = make_rows(5, 9, contender.dtype, seed=0)
    Z = contender.build(9, 40_000, seed=0).fit(X).transform(X)
    exact = kernel(X.astype(float))
    assert Z.dtype == contender.dtype
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


def test_projections_are_those_of_the_library():
    assert known_projections() == [name for name in PROJECTIONS if name != "auto"]
    assert known_projections(["qmc", "dense", "qmc"]) == ["qmc", "dense"]


def test_features_records(timed):
    assert all(set(record) == FEATURE_KEYS for record in timed["records"])
    assert [(record["family"], record["method"]) for record in timed["records"]] == [
        ("gaussian", "RBFSampler float64"),
        ("gaussian", "RBFSampler float32"),
        ("gaussian", "dense"),
        ("gaussian", "orthogonal"),
        ("optical", "two products float32"),
        ("optical", "dense"),
        ("optical", "orthogonal"),
    ]
    for record in timed["records"]:
        assert len(record["repeats_seconds"]) == 2
        assert record["seconds"] == np.median(record["repeats_seconds"])
        expected = 1e9 * record["seconds"] / (66 * 60)
        assert record["ns_per_feature"] == pytest.approx(expected)
        own = record["library"] == "randkern"
        assert (record["ns_per_feature_in_place"] is not None) == own
    json.dumps(timed, allow_nan=False)


def test_speedups_are_over_the_peer_of_the_family(timed):
    seconds = {(r["family"], r["method"]): r["seconds"] for r in timed["records"]}
    dense = {r["family"]: r for r in timed["records"] if r["method"] == "dense"}
    single, double = "speedup_over_float32", "speedup_over_float64"
    for family, peer in (
        ("gaussian", "RBFSampler float32"),
        ("optical", "two products float32"),
    ):
        ratio = seconds[family, peer] / seconds[family, "dense"]
        assert dense[family][single] == pytest.approx(ratio)
    assert dense["optical"][double] is None
    assert dense["gaussian"][double] == pytest.approx(
        seconds["gaussian", "RBFSampler float64"] / seconds["gaussian", "dense"]
    )


def test_roofline_scales_with_the_product_of_each_method(timed):
    bounds = timed["roofline"]
    assert bounds["product_ns"] == pytest.approx(2 * 20 / bounds["product_gflops"])
    for record in timed["records"]:
        if record["dtype"] == "float64":
            assert record["bound_ns"] is None
            continue
        products = 2.0 if record["family"] == "optical" else 1.0
        if (record["family"], record["library"]) == ("gaussian", "randkern"):
            products = 0.5
        assert record["bound_ns"] == max(
            products * bounds["product_ns"], bounds["write_new_ns"]
        )


def test_who_exceeds_the_limit_is_skipped_with_the_reason():
    results = cost_of(
        **{"d": 300, "n_components": 400, "n": 10, "repeats": 1},
        projections=("dense", "streamed"),
        families=("gaussian",),
        memory_limit="100kB",
    )
    assert [record["method"] for record in results["records"]] == ["streamed"]
    assert results["records"][0]["speedup_over_float32"] is None
    reasons = {note["method"]: note["reason"] for note in results["skipped"]}
    assert set(reasons) == {"RBFSampler float64", "RBFSampler float32", "dense"}
    assert "its matrix takes 1.4 MB" in reasons["RBFSampler float32"]
    assert "limit of 100.0 kB" in reasons["dense"]
    assert FeatureCost.figures(results)["features.png"].axes


def test_nothing_to_run_is_an_error():
    with pytest.raises(ValueError, match=r"nothing could be run: its matrix takes"):
        cost_of(projections=("dense",), memory_limit="10B")


def test_width_beyond_a_projection_is_skipped_with_its_own_words():
    results = cost_of(
        **{"d": 21_300, "n_components": 4, "n": 2, "repeats": 1},
        projections=("qmc", "streamed"),
        families=("gaussian",),
    )
    (note,) = results["skipped"]
    assert note["method"] == "qmc"
    assert "dimensions" in note["reason"]


def requested(contender, n, d, n_components):
    sizes = {"n": n, "d": d, "n_components": n_components, "seed": 0}
    return {"contender": asdict(contender), **sizes}


def test_peak_memory_is_that_of_one_contender():
    contender = Contender("optical", "numpy", "two products", "float32")
    request = requested(contender, 2000, 50, 3000)
    measured = in_fresh_process(features.peak_memory, request)
    # Two matrices and two products; pages are counted a little late.
    arrays = 2 * 4 * 2000 * 3000 + 2 * 4 * 50 * 3000
    assert 0.9 * arrays < measured["added_bytes"] < 1.3 * arrays
    assert 0 < measured["first_call_seconds"] < 60
    assert measured["first_call_seconds"] < measured["process_seconds"]


def test_a_process_that_fails_gives_its_last_words():
    wrong = Contender("gaussian", "randkern", "nosuch", "float32")
    with pytest.raises(ValueError, match="nosuch"):
        in_fresh_process(features.first_call, requested(wrong, 2, 2, 2))
    request = requested(wrong, 2, 2, 2) | {"contender": {"family": "x"}}
    with pytest.raises(ValueError, match=r"its own process ended .* missing"):
        in_fresh_process(features.first_call, request)


def test_interleaved_calls_take_turns():
    order = []
    interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    # Each call that is timed follows one that is not.
    assert order == ["a", "a", "b", "b"] * 2


# sweep


def test_sweep_varies_one_size_at_a_time():
    results = cost_of(
        **{"n_components": 40, "repeats": 1, "sweep": True},
        **{"sweep_d": (8, 32), "sweep_n_components": (16, 64)},
        projections=("dense",),
    )
    sweep = results["sweep"]
    points = {
        (record["axis"], record["d"], record["n_components"])
        for record in sweep["records"]
    }
    assert points == {
        *{("d", 8, 40), ("d", 32, 40)},
        *{("n_components", 20, 16), ("n_components", 20, 64)},
    }
    assert not any("axis" in record for record in results["records"])
    assert set(sweep["exponents"]["d"]) == {"RBFSampler float32", "dense"}
    figure = FeatureCost.figures(results)["sweep.png"]
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["input columns d", "features D"]


def test_exponents_are_slopes():
    records = [
        {"axis": "d", "d": d, "method": "dense", "seconds": 3e-6 * d**1.5}
        for d in (10, 100, 1000)
    ]
    assert features._exponents(records, "d")["dense"] == pytest.approx(1.5)
    assert features._exponents(records, "n_components") == {}


# accuracy


def test_accuracy_records(measured):
    assert all(set(record) == ACCURACY_KEYS for record in measured["records"])
    methods = {
        (record["family"], record["method"], record["centered"])
        for record in measured["records"]
    }
    assert methods == {
        *{("gaussian", name, False) for name in ("dense", "orthogonal")},
        *{("gaussian", name, False) for name in ("RBFSampler", "Nystroem")},
        *{
            ("optical", name, centered)
            for name in ("dense", "orthogonal")
            for centered in (False, True)
        },
    }
    assert {record["seed"] for record in measured["records"]} == {0, 1, 2}
    for record in measured["records"]:
        assert (record["test_error"] is None) == (record["family"] == "optical")
    json.dumps(measured, allow_nan=False)


def test_nystroem_stops_at_the_rows(measured):
    (note,) = measured["skipped"]
    assert (note["method"], note["n_components"]) == ("Nystroem", 200)
    assert "one component a training row: 60" in note["reason"]


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
    ratio, standard_error = paired_ratio(errors, base)
    assert abs(ratio - 0.8) < 4 * standard_error
    assert standard_error == pytest.approx(0.1 / 1.5 / math.sqrt(400), rel=0.15)
    assert paired_ratio([2.0], [4.0]) == (0.5, None)


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


def test_equal_cost_takes_the_largest_that_fits():
    def entry(method, size, seconds):
        values = {"gram_error": 1 / size, "test_error": 0.1, "total_seconds": seconds}
        return {
            "family": "gaussian",
            "method": method,
            "n_components": size,
            **values,
        }

    summary = [
        entry("Nystroem", 10, 1.0),
        entry("Nystroem", 100, 9.0),
        *(entry("dense", size, 0.04 * size) for size in (30, 60)),
    ]
    first, second = equal_cost(summary)
    assert first["method_n_components"] is None
    assert not first["largest_measured"]
    assert second["method_n_components"] == 60
    assert second["largest_measured"]
    assert second["method_gram_error"] == 1 / 60


# figures


@pytest.mark.parametrize("name", ["accuracy.png", "cost.png"])
def test_accuracy_figures_have_a_legend_outside_the_axes(measured, name):
    figure = Accuracy.figures(measured)[name]
    figure.savefig(io.BytesIO())  # lays it out
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert {"dense", "orthogonal", "RBFSampler", "Nystroem"} <= set(names)
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_accuracy_figure_without_the_optical_kernel(measured):
    summary = [entry for entry in measured["summary"] if entry["family"] == "gaussian"]
    figure = Accuracy.figures(measured | {"summary": summary})["accuracy.png"]
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]


def test_features_figure_has_a_bar_a_record(timed):
    figure = FeatureCost.figures(timed)["features.png"]
    bars = [patch for axes in figure.axes for patch in axes.patches]
    assert len(bars) == len(timed["records"])
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "log"]


# bad arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d must be 1 or more, got 0"),
        ({"repeats": 0}, "repeats must be 1 or more"),
        ({"degree": -1.0}, "degree must be a positive number"),
        ({"projections": ("nosuch",)}, "unknown projection 'nosuch'; expected some of"),
        ({"projections": ()}, "no projection was named"),
        ({"families": ("cubic",)}, "unknown family 'cubic'"),
        ({"families": ()}, "nothing to run: name some of gaussian, optical"),
        ({"memory_limit": "lots"}, "memory_limit must be"),
    ],
)
def test_bad_arguments_of_features(change, message):
    with pytest.raises(ValueError, match=message):
        cost_of(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": (0,)}, "n_components must be 1 or more"),
        ({"n": 1}, "n must be 2 or more"),
        ({"alpha": (0.0,)}, "alpha must be a positive number"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"projections": ("nosuch",)}, "unknown projection 'nosuch'"),
        ({"data": "diabetes"}, "diabetes is a regression"),
        ({"lengthscale": "long"}, "lengthscale must be a positive number, scale or"),
    ],
)
def test_bad_arguments_of_accuracy(change, message):
    with pytest.raises(ValueError, match=message):
        Accuracy.run(
            Accuracy.Options(**({"data": "iris", "n_components": (8,)} | change))
        )


# the command line


@pytest.fixture(scope="module")
def app():
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from randkern import cli

    return cli._build_app()


def invoke(app, *arguments):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_features_command(app, tmp_path):
    result = invoke(
        app,
        *("features", "--d", 16, "--n-components", 40, "--n", 30, "--repeats", 1),
        *("--projections", "dense,streamed", "--no-memory", "--no-cold"),
        *("--sweep", "--sweep-d", "8,16", "--sweep-n-components", "16,32"),
        *("--out", tmp_path / "new"),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "new" / "results.json").read_text("utf-8"))
    assert set(results) == COMMON | {"roofline", "sweep"}
    assert set(results["sweep"]) == {"arguments", "records", "exponents", "skipped"}
    for name in ("features.png", "sweep.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
        assert name in result.output
    for text in ("ns/feature", "RBFSampler float64", "exponent", "bounds: writing"):
        assert text in result.output


def test_accuracy_command(app, tmp_path):
    result = invoke(
        app,
        *("accuracy", "--data", "iris", "--n-components", "8,32", "--seeds", 2),
        *("--lengthscale", "scale", "--projections", "dense,qmc", "--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert set(results) == COMMON | {"exact", "summary", "equal_cost"}
    assert results["arguments"]["data"] == "iris"
    for name in ("accuracy.png", "cost.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    for text in ("ratio to dense", "centred / plain", "at equal cost", "exact kernel"):
        assert text in result.output
    assert all(len(line) <= 100 for line in result.output.splitlines()[:-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "unknown benchmark 'nosuch'; expected one of features, accuracy"),
        (("features", "--projections", "nosuch"), "unknown projection 'nosuch'"),
        (("features", "--families", "nosuch"), "unknown family 'nosuch'"),
        (("features", "--n", "0"), "n must be 1 or more"),
        (("features", "--sweep-d", "x"), "positive whole numbers"),
        (("accuracy", "--lengthscale", "long"), "lengthscale must be a positive"),
        (("accuracy", "--data", "nosuch"), "unknown data set 'nosuch'"),
        (("accuracy", "--n-components", "1e3"), "positive whole numbers"),
        (("accuracy", "--seeds", "0"), "seeds must be 1 or more"),
        (("accuracy", "--alpha", "1,auto"), "--alpha takes numbers separated by"),
    ],
)
def test_bad_values_are_one_line(app, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = invoke(app, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
