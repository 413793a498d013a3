"""The array primitives, compiled by Numba; products by NumPy's BLAS.

Every function has its oracle, with the same signature, in
:mod:`randkern.backend.reference`. All write into `out`, whose rows must be
contiguous and may lie any distance apart (a range of columns of a wider array);
inputs may be read-only. The results do not depend on the number of threads, but
for the products by BLAS, which agree to rounding.
"""

import math

import numpy as np
from numba import njit
from numpy.lib.stride_tricks import as_strided

from randkern.backend.threads import run_over_ranges
from randkern.backend.trig import cos_sin, cos_sin_wide, is_fast

__all__ = [
    "add_cross",
    "add_gram",
    "cauchy_kernel",
    "cos_sin_pairs",
    "cosines",
    "manhattan_distances",
    "modulus_power",
]

_TILE = 1024  # phases between two checks of their range, in the first cache
_PAIR_ROWS, _PAIR_COLUMNS, _PAIR_DIMENSIONS = 32, 128, 128  # distances: second cache
_GRAM_COLUMNS = 2048
_GRAM_ROWS_F32 = 2048  # longer float32 sums lose digits

_compiled = njit(nogil=True, cache=True)
_contracted = njit(nogil=True, cache=True, fastmath={"contract"})


# Arrays as a flat view and the distance between rows: the compiled code sees
# contiguous memory, which vectorises, and one type whether or not the array is
# read-only or a slice, so that it is compiled once.
def _input_rows(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    array = np.asarray(array, dtype=dtype)
    n_rows, n_cols = array.shape
    stride, rest = divmod(array.strides[0], dtype.itemsize)
    contiguous = n_cols == 1 or array.strides[1] == dtype.itemsize
    if rest or stride < 0 or not contiguous or not array.flags.aligned:
        array = np.ascontiguousarray(array)
        stride = n_cols
    size = (n_rows - 1) * stride + n_cols
    flat = as_strided(array, (size,), (dtype.itemsize,), writeable=False)
    return flat, stride


def _output_rows(array: np.ndarray) -> tuple[np.ndarray, int]:
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
    size = (n_rows - 1) * stride + n_cols
    return as_strided(array, (size,), (itemsize,)), stride


def _check_out(out: np.ndarray, shape: tuple[int, ...]) -> np.dtype:
    if out.dtype not in (np.float32, np.float64):
        raise TypeError(f"out must be float32 or float64, got {out.dtype}.")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}.")
    return out.dtype


