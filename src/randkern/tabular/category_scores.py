"""Columns of many categories, with the mean target of each level beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from randkern._tables import is_table, kind_of, levels_of, objects_of, places_of
from randkern.data.columns import with_known_types
from randkern.tabular.encoder import max_levels
from randkern.tabular.target_encoding import TargetEncoding

# At most so many scores in a table.
_MAX_SCORES = 50


def scored_columns(X: Any, n_scores: int) -> list[Any]:
    """Return the names of the columns of a table whose categories are to get scores.

    They have more levels than the encoder has indicators for; those with the most, if
    `n_scores` per column are too many. Scores beside the indicators of columns of fewer
    levels made no error smaller.
    """
    # scikit-learn refuses names of several types.
    if not is_table(X) or not all(isinstance(name, str) for name in X.columns):
        return []
    X = with_known_types(X)
    counts = {
        name: len(levels_of(name, objects_of(X[name]), least=2))
        for name in X.columns
        if kind_of(X[name]) == "category"
    }
    most = max_levels([*counts.values()])
    many = [name for name, count in counts.items() if count > most]
    return sorted(many, key=lambda name: -counts[name])[: _MAX_SCORES // n_scores]


class CategoryScores(TargetEncoding):
    r"""Add the effect of each category on the target as a column of numbers.

    The effects :math:`b_{jl}` of the levels of all columns together minimise

    .. math:: \sum_i w_i \Big(y_i - c - \sum_j b_{j l_{ij}}\Big)^2
        + \lambda \sum_{jl} b_{jl}^2

    for targets :math:`y_i` of weights :math:`w_i` with mean 1, so that what one column
    explains is no noise in the effects of the others. The score of a level is
    :math:`c + b_{jl}`. Levels that are unknown or have a single row have the effect 0.
    :math:`\lambda = 0.3`. See
    :class:`~randkern.tabular.target_encoding.TargetEncoding` for parameters and
    methods.

    Attributes
    ----------
    levels_ : list of ndarray of object
        The known levels of each column; a missing value is None.
    intercept_ : ndarray of shape (n_scores,)
    effects_ : list of ndarray of shape (n_levels, n_scores)

    References
    ----------
    Micci-Barreca 2001, "A preprocessing scheme for high-cardinality categorical
    attributes in classification and prediction problems", SIGKDD Explorations 3;
    Robinson 1991, "That BLUP is a good thing: the estimation of random effects",
    Statistical Science 6.

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

    def _fit_features(self, columns: list[np.ndarray]) -> list[Any]:
        pairs = zip(self.columns, columns, strict=True)
        self.levels_ = [levels_of(name, values, least=2) for name, values in pairs]
        return self._features(columns)

    def _features(self, columns: list[np.ndarray]) -> list[Any]:
        """Return the indicators of the known levels of each column."""
        return list(map(_indicators, columns, self.levels_))

    def scores_of(self, at: int, levels: np.ndarray) -> np.ndarray:
        """Return the scores of some levels of a column, and of others, as last row."""
        effects = np.vstack([self.effects_[at], np.zeros_like(self.intercept_)])
        places = places_of(levels, self.levels_[at])
        return self.intercept_ + effects[np.append(places, -1)]


def _indicators(values: np.ndarray, levels: np.ndarray) -> Any:
    """Return which of the levels each value is, a sparse matrix."""
    places = places_of(values, levels)
    known = np.flatnonzero(places < len(levels))
    entries = np.ones(len(known)), (known, places[known])
    return sparse.csr_array(entries, shape=(len(values), len(levels)))
