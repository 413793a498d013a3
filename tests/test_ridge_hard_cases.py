"""Kernel ridge regression where digits run out, and with many features.

Float32 sums over many rows, singular systems, huge and tiny numbers; then the
test error of random features against that of the exact kernel.
"""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone

import randkern as rk
from randkern.exceptions import FeatureErrorWarning, IllConditionedWarning
from randkern.plan import evaluate
from randkern.solvers import PCG, Outcome

SYSTEMS = pytest.mark.parametrize(
    "n_components", [20, 130, None], ids=["primal", "dual", "exact"]
)


@pytest.fixture
def rows(rng) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(60, 4))
    return X, np.sin(X[:, 0]) + X[:, 1]


# -- float32 ----------------------------------------------------------------------
@SYSTEMS
def test_float32_rows_keep_large_targets(rows, n_components):
    """Years, prices: the mean is subtracted before digits are dropped."""
    X, y = rows
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 0.1, n_components, fit_intercept=True, random_state=0
    )
    expected = model.fit(X, y).predict(X)
    for offset in (0.0, 1e3, 1e6, 1e9):
        model.fit(X.astype(np.float32), y + offset)
        error = np.abs(model.predict(X) - offset - expected).max()
        assert error < 1e-4 + 1e-15 * offset, f"offset {offset}"


@pytest.mark.slow
@SYSTEMS
@pytest.mark.parametrize("factor", [1e-29, 1e29])
def test_scale_of_the_weights(rows, n_components, factor):
    """α·c and weights·c have the same minimiser."""
    X, y = rows
    weights = np.linspace(0, 2, len(X))
    options = {"n_components": n_components, "random_state": 0, "fit_intercept": True}
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, **options)
    expected = model.fit(X, y, weights).predict(X)
    model.set_params(alpha=0.1 * factor).fit(X, y, weights * factor)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


# -- singular systems -------------------------------------------------------------
def ridge_limit(gram: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Return K(K + αI)⁺y, what ridge regression fits, null space left out."""
    values, vectors = scipy.linalg.eigh(gram)
    selected = values > len(gram) * np.finfo(float).eps * values[-1]
    shares = np.where(selected, values / (np.where(selected, values, 1.0) + alpha), 0.0)
    return vectors @ (shares * (vectors.T @ y))


def fit_in_doubt(model, X: np.ndarray, y: np.ndarray) -> bool:
    """Fit; return whether a warning and the outcome put the answer in doubt."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    message = [w for w in caught if issubclass(w.category, IllConditionedWarning)]
    caught = [w for w in caught if not issubclass(w.category, FeatureErrorWarning)]
    assert bool(message) == (model.solution_.outcome is not Outcome.SUCCESS)
    assert len(caught) == len(message)
    return bool(message)


TINY_PENALTIES = pytest.mark.parametrize("alpha", [0.0, 1e-15, 1e-12, 1e-9])


@SYSTEMS
@TINY_PENALTIES
def test_duplicated_rows(rng, n_components, alpha):
    """Rows twice, with different targets: the fit is that of the mean target.

    The matrix is singular, the fit is not in doubt. Some digits are lost; when
    they are more than half, the outcome says so.
    """
    base = 2 * rng.normal(size=(25, 3))
    X, y = np.tile(base, (2, 1)), rng.normal(size=50)
    y[25:] = y[:25] + 0.1 * rng.normal(size=25)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(0.7), alpha, n_components, random_state=0
    )
    message = fit_in_doubt(model, X, y)
    if n_components is None:
        gram = model.kernel_(X)
    else:
        Z = evaluate(model.plan_, X)
        gram = Z @ Z.T
    error = np.abs(model.predict(X) - ridge_limit(gram, y, alpha)).max()
    assert error < (2e-3 if message else 1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["origin", "intercept"])
