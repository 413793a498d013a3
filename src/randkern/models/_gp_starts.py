"""The hyperparameters of a Gaussian process before learning: starts, bounds, priors.

Everywhere, θ holds the logarithms of positive numbers, and arsinh of signed ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows
from randkern.kernels.hyperparameters import Hyperparameters

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


@dataclass(frozen=True)
class Space:
    """Where θ is searched for: names of its entries, limits, and a prior.

    The search takes place in entries that are those of θ, but for signed numbers w:
    asinh(w/unit), with the unit of the targets, in place of asinh(w). Learning would
    not cross 0 where it is far away in asinh(w), and would end near 0 where slopes in
    it vanish.
    """

    names: list[str]
    low: np.ndarray
    high: np.ndarray
    # The direction in θ that multiplies the kernel by e.
    direction: np.ndarray
    are_signed: np.ndarray
    unit: float
    # Of the normal prior of θ.
    centre: np.ndarray
    precision: np.ndarray

    def entries(self, theta: np.ndarray) -> np.ndarray:
        """Return the entries that are searched for."""
        return self._changed(theta, 1.0 / self.unit)

    def theta(self, entries: np.ndarray) -> np.ndarray:
        """Return θ."""
        return self._changed(entries, self.unit)

    def _changed(self, entries: np.ndarray, factor: float) -> np.ndarray:
        changed = np.arcsinh(factor * np.sinh(entries[self.are_signed]))
        out = entries.copy()
        out[self.are_signed] = changed
        return out

    def rates(self, entries: np.ndarray) -> np.ndarray:
        """Return the derivatives of θ in the entries, one each."""
        out = np.ones(len(entries))
        signed = entries[self.are_signed]
        size = np.hypot(1.0, self.unit * np.sinh(signed))
        out[self.are_signed] = self.unit * np.cosh(signed) / size
        return out

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log density of θ, up to a constant, and its gradient."""
        pull = self.precision * (theta - self.centre)
        return -0.5 * float(pull @ (theta - self.centre)), -pull


def search_space(
    hyper: Hyperparameters,
    names: list[str],
    theta: np.ndarray,
    sample: ArrayRows,
    sizes: tuple[float, float, float] | None,
    scale_range: float,
    user_bounds: dict[str, Any],
    priors: dict[str, Any] | None,
) -> tuple[Space, list[np.ndarray]]:
    """Return where θ is searched for, and where learning starts from.

    `names` are those of the entries of θ, that of the noise last. `sizes` are the mean
    square of the targets, their variance, and the variance of the process; None without
    a noise. A scale may change by `scale_range`. Entries fixed in `user_bounds` are
    those of `theta`.
    """
    are_signed = np.zeros(len(names), dtype=bool)
    are_signed[: hyper.size] = [name in hyper.signed_names for name in hyper.names]
    direction = np.zeros(len(names))
    direction[: hyper.size] = hyper.rescaling()
    first = theta
    square = spread = 1.0
    if sizes is not None:
        square, spread, variance = sizes
        level = square / (variance + math.exp(theta[-1]))
        first = _in_units(level, names, theta, direction, are_signed)
    # Targets that are all equal do not determine their scale.
    targets = [math.log(size) if size > 0 else 0.0 for size in (square, spread)]
    around = [first]
    low, high = (
        first - math.log(_LENGTHSCALE_RANGE),
        first + math.log(_LENGTHSCALE_RANGE),
    )
    if sizes is not None:
        around += [np.full(len(names), size) for size in targets]
        low[-1], high[-1] = np.log(_NOISE_SHARES) + targets[0]
        low[-1], high[-1] = min(low[-1], first[-1]), max(high[-1], first[-1])
    are_scales = np.array([_attribute(name) in _SCALES for name in names])
    reach = math.log(scale_range)
    low = np.where(are_scales, np.min(around, axis=0) - reach, low)
    high = np.where(are_scales, np.max(around, axis=0) + reach, high)
    largest = [abs(np.sinh(first[are_signed]))]
    if sizes is not None:
        largest.append(np.exp(0.5 * np.array(targets)))
    largest = np.concatenate(largest).max(initial=0.0)
    high[are_signed] = math.asinh(math.sqrt(scale_range) * largest)
    low[are_signed] = -high[are_signed]
    for key, pair in _general_first(user_bounds, names, "bounds"):
        for place in places(key, names, "bounds"):
            if isinstance(pair, str) and pair == "fixed":
                low[place] = high[place] = theta[place]
            else:
                is_signed = bool(are_signed[place])
                low[place], high[place] = _bounds(key, pair, is_signed)
    signed = [names[place] for place in np.flatnonzero(are_signed)]
    centre, precision = prior_moments(names, priors, signed)
    unit = square**0.5 or 1.0
    space = Space(names, low, high, direction, are_signed, unit, centre, precision)
    return space, _with_other_lengthscales(first, names, sample)


def _in_units(
    level: float,
    names: list[str],
    theta: np.ndarray,
    direction: np.ndarray,
    are_signed: np.ndarray,
) -> np.ndarray:
    """Return θ with the variance of the targets multiplied by a level.

    The share of the noise stays. If no `direction` in θ multiplies the kernel,
    variances and squares of signed numbers are multiplied.
    """
    if not level > 0:
        return theta
    moved = theta.copy()
    step = direction.copy()
    step[-1] = 1.0
    if not direction.any():
        step += [_attribute(name) == "variances" for name in names]
        moved[are_signed] = np.arcsinh(np.sinh(theta[are_signed]) * math.sqrt(level))
    return moved + math.log(level) * step


def _bounds(key: str, pair: Any, is_signed: bool) -> tuple[float, float]:
    """Return bounds of an entry of θ, given those of its number."""
    low, high = _pair(key, pair, "bounds", "(low, high), or 'fixed'", not is_signed)
    if low > high:
        raise ValueError(f"the bounds of {key!r} must be increasing, got {pair!r}.")
    unit = math.asinh if is_signed else math.log
    return unit(low), unit(high)


def prior_moments(
    names: list[str], priors: dict[str, Any] | None, signed: Collection[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and precisions of the normal prior of θ, 0 without one.

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
    return centre, precision


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


def _with_other_lengthscales(
    first: np.ndarray, names: list[str], rows: ArrayRows
) -> list[np.ndarray]:
    """Return starts with the lengthscales of the first, and shorter and longer ones.

    The last has short ones for the :func:`evident_columns`, if there is one per column.
    """
    lengthscales = are_lengthscales(names)
    if not lengthscales.any():
        return [first]
    shorter = first - math.log(FACTOR) * lengthscales
    longer = first + math.log(FACTOR) * lengthscales
    for path in dict.fromkeys(name.partition("[")[0] for name in names):
        entries = [i for i, name in enumerate(names) if name.startswith(f"{path}[")]
        if _attribute(path) == "lengthscale" and len(entries) == rows.X.shape[1]:
            evident = evident_columns(rows)
            longer[entries] = np.where(evident, shorter[entries], longer[entries])
    return [first, shorter, longer]


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
    return np.array(["lengthscale" in _attribute(name) for name in names])


def _attribute(name: str) -> str:
    """Return the name of an entry of θ without its path and its index."""
    return name.rpartition("__")[2].partition("[")[0]
