"""Lengthscales that are rules: what they are, and what they must not depend on."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

import randkern as rk
from randkern.exceptions import ColumnScaleWarning, UnresolvedKernelError

RNG = np.random.default_rng(11)
X = RNG.normal(size=(60, 5)) * [1.0, 2.0, 0.5, 1.0, 3.0] + 1.0
GAUSSIAN_LIKE = [rk.Gaussian, rk.Cauchy, rk.Matern, rk.RationalQuadratic]
EVERY_KERNEL = pytest.mark.parametrize("kernel", [*GAUSSIAN_LIKE, rk.Laplacian])
EVERY_RULE = pytest.mark.parametrize("rule", ["scale", "median"])
RULES = pytest.mark.parametrize(
    ("kernel", "rule"),
    [(k, rule) for k in (rk.Gaussian, rk.Laplacian) for rule in ("scale", "median")],
)


def resolved(kernel, rule, X, weight=None, seed=0):
    return kernel(lengthscale=rule).resolve(X, weight, seed).lengthscale


# -- the values ----------------------------------------------------------------


@pytest.mark.parametrize("kernel", GAUSSIAN_LIKE)
def test_scale_of_gaussian_like_kernels(kernel):
    assert resolved(kernel, "scale", X) == pytest.approx(np.sqrt(5 * X.var() / 2))


@pytest.mark.parametrize("kernel", [rk.Gaussian, rk.Laplacian])
def test_median_of_sparse_rows_is_that_of_dense_ones_without_these(kernel):
    rng = np.random.default_rng(4)
    rows = sp.random_array((100, 20_000), density=1e-3, rng=rng, format="csr")
    rows = sp.vstack([rows, rows[:5]], "csr")  # equal rows are left out
    weights = rng.uniform(size=rows.shape[0])
    tracemalloc.start()
    values = [resolved(kernel, "median", rows, weight) for weight in (None, weights)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * rows.shape[0] * rows.shape[1] / 4
    metric = "cityblock" if kernel is rk.Laplacian else "euclidean"
    distances = pdist(rows.toarray(), metric)
    assert values[0] == pytest.approx(np.median(distances[distances > 0]), rel=1e-12)
    assert abs(values[1] / values[0] - 1) < 0.05


def test_median_is_that_of_the_own_distance():
    euclidean, manhattan = np.median(pdist(X)), np.median(pdist(X, "cityblock"))
    for kernel in GAUSSIAN_LIKE:
        assert resolved(kernel, "median", X) == pytest.approx(euclidean)
    assert resolved(rk.Laplacian, "median", X) == pytest.approx(manhattan)


@pytest.mark.slow
def test_median_of_many_rows_is_of_a_seeded_sample():
    rows = RNG.normal(size=(5_000, 3))
    values = [resolved(rk.Gaussian, "median", rows, seed=seed) for seed in range(4)]
    assert len(set(values)) == 4
    assert resolved(rk.Gaussian, "median", rows, seed=2) == values[2]
    np.testing.assert_allclose(values, np.median(pdist(rows)), rtol=0.05)


def test_median_leaves_out_equal_rows():
    """Else data with many repeats would have the lengthscale 0."""
    rows = np.repeat([[0.0, 0.0], [3.0, 4.0]], [30, 3], axis=0)
    assert resolved(rk.Gaussian, "median", rows) == pytest.approx(5.0)


# -- weights -------------------------------------------------------------------


@EVERY_KERNEL
@EVERY_RULE
def test_rows_of_weight_zero_are_ignored(kernel, rule):
    weight = np.repeat([1.0, 0.0], 30)
    rows = X.copy()
    rows[30:] *= 1e6
    expected = resolved(kernel, rule, X[:30])
    assert resolved(kernel, rule, rows, weight) == pytest.approx(expected, rel=1e-12)


@RULES
def test_weights_are_repetitions(kernel, rule):
    weight = RNG.integers(1, 4, size=60)
    repeated = resolved(kernel, rule, np.repeat(X, weight, axis=0))
    weighted = resolved(kernel, rule, X, weight)
    # The median counts a pair by the product of its weights.
    assert weighted == pytest.approx(repeated, rel=1e-12)


@RULES
def test_weights_have_no_scale(kernel, rule):
    weight = RNG.uniform(0.5, 2, size=60)
    one, other = (resolved(kernel, rule, X, c * weight) for c in (1.0, 1e-9))
    assert one == pytest.approx(other, rel=1e-9)
    equal = resolved(kernel, rule, X, np.full(60, 3.0))
    assert equal == pytest.approx(resolved(kernel, rule, X), rel=1e-12)


# -- what they must not depend on ------------------------------------------------


@EVERY_KERNEL
@EVERY_RULE
@pytest.mark.parametrize("scale", [1e-300, 1e290])
def test_lengthscale_scales_with_the_data(kernel, rule, scale):
    expected = resolved(kernel, rule, X)
    assert resolved(kernel, rule, X * scale) / scale == pytest.approx(expected)


@RULES
@pytest.mark.parametrize(("shift", "error"), [(1e6, 1e-8), (1e9, 1e-6)])
def test_lengthscale_does_not_depend_on_the_origin(kernel, rule, shift, error):
    expected = resolved(kernel, rule, X)
    assert resolved(kernel, rule, X + shift) == pytest.approx(expected, rel=error)


@EVERY_KERNEL
@EVERY_RULE
@pytest.mark.parametrize("value", [0.0, 1e300])
def test_constant_rows_give_one(kernel, rule, value):
    rows = np.full((7, 3), value)
    assert resolved(kernel, rule, rows) == 1.0
    assert resolved(kernel, rule, rows[:1]) == 1.0
    assert resolved(kernel, rule, sp.csr_array(rows)) == 1.0
    assert resolved(kernel, rule, rows, np.arange(7.0)) == 1.0


# -- what `resolve` returns ------------------------------------------------------


def test_resolve_leaves_the_kernel_alone():
    kernel = rk.Gaussian("scale") + 2.0 * rk.Laplacian("median", columns=[1, 2])
    copy = kernel.resolve(X)
    assert kernel.k1.lengthscale == "scale"
    assert copy.k1.lengthscale == resolved(rk.Gaussian, "scale", X)
    own = resolved(rk.Laplacian, "median", X[:, 1:3])
    assert copy.k2.kernel.lengthscale == pytest.approx(own)
    again = copy.resolve(X * 10)
    assert again.k1.lengthscale == copy.k1.lengthscale


def test_resolve_checks_its_rows():
    with pytest.raises(ValueError, match="NaN"):
        rk.Gaussian("scale").resolve([[np.nan]])
    with pytest.raises(ValueError, match="3 entries, but .* reads 5 columns"):
        rk.Gaussian([1.0, 2.0, 3.0]).resolve(X)
    with pytest.raises(UnresolvedKernelError):
        rk.Gaussian("scale")(X)


@given(st.integers(1, 40), st.integers(1, 6), st.floats(-200, 200), st.integers(0, 99))
def test_rules_give_positive_numbers(n_rows, width, exponent, seed):
    rows = np.random.default_rng(seed).normal(size=(n_rows, width)) * 10.0**exponent
    for kernel in (rk.Gaussian, rk.Laplacian):
        for rule in ("scale", "median"):
            value = resolved(kernel, rule, rows)
            assert isinstance(value, float)
            assert 0 < value < np.inf


# -- columns on wild scales -----------------------------------------------------------


@pytest.mark.parametrize("rule", ["scale", "median"])
@pytest.mark.parametrize("frame", [False, True])
def test_columns_on_wild_scales_are_named(rng, rule, frame):
    X = rng.normal(size=(100, 4)) * [1.0, 3e4, 0.5, 100.0]
    names = ["a", "b", "c", "d"] if frame else ["0", "1", "2", "3"]
    rows = pd.DataFrame(X, columns=names) if frame else X
    message = (
        f"depends on columns '{names[1]}', '{names[3]}', but hardly on columns "
        f"'{names[2]}', '{names[0]}'. Scale the columns first.*StandardScaler"
    )
    with pytest.warns(ColumnScaleWarning, match=message):
        rk.Gaussian(rule).resolve(rows)
    # Only those that a kernel reads, and only where one lengthscale serves all.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rk.Gaussian(rule, columns=[0, 2]).resolve(rows)
        rk.Gaussian(X.std(axis=0)).resolve(rows)
        rk.Gaussian(rule).resolve(rows / X.std(axis=0))
    with pytest.warns(ColumnScaleWarning, match=f"but hardly on column '{names[0]}'"):
        rk.Laplacian(rule, columns=names[:2] if frame else [0, 1]).resolve(rows)


def test_columns_that_share_a_unit_are_not_wild(rng):
    pixels = np.zeros((2000, 3), dtype=np.uint8)
    pixels[:, 0] = rng.integers(0, 256, 2000)
    pixels[7, 1] = 3  # one dark pixel: a deviation of 0.07 beside 74
    outlier = rng.normal(size=(2000, 2))
    outlier[0, 0] = 1e4
    rounding = np.column_stack([rng.normal(size=99), np.full(99, 0.1) + 1e-17])
    rounding[::2, 1] += 1e-16
    wild = np.column_stack([rng.normal(size=99), 1e5 * rng.normal(size=99)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (pixels, outlier, rounding, sp.csr_array(wild), wild[:, :1]):
            rk.Gaussian("scale").resolve(X)
        # Rows without weight are no rows.
        X = np.vstack([wild * [1, 1e-5], wild])
        rk.Gaussian("scale").resolve(X, np.repeat([1.0, 0.0], 99))


# -- entries of sparse matrices -----------------------------------------------------


def repeated(rng, dtype=np.float64):
    """Return a CSR matrix with entries that repeat, out of order, and its sum."""
    n, d, n_entries = 30, 6, 120
    rows, columns = rng.integers(0, n, n_entries), rng.integers(0, d, n_entries)
    # Multiples of 1/8 add up exactly in any order.
    values = (rng.integers(1, 40, n_entries) / 8).astype(dtype)
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    X = sp.csr_array((values[order], columns[order], indptr), shape=(n, d))
    full = sp.csr_array((values, (rows, columns)), shape=(n, d))
    full.sum_duplicates()
    assert full.nnz < X.nnz
    assert not X.has_sorted_indices
    return X, full


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_sum_beyond_the_range():
    X = sp.csr_array((np.array([3e38, 3e38], "f4"), [0, 0], [0, 2, 2]), shape=(2, 1))
    with pytest.raises(ValueError, match="duplicate entries overflow float32"):
        rk.RandomFeatures(rk.Gaussian(1.0)).fit(X)
