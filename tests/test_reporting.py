"""Reports: what their figures, tables and code say."""

import re
import time
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
import pandas as pd
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import average_precision_score, roc_auc_score

import randkern as rk
from randkern.datasets.schema import TableSchema
from randkern.reporting.baseline_models import TREES, baselines
from randkern.reporting.deadline import Deadline
from randkern.reporting.learning_curve import scores_by_rows
from randkern.reporting.page import contents, panels, render, score_rows
from randkern.reporting.scores import EvaluatedModel, Evaluation, evaluate, share_text
from randkern.reporting.summary import summarise


def rows_and_targets(n=160):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "noise"])
    X["colour"] = rng.choice(["red", "blue", None], n)
    y = 2 * X["a"] + (X["colour"] == "red") + 0.3 * rng.normal(size=n)
    return X, y.to_numpy()


def evaluated_model(y, model, X, names=slice(120), held=slice(120, None)):
    task = "classification" if hasattr(model, "predict_proba") else "regression"
    model.fit(X[names], y[names])
    test = X[held], y[held]
    others = baselines(X[names], y[names], task)
    return EvaluatedModel(
        model,
        (X[names], y[names]),
        test,
        evaluate(model, *test),
        {name: evaluate(other, *test) for name, other in others.items()},
    )


@pytest.fixture(scope="module")
def regression():
    X, y = rows_and_targets()
    return evaluated_model(y, rk.TabularRegressor(time_limit=1, random_state=3), X)


@pytest.fixture(scope="module")
def classes():
    X, y = rows_and_targets()
    labels = np.where(y > 0, "yes", "no")
    return evaluated_model(
        labels, rk.TabularClassifier(time_limit=1, random_state=0), X
    )


def page_of(evaluated, command=""):
    X, y = evaluated.train
    task = "regression" if "rmse" in evaluated.evaluation.scores else "classification"
    summary = summarise(X, y, task, TableSchema({}))
    figures = panels(evaluated, "y")
    assert all(figure.svg for figure in figures)
    shown = contents(evaluated, summary, "Predicting y", figures, command)
    return {figure.heading: figure.caption for figure in figures}, render(
        shown, "saved."
    )


def test_a_report_on_classes_has_curves_and_numbers_of_rows(classes):
    caption, _ = page_of(classes)
    y, P = classes.test[1] == "yes", classes.evaluation.probabilities[:, 1]
    assert share_text(roc_auc_score(y, P)) in caption["ROC curve"]
    precision = share_text(average_precision_score(y, P))
    assert f"(AP) is {precision};" in caption["Precision and recall"]
    figure = next(
        figure.svg
        for figure in panels(classes, "y")
        if figure.heading == "Which classes are mistaken"
    )
    predicted = classes.evaluation.predictions == "yes"
    shown = re.findall(r">(\d+)</tspan>|>(\d+)</text>", figure)
    counts = [int(first or second) for first, second in shown]
    for truth in (y, ~y):
        for choice in (predicted, ~predicted):
            assert int((truth & choice).sum()) in counts


def test_curves_of_several_classes_are_of_each_against_the_others():
    X, y = rows_and_targets()
    labels = np.digitize(y, [-1, 1])
    evaluated = evaluated_model(labels, rk.TabularClassifier(time_limit=1), X)
    caption, page = page_of(evaluated)
    assert caption["ROC curve"] == "One curve per class, against all others."
    auc = roc_auc_score(
        evaluated.test[1] == 2, evaluated.evaluation.probabilities[:, 2]
    )
    assert f"2 (AUC = {auc:.2f})" in page


def test_a_report_names_its_origin_and_cost(regression):
    caption, page = page_of(regression, "randkern fit 'my rows.csv' --target y")
    assert "randkern fit &#39;my rows.csv&#39; --target y" in page
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC, randkern .*, seed 3", page)
    assert "prediction of a row" in page
    assert re.search(r"all rows: the (\d columns that matter most|column)", page)
    assert "Coverage by size of the prediction" in caption
    # The share of missing values, and boosted trees.
    n_missing = int(regression.train[0]["colour"].isna().sum())
    assert f"{n_missing} ({100 * n_missing / 120:.1f} %)" in page
    assert "boosted trees" in page
    assert "Not fitted" not in page and "Left out" not in page
    tried = [row.rsplit("<td", 2)[1] for row in re.findall("<tr><td>.*?</tr>", page)]
    errors = [float(cell.partition(">")[2].partition("<")[0]) for cell in tried]
    assert errors == sorted(errors)


