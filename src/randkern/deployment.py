"""What a fitted model computes, for modules of PyTorch and for ONNX operators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from randkern import models
from randkern.backend.namespace import ops_of
from randkern.datasets.schema import TableSchema
from randkern.features import NystromFeatures, RandomFeatures
from randkern.kernels import Kernel
from randkern.metric import MetricLearner
from randkern.models import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    KernelQuantileRegressor,
    LocalClassifier,
    LocalRegressor,
)
from randkern.plan import Plan
from randkern.tabular import TabularEncoder
from randkern.tabular.exact_logistic import ExactLogistic
from randkern.tabular.exact_ridge import ExactRidge

__all__ = [
    "WeightedSum",
    "as_fitted",
    "categories_of",
    "check_numbers",
    "encoder_of",
    "on_host",
    "schema_of",
    "weighted_sum",
]

# Models whose predictions are weighted sums of features, or of kernel values.
_MODELS = tuple(
    {getattr(models, name) for name in models.__all__}
    - {GaussianProcessClassifier, LocalClassifier, LocalRegressor}
)


class WeightedSum(NamedTuple):
    """What a fitted model computes of a row: columns times weights, plus a constant.

    The columns are the features of `plan`, the values of `kernel` with `rows`, or those
    of the row itself. Weights are (m,) or (m, k); without weights the columns are the
    result, and with `sorts` the results of a row are sorted. All are dense, in float64.
    """

    weights: np.ndarray | None = None
    constant: np.ndarray | None = None
    plan: Plan | None = None
    kernel: Kernel | None = None
    rows: np.ndarray | None = None
    sorts: bool = False


def weighted_sum(model: Any) -> WeightedSum:
    """Return what a fitted model computes, or raise a TypeError that names it."""
    check_numbers(model)
    if isinstance(model, (ExactLogistic, ExactRidge)):
        kernel = model.kernel
        rows = on_host(model.X)
        return WeightedSum(model.dual, model.intercept, None, kernel, rows)
    if isinstance(model, (NystromFeatures, RandomFeatures)):
        return WeightedSum(plan=model.plan_)
    if isinstance(model, MetricLearner):
        return WeightedSum(on_host(model.components_).T)
    if isinstance(model, StandardScaler):
        ones = np.ones(model.n_features_in_)
        scale = 1.0 / (ones if model.scale_ is None else model.scale_)
        mean = 0.0 * ones if model.mean_ is None else model.mean_
        return WeightedSum(np.diag(scale), -mean * scale)
    if not isinstance(model, _MODELS):
        raise TypeError(
            "expected a model of tables, a ridge model, a support vector machine, "
            "KernelLogistic, GaussianProcessRegressor, RandomFeatures, "
            "NystromFeatures, MetricLearner, TabularEncoder, StandardScaler, or a "
            f"pipeline of these, got {type(model).__name__}."
        )
    if getattr(model, "n_neighbors", None) is not None:
        raise ValueError(
            f"{type(model).__name__} searches for the nearest rows of every prediction "
            "(n_neighbors), which is no module; use n_neighbors=None, with "
            "n_components for many rows."
        )
    weights = on_host(model._model_weights)
    constant = on_host(model.intercept_)
    weights = weights if model.plan_ is None else weights.T
    if isinstance(model, GaussianProcessRegressor):
        scale = np.array(model._target_scale)
        mean = np.array(model._target_mean)
        if weights.ndim == 1:
            scale, mean = scale[0], mean[0]
        weights, constant = weights * scale, constant * scale + mean
    sorts = isinstance(model, KernelQuantileRegressor) and weights.ndim == 2
    if model.plan_ is None:
        rows = on_host(model.X_fit_)
        return WeightedSum(weights, constant, None, model.kernel_, rows, sorts)
    solved = on_host(model.plan_.solve(weights, transposed=True))
    return WeightedSum(solved, constant, model.plan_.raw, sorts=sorts)


def check_numbers(model: Any) -> None:
    """Raise if a model was fitted to categories, which only tables hold, or texts."""
    texts = getattr(model, "_texts", None)
    if texts is not None:
        raise ValueError(
            f"{type(model).__name__} was fitted to free text "
            f"({', '.join(map(repr, texts.columns))}), which PyTorch and ONNX cannot "
            "encode; fit it without these columns, or predict with randkern.load."
        )
    encoder = getattr(model, "table_encoder_", None)
    if encoder is not None and encoder.levels:
        names = ", ".join(repr(encoder.names[j]) for j in encoder.levels)
        raise ValueError(
            f"{type(model).__name__} was fitted to categories ({names}), which tensors "
            "and ONNX operators do not support; use randkern.TabularEncoder in a "
            "pipeline."
        )


def encoder_of(model: Any) -> TabularEncoder | None:
    """Return what encodes the tables of a model, or of the first step of a pipeline."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    if hasattr(first, "model_"):
        first = first.model_.members[0].encoder
    return first if isinstance(first, TabularEncoder) else None


def categories_of(model: Any) -> set[str]:
    """Return the names of the columns of a table that a model reads as categories."""
    return _columns_of(model, "category")


def schema_of(model: Any) -> TableSchema | None:
    """Return how to read tables for a model, None if its columns have no names.

    It is stored by the commands of ``randkern``; for other models it follows from
    what encodes their tables.
    """
    stored = getattr(model, "table_schema_", None)
    if stored is not None:
        return stored
    levels = known_levels(model)
    dates = dates_of(model)
    names = getattr(model, "feature_names_in_", ())
    kinds: dict[str, Any] = {
        name: "category" if name in levels else "date" if name in dates else "number"
        for name in names
    }
    texts = getattr(model, "_texts", None)
    kinds.update(dict.fromkeys([] if texts is None else texts.columns, "text"))
    return TableSchema(kinds) if kinds else None


def as_fitted(model: Any, frame: Any) -> Any:
    """Return a table of :func:`schema_of` with the types that the model expects.

    Categories are numbers if they were at the fit, and days are dates.
    """
    frame = frame.copy(deep=False)
    for name, levels in known_levels(model).items():
        if not all(level is None or isinstance(level, str) for level in levels):
            known = {str(level): level for level in levels}
            frame[name] = [known.get(text, text) for text in frame[name].tolist()]
    for name in dates_of(model):
        frame[name] = (frame[name] * 86_400e6).astype("M8[us]")
    return frame


def known_levels(model: Any) -> dict[str, np.ndarray]:
    """Return the categories that a model knows, by names of columns."""
    encoder: Any = encoder_of(model)
    if encoder is not None and hasattr(encoder, "feature_names_in_"):
        names = encoder.feature_names_in_
        return {names[j]: levels for j, levels in encoder.levels_.items()}
    table = getattr(model, "table_encoder_", None)
    if table is None:
        return {}
    return {table.names[j]: levels for j, levels in table.levels.items()}


def dates_of(model: Any) -> set[str]:
    """Return the names of the columns of a table that a model reads as dates."""
    return _columns_of(model, "date", "duration")


def _columns_of(model: Any, *kinds: str) -> set[str]:
    """Return the names of the columns of some kinds of a model's table."""
    encoder = encoder_of(model)
    names = getattr(encoder, "feature_names_in_", None)
    if encoder is None or names is None:
        return set()
    return {*names[np.isin(encoder.kinds_, kinds)]}


def on_host(values: Any) -> np.ndarray:
    """Return numbers of a model, from any device, as a dense array in float64."""
    ops = ops_of(values)
    return np.asarray(ops.to_host(ops.densified(values)), dtype=np.float64)
