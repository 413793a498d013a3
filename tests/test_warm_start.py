"""Fits that continue from the weights of the last one, or of a saved model."""

import numpy as np
import pytest
from sklearn.base import clone

import randkern as rk
from randkern.solvers import PCG

KERNEL = rk.Gaussian(1.5)
EITHER = pytest.mark.parametrize("n_components", [60, None], ids=["features", "exact"])


@pytest.fixture
def table(rng):
    X = rng.normal(size=(300, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 3.0 + 0.1 * rng.normal(size=300)


def regressor(n_components=60, alpha=0.1, **parameters):
    solver = PCG(tol=1e-8, rank=5)
    return rk.KernelRidgeRegressor(
        KERNEL, alpha, n_components, solver=solver, warm_start=True, **parameters
    )


@EITHER
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_starts_at_the_last_weights(n_components, fit_intercept, table, rng):
    X, y = table
    weight = rng.integers(0, 3, len(y))
    # Without a seed: the features are those of the last fit.
    model = regressor(n_components, fit_intercept=fit_intercept).fit(X, y, weight)
    cold, values = model.solution_.iterations, model.predict(X)
    interval = np.ptp(model.predict_interval(X[:1]))
    assert cold > 10
    model.fit(X, y, weight)
    assert model.solution_.iterations <= 1
    np.testing.assert_allclose(model.predict(X), values, rtol=1e-6)
    # Rows are left out of the whole fit, and not of its last iterations.
    assert np.ptp(model.predict_interval(X[:1])) == pytest.approx(interval, rel=0.02)


@EITHER
def test_another_penalty_needs_fewer_iterations(n_components, table):
    model = regressor(n_components, random_state=0).fit(*table)
    cold = clone(model).set_params(alpha=0.11).fit(*table)
    model.set_params(alpha=0.11).fit(*table)
    assert model.solution_.iterations < cold.solution_.iterations
    X = table[0]
    np.testing.assert_allclose(model.predict(X), cold.predict(X), atol=1e-5)


@EITHER
def test_weights_of_something_else_do_no_harm(n_components, table):
    X, y = table
    model = regressor(n_components, random_state=0).fit(X, -1e6 * y)
    other = rk.Laplacian(9.0)
    model.set_params(kernel=other).fit(X, y)
    cold = clone(model).fit(X, y)
    assert model.solution_.iterations <= cold.solution_.iterations + 5
    np.testing.assert_allclose(model.predict(X), cold.predict(X), atol=1e-5)


def test_weights_of_another_shape_are_refused(table):
    X, y = table
    model = regressor(random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=r"shape \(60, 1\).*\(50, 1\); use warm_start"):
        model.set_params(n_components=50).fit(X, y)
    np.testing.assert_array_equal(model.set_params(n_components=60).predict(X), before)
    with pytest.raises(ValueError, match=r"\(60, 2\); use warm_start"):
        model.fit(X, np.column_stack([y, y]))
    exact = regressor(None).fit(X, y)
    with pytest.raises(ValueError, match=r"\(200, 1\); use warm_start"):
        exact.fit(X[:200], y[:200])


def test_classes_and_streams(table):
    X, y = table
    labels = np.digitize(y, [2.0, 4.0])
    model = rk.KernelRidgeClassifier(
        KERNEL, 0.1, 60, solver=PCG(tol=1e-8, rank=5), warm_start=True
    )
    rows = rk.RowBlocks.from_arrays(X, labels, block_rows=70)
    expected = model.fit(X, labels).decision_function(X)
    np.testing.assert_allclose(
        model.fit(rows).decision_function(X), expected, atol=1e-5
    )
    assert model.solution_.iterations <= 1


def test_a_preempted_fit_goes_on_from_a_saved_model(table, tmp_path):
    pytest.importorskip("sklearn.callback")
    pytest.importorskip("skops")
    X, y = table
    path = tmp_path / "fit.skops"

    class Save:
        max_propagation_depth = 0

        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context, **kwargs): ...

        def on_fit_task_end(self, estimator, context, *, fitted_estimator):
            rk.save(fitted_estimator, path)
            if context.task_name == "iteration 25":
                raise KeyboardInterrupt

    cold = regressor(random_state=0).fit(X, y).solution_.iterations
    with pytest.raises(KeyboardInterrupt):
        regressor(random_state=0).set_callbacks(Save()).fit(X, y)
    again = rk.load(path)
    started = again.predict(X)
    again.fit(X, y)
    assert again.solution_.iterations < cold
    assert 0 < np.abs(again.predict(X) - started).max() < 0.01
