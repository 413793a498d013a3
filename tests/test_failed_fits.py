"""A fit that fails, or is interrupted anywhere, leaves the estimator as it was."""

import math
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import randkern as rk
from randkern import optics, skeletons
from randkern.exceptions import MemoryLimitError
from randkern.optics import SimulatedOPU
from randkern.solvers import PCG

N = 36
QUIET = SimulatedOPU(12, read_noise=0, shot_noise=0, random_state=0)
MODELS = {
    "ridge": rk.KernelRidgeRegressor(alpha=0.1, n_components=20),
    "ridge, dual": rk.KernelRidgeRegressor(n_components=60),
    "ridge, exact": rk.KernelRidgeRegressor(n_components=None),
    "ridge, pcg": rk.KernelRidgeRegressor(n_components=20, solver=PCG(tol=1e-6)),
    "ridge, exact pcg": rk.KernelRidgeRegressor(n_components=None, solver="pcg"),
    "labels": rk.KernelRidgeClassifier(n_components=20, class_weight="balanced"),
    "ridge cv": rk.KernelRidgeRegressorCV(n_components=20, cv=3),
    "labels cv": rk.KernelRidgeClassifierCV(n_components=None),
    "svc": rk.KernelSVC(n_components=20),
    "svc, exact": rk.KernelSVC(n_components=None),
    "svc, hard": rk.KernelSVC(C=math.inf, n_components=60),
    "quantiles": rk.KernelQuantileRegressor(n_components=20),
    "svr": rk.KernelSVR(n_components=20),
    "svr, exact": rk.KernelSVR(n_components=None),
    "logistic": rk.KernelLogistic(n_components=20),
    "logistic, exact": rk.KernelLogistic(n_components=None),
    "process": rk.GaussianProcessRegressor(
        n_components=20, optimizer=None, normalize_y=True
    ),
    "process, exact": rk.GaussianProcessRegressor(n_components=None, optimizer=None),
    "classes": rk.GaussianProcessClassifier(n_components=20, optimizer=None),
    "classes, exact": rk.GaussianProcessClassifier(n_components=None, optimizer=None),
    # One job: cells are fitted one after another, by this thread.
    "cells": rk.LocalRegressor(
        rk.KernelRidgeRegressor(n_components=None), 12, n_jobs=1
    ),
    "cells of labels": rk.LocalClassifier(
        rk.KernelLogistic(n_components=None), 12, n_jobs=1
    ),
}
TRANSFORMERS = {
    "features": rk.RandomFeatures(n_components=20),
    "landmarks": rk.NystromFeatures(n_components=20),
    "metric": rk.MetricLearner(n_components=20, n_iterations=1, metric="diagonal"),
    "table": rk.TabularEncoder("quantile"),
    "optical": rk.OpticalFeatures(QUIET),
    "binarizer": optics.ThresholdBinarizer("median"),
    "thermometer": optics.ThermometerEncoder(),
    "bit planes": optics.BitPlaneEncoder(),
    "pixels": skeletons.PixelsToAngles(),
    "bases": skeletons.TableToBases(),
}
ESTIMATORS = MODELS | TRANSFORMERS
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
EVERY_ESTIMATOR = pytest.mark.parametrize("name", ESTIMATORS)
pytestmark = pytest.mark.filterwarnings("ignore")


def made(name):
    """Return an estimator of its own, with seeded draws."""
    model = clone(ESTIMATORS[name])
    seeded = "random_state" in model.get_params(deep=False)
    return model.set_params(random_state=0) if seeded else model


