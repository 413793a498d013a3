"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from randkern.tabular.exact_ridge import ExactRidge, fit_ridge
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
            fit = fit_ridge(self.trial.kernel, self.trial.alpha, self.table, known)
            rest = self.table.take(held)
            X = rest.X.copy()
            before = _error(fit, rest)
            for column in np.repeat(np.arange(n_columns), SHUFFLES):
                own = self.columns == column
                X[:, own] = generator.permutation(rest.X[:, own])
                effects[column] += _error(fit, replace(rest, X=X)) - before
                X[:, own] = rest.X[:, own]
        negative = effects[effects < 0]
        noise = np.sqrt(np.mean(negative**2)) if len(negative) else 0.0
        effects[effects <= noise] = 0.0
        if effects.sum() > 0:
            return np.asarray(effects / effects.sum())
        return np.full(n_columns, 1 / n_columns)


def _error(fit: ExactRidge, table: Table) -> float:
    """Return the sum of squared errors of a fit on encoded rows."""
    E = table.Y - fit.predict(table.X).reshape(table.Y.shape)
    return float(table.weight @ (E**2).sum(axis=1))
