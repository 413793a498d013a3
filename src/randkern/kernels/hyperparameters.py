"""Lengthscales, the learnable hyperparameters of a kernel, and derivatives in them.

θ is the vector of the logarithms of the learnable numbers of a kernel (arsinh of those
that may change their sign), such as the lengthscales of stationary kernels (one per
column if they are vectors) and the scales of :class:`Scaled` kernels. Random draws are
fixed: features depend on θ through the inputs of their projections and through their
weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.base import clone

from randkern._random import Stream
from randkern._validation import Rows
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.exceptions import ColumnScaleWarning, UnresolvedKernelError
from randkern.kernels.base import Kernel, Scale, Slopes
from randkern.kernels.factor_draws import DrawSlopes
from randkern.plan import Factor, Plan

RULES = ("scale", "median")
_MEDIAN_ROWS = 1000
_BLOCK = 4096
# Columns that vary less than others by this factor have no effect under a common
# lengthscale.
_MAX_SPREAD = 1e3
_MAX_NAMES = 4


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
    except (TypeError, ValueError):
        array = np.array(np.nan)
    is_positive = np.all((array > 0) & (array < np.inf))
    if not is_positive or array.ndim > 1 or np.asarray(value).dtype == bool:
        raise ValueError(
            "lengthscale must be a positive finite number or a vector of them, got "
            f"{value!r}."
        )
    if array.ndim == 0:
        return float(array)
    if array.shape != (width,):
        raise ValueError(
            f"lengthscale has {array.size} entries, but {owner} reads {width} columns; "
            "pass one entry per column, or a single number."
        )
    return array


def check_inverse(lengthscale: float | np.ndarray, X: Rows) -> None:
    """Raise if the inverse of a lengthscale overflows in the dtype of the rows."""
    dtype = np.dtype(f"f{X.dtype.itemsize}")
    smallest = float(np.min(lengthscale))
    if smallest * float(np.finfo(dtype).max) < 1:
        raise ValueError(
            f"the inverse of the lengthscale {smallest:.3g} overflows {dtype}, as the "
            "entries of X are too small; scale the input up (for instance with "
            "sklearn.preprocessing.MaxAbsScaler)."
        )


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


def warn_of_scales(X: Rows, names: list[str]) -> None:
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


class Hyperparameters:
    """The learnable numbers of a resolved kernel, as one vector θ.

    They have `names` as in ``get_params``, with an index for entries of arrays; those
    in `signed_names` may change their sign.
    """

    def __init__(self, kernel: Kernel):
        # A clone: an object used in two places gets separate numbers in each.
        self.kernel = clone(kernel)
        self._slices: dict[tuple[Kernel, str], slice] = {}
        self.size = 0
        for _, owner, attribute in _learnable(self.kernel, ""):
            start = self.size
            self.size += np.size(getattr(owner, attribute))
            self._slices[owner, attribute] = slice(start, self.size)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self._named()]

    @property
    def signed_names(self) -> set[str]:
        return {name for name, is_signed in self._named() if is_signed}

    def _named(self) -> Iterator[tuple[str, bool]]:
        """Yield the name of each number, and whether it is signed."""
        for path, owner, attribute in _learnable(self.kernel, ""):
            shape = np.shape(getattr(owner, attribute))
            for at in np.ndindex(shape):
                name = path + str(list(at) if shape else "")
                yield name, attribute in owner.signed

    @property
    def theta(self) -> np.ndarray:
        """Natural logarithms (arsinh of signed ones), in the order of `names`."""
        parts = [np.empty(0)]
        for owner, attribute in self._slices:
            value = np.asarray(getattr(owner, attribute), dtype=float).ravel()
            if attribute in owner.signed:
                parts.append(np.arcsinh(value))
            else:  # signs are kept
                parts.append(np.log(np.maximum(abs(value), np.finfo(float).tiny)))
        return np.concatenate(parts)

    def at(self, theta: np.ndarray) -> Hyperparameters:
        """Return the hyperparameters of a copy of the kernel with these numbers."""
        other = Hyperparameters(self.kernel)
        for (owner, attribute), entries in other._slices.items():
            old = getattr(owner, attribute)
            new = theta[entries].reshape(np.shape(old))
            is_signed = attribute in owner.signed
            new = np.sinh(new) if is_signed else np.sign(old) * np.exp(new)
            setattr(owner, attribute, new if np.ndim(old) else float(new))
        return other

    def rescaling(self) -> np.ndarray:
        """Return the shortest direction in θ that multiplies all terms by e.

        It is a least-squares solution: terms without a scale do not change.
        """
        rows = [np.zeros(self.size)]
        for term in self.kernel.terms():
            if term.scales:
                rows.append(np.zeros(self.size))
            for scale in term.scales:
                rows[-1][self.index_of(scale)] = 1.0
        wanted = np.ones(len(rows))
        return np.linalg.lstsq(np.array(rows), wanted, rcond=None)[0]

    def index_of(self, scale: Scale) -> int:
        """Return the index of a scale in θ."""
        return self._slices[scale.owner, scale.attribute].start + scale.index

    def add_slopes(self, slopes: Slopes, out: np.ndarray) -> None:
        """Add derivatives in the numbers of parts of the kernel to those in θ."""
        for owner, attribute, value in slopes:
            entries = self._slices[owner, attribute]
            out[entries] += np.ravel(ops_of(value).to_host(value))


def _learnable(kernel: Kernel, path: str) -> Iterator[tuple[str, Kernel, str]]:
    """Yield the path, owner and name of every learnable attribute of a kernel."""
    for name in kernel.learnable:
        yield path + name, kernel, name
    for name in kernel.parts:
        yield from _learnable(getattr(kernel, name), f"{path}{name}__")


def add_gram_gradient(
    hyper: Hyperparameters, X: Rows, Y: Rows, M: np.ndarray, out: np.ndarray
) -> None:
    """Add Σ_ij M_ij ∂k(x_i, y_j)/∂θ to `out`, for float64 rows."""
    hyper.add_slopes(hyper.kernel._slopes(X, Y, M), out)


def with_kernel(plan: Plan, before: Kernel, after: Kernel) -> Plan:
    """Return the same draws for a kernel of the same form with other numbers.

    The columns of terms do not change with their scales; the weights of features
    are proportional to the square roots of the terms' scales.
    """
    groups = []
    for group, old, new in zip(plan.groups, before.terms(), after.terms(), strict=True):
        factors = tuple(
            Factor(
                leaf.projection_like(factor.projection),
                factor.nonlinearity,
                leaf.inputs(plan.n_features_in),
            )
            for leaf, drawn in new.split(group.factors)
            for factor in drawn
        )
        weight = group.weight * math.sqrt(new.weight / old.weight)
        groups.append(replace(group, factors=factors, weight=weight))
    return Plan(tuple(groups), plan.n_features_in)


def add_feature_gradient(
    hyper: Hyperparameters,
    plan: Plan,
    X: Rows,
    Z: np.ndarray,
    G: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add Σ_ij G_ij ∂z_ij/∂θ to `out`, Z being the features of float64 rows X.

    The weight of a feature is proportional to the square root of its scales.
    """
    for group, term in zip(plan.groups, hyper.kernel.terms(), strict=True):
        columns = slice(group.start, group.stop)
        slopes = DrawSlopes(group, X, Z[:, columns], G[:, columns])
        total = float((slopes.Z * slopes.G).sum())
        for scale in term.scales:
            out[hyper.index_of(scale)] += 0.5 * total
        for leaf, factors in term.split(group.factors):
            hyper.add_slopes(leaf._feature_slopes(factors, slopes), out)
