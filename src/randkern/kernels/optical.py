"""The kernels that intensities of scattered light converge to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import binom, ellipe, gamma, hyp2f1

from randkern._validation import Rows, check_positive
from randkern.kernels._base import Leaf
from randkern.projections import InputMap, Law

__all__ = ["Optical"]


class Optical(Leaf):
    """The kernel of optical random features |Ux|^m/√D, U complex Gaussian.

    With cos θ = x·y/(‖x‖‖y‖),

        K(x, y) = ‖x‖^m ‖y‖^m Γ(1 + m/2)² ₂F₁(−m/2, −m/2; 1; cos²θ);

    m = 2 gives ‖x‖²‖y‖² + (x·y)². An entry √ν is appended to x and y first,
    so that ν is added to the dot product and to both squared norms.

    Parameters
    ----------
    degree : float
        m > 0, any real number: the exponent of the modulus.
    bias : float
        ν ≥ 0.
    columns : None, slice, or list of column numbers or names

    Notes
    -----
    Relative to K², the variance of a feature at x ∥ y is C(2m, m) − 1: 1, 5,
    19, 69 for m = 1, 2, 3, 4. Higher degrees need more features.

    References
    ----------
    Ohana, Wacker, Dong, Marmin, Krzakala, Filippone, Daudet 2020, "Kernel
    computations from large-scale random features obtained by optical
    processing units", Theorems 1 and 2 (even degrees); here for every degree.

    Examples
    --------
    >>> import randkern as rk
    >>> rk.Optical(degree=2)([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[2., 1.]])
    """

    role = "modulus"

    def __init__(self, degree: float = 2, bias: float = 0.0, *, columns: Any = None):
        self.degree = degree
        self.bias = bias
        self.columns = columns

    def _check_leaf(self, n_features: int) -> None:
        super()._check_leaf(n_features)
        check_positive("degree", self.degree)
        check_positive("bias", self.bias, zero=True)

    def law(self) -> Law:
        return Law("complex_normal")

    def inputs(self, n_features: int) -> InputMap:
        return self._input_map(n_features, 1.0, math.sqrt(self.bias))

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return Optical(2 * self.degree, self.bias, columns=self.columns)._gram(X, Y)

    def _units(self, X: Rows) -> tuple[Rows, np.ndarray]:
        """Return rows over their norms, and the norms, both with the bias entry.

        Rows are first divided by their largest entry, so that no square leaves
        the range of float64; a zero row stays zero.
        """
        if sp.issparse(X):
            X = sp.csr_array(X, dtype=np.float64, copy=True)
            largest = abs(X).max(axis=1).toarray().ravel()
            largest[largest == 0] = 1.0
            X.data /= np.repeat(largest, np.diff(X.indptr))
            norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        else:
            largest = np.abs(X).max(axis=1, initial=0.0).astype(np.float64)
            largest[largest == 0] = 1.0
            X = X / largest[:, None]
            norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        full = np.hypot(largest * norms, math.sqrt(self.bias))
        share = largest / np.where(full > 0, full, 1.0)
        share = np.where(full > 0, share, 0.0)
        if sp.issparse(X):
            X.data *= np.repeat(share, np.diff(X.indptr))
            return X, full
        X *= share[:, None]
        return X, full

    def _diag_selected(self, X: Rows) -> np.ndarray:
        m = float(self.degree)
        with np.errstate(over="ignore"):
            return self._units(X)[1] ** (2 * m) * gamma(1 + m)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        m = float(self.degree)
        X, x_norms = self._units(X)
        Y, y_norms = (X, x_norms) if same else self._units(Y)
        cosine = X @ Y.T
        if sp.issparse(cosine):
            cosine = cosine.toarray()
        if self.bias:
            root = math.sqrt(self.bias)
            cosine += np.outer(root / x_norms, root / y_norms)
        cosine = np.minimum(np.abs(cosine), 1.0, out=cosine)
        if same:
            np.fill_diagonal(cosine, 1.0)
        values = _angular(cosine, m)
        with np.errstate(over="ignore"):
            values *= (x_norms**m)[:, None]
            values *= y_norms**m
        return values


def _angular(cosine: np.ndarray, m: float) -> np.ndarray:
    """Return Γ(1 + m/2)² ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1]."""
    if m == 1.0:
        # The complete elliptic integral E of parameter k² = 4c/(1 + c)².
        return (1 + cosine) / 2 * ellipe(np.minimum(4 * cosine / (1 + cosine) ** 2, 1))
    squared = cosine * cosine
    if m % 2 == 0 and m <= 60:
        s = int(m) // 2
        coefficients = binom(s, np.arange(s + 1)) ** 2
        return gamma(1 + s) ** 2 * np.polynomial.polynomial.polyval(
            squared, coefficients
        )
    return gamma(1 + m / 2) ** 2 * hyp2f1(-m / 2, -m / 2, 1.0, squared)
