"""A CSR matrix means what its entries add up to, however they are stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import randkern as rk


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


@pytest.mark.parametrize("rule", ["scale", "median"])
@pytest.mark.parametrize("cls", [rk.Gaussian, rk.Laplacian])
def test_rules_of_lengthscales(cls, rule, rng):
    X, full = repeated(rng)
    kernel, expected = (cls(rule).resolve(rows) for rows in (X, full))
    assert kernel.lengthscale == expected.lengthscale
    np.testing.assert_array_equal(kernel(X, full), expected(full, full))
    dense = cls(rule).resolve(full.toarray()).lengthscale
    assert kernel.lengthscale == pytest.approx(dense, rel=1e-12)


def test_streams(rng):
    X, full = repeated(rng)
    y = np.arange(30.0)
    model = rk.KernelRidgeRegressor(n_components=8, random_state=0)
    streams = (rk.RowBlocks.from_arrays(rows, y, block_rows=11) for rows in (X, full))
    result, expected = (clone(model).fit(rows).coef_ for rows in streams)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_sum_beyond_the_range():
    X = sp.csr_array((np.array([3e38, 3e38], "f4"), [0, 0], [0, 2, 2]), shape=(2, 1))
    with pytest.raises(ValueError, match="duplicate entries overflow float32"):
        rk.RandomFeatures(rk.Gaussian(1.0)).fit(X)
