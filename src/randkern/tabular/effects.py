"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.tabular.leave_one_out import inverse
from randkern.tabular.search import Trial

__all__ = ["ColumnEffects", "Half"]

# Most rows whose columns are changed, and least for tables so wide that they would take
# more than this number of operations.
_MOST_CHANGED, _LEAST_CHANGED, _OPERATIONS = 200, 20, 1e10


# The weight of a kernel, the rows that it is fitted to, and their coefficients.
_Fit = tuple[float, Trial, np.ndarray, np.ndarray]


@dataclass
class Half:
    """Positions of half of the rows, and the kernels to fit to them with weights."""

    positions: np.ndarray
    parts: Sequence[tuple[float, Trial]]


@dataclass
class ColumnEffects:
    """The kernels of a model, and what it takes to fit them to halves of the rows.

    Attributes
    ----------
    pairs : list of list of Half
        Several ways to halve the rows.
    rows : dict of str to ndarray of shape (n, ...)
        Encoded rows in random order, for each scaling of numbers.
    columns : dict of str to ndarray
        The input column of each encoded column.
    Y, weight : ndarray of shape (n, k) and (n,)
        Targets or codes of labels, and weights.
    """

    pairs: Sequence[Sequence[Half]]
    rows: dict[str, np.ndarray]
    columns: dict[str, np.ndarray]
    Y: np.ndarray
    weight: np.ndarray

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the total-effect index of each column, as shares of their sum.

        It is E[(f(x) − f(x'))²]/2, where x' is x with the column of another row (Jansen
        1999, "Analysis of variance designs for model output"). The square is the
        product of the differences of two fits, each to half of the rows, so that noise
        adds nothing on average; each column gets the median over several halvings. As
        an effect is not negative, the largest negative one is noise, and those that are
        no larger are set to zero.
        """
        most = _OPERATIONS / (len(self.pairs) * len(self.Y) * n_columns**2)
        m = int(np.clip(most, _LEAST_CHANGED, _MOST_CHANGED))
        # Very wide tables are halved less often.
        pairs = self.pairs[: max(int(len(self.pairs) * most / m), 1)]
        effects = np.zeros((len(pairs), n_columns))
        for at, pair in enumerate(pairs):
            fits = [self._fitted(half) for half in pair]
            unchanged = [self._predict(m, fit) for fit in fits]
            for j in range(n_columns):
                changed = (self._predict(m, fit, moved=j) for fit in fits)
                differences = zip(changed, unchanged, strict=True)
                first, second = (after - before for after, before in differences)
                effects[at, j] = (first * second).sum()
        total = np.median(effects, axis=0)
        total[total <= -total.min(initial=0.0)] = 0.0
        if total.sum() > 0:
            return total / total.sum()
        return np.full(n_columns, 1 / n_columns)

    def _fitted(self, half: Half) -> list[_Fit]:
        """Fit least squares with an intercept and each kernel to half of the rows."""
        Y, weight = self.Y[half.positions], self.weight[half.positions]
        fits = []
        for share, trial in half.parts:
            U = trial.turned(self.rows[trial.numbers][half.positions])
            P, penalty = None, trial.alpha
            while P is None:  # rounding errors may need a larger penalty
                P = inverse(np.array(trial.kernel._gram(U, None)), penalty / weight)
                penalty *= 10.0
            fits.append((share, trial, U, P @ Y))
        return fits

    def _predict(self, m: int, fits: list[_Fit], moved: int | None = None) -> Any:
        """Return predictions for the first m rows, but for their intercepts.

        Column `moved` is replaced by that of other rows.
        """
        total: Any = 0.0
        for share, trial, U, dual in fits:
            rows = self.rows[trial.numbers][:m]
            if moved is not None:
                others = np.roll(rows, len(rows) // 2, axis=0)
                rows = np.where(self.columns[trial.numbers] == moved, others, rows)
            total = total + share * (trial.kernel._gram(trial.turned(rows), U) @ dual)
        return total
