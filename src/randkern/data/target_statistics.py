"""Statistics of targets and weights from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Array
from randkern.backend.namespace import ops_of

# Sums of squares of targets up to this size, and down to its inverse, are accurate.
MAX_TARGET = 1e100
# The same of their fourth powers, which the evidence of processes has.
MAX_PROCESS_TARGET = 1e70
# Centred squares below this share of all squares are rounding errors.
_ROUNDED = 1e-26
# Targets are far from 0 if their mean is at least this many standard deviations.
_FAR = 8.0


@dataclass(frozen=True)
class Moments:
    """The weights of rows, and the mean and squares of their k targets."""

    weight_sum: float
    mean: np.ndarray
    squares: np.ndarray  # weighted sums of squares about the mean

    @classmethod
    def of(cls, Y: Array, weight: Array) -> Moments:
        """Return the moments of some rows."""
        to_host = ops_of(Y).to_host
        weight_sum = float(weight.sum())
        mean = weight @ Y / (weight_sum if weight_sum > 0 else 1.0)
        with np.errstate(over="ignore"):  # see TargetStatistics.check_sizes
            squares = weight @ (Y - mean) ** 2
        # One number per target: all further computations with them are on the host.
        return cls(weight_sum, to_host(mean), to_host(squares))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan et al. 1983, eq. 1.3)."""
        total = self.weight_sum + other.weight_sum
        share = other.weight_sum / total if total > 0 else 0.0
        apart = other.mean - self.mean
        squares = self.squares + other.squares
        with np.errstate(over="ignore", invalid="ignore"):  # see check_sizes
            squares = squares + self.weight_sum * share * apart**2
        return Moments(total, self.mean + share * apart, squares)

    @property
    def all_squares(self) -> np.ndarray:
        """Weighted sum of the squares of targets."""
        return self.squares + self.weight_sum * self.mean**2

    @property
    def are_far(self) -> np.ndarray:
        """Whether the means are many standard deviations from 0, (k,)."""
        return self.weight_sum * self.mean**2 > _FAR**2 * self.squares


@dataclass(frozen=True)
class TargetStatistics:
    """Statistics of k targets and of weights, from one pass over the rows."""

    n_rows: int
    largest_weight: float  # 1 for rows without weights
    moments: Moments
    largest_target: np.ndarray  # the largest |y| over rows of positive weight

    @classmethod
    def of(cls, blocks: Iterable[tuple[Any, Any]], n_targets: int) -> TargetStatistics:
        """Return the statistics of blocks of targets (n, k) and weights (n,)."""
        zeros = np.zeros(n_targets)
        none = Moments(0.0, zeros, zeros)
        total = cls(0, 0.0, none, zeros)
        for Y, weight in blocks:
            total = total.merged(cls._of_block(Y, weight))
        return total

    @classmethod
    def _of_block(cls, Y: Array, weight: Array) -> TargetStatistics:
        """Return the statistics of targets (n, k) with weights (n,), or None."""
        ops = ops_of(Y)
        used = ops.float64_ones(len(Y), Y)
        if weight is not None:
            # Targets of rows of weight 0 are ignored, also in the scale.
            used = ops.as_float64(weight > 0)
            Y = Y * used[:, None]
        weight = used if weight is None else weight
        return cls(
            len(Y),
            ops.largest_or_zero(weight),
            Moments.of(Y, weight),
            ops.to_host(ops.column_max_abs(Y)),
        )

    def merged(self, other: TargetStatistics) -> TargetStatistics:
        """Return the statistics of both sets of rows."""
        return TargetStatistics(
            self.n_rows + other.n_rows,
            max(self.largest_weight, other.largest_weight),
            self.moments.merged(other.moments),
            np.maximum(self.largest_target, other.largest_target),
        )

    __add__ = merged

    def check_sizes(self, largest: float = MAX_TARGET) -> None:
        """Raise if powers of targets leave the range of floats."""
        sizes = self.largest_target[self.largest_target > 0]
        for size in sizes[(sizes > largest) | (sizes < 1 / largest)]:
            raise ValueError(
                f"the targets are of size {size:.3g}, whose powers leave the range of "
                f"float64; expected sizes from {1 / largest:g} to {largest:g}. "
                "Divide y by its largest absolute value."
            )

    @property
    def weight_sum(self) -> float:
        return self.moments.weight_sum

    @property
    def target_mean(self) -> np.ndarray:
        """The weighted means, (k,)."""
        return self.moments.mean

    @property
    def target_squares(self) -> np.ndarray:
        """Weighted sums of squares about the means, (k,)."""
        return self.moments.squares

    @property
    def spread(self) -> np.ndarray:
        """The loss of the best constants, (k,), 0 for constant targets."""
        squares = self.target_squares
        return np.where(squares > _ROUNDED * self.moments.all_squares, squares, 0.0)

    @property
    def target_shift(self) -> np.ndarray:
        """The means of targets that are far from 0, compared with their spread, else 0.

        Subtracting them before summation saves digits; the intercept adds them back.
        """
        return np.where(self.moments.are_far, self.target_mean, 0.0)

    @property
    def are_far(self) -> bool:
        """Whether targets that vary are far from 0."""
        return bool(np.any(self.moments.are_far & (self.spread > 0)))
