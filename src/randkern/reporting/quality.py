"""Figures of predictions for held-out rows beside their targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    auc,
    average_precision_score,
    confusion_matrix,
    precision_recall_curve,
    roc_curve,
)

from randkern.reporting.canvas import (
    ACCENT,
    COLOURS,
    INK,
    MAX_CLASSES,
    PALE,
    Drawing,
    as_svg,
    new_axes,
    plain,
    shown_rows,
)
from randkern.reporting.scores import COVERAGE, Evaluation, measured_text, share_text

# Held-out rows are divided by their predictions into as many groups of equal size, of
# so many rows at least.
_MAX_GROUPS = 10
_MIN_GROUP = 20


def agreement(evaluation: Evaluation, y: np.ndarray, target: str) -> Drawing:
    """Draw the held-out targets of a regression against their predictions."""
    from matplotlib.patches import Rectangle

    few = shown_rows(len(y))
    predictions = evaluation.predictions[few]
    figure, axes = new_axes(3.2)
    if evaluation.intervals is not None:
        sizes = abs(evaluation.intervals[few].T - predictions)
        axes.errorbar(
            predictions,
            predictions,
            np.where(np.isfinite(sizes), sizes, 0),
            fmt="none",
            ecolor=PALE,
            elinewidth=0.6,
        )
        axes.add_patch(Rectangle((0, 0), 0, 0, color=PALE, label="90% interval"))
    axes.plot(predictions, y[few], ".", color=ACCENT, markersize=3, label="rows")
    axes.axline((predictions.mean(),) * 2, slope=1, color=INK, linewidth=0.8)
    predicted = f"predicted {plain(target)}"
    axes.set(xlabel=predicted, ylabel=f"{plain(target)} of rows held out")
    figure.legend(frameon=False, loc="outside upper left", ncols=2)
    r2 = share_text(evaluation.scores["r2"])
    return as_svg(figure), f"R² = {r2} on rows that the model has not seen."


def residuals(evaluation: Evaluation, y: np.ndarray, target: str) -> Drawing:
    """Draw the residuals of held-out rows against their predictions."""
    few = shown_rows(len(y))
    errors = y - evaluation.predictions
    figure, axes = new_axes(2.7)
    predictions = evaluation.predictions[few]
    axes.plot(predictions, errors[few], ".", color=ACCENT, markersize=3)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=f"predicted {plain(target)}", ylabel="residual")
    half = float(np.quantile(abs(errors), 0.5))
    size = measured_text(half, half / 10)
    return as_svg(figure), f"Half of the residuals are within ±{size}."


def interval_coverage(
    evaluation: Evaluation, y: np.ndarray, target: str
) -> Drawing | None:
    """Draw which share of targets is in its interval, by the size of the prediction.

    In groups of equal size; bars are one standard error. None if there are no
    intervals, or too few rows for two groups.
    """
    n_groups = min(_MAX_GROUPS, len(y) // _MIN_GROUP)
    if evaluation.intervals is None or n_groups < 2:
        return None
    low, high = evaluation.intervals.T
    inside = (low <= y) & (y <= high)
    groups = np.array_split(np.argsort(evaluation.predictions), n_groups)
    shares = np.array([inside[rows].mean() for rows in groups])
    means = [evaluation.predictions[rows].mean() for rows in groups]
    sizes = np.array([len(rows) for rows in groups])
    figure, axes = new_axes(2.7)
    axes.axhline(100 * COVERAGE, color=INK, linewidth=0.8)
    errors = np.sqrt(shares * (1 - shares) / sizes)
    axes.errorbar(means, 100 * shares, 100 * errors, fmt="o", color=ACCENT)
    axes.set(
        xlabel=f"predicted {plain(target)}",
        ylabel=f"inside {COVERAGE:.0%} interval (%)",
    )
    axes.set_ylim(min(50, 100 * shares.min() - 5), 102)
    caption = (
        f"In {n_groups} groups of rows by their prediction, {shares.min():.0%} to "
        f"{shares.max():.0%} of the targets are inside."
    )
    return as_svg(figure), caption


def calibration(model: Any, evaluation: Evaluation, y: np.ndarray) -> Drawing:
    """Draw the share of rows of a class against its predicted probability."""
    figure, axes = new_axes(2.9)
    P: Any = evaluation.probabilities
    # For two classes one curve suffices; for more, classes are pooled.
    binary = len(model.classes_) == 2
    chosen = P[:, 1] if binary else P.ravel()
    labels = model.classes_[1:] if binary else model.classes_
    truth = (np.asarray(y)[:, None] == labels).ravel()
    shares, means = calibration_curve(
        truth, np.clip(chosen, 0, 1), n_bins=10, strategy="quantile"
    )
    n_bins = len(shares)  # of about equal numbers of rows
    deviations = np.sqrt(means * (1 - means) * n_bins / len(truth))
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8)
    axes.errorbar(means, shares, deviations, fmt="o-", color=ACCENT, ecolor=PALE)
    axes.set(xlabel="predicted probability", ylabel="share of rows")
    error = abs(shares - means).max()
    caption = (
        f"Probabilities and shares differ by at most {100 * error:.0f} percentage "
        f"points in {n_bins} bins; bars are what chance adds to exact probabilities (± "
        "one standard deviation)."
    )
    return as_svg(figure), caption


def roc(model: Any, evaluation: Evaluation, y: np.ndarray) -> Drawing | None:
    """Draw ROC curves, of the second of two classes, or of each against the others."""
    figure, axes = new_axes(2.9)
    areas = []
    for label, truth, scores, colour in _one_against_others(model, evaluation, y):
        false, true, _ = roc_curve(truth, scores)
        areas.append(auc(false, true))
        name = f"{label} (AUC {share_text(areas[-1])})"
        axes.plot(false, true, color=colour, label=name)
    if not areas:
        return None
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8)
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.legend(frameon=False)
    caption = "One curve per class, against all others."
    if len(areas) == 1:
        caption = f"The area under the curve is {share_text(areas[0])}."
    return as_svg(figure), caption


def precision_and_recall(
    model: Any, evaluation: Evaluation, y: np.ndarray
) -> Drawing | None:
    """Draw precision against recall, for the classes of :func:`roc`."""
    figure, axes = new_axes(2.9)
    rates, averages = [], []
    for label, truth, scores, colour in _one_against_others(model, evaluation, y):
        precision, recall, _ = precision_recall_curve(
            truth, scores, drop_intermediate=True
        )
        averages.append(average_precision_score(truth, scores))
        rates.append(truth.mean())
        name = f"{label} (AP {share_text(averages[-1])})"
        axes.step(recall, precision, where="post", color=colour, label=name)
    if not rates:
        return None
    axes.set(xlabel="recall", ylabel="precision", ylim=(0, 1.03))
    axes.legend(frameon=False, loc="lower left")
    caption = "One curve per class, against all others; AP is the average precision."
    if len(rates) == 1:
        axes.axhline(rates[0], color=INK, linewidth=0.8)
        caption = (
            f"The average precision (AP) is {share_text(averages[0])}; the line is "
            f"the share of the class, {rates[0]:.1%}."
        )
    return as_svg(figure), caption


def _one_against_others(
    model: Any, evaluation: Evaluation, y: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray, str]]:
    """Yield classes, which rows have them, their probabilities, and a colour.

    The second of two classes, else the largest; those without rows, or with all of
    them, have no curves.
    """
    P: Any = evaluation.probabilities
    labels = np.asarray(model.classes_)
    counts = np.array([(y == label).sum() for label in labels])
    chosen = np.argsort(-counts, kind="stable")[:MAX_CLASSES]
    if len(labels) == 2:
        chosen = np.array([1])
    chosen = chosen[(0 < counts[chosen]) & (counts[chosen] < len(y))]
    for colour, k in zip(COLOURS, chosen, strict=False):
        yield plain(labels[k]), y == labels[k], P[:, k], colour


def confusion(evaluation: Evaluation, y: np.ndarray) -> Drawing:
    """Draw as which classes the rows of each class are predicted, and how many."""
    labels, counts = np.unique(y, return_counts=True)
    labels = labels[np.argsort(-counts)][: 2 * MAX_CLASSES]
    counts = confusion_matrix(y, evaluation.predictions, labels=labels)
    n_true = np.array([(y == label).sum() for label in labels])
    shares = counts / n_true[:, None]
    from matplotlib.colors import to_rgba

    n = len(labels)
    figure, axes = new_axes(1.6 + (0.6 if n <= 4 else 0.36) * n)
    axes.imshow(
        [[to_rgba(ACCENT, share) for share in row] for row in shares], aspect="auto"
    )
    for (i, j), share in np.ndenumerate(shares):
        axes.text(
            j,
            i,
            f"{counts[i, j]:,}\n{share:.0%}" if n <= 4 else f"{counts[i, j]:,}",
            ha="center",
            va="center",
            color="white" if share > 0.8 else INK,
        )
    places = range(n)
    names = [plain(label) for label in labels]
    axes.set_xticks(places, names, rotation=45 if n > 4 else 0)
    axes.set_yticks(places, names)
    axes.set(xlabel="predicted", ylabel="true")
    worst = np.argmin(shares.diagonal())
    caption = (
        f"Numbers of rows. Class {labels[worst]} is recognised least often: "
        f"{shares[worst, worst]:.0%} of its {n_true[worst]:,} rows."
    )
    return as_svg(figure), caption
