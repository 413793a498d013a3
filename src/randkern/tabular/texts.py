"""Columns of free text, as numbers that a linear model reads in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from randkern._tables import is_table, kind_of, objects_of
from randkern.data.columns import is_free_text
from randkern.tabular.target_encoding import TargetEncoding

# Numbers into which sequences of characters are hashed, and components of a column.
_N_HASHED, _N_COMPONENTS = 2**15, 30
# Names of dtypes of categories, of pandas and of polars.
_CATEGORIES = ("category", "categorical", "enum")


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
    >>> from randkern.tabular.texts import TextEncoder
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
        for tfidf, column in zip(self.tfidf_, columns, strict=True):
            tfidf.fit(_hashed(column))
        blocks = self._features(columns)
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
