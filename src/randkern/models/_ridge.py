"""The base class of kernel ridge regression and classification: fitting weights."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing, forget, remember
from randkern._memory import check_memory, resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import Rows, check_count
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.models._feature_model import (
    MAX_EXACT_ROWS,
    FeatureModel,
    check_same_device,
)
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.cells import Cells, fit_cells
from randkern.models.dual import exact_gram, feature_gram, solve_dual
from randkern.models.iterative_ridge import IterativeRidge, StreamingFit
from randkern.models.left_out import LeftOut, merge_copies, sample_left_out
from randkern.models.memory import (
    dual_bytes,
    feature_gram_bytes,
    normal_equations_bytes,
)
from randkern.models.normal_equations import (
    ROWS_AT_ONCE,
    NormalEquations,
    normal_equations_of,
)
from randkern.plan import evaluate
from randkern.solvers import ITERATIVE, SGD, Checkpoint, IterativeSolver, Solution

_FEATURE_BLOCK = 2048


class KernelRidge(IterativeRidge):
    """Base class of the regressor and the classifier: fits weights to targets."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        # Bounded so that sums of penalties do not overflow.
        "alpha": [Interval(Real, 0, 1e300, closed="both")],
        "features": [StrOptions({"random", "nystrom", "local"})],
        "solver": [StrOptions({"auto", "cholesky", *ITERATIVE}), IterativeSolver],
        "fit_intercept": ["boolean"],
        "checkpoint": [str, os.PathLike, None],
    }

    _needs_sums_alone = True
    _statistics: NormalEquations
    _streaming: StreamingFit

    # -- fitting --------------------------------------------------------------

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows and their targets or labels.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their targets and weights; rows on several devices as
            :class:`~randkern.DeviceRows`, and rows on the host to be processed on a
            device as :class:`~randkern.DeviceBlocks`.
        y : array of shape (n,) or (n, n_targets)
            Targets, or labels (n,) of a classifier; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of the rows' squared errors: 1 each by default. Intervals and
            probabilities depend on their ratios alone: a row of weight 2 counts as two
            copies of it, which are left out together.
        """
        self._validate_params()
        self._fit(X, y, sample_weight)
        return self

    def _begin(self) -> tuple[int | None, Stream]:
        """Return the memory limit in bytes, if there is one, and the random stream.

        For a resumed fit, those of the checkpoint: the limit determines how many rows
        are cached in 16 bits, and so affects the weights to about 1e-5.
        """
        self._forget()
        limit, stream = self.memory_limit, None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint)
            checkpoint.check_writable()
            continued = checkpoint.load_integers(["key", "memory"])
            if limit is None:
                limit = continued.get("memory") or None
            if self.random_state is None and "key" in continued:
                stream = Stream(continued["key"])
        if stream is None:
            stream = root_stream(self.random_state)
        return None if limit is None else resolve_memory_limit(limit), stream

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Fit weights to targets of rows of any kind."""
        report = FitReport(self, X, y, sample_weight)
        limit, stream = self._begin()
        self._key = stream.key
        rows = self._read(X, y, sample_weight, stream)
        self._solve(rows, limit or self._memory_for(rows), stream, report)
        report.end()

    def _solve(
        self, rows: TrainingData, limit: int, stream: Stream, report: FitReport
    ) -> None:
        """Solve for the weights of checked rows."""
        rows = self._shifted(rows)
        if self._is_local:
            if self.solver not in ("auto", "cholesky"):
                raise ValueError(
                    "features='local' supports solver='auto' and 'cholesky', got "
                    f"solver={self.solver!r}; use solver='auto'."
                )
            self._fit_cells(rows, np.array([self.alpha], dtype=float), limit, stream)
        elif self._iterates(rows, limit):
            if self.plan_ is None:
                self.X_fit_ = rows.as_arrays().X
            solution, intercept = self._iterated(rows, limit, stream, report)
            self._store(solution, solution.value, intercept)
        elif self._is_dual(rows):
            self._fit_dual(rows.as_arrays(), limit)
        else:
            self._fit_directly(rows, limit)

    @property
    def _is_local(self) -> bool:
        """Whether the exact kernel is fitted in cells."""
        return self.features == "local" and self.n_components is not None

    def _fit_cells(
        self, rows: TrainingData, alphas: np.ndarray, limit: int, stream: Stream
    ) -> Cells:
        """Fit the exact kernel in cells of at most `n_components` rows."""
        cell_rows = check_count("n_components", self.n_components)
        everything = np.arange(rows.n_rows)
        rows = rows.as_arrays() if rows.in_memory else rows.take(everything)
        if rows.weight is not None:
            weight = ops_of(rows.Y).to_host(rows.weight)
            rows = rows.take(np.flatnonzero(weight > 0))
        self.cells_, left = fit_cells(
            self.kernel_,
            rows,
            alphas,
            cell_rows,
            self.fit_intercept,
            limit,
            stream.child("cells"),
        )
        self.X_fit_ = rows.X
        shift = np.array(self._shift)
        self.intercept_ = shift if self._many_targets else float(shift[0])
        self.solution_ = self.cells_.solution
        sample = self._sample_left_out(rows)
        Y = sample.rows.Y
        self._keep_left_out(Y, Y - left[sample.numbers], sample.weight)
        return self.cells_

    def _is_dual(self, rows: TrainingData) -> bool:
        """Return whether the direct system has an equation per row."""
        if self.plan_ is None:
            return True
        return rows.in_memory and self.plan_.n_components > rows.n_rows

    def _shifted(self, rows: Any) -> Any:
        """Return the rows with targets shifted near 0, if an intercept is fitted."""
        self._shift = (0.0,) * rows.n_targets
        if self._labelled:
            return rows
        if self.fit_intercept:
            rows, self._shift = rows.near_zero()
        elif (statistics := rows.survey()).are_far:
            mean = statistics.target_mean[np.argmax(np.abs(statistics.target_mean))]
            warn(
                f"the mean of y, {mean:.3g}, is many times its standard deviation, "
                "and the penalty shrinks predictions towards 0; use "
                "fit_intercept=True, or subtract the mean.",
                UserWarning,
            )
        return rows

    def _fit_directly(self, rows: TrainingData, limit: int) -> None:
        """Factorise the normal equations."""
        self._check_primal_memory(rows, limit)
        # For arrays, the unit is that of the largest weight.
        unit = None if rows.in_memory else rows.survey().weight_unit
        statistics = rows.reduce(normal_equations_of, self._plan, unit)
        solution, intercept = self._solve_primal(statistics, overwrite=True)
        sample = self._sample_left_out(rows)
        left = statistics.left_out(
            self._plan, sample.rows, solution, intercept, sample.copies
        )
        self._keep_left_out(sample.rows.Y, left, sample.weight)

    def _sample_left_out(self, rows: TrainingData) -> LeftOut:
        """Return rows to leave out one at a time."""
        generator = Stream(self._key).child("left out").generator()
        return sample_left_out(rows, self._labelled, generator)

    def _iterates(self, rows: TrainingData, limit: int) -> bool:
        """Return whether to solve by conjugate gradients.

        "auto" does so if the direct system does not fit the memory limit, or takes
        twice the work: min(n, D) operations per entry of the features, against
        4k + 60 (the cost of computing one) in each of 30 iterations, or of 15 for
        labels, whose signs are right before their values are.
        """
        if self.solver != "auto":
            return self.solver != "cholesky"
        n, k, is_dual = rows.n_rows, rows.n_targets, self._is_dual(rows)
        if (self._dual_bytes if is_dual else self._primal_bytes)(rows) > limit:
            return True
        if self.plan_ is None:
            return n > MAX_EXACT_ROWS
        iterations = 15 if self._labelled else 30
        return min(n, self.plan_.n_components) >= 2 * iterations * (4 * k + 60)

    def _store(self, solution: Any, weights: Any, intercept: Any) -> None:
        self.solution_ = solution
        remember(self, self._fitted(weights, intercept))

    def _dual_bytes(self, rows: TrainingData) -> int:
        needed = dual_bytes(rows.n_rows, rows.n_targets, rows.like)
        if self.plan_ is None:
            return needed
        itemsize = rows.dtype.itemsize
        return needed + feature_gram_bytes(self.plan_, rows.n_rows, itemsize)

    def _primal_bytes(self, rows: TrainingData) -> int:
        n_rows = rows.n_rows if rows.in_memory else min(rows.n_rows, ROWS_AT_ONCE)
        itemsize, k = rows.dtype.itemsize, rows.n_targets
        return normal_equations_bytes(self._plan, n_rows, k, itemsize, rows.like)

    def _forget(self) -> None:
        """Delete the attributes of an earlier fit, except for those of `_draw`."""
        forget(
            self,
            "_statistics",
            "_streaming",
            "solution_",
            "temperature_",
            "calibration_offset_",
            "_left_out_sizes",
            "_left_out_weight",
        )

    def _check_primal_memory(self, rows: TrainingData, limit: int) -> None:
        D = self._plan.n_components
        check_memory(
            self._primal_bytes(rows),
            limit,
            f"the {D} x {D} normal equations of n_components={D}",
            "Use fewer components",
        )

    def _solve_primal(
        self, statistics: NormalEquations, *, overwrite: bool
    ) -> tuple[Solution, Any]:
        if any(self._shift) and not self.fit_intercept:
            statistics = statistics.moved(self._shift)  # fit_intercept has changed
        solution, intercept = statistics.solve(
            float(self.alpha), self.fit_intercept, overwrite=overwrite
        )
        self._store(solution, solution.value, intercept)
        return solution, intercept

    def _gram(self, X: Rows) -> Any:
        """Return the upper triangle of the Gram matrix, exact or of features."""
        if self.plan_ is None:
            return exact_gram(self.kernel_, X)
        return feature_gram(self.plan_, X)

    def _fit_dual(self, rows: ArrayRows, limit: int) -> None:
        """Solve the system of the exact kernel, or of more features than rows."""
        original, ops, n = rows, ops_of(rows.Y), rows.n_rows
        what = f"the exact {n} x {n} Gram matrix (n_components=None) in float64"
        advice = (
            "Use solver='pcg', or random features (for instance n_components=10_000)"
        )
        if self.plan_ is not None:
            D, advice = self.plan_.n_components, "Use fewer components than rows"
            what = f"the {n} x {n} dual system of n_components={D} on {n} rows"
        check_memory(self._dual_bytes(rows), limit, what, advice)
        # Leaving out all copies of a row is exact if they are one row.
        merged = merge_copies(rows)
        if merged is not None:
            rows = merged.rows
        sample = self._sample_left_out(rows)
        n, chosen = rows.n_rows, sample.numbers
        left_out = np.arange(n - len(chosen), n)
        order = None
        if len(chosen) < n:
            # Rows to be left out come last, where leaving them out is nearly free.
            last = ops.float64_zeros(n, rows.Y)
            last[chosen] = 1.0
            order = ops.xp.argsort(last, stable=True)
            rows = rows.take(order)
        solution, intercept, left = solve_dual(
            self._gram(rows.X),
            rows.Y,
            rows.weight,
            float(self.alpha),
            self.fit_intercept,
            left_out,
        )
        self._keep_left_out(sample.rows.Y, left, sample.weight)
        if order is not None:
            value = ops.take(solution.value, ops.xp.argsort(order))
            solution = replace(solution, value=value)
        if merged is not None:
            solution = replace(solution, value=merged.expanded(solution.value))
        self._store_dual(original.X, solution, intercept)

    def _store_dual(self, X: Rows, solution: Solution, intercept: np.ndarray) -> None:
        """Store the weights of rows, or the equivalent weights of features."""
        weights = dual = solution.value
        if self.plan_ is None:
            self.X_fit_ = X
        else:
            ops = ops_of(X)
            weights = ops.float64_zeros((self.plan_.n_components, dual.shape[1]), X)
            # The sums over columns without the factor, solved with it once.
            raw = self.plan_.raw
            block = ops.as_float64(X) if raw is not self.plan_ else X
            for columns in row_blocks(len(weights), _FEATURE_BLOCK):
                Z = evaluate(raw, block, columns)
                weights[columns] = ops.as_float64(Z).T @ dual
            weights = self.plan_.solve(weights)
        self._store(solution, weights, intercept)

    def _partial_fit_targets(
        self, X: Rows, Y: np.ndarray, sample_weight: np.ndarray | None, solve: bool
    ) -> None:
        """Add rows to the normal equations; with `solve`, solve them."""
        rows = ArrayRows(X, Y, sample_weight)
        solver = self._iterative_solver()
        if isinstance(solver, SGD):
            self._take_steps(rows, solver)
            return
        undo = self._statistics.saved() if hasattr(self, "_statistics") else None
        if undo is None:
            self._forget()
            limit = self._memory_for(rows)
            self._draw(X, sample_weight, root_stream(self.random_state))
            within = limit // 2 if solve else limit
            self._check_primal_memory(rows, within)
            self._statistics = NormalEquations.empty(
                self._plan.n_components, Y.shape[1], like=X
            )
            rows = self._shifted(rows)
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
        return hasattr(self, "_statistics") or hasattr(self, "_streaming")

    def _take_steps(self, rows: ArrayRows, solver: SGD) -> None:
        """Take steps of stochastic gradients on new rows."""
        if self.fit_intercept:
            raise ValueError(
                "partial_fit with solver='sgd' cannot fit an intercept; use "
                "fit_intercept=False, or another solver."
            )
        if not hasattr(self, "_streaming"):
            self._forget()
            stream = root_stream(self.random_state)
            self._draw(rows.X, rows.weight, stream)
            self._shift = (0.0,) * rows.n_targets
            self._streaming = StreamingFit(
                self._plan, rows, float(self.alpha), stream.child("solver"), solver
            )
        self._streaming, solution = self._streaming.continued(rows)
        intercept = ops_of(rows.Y).float64_zeros(rows.n_targets, rows.Y)
        self._store(solution, solution.value, intercept)

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
        if hasattr(self, "_streaming"):
            return self  # the weights are those after the last step
        self._solve_primal(self._statistics, overwrite=False)
        return self

    # -- files ----------------------------------------------------------------

    # The weights are stored once, and paths as strings, as skops supports no others.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(state.get("checkpoint"), os.PathLike):
            state["checkpoint"] = os.fspath(state["checkpoint"])
        if "coef_" in state and "solution_" in state:
            state["solution_"] = replace(state["solution_"], value=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "coef_" in state and "solution_" in state:
            coef = state["coef_"]
            value = coef.T if coef.ndim == 2 else coef[:, None]
            self.solution_ = replace(state["solution_"], value=value)

    # -- prediction -----------------------------------------------------------

    def _values(self, X: Any) -> Any:
        check_is_fitted(self)
        solved = ("coef_", "dual_coef_", "cells_")
        if not any(hasattr(self, name) for name in solved):
            raise ValueError(
                "partial_fit was called with solve=False; call solve() before "
                "predicting."
            )
        return super()._values(X)

    def _values_of(self, X: Rows, moved: bool = False) -> np.ndarray:
        if not hasattr(self, "cells_"):
            return super()._values_of(X, moved)
        check_same_device(X, self.X_fit_)
        return self._shaped(self.cells_.predict(self.X_fit_, X)) + self.intercept_

    def __sklearn_is_fitted__(self) -> bool:
        fitted = ("coef_", "dual_coef_", "cells_", "_statistics")
        return any(hasattr(self, name) for name in fitted)
