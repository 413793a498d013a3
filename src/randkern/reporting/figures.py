"""Figures of a report: each draws on an empty figure and returns its caption.

Those that displays of scikit-learn draw are drawn by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.inspection import PartialDependenceDisplay
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
    confusion_matrix,
)

from randkern._tables import is_numeric
from randkern.plots.drawing import ACCENT, INK, PALE, plain
from randkern.plots.models import plot_importances
from randkern.reporting.scores import (
    COVERAGE,
    EvaluatedModel,
    measured_text,
    share_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_POINTS = 1500
# Classes with a curve, each in a colour of its own, at most; classes of the matrix.
_MAX_CLASSES = 6
_MAX_CONFUSED = 12
_COLOURS = [f"C{k}" for k in range(_MAX_CLASSES)]
# Held-out rows are divided by their predictions into as many groups of equal size, of
# so many rows at least.
_MAX_GROUPS = 10
_MIN_GROUP = 20
# Columns of the chart of importances, and the smallest share that is a visible bar.
_MAX_COLUMNS = 15
_SMALLEST_BAR = 0.002
_ALMOST_ALL = 0.99
# Partial dependence is drawn of at most so many columns, if they have this share in
# the variance of predictions, at so many of their values.
_MAX_EFFECTS = 4
_MIN_SHARE = 0.01
_GRID = 20
#: Predictions of each row for partial dependence.
POINTS_OF_EFFECTS = _MAX_EFFECTS * _GRID
# Of a column of categories, the most frequent, by names of so many letters.
_MAX_CATEGORIES = 8
_MAX_LETTERS = 16
# Names of so many letters fit side by side below an axis, and three into a legend.
_FEW_LETTERS = 10
_LINE = {"color": INK, "linewidth": 0.8, "linestyle": "-"}
_POINTS = {"color": ACCENT, "s": 4, "alpha": 1, "linewidths": 0}


def agreement(figure: Figure, evaluated: EvaluatedModel, target: str) -> str:
    """Draw the held-out targets of a regression against their predictions."""
    axes = _predictions(figure, evaluated, "actual_vs_predicted")
    few = _shown_rows(len(evaluated.test[1]))
    intervals = evaluated.evaluation.intervals
    if intervals is not None:
        predictions = evaluated.evaluation.predictions[few]
        sizes = abs(intervals[few].T - predictions)
        axes.errorbar(
            predictions,
            predictions,
            np.where(np.isfinite(sizes), sizes, 0),
            fmt="none",
            ecolor=PALE,
            elinewidth=0.6,
            zorder=0,
            label=f"{COVERAGE:.0%} interval",
        )
        axes.legend(loc="upper left")
    axes.set_aspect("auto")
    axes.set_xlabel(f"predicted {plain(target)}")
    axes.set_ylabel(f"{plain(target)} of rows held out")
    r2 = share_text(evaluated.evaluation.scores["r2"])
    return f"R² = {r2} on rows that the model has not seen."


def residuals(figure: Figure, evaluated: EvaluatedModel, target: str) -> str:
    """Draw the residuals of held-out rows against their predictions."""
    axes = _predictions(figure, evaluated, "residual_vs_predicted")
    axes.set(xlabel=f"predicted {plain(target)}", ylabel="residual")
    errors = evaluated.test[1] - evaluated.evaluation.predictions
    half = float(np.quantile(abs(errors), 0.5))
    return f"Half of the residuals are within ±{measured_text(half, half / 10)}."


def _predictions(figure: Figure, evaluated: EvaluatedModel, kind: str) -> Any:
    """Draw some held-out rows by their predictions; return the axes."""
    few = _shown_rows(len(evaluated.test[1]))
    display = PredictionErrorDisplay(
        y_true=evaluated.test[1][few], y_pred=evaluated.evaluation.predictions[few]
    )
    axes = figure.subplots()
    display.plot(axes, kind=kind, scatter_kwargs=_POINTS, line_kwargs=_LINE)
    return axes


def _shown_rows(n: int) -> np.ndarray:
    """Return the rows of n that are drawn as points."""
    return np.linspace(0, n - 1, min(n, _MAX_POINTS)).astype(int)


def interval_coverage(
    figure: Figure, evaluated: EvaluatedModel, target: str
) -> str | None:
    """Draw which share of targets is in its interval, by the size of the prediction.

    In groups of equal size; bars are one standard error. None if there are no
    intervals, or too few rows for two groups.
    """
    evaluation, y = evaluated.evaluation, evaluated.test[1]
    n_groups = min(_MAX_GROUPS, len(y) // _MIN_GROUP)
    if evaluation.intervals is None or n_groups < 2:
        return None
    low, high = evaluation.intervals.T
    inside = (low <= y) & (y <= high)
    groups = np.array_split(np.argsort(evaluation.predictions), n_groups)
    shares = np.array([inside[rows].mean() for rows in groups])
    means = [evaluation.predictions[rows].mean() for rows in groups]
    sizes = np.array([len(rows) for rows in groups])
    axes = figure.subplots()
    axes.axhline(COVERAGE, **_LINE)
    errors = np.sqrt(shares * (1 - shares) / sizes)
    axes.errorbar(means, shares, errors, fmt="o", color=ACCENT)
    axes.set_xlabel(f"predicted {plain(target)}")
    axes.set_ylabel(f"inside {COVERAGE:.0%} interval")
    axes.set_ylim(min(0.5, shares.min() - 0.05), 1.02)
    axes.yaxis.set_major_formatter("{x:.0%}")
    return (
        f"In {n_groups} groups of rows by their prediction, {shares.min():.0%} to "
        f"{shares.max():.0%} of the targets are inside."
    )


def roc(figure: Figure, evaluated: EvaluatedModel, target: str) -> str | None:
    """Draw ROC curves, of the second of two classes, or of each against the others."""
    axes = figure.subplots()
    areas = []
    for truth, scores, style in _one_against_others(evaluated):
        display = RocCurveDisplay.from_predictions(truth, scores, ax=axes, **style)
        areas.append(display.roc_auc)
    if not areas:
        return None
    axes.plot([0, 1], [0, 1], **_LINE)
    axes.set(xlabel="false positive rate", ylabel="true positive rate", aspect="auto")
    if len(areas) == 1:
        return f"The area under the curve (AUC) is {share_text(areas[0])}."
    return "One curve per class, against all others."


def precision_and_recall(
    figure: Figure, evaluated: EvaluatedModel, target: str
) -> str | None:
    """Draw precision against recall, for the classes of :func:`roc`."""
    axes = figure.subplots()
    rates, averages = [], []
    for truth, scores, style in _one_against_others(evaluated):
        display = PrecisionRecallDisplay.from_predictions(
            truth, scores, ax=axes, drop_intermediate=True, **style
        )
        averages.append(display.average_precision)
        rates.append(truth.mean())
    if not rates:
        return None
    axes.set(xlabel="recall", ylabel="precision", ylim=(0, 1.03), aspect="auto")
    if len(rates) > 1:
        return "One curve per class, against all others; AP is the average precision."
    axes.axhline(rates[0], **_LINE)
    return (
        f"The average precision (AP) is {share_text(averages[0])}; the line is the "
        f"share of the class, {rates[0]:.1%}."
    )


def _one_against_others(
    evaluated: EvaluatedModel,
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Yield which rows have a class, its probabilities, its name and its colour.

    The second of two classes, else the largest; those without rows, or with all of
    them, have no curves.
    """
    P: Any = evaluated.evaluation.probabilities
    y = evaluated.test[1]
    labels = np.asarray(evaluated.model.classes_)
    counts = np.array([(y == label).sum() for label in labels])
    chosen = np.argsort(-counts, kind="stable")[:_MAX_CLASSES]
    if len(labels) == 2:
        chosen = np.array([1])
    chosen = chosen[(0 < counts[chosen]) & (counts[chosen] < len(y))]
    for colour, k in zip(_COLOURS, chosen, strict=False):
        style = {"name": plain(labels[k]), "curve_kwargs": {"color": colour}}
        yield y == labels[k], P[:, k], style


