"""Rows of every kind, as training data and as rows to predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import (
    Rows,
    check_has_targets,
    is_tensor,
    read_values,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.data.blocks import RowBlocks, as_blocks
from randkern.data.devices import DeviceBlocks, split_device
from randkern.data.out_of_core import (
    copied,
    located,
    moved_blocks,
    named_rows,
    read_stream,
)
from randkern.data.sample import stacked
from randkern.data.sharded import (
    is_dask,
    lazily,
    read_dask,
)
from randkern.data.training_data import (
    ArrayRows,
    FitData,
    TargetReader,
    placed,
)


def are_in_memory(X: Any) -> bool:
    """Return whether rows are a single array of this process, or a table."""
    return not isinstance(X, (RowBlocks, DeviceBlocks)) and not is_dask(X)


def read(
    estimator: Any,
    targets: TargetReader,
    X: Any,
    y: Any,
    sample_weight: Any,
    stream: Stream,
    *,
    exact: bool,
    in_place: bool,
) -> FitData:
    """Return checked rows with their targets, and a sample of the rows.

    Sets the attributes of validation on the estimator. `exact` fits need all rows in
    memory; those that only sum over rows may do so `in_place`.
    """
    if are_in_memory(X):
        X = validate_rows(estimator, X, reset=True)
        check_has_targets(estimator, y)
        targets, Y, weight = targets.read(X, y, sample_weight)
        return FitData(ArrayRows(X, Y, weight), targets, (X, weight))
    if exact:
        raise ValueError(
            "the exact kernel (n_components=None) needs all rows in memory, got "
            f"{type(X).__name__}; set n_components to use features, or pass an array."
        )
    read_rows = read_dask if in_place and is_dask(X) else read_stream
    return read_rows(estimator, targets, X, y, sample_weight, stream)


def mapped_rows(
    method: Any,
    X: Any,
    function: Callable[[Rows], Any],
    width: int | None,
    dtype: Any = float,
) -> Any:
    """Return `function` of checked rows of any kind.

    `method` is the estimator's method that was called with `X`: workers call it for the
    partitions of Dask collections, for which the result has this width (None: a vector)
    and dtype. `function` returns an array, or a tuple of arrays, with one entry per
    row. The result is a NumPy array for rows that are moved to a device.
    """
    model = method.__self__
    if is_dask(X):
        return lazily(method, X, width, dtype)
    if are_in_memory(X):
        return function(validate_rows(model, X, reset=False))
    if isinstance(X, DeviceBlocks):
        host = np.empty(0)
        results = [placed(function(rows), host) for rows in moved_blocks(model, X)]
    else:
        results = [function(rows) for rows in moved_blocks(model, X)]
    if not results:
        raise ValueError("the stream has no rows to predict; pass blocks with rows.")
    if not isinstance(results[0], tuple):
        return stacked([placed(result, results[0]) for result in results])
    return tuple(
        stacked([placed(result, parts[0]) for result in parts])
        for parts in zip(*results, strict=True)
    )


def predicted_rows(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
    """Return targets, predictions and weights of rows of any kind."""
    y = read_values(y, "y")
    sample_weight = read_values(sample_weight, "sample_weight")
    if is_dask(X):
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight)
        y = None if y is None else np.asarray(y)
        return y, np.asarray(model.predict(X)), sample_weight
    if not isinstance(X, (RowBlocks, DeviceBlocks)):
        return y, model.predict(X), sample_weight
    rows, device = split_device(X)
    blocks = as_blocks(rows, y, sample_weight)
    targets = []
    predictions = []
    weights = []
    # In one pass, whose targets surely belong to the rows.
    for block in blocks:
        with located(block):
            if block.y is None:
                raise ValueError(
                    "it has no y to compare predictions with; pass blocks (X, y)."
                )
            part = named_rows(blocks, block)
            part = part if device is None else DeviceBlocks(part, device)
            predictions.append(model.predict(part))
        # Copies: the stream may reuse the memory for its next block.
        targets.append(copied(block.y))
        weights.append(copied(block.sample_weight))
    if not targets:
        raise ValueError("the stream has no rows to score; pass blocks with rows.")
    y = stacked(targets)
    sample_weight = None if weights[0] is None else stacked(weights)
    predicted = stacked(predictions)
    if device is not None or not is_tensor(predicted):
        y = ops_of(y).to_host(y)
        predicted = ops_of(predicted).to_host(predicted)
        if sample_weight is not None:
            sample_weight = ops_of(sample_weight).to_host(sample_weight)
    return y, predicted, sample_weight
