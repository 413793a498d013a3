"""The rows of a classifier: which ones are fitted exactly, and which are held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern._random import Stream
from randkern.tabular.class_choice import all_seconds
from randkern.tabular.folds import divided
from randkern.tabular.learning import Learning
from randkern.tabular.logistic import logistic_seconds
from randkern.tabular.rows import Rows, Table
from randkern.tabular.work import MAX_ITERATED, Work, largest

# With more rows, landmarks replace the exact kernel, or products its factor.
_FEATURE_ROWS = 8000
# The fewest landmarks.
MIN_LANDMARKS = 500
# At most how many rows choose penalties, and at most how many are held out from all
# fits.
_MAX_HELD, _MAX_APART = 4000, 2500
# The largest share of the time for the exact kernel of many rows.
_EXACT_SHARE = 0.5
# Share of the time in which the fewest landmarks must fit the rows that are used.
_MIN_FIT_SHARE = 0.3


def are_many(n: int) -> bool:
    """Return whether n rows are too many for the factor of an exact kernel."""
    return n > _FEATURE_ROWS


def n_held_of(n: int) -> int:
    """Return how many of n rows are held out from fits that choose penalties."""
    return min(_MAX_HELD, n // 8)


def held_and_rest(learning: Learning) -> tuple[np.ndarray, np.ndarray]:
    """Return held-out rows, which the search has not seen, and the rest."""
    order = learning.order
    rest, held = divided(order, learning.table.folds, n_held_of(len(order)))
    return held, rest


@dataclass(frozen=True)
class RowSplit:
    """The rows to fit, and for many independent rows, some that are held out.

    `held_out` is the seed of their choice, the number of rows that are not fitted, and
    that of the others; `note` says what that choice leaves out.
    """

    rows: Rows
    held_out: tuple[int, int, int] | None = None
    apart: Rows | None = None
    note: str = ""


def is_exact(rows: Rows | Table, n_classes: int, work: Work) -> bool:
    """Return whether the exact kernel is fitted to all of many rows."""
    n = len(rows)
    if not are_many(n):
        return False
    seconds = all_seconds(n, rows.X.shape[1], n_classes, n_held_of(n))
    return n <= MAX_ITERATED and seconds <= _EXACT_SHARE * work.limit


def split_rows(rows: Rows, n_classes: int, stream: Stream, work: Work) -> RowSplit:
    """Hold rows out if there are many, and those for which there is no time.

    Labels are 0, ..., n_classes - 1, and some fitted row has each of them.
    """
    from sklearn.model_selection import train_test_split

    n, k = len(rows), n_classes if n_classes > 2 else 1
    if is_exact(rows, n_classes, work):
        return RowSplit(rows)
    seconds = _MIN_FIT_SHARE * work.limit
    most = largest(
        lambda m: logistic_seconds(m, MIN_LANDMARKS, k), seconds, _FEATURE_ROWS, n
    )
    is_apart = are_many(n) and rows.folds is None
    # What is left must be many rows, too, to be fitted in cells.
    n_held = min(_MAX_APART, n // 8, n - _FEATURE_ROWS - 1) if is_apart else 0
    if n_held < n // 16:
        n_held = 0
    n_apart = max(n_held, n - most)
    if n_apart <= 0:
        return RowSplit(rows)
    seed = int(stream.child("rows").generator().integers(2**31))
    used, others = train_test_split(np.arange(n), test_size=n_apart, random_state=seed)
    note = ""
    unseen = ~np.isin(rows.y[others], rows.y[used])
    if unseen.any():
        _, first = np.unique(rows.y[others[unseen]], return_index=True)
        rare = others[unseen][first]
        used = np.append(used, rare)
        others = others[~np.isin(others, rare)]
        note = f"{len(used):,} rows are fitted, among them one of each rare class."
    n_held = min(n_held, len(others))
    apart = rows.take(others[:n_held]) if n_held else None
    return RowSplit(rows.take(used), (seed, len(others), len(used)), apart, note)


def table_of(rows: Rows, n_classes: int) -> Table:
    """Return rows with codes ±1 of their labels, one column for two classes."""
    Y = 2.0 * (rows.y[:, None] == np.arange(n_classes)) - 1
    Y = Y[:, 1:] if n_classes == 2 else Y
    folds = None if rows.folds is None else rows.folds.with_effect(Y)
    return Table(rows.X, Y, rows.weight, rows.y, folds)
