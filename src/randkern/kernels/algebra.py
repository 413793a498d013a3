"""Sums, products and positive multiples of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Rows, TableEncoder, check_positive
from randkern.kernels._base import Kernel, Leaf, Term

__all__ = ["Product", "Scaled", "Sum"]


class _Binary(Kernel):
    """Two kernels joined by an operation."""

    def __init__(self, k1: Kernel, k2: Kernel):
        self.k1 = k1
        self.k2 = k2

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        _kernel("k1", self.k1)._check(n_features, encoder)
        _kernel("k2", self.k2)._check(n_features, encoder)

    def leaves(self) -> list[Leaf]:
        return [*_kernel("k1", self.k1).leaves(), *_kernel("k2", self.k2).leaves()]


def _kernel(name: str, value: Any) -> Kernel:
    if not isinstance(value, Kernel):
        raise ValueError(f"{name} must be a kernel, got {value!r}.")
    return value


class Sum(_Binary):
    """The sum of two kernels, k₁(x, y) + k₂(x, y).

    Its features are those of the terms side by side; columns are allotted in
    proportion to each term's mean diagonal by largest remainder, which has a
    lower variance than drawing the terms at random.

    Parameters
    ----------
    k1, k2 : Kernel

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.Gaussian(2.0) + 0.5 * rk.Linear()
    >>> float(kernel([[1.0, 0.0]], [[1.0, 0.0]])[0, 0])
    1.5
    """

    def terms(self) -> list[Term]:
        return _kernel("k1", self.k1).terms() + _kernel("k2", self.k2).terms()

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        out = self.k1._gram(X, Y, precise=precise)
        out += self.k2._gram(X, Y, precise=precise)
        return out

    def _diag(self, X: Rows) -> np.ndarray:
        return self.k1._diag(X) + self.k2._diag(X)


class Product(_Binary):
    """The product of two kernels, k₁(x, y)·k₂(x, y).

    A draw of its features is the product of independent draws: amplitudes
    multiply and phases add. A product of sums is expanded into a sum of
    products.

    Parameters
    ----------
    k1, k2 : Kernel

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.Gaussian(columns=[0]) * rk.Categorical(columns=[1])
    >>> kernel([[0.5, 1.0]], [[0.5, 1.0], [0.5, 2.0]])
    array([[1., 0.]])
    """

    def terms(self) -> list[Term]:
        return [
            Term(first.weight * second.weight, first.leaves + second.leaves)
            for first in _kernel("k1", self.k1).terms()
            for second in _kernel("k2", self.k2).terms()
        ]

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        out = self.k1._gram(X, Y, precise=precise)
        out *= self.k2._gram(X, Y, precise=precise)
        return out

    def _diag(self, X: Rows) -> np.ndarray:
        return self.k1._diag(X) * self.k2._diag(X)


class Scaled(Kernel):
    """A positive multiple of a kernel, scale·k(x, y).

    Parameters
    ----------
    kernel : Kernel
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

    def __init__(self, kernel: Kernel, scale: float = 1.0):
        self.kernel = kernel
        self.scale = scale

    def leaves(self) -> list[Leaf]:
        return _kernel("kernel", self.kernel).leaves()

    def terms(self) -> list[Term]:
        scale = check_positive("scale", self.scale)
        return [
            Term(scale * term.weight, term.leaves)
            for term in _kernel("kernel", self.kernel).terms()
        ]

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        out = self.kernel._gram(X, Y, precise=precise)
        out *= check_positive("scale", self.scale)
        return out

    def _diag(self, X: Rows) -> np.ndarray:
        return self.scale * self.kernel._diag(X)

    def _check(self, n_features: int, encoder: TableEncoder | None = None) -> None:
        check_positive("scale", self.scale)
        _kernel("kernel", self.kernel)._check(n_features, encoder)
