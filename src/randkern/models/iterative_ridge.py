"""Ridge regression by iterative solvers: their systems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from randkern._memory import check_memory
from randkern._validation import Array
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows, FitData
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.left_out import ProbedRows
from randkern.models.linear_operators import FeatureOperator, KernelOperator
from randkern.models.memory import iterating_bytes, kernel_operator_bytes
from randkern.solvers import (
    IterativeSolver,
    Loss,
    Solution,
)
from randkern.solvers.iteration import Callback
from randkern.solvers.pcg import trace_settled

# Predictions at the training rows differ from those of the solution by at most this
# share of the targets' standard deviation.
_DUAL_TOL = 1e-2
# Labels coded as ±1 have the right sign before that.
_DUAL_TOL_OF_LABELS = 5e-2
# For the same reason the loss may be larger, with less caution: see
# randkern.solvers.stopping.
_FOR_LABELS = {"floor": 1.0, "caution": 1 / 16}
# Many eigenpairs in the preconditioner, as each iteration recomputes tiles of the
# kernel.
_DUAL_RANK = 2000


# The mean leverage settles when two steps change the rest, 1 − H_ii, by no more than
# this share. Means of 1 − H_ii were then within 3 %, on tables of 4,000 and 20,000 rows
# with 1,000 features, after a tenth to two thirds of the iterations, and within 5 %
# where their mean was .3.
_LEVERAGE_TOL = 2.5e-2


# Penalties below this many rounding errors of the trace of kernel values at landmarks
# were lost. Digits with an optical kernel and 1,000 landmarks: with an eighth of an
# error .78 of the labels were right, with three .97, with seven .99, as they all are in
# double precision.
_LOST = 10.0


def _leverage_settled(gains: np.ndarray) -> bool:
    """Return whether the sum of increases, the mean leverage, has nearly settled."""
    return bool(gains[-2:].sum() <= _LEVERAGE_TOL * abs(1.0 - gains.sum()))


@dataclass(frozen=True)
class System:
    """A linear system of ridge regression, with when to stop.

    The last fields are arguments of the solver (see
    :meth:`randkern.solvers.PCG.solve`).
    """

    solver: IterativeSolver
    operator: FeatureOperator | KernelOperator
    alpha: float
    rhs: Array
    # Rows whose leverage is estimated, and the right-hand sides of their probes.
    probed: ProbedRows
    companions: Array
    settled: Callable[[np.ndarray], bool] = trace_settled
    loss: Loss | None = None
    sizes: np.ndarray | None = None

    def solve(self, callback: Callback, weights: Array = None) -> Solution:
        """Return the solution of the solver, which may begin at earlier weights."""
        start = None
        if weights is not None:
            if tuple(weights.shape) != tuple(self.rhs.shape):
                raise ValueError(
                    f"warm_start=True continues from weights of shape "
                    f"{tuple(weights.shape)}, but this fit has weights of shape "
                    f"{tuple(self.rhs.shape)}; use warm_start=False, or the numbers "
                    "of components, rows and targets of the last fit."
                )
            start = self.operator.value_of(
                ops_of(self.rhs).float64_like(weights, self.rhs)
            )
        return self.solver.solve(
            self.solver.init(self.operator, self.alpha),
            self.rhs,
            start=start,
            sizes=self.sizes,
            loss=self.loss,
            callback=callback,
            companions=self.companions,
            settled=self.settled,
        )

    def left_out_residuals(self, solution: Solution) -> Array:
        """Return the leave-one-out residuals of the probed rows, (m, k).

        None if the solver has not solved for the probes.
        """
        if solution.companions is None:
            return None
        return self.operator.left_out_residuals(
            self.probed, solution.value, solution.companions
        )


def system_of(
    data: FitData,
    solver: IterativeSolver,
    alpha: float,
    fit_intercept: bool,
) -> System:
    """Return the system that the solver takes."""
    if data.plan is None:
        return _dual_system(data, solver, alpha, fit_intercept)
    return _primal_system(data, solver, alpha, fit_intercept)


def _is_lost_in_rounding(data: FitData, probed: ProbedRows, alpha: float) -> bool:
    """Return whether a penalty per row is lost in kernel values at landmarks.

    Solving with the factor of the landmarks amplifies their rounding errors: with
    single precision, penalties below some ten times its error of the trace are lost.
    """
    rows = probed.sample.rows.X
    if data.plan.triangle is None or not rows.shape[0]:
        return False
    precision = ops_of(rows).precision(rows.dtype)
    return alpha < _LOST * precision * float(data.kernel.diag(rows).mean())


def _primal_system(
    data: FitData,
    solver: IterativeSolver,
    alpha: float,
    center: bool,
) -> System:
    """Return the normal equations of features, by their products."""
    rows, plan = data.rows, data.plan
    stream = data.stream.child("solver")
    statistics = rows.survey()
    probed = ProbedRows.of(
        rows,
        data.targets.labelled,
        stream.child("left out").generator(),
        factorised=False,
    )
    precise = _is_lost_in_rounding(data, probed, alpha / statistics.weight_sum)
    like = ops_of(rows.like).as_float64(rows.like) if precise else rows.like
    rank = solver.chosen_rank(plan.n_components)
    fixed, at_once = iterating_bytes(plan, rows, like, rank, data.limit)
    features = FeatureMatrix(
        rows,
        plan.raw,
        data.limit - fixed,
        precise=precise,
        partly=True,
        # Solving with the factor of landmarks amplifies rounding errors.
        compress=solver.is_coarse and plan.triangle is None,
        block_rows=at_once,
    )
    operator, rhs = FeatureOperator.with_right_hand_side(
        features, plan, statistics, stream, center=center
    )
    loss = Loss(
        operator.loss_without_features,
        spread=statistics.spread,
        **(_FOR_LABELS if data.targets.labelled else {}),
    )
    return System(
        solver,
        operator,
        alpha,
        rhs,
        probed,
        companions=operator.probes(probed),
        settled=_leverage_settled,
        loss=loss,
    )


def _dual_system(
    data: FitData, solver: IterativeSolver, alpha: float, center: bool
) -> System:
    """Return the dual system of the exact kernel.

    The residual r of the dual system bounds the difference of predictions at the
    training rows from those of the solution, K(K + αI)⁻¹r.
    """
    rows = data.rows.as_arrays()
    stream = data.stream.child("solver")
    statistics = rows.survey()
    sizes = statistics.target_squares if center else statistics.all_squares
    if solver.tol is None:
        solver = copy.copy(solver)
        solver.tol = _DUAL_TOL_OF_LABELS if data.targets.labelled else _DUAL_TOL
        # Relative to the deviations of the targets, not to their means.
        sizes = np.where(statistics.spread > 0, statistics.spread, sizes)
    solver, iterating = _dual_solver(solver, rows, data.limit)
    spare = data.limit - iterating
    operator = KernelOperator(data.kernel, rows, stream, spare, center=center)
    probed = ProbedRows.of(
        rows,
        data.targets.labelled,
        stream.child("left out").generator(),
        factorised=False,
    )
    return System(
        solver,
        operator,
        alpha,
        operator.right_hand_side(),
        probed,
        companions=operator.probes(probed),
        sizes=np.sqrt(sizes),
    )


def _dual_solver(
    solver: IterativeSolver, rows: ArrayRows, limit: int
) -> tuple[IterativeSolver, int]:
    """Return a solver whose rank fits in memory, and the memory that it takes."""
    n = rows.n_rows

    def n_bytes(rank: int) -> tuple[int, int]:
        return kernel_operator_bytes(rows.like, n, rows.n_targets, rank)

    if solver.rank is None:
        solver = copy.copy(solver)
        # As many eigenpairs as half the memory allows.
        ranks = range(min(n // 20, _DUAL_RANK), solver.chosen_rank(n), -100)
        fitting = (rank for rank in ranks if n_bytes(rank)[0] <= limit // 2)
        solver.rank = next(fitting, solver.chosen_rank(n))
    rank = solver.chosen_rank(n)
    needed, iterating = n_bytes(rank)
    subject = f"conjugate gradients on the exact kernel of {n} rows"
    advice = "Use random features (for instance n_components=10_000)"
    check_memory(needed, limit, subject, advice)
    return solver, iterating
