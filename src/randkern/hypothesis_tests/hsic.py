r"""The test of independence by the Hilbert-Schmidt independence criterion.

With features :math:`\varphi` and :math:`\psi` of kernels of x and of y,

.. math:: \mathrm{HSIC}(x, y) = \|E[\varphi(x) \psi(y)^\top]
          - E\,\varphi(x)\, E\,\psi(y)^\top\|_F^2,

the squared norm of a matrix of covariances, which is 0 if x and y are independent, and
for characteristic kernels, such as the Gaussian, only then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from randkern._random import root_stream
from randkern._validation import check_count
from randkern.hypothesis_tests.permutations import check_level, power_of, pvalue_of
from randkern.hypothesis_tests.rows import Sample, features_for
from randkern.kernels import Kernel


@dataclass(frozen=True)
class HSICResult:
    """The result of :func:`hsic_test`.

    Attributes
    ----------
    statistic : float
        The (biased) estimate of HSIC.
    pvalue : float
        The share of statistics of permuted rows, and of this one, that are at least as
        large.
    power : float
        Estimated probability that a test of as many other rows from the same
        distribution rejects at `level`, by the normal limit of the statistic.
    level : float
    null_distribution : ndarray of shape (n_permutations,)
        Statistics of permuted rows.
    kernel_x, kernel_y : Kernel
        With numbers in place of rules that depend on data.
    """

    statistic: float
    pvalue: float
    power: float
    level: float
    null_distribution: np.ndarray = field(repr=False)
    kernel_x: Kernel
    kernel_y: Kernel


def hsic_test(
    X: Any,
    Y: Any,
    kernel_x: Kernel | str | None = None,
    kernel_y: Kernel | str | None = None,
    n_components: int | None = 100,
    *,
    n_permutations: int = 200,
    level: float = 0.05,
    random_state: Any = None,
) -> HSICResult:
    r"""Test whether the rows of two samples are independent of each other.

    The statistic is the estimate of HSIC by D random features of each kernel,

    .. math:: \Big\| \frac{1}{n} \sum_i \varphi(x_i) \psi(y_i)^\top
              - \bar\varphi \bar\psi^\top \Big\|_F^2,

    or, with the exact kernels, :math:`\operatorname{tr}(K H L H)/n^2` with
    :math:`H = I - 11^\top/n`. Its distribution under the hypothesis is that for
    randomly permuted rows of Y; rows are permuted within chunks of 4,096, so that all
    permutations are summed in the same pass, and the test has its level for all kernels
    and numbers of rows. It takes 2 n D² operations per permutation.

    Parameters
    ----------
    X, Y : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
        Row i of `X` belongs to row i of `Y`. One-dimensional arrays are single columns.
        Rows that do not fit in memory are read three times.
    kernel_x, kernel_y : Kernel or "median", default=None
        None or ``"median"``: Gaussian, with the median distance between rows as its
        lengthscale. For categories, :class:`~randkern.Categorical`.
    n_components : int or None, default=100
        Number of random features D of each kernel; None is the exact kernel, for
        samples in memory.
    n_permutations : int, default=200
    level : float, default=0.05
        For the estimate of the power.
    random_state : int, generator or None, default=None
        Seeds features and permutations.

    Returns
    -------
    HSICResult
        With ``statistic``, ``pvalue`` and ``power``.

    References
    ----------
    Gretton, Fukumizu, Teo, Song, Schölkopf and Smola 2007, "A kernel statistical test
    of independence"; Zhang, Filippi, Gretton and Sejdinovic 2018, "Large-scale kernel
    methods for independence testing", section 3.3.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> rk.hsic_test(x, rng.normal(size=500), random_state=0).pvalue > 0.05
    True
    >>> rk.hsic_test(x, x**2 + rng.normal(size=500), random_state=0).pvalue < 0.01
    True
    """
    n_permutations = check_count("n_permutations", n_permutations)
    level = check_level(level)
    first, second = Sample(X, "X"), Sample(Y, "Y")
    n = first.n_rows
    if second.n_rows != n:
        raise ValueError(
            f"X has {n} rows, but Y has {second.n_rows}; row i of X belongs to row i "
            "of Y, so they must have the same number of rows."
        )
    stream = root_stream(random_state)
    of_x = features_for(kernel_x, n_components, (first,), stream.child("x"))
    of_y = features_for(kernel_y, n_components, (second,), stream.child("y"))
    generator = stream.child("permutations").generator()
    cross: Any = 0.0
    sum_x: Any = 0.0
    sum_y: Any = 0.0
    for Z, V in zip(first.features(of_x), second.features(of_y), strict=True):
        orders = [np.arange(len(V))]
        orders += [generator.permutation(len(V)) for _ in range(n_permutations)]
        cross = cross + np.stack([Z.T @ V[order] for order in orders])
        sum_x, sum_y = sum_x + Z.sum(axis=0), sum_y + V.sum(axis=0)
    mean_x, mean_y = sum_x / n, sum_y / n
    covariances = cross / n - np.outer(mean_x, mean_y)
    statistics = (covariances**2).sum(axis=(1, 2))
    statistic, null = float(statistics[0]), statistics[1:]
    resolution = 1e-26 * float((cross[0] ** 2).sum()) / n**2
    # To first order, the statistic varies as the mean of twice these values.
    influence = np.concatenate(
        [
            (((Z - mean_x) @ covariances[0]) * (V - mean_y)).sum(axis=1)
            for Z, V in zip(first.features(of_x), second.features(of_y), strict=True)
        ]
    )
    deviation = 2 * float(np.sqrt(influence.var() / n))
    return HSICResult(
        statistic=statistic,
        pvalue=pvalue_of(statistic, null, resolution),
        power=power_of(statistic, null, deviation, level),
        level=level,
        null_distribution=null,
        kernel_x=of_x.kernel_,
        kernel_y=of_y.kernel_,
    )
