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
from randkern._random import root_stream
from randkern.models._targets import typed_labels
from randkern.models.calibration import log_probabilities_at, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.base import Tabular
from randkern.tabular.class_cells import (
    chosen_in_cells,
    fit_all_in_cells,
    n_held_of,
    split_rows,
    table_of,
)
from randkern.tabular.combine import blend_probabilities, mean_log_loss
from randkern.tabular.folds import predicted_rows
from randkern.tabular.learning import COMPARISON, Learning, descended
from randkern.tabular.leave_one_out import (
    leave_one_out,
    log_loss,
    log_probabilities,
)
from randkern.tabular.logistic import (
    Part,
    all_left_out,
    fitted_part,
    predicted,
    refitted,
    strength,
    with_constant,
)
from randkern.tabular.members import Member, normalised
from randkern.tabular.model import TabularModel
from randkern.tabular.presets import (
    FIRST_PENALTY,
    MAX_MEMBERS,
    PENALTIES,
    Deadline,
)
from randkern.tabular.refits import Refit, is_refitted, refits_of
from randkern.tabular.rows import Rows, Table, are_equal
from randkern.tabular.trials import Trial
from randkern.tabular.warm_start import Candidates


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
        Determines the plan of the fit, in seconds of a core of modest speed: its rows,
        steps and kernels. It is also a deadline, of at least ten seconds, at which
        slower machines stop with a :class:`~randkern.exceptions.DeadlineWarning`, but
        not before three kernels and one fit; fits of up to 1,000 rows are not stopped.
        Compilation by Numba on first use, once per installation, does not count.
    text_columns : list of str or "auto", default="auto"
        Columns of free text, which are replaced by the predictions of a linear model on
        hashed words. ``"auto"``: columns of strings most of which differ and have three
        words or more.
    warm_start : bool, default=False
        Whether another `fit` starts from the kernels of the last model: they are
        compared and fitted to the new rows, without a search. The table must have the
        same columns.
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
    Up to 8,000 rows the kernel is exact, if time allows. With more rows, kernels are
    learned further from the rows of single cells, each as dense as the table; rows left
    out of some cells choose the kernel, the penalty and the temperature. Logistic
    regression then has the exact kernel in overlapping cells of up to 16,000 rows
    (:class:`~randkern.LocalClassifier`). With `groups` or `time`, kernels are not
    learned from single cells, and whole folds are held out for the penalty.

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
        report = FitReport(self, X, y, None)
        X, y, weight, folds = self._read(X, y, sample_weight, groups, time)
        deadline = Deadline.of(len(weight), self.time_limit)
        y = column_or_1d(typed_labels(y), warn=True)
        check_classification_targets(y)
        rows = Rows(X, y, weight, not are_equal(weight[weight > 0]), folds)
        stream = root_stream(self.random_state)
        rows = self._with_scores(rows.used(type(self).__name__))
        labels, k = self._labels(rows.y), len(self.classes_)
        rows, plan = self._planned(replace(rows, y=labels), k)
        split = split_rows(rows, plan, stream)
        rows = split.rows.normalised()
        table = table_of(rows, k)
        n_held = n_held_of(len(rows)) if plan.in_cells and rows.folds else 0
        learning = Learning.of(
            table, rows.counts, n_held, self._loss, stream, plan, deadline
        )
        trials, is_stopped = self._search(learning, stream, report)
        seed = int(stream.child("features").generator().integers(2**31))
        if plan.in_cells:
            compared = learning.compared(trials)[:MAX_MEMBERS]
            kernels = [trial for trial, _ in compared]
            part, held, held_weight = chosen_in_cells(kernels, learning, seed)
            self._set_temperature(part.P, held, held_weight)
            members = [fit_all_in_cells(part, learning, seed)]
            pairs = [(1.0, part.trial)]
        else:
            refitted = is_refitted(learning) and not is_stopped
            chosen = self._chosen(trials, learning, refitted)
            members = self._fit_members(chosen, learning, seed)
            pairs = _weighted_trials(members, chosen)
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
        self._report(plan, deadline, len(y), len(rows), 0)
        report.end()
        return self

    def _labels(self, y: np.ndarray) -> np.ndarray:
        """Return labels as numbers, and store the classes; raise if there is one."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of at least 2 classes, got one "
                f"class, {self.classes_.tolist()[0]!r}."
            )
        return labels

    def _chosen(
        self, trials: list[Trial], learning: Learning, is_refitted: bool
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        Kernels that are learned again predict labels unknown to them.
        """
        refits = refits_of(trials, learning) if is_refitted else []
        if refits:
            return self._weighted_by_folds(refits, learning)
        return self._calibrated(learning.compared(trials)[:MAX_MEMBERS], learning)

    def _calibrated(
        self, compared: list[tuple[Trial, np.ndarray]], learning: Learning
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        All parts are evaluated on the same rows.
        """
        table, n = learning.table, learning.plan.part_rows
        rows = learning.searched[:n]
        samples = [(trial, learning.sample(trial)[:n]) for trial, _ in compared]
        some = table.take(rows)
        if some.folds is not None:
            some = replace(some, folds=some.folds.coarse())
        out = predicted_rows(some.folds, len(some))
        labels, weight = some.labels[out], some.weight[out]
        parts: list[Part] = []
        start = PENALTIES.index(FIRST_PENALTY)
        for trial, U in samples[: learning.plan.n_parts]:
            if parts and learning.deadline.ends(COMPARISON):
                break
            encoded = replace(some, X=U)
            part = self._best_penalty(trial, encoded, start, learning.deadline)
            parts.append(part)
            start = PENALTIES.index(part.share)
        if some.folds is None:
            parts += [
                self._least_squares_part(trial, replace(some, X=U))
                for trial, U in samples
            ]
        weights, self.temperature_ = blend_probabilities(
            [part.P for part in parts], labels, weight, learning.plan.n_members
        )
        order = np.argsort(-weights, kind="stable")
        chosen = [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]
        if some.folds is not None:
            self._learn_again(chosen[0][1], some, learning)
        return chosen

    def _learn_again(self, part: Part, some: Table, learning: Learning) -> None:
        """Set the temperature by kernels learned without the rows that they predict.

        The search has seen all groups, or periods, and few of them are overfitted. As
        time allows.
        """
        assert some.folds is not None and part.share is not None
        P = np.full((len(some), len(self.classes_)), 1 / len(self.classes_))
        for known, held in some.folds.splits():
            learned = learning.relearned(part.trial, known)
            if learned is None:
                return
            again = replace(part, trial=learned)
            encoded = replace(some, X=learning.sample(learned)[: len(some)])
            rest, X = encoded.take(known), encoded.X[held]
            P[held] = predicted(learned.kernel, strength(again), rest, X, P[held])
        out = some.folds.predicted
        self._set_temperature(P[out], some.labels[out], some.weight[out])

    def _weighted_by_folds(
        self, refits: list[Refit], learning: Learning
    ) -> list[tuple[float, Part]]:
        """Return the parts of the model with their weights; set the temperature.

        Kernels that do not know a fold predict it.
        """
        known = learning.table.take(learning.searched)
        parts: list[Part] = []
        start = PENALTIES.index(FIRST_PENALTY)
        for refit in refits[: learning.plan.n_parts]:
            F = known.Y - refit.residuals
            log_P, _, temperature = log_probabilities(F, known.Y, known.weight)
            P = np.exp(log_P)
            loss = mean_log_loss(P, known.labels, known.weight)
            parts.append(Part(refit.trial, None, P, loss, temperature))
            if not learning.deadline.ends(COMPARISON):
                parts.append(self._best_penalty_of_folds(refit, learning, start))
                start = PENALTIES.index(parts[-1].share)
        weights, self.temperature_ = blend_probabilities(
            *([part.P for part in parts], known.labels, known.weight),
            learning.plan.n_members,
        )
        order = np.argsort(-weights, kind="stable")
        return [(float(weights[at]), parts[at]) for at in order if weights[at] > 0]

    def _best_penalty_of_folds(
        self, refit: Refit, learning: Learning, start: int
    ) -> Part:
        """Return logistic regression with the penalty of smallest log loss in folds."""
        known = learning.table.take(learning.searched)
        n, k = len(known), len(self.classes_)

        def evaluate(at: int) -> Part:
            P = np.full((n, k), 1 / k)
            splits = zip(refit.without, refit.folds.splits(), strict=True)
            for trial, (rest, rows) in splits:
                C = strength(Part(trial, PENALTIES[at], P, 0.0))
                encoded = replace(known, X=learning.sample(trial))
                others, X = encoded.take(rest), encoded.X[rows]
                P[rows] = predicted(trial.kernel, C, others, X, P[rows])
            loss = mean_log_loss(P, known.labels, known.weight)
            return Part(refit.trial, PENALTIES[at], P, loss)

        deadline = learning.deadline
        return descended(
            evaluate, start, len(PENALTIES), lambda: deadline.ends(COMPARISON)
        )

    def _least_squares_part(self, trial: Trial, encoded: Table) -> Part:
        """Return least squares with the probabilities of rows that are left out."""
        U, Y, weight, labels = encoded.X, encoded.Y, encoded.weight, encoded.labels
        residuals = leave_one_out(
            trial.kernel, trial.alpha, U, Y, weight, encoded.folds
        )
        assert residuals is not None  # as with more rows
        P = np.exp(log_probabilities(Y - residuals, Y, weight)[0])
        return Part(trial, None, P, mean_log_loss(P, labels, weight))

    def _set_temperature(
        self, P: np.ndarray, labels: np.ndarray, weight: np.ndarray
    ) -> None:
        of_class = labels[:, None] == np.arange(len(self.classes_))
        self.temperature_ = temperature_of(np.log(P), of_class, weight)

    def _best_penalty(
        self, trial: Trial, encoded: Table, start: int, deadline: Deadline
    ) -> Part:
        """Return logistic regression with the penalty of smallest log loss.

        Penalties are shares of that of least squares; the search moves from `start` to
        neighbours.
        """
        n, k = len(encoded), len(self.classes_)
        gram = np.array(with_constant(trial.kernel)._gram(encoded.X, None))
        out = predicted_rows(encoded.folds, n)
        labels, weight = encoded.labels[out], encoded.weight[out]

        def evaluate(at: int) -> Part:
            part = Part(trial, PENALTIES[at], np.full((n, k), 1 / k), 0.0)
            C = strength(part)
            if encoded.folds is not None:
                P = refitted(trial.kernel, C, encoded, part.P)[out]
            else:
                P = all_left_out(trial.kernel, C, encoded, gram, part.P)
            return replace(part, P=P, loss=mean_log_loss(P, labels, weight))

        return descended(
            evaluate, start, len(PENALTIES), lambda: deadline.ends(COMPARISON)
        )

    @staticmethod
    def _fit_members(
        chosen: list[tuple[float, Part]], learning: Learning, seed: int
    ) -> list[Member]:
        table, plan = learning.table, learning.plan
        sample_weight = None if learning.counts is None else table.weight
        members: list[Member] = []
        adapted: dict[int, Trial] = {}
        for share, part in chosen:
            trial = part.trial
            if members and learning.deadline.ends("the last fit"):
                break
            if id(trial) not in adapted:
                adapted[id(trial)] = learning.adapted(trial, plan.last_adapted_rows)
            part = replace(part, trial=adapted[id(trial)])
            encoded = learning.encoded_table(trial, table)
            model = fitted_part(part, seed, encoded, sample_weight, learning.deadline)
            members.append(Member(share, copy(learning.encoders[trial.numbers]), model))
        return normalised(members)

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


def _weighted_trials(
    members: list[Member], chosen: list[tuple[float, Part]]
) -> list[tuple[float, Trial]]:
    """Return the weights of members with the trials behind them."""
    return [
        (member.weight, part.trial)
        for member, (_, part) in zip(members, chosen, strict=False)
    ]
