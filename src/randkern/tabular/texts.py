"""Columns of free text, as numbers that a linear model reads in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from randkern._tables import is_numeric, is_table, is_time, objects_of
from randkern.data.columns import is_free_text
from randkern.tabular.target_encoding import Splits, TargetEncoding, best_ridge

# Numbers into which words and pairs of words are hashed.
_N_HASHED = 2**16
# Penalties of linear models of rows of length 1.
_ALPHAS = (0.1, 1.0, 10.0)
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

    Words and pairs of words are hashed, weighted by their rarity (TF-IDF), and a ridge
    regression on them predicts targets, or codes of classes ±1. Its penalty is chosen
    by the errors of rows left out. The prediction replaces the column. See
    :class:`~randkern.tabular.target_encoding.TargetEncoding` for parameters and
    methods.

    Attributes
    ----------
    models_ : list of Pipeline
        The weights of words and the ridge regression of each column.

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
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.pipeline import make_pipeline

        self.models_: list[Any] = []
        left_out = []
        for name in self.columns:
            tfidf = TfidfTransformer(sublinear_tf=True)
            Z = tfidf.fit_transform(_hashed(X[name]))
            ridge, without = best_ridge(Z, Y, weight, splits, _ALPHAS)
            self.models_.append(make_pipeline(tfidf, ridge))
            scores = np.tile(np.average(Y, axis=0, weights=weight), (len(Y), 1))
            for fit, (_, held) in zip(without, splits, strict=True):
                scores[held] = fit.predict(Z[held]).reshape(len(held), -1)
            left_out.append(scores)
        return left_out

    def _scores(self, X: Any) -> list[np.ndarray]:
        return [
            model.predict(_hashed(X[name])).reshape(len(X), -1)
            for name, model in zip(self.columns, self.models_, strict=True)
        ]


def _hashed(column: Any) -> Any:
    """Return how often each hashed word or pair of words occurs, a sparse matrix."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = ["" if value is None else str(value) for value in objects_of(column)]
    vectorizer = HashingVectorizer(
        n_features=_N_HASHED, ngram_range=(1, 2), alternate_sign=False, norm=None
    )
    return vectorizer.transform(texts)
