"""Methods with second derivatives, for problems where L-BFGS is slow or stops short.

L-BFGS in whitened coordinates, and Newton's method with conjugate gradients (Nocedal &
Wright 2006, algorithm 7.1), for arrays and tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from randkern.backend.namespace import ops_of

# Largest relative residual of the system of a step.
_SHARE = 0.05
_DECREASE = 1e-4
_MAX_TRIALS = 40
# Changes of the value below this share of it are rounding errors.
_ROUNDING = 2.0**-46
# If changes are that small, the gradient must still decrease by this factor.
_PROGRESS = 0.5

# Returns the value at a vector, and the gradient there.
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
# Returns, for a vector, the function that multiplies by the second derivative there.
Curvature = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]


def descend_whitened(
    function: Function,
    factor: np.ndarray,
    start: np.ndarray,
    max_iter: int,
    n_pairs: int,
    report: Callable[[np.ndarray], bool],
) -> tuple[np.ndarray, int]:
    """Minimise by L-BFGS in other coordinates; return the minimiser and iterations.

    The function is one of vectors w_1 ... w_k. If its second derivatives in each are
    about LLᵀ, those in u = Lᵀw are about the identity, and few iterations suffice.
    `factor` is the lower triangular L, (D, D), and `start` has shape (k·D,). `report`
    is called with the vector of each iteration and returns whether to stop. If the
    factor has overflowed, the start is returned.
    """
    ops = ops_of(start)
    D = len(factor)
    solve = ops.algebra.triangular_solve

    def original(u: np.ndarray) -> np.ndarray:
        return solve(factor, u.reshape(-1, D).T, transposed=True).T.reshape(-1)

    def whitened(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(original(u))
        return value, solve(factor, gradient.reshape(-1, D).T).T.reshape(-1)

    u, n_iter = ops.minimise(
        whitened,
        (start.reshape(-1, D) @ factor).reshape(-1),
        0.0,
        max_iter,
        n_pairs,
        lambda u: report(original(u)),
    )
    result = original(u)
    return (result, n_iter) if ops.is_finite(result) else (start, 0)


def descend(
    function: Function,
    curvature: Curvature,
    start: np.ndarray,
    reached: Callable[[float, np.ndarray], bool],
    max_products: int,
    report: Callable[[np.ndarray], bool] = lambda at: False,
) -> tuple[np.ndarray, int]:
    """Return the minimiser of a convex function, and the number of products used.

    Those are products with the second derivative, at most `max_products`. `reached`
    returns whether to stop, given the value and the gradient; so does `report`, called
    with the vector of each step.
    """
    ops = ops_of(start)
    at = start
    value, gradient = function(start)
    n_products = 0
    while n_products < max_products and not reached(value, gradient):
        # Squares of tiny gradients underflow.
        size = ops.largest_or_zero(abs(gradient))
        step, taken = _newton_step(
            curvature(at), gradient / size, max_products - n_products
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
            if length < 1 or not lower:
                return best
            # Exponential tails extend much further than their curvature suggests.
            length *= 2
        else:
            length /= 2
    return best


def _newton_step(
    product: Callable[[np.ndarray], np.ndarray], gradient: np.ndarray, max_products: int
) -> tuple[np.ndarray, int]:
    """Return minus the inverse second derivative times the gradient, approximately."""
    residual = -gradient
    step, direction = 0.0 * gradient, residual
    square = float(residual @ residual)
    enough = _SHARE**2 * square
    for n_products in range(1, max_products + 1):
        product_along = product(direction)
        curve = float(direction @ product_along)
        if curve <= 0:  # rounding errors
            return (step if n_products > 1 else direction), n_products
        length = square / curve
        step = step + length * direction
        residual = residual - length * product_along
        before = square
        square = float(residual @ residual)
        if square <= enough:
            break
        direction = residual + (square / before) * direction
    return step, n_products
