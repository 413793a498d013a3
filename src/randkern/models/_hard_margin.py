"""Hard margins: the point of a convex hull with minimum norm, or a certificate.

    min ½‖w‖²  subject to  y_i w·z_i ≥ 1.

The point p of the convex hull of the rows y_i z_i that is nearest to the origin gives
the solution w = p/‖p‖²; if it is the origin, its coefficients certify that no w exists.
It is found by non-negative least squares (Lawson and Hanson 1974, chapter 23, problem
LDP) on the rows themselves, because products of rows lose all digits of a margin of
1e-8 of the longest row. The set of rows grows: those that violate the constraints are
added until none is left. It is found on the host, whatever device has the features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import warn
from randkern.backend.blas import one_thread_if_short
from randkern.backend.namespace import ops_of
from randkern.exceptions import NarrowMarginError, NotSeparableError
from randkern.models.feature_matrix import (
    FeatureMatrix,
    GramFactor,
    longest_row,
    scores_of,
)

_FIRST_ROWS = 200
# The rounding errors of a score, in units of the precision and of |w||z|.
_ROUNDING = 16.0
# The norm of a combination of rows, relative to the longest, that is 0 up to rounding
# errors.
_RAY = 2e-14
# A gap that is worth a warning.
_LARGE_GAP = 1e-6


class HardMargin(NamedTuple):
    """Weights (width,), dual variables (n,), and the gap, relative to ½‖w‖²."""

    weights: np.ndarray
    alpha: np.ndarray
    gap: float


def separate(
    features: FeatureMatrix,
    signs: np.ndarray,
    usable: np.ndarray,
    stream: Stream,
    name: str,
) -> HardMargin:
    """Return the widest margin between usable rows of sign 1 and of sign −1.

    Features are float64; `name` names the problem at the beginning of errors.
    """
    like = features.like
    ops = ops_of(features.like)
    rows = np.flatnonzero(usable)
    if len(rows) > _FIRST_ROWS:
        sampled = stream.generator().choice(rows, _FIRST_ROWS, replace=False)
        rows = np.sort(sampled)
    # Predictions of the exact kernel use dual variables.
    dual = isinstance(features, GramFactor)
    error = _ROUNDING * ops.precision(features.dtype)
    longest = longest_row(features)
    square, growing = 0.0, True
    for _ in range(500):
        Z = ops.to_host(features.take(rows)) * signs[rows, None]
        alpha = np.zeros(len(signs))
        alpha[rows], weights, length = _solve(Z, dual)
        if length <= _RAY:
            raise _error(ops.float64_like(alpha, like), length, name)
        if not np.any(weights):
            detail = f"a combination of length {length:.1g} of the longest row"
            raise _narrow(name, detail)
        combination = alpha[rows] @ Z
        scores = scores_of(features, ops.float64_like(weights[None], like))
        scores = ops.to_host(scores)[:, 0]
        missing = np.where(usable, 1 - signs * scores, -np.inf)
        violation = float(missing.max())
        before = square
        square = float(weights @ weights)
        tolerance = max(1e-7, error * longest * square**0.5)
        worst = np.argsort(-missing, kind="stable")[:100]
        added = np.setdiff1d(worst[missing[worst] > tolerance], rows)
        if len(added) == 0:
            break
        # While every violated row changes the optimum, dropping rows without weight
        # cannot cause cycles; if they are needed later, they are added again. If the
        # squared norm of the weights hardly grows, rounding errors decide which rows
        # have weight.
        growing = growing and square > (1 + 1e-9) * before
        rows = np.union1d(rows[alpha[rows] > 0] if growing else rows, added)
    if violation > 1e-2:  # larger than what rescaling the weights should correct
        raise _narrow(name, f"a margin of {1 - violation:.2g} instead of 1")
    square = float(combination @ combination)
    margin = _margin(weights, alpha, square, violation)
    if margin.gap > _LARGE_GAP:
        warn(
            f"{name}: the duality gap of the hard margin is {margin.gap:.2g} of the "
            f"objective, above {_LARGE_GAP:g}: rounding errors prevent a "
            "smaller gap for so narrow a margin; use a finite C, more components, or "
            "a shorter lengthscale.",
            ConvergenceWarning,
        )
    return margin


def _margin(
    weights: np.ndarray, alpha: np.ndarray, square: float, violation: float
) -> HardMargin:
    """Return the rescaled margin; `square` is the squared norm of Σ α_i y_i z_i."""
    # Rescaling w makes all constraints hold; the dual variables are scaled alike.
    longer = 1 / (1 - max(violation, 0.0))
    weights, alpha = longer * weights, longer * alpha
    primal = 0.5 * float(weights @ weights)
    dual = float(alpha.sum()) - 0.5 * longer**2 * square
    return HardMargin(weights, alpha, (primal - dual) / primal)


def _solve(Z: np.ndarray, dual: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return dual variables and weights for rows Z multiplied by their signs.

    Also returns the norm of the shortest convex combination, relative to the longest
    row. With `dual`, the weights are the combination given by the variables. If there
    is no margin, the weights are zeros and the variables are the coefficients of the
    combination.

    The norm of a convex combination of rows is at least the margin of any weights of
    norm 1; both are equal at the optimum.
    """
    longest = float(np.einsum("ij,ij->i", Z, Z).max()) ** 0.5 or 1.0
    Z = Z / longest
    a = np.zeros(len(Z))
    weights = np.zeros(Z.shape[1])
    length = np.inf
    margin = -np.inf
    smallest_gap, unit = np.inf, 1.0
    # Least squares are repeated with rows in units of the last nearest point, until its
    # norm and the margin hardly differ.
    for _ in range(4):
        shares = _shortest(Z, unit)
        if not np.any(shares):
            break
        point = shares @ Z
        norm = float(np.linalg.norm(point))
        if norm <= _RAY:
            return shares, np.zeros(len(point)), norm
        candidate = point if dual else _repaired(Z, point / norm**2)
        reached = float(np.min(Z @ candidate)) / float(np.linalg.norm(candidate))
        if norm - reached < smallest_gap:
            a = shares
            weights = candidate
            length = norm
            margin = reached
            smallest_gap = norm - reached
        if smallest_gap <= 1e-8 * length or norm > 0.5 * unit:
            break
        unit = norm
    if margin <= _ROUNDING * np.finfo(float).eps:
        return a, np.zeros_like(weights), length
    # Scale so that the least margin is 1.
    size = margin * float(np.linalg.norm(weights)) * longest
    if dual:
        return a / (size * longest), weights / size, length
    return a / (length * longest) ** 2, weights / size, length


