"""Archives of objects: a description in JSON, and arrays in NumPy's format."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from randkern import __version__
from randkern._files import check_needed
from randkern._warnings import warn
from randkern.exceptions import ModelFileError, ModelVersionWarning
from randkern.persistence.stored_types import NAMES, OWN_TYPES, full_name

_FORMAT = 2
_MEMBER = "randkern.json"
DESCRIPTION = "schema.json"
# The version of skops' format.
_PROTOCOL = 2
# skops holds both an array and its bytes in memory while it reads.
COPIES = 2
# The objects of a description take 7 to 35 times the size of its text (measured).
_BYTES_PER_CHARACTER = 35

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
_PLAIN: dict[str, type] = _SCALARS | {
    f"builtins.{kind.__name__}": kind for kind in _KEYS
}


class UnknownNodeError(Exception):
    """An object, or a node of a description, of a kind that only skops knows."""


def finish(
    archive: zipfile.ZipFile, description: dict[str, Any], estimator: str
) -> None:
    """Add the description and randkern's header to an archive with all arrays.

    Only the description is compressed, to about a tenth: arrays of weights would
    hardly shrink.
    """
    text = json.dumps({**description, "protocol": _PROTOCOL})
    archive.writestr(DESCRIPTION, text, zipfile.ZIP_DEFLATED)
    header = {
        "format": _FORMAT,
        "randkern": __version__,
        "estimator": estimator,
        # Members of other models have other checksums.
        "members": _checksums(archive),
    }
    archive.writestr(_MEMBER, json.dumps(header))


def checked_version(
    file: BinaryIO, path: Any, sizes: Mapping[str, int], limit: int
) -> str:
    """Return the version that wrote a file, and refuse another format.

    Warns if the version is newer than this one.
    """
    from packaging.version import InvalidVersion, Version

    if _MEMBER not in sizes:
        raise ModelFileError(
            f"{path} is a zip archive that was not written by randkern.save; load "
            "files of skops with skops.io.load."
        )
    check_needed(_BYTES_PER_CHARACTER * sizes[_MEMBER], limit)
    with zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read(_MEMBER))
        members = _checksums(archive)
    if header.get("members") != members:
        raise ValueError("its members are not those that were saved together")
    form = int(header["format"])
    writer = str(header["randkern"])
    if form != _FORMAT:
        advice = "upgrade randkern" if form > _FORMAT else "fit the model again"
        raise ModelFileError(
            f"{path} has format {form} of randkern {writer}, but randkern "
            f"{__version__} reads format {_FORMAT}; {advice}."
        )
    try:
        newer = Version(writer) > Version(__version__)
    except InvalidVersion as error:
        raise ModelFileError(
            f"{path} names {writer!r} as the version of randkern that wrote it; it "
            "is damaged."
        ) from error
    if newer:
        warn(
            f"{path} was written by randkern {writer}, which is newer than this "
            f"version, {__version__}, and may be read incorrectly; upgrade randkern.",
            ModelVersionWarning,
        )
    return writer


def _checksums(archive: zipfile.ZipFile) -> dict[str, int]:
    """Return the checksums of the members, except for the header."""
    return {
        info.filename: info.CRC
        for info in archive.infolist()
        if info.filename != _MEMBER
    }


def check_description(file: BinaryIO, sizes: Mapping[str, int], limit: int) -> set[str]:
    """Check that the objects of a description fit into memory; return their types.

    skops reads a member again for each node that names it under another id.
    """
    needed = _BYTES_PER_CHARACTER * sizes[DESCRIPTION]
    check_needed(needed, limit)
    with zipfile.ZipFile(file) as archive:
        nodes = list(nodes_of(json.loads(archive.read(DESCRIPTION))))
    read: dict[Any, int] = {}
    for node in nodes:
        name = node.get("file")
        known = node.get("__id__")
        if isinstance(name, str):
            key = known if known and isinstance(known, int | str) else object()
            read[key] = max(read.get(key, 0), sizes.get(name, 0))
    check_needed(needed + COPIES * sum(read.values()), limit)
    _check_object_arrays(nodes)
    return {f"{node.get('__module__')}.{node.get('__class__')}" for node in nodes}


def nodes_of(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON document, at any depth."""
    left = [document]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _check_object_arrays(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse object arrays of several dimensions.

    NumPy copies nested sequences, and pipelines and ensembles are such, too: a few that
    refer to each other could expand to an array of any size.
    """
    known = Counter(node.get("__id__") for node in nodes)
    for shape in (node["shape"] for node in nodes if node.get("type") == "json"):
        is_written = shape["__loader__"] == "TupleNode" and known[shape["__id__"]] == 1
        if not is_written or len(shape["content"]) != 1:
            raise ValueError("an array of objects has several dimensions")


class Writer:
    """Describes objects, and writes their arrays to an archive.

    An identifier in a node is that of the object in memory; `_written` keeps the
    objects alive, so that no other object takes over an identifier.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._types = {*OWN_TYPES.values()}
        self._written: dict[int, Any] = {}

    def node(self, value: Any) -> dict[str, Any]:
        """Return the node of a value."""
        kind = type(value)
        node = self._content(value, kind)
        name = NAMES.get(full_name(kind), full_name(kind))
        module, _, short = name.rpartition(".")
        node = {"__module__": module, "__class__": short} | node
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
        if isinstance(value, type) and _PLAIN.get(full_name(value)) is value:
            names = {"__module__": value.__module__, "__class__": value.__name__}
            return {"__loader__": "TypeNode", **names}
        if kind is np.ndarray or full_name(kind) in _SCALARS:
            return self._array(value)
        if kind in self._types:
            if issubclass(kind, np.ndarray):
                return self._array(value)
            if kind.__reduce__ is object.__reduce__:
                state = self.node(value.__getstate__())
                return {"__loader__": "ObjectNode", "content": state}
        raise UnknownNodeError(full_name(kind))

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
            if value.ndim != 1:
                raise TypeError(
                    "the estimator holds an array of objects of several dimensions; "
                    "make it a list, or an array of numbers or texts."
                )
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


class Reader:
    """Creates the objects that an archive describes.

    Nodes with the same identifier are one object.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._created: dict[Any, Any] = {}
        self._readers: dict[str, Callable[[Any, str], Any]] = {
            "JsonNode": lambda node, name: json.loads(node["content"]),
            "DictNode": self._dictionary,
            "ListNode": self._container,
            "TupleNode": self._container,
            "SetNode": self._container,
            "TypeNode": lambda node, name: _known(_PLAIN, name),
            "NdArrayNode": self._array,
            "ObjectNode": self._object,
        }

    def read(self) -> Any:
        """Return the object in the archive, whose sizes have been checked."""
        description = json.loads(self._archive.read(DESCRIPTION))
        if description["protocol"] != _PROTOCOL:
            raise UnknownNodeError(f"protocol {description['protocol']}")
        return self.value(description)

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
            array = np.empty(len(items), dtype=object)
            for at, item in enumerate(items):  # which may be sequences themselves
                array[at] = item
            return array
        kind = np.ndarray
        if name != "numpy.ndarray":
            kind = _known({**OWN_TYPES, **_SCALARS}, name)
        with self._archive.open(node["file"]) as stream:
            array = npy.read_array(stream, allow_pickle=False)
        if kind is np.ndarray:
            return array
        if name not in _SCALARS and not issubclass(kind, np.ndarray):
            raise UnknownNodeError(f"an array that is a {name}")
        return kind(array)

    def _object(self, node: dict[str, Any], name: str) -> Any:
        kind = _known(OWN_TYPES, name)
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


def _known(values: Mapping[str, Any], name: str) -> Any:
    """Return the value under a name in a file, or raise if there is none."""
    if name not in values:
        raise UnknownNodeError(name)
    return values[name]