def test_least_squares_on_dependent_columns(rng, fit_intercept):
    """α = 0 on the linear kernel is least squares, also with a column twice."""
    X = rng.normal(size=(50, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0] + rng.normal(size=50) + 7
    design = np.column_stack([X, np.ones(50)]) if fit_intercept else X
    expected = design @ scipy.linalg.lstsq(design, y)[0]
    model = rk.KernelRidgeRegressor(
        rk.Linear(), alpha=0, n_components=4, fit_intercept=fit_intercept
    )
    np.testing.assert_allclose(model.fit(X, y).predict(X), expected, atol=1e-10)
    assert model.solution_.outcome is Outcome.SUCCESS
    twice = np.column_stack([X, X[:, 1]])
    model.set_params(n_components=5)
    assert fit_in_doubt(model, twice, y)
    np.testing.assert_allclose(model.predict(twice), expected, atol=1e-8)


@pytest.mark.slow
@SYSTEMS
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["origin", "intercept"])
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1.0])
def test_constant_rows(rows, n_components, fit_intercept, alpha):
    """All rows alike: the mean target, shrunk by n/(n + α) without an intercept."""
    X, y = np.full((60, 3), 5.0), rows[1] + 2
    model = rk.KernelRidgeRegressor(
        rk.Laplacian("median"), alpha, n_components, fit_intercept=fit_intercept,
        random_state=0,
    )  # fmt: skip
    message = fit_in_doubt(model, X, y)
    # Pairs of cos and sin are exactly normalised: k(x, x) = 1 for features too.
    expected = y.mean() if fit_intercept else y.mean() * 60 / (60 + alpha)
    error = np.abs(model.predict(X[:2]) - expected).max()
    assert error < (2e-3 if message else 1e-5)


@SYSTEMS
@pytest.mark.filterwarnings("ignore::randkern.exceptions.IllConditionedWarning")
def test_zero_rows(n_components):
    """k(0, ·) = 0 for optical and linear kernels: the prediction is 0."""
    X, y = np.zeros((30, 3)), np.ones(30)
    for kernel in (rk.Optical(2), rk.Optical(1) + rk.Linear()):
        for alpha in (0.0, 1.0):
            model = rk.KernelRidgeRegressor(kernel, alpha, n_components)
            np.testing.assert_array_equal(model.fit(X, y).predict(X), 0.0)
            model.set_params(fit_intercept=True)
            np.testing.assert_allclose(model.fit(X, y).predict(X), 1.0)


