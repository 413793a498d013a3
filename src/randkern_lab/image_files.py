"""MNIST and Fashion-MNIST from IDX files, and CIFAR-10 from batches or single images.

`randkern.datasets.load_dataset` finds the loaders by name, through entry points of the
group ``randkern.datasets``. Each takes the folder of the files, or its parent.
"""

import io
import re
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._files import READING_ERRORS
from randkern.datasets import Dataset
from randkern.datasets.files import guess_content, open_data
from randkern.exceptions import DataFileError

_CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_OBJECTS = "airplane automobile bird cat deer dog frog horse ship truck".split()
_BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def _idx_files(name: str, classes: list[str], place: Path) -> Dataset:
    """Load images and labels from four IDX files, plain or compressed."""
    folder = _first(name, place, "train-images?idx3-ubyte*").parent
    kinds = "images?idx3-ubyte*", "labels?idx1-ubyte*"
    forms = [f"{split}-{kind}" for split in ("train", "t10k") for kind in kinds]
    parts = [read_idx(_first(name, folder, form)) for form in forms]
    return _dataset(name, folder, classes, (28, 28, 1), *parts)


mnist = partial(_idx_files, "mnist", list("0123456789"))
fashion_mnist = partial(_idx_files, "fashion-mnist", _CLOTHES.split(","))
fashion_mnist_sample = partial(_idx_files, "fashion-mnist-sample", _CLOTHES.split(","))


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of bytes, plain or compressed: dimensions, then values."""
    with open_data(path) as stream:
        content = stream.read()
    try:
        if content[:3] != b"\0\0\x08":
            raise ValueError(f"it begins with {content[:3]!r}")
        start = 4 + 4 * content[3]
        sizes = np.frombuffer(content[4:start], ">u4").astype(int)
        return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
    except (LookupError, ValueError) as error:
        raise DataFileError(
            f"{path}: no IDX file of bytes, or a damaged one"
            f"{guess_content(content[:32])}; copy or download it again ({error})"
        ) from error


def cifar10(place: Path) -> Dataset:
    """Load CIFAR-10: the binary version, or images in ``train/CLASS``, ``test/CLASS``.

    These are in a folder, or in ``cifar10.zip``, and sorted by file name, then class.
    """
    places = [_BATCHES[0], f"cifar-10-batches-bin/{_BATCHES[0]}", "train/airplane"]
    source = _first("cifar10", place, *places, "cifar*10.zip")
    if source.suffix == ".bin":
        batches = [np.fromfile(source.with_name(name), np.uint8) for name in _BATCHES]
        parts = [a for b in (batches[:-1], batches[-1:]) for a in _planes(source, b)]
    else:
        source = source if source.suffix == ".zip" else source.parents[1]
        parts = [*_decoded(source, "train"), *_decoded(source, "test")]
    return _dataset("cifar10", source, _OBJECTS, (32, 32, 3), *parts)


def _planes(source: Path, batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of batches: a label, then three planes of pixels."""
    if any(batch.size % 3073 for batch in batches):
        raise DataFileError(f"{source.parent}: a batch is no multiple of 3,073 bytes")
    rows = np.concatenate(batches).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _decoded(source: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Decode the images of a split, of a folder or of a zip archive."""
    Image: Any = import_extra("PIL.Image", "Decoding JPEG and PNG images", "data")
    form = rf"(?:.*/)?{split}/({'|'.join(_OBJECTS)})/([^/]+\.(?i:jpe?g|png))"
    pixels, labels, path = list[np.ndarray](), list[int](), ""
    try:
        read: Any = Path.read_bytes
        paths: Any = source.glob(f"{split}/*/*")
        if source.is_file():
            archive = zipfile.ZipFile(source)
            read, paths = archive.read, archive.namelist()
        matches = [(re.fullmatch(form, str(path)), path) for path in paths]
        found = sorted((m[2], _OBJECTS.index(m[1]), path) for m, path in matches if m)
        for _, label, path in found:
            with Image.open(io.BytesIO(read(path)), formats=("JPEG", "PNG")) as image:
                pixels.append(np.asarray(image.convert("RGB")))
            labels.append(label)
        return np.stack(pixels), np.array(labels)
    except (*READING_ERRORS, Image.DecompressionBombError) as error:
        raise DataFileError(f"{source}, {path}: unreadable ({error})") from error


def _first(name: str, place: Path, *patterns: str) -> Path:
    """Return the first file of some patterns, in a folder or in its folder `name`."""
    if not place.exists():
        raise FileNotFoundError(f"the data folder {place} does not exist; check it")
    for pattern in patterns:
        for folder in (place, place / name):
            for path in sorted(folder.glob(pattern)):
                return path
    sample = place / f"{name}-sample"
    hint = f"; there is a sample of it: load it as {sample.name!r}"
    raise FileNotFoundError(
        f"no files of {name!r} in {place} or {place / name}: looked for "
        f"{', '.join(patterns)}{hint * sample.is_dir()}"
    )


def _dataset(
    name: str, source: Path, classes: list[str], shape: Any, *parts: np.ndarray
) -> Dataset:
    """Return images and labels as a data set; the name of a sample has its size."""
    for X, y in (parts[:2], parts[2:]):
        wrong = len(X) != len(y) or not y.size or y.max() >= len(classes)
        if wrong or X.size != len(y) * int(np.prod(shape)):
            raise DataFileError(
                f"{source}: expected images of {shape} and as many labels below "
                f"{len(classes)}, got {X.shape} and {y.shape}; the files are damaged: "
                "get them again"
            )
    X, X_test = (
        (X.reshape(len(X), -1) / np.float32(255)).astype(np.float32, copy=False)
        for X in parts[::2]
    )
    y, y_test = (y.astype(np.int64) for y in parts[1::2])
    title, full = name.removesuffix("-sample"), 50_000 if shape[2] == 3 else 60_000
    title += f" sample ({len(y):,} of {full:,})" if len(y) != full else ""
    sizes = f"n = {len(y):,} train + {len(y_test):,} test, d = {X.shape[1]:,}"
    return Dataset(
        title,
        *(X, y, X_test, y_test),
        target_names=tuple(classes),
        image_shape=shape,
        description=f"{title}, {source.resolve().name}: {sizes}",
    )
