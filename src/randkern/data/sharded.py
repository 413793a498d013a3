"""Partitions of Dask collections as training data.

A partition is summed in place, by its worker. Only plans (a few kilobytes), weights,
targets and sums are moved; projections are redrawn from their seeds. Sums are NumPy
arrays, reduced by a tree. Workers may compute on devices, one each.

Checked partitions are persisted on the workers if they take at most a quarter of the
cluster's memory; otherwise every pass reads them again. Dask recomputes partitions that
are lost with their worker.
"""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from randkern._extras import import_extra
from randkern._fitting import forget
from randkern._memory import (
    may_stay_with_workers,
    resolve_memory_limit,
)
from randkern._random import Stream
from randkern._validation import (
    Array,
    check_has_targets,
    check_weights,
    is_dask_collection,
    is_tensor,
    read_values,
    validate_rows,
)
from randkern.backend.compiled_loops import on_one_thread
from randkern.backend.namespace import empty_on, ops_of
from randkern.data.blocks import RowBlocks
from randkern.data.devices import DeviceBlocks, check_dense, split_device
from randkern.data.passes import PassSums
from randkern.data.sample import RowSample
from randkern.data.training_data import (
    ArrayRows,
    FitData,
    KnownTargets,
    TargetReader,
    TrainingData,
    added,
    merge,
    placed,
    stored_bytes,
    weighted_sample,
)

_Method = TypeVar("_Method", bound=Callable[..., Any])

READING_DASK = "reading Dask collections"
# Number of values that one task reduces.
_FAN_IN = 4


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or dataframe, possibly in DeviceBlocks."""
    return is_dask_collection(split_device(X)[0])


def lazily(
    method: Any,
    X: Any,
    width: int | None,
    dtype: Any = float,
    names: Sequence[Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Any:
    """Return an estimator's method of each partition, as a collection of X's kind.

    The result has one entry per row (`width` None) or `width` columns. Of a dataframe
    it is a series or a dataframe with the index, partitions and divisions of X, so that
    ``X.assign(p=...)`` takes it; its columns are `names`, by default the classes of a
    classifier if there are as many, else numbers. `arguments` follow the rows.
    """
    da = import_extra("dask.array", READING_DASK, "dask")
    X, device = split_device(X)
    estimator = method.__self__
    method = getattr(for_workers(estimator), method.__name__)
    empty = np.empty((0,) if width is None else (0, width), dtype)
    if width is not None and names is None:
        classes = getattr(estimator, "classes_", None)
        named = classes is not None and len(classes) == width
        names = ops_of(classes).to_host(classes).tolist() if named else range(width)
    call = _PartitionCall(method, arguments or {}, device, empty, names)
    if not isinstance(X, da.Array):
        meta = call.with_index(empty, X._meta)
        return X.map_partitions(call.of_frame, meta=meta, enforce_metadata=False)
    X = row_chunks(X)
    if width is None:
        return X.map_blocks(call.of_chunk, drop_axis=1, meta=empty)
    return X.map_blocks(call.of_chunk, chunks=(X.chunks[0], (width,)), meta=empty)


def by_partition(
    width: Callable[[Any], int | None],
    dtype: Callable[[Any], Any] = lambda model: float,
) -> Callable[[_Method], _Method]:
    """Decorate a method of rows, whose results for Dask collections are then lazy.

    `width` and `dtype` return those of the results of an estimator, as
    :func:`lazily` takes them.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def of_rows(model: Any, X: Any) -> Any:
            if is_dask(X):
                of_model = getattr(model, method.__name__)
                return lazily(of_model, X, width(model), dtype(model))
            return method(model, X)

        return cast(_Method, of_rows)

    return decorate


