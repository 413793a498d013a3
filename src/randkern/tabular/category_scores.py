"""Columns of many categories, with the mean target of each level beside them."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

import numpy as np

from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern.data.columns import with_known_types
from randkern.tabular.encoder import MAX_LEVELS
from randkern.tabular.target_encoding import Splits, TargetEncoding

# Columns of more levels, each in two rows or more, get scores if a level has fewer rows
# than the second number on average: with more rows, the model learns the effects of
# levels from their indicators, if the encoder has one for each, and a score beside
# these is one more lengthscale to learn. The third number limits a table's scores.
_MAX_PLAIN_LEVELS, _MIN_PLAIN_ROWS, _MAX_SCORES = 12, 30, 50
# Rows by which the mean of a level is shrunk to that of all; the best is chosen.
_SHRINKAGES = (0.3, 3.0, 30.0)


def scored_columns(X: Any, n_scores: int) -> list[Any]:
    """Return the names of the columns of a table whose categories are to get scores.

    The columns with the most levels come first if `n_scores` per column are too many.
    """
    # scikit-learn refuses names of several types.
    if not is_table(X) or not all(isinstance(name, str) for name in X.columns):
        return []
    X = with_known_types(X)
    columns = {name: X[name] for name in X.columns}
    counts = {
        name: len(_levels(objects_of(column)))
        for name, column in columns.items()
        if not (is_numeric(column) or is_time(column))
        and not any(other.startswith(f"{name} score") for other in X.columns)
    }
    max_plain = max(_MAX_PLAIN_LEVELS, min(len(X) / _MIN_PLAIN_ROWS, MAX_LEVELS))
    largest = sorted(counts, key=lambda name: -counts[name])[: _MAX_SCORES // n_scores]
    return [name for name in columns if name in largest and counts[name] > max_plain]


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
