"""MNIST and Fashion-MNIST from IDX files, and CIFAR-10 from batches or single images.

`randkern.datasets.load_dataset` finds the loaders by name, through entry points of the
group ``randkern.datasets``. Each takes the folder of the files, or its parent.
"""

import io
import math
import zipfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._files import READING_ERRORS
from randkern.datasets import Dataset
from randkern.datasets.files import guess_content, open_data
from randkern.exceptions import DataFileError

_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_KINDS = {"images-idx3-ubyte": 3, "labels-idx1-ubyte": 1}  # and their dimensions
_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
_CLOTHES = (
    "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
).split(",")
_OBJECTS = "airplane automobile bird cat deer dog frog horse ship truck".split()


def _idx_files(name: str, classes: list[str], place: Path) -> Dataset:
    """Load images and labels from four IDX files, plain or compressed."""
    for folder in _folders(name, place):
        arrays, missing = [], []
        for stem in (
            f"{split}-{kind}" for split in ("train", "t10k") for kind in _KINDS
        ):
            # Some mirrors have a dot in place of a hyphen.
            paths = [
                folder / f"{s}{end}"
                for s in (stem, stem.replace("-idx", ".idx"))
                for end in (".gz", "")
            ]
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                missing.append(stem)
                continue
            arrays.append(read_idx(path))
            rank = _KINDS[stem.partition("-")[2]]
            if arrays[-1].ndim != rank or arrays[-1].dtype != np.uint8:
                got = f"rank {arrays[-1].ndim}, {arrays[-1].dtype}"
                raise DataFileError(f"{path}: expected rank {rank}, uint8, got {got}")
        if arrays and missing:
            raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}[.gz]")
        if arrays:
            return _images(name, folder, classes, (28, 28, 1), arrays[:2], arrays[2:])
    sample = f"{name}-sample"
    hint = f"; there is a sample of it: load it as {sample!r}"
    raise FileNotFoundError(
        f"no files of {name!r} in {place} or {place / name}: looked for "
        f"train-images-idx3-ubyte[.gz]{hint * (place / sample).is_dir()}"
    )


mnist = partial(_idx_files, "mnist", list("0123456789"))
fashion_mnist = partial(_idx_files, "fashion-mnist", _CLOTHES)
fashion_mnist_sample = partial(_idx_files, "fashion-mnist-sample", _CLOTHES)


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


def cifar10(place: Path) -> Dataset:
    """Load CIFAR-10: the binary version, or single images.

    The first of these that is there is read: ``cifar-10-batches-bin/``,
    ``train/CLASS/*.png`` or ``*.jpg`` with ``test/``, and ``cifar10.zip`` of such
    folders. Images are sorted by file name, then class.
    """
    images = partial(_images, "cifar10", classes=_OBJECTS, shape=(32, 32, 3))
    for folder in _folders("cifar10", place):
        for own in (folder, folder / "cifar-10-batches-bin"):
            if (own / _BATCHES[0]).is_file():
                *batches, last = [_binary_batch(own / name) for name in _BATCHES]
                joined = [np.concatenate(part) for part in zip(*batches, strict=True)]
                return images(own, train=joined, test=last)
        for source in (folder, folder / "cifar10.zip", folder / "cifar-10.zip"):
            if source.is_file() or (source / "train" / _OBJECTS[0]).is_dir():
                train, test = (_decoded(source, part) for part in ("train", "test"))
                return images(source, train=train, test=test)
    raise FileNotFoundError(
        f"no files of 'cifar10' in {place} or {place / 'cifar10'}: looked for "
        f"cifar-10-batches-bin/{_BATCHES[0]}, a folder train/airplane, and cifar10.zip"
    )


def _binary_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % 3073:
        raise DataFileError(f"{path}: {content.size:,} bytes, no multiple of 3,073")
    records = content.reshape(-1, 3073)
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), records[:, 0]


def _decoded(source: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Decode the images of a split, of a folder or of a zip archive."""
    Image: Any = import_extra("PIL.Image", "Decoding JPEG and PNG images", "data")
    found = []
    try:
        if source.is_dir():
            files = {str(p): p.read_bytes for p in source.glob(f"{split}/*/*")}
        else:
            archive = zipfile.ZipFile(source)
            files = {name: partial(archive.read, name) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise DataFileError(f"{source}: a damaged zip archive ({error})") from error
    for path, read in files.items():
        *_, part, folder, name = "", "", *PurePosixPath(path).parts
        is_image = name.lower().endswith((".jpg", ".jpeg", ".png"))
        if part == split and folder in _OBJECTS and is_image:
            found.append((name, _OBJECTS.index(folder), path, read))
    found.sort(key=lambda image: image[:2])
    pixels = np.empty((len(found), 32, 32, 3), np.uint8)
    for i, (*_, path, read) in enumerate(found):
        try:
            with Image.open(io.BytesIO(read()), formats=("JPEG", "PNG")) as image:
                if image.size != (32, 32):
                    raise ValueError(f"{image.size} pixels, expected 32 x 32")
                pixels[i] = image.convert("RGB")
        except (*READING_ERRORS, Image.DecompressionBombError) as error:
            raise DataFileError(
                f"{source}, {path}: unreadable image ({error})"
            ) from error
    return pixels, np.array([label for _, label, *_ in found])


def _folders(name: str, place: Path) -> tuple[Path, Path]:
    """Return where the files may be."""
    if not place.exists():
        raise FileNotFoundError(
            f"the data folder {place} does not exist; create it, or pass another one"
        )
    return place, place / name


def _images(
    name: str, source: Path, classes: list[str], shape: Any, train: Any, test: Any
) -> Dataset:
    """Return bytes and labels as a data set; the name of a sample has its size."""
    full, parts = 60_000 if shape[2] == 1 else 50_000, list[Any]()
    for X, y in (train, test):
        if len(X) != len(y) or not len(y):
            raise DataFileError(f"{source}: {len(X):,} images, {len(y):,} labels")
        if y.max() >= len(classes) or math.prod(X.shape[1:]) != math.prod(shape):
            raise DataFileError(
                f"{source}: labels up to {y.max()} of images of {X.shape[1:]}, "
                f"expected up to {len(classes) - 1} and {shape}; the file is damaged: "
                "get it again"
            )
        pixels = X.reshape(len(X), -1) / np.float32(255)
        parts += [pixels.astype(np.float32, copy=False), y.astype(np.int64)]
    X, y, X_test, y_test = parts
    n, n_test, title = len(y), len(y_test), name.removesuffix("-sample")
    sample = f" sample ({n:,} of {full:,})" if n != full else ""
    return Dataset(
        title + sample,
        X,
        y,
        X_test,
        y_test,
        target_names=tuple(classes),
        image_shape=shape,
        description=(
            f"{title}{sample}, {source.resolve().name}: n = {n:,} train + "
            f"{n_test:,} test, d = {math.prod(shape):,}"
        ),
    )
