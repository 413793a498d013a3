"""Tables of many rows: exact kernels in cells, and kernels that are learned there."""

import threading

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import ThreadpoolController, threadpool_limits

import randkern as rk
from randkern._fitting import ending
from randkern.backend.tasks import map_on_threads
from randkern.models.cells import CellTree, rows_of_cells
from randkern.tabular.intervals import Spread
from randkern.tabular.local import CellRidge, left_out_in_cells

pytestmark = pytest.mark.usefixtures("no_deadline")


def rough(n, seed=0):
    """Rows of five columns, two of which a random sample tells little about."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    waves = np.random.default_rng(7).normal(size=(60, 2)) * 25
    y = np.cos(X[:, :2] @ waves.T + np.arange(60)).sum(axis=1) / 8
    return X, y + np.sin(4 * X[:, 2]) + 0.2 * rng.normal(size=n)


# -- tasks -----------------------------------------------------------------------------


def blas_threads():
    info = ThreadpoolController().select(user_api="blas").info()
    return max(each["num_threads"] for each in info)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_tasks_have_one_thread_of_blas_each(n_threads):
    def task(item):
        return item, blas_threads(), threading.current_thread()

    with threadpool_limits(n_threads, "blas"):
        found = list(map_on_threads(task, range(20), 8))
        assert blas_threads() == n_threads
    assert [item for item, _, _ in found] == list(range(20))
    assert {threads for _, threads, _ in found} == {1}
    is_main = {thread is threading.main_thread() for _, _, thread in found}
    assert is_main == {n_threads == 1}


def test_a_task_that_fails_ends_the_others():
    def task(item):
        if item == 3:
            raise ZeroDivisionError
        return item

    with threadpool_limits(2, "blas"), pytest.raises(ZeroDivisionError):
        list(map_on_threads(task, range(100), 2))


def test_fits_do_not_depend_on_the_number_of_threads():
    X, y = rough(1500)
    fits = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            model = rk.LocalRegressor(CellRidge(rk.Matern(1.5, 0.3), 1e-2), 300)
            fits.append(model.fit(X, y).predict(X[:50]))
    np.testing.assert_array_equal(*fits)


# -- sizes -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_cells", [1, 2, 3, 7, 20, 50])
def test_cells_are_of_the_size_that_is_planned(n_cells):
    rows = np.random.default_rng(0).normal(size=(9000, 3))
    size = rows_of_cells(len(rows), n_cells)
    sizes = [len(members) for members in CellTree.grow(rows, size)[1]]
    assert len(sizes) == n_cells
    assert 0.97 * size <= min(sizes) and max(sizes) <= size


# -- fits --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fit_in_cells_is_better_than_landmarks_and_saves(tmp_path, planned):
    planned(in_cells=True, cell_rows=600, n_landmarks=300)
    X, y = rough(8000)
    fitted, new = slice(0, 6000), slice(6000, 8000)
    model = rk.TabularRegressor(4, random_state=0).fit(X[fitted], y[fitted])
    assert model.fit_report_["rows_used"] == 6000
    assert model.fit_report_["rows_held_out"] == 0
    assert isinstance(model.model_.members[0].fit, rk.LocalRegressor)
    errors = []
    for member in (model.model_.members[0], None):
        found = model if member is None else member
        predicted = np.ravel(found.predict(X[new]))
        errors.append(np.sqrt(np.mean((predicted - y[new]) ** 2)))
    landmarks = rk.KernelRidgeRegressorCV(
        model.model_.members[0].kernel, n_components=300, features="nystrom"
    )
    rows = model.model_.members[0].rows_of(X)
    predicted = landmarks.fit(rows[fitted], y[fitted]).predict(rows[new])
    assert errors[1] <= 1.02 * errors[0]
    assert errors[1] < 0.9 * np.sqrt(np.mean((predicted - y[new]) ** 2))
    low, high = model.predict_interval(X[new]).T
    covered = np.mean((low <= y[new]) & (y[new] <= high))
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 1500 + 0.09 / 2000)
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    assert np.array_equal(loaded.predict(X[new]), model.predict(X[new]))


def test_sizes_of_residuals_follow_columns_that_the_mean_ignores():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(4000, 3))
    scale = np.exp(np.column_stack([rows[:, 0], 0.0 * rows[:, 0]]))
    sizes = np.abs(scale * rng.normal(size=scale.shape))
    means = rows[:, [1, 1]]
    spread, own = Spread.learned(
        rows[:3000], means[:3000], sizes[:3000], np.ones(3000), None
    )
    assert own.shape == (3000, 2)
    ratio = np.log(spread.at(rows[3000:], means[3000:]) / scale[3000:])
    # The logarithm of a normal residual's size has deviation 1.1.
    assert (ratio.std(axis=0) < [0.45, 0.35]).all()


# -- rows left out ---------------------------------------------------------------------


def test_left_out_predictions_are_those_of_fits_without_the_row():
    X, y = rough(120)
    weight = np.where(np.arange(120) < 20, 0.0, 1.0)
    ridge = CellRidge(rk.Gaussian(1.0), 1e-2)
    model = rk.LocalRegressor(ridge, 60).fit(X, y, weight)
    found = left_out_in_cells(model, X)
    expected = np.zeros(120)
    for cell, share in model.tree_.weights(X):
        rows = model.estimators_samples_[cell]
        for row in np.flatnonzero(share):
            others = rows[rows != row]
            alone = clone(ridge).fit(X[others], y[others]).predict(X[[row]])
            expected[row] += np.ravel(share)[row] * alone.item()
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


def test_copies_are_left_out_together():
    X, y = rough(200)
    repeated = np.r_[np.arange(200), np.arange(0, 200, 3)]
    ridge = rk.LocalRegressor(CellRidge(rk.Gaussian(1.0), 1e-2), 60)
    weighted = clone(ridge).fit(X, y, np.bincount(repeated))
    expected = left_out_in_cells(weighted, X)[repeated]
    model = ridge.fit(X[repeated], y[repeated])
    found = left_out_in_cells(model, X[repeated])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_late_fits_have_few_rows_of_each_cell():
    """Their predictions for rows left out are those of fits without these rows."""
    X, y = rough(1500)
    model = rk.LocalRegressor(CellRidge(rk.Gaussian(1.0), 1e-2), 800)
    with ending(lambda: True):
        model.fit(X, y)
    known = np.concatenate(
        [
            rows[fit.ridge_.evaluated]
            for rows, fit in zip(
                model.estimators_samples_, model.estimators_, strict=True
            )
        ]
    )
    assert len(known) <= 200 * len(model.estimators_)
    others = np.delete(np.arange(1500), known)
    np.testing.assert_allclose(
        left_out_in_cells(model, X)[others, 0], model.predict(X[others]), rtol=1e-9
    )