def test_boosted_trees_are_those_of_scikit_learn_on_the_same_rows():
    X, y = rows_and_targets()
    codes = X.assign(colour=X["colour"].astype("category"))
    codes = codes[["colour", "a", "b", "noise"]]
    ours = baselines(X[:120], y[:120], "regression")[TREES].predict(X[120:])
    trees = HistGradientBoostingRegressor(
        categorical_features="from_dtype", random_state=0
    )
    theirs = trees.fit(codes[:120], y[:120]).predict(codes[120:])
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    labels = np.digitize(y, [-1, 1])
    ours = baselines(X[:120], labels[:120], "classification")[TREES]
    trees = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=0
    )
    theirs = trees.fit(codes[:120], labels[:120]).predict_proba(codes[120:])
    np.testing.assert_allclose(ours.predict_proba(X[120:]), theirs, rtol=1e-10)


def test_boosted_trees_take_dates_and_many_categories():
    n = 1800
    X = pd.DataFrame(
        {
            "day": pd.date_range("2020-01-01", periods=n),
            "code": [f"c{i % 300}" for i in range(n)],
            "whole": pd.array([None, *range(1, n)], dtype="Int64"),
            "empty": np.nan,
        }
    )
    trees = baselines(X, np.arange(n) % 7.0, "regression")[TREES]
    assert np.isfinite(trees.predict(X.assign(empty=1.0))).all()


def test_boosted_trees_are_left_out_when_there_is_no_time(regression):
    X, y = regression.train
    assert TREES not in baselines(X, y, "regression", time_limit=1e-3)
    others = dict(regression.others)
    del others[TREES]
    evaluated = replace(regression, others=others)
    told = "Not fitted for lack of time (<code>--time-limit</code>): boosted trees."
    assert told in page_of(evaluated)[1]


def deadline_that(allows):
    deadline = Deadline()
    deadline.allows = allows
    deadline.plans = lambda _: False
    return deadline


def test_what_is_late_is_left_out_of_a_report(regression):
    X, y = regression.train
    late = deadline_that(lambda _: False)
    assert [*baselines(X, y, "regression", time_limit=1e-3)] == ["mean"]
    _ = regression.model.feature_importances_
    # Figures of known predictions are drawn even then.
    figures = panels(regression, "y", late)
    drawn = [panel.heading for panel in figures if panel.svg]
    assert drawn == [
        "Predictions and truth",
        "Residuals",
        "Coverage by size of the prediction",
    ]
    left = iter([9.0, 9.0, 0.1])  # seconds before each of the others
    figures = panels(
        regression, "y", deadline_that(lambda seconds: next(left) >= seconds)
    )
    assert [panel.is_late for panel in figures] == [False] * 5 + [True]
    shown = contents(regression, summarise(X, y, "regression"), "t", figures)
    told = "Left out for lack of time (<code>--time-limit</code>): "
    told += "How predictions depend on columns."
    page = render(shown, "saved")
    assert told in page and page.count("<figure") == 5
    model = copy(regression.model)
    model._importances, unknown = None, replace(regression, model=model)
    soon = deadline_that(lambda seconds: seconds < 0.2)
    headings = [panel.heading for panel in panels(unknown, "y", soon) if panel.is_late]
    assert headings[0] == "Which columns matter"
    assert headings[-1] == "How predictions depend on columns"
    assert unknown.record()["importances"] is None


def test_what_the_limit_leaves_room_for_does_not_depend_on_the_clock(regression):
    """A busy machine takes longer than planned, and the page is still whole."""
    over = Deadline(60.0, began=time.perf_counter() - 100.0)
    model = copy(regression.model)
    model._importances = None
    figures = panels(replace(regression, model=model), "y", over)
    assert [panel.heading for panel in figures[-3:]] == [
        "Which columns matter",
        "What more rows would bring",
        "How predictions depend on columns",
    ]
    assert not any(panel.is_late for panel in figures)


def verdict_of(own, **others):
    y = np.zeros(100)
    named = {
        name: Evaluation(y, {"rmse": value}, 0.1) for name, value in others.items()
    }
    own = Evaluation(y, {"rmse": own}, 0.1)
    return EvaluatedModel(None, (y, y), (y, y), own, named)


