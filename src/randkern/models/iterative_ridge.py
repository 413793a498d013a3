"""Ridge regression by iterative solvers: their systems and mini-batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from randkern._memory import check_rank_memory
from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.target_statistics import TargetStatistics
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.models._feature_model import predict_by_features
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import FeatureMatrix, add_combinations, products
from randkern.models.linear_operators import FeatureOperator, KernelOperator
from randkern.models.memory import kernel_operator_bytes, operator_memory
from randkern.plan import Plan
from randkern.solvers import PCG, SGD, Checkpoint, Loss, Solution

# Memory of the features of sampled rows for estimating the step size.
_SAMPLED_BYTES = 64 * 10**6


class FeatureBatches(FeatureOperator):
    """The matrix of features, with its rows in batches.

    Spare memory is for sampled features, then for the pool of streamed rows that
    batches are drawn from.
    """

    spare_bytes = 3 * _SAMPLED_BYTES

    @property
    def n_targets(self) -> int:
        return self.features.n_targets

    def sampled_features(self) -> Any:
        """Return features of some rows, each times the square root of its weight."""
        features = self.features
        n_bytes = self.size * features.dtype.itemsize
        # Applying the preconditioner takes three copies of them.
        most = min(_SAMPLED_BYTES, self.spare_bytes // 3) // n_bytes
        n = min(features.n_rows, max(1, features.block_rows // 2, most))
        generator = self.stream.child("step").generator()
        numbers = np.sort(generator.choice(features.n_rows, n, replace=False))
        return self.scaled_features(*self.sampled(numbers), slice(0, self.size))

    def batches(self, n_rows: int, epoch: int) -> Iterator[ArrayRows]:
        """Yield all rows in batches."""
        features = self.features
        generator = self.stream.child("epoch", epoch).generator()
        most = min(features.block_rows, n_rows, features.n_rows)
        self._buffer = features.empty(most)
        yield from features.rows.batches(n_rows, generator, self.spare_bytes)

    def gradient(self, batch: ArrayRows, W: Any) -> tuple[Any, Any, float]:
        """Return Σ w_i z_i (z_i·W − y_i), Σ w_i (z_i·W − y_i)², and Σ w_i of a batch.

        Of shapes (D, k) and (k,).
        """
        ops, (D, k) = ops_of(W), W.shape
        weights, total = self.features.padded(W.T), 0.0
        means = ops.float64_like(self.means, W)
        gradient, loss = ops.zeros(weights.shape, W), ops.zeros(k, W)
        for block in self.features.computed(batch, buffer=self._buffer):
            if self.center:
                center = self.feature_sum / self.weight_sum
                block.values[:, :D] -= ops.asarray(center, block.values)
            weight = block.weight
            if weight is None:
                weight = ops.ones(len(block.Y), W)
            residual = products(block.values, weights) - (block.Y - means)
            loss += weight @ residual**2
            add_combinations(block.values, residual * weight[:, None], gradient)
            total += float(weight.sum())
        return ops.contiguous(gradient[:, :D].T), loss, total


# Predictions at the training rows differ from those of the solution by at most this
# share of the targets' standard deviation.
_DUAL_TOL = 1e-2
# Labels coded as ±1 have the right sign before that.
_DUAL_TOL_OF_LABELS = 5e-2
# For the same reason the loss may be larger, with less caution: see
# randkern.solvers.pcg.Loss.
_FOR_LABELS = {"least": 1.0, "caution": 1 / 16}
# Many eigenpairs in the preconditioner, as each iteration recomputes tiles of the
# kernel.
_DUAL_RANK = 2000
# Number of rows on which a kernel is compared with that of a checkpoint.
_PROBE_ROWS = 64


@dataclass(frozen=True)
class Problem:
    """Ridge regression on features of some rows."""

    rows: TrainingData
    alpha: float
    # Whether there is an unpenalised intercept.
    center: bool
    memory_limit: int
    stream: Stream
    # The error of predictions, given targets, these, both (n, k), and weights or None.
    error_of: Callable[[Any, Any, Any], float]
    # Whether targets are ±1, whose signs are right long before their values.
    labels: bool
    report: FitReport
    # Of the model, for weights and intercepts.
    attributes_of: Callable[[Any, Any], dict[str, Any]]
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class System:
    """A linear system for a solver, and the weights that its solutions give."""

    solver: Any
    operator: Any
    shift: float
    rhs: Any
    # Returns the model's weights and intercepts for a solution.
    weights_of: Callable[[Any], tuple[Any, Any]]
    # Further arguments of the solver, for its stopping criterion.
    stopping: dict[str, Any] = field(default_factory=dict)


def solve_iteratively(
    problem: Problem, system_of: Callable[..., System], *args: Any
) -> tuple[Solution, Any]:
    """Solve ``system_of(problem, *args)``; return the weights and the intercepts.

    Targets are rescaled if their squares leave the range of floats.
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
    block: Any = None
    if solver.validation_fraction is not None:
        if not rows.in_one_place:
            raise ValueError(
                "validation_fraction needs rows in one place, not on a cluster or on "
                "several devices."
            )
        held_out, block = _held_out(rows, solver.validation_fraction, problem.stream)
        rows = rows.without(held_out)
    statistics = rows.survey()
    features = FeatureMatrix(
        rows,
        plan.raw,
        limit - fixed,
        compress=solver.is_coarse,
        weight_unit=statistics.weight_unit,
        block_rows=at_once,
    )
    operator = FeatureOperator(
        features, statistics, problem.center, problem.stream, plan
    )
    rhs, unit = operator.right_hand_side(), operator.weight_unit
    stopping: dict[str, Any] = {
        "loss": Loss(
            operator.loss_without_features,
            spread=statistics.spread / unit,
            most=_most_loss(statistics, problem.center) / unit,
            **(_FOR_LABELS if problem.labels else {}),
        )
    }
    if block is not None:

        def error(weights: Any) -> float:
            """Return the validation error of weights."""
            predictions = predict_by_features(plan, weights, block.X)
            predictions = predictions + operator.intercept(weights)
            return problem.error_of(block.Y, predictions, block.weight)

        stopping["validate"] = error
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
    statistics = rows.survey()
    features = FeatureMatrix(
        rows, plan, weight_unit=statistics.weight_unit, block_rows=at_once
    )
    operator = FeatureBatches(features, statistics, problem.center, problem.stream)
    operator.spare_bytes = limit - needed
    if problem.center:
        operator.right_hand_side()  # a pass for the means of the features
    shift = problem.alpha / operator.weight_unit
    return System(solver, operator, shift, operator, operator.weights_of)


