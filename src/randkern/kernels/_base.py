"""What every kernel shares: exact values, algebra, and the moments of its draws."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, clone

from randkern._random import Stream, root_stream
from randkern._validation import (
    Rows,
    TableEncoder,
    check_choice,
    check_count,
    check_kernel_rows,
    check_weights,
    column_names,
)
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.projections import InputMap, Law

__all__ = ["Kernel", "Leaf", "Term"]

# Exact values are computed in float64 tiles of this many rows and columns.
TILE = 1024


@dataclass(frozen=True)
class Term:
    """One product of leaf kernels, times a positive weight."""

    weight: float
    leaves: tuple[Leaf, ...]

    def diag(self, X: Rows) -> np.ndarray:
        """Return the diagonal of this term in float64."""
        out = self.weight * ops_of(X).ones(X.shape[0], X)
        for leaf in self.leaves:
            out *= leaf._diag(X)
        return out


def check_finite_diagonal(diagonal: np.ndarray, dtype: np.dtype) -> None:
    """Raise if values overflow `dtype`: |k(x, y)|² never exceeds k(x, x)·k(y, y)."""
    ops = ops_of(diagonal)
    largest = ops.largest(diagonal)
    if not largest <= ops.largest_value(dtype):
        raise ValueError(
            f"k(x, x) reaches {largest:.3g}, beyond {dtype}; scale the input down "
            "(for instance with sklearn.preprocessing.StandardScaler or "
            "MaxAbsScaler) or use float64."
        )


class Kernel(BaseEstimator):
    """A positive-definite function that can draw random features of itself.

    Kernels add and multiply: ``k1 + k2``, ``k1 * k2``, ``2.5 * k``. Two
    kernels are equal only if they are the same object.
    """

    # NumPy scalars leave `scalar * kernel` to the kernel.
    __array_ufunc__ = None

    def __call__(self, X: Any, Y: Any = None) -> np.ndarray:
        """Return the exact Gram matrix.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        Y : the same, of shape (m, d), optional
            `X` itself by default.

        Returns
        -------
        ndarray of shape (n, m)
            float32 if `X` and `Y` are, otherwise float64; computed in float64
            tiles, so that nothing but the result takes more than a few
            megabytes.

        Raises
        ------
        randkern.exceptions.UnresolvedKernelError
            If a lengthscale still is ``"scale"`` or ``"median"``.
        """
        kernel = self._bind(column_names(X))
        X, Y, encoder = check_kernel_rows(X, Y, tensors=True)
        kernel._check(X.shape[1], encoder)
        for rows in (X,) if Y is None else (X, Y):
            check_finite_diagonal(kernel._diag(rows), rows.dtype)
        return kernel._gram(X, Y)

    def diag(self, X: Any) -> np.ndarray:
        """Return k(x, x) for every row x of `X`, shape (n,)."""
        kernel = self._bind(column_names(X))
        X, _, encoder = check_kernel_rows(X, tensors=True)
        kernel._check(X.shape[1], encoder)
        return ops_of(X).asarray(kernel._diag(X), X)

    def resolve(
        self, X: Any, sample_weight: Any = None, random_state: Any = None
    ) -> Kernel:
        """Return a copy in which numbers stand for all that depends on data.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        sample_weight : array of shape (n,), optional
            Rows of weight zero are ignored.
        random_state : None, int or generator
            Seeds the sample of rows behind ``"median"``.
        """
        names = column_names(X)
        X, _, encoder = check_kernel_rows(X, tensors=True)
        sample_weight = check_weights(sample_weight, X)
        stream = root_stream(random_state)
        return self._resolve(X, sample_weight, stream, names, encoder)

    def feature_variance(
        self,
        X: Any,
        Y: Any = None,
        n_components: int = 1000,
        *,
        fourier: Literal["pair", "offset"] = "pair",
    ) -> np.ndarray:
        """Return Var[φ(x)·φ(y)] for independent draws, in closed form.

        With A the product of the amplitudes at x and y and Δ the difference
        of the phases, one draw of a pair has second moment E[A²](1 + E[cos
        2Δ])/2, and one of offset form E[A²](1 + E[cos 2Δ]/2). For a
        stationary kernel and D even columns the variance is (1 + K(2τ) −
        2K²)/D as pairs and (1 + K(2τ)/2 − K²)/D as offsets; for an optical
        one (K_{2m} − K_m²)/D.

        Parameters
        ----------
        X, Y : arrays of shapes (n, d) and (m, d)
        n_components : int
            D. A sum allots its columns by the mean diagonals on `X`.
        fourier : {"pair", "offset"}

        Returns
        -------
        ndarray of shape (n, m), float64
        """
        from randkern.kernels.draw import variance

        check_choice("fourier", fourier, ("pair", "offset"))
        check_count("n_components", n_components)
        kernel = self._bind(column_names(X))
        X, Y, encoder = check_kernel_rows(X, Y)
        kernel._check(X.shape[1], encoder)
        X = X.astype(np.float64)
        Y = X if Y is None else Y.astype(np.float64)
        return variance(kernel, X, Y, n_components, fourier)

    @abstractmethod
    def terms(self) -> list[Term]:
        """Return the kernel as a sum of weighted products of leaves."""

    @abstractmethod
    def leaves(self) -> list[Leaf]:
        """Return the leaf kernels of the expression, left to right."""

    @abstractmethod
    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        """Return exact values for checked rows, a new array of their dtype.

        They are computed in float64, or, if not `precise`, in the dtype of the rows.
        """

    @abstractmethod
    def _diag(self, X: Rows) -> np.ndarray:
        """Return the diagonal for checked rows, in float64."""

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        """Raise unless every leaf has numbers that fit `n_features` columns."""
        for leaf in self.leaves():
            leaf._check_leaf(n_features)
            if encoder is not None:
                encoder.check_numbers(leaf._number_columns(n_features), leaf)

    def _bind(self, names: list[str] | None) -> Kernel:
        """Return a kernel whose columns are numbers, given the names."""
        if not any(leaf._has_names() for leaf in self.leaves()):
            return self
        bound = clone(self)
        for leaf in bound.leaves():
            leaf.columns = leaf._numbered_columns(names)
        return bound

    def _resolve(
        self,
        X: Rows,
        sample_weight: np.ndarray | None,
        stream: Stream,
        names: list[str] | None = None,
        encoder: TableEncoder | None = None,
    ) -> Kernel:
        """Return the resolved kernel for checked rows."""
        if sample_weight is not None and (sample_weight == 0).any():
            kept = ops_of(X).flatnonzero(sample_weight)
            X, sample_weight = X[kept], sample_weight[kept]
        resolved = clone(self._bind(names))
        for index, leaf in enumerate(resolved.leaves()):
            leaf._check_columns(X.shape[1])
            leaf._resolve_leaf(X, sample_weight, stream.child("resolve", index))
        resolved._check(X.shape[1], encoder)
        return resolved

    def __add__(self, other: Any) -> Kernel:
        from randkern.kernels.algebra import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other: Any) -> Kernel:
        # `sum([k1, k2])` starts from 0.
        is_zero = isinstance(other, numbers.Real) and other == 0
        return self if is_zero else NotImplemented

    def __mul__(self, other: Any) -> Kernel:
        from randkern.kernels.algebra import Product, Scaled

        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, numbers.Real):
            return Scaled(self, float(other))
        return NotImplemented

    def __rmul__(self, other: Any) -> Kernel:
        return self * other


class Leaf(Kernel):
    """A kernel that is not made of others, on some columns of the input."""

    #: What one random projection contributes to a draw (see `randkern.plan`).
    role: Literal["phase", "modulus", "signed", "polar"]
    #: Whether codes of categories are as good as numbers.
    reads_categories: ClassVar[bool] = False
    columns: Any

    def terms(self) -> list[Term]:
        return [Term(1.0, (self,))]

    def leaves(self) -> list[Leaf]:
        return [self]

    def __str__(self) -> str:
        return repr(self)

    # -- what a leaf defines ------------------------------------------------

    @abstractmethod
    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        """Return exact values in float64 for selected rows (`same`: X is Y)."""

    @abstractmethod
    def _diag_selected(self, X: Rows) -> np.ndarray:
        """Return the diagonal in float64 for selected rows."""

    @abstractmethod
    def law(self) -> Law:
        """Return the distribution of the rows of the random projection."""

    @abstractmethod
    def inputs(self, n_features: int) -> InputMap:
        """Return how rows reach the random projection."""

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray | float:
        """Return E[A(x)²A(y)²] over draws (1 where the amplitude is 1)."""
        return 1.0

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray | float:
        """Return E[cos 2Δ] over draws (1 where there is no phase)."""
        return 1.0

    def _resolve_leaf(
        self, X: Rows, sample_weight: np.ndarray | None, stream: Stream
    ) -> None:
        """Replace what depends on data by numbers (on a fresh copy)."""

    def _check_leaf(self, n_features: int) -> None:
        self._check_columns(n_features)

    # -- columns ------------------------------------------------------------

    def _has_names(self) -> bool:
        columns = [self.columns] if isinstance(self.columns, str) else self.columns
        return isinstance(columns, (list, tuple, np.ndarray)) and any(
            isinstance(column, str) for column in columns
        )

    def _numbered_columns(self, names: list[str] | None) -> list[int]:
        columns = [self.columns] if isinstance(self.columns, str) else self.columns
        if names is None:
            raise ValueError(
                f"{self} names columns, but the input has no column names; pass a "
                "dataframe, or number the columns."
            )
        missing = [c for c in columns if isinstance(c, str) and c not in names]
        if missing:
            raise ValueError(f"{self}: no column {missing[0]!r} among {names}.")
        return [names.index(c) if isinstance(c, str) else c for c in columns]

    def _check_columns(self, n_features: int) -> None:
        if self.columns is not None and len(self._selected(n_features)) == 0:
            raise ValueError(f"{self} selects no column.")

    def _selected(self, n_features: int) -> tuple[int, ...]:
        """Return the numbers of the columns that this kernel reads."""
        if self.columns is None:
            return tuple(range(n_features))
        if isinstance(self.columns, slice):
            return tuple(range(n_features))[self.columns]
        columns = np.atleast_1d(np.asarray(self.columns))
        if columns.dtype == bool and columns.shape == (n_features,):
            columns = np.flatnonzero(columns)
        if columns.ndim != 1 or (columns.size and columns.dtype.kind not in "iu"):
            raise ValueError(
                "columns must be None, a slice, or a list of column numbers or "
                f"names, got {self.columns!r}."
            )
        if np.any(columns >= n_features) or np.any(columns < -n_features):
            raise ValueError(
                f"{self} reads column {columns[np.abs(columns).argmax()]}, but the "
                f"input has {n_features} columns."
            )
        return tuple(int(column) % n_features for column in columns)

    def _number_columns(self, n_features: int) -> tuple[int, ...]:
        """Return those of them for which codes of categories are no numbers."""
        return () if self.reads_categories else self._selected(n_features)

    def _select(self, X: Rows) -> Rows:
        if self.columns is None:
            return X
        return X[:, list(self._selected(X.shape[1]))]

    def _input_map(self, n_features: int, inverse_scale: Any, bias: float) -> InputMap:
        columns = None if self.columns is None else self._selected(n_features)
        width = n_features if columns is None else len(columns)
        return InputMap(width, columns, inverse_scale, bias)

    # -- exact values -------------------------------------------------------

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        X = self._select(X)
        same = Y is None
        Y = X if same else self._select(Y)
        ops = ops_of(X)
        out = ops.empty((X.shape[0], Y.shape[0]), X)
        for rows in row_blocks(X.shape[0], TILE):
            X_tile = ops.as_float64(X[rows]) if precise else X[rows]
            for columns in row_blocks(Y.shape[0], TILE):
                if same and columns.start < rows.start:
                    out[rows, columns] = out[columns, rows].T
                    continue
                diagonal = same and rows == columns
                Y_tile = X_tile
                if not diagonal:
                    Y_tile = ops.as_float64(Y[columns]) if precise else Y[columns]
                out[rows, columns] = self._tile(X_tile, Y_tile, diagonal)
        return out

    def _diag(self, X: Rows) -> np.ndarray:
        return self._diag_selected(self._select(X))
