"""Kernel ridge regression: a fit, its direct and iterative systems, and added rows.

data = self._read(X, y, sample_weight, stream)      rows, targets, kernel, features
fitted = self._solve(data, report, start)           weights, residuals of left-out rows
self._store(fitted, data.shift, data.kept_rows)     the fitted attributes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing, forget, remember
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import Array, Rows
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data.columns import split_target
from randkern.data.training_data import ArrayRows, FitData, TrainingData
from randkern.models._feature_model import MAX_EXACT_ROWS, FeatureModel, feature_sums
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components
from randkern.models.dual import fit_dual
from randkern.models.iterative_ridge import system_of
from randkern.models.left_out import (
    ProbedRows,
    SampledRows,
    merge_copies,
    sample_left_out,
)
from randkern.models.memory import check_matrices, matrix_bytes, memory_for
from randkern.models.normal_equations import NormalEquations, normal_equations_of
from randkern.plan import Plan, evaluate
from randkern.solvers import ITERATIVE, PCG, IterativeSolver, Solution

# Bounded so that sums of penalties do not overflow.
_LARGEST_ALPHA = 1e300


@dataclass(frozen=True)
class Fitted:
    """A solution, intercepts (k,), and residuals of rows in fits without them.

    `weights` are those of features if the solution is of a system of rows. `residuals`
    (m, k) are those of the rows of `sample`, or None.
    """

    solution: Solution
    intercept: Array
    residuals: Any = None
    sample: SampledRows | None = None
    weights: Any = None


def at_each_penalty(alphas: np.ndarray, solve: Callable[[float], Fitted]) -> Fitted:
    """Return the fits of targets that have penalties of their own, side by side.

    Each fit is one to all targets.
    """
    values = np.unique(alphas)
    if len(values) == 1:
        return solve(float(values[0]))
    parts = []
    columns = []
    for alpha in values:
        fitted = solve(float(alpha))
        its = np.flatnonzero(alphas == alpha)
        columns.append(its)
        value = fitted.solution.value[:, its]
        residuals = None if fitted.residuals is None else fitted.residuals[:, its]
        solution = replace(fitted.solution, value=value)
        part = replace(fitted, solution=solution, residuals=residuals)
        parts.append(replace(part, intercept=fitted.intercept[its]))
    order = np.argsort(np.concatenate(columns))
    worst = max((part.solution for part in parts), key=lambda part: part.residual)
    hstack = ops_of(worst.value).hstack

    def joined(arrays: list[Any]) -> Any:
        return None if arrays[0] is None else hstack(arrays)[..., order]

    value = joined([part.solution.value for part in parts])
    return Fitted(
        replace(worst, value=value),
        joined([part.intercept for part in parts]),
        joined([part.residuals for part in parts]),
        parts[0].sample,
    )


def is_dual(plan: Plan | None, rows: TrainingData) -> bool:
    """Return whether the direct system has an equation per row."""
    return plan is None or (rows.in_memory and plan.n_components > rows.n_rows)


def fit_equations(
    equations: NormalEquations,
    plan: Plan,
    alphas: np.ndarray,
    fit_intercept: bool,
    probed: ProbedRows | None = None,
) -> Fitted:
    """Solve normal equations at the penalties of targets.

    With rows to leave out, the equations are overwritten by the last factor.
    """
    last = float(alphas.max())

    def solve(alpha: float) -> Fitted:
        solved = equations.solve(
            alpha,
            fit_intercept=fit_intercept,
            overwrite=probed is not None and alpha == last,
        )
        if probed is None:
            return Fitted(solved.solution, solved.intercept)
        residuals = solved.left_out_residuals(plan, probed)
        return Fitted(solved.solution, solved.intercept, residuals, probed.sample)

    return at_each_penalty(alphas, solve)


def fit_gram(data: FitData, alphas: np.ndarray, fit_intercept: bool) -> Fitted:
    """Solve the system of the exact kernel, or of more features than rows."""
    rows = data.rows.as_arrays()
    # Leaving out all copies of a row is exact if they are one row.
    merged = merge_copies(rows)
    different = rows if merged is None else merged.rows
    generator = data.stream.child("left out").generator()
    sample = sample_left_out(different, data.targets.labelled, generator)

    def solve(alpha: float) -> Fitted:
        return Fitted(
            *fit_dual(
                different,
                data.kernel,
                data.plan,
                alpha,
                fit_intercept=fit_intercept,
                left_out=sample.numbers,
            )
        )

    fitted = at_each_penalty(alphas, solve)
    if merged is not None:
        sample = replace(sample, numbers=merged.first[sample.numbers])
        value = merged.expanded(fitted.solution.value)
        fitted = replace(fitted, solution=replace(fitted.solution, value=value))
    weights = None
    if data.plan is not None:
        # Without the triangle, landmarks need float64.
        raw, X = data.plan.raw, rows.X
        X = X if raw is data.plan else ops_of(X).as_float64(X)
        weights = feature_sums(
            data.plan,
            lambda columns: evaluate(raw, X, columns),
            fitted.solution.value,
        )
    return replace(fitted, sample=sample, weights=weights)


class RidgeModel(FeatureModel, ABC):
    """Kernel ridge regression on targets, or on labels coded as ±1."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "fit_intercept": ["boolean"],
    }

    fit_intercept: bool
    solution_: Solution

    @abstractmethod
    def _store_residuals(self, sample: SampledRows, residuals: Array) -> None:
        """Store results of the residuals (m, k) of rows in fits without them."""

    def _near_zero(self, data: FitData) -> FitData:
        """Return the data with targets shifted near 0, if an intercept is fitted."""
        rows = data.rows
        if data.targets.labelled:
            return replace(data, shift=(0.0,) * rows.n_targets)
        statistics = rows.survey()
        shift = statistics.target_shift
        if not self.fit_intercept:
            mean = max(shift[statistics.spread > 0], key=abs, default=0.0)
            if mean:
                warn(
                    f"the mean of y, {mean:.3g}, is many times its standard deviation, "
                    "and the penalty shrinks predictions towards 0; use "
                    "fit_intercept=True, or subtract the mean.",
                    UserWarning,
                )
            shift = np.zeros(rows.n_targets)
        if shift.any():
            rows = rows.rescaled(shift, 1.0)
        # Plain numbers have no device.
        return replace(data, rows=rows, shift=tuple(shift.tolist()))

    def _store(self, fitted: Fitted, shift: tuple[float, ...], X: Rows = None) -> None:
        """Set the fitted attributes; X are the rows of a fit of the exact kernel."""
        self.solution_ = fitted.solution
        weights = fitted.solution.value if fitted.weights is None else fitted.weights
        remember(self, self._attributes(weights, fitted.intercept, shift, X))
        if fitted.sample is not None and fitted.residuals is not None:
            self._store_residuals(fitted.sample, fitted.residuals)

    def _attributes(
        self, weights: Any, intercept: Any, shift: tuple[float, ...], X: Rows
    ) -> dict[str, Any]:
        """Return the fitted attributes for weights of features, or of rows.

        Intercepts, (k,), are those of shifted targets.
        """
        if self.fit_intercept:  # may have been changed after a batch
            intercept = intercept + ops_of(intercept).float64_like(shift, intercept)
        constant = intercept if self._many_targets else float(intercept[0])
        if self.plan_ is not None:
            return {"coef_": self._as_coef(weights), "intercept_": constant}
        dual = self._drop_single_target(weights)
        return {"dual_coef_": dual, "intercept_": constant, "X_fit_": X}

    def _forget(self) -> None:
        """Delete the attributes of an earlier fit, except for those of `_drawn`."""
        forget(
            self,
            "solution_",
            "temperature_",
            "calibration_offset_",
            "_left_out_rows",
            "_left_out_sizes",
            "_left_out_weight",
            "_statistics",
        )

    # -- files ----------------------------------------------------------------

    # The weights are stored once.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "coef_" in state and "solution_" in state:
            state["solution_"] = replace(state["solution_"], value=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "coef_" in state and "solution_" in state:
            coef = state["coef_"]
            value = coef.T if coef.ndim == 2 else coef[:, None]
            self.solution_ = replace(state["solution_"], value=value)


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
    # The sums of `partial_fit`, and what was subtracted from its targets.
    _statistics: NormalEquations
    _shift: tuple[float, ...]
    # That of the stream of the last fit.
    _key: int

    def _validate_params(self) -> None:
        if isinstance(self.solver, str) and self.solver == "sgd":
            raise ValueError(
                "there is no solver='sgd'; for stochastic gradients fit scikit-learn's "
                "SGDRegressor or SGDClassifier to RandomFeatures: "
                "SGDRegressor().partial_fit(features.transform(X), y) for each block "
                "of rows; or use solver='pcg', which reads rows repeatedly."
            )
        super()._validate_params()

    @all_or_nothing
    @finds_components
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
    ) -> Self:
        """Fit to rows and their targets or labels.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their targets and weights, and rows on the host to be processed on a
            device as :class:`~randkern.DeviceBlocks`.
        y : array of shape (n,) or (n, n_targets)
            Targets, or labels (n,) of a classifier; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of the rows' squared errors: 1 each by default. Intervals and
            probabilities depend on their ratios alone.
        target : str, optional
            The column of a dataframe `X`, of Dask or in memory, that holds `y`.
        """
        self._validate_params()
        X, y = split_target(X, y, target)
        report = FitReport(self, X, y, sample_weight)
        start = self._last_weights() if self.warm_start else None
        stream = root_stream(self.random_state)
        if self.warm_start and self.random_state is None and hasattr(self, "_key"):
            stream = Stream(self._key)
        self._forget()
        self._key = stream.key
        data = self._near_zero(self._read(X, y, sample_weight, stream))
        fitted = self._solve(data, report, start)
        self._store(fitted, data.shift, data.kept_rows)
        report.end()
        return self

    def _last_weights(self) -> Array:
        """Return the weights to continue from, (D, k) or (n, k), or None."""
        exact = self.n_components is None
        weights = getattr(self, "dual_coef_" if exact else "coef_", None)
        if weights is None:
            return None
        if weights.ndim == 1:
            return weights[:, None]
        return weights if exact else weights.T

    def _solve(self, data: FitData, report: FitReport, start: Array) -> Fitted:
        """Return the fit by one of three systems."""
        rows, plan = data.rows, data.plan
        alphas = self._penalties(rows.n_targets)
        dual = is_dual(plan, rows)
        needed = self._bytes(plan, rows, dual)
        if self._iterates(data, dual, needed):
            return self._solve_iteratively(data, alphas, report, start)
        check_matrices(plan, rows, needed, data.limit, dual=dual)
        if dual:
            return fit_gram(data, alphas, self.fit_intercept)
        equations = rows.reduce(normal_equations_of, plan)
        generator = data.stream.child("left out").generator()
        probed = ProbedRows.of(rows, data.targets.labelled, generator, factorised=True)
        return fit_equations(equations, plan, alphas, self.fit_intercept, probed)

    def _solve_iteratively(
        self, data: FitData, alphas: np.ndarray, report: FitReport, start: Array
    ) -> Fitted:
        """Solve for weights without forming a matrix."""
        solver = self.solver
        if isinstance(solver, str):
            solver = ITERATIVE.get(solver, PCG)()
        solver._validate_params()
        X = data.kept_rows
        systems: list[Any] = []  # that of the last penalty

        def attributes_of(value: Any) -> dict[str, Any]:
            weights, intercept = systems[-1].operator.weights_of(value)
            return self._attributes(weights, intercept, data.shift, X)

        report.begin(attributes_of)

        def solve(alpha: float) -> Fitted:
            systems.clear()  # free its memory first
            system = system_of(data, solver, alpha, self.fit_intercept)
            systems.append(system)
            solution = system.solve(report, start)
            weights, intercept = system.operator.weights_of(solution.value)
            residuals = system.left_out_residuals(solution)
            solution = replace(solution, value=weights, companions=None)
            return Fitted(solution, intercept, residuals, system.probed.sample)

        return at_each_penalty(alphas, solve)

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

    def _iterates(self, data: FitData, dual: bool, needed: int) -> bool:
        """Return whether to solve by conjugate gradients.

        "auto" does so if the direct system does not fit the memory limit, or takes
        twice the work: min(n, D) operations per entry of the features, against
        4k + 60 (the cost of computing one) in each of 30 iterations, or of 15 for
        labels, whose signs are right before their values are. For landmarks it takes
        six times as many, as their factor is solved with for every row, in double
        precision.
        """
        if self.solver != "auto":
            return self.solver != "cholesky"
        if needed > data.limit:
            return True
        n, k = data.rows.n_rows, data.rows.n_targets
        if data.plan is None:
            return n > MAX_EXACT_ROWS
        iterations = 15 if data.targets.labelled else 30
        work = min(n, data.plan.n_components)
        if data.plan.triangle is not None and not dual:
            work *= 6
        return work >= 2 * iterations * (4 * k + 60)

    def _bytes(self, plan: Plan | None, rows: TrainingData, dual: bool) -> int:
        """Return the memory for solving by a factorisation."""
        several = np.ndim(self.alpha) > 0 and len(np.unique(self.alpha)) > 1
        # Each penalty factorises a copy of the normal equations.
        squares = 2 if several and not dual else 1
        return matrix_bytes(plan, rows, squares, dual=dual)

    def _solve_added(self) -> None:
        """Solve the normal equations of added rows, and store the weights."""
        equations = self._statistics
        if any(self._shift) and not self.fit_intercept:
            equations = equations.moved(self._shift)  # fit_intercept has changed
        alphas = self._penalties(equations.cross.shape[1])
        fitted = fit_equations(equations, self._plan, alphas, self.fit_intercept)
        self._store(fitted, self._shift)

    # -- rows that are added -----------------------------------------------------

    def _add_rows(
        self,
        X: Rows,
        targets: Any,
        Y: np.ndarray,
        sample_weight: np.ndarray | None,
        solve: bool,
    ) -> None:
        """Add rows to the normal equations; with `solve`, solve them."""
        rows: Any = ArrayRows(X, Y, sample_weight)
        undo = self._statistics.saved() if hasattr(self, "_statistics") else None
        if undo is None:
            self._forget()
            data = FitData(
                rows,
                targets,
                (X, sample_weight),
                limit=memory_for(self.memory_limit, X),
                stream=root_stream(self.random_state),
            )
            data = self._drawn(data, self._kernel_or_default)
            within = data.limit // 2 if solve else data.limit
            needed = self._bytes(data.plan, rows, False)
            check_matrices(data.plan, rows, needed, within)
            self._statistics = NormalEquations.empty(
                self._plan.n_components, Y.shape[1], like=X
            )
            data = self._near_zero(data)
            rows, self._shift = data.rows, data.shift
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
        self._solve_added()
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
