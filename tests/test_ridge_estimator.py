"""The ridge models as scikit-learn estimators: checks, pipelines, pickles, tables."""

import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import randkern as rk

MODELS = [rk.KernelRidgeRegressor, rk.KernelRidgeClassifier]
EVERY_MODEL = pytest.mark.parametrize("cls", MODELS, ids=["regressor", "classifier"])
SYSTEMS = pytest.mark.parametrize(
    "n_components", [20, 130, None], ids=["primal", "dual", "exact"]
)


@parametrize_with_checks([rk.KernelRidgeClassifier()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        rk.KernelRidgeRegressor(),
        *(cls(n_components=None) for cls in MODELS),
    ]
)
def test_scikit_learns_checks_of_the_others(estimator, check):
    check(estimator)


@pytest.fixture
def rows(rng) -> tuple[np.ndarray, np.ndarray]:
    """60 rows of 4 columns and targets that both kinds of model take."""
    X = rng.normal(size=(60, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


def outputs(model, X) -> np.ndarray:
    """Return the real values behind a prediction."""
    return getattr(model, "decision_function", model.predict)(X)


# -- composition ------------------------------------------------------------------


@EVERY_MODEL
def test_constructor_only_stores(cls):
    kernel = rk.Gaussian("scale")
    limit = "1GB"
    model = cls(kernel, 0.5, 7, fit_intercept=True, memory_limit=limit, random_state=3)
    assert model.kernel is kernel
    assert model.memory_limit is limit
    # Nothing is checked before fit, and fit changes no parameter.
    wrong = cls("rbf", alpha=-1, n_components=0)
    assert wrong.alpha == -1
    X, y = np.eye(8), np.arange(8) % 2
    before = model.get_params()
    model.fit(X, y)
    assert model.get_params() == before
    assert kernel.lengthscale == "scale"
    assert model.kernel_ is not kernel


@EVERY_MODEL
def test_clone_keeps_parameters_and_drops_the_fit(cls, rows):
    X, y = rows
    model = cls(rk.Gaussian(2.0) + 0.5 * rk.Linear(), n_components=20, random_state=0)
    model.fit(X, y)
    copy = clone(model)
    assert copy.kernel is not model.kernel
    assert repr(copy) == repr(model)
    assert not [name for name in vars(copy) if name.endswith("_")]
    np.testing.assert_array_equal(copy.fit(X, y).predict(X), model.predict(X))


def test_nested_parameters():
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0) * rk.Optical() + rk.Laplacian())
    model.set_params(kernel__k1__k1__lengthscale=7.0, kernel__k1__k2__degree=3)
    assert model.kernel.k1.k1.lengthscale == 7.0
    assert model.kernel.k1.k2.degree == 3
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(kernel__sigma=1.0)


@EVERY_MODEL
@SYSTEMS
def test_pickle(cls, rows, n_components):
    X, y = rows
    model = cls(n_components=n_components, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(again, X), outputs(model, X))
    if n_components:
        model.partial_fit(
            X, y, **({"classes": [0, 1]} if hasattr(model, "classes_") else {})
        )
        again = pickle.loads(pickle.dumps(model))
        again.partial_fit(X + 1, y)
        model.partial_fit(X + 1, y)
        np.testing.assert_array_equal(outputs(again, X), outputs(model, X))


@pytest.mark.slow
@EVERY_MODEL
@SYSTEMS
@pytest.mark.parametrize(
    "kernel",
    [
        None,
        rk.Matern(1.5, [1.0, 2.0, 3.0, 4.0]),
        rk.Optical(2, bias=1.0) + rk.Gaussian("median", columns=[0, 1]),
        rk.Gaussian(2.0) * rk.Categorical(columns=[3]),
    ],
    ids=["default", "ARD", "sum", "product"],
)
def test_skops(cls, rows, n_components, kernel):
    """skops asks for trust in randkern's own types only, and loses no bit."""
    skops_io = pytest.importorskip("skops.io")
    X, y = rows
    X[:, 3] = np.round(X[:, 3])
    model = cls(kernel, n_components=n_components, random_state=0).fit(X, y)
    file = io.BytesIO(skops_io.dumps(model))
    unknown = skops_io.get_untrusted_types(file=file)
    assert all(name.startswith("randkern.") for name in unknown), unknown
    file.seek(0)
    again = skops_io.load(file, trusted=unknown)
    np.testing.assert_array_equal(outputs(again, X), outputs(model, X))
    assert again.solution_.outcome is model.solution_.outcome
    assert repr(again) == repr(model)


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


