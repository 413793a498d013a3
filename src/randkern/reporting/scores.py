"""Scores of predictions for unseen rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline

from randkern.tabular import TabularEncoder
from randkern.tabular.texts import TextEncoder

# Coverage of the intervals in a report.
COVERAGE = 0.9


@dataclass(frozen=True)
class Evaluation:
    """Predictions (n,) for unseen rows, and their scores.

    Scores of classifiers are ``error`` (the share of misclassified rows), ``log_loss``
    (nats per row) and ``auc`` (one-vs-rest, weighted); of regressors ``rmse``, ``mae``
    (in units of the target), ``r2``, and, if the model has intervals, the ``coverage``
    of 90 % intervals, (n, 2). The standard error is that of ``error`` or ``rmse``, from
    the number of rows; `probabilities` are (n, n_classes).
    """

    predictions: np.ndarray = field(repr=False)
    scores: dict[str, float]
    standard_error: float
    probabilities: np.ndarray | None = field(default=None, repr=False)
    intervals: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Judged:
    """A model fitted to training rows, its evaluation and others' on test rows.

    `train` and `test` are rows and targets, `others` evaluations by names. The fit took
    `seconds` and `peak_bytes` of memory, if they are known. `held_out` says which rows
    the test rows are, if they are not drawn at random.
    """

    model: Any
    train: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]
    evaluation: Evaluation
    others: dict[str, Evaluation]
    seconds: float | None = None
    peak_bytes: int | None = None
    held_out: str = ""

    @property
    def verdict(self) -> str | None:
        """A sentence, if the model is no better than a constant."""
        constant, other = next(iter(self.others.items()))
        own, theirs = self.evaluation.scores, other.scores
        name, said = "rmse", "root mean squared error"
        spread = 2 * self.evaluation.standard_error
        if "rmse" not in own:  # rare classes have small errors, whatever is predicted
            name, said, spread = "log_loss", "log loss", 0.0
        if own[name] < theirs[name] - spread:
            return None
        within = " within two standard errors" if spread else ""
        return (
            f"on held-out rows this model is no better than the {constant}{within}: "
            f"its {said} is {own[name]:.4g}, and {theirs[name]:.4g} without any column."
        )

    def record(self) -> dict[str, Any]:
        """Return its entry in results, JSON-compatible."""
        model, names = self.model, self.train[0].columns
        shares = model.feature_importances_.tolist()
        others = self.others.items()
        trials = model.leaderboard_.to_dict("records")
        return {
            "n_train": len(self.train[1]),
            "n_test": len(self.test[1]),
            "scores": _defined(self.evaluation.scores),
            "standard_error": self.evaluation.standard_error,
            "baselines": {name: _defined(other.scores) for name, other in others},
            "leaderboard": [_defined(trial) for trial in trials],
            "importances": dict(zip(names, shares, strict=True)),
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
    predictions = np.asarray(model.predict(X) if predictions is None else predictions)
    if is_classifier(model):
        wrong, P = predictions != y, None
        scores = {"error": float(wrong.mean())}
        if hasattr(model, "predict_proba"):
            P = model.predict_proba(X)
            scores["log_loss"] = _mean_log_loss(model, P, y)
            scores["auc"] = _area_under_curve(model, P, y)
        error = mean_error(wrong, groups)
        return Evaluation(predictions, scores, error, P)
    residuals = predictions - y
    largest = float(abs(residuals).max()) or 1.0  # squares of huge numbers overflow
    rmse, spread = root_mean_square(residuals), root_mean_square(y - y.mean())
    scores = {"rmse": rmse, "mae": abs(residuals).mean()}
    scores["r2"] = 1 - (rmse / spread) ** 2 if spread > 0 else math.nan
    intervals = None
    if hasattr(model, "predict_interval"):
        intervals = model.predict_interval(X, coverage=COVERAGE)
        scores["coverage"] = float(
            ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).mean()
        )
    scores = {name: float(value) for name, value in scores.items()}
    error = largest * rmse_error((residuals / largest) ** 2, groups)
    return Evaluation(predictions, scores, error, intervals=intervals)


def root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean square of numbers whose squares may overflow."""
    largest = float(abs(values).max()) or 1.0
    return largest * math.sqrt(((values / largest) ** 2).mean())


def mean_error(values: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Return the standard error of the mean of n values.

    Sums over groups are independent, rows of one group need not be (cluster-robust
    standard errors: Liang & Zeger 1986, "Longitudinal data analysis using generalized
    linear models").
    """
    n = len(values)
    if groups is None:
        return float(values.std()) / math.sqrt(n)
    codes = np.unique(groups, return_inverse=True)[1]
    sums = np.bincount(codes, values - values.mean())
    m = len(sums)
    return math.sqrt((sums**2).sum() * m / max(m - 1, 1)) / n


def rmse_error(squares: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Return the standard error of the root of a mean of n squares.

    It follows by the delta method from a normal mean.
    """
    rmse = math.sqrt(squares.mean())
    return mean_error(squares, groups) / (2 * rmse) if rmse else 0.0


def baselines(
    X: Any, y: np.ndarray, task: str, texts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a constant and a linear model, fitted, by their names.

    `texts` are the columns of free text.
    """
    if task == "classification":
        constant, linear = DummyClassifier(), LogisticRegression(max_iter=1000)
        names = "most frequent class", "logistic regression"
    else:
        constant, linear = DummyRegressor(), RidgeCV(np.logspace(-3, 4, 15))
        names = "mean", "ridge regression"
    steps: list[Any] = [TabularEncoder(), linear]
    if texts:
        steps.insert(0, TextEncoder(texts, classes=task == "classification"))
    models = constant, make_pipeline(*steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence
        fitted = [model.fit(X, y) for model in models]
    return dict(zip(names, fitted, strict=True))


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
