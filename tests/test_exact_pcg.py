"""The exact kernel by conjugate gradients gives what its factorisation gives."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from randkern.models import linear_operators, memory
from randkern.solvers import PCG, Outcome

N, WIDTH = 210, 6
KERNELS = {
    "gaussian": rk.Gaussian(2.0),
    "ard": rk.Gaussian(np.array([1.0, 2, 3, 1, 2, 3])),
    "laplacian": rk.Laplacian(5.0),
    "matern": rk.Matern(1.5, 3.0),
    "cauchy": rk.Cauchy(4.0),
    "optical": rk.Optical(degree=2, bias=1.0),
    "linear": rk.Linear(),
    "sum": rk.Gaussian(2.0) + 0.5 * rk.Linear(),
    "product": rk.Gaussian(3.0) * rk.Laplacian(8.0),
    "columns": rk.Gaussian(2.0, columns=[0, 1]) + rk.Laplacian(4.0, columns=[3]),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles, the last of another size."""
    for module in (linear_operators, memory):
        monkeypatch.setattr(module, "KERNEL_TILE", 64)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N, WIDTH))
    y = np.column_stack([np.sin(X[:, 0]) + 3, X[:, 1] * X[:, 2]])
    return X, y + 0.1 * rng.normal(size=y.shape)


@pytest.fixture
def weight(rng):
    weight = rng.uniform(0, 3, N)
    weight[:9] = 0
    weight[150:] = 0  # a whole tile
    weight[50] = 100.0
    return weight


def regressor(kernel=KERNELS["gaussian"], solver="cholesky", **parameters):
    parameters = {"alpha": 0.5} | parameters
    return rk.KernelRidgeRegressor(
        kernel, n_components=None, solver=solver, random_state=0, **parameters
    )


def assert_predict_alike(iterated, direct, X, tolerance):
    expected = direct.predict(X)
    apart = np.abs(iterated.predict(X) - expected).max()
    assert apart <= tolerance * np.abs(expected).max()


TIGHT = {"tol": 1e-10, "rank": 20, "max_iter": 500}


@pytest.mark.parametrize(
    ("name", "fit_intercept"),
    [("gaussian", False), ("laplacian", True), ("optical", False), ("sum", True)],
)
def test_single_precision(name, fit_intercept, table, weight):
    X, y = table
    X = X.astype(np.float32)
    direct = regressor(KERNELS[name], fit_intercept=fit_intercept)
    direct.fit(X, y, sample_weight=weight)
    iterated = regressor(
        KERNELS[name], PCG(tol=1e-5, rank=20), fit_intercept=fit_intercept
    )
    if name == "optical":  # of values up to 1e4: a residual of 1e-4 is what is left
        with pytest.warns(ConvergenceWarning, match="rounding errors"):
            iterated.fit(X, y, sample_weight=weight)
        assert iterated.solution_.outcome is Outcome.ROUNDED
    else:
        iterated.fit(X, y, sample_weight=weight)
        assert iterated.solution_.outcome is Outcome.CONVERGED
    assert_predict_alike(iterated, direct, X, 3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("tile", [2048, N - 1, 64])
def test_rows_need_not_fill_the_tiles(tile, table, weight, monkeypatch):
    for module in (linear_operators, memory):
        monkeypatch.setattr(module, "KERNEL_TILE", tile)
    X, y = table
    direct = regressor().fit(X, y, sample_weight=weight)
    iterated = regressor(solver=PCG(**TIGHT)).fit(X, y, sample_weight=weight)
    assert_predict_alike(iterated, direct, X, 1e-7)


@pytest.mark.slow
def test_auto_iterates_where_the_gram_matrix_does_not_fit(rng):
    X = rng.normal(size=(2500, 3))
    y = np.sin(X[:, 0])
    model = regressor(solver="auto", memory_limit="25MB").fit(X, y)
    assert model.solution_.outcome is Outcome.CONVERGED
    direct = regressor(solver="auto").fit(X, y)
    assert direct.solution_.outcome is Outcome.SUCCESS
    # The default tolerance: a hundredth of the targets' standard deviation.
    assert np.abs(model.predict(X) - direct.predict(X)).max() < 0.1 * y.std()
    assert np.sqrt(np.mean((model.predict(X) - direct.predict(X)) ** 2)) < 0.01


# The residual of a dual system is the error of the targets, which can all be met.
@pytest.mark.parametrize(
    ("dtype", "tol", "apart"),
    [
        (np.float64, None, 1e-2),  # of the standard deviation
        (np.float32, None, 1e-2),
        (np.float64, 1e-6, 1e-6),
        (np.float64, 1e-9, 1e-9),
    ],
)
def test_repeated_rows_and_a_tiny_penalty(dtype, tol, apart, table):
    X, y = table
    X, y = np.tile(X[:70], (3, 1)).astype(dtype), np.tile(y[:70], (3, 1))
    model = regressor(solver=PCG(tol=tol), alpha=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(X, y)
    assert model.solution_.outcome is Outcome.CONVERGED
    errors = np.sqrt(np.mean((model.predict(X) - y) ** 2, axis=0))
    sizes = y.std(axis=0) if tol is None else np.sqrt(np.mean(y**2, axis=0))
    assert np.all(errors <= 1.1 * apart * sizes)


def test_what_single_precision_cannot_reach_warns(table):
    """Too small a tolerance on a singular matrix: a warning, and no wrong answer."""
    X, y = table
    X, y = np.tile(X[:70], (3, 1)).astype(np.float32), np.tile(y[:70], (3, 1))
    model = regressor(solver=PCG(tol=1e-9, max_iter=60), alpha=1e-12)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert model.solution_.outcome in (
        Outcome.ILL_CONDITIONED,
        Outcome.ITERATION_LIMIT,
    )
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)


def test_a_kernel_that_is_nearly_constant_in_single_precision(rng):
    """Rounding errors of products exceed the penalty: jitter is added, with a warning.

    Without it the iterates are worse than weights of 0, whose error is .5 here.
    """
    X = rng.normal(size=(600, 20)).astype(np.float32)
    labels = X[:, 0] + 0.3 * X[:, 1] > 0
    kernel = rk.Optical(degree=4, bias=3000.0)
    model = rk.KernelRidgeClassifier(kernel, 1e-6, n_components=None, solver="pcg")
    with pytest.warns(ConvergenceWarning):
        model.fit(X[:400], labels[:400])
    assert model.solution_.jitter > 0
    assert model.score(X[400:], labels[400:]) > 0.85


def test_an_early_stop_by_the_user_adds_no_jitter(table):
    X, y = table
    model = regressor(solver=PCG(tol=1e-10, max_iter=2), alpha=0.5)
    with pytest.warns(ConvergenceWarning, match="limit of iterations"):
        model.fit(X, y)
    assert model.solution_.jitter == 0
