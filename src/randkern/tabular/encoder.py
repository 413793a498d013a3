"""Encoding of table columns as numbers on a common scale."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder
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
from randkern.backend.namespace import ops_of
from randkern.data.columns import n_free_texts, with_known_types
from randkern.data.written import check_dates, days_of_texts
from randkern.tabular.presets import largest

# The most frequent levels of a column of categories get a column each, and the others
# share one: at most so many of each, and of all columns together.
_MAX_LEVELS, _MAX_LEVEL_COLUMNS = 200, 1000
_QUANTILES = 1000
# Periods of dates, in days; the least standard deviation of a sine or cosine, and what
# both are multiplied by. The search starts from one lengthscale for all columns, which
# is long for such small numbers: a season has to show in the targets to matter.
_PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
_LEAST_SPREAD, _RADIUS = 0.2, 0.05
# Where normal quantiles are clipped, in standard deviations.
FARTHEST = 3.0
_MIN_RANK = float(ndtr(-FARTHEST))
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
    kinds_ : ndarray of str, of shape (n_features_in,)
        ``"number"``, ``"empty"`` (of numbers, all missing), ``"date"``, ``"duration"``
        or ``"category"`` for each input column.
    levels_ : dict of int to ndarray of object
        The known values of each column of categories; a missing one is None.
    codes_ : dict of int to ndarray
        How each of these values is encoded, and, in the last row, all others.
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
        if len(rows) > _MAX_FITTED:
            rows = np.random.default_rng(0).choice(rows, _MAX_FITTED, replace=False)
        if sample_weight is not None or len(X) > _MAX_FITTED:
            X = safe_indexing(X, np.sort(rows))
        self.kinds_ = np.full(self.n_features_in_, "number", dtype="U8")
        if is_table(X):
            self.kinds_[:] = [_kind_of(X[name]) for name in X.columns]
        numbers, categories = self._read(X)
        self._fit_numbers(numbers)
        columns = self.numeric_columns
        # Each block of output columns: its input column, and the ends of their names.
        blocks = [(j, [""]) for j in columns[self._varying]]
        blocks += [(columns[at], [f"_{t}_sin", f"_{t}_cos"]) for at, t in self._phases]
        blocks += [(j, ["_missing"]) for j in columns[self._missing]]
        blocks += self._fit_categories(categories)
        sources, ends = zip(*blocks, strict=True)
        widths = [*map(len, ends)]
        self._ends = [*chain.from_iterable(ends)]
        self.columns_ = np.repeat(sources, widths)
        self.blocks_ = np.repeat(np.arange(len(blocks)), widths)
        return self

    @property
    def numeric_columns(self) -> np.ndarray:
        """The positions of the columns of numbers, dates and durations."""
        return np.flatnonzero(self.kinds_ != "category")

    def _fit_numbers(self, numbers: np.ndarray) -> None:
        """Learn how numbers are filled and scaled, and which periods dates have."""
        columns, missing = self.numeric_columns, np.isnan(numbers)
        empty = missing.all(axis=0)
        self.kinds_[columns[empty & (self.kinds_[columns] == "number")]] = "empty"
        self._missing = np.flatnonzero(missing.any(axis=0) & ~empty)
        self._medians = np.nanmedian(np.where(empty, 0.0, numbers), axis=0)
        filled = np.where(missing, self._medians, numbers)
        varying = filled.min(axis=0) < filled.max(axis=0)
        if not (varying.any() or len(self._missing) or "category" in self.kinds_):
            varying[0] = True  # avoids rows without columns
        self._varying = np.flatnonzero(varying)
        filled = filled[:, self._varying]
        self._rank_tables: list[np.ndarray] = []
        if self.numbers == "quantile":
            shares = 100 * np.linspace(0, 1, min(_QUANTILES, len(filled)))
            quantiles = np.maximum.accumulate(np.percentile(filled, shares, axis=0))
            self._rank_tables = [*map(_rank_table, quantiles.T)]
        scores = self._scores(filled)
        self._mean = np.zeros(len(self._varying))
        if self.numbers == "standard":
            self._mean = scores.mean(axis=0)
        # The squares of tiny numbers would vanish.
        extent = np.ptp(scores, axis=0)
        unit = np.where(extent > 0, extent, 1.0)
        self._spread = np.where(extent > 0, unit * (scores / unit).std(axis=0), 1.0)
        self._phases = [
            (at, name)
            for at in np.flatnonzero(self.kinds_[columns] == "date").tolist()
            for name, period in _PERIODS.items()
            if _have_period(numbers[~missing[:, at], at], period)
        ]

    def _fit_categories(
        self, categories: dict[int, np.ndarray]
    ) -> list[tuple[int, list[str]]]:
        """Learn the codes of categories, and return their blocks of columns."""
        for j, values in categories.items():
            name = self._name(j)
            check_categories(name, values)
            if n := n_free_texts(name, values):
                raise ValueError(
                    f"column {name!r} has {n} different texts in {len(values)} rows, "
                    "too many for a categorical column. Drop it, or encode it as "
                    "numbers or with fewer categories; TabularRegressor and "
                    "TabularClassifier accept free text (text_columns)."
                )
        most = max_levels([*map(n_repeated, categories.values())])
        self.levels_: dict[int, np.ndarray] = {}
        self.codes_: dict[int, np.ndarray] = {}
        blocks = []
        for j, values in categories.items():
            self.levels_[j], self.codes_[j], ends = _codes_of(values, most)
            blocks.append((j, ends))
            if len(self.levels_[j]) > 1 and self._is_ignored(j):
                warn(
                    f"column {self._name(j)!r} is ignored: each of its "
                    f"{len(self.levels_[j])} texts occurs in a single row. Drop it, or "
                    "encode it as numbers or as a few categories.",
                    UserWarning,
                )
        return blocks

    def _is_ignored(self, j: int) -> bool:
        """Return whether all categories of a column share a code."""
        return bool((self.codes_[j] == self.codes_[j][0]).all())

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
        numbers, categories = self._read(self._checked(X, reset=False))
        codes = []
        for j, values in categories.items():
            self._check_known(j, values)
            codes.append(self.codes_[j][places_of(values, self.levels_[j])])
        return np.asarray(self._encoded(numbers, codes))

    def _encoded(self, numbers: Any, codes: list[Any]) -> Any:
        """Return encoded rows as an array of the library of its arguments.

        Parameters
        ----------
        numbers : array of shape (n, n_numeric_columns)
            NaN if missing; dates and durations are days. Ignored if there are none.
        codes : list of array of shape (n, width)
            The rows of `codes_` of each column of categories.
        """
        parts = []
        if len(self._medians):
            ops = ops_of(numbers)
            xp, like = ops.xp, ops.float64_like
            is_missing = xp.isnan(numbers)
            filled = xp.where(is_missing, like(self._medians, numbers), numbers)
            if len(self._varying):
                scores = self._scores(filled[:, self._varying])
                scores = scores - like(self._mean, numbers)
                parts.append(scores / like(self._spread, numbers))
            for at, name in self._phases:
                parts += _phases(filled[:, [at]], _PERIODS[name], xp)
            if len(self._missing):
                parts.append(is_missing[:, self._missing])
        parts += codes
        xp = ops_of(parts[0]).xp
        dtype = getattr(xp, self.dtype)
        return xp.concat([xp.astype(part, dtype) for part in parts], axis=1)

    def _scores(self, filled: Any) -> Any:
        """Return the normal quantiles at the ranks of numbers, or the numbers."""
        if not self._rank_tables:
            return filled
        ops = ops_of(filled)
        ranks = [
            _rank(table, filled[:, [at]]) for at, table in enumerate(self._rank_tables)
        ]
        return ops.special.ndtri(ops.hstack(ranks).clip(_MIN_RANK, 1 - _MIN_RANK))

    def _check_known(self, j: int, values: np.ndarray) -> None:
        """Raise or warn if a column has values, but none known."""
        observed, known = {*values} - {None}, {*self.levels_[j]} - {None}
        if not observed or not known or not observed.isdisjoint(known):
            return
        name = self._name(j)
        types, known_types = (
            " and ".join(sorted({type(value).__name__ for value in values}))
            for values in (observed, known)
        )
        if types != known_types:
            raise ValueError(
                f"column {name!r} had {known_types} values when the encoder was "
                f"fitted, but has {types} values now; convert it."
            )
        if not self._is_ignored(j):
            warn(
                f"column {name!r} holds no value that is known from the fit: "
                f"{_nearest(min(observed), sorted(known))}",
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
        pairs = zip(self.columns_, self._ends, strict=True)
        return np.array([f"{names[j]}{end}" for j, end in pairs], dtype=object)

    # -- reading ----------------------------------------------------------------------

    def _checked(self, X: Any, reset: bool) -> Any:
        """Return a dataframe with known types, or an array of floats.

        It is an array if all columns are numbers of NumPy.
        """
        if not reset and not is_table(X) and self.levels_:
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
        if not is_table(X):
            return X
        X = with_known_types(X)
        if _is_plain(X) and (reset or {*self.kinds_} <= {"number", "empty"}):
            return X.to_numpy(dtype=float)
        return X

    def _name(self, j: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return str(j if names is None else names[j])

    def _read(self, X: Any) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Return the numbers, NaN if missing, and the values of each other column."""
        numbers, categories = X, {}
        if is_table(X):
            columns = [X[name] for name in X.columns]
            numbers = np.empty((len(X), len(self.numeric_columns)))
            for at, j in enumerate(self.numeric_columns):
                numbers[:, at] = self._read_numbers(j, columns[j])
            others = np.flatnonzero(self.kinds_ == "category").tolist()
            categories = {j: objects_of(columns[j]) for j in others}
        large = np.flatnonzero((np.abs(numbers) > _LARGEST).any(axis=0))
        if len(large):
            name = self._name(self.numeric_columns[large[0]])
            check_not_infinite(name, numbers[:, large[0]])
            raise ValueError(
                f"column {name!r} holds numbers beyond {_LARGEST:g}; replace them by "
                "missing values."
            )
        return numbers, categories

    def _read_numbers(self, j: int, column: Any) -> np.ndarray:
        """Return the days or numbers of a column that held such at the fit."""
        name = self._name(j)
        if is_time(column):
            return days_of(column)
        if is_numeric(column):
            values = numbers_of(column)
            if self.kinds_[j] in ("date", "duration") and not np.isnan(values).all():
                raise ValueError(
                    f"column {name!r} held dates when the encoder was fitted, but "
                    "holds numbers now; convert it."
                )
            return values
        if self.kinds_[j] == "empty":
            warn(
                f"column {name!r} was empty when the encoder was fitted, and is "
                "ignored",
                UserWarning,
            )
            return np.full(len(column), np.nan)
        # A file that is read again has texts where the rows of the fit had dates.
        days = _days_of_dates(name, objects_of(column))
        if days is None:
            raise ValueError(
                f"column {name!r} was numeric when the encoder was fitted, but "
                f"{no_numbers(column)}; fix or clear this value."
            )
        return days

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _kind_of(column: Any) -> str:
    if is_duration(column):
        return "duration"
    if is_time(column):
        return "date"
    return "number" if is_numeric(column) else "category"


