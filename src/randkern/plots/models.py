"""Figures of fitted models and of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import eigvalsh
from sklearn.base import is_classifier

from randkern._extras import import_extra
from randkern.plots.ticks import legible_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACCENT = "#0072B2"
_PALE = "#9ec9dd"
_GRID_POINTS = 400


def plot_leaderboard(model: Any, *, n_kernels: int = 10, ax: Any = None) -> Axes:
    """Plot the errors of the kernels that a model of a table has tried.

    In the order of `leaderboard_`: those tried on most rows are on top, the best first.
    An error is a share of that of the mean.

    Parameters
    ----------
    model : TabularRegressor or TabularClassifier
        Fitted.
    n_kernels : int, default=10
        Largest number of kernels.
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
    >>> model = rk.TabularRegressor(time_limit=2, random_state=0).fit(X[:60], y[:60])
    >>> rk.plots.plot_leaderboard(model).get_xlabel()
    'RMSE / std of rows left out'
    """
    trials = model.leaderboard_
    if hasattr(trials, "to_dict"):  # a list if pandas is not installed
        trials = trials.to_dict("records")
    names = [
        f"{trial['kernel']}, {trial['numbers']}, {trial['metric']}, "
        f"{trial['rows']:,} rows"
        for trial in trials[:n_kernels]
    ]
    errors = np.array([trial["error"] for trial in trials[:n_kernels]])
    return _bars(_axes(ax), names, errors, "RMSE / std of rows left out")


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
    axes = _bars(_axes(ax), labels, shares[order], "importance")
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
        color=_PALE,
        linewidth=0,
        label=f"{coverage:.0%} interval",
    )
    axes.plot(places, predictions[order], color=_ACCENT, label="prediction")
    if y is not None:
        y = np.asarray(y)
        inside = ((low <= y) & (y <= high)).mean()
        label = f"target, {inside:.0%} inside"
        axes.plot(places, y[order], ".", color="black", markersize=3, label=label)
    axes.set(xlabel="rows, by prediction", ylabel="target")
    legible_ticks(axes)
    axes.legend(frameon=False)
    return axes


def plot_learning_curve(
    model: Any, X: Any, y: Any, *, cv: Any = None, scoring: Any = None, ax: Any = None
) -> Axes:
    """Plot the score against the number of training rows, by cross-validation.

    By :class:`sklearn.model_selection.LearningCurveDisplay`; the model is cloned and
    fitted to every number of rows and fold.

    Parameters
    ----------
    model : estimator
    X : array or dataframe of shape (n, d)
    y : array of shape (n,)
    cv : int or splitter, optional
        5 folds by default.
    scoring : str or callable, optional
        The score of the model by default.
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
    >>> _ = rk.plots.plot_learning_curve(model, X, y, cv=3)
    """
    from sklearn.model_selection import LearningCurveDisplay

    axes = _axes(ax)
    display = LearningCurveDisplay.from_estimator(
        model,
        X,
        y,
        cv=cv,
        scoring=scoring,
        score_type="test",
        shuffle=True,
        random_state=0,
        ax=axes,
    )
    own = "accuracy" if is_classifier(model) else "R²"
    name = own if scoring is None else scoring
    display.ax_.set_ylabel(
        f"{name if isinstance(name, str) else 'score'} of rows left out"
    )
    display.ax_.get_legend().remove()  # there is one curve
    legible_ticks(display.ax_)
    return display.ax_


def plot_spectrum(kernel: Any, X: Any, *, n_values: int = 100, ax: Any = None) -> Axes:
    """Plot the largest eigenvalues of a kernel on rows, on logarithmic axes.

    They are those of the exact Gram matrix K/n, in descending order: the faster they
    fall, the fewer features or landmarks a model needs.

    Parameters
    ----------
    kernel : Kernel
        Rules for lengthscales are resolved on `X`.
    X : array of shape (n, d)
        An n × n matrix is decomposed: pass some thousands of rows at most.
    n_values : int, default=100
        Largest number of eigenvalues.
    ax : matplotlib.axes.Axes, optional
        A new figure's by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> import randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> axes = rk.plots.plot_spectrum(rk.Gaussian("scale"), X)
    >>> rk.plots.plot_spectrum(rk.Laplacian("scale"), X, ax=axes) is axes
    True
    """
    axes = _axes(ax)
    gram = np.asarray(kernel.resolve(X)(X), dtype=np.float64)
    n = len(gram)
    first = max(n - n_values, 0)
    values = eigvalsh(gram / n, subset_by_index=(first, n - 1))[::-1]
    # Rounding errors replace eigenvalues that are smaller.
    values = values[values > n * np.finfo(float).eps * values[0]]
    axes.loglog(np.arange(1, len(values) + 1), values, label=type(kernel).__name__)
    axes.set(xlabel="number", ylabel="eigenvalue of K/n")
    return axes


def plot_posterior(
    process: Any, X: Any, y: Any = None, *, n_deviations: float = 2.0, ax: Any = None
) -> Axes:
    """Plot the posterior mean and deviations of a process of one column.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Fitted to one column and one target.
    X : array of shape (n, 1) or (n,)
        Rows; the curve extends from the least to the largest.
    y : array of shape (n,), optional
        Their targets, drawn as points.
    n_deviations : float, default=2.0
        Half the width of the band, in standard deviations.
    ax : matplotlib.axes.Axes, optional
        A new figure's by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If `X` has several columns.

    Examples
    --------
    >>> import numpy as np
    >>> import randkern as rk
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> process = rk.GaussianProcessRegressor(n_components=100, random_state=0)
    >>> _ = rk.plots.plot_posterior(process.fit(X, np.sin(X[:, 0])), X)
    """
    rows = np.asarray(X, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != 1:
        raise ValueError(
            f"plot_posterior needs X of shape (n, 1), got {rows.shape}; for more "
            "columns use sklearn.inspection.PartialDependenceDisplay."
        )
    axes = _axes(ax)
    grid = np.linspace(rows.min(), rows.max(), _GRID_POINTS)
    mean, deviation = process.predict(grid[:, None], return_std=True)
    band = n_deviations * deviation
    axes.fill_between(
        grid,
        mean - band,
        mean + band,
        color=_PALE,
        linewidth=0,
        label=f"±{n_deviations:g} standard deviations",
    )
    axes.plot(grid, mean, color=_ACCENT, label="posterior mean")
    if y is not None:
        style = {"color": "black", "markersize": 3, "label": "target"}
        axes.plot(rows[:, 0], np.asarray(y), ".", **style)
    legible_ticks(axes)
    axes.legend(frameon=False)
    return axes


def _axes(ax: Any) -> Any:
    """Return the axes that were passed, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_extra("matplotlib.pyplot", "A figure", "plot")
    return pyplot.subplots(layout="constrained")[1]


def _bars(axes: Any, names: list[str], values: np.ndarray, label: str) -> Any:
    """Draw horizontal bars, the first on top."""
    places = np.arange(len(names))
    axes.barh(places, values, color=_ACCENT)
    # "$" would start a formula.
    axes.set_yticks(places, [name.replace("$", r"\$") for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
