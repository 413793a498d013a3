"""Archives of objects: the same ones as skops writes and reads, without its imports."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

import randkern as rk
from _damage import with_checksums
from randkern import persistence
from randkern.exceptions import ModelFileError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


@pytest.fixture
def without_skops(monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)


def holder_of(value):
    """An estimator that holds a value."""
    model = rk.KernelRidgeRegressor()
    model.value_ = value
    return model


def crafted(root, path, array):
    """Write a file with a node of a description, and an array."""
    rk.save(holder_of(0), path)
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
        header = archive.read("randkern.json")
    schema["content"]["content"]["value_"] = root
    member = io.BytesIO()
    np.save(member, array, allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", json.dumps(schema))
        archive.writestr("randkern.json", header)
        archive.writestr("a.npy", member.getvalue())
    path.write_bytes(with_checksums(path.read_bytes()))


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


VALUES = [
    None,
    [True, 1, 1.5, float("inf"), "text", "é\n"],
    {"a": (1, [2.0]), "b": {3}},
    {1: "a", 2: "b"},
    {1.5: "a", float("inf"): "b"},
    [float, str, np.float64, np.int32],
    np.arange(6.0).reshape(2, 3)[:, ::2],
    np.asfortranarray(np.ones((2, 3), dtype=np.float32)),
    np.array(["a", "bc"]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.array(["a", None, (1, 2)], dtype=object),
    np.float32(1.5),
    np.str_("abc"),
    np.bool_(True),
    np.datetime64("2020-01-01"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_written_as_by_skops(value, path):
    skops = pytest.importorskip("skops.io")
    rk.save(holder_of(value), path)
    assert same(skops.load(path, trusted=persistence.TRUSTED_TYPES).value_, value)
    assert same(rk.load(path).value_, value)


def test_keys_that_are_booleans_are_not_all_true(path):
    value = {True: "yes", False: "no"}
    rk.save(holder_of(value), path)
    assert rk.load(path).value_ == value


def test_what_is_the_same_object_stays_the_same(path):
    row = np.arange(3.0)
    rk.save(holder_of([row, row, row.copy()]), path)
    first, second, third = rk.load(path).value_
    assert first is second
    assert third is not first


@pytest.mark.parametrize(
    "value",
    [
        lambda X: X,
        len,
        {(1, 2): 3},
        {1: 2, "1": 3},
        np.ma.masked_array([1.0], [True]),
        np.zeros(2, dtype=[("a", object)]),
        RandomForestRegressor,
        np.random.default_rng(0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_left_to_skops(value, path, without_skops):
    with pytest.raises(ImportError, match="skops"):
        rk.save(holder_of(value), path)


def node(loader, name, **members):
    module, _, kind = name.rpartition(".")
    return {"__loader__": loader, "__module__": module, "__class__": kind, **members}


EMPTY = node("ListNode", "builtins.list", content=[])
STATE = node("DictNode", "builtins.dict", key_types=EMPTY, content={})


@pytest.mark.parametrize(
    "root",
    [
        node("ObjectNode", "os.system", content=STATE),
        node("ObjectNode", "numpy.ndarray", content=STATE),
        node("ObjectNode", "randkern.persistence.TensorArray", content=STATE),
        node("TypeNode", "os.system"),
        node("TypeNode", "randkern.kernels.Gaussian"),
        node("ListNode", "randkern.kernels.Gaussian", content=[]),
        node("DictNode", "collections.OrderedDict", key_types=EMPTY, content={}),
        node("NdArrayNode", "randkern.kernels.Gaussian", type="numpy", file="a.npy"),
        node("FunctionNode", "numpy.log"),
        node("ConstructorFromReduceNode", "randkern.kernels.Gaussian", content=EMPTY),
    ],
    ids=lambda root: f"{root['__loader__']} {root['__class__']}",
)
def test_a_file_names_nothing_but_known_types(root, path, without_skops):
    """Kinds of nodes and types are looked up in tables, and never imported."""
    crafted(root, path, np.ones(2))
    with pytest.raises(ImportError, match="skops"):
        rk.load(path)


def test_pickled_arrays_are_refused(path):
    root = node("NdArrayNode", "numpy.ndarray", type="numpy", file="a.npy")
    crafted(root, path, np.array([None]))
    with pytest.raises(ModelFileError, match="type object"):
        rk.load(path)


def test_models_of_randkern_are_saved_and_loaded_without_importing_skops(tmp_path):
    """Importing skops takes seconds: it imports all of scikit-learn, and PyTorch."""
    code = (
        "import sys, numpy as np, randkern as rk\n"
        "X = np.arange(20.0)[:, None]\n"
        "model = rk.KernelRidgeRegressor(n_components=9).fit(X, X[:, 0] ** 2)\n"
        f"rk.save(model, {str(tmp_path / 'model.skops')!r})\n"
        f"rk.load({str(tmp_path / 'model.skops')!r}).predict(X)\n"
        "print(sorted({'skops', 'torch', 'dask'} & {*sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