def _phases(days: Any, period: float, xp: Any = np) -> tuple[Any, Any]:
    """Return the phases of a period as points on a small circle."""
    angle = (days / period - xp.floor(days / period)) * (2 * math.pi)
    return _RADIUS * xp.sin(angle), _RADIUS * xp.cos(angle)


def _have_period(days: np.ndarray, period: float) -> bool:
    """Return whether days span a period twice, and vary in its phase."""
    if not len(days) or np.ptp(days) < 2 * period:
        return False
    return np.std(_phases(days, period), axis=1).max() > _LEAST_SPREAD * _RADIUS


def _rank_table(quantiles: np.ndarray) -> np.ndarray:
    """Return the share of numbers below any number as a piecewise linear function.

    The rows are the different quantiles, the share just above each, its slope from
    there, and the share at the quantile; in the first column, the share below all. As
    in scikit-learn's QuantileTransformer, shares jump where many numbers are equal,
    which have the middle of the jump, or 0 or 1 if they are the least or the largest.
    """
    shares = np.linspace(0, 1, len(quantiles))
    knots, first = np.unique(quantiles, return_index=True)
    below, above = shares[first], shares[np.append(first[1:], len(shares)) - 1]
    slope = np.append((below[1:] - above[:-1]) / np.diff(knots), 0.0)
    middle = (below + above) / 2
    middle[-1], middle[0] = 1.0, 0.0
    return np.pad(np.stack([knots, above, slope, middle]), ((0, 0), (1, 0)))


