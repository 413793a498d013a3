"""Gaussian processes as scikit-learn estimators."""

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

MODELS = [rk.GaussianProcessRegressor, rk.GaussianProcessClassifier]
EVERY_MODEL = pytest.mark.parametrize("cls", MODELS, ids=["regressor", "classifier"])
LIMITS = pytest.mark.parametrize("n_components", [20, None], ids=["features", "exact"])


# Many fits each, of which only how the rows are held differs from other checks: those
# need not learn hyperparameters again.
HOLDING_ROWS = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}


@pytest.mark.slow
@parametrize_with_checks([rk.GaussianProcessRegressor(optimizer=None)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([cls() for cls in MODELS])
def test_scikit_learns_checks_while_it_learns(estimator, check):
    if check.func.__name__ in HOLDING_ROWS or check.keywords.get("readonly_memmap"):
        estimator.set_params(optimizer=None)
    check(estimator)


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(60, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


def output(model, X):
    return getattr(model, "predict_proba", model.predict)(X)


@pytest.mark.nightly
@EVERY_MODEL
@LIMITS
def test_copies_and_files(cls, n_components, rows, tmp_path):
    X, y = rows
    pytest.importorskip("skops")
    kernel = 2.0 * rk.Gaussian("scale") + rk.Matern(1.5, np.ones(4))
    model = cls(kernel, n_components=n_components, random_state=0)
    before = repr(model)
    model.fit(X, y)
    assert repr(model) == before and repr(clone(model)) == before
    rk.save(model, tmp_path / "model.skops")
    for again in (
        pickle.loads(pickle.dumps(model)),
        rk.load(tmp_path / "model.skops"),
    ):
        np.testing.assert_array_equal(output(again, X), output(model, X))
        theta = model.theta_ + 0.1
        for a, b in zip(
            again.log_marginal_likelihood(theta, True),
            model.log_marginal_likelihood(theta, True),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.nightly
@EVERY_MODEL
def test_pipelines_and_searches(cls, rows):
    X, y = rows
    search = GridSearchCV(
        make_pipeline(StandardScaler(), cls(rk.Gaussian(1.0), n_components=20)),
        {f"{cls.__name__.lower()}__kernel__lengthscale": [0.5, 2.0]},
        cv=2,
    )
    assert np.isfinite(search.fit(X, y).best_score_)


@pytest.mark.slow
@EVERY_MODEL
def test_tables(cls, rng):
    table = pd.DataFrame(
        {"size": rng.normal(size=40), "kind": rng.choice(["a", "b"], 40)}
    )
    y = ((table["size"] > 0) ^ (table["kind"] == "b")).astype(int)
    kernel = rk.Gaussian(1.0, columns=["size"]) * rk.Categorical(columns=["kind"])
    model = cls(5.0 * kernel, n_components=40, random_state=0).fit(table, y)
    assert model.score(table, y) > 0.6
    assert model.hyperparameters_[:2] == ["scale", "kernel__k1__lengthscale"]


@pytest.mark.nightly
@EVERY_MODEL
def test_the_seed_decides(cls, rows):
    X, y = rows
    first, again, other = (
        output(cls(n_components=20, random_state=seed).fit(X, y), X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
