"""The hyperparameters of a Gaussian process before learning: starts, bounds, priors.

Everywhere, θ holds the logarithms of positive numbers, and arsinh of signed ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows

# Largest factor by which learning may change a lengthscale.
_LENGTHSCALE_RANGE = 1e3
# Names of parameters that scale with the variance of the targets.
_SCALES = ("scale", "variances", "weights")
# Bounds of the noise, relative to the mean square of the targets. Without them the
# likelihood of noiseless targets would be unbounded; below the square root of float64's
# epsilon half of the digits of a covariance are rounding errors.
_NOISE_SHARES = (1e-8, 1e2)
# Starts have the lengthscales of the kernel, divided and multiplied by this. From too
# short ones, learning may end where the process explains nothing, from too long ones
# where its scale compensates. Restarts move every logarithm by this much at random.
FACTOR = 4.0
# Columns that correlate with the targets by this many standard errors are evident.
_SIGNIFICANT = 3.5

# Returns the value at θ and its gradient, which may be skipped.
Objective = Callable[..., tuple[float, np.ndarray]]


def bounds(
    names: list[str],
    theta: np.ndarray,
    centre: np.ndarray,
    mean_square: float,
    variance: float,
    scale_range: float,
    user_bounds: dict[str, Any],
    signed: Collection[str] = (),
) -> list[tuple[float, float]]:
    """Return the least and the largest value of every entry of θ, around a centre.

    A scale may change by `scale_range`, also from the mean square and the variance of
    the targets if there is a noise. Numbers named in `signed` may have both signs, and
    the size of the targets. Fixed entries are those of `theta`. Those in
    `user_bounds` replace these.
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
    for key, pair in _general_first(user_bounds, names, "bounds"):
        for place in places(key, names, "bounds"):
            if isinstance(pair, str) and pair == "fixed":
                out[place] = (float(theta[place]),) * 2
                continue
            positive = names[place] not in signed
            low, high = _pair(key, pair, "bounds", "(low, high), or 'fixed'", positive)
            if low > high:
                raise ValueError(
                    f"the bounds of {key!r} must be increasing, got {pair!r}."
                )
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
    centre = np.zeros(len(names))
    precision = np.zeros(len(names))
    for key, pair in _general_first(priors, names, "priors"):
        median, sigma = _pair(key, pair, "priors", "(median, sigma)")
        for place in places(key, names, "priors"):
            if names[place] in signed:
                raise ValueError(
                    f"priors are log-normal, but {names[place]!r} may be negative; "
                    "omit its prior."
                )
            centre[place], precision[place] = math.log(median), sigma**-2

    def density(theta: np.ndarray) -> tuple[float, np.ndarray]:
        pull = precision * (theta - centre)
        return -0.5 * float(pull @ (theta - centre)), -pull

    return density


def places(key: str, names: list[str], what: str) -> list[int]:
    """Return the positions in θ of a name: one entry, or all of an attribute."""
    positions = []
    for position, name in enumerate(names):
        path = name.partition("[")[0]
        if key in (name, path, name.rpartition("__")[2], path.rpartition("__")[2]):
            positions.append(position)
    if not positions:
        raise ValueError(
            f"{what} name {key!r}, which is not learned; expected one or more of "
            f"{names}."
        )
    return positions


def _general_first(
    settings: dict[str, Any] | None, names: list[str], what: str
) -> list[tuple[str, Any]]:
    """Return the items, those for fewer entries last, so that these override others."""
    pairs = (settings or {}).items()
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
    lengthscales = are_lengthscales(names)
    if not lengthscales.any():
        return [moved]
    shorter = moved - math.log(FACTOR) * lengthscales
    longer = moved + math.log(FACTOR) * lengthscales
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
    X = ops.densified(rows.X)
    Y = ops.as_float64(rows.Y)
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


def are_lengthscales(names: list[str]) -> np.ndarray:
    """Return which entries of θ are lengthscales."""
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
