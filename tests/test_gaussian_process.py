"""Gaussian process regression: exact limits, gradients, calibration, learning."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor as ScikitProcess
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.gaussian_process.kernels import Matern as ScikitMatern

import randkern as rk
from randkern.exceptions import MemoryLimitError

N, WIDTH = 70, 3
ARD = [1.0, 2.0, 3.0]


@pytest.fixture
def data(rng):
    """Rows, two targets, new rows, and weights that are whole numbers."""
    X = rng.normal(size=(N, WIDTH))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])
    Y += 0.1 * rng.normal(size=Y.shape)
    weight = rng.integers(0, 4, N).astype(float)
    return X, Y, rng.normal(size=(9, WIDTH)), weight


def fixed(kernel, n_components, noise=0.05, **options):
    return rk.GaussianProcessRegressor(
        kernel, noise, n_components, optimizer=None, random_state=0, **options
    )


def dense_evidence(Z, Y, noise):
    """log N(Y; 0, ZZᵀ + σ²I), the n × n way, summed over the outputs."""
    distribution = stats.multivariate_normal(
        np.zeros(len(Z)), Z @ Z.T + noise * np.eye(len(Z))
    )
    return float(np.sum(distribution.logpdf(Y.T)))


def differences(function, theta, step=1e-5):
    """Central differences of a function of a vector."""
    return np.array(
        [
            (function(theta + step * e) - function(theta - step * e)) / (2 * step)
            for e in np.eye(len(theta))
        ]
    )


# -- the exact kernel ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "normalize_y", "several"),
    [("gaussian", False, False), ("gaussian", True, True), ("matern", True, False)],
)
def test_exact_is_scikit_learns(name, normalize_y, several, data):
    X, Y, new, _ = data
    y = Y if several else Y[:, 0]
    ours, theirs = {
        "gaussian": (rk.Gaussian(ARD), RBF(ARD)),
        "matern": (rk.Matern(1.5, 1.3), ScikitMatern(1.3, nu=1.5)),
    }[name]
    model = fixed(2.0 * ours, None, normalize_y=normalize_y).fit(X, y)
    scikit = ScikitProcess(
        ConstantKernel(2.0) * theirs,
        alpha=0.05,
        optimizer=None,
        normalize_y=normalize_y,
    ).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    expected, deviation = scikit.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    np.testing.assert_allclose(std, deviation, atol=1e-8)
    np.testing.assert_allclose(
        model.predict(new, return_cov=True)[1],
        scikit.predict(new, return_cov=True)[1],
        atol=1e-8,
    )
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(scikit.log_marginal_likelihood_value_, abs=1e-8)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, abs=1e-8)
    _, slopes = scikit.log_marginal_likelihood(scikit.kernel_.theta, True)
    # Theirs holds the noise fixed.
    np.testing.assert_allclose(gradient[:-1], slopes, rtol=1e-7, atol=1e-7)


# -- the model of the features ----------------------------------------------------


@pytest.mark.parametrize("D", [20, 31, 200], ids=["n > D", "odd D", "n < D"])
def test_features_are_the_dense_formulas(D, data):
    X, Y, new, _ = data
    kernel, noise = 1.5 * rk.Gaussian(1.2) + 0.3 * rk.Linear(), 0.07
    model = fixed(kernel, D, noise).fit(X, Y)
    features = rk.RandomFeatures(kernel, D, random_state=0).fit(X)
    Z, Z_new = features.transform(X), features.transform(new)
    expected = dense_evidence(Z, Y, noise)
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-8)
    value = model.log_marginal_likelihood(model.theta_)
    assert value == pytest.approx(expected, abs=1e-8)
    K = Z @ Z.T + noise * np.eye(N)
    gain = np.linalg.solve(K, Z @ Z_new.T)
    mean, covariance = model.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, gain.T @ Y, atol=1e-9)
    expected = Z_new @ Z_new.T - (Z_new @ Z.T) @ gain
    for t in range(2):
        np.testing.assert_allclose(covariance[..., t], expected, atol=1e-9)
    _, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(std[:, 0] ** 2, np.diag(expected), atol=1e-9)
    _, wider = model.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(wider**2, std**2 + noise, rtol=1e-9)
    _, noisy = model.predict(new, return_cov=True, include_noise=True)
    added = np.broadcast_to(noise * np.eye(9)[..., None], noisy.shape)
    np.testing.assert_allclose(noisy - covariance, added, atol=1e-12)


def test_mean_is_that_of_ridge(data):
    X, Y, new, weight = data
    model = fixed(rk.Gaussian(1.5), 50, 0.3).fit(X, Y, sample_weight=weight)
    ridge = rk.KernelRidgeRegressor(rk.Gaussian(1.5), 0.3, 50, random_state=0)
    ridge.fit(X, Y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(new), ridge.predict(new), atol=1e-9)


# -- gradients ------------------------------------------------------------------------

SMOOTH = {
    "scaled ARD": 2.0 * rk.Gaussian(ARD),
    "matern": 0.2 * rk.Matern(2.5, 1.0) * rk.Linear(),
    "tree": 1.5
    * (rk.Matern(1.5, [1.0, 2.0, 1.0]) + 0.3 * rk.RationalQuadratic(0.7, 1.2))
    * rk.Gaussian(2.0, columns=[0, 2])
    + rk.Linear(),
}
# An object in two places has numbers of its own in each.
TWICE = 1.3 * rk.Gaussian(1.5)
SMOOTH["twice"] = TWICE * TWICE
# Frequencies of no variance: the likelihood is rough in their lengthscale.
ROUGH = {
    "laplacian": rk.Laplacian(2.0) + 0.5 * rk.Cauchy([1.0, 2.0, 1.5]),
    "rough matern": rk.Matern(0.7, [1.3, 1.0, 2.0]) * rk.Optical(2, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("D", [None, 31, 90], ids=["exact", "n > D", "n < D"])
@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_gradients(name, D, data):
    X, Y, _, weight = data
    kernel = {**SMOOTH, **ROUGH}[name]
    model = fixed(kernel, D).fit(X, Y, sample_weight=weight)
    _, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert len(gradient) == len(model.hyperparameters_)
    rough = D is not None and name in ROUGH
    numeric = differences(
        model.log_marginal_likelihood, model.theta_, 1e-7 if rough else 1e-5
    )
    size = np.abs(gradient).max()
    np.testing.assert_allclose(
        gradient, numeric, rtol=0, atol=(1e-4 if rough else 1e-6) * size
    )


def test_names_of_hyperparameters():
    kernel = 2.0 * rk.Gaussian([1.0, 3.0]) + rk.Linear() * rk.Cauchy(2.0)
    model = fixed(kernel, 20).fit(np.eye(2), [0.0, 1.0])
    assert model.hyperparameters_ == [
        "k1__scale",
        "k1__kernel__lengthscale[0]",
        "k1__kernel__lengthscale[1]",
        "k2__k2__lengthscale",
        "noise",
    ]
    expected = np.log([2.0, 1.0, 3.0, 2.0, 0.05])
    np.testing.assert_allclose(model.theta_, expected)


# -- learning -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 1000), (10, 464)])
def test_many_rows_are_sampled_for_learning(n_classes, expected, rng):
    X, labels = rng.normal(size=(1200, 2)), np.arange(1200) % n_classes
    model = rk.GaussianProcessClassifier(rk.Linear(), 2, optimizer=None)
    assert model.fit(X, labels).n_rows_learned_ == expected
    assert model.fit(X[:300], labels[:300]).n_rows_learned_ == 300


# -- calibration ----------------------------------------------------------------------


@pytest.mark.parametrize("D", [60, None], ids=["features", "exact"])
@pytest.mark.parametrize("several", [False, True], ids=["one target", "two"])
def test_samples_have_the_posterior_moments(D, several, data):
    X, Y, new, _ = data
    y = Y if several else Y[:, 0]
    model = fixed(2.0 * rk.Gaussian(1.5), D, 0.3, normalize_y=True).fit(X, y)
    draws = model.sample_y(new, 4000, random_state=1)
    mean, covariance = model.predict(new, return_cov=True)
    assert draws.shape == (*mean.shape, 4000)
    np.testing.assert_array_equal(draws, model.sample_y(new, 4000, random_state=1))
    columns = [(draws, mean, covariance)]
    if several:
        columns = [(draws[:, t], mean[:, t], covariance[..., t]) for t in range(2)]
    for sample, m, C in columns:
        deviation = np.sqrt(np.diag(C))
        error = np.abs(sample.mean(axis=1) - m) / deviation * math.sqrt(4000)
        assert error.max() < 5.7
        spread = np.abs(np.cov(sample) - C) / np.outer(deviation, deviation)
        assert spread.max() < 5.7 * math.sqrt(2 / 4000)
    if several:  # given the hyperparameters, targets are independent
        for one, other in zip(draws[:, 0], draws[:, 1], strict=True):
            assert abs(np.corrcoef(one, other)[0, 1]) < 5.7 / math.sqrt(4000)


# -- hard cases -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_targets_do_not_matter(scale, data):
    X, Y, new, _ = data
    model = rk.GaussianProcessRegressor(n_components=50, random_state=0)
    mean, std = model.fit(X, Y[:, 0]).predict(new, return_std=True)
    scaled = model.fit(X, scale * Y[:, 0]).predict(new, return_std=True)
    np.testing.assert_allclose(scaled[0] / scale, mean, atol=1e-2)
    np.testing.assert_allclose(scaled[1] / scale, std, atol=1e-2)


def test_one_row_and_one_column():
    model = rk.GaussianProcessRegressor(n_components=11, random_state=0)
    mean, std = model.fit([[1.0]], [2.0]).predict([[1.0], [50.0]], return_std=True)
    assert np.all(np.isfinite(mean)) and std[0] < std[1]


def test_errors(data):
    X, Y, new, _ = data
    model = fixed(rk.Gaussian(), 20)
    with pytest.raises(ValueError, match="cannot both be True"):
        model.fit(X, Y).predict(new, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="finite logarithms"):
        model.log_marginal_likelihood([1.0])
    for noise in (0.0, math.nan):
        with pytest.raises(ValueError, match="noise"):
            fixed(None, 20, noise).fit(X, Y)
    with pytest.raises(ValueError, match="n_components"):
        fixed(None, 0).fit(X, Y)
    with pytest.raises(MemoryLimitError, match="components"):
        fixed(None, 3000, memory_limit="10MB").fit(X, Y)
    with pytest.raises(MemoryLimitError, match="random features"):
        fixed(None, None, memory_limit="20kB").fit(X, Y)
    with pytest.raises(ValueError, match="needs all rows in memory"):
        fixed(None, None).fit(rk.RowBlocks([(X, Y)]))
    with pytest.raises(ValueError, match="n_samples"):
        model.fit(X, Y).sample_y(new, 0)
    with pytest.raises(AttributeError, match="precision_factor_"):
        _ = fixed(None, None).fit(X, Y).precision_factor_


@pytest.mark.parametrize("n_components", [None, 300])
def test_a_linear_mean_of_a_column_far_from_zero(n_components):
    """Such as Julian dates: squares of 2.5e6 left no digits for the constant."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 1000, 100), rng.normal(size=100)])
    new = np.array([[1200.0, 0.3], [500.0, -1.0]])
    y = 0.02 * X[:, 0] + np.sin(X[:, 1]) + 5

    def predictions(offset):
        model = rk.GaussianProcessRegressor(
            rk.Gaussian([300.0, 1.0]),
            0.01,
            n_components,
            mean="linear",
            optimizer=None,
            random_state=0,
        )
        return model.fit(X + offset, y).predict(new + offset)

    far = predictions([2_455_000.0, 0.0])
    # Rounding of the column, 2.5e6 · 1e-16, hardly matters; random phases do.
    tolerance = 1e-5 if n_components is None else 0.2
    np.testing.assert_allclose(far, predictions([0.0, 0.0]), atol=tolerance)
    np.testing.assert_allclose(far, [29 + np.sin(0.3), 15 - np.sin(1.0)], atol=1.0)
