"""The Matérn correlation for every ν > 0."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, kve

__all__ = ["DEBYE_NU", "DEBYE_POLYNOMIALS", "matern_correlation"]

# Above this ν the Bessel function is taken from Debye's expansion, whose first
# omitted term is then below 1e-14.
DEBYE_NU = 200.0


def matern_correlation(squared: np.ndarray, nu: float) -> np.ndarray:
    """Return the Matérn correlation at squared distances r² (may overwrite them)."""
    if nu == math.inf:
        squared *= -0.5
        return np.exp(squared, out=squared)
    z = np.sqrt(squared, out=squared)
    z *= math.sqrt(2 * nu)
    # Beyond this the correlation is 0 in float64, and infinity spoils products.
    np.minimum(z, 1e5 + 1e3 * nu, out=z)
    if nu in (0.5, 1.5, 2.5):
        decay = np.exp(-z)
        if nu == 0.5:
            return decay
        return decay * (1 + z) if nu == 1.5 else decay * (1 + z + z * z / 3)
    return np.exp(np.minimum(_log_correlation(z, nu), 0.0))


def _log_correlation(z: np.ndarray, nu: float) -> np.ndarray:
    """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)), 0 at z = 0."""
    if nu >= DEBYE_NU:
        return _debye(z, nu)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        bessel = kve(nu, z)
        log = (1 - nu) * math.log(2) - gammaln(nu) + nu * np.log(z) + np.log(bessel) - z
    log[z == 0] = 0.0
    # K_ν overflows near 0; there only a few terms of its series matter.
    small = np.isposinf(bessel) & (z > 0)
    if small.any():
        log[small] = np.log(_small_argument_series(z[small], nu))
    return log


def _small_argument_series(z: np.ndarray, nu: float) -> np.ndarray:
    """Return Σ_{k<ν} (−z²/4)^k/(k! (ν−1)···(ν−k)) (Abramowitz & Stegun 9.6.9-11).

    What it omits is of order z^{2ν}, which vanishes where K_ν overflows.
    """
    term = np.ones_like(z)
    total = np.ones_like(z)
    for k in range(1, min(40, math.ceil(nu))):
        term = term * (-(z**2) / 4) / (k * (nu - k))
        total += term
    return total


def _debye(z: np.ndarray, nu: float) -> np.ndarray:
    """Return the logarithm by the uniform expansion for large ν.

    Abramowitz & Stegun 9.7.8 with the polynomials u₁ to u₄ of 9.3.9 in t =
    1/√(1 + (z/ν)²).
    """
    s = z / nu
    root = np.hypot(1.0, s)
    t = 1.0 / root
    series = np.ones_like(z)
    for k, polynomial in enumerate(DEBYE_POLYNOMIALS, start=1):
        series += (
            (-1 / nu) ** k * t**k * np.polynomial.polynomial.polyval(t * t, polynomial)
        )
    # The large logarithms of ν η, ln Γ(ν) by Stirling's series and ν ln z cancel;
    # what is left of them, with e = √(1 + s²) − 1, is ν (ln(1 + e/2) − e).
    excess = s * s / (1 + root)
    stirling = 1 / (12 * nu) - 1 / (360 * nu**3) + 1 / (1260 * nu**5)
    exponent = nu * (np.log1p(excess / 2) - excess) - stirling
    return exponent - 0.5 * np.log(root) + np.log(series)


DEBYE_POLYNOMIALS = (
    np.array([3.0, -5.0]) / 24,
    np.array([81.0, -462.0, 385.0]) / 1152,
    np.array([30375.0, -369603.0, 765765.0, -425425.0]) / 414720,
    np.array([4465125.0, -94121676.0, 349922430.0, -446185740.0, 185910725.0])
    / 39813120,
)
