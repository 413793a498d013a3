"""Support vector machines: optima, certificates, streams, bad input."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import compute_class_weight

import randkern as rk
from randkern.exceptions import (
    NarrowMarginError,
    NotSeparableError,
)
from test_logistic import rows

# Without an intercept, but where it is compared with scikit-learn's.
KernelSVC = partial(rk.KernelSVC, fit_intercept=False)

KERNEL = rk.Gaussian(1.5)
D = 60


@pytest.fixture
def data(rng):
    """Rows of three overlapping classes, and new rows."""
    X = rng.normal(size=(240, 3))
    y = (X[:, 0] + rng.normal(size=240) > 0).astype(int) + (X[:, 1] > 0.7)
    return X, np.array(["a", "b", "c"])[y], rng.normal(size=(50, 3))


def features_of(X, kernel=KERNEL, n_components=D):
    return rk.RandomFeatures(kernel, n_components, random_state=0).fit_transform(X)


def machine(C=1.0, n_components=D, **options):
    options = {"tol": 1e-8, "random_state": 0, **options}
    return KernelSVC(KERNEL, C, n_components, **options)


def liblinear(C, Z, y, weight=None):
    model = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6)
    return model.fit(Z, y, sample_weight=weight)


def objective(w, Z, signs, upper):
    return 0.5 * w @ w + upper @ np.maximum(1 - signs * (Z @ w), 0)


# -- soft margins ----------------------------------------------------------------


def test_weights_of_rows_and_classes(data, rng):
    X, y, _ = data
    weight = rng.integers(0, 4, len(X)).astype(float)
    # liblinear itself weights only the class that is told from the rest.
    by_class = compute_class_weight(
        "balanced", classes=np.unique(y), y=y, sample_weight=weight
    )
    by_row = weight * by_class[np.searchsorted(np.unique(y), y)]
    expected = liblinear(2.0, features_of(X), y, by_row)
    balanced = machine(2.0, class_weight="balanced").fit(X, y, sample_weight=weight)
    size = np.abs(expected.coef_).max()
    np.testing.assert_allclose(balanced.coef_, expected.coef_, atol=3e-4 * size)
    repeated = np.repeat(np.arange(len(X)), weight.astype(int))
    listed = machine(2.0, class_weight="balanced").fit(X[repeated], y[repeated])
    np.testing.assert_allclose(balanced.coef_, listed.coef_, atol=3e-4 * size)
    assert not np.isin(balanced.support_, np.flatnonzero(weight == 0)).any()


def test_support_vectors_make_the_weights(data):
    X, y, _ = data
    model = machine(1.0).fit(X, y)
    Z = features_of(X)
    made = model.support_coef_.T @ Z[model.support_]
    np.testing.assert_allclose(made, model.coef_, atol=1e-9)
    signs = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    margins = signs * model.decision_function(X)
    alpha = np.zeros_like(margins)
    alpha[model.support_] = model.support_coef_ * signs[model.support_]
    assert alpha.min() >= 0 and alpha.max() <= 1.0
    assert np.all(alpha[margins > 1.001] == 0)
    assert np.all(alpha[margins < 0.999] == 1.0)


@pytest.mark.parametrize(
    ("limit", "dtype", "fit_intercept"),
    [
        ("220kB", np.float32, False),  # one set
        ("100kB", np.float64, False),  # parts of it
        ("100kB", np.float64, True),
    ],
)
def test_working_sets_reach_the_same_optimum(limit, dtype, fit_intercept, data):
    # 240 rows of 64 columns of 8 bytes take 123 kB: they do not fit in half of either
    # limit, and what the second leaves beside dual variables holds 60 at a time.
    X, y, _ = data
    X = X.astype(dtype)
    options = {"fit_intercept": fit_intercept, "tol": 1e-5}
    whole = machine(1.0, **options).fit(X, y)
    parts = machine(1.0, memory_limit=limit, max_iter=2000, **options).fit(X, y)
    size = np.abs(whole.coef_).max()
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-2 * size)
    assert np.all(parts.duality_gap_ < 2e-5)


@pytest.mark.parametrize("n_components", [D, None], ids=["features", "exact"])
@pytest.mark.parametrize("C", [1e-12, 1e6])
def test_extreme_penalties(C, n_components, data, recwarn):
    # Rows of both labels: no margin separates them, however large C is.
    X, y, _ = data
    X, signs = X[:80], np.where(y[:80] == "b", 1.0, -1.0)
    X, signs = np.vstack([X, X[:5]]), np.append(signs, -signs[:5])
    model = machine(C, n_components, tol=1e-6).fit(X, signs)
    assert not recwarn.list
    assert abs(model.duality_gap_[0]) < 1e-6
    # The loss of such a pair is 2 at least; that of all rows is 1 where w vanishes.
    losses = np.maximum(1 - signs * model.decision_function(X), 0)
    assert 10 - 1e-6 < losses.sum() < 85 + 1e-6
    assert abs(losses.sum() - (85 if C < 1 else 10)) < 10


@pytest.mark.parametrize("C", [10.0, 1e6])
def test_single_precision_reaches_the_tolerance(C, rng, recwarn):
    """Where float32 features leave a gap, they are made again in float64."""
    X = rng.normal(size=(150, 4)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0
    model = machine(C, 200, tol=1e-6).fit(X, y)
    assert not recwarn.list
    Z, signs = features_of(X.astype(float), n_components=200), np.where(y, 1.0, -1.0)
    a = np.zeros(150)
    a[model.support_] = model.support_coef_ * signs[model.support_]
    assert a.min() >= 0 and a.max() <= C
    primal = objective(model.coef_, Z, signs, np.full(150, C))
    made = (a * signs) @ Z
    assert primal - (a.sum() - 0.5 * made @ made) <= 2e-6 * primal


def test_penalties_that_are_almost_infinite(rng, recwarn):
    X = rng.normal(size=(120, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0
    model = machine(1e9, 150, tol=1e-4).fit(X, y)
    assert not recwarn.list
    hard = machine(math.inf, 150).fit(X, y)
    assert model.margin_ == pytest.approx(hard.margin_, rel=1e-4)


# -- the exact kernel -----------------------------------------------------------------


# -- hard margins ---------------------------------------------------------------------


@pytest.fixture
def separable(data):
    X, y, _ = data
    # Labels that a function of the features gives, with room between the classes.
    Z = features_of(X)
    values = Z @ np.random.default_rng(0).normal(size=D)
    kept = np.abs(values - np.median(values)) > 0.3
    Z, X = Z[kept], X[kept]
    signs = np.sign(values[kept])
    wide = np.abs(values[kept]) > 0.2
    return X[wide], Z[wide], signs[wide]


def test_hard_margin_is_the_quadratic_programme(separable):
    X, Z, signs = separable
    model = machine(math.inf).fit(X, signs)
    assert abs(model.duality_gap_[0]) < 1e-6
    margins = signs * model.decision_function(X)
    assert margins.min() >= 1 - 1e-6
    # The dual of the whole problem by another method.
    Q = signs[:, None] * (Z @ Z.T) * signs
    found = scipy.optimize.minimize(
        lambda a: (0.5 * a @ Q @ a - a.sum(), Q @ a - 1),
        np.ones(len(Z)),
        jac=True,
        bounds=[(0, None)] * len(Z),
        options={"ftol": 1e-16, "gtol": 1e-9, "maxiter": 50_000, "maxfun": 10**6},
    )
    primal = 0.5 * float(model.coef_ @ model.coef_)
    assert primal == pytest.approx(-found.fun, rel=1e-4)
    assert primal >= -found.fun * (1 - 1e-6)
    assert len(model.support_) < len(X)
    assert np.all(margins[model.support_] < 1 + 1e-5)


def check_certificate(error, X, signs, n_components=D):
    a = error.certificate
    assert a.shape == (len(X),)
    assert a.min() >= 0 and a.sum() == pytest.approx(1.0)
    Z = features_of(X, n_components=n_components)
    assert np.linalg.norm((a * signs) @ Z) < 1e-5
    assert error.residual < 1e-5


def test_infeasible_margins_are_certified(data):
    X, y, _ = data
    signs = np.where(y == "b", 1.0, -1.0)
    with pytest.raises(NotSeparableError, match="cannot be separated") as caught:
        machine(math.inf, 10).fit(X, signs)
    check_certificate(caught.value, X, signs, 10)
    with pytest.raises(NotSeparableError, match="class 'a' against the rest"):
        machine(math.inf, 10).fit(X, y)


@pytest.mark.parametrize("n_components", [D, None], ids=["features", "exact"])
def test_a_row_with_both_labels(n_components, data):
    X, _, _ = data
    X, signs = np.vstack([X[:20], X[:1]]), np.append(np.ones(20), -1.0)
    with pytest.raises(NotSeparableError) as caught:
        machine(math.inf, n_components).fit(X, signs)
    assert caught.value.certificate[[0, 20]] == pytest.approx(0.5, abs=1e-9)
    assert caught.value.residual < 1e-12
    # Without weight it is not asked for.
    weight = np.ones(21)
    weight[0] = 0
    model = machine(math.inf, n_components).fit(X, signs, sample_weight=weight)
    assert np.all(model.predict(X[1:]) == signs[1:])


def test_rows_that_change_sides_often(data):
    """Least squares whose active set changes more than three times for each row."""
    X, y, _ = data
    with pytest.raises(NotSeparableError) as caught:
        machine(math.inf).fit(X, y)
    check_certificate(caught.value, X, np.where(y == "a", 1.0, -1.0))
    assert caught.value.residual < 1e-13


def narrow(n, d, gap):
    """Rows on both sides of a gap, many of them on its edges in mirrored pairs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    signs = np.sign(X[:, 0])
    X[:, 0] += signs * gap
    nearest = np.argsort(np.abs(X[:, 0]))
    for j in range(0, 2 * d, 2):
        v = rng.normal(size=d)
        for i, sign in zip(nearest[j : j + 2], (1, -1), strict=True):
            X[i], X[i, 0], signs[i] = v, sign * gap, sign
    return X, signs


