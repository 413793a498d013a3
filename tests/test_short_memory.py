"""Iterative solvers where memory is short: smaller blocks."""

import tracemalloc
import warnings

import numpy as np
import pytest

import randkern as rk
from randkern.solvers import PCG


def model(solver, limit, n_components=300, projection="auto"):
    return rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 1e-2, n_components, solver=solver, projection=projection,
        memory_limit=limit, random_state=0,
    )  # fmt: skip


def fit(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, y)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(1500, 8))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2


SOLVERS = {"PCG": PCG(max_iter=3)}
EVERY_SOLVER = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def test_smaller_blocks_give_the_same_weights(table):
    X, y = table
    solver = PCG(tol=1e-9, max_iter=3)
    wide = fit(model(solver, "100MB"), X, y)
    for limit in ("5MB", "2.5MB"):
        narrow = fit(model(solver, limit), X, y)
        np.testing.assert_allclose(narrow.coef_, wide.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@EVERY_SOLVER
@pytest.mark.parametrize("limit", [2.5e6, 4e6, 12e6])
def test_a_fit_stays_within_a_short_limit(solver, limit, table):
    X, y = table
    fit(model(solver, limit), X, y)  # what is compiled or imported once
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fit(model(solver, limit), X, y)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    # Copies of the targets, and of the rows of a batch.
    assert peak < limit + 5 * (X.nbytes + y.nbytes)
