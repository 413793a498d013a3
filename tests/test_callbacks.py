"""Callbacks of scikit-learn on support vector machines and logistic regression."""

import math
import warnings

import numpy as np
import pytest
import sklearn

import randkern as rk

pytest.importorskip("sklearn.callback")


class Listener:
    """Notes what it is told, and stops a fit at the end of a task."""

    max_propagation_depth = None

    def __init__(self, stop_at=None):
        self.begun, self.models, self.stop_at = [], [], stop_at

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context, **kwargs):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.models.append(fitted_estimator)
        return context.task_name == self.stop_at


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=120), [-0.3, 0.3])


def iterations(n, name="iteration"):
    return [f"{name} {number}" for number in range(1, n + 1)]


@pytest.mark.parametrize("D", [None, 60], ids=["exact", "features"])
@pytest.mark.parametrize("cls", [rk.KernelSVC, rk.KernelLogistic])
def test_callbacks_get_every_iteration_and_can_predict(cls, D, data):
    listener = Listener()
    # LIBSVM, for the exact kernel with an intercept, reports no iterations.
    options = {"fit_intercept": False, "random_state": 0}
    model = cls(n_components=D, C=10.0, **options).set_callbacks(listener)
    model.fit(*data)
    n = len(listener.begun) - 1  # steps of Newton's method, which takes more products
    assert 1 < n <= model.n_iter_ and (cls is rk.KernelLogistic or n == model.n_iter_)
    assert listener.begun == ["fit", *iterations(n)]
    values = [each.decision_function(data[0]) for each in listener.models]
    final = model.decision_function(data[0])
    np.testing.assert_array_equal(values[-1], final)
    scale = abs(final).max()
    np.testing.assert_allclose(values[-2], final, atol=1e-3 * scale)
    assert abs(values[0] - final).max() > 1e-3


@pytest.mark.parametrize("cls", [rk.KernelSVC, rk.KernelLogistic])
def test_stopping_keeps_the_solution_without_warnings(cls, data):
    listener = Listener("iteration 2")
    model = cls(n_components=60, C=1e4, tol=1e-9, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_callbacks(listener).fit(*data)
    assert listener.begun[-1] == "iteration 2"
    np.testing.assert_array_equal(model.coef_, listener.models[-2].coef_)


def test_callbacks_get_classes_of_hard_margins_and_folds(data):
    X, y = data
    listener = Listener()
    hard = rk.KernelSVC(n_components=None, C=math.inf).set_callbacks(listener)
    hard.fit(X, y)
    assert listener.begun == ["fit", *iterations(3, "class")]
    listener = Listener()
    model = rk.KernelSVC(n_components=40, probability=True, random_state=0)
    model.set_callbacks(listener).fit(X, y)
    told = ["fit", *iterations(model.n_iter_), *iterations(5, "fold")]
    assert listener.begun == told


def test_callbacks_get_iterations_of_regression(data):
    listener = Listener()
    model = rk.KernelSVR(n_components=20, random_state=0).set_callbacks(listener)
    model.fit(*data)
    assert listener.begun == ["fit", *iterations(model.n_iter_)]
    values = [each.predict(data[0]) for each in listener.models]
    np.testing.assert_array_equal(values[-1], model.predict(data[0]))
    np.testing.assert_allclose(values[-2], values[-1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("cls", [rk.KernelSVC, rk.KernelLogistic])
def test_callbacks_of_tensors_can_stop(cls, data):
    torch = pytest.importorskip("torch")
    X, y = map(torch.asarray, data)
    with sklearn.config_context(array_api_dispatch=True):
        listener = Listener()
        options = {"n_components": 40, "fit_intercept": False, "random_state": 0}
        model = cls(**options).set_callbacks(listener).fit(X, y)
        steps = iterations(len(listener.begun) - 1)
        if cls is rk.KernelSVC:
            steps = iterations(3, "class")
        assert listener.begun == ["fit", *steps]
        if cls is rk.KernelLogistic:
            listener = Listener("iteration 2")
            stopped = cls(**options).set_callbacks(listener)
            stopped.fit(X, y)
            assert listener.begun[-1] == "iteration 2"
            assert stopped.n_iter_ < model.n_iter_
            assert 0.5 < stopped.score(X, y) <= 1.0


def test_callbacks_of_row_blocks_get_no_rows(data):
    X, y = data
    blocks = rk.RowBlocks([(X[:70], y[:70]), (X[70:], y[70:])])
    listener = Listener()
    listener.on_fit_task_begin = lambda *_, X, y, **__: seen.append((X, y))
    seen = []
    rk.KernelLogistic(
        rk.Gaussian(1.0), n_components=20, max_iter=5, tol=1.0, random_state=0
    ).set_callbacks(listener).fit(blocks)
    assert seen and set(seen) == {(None, None)}