def calibration(figure: Figure, evaluated: EvaluatedModel, target: str) -> str:
    """Draw the share of rows of a class against its predicted probability."""
    P: Any = evaluated.evaluation.probabilities
    classes = evaluated.model.classes_
    # For two classes one curve suffices; for more, classes are pooled.
    binary = len(classes) == 2
    chosen = P[:, 1] if binary else P.ravel()
    labels = classes[1:] if binary else classes
    truth = (np.asarray(evaluated.test[1])[:, None] == labels).ravel()
    axes = figure.subplots()
    display = CalibrationDisplay.from_predictions(
        truth,
        np.clip(chosen, 0, 1),
        n_bins=10,
        strategy="quantile",
        ax=axes,
        color=ACCENT,
        marker="o",
    )
    shares, means = display.prob_true, display.prob_pred
    n_bins = len(shares)  # of about equal numbers of rows
    deviations = np.sqrt(means * (1 - means) * n_bins / len(truth))
    axes.errorbar(means, shares, deviations, fmt="none", ecolor=PALE, zorder=1)
    axes.set(xlabel="mean predicted probability", ylabel="share of rows")
    axes.get_legend().remove()
    error = abs(shares - means).max()
    return (
        f"Probabilities and shares differ by at most {100 * error:.0f} percentage "
        f"points in {n_bins} bins; bars are what chance adds to exact probabilities (± "
        "one standard deviation)."
    )


