"""Gaussian process classification by Laplace's approximation."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessClassifier as ScikitProcess
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.class_weight import compute_sample_weight

import randkern as rk

N = 90


@pytest.fixture
def data(rng):
    """Rows, labels of two and of three classes, new rows, whole weights."""
    X = rng.normal(size=(N, 2))
    two = (np.sin(2 * X[:, 0]) + X[:, 1] > 0.3 * rng.logistic(size=N)).astype(int)
    three = two + (X[:, 0] > 0.5)
    return X, two, three, rng.normal(size=(40, 2)), rng.integers(0, 4, N).astype(float)


def fixed(kernel, n_components, **options):
    return rk.GaussianProcessClassifier(
        kernel, n_components, optimizer=None, random_state=0, **options
    )


def test_exact_is_scikit_learns(data):
    X, y, _, new, _ = data
    model = fixed(3.0 * rk.Gaussian([1.0, 2.0]), None).fit(X, y)
    scikit = ScikitProcess(ConstantKernel(3.0) * RBF([1.0, 2.0]), optimizer=None)
    scikit.fit(X, y)
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(scikit.log_marginal_likelihood_value_, abs=1e-8)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, abs=1e-8)
    _, slopes = scikit.log_marginal_likelihood(scikit.kernel_.theta, True)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-7)
    # Theirs averages over f to 3e-4.
    np.testing.assert_allclose(
        model.predict_proba(new), scikit.predict_proba(new), atol=1e-3
    )


@pytest.mark.parametrize("D", [20, None], ids=["features", "exact"])
def test_class_weights_are_weights(D, data):
    X, two, three, new, _ = data
    for y, given in ((two, {0: 3.0}), (three, "balanced")):
        weight = compute_sample_weight(given, y)
        weighted = fixed(rk.Gaussian(1.5), D, class_weight=given).fit(X, y)
        expected = fixed(rk.Gaussian(1.5), D).fit(X, y, weight).predict_proba(new)
        found = weighted.predict_proba(new)
        np.testing.assert_allclose(found, expected, atol=1e-7)
        assert (
            abs(found - fixed(rk.Gaussian(1.5), D).fit(X, y).predict_proba(new)).max()
            > 0.01
        )
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("D", [20, 150], ids=["n > D", "n < D"])
@pytest.mark.parametrize("scale", [0.1, 200.0])
def test_features_are_the_formulas(scale, D, data):
    X, y, _, new, _ = data
    kernel = scale * rk.Gaussian(1.2)
    model = fixed(kernel, D).fit(X, y)
    features = rk.RandomFeatures(kernel, D, random_state=0).fit(X)
    Z, signs = features.transform(X), 2.0 * y - 1

    def negative(b):
        f = Z @ b
        loss = np.logaddexp(0, -signs * f).sum() + 0.5 * b @ b
        return loss, b - Z.T @ (signs * expit(-signs * f))

    options = {"gtol": 1e-9, "maxiter": 10_000}
    b = scipy.optimize.minimize(negative, np.zeros(D), jac=True, options=options).x
    curvature = expit(Z @ b) * expit(-Z @ b)
    precision = np.eye(D) + (Z.T * curvature) @ Z
    expected = -negative(b)[0] - 0.5 * np.linalg.slogdet(precision)[1]
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-6)
    Z_new = features.transform(new)
    variance = np.einsum("ij,ji->i", Z_new, np.linalg.solve(precision, Z_new.T))
    # The trapezoidal rule for the average over a normal distribution.
    t = np.linspace(-12, 12, 20_001)[:, None]
    values = expit(Z_new @ b + variance**0.5 * t) * scipy.stats.norm.pdf(t)
    expected = values.sum(axis=0) * 24 / 20_000
    np.testing.assert_allclose(model.predict_proba(new)[:, 1], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("D", [None, 40, 150], ids=["exact", "n > D", "n < D"])
@pytest.mark.parametrize("classes", [2, 3])
def test_gradients(classes, D, data):
    X, two, three, _, weight = data
    kernel = 2.0 * rk.Gaussian([1.0, 2.0]) + rk.Matern(1.5, 1.0) * rk.Linear()
    model = fixed(kernel, D)
    model.fit(X, two if classes == 2 else three, weight)
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-6)
    step = 1e-5
    numeric = [
        (
            model.log_marginal_likelihood(model.theta_ + step * e)
            - model.log_marginal_likelihood(model.theta_ - step * e)
        )
        / (2 * step)
        for e in np.eye(len(model.theta_))
    ]
    size = np.abs(gradient).max()
    # Newton's method stops where a step gains ½δ² < 1e-14 of the value, at the distance
    # δ from the mode, to which the gradient is of first order. Truncation is smaller:
    # 5e-9 of the gradient (5e-5 for steps of 1e-3, and of second order).
    distance = (2e-14 * abs(value)) ** 0.5
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=2 * distance * size)


def test_learning_raises_the_likelihood(data):
    X, y, _, _, _ = data
    start = fixed(1.0 * rk.Gaussian(5.0), 100).fit(X, y)
    model = rk.GaussianProcessClassifier(
        1.0 * rk.Gaussian(5.0), 100, n_restarts_optimizer=1, random_state=0
    ).fit(X, y)
    gain = model.log_marginal_likelihood_value_ - start.log_marginal_likelihood_value_
    assert gain > 5
    assert 0.3 < model.kernel_.kernel.lengthscale < 4
    assert model.hyperparameters_ == ["scale", "kernel__lengthscale"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("D", [20, None])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_that_overflow_are_refused(n_classes, D, data):
    """They gave NaN as probabilities, without a warning."""
    X, y = data[0], data[n_classes - 1]
    model = fixed(1.0 * rk.Gaussian(1.0), D)
    largest = np.where(X > 0, 1, -1).astype(np.float32) * np.finfo(np.float32).max
    if D is None:  # exact values are 0 or 1
        assert np.isfinite(model.fit(largest, y).predict_proba(largest)).all()
        return
    with pytest.raises(ValueError, match="overflow.* scale the input down"):
        model.fit(largest, y)


def test_separable_classes_and_constant_rows():
    X = np.array([[-3.0], [-2.0], [2.0], [3.0]])
    model = rk.GaussianProcessClassifier(n_components=30, random_state=0)
    p = model.fit(X, [0, 0, 1, 1]).predict_proba(X)
    assert np.all(np.isfinite(p)) and np.all(p[:2, 0] > 0.5) and np.all(p[2:, 1] > 0.5)
    model.set_params(optimizer=None).fit(np.ones((6, 2)), [0, 1, 1, 1, 0, 1])
    p = model.predict_proba(np.ones((2, 2)))[:, 1]
    # Between the prior's half and the rows' two thirds.
    assert np.all((p > 0.54) & (p < 0.65))
