"""Many small matrix products, one a patch of coordinates.

A library of linear algebra would set threads of its own to work on each of these
products, inside a task that is one of several threads already: they wait for one
another for longer than they compute.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _patch_products(a, b, rows, columns, out):
    n_patches, size = a.shape[0], a.shape[1]
    for v in range(n_patches):
        for i in range(rows[0], rows[1]):
            row = out[v, i - rows[0]]
            for j in range(len(row)):
                row[j] = 0
            # Four at a time: a row is then read and written a fourth as often.
            whole = size - size % 4
            for k in range(0, whole, 4):
                a0, a1 = a[v, k, i], a[v, k + 1, i]
                a2, a3 = a[v, k + 2, i], a[v, k + 3, i]
                b0 = b[v, k, columns[0] : columns[1]]
                b1 = b[v, k + 1, columns[0] : columns[1]]
                b2 = b[v, k + 2, columns[0] : columns[1]]
                b3 = b[v, k + 3, columns[0] : columns[1]]
                for j in range(len(row)):
                    row[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j])
            for k in range(whole, size):
                a0 = a[v, k, i]
                b0 = b[v, k, columns[0] : columns[1]]
                for j in range(len(row)):
                    row[j] += a0 * b0[j]


def patch_products(
    a: np.ndarray, b: np.ndarray, rows: slice, columns: slice
) -> np.ndarray:
    """Return the sums over k of ``a[v, k, i] * b[v, k, j]``, on the caller's thread.

    Parameters
    ----------
    a, b : ndarray of one dtype, C-contiguous, shapes (n_patches, size, n) and \
(n_patches, size, m)
    rows, columns : slice
        Of i and j.

    Returns
    -------
    products : ndarray of shape (n_patches, number of rows, number of columns)

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.patches import patch_products
    >>> a = np.arange(12.0).reshape(1, 6, 2)
    >>> products = patch_products(a, a, slice(0, 2), slice(1, 2))
    >>> bool(np.all(products[0] == a[0].T @ a[0, :, 1:]))
    True
    """
    shape = (len(a), rows.stop - rows.start, columns.stop - columns.start)
    out = np.empty(shape, dtype=a.dtype)
    _patch_products(a, b, (rows.start, rows.stop), (columns.start, columns.stop), out)
    return out
