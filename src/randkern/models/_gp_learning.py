"""Learning hyperparameters: which rows, and where the evidence is largest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
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

# Operations of one evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_LEAST_ROWS = 2000
# Memory of a sample of rows that are not in memory, in which they would not grow.
_SAMPLE_BYTES = 64 * 10**6
# Between the fewest rows and all of them: a sample of this share, within these bounds.
_COARSE_SHARE = 4
_COARSE_ROWS = (500, 1000)
_FEW_FEATURES = 512
# With few rows, the likelihood of the exact kernel is the cheapest.
_SMOOTH_ROWS = 300
_ROUGH_IMPROVEMENT = 1e-3
# Enough to tell which start leads to the best maximum.
_COMPARING_IMPROVEMENT = 1e-5
# Ends as close as this in every logarithm are one maximum.
_SAME = 0.1
_MOST_CANDIDATES = 3
# Ends whose log likelihood is this much less than the best are not gone on from.
_LIKELY = 5.0
# A stage ends where a step promises less of the log likelihood. Where evaluations are
# expensive, a few hundredths of a standard error of θ, and less per row, of which
# densities of predictions show nothing. On a share of the rows less than one unit is
# decided.
_PROMISE = 1e-8
_EXPENSIVE_PROMISE = 1e-3
_PROMISE_PER_ROW = 1e-4
_SAMPLED_PROMISE = 0.5
# Or where evaluations have taken so many operations, of a sample and of all rows, but
# never after fewer of them, and only after twice as many where steps still promise so
# much per row that densities of predictions show it.
_SAMPLED_OPERATIONS = 1.5e11
_LAST_OPERATIONS = 5e11
_FEWEST_EVALUATIONS = 7
_WORTH_PER_ROW = 1e-3
_MOST_EVALUATIONS = 300
# A step that would still gain more per row is worth a warning, and a noise that would
# is far off.
_UNFINISHED = 0.1
# By how much a step moves a logarithm at most, and what it must gain of its promise.
_LARGEST_STEP = 1.0
_FIRST_STEP = 0.1
_DECREASE = 1e-4
_MOST_TRIALS = 5
# How often the curvature may turn out to be useless.
_MOST_RESETS = 3
# A restart moves each number by a factor of about this (one standard deviation).
_SPREAD = math.log(4.0)
# How far learning may go from where it starts.
_LENGTHSCALE_RANGE = 1e3
# Names of numbers that are multiples of variances of the targets.
_SCALES = ("scale", "variances", "weights")
# Shares of the mean square of the targets that the noise may take. Targets without
# noise would otherwise make the likelihood grow without bound; below the root of
# float64's epsilon half of the digits of a covariance are rounding errors.
_NOISE_SHARES = (1e-8, 1e2)
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

# Returns a value at θ and, unless told not to, its gradient.
Report = Callable[[int, np.ndarray], bool]
Objective = Callable[..., tuple[float, np.ndarray]]


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
    """Return a uniform sample to learn from first: all rows where they are few."""
    least, largest = _COARSE_ROWS
    most = min(max(rows.n_rows // _COARSE_SHARE, least), largest)
    return _uniform_sample(rows, most, stream)


def few_features(n_components: int) -> int:
    """Return how many features are learned on first: all where there are not many."""
    return _FEW_FEATURES if n_components >= 2 * _FEW_FEATURES else n_components


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
    signed: Collection[str] = (),
) -> list[tuple[float, float]]:
    """Return the least and the largest value of every entry of θ.

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
    signed : collection of str
        Names of numbers that may be negative: either sign is allowed, whatever the
        start, and values of the size of the targets.
    """
    # Targets that are all equal say nothing of their size.
    level, spread = (
        math.log(size) if size > 0 else 0.0 for size in (mean_square, variance)
    )
    sizes = [math.exp(size / 2) for size in (level, spread) if "noise" in names]
    sizes += [
        abs(math.sinh(start))
        for name, start in zip(names, theta, strict=True)
        if name in signed
    ]
    out = []
    for name, start in zip(names, theta, strict=True):
        if name in signed:
            reach = math.asinh(math.sqrt(scale_range) * max(sizes))
            out.append((-reach, reach))
        elif name == "noise":
            low, high = (math.log(share) + level for share in _NOISE_SHARES)
            out.append((min(start, low), max(start, high)))
        elif name.rpartition("__")[2].partition("[")[0] in _SCALES:
            reach = math.log(scale_range)
            sizes_of_scales = [start]
            if "noise" in names:
                sizes_of_scales += [level, spread]
            out.append((min(sizes_of_scales) - reach, max(sizes_of_scales) + reach))
        else:
            reach = math.log(_LENGTHSCALE_RANGE)
            out.append((start - reach, start + reach))
    return out


def given_bounds(
    limits: list[tuple[float, float]],
    theta: np.ndarray,
    names: list[str],
    given: dict[str, Any] | None,
    signed: Collection[str] = (),
) -> list[tuple[float, float]]:
    """Return the bounds with those that the user has given in their place.

    `signed` are the names of numbers that may be negative.
    """
    limits = list(limits)
    for key, pair in _general_first(given, names, "bounds"):
        for place in places(key, names, "bounds"):
            if isinstance(pair, str) and pair == "fixed":
                limits[place] = (float(theta[place]),) * 2
                continue
            positive = names[place] not in signed
            low, high = _pair(key, pair, "bounds", "(low, high), or 'fixed'", positive)
            if low > high:
                raise ValueError(f"bounds of {key!r} must ascend, got {pair!r}.")
            unit = math.log if positive else math.asinh
            limits[place] = (unit(low), unit(high))
    return limits


def with_priors(
    objective: Objective,
    names: list[str],
    priors: dict[str, Any] | None,
    signed: Collection[str] = (),
) -> Objective:
    """Return a log likelihood plus the log density of θ, but for a constant.

    ``{name: (median, sigma)}`` is a log-normal law: the logarithm is normal with the
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
    """Return which entries of θ a name stands for: one, or all of an attribute."""
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
    """Return what names stand for, those of fewer entries last, which so prevail."""
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


