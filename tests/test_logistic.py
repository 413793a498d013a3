"""Logistic regression on features: the optimum, probabilities, streams, bad input."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import randkern as rk
from randkern.exceptions import MemoryLimitError
from randkern.plan import evaluate

# Oracles here have no intercept; tests/test_intercepts.py has those with one.
KernelLogistic = partial(rk.KernelLogistic, fit_intercept=False)

KERNEL = rk.Gaussian(1.5)
D = 60


@pytest.fixture
def data(rng):
    X = rng.normal(size=(240, 3))
    y = (X[:, 0] + rng.normal(size=240) > 0).astype(int) + (X[:, 1] > 0.7)
    return X, np.array(["a", "b", "c"])[y], rng.normal(size=(50, 3))


def features_of(X, n_components=D):
    return rk.RandomFeatures(KERNEL, n_components, random_state=0).fit_transform(X)


def model_of(C=1.0, n_components=D, **options):
    options = {"tol": 1e-9, "random_state": 0, **options}
    return KernelLogistic(KERNEL, C, n_components, **options)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 100.0])
def test_optimum_is_scikit_learns(C, classes, dtype, data, rng):
    X, y, new = data
    y = y if classes == 3 else y == "b"
    weight = rng.uniform(0, 2, len(X))
    model = model_of(C).fit(X.astype(dtype), y, sample_weight=weight)
    scikit = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10**5)
    scikit.fit(features_of(X), y, sample_weight=weight)
    size = np.abs(scikit.coef_).max()
    tolerance = 1e-4 if dtype == np.float64 else 2e-2
    np.testing.assert_allclose(
        np.atleast_2d(model.coef_), scikit.coef_, atol=tolerance * size
    )
    # The features of the new rows, by the map of the rows of the fit.
    Z_new = rk.RandomFeatures(KERNEL, D, random_state=0).fit(X).transform(new)
    probabilities = model.predict_proba(new)
    np.testing.assert_allclose(
        probabilities, scikit.predict_proba(Z_new), atol=10 * tolerance
    )
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(new))
    assert np.all(model.classes_[probabilities.argmax(axis=1)] == model.predict(new))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_exact_kernel_is_the_limit_of_many_features(classes, data):
    X, y, new = data
    y = y if classes == 3 else y == "b"
    exact = model_of(2.0, None).fit(X, y)
    assert exact.X_fit_.shape[0] <= len(X)
    few, many = (
        np.mean((model_of(2.0, n).fit(X, y).predict_proba(new)
                 - exact.predict_proba(new)) ** 2)
        for n in (50, 4000)
    )  # fmt: skip
    assert many < few / 10


def test_exact_kernel_has_no_gradient_left(data):
    X, y, _ = data
    signs = np.where(y == "b", 1.0, -1.0)
    model = model_of(3.0, None).fit(X, signs)
    values = model.decision_function(X)
    # At the optimum f = K·C·y/(1 + exp(yf)).
    slopes = 3.0 * signs / (1 + np.exp(signs * values))
    np.testing.assert_allclose(KERNEL(X) @ slopes, values, atol=1e-5)


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


def least_objective(Z, signs, C):
    """Return the minimum, by Newton's method on dense matrices."""
    b, value = np.zeros(Z.shape[1]), np.inf
    for _ in range(500):
        margins = signs * (Z @ b)
        slopes, others = expit(-margins), expit(margins)
        gradient = b - C * (Z.T @ (signs * slopes))
        hessian = np.eye(len(b)) + C * (Z.T * (slopes * others)) @ Z
        step = np.linalg.solve(hessian, -gradient)
        length, before = 1.0, objective(Z, signs, C, b)
        while length > 1e-12 and not (
            objective(Z, signs, C, b + length * step) <= before
        ):
            length /= 2
        b = b + length * step
        value = objective(Z, signs, C, b)
        if -float(gradient @ step) <= 1e-14 * value:
            break
    return value


def objective(Z, signs, C, b):
    return 0.5 * b @ b + C * np.logaddexp(0, -signs * (Z @ b)).sum()


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("C", [1e-4, 1e2, 1e5, 1e8, 1e11])
@pytest.mark.parametrize("tol", [1e-5, 1e-10])
def test_it_reaches_the_optimum_or_warns(C, tol, noise, dtype, rng):
    X = rng.normal(size=(60, 2)).astype(dtype)
    signs = np.where(X[:, 0] + noise * rng.normal(size=60) > 0, 1.0, -1.0)
    model = KernelLogistic(rk.Gaussian(1.0), C, 40, tol=tol, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, signs)
    Z = evaluate(model.plan_, X).astype(float)
    reached = objective(Z, signs, C, model.coef_)
    least = least_objective(Z, signs, C)
    assert caught or reached - least <= 1.1 * tol * least + 1e-12 * least
    # Where rounding errors do not forbid it, it is reached.
    assert not caught or tol < 1e-5 or (C > 1e5 and noise)


def test_too_few_iterations_warn(data):
    X, y, _ = data
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model_of(1e6, max_iter=3).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C"),
        ({"C": np.inf}, "C"),
        ({"tol": -1.0}, "tol"),
        ({"n_components": 0}, "n_components"),
        ({"projection": "fast"}, "projection"),
    ],
)
def test_bad_parameters(parameters, message, data):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        KernelLogistic(**parameters).fit(X, y)


def test_errors(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="at least 2 classes"):
        model_of().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="NaN"):
        model_of().fit(np.full_like(X, np.nan), y)
    with pytest.raises(MemoryLimitError, match="Gram"):
        model_of(1.0, None, memory_limit="100kB").fit(X, y)


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