def _repaired(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return nearby weights with a margin of at least 1 for every row.

    Weights computed as sums of rows have an error of the precision divided by the
    squared margin; the shortest correction has the error of a much wider margin.
    """
    for _ in range(3):
        missing = 1 - Z @ weights
        largest = float(missing.max())
        if largest <= 1e-12:
            break
        near = missing > -1e3 * largest  # rows far above the margin take no part
        equations = np.vstack([Z[near].T, missing[near] / largest])
        right = np.append(np.zeros(Z.shape[1]), 1.0)
        try:
            coefficients, _ = scipy.optimize.nnls(equations, right)
        except RuntimeError:  # too many steps
            break
        residual = equations @ coefficients - right
        if not residual[-1] < 0:
            break
        weights = weights - (largest / residual[-1]) * residual[:-1]
    return weights


def _shortest(Z: np.ndarray, unit: float = 1.0) -> np.ndarray:
    """Return the coefficients of the shortest convex combination of rows.

    An active-set method on Zᵀa/unit = 0 and 1ᵀa = 1, accurate if `unit` is about the
    norm of that combination. Zeros if it fails.
    """
    with one_thread_if_short(2 * max(Z.shape) * min(Z.shape) ** 2):
        triangle = scipy.linalg.qr(Z.T, mode="r", check_finite=False)[0]
    equations = np.vstack([triangle[: len(Z)] / unit, np.ones(len(Z))])
    right = np.append(np.zeros(len(equations) - 1), 1.0)
    try:
        a, _ = scipy.optimize.nnls(equations, right, maxiter=30 * len(Z))
    except RuntimeError:  # too many steps
        return np.zeros(len(Z))
    return a / (float(a.sum()) or 1.0)


def _narrow(name: str, detail: str) -> NarrowMarginError:
    return NarrowMarginError(
        f"{name}: rounding errors hide whether there is a margin ({detail}). "
        "Use a finite C, more components, or a shorter lengthscale."
    )


def _error(certificate: Any, residual: float, name: str) -> NotSeparableError:
    """Return the error with a certificate, the coefficients of all rows."""
    large = int((certificate > 1e-9).sum())
    error = NotSeparableError(
        f"{name}: the rows cannot be separated in the space of features. Non-negative "
        f"numbers of sum 1 (`certificate` of this error, {large}"
        f" of them above 1e-9) make Σ a_i y_i φ(x_i) vanish to {residual:.1g} of the "
        "longest φ(x_i). Use a finite C, more components, or a shorter lengthscale."
    )
    error.certificate = certificate
    error.residual = residual
    return error
