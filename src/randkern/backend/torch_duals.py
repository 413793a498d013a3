"""The dual activations of :mod:`randkern.backend.duals` for tensors."""

import math

import numpy as np
import torch

from randkern.backend.torch_constants import constant
from randkern.backend.torch_slopes import where_positive, with_slope

# Entries of a temporary array of powers.
_POWERS = 2**22


def relu(rho):
    """Return (√(1 − ρ²) + (π − arccos ρ)ρ)/π; its slope is :func:`step`."""
    return with_slope(rho, _relu, step)


def step(rho):
    """Return 1 − arccos(ρ)/π, with a cusp at 1."""

    def slope(rho):
        return where_positive((1.0 - rho) * (1.0 + rho), torch.rsqrt) / math.pi

    return with_slope(rho, _step, slope)


def _step(rho):
    return 1.0 - torch.acos(rho.clip(-1.0, 1.0)) / math.pi


def _relu(rho):
    x = rho.clip(-1.0, 1.0)
    # (1 − x)(1 + x) is accurate near ±1, unlike 1 − x².
    sine = (1.0 - x).mul_(1.0 + x).sqrt_()
    return torch.acos(x).neg_().add_(math.pi).mul_(x).add_(sine).div_(math.pi)


def power_series(coefficients, rho, owner):
    """Return the sum of ``coefficients[k] * rho**k``, computed in float64.

    With B ≈ √n for n coefficients, it computes the powers below B, combines them into
    polynomials by a matrix product, and applies Horner's rule in ρ^B. That launches 3√n
    kernels; Horner's rule alone would launch n, up to 10,000.
    """

    def slope(rho):
        factors = np.arange(1, len(coefficients))
        return power_series(factors * np.asarray(coefficients)[1:], rho, owner)

    return with_slope(rho, lambda rho: _power_series(coefficients, rho, owner), slope)


def _power_series(coefficients, rho, owner):
    n = len(coefficients)
    step = math.isqrt(max(n - 1, 0)) + 1

    def table():
        padded = np.zeros(-(-n // step) * step)
        padded[:n] = coefficients
        return padded.reshape(-1, step)

    x = rho.to(torch.float64).reshape(-1)
    polynomials = constant(owner, ("power series", n), x, table)
    out = torch.empty_like(x)
    for part, target in zip(*(v.split(_POWERS // step) for v in (x, out)), strict=True):
        powers = torch.ones(step, len(part), dtype=x.dtype, device=x.device)
        for k in range(1, step):
            torch.mul(powers[k - 1], part, out=powers[k])
        values = polynomials @ powers
        top, total = powers[-1] * part, values[-1]
        for k in range(len(values) - 2, -1, -1):
            total = total * top + values[k]
        target.copy_(total)
    return out.reshape(rho.shape).to(rho.dtype)
