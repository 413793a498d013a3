"""`NystromFeatures`: exact on landmarks, best elsewhere, rightly distributed."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import randkern as rk
from randkern._random import Stream
from randkern.exceptions import MemoryLimitError
from randkern.landmarks import choose_landmarks, landmark_plan
from randkern.plan import evaluate
from randkern.solvers import PCG

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4))
NEW = RNG.normal(size=(20, 4))
KERNELS = [
    rk.Gaussian(2.0),
    rk.Laplacian(3.0, columns=[0, 1]) + 0.5 * rk.Linear(),
    rk.Optical(2, bias=1.0),
    rk.Gaussian(1.5) * rk.Polynomial(2, 1.0),
]


def nystrom(kernel=None, n_components=20, **options):
    return rk.NystromFeatures(kernel, n_components, **({"random_state": 0} | options))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("landmarks", ["uniform", "rpcholesky", "auto", X[:15]])
def test_products_are_the_best_approximation(kernel, landmarks):
    features = nystrom(kernel, landmarks=landmarks).fit(X)
    L = features.landmarks_
    rows = np.vstack([L, NEW])
    Z = features.transform(rows)
    values = kernel(L, rows)
    expected = values.T @ np.linalg.pinv(kernel(L), rcond=1e-12) @ values
    size = np.abs(kernel(rows)).max()
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-7 * size)
    # Exact on landmarks, and never above the kernel.
    m = len(L)
    np.testing.assert_allclose((Z @ Z.T)[:m], kernel(L, rows), atol=1e-7 * size)
    assert np.linalg.eigvalsh(kernel(rows) - Z @ Z.T)[0] > -1e-9 * size


@pytest.mark.nightly
def test_pivots_follow_the_distribution_of_randomly_pivoted_cholesky():
    rows = np.array([[0.0], [0.1], [0.5], [2.0], [2.1]])
    kernel = rk.Gaussian(0.7) * rk.Polynomial(1, 0.3)  # unequal diagonal
    K = kernel(rows)
    expected = np.zeros((5, 5))
    for i, j in itertools.permutations(range(5), 2):
        left = np.diag(K) - K[:, i] ** 2 / K[i, i]
        expected[i, j] = K[i, i] / np.trace(K) * left[j] / left.sum()
    assert expected.sum() == pytest.approx(1)
    n = 20_000
    counts = np.zeros((5, 5))
    for seed in range(n):
        chosen = choose_landmarks(kernel, rows, None, 2, "rpcholesky", Stream(seed))
        counts[min(chosen), max(chosen)] += 1
    expected = np.triu(expected + expected.T)  # in either order
    likely = expected > 1e-4
    distance = ((counts - n * expected)[likely] ** 2 / (n * expected[likely])).sum()
    assert distance < chi2.isf(1e-6, likely.sum() - 1)


def test_pivots_find_the_few_rows_that_differ():
    # 2,000 rows in one place, and ten elsewhere: a uniform choice misses most of them.
    rows = np.vstack([0.01 * RNG.normal(size=(2000, 2)), 9.0 * np.eye(2)[[0, 1]]])
    rows = np.vstack([rows, [[x, y] for x in (30, 60) for y in (0, 30, 60, 90)]])
    kernel = rk.Gaussian(1.0)
    for seed in range(5):
        features = nystrom(kernel, 14, random_state=seed, landmarks="rpcholesky")
        Z = features.fit_transform(rows)
        assert np.abs(1 - (Z**2).sum(axis=1)).max() < 0.05
        features.set_params(landmarks="uniform")
        assert np.abs(1 - (features.fit_transform(rows) ** 2).sum(axis=1)).max() > 0.9


def test_equal_rows_give_fewer_features():
    rows = np.repeat(X[:5], 8, axis=0)
    for landmarks in ("uniform", "rpcholesky", rows):
        features = nystrom(rk.Gaussian(2.0), 30, landmarks=landmarks).fit(rows)
        Z = features.transform(rows)
        assert Z.shape[1] <= 5
        assert len(features.get_feature_names_out()) == Z.shape[1]
        if not isinstance(landmarks, str) or landmarks == "rpcholesky":
            np.testing.assert_allclose(Z @ Z.T, rk.Gaussian(2.0)(rows), atol=1e-7)
    few = nystrom(rk.Gaussian(2.0), 1000).fit_transform(X)
    np.testing.assert_allclose(few @ few.T, rk.Gaussian(2.0)(X), atol=1e-7)


def test_rows_of_weight_zero_are_not_landmarks():
    weight = np.where(np.arange(60) < 30, 0.0, RNG.uniform(1, 2, 60))
    for how in ("uniform", "rpcholesky"):
        rows = choose_landmarks(rk.Gaussian(2.0), X, weight, 20, how, Stream(0))
        assert len(set(rows)) == 20
        assert rows.min() >= 30


def test_bad_arguments():
    with pytest.raises(ValueError, match="landmarks"):
        nystrom(landmarks="best").fit(X)
    with pytest.raises(ValueError, match=r"landmarks are .* 2 features"):
        nystrom(landmarks=X[:3, :2]).fit(X)
    with pytest.raises(ValueError, match=r"landmarks are .* contains NaN"):
        nystrom(landmarks=np.nan * X[:3]).fit(X)
    with pytest.raises(ValueError, match="n_components"):
        nystrom(n_components=0).fit(X)
    for how in ("uniform", "rpcholesky"):
        with pytest.raises(ValueError, match=r"Linear.* is 0 on all rows"):
            nystrom(rk.Linear(), landmarks=how).fit(0 * X)
    with pytest.raises(MemoryLimitError, match="landmarks"):
        landmark_plan(rk.Gaussian(1.0), X, None, 50, Stream(0), memory_limit=10_000)
    with pytest.raises(NotFittedError):
        _ = nystrom().landmarks_


# -- models ---------------------------------------------------------------------------

Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
OPTIONS = {
    "nystrom": ({"features": "nystrom"}, nystrom(rk.Gaussian(2.0))),
    "offset": (
        {"fourier": "offset"},
        rk.RandomFeatures(rk.Gaussian(2.0), 20, fourier="offset", random_state=0),
    ),
}


def fitted(model, y=Y, **options):
    return model(rk.Gaussian(2.0), n_components=20, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize("solver", ["cholesky", PCG(tol=1e-10)])
@pytest.mark.parametrize("name", OPTIONS)
def test_ridge_is_that_of_scikit_learn_on_the_features(name, solver):
    options, features = OPTIONS[name]
    model = fitted(rk.KernelRidgeRegressor, alpha=0.1, solver=solver, **options)
    Z = features.fit(X).transform(X)
    expected = Ridge(alpha=0.1, fit_intercept=False).fit(Z, Y)
    values = expected.predict(features.transform(NEW))
    np.testing.assert_allclose(model.predict(NEW), values, atol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "model",
    [rk.KernelRidgeClassifier, rk.KernelRidgeRegressorCV, rk.KernelSVC],
)
def test_models_are_fitted_on_the_features(model, name):
    options, features = OPTIONS[name]
    y = Y if model is rk.KernelRidgeRegressorCV else Y > 0
    got = fitted(model, y, **options)
    Z = features.fit(X).transform(NEW)
    values = getattr(got, "decision_function", got.predict)(NEW)
    np.testing.assert_allclose(Z @ got.coef_ + got.intercept_, values, atol=1e-9)
    again = pickle.loads(pickle.dumps(got))
    assert np.array_equal(again.predict(NEW), got.predict(NEW))


def test_streams_and_batches_have_landmarks_too():
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 0.1, 20, features="nystrom", random_state=0
    )
    batches = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    streamed = clone(model).fit(rk.RowBlocks(batches))
    added = clone(model).partial_fit(*batches[0]).partial_fit(*batches[1])
    for got, rows in ((streamed, X), (added, X[:30])):
        L = got.plan_.groups[0].factors[0].projection.rows
        assert len(L) == 20
        assert all((row == rows).all(axis=1).any() for row in L)
        ridge = Ridge(alpha=0.1, fit_intercept=False).fit(evaluate(got.plan_, X), Y)
        expected = ridge.predict(evaluate(got.plan_, NEW))
        np.testing.assert_allclose(got.predict(NEW), expected, atol=1e-7)


@pytest.mark.parametrize("solver", ["cholesky", PCG(tol=1e-4)])
@pytest.mark.filterwarnings("ignore:rounding errors")
def test_single_precision_is_as_good(solver):
    """Landmarks that are nearly dependent, and a penalty that does not help."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 3)).astype(np.float32)
    y = np.sin(rows[:, 0]) + 0.1 * rng.normal(size=1000)
    new = rng.normal(size=(200, 3)).astype(np.float32)
    options = {"features": "nystrom", "random_state": 0, "n_components": 100}
    options |= {"kernel": rk.Gaussian(3.0), "alpha": 1e-2}
    single = rk.KernelRidgeRegressor(**options, solver=solver).fit(rows, y)
    double = rk.KernelRidgeRegressor(**options).fit(rows.astype(float), y)
    difference = single.predict(new) - double.predict(new.astype(float))
    assert np.sqrt(np.mean(difference**2)) < 2e-3  # a fiftieth of the noise


