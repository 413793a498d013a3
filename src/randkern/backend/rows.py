"""Two-dimensional arrays as compiled code wants them: a flat view and a stride.

Compiled code then sees contiguous memory, which vectorises, and one type whether or
not the array is read-only or a slice of a wider one, so that it is compiled once.
"""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def check_out(out: np.ndarray, shape: tuple[int, ...]) -> np.dtype:
    """Return the dtype of `out`, or raise for another dtype or shape than allowed.

    Raises
    ------
    TypeError
        When it is neither float32 nor float64.
    ValueError
        When its shape is not `shape`.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.rows import check_out
    >>> check_out(np.empty((2, 3)), (2, 3))
    dtype('float64')
    """
    if out.dtype not in (np.float32, np.float64):
        raise TypeError(f"out must be float32 or float64, got {out.dtype}.")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}.")
    return out.dtype


def input_rows(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Return a flat read-only view of `array` and the distance between its rows.

    It is a view of a copy where the dtype differs, or where the elements of a row are
    not contiguous.

    Parameters
    ----------
    array : ndarray of shape (n, m), neither of them 0
    dtype : dtype

    Returns
    -------
    flat : ndarray of `dtype`, one-dimensional
        Element (i, j) is ``flat[i * stride + j]``.
    stride : int

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.rows import input_rows
    >>> flat, stride = input_rows(np.eye(3)[:, :2], np.dtype(float))
    >>> stride, float(flat[1 * stride + 1])
    (3, 1.0)
    """
    array = np.asarray(array, dtype=dtype)
    n_rows, n_cols = array.shape
    stride, rest = divmod(array.strides[0], dtype.itemsize)
    contiguous = n_cols == 1 or array.strides[1] == dtype.itemsize
    if rest or stride < 0 or not contiguous or not array.flags.aligned:
        array = array.copy()
        stride = n_cols
    if array.flags.c_contiguous:  # as_strided does it too, and takes 10 us
        flat = array.reshape(-1)
        flat.flags.writeable = False
        return flat, n_cols
    size = (n_rows - 1) * stride + n_cols
    return as_strided(array, (size,), (dtype.itemsize,), writeable=False), stride


def output_rows(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a flat writable view of `array` and the distance between its rows.

    Parameters
    ----------
    array : ndarray of shape (n, m), neither of them 0
        With contiguous columns.

    Returns
    -------
    flat : ndarray, one-dimensional
    stride : int

    Raises
    ------
    ValueError
        When the columns are not contiguous or the array is read-only.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.rows import output_rows
    >>> array = np.zeros((2, 3))
    >>> flat, stride = output_rows(array[:, 1:])
    >>> flat[1 * stride + 0] = 5.0
    >>> float(array[1, 1])
    5.0
    """
    n_rows, n_cols = array.shape
    itemsize = array.dtype.itemsize
    stride, rest = divmod(array.strides[0], itemsize)
    if n_rows == 1:
        stride, rest = n_cols, 0
    if rest or stride < n_cols or (n_cols > 1 and array.strides[1] != itemsize):
        raise ValueError(
            "The columns of out must be contiguous and its rows in order; got strides "
            f"{array.strides} for {array.dtype}."
        )
    if not array.flags.writeable:
        raise ValueError("out is read-only; pass a writable array.")
    if array.flags.c_contiguous:
        return array.reshape(-1), n_cols
    size = (n_rows - 1) * stride + n_cols
    return as_strided(array, (size,), (itemsize,)), stride
