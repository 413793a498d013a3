"""Stochastic gradients: the length of steps, their end, and the order of rows."""

import itertools
import warnings

import numpy as np
import pytest

import randkern as rk
from randkern.solvers import SGD, Outcome


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


@pytest.mark.parametrize("frequency", [1, 3])
def test_rows_far_out_do_not_hold_up_the_others(frequency):
    X = np.random.default_rng(0).normal(size=(1500, 1))
    y = np.sin(frequency * X[:, 0])
    options = {"alpha": 1e-2, "n_components": 300, "random_state": 0}
    model = rk.KernelRidgeRegressor(rk.Gaussian(0.3), solver="sgd", **options)
    assert model.fit(X, y).score(X, y) > 0.99


@pytest.mark.parametrize("rank", [0, 6, 16])
def test_what_has_hardly_begun_has_not_converged(rank):
    # With so many eigenpairs, steps are short of what the leading directions need.
    X = np.random.default_rng(0).normal(size=(1500, 1))
    y = np.sin(X[:, 0])
    for lengthscale, alpha in itertools.product([0.3, 2.0], [1e-2, 1e-4]):
        model = rk.KernelRidgeRegressor(
            rk.Gaussian(lengthscale), alpha, 300, solver=SGD(rank=rank), random_state=0
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            score = model.fit(X, y).score(X, y)
        outcome = model.solution_.outcome
        assert outcome is Outcome.ITERATION_LIMIT or score > 0.95
        assert bool(caught) == (outcome is Outcome.ITERATION_LIMIT)


def test_convergence_is_claimed_near_the_least_loss():
    X = np.random.default_rng(0).normal(size=(1500, 8))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    options = {"alpha": 1.0, "n_components": 300, "random_state": 0}

    def loss(solver):
        model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), solver=solver, **options)
        model.fit(X, y)
        penalty = np.sum(model.coef_**2)
        return np.sum((y - model.predict(X)) ** 2) + penalty, model.solution_

    least, _ = loss("cholesky")
    reached, solution = loss("sgd")
    assert solution.outcome is Outcome.LOSS_CONVERGED
    assert reached < 1.05 * least
