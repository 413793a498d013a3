"""Ridge on streams of blocks gives what it gives on arrays."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

import randkern as rk
from randkern.solvers import PCG

N, WIDTH = 230, 5
SIZES = {"even": [46] * 5, "uneven": [1, 100, 3, 120, 6], "single": [1] * 20 + [210]}
KERNEL = rk.Gaussian(2.0)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N, WIDTH))
    y = np.column_stack([np.sin(X[:, 0]) + 3, X[:, 1] * X[:, 2]])
    return X, y + 0.1 * rng.normal(size=y.shape)


@pytest.fixture
def weight(rng):
    weight = rng.uniform(0, 3, N)
    weight[:4] = 0
    weight[50] = 40.0
    return weight


def blocks_of(X, y, weight=None, sizes=SIZES["uneven"]):
    cuts = np.cumsum([0, *sizes])
    made = []
    for start, stop in itertools.pairwise(cuts):
        parts = [X[start:stop], y[start:stop]]
        if weight is not None:
            parts.append(weight[start:stop])
        made.append(tuple(parts))
    return rk.RowBlocks(made)


def coefficients(model):
    return np.column_stack(
        [np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]
    )


def assert_alike(streamed, whole, tolerance):
    expected = coefficients(whole)
    difference = np.abs(coefficients(streamed) - expected).max()
    assert difference <= tolerance * np.abs(expected).max()


def fit_both(model, X, y, weight=None, sizes=SIZES["uneven"]):
    streamed = clone(model).fit(blocks_of(X, y, weight, sizes))
    return streamed, clone(model).fit(X, y, sample_weight=weight)


def test_two_classes_that_come_one_after_the_other(table):
    X, _ = table
    y = np.sort(np.arange(N) % 2)
    model = rk.KernelRidgeClassifier(KERNEL, 0.1, 60, random_state=0)
    streamed, whole = fit_both(model, X, y)
    assert_alike(streamed, whole, 1e-10)
    assert streamed.decision_function(X).shape == (N,)


def test_blocks_of_two_precisions_are_fitted_in_double(table):
    X, y = table
    X = X.astype(np.float32).astype(np.float64)
    mixed = rk.RowBlocks([(X[:100].astype(np.float32), y[:100]), (X[100:], y[100:])])
    model = rk.KernelRidgeRegressor(KERNEL, 0.5, 90, random_state=0)
    whole = rk.KernelRidgeRegressor(KERNEL, 0.5, 90, random_state=0).fit(X, y)
    assert_alike(model.fit(mixed), whole, 1e-10)


def frame_of(table, rng):
    X, y = table
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["kind"] = pd.Categorical(rng.choice(["x", "y", "z"], N))
    frame.loc[:2, "kind"] = ["x", "y", "z"]
    return frame, y[:, 0]


def test_dataframes_with_categories(table, rng):
    frame, y = frame_of(table, rng)
    kernel = rk.Gaussian(1.5, columns=["a", "b"]) + rk.Categorical(columns=["kind"])
    model = rk.KernelRidgeRegressor(kernel, 0.1, 90, random_state=0)
    sizes = [5, 100, 125]
    cuts = np.cumsum([0, *sizes])
    blocks = [(frame.iloc[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    whole = rk.KernelRidgeRegressor(**model.get_params(deep=False)).fit(frame, y)
    streamed = model.fit(rk.RowBlocks(blocks))
    assert_alike(streamed, whole, 1e-10)
    assert streamed.feature_names_in_.tolist() == ["a", "b", "kind"]
    np.testing.assert_allclose(
        streamed.predict(rk.RowBlocks([block[:1] for block in blocks])),
        whole.predict(frame),
        atol=1e-4,
    )


def test_a_category_that_comes_later_is_named(table, rng):
    frame, y = frame_of(table, rng)
    kernel = rk.Categorical(columns=["kind"])
    blocks = rk.RowBlocks([(frame.iloc[:2], y[:2]), (frame.iloc[2:], y[2:])])
    with pytest.raises(ValueError, match="'kind' holds categories that the first"):
        rk.KernelRidgeRegressor(kernel, n_components=20).fit(blocks)


def test_predictions_of_no_blocks(table):
    X, y = table
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="no rows"):
        model.predict(rk.RowBlocks(lambda: iter([])))
    with pytest.raises(ValueError, match="no rows to score"):
        model.score(rk.RowBlocks(lambda: iter([])))


# Errors.


def test_targets_come_with_the_blocks(table):
    X, y = table
    model = rk.KernelRidgeRegressor(KERNEL, n_components=20)
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        model.fit(blocks_of(X, y), y)
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        model.fit(blocks_of(X, y), sample_weight=np.ones(N))
    with pytest.raises(ValueError, match="requires y"):
        model.fit(rk.RowBlocks([X[:10], X[10:]]))


def test_blocks_without_rows(table):
    X, y = table
    with pytest.raises(ValueError, match="no rows"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(
            rk.RowBlocks(lambda: iter([]))
        )
    empty = [(X[:0], y[:0]), (X, y), (X[:0], y[:0])]
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0)
    whole = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0).fit(X, y)
    assert_alike(model.fit(rk.RowBlocks(empty)), whole, 1e-10)


@pytest.mark.parametrize("which", ["rows", "targets", "weights"])
def test_a_bad_number_in_a_later_block_is_located(which, table, weight):
    X, y = table
    {"rows": X, "targets": y}.get(which, weight[:, None])[150, 0] = np.nan
    with pytest.raises(ValueError, match=r"block 3, from row 104 on: .*NaN"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(blocks_of(X, y, weight))


def test_blocks_of_other_widths_are_located(table):
    X, y = table
    blocks = rk.RowBlocks([(X, y), (X[:, :3], y)])
    with pytest.raises(ValueError, match="block 1, from row 230 on: .*3 features"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(blocks)


def test_blocks_with_other_numbers_of_targets(table):
    X, y = table
    blocks = rk.RowBlocks([(X, y), (X, y[:, 0])])
    with pytest.raises(ValueError, match=r"shapes, \(n, 2\) and \(n,\); .*same number"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(blocks)
    blocks = rk.RowBlocks([(X, y[:, 0]), (X, y[:, :1])])
    with pytest.raises(ValueError, match=r"shapes, \(n, 1\) and \(n,\);"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(blocks)


def test_weights_that_are_all_zero(table):
    with pytest.raises(ValueError, match="every sample_weight is zero"):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(
            blocks_of(*table, np.zeros(N))
        )


def test_one_class_is_not_enough(table):
    X, _ = table
    blocks = blocks_of(X, np.ones(N, int))
    with pytest.raises(ValueError, match="at least 2 classes"):
        rk.KernelRidgeClassifier(KERNEL, n_components=20).fit(blocks)


def test_labels_of_two_kinds_in_different_blocks(table):
    X, _ = table
    blocks = [(X[:100], np.arange(100) % 2), (X[100:], np.array(["a", "b"] * 65))]
    with pytest.raises((ValueError, TypeError), match="label|type|str"):
        rk.KernelRidgeClassifier(KERNEL, n_components=20).fit(rk.RowBlocks(blocks))


# What streams are for.


def peak_of_fit(n_blocks, solver):
    def make():
        rng = np.random.default_rng(0)
        for _ in range(n_blocks):
            X = rng.normal(size=(2500, 10)).astype(np.float32)
            yield X, X[:, 0]

    model = rk.KernelRidgeRegressor(
        rk.Gaussian(4.0), n_components=64, solver=solver, memory_limit="25MB"
    )
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rk.RowBlocks(make))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [
        "cholesky",
        pytest.param(PCG(max_iter=2, rank=5), id="pcg", marks=pytest.mark.nightly),
    ],
)
def test_memory_does_not_grow_with_the_rows(solver, monkeypatch):
    monkeypatch.setattr("randkern.data.sample._SAMPLE_BYTES", 10**5)
    monkeypatch.setattr("randkern.data.out_of_core._TARGET_BYTES", 10**5)
    monkeypatch.setattr("randkern.models.memory._BLOCK_BYTES", 10**6)
    peak_of_fit(5, solver)  # compiling takes memory of its own
    few, many = peak_of_fit(100, solver), peak_of_fit(200, solver)
    assert many < few + 1e6  # half of 8 bytes a row


def test_weights_of_classes_count_in_the_lengthscale(rng):
    """As those of rows do, whether these are in memory or not."""
    X = rng.normal(size=(300, 3))
    numbers = (X[:, 0] > 0.8) * 1 + (X[:, 1] > 1.2)
    X *= 1 + 3 * numbers[:, None]
    y = np.array(["a", "bb", "ccc"])[numbers]
    model = rk.KernelRidgeClassifier(class_weight="balanced", random_state=0)
    model.set_params(n_components=40, kernel=rk.Gaussian("scale")).fit(X, y)
    parts = np.array_split(np.arange(300), 4)
    streamed = clone(model).fit(rk.RowBlocks(lambda: ((X[p], y[p]) for p in parts)))
    weight = compute_sample_weight("balanced", y)
    weighted = clone(model).set_params(class_weight=None).fit(X, y, weight)
    expected = model.decision_function(X)
    for other in (streamed, weighted):
        assert other.kernel_.lengthscale == pytest.approx(model.kernel_.lengthscale)
        np.testing.assert_allclose(other.decision_function(X), expected, atol=1e-9)


def test_a_generator_is_pointed_to_blocks(rng):
    X = rng.normal(size=(9, 3))
    with pytest.raises(TypeError, match="RowBlocks"):
        rk.KernelRidgeRegressor().fit((part for part in [X, X]), X[:, 0])


def test_names_of_parquet_columns(tmp_path, rng):
    table = pd.DataFrame(rng.normal(size=(50, 3)), columns=list("abc"))
    table.assign(y=table["a"]).to_parquet(tmp_path / "rows.parquet")
    rows = rk.RowBlocks.from_parquet(tmp_path, target="y", block_rows=20)
    kernel = rk.Gaussian(columns=["a", "c"])
    model = rk.KernelRidgeRegressor(kernel, n_components=20, random_state=0)
    assert list(model.fit(rows).feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict(rows), model.predict(table))
    with pytest.raises(ValueError, match="names"):
        model.predict(table.rename(columns={"c": "d"}))


@pytest.mark.parametrize("solver", ["cholesky", PCG(tol=1e-9)], ids=str)
def test_rows_whose_features_are_cached_are_read_three_times(solver, table, weight):
    """To check them and learn from them, for their features, and to leave some out."""
    X, y = table
    passes = []

    def make():
        passes.append(1)
        return iter([(X[rows], y[rows], weight[rows]) for rows in halves])

    halves = slice(0, 100), slice(100, N)
    options = {"alpha": 0.1, "n_components": 60, "random_state": 0}
    model = rk.KernelRidgeRegressor(KERNEL, solver=solver, **options)
    streamed = rk.KernelRidgeRegressor(KERNEL, solver=solver, **options)
    assert_alike(
        streamed.fit(rk.RowBlocks(make)),
        model.fit(X, y, sample_weight=weight),
        1e-5,
    )
    assert len(passes) == 3


def halves(X, y):
    return [(X[:100], y[:100]), (X[100:], y[100:])]


def tables_of(library, frame):
    """Return a dataframe of 230 rows as a table of another library, in two parts."""
    if library == "pandas":
        return frame[:100], frame[100:]
    if library == "polars":
        polars = pytest.importorskip("polars")
        table = polars.DataFrame({name: frame[name].to_numpy() for name in frame})
        return table[:100], table[100:]
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({name: frame[name].to_numpy() for name in frame})
    if library == "batches":
        return tuple(
            part.to_batches()[0] for part in (table.slice(0, 100), table.slice(100))
        )
    return table.slice(0, 100), table.slice(100)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "batches"])
def test_tables_of_other_libraries(library, table):
    X, y = table
    frame, y = pd.DataFrame(X, columns=list("abcde")), y[:, 0]
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0)
    expected = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0).fit(frame, y)
    parts = tables_of(library, frame)
    model.fit(rk.RowBlocks([(parts[0], y[:100]), (parts[1], y[100:])]))
    assert model.feature_names_in_.tolist() == list("abcde")
    assert_alike(model, expected, 1e-10)
    np.testing.assert_allclose(
        model.predict(rk.RowBlocks(parts)), expected.predict(frame), rtol=1e-9
    )
    reordered = frame[list("edcba")]
    mixed = rk.RowBlocks([(parts[0], y[:100]), (reordered[100:], y[100:])])
    with pytest.raises(ValueError, match=r"(?s)block 1, from row 100 on: .*same order"):
        model.fit(mixed)


def test_targets_of_arrow(table):
    arrow = pytest.importorskip("pyarrow")
    X, y = table[0], table[1][:, 0]
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0)
    expected = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0).fit(X, y)
    chunked = arrow.chunked_array([y[100:150], y[150:]])
    model.fit(rk.RowBlocks([(X[:100], arrow.array(y[:100])), (X[100:], chunked)]))
    assert_alike(model, expected, 1e-10)


def test_integers_beside_floats_and_blocks_of_one_row(table):
    X, y = table
    X = np.vstack([np.round(3 * X[:100]), X[100:]])
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0)
    expected = rk.KernelRidgeRegressor(KERNEL, 0.1, 60, random_state=0).fit(X, y)
    integers = [(X[:100].astype(int), y[:100]), (X[100:], y[100:])]
    assert_alike(model.fit(rk.RowBlocks(integers)), expected, 1e-10)
    single = [(X[i : i + 1], y[i : i + 1]) for i in range(N)]
    assert_alike(model.fit(rk.RowBlocks(single)), expected, 1e-10)


@pytest.mark.parametrize("first", ["sparse", "dense"])
def test_a_sparse_block_among_dense_ones(first, table):
    X, y = table
    parts = [sp.csr_array(X[:100]), X[100:]]
    if first == "dense":
        parts = [X[:100], sp.csr_array(X[100:])]
    blocks = rk.RowBlocks([(parts[0], y[:100]), (parts[1], y[100:])])
    with pytest.raises(
        ValueError, match="block 1, from row 100 on: X is a .* same kind"
    ):
        rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(blocks)
    model = rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(X, y)
    np.testing.assert_allclose(
        model.predict(rk.RowBlocks(parts)), model.predict(X), rtol=1e-9
    )


@pytest.mark.parametrize("method", ["predict", "score"])
def test_errors_at_predict_name_the_block(method, table):
    X, y = table
    model = rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(X, y)
    spoiled = X.copy()
    spoiled[150, 2] = np.nan
    blocks = rk.RowBlocks(halves(spoiled, y))
    message = r"block 1, from row 100 on: .*row 50 of col.* all rows it is row 150\."
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(blocks)
    with pytest.raises(ValueError, match=message):
        model.fit(blocks)
    with pytest.raises(ValueError, match="block 1, from row 100 on: .*3 features"):
        getattr(model, method)(
            rk.RowBlocks([(X[:100], y[:100]), (X[100:, :3], y[100:])])
        )


def test_scores_read_a_stream_once(table):
    X, y = table
    model = rk.KernelRidgeRegressor(KERNEL, n_components=20).fit(X, y)
    passes = []

    def make():
        passes.append(1)
        return iter(halves(X, y))

    assert model.score(rk.RowBlocks(make)) == pytest.approx(model.score(X, y))
    assert len(passes) == 1
