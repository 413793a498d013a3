"""Columns of many categories, with the mean target of each level beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern.data.columns import with_known_types
from randkern.tabular.encoder import MAX_LEVELS
from randkern.tabular.folds import Folds
from randkern.tabular.texts import codes_of_targets, named_scores, with_columns

# Columns of more levels, each in two rows or more, get scores if a level has fewer rows
# than the second number on average: with more rows, the model learns the effects of
# levels from their indicators, if the encoder has one for each, and a score beside
# these is one more lengthscale to learn. The third number limits a table's scores.
_MAX_PLAIN_LEVELS, _MIN_PLAIN_ROWS, _MAX_SCORES = 12, 30, 50
# Rows by which the mean of a level is shrunk to that of all; the best is chosen.
_SHRINKAGES = (0.3, 3.0, 30.0)
_FOLDS = 10


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


class CategoryScores(TransformerMixin, BaseEstimator):
    r"""Add the mean target of each category as a column of numbers.

    The score of a level with the targets :math:`y_i` of weights :math:`w_i` is

    .. math:: \bar y + \frac{\sum_i w_i (y_i - \bar y)}{\sum_i w_i + \lambda},

    the mean of the level, shrunk to the mean :math:`\bar y` of all rows, which is also
    the score of levels that are unknown or have a single row. Each column takes the
    :math:`\lambda` from 0.3, 3 and 30 with the smallest squared error of rows left out.
    Targets of classes are their indicators ±1. As in
    :class:`sklearn.preprocessing.TargetEncoder`, `fit_transform` computes the score of
    a row from the other folds, so that a model of the new columns does not see the
    row's own target in them; ``fit(X, y).transform(X)`` differs from it. Copies of a
    row are in one fold.

    Parameters
    ----------
    columns : list of str
        The columns of categories, which stay; scores follow after all other columns.
    classes : bool, default=False
        Whether targets are labels.

    Attributes
    ----------
    n_scores_ : int
        New columns per column of categories: one per target or class (one for two
        classes).
    levels_ : list of ndarray of object
        The known levels of each column; a missing value is None.
    scores_ : list of ndarray of shape (n_levels + 1, n_scores)
        Their scores, and that of all other levels.
    feature_names_in_ : ndarray of str

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

    def __init__(self, columns: Sequence[Any], *, classes: bool = False):
        self.columns = columns
        self.classes = classes

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, folds: Folds | None = None
    ) -> CategoryScores:
        """Learn the scores of each column.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        y : array of shape (n,) or (n, n_targets)
        sample_weight : array of shape (n,), optional
        folds : Folds, optional
            Those of rows that depend on each other; by default ten, at random.
        """
        self.fit_transform(X, y, sample_weight, folds)
        return self

    def fit_transform(
        self, X: Any, y: Any, sample_weight: Any = None, folds: Folds | None = None
    ) -> Any:
        """Fit, and return the table with scores of rows by the other folds.

        Parameters are those of `fit`.
        """
        check_consistent_length(X, y)
        Y = codes_of_targets(y, self.classes, len(X))
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = np.asarray(sample_weight, dtype=float)
        weight = weight / weight.mean()
        splits = list((_folds_of(X) if folds is None else folds).splits())
        self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        self.n_scores_ = Y.shape[1]
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
        return with_columns(X, named_scores(self.columns, left_out))

    def transform(self, X: Any) -> Any:
        """Return the table with the scores of its categories.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        """
        check_is_fitted(self)
        parts = zip(self.columns, self.levels_, self.scores_, strict=True)
        scores = [
            scores[_codes(objects_of(X[name]), levels)]
            for name, levels, scores in parts
        ]
        return with_columns(X, named_scores(self.columns, scores))

    def sources(self) -> np.ndarray:
        """Return the position in the table of the fit of each new table's columns."""
        names = self.feature_names_in_.tolist()
        scored = [names.index(name) for name in self.columns]
        parts = [np.arange(len(names)), np.repeat(scored, self.n_scores_)]
        return np.concatenate(parts).astype(int)

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


def _folds_of(X: Any) -> Folds:
    """Return random folds of rows, with copies of a row in the same one."""
    import pandas as pd

    codes = np.arange(len(X))
    with suppress(TypeError):  # values of several types
        if hasattr(X, "iloc"):
            codes = pd.util.hash_pandas_object(X, index=False).to_numpy()
        else:
            codes = X.hash_rows(0).to_numpy()
    return Folds(codes % min(_FOLDS, len(X)))
