"""The page: data, choices, quality, columns and cost, with inline figures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import Any

from sklearn.base import is_classifier

import randkern
from randkern._extras import import_extra
from randkern._warnings import warn
from randkern.plots.drawing import STYLE, as_svg
from randkern.reporting import figures
from randkern.reporting.baseline_models import not_fitted
from randkern.reporting.deadline import Deadline
from randkern.reporting.learning_curve import MAX_LOGISTIC_ROWS, learning_curve
from randkern.reporting.scores import SCORES, EvaluatedModel, measured_text
from randkern.reporting.summary import MAX_COLUMNS, Summary

# Seconds of a figure of known numbers, of all fits of a learning curve, and of
# importances, with a share of the time limit of the model; of predicting any rows.
_QUICK = 0.1
_CURVE_SECONDS = 1.0
_IMPORTANCES_SECONDS = 1.0
_IMPORTANCES_SHARE = 0.04
_MANY_COLUMNS = 100
_PREDICTION_SECONDS = 0.01
_MAX_TRIALS = 12


#: Draws a figure of a model and the target of a name; returns the caption.
Draw = Callable[[Any, EvaluatedModel, str], "str | None"]


@dataclass(frozen=True)
class Panel:
    """A figure of a report, and what it shows; without `svg` it could not be drawn.

    It `is_late` if there was no time for it.
    """

    heading: str
    caption: str
    svg: str | None = None
    is_late: bool = False


#: What draws the figures of predictions for test rows, by their headings.
OF_CLASSES: dict[str, Draw] = {
    "ROC curve": figures.roc,
    "Precision and recall": figures.precision_and_recall,
    "Calibration": figures.calibration,
    "Which classes are mistaken": figures.confusion,
}
OF_NUMBERS: dict[str, Draw] = {
    "Predictions and truth": figures.agreement,
    "Residuals": figures.residuals,
    "Coverage by size of the prediction": figures.interval_coverage,
}


def panels(
    evaluated: EvaluatedModel, target: str, deadline: Deadline | None = None
) -> list[Panel]:
    """Return the figures of a report, in their order.

    One that cannot be drawn is a panel that says so, and a warning: the model and its
    scores do not depend on it. Those of known predictions are always drawn, which takes
    half a second, and others if the time limit leaves room for them; if not, one is
    late if it would end after the deadline. `target` is the name of the column that is
    predicted.
    """
    deadline = deadline or Deadline()
    quick = OF_CLASSES if is_classifier(evaluated.model) else OF_NUMBERS
    shown = [_panel(title, draw, evaluated, target) for title, draw in quick.items()]
    for heading, draw, planned, measured in _slow(evaluated):
        if deadline.plans(planned) or deadline.allows(max(planned, measured)):
            shown.append(_panel(heading, draw, evaluated, target))
        else:
            shown.append(Panel(heading, "", is_late=True))
    return [panel for panel in shown if panel is not None]


def _panel(
    heading: str, draw: Draw, evaluated: EvaluatedModel, target: str
) -> Panel | None:
    """Return a figure with its caption; None if there is nothing to draw."""
    matplotlib = import_extra("matplotlib", "A report", "plot")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from fits to few rows
        try:
            figure = Figure(figsize=(5, 2.9), layout="constrained")
            caption = draw(figure, evaluated, target)
            return None if caption is None else Panel(heading, caption, as_svg(figure))
        except Exception as error:  # whatever it is, the rest of the report stands
            what = f"{type(error).__name__}: {error}"
    warn(
        f"the report lacks the figure {heading!r} ({what}); this is a bug of randkern "
        "and does not affect the model",
        UserWarning,
    )
    return Panel(heading, f"This figure could not be drawn ({what}).")


def _slow(evaluated: EvaluatedModel) -> Iterator[tuple[str, Draw, float, float]]:
    """Yield figures that need fits or predictions, and about how long they take.

    In seconds by the sizes of the table, and as measured so far.
    """
    model = evaluated.model
    share = min(len(evaluated.train[1]) / MAX_LOGISTIC_ROWS, 1.0)
    seconds = 0.0
    if evaluated.importances is None:
        n_columns = len(evaluated.train[0].columns)
        seconds = _IMPORTANCES_SECONDS + _IMPORTANCES_SHARE * model.time_limit
        seconds *= min(max(share, n_columns / _MANY_COLUMNS), 1.0)
    yield "Which columns matter", figures.importances, _QUICK + seconds, 0.0
    seconds = _QUICK + _CURVE_SECONDS * share
    yield "What more rows would bring", learning_curve, seconds, 0.0
    planned = measured = math.inf
    if evaluated.importances is not None:
        per_row = evaluated.evaluation.seconds_per_row or 0.0
        measured = len(evaluated.few_rows) * per_row * figures.POINTS_OF_EFFECTS
        planned = _QUICK + _PREDICTION_SECONDS * figures.POINTS_OF_EFFECTS
    yield "How predictions depend on columns", figures.effects, planned, measured


def contents(
    evaluated: EvaluatedModel,
    summary: Summary,
    title: str,
    shown: Sequence[Panel],
    command: str = "",
    advice: str = "",
) -> dict[str, Any]:
    """Return what the page shows of a model; `summary` describes its table.

    Another fit of the model does not change it. `command` is the line that has fitted
    the model, `advice` a sentence below the verdict.
    """
    model = evaluated.model
    trials = model.leaderboard_.sort_values("error", kind="stable")
    return {
        "title": title,
        "version": randkern.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seed": model.random_state,
        "not_fitted": not_fitted(evaluated),
        "summary": summary,
        "most_columns": MAX_COLUMNS,
        "n_test": len(evaluated.test[1]),
        "scores": score_rows(evaluated),
        "held_out": evaluated.held_out,
        "verdict": evaluated.verdict,
        "is_useless": evaluated.is_useless,
        "advice": advice,
        "cut": model.fit_report_["cut"],
        "names": ["this model", *evaluated.others],
        "panels": [panel for panel in shown if not panel.is_late],
        "late": [panel.heading for panel in shown if panel.is_late],
        "classes": is_classifier(model),
        "trials": trials.head(_MAX_TRIALS).to_dict("records"),
        "code": model.model_.explain(),
        "cost": _cost(evaluated),
    }


def _cost(evaluated: EvaluatedModel) -> dict[str, str]:
    """Return what the fit took, as far as it is known."""
    cost = {"training rows": f"{len(evaluated.train[1]):,}"}
    if evaluated.seconds is not None:
        cost["seconds to fit the training rows"] = f"{evaluated.seconds:.1f}"
    if evaluated.evaluation.seconds_per_row is not None:
        milliseconds = 1e3 * evaluated.evaluation.seconds_per_row
        text = f"{milliseconds:.2g} ms, of {len(evaluated.test[1]):,} rows at once"
        cost["prediction of a row"] = text
    if evaluated.peak_bytes is not None:
        cost["largest memory"] = f"{evaluated.peak_bytes / 1e6:,.0f} MB"
    return cost


def render(contents: Mapping[str, Any], saved: str) -> str:
    """Return the page, HTML without references to other files.

    `contents` are those of :func:`contents`, `saved` a sentence about the model in the
    file.
    """
    jinja2 = import_extra("jinja2", "A report", "cli")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = files("randkern.reporting").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(contents, saved=saved)


def score_rows(evaluated: EvaluatedModel) -> list[tuple[str, list[str]]]:
    """Return a row per score: its name, and its value for each model as text.

    The metric that was asked for is the first.
    """
    rows = []
    evaluation = evaluated.evaluation
    error = float(f"{evaluation.standard_error:.2g}")  # more digits would say nothing
    first, main = next(iter(evaluation.scores)), evaluated.main_score
    measured = partial(measured_text, standard_error=error)
    for name in sorted(evaluation.scores, key=lambda name: name != main):
        title, text = SCORES[name]
        text = text or measured
        own = _defined(text, evaluation.scores[name])
        cells = [
            _defined(text, other.scores[name]) if name in other.scores else ""
            for other in evaluated.others.values()
        ]
        if name == first:
            own += f" ± {text(error)}"
        rows.append((title, [own, *cells]))
    return rows


def _defined(text: Callable[[float], str], value: float) -> str:
    """Return a score as text; AUC is undefined if a class has no rows."""
    return text(value) if value == value else "undefined"
