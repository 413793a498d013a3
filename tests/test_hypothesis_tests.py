"""Two samples and independence: exact statistics, levels, power, rows of all kinds."""

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.stats import binom

import randkern as rk
from randkern._random import Stream
from randkern.hypothesis_tests.permutations import random_subsets

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = RNG.normal(size=(90, 3)) * [1.5, 1.0, 1.0]


def largest_count(n_trials, level):
    """The number of rejections that a test of this level exceeds once in 10⁶ runs."""
    return binom.ppf(1 - 1e-6, n_trials, level)


def test_exact_mmd_is_the_u_statistic():
    result = rk.mmd_test(X, Y, n_components=None, n_permutations=19, random_state=0)
    K, L, M = result.kernel(X), result.kernel(Y), result.kernel(X, Y)
    n, m = len(X), len(Y)
    expected = (
        (K.sum() - np.trace(K)) / (n * (n - 1))
        + (L.sum() - np.trace(L)) / (m * (m - 1))
        - 2 * M.mean()
    )
    assert result.statistic == pytest.approx(expected, rel=1e-9)
    points = RNG.normal(size=(5, 3))
    witness = result.kernel(points, X).mean(axis=1)
    witness -= result.kernel(points, Y).mean(axis=1)
    np.testing.assert_allclose(result.witness(points), witness, atol=1e-9)


def test_exact_hsic_is_the_trace():
    y = X[:, 0] ** 2 + 0.1 * RNG.normal(size=len(X))
    result = rk.hsic_test(X, y, n_components=None, n_permutations=19, random_state=0)
    K, L = result.kernel_x(X), result.kernel_y(y[:, None])
    H = np.eye(len(X)) - 1 / len(X)
    expected = np.trace(K @ H @ L @ H) / len(X) ** 2
    assert result.statistic == pytest.approx(expected, rel=1e-9)
    assert result.pvalue == 1 / 20


def test_exact_hsic_needs_the_kernels_and_not_their_permutations():
    """Covariances of as many features as rows took 8 n² bytes per permutation."""
    n, rng = 300, np.random.default_rng(7)
    x, y = rng.normal(size=(2, n))
    tracemalloc.start()
    rk.hsic_test(x, y, n_components=None, n_permutations=100, random_state=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 8 * n**2


def test_features_approximate_the_exact_statistic():
    """MMD² of D features has a standard deviation of at most 2·MMD·√(2/D) or so."""
    kernel = rk.Gaussian(2.0)
    exact = rk.mmd_test(X, Y, kernel, None, n_permutations=9, random_state=0)
    D = 20_000
    approximate = rk.mmd_test(X, Y, kernel, D, n_permutations=9, random_state=0)
    # Each feature's share is at most (2/D)·2²; six standard deviations of their sum.
    assert abs(approximate.statistic - exact.statistic) < 6 * 4 / np.sqrt(D)


@pytest.mark.parametrize("n_components", [30, None])
def test_mmd_has_its_level(n_components):
    n_trials = 120
    rng = np.random.default_rng(1)
    pvalues = [
        rk.mmd_test(
            rng.normal(size=(30, 2)),
            rng.normal(size=(25, 2)),
            n_components=n_components,
            n_permutations=39,
            random_state=trial,
        ).pvalue
        for trial in range(n_trials)
    ]
    assert (np.array(pvalues) <= 0.05).sum() <= largest_count(n_trials, 0.05)
    assert np.mean(np.array(pvalues) <= 0.5) > 0.5 - 5 * np.sqrt(0.25 / n_trials)


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "n_components"), [(30, 10), (30, None), (70, 6)])
def test_hsic_has_its_level(n, n_components):
    """With fewer rows than permutations, by kernels, and with rows left over."""
    n_trials = 200
    rng = np.random.default_rng(2)
    pvalues = [
        rk.hsic_test(
            rng.normal(size=(n, 2)),
            rng.normal(size=n),
            n_components=n_components,
            n_permutations=39,
            random_state=trial,
        ).pvalue
        for trial in range(n_trials)
    ]
    assert (np.array(pvalues) <= 0.05).sum() <= largest_count(n_trials, 0.05)
    assert np.mean(np.array(pvalues) <= 0.5) > 0.5 - 5 * np.sqrt(0.25 / n_trials)


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 70, 240])
def test_hsic_of_permuted_rows_has_the_moments_of_random_permutations(n):
    """The mean over all permutations is tr(HK) tr(HL) / (n²(n - 1)) (Gretton 2007)."""
    x, y = np.random.default_rng(3).normal(size=(2, n))
    kernel = rk.Gaussian(1.0)
    results = [
        rk.hsic_test(x, y, kernel, kernel, 200, n_permutations=59, random_state=seed)
        for seed in range(4)
    ]
    H = np.eye(n) - 1 / n
    K, L = kernel(x[:, None]), kernel(y[:, None])
    expected = np.trace(H @ K) * np.trace(H @ L) / (n**2 * (n - 1))
    # 236 statistics that vary by about half their mean, and features by 1/√200.
    mean = np.mean([result.null_distribution for result in results])
    assert mean == pytest.approx(expected, rel=0.25)


