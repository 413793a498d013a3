"""Exact kernels in overlapping cells: the partition, its fits, rows of all kinds."""

import numpy as np
import pytest
import scipy.sparse as sp

import randkern as rk
from randkern._fitting import ending
from randkern._random import Stream
from randkern.exceptions import MemoryLimitError
from randkern.kernels import Linear
from randkern.models.cells import CellTree, scaled_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * RNG.normal(size=1500) + 5
X_NEW = RNG.normal(size=(200, 3))
KERNEL = rk.Gaussian(1.0)


def local(cell_rows=300, alpha=1e-2, **options):
    return rk.KernelRidgeRegressor(
        KERNEL,
        alpha,
        cell_rows,
        features="local",
        fit_intercept=True,
        random_state=0,
        **options,
    )


def weights_of(tree, rows):
    """Weights of cells, (n, n_cells)."""
    out = np.zeros((len(rows), tree.n_cells))
    for cell, members, weight in tree.cells(rows):
        out[members, cell] = weight
    return out


@pytest.mark.parametrize("n", [100, 1000, 30_000])
def test_weights_are_a_partition_of_unity(n):
    rows = np.random.default_rng(n).normal(size=(n, 4))
    tree = CellTree.grow(rows, 64)
    weights = weights_of(tree, rows)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert (weights > 0).sum(axis=0).max() <= 64


def test_cells_hold_a_multiple_of_the_rows():
    """Time is linear: the number of rows in all cells is at most a multiple of n."""
    shares = []
    for n in (2_000, 20_000, 200_000):
        rows = np.random.default_rng(0).normal(size=(n, 3))
        tree = CellTree.grow(rows, 100)
        sizes = [len(members) for _, members, _ in tree.cells(rows)]
        shares.append(sum(sizes) / n)
    # The product over all levels of 1 + β√(1/2)^j converges.
    bound = np.prod(1 + 0.25 * 2 ** (-np.arange(60) / 2))
    assert max(shares) < 1.1 * bound
    assert shares[2] / shares[1] < 1.2


def test_weights_are_continuous():
    tree = CellTree.grow(X, 100)
    line = np.linspace(-3, 3, 20_001)[:, None] * [1.0, -0.5, 0.3]
    steps = np.abs(np.diff(weights_of(tree, line), axis=0)).max()
    assert steps < 0.05
    finer = np.linspace(-3, 3, 80_001)[:, None] * [1.0, -0.5, 0.3]
    assert np.abs(np.diff(weights_of(tree, finer), axis=0)).max() < steps / 3


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_few_values_are_divided(columns):
    rows = np.random.default_rng(0).integers(0, 20, size=(3000, columns)) * 1.0
    tree = CellTree.grow(rows, 200)
    weights = weights_of(tree, rows)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert (weights > 0).sum(axis=0).max() <= 400


def test_equal_rows_are_one_cell():
    assert CellTree.grow(np.ones((500, 2)), 50).n_cells == 1
    assert CellTree.grow(np.zeros((500, 0)), 50).n_cells == 1


def test_one_cell_is_the_exact_kernel():
    exact = rk.KernelRidgeRegressor(KERNEL, 1e-2, None, fit_intercept=True).fit(X, Y)
    model = local(len(X)).fit(X, Y)
    np.testing.assert_allclose(model.predict(X_NEW), exact.predict(X_NEW), atol=1e-8)
    assert model.solution_.residual < 1e-8


def test_predictions_blend_the_fits_of_cells():
    model = local().fit(X, Y)
    tree = model.cells_.tree
    weights = weights_of(tree, scaled_rows(KERNEL, X_NEW, Stream(0)))
    expected = np.zeros(len(X_NEW))
    for cell, rows in enumerate(model.cells_.rows):
        exact = rk.KernelRidgeRegressor(KERNEL, 1e-2, None, fit_intercept=True)
        expected += weights[:, cell] * exact.fit(X[rows], Y[rows]).predict(X_NEW)
    assert len(model.cells_.rows) > 4
    np.testing.assert_allclose(model.predict(X_NEW), expected, atol=1e-7)


