"""Commands that fail or are interrupted: what they say, and what lies in the folder."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("skops")
import pandas as pd
from typer.testing import CliRunner

import randkern as rk
from randkern import cli
from randkern.reporting import page
from randkern.reporting.learning_curve import scores_by_rows
from randkern.reporting.page import panels
from randkern.reporting.scores import EvaluatedModel, evaluate
from randkern.tabular.exact_logistic import ExactLogistic
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.model import Member, TabularModel

pytestmark = pytest.mark.usefixtures("whole_reports")
FILES = {"model.skops", "report.html", "results.json"}


def run(*arguments, **options):
    app = cli._build_app()
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def numbers(n=80):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return rows, np.sin(rows["a"]).to_numpy() + 0.1 * rng.normal(size=n)


@pytest.fixture
def fit(tmp_path):
    rows, y = numbers()
    rows.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)

    def fitted(*options):
        where = ("--time-limit", 1, "--out", tmp_path / "out")
        return run("fit", tmp_path / "rows.csv", "--target", "y", *where, *options)

    return fitted


def names(folder):
    return {each.name for each in folder.iterdir()}


def fail(*_, **__):
    raise KeyError("lost")


def test_a_file_in_place_of_the_folder_is_named(fit, tmp_path):
    (tmp_path / "out").write_text("notes", encoding="utf-8")
    result = fit()
    assert result.exit_code == 2
    assert "out is a file; pass a folder" in result.stderr


def test_data_sets_that_are_no_tables_are_refused():
    result = run("fit", "iris")
    assert result.exit_code == 2
    assert "iris is a data set of arrays" in result.stderr


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["randkern.reporting.scores.evaluate", "randkern.reporting.page.render"]
)
def test_the_model_outlives_a_bug_after_its_fit(place, fit, tmp_path, monkeypatch):
    monkeypatch.setattr(place, fail)
    result = fit()
    assert result.exit_code == 70
    told = result.stderr.splitlines()[-1]
    assert told.startswith(
        "randkern: bug: KeyError: 'lost' (tests/test_cli_failures.py"
    )
    assert "run it again with --debug" in told and "issues" in told
    assert "Traceback" not in result.output
    assert names(tmp_path / "out") == {"model.skops"}
    assert rk.load(tmp_path / "out" / "model.skops").predict(numbers()[0]).shape == (
        80,
    )


@pytest.mark.parametrize("at", ["before", "after"])
def test_debug_shows_the_traceback(at, tmp_path, monkeypatch):
    monkeypatch.setattr(rk, "load", fail)
    command = ("info", tmp_path / "none.skops")
    result = run(*(("--debug", *command) if at == "before" else (*command, "--debug")))
    assert result.exit_code == 70
    assert "Traceback" in result.stderr and "in fail" in result.stderr
    assert "with --debug" not in result.stderr.splitlines()[-1]
    monkeypatch.undo()
    assert "Traceback" not in run(*command).output
    assert "Traceback" in run(*command, "--debug").output  # of the user's errors, too


@pytest.mark.slow
def test_an_interrupted_refit_leaves_the_validated_model(fit, tmp_path, monkeypatch):
    usual, calls = rk.TabularRegressor.fit, []

    def once(model, X, y, **dependence):
        calls.append(len(y))
        return usual(model, X, y, **dependence) if len(calls) == 1 else interrupt()

    monkeypatch.setattr(rk.TabularRegressor, "fit", once)
    result = fit()
    assert result.exit_code == 130
    written = ", ".join(str(tmp_path / "out" / name) for name in sorted(FILES))
    assert (
        f"interrupted; wrote {written}; model.skops is fitted to the 64"
        in (result.stderr.splitlines()[-1])
    )
    assert calls == [64, 80] and names(tmp_path / "out") == FILES
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["model"] == "fitted to the 64 rows that train it"
    saved = rk.load(tmp_path / "out" / "model.skops")
    assert len(saved.model_.members[0].fit.X) == 64


@pytest.mark.slow
def test_a_figure_that_fails_is_a_line_in_the_report(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(page.OF_NUMBERS, "Residuals", fail)
    result = fit("--no-refit")
    assert result.exit_code == 0
    assert "warning: the report lacks the figure 'Residuals'" in result.stderr
    assert names(tmp_path / "out") == FILES
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "This figure could not be drawn (KeyError" in text
    assert "Predictions and truth" in text


def test_a_folder_without_space_is_refused_before_the_fit(fit, monkeypatch):
    monkeypatch.setattr(rk.TabularRegressor, "fit", fail)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    result = fit()
    assert result.exit_code == 2
    assert " free, but about " in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("classes", [False, True])
def test_every_kind_of_model_has_a_learning_curve(classes):
    """The penalty is that of the fit."""
    rows, y = numbers(120)
    kernel, encoder = rk.Gaussian(), rk.TabularEncoder().fit(rows)
    model = rk.TabularClassifier() if classes else rk.TabularRegressor()
    member = ExactLogistic(kernel) if classes else ExactRidge(kernel, 0.1)
    y = (y > 0).astype(int) if classes else y
    fit = member.fit(encoder.transform(rows), y)
    model.model_ = TabularModel([Member(1.0, encoder, fit)])
    curve = scores_by_rows(model, (rows, y), (rows, y))
    assert list(curve) == [60, 120]
    exact = rk.KernelRidgeRegressor(kernel, 0.1, None, fit_intercept=True)
    if not classes:
        order = np.random.default_rng(0).permutation(120)[:60]
        U = encoder.transform(rows)
        exact.fit(U[order], y[order])
        expected = np.sqrt(np.mean((exact.predict(U) - y) ** 2))
        assert curve[60]["rmse"] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 12, 14])
def test_two_classes_in_few_rows_have_a_whole_report(n):
    rows, y = numbers(n)
    labels = np.where(y > np.median(y), "u", "v")
    model = rk.TabularClassifier(time_limit=1, random_state=0).fit(rows[2:], labels[2:])
    test = rows[:2], np.array(["u", "v"])
    evaluated = EvaluatedModel(
        model, (rows[2:], labels[2:]), test, evaluate(model, *test), {}, 0.0, 0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(panel.svg for panel in panels(evaluated, "y"))


def test_scores_of_huge_targets_are_those_of_small_ones():
    rows, y = numbers()

    class Mean:
        def __init__(self, scale):
            self.scale = scale

        def predict(self, X):
            return np.full(len(X), 0.1 * self.scale)

        def __sklearn_tags__(self):
            return rk.KernelRidgeRegressor().__sklearn_tags__()

    small, huge = (evaluate(Mean(scale), rows, scale * y) for scale in (1.0, 1e200))
    assert huge.scores["r2"] == pytest.approx(small.scores["r2"])
    for name in ("rmse", "mae"):
        assert huge.scores[name] / 1e200 == pytest.approx(small.scores[name])
    assert huge.standard_error / 1e200 == pytest.approx(small.standard_error)
    assert small.scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - 0.1) ** 2)))
