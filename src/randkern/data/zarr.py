"""Arrays of a Zarr group."""

from __future__ import annotations

import os
from typing import Any

from randkern._extras import import_extra


def open_zarr(path_or_group: Any, names: tuple[str | None, ...]) -> tuple[Any, ...]:
    """Return the arrays of those names, None for None; no rows are read."""
    group = path_or_group
    if isinstance(path_or_group, str | os.PathLike):
        zarr = import_extra("zarr", "RowBlocks.from_zarr", "data")
        group = zarr.open(path_or_group, mode="r")
    if hasattr(group, "shape"):
        raise ValueError(
            f"{path_or_group} is a Zarr array, expected a group of arrays; use "
            "RowBlocks.from_arrays(zarr.open(path)) for an array alone."
        )
    there = sorted(name for name, _ in group.arrays())
    for name in names:
        if name is not None and name not in there:
            raise ValueError(
                f"{path_or_group} has no array {name!r}; its arrays are {there}."
            )
    return tuple(None if name is None else group[name] for name in names)
