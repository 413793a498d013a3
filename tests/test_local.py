"""Estimators in overlapping cells: the partition, blends, rows of all kinds."""

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import randkern as rk
from randkern._random import Stream
from randkern.models.cells import CellTree, scaled_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * RNG.normal(size=1500) + 5
X_NEW = RNG.normal(size=(200, 3))
TRUTH = np.sin(2 * X_NEW[:, 0]) + X_NEW[:, 1] ** 2 + 5
LABELS = np.array(["high", "low"])[(Y < 6).astype(int)]
KERNEL = rk.Gaussian(1.0)
RIDGE = rk.KernelRidgeRegressor(
    KERNEL, 1e-2, None, fit_intercept=True, solver="cholesky", random_state=0
)
LOGISTIC = rk.KernelLogistic(KERNEL, 10.0, None)


def local(cell_rows=300, **options):
    return rk.LocalRegressor(RIDGE, cell_rows, **options)


def rmse(predicted):
    return np.sqrt(np.mean((predicted - TRUTH) ** 2))


def weights_of(tree, rows):
    """Weights of cells, (n, n_cells)."""
    out = np.zeros((len(rows), tree.n_cells))
    for cell, members, weight in tree.cells(rows):
        out[members, cell] = weight
    return out


# -- the partition ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 10_000])
def test_weights_are_a_partition_of_unity(n):
    rows = np.random.default_rng(n).normal(size=(n, 4))
    tree, cells = CellTree.grow(rows, 64)
    weights = weights_of(tree, rows)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert max(map(len, cells)) <= 64
    for cell, members in enumerate(cells):
        np.testing.assert_array_equal(members, np.flatnonzero(weights[:, cell]))


def test_cells_hold_a_multiple_of_the_rows():
    """Time is linear: the number of rows in all cells is at most a multiple of n."""
    shares = []
    for n in (1_000, 10_000, 100_000):
        rows = np.random.default_rng(0).normal(size=(n, 3))
        _, cells = CellTree.grow(rows, 100)
        shares.append(sum(map(len, cells)) / n)
    # The product over all levels of 1 + β√(1/2)^j converges.
    bound = np.prod(1 + 0.25 * 2 ** (-np.arange(60) / 2))
    assert max(shares) < 1.1 * bound
    assert shares[2] / shares[1] < 1.2


def test_weights_are_continuous():
    tree, _ = CellTree.grow(X, 100)
    line = np.linspace(-3, 3, 20_001)[:, None] * [1.0, -0.5, 0.3]
    steps = np.abs(np.diff(weights_of(tree, line), axis=0)).max()
    assert steps < 0.05
    finer = np.linspace(-3, 3, 80_001)[:, None] * [1.0, -0.5, 0.3]
    assert np.abs(np.diff(weights_of(tree, finer), axis=0)).max() < steps / 3


@pytest.mark.parametrize(("columns", "n_values"), [(0, 1), (1, 2), (2, 20)])
def test_rows_of_few_values_are_divided(columns, n_values):
    rows = np.random.default_rng(0).integers(0, n_values, size=(3000, columns)) * 1.0
    tree, cells = CellTree.grow(rows, 200)
    np.testing.assert_allclose(weights_of(tree, rows).sum(axis=1), 1, rtol=1e-12)
    assert max(map(len, cells)) <= 200
    assert sum(map(len, cells)) < 2 * 3000
    assert np.unique(np.concatenate(cells)).tolist() == list(range(3000))


# -- regression ------------------------------------------------------------------------


def test_one_cell_is_the_estimator():
    model = local(len(X)).fit(X, Y)
    expected = clone(RIDGE).fit(X, Y).predict(X_NEW)
    np.testing.assert_allclose(model.predict(X_NEW), expected, atol=1e-8)


def test_predictions_blend_the_fits_of_cells():
    model = local().fit(X, Y)
    weights = weights_of(model.tree_, scaled_rows(KERNEL, X_NEW, Stream(0)))
    expected = 0.0
    for cell, rows in enumerate(model.estimators_samples_):
        alone = clone(RIDGE).fit(X[rows], Y[rows]).predict(X_NEW)
        expected = expected + weights[:, cell] * alone
    assert len(model.estimators_) > 4
    np.testing.assert_allclose(model.predict(X_NEW), expected, atol=1e-7)


