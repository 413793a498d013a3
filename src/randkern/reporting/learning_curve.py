"""What more rows, or the logarithm of the target, would bring: further fits."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor

from randkern._warnings import ignoring
from randkern.plots.drawing import ACCENT, PALE
from randkern.reporting.scores import (
    SCORES,
    EvaluatedModel,
    class_scores,
    mean_error,
    measured_text,
    number_scores,
)
from randkern.tabular.target_transforms import TRANSFORMS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Rows of the largest exact fit, by least squares and of logistic regression, which
# solves many systems; how often they are halved; rows for the errors.
_MAX_RIDGE_ROWS = 3000
MAX_LOGISTIC_ROWS = 1000
_HALVINGS = 4
_MIN_ROWS = 40
_MAX_TEST_ROWS = 3000
# A change of the error by less than this share is little.
_LITTLE = 0.05
# A target whose maximum is so many times its median is skewed; rows for the trial of
# its logarithm, and its time limit.
_SKEWED = 10.0
_TRIAL_ROWS = 300
_TRIAL_SECONDS = 1.0


def learning_curve(figure: Figure, evaluated: EvaluatedModel, target: str) -> Any:
    """Draw a score against the number of training rows; return the caption.

    The standard error, from the number of test rows, is a band around errors. None if
    there are too few rows.
    """
    by_size = scores_by_rows(evaluated.model, evaluated.train, evaluated.test)
    if len(by_size) < 2:
        return None
    known = evaluated.evaluation.scores
    first = next(iter(known))  # an error, which needs no probabilities
    name = evaluated.main_score
    if not all(np.isfinite(scores.get(name, np.nan)) for scores in by_size.values()):
        name = first
    sizes = list(by_size)
    scores = [by_size[size][name] for size in sizes]
    unit = SCORES[name][0]
    n_rows = len(evaluated.train[1])
    axes = figure.subplots()
    axes.plot(sizes, scores, "o-", color=ACCENT)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="training rows", ylabel=unit)
    if name != first:
        return (
            f"The {unit} of held-out rows is {scores[-2]:.4g} with {sizes[-2]:,} "
            f"training rows, and {scores[-1]:.4g} with {sizes[-1]:,} of {n_rows:,}."
        )
    error = evaluated.evaluation.standard_error
    low, high = np.subtract(scores, error), np.add(scores, error)
    axes.fill_between(sizes, low, high, color=PALE, alpha=0.5, linewidth=0)
    axes.set(ylim=(0, 1.1 * max(high) or 1.0))
    return f"{_gain(sizes, scores, n_rows, error)} The band is ± one standard error."


def _gain(sizes: list[int], errors: list[float], n_rows: int, error: float) -> str:
    """Say what the last doubling of the rows brought, and what more rows would.

    The latter only if the curve reaches all `n_rows`, and its last sizes agree. Of
    changes below the standard error nothing is said.
    """
    if abs(errors[-2] - errors[-1]) < error:
        return (
            f"From {sizes[-2]:,} to {sizes[-1]:,} of {n_rows:,} training rows the "
            "error changed by less than its standard error."
        )
    gains = [
        1 - after / before if before else 0.0 for before, after in pairwise(errors)
    ]
    caption = "The last doubling of the rows did not reduce the error"
    if gains[-1] > 0:
        caption = f"The last doubling of the rows reduced the error by {gains[-1]:.0%}"
    if sizes[-1] < n_rows:
        caption += f"; the curve ends at {sizes[-1]:,} of {n_rows:,} training rows"
    elif len(gains) > 1 and min(gains[-2:]) > _LITTLE:
        caption += ": more rows would help"
    elif len(gains) > 1 and max(map(abs, gains[-2:])) <= _LITTLE:
        caption += ", and the one before hardly more: more rows would help little"
    return f"{caption}."


def scores_by_rows(
    model: Any,
    train: tuple[pd.DataFrame, np.ndarray],
    test: tuple[pd.DataFrame, np.ndarray],
) -> dict[int, dict[str, float]]:
    """Return the scores on test rows by the number of training rows.

    The model's best kernel, with the hyperparameters of the whole fit, is fitted to
    samples of the rows. Without scores for models of texts.
    """
    (X, y), (X_test, y_test) = train, test
    if model.model_.texts is not None:  # known by heart in training rows
        return {}
    classes = is_classifier(model)
    member = max(model.model_.members, key=lambda member: member.weight)
    largest = min(len(y), MAX_LOGISTIC_ROWS if classes else _MAX_RIDGE_ROWS)
    sizes = [largest >> k for k in range(_HALVINGS) if largest >> k >= _MIN_ROWS]
    fit = member.exact
    transform = model.model_.target_transform
    if transform is not None:
        there, back, *_ = TRANSFORMS[transform]
        fit = TransformedTargetRegressor(fit, func=there, inverse_func=back)
    # Files may be sorted. The encoder is fitted to all rows, as the lengthscales belong
    # to its columns.
    order = np.random.default_rng(0).permutation(len(y))[:largest]
    rows = member.encoder.transform(model.model_.with_scores(X.iloc[order]))
    labels = y[order]
    spread = np.linspace(0, len(y_test) - 1, min(len(y_test), _MAX_TEST_ROWS))
    few = spread.astype(int)
    y_test = y_test[few]
    rows_test = member.encoder.transform(model.model_.with_scores(X_test.iloc[few]))
    out = {}
    for size in sorted(sizes):
        if classes and len(np.unique(labels[:size])) < 2:
            continue
        fitted = clone(fit).fit(rows[:size], labels[:size])
        predicted = fitted.predict(rows_test)
        if classes:
            P = fitted.predict_proba(rows_test)
            out[size] = class_scores(fitted, predicted, P, y_test)
        else:
            out[size] = number_scores(predicted, y_test)
    return out


def logarithm_advice(evaluated: EvaluatedModel) -> str:
    """Say that the logarithm of a skewed target errs less, if it does on held-out rows.

    Both are fitted to some rows, as the kernels of one do not suit the other.
    """
    model, (X, y), (X_test, y_test) = evaluated.model, evaluated.train, evaluated.test
    if is_classifier(model) or model.target_transform is not None:
        return ""
    if y.min() < 0 or y.max() <= _SKEWED * np.median(y):
        return ""
    few = np.random.default_rng(0).permutation(len(y))[:_TRIAL_ROWS]
    predicted = []
    for transform in (None, "log" if y.min() > 0 else "log1p"):
        trial = type(model)(_TRIAL_SECONDS, random_state=0, target_transform=transform)
        trial.set_params(text_columns=model.text_columns)
        with ignoring(UserWarning):
            predicted.append(trial.fit(X.iloc[few], y[few]).predict(X_test))
    before, after = (abs(values - y_test) for values in predicted)
    # A few large targets decide on squares, and hardly less on absolute errors, alone.
    share = np.mean(after < before)
    if not (after.mean() < before.mean() and share > 0.5 + 0.5 * len(y_test) ** -0.5):
        return ""
    error = mean_error(after)
    return (
        "the target is skewed, and its logarithm is easier to fit: mean absolute error "
        f"{measured_text(after.mean(), error)}, against "
        f"{measured_text(before.mean(), error)} (fitted to {len(few):,} rows): try "
        "--log-target."
    )
