"""Encoding of table columns as numbers on a common scale."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from randkern._cells import check_categories, check_not_infinite, naming_cells
from randkern._fitting import all_or_nothing
from randkern._sklearn import (
    StrOptions,
    check_feature_names_in,
    safe_indexing,
)
from randkern._tables import (
    check_column_order,
    count_missing,
    days_of,
    is_duration,
    is_numeric,
    is_table,
    is_time,
    no_numbers,
    numbers_of,
    objects_of,
    without_sparse_columns,
)
from randkern._validation import check_weights, readable_rows, refuse_dask
from randkern._warnings import warn
from randkern.data.columns import n_free_texts, with_known_types
from randkern.data.written import check_dates, days_of_texts
from randkern.tabular.presets import largest

# The most frequent levels of a column of categories get a column each, and the others
# share one: at most so many of each, and of all columns together.
_MAX_LEVELS, _MAX_LEVEL_COLUMNS = 200, 1000
_MIN_ROWS = 2
_QUANTILES = 1000
# Periods of dates, in days; the least standard deviation of a sine or cosine, and what
# both are multiplied by. The search starts from one lengthscale for all columns, which
# is long for such small numbers: a season has to show in the targets to matter.
_PERIODS = {1.0: "day", 7.0: "week", 365.2425: "year"}
_LEAST_SPREAD, _RADIUS = 0.2, 0.05
# Where normal quantiles are clipped, in standard deviations.
FARTHEST = 3.0
# Largest number of rows from which medians, scales and categories are learned.
_MAX_FITTED = 100_000
# The squares of larger numbers may overflow.
_LARGEST = 1e150
# Weights with a larger sum are not treated as repetitions.
_MAX_REPEATED = 10**6


class TabularEncoder(TransformerMixin, BaseEstimator):
    r"""Encode the columns of a table as numbers on a common scale.

    Numeric and boolean columns are scaled; dates and durations are first converted to
    days. Dates also have sines and cosines of the time of day, the day of the week and
    the season, if the rows span two of these periods and differ in the phase. These are
    at most 0.05, so that a season matters to a kernel where it learns to. Missing
    numbers are replaced by the median and marked by an indicator column. Categories,
    and strings with few distinct values, become one column per value, so that rows that
    differ in a category are at distance 1 along it. Beyond 200 values (or fewer, if
    categories would take more than 1,000 columns in all) the rarest share a column.
    Missing values are a category; values that occur in a single row share one. Values
    unknown at `fit` belong to the latter, if it exists, and otherwise to no category.
    Two values take only one column, in which unknown ones lie halfway.

    Parameters
    ----------
    numbers : {"standard", "quantile"}, default="standard"
        ``"standard"``: mean 0 and variance 1. ``"quantile"``: each number is replaced
        by the normal quantile at its rank, at most 3 standard deviations from the
        mean; for columns with long tails.
    dtype : {"float64", "float32"}, default="float64"
        Dtype of the encoded rows.

    Attributes
    ----------
    columns_ : ndarray of shape (n_features_out,)
        The input column of each output column.
    blocks_ : ndarray of shape (n_features_out,)
        Indices from 0 on, equal for output columns that belong together, such as those
        of a categorical column's values.
    widths_ : tuple of three int
        Numbers of output columns of scaled numbers, of indicators of missing ones, and
        of categories, in this order.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> import pandas as pd, randkern as rk
    >>> table = pd.DataFrame({"size": [1.0, 2, 3], "colour": ["red", "blue", "red"]})
    >>> rk.TabularEncoder().fit_transform(table).round(2)
    array([[-1.22,  0.  ],
           [ 0.  ,  1.  ],
           [ 1.22,  0.  ]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "numbers": [StrOptions({"standard", "quantile"})],
        "dtype": [StrOptions({"float64", "float32"})],
    }

    def __init__(self, numbers: str = "standard", *, dtype: str = "float64"):
        self.numbers = numbers
        self.dtype = dtype

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TabularEncoder:
        """Learn medians, scales and categories from at most 100,000 rows.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
            Integers with a sum of at most a million are repetitions of rows, after
            division by their greatest common divisor. Of other weights only zeros
            matter: such rows are omitted.
        """
        self._validate_params()
        X = self._checked(X, reset=True)
        rows = _repeated_rows(sample_weight, X)
        if (n := len(rows)) > _MAX_FITTED:
            drawn = np.random.default_rng(0).choice(n, _MAX_FITTED, replace=False)
            rows = rows[np.sort(drawn)]
        if sample_weight is not None or n > _MAX_FITTED:
            X = safe_indexing(X, rows)
        has_kinds = is_table(X) and not _is_plain(X)
        columns = [X[name] for name in X.columns] if has_kinds else []
        self._times = [j for j, column in enumerate(columns) if is_time(column)]
        numeric = [j for j, column in enumerate(columns) if is_numeric(column)]
        others = np.setdiff1d(np.arange(len(columns)), [*numeric, *self._times])
        self._categories = others.astype(int)
        self._numbers = np.setdiff1d(np.arange(self.n_features_in_), others)
        numbers, objects = self._split(X)
        self._fit_phases(numbers, columns)
        self._fit_numbers(numbers)
        self._fit_categories(objects)
        return self

    def _fit_phases(self, numbers: np.ndarray, columns: list[Any]) -> None:
        """Choose the periods of dates: those that the rows span twice, and vary in."""
        self._phases: list[tuple[int, float]] = []
        for at, j in enumerate(self._numbers):
            if j not in self._times or is_duration(columns[j]):
                continue
            days = numbers[~np.isnan(numbers[:, at]), at]
            for period in _PERIODS:
                if len(days) and np.ptp(days) >= 2 * period:
                    spread = np.std(phases(days, period), axis=1).max()
                    if spread > _LEAST_SPREAD * _RADIUS:
                        self._phases.append((at, period))

    def _fit_numbers(self, numbers: np.ndarray) -> None:
        self._scaler: Any = None
        self._empty = self._numbers[:0]
        self._varying = self._missing = self._numbers[:0]
        self._spread = self._range = np.ones(0)
        if not len(self._numbers):
            return
        missing = np.isnan(numbers)
        empty = missing.all(axis=0)
        self._empty = self._numbers[empty]
        self._missing = np.flatnonzero(missing.any(axis=0) & ~empty)
        self._medians = np.nanmedian(np.where(empty, 0.0, numbers), axis=0)
        filled = np.where(missing, self._medians, numbers)
        varying = filled.min(axis=0) != filled.max(axis=0)
        if not (varying.any() or len(self._missing) or len(self._categories)):
            varying[0] = True  # avoids rows without columns
        self._varying = np.flatnonzero(varying)
        if not len(self._varying):
            return
        filled = filled[:, self._varying]
        # To QuantileTransformer, numbers within 1e-7 of the ends are equal to them.
        # Division by powers of two is exact.
        reach = np.ptp(filled, axis=0)
        self._range = np.exp2(np.floor(np.log2(np.where(reach > 0, reach, 1.0))))
        scaler: Any = StandardScaler()
        if self.numbers == "quantile":
            scaler = QuantileTransformer(
                n_quantiles=min(_QUANTILES, len(filled)), subsample=None
            )
        self._scaler = scaler.set_output(transform="default").fit(filled / self._range)
        spread = self._clipped(filled).std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)

    def _clipped(self, filled: np.ndarray) -> np.ndarray:
        scaled = np.asarray(self._scaler.transform(filled / self._range))
        if self.numbers == "quantile":
            return np.clip(ndtri(scaled), -FARTHEST, FARTHEST)
        return scaled

    def _fit_categories(self, objects: np.ndarray) -> None:
        self._one_hot: Any = None
        widths: list[int] = []
        if len(self._categories):
            for j, values in zip(self._categories, objects.T, strict=True):
                self._check_levels(j, values)
            self._one_hot = OneHotEncoder(
                drop="if_binary",
                handle_unknown="infrequent_if_exist",
                min_frequency=_MIN_ROWS if len(objects) > _MIN_ROWS else None,
                max_categories=max_levels(list(map(n_repeated, objects.T))),
                sparse_output=False,
            ).set_output(transform="default")
            self._one_hot.fit(objects)
            self._warn_of_single_texts()
            names = self._one_hot.get_feature_names_out(
                [f"{j}" for j in range(len(self._categories))]
            )
            first = np.array([int(name.split("_", 1)[0]) for name in names], dtype=int)
            widths = np.bincount(first, minlength=len(self._categories)).tolist()
        repeated = np.repeat(widths, widths).astype(int)
        self._level_scale = np.where(repeated == 1, 1.0, np.sqrt(0.5))
        dates = [at for at, _ in self._phases]
        parts = [self._varying, np.repeat(dates, 2).astype(int), self._missing]
        of_numbers = self._numbers[np.concatenate(parts)]
        of_categories = np.repeat(self._categories, widths)
        self.columns_ = np.concatenate([of_numbers, of_categories]).astype(int)
        # A sine and its cosine belong together, as do the values of a category.
        sizes = [1] * len(self._varying) + [2] * len(dates) + [1] * len(self._missing)
        sizes += [width for width in widths if width]
        self.blocks_ = np.repeat(np.arange(len(sizes)), sizes)

    def _warn_of_single_texts(self) -> None:
        """Warn of columns that are ignored, as each text occurs in one row."""
        rare_texts = getattr(self._one_hot, "infrequent_categories_", ())
        for j, rare, texts in zip(
            self._categories, rare_texts, self._one_hot.categories_, strict=False
        ):
            if rare is not None and len(rare) == len(texts) > 1:
                warn(
                    f"column {self._name(j)!r} is ignored: each of its {len(texts)} "
                    "texts occurs in a single row. Drop it, or encode it as numbers or "
                    "as a few categories.",
                    UserWarning,
                )

    def _check_levels(self, j: int, values: np.ndarray) -> None:
        name = self._name(j)
        check_categories(name, values)
        if n := n_free_texts(name, values):
            raise ValueError(
                f"column {name!r} has {n} different texts in {len(values)} rows, too "
                "many for a categorical column. Drop it, or encode it as numbers or "
                "with fewer categories; TabularRegressor and TabularClassifier accept "
                "free text (text_columns)."
            )

    @property
    def widths_(self) -> tuple[int, int, int]:
        check_is_fitted(self)
        n_numbers = len(self._varying) + 2 * len(self._phases)
        n_missing = len(self._missing)
        return n_numbers, n_missing, len(self.columns_) - n_numbers - n_missing

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded rows, (n, n_features_out).

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        """
        check_is_fitted(self)
        numbers, objects = self._split(self._checked(X, reset=False))
        out = np.empty((len(numbers), len(self.columns_)), dtype=self.dtype)
        n_numbers, n_missing, _ = self.widths_
        if n_numbers:
            filled = np.where(np.isnan(numbers), self._medians, numbers)
            scaled = self._clipped(filled[:, self._varying]) / self._spread
            parts = [
                part for at, t in self._phases for part in phases(filled[:, at], t)
            ]
            out[:, :n_numbers] = np.column_stack([scaled, *parts])
        missing = slice(n_numbers, n_numbers + n_missing)
        out[:, missing] = np.isnan(numbers[:, self._missing])
        if self._one_hot is not None:
            self._check_types(objects)
            out[:, missing.stop :] = self._levels(objects)
        return out

    def _levels(self, objects: np.ndarray) -> np.ndarray:
        """Return the encoded categories."""
        objects, unknown = objects.copy(), []
        infrequent = getattr(self._one_hot, "infrequent_categories_", None)
        for at, known in enumerate(self._one_hot.categories_):
            values = set(known.tolist())
            is_unknown = np.array([value not in values for value in objects[:, at]])
            rare = None if infrequent is None else infrequent[at]
            # The one-hot encoder would warn of unknown values.
            objects[is_unknown, at] = known[0] if rare is None else rare[0]
            if rare is None and is_unknown.any():
                unknown.append((at, is_unknown, 0.5 if len(known) == 2 else 0.0))
        levels = self._one_hot.transform(objects) * self._level_scale
        columns = self.columns_[len(self.columns_) - levels.shape[1] :]
        for at, is_unknown, level in unknown:
            levels[np.ix_(is_unknown, columns == self._categories[at])] = level
        return levels

    def _check_types(self, objects: np.ndarray) -> None:
        """Raise or warn for columns that have values, but none known."""
        rare_of = getattr(self._one_hot, "infrequent_categories_", None)
        for at, known in enumerate(self._one_hot.categories_):
            observed = {value for value in objects[:, at] if value is not None}
            present = {value for value in known if value is not None}
            if not observed or not present or not observed.isdisjoint(present):
                continue
            name = self._name(self._categories[at])
            types, known_types = (
                " and ".join(sorted({type(value).__name__ for value in values}))
                for values in (observed, present)
            )
            if types != known_types:
                raise ValueError(
                    f"column {name!r} had {known_types} values when the encoder was "
                    f"fitted, but has {types} values now; convert it."
                )
            rare = None if rare_of is None else rare_of[at]
            if rare is None or len(rare) < len(known):  # else, the column is ignored
                warn(
                    f"column {name!r} holds no value that is known from the fit: "
                    f"{_nearest(sorted(observed)[0], sorted(present))}",
                    UserWarning,
                )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return a name for each column of the output.

        Parameters
        ----------
        input_features : array of str, optional
            Names of the columns; by default those seen in the fit, or ``x0``, ``x1``, …
        """
        check_is_fitted(self)
        names = check_feature_names_in(self, input_features)
        n_numbers, n_missing, _ = self.widths_
        out = [names[j] for j in self.columns_]
        for at, (_, period) in enumerate(self._phases):
            for part, end in enumerate(("sin", "cos")):
                out[len(self._varying) + 2 * at + part] += f"_{_PERIODS[period]}_{end}"
        for at in range(n_numbers, n_numbers + n_missing):
            out[at] = f"{out[at]}_missing"
        if self._one_hot is not None:
            levels = self._one_hot.get_feature_names_out(names[self._categories])
            out[n_numbers + n_missing :] = levels
        return np.array(out, dtype=object)

    # -- reading ----------------------------------------------------------------------

    def _checked(self, X: Any, reset: bool) -> Any:
        """Return a dataframe unchanged, anything else as an array of floats."""
        if not reset and not is_table(X) and len(self._categories):
            raise ValueError(
                "X must be a dataframe: the encoder was fitted to one with categories."
            )
        if is_table(X) and (len(X.columns) == 0 or len(X) == 0):
            raise ValueError(
                f"X has {X.shape[0]} rows and {X.shape[1]} columns; at least one of "
                "each is needed."
            )
        X = checked_table(self, X, reset)
        if hasattr(X, "iloc"):
            X = without_sparse_columns(X, dense=True)
        return with_known_types(X) if is_table(X) else X

    def _name(self, j: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return str(j if names is None else names[j])

    def _split(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Split into numeric columns, with NaN for missing values, and categories."""
        if _is_plain(X) and not self._times and not len(self._categories):
            X = X.to_numpy(dtype=float)
            for j in np.flatnonzero(np.isinf(X).any(axis=0)).tolist():
                check_not_infinite(self._name(j), X[:, j])
        if not is_table(X):
            self._check_sizes(X)
            return X, np.empty((len(X), 0), dtype=object)
        columns = [X[name] for name in X.columns]
        numbers = np.empty((len(X), len(self._numbers)))
        for at, j in enumerate(self._numbers):
            numbers[:, at] = self._read_numbers(columns[j], j)
        objects = np.empty((len(X), len(self._categories)), dtype=object)
        for at, j in enumerate(self._categories):
            objects[:, at] = objects_of(columns[j])
        self._check_sizes(numbers)
        return numbers, objects

    def _check_sizes(self, numbers: np.ndarray) -> None:
        """Raise if the squares of numbers overflow."""
        with np.errstate(invalid="ignore"):
            large = np.flatnonzero((np.abs(numbers) > _LARGEST).any(axis=0))
        if len(large):
            raise ValueError(
                f"column {self._name(self._numbers[large[0]])!r} holds numbers beyond "
                f"{_LARGEST:g}; replace them by missing values."
            )

    def _read_numbers(self, column: Any, j: int) -> np.ndarray:
        name = self._name(j)
        if is_time(column):
            return days_of(column)
        has_values = j in self._times and count_missing(column) < len(column)
        if has_values and is_numeric(column):
            raise ValueError(
                f"column {name!r} held dates when the encoder was fitted, but holds "
                "numbers now; convert it."
            )
        if not is_numeric(column):
            if j in self._empty:
                warn(
                    f"column {name!r} was empty when the encoder was fitted, and is "
                    "ignored",
                    UserWarning,
                )
                return np.full(len(column), np.nan)
            # A file that is read again has texts where the rows of the fit had dates.
            days = _days_of_dates(name, objects_of(column))
            if days is not None:
                return days
            raise ValueError(
                f"column {name!r} was numeric when the encoder was fitted, but "
                f"{no_numbers(column)}; fix or clear this value."
            )
        values = numbers_of(column)
        check_not_infinite(name, values)
        return values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def phases(days: Any, period: float, xp: Any = np) -> tuple[Any, Any]:
    """Return the phases of a period as points on a small circle."""
    angle = (days / period - xp.floor(days / period)) * (2 * math.pi)
    return _RADIUS * xp.sin(angle), _RADIUS * xp.cos(angle)


def _is_plain(X: Any) -> bool:
    """Return whether a dataframe of pandas has columns of NumPy's numbers alone."""
    return hasattr(X, "iloc") and all(
        isinstance(dtype, np.dtype) and dtype.kind in "buif" for dtype in X.dtypes
    )


def max_levels(counts: Sequence[int]) -> int:
    """Return the most levels per column with which all have few enough columns.

    `counts` are how many levels of each column occur in several rows.
    """
    return largest(
        lambda most: sum(min(count, most) for count in counts),
        _MAX_LEVEL_COLUMNS,
        least=2,
        most=_MAX_LEVELS,
    )


def n_repeated(values: np.ndarray) -> int:
    """Return how many values of a column occur in several rows."""
    return sum(n > 1 for n in Counter(values.tolist()).values())


def _days_of_dates(name: str, values: np.ndarray) -> np.ndarray | None:
    """Return texts as days if most of them are dates, such as 2026-11-22."""
    import pandas

    texts = [value if isinstance(value, str) else None for value in values]
    column = pandas.Series(texts, dtype=object, name=name)
    days = days_of_texts(column)
    if 2 * np.isfinite(days).sum() <= column.notna().sum():
        return None
    check_dates(name, column, days)
    return days


def _nearest(value: Any, known: list[Any]) -> str:
    """Describe an unknown category, and the known one that resembles it most."""
    texts = {str(value).strip().casefold(): value for value in known}
    close = difflib.get_close_matches(str(value).strip().casefold(), texts, n=1)
    if close:
        return f"{value!r}, of which {texts[close[0]]!r} is the nearest known"
    return f"{value!r}, for which {known[0]!r} is an example of known ones"


def encoder_to_arrays(numbers: str) -> TabularEncoder:
    """Return an encoder to arrays, whatever scikit-learn is configured to return."""
    return TabularEncoder(numbers).set_output(transform="default")


def checked_table(estimator: Any, X: Any, reset: bool, least_rows: int = 1) -> Any:
    """Return a valid dataframe unchanged, anything else as an array of floats."""
    refuse_dask(X, "X")
    if is_table(X) and not reset:
        X = _known_columns(estimator, X)
    check_column_order(estimator, X, reset=reset)
    if is_table(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X
    X = readable_rows(X, estimator=estimator)
    with naming_cells(X):
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least_rows,
        )


def _known_columns(estimator: Any, X: Any) -> Any:
    """Return a table without the columns that an estimator was not fitted to.

    With a warning; a table that also lacks columns is left to scikit-learn's error.
    """
    names = dict.fromkeys(getattr(estimator, "feature_names_in_", X.columns))
    others = [name for name in X.columns if name not in names]
    if not others or not {*names} <= {*X.columns}:
        return X
    shown = ", ".join(map(repr, others[:5])) + ", ..." * (len(others) > 5)
    warn(
        f"ignored columns of X that {type(estimator).__name__} was not fitted to: "
        f"{shown}",
        UserWarning,
    )
    return X[[name for name in X.columns if name in names]]


def _repeated_rows(sample_weight: Any, X: Any) -> np.ndarray:
    """Return row indices, repeated by their weights."""
    weight = check_weights(sample_weight, np.empty((len(X), 1)), bounded=False)
    if weight is None:
        return np.arange(len(X))
    are_integers = np.array_equal(weight, np.round(weight))
    are_few = weight.max() <= _MAX_REPEATED and weight.sum() <= _MAX_REPEATED
    if not (are_integers and are_few):
        return np.flatnonzero(weight)
    times = weight.astype(int)
    # Repeating all rows equally often changes nothing.
    return np.repeat(np.arange(len(times)), times // np.gcd.reduce(times))
