"""Logistic regression on features: the optimum, probabilities, streams, bad input."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import randkern as rk

# Oracles here have no intercept; tests/test_intercepts.py has those with one.
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


@pytest.mark.parametrize("C", [1e170, 1e250, 1e300])
def test_an_enormous_penalty_is_met_or_warned_of(C, rng):
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) > 0
    model = KernelLogistic(n_components=10, C=C, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    # Rounding errors are all that is left.
    other = KernelLogistic(kernel=model.kernel_, n_components=10, random_state=0)
    expected = other.set_params(C=1e10).fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-4)
