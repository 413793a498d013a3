"""Permutations, p-values and estimates of power."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import ndtr

from randkern._random import Stream
from randkern.kernels import Kernel

# Statistics of permutations that only swap equal rows differ by relative errors of this
# size.
_ROUNDING = 1e-10


def random_subsets(
    n_rows: int, size: int, n_subsets: int, stream: Stream, chunk_rows: int
) -> Iterator[np.ndarray]:
    """Yield random subsets of rows as indicators (n_subsets, n), in chunks of rows.

    Each is uniformly distributed over the subsets of `size` rows: the number of its
    rows in a chunk is hypergeometric, and which they are uniform. No more than the
    indicators of a chunk are in memory.
    """
    generator = stream.generator()
    left = np.full(n_subsets, size)
    for start in range(0, n_rows, chunk_rows):
        length = min(chunk_rows, n_rows - start)
        after = n_rows - start - length
        taken = left
        if after:  # how many of the `left` rows of a subset lie in this chunk
            taken = generator.hypergeometric(left, length + after - left, length)
        ranks = generator.random((n_subsets, length)).argsort(axis=1).argsort(axis=1)
        yield ranks < taken[:, None]
        left = left - taken


def permuted_rows(
    n_rows: int, n_permutations: int, generator: np.random.Generator, chunk_rows: int
) -> Iterator[np.ndarray]:
    """Yield orders (1 + n_permutations, m) of the rows of each chunk.

    The first leaves them where they are; the others permute them within the chunk.
    """
    for start in range(0, n_rows, chunk_rows):
        length = min(chunk_rows, n_rows - start)
        permuted = [generator.permutation(length) for _ in range(n_permutations)]
        yield np.stack([np.arange(length), *permuted])


def check_level(level: Any) -> float:
    """Return the level of a test; raise unless it is between 0 and 1."""
    if not (isinstance(level, Real) and 0 < float(level) < 1):
        raise ValueError(f"level must be a number between 0 and 1, got {level!r}.")
    return float(level)


def pvalue_of(statistic: float, null: np.ndarray, resolution: float) -> float:
    """Return the share of statistics, this one included, that are at least as large.

    Differences below `resolution` are rounding errors.
    """
    tolerance = max(resolution, _ROUNDING * abs(statistic))
    return float((1 + (null >= statistic - tolerance).sum()) / (1 + len(null)))


def power_of(
    statistic: float,
    null: np.ndarray,
    deviation: float,
    level: float,
    resolution: float,
) -> float:
    """Return the probability that a normal variable exceeds the critical value.

    Its mean is the statistic, and its standard deviation that of the statistic under
    the alternative. The critical value is the quantile of the permuted statistics.
    At least the level, which is the power where the distributions are equal.
    """
    critical = float(np.quantile(null, 1 - level, method="higher"))
    if deviation <= resolution:  # of rounding errors, as for constant rows
        return 1.0 if statistic > critical + resolution else level
    return max(level, float(ndtr((statistic - critical) / deviation)))


def described(result: Any) -> str:
    """Return the result of a test as text, with few digits."""
    shown = []
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, float):
            shown.append(f"{field.name}={value:.4g}")
        elif isinstance(value, Kernel):
            shown.append(f"{field.name}={value._formula()}")
    return f"{type(result).__name__}({', '.join(shown)})"
