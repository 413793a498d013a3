"""Kernel ridge regression and classification against scikit-learn and by hand."""

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.utils import compute_class_weight

import randkern as rk
from randkern.plan import evaluate
from randkern.solvers import Outcome

N, N_TEST = 40, 15


KERNELS = {
    "default": None,
    "gaussian ARD": rk.Gaussian([1.0, 2.0, 3.0, 4.0, 5.0]),
    "optical 2.5": rk.Optical(degree=2.5, bias=1.0),
    "sum of products": (rk.Gaussian(3.0) + rk.Laplacian(8.0))
    * (rk.Categorical(columns=[4]) + 0.5 * rk.Optical(2, columns=[0, 1])),
}


EVERY_KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


INTERCEPT = pytest.mark.parametrize(
    "fit_intercept", [False, True], ids=["origin", "intercept"]
)


WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])


@pytest.fixture
def data(rng):
    """Rows, two targets, weights (some of them zero), and rows to predict."""
    X = rng.normal(size=(N + N_TEST, 5))
    X[:, 4] = rng.integers(0, 4, size=len(X))
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 4], X[:, 1] * X[:, 2] + 5])
    Y += 0.1 * rng.normal(size=Y.shape)
    weights = rng.uniform(0.2, 3, size=N)
    weights[rng.choice(N, 7, replace=False)] = 0
    return X[:N], Y[:N], weights, X[N:]


