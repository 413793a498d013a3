"""Columns of a table that predict its targets by themselves, as columns of numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from randkern._tables import objects_of
from randkern.tabular.folds import Folds

_Self = TypeVar("_Self", bound="TargetEncoding")
# The penalty of the ridge regression, and the number of its folds.
_ALPHA, _FOLDS = 0.3, 10


class TargetEncoding(TransformerMixin, BaseEstimator, ABC):
    """Base class of encoders that learn scores of columns from targets.

    A ridge regression predicts the targets from features of all columns together. The
    score of a column is the intercept plus what its own features add. As in
    :class:`sklearn.preprocessing.TargetEncoder`, `fit_transform` predicts each row from
    the other folds, so that a model of the scores does not see the row's own target in
    them; ``fit(X, y).transform(X)`` differs from it. Copies of a row are in one fold.

    Parameters
    ----------
    columns : list of str
        The columns to encode.
    classes : bool, default=False
        Whether targets are labels, which are encoded by indicators ±1 of the classes.

    Attributes
    ----------
    sources_ : ndarray of int
        The position in the table of the fit of what each column of the new table is
        computed from. New columns follow after all others: per encoded column a score
        per target or class (one for two classes), and components that do not depend on
        the targets.
    feature_names_in_ : ndarray of str
    """

    # Whether new columns take the place of those that they are learned from.
    _replaces: ClassVar[bool] = False

    def __init__(self, columns: Sequence[Any], *, classes: bool = False):
        self.columns = columns
        self.classes = classes

    def fit(
        self: _Self, X: Any, y: Any, sample_weight: Any = None, folds: Any = None
    ) -> _Self:
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
        from sklearn.linear_model import Ridge

        check_consistent_length(X, y)
        Y = codes_of_targets(y, self.classes, len(X))
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = np.asarray(sample_weight, dtype=float)
        weight = weight / weight.mean()
        if folds is None or folds.are_rows:
            folds = _random_folds(X, Y)
        names = list(X.columns)
        self.feature_names_in_ = np.array(names, dtype=object)
        blocks = self._fit_features([objects_of(X[name]) for name in self.columns])
        Z = sparse.hstack(blocks, format="csr")
        ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
        ridge = Ridge(_ALPHA, solver="sparse_cg", tol=1e-6)

        def fit(rows: Any) -> None:
            ridge.fit(Z[rows], Y[rows], weight[rows])
            self.intercept_ = ridge.intercept_
            self.effects_ = np.split(np.atleast_2d(ridge.coef_).T, ends)

        mean = np.average(Y, axis=0, weights=weight)
        scores = [np.tile(mean, (len(Y), 1)) for _ in blocks]
        for known, held in folds.splits():
            fit(known)
            own = self._scores([block[held] for block in blocks])
            for out, values in zip(scores, own, strict=True):
                out[held] = values
        fit(np.arange(len(Y)))
        extended = self._extended(X, scores, blocks)
        encoded = [names.index(name) for name in self.columns]
        others = np.setdiff1d(range(len(names)), encoded if self._replaces else [])
        n_new = (extended.shape[1] - len(others)) // len(encoded)
        self.sources_ = np.append(others, np.repeat(encoded, n_new)).astype(int)
        return extended

    def transform(self, X: Any) -> Any:
        """Return the table with scores.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        """
        check_is_fitted(self)
        blocks = self._features([objects_of(X[name]) for name in self.columns])
        return self._extended(X, self._scores(blocks), blocks)

    def _scores(self, blocks: list[Any]) -> list[np.ndarray]:
        """Return the scores (n, k) of the features of each column."""
        pairs = zip(blocks, self.effects_, strict=True)
        return [self.intercept_ + block @ own for block, own in pairs]

    @abstractmethod
    def _fit_features(self, columns: list[np.ndarray]) -> list[Any]:
        """Learn the features of each column's values, and return them (n, m)."""

    @abstractmethod
    def _features(self, columns: list[np.ndarray]) -> list[Any]:
        """Return the features of each column's values, sparse matrices (n, m)."""

    def _components_of(self, blocks: list[Any]) -> list[np.ndarray]:
        """Return numbers that stand beside the scores of each column, (n, m)."""
        return [np.empty((block.shape[0], 0)) for block in blocks]

    def _extended(self, X: Any, scores: list[np.ndarray], blocks: list[Any]) -> Any:
        """Return the table with the scores (n, k) of each column, and components."""
        named: dict[str, np.ndarray] = {}
        parts = zip(self.columns, scores, self._components_of(blocks), strict=True)
        for name, own, components in parts:
            several = own.shape[1] > 1
            for j, score in enumerate(own.T, start=1):
                title = f"{name} score {j}" if several else f"{name} score"
                named[self._unused(title)] = score
            for j, component in enumerate(components.T, start=1):
                named[self._unused(f"{name} component {j}")] = component
        replaced = list(self.columns) if self._replaces else []
        if hasattr(X, "iloc"):
            return X.assign(**named).drop(columns=replaced)
        kind = type(X[X.columns[0]])  # polars
        columns = [kind(name, column) for name, column in named.items()]
        return X.with_columns(columns).drop(replaced)

    def _unused(self, name: str) -> str:
        """Return a name that no column of the table has."""
        while name in self.feature_names_in_:
            name += "_"
        return name


def codes_of_targets(y: Any, classes: bool, n: int) -> np.ndarray:
    """Return targets of n rows, or indicators ±1 of the classes of labels, (n, k).

    Two classes have one indicator.
    """
    if not classes:
        return np.asarray(y, dtype=float).reshape(n, -1)
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    Y = 2.0 * (codes[:, None] == np.arange(len(labels))) - 1
    return Y[:, 1:] if len(labels) == 2 else Y


def _random_folds(X: Any, Y: np.ndarray) -> Folds:
    """Return random folds of rows, with copies of a row and its target in the same one.

    Equal rows of different targets are no copies: a table may have few columns.
    """
    import pandas as pd

    codes = np.arange(len(X))
    frame = X if hasattr(X, "iloc") else pd.DataFrame(X.to_dict(as_series=False))
    with suppress(TypeError):  # values of several types
        rows, targets = (
            pd.util.hash_pandas_object(each, index=False).to_numpy()
            for each in (frame, pd.DataFrame(Y))
        )
        codes = rows ^ targets
    _, numbers = np.unique(codes, return_inverse=True)
    numbers = numbers if numbers.any() else np.arange(len(X))
    return Folds(numbers % _FOLDS)
