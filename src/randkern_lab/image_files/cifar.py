"""CIFAR-10 in any of its formats; pickles are read without running code.

A pickle is a program. Here it runs with stand-ins for the few names that a batch
needs, which collect bytes and shapes and call nothing; a file that names
anything else is rejected.
"""

import hashlib
import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from randkern._files import READING_ERRORS
from randkern._warnings import warn
from randkern.datasets import Dataset
from randkern.exceptions import DataFileError

from .folders import read_image_folder
from .image_set import ImageSet, Splits, unit_pixels


class _ByteType:
    """Stands in for ``numpy.dtype``; only unsigned bytes exist."""

    def __init__(self, code: Any, *_: Any) -> None:
        code = code.decode("latin1") if isinstance(code, bytes) else code
        if code != "u1":
            raise pickle.UnpicklingError(f"an array of type {code!r}, expected 'u1'")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order, alignment and the rest: bytes have none."""


class _ByteArray:
    """Stands in for ``numpy.ndarray``: a shape and its bytes."""

    shape: tuple[int, ...] = ()
    content: bytes = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran_order, content = state
        self._set(shape, dtype, content, "F" if fortran_order else "C")

    def _set(self, shape: Any, dtype: Any, content: Any, order: str) -> None:
        if not isinstance(dtype, _ByteType) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array that is not of plain bytes")
        if order != "C" or math.prod(shape) != len(content):
            raise pickle.UnpicklingError("an array whose bytes do not fit its shape")
        self.shape, self.content = tuple(shape), content


def _reconstruct(*_: Any) -> _ByteArray:
    """Stand in for NumPy's function of that name (the state comes later)."""
    return _ByteArray()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: str) -> _ByteArray:
    """Stand in for NumPy's ``_frombuffer`` of pickle protocol 5."""
    array = _ByteArray()
    array._set(shape, dtype, bytes(content), order)
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for ``_codecs.encode``, with which Python 3 writes protocol 2 bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _ByteArray,
    ("numpy", "dtype"): _ByteType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


# The Python version: the C version allocates whatever a file declares as the length of
# a string or the largest memo index.
class _BatchUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return the stand-in for a name, or raise."""
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which a CIFAR-10 batch does not need and "
                f"which is therefore not loaded"
            )
        return _STAND_INS[module, name]


def read_pickled_batch(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return planes (n, 3072) and labels (n,) of a batch of the python version.

    The content is a pickle, of any protocol, of a dict with ``data`` and ``labels``.
    Anything other than byte arrays, dicts, lists and numbers raises a DataFileError,
    and no code is run. Of the labels only the count is checked.
    """
    try:
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except (*READING_ERRORS, pickle.UnpicklingError, UnboundLocalError) as error:
        raise DataFileError(
            f"{path}: not a batch of the CIFAR-10 python version: {error}; get the "
            f"file again, from a source you trust"
        ) from error
    entries = batch if isinstance(batch, dict) else {}
    data = entries.get(b"data", entries.get("data"))
    labels = entries.get(b"labels", entries.get("labels"))
    if not (isinstance(data, _ByteArray) and isinstance(labels, list)):
        raise DataFileError(
            f"{path}: expected a dict with an array 'data' and a list 'labels', got "
            f"{type(batch).__name__} with {list(map(str, entries)) or 'no entries'}; "
            f"is this a batch file of CIFAR-10 (python version)?"
        )
    if data.shape != (len(labels), 3072) or not all(type(x) is int for x in labels):
        raise DataFileError(
            f"{path}: data of shape {data.shape} and {len(labels):,} labels, expected "
            f"(n, 3072) and n integers; get the file again"
        )
    planes = np.frombuffer(data.content, dtype=np.uint8).reshape(data.shape)
    try:
        return planes, np.array(labels, dtype=np.int64)
    except OverflowError as error:
        raise DataFileError(f"{path}: a label beyond 64 bits; get it again") from error


CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_SET = ImageSet("cifar10", "CIFAR-10", CLASSES, (32, 32, 3))
RECORDS_PER_BATCH = 10_000
FULL_COUNTS = (50_000, 10_000)
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_BINARY_FILES = tuple(f"{batch}.bin" for batch in _BATCHES)
_RECORD_BYTES = 1 + 3 * 32 * 32
_ARCHIVES = ("cifar10.zip", "cifar-10.zip")

# Checksums of the files inside the published cifar-10-python.tar.gz.
_PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

LOOKED_FOR = (
    "cifar-10-batches-bin/data_batch_1.bin, cifar-10-batches-py/data_batch_1, a folder "
    "train/airplane, or cifar10.zip (of such folders)"
)

_BatchReader = Callable[[Path], tuple[np.ndarray, np.ndarray]]


def load_cifar10(place: Path) -> Dataset | None:
    """Load CIFAR-10 from a folder or a zip archive; None if no form of it is there.

    Looks, in this order, for the binary version, the python version, image folders
    (``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``, or PNG) and a zip archive of these;
    the batches may be in `place` or in a sub-folder with their published name. Batches
    keep their order; image folders are sorted by file name, then class.
    """
    for kind, names, read_batch in (
        ("bin", _BINARY_FILES, _read_binary_batch),
        ("py", _BATCHES, _read_python_batch),
    ):
        for folder in (place, place / f"cifar-10-batches-{kind}"):
            if any((folder / name).is_file() for name in names):
                splits = _read_batches(folder, names, read_batch)
                version = "binary" if kind == "bin" else "python"
                where = f"{version} version in {folder.resolve().name}"
                return _SET.dataset(where, splits, FULL_COUNTS)
    for source in (place, *(place / name for name in _ARCHIVES)):
        if source.is_file() or (source / "train" / CLASSES[0]).is_dir():
            splits = read_image_folder(source, _SET)
            where = f"image files in {source.resolve().name}"
            return _SET.dataset(where, splits, FULL_COUNTS)
    return None


def _read_batches(
    folder: Path, names: tuple[str, ...], read_batch: _BatchReader
) -> Splits:
    """Read the five training batches and the test batch into two arrays."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataFileError(
            f"{folder} lacks {', '.join(missing)} of {', '.join(names)}; unpack the "
            f"whole archive there"
        )
    splits = {}
    for split, files in (("train", names[:-1]), ("test", names[-1:])):
        n = RECORDS_PER_BATCH * len(files)
        X = np.empty((n, *_SET.image_shape), dtype=np.float32)
        y = np.empty(n, dtype=np.int64)
        for index, name in enumerate(files):
            planes, labels = read_batch(folder / name)
            if len(labels) != RECORDS_PER_BATCH:
                raise DataFileError(
                    f"{folder / name}: {len(labels):,} records, expected "
                    f"{RECORDS_PER_BATCH:,}; the file is damaged or not of CIFAR-10: "
                    "get it again"
                )
            _SET.check_labels(folder / name, labels, "in record")
            rows = slice(index * RECORDS_PER_BATCH, (index + 1) * RECORDS_PER_BATCH)
            images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            unit_pixels(images, out=X[rows])
            y[rows] = labels
        splits[split] = (X.reshape(n, -1), y)
    return splits


def _read_binary_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read records of one label byte and 3,072 pixel bytes."""
    size, expected = path.stat().st_size, RECORDS_PER_BATCH * _RECORD_BYTES
    if size != expected:
        n_records, rest = divmod(size, _RECORD_BYTES)
        raise DataFileError(
            f"{path}: {size:,} bytes ({n_records:,} records of {_RECORD_BYTES:,} and "
            f"{rest:,} bytes more), expected {expected:,} ({RECORDS_PER_BATCH:,} "
            f"records); the file is damaged or not of CIFAR-10: get it again"
        )
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, _RECORD_BYTES)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _read_python_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = path.read_bytes()
    batch = read_pickled_batch(path, content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != _PICKLE_MD5[path.name]:
        warn(
            f"{path} has MD5 {md5}, expected {_PICKLE_MD5[path.name]}: the file is not "
            f"the published one; results may not be comparable",
            UserWarning,
        )
    return batch
