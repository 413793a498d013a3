"""The dual activation of any function, from its Hermite series."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from randkern._validation import check_count, check_positive
from randkern.skeletons.activations import PowerSeries

# The normal density times a polynomial of the size met here vanishes beyond.
_RANGE = 16.0
_NODES = 32  # a panel


def from_function(
    function: Callable[[np.ndarray], Any],
    *,
    max_degree: int = 200,
    tolerance: float = 1e-3,
    name: str = "",
) -> PowerSeries:
    """Return the dual activation of a function of one real variable.

    With the Hermite series f = Σ bₗhₗ, hₗ orthonormal under the standard normal law,
    the dual of f/√E[f(Z)²] is Σ aₗρˡ, aₗ = bₗ²/E[f(Z)²]. The bₗ are computed by
    Gauss-Legendre quadrature on panels of [−16, 16] and computed again on panels half
    as wide.

    Parameters
    ----------
    function : callable
        Takes an array of reals and returns an array of the same shape. It is not
        kept: the series stands for it.
    max_degree : int
        Degrees above it are left out.
    tolerance : float
        Most probability that may be left out, and most by which the two quadratures
        may differ.
    name : str, optional
        How the activation is shown; the function's own name by default.

    Raises
    ------
    ValueError
        If the function gives something that is not finite, vanishes, or has a series
        that converges too slowly or cannot be computed to the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern import skeletons
    >>> skeletons.from_function(np.tanh).coefficients(4).round(3)
    array([0.   , 0.93 , 0.   , 0.056])
    """
    max_degree = check_count("max_degree", max_degree)
    check_positive("tolerance", tolerance)
    shown = name or getattr(function, "__name__", "function")
    if not callable(function):
        raise ValueError(
            "from_function takes a function of an array, such as np.tanh, got "
            f"{function!r}; an activation that has a name needs none."
        )
    coarse = _series(function, shown, max_degree, 0.5)
    fine = _series(function, shown, max_degree, 0.25)
    difference = float(np.abs(coarse - fine).sum())
    if difference > tolerance:
        raise ValueError(
            f"the Hermite series of {shown} differs by {difference:.2g} between two "
            f"quadratures, more than tolerance={tolerance:g}: it jumps, or varies too "
            "fast; give its series as PowerSeries instead."
        )
    omitted = 1.0 - float(fine.sum())
    if omitted > tolerance:
        raise ValueError(
            f"degrees above max_degree={max_degree} hold {omitted:.2g} of the Hermite "
            f"series of {shown}, more than tolerance={tolerance:g}; raise either."
        )
    return PowerSeries(tuple((fine / fine.sum()).tolist()), name=shown)


def _values(
    function: Callable[[np.ndarray], Any], shown: str, x: np.ndarray
) -> np.ndarray:
    """Return the real values of a function at points, which it may overwrite."""
    with np.errstate(all="ignore"):
        try:
            values = np.asarray(function(x.copy()))
        except TypeError as error:
            raise ValueError(
                f"{shown} cannot be applied to an array of reals: {error}; give a "
                "function such as np.tanh, or np.vectorize(function)."
            ) from error
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{shown} must return real numbers, got values of {values.dtype}."
        )
    return values.astype(float)


def _series(
    function: Callable[[np.ndarray], Any], shown: str, max_degree: int, panel: float
) -> np.ndarray:
    """Return bₗ²/E[f²] for l up to `max_degree`."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # Panels meet at 0, where most activations have their kink or jump.
    starts = np.arange(-_RANGE, _RANGE, panel)
    x = (starts[:, None] + panel * (nodes + 1) / 2).ravel()
    w = np.tile(weights * panel / 2, len(starts))
    values = _values(function, shown, x)
    if values.shape != x.shape or not np.all(np.isfinite(values)):
        raise ValueError(
            f"{shown} must return finite numbers, one for each of its arguments, on "
            f"[{-_RANGE:g}, {_RANGE:g}]."
        )
    # h_l(x) e^{−x²/4} stays in range where h_l alone does not.
    half = np.exp(-(x**2) / 4) / (2 * math.pi) ** 0.25
    weighted = w * values * half
    square = float(w @ (values * half) ** 2)
    if not 0 < square < math.inf:
        raise ValueError(f"E[f(Z)²] of {shown} is {square}; it must be positive.")
    before, current = np.zeros_like(x), half
    series = np.empty(max_degree + 1)
    for degree in range(max_degree + 1):
        series[degree] = (weighted @ current) ** 2 / square
        if series[degree] < 1e-26:  # the square of what rounding leaves
            series[degree] = 0.0
        after = (x * current - math.sqrt(degree) * before) / math.sqrt(degree + 1)
        before, current = current, after
    return series
