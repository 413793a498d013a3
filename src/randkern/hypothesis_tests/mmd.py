r"""The two-sample test by the maximum mean discrepancy.

With :math:`\varphi` features of a kernel k and :math:`\mu_P = E_{x \sim P}\varphi(x)`,

.. math:: \mathrm{MMD}^2(P, Q) = \|\mu_P - \mu_Q\|^2
          = E\,k(x, x') + E\,k(y, y') - 2\,E\,k(x, y),

which is 0 if P = Q, and for characteristic kernels, such as the Gaussian, only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from randkern._random import root_stream
from randkern._validation import check_count
from randkern.features import RandomFeatures
from randkern.hypothesis_tests.permutations import (
    check_level,
    described,
    power_of,
    pvalue_of,
    random_subsets,
)
from randkern.hypothesis_tests.rows import (
    CHUNK_ROWS,
    Sample,
    chunks,
    features_for,
    same_columns,
)
from randkern.kernels import Kernel


@dataclass(frozen=True)
class MMDResult:
    """The result of :func:`mmd_test`.

    Attributes
    ----------
    statistic : float
        The unbiased estimate of MMD², which may be negative.
    pvalue : float
        The share of statistics of permuted samples, and of this one, that are at least
        as large.
    power : float
        Estimated probability that a test of two other samples of these sizes from the
        same two distributions rejects at `level`, by the normal limit of the statistic;
        at least `level`.
    level : float
    null_distribution : ndarray of shape (n_permutations,)
        Statistics of permuted samples.
    kernel : Kernel
        With numbers in place of rules that depend on data.
    """

    statistic: float
    pvalue: float
    power: float
    level: float
    null_distribution: np.ndarray
    kernel: Kernel
    _features: RandomFeatures
    _weights: np.ndarray

    def __repr__(self) -> str:
        return described(self)

    def witness(self, X: Any) -> np.ndarray:
        r"""Return the witness function at rows, (n,).

        It is :math:`f(z) = \frac{1}{n}\sum_i k(x_i, z) - \frac{1}{m}\sum_j k(y_j, z)`:
        positive where the first sample is denser, negative where the second one is
        (Gretton et al. 2012, section 2.3).

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        """
        rows = Sample(X, "X", min_rows=1)
        parts = rows.features(self._features)
        return np.concatenate([Z @ self._weights for Z in parts])


def mmd_test(
    X: Any,
    Y: Any,
    kernel: Kernel | str | None = None,
    n_components: int | None = 1000,
    *,
    n_permutations: int = 500,
    level: float = 0.05,
    random_state: Any = None,
) -> MMDResult:
    r"""Test whether two samples come from the same distribution.

    The statistic is the unbiased estimate of MMD²,

    .. math:: \frac{\lVert\sum_i \varphi(x_i)\rVert^2
              - \sum_i \lVert\varphi(x_i)\rVert^2}{n (n - 1)}
              + \frac{\lVert\sum_j \varphi(y_j)\rVert^2
              - \sum_j \lVert\varphi(y_j)\rVert^2}{m (m - 1)} \\
              - \frac{2}{n m} \Big\langle \sum_i \varphi(x_i), \sum_j \varphi(y_j)
              \Big\rangle,

    with D random features in time linear in the number of rows, or with the exact
    kernel. The p-value comes from random assignments of the rows to samples of these
    sizes, so the level is exact for every kernel and number of rows. All permutations
    are summed in the same pass over the rows.

    Parameters
    ----------
    X, Y : array, CSR matrix, dataframe, Dask collection or RowBlocks
        The samples, with n and m rows of the same columns, at least 2 each; columns of
        dataframes may be in another order.
        One-dimensional arrays are single columns. Rows that do not fit in memory are
        passed as Dask collections or :class:`~randkern.RowBlocks`, and read three
        times.
    kernel : Kernel or "median", default=None
        None or ``"median"``: Gaussian, with the median distance between rows of both
        samples as its lengthscale. In tables, plus :class:`~randkern.Categorical` of
        each column of texts or categories, plus the product of all these.
    n_components : int or None, default=1000
        Number of random features D; None is the exact kernel, for samples in memory.
    n_permutations : int, default=500
        Number of random assignments; the smallest p-value is 1/(n_permutations + 1).
    level : float, default=0.05
        For the estimate of the power.
    random_state : int, generator or None, default=None
        Seeds features and permutations.

    Returns
    -------
    MMDResult
        With ``statistic``, ``pvalue``, ``power`` and ``witness(rows)``.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schölkopf and Smola 2012, "A kernel two-sample test", eq.
    3; Zhao and Meng 2015, "FastMMD: ensemble of circular discrepancy for efficient
    two-sample test".

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 3)), rng.normal(size=(400, 3))
    >>> rk.mmd_test(X, Y, random_state=0).pvalue > 0.05
    True
    >>> Y[:, 0] *= 1.5
    >>> rk.mmd_test(X, Y, random_state=0).pvalue < 0.01
    True
    """
    n_permutations = check_count("n_permutations", n_permutations)
    level = check_level(level)
    first = Sample(X, "X")
    second = same_columns(first, Sample(Y, "Y"))
    n, m = first.n_rows, second.n_rows
    stream = root_stream(random_state)
    features = features_for(kernel, n_components, (first, second), stream)

    def pooled() -> Iterator[np.ndarray]:
        """Yield the features of all rows, those of X first."""
        return chunks(chain(first.features(features), second.features(features)))

    observed = np.arange(n + m) < n
    subsets = random_subsets(
        n + m, n, n_permutations, stream.child("permutations"), CHUNK_ROWS
    )
    sums: Any = 0.0
    squares: Any = 0.0
    start = 0
    for Z, permuted in zip(pooled(), subsets, strict=True):
        own = observed[start : start + len(Z)]
        subset = np.vstack([own, permuted, np.ones_like(own)]).astype(float)
        sums = sums + subset @ Z
        squares = squares + subset @ (Z**2).sum(axis=1)
        start += len(Z)
    statistics = _unbiased(sums, squares, n, m)
    statistic = float(statistics[0])
    null = statistics[1:]
    resolution = 1e-13 * float(squares[-1]) / (n + m)
    weights = sums[0] / n - (sums[-1] - sums[0]) / m
    deviation = _deviation(first, second, features, weights)
    return MMDResult(
        statistic=statistic,
        pvalue=pvalue_of(statistic, null, resolution),
        power=power_of(statistic, null, deviation, level, resolution),
        level=level,
        null_distribution=null,
        kernel=features.kernel_,
        _features=features,
        _weights=weights,
    )


def _unbiased(sums: np.ndarray, squares: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the statistics of subsets of n rows, against the other m.

    From sums of the features of the subsets, and of their squared norms; the last are
    those of all rows.
    """
    of_x, of_y = sums[:-1], sums[-1] - sums[:-1]
    within_x = (of_x**2).sum(axis=1) - squares[:-1]
    within_y = (of_y**2).sum(axis=1) - (squares[-1] - squares[:-1])
    between = (of_x * of_y).sum(axis=1)
    return within_x / (n * (n - 1)) + within_y / (m * (m - 1)) - 2 * between / (n * m)


def _deviation(
    first: Sample, second: Sample, features: RandomFeatures, weights: np.ndarray
) -> float:
    """Return the standard deviation of the statistic where the distributions differ.

    It is 2 √(Var f(x)/n + Var f(y)/m) with the witness f, to first order.
    """
    total = 0.0
    for sample in (first, second):
        values = [Z @ weights for Z in sample.features(features)]
        total += np.concatenate(values).var() / sample.n_rows
    return 2 * float(np.sqrt(total))
