"""Figures of a model: importances, effects of columns, errors by training rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.inspection import partial_dependence

from randkern._tables import is_numeric
from randkern.reporting.canvas import (
    ACCENT,
    COLOURS,
    PALE,
    Drawing,
    as_svg,
    new_axes,
    new_panels,
    plain,
)

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
# A change of the error by less than this share is little.
_LITTLE = 0.05


def importances(names: Sequence[str], shares: np.ndarray) -> Drawing:
    """Draw the share of each column in the predictions."""
    order = np.argsort(-shares, kind="stable")[:_MAX_COLUMNS][::-1]
    # One is always drawn.
    order = order[(shares[order] >= _SMALLEST_BAR) | (shares[order] == shares.max())]
    figure, axes = new_axes(0.9 + 0.28 * len(order))
    axes.barh([plain(names[j]) for j in order], 100 * shares[order], color=ACCENT)
    axes.set(xlabel="share in the variance of predictions (%)")
    most = shares[order[-1]]
    share = "almost all" if most > _ALMOST_ALL else f"{most:.0%}"
    caption = f"{names[order[-1]]} explains {share} of the variation of predictions."
    if n_others := len(shares) - len(order):
        caption += f" Not shown: {n_others}, with smaller shares."
    return as_svg(figure), caption


def learning_curve(
    sizes: Sequence[int],
    scores: Sequence[float],
    unit: str,
    n_rows: int,
    standard_error: float | None,
) -> Drawing:
    """Draw a score against the number of training rows, for the best kernel.

    The standard error, from the number of test rows, is a band around it, if it is
    known, and the score an error.
    """
    figure, axes = new_axes(2.7)
    axes.plot(sizes, scores, "o-", color=ACCENT)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="training rows", ylabel=unit)
    if standard_error is None:
        return as_svg(figure), (
            f"The {unit} of held-out rows is {scores[-2]:.4g} with {sizes[-2]:,} "
            f"training rows, and {scores[-1]:.4g} with {sizes[-1]:,} of {n_rows:,}."
        )
    low = np.subtract(scores, standard_error)
    high = np.add(scores, standard_error)
    axes.fill_between(sizes, low, high, color=PALE, alpha=0.5, linewidth=0)
    axes.set(ylim=(0, 1.1 * max(high) or 1.0))
    caption = gain_of_rows(sizes, scores, n_rows, standard_error)
    return as_svg(figure), f"{caption} The band is ± one standard error."


def gain_of_rows(
    sizes: Sequence[int], errors: Sequence[float], n_rows: int, standard_error: float
) -> str:
    """Say what the last doubling of the rows brought, and what more rows would.

    The latter only if the curve reaches all `n_rows`, and its last sizes agree. Of
    changes below the standard error nothing is said.
    """
    if abs(errors[-2] - errors[-1]) < standard_error:
        return (
            f"From {sizes[-2]:,} to {sizes[-1]:,} of {n_rows:,} training rows the "
            "error changed by less than its standard error."
        )
    gains = [
        1 - after / before if before else 0.0 for before, after in pairwise(errors)
    ]
    caption = "The last doubling of the rows took nothing off the error"
    if gains[-1] > 0:
        caption = f"The last doubling of the rows took {gains[-1]:.0%} off the error"
    if sizes[-1] < n_rows:
        caption += f"; the curve ends at {sizes[-1]:,} of {n_rows:,} training rows"
    elif len(gains) > 1 and min(gains[-2:]) > _LITTLE:
        caption += ": more rows would help"
    elif len(gains) > 1 and max(map(abs, gains[-2:])) <= _LITTLE:
        caption += ", and the one before hardly more: more rows would help little"
    return f"{caption}."


def effects(model: Any, X: Any, shares: np.ndarray, target: str) -> Drawing | None:
    """Draw the partial dependence of predictions on the columns that matter.

    None if there are none but texts.
    """
    texts = [] if model.model_.texts is None else model.model_.texts.columns
    order = [
        j
        for j in np.argsort(-shares, kind="stable")
        if shares[j] >= _MIN_SHARE and X.columns[j] not in texts
    ][:_MAX_EFFECTS]
    if not order:
        return None
    figure, panels = new_panels(2.1 * ((len(order) + 1) // 2), len(order))
    for axes, j in zip(panels, order, strict=True):
        _draw_effect(axes, model, X, int(j))
    label = plain(target)
    if is_classifier(model):
        label = "mean probability"
        if len(model.classes_) == 2:
            label = f"mean probability of {plain(model.classes_[1])}"
        elif panels[0].lines:
            panels[0].legend(frameon=False, fontsize="small")
    figure.supylabel(label, fontsize="medium")
    which = "the column that matters"
    if len(order) > 1:
        which = f"the {len(order)} columns that matter most"
    caption = (
        f"The mean prediction if a column had the same value in all rows: {which}."
    )
    return as_svg(figure), caption


def _draw_effect(axes: Any, model: Any, X: Any, j: int) -> None:
    """Draw the partial dependence on a column, a line or points for categories."""
    name = X.columns[j]
    classes = is_classifier(model)
    axes.set_xlabel(plain(name))
    is_category = not is_numeric(X[name])
    # Missing values have no place on an axis. Integers are rejected (values between
    # them would be rounded), so numbers are cast to float.
    rows = X[X[name].notna()].astype({name: object if is_category else float})
    if rows.empty:
        return
    grid = None
    if not is_category:
        # scikit-learn refuses quantiles that differ by less than 1e-5 of their size,
        # as those of times in milliseconds do.
        grid = {j: np.unique(np.quantile(rows[name], np.linspace(0.05, 0.95, _GRID)))}
    dependence = partial_dependence(
        model,
        rows,
        [j],
        categorical_features=[j] if is_category else None,
        custom_values=grid,
        response_method="predict_proba" if classes else "auto",
    )
    values = np.asarray(dependence["grid_values"][0])
    averages = dependence["average"]  # of the second class, if there are two
    labels = [plain(label) for label in model.classes_] if classes else [""]
    lines = list(zip(averages, labels[-len(averages) :], COLOURS, strict=False))
    if not is_category:
        for line, label, colour in lines:
            axes.plot(values.astype(float), line, color=colour, label=label)
        return
    frequent = rows[name].value_counts().index[:_MAX_CATEGORIES]
    shown = np.flatnonzero(np.isin(values, list(frequent)))
    places = np.arange(len(shown))
    for line, label, colour in lines:
        axes.plot(places, line[shown], "o", color=colour, label=label)
    names = [_shortened(str(value)) for value in values[shown]]
    axes.set_xticks(places, names, rotation=45, ha="right", fontsize="small")


def _shortened(text: str) -> str:
    """Return the first letters of a text, with an ellipsis if there are more."""
    shown = text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"
    return plain(shown)
