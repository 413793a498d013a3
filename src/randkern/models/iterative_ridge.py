"""Ridge regression by iterative solvers: their systems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._memory import check_memory
from randkern._random import Stream
from randkern._validation import Array
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.models._feature_model import predict_by_features
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.left_out import ProbedRows
from randkern.models.linear_operators import FeatureOperator, KernelOperator
from randkern.models.memory import iterating_bytes, kernel_operator_bytes
from randkern.plan import Plan
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
    validate: Callable[[Any], float] | None = None

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
            validate=self.validate,
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


@dataclass(frozen=True)
class IterativeRidge:
    """The systems of ridge regression that iterative solvers take.

    It has what these need to know of a model.
    """

    kernel: Kernel
    # None: the exact kernel.
    plan: Plan | None
    alpha: float
    fit_intercept: bool
    # Whether targets are labels coded as ±1.
    labelled: bool
    # Returns the error of predictions for validation: error_of(Y, predictions, weight).
    error_of: Callable[[Any, Any, Any], float]
    # Memory in bytes.
    limit: int
    stream: Stream

    def system(
        self,
        rows: TrainingData,
        solver: IterativeSolver,
    ) -> System:
        """Return the system that the solver takes."""
        if self.plan is None:
            return self._dual_system(rows.as_arrays(), solver)
        return self._primal_system(rows, self.plan, solver)

    def _probed(self, rows: TrainingData) -> ProbedRows:
        """Return rows to leave out."""
        generator = self.stream.child("left out").generator()
        return ProbedRows.of(rows, self.labelled, generator, factorised=False)

    def _primal_system(
        self, rows: TrainingData, plan: Plan, solver: IterativeSolver
    ) -> System:
        """Return the normal equations of features, by their products."""
        rank = solver.chosen_rank(plan.n_components)
        fixed, at_once = iterating_bytes(plan, rows, rank, self.limit)
        block: Any = None
        if solver.validation_fraction is not None:
            if not rows.in_one_place:
                raise ValueError(
                    "validation_fraction needs all rows in one process, not on a "
                    "cluster or on several devices; use validation_fraction=None."
                )
            held_out, block = _held_out(rows, solver.validation_fraction, self.stream)
            rows = rows.without(held_out)
        statistics = rows.survey()
        features = FeatureMatrix(
            rows,
            plan.raw,
            self.limit - fixed,
            compress=solver.is_coarse,
            block_rows=at_once,
        )
        center = self.fit_intercept
        operator, rhs = FeatureOperator.with_right_hand_side(
            features, plan, statistics, self.stream, center=center
        )
        loss = Loss(
            operator.loss_without_features,
            spread=statistics.spread,
            **(_FOR_LABELS if self.labelled else {}),
        )
        probed = self._probed(rows)
        system = System(
            solver,
            operator,
            self.alpha,
            rhs,
            probed,
            companions=operator.probes(probed),
            settled=_leverage_settled,
            loss=loss,
        )
        if block is None:
            return system

        def error(weights: Array) -> float:
            """Return the validation error of weights."""
            predictions = predict_by_features(plan, weights, block.X)
            predictions = predictions + operator.intercept(weights)
            return self.error_of(block.Y, predictions, block.weight)

        return replace(system, validate=error)

    def _dual_system(self, rows: ArrayRows, solver: IterativeSolver) -> System:
        """Return the dual system of the exact kernel.

        The residual r of the dual system bounds the difference of predictions at the
        training rows from those of the solution, K(K + αI)⁻¹r.
        """
        if solver.validation_fraction is not None:
            raise ValueError(
                "validation_fraction needs random features, got the exact kernel "
                "(n_components=None); set tol instead."
            )
        statistics = rows.survey()
        moments = statistics.moments
        sizes = moments.squares if self.fit_intercept else moments.all_squares
        if solver.tol is None:
            solver = copy.copy(solver)
            solver.tol = _DUAL_TOL_OF_LABELS if self.labelled else _DUAL_TOL
            # Relative to the deviations of the targets, not to their means.
            sizes = np.where(statistics.spread > 0, statistics.spread, sizes)
        solver, iterating = _dual_solver(solver, rows, self.limit)
        spare = self.limit - iterating
        operator = KernelOperator(
            self.kernel, rows, self.stream, spare, center=self.fit_intercept
        )
        probed = self._probed(rows)
        return System(
            solver,
            operator,
            self.alpha,
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


def _held_out(
    rows: TrainingData, fraction: float, stream: Stream
) -> tuple[np.ndarray, ArrayRows]:
    """Return the numbers of validation rows, and the rows."""
    n = round(fraction * rows.n_rows)
    if not 0 < n < rows.n_rows:
        raise ValueError(
            f"validation_fraction={fraction} of {rows.n_rows} rows leaves no rows to "
            "train on, or none to validate on; use another fraction, or None."
        )
    generator = stream.child("validation").generator()
    numbers = np.sort(generator.choice(rows.n_rows, n, replace=False))
    block = rows.take(numbers)
    if block.weight is not None and not (block.weight > 0).any():
        raise ValueError(
            f"validation_fraction={fraction} has held out only rows of sample_weight "
            "0; remove these rows."
        )
    return numbers, block
