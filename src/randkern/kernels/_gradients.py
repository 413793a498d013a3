"""What learning may change in a kernel, and the derivatives in it.

θ is the vector of the logarithms of the lengthscales of stationary kernels (one a
column where they are vectors) and of the scales of :class:`Scaled` kernels. Random
draws stay as they are: features change with θ through the inputs of their projections
and through their weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.base import clone

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.kernels._base import Kernel
from randkern.kernels.algebra import Product, Scaled, Sum
from randkern.kernels.stationary import (
    Cauchy,
    Gaussian,
    Laplacian,
    Matern,
    RationalQuadratic,
    Stationary,
)
from randkern.plan import Factor, Group, Plan, evaluate

__all__ = [
    "Hyperparameters",
    "add_feature_gradient",
    "add_gram_gradient",
    "with_kernel",
]

_DRAWS = 4096


@dataclass(frozen=True)
class _Entry:
    """An attribute of a kernel within an expression: a number or a vector."""

    owner: Kernel
    attribute: str
    path: str

    @property
    def value(self) -> np.ndarray:
        return np.atleast_1d(np.asarray(getattr(self.owner, self.attribute), float))


class Hyperparameters:
    """The numbers of a resolved kernel that can be learned, as one vector θ.

    Examples
    --------
    >>> import randkern as rk
    >>> from randkern.kernels._gradients import Hyperparameters
    >>> Hyperparameters(2.0 * rk.Gaussian([1.0, 3.0])).names
    ['scale', 'kernel__lengthscale[0]', 'kernel__lengthscale[1]']
    """

    def __init__(self, kernel: Kernel):
        # A clone: an object that stands in two places has numbers of its own in each.
        self.kernel = kernel = clone(kernel)
        self._entries = list(_entries(kernel, ""))
        self._slices: dict[int, slice] = {}
        start = 0
        for entry in self._entries:
            stop = start + entry.value.size
            self._slices[id(entry.owner)] = slice(start, stop)
            start = stop
        self.size = start

    @property
    def names(self) -> list[str]:
        """Names as in ``get_params``, with an index where there is a vector."""
        names = []
        for entry in self._entries:
            vector = np.ndim(getattr(entry.owner, entry.attribute)) > 0
            names += [
                f"{entry.path}[{i}]" if vector else entry.path
                for i in range(entry.value.size)
            ]
        return names

    @property
    def theta(self) -> np.ndarray:
        """Natural logarithms, in the order of `names`."""
        parts = [np.log(entry.value) for entry in self._entries]
        return np.concatenate([*parts, np.empty(0)])

    def at(self, theta: np.ndarray) -> Hyperparameters:
        """Return those of a copy of the kernel with other numbers."""
        other = Hyperparameters(self.kernel)
        start = 0
        for entry in other._entries:
            old = getattr(entry.owner, entry.attribute)
            stop = start + entry.value.size
            values = np.exp(theta[start:stop])
            new = values if np.ndim(old) else float(values[0])
            setattr(entry.owner, entry.attribute, new)
            start = stop
        return other

    def rescaling(self) -> np.ndarray:
        """Return the shortest direction in θ that multiplies all terms by e.

        As nearly as there is one: terms without a scale do not change.
        """
        rows = [np.zeros(self.size)]
        for owners in filter(None, _scales(self.kernel)):
            rows.append(np.zeros(self.size))
            for owner in owners:
                rows[-1][self._slices[owner]] = 1.0
        wanted = np.ones(len(rows))
        return np.linalg.lstsq(np.array(rows), wanted, rcond=None)[0]

    def place(self, owner: Kernel) -> slice | None:
        """Return where in θ the numbers of a part of the kernel stand."""
        return self._slices.get(id(owner))


def _entries(kernel: Kernel, path: str) -> Iterator[_Entry]:
    if isinstance(kernel, Scaled):
        yield _Entry(kernel, "scale", f"{path}scale")
        yield from _entries(kernel.kernel, f"{path}kernel__")
    elif isinstance(kernel, Sum | Product):
        yield from _entries(kernel.k1, f"{path}k1__")
        yield from _entries(kernel.k2, f"{path}k2__")
    elif isinstance(kernel, Stationary):
        yield _Entry(kernel, "lengthscale", f"{path}lengthscale")


# -- exact values -----------------------------------------------------------------


def add_gram_gradient(
    hyper: Hyperparameters, X: Rows, Y: Rows, M: np.ndarray, out: np.ndarray
) -> None:
    """Add Σ_ij M_ij ∂k(x_i, y_j)/∂θ to `out`, for float64 rows."""
    _add_gram(hyper, hyper.kernel, X, Y, M, out)


def _add_gram(
    hyper: Hyperparameters,
    kernel: Kernel,
    X: Rows,
    Y: Rows,
    M: np.ndarray,
    out: np.ndarray,
) -> None:
    place = hyper.place(kernel)
    if isinstance(kernel, Scaled):
        M = kernel.scale * M
        out[place] += float((M * kernel.kernel._gram(X, Y)).sum())
        _add_gram(hyper, kernel.kernel, X, Y, M, out)
    elif isinstance(kernel, Sum):
        _add_gram(hyper, kernel.k1, X, Y, M, out)
        _add_gram(hyper, kernel.k2, X, Y, M, out)
    elif isinstance(kernel, Product):
        _add_gram(hyper, kernel.k1, X, Y, M * kernel.k2._gram(X, Y), out)
        _add_gram(hyper, kernel.k2, X, Y, M * kernel.k1._gram(X, Y), out)
    elif isinstance(kernel, Stationary) and place is not None:
        X, Y = densify(kernel._select(X)), densify(kernel._select(Y))
        scale = kernel._inverse_scale(X)
        columns = ops_of(X).to_host(
            _lengthscale_gradient(kernel, X * scale, Y * scale, M)
        )
        out[place] += columns if np.ndim(kernel.lengthscale) else columns.sum()


def _lengthscale_gradient(
    kernel: Stationary, X: np.ndarray, Y: np.ndarray, M: np.ndarray
) -> np.ndarray:
    """Return Σ M ∂K/∂log ℓ_j for every column j, the rows being divided by ℓ.

    With one lengthscale only the sum over columns is asked for: it comes in one
    entry where that is cheaper.
    """
    ops = ops_of(X)
    if isinstance(kernel, Laplacian):
        distances = ops.zeros((X.shape[0], Y.shape[0]), X)
        ops.manhattan_distances(X, Y, distances)
        weight = M * kernel._profile(distances)
        return ops.stacked_numbers(
            [
                (weight * abs(x[:, None] - y)).sum()
                for x, y in zip(X.T, Y.T, strict=True)
            ]
        )
    if isinstance(kernel, Cauchy):
        squares = [(x[:, None] - y) ** 2 for x, y in zip(X.T, Y.T, strict=True)]
        weight = 2 * M
        for square in squares:
            weight = weight / (1 + square)
        return ops.stacked_numbers(
            [(weight * square / (1 + square)).sum() for square in squares]
        )
    squared = ops.scaled_squared_distances(X, Y, 1.0, False)
    weight = M * _slope(kernel, ops.copy(squared))
    if not np.ndim(kernel.lengthscale):
        return ops.stacked_numbers([(weight * squared).sum()])
    # Σ W (x − y)² by products; centred, little cancels where W is not small.
    center = Y.mean(axis=0)
    X, Y = X - center, Y - center
    cross = ops.algebra.column_products(X, weight @ Y)
    return weight.sum(axis=1) @ X**2 + weight.sum(axis=0) @ Y**2 - 2 * cross


@singledispatch
def _slope(kernel: Any, squared: np.ndarray) -> np.ndarray:
    """Return −2 f'(s) for K = f(s), s the squared distance (may overwrite it)."""
    raise NotImplementedError(f"{type(kernel).__name__} has no gradient.")


