"""Learning hyperparameters: the choice of rows, and maximising the evidence.

Learning has two stages (:func:`maximise`). The first maximises the exact likelihood of
300 rows from three starts, which have the given lengthscales, a quarter of them and
four times them. The ends and the starts are compared by the likelihood of all rows,
each with its best scale and noise, and the second stage continues from the best. The
first stage saves evaluations of all rows, of which each takes O(nD²) operations; the
comparison is for isotropic kernels, whose best lengthscale for 300 rows is too short
for features of all rows. The units of the logarithms come from the first stage: the
deviations of the diagonal of L-BFGS-B's inverse curvature.

Without the comparison, learning took the end for 300 rows as the start, and an ascent
could end in a constant. The evidence and the operations of learning, before and now:

    rows, D, kernel                  evidence                 operations
    synthetic 10,000, 300, iso       −12109.3 → −12109.2      6.0e10 → 2.7e10
    synthetic 10,000, 1,000, iso      −8565.6 →  −8564.9      1.8e11 → 3.4e11
    synthetic 10,000, 300, ARD         1039.4 →   1078.5      6.2e10 → 1.4e11
    synthetic 30,000, 1,000, iso     −42550.3 → −21440.2      6.3e10 → 7.2e11
    airfoil, 500, ARD                  −496.7 →   −484.3      4.3e10 → 5.0e10
    concrete, 500, ARD                 −396.2 →   −388.2      6.0e10 → 1.1e11
    skillcraft, 500, ARD              −2975.7 →  −2974.8      6.9e10 → 8.5e10
    parkinsons, 500, ARD               3139.3 →   3049.7      2.5e11 → 4.1e11

ARD is one lengthscale per column. The last row is lower: L-BFGS-B starts without
the curvature between logarithms, of which the sample knows all. Coordinates in which
that curvature is the identity would give it, but bounds of single logarithms are no
bounds of single coordinates there, and L-BFGS-B takes no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from randkern._random import Stream
from randkern._warnings import ignoring, warn
from randkern.backend.namespace import ops_of
from randkern.data import rows_within
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.exceptions import IllConditionedWarning
from randkern.plan import Plan

# Most operations per evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_MIN_ROWS = 2000
# Memory of the sample of rows that are not in memory.
_SAMPLE_BYTES = 64 * 10**6
# Rows of the sample whose exact likelihood is maximised first.
FIRST_ROWS = 300
# Evaluations of all rows end after this many operations, but never after fewer than
# this many evaluations, nor after more.
_OPERATIONS_OF_ALL = 6e11
_MIN_EVALUATIONS = 10
_MAX_EVALUATIONS = 300
# An ascent ends with a step that gains less log likelihood: if evaluations are
# expensive, a gain without effect on predictive densities.
_TOLERANCE = 1e-4
_SAMPLED_TOLERANCE = 1e-3
_TOLERANCE_PER_ROW = 2e-5
# Largest ratio of the units of logarithms to their median.
_RATIO = 10.0
# Largest change of a logarithm in the first step.
_FIRST_STEP = 0.5
# A larger gain per row in the last step is worth a warning.
_UNFINISHED = 0.1
# Ends this close in every logarithm count as the same maximum.
_SAME = 0.1
# Maxima to continue from where evaluations are cheap, within this of the best.
_MAX_CANDIDATES = 2
_LIKELY = 5.0
# Standard deviation by which a restart moves each logarithm.
_SPREAD = math.log(4.0)
# Largest factor by which learning may change a lengthscale.
_LENGTHSCALE_RANGE = 1e3
# Names of parameters that scale with the variance of the targets.
_SCALES = ("scale", "variances", "weights")
# Bounds of the noise, relative to the mean square of the targets. Without them the
# likelihood of noiseless targets would be unbounded; below the square root of float64's
# epsilon half of the digits of a covariance are rounding errors.
_NOISE_SHARES = (1e-8, 1e2)
# Beyond this factor there are only rounding errors.
_ROUNDING_RANGE = 1e20
# Largest weight: weights are multiplied by squares of targets.
_LARGEST_WEIGHT = 1e60
# Starts have the given lengthscales times these. From too short ones, learning may end
# where the process explains nothing, from too long ones where its scale compensates.
_LENGTHSCALES = (1.0, 0.25, 4.0)
# A process with a smaller share of the variance of the noise, or a smaller variance of
# log odds, is worth a warning.
_NEGLIGIBLE_SHARE = 1e-2
_NEGLIGIBLE_VALUES = 1e-4
# Logarithms this close to a bound count as on it.
_TOUCHING = 1e-3

# Called with the number of a step and its θ; returns whether to stop.
Report = Callable[[int, np.ndarray], bool]
# Returns the value at θ and its gradient, which may be skipped.
Objective = Callable[..., tuple[float, np.ndarray]]


def learning_rows(
    rows: TrainingData, plan: Plan | None, stream: Stream, most: int = 0
) -> ArrayRows:
    """Return rows to learn from, in float64, without those of weight 0.

    All rows for the exact kernel; for features a uniform sample of `most` rows, or (0)
    as many as 10¹¹ operations per evaluation allow, but at least 2,000. For rows that
    are not in memory, at most as many as fit in 64 MB.
    """
    n = rows.n_rows
    usable: Any = np.arange(n)
    if rows.in_memory and (weight := rows.as_arrays().weight) is not None:
        usable = ops_of(weight).flatnonzero(weight)
    if plan is not None:
        most = most or most_learning_rows(plan.n_components)
        if not rows.in_memory:
            row_bytes = 8 * (rows.like.shape[1] + rows.n_targets + 1)
            most = min(most, rows_within(_SAMPLE_BYTES, row_bytes, at_least=_MIN_ROWS))
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
            "no sampled row has a positive weight; remove rows with sample_weight 0."
        )
    return ArrayRows(X, Y, weight)


def most_learning_rows(n_components: int) -> int:
    """Return the largest number of rows for learning with this many features."""
    return max(_MIN_ROWS, int(_OPERATIONS / (4.0 * n_components**2)))


def uniform_sample(rows: ArrayRows, most: int, stream: Stream) -> ArrayRows:
    """Return a sample of at most this many rows: all if they are few."""
    if rows.n_rows <= most:
        return rows
    drawn = stream.generator().choice(rows.n_rows, most, replace=False)
    return rows.take(np.sort(drawn))


def bounds(
    names: list[str],
    theta: np.ndarray,
    centre: np.ndarray,
    mean_square: float,
    variance: float,
    scale_range: float,
    given: dict[str, Any],
    signed: Collection[str] = (),
) -> list[tuple[float, float]]:
    """Return the least and the largest value of every entry of θ, around a centre.

    A scale may change by `scale_range`, also from the mean square and the variance of
    the targets if there is a noise. Numbers named in `signed` may have both signs, and
    the size of the targets. Fixed entries are those of `theta`. Bounds that the user
    has given replace these.
    """
    # Targets that are all equal do not determine their scale.
    level, spread = (
        math.log(size) if size > 0 else 0.0 for size in (mean_square, variance)
    )
    targets = [level, spread] if "noise" in names else []
    sizes = [math.exp(size / 2) for size in targets]
    sizes += [
        abs(math.sinh(start))
        for name, start in zip(names, centre, strict=True)
        if name in signed
    ]
    out = []
    for name, start in zip(names, centre, strict=True):
        if name in signed:
            reach = math.asinh(math.sqrt(scale_range) * max(sizes))
            out.append((-reach, reach))
        elif name == "noise":
            low, high = (math.log(share) + level for share in _NOISE_SHARES)
            out.append((min(start, low), max(start, high)))
        else:
            is_scale = name.rpartition("__")[2].partition("[")[0] in _SCALES
            around = [start, *targets] if is_scale else [start]
            reach = math.log(scale_range if is_scale else _LENGTHSCALE_RANGE)
            out.append((min(around) - reach, max(around) + reach))
    for key, pair in _general_first(given, names, "bounds"):
        for place in places(key, names, "bounds"):
            if isinstance(pair, str) and pair == "fixed":
                out[place] = (float(theta[place]),) * 2
                continue
            positive = names[place] not in signed
            low, high = _pair(key, pair, "bounds", "(low, high), or 'fixed'", positive)
            if low > high:
                raise ValueError(f"bounds of {key!r} must ascend, got {pair!r}.")
            unit = math.log if positive else math.asinh
            out[place] = (unit(low), unit(high))
    return out


def with_priors(
    objective: Objective,
    names: list[str],
    priors: dict[str, Any] | None,
    signed: Collection[str] = (),
) -> Objective:
    """Return a log likelihood plus the log density of θ, up to a constant.

    ``{name: (median, sigma)}`` is a log-normal prior: the logarithm is normal with the
    standard deviation sigma.
    """
    if not priors:
        return objective
    centre, precision = np.zeros(len(names)), np.zeros(len(names))
    for key, pair in _general_first(priors, names, "priors"):
        median, sigma = _pair(key, pair, "priors", "(median, sigma)")
        for place in places(key, names, "priors"):
            if names[place] in signed:
                raise ValueError(
                    f"priors are log-normal, but {names[place]!r} may be negative."
                )
            centre[place], precision[place] = math.log(median), sigma**-2

    def posterior(theta: np.ndarray, gradient: bool = True) -> Any:
        value, slope = objective(theta, gradient)
        pull = precision * (theta - centre)
        return value - 0.5 * float(pull @ (theta - centre)), slope - pull

    return posterior


def places(key: str, names: list[str], what: str) -> list[int]:
    """Return the positions in θ of a name: one entry, or all of an attribute."""
    found = []
    for place, name in enumerate(names):
        path = name.partition("[")[0]
        if key in (name, path, *(each.rpartition("__")[2] for each in (name, path))):
            found.append(place)
    if not found:
        raise ValueError(
            f"{what} name {key!r}, which is not learned; expected some of {names}."
        )
    return found


def _general_first(
    given: dict[str, Any] | None, names: list[str], what: str
) -> list[tuple[str, Any]]:
    """Return the items, those for fewer entries last, so that these override others."""
    pairs = (given or {}).items()
    return sorted(pairs, key=lambda pair: -len(places(pair[0], names, what)))


def _pair(
    key: str, pair: Any, what: str, expected: str, positive: bool = True
) -> tuple[float, ...]:
    values = np.asarray(pair, dtype=float) if np.ndim(pair) == 1 else np.empty(0)
    in_range = np.isfinite(values) & ((values > 0) | (not positive))
    if values.shape != (2,) or not np.all(in_range):
        kind = "positive" if positive else "finite"
        raise ValueError(
            f"{what}[{key!r}] must be {expected}, of {kind} numbers, got {pair!r}."
        )
    return tuple(values.tolist())


def starting_points(
    names: list[str],
    theta: np.ndarray,
    level: float,
    rescaling: np.ndarray,
    signed: Collection[str] = (),
) -> list[np.ndarray]:
    """Return starts in the units of the targets, with several lengthscales.

    `level` is the mean square of the targets relative to their variance at θ. The
    share of the noise is that of θ; `rescaling` is the direction in θ that multiplies
    the kernel by e. If it is 0, variances and squares of signed numbers are multiplied.
    """
    moved = theta.copy()
    if "noise" in names and level > 0:
        direction = rescaling.copy()
        direction[names.index("noise")] = 1.0
        if not rescaling.any():
            direction += _variances(names)
            are_signed = np.array([name in signed for name in names])
            numbers = np.sinh(theta[are_signed]) * math.sqrt(level)
            moved[are_signed] = np.arcsinh(numbers)
        moved += math.log(level) * direction
    are_lengthscales = _lengthscales(names)
    factors = _LENGTHSCALES if are_lengthscales.any() else (1.0,)
    return [moved + math.log(factor) * are_lengthscales for factor in factors]


def _lengthscales(names: list[str]) -> np.ndarray:
    return np.array(["lengthscale" in name.rpartition("__")[2] for name in names])


@dataclass(frozen=True)
class Units:
    """The entries of θ with signed numbers w in units of the targets.

    They are asinh(w/unit) here and asinh(w) in θ. Learning would not cross 0 where it
    is far away in asinh(w), and would end near 0 where slopes in it vanish.
    """

    are_signed: np.ndarray
    unit: float

    def of(self, theta: np.ndarray) -> np.ndarray:
        """Return the entries in these units."""
        return self._changed(theta, 1.0 / self.unit)

    def theta(self, entries: np.ndarray) -> np.ndarray:
        """Return θ."""
        return self._changed(entries, self.unit)

    def _changed(self, entries: np.ndarray, factor: float) -> np.ndarray:
        numbers = factor * np.sinh(entries[self.are_signed])
        out = entries.copy()
        out[self.are_signed] = np.arcsinh(numbers)
        return out

    def change(
        self, change: Callable[[np.ndarray], np.ndarray]
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a change of θ as one of the entries in these units."""
        return lambda entries: self.of(change(self.theta(entries)))

    def objective(self, objective: Objective) -> Objective:
        """Return an objective of θ as one of the entries in these units."""

        def of_entries(entries: np.ndarray, gradient: bool = True) -> Any:
            value, slope = objective(self.theta(entries), gradient)
            signed = entries[self.are_signed]
            by_number = self.unit * np.cosh(signed)
            slope = np.array(slope, dtype=float)
            slope[self.are_signed] *= by_number / np.hypot(
                1.0, self.unit * np.sinh(signed)
            )
            return value, slope

        return of_entries