def assert_close(actual, expected, tolerance=1e-6):
    """Assert a maximal error relative to the largest expected value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


# -- random features and scikit-learn's Ridge -------------------------------------
@pytest.mark.slow
@EVERY_KERNEL
@pytest.mark.parametrize("n_components", [13, 61], ids=["primal", "dual"])
@INTERCEPT
@WEIGHTED
def test_equals_features_and_ridge(data, kernel, n_components, fit_intercept, weighted):
    X, Y, weights, X_test = data
    sample_weight = weights if weighted else None
    features = rk.RandomFeatures(kernel, n_components, random_state=3)
    features.fit(X, sample_weight=sample_weight)
    Z, Z_test = features.transform(X), features.transform(X_test)
    for y in (Y[:, 0], Y):
        ridge = Ridge(alpha=0.05, fit_intercept=fit_intercept, solver="svd")
        ridge.fit(Z, y, sample_weight=sample_weight)
        model = rk.KernelRidgeRegressor(
            kernel,
            alpha=0.05,
            n_components=n_components,
            fit_intercept=fit_intercept,
            random_state=3,
        )
        model.fit(X, y, sample_weight=sample_weight)
        assert_close(
            model.predict(X_test), ridge.predict(Z_test).reshape(-1, *y.shape[1:])
        )
        assert_close(model.coef_, ridge.coef_.reshape(model.coef_.shape))
        assert np.shape(model.intercept_) == y.shape[1:]
        if fit_intercept:
            assert_close(model.intercept_, np.reshape(ridge.intercept_, y.shape[1:]))
        assert model.solution_.outcome is Outcome.SUCCESS


# -- the exact kernel and scikit-learn's KernelRidge ------------------------------
@pytest.mark.slow
@EVERY_KERNEL
@WEIGHTED
def test_exact_equals_kernel_ridge(data, kernel, weighted):
    X, Y, weights, X_test = data
    sample_weight = weights if weighted else None
    for y in (Y[:, 0], Y):
        model = rk.KernelRidgeRegressor(kernel, alpha=0.05, n_components=None)
        model.fit(X, y, sample_weight=sample_weight)
        gram, gram_test = model.kernel_(X), model.kernel_(X_test, X)
        oracle = KernelRidge(alpha=0.05, kernel="precomputed")
        oracle.fit(gram, y, sample_weight=sample_weight)
        assert_close(model.predict(X_test), oracle.predict(gram_test))
        assert_close(model.dual_coef_, oracle.dual_coef_)
        np.testing.assert_array_equal(model.X_fit_, X)
        assert model.plan_ is None


@pytest.mark.parametrize("n_components", [13, 61, None])
def test_one_column_of_targets_stays_one(data, n_components):
    """Shapes are those of scikit-learn: (n, 1) in, (n, 1) out."""
    X, Y, _, X_test = data
    model = rk.KernelRidgeRegressor(
        n_components=n_components, fit_intercept=True, random_state=0
    )
    flat = model.fit(X, Y[:, 0]).predict(X_test)
    assert isinstance(model.intercept_, float)
    np.testing.assert_array_equal(model.fit(X, Y[:, :1]).predict(X_test)[:, 0], flat)
    assert np.shape(model.intercept_) == (1,)
    if n_components:
        assert model.coef_.shape == (1, n_components)
    else:
        assert model.dual_coef_.shape == (N, 1)


@EVERY_KERNEL
@WEIGHTED
def test_exact_intercept_centred_by_hand(data, kernel, weighted):
    """Centred features: K̃ = (I − 1sᵀ)K(I − s1ᵀ), s the shares of the weights."""
    X, Y, weights, X_test = data
    w = weights if weighted else np.ones(N)
    model = rk.KernelRidgeRegressor(
        kernel, alpha=0.05, n_components=None, fit_intercept=True
    )
    model.fit(X, Y, sample_weight=w if weighted else None)
    gram, gram_test = model.kernel_(X), model.kernel_(X_test, X)
    s = w / w.sum()
    right = np.eye(N) - np.outer(s, np.ones(N))
    centred = right.T @ gram @ right
    centred_test = (gram_test - s @ gram) @ right
    # (K̃ + αW⁻¹)A = Y − ȳ, written for weights that may be zero.
    dual = np.linalg.solve(
        w[:, None] * centred + 0.05 * np.eye(N), w[:, None] * (Y - s @ Y)
    )
    assert_close(model.predict(X_test), s @ Y + centred_test @ dual)


@INTERCEPT
def test_primal_and_dual_meet(data, fit_intercept):
    """More features than rows: the two systems have the same weights."""
    X, Y, weights, X_test = data
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 0.01, 90, fit_intercept=fit_intercept, random_state=0
    )
    dual = model.fit(X, Y, sample_weight=weights).predict(X_test)
    model.partial_fit(X, Y, sample_weight=weights)
    assert_close(model.predict(X_test), dual, 1e-8)


# -- classification ---------------------------------------------------------------
LABELS = {
    "two booleans": np.array([False, True]),
    "four strings": np.array(["a", "b", "c", "d"], dtype=object),
}


CLASS_WEIGHTS = {
    "none": lambda classes: None,
    "dict": lambda classes: {classes[0]: 3.0, classes[1]: 0.5},
    "balanced": lambda classes: "balanced",
}


def as_dict(class_weight, y, sample_weight):
    """Return ``"balanced"`` as numbers: classes counted by the weights of their rows.

    RidgeClassifier counts rows, whatever their weights.
    """
    if class_weight != "balanced":
        return class_weight
    classes = np.unique(y)
    numbers = compute_class_weight(
        "balanced", classes=classes, y=y, sample_weight=sample_weight
    )
    return dict(zip(classes, numbers, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("classes", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS.values(), ids=CLASS_WEIGHTS)
@pytest.mark.parametrize("n_components", [13, 61])
def test_equals_features_and_ridge_classifier(
    data, classes, class_weight, n_components
):
    X, Y, weights, X_test = data
    y = classes[np.searchsorted([0.0, 1.0, 2.0], Y[:, 0]) % len(classes)]
    assert len(np.unique(y)) == len(classes)
    for fit_intercept in (False, True):
        for sample_weight in (None, weights):
            model = rk.KernelRidgeClassifier(
                alpha=0.1,
                n_components=n_components,
                fit_intercept=fit_intercept,
                class_weight=class_weight(classes),
                random_state=0,
            )
            model.fit(X, y, sample_weight=sample_weight)
            # Kernel and features see the rows with the weights of their classes.
            Z, Z_test = (evaluate(model.plan_, rows) for rows in (X, X_test))
            oracle = RidgeClassifier(
                alpha=0.1,
                fit_intercept=fit_intercept,
                class_weight=as_dict(class_weight(classes), y, sample_weight),
                solver="svd",
            )
            oracle.fit(Z, y, sample_weight=sample_weight)
            values = model.decision_function(X_test)
            assert_close(values, oracle.decision_function(Z_test))
            two = len(classes) == 2
            assert values.shape == ((N_TEST,) if two else (N_TEST, len(classes)))
            np.testing.assert_array_equal(model.predict(X_test), oracle.predict(Z_test))
            np.testing.assert_array_equal(model.classes_, classes)
            assert model.predict(X_test).dtype == oracle.predict(Z_test).dtype


def test_exact_classifier_is_regression_on_signs(data):
    X, Y, _, X_test = data
    y = np.digitize(Y[:, 0], [0.5, 2.0])
    model = rk.KernelRidgeClassifier(rk.Gaussian(2.0), 0.1, None).fit(X, y)
    signs = np.where(y[:, None] == [0, 1, 2], 1.0, -1.0)
    regressor = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, None).fit(X, signs)
    assert_close(model.decision_function(X_test), regressor.predict(X_test), 1e-12)
    # Two classes: one column, +1 for the second.
    model.fit(X, np.array(["n", "p"])[(y > 0).astype(int)])
    regressor.fit(X, np.where(y > 0, 1.0, -1.0))
    values = model.decision_function(X_test)
    assert_close(values, regressor.predict(X_test), 1e-12)
    np.testing.assert_array_equal(model.predict(X_test), np.where(values > 0, "p", "n"))


@pytest.mark.parametrize(
    ("solver", "n_components"),
    [*(("cholesky", n) for n in (12, 90, None)), *(("pcg", n) for n in (12, 90, None))],
)
def test_targets_have_penalties_of_their_own(rng, solver, n_components):
    """As scikit-learn's Ridge on the same features; two of the penalties are equal."""
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, 4))
    weight = rng.uniform(0.5, 2, size=60)
    alpha = [0.3, 20.0, 0.3, 1.0]
    kernel = rk.Gaussian(2.0)
    if solver == "pcg":
        solver = rk.solvers.PCG(tol=1e-10, loss_tol=0.0)
    model = rk.KernelRidgeRegressor(
        kernel, alpha, n_components, solver=solver, fit_intercept=True, random_state=0
    )  # fmt: skip
    model.fit(X, Y, weight)
    if n_components is None:
        Z = np.linalg.cholesky(kernel(X) + 1e-13 * np.eye(60))
    else:
        Z = rk.RandomFeatures(kernel, n_components, random_state=0).fit_transform(X)
    oracle = Ridge(alpha=np.array(alpha)).fit(Z, Y, weight)
    np.testing.assert_allclose(model.predict(X), oracle.predict(Z), atol=1e-6)
    intervals = model.predict_interval(X)
    for j in range(4):
        alone = clone(model).set_params(alpha=alpha[j]).fit(X, Y[:, j], weight)
        np.testing.assert_allclose(
            intervals[:, j], alone.predict_interval(X), rtol=0.05, atol=0.05
        )


