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
# Positions of the rows known, and of those predicted from them, in each fold.
Splits = list[tuple[np.ndarray, np.ndarray]]
_FOLDS = 10
# Rows on which penalties are compared.
_MAX_COMPARED = 5000


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
    n_scores_ : int
        New columns per encoded column: one per target or class (one for two classes).
        They follow after all other columns.
    feature_names_in_ : ndarray of str
    """

    # Whether scores take the place of the columns that they are learned from.
    _replaces = False
    # Penalties of the ridge regression, of which the best is chosen.
    _alphas: ClassVar[tuple[float, ...]]

    def __init__(self, columns: Sequence[Any], *, classes: bool = False):
        self.columns = columns
        self.classes = classes

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "n_scores_" in state and "effects_" not in state:
            raise ValueError(
                "the scores of texts or categories are of an earlier version of "
                "randkern; predict with the version that wrote the model, or fit it "
                "again."
            )

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
        check_consistent_length(X, y)
        self._check_names(X)
        Y = codes_of_targets(y, self.classes, len(X))
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = np.asarray(sample_weight, dtype=float)
        folds = _random_folds(X, Y) if folds is None else folds
        self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        self.n_scores_ = Y.shape[1]
        weight, splits = weight / weight.mean(), list(folds.splits())
        blocks = self._fit_features([objects_of(X[name]) for name in self.columns])
        Z = sparse.hstack(blocks, format="csr")
        ridge, without = best_ridge(Z, Y, weight, splits, self._alphas)
        self.intercept_, self.effects_ = _effects(ridge, blocks)
        mean = np.average(Y, axis=0, weights=weight)
        scores = [np.tile(mean, (len(Y), 1)) for _ in blocks]
        for fit, (_, held) in zip(without, splits, strict=True):
            intercept, effects = _effects(fit, blocks)
            for out, block, own in zip(scores, blocks, effects, strict=True):
                out[held] = intercept + block[held] @ own
        return self._with_scores(X, scores)

    def transform(self, X: Any) -> Any:
        """Return the table with scores.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        """
        check_is_fitted(self)
        values = [objects_of(X[name]) for name in self.columns]
        blocks = zip(self._features(values), self.effects_, strict=True)
        return self._with_scores(
            X, [self.intercept_ + block @ own for block, own in blocks]
        )

    @abstractmethod
    def _fit_features(self, columns: list[np.ndarray]) -> list[Any]:
        """Learn the features of each column's values, and return them (n, m)."""

    @abstractmethod
    def _features(self, columns: list[np.ndarray]) -> list[Any]:
        """Return the features of each column's values, sparse matrices (n, m)."""

    def sources(self) -> np.ndarray:
        """Return the position in the table of the fit of each new table's columns."""
        names = self.feature_names_in_.tolist()
        encoded = [names.index(name) for name in self.columns]
        others = np.arange(len(names))
        if self._replaces:
            others = np.setdiff1d(others, encoded)
        return np.append(others, np.repeat(encoded, self.n_scores_)).astype(int)

    def score_names(self) -> list[str]:
        """Return the names of the columns of scores."""
        endings = [f" {j}" for j in range(1, self.n_scores_ + 1)]
        endings = endings if self.n_scores_ > 1 else [""]
        return [f"{name} score{ending}" for name in self.columns for ending in endings]

    def _check_names(self, X: Any) -> None:
        """Raise if a column of the table has the name of a score."""
        for name in self.columns:
            for other in X.columns:
                if str(other).startswith(f"{name} score"):
                    raise ValueError(
                        f"X has a column {other!r}, the name of the numbers that are "
                        f"computed from {name!r}; rename it."
                    )

    def _with_scores(self, X: Any, scores: list[np.ndarray]) -> Any:
        """Return the table with the scores (n, k) of each column."""
        values = [score for columns in scores for score in columns.T]
        named = dict(zip(self.score_names(), values, strict=True))
        replaced = list(self.columns) if self._replaces else []
        if hasattr(X, "iloc"):
            return X.assign(**named).drop(columns=replaced)
        kind = type(X[X.columns[0]])  # polars
        columns = [kind(name, column) for name, column in named.items()]
        return X.with_columns(columns).drop(replaced)


def _effects(ridge: Any, blocks: list[Any]) -> tuple[Any, list[np.ndarray]]:
    """Return the intercept of ridge regression, and the effects of each block."""
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    return ridge.intercept_, np.split(np.atleast_2d(ridge.coef_).T, ends)


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
    with suppress(TypeError):  # values of several types
        if hasattr(X, "iloc"):
            codes = pd.util.hash_pandas_object(X, index=False).to_numpy()
        else:
            codes = X.hash_rows(0).to_numpy()
        targets = pd.util.hash_pandas_object(pd.DataFrame(Y), index=False)
        codes = codes ^ targets.to_numpy()
    _, numbers = np.unique(codes, return_inverse=True)
    numbers = numbers if numbers.any() else np.arange(len(X))
    return Folds(numbers % _FOLDS)


def best_ridge(
    Z: Any, Y: np.ndarray, weight: np.ndarray, splits: Splits, alphas: Sequence[float]
) -> tuple[Any, list[Any]]:
    """Return ridge regression, and its fits without each fold.

    Its penalty is the one of least squared error of rows left out, on a part of them.
    """
    from sklearn.linear_model import Ridge

    def fit(alpha: float, rows: np.ndarray) -> Any:
        ridge = Ridge(alpha, solver="sparse_cg", tol=1e-6)
        return ridge.fit(Z[rows], Y[rows], weight[rows])

    def error(alpha: float) -> float:
        total = 0.0
        for known, held in splits:
            rows = held[: _MAX_COMPARED // len(splits)]
            ridge = fit(alpha, known[:_MAX_COMPARED])
            left = Y[rows] - ridge.predict(Z[rows]).reshape(len(rows), -1)
            total += float((weight[rows] @ left**2).sum())
        return total

    alpha = min(alphas, key=error)
    without = [fit(alpha, known) for known, _ in splits]
    return fit(alpha, np.arange(len(Y))), without
