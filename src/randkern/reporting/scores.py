"""Scores of predictions for unseen rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss, roc_auc_score

# Coverage of the intervals in a report.
COVERAGE = 0.9
# Rows for figures of partial dependence.
_FEW_ROWS = 100
# Intervals mislead if their coverage falls short by more than this.
_MISSED = 0.15


@dataclass(frozen=True)
class Evaluation:
    """Predictions (n,) for unseen rows, and their scores.

    Scores of classifiers are ``error`` (the share of misclassified rows), ``log_loss``
    (nats per row) and ``auc`` (one-vs-rest, weighted); of regressors ``rmse``, ``mae``
    (in units of the target), ``r2``, and, if the model has intervals, the ``coverage``
    of 90 % intervals, (n, 2). The standard error is that of ``error`` or ``rmse``, from
    the number of rows; `probabilities` are (n, n_classes). Predictions took
    `seconds_per_row`, if they were computed here.
    """

    predictions: np.ndarray = field(repr=False)
    scores: dict[str, float]
    standard_error: float
    probabilities: np.ndarray | None = field(default=None, repr=False)
    intervals: np.ndarray | None = field(default=None, repr=False)
    seconds_per_row: float | None = None


@dataclass(frozen=True)
class EvaluatedModel:
    """A model fitted to training rows, its evaluation and others' on test rows.

    `train` and `test` are rows and targets, `others` evaluations by names. The fit took
    `seconds` and `peak_bytes` of memory, if they are known. `held_out` says which rows
    the test rows are, if they are not drawn at random. `metric` is the score that was
    asked for.
    """

    model: Any
    train: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]
    evaluation: Evaluation
    others: dict[str, Evaluation]
    seconds: float | None = None
    peak_bytes: int | None = None
    held_out: str = ""
    metric: str = ""

    @property
    def few_rows(self) -> Any:
        """Some training rows, spread over all of them."""
        rows, _ = self.train
        return rows.iloc[:: max(len(rows) // _FEW_ROWS, 1)]

    @property
    def main_score(self) -> str:
        """The score to show first: the metric that was asked for, if it is one."""
        known = self.evaluation.scores
        return self.metric if self.metric in known else next(iter(known))

    @property
    def importances(self) -> np.ndarray | None:
        """The shares of columns, None as long as nobody has asked the model for them.

        They may take seconds.
        """
        return self.model._importances

    @property
    def is_useless(self) -> bool:
        """Whether the model is no better than a constant.

        By two standard errors of the root mean squared error, or by the log loss: rare
        classes have small errors, whatever is predicted.
        """
        if not self.others:
            return False
        constant = next(iter(self.others.values())).scores
        own = self.evaluation.scores
        if "rmse" in own:
            return own["rmse"] >= constant["rmse"] - 2 * self.evaluation.standard_error
        name = "log_loss" if "log_loss" in own else "error"
        return own[name] >= constant[name]

    @property
    def verdict(self) -> str:
        """A sentence that compares the model with the best of the others, if any."""
        if not self.others:
            return ""
        name = next(iter(self.evaluation.scores))  # the one with a standard error
        label, text = SCORES[name]
        error = float(f"{self.evaluation.standard_error:.2g}")
        text = text or partial(measured_text, standard_error=error)
        own = self.evaluation.scores[name]
        theirs = {title: other.scores[name] for title, other in self.others.items()}
        constant = next(iter(theirs))
        best = min(theirs, key=theirs.__getitem__)
        numbers = f"{label} {text(own)} ± {text(error)}"
        if self.is_useless:
            what = f"{numbers}, against {text(theirs[constant])} without columns"
            if "log_loss" in self.evaluation.scores:
                pair = self.evaluation.scores, self.others[constant].scores
                losses = [f"{scores['log_loss']:.4g}" for scores in pair]
                what += f"; log loss {losses[0]}, against {losses[1]}"
            return (
                f"this model is no better than the {constant} on held-out rows "
                f"({what}): do not rely on it."
            )
        title = f"the {best}" if best == constant else best
        verb = "err" if best.endswith("s") else "errs"
        if theirs[best] < own - error:
            return (
                f"{title} {verb} less than this model: {label} {text(theirs[best])}, "
                f"against {text(own)} ± {text(error)}."
            )
        if own < theirs[best] - error:
            return (
                f"this model errs less than {title}: {numbers}, against "
                f"{text(theirs[best])}."
            )
        return (
            f"this model and {title} err about equally: {numbers}, and "
            f"{text(theirs[best])}."
        )

    @property
    def coverage_warning(self) -> str | None:
        """A sentence if far fewer targets are in their intervals than should be."""
        coverage = self.evaluation.scores.get("coverage", COVERAGE)
        error = math.sqrt(COVERAGE * (1 - COVERAGE) / len(self.test[1]))
        if coverage >= COVERAGE - max(_MISSED, 4 * error):
            return None
        return (
            f"{coverage:.0%} of the held-out targets are inside their {COVERAGE:.0%} "
            "intervals: held-out rows differ from the training rows, as later rows "
            "with a trend do; do not rely on intervals of new rows."
        )

    def record(self) -> dict[str, Any]:
        """Return its entry in results, JSON-compatible."""
        model, names = self.model, self.train[0].columns
        shares = None if self.importances is None else self.importances.tolist()
        others = self.others.items()
        trials = model.leaderboard_.to_dict("records")
        return {
            "n_train": len(self.train[1]),
            "n_test": len(self.test[1]),
            "scores": _defined(self.evaluation.scores),
            "standard_error": self.evaluation.standard_error,
            "baselines": {name: _defined(other.scores) for name, other in others},
            "leaderboard": [_defined(trial) for trial in trials],
            "importances": shares and dict(zip(names, shares, strict=True)),
            "fit_seconds": self.seconds,
            "peak_memory_bytes": self.peak_bytes,
        }


def _defined(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with None for NaN and infinity, which JSON has not."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def evaluate(
    model: Any,
    X: Any,
    y: np.ndarray,
    predictions: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Evaluation:
    """Score a fitted model on rows, whose predictions may be known.

    The standard error allows for losses that are alike in rows of one group.
    """
    seconds = None
    if predictions is None:
        start = perf_counter()
        predictions = model.predict(X)
        seconds = (perf_counter() - start) / len(y)
    predictions = np.asarray(predictions)
    P = None
    if is_classifier(model):
        if hasattr(model, "predict_proba"):
            P = model.predict_proba(X)
        scores = class_scores(model, predictions, P, y)
        error = mean_error(predictions != y, groups)
        return Evaluation(predictions, scores, error, P, None, seconds)
    residuals = predictions - y
    largest = float(abs(residuals).max()) or 1.0  # squares of huge numbers overflow
    scores = number_scores(predictions, y)
    intervals = None
    if hasattr(model, "predict_interval"):
        intervals = model.predict_interval(X, coverage=COVERAGE)
        scores["coverage"] = float(
            ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).mean()
        )
    error = largest * rmse_error((residuals / largest) ** 2, groups)
    return Evaluation(predictions, scores, error, None, intervals, seconds)


def class_scores(
    model: Any, predictions: np.ndarray, P: np.ndarray | None, y: np.ndarray
) -> dict[str, float]:
    """Return the scores of predicted classes, and of probabilities if there are any."""
    scores = {"error": float(np.mean(predictions != y))}
    if P is not None:
        scores["log_loss"] = _mean_log_loss(model, P, y)
        scores["auc"] = _area_under_curve(model, P, y)
    return scores


def number_scores(predictions: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the scores of predicted numbers."""
    rmse = root_mean_square(predictions - y)
    spread = root_mean_square(y - y.mean())
    r2 = 1 - (rmse / spread) ** 2 if spread > 0 else math.nan
    return {"rmse": rmse, "mae": float(abs(predictions - y).mean()), "r2": r2}


