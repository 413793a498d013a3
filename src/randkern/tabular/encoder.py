"""Encoding of table columns as numbers on a common scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from randkern._cells import check_not_infinite
from randkern._fitting import all_or_nothing
from randkern._sklearn import StrOptions, check_feature_names_in, safe_indexing
from randkern._tables import (
    is_table,
    kind_of,
    levels_of,
    no_numbers,
    numbers_of,
    objects_of,
    places_of,
    unknown_values,
)
from randkern._validation import TableInput, check_weights, validate_table
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data.columns import as_texts, n_free_texts, with_known_types
from randkern.data.written import check_dates, days_of_texts

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


class TabularEncoder(TableInput, TransformerMixin, BaseEstimator):
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
            Different whole numbers with a sum of at most 100,000 are repetitions of
            rows. Of other weights only zeros matter: such rows are omitted.
        """
        self._validate_params()
        X = validate_table(self, X, reset=True)
        rows = _rows_to_fit(sample_weight, len(X))
        if sample_weight is not None or len(rows) < len(X):
            X = safe_indexing(X, rows)
        numbers, categories = self._read(X, reset=True)
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
        n_numbers = len(self._varying) + 2 * len(self._phases)
        n_missing = len(self._missing)
        self.widths_ = n_numbers, n_missing, sum(widths) - n_numbers - n_missing
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
        counts = []
        for j, values in categories.items():
            counts.append(len(levels_of(self._names[j], values, least=2)))
            if n := n_free_texts(self._names[j], values):
                raise ValueError(
                    f"column {self._names[j]!r} has {n} different texts in "
                    f"{len(values)} rows, too many for a categorical column. Drop it, "
                    "or encode it as numbers or with fewer categories; "
                    "TabularRegressor and TabularClassifier accept free text "
                    "(text_columns)."
                )
        most = max_levels(counts)
        self.levels_: dict[int, np.ndarray] = {}
        self.codes_: dict[int, np.ndarray] = {}
        blocks = []
        for j, values in categories.items():
            levels, codes, ends = _codes_of(values, most)
            self.levels_[j], self.codes_[j] = levels, codes
            blocks.append((j, ends))
            if len(levels) > 1 and (codes == codes[0]).all():
                warn(
                    f"column {self._names[j]!r} is ignored: each of its {len(levels)} "
                    "texts occurs in a single row. Drop it, or encode it as numbers or "
                    "as a few categories.",
                    UserWarning,
                )
        return blocks

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded rows, (n, n_features_out).

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        """
        check_is_fitted(self)
        X = validate_table(self, X, reset=False)
        numbers, categories = self._read(X, reset=False)
        codes = []
        for j, values in categories.items():
            levels, own = self.levels_[j], self.codes_[j]
            unknown = unknown_values(self._names[j], values, levels)
            if unknown and (own != own[0]).any():
                warn(unknown, UserWarning)
            codes.append(own[places_of(values, levels)])
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

    def _read(self, X: Any, *, reset: bool) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Return the numbers of valid rows, NaN if missing, and the other columns."""
        if reset:
            self.kinds_ = np.full(self.n_features_in_, "number", dtype="U8")
            self._names = [*map(str, X.columns if is_table(X) else range(X.shape[1]))]
        if is_table(X):
            X = with_known_types(X)
        if hasattr(X, "iloc") and {*self.kinds_} <= {"number", "empty"}:
            if all(dtype.kind in "buif" for dtype in X.dtypes):
                # A single row of 2,000 columns takes 7 ms, and 60 column by column.
                X = X.to_numpy(dtype=float, na_value=np.nan)
        numbers, categories = X, {}
        if is_table(X):
            columns = [X[name] for name in X.columns]
            if reset:
                self.kinds_[:] = [*map(kind_of, columns)]
            numbers = np.empty((len(X), len(self.numeric_columns)))
            for at, j in enumerate(self.numeric_columns):
                numbers[:, at] = self._numbers_of(j, columns[j])
            others = np.flatnonzero(self.kinds_ == "category").tolist()
            categories = {j: objects_of(columns[j]) for j in others}
        elif kinds := {*self.kinds_.tolist()} - {"number", "empty"}:
            raise ValueError(
                "X must be a dataframe: the encoder was fitted to one with columns of "
                f"the kinds {', '.join(sorted(kinds))}."
            )
        large = np.flatnonzero((np.abs(numbers) > _LARGEST).any(axis=0))
        if len(large):
            name = self._names[self.numeric_columns[large[0]]]
            check_not_infinite(name, numbers[:, large[0]])
            raise ValueError(
                f"column {name!r} holds numbers beyond {_LARGEST:g}; replace them by "
                "missing values."
            )
        return numbers, categories

    def _numbers_of(self, j: int, column: Any) -> np.ndarray:
        """Return the days or numbers of a column that held such at the fit."""
        name, before, now = self._names[j], self.kinds_[j], kind_of(column)
        if now != "category":
            values = numbers_of(column)
            are_dates = before in ("date", "duration")
            if are_dates and now == "number" and not np.isnan(values).all():
                raise ValueError(
                    f"column {name!r} held dates when the encoder was fitted, but "
                    "holds numbers now; convert it."
                )
            return values
        if before == "empty":
            warn(
                f"column {name!r} was empty when the encoder was fitted, and is "
                "ignored",
                UserWarning,
            )
            return np.full(len(column), np.nan)
        # A file that is read again has texts where the rows of the fit had dates.
        import pandas

        texts = as_texts(pandas.Series(objects_of(column), dtype=object))
        days = days_of_texts(texts)
        if 2 * np.isfinite(days).sum() < texts.notna().sum():
            raise ValueError(
                f"column {name!r} was numeric when the encoder was fitted, but "
                f"{no_numbers(column)}; fix or clear this value."
            )
        check_dates(name, texts, days)
        return days


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


def max_levels(counts: Sequence[int]) -> int:
    """Return the most levels per column with which all have few enough columns.

    `counts` are how many levels of each column occur in several rows.
    """
    most = np.arange(2, _MAX_LEVELS + 1)
    totals = np.minimum.outer(counts, most).sum(axis=0)
    return int(most[totals <= _MAX_LEVEL_COLUMNS].max(initial=2))


def _rows_to_fit(sample_weight: Any, n: int) -> np.ndarray:
    """Return the rows of n to learn from, repeated if weights are different counts."""
    weight = check_weights(sample_weight, np.empty((n, 1)), bounded=False)
    rows = np.arange(n) if weight is None else np.flatnonzero(weight)
    if len(rows) > _MAX_FITTED:
        drawn = np.random.default_rng(0).choice(rows, _MAX_FITTED, replace=False)
        return np.sort(drawn)
    if weight is not None:
        times = weight[rows]
        are_counts = (times == times.round()).all() and times.sum() <= _MAX_FITTED
        if are_counts and np.ptp(times):
            return np.repeat(rows, times.astype(int))
    return rows
