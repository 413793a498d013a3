"""Regression on more rows than one exact solve bears."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.models import KernelRidgeRegressor, KernelRidgeRegressorCV
from randkern.solvers import PCG
from randkern.tabular.learning import Learning
from randkern.tabular.local import fit_in_cells
from randkern.tabular.model import (
    MEMORY_LIMIT,
    ExactRidge,
    Member,
    Table,
    factorised_rows,
    fit_quietly,
    fit_ridge,
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


def fit_blend(
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
    seed = int(stream.child("features").generator().integers(2**31))
    part = stage.part(_CELLS_SHARE * stage.left)
    make = KernelRidgeRegressorCV
    local, cells = fit_in_cells(
        make, trials, table.Y, weight, learning, stream, seed, part
    )
    fits = [(local, cells)]
    trial = local if plan_of(len(table), stage.left)[0] == "iterate" else trials[0]
    encoded = learning.encoded_table(trial, table, "float32")
    whole = _fit_whole(trial, encoded, weight, seed, stage)
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
            out.append((replace(member, weight=float(share)), trial))
    return out


def fit_many(
    trial: Trial,
    table: Table,
    apart: Table,
    learning: Learning,
    weighted: bool,
    seed: int,
    stage: Stage,
) -> tuple[Member, int]:
    """Return the better of two fits on the held-out rows, and its number of rows.

    One is exact, on as many rows as time allows, the other uses all rows.
    """
    encoder = learning.encoders[trial.numbers]
    U_apart = trial.turned(encoder.transform(apart.X))
    part, m = _fit_part(trial, table, learning, stage)
    # Use tiles of the Gram matrix, or as many features as fit in memory.
    encoder = copy(encoder).set_params(dtype="float32")
    U = learning.encoded(trial, table.X, "float32")
    weight = table.weight if weighted else None
    whole = _fit_whole(trial, replace(table, X=U), weight, seed, stage)
    member = Member(1.0, encoder, whole, trial.turn)
    size, errors = table.Y.std(axis=0), []
    size[size == 0] = 1.0
    for fit in (part, whole):
        if fit is not None:
            predicted = fit.predict(U_apart).reshape(apart.Y.shape)
            errors.append(float((((predicted - apart.Y) / size) ** 2).mean()))
    if whole is None or errors[0] < errors[1]:
        encoder = learning.encoders[trial.numbers]
        return Member(1.0, encoder, part, trial.turn), m
    return member, len(table)


def fit_again(
    member: Member, trial: Trial, table: Table, learning: Learning, weighted: bool
) -> tuple[Member, int]:
    """Return a member fitted to all rows, and their number.

    The member was evaluated on the last rows in time, and is to predict from all.
    """
    encoded = learning.encoded_table(trial, table, member.encoder.dtype)
    fit: Any = member.fit
    if isinstance(fit, ExactRidge):
        m = len(fit.X)
        order = np.random.default_rng(0).permutation(len(table))[:m]
        return replace(member, fit=fit_ridge(fit.kernel, fit.alpha, encoded, order)), m
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
    return replace(member, fit=model), len(table)


def _fit_part(
    trial: Trial, table: Table, learning: Learning, stage: Stage
) -> tuple[Any, int]:
    """Fit the exact kernel to some rows; return the fit and their number."""
    n_columns = learning.n_columns(trial)
    left = max(stage.left, _MIN_SHARE * stage.work.limit)
    m = min(factorised_rows(left / 3), len(table))
    seconds = exact_seconds(m, n_columns)
    if (allowed := stage.affordable(seconds)) < seconds:
        m = min(factorised_rows(allowed), m)
    stage.work.charge(exact_seconds(m, n_columns))
    order = np.arange(m)
    some = learning.encoded_table(trial, table.take(order))
    return fit_ridge(trial.kernel, trial.alpha, some, order), m


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