# -- Gaussian processes ---------------------------------------------------------------


def process(model=rk.GaussianProcessRegressor, n_components=60, **options):
    options = {"features": "nystrom", "random_state": 0} | options
    return model(1.5 * rk.Gaussian(2.0), n_components=n_components, **options)


@pytest.mark.parametrize("optimizer", [None, "l-bfgs-b"])
def test_processes_with_all_rows_as_landmarks_are_exact(optimizer):
    options = {"noise": 0.05, "optimizer": optimizer, "n_restarts_optimizer": 0}
    got = process(**options).fit(X, Y)
    exact = process(n_components=None, features="random", **options).fit(X, Y)
    far = np.vstack([NEW, 50 + NEW])
    np.testing.assert_allclose(got.theta_, exact.theta_, rtol=1e-9)
    for which in ({"return_std": True}, {"return_cov": True}):
        for ours, theirs in zip(
            got.predict(far, **which), exact.predict(far, **which), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert got.log_marginal_likelihood_value_ == pytest.approx(
        exact.log_marginal_likelihood_value_, rel=1e-6
    )


def test_landmarks_are_those_of_the_learned_kernel():
    model = process(n_components=20).fit(X, Y)
    assert model.theta_[1] != pytest.approx(np.log(2.0))
    L = model.plan_.groups[0].factors[0].projection.rows
    Z = evaluate(model.plan_, L)
    np.testing.assert_allclose(Z @ Z.T, model.kernel_(L), atol=1e-7)


def test_processes_of_labels():
    got = process(rk.GaussianProcessClassifier, optimizer=None).fit(X, Y > 0)
    exact = process(
        rk.GaussianProcessClassifier, None, features="random", optimizer=None
    ).fit(X, Y > 0)
    rows = np.vstack([NEW, 50 + NEW])
    expected = exact.predict_proba(rows)
    np.testing.assert_allclose(got.predict_proba(rows), expected, atol=1e-5)
    few = process(rk.GaussianProcessClassifier, 10, optimizer=None).fit(X, Y > 0)
    np.testing.assert_allclose(few.predict_proba(100 + NEW), 0.5, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1e-3, 0.2])
