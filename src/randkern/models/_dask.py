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
import functools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern._validation import check_block_weights
from randkern.backend.namespace import empty_on, ops_of
from randkern.backend.threads import on_one_thread
from randkern.data import DeviceBlocks
from randkern.data.dask import (
    READING_DASK,
    checked_partition,
    for_workers,
    joined_by_tree,
    partitions,
    set_columns,
)
from randkern.data.sample import RowSample
from randkern.data.target_statistics import Survey
from randkern.models._feature_blocks import FeatureBlocks
from randkern.models._rows import (
    ArrayRows,
    joined,
    stored_bytes,
)
from randkern.models._streams import Seen, check_dense
from randkern.models.normal_equations import NormalEquations
from randkern.plan import Plan

__all__ = ["DaskParts", "DaskRows", "read_dask"]

# Share of the cluster's memory that checked partitions may take.
_KEPT_SHARE = 0.25
# Share of the memory limit of the devices that rows which stay there may take.
_DEVICE_SHARE = 0.5


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

    @functools.cached_property
    def _survey(self) -> Survey:
        first, *others = self.mapped(ArrayRows.survey)
        return functools.reduce(Survey.joined, others, first)

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> DaskRows:
        """Return the rows with targets less shifts (k,), divided by scales (k,)."""
        tasks = self._tasks(ArrayRows.rescaled, shift, scale)
        return replace(self, partitions=tuple(tasks))

    def mapped(self, function: Callable[[ArrayRows], Any]) -> list[Any]:
        """Return what `function` makes of each partition."""
        dask = import_extra("dask", READING_DASK, "dask")
        return list(dask.compute(*self._tasks(function)))

    def summed(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of what `function` makes of each partition, by a tree."""
        return joined_by_tree(_total, self._tasks(function, *args)).compute()

    def _tasks(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return delayed values of ``function(partition, *args)``."""
        dask = import_extra("dask", READING_DASK, "dask")
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
        dask = import_extra("dask", READING_DASK, "dask")
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
    dask = import_extra("dask", READING_DASK, "dask")
    device = None
    if isinstance(X, DeviceBlocks):
        X, device = X.rows, X.device
    blocks = partitions(X, y, sample_weight)
    set_columns(estimator, X)
    worker = for_workers(estimator)
    call = dask.delayed(on_one_thread, pure=False)
    sampler = stream.child("first pass")
    tasks = [
        call(_first_look, block, worker, sampler.child(i), i, device)
        for i, block in enumerate(blocks)
    ]
    found = joined_by_tree(_Look.joined, tasks).compute()
    if not found.n_rows:
        raise ValueError("X has no rows: found 0 samples, 1 is required.")
    n_targets = estimator._learn_from(found.seen)
    dtype = np.result_type(*found.dtypes)
    worker = for_workers(estimator)
    rows = tuple(
        call(_checked_rows, block, worker, dtype)
        for block, n in zip(blocks, found.lengths, strict=True)
        if n
    )
    if found.n_bytes <= _KEPT_SHARE * _cluster_memory(estimator):
        rows = dask.persist(*rows)
    lengths = tuple(n for n in found.lengths if n)
    keep = _may_stay(found.n_bytes, estimator.memory_limit, len(_workers()))
    return DaskRows(rows, lengths, n_targets, dtype, device, keep), found.sample


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
    """What the first look at some partitions finds."""

    # Of every partition; all else of those with rows.
    lengths: tuple[int, ...]
    n_bytes: int
    dtypes: frozenset[np.dtype]
    seen: list[Seen]
    sample: RowSample

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @classmethod
    def joined(cls, looks: Sequence[_Look]) -> _Look:
        """Return what was found in the partitions of all, in their order."""
        return cls(
            tuple(n for look in looks for n in look.lengths),
            sum(look.n_bytes for look in looks),
            frozenset().union(*(look.dtypes for look in looks)),
            [seen for look in looks for seen in look.seen],
            RowSample.joined(look.sample for look in looks),
        )


def _workers() -> list[dict[str, Any]]:
    """Return what is known of all workers; there are none without a cluster."""
    base = import_extra("dask.base", READING_DASK, "dask")
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


def _first_look(
    block: Any, estimator: Any, stream: Stream, number: int, device: str | None
) -> _Look:
    X, y, weight = block
    sample = RowSample()
    if len(y) == 0 and X.shape[0] == 0:
        return _Look((0,), 0, frozenset(), [], sample)
    try:
        X = checked_partition(X, estimator.n_features_in_)
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
    sample.add(X, weight, stream.generator())
    n_bytes = stored_bytes(X) + 8 * len(y)
    return _Look((X.shape[0],), n_bytes, frozenset([X.dtype]), [seen], sample)


def _checked_rows(block: Any, estimator: Any, dtype: np.dtype) -> ArrayRows:
    X, y, weight = block
    X = checked_partition(X, estimator.n_features_in_).astype(dtype, copy=False)
    weight = check_block_weights(None if weight is None else np.asarray(weight), X)
    return ArrayRows(X, *estimator._targets_of(X, np.asarray(y), weight))


def _apply(rows: ArrayRows, shared: tuple[Callable[..., Any], tuple]) -> Any:
    function, args = shared
    return on_one_thread(function, rows, *args)


@functools.lru_cache(maxsize=2)
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
