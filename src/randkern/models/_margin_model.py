"""What support vector machines for classification and regression share."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import DataConversionWarning

from randkern._random import Stream
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data.training_data import FitData, TrainingData
from randkern.models._feature_model import FeatureModel
from randkern.models._libsvm import solve_by_libsvm
from randkern.models._margin import Margins, Solution, check_kernel_values
from randkern.models._margin_descent import solve_by_descent
from randkern.models._margin_newton import (
    EXACT,
    VERY_FEW_ENTRIES,
    continued_by_newton,
    solve_columns_by_newton,
)
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import features_of
from randkern.models.memory import cache_bytes, newton_bytes


def check_single_target(model: Any, rows: TrainingData) -> None:
    """Raise if there are several targets, or if they are tensors; warn of a column."""
    name = type(model).__name__
    if is_tensor(rows.like):
        raise ValueError(
            f"{name} is fitted on the CPU, got tensors; pass tensor.numpy(force=True)."
        )
    if (model._n_outputs or 1) > 1:
        raise ValueError(
            f"{name} supports a single target, got {model._n_outputs}; fit one model "
            "per target, for instance by sklearn.multioutput.MultiOutputRegressor."
        )
    if model._n_outputs is not None:
        warn(
            "A column-vector y was passed when a 1d array was expected; pass "
            "y.ravel().",
            DataConversionWarning,
        )
        model._n_outputs = None


def margin_bytes(data: FitData, by_newton: bool) -> tuple[int, int]:
    """Return the memory for features, and the rest; raise if it is too little."""
    n, k = data.rows.n_rows, data.rows.n_targets
    width = data.width
    held = n * (16 + 72 * k) + width * 16 * k
    if by_newton:
        held += newton_bytes(n, width)
    return cache_bytes(data.plan, data.rows, data.limit, held)


class MarginModel(FeatureModel):
    """A model that is fitted by margins."""

    tol: float
    max_iter: int
    n_iter_: int

    def _fit_margins(
        self,
        data: FitData,
        targets: Any,
        lower: Any,
        upper: Any,
        stream: Stream,
        report: FitReport,
        *,
        tube: float = 0.0,
        has_intercept: bool = True,
    ) -> Solution:
        """Return the solution for targets and bounds (n, k).

        The exact kernel with an intercept is for LIBSVM, tensors for Newton's method,
        all else for coordinate descent. Newton's method ends the first for few rows.
        """
        cache_bytes, spare_bytes = margin_bytes(data, is_tensor(targets))
        options: dict[str, Any] = {"tube": tube, "has_intercept": has_intercept}
        if data.plan is None and has_intercept and not is_tensor(targets):
            X = data.rows.as_arrays().X
            gram = data.kernel._gram(ops_of(X).as_float64(X), None)
            check_kernel_values(float(gram.diagonal().max()))
            problem = Margins(None, targets, lower, upper, **options)
            solution, self.n_iter_ = solve_by_libsvm(
                gram, problem, self.tol, int(self.max_iter), report
            )
            is_small = gram.size <= VERY_FEW_ENTRIES
            is_small &= newton_bytes(*gram.shape) <= spare_bytes
            if not is_small or float(solution.gap.max()) > self.tol:
                return solution
            del gram  # before that of the factor is computed
            features = features_of(data, cache_bytes, constant=True)
            problem = Margins(features, targets, lower, upper, **options)
            return continued_by_newton(problem, solution, min(self.tol, EXACT))
        features = features_of(data, cache_bytes, is_tensor(targets), has_intercept)
        problem = Margins(features, targets, lower, upper, **options)
        if is_tensor(targets):
            solution, self.n_iter_ = solve_columns_by_newton(problem, self.tol, report)
        else:
            solution, self.n_iter_ = solve_by_descent(
                problem,
                self.tol,
                min(int(self.max_iter), 2**31 - 1),  # compiled code counts it
                stream,
                cache_bytes=cache_bytes,
                spare_bytes=spare_bytes,
                report=report,
            )
        return solution