def confusion(figure: Figure, evaluated: EvaluatedModel, target: str) -> str:
    """Draw as which classes the rows of each class are predicted, and how many."""
    from matplotlib.colors import LinearSegmentedColormap

    y = evaluated.test[1]
    labels, counts = np.unique(y, return_counts=True)
    labels = labels[np.argsort(-counts)][:_MAX_CONFUSED]
    counts = confusion_matrix(y, evaluated.evaluation.predictions, labels=labels)
    n_true = np.array([(y == label).sum() for label in labels])
    shares = counts / n_true[:, None]
    n = len(labels)
    figure.set_figheight(1.6 + (0.6 if n <= 4 else 0.36) * n)
    # Transparent, so that texts are legible in the page's colours, light or dark.
    colours = LinearSegmentedColormap.from_list("", [(ACCENT, 0.0), (ACCENT, 0.5)])
    names = [_shortened(str(label)) for label in labels]
    is_level = n <= 4 and max(map(len, names)) <= _FEW_LETTERS
    display = ConfusionMatrixDisplay(shares, display_labels=names)
    display.plot(
        cmap=colours,
        values_format=".0%",
        xticks_rotation=0 if is_level else 45,
        ax=figure.subplots(),
        colorbar=False,
        im_kw={"aspect": "auto", "vmin": 0, "vmax": 1},
        text_kw={"color": INK},
    )
    for text, count in zip(display.text_.flat, counts.flat, strict=True):
        share = f"\n{text.get_text()}" if n <= 4 else ""
        text.set_text(f"{count:,}{share}")
    display.ax_.set(xlabel="predicted", ylabel="true")
    worst = np.argmin(shares.diagonal())
    if shares[worst, worst] == 1:
        return "Numbers of rows, all of which are classified correctly."
    return (
        f"Numbers of rows. Class {labels[worst]} is recognised least often: "
        f"{shares[worst, worst]:.0%} of its {n_true[worst]:,} rows."
    )


def importances(figure: Figure, evaluated: EvaluatedModel, target: str) -> str:
    """Draw the share of each column in the predictions."""
    shares = evaluated.model.feature_importances_
    n_shown = int(np.clip((shares >= _SMALLEST_BAR).sum(), 1, _MAX_COLUMNS))
    figure.set_figheight(0.9 + 0.28 * n_shown)
    axes = figure.subplots()
    plot_importances(evaluated.model, n_columns=n_shown, ax=axes)
    axes.set_xlabel("share in the variance of predictions")
    first = evaluated.train[0].columns[np.argmax(shares)]
    most = shares.max()
    share = "almost all" if most > _ALMOST_ALL else f"{most:.0%}"
    caption = f"{first} explains {share} of the variation of predictions."
    if n_others := len(shares) - n_shown:
        caption += f" Not shown: {n_others}, with smaller shares."
    return caption


