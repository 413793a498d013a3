"""Logistic regression with the exact kernel of many rows, by products with it."""

import numpy as np
import pytest
from scipy.optimize import minimize

import randkern as rk
from randkern._random import Stream
from randkern.kernels import Gaussian, Laplacian, Linear
from randkern.models import logistic
from randkern.models.dual_logistic import DualLogistic


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(
        np.sin(2 * X[:, 0]) + X[:, 1] + rng.normal(size=n) > 0, 1.0, -1.0
    )


def objective(gram, signs, strength):
    def value(a):
        f = gram @ a
        slopes = -signs / (1 + np.exp(signs * f))
        loss = strength @ np.logaddexp(0, -signs * f)
        return 0.5 * a @ f + loss, gram @ (a + strength * slopes)

    return value


@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
def test_the_minimum_is_that_of_the_dense_problem(C):
    X, signs = rows(300)
    kernel = Gaussian(1.0) + Linear(1.0, columns=[])
    strength = C * np.random.default_rng(1).uniform(0.5, 2.0, size=300)
    dual = DualLogistic.of(kernel, X, signs, 10**9, Stream(0))
    found = dual.minimise(strength, 1e-9, 10_000)
    gram = np.asarray(kernel(X))
    goal = objective(gram, signs, strength)
    best = minimize(goal, np.zeros(300), jac=True, options={"maxiter": 20_000}).fun
    np.testing.assert_allclose(goal(found.weights)[0], best, rtol=1e-6)
    np.testing.assert_allclose(found.values, gram @ found.weights, atol=1e-6)


def test_rows_of_strength_zero_are_predicted_as_if_they_were_not_there():
    X, signs = rows(400)
    kernel = Laplacian(2.0) + Linear(1.0, columns=[])
    dual = DualLogistic.of(kernel, X, signs, 10**9, Stream(0))
    strength = np.where(np.arange(400) < 300, 3.0, 0.0)
    found = dual.minimise(strength, 1e-10, 10_000)
    rest = DualLogistic.of(kernel, X[:300], signs[:300], 10**9, Stream(0))
    alone = rest.minimise(np.full(300, 3.0), 1e-10, 10_000)
    expected = np.asarray(kernel(X[300:], X[:300])) @ alone.weights
    np.testing.assert_allclose(found.values[300:], expected, atol=1e-3)
    assert not found.weights[300:].any()


def test_a_start_near_the_minimum_takes_fewer_products():
    X, signs = rows(500)
    dual = DualLogistic.of(Laplacian(1.0), X, signs, 10**9, Stream(0))
    first = dual.minimise(np.full(500, 2.0), 1e-4, 1000)
    second = dual.minimise(np.full(500, 2.5), 1e-4, 1000, first)
    alone = dual.minimise(np.full(500, 2.5), 1e-4, 1000)
    assert second.n_iter < alone.n_iter
    np.testing.assert_allclose(second.values, alone.values, atol=0.1)


def test_many_rows_of_a_model_give_what_few_give(monkeypatch):
    X, signs = rows(400)
    arguments = {"n_components": None, "C": 5.0, "fit_intercept": False, "tol": 1e-8}
    factorised = rk.KernelLogistic(Gaussian(1.0), **arguments).fit(X, signs)
    monkeypatch.setattr(logistic, "_FACTORISED_ROWS", 100)
    model = rk.KernelLogistic(Gaussian(1.0), **arguments).fit(X, signs)
    assert len(model.X_fit_) == 400
    np.testing.assert_allclose(
        model.predict_proba(X), factorised.predict_proba(X), atol=1e-4
    )


def test_memory_without_room_for_the_gram_matrix_gives_the_same_weights():
    X, signs = rows(3000)
    strength = np.full(3000, 2.0)
    plenty = DualLogistic.of(Gaussian(1.0), X, signs, 10**9, Stream(0))
    little = DualLogistic.of(Gaussian(1.0), X, signs, 250 * 10**6, Stream(0))
    assert little.operator._n_cached < 3 <= plenty.operator._n_cached
    found = [dual.minimise(strength, 1e-6, 500) for dual in (plenty, little)]
    np.testing.assert_array_equal(found[0].weights, found[1].weights)


def test_iterations_end_and_warn(monkeypatch):
    monkeypatch.setattr(logistic, "_FACTORISED_ROWS", 100)
    X, signs = rows(400)
    model = rk.KernelLogistic(
        Gaussian(0.1), 1e4, None, fit_intercept=False, tol=1e-10, max_iter=2
    )
    with pytest.warns(Warning, match="max_iter=2"):
        model.fit(X, signs)
