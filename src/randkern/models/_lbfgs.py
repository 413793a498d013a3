"""L-BFGS over the primitives of arrays: vectors stay where they lie.

Nocedal & Wright 2006, algorithms 7.4 and 7.5, with a line search for the strong
conditions of Wolfe. SciPy's implementation, on the host, is what NumPy arrays take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from randkern.backend.namespace import ops_of

__all__ = ["PAIRS", "Function", "minimise"]

# Pairs of steps and changes of the gradient that are kept.
PAIRS = 20
# Conditions of Wolfe: sufficient decrease, and how much of the slope may be left.
_DECREASE = 1e-4
_CURVATURE = 0.9
_MOST_TRIALS = 25
_EXPANSION = 4.0
# A step of which the value changes by less is lost in rounding errors.
_LEAST_CHANGE = 64 * 2.0**-52

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimise(
    function: Function, start: np.ndarray, tolerance: float, max_iter: int
) -> tuple[np.ndarray, int]:
    """Return where a smooth function is least, and the number of iterations.

    Parameters
    ----------
    function : callable
        Returns the value at a vector, a float, and the gradient there.
    start : ndarray or tensor of shape (m,), float64
    tolerance : float
        Stop where no entry of the gradient is larger.
    max_iter : int

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._lbfgs import minimise
    >>> sizes = np.array([1.0, 100.0])
    >>> def function(x):
    ...     return float(sizes @ (x - 1) ** 2), 2 * sizes * (x - 1)
    >>> minimise(function, np.zeros(2), 1e-9, 100)[0].round(6)
    array([1., 1.])
    """
    ops = ops_of(start)
    at, (value, gradient) = start, function(start)
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=PAIRS)
    for n_iter in range(max_iter):
        if ops.largest(abs(gradient)) <= tolerance:
            return at, n_iter
        direction = _direction(gradient, pairs)
        slope = float(gradient @ direction)
        if slope >= 0:  # rounding errors have spoilt the pairs
            pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        first = 1.0 if pairs else 1.0 / max(1.0, (-slope) ** 0.5)
        found = _search(function, at, direction, value, slope, first)
        if found is None:
            return at, n_iter
        length, after, new = found
        step, change = length * direction, new - gradient
        product = float(step @ change)
        if product > 0:
            pairs.append((step, change, product))
        gained = value - after
        at, value, gradient = at + step, after, new
        if gained <= _LEAST_CHANGE * max(abs(value), abs(value + gained), 1.0):
            return at, n_iter + 1
    return at, max_iter


def _direction(
    gradient: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray, float]]
) -> np.ndarray:
    """Return minus the gradient times what pairs tell of the inverse Hessian."""
    direction = -gradient
    shares = []
    for step, change, product in reversed(pairs):
        share = float(step @ direction) / product
        direction = direction - share * change
        shares.append(share)
    if pairs:
        step, change, product = pairs[-1]
        direction = direction * (product / float(change @ change))
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        direction = direction + (share - float(change @ direction) / product) * step
    return direction


def _search(
    function: Function,
    at: np.ndarray,
    direction: np.ndarray,
    value: float,
    slope: float,
    first: float,
) -> tuple[float, float, np.ndarray] | None:
    """Return a length that meets Wolfe's conditions, the value and gradient there.

    Where rounding errors let none be found, the best there was; None if that is no
    better than the start.
    """
    low: tuple[float, float, float] = (0.0, value, slope)
    high: tuple[float, float] | None = None
    best: tuple[float, float, np.ndarray] | None = None
    length = first
    for _ in range(_MOST_TRIALS):
        after, gradient = function(at + length * direction)
        here = float(gradient @ direction)
        if after < (value if best is None else best[1]):
            best = (length, after, gradient)
        enough = after <= value + _DECREASE * length * slope and after < low[1]
        if enough and abs(here) <= -_CURVATURE * slope:
            return length, after, gradient
        if enough and here < 0:
            low = (length, after, here)
        else:  # the least value lies before it
            high = (length, after)
        length = _EXPANSION * length if high is None else _between(low, high)
    return best


def _between(low: tuple[float, float, float], high: tuple[float, float]) -> float:
    """Return a length within a bracket, by quadratic interpolation."""
    (a, value, slope), (b, after) = low, high
    width = b - a
    curvature = after - value - slope * width
    share = 0.5
    if np.isfinite(after) and curvature > 0:
        share = -0.5 * slope * width / curvature
    return a + min(max(share, 0.1), 0.9) * width
