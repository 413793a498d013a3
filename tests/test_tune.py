"""Grids of hyperparameters: their scores, their records, their heatmap, the command."""

import importlib
import json
import re
import sys
import time
from dataclasses import asdict
from itertools import count, pairwise

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import make_moons
from sklearn.model_selection import LeaveOneOut, StratifiedKFold, cross_val_predict

import randkern as rk
from randkern.datasets import Dataset
from randkern.datasets.schema import TableFormat
from randkern.study.fits import relative_error
from randkern.study.kernel_choices import parse_kernel
from randkern.study.preparation import prepare
from randkern.study.tune import Grid, preference, tune

pytestmark = pytest.mark.slow

SMALL = {"n_components": 40, "alphas": [0.01, 1.0, 100.0], "scales": [0.1, 1.0]}


def moons(n=80):
    X, y = make_moons(n, noise=0.2, random_state=0)
    return Dataset(name="moons", X_train=X, y_train=y)


def wave(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    y = 10 * np.sin(X[:, 0]) + rng.standard_normal(n) + 50
    return Dataset(name="wave", X_train=X, y_train=y, task="regression")


@pytest.fixture(scope="module")
def results():
    return tune(moons(), "gaussian,linear,optical:4", **SMALL)


# -- scores -----------------------------------------------------------------------


def test_every_cell_is_the_error_of_the_model_it_names(results):
    """Scale and penalty as they are written, by a loop of fits."""
    data = prepare(moons())
    kernels = {
        "gaussian": lambda named: rk.Gaussian(named["lengthscale"]),
        "optical:4": lambda named: rk.Optical(4, bias=named["bias"]),
    }
    for name, build in kernels.items():
        own = [r for r in results["records"] if r["kernel"] == name]
        for record in own[3:12:4]:
            named = record["hyperparameters"]
            model = rk.KernelRidgeClassifier(
                rk.Scaled(build(named), named["scale"] ** 2),
                named["alpha"],
                n_components=40,
                fit_intercept=True,
                random_state=0,
            )
            predicted = cross_val_predict(
                model, data.X_train, data.y_train, cv=LeaveOneOut()
            )
            expected = relative_error(data.y_train, predicted, "classification")
            assert record["validation_error"] == pytest.approx(expected)


@pytest.mark.parametrize("validation", ["loo", "holdout", 3])
def test_every_kind_of_validation(validation):
    for dataset in (moons(), wave()):
        result = tune(
            dataset,
            "gaussian",
            validation=validation,
            lengthscales=[1.0, 100.0],
            **SMALL,
        )
        best = result["best"]["gaussian"]
        assert best["hyperparameters"]["lengthscale"] == 1.0
        assert best["validation_error"] < 0.3
        assert best["test_error"] < 0.3
        assert "lengthscale" in best["at_edge"]
        assert result["dataset"]["validation"]


def test_folds_are_stratified_and_equal_cross_validation():
    data = prepare(moons())
    result = tune(moons(), "gaussian", validation=3, lengthscales=[0.5], **SMALL)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    for record in result["records"]:
        named = record["hyperparameters"]
        errors = []
        for train, test in folds.split(data.X_train, data.y_train):
            model = rk.KernelRidgeClassifier(
                rk.Gaussian(0.5),
                named["alpha"] / named["scale"] ** 2,
                n_components=40,
                fit_intercept=True,
                random_state=0,
            ).fit(data.X_train[train], data.y_train[train])
            predicted = model.predict(data.X_train[test])
            y_test = data.y_train[test]
            errors.append(relative_error(y_test, predicted, "classification"))
        assert record["validation_error"] == pytest.approx(np.mean(errors))


def test_one_decomposition_for_each_setting(monkeypatch):
    calls = []
    eigh = scipy.linalg.eigh
    monkeypatch.setattr(
        scipy.linalg, "eigh", lambda *a, **k: calls.append(len(a[0])) or eigh(*a, **k)
    )
    tune(
        moons(),
        "gaussian",
        lengthscales=[0.5, 1.0, 2.0],
        n_components=40,
        scales=[0.1, 1, 10],
    )
    assert calls.count(40) == 3


def test_exact_kernel():
    data = prepare(moons())
    result = tune(
        moons(),
        "gaussian",
        n_components=None,
        alphas=[0.1],
        scales=[1.0],
        lengthscales=[0.5],
    )
    model = rk.KernelRidgeClassifier(
        rk.Gaussian(0.5), 0.1, n_components=None, fit_intercept=True
    ).fit(data.X_train, data.y_train)
    best = result["best"]["gaussian"]
    assert best["test_error"] == 1 - model.score(data.X_test, data.y_test)


def test_equal_cells_prefer_scale_one_and_the_largest_penalty(results):
    for name, best in results["best"].items():
        own = [r for r in results["records"] if r["kernel"] == name]
        assert best["validation_error"] == min(r["validation_error"] for r in own)
        assert preference(best) == min(map(preference, own))


# -- the grid ---------------------------------------------------------------------


def test_default_grids_follow_the_kernel_and_the_data():
    X = np.random.default_rng(0).normal(size=(50, 4))
    grid = Grid(None, [1.0], None, None)
    gaussian, optical = parse_kernel("gaussian"), parse_kernel("optical")
    scale = rk.Gaussian("scale").resolve(X).lengthscale
    np.testing.assert_allclose(
        grid.values(gaussian, X), scale * 2.0 ** np.arange(-3, 4)
    )
    assert grid.values(optical, X)[0] == 0
    assert grid.values(parse_kernel("linear"), X) == [None]
    assert grid.penalties(gaussian, X) == [float(f"1e{k}") for k in range(-6, 3)]
    # k(x, x) = 2 ‖x‖⁴ is about 50.
    assert grid.penalties(optical, X)[0] == 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alphas": []}, "alphas must be a list of at least one number"),
        ({"alphas": [0.0]}, "alphas must be a positive"),
        ({"scales": []}, "scales must be a list of at least one number"),
        ({"lengthscales": [-1.0]}, "lengthscales must be a positive"),
        ({"biases": [-1.0]}, "biases must be a non-negative"),
        ({"n_components": 0}, "n_components must be a positive"),
        ({"n_trials": 0}, "n_trials must be a positive"),
        ({"validation": "best"}, "'loo', 'holdout' or a number of folds"),
        ({"validation": 1}, "'loo', 'holdout' or a number of folds"),
        ({"validation": 61}, "60 training rows, got 61"),
        ({"memory_limit": "4 apples"}, "4 apples"),
        ({"kernels": "gauss"}, "unknown kernel"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        tune(moons(), **arguments)


def test_what_does_not_fit_is_skipped():
    result = tune(
        moons(),
        "gaussian,linear",
        n_components=60,
        memory_limit="5kB",
        lengthscales=[1.0],
        alphas=[1.0],
    )
    skipped = {note["kernel"] for note in result["skipped"]}
    assert skipped == {"gaussian", "linear", "linear model"}
    assert "memory_limit" in result["skipped"][0]["reason"]
    assert result["records"] == []
    assert result["best"] == {}


# -- records ----------------------------------------------------------------------


def test_results_have_the_documented_keys(results):
    assert set(results) == {
        *("command", "arguments", "dataset", "versions", "machine", "records"),
        *("settings", "best", "baselines", "skipped", "warnings"),
    }
    assert results["command"] == "tune"
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    names = {
        "gaussian": {"lengthscale", "scale", "alpha"},
        "linear": {"scale", "alpha"},
        "optical:4": {"degree", "bias", "scale", "alpha"},
    }
    for record in results["records"]:
        assert set(record) == {"kernel", "hyperparameters", "validation_error"}
        assert set(record["hyperparameters"]) == names[record["kernel"]]
    for setting in results["settings"]:
        assert set(setting) == {"kernel", "hyperparameters", "n_penalties", "seconds"}
        assert setting["n_penalties"] == 4  # of 6 cells
    for best in results["best"].values():
        assert set(best) == {
            *("kernel", "hyperparameters", "validation_error", "test_error"),
            *("standard_error", "log_loss", "auc", "fit_seconds", "at_edge"),
        }
    assert len(results["records"]) == 6 * (7 + 1 + 6)


def test_progress_counts_every_step_once():
    calls = []
    tune(
        moons(),
        "gaussian,linear",
        lengthscales=[1.0, 2.0],
        progress=lambda *step: calls.append(step),
        **SMALL,
    )
    assert [done for done, *_ in calls] == list(range(6))
    assert {total for _, total, _ in calls} == {5}
    assert calls[0][2] == "gaussian, lengthscale 1"


def test_trials():
    optuna = pytest.importorskip("optuna")
    verbosity = optuna.logging.get_verbosity()
    first, again = (
        tune(moons(), "gaussian,linear", n_trials=6, lengthscales=[0.1, 10.0], **SMALL)
        for _ in range(2)
    )
    assert [r["hyperparameters"] for r in first["records"]] == [
        r["hyperparameters"] for r in again["records"]
    ]
    tried = [
        setting["hyperparameters"]["lengthscale"]
        for setting in first["settings"]
        if setting["kernel"] == "gaussian"
    ]
    assert len(set(tried)) == 6
    assert 0.1 <= min(tried) < max(tried) <= 10
    assert len(first["settings"]) == 7
    assert first["best"]["gaussian"]["validation_error"] < 0.15
    assert optuna.logging.get_verbosity() == verbosity
    with pytest.raises(ValueError, match="two positive values of lengthscale"):
        tune(moons(), "gaussian", n_trials=2, lengthscales=[1.0], **SMALL)


def test_trials_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "randkern\[tune\]"'):
        tune(moons(), "gaussian", n_trials=2, **SMALL)


# -- the figure -------------------------------------------------------------------


def test_curves_of_the_best_penalty(results):
    pytest.importorskip("matplotlib")
    from randkern.plots.records import plot_tune

    figure = plot_tune(results["records"], best=results["best"], percent=True)
    panels = {axes.get_xlabel(): axes for axes in figure.axes}
    assert set(panels) == {"lengthscale ℓ", "bias ν"}
    for label, axes in panels.items():
        opens = label.split()[0]
        curves = {line.get_label(): line for line in axes.get_lines()}
        for kernel, best in results["best"].items():
            own = [r for r in results["records"] if r["kernel"] == kernel]
            if opens not in own[0]["hyperparameters"]:
                continue
            least = {}
            for record in own:
                value, error = (
                    record["hyperparameters"][opens],
                    record["validation_error"],
                )
                least[value] = min(error, least.get(value, np.inf))
            line = curves[kernel]
            assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == least
            stars = [
                (star.get_xdata()[0], star.get_ydata()[0])
                for star in axes.get_lines()
                if star.get_marker() == "*"
            ]
            place = best["hyperparameters"][opens], best["validation_error"]
            assert place in stars
    figure.draw_without_rendering()
    left, right = figure.axes
    # Numbers along an axis do not touch.
    for axes in (left, right):
        boxes = [t.get_window_extent() for t in axes.get_xticklabels() if t.get_text()]
        boxes = [box for box in boxes if box.width > 1]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    with pytest.raises(ValueError, match="no records"):
        plot_tune([])


# -- the command ------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from typer.testing import CliRunner

    from randkern import cli

    app = cli._build_app()
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


QUICK = ("--n-components", "20", "--alphas", "0.1,1", "--scales", "0.1,1")


def test_command_writes_results_and_figure(run, tmp_path):
    result = run(
        *("tune", "--data", "iris", "--kernels", "gaussian,linear", *QUICK),
        *("--lengthscales", "1,3", "--validation", "3", "--out", tmp_path / "new"),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "new" / "results.json").read_text("utf-8"))
    assert results["arguments"] == {
        "kernels": ["gaussian", "linear"],
        "alphas": [0.1, 1.0],
        "scales": [0.1, 1.0],
        "lengthscales": [1.0, 3.0],
        "biases": "auto",
        "n_components": 20,
        "validation": 3,
        "n_trials": None,
        "memory_limit": None,
        "time_limit": 120,
        "random_state": 0,
        "metric": None,
        "data": "iris",
        "data_dir": None,
        "target": None,
        "task": None,
        "test": None,
        "format": json.loads(json.dumps(asdict(TableFormat()))),
        "groups": None,
        "time": None,
    }
    assert len(results["records"]) == 3 * 4
    # The best stands beside what any kernel should beat, with all scores.
    assert list(results["baselines"]) == ["most frequent class", "linear model"]
    for name, values in {**results["baselines"], **results["best"]}.items():
        error, size = 100 * values["test_error"], 100 * values["standard_error"]
        cells = rf"{error:.2f} ± {size:.2f} % \| +{values['log_loss']:.4f} \| +0?[\d.]+"
        assert re.search(rf"\| {name} +\|.*{cells} \|", result.output), name
    assert (tmp_path / "new" / "tune.png").stat().st_size > 10_000
    *table, _ = result.output.splitlines()  # the last names the files
    assert all(len(line) <= 100 for line in table)
    for text in ("lengthscale 3", "3 folds", "validation error", "test", "tune.png"):
        assert text in result.output


def test_command_with_trials_and_the_exact_kernel(run, tmp_path):
    pytest.importorskip("optuna")
    result = run(
        *("tune", "--data", "diabetes", "--kernels", "gaussian", "--optuna"),
        *("--trials", "3", "--n-components", "exact", "--alphas", "0.1,1"),
        *("--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert len(results["settings"]) == 3
    assert results["arguments"]["n_components"] is None
    assert results["best"]["gaussian"]["test_error"] < 1
    assert "Trial" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernels", "gauss"), "unknown kernel 'gauss'"),
        (("--n-components", "1e3"), "positive whole number or exact"),
        (("--alphas", "small"), "--alphas takes auto or numbers"),
        (("--alphas", "0"), "alphas must be a positive"),
        (("--scales", "auto"), "--scales takes numbers"),
        (("--scales", ","), "scales must be a list of at least one number"),
        (("--validation", "often"), "'loo', 'holdout' or a number of folds"),
        (("--data", "nosuch"), "unknown data set 'nosuch'"),
        (("--memory-limit", "5 apples"), "5 apples"),
    ],
)
def test_bad_values_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run("tune", "--data", "iris", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("randkern: error: ")
    assert result.output.count("\n") == 1
    assert not (tmp_path / "randkern-tune" / "results.json").exists()


def test_help_lists_the_options(run):
    assert "tune" in run("--help").output
    text = run("tune", "--help").output
    for option in ("--alphas", "--scales", "--biases", "--validation", "--optuna"):
        assert option in text


@pytest.mark.parametrize("name", ["mae", "r2", "rmse", "auc"])
def test_errors_of_a_metric_are_those_of_leave_one_out(name):
    from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score
    from sklearn.metrics import root_mean_squared_error as rmse

    oracle = {
        "mae": mean_absolute_error,
        "rmse": rmse,
        "r2": lambda *y: -r2_score(*y),
        "auc": lambda *y: -roc_auc_score(*y),
    }
    dataset = moons(40) if name == "auc" else wave(40)
    options = {"n_components": None, "lengthscales": [1.0], "scales": [1.0]}
    found = tune(dataset, "gaussian", alphas=[0.5], metric=name, **options)
    (record,) = found["records"]
    data = prepare(dataset)
    kind = rk.KernelRidgeClassifier if name == "auc" else rk.KernelRidgeRegressor
    model = kind(rk.Gaussian(1.0), 0.5, n_components=None, fit_intercept=True)
    method = "decision_function" if name == "auc" else "predict"
    left_out = cross_val_predict(
        model, data.X_train, data.y_train, cv=LeaveOneOut(), method=method
    )
    expected = oracle[name](data.y_train.ravel(), left_out.ravel())
    assert record["validation_error"] == pytest.approx(expected, rel=1e-6)


def test_metrics_that_need_probabilities_are_refused(run, tmp_path):
    result = run("tune", "--data", "iris", "--metric", "auc", "--out", tmp_path)
    assert result.exit_code == 2 and "for two classes 'auc'" in result.stderr


def test_a_time_limit_leaves_settings_of_every_kernel_from_the_middle(monkeypatch):
    study = importlib.import_module("randkern.study.deadline")
    given = moons(), ["gaussian", "laplacian"]
    whole = tune(*given, n_components=16, lengthscales=[0.5, 1, 2])
    clock = count()  # a second for each look at the clock
    monkeypatch.setattr(study, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(study.Deadline, "note", lambda *_: None)  # without a pace
    cut = tune(*given, n_components=16, lengthscales=[0.5, 1, 2], time_limit=3)
    assert [s["hyperparameters"]["lengthscale"] for s in cut["settings"]] == [1.0, 1.0]
    assert set(cut["best"]) == {"gaussian", "laplacian"}
    assert all(record in whole["records"] for record in cut["records"])
    assert {
        (note["kernel"], note["hyperparameters"]["lengthscale"], note["reason"])
        for note in cut["skipped"]
    } == {
        (kernel, lengthscale, "the time limit of 3 s is over")
        for kernel in ("gaussian", "laplacian")
        for lengthscale in (0.5, 2.0)
    }


def test_a_setting_that_would_end_late_is_not_begun():
    began = time.perf_counter() - 100
    results = tune(moons(), ["gaussian"], n_components=16, time_limit=1, began=began)
    assert len(results["settings"]) == 1 and set(results["best"]) == {"gaussian"}
    assert len(results["skipped"]) == 6