class StreamingFit:
    """Stochastic gradients over successive batches of rows.

    The first batch determines the preconditioner and the step length.
    """

    def __init__(
        self, plan: Plan, rows: ArrayRows, alpha: float, stream: Stream, solver: SGD
    ):
        self._plan, self._stream, self._solver = plan, stream, solver
        batches = self._batches(rows, rows.survey())
        self._unit = batches.weight_unit
        self._state = solver.init(batches, alpha / self._unit)
        self._state.weight_sum = 0.0

    def _batches(self, rows: ArrayRows, statistics: TargetStatistics) -> FeatureBatches:
        features = FeatureMatrix(rows, self._plan, weight_unit=statistics.weight_unit)
        return FeatureBatches(features, statistics, False, self._stream)

    def continued(self, rows: ArrayRows) -> tuple[StreamingFit, Solution]:
        """Return the fit after steps on new rows."""
        statistics = rows.survey()
        # Weights have the unit of the first batch.
        statistics = replace(statistics, largest_weight=self._unit)
        fit = copy.copy(self)
        total = self._state.weight_sum + statistics.weight_sum / self._unit
        fit._state = replace(self._state, weight_sum=total)
        return fit, self._solver.advance(fit._state, self._batches(rows, statistics))


def exact_system(problem: Problem, kernel: Kernel, solver: PCG) -> System:
    """Return the dual system of the exact kernel.

    The residual r of the dual system bounds the difference of predictions at the
    training rows from those of the solution, K(K + αI)⁻¹r.
    """
    rows, limit, center = problem.rows.whole(), problem.memory_limit, problem.center
    if solver.validation_fraction is not None:
        raise ValueError(
            "validation_fraction needs random features; with the exact kernel "
            "(n_components=None) set tol."
        )
    n, k = rows.n_rows, rows.n_targets
    statistics = rows.survey()
    sizes = _most_loss(statistics, center)
    if solver.tol is None:
        solver = copy.copy(solver)
        solver.tol = _DUAL_TOL_OF_LABELS if problem.labels else _DUAL_TOL
        # Relative to the deviations of the targets, not to their means.
        sizes = np.where(statistics.spread > 0, statistics.spread, sizes)
    solver, iterating = _dual_solver(solver, rows, limit)
    unit, ops = statistics.weight_unit, ops_of(rows.X)
    weight = ops.ones(n, rows.X) if rows.weight is None else rows.weight / unit
    operator = KernelOperator(
        kernel, rows.X, weight, center, problem.stream, limit - iterating
    )
    mean = ops.float64_like(statistics.target_mean if center else np.zeros(k), rows.X)

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


def _most_loss(statistics: TargetStatistics, center: bool) -> np.ndarray:
    """Return the loss of W = 0, (k,), without rows of enormous weight."""
    usual = statistics.spread if center else statistics.loss_of_zero
    every = statistics.moments.squares if center else statistics.moments.all_squares
    return np.where(usual > 0, usual, every)


def _fingerprint(X: Rows) -> np.ndarray:
    """Return a sum of the rows, (1, d), each with a different factor."""
    n = X.shape[0]
    ops = ops_of(X)
    total = ops.zeros(X.shape[1], X)
    for rows in row_blocks(n, 1024):
        weights = ops.float64_like(np.cos(np.arange(n)[rows]), X)
        total += weights @ ops.as_float64(X[rows])
    return ops.to_host(total)[None]


def _dual_solver(solver: PCG, rows: ArrayRows, limit: int) -> tuple[PCG, int]:
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
    """Return the numbers of validation rows, and the rows."""
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