def _variances(names: list[str]) -> np.ndarray:
    ends = [name.rpartition("__")[2].partition("[")[0] for name in names]
    return np.array([end == "variances" for end in ends], dtype=float)


@dataclass(frozen=True)
class Stage:
    """A log likelihood of some rows, to be maximised.

    `rescaled` returns θ with the best scale and noise at its lengthscales, if they are
    cheap to find.
    """

    objective: Objective
    n_rows: int = 1
    max_evaluations: int = _MAX_EVALUATIONS
    tolerance: float = _TOLERANCE
    rescaled: Callable[[np.ndarray], np.ndarray] = lambda theta: theta

    @classmethod
    def of(
        cls, evidence: Any, objective: Objective, rescaled: Any, is_sample: bool
    ) -> Stage:
        """Return the stage for the log marginal likelihood of rows, with its priors."""
        affordable = int(_OPERATIONS_OF_ALL / evidence.operations)
        # Rounding and estimates affect where learning ends, so they are used only to
        # save time.
        evidence.precise = is_sample or affordable >= _MAX_EVALUATIONS
        tolerance = _SAMPLED_TOLERANCE if is_sample else _TOLERANCE
        if not evidence.precise:
            affordable = int(_OPERATIONS_OF_ALL / evidence.operations)
            tolerance = _TOLERANCE_PER_ROW * evidence.rows.n_rows
        evaluations = min(max(affordable, _MIN_EVALUATIONS), _MAX_EVALUATIONS)
        n_rows = evidence.rows.n_rows
        return cls(objective, n_rows, evaluations, tolerance, rescaled)

    @property
    def is_cheap(self) -> bool:
        """Whether evaluations are cheap enough for several ascents."""
        return self.max_evaluations == _MAX_EVALUATIONS