@dataclass(frozen=True, eq=False)
class _PartitionCall:
    """An estimator's method, called for partitions.

    `empty` is the result for no rows, and `names` are those of its columns.
    """

    method: Any
    arguments: Mapping[str, Any]
    device: str | None
    empty: np.ndarray
    names: Sequence[Any] | None

    def of_chunk(self, X: Any, block_info: Any = None) -> Any:
        """Return the result for a chunk of an array."""
        return self._values(X, block_info[0]["chunk-location"][0] if block_info else 0)

    def of_frame(self, X: Any, partition_info: Any = None) -> Any:
        """Return the result for a partition of a dataframe, with its index."""
        number = partition_info["number"] if partition_info else 0
        return self.with_index(self._values(X, number), X)

    def _values(self, X: Any, number: int) -> Any:
        """Return the result; several arrays are placed side by side."""
        if not X.shape[0]:
            return self.empty
        rows = X if self.device is None else DeviceBlocks(X, self.device)
        try:
            result = self.method(rows, **self.arguments)
        except ValueError as error:
            raise ValueError(f"partition {number} of X: {error}") from error
        if isinstance(result, tuple):
            result = np.hstack([part.reshape(X.shape[0], -1) for part in result])
        return result

    def with_index(self, values: np.ndarray, X: Any) -> Any:
        """Return values as a series or dataframe with the index of the dataframe X."""
        pandas = import_extra("pandas", READING_DASK, "dask")
        if self.names is None:
            return pandas.Series(values, index=X.index)
        return pandas.DataFrame(values, index=X.index, columns=list(self.names))


def column_of(result: Any, columns: int | list[int]) -> Any:
    """Return a column, or several, of a result of `lazily` with numbers as names."""
    return result[columns] if hasattr(result, "divisions") else result[:, columns]


def row_chunks(X: Any) -> Any:
    """Return a Dask array whose chunks hold whole rows."""
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got a Dask array of shape {X.shape}; a single column "
            "is X.reshape(-1, 1), a single row X.reshape(1, -1)."
        )
    return X.rechunk({1: -1})


def for_workers(estimator: Any) -> Any:
    """Return the estimator without parts that cannot or need not leave this process.

    Its tensors are moved to the host, which every process can read.
    """
    worker = copy.copy(estimator)
    for name, value in vars(estimator).items():
        if "callback" in name:  # scikit-learn's
            delattr(worker, name)
        elif is_tensor(value):
            setattr(worker, name, value.cpu())
    if hasattr(worker, "solver"):
        worker.solver = "auto"  # not a solver's callback
    return worker


def dask_blocks(X: Any, y: Any, sample_weight: Any) -> RowBlocks:
    """Return the partitions of a collection as blocks that this process reads.

    A pass over the rows computes them one at a time; every pass recomputes them unless
    the collection is persisted.
    """
    parts = partitions(X, y, sample_weight)
    return RowBlocks(lambda: (part.compute() for part in parts))


