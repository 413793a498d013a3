"""MNIST and Fashion-MNIST from IDX files, and CIFAR-10 in its three forms.

`randkern.datasets.load_dataset` finds the loaders by name, through entry points of the
group ``randkern.datasets``. Each takes the folder of the files, or its parent.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from randkern._extras import import_extra
from randkern._files import READING_ERRORS
from randkern.datasets import Dataset
from randkern.datasets.files import guess_content, open_data
from randkern.exceptions import DataFileError

#: Pixels as bytes, a row per image, and labels.
Images: TypeAlias = tuple[np.ndarray, np.ndarray]

_IDX_TYPES = {
    0x08: "u1",
    0x09: "i1",
    0x0B: ">i2",
    0x0C: ">i4",
    0x0D: ">f4",
    0x0E: ">f8",
}
_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
).split(",")
_OBJECTS = "airplane automobile bird cat deer dog frog horse ship truck".split()
_FASHION_SAMPLE = "fashion-mnist-sample"
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_PICKLED_NAMES = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


def mnist(place: Path) -> Dataset:
    """Load MNIST from its four IDX files."""
    return _idx_files("mnist", place, _DIGITS)


def fashion_mnist(place: Path) -> Dataset:
    """Load Fashion-MNIST from its four IDX files."""
    return _idx_files("fashion-mnist", place, _CLOTHES)


def fashion_mnist_sample(place: Path) -> Dataset:
    """Load a sample of Fashion-MNIST, in the same four files."""
    return _idx_files(_FASHION_SAMPLE, place, _CLOTHES)


def cifar10(place: Path) -> Dataset:
    """Load CIFAR-10: batches of either version, or images in folders or a zip archive.

    The first of these that is there is read: ``cifar-10-batches-bin/``,
    ``cifar-10-batches-py/``, ``train/CLASS/*.png`` or ``*.jpg`` with ``test/``, and
    ``cifar10.zip`` of such folders. Images are sorted by file name, then class.
    """
    _check_folder(place)
    for folder in (place, place / "cifar10"):
        for version, suffix, read in (
            ("bin", ".bin", _binary_batch),
            ("py", "", _pickled_batch),
        ):
            for own in (folder, folder / f"cifar-10-batches-{version}"):
                if (own / f"{_BATCHES[0]}{suffix}").is_file():
                    batches = [read(own / f"{name}{suffix}") for name in _BATCHES]
                    train = tuple(map(np.concatenate, zip(*batches[:-1], strict=True)))
                    return _images("cifar10", own, _OBJECTS, train, batches[-1])
        for source in (folder, folder / "cifar10.zip", folder / "cifar-10.zip"):
            if source.is_file() or (source / "train" / _OBJECTS[0]).is_dir():
                parts = [_decoded(source, split) for split in ("train", "test")]
                return _images("cifar10", source, _OBJECTS, *parts)
    raise FileNotFoundError(
        f"no files of 'cifar10' in {place} or {place / 'cifar10'}: looked for "
        "cifar-10-batches-bin/data_batch_1.bin, cifar-10-batches-py/data_batch_1, a "
        "folder train/airplane, and cifar10.zip"
    )


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file, plain or compressed.

    It has two zero bytes, a byte for the type, one for the number of dimensions, the
    big-endian dimensions and the values. Damaged files raise a DataFileError.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    with open_data(Path(path)) as stream:
        content = stream.read()
    head = content[:4]
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
        raise DataFileError(
            f"{path}: not an IDX file{guess_content(content[:32])}; check that this is "
            "the right file"
        )
    dtype, start = np.dtype(_IDX_TYPES[head[2]]), 4 + 4 * head[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4", -1))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(shape) != head[3] or len(content) != expected:
        raise DataFileError(
            f"{path}: {len(content):,} bytes, expected {expected:,} for shape {shape}; "
            "the file is damaged: copy or download it again"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def _idx_files(name: str, place: Path, classes: Any) -> Dataset:
    _check_folder(place)
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    stems = [f"{split}-{kind}" for split in ("train", "t10k") for kind in kinds]
    for folder in (place, place / name):
        found = [_spelled(folder, stem) for stem in stems]
        if not any(found):
            continue
        missing = [s for s, path in zip(stems, found, strict=True) if path is None]
        if missing:
            raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}[.gz]")
        arrays = [read_idx(path) for path in found if path is not None]
        for path, array, rank in zip(found, arrays, (3, 1, 3, 1), strict=True):
            if array.ndim != rank or array.dtype != np.uint8:
                got = f"rank {array.ndim}, {array.dtype}"
                raise DataFileError(f"{path}: expected rank {rank}, uint8, got {got}")
        return _images(name, folder, classes, tuple(arrays[:2]), tuple(arrays[2:]))
    hint = ""
    if name == "fashion-mnist" and (place / _FASHION_SAMPLE).is_dir():
        hint = f"; there is a sample of it: load it as {_FASHION_SAMPLE!r}"
    raise FileNotFoundError(
        f"no files of {name!r} in {place} or {place / name}: looked for "
        f"{stems[0]}[.gz]{hint}"
    )


def _spelled(folder: Path, stem: str) -> Path | None:
    """Return the file with a standard name, or with the dot of some mirrors."""
    spellings = (stem, stem.replace("-idx", ".idx"))
    paths = [folder / f"{name}{end}" for name in spellings for end in (".gz", "")]
    return next((path for path in paths if path.is_file()), None)


def _check_folder(place: Path) -> None:
    if not place.exists():
        raise FileNotFoundError(
            f"the data folder {place} does not exist; create it, or pass another one"
        )


def _images(name: str, source: Path, classes: Any, train: Any, test: Any) -> Dataset:
    """Return pixels and labels as a data set; the name of a sample has its size."""
    full = 50_000 if name == "cifar10" else 60_000
    title = name.removesuffix("-sample")
    for X, y in (train, test):
        if len(X) != len(y) or not len(y):
            raise DataFileError(f"{source}: {len(X):,} images, {len(y):,} labels")
        if y.min() < 0 or y.max() >= len(classes):
            raise DataFileError(
                f"{source}: labels from {y.min()} to {y.max()}, expected 0 to "
                f"{len(classes) - 1}; the file is damaged: get it again"
            )
    (X, y), (X_test, y_test) = train, test
    shape = (28, 28, 1) if name != "cifar10" else (32, 32, 3)
    if math.prod(X.shape[1:]) != math.prod(shape):
        raise DataFileError(f"{source}: images of {X.shape[1:]}, expected {shape}")
    sample = f" sample ({len(y):,} of {full:,})" if len(y) != full else ""
    return Dataset(
        title + sample,
        (X.reshape(len(X), -1) / np.float32(255)).astype(np.float32, copy=False),
        y.astype(np.int64),
        (X_test.reshape(len(X_test), -1) / np.float32(255)).astype(np.float32),
        y_test.astype(np.int64),
        target_names=tuple(classes),
        image_shape=shape,
        description=(
            f"{title}{sample}, {source.resolve().name}: n = {len(y):,} train + "
            f"{len(y_test):,} test, d = {math.prod(shape):,}"
        ),
    )


def _binary_batch(path: Path) -> Images:
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % 3073:
        raise DataFileError(f"{path}: {content.size:,} bytes, no multiple of 3,073")
    records = content.reshape(-1, 3073)
    return _last_channel(records[:, 1:]), records[:, 0].astype(np.int64)


class _Unpickler(pickle.Unpickler):
    """Reads arrays of bytes, and calls nothing else that a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED_NAMES:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def _pickled_batch(path: Path) -> Images:
    try:
        batch = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        planes = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3072)
        return _last_channel(planes), np.asarray(batch[b"labels"], np.int64)
    except (*READING_ERRORS, pickle.UnpicklingError, TypeError) as error:
        raise DataFileError(
            f"{path}: not a batch of CIFAR-10's python version ({error}); get the file "
            "again, from a source you trust"
        ) from error


def _last_channel(planes: np.ndarray) -> np.ndarray:
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _decoded(source: Path, split: str) -> Images:
    """Decode the images of a split, sorted by file name, then class."""
    Image: Any = import_extra("PIL.Image", "Decoding JPEG and PNG images", "data")
    pixels, labels = [], []
    files = sorted(_files(source, split), key=lambda item: (item[1], item[0]))
    for label, name, read in files:
        try:
            with Image.open(io.BytesIO(read()), formats=("JPEG", "PNG")) as image:
                if image.size != (32, 32):
                    raise ValueError(f"{image.size} pixels, expected 32 x 32")
                pixels.append(np.asarray(image.convert("RGB")))
        except (*READING_ERRORS, Image.DecompressionBombError) as error:
            where = f"{source}/{split}/{_OBJECTS[label]}/{name}"
            raise DataFileError(f"{where}: unreadable image ({error})") from error
        labels.append(label)
    return np.array(pixels, np.uint8).reshape(-1, 32, 32, 3), np.array(labels)


def _files(source: Path, split: str) -> Iterator[tuple[int, str, Callable[[], bytes]]]:
    """Yield the class, the file name and a reader of each image of a split."""
    if source.is_dir():
        for label, folder in enumerate(_OBJECTS):
            for path in (source / split / folder).iterdir():
                if path.suffix.lower() in (".jpg", ".jpeg", ".png"):
                    yield label, path.name, path.read_bytes
        return
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as error:
        raise DataFileError(f"{source}: a damaged zip archive ({error})") from error
    for member in archive.namelist():
        parts = member.split("/")
        if parts[-3:-1] and parts[-3] == split and parts[-2] in _OBJECTS:
            read = lambda member=member: archive.read(member)  # noqa: E731
            yield _OBJECTS.index(parts[-2]), parts[-1], read
