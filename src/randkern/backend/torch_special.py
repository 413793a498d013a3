"""Bessel and hypergeometric functions that PyTorch lacks.

An integral is summed node by node: a quadrature that converges exponentially, of a
fixed number of steps, in the memory of a few tensors.
"""

import math

import numpy as np
import torch
from scipy.special import gammaln

# Nodes of the integral of K_ν.
_NODES = 160
# Where the logarithm of that integrand is below its largest value by so much, the
# rest does not matter in float64.
_DECAY = 38.0
_LEAST_ARGUMENT = 1e-15
_ANGLE_NODES = 128


def log_matern(z, nu):
    """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)).

    K_ν(z) = ∫ exp(−z cosh t) cosh(νt) dt over t > 0, half the integral of exp(νt −
    z cosh t) over all t, whose integrand is largest at sinh t = ν/z; by the trapezoidal
    rule, which converges exponentially on the whole line.
    """
    z = z.double().clip(min=_LEAST_ARGUMENT)
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


def _angle_nodes():
    """Return nodes φ in (0, π) and weights of the tanh-sinh rule, divided by π."""
    t = np.linspace(-3.6, 3.6, _ANGLE_NODES)
    inner = 0.5 * np.pi * np.sinh(t)
    # (1 + tanh u)/2 without cancellation where u is far below 0.
    share = 1.0 / (1.0 + np.exp(-2 * inner))
    weights = 0.25 * np.pi * np.cosh(t) / np.cosh(inner) ** 2
    return np.pi * share, weights * (t[1] - t[0])


def hypergeometric(cosine, m):
    """Return ₂F₁(−m/2, −m/2; 1; c²) = Σ_j C(m/2, j)² c^{2j} for c in [0, 1].

    The series is that of the mean of |1 + c e^{iθ}|^m over the circle (Parseval's
    identity), an integral over φ = π − θ of ((1 − c)² + 4c sin²(φ/2))^{m/2}, whose
    singularity at c = 1 lies at an end.

    Examples
    --------
    >>> import torch
    >>> from randkern.backend.torch_special import hypergeometric
    >>> hypergeometric(torch.tensor([0.0, 1.0]), 4.0)
    tensor([1., 6.])
    """
    total = torch.zeros_like(cosine)
    gap = (1 - cosine) ** 2
    for angle, weight in zip(*_angle_nodes(), strict=True):
        size = gap + 4 * math.sin(angle / 2) ** 2 * cosine
        total += float(weight) * size ** (m / 2)
    return total
