"""Regression of tables without tuning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin, clone

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._sklearn import StrOptions
from randkern.models._targets import real_numbers
from randkern.models.calibration import check_coverage
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.tabular.base import Tabular
from randkern.tabular.exact_ridge import fit_ridge
from randkern.tabular.intervals import Intervals
from randkern.tabular.learning import Learning
from randkern.tabular.local import fit_in_cells
from randkern.tabular.model import Member, fit_member
from randkern.tabular.out_of_fold import Evaluated, blended, evaluated
from randkern.tabular.presets import (
    FOLDS,
    HELD_GROUPS,
    LAST_FIT,
    VALIDATION_ROWS,
    Deadline,
    Plan,
)
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial
from randkern.tabular.target_transforms import TRANSFORMS

# Sums of squares of larger targets may overflow, and those of smaller ones vanish.
_LARGEST_TARGET = 1e140


# Rows, the positions of those that a fit does not know, and its residuals there.
_Unknown = tuple[Table, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Split:
    """The rows to fit, and those that evaluate the fit.

    `n_left` are not fitted. Fits in cells are evaluated by the rows `apart`; in time,
    these are the last ones, and the `final` rows are fitted in the end.
    """

    rows: Table
    n_left: int = 0
    apart: Table | None = None
    final: Table | None = None

    @property
    def n_held(self) -> int:
        """The number of rows outside the fit that evaluate it."""
        return 0 if self.apart is None or self.final is not None else len(self.apart)


class TabularRegressor(RegressorMixin, Tabular):
    r"""Regression of tables by a learned kernel, without preprocessing or tuning.

    Columns are encoded by :class:`~randkern.TabularEncoder`. A Matérn, a Laplacian and
    a Gaussian kernel, and the sum of the best and a linear one, are then learned by
    their evidence on at most 2,500 rows, with one lengthscale per column. If fits are
    made in cells, the best few are learned further there, and the one with the smallest
    error of rows left out is fitted.

    The best kernel is fitted to all rows, or the weighted mean of the best few if its
    error on rows left out is smaller. Up to some 800 rows, as the budget allows,
    kernels are learned again without each of five folds for this comparison.

    Parameters
    ----------
    time_limit : float, default=60
        Determines the plan of the fit, in seconds of a core of modest speed: its rows,
        steps and kernels. It is also a deadline, of at least ten seconds, at which
        slower machines stop with a :class:`~randkern.exceptions.DeadlineWarning`, but
        not before three kernels and one fit; fits of up to 1,000 rows are not stopped.
        Compilation by Numba on first use, once per installation, does not count.
    target_transform : {"log", "log1p"} or None, default=None
        ``"log"``: fit the logarithms of positive targets, such as prices, whose errors
        grow in proportion to them; ``"log1p"``: those of 1 + y, for counts.
        Predictions, intervals and scores are of the targets themselves: a prediction is
        the exponential of the expected logarithm, which is nearer to the median than to
        the mean, and intervals are transformed exactly. Errors in `leaderboard_` and
        importances are those of the logarithms.
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
    model_ : TabularModel
        The fitted parts; ``model_.to_estimator()`` is an unfitted estimator of
        public classes with the same kernels.
    leaderboard_ : DataFrame
        The trials: ``kernel``, ``numbers`` (how they are scaled), ``rows``, ``error``
        (root mean squared leave-one-out error, relative to predicting the mean) and
        ``seconds``; sorted by ``rows``, descending, then by ``error``. Without pandas,
        a list of dicts.
    feature_importances_ : ndarray of shape (d,)
        Permutation importances, with sum 1: how much the squared error of least squares
        with the model's kernel of largest weight grows if the column is shuffled, for
        fits to either half of at most 2,000 rows and the rows of the other. 0 if no
        larger than the noise. They are computed when first read.
    fit_report_ : dict
        ``rows``, those passed to `fit`; ``rows_used``, those that the model is fitted
        to; ``rows_held_out``, those that evaluate fits to these; ``plan``, numbers of
        rows, steps, kernels and fits; ``cut``, names of the steps that the deadline
        stopped, usually none.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    The Gram matrix is factorised if this takes at most two fifths of the time: on one
    typical core, up to 14,000 rows in the default of 60 seconds, and never more than
    16,000. For more rows, or if time is short, the kernel is exact in overlapping cells
    (:class:`~randkern.LocalRegressor`), and up to 1,500 rows are held out, which
    evaluate the fit: whole groups or periods with `groups` or `time`. Kernels are
    learned further from the rows of a few cells, which resolve more detail than a
    sample of the table. Categories are one column per value, so the
    linear part of a sum of kernels includes what :class:`~randkern.Categorical` would
    add.

    References
    ----------
    Rifkin & Lippert 2007, "Notes on regularized least squares"; Radhakrishnan,
    Beaglehole, Pandit & Belkin 2024, "Mechanism for feature learning in neural networks
    and backpropagation-free machine learning models", Science 383; Barber, Candès,
    Ramdas & Tibshirani 2021, "Predictive inference with the jackknife+", Annals of
    Statistics 49.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = rk.TabularRegressor(time_limit=2, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.4
    True
    >>> low, high = model.predict_interval(X[:5]).T
    >>> bool((low < high).all())
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Tabular._parameter_constraints,
        "target_transform": [StrOptions({*TRANSFORMS}), None],
    }

    def __init__(
        self,
        time_limit: float = 60,
        *,
        target_transform: str | None = None,
        text_columns: Any = "auto",
        warm_start: bool = False,
        random_state: Any = None,
    ):
        super().__init__(
            time_limit,
            text_columns=text_columns,
            warm_start=warm_start,
            random_state=random_state,
        )
        self.target_transform = target_transform

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        time: Any = None,
    ) -> TabularRegressor:
        """Search for kernels, and fit the model.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,) or (n, n_targets)
        sample_weight : array of shape (n,), optional
            Weights of the squared errors; rows of weight zero are omitted. If the Gram
            matrix is factorised, copies of a row are merged into one row with the sum
            of their weights.
        groups : array of shape (n,), optional
            The group of each row, such as a patient. Whole groups are left out together
            in the search, for intervals and for importances, so that they are those of
            rows of new groups. Each group has an effect of its own on its targets, of
            which the variance is the share between groups; that of a new group is 0.
        time : array of shape (n,), optional
            Numbers or dates in the order of time. Rows are predicted from earlier ones
            in the search and for intervals. Not with `groups`.
        """
        report = FitReport(self, X, y, None)
        X, y, weight, folds = self._read(X, y, sample_weight, groups, time)
        deadline = Deadline.of(len(weight), self.time_limit)
        y = self._targets(y)
        self._many = y.ndim == 2
        rows = Table(X, y.reshape(len(y), -1), weight, folds)
        stream = root_stream(self.random_state)
        rows = self._with_scores(rows.used(type(self).__name__))
        rows, plan = self._planned(rows, 0)
        split = _split(rows, plan, stream)
        rows = split.rows
        deviation = rows.Y.std(axis=0)
        Y = (rows.Y - rows.Y.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        rows = replace(rows, folds=rows.folds.with_effect(Y))
        split = replace(split, rows=rows)
        table = replace(rows, Y=Y)
        learning = Learning.of(table, self._loss, stream, plan, deadline)
        trials, is_stopped = self._search(learning, stream, report)
        options = {"target_transform": self.target_transform}
        if split.apart is not None:
            pair, unknown = self._fit_in_cells(trials, learning, split)
            parts = self._keep_model([pair], learning, **options)
        else:
            known, kernels = evaluated(trials, learning, not is_stopped)
            pairs = self._fit_members(blended(known, kernels), learning, split)
            parts = self._keep_model(pairs, learning, **options)
            unknown = self._left_out(split, learning, parts, kernels)
        self._keep_effects(learning, parts, stream)
        self._keep_intervals(*unknown)
        self._report(plan, deadline, len(y), split.n_left, split.n_held)
        report.end()
        return self

    def _targets(self, y: Any) -> np.ndarray:
        """Return checked targets."""
        y = real_numbers(y)
        size = np.abs(y).max(initial=0.0)
        if size and not 1 / _LARGEST_TARGET <= size <= _LARGEST_TARGET:
            raise ValueError(
                f"y holds numbers of up to {size:.3g}, whose squares are beyond double "
                f"precision, expected between {1 / _LARGEST_TARGET:g} and "
                f"{_LARGEST_TARGET:g}; pass y in another unit, such as y / {size:.3g}."
            )
        self._is_count = bool(y.size and y.min() == 0 and (y == np.floor(y)).all())
        if self.target_transform is None:
            return y
        return TRANSFORMS[self.target_transform].of(y, self.target_transform)

    @staticmethod
    def _fit_members(
        chosen: list[tuple[float, Trial]], learning: Learning, split: _Split
    ) -> list[tuple[Member, Trial]]:
        """Fit the targets of the split; those of the table have variance 1."""
        pairs: list[tuple[Member, Trial]] = []
        for share, trial in chosen[: learning.plan.n_members]:
            if pairs and learning.deadline.ends(LAST_FIT):
                break  # one good fit is better
            encoded = learning.encoded_table(trial.numbers, split.rows)
            # The last rows, which evaluate the fit, are unknown to the search.
            fit = fit_ridge(trial.kernel, trial.alpha, encoded, learning.order)
            encoder = learning.encoders[trial.numbers]
            pairs.append((Member(share, encoder, fit), trial))
        return pairs

    @staticmethod
    def _fit_in_cells(
        trials: list[Trial], learning: Learning, split: _Split
    ) -> tuple[tuple[Member, Trial], _Unknown]:
        """Fit the rows of the split in cells, and evaluate the fit by those apart."""
        trial, member = fit_in_cells(trials, split.rows, learning)
        known = split.apart
        assert known is not None
        residuals = known.Y - member.predict(known.X)
        if split.final is not None:
            model = clone(member.fit)
            member = fit_member(1.0, trial, model, split.final, learning)
        return (member, trial), (known, np.arange(len(known)), residuals)

    def _left_out(
        self,
        split: _Split,
        learning: Learning,
        parts: list[tuple[float, Trial]],
        kernels: list[Evaluated],
    ) -> _Unknown:
        """Return the rows that a fit leaves out, and their residuals.

        If kernels were learned again, these do not know the rows either.
        """
        known, members = split.rows.take(learning.order), self.model_.members
        if kernels[0].without:
            unknown = {id(each.trial): each.residuals for each in kernels}
            own = [weight * unknown[id(trial)] for weight, trial in parts]
            residuals = split.rows.Y.std(axis=0) * np.sum(own, axis=0)
            return known, np.arange(len(known)), residuals
        own = [member.weight * member.fit.residuals for member in members]
        return known, members[0].fit.evaluated, np.sum(own, axis=0)

    def _keep_intervals(
        self, known: Table, left_out: np.ndarray, residuals: np.ndarray
    ) -> None:
        """Store what intervals need, from residuals of rows unknown to the fit."""
        first = self.model_.members[0]
        known = replace(known, X=first.encoder.transform(known.X))
        kernel, alpha = first.kernel, float(first.exact.alpha)
        self._intervals = Intervals.of(known, left_out, residuals, kernel, alpha)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (n,) or (n, n_targets).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        X = self._rows_of(X)
        return self._in_unit_of_targets(self.model_.predict(X))

    def _in_unit_of_targets(self, values: np.ndarray) -> np.ndarray:
        """Return values (n, k, ...) in the unit and shape of the targets of `fit`."""
        if self.target_transform is not None:
            values = TRANSFORMS[self.target_transform].inverse(values)
        return values if self._many else values[:, 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that contain the target with probability `coverage`.

        They are centred at the prediction, with a width given by a quantile of the
        residuals of rows left out (split conformal prediction, approximately, as the
        same rows have chosen and weighted the fits). Up to some 800 rows, as the
        budget allows, rows are left out by kernels that are learned again without their
        fold; else up to 1,500 rows, one at a time (the jackknife), or with `groups` or
        `time` whole groups or periods. Fits in cells do not know these rows. If there
        are enough, the quantile is that of residuals at similar predictions. Quantiles
        count the weights of rows, of which only ratios matter.
        With `groups` or `time` they are those of coverage·(1 + 1/G), as new rows may
        differ from all others; G is the number of independent rows that tell as much.

        If rows and their predictions tell the sizes of residuals, as ridge regression
        of their logarithms on rows left out shows, residuals are divided by the size
        that is predicted for the row: intervals are then wider where targets are
        noisier, for instance where they are larger. They also widen as the standard
        deviation of a Gaussian process does that knows the nearest row: in `time`
        everywhere, if rows are not fitted in cells, else where this is less similar
        than 95 % of these rows find one.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        coverage : float, default=0.9
            Between 0 and 1. With fewer than about coverage/(1 − coverage) rows no
            finite interval is wide enough, and its ends are infinite.

        Returns
        -------
        ndarray of shape (n, 2), or (n, n_targets, 2)
        """
        coverage = check_coverage(coverage)
        X = self._rows_of(X)
        encoder = self.model_.members[0].encoder
        parts = [
            self._intervals.around(
                encoder.transform(rows), self.model_.predict(rows), coverage
            )
            for rows in self.model_.blocks_of(X)
        ]
        intervals = self._in_unit_of_targets(np.concatenate(parts))
        if self._is_count:  # they contain the prediction, even if it is negative
            least = np.minimum(intervals.mean(axis=-1), 0.0)
            intervals[..., 0] = np.maximum(intervals[..., 0], least)
        return intervals

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _split(rows: Table, plan: Plan, stream: Stream) -> _Split:
    """Hold some rows out of a fit in cells, to evaluate it."""
    if not plan.in_cells:
        return _Split(rows)
    n, most = len(rows), plan.fitted_rows
    seed = int(stream.child("held out").generator().integers(2**31))
    order = np.random.default_rng(seed).permutation(n)
    # Few groups say little of others.
    n_groups = rows.folds.n_independent
    n_held = n * min(HELD_GROUPS, n_groups // FOLDS) // n_groups
    n_held = max(n_held, min(VALIDATION_ROWS, -(-n // 16)))
    is_forward = rows.folds.is_forward
    if n - n_held > most and is_forward:
        latest = np.argsort(-rows.folds.codes[order], kind="stable")
        order = order[latest][: max(most, n // 2)]
    fitted, held = rows.folds.divided(order, n_held)
    known, final = rows.take(fitted[:most]), None
    if is_forward:
        final = rows.take(np.append(held, fitted)[:most])
    apart = rows.take(held[:VALIDATION_ROWS])
    return _Split(known, n - len(final or known), apart, final)
