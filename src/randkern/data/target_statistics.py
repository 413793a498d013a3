"""Statistics of targets and weights from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
class TargetStatistics:
    """Statistics of k targets and of weights, from one pass over the rows."""

    n_used: int  # rows of positive weight
    weight_sum: float
    largest_weight: float  # 1 for rows without weights
    largest_target: np.ndarray  # the largest |y| over rows of positive weight
    target_mean: np.ndarray  # weighted, (k,)
    target_squares: np.ndarray  # weighted sums of squares about the means, (k,)

    @classmethod
    def of(cls, blocks: Iterable[tuple[Any, Any]], n_targets: int) -> TargetStatistics:
        """Return the statistics of blocks of targets (n, k) and weights (n,) or None.

        Targets of rows of weight 0 are ignored.
        """
        zeros = np.zeros(n_targets)
        total = cls(0, 0.0, 0.0, zeros, zeros, zeros)
        for Y, weight in blocks:
            ops = ops_of(Y)
            n_used = len(Y)
            if weight is None:
                weight = ops.float64_ones(len(Y), Y)
            else:
                used = ops.as_float64(weight > 0)
                n_used = int(used.sum())
                Y = Y * used[:, None]
            weight_sum = float(weight.sum())
            mean = weight @ Y / (weight_sum if weight_sum > 0 else 1.0)
            with np.errstate(over="ignore"):  # see check_sizes
                squares = weight @ (Y - mean) ** 2
            # A few numbers per target: all further computations are on the host.
            numbers = map(ops.to_host, (ops.column_max_abs(Y), mean, squares))
            largest = ops.largest_or_zero(weight)
            total += cls(n_used, weight_sum, largest, *numbers)
        return total

    def __add__(self, other: TargetStatistics) -> TargetStatistics:
        """Return the statistics of both sets of rows (Chan et al. 1983, eq. 1.3)."""
        total = self.weight_sum + other.weight_sum
        share = other.weight_sum / total if total > 0 else 0.0
        apart = other.target_mean - self.target_mean
        squares = self.target_squares + other.target_squares
        with np.errstate(over="ignore", invalid="ignore"):  # see check_sizes
            squares = squares + self.weight_sum * share * apart**2
        return TargetStatistics(
            self.n_used + other.n_used,
            total,
            max(self.largest_weight, other.largest_weight),
            np.maximum(self.largest_target, other.largest_target),
            self.target_mean + share * apart,
            squares,
        )

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
    def all_squares(self) -> np.ndarray:
        """Weighted sums of the squares of targets, (k,)."""
        return self.target_squares + self.weight_sum * self.target_mean**2

    @property
    def spread(self) -> np.ndarray:
        """The loss of the best constants, (k,), 0 for constant targets."""
        squares = self.target_squares
        return np.where(squares > _ROUNDED * self.all_squares, squares, 0.0)

    @property
    def target_shift(self) -> np.ndarray:
        """The means of targets that are far from 0, compared with their spread, else 0.

        Subtracting them before summation saves digits; the intercept adds them back.
        """
        far = self.weight_sum * self.target_mean**2 > _FAR**2 * self.target_squares
        return np.where(far, self.target_mean, 0.0)
