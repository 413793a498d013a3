"""Margins: losses that vanish within a tube, and grow linearly beyond it.

For each column t of targets, with features z_i,

    P(w, b) = ½‖w‖² + Σ_i [u_i max(0, r_i − ε) − l_i max(0, −r_i − ε)],
    r_i = t_i − b − w·z_i,  l_i ≤ 0 ≤ u_i,

    D(a) = Σ_i (a_i t_i − ε|a_i|) − ½‖w‖²,
    w = Σ_i a_i z_i,  l_i ≤ a_i ≤ u_i,  Σ_i a_i = 0 (with an intercept).

| model | t_i | l_i, u_i | ε |
|---|---|---|---|
| support vector classification | ±1 | −C, 0 or 0, C | 0 |
| support vector regression | y_i | −C, C | ε |
| quantile τ | y_i | (τ − 1)/α, τ/α | 0 |

D ≤ P, with equality at the solution: solvers stop by the difference, the duality gap.

**The intercept** makes Σ_i a_i = 0 a constraint, which the method of multipliers meets:
for the targets t − b, and with a penalty of σ(Σ_i a_i)²/2, the solution has the
intercept b + σv, v = Σ_i a_i, which is the next b, and v tends to 0. Coordinate descent
sets the next b after each pass over the rows, Newton's method (with σ = 1: v is then
the weight of a last column of ones) after each solution. Whatever a solver finds is
made feasible: its variables are moved so that their sum is 0, and the best intercept of
their weights is a quantile of the residuals. The gap is that of these.

**The size of an objective** is ½‖w‖² and the losses of rows, each counted as at most
`_CAP` times the usual distance of targets: gaps relative to the objective itself leave
all other rows unfitted where one target is enormous.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.models.feature_matrix import combined, longest_row, scores_of

# Losses count in the size of an objective up to this multiple of the scale of targets:
# the median of their non-zero distances from the best constant.
_CAP = 10.0
_SCALE_QUANTILE = 0.5
# Dual variables up to this size can be squared and summed.
_MAX_COST = 1e100
# A sum of dual variables is 0 below this share of the sum of their sizes.
_ZERO_SUM = 1e-9
# Rounding errors of a score, in units of the precision and of ‖w‖‖z‖.
_ROUNDING = 4.0


def bounds_of_signs(signs: Any, costs: Any) -> tuple[Any, Any]:
    """Return the bounds (n, k) of the dual variables of signs, for costs (n,)."""
    return costs[:, None] * signs.clip(max=0.0), costs[:, None] * signs.clip(0.0)


def check_costs(costs: Any, formula: str, advice: str) -> None:
    """Raise if dual variables up to these bounds leave the range of floats."""
    largest = float(abs(costs).max())
    if not largest <= _MAX_COST:
        raise ValueError(
            f"the losses of rows are multiplied by {formula}, got up to {largest:.3g}, "
            f"expected at most {_MAX_COST:g}: divide sample_weight by its mean, or "
            f"{advice}."
        )


def check_kernel_values(largest: float) -> None:
    """Raise if kernel values k(x, x) times costs leave the range of floats."""
    if not largest <= _MAX_COST:
        raise ValueError(
            f"kernel values k(x, x) are as large as {largest:.3g}, expected at most "
            f"{_MAX_COST:g}: scale the input down, or lower the degree of the kernel."
        )


class Solution(NamedTuple):
    """Dual variables (n, k), weights (k, width), intercepts (k,), ‖w‖² and gaps.

    There are no weights if the exact Gram matrix was not factorised. `residuals` (n, k)
    are those of the intercepts. The gaps (k,) are relative to the sizes of objectives;
    `rounding` (k,) is the gap that rounding errors of scores may cause.
    """

    alpha: Any
    weights: Any
    intercept: Any
    squares: Any
    gap: Any
    residuals: Any = None
    size: Any = None
    rounding: Any = None


class Margins:
    """The problems of the columns of targets, (n, k), on the same features.

    Bounds have the shape of the targets. With an intercept, the last component of the
    features is 1. There are no features if scores are those of a Gram matrix. `longest`
    is the length of the longest row; it is computed if None.
    """

    def __init__(
        self,
        features: Any,
        targets: Any,
        lower: Any,
        upper: Any,
        *,
        tube: float = 0.0,
        has_intercept: bool = True,
        longest: float | None = None,
    ):
        self.ops = ops_of(targets)
        self.features = features
        if longest is None:
            longest = 0.0 if features is None else longest_row(features)
            check_kernel_values(longest**2)
        self.longest = longest
        self.targets = targets
        self.lower = lower
        self.upper = upper
        self.tube = tube
        self.has_intercept = has_intercept
        # The best constants, and the scales of targets around them.
        self.constant = self.ops.float64_zeros(targets.shape[1], targets)
        if has_intercept:
            self.constant = best_intercepts(targets, lower, upper, tube)
        distances = abs(targets - self.constant)
        widths = (upper - lower) * self.ops.asarray(distances > 0, distances)
        self.scale = _each(weighted_quantile, distances, widths, _SCALE_QUANTILE)
        self.scale = self.scale + (self.scale == 0)
        self.cap = _CAP * self.scale

    def column(self, t: int) -> Margins:
        """Return the problem of one column."""
        arrays = (self.targets, self.lower, self.upper)
        return Margins(
            self.features,
            *(array[:, t : t + 1] for array in arrays),
            tube=self.tube,
            has_intercept=self.has_intercept,
            longest=self.longest,
        )

    @property
    def ones(self) -> int:
        """The number of the column of ones."""
        return self.features.n_components - 1

    def solution(self, alpha: Any, weights: Any = None) -> Solution:
        """Return the solution of dual variables (n, k), whose sums are made 0.

        `weights` are those of variables whose sums are 0; they are computed if None.
        """
        if weights is None:
            if self.has_intercept:
                alpha = balanced(alpha, self.lower, self.upper, self.tube)
            weights = combined(self.features, alpha)
        if self.has_intercept:
            weights[:, self.ones] = 0.0
        scores = scores_of(self.features, weights)
        squares = self.ops.algebra.column_products(weights.T, weights.T)
        return self.measured(alpha, weights, scores, squares)

    def constants(self) -> Solution:
        """Return the solution whose dual variables are all 0."""
        ops = self.ops
        zeros = 0.0 * self.targets
        weights = None
        if self.features is not None:
            shape = (zeros.shape[1], self.features.width)
            weights = ops.float64_zeros(shape, zeros)
        return self.measured(zeros, weights, zeros, zeros[0])

    def measured(self, alpha: Any, weights: Any, scores: Any, squares: Any) -> Solution:
        """Return the solution of variables whose sums are 0.

        `scores` (n, k) are w·z, and `squares` (k,) ‖w‖².
        """
        ops = self.ops
        residuals = self.targets - scores
        intercept = 0.0 * squares
        if self.has_intercept:
            intercept = best_intercepts(residuals, self.lower, self.upper, self.tube)
            residuals = residuals - intercept
        above = (residuals - self.tube).clip(0.0)
        below = (-residuals - self.tube).clip(0.0)
        primal = 0.5 * squares + (self.upper * above - self.lower * below).sum(axis=0)
        if not ops.is_finite(primal):
            raise ValueError(
                "the objective overflows: C, the weights or the kernel values of X are "
                "too large; lower C, or scale the input down."
            )
        above = ops.xp.where(above > self.cap, self.cap, above)
        below = ops.xp.where(below > self.cap, self.cap, below)
        size = 0.5 * squares + (self.upper * above - self.lower * below).sum(axis=0)
        size = size + (size == 0)
        dual = (alpha * self.targets).sum(axis=0) - 0.5 * squares
        gap = primal - dual + self.tube * abs(alpha).sum(axis=0)
        if self.has_intercept:
            sums, sizes = abs(alpha.sum(axis=0)), abs(alpha).sum(axis=0)
            gap = gap + ops.xp.where(sums > _ZERO_SUM * sizes, np.inf, 0.0)
        rounding = 0.0 * squares
        if self.features is not None:
            # Errors of the scores of rows with a non-zero variable.
            error = _ROUNDING * ops.precision(self.features.dtype) * self.longest
            widths = (self.upper - self.lower) * ops.asarray(alpha != 0, alpha)
            rounding = error * squares**0.5 * widths.sum(axis=0)
        return Solution(
            alpha,
            weights,
            intercept,
            squares,
            gap / size,
            residuals,
            size,
            rounding / size,
        )


class Intercepts:
    """The search for the intercepts (k,) of targets, from sums of dual variables.

    For the targets less b the solution has the sum v and the intercept b + v, where the
    objective has the slope −v. Secants of two such slopes lead to the root.
    """

    def __init__(self, start: Any):
        self.ops = ops_of(start)
        self.values = start
        self._end = self._sums = start * np.nan

    def step(self, sums: Any) -> None:
        """Set the next intercepts, given the sums (k,) for those of now."""
        end = self.values + sums
        change, fall = end - self._end, self._sums - sums
        is_secant = change * fall > 0  # not at first
        size = abs(sums)
        further = sums * change / self.ops.xp.where(is_secant, fall, 1.0)
        # The root of a secant is at most as far again.
        further = self.ops.xp.where(further > size, size, further)
        further = self.ops.xp.where(further < -size, -size, further)
        self.values = end + self.ops.xp.where(is_secant, further, 0.0)
        self._end, self._sums = end, sums


def balanced(alpha: Any, lower: Any, upper: Any, tube: float, sums: Any = None) -> Any:
    """Return dual variables (n, k) less `sums` (k,), by default those of all.

    Those between their bounds change, in proportion to what the bounds leave; all do if
    these are too few.
    """
    where = ops_of(alpha).xp.where
    sums = alpha.sum(axis=0) if sums is None else sums
    room = where(sums > 0, alpha - lower, upper - alpha)
    free = where(are_free(alpha, lower, upper, tube), room, 0.0)
    room = where(free.sum(axis=0) >= abs(sums), free, room)
    total = room.sum(axis=0)
    share = sums / (total + (total == 0))
    return alpha - share.clip(-1.0, 1.0) * room


def are_free(alpha: Any, lower: Any, upper: Any, tube: float) -> Any:
    """Return whether variables lie strictly between their bounds.

    With a tube also not at 0, where they stay as long as the value is within the tube.
    """
    free = (alpha > lower) & (alpha < upper)
    return free & (alpha != 0) if tube else free


def best_intercepts(residuals: Any, lower: Any, upper: Any, tube: float = 0.0) -> Any:
    """Return the intercepts (k,) of least loss, for residuals (n, k)."""
    points, weights = residuals, upper - lower
    if tube:
        xp = ops_of(residuals).xp
        points = xp.concat([residuals - tube, residuals + tube])
        weights = xp.concat([upper, -lower])
    shares = upper.sum(axis=0) / (upper - lower).sum(axis=0)
    return _each(weighted_quantile, points, weights, shares)


def weighted_quantile(values: Any, weights: Any, share: float) -> float:
    """Return the smallest value up to which there is this share of the weights."""
    order = ops_of(values).xp.argsort(values)
    below = weights[order].cumsum(axis=0)
    at = int((below < share * float(below[-1])).sum())
    return float(values[order[min(at, len(values) - 1)]])


def _each(function: Any, values: Any, weights: Any, shares: Any) -> Any:
    """Return a function of every column, (k,)."""
    out = 0.0 * values[0]
    shares = shares + out
    for t in range(len(out)):
        out[t] = function(values[:, t], weights[:, t], float(shares[t]))
    return out