def maximise(
    sampled: Stage,
    full: Stage,
    names: list[str],
    starts: list[np.ndarray],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
    report: Report | None = None,
) -> np.ndarray:
    """Return θ that maximises the likelihood of all rows.

    The likelihood of a sample is maximised from every start, by L-BFGS-B. All ends and
    all starts are then compared by the likelihood of all rows, at the best scale and
    noise for each, and the best is improved by L-BFGS-B, so that the result is no less
    likely than any of them. Where evaluations are cheap, the best few are. Restarts are
    drawn around the first start. `report` is called with the number of each step and
    its θ; learning ends if it returns True.
    """
    low, high = np.transpose(limits)
    starts = [*starts]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        starts.append(starts[0] + _SPREAD * generator.normal(size=len(names)))
    first = [_Point(start.clip(low, high), np.ones(len(names))) for start in starts]
    search = _Search(low, high, report)
    with ignoring(IllConditionedWarning, ConvergenceWarning):
        # Systems at trial values may be ill conditioned, or modes hard to find; the
        # returned value warns again.
        if sampled is full:
            points = [search.rescaled(full, x) for x in first]
        else:
            ends = [search.ascent(sampled, search.rescaled(sampled, x)) for x in first]
            points = [search.rescaled(full, x) for x in _distinct(ends) + first]
            likely = max(point.value for point in points) - _LIKELY
            points = [point for point in _distinct(points) if point.value >= likely]
        if not full.is_cheap:
            points = [max(points, key=lambda point: point.value)]
        ends = [search.ascent(full, point) for point in points]
    end = max(ends, key=lambda end: end.value)
    if not search.stop:
        _warn_of_the_end(end, names, limits, full.n_rows)
    return end.theta


