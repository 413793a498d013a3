"""What models on random features, or on the exact kernel, have in common."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from randkern._memory import resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._validation import MOST_COMPONENTS, Rows, place_of, validate_rows
from randkern.backend.namespace import ops_of
from randkern.data import DeviceBlocks, RowBlocks
from randkern.data.dask import is_dask, lazily
from randkern.features import fit_plan
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.kernels.draw import resolve_kernel
from randkern.models._predictions import predict_by_features, predict_by_rows
from randkern.models._rows import ArrayRows, StreamedRows
from randkern.models._streams import mapped_blocks, read_stream
from randkern.plan import Plan
from randkern.projections import PROJECTIONS

__all__ = ["FeatureModel", "check_same_device", "has_components"]


class FeatureModel(TakesKernel):
    """A model whose values are φ(x)·w, or Σ a_i k(x, x_i) for the exact kernel."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # resolve_kernel says what to pass
        "n_components": [Interval(Integral, 1, MOST_COMPONENTS, closed="both"), None],
        "projection": [StrOptions(set(PROJECTIONS))],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "random_state": ["random_state", np.random.Generator],
    }

    n_components: int | None
    projection: str
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
        """The plan, where there are random features."""
        assert self.plan_ is not None
        return self.plan_

    def _memory_for(self, rows: ArrayRows | StreamedRows) -> int:
        """Return the bytes that a fit to these rows may take where they lie."""
        limit = self.memory_limit
        if limit is None:
            limit = ops_of(rows.like).memory_limit(rows.like)
        return resolve_memory_limit(limit)

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[ArrayRows | StreamedRows, Stream]:
        """Return checked rows, the kernel resolved on them and its features drawn."""
        stream = root_stream(self.random_state)
        if not isinstance(X, (RowBlocks, DeviceBlocks)) and not is_dask(X):
            X = validate_rows(self, X, reset=True)
            Y, weight = self._read_targets(X, y, sample_weight)
            self._draw(X, weight, stream)
            return ArrayRows(X, Y, weight), stream
        if self.n_components is None:
            raise ValueError(
                "the exact kernel (n_components=None) needs all rows in memory, got "
                f"{type(X).__name__}; set n_components, or pass an array."
            )
        rows, sample = read_stream(self, X, y, sample_weight, stream)
        self._draw(*sample.rows(), stream)
        return rows, stream

    def _read_targets(
        self, X: Rows, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return targets (n, k) and weights of rows in memory, learning from them."""
        raise NotImplementedError

    def _draw(self, X: Rows, sample_weight: np.ndarray | None, stream: Stream) -> None:
        """Resolve the kernel on X and draw its features."""
        names = getattr(self, "feature_names_in_", None)
        self.kernel_ = resolve_kernel(
            self._given_kernel, X, sample_weight, stream, names, self.table_encoder_
        )
        self.plan_ = None
        if self.n_components is not None:
            self.plan_ = fit_plan(
                self.kernel_,
                X,
                sample_weight,
                int(self.n_components),
                stream.child("features"),
                projection=self.projection,
            )

    def _shaped(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (n, k) of rows, or (n,) where there is one target."""
        return weights if self._n_outputs is not None else weights[:, 0]

    def _transposed(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (D, k) of features as (k, D), or (D,) for one target."""
        return weights.T if self._n_outputs is not None else weights[:, 0]

    def _values(self, X: Any) -> np.ndarray:
        """Return fitted values, (n,) or (n, k), of rows or of blocks of them."""
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self._values, X, self._n_outputs)
        if isinstance(X, DeviceBlocks):
            return mapped_blocks(self, X, lambda rows: self._values_of(rows, True))
        if isinstance(X, RowBlocks):
            return mapped_blocks(self, X, self._values_of)
        return self._values_of(validate_rows(self, X, reset=False))

    def _values_of(self, X: Rows, moved: bool = False) -> np.ndarray:
        """Return fitted values of checked rows.

        Weights of features follow rows that were moved to a device.
        """
        weights = self.dual_coef_ if self.plan_ is None else self.coef_
        if moved and self.plan_ is not None:
            weights = ops_of(X).float64_like(weights, X)
        check_same_device(X, weights)
        return self._values_by(X, weights)

    def _values_by(self, X: Rows, weights: Any) -> Any:
        """Return the values of weights that lie where the rows do."""
        if self.plan_ is not None:
            weights = weights.T if weights.ndim == 2 else weights
            out = predict_by_features(self.plan_, weights, X)
        else:
            out = predict_by_rows(self.kernel_, self.X_fit_, weights, X)
        ops = ops_of(out)
        out += ops.float64_like(self.intercept_, out)
        if not ops.is_finite(out):
            raise ValueError(
                "predictions overflow: rows of X lie too far beyond those of the fit "
                "for this kernel; scale the input down."
            )
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_same_device(X: Rows, weights: Any) -> None:
    """Raise unless rows lie where the weights of the model do."""
    here, there = place_of(X), place_of(weights)
    if here != there:
        raise ValueError(
            f"the model was fitted on {there}, but got X on {here}; pass X as it was "
            "passed to fit."
        )


def has_components(estimator: FeatureModel) -> bool:
    """Tell whether rows can be added later: the exact kernel keeps every row."""
    if estimator.n_components is None:
        raise AttributeError(
            "partial_fit needs random features, but n_components=None is the exact "
            "kernel, which keeps every row; set n_components, or use fit."
        )
    return True