def test_dependence_between_distant_rows_is_not_in_the_null_distribution():
    """Permutations within chunks of rows kept a dependence on the time: p was 1."""
    rng = np.random.default_rng(4)
    x = np.repeat([0.0, 1.0], 4096)
    y = 3 * x + rng.normal(size=len(x))
    assert rk.hsic_test(x, y, random_state=0).pvalue == 1 / 201


@pytest.mark.slow
def test_lengthscales_of_blocks_are_those_of_all_rows():
    """Of sorted rows, the first block has much smaller distances than the others."""
    rng = np.random.default_rng(5)
    rows = np.sort(rng.normal(size=(4000, 1)), axis=0)
    others = np.sort(1.3 * rng.normal(size=(4000, 1)), axis=0)
    in_memory = rk.mmd_test(rows, others, random_state=0)
    blocks = rk.mmd_test(in_blocks(rows), in_blocks(others, 300), random_state=0)
    assert blocks.kernel.lengthscale == in_memory.kernel.lengthscale
    assert blocks.statistic == pytest.approx(in_memory.statistic, rel=1e-9)
    assert blocks.pvalue == in_memory.pvalue


def test_power_is_the_share_of_rejections():
    rng = np.random.default_rng(3)
    results = [
        rk.mmd_test(
            rng.normal(size=(80, 2)),
            1.4 * rng.normal(size=(70, 2)),
            n_components=100,
            n_permutations=99,
            random_state=trial,
        )
        for trial in range(80)
    ]
    rejected = np.mean([result.pvalue <= 0.05 for result in results])
    predicted = np.mean([result.power for result in results])
    assert rejected > 0.5
    assert abs(rejected - predicted) < 0.25  # the normal limit at 150 rows


def test_subsets_are_uniform():
    """Of all subsets of 3 of 6 rows, whatever the chunks."""
    for chunk_rows in (1, 4, 6):
        parts = random_subsets(6, 3, 20_000, Stream(0), chunk_rows)
        subsets = np.hstack(list(parts))
        assert (subsets.sum(axis=1) == 3).all()
        _, counts = np.unique(subsets, axis=0, return_counts=True)
        assert len(counts) == 20
        chi_square = ((counts - 1000) ** 2 / 1000).sum()
        assert chi_square < 19 + 5.5 * np.sqrt(2 * 19)


def in_blocks(rows, size=50):
    return rk.RowBlocks(
        lambda: (rows[start : start + size] for start in range(0, len(rows), size))
    )


@pytest.mark.parametrize(
    "convert",
    [
        in_blocks,
        lambda rows: pl.DataFrame(rows, schema=list("abc")),
        sp.csr_array,
        lambda rows: rows.tolist(),
    ],
)
def test_rows_of_all_kinds_agree(convert):
    kernel = rk.Gaussian(2.0)
    expected = rk.mmd_test(X, Y, kernel, 50, n_permutations=19, random_state=0)
    result = rk.mmd_test(
        convert(X), convert(Y), kernel, 50, n_permutations=19, random_state=0
    )
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert result.pvalue == expected.pvalue


def test_permutations_do_not_depend_on_blocks():
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(9000, 1)), rng.normal(size=(9000, 1))
    kernels = rk.Gaussian(), rk.Gaussian()
    results = [
        rk.hsic_test(first, second, *kernels, 5, n_permutations=9, random_state=0)
        for first, second in [
            (rows, others),
            (in_blocks(rows, 700), in_blocks(others, 4096)),
        ]
    ]
    np.testing.assert_allclose(
        results[0].null_distribution, results[1].null_distribution, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rk.mmd_test(X[:1], Y), "X has 1 row, expected at least 2"),
        (lambda: rk.mmd_test(X, Y[:, :2]), "X has 3 columns, but Y has 2"),
        (lambda: rk.mmd_test(X, Y, "rbf"), "kernel must be a randkern kernel"),
        (lambda: rk.mmd_test(X, Y * np.nan), "NaN"),
        (lambda: rk.mmd_test(X, Y, level=1.5), "level must be"),
        (lambda: rk.mmd_test(in_blocks(X), Y, None, None), "needs all rows in memory"),
        (lambda: rk.hsic_test(X, Y), "same number of rows"),
        (lambda: rk.hsic_test(X, X, n_permutations=0), "n_permutations"),
        (lambda: rk.mmd_test(None, X), "X must be rows .* got NoneType"),
        (lambda: rk.hsic_test(X, "rows"), "Y must be rows .* got str"),
        (lambda: rk.mmd_test(X, {"a": 1}), "Y must be rows .* got dict"),
        (lambda: rk.mmd_test(X[None], X), "got ndarray with 3 dimensions"),
        (lambda: rk.hsic_test([1, object()], [1, 2]), "mixes int and object"),
        (lambda: rk.hsic_test([1, 2j], [1, 2]), "expected numbers or texts"),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("n_components", [50, None])
