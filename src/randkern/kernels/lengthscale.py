"""Lengthscales: numbers, vectors, and the two rules that read them off data."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from randkern._random import Stream
from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.exceptions import ColumnScaleWarning, UnresolvedKernelError

RULES = ("scale", "median")
_MEDIAN_ROWS = 1000
_BLOCK = 4096
# Columns that vary less than others by this factor are unseen by a common lengthscale.
_WILD = 1e3
_NAMED = 4


def check_lengthscale(value: Any, width: int, owner: Any) -> float | np.ndarray:
    """Return a lengthscale as a positive float or a vector of `width` of them."""
    if isinstance(value, str):
        if value in RULES:
            raise UnresolvedKernelError(
                f"{owner} takes its lengthscale from data: call "
                "kernel.resolve(X) first (models do it in fit)."
            )
        raise ValueError(
            f"lengthscale must be a positive number, a vector of them, or one of "
            f"{list(RULES)}, got {value!r}."
        )
    try:
        array = np.asarray(value, dtype=float)
        if np.asarray(value).dtype == bool:
            array = np.array(np.nan)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim > 1 or not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise ValueError(
            "lengthscale must be a positive finite number or a vector of them, got "
            f"{value!r}."
        )
    if array.ndim == 0:
        return float(array)
    if array.shape != (width,):
        raise ValueError(
            f"lengthscale has {array.size} entries, but {owner} reads {width} columns."
        )
    return array


def check_inverse(lengthscale: float | np.ndarray, X: Rows) -> None:
    """Raise if rows cannot be divided by a lengthscale in their precision."""
    dtype = np.dtype(f"f{X.dtype.itemsize}")
    least = float(np.min(lengthscale))
    if least * float(np.finfo(dtype).max) < 1:
        raise ValueError(
            f"the lengthscale {least:.3g} has no inverse in {dtype}: the rows of X are "
            "too small; scale the input up (for instance with "
            "sklearn.preprocessing.MaxAbsScaler)."
        )


def standard_deviation(X: Rows, sample_weight: np.ndarray | None) -> float:
    """Return the standard deviation of all entries of X, rows weighted.

    As in scikit-learn's ``gamma="scale"`` the entries are pooled over columns.
    Two passes in float64, on entries divided by their largest magnitude, so
    that no scale overflows or vanishes.
    """
    n, d = X.shape
    ops = ops_of(X)
    values = X.data if sp.issparse(X) else X
    largest = float(max(-values.min(), values.max(), 0.0)) if len(values) else 0.0
    if largest == 0.0 or _is_constant(X, values):
        return 0.0
    weight = ops.ones(n, X) if sample_weight is None else sample_weight
    total = float(weight.sum()) * d
    mean = _weighted_sum(X, weight) / largest / total
    squares = 0.0
    for rows in row_blocks(n, _BLOCK):
        if sp.issparse(X):
            block = X[rows].astype(np.float64)
            zeros = d - np.diff(block.indptr)
            block.data = (block.data / largest - mean) ** 2
            row_sums = np.asarray(block.sum(axis=1)).ravel() + zeros * mean**2
        else:
            row_sums = ops.squared_norms(ops.as_float64(X[rows]) / largest - mean)
        squares += float(weight[rows] @ row_sums)
    return largest * float(np.sqrt(squares / total))


def warn_of_scales(X: Rows, names: list[str]) -> None:
    """Warn of columns that one lengthscale for all does not see.

    They vary less than others both in standard deviation and in range: pixels and
    indicators that are rarely on have small deviations, but share a unit. Sparse rows,
    which hold counts and indicators, are not looked at.
    """
    if sp.issparse(X) or X.shape[1] < 2:
        return
    ops = ops_of(X)
    sample = ops.as_float64(X[:: max(X.shape[0] // _BLOCK, 1)])
    largest = ops.largest(abs(sample))
    sample = sample / (largest or 1.0)
    low, high = ops.xp.min(sample, axis=0), ops.xp.max(sample, axis=0)
    reach = high - low
    deviation = reach * ops.xp.std((sample - low) / (reach + 1e-300), axis=0)
    # What varies by rounding errors is constant.
    varying = reach > 64 * ops.precision(X.dtype) * ops.xp.maximum(-low, high)
    unseen = varying & (_WILD * reach < ops.largest(reach))
    unseen = unseen & (_WILD * deviation < ops.largest(deviation))
    if not bool(unseen.any()):
        return
    deviation = largest * ops.to_host(deviation)
    varying, unseen = ops.to_host(varying), ops.to_host(unseen)
    order = [j for j in deviation.argsort() if varying[j]]
    few = [names[j] for j in order if unseen[j]]
    seen = _WILD * deviation > deviation.max()
    large = [names[j] for j in order[::-1] if seen[j]]
    spread = f"{deviation[order[0]]:.2g} to {deviation[order[-1]]:.2g}"
    warnings.warn(
        f"columns of X have standard deviations from {spread}: a kernel with one "
        f"lengthscale sees {_listed(large)}, but not {_listed(few)}. Scale them first, "
        "for instance by make_pipeline(sklearn.preprocessing.StandardScaler(), model), "
        "or give the kernel a lengthscale per column.",
        ColumnScaleWarning,
        stacklevel=2,
    )


def _listed(names: list[str]) -> str:
    """Return the first few names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    plural = "columns" if len(names) > 1 else "column"
    return f"{plural} {', '.join(map(repr, names[:_NAMED]))}{more}"


