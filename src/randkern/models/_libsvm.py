"""Margins on an exact Gram matrix, by LIBSVM through scikit-learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning

from randkern._warnings import warn
from randkern.models._margin import Margins, Solution, balanced
from randkern.models.callbacks import FitReport

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


def solve_by_libsvm(
    gram: np.ndarray, problem: Margins, tol: float, max_iter: int, report: FitReport
) -> tuple[Solution, int]:
    """Return the solution on a Gram matrix, to a relative gap of `tol`, and passes.

    The problem has no features. At most `max_iter` times n iterations are run.
    """
    alpha = np.zeros(problem.targets.shape)
    n_passes = 0
    for t in range(alpha.shape[1]):
        alpha[:, t], passes = _solve_column(gram, problem.column(t), tol, max_iter)
        n_passes = max(n_passes, passes)
        if report.step(t + 1, None, "class"):
            break
    return _measured(gram, problem, alpha), n_passes


def _measured(gram: np.ndarray, problem: Margins, alpha: np.ndarray) -> Solution:
    """Return the solution of dual variables (n, k), whose sums are made 0."""
    alpha = balanced(alpha, problem.lower, problem.upper, problem.tube)
    scores = gram @ alpha
    return problem.measured(alpha, None, scores, (alpha * scores).sum(axis=0))


def _solve_column(
    gram: np.ndarray, problem: Margins, tol: float, max_iter: int
) -> tuple[np.ndarray, int]:
    """Return the dual variables of a single column, (n,), and passes over the rows."""
    best = problem.constants()
    if best.gap[0] <= tol:  # such as rows of one class
        return best.alpha[:, 0], 0
    violation = _FIRST_VIOLATION * tol
    while True:
        alpha, n_iterations = _fit_libsvm(gram, problem, violation, max_iter)
        found = _measured(gram, problem, alpha[:, None])
        # Violations explain a gap of about v Σ|a_i|, rounding errors the rest.
        explained = violation * float(abs(alpha).sum())
        is_rounded = bool(found.gap * found.size > explained)
        if found.gap[0] > tol:
            optimum = _polished(gram, problem, found.alpha[:, 0])
            if optimum is not None:
                polished = _measured(gram, problem, optimum[:, None])
                found = polished if polished.gap < found.gap else found
        best = found if found.gap < best.gap else best
        passes = math.ceil(n_iterations / len(gram))
        if best.gap[0] <= tol or is_rounded or passes >= max_iter:
            break
        violation *= _VIOLATION_FACTOR
    if best.gap[0] > tol and passes < max_iter:  # scikit-learn warns of max_iter
        warn(
            f"the duality gap is {float(best.gap[0]):.2g} of the objective, above "
            f"tol={tol:g}. LIBSVM stores kernel values in single precision, which "
            "limits the accuracy at a large C; raise tol or lower C (for classifiers, "
            "fit_intercept=False uses another solver).",
            ConvergenceWarning,
        )
    return best.alpha[:, 0], passes


def _fit_libsvm(
    gram: np.ndarray, problem: Margins, violation: float, max_iter: int
) -> tuple[np.ndarray, int]:
    """Return dual variables whose conditions of optimality nearly hold, and iterations.

    Raises a ValueError that names what overflows.
    """
    from sklearn.svm import SVC, SVR

    lower, upper = problem.lower[:, 0], problem.upper[:, 0]
    costs = np.maximum(upper, -lower)
    used = np.flatnonzero(costs)
    if len(used) < len(costs):
        gram = gram[np.ix_(used, used)]
    has_two_sides = ((lower < 0) & (upper > 0)).any()
    machine: Any = partial(SVR, epsilon=problem.tube) if has_two_sides else SVC
    model = machine(
        kernel="precomputed",
        C=1.0,
        tol=violation,
        cache_size=max(1, 4 * len(gram) ** 2 // _MEGABYTE),
        max_iter=min(max_iter * len(gram), 2**31 - 1),  # a C int
    )
    try:
        model.fit(gram, problem.targets[used, 0], costs[used])
    except ValueError as error:
        raise ValueError(
            f"k(x, x) up to {gram.max():.3g} and C times sample_weight up to "
            f"{costs.max():.3g} overflow; scale the input down, or lower C."
        ) from error
    alpha = np.zeros(len(costs))
    alpha[used[model.support_]] = model.dual_coef_[0]
    return alpha, int(np.max(model.n_iter_))


def _polished(
    gram: np.ndarray, problem: Margins, alpha: np.ndarray
) -> np.ndarray | None:
    """Return the optimum if the rows of its free weights are these.

    Free rows, whose weights are within their bounds, lie on the margin or the edge of
    the tube: with f = Ka + b, f_i = t_i − ε sign(a_i), and Σ_i a_i = 0. Weights that
    would exceed their bounds are fixed there. None if too many are free, or none.
    """
    target = problem.targets[:, 0]
    lower, upper = problem.lower[:, 0], problem.upper[:, 0]
    free = np.flatnonzero((alpha != 0) & (alpha > lower) & (alpha < upper))
    out = alpha.copy()
    for _ in range(_MAX_ROUNDS):
        if not 0 < len(free) <= _MAX_FREE:
            return None
        sign = np.sign(alpha[free])
        out[free] = 0.0
        wanted = target[free] - problem.tube * sign - (gram @ out)[free]
        part = gram[np.ix_(free, free)]
        part[np.diag_indices_from(part)] += _JITTER * part.trace() / len(free)
        try:
            factor = cho_factor(part, overwrite_a=True)
        except np.linalg.LinAlgError:
            return None
        right = np.stack([wanted, 0 * wanted + 1.0], axis=1)
        along, shared = cho_solve(factor, right).T
        intercept = float((along.sum() + out.sum()) / shared.sum())
        values = along - intercept * shared
        # A weight does not change its sign.
        low = np.where(sign > 0, 0.0, lower[free])
        high = np.where(sign > 0, upper[free], 0.0)
        out[free] = values.clip(low, high)
        is_free = (values >= low) & (values <= high)
        if is_free.all():
            return out
        free = free[is_free]
    return None
