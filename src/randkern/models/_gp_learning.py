"""Learning hyperparameters by maximising the evidence.

L-BFGS-B maximises up to three likelihoods: the exact one of 300 rows, of which an
evaluation is cheapest, that on features of 500 to 1,000 rows, and that of all rows, of
which an evaluation takes O(nD²) operations. The first is maximised from three starts,
which have the lengthscales of the kernel, a quarter of them and four times them; of the
latter, columns with an evident effect have a quarter. Then the ends of the last stage
and the starts are compared, each with its best scale and noise, and L-BFGS-B continues
from the best, in coordinates in which the curvature of the last stage is the identity.
The end is thus no less likely than any start.

The first stage avoids poor maxima: without it the log likelihoods of tables (5,000
rows, 256 features, one lengthscale per column) fall from −628 to −637 for airfoil and
from −424 to −441 for concrete. Without the second, that of parkinsons falls from 12,841
to 6,358, the end of the first suiting 300 rows only.

Where several maxima differ by the draws of the features, as for concrete and elevators,
no way always ends in the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import ignoring
from randkern.exceptions import IllConditionedWarning
from randkern.models._gp_likelihood import Evidence
from randkern.models._gp_rows import FIRST_ROWS
from randkern.models._gp_starts import FACTOR, Space, are_lengthscales
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
# The loss, relative to the gain of Newton's first step, where the likelihood cannot be
# evaluated: steps to there are shortened, while infinity would end in NaN.
_FAILED = 10.0

# Called with the number of a step and its θ; returns whether to stop.
Report = Callable[[int, np.ndarray], bool]


@dataclass(frozen=True)
class Stage:
    """Minus the log posterior density of θ given some rows, to be minimised."""

    evidence: Evidence
    space: Space
    max_evaluations: int
    tolerance: float

    @classmethod
    def of(cls, evidence: Evidence, space: Space, is_sample: bool) -> Stage:
        """Return the stage of all rows, or of a sample of them."""
        affordable = int(_OPERATIONS_OF_ALL / evidence.operations)
        # Rounding and estimates affect where learning ends, so they are used only to
        # save time.
        evidence.precise = is_sample or affordable >= _MAX_EVALUATIONS
        affordable = int(_OPERATIONS_OF_ALL / evidence.operations)  # as it is now
        evaluations = min(max(affordable, _MIN_EVALUATIONS), _MAX_EVALUATIONS)
        tolerance = _TOLERANCE
        if is_sample or not evidence.precise:
            tolerance *= evidence.rows.n_rows
        return cls(evidence, space, evaluations, tolerance)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.evidence.rows.n_rows

    def __call__(self, entries: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at entries of the space, and its slope in them.

        Infinity where they cannot be evaluated.
        """
        theta = self.space.theta(entries)
        value, slope = math.nan, theta
        if np.isfinite(theta).all():
            with suppress(np.linalg.LinAlgError):
                value, slope = self.evidence(theta)
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return math.inf, np.zeros(len(theta))
        log, pull = self.space.log_prior(theta)
        return -value - log, -(slope + pull) * self.space.rates(entries)

    def rescaled(self, point: Point) -> Point:
        """Return the point with the best scale and noise, and its log likelihood."""
        space = self.space
        theta, value = self.evidence.rescaled(
            space.direction, space.low, space.high, space.theta(point.entries)
        )
        value += space.log_prior(theta)[0]
        return replace(point, entries=space.entries(theta), value=value)


@dataclass(frozen=True)
class Point:
    """A point of the search: its log likelihood, and the gain of the last step.

    With `root` R and n rows, RRᵀ/n is the inverse curvature of the log likelihood.
    """

    entries: np.ndarray
    root: np.ndarray
    value: float = -math.inf
    gain: float = 0.0


