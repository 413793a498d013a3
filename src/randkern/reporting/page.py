"""The page: data, choices, quality, columns and cost, with inline figures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor

import randkern
from randkern._extras import import_extra
from randkern._warnings import warn
from randkern.models import KernelRidgeClassifier, KernelRidgeRegressor
from randkern.reporting import canvas, figures, quality
from randkern.reporting.baseline_models import not_fitted
from randkern.reporting.deadline import Deadline
from randkern.reporting.scores import (
    COVERAGE,
    EvaluatedModel,
    class_scores,
    measured_text,
    number_scores,
    share_text,
)
from randkern.reporting.summary import Summary
from randkern.tabular.code import shortened
from randkern.tabular.target_transforms import TRANSFORMS

if TYPE_CHECKING:
    import pandas as pd


# Rows of the largest exact fit of a learning curve, by least squares and of logistic
# regression, which solves many systems; how often they are halved; rows for the errors.
_MAX_RIDGE_ROWS = 3000
_MAX_LOGISTIC_ROWS = 1000
_HALVINGS = 4
_MIN_ROWS = 40
_MAX_TEST_ROWS = 3000
# Rows for figures of partial dependence.
_FEW_ROWS = 100
# Seconds of a figure of known numbers, of all fits of a learning curve, and of
# importances, with a share of the time limit of the model; of predicting any rows.
_QUICK = 0.1
_CURVE_SECONDS = 1.0
_EFFECTS_SECONDS = 1.0
_EFFECTS_SHARE = 0.04
_PREDICTION_SECONDS = 0.01
_MAX_TRIALS = 12
_MAX_COLUMNS = 30


#: What the metric of a trial says of the lengthscales of its kernel.
LENGTHSCALES = {"none": "one", "diagonal": "per column"}
#: Names of scores, and the texts of their values; others have the digits of the
#: standard error.
SCORES: dict[str, tuple[str, Callable[[float], str] | None]] = {
    "error": ("misclassified", "{:.2%}".format),
    "log_loss": ("log loss", "{:.4f}".format),
    "auc": ("AUC", share_text),
    "rmse": ("root mean squared error", None),
    "mae": ("mean absolute error", None),
    "r2": ("R²", share_text),
    "coverage": (f"coverage of {COVERAGE:.0%} intervals", "{:.1%}".format),
}


@dataclass(frozen=True)
class Panel:
    """A figure of a report, and what it shows; without `svg` it could not be drawn.

    It `is_late` if there was no time for it.
    """

    heading: str
    caption: str
    svg: str | None = None
    is_late: bool = False


#: The heading of a figure, what draws it, and about how many seconds that takes.
_Figure = tuple[str, Callable[[], canvas.Drawing | None], float]


def panels(
    evaluated: EvaluatedModel,
    target: str,
    deadline: Deadline | None = None,
) -> list[Panel]:
    """Return the figures of a report, in their order.

    One that cannot be drawn is a panel that says so, and a warning: the model and its
    scores do not depend on it. One is late if it would end after the deadline; those of
    known predictions are always drawn, which takes half a second. `target` is the name
    of the column that is predicted.
    """
    deadline = deadline or Deadline()
    drawn = []
    for heading, draw, seconds in _drawings(evaluated, target):
        if seconds and not deadline.allows(seconds):
            drawn.append(Panel(heading, "", is_late=True))
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from fits to few rows
                drawing = draw()
        except Exception as error:  # whatever it is, the rest of the report stands
            what = f"{type(error).__name__}: {error}"
            drawn.append(Panel(heading, f"This figure could not be drawn ({what})."))
            warn(
                f"the report lacks the figure {heading!r} ({what}); this is a bug of "
                "randkern and does not affect the model",
                UserWarning,
            )
            continue
        if drawing is not None:
            svg, caption = drawing
            drawn.append(Panel(heading, caption, svg))
    return drawn


def _drawings(evaluated: EvaluatedModel, target: str) -> Iterator[_Figure]:
    """Yield the figures of a report, the quickest ones first."""
    model, evaluation = evaluated.model, evaluated.evaluation
    rows, _ = evaluated.train  # of which there are more than of the others
    n = len(rows)
    few = rows.iloc[:: max(len(rows) // _FEW_ROWS, 1)]

    def importances() -> canvas.Drawing:
        return figures.importances(list(rows.columns), model.feature_importances_)

    def effects() -> canvas.Drawing | None:
        return figures.effects(model, few, model.feature_importances_, target)

    def curve() -> canvas.Drawing | None:
        scores = learning_curve(model, evaluated.train, evaluated.test)
        if len(scores) < 2:
            return None
        name = evaluated.main_score
        values = [score.get(name, math.nan) for score in scores.values()]
        if not np.isfinite(values).all():
            name = next(iter(evaluation.scores))  # which needs no probabilities
        values = [score[name] for score in scores.values()]
        unit = SCORES[name][0]
        has_error = name == next(iter(evaluation.scores))  # the first one has
        error = evaluation.standard_error if has_error else None
        return figures.learning_curve(list(scores), values, unit, n, error)

    for heading, draw in _of_predictions(evaluated, target):
        yield heading, draw, 0.0
    share = min(n / _MAX_LOGISTIC_ROWS, 1.0)
    seconds = 0.0
    if evaluated.importances is None:
        seconds = (_EFFECTS_SECONDS + _EFFECTS_SHARE * model.time_limit) * share
    yield "Which columns matter", importances, _QUICK + seconds
    yield "What more rows would bring", curve, _QUICK + _CURVE_SECONDS * share
    seconds = math.inf
    if evaluated.importances is not None:
        seconds = len(few) * (evaluation.seconds_per_row or 0.0)
        seconds = max(seconds, _PREDICTION_SECONDS) * figures.POINTS_OF_EFFECTS
    yield "How predictions depend on columns", effects, _QUICK + seconds


def _of_predictions(
    evaluated: EvaluatedModel, target: str
) -> list[tuple[str, Callable[[], canvas.Drawing | None]]]:
    """Return the figures of predictions for test rows, and what draws them."""
    model = evaluated.model
    evaluation = evaluated.evaluation
    _, y = evaluated.test
    if is_classifier(model):
        return [
            ("ROC curve", partial(quality.roc, model, evaluation, y)),
            (
                "Precision and recall",
                partial(quality.precision_and_recall, model, evaluation, y),
            ),
            ("Calibration", partial(quality.calibration, model, evaluation, y)),
            ("Which classes are mistaken", partial(quality.confusion, evaluation, y)),
        ]
    return [
        ("Predictions and truth", partial(quality.agreement, evaluation, y, target)),
        ("Residuals", partial(quality.residuals, evaluation, y, target)),
        (
            "Coverage by size of the prediction",
            partial(quality.interval_coverage, evaluation, y, target),
        ),
    ]


def contents(
    evaluated: EvaluatedModel,
    summary: Summary,
    title: str,
    figures: Sequence[Panel],
    command: str = "",
) -> dict[str, Any]:
    """Return what the page shows of a model; `summary` describes its table.

    Another fit of the model does not change it. `command` is the line that has fitted
    the model.
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
        "most_columns": _MAX_COLUMNS,
        "n_test": len(evaluated.test[1]),
        "scores": score_rows(evaluated),
        "held_out": evaluated.held_out,
        "verdict": evaluated.verdict,
        "names": ["this model", *evaluated.others],
        "panels": [panel for panel in figures if not panel.is_late],
        "late": [panel.heading for panel in figures if panel.is_late],
        "lengthscales": LENGTHSCALES,
        "classes": is_classifier(model),
        "trials": trials.head(_MAX_TRIALS).to_dict("records"),
        "code": shortened(model.model_.explain()),
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


