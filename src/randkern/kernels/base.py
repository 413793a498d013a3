"""Kernels and their algebra: exact values, and the draws of random features."""

from __future__ import annotations

import html
import inspect
import itertools
import math
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, clone

from randkern._random import Stream, root_stream
from randkern._tables import TableEncoder, column_names, is_table
from randkern._validation import (
    Array,
    Rows,
    check_choice,
    check_components,
    check_kernel_rows,
    check_positive,
    check_weights,
    densify,
)
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.kernels.factor_draws import (
    DrawSlopes,
    FactorDraws,
    Fourier,
    TermVariance,
    allot,
)
from randkern.nonlinearities import Phase
from randkern.plan import Factor
from randkern.projections import InputMap, NormalDistribution, Projection

# Exact values are computed in float64 tiles of this many rows and columns.
TILE = 1024

#: Derivatives in the numbers of an attribute of a part of a kernel.
Slopes = Iterable[tuple["Kernel", str, Any]]


@dataclass(frozen=True)
class Scale:
    """A learnable number that multiplies a term: an attribute, or one entry of it."""

    owner: Kernel
    attribute: str
    index: int = 0


@dataclass(frozen=True)
class Term:
    """One product of leaf kernels, times a positive weight.

    `scales` are the learnable numbers that multiply the term.
    """

    weight: float
    leaves: tuple[Leaf, ...]
    scales: frozenset[Scale] = frozenset()

    def diag(self, X: Rows) -> np.ndarray:
        """Return the diagonal of this term in float64."""
        out = self.weight * ops_of(X).float64_ones(X.shape[0], X)
        for leaf in self.leaves:
            out *= leaf._diag(X)
        return out

    @property
    def has_phase(self) -> bool:
        """Whether its features are cosines and sines."""
        return any(leaf.nonlinearity.has_phase for leaf in self.leaves)

    @property
    def can_center(self) -> bool:
        """Whether its features have a mean that can be subtracted."""
        (leaf, *others) = self.leaves
        if not others:
            return leaf.can_center
        return all(leaf.nonlinearity.can_center for leaf in self.leaves)

    def exact_width(self, n_features: int) -> int | None:
        """Return the width at which its features are exact, None if they never are."""
        (leaf, *others) = self.leaves
        return None if others else leaf.exact_width(n_features)

    def split(self, factors: tuple[Factor, ...]) -> Iterator[tuple[Leaf, Any]]:
        """Yield every leaf with its factors, from those of a group."""
        remaining = iter(factors)
        for leaf in self.leaves:
            yield leaf, tuple(itertools.islice(remaining, leaf.n_factors))

    def variance(self, X: Rows, Y: Rows, fourier: Fourier) -> TermVariance:
        """Return Var[φ(x)·φ(y)] of its features, for any number of them."""
        (leaf, *others) = self.leaves
        if not others:
            own = leaf.own_variance(X, Y, self.weight, fourier)
            if own is not None:
                return own
        amplitude: Any = self.weight**2
        double: Any = 1.0
        square: Any = self.weight**2
        for leaf in self.leaves:
            amplitude = amplitude * leaf.squared_amplitude(X, Y)
            double = double * leaf.doubled_phase(X, Y)
            square = square * leaf._gram(X, Y) ** 2
        if not self.has_phase:
            return TermVariance.of_amplitudes(amplitude, square)
        return TermVariance.of_phases(amplitude, double, square, fourier)


def check_finite_diagonal(diagonal: np.ndarray, dtype: np.dtype) -> None:
    """Raise if values overflow `dtype`: |k(x, y)|² never exceeds k(x, x)·k(y, y)."""
    ops = ops_of(diagonal)
    largest = ops.largest_or_zero(diagonal)
    if not largest <= float(ops.xp.finfo(dtype).max):
        raise ValueError(
            f"k(x, x) is up to {largest:.3g}, which overflows {dtype}; scale the input "
            "down (for instance with sklearn.preprocessing.StandardScaler or "
            "MaxAbsScaler), or use float64."
        )