@_slope.register
def _gaussian_slope(kernel: Gaussian, squared: np.ndarray) -> np.ndarray:
    return kernel._profile(squared)


@_slope.register
def _rational_quadratic_slope(
    kernel: RationalQuadratic, squared: np.ndarray
) -> np.ndarray:
    profile = kernel._profile(ops_of(squared).copy(squared))
    return profile / (1 + squared / (2 * kernel.alpha))


@_slope.register
def _matern_slope(kernel: Matern, squared: np.ndarray) -> np.ndarray:
    return ops_of(squared).elementwise.matern_slope(squared, float(kernel.nu))


# -- features ---------------------------------------------------------------------


def with_kernel(plan: Plan, before: Kernel, after: Kernel) -> Plan:
    """Return the same draws for a kernel of the same form with other numbers.

    Every term keeps its columns, whatever its scale is now; the weights of features
    are proportional to the roots of the terms' scales.
    """
    groups = []
    for group, old, new in zip(plan.groups, before.terms(), after.terms(), strict=True):
        factors = tuple(
            replace(factor, inputs=leaf.inputs(plan.n_features_in))
            for factor, leaf in zip(group.factors, new.leaves, strict=True)
        )
        weight = group.weight * math.sqrt(new.weight / old.weight)
        groups.append(replace(group, factors=factors, weight=weight))
    return Plan(tuple(groups), plan.n_features_in)


