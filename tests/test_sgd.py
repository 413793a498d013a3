"""Stochastic gradients: the length of steps, their end, and the order of rows."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from randkern.data.out_of_core import StreamedRows
from randkern.data.training_data import ArrayRows
from randkern.exceptions import CheckpointError
from randkern.models.iterative_ridge import FeatureBatches
from randkern.solvers import SGD, Outcome
from randkern.solvers.sgd import SGDState


@pytest.mark.parametrize("alpha", [1.0, 3e3, 1e6])
def test_large_penalties_do_not_diverge(rng, alpha):
    X = rng.normal(size=(2000, 8))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    options = {"alpha": alpha, "n_components": 200, "random_state": 0}
    kernel = rk.Gaussian(2.0)
    direct = rk.KernelRidgeRegressor(kernel, solver="cholesky", **options).fit(X, y)
    steps = rk.KernelRidgeRegressor(kernel, solver="sgd", **options).fit(X, y)
    batches = rk.KernelRidgeRegressor(kernel, solver="sgd", **options)
    for part in np.array_split(np.arange(2000), 4):
        batches.partial_fit(X[part], y[part])

    def gain(model):
        errors = y - model.predict(X)
        return y @ y - errors @ errors - alpha * np.sum(model.coef_**2)

    # Of what the minimiser gains, however little a large penalty leaves of it.
    assert steps.solution_.outcome is Outcome.LOSS_CONVERGED
    assert 0.99 * gain(direct) < gain(steps) <= gain(direct)
    assert 0.85 * gain(direct) < gain(batches) < gain(direct)
    apart = np.linalg.norm(steps.predict(X) - direct.predict(X))
    assert apart < 0.08 * np.linalg.norm(direct.predict(X))


@pytest.mark.filterwarnings("ignore:the loss still fell")
@pytest.mark.parametrize("frequency", [1, 3])
def test_rows_far_out_do_not_hold_up_the_others(frequency):
    X = np.random.default_rng(0).normal(size=(1500, 1))
    y = np.sin(frequency * X[:, 0])
    options = {"alpha": 1e-2, "n_components": 300, "random_state": 0}
    model = rk.KernelRidgeRegressor(rk.Gaussian(0.3), solver="sgd", **options)
    assert model.fit(X, y).score(X, y) > 0.99


@pytest.mark.parametrize("rank", [0, 6, 16])
def test_what_has_hardly_begun_has_not_converged(rank):
    # With so many eigenpairs, steps are short of what the leading directions need.
    X = np.random.default_rng(0).normal(size=(1500, 1))
    y = np.sin(X[:, 0])
    for lengthscale, alpha in itertools.product([0.3, 2.0], [1e-2, 1e-4]):
        model = rk.KernelRidgeRegressor(
            rk.Gaussian(lengthscale), alpha, 300, solver=SGD(rank=rank), random_state=0
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            score = model.fit(X, y).score(X, y)
        outcome = model.solution_.outcome
        assert outcome is Outcome.ITERATION_LIMIT or score > 0.95
        assert bool(caught) == (outcome is Outcome.ITERATION_LIMIT)


def test_convergence_is_claimed_near_the_least_loss():
    X = np.random.default_rng(0).normal(size=(1500, 8))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    options = {"alpha": 1.0, "n_components": 300, "random_state": 0}

    def loss(solver):
        model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), solver=solver, **options)
        model.fit(X, y)
        penalty = np.sum(model.coef_**2)
        return np.sum((y - model.predict(X)) ** 2) + penalty, model.solution_

    least, _ = loss("cholesky")
    reached, solution = loss("sgd")
    assert solution.outcome is Outcome.LOSS_CONVERGED
    assert reached < 1.05 * least


@pytest.fixture
def products():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, y + 0.3 * rng.normal(size=1500)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-8, 1e-4])
def test_a_flat_loss_alone_is_not_convergence(products, alpha, intercept):
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(30.0),
        alpha,
        250,
        fit_intercept=intercept,
        solver="sgd",
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="too few for small eigenvalues"):
        model.fit(*products)
    assert model.solution_.outcome is Outcome.ITERATION_LIMIT


def test_small_penalties_do_not_hold_up_what_has_been_followed(products):
    X, _ = products
    model = rk.KernelRidgeRegressor(rk.Linear(), 1e-8, 4, solver="sgd", random_state=0)
    assert model.fit(X, X[:, 0]).solution_.outcome is Outcome.LOSS_CONVERGED
    assert model.score(X, X[:, 0]) > 0.999


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_large_targets_do_not_mask_others(products, size):
    X, y = products
    noise = size * np.random.default_rng(1).normal(size=1500)
    options = {"alpha": 10.0, "n_components": 250, "random_state": 0}

    def epochs(Y):
        model = rk.KernelRidgeRegressor(rk.Gaussian(1.5), solver="sgd", **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X, Y).solution_.iterations

    assert epochs(np.c_[noise, y]) == max(epochs(noise), epochs(y))


def test_heavy_rows_do_not_mask_others(products):
    weight = np.ones(1500)
    weight[:5] = 1e6
    for alpha in (1e-2, 1e7):
        model = rk.KernelRidgeRegressor(
            rk.Gaussian(1.5), alpha, 200, solver="sgd", random_state=0
        )
        with pytest.warns(ConvergenceWarning):
            model.fit(*products, sample_weight=weight)


@pytest.mark.parametrize("change", ["other", "sign", "small", "one of two"])
def test_a_checkpoint_of_other_targets_is_refused(products, tmp_path, change):
    X, y = products
    other = {
        "other": X[:, 3] ** 2,
        "sign": -y,
        "small": y * (1 + 1e-7),
        "one of two": np.c_[1e6 * y, y[::-1]],
    }[change]
    if change == "one of two":
        y = np.c_[1e6 * y, y]

    def interrupt(_):
        raise KeyboardInterrupt

    def fit(y, callback=None):
        model = rk.KernelRidgeRegressor(
            rk.Gaussian(1.5),
            10.0,
            100,
            solver=SGD(epochs=2, tol=0.0, callback=callback),
            checkpoint=tmp_path / "fit.npz",
            random_state=0,
        )
        return model.fit(X, y)

    with pytest.raises(KeyboardInterrupt):
        fit(y, interrupt)
    with pytest.raises(CheckpointError, match="other"):
        fit(other)
    with pytest.warns(ConvergenceWarning):
        fit(y)


@pytest.mark.parametrize("scale", [3.0, 100.0])
def test_later_batches_may_be_larger(scale):
    X = np.random.default_rng(0).normal(size=(4000, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0]
    model = rk.KernelRidgeRegressor(rk.Linear(), 1e-3, 4, solver="sgd", random_state=0)
    model.partial_fit(X[:500], y[:500])
    for i in range(500, 4000, 500):
        rows = slice(i, i + 500)
        model.partial_fit(scale * X[rows], scale * y[rows])
    np.testing.assert_allclose(model.coef_, [1, 2, 3, 4], rtol=1e-2)


def test_a_batch_that_diverges_is_refused(monkeypatch):
    monkeypatch.setattr(SGDState, "measure", lambda *_: None)
    X = np.random.default_rng(0).normal(size=(1000, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0]
    model = rk.KernelRidgeRegressor(rk.Linear(), 1e-3, 4, solver="sgd", random_state=0)
    model.partial_fit(X[:500], y[:500])
    before = model.coef_.copy()
    with pytest.raises(FloatingPointError, match="diverged"):
        model.partial_fit(10 * X[500:], 10 * y[500:])
    np.testing.assert_array_equal(model.coef_, before)


# The order of rows that are read in blocks.


@pytest.fixture
def sorted_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 8))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=6000)
    order = np.argsort(y)
    return X[order], y[order]


def stochastic():
    return rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 1e-2, 300, solver="sgd", random_state=0
    )


@pytest.mark.filterwarnings("ignore:the loss still fell")
def test_a_stream_that_fits_the_memory_is_shuffled_as_an_array_is(sorted_rows):
    X, y = sorted_rows
    whole = stochastic().fit(X, y)
    blocks = rk.RowBlocks(lambda: iter([(X[:100], y[:100]), (X[100:], y[100:])]))
    for rows in (rk.RowBlocks.from_arrays(X, y, block_rows=500), blocks):
        np.testing.assert_allclose(stochastic().fit(rows).coef_, whole.coef_, rtol=1e-6)


def parquet(X, y, folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(X, columns=list("abcdefgh")).assign(y=y)
    frame.to_parquet(folder / "rows.parquet", row_group_size=100)
    return rk.RowBlocks.from_parquet(folder, target="y", block_rows=200)


SOURCES = {
    "arrays": lambda X, y, _: rk.RowBlocks.from_arrays(X, y, block_rows=100),
    "sparse": lambda X, y, _: rk.RowBlocks.from_arrays(
        sp.csr_array(X), y, np.ones(len(y)), block_rows=100
    ),
    "list": lambda X, y, _: rk.RowBlocks(
        [(X[i : i + 100], y[i : i + 100]) for i in range(0, len(y), 100)]
    ),
    "parquet": parquet,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the loss still fell")
@pytest.mark.parametrize("source", SOURCES)
def test_sorted_targets_are_shuffled_across_blocks(
    source, sorted_rows, tmp_path, monkeypatch
):
    # A sixth of the rows is in memory at a time.
    monkeypatch.setattr("randkern.data.out_of_core._POOLED_BATCHES", 5)
    none = property(lambda self: 0, lambda self, n_bytes: None)
    monkeypatch.setattr(FeatureBatches, "spare_bytes", none)
    X, y = sorted_rows
    expected = stochastic().fit(X, y).score(X, y)
    rows = SOURCES[source](X, y, tmp_path)
    model = stochastic().fit(rows)
    assert model.score(X, y) > expected - 0.02
    again = stochastic().fit(rows)
    np.testing.assert_array_equal(again.coef_, model.coef_)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 40), st.booleans())
def test_every_row_comes_once_an_epoch(n, n_batch, pooled, weighted):
    X = np.arange(float(n))[:, None]
    weight = X[:, 0] + 1 if weighted else None

    def read(generator):
        blocks = rk.RowBlocks.from_arrays(X, X[:, 0], weight, block_rows=4)
        used = blocks if generator is None else blocks.shuffled(generator)
        for block in used:
            yield ArrayRows(block.X, block.y[:, None], block.sample_weight)

    rows = StreamedRows(read, n, 1, X[:0], X.nbytes)
    generator = np.random.default_rng(0)
    batches = list(rows.batches(n_batch, generator, pooled * 3 * 24))
    assert all(len(batch.Y) <= n_batch for batch in batches)
    Y = np.concatenate([batch.Y for batch in batches])
    np.testing.assert_array_equal(np.sort(Y[:, 0]), X[:, 0])
    for batch in batches:
        np.testing.assert_array_equal(batch.X, batch.Y)
        if weighted:
            np.testing.assert_array_equal(batch.weight, batch.Y[:, 0] + 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_residual_is_that_of_the_normal_equations(weighted, rng):
    """Also of the largest of several targets, and relative to its right-hand side."""
    X = rng.normal(size=(1500, 3))
    Y = np.stack([np.sin(X[:, 0]), 100 * rng.normal(size=1500)], axis=1)
    w = rng.uniform(0.5, 2, 1500) if weighted else np.ones(1500)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 3.0, 100, solver="sgd", random_state=0
    )
    model.fit(X, Y, w if weighted else None)
    Z = rk.RandomFeatures(rk.Gaussian(2.0), 100, random_state=0).fit_transform(X)
    rhs = (Z * w[:, None]).T @ Y
    residual = rhs - (Z * w[:, None]).T @ (Z @ model.coef_.T) - 3.0 * model.coef_.T
    expected = np.linalg.norm(residual, axis=0) / np.linalg.norm(rhs, axis=0)
    assert model.solution_.residual == pytest.approx(expected.max(), rel=1e-6)
