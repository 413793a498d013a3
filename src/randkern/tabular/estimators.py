"""Regression and classification of tables, without a choice to make."""

from __future__ import annotations

import math
import time
import warnings
from copy import copy
from dataclasses import replace
from numbers import Real
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, check_is_fitted, validate_data

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._tables import is_table
from randkern.exceptions import IllConditionedWarning
from randkern.models import KernelLogistic, KernelRidgeRegressor
from randkern.models.callbacks import CallbackSupportMixin, FitReport, with_callbacks
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.model import (
    JUDGED_ROWS,
    MEMORY_LIMIT,
    SOLVER,
    Member,
    TabularModel,
    factorised_rows,
    factorising_seconds,
    fit_ridge,
    folds_of,
    plan_of,
)
from randkern.tabular.search import KernelSearch, Trial, blend, leave_one_out

__all__ = ["TabularClassifier", "TabularRegressor"]

# Rows that the search looks at.
_MOST_SEARCHED = 2500
# The share of the time for the search, where the last fit is to few rows and to many.
_SEARCH_SHARES = (0.7, 0.5)
_FEW_ROWS = 2500
_LAST_SHARE = 0.15
# Rows that judge trials, and fits in a blend, at most.
_MOST_JUDGED = 2000
_MOST_MEMBERS = 3
# Rows that tell how predictions depend on each column.
_EFFECT_ROWS = 200
_FEATURE_ROWS = 8000
# Penalties of logistic regression, over those of least squares.
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_LOGISTIC_FOLDS = (5, 3)
_FEW_LOGISTIC_ROWS = 1000
_LOGISTIC_ROWS = 2000
_LOGISTIC_TOL = 1e-3
# Numbers of random features, and entries of their matrix between the two.
_LOGISTIC_FEATURES = (1000, 4000)
_LOGISTIC_ENTRIES = 2 * 10**8


