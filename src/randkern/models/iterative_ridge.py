"""Ridge regression by iterations: what is needed around the solver."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from randkern.models._kernel_operator import KernelOperator
from randkern.models._predictions import predict_by_features
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.linear_operators import FeatureOperator
from randkern.models.memory import kernel_operator_bytes, operator_memory
from randkern.models.minibatches import FeatureBatches
from randkern.plan import Plan
from randkern.solvers import PCG, SGD, Checkpoint, Loss, Progress, Solution

__all__ = [
    "Problem",
    "StreamingFit",
    "solve_exact",
    "solve_in_range",
    "solve_pcg",
    "solve_sgd",
]

# Predictions at the training rows differ by at most this share of the targets'
# standard deviation from the solution's.
_DUAL_TOL = 1e-2
# Labels coded as ±1 are told apart before that.
_DUAL_TOL_OF_LABELS = 5e-2
# So may the loss be, with less caution: see randkern.solvers.Loss.
_FOR_LABELS = {"least": 1.0, "caution": 1 / 16}
# Eigenpairs of the preconditioner: an iteration makes tiles of the kernel again.
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
        Whether targets are ±1, which are told apart long before they are met.
    report : callable
        Called after every iteration with its progress and a function that returns the
        intercepts; returning True stops.
    checkpoint : Checkpoint or None
    """

    rows: TrainingData
    alpha: float
    center: bool
    memory_limit: int
    stream: Stream
    error_of: ErrorOf
    labels: bool
    report: Callable[[Progress, Callable[[], Any]], bool]
    checkpoint: Checkpoint | None = None


def solve_in_range(
    solve: Callable[..., tuple[Solution, Any]], problem: Problem, *args: Any
) -> tuple[Solution, Any]:
    """Call ``solve(problem, *args)`` with targets whose squares are in range."""
    scale = problem.rows.survey().target_scale
    if np.all(scale == 1.0):
        return solve(problem, *args)

    def scaled(values: Any) -> Any:
        return values * ops_of(values).float64_like(scale, values)

    def report(at: Progress, intercept: Callable[[], Any]) -> bool:
        at = replace(at, value=scaled(at.value))
        return problem.report(at, lambda: scaled(intercept()))

    rows = problem.rows.rescaled(np.zeros_like(scale), scale)
    solution, intercept = solve(replace(problem, rows=rows, report=report), *args)
    return replace(solution, value=scaled(solution.value)), scaled(intercept)


def solve_pcg(problem: Problem, plan: Plan, solver: PCG) -> tuple[Solution, Any]:
    """Return the weights, (D, k), and the intercepts by conjugate gradients."""
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
        plan,
        rows,
        limit - fixed,
        compress=solver.is_coarse,
        weight_unit=survey.weight_unit,
        block_rows=at_once,
    )
    operator = FeatureOperator(features, survey, problem.center, problem.stream)
    rhs = operator.right_hand_side()
    validate = None
    if validation is not None:
        validate = _validation(plan, problem.error_of, block, operator.intercept)
    state = solver.init(operator, problem.alpha / operator.weight_unit)
    solution = solver.solve(
        state,
        rhs,
        loss=Loss(
            operator.loss_without_features,
            spread=survey.spread / operator.weight_unit,
            most=_most_loss(survey, problem.center) / operator.weight_unit,
            **(_FOR_LABELS if problem.labels else {}),
        ),
        validate=validate,
        report=lambda at: problem.report(at, lambda: operator.intercept(at.value)),
        checkpoint=problem.checkpoint,
    )
    return solution, operator.intercept(solution.value)


def solve_sgd(problem: Problem, plan: Plan, solver: SGD) -> tuple[Solution, Any]:
    """Return the weights, (D, k), and the intercepts by stochastic gradients."""
    rows, limit = problem.rows, problem.memory_limit
    if not rows.in_one_place:
        raise ValueError(
            "solver='sgd' takes one step after another: use 'pcg' on Dask and on "
            "several devices."
        )
    needed, at_once = operator_memory(plan, rows, solver, limit)
    survey = rows.survey()
    features = FeatureMatrix(
        plan, rows, weight_unit=survey.weight_unit, block_rows=at_once
    )
    operator = FeatureOperator(features, survey, problem.center, problem.stream)
    if problem.center:
        operator.right_hand_side()  # a pass for the means of the features
    batches = FeatureBatches(operator, limit - needed)
    state = solver.init(batches, problem.alpha / operator.weight_unit, rows.n_targets)
    solution = solver.solve(
        state,
        batches,
        report=lambda at: problem.report(at, lambda: operator.intercept(at.value)),
        checkpoint=problem.checkpoint,
    )
    return solution, operator.intercept(solution.value)


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
        self._state = solver.init(batches, alpha / self._unit, rows.n_targets)
        self._state.weight_sum = 0.0

    def _batches(self, rows: ArrayRows, survey: Survey) -> FeatureBatches:
        features = FeatureMatrix(self._plan, rows, weight_unit=survey.weight_unit)
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


def solve_exact(problem: Problem, kernel: Kernel, solver: PCG) -> tuple[Solution, Any]:
    """Return the dual weights, (n, k), and the intercepts, for the exact kernel.

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

    def dual_of(value: Any) -> Any:
        dual = value * operator.root[:, None]
        return dual - operator.share[:, None] * dual.sum(axis=0) if center else dual

    def intercept_of(dual: Any) -> Any:
        return mean - operator.share @ operator.product(dual) if center else mean

    def report(at: Progress) -> bool:
        at = replace(at, value=dual_of(at.value))
        return problem.report(at, lambda: intercept_of(at.value))

    if problem.checkpoint is not None:
        # The right-hand side tells nothing of the kernel.
        probe = rows.X[:: max(1, n // _PROBE_ROWS)]
        gram = kernel._gram(probe, None)
        problem.checkpoint.identity["gram"] = ops.to_host(gram)
        problem.checkpoint.identity["rows"] = _fingerprint(rows.X)

    solution = solver.solve(
        solver.init(operator, problem.alpha / unit),
        operator.root[:, None] * (rows.Y - mean),
        sizes=np.sqrt(sizes / unit),
        report=report,
        checkpoint=problem.checkpoint,
    )
    dual = dual_of(solution.value)
    return replace(solution, value=dual), intercept_of(dual)


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