def test_penalties_of_rows_that_are_added(rng):
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), [0.3, 2.0], 12, random_state=0)
    expected = clone(model).fit(X, Y).predict(X)
    model.partial_fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="one for each of the 2 targets"):
        clone(model).set_params(alpha=[1.0, 2.0, 3.0]).fit(X, Y)
    with pytest.raises(ValueError, match="one for each of the 2 targets"):
        clone(model).set_params(alpha=[1.0, -2.0]).fit(X, Y)
    with pytest.raises(ValueError, match="alpha"):
        rk.KernelRidgeClassifier(alpha=[1.0, 2.0]).fit(X, Y[:, 0] > 0)


# -- tables and sparse rows -------------------------------------------------------
def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "count": rng.integers(0, 5, n),
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
            "flag": rng.random(n) > 0.5,
        }
    )
    shift = frame["colour"].map({"red": -2.0, "green": 0.0, "blue": 2.0}).to_numpy()
    return frame, shift + np.sin(frame["size"].to_numpy()) + frame["flag"]


MIXED = rk.Gaussian(1.0, columns=["size", "count"]) * rk.Categorical(
    columns="colour"
) + rk.Categorical(columns=["kind", "flag"])


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [20, None])
def test_mixed_tables(n_components):
    frame, y = table()
    model = rk.KernelRidgeRegressor(MIXED, 0.1, n_components, random_state=0)
    model.fit(frame[:80], y[:80])
    assert model.score(frame[80:], y[80:]) > (0.2 if n_components == 20 else 0.8)
    np.testing.assert_array_equal(model.feature_names_in_, frame.columns)
    # The codes that the table stands for.
    coded = frame.assign(
        colour=pd.Categorical(frame["colour"]).codes, kind=frame["kind"].cat.codes
    )
    by_number = model.predict(frame[80:])
    np.testing.assert_allclose(
        model.fit(coded[:80].astype(float), y[:80]).predict(coded[80:].astype(float)),
        by_number,
    )
    # polars holds the same rows.
    polars_frame = pl.from_pandas(frame)
    model.fit(polars_frame[:80], y[:80])
    np.testing.assert_allclose(model.predict(polars_frame[80:]), by_number)