def test_more_rows_than_one_cell_help():
    """The exact kernel on as many rows as a cell holds has a larger error."""
    few = clone(RIDGE).fit(X[:400], Y[:400])
    assert rmse(local(400).fit(X, Y).predict(X_NEW)) < 0.9 * rmse(few.predict(X_NEW))


def test_lengthscales_that_depend_on_data_are_those_of_all_rows():
    ridge = rk.KernelRidgeRegressor(rk.Matern(1.5, "scale"), 1e-2, None)
    model = rk.LocalRegressor(ridge, 300).fit(X, Y)
    expected = ridge.kernel.resolve(X).lengthscale
    lengthscales = {fit.kernel_.lengthscale for fit in model.estimators_}
    assert lengthscales == {expected} == {model.kernel_.lengthscale}


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        KNeighborsRegressor(),
        HistGradientBoostingRegressor(max_iter=30, early_stopping=False),
        make_pipeline(StandardScaler(), RIDGE),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_regressor(estimator):
    model = rk.LocalRegressor(estimator, 300, random_state=0).fit(X, Y)
    assert rmse(model.predict(X_NEW)) < 0.8
    assert len(model.estimators_) > 4


def test_kernels_on_columns_of_dataframes():
    frame = pd.DataFrame(X, columns=list("abc")).assign(
        kind=np.where(X[:, 2] > 0, "p", "q")
    )
    kernel = rk.Matern(1.5, "scale", columns=["a", "b"]) * rk.Categorical(
        columns=["kind"]
    )
    ridge = rk.KernelRidgeRegressor(kernel, 0.1, None)
    model = rk.LocalRegressor(ridge, 400).fit(frame, Y)
    assert model.score(frame, Y) > 0.8
    one = rk.LocalRegressor(ridge, 2000).fit(frame, Y).predict(frame)
    expected = clone(ridge).fit(frame, Y).predict(frame)
    np.testing.assert_allclose(one, expected, rtol=1e-9)


@pytest.mark.slow
def test_processes_have_standard_deviations():
    process = rk.GaussianProcessRegressor(KERNEL, 1e-2, None, optimizer=None)
    model = rk.LocalRegressor(process, 300).fit(X, Y)
    mean, std = model.predict(X_NEW, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X_NEW))
    exact = clone(process).fit(X, Y).predict(X_NEW, return_std=True)[1]
    assert np.corrcoef(std, exact)[0, 1] > 0.9
    assert (std > 0.9 * exact).all()
    line = np.linspace(-2, 2, 4001)[:, None] * [1.0, 0.5, -0.5]
    for values in model.predict(line, return_std=True):
        assert np.abs(np.diff(values)).max() < 0.02


@pytest.mark.parametrize(
    "kernel",
    [
        rk.Linear(),
        rk.Polynomial(4, 1.0),
    ],
)
def test_kernels_without_lengthscale(kernel):
    ridge = rk.KernelRidgeRegressor(kernel, 1.0, None, fit_intercept=True)
    model = rk.LocalRegressor(ridge, 200).fit(X, Y)
    assert rmse(model.predict(X_NEW)) < 0.8
    sparse = clone(model).fit(sp.csr_array(X), Y).predict(sp.csr_array(X_NEW))
    assert rmse(sparse) < 0.8


@pytest.mark.parametrize("n_columns", [3, 300])
@pytest.mark.parametrize("estimator", [RIDGE, Ridge()], ids=["kernel", "other"])
def test_sparse_rows_and_dense_ones_are_the_same(estimator, n_columns):
    """For fits of few columns; predictions, for rows of the other kind, too."""
    rows = sp.random_array((400, n_columns), density=0.3, rng=0, format="csr")
    y = rows.sum(axis=1)
    dense, sparse = (
        rk.LocalRegressor(estimator, 100).fit(each, y)
        for each in (rows.toarray(), rows)
    )
    for model in (dense, sparse):
        np.testing.assert_allclose(
            model.predict(rows), model.predict(rows.toarray()), atol=1e-6
        )
    if n_columns == 3:
        assert len(sparse.estimators_) > 3
        np.testing.assert_allclose(sparse.predict(rows), dense.predict(rows), atol=1e-6)


def test_rows_of_weight_zero_are_ignored():
    weight = np.ones(len(X))
    weight[:500] = 0
    model = local().fit(X, Y, weight)
    assert min(rows.min() for rows in model.estimators_samples_) == 500
    np.testing.assert_array_equal(
        model.predict(X_NEW), local().fit(X[500:], Y[500:]).predict(X_NEW)
    )


