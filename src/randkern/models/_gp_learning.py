"""Learning hyperparameters: the choice of rows, and maximising the evidence.

Learning has up to three stages (:func:`maximise`): the exact likelihood of 300 rows, of
which an evaluation is cheapest, the likelihood on features of 500 to 1,000 rows, and
that of all rows, of which an evaluation takes O(nD²) operations. L-BFGS-B maximises the
first from three starts, which have the given lengthscales, a quarter of them and four
times them; of the latter, columns with an evident effect have a quarter. In the others
the ends of the last stage and the starts are compared, each with its best scale and
noise, and L-BFGS-B continues from the best, in coordinates in which the curvature of
the last stage is the identity. The comparison is for isotropic kernels, whose best
lengthscale for 300 rows is too short for features of all rows: without it learning may
end in a constant (the synthetic rows below). The curvature and the second stage
save evaluations of all rows: without them kin40k took 51 instead of 27 (2.8e11
operations), parkinsons 41 instead of 38, and ended at 1160.4.

The log likelihood and the operations of learning by L-BFGS of 300 rows, then of a
quarter of them, then BFGS of all, without comparisons, and now (5,000 rows of tables,
500 features, one lengthscale per column):

    rows                          log likelihood         operations
    airfoil                      −514.8 →   −506.8    5.1e10 → 5.6e10
    bike                         −297.3 →   −294.2    1.2e11 → 1.8e11
    concrete                     −394.2 →   −411.4    8.7e10 → 4.9e10
    elevators                   −2514.0 →  −2536.8    1.2e11 → 1.4e11
    energy                       1145.5 →   1145.5    5.2e10 → 7.3e10
    kin40k                      −2848.8 →  −2848.1    7.5e10 → 1.4e11
    parkinsons                   1265.5 →   1711.5    1.5e11 → 2.0e11
    pumadyn32nm                 −7094.7 →    628.3    3.3e10 → 1.8e11
    skillcraft                  −3288.0 →  −3284.4    5.5e10 → 7.9e10
    synthetic 10,000             1109.5 →   1111.8    9.6e10 → 9.3e10

One lengthscale for all columns:

    kin40k                      −4075.9 →  −4075.8    5.7e10 → 8.7e10
    skillcraft                  −3329.7 →  −3329.7    2.5e10 → 5.5e10
    synthetic 10,000, D = 300  −14185.8 → −12094.7    1.4e10 → 2.3e10
    synthetic 10,000, D = 1,000 −8576.8 →  −8575.9    1.8e11 → 3.6e11

Where several maxima differ by the draws of the features, as for concrete and
elevators, neither way always ends in the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
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
# Rows of the sample whose exact likelihood is maximised first, and the least and the
# largest number of those whose likelihood on features is maximised next.
FIRST_ROWS = 300
_MIDDLE_ROWS = (500, 1000)
# Evaluations of all rows end after this many operations, but never after fewer than
# this many evaluations, nor after more.
_OPERATIONS_OF_ALL = 6e11
_MIN_EVALUATIONS = 10
_MAX_EVALUATIONS = 300
# An ascent ends if two steps gain less log likelihood: if evaluations are expensive, a
# gain without effect on predictive densities, above rounding in single precision.
_TOLERANCE = 1e-4
_SAMPLED_TOLERANCE = 0.2
_TOLERANCE_PER_ROW = 1e-4
# Steps whose curvature L-BFGS-B remembers.
_MEMORY = 50
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
# Largest weight: weights are multiplied by squares of targets.
_LARGEST_WEIGHT = 1e60
# Starts have the given lengthscales, and these times these. From too short ones,
# learning may end where the process explains nothing, from too long ones where its
# scale compensates.
_LENGTHSCALES = (0.25, 4.0)
# Columns that correlate with the targets by this many standard errors are evident.
_SIGNIFICANT = 3.5
# Largest factor by which a sample may lengthen the longest lengthscale of the starts:
# slopes fall with its square, so that all rows would hardly change it any more.
_FARTHER = 4.0
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


def rows_of_stages(
    rows: ArrayRows, plan: Plan | None, has_lengthscales: bool, stream: Stream
) -> list[tuple[ArrayRows, Plan | None]]:
    """Return the rows of every stage, and their features, None for the exact kernel.

    The first 300 are for finding lengthscales, for which the exact kernel is cheapest.
    """
    stages = [(rows, plan)]
    least, most = _MIDDLE_ROWS
    if plan is not None and rows.n_rows > least:
        size = min(max(rows.n_rows // 4, least), most)
        stages.insert(0, (uniform_sample(rows, size, stream.child("middle")), plan))
    few = uniform_sample(rows, FIRST_ROWS, stream.child("smooth"))
    if few is not rows or (plan is not None and has_lengthscales):
        stages.insert(0, (few, None if has_lengthscales else plan))
    return stages


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


def log_prior(
    names: list[str], priors: dict[str, Any] | None, signed: Collection[str] = ()
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the log density of θ, up to a constant, as a function with its gradient.

    ``{name: (median, sigma)}`` is a log-normal prior: the logarithm is normal with the
    standard deviation sigma.
    """
    centre, precision = np.zeros(len(names)), np.zeros(len(names))
    for key, pair in _general_first(priors, names, "priors"):
        median, sigma = _pair(key, pair, "priors", "(median, sigma)")
        for place in places(key, names, "priors"):
            if names[place] in signed:
                raise ValueError(
                    f"priors are log-normal, but {names[place]!r} may be negative."
                )
            centre[place], precision[place] = math.log(median), sigma**-2

    def density(theta: np.ndarray) -> tuple[float, np.ndarray]:
        pull = precision * (theta - centre)
        return -0.5 * float(pull @ (theta - centre)), -pull

    return density


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
    rows: ArrayRows | None = None,
) -> list[np.ndarray]:
    """Return starts in the units of the targets, with several lengthscales.

    `level` is the mean square of the targets relative to their variance at θ. The
    share of the noise is that of θ; `rescaling` is the direction in θ that multiplies
    the kernel by e. If it is 0, variances and squares of signed numbers are multiplied.
    The start with long lengthscales has short ones for the :func:`evident_columns` of
    `rows`, if there is one per column.
    """
    moved = theta.copy()
    if "noise" in names and level > 0:
        direction = rescaling.copy()
        direction[names.index("noise")] = 1.0
        if not rescaling.any():
            ends = [name.rpartition("__")[2].partition("[")[0] for name in names]
            direction += [float(end == "variances") for end in ends]
            are_signed = np.array([name in signed for name in names])
            numbers = np.sinh(theta[are_signed]) * math.sqrt(level)
            moved[are_signed] = np.arcsinh(numbers)
        moved += math.log(level) * direction
    are_lengthscales = _lengthscales(names)
    if not are_lengthscales.any():
        return [moved]
    shorter, longer = (moved + math.log(x) * are_lengthscales for x in _LENGTHSCALES)
    for path in dict.fromkeys(name.partition("[")[0] for name in names):
        entries = [i for i, name in enumerate(names) if name.startswith(f"{path}[")]
        is_lengthscale = path.rpartition("__")[2] == "lengthscale"
        if rows is None or not is_lengthscale or len(entries) != rows.X.shape[1]:
            continue
        evident = evident_columns(rows)
        longer[entries] = np.where(evident, shorter[entries], longer[entries])
    return [moved, shorter, longer]


