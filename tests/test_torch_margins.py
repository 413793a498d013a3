"""Margin classifiers of tensors equal those of arrays, and stay where they are."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from _tensors import dispatch, host, no_host_copies, tensor, torch
from randkern.exceptions import NotSeparableError

# Oracles here have no intercept; tests/test_intercepts.py has those with one.
KernelSVC = partial(rk.KernelSVC, fit_intercept=False)
KernelLogistic = partial(rk.KernelLogistic, fit_intercept=False)

pytestmark = pytest.mark.slow

KERNEL = rk.Gaussian(1.5)
SIZES = {"features": 60, "exact": None}
each_size = pytest.mark.parametrize("D", SIZES.values(), ids=SIZES)
each_count = pytest.mark.parametrize("n_classes", [2, 3])


@pytest.fixture
def data(rng):
    """Rows of classes that overlap, weights of which some are 0, and new rows."""
    X, new = rng.normal(size=(160, 3)), rng.normal(size=(50, 3))
    y = (X[:, 0] + rng.normal(size=160) > 0).astype(int) + (X[:, 1] > 0.7)
    return X, y, rng.integers(0, 3, 160).astype(float), new


def of_classes(y, n_classes):
    return y if n_classes == 3 else (y == 1).astype(int)


def assert_close(got, expected, **tolerance):
    """Compare a tensor with an array."""
    assert got.dtype == torch.float64
    np.testing.assert_allclose(host(got), expected, **tolerance)


# -- soft margins -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 200_000], ids=["kept", "made again"])
def test_soft_margins_in_single_precision(limit, data):
    X, y, weight, new = data
    X, new = np.tile(X, (4, 1)).astype(np.float32), new.astype(np.float32)
    y, weight = np.tile(y, 4), np.tile(weight, 4)
    model = KernelSVC(KERNEL, 1.0, 60, tol=1e-4, random_state=0)
    expected = copy.deepcopy(model).fit(X, y, weight)
    if limit:
        model.set_params(memory_limit=2 * limit + 2_000_000)
    with dispatch():
        model.fit(tensor(X), tensor(y), tensor(weight))
        got = model.decision_function(tensor(new))
    assert_close(got, expected.decision_function(new), atol=1e-2)


@pytest.mark.slow
def test_single_precision_reaches_the_tolerance(data, recwarn):
    """Where float32 features leave a gap, they are made again in float64."""
    X, _, _, _ = data
    y = X[:, 0] * X[:, 1] > 0
    model = KernelSVC(KERNEL, 1e5, 300, tol=1e-6, random_state=0)
    with dispatch():
        model.fit(tensor(X[:80].astype(np.float32)), tensor(y[:80]))
    assert float(model.duality_gap_[0]) <= 1e-6
    assert not recwarn.list


# -- hard margins -----------------------------------------------------------------


def test_hard_margins_copy_few_rows_to_the_host(rng, monkeypatch):
    """Signs, scores, and the features of rows near the margin."""
    X = rng.normal(size=(5000, 20))
    signs = np.sign(X[:, 0])
    X[:, 0] += signs
    model = KernelSVC(rk.Linear(), np.inf, 20)
    X, signs = tensor(X), tensor(signs)
    with dispatch(), no_host_copies(monkeypatch, most=400 * 20) as copied:
        model.fit(X, signs)
        assert set(copied) == {"_fit_hard", "separate"}
        copied.clear()
        model.decision_function(X)
        model.predict(X)
        assert copied == []


@pytest.mark.nightly
@each_size
def test_infeasible_margins_are_certified(D, data):
    X, y, _, _ = data
    y = of_classes(y, 2)
    X, y, weight = np.vstack([X, X[:3]]), np.append(y, 1 - y[:3]), np.ones(163)
    model = KernelSVC(KERNEL, np.inf, D, random_state=0)
    with (
        dispatch(),
        pytest.raises(NotSeparableError, match="cannot be separated") as caught,
    ):
        model.fit(tensor(X), tensor(y), tensor(weight))
    ray, residual = host(caught.value.certificate), caught.value.residual
    assert ray.min() >= 0 and ray.sum() == pytest.approx(1)
    assert residual < 1e-6
    signs = 2.0 * y - 1.0
    if D is not None:
        Z = rk.RandomFeatures(KERNEL, D, random_state=0).fit_transform(X)
        combined = (ray * signs) @ Z
        assert np.linalg.norm(combined) < 2e-6 * np.linalg.norm(Z, axis=1).max()


@pytest.mark.parametrize(
    ("gap", "error"),
    [(1e-4, None), (1e-7, None), (1e-10, None), (0.0, NotSeparableError)],
)
def test_narrow_margins(gap, error, rng):
    """Mirrored rows on both sides of a gap."""
    half = rng.normal(size=(60, 20))
    X, signs = np.vstack([half, half]), np.repeat([1.0, -1.0], 60)
    X[:, 0] = gap * signs
    model = KernelSVC(rk.Linear(), np.inf, 20)
    with dispatch():
        if error is not None:
            with pytest.raises(error):
                model.fit(tensor(X), tensor(signs))
            return
        model.fit(tensor(X), tensor(signs))
    assert float(model.margin_[0]) == pytest.approx(gap, rel=1e-5)


# -- logistic regression ----------------------------------------------------------


def test_logistic_regression_takes_the_iterations_of_arrays(data):
    """PyTorch's L-BFGS, which skips small steps, takes 1.5 times as many by itself."""
    X, y, _, _ = data
    model = KernelLogistic(KERNEL, 100.0, 60, tol=1e-9, random_state=0)
    expected = copy.deepcopy(model).fit(X, of_classes(y, 2)).n_iter_
    with dispatch():
        model.fit(tensor(X), tensor(of_classes(y, 2)))
    assert model.n_iter_ <= 1.25 * expected


@pytest.mark.slow
def test_logistic_regression_in_single_precision(data):
    X, y, weight, new = data
    X, new = X.astype(np.float32), new.astype(np.float32)
    model = KernelLogistic(KERNEL, 1.0, 60, random_state=0)
    expected = copy.deepcopy(model).fit(X, y, weight).predict_proba(new)
    for limit in (None, 120_000):
        model.set_params(memory_limit=limit)
        with dispatch():
            got = model.fit(tensor(X), tensor(y), tensor(weight))
            got = got.predict_proba(tensor(new))
        assert_close(got, expected, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("C", [1e-200, 1e150])
@each_count
def test_extreme_penalties_of_logistic_regression(C, n_classes, data):
    X, y, _, new = data
    y = of_classes(y, n_classes)
    model = KernelLogistic(KERNEL, C, 20, max_iter=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = copy.deepcopy(model).fit(X, y).predict_proba(new)
        with dispatch():
            got = model.fit(tensor(X), tensor(y)).predict_proba(tensor(new))
    assert_close(got.sum(dim=1), 1.0, atol=1e-12)
    if C < 1:  # the other is where 200 iterations lead
        assert_close(got, expected, atol=1e-12)


# -- the boundary -----------------------------------------------------------------