@pytest.mark.parametrize(("d", "n_components"), [(5, 5), (50, None), (50, 50)])
@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-9])
def test_narrow_margins(gap, d, n_components, recwarn):
    """Of which working sets led in circles, or that were called inseparable."""
    X, signs = narrow(400, d, gap)
    model = KernelSVC(rk.Linear(), math.inf, n_components)
    # The exact kernel only has products of rows, which hold no margin so narrow.
    if n_components is None and gap == 1e-9:
        with pytest.raises(NarrowMarginError, match="hide whether there is a margin"):
            model.fit(X, signs)
        return
    if n_components is None and gap == 1e-6:
        with pytest.warns(ConvergenceWarning, match="gap of the hard margin") as caught:
            model.fit(X, signs)
        package = Path(rk.__file__).parent  # the warning points to who called fit
        assert not any(package in Path(each.filename).parents for each in caught)
        return
    model.fit(X, signs)
    assert n_components is None or not recwarn.list
    assert abs(model.duality_gap_[0]) < (1e-5 if n_components is None else 1e-6)
    margins = signs * model.decision_function(X)
    rounding = 1e-6
    if n_components is None:
        # Dual coefficients of 1e8 in all, times products rounded in their last bits:
        # each of d terms of a product, and the sum over rows, errs by at most eps.
        sizes = np.abs(model.dual_coef_).ravel() @ np.abs(model.X_fit_ @ X.T)
        rounding += math.sqrt(d) * np.finfo(float).eps * sizes.max()
    assert margins.min() > 1 - rounding
    assert np.isclose(margins.min() * model.margin_[0], gap, rtol=1e-5, atol=0)


