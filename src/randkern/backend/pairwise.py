"""Distances and kernels of all pairs of rows; products of patches of columns.

Products of patches do not use BLAS, which would start its own threads for each product
inside a task that already is one of several threads: they would wait for each other
longer than they compute.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.spatial.distance import cdist

from randkern.backend.compiled_loops import check_out, output_rows, run_over_ranges

# With up to this many columns, differences cost no more than a matrix product.
_FEW_COLUMNS = 16
# With up to this many rows, they cost no more than the centred copy of the others, and
# compiled code, which takes a third of a second to load, need not be loaded for them.
_FEW_ROWS = 4
# ‖x‖² + ‖y‖² − 2x·y below this share of ‖x‖² + ‖y‖² has lost at least three digits.
CANCELLED = 1e-3
_PAIRS = 4096
# Number of entries that are hashed at a time, in the cache of a core.
_HASHED_ENTRIES = 2**15


def densified(X):
    """Return rows as a dense array."""
    return X.toarray() if sp.issparse(X) else X


def scaled_squared_distances(X, Y, scale, same):
    """Return ‖(x − y)·scale‖² for a tile, as ‖x‖² + ‖y‖² − 2x·y; `same` if Y is X.

    Dense rows are first shifted by the mean of Y, to avoid cancellation in data far
    from the origin; where digits still cancel, rows are subtracted instead.
    """
    if sp.issparse(X) or sp.issparse(Y):
        X = X_centred = sp.csr_array(X).multiply(scale).tocsr()
        Y = Y_centred = sp.csr_array(Y).multiply(scale).tocsr()
    else:
        X = X * scale
        Y = X if same else Y * scale
        if X.shape[1] <= _FEW_COLUMNS:
            return cdist(X, Y, "sqeuclidean")
        if len(X) <= _FEW_ROWS:
            return cdist(X, Y, "sqeuclidean").astype(X.dtype, copy=False)
        center = Y.mean(axis=0)
        X_centred = X - center
        Y_centred = X_centred if same else Y - center
    x_norms, y_norms = squared_norms(X_centred), squared_norms(Y_centred)
    if not np.isfinite(max(x_norms.max(), y_norms.max())):
        return cdist(densified(X), densified(Y), "sqeuclidean")
    products = X_centred @ Y_centred.T
    squared = products.toarray() if sp.issparse(products) else products
    near = squared_distances(x_norms, y_norms, CANCELLED, squared)
    if not sp.issparse(X) and near.sum() > squared.size // 20:
        return cdist(X, Y, "sqeuclidean").astype(squared.dtype, copy=False)
    rows = np.flatnonzero(near)
    bound = CANCELLED * (x_norms[rows, None] + y_norms)
    first, second = np.nonzero(squared[rows] <= bound)
    first = rows[first]
    for start in range(0, len(first), _PAIRS):
        pairs = first[start : start + _PAIRS], second[start : start + _PAIRS]
        squared[pairs] = squared_norms(X[pairs[0]] - Y[pairs[1]])
    if same:
        np.fill_diagonal(squared, 0.0)
    return squared


def squared_norms(X):
    """Return the squared norms of rows in the dtype of X."""
    if sp.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def row_hashes(X, multipliers):
    """Return Σ_j b_ij m_j modulo 2⁶⁴ for mixed bits b_ij of X, uint64.

    −0 has the hash of 0, as in sparse rows, which need not store either.
    """
    multipliers = multipliers.view(np.uint64)
    if sp.issparse(X):
        bits = _mixed_bits(X.data)
        return sp.csr_array((bits, X.indices, X.indptr), shape=X.shape) @ multipliers
    out = np.empty(len(X), np.uint64)
    step = max(1, _HASHED_ENTRIES // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        np.einsum("ij,j->i", _mixed_bits(X[rows]), multipliers, out=out[rows])
    return out


def _mixed_bits(values):
    """Return the bits of numbers of 4 or 8 bytes, mixed, in 8 bytes each."""
    values = values + 0  # makes −0 the number 0
    integers = np.int64 if values.dtype.itemsize == 8 else np.int32
    # Sums of unsigned integers wrap around.
    bits = values.view(integers).astype(np.int64, copy=False).view(np.uint64)
    # The leading bits also at the end: those of small whole numbers end in zeros, which
    # products would preserve.
    return bits ^ (bits >> np.uint64(32)) ^ (bits >> np.uint64(52))


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _patch_products(a, b, rows, columns, out):
    n_patches, size = a.shape[0], a.shape[1]
    for v in range(n_patches):
        for i in range(rows[0], rows[1]):
            row = out[v, i - rows[0]]
            for j in range(len(row)):
                row[j] = 0
            # Four at a time: rows are then read and written a fourth as often.
            aligned = size - size % 4
            for k in range(0, aligned, 4):
                a0, a1 = a[v, k, i], a[v, k + 1, i]
                a2, a3 = a[v, k + 2, i], a[v, k + 3, i]
                b0 = b[v, k, columns[0] : columns[1]]
                b1 = b[v, k + 1, columns[0] : columns[1]]
                b2 = b[v, k + 2, columns[0] : columns[1]]
                b3 = b[v, k + 3, columns[0] : columns[1]]
                for j in range(len(row)):
                    row[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j])
            for k in range(aligned, size):
                a0 = a[v, k, i]
                b0 = b[v, k, columns[0] : columns[1]]
                for j in range(len(row)):
                    row[j] += a0 * b0[j]


def patch_products(
    a: np.ndarray, b: np.ndarray, rows: slice, columns: slice
) -> np.ndarray:
    """Return Σ_k a[v, k, i]·b[v, k, j] for ranges of i and j, on the calling thread.

    Both arrays are C-contiguous and have one dtype.
    """
    shape = (len(a), rows.stop - rows.start, columns.stop - columns.start)
    out = np.empty(shape, dtype=a.dtype)
    _patch_products(a, b, (rows.start, rows.stop), (columns.start, columns.stop), out)
    return out


_ROWS, _COLUMNS, _DIMENSIONS = 32, 128, 128  # of a tile, in the L2 cache
_BLOCK_ROWS, _BLOCK_SIZE = 512, 2**20  # of a float64 copy, at most 8 MB
_NANOSECONDS_PER_TERM = 0.3
_NANOSECONDS_PER_PAIR = 0.5

_compiled = njit(nogil=True, cache=True, error_model="numpy")
_contracted = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


@_compiled
def _add_differences(x, k, n_dims, columns, width, total):
    """Add |x_k - y_jk| over a range of k, for all j of a tile, four k at a time."""
    n_unrolled = n_dims // 4 * 4
    for d in range(0, n_unrolled, 4):
        x0, x1, x2, x3 = x[k + d], x[k + d + 1], x[k + d + 2], x[k + d + 3]
        for j in range(width):
            total[j] += (abs(x0 - columns[d, j]) + abs(x1 - columns[d + 1, j])) + (
                abs(x2 - columns[d + 2, j]) + abs(x3 - columns[d + 3, j])
            )
    for d in range(n_unrolled, n_dims):
        for j in range(width):
            total[j] += abs(x[k + d] - columns[d, j])


@_contracted
def _multiply_factors(x, k, n_dims, columns, width, total):
    """Multiply by 1 + (x_k - y_jk)^2 over a range of k, for all j of a tile."""
    n_unrolled = n_dims // 2 * 2
    for d in range(0, n_unrolled, 2):
        x0, x1 = x[k + d], x[k + d + 1]
        for j in range(width):
            a = x0 - columns[d, j]
            b = x1 - columns[d + 1, j]
            total[j] *= (1.0 + a * a) * (1.0 + b * b)
    for d in range(n_unrolled, n_dims):
        for j in range(width):
            a = x[k + d] - columns[d, j]
            total[j] *= 1.0 + a * a


@_compiled
def _pairwise(x, y, cauchy, out, stride):
    n_rows, n_features = x.shape
    n_columns = y.shape[0]
    columns = np.empty((_DIMENSIONS, _COLUMNS))
    totals = np.empty((_ROWS, _COLUMNS))
    for i0 in range(0, n_rows, _ROWS):
        i1 = min(i0 + _ROWS, n_rows)
        for j0 in range(0, n_columns, _COLUMNS):
            width = min(_COLUMNS, n_columns - j0)
            for i in range(_ROWS):
                for j in range(_COLUMNS):
                    totals[i, j] = 1.0 if cauchy else 0.0
            for k in range(0, n_features, _DIMENSIONS):
                n_dims = min(_DIMENSIONS, n_features - k)
                for j in range(width):
                    row = y[j0 + j, k : k + n_dims]
                    for d in range(n_dims):
                        columns[d, j] = row[d]
                for i in range(i0, i1):
                    if cauchy:
                        _multiply_factors(
                            x[i], k, n_dims, columns, width, totals[i - i0]
                        )
                    else:
                        _add_differences(
                            x[i], k, n_dims, columns, width, totals[i - i0]
                        )
            for i in range(i0, i1):
                total = totals[i - i0]
                start = i * stride + j0
                values = out[start : start + width]
                for j in range(width):
                    values[j] = 1.0 / total[j] if cauchy else total[j]


def _run_pairwise(X: np.ndarray, Y: np.ndarray, out: np.ndarray, cauchy: bool) -> None:
    n, d = X.shape
    m = Y.shape[0]
    check_out(out, (n, m))
    if Y.shape[1] != d:
        raise ValueError(
            f"X and Y must have the same number of columns, got {d} and {Y.shape[1]}."
        )
    if out.size == 0:
        return
    # Blocks are copied to float64, to avoid compiling versions for float32.
    step = max(1, min(_BLOCK_ROWS, _BLOCK_SIZE // max(d, 1)))

    def task(start: int, stop: int) -> None:
        for i in range(start, stop, step):
            rows = slice(i, min(i + step, stop))
            x = np.array(X[rows], dtype=np.float64, order="C")
            for j in range(0, m, step):
                columns = slice(j, min(j + step, m))
                y = np.array(Y[columns], dtype=np.float64, order="C")
                _pairwise(x, y, cauchy, *output_rows(out[rows, columns]))

    run_over_ranges(task, n, _NANOSECONDS_PER_TERM * n * m * d, _ROWS)


def manhattan_distances(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Write Σ_k |x_ik − y_jk| for all pairs of rows, summed in float64."""
    _run_pairwise(X, Y, out, False)


