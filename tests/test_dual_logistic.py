"""Logistic regression with the exact kernel of many rows, by products with it."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

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


def test_the_minimum_is_that_of_the_dense_problem():
    X, signs = rows(120)
    kernel = Gaussian(1.0) + Linear(1.0, columns=[])
    strength = np.random.default_rng(1).uniform(5.0, 20.0, size=120)
    dual = DualLogistic.of(kernel, X, signs[:, None], 10**9, Stream(0))
    found = dual.minimise(strength, 1e-9, 10_000)
    gram = np.asarray(kernel(X))
    goal = objective(gram, signs, strength)
    best = minimize(goal, np.zeros(120), jac=True, options={"maxiter": 20_000}).fun
    np.testing.assert_allclose(goal(found.weights[:, 0])[0], best, rtol=1e-6)
    np.testing.assert_allclose(found.values, gram @ found.weights, atol=1e-6)


def test_rows_of_strength_zero_are_predicted_like_new_rows():
    X, signs = rows(400)
    kernel = Laplacian(2.0) + Linear(1.0, columns=[])
    dual = DualLogistic.of(kernel, X, signs[:, None], 10**9, Stream(0))
    strength = np.where(np.arange(400) < 300, 3.0, 0.0)
    found = dual.minimise(strength, 1e-10, 10_000)
    rest = DualLogistic.of(kernel, X[:300], signs[:300, None], 10**9, Stream(0))
    alone = rest.minimise(np.full(300, 3.0), 1e-10, 10_000)
    expected = np.asarray(kernel(X[300:], X[:300])) @ alone.weights
    np.testing.assert_allclose(found.values[300:], expected, atol=1e-3)
    assert not found.weights[300:].any()


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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_strong_fits_fit_their_labels():
    """Newton steps from zero weights ended in .72 of the labels, without a warning."""
    X, y = labels(550, 4)
    options = {"fit_intercept": False, "max_iter": 1000, "n_components": None}
    model = rk.KernelLogistic(rk.Matern(1.5, 3.0), C=1e5, **options).fit(X, y)
    assert model.score(X, y) > 0.98


def labels(n, k, seed=0):
    X, _ = rows(n, seed)
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    f += 0.4 * np.random.default_rng(seed + 1).normal(size=n)
    return X, np.searchsorted(np.quantile(f, np.arange(1, k) / k), f)


@pytest.mark.parametrize("k", [3, 6])
def test_several_classes_have_the_minimum_of_the_dense_problem(k):
    X, y = labels(300, k)
    kernel = Gaussian(1.0) + Linear(1.0, columns=[])
    own = y[:, None] == np.arange(k)
    strength = np.random.default_rng(1).uniform(2.0, 8.0, size=300)
    dual = DualLogistic.of(kernel, X, 2.0 * own - 1, 10**9, Stream(0))
    found = dual.minimise(strength, 1e-9, 10_000)
    gram = np.asarray(kernel(X))
    factor = np.linalg.cholesky(gram + 1e-10 * np.eye(300))

    def goal(flat):
        W = flat.reshape(300, k)
        F = factor @ W
        loss = strength @ (logsumexp(F, axis=1) - F[own])
        slopes = strength[:, None] * (softmax(F, axis=1) - own)
        return 0.5 * (W**2).sum() + loss, (W + factor.T @ slopes).ravel()

    best = minimize(goal, np.zeros(300 * k), jac=True, method="L-BFGS-B").fun
    value = goal((factor.T @ found.weights).ravel())[0]
    assert value < best * (1 + 1e-5)
    np.testing.assert_allclose(found.weights.sum(axis=1), 0.0, atol=1e-6)


def test_several_classes_take_about_as_many_products_as_two():
    # The preconditioner knows that probabilities sum to 1.
    n_iter = []
    for k in (2, 4):
        X, y = labels(2000, k)
        signs = 2.0 * (y[:, None] == np.arange(k)) - 1
        signs = signs[:, 1:] if k == 2 else signs
        kernel = Laplacian(3.0) + Linear(1.0, columns=[])
        dual = DualLogistic.of(kernel, X, signs, 10**9, Stream(0))
        n_iter.append(dual.minimise(np.full(2000, 1.0), 1e-3, 1000).n_iter)
    assert n_iter[1] < 4 * n_iter[0]


def test_iterations_end_and_warn(monkeypatch):
    monkeypatch.setattr(logistic, "_FACTORISED_ROWS", 100)
    X, signs = rows(400)
    model = rk.KernelLogistic(
        Gaussian(0.1), 1e4, None, fit_intercept=False, tol=1e-10, max_iter=2
    )
    with pytest.warns(Warning, match="max_iter=2"):
        model.fit(X, signs)
