"""Where learning of Gaussian processes starts: it does not end in a constant."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import randkern as rk


@pytest.mark.slow
@pytest.mark.parametrize(("n", "D", "noise"), [(2000, 60, 0.1), (3000, 100, 0.1)])
def test_no_end_is_below_long_lengthscales_or_a_constant(n, D, noise):
    # The optimum of few rows has lengthscales too short for the features.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 30))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + abs(X[:, 3])
    y += 0.3 * X[:, 6:10].sum(axis=1) + noise * rng.normal(size=n)
    model = rk.GaussianProcessRegressor(
        n_components=D, normalize_y=True, random_state=0
    ).fit(X, y)
    value = model.log_marginal_likelihood_value_
    constant = -0.5 * n * (np.log(2 * np.pi) + 1)
    assert value > constant + 100
    for scale in (1.0, 3.0, 30.0):
        for share in (0.6, 0.75, 0.85):
            theta = np.log([scale, 2 * 30**0.5, share])
            assert value > model.log_marginal_likelihood(theta)


@pytest.mark.nightly
def test_columns_that_matter_only_together_are_found(rng):
    X = rng.normal(size=(1000, 40))
    y = X[:, 3] * np.sin(1.5 * X[:, 7]) + 0.5 * rng.normal(size=1000)
    model = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(np.full(40, 6.0)), n_components=200, random_state=0
    )
    lengthscale = model.fit(X, y).kernel_.kernel.lengthscale
    assert {*lengthscale.argsort()[:2]} == {3, 7}
    # The noise is known to the share (2/1000)^½, and features leave out something.
    assert model.noise_ == pytest.approx(0.25, rel=0.3)


def test_a_negligible_process_warns(rng):
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    model = rk.GaussianProcessRegressor(n_components=50, random_state=0)
    held = rk.GaussianProcessRegressor(
        n_components=50, bounds={"scale": (1e-6, 1e-4)}, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="nearly constant"):
        held.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, X[:, 0] + 0.5 * y)


@pytest.mark.slow
@pytest.mark.parametrize("projection", ["dense", "orthogonal", "structured", "qmc"])
def test_alpha_of_the_rational_quadratic_is_learned(projection, rng):
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = rk.GaussianProcessRegressor(
        1.3 * rk.RationalQuadratic(0.7, 1.2),
        0.05,
        40,
        projection=projection,
        optimizer=None,
        random_state=0,
    ).fit(X, y)
    assert "kernel__alpha" in model.hyperparameters_
    _, gradient = model.log_marginal_likelihood(eval_gradient=True)
    theta, likelihood = model.theta_, model.log_marginal_likelihood
    numeric = [
        (likelihood(theta + step) - likelihood(theta - step)) / 2e-5
        for step in 1e-5 * np.eye(4)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=1e-6 * abs(gradient).max())


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [rk.Gaussian("scale"), rk.RationalQuadratic()])
def test_gradients_of_wide_rows_take_no_square_matrix(kernel, rng):
    d = 3000
    X, y = rng.normal(size=(20, d)), rng.normal(size=20)
    model = rk.GaussianProcessRegressor(1.0 * kernel, 0.1, 16, random_state=0)
    model.fit(X[:5], y[:5])  # imports and compiles
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.9 * 8 * d**2
