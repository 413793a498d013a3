"""Newton's method with preconditioned conjugate gradients, for arrays and tensors.

Nocedal & Wright 2006, "Numerical optimization", algorithm 7.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from randkern.backend.namespace import ops_of

_DECREASE = 1e-4
_MAX_TRIALS = 40
# A step is doubled as long as the slope is more than this share of the first.
_STEEP = 0.2
# Changes of the value below this share of it are rounding errors.
_ROUNDING = 2.0**-46
# If changes are that small, the gradient must still decrease by this factor.
_PROGRESS = 0.5

# Returns the value at a vector, and the gradient there.
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
# Returns, for a vector, the function that multiplies by the second derivative there.
Curvature = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]


def descend(
    function: Function,
    curvature: Curvature,
    start: np.ndarray,
    reached: Callable[[float, np.ndarray], bool],
    max_products: int,
    report: Callable[[np.ndarray], bool] = lambda at: False,
    preconditioner: Curvature | None = None,
    patience: int = 0,
    *,
    max_residual: float,
) -> tuple[np.ndarray, int]:
    """Return the minimiser of a convex function, and the number of products used.

    Those are products with the second derivative, at most `max_products`. `reached`
    returns whether to stop, given the value and the gradient; so does `report`, called
    with the vector of each step. `max_residual` is the largest relative residual of the
    system of a step.

    A preconditioner, the product with about the inverse second derivative at a vector,
    is computed each time that `patience` products have been taken: as many as take its
    time.
    """
    ops = ops_of(start)
    solve: Callable[[np.ndarray], np.ndarray] = _unchanged
    limit = patience if preconditioner is not None else max_products
    at = start
    value, gradient = function(start)
    n_products = 0
    while n_products < max_products and not reached(value, gradient):
        if preconditioner is not None and n_products >= limit:
            solve, limit = preconditioner(at), n_products + patience
        # Squares of tiny gradients underflow.
        size = ops.largest_or_zero(abs(gradient))
        most = min(max_products, limit) - n_products
        step, taken = _newton_step(
            curvature(at), solve, gradient / size, most, max_residual
        )
        step, n_products = size * step, n_products + taken
        accepted = _search(function, at, step, value, float(gradient @ step))
        if accepted is None:
            break  # no further digit can be gained
        at, after, gradient = accepted
        flat = abs(after - value) <= _ROUNDING * abs(value)
        value = after
        if report(at):
            break
        if flat and ops.largest_or_zero(abs(gradient)) > _PROGRESS * size:
            break
    return at, n_products


def _search(
    function: Function, at: np.ndarray, step: np.ndarray, value: float, slope: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Return a better point along a step, its value and gradient, or None."""
    length, best = 1.0, None
    for _ in range(_MAX_TRIALS):
        after, gradient = function(at + length * step)
        if best is not None and not after < best[1]:
            return best
        lower = after <= value + _DECREASE * length * slope
        if lower or abs(after - value) <= _ROUNDING * abs(value):
            best = (at + length * step, after, gradient)
            if length < 1 or not lower or gradient @ step > _STEEP * slope:
                return best
            # Exponential tails extend much further than their curvature suggests.
            length *= 2
        else:
            length /= 2
    return best


def _unchanged(vector: np.ndarray) -> np.ndarray:
    return vector


def _newton_step(
    product: Callable[[np.ndarray], np.ndarray],
    solve: Callable[[np.ndarray], np.ndarray],
    gradient: np.ndarray,
    max_products: int,
    max_residual: float,
) -> tuple[np.ndarray, int]:
    """Return minus the inverse second derivative times the gradient, approximately."""
    residual = -gradient
    direction = solve(residual)
    step = 0.0 * gradient
    square = float(residual @ direction)
    enough = max_residual**2 * square
    for n_products in range(1, max_products + 1):
        product_along = product(direction)
        curve = float(direction @ product_along)
        if curve <= 0:  # rounding errors
            return (step if n_products > 1 else direction), n_products
        length = square / curve
        step = step + length * direction
        residual = residual - length * product_along
        conditioned = solve(residual)
        before = square
        square = float(residual @ conditioned)
        if square <= enough:
            break
        direction = conditioned + (square / before) * direction
    return step, n_products