@pytest.mark.parametrize("gap", [0.0, -1e-8])
def test_gaps_that_are_none_are_certified(gap):
    X, signs = narrow(400, 50, gap)
    with pytest.raises(NotSeparableError) as caught:
        KernelSVC(rk.Linear(), math.inf, 50).fit(X, signs)
    assert caught.value.residual < 1e-14


def test_the_gap_of_a_hard_margin_is_that_of_its_variables(separable):
    X, Z, signs = separable
    for weight in (np.ones(len(X)), np.random.default_rng(1).integers(0, 2, len(X))):
        model = machine(math.inf).fit(X.astype(np.float32), signs, weight)
        Z = features_of(X.astype(np.float32).astype(float))
        made = model.support_coef_ @ Z[model.support_]
        alpha = model.support_coef_ * signs[model.support_]
        assert alpha.min() >= 0
        primal = 0.5 * model.coef_ @ model.coef_
        dual = alpha.sum() - 0.5 * made @ made
        assert model.duality_gap_[0] == pytest.approx(
            (primal - dual) / primal, abs=1e-9
        )
        assert model.duality_gap_[0] < 1e-6


# -- memory ---------------------------------------------------------------------------


def test_a_start_that_is_far_from_the_optimum(data, recwarn):
    """Coordinate descent ends far from the solution for so large a penalty."""
    X, y, _ = data
    model = machine(1e7, None, tol=1e-5, max_iter=6).fit(X, y)
    assert not recwarn.list
    assert np.all(model.duality_gap_ < 1e-5)


# -- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [3, None], ids=["features", "exact"])
def test_rows_of_zeros(n_components, data):
    # A dot product cannot place them: they cost C each, whatever the weights.
    X, y, _ = data
    X = np.vstack([X[:, :3], np.zeros((4, 3))])
    y = np.append(y == "b", [True, True, False, False])
    options = {"tol": 1e-12, "random_state": 0}
    machine = KernelSVC(rk.Linear(), 0.7, n_components, **options)
    model, without = clone(machine).fit(X, y), machine.fit(X[:-4], y[:-4])
    assert np.all(np.isin(np.arange(len(X) - 4, len(X)), model.support_))
    np.testing.assert_allclose(
        model.decision_function(X), without.decision_function(X), atol=1e-6
    )
    if n_components == 3:
        with pytest.raises(NotSeparableError):
            KernelSVC(rk.Linear(), math.inf, 3).fit(X[-6:], y[-6:])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("n_components", [20, None], ids=["features", "exact"])
