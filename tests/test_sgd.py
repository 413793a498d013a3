"""Stochastic gradients: step lengths that suit any penalty."""

import numpy as np
import pytest

import randkern as rk


@pytest.mark.parametrize("alpha", [1.0, 3e3, 1e6])
def test_large_penalties_do_not_diverge(rng, alpha):
    X = rng.normal(size=(2000, 8))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    options = {"alpha": alpha, "n_components": 200, "random_state": 0}
    kernel = rk.Gaussian(2.0)
    direct = rk.KernelRidgeRegressor(kernel, solver="cholesky", **options).fit(X, y)
    steps = rk.KernelRidgeRegressor(kernel, solver="sgd", **options).fit(X, y)
    apart = np.abs(steps.predict(X) - direct.predict(X)).max()
    assert apart < 0.3 * np.abs(direct.predict(X)).max()
    batches = rk.KernelRidgeRegressor(kernel, solver="sgd", **options)
    for part in np.array_split(np.arange(2000), 4):
        batches.partial_fit(X[part], y[part])
    assert np.abs(batches.coef_).max() < 10 * np.abs(direct.coef_).max()