@dataclass(frozen=True)
class _Point:
    """A point of the search: θ, its log likelihood, and the gain of the last step.

    `widths` are the units of the entries of θ in an ascent from it, such as the square
    roots of the diagonal of the inverse curvature.
    """

    theta: np.ndarray
    widths: np.ndarray
    value: float = -math.inf
    gain: float = 0.0


class _Search:
    """Ascents within common bounds, whose steps are counted and reported."""

    def __init__(self, low: np.ndarray, high: np.ndarray, report: Report | None):
        self.low, self.high = low, high
        self.report, self.count, self.stop = report, 0, False

    def rescaled(self, stage: Stage, point: _Point) -> _Point:
        """Return the point with the best scale and noise, and its likelihood."""
        theta = stage.rescaled(point.theta)
        value, _ = _negative(stage.objective, theta, gradient=False)
        return replace(point, theta=theta, value=-value)

    def ascent(self, stage: Stage, start: _Point) -> _Point:
        """Return the end of L-BFGS-B, which is no less likely than the start.

        The objective is divided by its gradient at the start, so that the first step,
        before any curvature is known, changes no logarithm by more than one half.
        """
        widths = start.widths
        first, slope = _negative(stage.objective, start.theta)
        steepest = float(abs(widths**2 * slope).max())
        if self.stop or not (math.isfinite(first) and 0 < steepest < math.inf):
            return replace(start, value=-first)
        unit = steepest / _FIRST_STEP
        values = [0.0]

        def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = first, slope
            if len(values) > 1 or not np.array_equal(numbers, start.theta / widths):
                value, gradient = _negative(stage.objective, widths * numbers)
            return (value - first) / unit, widths * gradient / unit

        def after_step(intermediate_result: Any) -> None:
            values.append(float(intermediate_result.fun))
            if self.report is not None:
                self.stop |= self.report(self.count, widths * intermediate_result.x)
                self.count += 1
            if self.stop:
                raise StopIteration

        result = scipy.optimize.minimize(
            loss,
            start.theta / widths,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([self.low / widths, self.high / widths], axis=1),
            options={
                "ftol": stage.tolerance / unit,
                "maxfun": stage.max_evaluations,
                "gtol": 0.0,
            },
            callback=after_step,
        )
        theta = (widths * result.x).clip(self.low, self.high)
        gain = unit * (values[-2] - values[-1]) if len(values) > 1 else 0.0
        deviations = widths * np.diag(result.hess_inv.todense()) ** 0.5
        widths = (deviations / np.median(deviations)).clip(1 / _RATIO, _RATIO)
        return _Point(theta, widths, -first - unit * float(result.fun), gain)


