"""Logistic regression on features: the optimum, probabilities, streams, bad input."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import randkern as rk

# Without an intercept, but where it is compared with scikit-learn's.
KernelLogistic = partial(rk.KernelLogistic, fit_intercept=False)

KERNEL = rk.Gaussian(1.5)
D = 60


@pytest.fixture
def data(rng):
    X = rng.normal(size=(240, 3))
    y = (X[:, 0] + rng.normal(size=240) > 0).astype(int) + (X[:, 1] > 0.7)
    return X, np.array(["a", "b", "c"])[y], rng.normal(size=(50, 3))


def model_of(C=1.0, n_components=D, **options):
    options = {"tol": 1e-9, "random_state": 0, **options}
    return KernelLogistic(KERNEL, C, n_components, **options)


@pytest.mark.slow
def test_features_that_are_not_cached(data):
    X, y, new = data
    whole = model_of(5.0).fit(X, y).predict_proba(new)
    small = model_of(5.0, memory_limit="150kB").fit(X, y).predict_proba(new)
    np.testing.assert_allclose(small, whole, atol=1e-6)
    blocks = rk.RowBlocks([(X[:9], y[:9]), (X[9:200], y[9:200]), (X[200:], y[200:])])
    streamed = model_of(5.0).fit(blocks).predict_proba(rk.RowBlocks([(new,)]))
    np.testing.assert_allclose(streamed, whole, atol=1e-6)


def test_class_weights_and_sparse_rows(data):
    X, y, new = data
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    model = model_of(1.0, class_weight={"a": 2.0, "b": 1.0, "c": 0.5})
    dense = model.fit(X, y).predict_proba(new)
    weight = np.select([y == "a", y == "c"], [2.0, 0.5], 1.0)
    listed = model_of(1.0).fit(sp.csr_array(X), y, sample_weight=weight)
    np.testing.assert_allclose(
        listed.predict_proba(sp.csr_array(new)), dense, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.filterwarnings("error", "ignore::randkern.exceptions.FeatureErrorWarning")
def test_extreme_penalties(classes, data):
    X, y, _ = data
    X, y = X[:60], y[:60] if classes == 3 else y[:60] == "b"
    scores, sizes = [], []
    for C in (1e-300, 1e-12, 1e12, 1e300):
        # Where labels can be separated, 1e300 takes some 1,000 products.
        model = KernelLogistic(
            rk.Gaussian(0.3), C, 200, max_iter=4000, random_state=0
        ).fit(X, y)
        scores.append(model.score(X, y))
        sizes.append(np.abs(model.coef_).max() / C)
    assert scores[0] == scores[1] and scores[2] == scores[3] == 1.0
    # So small a C leaves minus C times the slope at w = 0.
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-6)


def test_an_enormous_penalty_is_met_or_warned_of(rng):
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) > 0
    model = KernelLogistic(n_components=10, C=1e300, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    # Rounding errors are all that is left.
    other = KernelLogistic(kernel=model.kernel_, n_components=10, random_state=0)
    expected = other.set_params(C=1e10).fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-4)


# -- intercepts ------------------------------------------------------------------


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
