"""Support vector machines and logistic regression as scikit-learn estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import randkern as rk

MODELS = [rk.KernelSVC, rk.KernelLogistic]
EVERY_MODEL = pytest.mark.parametrize("cls", MODELS, ids=["svc", "logistic"])
LIMITS = pytest.mark.parametrize("n_components", [20, None], ids=["features", "exact"])


@pytest.mark.slow
@parametrize_with_checks([rk.KernelLogistic()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
# The exact kernel goes the same way in both: by a factor of its Gram matrix.
@parametrize_with_checks([rk.KernelSVC(), rk.KernelSVC(n_components=None)])
def test_scikit_learns_checks_of_the_others(estimator, check):
    check(estimator)


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(60, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int) + (X[:, 2] > 1)


@pytest.mark.slow
@EVERY_MODEL
@LIMITS
def test_copies_and_files(cls, n_components, rows, tmp_path):
    X, y = rows
    pytest.importorskip("skops")
    kernel = 2.0 * rk.Gaussian("scale") + rk.Optical(2)
    model = cls(kernel, n_components=n_components, random_state=0)
    before = repr(model)
    model.fit(X, y)
    assert repr(model) == before and repr(clone(model)) == before
    rk.save(model, tmp_path / "model.skops")
    expected = model.decision_function(X)
    assert expected.shape == (60, 3)
    for again in (
        pickle.loads(pickle.dumps(model)),
        rk.load(tmp_path / "model.skops"),
    ):
        np.testing.assert_array_equal(again.decision_function(X), expected)


@pytest.mark.slow
@EVERY_MODEL
def test_pipelines_and_searches(cls, rows):
    X, y = rows
    model = cls(rk.Gaussian(1.0), n_components=20, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model),
        {f"{cls.__name__.lower()}__kernel__lengthscale": [0.5, 2.0]},
        cv=2,
    )
    assert np.isfinite(search.fit(X, y).best_score_)


@EVERY_MODEL
def test_tables(cls, rng):
    table = pd.DataFrame(
        {"size": rng.normal(size=80), "kind": rng.choice(["a", "b"], 80)}
    )
    y = np.where((table["size"] > 0) ^ (table["kind"] == "b"), "yes", "no")
    kernel = rk.Gaussian(1.0, columns=["size"]) * rk.Categorical(columns=["kind"])
    model = cls(kernel, 10.0, 100, random_state=0).fit(table, y)
    assert model.score(table, y) > 0.8


@EVERY_MODEL
def test_the_seed_decides(cls, rows):
    X, y = rows
    first, again, other = (
        cls(n_components=20, random_state=seed).fit(X, y).decision_function(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@EVERY_MODEL
def test_another_fit_keeps_nothing_of_the_last_one(cls, rows):
    X, y = rows
    model = cls(n_components=None).fit(X, y)
    assert hasattr(model, "X_fit_")
    model.set_params(n_components=20).fit(X, y)
    assert not hasattr(model, "X_fit_") and not hasattr(model, "dual_coef_")