def test_stochastic_gradients_are_those_of_scikit_learn(rng):
    X = rng.normal(size=(20, 2))
    model = rk.KernelRidgeRegressor(n_components=5, solver="sgd")
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.partial_fit(X, X[:, 0])


# -- rows in parts -----------------------------------------------------------------


def split(n: int, cuts: list[int]) -> list[slice]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < n}), n]
    return [slice(a, b) for a, b in pairwise(edges)]


PARTS = {
    "gaussian": rk.Gaussian(2.0),
    "sum of products": rk.Gaussian(2.0, columns=[0, 1, 2, 3])
    * rk.Categorical(columns=[4], categories=[[0.0, 1.0, 2.0, 3.0]])
    + 0.5 * rk.Cauchy(3.0),
    "optical": rk.Optical(2, bias=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PARTS.values(), ids=PARTS)
@settings(max_examples=8)
@given(
    cuts=st.lists(st.integers(1, N - 1), max_size=5),
    weighted=st.booleans(),
    fit_intercept=st.booleans(),
    solve=st.booleans(),
    n_components=st.sampled_from([7, 60]),
)
def test_partial_fit_of_any_split_equals_fit(
    kernel, cuts, weighted, fit_intercept, solve, n_components
):
    rng = np.random.default_rng(len(cuts))
    X = rng.normal(size=(N, 5))
    X[:, 4] = rng.integers(0, 4, size=N)
    Y = np.column_stack([X[:, 0] ** 2, np.sin(X[:, 1])])
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    weights = rng.uniform(0.1, 2, size=N) * (rng.random(N) > 0.2) if weighted else None
    options = {
        "alpha": 0.1,
        "n_components": n_components,
        "fit_intercept": fit_intercept,
        "random_state": 0,
    }
    regressor = rk.KernelRidgeRegressor(kernel, **options)
    classifier = rk.KernelRidgeClassifier(
        kernel, class_weight={0: 2.0, 2: 0.5}, **options
    )
    parts = split(N, cuts)
    if weighted and not weights[parts[0]].any():
        weights[0] = 1.0
    if weighted:
        parts = [rows for rows in parts if weights[rows].any()]
        kept = np.concatenate([np.arange(N)[rows] for rows in parts])
        fitted = (X[kept], Y[kept], labels[kept], weights[kept])
    else:
        fitted = (X, Y, labels, None)
    whole = regressor.fit(fitted[0], fitted[1], fitted[3]).predict(X)
    values = classifier.fit(fitted[0], fitted[2], fitted[3]).decision_function(X)
    for index, rows in enumerate(parts):
        w = weights[rows] if weighted else None
        last = index == len(parts) - 1
        regressor.partial_fit(X[rows], Y[rows], w, solve=solve or last)
        classifier.partial_fit(X[rows], labels[rows], [0, 1, 2], w, solve=solve or last)
    assert_close(regressor.predict(X), whole)
    assert_close(classifier.decision_function(X), values)


def test_solve_is_put_off(data):
    X, Y, _, X_test = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=20, random_state=0)
    model.partial_fit(X[:10], Y[:10], solve=False)
    assert not hasattr(model, "coef_")
    with pytest.raises(ValueError, match=r"call solve\(\) before"):
        model.predict(X_test)
    assert model.solve() is model
    first = model.predict(X_test)
    model.partial_fit(X[10:], Y[10:], solve=False)
    assert_close(model.predict(X_test), first, 0)
    model.solve()
    assert_close(model.predict(X_test), model.fit(X, Y).predict(X_test))