def cauchy_kernel(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Write Π_k 1/(1 + (x_ik − y_jk)²) for all pairs of rows, multiplied in float64.

    If a product overflows, the value is 0.
    """
    _run_pairwise(X, Y, out, True)


@_contracted
def _expand(x_norms, y_norms, start, stop, share, values, stride, near):
    for i in range(start, stop):
        row = values[i * stride : i * stride + y_norms.shape[0]]
        x_norm, count = x_norms[i], 0
        for j in range(y_norms.shape[0]):
            norms = x_norm + y_norms[j]
            value = norms - 2 * row[j]
            count += value <= share * norms
            row[j] = value
        near[i] = count


def squared_distances(
    x_norms: np.ndarray, y_norms: np.ndarray, share: float, out: np.ndarray
) -> np.ndarray:
    """Overwrite products x·y of rows by squared distances, ‖x‖² + ‖y‖² − 2x·y.

    Returns the number of near pairs of each row of `out`. A pair is near if its squared
    distance is at most this share of the sum of the squared norms: digits have
    cancelled.
    """
    n, m = len(x_norms), len(y_norms)
    dtype = check_out(out, (n, m))
    near = np.zeros(n, dtype=np.int64)
    if out.size == 0:
        return near
    values, stride = output_rows(out)
    x_norms = np.ascontiguousarray(x_norms, dtype)
    y_norms = np.ascontiguousarray(y_norms, dtype)
    share = dtype.type(share)

    def task(start: int, stop: int) -> None:
        _expand(x_norms, y_norms, start, stop, share, values, stride, near)

    run_over_ranges(task, n, _NANOSECONDS_PER_PAIR * n * m)
    return near