def rows(name, seed):
    """Return rows and targets that suit an estimator; other seeds, other widths."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2 + seed))
    if name == "optical":
        X = (X > 0).astype(np.uint8)
        X[:, 0] = 1
    y = np.sin(X[:, 0]) + X[:, 1]
    return X, np.digitize(y, [0.3]) + seed if is_classifier(ESTIMATORS[name]) else y


def outputs(model, X):
    """Return all that an estimator makes of rows."""
    names = ["transform", "predict", "decision_function"]
    # Batches leave no rows on which probabilities of ridge models are calibrated.
    if not isinstance(model, rk.KernelRidgeClassifier) or hasattr(
        model, "temperature_"
    ):
        names.append("predict_proba")
    created = [getattr(model, name)(X) for name in names if hasattr(model, name)]
    if isinstance(model, rk.GaussianProcessRegressor):
        created += model.predict(X, return_std=True)
    return [item.toarray() if sp.issparse(item) else item for item in created]


def assert_same(model, X, expected):
    for result, before in zip(outputs(model, X), expected, strict=True):
        np.testing.assert_array_equal(result, before)


def assert_not_fitted(model, X):
    with pytest.raises(NotFittedError):
        outputs(model, X)


@contextmanager
def interrupted(call):
    """Raise KeyboardInterrupt at this call of a function of the library.

    Gives a list that ends up with the number of calls, for a `call` that none reaches.
    """
    count = [0]

    def profile(frame, event, arg):
        if event == "call" and frame.f_globals.get("__name__", "").startswith(
            "randkern."
        ):
            if "_fitting" in frame.f_globals["__name__"]:
                return
            if frame.f_code.co_name == "<genexpr>":
                return  # what is raised as Python closes one is ignored
            count[0] += 1
            if count[0] == call:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)


def calls_of(function):
    with interrupted(math.inf) as count:
        function()
    return count[0]


def moments(n_calls, n=9):
    """Return calls to interrupt at: more of them near both ends."""
    shares = np.sin(np.linspace(0, np.pi / 2, n)) ** 2
    return sorted({1 + int(share * (n_calls - 1)) for share in shares})


@pytest.mark.slow
@EVERY_ESTIMATOR
def test_attributes_are_listed(name):
    """`dir` asks for every attribute: those that are absent raise AttributeError."""
    assert "n_features_in_" in dir(made(name).fit(*rows(name, 0)))


def test_every_estimator_is_here():
    public = {
        f"{home.__name__}.{name}"
        for home in (rk, optics, skeletons)
        for name in home.__all__
        if hasattr(getattr(home, name), "fit")
    }
    tested = {type(model).__name__ for model in ESTIMATORS.values()}
    # How many calls these make is for the clock to decide: see test_tabular.py.
    timed = {"TabularRegressor", "TabularClassifier"}
    assert {name.split(".")[-1] for name in public} == tested | timed
    assert len(public) >= 15


@pytest.mark.nightly
@EVERY_ESTIMATOR
def test_an_interrupted_fit(name):
    X, y = rows(name, 0)
    X2, y2 = rows(name, 1)
    model, full = made(name), made(name).fit(X2, y2)
    n_calls = calls_of(lambda: full.fit(X2, y2))
    assert n_calls >= 3
    for call in moments(n_calls):
        with interrupted(call), pytest.raises(KeyboardInterrupt):
            model.fit(X2, y2)
        assert_not_fitted(model, X2)
    expected = outputs(model.fit(X, y), X)
    for call in moments(n_calls):
        with interrupted(call), pytest.raises(KeyboardInterrupt):
            model.fit(X2, y2)
        assert_same(model, X, expected)
    assert_same(model.fit(X2, y2), X2, outputs(full, X2))


LIMIT_OF_CELLS = "estimator__memory_limit"
BAD_WEIGHTS = {"negative": -1.0, "nan": math.nan, "zero": 0.0}


@pytest.mark.slow
@EVERY_MODEL
@pytest.mark.parametrize("bad", BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_bad_weights(name, bad):
    X, y = rows(name, 0)
    X2, y2 = rows(name, 1)
    model, weight = made(name), np.full(N, bad)
    with pytest.raises(ValueError, match="weight"):
        model.fit(X2, y2, sample_weight=weight)
    assert_not_fitted(model, X2)
    expected = outputs(model.fit(X, y), X)
    with pytest.raises(ValueError, match="weight"):
        model.fit(X2, y2, sample_weight=weight)
    assert_same(model, X, expected)


@EVERY_MODEL
def test_too_little_memory(name):
    X, y = rows(name, 0)
    model = made(name)
    expected = outputs(model.fit(X, y), X)
    limit = "memory_limit" if hasattr(model, "memory_limit") else LIMIT_OF_CELLS
    with pytest.raises(MemoryLimitError):
        model.set_params(**{limit: 100}).fit(*rows(name, 1))
    assert model.get_params()[limit] == 100, "what the user set is the user's"
    assert_same(model, X, expected)


@pytest.mark.slow
@EVERY_ESTIMATOR
def test_a_bad_parameter(name):
    """Parameters that a fit refuses change nothing that was fitted."""
    bad = {
        "optical": {"degree": 3, "n_calibration": 0},
        "binarizer": {"threshold": "nothing"},
        "thermometer": {"strategy": "nothing"},
        "bit planes": {"bits": 0},
        "pixels": {"low": 300.0},
        "bases": {"numbers": "nothing"},
        "cells": {"cell_rows": 0},
        "cells of labels": {"estimator__n_components": 0},
    }
    X, y = rows(name, 0)
    model = made(name)
    expected = outputs(model.fit(X, y), X)
    with pytest.raises((ValueError, TypeError)):
        model.set_params(**bad.get(name, {"n_components": 0})).fit(*rows(name, 1))
    assert_same(model, X, expected)


def test_a_stream_that_breaks():
    X, y = rows("svc", 0)
    X2, y2 = rows("svc", 1)

    def broken():
        yield X2, y2
        raise OSError("gone")

    for name in ("ridge", "labels", "svc", "logistic", "process", "classes"):
        X, y = rows(name, 0)
        X2, y2 = rows(name, 1)
        model = made(name)
        expected = outputs(model.fit(X, y), X)
        with pytest.raises(OSError, match="gone"):
            model.fit(rk.RowBlocks(broken))
        assert_same(model, X, expected)


# Batches that are added to what earlier ones left.

BATCHES = {
    "cholesky": rk.KernelRidgeRegressor(n_components=30, random_state=0),
    "labels": rk.KernelRidgeClassifier(n_components=30, random_state=0),
    "intercept": rk.KernelRidgeRegressor(
        n_components=30, fit_intercept=True, random_state=0
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("solve", [True, False], ids=["solved", "put off"])
@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_an_interrupted_batch(case, solve, monkeypatch, rng):
    monkeypatch.setattr("randkern.models.memory._BLOCK_BYTES", 1)
    monkeypatch.setattr("randkern.models.normal_equations._COLUMNS", 13)
    X = rng.normal(size=(900, 3))  # blocks of 256 rows
    y = np.sin(X[:, 0]) if case is not BATCHES["labels"] else (X[:, 0] > 0).astype(int)
    named = {"classes": [0, 1]} if case is BATCHES["labels"] else {}

    def begun():
        return clone(case).partial_fit(X[:20], y[:20], **named)

    full = begun()
    n_calls = calls_of(lambda: full.partial_fit(X[20:], y[20:], solve=solve))
    model = begun()
    expected = outputs(model, X)
    for call in moments(n_calls, 20):
        with interrupted(call), pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[20:], y[20:], solve=solve)
        assert_same(model, X, expected)
        assert_same(model.solve(), X, expected)
    model.partial_fit(X[20:], y[20:], solve=solve).solve()
    assert_same(model, X, outputs(full.solve(), X))


def test_a_first_batch_that_fails(rng):
    X, y = rng.normal(size=(50, 3)), np.ones(50)
    model = rk.KernelRidgeRegressor(n_components=30, random_state=0)
    expected = outputs(model.fit(X, X[:, 0]), X)
    with pytest.raises(ValueError, match="weight"):
        model.partial_fit(X[:, :2], y, -y)
    assert_same(model, X, expected)
    with pytest.raises(ValueError, match="call partial_fit first"):
        model.solve()
