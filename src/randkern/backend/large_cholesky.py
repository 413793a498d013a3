"""Cholesky factors of matrices of any size, in place.

OpenBLAS on two threads reads beyond its buffers where it factorises more than about
15,000 rows (version 0.3.30: ``numpy.linalg.cholesky`` of 16,000 rows ends the process
with a segmentation fault). Larger matrices are factorised by panels here, whose
products it computes well.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf

# Rows that LAPACK factorises at once, and rows of a panel beyond.
_MOST_ROWS = 12_000
_PANEL = 1024


def panel_bytes(n: int) -> int:
    """Return the memory that the factorisation takes beside an n × n matrix."""
    return 0 if n <= _MOST_ROWS else 24 * _PANEL * n


def factorise_upper(matrix: np.ndarray) -> bool:
    """Replace the upper triangle of A by that of R, A = RᵀR; tell whether there is one.

    `matrix` is C-ordered float64. Its strict lower triangle stays as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.large_cholesky import factorise_upper
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> factorise_upper(A), A.tolist()
    (True, [[2.0, 1.0], [2.0, 2.0]])
    """
    n = len(matrix)
    if n <= _MOST_ROWS:
        # The upper triangle of a C-ordered array is LAPACK's lower one.
        return dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)[1] == 0
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        own = matrix[start:stop, start:stop]
        lower, info = dpotrf(np.asfortranarray(own.T), lower=1, clean=1, overwrite_a=1)
        if info:
            return False
        _replace_upper(own, lower.T)
        if stop < n:
            rest = matrix[start:stop, stop:]
            rest[:] = scipy.linalg.solve_triangular(
                lower, rest, lower=True, check_finite=False
            )
            _subtract_products(matrix[stop:, stop:], rest)
    return True


def _replace_upper(block: np.ndarray, values: np.ndarray) -> None:
    np.copyto(block, values, where=np.tri(len(block), dtype=bool).T)


def _subtract_products(trailing: np.ndarray, rows: np.ndarray) -> None:
    """Subtract RᵀR from the upper triangle, a block of rows at a time."""
    for start in range(0, len(trailing), _PANEL):
        stop = min(start + _PANEL, len(trailing))
        product = rows[:, start:stop].T @ rows[:, start:]
        own = trailing[start:stop, start:stop]
        _replace_upper(own, own - product[:, : stop - start])
        trailing[start:stop, stop:] -= product[:, stop - start :]
