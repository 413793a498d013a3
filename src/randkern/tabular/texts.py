"""Columns of free text, as numbers that a linear model reads in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern.data.columns import is_free_text
from randkern.tabular.target_encoding import Splits, TargetEncoding

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import Ridge

# Hashed n-grams, up to one or two words; those of a single row are left out.
_N_HASHED, _MAX_WORDS, _MIN_ROWS = 2**18, (1, 2), 2
# Penalties of linear models of rows of length 1, chosen on at most so many rows.
_ALPHAS, _MAX_COMPARED = (0.1, 1.0, 10.0), 5000
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


class TextEncoder(TargetEncoding):
    r"""Replace columns of free text by predictions of the target from their words.

    Words, or words and pairs of words, are hashed, weighted by their rarity (TF-IDF),
    and a ridge regression on them predicts targets, or codes of classes ±1. Which of
    the two, and its penalty, are chosen by the errors of rows left out. The prediction
    replaces the column. See :class:`~randkern.tabular.target_encoding.TargetEncoding`
    for parameters and methods.

    Attributes
    ----------
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

    _replaces = True

    def _fit_columns(
        self, X: Any, Y: np.ndarray, weight: np.ndarray, splits: Splits
    ) -> list[np.ndarray]:
        self.alphas_: list[float] = []
        self._words: list[Words] = []
        self._ridges: list[Ridge] = []
        left_out = []
        for name in self.columns:
            tried = []
            for max_words in _MAX_WORDS:
                counts = _hashed(X[name], max_words)
                words = Words.of(counts, max_words)
                Z = words.weighted(counts)
                tried.append((*_best_penalty(Z, Y, weight, splits), words, Z))
            _, alpha, words, Z = min(tried, key=itemgetter(0))
            self.alphas_.append(alpha)
            self._words.append(words)
            self._ridges.append(_ridge(alpha).fit(Z, Y, weight))
            left_out.append(_left_out(Z, Y, weight, alpha, splits))
        return left_out

    def _scores(self, X: Any) -> list[np.ndarray]:
        return [
            ridge.predict(words.weighted(_hashed(X[name], words.max_words))).reshape(
                len(X), -1
            )
            for name, words, ridge in zip(
                self.columns, self._words, self._ridges, strict=True
            )
        ]


@dataclass(frozen=True)
class Words:
    """The hashed n-grams of a column, of at most so many words, and their weights."""

    max_words: int
    hashes: np.ndarray
    tfidf: TfidfTransformer

    @classmethod
    def of(cls, counts: sparse.csr_matrix, max_words: int) -> Words:
        """Return those that several rows have, or else one."""
        from sklearn.feature_extraction.text import TfidfTransformer

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
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = ["" if value is None else str(value) for value in objects_of(column)]
    vectorizer = HashingVectorizer(
        n_features=_N_HASHED,
        ngram_range=(1, max_words),
        alternate_sign=False,
        norm=None,
    )
    return vectorizer.transform(texts)


def _ridge(alpha: float) -> Ridge:
    from sklearn.linear_model import Ridge

    return Ridge(alpha, solver="sparse_cg")


def _left_out(
    Z: Any, Y: np.ndarray, weight: np.ndarray, alpha: float, splits: Splits
) -> np.ndarray:
    """Return predictions of rows by fits without their fold, (n, k).

    Those of the first period in time, before which nothing is known, are the mean.
    """
    out = np.tile(np.average(Y, axis=0, weights=weight), (len(Y), 1))
    for known, held in splits:
        ridge = _ridge(alpha).fit(Z[known], Y[known], weight[known])
        out[held] = ridge.predict(Z[held]).reshape(len(held), -1)
    return out


def _best_penalty(
    Z: Any, Y: np.ndarray, weight: np.ndarray, splits: Splits
) -> tuple[float, float]:
    """Return the smallest squared error of rows left out, and its penalty."""
    shorter = [
        (known[:_MAX_COMPARED], held[: _MAX_COMPARED // len(splits)])
        for known, held in splits
    ]
    out = np.concatenate([held for _, held in shorter])
    errors = [
        np.average(
            (_left_out(Z, Y, weight, alpha, shorter) - Y)[out] ** 2, 0, weight[out]
        ).sum()
        for alpha in _ALPHAS
    ]
    return min(zip(errors, _ALPHAS, strict=True))
