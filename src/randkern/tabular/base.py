"""What regression and classification of tables share: rows, search, and reports."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import count
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream
from randkern._sklearn import Interval, StrOptions, num_samples
from randkern._validation import (
    TableInput,
    check_has_targets,
    check_not_masked,
    check_targets,
    check_weights,
    validate_table,
)
from randkern._warnings import ignoring, warn
from randkern.data.sharded import is_dask
from randkern.exceptions import DeadlineWarning
from randkern.models.callbacks import CallbackSupportMixin, FitReport
from randkern.tabular.effects import ColumnEffects
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.folds import Folds
from randkern.tabular.html_summary import html_summary
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import log_squares
from randkern.tabular.model import Member, TabularModel
from randkern.tabular.presets import (
    EFFECT_ROWS,
    INDICATORS_PER_NUMBER,
    SEARCH,
    Deadline,
    Plan,
    plan_of,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch, Trial
from randkern.tabular.target_encoding import (
    CategoryScores,
    TextEncoder,
    scored_columns,
    text_columns,
)
from randkern.tabular.warm_start import column_blocks, moved

# Weights below this share of the largest are zero: penalties are divided by weights.
_MIN_WEIGHT = 1e-100


class Tabular(TableInput, CallbackSupportMixin, BaseEstimator):
    """Base class of regression and classification: rows, search, and reports."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither")],
        "text_columns": [StrOptions({"auto"}), list],
        "warm_start": ["boolean"],
        "random_state": ["random_state", np.random.Generator],
    }

    _loss = staticmethod(log_squares)
    _texts: TextEncoder | None = None
    _scores: CategoryScores | None = None

    def __init__(
        self,
        time_limit: float = 60,
        *,
        text_columns: Any = "auto",
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.time_limit = time_limit
        self.text_columns = text_columns
        self.warm_start = warm_start
        self.random_state = random_state

    def _read(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, time: Any
    ) -> tuple[Any, Any, np.ndarray, Folds]:
        """Return checked rows, targets, weights and folds."""
        self._validate_params()
        self._refuse_dask(X, y, sample_weight, groups, time)
        check_has_targets(self, y)
        y = check_targets(y)
        check_not_masked(groups, "groups")
        check_not_masked(time, "time")
        if not (self.warm_start and hasattr(self, "_candidates")):
            # Kernels of the last fit, with the blocks of the columns that they read.
            self._candidates: list[tuple[Trial, list[int | str]]] = []
        is_first = not self._candidates
        X = validate_table(self, X, reset=is_first, least_rows=2)
        check_consistent_length(X, y)
        n = num_samples(X)
        weight = check_weights(sample_weight, np.empty((n, 1)), bounded=False)
        if weight is None:
            weight = np.ones(n)
        else:
            weight = np.where(weight < _MIN_WEIGHT * weight.max(), 0.0, weight)
        return X, y, weight, Folds.of(groups, time, weight)

    def _with_scores(self, table: Table) -> Table:
        """Return rows with scores in place of texts, and beside many categories."""
        X, weight = table.X, table.own_weight
        folds = None if table.folds.are_rows else table.folds.coarse()
        is_classifier = table.labels is not None
        y = table.labels if is_classifier else table.Y
        self._texts = self._scores = None
        texts = text_columns(X, self.text_columns)
        if texts:
            self._texts = TextEncoder(texts, classes=is_classifier)
            X = self._texts.fit_transform(X, y, weight, folds)
        categories = scored_columns(X, table.Y.shape[1])
        if categories:
            self._scores = CategoryScores(categories, classes=is_classifier)
            X = self._scores.fit_transform(X, y, weight, folds)
        return replace(table, X=X)

    def _planned(self, table: Table, n_classes: int) -> tuple[Table, Plan]:
        """Return rows with copies merged and weights of mean 1, and their plan."""
        encoder = TabularEncoder().set_output(transform="default")
        with ignoring(UserWarning):  # a later fit warns
            encoder.fit(table.X, sample_weight=table.sample_weight)
        table = table.merged(encoder).normalised()
        n_numbers, *indicators = encoder.widths_
        d = n_numbers + sum(indicators) // INDICATORS_PER_NUMBER
        sizes = len(table), max(d, 1), n_classes
        return table, plan_of(*sizes, float(self.time_limit))

    def _search(
        self, learning: Learning, stream: Stream, report: FitReport
    ) -> tuple[list[Trial], bool]:
        """Return the best trials, and whether a callback has stopped the search.

        Stores all trials; a warm start returns the last fit's trials.
        """
        report.begin(lambda _: {})
        numbers = count(1)

        def report_trial(trial: Trial) -> bool:
            return report.step(next(numbers), None)

        blocks = {name: column_blocks(each) for name, each in learning.encoders.items()}
        known = [
            moved(trial, before, blocks[trial.numbers])
            for trial, before in self._candidates
            if trial.numbers in blocks
        ]
        if known:
            is_stopped = any([report_trial(trial) for trial in known])
            self._keep_trials(known)
            return known, is_stopped
        n = len(learning.sample)
        order = stream.child("search").generator().permutation(n)
        search = KernelSearch(learning, order, SEARCH, report_trial)
        refined = search.run()
        self._keep_trials(search.trials)
        return refined, search.stopped

    def _keep_trials(self, trials: list[Trial]) -> None:
        """Store the leaderboard."""
        self._trials: list[dict[str, Any]] = [
            {
                "kernel": trial.form,
                "numbers": trial.numbers,
                "rows": trial.n_rows,
                "error": trial.error,
                "seconds": trial.seconds,
            }
            for trial in trials
        ]

    def _keep_model(
        self, pairs: list[tuple[Member, Trial]], learning: Learning, **options: Any
    ) -> list[tuple[float, Trial]]:
        """Store fits with weights of sum 1, and their kernels for a warm start.

        Return the kernels with these weights.
        """
        total = sum(member.weight for member, _ in pairs)
        members = [replace(member, weight=member.weight / total) for member, _ in pairs]
        trials = [trial for _, trial in pairs]
        self._candidates = [
            (trial, column_blocks(learning.encoders[trial.numbers])) for trial in trials
        ]
        self.model_ = TabularModel(
            members,
            unit=learning.table.unit,
            texts=self._texts,
            scores=self._scores,
            **options,
        )
        weights = [member.weight for member in members]
        return list(zip(weights, trials, strict=True))

    def _keep_effects(
        self,
        learning: Learning,
        parts: list[tuple[float, Trial]],
        stream: Stream,
    ) -> None:
        """Store what importances are computed from.

        Of labels, the same number of rows of each class, as far as there are enough: a
        few rows of a rare class tell little.
        """
        rows, labels = learning.order, learning.table.labels
        if labels is not None:
            rows = rows[np.argsort(_ranks_within(labels[rows]), kind="stable")]
        shown = learning.table.take(rows[:EFFECT_ROWS])
        _, trial = max(parts, key=lambda part: part[0])
        shown = replace(learning.encoded_table(trial.numbers, shown), labels=None)
        self._effects = ColumnEffects(
            trial,
            shown,
            learning.encoders[trial.numbers].columns_,
            seed=int(stream.child("importances").generator().integers(2**31)),
        )
        self._importances: np.ndarray | None = None

    def _report(
        self, plan: Plan, deadline: Deadline, n: int, n_left: int, n_held: int
    ) -> None:
        """Store the report of a fit to n rows, and warn if its deadline cut something.

        `n_left` rows are not fitted; of these, `n_held` evaluate the fits.
        """
        self.fit_report_: dict[str, Any] = {
            "rows": n,
            "rows_used": n - n_left,
            "rows_held_out": n_held,
            "plan": asdict(plan),
            "cut": list(deadline.cut),
        }
        if deadline.cut:
            warn(
                f"time_limit={self.time_limit:g} seconds stopped "
                f"{', '.join(deadline.cut)} early: this machine is slower or busier "
                "than the plan assumes, and another fit may give another model. Raise "
                "time_limit; fit_report_ shows what was done.",
                DeadlineWarning,
            )

    @property
    def feature_importances_(self) -> np.ndarray:
        check_is_fitted(self)
        if self._importances is None:
            source = np.arange(self.n_features_in_)
            if self._texts is not None:
                source = self._texts.sources_
            if self._scores is not None:
                source = source[self._scores.sources_]
            shares = self._effects.shares(len(source))
            self._importances = np.bincount(source, shares, self.n_features_in_)
        return self._importances

    @property
    def leaderboard_(self) -> Any:
        check_is_fitted(self)
        trials = sorted(
            self._trials, key=lambda trial: (-trial["rows"], trial["error"])
        )
        try:
            import pandas as pd
        except ImportError:
            return trials
        return pd.DataFrame(trials)

    def _html_repr(self) -> str:
        described = super()._html_repr()
        return html_summary(self) + described if hasattr(self, "model_") else described

    def _refuse_dask(self, *arguments: Any) -> None:
        """Raise for Dask collections, whose rows are not in memory."""
        if any(is_dask(argument) for argument in arguments):
            name = type(self).__name__
            raise TypeError(
                f"{name} takes tables in memory, got a Dask collection. To fit, pass "
                "X.compute() and y.compute(), of a sample of the rows if there are too "
                "many; to predict, X.map_partitions(model.predict). Models such as "
                "randkern.KernelRidgeRegressor are fitted to Dask collections."
            )

    def _rows_of(self, X: Any) -> Any:
        check_is_fitted(self)
        self._refuse_dask(X)
        X = validate_table(self, X, reset=False)
        return self.model_.with_scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _ranks_within(labels: np.ndarray) -> np.ndarray:
    """Return how many earlier rows have the label of each row."""
    ranks = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ranks[rows] = np.arange(len(rows))
    return ranks
