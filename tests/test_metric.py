"""`MetricLearner`: which columns and directions matter, found by gradients."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import randkern as rk
from randkern._random import root_stream
from randkern.data.training_data import ArrayRows
from randkern.exceptions import NoSignalWarning
from randkern.kernels.draw import fit_plan
from randkern.metric.ridge import GradientRidge, StandardisedMap

RNG = np.random.default_rng(7)
X = RNG.normal(size=(240, 5))
Y = np.sin(2 * X[:, 1]) + X[:, 3] ** 2


def ridge_of(kernel, plan, targets, weight=None):
    """Return the fit to the rows as they are."""
    plain = StandardisedMap(np.zeros(5), np.ones(5), np.ones(5))
    return GradientRidge(kernel, plan, ArrayRows(X, targets, weight), plain)


def learner(**options):
    return rk.MetricLearner(**({"random_state": 0, "n_iterations": 2} | options))


@pytest.fixture(scope="module")
def learned():
    return learner().fit(X, Y)


@pytest.mark.nightly
@parametrize_with_checks([learner(n_iterations=1, metric="diagonal")])
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSignalWarning)  # targets of checks are noise
        check(estimator)


# -- gradients --------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [None, 60, 61])
@pytest.mark.parametrize(
    "kernel", [rk.Matern(1.5, 2.0), rk.Gaussian(1.5), rk.RationalQuadratic(2.0, 1.5)]
)
def test_outer_products_are_those_of_finite_differences(kernel, n_components):
    plan = None
    if n_components is not None:
        plan = fit_plan(kernel, X, None, n_components, root_stream(3))
    targets = np.stack([Y, X[:, 0]], axis=1)
    weight = RNG.uniform(0.5, 2.0, len(X))
    ridge = ridge_of(kernel, plan, targets, weight)
    weights, _ = ridge.solve(1e-2)
    step, slopes = 1e-5, []
    for j in range(X.shape[1]):
        move = step * (np.arange(X.shape[1]) == j)
        ahead = ridge.values(X + move)
        slopes.append((ahead - ridge.values(X - move)) @ weights / (2 * step))
    J = np.stack(slopes, axis=2)  # rows, outputs, columns
    expected = np.einsum("i,ikp,ikq->pq", weight, J, J) / weight.sum()
    G = ridge.outer_products(weights, full=True)
    np.testing.assert_allclose(G, expected, rtol=1e-5, atol=1e-6 * expected.max())
    diagonal = ridge.outer_products(weights, full=False)
    np.testing.assert_allclose(diagonal, np.diagonal(expected), rtol=1e-5)


# -- what is learned --------------------------------------------------------------


@pytest.mark.slow
def test_finds_the_columns_that_matter(learned):
    assert set(np.argsort(learned.feature_importances_)[-2:]) == {1, 3}
    assert learned.feature_importances_[[0, 2, 4]].max() < 0.02
    assert np.isclose(learned.feature_importances_.sum(), 1.0)
    assert 1 <= learned.n_iter_ < len(learned.history_)
    assert learned.history_[learned.n_iter_] == min(learned.history_)
    assert learned.history_[learned.n_iter_] < 0.3 * learned.history_[0]
    # The kernel and the penalty belong to the transformed rows: their variance is that
    # of the rule "scale" for a lengthscale of 1, over a power of 4.
    spread = np.log2(learned.transform(X).var(axis=0).sum() / 2) / 2
    assert np.isclose(spread, round(spread), atol=1e-6)
    new = RNG.normal(size=(300, 5))
    target = np.sin(2 * new[:, 1]) + new[:, 3] ** 2
    model = rk.KernelRidgeRegressor(
        learned.kernel_, learned.alpha_, n_components=None, fit_intercept=True
    ).fit(learned.transform(X), Y)
    error = np.mean((model.predict(learned.transform(new)) - target) ** 2)
    assert error < 0.1 * target.var()


@pytest.mark.nightly
@pytest.mark.parametrize("n_components", [None, 150])
def test_finds_a_direction(n_components):
    direction = np.array([3.0, -2.0, 0.0, 1.0, 0.0]) / np.sqrt(14)
    y = np.sin(2 * X @ direction)
    metric = learner(metric="auto", n_components=n_components).fit(X, y)
    assert metric.metric_ == "full"
    _, _, axes = np.linalg.svd(metric.components_)
    assert abs(axes[0] @ direction) > np.cos(np.deg2rad(3))


@pytest.mark.nightly
def test_finds_the_factors_of_a_product():
    """The mean of the targets depends on none of them, their variance on each."""
    rows = np.random.default_rng(100).normal(size=(2000, 25))[:1000]
    metric = learner(metric="diagonal").fit(rows, rows[:, :3].prod(axis=1))
    assert set(np.argsort(metric.feature_importances_)[-3:]) == {0, 1, 2}


@pytest.mark.slow
def test_labels():
    rows, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    noise = RNG.normal(size=(150, 3))
    metric = learner(metric="diagonal").fit(np.hstack([rows, noise]), names)
    assert metric.feature_importances_[4:].sum() < 0.1
    other = learner(metric="diagonal").fit(np.hstack([rows, noise]), labels)
    assert np.array_equal(metric.components_, other.components_)
    binary = learner(metric="diagonal").fit(X, Y > 1)
    assert set(np.argsort(binary.feature_importances_)[-2:]) == {1, 3}


@pytest.mark.slow
def test_several_outputs():
    targets = np.stack([np.sin(2 * X[:, 1]), 1e6 * X[:, 3] ** 2], axis=1)
    metric = learner().fit(X, targets)
    assert metric.feature_importances_[[1, 3]].min() > 0.2
    assert metric.feature_importances_[[1, 3]].sum() > 0.95


@pytest.mark.nightly
def test_no_signal_keeps_the_identity():
    with pytest.warns(NoSignalWarning, match="leaves the columns unchanged"):
        metric = learner().fit(X, RNG.normal(size=len(X)))
    assert np.array_equal(metric.components_, np.eye(5))
    assert np.array_equal(metric.transform(X), X)
    assert metric.n_iter_ == 0
    assert metric.metric_ == "identity"
    assert np.isclose(metric.feature_importances_.sum(), 1.0)
    with pytest.warns(NoSignalWarning):
        learner().fit(X, np.ones(len(X)))


@pytest.mark.slow
def test_heavy_tailed_losses_do_not_hide_a_signal():
    """A parabola without noise: a few rows at the ends hold most of the variance."""
    rows = np.random.default_rng(0).normal(size=(120, 3))
    metric = learner().fit(rows, rows[:, 0] ** 2)
    assert metric.metric_ != "identity"
    assert metric.feature_importances_.argmax() == 0


@pytest.mark.nightly
def test_skewed_noise_is_not_signal():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        with pytest.warns(NoSignalWarning):
            learner().fit(rng.normal(size=(150, 3)), rng.lognormal(0, 1.5, size=150))


@pytest.mark.nightly
@pytest.mark.parametrize("labelled", [False, True])
def test_columns_that_do_not_matter_have_no_importance(labelled):
    rng = np.random.default_rng(5)
    rows = rng.uniform(size=(600, 20))
    y = 10 * np.sin(np.pi * rows[:, 0] * rows[:, 1]) + 20 * (rows[:, 2] - 0.5) ** 2
    y += 10 * rows[:, 3] + 5 * rows[:, 4] + rng.normal(size=600)
    metric = learner(metric="diagonal").fit(rows, y > 14 if labelled else y)
    assert metric.feature_importances_[5:].max() < 0.01
    # Of labels, the third column's small parabola tells next to nothing.
    matter = [0, 1, 3, 4] if labelled else [0, 1, 2, 3, 4]
    assert metric.feature_importances_[matter].min() > 0.01
    # Products of gradients that share no noise may be below 0, which is cut off;
    # squares never are.
    assert (metric.feature_importances_[5:] == 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_shuffled_copies_of_columns_have_no_importance(load):
    rows, labels = load(return_X_y=True)
    rng = np.random.default_rng(2)
    copies = np.column_stack([rng.permutation(column) for column in rows.T])
    metric = learner(metric="diagonal").fit(np.hstack([rows, copies]), labels)
    assert metric.metric_ == "diagonal"
    assert metric.feature_importances_[rows.shape[1] :].max() < 0.01


# -- rows of all kinds ------------------------------------------------------------


@pytest.mark.slow
def test_scales_of_columns_do_not_matter(learned):
    scale = 2.0 ** np.array([-40, 3, 0, 12, 20])
    other = learner().fit(X * scale, Y * 8)
    assert np.array_equal(other.components_ * scale, learned.components_)
    assert np.array_equal(other.feature_importances_, learned.feature_importances_)


@pytest.mark.nightly
def test_weights_are_those_of_repeated_rows(learned):
    """Also that equal rows do not judge their own fit: errors stay the same."""
    weight = np.where(np.arange(240) < 200, 1.0, 0.0)
    whole = learner(metric="diagonal").fit(X, Y, sample_weight=weight)
    part = learner(metric="diagonal").fit(X[:200], Y[:200])
    np.testing.assert_allclose(whole.components_, part.components_, rtol=1e-6)
    with pytest.warns(NoSignalWarning):
        noise = RNG.normal(size=120)
        learner().fit(np.repeat(X[:120], 2, axis=0), np.repeat(noise, 2))


@pytest.mark.slow
def test_rows_of_weight_zero_are_not_sampled(rng):
    X = rng.normal(size=(12_000, 3))
    weight = np.zeros(len(X))
    weight[::300] = 1.0
    few = weight > 0
    learner = rk.MetricLearner(n_components=50, random_state=0)
    y = np.sin(2 * X[:, 0])
    learner.fit(X, y, sample_weight=weight)
    expected = clone(learner).fit(X[few], y[few])
    np.testing.assert_allclose(learner.components_, expected.components_)


def test_odd_tables():
    one_hot = np.eye(3)[RNG.integers(3, size=240)]
    rows = np.hstack([X, one_hot, np.full((240, 1), 7.0)])
    metric = learner(metric="diagonal").fit(rows, Y + 2 * one_hot[:, 0])
    assert np.all(metric.components_[-1] == 0)
    assert metric.feature_importances_[-1] == 0
    assert metric.feature_importances_[5] > metric.feature_importances_[[0, 2, 4]].max()
    wide = RNG.normal(size=(60, 90))
    metric = learner(metric="diagonal").fit(wide, 3 * wide[:, 5])
    assert np.argmax(metric.feature_importances_) == 5


def cut(*arrays):
    return rk.RowBlocks(
        [tuple(array[i : i + 150] for array in arrays) for i in range(0, 600, 150)]
    )


def chunks(*arrays):
    da = pytest.importorskip("dask.array")
    return tuple(
        da.from_array(array, chunks=(130, *array.shape[1:])) for array in arrays
    )


@pytest.mark.nightly
@pytest.mark.parametrize("labels", [None, np.int64, str])
def test_streams_and_dask_collections_give_the_same_metric(labels):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(600, 4)) * [1, 1e-3, 50, 1] + [0, 0, 1e5, 0]
    y = np.sin(2 * rows[:, 0]) + rows[:, 3] ** 2 + 0.1 * rng.normal(size=600)
    if labels is not None:
        y = np.digitize(y, [0, 1]).astype(labels)
    weight = rng.integers(0, 3, 600).astype(float) + (np.arange(600) < 300)
    options = {"n_components": 40, "n_iterations": 1}
    expected = learner(**options).fit(rows, y, weight + 1)
    assert expected.n_iter_ == 1
    for given in ((cut(rows, y, weight + 1),), chunks(rows, y, weight + 1)):
        metric = learner(**options).fit(*given)
        A = expected.components_
        np.testing.assert_allclose(metric.components_, A, atol=1e-6 * abs(A).max())
        transformed = metric.transform(given[0] if len(given) > 1 else rows)
        assert transformed.shape == (600, 4)
        np.testing.assert_allclose(
            np.asarray(transformed), rows @ metric.components_.T, rtol=1e-9, atol=1e-9
        )
    # Rows of weight 0 are no rows.
    streamed = learner(**options).fit(cut(rows, y, weight))
    used = weight > 0
    kept = learner(**options).fit(rows[used], y[used], weight[used])
    A = kept.components_
    np.testing.assert_allclose(streamed.components_, A, atol=1e-6 * abs(A).max())


@pytest.mark.nightly
def test_tensors():
    torch = pytest.importorskip("torch")
    options = {"n_components": 60, "n_iterations": 1, "metric": "full"}
    plain = learner(**options).fit(X, Y)
    with config_context(array_api_dispatch=True):
        metric = learner(**options).fit(torch.from_numpy(X), torch.from_numpy(Y))
        transformed = metric.transform(torch.from_numpy(X).float())
    assert transformed.dtype == torch.float32
    A = plain.components_
    np.testing.assert_allclose(metric.components_, A, atol=1e-6 * abs(A).max())


def test_streams_of_labels_and_numbers_are_refused():
    blocks = [(X[:120], Y[:120]), (X[120:], np.where(Y[120:] > 0, "a", "b"))]
    with pytest.raises(ValueError, match="use the same"):
        learner().fit(rk.RowBlocks(blocks))
    with pytest.raises(ValueError, match="needs all rows in memory"):
        learner(n_components=None).fit(rk.RowBlocks([(X, Y)]))


@pytest.mark.slow
def test_containers(learned, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcde"))
    metric = learner().fit(frame, Y)
    assert np.array_equal(metric.components_, learned.components_)
    out = metric.set_output(transform="pandas").transform(frame)
    assert list(out.columns) == [f"metriclearner{j}" for j in range(5)]
    assert learned.transform(X.astype(np.float32)).dtype == np.float32
    expected = X @ learned.components_.T
    np.testing.assert_allclose(learned.transform(X), expected, rtol=1e-12, atol=1e-12)
    rk.save(learned, tmp_path / "metric.skops")
    for copy in (
        pickle.loads(pickle.dumps(learned)),
        rk.load(tmp_path / "metric.skops"),
        clone(learned).fit(X, Y),
    ):
        assert np.array_equal(copy.transform(X), learned.transform(X))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernel": rk.Laplacian()}, "Matern with nu > 1"),
        ({"kernel": rk.Matern(1.0)}, "Matern with nu > 1"),
        ({"kernel": rk.Gaussian([1.0, 2.0, 1.0, 1.0, 1.0])}, "one lengthscale"),
        ({"kernel": "rbf"}, "Matern with nu > 1"),
        ({"metric": "low-rank"}, "metric"),
        ({"alpha": 0.0}, "alpha"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        learner(**options).fit(X, Y)


@pytest.mark.slow
def test_a_kernel_with_a_rule_for_its_lengthscale():
    metric = learner(kernel=rk.Gaussian("median"), alpha=1e-2, metric="diagonal")
    metric.fit(X, Y)
    assert metric.alpha_ == 1e-2
    assert isinstance(metric.kernel_.lengthscale, float)
    assert set(np.argsort(metric.feature_importances_)[-2:]) == {1, 3}
    # Lengthscales are units of the transformed rows.
    double = clone(metric).set_params(kernel=rk.Gaussian(2.0)).fit(X, Y)
    single = clone(metric).set_params(kernel=rk.Gaussian(1.0)).fit(X, Y)
    np.testing.assert_allclose(double.components_, 2 * single.components_)
    assert LinearRegression().fit(metric.transform(X), Y).coef_.shape == (5,)


@pytest.mark.slow
def test_integers_of_dataframes_are_labels():
    plain = learner(n_iterations=1).fit(X, (Y > 0).astype(int))
    series = pd.Series((Y > 0).astype(int), dtype="Int64")
    other = learner(n_iterations=1).fit(pl.DataFrame(X), series)
    assert np.array_equal(plain.components_, other.components_)
