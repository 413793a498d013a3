"""Class probabilities and intervals, calibrated on rows left out of a fit."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.utils.metaestimators import available_if

from randkern.backend.namespace import ops_of
from randkern.data.sharded import is_dask, lazily

# Largest number of rows left out: enough for a temperature, or a quantile to 2 %.
MOST_LEFT_OUT = 500
# Bounds of the logarithm of a temperature.
_LEAST, _LARGEST = -7.0, 7.0


_ADVICE = (
    "rows left out of the fit, of which only a direct solve of rows in memory tells; "
    "this model was fitted by iterations, or to rows in batches. Use "
)


def _is_calibrated(estimator: Any) -> bool:
    if not hasattr(estimator, "classes_"):
        calibrated = estimator._calibrates
    else:
        calibrated = estimator._temperature is not None
    if not calibrated:
        raise AttributeError(estimator._uncalibrated)
    return True


class LogitsOfDecisions:
    """A classifier whose decision values over a temperature are class logits."""

    classes_: Any
    temperature_: float
    _values: Any

    def decision_function(self, X: Any) -> np.ndarray:
        """Return fitted values, (n,) for two classes, else (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        return self._values(X)

    @property
    def _calibrates(self) -> bool:
        """Whether a fit finds a temperature."""
        return True

    @property
    def _uncalibrated(self) -> str:
        """Advice if there is no temperature."""
        return (
            f"probabilities of {type(self).__name__} are calibrated on {_ADVICE}"
            "solver='cholesky', randkern.KernelLogistic, or "
            "sklearn.calibration.CalibratedClassifierCV."
        )

    @property
    def _temperature(self) -> float | None:
        return getattr(self, "temperature_", None)

    @available_if(_is_calibrated)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        if is_dask(X):
            return lazily(self.predict_proba, X, len(self.classes_))
        values = self.decision_function(X) / self._temperature
        ops = ops_of(values)
        if values.ndim == 1:
            return ops.special.expit(_of_both(values))
        return ops.special.softmax(values, 1)

    @available_if(_is_calibrated)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the probabilities, (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        if is_dask(X):
            return lazily(self.predict_log_proba, X, len(self.classes_))
        values = self.decision_function(X) / self._temperature
        ops = ops_of(values)
        if values.ndim == 1:
            return -ops.softplus(-_of_both(values))
        return values - ops.special.logsumexp(values, 1)[:, None]


def _of_both(values: np.ndarray) -> np.ndarray:
    """Return the values of the negative and of the positive class, as two columns."""
    return ops_of(values).hstack([-values[:, None], values[:, None]])


def temperature_of(
    logits: Any,
    of_class: Any,
    weight: Any = None,
    n_units: float | None = None,
    optimism: float = 0.0,
) -> float:
    """Return the divisor of logits that minimises the log loss.

    `logits`, (n, k), are those of rows that were left out of the fit; k = 1: of the
    second of two classes, those of the first being 0. `of_class`, (n, k), says which
    class is theirs. A share of 1/(n + 1) of each label is spread over all classes, as
    if one more row had been seen: even if all these rows are classified correctly,
    others may not be. `n_units` replaces n if rows are repeated (Guo, Pleiss, Sun &
    Weinberger 2017, "On calibration of modern neural networks"). `optimism` is by how
    much the log loss at temperature 1 is estimated to be too small, because the same
    rows have chosen the model; it is assumed to be proportional to the scale of logits.
    """
    ops, n = ops_of(logits), len(logits)
    if not n or (weight is not None and not float(weight.sum())):
        return 1.0
    if logits.shape[1] == 1:
        logits = ops.hstack([0.0 * logits, logits])
        of_class = ops.hstack([~of_class, of_class])
    chosen = (logits * of_class).sum(axis=1)
    target = chosen + (logits.mean(axis=1) - chosen) / ((n_units or n) + 1)

    def loss(log_temperature: float) -> float:
        scale = math.exp(-log_temperature)
        losses = ops.special.logsumexp(scale * logits, 1) - scale * target
        mean = ops.average(losses, None if weight is None else weight)
        return mean + optimism * scale

    # The loss is convex in the inverse of the single parameter.
    found = minimize_scalar(loss, bounds=(_LEAST, _LARGEST), method="bounded")
    return math.exp(found.x)


def log_probabilities_at(P: np.ndarray, temperature: float) -> np.ndarray:
    """Return log-probabilities (n, k): those of P divided by a temperature."""
    logits = np.log(np.clip(P, 1e-15, None)) / temperature
    return logits - logsumexp(logits, axis=1, keepdims=True)


def check_coverage(coverage: Any) -> float:
    """Return a coverage of intervals; raise unless it is between 0 and 1."""
    if not (isinstance(coverage, Real) and 0 < float(coverage) < 1):
        raise ValueError(
            f"coverage must be a number between 0 and 1, got {coverage!r}; "
            "for instance 0.9."
        )
    return float(coverage)


def conformal_quantile(values: Any, coverage: float, weight: Any = None) -> Any:
    """Return the quantile of values that one more value exceeds seldom, per column.

    The least v with Σ_{i: v_i ≤ v} w_i ≥ c (Σ_i w_i + w*), infinite if there is none:
    the weight w* = Σ_i w_i² / Σ_i w_i of the new value may lie anywhere above the
    others. Without weights it is the ⌈c(n + 1)⌉-th smallest value, which an exchangeable
    new value exceeds with probability at most 1 − c (split conformal prediction). Only
    ratios of weights matter, and values of negligible weight do not count (weighted
    split conformal prediction: Barber, Candès, Ramdas and Tibshirani 2023, "Conformal
    prediction beyond exchangeability", eq. 11).

    Parameters
    ----------
    values : array of shape (n, k)
        For example absolute residuals. The quantile from below is
        ``-conformal_quantile(-values, coverage, weight)``.
    coverage : float
        c, between 0 and 1.
    weight : array of shape (n,), optional
        Non-negative; None: 1 each.

    Returns
    -------
    array of shape (k,)
    """
    ops, n = ops_of(values), len(values)
    infinite = math.inf + ops.zeros(values.shape[1:], values)
    weight = ops.ones(n, values) if weight is None else weight
    largest = float(weight.max()) if n else 0.0
    if largest == 0:
        return infinite
    weight = weight / largest
    total = float(weight.sum())
    needed = coverage * (total + float((weight**2).sum()) / total)
    order = ops.xp.argsort(values, axis=0)
    below = (weight[order].cumsum(axis=0) < needed).sum(axis=0)
    chosen = ops.xp.take_along_axis(order, below.clip(max=n - 1)[None], axis=0)
    quantiles = ops.xp.take_along_axis(values, chosen, axis=0)[0]
    return ops.xp.where(below < n, quantiles, infinite)


def _has_residuals(estimator: Any) -> bool:
    unfitted = not hasattr(estimator, "kernel_")
    if unfitted or hasattr(estimator, "_left_out_sizes"):
        return True
    raise AttributeError(
        f"intervals of {type(estimator).__name__} are made of residuals of {_ADVICE}"
        "solver='cholesky', or quantiles of the residuals of rows that you set apart."
    )


class LeaveOneOutIntervals:
    """A regressor that stores absolute residuals of rows left out of the fit."""

    predict: Any
    _left_out_sizes: Any
    _n_outputs: int | None

    @available_if(_has_residuals)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that contain the target with probability `coverage`.

        Jackknife intervals: predictions minus and plus a quantile of the absolute
        residuals of at most 500 rows, left out one at a time. The coverage is
        asymptotically correct for fits that a single row hardly changes.

        Parameters
        ----------
        X : array of shape (n, d)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        ndarray of shape (n, 2), or (n, n_targets, 2)
        """
        width = conformal_quantile(self._left_out_sizes, check_coverage(coverage))
        if is_dask(X):
            if self._n_outputs is not None:
                raise ValueError(
                    "intervals of Dask collections are of models with one target, got "
                    f"{self._n_outputs}; fit a model for each."
                )
            bounds, arguments = ["lower", "upper"], {"coverage": coverage}
            return lazily(
                self.predict_interval, X, 2, names=bounds, arguments=arguments
            )
        mean = self.predict(X)
        width = ops_of(mean).float64_like(width, mean)
        width = width if mean.ndim == 2 else width[0]
        stack = ops_of(mean).xp.stack
        return stack([mean - width, mean + width], axis=-1)
