"""The kernels that intensities of scattered light converge to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gamma

from randkern._random import Stream
from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.nonlinearities import Modulus
from randkern.projections import ComplexNormalDistribution


class Optical(Leaf):
    """The kernel of optical random features: light intensities behind a diffuser.

    A feature is |Ux|^m/√D with U complex Gaussian. With cos θ = x·y/(‖x‖‖y‖),

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
        The columns that the kernel reads; None: all.

    Notes
    -----
    For x ∥ y the variance of a feature, relative to K², is C(2m, m) − 1: 1, 5,
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

    positive = ("degree",)
    distribution = ComplexNormalDistribution()

    def __init__(self, degree: float = 2, bias: float = 0.0, *, columns: Any = None):
        self.degree = degree
        self.bias = bias
        self.columns = columns

    @property
    def nonlinearity(self) -> Modulus:
        return Modulus(float(self.degree))

    def _resolve_leaf(self, X: Rows, weight: Array, stream: Stream, names: Any) -> None:
        ops = ops_of(X)
        largest = ops.largest_or_zero(ops.unit_rows(X, self.bias)[1])
        if 0 < largest < math.sqrt(float(ops.xp.finfo(X.dtype).smallest_normal)):
            raise ValueError(
                f"rows of X have norms of up to {largest:.3g}, the squares of which "
                f"underflow {X.dtype}; scale the input up (for instance with "
                "sklearn.preprocessing.MaxAbsScaler)."
            )

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        return Optical(2 * self.degree, self.bias, columns=self.columns)._gram(X, Y)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        m = float(self.degree)
        with np.errstate(over="ignore"):
            return ops_of(X).unit_rows(X, self.bias)[1] ** (2 * m) * gamma(1 + m)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        m = float(self.degree)
        ops = ops_of(X)
        X, x_norms = ops.unit_rows(X, self.bias)
        Y, y_norms = (X, x_norms) if same else ops.unit_rows(Y, self.bias)
        cosine = densify(ops.precise_product(X, Y.T))
        if self.bias:
            root = math.sqrt(self.bias)
            cosine += (root / x_norms)[:, None] * (root / y_norms)
        cosine = abs(cosine).clip(max=1.0)
        if same:
            ops.fill_diagonal(cosine, 1.0)
        values = ops.optical_angles(cosine, m)
        with np.errstate(over="ignore"):
            values *= (x_norms**m)[:, None]
            values *= y_norms**m
        return values
