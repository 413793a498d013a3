"""MNIST and Fashion-MNIST from their four IDX files, and the IDX format."""

import hashlib
import math
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from randkern._warnings import warn
from randkern.datasets import Dataset
from randkern.datasets.files import guess_content, open_data
from randkern.exceptions import DataFileError

from .image_set import ImageSet, unit_pixels

_DTYPES: dict[int, np.dtype] = {
    0x08: np.dtype(np.uint8),
    0x09: np.dtype(np.int8),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_MAX_RANK = 64  # NumPy's limit on dimensions.
_CHUNK = 1 << 20


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file, plain or gzip (by content, not by suffix).

    The format is two zero bytes, a type byte (8 uint8, 9 int8, 0xB int16,
    0xC int32, 0xD float32, 0xE float64), a rank byte, one big-endian uint32
    size per dimension, then the values in C order, big-endian.

    Parameters
    ----------
    path : str or Path
        The file, plain or compressed with gzip.

    Returns
    -------
    ndarray
        With the shape and type in the header, in native byte order; 0-dimensional
        for rank 0.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    randkern.exceptions.DataFileError
        On a bad magic number, an unknown type, a truncated header or values,
        bytes after the last value, or a damaged gzip stream. Memory is allocated
        as bytes arrive, so a header that declares terabytes does not exhaust it.

    References
    ----------
    .. [1] Y. LeCun, C. Cortes, C. Burges. The MNIST database of handwritten
       digits, "File formats for the MNIST database".

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    path = Path(path)
    with open_data(path) as stream:
        dtype, shape = _read_header(stream, path)
        expected = math.prod(shape) * dtype.itemsize
        values = _read_values(stream, path, expected)
        if stream.read(1):
            raise DataFileError(
                f"{path}: bytes follow the last value: the header promises shape "
                f"{shape} of {dtype.name}, {expected:,} bytes; the file is damaged or "
                f"its header is wrong: copy or download it again"
            )
    array = np.frombuffer(values, dtype=dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_header(stream: BinaryIO, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """Read and check the magic number and the sizes."""
    magic = stream.read(4)
    if len(magic) < 4:
        raise DataFileError(
            f"{path}: {len(magic)} bytes where an IDX file begins with 4; the file is "
            f"empty or cut short: copy or download it again"
        )
    if magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] > _MAX_RANK:
        raise DataFileError(
            f"{path}: not an IDX file{guess_content(magic + stream.read(28))}: it "
            f"begins with {magic.hex(' ')}, expected 00 00, a type among "
            f"{', '.join(f'{code:02x}' for code in _DTYPES)}, and a rank up to "
            f"{_MAX_RANK}; check that this is the right file"
        )
    rank = magic[3]
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise DataFileError(
            f"{path}: the header ends after {4 + len(sizes)} of {4 + 4 * rank} bytes "
            f"(rank {rank}); the file is cut short: copy or download it again"
        )
    shape = tuple(np.frombuffer(sizes, dtype=">u4").tolist())
    # NumPy rejects shapes whose non-zero sizes overflow, even if one size is zero.
    if math.prod(size for size in shape if size) >= 1 << 59:
        raise DataFileError(
            f"{path}: the header states shape {shape}, more than can exist; the file "
            f"is damaged: copy or download it again"
        )
    return _DTYPES[magic[2]], shape


def _read_values(stream: BinaryIO, path: Path, expected: int) -> bytearray:
    """Read ``expected`` bytes in chunks, or raise with the number read."""
    values = bytearray()
    while len(values) < expected:
        chunk = stream.read(min(_CHUNK, expected - len(values)))
        if not chunk:
            raise DataFileError(
                f"{path}: truncated: {len(values):,} bytes of values, expected "
                f"{expected:,} by the header; copy or download the file again"
            )
        values += chunk
    return values


TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
STEMS = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

FULL_COUNTS = (60_000, 10_000)
_SHAPE = (28, 28, 1)
_SETS = {
    "mnist": ImageSet("mnist", "MNIST handwritten digits", tuple("0123456789"), _SHAPE),
    "fashion-mnist": ImageSet(
        "fashion-mnist",
        "Fashion-MNIST",
        (
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        _SHAPE,
    ),
}

# Checksums of the uncompressed files, in the order of STEMS: mirrors recompress them,
# so the .gz files differ.
_ALGORITHMS = {"mnist": "sha256", "fashion-mnist": "md5"}
_CHECKSUMS = {
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
}


def _find(folder: Path, stem: str) -> Path | None:
    """Return the file with a standard name, with or without ``.gz``, or None.

    The spelling ``train-images.idx3-ubyte``, common on mirrors, is accepted too.
    """
    for spelling in (stem, stem.replace("-idx", ".idx")):
        for path in (folder / f"{spelling}.gz", folder / spelling):
            if path.is_file():
                return path
    return None


def load_mnist(folder: Path, family: str) -> Dataset | None:
    """Load MNIST or Fashion-MNIST from their four IDX files; None if all are missing.

    Files have their standard names, plain or gzip. Those of the other data set raise a
    DataFileError; those of the full size with an unknown checksum cause a warning.
    """
    files = {stem: path for stem in STEMS if (path := _find(folder, stem))}
    missing = [stem for stem in STEMS if stem not in files]
    if not files:
        return None
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)} (each with or without .gz); all of "
            f"{', '.join(STEMS)} are needed"
        )
    splits = {
        "train": _load_split(files, TRAIN_IMAGES, TRAIN_LABELS, family),
        "test": _load_split(files, TEST_IMAGES, TEST_LABELS, family),
    }
    source = f"IDX files in {folder.resolve().name}"
    return _SETS[family].dataset(source, splits, FULL_COUNTS)


