"""Rows in parts on several devices: each sums over its rows, the first joins the sums.

Nothing but weights, targets and sums is copied between devices; the projection is made
on each from its seed. Sums are joined in the order of the parts, so that a fit gives
the same weights again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream
from randkern._validation import is_device_array, validate_rows
from randkern.backend.namespace import ops_of
from randkern.data import DeviceRows, row_blocks
from randkern.data.target_statistics import Survey
from randkern.models._feature_blocks import FeatureBlocks
from randkern.models._rows import ArrayRows, TrainingBlock
from randkern.models.normal_equations import NormalEquations
from randkern.plan import Plan, evaluate

__all__ = ["DeviceParts", "PartedRows", "read_devices", "values_in_parts"]

# Memory of the rows that stand for all of them where a kernel looks at its data.
_SAMPLE_BYTES = 16 * 10**6
_LEAST_SAMPLE = 1000
# Rows of a Gram matrix that are copied to another device at a time.
_COPIED_ROWS = 1024


@dataclass(frozen=True)
class PartedRows:
    """Checked rows with their targets and weights, those of each part on its device."""

    parts: tuple[ArrayRows, ...]

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    @property
    def n_targets(self) -> int:
        return self.parts[0].n_targets

    @property
    def dtype(self) -> Any:
        return self.parts[0].dtype

    @property
    def like(self) -> Any:
        """An array of the dtype of the rows, on the device of the first."""
        return self.parts[0].like

    def survey(self) -> Survey:
        """Return what one pass tells."""
        return self._survey

    @cached_property
    def _survey(self) -> Survey:
        first, *others = (part.survey() for part in self.parts)
        for survey in others:
            first = first.joined(survey)
        return first

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> PartedRows:
        """Return the rows with targets less shifts (k,), divided by scales (k,)."""
        return PartedRows(tuple(part.rescaled(shift, scale) for part in self.parts))

    def take(self, rows: np.ndarray) -> TrainingBlock:
        """Return rows by their numbers, which ascend, on the device of the first."""
        starts = np.cumsum([0, *(part.n_rows for part in self.parts)])
        ops, first = ops_of(self.like), self.parts[0]
        found = []
        for part, start, stop in zip(self.parts, starts[:-1], starts[1:], strict=True):
            here = rows[(rows >= start) & (rows < stop)] - start
            found.append(part.take(here))
        weight = None
        if first.weight is not None:
            weights = [ops.asarray(each.weight, first.weight) for each in found]
            weight = ops.concatenate(weights)
        return TrainingBlock(
            slice(0, len(rows)),
            ops.concatenate([ops.asarray(each.X, first.X) for each in found]),
            ops.concatenate([ops.asarray(each.Y, first.Y) for each in found]),
            weight,
        )

    def sample(self, stream: Stream) -> TrainingBlock:
        """Return rows that stand for all: all of them where they are few."""
        width = max(1, self.parts[0].X.shape[1] * self.dtype.itemsize)
        size = max(_LEAST_SAMPLE, _SAMPLE_BYTES // width)
        numbers = np.arange(self.n_rows)
        if self.n_rows > size:
            generator = stream.child("first pass").generator()
            numbers = np.sort(generator.choice(self.n_rows, size, replace=False))
        return self.take(numbers)


@dataclass(frozen=True)
class DeviceSample:
    """Rows that stand for all, on the device of the first."""

    block: TrainingBlock

    def rows(self) -> tuple[Any, Any]:
        """Return the sampled rows and their weights, None if all of these are 0."""
        weight = self.block.weight
        if weight is not None and not (weight > 0).any():
            weight = None
        return self.block.X, weight


class DeviceParts:
    """Sums over features of rows on several devices, for :class:`FeatureOperator`.

    Parameters
    ----------
    plan : Plan
    rows : PartedRows
    weight_unit : float
    kept_bytes : int
        Memory for features on each device.
    block : int, optional
        Rows of features that are made at a time.
    """

    def __init__(
        self,
        plan: Plan,
        rows: PartedRows,
        weight_unit: float,
        kept_bytes: int = 0,
        block: int | None = None,
    ):
        self.plan, self.rows, self.weight_unit = plan, rows, weight_unit
        self.n_rows, self.like = rows.n_rows, rows.like
        here = [part.X.device for part in rows.parts]
        kept = [kept_bytes // here.count(device) for device in here]
        pairs = list(zip(rows.parts, kept, strict=True))
        self._features = _on_all(
            lambda pair: FeatureBlocks(
                plan, pair[0], pair[1], weight_unit=weight_unit, block=block
            ),
            pairs,
        )

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> Any:
        """Return what :meth:`FeatureBlocks.cross` does, over all parts."""
        return self._summed(lambda features: features.cross(means, sizes))

    def product(self, V: Any) -> Any:
        """Return what :meth:`FeatureBlocks.product` does, over all parts."""
        ops = ops_of(V)

        def product(features: FeatureBlocks) -> Any:
            return features.product(ops.asarray(V, features.rows.like))

        return self._summed(product)

    def _summed(self, function: Callable[[FeatureBlocks], Any]) -> Any:
        """Return the sum, on the first device, of what is made of each part."""
        like = ops_of(self.like).float64_like
        first, *others = _on_all(function, self._features)
        for each in others:
            first += like(each, self.like)
        return first

    def sample(self, rows: np.ndarray) -> tuple[Callable[[slice], Any], Any]:
        """Return what :meth:`FeatureBlocks.sample` does: made on the first device."""
        block = self.rows.take(rows)
        weight = None if block.weight is None else block.weight / self.weight_unit
        return lambda columns: evaluate(self.plan, block.X, columns), weight

    def normal_equations(self, n_targets: int) -> NormalEquations:
        """Return the normal equations of all parts, on the first device."""

        def of_part(features: FeatureBlocks) -> NormalEquations:
            rows, D = features.rows, self.plan.n_components
            made = NormalEquations.empty(D, n_targets, self.weight_unit, rows.like)
            assert isinstance(rows, ArrayRows)
            made.add(self.plan, rows.X, rows.Y, rows.weight)
            return made

        like = ops_of(self.like).float64_like
        total, *others = _on_all(of_part, self._features)
        for part in others:
            for rows in row_blocks(self.plan.n_components, _COPIED_ROWS):
                total.gram[rows] += like(part.gram[rows], self.like)
            total.cross += like(part.cross, self.like)
            total.feature_sum += like(part.feature_sum, self.like)
            total.target_sum += like(part.target_sum, self.like)
            total.weight_sum += part.weight_sum
        return total


def read_devices(
    estimator: Any, X: DeviceRows, y: Any, sample_weight: Any, stream: Stream
) -> tuple[PartedRows, DeviceSample]:
    """Check all parts, and share out targets and weights between their devices.

    Sets what validation sets on the estimator. Returns the rows, and a sample of them
    that a kernel may be resolved on.
    """
    parts = _checked_parts(estimator, X, reset=True)
    first = parts[0]
    # Stands for all rows where targets and weights are checked beside them.
    outline = first[:1, :1].expand(len(X), 1)
    Y, weight = estimator._read_targets(outline, y, sample_weight)
    like = ops_of(first).float64_like
    rows, start = [], 0
    for part in parts:
        here = slice(start, start + len(part))
        weights = None if weight is None else like(weight[here], part)
        rows.append(ArrayRows(part, like(Y[here], part), weights))
        start = here.stop
    parted = PartedRows(tuple(rows))
    return parted, DeviceSample(parted.sample(stream))


def values_in_parts(model: Any, X: DeviceRows) -> Any:
    """Return fitted values, made where the rows are, on the device of the model."""
    check_is_fitted(model)
    weights = model.dual_coef_ if model.plan_ is None else model.coef_
    like = ops_of(weights).float64_like

    def of_part(part: Any) -> Any:
        if model.plan_ is None:  # the rows of the fit are on one device
            return model._values_by(part.to(weights.device), weights)
        return model._values_by(part, ops_of(part).float64_like(weights, part))

    values = _on_all(of_part, _checked_parts(model, X, reset=False))
    return ops_of(weights).concatenate([like(each, weights) for each in values])


def _checked_parts(estimator: Any, X: DeviceRows, *, reset: bool) -> list[Any]:
    """Return the parts as rows checked for the estimator."""
    if not is_device_array(X.parts[0]):
        raise TypeError(
            "DeviceRows are computed on where they lie: set the environment variable "
            "SCIPY_ARRAY_API=1 before SciPy or scikit-learn is imported, and call "
            "under sklearn.config_context(array_api_dispatch=True)."
        )
    first, *others = X.parts
    checked = [validate_rows(estimator, first, reset=reset)]
    return checked + [validate_rows(estimator, part, reset=False) for part in others]


def _on_all(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return what `function` makes of each item, side by side."""
    with ThreadPoolExecutor(len(items), thread_name_prefix="randkern-device") as pool:
        return list(pool.map(function, items))
