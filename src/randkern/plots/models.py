"""Figures of fitted models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._extras import import_extra
from randkern.plots.drawing import ACCENT, PALE, bars, legible_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_importances(model: Any, *, n_columns: int = 15, ax: Any = None) -> Axes:
    """Plot the importance of the columns, the largest on top.

    Parameters
    ----------
    model : estimator with `feature_importances_`
        Such as TabularRegressor or MetricLearner, fitted.
    n_columns : int, default=15
        Largest number of columns.
    ax : matplotlib.axes.Axes, optional
        A new figure's by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> learner = rk.MetricLearner(n_components=50, random_state=0).fit(X, y)
    >>> len(rk.plots.plot_importances(learner, n_columns=4).patches)
    4
    """
    if not hasattr(model, "feature_importances_"):
        raise AttributeError(
            f"{type(model).__name__} has no feature_importances_; "
            "sklearn.inspection.permutation_importance measures them for any model."
        )
    shares = np.asarray(model.feature_importances_)
    names = getattr(model, "feature_names_in_", np.arange(len(shares)))
    order = np.argsort(-shares, kind="stable")[:n_columns]
    labels = [str(names[j]) for j in order]
    axes = bars(_axes(ax), labels, shares[order], "importance")
    axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    return axes


def plot_intervals(
    model: Any, X: Any, y: Any = None, *, coverage: float = 0.9, ax: Any = None
) -> Axes:
    """Plot intervals of predictions, in the order of the predictions.

    Parameters
    ----------
    model : regressor with `predict_interval`
        Fitted to one target.
    X : array or dataframe of shape (n, d)
    y : array of shape (n,), optional
        Targets, drawn as points; the legend says which proportion is inside.
    coverage : float, default=0.9
        Of the intervals.
    ax : matplotlib.axes.Axes, optional
        A new figure's by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressor(n_components=100, random_state=0)
    >>> _ = rk.plots.plot_intervals(model.fit(X[:300], y[:300]), X[300:], y[300:])
    """
    axes = _axes(ax)
    predictions = np.asarray(model.predict(X))
    order = np.argsort(predictions, kind="stable")
    low, high = np.asarray(model.predict_interval(X, coverage=coverage)).T
    places = np.arange(len(order))
    axes.fill_between(
        places,
        low[order],
        high[order],
        color=PALE,
        linewidth=0,
        label=f"{coverage:.0%} interval",
    )
    axes.plot(places, predictions[order], color=ACCENT, label="prediction")
    if y is not None:
        y = np.asarray(y)
        inside = ((low <= y) & (y <= high)).mean()
        label = f"target, {inside:.0%} inside"
        axes.plot(places, y[order], ".", color="black", markersize=3, label=label)
    axes.set(xlabel="rows, by prediction", ylabel="target")
    legible_ticks(axes)
    axes.legend(frameon=False)
    return axes


def _axes(ax: Any) -> Any:
    """Return the axes that were passed, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_extra("matplotlib.pyplot", "A figure", "plot")
    return pyplot.subplots(layout="constrained")[1]
