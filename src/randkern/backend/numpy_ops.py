"""The primitives on NumPy arrays and SciPy's CSR matrices.

:mod:`randkern.backend.torch_ops` holds the same functions for tensors;
:func:`randkern.backend.namespace.ops_of` says which of the two an array needs. `like`
is always an array whose namespace, dtype and device the result takes.
"""

import math
from contextlib import nullcontext

import numpy as np
import scipy.sparse as sp
from scipy.special import ellipe, gamma

from randkern.backend import (
    counter,
    duals,
    hadamard,
    numpy_algebra,
    numpy_elementwise,
    sparse_phases,
    thin,
)
from randkern.backend.cpu import (
    add_gram,
    cauchy_kernel,
    cos_sin_pairs,
    cosines,
    manhattan_distances,
    modulus_power,
)
from randkern.backend.distances import scaled_squared_distances
from randkern.backend.matern import matern_correlation
from randkern.backend.patches import patch_products
from randkern.backend.threads import run_over_ranges

__all__ = [
    "add_gram",
    "as_float64",
    "asarray",
    "average",
    "bounded_amplitudes",
    "cauchy_kernel",
    "codes",
    "constant",
    "cos_sin_pairs",
    "cosines",
    "duals",
    "empty",
    "exp_of",
    "fill_diagonal",
    "flatnonzero",
    "float64_like",
    "full_precision",
    "hadamard",
    "is_finite",
    "key",
    "largest",
    "largest_value",
    "lasting",
    "log1p_of",
    "manhattan_distances",
    "map_rows",
    "matern_correlation",
    "modulus_in_place",
    "modulus_power",
    "multiply",
    "ones",
    "optical_angles",
    "patch_products",
    "random_matrix",
    "row_sums",
    "run_over_ranges",
    "scaled_squared_distances",
    "sparse",
    "squared_norms",
    "take",
    "thin",
    "tile_rows",
    "tile_size",
    "to_host",
    "unique",
    "unit_rows",
    "with_bias",
    "zeros",
]

algebra = numpy_algebra
elementwise = numpy_elementwise
sparse = sparse_phases

# Rows of a tile of which the temporary arrays of a function stay in the cache.
_MAPPED_ROWS = 32


def key(like):
    """Return what tells arrays apart that cannot stand for each other."""
    return like.dtype.char, "host"


def asarray(values, like):
    """Return `values` in the dtype of `like`."""
    return np.asarray(values, dtype=like.dtype)


def constant(owner, name, like, make):
    """Return what `make` returns as an array like `like`.

    On a device it is kept as long as `owner` lives, under `name`.
    """
    return np.asarray(make())


def full_precision(like):
    """Return a context in which products keep the precision of `like`."""
    return nullcontext()


def lasting(make):
    """Return what `make` returns, and whether later calls may use it too."""
    return make(), True


def to_host(array):
    """Return a NumPy array: the only way from a device to the host."""
    return np.asarray(array)


def as_float64(X):
    """Return X in float64, itself if it is."""
    return X.astype(np.float64, copy=False)


def float64_like(values, like):
    """Return `values` in float64 where `like` lies."""
    return np.asarray(values, dtype=np.float64)


def empty(shape, like):
    """Return an array of unset values in the dtype of `like`."""
    return np.empty(shape, dtype=like.dtype)


def zeros(shape, like):
    """Return zeros in float64."""
    return np.zeros(shape)


def ones(shape, like):
    """Return ones in float64."""
    return np.ones(shape)


def take(X, rows):
    """Return rows by their numbers, which are a NumPy array."""
    return X[rows]


def flatnonzero(values):
    """Return where a vector is not 0."""
    return np.flatnonzero(values)


def multiply(values, factor, out):
    """Write values·factor to `out`."""
    np.multiply(values, factor, out=out)


def largest(values):
    """Return the largest value as a float, 0 if there is none above."""
    return float(values.max(initial=0.0))


def largest_value(dtype):
    """Return the largest finite number of a dtype."""
    return float(np.finfo(dtype).max)


def is_finite(values):
    """Tell whether all values are finite."""
    return bool(np.all(np.isfinite(values)))


