"""Classification of tables, without a choice to make."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern.models import KernelLogistic
from randkern.models.calibration import probabilities, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.estimators import MOST_MEMBERS, Tabular, normalised
from randkern.tabular.model import (
    MEMORY_LIMIT,
    Member,
    factorising_seconds,
    gram_seconds,
    operations_per_second,
)
from randkern.tabular.search import Trial

__all__ = ["TabularClassifier"]

# Beyond so many rows landmarks take the place of the exact kernel.
_FEATURE_ROWS = 8000
# Penalties of logistic regression, over those of least squares.
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_FOLDS = (5, 3)
_FEW_ROWS = 1000
_MOST_ROWS = 2000
_TOL = 1e-3
_MAX_ITER = 300
# Numbers of landmarks, entries of their features between the two, and about how many
# passes there are over them.
_LANDMARKS = (500, 4000)
_ENTRIES = 2 * 10**8
_PASSES = 120
# Shares of the time: for the search at most, and what is left for the last fits.
_SEARCH_SHARE, _LAST_SHARE = 0.5, 0.3


class TabularClassifier(ClassifierMixin, Tabular):
    """Classification of tables as they come, by a kernel that is learned for them.

    The kernels are those of :class:`TabularRegressor`, learned from labels coded as ±1.
    With the best few of them logistic regression is then fitted, with a penalty chosen
    by the log loss in folds; so are the weights of their mean, and a temperature that
    calibrates its probabilities.

    Parameters
    ----------
    time_limit : float, default=60
        Seconds; the best that was found until then is kept. What the last fit takes is
        estimated before, and its size follows.
    random_state : int, generator or None, default=None
        Seeds all that is drawn.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    model_, leaderboard_, feature_importances_
        The fitted model, a dataframe of what was tried with its errors, and the share
        of each column in the variance of the predictions.
    temperature_ : float
        Logarithms of probabilities are divided by it.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    Up to 8,000 rows the kernel is exact, if the time allows; otherwise features of
    landmark rows take its place.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern neural networks".

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = rk.TabularClassifier(time_limit=2, random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    @with_callbacks
    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TabularClassifier:
        """Search and fit.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,), optional
            Rows of weight zero are left out. Up to 16,000 rows, copies of a row are one
            row with the sum of their weights.
        """
        report = FitReport(self, X, y, None)
        X, weight = self._begin(X, y, sample_weight)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        X, y, weight = self._used(X, y, weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of at least 2 classes, got one "
                f"class, {self.classes_.tolist()[0]!r}."
            )
        X, labels, weight = self._merged(X, labels, weight)
        weight = self._normalised(weight)
        stream = root_stream(self.random_state)
        Y = 2.0 * (labels[:, None] == np.arange(len(self.classes_))) - 1
        Y = Y[:, 1:] if len(self.classes_) == 2 else Y
        self._held_out = None
        seconds = _SEARCH_SHARE * self.time_limit
        trials = self._search(X, Y, weight, stream, report, seconds)
        judged = self._judged(trials, X, Y, weight)[:MOST_MEMBERS]
        chosen = self._calibrated([trial for trial, _ in judged], labels, weight)
        members = self._fit_members(chosen, X, labels, Y, weight, stream)
        self._finish(members, "KernelLogistic")
        self._forget()
        report.end()
        return self

    def _calibrated(
        self, trials: list[Trial], labels: np.ndarray, weight: np.ndarray
    ) -> list[tuple[float, float, Trial]]:
        """Return the final weights, penalties and trials; set the temperature."""
        n = min(_MOST_ROWS, len(self._searched))
        rows = self._searched[:n]
        labels, weight = labels[rows], weight[rows]
        counts = np.bincount(labels)
        n_folds = min(_FOLDS[n > _FEW_ROWS], n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes with few rows
            folds = (
                list(StratifiedKFold(n_folds).split(labels, labels))
                if (counts.max() >= n_folds)
                else []
            )
        found: list[Any] = []
        for at, trial in enumerate(trials):
            if found and self._left() < _LAST_SHARE * self.time_limit:
                break
            spare = self._left() - _LAST_SHARE * self.time_limit
            until = self._clock() + spare / (len(trials) - at)
            found.append(self._best_penalty(trial, labels, weight, folds, until))
        found.sort(key=lambda part: part[0])
        parts = [part for _, _, part, _ in found]
        weights, self.temperature_ = _blend_probabilities(parts, labels, weight)
        chosen = [
            (float(share), C, trial)
            for share, (_, C, _, trial) in zip(weights, found, strict=True)
            if share > 0
        ]
        return sorted(chosen, key=lambda part: -part[0])

    def _best_penalty(
        self,
        trial: Trial,
        labels: np.ndarray,
        weight: np.ndarray,
        folds: list[Any],
        until: float,
    ) -> tuple[float, float, np.ndarray, Trial]:
        """Return the least log loss, its C, the probabilities of rows left out."""
        U = self._sample(trial)[: len(labels)]
        best: Any = None
        for share in _PENALTIES[::-1]:
            C = 1 / (share * trial.alpha)
            P = np.full((len(labels), len(self.classes_)), 1 / len(self.classes_))
            for train, held in folds:
                if best is not None and self._clock() > until:
                    return best
                model = _logistic(trial.kernel, C, None, 0)
                if len(np.unique(labels[train])) < 2:
                    continue
                _quietly(model, U[train], labels[train], weight[train])
                P[held[:, None], model.classes_] = model.predict_proba(U[held])
            loss = _log_loss(P, labels, weight)
            if best is not None and loss > best[0]:
                break
            best = (loss, C, P, trial)
        return best

    def _fit_members(
        self,
        chosen: list[Any],
        X: Any,
        labels: np.ndarray,
        Y: np.ndarray,
        weight: np.ndarray,
        stream: Stream,
    ) -> list[Member]:
        members: list[Member] = []
        seed = int(stream.child("features").generator().integers(2**31))
        for at, (share, C, trial) in enumerate(chosen):
            seconds = max(self._left(), 0.1 * self.time_limit) / (len(chosen) - at)
            D, last = self._size(trial, len(labels), Y.shape[1], seconds)
            if members and last > seconds:
                break
            trial_then = trial
            trial = self._adapted(trial, X, Y, weight, 0.8 * (seconds - last))
            C *= trial_then.alpha / trial.alpha
            dtype = "float64" if D is None else "float32"
            encoder = copy(self._encoders[trial.numbers]).set_params(dtype=dtype)
            model = _logistic(trial.kernel, C, D, seed)
            U = self._encoded(trial, X, dtype)
            _quietly(model, U, labels, None if self._counts is None else weight)
            members.append(Member(share, encoder, model, trial.turn))
        return normalised(members)

    def _size(
        self, trial: Trial, n: int, k: int, seconds: float
    ) -> tuple[int | None, float]:
        """Return how many landmarks a fit has, None for the exact kernel.

        And about how many seconds it takes.
        """
        if n <= _MOST_ROWS:
            return None, 0.0  # about what the fits in folds have taken
        rate = operations_per_second()
        if n <= _FEATURE_ROWS:
            last = factorising_seconds(n) + 4 * n**2 * k * _PASSES / rate
            last += 2 * gram_seconds(trial.kernel, self._sample(trial), n)
            if last < seconds:
                return None, last
        least, most = _LANDMARKS
        D = max(min(most, _ENTRIES // n), least)

        def last_of(D: int) -> float:
            return (2 * D + 4 * k * _PASSES) * n * D / rate

        while D > least and last_of(D) > 0.7 * seconds:
            D = max(int(0.9 * D), least)
        return D, last_of(D)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities of the classes, (n, n_classes)."""
        X = self._rows_of(X)
        return probabilities(self.model_.predict(X), self.temperature_)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable classes, (n,)."""
        P = self.predict_proba(X)
        return self.classes_[P.argmax(axis=1)]


def _logistic(kernel: Any, C: float, D: int | None, seed: int) -> KernelLogistic:
    return KernelLogistic(
        kernel,
        C=C,
        n_components=D,
        tol=_TOL,
        max_iter=_MAX_ITER,
        features="random" if D is None else "nystrom",
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def _quietly(model: Any, X: np.ndarray, labels: np.ndarray, weight: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, labels, weight)


def _log_loss(P: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
    chosen = P[np.arange(len(labels)), labels]
    losses = -np.log(np.clip(chosen, 1e-15, None))
    return float(np.average(losses, weights=weight))


def _blend_probabilities(
    parts: list[np.ndarray], labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return weights of sum 1, and the temperature, of least log loss."""

    def weights_of(z: np.ndarray) -> np.ndarray:
        weights = np.exp(z - z.max())
        return weights / weights.sum()

    def mean(weights: np.ndarray) -> np.ndarray:
        return sum(w * P for w, P in zip(weights, parts, strict=True))

    def loss(z: np.ndarray) -> float:
        return _log_loss(mean(weights_of(z)), labels, weight)

    weights = np.ones(1)
    if len(parts) > 1:
        found = minimize(loss, np.zeros(len(parts)), method="Nelder-Mead")
        weights = weights_of(found.x)
        weights[weights < 0.05] = 0.0
        weights /= weights.sum()
    logits = np.log(np.clip(mean(weights), 1e-15, None))
    of_class = labels[:, None] == np.arange(logits.shape[1])
    return weights, temperature_of(logits, of_class, weight)
