"""Columns of many categories, with the mean target of each level beside them."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._sklearn import safe_indexing
from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern._warnings import ignoring
from randkern.data.columns import with_known_types
from randkern.kernels import Matern
from randkern.tabular.encoder import MAX_LEVELS, encoder_to_arrays
from randkern.tabular.folds import Folds, predicted_rows
from randkern.tabular.leave_one_out import left_out
from randkern.tabular.target_encoding import (
    Splits,
    TargetEncoding,
    codes_of_targets,
)
from randkern.tabular.work import (
    Work,
    encoding_seconds,
    evaluation_seconds,
    gram_seconds,
    largest,
)

# Columns of more levels, each in two rows or more, may get scores, at most so many in a
# table.
_MAX_PLAIN_LEVELS, _MAX_SCORES = 12, 50
# Scores are compared on so many rows, as they fit in this share of the budget, with a
# kernel of this lengthscale, relative to the deviation of whole rows, and the better of
# two penalties.
_MIN_ROWS, _MAX_ROWS, _SHARE = 300, 1500, 0.2
_SPREAD, _PENALTIES = 3.0, (1.0, 0.1)
# Rows by which the mean of a level is shrunk to that of all; the best is chosen.
_SHRINKAGES = (0.3, 3.0, 30.0)


def scored_columns(
    X: Any,
    y: Any,
    classes: bool,
    weight: Any,
    folds: Folds | None,
    stream: Stream,
    work: Work,
) -> list[Any]:
    """Return the names of the columns of a table whose categories are to get scores.

    Columns of more levels than the encoder has indicators for get them; others if that
    reduces the squared error of rows left out, for the same kernels.
    """
    Y = codes_of_targets(y, classes, len(X))
    counts = _candidates(X, Y.shape[1])
    work.charge(encoding_seconds(len(X), len(counts), 0))
    many = [name for name, count in counts.items() if count > MAX_LEVELS]
    if len(many) == len(counts) or not _scores_help(
        X, y, counts, classes, weight, folds, stream, work
    ):
        return many
    return list(counts)


def _candidates(X: Any, n_scores: int) -> dict[Any, int]:
    """Return how many levels the columns have that may get scores.

    Those with the most levels, if `n_scores` per column are too many.
    """
    # scikit-learn refuses names of several types.
    if not is_table(X) or not all(isinstance(name, str) for name in X.columns):
        return {}
    X = with_known_types(X)
    columns = {name: X[name] for name in X.columns}
    counts = {
        name: len(_levels(objects_of(column)))
        for name, column in columns.items()
        if not (is_numeric(column) or is_time(column))
        and not any(other.startswith(f"{name} score") for other in X.columns)
    }
    most = sorted(counts, key=lambda name: -counts[name])[: _MAX_SCORES // n_scores]
    return {
        name: count
        for name, count in counts.items()
        if name in most and count > _MAX_PLAIN_LEVELS
    }


def _scores_help(
    X: Any,
    y: Any,
    counts: dict[Any, int],
    classes: bool,
    weight: Any,
    folds: Folds | None,
    stream: Stream,
    work: Work,
) -> bool:
    """Return whether scores reduce the error of rows left out by a standard error.

    They are learned from the compared rows alone, as the kernels are. Indicators tell
    more the more rows a level has: of more rows, the gain is taken to be smaller in
    inverse proportion.
    """
    n_targets = codes_of_targets(y, classes, len(X)).shape[1]
    n_columns = sum(counts.values())

    def seconds(n: int) -> float:
        fits = len(_PENALTIES) * evaluation_seconds(n, 0, n_targets)
        return 2 * (fits + 2 * gram_seconds(n, n_columns))

    n = largest(seconds, _SHARE * work.limit, _MIN_ROWS, _MAX_ROWS)
    rows = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    share = min(n / len(rows), 1.0)
    rows = stream.child("scores").generator().permutation(rows)[:n]
    work.charge(seconds(len(rows)))
    some, y = safe_indexing(X, rows), np.asarray(y)[rows]
    weight = np.ones(len(rows)) if weight is None else weight[rows]
    folds = None if folds is None else folds.take(rows)
    encoder = CategoryScores(list(counts), classes=classes)
    scored = encoder.fit_transform(some, y, weight, folds)
    Y = codes_of_targets(y, classes, len(rows))
    Y = Y / np.where(Y.std(axis=0) > 0, Y.std(axis=0), 1.0)
    plain, with_scores = (
        _squares_left_out(table, Y, weight / weight.mean(), folds)
        for table in (some, scored)
    )
    gains = plain - with_scores
    return bool(share * gains.mean() > gains.std() / np.sqrt(len(gains)))


def _squares_left_out(
    X: Any, Y: np.ndarray, weight: np.ndarray, folds: Folds | None
) -> np.ndarray:
    """Return the squared errors of rows left out, with the better penalty."""
    with ignoring(UserWarning):  # a later fit warns
        U = encoder_to_arrays("standard").fit_transform(X)
    deviation = np.sqrt(float(U.var(axis=0).sum()) or 1.0)
    out = predicted_rows(folds, len(Y))
    tried = [weight[out] * (Y[out] ** 2).sum(axis=1)]
    gram = np.array(Matern(1.5, _SPREAD * deviation)._gram(U, None))
    for penalty in _PENALTIES:
        rows_out = left_out(gram, penalty / weight, Y, folds)
        if rows_out is not None:
            tried.append(weight[out] * (rows_out.residuals**2).sum(axis=1))
    return min(tried, key=np.mean)


class CategoryScores(TargetEncoding):
    r"""Add the mean target of each category as a column of numbers.

    The score of a level with the targets :math:`y_i` of weights :math:`w_i` is

    .. math:: \bar y + \frac{\sum_i w_i (y_i - \bar y)}{\sum_i w_i + \lambda},

    the mean of the level, shrunk to the mean :math:`\bar y` of all rows, which is also
    the score of levels that are unknown or have a single row. Each column takes the
    :math:`\lambda` from 0.3, 3 and 30 with the smallest squared error of rows left out.
    See :class:`~randkern.tabular.target_encoding.TargetEncoding` for parameters and
    methods.

    Attributes
    ----------
    levels_ : list of ndarray of object
        The known levels of each column; a missing value is None.
    scores_ : list of ndarray of shape (n_levels + 1, n_scores)
        Their scores, and that of all other levels.

    References
    ----------
    Micci-Barreca 2001, "A preprocessing scheme for high-cardinality categorical
    attributes in classification and prediction problems", SIGKDD Explorations 3.

    Examples
    --------
    >>> import pandas as pd
    >>> from randkern.tabular.category_scores import CategoryScores
    >>> table = pd.DataFrame({"shop": ["a", "b"] * 30})
    >>> scores = CategoryScores(["shop"]).fit(table, [1.0, 3.0] * 30)
    >>> scores.transform(pd.DataFrame({"shop": ["a", "new"]})).round(1)
      shop  shop score
    0    a         1.0
    1  new         2.0
    """

    def _fit_columns(
        self, X: Any, Y: np.ndarray, weight: np.ndarray, splits: Splits
    ) -> list[np.ndarray]:
        self.levels_: list[np.ndarray] = []
        self.scores_: list[np.ndarray] = []
        left_out = []
        for name in self.columns:
            values = objects_of(X[name])
            levels = _levels(values)
            codes = _codes(values, levels)
            tried = []
            for shrinkage in _SHRINKAGES:
                scores = np.tile(np.average(Y, axis=0, weights=weight), (len(Y), 1))
                for known, held in splits:
                    learned = _scores(
                        codes[known], Y[known], weight[known], len(levels), shrinkage
                    )
                    scores[held] = learned[codes[held]]
                error = float((weight @ (Y - scores) ** 2).sum())
                tried.append((error, shrinkage, scores))
            _, shrinkage, scores = min(tried, key=itemgetter(0))
            left_out.append(scores)
            self.levels_.append(levels)
            self.scores_.append(_scores(codes, Y, weight, len(levels), shrinkage))
        return left_out

    def _scores(self, X: Any) -> list[np.ndarray]:
        parts = zip(self.columns, self.levels_, self.scores_, strict=True)
        return [
            scores[_codes(objects_of(X[name]), levels)]
            for name, levels, scores in parts
        ]

    def scores_of(self, at: int, levels: np.ndarray) -> np.ndarray:
        """Return the scores of some levels of a column, and of others, as last row."""
        codes = _codes(np.array([*levels, None], dtype=object), self.levels_[at])
        codes[-1] = len(self.levels_[at])
        return self.scores_[at][codes]


def _levels(values: np.ndarray) -> np.ndarray:
    """Return the levels of a column that occur in several rows, a missing one last."""
    repeated = [level for level, n in Counter(values.tolist()).items() if n > 1]
    levels = np.empty(len(repeated), dtype=object)
    levels[:] = sorted(repeated, key=lambda level: level is None)
    return levels


def _codes(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the position of each value among the levels, which others follow."""
    place = {level: at for at, level in enumerate(levels.tolist())}
    return np.array([place.get(value, len(levels)) for value in values.tolist()], int)


def _scores(
    codes: np.ndarray,
    Y: np.ndarray,
    weight: np.ndarray,
    n_levels: int,
    shrinkage: float,
) -> np.ndarray:
    """Return the scores of levels, and of others, (n_levels + 1, k)."""
    mean = np.average(Y, axis=0, weights=weight)
    count = np.bincount(codes, weight, n_levels + 1)
    sums = [
        np.bincount(codes, weight * (y - centre), n_levels + 1)
        for y, centre in zip(Y.T, mean, strict=True)
    ]
    scores = mean + np.stack(sums, axis=1) / (count + shrinkage)[:, None]
    scores[-1] = mean
    return scores
