"""Margin classifiers of tensors equal those of arrays, and stay where they are."""

import copy
from functools import partial

import numpy as np
import pytest

import randkern as rk
from _tensors import dispatch, no_host_copies, tensor
from randkern.exceptions import NotSeparableError

# Oracles here have no intercept; test_svc.py and test_logistic.py have those with one.
KernelSVC = partial(rk.KernelSVC, fit_intercept=False)
KernelLogistic = partial(rk.KernelLogistic, fit_intercept=False)

pytestmark = pytest.mark.slow

KERNEL = rk.Gaussian(1.5)


@pytest.fixture
def data(rng):
    """Rows of classes that overlap, weights of which some are 0, and new rows."""
    X, new = rng.normal(size=(160, 3)), rng.normal(size=(50, 3))
    y = (X[:, 0] + rng.normal(size=160) > 0).astype(int) + (X[:, 1] > 0.7)
    return X, y, rng.integers(0, 3, 160).astype(float), new


def of_classes(y, n_classes):
    return y if n_classes == 3 else (y == 1).astype(int)


# -- soft margins -----------------------------------------------------------------


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
