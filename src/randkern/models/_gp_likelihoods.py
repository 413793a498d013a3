"""What targets say about the values of a process: densities, and their derivatives.

Laplace's approximation needs nothing else of a likelihood: with values f of the process
at the rows and targets y, log p(y | f), its slope, and a curvature W that stands for
minus its second derivative.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln

from randkern.backend.namespace import ops_of
from randkern.data.training_data import TrainingData
from randkern.models.memory import SUMMED_ROWS

# e to this is still far from overflow.
_LARGEST_LOGARITHM = 500.0


class Terms(NamedTuple):
    """The terms of rows, each of the shape of f.

    Attributes
    ----------
    log : ndarray
        log p(y | f).
    slope : ndarray
        Its derivative in f.
    step : ndarray
        A curvature that Newton's method goes by, not negative.
    curvature : ndarray
        W, that of the posterior, not negative.
    change : ndarray
        ∂W/∂f.
    """

    log: np.ndarray
    slope: np.ndarray
    step: np.ndarray
    curvature: np.ndarray
    change: np.ndarray


class Likelihood(ABC):
    """A density of targets given values of a process, row by row."""

    # Whether it has a noise, which is learned.
    noise: float | None = None
    # Whether steps go by another curvature than the posterior.
    steps_apart: ClassVar[bool] = False

    @abstractmethod
    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        """Return log p(y | f) of rows and what it takes to climb it."""

    def at(self, noise: float) -> Likelihood:
        """Return that of another noise."""
        return self

    def noise_slopes(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        """Return ∂ log p/∂ log σ² of rows, and ∂ log W/∂ log σ²."""
        raise NotImplementedError

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of what f says, E[y | f], or of new targets y.

        f is normal, of this mean and variance.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """P(y | f) = 1/(1 + exp(−yf)) for signs y."""

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        ops = ops_of(f)
        expit = ops.special.expit
        curvature = expit(f) * expit(-f)
        change = curvature * (1 - 2 * expit(f))
        slope = y * expit(-y * f)
        return Terms(-ops.softplus(-y * f), slope, curvature, curvature, change)


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts y of the rate exp(f + offset)."""

    offset: float

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        ops = ops_of(f)
        logarithm = f + self.offset
        rate = ops.xp.exp(logarithm.clip(-_LARGEST_LOGARITHM, _LARGEST_LOGARITHM))
        constant = ops.float64_like(gammaln(ops.to_host(y) + 1), f)
        log = y * logarithm - rate - constant
        return Terms(log, y - rate, rate, rate, rate)

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        # The rate is log-normal.
        xp = ops_of(mean).xp
        rate = xp.exp(mean + self.offset + 0.5 * variance)
        spread = rate**2 * xp.expm1(variance)
        return rate, spread + rate if of_targets else spread


@dataclass(frozen=True)
class StudentT(Likelihood):
    """y = f + σt, t of Student's law with ν degrees of freedom.

    Its second derivative has both signs. Newton's method goes by the curvature
    (ν + 1)/(νσ² + r²) of the parabola that touches log p from below, r = y − f: steps
    never lead down (they are those of expectation maximisation). W is Fisher's
    information (ν + 1)/((ν + 3)σ²), the mean of minus the second derivative: the
    Laplace-Fisher approximation (Hartmann & Vanhatalo 2019, "Laplace approximation and
    natural gradient for Gaussian process regression with heteroscedastic Student-t
    model", section 3.2).
    """

    steps_apart: ClassVar[bool] = True

    noise: float
    freedom: float = 4.0

    def at(self, noise: float) -> StudentT:
        return replace(self, noise=noise)

    def terms(self, f: np.ndarray, y: np.ndarray) -> Terms:
        xp, nu = ops_of(f).xp, self.freedom
        residual, width = y - f, nu * self.noise
        log = -0.5 * (nu + 1) * xp.log1p(residual**2 / width)
        log = log + float(gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu))
        log = log - 0.5 * math.log(math.pi * width)
        step = (nu + 1) / (width + residual**2)
        information = (nu + 1) / ((nu + 3) * self.noise)
        return Terms(log, step * residual, step, information + 0 * f, 0 * f)

    def noise_slopes(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        square = (y - f) ** 2
        width = self.freedom * self.noise
        return 0.5 * ((self.freedom + 1) * square / (width + square) - 1), -1.0

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, of_targets: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        own = self.noise * self.freedom / (self.freedom - 2)
        return mean, variance + own if of_targets else variance


def likelihood_of(
    name: str, rows: TrainingData, noise: float, counted: bool, normalized: bool
) -> Likelihood | None:
    """Return what a name stands for, given rows; None is Gaussian.

    `counted` says whether weights count rows, `normalized` whether targets were scaled.
    """
    if name == "gaussian":
        return None
    if rows.n_targets > 1:
        raise ValueError(
            f"likelihood={name!r} takes one target, got {rows.n_targets}: fit a model "
            "to each, as MultiOutputRegressor does."
        )
    if not counted:
        raise ValueError(
            f"likelihood={name!r} takes weights that count rows (weights='counts'), "
            "got weights='precision'."
        )
    if name == "student-t":
        return StudentT(noise)
    mean = float(rows.survey().target_mean[0])
    n_negative = rows.reduce(_n_negative)
    if normalized or n_negative or not mean > 0:
        raise ValueError(
            "likelihood='poisson' takes counts as they are (normalize_y=False), not "
            f"all of them 0; got {n_negative} negative targets, of mean {mean:.3g}."
        )
    return Poisson(math.log(mean))


def _n_negative(rows: TrainingData) -> int:
    return sum(int((block.Y < 0).sum()) for block in rows.blocks(SUMMED_ROWS))
