"""`TabularRegressor` and `TabularClassifier`: no argument, and what they choose."""

import datetime
import pickle
import time
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.optimize
import sklearn
from numba.core import event
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.utils.estimator_checks import parametrize_with_checks

import randkern as rk
from randkern._random import root_stream
from randkern.backend.compiled_loops import working_seconds
from randkern.tabular import (
    model,
    search,
)
from randkern.tabular.class_fits import blend_probabilities
from randkern.tabular.evidence import Evidence
from randkern.tabular.exact_ridge import fit_ridge
from randkern.tabular.folds import Folds
from randkern.tabular.leave_one_out import leave_one_out
from randkern.tabular.model import Member
from randkern.tabular.out_of_fold import blend
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch

pytestmark = pytest.mark.usefixtures("no_deadline")

RNG = np.random.default_rng(5)
N = 160
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=N) * 100,
        "colour": RNG.choice(["red", "green", "blue"], N),
        "day": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(RNG.integers(0, 90, N), "D"),
        "open": RNG.random(N) < 0.5,
        "noise": RNG.normal(size=N),
        "gap": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(size=N)),
    }
)
TARGET = (
    np.sin(TABLE["size"] / 60)
    + (TABLE["colour"] == "red")
    + TABLE["gap"].fillna(2.0)
    + 0.05 * RNG.normal(size=N)
).to_numpy()
LABELS = np.where(TARGET > np.median(TARGET), "high", "low")


def table_of(X, Y, weight):
    return Table(X, Y, weight, Folds.of_rows(len(Y)))


def regressor(**options):
    return rk.TabularRegressor(**({"time_limit": 1.5, "random_state": 0} | options))


def classifier(**options):
    return rk.TabularClassifier(**({"time_limit": 1.5, "random_state": 0} | options))


@pytest.fixture(scope="module")
def fitted(no_deadline):
    return regressor(time_limit=4).fit(TABLE, TARGET)


@pytest.fixture(scope="module")
def fitted_classifier(no_deadline):
    return classifier(time_limit=4).fit(TABLE, LABELS)


@pytest.mark.nightly
@parametrize_with_checks(
    [rk.TabularRegressor(), rk.TabularClassifier(), rk.TabularEncoder()]
)
def test_scikit_learn_conventions(estimator, check, monkeypatch, planned):
    # Less to try, so that the checks are quick.
    monkeypatch.setattr(search, "FORMS", {"Matern 3/2": search.FORMS["Matern 3/2"]})
    planned(first_steps=4, n_refits=0)
    check(estimator)


# -- leave-one-out -------------------------------------------------------------------


def rows_and_targets(n=40, k=1):
    X = RNG.normal(size=(n, 3))
    X[:, 2] = X[:, 2] > 0.3
    Y = np.stack([np.sin(X[:, 0] + j) + 0.1 * RNG.normal(size=n) for j in range(k)], 1)
    return X, Y


def krr(kernel, alpha):
    return rk.KernelRidgeRegressor(kernel, alpha, n_components=None, fit_intercept=True)


def with_linear(lengthscale):
    return rk.Laplacian(lengthscale) + rk.Linear()


@pytest.mark.parametrize("form", [*search.FORMS.values(), with_linear])
@pytest.mark.parametrize("n_tables", [1, 2])
def test_gradient_is_that_of_finite_differences(form, n_tables):
    X, Y = rows_and_targets(k=2)
    kernel, blocks = form(np.full(3, 1.5)), np.array([0, 1, 1])
    weight = RNG.uniform(0.5, 2, len(X))
    parts = np.split(np.arange(len(X)), [25][: n_tables - 1])
    tables = [table_of(X[part], Y[part], weight[part]) for part in parts]
    goal = Evidence(kernel, tables, blocks)
    theta = goal.start(0.05)
    goal.origin = theta[:-1] - 0.3
    theta = theta + 0.1 * np.arange(len(theta))
    slope = goal(theta)[1]
    expected = scipy.optimize.approx_fprime(theta, lambda z: goal(z)[0], 1e-6)
    # Of the product of two matrices, single precision.
    np.testing.assert_allclose(slope, expected, rtol=2e-4, atol=2e-5)


def test_residuals_are_those_of_fits_without_a_row():
    X, Y = rows_and_targets(25, 2)
    weight = RNG.uniform(0.5, 2, len(X))
    kernel = rk.Matern(1.5, 1.3) + 0.2 * rk.Linear()
    residuals = leave_one_out(kernel, 0.1, table_of(X, Y, weight))
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        fit = krr(kernel, 0.1).fit(X[others], Y[others], weight[others])
        np.testing.assert_allclose(
            residuals[i], Y[i] - fit.predict(X[[i]])[0], rtol=1e-6
        )


def test_blend_is_the_best_mean_where_one_helps():
    E = RNG.normal(size=(3, 400, 1))
    E[1] += 0.1
    E[2] = 8 * E[2] - E[0]  # of little use
    weights = blend([E[0], E[1], E[2]])
    assert np.isclose(weights.sum(), 1.0)
    assert weights[2] == 0.0
    assert 0.3 < weights[0] < 0.7
    # Of two fits, by the formula.
    step = E[1] - E[0]
    share = 1 - np.vdot(E[1], step) / np.vdot(step, step)
    first, second = blend([E[0], E[1]])
    assert first == pytest.approx(1 - share, abs=1e-6)
    assert second == pytest.approx(share, abs=1e-6)
    assert np.array_equal(blend([E[0], 1.002 * E[0]]), [1.0, 0.0])