class _Turned(Group):
    """A group whose single cosines are turned by a quarter: their derivatives."""

    def draw_offsets(self, start: int, stop: int, dtype: Any) -> np.ndarray:
        angles = super().draw_offsets(start, stop, np.float64)
        return (angles + np.pi / 2).astype(dtype)


def add_feature_gradient(
    hyper: Hyperparameters,
    plan: Plan,
    X: Rows,
    Z: np.ndarray,
    G: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add Σ_ij G_ij ∂z_ij/∂θ to `out`, Z being the features of float64 rows X.

    With phases p = ω·(x/ℓ), ∂p/∂log ℓ_j = −ω_j x_j/ℓ_j; the derivative of a cosine
    in its phase is minus the sine beside it. A weight is the root of its scales.
    """
    scales = _scales(hyper.kernel)
    terms = hyper.kernel.terms()
    for group, term, owners in zip(plan.groups, terms, scales, strict=True):
        columns = slice(group.start, group.stop)
        Z_group, G_group = Z[:, columns], G[:, columns]
        total = float((Z_group * G_group).sum())
        for owner in owners:
            out[hyper._slices[owner]] += 0.5 * total
        parts = [
            (leaf, factor)
            for leaf, factor in zip(term.leaves, group.factors, strict=True)
            if hyper.place(leaf) is not None
        ]
        if parts:
            slopes = _by_phase(group, X, Z_group, G_group, plan.n_features_in)
            for leaf, factor in parts:
                columns_sum = _by_column(factor, X, slopes)
                place = hyper.place(leaf)
                vector = np.ndim(getattr(leaf, "lengthscale", 0)) > 0
                out[place] -= columns_sum if vector else columns_sum.sum()


def _scales(kernel: Kernel) -> list[frozenset[int]]:
    """Return which scales multiply each term, in the order of terms."""
    if isinstance(kernel, Scaled):
        return [scales | {id(kernel)} for scales in _scales(kernel.kernel)]
    if isinstance(kernel, Sum):
        return _scales(kernel.k1) + _scales(kernel.k2)
    if isinstance(kernel, Product):
        return [a | b for a in _scales(kernel.k1) for b in _scales(kernel.k2)]
    return [frozenset()]


def _by_phase(
    group: Group, X: Rows, Z: np.ndarray, G: np.ndarray, n_features: int
) -> np.ndarray:
    """Return Σ G ∂z/∂p for the phase p of every row and draw."""
    n_pairs = group.width // 2
    even, odd = slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
    slopes = G[:, odd] * Z[:, even] - G[:, even] * Z[:, odd]
    if group.width == 2 * n_pairs:
        return slopes
    turned = _Turned(
        group.factors, 0, group.width, group.weight, group.output, group.offsets
    )
    last = slice(group.width - 1, group.width)
    sines = evaluate(Plan((turned,), n_features), X, last)
    return ops_of(Z).hstack([slopes, G[:, last] * sines])


def _by_column(factor: Factor, X: Rows, slopes: np.ndarray) -> np.ndarray:
    """Return Σ_i Σ_r slopes_ir ω_rj x_ij for every column j of the factor's input."""
    X = factor.inputs.apply(X)
    algebra = ops_of(X).algebra
    basis = algebra.identity(X.shape[1], X)
    total = ops_of(X).zeros(X.shape[1], X)
    for draws in row_blocks(slopes.shape[1], _DRAWS):
        rows = factor.projection.project(basis, draws.start, draws.stop)
        total += algebra.column_products(X, slopes[:, draws] @ rows.T)
    return ops_of(X).to_host(total)
