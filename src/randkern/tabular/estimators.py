"""Regression of tables without tuning, and the base class of classification."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from itertools import count
from numbers import Real
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    _num_samples,
    check_is_fitted,
)

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._validation import check_given
from randkern.backend.compiled_loops import working_seconds
from randkern.data import row_blocks
from randkern.models import KernelRidgeRegressor, KernelRidgeRegressorCV
from randkern.models.calibration import check_coverage, conformal_quantile
from randkern.models.callbacks import CallbackSupportMixin, FitReport, with_callbacks
from randkern.tabular.effects import ColumnEffects, Half
from randkern.tabular.encoder import checked_table, encoder_to_arrays
from randkern.tabular.leave_one_out import is_noisy, leave_one_out, log_squares
from randkern.tabular.local_scale import chosen_power, local_sizes
from randkern.tabular.model import (
    JUDGED_ROWS,
    MEMORY_LIMIT,
    MOST_FACTORISED,
    SOLVER,
    Member,
    Table,
    TabularModel,
    adapted,
    different_rows,
    factorised_rows,
    factorising_seconds,
    fit_ridge,
    folds_of,
    gram_seconds,
    normalised,
    plan_of,
    quietly,
    stopping,
)
from randkern.tabular.search import KernelSearch, Trial, blend
from randkern.tabular.warm_start import Candidates

# Largest share of the time for the search, if the last fit is to few rows and to many;
# the rest is the smallest share for that fit.
_SEARCH_SHARES = (0.7, 0.5)
_FEW_ROWS = 2500
_LAST_SHARE = 0.15
# Largest share of the time for a factorisation, with a search and without.
_FACTORISING_SHARES = (1 / 3, 2 / 3)
# Share of the remaining time for a last fit of landmarks, and the multiples of the
# penalty from which it chooses.
_FEATURES_SHARE = 0.5
_MULTIPLES = np.logspace(-2, 2, 9)
# Share of the time for what follows the iterations of the last fit.
_AFTER_SHARE = 0.13
# Largest number of rows to which lengthscales are adapted, and the ratio to the rows
# they were learned from at which this starts.
_MOST_ADAPTED = 6000
_ADAPTED_SHARE = 1.2
# Approximate number of fits that this takes.
_ADAPTING_FITS = 12
# Largest number of rows on which trials, and the fits of a blend, are evaluated.
_MOST_JUDGED = 2000
MOST_MEMBERS = 3
# Weights below this share of the largest are zero: penalties are divided by weights.
_LEAST_WEIGHT = 1e-100
# Smallest and largest number of rows for which kernels are relearned without each fold,
# and the number of folds; the share of the remaining time that this may take.
_LEAST_RELEARNED, _MOST_RELEARNED, _RELEARNED = 40, 600, 5
_RELEARNING_SHARE = 0.8
# Times that rows are halved for importances, and the share of the remaining time for
# learning kernels from each half.
_HALVINGS, _HALVES_SHARE = 7, 0.3
# Rows encoded at a time.
_ENCODED_ROWS = 65_536


class Tabular(CallbackSupportMixin, BaseEstimator):
    """Base class of regression and classification: rows, search, and reports."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "random_state": ["random_state", np.random.Generator],
    }

    # The loss of trials, the number of rows that the search uses, up to 16,000 rows and
    # beyond, and the share of the time for adapting each of the best to the rows that
    # evaluate it.
    _loss = staticmethod(log_squares)
    _most_searched = (2500, 10_000)
    _judging_share = 0.08

    def __init__(
        self,
        time_limit: float = 60,
        *,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.random_state = random_state

    def _begin(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Return checked rows and weights, without rows of weight zero."""
        self._validate_params()
        began = working_seconds()
        self._clock = lambda: working_seconds() - began
        check_given(self, y)
        if not (self.warm_start and hasattr(self, "_candidates")):
            self._candidates: Candidates | None = None
        is_first = self._candidates is None
        X = checked_table(self, X, is_first, least_rows=2)
        check_consistent_length(X, y)
        n = _num_samples(X)
        weight = np.ones(n)
        self._weighted = sample_weight is not None
        if self._weighted:
            weight = _check_sample_weight(
                sample_weight, np.empty((n, 1)), ensure_non_negative=True
            )
            if not weight.any():
                raise ValueError("sample_weight is zero for all rows.")
            weight = np.where(weight < _LEAST_WEIGHT * weight.max(), 0.0, weight)
        return X, weight

    def _used(self, X: Any, y: np.ndarray, weight: np.ndarray) -> tuple[Any, Any, Any]:
        """Return the rows with positive weight."""
        kept = np.flatnonzero(weight)
        if len(kept) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 rows with positive weight, "
                f"got n_samples = {len(kept)}."
            )
        if len(kept) == len(y):
            return X, y, weight
        return _safe_indexing(X, kept), y[kept], weight[kept]

    def _merged(
        self, X: Any, y: np.ndarray, weight: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Merge copies of a row and sum their weights.

        Otherwise the leave-one-out errors of copies would be too small.
        """
        if len(y) > MOST_FACTORISED:
            return X, y, weight
        encoder = encoder_to_arrays("standard")
        quietly(encoder, X, None, weight)  # what it warns of is told by a later fit
        found = different_rows(encoder.transform(X), y, weight)
        if found is None or (len(found[0]) == len(y) and not self._weighted):
            return X, y, weight
        rows, weight = found
        return _safe_indexing(X, rows), y[rows], weight

    def _normalised(self, weight: np.ndarray) -> np.ndarray:
        """Return weights with mean 1, and store the given ones if they differ."""
        self._counts = weight if self._weighted or (weight != 1).any() else None
        self._unit = float(weight.mean())
        return weight / self._unit

    def _left(self) -> float:
        return float(self.time_limit) - self._clock()

    def _search(
        self, table: Table, stream: Stream, report: FitReport, seconds: float
    ) -> list[Trial]:
        """Return the best trials; store all trials, encoders and the searched rows.

        The search takes at most `seconds`; a warm start returns the last fit's trials.
        """
        n = len(table)
        self._encode_searched(table.X, n, stream)
        seconds = min(seconds, _SEARCH_SHARES[n > _FEW_ROWS] * self.time_limit)
        report.begin(lambda _: {})
        numbers = count(1)

        def tell(trial: Trial) -> bool:
            return report.step(next(numbers), None)

        known: list[Trial] = []
        if self._candidates is not None:
            known = list(self._candidates.encoded(self._encoders))
        if known:
            self._is_stopped = any([tell(trial) for trial in known])
            self._keep_trials(known)
            return known
        blocks = {name: encoder.blocks_ for name, encoder in self._encoders.items()}
        Y, weight = table.Y[self._searched], table.weight[self._searched]
        search = KernelSearch(
            *(self._rows, blocks, Y, weight),
            *(seconds, stream.child("search"), tell, self._clock),
            loss=self._loss,
        )
        refined = search.run()
        self._is_stopped = search.stopped
        self._keep_trials(search.trials)
        return refined

    def _encode_searched(self, X: Any, n: int, stream: Stream) -> None:
        """Draw the order of rows; fit the encoders, and encode the first rows."""
        generator = stream.child("searched").generator()
        self._order = generator.permutation(n)
        self._searched = self._order[: self._most_searched[n > MOST_FACTORISED]]
        standard = encoder_to_arrays("standard").fit(X, sample_weight=self._counts)
        self._encoders = {"standard": standard}
        if len(standard._varying):
            quantile = self._encoders["quantile"] = encoder_to_arrays("quantile")
            quietly(quantile, X, None, self._counts)
        sample = _safe_indexing(X, self._searched)
        self._rows = {
            numbers: encoder.transform(sample)
            for numbers, encoder in self._encoders.items()
        }

    def _keep_trials(self, trials: list[Trial]) -> None:
        """Store the leaderboard."""
        self._trials: list[dict[str, Any]] = [
            {
                "kernel": trial.form,
                "numbers": trial.numbers,
                "metric": trial.metric,
                "rows": trial.n_rows,
                "error": trial.error,
                "seconds": trial.seconds,
            }
            for trial in trials
        ]

    def _judged(
        self, trials: list[Trial], table: Table
    ) -> list[tuple[Trial, np.ndarray]]:
        """Return trials with their leave-one-out residuals, best first.

        Residuals are multiplied by the roots of weights. If possible, trials are
        evaluated on more rows than they were learned from.
        """
        rows = self._searched[:_MOST_JUDGED]
        Y, w = table.Y[rows], table.weight[rows]
        judged: list[tuple[float, Trial, np.ndarray]] = []
        for at, trial in enumerate(trials):
            if judged and self._left() < _LAST_SHARE * self.time_limit:
                break
            if at < MOST_MEMBERS:
                seconds = self._judging_share * self.time_limit
                trial = self._adapted(trial, table, seconds, len(rows))
            U = self._sample(trial)[: len(rows)]
            residuals = leave_one_out(trial.kernel, trial.alpha, U, Y, w)
            while residuals is None:  # more rows may need a larger penalty
                trial = replace(trial, alpha=10 * trial.alpha)
                residuals = leave_one_out(trial.kernel, trial.alpha, U, Y, w)
            loss, _ = self._loss(Y - residuals, Y, w)
            if is_noisy(self._loss):  # the loss is twice a mean log-likelihood
                loss += 2 * trial.optimism(len(rows))
            judged.append((loss, trial, residuals * np.sqrt(w)[:, None]))
        judged.sort(key=itemgetter(0))
        return [(trial, residuals) for _, trial, residuals in judged]

    def _sample(self, trial: Trial) -> np.ndarray:
        """Return the searched rows, encoded for the kernel of a trial."""
        return trial.turned(self._rows[trial.numbers])

    def _encoded(self, trial: Trial, X: Any, dtype: str = "float64") -> np.ndarray:
        """Return rows encoded in blocks for the kernel of a trial."""
        encoder = copy(self._encoders[trial.numbers]).set_params(dtype=dtype)
        parts = [
            trial.turned(encoder.transform(_safe_indexing(X, rows)))
            for rows in row_blocks(_num_samples(X), _ENCODED_ROWS)
        ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _encoded_table(
        self, trial: Trial, table: Table, dtype: str = "float64"
    ) -> Table:
        """Return a table with its rows encoded for the kernel of a trial."""
        return replace(table, X=self._encoded(trial, table.X, dtype))

    def _adapted(
        self, trial: Trial, table: Table, seconds: float, most: int = _MOST_ADAPTED
    ) -> Trial:
        """Return a trial adapted to more rows than it was learned from.

        Their number allows several factorisations in the given seconds.
        """
        m, n_columns = min(len(table), most), self._sample(trial).shape[1]
        share = gram_seconds(m, n_columns) + factorising_seconds(m)
        share *= _ADAPTING_FITS / max(seconds, 1e-9)
        m = int(m / max(share, 1.0) ** (1 / 3))
        if m < _ADAPTED_SHARE * trial.n_rows:
            return trial
        # Rows unknown to the search come last: they evaluate it.
        some = self._encoded_table(trial, table.take(self._order[:m]))
        how = self._clock() + seconds, self._clock, self._loss
        kernel, alpha = adapted(trial.kernel, trial.alpha, some, *how)
        return replace(trial, kernel=kernel, alpha=alpha, n_rows=m)

    def _forget(self) -> None:
        """Delete attributes that only the fit needs."""
        names = "_rows _order _searched _encoders _clock _how _held_out "
        names += "_X_apart _y_apart _weighted _counts _unit _is_stopped"
        for name in names.split():
            self.__dict__.pop(name, None)

    def _finish(self, members: list[Member], chosen: list[Trial], table: Table) -> None:
        """Store the model, and the kernels from which another fit may start."""
        self._candidates = Candidates.of(chosen, self._encoders)
        self.model_ = TabularModel(
            *(members, self._held_out),
            weighted=self._weighted,
            unit=self._unit,
            temperature=getattr(self, "temperature_", None),
        )
        shares = [member.weight for member in members]
        self._keep_effects(list(zip(shares, chosen, strict=False)), table)

    def _keep_effects(self, parts: list[tuple[float, Trial]], table: Table) -> None:
        """Store what importances are computed from.

        A kernel that was learned from all rows has learned from the noise of both
        halves: as time allows, the first one is learned again from each half.
        """
        shown = self._searched[:_MOST_JUDGED]
        until = self._clock() + _HALVES_SHARE * self._left()
        generator = np.random.default_rng(0)
        halvings = [
            np.array_split(generator.permutation(len(shown)), 2)
            for _ in range(_HALVINGS)
        ]
        first, pairs = parts[0][1], []
        if first.metric != "none" and not self._is_stopped:
            for halves in halvings:
                found = [self._relearned(first, table, half, until) for half in halves]
                kernels = [each for each in found if each is not None]
                if len(kernels) < len(halves):
                    break
                both = zip(halves, kernels, strict=True)
                pairs.append([Half(half, [(1.0, each)]) for half, each in both])
        if not pairs:
            pairs = [[Half(half, parts) for half in halves] for halves in halvings]
        self._effects = ColumnEffects(
            pairs,
            {name: rows[:_MOST_JUDGED] for name, rows in self._rows.items()},
            {name: encoder.columns_ for name, encoder in self._encoders.items()},
            *(table.Y[shown], table.weight[shown]),
        )
        self._importances: np.ndarray | None = None

    def _relearned(
        self, trial: Trial, table: Table, positions: np.ndarray, until: float
    ) -> Trial | None:
        """Return a kernel learned from some of the searched rows.

        None if it is late, or if there is nothing to learn from them.
        """
        few = len(positions) < _LEAST_RELEARNED // 2
        Y, weight = table.Y[self._searched], table.weight[self._searched]
        varies = np.ptp(Y[positions], axis=0).any()
        if few or not varies or self._clock() > until:
            return None
        numbers = trial.numbers
        search = KernelSearch(
            {numbers: self._rows[numbers]},
            {numbers: self._encoders[numbers].blocks_},
            *(Y, weight, until, root_stream(0), lambda _: False, self._clock),
            loss=self._loss,
        )
        found = search.again(trial, positions)
        return None if self._clock() > until else found

    @property
    def feature_importances_(self) -> np.ndarray:
        check_is_fitted(self)
        if self._importances is None:
            self._importances = self._effects.shares(self.n_features_in_)
        return self._importances

    @property
    def leaderboard_(self) -> Any:
        check_is_fitted(self)
        trials = sorted(self._trials, key=lambda each: (-each["rows"], each["error"]))
        try:
            import pandas as pd
        except ImportError:
            return trials
        return pd.DataFrame(trials)

    def _rows_of(self, X: Any) -> Any:
        check_is_fitted(self)
        return checked_table(self, X, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


class TabularRegressor(RegressorMixin, Tabular):
    r"""Regression of tables by a learned kernel, without preprocessing or tuning.

    Columns are encoded by :class:`~randkern.TabularEncoder`. Then, on at most 2,500
    rows (of more than 16,000 on different rows in each step, 10,000 in total), kernels
    (Gaussian, Matérn, Laplacian, rational quadratic, and sums with a linear one) with
    one lengthscale per column are learned together with the penalty, by the closed-form
    gradient of the leave-one-out error; so are lengthscales along the directions in
    which the best of these fits varies (a full metric), if they are better on rows that
    they were not learned from. The best kernel is fitted to all rows, or the weighted
    mean of the best few if its leave-one-out error is smaller.

    Parameters
    ----------
    time_limit : float, default=60
        Seconds, after which the best model so far is returned. The size of the last fit
        follows from an estimate of its time. Compilation by Numba on first use, once
        per installation, does not count.
    warm_start : bool, default=False
        Whether another `fit` starts from the kernels of the last model: they are
        compared and fitted to the new rows, without a search. The table must have the
        same columns.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    model_ : TabularModel
        The fitted parts; ``print(model_.explain())`` shows the code that builds them
        from public parts of the library.
    leaderboard_ : DataFrame
        The trials: ``kernel``, ``numbers`` (how they are scaled), ``metric``
        (``"none"``, ``"diagonal"`` or ``"full"``), ``rows``, ``error`` (root mean
        squared leave-one-out error, relative to predicting the mean) and ``seconds``;
        sorted by ``rows``, descending, then by ``error``. Without pandas, a list of
        dicts.
    feature_importances_ : ndarray of shape (d,)
        The share of each column in the variance of least-squares predictions with the
        model's kernels, including interactions: total-effect indices with sum 1, from
        products of fits to two halves of at most 2,000 rows, to which noise adds
        nothing on average, with kernels learned from each half if there was time; 0 if
        no larger than the noise. They are computed when first read.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    The Gram matrix is factorised if this takes at most a third of the time: on one
    typical core, up to 11,400 rows in the default of 60 seconds, and up to 16,000 from
    165 seconds on. For more rows, up to 38,000, conjugate gradients multiply by it; for
    even more, or if time is short, Nyström features replace it, and the penalty of all
    rows is chosen by leave-one-out. In all these cases 1,500 rows are held out to
    evaluate the fit and for intervals. Categories are one column per value, so the
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

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TabularRegressor:
        """Search for kernels, and fit the model.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,) or (n, n_targets)
        sample_weight : array of shape (n,), optional
            Weights of the squared errors; rows of weight zero are omitted. If the Gram
            matrix is factorised, copies of a row are merged into one row with the sum
            of their weights.
        """
        report = FitReport(self, X, y, None)
        X, weight = self._begin(X, y, sample_weight)
        try:
            y = _check_y(y, multi_output=True, y_numeric=True, estimator=self)
            y = np.asarray(y, dtype=np.float64)
        except ValueError as error:
            if "could not convert string" in str(error):
                raise ValueError(
                    "y holds texts, not numbers; TabularClassifier takes labels."
                ) from error
            raise
        self._many = y.ndim == 2
        y = y.reshape(len(y), -1)
        X, y, weight = self._used(X, y, weight)
        stream = root_stream(self.random_state)
        X, y, weight = self._set_apart(X, y, weight, stream)
        weight = self._normalised(weight)
        deviation = y.std(axis=0)
        Y = (y - y.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        table, seconds = Table(X, Y, weight), self.time_limit - self._last_seconds
        trials = self._search(table, stream, report, seconds)
        chosen = self._blended(self._judged(trials, table))
        members = self._fit_members(chosen, table, y, stream)
        self._finish(members, [trial for _, trial in chosen], table)
        self._keep_residuals(len(y), self._learning_factor(chosen[0][1], table))
        self._forget()
        report.end()
        return self

    def _set_apart(
        self, X: Any, y: np.ndarray, weight: np.ndarray, stream: Stream
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return the rows to fit; hold some out if too many for an exact fit."""
        self._held_out: Any = None
        n = len(y)
        share = _FACTORISING_SHARES[self._candidates is not None]
        self._how, _ = plan_of(n, share * self.time_limit)
        self._last_seconds = self.time_limit / 2
        if self._how == "factorise":
            # The Gram matrix takes about as long as its factorisation.
            if n > _FEW_ROWS:
                last = 2 * factorising_seconds(n)
                self._last_seconds = min(self._last_seconds, last)
            return self._merged(X, y, weight)
        seed = int(stream.child("held out").generator().integers(2**31))
        self._held_out = (seed, JUDGED_ROWS, n - JUDGED_ROWS)
        rows, apart = train_test_split(
            np.arange(n), test_size=JUDGED_ROWS, random_state=seed
        )
        self._X_apart, self._y_apart = _safe_indexing(X, apart), y[apart]
        return _safe_indexing(X, rows), y[rows], weight[rows]

    def _blended(
        self, judged: list[tuple[Trial, np.ndarray]]
    ) -> list[tuple[float, Trial]]:
        """Return the trials of the final model, with their weights."""
        weights = blend([residuals for _, residuals in judged])
        pairs = [
            (float(weight), trial)
            for weight, (trial, _) in zip(weights, judged, strict=True)
            if weight > 0
        ]
        return sorted(pairs, key=lambda pair: -pair[0])[:MOST_MEMBERS]

    def _fit_members(
        self,
        chosen: list[tuple[float, Trial]],
        table: Table,
        y: np.ndarray,
        stream: Stream,
    ) -> list[Member]:
        """Fit the targets `y`; those of the table have variance 1."""
        given = replace(table, Y=y)
        # The last rows, which evaluate the fit, are unknown to the search.
        order, n = self._order, len(table)
        members: list[Member] = []
        for at, (share, trial) in enumerate(chosen):
            seconds = self._left() / (len(chosen) - at)
            last = 2 * gram_seconds(n, self._sample(trial).shape[1])
            if self._how == "features":
                last = _FEATURES_SHARE * seconds
            elif self._how == "factorise" and n > _FEW_ROWS:
                last += factorising_seconds(n)
            if members and (self._how != "factorise" or last > seconds):
                break  # one good fit is better
            trial = self._adapted(trial, table, 0.8 * seconds - last)
            if self._how != "factorise":
                members.append(self._fit_many(trial, given, stream))
                continue
            encoded = self._encoded_table(trial, given)
            fit = fit_ridge(trial.kernel, trial.alpha, encoded, order)
            encoder = self._encoders[trial.numbers]
            members.append(Member(share, encoder, fit, trial.turn))
        return normalised(members)

    def _fit_many(self, trial: Trial, table: Table, stream: Stream) -> Member:
        """Return the better of two fits on the held-out rows.

        One is exact, on as many rows as time allows, the other uses all rows.
        """
        encoder = self._encoders[trial.numbers]
        U_apart = trial.turned(encoder.transform(self._X_apart))
        n, floor = len(table), 0.1 * self.time_limit
        m = min(factorised_rows(max(self._left(), floor) / 3), n)
        order = np.arange(m)
        some = self._encoded_table(trial, table.take(order))
        part: Any = fit_ridge(trial.kernel, trial.alpha, some, order)
        plan, D = plan_of(n, max(self._left(), floor))
        after = _AFTER_SHARE * self.time_limit
        if plan == "factorise":  # after the Gram matrix, and before predictions
            left = self._left() - after - 2 * gram_seconds(n, some.X.shape[1])
            plan, D = plan_of(n, max(left, floor))
        # Use tiles of the Gram matrix, or as many features as fit in memory.
        encoder = copy(encoder).set_params(dtype="float32")
        U = self._encoded(trial, table.X, "float32")
        seed = int(stream.child("features").generator().integers(2**31))
        until = self._clock() + max(self._left() - after, floor)
        shared: dict[str, Any] = {
            "fit_intercept": True,
            "memory_limit": MEMORY_LIMIT,
            "random_state": seed,
        }
        whole: Any
        if D:  # all rows may need another penalty
            alphas = (trial.alpha * _MULTIPLES).tolist()
            whole = KernelRidgeRegressorCV(
                trial.kernel, alphas, D, features="nystrom", **shared
            )
        else:
            solver: Any = clone(SOLVER)
            solver.set_params(callback=stopping(until, self._clock))
            if plan == "factorise":  # more time is left than was planned
                solver = "cholesky"
            whole = KernelRidgeRegressor(
                trial.kernel, trial.alpha, None, solver=solver, **shared
            )
        quietly(whole, U, table.Y, table.weight if self._weighted else None)
        if plan == "iterate":  # at its current state
            n_iter = max(int(whole.solution_.iterations), 1)
            whole.solver = clone(SOLVER).set_params(max_iter=n_iter)
        size, errors = table.Y.std(axis=0), []
        size[size == 0] = 1.0
        for fit in (part, whole):
            predicted = fit.predict(U_apart).reshape(self._y_apart.shape)
            errors.append(float((((predicted - self._y_apart) / size) ** 2).mean()))
        if errors[0] < errors[1]:
            self._held_out = (*self._held_out[:2], m)
            return Member(1.0, self._encoders[trial.numbers], part, trial.turn)
        return Member(1.0, encoder, whole, trial.turn)

    def _learning_factor(self, trial: Trial, table: Table) -> float:
        """Return the factor by which residuals of unknown rows are larger.

        The kernel minimises leave-one-out residuals. If there are few rows, it is
        relearned without each fold, as time allows; for more rows, learning p numbers,
        the lengthscales and the penalty, reduces the squares by a share of about 2p/n
        (Akaike 1974).
        """
        n, encoder = len(table), self._encoders[trial.numbers]
        n_learned = 2 + int(encoder.blocks_.max(initial=-1))
        if trial.turn is not None:
            n_learned = 1 + len(encoder.columns_)
        usual = 1 + n_learned / n
        few = _LEAST_RELEARNED <= n <= _MOST_RELEARNED and self._how == "factorise"
        if self._is_stopped or not few:
            return usual
        U, rows = self._rows[trial.numbers], self._searched
        Y, weight = table.Y[rows], table.weight[rows]
        until, sizes = self._clock() + _RELEARNING_SHARE * self._left(), np.zeros(2)
        for fold in range(_RELEARNED):
            held = np.arange(n) % _RELEARNED == fold
            learned = self._relearned(trial, table, np.flatnonzero(~held), until)
            if learned is None:
                break
            for at, each in enumerate((trial, learned)):
                V, order = each.turned(U), np.arange(n - held.sum())
                rest = Table(V[~held], Y[~held], weight[~held])
                fit = fit_ridge(each.kernel, each.alpha, rest, order)
                residuals = np.abs(Y[held] - fit.predict(V[held]))
                sizes[at] += (weight[held] @ residuals).sum()
        return max(usual, float(sizes[1] / sizes[0])) if sizes[0] > 0 else usual

    def _keep_residuals(self, n: int, learning: float) -> None:
        """Store the residuals of rows unknown to the fit, (m, k)."""
        members = self.model_.members
        self._folds: np.ndarray | None = None
        first = members[0]
        if self._how != "factorise":
            rows = first.rows_of(self._X_apart)
            self._residuals = self._y_apart - self.model_.predict(self._X_apart)
        else:
            parts = [member.weight * member.fit.residuals for member in members]
            self._residuals = np.sum(parts, axis=0)
            rows = first.fit.X
            if first.fit.fold_dual is not None:
                self._residuals *= learning
                self._folds = np.empty(n, dtype=int)
                self._folds[self._order] = folds_of(n)
            else:  # in random order, those left out at the end
                rows = rows[-len(self._residuals) :]
        sizes = np.abs(self._residuals)
        self._power = chosen_power(first.kernel, rows, sizes)
        self._near = rows if self._power else rows[:0]
        local = local_sizes(first.kernel, self._power, rows, rows, sizes, own=True)
        self._local = np.where(local > 0, local, 1.0)

    def _sizes_near(self, X: Any) -> np.ndarray:
        """Estimate the size of residuals near rows, (n, k)."""
        first = self.model_.members[0]
        rows = first.rows_of(X)
        sizes = np.abs(self._residuals)
        near = local_sizes(first.kernel, self._power, rows, self._near, sizes)
        return np.where(near > 0, near, 1.0)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (n,) or (n, n_targets).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
            With the columns of the fit.
        """
        X = self._rows_of(X)
        return self._as_given(self.model_.predict(X))

    def _as_given(self, values: np.ndarray) -> np.ndarray:
        """Return values (n, k, ...) in the shape of the targets of `fit`."""
        return values if self._many else values[:, 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that contain the target with probability `coverage`.

        Up to 3,000 rows they are CV+ intervals with 20 folds (jackknife+ below 20
        rows), from closed-form fits without each fold: with exchangeable rows, a fixed
        kernel and residuals of equal sizes, the probability is at least 2·coverage − 1
        − √(2/n), and near `coverage` in practice. As the kernel is learned from the
        same n rows, residuals are multiplied by 1 + p/n, where p is the number of
        lengthscales and penalties; up to 600 rows, by their ratio in five folds whose
        kernels are learned without the fold, if that is larger. For more rows,
        intervals are centred at the prediction, with a width given by a quantile of the
        residuals of 1,500 rows: leave-one-out residuals if the Gram matrix is
        factorised (the jackknife, with asymptotically correct coverage for stable
        fits), otherwise residuals of held-out rows (split conformal prediction,
        approximately: the same rows have chosen between two fits).

        If the learned kernel predicts the sizes of residuals, they are divided by their
        mean size near the row: intervals are then wider where targets are noisier.

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
        parts = [self._intervals(rows, coverage) for rows in self.model_.blocks_of(X)]
        return self._as_given(np.concatenate(parts))

    def _intervals(self, X: Any, coverage: float) -> np.ndarray:
        """Return intervals for a block of rows, (n, k, 2)."""
        sizes, near = np.abs(self._residuals) / self._local, self._sizes_near(X)
        if self._folds is None:
            width = near * conformal_quantile(sizes, coverage)
            mean = self.model_.predict(X)
            return np.stack([mean - width, mean + width], axis=-1)
        centres = sum(
            member.weight * member.fit.predict_folds(member.rows_of(X))
            for member in self.model_.members
        )
        n = len(sizes)
        rank = math.ceil(coverage * (n + 1))
        out = np.full((len(centres), sizes.shape[1], 2), math.inf) * [-1, 1]
        if rank <= n:
            for at, centre in enumerate(centres):
                values = centre[self._folds]
                width = near[at] * sizes
                low, high = values - width, values + width
                out[at, :, 0] = np.partition(low, n - rank, axis=0)[n - rank]
                out[at, :, 1] = np.partition(high, rank - 1, axis=0)[rank - 1]
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
