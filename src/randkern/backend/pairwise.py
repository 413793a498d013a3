"""Kernels of all pairs of rows that no matrix product gives, tiled for the caches."""

import numpy as np
from numba import njit

from randkern.backend.rows import check_out, output_rows
from randkern.backend.threads import run_over_ranges

_ROWS, _COLUMNS, _DIMENSIONS = 32, 128, 128  # of a tile: in the second cache
_BLOCK_ROWS, _BLOCK_SIZE = 512, 2**20  # of a copy in float64, at most 8 MB
_NANOSECONDS_A_TERM = 0.3
_NANOSECONDS_A_PAIR = 0.5

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
            f"X and Y must have as many columns, got {d} and {Y.shape[1]}."
        )
    if out.size == 0:
        return
    # Blocks are copied to float64, which spares compiled versions for float32.
    step = max(1, min(_BLOCK_ROWS, _BLOCK_SIZE // max(d, 1)))

    def task(start: int, stop: int) -> None:
        for i in range(start, stop, step):
            rows = slice(i, min(i + step, stop))
            x = np.array(X[rows], dtype=np.float64, order="C")
            for j in range(0, m, step):
                columns = slice(j, min(j + step, m))
                y = np.array(Y[columns], dtype=np.float64, order="C")
                _pairwise(x, y, cauchy, *output_rows(out[rows, columns]))

    run_over_ranges(task, n, _NANOSECONDS_A_TERM * n * m * d, _ROWS)


def manhattan_distances(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    r"""Write the L1 distances of all pairs of rows, :math:`\sum_k |x_{ik} - y_{jk}|`.

    Parameters
    ----------
    X : ndarray of float32 or float64, shape (n, d)
    Y : ndarray of float32 or float64, shape (m, d)
    out : ndarray of float32 or float64, shape (n, m)
        The sums are accumulated in float64.

    Raises
    ------
    ValueError
        On shapes that do not agree.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.empty((1, 2))
    >>> cpu.manhattan_distances(np.zeros((1, 2)), np.array([[1.0, -2.0], [0, 0]]), out)
    >>> out
    array([[3., 0.]])
    """
    _run_pairwise(X, Y, out, False)


def cauchy_kernel(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    r"""Write the Cauchy kernel of all pairs of rows.

    .. math:: out_{ij} = \prod_k \frac{1}{1 + (x_{ik} - y_{jk})^2}

    Parameters
    ----------
    X : ndarray of float32 or float64, shape (n, d)
        Already divided by the lengthscales.
    Y : ndarray of float32 or float64, shape (m, d)
    out : ndarray of float32 or float64, shape (n, m)
        The products are accumulated in float64; where they overflow it is 0.

    Raises
    ------
    ValueError
        On shapes that do not agree.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.empty((1, 2))
    >>> cpu.cauchy_kernel(np.zeros((1, 2)), np.array([[1.0, -2.0], [0, 0]]), out)
    >>> out
    array([[0.1, 1. ]])
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
    r"""Make squared distances of products of rows, :math:`\|x\|^2 + \|y\|^2 - 2xy`.

    Parameters
    ----------
    x_norms : ndarray of shape (n,)
    y_norms : ndarray of shape (m,)
        Squared norms, of the dtype of `out`.
    share : float
        Pairs are near if their squared distance is at most this share of the sum of
        their squared norms: their digits have cancelled.
    out : ndarray of float32 or float64, shape (n, m)
        The products; overwritten.

    Returns
    -------
    near : ndarray of int64, shape (n,)
        How many near pairs each row has.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.array([[2.0, 0.0]])
    >>> cpu.squared_distances(np.array([1.0]), np.array([4.0, 1.0]), 1e-3, out)
    array([0])
    >>> out
    array([[1., 2.]])
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

    run_over_ranges(task, n, _NANOSECONDS_A_PAIR * n * m)
    return near
