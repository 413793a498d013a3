"""The SVG figures of a report."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.calibration import calibration_curve
from sklearn.inspection import partial_dependence

from randkern._extras import import_extra
from randkern._tables import is_numeric
from randkern.reporting.scores import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_INK, _ACCENT, _PALE = "#000000", "#0b6e99", "#9ec9dd"
# The page's names of these colours, which differ in dark mode.
_OF_PAGE = {_INK: "var(--ink)", _ACCENT: "var(--link)", _PALE: "var(--pale)"}
_MAX_COLUMNS = 15
_MAX_POINTS = 2000
_MAX_CLASSES = 6

#: A figure as SVG, and a sentence that describes it.
Drawing = tuple[str, str]


def importances(names: Sequence[str], shares: np.ndarray) -> Drawing:
    """Draw the share of each column in the predictions."""
    order = np.argsort(-shares, kind="stable")[:_MAX_COLUMNS][::-1]
    figure, axes = _figure(0.9 + 0.28 * len(order))
    axes.barh([_plain(names[j]) for j in order], 100 * shares[order], color=_ACCENT)
    axes.set(xlabel="share in the variance of predictions (%)")
    best = f"{names[order[-1]]} counts most, with {shares[order[-1]]:.0%}."
    return _svg(figure), best


def learning_curve(
    sizes: Sequence[int], errors: Sequence[float], unit: str, n_rows: int
) -> Drawing:
    """Draw the error against the number of training rows, for the best kernel.

    What more rows would bring follows only if the curve reaches all `n_rows`.
    """
    figure, axes = _figure(2.7)
    axes.plot(sizes, errors, "o-", color=_ACCENT)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="training rows", ylabel=unit, ylim=(0, 1.1 * max(errors) or 1.0))
    gain = 1 - errors[-1] / errors[-2] if errors[-2] else 0.0
    said = "The last doubling of the rows took nothing off the error"
    if gain > 0:
        said = f"The last doubling of the rows took {gain:.0%} off the error"
    if sizes[-1] < n_rows:
        said += f"; the curve ends at {sizes[-1]:,} of {n_rows:,} training rows."
    elif gain > 0:
        said += f": more rows would {'help' if gain > 0.05 else 'help little'}."
    return _svg(figure), said.removesuffix(".") + "."


def agreement(evaluation: Evaluation, y: np.ndarray, target: str) -> Drawing:
    """Draw the held-out targets of a regression against their predictions."""
    few = _few(len(y))
    predictions = evaluation.predictions[few]
    figure, axes = _figure(3.2)
    if evaluation.intervals is not None:
        sizes = abs(evaluation.intervals[few].T - predictions)
        axes.errorbar(
            predictions,
            predictions,
            np.where(np.isfinite(sizes), sizes, 0),
            fmt="none",
            ecolor=_PALE,
            elinewidth=0.6,
            label="90 % interval",
        )
    axes.plot(predictions, y[few], ".", color=_ACCENT, markersize=3, label="rows")
    axes.axline((predictions.mean(),) * 2, slope=1, color=_INK, linewidth=0.8)
    predicted = f"predicted {_plain(target)}"
    axes.set(xlabel=predicted, ylabel=f"{_plain(target)} of rows held out")
    axes.legend(frameon=False)
    said = f"R² = {evaluation.scores['r2']:.3f} on rows that the model has not seen."
    return _svg(figure), said


def residuals(evaluation: Evaluation, y: np.ndarray, target: str) -> Drawing:
    """Draw the residuals of held-out rows against their predictions."""
    few, errors = _few(len(y)), y - evaluation.predictions
    figure, axes = _figure(2.7)
    predictions = evaluation.predictions[few]
    axes.plot(predictions, errors[few], ".", color=_ACCENT, markersize=3)
    axes.axhline(0, color=_INK, linewidth=0.8)
    axes.set(xlabel=f"predicted {_plain(target)}", ylabel="residual")
    half = np.quantile(abs(errors), 0.5)
    return _svg(figure), f"Half of the residuals are within ±{half:.3g}."


def _few(n: int) -> np.ndarray:
    """Return the rows of n that are drawn."""
    return np.linspace(0, n - 1, min(n, _MAX_POINTS)).astype(int)


def effects(model: Any, X: Any, shares: np.ndarray, target: str) -> Drawing:
    """Draw the partial dependence of predictions on the most important columns."""
    texts = [] if model.model_.texts is None else model.model_.texts.columns
    order = [
        j
        for j in np.argsort(-shares, kind="stable")
        if shares[j] > 0 and X.columns[j] not in texts
    ][:4]
    figure, panels = _figure(2.0 * ((len(order) + 1) // 2), len(order))
    colours = [_ACCENT, *(f"C{k}" for k in range(1, _MAX_CLASSES))]
    for axes, j in zip(panels, order, strict=True):
        name, classes = X.columns[j], is_classifier(model)
        text = not is_numeric(X[name])
        # Missing values have no place on an axis. Integers are rejected (values between
        # them would be rounded), so numbers are cast to float.
        rows = X[X[name].notna()].astype({name: object if text else float})
        axes.set_xlabel(_plain(name))
        if rows.empty:
            continue
        found = partial_dependence(
            model,
            rows,
            [int(j)],
            categorical_features=[int(j)] if text else None,
            grid_resolution=30,
            response_method="predict_proba" if classes else "auto",
        )
        values = np.asarray(found["grid_values"][0])
        for k, line in enumerate(found["average"][:_MAX_CLASSES]):
            label = None
            if classes:
                label = _plain(model.classes_[-1 if len(model.classes_) == 2 else k])
            if text:
                at = np.arange(len(values))
                axes.plot(at, line, "o", color=colours[k], label=label)
                texts = [_plain(value) for value in values]
                axes.set_xticks(at, texts, rotation=45, ha="right")
            else:
                axes.plot(values.astype(float), line, color=colours[k], label=label)
                axes.locator_params(axis="x", nbins=4)
    label = "mean probability" if is_classifier(model) else _plain(target)
    figure.supylabel(label, fontsize="medium")
    if panels[0].lines and is_classifier(model):
        panels[0].legend(frameon=False)
    said = "The mean prediction where one column has a value in all rows."
    return _svg(figure), said


def calibration(model: Any, evaluation: Evaluation, y: np.ndarray) -> Drawing:
    """Draw the share of rows of a class against its predicted probability."""
    figure, axes = _figure(2.9)
    P: Any = evaluation.probabilities
    # For two classes one curve suffices; for more, classes are pooled.
    binary = len(model.classes_) == 2
    chosen = P[:, 1] if binary else P.ravel()
    labels = model.classes_[1:] if binary else model.classes_
    truth = (np.asarray(y)[:, None] == labels).ravel()
    shares, means = calibration_curve(
        truth, np.clip(chosen, 0, 1), n_bins=10, strategy="quantile"
    )
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.8)
    axes.plot(means, shares, "o-", color=_ACCENT)
    axes.set(xlabel="predicted probability", ylabel="share of rows")
    error = abs(shares - means).max()
    said = f"Probabilities and shares differ by at most {error:.1%} in ten bins."
    return _svg(figure), said


def confusion(evaluation: Evaluation, y: np.ndarray) -> Drawing:
    """Draw as which classes the rows of each class are predicted."""
    labels, counts = np.unique(y, return_counts=True)
    labels = labels[np.argsort(-counts)][: 2 * _MAX_CLASSES]
    rows = np.array(
        [[np.mean(evaluation.predictions[y == a] == b) for b in labels] for a in labels]
    )
    from matplotlib.colors import to_rgba

    figure, axes = _figure(1.6 + 0.3 * len(labels))
    axes.imshow([[to_rgba(_ACCENT, share) for share in row] for row in rows])
    for (i, j), share in np.ndenumerate(rows):
        colour = "white" if share > 0.8 else _INK
        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", color=colour)
    places, names = range(len(labels)), [_plain(label) for label in labels]
    axes.set_xticks(places, names, rotation=45)
    axes.set_yticks(places, names)
    axes.set(xlabel="predicted", ylabel="true")
    worst = labels[np.argmin(rows.diagonal())]
    said = f"Of each true class, % predicted as each; {worst} is found least often."
    return _svg(figure), said


def _figure(height: float, n_panels: int | None = None) -> tuple[Figure, Any]:
    """Return a figure 5 inches wide with its axes, or panels in two columns."""
    import_extra("matplotlib", "A report", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, height), layout="constrained")
    shape = (1, 1) if n_panels is None else (-(-n_panels // 2), min(n_panels, 2))
    grid = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
    for axes in grid[n_panels or 1 :]:
        axes.remove()
    panels = list(grid[: n_panels or 1])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels if n_panels else panels[0]


def _plain(text: Any) -> str:
    """Escape text so that Matplotlib does not read it as a formula."""
    return str(text).replace("$", r"\$")


def _svg(figure: Figure) -> str:
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "randkern"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    found = re.compile("|".join(_OF_PAGE))
    text = re.sub(
        'style="[^"]*"',
        lambda style: found.sub(lambda colour: _OF_PAGE[colour[0]], style[0]),
        out.getvalue(),
    )
    return text[text.index("<svg") :]
