"""Figures of fitted models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._extras import import_extra
from randkern.plots.drawing import bars

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


def _axes(ax: Any) -> Any:
    """Return the axes that were passed, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_extra("matplotlib.pyplot", "A figure", "plot")
    return pyplot.subplots(layout="constrained")[1]
