"""Regression on more rows than one exact solve bears."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
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


def fit_many(
    trials: Sequence[Trial],
    table: Table,
    apart: Table,
    learning: Learning,
    weighted: bool,
    stream: Stream,
    stage: Stage,
) -> list[tuple[Member, Trial]]:
    """Return fits to all rows, weighted by the held-out rows, and their kernels.

    One is exact in cells, with a kernel that is learned there. The other is exact in
    one piece, as far as conjugate gradients get in time, or has landmarks.
    """
    weight = table.weight if weighted else None
    shared: dict[str, Any] = {
        "fit_intercept": True,
        "memory_limit": MEMORY_LIMIT,
        "random_state": int(stream.child("features").generator().integers(2**31)),
    }
    local, cells = fit_in_cells(
        KernelRidgeRegressorCV,
        trials,
        table.Y,
        weight,
        learning,
        stream,
        shared["random_state"],
        stage.part(_CELLS_SHARE * stage.left),
    )
    fits = [(local, cells)]
    trial = local if plan_of(len(table), stage.left)[0] == "iterate" else trials[0]
    U = learning.encoded(trial, table.X, "float32")
    whole = _fit_whole(trial, U, table.Y, weight, shared, stage)
    if whole is not None:
        fits.append((trial, whole))
    return _weighted(fits, apart, learning)


def _weighted(
    fits: list[tuple[Trial, Any]], apart: Table, learning: Learning
) -> list[tuple[Member, Trial]]:
    """Return the fits with the weights of the smallest error of held-out rows."""
    size = apart.Y.std(axis=0)
    size[size == 0] = 1.0
    members, residuals = [], []
    for trial, fit in fits:
        encoder = copy(learning.encoders[trial.numbers]).set_params(dtype="float32")
        member = Member(1.0, encoder, fit, trial.turn)
        left = (apart.Y - member.predict(apart.X)) / size
        residuals.append(np.sqrt(apart.weight)[:, None] * left)
        members.append((member, trial))
    order = np.argsort([np.linalg.norm(each) for each in residuals], kind="stable")
    weights = blend([residuals[at] for at in order])
    out = []
    for share, at in zip(weights, order, strict=True):
        if share > 0:
            member, trial = members[at]
            member.weight = float(share)
            out.append((member, trial))
    return out


def _fit_whole(
    trial: Trial,
    U: np.ndarray,
    Y: np.ndarray,
    weight: np.ndarray | None,
    shared: dict[str, Any],
    stage: Stage,
) -> Any:
    """Fit all rows, as exactly as time allows; None if it does not."""
    n, n_columns = U.shape
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
    whole: Any
    if D:  # all rows may need another penalty
        alphas = (trial.alpha * _MULTIPLES).tolist()
        whole = KernelRidgeRegressorCV(
            trial.kernel, alphas, D, features="nystrom", **shared
        )
    else:
        solver: Any = "cholesky"
        if plan == "iterate":
            solver = PCG(max_iter=n_iter, callback=stopping(stage))
        whole = KernelRidgeRegressor(
            trial.kernel, trial.alpha, None, solver=solver, **shared
        )
    fit_quietly(whole, U, Y, weight)
    if plan == "iterate":  # without the callback, and as far as it got
        whole.solver = PCG(max_iter=max(int(whole.solution_.iterations), 1))
    return whole
