"""Scores of predictions for unseen rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from randkern._tables import days_of, is_numeric, is_time, numbers_of, objects_of
from randkern.tabular import TabularEncoder
from randkern.tabular.texts import TextEncoder

if TYPE_CHECKING:
    import pandas as pd

# Coverage of the intervals in a report.
COVERAGE = 0.9
#: Names of baselines: of the linear ones by task, and of boosted trees.
LINEAR = {"classification": "logistic regression", "regression": "ridge regression"}
TREES = "boosted trees"
# The share of the time limit for these.
_TREES_SHARE = 0.1
# The most rows for the linear model, and its seconds per row and column.
_LINEAR_ROWS, _LINEAR_CELL = 50_000, 3e-6
# Other models are far better with an error below this share of a model's.
_FAR_BETTER = 0.8


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
    def importances(self) -> np.ndarray | None:
        """The shares of columns, None as long as nobody has asked the model for them.

        They may take seconds.
        """
        return self.model._importances

    @property
    def verdict(self) -> str | None:
        """A sentence if the model is no better than a constant, or far from another."""
        own, standard_error = self.evaluation.scores, self.evaluation.standard_error
        name, label, spread = "rmse", "root mean squared error", 2 * standard_error
        if "rmse" not in own:  # rare classes have small errors, whatever is predicted
            name, label, spread = "log_loss", "log loss", 0.0
        theirs = {title: other.scores[name] for title, other in self.others.items()}
        constant = next(iter(theirs))
        best = min(theirs, key=theirs.__getitem__)
        if own[name] >= theirs[constant] - spread:
            within = " within two standard errors" if spread else ""
            return (
                f"on held-out rows this model is no better than the {constant}"
                f"{within}: its {label} is {own[name]:.4g}, and {theirs[constant]:.4g} "
                "without columns."
            )
        if theirs[best] < _FAR_BETTER * own[name] - spread:
            return (
                f"on held-out rows the {label} of {best} is {theirs[best]:.4g}, far "
                f"below the {own[name]:.4g} of this model; a larger --time-limit may "
                "help."
            )
        return None

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
    if is_classifier(model):
        wrong, P = predictions != y, None
        scores = {"error": float(wrong.mean())}
        if hasattr(model, "predict_proba"):
            P = model.predict_proba(X)
            scores["log_loss"] = _mean_log_loss(model, P, y)
            scores["auc"] = _area_under_curve(model, P, y)
        error = mean_error(wrong, groups)
        return Evaluation(predictions, scores, error, P, None, seconds)
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
    return Evaluation(predictions, scores, error, None, intervals, seconds)


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


def always(seconds: float) -> bool:
    """Return that so many seconds are left: there is no limit."""
    return True


def baselines(
    X: Any,
    y: np.ndarray,
    task: str,
    texts: Sequence[str] = (),
    time_limit: float = math.inf,
    in_time: Callable[[float], bool] = always,
) -> dict[str, Any]:
    """Return a constant, a linear model and boosted trees, fitted, by their names.

    `texts` are the columns of free text. The linear model is fitted to 50,000 rows at
    most: more would hardly change it. Trees are left out if they would take more than a
    tenth of `time_limit` seconds, by the size of the table. Both are left out if
    `in_time` says that their seconds are not left.
    """
    classes = task == "classification"
    if classes:
        fitted = {"most frequent class": DummyClassifier().fit(X, y)}
        linear = LogisticRegression(max_iter=1000)
    else:
        fitted = {"mean": DummyRegressor().fit(X, y)}
        linear = RidgeCV(np.logspace(-3, 4, 15))
    read_texts = [TextEncoder(texts, classes=classes)] if texts else []
    rows = np.linspace(0, len(y) - 1, min(len(y), _LINEAR_ROWS)).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence
        if in_time(_LINEAR_CELL * len(rows) * X.shape[1]):
            model = make_pipeline(*read_texts, TabularEncoder(), linear)
            fitted[LINEAR[task]] = model.fit(X.iloc[rows], y[rows])
        seconds = trees_seconds(X, y, task)
        if seconds <= _TREES_SHARE * time_limit and in_time(seconds):
            trees = make_pipeline(*read_texts, *_trees(X, texts, classes))
            fitted[TREES] = trees.fit(X, y)
    return fitted


def not_fitted(evaluated: EvaluatedModel) -> list[str]:
    """Return the baselines for which there was no time, none if none were asked for."""
    others = evaluated.others
    if not others:
        return []
    task = "classification" if is_classifier(evaluated.model) else "regression"
    return [name for name in (LINEAR[task], TREES) if name not in others]


def trees_seconds(X: Any, y: np.ndarray, task: str) -> float:
    """Return about how long boosted trees take on a core of 2020.

    By their 100 iterations of a tree per class, each with a pass over the rows and
    with the histograms of all leaves.
    """
    n, d = X.shape
    n_classes = len(np.unique(y)) if task == "classification" else 1
    n_trees = 100 * (n_classes if n_classes > 2 else 1)
    return n_trees * d * (3e-5 + 6e-9 * n)


def _trees(X: Any, texts: Sequence[str], classes: bool) -> list[Any]:
    """Return the steps of boosted trees for a table, with scikit-learn's defaults."""
    # Trees do not take a column without any value.
    used = [name for name in X.columns if name not in texts and X[name].notna().any()]
    columns = [X[name] for name in used]
    n_categories = sum(
        not (is_numeric(column) or is_time(column)) for column in columns
    )
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=254,  # more do not fit into the bins of the trees
    )
    encoder = make_column_transformer(
        (codes, make_column_selector(dtype_include=object)), remainder="passthrough"
    )
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(categorical_features=range(n_categories), random_state=0)
    empty = [name for name in X.columns if name not in (*used, *texts)]
    plain = FunctionTransformer(_plain_columns, kw_args={"without": empty})
    return [plain, encoder, model]


def _plain_columns(X: pd.DataFrame, without: Sequence[str]) -> pd.DataFrame:
    """Return a table of floats, and of categories as texts, missing ones as None."""
    plain = {}
    for name in X.columns.difference(without, sort=False):
        if is_numeric(X[name]):
            plain[name] = numbers_of(X[name])
        elif is_time(X[name]):
            plain[name] = days_of(X[name])
        else:
            values = objects_of(X[name])
            values[:] = [None if value is None else str(value) for value in values]
            plain[name] = values
    return type(X)(plain, dtype=None).astype(
        {name: object for name, values in plain.items() if values.dtype == object}
    )


def share_text(value: float) -> str:
    """Return a score of which 1 is perfect, with two digits of what it lacks of 1.

    At least three decimals: 0.575, 0.951, 0.99968.
    """
    lack = 1 - value
    digits = 3 if not 0 < lack < 0.01 else 1 - math.floor(math.log10(lack))
    text = f"{value:.{min(digits, 9)}f}"
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")


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
