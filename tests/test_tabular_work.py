"""Fits of tables: counted work, deadlines, and targets without noise."""

import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest

import randkern as rk
from randkern.exceptions import DeadlineWarning
from randkern.tabular.presets import Deadline, plan_of

pytestmark = pytest.mark.usefixtures("no_deadline")

RNG = np.random.default_rng(7)
# What a fixture replaces.
DEADLINE_OF = Deadline.of


# -- plans and deadlines ---------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [0, 2, 5])
@pytest.mark.parametrize("limit", [1e-3, 1.0, 15.0])
@pytest.mark.parametrize("d", [2, 100, 5000])
def test_a_search_has_a_floor(n_classes, limit, d):
    """A few hundred rows, whatever the limit and however wide the table."""
    for n in (40, 300, 5000, 100_000):
        plan = plan_of(n, d, n_classes, limit)
        assert plan.first_rows >= min(n, 200)
        assert plan.first_steps >= 4


@pytest.mark.parametrize("n_classes", [0, 2, 5])
@pytest.mark.parametrize("limit", [10, 30, 60, 120])
def test_plans_take_most_of_the_limit_but_not_more(n_classes, limit):
    for n in (500, 900, 2000, 6000, 15_000, 50_000, 10**6):
        for d in (5, 20, 100):
            plan = plan_of(n, d, n_classes, limit)
            assert plan.search_seconds < plan.seconds < limit
            if n > 6000:  # there is always more to do
                assert plan.seconds > 0.5 * limit


def table_of(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["e"] = rng.choice(["x", "y", "z"], n)
    value = np.sin(2 * X["a"]) + X["b"] * (X["e"] == "x") + 0.2 * rng.normal(size=n)
    return X, value.to_numpy()


def late(monkeypatch):
    """Fit by a clock of which every step is late at once."""
    monkeypatch.setattr(Deadline, "of", DEADLINE_OF)

    def ends(deadline, step):
        is_late = deadline.limit < np.inf
        if is_late and step not in deadline.cut:
            deadline.cut.append(step)
        return is_late

    monkeypatch.setattr(Deadline, "ends", ends)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("n", [1100, 2600])
def test_a_deadline_that_cuts_warns_and_leaves_a_good_model(kind, n, monkeypatch):
    """The floor of the search and one fit are done, however late it is."""
    X, y = table_of(n + 500)
    make = rk.TabularRegressor
    if kind == "classification":
        make, y = rk.TabularClassifier, y > 0
    late(monkeypatch)
    model = make(4, random_state=0)
    with pytest.warns(DeadlineWarning, match="stopped the search.* early") as caught:
        model.fit(X[:n], y[:n])
    assert caught[0].filename == __file__
    report = model.fit_report_
    assert report["rows"] == n and 0 < report["rows_used"] <= n
    assert "the search" in report["cut"]
    board = model.leaderboard_
    assert len(board) >= 3 and board["rows"].min() >= 200
    assert board.groupby(["kernel", "numbers"]).ngroups >= 3
    assert model.score(X[n:], y[n:]) > 0.8
    assert model.feature_importances_.sum() == pytest.approx(1)
    if kind == "regression":
        assert model.predict_interval(X[:5]).shape == (5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_small_tables_are_never_cut(kind, monkeypatch):
    """By any clock, the same seed gives the same model."""
    X, y = table_of(40)
    make, method = rk.TabularRegressor, "predict"
    if kind == "classification":
        make, method, y = rk.TabularClassifier, "predict_proba", y > 0
    expected = make(1, random_state=0).fit(X, y)
    late(monkeypatch)
    model = make(1, random_state=0).fit(X, y)
    assert model.fit_report_ == expected.fit_report_
    assert model.fit_report_["cut"] == []
    np.testing.assert_array_equal(*(getattr(m, method)(X) for m in (model, expected)))


@pytest.mark.slow
def test_rows_beyond_the_budget_are_not_used(planned):
    planned(cell_rows=500, fitted_rows=3000)
    X, y = table_of(6000)
    model = rk.TabularRegressor(3, random_state=0).fit(X, y)
    report = model.fit_report_
    assert report["rows"] == 6000 and report["rows_used"] == 3000
    assert report["cut"] == []
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("make", [rk.TabularRegressor, rk.TabularClassifier])
@pytest.mark.parametrize("limit", [None, "60", 0, np.inf])
def test_limits_that_are_no_numbers_are_refused(make, limit):
    X, y = table_of(40)
    with pytest.raises(ValueError, match="time_limit.*must be a float"):
        make(limit).fit(X, y > 0)


@pytest.mark.parametrize("make", [rk.TabularRegressor, rk.TabularClassifier])
@pytest.mark.parametrize("kind", ["table", "array"])
def test_tables_without_rows_are_refused(make, kind):
    X, y = table_of(40)
    none = X[:0] if kind == "table" else np.empty((0, 3))
    with pytest.raises(ValueError, match="0 (rows|sample)"):
        make(1).fit(none, y[:0] > 0)
    with pytest.raises(ValueError, match="0 rows"):
        make(0.1).fit(X, y > 0).predict(X[:0])


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {3}, np.ones(2)])
def test_columns_of_lists_are_refused(value):
    X, y = table_of(40)
    lists = pd.Series([value] * 40, index=X.index)
    message = "column 'e' holds .* values, which are neither numbers nor categories"
    with pytest.raises(ValueError, match=message):
        rk.TabularRegressor(0.1).fit(X.assign(e=lists), y)
    with pytest.raises(ValueError, match="column 'e'"):
        rk.TabularRegressor(0.1).fit(X, y).predict(X.assign(e=lists))


BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("n", [500, 2400, 10_000, 50_000])
def test_the_same_model_beside_busy_processes(kind, n):
    """Bit for bit: work decides, not the clock."""
    X, y = table_of(n)
    make = rk.TabularRegressor
    if kind == "classification":
        make, y = rk.TabularClassifier, y > 0
    # Budgets in which all kinds of plans occur; the deadline is out of reach.
    budget = {500: 3.0, 2400: 6.0, 10_000: 12.0, 50_000: 20.0}[n]

    def fitted():
        began = time.process_time()
        model = make(budget, random_state=0).fit(X, y)
        # On any machine, and whatever runs beside it.
        assert time.process_time() - began < 20 * budget
        return model

    models = [fitted()]
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        models.append(fitted())
    finally:
        for process in busy:
            process.kill()
            process.wait()
    kind = "predict" if make is rk.TabularRegressor else "predict_proba"
    quiet, loaded = (getattr(model, kind)(X[:500]) for model in models)
    assert all(model.fit_report_["cut"] == [] for model in models)
    assert np.array_equal(quiet, loaded)
    first, second = (model.fit_report_ for model in models)
    assert first == second


# -- threads ---------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_predict_and_fit_side_by_side():
    X, y = table_of(60)
    model = rk.TabularClassifier(1, random_state=0).fit(X, y > 0)
    unseen = X.assign(e="never")
    expected = model.predict_proba(unseen)
    found = []

    def predict():
        for _ in range(50):
            found.append(np.array_equal(model.predict_proba(unseen), expected))

    threads = [threading.Thread(target=predict) for _ in range(8)]
    fits = [
        threading.Thread(target=rk.TabularClassifier(0.2).fit, args=(X, y > 0))
        for _ in range(2)
    ]
    for thread in [*threads, *fits]:
        thread.start()
    for thread in [*threads, *fits]:
        thread.join()
    assert len(found) == 400 and all(found)


def test_filters_of_warnings_are_not_touched(monkeypatch):
    """They are those of the process: a thread would change them for all others.

    pandas and scikit-learn do, so filters after threads cannot be compared.
    """
    callers, enter = set(), warnings.catch_warnings.__enter__

    def recorded(self):
        callers.add(sys._getframe(1).f_globals["__name__"])
        return enter(self)

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", recorded)
    X, y = table_of(60)
    model = rk.TabularClassifier(1, random_state=0).fit(X, y > 0)
    model.predict_proba(X.assign(e="never"))
    assert callers  # those of the libraries
    assert not [name for name in callers if name.startswith("randkern")]


# -- targets without noise -------------------------------------------------------------