def test_jobs_change_nothing():
    expected = local().fit(X, Y).predict(X_NEW)
    with joblib.parallel_config("threading"):
        np.testing.assert_allclose(
            local(n_jobs=2).fit(X, Y).predict(X_NEW), expected, rtol=1e-9
        )


def test_seeds():
    features = rk.KernelRidgeRegressor(KERNEL, 0.1, 50)
    fits = [
        rk.LocalRegressor(features, 500, random_state=seed).fit(X, Y).predict(X_NEW)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert abs(fits[0] - fits[2]).max() > 1e-3
    seeded = clone(features).set_params(random_state=3)
    model = rk.LocalRegressor(seeded, 500).fit(X, Y)
    assert {fit.random_state for fit in model.estimators_} == {3}


# -- copies of rows --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the mean of y")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_many_copies_of_a_row(fit_intercept):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(12_000, 2))
    rows[rng.random(12_000) < 0.4] = 0.3
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.1 * rng.normal(size=12_000)
    ridge = rk.KernelRidgeRegressor(KERNEL, 0.1, None, fit_intercept=fit_intercept)
    model = rk.LocalRegressor(ridge, 400).fit(rows, y)
    assert max(map(len, model.estimators_samples_)) <= 400
    new = rng.normal(size=(500, 2))
    error = model.predict(new) - np.sin(2 * new[:, 0]) - new[:, 1]
    assert np.sqrt(np.mean(error[np.abs(new).max(axis=1) < 2] ** 2)) < 0.05
    here = model.predict([[0.3, 0.3]])[0]
    assert abs(here - np.sin(0.6) - 0.3) < 0.02


@pytest.mark.parametrize("estimator", [None, rk.KernelRidgeRegressorCV()])
def test_cells_of_equal_rows(estimator):
    rows = np.repeat([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]], 100, axis=0)
    rng = np.random.default_rng(0)
    y = np.repeat([1.0, 2.0, 4.0], 100) + 0.01 * rng.normal(size=300)
    if estimator is not None:
        estimator = clone(estimator).set_params(
            kernel=KERNEL, n_components=None, fit_intercept=True
        )
    model = rk.LocalRegressor(estimator, 100).fit(rows, y)
    np.testing.assert_allclose(
        model.predict(rows[[0, 100, 200]]), [1.0, 2.0, 4.0], atol=0.1
    )


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, np.float32], ids=str)
@pytest.mark.parametrize(
    "model",
    [
        rk.LocalRegressor(RIDGE, 60),
        rk.LocalRegressor(LinearRegression(), 60),
        rk.LocalClassifier(LOGISTIC, 60),
        rk.LocalClassifier(LogisticRegression(), 60),
    ],
    ids=str,
)
def test_weights_are_repetitions(model, kind):
    rng = np.random.default_rng(0)
    rows, new = np.round(4 * X[:300]) / 4, np.round(4 * X_NEW) / 4
    y = LABELS[:300] if is_classifier(model) else Y[:300]
    counts = rng.integers(0, 4, 300)
    repeated = rng.permutation(np.repeat(np.arange(300), counts))
    method = "predict_proba" if is_classifier(model) else "predict"
    weighted = clone(model).fit(kind(rows), y, counts)
    expected = getattr(weighted, method)(kind(new))
    model = clone(model).fit(kind(rows[repeated]), y[repeated])
    assert len(model.estimators_) > 4
    assert max(map(len, model.estimators_samples_)) <= 60
    found = getattr(model, method)(kind(new))
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_whole_numbers_and_labels_of_few_bytes_have_copies():
    rows = np.random.default_rng(0).integers(0, 5, size=(400, 3)).astype(np.int8)
    labels = rows.sum(axis=1) > 6
    model = rk.LocalClassifier(LogisticRegression(), 50).fit(rows, labels)
    assert len(np.unique(np.concatenate(model.estimators_samples_))) == len(
        np.unique(rows, axis=0)
    )
    assert model.score(rows, labels) > 0.9


