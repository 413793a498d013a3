"""The page: data, choices, quality, columns and cost, with inline figures."""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier

import randkern
from randkern._extras import import_extra
from randkern.datasets import Dataset
from randkern.models import KernelRidgeRegressor
from randkern.report import figures
from randkern.report.scores import COVERAGE, Judged
from randkern.report.summary import summarise

if TYPE_CHECKING:
    import pandas as pd


# Rows of the largest fit of a learning curve, and how often they are halved.
_MOST_ROWS = 4000
_HALVINGS = 4
_LEAST_ROWS = 40
# Rows for figures of partial dependence.
_FEW_ROWS = 300
_MOST_TRIALS = 12
#: Names and formats of scores.
SCORES = {
    "error": ("misclassified", "{:.2%}"),
    "log_loss": ("log loss", "{:.4f}"),
    "auc": ("AUC", "{:.4f}"),
    "rmse": ("root mean squared error", "{:.4g}"),
    "mae": ("mean absolute error", "{:.4g}"),
    "r2": ("R²", "{:.4f}"),
    "coverage": (f"coverage of {COVERAGE:.0%} intervals", "{:.1%}"),
}


def render(judged: Judged, table: Dataset, target: str) -> str:
    """Return the page about a model of a table, HTML without references to other files.

    `target` is the name of the column that is predicted.
    """
    jinja2 = import_extra("jinja2", "A report", "cli")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = files("randkern.report").joinpath("page.html").read_text(encoding="utf-8")
    model, (X, y) = judged.model, judged.test
    shares = model.feature_importances_
    few = X.iloc[:: max(len(X) // _FEW_ROWS, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from fits to few rows
        drawings = [
            *figures.quality(model, judged.evaluation, y, target),
            figures.importances(list(X.columns), shares),
            figures.effects(model, few, shares, target),
        ]
        curve = learning_curve(model, judged.train, judged.test)
    if len(curve) > 1:
        unit = SCORES["error" if is_classifier(model) else "rmse"][0]
        drawings.append(figures.learning_curve(list(curve), list(curve.values()), unit))
    return environment.from_string(text).render(
        title=f"{target} of {table.name}",
        target=target,
        version=randkern.__version__,
        summary=summarise(table.X_train, table.y_train, table.task),
        n_test=len(y),
        scores=score_rows(judged),
        names=["this model", *judged.others],
        drawings=drawings,
        trials=model.leaderboard_.head(_MOST_TRIALS).to_dict("records"),
        code=model.model_.explain(),
        cost={
            "seconds to fit the training rows": f"{judged.seconds:.1f}",
            "largest memory": f"{judged.peak_bytes / 1e6:,.0f} MB",
            "training rows": f"{len(judged.train[1]):,}",
        },
    )


def learning_curve(
    model: Any,
    train: tuple[pd.DataFrame, np.ndarray],
    test: tuple[pd.DataFrame, np.ndarray],
) -> dict[int, float]:
    """Return the error on test rows by the number of training rows.

    The model's best kernel, with the hyperparameters of the whole fit, is fitted to
    samples of up to 4,000 rows.
    """
    (X, y), (X_test, y_test) = train, test
    classes = is_classifier(model)
    largest = min(len(y), _MOST_ROWS)
    sizes = [largest >> k for k in range(_HALVINGS) if largest >> k >= _LEAST_ROWS]
    member = max(model.model_.members, key=lambda member: member.weight)
    if classes:
        fit = clone(member.fit).set_params(n_components=None)
    else:
        fit = KernelRidgeRegressor(
            member.kernel, member.fit.alpha, n_components=None, fit_intercept=True
        )
    # Files may be sorted. The encoder is fitted to all rows, as the lengthscales belong
    # to its columns.
    order = np.random.default_rng(0).permutation(len(y))[:largest]
    rows, labels = member.rows_of(X.iloc[order]), y[order]
    rows_test, out = member.rows_of(X_test), {}
    for size in sorted(sizes):
        if classes and len(np.unique(labels[:size])) < 2:
            continue
        found = clone(fit).fit(rows[:size], labels[:size]).predict(rows_test)
        wrong = found != y_test if classes else (found - y_test) ** 2
        out[size] = float(wrong.mean() if classes else wrong.mean() ** 0.5)
    return out


def score_rows(judged: Judged) -> list[tuple[str, list[str]]]:
    """Return a row per score: its name, and its value for each model as text."""
    rows, evaluation = [], judged.evaluation
    for at, (name, value) in enumerate(evaluation.scores.items()):
        title, form = SCORES[name]
        first = _text(form, value)
        if at == 0:
            first += f" ± {form.format(evaluation.standard_error)}"
        cells = [
            _text(form, other.scores[name]) if name in other.scores else ""
            for other in judged.others.values()
        ]
        rows.append((title, [first, *cells]))
    return rows


def _text(form: str, value: float) -> str:
    """Return a score as text; AUC is undefined if a class has no rows."""
    if value != value:
        return "undefined"
    text = form.format(value)
    # Drop the sign of a number that rounds to 0.
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")