def evident_columns(rows: ArrayRows) -> np.ndarray:
    """Return which columns the targets evidently depend on, one by one.

    Those whose values or distances from the mean correlate with the targets or with
    their distances from the mean. The latter show columns that matter together with
    others only, such as each factor of a product.
    """
    ops = ops_of(rows.X)
    X, Y = ops.densified(rows.X), ops.as_float64(rows.Y)
    X = X - ops.xp.mean(X, axis=0)
    Y = Y - ops.xp.mean(Y, axis=0)
    evident = np.zeros(X.shape[1], dtype=bool)
    for columns in (X, abs(X)):
        columns = columns - ops.xp.mean(columns, axis=0)
        for targets in (Y, abs(Y)):
            targets = targets - ops.xp.mean(targets, axis=0)
            products = columns.T @ targets
            squares = (columns**2).sum(axis=0)[:, None] * (targets**2).sum(axis=0)
            exceeds = rows.n_rows * products**2 > _SIGNIFICANT**2 * squares
            evident |= ops.to_host(exceeds).any(axis=1)
    return evident


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
    any of them. Where evaluations are cheap, the best few are. Restarts are drawn
    around the first start. `report` is called with the number of each step and its θ;
    learning ends if it returns True.
    """
    low, high = np.transpose(limits)
    starts = [*starts]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        starts.append(starts[0] + _SPREAD * generator.normal(size=len(names)))
    width = math.sqrt(FIRST_ROWS) * np.eye(len(names))
    first = [_Point(start.clip(low, high), width) for start in starts]
    search = _Search(low, high, report)
    with ignoring(IllConditionedWarning, ConvergenceWarning):
        # Systems at trial values may be ill conditioned, or modes hard to find; the
        # returned value warns again.
        points = [search.rescaled(stages[0], point) for point in first]
        ends = [search.ascent(stages[0], point) for point in points]
        farthest = np.max([point.theta for point in first], axis=0)
        farthest[_lengthscales(names)] += math.log(_FARTHER)
        farthest[~_lengthscales(names)] = math.inf
        for stage in stages[1:]:
            ends = [replace(end, theta=end.theta.clip(None, farthest)) for end in ends]
            points = [search.rescaled(stage, x) for x in _distinct(ends) + first]
            points = _distinct(points)
            likely = points[0].value - _LIKELY if stage.is_cheap else points[0].value
            points = [point for point in points if point.value >= likely]
            ends = [search.ascent(stage, point) for point in points]
    end = max(ends, key=lambda end: end.value)
    if not search.stop:
        _warn_of_the_end(end, names, limits, stages[-1].n_rows)
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
        self.low, self.high = low, high
        self.report, self.count, self.stop = report, 0, False

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
