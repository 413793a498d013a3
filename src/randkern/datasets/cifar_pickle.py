"""Batches of the CIFAR-10 python version, unpickled without running anything.

A pickle is a program. This one is run with stand-ins for the few names that a
batch needs, which collect bytes and shapes and call nothing: a file that names
anything else is refused.
"""

import io
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from randkern.exceptions import DataFileError

# What Unpickler documents, or was seen, to raise on damaged data; a MemoryError
# comes from a damaged length or memo index.
_UNPICKLING_ERRORS = (
    *(pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError),
    *(KeyError, TypeError, ValueError, OverflowError, MemoryError),
    *(AssertionError, RecursionError, struct.error, UnboundLocalError),
)


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
    """Stand in for NumPy's function of that name (its state follows)."""
    return _ByteArray()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: str) -> _ByteArray:
    """Stand in for NumPy's ``_frombuffer`` of pickle protocol 5."""
    array = _ByteArray()
    array._set(shape, dtype, bytes(content), order)
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for ``_codecs.encode``, by which Python 3 writes protocol 2 bytes."""
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


# The one in Python, not the one in C, which allocates what a file declares: the length
# of a text, or as many memo entries as the largest index.
class _BatchUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return the stand-in for a name, or refuse it."""
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which a CIFAR-10 batch does not need and "
                f"which is therefore not loaded"
            )
        return _STAND_INS[module, name]


def read_pickled_batch(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Read one batch of the python version.

    Parameters
    ----------
    path : Path
        Named in errors.
    content : bytes
        Of the file: a pickle (any protocol) of a dict with ``data``, uint8 of
        shape (n, 3072), and ``labels``, n integers.

    Returns
    -------
    planes : ndarray of uint8, shape (n, 3072)
        Red, green and blue planes of each image, rows within them.
    labels : ndarray of int64, shape (n,)
        Unchecked but for their count.

    Raises
    ------
    DataFileError
        Where the pickle is damaged, names anything but byte arrays, dicts,
        lists and numbers (nothing of it is run), or is not such a dict.
    """
    try:
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _UNPICKLING_ERRORS as error:
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
