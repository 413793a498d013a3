"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from randkern.tabular.leave_one_out import inverse
from randkern.tabular.search import Trial

__all__ = ["ColumnEffects"]

# Times that the rows are halved; most rows whose columns are changed, and least for
# tables so wide that they would take more than this number of operations.
_SPLITS = 4
_MOST_CHANGED, _LEAST_CHANGED, _OPERATIONS = 200, 20, 4e10


@dataclass
class ColumnEffects:
    """The kernels of a model, and what it takes to fit them to halves of the rows.

    Attributes
    ----------
    parts : list of (float, Trial)
        Kernels and penalties of the model's members, with their weights.
    rows : dict of str to ndarray of shape (n, ...)
        Encoded rows in random order, for each scaling of numbers.
    columns : dict of str to ndarray
        The input column of each encoded column.
    Y, weight : ndarray of shape (n, k) and (n,)
        Targets or codes of labels, and weights.
    """

    parts: Sequence[tuple[float, Trial]]
    rows: dict[str, np.ndarray]
    columns: dict[str, np.ndarray]
    Y: np.ndarray
    weight: np.ndarray

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the total-effect index of each column, as shares of their sum.

        It is E[(f(x) − f(x'))²]/2, where x' is x with the column of another row (Jansen
        1999, "Analysis of variance designs for model output"). The square is the
        product of the differences of two fits, each to half of the rows, so that noise
        adds nothing on average; it is averaged over several halvings.
        """
        n, total = len(self.Y), np.zeros(n_columns)
        most = _OPERATIONS / (_SPLITS * n * n_columns**2)
        m = int(np.clip(most, _LEAST_CHANGED, _MOST_CHANGED))
        generator = np.random.default_rng(0)
        for _ in range(_SPLITS):
            halves = np.array_split(generator.permutation(n), 2)
            duals = [
                [self._dual(trial, half) for _, trial in self.parts] for half in halves
            ]
            fits = list(zip(halves, duals, strict=True))
            unchanged = [self._predict(m, *fit) for fit in fits]
            for j in range(n_columns):
                changed = (self._predict(m, *fit, moved=j) for fit in fits)
                pairs = zip(changed, unchanged, strict=True)
                first, second = (after - before for after, before in pairs)
                total[j] += (first * second).sum()
        total = np.maximum(total, 0.0)
        if total.sum() > 0:
            return total / total.sum()
        return np.full(n_columns, 1 / n_columns)

    def _dual(self, trial: Trial, half: np.ndarray) -> np.ndarray:
        """Return the coefficients of least squares on some rows, with an intercept."""
        U, penalty = trial.turned(self.rows[trial.numbers][half]), trial.alpha
        while True:
            P = inverse(
                np.array(trial.kernel._gram(U, None)), penalty / self.weight[half]
            )
            if P is not None:
                return P @ self.Y[half]
            penalty *= 10.0

    def _predict(
        self,
        m: int,
        half: np.ndarray,
        duals: Sequence[np.ndarray],
        moved: int | None = None,
    ) -> np.ndarray:
        """Return predictions for the first m rows, but for their intercepts.

        Column `moved` is replaced by that of other rows.
        """
        total = np.zeros((min(m, len(self.Y)), self.Y.shape[1]))
        for (weight, trial), dual in zip(self.parts, duals, strict=True):
            every = self.rows[trial.numbers]
            rows = every[:m]
            if moved is not None:
                others = np.roll(rows, len(rows) // 2, axis=0)
                rows = np.where(self.columns[trial.numbers] == moved, others, rows)
            gram = trial.kernel._gram(trial.turned(rows), trial.turned(every[half]))
            total += weight * (gram @ dual)
        return total