def reduced_by_tree(join: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """Return the delayed reduction of delayed values by workers, a few at a time."""
    join = delayed(join)
    while True:
        groups = range(0, len(values), _FAN_IN)
        values = [join(values[i : i + _FAN_IN]) for i in groups]
        if len(values) == 1:
            return values[0]


def delayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls are tasks of workers."""
    dask = import_extra("dask", READING_DASK, "dask")
    return dask.delayed(function, pure=False)


def partitions(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Return delayed tuples (X, y, weight) of the partitions of X."""
    da = import_extra("dask.array", READING_DASK, "dask")
    inputs = [part for part in (X, y, sample_weight) if part is not None]
    if all(is_dask(part) and not isinstance(part, da.Array) for part in inputs):
        return _packed_frames(X, y, sample_weight)
    if isinstance(X, da.Array):
        X = row_chunks(X)
    blocks = _delayed_parts(X)
    targets = _matching_parts(y, X, len(blocks))
    weights = _matching_parts(sample_weight, X, len(blocks))
    return list(map(delayed(_packed), blocks, targets, weights))


def _packed_frames(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Return delayed tuples of the partitions of dataframes and series.

    One expression holds them all, so that files are read once, with the columns that
    any of them needs. It is simplified but not tuned: Dask would merge partitions of
    files of which few columns are read, and for each collection differently.
    """
    frames = import_extra("dask.dataframe", READING_DASK, "dask")
    for column in (y, sample_weight):
        if column is None:
            continue
        _check_as_many(X.npartitions, column.npartitions)
        known = X.known_divisions and column.known_divisions
        if known and X.divisions != column.divisions:
            raise ValueError(
                "X and y or sample_weight have different divisions; pass "
                "y.repartition(divisions=X.divisions)."
            )
    packed = frames.map_partitions(
        _packed,
        X,
        y,
        sample_weight,
        meta=(None, object),
        enforce_metadata=False,
        align_dataframes=False,
    )
    return list(_delayed_parts(packed))


def _delayed_parts(collection: Any) -> Any:
    if hasattr(collection, "simplify"):  # a dataframe or series
        parts = collection.simplify().to_delayed(optimize_graph=False)
    else:
        parts = collection.to_delayed()
    return np.ravel(np.asarray(parts, dtype=object))


def _check_as_many(n_parts: int, n_others: int) -> None:
    if n_others != n_parts:
        raise ValueError(
            f"X has {n_parts} partitions, but y or sample_weight has {n_others}; "
            "repartition them to match, or take both from one dataframe, as in "
            "model.fit(ddf[columns], ddf[target])."
        )


def _matching_parts(column: Any, X: Any, n_parts: int) -> Any:
    """Return the parts of y or sample_weight that belong to the partitions of X."""
    if column is None:
        return [None] * n_parts
    da = import_extra("dask.array", READING_DASK, "dask")
    known = isinstance(X, da.Array) and not np.isnan(X.shape[0])
    if not is_dask(column):
        if not known:
            raise TypeError(
                "y and sample_weight must be Dask collections if X is a Dask dataframe "
                "or has chunks of unknown size."
            )
        column = np.asarray(column)
        column = da.from_array(column, chunks=(X.chunks[0], *column.shape[1:]))
    if known and isinstance(column, da.Array) and not np.isnan(column.shape[0]):
        if column.shape[0] != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows, but y or sample_weight has "
                f"{column.shape[0]}; they must be equal."
            )
        all_columns = {1: -1} if column.ndim == 2 else {}
        column = column.rechunk({0: X.chunks[0]} | all_columns)
    parts = _delayed_parts(column)
    _check_as_many(n_parts, len(parts))
    return parts


def _packed(X: Any, y: Any, weight: Array) -> tuple[Any, Any, Any]:
    return X, y, weight


def set_columns(estimator: Any, X: Any) -> None:
    """Set n_features_in_ and feature_names_in_, as validation does.

    Dataframes must hold numbers: partitions would number their categories differently.
    """
    kinds = {getattr(dtype, "kind", "O") for dtype in getattr(X, "dtypes", [])}
    if kinds - set("buif"):
        raise ValueError(
            "a Dask dataframe must have numeric columns only; encode its "
            "categories first."
        )
    estimator.table_encoder_ = None
    estimator.n_features_in_ = int(X.shape[1])
    forget(estimator, "feature_names_in_")
    names = list(getattr(X, "columns", []))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


_Step = tuple[Callable[..., Any], tuple[Any, ...]]


class Shards(TrainingData):
    """Partitions of checked rows with their targets, as delayed values.

    Each computes to an :class:`ArrayRows`. `device` is the device that workers compute
    on, by its name on each worker (None: the host), to which every pass moves rows.
    """

    in_one_place = False

    def __init__(
        self,
        partitions: Sequence[Any],
        lengths: Sequence[int],
        n_targets: int,
        like: np.ndarray,
        device: str | None = None,
    ):
        self.partitions = tuple(partitions)
        self.lengths = tuple(lengths)
        self.n_rows = sum(lengths)
        self.n_targets = n_targets
        self.like = like
        self._device = device
        # Functions and arguments that are applied to partitions.
        self._steps: tuple[_Step, ...] = ()

    def map(self, function: Callable[..., Any], *args: Any) -> Shards:
        shards = copy.copy(self)
        shards._steps = (*self._steps, (function, args))
        shards._statistics = None
        return shards

    def rescaled(self, shift: Any, scale: Any) -> Shards:
        return self.map(ArrayRows.rescaled, shift, scale)

    def reduce(self, function: Callable[..., Any], *args: Any) -> Any:
        dask = import_extra("dask", READING_DASK, "dask")
        call = delayed(_apply)
        # Pickled, so that all tasks of a worker share a plan: see _unpickled.
        shared = (self._device, pickle.dumps(self._steps), function, args)
        shared = dask.delayed(shared, traverse=False)
        tasks = [call(part, shared) for part in self.partitions]
        return reduced_by_tree(_total, tasks).compute()

    def take(self, numbers: np.ndarray) -> ArrayRows:
        """Return the rows of these ascending numbers."""
        dask = import_extra("dask", READING_DASK, "dask")
        call = delayed(_changed)
        starts = np.cumsum([0, *self.lengths])
        cuts = np.searchsorted(numbers, starts)
        tasks = [
            call(part, ((ArrayRows.take, (numbers[low:high] - start,)), *self._steps))
            for part, start, low, high in zip(
                self.partitions, starts, cuts, cuts[1:], strict=False
            )
            if low < high
        ]
        return merge(dask.compute(*tasks))


# -- tasks of workers --------------------------------------------------------------


def _apply(rows: ArrayRows, shared: tuple[Any, ...]) -> Any:
    """Apply functions to a partition; return arrays on the host."""
    device, steps, function, args = shared

    def result() -> Any:
        placed_rows = rows if device is None else rows.on(device)
        changed = _changed(placed_rows, _unpickled(steps))
        return placed(function(changed, *args), np.empty(0))

    return on_one_thread(result)


def _changed(rows: Any, steps: tuple[_Step, ...]) -> Any:
    for change, settings in steps:
        rows = change(rows, *settings)
    return rows


@functools.lru_cache(maxsize=2)
def _unpickled(steps: bytes) -> tuple[_Step, ...]:
    """Return functions and their arguments, with one plan for all tasks.

    Plans cache the entries that they draw, so that only as many are held as two
    simultaneous fits need.
    """
    return pickle.loads(steps)


def _total(values: Sequence[Any]) -> Any:
    """Return the sum of results, without modifying them, as Dask may need them."""
    first, *others = values
    return functools.reduce(added, others, copy.deepcopy(first))


@dataclass(frozen=True)
class _FirstPass:
    """The results of the first pass over some partitions."""

    # Of every partition; all other fields are of those with rows.
    lengths: tuple[int, ...]
    n_bytes: int
    dtypes: frozenset[np.dtype]
    summaries: list[Any]
    sums: tuple[PassSums, ...]
    sample: RowSample

    @classmethod
    def merged(cls, passes: Sequence[_FirstPass]) -> _FirstPass:
        """Return the results of all partitions, in their order."""
        return cls(
            tuple(n for part in passes for n in part.lengths),
            sum(part.n_bytes for part in passes),
            frozenset().union(*(part.dtypes for part in passes)),
            [summary for part in passes for summary in part.summaries],
            tuple(value for part in passes for value in part.sums),
            RowSample.merged(part.sample for part in passes),
        )


def _first_pass(
    block: Any,
    estimator: Any,
    targets: TargetReader | None,
    stream: Stream,
    number: int,
    device: str | None,
) -> _FirstPass:
    """Check a partition, and return what the fit must know of it before it starts.

    A ValueError names the `number` of the partition.
    """
    X, y, weight = block
    sample = RowSample()
    summaries = []
    sums = PassSums()
    if X.shape[0] == 0 and (y is None or len(y) == 0):
        return _FirstPass((0,), 0, frozenset(), [], (), sample)
    try:
        X = validate_rows(estimator, X, reset=False)
        if device is not None:
            check_dense(X)
            empty_on(device, X.dtype)  # raises, listing this worker's devices
        weight = check_weights(weight, X, of_block=True)
        if targets is not None:
            y = np.asarray(read_values(y, "y"))
            if len(y) != X.shape[0]:
                raise ValueError(
                    f"it has {X.shape[0]} rows, but {len(y)} targets; they must be "
                    "equal."
                )
            summaries = [targets.summary(X, y, weight)]
            sums.add(y, weight)
    except ValueError as error:
        raise ValueError(f"partition {number} of X: {error}") from error
    sample.add(X, y, weight, stream.generator())
    # Targets are float64.
    n_bytes = stored_bytes(X) + 8 * X.shape[0]
    dtypes = frozenset([X.dtype])
    return _FirstPass((X.shape[0],), n_bytes, dtypes, summaries, (sums,), sample)


def _checked_rows(
    block: Any,
    estimator: Any,
    targets: KnownTargets,
    dtype: np.dtype,
    expected: PassSums,
) -> ArrayRows:
    """Return the rows of a partition, which must be those of the first pass."""
    X, y, weight = block
    X = validate_rows(estimator, X, reset=False)
    y = np.asarray(y)
    weight = check_weights(weight, X, of_block=True)
    sums = PassSums()
    sums.add(y, weight)
    sums.check(expected, "a partition of X, computed again,")
    X = X.astype(dtype, copy=False)
    return ArrayRows(X, *targets.columns(X, y, weight))


# -- reading -----------------------------------------------------------------------


def _read_once(
    estimator: Any,
    targets: TargetReader | None,
    X: Any,
    y: Any,
    sample_weight: Any,
    stream: Stream,
    device: str | None = None,
) -> tuple[list[Any], _FirstPass]:
    """Return the partitions of a collection, and the results of a first pass.

    Sets the attributes of validation on the estimator.
    """
    blocks = partitions(X, y, sample_weight)
    set_columns(estimator, X)
    worker = for_workers(estimator)
    call = delayed(on_one_thread)
    sampler = stream.child("first pass")
    tasks = [
        call(_first_pass, block, worker, targets, sampler.child(i), i, device)
        for i, block in enumerate(blocks)
    ]
    return blocks, reduced_by_tree(_FirstPass.merged, tasks).compute()


def sampled_dask(
    estimator: Any, X: Any, sample_weight: Any, stream: Stream
) -> tuple[Any, Any]:
    """Return a sample of the rows of a Dask collection, and their weights.

    Workers draw it from their partitions and merge the draws. Sets the attributes of
    validation on the estimator.
    """
    first_pass = _read_once(estimator, None, X, None, sample_weight, stream)[1]
    X, _, weight = first_pass.sample.rows()
    return X, weight


def read_dask(
    estimator: Any,
    targets: TargetReader,
    X: Any,
    y: Any,
    sample_weight: Any,
    stream: Stream,
) -> FitData:
    """Read and check all partitions once, for :func:`randkern.data.reading.read`."""
    check_has_targets(estimator, y)
    dask = import_extra("dask", READING_DASK, "dask")
    X, device = split_device(X)
    blocks, first_pass = _read_once(
        estimator, targets, X, y, sample_weight, stream, device
    )
    filled = [
        (block, n) for block, n in zip(blocks, first_pass.lengths, strict=True) if n
    ]
    if not filled:
        raise ValueError("X has no rows: found 0 samples, but at least 1 is required.")
    known = targets.learned(first_pass.summaries)
    dtype = np.result_type(*first_pass.dtypes)
    call = delayed(on_one_thread)
    worker = for_workers(estimator)
    rows = tuple(
        call(_checked_rows, block, worker, known, dtype, sums)
        for (block, _), sums in zip(filled, first_pass.sums, strict=True)
    )
    workers = _workers()
    limit = estimator.memory_limit
    if workers:
        memory = sum(info["memory_limit"] or 0 for info in workers)
    else:
        memory = resolve_memory_limit(limit)
    if may_stay_with_workers(first_pass.n_bytes, memory):
        rows = dask.persist(*rows)
    lengths = [n for _, n in filled]
    like = np.empty((0, estimator.n_features_in_), dtype)
    shards = Shards(rows, lengths, known.n_columns, like, device)
    return FitData(shards, known, weighted_sample(first_pass.sample, known))


def _workers() -> list[dict[str, Any]]:
    """Return the descriptions of all workers, empty without a cluster."""
    base = import_extra("dask.base", READING_DASK, "dask")
    client: Any = getattr(base.get_scheduler(), "__self__", None)
    if not hasattr(client, "scheduler_info"):
        return []
    return list(client.scheduler_info(n_workers=-1)["workers"].values())
