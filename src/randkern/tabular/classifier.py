"""Classification of tables, without a choice to make."""

from __future__ import annotations

import warnings
from copy import copy
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.linalg
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern.kernels import Kernel, Linear
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
    pass_seconds,
)
from randkern.tabular.search import Trial, log_loss, positive_inverse

__all__ = ["TabularClassifier"]

# Beyond so many rows landmarks take the place of the exact kernel.
_FEATURE_ROWS = 8000
# Penalties of logistic regression, over those of least squares; the first to try.
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)
_FIRST_PENALTY = 0.3
_LEAST_CHANCE = 1e-8
_MOST_ROWS = 2000
_TOL = 1e-3
_LEAST_ITER, _MAX_ITER = 40, 300
# Numbers of landmarks, entries of their features between the two, and about how many
# passes there are over them.
_LANDMARKS = (500, 4000)
_ENTRIES = 2 * 10**8
_PASSES = 120
# Shares of the time: for the search at most, and what is left for the last fits.
_SEARCH_SHARE, _LAST_SHARE = 0.5, 0.3


class TabularClassifier(ClassifierMixin, Tabular):
    """Classification of tables as they come, by a kernel that is learned for them.

    The kernels are those of :class:`TabularRegressor`, learned by the log loss that
    least squares to labels coded as ±1, over a temperature, have on rows left out. With
    the best few of them, each plus a constant, logistic regression is then fitted, with
    a penalty chosen by its log loss on rows left out, to one step of Newton's method;
    so are the weights of their mean, and a temperature that calibrates its
    probabilities.

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

    _loss = staticmethod(log_loss)

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
        rows = self._searched[:_MOST_ROWS]
        labels, weight = labels[rows], weight[rows]
        found: list[Any] = []
        start = _PENALTIES.index(_FIRST_PENALTY)
        for at, trial in enumerate(trials):
            if found and self._left() < _LAST_SHARE * self.time_limit:
                break
            spare = self._left() - _LAST_SHARE * self.time_limit
            until = self._clock() + spare / (len(trials) - at)
            found.append(self._best_penalty(trial, labels, weight, start, until))
            start = _PENALTIES.index(found[-1][1])
        found.sort(key=itemgetter(0))
        parts = [P for _, _, P, _ in found]
        weights, self.temperature_ = _blend_probabilities(parts, labels, weight)
        chosen = [
            (float(weight), 1 / (share * trial.alpha), trial)
            for weight, (_, share, _, trial) in zip(weights, found, strict=True)
            if weight > 0
        ]
        return sorted(chosen, key=lambda part: -part[0])

    def _best_penalty(
        self,
        trial: Trial,
        labels: np.ndarray,
        weight: np.ndarray,
        start: int,
        until: float,
    ) -> tuple[float, float, np.ndarray, Trial]:
        """Return the least log loss, its penalty, the probabilities of rows left out.

        Penalties are shares of that of least squares, and neighbours are tried from
        the `start` on.
        """
        U = self._sample(trial)[: len(labels)]
        gram = np.array(with_constant(trial.kernel)._gram(U, None))

        def judge(at: int) -> tuple[float, float, np.ndarray, Trial]:
            share = _PENALTIES[at]
            P = np.full((len(labels), len(self.classes_)), 1 / len(self.classes_))
            present = np.unique(labels)
            if len(present) > 1:
                C = 1 / (share * trial.alpha)
                P[:, present] = left_out(trial.kernel, C, U, gram, labels, weight)
            return _log_loss(P, labels, weight), share, P, trial

        best, at = judge(start), start
        for step in (1, -1):
            while 0 <= at + step < len(_PENALTIES) and self._clock() < until:
                found = judge(at + step)
                if not found[0] < best[0]:
                    break
                best, at = found, at + step
            if at != start:
                break
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
        n, k = Y.shape
        for at, (share, C, trial) in enumerate(chosen):
            seconds = max(self._left(), 0.1 * self.time_limit) / (len(chosen) - at)
            D, last = self._size(trial, n, k, seconds)
            if members and last > seconds:
                break
            trial_then = trial
            trial = self._adapted(trial, X, Y, weight, 0.8 * (seconds - last))
            C *= trial_then.alpha / trial.alpha
            dtype = "float64" if D is None else "float32"
            encoder = copy(self._encoders[trial.numbers]).set_params(dtype=dtype)
            model = _logistic(trial.kernel, C, D, seed)
            U = self._encoded(trial, X, dtype)
            until = max(self._left(), 0.1 * self.time_limit) / (len(chosen) - at)
            passes = int((until - 0.5 * last) / pass_seconds(n, D or n, k))
            model.max_iter = min(max(passes, _LEAST_ITER), _MAX_ITER)
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
            return None, 0.0  # about what the fits for penalties have taken
        rate = operations_per_second()
        if n <= _FEATURE_ROWS:
            last = factorising_seconds(n) + _PASSES * pass_seconds(n, n, k)
            last += 2 * gram_seconds(trial.kernel, self._sample(trial), n)
            if last < seconds:
                return None, last
        least, most = _LANDMARKS
        D = max(min(most, _ENTRIES // n), least)

        def last_of(D: int) -> float:
            return 2 * n * D**2 / rate + _PASSES * pass_seconds(n, D, k)

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


def with_constant(kernel: Kernel) -> Kernel:
    """Return the sum of a kernel and a constant, for an intercept."""
    return kernel + Linear(1.0, columns=[])


def left_out(
    kernel: Kernel,
    C: float,
    X: np.ndarray,
    gram: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Return about the probabilities of rows that are left out in turn, (n, k).

    By one step of Newton's method from a fit to all (Rad & Maleki 2020, "A scalable
    estimate of the out-of-sample prediction error via approximate leave-one-out
    cross-validation"): with W the curvature of the losses, the fit is that of least
    squares to the logits plus W⁻¹(y − p).
    """
    model = _logistic(kernel, C, None, 0)
    _quietly(model, X, labels, weight)
    F = model.decision_function(X)
    if F.ndim == 1:
        F = np.column_stack([np.zeros(len(F)), F])
    Y = labels[:, None] == model.classes_
    P = np.clip(softmax(F, axis=1), _LEAST_CHANCE, None)
    P /= P.sum(axis=1, keepdims=True)
    slopes, strength = (Y - P)[:, :, None], C * weight[:, None, None]
    both = np.full((F.shape[1], F.shape[1]), 1.0)
    W = P[:, :, None] * (np.eye(F.shape[1]) - P[:, None]) + both
    B = _blocks_of_inverse(gram, strength[:, 0] * P) + strength * both
    shift = np.linalg.solve(W, slopes) - np.linalg.solve(B, strength * slopes)
    return softmax(F + shift[:, :, 0], axis=1)


def _blocks_of_inverse(gram: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Return the blocks (n, k, k) of rows of the inverse of I ⊗ K + W⁻¹.

    It is E − ER(RᵀER)⁻¹RᵀE with E_c = (K + D_c⁻¹)⁻¹ and R stacked identities
    (Rasmussen & Williams 2006, "Gaussian processes for machine learning", section 3.5).
    For two classes a fit of one logit is meant, of half the kernel each.
    """
    (n, k), E = D.shape, []
    share = 0.5 if k == 2 else 1.0
    for c in range(k):
        E.append(positive_inverse(share * gram, 1 / D[:, c]))
    factor = scipy.linalg.cholesky(sum(E), lower=True)
    halves = [scipy.linalg.solve_triangular(factor, part, lower=True) for part in E]
    blocks = np.empty((n, k, k))
    for c in range(k):
        for other in range(k):
            blocks[:, c, other] = -np.einsum("ij,ij->j", halves[c], halves[other])
        blocks[:, c, c] += E[c].diagonal()
    return blocks


def _logistic(kernel: Any, C: float, D: int | None, seed: int) -> KernelLogistic:
    return KernelLogistic(
        with_constant(kernel),
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
