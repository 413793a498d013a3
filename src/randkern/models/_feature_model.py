"""The base class of models on random features, or on the exact kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import forget, remember
from randkern._random import Stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import (
    MAX_COMPONENTS,
    Array,
    Rows,
    check_components,
    check_count,
    is_tensor,
    place_of,
)
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import DeviceBlocks, row_blocks, rows_within
from randkern.data.reading import mapped_rows, read
from randkern.data.training_data import ArrayRows, FitData, TargetReader
from randkern.exceptions import FeatureErrorWarning
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.kernels.draw import fit_plan
from randkern.kernels.precomputed import is_precomputed, numbered_rows
from randkern.landmarks import landmark_plan, needs_float64
from randkern.models.callbacks import CallbackSupportMixin
from randkern.models.memory import block_rows, memory_for
from randkern.plan import Plan, evaluate
from randkern.projections import PROJECTIONS

# The exact kernel is factorised up to this size: n³/3 operations against about n²·50·k.
MAX_EXACT_ROWS = 20_000
# Columns of features that are summed over rows at a time.
_COLUMNS = 512
# Errors of features are those of all pairs of two samples of at most, and at least, so
# many rows; of fewer wide rows. Relative errors below `_ROUNDING` are rounding errors.
_PAIRED_ROWS = 64
_FEW_ROWS = 8
_PAIRED_BYTES = 2**19
_ROUNDING = 1e-6


def predict_by_features(plan: Plan, weights: np.ndarray, X: Rows) -> np.ndarray:
    """Return φ(x)·W for weights of shape (D,) or (D, k), in float64."""
    # Products are computed in the dtype of X, unless they would lose all digits there;
    # dividing weights by the largest of each target brings them into its range.
    ops = ops_of(X)
    weights = plan.solve(weights, transposed=True)
    plan = plan.raw
    size = ops_of(weights).column_max_abs(weights)
    size = size + (size == 0)
    precise = needs_float64(plan)
    like = ops.as_float64(X[:0]) if precise else X
    coef = ops.asarray(weights / size, like)
    out = ops.float64_zeros((X.shape[0], *weights.shape[1:]), X)
    row_bytes = plan.n_components * like.dtype.itemsize
    for rows in row_blocks(X.shape[0], block_rows(row_bytes)):
        block = ops.as_float64(X[rows]) if precise else X[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            out[rows] = ops.precise_product(evaluate(plan, block), coef)
    return out * ops.float64_like(size, out)


def feature_sums(
    plan: Plan, columns_of: Callable[[slice], Array], factors: Array
) -> Array:
    """Return Σ_i φ(x_i) a_iᵀ in float64, (D, k), for factors a (n, k).

    ``columns_of`` returns some raw columns of the features, (n, width).
    """
    ops = ops_of(factors)
    out = ops.float64_zeros((plan.n_components, factors.shape[1]), factors)
    for columns in row_blocks(len(out), _COLUMNS):
        out[columns] = ops.as_float64(columns_of(columns)).T @ factors
    return plan.solve(out)


def predict_by_rows(
    kernel: Kernel, X_fit: Rows, weights: np.ndarray, X: Rows
) -> np.ndarray:
    """Return k(X, X_fit)·A for weights of shape (n_fit,) or (n_fit, k), in float64."""
    n_fit = X_fit.shape[0]
    # Kernels that are too large to be factorised are evaluated in the dtype of X.
    ops = ops_of(X)
    precise = X.dtype.itemsize == 8 or n_fit <= MAX_EXACT_ROWS
    out = ops.float64_zeros((X.shape[0], *weights.shape[1:]), X)
    for rows in row_blocks(X.shape[0], block_rows(8 * n_fit, at_least=64)):
        part = ops.as_float64(X[rows]) if precise else X[rows]
        gram = kernel._gram(part, X_fit, precise=precise)
        out[rows] = ops.as_float64(gram) @ weights
    return out


def check_features(data: FitData) -> None:
    """Warn if random features are too few for the kernel on rows like those of a fit.

    The errors φ(x)·φ(y) − k(x, y) over pairs of different rows are compared with the
    standard deviation of k(x, y): where they are larger, features have more noise than
    information about which rows are alike.
    """
    plan = data.plan
    if plan is None:
        return
    X, sample_weight = data.sample
    ops = ops_of(X)
    used = np.arange(X.shape[0])
    if sample_weight is not None:
        used = ops.to_host(ops.flatnonzero(sample_weight))
    row_bytes = X.shape[1] * X.dtype.itemsize
    most = rows_within(_PAIRED_BYTES, row_bytes, at_least=_FEW_ROWS)
    size = min(_PAIRED_ROWS, most, len(used) // 2)
    if size < _FEW_ROWS:
        return
    generator = data.stream.child("feature error").generator()
    numbers = generator.choice(used, 2 * size, replace=False)
    rows = ops.take(X, numbers)
    values = data.kernel._gram(rows[:size], rows[size:])
    products = ops.float64_zeros(values.shape, values)
    for columns in plan.column_blocks(_COLUMNS):
        Z = ops.as_float64(evaluate(plan, rows, columns))
        products += Z[:size] @ Z[size:].T
    error = float(((products - values) ** 2).mean()) ** 0.5
    mean, spread = float(values.mean()), float(values.std())
    if error <= max(spread, _ROUNDING * float(abs(values).mean())):
        return
    warn(
        f"kernel values between rows are {mean:.2g} ± {spread:.2g}, but random "
        f"features with n_components={plan.n_components} have an error of "
        f"{error:.2g}: they hardly distinguish rows. This happens if rows are "
        "nearly orthogonal (text) or the lengthscale is too short. Use landmarks "
        "(features='nystrom'), the exact kernel (n_components=None), another "
        "lengthscale, or more components.",
        FeatureErrorWarning,
    )


class FeatureModel(CallbackSupportMixin, TakesKernel):
    """A model of the form φ(x)·w, or Σ a_i k(x, x_i) for the exact kernel."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # checked_kernel says what to pass
        "n_components": [
            Interval(Integral, 1, MAX_COMPONENTS, closed="both"),
            "array-like",
            None,
        ],
        "projection": [StrOptions(set(PROJECTIONS))],
        "features": [StrOptions({"random", "nystrom"})],
        "fourier": [StrOptions({"pair", "offset"})],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "random_state": ["random_state", np.random.Generator],
    }

    n_components: int | Sequence[int] | None
    projection: str
    features: str = "random"
    fourier: str = "pair"
    memory_limit: Any
    random_state: Any
    table_encoder_: Any
    kernel_: Kernel
    plan_: Plan | None
    X_fit_: Rows
    coef_: np.ndarray
    dual_coef_: np.ndarray
    intercept_: Any
    _n_outputs: int | None

    @property
    def _plan(self) -> Plan:
        """The plan of the random features."""
        if self.plan_ is None:
            raise AttributeError(
                "a model of the exact kernel (n_components=None) has no plan_; set "
                "n_components to fit features."
            )
        return self.plan_

    # How the targets of a fit are read.
    _target_reader: Callable[[], TargetReader]
    # Whether fits on features need only sums over rows and a sample of them, so that
    # shards may be summed in place.
    _needs_sums_alone: ClassVar[bool] = False

    # Whether fits change the kernel after drawing the first features.
    _chooses_kernel: bool = False

    def _validate_params(self) -> None:
        if self.features == "local":
            raise ValueError(
                "got features='local', expected 'random' or 'nystrom'; for fits in "
                "cells use randkern.LocalRegressor or LocalClassifier with this "
                "estimator and n_components=None."
            )
        super()._validate_params()

    def _read_rows(self, X: Any, y: Any, sample_weight: Any, stream: Stream) -> FitData:
        """Return checked rows; store what is known of their columns and targets."""
        data = read(
            self,
            self._target_reader(),
            X,
            y,
            sample_weight,
            stream,
            exact=self.n_components is None,
            in_place=self._needs_sums_alone,
        )
        remember(self, data.targets.attributes)
        limit = memory_for(self.memory_limit, data.rows.like)
        return replace(data, limit=limit, stream=stream)

    def _read(self, X: Any, y: Any, sample_weight: Any, stream: Stream) -> FitData:
        """Return checked rows, a kernel resolved on them, and its features."""
        data = self._read_rows(X, y, sample_weight, stream)
        return self._drawn(data, self._kernel_or_default)

    def _drawn(self, data: FitData, kernel: Kernel) -> FitData:
        """Resolve a kernel on the rows and draw its features, which are stored."""
        rows = data.rows
        is_matrix = is_precomputed(kernel)
        if is_matrix and self.n_components is not None:
            raise ValueError(
                "Precomputed() needs an exact model, got n_components="
                f"{self.n_components}; use n_components=None."
            )
        names = getattr(self, "feature_names_in_", None)
        kernel = kernel._resolve(*data.sample, data.stream, names, self.table_encoder_)
        if is_matrix:
            known = rows.as_arrays()
            rows = ArrayRows(numbered_rows(kernel, known.X), known.Y, known.weight)
        data = replace(data, rows=rows, kernel=kernel)
        data = replace(data, plan=self._plan_of(data))
        forget(self, "coef_", "dual_coef_", "X_fit_")  # of an earlier fit
        self.kernel_ = kernel
        self.plan_ = data.plan
        if self.features == "random" and not self._chooses_kernel:
            check_features(data)
        return data

    def _plan_of(self, data: FitData) -> Plan | None:
        """Return features of the resolved kernel, None for the exact kernel."""
        if self.n_components is None:
            return None
        stream = data.stream.child("features")
        if self.features == "nystrom":
            return landmark_plan(
                data.kernel,
                *data.sample,
                check_count("n_components", self.n_components),
                stream,
                memory_limit=data.limit,
            )
        return fit_plan(
            data.kernel,
            *data.sample,
            check_components(self.n_components),
            stream,
            projection=self.projection,
            fourier=self.fourier,
        )

    @property
    def _many_targets(self) -> bool:
        """Whether results have an axis of targets, or of classes."""
        return self._n_outputs is not None

    def _drop_single_target(self, weights: np.ndarray) -> np.ndarray:
        """Return values (n, k), or (n,) for a vector of targets."""
        return weights if self._many_targets else weights[:, 0]

    def _as_coef(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (D, k) of features as (k, D), or as (D,) for one vector."""
        return weights.T if self._many_targets else weights[:, 0]

    def _values(self, X: Any) -> Any:
        """Return fitted values, (n,) or (n, k), of rows of any kind."""
        check_is_fitted(self)
        moved = isinstance(X, DeviceBlocks)
        return mapped_rows(
            self._values, X, lambda rows: self._values_of(rows, moved), self._n_outputs
        )

    @property
    def _model_weights(self) -> Any:
        """Weights of features, or of the rows of the fit."""
        return self.dual_coef_ if self.plan_ is None else self.coef_

    def _values_of(self, X: Rows, moved: bool = False) -> np.ndarray:
        """Return fitted values of checked rows.

        Weights of features are moved to the device of the rows; rows for an exact
        kernel are moved to that of the training rows, if these are on a device too.
        """
        weights = self._model_weights
        if moved and self.plan_ is not None:
            weights = ops_of(X).float64_like(weights, X)
        elif moved and is_tensor(weights):
            X = X.to(weights.device)
        check_same_device(X, weights)
        if self.plan_ is not None:
            weights = weights.T if weights.ndim == 2 else weights
            out = predict_by_features(self.plan_, weights, X)
        else:
            out = predict_by_rows(self.kernel_, self.X_fit_, weights, X)
        ops = ops_of(out)
        out += ops.float64_like(self.intercept_, out)
        if not ops.is_finite(out):
            raise ValueError(
                "predictions overflow: rows of X are too far from those of the fit "
                "for this kernel; scale the input down."
            )
        return out

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_") or hasattr(self, "dual_coef_")

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield from super()._facts()
        if self.plan_ is None:
            yield "kernel values", "exact"
        else:
            kind = "landmarks" if self.features == "nystrom" else "random features"
            yield kind, f"{self.plan_.n_components:,}"
        if hasattr(self, "alpha_"):
            yield "penalty α", f"{self.alpha_:.4g}"
        if hasattr(self, "noise_"):
            yield "noise variance", f"{self.noise_:.4g}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.array_api_support = True
        return tags


def check_same_device(X: Rows, weights: Array) -> None:
    """Raise unless rows and the weights of the model are on the same device."""
    expected = place_of(weights)
    actual = place_of(X)
    if expected != actual:
        raise ValueError(
            f"X is {actual}, but the model was fitted on {expected}; convert X to "
            "that, or fit the model on rows like X."
        )


def has_components(estimator: FeatureModel) -> bool:
    """Return whether rows can be added later: the exact kernel stores every row."""
    if estimator.n_components is None:
        raise AttributeError(
            "partial_fit needs random features, got the exact kernel "
            "(n_components=None), which stores all rows; set n_components, or use fit."
        )
    return True
