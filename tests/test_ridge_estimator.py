"""The ridge models as scikit-learn estimators: checks, pipelines, pickles, tables."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk

SYSTEMS = pytest.mark.parametrize(
    "n_components", [20, 130, None], ids=["primal", "dual", "exact"]
)


@pytest.fixture
def rows(rng) -> tuple[np.ndarray, np.ndarray]:
    """60 rows of 4 columns and targets that both kinds of model take."""
    X = rng.normal(size=(60, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


# -- composition ------------------------------------------------------------------


@pytest.mark.slow
def test_grid_search_over_the_kernel():
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(
        StandardScaler(),
        rk.KernelRidgeClassifier(rk.Gaussian(), n_components=50, random_state=0),
    )
    search = GridSearchCV(
        pipeline,
        {
            "kernelridgeclassifier__kernel__lengthscale": [0.1, 8.0],
            "kernelridgeclassifier__alpha": [1e-2, 1.0],
        },
        cv=3,
    ).fit(X[::2], y[::2])
    assert search.best_params_["kernelridgeclassifier__kernel__lengthscale"] == 8.0
    assert search.score(X[1::2], y[1::2]) > 0.93
    optical = GridSearchCV(
        rk.KernelRidgeRegressor(rk.Optical(bias=1.0), n_components=30, random_state=0),
        {"kernel__degree": [0.5, 1, 2], "n_components": [10, None]},
        cv=3,
    )
    cubic = (X[:90, :2] / X[:90, :2].std(axis=0)) @ [1.0, 0.5]
    optical.fit(X[:90, :2] / X[:90, :2].std(axis=0), cubic**2)
    assert optical.best_params_["kernel__degree"] == 2
    assert optical.best_score_ > 0.9


def test_random_states(rows):
    X, y = rows
    model = rk.KernelRidgeRegressor(n_components=10)

    def predict(random_state) -> np.ndarray:
        return model.set_params(random_state=random_state).fit(X, y).predict(X)

    np.testing.assert_array_equal(predict(3), predict(3))
    np.testing.assert_array_equal(
        predict(np.random.default_rng(1)), predict(np.random.default_rng(1))
    )
    np.testing.assert_array_equal(
        predict(np.random.RandomState(1)), predict(np.random.RandomState(1))
    )
    assert np.abs(predict(3) - predict(4)).max() > 1e-3
    assert np.abs(predict(None) - predict(None)).max() > 1e-3
    # The exact kernel draws nothing.
    model.set_params(n_components=None)
    np.testing.assert_array_equal(predict(None), predict(None))


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
@SYSTEMS
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


def test_unseen_categories_agree_with_none():
    """A new colour is unlike every row seen: its term of the kernel is 0."""
    frame, y = table()
    kernel = rk.Categorical(columns="colour")
    new = frame[:2].assign(colour=["mauve", "puce"])
    model = rk.KernelRidgeRegressor(kernel, 0.1, None, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.predict(new), 0)
    # Features of a new colour are independent of the weights, and of variance 1/D.
    for D in (4000, 40_000):
        model.set_params(n_components=D).fit(frame, y)
        spread = np.linalg.norm(model.coef_) / np.sqrt(D)
        assert np.all(np.abs(model.predict(new)) < 5.5 * spread)
        assert 5.5 * spread < 0.4 * np.sqrt(4000 / D)  # the power


def test_a_pipeline_may_turn_the_table_into_numbers():
    frame, y = table()
    numbers = frame[["size", "count"]]
    scaler = StandardScaler().set_output(transform="pandas")
    kernel = rk.Gaussian("scale", columns=["size"]) + rk.Linear(columns=["count"])
    pipeline = make_pipeline(scaler, rk.KernelRidgeRegressor(kernel, n_components=50))
    assert pipeline.fit(numbers, y).predict(numbers).shape == (len(y),)


def test_stochastic_gradients_are_those_of_scikit_learn(rng):
    X = rng.normal(size=(20, 2))
    model = rk.KernelRidgeRegressor(n_components=5, solver="sgd")
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.partial_fit(X, X[:, 0])
