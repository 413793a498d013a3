"""Hard margins: the quadratic programme on the rows that matter.

    min ½‖w‖²  subject to  y_i w·z_i ≥ 1,

by its dual min ½aᵀQa − 1ᵀa, a ≥ 0, Q_ij = y_i y_j z_i·z_j, on a growing set of rows:
those that violate the constraints are added until none is left. The dual is unbounded
along a ray a with Qa = 0 exactly where the rows cannot be separated.

Tensors take the nearest point of the hull of all rows instead, by dense linear algebra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend.namespace import ops_of
from randkern.exceptions import NotSeparableError
from randkern.models._feature_rows import FeatureRows
from randkern.models._nearest_point import nearest_point

__all__ = ["HardMargin", "separate"]

_FIRST_ROWS = 200
_ADDED_ROWS = 100
# Dual variables below this share of the largest belong to rows that do not matter.
_NEGLIGIBLE = 1e-9
_ON_MARGIN = 1e-6
# Constraints may be violated by this much.
_VIOLATION = 1e-7
# What is left of a ray of the dual, relative to the longest row.
_RAY = 1e-6
# What margins may lack of 1, before weights are made longer by as much.
_GAP = 1e-2


@dataclass(frozen=True)
class HardMargin:
    """The widest margin between two classes.

    Attributes
    ----------
    weights : ndarray of shape (width,)
    alpha : ndarray of shape (n,)
        Dual variables.
    gap : float
        ½‖w‖² less the value of the dual, relative to it.
    """

    weights: np.ndarray
    alpha: np.ndarray
    gap: float


def separate(
    features: FeatureRows,
    signs: np.ndarray,
    usable: np.ndarray,
    stream: Stream,
    name: str,
) -> HardMargin:
    """Return the widest margin between rows of sign 1 and of sign −1.

    Parameters
    ----------
    features : FeatureRows
    signs : ndarray of shape (n,)
    usable : ndarray of bool, shape (n,)
        Which rows take part.
    stream : Stream
        Of the first rows.
    name : str
        What is separated, to begin an error.

    Raises
    ------
    randkern.exceptions.NotSeparableError
        With a certificate.
    """
    if is_tensor(signs):
        return _separate_all(features, signs, usable, name)
    generator = stream.generator()
    rows = np.flatnonzero(usable)
    if len(rows) > _FIRST_ROWS:
        rows = np.sort(generator.choice(rows, _FIRST_ROWS, replace=False))
    violation = np.inf
    while True:
        Z = features.take(rows).astype(np.float64) * signs[rows, None]
        a = _solve(Z, rows, len(signs), name)
        a = _polished(np.where(a < _NEGLIGIBLE * a.max(), 0.0, a), Z)
        weights = a @ Z
        missing = 1 - signs * _scores(features, weights)
        missing[~usable] = -np.inf
        violation = float(missing.max())
        worst = np.argsort(-missing, kind="stable")[:_ADDED_ROWS]
        added = np.setdiff1d(worst[missing[worst] > _VIOLATION], rows)
        if len(added) == 0:
            break
        # The optimum moves on with every violated row, so that dropping those without
        # weight cannot lead in circles; if they are needed later, they come back.
        rows = np.sort(np.concatenate([rows[a > 0], added]))
    alpha = np.zeros(len(signs))
    alpha[rows] = a
    return _margin(a @ Z, a, alpha, violation)


def _separate_all(
    features: FeatureRows, signs: np.ndarray, usable: np.ndarray, name: str
) -> HardMargin:
    """Return the widest margin, from all rows at once."""
    ops = ops_of(signs)
    rows = ops.flatnonzero(usable)
    if len(rows) < len(signs):
        features, signs = features.part(rows), signs[rows]
    nearest = nearest_point(features, signs)
    square = float(nearest.point @ nearest.point)
    longest = nearest.longest
    shares, alpha = nearest.shares, ops.zeros(len(usable), signs)
    if square**0.5 <= _RAY * longest:
        raise _error(shares, square**0.5 / longest, rows, alpha, name)
    a, weights = shares / square, nearest.point / square
    missing = float((1 - signs * _scores(features, weights)).max())
    if missing > _GAP:
        raise _unsolved(name, f"a margin of {1 - missing:.2g} instead of 1")
    alpha[rows] = ops.elementwise.where(a < _NEGLIGIBLE * a.max(), 0.0, a)
    return _margin(weights, a, alpha, missing)


def _margin(
    weights: np.ndarray, a: np.ndarray, alpha: np.ndarray, violation: float
) -> HardMargin:
    """Return the margin of weights that dual variables a make."""
    dual = float(a.sum()) - 0.5 * float(weights @ weights)
    # Constraints hold exactly once w is as much longer.
    weights = weights / (1 - max(violation, 0.0))
    primal = 0.5 * float(weights @ weights)
    return HardMargin(weights, alpha, (primal - dual) / primal)


def _scores(features: FeatureRows, weights: np.ndarray) -> np.ndarray:
    """Return w·z for every row."""
    ops = ops_of(weights)
    out = ops.zeros(features.n_rows, weights)
    size = ops.largest(abs(weights)) or 1.0
    for part, Z in features.blocks():
        right = ops.asarray(weights[None] / size, Z)
        out[part] = size * ops.algebra.thin_product(Z, right)[:, 0]
    return out


def _solve(Z: np.ndarray, rows: np.ndarray, n: int, name: str) -> np.ndarray:
    """Return the dual variables of rows Z, which are multiplied by their signs."""
    clarabel: Any = import_extra("clarabel", "the hard margin (C=inf)", "svm")
    longest = float(np.sqrt(np.max(np.einsum("ij,ij->i", Z, Z), initial=0.0)))
    if longest == 0:
        ray = np.full(len(rows), 1 / len(rows))
        raise _error(ray, 0.0, rows, np.zeros(n), name)
    Z = Z / longest
    m = len(Z)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = 1e-10
    settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(Z @ Z.T)),
        -np.ones(m),
        sp.csc_matrix(-sp.eye_array(m)),
        np.zeros(m),
        [clarabel.NonnegativeConeT(m)],
        settings,
    )
    solution = solver.solve()
    status = str(solution.status)
    a = np.maximum(np.array(solution.x), 0.0)
    ray = a / (float(a.sum()) or 1.0)
    solved = "Solved" in status
    if np.any(ray) and (not solved or np.linalg.norm(ray @ Z) <= _RAY):
        # What makes the solver stop is not the shortest there is.
        rays = [found for found in (_shortest(Z), ray) if np.any(found)]
        ray = min(rays, key=lambda found: float(np.linalg.norm(found @ Z)))
        residual = float(np.linalg.norm(ray @ Z))
        if residual <= _RAY:
            raise _error(ray, residual, rows, np.zeros(n), name)
    if not solved:
        raise _unsolved(name, status)
    return a / longest**2


def _shortest(Z: np.ndarray) -> np.ndarray:
    """Return non-negative numbers of sum 1 whose combination of rows is shortest.

    Zeros where there are none of a positive sum: an active-set method (Lawson and
    Hanson 1974, chapter 23) on Zᵀa = 0 and 1ᵀa = 1.
    """
    triangle = scipy.linalg.qr(Z.T, mode="r", check_finite=False)[0]
    equations = np.vstack([triangle[: len(Z)], np.ones(len(Z))])
    right = np.append(np.zeros(len(equations) - 1), 1.0)
    try:
        a, _ = scipy.optimize.nnls(equations, right)
    except RuntimeError:  # too many steps
        return np.zeros(len(Z))
    return a / (float(a.sum()) or 1.0)


def _polished(a: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return dual variables that give the rows on the margin a margin of exactly 1.

    Those of the interior-point method where they are not better.
    """
    tight = np.flatnonzero(a > _ON_MARGIN * a.max())
    Q = Z[tight] @ Z[tight].T
    exact, *_ = scipy.linalg.lstsq(Q, np.ones(len(tight)))
    if exact.min() < 0:
        return a
    better = np.zeros(len(a))
    better[tight] = exact
    missing = [1 - float(np.min(Z @ (x @ Z))) for x in (a, better)]
    return better if missing[1] <= missing[0] else a


def _unsolved(name: str, detail: str) -> RuntimeError:
    return RuntimeError(
        f"{name}: the quadratic programme ended without a solution ({detail}): "
        "the margin is too narrow to be told from none; use a finite C."
    )


def _error(
    ray: np.ndarray,
    residual: float,
    rows: np.ndarray,
    certificate: np.ndarray,
    name: str,
) -> NotSeparableError:
    """Return the error of a ray of some rows; `certificate` holds zeros for all."""
    large = int((ray > 1e-9).sum())
    error = NotSeparableError(
        f"{name}: the rows cannot be separated in the space of features. Non-negative "
        f"numbers of sum 1 (`certificate` of this error, {large}"
        f" of them above 1e-9) make Σ a_i y_i φ(x_i) vanish to {residual:.1g} of the "
        "longest φ(x_i). Use a finite C, more components, or a shorter lengthscale."
    )
    certificate[rows] = ray
    error.certificate = certificate
    error.residual = residual
    return error
