"""Learning hyperparameters: the choice of rows, and maximising the evidence."""

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

# Most operations per evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_LEAST_ROWS = 2000
# Memory of the sample of rows that are not in memory.
_SAMPLE_BYTES = 64 * 10**6
# The intermediate sample: one row in this many, within these bounds.
_COARSE_SHARE = 4
_COARSE_ROWS = (500, 1000)
_FEW_FEATURES = 512
# With this few rows, the likelihood of the exact kernel is the cheapest.
SMOOTH_ROWS = 300
_ROUGH_IMPROVEMENT = 1e-3
# Enough to find the start that leads to the best maximum.
_COMPARING_IMPROVEMENT = 1e-5
# Ends this close in every logarithm count as the same maximum.
_SAME = 0.1
_MOST_CANDIDATES = 3
# Ends whose log likelihood is lower than the best by more than this are dropped.
_LIKELY = 5.0
# A stage ends when the predicted gain of a step in log likelihood is below this. If
# evaluations are expensive, the threshold is a few hundredths of a standard error of θ,
# or a gain per row without effect on predictive densities. On a sample of the rows,
# differences below one unit are not significant.
_PROMISE = 1e-8
_EXPENSIVE_PROMISE = 1e-3
_PROMISE_PER_ROW = 1e-4
_SAMPLED_PROMISE = 0.5
# It also ends after this many operations, for a sample and for all rows, but never
# after fewer than this many evaluations, and only after twice as many if the predicted
# gain per row is still visible in predictive densities.
_SAMPLED_OPERATIONS = 1.5e11
_LAST_OPERATIONS = 5e11
_FEWEST_EVALUATIONS = 7
_WORTH_PER_ROW = 1e-3
_MOST_EVALUATIONS = 300
# A larger predicted gain per row at the end is worth a warning; a noise with a larger
# possible gain is far off.
_UNFINISHED = 0.1
# Largest change of a logarithm per step, the first step, and the least share of the
# predicted gain.
_LARGEST_STEP = 1.0
_FIRST_STEP = 0.1
_DECREASE = 1e-4
_MOST_TRIALS = 5
# How often the curvature may be reset.
_MOST_RESETS = 3
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
# Largest factor between the initial variance of the process and the mean square of the
# targets: the slope along the scale vanishes if the variance is far below the noise.
_VARIANCE_RANGE = 1e3
# Beyond this factor there are only rounding errors.
_ROUNDING_RANGE = 1e20
# Largest weight: weights are multiplied by squares of targets.
_LARGEST_WEIGHT = 1e60
# The initial share of the noise if the given one is implausible.
_USUAL_SHARE = 0.1
# A second start has lengthscales shorter by this: from too long ones, optimisation may
# end where the scale compensates for them.
_SHORTER = math.log(4.0)
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
    """Return the largest number of rows for learning with this many features."""
    return max(_LEAST_ROWS, int(_OPERATIONS / (4.0 * n_components**2)))


