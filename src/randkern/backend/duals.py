"""Dual activations, element by element."""

import math

import numpy as np
from numba import njit

from randkern.backend.threads import run_over_ranges

__all__ = ["power_series", "relu"]

_INVERSE_PI = 1.0 / math.pi


@njit(nogil=True, cache=True, error_model="numpy")
def _relu(rho, out, start, stop):
    for i in range(start, stop):
        x = min(max(rho[i], -1.0), 1.0)
        # (1 − x)(1 + x) keeps its digits near ±1, unlike 1 − x².
        sine = math.sqrt((1.0 - x) * (1.0 + x))
        out[i] = _INVERSE_PI * sine + (1.0 - _INVERSE_PI * math.acos(x)) * x


@njit(nogil=True, cache=True, error_model="numpy")
def _power_series(coefficients, rho, out, start, stop):
    for i in range(start, stop):
        x = rho[i]
        total = 0.0
        for k in range(len(coefficients) - 1, -1, -1):
            total = total * x + coefficients[k]
        out[i] = total


def _apply(function, nanoseconds, rho, *arguments):
    rho = np.asarray(rho)
    flat = np.ascontiguousarray(rho).reshape(-1)
    out = np.empty_like(flat)

    def task(start: int, stop: int) -> None:
        function(*arguments, flat, out, start, stop)

    run_over_ranges(task, flat.size, nanoseconds * flat.size)
    return out.reshape(rho.shape)


def relu(rho: np.ndarray) -> np.ndarray:
    r"""Return :math:`(\sqrt{1-\rho^2} + (\pi - \arccos\rho)\rho)/\pi`.

    Parameters
    ----------
    rho : ndarray of float32 or float64
        Values beyond ±1 are taken as ±1.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import duals
    >>> duals.relu(np.array([0.0, 1.0]))
    array([0.318, 1. ])
    """
    return _apply(_relu, 15.0, rho)


def power_series(coefficients: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Return the sum of ``coefficients[k] * rho**k``, by Horner's rule.

    Parameters
    ----------
    coefficients : ndarray of float64
    rho : ndarray of float32 or float64

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import duals
    >>> duals.power_series(np.array([1.0, 2.0]), np.array([3.0]))
    array([7.])
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    return _apply(_power_series, 2.0 * len(coefficients), rho, coefficients)
