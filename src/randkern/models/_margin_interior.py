"""Soft margins by an interior-point method, where coordinate descent is too slow.

The dual of a support vector machine,

    min ½‖Mᵀa‖² − 1ᵀa,  0 ≤ a ≤ U,  rows of M: y_i z_i,

by Mehrotra's predictor and corrector (Nocedal & Wright 2006, algorithm 16.4). Each step
solves with Θ + MMᵀ, Θ diagonal, by a Cholesky factorisation of it, n × n, or, where
there are fewer features than rows, of the D × D matrix I + MᵀΘ⁻¹M (Ferris & Munson
2002, "Interior-point methods for massive support vector machines"). The number of steps
hardly depends on U, that of passes of coordinate descent grows with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.models._feature_rows import FeatureRows

__all__ = ["BoxSolution", "SignedRows", "affordable", "n_bytes", "solve_box"]

# Multiplications of a step for all problems together: seconds.
_OPERATIONS = 1e11
_ROWS = 8192
_MOST_STEPS = 100
# Corrections of a solution, in which the terms of Woodbury's identity cancel.
_REFINEMENTS = 1
# The share of the way to the nearest bound that a step goes.
_SHARE = 0.995
# So many steps that do not improve a relative gap below this: rounding errors are all
# that is left. Far from the solution it may grow for a while.
_STALLED = 3
_NEAR = 0.1
# Of the largest: variables below belong to rows that do not matter.
_NEGLIGIBLE = 1e-10
# A diagonal of Θ + MMᵀ, for each row, that rounding errors leave positive definite.
_LEAST_DIAGONAL = 4 * 2.0**-52


def affordable(n: int, width: int, n_problems: int) -> bool:
    """Tell whether a step for each problem is a matter of seconds."""
    side = float(min(n, width))
    return n_problems * (n * width * side + side**3) <= _OPERATIONS


def n_bytes(n: int, width: int) -> int:
    """Return the memory that a step takes beside the features."""
    return 8 * (3 * min(n, width) ** 2 + 2 * min(n, _ROWS) * width + 20 * n)


@dataclass(frozen=True)
class BoxSolution:
    """Dual variables (n,) of one problem.

    Attributes
    ----------
    value : ndarray of shape (n,)
        Those that end at their bounds are exactly there.
    inner : ndarray of shape (n,)
        What the last step has left, below the bounds.
    n_steps : int
    """

    value: np.ndarray
    inner: np.ndarray
    n_steps: int


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
        return min(
            reach(value, change)
            for value, change in (
                (self.a, by.a),
                (self.room, by.room),
                (self.low, by.low),
                (self.high, by.high),
            )
        )

    @property
    def product(self) -> float:
        return float(self.a @ self.low + self.room @ self.high)


def reach(value: np.ndarray, change: np.ndarray) -> float:
    """Return how far positive numbers may move until one of them vanishes."""
    where = ops_of(value).elementwise.where
    falling = change < 0
    far = where(falling, -value / where(falling, change, 1.0), np.inf)
    return float(far.min())


def solve_box(
    features: FeatureRows, signs: np.ndarray, upper: np.ndarray, tol: float
) -> BoxSolution:
    """Return the dual variables of one problem.

    Parameters
    ----------
    features : FeatureRows
        Float32 or float64; products are formed in float64.
    signs : ndarray of shape (n,)
    upper : ndarray of shape (n,)
        Positive.
    tol : float
        The relative duality gap to stop at; it may end earlier, where rounding errors
        leave no more.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._feature_rows import KeptFeatures
    >>> from randkern.models._margin_interior import solve_box
    >>> Z, signs = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    >>> solution = solve_box(KeptFeatures(Z), signs, np.full(2, 10.0), 1e-10)
    >>> solution.value.round(6)
    array([1., 0.])
    """
    problem = _Problem(features, signs, upper)
    where = ops_of(signs).elementwise.where
    bound = problem.upper
    start = (0.5 * bound).clip(max=1.0)
    slope = problem.slope(start)
    low, high = slope.clip(0.0) + 1.0, (-slope).clip(0.0) + 1.0
    at = best = _Point(start, bound - start, low, high)
    least, stalled, n_steps = np.inf, 0, 0
    while n_steps < _MOST_STEPS:
        n_steps += 1
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
    unit = bound.clip(max=1.0)
    inner = (best.a / problem.square).clip(max=upper)
    out = where(best.a < best.low * unit, 0.0, inner)
    out = where(best.room < best.high * unit, upper, out)
    inner = where(inner < _NEGLIGIBLE * inner.max(), 0.0, inner)
    return BoxSolution(out, inner, n_steps)


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


class SignedRows:
    """Rows y_i z_i of length at most 1, in blocks of float64."""

    def __init__(self, features: FeatureRows, signs: np.ndarray):
        self._features, self._signs = features, signs
        self.ops = ops = ops_of(signs)
        longest = max(
            ops.largest(ops.squared_norms(M)) for _, M in self._raw_blocks(1.0)
        )
        self.square = longest or 1.0
        self._products: np.ndarray | None = None

    def _raw_blocks(self, length: float) -> Iterator[tuple[slice, np.ndarray]]:
        for part, Z in self._features.blocks():
            for rows in row_blocks(len(Z), _ROWS):
                here = slice(part.start + rows.start, part.start + rows.stop)
                factors = self._signs[here] / length
                yield here, self.ops.as_float64(Z[rows]) * factors[:, None]

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._raw_blocks(self.square**0.5)

    def weights(self, a: np.ndarray) -> np.ndarray:
        """Return Mᵀa."""
        out = self.ops.zeros(self._features.width, a)
        for rows, M in self.blocks():
            out += a[rows] @ M
        return out

    def values(self, weights: np.ndarray) -> np.ndarray:
        """Return Mw."""
        out = self.ops.zeros(self._features.n_rows, weights)
        for rows, M in self.blocks():
            out[rows] = M @ weights
        return out

    def factorise(self, diagonal: np.ndarray) -> Factor:
        """Factorise Θ + MMᵀ for the diagonal of Θ."""
        width, algebra = self._features.width, self.ops.algebra
        if self._features.n_rows <= width:
            system = self.ops.copy(self._all_products())
            # Rows that repeat, within their bounds, would leave it singular.
            least = _LEAST_DIAGONAL * len(diagonal)
            algebra.add_to_diagonal(system, diagonal.clip(min=least))
            return Factor(self, diagonal, algebra.lower_factor(system), False)
        gram = self.ops.zeros((width, width), diagonal)
        for rows, M in self.blocks():
            M /= (diagonal[rows] ** 0.5)[:, None]
            self.ops.add_gram(M, gram)
        algebra.add_to_diagonal(gram, 1.0)
        return Factor(self, diagonal, algebra.lower_factor(gram), True)

    def _all_products(self) -> np.ndarray:
        """Return MMᵀ, which is made once."""
        if self._products is None:
            n = self._features.n_rows
            self._products = self.ops.zeros((n, n), self._signs)
            for rows, M in self.blocks():
                for others, N in self.blocks():
                    self._products[rows, others] = M @ N.T
        return self._products


class _Problem(SignedRows):
    """Rows and the bounds of their variables."""

    def __init__(self, features: FeatureRows, signs: np.ndarray, upper: np.ndarray):
        super().__init__(features, signs)
        self.upper = upper * self.square

    def slope(self, a: np.ndarray) -> np.ndarray:
        """Return MMᵀa − 1; keep what `gap` needs."""
        weights = self.weights(a)
        self._penalty = 0.5 * float(weights @ weights)
        return self.values(weights) - 1

    def gap(self, a: np.ndarray, slope: np.ndarray) -> float:
        """Return the relative duality gap at the variables of the last slope."""
        primal = self._penalty + float(self.upper @ (-slope).clip(0.0))
        return (primal - float(a.sum()) + self._penalty) / max(primal, 1e-300)


@dataclass(frozen=True)
class Factor:
    """Θ + MMᵀ, factorised: itself, or I + MᵀΘ⁻¹M (`inner`) in its place."""

    rows: SignedRows
    diagonal: np.ndarray
    factor: np.ndarray
    inner: bool

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the solution, by iterative refinement."""
        out = self._solve(right)
        for _ in range(_REFINEMENTS):
            product = self.rows.values(self.rows.weights(out))
            out = out + self._solve(right - self.diagonal * out - product)
        return out

    def _solve(self, right: np.ndarray) -> np.ndarray:
        solve = ops_of(right).algebra.factor_solve
        if not self.inner:
            return solve(self.factor, right)
        # By the identity of Woodbury.
        scaled = right / self.diagonal
        inner = solve(self.factor, self.rows.weights(scaled))
        return scaled - self.rows.values(inner) / self.diagonal
