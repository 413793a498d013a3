"""Archives of objects in the format of skops, without importing skops.

An archive is a zip file with ``schema.json``, which describes an object as a tree of
nodes, and a member in NumPy's format for each array. skops reads and writes the same
archives, but importing it imports every module of scikit-learn, and PyTorch and Dask
where they are installed: seconds, for a model that predicts a row in milliseconds. The
kinds of nodes that models of randkern consist of are written and read here; for all
others, :class:`UnknownNodeError` is raised, and skops has to do it.

Reading creates only arrays, containers, numbers, texts, and objects of types that the
caller passes: no name in a file is ever imported.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Collection, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

DESCRIPTION = "schema.json"
#: The version of skops' format, which has the nodes below.
PROTOCOL = 2

_CONTAINERS: tuple[type, ...] = (list, tuple, set)
# How the keys of dictionaries, which are texts in JSON, become what they were.
_KEYS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: json.loads,
}
_SCALARS: dict[str, type] = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in np.sctypeDict.values()
    if not issubclass(kind, np.object_ | np.void)
}
_TYPES: dict[str, type] = _SCALARS | {
    f"builtins.{kind.__name__}": kind for kind in _KEYS
}


class UnknownNodeError(Exception):
    """An object, or a node of a description, of a kind that only skops knows."""


def dump(value: Any, file: BinaryIO, types: Collection[type]) -> None:
    """Write an object to an archive.

    `types` are the types of objects that may be written by their state, besides arrays,
    containers, numbers and texts. Raises UnknownNodeError if there are others.
    """
    with zipfile.ZipFile(file, "w") as archive:
        description = _Writer(archive, types).node(value)
        description["protocol"] = PROTOCOL
        archive.writestr(DESCRIPTION, json.dumps(description))


def load(file: BinaryIO, types: Mapping[str, type]) -> Any:
    """Return the object in an archive, whose sizes have been checked.

    `types` are the types of objects that may be created, by their names in files.
    Raises UnknownNodeError if there are others.
    """
    with zipfile.ZipFile(file) as archive:
        description = json.loads(archive.read(DESCRIPTION))
        if description["protocol"] != PROTOCOL:
            raise UnknownNodeError(f"protocol {description['protocol']}")
        return _Reader(archive, types).value(description)


class _Writer:
    """Describes objects, and writes their arrays to an archive.

    An identifier in a node is that of the object in memory; `_written` keeps the
    objects alive, so that no other object takes over an identifier.
    """

    def __init__(self, archive: zipfile.ZipFile, types: Collection[type]) -> None:
        self._archive = archive
        self._types = types
        self._written: dict[int, Any] = {}

    def node(self, value: Any) -> dict[str, Any]:
        """Return the node of a value."""
        kind = type(value)
        node = self._content(value, kind)
        node.setdefault("__module__", kind.__module__)
        node.setdefault("__class__", kind.__name__)
        node["__id__"] = id(value)
        self._written[id(value)] = value
        return node

    def _content(self, value: Any, kind: type) -> dict[str, Any]:
        if value is None or kind in (bool, int, float, str):
            content = json.dumps(value)
            text = {"__module__": "builtins", "__class__": "str", "is_json": True}
            return {"__loader__": "JsonNode", "content": content, **text}
        if kind is dict:
            return self._dictionary(value)
        if kind in _CONTAINERS:
            loader = f"{kind.__name__.capitalize()}Node"
            return {"__loader__": loader, "content": [*map(self.node, value)]}
        if isinstance(value, type) and _TYPES.get(name_of(value)) is value:
            names = {"__module__": value.__module__, "__class__": value.__name__}
            return {"__loader__": "TypeNode", **names}
        if kind is np.ndarray or name_of(kind) in _SCALARS:
            return self._array(value)
        if kind in self._types:
            if issubclass(kind, np.ndarray):
                return self._array(value)
            if kind.__reduce__ is object.__reduce__:
                state = self.node(value.__getstate__())
                return {"__loader__": "ObjectNode", "content": state}
        raise UnknownNodeError(name_of(kind))

    def _dictionary(self, value: dict[Any, Any]) -> dict[str, Any]:
        kinds = [type(key) for key in value]
        texts = [key if type(key) is str else json.dumps(key) for key in value]
        if not {*kinds} <= {*_KEYS} or len({*texts}) < len(texts):
            raise UnknownNodeError("a dictionary with other keys")
        nodes = map(self.node, value.values())
        content = dict(zip(texts, nodes, strict=True))
        return {
            "__loader__": "DictNode",
            "key_types": self.node(kinds),
            "content": content,
        }

    def _array(self, value: Any) -> dict[str, Any]:
        if value.dtype == object:
            items = [self.node(item) for item in value.tolist()]
            shape = self.node(value.shape)
            return {
                "__loader__": "NdArrayNode",
                "type": "json",
                "content": items,
                "shape": shape,
            }
        member = f"{id(value)}.npy"
        if member not in self._archive.NameToInfo:
            buffer = io.BytesIO()
            try:
                np.save(buffer, value, allow_pickle=False)
            except ValueError as error:  # objects in fields of a structure
                raise UnknownNodeError(f"an array of {value.dtype}") from error
            self._archive.writestr(member, buffer.getbuffer())
        return {"__loader__": "NdArrayNode", "type": "numpy", "file": member}


class _Reader:
    """Creates the objects that an archive describes.

    Nodes with the same identifier are one object.
    """

    def __init__(self, archive: zipfile.ZipFile, types: Mapping[str, type]) -> None:
        self._archive = archive
        self._types = types
        self._created: dict[Any, Any] = {}
        self._readers: dict[str, Callable[[Any, str], Any]] = {
            "JsonNode": lambda node, name: json.loads(node["content"]),
            "DictNode": self._dictionary,
            "ListNode": self._container,
            "TupleNode": self._container,
            "SetNode": self._container,
            "TypeNode": lambda node, name: _known(_TYPES, name),
            "NdArrayNode": self._array,
            "ObjectNode": self._object,
        }

    def value(self, node: dict[str, Any]) -> Any:
        """Return the value that a node describes."""
        identifier = node.get("__id__")
        if identifier in self._created:
            return self._created[identifier]
        read = _known(self._readers, node["__loader__"])
        value = read(node, f"{node['__module__']}.{node['__class__']}")
        if identifier is not None:
            self._created[identifier] = value
        return value

    def _dictionary(self, node: dict[str, Any], name: str) -> dict[Any, Any]:
        _known({"builtins.dict": dict}, name)
        kinds = self.value(node["key_types"])
        content = node["content"]
        if not {*kinds} <= {*_KEYS}:
            raise UnknownNodeError("a dictionary with other keys")
        return {
            _KEYS[kind](key): self.value(item)
            for kind, (key, item) in zip(kinds, content.items(), strict=True)
        }

    def _container(self, node: dict[str, Any], name: str) -> Any:
        kind = _known({f"builtins.{kind.__name__}": kind for kind in _CONTAINERS}, name)
        return kind(map(self.value, node["content"]))

    def _array(self, node: dict[str, Any], name: str) -> Any:
        if node["type"] == "json":
            _known({"numpy.ndarray": np.ndarray}, name)
            items = [*map(self.value, node["content"])]
            shape = self.value(node["shape"])
            if len(shape) != 1:
                return np.array(items, dtype=object)
            array = np.empty(len(items), dtype=object)
            for at, item in enumerate(items):  # which may be sequences themselves
                array[at] = item
            return array
        kind = np.ndarray
        if name != "numpy.ndarray":
            kind = _known({**self._types, **_SCALARS}, name)
        with self._archive.open(node["file"]) as stream:
            array = npy.read_array(stream, allow_pickle=False)
        if kind is np.ndarray:
            return array
        if name not in _SCALARS and not issubclass(kind, np.ndarray):
            raise UnknownNodeError(f"an array that is a {name}")
        return kind(array)

    def _object(self, node: dict[str, Any], name: str) -> Any:
        kind = _known(self._types, name)
        if issubclass(kind, np.ndarray):
            raise UnknownNodeError(f"an object that is a {name}")
        created = kind.__new__(kind)
        state = self.value(node["content"])
        if state is None:
            return created
        if hasattr(created, "__setstate__"):
            created.__setstate__(state)
        else:
            vars(created).update(state)
        return created


def name_of(kind: type) -> str:
    """Return the full name of a type."""
    return f"{kind.__module__}.{kind.__name__}"


def _known(values: Mapping[str, Any], name: str) -> Any:
    """Return the value under a name in a file, or raise if there is none."""
    if name not in values:
        raise UnknownNodeError(name)
    return values[name]
