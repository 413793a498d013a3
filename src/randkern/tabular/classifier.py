"""Classification of tables without tuning."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern.kernels import Kernel
from randkern.models import (
    KernelRidgeClassifier,
    KernelRidgeClassifierCV,
)
from randkern.models._targets import read_labels
from randkern.models.calibration import log_probabilities_at, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.base import Rows, Tabular
from randkern.tabular.learning import MAX_MEMBERS, Learning
from randkern.tabular.leave_one_out import (
    leave_one_out,
    log_loss,
    log_probabilities,
)
from randkern.tabular.local import fit_in_cells, most_rows
from randkern.tabular.logistic import (
    LANDMARK_PASSES,
    MAX_ITER,
    MIN_CHANCE,
    PASSES,
    left_out,
    left_out_seconds,
    logistic,
    logistic_seconds,
    with_constant,
)
from randkern.tabular.model import (
    MEMORY_LIMIT,
    Member,
    Table,
    TabularModel,
    fit_quietly,
    normalised,
)
from randkern.tabular.search import Trial
from randkern.tabular.warm_start import Candidates
from randkern.tabular.work import (
    Stage,
    Work,
    evaluation_seconds,
    exact_seconds,
    gram_seconds,
    landmark_seconds,
    largest,
    pass_seconds,
)

# With more rows, cells and landmarks replace the exact kernel of all rows.
_FEATURE_ROWS = 8000
# Penalties of logistic regression relative to least squares, and the first one tried.
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)
_FIRST_PENALTY = 0.3
# Divisors of the penalty that are tried for many rows, when few have chosen it, the
# least number of landmarks of these fits, and at most how many rows are held out.
_MULTIPLES = (0.25, 1.0, 4.0, 16.0, 64.0)
_FEW_LANDMARKS, _MAX_HELD = 500, 2500
# The number of fits for which time is kept, if they are to fit in.
_PENALTY_FITS = 3
# Share of the time for adapting each of the best kernels to the rows that evaluate it.
_ADAPTING_SHARE = 0.05
# Rows with which kernels are compared then, and the share of the time of the last fit
# that is left for it at least.
_COMPARED_ROWS, _COMPARING_SHARE = 8000, 0.75
# About how much longer a fit takes with four times the C.
_GROWTH = 1.3
# Share of the remaining time for the fit in cells.
_CELLS_SHARE = 0.6
_MAX_ROWS = 2000
_MIN_ITER = 40
# Numbers of landmarks, and the number of entries of their features in between.
_LANDMARKS = (500, 4000)
_ENTRIES = 2 * 10**8
# Smallest weight of a part, and number of steps of the weights.
_MIN_WEIGHT = 0.05
_BLEND_STEPS = 300
# The share of the optimism of the learned numbers that the temperature allows for, as
# their prior keeps them from overfitting freely, and the largest optimism considered.
_OPTIMISM_SHARE, _MAX_OPTIMISM = 0.5, 0.2
# Shares of the time for few rows and for many: at most for the search, and at least for
# the last fits.
_SEARCH_SHARES, _LAST_SHARES = (0.45, 0.35), (0.25, 0.45)
# Shares of the remaining time for a fit with landmarks, to few rows and to many, where
# the rest is for choosing the penalty.
_LAST_FIT_SHARES = (0.7, 0.4)
# Share of the time in which the fewest landmarks must fit the rows that are used, and
# the least for the last fits.
_MIN_FIT_SHARE, _MIN_SHARE = 0.3, 0.1


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
        A budget of work, in seconds of a core of modest speed, from which the rows,
        steps and kernels of the fit follow; and a deadline in seconds, which ends what
        is late on slower machines, with a
        :class:`~randkern.exceptions.DeadlineWarning`. Compilation by Numba on first
        use, once per installation, does not count.
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
        column in the variance of least-squares predictions, for equally many rows of
        each class as far as possible, see :class:`TabularRegressor`.
    temperature_ : float
        The divisor of the logarithms of probabilities.
    fit_report_ : dict
        See :class:`TabularRegressor`.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    Up to 8,000 rows the kernel is exact if time allows. With more rows, up to 2,500 of
    them are held out, which weight two fits to the others and set the temperature:
    least squares with the exact kernel in overlapping cells (``features="local"`` of
    :class:`~randkern.KernelRidgeClassifierCV`), for which kernels are learned further
    from the rows of single cells, and logistic regression on Nyström features.

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

    @all_or_nothing
    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> TabularClassifier:
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
        work = Work(float(self.time_limit))
        report = FitReport(self, X, y, None)
        X, weight = self._read(X, y, sample_weight)
        y = column_or_1d(read_labels(y), warn=True)
        check_classification_targets(y)
        rows = Rows(X, y, weight, sample_weight is not None)
        rows = rows.used(type(self).__name__)
        self.classes_, labels = np.unique(rows.y, return_inverse=True)
        k = len(self.classes_)
        if k < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of at least 2 classes, got one "
                f"class, {self.classes_.tolist()[0]!r}."
            )
        stream = root_stream(self.random_state)
        split = _split(replace(rows, y=labels), k, stream, work)
        many, rows = split.apart is not None, split.rows
        rows = (rows if many else rows.merged(work)).normalised()
        last = _LAST_SHARES[many] * work.limit
        table = _table_of(rows, k)
        learning = self._learning(table, rows.counts, stream, work)
        stage = work.stage(
            "the search",
            _SEARCH_SHARES[many] * work.limit - work.spent,
            (work.limit - last + _SEARCH_SHARES[many] * work.limit) / 2,
        )
        trials, is_stopped = self._search(learning, stage, stream, report)
        stage = work.stage(
            "the comparison of kernels", work.limit - last - work.spent, work.limit
        )
        adapting = 0.0 if many else _ADAPTING_SHARE * work.limit
        judged = learning.judged(trials, stage, adapting)[:MAX_MEMBERS]
        stage = replace(stage, deadline=work.limit - last / 2)
        parts = self._parts(judged, learning, stage)
        if split.apart is not None:
            apart = _table_of(split.apart, k)
            pairs = self._fit_many(parts, judged, apart, learning, stream, last)
            effects = [(1.0, judged[0][0])]
        else:
            pairs = self._fit_few(parts, learning, stream, last)
            effects = [(member.weight, trial) for member, trial in pairs]
        parts_of_model = [trial for _, trial in pairs]
        self._candidates = Candidates.of(parts_of_model, learning.encoders)
        self.model_ = TabularModel(
            [member for member, _ in pairs],
            split.held_out,
            weighted=rows.weighted,
            unit=rows.unit,
            temperature=self.temperature_,
        )
        self._keep_effects(learning, effects, stream, is_stopped)
        self._report(work, len(y), len(rows), len(split.apart or ()))
        report.end()
        return self

    def _parts(
        self,
        judged: list[tuple[Trial, np.ndarray]],
        learning: Learning,
        stage: Stage,
    ) -> list[_Part]:
        """Return candidates for members, evaluated on the same rows.

        Those of least squares come last.
        """
        table, k = learning.table, len(self.classes_)
        # The logits of several classes are separate systems of equations.
        n = int(_MAX_ROWS / max(k / 2, 1) ** (1 / 3))
        rows = learning.searched[:n]
        labels, weight = table.labels[rows], table.weight[rows]
        squares = [self._least_squares_part(trial, learning, n) for trial, _ in judged]
        parts: list[_Part] = []
        start = _PENALTIES.index(_FIRST_PENALTY)
        for at, (trial, _) in enumerate(judged):
            share = stage.part(stage.left / (len(judged) - at))
            U = learning.sample(trial)[:n]
            if not share.fits(left_out_seconds(len(U), U.shape[1], k)):
                break
            part = self._best_penalty(trial, U, labels, weight, start, share)
            parts.append(part)
            start = _PENALTIES.index(part.share)
        return parts + squares

    def _fit_few(
        self, parts: list[_Part], learning: Learning, stream: Stream, last: float
    ) -> list[tuple[Member, Trial]]:
        """Fit the best blend of the parts; set the temperature."""
        table = learning.table
        rows = learning.searched[: len(parts[0].P)]
        labels, weight = table.labels[rows], table.weight[rows]
        handicaps = [
            part.trial.optimism(len(rows)) if part.share is None else 0.0
            for part in parts
        ]
        weights, self.temperature_ = _blend_probabilities(
            [part.P for part in parts], handicaps, labels, weight
        )
        order = np.argsort(-weights, kind="stable")
        chosen = [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]
        stage = learning.work.stage("the last fit", learning.work.limit)
        members = self._fit_members(chosen, learning, None, stream, stage)
        trials = [part.trial for _, part in chosen[: len(members)]]
        return list(zip(members, trials, strict=True))

    def _fit_many(
        self,
        parts: list[_Part],
        judged: list[tuple[Trial, np.ndarray]],
        apart: Table,
        learning: Learning,
        stream: Stream,
        last: float,
    ) -> list[tuple[Member, Trial]]:
        """Return fits in cells and with landmarks, weighted by held-out rows.

        These also set the temperature.
        """
        work, table = learning.work, learning.table
        fitted = [part for part in parts if part.share is not None]
        fitted = fitted or [replace(part, share=_FIRST_PENALTY) for part in parts]
        best = self._compared(fitted, apart, learning, last)
        stage = work.stage("the last fit", work.limit)
        weight = None if learning.counts is None else table.weight
        seed = int(stream.child("features").generator().integers(2**31))
        trials = [trial for trial, _ in judged]
        trial, cells = fit_in_cells(
            KernelRidgeClassifierCV,
            trials,
            table.labels,
            weight,
            learning,
            stream,
            seed,
            stage.part(_CELLS_SHARE * stage.left),
        )
        encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
        pairs = [(Member(1.0, encoder, cells, trial.turn), trial)]
        stage = work.stage("the last fit", work.limit)
        if stage.fits(logistic_seconds(len(table), _LANDMARKS[0], table.Y.shape[1])):
            members = self._fit_members([(1.0, best)], learning, apart, stream, stage)
            pairs.append((members[0], best.trial))
        P = [member.predict(apart.X) for member, _ in pairs]
        weights, self.temperature_ = _blend_probabilities(
            P, [0.0] * len(P), apart.labels, apart.weight
        )
        order = np.argsort(-weights, kind="stable")
        for at in order:
            pairs[at][0].weight = float(weights[at])
        return [pairs[at] for at in order if weights[at] > 0]

    def _least_squares_part(self, trial: Trial, learning: Learning, n: int) -> _Part:
        """Return least squares with leave-one-out probabilities of the first rows."""
        rows = learning.searched[:n]
        table, U = learning.table.take(rows), learning.sample(trial)[:n]
        learning.work.charge(evaluation_seconds(n, U.shape[1], table.Y.shape[1]))
        residuals = leave_one_out(trial.kernel, trial.alpha, U, table.Y, table.weight)
        assert residuals is not None  # as with more rows
        P = np.exp(log_probabilities(table.Y - residuals, table.Y, table.weight)[0])
        return _Part(trial, None, P, _log_loss(P, table.labels, table.weight))

    def _compared(
        self, parts: list[_Part], apart: Table, learning: Learning, last: float
    ) -> _Part:
        """Return the part that is best with more rows, as far as time allows.

        Kernels that few rows hardly distinguish may differ with many.
        """
        table, work = learning.table, learning.work
        some = table.take(learning.order[:_COMPARED_ROWS])
        seconds = logistic_seconds(len(some), _FEW_LANDMARKS, table.Y.shape[1])
        stage = work.stage(
            "the comparison of kernels",
            work.limit - _COMPARING_SHARE * last - work.spent,
            work.limit - last / 2,
        )
        best: _Part | None = None
        for part in sorted(parts, key=lambda part: part.loss):
            if len(parts) == 1 or not stage.fits(seconds):
                break
            work.charge(seconds)
            fitted, held = (
                learning.encoded_table(part.trial, rows, "float32")
                for rows in (some, apart)
            )
            found = self._judged_apart(part, _FEW_LANDMARKS, fitted, held, learning)
            # Together with the rows that have judged it before: mostly others.
            loss = np.average(
                [found.loss, part.loss], weights=[len(apart), len(part.P)]
            )
            if best is None or loss < best.loss:
                best = replace(found, loss=float(loss))
        return best or min(parts, key=lambda part: part.loss)

    def _judged_apart(
        self, part: _Part, D: int, encoded: Table, apart: Table, learning: Learning
    ) -> _Part:
        """Return a part with probabilities of encoded rows that are held out.

        They are those of a fit to the others, with D landmarks.
        """
        k, labels = len(self.classes_), encoded.labels
        P = np.full((len(apart), k), 1 / k)
        if len(np.unique(labels)) > 1:
            D = min(D, len(labels))
            model = logistic(part.trial.kernel, _strength(part), D, 0)
            given = None if learning.counts is None else encoded.weight
            fit_quietly(model, encoded.X, labels, given)
            P[:] = MIN_CHANCE
            found = model.predict_proba(apart.X)
            P[:, model.classes_] = np.maximum(found, MIN_CHANCE)
        return replace(part, P=P, loss=_log_loss(P, apart.labels, apart.weight))

    def _best_penalty(
        self,
        trial: Trial,
        U: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray,
        start: int,
        stage: Stage,
    ) -> _Part:
        """Return logistic regression with the penalty of smallest log loss.

        Penalties are shares of that of least squares; the search moves from `start` to
        neighbours.
        """
        gram = np.array(with_constant(trial.kernel)._gram(U, None))
        seconds = left_out_seconds(len(U), U.shape[1], len(self.classes_))

        def judge(at: int) -> _Part:
            stage.work.charge(seconds)
            P = np.full((len(labels), len(self.classes_)), 1 / len(self.classes_))
            part = _Part(trial, _PENALTIES[at], P, 0.0)
            present = np.unique(labels)
            if len(present) > 1:
                with suppress(np.linalg.LinAlgError):  # the penalty is too small
                    found = left_out(
                        trial.kernel, _strength(part), U, gram, labels, weight
                    )
                    P[:] = MIN_CHANCE
                    P[:, present] = found
            return replace(part, loss=_log_loss(P, labels, weight))

        return _descended(
            judge, start, len(_PENALTIES), lambda: not stage.fits(seconds)
        )

    def _fit_members(
        self,
        chosen: list[tuple[float, _Part]],
        learning: Learning,
        apart: Table | None,
        stream: Stream,
        stage: Stage,
    ) -> list[Member]:
        """Fit parts of the model; for many rows, those `apart` choose the penalty."""
        members: list[Member] = []
        seed = int(stream.child("features").generator().integers(2**31))
        table = learning.table
        n, k = table.Y.shape
        given = None if learning.counts is None else table.weight
        adapted: dict[int, Trial] = {}
        for at, (share, part) in enumerate(chosen):
            trial, n_left = part.trial, len(chosen) - at
            seconds = max(stage.left, _MIN_SHARE * stage.work.limit) / n_left
            D, last = self._size(part, learning, seconds)
            if members and not (last <= seconds and stage.fits(last)):
                break
            if id(trial) not in adapted:
                spare = 0.8 * (seconds - last)
                if apart is not None:  # the penalty comes first
                    spare -= _PENALTY_FITS * logistic_seconds(n, _few(D or n), k)
                adapted[id(trial)] = learning.adapted(trial, stage.part(spare))
            part = replace(part, trial=adapted[id(trial)])
            if (allowed := stage.affordable(last)) < last:
                D, last = self._size(part, learning, allowed)
            dtype = "float64" if D is None else "float32"
            encoded = learning.encoded_table(part.trial, table, dtype)
            if apart is not None and D is not None:
                part = self._with_penalty_of_all(
                    part, encoded, apart, learning, D, last, stage
                )
            left = max(stage.left, _MIN_SHARE * stage.work.limit) / n_left
            passes = int((left - 0.5 * last) / pass_seconds(n, D or n, k))
            least = _MIN_ITER if D is None else LANDMARK_PASSES
            max_iter = min(max(passes, least), MAX_ITER)
            stage.work.charge(last)
            model = _model(part, D, seed, max_iter)
            fit_quietly(model, encoded.X, table.labels, given)
            encoder = copy(learning.encoders[trial.numbers]).set_params(dtype=dtype)
            members.append(Member(share, encoder, model, part.trial.turn))
        return normalised(members)

    def _with_penalty_of_all(
        self,
        part: _Part,
        encoded: Table,
        apart: Table,
        learning: Learning,
        D: int,
        last: float,
        stage: Stage,
    ) -> _Part:
        """Return a part with the penalty for all rows.

        The given one is chosen with few rows, and more may need a smaller penalty.
        Held-out rows evaluate fits with fewer landmarks, while enough time is left for
        the last fit, of about `last` seconds.
        """
        n, k = encoded.Y.shape
        seconds = logistic_seconds(n, _few(D), k)
        if not stage.fits(last + 2 * seconds):
            return part
        apart = learning.encoded_table(part.trial, apart, "float32")

        def judge(at: int) -> _Part:
            stage.work.charge(seconds)
            assert part.share is not None
            tried = replace(part, share=part.share / _MULTIPLES[at])
            return self._judged_apart(tried, _few(D), encoded, apart, learning)

        def over() -> bool:
            # The last fit takes longer with a smaller penalty.
            return not stage.fits(_GROWTH * (seconds + last))

        return _descended(judge, _MULTIPLES.index(1.0), len(_MULTIPLES), over)

    def _size(
        self, part: _Part, learning: Learning, seconds: float
    ) -> tuple[int | None, float]:
        """Return a fit's number of landmarks and its work.

        The number is None for the exact kernel.
        """
        n, k = learning.table.Y.shape
        is_logistic, n_columns = part.share is not None, learning.n_columns(part.trial)
        if n <= _FEATURE_ROWS:
            passes = PASSES if is_logistic else 0
            last = exact_seconds(n, n_columns) + passes * pass_seconds(n, n, k)
            last += gram_seconds(n, n_columns)
            if n <= _MAX_ROWS or last < seconds:
                return None, last

        def cost(D: int) -> float:
            if is_logistic:
                return logistic_seconds(n, D, k, n_columns)
            return landmark_seconds(n, D, n_columns)

        share = _LAST_FIT_SHARES[n > _FEATURE_ROWS]
        D = largest(cost, share * seconds, _LANDMARKS[0], self._most_landmarks(n))
        return D, cost(D)

    def _most_landmarks(self, n: int) -> int:
        """Return the number of landmarks that memory allows."""
        least, most = _LANDMARKS
        if self._candidates is not None:  # no more than were evaluated
            known = [
                member.fit.n_components
                for member in self.model_.members
                if member.fit.features == "nystrom"
            ]
            most = min([most, *known])
        return max(min(most, _ENTRIES // n), least)

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


def _few(D: int) -> int:
    """Return the number of landmarks of fits that choose a penalty for D landmarks."""
    return min(max(D // 2, _FEW_LANDMARKS), D)


@dataclass(frozen=True)
class _Split:
    """The rows to fit, and for many rows, some that are held out.

    `held_out` is the seed of their choice, the number of rows that are not fitted, and
    that of the others.
    """

    rows: Rows
    held_out: tuple[int, int, int] | None = None
    apart: Rows | None = None


def _split(rows: Rows, n_classes: int, stream: Stream, work: Work) -> _Split:
    """Hold rows out if there are many, and those for which there is no time."""
    n, k = len(rows), n_classes if n_classes > 2 else 1
    if n <= _FEATURE_ROWS:
        return _Split(rows)
    seconds = _MIN_FIT_SHARE * work.limit
    most = largest(
        lambda m: logistic_seconds(m, _LANDMARKS[0], k), seconds, _FEATURE_ROWS, n
    )
    most = max(most, min(most_rows(seconds), n))
    n_held = min(_MAX_HELD, n // 8)
    n_apart = max(n_held, n - most)
    seed = int(stream.child("rows").generator().integers(2**31))
    used, apart = train_test_split(np.arange(n), test_size=n_apart, random_state=seed)
    apart = rows.take(apart[:n_held])
    return _Split(rows.take(used), (seed, n_apart, n - n_apart), apart)


def _table_of(rows: Rows, n_classes: int) -> Table:
    """Return rows with codes ±1 of their labels, one column for two classes."""
    Y = 2.0 * (rows.y[:, None] == np.arange(n_classes)) - 1
    Y = Y[:, 1:] if n_classes == 2 else Y
    return Table(rows.X, Y, rows.weight, rows.y)


def _strength(part: _Part) -> float:
    return 1 / ((part.share or 1.0) * part.trial.alpha)


def _model(part: _Part, D: int | None, seed: int, max_iter: int) -> Any:
    """Return the unfitted model of a part."""
    kernel = part.trial.kernel
    if part.share is None:
        return _least_squares(kernel, part.trial.alpha, D, seed)
    return logistic(kernel, _strength(part), D, seed).set_params(max_iter=max_iter)


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
    most: int = MAX_MEMBERS,
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
        is_large = found >= _MIN_WEIGHT
        is_large[np.argsort(-found, kind="stable")[most:]] = False
        if is_large.all():
            break
        kept = kept[is_large]  # and find the best weights without the others
    weights = np.zeros(len(parts))
    weights[kept] = found
    mean = np.tensordot(weights, np.stack(parts), axes=1)
    logits = np.log(np.clip(mean, 1e-15, None))
    of_class = labels[:, None] == np.arange(logits.shape[1])
    optimism = _OPTIMISM_SHARE * min(max(handicaps), _MAX_OPTIMISM)
    return weights, temperature_of(logits, of_class, weight, optimism=optimism)


def _mixture_weights(chances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the weights of least log loss, by the EM algorithm for mixtures."""
    weights = np.full(len(chances), 1 / len(chances))
    for _ in range(_BLEND_STEPS):
        weights = weights * ((chances / (weights @ chances)) @ shares)
    return weights / weights.sum()
