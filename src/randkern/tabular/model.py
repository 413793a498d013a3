"""Models of tables: the weighted mean of members, for rows before encoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from randkern._sklearn import num_samples, safe_indexing
from randkern.data import row_blocks, rows_within
from randkern.tabular.category_scores import CategoryScores
from randkern.tabular.code import code_of_model
from randkern.tabular.members import Member
from randkern.tabular.texts import TextEncoder

_BLOCK_BYTES = 64 * 10**6


class TabularModel:
    """The weighted mean of several fits, for rows before encoding.

    `held_out` is the seed of the rows that are not fitted, their number, and how many
    are. `unit` is the divisor of the weights, if rows have any,
    and `temperature` that of the logarithms of a classifier's probabilities. The
    targets of the members are those of the fit, if it has any, after
    `target_transform`; `note` is a comment on them that the code needs, in place of how
    they are held out. Members take rows in which scores replace `texts` and
    stand beside categories.
    """

    # Files of earlier versions do not have these.
    target_transform: str | None = None
    note = ""
    texts: TextEncoder | None = None
    scores: CategoryScores | None = None

    def __init__(
        self,
        members: Sequence[Member],
        held_out: tuple[int, int, int] | None = None,
        *,
        weighted: bool = False,
        unit: float = 1.0,
        temperature: float | None = None,
        target_transform: str | None = None,
        note: str = "",
        texts: TextEncoder | None = None,
        scores: CategoryScores | None = None,
    ):
        self.note, self.texts, self.scores = note, texts, scores
        self.target_transform = target_transform
        self.weighted, self.unit, self.temperature = weighted, unit, temperature
        self.members = list(members)
        self.held_out = held_out

    def with_scores(self, X: Any) -> Any:
        """Return a table with the scores that the members take."""
        if self.texts is not None:
            X = self.texts.transform(X)
        return X if self.scores is None else self.scores.transform(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of predictions, (n, k)."""
        return np.concatenate([self._predicted(rows) for rows in self.blocks_of(X)])

    def blocks_of(self, X: Any) -> Iterator[Any]:
        """Yield blocks of rows that are small when encoded."""
        width = max(len(member.encoder.columns_) for member in self.members)
        n = max(num_samples(X), 1)  # a table without rows is refused by the encoder
        for rows in row_blocks(n, rows_within(_BLOCK_BYTES, 8 * width)):
            yield safe_indexing(X, rows)

    def _predicted(self, X: Any) -> np.ndarray:
        parts = [member.weight * member.predict(X) for member in self.members]
        return np.sum(parts, axis=0)

    def explain(self) -> str:
        """Return code that fits this model to X and y with public classes.

        The code assigns it to ``model`` and reads weights from ``sample_weight``. That
        of a classifier ends with its calibrated probabilities.
        """
        return code_of_model(self)