def coarse_rows(n_rows: int) -> int:
    """Return the size of the intermediate sample of this many rows."""
    least, largest = _COARSE_ROWS
    return min(max(n_rows // _COARSE_SHARE, least), largest)


def few_features(n_components: int) -> int:
    """Return the number of features to learn with first: all if they are few."""
    return _FEW_FEATURES if n_components >= 2 * _FEW_FEATURES else n_components


def uniform_sample(rows: ArrayRows, most: int, stream: Stream) -> ArrayRows:
    """Return a sample of at most this many rows: all if they are few."""
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
    given: dict[str, Any],
    signed: Collection[str] = (),
) -> list[tuple[float, float]]:
    """Return the least and the largest value of every entry of θ, around a start.

    A scale may change by `scale_range`, also from the mean square and the variance of
    the targets if there is a noise. Numbers named in `signed` may have both signs, and
    the size of the targets. Bounds that the user has given replace these.
    """
    # Targets that are all equal do not determine their scale.
    level, spread = (
        math.log(size) if size > 0 else 0.0 for size in (mean_square, variance)
    )
    targets = [level, spread] if "noise" in names else []
    sizes = [math.exp(size / 2) for size in targets]
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


def first_starts(
    names: list[str],
    theta: np.ndarray,
    mean_square: float,
    variance: float = 1.0,
    rescaling: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return starts near θ, moved if its noise or its variance is implausible.

    Far from plausible values the gradient of the likelihood is uninformative.
    `variance` is the mean prior variance of the process at θ; `rescaling` is the
    direction in θ that multiplies the kernel by e.
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
    starts = [moved, moved - _SHORTER * _lengthscales(names)]
    if lost or np.array_equal(moved, theta):
        return starts
    return [*starts, theta]


def _lengthscales(names: list[str]) -> np.ndarray:
    return np.array(["lengthscale" in name.rpartition("__")[2] for name in names])


@dataclass(frozen=True)
class Stage:
    """An objective of `n_rows` rows, maximised in at most `most` evaluations.

    The limit doubles while the predicted gain of a step is at least 10⁻³ per row.

    `fewer_features` is true if the process has fewer features than in the previous
    stage; its noise then has to account for what they no longer explain.
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
        """Return the stage for a log marginal likelihood of rows, with its priors."""
        operations = _LAST_OPERATIONS if is_last else _SAMPLED_OPERATIONS
        affordable = int(operations / evidence.operations)
        # Rounding and estimates affect where learning ends, so they are used only to
        # save time.
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
    """The end of a stage: θ, its value, the inverse curvature, the predicted gain."""

    theta: np.ndarray
    value: float
    inverse: np.ndarray
    promise: float = 0.0


def maximise(
    stages: Sequence[Stage],
    names: list[str],
    starts: list[np.ndarray],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
    report: Report | None = None,
) -> np.ndarray:
    """Return θ that maximises the last of several objectives, from several starts.

    The first stage, which is the cheapest, is maximised from all starts; from those
    given, all but the lengthscales are optimised before the rest. Every further
    stage continues from the ends of the previous one with the curvature found there,
    scaled by the numbers of rows, so that few evaluations are needed for the last. It
    continues from all ends of similar likelihood while evaluations are cheap, then from
    the one with the largest value. Restarts are drawn around the first start. `report`
    is called with the number of each step and its θ; learning ends if it returns True.
    """
    search = _Search(names, limits, report)
    low, high = search.low, search.high
    starts = [start.clip(low, high) for start in starts]
    restarts = []
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        moved = starts[0] + _SPREAD * generator.normal(size=len(names))
        restarts.append(moved.clip(low, high))
    with warnings.catch_warnings():
        # Systems at trial values may be ill conditioned, or modes hard to find; the
        # returned value warns again.
        for category in (IllConditionedWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        first = stages[0].objective
        starting = [search.rough_end(first, search.settled(first, x)) for x in starts]
        starting += [search.rough_end(first, x) for x in restarts]
        ends = _distinct(starting)
        before = stages[0]
        for stage in stages[1:] or stages:
            if search.stop:
                break
            if stage.most < _MOST_EVALUATIONS and len(ends) > 1:
                ends = [max(ends, key=lambda end: _value(stage.objective, end.theta))]
            rows = before.n_rows / stage.n_rows
            if stage.fewer_features:
                # The part of the previous process that these omit is noise.
                ends = [search.made_up_for(stage, end) for end in ends]
            ends = _distinct(
                [search.climb(stage, end.theta, rows * end.inverse) for end in ends]
            )
            before = stage
    if not search.stop:
        _warn_of_the_end(ends[0], names, limits, stages[-1].n_rows)
    return ends[0].theta


class _Search:
    """Ascents within common bounds, whose steps are counted and reported."""

    def __init__(
        self, names: list[str], limits: list[tuple[float, float]], report: Report | None
    ):
        self.low, self.high = np.transpose(limits)
        self.lengthscales = _lengthscales(names)
        self.report, self.count, self.stop = report, 0, False

    def told(self, theta: np.ndarray) -> bool:
        """Report a step; return whether learning is to stop."""
        if self.report is not None:
            self.stop = self.stop or self.report(self.count, theta)
            self.count += 1
        return self.stop

    def climb(self, stage: Stage, theta: np.ndarray, inverse: np.ndarray) -> _End:
        """Maximise the objective of a stage by BFGS.

        Nocedal & Wright 2006, eq. 6.17, projected to the bounds (Bertsekas 1982). It
        starts from a given inverse curvature, which L-BFGS-B cannot.
        """
        low, high = self.low, self.high
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
                # The minimum of the parabola through both values.
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
            if self.told(theta):
                break
        return _End(theta, -value, inverse, promise)

    def rough_end(self, objective: Objective, theta: np.ndarray) -> _End:
        """Return the end of L-BFGS-B, accurate enough for comparisons."""
        free = self.low < self.high
        return self._descend(objective, theta, free, _COMPARING_IMPROVEMENT, 100)

    def made_up_for(self, stage: Stage, end: _End) -> _End:
        """Return the end to continue from: settled if its noise is far off."""
        objective = stage.objective
        theta = self.settled(objective, end.theta)
        gain = _value(objective, theta) - _value(objective, end.theta)
        return replace(end, theta=theta) if gain > _UNFINISHED * stage.n_rows else end

    def settled(self, objective: Objective, theta: np.ndarray) -> np.ndarray:
        """Return θ with approximately optimal noise and scales, lengthscales fixed.

        If they are far off, the gradient in lengthscales leads to a maximum that
        explains the noise by short lengthscales.
        """
        if self.lengthscales.all():
            return theta
        free = (self.low < self.high) & ~self.lengthscales
        return self._descend(objective, theta, free, _ROUGH_IMPROVEMENT, 10).theta

    def _descend(
        self,
        objective: Objective,
        start: np.ndarray,
        free: np.ndarray,
        share: float,
        most: int,
    ) -> _End:
        """Return the end of L-BFGS-B in the free entries of θ."""
        end, inverse = start.copy(), np.eye(len(start))
        if not free.any():
            return _End(end, -_negative(objective, end)[0], inverse)

        def with_free(numbers: np.ndarray) -> np.ndarray:
            theta = start.copy()
            theta[free] = numbers
            return theta

        def of_free(numbers: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _negative(objective, with_free(numbers))
            return value, slope[free]

        def tell(numbers: np.ndarray) -> None:
            if self.told(with_free(numbers)):
                raise StopIteration

        result = scipy.optimize.minimize(
            of_free,
            start[free],
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([self.low, self.high], axis=1)[free],
            options={"ftol": share, "maxiter": most},
            callback=tell,
        )
        inverse[np.ix_(free, free)] = result.hess_inv.todense()
        end = with_free(result.x).clip(self.low, self.high)
        return _End(end, -float(result.fun), inverse)


def _distinct(ends: list[_End]) -> list[_End]:
    """Return the few most likely ends, one per maximum, the best first."""
    kept: list[_End] = []
    for end in sorted(ends, key=lambda end: -end.value):
        likely = not kept or end.value > kept[0].value - _LIKELY
        if likely and all(abs(end.theta - other.theta).max() > _SAME for other in kept):
            kept.append(end)
    return kept[:_MOST_CANDIDATES]


def _value(objective: Objective, theta: np.ndarray) -> float:
    return -_negative(objective, theta, gradient=False)[0]


def _negative(
    objective: Objective, theta: np.ndarray, gradient: bool = True
) -> tuple[float, np.ndarray]:
    try:
        value, slope = objective(theta, gradient)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(theta))
    return -value, -slope


def _warn_of_the_end(
    end: _End, names: list[str], limits: list[tuple[float, float]], n_rows: int
) -> None:
    """Warn if learning did not end in a maximum within the bounds."""
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
    """Return whether it is normal for a hyperparameter to be on this bound."""
    # An irrelevant column has the longest possible lengthscale, an output without a
    # part of its own the smallest variance; classes that are separated with certainty
    # (there is no noise) have the largest scale.
    if side == "lower":
        return "[" in name and "lengthscale" not in name
    return "[" in name or ("noise" not in names and name.rpartition("__")[2] == "scale")