@pytest.mark.parametrize(
    "own, others, verdict",
    [
        (2.0, {"mean": 2.1}, "this model is no better than the mean on held-out rows"),
        (1.0, {"mean": 2.0}, "this model errs less than the mean: root mean squared"),
        (1.0, {"mean": 2.0, TREES: 0.8}, "boosted trees err less than this model: "),
        (1.0, {"mean": 2.0, TREES: 0.95}, "this model and boosted trees err about "),
        (1.0, {"mean": 2.0, TREES: 1.2}, "this model errs less than boosted trees: "),
    ],
)
def test_a_sentence_compares_the_model_with_the_best_of_others(own, others, verdict):
    evaluated = verdict_of(own, **others)
    assert evaluated.verdict.startswith(verdict)
    assert f"{own:.2f} ± 0.10" in evaluated.verdict
    assert evaluated.is_useless == ("no better" in verdict)


def test_a_useless_model_and_a_fit_that_was_cut_have_banners(regression):
    X, y = regression.train
    scores = {**regression.evaluation.scores, "rmse": 99.0}
    useless = replace(
        regression, evaluation=replace(regression.evaluation, scores=scores)
    )
    model = copy(regression.model)
    model.fit_report_ = {**model.fit_report_, "cut": ["the search"]}
    for evaluated, text in (
        (useless, "no better than the mean"),
        (replace(regression, model=model), "The time limit ended the search early"),
    ):
        page = page_of(evaluated)[1]
        banner = re.search(r'<p class="warning">([^<]*)', page)[1]
        assert text in banner
        assert page.index(banner) < page.index("How good is it?")


def test_prices_have_thousands_and_the_digits_of_their_error(regression):
    evaluation = regression.evaluation
    prices = replace(
        evaluation,
        predictions=1e5 * evaluation.predictions,
        intervals=1e5 * evaluation.intervals,
        scores={**evaluation.scores, "rmse": 9748.2, "mae": 7001.9},
        standard_error=771.3,
    )
    others = {"mean": Evaluation(np.empty(0), {"rmse": 102_921.0, "mae": 9784.0}, 0.0)}
    shown = dict(score_rows(replace(regression, evaluation=prices, others=others)))
    assert shown["root mean squared error"] == ["9,750 ± 770", "102,920"]
    assert shown["mean absolute error"] == ["7,000", "9,780"]
    figures = {panel.heading: panel.svg for panel in panels(regression, "y")}
    assert re.search(r">a</t(ext|span)>", figures["Which columns matter"])
    X, y = regression.test
    large = replace(regression, evaluation=prices, test=(X, 1e5 * y))
    for panel in panels(large, "y")[:2]:
        labels = re.findall(r"<text[^>]*>(−?[\d,]+)</text>", panel.svg)
        assert 4 <= len(labels) <= 12 and any("0,000" in label for label in labels)
        assert "e+0" not in panel.svg and "e+0" not in panel.caption


@pytest.mark.parametrize("metric", ["log_loss", "auc"])
def test_the_metric_that_was_asked_for_is_first_in_a_report(classes, metric):
    asked = replace(classes, metric=metric)
    title = {"log_loss": "log loss", "auc": "AUC"}[metric]
    assert score_rows(asked)[0][0] == title
    caption, page = page_of(asked)
    header = re.search(r"<tr><th scope=\"col\"></th>(.*?)</tr>", page)[1]
    assert re.findall(r">([^<]+)</th>", header) == [
        title,
        *(name for name in ("misclassified", "log loss", "AUC") if name != title),
    ]
    rows = re.findall(r'<tr><th scope="row">([^<]+)</th><td class="number', page)
    assert rows[:2] == ["this model", "most frequent class"]
    curve = scores_by_rows(asked.model, asked.train, asked.test)
    last = list(curve.values())[-1]
    if metric in last:
        assert f"The {title} of held-out rows" in caption["What more rows would bring"]
        assert f"{last[metric]:.4g} with" in caption["What more rows would bring"]


def test_a_column_that_numbers_the_rows_is_named():
    n = 50
    X = pd.DataFrame({"id": np.arange(1, n + 1), "x": np.arange(n) % 7, "no": np.nan})
    found = summarise(X, np.arange(n) % 5.0, "regression").warnings
    assert found == [
        "'id' numbers the rows: leave it out (--drop id), unless the order of the rows "
        "matters.",
        "'no' holds no value and is ignored.",
    ]


def test_columns_do_not_determine_the_target_of_copies():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    four = np.repeat(np.arange(100), 4)
    summary = summarise(X.iloc[four], rng.normal(size=100)[four], "regression")
    assert not summary.leaks
    assert [text.partition(":")[0] for text in summary.warnings] == [
        "300 rows repeat others"
    ]
