"""Columns of a table that predict its targets by themselves, as columns of numbers.

Categories of many levels get the mean target of each level beside them; free texts are
replaced by numbers that a linear model reads in them.
"""

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

from randkern._sklearn import check_sample_weight
from randkern._tables import is_table, kind_of, levels_of, objects_of, places_of
from randkern.data.columns import is_free_text, with_known_types
from randkern.tabular.encoder import max_levels
from randkern.tabular.folds import Folds

_Self = TypeVar("_Self", bound="TargetEncoding")
# The penalty of the ridge regression, and the number of its folds.
_ALPHA, _FOLDS = 0.3, 10
# At most so many scores in a table.
_MAX_SCORES = 50
# Numbers into which sequences of characters are hashed, and components of a column.
_N_HASHED, _N_COMPONENTS = 2**15, 30
# Names of dtypes of categories, of pandas and of polars.
_CATEGORIES = ("category", "categorical", "enum")


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
        weight = check_sample_weight(sample_weight, X, dtype=np.float64)
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
        scores = np.tile(mean, (len(blocks), len(Y), 1))
        for known, held in folds.splits():
            fit(known)
            scores[:, held] = self._scores([block[held] for block in blocks])
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

    def _scores(self, blocks: list[Any]) -> np.ndarray:
        """Return the scores (n, k) of the features of each column."""
        pairs = zip(blocks, self.effects_, strict=True)
        return np.stack([self.intercept_ + block @ own for block, own in pairs])

    @abstractmethod
    def _fit_features(self, columns: list[np.ndarray]) -> list[Any]:
        """Learn the features of each column's values, and return them (n, m)."""

    @abstractmethod
    def _features(self, columns: list[np.ndarray]) -> list[Any]:
        """Return the features of each column's values, sparse matrices (n, m)."""

    def _components_of(self, blocks: list[Any]) -> list[np.ndarray]:
        """Return numbers that stand beside the scores of each column, (n, m)."""
        return [np.empty((block.shape[0], 0)) for block in blocks]

    def _extended(self, X: Any, scores: np.ndarray, blocks: list[Any]) -> Any:
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
            pd.util.hash_pandas_object(part, index=False).to_numpy()
            for part in (frame, pd.DataFrame(Y))
        )
        codes = rows ^ targets
    _, numbers = np.unique(codes, return_inverse=True)
    numbers = numbers if numbers.any() else np.arange(len(X))
    return Folds(numbers % _FOLDS)


# -- categories ------------------------------------------------------------------------


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
    >>> from randkern.tabular.target_encoding import CategoryScores
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


# -- texts -----------------------------------------------------------------------------


def text_columns(X: Any, chosen: str | Sequence[Any] = "auto") -> list[Any]:
    """Return the names of the columns of a table that hold free text.

    Columns of categories (of that dtype) hold none, unless they are chosen.
    """
    columns = {name: X[name] for name in X.columns} if is_table(X) else {}
    if not isinstance(chosen, str):
        missing = [name for name in chosen if name not in columns]
        if missing:
            raise ValueError(
                f"text_columns names {missing}, expected columns of a dataframe X: "
                f"{[*columns][:20]}."
            )
        return list(chosen)
    return [
        name
        for name, column in columns.items()
        if kind_of(column) == "category"
        and not str(column.dtype).lower().startswith(_CATEGORIES)
        and is_free_text(objects_of(column))
    ]


class TextEncoder(TargetEncoding):
    r"""Replace columns of free text by numbers.

    Sequences of three or four characters are hashed and weighted by their rarity
    (TF-IDF). A ridge regression on them, of penalty 0.3, predicts targets, or codes of
    classes ±1. Its prediction and the first 30 components of a singular value
    decomposition (latent semantic analysis), as of skrub's `StringEncoder`, replace the
    column. See :class:`~randkern.tabular.target_encoding.TargetEncoding` for parameters
    and methods.

    Attributes
    ----------
    tfidf_ : list of TfidfTransformer
        The weights of sequences in each column.
    intercept_ : ndarray of shape (n_scores,)
    effects_ : list of ndarray of shape (2 ** 15, n_scores)
    components_ : list of ndarray of shape (n_components, 2 ** 15)
        Fewer than 30 of fewer rows.

    References
    ----------
    Weinberger, Dasgupta, Langford, Smola & Attenberg 2009, "Feature hashing for large
    scale multitask learning"; Wolpert 1992, "Stacked generalization"; Deerwester,
    Dumais, Furnas, Landauer & Harshman 1990, "Indexing by latent semantic analysis".

    Examples
    --------
    >>> import pandas as pd
    >>> from randkern.tabular.target_encoding import TextEncoder
    >>> words = ["a very good day", "a rather bad day", "good", "bad"] * 10
    >>> table = pd.DataFrame({"text": words, "x": range(40)})
    >>> y = [1.0, -1.0, 1.0, -1.0] * 10
    >>> encoded = TextEncoder(["text"]).fit(table, y).transform(table)
    >>> list(encoded.columns[:3]), bool(encoded["text score"][0] > 0)
    (['x', 'text score', 'text component 1'], True)
    """

    _replaces = True

    def _fit_features(self, columns: list[np.ndarray]) -> list[Any]:
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.utils.extmath import randomized_svd

        self.tfidf_ = [TfidfTransformer(sublinear_tf=True) for _ in columns]
        blocks = [
            tfidf.fit_transform(_hashed(column))
            for tfidf, column in zip(self.tfidf_, columns, strict=True)
        ]
        n_components = min(_N_COMPONENTS, len(columns[0]))
        # In single precision: they are most of a model's file.
        self.components_ = [
            randomized_svd(block, n_components, random_state=0)[2].astype("f4")
            for block in blocks
        ]
        return blocks

    def _features(self, columns: list[np.ndarray]) -> list[Any]:
        return [
            tfidf.transform(_hashed(column))
            for tfidf, column in zip(self.tfidf_, columns, strict=True)
        ]

    def _components_of(self, blocks: list[Any]) -> list[np.ndarray]:
        return [
            block @ components.T
            for block, components in zip(blocks, self.components_, strict=True)
        ]


def _hashed(values: np.ndarray) -> Any:
    """Return how often each hashed sequence of characters occurs, a sparse matrix."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = ["" if value is None else str(value) for value in values]
    vectorizer = HashingVectorizer(
        n_features=_N_HASHED,
        analyzer="char_wb",
        ngram_range=(3, 4),
        alternate_sign=False,
        norm=None,
    )
    return vectorizer.transform(texts)
