"""Lengthscales from data: the rules ``"scale"`` and ``"median"``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from randkern._random import Stream
from randkern._validation import Rows
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.exceptions import ColumnScaleWarning

_MEDIAN_ROWS = 1000
_BLOCK = 4096
# Columns that vary less than others by this factor have no effect under a common
# lengthscale.
_MAX_SPREAD = 1e3
_MAX_NAMES = 4


def standard_deviation(X: Rows, sample_weight: np.ndarray | None) -> float:
    """Return the standard deviation of all entries of X, with weighted rows.

    As in scikit-learn's ``gamma="scale"`` the entries are pooled over columns.
    Computed in two passes in float64, on entries divided by their largest
    magnitude, to avoid overflow and underflow.
    """
    n, d = X.shape
    ops = ops_of(X)
    values = X.data if sp.issparse(X) else X
    largest = float(max(-values.min(), values.max(), 0.0)) if len(values) else 0.0
    has_zeros = sp.issparse(X) and len(values) < n * d
    if largest == 0.0 or (not has_zeros and values.min() == values.max()):
        return 0.0
    weight = ops.float64_ones(n, X) if sample_weight is None else sample_weight
    total = float(weight.sum()) * d
    blocks = list(row_blocks(n, _BLOCK))
    sums = [float(weight[rows] @ ops.float64_row_sums(X[rows])) for rows in blocks]
    mean = sum(sums) / largest / total
    squares = 0.0
    for rows in blocks:
        if sp.issparse(X):
            block = X[rows].astype(np.float64)
            zeros = d - np.diff(block.indptr)
            block.data = (block.data / largest - mean) ** 2
            row_sums = np.asarray(block.sum(axis=1)).ravel() + zeros * mean**2
        else:
            row_sums = ops.float64_squared_norms(
                ops.as_float64(X[rows]) / largest - mean
            )
        squares += float(weight[rows] @ row_sums)
    return largest * float(np.sqrt(squares / total))


def warn_of_scales(X: Rows, names: Sequence[str]) -> None:
    """Warn of columns that are too small to matter under a common lengthscale.

    They vary less than others both in standard deviation and in range: pixels and
    indicators that are rarely on have small deviations, but share a unit. Sparse rows,
    which hold counts and indicators, are not checked.
    """
    if sp.issparse(X) or X.shape[1] < 2:
        return
    ops = ops_of(X)
    sample = ops.as_float64(X[:: max(X.shape[0] // _BLOCK, 1)])
    largest = ops.largest_or_zero(abs(sample))
    sample = sample / (largest or 1.0)
    low = ops.xp.min(sample, axis=0)
    high = ops.xp.max(sample, axis=0)
    reach = high - low
    deviation = reach * ops.xp.std((sample - low) / (reach + 1e-300), axis=0)
    # Columns that vary only by rounding errors are constant.
    varying = reach > 64 * ops.precision(X.dtype) * ops.xp.maximum(-low, high)
    unseen = varying & (_MAX_SPREAD * reach < ops.largest_or_zero(reach))
    unseen = unseen & (_MAX_SPREAD * deviation < ops.largest_or_zero(deviation))
    if not bool(unseen.any()):
        return
    deviation = largest * ops.to_host(deviation)
    varying = ops.to_host(varying)
    unseen = ops.to_host(unseen)
    order = [j for j in deviation.argsort() if varying[j]]
    small = [names[j] for j in order if unseen[j]]
    seen = _MAX_SPREAD * deviation > deviation.max()
    large = [names[j] for j in order[::-1] if seen[j]]
    spread = f"{deviation[order[0]]:.2g} to {deviation[order[-1]]:.2g}"
    warn(
        f"the columns of X have standard deviations from {spread}: a kernel with a "
        f"single lengthscale depends on {_listed(large)}, but hardly on "
        f"{_listed(small)}. Scale the columns first, for instance with "
        "make_pipeline(sklearn.preprocessing.StandardScaler(), model), or pass a "
        "lengthscale per column.",
        ColumnScaleWarning,
    )


def _listed(names: list[str]) -> str:
    """Return the first few names."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    plural = "columns" if len(names) > 1 else "column"
    return f"{plural} {', '.join(map(repr, names[:_MAX_NAMES]))}{more}"


def median_distance(
    X: Rows,
    sample_weight: np.ndarray | None,
    stream: Stream,
    metric: Literal["euclidean", "cityblock"],
) -> float:
    """Return the weighted median distance between rows of a seeded sample.

    A pair counts with the product of its rows' weights. Pairs of equal rows
    are left out; 1 if there are no others.
    """
    ops = ops_of(X)
    n = X.shape[0]
    if n > _MEDIAN_ROWS:
        sampled = stream.generator().choice(n, _MEDIAN_ROWS, replace=False)
        sampled.sort()
        X = ops.take(X, sampled)
        sample_weight = None if sample_weight is None else sample_weight[sampled]
    if sample_weight is not None:
        sample_weight = ops.to_host(sample_weight)
    rows = (X if sp.issparse(X) else ops.to_host(X)).astype(np.float64)
    pairwise_distances = _sparse_pdist if sp.issparse(X) else pdist
    if not sp.issparse(X):
        rows -= rows[0].copy()
    # So that squares neither overflow nor underflow.
    largest = float(abs(rows).max()) if rows.shape[1] else 0.0
    if largest == 0:
        return 1.0
    distances = largest * pairwise_distances(rows / largest, metric)
    apart = distances > 0
    distances = distances[apart]
    if distances.size == 0:
        return 1.0
    if sample_weight is None:
        return float(np.median(distances))
    first, second = np.triu_indices(rows.shape[0], 1)
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


def _sparse_pdist(
    X: sp.csr_array, metric: Literal["euclidean", "cityblock"]
) -> np.ndarray:
    """Return the distances that SciPy's ``pdist`` returns for dense rows."""
    pairs = np.triu_indices(X.shape[0], 1)
    if metric == "cityblock":
        # Not at the top: commands that predict do without all of these modules.
        from sklearn.metrics.pairwise import manhattan_distances

        # Its loops take 32-bit indices only.
        places = (X.indices.astype(np.intc), X.indptr.astype(np.intc))
        X = sp.csr_array((X.data, *places), shape=X.shape)
        return manhattan_distances(X)[pairs]
    # Products of equal rows are sums in the same order, so their distance is exactly 0.
    products = (X @ X.T).toarray()
    squares = products.diagonal()
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0))[pairs]