def test_nothing_to_solve(data):
    X, Y, _, _ = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=20)
    with pytest.raises(ValueError, match="call partial_fit first"):
        model.solve()
    with pytest.raises(ValueError, match="call partial_fit first"):
        model.fit(X, Y).solve()
    with pytest.raises(NotFittedError):
        rk.KernelRidgeRegressor().predict(X)


def test_after_fit_partial_fit_starts_anew(data):
    X, Y, _, X_test = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 1.0, None, random_state=0)
    model.fit(X[:20], Y[:20])
    # A new seed: weights left by fit would belong to other features.
    model.set_params(n_components=20, random_state=1)
    model.partial_fit(X[20:], Y[20:], solve=False)
    with pytest.raises(ValueError, match=r"call solve\(\) before"):
        model.predict(X_test)
    anew = model.solve().predict(X_test)
    assert_close(anew, model.fit(X[20:], Y[20:]).predict(X_test))


def test_fit_forgets_partial_fit(data):
    X, Y, _, X_test = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=20, random_state=0)
    expected = model.fit(X, Y).predict(X_test)
    model.partial_fit(X + 1, Y + 1, solve=False)
    assert_close(model.fit(X, Y).predict(X_test), expected, 0)
    for stale in ("dual_coef_", "X_fit_"):
        assert not hasattr(model, stale)


def test_first_batch_settles_the_lengthscale(data):
    X, Y, _, _ = data
    model = rk.KernelRidgeRegressor(n_components=20, random_state=0)
    model.partial_fit(X[:10], Y[:10])
    settled = model.kernel_.lengthscale
    assert settled == pytest.approx(np.sqrt(5 * X[:10].var() / 2))
    model.partial_fit(100 * X[10:], Y[10:])
    assert model.kernel_.lengthscale == settled


def test_classes_of_partial_fit(data):
    X, _, _, X_test = data
    y = np.repeat(["a", "b", "c", "a"], 10)
    model = rk.KernelRidgeClassifier(rk.Gaussian(2.0), n_components=20, random_state=0)
    with pytest.raises(ValueError, match="first call of partial_fit needs all classes"):
        model.partial_fit(X[:10], y[:10])
    # The first batch holds one class of the three.
    model.partial_fit(X[:10], y[:10], classes=["c", "b", "a"])
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    model.partial_fit(X[10:30], y[10:30], classes=["a", "b", "c"])
    model.partial_fit(X[30:], y[30:])
    expected = rk.KernelRidgeClassifier(
        rk.Gaussian(2.0), n_components=20, random_state=0
    )
    expected.fit(X, y)
    assert_close(model.decision_function(X_test), expected.decision_function(X_test))
    before = model.decision_function(X_test)
    with pytest.raises(
        ValueError, match=r"'d'.* not among the classes .*'a', 'b', 'c'"
    ):
        model.partial_fit(X[:2], ["a", "d"])
    with pytest.raises(ValueError, match="differ from those of the first call"):
        model.partial_fit(X[:2], ["a", "b"], classes=["a", "b"])
    assert_close(model.solve().decision_function(X_test), before, 0)
    with pytest.raises(ValueError, match="at least 2 classes"):
        rk.KernelRidgeClassifier(n_components=4).partial_fit(X, y, classes=["a"])
    # After fit the classes are known.
    expected.partial_fit(X, y)


