"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from randkern.tabular.exact_ridge import fit_ridge
from randkern.tabular.folds import Folds
from randkern.tabular.presets import EFFECT_VALUES, LEAST_EFFECT_ROWS, SHUFFLES
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial


@dataclass
class ColumnEffects:
    """A kernel of a model, and what it takes to fit it to halves of the rows.

    Attributes
    ----------
    trial : Trial
        The kernel, with its penalty.
    rows : ndarray of shape (n, d)
        Encoded rows in random order.
    columns : ndarray of shape (d,)
        The input column of each encoded column.
    Y, weight : ndarray of shape (n, k) and (n,)
        Targets or codes of labels, and weights.
    seed : int
        Seeds the choice of halves, and the shuffles.
    folds : Folds or None
        Those of rows that depend on each other, which are whole in either half.
    """

    trial: Trial
    rows: np.ndarray
    columns: np.ndarray
    Y: np.ndarray
    weight: np.ndarray
    seed: int
    folds: Folds | None = None

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the permutation importance of each column, as shares of their sum.

        It is by how much the squared error of rows left out grows if the column is
        shuffled among them, for fits to either half of the rows. That of a column
        without effect is 0 on average. As none is negative, negative ones are noise:
        those that do not exceed their root mean square are set to zero.
        """
        from sklearn.inspection import permutation_importance

        generator = np.random.default_rng(self.seed)
        halves = self._halves(generator, n_columns)
        effects = np.zeros(n_columns)
        for known, held in (halves, halves[::-1]):
            found = permutation_importance(
                _Fit(self).fit(known),
                np.tile(held[:, None], n_columns),
                self.Y[held],
                scoring="neg_mean_squared_error",
                n_repeats=SHUFFLES,
                random_state=int(generator.integers(2**31)),
                sample_weight=self.weight[held],
            )
            effects += found.importances_mean
        negative = effects[effects < 0]
        noise = np.sqrt(np.mean(negative**2)) if len(negative) else 0.0
        effects[effects <= noise] = 0.0
        if effects.sum() > 0:
            return np.asarray(effects / effects.sum())
        return np.full(n_columns, 1 / n_columns)

    def _halves(
        self, generator: np.random.Generator, n_columns: int
    ) -> list[np.ndarray]:
        """Return random halves of some rows, of whole folds if there are any."""
        values = SHUFFLES * n_columns * (1 + self.rows.shape[1] / 100) / 2
        n = max(int(np.sqrt(EFFECT_VALUES / values)), LEAST_EFFECT_ROWS)
        n = min(n, len(self.Y))
        folds = None if self.folds is None else self.folds.take(np.arange(n))
        if folds is None:
            return np.array_split(generator.permutation(n), 2)
        codes, place = np.unique(folds.codes, return_inverse=True)
        is_first = generator.permutation(len(codes))[place] < len(codes) // 2
        return [np.flatnonzero(is_first), np.flatnonzero(~is_first)]


class _Fit(RegressorMixin, BaseEstimator):
    """Least squares with the kernel of a model.

    Each column of its rows has the number of the row whose value it takes, so that
    shuffling it shuffles all encoded columns of an input column.
    """

    def __init__(self, effects: ColumnEffects):
        self.effects = effects

    def fit(self, known: np.ndarray, y: Any = None) -> _Fit:
        """Fit some of the rows."""
        effects = self.effects
        folds = None if effects.folds is None else effects.folds.take(known)
        rows, Y = effects.rows[known], effects.Y[known]
        table = Table(rows, Y, effects.weight[known], folds=folds)
        trial, order = effects.trial, np.arange(len(known))
        self.fit_ = fit_ridge(trial.kernel, trial.alpha, table, order)
        return self

    def predict(self, numbers: np.ndarray) -> np.ndarray:
        """Return predictions, (n, k)."""
        columns = self.effects.columns
        rows = self.effects.rows[numbers[:, columns], np.arange(len(columns))]
        return np.asarray(self.fit_.predict(rows)).reshape(len(rows), -1)
