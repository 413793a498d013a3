"""Tables of many rows: exact kernels in cells, and kernels that are learned there."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import randkern as rk
from randkern._fitting import ending
from randkern.tabular.exact_ridge import ExactRidge

pytestmark = pytest.mark.usefixtures("no_deadline")


def rough(n, seed=0):
    """Rows of five columns, two of which a random sample tells little about."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    waves = np.random.default_rng(7).normal(size=(60, 2)) * 25
    y = np.cos(X[:, :2] @ waves.T + np.arange(60)).sum(axis=1) / 8
    return X, y + np.sin(4 * X[:, 2]) + 0.2 * rng.normal(size=n)


def test_fits_do_not_depend_on_the_number_of_threads():
    X, y = rough(1500)
    fits = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            model = rk.LocalRegressor(ExactRidge(rk.Matern(1.5, 0.3), 1e-2), 300)
            fits.append(model.fit(X, y).predict(X[:50]))
    np.testing.assert_array_equal(*fits)


# -- fits --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fit_in_cells_is_better_than_landmarks_and_saves(tmp_path, planned):
    planned(cell_rows=600)
    X, y = rough(8000)
    fitted, new = slice(0, 6000), slice(6000, 8000)
    model = rk.TabularRegressor(4, random_state=0).fit(X[fitted], y[fitted])
    assert model.fit_report_["rows_held_out"] == 6000 // 16
    assert model.fit_report_["rows_used"] == 6000 - 6000 // 16
    assert isinstance(model.model_.members[0].fit, rk.LocalRegressor)
    error = np.sqrt(np.mean((model.predict(X[new]) - y[new]) ** 2))
    landmarks = rk.KernelRidgeRegressorCV(
        model.model_.members[0].kernel, n_components=300, features="nystrom"
    )
    rows = model.model_.members[0].encoder.transform(X)
    predicted = landmarks.fit(rows[fitted], y[fitted]).predict(rows[new])
    assert error < 0.9 * np.sqrt(np.mean((predicted - y[new]) ** 2))
    low, high = model.predict_interval(X[new]).T
    covered = np.mean((low <= y[new]) & (y[new] <= high))
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 1500 + 0.09 / 2000)
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    assert np.array_equal(loaded.predict(X[new]), model.predict(X[new]))


@pytest.mark.parametrize("is_late", [False, True])
def test_late_fits_have_few_rows_of_each_cell(is_late):
    X, y = rough(1500)
    model = rk.LocalRegressor(ExactRidge(rk.Gaussian(1.0), 1e-2), 800)
    with ending(lambda: is_late):
        model.fit(X, y)
    known = sum(len(fit.X) for fit in model.estimators_)
    assert known <= 200 * len(model.estimators_) if is_late else known >= 1500
