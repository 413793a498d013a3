"""Kernels of all pairs of rows that no matrix product gives, tiled for the caches."""

import numpy as np
from numba import njit

from randkern.backend.rows import check_out, input_rows, output_rows
from randkern.backend.threads import run_over_ranges

__all__ = ["cauchy_kernel", "manhattan_distances"]

_ROWS, _COLUMNS, _DIMENSIONS = 32, 128, 128  # of a tile: in the second cache

_compiled = njit(nogil=True, cache=True)
_contracted = njit(nogil=True, cache=True, fastmath={"contract"})


@_compiled
def _add_differences(x, stride, i, k, n_dims, columns, width, total):
    """Add |x_ik - y_jk| over a range of k, for all j of a tile, four k at a time."""
    n_unrolled = n_dims // 4 * 4
    for d in range(0, n_unrolled, 4):
        p = i * stride + k + d
        x0, x1 = np.float64(x[p]), np.float64(x[p + 1])
        x2, x3 = np.float64(x[p + 2]), np.float64(x[p + 3])
        for j in range(width):
            total[j] += (abs(x0 - columns[d, j]) + abs(x1 - columns[d + 1, j])) + (
                abs(x2 - columns[d + 2, j]) + abs(x3 - columns[d + 3, j])
            )
    for d in range(n_unrolled, n_dims):
        x0 = np.float64(x[i * stride + k + d])
        for j in range(width):
            total[j] += abs(x0 - columns[d, j])


@_contracted
def _multiply_factors(x, stride, i, k, n_dims, columns, width, total):
    """Multiply by 1 + (x_ik - y_jk)^2 over a range of k, for all j of a tile."""
    n_unrolled = n_dims // 2 * 2
    for d in range(0, n_unrolled, 2):
        p = i * stride + k + d
        x0, x1 = np.float64(x[p]), np.float64(x[p + 1])
        for j in range(width):
            a = x0 - columns[d, j]
            b = x1 - columns[d + 1, j]
            total[j] *= (1.0 + a * a) * (1.0 + b * b)
    for d in range(n_unrolled, n_dims):
        x0 = np.float64(x[i * stride + k + d])
        for j in range(width):
            a = x0 - columns[d, j]
            total[j] *= 1.0 + a * a


@_compiled
def _pairwise(
    x, x_stride, y, y_stride, cauchy, out, out_stride, rows, n_columns, n_features
):
    start, stop = rows
    columns = np.empty((_DIMENSIONS, _COLUMNS))
    totals = np.empty((_ROWS, _COLUMNS))
    for i0 in range(start, stop, _ROWS):
        i1 = min(i0 + _ROWS, stop)
        for j0 in range(0, n_columns, _COLUMNS):
            width = min(_COLUMNS, n_columns - j0)
            totals[:] = 1.0 if cauchy else 0.0
            for k0 in range(0, n_features, _DIMENSIONS):
                n_dims = min(_DIMENSIONS, n_features - k0)
                for j in range(width):
                    start_y = (j0 + j) * y_stride + k0
                    row = y[start_y : start_y + n_dims]
                    for d in range(n_dims):
                        columns[d, j] = row[d]
                for i in range(i0, i1):
                    total = totals[i - i0]
                    if cauchy:
                        _multiply_factors(
                            x, x_stride, i, k0, n_dims, columns, width, total
                        )
                    else:
                        _add_differences(
                            x, x_stride, i, k0, n_dims, columns, width, total
                        )
            for i in range(i0, i1):
                total = totals[i - i0]
                start_out = i * out_stride + j0
                row_out = out[start_out : start_out + width]
                for j in range(width):
                    row_out[j] = 1.0 / total[j] if cauchy else total[j]


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
    if d == 0:
        out[...] = 1.0 if cauchy else 0.0
        return
    single = X.dtype == np.float32 and Y.dtype == np.float32
    dtype = np.dtype(np.float32 if single else np.float64)
    xs, ys = input_rows(X, dtype), input_rows(Y, dtype)
    outs = output_rows(out)

    def task(start: int, stop: int) -> None:
        _pairwise(*xs, *ys, cauchy, *outs, (start, stop), m, d)

    run_over_ranges(task, n, 0.3 * n * m * d, _ROWS)


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
