"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from randkern.tabular.folds import Folds
from randkern.tabular.leave_one_out import inverse
from randkern.tabular.presets import (
    CHANGED_ROWS,
    EFFECT_VALUES,
    HALVINGS,
    MIN_CHANGED,
    MIN_EFFECT_ROWS,
)
from randkern.tabular.trials import Trial

__all__ = ["ColumnEffects"]

# The weight of a kernel, and the kernel.
Part = tuple[float, Trial]


@dataclass
class ColumnEffects:
    """The kernels of a model, and what it takes to fit them to halves of the rows.

    Attributes
    ----------
    parts : list of (float, Trial)
        The kernels, and their weights.
    rows : dict of str to ndarray of shape (n, ...)
        Encoded rows in random order, for each scaling of numbers.
    columns : dict of str to ndarray
        The input column of each encoded column.
    Y, weight : ndarray of shape (n, k) and (n,)
        Targets or codes of labels, and weights.
    seed : int
        Seeds the choice of halves.
    folds : Folds or None
        Those of rows that depend on each other, which are whole in either half.
    """

    parts: Sequence[Part]
    rows: dict[str, np.ndarray]
    columns: dict[str, np.ndarray]
    Y: np.ndarray
    weight: np.ndarray
    seed: int
    folds: Folds | None = None

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the total-effect index of each column, as shares of their sum.

        It is E[(f(x) − f(x'))²]/2, where x' is x with the column of another row (Jansen
        1999, "Analysis of variance designs for model output"). The square is the
        product of the differences of two fits, each to half of the rows, so that noise
        adds nothing on average; each column gets the median over several halvings. As
        an effect is not negative, the negative ones are noise: those that do not exceed
        their root mean square are set to zero.
        """
        width = max(rows.shape[1] for rows in self.rows.values())
        most = EFFECT_VALUES / (
            HALVINGS * len(self.parts) * n_columns * (1 + width / 100)
        )
        m = int(np.clip(most / len(self.Y), MIN_CHANGED, CHANGED_ROWS))
        n = min(len(self.Y), max(int(most / m), MIN_EFFECT_ROWS))
        generator, effects = np.random.default_rng(self.seed), []
        for _ in range(HALVINGS):
            first, second = (
                self._changes(half, m, n_columns) for half in self._halves(generator, n)
            )
            both = zip(first, second, strict=True)
            effects.append([float((one * other).sum()) for one, other in both])
        total = np.median(effects, axis=0)
        negative = total[total < 0]
        noise = np.sqrt(np.mean(negative**2)) if len(negative) else 0.0
        total[total <= noise] = 0.0
        if total.sum() > 0:
            return np.asarray(total / total.sum())
        return np.full(n_columns, 1 / n_columns)

    def _halves(self, generator: np.random.Generator, n: int) -> list[np.ndarray]:
        """Return random halves of the first n rows, of whole folds if there are any."""
        folds = None if self.folds is None else self.folds.take(np.arange(n))
        if folds is None:
            return np.array_split(generator.permutation(n), 2)
        values, codes = np.unique(folds.codes, return_inverse=True)
        place = generator.permutation(len(values))[codes]
        is_first = place < len(values) // 2
        return [np.flatnonzero(is_first), np.flatnonzero(~is_first)]

    def _changes(
        self, half: np.ndarray, m: int, n_columns: int
    ) -> Iterator[np.ndarray]:
        """Yield how predictions of m rows change with each column of other rows."""
        fits = []
        for share, trial in self.parts:
            U, dual = _fitted(trial, self, half)
            rows = self.rows[trial.numbers][:m]
            before = trial.kernel._gram(rows, U) @ dual
            fits.append((share, trial, U, dual, rows, before))
        for column in range(n_columns):
            changes = []
            for share, trial, U, dual, rows, before in fits:
                changed = rows.copy()
                own = self.columns[trial.numbers] == column
                changed[:, own] = np.roll(rows[:, own], len(rows) // 2, axis=0)
                after = trial.kernel._gram(changed, U) @ dual
                changes.append(share * (after - before))
            yield np.sum(changes, axis=0)


def _fitted(
    trial: Trial, effects: ColumnEffects, half: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit least squares to half of the rows; return these and their dual weights."""
    U, weight = effects.rows[trial.numbers][half], effects.weight[half]
    gram = np.array(trial.kernel._gram(U, None))
    folds = None if effects.folds is None else effects.folds.take(half)
    if folds is not None:
        folds.add_effect(gram)
    P, penalty = None, trial.alpha
    while P is None:  # rounding errors may need a larger penalty
        P = inverse(gram.copy(), penalty / weight)
        penalty *= 10.0
    return U, P @ effects.Y[half]
