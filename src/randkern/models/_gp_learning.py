"""Learning hyperparameters: which rows, and where the evidence is largest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

from randkern._random import Stream
from randkern.backend.namespace import ops_of
from randkern.exceptions import IllConditionedWarning
from randkern.models._rows import ArrayRows, StreamedRows
from randkern.plan import Plan

__all__ = ["TargetSizes", "bounds", "first_starts", "learning_rows", "maximise"]

# Operations of one evaluation of the evidence with its gradient: about a second.
_OPERATIONS = 1e11
_LEAST_ROWS = 2000
# Changes of the likelihood below this share of it say nothing about θ: about 1e-3 of
# some thousands.
_IMPROVEMENT = 1e-7
_ROUGH_IMPROVEMENT = 1e-3
# A restart moves each number by a factor of about this (one standard deviation).
_SPREAD = math.log(4.0)
# How far learning may go from where it starts.
_LENGTHSCALE_RANGE = 1e3
# Shares of the mean square of the targets that the noise may take. Rows that repeat
# exactly would otherwise make the likelihood grow for ever as the noise vanishes.
_NOISE_SHARES = (1e-5, 1e2)
# Beyond this factor from it nothing is left but rounding errors.
_ROUNDING_RANGE = 1e20
# What the noise may be where nothing better is known.
_USUAL_SHARE = 0.1

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def learning_rows(
    rows: ArrayRows | StreamedRows, plan: Plan | None, stream: Stream, most: int = 0
) -> ArrayRows:
    """Return rows to learn from, in float64, none of weight 0.

    All for the exact kernel; for features a uniform sample of `most` rows, or (0) as
    many as 10¹¹ operations an evaluation take, and at least 2,000.
    """
    n = rows.n_rows
    usable: Any = np.arange(n)
    if isinstance(rows, ArrayRows) and rows.weight is not None:
        usable = ops_of(rows.X).flatnonzero(rows.weight)
    if plan is not None:
        affordable = int(_OPERATIONS / (4.0 * plan.n_components**2))
        most = most or max(_LEAST_ROWS, affordable)
        if most < len(usable):
            drawn = stream.generator().choice(len(usable), most, replace=False)
            usable = ops_of(usable).take(usable, np.sort(drawn))
    block = rows.take(usable)
    ops = ops_of(block.X)
    X, Y, weight = ops.as_float64(block.X), block.Y, block.weight
    if weight is not None and bool((weight == 0).any()):
        kept = ops.flatnonzero(weight)
        X, Y, weight = X[kept], Y[kept], weight[kept]
    if len(Y) == 0:
        raise ValueError(
            "no sampled row has a weight above zero: leave out rows without weight."
        )
    return ArrayRows(X, Y, weight)


@dataclass(frozen=True)
class TargetSizes:
    """Weighted means over rows and targets: of y², and of (y − ȳ)²."""

    mean_square: float = 1.0
    variance: float = 1.0

    @classmethod
    def of(cls, rows: ArrayRows) -> TargetSizes:
        """Return those of the rows that are learned from."""
        ops = ops_of(rows.Y)
        means = [ops.average(column, rows.weight) for column in rows.Y.T]
        squares, deviations = (
            ops.average((Y**2).mean(axis=1), rows.weight)
            for Y in (rows.Y, rows.Y - ops.float64_like(means, rows.Y))
        )
        return cls(squares, deviations)


def bounds(
    names: list[str], theta: np.ndarray, sizes: TargetSizes, scale_range: float
) -> list[tuple[float, float]]:
    """Return the least and the largest logarithm of every hyperparameter.

    Parameters
    ----------
    names : list of str
        Those of the kernel, then ``"noise"``.
    theta : ndarray
        Where learning starts, always within the bounds.
    sizes : TargetSizes
    scale_range : float
        By how much a scale may change; where there is noise, from its start and from
        the variance of the targets.
    """
    # Targets that are all equal say nothing of their size.
    level, spread = (
        math.log(size) if size > 0 else 0.0
        for size in (sizes.mean_square, sizes.variance)
    )
    out = []
    for name, start in zip(names, theta, strict=True):
        if name == "noise":
            low, high = (math.log(share) + level for share in _NOISE_SHARES)
            out.append((min(start, low), max(start, high)))
        elif name.rpartition("__")[2] == "scale":
            reach = math.log(scale_range)
            other = spread if "noise" in names else start
            out.append((min(start, other) - reach, max(start, other) + reach))
        else:
            reach = math.log(_LENGTHSCALE_RANGE)
            out.append((start - reach, start + reach))
    return out


def first_starts(
    names: list[str], theta: np.ndarray, sizes: TargetSizes
) -> list[np.ndarray]:
    """Return θ, beside or instead of it one of a plausible noise if its own is not.

    Far from where the noise can be, the slope of the likelihood leads nowhere.
    """
    mean_square = sizes.mean_square
    if "noise" not in names or mean_square <= 0:
        return [theta]
    place = names.index("noise")
    low, high = (math.log(share * mean_square) for share in _NOISE_SHARES)
    if low <= theta[place] <= high:
        return [theta]
    moved = theta.copy()
    moved[place] = math.log(_USUAL_SHARE * mean_square)
    lost = abs(theta[place] - math.log(mean_square)) > math.log(_ROUNDING_RANGE)
    return [moved] if lost else [theta, moved]


def maximise(
    objective: Objective,
    names: list[str],
    starts: list[np.ndarray],
    limits: list[tuple[float, float]],
    n_restarts: int,
    stream: Stream,
) -> np.ndarray:
    """Return θ where L-BFGS-B finds the largest value, from several starts.

    Parameters
    ----------
    objective : callable
        Returns the value at θ and its gradient.
    names : list of str
        Of the entries of θ.
    starts : list of ndarray
        The first ones; restarts are about the first.
    limits : list of (float, float)
        From :func:`bounds`.
    """
    lengthscales = ["lengthscale" in name.rpartition("__")[2] for name in names]
    starts, theta = list(starts), starts[0]
    for index in range(n_restarts):
        generator = stream.child("restart", index).generator()
        moved = theta + _SPREAD * generator.normal(size=len(theta))
        starts.append(np.clip(moved, *np.transpose(limits)))
    with warnings.catch_warnings():
        # Trial values may be ill conditioned; the value that is kept says so again.
        warnings.simplefilter("ignore", IllConditionedWarning)
        found = [_descend(objective, start, limits, lengthscales) for start in starts]
    return min(found, key=lambda result: result[0])[1]


def _descend(
    objective: Objective,
    start: np.ndarray,
    limits: list[tuple[float, float]],
    lengthscales: list[bool],
) -> tuple[float, np.ndarray]:
    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, gradient = objective(theta)
        except np.linalg.LinAlgError:
            return math.inf, np.zeros(len(theta))
        return -value, -gradient

    # Noise and scales first: where they are far off, the slope along lengthscales
    # leads away, into a maximum that explains the noise by short ones.
    held = [
        (x, x) if along else limit
        for x, along, limit in zip(start, lengthscales, limits, strict=True)
    ]
    stages = ((held, _ROUGH_IMPROVEMENT, 10), (limits, _IMPROVEMENT, 15_000))
    for bounded, share, most in stages:
        result = scipy.optimize.minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounded,
            options={"ftol": share, "maxiter": most},
        )
        start = result.x
    return float(result.fun), result.x
