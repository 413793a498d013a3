"""The point of a convex hull that is nearest to the origin.

With rows m_i = y_i z_i of M,

    min ½‖Mᵀr‖²  subject to  1ᵀr = 1,  r ≥ 0,

has a solution whether or not the rows can be separated. Where p = Mᵀr is not 0, the
widest margin is ‖p‖ and its weights are p/‖p‖² (Keerthi et al. 2000, "A fast iterative
nearest point algorithm for support vector machine classifier design"); where it is 0, r
certifies that there is none. Solved by Mehrotra's predictor and corrector with dense
linear algebra, as :mod:`randkern.models._margin_interior`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.models._feature_rows import FeatureRows
from randkern.models._margin_interior import SignedRows, reach

__all__ = ["NearestPoint", "nearest_point"]

_MOST_STEPS = 200
_SHARE = 0.995
_STALLED = 5
# The relative gap to stop at, and the length (of the longest row's) below which the
# origin is in the hull.
_TOLERANCE = 1e-12
_VANISHING = 1e-9
# Shares, of the largest, of rows that do not matter; how many rows may, for equations.
_NEGLIGIBLE = 1e-6
_MOST_ROWS = 2000


@dataclass(frozen=True)
class NearestPoint:
    """A convex combination of rows.

    Attributes
    ----------
    shares : ndarray of shape (n,)
        r, non-negative numbers of sum 1.
    point : ndarray of shape (width,)
        Mᵀr.
    longest : float
        The length of the longest row.
    """

    shares: np.ndarray
    point: np.ndarray
    longest: float


@dataclass(frozen=True)
class _Point:
    """Variables, their multipliers and that of the sum."""

    r: np.ndarray
    s: np.ndarray
    level: float

    def moved(self, by: _Point, length: float) -> _Point:
        return _Point(
            self.r + length * by.r,
            self.s + length * by.s,
            self.level + length * by.level,
        )

    def reach(self, by: _Point) -> float:
        return min(reach(self.r, by.r), reach(self.s, by.s))


def nearest_point(features: FeatureRows, signs: np.ndarray) -> NearestPoint:
    """Return the shortest convex combination of rows y_i z_i.

    Parameters
    ----------
    features : FeatureRows
    signs : ndarray of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.models._feature_rows import KeptFeatures
    >>> from randkern.models._nearest_point import nearest_point
    >>> Z = np.array([[1.0, 1.0], [1.0, -1.0], [-3.0, 0.0]])
    >>> found = nearest_point(KeptFeatures(Z), np.array([1.0, 1.0, -1.0]))
    >>> found.shares.round(6), abs(found.point).round(6)
    (array([0.5, 0.5, 0. ]), array([1., 0.]))
    """
    rows = SignedRows(features, signs)
    n = features.n_rows
    ones = ops_of(signs).ones(n, signs)
    at = best = _Point(ones / n, ones, 0.0)
    least, stalled = np.inf, 0
    for _ in range(_MOST_STEPS):
        point = rows.weights(at.r)
        values = rows.values(point)
        square = float(point @ point)
        gap = square - float(values.min())
        if gap < least:
            best, least, stalled = at, gap, 0
        else:
            stalled += 1
        if gap <= _TOLERANCE * square or square**0.5 <= _VANISHING:
            break
        if stalled > _STALLED:
            break
        try:
            at = _next(rows, at, values)
        except np.linalg.LinAlgError:
            break
    longest = rows.square**0.5
    found = [best.r / best.r.sum()]
    exact = _on_face(features, signs, found[0])
    if exact is not None:
        found.append(exact)
    points = [rows.weights(shares) for shares in found]
    gaps = [float(p @ p) - float(rows.values(p).min()) for p in points]
    best_one = gaps.index(min(gaps))
    return NearestPoint(found[best_one], longest * points[best_one], longest)


def _on_face(
    features: FeatureRows, signs: np.ndarray, shares: np.ndarray
) -> np.ndarray | None:
    """Return the shortest combination of the rows that matter, by equations.

    None where these leave no solution of positive shares.
    """
    ops = ops_of(signs)
    face = ops.flatnonzero(shares > _NEGLIGIBLE * shares.max())
    while 0 < len(face) <= _MOST_ROWS:
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


def _next(rows: SignedRows, at: _Point, values: np.ndarray) -> _Point:
    """Return where a predictor and a corrector lead."""
    residual = values - at.level - at.s
    solver = rows.factorise(at.s / at.r)
    along = solver.solve(ops_of(at.r).ones(len(at.r), at.r))
    missing = 1.0 - float(at.r.sum())

    def step(products: np.ndarray) -> _Point:
        """Return the change by which r·s changes by `products`, to first order."""
        free = solver.solve(products / at.r - residual)
        level = (missing - float(free.sum())) / float(along.sum())
        change = free + level * along
        return _Point(change, (products - at.s * change) / at.r, level)

    product = float(at.r @ at.s)
    ahead = step(-at.r * at.s)
    after = at.moved(ahead, min(1.0, at.reach(ahead)))
    centre = (float(after.r @ after.s) / product) ** 3 * product / len(at.r)
    ahead = step(centre - at.r * at.s - ahead.r * ahead.s)
    return at.moved(ahead, min(1.0, _SHARE * at.reach(ahead)))