def learning_curve(
    model: Any,
    train: tuple[pd.DataFrame, np.ndarray],
    test: tuple[pd.DataFrame, np.ndarray],
) -> dict[int, dict[str, float]]:
    """Return the scores on test rows by the number of training rows.

    The model's best kernel, with the hyperparameters of the whole fit, is fitted to
    samples of the rows. Without scores for models of texts.
    """
    X, y = train
    X_test, y_test = test
    if model.model_.texts is not None:  # known by heart in training rows
        return {}
    classes = is_classifier(model)
    member = max(model.model_.members, key=lambda member: member.weight)
    is_logistic = classes and not hasattr(member.fit, "alpha_")
    largest = min(len(y), _MAX_LOGISTIC_ROWS if is_logistic else _MAX_RIDGE_ROWS)
    sizes = [largest >> k for k in range(_HALVINGS) if largest >> k >= _MIN_ROWS]
    if is_logistic:
        fit = clone(member.fit).set_params(n_components=None)
    else:
        make = KernelRidgeClassifier if classes else KernelRidgeRegressor
        fit = make(member.kernel, member.alpha, n_components=None, fit_intercept=True)
    # Files may be sorted. The encoder is fitted to all rows, as the lengthscales belong
    # to its columns.
    order = np.random.default_rng(0).permutation(len(y))[:largest]
    rows = member.rows_of(model.model_.with_scores(X.iloc[order]))
    labels = y[order]
    transform = model.model_.target_transform
    if transform is not None:
        functions = TRANSFORMS[transform][:2]
        fit = TransformedTargetRegressor(
            fit, func=functions[0], inverse_func=functions[1]
        )
    spread = np.linspace(0, len(y_test) - 1, min(len(y_test), _MAX_TEST_ROWS))
    X_test = X_test.iloc[spread.astype(int)]
    y_test = y_test[spread.astype(int)]
    rows_test = member.rows_of(model.model_.with_scores(X_test))
    out = {}
    for size in sorted(sizes):
        if classes and len(np.unique(labels[:size])) < 2:
            continue
        fitted = clone(fit).fit(rows[:size], labels[:size])
        predicted = fitted.predict(rows_test)
        if classes:
            has_shares = hasattr(fitted, "predict_proba")
            P = fitted.predict_proba(rows_test) if has_shares else None
            out[size] = class_scores(fitted, predicted, P, y_test)
        else:
            out[size] = number_scores(predicted, y_test)
    return out


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
