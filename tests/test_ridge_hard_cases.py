"""Kernel ridge regression where digits run out, and with many features.

Float32 sums over many rows, singular systems, huge and tiny numbers; then the
test error of random features against that of the exact kernel.
"""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import randkern as rk
from randkern.exceptions import FeatureErrorWarning, IllConditionedWarning
from randkern.plan import evaluate
from randkern.solvers import Outcome

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
@pytest.mark.parametrize("factor", [1e-29, 1e-9, 1e9, 1e29])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale_of_the_weights(rows, n_components, factor, dtype):
    """α·c and weights·c have the same minimiser."""
    X, y = rows
    weights = np.linspace(0, 2, len(X))
    options = {"n_components": n_components, "random_state": 0, "fit_intercept": True}
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, **options)
    expected = model.fit(X.astype(dtype), y, weights).predict(X)
    model.set_params(alpha=0.1 * factor).fit(X.astype(dtype), y, weights * factor)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


# -- huge and tiny rows -----------------------------------------------------------


@SYSTEMS
@pytest.mark.parametrize(
    "kernel",
    [rk.Gaussian, rk.Laplacian, rk.Cauchy, rk.Matern, rk.RationalQuadratic],
)
def test_rows_far_apart(rows, n_components, kernel):
    """The kernel of rows 1e200 apart is 0, not NaN."""
    X, y = rows
    model = rk.KernelRidgeRegressor(
        kernel(lengthscale=1.0), 1.0, n_components, random_state=0
    )
    predicted = model.fit(X * 1e200, y).predict(X * 1e200)
    assert np.all(np.isfinite(predicted))
    if n_components is None:
        np.testing.assert_allclose(predicted, y / 2, atol=1e-6)


@SYSTEMS
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_optical_kernels_at_the_edges_of_the_range(rows, n_components):
    X, y = rows
    model = rk.KernelRidgeRegressor(
        rk.Optical(2), n_components=n_components, alpha=1.0, random_state=0
    )
    with pytest.raises(ValueError, match="[Ss]cale the input down"):
        model.fit(X * 1e150, y)
    # k(x, y) ~ 1e-600 is nothing beside alpha.
    np.testing.assert_array_equal(model.fit(X * 1e-150, y).predict(X * 1e-150), 0)
    # In between, scaling the rows by c is scaling alpha by c⁻⁴.
    expected = model.fit(X, y).predict(X)
    for factor in (1e-60, 1e60):
        model.set_params(alpha=float(factor**4)).fit(X * factor, y)
        np.testing.assert_allclose(model.predict(X * factor), expected, atol=1e-6)


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
@pytest.mark.parametrize(
    "kernel", [None, rk.Gaussian(2.0), rk.Laplacian("median")], ids=str
)
def test_constant_rows(rows, n_components, fit_intercept, alpha, kernel):
    """All rows alike: the mean target, shrunk by n/(n + α) without an intercept."""
    X, y = np.full((60, 3), 5.0), rows[1] + 2
    model = rk.KernelRidgeRegressor(
        kernel, alpha, n_components, fit_intercept=fit_intercept, random_state=0
    )
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


@SYSTEMS
def test_interpolation(rows, n_components):
    """As α → 0 with distinct rows the dual and exact systems interpolate."""
    X, y = rows
    model = rk.KernelRidgeRegressor(
        rk.Laplacian(1.0), alpha=1e-10, n_components=n_components, random_state=0
    )
    residual = np.abs(model.fit(X, y).predict(X) - y).max()
    assert residual > 1e-2 if n_components == 20 else residual < 1e-6


@SYSTEMS
def test_large_penalty_shrinks_to_nothing(rows, n_components):
    X, y = rows
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 1e12, n_components, random_state=0
    )
    assert np.abs(model.fit(X, y).predict(X)).max() < 1e-9
    model.set_params(fit_intercept=True)
    np.testing.assert_allclose(model.fit(X, y).predict(X), y.mean(), atol=1e-9)


@SYSTEMS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_targets(rows, n_components, dtype):
    X, _ = rows
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 0.1, n_components, fit_intercept=True, random_state=0
    )
    predicted = model.fit(X.astype(dtype), np.full(60, 3.0)).predict(X + 5)
    np.testing.assert_allclose(predicted, 3.0, atol=1e-5 if dtype == np.float32 else 0)
    assert model.solution_.outcome is Outcome.SUCCESS


@SYSTEMS
def test_one_row_and_one_column(n_components):
    model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), 1.0, n_components, random_state=0)
    predicted = model.fit([[3.0]], [4.0]).predict([[3.0]])
    # k(x, x) = 1, also of the features: 4·1/(1 + α).
    np.testing.assert_allclose(predicted, 2.0, rtol=1e-12)
    model.set_params(fit_intercept=True)
    np.testing.assert_allclose(model.fit([[3.0]], [4.0]).predict([[8.0]]), 4.0)


def test_one_feature(rows):
    X, y = rows
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), alpha=0.5, n_components=1, random_state=0
    ).fit(X, y)
    z = evaluate(model.plan_, X)[:, 0]
    np.testing.assert_allclose(model.coef_, [z @ y / (z @ z + 0.5)], rtol=1e-10)
    np.testing.assert_allclose(model.predict(X), z * model.coef_[0], rtol=1e-10)


# -- many features reach the exact kernel -----------------------------------------


@pytest.mark.slow
def test_error_on_digits_approaches_the_exact_kernel():
    """Error falls with D, to within 1 % of the exact kernel's."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32) / 16
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=900, random_state=0
    )

    def error(n_components, seed=None) -> float:
        model = rk.KernelRidgeClassifier(
            rk.Gaussian(2.0), 1e-2, n_components, random_state=seed
        )
        return 1 - model.fit(X_train, y_train).score(X_test, y_test)

    errors = [
        np.mean([error(n_components, seed) for seed in range(3)])
        for n_components in (20, 60, 180, 540, 2400)
    ]
    exact = error(None)
    assert exact < 0.02
    assert np.all(np.diff(errors) < 0.003), f"errors {errors} do not fall"
    assert errors[0] > 0.1
    assert abs(errors[-1] - exact) < 0.01


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
