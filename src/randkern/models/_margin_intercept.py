"""Margins with an intercept that is not penalised, by Newton's method.

With targets t_i and features z_i, and losses whose slopes are bounded,

    min ½‖w‖² + Σ_i [u_i max(0, r_i) − l_i max(0, −r_i)],  r_i = t_i − b − w·z_i,

where l_i ≤ 0 ≤ u_i. Its dual has variables between these bounds,

    max Σ_i a_i t_i − ½‖w‖²,  w = Σ_i a_i z_i,  Σ_i a_i = 0.

Support vector machines have t_i = y_i = ±1, and a_i = y_i α_i between 0 and y_i U_i;
quantiles τ have a_i between (τ − 1) C_i and τ C_i.

The intercept makes Σ_i a_i = 0 a constraint. The method of multipliers meets it: the
features have a last column of ones, whose weight v = Σ_i a_i is penalised like the
others. For the targets t − b the solution has the intercept b + v, which is the next b,
and v tends to 0. As the objective has the slope −v in b + v, secants of two such slopes
lead to the root, in two or three steps once the free variables are those of the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.models._margin_newton import FIRST_WEIGHT, solve_box
from randkern.models.feature_matrix import FeatureMatrix, combined, scores_of

# Largest number of intercepts, and of those in succession that do not reduce the gap;
# fewer of the latter are enough if rounding errors leave no smaller gap.
_MAX_SHIFTS = 200
_MAX_STALLED = 20
_MAX_STALLED_BY_ROUNDING = 2
# The problem of the first intercept is solved to this gap, that of each other to this
# share of the gap of the one before it: six classes of satimage (C = 100) took 285 of
# Newton's steps, and 800 if each is solved to the end.
_FIRST_GAP = 1e-2
_GAP_SHARE = 0.1


class InterceptSolution(NamedTuple):
    """The solution of a margin with an intercept.

    `alpha`, (n,), are the dual variables for the targets less `shift`; the gap is that
    of `weights`, (width,), and of the intercept, relative to the objective.
    """

    alpha: np.ndarray
    shift: float
    weights: np.ndarray
    intercept: float
    gap: float
    n_steps: int


def solve_with_intercept(
    features: FeatureMatrix,
    targets: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tol: float,
    *,
    start: np.ndarray | None = None,
    shift: float | None = None,
    first_weight: float = FIRST_WEIGHT,
    first_gap: float = _FIRST_GAP,
) -> InterceptSolution:
    """Solve to a relative duality gap of `tol`, or until rounding errors leave no less.

    Features are float64, with a last column of ones; targets and bounds have shape
    (n,). `start` are dual variables, and `shift` an intercept, to start from: by
    default, the best constant. `first_weight` is that of :func:`solve_box`, and
    `first_gap` the gap that the first problem is solved to.
    """
    ops = ops_of(targets)
    signs = ops.float64_ones(targets.shape, targets)
    _, longest = scores_of(features, ops.float64_zeros((1, features.width), targets))
    if shift is None:
        shift = best_intercept(targets, lower, upper)
    alpha = start
    n_steps = 0
    n_stalled = 0
    max_gap = first_gap
    previous: tuple[float, float] | None = None
    best: InterceptSolution | None = None
    for _ in range(_MAX_SHIFTS):
        wanted = max(max_gap, _GAP_SHARE * tol)
        box = solve_box(
            features,
            signs,
            upper,
            wanted,
            longest,
            alpha,
            targets - shift,
            lower=lower,
            first_weight=first_weight,
        )
        alpha = box.alpha
        n_steps += box.n_steps
        n_stalled += 1
        weights, intercept, gap = _feasible(features, targets, lower, upper, alpha)
        if best is None or gap < best.gap:
            best = InterceptSolution(alpha, shift, weights, intercept, gap, n_steps)
            n_stalled = 0
        is_rounded = box.gap > wanted and n_stalled >= _MAX_STALLED_BY_ROUNDING
        if best.gap <= tol or n_stalled == _MAX_STALLED or is_rounded:
            break
        total = float(alpha.sum())
        end = shift + total
        shift = end
        if previous is not None and (previous[1] - total) * (end - previous[0]) > 0:
            # The objective as a function of the intercept has the slope −v at b + v.
            # The root of its secant is at most as far again.
            further = total * (end - previous[0]) / (previous[1] - total)
            shift += min(max(further, -abs(total)), abs(total))
        previous = end, total
        max_gap = _GAP_SHARE * min(max_gap, best.gap)
    assert best is not None
    return best._replace(n_steps=n_steps)


def best_intercept(
    residuals: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> float:
    """Return a minimiser b of Σ_i [u_i max(0, r_i − b) − l_i max(0, b − r_i)].

    It is a quantile of the residuals r with the weights u − l.
    """
    ops = ops_of(residuals)
    widths = upper - lower
    order = ops.xp.argsort(residuals)
    below = widths[order].cumsum(axis=0)
    share = float(upper.sum()) / float(widths.sum())
    at = int((below < share * float(below[-1])).sum())
    return float(residuals[order[min(at, len(residuals) - 1)]])


def _feasible(
    features: FeatureMatrix,
    targets: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    alpha: np.ndarray,
) -> tuple[np.ndarray, float, float]:
    """Return weights and an intercept, and their relative gap.

    The weights are those of dual variables whose sum is made 0. Those between their
    bounds change, whose residuals are near 0, in proportion to what the bounds leave;
    all do if these are too few.
    """
    ops = ops_of(alpha)
    total = float(alpha.sum())
    room = alpha - lower if total > 0 else upper - alpha
    free = room * ops.asarray((alpha > lower) & (alpha < upper), room)
    if float(free.sum()) >= abs(total):
        room = free
    alpha = alpha - total / (float(room.sum()) or 1.0) * room
    weights = combined(features, alpha[:, None])
    weights[0, features.n_components - 1] = 0.0
    residual = targets - scores_of(features, weights)[0][:, 0]
    intercept = best_intercept(residual, lower, upper)
    residual = residual - intercept
    square = float(weights[0] @ weights[0])
    loss = float(upper @ residual.clip(0.0) - lower @ (-residual).clip(0.0))
    primal = 0.5 * square + loss
    dual = float(alpha @ targets) - 0.5 * square
    return weights[0], intercept, (primal - dual) / (primal or 1.0)
