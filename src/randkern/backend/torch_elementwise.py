"""Functions of every entry, or of every row: those of `numpy_elementwise`."""

import math

import torch
from scipy.special import gamma

from randkern.backend.torch_special import matern_correlation

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

angle = torch.angle
expit = torch.special.expit
normal_cdf = torch.special.ndtr
arccos, arcsin = torch.arccos, torch.arcsin
cos, sin = torch.cos, torch.sin
exp, expm1 = torch.exp, torch.expm1
clip, copysign, where = torch.clip, torch.copysign, torch.where


def softplus(values):
    """Return log(1 + exp(v))."""
    return torch.logaddexp(torch.zeros_like(values), values)


def log_sum_exp(values):
    """Return log Σ_j exp(v_ij) of every row."""
    return torch.logsumexp(values, dim=1)


def softmax(values):
    """Return exp(v_ij)/Σ_j exp(v_ij)."""
    return torch.softmax(values, dim=1)


def matern_slope(squared, nu):
    """Return −2 f'(s) for the Matérn correlation f of squared distances s."""
    if nu == math.inf:
        return matern_correlation(squared, nu)
    if nu > 1:
        return nu / (nu - 1) * matern_correlation(squared * (nu / (nu - 1)), nu - 1)
    if nu == 1:
        slope = 2 * torch.special.modified_bessel_k0(torch.sqrt(2 * squared))
    else:
        # K_{ν−1} = K_{1−ν}, from the correlation of 1 − ν at the same z.
        other = 1 - nu
        factor = 2 * nu * 2 ** (1 - 2 * nu) * gamma(other) / gamma(nu)
        correlation = matern_correlation(squared * (nu / other), other)
        slope = factor * (2 * nu * squared) ** (nu - 1) * correlation
    # Infinite where rows are equal, whose difference it is multiplied by.
    return torch.where(squared > 0, slope, 0.0)
