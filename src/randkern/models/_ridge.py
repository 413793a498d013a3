"""Fitting weights to targets: what ridge regression and classification share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._memory import check_memory, resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import DeviceRows, row_blocks
from randkern.data.dask import is_dask
from randkern.models._dask import DaskParts, DaskRows, read_dask
from randkern.models._device_rows import (
    DeviceParts,
    PartedRows,
    read_devices,
    values_in_parts,
)
from randkern.models._feature_model import FeatureModel
from randkern.models._predictions import MOST_EXACT_ROWS
from randkern.models._rows import ArrayRows, TrainingRows, near_zero
from randkern.models._streams import read_stream
from randkern.models.callbacks import CallbackSupportMixin, FitReport
from randkern.models.dual import (
    dual_bytes,
    exact_gram,
    feature_gram,
    feature_gram_bytes,
    solve_dual,
)
from randkern.models.iterative_ridge import (
    Problem,
    StreamingFit,
    solve_exact,
    solve_in_range,
    solve_pcg,
    solve_sgd,
)
from randkern.models.normal_equations import NormalEquations
from randkern.plan import evaluate
from randkern.solvers import PCG, SGD, Checkpoint, Progress, Solution

__all__ = ["KernelRidge"]

_FEATURE_BLOCK = 2048
# Rows of targets that take part in one step of the normal equations.
_ROWS_AT_ONCE = 2**20


class KernelRidge(CallbackSupportMixin, FeatureModel):
    """What the regressor and the classifier share: fitting weights to targets."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "cholesky", "pcg", "sgd"}), PCG, SGD],
        "fit_intercept": ["boolean"],
        "checkpoint": [str, os.PathLike, None],
    }

    # Whether the targets that are fitted stand for classes.
    _labelled: ClassVar[bool] = False
    _statistics: NormalEquations
    _streaming: StreamingFit
    # What was subtracted from the targets.
    _shift: tuple[float, ...]

    # -- fitting --------------------------------------------------------------

    def _prepare(
        self, X: Rows, sample_weight: np.ndarray | None, stream: Stream | None = None
    ) -> Stream:
        """Resolve the kernel on X, draw its features, return the random stream."""
        stream = root_stream(self.random_state) if stream is None else stream
        self._key = stream.key
        self._draw(X, sample_weight, stream)
        return stream

    def _begin(self) -> tuple[int | None, Stream]:
        """Return the memory limit in bytes, if there is one, and the random stream.

        Those given, or those of the fit to be continued: how many rows are kept in 16
        bits, and so the weights to some 1e-5, follow from the limit.
        """
        self._forget()
        limit, stream = self.memory_limit, None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint)
            checkpoint.check_writable()
            types = {"key": np.uint64, "memory": np.int64}
            continued = checkpoint.load_integers(types)
            if limit is None:
                limit = continued.get("memory") or None
            if self.random_state is None and "key" in continued:
                stream = Stream(continued["key"])
        if stream is None:
            stream = root_stream(self.random_state)
        return None if limit is None else resolve_memory_limit(limit), stream

    def _fit_targets(
        self,
        X: Rows,
        Y: np.ndarray,
        sample_weight: np.ndarray | None,
        report: FitReport,
    ) -> None:
        """Fit weights to targets of shape (n, k)."""
        given, stream = self._begin()
        self._prepare(X, sample_weight, stream)
        rows = self._shifted(ArrayRows(X, Y, sample_weight))
        limit = given or self._memory_for(rows)
        if self.plan_ is None:
            self._fit_exact(rows, limit, stream, report)
        elif self._iterates(rows, limit):
            self._fit_iteratively(rows, limit, stream, report)
        elif self._plan.n_components > X.shape[0]:
            self._fit_dual(rows, limit)
        else:
            self._fit_directly(rows, limit)

    def _fit_stream(
        self, X: Any, y: Any, sample_weight: Any, report: FitReport
    ) -> None:
        """Fit to rows that come in blocks, or in parts on a cluster or on devices."""
        if self.n_components is None:
            raise ValueError(
                "the exact kernel (n_components=None) needs all rows in memory; set "
                "n_components."
            )
        given, stream = self._begin()
        read: Any = read_stream
        if isinstance(X, DeviceRows):
            read = read_devices
        elif is_dask(X):
            read = read_dask
        rows, sample = read(self, X, y, sample_weight, stream)
        rows = self._shifted(rows)
        limit = given or self._memory_for(rows)
        seen, weight = sample.rows()
        self._prepare(seen, weight, stream)
        if self._iterates(rows, limit):
            self._fit_iteratively(rows, limit, stream, report)
        else:
            self._fit_directly(rows, limit)

    def _shifted(self, rows: Any) -> Any:
        """Return the rows with targets near 0, if the intercept can make up for it."""
        moves = self.fit_intercept and not self._labelled
        rows, self._shift = (
            near_zero(rows) if moves else (rows, (0.0,) * rows.n_targets)
        )
        return rows

    def _intercepts(self, fitted: Any) -> Any:
        """Return intercepts, (k,) or a number, from those of shifted targets."""
        intercept = fitted + ops_of(fitted).float64_like(self._shift, fitted)
        return intercept if self._many_targets else float(intercept[0])

    def _fit_directly(
        self, rows: TrainingRows | DaskRows | PartedRows, limit: int
    ) -> None:
        """Factorise the normal equations."""
        D, k = self._plan.n_components, rows.n_targets
        self._check_primal_memory(_rows_here(rows), k, limit, rows.like)
        if isinstance(rows, (DaskRows, PartedRows)):
            of_rows: Any = DaskParts if isinstance(rows, DaskRows) else DeviceParts
            parts = of_rows(self._plan, rows, rows.survey().weight_unit)
            self._solve_primal(parts.normal_equations(k), overwrite=True)
            return
        unit = None if isinstance(rows, ArrayRows) else rows.survey().weight_unit
        statistics = NormalEquations.empty(D, k, unit, rows.like)
        for part in rows.blocks(_ROWS_AT_ONCE):
            statistics.add(self._plan, part.X, part.Y, part.weight)
        self._solve_primal(statistics, overwrite=True)

    def _iterates(self, rows: TrainingRows | DaskRows | PartedRows, limit: int) -> bool:
        """Tell whether to solve by conjugate gradients.

        "auto" does so where the direct system does not fit the memory limit, or
        takes twice the work: min(n, D) operations an entry of the features,
        against 4k + 60 (what it takes to make one) in each of 30 iterations, or of 15
        where labels are told apart before they are met.
        """
        if self.solver != "auto":
            return self.solver != "cholesky"
        n, D, k = rows.n_rows, self._plan.n_components, rows.n_targets
        if D <= n or not isinstance(rows, ArrayRows):
            here = _rows_here(rows)
            itemsize = rows.dtype.itemsize
            needed = NormalEquations.n_bytes(self._plan, here, k, itemsize, rows.like)
        else:
            needed = self._dual_bytes(n, k, rows.like)
        iterations = 15 if self._labelled else 30
        return needed > limit or min(n, D) >= 2 * iterations * (4 * k + 60)

    def _checkpoint(self, limit: int) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        kept = {"key": np.uint64(self._key), "memory": np.int64(limit)}
        return Checkpoint(self.checkpoint, kept)

    def _fit_iteratively(
        self,
        rows: TrainingRows | DaskRows | PartedRows,
        limit: int,
        stream: Stream,
        report: FitReport,
    ) -> None:
        """Solve the normal equations without forming them."""
        problem = self._problem(rows, limit, stream, report)
        solver = self._iterative_solver()
        if isinstance(solver, SGD):
            found = solve_in_range(solve_sgd, problem, self._plan, solver)
        else:
            found = solve_in_range(solve_pcg, problem, self._plan, solver)
        solution, intercept = found
        self._store(solution, solution.value, intercept)

    def _iterative_solver(self) -> PCG | SGD:
        """Return the solver that `solver` names, its arguments checked."""
        solver = self.solver
        if isinstance(solver, str):
            solver = SGD() if solver == "sgd" else PCG()
        solver._validate_params()
        return solver

    def _problem(
        self, rows: Any, limit: int, stream: Stream, report: FitReport
    ) -> Problem:
        """Return what an iterative solver works on, and begin its report."""
        report.begin(None)

        def tell(progress: Progress, intercept: Callable[[], Any]) -> bool:
            return report.iteration(
                progress, lambda: self._fitted(progress.value, intercept())
            )

        return Problem(
            rows=rows,
            alpha=float(self.alpha),
            center=self.fit_intercept,
            memory_limit=limit,
            stream=stream.child("solver"),
            error_of=self._error_of,
            labels=self._labelled,
            report=tell,
            checkpoint=self._checkpoint(limit),
        )

    def _fitted(self, value: Any, intercept: Any) -> dict[str, Any]:
        """Return the attributes that weights of the system would set."""
        constant = self._intercepts(intercept)
        if self.plan_ is None:
            return {"dual_coef_": self._shaped(value), "intercept_": constant}
        return {"coef_": self._shaped(value).T, "intercept_": constant}

    def _dual_bytes(self, n: int, n_targets: int, like: Rows) -> int:
        product = feature_gram_bytes(self._plan, n, like.dtype.itemsize)
        return dual_bytes(n, n_targets, like) + product

    def _forget(self) -> None:
        """Drop what an earlier fit has left."""
        for name in (
            "_statistics",
            "_streaming",
            "coef_",
            "dual_coef_",
            "X_fit_",
            "solution_",
        ):
            self.__dict__.pop(name, None)

    def _check_primal_memory(
        self, n_rows: int, n_targets: int, limit: int, like: Rows
    ) -> None:
        D, itemsize = self._plan.n_components, like.dtype.itemsize
        check_memory(
            NormalEquations.n_bytes(self._plan, n_rows, n_targets, itemsize, like),
            limit,
            f"the {D} x {D} normal equations of n_components={D}",
            "Use fewer components",
        )

    def _solve_primal(self, statistics: NormalEquations, *, overwrite: bool) -> None:
        if any(self._shift) and not self.fit_intercept:
            statistics = statistics.moved(self._shift)  # it was changed after a batch
            self._shift = (0.0,) * len(self._shift)
        solution, intercept = statistics.solve(
            float(self.alpha), self.fit_intercept, overwrite=overwrite
        )
        self._store(solution, solution.value, intercept)

    def _fit_dual(self, rows: ArrayRows, limit: int) -> None:
        """Solve an n × n system where there are more features than rows."""
        n, D, X = rows.n_rows, self._plan.n_components, rows.X
        check_memory(
            self._dual_bytes(n, rows.n_targets, X),
            limit,
            f"the {n} x {n} dual system of n_components={D} on {n} rows",
            "Use fewer components than rows",
        )
        solution, intercept = solve_dual(
            feature_gram(self._plan, X),
            rows.Y,
            rows.weight,
            float(self.alpha),
            self.fit_intercept,
        )
        self._store_dual(X, solution, intercept)

    def _fit_exact(
        self, rows: ArrayRows, limit: int, stream: Stream, report: FitReport
    ) -> None:
        """Solve the system of the exact kernel."""
        n, k, X = rows.n_rows, rows.n_targets, rows.X
        needed = dual_bytes(n, k, X)
        large = needed > limit or n > MOST_EXACT_ROWS
        if self.solver not in ("auto", "cholesky") or (self.solver == "auto" and large):
            solver = self._iterative_solver()
            if isinstance(solver, SGD):
                raise ValueError(
                    "solver='sgd' needs random features; with n_components=None use "
                    "'pcg', 'cholesky' or 'auto'."
                )
            self.X_fit_ = X
            problem = self._problem(rows, limit, stream, report)
            found = solve_in_range(solve_exact, problem, self.kernel_, solver)
            solution, intercept = found
            self._store_dual(X, solution, intercept)
            return
        check_memory(
            needed,
            limit,
            f"the exact {n} x {n} Gram matrix (n_components=None) in float64",
            "Use solver='pcg', or random features (for instance n_components=10_000)",
        )
        solution, intercept = solve_dual(
            exact_gram(self.kernel_, X),
            rows.Y,
            rows.weight,
            float(self.alpha),
            self.fit_intercept,
        )
        self._store_dual(X, solution, intercept)

    def _store_dual(self, X: Rows, solution: Solution, intercept: np.ndarray) -> None:
        """Keep the weights of rows, or those of features that they stand for."""
        dual = solution.value
        if self.plan_ is not None:
            ops = ops_of(X)
            weights = ops.zeros((self.plan_.n_components, dual.shape[1]), X)
            for columns in row_blocks(len(weights), _FEATURE_BLOCK):
                Z = evaluate(self.plan_, X, columns)
                weights[columns] = ops.as_float64(Z).T @ dual
            self._store(solution, weights, intercept)
            return
        self.X_fit_ = X
        self.dual_coef_ = self._shaped(dual)
        self.intercept_ = self._intercepts(intercept)
        self.solution_ = solution

    def _store(self, solution: Any, weights: np.ndarray, intercept: Any) -> None:
        self.solution_ = solution
        self.coef_ = weights.T if self._many_targets else weights[:, 0]
        self.intercept_ = self._intercepts(intercept)

    def _shaped(self, weights: np.ndarray) -> np.ndarray:
        return weights if self._many_targets else weights[:, 0]

    def _partial_fit_targets(
        self,
        X: Rows,
        Y: np.ndarray,
        sample_weight: np.ndarray | None,
        solve: bool,
    ) -> None:
        """Add rows to the normal equations; solve them unless told not to."""
        rows = ArrayRows(X, Y, sample_weight)
        if self.solver == "sgd" or isinstance(self.solver, SGD):
            self._take_steps(rows)
            return
        undo = self._statistics.saved() if hasattr(self, "_statistics") else None
        if undo is None:
            self._forget()
            limit = self._memory_for(rows)
            self._prepare(X, sample_weight)
            within = limit // 2 if solve else limit
            self._check_primal_memory(X.shape[0], Y.shape[1], within, X)
            self._statistics = NormalEquations.empty(
                self._plan.n_components, Y.shape[1], like=X
            )
            rows = self._shifted(rows)
        elif any(self._shift):
            rows = rows.rescaled(np.array(self._shift), np.ones(Y.shape[1]))
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

    def _take_steps(self, rows: ArrayRows) -> None:
        """Take steps of stochastic gradients along new rows."""
        if self.fit_intercept:
            raise ValueError(
                "partial_fit with solver='sgd' fits no intercept: set "
                "fit_intercept=False, or use another solver."
            )
        if not hasattr(self, "_streaming"):
            self._forget()
            stream = self._prepare(rows.X, rows.weight).child("solver")
            self._shift = (0.0,) * rows.n_targets
            solver = self._iterative_solver()
            assert isinstance(solver, SGD)
            self._streaming = StreamingFit(
                self._plan, rows, float(self.alpha), stream, solver
            )
        self._streaming, solution = self._streaming.continued(rows)
        intercept = ops_of(rows.Y).zeros(rows.n_targets, rows.Y)
        self._store(solution, solution.value, intercept)

    @all_or_nothing
    def solve(self) -> Any:
        """Solve the normal equations that `partial_fit` has accumulated.

        `partial_fit` does so itself unless it is called with ``solve=False``,
        which saves a factorisation of order D³ a batch.

        Returns
        -------
        self
        """
        if not self._has_begun:
            raise ValueError("there is nothing to solve: call partial_fit first.")
        if hasattr(self, "_streaming"):
            return self  # its weights are those after the last step
        self._solve_primal(self._statistics, overwrite=False)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    # -- files ----------------------------------------------------------------

    # The weights are stored once, and paths as texts: skops knows no others.
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
            value = coef.T if coef.ndim == 2 else coef
            self.solution_ = replace(state["solution_"], value=value)

    # -- prediction -----------------------------------------------------------

    def _predict_targets(self, X: Any) -> np.ndarray:
        """Return fitted targets, (n,) or (n, k), without changing any state."""
        check_is_fitted(self)
        if not hasattr(self, "coef_") and not hasattr(self, "dual_coef_"):
            raise ValueError(
                "partial_fit was called with solve=False: call solve() before "
                "predicting."
            )
        return (
            values_in_parts(self, X) if isinstance(X, DeviceRows) else self._values(X)
        )

    @property
    def _many_targets(self) -> bool:
        return self._n_outputs is not None

    def __sklearn_is_fitted__(self) -> bool:
        fitted = ("coef_", "dual_coef_", "_statistics")
        return any(hasattr(self, name) for name in fitted)


def _rows_here(rows: TrainingRows | DaskRows | PartedRows) -> int:
    """Return how many rows have their targets in memory at a time."""
    if isinstance(rows, ArrayRows):
        return rows.n_rows
    return min(rows.n_rows, _ROWS_AT_ONCE)