# -- targets far from 0 -----------------------------------------------------------
@pytest.mark.parametrize(
    ("cls", "fits"),
    [
        (rk.KernelRidgeRegressor, "fit"),
        (rk.KernelRidgeRegressor, "partial_fit"),
        (rk.KernelRidgeRegressorCV, "fit"),
    ],
)
def test_targets_far_from_zero_need_an_intercept(cls, fits, rows):
    """Without one, a fit warns; with one, near 0, and for a constant it does not."""
    X, y = rows
    model = partial(cls, n_components=20, random_state=0)
    with pytest.warns(UserWarning, match="fit_intercept=True"):
        getattr(model(), fits)(X, y + 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        getattr(model(fit_intercept=True), fits)(X, y + 100)
        getattr(model(), fits)(X, y + 2)
        getattr(model(), fits)(X, np.full(60, 100.0))


KERNEL = rk.Matern(1.5, 2e4) + 1e5 * rk.Linear()


LINES = {
    "degrees": (np.linspace(-30, 40, 60)[:, None], lambda X: 1.8 * X[:, 0] + 32),
    "columns": (
        np.random.default_rng(0).normal(size=(100, 3)),
        lambda X: X @ [1.0, 2.0, -3.0],
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::randkern.exceptions.IllConditionedWarning")
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n_components", [None, 50, 300])
@pytest.mark.parametrize("model", ["cholesky", "pcg", "search"])
def test_linear_targets_are_fitted(line, n_components, model):
    """By a kernel of condition 1e16, whose constant part is 1e-9 of the rest."""
    X, truth = LINES[line]
    alpha = 1e-9
    if model == "search":
        ridge = rk.KernelRidgeRegressorCV(KERNEL, [alpha], n_components, random_state=0)
    else:
        options = {"solver": model, "random_state": 0}
        if model == "pcg":
            options["solver"] = PCG(tol=1e-7)
        ridge = rk.KernelRidgeRegressor(KERNEL, alpha, n_components, **options)
    y = truth(X)
    ridge.fit(X, y)
    between = (X[1:] + X[:-1]) / 2
    for rows in (X, between):
        assert abs(ridge.predict(rows) - truth(rows)).max() < 1e-5 * abs(y).max()
    assert ridge.solution_.residual < 1e-5


@pytest.mark.filterwarnings("ignore::randkern.exceptions.IllConditionedWarning")
@pytest.mark.parametrize("alpha", [1e-9, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_residuals_are_those_of_the_dense_system(alpha, scale, rng):
    """Of the system without jitter, in extended precision."""
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0])
    kernel = scale * rk.Gaussian(3.0)
    model = rk.KernelRidgeRegressor(kernel, alpha, None, solver="cholesky").fit(X, y)
    K = kernel(X).astype(np.longdouble)
    left = y - (K @ model.dual_coef_ + alpha * model.dual_coef_)
    expected = float(np.sqrt((left**2).sum() / (y**2).sum()))
    assert abs(model.solution_.residual - expected) < 1e-6 + 0.1 * expected


SIZES = [1e90, 1e-90, 1.0]


@pytest.mark.parametrize("solver", ["cholesky", PCG(tol=1e-9)], ids=str)
@pytest.mark.parametrize("n_components", [20, None])
def test_targets_of_different_sizes_are_fitted_together(solver, n_components, rng):
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    options = {"alpha": 0.01, "n_components": n_components, "random_state": 0}
    model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), solver=solver, **options)
    model.fit(X, np.outer(y, SIZES))
    single = rk.KernelRidgeRegressor(rk.Gaussian(1.0), solver="cholesky", **options)
    expected = single.fit(X, y).predict(X)
    np.testing.assert_allclose(
        model.predict(X) / SIZES, np.outer(expected, np.ones(3)), atol=1e-4
    )
    ends = model.predict_interval(X, 0.8) / np.array(SIZES)[:, None]
    np.testing.assert_allclose(ends[:, 1], ends[:, 2], rtol=1e-6)


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize(
    "model",
    [
        rk.KernelRidgeRegressor(n_components=20),
        rk.KernelRidgeRegressor(n_components=None, fit_intercept=True),
        rk.KernelRidgeRegressor(n_components=20, solver="pcg"),
        rk.KernelRidgeRegressorCV(n_components=20),
        rk.GaussianProcessRegressor(n_components=20, normalize_y=True),
    ],
)
def test_targets_whose_squares_leave_the_range_are_refused(model, size, rng):
    X = rng.normal(size=(30, 3))
    y = size * X[:, 0]
    for rows in ((X, y), (rk.RowBlocks([(X, y)]),)):
        if model.n_components is None or hasattr(model, "alphas"):
            rows = (X, y)
        with pytest.raises(ValueError, match=r"targets are of size .*e.200.*Divide y"):
            clone(model).fit(*rows)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("weight", [1e200, 1e300])
@pytest.mark.parametrize("model", [rk.KernelSVR, rk.KernelQuantileRegressor])
def test_losses_beyond_the_range_of_floats_are_named(model, weight, rng):
    """Squares of dual variables would overflow: quantiles were of size 1e184."""
    X = rng.normal(size=(40, 3))
    weights = np.where(np.arange(40) % 2, weight, 1 / weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="divide the weights by their mean"):
            model(rk.Gaussian(3.0), n_components=20, random_state=0).fit(
                X, X[:, 0], weights
            )


def test_weights_of_the_smallest_size_that_is_allowed(rng):
    X = rng.normal(size=(40, 3))
    model = rk.KernelSVC(rk.Gaussian(3.0), n_components=20, random_state=0)
    model.fit(X, X[:, 0] > 0, np.full(40, 1 / 1e30))
    assert np.isfinite(model.decision_function(X)).all()
    with pytest.raises(ValueError, match="expected a number from 1e-30"):
        model.fit(X, X[:, 0] > 0, np.full(40, 0.9e-30))


def test_exact_kernels_beyond_single_precision_are_named(rng):
    X = (1e15 * rng.normal(size=(60, 3))).astype(np.float32)
    model = rk.KernelRidgeRegressor(rk.Optical(), n_components=None, solver="pcg")
    with pytest.raises(ValueError, match="Optical overflow float32; scale the input"):
        model.fit(X, rng.normal(size=60))


def test_residuals_are_compared_with_the_smaller_size():
    class Diagonal:
        size = 50

        def matmat(self, V):
            return np.logspace(0, 4, 50)[:, None] * V

    b = np.random.default_rng(0).normal(size=50)
    norm = np.linalg.norm(b)
    for size in (1e-3 * norm, 1e3 * norm, 0.0):
        solver = PCG(tol=1e-6, rank=0)
        state = solver.init(Diagonal(), shift=1.0)
        x = solver.solve(state, b, sizes=np.array([size])).value
        left = np.linalg.norm(b - (np.logspace(0, 4, 50) + 1) * x)
        assert left <= 1e-6 * min(size or norm, norm) * (1 + 1e-6)
