"""Ridge regression by iterations: what is needed around the solver."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from randkern._memory import check_rank_memory
from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.target_statistics import Survey
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.models._predictions import predict_by_features
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.linear_operators import FeatureOperator, KernelOperator
from randkern.models.memory import kernel_operator_bytes, operator_memory
from randkern.models.minibatches import FeatureBatches
from randkern.plan import Plan
from randkern.solvers import PCG, SGD, Checkpoint, Loss, Solution

# Predictions at the training rows differ by at most this share of the targets'
# standard deviation from the solution's.
_DUAL_TOL = 1e-2
# Labels coded as ±1 have the right sign before that.
_DUAL_TOL_OF_LABELS = 5e-2
# So may the loss be, with less caution: see randkern.solvers.Loss.
_FOR_LABELS = {"least": 1.0, "caution": 1 / 16}
# Eigenpairs of the preconditioner: each iteration recomputes tiles of the kernel.
_DUAL_RANK = 2000
# Rows that stand for all where a kernel is compared with that of a checkpoint.
_PROBE_ROWS = 64

# Returns the error of predictions (n, k) of targets (n, k) with weights (n,) or None.
ErrorOf = Callable[[Any, Any, Any], float]


@dataclass(frozen=True)
class Problem:
    """Ridge regression on features of some rows.

    Attributes
    ----------
    rows : TrainingData
    alpha : float
    center : bool
        Whether there is an unpenalised intercept.
    memory_limit : int
        Bytes.
    stream : Stream
    error_of : callable
        The error of predictions on validation rows.
    labels : bool
        Whether targets are ±1, whose signs are right long before their values are.
    report : FitReport
        The callback of the solver.
    attributes_of : callable
        Returns the attributes that the model would have of weights and intercepts.
    checkpoint : Checkpoint or None
    """

    rows: TrainingData
    alpha: float
    center: bool
    memory_limit: int
    stream: Stream
    error_of: ErrorOf
    labels: bool
    report: FitReport
    attributes_of: Callable[[Any, Any], dict[str, Any]]
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class System:
    """A linear system for a solver, and what its solutions stand for.

    Attributes
    ----------
    solver : PCG or SGD
    operator, shift, rhs
        Of the system, as the solver takes them.
    weights_of : callable
        Returns the model's weights and intercepts that a solution stands for.
    stopping : dict
        Further arguments of the solver that tell when to stop.
    """

    solver: Any
    operator: Any
    shift: float
    rhs: Any
    weights_of: Callable[[Any], tuple[Any, Any]]
    stopping: dict[str, Any] = field(default_factory=dict)


def solve_iteratively(
    problem: Problem, system_of: Callable[..., System], *args: Any
) -> tuple[Solution, Any]:
    """Solve ``system_of(problem, *args)``; return the weights and the intercepts.

    Targets are rescaled where their squares leave the range of floats.
    """
    scale = problem.rows.survey().target_scale
    if np.any(scale != 1.0):
        rows = problem.rows.rescaled(np.zeros_like(scale), scale)
        problem = replace(problem, rows=rows)

    def weights_of(value: Any) -> tuple[Any, Any]:
        weights, intercept = system.weights_of(value)
        size = ops_of(weights).float64_like(scale, weights)
        return weights * size, intercept * size

    problem.report.begin(lambda value: problem.attributes_of(*weights_of(value)))
    try:
        system = system_of(problem, *args)
        solution = system.solver.solve(
            system.solver.init(system.operator, system.shift),
            system.rhs,
            callback=problem.report,
            checkpoint=problem.checkpoint,
            **system.stopping,
        )
    finally:
        problem.report.iterations_end()
    weights, intercept = weights_of(solution.value)
    return replace(solution, value=weights), intercept


def pcg_system(problem: Problem, plan: Plan, solver: PCG) -> System:
    """Return the normal equations of features for conjugate gradients."""
    rows, limit = problem.rows, problem.memory_limit
    fixed, at_once = operator_memory(plan, rows, solver, limit)
    validation = None
    if solver.validation_fraction is not None:
        if not rows.in_one_place:
            raise ValueError(
                "validation_fraction needs rows in one place, not on a cluster or on "
                "several devices."
            )
        validation = _held_out(rows, solver.validation_fraction, problem.stream)
        held_out, block = validation
        rows = rows.without(held_out)
    survey = rows.survey()
    features = FeatureMatrix(
        rows,
        plan.raw,
        limit - fixed,
        compress=solver.is_coarse,
        weight_unit=survey.weight_unit,
        block_rows=at_once,
    )
    operator = FeatureOperator(features, survey, problem.center, problem.stream, plan)
    rhs, unit = operator.right_hand_side(), operator.weight_unit
    stopping: dict[str, Any] = {
        "loss": Loss(
            operator.loss_without_features,
            spread=survey.spread / unit,
            most=_most_loss(survey, problem.center) / unit,
            **(_FOR_LABELS if problem.labels else {}),
        )
    }
    if validation is not None:
        stopping["validate"] = _validation(
            plan, problem.error_of, block, operator.intercept
        )
    shift = problem.alpha / unit
    return System(solver, operator, shift, rhs, operator.weights_of, stopping)


def sgd_system(problem: Problem, plan: Plan, solver: SGD) -> System:
    """Return features in batches of rows for stochastic gradients."""
    rows, limit = problem.rows, problem.memory_limit
    if not rows.in_one_place:
        raise ValueError(
            "solver='sgd' takes one step after another: use 'pcg' on Dask and on "
            "several devices."
        )
    needed, at_once = operator_memory(plan, rows, solver, limit)
    survey = rows.survey()
    features = FeatureMatrix(
        rows, plan, weight_unit=survey.weight_unit, block_rows=at_once
    )
    operator = FeatureOperator(features, survey, problem.center, problem.stream)
    if problem.center:
        operator.right_hand_side()  # a pass for the means of the features
    batches = FeatureBatches(operator, limit - needed)
    shift = problem.alpha / operator.weight_unit
    return System(solver, batches, shift, batches, operator.weights_of)


class StreamingFit:
    """Stochastic gradients over batches of rows that come one after the other.

    The first batch settles the preconditioner and the length of the steps.
    """

    def __init__(
        self, plan: Plan, rows: ArrayRows, alpha: float, stream: Stream, solver: SGD
    ):
        self._plan, self._stream, self._solver = plan, stream, solver
        batches = self._batches(rows, rows.survey())
        self._unit = batches.weight_unit
        self._alpha = alpha
        self._state = solver.init(batches, alpha / self._unit)
        self._state.weight_sum = 0.0

    def _batches(self, rows: ArrayRows, survey: Survey) -> FeatureBatches:
        features = FeatureMatrix(rows, self._plan, weight_unit=survey.weight_unit)
        return FeatureBatches(FeatureOperator(features, survey, False, self._stream))

    def continued(self, rows: ArrayRows) -> tuple[StreamingFit, Solution]:
        """Return the fit after steps along rows that have not been seen."""
        survey = rows.survey()
        # Weights have the unit of the first batch.
        survey = replace(survey, largest_weight=self._unit)
        fit = copy.copy(self)
        total = self._state.weight_sum + survey.weight_sum / self._unit
        fit._state = replace(self._state, weight_sum=total)
        return fit, self._solver.advance(fit._state, self._batches(rows, survey))


def exact_system(problem: Problem, kernel: Kernel, solver: PCG) -> System:
    """Return the dual system of the exact kernel.

    The residual r of the dual system bounds what predictions at the training rows
    differ by from those of the solution: K(K + αI)⁻¹r.
    """
    rows, limit, center = problem.rows.whole(), problem.memory_limit, problem.center
    if solver.validation_fraction is not None:
        raise ValueError(
            "validation_fraction needs random features; with the exact kernel "
            "(n_components=None) set tol."
        )
    n, k = rows.n_rows, rows.n_targets
    survey = rows.survey()
    sizes = _most_loss(survey, center)
    if solver.tol is None:
        solver = copy.copy(solver)
        solver.tol = _DUAL_TOL_OF_LABELS if problem.labels else _DUAL_TOL
        # Relative to the deviations of the targets, not to their means.
        sizes = np.where(survey.spread > 0, survey.spread, sizes)
    solver, iterating = _dual_solver(solver, rows, limit)
    unit, ops = survey.weight_unit, ops_of(rows.X)
    weight = ops.ones(n, rows.X) if rows.weight is None else rows.weight / unit
    operator = KernelOperator(
        kernel, rows.X, weight, center, problem.stream, limit - iterating
    )
    mean = ops.float64_like(survey.target_mean if center else np.zeros(k), rows.X)

    def weights_of(value: Any) -> tuple[Any, Any]:
        dual = operator.dual(value)
        if center:
            return dual, mean - operator.share @ operator.product(dual)
        return dual, mean

    if problem.checkpoint is not None:
        # The right-hand side does not depend on the kernel.
        probe = rows.X[:: max(1, n // _PROBE_ROWS)]
        gram = kernel._gram(probe, None)
        problem.checkpoint.identity["gram"] = ops.to_host(gram)
        problem.checkpoint.identity["rows"] = _fingerprint(rows.X)

    rhs = operator.root[:, None] * (rows.Y - mean)
    stopping = {"sizes": np.sqrt(sizes / unit)}
    return System(solver, operator, problem.alpha / unit, rhs, weights_of, stopping)


def _most_loss(survey: Survey, center: bool) -> np.ndarray:
    """Return the loss of weights of 0, (k,), of which enormous weights are no part."""
    usual = survey.spread if center else survey.loss_of_zero
    every = survey.moments.squares if center else survey.moments.all_squares
    return np.where(usual > 0, usual, every)


def _fingerprint(X: Rows) -> np.ndarray:
    """Return a sum of the rows, (1, d), with a weight of its own for each."""
    n = X.shape[0]
    ops = ops_of(X)
    total = ops.zeros(X.shape[1], X)
    for rows in row_blocks(n, 1024):
        weights = ops.float64_like(np.cos(np.arange(n)[rows]), X)
        total += weights @ ops.as_float64(X[rows])
    return ops.to_host(total)[None]


def _dual_solver(solver: PCG, rows: ArrayRows, limit: int) -> tuple[PCG, int]:
    """Return a solver with a rank that fits, and the memory that it takes."""
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
    check_rank_memory(
        lambda rank: n_bytes(rank)[0],
        rank,
        limit,
        f"conjugate gradients on the exact kernel of {n} rows",
        "PCG",
        "Use random features (for instance n_components=10_000)",
    )
    return solver, n_bytes(rank)[1]


def _held_out(
    rows: TrainingData, fraction: float, stream: Stream
) -> tuple[np.ndarray, ArrayRows]:
    """Return the numbers of validation rows, and these rows."""
    n = round(fraction * rows.n_rows)
    if not 0 < n < rows.n_rows:
        raise ValueError(
            f"validation_fraction={fraction} of {rows.n_rows} rows leaves no row to "
            "train on or none to validate on; it must lie between 0 and 1."
        )
    generator = stream.child("validation").generator()
    numbers = np.sort(generator.choice(rows.n_rows, n, replace=False))
    block = rows.take(numbers)
    if block.weight is not None and not (block.weight > 0).any():
        raise ValueError(
            f"validation_fraction={fraction} has held out no row of positive "
            "sample_weight; leave out rows without weight."
        )
    return numbers, block


def _validation(
    plan: Plan,
    error_of: ErrorOf,
    block: ArrayRows,
    intercept: Callable[[Any], Any],
) -> Callable[[Any], float]:
    """Return a function that gives the validation error of weights."""

    def error(weights: Any) -> float:
        predictions = predict_by_features(plan, weights, block.X)
        return error_of(block.Y, predictions + intercept(weights), block.weight)

    return error
