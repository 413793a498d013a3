"""Folds of rows that are left out together: single rows, whole groups, or periods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from randkern._cells import is_missing
from randkern.tabular.presets import FOLDS


@dataclass(frozen=True)
class Folds:
    """Which rows are left out together, and which are known then.

    Attributes
    ----------
    codes : ndarray of shape (n,)
        The folds of rows, whole numbers.
    is_forward : bool
        Whether a fold is predicted from those before it, or else from all others. The
        first fold has none before it and is not predicted.
    groups : ndarray of shape (n,), or None
        The groups of rows, of which folds have several.
    effect : float
        The prior variance of what a group adds to its targets, relative to that of the
        kernel.
    """

    codes: np.ndarray
    is_forward: bool = False
    groups: np.ndarray | None = None
    effect: float = 0.0

    @classmethod
    def of_rows(cls, n: int) -> Folds:
        """Return the folds of n rows that do not depend on each other."""
        return cls(np.arange(n))

    @classmethod
    def of(cls, groups: Any, time: Any, weight: np.ndarray) -> Folds:
        """Return the folds of rows by their groups or times, if there are any.

        Rows of weight zero do not count, and get fold 0.
        """
        if groups is not None and time is not None:
            raise ValueError(
                "groups and time were both passed, expected at most one: groups if "
                "the model is to predict rows of new groups, time if it is to predict "
                "later rows."
            )
        if groups is None and time is None:
            return cls.of_rows(len(weight))
        used, codes = np.flatnonzero(weight), np.zeros(len(weight), dtype=int)
        if time is None:
            groups = group_codes(groups, len(weight))
            codes[used] = _whole_groups(groups[used])
            return cls(codes, groups=groups)
        codes[used] = _periods(time_codes(time, len(weight))[used])
        return cls(codes, is_forward=True)

    def take(self, rows: np.ndarray) -> Folds:
        """Return the folds of some rows; if they are of one fold, each is its own."""
        codes = self.codes[rows]
        groups = None if self.groups is None else self.groups[rows]
        if (codes == codes[:1]).all():
            return Folds(np.arange(len(codes)), groups=groups)
        return replace(self, codes=codes, groups=groups)

    def among(self, rows: np.ndarray, n_folds: int = FOLDS) -> Folds:
        """Return new folds of the groups of some rows; others are those of all rows."""
        groups = None if self.groups is None else self.groups[rows]
        if groups is None or (groups == groups[0]).all():
            return self.take(rows)
        return replace(self, codes=_whole_groups(groups, n_folds), groups=groups)

    def divided(self, rows: np.ndarray, n_last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in two parts, the second of about `n_last`.

        They share no group, and no period of time, of which the second has the last
        ones.
        """
        part = self.among(rows, len(rows) // n_last)
        if part.are_rows:
            return rows[: len(rows) - n_last], rows[len(rows) - n_last :]
        values, counts = np.unique(part.codes, return_counts=True)
        n_from = counts[::-1].cumsum()[::-1][1:]  # rows from each fold but the first on
        is_last = part.codes >= values[1 + np.abs(n_from - n_last).argmin()]
        return rows[~is_last], rows[is_last]

    @property
    def are_rows(self) -> bool:
        """Whether each row is a fold."""
        return not self.is_forward and len(np.unique(self.codes)) == len(self.codes)

    @property
    def n_independent(self) -> int:
        """The number of groups, by which learned numbers overfit, or of rows."""
        return len(self.codes if self.groups is None else np.unique(self.groups))

    @property
    def predicted(self) -> np.ndarray:
        """The positions of the rows that are predicted."""
        if not self.is_forward:
            return np.arange(len(self.codes))
        return np.flatnonzero(self.codes > self.codes.min())

    def splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the positions of known rows, and of those predicted from them."""
        for code in np.unique(self.codes[self.predicted]):
            is_out = self.codes == code
            is_known = self.codes < code if self.is_forward else ~is_out
            yield np.flatnonzero(is_known), np.flatnonzero(is_out)

    def with_effect(self, Y: np.ndarray) -> Folds:
        """Return folds whose groups have an effect on targets Y (n, k).

        Its variance is the share of that of the targets between groups. What varies
        only between groups is then learned from as many values as there are groups, not
        as rows (Laird & Ware 1982, "Random-effects models for longitudinal data"). A
        new group has the effect 0.
        """
        if self.groups is None:
            return self
        return replace(self, effect=correlation_within(Y, self.groups))

    def add_effect(self, gram: np.ndarray) -> None:
        """Add the covariance of the effects of groups to a Gram matrix."""
        if self.groups is not None and self.effect:
            for group in np.unique(self.groups):
                rows = np.flatnonzero(self.groups == group)
                gram[np.ix_(rows, rows)] += self.effect

    def is_hidden(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows, (m, n), are unknown where some of them are predicted."""
        own = self.codes[rows, None]
        return self.codes >= own if self.is_forward else self.codes == own


def correlation_within(values: np.ndarray, codes: np.ndarray) -> float:
    """Return the correlation, at least 0, of values (n, k) in two rows of one group."""
    n, codes = len(values), np.unique(codes, return_inverse=True)[1]
    counts = np.bincount(codes)
    if len(counts) in (1, n):
        return 0.0
    sums = np.stack([np.bincount(codes, each) for each in values.T], axis=1)
    means, m = sums / counts[:, None], n / len(counts)
    within = float(((values - means[codes]) ** 2).sum()) / (n - len(counts))
    between = float((counts[:, None] * (means - values.mean(axis=0)) ** 2).sum())
    between /= len(counts) - 1
    total = between + (m - 1) * within
    return min(max((between - within) / total, 0.0), 1.0) if total else 0.0


def _whole_groups(groups: np.ndarray, n_folds: int = FOLDS) -> np.ndarray:
    """Return folds of whole groups, at least two, of about equally many rows."""
    from sklearn.model_selection import GroupKFold

    n_groups = len(np.unique(groups))
    if n_groups < 2:
        raise ValueError(
            "groups has the same value for all rows, expected at least 2 groups, one "
            "of which is left out; omit groups if rows are independent."
        )
    folds = np.empty(len(groups), dtype=int)
    splitter = GroupKFold(min(n_groups, max(n_folds, 2)))
    for fold, (_, rows) in enumerate(splitter.split(folds, groups=groups)):
        folds[rows] = fold
    return folds


def _periods(times: np.ndarray) -> np.ndarray:
    """Return periods of about equally many rows; rows of one time are in one."""
    _, codes, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        raise ValueError(
            "time has the same value for all rows, expected at least 2 times, the "
            "later of which is predicted; omit time if rows have no order."
        )
    before = counts.cumsum() - counts
    periods = (FOLDS + 1) * before // len(times)
    if not periods.any():  # nearly all rows are of the last time
        periods[1:] = 1
    return np.unique(periods, return_inverse=True)[1][codes]


def group_codes(groups: Any, n: int) -> np.ndarray:
    """Return the group of each of n rows as a number from 0 on."""
    return _codes_of(groups, n, "groups")


def time_codes(time: Any, n: int) -> np.ndarray:
    """Return the rank of each of n times, from 0 on."""
    return _codes_of(_as_times(time), n, "time")


def _as_times(time: Any) -> np.ndarray:
    """Return texts such as 2026-11-22 as dates, and other times unchanged."""
    values = np.asarray(time)
    is_text = values.dtype.kind == "U" or any(
        isinstance(value, str) for value in values.ravel().tolist()
    )
    if not is_text:
        return values
    try:
        return values.astype("M8[us]")
    except ValueError as error:
        raise ValueError(
            "time holds texts that are not dates, expected numbers, dates, or texts "
            f"such as '2026-11-22': {error}"
        ) from error


def _codes_of(values: Any, n: int, name: str) -> np.ndarray:
    values = column_or_1d(np.asarray(values))
    if len(values) != n:
        raise ValueError(
            f"{name} has {len(values):,} values, expected one for each of the {n:,} "
            "rows."
        )
    if values.dtype.kind in "OfMm":
        missing = np.array([is_missing(value) for value in values.tolist()])
        if values.dtype.kind in "Mm":
            missing = np.isnat(values)
        if missing.any():
            raise ValueError(
                f"{name} is missing in {int(missing.sum()):,} of {n:,} rows (first: "
                f"row {int(missing.argmax()):,}); fill in the values, or drop the rows."
            )
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        raise ValueError(
            f"{name} holds values that cannot be sorted, of the types "
            f"{' and '.join(kinds)}; give numbers, dates or texts alone."
        ) from error
