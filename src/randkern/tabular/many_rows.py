"""Regression on more rows than one exact solve bears.

Two fits take all rows. One is exact in overlapping cells; the other covers the table
with landmarks. Residuals of rows that the fits do
not know weight the two. Rows that are independent are left out one at a time, in closed
form; rows that depend on others are evaluated by whole folds that are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from randkern._random import Stream
from randkern.models import KernelRidgeRegressor, KernelRidgeRegressorCV
from randkern.tabular.combine import blend
from randkern.tabular.learning import Learning
from randkern.tabular.local import fit_in_cells, left_out_in_cells
from randkern.tabular.members import MEMORY_LIMIT, Member, fit_quietly
from randkern.tabular.presets import (
    EVALUATED_ENTRIES,
    MAX_EVALUATED,
    MULTIPLES,
    Deadline,
)
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial


@dataclass(frozen=True)
class FitOfMany:
    """Members with the kernels that they are fitted with, and their evaluation.

    `residuals`, (m, k), of the weighted mean of the members are those of the rows
    `numbers`, which they do not know: of the table, or of those held out.
    """

    pairs: list[tuple[Member, Trial]]
    numbers: np.ndarray
    residuals: np.ndarray


def fit_many(
    trials: Sequence[Trial],
    table: Table,
    apart: Table | None,
    learning: Learning,
    weighted: bool,
    stream: Stream,
) -> FitOfMany:
    """Fit all rows of a table in cells and as a whole, and weight the fits.

    Rows `apart` evaluate them if rows depend on each other; else there are none, and
    rows are left out one at a time.
    """
    weight = table.weight if weighted else None
    seed = int(stream.child("features").generator().integers(2**31))
    local, cells = fit_in_cells(
        trials,
        table.Y,
        weight,
        learning,
        stream,
        are_independent=table.folds is None,
    )
    trial = trials[0]
    encoded = learning.encoded_table(trial, table, "float32")
    n_landmarks, deadline = learning.plan.n_landmarks, learning.deadline
    fits: list[tuple[Trial, Any]] = [(local, cells)]
    if not deadline.ends("the last fit"):
        whole = _fit_whole(trial, encoded, weight, n_landmarks, seed, deadline)
        fits.append((trial, whole))
    members = [_member(trial, fit, learning) for trial, fit in fits]
    if apart is not None:
        numbers, evaluating = np.arange(len(apart)), apart
        residuals = [apart.Y - member.predict(apart.X) for member in members]
    else:
        n_evaluated = min(MAX_EVALUATED, EVALUATED_ENTRIES // n_landmarks)
        numbers, evaluating = learning.order[:n_evaluated], table
        U = learning.encoded(local, table.X, "float32")
        residuals = [table.Y[numbers] - left_out_in_cells(cells, U)[numbers]]
        if len(fits) > 1:
            residuals.append(_left_of(whole, encoded, numbers))
    size = table.Y.std(axis=0)
    size[size == 0] = 1.0
    root = np.sqrt(evaluating.weight[numbers])[:, None] / size
    shares = _shares([root * each for each in residuals])
    pairs = [
        (replace(member, weight=float(share)), trial)
        for share, member, (trial, _) in zip(shares, members, fits, strict=True)
        if share > 0
    ]
    pairs.sort(key=lambda pair: -pair[0].weight)
    blended = np.tensordot(shares, np.stack(residuals), axes=1)
    return FitOfMany(pairs, numbers, blended)


def _left_of(whole: Any, encoded: Table, numbers: np.ndarray) -> np.ndarray:
    """Return what a fit to all rows leaves of some, if it does not know them.

    Residuals r of rows that are left out are r/(1 - h), with leverages h that hardly
    differ for few landmarks. The model has left out some rows, with absolute residuals
    that tell what they are.
    """

    def left(rows: np.ndarray) -> np.ndarray:
        fitted = np.asarray(whole.predict(encoded.X[rows]))
        return encoded.Y[rows] - fitted.reshape(len(rows), -1)

    inside = np.abs(left(whole._left_out_rows))
    ratio = np.divide(
        whole._left_out_sizes, inside, out=np.ones_like(inside), where=inside > 0
    )
    return np.median(ratio, axis=0) * left(numbers)


def _shares(residuals: list[np.ndarray]) -> np.ndarray:
    """Return the weights of fits with the smallest squared error."""
    order = np.argsort([np.linalg.norm(each) for each in residuals], kind="stable")
    shares = np.zeros(len(residuals))
    shares[order] = blend([residuals[at] for at in order])
    return shares


def _member(trial: Trial, model: Any, learning: Learning) -> Member:
    encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
    return Member(1.0, encoder, model)


def fit_again(
    pairs: Sequence[tuple[Member, Trial]],
    table: Table,
    learning: Learning,
    weighted: bool,
) -> list[tuple[Member, Trial]]:
    """Return members fitted to all rows with the penalties that they have.

    They were evaluated on the last rows in time, and are to predict from all.
    """
    again = []
    for member, trial in pairs:
        encoded = learning.encoded_table(trial, table, member.encoder.dtype)
        fit: Any = member.fit
        if isinstance(fit, KernelRidgeRegressorCV):
            model = KernelRidgeRegressor(
                fit.kernel,
                member.alpha,
                fit.n_components,
                features=fit.features,
                fit_intercept=True,
                memory_limit=MEMORY_LIMIT,
                random_state=fit.random_state,
            )
        else:
            model = clone(fit)
        fit_quietly(model, encoded.X, encoded.Y, table.weight if weighted else None)
        again.append((replace(member, fit=model), trial))
    return again


def _fit_whole(
    trial: Trial,
    encoded: Table,
    weight: np.ndarray | None,
    n_landmarks: int,
    seed: int,
    deadline: Deadline,
) -> KernelRidgeRegressorCV:
    """Fit all rows with landmarks; all may need another penalty than few."""
    alphas = [trial.alpha * multiple for multiple in MULTIPLES]
    folds = encoded.folds
    splits = None if folds is None else list(folds.coarse().splits())
    whole = KernelRidgeRegressorCV(
        trial.kernel,
        alphas,
        n_landmarks,
        features="nystrom",
        cv=splits,
        fit_intercept=True,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )
    fit_quietly(whole, encoded.X, encoded.Y, weight, deadline)
    whole.cv = None  # which files of models need not hold
    return whole