def mean_diagonals(
    terms: list[Term], X: Rows, sample_weight: np.ndarray | None
) -> np.ndarray:
    """Return the (weighted) mean of k(x, x) over the rows of X, one per term."""
    means = []
    for term in terms:
        diagonal = term.diag(X)
        check_finite_diagonal(diagonal, X.dtype)
        means.append(ops_of(diagonal).average(diagonal, sample_weight))
    return np.array(means)


def _is_usual(value: Any, default: Any) -> bool:
    """Return whether a reader of a kernel's formula can do without a parameter."""
    if value is None or isinstance(value, (str, bool)):
        return bool(value == default)
    return isinstance(value, numbers.Real) and value == 0


def _short(value: Any) -> str:
    """Return the value of a parameter as text that fits in a formula."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return f"{value:.4g}"
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 4:
        return f"{value.min():.4g} to {value.max():.4g} ({value.size} numbers)"
    if isinstance(value, np.ndarray):
        return _short(value.tolist())
    if isinstance(value, (list, tuple)):
        parts = [_short(part) for part in value]
        parts[2:-1] = ["…"] if len(parts) > 6 else parts[2:-1]
        return f"[{', '.join(parts)}]"
    return repr(value)


def _is_one_row(X: Any) -> bool:
    """Return whether X is a single row; dataframes are not converted."""
    return not is_table(X) and np.ndim(X) == 1


class Kernel(BaseEstimator, ABC):
    """A positive-definite function that can draw random features of itself.

    Kernels add and multiply: ``k1 + k2``, ``k1 * k2``, ``2.5 * k``. Two
    kernels are equal only if they are the same object.
    """

    # Makes NumPy scalars defer to the kernel in `scalar * kernel`.
    __array_ufunc__ = None

    #: The attributes that hold the kernels of which this one is composed.
    parts: ClassVar[tuple[str, ...]] = ()
    #: Attributes that can be learned, and those of them that may change their sign.
    learnable: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()

    def __call__(self, X: Any, Y: Any = None) -> np.ndarray:
        """Return the exact Gram matrix.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        Y : the same, of shape (m, d), optional
            `X` itself by default. Two rows, of shape (d,), give a number, as for
            ``kernel=`` of scikit-learn's ``KernelPCA`` or ``KernelRidge``; these call
            once per pair of rows, and are faster with ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n, m)
            float32 if `X` and `Y` are, otherwise float64; computed in float64
            tiles, which take a few megabytes besides the result. A sum or a product
            takes as much as the result again.

        Raises
        ------
        randkern.exceptions.UnresolvedKernelError
            If a lengthscale is still ``"scale"`` or ``"median"``.
        """
        if _is_one_row(X) and _is_one_row(Y):
            # scikit-learn's `pairwise_kernels` calls with one row each.
            return self(np.reshape(X, (1, -1)), np.reshape(Y, (1, -1)))[0, 0]
        kernel, X, Y = self._checked(X, Y, tensors=True)
        for rows in (X,) if Y is None else (X, Y):
            check_finite_diagonal(kernel._diag(rows), rows.dtype)
        return kernel._gram(X, Y)

    def diag(self, X: Any) -> np.ndarray:
        """Return k(x, x) for every row x of `X`, shape (n,)."""
        kernel, X, _ = self._checked(X, None, tensors=True)
        return ops_of(X).asarray(kernel._diag(X), X)

    def resolve(
        self, X: Any, sample_weight: Any = None, random_state: Any = None
    ) -> Kernel:
        """Return a copy with everything that depends on data replaced by numbers.

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
        n_components: int | Sequence[int] = 1000,
        *,
        fourier: Literal["pair", "offset"] = "pair",
    ) -> np.ndarray:
        """Return Var[φ(x)·φ(y)] for independent draws, in closed form.

        With A the product of the amplitudes at x and y and Δ the difference
        of the phases, one draw of a pair has second moment E[A²](1 + E[cos
        2Δ])/2, and one of offset form E[A²](1 + E[cos 2Δ]/2). For a
        stationary kernel and even D the variance is (1 + K(2τ) − 2K²)/D for
        pairs and (1 + K(2τ)/2 − K²)/D for offsets; for an optical kernel it is
        (K_{2m} − K_m²)/D.

        Parameters
        ----------
        X, Y : arrays of shapes (n, d) and (m, d)
        n_components : int or sequence of int
            D, which a sum divides by the mean diagonals on `X`; or the number of
            columns per term.
        fourier : {"pair", "offset"}

        Returns
        -------
        ndarray of shape (n, m), float64
        """
        check_choice("fourier", fourier, ("pair", "offset"))
        n_components = check_components(n_components)
        kernel, X, Y = self._checked(X, Y, tensors=False)
        X = X.astype(np.float64)
        Y = X if Y is None else Y.astype(np.float64)
        return kernel._feature_variance(X, Y, n_components, fourier)

    def _feature_variance(
        self,
        X: Rows,
        Y: Rows,
        n_components: int | Sequence[int],
        fourier: Literal["pair", "offset"],
    ) -> np.ndarray:
        """Return the variance of features for checked float64 rows."""
        terms = self.terms()
        widths = allot(
            n_components,
            mean_diagonals(terms, X, None),
            [term.exact_width(X.shape[1]) for term in terms],
        )
        total = np.zeros((X.shape[0], Y.shape[0]))
        for term, width in zip(terms, widths, strict=True):
            moments = term.variance(X, Y, fourier)
            total += moments.combine(width, moments.matrices)
        return total

    @abstractmethod
    def terms(self) -> list[Term]:
        """Return the kernel as a sum of weighted products of leaves."""

    def leaves(self) -> list[Leaf]:
        """Return the leaf kernels of the expression, left to right."""
        return [leaf for part in self._parts() for leaf in part.leaves()]

    def _parts(self) -> list[Kernel]:
        """Return the kernels of which this one is composed."""
        parts = [getattr(self, name) for name in self.parts]
        for name, part in zip(self.parts, parts, strict=True):
            if not isinstance(part, Kernel):
                raise ValueError(
                    f"{name} of {type(self).__name__} must be a kernel, got {part!r}; "
                    "pass for instance randkern.Gaussian()."
                )
        return parts

    @abstractmethod
    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        """Return exact values for checked rows, as a new array of their dtype.

        Computed in float64, or, if not `precise`, in the dtype of the rows.
        """

    @abstractmethod
    def _diag(self, X: Rows) -> np.ndarray:
        """Return the diagonal for checked rows, in float64."""

    @abstractmethod
    def _slopes(self, X: Rows, Y: Rows, M: np.ndarray) -> Slopes:
        """Yield the parts of Σ_ij M_ij ∂k(x_i, y_j)/∂θ, for float64 rows."""

    def _checked(
        self, X: Rows, Y: Rows, *, tensors: bool
    ) -> tuple[Kernel, Rows, Rows | None]:
        """Return the kernel with numbered columns that fit the checked rows."""
        kernel = self
        if (names := column_names(X)) is not None:
            kernel = clone(self)
            for leaf in kernel.leaves():
                leaf._number_columns(names)
        X, Y, encoder = check_kernel_rows(X, Y, tensors=tensors)
        kernel._check(X.shape[1], encoder)
        return kernel, X, Y

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        """Raise if parameters are wrong, or do not fit `n_features` columns."""
        for part in self._parts():
            part._check(n_features, encoder)

    def _resolve(
        self,
        X: Rows,
        sample_weight: np.ndarray | None,
        stream: Stream,
        names: Sequence[str] | None = None,
        encoder: TableEncoder | None = None,
    ) -> Kernel:
        """Return the resolved kernel for checked rows.

        `names` are those of the columns, `encoder` that of the categories of a table.
        """
        if sample_weight is not None and (sample_weight == 0).any():
            weighted = ops_of(X).flatnonzero(sample_weight)
            X, sample_weight = X[weighted], sample_weight[weighted]
        resolved = clone(self)
        leaves = resolved.leaves()
        if names is not None:
            names = list(names)
            for leaf in leaves:
                leaf._number_columns(names)
        d = X.shape[1]
        resolved._check(d, encoder)
        for index, leaf in enumerate(leaves):
            own_names = [names[j] if names else str(j) for j in leaf._selected(d)]
            own_stream = stream.child("resolve", index)
            own_rows = leaf._select(X)
            leaf._resolve_leaf(own_rows, sample_weight, own_stream, own_names)
        return resolved

    def __add__(self, other: Any) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other: Any) -> Kernel:
        # `sum([k1, k2])` starts from 0.
        is_zero = isinstance(other, numbers.Real) and other == 0
        return self if is_zero else NotImplemented

    def _formula(self) -> str:
        """Return the kernel as text, with the operators that compose it.

        Of a leaf, numbers other than 0 (a bias), and what differs from its default.
        """
        parameters = inspect.signature(type(self)).parameters.values()
        values = self.get_params(deep=False)
        shown = [
            f"{parameter.name}={_short(values[parameter.name])}"
            for parameter in parameters
            if not _is_usual(values[parameter.name], parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _html_repr(self) -> str:
        formula = html.escape(self._formula())
        return f"<p><code>k(x, y) = {formula}</code></p>{super()._html_repr()}"

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, numbers.Real):
            return Scaled(self, float(other))
        return NotImplemented

    def __rmul__(self, other: Any) -> Kernel:
        return self * other


class _Binary(Kernel):
    """Two kernels combined by an operation."""

    parts = "k1", "k2"
    #: The operation on arrays of values; the first may be overwritten.
    join: Any

    def __init__(self, k1: Kernel, k2: Kernel):
        self.k1 = k1
        self.k2 = k2

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        out = self.k1._gram(X, Y, precise=precise)
        return self.join(out, self.k2._gram(X, Y, precise=precise))

    def _diag(self, X: Rows) -> np.ndarray:
        return self.join(self.k1._diag(X), self.k2._diag(X))


class Sum(_Binary):
    """The sum of two kernels, k₁(x, y) + k₂(x, y).

    Its features are those of the terms, concatenated. Half of the columns are divided
    equally, the other half in proportion to the square roots of the terms' mean
    diagonals. `n_components` may also be a sequence: the number of columns per term.

    Parameters
    ----------
    k1, k2 : Kernel
        Each may be a sum, a product or a multiple itself.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.Gaussian(2.0) + 0.5 * rk.Linear()
    >>> float(kernel([[1.0, 0.0]], [[1.0, 0.0]])[0, 0])
    1.5
    """

    join = staticmethod(operator.iadd)

    def _formula(self) -> str:
        return f"{self.k1._formula()} + {self.k2._formula()}"

    def terms(self) -> list[Term]:
        first, second = self._parts()
        return first.terms() + second.terms()

    def _slopes(self, X: Rows, Y: Rows, M: np.ndarray) -> Slopes:
        yield from self.k1._slopes(X, Y, M)
        yield from self.k2._slopes(X, Y, M)


def _as_factor(kernel: Kernel) -> str:
    """Return a kernel as text within a product."""
    formula = kernel._formula()
    return f"({formula})" if isinstance(kernel, Sum) else formula


class Product(_Binary):
    """The product of two kernels, k₁(x, y)·k₂(x, y).

    A draw of its features is the product of independent draws: amplitudes
    multiply and phases add. A product of sums is expanded into a sum of
    products.

    Parameters
    ----------
    k1, k2 : Kernel
        Each may be a sum, a product or a multiple itself.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.Gaussian(columns=[0]) * rk.Categorical(columns=[1])
    >>> kernel([[0.5, 1.0]], [[0.5, 1.0], [0.5, 2.0]])
    array([[1., 0.]])
    """

    join = staticmethod(operator.imul)

    def _formula(self) -> str:
        return f"{_as_factor(self.k1)} · {_as_factor(self.k2)}"

    def terms(self) -> list[Term]:
        first, second = self._parts()
        return [
            Term(a.weight * b.weight, a.leaves + b.leaves, a.scales | b.scales)
            for a in first.terms()
            for b in second.terms()
        ]

    def _slopes(self, X: Rows, Y: Rows, M: np.ndarray) -> Slopes:
        yield from self.k1._slopes(X, Y, M * self.k2._gram(X, Y))
        yield from self.k2._slopes(X, Y, M * self.k1._gram(X, Y))


# Squares of larger multiples, and of their inverses, leave the range of float64.
_MAX_SCALE = 1e100


class Scaled(Kernel):
    """A positive multiple of a kernel, scale·k(x, y).

    Parameters
    ----------
    kernel : Kernel
        The kernel to multiply.
    scale : float
        Positive.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = 2.5 * rk.Gaussian()
    >>> kernel
    Scaled(kernel=Gaussian(), scale=2.5)
    >>> float(kernel([[1.0]])[0, 0])
    2.5
    """

    parts = ("kernel",)
    learnable = ("scale",)

    def __init__(self, kernel: Kernel, scale: float = 1.0):
        self.kernel = kernel
        self.scale = scale

    def _formula(self) -> str:
        return f"{self.scale:.4g} · {_as_factor(self.kernel)}"

    def _checked_scale(self) -> float:
        scale = check_positive("scale", self.scale)
        if not 1 / _MAX_SCALE <= scale <= _MAX_SCALE:
            raise ValueError(
                f"scale must be between {1 / _MAX_SCALE:g} and {_MAX_SCALE:g}, got "
                f"{self.scale!r}, whose square leaves the range of float64."
            )
        return scale

    def terms(self) -> list[Term]:
        scale = self._checked_scale()
        (kernel,) = self._parts()
        return [
            Term(scale * term.weight, term.leaves, term.scales | {Scale(self, "scale")})
            for term in kernel.terms()
        ]

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        out = self.kernel._gram(X, Y, precise=precise)
        out *= self._checked_scale()
        return out

    def _diag(self, X: Rows) -> np.ndarray:
        return self.scale * self.kernel._diag(X)

    def _slopes(self, X: Rows, Y: Rows, M: np.ndarray) -> Slopes:
        M = self.scale * M
        yield self, "scale", float((M * self.kernel._gram(X, Y)).sum())
        yield from self.kernel._slopes(X, Y, M)

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        self._checked_scale()
        super()._check(n_features, encoder)


class Leaf(Kernel):
    """A kernel that is not composed of others, on some columns of the input."""

    #: The distribution of the rows of the random projection, and the nonlinearity
    #: applied to projected rows.
    distribution: Any = NormalDistribution()
    nonlinearity: Any = Phase()
    #: Number of random projections per draw.
    n_factors: Any = 1
    #: Whether category codes are valid input.
    reads_categories: ClassVar[bool] = False
    #: Attributes that must be positive numbers.
    positive: ClassVar[tuple[str, ...]] = ()
    columns: Any
    #: ν ≥ 0, added to dot products: rows get an entry √ν.
    bias: Any = 0.0

    def terms(self) -> list[Term]:
        return [Term(1.0, (self,))]

    def leaves(self) -> list[Leaf]:
        return [self]

    def __str__(self) -> str:
        return repr(self)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        """Return exact values in float64 for selected rows (`same`: X is Y).

        Kernels that do not compute in tiles override `_gram` instead.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no exact values; define `_tile`."
        )

    def _diag_selected(self, X: Rows) -> np.ndarray:
        """Return the diagonal in float64 for selected rows: 1, unless overridden."""
        return ops_of(X).float64_ones(X.shape[0], X)

    def inverse_scale(self, width: int) -> Any:
        """Return the factor of the columns, or of each, before they are projected."""
        return 1.0

    def inputs(self, n_features: int) -> InputMap:
        """Return how rows reach the random projection."""
        columns = None if self.columns is None else self._selected(n_features)
        width = n_features if columns is None else len(columns)
        bias = math.sqrt(self.bias)
        return InputMap(width, columns, self.inverse_scale(width), bias)

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Projection:
        """Return the random projection of one factor of independent draws."""
        return draws.project(self.distribution, n_draws, width, self)

    def projection_like(self, projection: Projection) -> Projection:
        """Adapt a projection drawn for other parameters of this kernel to its own."""
        return projection

    def exact_width(self, n_features: int) -> int | None:
        """Return the number of features at which they are exact, None if never."""
        return None

    @property
    def can_center(self) -> bool:
        """Whether the kernel's features alone have a mean that can be subtracted."""
        return bool(self.nonlinearity.can_center)

    def own_projection(
        self, draws: FactorDraws, n_columns: int, width: int
    ) -> Projection | None:
        """Return the projection of the kernel's features alone, if they are special.

        None: they are independent draws, as they are in products.
        """
        return None

    def own_variance(
        self, X: Rows, Y: Rows, weight: float, fourier: Fourier
    ) -> TermVariance | None:
        """Return the variance of such features of weight·k, None without them."""
        return None

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray | float:
        """Return E[A(x)²A(y)²] over draws (1 where the amplitude is 1)."""
        return 1.0

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray | float:
        """Return E[cos 2Δ] over draws: 1 without a phase, k(2x, 2y) if it is linear."""
        return self._gram(2 * X, 2 * Y) if self.nonlinearity.has_phase else 1.0

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        """Return Σ_ij M_ij ∂k(x_i, y_j)/∂θ for every learnable attribute.

        For dense selected rows in float64, one derivative per entry of an attribute.
        """
        return {}

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        """Return the derivatives of Σ G∘Z in θ for every learnable attribute."""
        return {}

    def _slopes(self, X: Rows, Y: Rows, M: np.ndarray) -> Slopes:
        if self.learnable:
            X = densify(self._select(X))
            Y = densify(self._select(Y))
            for name, value in self._gradient(X, Y, M).items():
                yield self, name, value

    def _feature_slopes(self, factors: Array, slopes: DrawSlopes) -> Slopes:
        """Yield the derivatives of Σ G∘Z in this kernel's part of θ."""
        if self.learnable:
            for name, value in self._feature_gradient(factors, slopes).items():
                yield self, name, value

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        width = len(self._selected(n_features))
        check_positive("bias", self.bias, zero=True)
        if width == 0 and self.bias == 0:
            raise ValueError(
                f"{self} selects no columns; use columns=None for all of them."
            )
        for name in self.positive:
            check_positive(name, getattr(self, name))
        self._check_leaf(width)
        if encoder is not None:
            encoder.check_numbers(self._columns_of_numbers(n_features), self)
            self._check_categories(n_features, encoder)

    def _check_leaf(self, width: int) -> None:
        """Raise if parameters are wrong for this number of columns."""

    def _resolve_leaf(self, X: Rows, weight: Array, stream: Stream, names: Any) -> None:
        """Replace everything that depends on data by numbers (in a fresh copy).

        `X` has the columns that the kernel reads, with these names.
        """

    def _number_columns(self, names: list[str]) -> None:
        """Replace names among `columns` by their positions."""
        columns = [self.columns] if isinstance(self.columns, str) else self.columns
        if not isinstance(columns, (list, tuple, np.ndarray)):
            return
        named = [column for column in columns if isinstance(column, str)]
        if missing := [column for column in named if column not in names]:
            raise ValueError(
                f"{self} reads the column {missing[0]!r}, but the columns of the input "
                f"are {names}."
            )
        if named:
            numbers = [names.index(c) if isinstance(c, str) else c for c in columns]
            self.columns = numbers

    def _selected(self, n_features: int) -> tuple[int, ...]:
        """Return the positions of the columns that this kernel reads."""
        if self.columns is None:
            return tuple(range(n_features))
        if isinstance(self.columns, slice):
            return tuple(range(n_features))[self.columns]
        columns = np.atleast_1d(np.asarray(self.columns))
        if columns.dtype.kind == "U":
            raise ValueError(
                f"{self} selects columns by name, but the input has no column names; "
                "pass a dataframe, or select columns by number."
            )
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
                f"input has {n_features} columns, numbered from 0."
            )
        return tuple(int(column) % n_features for column in columns)

    def _columns_of_numbers(self, n_features: int) -> tuple[int, ...]:
        """Return the positions of the columns that must not hold category codes."""
        return () if self.reads_categories else self._selected(n_features)

    def _check_categories(self, n_features: int, encoder: TableEncoder) -> None:
        """Raise if the categories of a table are not those that this kernel expects."""

    def _select(self, X: Rows) -> Rows:
        if self.columns is None:
            return X
        return X[:, list(self._selected(X.shape[1]))]

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
