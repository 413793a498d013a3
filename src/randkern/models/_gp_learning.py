"""Learning hyperparameters by maximising the evidence.

L-BFGS-B maximises up to three likelihoods: the exact one of 300 rows, of which an
evaluation is cheapest, that on features of 500 to 1,000 rows, and that of all rows, of
which an evaluation takes O(nD²) operations. The first is maximised from three starts,
which have the lengthscales of the kernel, a quarter of them and four times them; of the
latter, columns with an evident effect have a quarter. Then the ends of the last stage
and the starts are compared, each with its best scale and noise, and L-BFGS-B continues
from the best, in coordinates in which the curvature of the last stage is the identity.
The end is thus no less likely than any start.

The log likelihood, and the operations of all evaluations, of L-BFGS of 300 rows, then
of a quarter of them, then BFGS of all, from one start without comparisons, and now
(5,000 rows of tables, 500 features, one lengthscale per column):

    rows                          log likelihood         operations
    airfoil                      −514.8 →   −506.6    5.1e10 → 6.2e10
    bike                         −297.3 →   −296.7    1.2e11 → 1.6e11
    concrete                     −394.2 →   −421.6    8.7e10 → 4.9e10
    elevators                   −2514.0 →  −2537.8    1.2e11 → 1.4e11
    energy                       1145.5 →   1145.5    5.2e10 → 7.1e10
    kin40k                      −2848.8 →  −2848.1    7.5e10 → 1.3e11
    parkinsons                   1265.5 →   1703.1    1.5e11 → 1.9e11
    pumadyn32nm                 −7094.7 →    628.3    3.3e10 → 1.4e11
    skillcraft                  −3288.0 →  −3284.5    5.5e10 → 8.6e10
    synthetic 10,000             1109.5 →   1111.6    9.6e10 → 9.9e10

One lengthscale for all columns:

    kin40k                      −4075.9 →  −4075.8    5.7e10 → 9.0e10
    skillcraft                  −3329.7 →  −3330.2    2.5e10 → 3.1e10
    synthetic 10,000, D = 300  −14185.8 → −12094.7    1.4e10 → 2.6e10
    synthetic 10,000, D = 1,000 −8576.8 →  −8575.9    1.8e11 → 3.7e11

What each stage buys: log likelihood, evaluations with gradients, and their operations
in 10¹⁰ (5,000 rows, 256 features, one lengthscale per column). The alternatives ascend
until two steps gain less than 1e-5 per row; one stage has one start. Ascents from the
two best points of each stage took 319 evaluations and 30·10¹⁰ operations for elevators,
to the same likelihoods.

               three stages        300 rows, all      500–1,000, all      all
    airfoil     −627.7 114  2.2    −627.7  87  1.6    −636.8 151  2.9    −705.9  31  1.2
    bike        −423.6 143  5.9    −425.2 142  8.7    −423.6 171  7.4    −802.5  54  7.1
    concrete    −423.8  99  1.7    −423.8  77  1.3    −441.4 121  1.9    −426.7  30  0.8
    elevators  −2559.4 172 12.7   −2545.8 102  5.3   −2559.4 165  8.0   −2548.9  41  5.4
    kin40k     −3917.0 118  4.8   −3917.0  92  5.0   −3917.0 103  4.8   −3917.0  26  3.4
    parkinsons   12841 285 21.0      6358 147  3.9     14512 403 25.0     14416 145 19.0
    skillcraft −3282.3 131  3.6   −3282.4 115  3.0   −3282.4 105  3.8   −3286.1  28  2.5

The first stage avoids poor maxima (airfoil, bike, concrete), and the second one the end
of the first that suits 300 rows only (parkinsons), or saves operations (bike).

Where several maxima differ by the draws of the features, as for concrete and elevators,
no way always ends in the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import ignoring
from randkern.exceptions import IllConditionedWarning
from randkern.models._gp_rows import FIRST_ROWS
from randkern.models._gp_starts import FACTOR, Objective, are_lengthscales
from randkern.models._gp_warnings import warn_of_the_end

# Evaluations of all rows end after this many operations, but never after fewer than
# this many evaluations, nor after more.
_OPERATIONS_OF_ALL = 6e11
_MIN_EVALUATIONS = 10
_MAX_EVALUATIONS = 300
# An ascent ends if two steps gain less log likelihood: per row for samples, and if
# evaluations are expensive, which does not affect predictive densities and is above
# rounding in single precision; else in total.
_TOLERANCE = 1e-4
# Steps whose curvature L-BFGS-B remembers. With its usual 10, parkinsons took 3.3e11
# operations.
_MEMORY = 50
# Largest change of a logarithm in the first step.
_FIRST_STEP = 0.5

# Called with the number of a step and its θ; returns whether to stop.
Report = Callable[[int, np.ndarray], bool]


@dataclass(frozen=True)
class Stage:
    """A log likelihood of some rows, to be maximised.

    `rescaled` returns θ with the best scale and noise at its lengthscales, if they are
    cheap to find, and the log likelihood there.
    """

    objective: Objective
    n_rows: int = FIRST_ROWS
    max_evaluations: int = _MAX_EVALUATIONS
    tolerance: float = _TOLERANCE
    rescaled: Callable[[np.ndarray], tuple[np.ndarray, float]] | None = None

    @classmethod
    def of(
        cls, evidence: Any, objective: Objective, rescaled: Any, is_sample: bool
    ) -> Stage:
        """Return the stage for the log marginal likelihood of rows, with its priors."""
        affordable = int(_OPERATIONS_OF_ALL / evidence.operations)
        # Rounding and estimates affect where learning ends, so they are used only to
        # save time.
        evidence.precise = is_sample or affordable >= _MAX_EVALUATIONS
        affordable = int(_OPERATIONS_OF_ALL / evidence.operations)  # as it is now
        evaluations = min(max(affordable, _MIN_EVALUATIONS), _MAX_EVALUATIONS)
        n_rows, tolerance = evidence.rows.n_rows, _TOLERANCE
        if is_sample or not evidence.precise:
            tolerance *= n_rows
        return cls(objective, n_rows, evaluations, tolerance, rescaled)


def maximise(
    stages: Sequence[Stage],
    names: list[str],
    starts: list[np.ndarray],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
    report: Report | None = None,
) -> np.ndarray:
    """Return θ that maximises the likelihood of the last stage, by L-BFGS-B.

    The likelihood of the first stage is maximised from every start. In every further
    stage the ends of the last one and all starts are compared, at the best scale and
    noise for each, and the best is improved, so that the result is no less likely than
    any of them. Restarts are drawn around the first start. `report` is called with the
    number of each step and its θ; learning ends if it returns True.
    """
    low, high = np.transpose(limits)
    starts = [*starts]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        moves = math.log(FACTOR) * generator.normal(size=len(names))
        starts.append(starts[0] + moves)
    root = math.sqrt(FIRST_ROWS) * np.eye(len(names))
    first = [_Point(start.clip(low, high), root) for start in starts]
    search = _Search(low, high, report)
    with ignoring(IllConditionedWarning, ConvergenceWarning):
        # Systems at trial values may be ill conditioned, or modes hard to find; the
        # returned value warns again.
        points = [search.rescaled(stages[0], point) for point in first]
        ends = [search.ascent(stages[0], point) for point in points]
        # Slopes fall with the square of a lengthscale, so that all rows would hardly
        # shorten it any more where a sample has lengthened it further.
        max_theta = np.max([point.theta for point in first], axis=0)
        max_theta[are_lengthscales(names)] += math.log(FACTOR)
        max_theta[~are_lengthscales(names)] = math.inf
        for stage in stages[1:]:
            ends = [replace(end, theta=end.theta.clip(None, max_theta)) for end in ends]
            points = [search.rescaled(stage, point) for point in [*ends, *first]]
            best = max(points, key=lambda point: point.value)
            ends = [search.ascent(stage, best)]
    end = max(ends, key=lambda end: end.value)
    if not search.stop:
        warn_of_the_end(
            end.theta, end.value, end.gain, names, limits, stages[-1].n_rows
        )
    return end.theta


@dataclass(frozen=True)
class _Point:
    """A point of the search: θ, its log likelihood, and the gain of the last step.

    With `root` R and n rows, RRᵀ/n is the inverse curvature of the log likelihood.
    """

    theta: np.ndarray
    root: np.ndarray
    value: float = -math.inf
    gain: float = 0.0


class _Search:
    """Ascents within common bounds, whose steps are counted and reported."""

    def __init__(self, low: np.ndarray, high: np.ndarray, report: Report | None):
        self.low = low
        self.high = high
        self.report = report
        self.count = 0
        self.stop = False

    def rescaled(self, stage: Stage, point: _Point) -> _Point:
        """Return the point with the best scale and noise, and its likelihood."""
        if stage.rescaled is None:
            value, _ = _negative(stage.objective, point.theta, gradient=False)
            return replace(point, value=-value)
        theta, value = stage.rescaled(point.theta)
        return replace(point, theta=theta, value=value)

    def ascent(self, stage: Stage, start: _Point) -> _Point:
        """Return the end of L-BFGS-B, which is no less likely than the start."""
        loss = _Loss.of(stage, start, self.low, self.high)
        if self.stop or 0.5 * loss.length**2 < stage.tolerance:
            return replace(start, value=-loss.first)
        values = [0.0]

        def after_step(intermediate_result: Any) -> None:
            values.append(loss.length**2 * float(intermediate_result.fun))
            if self.report is not None:
                theta = loss.theta(intermediate_result.x)
                self.stop |= self.report(self.count, theta.clip(self.low, self.high))
                self.count += 1
            before = values[-3] if len(values) > 2 else values[0]
            if self.stop or before - values[-1] < stage.tolerance:
                raise StopIteration

        result = scipy.optimize.minimize(
            loss,
            np.zeros(len(start.theta)),
            jac=True,
            method="L-BFGS-B",
            options={
                "ftol": 0.0,
                "gtol": 0.0,
                "maxfun": stage.max_evaluations,
                "maxcor": _MEMORY,
            },
            callback=after_step,
        )
        gain = values[-2] - values[-1] if len(values) > 1 else 0.0
        inverse = loss.C @ result.hess_inv.todense() @ loss.C.T / loss.length**2
        squares, axes = np.linalg.eigh(stage.n_rows * inverse)
        return _Point(
            loss.theta(result.x).clip(self.low, self.high),
            # Deviations of more than 1 for 300 rows come from large steps.
            axes * squares.clip(0.0, FIRST_ROWS) ** 0.5,
            -loss.first - loss.length**2 * float(result.fun),
            gain,
        )


@dataclass(frozen=True)
class _Loss:
    """What L-BFGS-B minimises, from a start: the fall of the log likelihood.

    L-BFGS-B starts without knowledge of the curvature, so its coordinates v are those
    in which the curvature of the previous stage is the identity, θ = θ₀ + Cv, times a
    length r = ‖Cᵀ∇‖ with which its first step, of length 1, is Newton's; r is smaller
    if that changes a logarithm by more than one half. Values are divided by r². Bounds
    of θ are not bounds of v: beyond a bound the loss continues as its tangent if that
    rises, else as a constant.
    """

    stage: Stage
    start: np.ndarray
    low: np.ndarray
    high: np.ndarray
    C: np.ndarray
    length: float
    # Minus the log likelihood at the start, and its slope.
    first: float
    slope: np.ndarray

    @classmethod
    def of(
        cls, stage: Stage, start: _Point, low: np.ndarray, high: np.ndarray
    ) -> _Loss:
        """Return the loss of a stage; its length is 0 if it has no slope."""
        C = start.root / math.sqrt(stage.n_rows)
        C[low == high] = 0.0
        first, slope = _negative(stage.objective, start.theta)
        steepest = C.T @ _inward(start.theta, slope, low, high)
        length = float(np.linalg.norm(steepest))
        if not (math.isfinite(first) and 0 < length < math.inf):
            return cls(stage, start.theta, low, high, C, 0.0, first, slope)
        length *= min(1.0, _FIRST_STEP / float(abs(C @ steepest).max()))
        return cls(stage, start.theta, low, high, length * C, length, first, slope)

    def theta(self, v: np.ndarray) -> np.ndarray:
        """Return θ, which may be out of bounds."""
        return self.start + self.C @ v

    def __call__(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        theta = self.theta(v)
        inside = theta.clip(self.low, self.high)
        value, slope = self.first, self.slope
        if v.any():
            value, slope = _negative(self.stage.objective, inside)
        slope = _inward(theta, slope, self.low, self.high)
        fall = value - self.first + float(slope @ (theta - inside))
        return fall / self.length**2, self.C.T @ slope / self.length**2


def _inward(
    theta: np.ndarray, slope: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Return the slope, without what descends out of the bounds."""
    out = (theta <= low) & (slope > 0) | (theta >= high) & (slope < 0)
    return np.where(out, 0.0, slope)


def _negative(
    objective: Objective, theta: np.ndarray, gradient: bool = True
) -> tuple[float, np.ndarray]:
    try:
        value, slope = objective(theta, gradient)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(theta))
    return -value, -slope
