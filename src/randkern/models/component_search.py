"""Numbers of random features, doubled as long as rows left out gain by it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.utils.class_weight import compute_sample_weight

from randkern._fitting import forget
from randkern._sklearn import safe_indexing
from randkern._validation import is_tensor
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
        forget(model, "n_components_", "component_errors_")
        if not isinstance(model.n_components, str) or model.n_components != "auto":
            return fit(model, X, y, sample_weight, **options)
        X, y = split_target(X, y, options.pop("target", None))
        if not are_in_memory(X):
            raise ValueError(
                "n_components='auto' leaves out rows in memory, got "
                f"{type(X).__name__}; fit a sample of the rows, and then all with its "
                "n_components_."
            )
        if isinstance(getattr(model, "cv", None), list | tuple):
            raise ValueError(
                "n_components='auto' fits parts of the rows, got a list of splits of "
                "all rows as cv; pass a splitter or a number of folds."
            )

        def fit_with(n_components: int) -> None:
            forget(model, "coef_")  # no warm start from weights of another number
            model.n_components = n_components
            fit(model, X, y, sample_weight, **options)

        try:
            fit_with(_FIRST)  # checks everything
            errors, chosen = _component_errors(model, X, y, sample_weight, options)
            if chosen != _FIRST:
                fit_with(chosen)
        finally:
            model.n_components = "auto"
        model.n_components_ = model.plan_.n_components
        model.component_errors_ = errors
        return model

    return finding  # type: ignore[return-value]


def _component_errors(
    model: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any]
) -> tuple[dict[int, float], int]:
    """Return the mean losses on rows left out, and the number of features to use.

    The number is doubled until the loss of a row decreases by no more than one standard
    error, the features are as many as the rows, or memory does not allow more.
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    X = X.tocsr() if sp.issparse(X) else X
    weight = np.ones(n)
    if sample_weight is not None:
        weight *= _host(sample_weight)
    if classes := is_classifier(model):
        weight *= compute_sample_weight(getattr(model, "class_weight", None), _host(y))
    train, test = _split(np.flatnonzero(weight), _host(y) if classes else None)
    # What has an entry per row, such as groups.
    of_rows = {"X": X, "y": y, "sample_weight": sample_weight, **options}
    fitted_rows = {
        name: safe_indexing(values, train) if _length(values) == n else values
        for name, values in of_rows.items()
    }
    X_test, y_test = safe_indexing(X, test), safe_indexing(y, test)
    share = weight[test] / weight[test].sum()
    errors: dict[int, float] = {}
    best: Any = None
    n_components = chosen = _FIRST
    while best is None or n_components <= n:
        fitted = clone(model).set_params(n_components=n_components)
        try:
            fitted.fit(**fitted_rows)
        except MemoryLimitError:
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


def _split(numbers: np.ndarray, labels: np.ndarray | None) -> tuple[Any, Any]:
    """Return the numbers of rows to fit and of those left out, of all classes."""
    from sklearn.model_selection import train_test_split  # not for predictions

    n_left_out = min(int(_SHARE_LEFT_OUT * len(numbers)), _MAX_LEFT_OUT)
    if n_left_out < 2:
        raise ValueError(
            f"n_components='auto' needs at least {int(2 / _SHARE_LEFT_OUT)} rows, got "
            f"{len(numbers)}; pass a number, or None for the exact kernel."
        )
    strata = None
    if labels is not None:
        _, codes, counts = np.unique(
            labels[numbers], return_inverse=True, return_counts=True
        )
        if counts.min() > 1 and len(counts) <= n_left_out:
            strata = codes
    return train_test_split(
        numbers, test_size=n_left_out, random_state=0, stratify=strata
    )


def _length(values: Any) -> int:
    if hasattr(values, "shape"):
        return values.shape[0] if values.shape else 0
    return len(values) if hasattr(values, "__len__") else 0


def _host(values: Any) -> np.ndarray:
    """Return targets or weights, (n,) or (n, k), as an array of the host."""
    if is_tensor(values):
        values = values.detach().double().cpu().numpy()
    values = np.asarray(values)
    if values.dtype.kind in ("O", "T"):  # labels of one type
        values = values.astype(object).astype(str)
    return values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values


def _losses(model: Any, X: Any, y: Any) -> np.ndarray:
    """Return the losses of rows: errors, squares, or those of the model."""
    predictions, y = _host(model.predict(X)), _host(y)
    if is_classifier(model):
        return (predictions != y).astype(float)
    n = len(y)
    rest = y.reshape(n, -1) - predictions.reshape(n, -1)
    if (quantiles := getattr(model, "quantiles", None)) is not None:
        quantiles = np.asarray(quantiles)
        return np.maximum(quantiles * rest, (quantiles - 1) * rest).mean(axis=1)
    if (epsilon := getattr(model, "epsilon", None)) is not None:
        return np.maximum(abs(rest) - epsilon, 0.0).mean(axis=1)
    return (rest**2).mean(axis=1)
