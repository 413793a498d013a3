"""Products of feature blocks, accumulated in float64 over the rows of a data set."""

import numpy as np

GRAM_COLUMNS = 1024  # of a tile: 8 MB in float64
_ROWS_F32 = 2048  # longer float32 sums lose digits


def _row_ranges(Z: np.ndarray) -> list[slice]:
    n = Z.shape[0]
    step = _ROWS_F32 if Z.dtype == np.float32 else max(n, 1)
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _column_ranges(n_columns: int) -> list[slice]:
    starts = range(0, n_columns, GRAM_COLUMNS)
    return [slice(j, min(j + GRAM_COLUMNS, n_columns)) for j in starts]


def add_gram(Z: np.ndarray, gram: np.ndarray) -> None:
    r"""Add :math:`Z^\top Z` of a block of rows to the upper triangle of `gram`.

    Parameters
    ----------
    Z : ndarray of float32 or float64, shape (n, D)
        The products are in its dtype, of at most 2048 rows at a time in float32, so
        that the loss is that of short float32 sums.
    gram : ndarray of float64, shape (D, D)
        Accumulated in float64. Below the diagonal it is left as it was.

    Raises
    ------
    ValueError
        On shapes that do not agree, or a `gram` that is not float64.

    Notes
    -----
    Temporary memory: two tiles of 1024 × 1024 in the dtype of `Z`.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> gram = np.zeros((2, 2))
    >>> cpu.add_gram(np.array([[1.0, 2.0], [3.0, 4.0]]), gram)
    >>> gram
    array([[10., 14.],
           [ 0., 20.]])
    """
    n_columns = Z.shape[1]
    _check_accumulator("gram", gram, (n_columns, n_columns))
    for rows in _row_ranges(Z):
        for left in _column_ranges(n_columns):
            block = Z[rows, left]
            for right in _column_ranges(n_columns):
                if right.start < left.start:
                    continue
                # On the diagonal both factors are one array, and NumPy's product
                # is BLAS's symmetric one, at half the cost.
                product = block.T @ (block if right == left else Z[rows, right])
                if right == left:
                    product = np.triu(product)
                gram[left, right] += product


def _check_accumulator(name: str, array: np.ndarray, shape: tuple[int, int]) -> None:
    if array.dtype != np.float64 or array.shape != shape:
        raise ValueError(
            f"{name} must be float64 of shape {shape}, got {array.dtype} of shape "
            f"{array.shape}."
        )
