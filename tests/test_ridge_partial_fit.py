"""Kernel ridge regression on rows in parts, and what predicting leaves as it was."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import randkern as rk

N, N_TEST = 40, 15
NUMBERS = [0, 1, 2, 3]


@pytest.fixture
def data(rng):
    """Rows, two targets, weights (some of them zero), and rows to predict."""
    X = rng.normal(size=(N + N_TEST, 5))
    X[:, 4] = rng.integers(0, 4, size=len(X))
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 4], X[:, 1] * X[:, 2] + 5])
    weights = rng.uniform(0.2, 3, size=N)
    weights[rng.choice(N, 7, replace=False)] = 0
    return X[:N], Y[:N], weights, X[N:]


def assert_close(actual, expected, tolerance=1e-6):
    """Assert a maximal error relative to the largest expected value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def split(n: int, cuts: list[int]) -> list[slice]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < n}), n]
    return [slice(a, b) for a, b in pairwise(edges)]


PARTS = {
    "gaussian": rk.Gaussian(2.0),
    "sum of products": rk.Gaussian(2.0, columns=NUMBERS)
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
