"""Fits of tables: counted work, deadlines, and targets without noise."""

import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

import randkern as rk
from randkern.exceptions import DeadlineWarning
from randkern.tabular import classifier as classification
from randkern.tabular import estimators
from randkern.tabular.code import code_of
from randkern.tabular.intervals import novelty
from randkern.tabular.rows import Rows
from randkern.tabular.work import Stage, Work, evaluation_seconds, largest

pytestmark = pytest.mark.usefixtures("no_deadline")

RNG = np.random.default_rng(7)


class Clock:
    """A clock that a test sets; by `step`, it advances whenever it is read."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


# -- work and deadlines ----------------------------------------------------------------


def test_a_stage_ends_with_its_work_or_with_its_deadline():
    clock = Clock()
    work = Work(10.0, clock)
    stage = work.stage("the search", 4.0, deadline=6.0)
    assert not stage.over and stage.left == 4.0
    assert stage.fits(4.0) and not stage.fits(4.1)
    work.charge(4.1)
    assert stage.over and not work.cut  # it has done its work
    later = work.stage("the last fit", 100.0)
    assert later.until == 10.0
    clock.now = 8.2  # twice as slow as planned
    assert later.fits(0.5) and not later.fits(2.0)
    assert work.cut == ["the last fit"]
    assert later.affordable(0.5) == 0.5
    assert later.affordable(2.0) == pytest.approx(0.9)
    clock.now = 10.1
    assert later.over


def test_parts_end_before_their_stage():
    work = Work(10.0, Clock())
    stage = work.stage("the search", 4.0)
    part = stage.part(1.0)
    assert (part.until, stage.part(9.0).until) == (1.0, 4.0)
    work.charge(1.5)
    assert part.over and not stage.over


def test_the_largest_size_within_the_time():
    for seconds in (0.0, 3.0, 25.0, 26.0, 1e9):
        squares = [n for n in range(2, 9) if n**2 <= seconds]
        expected = max(squares, default=2)
        assert largest(lambda n: n**2, seconds, 2, 8) == expected
    assert largest(lambda n: n, 3.0, 5, 4) == 5


def test_work_grows_with_every_size():
    least = evaluation_seconds(100, 10, 2)
    for sizes in ((110, 10, 2), (100, 11, 2), (100, 10, 3)):
        assert evaluation_seconds(*sizes) > least


def table_of(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["e"] = rng.choice(["x", "y", "z"], n)
    value = np.sin(2 * X["a"]) + X["b"] * (X["e"] == "x") + 0.2 * rng.normal(size=n)
    return X, value.to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("n", [60, 2600])
def test_a_deadline_that_cuts_warns_and_leaves_a_model(kind, n, monkeypatch):
    """With a clock by which little gets done in time."""
    X, y = table_of(n)
    make = rk.TabularRegressor
    if kind == "classification":
        make, y = rk.TabularClassifier, y > 0
    for room in (estimators, classification):
        monkeypatch.setattr(room, "Work", partial(Work, clock=Clock(step=0.5)))
    model = make(4, random_state=0)
    with pytest.warns(DeadlineWarning, match="stopped the search.* early") as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    report = model.fit_report_
    assert report["rows"] == n and 0 < report["rows_used"] <= n
    assert "the search" in report["cut"]
    assert report["budget"] == 4 and 0 < report["work"] < 4
    assert model.score(X, y) > 0.5
    assert len(model.leaderboard_) >= 1
    assert model.feature_importances_.sum() == pytest.approx(1)
    if kind == "regression":
        assert model.predict_interval(X[:5]).shape == (5, 2)


@pytest.mark.slow
def test_a_fit_with_enough_time_reports_no_cut():
    X, y = table_of(80)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeadlineWarning)
        model = rk.TabularRegressor(20, random_state=0).fit(X, y)
    report = model.fit_report_
    assert report["cut"] == [] and report["rows_used"] == 80
    assert 0 < report["work"] < 20


@pytest.mark.slow
def test_rows_beyond_the_budget_are_not_used(monkeypatch):
    monkeypatch.setattr(estimators, "most_in_cells", lambda seconds: 3000)
    monkeypatch.setattr(estimators, "plan_of", lambda n, s: ("features", 500))
    X, y = table_of(6000)
    model = rk.TabularRegressor(3, random_state=0).fit(X, y)
    report = model.fit_report_
    assert report["rows"] == 6000 and report["rows_used"] <= 3000
    assert model.score(X, y) > 0.7


def test_arrays_of_different_rows_are_not_encoded_to_merge_copies():
    """The encoding of wide arrays takes much of their time."""
    X = RNG.normal(size=(30, 5))
    rows = Rows(X, X[:, :1], np.ones(30), False)
    work = Work(10.0, Clock())
    assert rows.merged(work) is rows and work.spent == 0.0
    copies = np.append(np.arange(30), 4)
    merged = Rows(X[copies], X[copies, :1], np.ones(31), False).merged(work)
    assert work.spent > 0 and sorted(merged.weight) == [1.0] * 29 + [2.0]


def test_dataframes_of_different_rows_are_not_encoded_to_merge_copies():
    table = pd.DataFrame({"a": np.arange(30) // 2, "b": ["x", None] * 15})
    rows = Rows(table, np.zeros((30, 1)), np.ones(30), False)
    work = Work(10.0, Clock())
    assert rows.merged(work) is rows and work.spent == 0.0
    copies = rows.take(np.append(np.arange(30), 5))  # a missing value equals another
    assert len(copies.merged(work)) == 30 and work.spent > 0


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
        with pytest.MonkeyPatch.context() as patched:
            for room in (estimators, classification):
                patched.setattr(room, "Work", SlowDeadline)
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


class SlowDeadline(Work):
    """Work whose clock is real, but of a thousand times slower seconds."""

    @property
    def elapsed(self):
        return super().elapsed / 1000


# -- threads ---------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_leave_the_filters_of_warnings():
    X, y = table_of(60)
    model = rk.TabularClassifier(1, random_state=0).fit(X, y > 0)
    unseen = X.assign(e="never")
    before = list(warnings.filters)
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
    assert list(warnings.filters) == before


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


def test_uncertainty_is_that_of_a_process_that_knows_the_nearest_row():
    rows = np.array([[0.0], [1.0], [5.0]])
    kernel = rk.Gaussian(1.0) + 3.0 * rk.Linear()
    found = novelty(kernel, 0.1, np.array([[0.5], [9.0]]), rows)
    expected = np.sqrt(1 - np.exp(-np.array([0.25, 16.0])) + 0.1)
    np.testing.assert_allclose(found, expected)
    alone = novelty(kernel, 0.1, rows, rows, lambda _: np.eye(3, dtype=bool))
    np.testing.assert_allclose(alone[:2], np.sqrt(1 - np.exp(-1.0) + 0.1))


@pytest.mark.slow
def test_importances_have_rows_of_rare_classes():
    labels = np.repeat([0, 1], [2950, 50])
    np.random.default_rng(0).shuffle(labels)
    X = RNG.normal(size=(3000, 3))
    X[:, 0] += 2 * labels
    fit = rk.TabularClassifier(1, random_state=0).fit(X, labels)
    codes = fit._effects.Y[:, 0]
    assert (codes == 1).sum() == 50 and len(codes) == 2000
    assert fit.feature_importances_[0] > 0.5


def test_code_has_one_lengthscale_per_column():
    lengthscale = np.repeat([1.0, 2.5, 0.3], [1, 150, 3])
    kernel = rk.Matern(1.5, lengthscale) + 0.1 * rk.Linear()
    code = code_of(kernel)
    assert "np.repeat([1.0, 2.5, 0.3], [1, 150, 3])" in code
    again = eval(code, {"np": np, "rk": rk})
    assert np.array_equal(again.k1.lengthscale, lengthscale)
    assert "repeat" not in code_of(rk.Gaussian([1.0, 2.0]))


@pytest.mark.parametrize("make", [rk.TabularRegressor, rk.TabularClassifier])
def test_dask_collections_are_refused_with_advice(make):
    da = pytest.importorskip("dask.array")
    X, y = RNG.normal(size=(40, 2)), np.arange(40) % 2
    with pytest.raises(TypeError, match=r"got a Dask collection.*X\.compute"):
        make(0.2).fit(da.from_array(X), da.from_array(y))
    fit = make(0.2, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match=r"map_partitions\(model\.predict\)"):
        fit.predict(da.from_array(X))


def test_imports_of_the_first_fit_are_not_on_its_clock():
    code = (
        "import sys\n"
        "from randkern.tabular.work import Work\n"
        "assert 'sklearn.model_selection' not in sys.modules\n"
        "work = Work(1.0)\n"
        "assert 'sklearn.model_selection' in sys.modules\n"
        "assert work.elapsed < 0.1, work.elapsed\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_members_that_are_late_have_the_rows_of_the_first_or_none(monkeypatch):
    """Their residuals are summed for intervals."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(320, 3)), rng.integers(0, 3, 320)]
    y = X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=320)
    affordable, calls = Stage.affordable, []

    def less_and_less(stage, seconds):
        calls.append(seconds)
        return affordable(stage, seconds) if len(calls) == 1 else 0.0

    monkeypatch.setattr(estimators, "is_refitted", lambda _: False)
    monkeypatch.setattr(estimators, "blend", lambda parts: np.ones(len(parts)))
    monkeypatch.setattr(Stage, "affordable", less_and_less)
    model = rk.TabularRegressor(60, random_state=0).fit(X, y)
    assert len(calls) > 1 and len(model.model_.members) == 1
    assert model.predict_interval(X[:5]).shape == (5, 2)