def maximise(
    stages: Sequence[Stage],
    space: Space,
    starts: Sequence[np.ndarray],
    n_restarts: int,
    stream: Stream,
    report: Report,
) -> np.ndarray:
    """Return θ that maximises the likelihood of the last stage, by L-BFGS-B.

    The likelihood of the first stage is maximised from every start. In every further
    stage the ends of the last one and all starts are compared, at the best scale and
    noise for each, and the best is improved, so that the result is no less likely than
    any of them. Restarts are drawn around the first start. `report` is called with the
    number of each step and its θ; learning ends if it returns True.
    """
    low, high = space.entries(space.low), space.entries(space.high)
    starts = [space.entries(start) for start in starts]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        starts.append(starts[0] + math.log(FACTOR) * generator.normal(size=len(low)))
    root = math.sqrt(FIRST_ROWS) * np.eye(len(low))
    first = [Point(start.clip(low, high), root) for start in starts]
    search = _Search(low, high, lambda k, entries: report(k, space.theta(entries)))
    with ignoring(IllConditionedWarning, ConvergenceWarning):
        # Systems at trial values may be ill conditioned, or modes hard to find; the
        # returned value warns again.
        ends = [search.ascent(stages[0], stages[0].rescaled(point)) for point in first]
        # Slopes fall with the square of a lengthscale, so that all rows would hardly
        # shorten it any more where a sample has lengthened it further.
        longest = np.max([point.entries for point in first], axis=0)
        are_lengths = are_lengthscales(space.names)
        longest = np.where(are_lengths, longest + math.log(FACTOR), math.inf)
        for stage in stages[1:]:
            ends = [
                replace(end, entries=end.entries.clip(None, longest)) for end in ends
            ]
            points = [stage.rescaled(point) for point in [*ends, *first]]
            best = max(points, key=lambda point: point.value)
            ends = [search.ascent(stage, best)]
    end = max(ends, key=lambda end: end.value)
    theta = space.theta(end.entries)
    if not search.stop:
        warn_of_the_end(space, theta, end.value, end.gain, stages[-1].n_rows)
    return theta


class _Search:
    """Ascents within common bounds, whose steps are counted and reported."""

    def __init__(self, low: np.ndarray, high: np.ndarray, report: Report):
        self.low = low
        self.high = high
        self.report = report
        self.count = 0
        self.stop = False

    def ascent(self, stage: Stage, start: Point) -> Point:
        """Return the end of L-BFGS-B, which is no less likely than the start.

        L-BFGS-B starts without knowledge of the curvature, so its coordinates v are
        those in which the curvature of the previous stage is the identity, times a
        length r = ‖Cᵀ∇‖ with which its first step, of length 1, is Newton's; r is
        smaller if that changes a logarithm by more than one half. Values are divided by
        r². Bounds of θ are not bounds of v: beyond a bound the loss continues as its
        tangent if that rises, else as a constant.
        """
        low, high = self.low, self.high
        C = start.root / math.sqrt(stage.n_rows)
        C[low == high] = 0.0
        first, first_slope = stage(start.entries)
        steepest = C.T @ self._inward(start.entries, first_slope)
        length = float(np.linalg.norm(steepest))
        if not (math.isfinite(first) and 0 < length < math.inf):
            return replace(start, value=-first)
        length *= min(1.0, _FIRST_STEP / float(abs(C @ steepest).max()))
        if self.stop or 0.5 * length**2 < stage.tolerance:
            return replace(start, value=-first)
        C *= length
        values = [0.0]

        def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
            entries = start.entries + C @ v
            inside = entries.clip(low, high)
            value, slope = stage(inside) if v.any() else (first, first_slope)
            if not math.isfinite(value):
                return _FAILED, np.zeros(len(v))
            slope = self._inward(entries, slope)
            fall = value - first + float(slope @ (entries - inside))
            return fall / length**2, C.T @ slope / length**2

        def after_step(intermediate_result: Any) -> None:
            values.append(length**2 * float(intermediate_result.fun))
            entries = start.entries + C @ intermediate_result.x
            self.stop |= self.report(self.count, entries.clip(low, high))
            self.count += 1
            before = values[-3] if len(values) > 2 else values[0]
            if self.stop or before - values[-1] < stage.tolerance:
                raise StopIteration

        result = scipy.optimize.minimize(
            loss,
            np.zeros(len(low)),
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
        if not np.isfinite(result.x).all():  # slopes, or their changes, underflow
            return replace(start, value=-first)
        inverse = C @ result.hess_inv.todense() @ C.T / length**2
        squares, axes = np.linalg.eigh(stage.n_rows * inverse)
        return Point(
            (start.entries + C @ result.x).clip(low, high),
            # Deviations of more than 1 for 300 rows come from large steps.
            axes * squares.clip(0.0, FIRST_ROWS) ** 0.5,
            -first - length**2 * float(result.fun),
            values[-2] - values[-1] if len(values) > 1 else 0.0,
        )

    def _inward(self, entries: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return the slope, without what descends out of the bounds."""
        out = (entries <= self.low) & (slope > 0) | (entries >= self.high) & (slope < 0)
        return np.where(out, 0.0, slope)
