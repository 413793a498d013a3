"""Columns of many categories, with the mean target of each level beside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from scipy import sparse

from randkern._random import Stream
from randkern._sklearn import safe_indexing
from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern._warnings import ignoring
from randkern.data.columns import with_known_types
from randkern.kernels import Matern
from randkern.tabular.encoder import MAX_LEVELS, encoder_to_arrays
from randkern.tabular.folds import MAX_REFITTED, Folds, refitted_folds
from randkern.tabular.leave_one_out import inverse
from randkern.tabular.target_encoding import (
    Splits,
    TargetEncoding,
    best_ridge,
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
# Rows by which the effect of a level is shrunk to zero; the best is chosen.
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

    Scores are learned without these rows, too: a row's score by the other folds has
    its own target missing, which tells something about it. Indicators tell more the
    more rows a level has: the squared error of p effects that are learned from n rows
    is about proportional to 1/(n + p), and so is taken to be the gain.
    """
    n_targets = codes_of_targets(y, classes, len(X)).shape[1]
    n_columns = sum(min(count, MAX_LEVELS) for count in counts.values())

    def seconds(n: int) -> float:
        # Of the rows known in a fold, and between them and the others.
        grams = gram_seconds(n, n_columns)
        n_known = n - n // MAX_REFITTED
        fits = len(_PENALTIES) * evaluation_seconds(n_known, 0, n_targets)
        return 2 * MAX_REFITTED * (fits + grams)

    n = largest(seconds, _SHARE * work.limit, _MIN_ROWS, _MAX_ROWS)
    rows = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    n_levels, n_all = sum(counts.values()), len(rows)
    rows = stream.child("scores").generator().permutation(rows)[:n]
    work.charge(seconds(len(rows)))
    sample, y = safe_indexing(X, rows), np.asarray(y)[rows]
    weight = np.ones(len(rows)) if weight is None else weight[rows]
    weight = weight / weight.mean()
    Y = codes_of_targets(y, classes, len(rows))
    Y = Y / np.where(Y.std(axis=0) > 0, Y.std(axis=0), 1.0)
    folds = refitted_folds(None if folds is None else folds.take(rows), len(rows))
    errors = np.zeros((2, len(_PENALTIES), len(rows)))
    for known, held in folds.splits():
        encoder = CategoryScores(list(counts), classes=classes)
        table, others = safe_indexing(sample, known), safe_indexing(sample, held)
        targets = Y[known], Y[held], weight[known]
        errors[0][:, held] = _squares(table, others, *targets)
        table = encoder.fit_transform(table, y[known], weight[known], folds.take(known))
        errors[1][:, held] = _squares(table, encoder.transform(others), *targets)
    plain, scored = (min(weight * error, key=np.mean) for error in errors)
    gains = (plain - scored)[folds.predicted]
    share = (len(rows) + n_levels) / (n_all + n_levels)
    return bool(share * gains.mean() > gains.std() / np.sqrt(len(gains)))


def _squares(
    X: Any, X_held: Any, Y: np.ndarray, Y_held: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return the squared errors of other rows, (penalties, m)."""
    encoder = encoder_to_arrays("standard", of_parts=True)
    with ignoring(UserWarning):  # a later fit warns
        U = encoder.fit_transform(X)
        V = encoder.transform(X_held)
    kernel = Matern(1.5, _SPREAD * np.sqrt(float(U.var(axis=0).sum()) or 1.0))
    gram, cross = np.array(kernel._gram(U, None)), kernel._gram(V, U)
    out = []
    for penalty in _PENALTIES:
        P = inverse(gram.copy(), penalty / weight)
        assert P is not None  # with penalties that are not small
        dual = P @ Y
        left = Y - gram @ dual - (penalty / weight)[:, None] * dual
        predicted = cross @ dual + left.mean(axis=0)
        out.append(((Y_held - predicted) ** 2).sum(axis=1))
    return np.array(out)


class CategoryScores(TargetEncoding):
    r"""Add the effect of each category on the target as a column of numbers.

    The effects :math:`b_{jl}` of the levels of all columns together minimise

    .. math:: \sum_i w_i \Big(y_i - c - \sum_j b_{j l_{ij}}\Big)^2
        + \lambda \sum_{jl} b_{jl}^2

    for targets :math:`y_i` of weights :math:`w_i` with mean 1, so that what one column
    explains is no noise in the effects of the others. The score of a level is
    :math:`c + b_{jl}`. Levels that are unknown or have a single row have the effect 0.
    :math:`\lambda` is the one of 0.3, 3 and 30 with the smallest squared error of rows
    left out. See :class:`~randkern.tabular.target_encoding.TargetEncoding` for
    parameters and methods.

    Attributes
    ----------
    levels_ : list of ndarray of object
        The known levels of each column; a missing value is None.
    scores_ : list of ndarray of shape (n_levels + 1, n_scores)
        Their scores, and that of all other levels.

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

    def _fit_columns(
        self, X: Any, Y: np.ndarray, weight: np.ndarray, splits: Splits
    ) -> list[np.ndarray]:
        values = [objects_of(X[name]) for name in self.columns]
        self.levels_ = [_levels(column) for column in values]
        codes = np.array(list(map(_codes, values, self.levels_)))
        Z = self._indicators(codes)
        ridge, without = best_ridge(Z, Y, weight, splits, _SHRINKAGES)
        self.scores_ = self._scores_of(ridge)
        mean = np.average(Y, axis=0, weights=weight)
        left_out = [np.tile(mean, (len(Y), 1)) for _ in self.columns]
        for fit, (_, held) in zip(without, splits, strict=True):
            parts = zip(left_out, codes, self._scores_of(fit), strict=True)
            for out, code, scores in parts:
                out[held] = scores[code[held]]
        return left_out

    def _indicators(self, codes: np.ndarray) -> Any:
        """Return the indicators of all known levels, a sparse matrix."""
        sizes = np.array([len(levels) for levels in self.levels_])
        first = sizes.cumsum() - sizes
        column, row = np.nonzero(codes < sizes[:, None])
        entries = np.ones(len(row)), (row, first[column] + codes[column, row])
        return sparse.csr_array(entries, shape=(codes.shape[1], sizes.sum()))

    def _scores_of(self, ridge: Any) -> list[np.ndarray]:
        """Return the scores of the levels of each column, and of others, (size, k)."""
        effects = np.atleast_2d(ridge.coef_).T
        ends = np.cumsum([len(levels) for levels in self.levels_])[:-1]
        return [
            ridge.intercept_ + np.vstack([part, 0.0 * effects[:1]])
            for part in np.split(effects, ends)
        ]

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