# -- columns -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "n", "phases"),
    [
        ("h", 24 * 20, ["day", "week"]),  # twenty days
        ("D", 1000, ["week", "year"]),
        ("7D", 200, ["year"]),
        ("D", 10, []),
    ],
)
def test_dates_have_the_phases_that_rows_span_and_vary_in(step, n, phases):
    """Of time of day, day of the week and season; and none of a duration."""
    when = pd.Series(pd.date_range("2024-01-01", periods=n, freq=step))
    table = pd.DataFrame({"when": when, "since": when - when.iloc[0]})
    encoder = rk.TabularEncoder().fit(table)
    pairs = [f"when_{of}_{part}" for of in phases for part in ("sin", "cos")]
    assert list(encoder.get_feature_names_out()) == ["when", "since", *pairs]
    assert encoder.columns_.tolist() == [0, 1, *2 * len(phases) * [0]]
    assert np.bincount(encoder.blocks_).tolist() == [1, 1, *len(phases) * [2]]
    later = table.assign(when=when + pd.Timedelta(days=7 * 100))
    same = [name for name in pairs if "year" not in name]
    encode = encoder.set_output(transform="pandas").transform
    np.testing.assert_allclose(encode(later)[same], encode(table)[same], atol=1e-9)


@pytest.mark.slow
def test_a_model_sees_hours_and_weekdays(rng):
    hours = rng.choice(24 * 100, 900, replace=False)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
    y = np.sin(2 * np.pi * when.hour / 24) + (when.day_of_week >= 5)
    y = np.asarray(y + rng.normal(0, 0.2, len(y)))
    table = pd.DataFrame({"when": when})
    model = rk.TabularRegressor(time_limit=4, random_state=0)
    model.fit(table[:600], y[:600])
    # The noise alone leaves .95 of the variance explained.
    assert model.score(table[600:], y[600:]) > 0.85


@pytest.mark.nightly
def test_seasons_that_targets_do_not_have_cost_nothing():
    """Dates predict as well as the same days as numbers, which have no seasons."""
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(500 + seed)
        days, x = rng.integers(0, 1500, 800), rng.normal(size=(800, 3))
        y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] / 2 + 0.3 * rng.normal(size=800)
        numbers = pd.DataFrame(x, columns=list("abc")).assign(when=days)
        dates = numbers.assign(
            when=pd.Timestamp("2021-03-01") + pd.to_timedelta(days, "D")
        )
        errors = []
        for table in (dates, numbers):
            model = rk.TabularRegressor(time_limit=3, random_state=0)
            model.fit(table[:200], y[:200])
            errors.append(np.mean((model.predict(table[200:]) - y[200:]) ** 2))
        ratios.append(errors[0] / errors[1])
    assert np.exp(np.mean(np.log(ratios))) < 1.02


def test_columns_of_every_kind():
    encoder = rk.TabularEncoder().fit(TABLE)
    names = list(encoder.get_feature_names_out())
    assert names == [
        *("size", "day", "open", "noise", "gap"),
        *("day_week_sin", "day_week_cos", "gap_missing"),
        *("colour_blue", "colour_green", "colour_red"),
    ]
    assert encoder.columns_.tolist() == [0, 2, 3, 4, 5, 2, 2, 5, 1, 1, 1]
    assert encoder.blocks_.tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 7, 7]
    encoded = pd.DataFrame(encoder.transform(TABLE), columns=names)
    numbers = encoded[["size", "day", "open", "noise", "gap"]]
    np.testing.assert_allclose(numbers.std(ddof=0), 1.0)
    assert np.array_equal(encoded["gap_missing"] == 1, TABLE["gap"].isna())
    days = TABLE["day"].diff().dt.days[1:]
    np.testing.assert_allclose(
        encoded["day"].diff()[1:]
        * (TABLE["day"] - TABLE["day"].min()).dt.days.std(ddof=0),
        days,
    )
    # Rows that differ in a category only are at distance 1.
    colours = encoded[names[-3:]].drop_duplicates().to_numpy()
    assert np.isclose(np.linalg.norm(colours[0] - colours[1]), 1.0)


def test_polars_and_pandas_are_encoded_alike():
    other = pl.DataFrame(
        {
            name: pl.Series(column.to_list(), nan_to_null=True)
            for name, column in TABLE.items()
        }
    )
    expected = rk.TabularEncoder().fit(TABLE).transform(TABLE)
    encoder = rk.TabularEncoder().fit(other)
    np.testing.assert_allclose(encoder.transform(other), expected, atol=1e-12)


def test_quantiles_do_not_see_the_scale_of_a_column():
    heavy = TABLE.assign(size=np.exp(TABLE["size"] / 100))
    encoded = [
        rk.TabularEncoder("quantile").fit_transform(table) for table in (TABLE, heavy)
    ]
    np.testing.assert_allclose(encoded[0], encoded[1], atol=0.05)
    assert abs(encoded[0]).max() < 4


