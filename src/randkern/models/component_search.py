"""Numbers of random features, doubled as long as rows left out gain by it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import check_consistent_length

from randkern._sklearn import safe_indexing
from randkern.data.columns import split_target
from randkern.data.reading import are_in_memory
from randkern.exceptions import MemoryLimitError

_FIRST = 1000
# Rows left out: of 4,000 with an error of 20 %, a gain of 1.2 points is two standard
# errors, and the fits have nearly all rows.
_MAX_LEFT_OUT = 4000
_SHARE_LEFT_OUT = 0.2

Fit = TypeVar("Fit", bound=Callable[..., Any])


def finds_components(fit: Fit) -> Fit:
    """Let a method ``fit`` find `n_components` if it is "auto".

    The parameter keeps "auto"; `n_components_` is the number that was found, and
    `component_errors_` the mean losses by number.
    """

    @functools.wraps(fit)
    def finding(
        model: Any, X: Any, y: Any = None, sample_weight: Any = None, **options: Any
    ) -> Any:
        if not isinstance(model.n_components, str) or model.n_components != "auto":
            return fit(model, X, y, sample_weight, **options)
        X, y = split_target(X, y, options.pop("target", None))
        errors, chosen = _component_errors(model, X, y, sample_weight)
        model.n_components = chosen
        try:
            fit(model, X, y, sample_weight, **options)
        finally:
            model.n_components = "auto"
        model.n_components_, model.component_errors_ = chosen, errors
        return model

    return finding  # type: ignore[return-value]


def _component_errors(
    model: Any, X: Any, y: Any, sample_weight: Any
) -> tuple[dict[int, float], int]:
    """Return the mean losses on rows left out, and the number of features to use.

    The number is doubled until the loss of a row decreases by no more than one standard
    error, the features are as many as the rows, or memory does not allow more.
    """
    if not are_in_memory(X):
        raise ValueError(
            "n_components='auto' leaves out rows in memory, got "
            f"{type(X).__name__}; fit a sample of the rows, and then all with its "
            "n_components_."
        )
    check_consistent_length(X, y, sample_weight if np.ndim(sample_weight) else None)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    n_left_out = min(int(_SHARE_LEFT_OUT * n), _MAX_LEFT_OUT)
    if n_left_out < 2:
        raise ValueError(
            f"n_components='auto' needs at least {int(2 / _SHARE_LEFT_OUT)} rows, got "
            f"{n}; pass a number, or None for the exact kernel."
        )
    classes = np.unique(y, return_counts=True)[1] if is_classifier(model) else [1]
    from sklearn.model_selection import train_test_split  # takes a second to import

    numbers = train_test_split(
        np.arange(n),
        test_size=n_left_out,
        random_state=0,
        stratify=y if 2 <= min(classes) and len(classes) <= n_left_out else None,
    )

    weights = np.ones(n) if sample_weight is None else sample_weight
    if np.ndim(weights) == 0:
        weights = np.full(n, weights)
    train, test = numbers
    X_train, y_train, w_train = (safe_indexing(each, train) for each in (X, y, weights))
    X_test, y_test, w_test = (safe_indexing(each, test) for each in (X, y, weights))
    if sample_weight is None:
        w_train = None
    share = np.asarray(w_test, float) / np.sum(w_test)
    errors: dict[int, float] = {}
    best: Any = None
    n_components = chosen = _FIRST
    while best is None or n_components <= n:
        fitted = clone(model).set_params(n_components=n_components)
        try:
            fitted.fit(X_train, y_train, w_train)
        except MemoryLimitError:
            if best is None:
                raise
            break
        losses = _losses(fitted, X_test, y_test)
        errors[n_components] = float(share @ losses)
        if best is not None:
            gain = best - losses
            error = np.sqrt(share**2 @ (gain - share @ gain) ** 2)
            if share @ gain <= error:
                break
        best, chosen = losses, n_components
        n_components *= 2
    return errors, chosen


def _losses(model: Any, X: Any, y: Any) -> np.ndarray:
    """Return the losses of rows: errors, squares, or those of quantiles."""
    predictions, y = np.asarray(model.predict(X)), np.asarray(y)
    if is_classifier(model):
        return (predictions != y).astype(float)
    n = len(y)
    if (quantiles := getattr(model, "quantiles", None)) is None:
        return ((predictions - y) ** 2).reshape(n, -1).mean(axis=1)
    rest = y[:, None] - predictions.reshape(n, -1)
    quantiles = np.asarray(quantiles)
    return np.maximum(quantiles * rest, (quantiles - 1) * rest).mean(axis=1)
