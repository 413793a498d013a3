r"""The test of independence by the Hilbert-Schmidt independence criterion.

With features :math:`\varphi` and :math:`\psi` of kernels of x and of y,

.. math:: \mathrm{HSIC}(x, y) = \|E[\varphi(x) \psi(y)^\top]
          - E\,\varphi(x)\, E\,\psi(y)^\top\|_F^2,

the squared norm of a matrix of covariances, which is 0 if x and y are independent, and
for characteristic kernels, such as the Gaussian, only then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._random import root_stream
from randkern._validation import check_count
from randkern.hypothesis_tests.permutations import (
    check_level,
    described,
    permuted_covariances,
    power_of,
    pvalue_of,
)
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
        distribution rejects at `level`, by the normal limit of the statistic; at least
        `level`.
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
    null_distribution: np.ndarray
    kernel_x: Kernel
    kernel_y: Kernel

    def __repr__(self) -> str:
        return described(self)


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

    .. math:: \Big\lVert \frac{1}{n} \sum_i \varphi(x_i) \psi(y_i)^\top
              - \bar\varphi \bar\psi^\top \Big\rVert_F^2,

    or, with the exact kernels, :math:`\operatorname{tr}(K H L H)/n^2` with
    :math:`H = I - 11^\top/n`. The p-value comes from
    random permutations of the rows of Y, so the level is exact for all kernels and
    numbers of rows. All permutations together take about 4 n D² operations (see
    :func:`~randkern.hypothesis_tests.permutations.permuted_covariances`); with fewer
    rows than features, each takes about n².

    Parameters
    ----------
    X, Y : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
        Row i of `X` belongs to row i of `Y`. One-dimensional arrays are single columns.
        Rows that do not fit in memory are read three times; their features, 8 n D
        bytes of each sample, are in memory.
    kernel_x, kernel_y : Kernel or "median", default=None
        None or ``"median"``: Gaussian, with the median distance between rows as its
        lengthscale. In tables, plus :class:`~randkern.Categorical` of each column of
        texts or categories, plus the product of all these.
    n_components : int or None, default=100
        Number of random features D of each kernel; None is the exact kernel, for
        samples in memory.
    n_permutations : int, default=200
        Number of permutations; the smallest p-value is 1/(n_permutations + 1).
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
    first = Sample(X, "X")
    second = Sample(Y, "Y")
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
    Z = np.concatenate(list(first.features(of_x)))
    V = np.concatenate(list(second.features(of_y)))
    products = _of_kernels if n**2 < Z.shape[1] * V.shape[1] else _of_features
    terms = products(Z, V, n_permutations, generator)
    statistic = float(terms.statistics[0])
    null = terms.statistics[1:]
    # To first order, the statistic varies as the mean of twice the influences.
    deviation = 2 * float(np.sqrt(terms.influences.var() / n))
    return HSICResult(
        statistic=statistic,
        pvalue=pvalue_of(statistic, null, terms.resolution),
        power=power_of(statistic, null, deviation, level, terms.resolution),
        level=level,
        null_distribution=null,
        kernel_x=of_x.kernel_,
        kernel_y=of_y.kernel_,
    )


@dataclass(frozen=True)
class _Terms:
    """What the test needs of all orders of the rows of Y, the observed one first."""

    statistics: np.ndarray
    influences: np.ndarray  # of the rows, on the observed statistic
    resolution: float  # of rounding errors


def _of_features(
    Z: np.ndarray, V: np.ndarray, n_permutations: int, generator: np.random.Generator
) -> _Terms:
    """Return squared norms of covariances of features."""
    n = len(Z)
    resolution = 1e-26 * float(np.vdot(Z, Z) * np.vdot(V, V)) / n**2
    Z -= Z.mean(axis=0)
    V -= V.mean(axis=0)
    covariances = permuted_covariances(Z, V, n_permutations, generator)
    influences = np.einsum("ij,ij->i", Z @ covariances[0], V)
    return _Terms((covariances**2).sum(axis=(1, 2)), influences, resolution)


def _of_kernels(
    Z: np.ndarray, V: np.ndarray, n_permutations: int, generator: np.random.Generator
) -> _Terms:
    """Return the same from n × n matrices of centred kernel values."""
    n = len(Z)
    K, L = Z @ Z.T, V @ V.T
    resolution = 1e-26 * float(np.trace(K) * np.trace(L)) / n**2
    K = _centered(K)
    L = _centered(L)
    statistics = [float(np.vdot(K, L))]
    for _ in range(n_permutations):
        order = generator.permutation(n)
        statistics.append(float(np.vdot(K, L[np.ix_(order, order)])))
    influences = (K * L).sum(axis=1) / n
    return _Terms(np.array(statistics) / n**2, influences, resolution)


def _centered(K: np.ndarray) -> np.ndarray:
    """Return H K H with H = I − 11ᵀ/n."""
    means = K.mean(axis=0)
    return K - means - means[:, None] + means.mean()
