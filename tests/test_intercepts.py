"""Intercepts of classifiers, against scikit-learn on the same features."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

import randkern as rk


def rows(n, rate=0.5, n_classes=2, seed=0, d=4):
    """Return rows and labels; a logistic model with an intercept is true."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    logits = np.stack([np.zeros(n), *(np.sin(X[:, :2]) @ [2.0, c] for c in (1, -1))])
    logits = (
        logits[:n_classes] + np.log(rate / (1 - rate)) * np.arange(n_classes)[:, None]
    )
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=0)
    return X, labels


LIMIT = {"max_iter": 20_000, "tol": 1e-11}


@pytest.mark.parametrize("features", ["random", "nystrom", "exact"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_against_scikit_learn(features, n_classes, weighted):
    X, y = rows(300, 0.3, n_classes)
    weight = np.random.default_rng(1).uniform(0.1, 2.0, 300) if weighted else None
    kernel, options = rk.Gaussian(2.0), {"tol": 1e-11, "random_state": 0}
    if features == "exact":
        model = rk.KernelLogistic(kernel, 2.0, None, **options)
        values, vectors = np.linalg.eigh(kernel(X))
        Z = vectors * np.sqrt(values.clip(0))
    else:
        model = rk.KernelLogistic(kernel, 2.0, 60, features=features, **options)
    model.fit(X, y, weight)
    if features != "exact":
        Z = rk.plan.evaluate(model.plan_, X)
    expected = LogisticRegression(C=2.0, **LIMIT).fit(Z, y, weight)
    result = expected.predict_proba(Z)
    np.testing.assert_allclose(model.predict_proba(X), result, atol=1e-5)
    binary = n_classes == 2
    intercept = expected.intercept_[0] if binary else expected.intercept_
    np.testing.assert_allclose(model.intercept_, intercept, atol=1e-5)


def test_logistic_without_an_intercept():
    X, y = rows(300, 0.1)
    options = {"tol": 1e-11, "random_state": 0, "fit_intercept": False}
    model = rk.KernelLogistic(rk.Gaussian(2.0), 2.0, 60, **options).fit(X, y)
    Z = rk.plan.evaluate(model.plan_, X)
    expected = LogisticRegression(C=2.0, fit_intercept=False, **LIMIT).fit(Z, y)
    assert model.intercept_ == 0
    np.testing.assert_allclose(model.coef_, expected.coef_[0], atol=1e-5)


@pytest.mark.parametrize("features", ["random", "nystrom", "exact"])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_svc_against_scikit_learn(features, C, weighted):
    X, y = rows(300, 0.2)
    weight = (
        np.random.default_rng(1).uniform(0.1, 2.0, 300) if weighted else np.ones(300)
    )
    weight[:20] = 0.0
    kernel, n = rk.Gaussian(2.0), None if features == "exact" else 60
    options = {"features": "nystrom"} if features == "nystrom" else {}
    # LIBSVM caches values in single precision.
    tol = 1e-7 if n is None else 1e-10
    model = rk.KernelSVC(kernel, C, n, tol=tol, random_state=0, **options)
    model.fit(X, y, weight)
    Z = kernel(X) if n is None else rk.plan.evaluate(model.plan_, X)
    gram = Z if n is None else Z @ Z.T
    expected = SVC(C=C, kernel="precomputed", tol=1e-9)
    expected.fit(gram[20:, 20:], y[20:], weight[20:])
    values = expected.decision_function(gram[:, 20:])
    error = 1e-5 * max(C, 1.0)
    np.testing.assert_allclose(model.decision_function(X), values, atol=error)
    assert abs(model.intercept_ - expected.intercept_[0]) < error
    assert model.duality_gap_.max() < (1e-6 if n is None else 1e-9)
    dual = expected.dual_coef_[0]
    square = dual @ gram[20:, 20:][np.ix_(expected.support_, expected.support_)] @ dual
    assert model.margin_[0] == pytest.approx(square**-0.5, rel=1e-5)


@pytest.mark.parametrize("n_components", [60, None])
def test_svc_of_three_classes(n_components):
    """One machine per class, each with its intercept; a stream gives the same."""
    X, y = rows(240, 0.3, 3)
    tol = 1e-7 if n_components is None else 1e-10
    options = {"n_components": n_components, "tol": tol, "random_state": 0}
    model = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(X, y)
    values = model.decision_function(X)
    for c in range(3):
        binary = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(X, y == c)
        np.testing.assert_allclose(values[:, c], binary.decision_function(X), atol=1e-5)
    if n_components:
        blocks = rk.RowBlocks(
            lambda: ((X[i : i + 80], y[i : i + 80]) for i in (0, 80, 160))
        )
        stream = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(blocks)
        np.testing.assert_allclose(stream.decision_function(X), values, atol=1e-5)


@pytest.mark.parametrize("model", ["logistic", "svc"])
def test_rare_classes(model):
    """One row in 45 is positive; a row's log odds are linear."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16_000, 5))
    logits = 1.6 * X[:, 0] - 0.8 * X[:, 1] - 5.2
    y = rng.random(16_000) < 1 / (1 + np.exp(-logits))
    train, test = slice(0, 6_000), slice(6_000, None)
    if model == "svc":
        fitted = rk.KernelSVC(probability=True, n_components=200, random_state=0)
    else:
        fitted = rk.KernelLogistic(rk.Gaussian(6.0), 10.0, 200, random_state=0)
    chance = fitted.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
    error = np.sqrt(y.mean() * (1 - y.mean()) * (1 / 6_000 + 1 / 10_000))
    assert abs(chance.mean() - y[test].mean()) < 2.5 * error
    if model == "logistic":
        best = roc_auc_score(y[test], logits[test])
        assert roc_auc_score(y[test], chance) > best - 0.01


def test_an_intercept_takes_few_more_passes():
    """Intercepts change while the margins of their solution are still inexact."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 40))
    scores = X @ rng.normal(size=(40, 10)) + 0.5 * rng.normal(size=(1000, 10))
    y = (scores + np.linspace(0, 2, 10)).argmax(axis=1)
    model = rk.KernelSVC(rk.Gaussian(40**0.5), 10.0, 300, random_state=0)
    with_intercept = clone(model).fit(X, y)
    without = clone(model).set_params(fit_intercept=False).fit(X, y)
    assert with_intercept.n_iter_ <= 2 * without.n_iter_
    # At the solution the constraint of the intercepts holds.
    signed = with_intercept.support_coef_.sum(axis=0)
    total = abs(with_intercept.support_coef_).sum(axis=0)
    assert np.all(abs(signed) < 1e-3 * total)
