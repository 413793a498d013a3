"""Dask collections, a partition at a time: as rows to fit to, and of predictions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array

from randkern._extras import import_extra
from randkern._tensors import is_tensor
from randkern._validation import FLOATS, Rows, canonical, is_dask_collection
from randkern.data.devices import DeviceBlocks
from randkern.data.row_blocks import RowBlocks

READING_DASK = "reading Dask collections"
# What one task joins.
_FAN_IN = 4


def is_dask(X: Any) -> bool:
    """Tell whether X is a Dask array or dataframe, on its way to a device or not."""
    return is_dask_collection(X.rows if isinstance(X, DeviceBlocks) else X)


def lazily(method: Any, X: Any, width: int | None, dtype: Any = float) -> Any:
    """Return a Dask array of what an estimator's method makes of each partition."""
    da = import_extra("dask.array", READING_DASK, "dask")
    meta = np.empty((0,) if width is None else (0, width), dtype)
    worker = for_workers(method.__self__)
    if isinstance(X, DeviceBlocks):
        method = OnDevice(worker, method.__name__, X.device)
        X = X.rows
    else:
        method = getattr(worker, method.__name__)
    if not isinstance(X, da.Array):
        return X.map_partitions(method, meta=meta)
    X = with_whole_rows(X)
    if width is None:
        return X.map_blocks(method, drop_axis=1, meta=meta)
    chunks = (X.chunks[0], (width,))
    return X.map_blocks(method, chunks=chunks, meta=meta)


def with_whole_rows(X: Any) -> Any:
    """Return a Dask array whose chunks are not cut within rows."""
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got a Dask array of shape {X.shape}; a single column "
            "is X.reshape(-1, 1), a single row X.reshape(1, -1)."
        )
    return X.rechunk({1: -1})


@dataclass(frozen=True)
class OnDevice:
    """A method of an estimator, for partitions that are moved to a device."""

    estimator: Any
    name: str
    device: str

    def __call__(self, X: Any) -> Any:
        return getattr(self.estimator, self.name)(DeviceBlocks(X, self.device))


def for_workers(estimator: Any) -> Any:
    """Return the estimator without what cannot or need not leave this process.

    Its tensors are where every process can read them.
    """
    worker = copy.copy(estimator)
    for name, value in vars(estimator).items():
        if is_tensor(value):
            setattr(worker, name, value.cpu())
    if hasattr(worker, "solver"):
        worker.solver = "auto"  # not a solver's callback
    for name in list(vars(worker)):
        if "callback" in name:  # scikit-learn's
            delattr(worker, name)
    return worker


def dask_blocks(X: Any, y: Any, sample_weight: Any) -> RowBlocks:
    """Return the partitions of a collection as blocks, which this process reads.

    Each is computed when a pass over the rows comes to it, so that one at a time is
    here. A pass computes all of them again, unless the collection is persisted.
    """
    parts = partitions(X, y, sample_weight)

    def read() -> Iterator[Any]:
        for part in parts:
            yield part.compute()

    return RowBlocks(read)


def joined_by_tree(join: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """Return a delayed value: what workers join of delayed values, a few at a time.

    This process, which computes it, gets one value however many there were.
    """
    dask = import_extra("dask", READING_DASK, "dask")
    join = dask.delayed(join, pure=False)
    while True:
        groups = range(0, len(values), _FAN_IN)
        values = [join(values[i : i + _FAN_IN]) for i in groups]
        if len(values) == 1:
            return values[0]


def partitions(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Return delayed tuples (X, y, weight) of the partitions of X."""
    da = import_extra("dask.array", READING_DASK, "dask")
    dask = import_extra("dask", READING_DASK, "dask")
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
    has_targets = y is not None
    return [
        pack(
            block[0],
            block[1] if has_targets else None,
            block[-1] if has_weight else None,
        )
        for block in blocks
    ]


def _packed(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    return X, y, weight


def set_columns(estimator: Any, X: Any) -> None:
    """Set n_features_in_ and feature_names_in_ as validation does."""
    estimator.table_encoder_ = None
    estimator.n_features_in_ = int(X.shape[1])
    estimator.__dict__.pop("feature_names_in_", None)
    names = list(getattr(X, "columns", []))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def checked_partition(X: Any, width: int) -> Rows:
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
