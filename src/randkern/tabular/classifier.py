"""Classification of tables without tuning."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern.kernels import Kernel, Linear
from randkern.models import KernelLogistic, KernelRidgeClassifier
from randkern.models._targets import read_labels
from randkern.models.calibration import log_probabilities_at, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.estimators import MOST_MEMBERS, Tabular
from randkern.tabular.leave_one_out import log_loss, log_probabilities, positive_inverse
from randkern.tabular.model import (
    MEMORY_LIMIT,
    Member,
    Table,
    factorising_seconds,
    gram_seconds,
    normalised,
    operations_per_second,
    pass_seconds,
    quietly,
)
from randkern.tabular.search import Trial

# With more rows, landmarks replace the exact kernel.
_FEATURE_ROWS = 8000
# Penalties of logistic regression relative to least squares, and the first one tried.
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)
_FIRST_PENALTY = 0.3
# Divisors of the penalty that are tried for many rows, when few have chosen it, the
# landmarks of these fits, and at most how many rows are held out.
_MULTIPLES = (0.25, 1.0, 4.0, 16.0, 64.0)
_FEW_LANDMARKS, _MOST_HELD = 500, 4000
# The number of fits for which time is kept, if they are to fit in.
_PENALTY_FITS = 3
# Rows with which kernels are compared then, and the share of the time of the last fit
# that is left for it at least.
_COMPARED_ROWS, _COMPARING_SHARE = 8000, 0.75
# About how much longer a fit takes with four times the C.
_GROWTH = 1.3
_LEAST_CHANCE = 1e-8
_MOST_ROWS = 2000
_TOL = 1e-3
_LEAST_ITER, _MAX_ITER = 40, 300
# Numbers of landmarks, number of entries of their features in between, and rough
# numbers of passes of logistic regression: over them, and over an exact kernel.
_LANDMARKS = (500, 4000)
_ENTRIES = 2 * 10**8
_LANDMARK_PASSES, _PASSES = 90, 120
# Smallest weight of a part, and number of steps of the weights.
_LEAST_WEIGHT = 0.05
_BLEND_STEPS = 300
# The share of the optimism of the learned numbers that the temperature allows for, as
# their prior keeps them from overfitting freely, and the largest optimism considered.
_OPTIMISM_SHARE, _MOST_OPTIMISM = 0.5, 0.2
# Shares of the time for few rows and for many: at most for the search, and at least for
# the last fits.
_SEARCH_SHARES, _LAST_SHARES = (0.45, 0.35), (0.25, 0.45)
# Shares of the remaining time for a fit with landmarks, to few rows and to many, where
# the rest is for choosing the penalty.
_LAST_FIT_SHARES = (0.7, 0.4)
# Factor by which landmarks of many rows grow, and the share of the time then left that
# the fit may take.
_STEP, _GROWN_SHARE = 1.5, 0.8


@dataclass(frozen=True)
class _Part:
    """A candidate for a member of the model.

    `share` is the penalty of logistic regression relative to least squares, None for
    least squares; `P` holds the leave-one-out probabilities, with loss `loss`.
    """

    trial: Trial
    share: float | None
    P: np.ndarray
    loss: float


class TabularClassifier(ClassifierMixin, Tabular):
    """Classification of tables by a learned kernel, without preprocessing or tuning.

    The kernels are those of :class:`TabularRegressor`, learned by the leave-one-out log
    loss of least squares on labels coded as ±1, divided by a temperature; with more
    than 2,500 rows (at most 10,000 are searched) each step uses different rows. With
    fewer, one kernel has a single lengthscale for all columns. Logistic regression is
    also fitted with the best few kernels, each plus a constant, with a penalty chosen
    by the leave-one-out log loss, approximated by one Newton step. The model is the
    weighted mean of the probabilities of these fits with the smallest log loss, with a
    temperature.

    Parameters
    ----------
    time_limit : float, default=60
        Seconds, after which the best model so far is returned. The size of the last fit
        follows from an estimate of its time. Compilation by Numba on first use, once
        per installation, does not count.
    warm_start : bool, default=False
        Whether another `fit` starts from the kernels of the last model: they are
        compared and fitted to the new rows, with at most as many landmarks and without
        a search. The table must have the same columns.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    model_, leaderboard_, feature_importances_
        The fitted model; a dataframe of the trials with the root mean squared errors of
        least squares on codes ±1, relative to those of the mean code (trials are chosen
        by log loss), sorted by rows, descending, then by error; and the share of each
        column in the variance of least-squares predictions, see
        :class:`TabularRegressor`.
    temperature_ : float
        The divisor of the logarithms of probabilities.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    Up to 8,000 rows the kernel is exact if time allows. With more rows Nyström features
    replace it, and the model is a single fit whose penalty held-out rows choose.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern neural networks";
    Owhadi & Yoo 2019, "Kernel flows: from learning kernels from data into the abyss".

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
    _most_searched = (10_000, 10_000)
    _judging_share = 0.05

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TabularClassifier:
        """Search for kernels, and fit the model.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,), optional
            Rows of weight zero are omitted. Up to 16,000 rows, copies of a row are
            merged into one row with the sum of their weights.
        """
        report = FitReport(self, X, y, None)
        X, weight = self._begin(X, y, sample_weight)
        y = column_or_1d(read_labels(y), warn=True)
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
        many = len(Y) > _FEATURE_ROWS
        self._last_seconds = _LAST_SHARES[many] * self.time_limit
        seconds = _SEARCH_SHARES[many] * self.time_limit
        table = Table(X, Y, weight, labels)
        trials = self._search(table, stream, report, seconds)
        judged = self._judged(trials, table)[:MOST_MEMBERS]
        chosen = self._calibrated(judged, table)
        members = self._fit_members(chosen, table, stream)
        self._finish(members, [part.trial for _, part in chosen], table)
        self._forget()
        report.end()
        return self

    def _calibrated(
        self, judged: list[tuple[Trial, np.ndarray]], table: Table
    ) -> list[tuple[float, _Part]]:
        """Return the parts of the model with their weights; set the temperature."""
        # The logits of several classes are separate systems of equations.
        n = int(_MOST_ROWS / max(len(self.classes_) / 2, 1) ** (1 / 3))
        rows = self._searched[:n]
        labels, Y, weight = table.labels[rows], table.Y[rows], table.weight[rows]
        parts: list[_Part] = []
        start = _PENALTIES.index(_FIRST_PENALTY)
        for at, (trial, _) in enumerate(judged):
            if at and self._left() < self._last_seconds:
                break
            spare = self._left() - self._last_seconds
            until = self._clock() + spare / (len(judged) - at)
            part = self._best_penalty(trial, labels, weight, start, until)
            parts.append(part)
            start = _PENALTIES.index(part.share)
        if len(table) > _FEATURE_ROWS:  # one good fit is worth more than a blend
            best = min(parts, key=lambda part: part.loss)
            self._set_temperature(best.P, labels, weight)
            return [(1.0, self._compared(parts, table) or best)]
        handicaps = [0.0] * len(parts)
        for trial, residuals in judged:
            F = Y - residuals[: len(rows)] / np.sqrt(weight)[:, None]
            P = np.exp(log_probabilities(F, Y, weight)[0])
            parts.append(_Part(trial, None, P, _log_loss(P, labels, weight)))
            handicaps.append(trial.optimism(len(rows)))
        weights, self.temperature_ = _blend_probabilities(
            [part.P for part in parts], handicaps, labels, weight
        )
        order = np.argsort(-weights, kind="stable")
        return [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]

    def _compared(self, parts: list[_Part], table: Table) -> _Part | None:
        """Return the best part with more rows, and set the temperature.

        Kernels that few rows hardly distinguish may differ with many. None if there is
        nothing to compare, or no time.
        """
        held, rest = self._held_and_rest(len(table))
        some, n = table.take(np.concatenate([held, rest[:_COMPARED_ROWS]])), len(held)
        best: _Part | None = None
        for part in sorted(parts, key=lambda part: part.loss):
            late = self._left() < _COMPARING_SHARE * self._last_seconds
            if late or len(parts) == 1:
                break
            encoded = self._encoded_table(part.trial, some, "float32")
            found = self._judged_apart(
                part.trial, part.share, _FEW_LANDMARKS, encoded, n
            )
            # Together with the rows that have judged it before: mostly others.
            loss = np.average([found.loss, part.loss], weights=[n, len(part.P)])
            if best is None or loss < best.loss:
                best = replace(found, loss=float(loss))
        if best is not None:
            self._set_temperature(best.P, some.labels[:n], some.weight[:n])
        return best

    def _held_and_rest(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return held-out rows, most of which the search has not seen, and the rest."""
        n_held = min(_MOST_HELD, n // 8)
        return self._order[-n_held:], self._order[:-n_held]

    def _judged_apart(
        self, trial: Trial, share: float | None, D: int, encoded: Table, n_held: int
    ) -> _Part:
        """Return a part with probabilities of the first encoded rows.

        They are those of a fit to the others, with D landmarks.
        """
        U, labels, weight = encoded.X, encoded.labels, encoded.weight
        P = np.full((n_held, len(self.classes_)), 1 / len(self.classes_))
        if len(np.unique(labels[n_held:])) > 1:
            D = min(D, len(labels) - n_held)
            model = _logistic(trial.kernel, _strength(trial, share), D, 0)
            given = None if self._counts is None else weight[n_held:]
            quietly(model, U[n_held:], labels[n_held:], given)
            P[:] = _LEAST_CHANCE
            found = model.predict_proba(U[:n_held])
            P[:, model.classes_] = np.maximum(found, _LEAST_CHANCE)
        loss = _log_loss(P, labels[:n_held], weight[:n_held])
        return _Part(trial, share, P, loss)

    def _set_temperature(
        self, P: np.ndarray, labels: np.ndarray, weight: np.ndarray
    ) -> None:
        of_class = labels[:, None] == np.arange(len(self.classes_))
        self.temperature_ = temperature_of(np.log(P), of_class, weight)

    def _best_penalty(
        self,
        trial: Trial,
        labels: np.ndarray,
        weight: np.ndarray,
        start: int,
        until: float,
    ) -> _Part:
        """Return logistic regression with the penalty of smallest log loss.

        Penalties are shares of that of least squares; the search moves from `start` to
        neighbours.
        """
        U = self._sample(trial)[: len(labels)]
        gram = np.array(with_constant(trial.kernel)._gram(U, None))

        def judge(at: int) -> _Part:
            share = _PENALTIES[at]
            P = np.full((len(labels), len(self.classes_)), 1 / len(self.classes_))
            present = np.unique(labels)
            C = _strength(trial, share)
            if len(present) > 1:
                with suppress(np.linalg.LinAlgError):  # the penalty is too small
                    found = left_out(trial.kernel, C, U, gram, labels, weight)
                    P[:] = _LEAST_CHANCE
                    P[:, present] = found
            return _Part(trial, share, P, _log_loss(P, labels, weight))

        return _descended(judge, start, len(_PENALTIES), lambda: self._clock() > until)

    def _fit_members(
        self, chosen: list[tuple[float, _Part]], table: Table, stream: Stream
    ) -> list[Member]:
        members: list[Member] = []
        seed = int(stream.child("features").generator().integers(2**31))
        n, k = table.Y.shape
        # Mean 1: integers would be read as copies, only one of which is left out.
        given = None if self._counts is None else table.weight
        adapted: dict[int, Trial] = {}
        for at, (share, part) in enumerate(chosen):
            trial, n_left = part.trial, len(chosen) - at
            seconds = max(self._left(), 0.1 * self.time_limit) / n_left
            D, last = self._size(trial, n, k, part.share is not None, seconds)
            if members and last > seconds:
                break
            many = n > _FEATURE_ROWS  # a single fit, with landmarks
            if id(trial) not in adapted:
                spare = 0.8 * (seconds - last)
                if many:  # without time for the penalty, adapting is worth little
                    spare -= _PENALTY_FITS * self._few_seconds(n, k)
                adapted[id(trial)] = self._adapted(trial, table, spare)
            trial = adapted[id(trial)]
            dtype = "float64" if D is None else "float32"
            encoder = copy(self._encoders[trial.numbers]).set_params(dtype=dtype)
            encoded = self._encoded_table(trial, table, dtype)
            if part.share is None:
                model = _least_squares(trial.kernel, trial.alpha, D, seed)
            else:
                penalty, pace = part.share, 1.0
                if many and D is not None:
                    penalty, pace = self._share_with_all(
                        trial, penalty, encoded, D, last
                    )
                    D = self._grown(D, n, k, pace)
                model = _logistic(trial.kernel, _strength(trial, penalty), D, seed)
                until = max(self._left(), 0.1 * self.time_limit) / n_left
                passes = int((until / pace - 0.5 * last) / pass_seconds(n, D or n, k))
                least = _LEAST_ITER if D is None else _LANDMARK_PASSES
                model.max_iter = min(max(passes, least), _MAX_ITER)
            quietly(model, encoded.X, table.labels, given)
            members.append(Member(share, encoder, model, trial.turn))
        return normalised(members)

    def _share_with_all(
        self, trial: Trial, share: float, encoded: Table, D: int, last: float
    ) -> tuple[float, float]:
        """Return the penalty for all rows, and the ratio of real to estimated times.

        The given share is chosen with few rows, and more may need a smaller penalty.
        Held-out rows evaluate fits to the others, with fewer landmarks, while enough
        time is left for the last fit, of about `last` seconds; they also set the
        temperature. Without any fit, the ratio is 1.
        """
        k = 1 if len(self.classes_) == 2 else len(self.classes_)
        estimate = self._few_seconds(len(encoded), k)
        if self._left() < last + 2 * estimate:
            return share, 1.0
        held, rest = self._held_and_rest(len(encoded))
        few, n_held = min(D, _FEW_LANDMARKS), len(held)
        encoded = encoded.take(np.concatenate([held, rest]))
        ends = [self._clock()]

        def pace() -> float:
            return (ends[-1] - ends[-2]) / estimate

        def judge(at: int) -> _Part:
            tried = share / _MULTIPLES[at]
            part = self._judged_apart(trial, tried, few, encoded, n_held)
            ends.append(self._clock())
            return part

        def over() -> bool:
            # The next fit takes longer, and so does the last fit if it is better.
            following = _GROWTH * pace() * (estimate + last)
            return ends[-1] + following > self.time_limit

        best = _descended(judge, _MULTIPLES.index(1.0), len(_MULTIPLES), over)
        labels, weight = encoded.labels[:n_held], encoded.weight[:n_held]
        self._set_temperature(best.P, labels, weight)
        return best.share, pace()

    @staticmethod
    def _few_seconds(n: int, k: int) -> float:
        """Estimate the seconds of a fit to n rows by which penalties are compared."""
        return _landmark_seconds(n, _FEW_LANDMARKS, k, is_logistic=True)

    def _size(
        self, trial: Trial, n: int, k: int, is_logistic: bool, seconds: float
    ) -> tuple[int | None, float]:
        """Return a fit's number of landmarks and its approximate time in seconds.

        The number is None for the exact kernel.
        """
        if n <= _MOST_ROWS:
            return None, 0.0  # about the time of the fits for penalties
        if n <= _FEATURE_ROWS:
            passes = _PASSES if is_logistic else 0
            last = factorising_seconds(n) + passes * pass_seconds(n, n, k)
            last += 2 * gram_seconds(n, self._sample(trial).shape[1])
            if last < seconds:
                return None, last
        least, D = _LANDMARKS[0], self._most_landmarks(n)
        share = _LAST_FIT_SHARES[n > _FEATURE_ROWS]
        while D > least and _landmark_seconds(n, D, k, is_logistic) > share * seconds:
            D = max(int(0.9 * D), least)
        return D, _landmark_seconds(n, D, k, is_logistic)

    def _most_landmarks(self, n: int) -> int:
        """Return the number of landmarks that memory allows."""
        least, most = _LANDMARKS
        if self._candidates is not None:  # no more than were evaluated
            most = min(most, self.model_.members[0].fit.n_components or most)
        return max(min(most, _ENTRIES // n), least)

    def _grown(self, D: int, n: int, k: int, pace: float) -> int:
        """Return a larger number of landmarks if measured times allow it.

        It grows in few large steps, which rarely depend on small differences in time.
        """
        more, left = min(int(_STEP * D), self._most_landmarks(n)), self._left()
        last = pace * _landmark_seconds(n, more, k, is_logistic=True)
        if more <= D or last > _GROWN_SHARE * left:
            return D
        return self._grown(more, n, k, pace)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities of the classes, (n, n_classes).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of calibrated probabilities, (n, n_classes).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        X = self._rows_of(X)
        return log_probabilities_at(self.model_.predict(X), self.temperature_)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable classes, (n,).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        P = self.predict_proba(X)
        return self.classes_[P.argmax(axis=1)]


def _descended(
    judge: Callable[[int], Any], start: int, size: int, over: Callable[[], bool]
) -> Any:
    """Return what `judge` finds at a place in a list with no better neighbour.

    Losses decrease on the way from `start` to this place.
    """
    best, at = judge(start), start
    for step in (1, -1):
        while 0 <= at + step < size and not over():
            found = judge(at + step)
            if not found.loss < best.loss:
                break
            best, at = found, at + step
        if at != start:
            break
    return best


def with_constant(kernel: Kernel) -> Kernel:
    """Return the sum of a kernel and a constant, which acts as an intercept."""
    return kernel + Linear(1.0, columns=[])


def left_out(
    kernel: Kernel,
    C: float,
    X: np.ndarray,
    gram: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Approximate the leave-one-out probabilities of rows, (n, k).

    It takes one Newton step from the fit to all rows (Rad & Maleki 2020, "A scalable
    estimate of the out-of-sample prediction error via approximate leave-one-out
    cross-validation"): with W the curvature of the losses, the fit is a least-squares
    fit to the logits plus W⁻¹(y − p).
    """
    model = _logistic(kernel, C, None, 0)
    quietly(model, X, labels, weight)
    F, Y = model.decision_function(X), labels[:, None] == model.classes_
    if binary := F.ndim == 1:
        F, Y = F[:, None], Y[:, 1:]
    P = np.clip(expit(F) if binary else softmax(F, axis=1), _LEAST_CHANCE, None)
    P = np.clip(P, None, 1 - _LEAST_CHANCE)
    slopes, strength = (Y - P)[:, :, None], C * weight[:, None, None]
    if binary:
        W = (P * (1 - P))[:, :, None]
        B = positive_inverse(gram.copy(), 1 / (strength * W).ravel())
        B = B.diagonal()[:, None, None]
    else:
        # Both map equal logits to 0: changing that eigenvalue changes no probability.
        W = P[:, :, None] * (np.eye(F.shape[1]) - P[:, None]) + 1
        B = _blocks_of_inverse(gram, strength[:, 0] * P) + strength
    shift = np.linalg.solve(W, slopes) - np.linalg.solve(B, strength * slopes)
    F = F + shift[:, :, 0]
    return expit(np.hstack([-F, F])) if binary else softmax(F, axis=1)


def _blocks_of_inverse(gram: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Return the blocks (n, k, k), one per row, of the inverse of I ⊗ K + W⁻¹.

    It is E − ER(RᵀER)⁻¹RᵀE with E_c = (K + D_c⁻¹)⁻¹ and R stacked identities
    (Rasmussen & Williams 2006, "Gaussian processes for machine learning", section 3.5).
    """
    (n, k), inverses = D.shape, [positive_inverse(gram.copy(), 1 / d) for d in D.T]
    factor = scipy.linalg.cholesky(sum(inverses), lower=True)
    halves = [scipy.linalg.solve_triangular(factor, E, lower=True) for E in inverses]
    blocks = np.empty((n, k, k))
    for c in range(k):
        for other in range(k):
            blocks[:, c, other] = -np.einsum("ij,ij->j", halves[c], halves[other])
        blocks[:, c, c] += inverses[c].diagonal()
    return blocks


def _landmark_seconds(n: int, D: int, k: int, is_logistic: bool) -> float:
    """Estimate the seconds of a fit with D landmarks."""
    # Features and second derivatives take some three products of n × D and D × D; in
    # single precision each takes a third of the time that a factorisation would.
    products = n * D**2 / operations_per_second()
    passes = _LANDMARK_PASSES if is_logistic else 0
    return products + passes * pass_seconds(n, D, k)


def _strength(trial: Trial, share: float | None) -> float:
    return 1 / ((share or 1.0) * trial.alpha)


def _logistic(kernel: Any, C: float, D: int | None, seed: int) -> KernelLogistic:
    return KernelLogistic(
        with_constant(kernel),
        fit_intercept=False,
        C=C,
        n_components=D,
        tol=_TOL,
        max_iter=_MAX_ITER,
        features="random" if D is None else "nystrom",
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def _least_squares(
    kernel: Kernel, alpha: float, D: int | None, seed: int
) -> KernelRidgeClassifier:
    return KernelRidgeClassifier(
        kernel,
        alpha,
        D,
        solver="cholesky",
        features="random" if D is None else "nystrom",
        fit_intercept=True,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def _log_loss(P: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
    chosen = P[np.arange(len(labels)), labels]
    losses = -np.log(np.clip(chosen, 1e-15, None))
    return float(np.average(losses, weights=weight))


def _blend_probabilities(
    parts: list[np.ndarray],
    handicaps: list[float],
    labels: np.ndarray,
    weight: np.ndarray,
    most: int = MOST_MEMBERS,
) -> tuple[np.ndarray, float]:
    """Return the weights, with sum 1, and the temperature of smallest log loss.

    At most `most` weights are nonzero; handicaps are added to the losses of parts.
    """
    chances = np.stack([P[np.arange(len(labels)), labels] for P in parts])
    chances = np.clip(chances, 1e-15, None) * np.exp(-np.array(handicaps))[:, None]
    shares = weight / weight.sum()
    kept = np.arange(len(parts))
    while True:
        found = _mixture_weights(chances[kept], shares)
        is_large = found >= _LEAST_WEIGHT
        is_large[np.argsort(-found, kind="stable")[most:]] = False
        if is_large.all():
            break
        kept = kept[is_large]  # and find the best weights without the others
    weights = np.zeros(len(parts))
    weights[kept] = found
    mean = np.tensordot(weights, np.stack(parts), axes=1)
    logits = np.log(np.clip(mean, 1e-15, None))
    of_class = labels[:, None] == np.arange(logits.shape[1])
    optimism = _OPTIMISM_SHARE * min(max(handicaps), _MOST_OPTIMISM)
    return weights, temperature_of(logits, of_class, weight, optimism=optimism)


def _mixture_weights(chances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the weights of least log loss, by the EM algorithm for mixtures."""
    weights = np.full(len(chances), 1 / len(chances))
    for _ in range(_BLEND_STEPS):
        weights = weights * ((chances / (weights @ chances)) @ shares)
    return weights / weights.sum()
