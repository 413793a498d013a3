"""An interior-point method for the duals of support vector machines.

With rows m_i = y_i z_i of M,

    min ½‖Mᵀa‖² − c 1ᵀa,  0 ≤ a ≤ U,

with c = 1 for soft margins; with c = 0, U = 2 and 1ᵀa = 1 for the point of the convex
hull of the rows with minimum norm. By Mehrotra's predictor and corrector (Nocedal &
Wright 2006, algorithm 16.4). Each step solves with Θ + MMᵀ, Θ diagonal, by a Cholesky
factorisation of it, n × n, or, where there are fewer features than rows, of the D × D
matrix I + MᵀΘ⁻¹M (Ferris & Munson 2002, "Interior-point methods for massive support
vector machines"). The number of steps hardly depends on U, that of passes of coordinate
descent grows with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.memory import INTERIOR_ROWS

__all__ = ["affordable", "min_norm_point", "solve_box"]

# Multiplications of a step for all problems together: seconds.
_OPERATIONS = 1e11
_MOST_STEPS = 100
# Corrections of a solution, in which the terms of Woodbury's identity cancel.
_REFINEMENTS = 1
# The share of the way to the nearest bound that a step goes.
_SHARE = 0.995
# So many steps that do not improve a gap below this: rounding errors are all that is
# left. Far from the solution it may grow for a while.
_STALLED = 3
_NEAR = 0.1
# Of the largest: variables below belong to rows that do not matter.
_NEGLIGIBLE = 1e-10
# A diagonal of Θ + MMᵀ, for each row, that rounding errors leave positive definite.
_LEAST_DIAGONAL = 4 * 2.0**-52
# The relative gap of a point of minimum norm, and the norm (of the longest row's) below
# which the origin is in the hull.
_HULL_TOLERANCE = 1e-12
_VANISHING = 1e-9
# Shares, of the largest, of rows that matter; how many may, for equations.
_ON_FACE = 1e-6
_MOST_ON_FACE = 2000


def affordable(n: int, width: int, n_problems: int) -> bool:
    """Tell whether a step for each problem is a matter of seconds."""
    side = float(min(n, width))
    return n_problems * (n * width * side + side**3) <= _OPERATIONS


def solve_box(
    features: FeatureMatrix, signs: np.ndarray, upper: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the dual variables of one soft margin.

    Parameters
    ----------
    features : FeatureMatrix
        Float32 or float64; products are formed in float64.
    signs : ndarray of shape (n,)
    upper : ndarray of shape (n,)
        Positive.
    tol : float
        The relative duality gap to stop at; it may end earlier, where rounding errors
        leave no more.

    Returns
    -------
    value : ndarray of shape (n,)
        The variables, of which those that end at their bounds are exactly there.
    inner : ndarray of shape (n,)
        What the last step has left, below the bounds.
    n_steps : int

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models.feature_matrix import FeatureArray
    >>> from randkern.models._interior_point import solve_box
    >>> Z, signs = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    >>> value, _, _ = solve_box(FeatureArray(Z), signs, np.full(2, 10.0), 1e-10)
    >>> value.round(6)
    array([1., 0.])
    """
    rows = _SignedRows(features, signs)
    where = rows.ops.xp.where
    bound = upper * rows.square

    def gap(a: np.ndarray, square: float, slope: np.ndarray) -> tuple[float, bool]:
        primal = 0.5 * square + float(bound @ (-slope).clip(0.0))
        gap = (primal - float(a.sum()) + 0.5 * square) / max(primal, 1e-300)
        return gap, gap <= tol

    start = (0.5 * bound).clip(max=1.0)
    best, n_steps = _minimise(rows, start, bound, 1.0, False, gap)
    a, room, low, high = best
    unit = bound.clip(max=1.0)
    inner = (a / rows.square).clip(max=upper)
    out = where(a < low * unit, 0.0, inner)
    out = where(room < high * unit, upper, out)
    inner = where(inner < _NEGLIGIBLE * inner.max(), 0.0, inner)
    return out, inner, n_steps


