"""Tensors inside fitted estimators: where they are, to arrays and back.

What leads to a tensor is a path: names of attributes and keys, and numbers in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from randkern._tensors import is_tensor
from randkern.backend.namespace import empty_on, ops_of

__all__ = ["Path", "place_tensors", "without_tensors"]

Path = tuple[str | int, ...]

# Only objects of these packages are looked into.
_PACKAGES = ("randkern", "sklearn")


def without_tensors(estimator: Any) -> tuple[Any, list[Path]]:
    """Return an estimator whose tensors are NumPy arrays, and their paths.

    The estimator itself is not changed; it is returned if it holds no tensors.
    """
    paths: list[Path] = []
    return _Copier(paths).arrays(estimator, ()), paths


def place_tensors(estimator: Any, paths: Sequence[Path], device: str) -> None:
    """Make tensors on a device of the arrays at these paths, in place.

    Raises
    ------
    LookupError
        If there is no array at a path.
    """
    made: dict[int, Any] = {}

    def tensor(array: Any) -> Any:
        if is_tensor(array):  # of an object that has two paths
            return array
        if not isinstance(array, (np.ndarray, np.generic)):
            raise LookupError(f"expected an array, found {type(array).__name__}")
        if id(array) not in made:
            like = empty_on(device, array.dtype)
            made[id(array)] = ops_of(like).asarray(array, like)
            kept.append(array)
        return made[id(array)]

    kept: list[Any] = []  # so that no other array takes its id
    for path in paths:
        _replaced(estimator, path, tensor)


class _Copier:
    """Copies what leads to tensors, and nothing else."""

    def __init__(self, paths: list[Path]):
        self.paths = paths
        self._arrays: dict[int, tuple[Any, Any]] = {}
        # Objects without tensors, or that are looked into: alive, so that no other
        # takes the id.
        self._clean: dict[int, Any] = {}

    def arrays(self, value: Any, path: Path) -> Any:
        """Return the value with arrays for tensors, the same where it has none."""
        if is_tensor(value):
            self.paths.append(path)
            found = self._arrays.get(id(value))
            if found is None:
                found = self._arrays[id(value)] = value, ops_of(value).to_host(value)
            return found[1]
        if id(value) in self._clean:
            return value
        items = _items(value)
        if not items:
            return value
        self._clean[id(value)] = value
        changed = {}
        for key, item in items:
            made = self.arrays(item, (*path, key))
            if made is not item:
                changed[key] = made
        if not changed:
            return value
        del self._clean[id(value)]
        return _with(value, changed)


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Return what is inside a value that is stored, by its name, key or number."""
    if isinstance(value, dict):
        return [item for item in value.items() if isinstance(item[0], (str, int))]
    if type(value) in (list, tuple):
        return list(enumerate(value))
    if not _looked_into(value):
        return []
    held, state = getattr(value, "__dict__", {}), value.__getstate__()
    if not isinstance(state, dict):
        return []
    # What an object does not store, such as copies on devices, is left alone.
    return [(name, item) for name, item in held.items() if state.get(name) is item]


def _looked_into(value: Any) -> bool:
    """Tell whether a value is an object whose attributes are looked into."""
    return type(value).__module__.partition(".")[0] in _PACKAGES


def _with(value: Any, changed: dict[Any, Any]) -> Any:
    """Return a copy with other items."""
    if type(value) in (list, tuple):
        return type(value)(changed.get(i, item) for i, item in enumerate(value))
    if isinstance(value, dict):
        copied = value.copy()
        copied.update(changed)
        return copied
    kind: Any = type(value)
    copied = kind.__new__(kind)
    copied.__dict__.update(value.__dict__, **changed)
    return copied


def _replaced(value: Any, path: Path, function: Callable[[Any], Any]) -> Any:
    """Return the value, changed in place but for tuples, with one item replaced."""
    if not path:
        return function(value)
    key, rest = path[0], path[1:]
    if type(value) is tuple:
        return _with(value, {key: _replaced(value[int(key)], rest, function)})
    if isinstance(value, (dict, list)):
        held: Any = value
    elif _looked_into(value):
        held = vars(value)
    else:
        raise LookupError(f"nothing is looked up in a {type(value).__name__}")
    held[key] = _replaced(held[key], rest, function)
    return value
