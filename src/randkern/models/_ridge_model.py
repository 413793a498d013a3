"""The base class of kernel ridge models: what those with any penalty have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from randkern._fitting import all_or_nothing, forget, remember
from randkern._random import Stream, root_stream
from randkern._validation import Array, Rows
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.columns import split_target
from randkern.data.training_data import TrainingData
from randkern.models._feature_model import FeatureModel
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.dual import exact_gram, feature_gram
from randkern.models.left_out import ProbedRows, SampledRows, sample_left_out
from randkern.plan import evaluate
from randkern.solvers import Solution

_FEATURE_BLOCK = 2048


class RidgeModel(FeatureModel, ABC):
    """Kernel ridge regression on targets, or on labels coded as ±1."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "fit_intercept": ["boolean"],
    }

    fit_intercept: bool
    solution_: Solution
    # Whether the targets are labels coded as ±1.
    _labelled: ClassVar[bool] = False
    _key: int
    # Subtracted from the targets.
    _shift: tuple[float, ...]

    @abstractmethod
    def _fit_rows(
        self,
        rows: TrainingData,
        limit: int,
        stream: Stream,
        report: FitReport,
        start: Array = None,
    ) -> None:
        """Fit weights to checked rows, possibly continuing from earlier ones."""

    @abstractmethod
    def _store_residuals(
        self, numbers: np.ndarray, Y: Array, residuals: Array, weight: Array
    ) -> None:
        """Store results of the leave-one-out residuals of some rows.

        Numbers and weights of the rows are (m,), targets and residuals (m, k).
        """

    # -- fitting --------------------------------------------------------------

    @all_or_nothing
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
        self._fit(X, y, sample_weight)
        return self

    def _last_weights(self) -> Array:
        """Return the weights to continue from, or None."""
        return None

    def _stream(self) -> Stream:
        """Return the random stream of a fit."""
        return root_stream(self.random_state)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Fit weights to targets of rows of any kind."""
        report = FitReport(self, X, y, sample_weight)
        start, stream = self._last_weights(), self._stream()
        self._forget()
        self._key = stream.key
        rows = self._read(X, y, sample_weight, stream)
        self._fit_rows(rows, self._memory_for(rows), stream, report, start)
        report.end()

    def _is_dual(self, rows: TrainingData) -> bool:
        """Return whether the direct system has an equation per row."""
        if self.plan_ is None:
            return True
        return rows.in_memory and self.plan_.n_components > rows.n_rows

    def _shift_targets(self, rows: Any) -> Any:
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

    def _sample_left_out(self, rows: TrainingData) -> SampledRows:
        """Return rows to leave out one at a time."""
        return sample_left_out(rows, self._labelled, self._left_out_generator)

    def _probed(self, rows: TrainingData) -> ProbedRows:
        """Return rows to leave out of normal equations that have been factorised."""
        generator = self._left_out_generator
        return ProbedRows.of(rows, self._labelled, generator, factorised=True)

    @property
    def _left_out_generator(self) -> np.random.Generator:
        return Stream(self._key).child("left out").generator()

    def _gram(self, X: Rows) -> Any:
        """Return the upper triangle of the Gram matrix, exact or of features."""
        if self.plan_ is None:
            return exact_gram(self.kernel_, X)
        return feature_gram(self.plan_, X)

    def _fitted(self, value: Any, intercept: Any) -> dict[str, Any]:
        """Return the fitted attributes for weights of features, or of rows.

        Intercepts, (k,), are those of shifted targets.
        """
        if self.fit_intercept:  # may have been changed after a batch
            shift = ops_of(intercept).float64_like(self._shift, intercept)
            intercept = intercept + shift
        constant = intercept if self._many_targets else float(intercept[0])
        if self.plan_ is None:
            return {
                "dual_coef_": self._drop_single_target(value),
                "intercept_": constant,
            }
        return {"coef_": self._as_coef(value), "intercept_": constant}

    def _store(self, solution: Any, weights: Array, intercept: Any) -> None:
        self.solution_ = solution
        remember(self, self._fitted(weights, intercept))

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

    def _forget(self) -> None:
        """Delete the attributes of an earlier fit, except for those of `_draw`."""
        forget(
            self,
            "solution_",
            "temperature_",
            "calibration_offset_",
            "_left_out_rows",
            "_left_out_sizes",
            "_left_out_weight",
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