def effects(figure: Figure, evaluated: EvaluatedModel, target: str) -> str | None:
    """Draw the partial dependence of predictions on the columns that matter.

    None if there are none but texts.
    """
    from matplotlib.lines import Line2D

    model, X = evaluated.model, evaluated.few_rows
    shares = model.feature_importances_
    texts = [] if model.model_.texts is None else model.model_.texts.columns
    order = [
        int(j)
        for j in np.argsort(-shares, kind="stable")
        if shares[j] >= _MIN_SHARE and X.columns[j] not in texts
    ][:_MAX_EFFECTS]
    if not order:
        return None
    # Integers are rejected, as values between them would be rounded.
    kinds = {name: float if is_numeric(X[name]) else object for name in X.columns}
    labels = [""]
    if is_classifier(model):
        labels = [_shortened(str(label)) for label in model.classes_]
    # One curve suffices for two classes.
    shown = labels[-1:] if len(labels) < 3 else labels[:_MAX_CLASSES]
    categories = [j for j in order if kinds[X.columns[j]] is object]
    figure.set_figheight(2.4 * ((len(order) + 1) // 2))
    display = PartialDependenceDisplay.from_estimator(
        model,
        X.astype(kinds),
        order,
        feature_names=[plain(name) for name in X.columns],
        categorical_features=categories or None,
        custom_values={j: _grid(X.iloc[:, j]) for j in order},
        grid_resolution=len(X) + 1,
        response_method="predict_proba" if is_classifier(model) else "auto",
        target=model.classes_[0] if len(shown) > 1 else None,
        n_cols=2,
        ax=figure.subplots(),
    )
    panels = [axes for axes in display.axes_.flat if axes is not None]
    if len(shown) > 1:
        for bar in chain.from_iterable(axes.patches for axes in panels):
            bar.set(fill=False, edgecolor=_COLOURS[0])  # else it hides other classes'
    for k, colour in enumerate(_COLOURS[1 : len(shown)], 1):
        display.target_idx = k
        outline = {"fill": False, "edgecolor": colour}
        display.plot(ax=panels, line_kw={"color": colour}, bar_kw=outline)
    values = [result["average"][: len(shown)] for result in display.pd_results]
    low, high = min(map(np.min, values)), max(map(np.max, values))
    margin = 0.05 * (high - low) or 1.0
    for axes, j in zip(panels, order, strict=True):
        axes.set(ylabel="", ylim=(low - margin, high + margin))
        if j in categories:
            names = [_shortened(text.get_text()) for text in axes.get_xticklabels()]
            axes.set_xticks(axes.get_xticks(), names, rotation=45, ha="right")
    label = plain(target)
    if is_classifier(model):
        label = f"mean probability of {labels[-1]}"
    if len(shown) > 1:
        label = "mean probability"
        lines = [Line2D([], [], color=colour) for colour in _COLOURS[: len(shown)]]
        ncols = 3 if max(map(len, shown)) <= _FEW_LETTERS else 2
        figure.legend(lines, shown, loc="outside upper center", ncols=ncols)
    figure.supylabel(label, fontsize="medium")
    which = "the column that matters"
    if len(order) > 1:
        which = f"the {len(order)} columns that matter most"
    return f"The mean prediction if a column had the same value in all rows: {which}."


def _grid(values: Any) -> np.ndarray:
    """Return quantiles of a column, or its most frequent categories.

    scikit-learn refuses quantiles that differ by less than 1e-5 of their size, as those
    of times in milliseconds do.
    """
    if is_numeric(values):
        quantiles = values.astype(float).quantile(np.linspace(0.05, 0.95, _GRID))
        return np.unique(quantiles)
    frequent = values.value_counts().index[:_MAX_CATEGORIES]
    return np.array(sorted(frequent, key=str), dtype=object)


def _shortened(text: str) -> str:
    """Return the first and the last letters of a long text: others may begin alike."""
    if len(text) > _MAX_LETTERS:
        half = _MAX_LETTERS // 2
        text = f"{text[:half]}…{text[1 - half :]}"
    return plain(text)