def _rank(table: np.ndarray, x: Any) -> Any:
    """Return the share of numbers below each of a column, (n, 1), by its table."""
    ops = ops_of(x)
    rows = [ops.float64_like(row, x) for row in table]
    last = ops.xp.searchsorted(rows[0][1:], x, side="right")
    knot, above, slope, middle = (ops.take(row, last) for row in rows)
    return ops.xp.where(x == knot, middle, above + (x - knot) * slope)


def _codes_of(
    values: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the levels of a column, their codes, and the ends of the codes' names.

    The last code is that of other values. At most so many levels have their own.
    """
    one_hot = OneHotEncoder(
        drop="if_binary",
        handle_unknown="infrequent_if_exist",
        min_frequency=2 if len(values) > 2 else None,
        max_categories=most,
        sparse_output=False,
    ).set_output(transform="default")
    one_hot.fit(values[:, None])
    (levels,), (rare,) = one_hot.categories_, one_hot.infrequent_categories_
    codes = one_hot.transform(levels[:, None])
    others = np.full_like(codes[:1], 0.5 if len(levels) == 2 else 0.0)
    if rare is not None:
        others = codes[places_of(rare[:1], levels)]
    # Rows that differ in a category are at distance 1.
    scale = 1.0 if codes.shape[1] == 1 else np.sqrt(0.5)
    ends = [name[1:] for name in one_hot.get_feature_names_out(["x"])]
    return levels, scale * np.vstack([codes, others]), ends


def places_of(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the position of each value among the levels, or else their number."""
    place = {level: at for at, level in enumerate(levels.tolist())}
    others = len(levels)
    return np.array([place.get(value, others) for value in values.tolist()], dtype=int)


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
    if weight.sum() > _MAX_REPEATED or not np.array_equal(weight, weight.round()):
        return np.flatnonzero(weight)
    times = weight.astype(int)
    # Repeating all rows equally often changes nothing.
    return np.repeat(np.arange(len(times)), times // np.gcd.reduce(times))
