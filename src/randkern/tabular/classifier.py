"""Classification of tables without tuning."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern.models._targets import typed_labels
from randkern.models.calibration import log_probabilities_at, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.base import Tabular
from randkern.tabular.class_choice import chosen_for_all_rows
from randkern.tabular.class_rows import (
    MIN_LANDMARKS,
    RowSplit,
    are_many,
    held_and_rest,
    is_exact,
    n_held_of,
    split_rows,
    table_of,
)
from randkern.tabular.combine import blend_probabilities, mean_log_loss
from randkern.tabular.exact_logistic import fit_all_in_cells, fit_all_rows
from randkern.tabular.folds import MAX_REFITTED, predicted_rows
from randkern.tabular.learning import MAX_MEMBERS, Learning, descended
from randkern.tabular.leave_one_out import (
    leave_one_out,
    log_loss,
    log_probabilities,
)
from randkern.tabular.logistic import (
    LANDMARK_PASSES,
    MAX_ITER,
    PASSES,
    Part,
    all_left_out,
    fitted_part,
    left_out_seconds,
    logistic_seconds,
    predicted,
    refitted,
    strength,
    with_constant,
)
from randkern.tabular.members import Member, normalised
from randkern.tabular.model import TabularModel
from randkern.tabular.refits import Refit, is_refitted, refits_of
from randkern.tabular.rows import Rows, Table, are_equal
from randkern.tabular.trials import Trial
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

# Penalties of logistic regression relative to least squares, and the first one tried.
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)
_FIRST_PENALTY = 0.3
# The share of the remaining time for the fit in cells, beside landmarks.
_CELLS_SHARE = 0.5
# Share of the time for adapting each of the best kernels to the rows that evaluate it.
_ADAPTING_SHARE = 0.05
# The most kinds of kernels with which logistic regression is fitted without each fold.
_MAX_WEIGHTED = 5
_MAX_ROWS = 2000
_MIN_ITER = 40
# Numbers of landmarks, and the number of entries of their features in between.
_LANDMARKS = (MIN_LANDMARKS, 4000)
_ENTRIES = 2 * 10**8
# Shares of the time for few rows and for many: at most for the search, and at least for
# the last fits; and for the search if kernels are learned again without each fold.
_SEARCH_SHARES, _LAST_SHARES = (0.45, 0.3), (0.25, 0.6)
_REFITTED_SHARE = 0.35
# Share of the remaining time for a fit with landmarks.
_LAST_FIT_SHARE = 0.7
# The least share of the time for the last fits.
_MIN_SHARE = 0.1


class TabularClassifier(ClassifierMixin, Tabular):
    """Classification of tables by a learned kernel, without preprocessing or tuning.

    The kernels are those of :class:`TabularRegressor`, learned from labels coded as ±1.
    With more than 2,500 rows (at most 10,000 are searched), they are learned by the
    leave-one-out log loss of least squares with a temperature, on different rows in
    each step. Logistic regression is then fitted with the best few kernels, each plus a
    constant. The model is the weighted mean of the probabilities of these fits with the
    smallest log loss, with a temperature. The log loss is that of left-out rows: up to
    some 1,000 rows, as the budget allows, by kernels learned again without each of five
    folds, and otherwise by leave-one-out, approximated by one Newton step.

    Parameters
    ----------
    time_limit : float, default=60
        A budget of work, in seconds of a core of modest speed. It determines the rows,
        steps and kernels of the fit. It is also a deadline in seconds, at which slower
        machines stop with a :class:`~randkern.exceptions.DeadlineWarning`. Compilation
        by Numba on first use, once per installation, does not count.
    text_columns : list of str or "auto", default="auto"
        Columns of free text, which are replaced by the predictions of a linear model on
        hashed words. ``"auto"``: columns of strings most of which differ and have three
        words or more.
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
    Up to 8,000 rows the kernel is exact if time allows, and so it is for more rows, up
    to about 16,000 of two classes at the default budget: products with the kernel of
    all rows then replace its factor (see :class:`~randkern.KernelLogistic`), kernels
    are learned further from the rows of single cells, and rows that are held out until
    the last fit choose the penalty and the temperature. With still more rows, rows of
    some cells choose the kernel and the penalty; logistic regression then has the exact
    kernel in overlapping cells (:class:`LocalClassifier`). Beside it stands a fit with
    Nyström features; up to 2,500 rows, held out from both, weight the two and set the
    temperature. With `groups` or `time`, kernels are not
    learned from single cells, and beyond what one exact kernel bears there are
    landmarks alone.

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
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        time: Any = None,
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
        groups : array of shape (n,), optional
            The group of each row, such as a patient. The search, importances and the
            calibration of probabilities leave out whole groups.
        time : array of shape (n,), optional
            Numbers or dates in the order of time. The search and the calibration
            predict rows from earlier ones. Not with `groups`.
        """
        work = Work(float(self.time_limit))
        report = FitReport(self, X, y, None)
        X, y, weight, folds = self._read(X, y, sample_weight, groups, time)
        y = column_or_1d(typed_labels(y), warn=True)
        check_classification_targets(y)
        rows = Rows(X, y, weight, not are_equal(weight[weight > 0]), folds)
        stream = root_stream(self.random_state)
        rows = self._with_scores(rows.used(type(self).__name__), work)
        labels, k = self._labels(rows.y), len(self.classes_)
        split = split_rows(replace(rows, y=labels), k, stream, work)
        rows = split.rows if split.apart is not None else split.rows.merged(work)
        rows = rows.normalised()
        many = are_many(len(rows))
        last = _LAST_SHARES[many] * work.limit
        table = table_of(rows, k)
        learning = self._learning(table, rows.counts, stream, work)
        refitted = is_refitted(learning)
        share = _REFITTED_SHARE if refitted else _SEARCH_SHARES[many]
        stage = work.stage(
            "the search",
            share * work.limit - work.spent,
            (work.limit - last + share * work.limit) / 2,
        )
        trials, is_stopped = self._search(learning, stage, stream, report)
        refitted = refitted and not is_stopped
        chosen = self._chosen(trials, learning, refitted, last)
        stage = work.stage("the last fit", work.limit)
        members, pairs = self._fit_all(trials, chosen, learning, split, stream, stage)
        parts = [trial for _, trial in pairs]
        self._candidates = Candidates.of(parts, learning.encoders)
        self.model_ = TabularModel(
            members,
            split.held_out,
            weighted=not are_equal(weight),  # zeros are passed too
            unit=rows.unit,
            temperature=self.temperature_,
            note=split.note,
            texts=self._texts,
            scores=self._scores,
        )
        self._keep_effects(learning, pairs, stream)
        self._report(work, len(y), len(rows), len(split.apart or ()))
        report.end()
        return self

    def _fit_all(
        self,
        trials: list[Trial],
        chosen: list[tuple[float, Part]],
        learning: Learning,
        split: RowSplit,
        stream: Stream,
        stage: Stage,
    ) -> tuple[list[Member], list[tuple[float, Trial]]]:
        """Return the fits of the model, and the weights of the trials behind them."""
        table = learning.table
        seed = int(stream.child("features").generator().integers(2**31))
        if not are_many(len(table)):
            members = self._fit_members(chosen, learning, seed, stage)
            return members, _weighted_trials(members, chosen)
        ((_, part),) = chosen
        k = len(self.classes_)
        exact = is_exact(table, k, stage.work)
        held, rest = held_and_rest(learning)
        best = chosen_for_all_rows(
            trials[:MAX_MEMBERS],
            part,
            learning,
            held,
            rest,
            seed,
            stage,
            is_exact=exact,
            in_cells=split.apart is not None,
        )
        if best is not None:
            part = best
            if split.apart is None:  # else it is that of the weighted fits
                held = held[: len(part.P)]
                self._set_temperature(part.P, table.labels[held], table.weight[held])
        if exact:
            return [fit_all_rows(part, learning, seed, stage)], [(1.0, part.trial)]
        chosen = [(1.0, part)]
        if split.apart is None:
            members = self._fit_members(chosen, learning, seed, stage)
            return members, _weighted_trials(members, chosen)
        cells_stage = stage.part(_CELLS_SHARE * stage.left)
        cells = fit_all_in_cells(part, learning, seed, cells_stage)
        members = self._fit_members(chosen, learning, seed, stage)
        pairs = _weighted_trials(members, chosen)
        return self._with_cells(cells, members, table_of(split.apart, k)), pairs

    def _with_cells(
        self, cells: Member, members: list[Member], apart: Table
    ) -> list[Member]:
        """Return the fits of a model, weighted by held-out rows; set the temperature.

        Cells stand beside the mean of the others.
        """
        parts = [member.weight * member.predict(apart.X) for member in members]
        mean = np.sum(parts, axis=0)
        weights, self.temperature_ = blend_probabilities(
            [cells.predict(apart.X), mean], apart.labels, apart.weight
        )
        others = [
            replace(member, weight=float(weights[1] * member.weight))
            for member in members
        ]
        both = [replace(cells, weight=float(weights[0])), *others]
        return [member for member in both if member.weight > 0]

    def _labels(self, y: np.ndarray) -> np.ndarray:
        """Return labels as numbers, and store the classes; raise if there is one."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of at least 2 classes, got one "
                f"class, {self.classes_.tolist()[0]!r}."
            )
        return labels

    def _n_searched(self, n: int) -> int:
        """Return the number of rows to search, none of those that are held out."""
        most = super()._n_searched(n)
        return min(most, n - self._n_held(n))

    def _n_held(self, n: int) -> int:
        """Return how many of n rows are held out from fits that choose penalties."""
        return n_held_of(n) if are_many(n) else 0

    def _chosen(
        self, trials: list[Trial], learning: Learning, refitted: bool, last: float
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        Kernels that are learned again predict labels unknown to them.
        """
        work = learning.work
        stage = work.stage(
            "the comparison of kernels", work.limit - last - work.spent, work.limit
        )
        refits = refits_of(trials, learning, stage) if refitted else []
        stage = replace(stage, deadline=work.limit - last / 2)
        if refits:
            stage = replace(stage, until=work.limit)
            return self._weighted_by_folds(refits, learning, stage)
        adapting = _ADAPTING_SHARE * work.limit
        compared = learning.compared(trials, stage, adapting)[:MAX_MEMBERS]
        return self._calibrated(compared, learning, stage)

    def _calibrated(
        self,
        compared: list[tuple[Trial, np.ndarray]],
        learning: Learning,
        stage: Stage,
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        All parts are evaluated on the same rows.
        """
        table, k = learning.table, len(self.classes_)
        # The logits of several classes are separate systems of equations.
        n = int(_MAX_ROWS / max(k / 2, 1) ** (1 / 3))
        rows = learning.searched[:n]
        samples = [(trial, learning.sample(trial)[:n]) for trial, _ in compared]
        some = table.take(rows)
        if some.folds is not None:
            some = replace(some, folds=some.folds.coarse())
        predicted = predicted_rows(some.folds, len(some))
        labels, weight = some.labels[predicted], some.weight[predicted]
        squares = [
            self._least_squares_part(trial, replace(some, X=U), learning.work)
            for trial, U in samples
        ]
        parts: list[Part] = []
        start = _PENALTIES.index(_FIRST_PENALTY)
        for at, (trial, U) in enumerate(samples):
            share = stage.part(stage.left / (len(compared) - at))
            encoded = replace(some, X=U)
            if not share.fits(left_out_seconds(encoded, k)):
                break
            part = self._best_penalty(trial, encoded, start, share)
            parts.append(part)
            start = _PENALTIES.index(part.share)
        many = are_many(len(table))
        if not parts and (many or some.folds is not None):
            parts = [replace(part, share=_FIRST_PENALTY) for part in squares]
        if many:  # one good fit is worth more than a blend
            best = min(parts, key=lambda part: part.loss)
            self._set_temperature(best.P, labels, weight)
            return [(1.0, best)]
        if some.folds is None:
            parts += squares
        weights, self.temperature_ = blend_probabilities(
            [part.P for part in parts], labels, weight
        )
        order = np.argsort(-weights, kind="stable")
        chosen = [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]
        if some.folds is not None:
            self._learn_again(chosen[0][1], some, learning, stage)
        return chosen

    def _learn_again(
        self, part: Part, some: Table, learning: Learning, stage: Stage
    ) -> None:
        """Set the temperature by kernels learned without the rows that they predict.

        The search has seen all groups, or periods, and few of them are overfitted. As
        time allows.
        """
        assert some.folds is not None and part.share is not None
        P = np.full((len(some), len(self.classes_)), 1 / len(self.classes_))
        for known, held in some.folds.splits():
            learned = learning.relearned(part.trial, known, stage)
            if learned is None:
                return
            again = replace(part, trial=learned)
            encoded = replace(some, X=learning.sample(learned)[: len(some)])
            rest, X = encoded.take(known), encoded.X[held]
            P[held] = predicted(learned.kernel, strength(again), rest, X, P[held])
        out = some.folds.predicted
        self._set_temperature(P[out], some.labels[out], some.weight[out])

    def _weighted_by_folds(
        self, refits: list[Refit], learning: Learning, stage: Stage
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        Kernels that do not know a fold predict it.
        """
        known = learning.table.take(learning.searched)
        parts: list[Part] = []
        start = _PENALTIES.index(_FIRST_PENALTY)
        for at, refit in enumerate(refits[:_MAX_WEIGHTED]):
            F = known.Y - refit.residuals
            log_P, _, temperature = log_probabilities(F, known.Y, known.weight)
            P = np.exp(log_P)
            loss = mean_log_loss(P, known.labels, known.weight)
            parts.append(Part(refit.trial, None, P, loss, temperature))
            share = stage.part(stage.left / (len(refits) - at))
            n, d, k = len(known), learning.n_columns(refit.trial), len(self.classes_)
            if share.fits(_folds_seconds(n, d, k)):
                parts.append(self._best_penalty_of_folds(refit, learning, start, share))
                start = _PENALTIES.index(parts[-1].share)
        weights, self.temperature_ = blend_probabilities(
            [part.P for part in parts], known.labels, known.weight
        )
        order = np.argsort(-weights, kind="stable")
        return [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]

    def _best_penalty_of_folds(
        self, refit: Refit, learning: Learning, start: int, stage: Stage
    ) -> Part:
        """Return logistic regression with the penalty of smallest log loss in folds."""
        known = learning.table.take(learning.searched)
        n, k = len(known), len(self.classes_)
        seconds = _folds_seconds(n, learning.n_columns(refit.trial), k)

        def evaluate(at: int) -> Part:
            stage.work.charge(seconds)
            P = np.full((n, k), 1 / k)
            splits = zip(refit.without, refit.folds.splits(), strict=True)
            for trial, (rest, rows) in splits:
                C = strength(Part(trial, _PENALTIES[at], P, 0.0))
                encoded = replace(known, X=learning.sample(trial))
                others, X = encoded.take(rest), encoded.X[rows]
                P[rows] = predicted(trial.kernel, C, others, X, P[rows])
            loss = mean_log_loss(P, known.labels, known.weight)
            return Part(refit.trial, _PENALTIES[at], P, loss)

        return descended(
            evaluate, start, len(_PENALTIES), lambda: not stage.fits(seconds)
        )

    def _least_squares_part(self, trial: Trial, encoded: Table, work: Work) -> Part:
        """Return least squares with the probabilities of rows that are left out."""
        U, Y, weight, labels = encoded.X, encoded.Y, encoded.weight, encoded.labels
        work.charge(evaluation_seconds(len(U), U.shape[1], Y.shape[1]))
        residuals = leave_one_out(
            trial.kernel, trial.alpha, U, Y, weight, encoded.folds
        )
        assert residuals is not None  # as with more rows
        out = predicted_rows(encoded.folds, len(encoded))
        P = np.exp(log_probabilities(Y[out] - residuals, Y[out], weight[out])[0])
        return Part(trial, None, P, mean_log_loss(P, labels[out], weight[out]))

    def _set_temperature(
        self, P: np.ndarray, labels: np.ndarray, weight: np.ndarray
    ) -> None:
        of_class = labels[:, None] == np.arange(len(self.classes_))
        self.temperature_ = temperature_of(np.log(P), of_class, weight)

    def _best_penalty(
        self, trial: Trial, encoded: Table, start: int, stage: Stage
    ) -> Part:
        """Return logistic regression with the penalty of smallest log loss.

        Penalties are shares of that of least squares; the search moves from `start` to
        neighbours.
        """
        n, k = len(encoded), len(self.classes_)
        gram = np.array(with_constant(trial.kernel)._gram(encoded.X, None))
        seconds = left_out_seconds(encoded, k)
        out = predicted_rows(encoded.folds, n)
        labels, weight = encoded.labels[out], encoded.weight[out]

        def evaluate(at: int) -> Part:
            stage.work.charge(seconds)
            part = Part(trial, _PENALTIES[at], np.full((n, k), 1 / k), 0.0)
            C = strength(part)
            if encoded.folds is not None:
                P = refitted(trial.kernel, C, encoded, part.P)[out]
            else:
                P = all_left_out(trial.kernel, C, encoded, gram, part.P)
            return replace(part, P=P, loss=mean_log_loss(P, labels, weight))

        return descended(
            evaluate, start, len(_PENALTIES), lambda: not stage.fits(seconds)
        )

    def _fit_members(
        self,
        chosen: list[tuple[float, Part]],
        learning: Learning,
        seed: int,
        stage: Stage,
    ) -> list[Member]:
        members: list[Member] = []
        table = learning.table
        n, k = table.Y.shape
        sample_weight = None if learning.counts is None else table.weight
        adapted: dict[int, Trial] = {}
        for at, (share, part) in enumerate(chosen):
            trial, n_left = part.trial, len(chosen) - at
            seconds = max(stage.left, _MIN_SHARE * stage.work.limit) / n_left
            D, last = self._size(part, learning, seconds)
            if members and not (last <= seconds and stage.fits(last)):
                break
            if not are_many(n):  # which have chosen kernel and penalty already
                if id(trial) not in adapted:
                    spare = stage.part(0.8 * (seconds - last))
                    adapted[id(trial)] = learning.adapted(trial, spare)
                part = replace(part, trial=adapted[id(trial)])
            if (allowed := stage.affordable(last)) < last:
                D, last = self._size(part, learning, allowed)
            dtype = "float64" if D is None else "float32"
            encoded = learning.encoded_table(part.trial, table, dtype)
            left = max(stage.left, _MIN_SHARE * stage.work.limit) / n_left
            passes = int((left - 0.5 * last) / pass_seconds(n, D or n, k))
            least = _MIN_ITER if D is None else LANDMARK_PASSES
            max_iter = min(max(passes, least), MAX_ITER)
            stage.work.charge(last)
            model = fitted_part(part, D, seed, max_iter, encoded, sample_weight, stage)
            encoder = copy(learning.encoders[trial.numbers]).set_params(dtype=dtype)
            members.append(Member(share, encoder, model))
        return normalised(members)

    def _size(
        self, part: Part, learning: Learning, seconds: float
    ) -> tuple[int | None, float]:
        """Return a fit's number of landmarks and its work.

        The number is None for the exact kernel.
        """
        n, k = learning.table.Y.shape
        is_logistic, n_columns = part.share is not None, learning.n_columns(part.trial)
        if not are_many(n):
            passes = PASSES if is_logistic else 0
            last = exact_seconds(n, n_columns) + passes * pass_seconds(n, n, k)
            last += gram_seconds(n, n_columns)
            if n <= _MAX_ROWS or last < seconds:
                return None, last

        def cost(D: int) -> float:
            if is_logistic:
                return logistic_seconds(n, D, k, n_columns)
            return landmark_seconds(n, D, n_columns)

        most = self._most_landmarks(n)
        D = largest(cost, _LAST_FIT_SHARE * seconds, _LANDMARKS[0], most)
        return D, cost(D)

    def _most_landmarks(self, n: int) -> int:
        """Return the number of landmarks that memory allows."""
        least, most = _LANDMARKS
        if self._candidates is not None:  # no more than were evaluated
            known = [
                member.fit.n_components or most
                for member in self.model_.members
                if getattr(member.fit, "features", None) == "nystrom"
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


def _folds_seconds(n: int, n_columns: int, n_classes: int) -> float:
    """Return the work of logistic regression without each fold."""
    k = n_classes if n_classes > 2 else 1
    fit = exact_seconds(n, n_columns) + PASSES * pass_seconds(n, n, k)
    return MAX_REFITTED * fit


def _weighted_trials(
    members: list[Member], chosen: list[tuple[float, Part]]
) -> list[tuple[float, Trial]]:
    """Return the weights of members with the trials behind them."""
    return [
        (member.weight, part.trial)
        for member, (_, part) in zip(members, chosen, strict=False)
    ]
