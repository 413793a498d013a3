"""The number of random features to use, chosen before any are drawn."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.linalg

from randkern._random import root_stream
from randkern._tables import column_names
from randkern._validation import (
    MAX_COMPONENTS,
    Rows,
    check_choice,
    check_count,
    check_kernel_rows,
    check_positive,
)
from randkern.backend.blas import one_thread_if_short
from randkern.kernels import Kernel
from randkern.kernels.base import mean_diagonals
from randkern.kernels.default import checked_kernel
from randkern.kernels.factor_draws import allot

__all__ = ["effective_dimension", "hoeffding_n_components", "suggest_n_components"]


def suggest_n_components(
    kernel: Kernel | None,
    X: Any,
    relative_error: float = 0.05,
    *,
    fourier: Literal["pair", "offset"] = "pair",
    max_rows: int = 1000,
    random_state: Any = 0,
) -> int:
    """Return the number of features for a given error of the Gram matrix.

    The error is the expected relative Frobenius error off the diagonal, for
    independent draws,

        ε(D) = √(Σ_{i≠j} Var[φ(x_i)·φ(x_j)] / Σ_{i≠j} K(x_i, x_j)²),

    with the variance in closed form (:meth:`Kernel.feature_variance`); the
    smallest D with ε(D) at most `relative_error` is returned. Orthogonal and
    structured projections do better than this.

    Parameters
    ----------
    kernel : Kernel or None
        None is ``Gaussian(lengthscale="scale")``.
    X : array, CSR matrix or dataframe of shape (n, d)
        Rows like those to compute features for.
    relative_error : float
        ε > 0.
    fourier : {"pair", "offset"}
        ``"pair"``: cosines and sines of half as many frequencies as features;
        ``"offset"``: cosines with random phases.
    max_rows : int
        A larger X is replaced by a sample of this many rows.
    random_state : int, generator or None
        Seeds the sample.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If X has fewer than two rows, or the kernel is 0 for all pairs of them
        (the relative error is then undefined).

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> rk.suggest_n_components(rk.Gaussian(2.0), X, relative_error=0.05)
    980
    """
    check_positive("relative_error", relative_error)
    check_choice("fourier", fourier, ("pair", "offset"))
    kernel, X = _sampled(kernel, X, max_rows, random_state)
    if X.shape[0] < 2:
        raise ValueError(
            f"the error of a Gram matrix off its diagonal needs at least 2 rows, got "
            f"{X.shape[0]}; pass more rows."
        )
    terms = kernel.terms()
    exact_widths = [term.exact_width(X.shape[1]) for term in terms]
    limit = None
    if None not in exact_widths:
        limit = sum(width or 0 for width in exact_widths)
    exact = kernel._gram(X, None)
    np.fill_diagonal(exact, 0.0)
    scale = float(np.sum(exact**2))
    if scale == 0:
        raise ValueError(
            "the kernel is 0 for all pairs of rows of X, so a relative error is "
            "undefined; use a larger lengthscale."
        )

    diagonals = mean_diagonals(terms, X, None)
    moments = [term.variance(X, X, fourier) for term in terms]
    sums = [[float(M.sum() - np.trace(M)) for M in m.matrices] for m in moments]

    def error(n_components: int) -> float:
        widths = allot(n_components, diagonals, exact_widths)
        total = sum(
            float(m.combine(width, s))
            for m, width, s in zip(moments, widths, sums, strict=True)
        )
        return math.sqrt(max(total, 0.0) / scale)

    return _smallest(error, relative_error, len(terms), limit)


def _smallest(
    error: Callable[[int], float], target: float, at_least: int, at_most: int | None
) -> int:
    """Return the smallest D >= at_least with error(D) <= target, for error about c/√D.

    `at_least` is the number of terms that share the columns, and `at_most` the width at
    which a kernel's features are exact, if there is one.
    """
    high = at_least if at_most is None else at_most
    while (current := error(high)) > target:
        if high >= MAX_COMPONENTS:
            raise ValueError(_too_small(f"a relative error of {target:.3g}"))
        wanted = high * min(current / target, MAX_COMPONENTS) ** 2
        high = min(max(2 * high, math.ceil(wanted)), MAX_COMPONENTS)
    best = high
    # An odd number of columns, the last without its pair, has a larger error than the
    # even number before it: the error decreases only among even and among odd numbers.
    for last in (high, high - 1):
        if last >= at_least and error(last) <= target:
            sizes = range(at_least + (last - at_least) % 2, last, 2)
            first = bisect_left(sizes, True, key=lambda D: error(D) <= target)
            best = min(best, sizes[first] if first < len(sizes) else last)
    # If several terms share the columns, it need not decrease among those either.
    step = 4 * (at_least - 1)
    while fewer := [
        D for D in range(max(at_least, best - step), best) if error(D) <= target
    ]:
        best = fewer[0]
    return best


def _too_small(error: str) -> str:
    """Return the message for an error that no number of features reaches."""
    return (
        f"{error} needs more than {MAX_COMPONENTS:.0e} features; use the exact kernel "
        "(n_components=None), or allow a larger error."
    )


def hoeffding_n_components(
    error: float,
    failure_probability: float = 0.01,
    *,
    bound: float = 1.0,
    fourier: str = "pair",
) -> int:
    """Return a sufficient number of features by Hoeffding's inequality.

    For one pair of points and a feature scheme with |ψ| ≤ C, q complex draws
    with

        q ≥ 2 C⁴ log(2/δ)/ε²

    give P(|φ(x)·φ(y) − K(x, y)| ≥ ε) ≤ δ. A pair is one complex draw and two
    columns; single columns √2·cos(ω·x + b) are bounded by √2·C and need q ≥
    8 C⁴ log(2/δ)/ε² of them.

    Parameters
    ----------
    error : float
        ε > 0, absolute.
    failure_probability : float
        δ in (0, 1).
    bound : float
        C; 1 for every stationary kernel.
    fourier : {"pair", "offset"}
        ``"pair"``: cosines and sines of half as many frequencies as features;
        ``"offset"``: cosines with random phases.

    References
    ----------
    Daniely, Frostig, Gupta, Singer 2017, "Random features for compositional
    kernels".

    Examples
    --------
    >>> import randkern as rk
    >>> rk.hoeffding_n_components(0.05, 0.01)
    8478
    """
    check_positive("error", error)
    check_positive("bound", bound)
    check_choice("fourier", fourier, ("pair", "offset"))
    if not check_positive("failure_probability", failure_probability) < 1:
        raise ValueError(
            f"failure_probability must be between 0 and 1, got {failure_probability}."
        )
    # Quotients before powers, which overflow for extreme arguments.
    ratio = bound / error * bound
    rare = math.log(2.0) - math.log(failure_probability)
    if ratio > math.sqrt(MAX_COMPONENTS / (8 * rare)):
        raise ValueError(_too_small(f"an error of {error:.3g}"))
    scale = ratio**2 * rare
    if fourier == "offset":
        return max(1, math.ceil(8 * scale))
    return max(2, 2 * math.ceil(2 * scale))


def effective_dimension(
    kernel: Kernel | None,
    X: Any,
    alpha: float = 1.0,
    *,
    max_rows: int = 2000,
    random_state: Any = 0,
) -> float:
    """Return tr K(K + αI)⁻¹, the degrees of freedom of exact kernel ridge.

    Ridge on random features reaches the exact kernel's accuracy with a number
    of features of this order (up to a logarithm and the leverage of the
    draws).

    Parameters
    ----------
    kernel : Kernel or None
        None is ``Gaussian(lengthscale="scale")``.
    X : array, CSR matrix or dataframe of shape (n, d)
        Rows like those to compute features for.
    alpha : float
        α > 0, the ridge penalty of the fit on all n rows.
    max_rows : int
        With more rows, the trace is estimated from a sample of this many, with
        the eigenvalues multiplied by n/max_rows: effectively a lower bound, as a
        sample of s rows has at most s eigenvalues.
    random_state : int, generator or None
        Seeds all random numbers.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> round(rk.effective_dimension(rk.Gaussian(2.0), X, alpha=1.0), 1)
    20.5
    """
    check_positive("alpha", alpha)
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    kernel, X = _sampled(kernel, X, max_rows, random_state)
    gram = kernel._gram(X, None)
    with one_thread_if_short(len(gram) ** 3):
        eigenvalues = scipy.linalg.eigh(gram, eigvals_only=True, overwrite_a=True)
    eigenvalues = np.maximum(eigenvalues, 0.0) * (n_rows / X.shape[0])
    return float(np.sum(eigenvalues / (eigenvalues + alpha)))


def _sampled(
    kernel: Kernel | None, X: Any, max_rows: int, random_state: Any
) -> tuple[Kernel, Rows]:
    """Return the kernel resolved on X, and a sample of its rows in float64."""
    check_count("max_rows", max_rows)
    names = column_names(X)
    X, _, encoder = check_kernel_rows(X)
    stream = root_stream(random_state)
    kernel = checked_kernel(kernel)._resolve(X, None, stream, names, encoder)
    if X.shape[0] > max_rows:
        generator = stream.child("rows").generator()
        sampled = np.sort(generator.choice(X.shape[0], max_rows, replace=False))
        X = X[sampled]
    return kernel, X.astype(np.float64)