def test_unknown_and_missing_values():
    train = pd.DataFrame({"a": ["x", "y", None, "x", "y", None, "z", "z"], "b": 1.0})
    encoder = rk.TabularEncoder().fit(train)
    new = pd.DataFrame({"a": ["never", None, "x"], "b": [np.nan, 1.0, 7.0]})
    encoded = encoder.transform(new)
    assert not encoded[0].any()
    assert (encoded[1:] != 0).sum(axis=1).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"column 'b' was numeric .* row 0 holds"):
        encoder.transform(pd.DataFrame({"a": ["x"], "b": ["text"]}))


def test_unknown_values_of_two_known_ones_lie_halfway():
    train = pd.DataFrame({"a": ["yes", "no"] * 5, "b": np.arange(10.0)})
    encoder = rk.TabularEncoder().fit(train)
    new = pd.DataFrame({"a": ["no", "yes", None, "maybe"], "b": 0.0})
    assert encoder.transform(new)[:, 1].tolist() == [0.0, 1.0, 0.5, 0.5]


def test_columns_that_have_become_of_another_kind():
    days = pd.DataFrame({"day": pd.date_range("2020", periods=9)})
    numbers = pd.DataFrame({"day": np.arange(9)})
    with pytest.raises(ValueError, match="'day' held dates .* but holds numbers now"):
        rk.TabularEncoder().fit(days).transform(numbers)
    empty = pd.DataFrame({"day": [None, None]})
    assert rk.TabularEncoder().fit(days).transform(empty).tolist() == [[0.0], [0.0]]
    letters = pd.DataFrame({"a": ["x", "y"] * 3, "b": np.arange(6)})
    with pytest.raises(ValueError, match="must be a dataframe"):
        rk.TabularEncoder().fit(letters).transform(np.ones((3, 2)))


def test_numbers_whose_squares_overflow_are_refused_by_name():
    table = pd.DataFrame({"a": np.arange(9.0), "b": np.geomspace(1, 1e200, 9)})
    with pytest.raises(ValueError, match="'b' holds numbers beyond 1e\\+150"):
        rk.TabularEncoder().fit(table)


@pytest.mark.parametrize("numbers", ["standard", "quantile"])
def test_tiny_numbers_are_encoded_like_usual_ones(numbers):
    x = np.random.default_rng(0).gamma(1.0, size=(50, 1))
    encoded = rk.TabularEncoder(numbers).fit_transform(x)
    tiny = rk.TabularEncoder(numbers).fit_transform(x * 2.0**-30)
    np.testing.assert_allclose(tiny, encoded, rtol=1e-12)


def test_numbers_among_codes_are_categories_and_those_beside_one_mark_are_not():
    codes = [str(100 + i % 40) for i in range(400)]
    codes[7], codes[90], codes[91] = "V57", "E909", "V57"
    encoder = rk.TabularEncoder().fit(pd.DataFrame({"diagnosis": codes}))
    assert encoder.transform(pd.DataFrame({"diagnosis": ["V57"]})).any()
    codes[90] = "V57"
    with pytest.raises(ValueError, match="row 7 holds 'V57'"):
        rk.TabularEncoder().fit(pd.DataFrame({"diagnosis": codes}))


@pytest.mark.parametrize("numbers", ["standard", "quantile"])
def test_weights_that_are_whole_numbers_repeat_rows_for_the_encoder(numbers):
    times = np.arange(N) % 4
    encoder = rk.TabularEncoder(numbers).fit(TABLE, sample_weight=times)
    repeated = rk.TabularEncoder(numbers).fit(TABLE.iloc[np.repeat(range(N), times)])
    expected = repeated.transform(TABLE)
    np.testing.assert_allclose(encoder.transform(TABLE), expected, atol=1e-12)
    assert not np.allclose(rk.TabularEncoder(numbers).fit_transform(TABLE), expected)
    # Others do not, and counts of people are no counts of rows.
    for weight in (times + 0.5, 10**6 * times + 10**5):
        weighted = rk.TabularEncoder(numbers).fit(TABLE, sample_weight=weight)
        plain = rk.TabularEncoder(numbers).fit_transform(TABLE)
        assert np.array_equal(weighted.transform(TABLE), plain)


def test_equal_weights_are_no_weights_for_the_encoder():
    """Nor do they make categories of a single row frequent."""
    table = TABLE.assign(kind=["a", "b", "c", *["d"] * (N - 3)])
    plain = rk.TabularEncoder().fit_transform(table)
    for weight in (2.0, 0.3):
        encoder = rk.TabularEncoder().fit(table, sample_weight=np.full(N, weight))
        np.testing.assert_array_equal(encoder.transform(table), plain)


def test_every_one_of_a_hundred_categories_has_a_column():
    levels = np.char.add("v", np.tile(np.arange(100), 8).astype(str))
    rows = rk.TabularEncoder().fit_transform(pd.DataFrame({"level": levels}))
    assert rows.shape == (800, 100)
    assert np.array_equal((rows != 0).sum(axis=1), np.ones(800))


