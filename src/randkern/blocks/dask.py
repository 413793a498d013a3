"""What an estimator's method makes of a Dask collection, a partition at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._tensors import is_tensor
from randkern.blocks.devices import DeviceBlocks

__all__ = ["for_workers", "is_dask", "lazily", "with_whole_rows"]


def is_dask(X: Any) -> bool:
    """Tell whether X is a Dask array or dataframe, on its way to a device or not.

    Without importing Dask.
    """
    X = X.rows if isinstance(X, DeviceBlocks) else X
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def lazily(method: Any, X: Any, width: int | None, dtype: Any = float) -> Any:
    """Return a Dask array of what an estimator's method makes of each partition."""
    da = import_extra("dask.array", "reading Dask collections", "dask")
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
