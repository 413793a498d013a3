"""The polynomial kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Array, Rows, check_count, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.nonlinearities import Nonlinearity
from randkern.projections import Distribution


@dataclass(frozen=True)
class ComplexSignDistribution(Distribution):
    """Independent entries ±1 ± i, of modulus √2."""

    name = "complex sign"
    entries = "sign"
    is_complex = True

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return np.where(points < 0.5, 1.0, -1.0)


@dataclass(frozen=True)
class ComplexValue(Nonlinearity):
    """Multiplies by the complex number u·x/√2, for rows u of modulus √2."""

    has_phase = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        real, imaginary = projected
        return (real + 1j * imaginary) * math.sqrt(0.5), None


class Polynomial(Leaf):
    """The polynomial kernel, a power of the dot product.

        k(x, y) = (x·y + ν)^p

    A draw is z(x) = Π_{i=1..p} w_i·x̃ with x̃ = (x, √ν) and entries of w_i uniform
    over the four numbers (±1 ± i)/√2; its real and imaginary parts are two columns
    (complex-to-real sketches). With S = ‖x̃‖²‖ỹ‖² + (x̃·ỹ)² − Σ_j x̃_j²ỹ_j² and
    T = 2(x̃·ỹ)² − Σ_j x̃_j²ỹ_j², the variance of D even columns is (S^p + T^p − 2K²)/D.

    Parameters
    ----------
    degree : int
        p ≥ 1.
    bias : float
        ν ≥ 0.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Wacker, Ohana, Filippone 2022, "Complex-to-real sketches for tensor products with
    applications to the polynomial kernel", arXiv 2202.02031.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Polynomial(degree=2, bias=1.0)([[1.0, 2.0]], [[3.0, 0.0]])
    array([[16.]])
    """

    distribution = ComplexSignDistribution()
    nonlinearity = ComplexValue()

    def __init__(self, degree: int = 2, bias: float = 0.0, *, columns: Any = None):
        self.degree = degree
        self.bias = bias
        self.columns = columns

    def _check_leaf(self, width: int) -> None:
        check_count("degree", self.degree)

    @property
    def n_factors(self) -> int:
        """One random projection per power."""
        return int(self.degree)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return self._moments(X, Y)[0] ** self.degree

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray:
        squares, turned = self._moments(X, Y)
        ratio = np.divide(turned, squares, out=np.zeros_like(turned), where=squares > 0)
        return ratio**self.degree

    def _moments(self, X: Rows, Y: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return E[|a|²|b|²] and E[(a b̄)²] for one factor a = w·x̃, b = w·ỹ."""
        inputs = self.inputs(X.shape[1])
        X = densify(inputs.apply(X))
        Y = densify(inputs.apply(Y))
        dots = (X @ Y.T) ** 2
        common = X**2 @ (Y**2).T
        norms = np.outer((X**2).sum(axis=1), (Y**2).sum(axis=1))
        return norms + dots - common, 2 * dots - common

    def _diag_selected(self, X: Rows) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (ops_of(X).float64_squared_norms(X) + self.bias) ** int(self.degree)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return (densify(ops_of(X).precise_product(X, Y.T)) + self.bias) ** int(
            self.degree
        )