def _amplitude_rows(
    amplitude: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[np.ndarray, int]:
    if amplitude is None:
        flat = np.empty(0, dtype=dtype)
        flat.flags.writeable = False
        return flat, 0
    if amplitude.shape != shape:
        raise ValueError(f"amplitude must have shape {shape}, got {amplitude.shape}.")
    return _input_rows(amplitude, dtype)


@_compiled
def _cos_sin_tile(phase, weight, out):
    if is_fast(phase):
        for j in range(phase.shape[0]):
            cosine, sine = cos_sin(phase[j])
            out[2 * j] = weight * cosine
            out[2 * j + 1] = weight * sine
    else:
        for j in range(phase.shape[0]):
            cosine, sine = cos_sin_wide(phase[j])
            out[2 * j] = weight * cosine
            out[2 * j + 1] = weight * sine


@_compiled
def _cos_sin_pairs(
    phase, phase_stride, amplitude, amplitude_stride, weight, out, out_stride, rows, m
):
    start, stop = rows
    for i in range(start, stop):
        for j in range(0, m, _TILE):
            n = min(_TILE, m - j)
            p = i * phase_stride + j
            q = i * out_stride + 2 * j
            tile = out[q : q + 2 * n]
            _cos_sin_tile(phase[p : p + n], weight, tile)
            if amplitude.shape[0] > 0:
                a = i * amplitude_stride + j
                factor = amplitude[a : a + n]
                for k in range(n):
                    tile[2 * k] *= factor[k]
                    tile[2 * k + 1] *= factor[k]


def cos_sin_pairs(
    phase: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    r"""Write weighted cosines and sines of phases, interleaved.

    .. math:: out_{i,2j} = w A_{ij} \cos\phi_{ij},\quad
              out_{i,2j+1} = w A_{ij} \sin\phi_{ij}

    Parameters
    ----------
    phase : ndarray of shape (n, m)
        In radians; read in the dtype of `out`. nan and inf give nan.
    weight : float
    out : ndarray of float32 or float64, shape (n, 2m)
    amplitude : ndarray of shape (n, m), optional

    Raises
    ------
    ValueError
        On shapes that do not agree.

    Notes
    -----
    Absolute error of the cosine: 2^-22 in float32, 4e-16 in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.empty((1, 4))
    >>> cpu.cos_sin_pairs(np.array([[0.0, np.pi / 2]]), 2.0, out)
    >>> out.round(12) + 0.0
    array([[2., 0., 0., 2.]])
    """
    n, m = phase.shape
    dtype = _check_out(out, (n, 2 * m))
    if out.size == 0:
        return
    phases = _input_rows(phase, dtype)
    amplitudes = _amplitude_rows(amplitude, phase.shape, dtype)
    outs = _output_rows(out)
    w = dtype.type(weight)

    def task(start: int, stop: int) -> None:
        _cos_sin_pairs(*phases, *amplitudes, w, *outs, (start, stop), m)

    run_over_ranges(task, n, 0.15 * out.nbytes)


@_compiled
def _cosine_tile(phase, weight, out):
    if is_fast(phase):
        for j in range(phase.shape[0]):
            out[j] = weight * cos_sin(phase[j])[0]
    else:
        for j in range(phase.shape[0]):
            out[j] = weight * cos_sin_wide(phase[j])[0]


@_compiled
def _cosines(
    phase,
    phase_stride,
    amplitude,
    amplitude_stride,
    offsets,
    weight,
    out,
    out_stride,
    rows,
    m,
):
    start, stop = rows
    for i in range(start, stop):
        for j in range(0, m, _TILE):
            n = min(_TILE, m - j)
            p = i * phase_stride + j
            q = i * out_stride + j
            tile = out[q : q + n]
            for k in range(n):
                tile[k] = phase[p + k] + offsets[j + k]
            _cosine_tile(tile, weight, tile)
            if amplitude.shape[0] > 0:
                a = i * amplitude_stride + j
                for k in range(n):
                    tile[k] *= amplitude[a + k]


def cosines(
    phase: np.ndarray,
    offsets: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    r"""Write weighted cosines of shifted phases.

    .. math:: out_{ij} = w A_{ij} \cos(\phi_{ij} + b_j)

    Parameters
    ----------
    phase : ndarray of shape (n, m)
        In radians; read in the dtype of `out`. nan and inf give nan. May be `out`.
    offsets : ndarray of shape (m,)
    weight : float
    out : ndarray of float32 or float64, shape (n, m)
    amplitude : ndarray of shape (n, m), optional

    Raises
    ------
    ValueError
        On shapes that do not agree.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.empty((1, 2))
    >>> cpu.cosines(np.zeros((1, 2)), np.array([0.0, np.pi]), 3.0, out)
    >>> out
    array([[ 3., -3.]])
    """
    n, m = phase.shape
    dtype = _check_out(out, (n, m))
    if offsets.shape != (m,):
        raise ValueError(f"offsets must have shape ({m},), got {offsets.shape}.")
    if out.size == 0:
        return
    phases = _input_rows(phase, dtype)
    amplitudes = _amplitude_rows(amplitude, phase.shape, dtype)
    shifts, _ = _input_rows(offsets[np.newaxis], dtype)
    outs = _output_rows(out)
    w = dtype.type(weight)

    def task(start: int, stop: int) -> None:
        _cosines(*phases, *amplitudes, shifts, w, *outs, (start, stop), m)

    run_over_ranges(task, n, 0.25 * out.nbytes)


@_contracted
def _modulus_power(
    real, real_stride, imag, imag_stride, half_power, weight, out, out_stride, rows, m
):
    start, stop = rows
    for i in range(start, stop):
        x = real[i * real_stride : i * real_stride + m]
        y = imag[i * imag_stride : i * imag_stride + m]
        z = out[i * out_stride : i * out_stride + m]
        if half_power == 1.0:
            for j in range(m):
                z[j] = weight * (x[j] * x[j] + y[j] * y[j])
        elif half_power == 0.5:
            for j in range(m):
                z[j] = weight * math.sqrt(x[j] * x[j] + y[j] * y[j])
        elif half_power == 1.5:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * (square * math.sqrt(square))
        elif half_power == 2.0:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * (square * square)
        else:
            for j in range(m):
                square = x[j] * x[j] + y[j] * y[j]
                z[j] = weight * square**half_power


def modulus_power(
    real: np.ndarray, imag: np.ndarray, power: float, weight: float, out: np.ndarray
) -> None:
    r"""Write weighted powers of the modulus of complex numbers.

    .. math:: out_{ij} = w\,(\mathrm{re}_{ij}^2 + \mathrm{im}_{ij}^2)^{p/2}

    Parameters
    ----------
    real, imag : ndarray of shape (n, m)
        Read in the dtype of `out`, in which their squares must not overflow
        (|x| < 1e19 in float32).
    power : float
        p > 0; 1, 2, 3 and 4 have vectorised loops.
    weight : float
    out : ndarray of float32 or float64, shape (n, m)
        May be `real` or `imag`.

    Raises
    ------
    ValueError
        On shapes that do not agree, or a power that is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.array([[3.0]])
    >>> cpu.modulus_power(out, np.array([[4.0]]), 2.0, 1.0, out)
    >>> out
    array([[25.]])
    """
    n, m = real.shape
    dtype = _check_out(out, (n, m))
    if imag.shape != (n, m):
        raise ValueError(f"imag must have the shape of real, {n, m}, got {imag.shape}.")
    if not power > 0:
        raise ValueError(f"power must be positive, got {power}.")
    if out.size == 0:
        return
    reals, imags = _input_rows(real, dtype), _input_rows(imag, dtype)
    outs = _output_rows(out)
    half_power, w = dtype.type(0.5 * power), dtype.type(weight)

    def task(start: int, stop: int) -> None:
        _modulus_power(*reals, *imags, half_power, w, *outs, (start, stop), m)

    nanoseconds = 0.5 if power in (1, 2, 3, 4) else 10.0
    run_over_ranges(task, n, nanoseconds * out.size)


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
    columns = np.empty((_PAIR_DIMENSIONS, _PAIR_COLUMNS))
    totals = np.empty((_PAIR_ROWS, _PAIR_COLUMNS))
    for i0 in range(start, stop, _PAIR_ROWS):
        i1 = min(i0 + _PAIR_ROWS, stop)
        for j0 in range(0, n_columns, _PAIR_COLUMNS):
            width = min(_PAIR_COLUMNS, n_columns - j0)
            totals[:] = 1.0 if cauchy else 0.0
            for k0 in range(0, n_features, _PAIR_DIMENSIONS):
                n_dims = min(_PAIR_DIMENSIONS, n_features - k0)
                for j in range(width):
                    for d in range(n_dims):
                        columns[d, j] = y[(j0 + j) * y_stride + k0 + d]
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
                for j in range(width):
                    value = 1.0 / total[j] if cauchy else total[j]
                    out[i * out_stride + j0 + j] = value


def _run_pairwise(X: np.ndarray, Y: np.ndarray, out: np.ndarray, cauchy: bool) -> None:
    n, d = X.shape
    m = Y.shape[0]
    _check_out(out, (n, m))
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
    xs, ys = _input_rows(X, dtype), _input_rows(Y, dtype)
    outs = _output_rows(out)

    def task(start: int, stop: int) -> None:
        _pairwise(*xs, *ys, cauchy, *outs, (start, stop), m, d)

    run_over_ranges(task, n, 0.3 * n * m * d, _PAIR_ROWS)


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


def _row_ranges(Z: np.ndarray) -> list[slice]:
    n = Z.shape[0]
    step = _GRAM_ROWS_F32 if Z.dtype == np.float32 else max(n, 1)
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _column_ranges(n_columns: int) -> list[slice]:
    starts = range(0, n_columns, _GRAM_COLUMNS)
    return [slice(j, min(j + _GRAM_COLUMNS, n_columns)) for j in starts]


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
    Temporary memory: one tile of 2048 × 2048 in the dtype of `Z`.

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


def add_cross(Z: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    r"""Add :math:`Z^\top Y` of a block of rows to `out`.

    Parameters
    ----------
    Z : ndarray of float32 or float64, shape (n, D)
    Y : ndarray of shape (n, k)
        Read in the dtype of `Z`.
    out : ndarray of float64, shape (D, k)
        Accumulated in float64, of float32 products of at most 2048 rows.

    Raises
    ------
    ValueError
        On shapes that do not agree, or an `out` that is not float64.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import cpu
    >>> out = np.zeros((2, 1))
    >>> cpu.add_cross(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 1)), out)
    >>> out
    array([[4.],
           [6.]])
    """
    if Y.ndim != 2 or Y.shape[0] != Z.shape[0]:
        raise ValueError(f"Y must have shape ({Z.shape[0]}, k), got {Y.shape}.")
    _check_accumulator("out", out, (Z.shape[1], Y.shape[1]))
    for rows in _row_ranges(Z):
        targets = np.asarray(Y[rows], dtype=Z.dtype)
        for columns in _column_ranges(Z.shape[1]):
            out[columns] += Z[rows, columns].T @ targets


def _check_accumulator(name: str, array: np.ndarray, shape: tuple[int, int]) -> None:
    if array.dtype != np.float64 or array.shape != shape:
        raise ValueError(
            f"{name} must be float64 of shape {shape}, got {array.dtype} of shape "
            f"{array.shape}."
        )