def test_leave_one_out_predictions_are_those_of_fits_without_the_row():
    """The score of the only penalty is the mean over cells of their own errors."""
    model = local(80).fit(X[:120], Y[:120])
    scores, sizes = [], []
    weights = weights_of(model.cells_.tree, scaled_rows(KERNEL, X[:120], Stream(0)))
    blended = np.zeros(120)
    for cell, rows in enumerate(model.cells_.rows):
        errors = []
        for row in range(len(rows)):
            others = np.delete(rows, row)
            exact = rk.KernelRidgeRegressor(KERNEL, 1e-2, None, fit_intercept=True)
            exact.fit(X[others], Y[others])
            predicted = exact.predict(X[rows[row : row + 1]])[0]
            blended[rows[row]] += weights[rows[row], cell] * predicted
            errors.append(Y[rows[row]] - predicted)
        scores.append(np.mean(np.square(errors)))
        sizes.append(len(rows))
    assert model.cells_.best_score == pytest.approx(
        -np.average(scores, weights=sizes), rel=1e-6
    )
    left_out = model.cells_.left_out[:, 0] + model.intercept_
    np.testing.assert_allclose(left_out, blended, atol=1e-6)


def test_more_rows_than_one_cell_help():
    """The exact kernel on as many rows as a cell holds has a larger error."""
    truth = np.sin(2 * X_NEW[:, 0]) + X_NEW[:, 1] ** 2 + 5

    def error(model):
        return np.sqrt(np.mean((model.predict(X_NEW) - truth) ** 2))

    few = rk.KernelRidgeRegressor(KERNEL, 1e-2, None, fit_intercept=True)
    assert error(local(400).fit(X, Y)) < 0.9 * error(few.fit(X[:400], Y[:400]))


def test_intervals_cover():
    fitted, new = slice(0, 1000), slice(1000, 1500)
    low, high = local().fit(X[fitted], Y[fitted]).predict_interval(X[new], 0.9).T
    covered = np.mean((low <= Y[new]) & (Y[new] <= high))
    # Of 500 rows, with quantiles of 500 residuals: five standard errors.
    assert abs(covered - 0.9) < 5 * np.sqrt(2 * 0.09 / 500)


def test_each_cell_chooses_its_penalty():
    noisy = np.where(X[:, 0] > 0, 1.0, 0.01) * RNG.normal(size=len(X))
    y = np.sin(X[:, 0]) + noisy
    alphas = np.logspace(-4, 2, 13)
    model = rk.KernelRidgeRegressorCV(
        rk.Gaussian(2.0), alphas, 200, features="local", fit_intercept=True
    ).fit(X, y)
    centres = np.array([X[rows, 0].mean() for rows in model.cells_.rows])
    chosen = np.log10(model.cells_.alphas)
    assert chosen[centres > 0.5].mean() > chosen[centres < -0.5].mean() + 1
    assert model.best_score_ >= model.cv_results_["mean_test_score"].max()
    assert model.alpha_ in alphas


def test_classes_and_probabilities():
    labels = np.array(["low", "high"])[(Y > 6).astype(int)]
    rare = np.where(X[:, 2] > 2.2, "rare", labels)  # in some cells only
    model = rk.KernelRidgeClassifier(KERNEL, 0.1, 300, features="local")
    model.fit(X[:1000], rare[:1000])
    assert model.classes_.tolist() == ["high", "low", "rare"]
    assert model.score(X[1000:], rare[1000:]) > 0.85
    probabilities = model.predict_proba(X[1000:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    losses = -np.log(
        probabilities[np.arange(500), np.searchsorted(model.classes_, rare[1000:])]
    )
    assert losses.mean() < 0.4


def test_rows_of_all_kinds_agree():
    expected = local().fit(X, Y).predict(X_NEW)
    blocks = rk.RowBlocks(
        lambda: ((X[i : i + 400], Y[i : i + 400]) for i in range(0, len(X), 400))
    )
    np.testing.assert_array_equal(local().fit(blocks).predict(X_NEW), expected)
    several = local().fit(X, np.column_stack([Y, -2 * Y])).predict(X_NEW)
    np.testing.assert_allclose(several, np.outer(expected, [1, -2]), rtol=1e-6)
    single = local().fit(X.astype(np.float32), Y).predict(X_NEW.astype(np.float32))
    np.testing.assert_allclose(single, expected, atol=1e-2)


def test_sparse_rows_and_kernels_without_lengthscale():
    truth = np.sin(2 * X_NEW[:, 0]) + X_NEW[:, 1] ** 2 + 5
    fitted = local().fit(sp.csr_array(X), Y).predict(sp.csr_array(X_NEW))
    assert np.sqrt(np.mean((fitted - truth) ** 2)) < 0.4
    polynomial = local().set_params(kernel=rk.Polynomial(4, 1.0), alpha=1.0)
    fitted = polynomial.fit(X, Y).predict(X_NEW)
    assert np.sqrt(np.mean((fitted - truth) ** 2)) < 0.4


def test_rows_of_weight_zero_are_ignored():
    weight = np.ones(len(X))
    weight[:500] = 0
    weighted = local().fit(X, Y, weight).predict(X_NEW)
    np.testing.assert_array_equal(
        weighted, local().fit(X[500:], Y[500:]).predict(X_NEW)
    )


def test_saved_models_predict_the_same(tmp_path):
    model = local().fit(X, Y)
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(X_NEW), model.predict(X_NEW))
    np.testing.assert_array_equal(
        loaded.predict_interval(X_NEW), model.predict_interval(X_NEW)
    )


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="got solver='pcg'; use solver='auto'"):
        local(solver="pcg").fit(X, Y)
    with pytest.raises(MemoryLimitError, match="rows of a cell"):
        local(memory_limit="100kB").fit(X, Y)
    with pytest.raises(ValueError, match="use scoring=None and cv=None"):
        rk.KernelRidgeRegressorCV(KERNEL, features="local", cv=3).fit(X, Y)
    with pytest.raises(AttributeError):
        _ = local().partial_fit