def test_free_text_is_refused_by_name():
    table = TABLE.assign(remark=[f"remark {i}" for i in range(N)])
    table = pd.concat([table] * 2, ignore_index=True)
    table["remark"] = [f"remark {i}" for i in range(2 * N)]
    with pytest.raises(ValueError, match="'remark' has 320 different texts.*Drop it"):
        regressor().fit(table, np.tile(TARGET, 2))


def test_rows_without_any_varying_column():
    X = np.ones((30, 2))
    fit = regressor(time_limit=0.3).fit(X, np.arange(30.0))
    assert np.allclose(fit.predict(X), 14.5)
    assert np.isclose(fit.feature_importances_.sum(), 1.0)


# -- what is chosen ------------------------------------------------------------------


@pytest.mark.slow
def test_an_estimator_of_public_classes_fits_the_same_model(fitted):
    again = fitted.model_.to_estimator().fit(TABLE, TARGET)
    np.testing.assert_allclose(again.predict(TABLE), fitted.predict(TABLE), rtol=1e-6)


@pytest.mark.parametrize("targets", [[TARGET], [TARGET, TARGET**2]], ids=len)
def test_an_estimator_of_a_blend(targets):
    Y = np.stack(targets, axis=1)
    encoder = rk.TabularEncoder().fit(TABLE)
    table = table_of(encoder.transform(TABLE), Y, np.ones(N))
    members = []
    for share, kernel in (
        (0.75, rk.Gaussian(3.0)),
        (0.25, 0.5 * rk.Linear() + rk.Matern(2.5, np.linspace(1, 2, 11))),
    ):
        fit = fit_ridge(kernel, 0.1, table, np.arange(N))
        members.append(Member(share, encoder, fit))
    mixed = model.TabularModel(members)
    y = Y[:, 0] if len(targets) == 1 else Y
    assert "..." not in mixed.explain() and "KernelRidge" in mixed.explain()
    again = mixed.to_estimator().fit(TABLE, y).predict(TABLE)
    expected = mixed.predict(TABLE)
    found = again.reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_an_estimator_of_a_classifier(fitted_classifier):
    again = fitted_classifier.model_.to_estimator().fit(TABLE, LABELS)
    expected = fitted_classifier.predict(TABLE)
    assert np.array_equal(again.predict(TABLE), expected)


@pytest.mark.nightly
def test_many_rows(planned):
    planned(cell_rows=50)
    fit = regressor(time_limit=10).fit(TABLE, TARGET)
    report = fit.fit_report_
    assert report["rows"] == N and report["rows_used"] == N - report["rows_held_out"]
    assert report["rows_held_out"] == N // 16
    (member,) = fit.model_.members
    assert len(member.fit.estimators_) >= 3
    again = fit.model_.to_estimator().fit(TABLE, TARGET)
    assert again.score(TABLE, fit.predict(TABLE)) > 0.95  # also knows those rows
    low, high = fit.predict_interval(TABLE, 0.8).T
    assert (low < high).all()


def test_learns(fitted, fitted_classifier):
    rng = np.random.default_rng(1)
    new = TABLE.sample(frac=1.0, random_state=1, ignore_index=True)
    new["size"] = rng.normal(size=N) * 80
    truth = np.sin(new["size"] / 60) + (new["colour"] == "red") + new["gap"].fillna(2.0)
    error = np.mean((fitted.predict(new) - truth) ** 2)
    assert error < 0.15 * truth.var()
    labels = np.where(truth > np.median(TARGET), "high", "low")
    assert (fitted_classifier.predict(new) == labels).mean() > 0.85
    board = fitted.leaderboard_
    assert list(board) == ["kernel", "numbers", "rows", "error", "seconds"]
    assert board["rows"].is_monotonic_decreasing
    for _, errors in board.groupby("rows")["error"]:  # of as many rows
        assert errors.is_monotonic_increasing


@pytest.mark.nightly
def test_unused_columns_have_no_importance():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 6))
    y = np.sin(2 * X[:, 1]) + X[:, 3] ** 2 + 0.1 * rng.normal(size=400)
    importances = regressor(time_limit=60).fit(X, y).feature_importances_
    assert np.isclose(importances.sum(), 1.0)
    assert importances[[0, 2, 4, 5]].max() < 0.01
    # Var sin(2x) = (1 − e⁻⁸)/2, and Var x² = 2.
    assert importances[[1, 3]] == pytest.approx([0.2, 0.8], abs=0.1)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_shuffled_copies_of_columns_have_no_importance(load):
    rows, labels = load(return_X_y=True)
    rng = np.random.default_rng(0)
    copies = np.column_stack([rng.permutation(column) for column in rows.T])
    fit = classifier(time_limit=60).fit(np.hstack([rows, copies]), labels)
    # Of a column of noise the importance has a deviation of up to 0.01.
    assert fit.feature_importances_[rows.shape[1] :].max() < 0.02


@pytest.mark.slow
def test_targets_of_two_values_without_noise():
    """A kernel that represents them leaves a system singular to working precision."""
    rng = np.random.default_rng(2)
    for n in (12, 60, 200, 700):
        X = rng.normal(size=(n, 3))
    y = np.sign(X[:, 0])
    model = rk.TabularRegressor(time_limit=1, random_state=0).fit(X, y)
    assert np.mean(model.predict(X) * y > 0) > 0.99