def _is_constant(X: Rows, values: np.ndarray) -> bool:
    has_zeros = sp.issparse(X) and len(values) < X.shape[0] * X.shape[1]
    return not has_zeros and bool(values.min() == values.max())


def _weighted_sum(X: Rows, weight: np.ndarray) -> float:
    total = 0.0
    for rows in row_blocks(X.shape[0], _BLOCK):
        sums = ops_of(X).row_sums(X[rows])
        total += float(weight[rows] @ sums)
    return total


def median_distance(
    X: Rows,
    sample_weight: np.ndarray | None,
    stream: Stream,
    metric: Literal["euclidean", "manhattan"],
) -> float:
    """Return the weighted median distance between rows of a seeded sample.

    A pair counts with the product of its rows' weights. Pairs of equal rows
    are left out; 1 if there are no others.
    """
    ops = ops_of(X)
    n = X.shape[0]
    if n > _MEDIAN_ROWS:
        chosen = stream.generator().choice(n, _MEDIAN_ROWS, replace=False)
        chosen.sort()
        X = ops.take(X, chosen)
        sample_weight = None if sample_weight is None else sample_weight[chosen]
    dense = ops.to_host(densify(X)).astype(np.float64)
    if sample_weight is not None:
        sample_weight = ops.to_host(sample_weight)
    # Shifted and divided by the largest entry, squares neither overflow nor vanish.
    dense -= dense[0].copy()
    largest = float(np.abs(dense).max(initial=0.0))
    if largest == 0:
        return 1.0
    name: Any = "cityblock" if metric == "manhattan" else metric
    distances = largest * pdist(dense / largest, name)
    apart = distances > 0
    distances = distances[apart]
    if distances.size == 0:
        return 1.0
    if sample_weight is None:
        return float(np.median(distances))
    first, second = np.triu_indices(dense.shape[0], 1)
    # Divided by a power of two, which loses no bit: products may overflow.
    sample_weight = sample_weight / 2.0 ** np.frexp(sample_weight.max())[1].clip(-1000)
    weights = (sample_weight[first] * sample_weight[second])[apart]
    order = np.argsort(distances)
    cumulative = np.cumsum(weights[order])
    # The lower and the upper median: they differ where half the weight is reached
    # exactly, as for equal weights of an even number of pairs.
    half = cumulative[-1] / 2
    lower, upper = (
        np.searchsorted(cumulative, half * (1 + sign * 1e-12)) for sign in (-1, 1)
    )
    return float(distances[order][[lower, upper]].mean())