def root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean square of numbers whose squares may overflow."""
    largest = float(abs(values).max()) or 1.0
    return largest * math.sqrt(((values / largest) ** 2).mean())


def mean_error(values: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Return the standard error of the mean of n values.

    Sums over groups are independent, rows of one group need not be (cluster-robust
    standard errors: Liang & Zeger 1986, "Longitudinal data analysis using generalized
    linear models"). Those of a single group are taken to be independent: nothing is
    known of how groups differ.
    """
    n = len(values)
    if groups is None or len(np.unique(groups)) < 2:
        return float(values.std()) / math.sqrt(n)
    codes = np.unique(groups, return_inverse=True)[1]
    sums = np.bincount(codes, values - values.mean())
    m = len(sums)
    return math.sqrt((sums**2).sum() * m / (m - 1)) / n


def rmse_error(squares: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Return the standard error of the root of a mean of n squares.

    It follows by the delta method from a normal mean.
    """
    rmse = math.sqrt(squares.mean())
    return mean_error(squares, groups) / (2 * rmse) if rmse else 0.0


def measured_text(value: float, standard_error: float) -> str:
    """Return a number with two digits of its standard error: 9,750 for 9748 ± 770.

    Only huge and tiny ones have exponents; without an error, four digits. Other models
    may have much larger numbers than the one with this error: at most six digits.
    """
    size = max(abs(value), standard_error)
    if not 1e-4 <= size < 1e9:
        return f"{value:.4g}"
    step = max(standard_error, abs(value) / 10_000) if standard_error else size / 100
    decimals = 1 - math.floor(math.log10(step))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def share_text(value: float) -> str:
    """Return a score of which 1 is perfect, with two digits of what it lacks of 1.

    At least three decimals: 0.575, 0.951, 0.99968.
    """
    lack = 1 - value
    digits = 3 if not 0 < lack < 0.01 else 1 - math.floor(math.log10(lack))
    text = f"{value:.{min(digits, 9)}f}"
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")


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


def _mean_log_loss(model: Any, P: np.ndarray, y: np.ndarray) -> float:
    """Return the mean of −log p; an unknown class has p = ε."""
    known = np.isin(y, model.classes_)
    floor = -math.log(np.finfo(float).eps)
    if not known.any():
        return floor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about sums of 1 ± ε
        inside = log_loss(y[known], P[known], labels=model.classes_)
    return float(known.mean() * inside + (1 - known.mean()) * floor)


def _area_under_curve(model: Any, P: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the ROC curve, or NaN if it is undefined."""
    if not np.array_equal(np.unique(y), model.classes_):
        return math.nan
    binary = len(model.classes_) == 2
    return float(
        roc_auc_score(
            y, P[:, 1] if binary else P, multi_class="ovr", average="weighted"
        )
    )