@pytest.mark.parametrize(
    "model", [rk.KernelSVC, rk.KernelSVR, rk.KernelQuantileRegressor]
)
def test_kernel_values_that_overflow_are_one_error(model, n_components, data):
    """Fits went on for 40 seconds of warnings, or did not end."""
    X, y, _ = data
    y = y if model is rk.KernelSVC else X[:, 0]
    with pytest.raises(ValueError, match="scale the input down"):
        model(rk.Polynomial(200, 1.0), n_components=n_components).fit(X, y)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_components", [D, None], ids=["features", "exact"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_class_without_weight_is_never_predicted(n_components, fit_intercept, data):
    """All rows that count are against it: its objective vanishes."""
    X, y, new = data
    weight = np.where(y == "c", 0.0, 1.0)
    model = rk.KernelSVC(
        KERNEL, n_components=n_components, fit_intercept=fit_intercept, random_state=0
    ).fit(X, y, weight)
    assert model.duality_gap_.max() <= 1e-4
    used = weight > 0
    binary = clone(model).fit(X[used], y[used])
    assert "c" not in model.predict(new)
    agree = np.mean(model.predict(new) == binary.predict(new))
    assert agree >= 0.95


# -- intercepts ------------------------------------------------------------------


@pytest.mark.parametrize("features", ["random", "nystrom", "exact"])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_svc_against_scikit_learn(features, C, weighted):
    X, y = rows(300, 0.2)
    weight = (
        np.random.default_rng(1).uniform(0.1, 2.0, 300) if weighted else np.ones(300)
    )
    weight[:20] = 0.0
    kernel, n = rk.Gaussian(2.0), None if features == "exact" else 60
    options = {"features": "nystrom"} if features == "nystrom" else {}
    # LIBSVM caches values in single precision.
    tol = 1e-7 if n is None else 1e-10
    model = rk.KernelSVC(kernel, C, n, tol=tol, random_state=0, **options)
    model.fit(X, y, weight)
    Z = kernel(X) if n is None else rk.plan.evaluate(model.plan_, X)
    gram = Z if n is None else Z @ Z.T
    expected = SVC(C=C, kernel="precomputed", tol=1e-9)
    expected.fit(gram[20:, 20:], y[20:], weight[20:])
    values = expected.decision_function(gram[:, 20:])
    error = 1e-5 * max(C, 1.0)
    np.testing.assert_allclose(model.decision_function(X), values, atol=error)
    assert abs(model.intercept_ - expected.intercept_[0]) < error
    assert model.duality_gap_.max() < (1e-6 if n is None else 1e-9)
    dual = expected.dual_coef_[0]
    square = dual @ gram[20:, 20:][np.ix_(expected.support_, expected.support_)] @ dual
    assert model.margin_[0] == pytest.approx(square**-0.5, rel=1e-5)


@pytest.mark.parametrize("n_components", [60, None])
def test_svc_of_three_classes(n_components):
    """One machine per class, each with its intercept; a stream gives the same."""
    X, y = rows(240, 0.3, 3)
    tol = 1e-7 if n_components is None else 1e-10
    options = {"n_components": n_components, "tol": tol, "random_state": 0}
    model = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(X, y)
    values = model.decision_function(X)
    for c in range(3):
        binary = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(X, y == c)
        np.testing.assert_allclose(values[:, c], binary.decision_function(X), atol=1e-5)
    if n_components:
        blocks = rk.RowBlocks(
            lambda: ((X[i : i + 80], y[i : i + 80]) for i in (0, 80, 160))
        )
        stream = rk.KernelSVC(rk.Gaussian(2.0), 3.0, **options).fit(blocks)
        np.testing.assert_allclose(stream.decision_function(X), values, atol=1e-5)


def test_an_intercept_takes_few_more_passes():
    """Intercepts change while the margins of their solution are still inexact."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 40))
    scores = X @ rng.normal(size=(40, 10)) + 0.5 * rng.normal(size=(1000, 10))
    y = (scores + np.linspace(0, 2, 10)).argmax(axis=1)
    model = rk.KernelSVC(rk.Gaussian(40**0.5), 10.0, 300, random_state=0)
    with_intercept = clone(model).fit(X, y)
    without = clone(model).set_params(fit_intercept=False).fit(X, y)
    assert with_intercept.n_iter_ <= 2 * without.n_iter_
    # At the solution the constraint of the intercepts holds.
    signed = with_intercept.support_coef_.sum(axis=0)
    total = abs(with_intercept.support_coef_).sum(axis=0)
    assert np.all(abs(signed) < 1e-3 * total)
