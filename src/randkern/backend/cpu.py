"""The array primitives, compiled by Numba; products by NumPy's BLAS.

Every function has its oracle, with the same signature, in
``tests/oracles/primitives.py``. All write into `out`, whose rows must be
contiguous and may lie any distance apart (a range of columns of a wider array);
inputs may be read-only. The results do not depend on the number of threads, but
for the products by BLAS, which agree to rounding.
"""

import math

import numpy as np
from numba import njit

from randkern.backend.pairwise import (
    cauchy_kernel,
    manhattan_distances,
    squared_distances,
)
from randkern.backend.products import add_gram
from randkern.backend.rows import check_out, input_rows, output_rows
from randkern.backend.threads import run_over_ranges
from randkern.backend.trig import cos_sin, cos_sin_wide, is_fast

__all__ = [
    "add_gram",
    "cauchy_kernel",
    "cos_sin_pairs",
    "cosines",
    "manhattan_distances",
    "modulus_power",
    "squared_distances",
]

_TILE = 1024  # phases between two checks of their range, in the first cache

_compiled = njit(nogil=True, cache=True)
_contracted = njit(nogil=True, cache=True, fastmath={"contract"})


def _amplitude_rows(
    amplitude: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[np.ndarray, int]:
    if amplitude is None:
        flat = np.empty(0, dtype=dtype)
        flat.flags.writeable = False
        return flat, 0
    if amplitude.shape != shape:
        raise ValueError(f"amplitude must have shape {shape}, got {amplitude.shape}.")
    return input_rows(amplitude, dtype)


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
    dtype = check_out(out, (n, 2 * m))
    if out.size == 0:
        return
    phases = input_rows(phase, dtype)
    amplitudes = _amplitude_rows(amplitude, phase.shape, dtype)
    outs = output_rows(out)
    w = dtype.type(weight)

    def task(start: int, stop: int) -> None:
        _cos_sin_pairs(*phases, *amplitudes, w, *outs, (start, stop), m)

    run_over_ranges(task, n, 0.15 * out.nbytes)


@_compiled
def _cosine_tile(angle, weight):
    if is_fast(angle):
        for j in range(angle.shape[0]):
            angle[j] = weight * cos_sin(angle[j])[0]
    else:
        for j in range(angle.shape[0]):
            angle[j] = weight * cos_sin_wide(angle[j])[0]


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
            angle = phase[p : p + n]
            offset = offsets[j : j + n]
            for k in range(n):
                tile[k] = angle[k] + offset[k]
            _cosine_tile(tile, weight)
            if amplitude.shape[0] > 0:
                a = i * amplitude_stride + j
                factor = amplitude[a : a + n]
                for k in range(n):
                    tile[k] *= factor[k]


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
    dtype = check_out(out, (n, m))
    if offsets.shape != (m,):
        raise ValueError(f"offsets must have shape ({m},), got {offsets.shape}.")
    if out.size == 0:
        return
    phases = input_rows(phase, dtype)
    amplitudes = _amplitude_rows(amplitude, phase.shape, dtype)
    shifts, _ = input_rows(offsets[np.newaxis], dtype)
    outs = output_rows(out)
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
    dtype = check_out(out, (n, m))
    if imag.shape != (n, m):
        raise ValueError(f"imag must have the shape of real, {n, m}, got {imag.shape}.")
    if not power > 0:
        raise ValueError(f"power must be positive, got {power}.")
    if out.size == 0:
        return
    reals, imags = input_rows(real, dtype), input_rows(imag, dtype)
    outs = output_rows(out)
    half_power, w = dtype.type(0.5 * power), dtype.type(weight)

    def task(start: int, stop: int) -> None:
        _modulus_power(*reals, *imags, half_power, w, *outs, (start, stop), m)

    nanoseconds = 0.5 if power in (1, 2, 3, 4) else 10.0
    run_over_ranges(task, n, nanoseconds * out.size)