def min_norm_point(
    features: FeatureMatrix, signs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the shortest convex combination of rows y_i z_i.

    It exists whether or not the rows can be separated. Where it is not 0, the widest
    margin is its norm (Keerthi et al. 2000, "A fast iterative nearest point algorithm
    for support vector machine classifier design"); where it is 0, the shares certify
    that there is none.

    Parameters
    ----------
    features : FeatureMatrix
    signs : ndarray of shape (n,)

    Returns
    -------
    shares : ndarray of shape (n,)
        Non-negative numbers of sum 1.
    point : ndarray of shape (width,)
        The combination.
    longest : float
        The norm of the longest row.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models.feature_matrix import FeatureArray
    >>> from randkern.models._interior_point import min_norm_point
    >>> Z = np.array([[1.0, 1.0], [1.0, -1.0], [-3.0, 0.0]])
    >>> shares, point, _ = min_norm_point(
    ...     FeatureArray(Z), np.array([1.0, 1.0, -1.0])
    ... )
    >>> shares.round(6), abs(point).round(6)
    (array([0.5, 0.5, 0. ]), array([1., 0.]))
    """
    rows = _SignedRows(features, signs)

    def gap(a: np.ndarray, square: float, slope: np.ndarray) -> tuple[float, bool]:
        gap = square - float(slope.min())
        return gap, gap <= _HULL_TOLERANCE * square or square**0.5 <= _VANISHING

    ones = rows.ops.ones(features.n_rows, signs)
    # The bounds are never reached: a share is at most 1.
    best, _ = _minimise(rows, ones / len(ones), 2.0 * ones, 0.0, True, gap)
    found = [best[0] / best[0].sum()]
    exact = _on_face(features, signs, found[0])
    if exact is not None:
        found.append(exact)
    points = [rows.weights(shares) for shares in found]
    gaps = [gap(p, float(p @ p), rows.values(p))[0] for p in points]
    least = gaps.index(min(gaps))
    longest = rows.square**0.5
    return found[least], longest * points[least], longest


def _on_face(
    features: FeatureMatrix, signs: np.ndarray, shares: np.ndarray
) -> np.ndarray | None:
    """Return the shortest combination of the rows that matter, by equations.

    None where these leave no solution of positive shares.
    """
    ops = ops_of(signs)
    face = ops.flatnonzero(shares > _ON_FACE * shares.max())
    while 0 < len(face) <= _MOST_ON_FACE:
        Z = ops.as_float64(features.take(face)) * signs[face, None]
        n = len(face)
        system = ops.zeros((n + 1, n + 1), signs)
        system[:n, :n] = Z @ Z.T
        # Of the size of the other entries.
        size = float(system.diagonal().max()) or 1.0
        system[n, :n] = system[:n, n] = size
        right = ops.zeros(n + 1, signs)
        right[n] = size
        found = ops.algebra.shortest_solution(system, right)[:n]
        if found.min() >= 0:
            out = ops.zeros(len(shares), signs)
            out[face] = found / found.sum()
            return out
        face = face[found > 0]
    return None


def _minimise(
    rows: _SignedRows,
    start: np.ndarray,
    bound: np.ndarray,
    reward: float,
    shares: bool,
    gap_of: Callable[[np.ndarray, float, np.ndarray], tuple[float, bool]],
) -> tuple[np.ndarray, int]:
    """Return the point of the least gap, and the number of steps.

    Minimise ½‖Mᵀa‖² − reward 1ᵀa, and keep 1ᵀa where a is `shares`. A point has four
    rows: variables, their distances from the bounds (which are kept: U − a has no
    digits where U is large), and both multipliers. `gap_of` takes a, ‖Mᵀa‖² and the
    slope, and tells whether that gap is small enough.
    """
    weights = rows.weights(start)
    slope = rows.values(weights) - reward
    low, high = slope.clip(0.0) + 1.0, (-slope).clip(0.0) + 1.0
    at = best = _stacked(start, bound - start, low, high)
    level, least, stalled, n_steps = 0.0, np.inf, 0, 0
    while n_steps < _MOST_STEPS:
        n_steps += 1
        weights = rows.weights(at[0])
        slope = rows.values(weights) - reward
        gap, enough = gap_of(at[0], float(weights @ weights), slope)
        if gap < least:
            best, least, stalled = at, gap, 0
        elif least < _NEAR:
            stalled += 1
        if enough or stalled > _STALLED:
            break
        try:
            at, level = _next(rows, at, level, slope, shares)
        except np.linalg.LinAlgError:
            break
    return best, n_steps


def _next(
    rows: _SignedRows, at: np.ndarray, level: float, slope: np.ndarray, shares: bool
) -> tuple[np.ndarray, float]:
    """Return where a predictor and a corrector lead, and the multiplier of the sum."""
    a, room, low, high = at
    residual = slope - level - low + high
    solve = rows.factorise(low / a + high / room)
    along = solve(rows.ops.ones(len(a), a)) if shares else None

    def step(low_product: np.ndarray, high_product: np.ndarray) -> tuple:
        """Return the change by which the products change so, to first order."""
        change = solve(low_product / a - high_product / room - residual)
        rise = 0.0
        if along is not None:
            rise = float((1.0 - a.sum() - change.sum()) / along.sum())
            change = change + rise * along
        low_change = (low_product - low * change) / a
        high_change = (high_product + high * change) / room
        return _stacked(change, -change, low_change, high_change), rise

    by, _ = step(-a * low, -room * high)
    product = float(a @ low + room @ high)
    after = at + min(1.0, _reach(at, by)) * by
    centre = (float((after[:2] * after[2:]).sum()) / product) ** 3
    centre *= product / (2 * len(a))
    by, rise = step(
        centre - a * low - by[0] * by[2], centre - room * high - by[1] * by[3]
    )
    length = min(1.0, _SHARE * _reach(at, by))
    return at + length * by, level + length * rise


def _stacked(*parts: np.ndarray) -> np.ndarray:
    return ops_of(parts[0]).concatenate(parts).reshape(len(parts), -1)


def _reach(at: np.ndarray, by: np.ndarray) -> float:
    """Return how far positive numbers may move until one of them vanishes."""
    where = ops_of(at).xp.where
    decreasing = by < 0
    return float(where(decreasing, -at / where(decreasing, by, 1.0), np.inf).min())


class _SignedRows:
    """Rows y_i z_i of length at most 1, in blocks of float64."""

    def __init__(self, features: FeatureMatrix, signs: np.ndarray):
        self._features, self._signs = features, signs
        self.ops = ops = ops_of(signs)
        self.square = 1.0
        longest = max(ops.largest(ops.squared_norms(M)) for _, M in self._blocks())
        self.square = longest or 1.0
        self._products: np.ndarray | None = None

    def _blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        factors = self._signs / self.square**0.5
        for block in self._features.blocks():
            part, Z = block.rows, block.values
            for rows in row_blocks(len(Z), INTERIOR_ROWS):
                here = slice(part.start + rows.start, part.start + rows.stop)
                yield here, self.ops.as_float64(Z[rows]) * factors[here, None]

    def weights(self, a: np.ndarray) -> np.ndarray:
        """Return Mᵀa."""
        out = self.ops.zeros(self._features.width, a)
        for rows, M in self._blocks():
            out += a[rows] @ M
        return out

    def values(self, weights: np.ndarray) -> np.ndarray:
        """Return Mw."""
        out = self.ops.zeros(self._features.n_rows, weights)
        for rows, M in self._blocks():
            out[rows] = M @ weights
        return out

    def factorise(self, diagonal: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what solves with Θ + MMᵀ, for the diagonal of Θ."""
        width, algebra = self._features.width, self.ops.algebra
        smaller = self._features.n_rows > width
        if smaller:
            system = self.ops.zeros((width, width), diagonal)
            for rows, M in self._blocks():
                M /= (diagonal[rows] ** 0.5)[:, None]
                self.ops.add_gram(M, system)
            algebra.add_to_diagonal(system, 1.0)
        else:
            system = self.ops.copy(self._all_products())
            # Rows that repeat, within their bounds, would leave it singular.
            least = _LEAST_DIAGONAL * len(diagonal)
            algebra.add_to_diagonal(system, diagonal.clip(min=least))
        factor = algebra.lower_factor(system)

        def once(right: np.ndarray) -> np.ndarray:
            if not smaller:
                return algebra.factor_solve(factor, right)
            # By the identity of Woodbury.
            scaled = right / diagonal
            inner = algebra.factor_solve(factor, self.weights(scaled))
            return scaled - self.values(inner) / diagonal

        def solve(right: np.ndarray) -> np.ndarray:
            """Return the solution, by iterative refinement."""
            out = once(right)
            for _ in range(_REFINEMENTS):
                product = self.values(self.weights(out))
                out = out + once(right - diagonal * out - product)
            return out

        return solve

    def _all_products(self) -> np.ndarray:
        """Return MMᵀ, computed once."""
        if self._products is None:
            n = self._features.n_rows
            self._products = self.ops.zeros((n, n), self._signs)
            for rows, M in self._blocks():
                for others, N in self._blocks():
                    self._products[rows, others] = M @ N.T
        return self._products
