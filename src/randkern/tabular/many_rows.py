"""Regression on more rows than one exact solve bears: exact kernels in cells.

Rows that are independent evaluate the fit as they are left out one at a time, in closed
form; rows that depend on others are evaluated by whole folds that are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from randkern._random import Stream
from randkern.tabular.learning import Learning
from randkern.tabular.local import fit_in_cells, left_out_in_cells
from randkern.tabular.members import Member, fit_quietly
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial
from randkern.tabular.work import Stage

# Share of the time for what follows the fit.
_AFTER_SHARE = 0.05
# Rows that evaluate fits, from which quantiles have standard errors of .2 %.
_MAX_EVALUATED = 20_000


@dataclass(frozen=True)
class FitOfMany:
    """A fit, the kernel that it is fitted with, and its evaluation.

    `residuals`, (m, k), are those of the rows `numbers`, which it does not know: of the
    table, or of those held out.
    """

    member: Member
    trial: Trial
    numbers: np.ndarray
    residuals: np.ndarray

    def again(self, table: Table, learning: Learning, weighted: bool) -> FitOfMany:
        """Return the same fit to other rows.

        It was evaluated on the last rows in time, and is to predict from all.
        """
        encoded = learning.encoded_table(self.trial, table, "float32")
        model = clone(self.member.fit)
        fit_quietly(model, encoded.X, encoded.Y, table.weight if weighted else None)
        return replace(self, member=replace(self.member, fit=model))


def fit_many(
    trials: Sequence[Trial],
    table: Table,
    apart: Table | None,
    learning: Learning,
    weighted: bool,
    stream: Stream,
    stage: Stage,
) -> FitOfMany:
    """Fit all rows of a table in cells.

    Rows `apart` evaluate the fit if rows depend on each other; else there are none, and
    rows are left out one at a time.
    """
    trial, model = fit_in_cells(
        trials,
        table.Y,
        table.weight if weighted else None,
        learning,
        stream,
        stage.part(stage.left - _AFTER_SHARE * stage.work.limit),
        are_independent=table.folds is None,
    )
    encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
    member = Member(1.0, encoder, model)
    if apart is not None:
        residuals = apart.Y - member.predict(apart.X)
        return FitOfMany(member, trial, np.arange(len(apart)), residuals)
    numbers = learning.order[:_MAX_EVALUATED]
    U = learning.encoded(trial, table.X, "float32")
    residuals = table.Y[numbers] - left_out_in_cells(model, U)[numbers]
    return FitOfMany(member, trial, numbers, residuals)
