"""Columns of free text, as numbers that a linear model reads in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern.data.columns import is_free_text
from randkern.tabular.folds import Folds

# Hashed n-grams, up to one or two words; those of a single row are left out.
_N_HASHED, _MAX_WORDS, _MIN_ROWS = 2**18, (1, 2), 2
# Penalties of linear models of rows of length 1, chosen on at most so many rows.
_ALPHAS, _MAX_COMPARED = (0.1, 1.0, 10.0), 5000
_FOLDS = 10
# Names of dtypes of categories, of pandas and of polars.
_CATEGORIES = ("category", "categorical", "enum")


def text_columns(X: Any, chosen: str | Sequence[Any] = "auto") -> list[Any]:
    """Return the names of the columns of a table that hold free text.

    Columns of categories (of that dtype) hold none, unless they are chosen.
    """
    if not isinstance(chosen, str):
        if not is_table(X):
            raise ValueError(
                f"text_columns={list(chosen)} names columns of a dataframe, got "
                f"{type(X).__name__}; pass a dataframe."
            )
        missing = [name for name in chosen if name not in X.columns]
        if missing:
            raise ValueError(
                f"text_columns names {missing}, expected columns of X: "
                f"{list(X.columns)[:20]}."
            )
        return list(chosen)
    if not is_table(X):
        return []
    columns = {name: X[name] for name in X.columns}
    return [
        name
        for name, column in columns.items()
        if not (is_numeric(column) or is_time(column))
        and not str(column.dtype).lower().startswith(_CATEGORIES)
        and is_free_text(objects_of(column))
    ]


class TextEncoder(TransformerMixin, BaseEstimator):
    r"""Replace columns of free text by predictions of the target from their words.

    Words, or words and pairs of words, are hashed, weighted by their rarity (TF-IDF),
    and a ridge regression on them predicts targets, or codes of classes ±1. Which of
    the two, and its penalty, are chosen by the errors of rows left out. The prediction
    is the new column, one per target or class (one for two classes), after all other
    columns, which stay as they are. As in
    :class:`sklearn.preprocessing.TargetEncoder`, `fit_transform` predicts each row by a
    fit without its fold, so that a model of the new columns is not misled by how well
    texts are known by heart; ``fit(X, y).transform(X)`` differs from it.

    Parameters
    ----------
    columns : list of str
        The columns of free text.
    classes : bool, default=False
        Whether targets are labels.

    Attributes
    ----------
    n_scores_ : int
        New columns per column of text.
    alphas_ : list of float
        The penalty of each column's ridge regression, from 0.1, 1 and 10.

    References
    ----------
    Weinberger, Dasgupta, Langford, Smola & Attenberg 2009, "Feature hashing for large
    scale multitask learning"; Wolpert 1992, "Stacked generalization".

    Examples
    --------
    >>> import pandas as pd
    >>> from randkern.tabular.texts import TextEncoder
    >>> words = ["a very good day", "a rather bad day", "good", "bad"] * 10
    >>> table = pd.DataFrame({"text": words, "x": range(40)})
    >>> y = [1.0, -1.0, 1.0, -1.0] * 10
    >>> encoded = TextEncoder(["text"]).fit(table, y).transform(table)
    >>> list(encoded.columns), bool((encoded["text score"][:2] > 0).tolist()[0])
    (['x', 'text score'], True)
    """

    def __init__(self, columns: Sequence[Any], *, classes: bool = False):
        self.columns = columns
        self.classes = classes

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, folds: Folds | None = None
    ) -> TextEncoder:
        """Learn the words of each column.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        y : array of shape (n,) or (n, n_targets)
        sample_weight : array of shape (n,), optional
        folds : Folds, optional
            Those of rows that depend on each other, by which penalties are chosen; by
            default ten, at random.
        """
        check_consistent_length(X, y)
        Y, splits = codes_of_targets(y, self.classes, len(X)), _splits(folds, len(X))
        self._fit_columns(X, Y, sample_weight, splits)
        return self

    def fit_transform(
        self, X: Any, y: Any, sample_weight: Any = None, folds: Folds | None = None
    ) -> Any:
        """Fit, and return the table with predictions of rows by fits without them.

        Parameters are those of `fit`.
        """
        check_consistent_length(X, y)
        Y, splits = codes_of_targets(y, self.classes, len(X)), _splits(folds, len(X))
        weighted = self._fit_columns(X, Y, sample_weight, splits)
        scores = [
            _left_out(Z, Y, sample_weight, alpha, splits)
            for Z, alpha in zip(weighted, self.alphas_, strict=True)
        ]
        return self._with_scores(X, scores)

    def _fit_columns(
        self, X: Any, Y: np.ndarray, sample_weight: Any, splits: list[Any]
    ) -> list[sparse.csr_matrix]:
        """Learn the words of each column, and return their weights in its texts."""
        self.n_scores_ = Y.shape[1]
        self.alphas_: list[float] = []
        self._words: list[Words] = []
        self._ridges: list[Ridge] = []
        weighted = []
        for name in self.columns:
            tried = []
            for max_words in _MAX_WORDS:
                counts = _hashed(X[name], max_words)
                words = Words.of(counts, max_words)
                Z = words.weighted(counts)
                tried.append((*_best_penalty(Z, Y, sample_weight, splits), words, Z))
            _, alpha, words, Z = min(tried, key=itemgetter(0))
            self.alphas_.append(alpha)
            self._words.append(words)
            self._ridges.append(_ridge(alpha).fit(Z, Y, sample_weight))
            weighted.append(Z)
        return weighted

    def transform(self, X: Any) -> Any:
        """Return the table with predictions in place of texts.

        Parameters
        ----------
        X : dataframe of shape (n, d)
        """
        check_is_fitted(self)
        scores = []
        parts = zip(self.columns, self._words, self._ridges, strict=True)
        for name, words, ridge in parts:
            Z = words.weighted(_hashed(X[name], words.max_words))
            scores.append(ridge.predict(Z).reshape(len(X), -1))
        return self._with_scores(X, scores)

    def sources(self, names: Sequence[Any]) -> np.ndarray:
        """Return the position among `names`, the columns of X, of each new column."""
        others = [at for at, name in enumerate(names) if name not in self.columns]
        texts = [names.index(name) for name in self.columns]
        return np.array([*others, *np.repeat(texts, self.n_scores_)], dtype=int)

    def _with_scores(self, X: Any, scores: list[np.ndarray]) -> Any:
        """Return the table with scores in place of texts."""
        named = named_scores(self.columns, scores)
        for said, _ in named:
            if said in X.columns:
                name = said.rpartition(" score")[0]
                raise ValueError(
                    f"X has a column {said!r}, the name of the numbers that "
                    f"replace the texts in {name!r}; rename it."
                )
        scored = with_columns(X, named)
        texts = list(self.columns)
        is_pandas = hasattr(X, "iloc")
        return scored.drop(columns=texts) if is_pandas else scored.drop(texts)


def codes_of_targets(y: Any, classes: bool, n: int) -> np.ndarray:
    """Return targets of n rows, or indicators ±1 of the classes of labels, (n, k).

    Two classes have one indicator.
    """
    if not classes:
        return np.asarray(y, dtype=float).reshape(n, -1)
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    Y = 2.0 * (codes[:, None] == np.arange(len(labels))) - 1
    return Y[:, 1:] if len(labels) == 2 else Y


def named_scores(
    columns: Sequence[Any], scores: Sequence[np.ndarray]
) -> list[tuple[str, np.ndarray]]:
    """Return the scores, (n, k), of each column as columns with names."""
    return [
        (f"{name} score" if len(values.T) == 1 else f"{name} score {j}", column)
        for name, values in zip(columns, scores, strict=True)
        for j, column in enumerate(values.T, start=1)
    ]


def with_columns(X: Any, named: Sequence[tuple[str, np.ndarray]]) -> Any:
    """Return a dataframe with further columns after its own."""
    if hasattr(X, "iloc"):
        return X.assign(**dict(named))
    kind = type(X[X.columns[0]])  # polars
    return X.with_columns([kind(name, column) for name, column in named])


@dataclass(frozen=True)
class Words:
    """The hashed n-grams of a column, of at most so many words, and their weights."""

    max_words: int
    hashes: np.ndarray
    tfidf: TfidfTransformer

    @classmethod
    def of(cls, counts: sparse.csr_matrix, max_words: int) -> Words:
        """Return those that several rows have, or else one."""
        n_rows = np.bincount(counts.indices, minlength=1)
        hashes = np.flatnonzero(n_rows >= _MIN_ROWS)
        if not len(hashes):
            hashes = np.array([n_rows.argmax()])
        tfidf = TfidfTransformer(sublinear_tf=True).fit(counts[:, hashes])
        return cls(max_words, hashes, tfidf)

    def weighted(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the weights of words in hashed texts, rows of length 1 or 0."""
        return self.tfidf.transform(counts[:, self.hashes])


