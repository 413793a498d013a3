"""Rows on a Dask cluster: every worker sums over its partitions, trees join the sums.

Nothing but the plan (a few kilobytes), weights and sums crosses the network; the
projection is made again from its seed on each worker. Checked partitions stay with the
workers if they take a quarter of the cluster's memory at most; otherwise every pass
reads them again. A partition that is lost with its worker is read again in any case, as
Dask does with all lost results.

Workers sum up in arrays of the processor, or on a device, by its name: they check
arrays, and only what has passed is moved. Sums come back as arrays.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from sklearn.utils import check_array

from randkern._extras import import_extra
from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern._validation import FLOATS, Rows, canonical, check_block_weights
from randkern.backend.namespace import empty_on, ops_of
from randkern.backend.threads import on_one_thread
from randkern.blocks import DeviceBlocks
from randkern.blocks.dask import for_workers, is_dask, with_whole_rows
from randkern.models._feature_blocks import FeatureBlocks
from randkern.models._rows import (
    ArrayRows,
    Survey,
    joined,
    stored_bytes,
)
from randkern.models._streams import RowSample, Seen, check_dense
from randkern.models._systems import NormalEquations
from randkern.plan import Plan

__all__ = ["DaskParts", "DaskRows", "read_dask"]

# Sums joined by one task.
_FAN_IN = 4
# Share of the cluster's memory that checked partitions may take.
_KEPT_SHARE = 0.25
# Share of the memory limit of the devices that rows which stay there may take.
_DEVICE_SHARE = 0.5
_PURPOSE = "reading Dask collections"


@dataclass(frozen=True)
class DaskRows:
    """Partitions of checked rows with their targets, as delayed values.

    Each is a :class:`ArrayRows` once it is computed.
    """

    partitions: tuple[Any, ...]
    lengths: tuple[int, ...]
    n_targets: int
    dtype: np.dtype
    # Where workers sum up, and whether rows may stay there.
    device: str | None = None
    keep: bool = False

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @property
    def like(self) -> np.ndarray:
        """An array of the dtype of the rows: sums are joined on the host."""
        return np.empty((0, 0), self.dtype)

    def survey(self) -> Survey:
        """Return what one pass tells."""
        return self._survey

    @cached_property
    def _survey(self) -> Survey:
        surveys = self.mapped(ArrayRows.survey)
        total = surveys[0]
        for survey in surveys[1:]:
            total = total.joined(survey)
        return total

    def divided(self, scale: np.ndarray) -> DaskRows:
        """Return the rows with their targets divided by scales (k,)."""
        return replace(self, partitions=tuple(self._tasks(ArrayRows.divided, scale)))

    def mapped(self, function: Callable[[ArrayRows], Any]) -> list[Any]:
        """Return what `function` makes of each partition."""
        dask = import_extra("dask", _PURPOSE, "dask")
        return list(dask.compute(*self._tasks(function)))

    def summed(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of what `function` makes of each partition, by a tree."""
        dask = import_extra("dask", _PURPOSE, "dask")
        join = dask.delayed(_total, pure=False)
        sums = self._tasks(function, *args)
        while len(sums) > 1:
            sums = [join(sums[i : i + _FAN_IN]) for i in range(0, len(sums), _FAN_IN)]
        return sums[0].compute()

    def _tasks(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return delayed values of ``function(partition, *args)``."""
        dask = import_extra("dask", _PURPOSE, "dask")
        call = dask.delayed(_apply, pure=False)
        shared = dask.delayed((function, args), traverse=False)
        return [call(part, shared) for part in self.partitions]


class DaskParts:
    """Sums over features of rows on a cluster, for :class:`FeatureOperator`."""

    def __init__(self, plan: Plan, rows: DaskRows, weight_unit: float):
        self.rows = rows
        self.n_rows, self.like = rows.n_rows, rows.like
        self._shared = _Shared(pickle.dumps(plan), weight_unit, rows.device, rows.keep)

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return what :meth:`FeatureBlocks.cross` does, over all partitions."""
        return self.rows.summed(_cross, self._shared, means, sizes)

    def product(self, V: np.ndarray) -> np.ndarray:
        """Return what :meth:`FeatureBlocks.product` does, over all partitions."""
        # Products are taken in the dtype of the rows: no more need be sent.
        return self.rows.summed(_product, self._shared, V.astype(self.like.dtype))

    def normal_equations(self, n_targets: int) -> NormalEquations:
        """Return the normal equations of all partitions."""
        return self.rows.summed(_normal_equations, self._shared, n_targets)

    def sample(
        self, rows: np.ndarray
    ) -> tuple[Callable[[slice], np.ndarray], np.ndarray | None]:
        """Return what :meth:`FeatureBlocks.sample` does: features made here."""
        dask = import_extra("dask", _PURPOSE, "dask")
        call = dask.delayed(on_one_thread, pure=False)
        starts = np.cumsum([0, *self.rows.lengths])
        tasks = []
        for part, start, stop in zip(
            self.rows.partitions, starts[:-1], starts[1:], strict=True
        ):
            here = rows[(rows >= start) & (rows < stop)] - start
            if len(here):
                tasks.append(call(ArrayRows.take, part, here))
        found = joined(dask.compute(*tasks))
        here = replace(self._shared, device=None)
        return here.features(found).sample(np.arange(found.n_rows))


def read_dask(
    estimator: Any, X: Any, y: Any, sample_weight: Any, stream: Stream
) -> tuple[DaskRows, RowSample]:
    """Check all partitions, and learn from them what a fit needs to know.

    Sets what validation sets on the estimator. Returns the rows, and a sample of them
    that a kernel may be resolved on.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )
    dask = import_extra("dask", _PURPOSE, "dask")
    device = None
    if isinstance(X, DeviceBlocks):
        X, device = X.rows, X.device
    blocks = _partitions(X, y, sample_weight)
    _set_columns(estimator, X)
    worker = for_workers(estimator)
    call = dask.delayed(on_one_thread, pure=False)
    sampler = stream.child("first pass")
    tasks = [
        call(_first_look, block, worker, sampler.child(i), i, device)
        for i, block in enumerate(blocks)
    ]
    looks = dask.compute(*tasks)
    filled = [(block, look) for block, look in zip(blocks, looks, strict=True) if look]
    if not filled:
        raise ValueError("X has no rows: found 0 samples, 1 is required.")
    found = [look for _, look in filled]
    n_targets = estimator._learn_from([look.seen for look in found])
    dtype = np.result_type(*(look.dtype for look in found))
    sample = RowSample()
    for look in found:
        sample.join(look.sample)
    worker = for_workers(estimator)
    partitions = tuple(call(_checked_rows, block, worker, dtype) for block, _ in filled)
    n_bytes = sum(look.n_bytes for look in found)
    if n_bytes <= _KEPT_SHARE * _cluster_memory(estimator):
        partitions = dask.persist(*partitions)
    lengths = tuple(look.n_rows for look in found)
    keep = _may_stay(n_bytes, estimator.memory_limit, len(_workers()))
    return DaskRows(partitions, lengths, n_targets, dtype, device, keep), sample


def _may_stay(n_bytes: int, memory_limit: Any, n_workers: int) -> bool:
    """Tell whether so many bytes of rows may stay on the devices of all workers.

    Without a limit each worker sees how many do (see :meth:`ArrayRows.on`).
    """
    if memory_limit is None:
        return True
    limit = resolve_memory_limit(memory_limit) * max(1, n_workers)
    return n_bytes <= _DEVICE_SHARE * limit


@dataclass(frozen=True)
class _Look:
    """What the first look at a partition finds."""

    n_rows: int
    n_bytes: int
    dtype: np.dtype
    seen: Seen
    sample: RowSample


def _workers() -> list[dict[str, Any]]:
    """Return what is known of all workers; there are none without a cluster."""
    base = import_extra("dask.base", _PURPOSE, "dask")
    client: Any = getattr(base.get_scheduler(), "__self__", None)
    if not hasattr(client, "scheduler_info"):
        return []
    return list(client.scheduler_info(n_workers=-1)["workers"].values())


def _cluster_memory(estimator: Any) -> float:
    """Return the memory of all workers, or what this process may use without them."""
    workers = _workers()
    if not workers:
        return resolve_memory_limit(estimator.memory_limit)
    return sum(worker["memory_limit"] or 0 for worker in workers)


def _partitions(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Return delayed tuples (X, y, weight) of the partitions of X."""
    da = import_extra("dask.array", _PURPOSE, "dask")
    dask = import_extra("dask", _PURPOSE, "dask")
    columns = [each for each in (y, sample_weight) if each is not None]
    if isinstance(X, da.Array):
        X = with_whole_rows(X)
        blocks = [[part] for part in X.to_delayed().ravel()]
    else:
        blocks = [[part] for part in X.to_delayed()]
    for column in columns:
        if not is_dask(column):
            column = np.asarray(column)
            if not isinstance(X, da.Array) or np.isnan(X.shape[0]):
                raise TypeError(
                    "y and sample_weight must be Dask collections where X is a Dask "
                    "dataframe or has chunks of unknown size."
                )
            column = da.from_array(column, chunks=(X.chunks[0], *column.shape[1:]))
        if isinstance(column, da.Array):
            known = isinstance(X, da.Array) and not np.isnan(X.shape[0])
            if known and not np.isnan(column.shape[0]):
                if column.shape[0] != X.shape[0]:
                    raise ValueError(
                        f"X has {X.shape[0]} rows, but y or sample_weight has "
                        f"{column.shape[0]}."
                    )
                whole = {1: -1} if column.ndim == 2 else {}
                column = column.rechunk({0: X.chunks[0]} | whole)
        parts = np.ravel(np.asarray(column.to_delayed(), dtype=object))
        if len(parts) != len(blocks):
            raise ValueError(
                f"X has {len(blocks)} partitions, but y or sample_weight has "
                f"{len(parts)}; repartition them alike."
            )
        for block, part in zip(blocks, parts, strict=True):
            block.append(part)
    pack = dask.delayed(_packed, pure=False)
    has_weight = sample_weight is not None
    return [pack(*block[:2], block[2] if has_weight else None) for block in blocks]


def _packed(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    return X, y, weight


def _set_columns(estimator: Any, X: Any) -> None:
    """Set n_features_in_ and feature_names_in_ as validation does."""
    estimator.table_encoder_ = None
    estimator.n_features_in_ = int(X.shape[1])
    estimator.__dict__.pop("feature_names_in_", None)
    names = list(getattr(X, "columns", []))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def _checked(X: Any, width: int) -> Rows:
    """Return rows of a partition as floats."""
    if hasattr(X, "to_numpy") and not hasattr(X, "tocsr"):
        kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes}
        if kinds - set("buif"):
            raise ValueError(
                "a Dask dataframe must hold numbers only; encode its categories first."
            )
        X = X.to_numpy()
    X = canonical(check_array(X, accept_sparse="csr", dtype=list(FLOATS), order="C"))
    if X.shape[1] != width:
        raise ValueError(f"a partition has {X.shape[1]} columns, expected {width}.")
    return X


def _first_look(
    block: Any, estimator: Any, stream: Stream, number: int, device: str | None
) -> Any:
    X, y, weight = block
    if len(y) == 0 and X.shape[0] == 0:
        return None
    try:
        X = _checked(X, estimator.n_features_in_)
        if device is not None:
            check_dense(X)
            empty_on(device, X.dtype)  # or say which there are on this worker
        y = np.asarray(y)
        if len(y) != X.shape[0]:
            raise ValueError(f"it has {X.shape[0]} rows and {len(y)} targets")
        weight = check_block_weights(None if weight is None else np.asarray(weight), X)
        seen = estimator._seen_in(X, y, weight)
    except ValueError as error:
        raise ValueError(f"partition {number} of X: {error}") from error
    sample = RowSample()
    sample.add(X, weight, stream.generator())
    n_bytes = stored_bytes(X) + 8 * len(y)
    return _Look(X.shape[0], n_bytes, X.dtype, seen, sample)


def _checked_rows(block: Any, estimator: Any, dtype: np.dtype) -> ArrayRows:
    X, y, weight = block
    X = _checked(X, estimator.n_features_in_).astype(dtype, copy=False)
    weight = check_block_weights(None if weight is None else np.asarray(weight), X)
    return ArrayRows(X, *estimator._targets_of(X, np.asarray(y), weight))


def _apply(rows: ArrayRows, shared: tuple[Callable[..., Any], tuple]) -> Any:
    function, args = shared
    return on_one_thread(function, rows, *args)


@lru_cache(maxsize=2)
def _plan_of(pickled: bytes) -> Plan:
    """Return the plan: one for all tasks, which keeps what it has made of its seed.

    Plans of earlier fits keep that too: there are as few as two fits at a time need.
    """
    return pickle.loads(pickled)


@dataclass(frozen=True)
class _Shared:
    """What all sums over features share.

    The plan is pickled; weights are divided by their unit; rows are moved to the
    device, if there is one.
    """

    plan: bytes
    weight_unit: float
    device: str | None
    keep: bool

    def placed(self, rows: ArrayRows) -> ArrayRows:
        """Return the rows where they are summed up."""
        return rows if self.device is None else rows.on(self.device, self.keep)

    def features(self, rows: ArrayRows) -> FeatureBlocks:
        """Return the features of rows, made where they are summed up."""
        plan = _plan_of(self.plan)
        return FeatureBlocks(plan, self.placed(rows), weight_unit=self.weight_unit)


def _cross(
    rows: ArrayRows, shared: _Shared, means: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    made = shared.features(rows).cross(means, sizes)
    return ops_of(made).to_host(made)


def _product(rows: ArrayRows, shared: _Shared, V: np.ndarray) -> np.ndarray:
    features = shared.features(rows)
    like = features.rows.like
    made = features.product(ops_of(like).asarray(V, like))
    return ops_of(made).to_host(made)


def _normal_equations(
    rows: ArrayRows, shared: _Shared, n_targets: int
) -> NormalEquations:
    plan, rows = _plan_of(shared.plan), shared.placed(rows)
    statistics = NormalEquations.empty(
        plan.n_components, n_targets, shared.weight_unit, rows.like
    )
    statistics.add(plan, rows.X, rows.Y, rows.weight)
    return statistics.on_host()


def _total(values: Sequence[Any]) -> Any:
    total = copy.copy(values[0])
    if isinstance(total, np.ndarray):
        total = total.copy()
    for value in values[1:]:
        total = total + value
    return total