@dataclass(frozen=True)
class Stage:
    """An objective of `n_rows` rows, to be climbed in at most `most` evaluations.

    The limit doubles while a step still promises 10⁻³ per row.

    `fewer_features` is true if the process has fewer features than in the stage
    before; its noise then has to account for what they no longer explain.
    """

    objective: Objective
    n_rows: int = 1
    most: int = _MOST_EVALUATIONS
    promise: float = _PROMISE
    fewer_features: bool = False

    @classmethod
    def of(
        cls,
        evidence: Any,
        objective: Objective,
        is_last: bool,
        fewer_features: bool = False,
    ) -> Stage:
        """Return the stage of a log marginal likelihood of rows, with its priors."""
        operations = _LAST_OPERATIONS if is_last else _SAMPLED_OPERATIONS
        affordable = int(operations / evidence.operations)
        # Rounding and estimates decide where learning ends: only to save time.
        evidence.precise = affordable >= _MOST_EVALUATIONS
        if is_last and not evidence.precise:
            affordable = int(operations / evidence.operations)
        most = min(max(affordable, _FEWEST_EVALUATIONS), _MOST_EVALUATIONS)
        n_rows, promise = evidence.rows.n_rows, _SAMPLED_PROMISE
        if is_last:
            promise = _PROMISE
            if not evidence.precise:
                promise = max(_EXPENSIVE_PROMISE, _PROMISE_PER_ROW * n_rows)
        return cls(objective, n_rows, most, promise, fewer_features)


@dataclass(frozen=True)
class _End:
    """Where a stage ended: θ, the value, the inverse curvature and what is left."""

    theta: np.ndarray
    value: float
    inverse: np.ndarray
    promise: float = 0.0


