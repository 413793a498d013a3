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
        The folds of rows, whole numbers: their groups, or periods of time.
    is_forward : bool
        Whether a fold is predicted from those before it, or else from all others. The
        first fold has none before it and is not predicted.
    groups : ndarray of shape (n,), or None
        The groups of rows if they have effects; folds may have several.
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

        Periods have about equally many rows of positive weight, and whole times.
        """
        if groups is not None and time is not None:
            raise ValueError(
                "groups and time were both passed, expected at most one: groups if "
                "the model is to predict rows of new groups, time if it is to predict "
                "later rows."
            )
        n, is_forward = len(weight), time is not None
        if groups is None and time is None:
            return cls.of_rows(n)
        codes = time_codes(time, n) if is_forward else group_codes(groups, n)
        used = np.flatnonzero(weight)
        if len(np.unique(codes[used])) < 2:
            name = "time" if is_forward else "groups"
            raise ValueError(
                f"{name} has the same value for all rows, expected at least 2 values; "
                f"omit {name} if rows are independent."
            )
        if is_forward:
            codes[used] = _periods(codes[used])
        return cls(codes, is_forward)

    def take(self, rows: np.ndarray) -> Folds:
        """Return the folds of some rows; in a single period, each row is its own."""
        codes = self.codes[rows]
        if self.is_forward and (codes == codes[:1]).all():
            return Folds.of_rows(len(codes))
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, codes=codes, groups=groups)

    def coarse(self) -> Folds:
        """Return at most five folds of about equally many rows, of whole ones.

        Periods of time are few already.
        """
        if self.is_forward:
            return self
        _, codes, counts = np.unique(self._own, return_inverse=True, return_counts=True)
        folds = np.empty_like(counts)
        folds[np.argsort(-counts, kind="stable")] = np.arange(len(counts)) % FOLDS
        return replace(self, codes=folds[codes])

    def divided(self, rows: np.ndarray, n_last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in two parts, the second of about `n_last`.

        They share no fold. The second has the last periods of time, or else the folds
        that come last in `rows`.
        """
        part = self.take(rows)
        _, first, codes, counts = np.unique(
            part._own, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.arange(len(first)) if part.is_forward else np.argsort(first)
        n_from_last = counts[order][:0:-1].cumsum()  # but for all folds
        n_folds = 1 + int(np.abs(n_from_last - n_last).argmin())
        is_last = np.isin(codes, order[-n_folds:])
        return rows[~is_last], rows[is_last]

    @property
    def are_rows(self) -> bool:
        """Whether rows are left out one at a time: each is a fold, or all are one."""
        n_folds = len(np.unique(self.codes))
        return not self.is_forward and n_folds in (1, len(self.codes))

    @property
    def _own(self) -> np.ndarray:
        """The folds, or numbers of rows that are left out one at a time."""
        return np.arange(len(self.codes)) if self.are_rows else self.codes

    @property
    def n_independent(self) -> int:
        """The number of groups, by which learned numbers overfit, or of rows."""
        return len(self.codes if self.is_forward else np.unique(self.codes))

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
        """Return folds that are groups with an effect on targets Y (n, k).

        Its variance is the share of that of the targets between groups. What varies
        only between groups is then learned from as many values as there are groups, not
        as rows (Laird & Ware 1982, "Random-effects models for longitudinal data"). A
        new group has the effect 0.
        """
        if self.is_forward:
            return self
        effect = correlation_within(Y, self.codes)
        return replace(self, groups=self.codes, effect=effect) if effect else self

    def add_effect(self, gram: np.ndarray) -> None:
        """Add the covariance of the effects of groups to a Gram matrix."""
        for group in () if self.groups is None else np.unique(self.groups):
            rows = np.flatnonzero(self.groups == group)
            gram[np.ix_(rows, rows)] += self.effect

    def is_hidden(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows, (m, n), are unknown where some of them are predicted."""
        codes = self._own
        own = codes[rows, None]
        return codes >= own if self.is_forward else codes == own


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


def _periods(times: np.ndarray) -> np.ndarray:
    """Return periods of about equally many rows; rows of one time are in one."""
    _, ranks, counts = np.unique(times, return_inverse=True, return_counts=True)
    periods = (FOLDS + 1) * (counts.cumsum() - counts) // len(times)
    if not periods.any():  # nearly all rows are of the last time
        periods[1:] = 1
    return periods[ranks]


def group_codes(groups: Any, n: int, name: str = "groups") -> np.ndarray:
    """Return the group of each of n rows as a number from 0 on."""
    values = column_or_1d(np.asarray(groups))
    if len(values) != n:
        raise ValueError(
            f"{name} has {len(values):,} values, expected one for each of the {n:,} "
            "rows."
        )
    missing = values != values
    if values.dtype.kind == "O":
        missing = np.vectorize(is_missing, [bool])(values)
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


def time_codes(time: Any, n: int) -> np.ndarray:
    """Return the rank of each of n times, from 0 on; texts are dates."""
    values = np.asarray(time)
    if any(isinstance(value, str) for value in values.ravel().tolist()):
        try:
            values = values.astype("M8[us]")
        except ValueError as error:
            raise ValueError(
                "time holds texts that are not dates, expected numbers, dates, or "
                f"texts such as '2026-11-22': {error}"
            ) from error
    return group_codes(values, n, "time")