def test_dense_and_sparse_samples_are_compared(n_components):
    kwargs = {"n_components": n_components, "n_permutations": 19, "random_state": 0}
    expected = rk.mmd_test(X, Y, **kwargs)
    for first, second in [(X, sp.csr_array(Y)), (sp.coo_array(X), Y)]:
        result = rk.mmd_test(first, second, **kwargs)
        assert result.statistic == pytest.approx(expected.statistic, rel=1e-9)


def test_equal_and_constant_samples():
    same = rk.mmd_test(X, X, n_permutations=19, random_state=0)
    assert same.pvalue > 0.9
    constant = rk.mmd_test(np.ones((20, 2)), np.ones((15, 2)), random_state=0)
    assert constant.pvalue == 1
    assert rk.hsic_test(np.ones(20), X[:20], random_state=0).pvalue == 1


def test_samples_need_the_same_columns():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="X alone has 'a', and Y alone 'z'"):
        rk.mmd_test(frame, frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="X is a dataframe, but Y is an array"):
        rk.mmd_test(frame, Y)


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_columns_of_tables_are_matched_by_name(table):
    first = table(dict(zip("abc", X.T, strict=True)))
    second = table(dict(zip("cab", Y[:, [2, 0, 1]].T, strict=True)))
    got = rk.mmd_test(first, second, random_state=0)
    assert got.statistic == rk.mmd_test(X, Y, random_state=0).statistic


@pytest.mark.parametrize(
    "kind", [np.array, list, pd.Series, pl.Series, lambda y: pd.DataFrame({"y": y})]
)
def test_labels_may_be_texts(kind):
    rng = np.random.default_rng(1)
    labels = np.where(X[:, 0] > 0, "a", "b")
    assert rk.hsic_test(X, kind(labels.tolist()), random_state=0).pvalue < 0.01
    rng.shuffle(labels)
    result = rk.hsic_test(X, kind(labels.tolist()), n_components=None, random_state=0)
    assert result.pvalue > 0.05
    K = result.kernel_x(X)
    L = (labels[:, None] == labels).astype(float)
    H = np.eye(len(X)) - 1 / len(X)
    expected = np.trace(K @ H @ L @ H) / len(X) ** 2
    assert result.statistic == pytest.approx(expected, rel=1e-6)


def test_the_kernel_of_categories_sees_which_number_goes_with_which_label():
    rng = np.random.default_rng(2)
    labels = np.repeat(["a", "b", "c"], 100)
    numbers = rng.normal(size=300)
    shift = np.where(labels == "a", 1.5, np.where(labels == "b", -1.5, 0))
    first = pd.DataFrame({"label": labels, "x": numbers + shift})
    second = pd.DataFrame({"label": labels, "x": rng.permutation(numbers) - shift})
    assert rk.mmd_test(first, second, random_state=0).pvalue < 0.01
    rare = pd.concat([first] * 20, ignore_index=True)
    rare.loc[1, "label"] = "rare"
    assert rk.mmd_test(rare, rare, random_state=0, n_permutations=19).pvalue > 0.5


@pytest.mark.slow
def test_a_shift_is_seen_beside_many_categories():
    """A product of their kernels is 0 for nearly all pairs of rows: p was 0.3."""
    rng = np.random.default_rng(3)

    def table(shift):
        columns = {f"c{j}": rng.choice(list("abcde"), 400) for j in range(8)}
        return pd.DataFrame({"x": rng.normal(size=400) + shift, **columns})

    assert rk.mmd_test(table(0), table(0.6), random_state=0).pvalue < 0.01


def test_no_test_has_less_power_than_its_level():
    assert rk.mmd_test(X, X + 1e-3, level=0.1, random_state=0).power == 0.1
    ones = np.ones((20, 2))
    assert rk.mmd_test(ones, ones, random_state=0).power == 0.05
    assert rk.hsic_test(ones, ones, random_state=0).power == 0.05
