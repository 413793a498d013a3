"""The learnable hyperparameters of a kernel, and derivatives in them.

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

import numpy as np
from sklearn.base import clone

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Kernel, Scale, Slopes
from randkern.kernels.factor_draws import DrawSlopes
from randkern.plan import Factor, Plan


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
