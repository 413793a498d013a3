"""Splits of rows at random, into whole groups, or in the order of time."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    train_test_split,
)

from randkern._warnings import warn
from randkern.tabular.folds import group_codes, time_codes

Rows = NDArray[np.intp]
# Batches of successive rows, whose mean errors are nearly independent.
_PERIODS = 10
# Copies are held out together if they are this share of the rows, and if at least so
# many rows are different.
_MANY_COPIES = 0.5
_MIN_DIFFERENT = 100


@dataclass(frozen=True)
class Splitting:
    """How rows are divided: at random, or by groups or times, ranks of shape (n,).

    With groups, rows of one group are on the same side; with times, held-out rows are
    later than the others.
    """

    groups: NDArray[np.intp] | None = None
    time: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, groups: Any, time: Any) -> Self:
        """Return the splitting for the groups or times of rows, if any."""
        return cls(
            None if groups is None else group_codes(groups, len(groups)),
            None if time is None else time_codes(time, len(time)),
        )

    @property
    def is_random(self) -> bool:
        return self.groups is None and self.time is None

    def take(self, rows: Rows) -> Self:
        """Return the splitting of some rows."""
        return type(self)(
            None if self.groups is None else self.groups[rows],
            None if self.time is None else self.time[rows],
        )

    def with_copies_together(self, X: Any) -> Self:
        """Return random splits of a dataframe as those of groups, if most rows repeat.

        The score of a row whose copy has been fitted says nothing of new rows. Columns
        of few values repeat by chance.
        """
        if not self.is_random or not hasattr(X, "iloc"):
            return self
        from pandas.util import hash_pandas_object

        hashes = hash_pandas_object(X, index=False)
        n_copies = int(hashes.duplicated().sum())
        if n_copies <= _MANY_COPIES * len(X) or hashes.nunique() < _MIN_DIFFERENT:
            return self
        warn(
            f"{n_copies:,} of {len(X):,} rows are copies of others but for the target: "
            "copies are held out together",
            UserWarning,
        )
        return self.of(hashes.to_numpy(), None)

    def clusters(self) -> Rows | None:
        """Return the groups of rows, or ten periods, in which errors are alike."""
        if self.time is None:
            return self.groups
        ranks = np.argsort(np.argsort(self.time, kind="stable"))
        return _PERIODS * ranks // len(ranks)

    def sample(self, y: NDArray[Any], task: str, n_rows: int) -> Rows:
        """Return at most `n_rows` rows drawn at random, by class in classification."""
        n = len(y)
        if n <= n_rows:
            return np.arange(n)
        return np.sort(_random_rows(y, task, n - n_rows, 0)[0])

    def held_out(
        self, y: NDArray[Any], task: str, size: float, seed: int
    ) -> tuple[Rows, Rows, str]:
        """Return training rows, held-out rows, and a description of these.

        `size` is a number of rows or a share, which whole groups or times exceed or
        fall short of. At random, rows are stratified in classification, unless some
        classes are too rare, or too many.
        """
        n = len(y)
        n_held = size if size >= 1 else size * n
        if self.is_random:
            return _random_rows(y, task, size, seed)
        if self.groups is not None:
            n_folds = max(round(n / n_held), 2)
            training, others = self.folds(y, task, n_folds, seed)[0]
            n_groups = len(np.unique(self.groups[others]))
            described = f"{len(others):,} rows, all of {n_groups:,} groups, seed {seed}"
        else:
            assert self.time is not None
            times = np.sort(self.time)
            first = times[min(int(n - n_held), n - 1)]
            if first == times[0]:
                first = times[times > first][0]
            is_late = self.time >= first
            training = np.flatnonzero(~is_late)
            others = np.flatnonzero(is_late)
            described = f"the last {len(others):,} rows in time"
        return training, others, described

    def folds(
        self, y: NDArray[Any], task: str, n_folds: int, seed: int
    ) -> list[tuple[Rows, Rows]]:
        """Return training and validation rows, stratified if each class has enough."""
        stratified = task == "classification"
        stratified = stratified and np.unique(y, return_counts=True)[1].min() >= n_folds
        options = {"shuffle": True, "random_state": seed}
        if self.time is not None:
            different = np.unique(self.time)
            splits = TimeSeriesSplit(min(n_folds, len(different) - 1)).split(different)
            return [
                (
                    np.flatnonzero(np.isin(self.time, different[known])),
                    np.flatnonzero(np.isin(self.time, different[held])),
                )
                for known, held in splits
            ]
        if self.groups is not None:
            n_folds = min(n_folds, len(np.unique(self.groups)))
            grouped = StratifiedGroupKFold if stratified else GroupKFold
            return list(grouped(n_folds, **options).split(y, y, self.groups))
        kind = StratifiedKFold if stratified else KFold
        return list(kind(n_folds, **options).split(y, y))


def _random_rows(
    y: NDArray[Any], task: str, size: float, seed: int
) -> tuple[Rows, Rows, str]:
    """Return training and test rows drawn at random, and a description of the split.

    Classes have equal shares in both, unless one of them has too few rows for that.
    """
    n = len(y)
    stratified = task == "classification"
    if stratified:
        counts = np.unique(y, return_counts=True)[1]
        few = int(n * size) if size < 1 else int(size)
        few = min(few, n - few)
        stratified = bool(counts.min() >= 2 and len(counts) <= few)
    training, others = train_test_split(
        np.arange(n),
        test_size=size,
        stratify=y if stratified else None,
        random_state=seed,
    )
    share = f"{size:.0%} of the rows" if size < 1 else f"{len(others):,} rows"
    return training, others, f"{'stratified ' * stratified}{share}, seed {seed}"