def test_few_noisy_targets_hardly_overfit_shuffled_columns():
    """Without a choice of their prior, lengthscales give them 14 to 16 %."""
    rows, target = load_diabetes(return_X_y=True)
    shares = []
    for seed in (0, 1):
        copies = np.random.default_rng(seed).permuted(rows, axis=0)
        fit = rk.TabularRegressor(random_state=seed)
        fit.fit(np.hstack([rows, copies]), target)
        shares.append(fit.feature_importances_[rows.shape[1] :].sum())
    assert max(shares) < 0.1


@pytest.mark.nightly
def test_probabilities_are_calibrated():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 2))
    chance = 1 / (1 + np.exp(-2 * np.sin(2 * X[:, 0])))
    y = (rng.random(900) < chance).astype(int)
    fit = classifier(time_limit=60).fit(X[:300], y[:300])
    P = fit.predict_proba(X[300:])[:, 1]
    # The truth's mean log loss, and what an error of 0.15 in probabilities costs.
    truth = chance[300:]
    excess = truth * np.log(truth / P) + (1 - truth) * np.log((1 - truth) / (1 - P))
    assert excess.mean() < 0.05


@pytest.mark.slow
def test_intervals_are_infinite_where_no_residual_is_large_enough():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=200)
    fit = regressor().fit(X, y)
    ends = fit.predict_interval(X[:40], 0.9)
    np.testing.assert_allclose(ends.mean(axis=1), fit.predict(X[:40]), rtol=1e-6)
    assert (np.diff(fit.predict_interval(X[:40], 0.5)) < np.diff(ends)).all()
    assert not np.isfinite(fit.predict_interval(X[:40], 0.999)).any()
    with pytest.raises(ValueError, match=r"coverage must be .* got 90"):
        fit.predict_interval(X[:40], 90)


