"""Learning hyperparameters: which rows, and where the evidence is largest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern.backend.namespace import ops_of
from randkern.data import rows_within
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.exceptions import IllConditionedWarning
from randkern.plan import Plan

__all__ = [
    "Start",
    "bounds",
    "coarse_rows",
    "first_starts",
    "learning_rows",
    "maximise",
    "most_learning_rows",
    "smooth_rows",
]

# Operations of one evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_LEAST_ROWS = 2000
# Memory of a sample of rows that are not in memory, in which they would not grow.
_SAMPLE_BYTES = 64 * 10**6
# Starts are compared on a sample of this share of the rows, within these bounds.
_COARSE_SHARE = 4
_COARSE_ROWS = (500, 2000)
# With few rows, the likelihood of the exact kernel is the cheapest.
_SMOOTH_ROWS = 300
# Changes of the likelihood below this share of it say nothing about θ: about 1e-3 of
# some thousands.
_IMPROVEMENT = 1e-7
_ROUGH_IMPROVEMENT = 1e-3
# Iterations that are enough to find which start leads to the best maximum.
_COMPARING_IMPROVEMENT = 1e-5
# Ends as close as this in every logarithm are one maximum.
_SAME = 0.1
_MOST_CANDIDATES = 3
# What a descent may take for the distance to its end along a logarithm, where it
# knows nothing, and at least and at most.
_STEP = 0.1
_STEPS = (1e-2, 1.0)
_DIFFERENCE = 1e-3
# A restart moves each number by a factor of about this (one standard deviation).
_SPREAD = math.log(4.0)
# How far learning may go from where it starts.
_LENGTHSCALE_RANGE = 1e3
# Shares of the mean square of the targets that the noise may take. Rows that repeat
# exactly would otherwise make the likelihood grow without bound as the noise vanishes.
_NOISE_SHARES = (1e-5, 1e2)
# By how much the variance of the process may differ from it at the start: the slope
# along the scale vanishes where it is far below the noise.
_VARIANCE_RANGE = 1e3
# Beyond this factor from it nothing is left but rounding errors.
_ROUNDING_RANGE = 1e20
# Weights count rows, and are multiplied by squares of targets.
_LARGEST_WEIGHT = 1e60
# What the noise may be where nothing better is known.
_USUAL_SHARE = 0.1
# Descents from lengthscales that are too long end where the scale makes up for them.
_SHORTER = math.log(4.0)
# Values this close to a bound count as on it.
_TOUCHING = 1e-3

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def learning_rows(
    rows: TrainingData, plan: Plan | None, stream: Stream, most: int = 0
) -> ArrayRows:
    """Return rows to learn from, in float64, none of weight 0.

    All for the exact kernel; for features a uniform sample of `most` rows, or (0) as
    many as 10¹¹ operations per evaluation take, and at least 2,000; of rows that are
    not in memory, no more than fit in 64 MB.
    """
    n = rows.n_rows
    usable: Any = np.arange(n)
    if rows.in_memory and (weight := rows.whole().weight) is not None:
        usable = ops_of(weight).flatnonzero(weight)
    if plan is not None:
        most = most or most_learning_rows(plan.n_components)
        if not rows.in_memory:
            row_bytes = 8 * (rows.like.shape[1] + rows.n_targets + 1)
            most = min(
                most, rows_within(_SAMPLE_BYTES, row_bytes, at_least=_LEAST_ROWS)
            )
        if most < len(usable):
            drawn = stream.generator().choice(len(usable), most, replace=False)
            usable = ops_of(usable).take(usable, np.sort(drawn))
    block = rows.take(usable)
    ops = ops_of(block.X)
    X, Y, weight = ops.as_float64(block.X), block.Y, block.weight
    if weight is not None and bool((weight == 0).any()):
        kept = ops.flatnonzero(weight)
        X, Y, weight = X[kept], Y[kept], weight[kept]
    if weight is not None:
        largest = ops.largest(weight)
        if largest > _LARGEST_WEIGHT:
            raise ValueError(
                "a row of weight w counts as w rows, got a sample_weight of "
                f"{largest:.3g}; divide the weights so that a usual row has about 1."
            )
    if len(Y) == 0:
        raise ValueError(
            "no sampled row has a weight above zero: leave out rows without weight."
        )
    return ArrayRows(X, Y, weight)


def most_learning_rows(n_components: int) -> int:
    """Return how many rows learning on so many features takes at most."""
    return max(_LEAST_ROWS, int(_OPERATIONS / (4.0 * n_components**2)))


def coarse_rows(rows: ArrayRows, stream: Stream) -> ArrayRows:
    """Return a uniform sample to compare starts on: all rows where they are few."""
    least, largest = _COARSE_ROWS
    most = min(max(rows.n_rows // _COARSE_SHARE, least), largest)
    return _uniform_sample(rows, most, stream)


def smooth_rows(rows: ArrayRows, stream: Stream) -> ArrayRows:
    """Return a uniform sample, few enough for the exact kernel."""
    return _uniform_sample(rows, _SMOOTH_ROWS, stream)


def _uniform_sample(rows: ArrayRows, most: int, stream: Stream) -> ArrayRows:
    if rows.n_rows <= most:
        return rows
    drawn = stream.generator().choice(rows.n_rows, most, replace=False)
    return rows.take(np.sort(drawn))


def bounds(
    names: list[str],
    theta: np.ndarray,
    mean_square: float,
    variance: float,
    scale_range: float,
) -> list[tuple[float, float]]:
    """Return the least and the largest logarithm of every hyperparameter.

    Parameters
    ----------
    names : list of str
        Those of the kernel, then ``"noise"``.
    theta : ndarray
        Where learning starts, always within the bounds.
    mean_square, variance : float
        Of the targets.
    scale_range : float
        By how much a scale may change; where there is noise, from its start and from
        the variance of the targets.
    """
    # Targets that are all equal say nothing of their size.
    level, spread = (
        math.log(size) if size > 0 else 0.0 for size in (mean_square, variance)
    )
    out = []
    for name, start in zip(names, theta, strict=True):
        if name == "noise":
            low, high = (math.log(share) + level for share in _NOISE_SHARES)
            out.append((min(start, low), max(start, high)))
        elif name.rpartition("__")[2] == "scale":
            reach = math.log(scale_range)
            sizes_of_scales = [start]
            if "noise" in names:
                sizes_of_scales += [level, spread]
            out.append((min(sizes_of_scales) - reach, max(sizes_of_scales) + reach))
        else:
            reach = math.log(_LENGTHSCALE_RANGE)
            out.append((start - reach, start + reach))
    return out


@dataclass(frozen=True)
class Start:
    """A θ to descend from; `staged` first moves all but the lengthscales."""

    theta: np.ndarray
    staged: bool = True


def first_starts(
    names: list[str],
    theta: np.ndarray,
    mean_square: float,
    variance: float = 1.0,
    rescaling: np.ndarray | None = None,
) -> list[Start]:
    """Return starts about θ, moved where its noise or its variance is implausible.

    Far from where they can be, the slope of the likelihood leads nowhere.

    Parameters
    ----------
    names : list of str
    theta : ndarray
    mean_square : float
        Of the targets.
    variance : float
        Mean prior variance of the process at θ.
    rescaling : ndarray, optional
        Direction in θ that multiplies the kernel by e.
    """
    moved, lost = theta.copy(), False
    if "noise" in names and mean_square > 0:
        place, level = names.index("noise"), math.log(mean_square)
        low, high = (math.log(share) + level for share in _NOISE_SHARES)
        if not low <= theta[place] <= high:
            moved[place] = math.log(_USUAL_SHARE) + level
            lost = abs(theta[place] - level) > math.log(_ROUNDING_RANGE)
        away = level - math.log(variance) if variance > 0 else 0.0
        if rescaling is not None and abs(away) > math.log(_VARIANCE_RANGE):
            moved += away * rescaling
            lost = lost or abs(away) > math.log(_ROUNDING_RANGE)
    shorter = moved - _SHORTER * _lengthscales(names)
    starts = [Start(moved), Start(shorter)]
    if lost or np.array_equal(moved, theta):
        return starts
    return [*starts, Start(theta)]


def _lengthscales(names: list[str]) -> np.ndarray:
    return np.array(["lengthscale" in name.rpartition("__")[2] for name in names])


def maximise(
    objectives: Sequence[Objective],
    names: list[str],
    starts: list[Start],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
    smooth: Objective | None = None,
) -> np.ndarray:
    """Return θ where L-BFGS-B finds the largest value, from several starts.

    All starts are descended roughly on the first objective; the ends are compared on
    the last, and the best is descended on that.

    Parameters
    ----------
    objectives : sequence of callables
        Each returns a value at θ and its gradient: of some rows, and of all.
    names : list of str
        Of the entries of θ.
    starts : list of Start
        The first ones; restarts are about the first.
    limits : list of (float, float)
        From :func:`bounds`.
    n_restarts : int
    stream : Stream
    smooth : callable, optional
        An objective with fewer maxima: its best end is one more start.
    """
    low, high = np.transpose(limits)
    starts = [Start(start.theta.clip(low, high), start.staged) for start in starts]
    coarse, fine = objectives[0], objectives[-1]
    lengthscales = _lengthscales(names)
    with warnings.catch_warnings():
        # Trial values may be ill conditioned; the value that is returned warns again.
        warnings.simplefilter("ignore", IllConditionedWarning)
        more = []
        if smooth is not None:
            ends = [_rough_end(smooth, start, limits, lengthscales) for start in starts]
            more = [Start(min(ends, key=lambda end: end.fun).x, False)]
        for index in range(n_restarts):
            generator = stream.child("restart", index).generator()
            moved = starts[0].theta + _SPREAD * generator.normal(size=len(names))
            more.append(Start(moved.clip(low, high)))
        ends = [
            _rough_end(coarse, start, limits, lengthscales)
            for start in (*starts, *more)
        ]
        candidates = _distinct(ends)
        steps: np.ndarray | float = _STEP
        if fine is not coarse:
            candidates.sort(key=lambda end: _negative(fine, end.x)[0])
            steps = _uncertainties(coarse, candidates[0].x)
        best = candidates[0].x
        result = _descend(fine, best, limits, _IMPROVEMENT, 15_000, steps)
    _warn_of_the_end(result, names, limits)
    return result.x


def _uncertainties(objective: Objective, theta: np.ndarray) -> np.ndarray:
    """Return by how much each logarithm alone may move near a maximum."""
    slopes = [_negative(objective, theta)[1]]
    slopes += [
        _negative(objective, theta + _DIFFERENCE * unit)[1]
        for unit in np.eye(len(theta))
    ]
    curvature = np.diagonal(np.array(slopes[1:]) - slopes[0]) / _DIFFERENCE
    least, largest = _STEPS
    return curvature.clip(largest**-2, least**-2) ** -0.5


def _rough_end(
    objective: Objective,
    start: Start,
    limits: list[tuple[float, float]],
    lengthscales: np.ndarray,
) -> Any:
    """Return what L-BFGS-B found from one start, well enough to compare it."""
    theta = start.theta
    if start.staged and not lengthscales.all():
        # Noise and scales first: where they are far off, the slope along lengthscales
        # leads away, into a maximum that explains the noise by short ones.
        held = [
            (x, x) if along else limit
            for x, along, limit in zip(theta, lengthscales, limits, strict=True)
        ]
        theta = _descend(objective, theta, held, _ROUGH_IMPROVEMENT, 10).x
    return _descend(objective, theta, limits, _COMPARING_IMPROVEMENT, 100)


def _distinct(ends: list[Any]) -> list[Any]:
    """Return the best few ends, of those that are one maximum the best."""
    kept: list[Any] = []
    for end in sorted(ends, key=lambda end: end.fun):
        if all(abs(end.x - other.x).max() > _SAME for other in kept):
            kept.append(end)
    return kept[:_MOST_CANDIDATES]


def _negative(objective: Objective, theta: np.ndarray) -> tuple[float, np.ndarray]:
    try:
        value, gradient = objective(theta)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(theta))
    return -value, -gradient


def _descend(
    objective: Objective,
    start: np.ndarray,
    limits: list[tuple[float, float]],
    share: float,
    most: int,
    steps: np.ndarray | float = 1.0,
) -> Any:
    """Return the result of L-BFGS-B in units of `steps`; its x is θ itself."""
    units = np.ones(len(start)) * steps

    def scaled(moves: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _negative(objective, start + units * moves)
        return value, units * gradient

    low, high = np.transpose(limits)
    result = scipy.optimize.minimize(
        scaled,
        np.zeros(len(start)),
        jac=True,
        method="L-BFGS-B",
        bounds=np.transpose([(low - start) / units, (high - start) / units]),
        options={"ftol": share, "maxiter": most},
    )
    result.x = (start + units * result.x).clip(low, high)
    result.jac = result.jac / units
    return result


def _warn_of_the_end(
    result: Any, names: list[str], limits: list[tuple[float, float]]
) -> None:
    """Warn where learning did not end in a maximum between the bounds."""
    if not np.isfinite(result.fun):
        reason = "the likelihood could not be evaluated at any start"
    elif not result.success and _is_steep(result):
        reason = f"L-BFGS stopped early ({result.message})"
    else:
        ended = [
            f"{name} = {math.exp(x):.3g} at its {side} bound"
            for name, x, limit in zip(names, result.x, limits, strict=True)
            for side, bound in zip(("lower", "upper"), limit, strict=True)
            if abs(x - bound) < _TOUCHING and not _is_usual(name, side, names)
        ]
        if not ended:
            return
        reason = f"learning ended with {', '.join(ended)}"
    warnings.warn(
        f"{reason}: the likelihood may have no maximum for these rows. Start "
        "elsewhere, set n_restarts_optimizer, scale the targets (normalize_y=True of "
        "regression), or keep what was given (optimizer=None).",
        ConvergenceWarning,
        stacklevel=6,  # the call of fit
    )


def _is_usual(name: str, side: str, names: list[str]) -> bool:
    """Return whether it is no fault of learning that a hyperparameter is on a bound."""
    if side == "lower":
        return False
    # A column that does not matter has a lengthscale as long as it may be; classes
    # that are separated with certainty (there is no noise) have the largest scale.
    return "[" in name or ("noise" not in names and name.rpartition("__")[2] == "scale")


def _is_steep(result: Any) -> bool:
    return abs(result.jac).max() > max(1.0, 1e-3 * abs(result.fun))