def maximise(
    stages: Sequence[Stage],
    names: list[str],
    starts: list[Start],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
    report: Report | None = None,
) -> np.ndarray:
    """Return θ where the last of some objectives is largest, from several starts.

    All starts are descended on the first, which costs least. Every further stage goes
    on from the ends of the one before with the curvature that was found, in proportion
    to the numbers of rows, so that few evaluations are left for the last. From all ends
    that are about as likely while evaluations are cheap, then from the one of the
    largest value.

    Parameters
    ----------
    stages : sequence of Stage
        Of few rows first, of all last.
    names : list of str
        Of the entries of θ.
    starts : list of Start
        The first ones; restarts are about the first.
    limits : list of (float, float)
        From :func:`bounds`.
    n_restarts : int
    stream : Stream
    report : callable, optional
        Called with the number of each step and θ there; learning ends if it returns
        True.
    """
    told = _Told(report)
    low, high = np.transpose(limits)
    starts = [Start(start.theta.clip(low, high), start.staged) for start in starts]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        moved = starts[0].theta + _SPREAD * generator.normal(size=len(names))
        starts.append(Start(moved.clip(low, high), False))
    first, lengthscales = stages[0].objective, _lengthscales(names)
    with warnings.catch_warnings():
        # Trial values may be ill conditioned, or modes of likelihoods hard to find
        # there; the value that is returned warns again.
        for category in (IllConditionedWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        ends = _distinct(
            [_rough_end(first, start, limits, lengthscales, told) for start in starts]
        )
        before = stages[0]
        for stage in stages[1:] or stages:
            if told.stop:
                break
            if stage.most < _MOST_EVALUATIONS and len(ends) > 1:
                ends = [max(ends, key=lambda end: _value(stage.objective, end.theta))]
            rows = before.n_rows / stage.n_rows
            if stage.fewer_features:
                # What these leave out of the process of the stage before is noise.
                ends = [
                    _made_up_for(stage, end, limits, lengthscales, told) for end in ends
                ]
            ends = _distinct(
                [
                    _climb(stage, end.theta, rows * end.inverse, limits, told)
                    for end in ends
                ]
            )
            before = stage
    if not told.stop:
        _warn_of_the_end(ends[0], names, limits, stages[-1].n_rows)
    return ends[0].theta


class _Told:
    """Counts steps, reports them, and keeps whether learning is to stop."""

    def __init__(self, report: Report | None):
        self.report, self.count, self.stop = report, 0, False

    def __call__(self, theta: np.ndarray) -> bool:
        if self.report is not None:
            self.stop = self.stop or self.report(self.count, theta)
            self.count += 1
        return self.stop


def _climb(
    stage: Stage,
    theta: np.ndarray,
    inverse: np.ndarray,
    limits: list[tuple[float, float]],
    told: _Told,
) -> _End:
    """Return the end of the method of Broyden, Fletcher, Goldfarb and Shanno.

    Nocedal & Wright 2006, eq. 6.17, projected to the bounds (Bertsekas 1982). It
    starts from an inverse curvature, which L-BFGS-B cannot.
    """
    low, high = np.transpose(limits)
    value, slope = _negative(stage.objective, theta)
    n_evaluations, n_resets, promise = 1, 0, 0.0
    most = 2 * stage.most
    while n_evaluations < most:
        free = ~((theta <= low) & (slope > 0) | (theta >= high) & (slope < 0))
        step = np.zeros(len(theta))
        step[free] = -inverse[np.ix_(free, free)] @ slope[free]
        step /= max(1.0, abs(step).max() / _LARGEST_STEP)
        gain = -float(slope @ step)
        promise = 0.5 * gain
        if not promise > stage.promise:
            break
        if n_evaluations >= stage.most and promise < _WORTH_PER_ROW * stage.n_rows:
            break
        length = 1.0
        for _ in range(min(_MOST_TRIALS, most - n_evaluations)):
            trial = (theta + length * step).clip(low, high)
            after, trial_slope = _negative(stage.objective, trial)
            n_evaluations += 1
            if after <= value - _DECREASE * length * gain:
                break
            # The least point of the parabola through both values.
            lost = (after - value) / (length * gain)
            length *= min(max(0.5 / (1.0 + lost), 0.1), 0.5)
        else:
            if n_resets == _MOST_RESETS:
                break
            n_resets += 1
            inverse = np.diag(_FIRST_STEP / np.maximum(abs(slope), 1.0))
            continue
        moved, turned = trial - theta, trial_slope - slope
        curvature = float(moved @ turned)
        if curvature > 1e-8 * np.linalg.norm(moved) * np.linalg.norm(turned):
            kept = np.eye(len(theta)) - np.outer(moved, turned) / curvature
            inverse = kept @ inverse @ kept.T + np.outer(moved, moved) / curvature
        theta, value, slope = trial, after, trial_slope
        if told(theta):
            break
    return _End(theta, -value, inverse, promise)


def _rough_end(
    objective: Objective,
    start: Start,
    limits: list[tuple[float, float]],
    lengthscales: np.ndarray,
    told: _Told,
) -> _End:
    """Return what L-BFGS-B found from one start, well enough to compare it."""
    theta = start.theta
    if start.staged:
        theta = _settled(objective, theta, limits, lengthscales, told)
    return _descend(objective, theta, limits, _COMPARING_IMPROVEMENT, 100, told)


def _settled(
    objective: Objective,
    theta: np.ndarray,
    limits: list[tuple[float, float]],
    lengthscales: np.ndarray,
    told: _Told,
) -> np.ndarray:
    """Return θ with the noise and the scales where they are about the likeliest.

    Where they are far off, the slope along lengthscales leads away, into a maximum that
    explains the noise by short ones.
    """
    if lengthscales.all():
        return theta
    held = [
        (x, x) if along else limit
        for x, along, limit in zip(theta, lengthscales, limits, strict=True)
    ]
    return _descend(objective, theta, held, _ROUGH_IMPROVEMENT, 10, told).theta


def _made_up_for(
    stage: Stage,
    end: _End,
    limits: list[tuple[float, float]],
    lengthscales: np.ndarray,
    told: _Told,
) -> _End:
    """Return an end from which to continue: settled, if its noise is far off."""
    objective = stage.objective
    theta = _settled(objective, end.theta, limits, lengthscales, told)
    gain = _value(objective, theta) - _value(objective, end.theta)
    return replace(end, theta=theta) if gain > _UNFINISHED * stage.n_rows else end


def _descend(
    objective: Objective,
    start: np.ndarray,
    limits: list[tuple[float, float]],
    share: float,
    most: int,
    told: _Told,
) -> _End:
    low, high = np.transpose(limits)
    free = low < high
    end, inverse = start.copy(), np.eye(len(start))
    if not free.any():
        return _End(end, -_negative(objective, end)[0], inverse)

    def of_free(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        theta = start.copy()
        theta[free] = numbers
        value, slope = _negative(objective, theta)
        return value, slope[free]

    def tell(numbers: np.ndarray) -> None:
        theta = start.copy()
        theta[free] = numbers
        if told(theta):
            raise StopIteration

    result = scipy.optimize.minimize(
        of_free,
        start[free],
        jac=True,
        method="L-BFGS-B",
        bounds=np.array(limits)[free],
        options={"ftol": share, "maxiter": most},
        callback=tell,
    )
    end[free] = result.x
    inverse[np.ix_(free, free)] = result.hess_inv.todense()
    return _End(end.clip(low, high), -float(result.fun), inverse)


def _distinct(ends: list[_End]) -> list[_End]:
    """Return the best few ends that are likely, of each maximum one, the best first."""
    kept: list[_End] = []
    for end in sorted(ends, key=lambda end: -end.value):
        likely = not kept or end.value > kept[0].value - _LIKELY
        if likely and all(abs(end.theta - other.theta).max() > _SAME for other in kept):
            kept.append(end)
    return kept[:_MOST_CANDIDATES]


def _value(objective: Objective, theta: np.ndarray) -> float:
    try:
        return objective(theta, False)[0]
    except np.linalg.LinAlgError:
        return -math.inf


def _negative(objective: Objective, theta: np.ndarray) -> tuple[float, np.ndarray]:
    try:
        value, gradient = objective(theta)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(theta))
    return -value, -gradient


def _warn_of_the_end(
    end: _End, names: list[str], limits: list[tuple[float, float]], n_rows: int
) -> None:
    """Warn where learning did not end in a maximum between the bounds."""
    if not np.isfinite(end.value):
        reason = "the likelihood could not be evaluated at any start"
    elif end.promise > max(1.0, _UNFINISHED * n_rows):
        reason = f"learning stopped early (a step still promises {end.promise:.3g})"
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
    warnings.warn(
        f"{reason}: the likelihood may have no maximum for these rows. Start "
        "elsewhere, set n_restarts_optimizer, scale the targets (normalize_y=True of "
        "regression), or keep what was given (optimizer=None).",
        ConvergenceWarning,
        stacklevel=8,  # the call of fit, within two decorators
    )


def _is_usual(name: str, side: str, names: list[str]) -> bool:
    """Return whether it is no fault of learning that a hyperparameter is on a bound."""
    # A column that does not matter has a lengthscale as long as it may be, an output
    # without a part of its own the least variance; classes that are separated with
    # certainty (there is no noise) have the largest scale.
    if side == "lower":
        return "[" in name and "lengthscale" not in name
    return "[" in name or ("noise" not in names and name.rpartition("__")[2] == "scale")