def average(values, weights):
    """Return the weighted mean of a vector as a float."""
    return float(np.average(values, weights=weights))


def fill_diagonal(values, number):
    """Set the diagonal of a matrix."""
    np.fill_diagonal(values, number)


def exp_of(values):
    """Overwrite values by their exponentials."""
    return np.exp(values, out=values)


def log1p_of(values):
    """Overwrite values v by log(1 + v)."""
    return np.log1p(values, out=values)


def unique(values):
    """Return the sorted different values of a vector, as a NumPy array."""
    return np.unique(values)


def map_rows(function, values):
    """Overwrite values by `function` of them, some rows at a time on each thread."""

    def task(start, stop):
        for first in range(start, stop, _MAPPED_ROWS):
            part = values[first : min(first + _MAPPED_ROWS, stop)]
            part[:] = function(part)

    run_over_ranges(task, len(values), values.size)
    return values


def row_sums(X):
    """Return the sums of rows in float64."""
    return np.asarray(X.astype(np.float64).sum(axis=1)).ravel()


def squared_norms(X):
    """Return the squared norms of rows in float64."""
    if sp.issparse(X):
        data = X.astype(np.float64)
        return np.asarray(data.multiply(data).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def with_bias(X, scale, bias):
    """Return X·scale, with a last column `bias` if that is not 0."""
    dtype = X.dtype
    scale = np.asarray(scale, dtype=dtype)
    if sp.issparse(X):
        X = X.multiply(scale).tocsr() if np.any(scale != 1) else X
        if bias:
            entries = np.full((X.shape[0], 1), bias, dtype=dtype)
            X = sp.hstack([X, sp.csr_array(entries)], format="csr")
        return X
    if not bias:
        return X * scale if np.any(scale != 1) else X
    out = np.empty((X.shape[0], X.shape[1] + 1), dtype=dtype)
    np.multiply(X, scale, out=out[:, :-1])
    out[:, -1] = bias
    return out


def codes(X, categories):
    """Return the positions of values in sorted categories, one array a column.

    A value that is not there becomes the number of categories.
    """
    X = X.toarray() if sp.issparse(X) else X
    positions = np.empty(X.shape, dtype=np.int64)
    for j, values in enumerate(categories):
        # Compared in the narrower dtype: 0.1 in float32 is another number.
        single = np.float32 in (values.dtype, X.dtype)
        dtype = np.float32 if single else np.float64
        column, values = X[:, j].astype(dtype), values.astype(dtype)
        position = np.minimum(np.searchsorted(values, column), len(values) - 1)
        positions[:, j] = np.where(values[position] == column, position, len(values))
    return positions


def random_matrix(seed, law, row_start, row_stop, col_start, col_stop, like):
    """Return entries of :func:`randkern.backend.counter.random_matrix` in float32."""
    return counter.random_matrix(seed, law, row_start, row_stop, col_start, col_stop)


def modulus_in_place(real, imag, power):
    """Return (real² + imag²)^(power/2), which may overwrite `real`."""
    modulus_power(real, imag, power, 1.0, real)
    return real


def bounded_amplitudes(X, apply, power):
    """Return rows whose squares stay in range, and what undoes it.

    Rows of extreme size are divided by powers of two, which loses no bit; |u·x|^power
    is to be multiplied by the second value. None where there is no such row;
    otherwise ``apply(X)`` takes the place of X.
    """
    with np.errstate(over="ignore"):
        squares = (
            np.asarray(X.multiply(X).sum(axis=1)).ravel()
            if sp.issparse(X)
            else np.einsum("ij,ij->i", X, X)
        )
    bound = 2.0 ** (np.finfo(X.dtype).maxexp // 2)
    extreme = (squares > bound) | (squares < 1 / bound)
    if not extreme.any():
        return None
    block = apply(X)
    sizes = abs(block[extreme]).max(axis=1)
    sizes = sizes.toarray().ravel() if sp.issparse(sizes) else sizes
    exponents = np.zeros(len(squares), dtype=int)
    exponents[extreme] = np.frexp(sizes)[1]
    # In two steps: the power of two of a subnormal row is out of range.
    for part in (-exponents // 2, -exponents - (-exponents // 2)):
        factors = np.ldexp(np.ones(len(part)), part).astype(X.dtype)
        if sp.issparse(block):
            block = sp.diags_array(factors) @ block
        else:
            block = block * factors[:, None]
    with np.errstate(over="ignore"):
        undo = np.exp2(exponents * power)
    return block, undo


def unit_rows(X, bias):
    """Return rows over their norms, and the norms, both with an entry √bias more.

    Rows are first divided by their largest entry, so that no square leaves
    the range of float64; a zero row stays zero.
    """
    if sp.issparse(X):
        X = sp.csr_array(X, dtype=np.float64, copy=True)
        sizes = abs(X).max(axis=1).toarray().ravel()
        sizes[sizes == 0] = 1.0
        X.data /= np.repeat(sizes, np.diff(X.indptr))
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    else:
        sizes = np.abs(X).max(axis=1, initial=0.0).astype(np.float64)
        sizes[sizes == 0] = 1.0
        X = X / sizes[:, None]
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    full = np.hypot(sizes * norms, math.sqrt(bias))
    share = sizes / np.where(full > 0, full, 1.0)
    share = np.where(full > 0, share, 0.0)
    if sp.issparse(X):
        X.data *= np.repeat(share, np.diff(X.indptr))
        return X, full
    X *= share[:, None]
    return X, full


def optical_angles(cosine, m):
    """Return Γ(1 + m/2)² ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1]."""
    if m == 1.0:
        # The complete elliptic integral E of parameter k² = 4c/(1 + c)².
        return (1 + cosine) / 2 * ellipe(np.minimum(4 * cosine / (1 + cosine) ** 2, 1))
    return gamma(1 + m / 2) ** 2 * duals.binomial_squares(cosine, m)


def hstack(parts):
    """Return matrices side by side."""
    return np.hstack(parts)


def copy(array):
    """Return a copy."""
    return array.copy()


def triu(matrix, diagonal):
    """Return the upper triangle from a diagonal on, zeros below."""
    return np.triu(matrix, diagonal)


def numbers(n, like):
    """Return 0, ..., n − 1."""
    return np.arange(n)


def as_integers(values):
    """Return integers, for instance of booleans."""
    return values.astype(np.int64)


def positions(sorted_values, values):
    """Return the positions of values among sorted ones, and whether they are there."""
    position = np.searchsorted(sorted_values, values)
    known = position < len(sorted_values)
    known[known] = sorted_values[position[known]] == values[known]
    return position, known


def to_integers(values, like):
    """Return integers where `like` lies."""
    return np.asarray(values, dtype=np.int64)


def totals(position, weights, n):
    """Return the sums of weights (None: 1) at n positions, in float64."""
    return np.bincount(position, weights=weights, minlength=n).astype(np.float64)


def memory_limit(like):
    """Return what a fit may take on the device of `like`; None: what the host has."""
    return None


def largest_sizes(values):
    """Return the largest absolute value of every column."""
    if sp.issparse(values):
        return abs(values).max(axis=0).toarray().ravel()
    return np.abs(values).max(axis=0, initial=0.0)


def numpy_dtype(array):
    """Return the dtype of an array as one of NumPy."""
    return array.dtype


def generated_products(X, keys, start, stop, scale):
    """Return products with matrices that are made on the way, None: there are none."""
    return None


def stacked_numbers(numbers):
    """Return a vector of numbers that lie where their arrays did."""
    return np.array(numbers)


def precision(dtype):
    """Return the distance from 1 to the next number of a dtype."""
    return float(np.finfo(dtype).eps)


def contiguous(array):
    """Return an array whose rows lie one after the other."""
    return np.ascontiguousarray(array)


def concatenate(parts, axis=0):
    """Return arrays one after the other along an axis."""
    return np.concatenate(parts, axis=axis)


def tile_rows(like):
    """Return the most rows of a tile of phases.

    1024 rows by 4096 frequencies are 16 MB in float32, large enough for the matrix
    product to run at its full speed.
    """
    return 1024


def tile_size(like):
    """Return the memory and the most rows of a tile of exact values."""
    return 32 * 2**20, 128
