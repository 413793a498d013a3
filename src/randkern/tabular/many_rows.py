"""Regression on more rows than one exact solve bears.

Two fits take all rows. One is exact in overlapping cells; the other covers the table,
exactly by conjugate gradients, or with landmarks. Residuals of rows that the fits do
not know weight the two. Rows that are independent are left out one at a time, in closed
form; rows that depend on others are evaluated by whole folds that are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import KernelRidgeRegressor, KernelRidgeRegressorCV
from randkern.solvers import PCG
from randkern.tabular.learning import Learning
from randkern.tabular.local import fit_in_cells
from randkern.tabular.model import (
    MEMORY_LIMIT,
    Member,
    Table,
    fit_quietly,
    iterating_seconds,
    iterations_within,
    plan_of,
    stopping,
)
from randkern.tabular.search import Trial, blend
from randkern.tabular.work import Stage, exact_seconds, gram_seconds, landmark_seconds

# The multiples of the penalty from which a fit of landmarks chooses.
_MULTIPLES = np.logspace(-2, 4, 13)
# Share of the remaining time for the fit in cells.
_CELLS_SHARE = 0.7
# Share of the time for what follows the last fit, and the least for that fit.
_AFTER_SHARE, _MIN_SHARE = 0.05, 0.1


@dataclass(frozen=True)
class _Fit:
    """A fit to all rows, and what it leaves of rows that it does not know.

    `residuals`, (m, k), are those of the rows `numbers`, with weights (m,). The first
    fit has them for all rows.
    """

    trial: Trial
    model: Any
    numbers: np.ndarray
    residuals: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class FitOfMany:
    """Members with the kernels that they are fitted with, and residuals.

    The residuals, (m, k), of the weighted mean of the members are those of rows that
    fits do not know: all rows of the table, or those held out.
    """

    pairs: list[tuple[Member, Trial]]
    residuals: np.ndarray


def fit_many(
    trials: Sequence[Trial],
    table: Table,
    apart: Table | None,
    learning: Learning,
    weighted: bool,
    stream: Stream,
    stage: Stage,
) -> FitOfMany:
    """Fit all rows of a table in cells and as a whole, and weight the fits.

    Rows `apart` evaluate them if rows depend on each other; else there are none, and
    rows are left out one at a time.
    """
    weight = table.weight if weighted else None
    seed = int(stream.child("features").generator().integers(2**31))
    part = stage.part(_CELLS_SHARE * stage.left)
    local, cells = fit_in_cells(
        KernelRidgeRegressor,
        trials,
        table.Y,
        weight,
        learning,
        stream,
        seed,
        part,
        are_independent=table.folds is None,
    )
    fits = [_evaluated(local, cells, None, table, apart, learning)]
    trial = local if plan_of(len(table), stage.left)[0] == "iterate" else trials[0]
    encoded = learning.encoded_table(trial, table, "float32")
    whole = _fit_whole(trial, encoded, weight, seed, stage)
    if whole is not None:
        fits.append(_evaluated(trial, whole, encoded.X, table, apart, learning))
    return _blended(fits, table, learning)


def _evaluated(
    trial: Trial,
    model: Any,
    U: np.ndarray | None,
    table: Table,
    apart: Table | None,
    learning: Learning,
) -> _Fit:
    """Return a fit with its residuals of rows that it does not know."""
    if apart is not None:
        predicted = _member(1.0, trial, model, learning).predict(apart.X)
        every = np.arange(len(apart))
        return _Fit(trial, model, every, apart.Y - predicted, apart.weight)
    if U is None:
        left_out = model.cells_.left_out + model.intercept_
        every = np.arange(len(table))
        return _Fit(trial, model, every, table.Y - left_out, table.weight)
    rows, sizes = model._left_out_rows, model._left_out_sizes
    # Residuals of rows that are left out are larger, and have the same sign.
    fitted = np.asarray(model.predict(U[rows])).reshape(len(rows), -1)
    residuals = np.copysign(sizes, table.Y[rows] - fitted)
    return _Fit(trial, model, rows, residuals, model._left_out_weight)


def _blended(fits: list[_Fit], table: Table, learning: Learning) -> FitOfMany:
    """Return the fits with the weights of the smallest squared error.

    It is that of the rows that evaluate the last fit, which all fits have evaluated.
    The first fit has evaluated more: its residuals there, in proportion to those of the
    weighted mean, stand for these.
    """
    size = table.Y.std(axis=0)
    size[size == 0] = 1.0
    first, last = fits[0], fits[-1]
    root = np.sqrt(last.weight)[:, None] / size
    common = [root * last.residuals]
    if last is not first:
        common.insert(0, root * first.residuals[last.numbers])
    order = np.argsort([np.linalg.norm(each) for each in common], kind="stable")
    shares = blend([common[at] for at in order])
    pairs, residuals = [], np.zeros_like(common[0])
    for share, at in zip(shares, order, strict=True):
        if share > 0:
            fit = fits[at]
            member = _member(float(share), fit.trial, fit.model, learning)
            pairs.append((member, fit.trial))
            residuals += share * common[at]
    before, after = (np.linalg.norm(each, axis=0) for each in (common[0], residuals))
    ratio = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    return FitOfMany(pairs, ratio * first.residuals)


def _member(share: float, trial: Trial, model: Any, learning: Learning) -> Member:
    encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
    return Member(share, encoder, model, trial.turn)


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
        searched = isinstance(fit, KernelRidgeRegressorCV)
        model = KernelRidgeRegressor(
            fit.kernel,
            member.alpha,
            fit.n_components,
            features=fit.features,
            solver="auto" if searched else fit.solver,
            fit_intercept=True,
            memory_limit=MEMORY_LIMIT,
            random_state=fit.random_state,
        )
        fit_quietly(model, encoded.X, encoded.Y, table.weight if weighted else None)
        again.append((replace(member, fit=model), trial))
    return again


def _fit_whole(
    trial: Trial,
    encoded: Table,
    weight: np.ndarray | None,
    seed: int,
    stage: Stage,
) -> Any:
    """Fit all rows, as exactly as time allows; None if it does not."""
    n, n_columns = encoded.X.shape
    limit = stage.work.limit
    left = max(stage.left - _AFTER_SHARE * limit, _MIN_SHARE * limit)

    def planned(left: float) -> tuple[str, int, int, float]:
        plan, D = plan_of(n, left)
        if plan == "factorise":  # after the Gram matrix
            spare = left - 2 * gram_seconds(n, n_columns)
            plan, D = plan_of(n, max(spare, _MIN_SHARE * limit))
        n_iter = iterations_within(n, left)
        if plan == "factorise":
            return plan, D, n_iter, exact_seconds(n, n_columns)
        if plan == "iterate":
            return plan, D, n_iter, iterating_seconds(n, n_iter)
        return plan, D, n_iter, landmark_seconds(n, D, n_columns)

    plan, D, n_iter, seconds = planned(left)
    if (allowed := stage.affordable(seconds)) < seconds:
        plan, D, n_iter, seconds = planned(allowed)
    if min(allowed, left) < seconds / 2:
        return None
    stage.work.charge(seconds)
    shared: dict[str, Any] = {
        "fit_intercept": True,
        "memory_limit": MEMORY_LIMIT,
        "random_state": seed,
    }
    whole: Any
    if D:  # all rows may need another penalty
        alphas = (trial.alpha * _MULTIPLES).tolist()
        folds = encoded.folds
        splits = None if folds is None else list(folds.coarse().splits())
        whole = KernelRidgeRegressorCV(
            trial.kernel, alphas, D, features="nystrom", cv=splits, **shared
        )
    else:
        solver: Any = "cholesky"
        if plan == "iterate":
            solver = PCG(max_iter=n_iter, callback=stopping(stage))
        whole = KernelRidgeRegressor(
            trial.kernel, trial.alpha, None, solver=solver, **shared
        )
    fit_quietly(whole, encoded.X, encoded.Y, weight)
    if D:
        whole.cv = None  # which files of models need not hold
    if plan == "iterate":  # without the callback, and as far as it got
        whole.solver = PCG(max_iter=max(int(whole.solution_.iterations), 1))
    return whole
