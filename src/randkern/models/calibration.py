"""Class probabilities and intervals, calibrated on rows left out of a fit."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from randkern.backend.namespace import ops_of
from randkern.data.sharded import by_partition, is_dask, lazily

# Bounds of the logarithm of a temperature.
_MIN_LOG = -7.0
_MAX_LOG = 7.0
# Standard errors by which mean probabilities must differ from the shares of classes for
# offsets.
_STANDARD_ERRORS = 1.0
_NEWTON_STEPS = 5

ROWS_IN_BATCHES = "rows that come in batches, by partial_fit, cannot be left out"


def _has_probabilities(estimator: Any) -> bool:
    if not estimator._calibrates:
        raise AttributeError(estimator._uncalibrated)
    return True


def _n_classes(classifier: Any) -> int:
    return len(classifier.classes_)


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
        """Whether a fit finds the scale of logits."""
        return True

    @property
    def _uncalibrated(self) -> str:
        """Advice if there are no probabilities."""
        return (
            f"this {type(self).__name__} has no probabilities, which are calibrated on "
            f"rows left out of the fit: {ROWS_IN_BATCHES}. Use `fit` on all rows, "
            "randkern.KernelLogistic, or sklearn.calibration.CalibratedClassifierCV."
        )

    @property
    def _temperature(self) -> float | None:
        return getattr(self, "temperature_", None)

    @property
    def _offset(self) -> Any:
        return getattr(self, "calibration_offset_", 0.0)

    def _logits(self, X: Any) -> Any:
        """Return logits, (n,) for two classes, else (n, n_classes)."""
        values = self.decision_function(X)
        if self._temperature is None:
            raise NotFittedError(self._uncalibrated)
        return values / self._temperature + ops_of(values).float64_like(
            self._offset, values
        )

    @available_if(_has_probabilities)
    @by_partition(width=_n_classes)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        values = self._logits(X)
        ops = ops_of(values)
        if values.ndim == 1:
            return ops.special.expit(_of_both(values))
        return ops.special.softmax(values, 1)

    @available_if(_has_probabilities)
    @by_partition(width=_n_classes)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the probabilities, (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        values = self._logits(X)
        ops = ops_of(values)
        if values.ndim == 1:
            return -ops.softplus(-_of_both(values))
        return values - ops.special.logsumexp(values, 1)[:, None]


def _of_both(values: np.ndarray) -> np.ndarray:
    """Return the values of the negative and of the positive class, as two columns."""
    return ops_of(values).hstack([-values[:, None], values[:, None]])


def smoothed_share(n: float, weight: Any = None) -> float:
    """Return the share of each of n labels that is spread over all classes."""
    if weight is not None:
        weight = weight / weight.max()
        n = float(weight.sum()) ** 2 / float((weight**2).sum())
    return 1 / (n + 1)


def temperature_of(logits: Any, of_class: Any, weight: Any = None) -> float:
    """Return the divisor of logits that minimises the log loss.

    `logits`, (n, k), are those of rows that were left out of the fit; k = 1: of the
    second of two classes, those of the first being 0. `of_class`, (n, k), says which
    class is theirs. A share of 1/(n + 1) of each label is spread over all classes, as
    if one more row had been seen: even if all these rows are classified correctly,
    others may not be (Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern
    neural networks"). With weights n is (Σ w_i)²/Σ w_i², so that only ratios of weights
    matter.
    """
    ops = ops_of(logits)
    n = len(logits)
    if not n or (weight is not None and not float(weight.sum())):
        return 1.0
    if logits.shape[1] == 1:
        logits = ops.hstack([0.0 * logits, logits])
        of_class = ops.hstack([~of_class, of_class])
    chosen = (logits * of_class).sum(axis=1)
    target = chosen + smoothed_share(n, weight) * (logits.mean(axis=1) - chosen)

    def loss(log_temperature: float) -> float:
        scale = math.exp(-log_temperature)
        losses = ops.special.logsumexp(scale * logits, 1) - scale * target
        return ops.average(losses, None if weight is None else weight)

    # The loss is convex in the inverse of the single parameter.
    result = minimize_scalar(loss, bounds=(_MIN_LOG, _MAX_LOG), method="bounded")
    return math.exp(result.x)


def calibrate(logits: Any, of_class: Any, weight: Any = None) -> tuple[float, Any]:
    """Return the temperature and offsets of logits that minimise the log loss.

    Calibrated logits are ``logits / temperature + offset``; the offset is a number for
    k = 1, else (k,). Arguments are those of :func:`temperature_of`, and labels are
    smoothed in the same way (Platt 1999, "Probabilistic outputs for support vector
    machines"). At the minimum the mean probability of each class is its share of the
    rows, smoothed. Offsets are 0, so that the most probable class is that of the
    largest logit, unless a mean probability then differs from that share by more than
    its standard error.
    """
    to_host = ops_of(logits).to_host
    F = to_host(logits)
    is_class = to_host(of_class)
    n, k = F.shape
    weight = np.ones(n) if weight is None else to_host(weight)
    if not n or not weight.any():
        return 1.0, 0.0 if k == 1 else np.zeros(k)
    weight = weight / weight.max()
    share = weight / weight.sum()
    if k == 1:
        F = np.hstack([-F, F]) / 2
        is_class = np.hstack([~is_class, is_class])
    target = is_class + smoothed_share(n, weight) * (1 / F.shape[1] - is_class)
    # Of most rows: logits of some may be enormous, if a fit does not determine them.
    size = float(np.median(abs(F[:, -1]))) or float(abs(F).max()) or 1.0
    F = F / size

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        # Written out: SciPy's logsumexp takes several times as long for few rows.
        values = x[0] * F + x[1:]
        values -= values.max(axis=1, keepdims=True)
        exponentials = np.exp(values)
        total = exponentials.sum(axis=1)
        error = share[:, None] * (exponentials / total[:, None] - target)
        gradient = np.array([(error * F).sum(), *error.sum(axis=0)])
        return float(share @ (np.log(total) - (target * values).sum(axis=1))), gradient

    def minimised(offset_bounds: tuple[float | None, float | None]) -> Any:
        return minimize(
            loss,
            np.array([1.0, *np.zeros(F.shape[1])]),
            jac=True,
            method="L-BFGS-B",
            bounds=[bounds] + [offset_bounds] * F.shape[1],
            options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 1000},
        )

    bounds = (math.exp(_MIN_LOG), math.exp(2 * _MAX_LOG))
    x = minimised((0.0, 0.0)).x
    has_offsets = _differs(softmax(x[0] * F, axis=1) - target, is_class, share)
    if has_offsets:
        x = minimised((None, None)).x
    free = np.array([bounds[0] < x[0] < bounds[1], *[has_offsets] * F.shape[1]])
    refined = _refined(x, free, F, target, share)
    scale = float(np.clip(refined[0], *bounds))
    offset = refined[1:]
    temperature = size / scale
    if k == 1:
        return temperature, float(offset[1] - offset[0])
    return temperature, offset - offset.mean()


def _refined(
    x: np.ndarray,
    free: np.ndarray,
    F: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
) -> np.ndarray:
    """Return the scale and offsets of logits after steps of Newton's method.

    Only those that are `free` change. Equal offsets change nothing, so that the
    Hessian is singular, and steps are the shortest ones. Where classes are separated
    it vanishes too: the first step that does not reduce the gradient is the last, and
    is not taken.
    """

    def derivatives(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P = softmax(x[0] * F + x[1:], axis=1)
        mean = (P * F).sum(axis=1, keepdims=True)
        error = share[:, None] * (P - target)
        slope = np.append((error * F).sum(), error.sum(axis=0))
        mixed = share @ (P * (F - mean))
        offsets = np.diag(share @ P) - (share[:, None] * P).T @ P
        curvature = np.block(
            [
                [share @ (P * (F - mean) ** 2).sum(axis=1), mixed],
                [mixed[:, None], offsets],
            ]
        )
        return slope[free], curvature[np.ix_(free, free)]

    slope, curvature = derivatives(x)
    for _ in range(_NEWTON_STEPS):
        if not np.isfinite(curvature).all():
            break
        step = x.copy()
        step[free] -= np.linalg.lstsq(curvature, slope, rcond=1e-12)[0]
        next_slope, next_curvature = derivatives(step)
        if not np.linalg.norm(next_slope) < np.linalg.norm(slope):
            break
        x = step
        slope = next_slope
        curvature = next_curvature
    return x


def _differs(errors: np.ndarray, is_class: np.ndarray, share: np.ndarray) -> bool:
    """Return whether weighted means of errors, (n, k), exceed their standard errors.

    Rows are a sample of each class, so that errors vary within classes alone.
    """
    variance = np.zeros(errors.shape[1])
    for members in is_class.astype(bool).T:
        if members.any():
            within = errors[members] - errors[members].mean(axis=0)
            variance += share[members] ** 2 @ within**2
    return bool((abs(share @ errors) > _STANDARD_ERRORS * np.sqrt(variance)).any())


def check_coverage(coverage: Any) -> float:
    """Return a coverage of intervals; raise unless it is between 0 and 1."""
    if not (isinstance(coverage, Real) and 0 < float(coverage) < 1):
        raise ValueError(
            f"coverage must be a number between 0 and 1, got {coverage!r}; use for "
            "instance 0.9."
        )
    return float(coverage)


def conformal_quantile(values: Any, coverage: float, weight: Any = None) -> Any:
    """Return the quantile of values that one more value exceeds seldom, per column.

    The least v with Σ_{i: v_i ≤ v} w_i ≥ c (Σ_i w_i + w*), infinite if there is none:
    the new value, of weight w* = Σ_i w_i² / Σ_i w_i, may lie above all others. Without
    weights it is the ⌈c(n + 1)⌉-th smallest value, which an exchangeable new value
    exceeds with probability at most 1 − c (split conformal prediction). Only ratios of
    weights matter, and values of negligible weight do not count (weighted split
    conformal prediction: Barber, Candès, Ramdas and Tibshirani 2023, "Conformal
    prediction beyond exchangeability").

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
    ops = ops_of(values)
    n = len(values)
    infinite = math.inf + ops.float64_zeros(values.shape[1:], values)
    weight = ops.float64_ones(n, values) if weight is None else weight
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


class LeaveOneOutIntervals:
    """A regressor that stores absolute residuals of rows left out of the fit."""

    predict: Any
    # Numbers of rows among those of positive weight, (m,), their absolute residuals,
    # (m, k), and their weights, (m,).
    _left_out_rows: Any = None
    _left_out_sizes: Any = None
    _left_out_weight: Any = None
    _n_outputs: int | None

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that contain the target with probability `coverage`.

        Jackknife intervals: predictions minus and plus a quantile of the absolute
        residuals of a twentieth of the rows (from 500 to 5,000), left out one at a
        time, in which rows count by their weights. The coverage is asymptotically
        correct for fits that a single row hardly changes.

        Parameters
        ----------
        X : array of shape (n, d)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        ndarray of shape (n, 2), or (n, n_targets, 2)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            After `partial_fit`, which stores no rows to leave out.
        """
        coverage = check_coverage(coverage)
        check_is_fitted(self)
        if self._left_out_sizes is None:
            raise NotFittedError(
                f"this {type(self).__name__} has no intervals, which are computed from "
                f"residuals of rows left out of the fit: {ROWS_IN_BATCHES}. Use `fit` "
                "on all rows, or quantiles of the residuals of held-out rows."
            )
        if is_dask(X):
            if self._n_outputs is not None:
                raise ValueError(
                    "predict_interval of Dask collections supports a single target, "
                    f"got {self._n_outputs}; fit one model per target."
                )
            bounds, arguments = ["lower", "upper"], {"coverage": coverage}
            return lazily(
                self.predict_interval, X, 2, names=bounds, arguments=arguments
            )
        width = conformal_quantile(
            self._left_out_sizes, coverage, self._left_out_weight
        )
        mean = self.predict(X)
        width = ops_of(mean).float64_like(width, mean)
        width = width if mean.ndim == 2 else width[0]
        stack = ops_of(mean).xp.stack
        return stack([mean - width, mean + width], axis=-1)
