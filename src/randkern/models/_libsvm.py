"""Support vector machines on an exact Gram matrix, by LIBSVM through scikit-learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning

from randkern._warnings import warn

# LIBSVM stops at a violation of the conditions of optimality, first at this multiple of
# the tolerance, then at one smaller by a factor. It starts anew: few fits should do.
_FIRST_VIOLATION = 5.0
_VIOLATION_FACTOR = 0.1
# The largest number of weights within their bounds that are solved for.
_MAX_FREE = 5000
# Added to the diagonal of their system, in units of its mean: rows may be equal.
_JITTER = 1e-10
# How often free weights may be fixed at bounds that they would exceed.
_MAX_ROUNDS = 10
_MEGABYTE = 2**20


class ExactMargin(NamedTuple):
    """Weights of rows (n,), the intercept, ‖w‖², the relative gap, and passes."""

    dual: np.ndarray
    intercept: float
    square: float
    gap: float
    n_iter: int


def fit_margin(
    gram: np.ndarray,
    y: np.ndarray,
    upper: np.ndarray,
    tol: float,
    max_iter: int,
    epsilon: float | None = None,
) -> ExactMargin:
    """Return the margin between rows of sign 1 and −1, to a relative gap of `tol`.

    The dual variables are at most `upper`, (n,). With `epsilon`, `y` holds targets, and
    the tube of regression is fitted. At most `max_iter` times n iterations are run.
    """
    used = np.flatnonzero(upper)
    if len(used) < len(upper):
        gram = gram[np.ix_(used, used)]
        y = y[used]
    limits = upper[used]
    n = max(len(used), 1)
    if epsilon is None and abs(y.sum()) == len(y):  # rows of one class
        return ExactMargin(0 * upper, float(y[:1].sum()), 0.0, 0.0, 0)
    violation = _FIRST_VIOLATION * tol
    while True:
        model = _fit_libsvm(gram, y, limits, violation, max_iter * n, epsilon)
        dual = np.zeros(n)
        intercept = float(model.intercept_[0])
        dual[model.support_] = model.dual_coef_[0]
        gap, primal, square = _measure(gram, y, limits, dual, intercept, epsilon)
        # Violations explain a gap of about v Σ|a_i|, rounding errors the rest.
        is_rounded = gap * primal > violation * abs(dual).sum()
        polished = _polish(gram, y, limits, dual, epsilon or 0.0)
        if polished is not None:
            polished_gap, _, polished_square = _measure(
                gram, y, limits, polished[0], polished[1], epsilon
            )
            if polished_gap < gap:
                dual, intercept = polished
                gap, square = polished_gap, polished_square
        passes = math.ceil(int(np.max(model.n_iter_)) / n)
        if gap <= tol or is_rounded or passes >= max_iter:
            break
        violation *= _VIOLATION_FACTOR
    if gap > tol and passes < max_iter:  # scikit-learn warns of max_iter
        advice = "raise tol or lower C"
        if epsilon is None:
            advice = "raise tol, lower C, or use fit_intercept=False"
        warn(
            f"the duality gap is {gap:.2g} of the objective, above tol={tol:g}. LIBSVM "
            "stores kernel values in single precision, which limits the accuracy at a "
            f"large C; {advice}.",
            ConvergenceWarning,
        )
    out = np.zeros(len(upper))
    out[used] = dual
    return ExactMargin(out, intercept, square, gap, passes)


def _fit_libsvm(
    gram: np.ndarray,
    y: np.ndarray,
    limits: np.ndarray,
    violation: float,
    max_iter: int,
    epsilon: float | None,
) -> Any:
    """Return scikit-learn's machine, fitted until conditions of optimality nearly hold.

    Raises a ValueError that names what overflows.
    """
    from sklearn.svm import SVC, SVR

    machine: Any = SVC if epsilon is None else partial(SVR, epsilon=epsilon)
    model = machine(
        kernel="precomputed",
        C=1.0,
        tol=violation,
        cache_size=max(1, 4 * len(gram) ** 2 // _MEGABYTE),
        max_iter=max_iter,
    )
    try:
        return model.fit(gram, y, limits)
    except ValueError as error:
        raise ValueError(
            f"k(x, x) up to {gram.max():.3g} and C times sample_weight up to "
            f"{limits.max():.3g} overflow; scale the input down, or lower C."
        ) from error


def _measure(
    gram: np.ndarray,
    y: np.ndarray,
    limits: np.ndarray,
    dual: np.ndarray,
    intercept: float,
    epsilon: float | None,
) -> tuple[float, float, float]:
    """Return the relative duality gap, the objective, and ‖w‖²."""
    values = gram @ dual
    square = float(dual @ values)
    missing = y - values - intercept
    best = float(y @ dual) - 0.5 * square
    if epsilon is None:
        slack = (y * missing).clip(0.0)
    else:
        slack = (abs(missing) - epsilon).clip(0.0)
        best -= epsilon * float(abs(dual).sum())
    primal = 0.5 * square + float(limits @ slack)
    return (primal - best) / (primal or 1.0), primal, square


def _polish(
    gram: np.ndarray,
    y: np.ndarray,
    limits: np.ndarray,
    dual: np.ndarray,
    tube: float,
) -> tuple[np.ndarray, float] | None:
    """Return the optimum if the rows of its free weights are these, and its intercept.

    Free rows, whose weights are within their bounds, lie on the margin or the edge of
    the tube: with f = Ka + b, f_i = y_i − ε sign(a_i), and Σ_i a_i = 0. Weights that
    would exceed their bounds are fixed there. None if too many are free, or none.
    """
    free = np.flatnonzero((dual != 0) & (abs(dual) < limits))
    out = dual.copy()
    for _ in range(_MAX_ROUNDS):
        if not 0 < len(free) <= _MAX_FREE:
            return None
        sign = np.sign(dual[free])
        out[free] = 0.0
        target = y[free] - tube * sign - (gram @ out)[free]
        part = gram[np.ix_(free, free)]
        part[np.diag_indices_from(part)] += _JITTER * part.trace() / len(free)
        try:
            factor = cho_factor(part, overwrite_a=True)
        except np.linalg.LinAlgError:
            return None
        right = np.stack([target, 0 * target + 1.0], axis=1)
        along, shared = cho_solve(factor, right).T
        intercept = float((along.sum() + out.sum()) / shared.sum())
        size = sign * (along - intercept * shared)
        out[free] = sign * size.clip(0.0, limits[free])
        is_free = (size >= 0) & (size <= limits[free])
        if is_free.all():
            return out, intercept
        free = free[is_free]
    return None