def test_other_metaestimators(rows):
    X, y = rows
    scores = cross_val_score(
        rk.KernelRidgeRegressor(n_components=30, random_state=0), X, X[:, 0], cv=4
    )
    assert scores.shape == (4,)
    assert np.mean(scores) > 0.5
    targets = X[:, :2]
    model = rk.KernelRidgeRegressor(n_components=30, random_state=0)
    wrapped = MultiOutputRegressor(model).fit(X, targets).predict(X)
    np.testing.assert_allclose(model.fit(X, targets).predict(X), wrapped, atol=1e-10)


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


def test_tables_that_do_not_match():
    frame, y = table()
    model = rk.KernelRidgeRegressor(MIXED, n_components=20, random_state=0)
    model.fit(frame, y)
    with pytest.raises(ValueError, match="expected a dataframe, got ndarray"):
        model.predict(frame.to_numpy())
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"size": "width"}))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="reads the column 'hue'"):
        model.set_params(kernel=rk.Gaussian(columns=["hue"])).fit(frame, y)
    with pytest.raises(ValueError, match="columns by name, but the input has no"):
        model.set_params(kernel=rk.Gaussian(columns=["size"])).fit(np.eye(9), y[:9])
    with pytest.raises(ValueError, match="'when' holds dat"):
        model.fit(frame.assign(when=pd.Timestamp("2024-01-01")), y)
    with pytest.raises(ValueError, match="NaN"):
        model.set_params(kernel=None).fit(frame[["size"]].mask(frame["size"] > 1), y)


@pytest.mark.slow
@EVERY_MODEL
@SYSTEMS
def test_sparse_rows(cls, rows, n_components):
    X, y = rows
    X[np.abs(X) < 0.7] = 0
    for kernel in (None, rk.Optical(2, bias=0.5), rk.Matern(2.5, 2.0) + rk.Optical(1)):
        model = cls(kernel, n_components=n_components, random_state=0)
        expected = outputs(model.fit(X, y), X)
        for kind in (sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array):
            model.fit(kind(X), y)
            np.testing.assert_allclose(outputs(model, kind(X)), expected, atol=1e-9)
        # Fitted on sparse rows, asked about dense ones.
        np.testing.assert_allclose(outputs(model, X), expected, atol=1e-9)


@EVERY_MODEL
@SYSTEMS
def test_kinds_of_rows(cls, rows, n_components):
    """Lists, Fortran order, strides, objects, integers: the same numbers."""
    X, y = rows
    X = np.round(2 * X)
    model = cls(rk.Gaussian(3.0), n_components=n_components, random_state=0)
    expected = outputs(model.fit(X, y), X)
    wide = np.zeros((60, 9))
    wide[:, ::2][:, :4] = X
    kinds = {
        "list": X.tolist(),
        "Fortran": np.asfortranarray(X),
        "strided": wide[:, ::2][:, :4],
        "object": X.astype(object),
        "int": X.astype(np.int16),
        "read-only": np.frombuffer(X.tobytes()).reshape(X.shape),
    }
    for name, kind in kinds.items():
        actual = outputs(model.fit(kind, y), kind)
        np.testing.assert_allclose(actual, expected, atol=1e-12, err_msg=name)


def test_memory_maps(tmp_path, rows):
    X, y = rows
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for n_components in (20, None):
        model = rk.KernelRidgeRegressor(n_components=n_components, random_state=0)
        expected = model.fit(X, y).predict(X)
        np.testing.assert_array_equal(model.fit(mapped, y).predict(mapped), expected)


@EVERY_MODEL
@SYSTEMS
def test_nothing_is_written_to_the_input(cls, rows, n_components):
    X, y = rows
    weights = np.linspace(0, 1, 60)
    copies = X.copy(), y.copy(), weights.copy()
    for array in (X, y, weights):
        array.flags.writeable = False
    model = cls(n_components=n_components, fit_intercept=True)
    model.fit(X, y, sample_weight=weights).predict(X)
    for array, copy in zip((X, y, weights), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_stochastic_gradients_are_those_of_scikit_learn(rng):
    X = rng.normal(size=(20, 2))
    model = rk.KernelRidgeRegressor(n_components=5, solver="sgd")
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"SGDRegressor\(\).partial_fit"):
        model.partial_fit(X, X[:, 0])
