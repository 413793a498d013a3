"""Intervals of tables: as wide as targets are noisy, also at large predictions."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import randkern as rk
from randkern.tabular import exact_ridge
from randkern.tabular.folds import Folds
from randkern.tabular.intervals import Intervals, learned_sizes
from randkern.tabular.rows import Table

pytestmark = pytest.mark.usefixtures("no_deadline")

regressor = partial(rk.TabularRegressor, time_limit=3, random_state=0)


def covered(low_and_high, y):
    low, high = low_and_high.T
    return (low <= y) & (y <= high)


def multiplied(n, rng):
    """Targets whose noise grows with their level, as that of prices does."""
    X = rng.normal(size=(n, 5))
    mean = np.exp(0.8 * (np.sin(X[:, 0]) + 0.5 * X[:, 1]))
    return X, mean * np.exp(0.3 * rng.normal(size=n))


@pytest.mark.slow
def test_dear_things_are_covered_as_well():
    """In each quarter of predictions; of equal widths, 0.7 of the dearest would be."""
    X, y = multiplied(2600, np.random.default_rng(0))
    fit = regressor().fit(X[:600], y[:600])
    hits = covered(fit.predict_interval(X[600:]), y[600:])
    quarter = fit.predict(X[600:]).argsort().argsort() * 4 // 2000
    for q in range(4):
        # 5 standard errors of 500 rows, and of a quarter of 600 that set the width.
        bound = 5 * np.sqrt(0.09 / 500 + 0.09 / 150)
        assert abs(hits[quarter == q].mean() - 0.9) < bound
    residuals = np.abs(y[600:] - fit.predict(X[600:]))
    alike = residuals <= np.quantile(residuals, 0.9)
    assert alike[quarter == 3].mean() < 0.75
    assert hits[quarter == 3].mean() > 0.83


@pytest.mark.slow
@pytest.mark.parametrize("many", [False, True])
def test_intervals_are_wider_where_targets_are_noisier(monkeypatch, many):
    """The noise depends on a column, of which predictions tell nothing."""
    if many:
        monkeypatch.setattr(exact_ridge, "VALIDATION_ROWS", 300)
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, size=(1600, 2))
    noise = 0.2 * np.exp(X[:, 0])
    y = np.sin(2 * X[:, 0]) + noise * rng.normal(size=1600)
    fit = regressor().fit(X[:600], y[:600])
    intervals = fit.predict_interval(X[600:])
    widths = intervals[:, 1] - intervals[:, 0]
    # 1,000 rows: 5 standard errors, and those of the quantile.
    bound = 5 * np.sqrt(0.09 / 1000 + 0.09 / 300)
    assert abs(covered(intervals, y[600:]).mean() - 0.9) < bound
    assert np.corrcoef(np.log(widths), X[600:, 0])[0, 1] > 0.8
    residuals = np.abs(y[600:] - fit.predict(X[600:]))
    assert widths.mean() < 0.9 * 2 * np.quantile(residuals, 0.9)


def test_sizes_do_not_know_their_own_group():
    """Groups of noisy rows, which nothing else tells apart."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(40), 10)
    centres = rng.normal(size=(40, 3))
    rows = centres[groups] + 0.01 * rng.normal(size=(400, 3))
    sizes = np.exp(rng.normal(size=40))[groups, None] * abs(rng.normal(size=(400, 1)))
    predictions = rng.normal(size=(400, 1))
    both = np.hstack([predictions, rows])
    _, own = learned_sizes(both, 1, sizes, np.ones(400), Folds.of_rows(400))
    assert np.log(own).std() > 0.5
    _, own = learned_sizes(both, 1, sizes, np.ones(400), Folds(groups))
    assert np.log(own).std() < 0.2


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_targets_whose_squares_are_no_numbers_are_refused(unit):
    X, y = multiplied(30, np.random.default_rng(8))
    with pytest.raises(ValueError, match=r"y holds numbers of up to .*another unit"):
        regressor().fit(X, unit * y)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [2.0**400, 2.0**-400])
def test_units_of_targets_do_not_matter(unit):
    X, y = multiplied(60, np.random.default_rng(8))
    fits = [regressor(time_limit=1).fit(X, s * y) for s in (1.0, unit)]
    ends = [fits[0].predict_interval(X), fits[1].predict_interval(X) / unit]
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6)


@pytest.mark.slow
def test_saved_intervals(tmp_path):
    rng = np.random.default_rng(7)
    X, y = multiplied(250, rng)
    table = pd.DataFrame(X, columns=list("abcde"))
    fit = regressor().fit(table, np.column_stack([y, -y]))
    ends = fit.predict_interval(table[:20])
    assert ends.shape == (20, 2, 2)
    np.testing.assert_allclose(ends[:, 0, 0], -ends[:, 1, 1], rtol=1e-6)
    rk.save(fit, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict_interval(table[:20]), ends)


@pytest.mark.slow
def test_intervals_cover_rows_of_new_groups():
    """On average over tables: a few groups tell little about another one."""
    found, n_groups, n_tables = [], 10, 60
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(n_groups), 12)
        effects = rng.normal(size=n_groups + 200)
        residuals = effects[groups] + 0.3 * rng.normal(size=len(groups))
        rows = rng.normal(size=(n_groups, 2))[groups]
        Y = residuals[:, None]
        known = Table(rows, Y, np.ones(len(rows)), Folds(groups))
        options = rk.Gaussian(1.0), 1.0
        intervals = Intervals.of(known, np.arange(len(rows)), Y, *options)
        assert n_groups < intervals.n_groups < 2 * n_groups
        high = intervals.around(rows[:1], np.zeros((1, 1)), 0.9)[0, 0, 1]
        new = effects[n_groups:] + 0.3 * rng.normal(size=200)
        found.append(np.mean(abs(new) <= high))
    error = np.std(found) / np.sqrt(n_tables)
    assert 0.9 - 2 * error < np.mean(found) < 0.9 + 1 / n_groups + 2 * error


@pytest.mark.slow
def test_intervals_of_cells_know_groups():
    """Rows that are held out do not tell the sizes of residuals of their own group."""
    rng = np.random.default_rng(0)
    groups = rng.integers(80, size=2400)
    centres, effects = rng.normal(size=(80, 2)), rng.normal(size=80)
    X = np.column_stack([rng.normal(size=2400), centres[groups]])
    X[:, 1:] += 0.02 * rng.normal(size=(2400, 2))
    y = X[:, 0] + effects[groups] + 0.2 * rng.normal(size=2400)
    model = rk.TabularRegressor(0.3, random_state=0).fit(X, y, groups=groups)
    assert model.fit_report_["rows_held_out"] > 0
    assert 1 < model._intervals.n_groups < 80


@pytest.mark.parametrize("kind", ["constant", "binary"])
def test_intervals_of_equal_rows_cover(kind, no_deadline):
    """A row that is left out of its equals is predicted by their mean, without it."""
    rng = np.random.default_rng(0)
    X = np.ones((900, 2)) if kind == "constant" else rng.integers(0, 2, (900, 1))
    y = rng.normal(size=900)
    model = rk.TabularRegressor(time_limit=1, random_state=0).fit(X[:400], y[:400])
    low, high = model.predict_interval(X[400:]).T
    covered = np.mean((low <= y[400:]) & (y[400:] <= high))
    # Five standard errors of 500 new rows and of 400 known ones.
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 500 + 0.09 / 400)
