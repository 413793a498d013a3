"""Damaged and crafted zip archives, for tests of what reads them."""

import io
import json
import zipfile

import numpy as np

# What a description may hold where something else was.
_ODD_VALUES = (
    *(None, True, -1, 0, 2**70, 1e308, "", "x", "os", "eval", "../x", [], {}, [[]]),
    *("ObjectNode", "NdArrayNode", "ListNode", "TypeNode", "SparseMatrixNode"),
    *("CachedNode", "ConstructorFromReduceNode", "RandomGeneratorNode", "PartialNode"),
    *("numpy", "ndarray", "float64", "list", "dict", "json", "scipy", "builtins"),
)
_HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (0, 99999999999999999999), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': [('a', '<f8', (1000000000,))], 'fortran_order': False, 'shape': (9,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': ('a',), }",
    "(" * 3000,
    "-" * 8000 + "1",
    "{'descr': __import__('os').system('exit'), 'shape': ()}",
)


def flipped(content, rng):
    """Some bits differ, mostly in the directory at the end."""
    content = bytearray(content)
    first = rng.choice([0, max(0, len(content) - 600)])
    for position in rng.integers(first, len(content), rng.integers(1, 4)):
        content[position] ^= 1 << rng.integers(8)
    return bytes(content)


def cut(content, rng):
    first, last = np.sort(rng.integers(0, len(content) + 1, 2))
    kept = content[:first], content[first:last], content[:first] + content[last:]
    return kept[rng.integers(3)]


def overwritten(content, rng):
    """Some bytes are those of another place, of zeros, or of chance."""
    n = int(rng.integers(1, 40))
    here, there = (int(i) for i in rng.integers(0, len(content), 2))
    by = content[there : there + n], bytes(n), rng.bytes(n)
    return content[:here] + by[rng.integers(3)] + content[here + n :]


def repacked(content, rng):
    """Valid archives of members that were swapped, dropped, renamed, doubled, ..."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    one, other = rng.integers(0, len(members), 2)
    (name, data), (_, other_data) = members[one], members[other]
    changes = (
        lambda: {one: (name, other_data), other: (members[other][0], data)},
        lambda: {one: (members[other][0], data)},
        lambda: {one: (f"../{name}", data)},
        lambda: {one: (name, cut(data, rng) if data else b"x")},
        lambda: {one: (name, content[:2000])},
        lambda: {one: (name, _with_header(data, rng))},
        lambda: {one: (name, _with_value(data, rng))},
        lambda: {one: (name, _with_value(data, rng))},
    )
    changed = changes[rng.integers(len(changes))]()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, member in enumerate(members):
            method = int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
            archive.writestr(*changed.get(number, member), compress_type=method)
    return buffer.getvalue()


def _with_header(data, rng):
    """An array in NumPy's format with another header."""
    if not data.startswith(b"\x93NUMPY"):
        return data[::-1]
    header = _HEADERS[rng.integers(len(_HEADERS))].encode()
    version = bytes([rng.choice([1, 1, 2, 3, 9]), 0])
    size = len(header).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + size + header + data[-64:]


def _with_value(data, rng):
    """A description with something else in one place, or deeply nested."""
    try:
        document = json.loads(data)
    except ValueError:
        return rng.bytes(len(data))
    if rng.random() < 0.05:
        return b'{"a":' * 3000 + b"1" + b"}" * 3000
    places = []
    stack = [document]
    while stack:
        node = stack.pop()
        if isinstance(node, (dict, list)):
            places += (
                (node, key)
                for key in (node if isinstance(node, dict) else range(len(node)))
            )
            stack += node.values() if isinstance(node, dict) else node
    node, key = places[rng.integers(len(places))]
    choice = rng.random()
    if choice < 0.2:
        del node[key]
    elif choice < 0.4:
        other, its_key = places[rng.integers(len(places))]
        node[key] = json.loads(json.dumps(other[its_key]))
    else:
        node[key] = _ODD_VALUES[rng.integers(len(_ODD_VALUES))]
    return json.dumps(document)


def with_checksums(content):
    """The archive of a model, with the checksums of its members: others come next."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            if name != "randkern.json":
                new.writestr(name, old.read(name))
        header = json.loads(old.read("randkern.json"))
        header["members"] = {info.filename: info.CRC for info in new.infolist()}
        new.writestr("randkern.json", json.dumps(header))
    return buffer.getvalue()


def with_other_array(content, rng):
    """An archive in which one array has another shape or type, or is not finite."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    arrays = {}
    for name, member in members.items():
        if name.endswith(".npy"):
            array = np.load(io.BytesIO(member), allow_pickle=False)
            if array.dtype.kind == "f" and array.size:
                arrays[name] = array
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name].copy()
    changes = (
        lambda: array[..., None],
        lambda: array[:-1] if array.ndim else array.reshape(1),
        lambda: np.repeat(array, 2, axis=-1) if array.ndim else array.reshape(1, 1),
        lambda: np.where(
            np.arange(array.size).reshape(array.shape) == 0, np.nan, array
        ),
        lambda: np.full_like(array, np.inf),
        lambda: array.astype("U8"),
        lambda: array + 1j,
    )
    buffer = io.BytesIO()
    np.save(buffer, changes[rng.integers(len(changes))]())
    members[name] = buffer.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, member in members.items():
            archive.writestr(key, member)
    return out.getvalue()


DAMAGES = (flipped, cut, overwritten, repacked)