class _Tabular(CallbackSupportMixin, BaseEstimator):
    """What regression and classification share: rows, the search, and its reports."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(self, time_limit: float = 60, *, random_state: Any = None):
        self.time_limit = time_limit
        self.random_state = random_state

    def _begin(self, X: Any, y: Any) -> None:
        self._validate_params()
        self._began = time.perf_counter()
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        if is_table(X):
            validate_data(self, X, skip_check_array=True)
        else:
            X = validate_data(
                *(self, X),
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=2,
            )
        check_consistent_length(X, y)

    def _left(self) -> float:
        return self._began + self.time_limit - time.perf_counter()

    def _search(
        self, X: Any, Y: np.ndarray, stream: Stream, report: FitReport
    ) -> list[Trial]:
        """Return the best trials; keep all, the encoders and the searched rows."""
        n = len(Y)
        generator = stream.child("searched").generator()
        self._order = generator.permutation(n)
        self._searched = self._order[:_MOST_SEARCHED]
        self._encoders = {"standard": TabularEncoder().fit(X)}
        if len(self._encoders["standard"]._varying):
            self._encoders["quantile"] = TabularEncoder("quantile").fit(X)
        sample = _safe_indexing(X, self._searched)
        self._rows = {
            numbers: encoder.transform(sample)
            for numbers, encoder in self._encoders.items()
        }
        blocks = {name: encoder.blocks_ for name, encoder in self._encoders.items()}
        share = _SEARCH_SHARES[n > _FEW_ROWS]
        until = self._began + share * self.time_limit
        report.begin(lambda _: {})
        self._n_reported = 0

        def tell(trial: Trial) -> bool:
            self._n_reported += 1
            progress: Any = SimpleNamespace(iteration=self._n_reported, value=None)
            return report(progress)

        search = KernelSearch(
            self._rows, blocks, Y[self._searched], until, stream.child("search"), tell
        )
        refined = search.run()
        self._trials = [
            {
                "kernel": trial.form,
                "numbers": trial.numbers,
                "metric": trial.metric,
                "rows": trial.n_rows,
                "error": trial.error,
                "seconds": trial.seconds,
            }
            for trial in search.trials
        ]
        return refined

    def _judged(
        self, trials: list[Trial], Y: np.ndarray
    ) -> list[tuple[Trial, np.ndarray]]:
        """Return trials with the residuals of rows left out, the best first.

        They are judged by more rows than they are learned from, where there are more.
        """
        rows = self._searched[:_MOST_JUDGED]
        judged: list[tuple[Trial, np.ndarray]] = []
        for trial in trials:
            if judged and self._left() < _LAST_SHARE * self.time_limit:
                break
            U = self._rows[trial.numbers][: len(rows)]
            residuals = leave_one_out(trial.kernel, trial.alpha, U, Y[rows])
            while residuals is None:  # more rows than the trial has seen
                trial = replace(trial, alpha=10 * trial.alpha)
                residuals = leave_one_out(trial.kernel, trial.alpha, U, Y[rows])
            judged.append((trial, residuals))
        return sorted(judged, key=lambda pair: float((pair[1] ** 2).sum()))

    def _forget(self) -> None:
        """Drop what only the fit needs."""
        for name in ("_rows", "_order", "_searched", "_encoders", "_began", "_how"):
            self.__dict__.pop(name, None)
        for name in ("_n_reported", "_held_out", "_X_apart", "_y_apart"):
            self.__dict__.pop(name, None)

    def _finish(self, members: list[Member], estimator: str) -> None:
        self.model_ = TabularModel(members, estimator, self._held_out)
        samples = {name: rows[:_EFFECT_ROWS] for name, rows in self._rows.items()}
        self.feature_importances_ = self.model_.importances(
            self.n_features_in_, samples
        )

    @property
    def leaderboard_(self) -> Any:
        check_is_fitted(self)
        trials = sorted(self._trials, key=itemgetter("error"))
        trials.sort(key=itemgetter("rows"), reverse=True)
        try:
            import pandas as pd
        except ImportError:
            return trials
        return pd.DataFrame(trials)

    def _rows_of(self, X: Any) -> Any:
        check_is_fitted(self)
        if is_table(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        return validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


class TabularRegressor(RegressorMixin, _Tabular):
    r"""Regression of tables as they come, by a kernel that is learned for them.

    Columns are encoded by :class:`~randkern.TabularEncoder`. On at most 2,500 rows
    kernels (Gaussian, Matérn, Laplacian, rational quadratic, and sums with a linear
    one) with a lengthscale for each column are then learned, together with the penalty,
    by the gradient of the leave-one-out error, which has a closed form. The best is
    fitted to all rows, or the weighted mean of the best few where leave-one-out says
    that it is better.

    Parameters
    ----------
    time_limit : float, default=60
        Seconds; the best that was found until then is kept. The last fit may take
        longer.
    random_state : int, generator or None, default=None

    Attributes
    ----------
    model_ : TabularModel
        The fitted parts; ``print(model_.explain())`` shows the code that builds them
        from public parts of the library.
    leaderboard_ : DataFrame
        What was tried: ``kernel``, ``numbers`` (how they are scaled), ``metric``
        (``"none"`` or ``"diagonal"``), ``rows``, ``error`` (root mean squared error of
        rows left out, over that of the mean of the targets) and ``seconds``. A list of
        dicts without pandas.
    feature_importances_ : ndarray of shape (d,)
        The share of each column in the variance of the predictions, with what it
        shares with others: total-effect indices, of sum 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    Up to 16,000 rows the Gram matrix is factorised, up to 60,000 conjugate gradients
    work on its tiles; for more rows, and where the time is short, random features take
    its place. Beyond 16,000 rows 1,500 are set apart, to judge the fit and make
    intervals of.

    References
    ----------
    Rifkin & Lippert 2007, "Notes on regularized least squares"; Barber, Candès, Ramdas
    & Tibshirani 2021, "Predictive inference with the jackknife+", Annals of Statistics
    49.

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

    @with_callbacks
    @all_or_nothing
    def fit(self, X: Any, y: Any) -> TabularRegressor:
        """Search and fit.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,)
        """
        report = FitReport(self, X, y, None)
        self._begin(X, y)
        y = _check_y(y, y_numeric=True, estimator=self).astype(np.float64)
        X = X if is_table(X) else np.asarray(X, dtype=np.float64)
        stream = root_stream(self.random_state)
        X, y = self._set_apart(X, y, stream)
        deviation = float(y.std()) or 1.0
        Y = ((y - y.mean()) / deviation)[:, None]
        trials = self._search(X, Y, stream, report)
        chosen = self._blended(self._judged(trials, Y))
        members = self._fit_members(chosen, X, y, stream)
        self._finish(members, "KernelRidgeRegressor")
        self._keep_residuals(len(y))
        self._forget()
        report.end()
        return self

    def _set_apart(
        self, X: Any, y: np.ndarray, stream: Stream
    ) -> tuple[Any, np.ndarray]:
        """Return the rows to fit: of too many for an exact fit, some judge it."""
        self._held_out: Any = None
        n = len(y)
        self._how, _ = plan_of(n, self.time_limit / 2)
        if self._how == "factorise":
            return X, y
        seed = int(stream.child("held out").generator().integers(2**31))
        self._held_out = (seed, JUDGED_ROWS, n - JUDGED_ROWS)
        rows, apart = train_test_split(
            np.arange(n), test_size=JUDGED_ROWS, random_state=seed
        )
        self._X_apart, self._y_apart = _safe_indexing(X, apart), y[apart]
        return _safe_indexing(X, rows), y[rows]

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
        return sorted(pairs, key=lambda pair: -pair[0])[:_MOST_MEMBERS]

    def _fit_members(
        self,
        chosen: list[tuple[float, Trial]],
        X: Any,
        y: np.ndarray,
        stream: Stream,
    ) -> list[Member]:
        # The last rows, which judge the fit, are none that the search has seen.
        order = self._order
        members: list[Member] = []
        for at, (weight, trial) in enumerate(chosen):
            seconds = max(self._left(), 0.2 * self.time_limit) / (len(chosen) - at)
            if self._how != "factorise":
                if members:
                    break  # the time is better spent on one good fit
                members.append(self._fit_many(trial, X, y, stream))
                continue
            if members and factorising_seconds(len(y)) > seconds:
                break
            encoder = self._encoders[trial.numbers]
            fit = fit_ridge(trial.kernel, trial.alpha, encoder.transform(X), y, order)
            members.append(Member(weight, encoder, fit))
        return _normalised(members)

    def _fit_many(self, trial: Trial, X: Any, y: np.ndarray, stream: Stream) -> Member:
        """Return the better of two fits, by the rows that are set apart.

        One is exact, to as many rows as the time allows, the other to all rows.
        """
        encoder = self._encoders[trial.numbers]
        U, U_apart = encoder.transform(X), encoder.transform(self._X_apart)
        n, seconds = len(y), max(self._left(), 0.3 * self.time_limit)
        m = min(factorised_rows(seconds / 2), n)
        part: Any = fit_ridge(
            trial.kernel, trial.alpha, U[:m], y[:m], np.arange(m, dtype=int)
        )
        how, D = plan_of(n, max(self._left(), seconds / 2))
        if how == "iterate":  # on tiles of the Gram matrix, as many as fit
            encoder = copy(encoder).set_params(dtype="float32")
            U = U.astype(np.float32)
        seed = int(stream.child("features").generator().integers(2**31))
        whole = KernelRidgeRegressor(
            trial.kernel,
            trial.alpha,
            D or None,
            solver=SOLVER if how == "iterate" else "auto",
            fit_intercept=True,
            memory_limit=MEMORY_LIMIT,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", IllConditionedWarning)
            whole.fit(U, y)
        errors = [
            float(((fit.predict(U_apart).ravel() - self._y_apart) ** 2).mean())
            for fit in (part, whole)
        ]
        if errors[0] < errors[1]:
            self._held_out = (*self._held_out[:2], m)
            return Member(1.0, self._encoders[trial.numbers], part)
        return Member(1.0, encoder, whole)

    def _keep_residuals(self, n: int) -> None:
        """Keep the residuals of rows that a fit has not seen."""
        members = self.model_.members
        self._folds: np.ndarray | None = None
        if self._how != "factorise":
            predictions = self.model_.predict(self._X_apart)[:, 0]
            self._residuals = self._y_apart - predictions
            return
        parts = [member.weight * member.fit.residuals for member in members]
        self._residuals = np.sum(parts, axis=0)
        if members[0].fit.fold_dual is not None:
            self._folds = np.empty(n, dtype=int)
            self._folds[self._order] = folds_of(n)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (n,)."""
        X = self._rows_of(X)
        return self.model_.predict(X)[:, 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that hold the target with probability `coverage`, (n, 2).

        Up to 3,000 rows these are those of CV+ with 20 folds (of the jackknife+ below
        20 rows), from fits without a fold each in closed form: with exchangeable rows,
        and the kernel given, the probability is at least 2·coverage − 1 − √(2/n), and
        near `coverage` in practice. For more rows they are around the prediction,
        as wide as a quantile of the residuals of 1,500 rows: for up to 16,000 rows
        those of rows left out one at a time (the jackknife, whose coverage is right in
        the limit for stable fits), beyond of rows that are set apart (split conformal
        prediction: at least `coverage`).

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        coverage : float, default=0.9
            Between 0 and 1.
        """
        if not (isinstance(coverage, Real) and 0 < coverage < 1):
            raise ValueError(
                f"coverage must be a number between 0 and 1, got {coverage!r}; "
                "for instance 0.9."
            )
        X = self._rows_of(X)
        sizes = np.abs(self._residuals)
        n = len(sizes)
        rank = math.ceil(coverage * (n + 1))
        if self._folds is None:
            width = np.sort(sizes)[rank - 1] if rank <= n else math.inf
            mean = self.model_.predict(X)[:, 0]
            return np.stack([mean - width, mean + width], axis=1)
        members = self.model_.members
        centres = sum(
            member.weight * member.fit.predict_folds(member.encoder.transform(X))
            for member in members
        )
        out = np.empty((len(centres), 2))
        for at, centre in enumerate(centres):
            values = centre[self._folds]
            if rank > n:
                out[at] = -math.inf, math.inf
                continue
            out[at, 0] = np.partition(values - sizes, n - rank)[n - rank]
            out[at, 1] = np.partition(values + sizes, rank - 1)[rank - 1]
        return out


class TabularClassifier(ClassifierMixin, _Tabular):
    """Classification of tables as they come, by a kernel that is learned for them.

    The kernels are those of :class:`TabularRegressor`, learned from labels coded as ±1.
    With the best few of them logistic regression is then fitted, with a penalty chosen
    by the log loss in folds; so are the weights of their mean, and a temperature that
    calibrates its probabilities.

    Parameters
    ----------
    time_limit : float, default=60
        Seconds; the best that was found until then is kept. The last fit may take
        longer.
    random_state : int, generator or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    model_, leaderboard_, feature_importances_
        As in :class:`TabularRegressor`.
    temperature_ : float
        Logarithms of probabilities are divided by it.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    Up to 8,000 rows the kernel is exact; for more, random features take its place.

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
    def fit(self, X: Any, y: Any) -> TabularClassifier:
        """Search and fit.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : array of shape (n,)
            Labels.
        """
        report = FitReport(self, X, y, None)
        self._begin(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of at least 2 classes, got one "
                f"class, {self.classes_.tolist()[0]!r}."
            )
        X = X if is_table(X) else np.asarray(X, dtype=np.float64)
        stream = root_stream(self.random_state)
        Y = 2.0 * (labels[:, None] == np.arange(len(self.classes_))) - 1
        Y = Y[:, 1:] if len(self.classes_) == 2 else Y
        self._held_out = None
        trials = self._search(X, Y, stream, report)
        judged = self._judged(trials, Y)[:_MOST_MEMBERS]
        chosen = self._calibrated([trial for trial, _ in judged], labels)
        members = self._fit_members(chosen, X, labels, stream)
        self._finish(members, "KernelLogistic")
        self._forget()
        report.end()
        return self

    def _calibrated(
        self, trials: list[Trial], labels: np.ndarray
    ) -> list[tuple[float, float, Trial]]:
        """Return the final weights, penalties and trials; set the temperature."""
        n = min(_LOGISTIC_ROWS, len(self._searched))
        labels = labels[self._searched[:n]]
        counts = np.bincount(labels)
        n_folds = min(_LOGISTIC_FOLDS[n > _FEW_LOGISTIC_ROWS], n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes with few rows
            folds = (
                list(StratifiedKFold(n_folds).split(labels, labels))
                if (counts.max() >= n_folds)
                else []
            )
        found: list[Any] = []
        for trial in trials:
            if found and self._left() < 0.3 * self.time_limit:
                break
            found.append(self._best_penalty(trial, labels, folds))
        found.sort(key=lambda triple: triple[0])
        parts = [part for _, _, part, _ in found]
        weights, self.temperature_ = _blend_probabilities(parts, labels)
        chosen = [
            (float(weight), C, trial)
            for weight, (_, C, _, trial) in zip(weights, found, strict=True)
            if weight > 0
        ]
        return sorted(chosen, key=lambda triple: -triple[0])

    def _best_penalty(
        self, trial: Trial, labels: np.ndarray, folds: list[Any]
    ) -> tuple[float, float, np.ndarray, Trial]:
        """Return the least log loss, its C, the probabilities of rows left out."""
        U = self._rows[trial.numbers][: len(labels)]
        best: Any = None
        for share in _PENALTIES[::-1]:
            C = 1 / (share * trial.alpha)
            P = np.full((len(labels), len(self.classes_)), 1 / len(self.classes_))
            for train, held in folds:
                model = _logistic(trial.kernel, C, None, 0)
                if len(np.unique(labels[train])) < 2:
                    continue
                _quietly(model, U[train], labels[train])
                P[held[:, None], model.classes_] = model.predict_proba(U[held])
            loss = _log_loss(P, labels)
            if best is not None and loss > best[0]:
                break
            best = (loss, C, P, trial)
        return best

    def _fit_members(
        self, chosen: list[Any], X: Any, labels: np.ndarray, stream: Stream
    ) -> list[Member]:
        members: list[Member] = []
        seed = int(stream.child("features").generator().integers(2**31))
        many = len(labels) > _FEATURE_ROWS
        least, most = _LOGISTIC_FEATURES
        D = min(max(_LOGISTIC_ENTRIES // len(labels), least), most)
        for weight, C, trial in chosen:
            if members and self._left() < 0.3 * self.time_limit and many:
                break
            encoder = self._encoders[trial.numbers]
            if many:
                encoder = copy(encoder).set_params(dtype="float32")
            model = _logistic(trial.kernel, C, D if many else None, seed)
            _quietly(model, encoder.transform(X), labels)
            members.append(Member(weight, encoder, model))
        return _normalised(members)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities of the classes, (n, n_classes)."""
        X = self._rows_of(X)
        return _tempered(self.model_.predict(X), self.temperature_)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable classes, (n,)."""
        P = self.predict_proba(X)
        return self.classes_[P.argmax(axis=1)]


def _normalised(members: list[Member]) -> list[Member]:
    """Return members whose weights have the sum 1."""
    total = sum(member.weight for member in members)
    return [replace(member, weight=member.weight / total) for member in members]


def _logistic(kernel: Any, C: float, D: int | None, seed: int) -> KernelLogistic:
    return KernelLogistic(
        kernel,
        C=C,
        n_components=D,
        tol=_LOGISTIC_TOL,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def _quietly(model: Any, X: np.ndarray, labels: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, labels)


def _log_loss(P: np.ndarray, labels: np.ndarray) -> float:
    chosen = P[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(chosen, 1e-15, None)).mean())


def _tempered(P: np.ndarray, temperature: float) -> np.ndarray:
    logits = np.log(np.clip(P, 1e-15, None)) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    out = np.exp(logits)
    return out / out.sum(axis=1, keepdims=True)


def _blend_probabilities(
    parts: list[np.ndarray], labels: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return weights of sum 1, and the temperature, of least log loss."""

    def weights_of(z: np.ndarray) -> np.ndarray:
        weights = np.exp(z - z.max())
        return weights / weights.sum()

    def mean(weights: np.ndarray) -> np.ndarray:
        return sum(w * P for w, P in zip(weights, parts, strict=True))

    def loss(z: np.ndarray) -> float:
        return _log_loss(mean(weights_of(z)), labels)

    weights = np.ones(1)
    if len(parts) > 1:
        found = minimize(loss, np.zeros(len(parts)), method="Nelder-Mead")
        weights = weights_of(found.x)
        weights[weights < 0.05] = 0.0
        weights /= weights.sum()
    blended = mean(weights)
    found = minimize(
        lambda z: _log_loss(_tempered(blended, float(np.exp(z[0]))), labels),
        np.zeros(1),
        method="Nelder-Mead",
    )
    return weights, float(np.exp(found.x[0]))