def test_refits_forget_the_cells():
    model = local().fit(X, Y)
    model.set_params(features="random").fit(X, Y)
    assert not hasattr(model, "cells_")
    assert np.isfinite(model.predict(X_NEW)).all()


def test_weights_of_all_cells_are_those_of_single_ones():
    tree = CellTree.grow(X, 300)
    expected = weights_of(tree, X_NEW)
    found = dict(tree.weights(X_NEW))
    assert sorted(found) == list(range(tree.n_cells))
    for cell, weight in found.items():
        np.testing.assert_allclose(weight[:, 0], expected[:, cell], atol=1e-15)


@pytest.mark.parametrize("cell_rows", [300, 2000])
def test_cells_are_exported(tmp_path, cell_rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    labels = np.digitize(Y, [4.5, 6.0])
    classes = rk.KernelRidgeClassifier(KERNEL, 0.1, cell_rows, features="local")
    for model in (local(cell_rows).fit(X, Y), classes.fit(X, labels)):
        made = rk.export_onnx(model, tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(made.SerializeToString())
        *_, found = session.run(None, {session.get_inputs()[0].name: X_NEW})
        expected = getattr(model, "predict_proba", model.predict)(X_NEW)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-9)
    model = local().set_params(kernel=rk.Polynomial(2, 1.0)).fit(X, Y)
    with pytest.raises(ValueError, match="a kernel without lengthscales; use"):
        rk.export_onnx(model, tmp_path / "model.onnx")


def test_late_fits_have_few_rows_of_each_cell():
    """Their predictions for rows left out are those of fits without these rows."""
    with ending(lambda: True):
        model = local(800).fit(X, Y)
    cells = model.cells_
    assert max(map(len, cells.rows)) <= 200
    whole = local(800).fit(X, Y).cells_
    known, expected = np.zeros(len(X), dtype=bool), 0.0
    for cell, (few, every) in enumerate(zip(cells.rows, whole.rows, strict=True)):
        np.testing.assert_array_equal(few, every[:: -(-len(every) // 200)])
        known[few] = True
        alone = rk.KernelRidgeRegressor(KERNEL, 1e-2, None, fit_intercept=True)
        weight = weights_of(cells.tree, scaled_rows(KERNEL, X, Stream(0)))[:, cell]
        expected = expected + weight * alone.fit(X[few], Y[few]).predict(X)
    found = cells.left_out[:, 0] + model.intercept_
    np.testing.assert_allclose(found[~known], expected[~known], rtol=1e-6)
    assert (~known).mean() > 0.5
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6)


def test_late_cells_of_labels_have_few_rows():
    model = rk.KernelLogistic(
        KERNEL, n_components=800, features="local", fit_intercept=False
    )
    with ending(lambda: True):
        model.fit(X, Y > 6)
    assert max(map(len, model.cells_.rows)) <= 200
    assert model.score(X, Y > 6) > 0.8
    assert max(map(len, model.fit(X, Y > 6).cells_.rows)) > 400


def test_cells_of_labels_are_saved_and_exported(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    kernel = KERNEL + Linear(1.0, columns=[])
    labels = np.digitize(Y, [5.5, 6.5])
    model = rk.KernelLogistic(
        kernel, n_components=300, features="local", fit_intercept=False
    ).fit(X, labels)
    expected = model.predict_proba(X_NEW)
    rk.save(model, tmp_path / "model.skops")
    saved = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(saved.predict_proba(X_NEW), expected)
    made = rk.export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString())
    *_, found = session.run(None, {session.get_inputs()[0].name: X_NEW})
    np.testing.assert_allclose(found, expected, atol=1e-6)
