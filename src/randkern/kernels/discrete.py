"""The dot product, and equality of categories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.exceptions import UnresolvedKernelError
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import FactorDraws, Fourier, TermVariance
from randkern.nonlinearities import Signed
from randkern.projections import (
    Distribution,
    Identity,
    InputMap,
    Projection,
    Roots,
    SphereDistribution,
)


class Linear(Leaf):
    """The linear kernel (x − c)·(y − c) + ν.

    If it is allotted at least d columns (those of X, and one for ν > 0), its features
    are the columns themselves; otherwise an orthogonal projection of them, scaled by
    √(d/D). As a factor of a product it contributes ω·x with ω uniform on the sphere of
    radius √d.

    Parameters
    ----------
    bias : float, default=0.0
        ν, at least 0.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all. An empty list leaves the constant
        ν > 0.
    center : array of shape (n_columns,), default=None
        c, one number for each column that the kernel reads; None: 0.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    distribution = SphereDistribution()
    nonlinearity = Signed()

    def __init__(self, bias: float = 0.0, *, columns: Any = None, center: Any = None):
        self.bias = bias
        self.columns = columns
        self.center = center

    def _check_leaf(self, width: int) -> None:
        if self.center is not None and np.shape(self.center) != (width,):
            raise ValueError(
                f"center must have one number for each of the {width} columns of the "
                f"kernel, got shape {np.shape(self.center)}."
            )

    def inputs(self, n_features: int) -> InputMap:
        inputs = super().inputs(n_features)
        if self.center is None:
            return inputs
        return replace(inputs, center=np.asarray(self.center, dtype=float))

    def _select(self, X: Rows) -> Rows:
        return self.inputs(X.shape[1]).select(X)

    def exact_width(self, n_features: int) -> int:
        return self.inputs(n_features).width

    def own_projection(
        self, draws: FactorDraws, n_columns: int, width: int
    ) -> Projection:
        """Return the columns themselves, or an orthogonal projection to fewer."""
        if n_columns == width:
            return Identity(draws.stream(), width, width, self.distribution)
        return draws.project(
            self.distribution, n_columns, width, self, projection="orthogonal"
        )

    def own_variance(
        self, X: Rows, Y: Rows, weight: float, fourier: Fourier
    ) -> TermVariance:
        """Return the variance of (d/D)·x·Py, P a Haar random projector of rank D.

        E[P_ij P_kl] = a δ_ij δ_kl + b (δ_ik δ_jl + δ_il δ_jk), with a and b from
        E[(tr P)²] = D² and E[tr P²] = D.
        """
        d = self.exact_width(X.shape[1])
        dots = weight**2 * self._gram(X, Y) ** 2
        norms = weight**2 * np.outer(self._diag(X), self._diag(Y))

        def factors(width: int) -> tuple[float, ...]:
            if width == d:
                return 0.0, 0.0
            b = width * (d - width) / (d * (d**2 + d - 2))
            a = (width**2 - 2 * b * d) / d**2
            scale = (d / width) ** 2
            return scale * (a + b) - 1, scale * b

        return TermVariance((dots, norms), factors)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        # E[(ω·x)²(ω·y)²] for ω uniform on the sphere of radius √d.
        d = self.exact_width(X.shape[1])
        norms = np.outer(self._diag(X), self._diag(Y))
        return d / (d + 2) * (norms + 2 * self._gram(X, Y) ** 2)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        return ops_of(X).float64_squared_norms(X) + self.bias

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return densify(ops_of(X).precise_product(X, Y.T)) + self.bias


class Categorical(Leaf):
    """The share of columns on which two rows agree, for categories.

    On one column this is 1[x = y], the categorical base space of Daniely,
    Frostig, Gupta and Singer 2017, "Random features for compositional
    kernels", with features e^{2πi ω x/n}, ω uniform on {1, ..., n}; with
    several columns each draw picks one of them. For a kernel that requires
    agreement on all columns, multiply one-column kernels.

    Values of any type are compared for equality; a dataframe may hold text. A
    value not seen in `fit` differs from all values that were.

    Parameters
    ----------
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.
    categories : "auto" or list of arrays
        The sorted values of each column; ``"auto"`` takes them from the data
        in `resolve`. Exact values do not need them.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Categorical()([[0, 1]], [[0, 1], [0, 2], [3, 3]])
    array([[1. , 0.5, 0. ]])
    """

    reads_categories = True

    def __init__(self, *, columns: Any = None, categories: Any = "auto"):
        self.columns = columns
        self.categories = categories

    def _resolve_leaf(self, X: Rows, weight: Array, stream: Stream, names: Any) -> None:
        if isinstance(self.categories, str) and self.categories == "auto":
            X = densify(X)
            unique = ops_of(X).unique
            self.categories = tuple(unique(X[:, j]) for j in range(X.shape[1]))

    def _check_leaf(self, width: int) -> None:
        if isinstance(self.categories, str):
            if self.categories != "auto":
                raise ValueError(
                    f"categories must be 'auto' or a list of arrays, got "
                    f"{self.categories!r}."
                )
            return
        columns = self.categories if isinstance(self.categories, (list, tuple)) else ()
        arrays = [np.asarray(values) for values in columns]
        if len(arrays) != width or not all(
            values.ndim == 1
            and values.size
            and values.dtype.kind in "biuf"
            and np.all(np.isfinite(values))
            and np.all(np.diff(values.astype(float)) > 0)
            for values in arrays
        ):
            raise ValueError(
                "categories must be 'auto' or a list of strictly increasing arrays of "
                f"numbers, one for each of the {width} columns, got "
                f"{self.categories!r}."
            )

    def _sorted_categories(self) -> tuple[np.ndarray, ...]:
        if isinstance(self.categories, str):
            raise UnresolvedKernelError(
                "the categories of Categorical are not known yet: call "
                "kernel.resolve(X) first (models do so in fit)."
            )
        return tuple(np.asarray(values) for values in self.categories)

    def sizes(self) -> tuple[int, ...]:
        """The number of roots of unity per column, including one for unseen values."""
        return tuple(len(values) + 1 for values in self._sorted_categories())

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Roots:
        stream = draws.stream(dimensions=width)
        return Roots(stream, n_draws, width, Distribution(), sizes=self.sizes())

    def inputs(self, n_features: int) -> InputMap:
        categories = self._sorted_categories()
        return replace(super().inputs(n_features), categories=categories)

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray:
        # E[e^{2πi ω 2(x − y)/n}] is 1 where n divides 2(x − y), else 0.
        inputs = self.inputs(X.shape[1])
        x_codes = inputs.apply(X)
        y_codes = inputs.apply(Y)
        total = np.zeros((X.shape[0], Y.shape[0]))
        for j, n in enumerate(self.sizes()):
            difference = x_codes[:, j, None] - y_codes[None, :, j]
            total += (2 * difference) % n == 0
        return total / len(self.sizes())

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        X = densify(X)
        Y = densify(Y)
        total = ops_of(X).float64_zeros((X.shape[0], Y.shape[0]), X)
        for j in range(X.shape[1]):
            total += X[:, j, None] == Y[None, :, j]
        return total / X.shape[1]
