"""Damaged and crafted files: read as they were, or refused by a named error."""

import io
import json
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk
from _damage import DAMAGES, repacked, with_checksums, with_other_array
from randkern import _files
from randkern.exceptions import ModelFileError

pytest.importorskip("skops.io")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = np.column_stack([X[:, 0], X[:, 1] ** 2])
LABELS = np.array(["a", "b"], dtype=object)[(X[:, 0] > 0).astype(int)]
RAW = [damage for damage in DAMAGES if damage is not repacked]

MODELS = {
    "kernel": lambda: 2.0 * rk.Gaussian(3.0) + rk.Linear(),
    "ridge": lambda: rk.KernelRidgeRegressor(
        n_components=10, random_state=np.random.default_rng(3)
    ).fit(X, Y),
    "sparse": lambda: rk.KernelRidgeRegressor(rk.Gaussian(1.0), n_components=None).fit(
        sp.csr_array(np.maximum(X, 0)), Y
    ),
    "pipeline": lambda: make_pipeline(
        StandardScaler(), rk.KernelRidgeClassifierCV(n_components=10)
    ).fit(X, LABELS),
    "nystrom": lambda: rk.KernelRidgeRegressor(
        n_components=10, features="nystrom", random_state=0
    ).fit(X, Y),
    "svc": lambda: rk.KernelSVC(n_components=None).fit(X, LABELS),
    "process": lambda: rk.GaussianProcessRegressor(
        n_components=None, optimizer=None
    ).fit(X, Y[:, 0]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def output(model):
    return model.predict(X) if hasattr(model, "predict") else model(X)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_not_as_it_was_saved_is_refused(kind, path):
    """Damaged bytes, and members of others: all but changes of nothing are refused."""
    model = MODELS[kind]()
    rk.save(model, path)
    content, expected = path.read_bytes(), output(model)
    rng = np.random.default_rng(len(kind))
    refused = 0
    for turn in range(24):
        changes = [repacked, RAW[turn % len(RAW)], with_other_array]
        change = changes[turn % (2 if kind == "kernel" else 3)]
        path.write_bytes(change(content, rng))
        try:
            again = rk.load(path)
        except ModelFileError:
            refused += 1
        else:
            np.testing.assert_array_equal(output(again), expected)
    assert refused >= 16


# Archives that would take more memory than their size suggests.


def archive(members, edit=lambda archive: None):
    """Return a zip archive whose directory `edit` may change at the end."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
        edit(packed)
    return buffer.getvalue()


def saved_members(path):
    rk.save(rk.KernelRidgeRegressor(n_components=10, random_state=0).fit(X, Y), path)
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def npy(header, content=b""):
    header = header.encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


HUGE = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")
N_ZEROS = 2**25


def zeros_that_declare_little(name, n_summed=10):
    """The declared size is ten bytes, and the checksum that of the first few."""

    def edit(packed):
        info = packed.getinfo(name)
        info.file_size, info.CRC = 10, zlib.crc32(bytes(n_summed))

    return edit


def repeated(members):
    """A description that names the same array again and again."""
    schema = json.loads(members["schema.json"])
    name = next(name for name in members if name.endswith(".npy"))
    node = {"__class__": "ndarray", "__module__": "numpy", "type": "numpy"}
    node |= {"__loader__": "NdArrayNode", "file": name}
    schema["copies"] = [node] * 1000
    return {"schema.json": json.dumps(schema), name: np.zeros(2**17).tobytes()}


def sealed(members, changed):
    """The changed members, and the header with their checksums."""
    content = with_checksums(archive(members | changed))
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


CRAFTED = {
    "declared": lambda name, members: (
        {name: bytes(100)},
        lambda packed: setattr(packed.getinfo(name), "file_size", 3 * 10**9),
        r"was not read: .* 6\.0 GB of memory, and the limit is .*memory_limit",
    ),
    "undeclared": lambda name, members: (
        {name: bytes(N_ZEROS)},
        zeros_that_declare_little(name),
        "checksum of its member",
    ),
    "one more": lambda name, members: (
        {name: bytes(N_ZEROS)},
        zeros_that_declare_little(name, 11),
        "does not have the 10 bytes that it declares",
    ),
    "rows": lambda name, members: (
        {name: HUGE},
        lambda packed: None,
        r"has shape \(1000000000000,\)",
    ),
    "nested": lambda name, members: (
        {name: archive({"data.npy": bytes(N_ZEROS)})},
        lambda packed: None,
        "was not read",
    ),
    "nested rows": lambda name, members: (
        {name: archive({"data.npy": HUGE})},
        lambda packed: None,
        r"has shape \(1000000000000,\)",
    ),
    "twice nested": lambda name, members: (
        {name: archive({"data.npz": archive({"a": b""})})},
        lambda packed: None,
        "holds an archive",
    ),
    "description": lambda name, members: (
        sealed(members, {"schema.json": b'{"a": [' + b"[]," * 300_000 + b"[]]}"}),
        lambda packed: None,
        "was not read",
    ),
    "header": lambda name, members: (
        {"randkern.json": b" " * 10**6 + members["randkern.json"]},
        lambda packed: None,
        "was not read",
    ),
    "repeated": lambda name, members: (
        sealed(members, repeated(members)),
        lambda packed: None,
        "was not read",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CRAFTED)
def test_what_would_take_much_memory_is_refused(kind, path):
    members = saved_members(path)
    name = next(name for name in members if name.endswith(".npy"))
    changed, edit, message = CRAFTED[kind](name, members)
    path.write_bytes(archive(members | changed, edit))
    limit = None if kind == "declared" else "30MB"
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=message):
            rk.load(path, memory_limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 15e6
    finally:
        tracemalloc.stop()


def test_a_larger_limit_lets_a_file_be_read(path, monkeypatch):
    model = rk.KernelRidgeRegressor(n_components=10, random_state=0).fit(X, Y)
    rk.save(model, path)
    with pytest.raises(ModelFileError, match="pass a larger memory_limit"):
        rk.load(path, memory_limit=1000)
    monkeypatch.setattr(_files, "available_memory", lambda: 1000)
    with pytest.raises(ModelFileError, match=r"the limit is 1\.0 kB"):
        rk.load(path)
    again = rk.load(path, memory_limit="10MB")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_arrays_of_objects_have_one_dimension(path):
    """Lists, and pipelines, that refer to each other could fill any array."""
    kernel = rk.Gaussian(3.0)
    kernel.sizes = np.empty(2, dtype=object)
    kernel.sizes[:] = [(1, 2)] * 2  # the same tuple, as searches store them
    rk.save(kernel, path)
    assert list(rk.load(path).sizes) == [(1, 2)] * 2
    with zipfile.ZipFile(path) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    schema = json.loads(members["schema.json"])
    shape = schema["content"]["content"]["sizes"]["shape"]
    for crafted in ([*shape["content"]] * 2, None):
        changed = shape | {"content": crafted, "__id__": 1}
        if crafted is None:  # the shape of another array
            changed = {**shape, "__loader__": "JsonNode"}
        schema["content"]["content"]["sizes"]["shape"] = changed
        content = archive(members | {"schema.json": json.dumps(schema)})
        path.write_bytes(with_checksums(content))
        with pytest.raises(ModelFileError, match="several dimensions"):
            rk.load(path)
    kernel.sizes = np.empty((1, 1), dtype=object)
    with pytest.raises(TypeError, match="several dimensions"):
        rk.save(kernel, path)


def test_members_of_the_same_name_are_refused(path):
    members = saved_members(path)
    with zipfile.ZipFile(path, "a") as packed, pytest.warns(UserWarning):
        packed.writestr("schema.json", members["schema.json"])
    with pytest.raises(ModelFileError, match="the same name"):
        rk.load(path)


def test_entries_of_no_width_are_refused(path):
    """A few bytes could declare any number of them."""
    kernel = rk.Gaussian(3.0)
    kernel.table = np.arange(3.0)
    rk.save(kernel, path)
    with zipfile.ZipFile(path) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    name = next(name for name in members if name.endswith(".npy"))
    header = str({"descr": "|S0", "fortran_order": False, "shape": (10**9,)})
    header = f"{header:117}\n".encode("latin1")
    members[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    path.write_bytes(with_checksums(archive(members)))
    with pytest.raises(ModelFileError, match="entries of no width"):
        rk.load(path)