def test_landmarks_of_an_optical_kernel_are_solved_accurately(alpha):
    """Penalties are lost in kernel values of single precision, of very many sizes."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    models = [
        rk.KernelRidgeClassifier(
            rk.Optical(2),
            alpha,
            1000,
            features="nystrom",
            solver=solver,
            random_state=0,
        ).fit(X[:1300], y[:1300])
        for solver in ("pcg", "cholesky")
    ]
    iterated, direct = (model.score(X[1300:], y[1300:]) for model in models)
    assert iterated > direct - 0.01
    assert models[0].solution_.iterations <= 30


def test_landmarks_that_do_not_fit_in_memory_keep_their_digits():
    """In 16 bits, values at landmarks would lose a small penalty."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(6000, 2)).astype(np.float32)
    y = np.sin(9 * X[:, 0]) * np.cos(7 * X[:, 1]) + 0.05 * rng.normal(size=len(X))
    models = [
        rk.KernelRidgeRegressor(
            rk.Gaussian(0.2),
            6e-4,
            200,
            features="nystrom",
            solver=solver,
            memory_limit=limit,
            random_state=0,
        ).fit(X, y)
        for solver, limit in (("pcg", "9MB"), ("cholesky", "1GB"))
    ]
    assert models[0].solution_.iterations <= 30
    iterated, direct = (model.predict(X) for model in models)
    assert np.abs(iterated - direct).max() < 0.005


@pytest.mark.slow
def test_landmarks_are_chosen_from_all_rows():
    """A sample of 5,000 would miss most of the 200 rows far from all others."""
    rng = np.random.default_rng(0)
    far = 10.0 + 5 * np.arange(200)
    X = np.concatenate([rng.uniform(size=19_800), far])[:, None].astype(np.float32)
    rng.shuffle(X)
    features = rk.NystromFeatures(rk.Gaussian(0.1), 230, random_state=0).fit(X)
    assert (features.landmarks_ > 2).sum() == 200


@pytest.mark.slow
def test_pivots_are_all_of_the_landmarks_if_that_is_asked_for():
    """1,600 rows differ, and 1,000 more are copies of one of them."""
    rows = np.append(10.0 * np.arange(1600), np.zeros(1000))[:, None]
    features = nystrom(rk.Laplacian(0.01), 1600, landmarks="rpcholesky").fit(rows)
    assert len(features.landmarks_) == 1600


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_extreme_row_leaves_the_other_landmarks(dtype, rng):
    X = rng.normal(size=(600, 5))
    X[0] = 1e5
    kernel = rk.Gaussian(2.0) + rk.Linear()
    features = rk.NystromFeatures(kernel, 200, random_state=0)
    Z = features.fit_transform(X.astype(dtype))[1:]
    assert Z.shape[1] > 100
    exact = kernel(X[1:])
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.nightly
def test_many_landmarks_include_the_rows_far_from_all_others():
    """The 1,500 that are pivots do; 1,500 more are drawn uniformly."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(size=4900), 10.0 + 5 * np.arange(100)])[:, None]
    rng.shuffle(X)
    features = rk.NystromFeatures(rk.Laplacian(0.01), 3000, random_state=0).fit(X)
    L = features.landmarks_
    assert (L > 2).sum() == 100
    assert len(np.unique(L)) == len(L) == 3000