def test_class_weight_of_partial_fit(data):
    """Batches may lack the class that the dict names."""
    X, Y, _, X_test = data
    y = np.digitize(Y[:, 0], [0.5, 2.0])
    model = rk.KernelRidgeClassifier(
        rk.Gaussian(2.0), n_components=20, class_weight={1: 5.0}, random_state=0
    )
    expected = model.fit(X, y).decision_function(X_test)
    for label in (0, 1, 2):
        model.partial_fit(X[y == label], y[y == label], classes=[0, 1, 2])
    assert_close(model.decision_function(X_test), expected)
    model = rk.KernelRidgeClassifier(n_components=4, class_weight="balanced")
    with pytest.raises(ValueError, match="balanced.*all labels.*or use fit"):
        model.partial_fit(X, y, classes=[0, 1, 2])


def test_batches_must_agree(data):
    X, Y, _, _ = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=20)
    model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="1 targets, but earlier batches had 2"):
        model.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(X[:, :3], Y)


@pytest.mark.parametrize("cls", [rk.KernelRidgeRegressor, rk.KernelRidgeClassifier])
def test_the_exact_kernel_has_no_partial_fit(cls):
    model = cls(rk.Gaussian(), n_components=None)
    assert not hasattr(model, "partial_fit")
    assert hasattr(cls(rk.Gaussian(), n_components=5), "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(np.eye(2), [0, 1])
    error = caught.value
    text = f"{error} {error.__cause__ or ''}"
    assert "the exact kernel (n_components=None)" in text
    assert "set n_components, or use fit" in text


def test_batches_of_weight_zero(data):
    """Rows of weight zero are no rows: neither do they harm, nor are they counted."""
    X, Y, _, X_test = data
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), n_components=20, fit_intercept=True, random_state=0
    )
    model.partial_fit(X, Y)
    expected = model.predict(X_test)
    half = np.repeat([0.0, 1.0], N // 2)
    model.fit(X, Y).partial_fit(X, Y, half).partial_fit(X, Y, 1 - half)
    assert_close(model.predict(X_test), expected)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_the_intercept_may_be_changed_between_batches(data, offset):
    X, Y, _, X_test = data
    y, halves = Y[:, 0] + offset, (slice(0, N // 2), slice(N // 2, N))
    model = rk.KernelRidgeRegressor(n_components=8, random_state=0, fit_intercept=True)
    model.partial_fit(X[halves[0]], y[halves[0]])

    def expected(fit_intercept, rows):
        whole = rk.KernelRidgeRegressor(
            model.kernel_, n_components=8, random_state=0, fit_intercept=fit_intercept
        )
        return whole.fit(X[rows], y[rows]).predict(X_test)

    model.set_params(fit_intercept=False)
    for _ in range(2):
        got = model.solve().predict(X_test)
        np.testing.assert_allclose(got, expected(False, halves[0]), rtol=0, atol=1e-7)
    assert model.intercept_ == 0.0
    model.partial_fit(X[halves[1]], y[halves[1]])
    got = model.predict(X_test)
    np.testing.assert_allclose(got, expected(False, slice(None)), rtol=0, atol=1e-7)
    got = model.set_params(fit_intercept=True).solve().predict(X_test)
    np.testing.assert_allclose(got, expected(True, slice(None)), rtol=0, atol=1e-7)