def _distinct(points: list[_Point]) -> list[_Point]:
    """Return the few most likely points, one per maximum, the best first."""
    chosen: list[_Point] = []
    for point in sorted(points, key=lambda point: -point.value):
        is_new = all(abs(point.theta - x.theta).max() > _SAME for x in chosen)
        if is_new:
            chosen.append(point)
    return chosen[:_MAX_CANDIDATES]


def _negative(
    objective: Objective, theta: np.ndarray, gradient: bool = True
) -> tuple[float, np.ndarray]:
    try:
        value, slope = objective(theta, gradient)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(theta))
    return -value, -slope


def _warn_of_the_end(
    end: _Point, names: list[str], limits: list[tuple[float, float]], n_rows: int
) -> None:
    """Warn if learning did not end in a maximum within the bounds."""
    if not np.isfinite(end.value):
        reason = "the likelihood could not be evaluated at any start"
    elif end.gain > max(1.0, _UNFINISHED * n_rows):
        reason = f"learning stopped early (the last step gained {end.gain:.3g})"
    else:
        ended = [
            f"{name} = {math.exp(x):.3g} at its {side} bound"
            for name, x, limit in zip(names, end.theta, limits, strict=True)
            for side, bound in zip(("lower", "upper"), limit, strict=True)
            if abs(x - bound) < _TOUCHING < limit[1] - limit[0]
            and not _is_usual(name, side, names)
        ]
        if not ended:
            return
        reason = f"learning ended with {', '.join(ended)}"
    warn(
        f"{reason}: the likelihood may have no maximum for these rows. Start "
        "elsewhere, set n_restarts_optimizer, scale the targets (normalize_y=True of "
        "regression), or keep what was given (optimizer=None).",
        ConvergenceWarning,
    )


def warn_of_a_constant(variance: float, log_noise: float | None) -> None:
    """Warn if the learned process hardly varies, compared to the noise if there is one.

    Values of f are compared to 1 otherwise: they are log odds or logarithms of rates.
    """
    compared, share = "", _NEGLIGIBLE_VALUES
    if log_noise is not None:
        noise = math.exp(log_noise)
        compared, share = f", that of the noise {noise:.3g}", _NEGLIGIBLE_SHARE * noise
    if not variance < share:
        return
    warn(
        f"the learned process is nearly constant: its variance is {variance:.3g}"
        f"{compared}. Either X says little about y, or learning missed lengthscales at "
        "which it says more: start from others, use one per column, or more features.",
        ConvergenceWarning,
    )


def _is_usual(name: str, side: str, names: list[str]) -> bool:
    """Return whether it is normal for a hyperparameter to be on this bound."""
    # An irrelevant column has the longest possible lengthscale, an output without a
    # part of its own the smallest variance; classes that are separated with certainty
    # (there is no noise) have the largest scale.
    if side == "lower":
        return "[" in name and "lengthscale" not in name
    # A Gaussian kernel is the limit of rational quadratic ones.
    last = name.rpartition("__")[2]
    return "[" in name or last == "alpha" or ("noise" not in names and last == "scale")
