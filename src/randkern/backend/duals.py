"""Elementwise dual activations.

:mod:`randkern.backend.torch_duals` holds the same functions for tensors; both are
``ops_of(array).duals``.
"""

import math

import numpy as np
from numba import njit

from randkern.backend.compiled_loops import run_over_ranges

_INVERSE_PI, _HALF_PI = 1.0 / math.pi, 0.5 * math.pi

# arcsin r = r + r·p(r²)/q(r²) on [0, 1/2], to 2^-58: the rational of fdlibm (Sun
# Microsystems, 1993).
_P0, _P1 = 1.66666666666666657415e-01, -3.25565818622400915405e-01
_P2, _P3 = 2.01212532134862925881e-01, -4.00555345006794114027e-02
_P4, _P5 = 7.91534994289814532176e-04, 3.47933107596021167570e-05
_Q1, _Q2 = -2.40339491173441421878e00, 2.02094576023350569471e00
_Q3, _Q4 = -6.88283971605453293030e-01, 7.70381505559019352791e-02


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _relu(rho, out, start, stop):
    for i in range(start, stop):
        x = min(max(np.float64(rho[i]), -1.0), 1.0)
        size = abs(x)
        # arccos|x| is π/2 − arcsin|x|, or 2 arcsin √((1 − |x|)/2) above 1/2, without
        # branches or calls, so that the loop vectorises.
        large = size > 0.5
        square = 0.5 * (1.0 - size) if large else size * size
        root = math.sqrt(square) if large else size
        p = (((_P5 * square + _P4) * square + _P3) * square + _P2) * square + _P1
        p = (p * square + _P0) * square
        q = (((_Q4 * square + _Q3) * square + _Q2) * square + _Q1) * square + 1.0
        arcsin = root + root * (p / q)
        arccos = 2.0 * arcsin if large else _HALF_PI - arcsin
        turned = arccos if x < 0.0 else math.pi - arccos  # π − arccos x
        # (1 − x)(1 + x) is accurate near ±1, unlike 1 − x².
        sine = math.sqrt((1.0 - x) * (1.0 + x))
        out[i] = _INVERSE_PI * (sine + turned * x)


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
    """Return (√(1 − ρ²) + (π − arccos ρ)ρ)/π; values beyond ±1 are clipped."""
    return _apply(_relu, 3.0, rho)


def step(rho: np.ndarray) -> np.ndarray:
    """Return 1 − arccos(ρ)/π; values beyond ±1 are clipped."""
    return 1.0 - np.arccos(np.clip(rho, -1.0, 1.0)) / math.pi


def power_series(
    coefficients: np.ndarray, rho: np.ndarray, owner: object = None
) -> np.ndarray:
    """Return the sum of ``coefficients[k] * rho**k``, by Horner's rule.

    `owner` is an object with only these coefficients: for tensors they are cached on
    the device for its lifetime.
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    return _apply(_power_series, 2.0 * len(coefficients), rho, coefficients)
