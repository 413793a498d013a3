"""Matérn correlations and optical kernels of angles, for arrays of any library.

``ops`` is a :class:`randkern.backend.array_ops.ArrayOps`, which provides Bessel and
hypergeometric functions: SciPy's, or the quadratures of
:mod:`randkern.backend.torch_ops`.
"""

import math

import numpy as np
from scipy.special import binom, gamma

# Above this ν the Bessel function is computed from Debye's expansion, whose first
# omitted term is then below 1e-14.
_DEBYE_NU = 200.0
_DEBYE_POLYNOMIALS = (
    np.array([3.0, -5.0]) / 24,
    np.array([81.0, -462.0, 385.0]) / 1152,
    np.array([30375.0, -369603.0, 765765.0, -425425.0]) / 414720,
    np.array([4465125.0, -94121676.0, 349922430.0, -446185740.0, 185910725.0])
    / 39813120,
)


def polynomial(coefficients, x):
    """Return the sum of ``coefficients[k] * x**k``, by Horner's rule."""
    total = 0 * x + float(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + float(coefficient)
    return total


def matern_correlation(ops, squared, nu):
    """Return the Matérn correlation at squared distances r²."""
    xp = ops.xp
    if nu == math.inf:
        return ops.exp_of(-0.5 * squared)
    if nu == 0.5:
        return ops.exp_of(-xp.sqrt(squared))
    # Beyond this the correlation is 0 in float64; infinity would make products nan.
    largest = 1e5 + 1e3 * nu
    z = (math.sqrt(2 * nu) * xp.sqrt(squared)).clip(max=largest)
    if nu in (1.5, 2.5):
        decay = ops.exp_of(-z)
        return decay * (1 + z) if nu == 1.5 else decay * (1 + z + z * z / 3)
    log = _debye(xp, z, nu) if nu >= _DEBYE_NU else ops.log_matern(z, nu)
    values = xp.astype(xp.exp(log.clip(max=0.0)), z.dtype, copy=False)
    return xp.where(z == 0, xp.ones_like(z), values)


def matern_slope(ops, squared, nu):
    """Return −2 f'(s) for the Matérn correlation f of squared distances s."""
    if nu == math.inf:
        return matern_correlation(ops, squared, nu)
    if nu > 1:
        # d(z^ν K_ν)/dz = −z^ν K_{ν−1}, and ν − 1 has the same z at s·ν/(ν−1).
        ratio = nu / (nu - 1)
        return ratio * ops.matern_correlation(squared * ratio, nu - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if nu == 1:
            slope = 2 * ops.bessel_k0(ops.xp.sqrt(2 * squared))
        else:
            # K_{ν−1} = K_{1−ν}, from the correlation of 1 − ν at the same z.
            other = 1 - nu
            factor = 2 * nu * 2 ** (1 - 2 * nu) * gamma(other) / gamma(nu)
            correlation = ops.matern_correlation(squared * (nu / other), other)
            slope = factor * (2 * nu * squared) ** (nu - 1) * correlation
    # The slope is infinite where rows are equal; it is multiplied by their difference.
    return ops.xp.where(squared > 0, slope, 0.0)


def _debye(xp, z, nu):
    """Return the logarithm by the uniform expansion for large ν.

    Abramowitz & Stegun 9.7.8 with the polynomials u₁ to u₄ of 9.3.9 in t =
    1/√(1 + (z/ν)²).
    """
    s = z / nu
    root = xp.sqrt(1 + s * s)
    t = 1.0 / root
    series = xp.ones_like(z)
    for k, coefficients in enumerate(_DEBYE_POLYNOMIALS, start=1):
        series = series + (-1 / nu) ** k * t**k * polynomial(coefficients, t * t)
    # The large terms of ν η, ln Γ(ν) by Stirling's series and ν ln z cancel; what
    # remains, with e = √(1 + s²) − 1, is ν (ln(1 + e/2) − e).
    excess = s * s / (1 + root)
    stirling = 1 / (12 * nu) - 1 / (360 * nu**3) + 1 / (1260 * nu**5)
    exponent = nu * (xp.log1p(excess / 2) - excess) - stirling
    return exponent - 0.5 * xp.log(root) + xp.log(series)


def binomial_squares(ops, cosine, m):
    """Return Σ_j C(m/2, j)² c^{2j} = ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1].

    It is a polynomial in c² for even m.
    """
    if m % 2 == 0 and m <= 60:
        s = int(m) // 2
        return polynomial(binom(s, np.arange(s + 1)) ** 2, cosine * cosine)
    return ops.hypergeometric(cosine, m)


def optical_angles(ops, cosine, m):
    """Return Γ(1 + m/2)² ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1]."""
    return float(gamma(1 + m / 2)) ** 2 * binomial_squares(ops, cosine, m)
