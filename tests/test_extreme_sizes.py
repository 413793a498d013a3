"""Ridge models of linear targets, and of enormous and tiny numbers of all kinds.

A fit is right, or warns, or raises an error that names what to do.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import randkern as rk
from randkern.solvers import PCG

KERNEL = rk.Matern(1.5, 2e4) + 1e5 * rk.Linear()
LINES = {
    "ten rows": (np.linspace(0, 10, 10)[:, None], lambda X: 2 * X[:, 0]),
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
@pytest.mark.parametrize("alpha", [1e-9, 1e-6])
@pytest.mark.parametrize(
    "model",
    [
        "cholesky",
        pytest.param("pcg", marks=pytest.mark.nightly),
        pytest.param("search", marks=pytest.mark.nightly),
    ],
)
def test_linear_targets_are_fitted(line, n_components, alpha, model):
    """By a kernel of condition 1e16, whose constant part is 1e-9 of the rest."""
    X, truth = LINES[line]
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


@pytest.mark.parametrize("scale", [1e15, 1e30])
def test_exact_kernels_beyond_single_precision_are_named(scale, rng):
    X = (scale * rng.normal(size=(60, 3))).astype(np.float32)
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


# -- trials ------------------------------------------------------------------------

KERNELS = [
    rk.Gaussian(1.0),
    rk.Laplacian(1.0),
    rk.Optical(),
    rk.Polynomial(3, 1.0),
    1e5 * rk.Linear() + rk.Matern(1.5, 2.0),
]
N_TRIALS = 300


def trial(seed):
    """Return a model, rows, targets or labels, and weights, of any size."""
    rng = np.random.default_rng([20, seed])
    n, d = int(rng.integers(2, 80)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.choice([-150, -30, -5, 0, 5, 15, 18, 30])
    X = X.astype(rng.choice([np.float32, np.float64]))
    weight = None
    if rng.random() < 0.7:
        reach = rng.choice([1, 50, 150, 200, 300])
        weight = 10.0 ** rng.uniform(-reach, reach, n)
    labelled = rng.random() < 0.5
    y = rng.integers(0, 2 + rng.integers(3), size=n)
    if not labelled:
        reach = rng.choice([0, 50, 150, 200])
        y = rng.normal(size=n) * 10.0 ** rng.uniform(-reach, reach)
    cls = rk.KernelRidgeClassifier if labelled else rk.KernelRidgeRegressor
    n_components = [None, 7, 64, 200][rng.integers(4)]
    solvers = ["auto", "cholesky", "pcg"]
    model = cls(
        KERNELS[rng.integers(len(KERNELS))],
        10.0 ** rng.choice([-300, -9, -3, 0, 300]),
        n_components,
        solver=str(rng.choice(solvers)),
        features=str(rng.choice(["random", "nystrom"])),
        fit_intercept=bool(rng.random() < 0.5),
        random_state=0,
    )
    return model, X, y, weight


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_trials_end_with_a_finite_answer_or_an_error_that_has_a_name(part):
    """Of 300 fits each ends within 60 s, by numbers, ValueError or MemoryLimitError."""
    for seed in range(part, N_TRIALS, 10):
        model, X, y, weight = trial(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(X, y, weight)
                predictions = [model.predict(X)]
                if is_classifier(model):
                    P = model.predict_proba(X)
                    np.testing.assert_allclose(P.sum(axis=1), 1.0, err_msg=str(seed))
                else:
                    predictions.append(model.predict_interval(X, 0.5))
                    assert not np.isnan(predictions[1]).any(), seed
            except (ValueError, MemoryError, FloatingPointError) as error:
                assert len(str(error)) > 20, (seed, error)
                continue
        if not is_classifier(model):
            assert np.isfinite(predictions[0]).all(), seed