def test_rows_of_dataframes_are_never_merged_by_numbers_alone():
    """Columns of text tell rows apart that have the same numbers."""

    class Means(RegressorMixin, BaseEstimator):
        def fit(self, X, y, sample_weight=None):
            self.means_ = pd.Series(y, X.index).groupby(X["kind"]).mean()
            return self

        def predict(self, X):
            return X["kind"].map(self.means_).to_numpy()

    frame = pd.DataFrame({"a": np.repeat([1.0, 2.0], 50), "kind": ["p", "q"] * 50})
    y = pd.Series(np.tile([1.0, 1.0], 50))
    model = rk.LocalRegressor(Means(), 40)
    assert (
        len(np.unique(np.concatenate(model.fit(frame, y).estimators_samples_))) == 100
    )


# -- classification --------------------------------------------------------------------


def test_probabilities_blend_those_of_cells():
    model = rk.LocalClassifier(LOGISTIC, 300).fit(X, LABELS)
    weights = weights_of(model.tree_, scaled_rows(KERNEL, X_NEW, Stream(0)))
    expected = 0.0
    for cell, rows in enumerate(model.estimators_samples_):
        alone = clone(LOGISTIC).fit(X[rows], LABELS[rows]).predict_proba(X_NEW)
        expected = expected + weights[:, [cell]] * alone
    np.testing.assert_allclose(model.predict_proba(X_NEW), expected, atol=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [None, GaussianNB(), rk.KernelRidgeClassifier(KERNEL, 0.1, None)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_classes_that_a_cell_lacks(estimator):
    rare = np.where(X[:, 2] > 2.2, "rare", LABELS)  # in some cells only
    model = rk.LocalClassifier(estimator, 300).fit(X[:1000], rare[:1000])
    assert model.classes_.tolist() == ["high", "low", "rare"]
    assert {len(fit.classes_) for fit in model.estimators_} > {2}
    assert model.score(X[1000:], rare[1000:]) > 0.75
    probabilities = model.predict_proba(X[1000:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.min() > 0 or isinstance(estimator, GaussianNB)
    assert log_loss(rare[1000:], probabilities) < 0.8


def test_cells_of_one_class():
    labels = np.where(X[:, 0] > 0, 7, 3)
    model = rk.LocalClassifier(LOGISTIC, 200).fit(X, labels)
    assert {len(fit.classes_) for fit in model.estimators_} == {1, 2}
    assert model.score(X, labels) > 0.97
    assert 0 < model.predict_proba(X).min() < 1e-2


def test_classifiers_without_probabilities_vote():
    model = rk.LocalClassifier(LinearSVC(), 300).fit(X, LABELS)
    assert not hasattr(model, "predict_proba")
    assert model.score(X, LABELS) > 0.8


# -- files and other formats -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cell_rows", [300, 2000])
def test_cells_are_exported(tmp_path, cell_rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    classes = np.where(X[:, 0] > 1, 9, np.digitize(Y, [4.5, 6.0]))
    for model in (
        local(cell_rows).fit(X, Y),
        rk.LocalClassifier(LOGISTIC, cell_rows).fit(X, classes),
    ):
        made = rk.export_onnx(model, tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(made.SerializeToString())
        *_, found = session.run(None, {session.get_inputs()[0].name: X_NEW})
        expected = getattr(model, "predict_proba", model.predict)(X_NEW)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-8)
    ridge = rk.KernelRidgeRegressor(rk.Polynomial(2, 1.0), 0.1, None)
    model = rk.LocalRegressor(ridge).fit(X, Y)
    with pytest.raises(ValueError, match="a kernel without lengthscales; use"):
        rk.export_onnx(model, tmp_path / "model.onnx")


def test_errors_say_what_to_do():
    for estimator in (RIDGE, LOGISTIC, rk.KernelRidgeRegressorCV()):
        with pytest.raises(ValueError, match=r"randkern\.LocalRegressor"):
            clone(estimator).set_params(features="local").fit(X, LABELS == "low")
    with pytest.raises(ValueError, match="does not take sample_weight"):
        rk.LocalRegressor(KNeighborsRegressor()).fit(X, Y, np.ones(len(X)))
    blocks = rk.RowBlocks.from_arrays(X, Y)
    for model in (local(), rk.LocalClassifier()):
        with pytest.raises(TypeError, match="takes rows in memory, got RowBlocks"):
            model.fit(blocks)
    with pytest.raises(TypeError, match="the rows of one block after another"):
        local().fit(X, Y).predict(blocks)
    with pytest.raises(TypeError, match="LocalRegressor"):
        rk.to_torch(local().fit(X, Y))