def checked(X, y, new, truth, limit=5):
    """Return the relative error of a fit, and check it against what the fit says."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rk.TabularRegressor(limit, random_state=0).fit(X, y)
    size = truth.std() or 1.0
    error = np.sqrt(np.mean((model.predict(new) - truth) ** 2)) / size
    low, high = model.predict_interval(new).T
    slack = 1e-10 * size  # rounding errors
    inside = (low - slack <= truth) & (truth <= high + slack)
    assert inside.mean() > 0.7
    return error


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-8])
@pytest.mark.parametrize(
    ("n", "d"), [(10, 1), (10, 2), (60, 1), (60, 5), (60, 20), (300, 3), (3000, 2)]
)
def test_linear_targets(n, d, noise):
    rng = np.random.default_rng(100 * n + d)
    X, new = rng.uniform(-30, 40, size=(n, d)), rng.uniform(-30, 40, size=(200, d))
    slope = rng.normal(size=d)
    y = X @ slope * 1.8 + 32
    y = y + noise * y.std() * rng.normal(size=n)
    limit = 5 if n < 1000 else 10
    error = checked(X, y, new, new @ slope * 1.8 + 32, limit)
    assert error < 1e-5 + 10 * noise


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "offset"), [(1e6, 1e7), (1e-6, 0.0), (1.0, 1e6)])
def test_units_of_linear_targets(scale, offset):
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(40, 3)), rng.normal(size=(100, 3))
    slope = np.array([1.0, -2.0, 0.3])
    error = checked(X, scale * X @ slope + offset, new, scale * new @ slope + offset)
    assert error < 1e-6


@pytest.mark.slow
def test_training_rows_of_a_line():
    X = np.linspace(0, 10, 10)[:, None]
    model = rk.TabularRegressor(10, random_state=0).fit(X, 2 * X[:, 0])
    np.testing.assert_allclose(model.predict(X), 2 * X[:, 0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_squares(d):
    rng = np.random.default_rng(d)
    X, new = rng.normal(size=(80, d)), rng.uniform(-1, 1, size=(100, d))
    error = checked(X, (X**2).sum(axis=1), new, (new**2).sum(axis=1))
    assert error < 1e-3


def test_constants():
    X, new = RNG.normal(size=(30, 3)), RNG.normal(size=(20, 3))
    assert checked(X, np.full(30, 7.0), new, np.full(20, 7.0)) < 1e-12


@pytest.mark.slow
def test_few_rows_of_many_columns_have_wide_intervals():
    """Twelve rows cannot tell the slopes of ten columns."""
    rng = np.random.default_rng(1210)
    X, new = rng.normal(size=(12, 10)), rng.normal(size=(200, 10))
    slope = rng.normal(size=10)
    checked(X, X @ slope, new, new @ slope)


@pytest.mark.nightly
def test_many_copies_of_a_row_among_many_rows():
    """Two fifths of the rows are one row, which no cell can divide."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(32_000, 4))
    X[:12_000] = X[0]
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=32_000)
    model = rk.TabularRegressor(10, random_state=0).fit(X[:30_000], y[:30_000])
    assert model.score(X[30_000:], y[30_000:]) > 0.95
    expected = np.sin(2 * X[0, 0]) + X[0, 1]
    assert model.predict(X[:1])[0] == pytest.approx(expected, abs=0.05)


# -- intervals, importances, code ------------------------------------------------------


@pytest.mark.slow
def test_only_ratios_of_weights_matter():
    X, y = table_of(60)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 60)
    fits = [
        rk.TabularRegressor(0.5, random_state=0).fit(X, y, sample_weight=scale * weight)
        for scale in (1.0, 2.0**-20)
    ]
    intervals = [fit.predict_interval(X[:9]) for fit in fits]
    np.testing.assert_allclose(*intervals, rtol=1e-6)


@pytest.mark.slow
def test_noisy_rows_of_no_weight_do_not_widen_intervals():
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, size=(120, 1))
    noisy = np.arange(120) % 4 == 0
    y = X[:, 0] + np.where(noisy, 20.0, 0.1) * rng.normal(size=120)
    weight = np.where(noisy, 1e-6, 1.0)
    fit = rk.TabularRegressor(1, random_state=0).fit(X, y, sample_weight=weight)
    assert np.median(np.diff(fit.predict_interval(X))) < 1.0


@pytest.mark.slow
def test_intervals_widen_far_from_all_rows():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, size=(150, 1))
    y = np.sin(3 * X[:, 0]) + 0.05 * rng.normal(size=150)
    fit = rk.TabularRegressor(2, random_state=0).fit(X, y)
    near, far = (float(np.diff(fit.predict_interval([[x]]))[0, 0]) for x in (0.3, 30.0))
    assert far > 5 * near
    # At 30 the fit predicts about the mean: the interval has to hold the sine.
    low, high = fit.predict_interval([[30.0]])[0]
    assert low < -0.5 and high > 0.5


@pytest.mark.slow
def test_importances_have_rows_of_rare_classes():
    labels = np.repeat([0, 1], [2950, 50])
    np.random.default_rng(0).shuffle(labels)
    X = RNG.normal(size=(3000, 3))
    X[:, 0] += 2 * labels
    fit = rk.TabularClassifier(1, random_state=0).fit(X, labels)
    codes = fit._effects.table.Y[:, 0]
    assert (codes == 1).sum() == 50 and len(codes) == 2000
    assert fit.feature_importances_[0] > 0.5


@pytest.mark.parametrize("make", [rk.TabularRegressor, rk.TabularClassifier])
def test_dask_collections_are_refused_with_advice(make):
    da = pytest.importorskip("dask.array")
    X, y = RNG.normal(size=(40, 2)), np.arange(40) % 2
    with pytest.raises(TypeError, match=r"got a Dask collection.*X\.compute"):
        make(0.2).fit(da.from_array(X), da.from_array(y))
    fit = make(0.2, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match=r"map_partitions\(model\.predict\)"):
        fit.predict(da.from_array(X))
