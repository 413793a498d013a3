r"""The test of independence by the Hilbert-Schmidt independence criterion.

With features :math:`\varphi` and :math:`\psi` of kernels of x and of y,

.. math:: \mathrm{HSIC}(x, y) = \|E[\varphi(x) \psi(y)^\top]
          - E\,\varphi(x)\, E\,\psi(y)^\top\|_F^2,

the squared norm of a matrix of covariances, which is 0 if x and y are independent, and
for characteristic kernels, such as the Gaussian, only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._random import root_stream
from randkern._validation import check_count
from randkern.hypothesis_tests.permutations import (
    check_level,
    described,
    permuted_rows,
    power_of,
    pvalue_of,
)
from randkern.hypothesis_tests.rows import CHUNK_ROWS, Sample, features_for
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
    random permutations of the rows of Y within chunks of 4,096, which are summed in the
    same pass, so the level is exact for all kernels and numbers of rows. A permutation
    takes 2 n D² operations or, of n × n kernel values if these are fewer, about n².

    Parameters
    ----------
    X, Y : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
        Row i of `X` belongs to row i of `Y`. One-dimensional arrays are single columns.
        Rows that do not fit in memory are read three times.
    kernel_x, kernel_y : Kernel or "median", default=None
        None or ``"median"``: Gaussian, with the median distance between rows as its
        lengthscale; columns of texts and categories are factors
        :class:`~randkern.Categorical`.
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
    orders = permuted_rows(n, n_permutations, generator, CHUNK_ROWS)
    width_x, width_y = (len(f.get_feature_names_out()) for f in (of_x, of_y))
    # An order takes n² random entries of a kernel or n D² operations on features, and
    # the covariances of a few hundred orders are in memory, but only two kernels.
    size = width_x * width_y
    kernels_are_smaller = _ENTRY_COST * n < size and n**2 < _ENTRY_COST * size
    products = _of_kernels if kernels_are_smaller else _of_features
    terms = products(
        lambda: first.features(of_x), lambda: second.features(of_y), orders
    )
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


#: Reads the features of a sample in chunks, from the first one on.
_Chunks = Callable[[], Iterator[np.ndarray]]

# An operation on random entries of a matrix takes as long as so many of a product.
_ENTRY_COST = 64


def _of_features(X: _Chunks, Y: _Chunks, orders: Iterable[np.ndarray]) -> _Terms:
    """Sum covariances of features, in two passes, and all orders in the first."""
    cross: Any = 0.0
    sum_x: Any = 0.0
    sum_y: Any = 0.0
    n = 0
    for Z, V, permuted in zip(X(), Y(), orders, strict=True):
        cross = cross + np.stack([Z.T @ V[order] for order in permuted])
        sum_x = sum_x + Z.sum(axis=0)
        sum_y = sum_y + V.sum(axis=0)
        n += len(Z)
    mean_x, mean_y = sum_x / n, sum_y / n
    covariances = cross / n - np.outer(mean_x, mean_y)
    influences = [
        (((Z - mean_x) @ covariances[0]) * (V - mean_y)).sum(axis=1)
        for Z, V in zip(X(), Y(), strict=True)
    ]
    return _Terms(
        (covariances**2).sum(axis=(1, 2)),
        np.concatenate(influences),
        1e-26 * float((cross[0] ** 2).sum()) / n**2,
    )


def _of_kernels(X: _Chunks, Y: _Chunks, orders: Iterable[np.ndarray]) -> _Terms:
    """Sum products of centred kernel values, all in memory: the same terms."""
    Z = np.concatenate(list(X()))
    V = np.concatenate(list(Y()))
    n = len(Z)
    starts = range(0, n, CHUNK_ROWS)
    chunks = [start + rows for start, rows in zip(starts, orders, strict=True)]
    K, L = Z @ Z.T, V @ V.T
    resolution = 1e-26 * float(np.vdot(K, L)) / n**2
    K = _centered(K)
    L = _centered(L)
    statistics = [
        float(np.vdot(K, L[np.ix_(order, order)])) / n**2
        for order in np.concatenate(chunks, axis=1)
    ]
    return _Terms(np.array(statistics), (K * L).sum(axis=1) / n, resolution)


def _centered(K: np.ndarray) -> np.ndarray:
    """Return H K H with H = I − 11ᵀ/n."""
    means = K.mean(axis=0)
    return K - means - means[:, None] + means.mean()
