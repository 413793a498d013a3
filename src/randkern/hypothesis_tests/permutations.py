"""Permutations, p-values and estimates of power."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import ndtr

from randkern._random import Stream
from randkern.data import row_blocks
from randkern.kernels import Kernel

# Statistics of permutations that only swap equal rows differ by relative errors of this
# size.
_ROUNDING = 1e-10
# Rows whose features are transformed at a time.
_GROUPED_ROWS = 4096


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


def permuted_covariances(
    Z: np.ndarray, V: np.ndarray, n_permutations: int, generator: np.random.Generator
) -> np.ndarray:
    r"""Return covariances :math:`Z^\top P V / n` for P = I and random permutations.

    The columns of `Z` (n, D) and `V` (n, E) have mean 0; the result has shape (1 +
    n_permutations, D, E).

    Rows are put into groups of m = 1 + n_permutations in random order. The k-th
    permutation moves the rows of every group k places on in its cycle, and permutes
    those that are left over at random. All m together are drawn from a group of
    permutations, the cycle times the permutations of the rest, so the level of the test
    is exact (Hemerik and Goeman 2018, "Exact testing with random permutations", theorem
    2). The m products with cycles are a correlation: a Fourier transform along the
    groups, n D E complex products and the transform back, instead of m n D E products.
    """
    n = len(Z)
    m = 1 + n_permutations
    order = generator.permutation(n)
    n_groups = n // m
    groups = order[: n_groups * m].reshape(n_groups, m)
    rest = order[n_groups * m :]
    spectrum = np.zeros((m // 2 + 1, Z.shape[1], V.shape[1]), dtype=complex)
    for some in row_blocks(n_groups, max(1, _GROUPED_ROWS // m)):
        of_z = np.fft.rfft(Z[groups[some]], axis=1)
        of_v = np.fft.rfft(V[groups[some]], axis=1)
        spectrum += of_z.conj().transpose(1, 2, 0) @ of_v.transpose(1, 0, 2)
    covariances = np.fft.irfft(spectrum, m, axis=0)
    for covariance in covariances[1:]:
        covariance += Z[rest].T @ V[generator.permutation(rest)]
    covariances[0] = Z.T @ V
    return covariances / n


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