def _hashed(column: Any, max_words: int) -> sparse.csr_matrix:
    """Return how often each hashed n-gram occurs in each text, (n, 2¹⁸)."""
    texts = ["" if value is None else str(value) for value in objects_of(column)]
    vectorizer = HashingVectorizer(
        n_features=_N_HASHED,
        ngram_range=(1, max_words),
        alternate_sign=False,
        norm=None,
    )
    return vectorizer.transform(texts)


def _ridge(alpha: float) -> Ridge:
    return Ridge(alpha, solver="sparse_cg")


def _splits(folds: Folds | None, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    if folds is None:
        order = np.random.default_rng(0).permutation(n)
        folds = Folds(order % min(_FOLDS, n))
    return list(folds.splits())


def _left_out(
    Z: Any, Y: np.ndarray, weight: Any, alpha: float, splits: list[Any]
) -> np.ndarray:
    """Return predictions of rows by fits without their fold, (n, k).

    Those of the first period in time, before which nothing is known, are the mean.
    """
    out = np.tile(np.average(Y, axis=0, weights=weight), (len(Y), 1))
    for known, held in splits:
        given = None if weight is None else weight[known]
        found = _ridge(alpha).fit(Z[known], Y[known], given).predict(Z[held])
        out[held] = found.reshape(len(held), -1)
    return out


def _best_penalty(
    Z: Any, Y: np.ndarray, weight: Any, splits: list[Any]
) -> tuple[float, float]:
    """Return the smallest squared error of rows left out, and its penalty."""
    some = [
        (known[:_MAX_COMPARED], held[: _MAX_COMPARED // len(splits)])
        for known, held in splits
    ]
    out = np.concatenate([held for _, held in some])
    given = None if weight is None else weight[out]
    errors = [
        np.average((_left_out(Z, Y, weight, alpha, some) - Y)[out] ** 2, 0, given).sum()
        for alpha in _ALPHAS
    ]
    return min(zip(errors, _ALPHAS, strict=True))
