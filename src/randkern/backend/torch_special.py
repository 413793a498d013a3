"""Special functions on tensors: Matérn correlations and optical kernels.

Where PyTorch has no function, an integral is summed node by node: a quadrature that
converges exponentially, of a fixed number of steps, in the memory of a few tensors.
"""

import math

import numpy as np
import torch
from scipy.special import binom, gamma, gammaln

from randkern.backend.matern import DEBYE_NU, DEBYE_POLYNOMIALS

__all__ = ["binomial_squares", "matern_correlation", "optical_angles"]

# Nodes of the integral of K_ν.
_NODES = 160
# Where the logarithm of that integrand is below its largest value by so much, the
# rest does not matter in float64.
_DECAY = 38.0
_LEAST_ARGUMENT = 1e-15
_ANGLE_NODES = 128


def _polynomial(coefficients, x):
    total = torch.zeros_like(x)
    for coefficient in reversed(list(coefficients)):
        total = total * x + float(coefficient)
    return total


def matern_correlation(squared, nu):
    """Return the Matérn correlation at squared distances r².

    See :func:`randkern.backend.matern.matern_correlation`.

    Examples
    --------
    >>> import torch
    >>> from randkern.backend.torch_special import matern_correlation
    >>> matern_correlation(torch.tensor([1.0]), 0.5)
    tensor([0.3679])
    """
    if nu == math.inf:
        return torch.exp(-0.5 * squared)
    # Beyond this the correlation is 0 in float64, and infinity spoils products.
    z = (math.sqrt(2 * nu) * torch.sqrt(squared)).clip(max=1e5 + 1e3 * nu)
    if nu in (0.5, 1.5, 2.5):
        decay = torch.exp(-z)
        if nu == 0.5:
            return decay
        return decay * (1 + z) if nu == 1.5 else decay * (1 + z + z * z / 3)
    log = _debye(z, nu) if nu >= DEBYE_NU else _log_integral(z.double(), nu)
    values = torch.exp(log.clip(max=0.0)).to(z.dtype)
    return torch.where(z == 0, torch.ones_like(z), values)


def _log_integral(z, nu):
    """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)).

    K_ν(z) = ∫ exp(−z cosh t) cosh(νt) dt over t > 0, half the integral of exp(νt −
    z cosh t) over all t, whose integrand is largest at sinh t = ν/z; by the trapezoidal
    rule, which converges exponentially on the whole line.
    """
    z = z.clip(min=_LEAST_ARGUMENT)
    peak = torch.asinh(nu / z)
    top = nu * peak - z * torch.cosh(peak)
    first = peak - _reach(z, nu, peak, top, -1.0)
    step = (peak + _reach(z, nu, peak, top, 1.0) - first) / _NODES
    total = torch.zeros_like(z)
    for node in range(_NODES + 1):
        t = first + step * node
        total += torch.exp(nu * t - z * torch.cosh(t) - top)
    constant = -nu * math.log(2) - float(gammaln(nu))
    return constant + nu * torch.log(z) + top + torch.log(step * total)


def _reach(z, nu, peak, top, side):
    """Return how far from its peak the integrand matters, by doubling and halving."""
    high = torch.full_like(z, 1e-4)
    for _ in range(22):
        t = peak + side * high
        small = top - (nu * t - z * torch.cosh(t)) > _DECAY
        high = torch.where(small, high, 2 * high)
    return high


def _debye(z, nu):
    """Return the logarithm by the uniform expansion for large ν."""
    s = z / nu
    root = torch.sqrt(1 + s * s)
    t = 1.0 / root
    series = torch.ones_like(z)
    for k, polynomial in enumerate(DEBYE_POLYNOMIALS, start=1):
        series = series + (-1 / nu) ** k * t**k * _polynomial(polynomial, t * t)
    excess = s * s / (1 + root)
    stirling = 1 / (12 * nu) - 1 / (360 * nu**3) + 1 / (1260 * nu**5)
    exponent = nu * (torch.log1p(excess / 2) - excess) - stirling
    return exponent - 0.5 * torch.log(root) + torch.log(series)


def _angle_nodes():
    """Return nodes φ in (0, π) and weights of the tanh-sinh rule, divided by π."""
    t = np.linspace(-3.6, 3.6, _ANGLE_NODES)
    inner = 0.5 * np.pi * np.sinh(t)
    # (1 + tanh u)/2 without cancellation where u is far below 0.
    share = 1.0 / (1.0 + np.exp(-2 * inner))
    weights = 0.25 * np.pi * np.cosh(t) / np.cosh(inner) ** 2
    return np.pi * share, weights * (t[1] - t[0])


def binomial_squares(cosine, m):
    """Return Σ_j C(m/2, j)² c^{2j} = ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1].

    A polynomial in c² for even m. In general the series is that of the mean of
    |1 + c e^{iθ}|^m over the circle (Parseval's identity), an integral over φ = π − θ
    of ((1 − c)² + 4c sin²(φ/2))^{m/2}, whose singularity at c = 1 lies at an end.

    Examples
    --------
    >>> import torch
    >>> from randkern.backend.torch_special import binomial_squares
    >>> binomial_squares(torch.tensor([0.0, 1.0]), 4.0)
    tensor([1., 6.])
    """
    if m % 2 == 0 and m <= 60:
        s = int(m) // 2
        return _polynomial(binom(s, np.arange(s + 1)) ** 2, cosine * cosine)
    total = torch.zeros_like(cosine)
    gap = (1 - cosine) ** 2
    for angle, weight in zip(*_angle_nodes(), strict=True):
        size = gap + 4 * math.sin(angle / 2) ** 2 * cosine
        total += float(weight) * size ** (m / 2)
    return total


def optical_angles(cosine, m):
    """Return Γ(1 + m/2)² ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1].

    Examples
    --------
    >>> import torch
    >>> from randkern.backend.torch_special import optical_angles
    >>> optical_angles(torch.tensor([0.0, 1.0]), 2.0)
    tensor([1., 2.])
    """
    return float(gamma(1 + m / 2)) ** 2 * binomial_squares(cosine, m)
