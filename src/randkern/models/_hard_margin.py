"""Hard margins: the quadratic programme on the rows that matter.

    min ½‖w‖²  subject to  y_i w·z_i ≥ 1,

by its dual min ½aᵀQa − 1ᵀa, a ≥ 0, Q_ij = y_i y_j z_i·z_j, on a growing set of rows:
those that violate the constraints are added until none is left. The dual is unbounded
along a ray a with Qa = 0 exactly where the rows cannot be separated.

Q has the squares of lengths, and none of the digits of a margin of 1e-8 of the longest
row. Where the quadratic programme leaves a narrow margin inexact, the point of the hull
of the rows y_i z_i that is nearest to the origin is found from the rows themselves, by
non-negative least squares (Lawson and Hanson 1974, chapter 23, problem LDP).

Tensors take the nearest point of the hull of all rows instead, by dense linear algebra.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._tensors import is_tensor
from randkern.backend.blas_threads import one_thread_if_short
from randkern.backend.namespace import ops_of
from randkern.exceptions import NarrowMarginError, NotSeparableError
from randkern.models._feature_rows import FactorFeatures, FeatureRows
from randkern.models._nearest_point import nearest_point

__all__ = ["HardMargin", "separate", "separate_all"]

_FIRST_ROWS = 200
_ADDED_ROWS = 100
_MOST_ROUNDS = 500
# The square of the weights grows with every row that is added; where it grows by less
# than this share of itself, rounding errors decide which rows have weight.
_GROWTH = 1e-9
# Dual variables below this share of the largest belong to rows that do not matter.
_NEGLIGIBLE = 1e-9
_ON_MARGIN = 1e-6
# Margins may lack this much of 1, or what rounding errors of a score make, in units of
# the precision and of |w||z|.
_VIOLATION = 1e-7
_ROUNDING = 16.0
# What the margin of a programme may lack before it is found another way.
_INEXACT = 1e-8
# How often weights are mended, and which rows take part: those whose margins are above
# 1 by so many times what the worst lacks.
_MOST_REPAIRS = 3
_NEAR = 1e3
# A combination of rows, relative to the longest, that is 0 but for rounding errors: of
# sums in float64, and of what an interior-point method comes to on tensors.
_RAY = 2e-14
_INTERIOR_RAY = 1e-8
# Least squares with rows in units of the nearest point that the last ones have found.
_MOST_SCALES = 4
# What margins may lack of 1, before weights are made longer by as much.
_GAP = 1e-2
# A gap that is worth a warning.
_LARGE_GAP = 1e-6


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
    randkern.exceptions.NarrowMarginError
        If rounding errors hide whether there is a margin.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        If the gap is above 1e-6.
    """
    if is_tensor(signs):
        found = separate_all(features, signs, usable, name)
    else:
        found = _separate_growing(features, signs, usable, stream, name)
    if found.gap > _LARGE_GAP:
        warnings.warn(
            f"{name}: the duality gap of the hard margin is {found.gap:.2g} of the "
            f"objective, above {_LARGE_GAP:g}: rounding errors leave no more of so "
            "narrow a margin; use a finite C, more components, or a shorter "
            "lengthscale.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return found


def _separate_growing(
    features: FeatureRows,
    signs: np.ndarray,
    usable: np.ndarray,
    stream: Stream,
    name: str,
) -> HardMargin:
    """Return the widest margin, from a growing set of rows."""
    rows = np.flatnonzero(usable)
    if len(rows) > _FIRST_ROWS:
        chosen = stream.generator().choice(rows, _FIRST_ROWS, replace=False)
        rows = np.sort(chosen)
    square, growing = 0.0, True
    for _ in range(_MOST_ROUNDS):
        Z = features.take(rows).astype(np.float64) * signs[rows, None]
        # Predictions of the exact kernel are made of dual variables.
        dual = isinstance(features, FactorFeatures)
        a, weights = _solve(Z, dual, rows, len(signs), name)
        alpha = np.zeros(len(signs))
        alpha[rows] = a
        made = a @ Z
        missing = 1 - signs * _scores(features, weights)
        missing[~usable] = -np.inf
        violation = float(missing.max())
        before, square = square, float(weights @ weights)
        tolerance = max(_VIOLATION, _rounding(features, Z) * square**0.5)
        worst = np.argsort(-missing, kind="stable")[:_ADDED_ROWS]
        added = np.setdiff1d(worst[missing[worst] > tolerance], rows)
        if len(added) == 0:
            break
        # While the optimum moves on with every violated row, dropping those without
        # weight cannot lead in circles; if they are needed later, they come back.
        growing = growing and square > (1 + _GROWTH) * before
        rows = np.union1d(rows[a > 0] if growing else rows, added)
    if violation > _GAP:
        raise _narrow(name, f"a margin of {1 - violation:.2g} instead of 1")
    return _margin(weights, alpha, float(made @ made), violation)


def _rounding(features: FeatureRows, Z: np.ndarray) -> float:
    """Return the error of a score of these rows for weights of length 1."""
    longest = float(np.einsum("ij,ij->i", Z, Z).max()) ** 0.5
    return _ROUNDING * ops_of(Z).precision(features.dtype) * longest


def separate_all(
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
    a, weights = shares / (square or 1.0), nearest.point / (square or 1.0)
    missing = float((1 - signs * _scores(features, weights)).max())
    if missing > _GAP:
        residual = square**0.5 / longest
        if residual <= _INTERIOR_RAY:
            raise _error(shares, residual, rows, alpha, name)
        raise _narrow(name, f"a margin of {1 - missing:.2g} instead of 1")
    alpha[rows] = ops.elementwise.where(a < _NEGLIGIBLE * a.max(), 0.0, a)
    return _margin(weights, alpha, float(weights @ weights), missing)


def _margin(
    weights: np.ndarray, alpha: np.ndarray, square: float, violation: float
) -> HardMargin:
    """Return the margin of weights, and of variables whose own have this square."""
    # Constraints hold exactly once w is as much longer; its variables are too.
    longer = 1 / (1 - max(violation, 0.0))
    weights, alpha = longer * weights, longer * alpha
    primal = 0.5 * float(weights @ weights)
    dual = float(alpha.sum()) - 0.5 * longer**2 * square
    return HardMargin(weights, alpha, (primal - dual) / primal)


def _scores(features: FeatureRows, weights: np.ndarray) -> np.ndarray:
    """Return w·z for every row."""
    ops = ops_of(weights)
    out = ops.zeros(features.n_rows, weights)
    size = ops.largest(abs(weights)) or 1.0
    for part, Z in features.blocks():
        right = ops.asarray(weights[None] / size, Z)
        out[part] = size * ops.thin.multiply(Z, right)[:, 0]
    return out


def _solve(
    Z: np.ndarray, dual: bool, rows: np.ndarray, n: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return dual variables and weights of rows Z, multiplied by their signs.

    Where `dual`, the weights are those that the variables make.

    The length of a convex combination of rows is at least the widest margin, what
    weights of length 1 leave of every row at most: the two meet at the optimum.
    """
    longest = float(np.einsum("ij,ij->i", Z, Z).max(initial=0.0)) ** 0.5
    if longest == 0:
        ray = np.full(len(rows), 1 / len(rows))
        raise _error(ray, 0.0, rows, np.zeros(n), name)
    Z = Z / longest
    best, length = np.zeros(len(Z)), np.inf
    found, chosen, margin = np.zeros(Z.shape[1]), best, -np.inf
    for shares, weights in _candidates(Z):
        here = float(np.linalg.norm(shares @ Z))
        if here < length:
            best, length = shares, here
        weights = shares @ Z if dual else weights
        size = float(np.linalg.norm(weights))
        least = float(np.min(Z @ weights)) / size if size > 0 else -np.inf
        if least > margin:
            found, chosen, margin = weights, shares, least
        if length - margin <= _INEXACT * length:
            break
    if margin > _ROUNDING * np.finfo(float).eps:
        unit = float(np.linalg.norm(found)) * margin * longest
        if dual:
            return chosen / (unit * longest), found / unit
        return best / (length * longest) ** 2, found / unit
    if length <= _RAY:
        raise _error(best, length, rows, np.zeros(n), name)
    raise _narrow(name, f"a combination of length {length:.1g} of the longest row")


def _candidates(Z: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield shares of rows and weights, from the cheapest to the most exact."""
    shares = _by_programme(Z)
    if np.any(shares):
        shares = np.where(shares < _NEGLIGIBLE * shares.max(), 0.0, shares)
        yield shares, shares @ Z
        yield from _on_margin(Z, shares)
    unit = 1.0
    for _ in range(_MOST_SCALES):
        shares = _shortest(Z, unit)
        if not np.any(shares):
            return
        point = shares @ Z
        length = float(np.linalg.norm(point))
        yield shares, point
        if length <= _RAY:
            return
        yield shares, _repaired(Z, point / length**2)
        if length > 0.5 * unit:
            return
        unit = length


def _by_programme(Z: np.ndarray) -> np.ndarray:
    """Return shares by the quadratic programme, zeros where it finds none."""
    clarabel: Any = import_extra("clarabel", "the hard margin (C=inf)", "svm")
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
    a = np.maximum(np.array(solver.solve().x), 0.0)
    total = float(a.sum())
    return a / total if 0 < total < np.inf else np.zeros(m)


def _on_margin(
    Z: np.ndarray, shares: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield shares and weights that give the rows of large shares margins of 1.

    By the equations of their products, then from the rows themselves.
    """
    face = np.flatnonzero(shares > _ON_MARGIN * shares.max())
    M, ones = Z[face], np.ones(len(face))
    with one_thread_if_short(4 * len(M) ** 3):
        exact, *_ = scipy.linalg.lstsq(M @ M.T, ones)
    if exact.min() >= 0 and exact.max() > 0:
        shares = np.zeros(len(Z))
        shares[face] = exact / exact.sum()
        yield shares, shares @ Z
    with one_thread_if_short(2 * max(M.shape) * min(M.shape) ** 2):
        weights, *_ = scipy.linalg.lstsq(M, ones, lapack_driver="gelsy")
    yield shares, weights
    yield shares, _repaired(Z, weights)


def _repaired(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weights nearby that leave every row a margin of 1.

    Weights that sums of rows make have errors of the precision divided by the square of
    the margin; the shortest change that mends them has those of a much wider one.
    """
    for _ in range(_MOST_REPAIRS):
        missing = 1 - Z @ weights
        most = float(missing.max())
        if most <= np.finfo(float).eps * float(np.linalg.norm(weights)):
            break
        near = missing > -_NEAR * most
        equations = np.vstack([Z[near].T, missing[near] / most])
        right = np.append(np.zeros(Z.shape[1]), 1.0)
        try:
            found, _ = scipy.optimize.nnls(equations, right)
        except RuntimeError:  # too many steps
            break
        residual = equations @ found - right
        if not residual[-1] < 0:
            break
        weights = weights - (most / residual[-1]) * residual[:-1]
    return weights


def _shortest(Z: np.ndarray, unit: float = 1.0) -> np.ndarray:
    """Return non-negative numbers of sum 1 whose combination of rows is shortest.

    Zeros where there are none of a positive sum: an active-set method on Zᵀa/unit = 0
    and 1ᵀa = 1, exact where `unit` is about the length of that combination.
    """
    with one_thread_if_short(2 * max(Z.shape) * min(Z.shape) ** 2):
        triangle = scipy.linalg.qr(Z.T, mode="r", check_finite=False)[0]
    equations = np.vstack([triangle[: len(Z)] / unit, np.ones(len(Z))])
    right = np.append(np.zeros(len(equations) - 1), 1.0)
    try:
        a, _ = scipy.optimize.nnls(equations, right)
    except RuntimeError:  # too many steps
        return np.zeros(len(Z))
    return a / (float(a.sum()) or 1.0)


def _narrow(name: str, detail: str) -> NarrowMarginError:
    return NarrowMarginError(
        f"{name}: rounding errors hide whether there is a margin ({detail}): it is too "
        "narrow to tell. Use a finite C, more components, or a shorter lengthscale."
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