@pytest.mark.slow
def test_intervals_cover():
    """900 new rows: 5 standard errors around 90 %, and 3 points for the fit."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, size=(1300, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=1300)
    low, high = regressor().fit(X[:400], y[:400]).predict_interval(X[400:]).T
    covered = ((low <= y[400:]) & (y[400:] <= high)).mean()
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 900) + 0.03


# -- weights, several targets, seconds -----------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("make", [regressor, classifier])
def test_rows_of_weight_zero_are_ignored(make):
    y = TARGET if make is regressor else LABELS
    used = np.arange(N) % 4 > 0
    fits = [
        make(time_limit=200).fit(TABLE, y, sample_weight=3.0 * used),
        make(time_limit=200).fit(
            TABLE[used], y[used], sample_weight=np.ones(used.sum())
        ),
    ]
    assert np.array_equal(*(fit.predict(TABLE) for fit in fits))
    with pytest.raises(ValueError, match="zero for all|one non-zero"):
        make().fit(TABLE, y, sample_weight=np.zeros(N))
    with pytest.raises(ValueError, match="[Nn]egative"):
        make().fit(TABLE, y, sample_weight=-np.ones(N))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_equal_weights_are_no_weights(make):
    """And rows of weight zero are rows that are not there, for the search too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=90)
    predict = "predict"
    if make is classifier:
        y, predict = y > 0, "predict_proba"
    used = np.sort(rng.permutation(90)[:60])
    model = make(time_limit=60)
    alone = getattr(model.fit(X[used], y[used]), predict)(X)
    ones = getattr(model.fit(X[used], y[used], np.full(60, 2.0)), predict)(X)
    np.testing.assert_array_equal(ones, alone)
    weight = np.zeros(90)
    weight[used] = 1.0
    zeros = getattr(model.fit(X, y, weight), predict)(X)
    np.testing.assert_allclose(zeros, alone, atol=1e-9)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_weights_whose_inverse_overflows_are_zero(make):
    y = TARGET if make is regressor else LABELS
    weight = np.where(np.arange(N) < N // 2, 1.0, 1e-320)
    fit = make(time_limit=200).fit(TABLE, y, weight)
    again = make(time_limit=200).fit(TABLE, y, np.round(weight))
    assert np.array_equal(fit.predict(TABLE), again.predict(TABLE))


@pytest.mark.slow
@pytest.mark.parametrize("make", [regressor, classifier])
def test_copies_of_rows_add_no_evidence(make):
    """A row that is left out beside its copies is predicted however noisy it is."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(120, 3))
    y = X[:, 0] + rng.normal(size=120)
    y = y if make is regressor else y > 0
    copies = np.repeat(np.arange(120), rng.integers(2, 5, size=120))
    rng.shuffle(copies)
    fit = make(time_limit=30).fit(X[copies], y[copies])
    weighted = make(time_limit=30).fit(X, y, sample_weight=np.bincount(copies))
    kind = "predict" if make is regressor else "predict_proba"
    new = rng.normal(size=(1000, 3))
    predicted = getattr(fit, kind)(new)
    np.testing.assert_allclose(predicted, getattr(weighted, kind)(new), rtol=1e-9)
    if make is regressor:
        assert np.mean((predicted - new[:, 0]) ** 2) < 0.3
    else:
        assert np.mean((predicted[:, 1] > 0.5) == (new[:, 0] > 0)) > 0.8
    again = fit.model_.to_estimator().fit(X[copies], y[copies])
    if make is regressor:
        np.testing.assert_allclose(again.predict(new), predicted, rtol=1e-5, atol=1e-5)
    else:  # both end near the minimum of the same loss
        is_clear = abs(predicted[:, 1] - 0.5) > 1e-3
        assert (again.predict(new) == fit.predict(new))[is_clear].all()


@pytest.mark.parametrize("n", [40, 44])
def test_models_read_rows_as_often_as_their_weights_say(n):
    """Weights over their mean, times their mean, are here no whole numbers."""
    rng = np.random.default_rng(0)
    X, times = rng.exponential(size=(n, 1)), rng.integers(1, 5, size=n)
    fit = rk.TabularRegressor(0.2, random_state=0).fit(X, X[:, 0], times)
    encoder = fit.model_.members[0].encoder
    again = clone(encoder).fit(np.repeat(X, times, axis=0))
    expected = again.transform(X)
    np.testing.assert_allclose(encoder.transform(X), expected, rtol=0, atol=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("make", [regressor, classifier])
def test_weights_say_which_rows_count(make):
    """Two distributions in one table: the fit follows that of the heavy rows."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, size=(300, 2))
    sign = np.where(np.arange(300) % 2, 1.0, -1.0)
    y = sign * X[:, 0]
    y = y if make is regressor else y > 0
    weight = np.where(sign > 0, 1.0, 0.01)
    fit = make().fit(X, y, sample_weight=weight)
    if make is regressor:
        assert np.corrcoef(fit.predict(X), X[:, 0])[0, 1] > 0.95
    else:
        assert (fit.predict(X) == (X[:, 0] > 0)).mean() > 0.9
        P = fit.predict_proba(X)
        assert np.average(P.max(axis=1)) > 0.9


@pytest.mark.slow
def test_an_estimator_of_weighted_rows():
    weight = np.random.default_rng(1).uniform(0.2, 5, N)
    fit = regressor().fit(TABLE, TARGET, sample_weight=weight)
    member = replace(fit.model_.members[0], weight=1.0)
    alone = model.TabularModel([member], unit=fit.model_.unit)
    again = alone.to_estimator()
    again.fit(TABLE, TARGET, kernelridgeregressor__sample_weight=weight)
    expected = alone.predict(TABLE)[:, 0]
    np.testing.assert_allclose(again.predict(TABLE), expected, rtol=1e-6)


@pytest.mark.slow
def test_an_estimator_of_weighted_rows_in_time(planned):
    """Rows that are fitted in the end have another mean weight than those before."""
    planned(cell_rows=80)
    weight = np.where(np.arange(N) < 100, 1.0, 10.0)
    fit = regressor().fit(TABLE, TARGET, weight, time=np.arange(N))
    (member,) = fit.model_.members
    public = fit.model_.to_estimator()[-1].estimator
    assert public.alpha == pytest.approx(member.exact.alpha * weight.mean())


@pytest.mark.slow
def test_several_targets():
    Y = np.column_stack([TARGET, -100 * TARGET, np.cos(TABLE["size"] / 60)])
    fit = regressor(time_limit=3).fit(TABLE, Y)
    assert fit.predict(TABLE).shape == (N, 3)
    assert fit.score(TABLE, Y) > 0.8
    ends = fit.predict_interval(TABLE, 0.8)
    assert ends.shape == (N, 3, 2)
    widths = np.ptp(ends, axis=2)
    np.testing.assert_allclose(widths[:, 1], 100 * widths[:, 0], rtol=1e-6)
    again = fit.model_.to_estimator().fit(TABLE, Y)
    np.testing.assert_allclose(again.predict(TABLE), fit.predict(TABLE), rtol=1e-5)


def test_blended_probabilities_have_the_least_log_loss():
    rng = np.random.default_rng(16)
    chance = rng.uniform(0.02, 0.98, 400)
    labels, weight = (rng.random(400) < chance).astype(int), rng.uniform(0.5, 2, 400)
    logits = np.log(chance / (1 - chance)) + rng.normal(size=(2, 400))
    parts = [np.stack([1 - p, p], 1) for p in 1 / (1 + np.exp(-logits))]
    chances = [P[np.arange(400), labels] for P in parts]
    weights = blend_probabilities(chances, weight)

    def loss(share):
        return -weight @ np.log(share * chances[0] + (1 - share) * chances[1])

    best = scipy.optimize.minimize_scalar(loss, bounds=(0, 1)).x
    assert weights == pytest.approx([best, 1 - best], abs=1e-3)


# -- as scikit-learn's users use it --------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["fitted", "fitted_classifier"])
def test_round_trips(kind, request, tmp_path):
    fit = request.getfixturevalue(kind)
    rk.save(fit, tmp_path / "model.skops")
    for again in (pickle.loads(pickle.dumps(fit)), rk.load(tmp_path / "model.skops")):
        assert np.array_equal(again.predict(TABLE), fit.predict(TABLE))
        assert again.leaderboard_.equals(fit.leaderboard_)
        assert repr(again.model_.to_estimator()) == repr(fit.model_.to_estimator())
    fresh = clone(fit)
    assert fresh.get_params() == fit.get_params()
    assert not hasattr(fresh, "model_")


@pytest.mark.slow
def test_same_seeds_give_the_same_model(fitted):
    """With time enough that the clock decides nothing."""
    fits = [regressor(time_limit=200).fit(TABLE[:60], TARGET[:60]) for _ in range(2)]
    assert np.array_equal(*(fit.predict(TABLE) for fit in fits))


def test_targets_that_do_not_vary():
    fit = regressor().fit(TABLE, np.full(N, 3.0))
    np.testing.assert_allclose(fit.predict(TABLE), 3.0)
    assert np.array_equal(fit.feature_importances_, np.full(6, 1 / 6))


def test_rare_labels_that_the_first_rows_lack(planned):
    planned(first_rows=20)
    labels = np.arange(N) >= N - 2
    fit = classifier().fit(TABLE, labels)
    assert fit.predict_proba(TABLE)[:, 1].mean() < 0.2


@pytest.mark.parametrize("n", [2, 3])
def test_halves_of_a_row_choose_no_prior(n):
    """A row that is alone is never left out: there is no loss of it."""
    fit = classifier().fit(np.arange(n)[:, None], np.arange(n) > 0)
    assert np.isfinite(fit.predict_proba([[n], [-n]])).all()


def test_labels_of_one_class():
    with pytest.raises(ValueError, match="at least 2 classes, got one class, 'a'"):
        classifier().fit(TABLE, ["a"] * N)


@pytest.mark.slow
def test_a_fit_that_fails_changes_nothing():
    fit = regressor(time_limit=0.5).fit(TABLE, TARGET)
    before = fit.predict(TABLE)
    odd = TABLE.assign(noise=np.where(np.arange(N) == 7, np.inf, 0.0))
    with pytest.raises(ValueError, match="'noise' contains infinity: row 7 holds inf"):
        fit.fit(odd, TARGET)
    assert np.array_equal(fit.predict(TABLE), before)


def test_the_clock_stands_still_while_code_is_compiled():
    then, began = time.perf_counter(), working_seconds()
    with event.trigger_event("numba:compiler_lock"):
        time.sleep(0.2)
    assert working_seconds() - began < time.perf_counter() - then - 0.15


class Stopper:
    """Ends the search after some trials."""

    max_propagation_depth = None

    def __init__(self, most):
        self.most, self.n, self.torn_down = most, 0, False

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.n += 1
        return self.n >= self.most


def test_callbacks_receive_trials_and_stop_the_search(monkeypatch):
    def again(*_):
        raise AssertionError("kernels are learned again")

    stopper = Stopper(2)
    monkeypatch.setattr(KernelSearch, "again", again)
    fit = regressor(time_limit=60).set_callbacks(stopper).fit(TABLE, TARGET)
    assert stopper.n >= 2
    assert len(fit.leaderboard_) <= 3


# -- what the tables of people hold ----------------------------------------------------


DAYS = pd.Series(pd.date_range("2020", periods=240))


@pytest.mark.parametrize(
    "days",
    [
        DAYS,
        DAYS.astype("timestamp[ns][pyarrow]"),
        DAYS.astype("date32[pyarrow]"),
        DAYS.dt.tz_localize("Europe/Berlin").astype(object),
        pd.Series(DAYS.dt.date, dtype=object),
        DAYS.dt.to_period("D"),
        pd.Series(np.arange(240.0), dtype=object),
        pd.Series([Decimal(day) for day in range(240)], dtype=object),
    ],
    ids=lambda days: f"{days.dtype} {type(days.iloc[0]).__name__}",
)
def test_dates_and_numbers_of_any_dtype_are_not_categories(days):
    with_gap = days.copy()
    with_gap[7] = None
    table = pd.DataFrame({"other": 1.0 * (np.arange(240) % 2), "day": with_gap})
    rows = rk.TabularEncoder().fit(table[::2]).transform(table[1::2])
    expected = np.arange(240.0)[1::2] - np.arange(240.0)[::2].mean()
    place = np.flatnonzero(rk.TabularEncoder().fit(table[::2]).columns_ == 1)[0]
    shown = np.arange(120) != 3
    assert abs(np.corrcoef(rows[shown, place], expected[shown])[0, 1]) > 1 - 1e-4
    assert np.isclose(np.ptp(rows[shown, place]), 238 / (2 * np.sqrt(1200)), rtol=0.01)


def test_columns_of_any_name_are_read():
    table = pd.DataFrame({0: pd.Series([1.0, 2.0, 4.0], dtype=object), 1: list("aba")})
    rows = rk.TabularEncoder().fit_transform(table)
    np.testing.assert_allclose(np.diff(rows[:, 0])[1] / np.diff(rows[:, 0])[0], 2.0)


def test_times_of_the_day_are_numbers():
    times = [datetime.time(hour, 30) for hour in range(20)]
    table = pd.DataFrame({"at": pd.Series([*times, None], dtype=object)})
    rows = [
        rk.TabularEncoder().fit_transform(X) for X in (table, pl.from_pandas(table))
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-12)
    assert (np.diff(rows[0][:20, 0]) > 0).all()


@pytest.mark.parametrize(("known", "given"), [("True", True), ("3", 3), (True, "True")])
def test_values_of_another_type_are_refused_if_none_is_known(known, given):
    fitted = rk.TabularEncoder().fit(
        pd.DataFrame({"g": pd.Series([known, known, "b"] * 5).astype("category")})
        if known is not True
        else pd.DataFrame({"g": pd.Series([True, False] * 5).astype("category")})
    )
    table = pd.DataFrame({"g": pd.Series([given] * 4).astype("category")})
    with pytest.raises(
        ValueError, match=r"column 'g' holds no value that is known .* convert it"
    ):
        fitted.transform(table)


def test_texts_that_never_repeat_are_ignored_with_a_warning():
    table = TABLE.assign(remark=[f"remark {i}" for i in range(N)])
    told = "'remark' is ignored: each of its 160 texts"
    with pytest.warns(UserWarning, match=told):
        rk.TabularEncoder().fit(table)
    with pytest.warns(UserWarning) as warned:
        regressor(time_limit=1).fit(table, TARGET)
    assert sum(told in str(each.message) for each in warned) == 1


@pytest.mark.parametrize("make", [regressor, classifier, rk.TabularEncoder])
def test_arrays_of_texts_are_refused_with_advice(make):
    rows = TABLE[["noise", "colour"]].to_numpy()
    with pytest.raises(ValueError, match=r"row 0 of column 1 .* Pass a dataframe"):
        make().fit(rows, TARGET if make is regressor else LABELS)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_one_row_is_too_few(make):
    y = TARGET if make is regressor else LABELS
    with pytest.raises(ValueError, match="at least 2 rows with positive weight"):
        make().fit(TABLE[:1], y[:1])
    with pytest.raises(ValueError, match="at least 2 rows with positive weight"):
        make().fit(TABLE, y, sample_weight=np.eye(N)[0])


def test_a_large_offset_of_targets_costs_no_accuracy(fitted):
    given = TARGET + 1e11
    offset = regressor(time_limit=4).fit(TABLE, given)
    error = offset.predict(TABLE) - given
    assert np.sqrt(np.mean(error**2)) < 0.2 * TARGET.std()
    low, high = offset.predict_interval(TABLE).T
    assert ((low <= given) & (given <= high)).mean() > 0.85


def test_logarithms_of_probabilities(fitted_classifier):
    P = fitted_classifier.predict_proba(TABLE)
    found = fitted_classifier.predict_log_proba(TABLE)
    np.testing.assert_allclose(found, np.log(P), rtol=1e-9, atol=1e-15)


def test_other_objects_are_refused_as_tables():
    lazy = pl.from_pandas(TABLE).lazy()
    for X, advice in ((lazy, r"X\.collect"), (pa.table(TABLE), r"X\.to_pandas")):
        with pytest.raises(TypeError, match=advice):
            regressor().fit(X, TARGET)
    with pytest.raises(ValueError, match="TabularClassifier, take labels"):
        regressor().fit(TABLE, LABELS)


def test_outputs_of_transformers_as_dataframes():
    with sklearn.config_context(transform_output="pandas"):
        fit = regressor(time_limit=0.5).fit(TABLE, TARGET)
        assert fit.predict(TABLE).shape == (N,)
        encoded = rk.TabularEncoder("quantile").fit_transform(TABLE)
        assert encoded.columns[0] == TABLE.columns[0]


def test_predictions_in_blocks_of_rows(fitted, fitted_classifier, monkeypatch):
    def results():
        made = fitted.predict(TABLE), fitted.predict_interval(TABLE)
        return (*made, fitted_classifier.predict_proba(TABLE))

    whole = results()
    for predict in (fitted.predict, fitted.predict_interval, fitted_classifier.predict):
        with pytest.raises(ValueError, match="0 rows"):
            predict(TABLE[:0])
    monkeypatch.setattr(model, "_BLOCK_BYTES", 2000)
    for now, before in zip(results(), whole, strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-8)


def test_a_class_of_one_row_hardly_changes_probabilities():
    """Rows that choose penalties lack that class, or hold its only row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = (X[:, 0] > 0).astype(int)
    y[rng.random(4000) < 0.05] ^= 1
    order = root_stream(0).child("searched").generator().permutation(4000)
    found = []
    for at in (order[0], order[-1]):
        labels = y.copy()
        labels[at] = 2
        fit = rk.TabularClassifier(3, random_state=0).fit(X, labels)
        found.append(fit.predict_proba(X[:500])[:, 1])
    assert np.abs(found[0] - found[1]).mean() < 0.02


def test_labels_with_missing_values_and_extension_types():
    X = pd.DataFrame({"a": np.arange(40.0)})
    with pytest.raises(ValueError, match="missing"):
        rk.TabularClassifier(0.3).fit(X, ["a", None] * 20)
    for dtype, expected in (("Int64", [0, 1]), ("boolean", [False, True])):
        y = pd.Series([0, 1] * 20, dtype=dtype)
        classes = rk.TabularClassifier(0.3).fit(X, y).classes_
        assert classes.tolist() == expected and classes.dtype.kind in "ib"


def test_an_array_is_not_taken_for_a_table_with_dates():
    table = pd.DataFrame({"day": pd.date_range("2024", periods=9), "x": range(9)})
    encoder = rk.TabularEncoder().fit(table)
    with pytest.raises(ValueError, match="columns of the kinds date"):
        encoder.transform(np.ones((3, 2)))
