"""Kernel ridge regression with one penalty: direct solvers, and rows that are added."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing, forget
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import Array, Rows
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.models._feature_model import MAX_EXACT_ROWS
from randkern.models._ridge_model import RidgeModel
from randkern.models.callbacks import FitReport
from randkern.models.dual import fit_dual
from randkern.models.iterative_ridge import IterativeRidge, System
from randkern.models.left_out import ProbedRows, merge_copies
from randkern.models.memory import check_matrices, matrix_bytes
from randkern.models.normal_equations import NormalEquations, normal_equations_of
from randkern.solvers import ITERATIVE, PCG, IterativeSolver, Solution

# Bounded so that sums of penalties do not overflow.
_LARGEST_ALPHA = 1e300
# A solution, its weights (D, k) or (n, k), intercepts (k,), and the leave-one-out
# residuals of some rows, (m, k) or None.
Fitted = tuple[Solution, Any, Any]


class KernelRidge(RidgeModel):
    """Base class of the regressor and the classifier with one penalty."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RidgeModel._parameter_constraints,
        "alpha": [Interval(Real, 0, _LARGEST_ALPHA, closed="both")],
        "solver": [StrOptions({"auto", "cholesky", *ITERATIVE}), IterativeSolver],
        "warm_start": ["boolean"],
    }

    _needs_sums_alone = True
    alpha: Any
    solver: Any
    warm_start: bool
    _statistics: NormalEquations

    @abstractmethod
    def _error_of(self, Y: Array, predictions: Array, weight: Array) -> float:
        """Return the error of predictions, (n, k), for validation."""

    def _last_weights(self) -> Array:
        """Return the weights to continue from, (D, k) or (n, k), or None."""
        name = "dual_coef_" if self.n_components is None else "coef_"
        weights = getattr(self, name, None) if self.warm_start else None
        if weights is None:
            return None
        if weights.ndim == 1:
            return weights[:, None]
        return weights if self.n_components is None else weights.T

    def _stream(self) -> Stream:
        if self.warm_start and self.random_state is None and hasattr(self, "_key"):
            return Stream(self._key)
        return super()._stream()

    def _validate_params(self) -> None:
        if isinstance(self.solver, str) and self.solver == "sgd":
            raise ValueError(
                "there is no solver='sgd'; for stochastic gradients fit scikit-learn's "
                "SGDRegressor or SGDClassifier to RandomFeatures: "
                "SGDRegressor().partial_fit(features.transform(X), y) for each block "
                "of rows; or use solver='pcg', which reads rows repeatedly."
            )
        super()._validate_params()

    def _fit_rows(
        self,
        rows: TrainingData,
        limit: int,
        stream: Stream,
        report: FitReport,
        start: Array = None,
    ) -> None:
        """Fit weights to checked rows."""
        rows = self._shift_targets(rows)
        if self._iterates(rows, limit):
            self._fit_iteratively(rows, limit, stream, report, start)
        elif self._is_dual(rows):
            self._fit_gram(rows.as_arrays(), limit)
        else:
            self._fit_normal_equations(rows, limit)

    def _fit_normal_equations(self, rows: TrainingData, limit: int) -> None:
        """Factorise the normal equations."""
        check_matrices(self.plan_, rows, self._bytes(rows, False), limit)
        statistics = rows.reduce(normal_equations_of, self._plan)
        probed = self._probed(rows)
        residuals = self._store_solution_of(statistics, probed=probed)
        sample = probed.sample
        self._store_residuals(sample.numbers, sample.rows.Y, residuals, sample.weight)

    def _fit_gram(self, rows: ArrayRows, limit: int) -> None:
        """Solve the system of the exact kernel, or of more features than rows."""
        check_matrices(self.plan_, rows, self._bytes(rows, True), limit, dual=True)
        # Leaving out all copies of a row is exact if they are one row.
        merged = merge_copies(rows)
        different = rows if merged is None else merged.rows
        sample = self._sample_left_out(different)

        def fitted(alpha: float) -> Fitted:
            return fit_dual(
                different,
                self._gram,
                alpha,
                fit_intercept=self.fit_intercept,
                left_out=sample.numbers,
            )

        solution, intercept, residuals = self._at_each_penalty(rows.n_targets, fitted)
        numbers = sample.numbers
        if merged is not None:
            numbers = merged.first[numbers]
            solution = replace(solution, value=merged.expanded(solution.value))
        self._store_residuals(numbers, sample.rows.Y, residuals, sample.weight)
        self._store_dual(rows.X, solution, intercept)

    def _iterative_solver(self) -> IterativeSolver:
        """Return the solver for `solver`, with checked arguments."""
        solver = self.solver
        if isinstance(solver, str):
            solver = ITERATIVE.get(solver, PCG)()
        solver._validate_params()
        return solver

    def _fit_iteratively(
        self,
        rows: TrainingData,
        limit: int,
        stream: Stream,
        report: FitReport,
        start: Array,
    ) -> None:
        """Solve for weights without forming a matrix."""
        if self.plan_ is None:
            self.X_fit_ = rows.as_arrays().X
        systems: list[System] = []  # that of the last penalty
        report.begin(
            lambda value: self._fitted(*systems[-1].operator.weights_of(value))
        )

        def fitted(alpha: float) -> Fitted:
            ridge = IterativeRidge(
                self.kernel_,
                self.plan_,
                alpha,
                self.fit_intercept,
                self._labelled,
                self._error_of,
                limit,
                stream.child("solver"),
            )
            systems.clear()  # free its memory first
            system = ridge.system(rows, self._iterative_solver())
            systems.append(system)
            solution = system.solve(report, start)
            weights, intercept = system.operator.weights_of(solution.value)
            residuals = system.left_out_residuals(solution)
            return (
                replace(solution, value=weights, companions=None),
                intercept,
                residuals,
            )

        try:
            solution, intercept, residuals = self._at_each_penalty(
                rows.n_targets, fitted
            )
            sample = systems[-1].probed.sample
        finally:
            report.iterations_end()
        if residuals is not None:
            self._store_residuals(
                sample.numbers, sample.rows.Y, residuals, sample.weight
            )
        self._store(solution, solution.value, intercept)

    def _penalties(self, n_targets: int) -> np.ndarray:
        """Return the penalty of every target, (n_targets,)."""
        alphas = np.asarray(self.alpha, dtype=float)
        valid = ((alphas >= 0) & (alphas <= _LARGEST_ALPHA)).all()
        if not valid or alphas.shape not in {(), (1,), (n_targets,)}:
            raise ValueError(
                f"alpha must be a number from 0 to {_LARGEST_ALPHA:g}, or one for each "
                f"of the {n_targets} targets, got {self.alpha!r}."
            )
        return np.broadcast_to(alphas, n_targets)

    def _at_each_penalty(
        self, n_targets: int, fitted: Callable[[float], Fitted]
    ) -> Fitted:
        """Return the fits of targets that have penalties of their own, side by side.

        Each fit is one to all targets.
        """
        alphas = self._penalties(n_targets)
        parts = []
        columns = []
        for alpha in np.unique(alphas):
            solution, intercept, residuals = fitted(float(alpha))
            its = np.flatnonzero(alphas == alpha)
            columns.append(its)
            if len(its) == n_targets:
                return solution, intercept, residuals
            solution = replace(solution, value=solution.value[:, its])
            left_out = None if residuals is None else residuals[:, its]
            parts.append((solution, intercept[its], left_out))
        order = np.argsort(np.concatenate(columns))
        solutions, intercepts, all_residuals = zip(*parts, strict=True)
        worst = max(solutions, key=lambda solution: solution.residual)
        ops = ops_of(worst.value)

        def joined(arrays: Any) -> Any:
            return None if arrays[0] is None else ops.hstack(arrays)[..., order]

        values = joined([solution.value for solution in solutions])
        solution = replace(worst, value=values)
        return solution, joined(intercepts), joined(all_residuals)

    def _iterates(self, rows: TrainingData, limit: int) -> bool:
        """Return whether to solve by conjugate gradients.

        "auto" does so if the direct system does not fit the memory limit, or takes
        twice the work: min(n, D) operations per entry of the features, against
        4k + 60 (the cost of computing one) in each of 30 iterations, or of 15 for
        labels, whose signs are right before their values are.
        """
        if self.solver != "auto":
            return self.solver != "cholesky"
        n = rows.n_rows
        k = rows.n_targets
        if self._bytes(rows, self._is_dual(rows)) > limit:
            return True
        if self.plan_ is None:
            return n > MAX_EXACT_ROWS
        iterations = 15 if self._labelled else 30
        return min(n, self.plan_.n_components) >= 2 * iterations * (4 * k + 60)

    def _bytes(self, rows: TrainingData, dual: bool) -> int:
        """Return the memory for solving by a factorisation."""
        several = np.ndim(self.alpha) > 0 and len(np.unique(self.alpha)) > 1
        # Each penalty factorises a copy of the normal equations.
        squares = 2 if several and not dual else 1
        return matrix_bytes(self.plan_, rows, squares, dual=dual)

    def _store_solution_of(
        self, statistics: NormalEquations, probed: ProbedRows | None = None
    ) -> Any:
        """Solve normal equations, store the weights, and return residuals left out.

        With rows to leave out, the equations are overwritten by the last factor.
        """
        if any(self._shift) and not self.fit_intercept:
            statistics = statistics.moved(self._shift)  # fit_intercept has changed
        n_targets = statistics.cross.shape[1]
        last = float(self._penalties(n_targets).max())

        def fitted(alpha: float) -> Fitted:
            overwrite = probed is not None and alpha == last
            solved = statistics.solve(
                alpha, fit_intercept=self.fit_intercept, overwrite=overwrite
            )
            residuals = None
            if probed is not None:
                residuals = solved.left_out_residuals(self._plan, probed)
            return solved.solution, solved.intercept, residuals

        solution, intercept, residuals = self._at_each_penalty(n_targets, fitted)
        self._store(solution, solution.value, intercept)
        return residuals

    def _forget(self) -> None:
        super()._forget()
        forget(self, "_statistics")

    # -- rows that are added -----------------------------------------------------

    def _partial_fit_targets(
        self, X: Rows, Y: np.ndarray, sample_weight: np.ndarray | None, solve: bool
    ) -> None:
        """Add rows to the normal equations; with `solve`, solve them."""
        rows = ArrayRows(X, Y, sample_weight)
        undo = self._statistics.saved() if hasattr(self, "_statistics") else None
        if undo is None:
            self._forget()
            limit = self._memory_for(rows)
            self._draw(X, sample_weight, root_stream(self.random_state))
            within = limit // 2 if solve else limit
            check_matrices(self.plan_, rows, self._bytes(rows, False), within)
            self._statistics = NormalEquations.empty(
                self._plan.n_components, Y.shape[1], like=X
            )
            rows = self._shift_targets(rows)
        elif any(self._shift):
            rows = rows.rescaled(self._shift, 1.0)
        try:
            self._statistics.add(self._plan, X, rows.Y, sample_weight)
            if solve:
                self.solve()
        except BaseException:
            if undo is not None:
                undo()
            raise

    @property
    def _has_begun(self) -> bool:
        """Whether partial_fit has been called since the last fit."""
        return hasattr(self, "_statistics")

    @all_or_nothing
    def solve(self) -> Any:
        """Solve the normal equations that `partial_fit` has accumulated.

        `partial_fit` does so itself unless it is called with ``solve=False``,
        which saves a factorisation of order D³ per batch.

        Returns
        -------
        self
        """
        if not self._has_begun:
            raise ValueError("there is nothing to solve; call partial_fit first.")
        self._store_solution_of(self._statistics)
        return self

    def _values(self, X: Any) -> Any:
        check_is_fitted(self)
        solved = ("coef_", "dual_coef_")
        if not any(hasattr(self, name) for name in solved):
            raise ValueError(
                "partial_fit was called with solve=False; call solve() before "
                "predicting."
            )
        return super()._values(X)

    def __sklearn_is_fitted__(self) -> bool:
        return super().__sklearn_is_fitted__() or hasattr(self, "_statistics")
