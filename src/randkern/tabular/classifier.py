"""Classification of tables without tuning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from randkern._fitting import all_or_nothing
from randkern._random import root_stream
from randkern.models._targets import typed_labels
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.base import Tabular
from randkern.tabular.class_fits import (
    chosen_in_cells,
    chosen_in_folds,
    fit_parts,
    used_rows,
)
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import log_loss
from randkern.tabular.out_of_fold import evaluated
from randkern.tabular.presets import Deadline
from randkern.tabular.rows import Table
from randkern.tabular.target_encoding import codes_of_targets


class TabularClassifier(ClassifierMixin, Tabular):
    """Classification of tables by a learned kernel, without preprocessing or tuning.

    The kernels are those of :class:`TabularRegressor`, learned from labels coded as ±1.
    Logistic regression is then fitted with the best few, each plus a constant. The
    model is the weighted mean of the probabilities of these fits with the smallest log
    loss. It is that of five folds of rows that are left out: up to some 800 rows, as
    the budget allows, also of the search.

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
        sequences of characters, and by components of these. ``"auto"``: columns of
        strings most of which differ and have three words or more.
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
        by log loss), sorted by rows, descending, then by error; and permutation
        importances with sum 1, for equally many rows of each class as far as possible,
        see :class:`TabularRegressor`.
    fit_report_ : dict
        See :class:`TabularRegressor`.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    With more than 2,500 rows, kernels are learned further from the rows of single
    cells, each as dense as the table; rows left out of some cells choose the kernel and
    the penalty. Logistic regression then has the exact kernel of
    all rows if time allows, or in overlapping cells of up to 16,000 rows
    (:class:`~randkern.LocalClassifier`). With `groups` or `time`, the rows left out are
    whole folds.

    References
    ----------
    Zhu & Hastie 2005, "Kernel logistic regression and the import vector machine",
    Journal of Computational and Graphical Statistics 14.

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
            choice of the penalty leave out whole groups.
        time : array of shape (n,), optional
            Numbers or dates in the order of time. The search and the choice of the
            penalty predict rows from earlier ones. Not with `groups`.
        """
        report = FitReport(self, X, y, None)
        X, y, weight, folds = self._read(X, y, sample_weight, groups, time)
        deadline = Deadline.of(len(weight), self.time_limit)
        y = column_or_1d(typed_labels(y), warn=True)
        check_classification_targets(y)
        table = Table(X, y, weight, folds).used(type(self).__name__)
        stream = root_stream(self.random_state)
        labels = self._labels(table.Y)
        k, Y = len(self.classes_), codes_of_targets(labels, True, len(labels))
        table = self._with_scores(replace(table, Y=Y, labels=labels))
        table, plan = self._planned(table, k)
        n_planned = len(table)
        table = used_rows(table, plan, stream)
        table = replace(table, folds=table.folds.with_effect(table.Y))
        learning = Learning.of(table, self._loss, stream, plan, deadline)
        trials, is_stopped = self._search(learning, stream, report)
        if plan.in_cells:
            chosen = chosen_in_cells(trials, learning)
        else:
            known, kernels = evaluated(trials, learning, not is_stopped)
            chosen = chosen_in_folds(known, kernels, learning)
        pairs = fit_parts(chosen, learning)
        parts = self._keep_model(pairs, learning)
        self._keep_effects(learning, parts, stream)
        self._report(plan, deadline, len(y), n_planned - len(table), 0)
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

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of the classes, (n, n_classes).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        return self.model_.predict(self._rows_of(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of probabilities, (n, n_classes).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        return np.log(self.predict_proba(X).clip(np.finfo(float).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable classes, (n,).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        P = self.predict_proba(X)
        return self.classes_[P.argmax(axis=1)]
