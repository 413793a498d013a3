"""Functions of every entry, or of every row, of NumPy arrays.

:mod:`randkern.backend.torch_elementwise` holds the same functions for tensors; both
are ``ops_of(array).elementwise``.
"""

import math

import numpy as np
from scipy.special import expit, gamma, kv, logsumexp
from scipy.special import ndtr as normal_cdf
from scipy.special import softmax as _softmax

from randkern.backend.matern import matern_correlation

__all__ = [
    "angle",
    "arccos",
    "arcsin",
    "clip",
    "copysign",
    "cos",
    "exp",
    "expit",
    "expm1",
    "log_sum_exp",
    "matern_slope",
    "normal_cdf",
    "sin",
    "softmax",
    "softplus",
    "where",
]

angle = np.angle
arccos, arcsin = np.arccos, np.arcsin
cos, sin = np.cos, np.sin
exp, expm1 = np.exp, np.expm1
clip, copysign, where = np.clip, np.copysign, np.where


def softplus(values):
    """Return log(1 + exp(v))."""
    return np.logaddexp(0, values)


def log_sum_exp(values):
    """Return log Σ_j exp(v_ij) of every row."""
    return logsumexp(values, axis=1)


def softmax(values):
    """Return exp(v_ij)/Σ_j exp(v_ij)."""
    return _softmax(values, axis=1)


def matern_slope(squared, nu):
    """Return −2 f'(s) for the Matérn correlation f of squared distances s."""
    if nu == math.inf:
        return matern_correlation(squared, nu)
    if nu > 1:
        # d(z^ν K_ν)/dz = −z^ν K_{ν−1}, and ν − 1 has the same z at s·ν/(ν−1).
        return nu / (nu - 1) * matern_correlation(squared * (nu / (nu - 1)), nu - 1)
    z = np.sqrt(2 * nu * squared)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = 2 * nu * 2 ** (1 - nu) / gamma(nu) * z ** (nu - 1) * kv(1 - nu, z)
    # Infinite where rows are equal, whose difference it is multiplied by.
    return np.where(z > 0, slope, 0.0)