def _load_split(
    files: dict[str, Path], images_stem: str, labels_stem: str, family: str
) -> tuple[np.ndarray, np.ndarray]:
    images = _read_checked(files[images_stem], images_stem, family, rank=3)
    labels = _read_checked(files[labels_stem], labels_stem, family, rank=1)
    height, width, _ = _SHAPE
    if images.shape[1:] != (height, width):
        raise DataFileError(
            f"{files[images_stem]}: images of {images.shape[1]} x {images.shape[2]} "
            f"pixels, expected {height} x {width}; read other IDX images with read_idx"
        )
    if len(images) != len(labels):
        raise DataFileError(
            f"{files[images_stem]} holds {len(images):,} images but "
            f"{files[labels_stem]} {len(labels):,} labels; both must come from the "
            f"same download: get them again"
        )
    _SETS[family].check_labels(files[labels_stem], labels, "at position")
    return unit_pixels(images.reshape(len(images), -1)), labels.astype(np.int64)


def _read_checked(path: Path, stem: str, family: str, *, rank: int) -> np.ndarray:
    """Read one file; check its rank, type, number of rows and checksum."""
    array = read_idx(path)
    kinds = {3: "images (rank 3, uint8)", 1: "labels (rank 1, uint8)"}
    if array.ndim != rank or array.dtype != np.uint8:
        actual = f"rank {array.ndim}, {array.dtype}; check that this is the right file"
        if array.dtype == np.uint8 and array.ndim == 4 - rank:
            actual = kinds[4 - rank]
            actual += "; images and labels are swapped: rename the files"
        raise DataFileError(f"{path}: expected {kinds[rank]}, got {actual}")
    if not len(array):
        raise DataFileError(f"{path}: holds no rows; get the file again")
    if len(array) == FULL_COUNTS[stem in (TEST_IMAGES, TEST_LABELS)]:
        _check_content(path, stem, family)
    return array


def _check_content(path: Path, stem: str, family: str) -> None:
    """Raise if the content is that of the other data set, warn if of neither."""
    digests = {}
    for other, algorithm in _ALGORITHMS.items():
        with open_data(path) as stream:
            content: Any = stream
            digest = partial(hashlib.new, algorithm, usedforsecurity=False)
            digests[other] = hashlib.file_digest(content, digest).hexdigest()
    known = {other: _CHECKSUMS[other][STEMS.index(stem)] for other in digests}
    same = [other for other in digests if digests[other] == known[other]]
    if same and family not in same:
        raise DataFileError(
            f"{path}: this is the {stem} of {same[0]}, not of {family}; load it as "
            f"{same[0]!r}, or put the right file there"
        )
    if not same:
        warn(
            f"{path} has the full size, but its {_ALGORITHMS[family]} (uncompressed) "
            f"is {digests[family]}, expected {known[family]}: the content is not the "
            f"published {family}; results may not be comparable",
            UserWarning,
        )
