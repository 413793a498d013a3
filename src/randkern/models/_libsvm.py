"""Support vector machines on an exact Gram matrix, by LIBSVM through scikit-learn."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from randkern._warnings import warn

# LIBSVM stops at a violation of the conditions of optimality: the first, the factor to
# the next if the duality gap is then too large, and the last.
_FIRST, _TIGHTER, _LAST = 1e-3, 0.01, 1e-12
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
        gram, y = gram[np.ix_(used, used)], y[used]
    limits, n = upper[used], max(len(used), 1)
    if epsilon is None and abs(y.sum()) == len(y):  # rows of one class
        sign = float(y[0]) if len(y) else 0.0
        return ExactMargin(0 * upper, sign, 0.0, 0.0, 0)
    options: dict[str, Any] = {
        "kernel": "precomputed",
        "C": 1.0,
        "cache_size": max(1, 4 * n**2 // _MEGABYTE),
        "max_iter": max_iter * n,
    }
    violation = min(_FIRST, 10 * tol)
    while True:
        if epsilon is None:
            model = SVC(tol=violation, **options)
        else:
            model = SVR(tol=violation, epsilon=epsilon, **options)
        model.fit(gram, y, limits)
        dual = np.zeros(n)
        dual[model.support_] = model.dual_coef_[0]
        values = gram @ dual
        square = float(dual @ values)
        missing = y - values - model.intercept_
        if epsilon is None:
            primal = 0.5 * square + float(limits @ (y * missing).clip(0.0))
            best = float(y @ dual) - 0.5 * square
        else:
            primal = 0.5 * square + float(limits @ (abs(missing) - epsilon).clip(0.0))
            best = float(y @ dual) - epsilon * float(abs(dual).sum()) - 0.5 * square
        gap = (primal - best) / (primal or 1.0)
        passes = math.ceil(int(np.max(model.n_iter_)) / n)
        if gap <= tol or violation <= _LAST or passes >= max_iter:
            break
        violation *= _TIGHTER
    if gap > tol and passes < max_iter:  # scikit-learn warns of max_iter
        warn(
            f"the duality gap is {gap:.2g} of the objective, above tol={tol:g}. LIBSVM "
            "stores kernel values in single precision; raise tol, lower C, or set "
            "fit_intercept=False.",
            ConvergenceWarning,
        )
    out = np.zeros(len(upper))
    out[used] = dual
    return ExactMargin(out, float(model.intercept_[0]), square, gap, passes)
