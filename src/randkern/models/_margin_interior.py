"""Soft margins by an interior-point method, where coordinate descent is too slow.

The dual of a support vector machine,

    min ½‖Mᵀa‖² − 1ᵀa,  0 ≤ a ≤ U,  rows of M: y_i z_i,

by Mehrotra's predictor and corrector (Nocedal & Wright 2006, algorithm 16.4). Each step
solves with Θ + MMᵀ, Θ diagonal, by a Cholesky factorisation of the D × D matrix
I + MᵀΘ⁻¹M (Ferris & Munson 2002, "Interior-point methods for massive support vector
machines"). The number of steps hardly depends on U, that of passes of coordinate
descent grows with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from randkern.backend import cpu
from randkern.blocks import row_blocks

__all__ = ["affordable", "solve_box"]

# Multiplications of a step for all problems together: seconds.
_OPERATIONS = 1e11
_ROWS = 8192
_MOST_STEPS = 100
# The share of the way to the nearest bound that a step goes.
_SHARE = 0.995
# So many steps that do not improve a relative gap below this: rounding errors are all
# that is left. Far from the solution it may grow for a while.
_STALLED = 3
_NEAR = 0.1


def affordable(n: int, width: int, n_problems: int) -> bool:
    """Tell whether a step for each problem is a matter of seconds."""
    return n_problems * n * float(width) ** 2 <= _OPERATIONS


@dataclass
class _Point:
    """Variables, their distances from the upper bounds, and both multipliers.

    The distances are kept: U − a has no digits where U is large.
    """

    a: np.ndarray
    room: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def moved(self, by: _Point, length: float) -> _Point:
        return _Point(
            self.a + length * by.a,
            self.room + length * by.room,
            self.low + length * by.low,
            self.high + length * by.high,
        )

    def reach(self, by: _Point) -> float:
        """Return how far a step may go until something vanishes."""
        far = np.inf
        for value, change in (
            (self.a, by.a),
            (self.room, by.room),
            (self.low, by.low),
            (self.high, by.high),
        ):
            falling = change < 0
            if np.any(falling):
                far = min(far, float(np.min(-value[falling] / change[falling])))
        return far

    @property
    def product(self) -> float:
        return float(self.a @ self.low + self.room @ self.high)


def solve_box(
    Z: np.ndarray, signs: np.ndarray, upper: np.ndarray, tol: float
) -> np.ndarray:
    """Return the dual variables of one problem, those at their bounds exactly there.

    Parameters
    ----------
    Z : ndarray of shape (n, width)
        Float32 or float64; products are formed in float64.
    signs : ndarray of shape (n,)
    upper : ndarray of shape (n,)
        Positive.
    tol : float
        The relative duality gap to stop at; it may end earlier, where rounding errors
        leave no more.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._margin_interior import solve_box
    >>> Z, signs = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    >>> solve_box(Z, signs, np.full(2, 10.0), 1e-10).round(6)
    array([1., 0.])
    """
    problem = _Problem(Z, signs, upper)
    bound = problem.upper
    start = np.minimum(0.5 * bound, 1.0)
    slope = problem.slope(start)
    low, high = np.maximum(slope, 0.0) + 1.0, np.maximum(-slope, 0.0) + 1.0
    at = best = _Point(start, bound - start, low, high)
    least, stalled = np.inf, 0
    for _ in range(_MOST_STEPS):
        slope = problem.slope(at.a)
        gap = problem.gap(at.a, slope)
        if gap < least:
            best, least, stalled = at, gap, 0
        elif least < _NEAR:
            stalled += 1
        if least <= tol or stalled > _STALLED:
            break
        try:
            at = _next(problem, at, slope)
        except np.linalg.LinAlgError:
            break
    unit = np.minimum(bound, 1.0)
    out = np.where(best.a < best.low * unit, 0.0, best.a / problem.square)
    return np.where(best.room < best.high * unit, upper, np.minimum(out, upper))


def _next(problem: _Problem, at: _Point, slope: np.ndarray) -> _Point:
    """Return where a predictor and a corrector lead."""
    residual = slope - at.low + at.high
    solver = problem.factorise(at.low / at.a + at.high / at.room)

    def step(low: np.ndarray, high: np.ndarray) -> _Point:
        change = solver.solve(-residual + low / at.a - high / at.room)
        return _Point(
            change,
            -change,
            (low - at.low * change) / at.a,
            (high + at.high * change) / at.room,
        )

    low, high = -at.a * at.low, -at.room * at.high
    ahead = step(low, high)
    product = at.product
    after = at.moved(ahead, min(1.0, at.reach(ahead))).product
    centre = (after / product) ** 3 * product / (2 * len(at.a))
    ahead = step(
        centre + low - ahead.a * ahead.low, centre + high + ahead.a * ahead.high
    )
    return at.moved(ahead, min(1.0, _SHARE * at.reach(ahead)))


class _Problem:
    """Rows of length at most 1, in blocks of float64, and their bounds."""

    def __init__(self, Z: np.ndarray, signs: np.ndarray, upper: np.ndarray):
        self._Z, self._signs = Z, signs
        longest = max(
            float(np.einsum("ij,ij->i", M, M).max(initial=0.0))
            for _, M in self._raw_blocks(1.0)
        )
        self.square = longest or 1.0
        self.upper = upper * self.square

    def _raw_blocks(self, length: float) -> Iterator[tuple[slice, np.ndarray]]:
        for rows in row_blocks(len(self._Z), _ROWS):
            M = self._Z[rows].astype(np.float64)
            M *= self._signs[rows, None] / length
            yield rows, M

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._raw_blocks(self.square**0.5)

    def weights(self, a: np.ndarray) -> np.ndarray:
        out = np.zeros(self._Z.shape[1])
        for rows, M in self.blocks():
            out += a[rows] @ M
        return out

    def values(self, weights: np.ndarray) -> np.ndarray:
        return np.concatenate([M @ weights for _, M in self.blocks()])

    def slope(self, a: np.ndarray) -> np.ndarray:
        """Return MMᵀa − 1; keep what `gap` needs."""
        weights = self.weights(a)
        self._penalty = 0.5 * float(weights @ weights)
        return self.values(weights) - 1

    def gap(self, a: np.ndarray, slope: np.ndarray) -> float:
        """Return the relative duality gap at the variables of the last slope."""
        primal = self._penalty + float(self.upper @ np.maximum(-slope, 0.0))
        return (primal - float(a.sum()) + self._penalty) / max(primal, 1e-300)

    def factorise(self, diagonal: np.ndarray) -> _Factor:
        width = self._Z.shape[1]
        gram = np.zeros((width, width))
        for rows, M in self.blocks():
            M /= np.sqrt(diagonal[rows])[:, None]
            cpu.add_gram(M, gram)
        gram[np.diag_indices(width)] += 1.0
        # The upper triangle of a C-ordered array is LAPACK's lower one.
        factor = scipy.linalg.cholesky(
            gram.T, lower=True, overwrite_a=True, check_finite=False
        )
        return _Factor(self, diagonal, factor)


@dataclass(frozen=True)
class _Factor:
    """Θ + MMᵀ, factorised."""

    problem: _Problem
    diagonal: np.ndarray
    factor: np.ndarray

    def solve(self, right: np.ndarray) -> np.ndarray:
        scaled = right / self.diagonal
        inner = scipy.linalg.cho_solve(
            (self.factor, True), self.problem.weights(scaled), check_finite=False
        )
        return scaled - self.problem.values(inner) / self.diagonal
