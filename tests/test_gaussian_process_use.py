"""What users of processes ask for: bounds, priors, conditioning, paths, noise."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import randkern as rk


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, (80, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=80)


# -- bounds and priors ------------------------------------------------------------


def test_fixed_and_bounded_as_in_scikit_learn(data):
    X, y = data
    model = rk.GaussianProcessRegressor(
        1.5 * rk.Gaussian([1.0, 1.0]),
        noise=0.09,
        n_components=None,
        bounds={"scale": "fixed", "noise": "fixed", "lengthscale": (0.5, 1.5)},
    )
    model.fit(X, y)
    kernel = ConstantKernel(1.5, "fixed") * RBF([1.0, 1.0], (0.5, 1.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = Exact(kernel, alpha=0.09).fit(X, y)
    np.testing.assert_allclose(
        model.kernel_.kernel.lengthscale, expected.kernel_.k2.length_scale, rtol=1e-3
    )
    # The second column is linear: the longest lengthscale is the best.
    assert model.kernel_.kernel.lengthscale[1] == pytest.approx(1.5, rel=1e-12)
    assert model.kernel_.scale == pytest.approx(1.5, rel=1e-12)
    assert model.noise_ == pytest.approx(0.09, rel=1e-12)


@pytest.mark.parametrize("D", [None, 60], ids=["exact", "features"])
def test_priors_move_the_end_to_the_posterior_mode(D, data):
    X, y = data
    priors = {"noise": (0.5, 0.1), "kernel__lengthscale": (0.3, 0.2)}
    model = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(1.0), 0.1, D, priors=priors, random_state=0
    ).fit(X, y)

    def negative(theta):
        prior = ((theta[1] - np.log(0.3)) / 0.2) ** 2
        prior += ((theta[2] - np.log(0.5)) / 0.1) ** 2
        return prior / 2 - model.log_marginal_likelihood(theta)

    found = scipy.optimize.minimize(
        negative, model.theta_, method="Nelder-Mead", options={"xatol": 1e-5}
    )
    np.testing.assert_allclose(model.theta_, found.x, atol=5e-3)
    free = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(1.0), 0.1, D, random_state=0
    ).fit(X, y)
    assert abs(free.noise_ - 0.5) > 3 * abs(model.noise_ - 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bounds": {"nu": "fixed"}}, "bounds name 'nu', which is not learned"),
        ({"bounds": {"noise": (1.0, 0.1)}}, "must ascend"),
        ({"bounds": {"noise": "free"}}, "must be .*'fixed'"),
        ({"priors": {"noise": 0.1}}, "must be .median, sigma."),
        ({"priors": {"noise": (0.1, 0.0)}}, "of positive numbers"),
    ],
)
def test_bad_bounds_and_priors(given, message, data):
    with pytest.raises(ValueError, match=message):
        rk.GaussianProcessRegressor(n_components=20, **given).fit(*data)


def test_labels_have_bounds(data):
    X, y = data
    kernel = 2.0 * rk.Gaussian(1.0)
    model = rk.GaussianProcessClassifier(
        kernel, 40, bounds={"scale": "fixed"}, random_state=0
    ).fit(X, y > 0)
    assert model.kernel_.scale == pytest.approx(2.0, rel=1e-12)
    assert model.kernel_.kernel.lengthscale != 1.0
