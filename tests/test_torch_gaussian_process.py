"""Gaussian processes of tensors equal those of arrays, and stay where they are."""

import copy

import numpy as np
import pytest

import randkern as rk
from _tensors import dispatch, host, tensor, torch

pytestmark = pytest.mark.slow

KERNELS = {
    "ard": 1.5 * rk.Gaussian([1.0, 2.0, 3.0]),
    "laplacian": rk.Laplacian([2.0, 2.0, 1.0]),
    "cauchy": rk.Cauchy(1.5),
    "matern 0.5": rk.Matern(0.5, 1.3),
    "matern 0.7": rk.Matern(0.7, 1.3),
    "matern 1": rk.Matern(1.0, 1.3),
    "matern 2.2": rk.Matern(2.2, 1.3),
    "rational quadratic": rk.RationalQuadratic(1.5, 1.2),
    "sum": 1.5 * rk.Gaussian(1.2) + 0.3 * rk.Linear(),
    "product": rk.Gaussian(2.0, columns=[1, 2]) * rk.Categorical(columns=[0]),
}
SIZES = {"n > D": 31, "n < D": 200, "exact": None}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
each_size = pytest.mark.parametrize("D", SIZES.values(), ids=SIZES)


@pytest.fixture
def data(rng):
    """Rows, two targets, weights of which some are 0, and new rows."""
    X, new = rng.normal(size=(70, 3)), rng.normal(size=(9, 3))
    X[:, 0], new[:, 0] = X[:, 0].round(), new[:, 0].round()
    Y = np.column_stack([np.sin(X[:, 1]), X[:, 2] ** 2])
    Y += 0.1 * rng.normal(size=Y.shape)
    return X, Y, rng.integers(0, 4, 70).astype(float), new


def assert_close(got, expected, **tolerance):
    """Compare a tensor with an array of the same dtype and shape."""
    assert got.dtype == torch.float64
    np.testing.assert_allclose(host(got), expected, **tolerance)


# -- regression -------------------------------------------------------------------


@pytest.mark.nightly
@each_kernel
@each_size
def test_regression_equals_that_of_arrays(kernel, D, data):
    X, Y, weight, new = data
    model = rk.GaussianProcessRegressor(
        kernel, 0.05, D, optimizer=None, normalize_y=True, random_state=0
    )
    expected = copy.deepcopy(model).fit(X, Y, weight)
    with dispatch():
        model.fit(tensor(X), tensor(Y), tensor(weight))
        for options in ({}, {"include_noise": True}):
            got = model.predict(tensor(new), return_std=True, **options)
            wanted = expected.predict(new, return_std=True, **options)
            for one, other in zip(got, wanted, strict=True):
                assert_close(one, other, atol=1e-10)
        covariance = model.predict(tensor(new), return_cov=True)[1]
        assert_close(covariance, expected.predict(new, return_cov=True)[1], atol=1e-10)
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        expected.log_marginal_likelihood_value_, rel=1e-10
    )
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    wanted = expected.log_marginal_likelihood(eval_gradient=True)
    assert isinstance(value, float) and isinstance(gradient, np.ndarray)
    assert value == pytest.approx(wanted[0], rel=1e-10)
    np.testing.assert_allclose(gradient, wanted[1], rtol=1e-8, atol=1e-8)


@each_size
def test_samples_of_functions(D, data):
    X, Y, weight, new = data
    model = rk.GaussianProcessRegressor(
        rk.Gaussian(1.5), 0.05, D, optimizer=None, random_state=0
    )
    expected = copy.deepcopy(model).fit(X, Y, weight).sample_y(new, 2000)
    with dispatch():
        model.fit(tensor(X), tensor(Y), tensor(weight))
        got = model.sample_y(tensor(new), 2000)
        mean, deviation = model.predict(tensor(new), return_std=True)
    assert got.shape == (9, 2, 2000)
    if D is None:  # eigenvectors have no sign: other draws of the same distribution
        assert_close(got.mean(dim=2), host(mean), atol=0.2)
        assert_close(got.std(dim=2), host(deviation), rtol=0.1)
    else:
        assert_close(got, expected, atol=1e-9)


@pytest.mark.parametrize("D", [150, None], ids=["features", "exact"])
def test_conditioning_is_that_of_arrays(D, rng):
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0])
    model = rk.GaussianProcessRegressor(
        rk.Gaussian(1.5), 0.05, D, optimizer=None, random_state=0
    )
    expected = model.fit(X, y).predict(X[:9], return_std=True)
    with dispatch():
        rows, targets = tensor(X), tensor(y)
        for first in (100, 299):  # a block of rows more than of features, and one row
            model.fit(rows[:first], targets[:first])
            found = model.condition_on(rows[first:], targets[first:])
            for one, other in zip(
                found.predict(rows[:9], return_std=True), expected, strict=True
            ):
                assert_close(one, other, atol=1e-7)


# -- the boundary -----------------------------------------------------------------


@pytest.mark.parametrize("D", [None, 20])
@pytest.mark.parametrize("swapped", [False, True])
def test_rows_on_another_device_are_named(D, swapped, data):
    X, Y, _, new = data
    rows, other, y = tensor(X, "cpu"), new, tensor(Y[:, 0], "cpu")
    if swapped:
        rows, other, y = X, tensor(new, "cpu"), Y[:, 0]
    with dispatch():
        model = rk.GaussianProcessRegressor(n_components=D, optimizer=None).fit(rows, y)
        for call in (
            lambda: model.predict(other, return_std=True),
            lambda: model.predict(other, return_cov=True),
            lambda: model.sample_y(other),
            lambda: model.sample_paths()(other),
            lambda: model.condition_on(other, y[:9] if swapped else Y[:9, 0]),
        ):
            with pytest.raises(ValueError, match="the model was fitted on a"):
                call()
