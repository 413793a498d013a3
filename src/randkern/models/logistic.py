"""Logistic regression on random features, or on the exact kernel."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from randkern.backend import thin
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._margin_classifier import MarginClassifier, all_targets
from randkern.models._margins import FactorFeatures, FeatureRows
from randkern.models._rows import ArrayRows

__all__ = ["KernelLogistic"]

# A slope at w = 0 of this size: the solution is minus it, to rounding.
_VANISHING = 1e-100


class KernelLogistic(MarginClassifier):
    """Logistic regression on random features, or on the exact kernel.

    For two classes with signs y_i

        min ½‖w‖² + C Σ_i s_i log(1 + exp(−y_i w·z_i)),

    for more the multinomial loss of one vector of weights a class; no intercept.
    Solved by L-BFGS on products with the features, which are made again in every
    iteration where they do not fit `memory_limit`.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive: the inverse of the penalty.
    n_components : int or None, default=1000
        Number of random features D; None is the exact kernel.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn.
    tol : float, default=1e-5
        Stop where no entry of the gradient is larger than `tol` times the largest
        at w = 0.
    max_iter : int, default=1000
    projection : str, default="auto"
        As in :class:`~randkern.RandomFeatures`.
    memory_limit : int, str or None, default=None
        Bytes, or a text like ``"4GB"``, half of it for features. None: 2 GB, or a
        quarter of what is free.
    random_state : int, generator or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (D,) or (n_classes, D)
        Weights of the features.
    dual_coef_ : ndarray of shape (r,) or (r, n_classes)
        Weights of the rows ``X_fit_``, for the exact kernel: r rows, as many as its
        Gram matrix has rank.
    n_iter_ : int
    kernel_, plan_
        As in :class:`~randkern.KernelRidgeRegressor`.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelLogistic(C=10.0, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    >>> float(model.predict_proba(X[1000:1001]).sum())
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        C: float = 1.0,
        n_components: int | None = 1000,
        *,
        class_weight: Any = None,
        tol: float = 1e-5,
        max_iter: int = 1000,
        projection: str = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.n_components = n_components
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.projection = projection
        self.memory_limit = memory_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelLogistic:
        """Fit to rows `X` and labels `y` of shape (n,).

        Rows that do not fit in memory come as :class:`~randkern.RowBlocks`, with
        their labels and weights.
        """
        self._validate_params()
        rows, _ = self._read(X, y, sample_weight)
        signs, weight = all_targets(rows)
        features = self._features(rows, self._limit // 2)
        loss = _Loss(features, signs, self.C * weight)
        weights = self._minimise(loss)
        self.intercept_ = 0.0
        if self.plan_ is not None:
            self.coef_ = self._transposed(weights[:, : self.plan_.n_components].T)
            return self
        assert isinstance(features, FactorFeatures) and isinstance(rows, ArrayRows)
        # With K = FFᵀ the weights Fᵀa have values Ka: a on the rows of the pivots.
        rank = len(features.pivots)
        dual = scipy.linalg.solve_triangular(
            features.triangle, weights[:, :rank].T, lower=True, trans="T"
        )
        order = np.argsort(features.pivots)
        self.X_fit_ = rows.X[features.pivots[order]]
        self.dual_coef_ = self._shaped(dual[order])
        return self

    def _minimise(self, loss: _Loss) -> np.ndarray:
        start = np.zeros(loss.shape)
        _, gradient = loss(start.ravel())
        largest = float(np.abs(gradient).max(initial=0.0))
        self.n_iter_ = 0
        if largest < _VANISHING:
            return -gradient.reshape(loss.shape)
        # Slopes of order one: those of an enormous C have squares that overflow.
        unit = max(1.0, largest)

        def scaled(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = loss(flat)
            return value / unit, slope / unit

        result = scipy.optimize.minimize(
            scaled,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": int(self.max_iter),
                "maxfun": 2 * int(self.max_iter),
                "gtol": self.tol * largest / unit,
                "ftol": 64 * np.finfo(float).eps,
                "maxcor": 20,
            },
        )
        self.n_iter_ = int(result.nit)
        if result.nit >= self.max_iter:
            warnings.warn(
                f"max_iter={self.max_iter} iterations did not reach tol={self.tol:g}; "
                "raise either, or lower C.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return result.x.reshape(loss.shape)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, (n, n_classes)."""
        values = self.decision_function(X)
        if values.ndim == 1:
            return np.column_stack([expit(-values), expit(values)])
        return softmax(values, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the probabilities, (n, n_classes)."""
        values = self.decision_function(X)
        if values.ndim == 1:
            return -np.logaddexp(0, np.column_stack([values, -values]))
        return values - logsumexp(values, axis=1, keepdims=True)


class _Loss:
    """The objective as a function of all weights, and its gradient.

    Parameters
    ----------
    features : FeatureRows
    signs : ndarray of shape (n, k)
        One column for two classes.
    upper : ndarray of shape (n,)
        C times the weights of rows.
    """

    def __init__(self, features: FeatureRows, signs: np.ndarray, upper: np.ndarray):
        self.features, self.signs, self.upper = features, signs, upper
        self.shape = (signs.shape[1], features.width)

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(self.shape)
        size = float(np.abs(weights).max(initial=0.0)) or 1.0
        right = np.ascontiguousarray(weights / size, self.features.dtype)
        total = 0.5 * float(np.sum(weights**2))
        gradient = np.zeros(self.shape)
        for part, Z in self.features.blocks():
            values = size * thin.multiply(Z, right)
            upper = self.upper[part]
            losses, slopes = self._losses(values, self.signs[part])
            total += float(upper @ losses)
            slopes *= upper[:, None]
            largest = float(np.abs(slopes).max(initial=0.0)) or 1.0
            inner = np.ascontiguousarray(slopes / largest, self.features.dtype)
            added = np.zeros(self.shape)
            thin.add_transposed(Z, inner, added)
            gradient += largest * added
        gradient += weights
        return total, gradient.ravel()

    @staticmethod
    def _losses(values: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses of rows, and their derivatives in the values."""
        if signs.shape[1] == 1:
            margins = signs * values
            return np.logaddexp(0, -margins)[:, 0], -signs * expit(-margins)
        here = (signs > 0).astype(float)
        losses = logsumexp(values, axis=1) - np.sum(here * values, axis=1)
        return losses, softmax(values, axis=1) - here
