"""What learning may change in a kernel, and the derivatives in it.

θ is the vector of the logarithms of the numbers that kernels call learnable: the
lengthscales of stationary kernels (one per column where they are vectors) and the
scales of :class:`Scaled` kernels. Random draws stay as they are: features change with θ
through the inputs of their projections and through their weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from randkern._validation import Rows
from randkern.kernels.base import Kernel, Scale
from randkern.kernels.feature_gradients import DrawSlopes
from randkern.plan import Plan


class Hyperparameters:
    """The numbers of a resolved kernel that can be learned, as one vector θ.

    Examples
    --------
    >>> import randkern as rk
    >>> from randkern.kernels.hyperparameters import Hyperparameters
    >>> Hyperparameters(2.0 * rk.Gaussian([1.0, 3.0])).names
    ['scale', 'kernel__lengthscale[0]', 'kernel__lengthscale[1]']
    """

    def __init__(self, kernel: Kernel):
        # A clone: an object that stands in two places has numbers of its own in each.
        self.kernel = kernel = clone(kernel)
        self._entries = list(kernel._learnable(""))
        self._slices: dict[tuple[int, str], slice] = {}
        start = 0
        for entry in self._entries:
            stop = start + entry.value.size
            self._slices[id(entry.owner), entry.attribute] = slice(start, stop)
            start = stop
        self.size = start

    @property
    def names(self) -> list[str]:
        """Names as in ``get_params``, with an index where there is a vector."""
        return [name for entry in self._entries for name in entry.names]

    @property
    def theta(self) -> np.ndarray:
        """Natural logarithms, in the order of `names`."""
        parts = [entry.logarithms for entry in self._entries]
        return np.concatenate([*parts, np.empty(0)])

    def at(self, theta: np.ndarray) -> Hyperparameters:
        """Return those of a copy of the kernel with other numbers."""
        other = Hyperparameters(self.kernel)
        start = 0
        for entry in other._entries:
            stop = start + entry.value.size
            entry.set_logarithms(theta[start:stop])
            start = stop
        return other

    def rescaling(self) -> np.ndarray:
        """Return the shortest direction in θ that multiplies all terms by e.

        As nearly as there is one: terms without a scale do not change.
        """
        rows = [np.zeros(self.size)]
        for term in self.kernel.terms():
            if term.scales:
                rows.append(np.zeros(self.size))
            for scale in term.scales:
                rows[-1][self.index_of(scale)] = 1.0
        wanted = np.ones(len(rows))
        return np.linalg.lstsq(np.array(rows), wanted, rcond=None)[0]

    def place(self, owner: Kernel, attribute: str) -> slice | None:
        """Return where in θ an attribute of a part of the kernel stands."""
        return self._slices.get((id(owner), attribute))

    def index_of(self, scale: Scale) -> int:
        """Return which entry of θ a scale is."""
        return self._slices[id(scale.owner), scale.attribute].start + scale.index


def add_gram_gradient(
    hyper: Hyperparameters, X: Rows, Y: Rows, M: np.ndarray, out: np.ndarray
) -> None:
    """Add Σ_ij M_ij ∂k(x_i, y_j)/∂θ to `out`, for float64 rows."""
    hyper.kernel._add_gradient(hyper.place, X, Y, M, out)


def with_kernel(plan: Plan, before: Kernel, after: Kernel) -> Plan:
    """Return the same draws for a kernel of the same form with other numbers.

    Every term keeps its columns, whatever its scale is now; the weights of features
    are proportional to the roots of the terms' scales.
    """
    groups = []
    for group, old, new in zip(plan.groups, before.terms(), after.terms(), strict=True):
        parts = (
            leaf.rebound(factors, plan.n_features_in)
            for leaf, factors in new.split(group.factors)
        )
        factors = tuple(factor for part in parts for factor in part)
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

    A weight of features is the root of its scales.
    """
    for group, term in zip(plan.groups, hyper.kernel.terms(), strict=True):
        columns = slice(group.start, group.stop)
        slopes = DrawSlopes(group, X, Z[:, columns], G[:, columns])
        total = float((slopes.Z * slopes.G).sum())
        for scale in term.scales:
            out[hyper.index_of(scale)] += 0.5 * total
        for leaf, factors in term.split(group.factors):
            leaf._add_feature_gradient(hyper.place, factors, slopes, out)
