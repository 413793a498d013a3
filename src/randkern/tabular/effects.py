"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern.tabular.exact_ridge import fit_ridge
from randkern.tabular.presets import EFFECT_VALUES, SHUFFLES
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


@dataclass
class ColumnEffects:
    """A kernel of a model, and what it takes to fit it to halves of the rows.

    Attributes
    ----------
    trial : Trial
        The kernel, with its penalty.
    table : Table
        Some encoded rows of the fit.
    columns : ndarray of shape (d,)
        The input column of each encoded column.
    seed : int
        Seeds the choice of halves, and the shuffles.
    """

    trial: Trial
    table: Table
    columns: np.ndarray
    seed: int

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the permutation importance of each column, as shares of their sum.

        It is by how much the squared error of rows left out grows if the column is
        shuffled among them, for fits to either half of the rows. That of a column
        without effect is 0 on average. As none is negative, negative ones are noise:
        those that do not exceed their root mean square are set to zero.

        All encoded columns of an input column are shuffled together, and whole groups
        are left out, for which scikit-learn's function has no arguments.
        """
        generator = np.random.default_rng(self.seed)
        values = SHUFFLES * n_columns * (1 + len(self.columns) / 100) / 2
        n = min(len(self.table), int(np.sqrt(EFFECT_VALUES / values)))
        halves = self.table.folds.divided(generator.permutation(n), n // 2)
        effects = np.zeros(n_columns)
        for known, held in (halves, halves[::-1]):
            effects += self._growth(known, held, n_columns, generator)
        negative = effects[effects < 0]
        noise = np.sqrt(np.mean(negative**2)) if len(negative) else 0.0
        effects[effects <= noise] = 0.0
        if effects.sum() > 0:
            return np.asarray(effects / effects.sum())
        return np.full(n_columns, 1 / n_columns)

    def _growth(
        self,
        known: np.ndarray,
        held: np.ndarray,
        n_columns: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Return by how much the squared error grows if each column is shuffled."""
        fit = fit_ridge(self.trial.kernel, self.trial.alpha, self.table, known)
        rest = self.table.take(held)

        def error(X: np.ndarray) -> float:
            E = rest.Y - fit.predict(X).reshape(rest.Y.shape)
            return float(rest.weight @ (E**2).sum(axis=1))

        growth = np.full(n_columns, -SHUFFLES * error(rest.X))
        for column in np.repeat(np.arange(n_columns), SHUFFLES):
            shuffled, own = rest.X.copy(), self.columns == column
            shuffled[:, own] = generator.permutation(rest.X[:, own])
            growth[column] += error(shuffled)
        return growth
