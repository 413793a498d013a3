"""MNIST and Fashion-MNIST from their four IDX files."""

import hashlib
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from randkern.datasets.files import open_data
from randkern.datasets.idx import read_idx
from randkern.datasets.record import Dataset, image_dataset, unit_pixels
from randkern.exceptions import DataFileError

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
STEMS = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

FULL_COUNTS = (60_000, 10_000)
_SIDE = 28

_CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
_TITLES = {"mnist": "MNIST handwritten digits", "fashion-mnist": "Fashion-MNIST"}

# Of the uncompressed files, in the order of STEMS: mirrors pack them anew, so that
# the .gz files differ.
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


def find_file(folder: Path, stem: str) -> Path | None:
    """Return the file of that standard name, with or without ``.gz``, or None.

    The spelling ``train-images.idx3-ubyte``, common on mirrors, is found too.
    """
    for spelling in (stem, stem.replace("-idx", ".idx")):
        for path in (folder / f"{spelling}.gz", folder / spelling):
            if path.is_file():
                return path
    return None


def load_mnist(folder: Path, family: str) -> Dataset:
    """Load the four IDX files of a set of the MNIST family.

    Parameters
    ----------
    folder : Path
        Holds the files under their standard names, plain or gzip.
    family : {"mnist", "fashion-mnist"}
        Which class names and checksums hold.

    Returns
    -------
    Dataset
        X float32 of shape (n, 784) in [0, 1], y int64 of shape (n,), in the
        order of the files. Where the counts are not 60,000 and 10,000, name
        and description say ``sample (3,000 of 60,000)``.

    Raises
    ------
    FileNotFoundError
        Where one of the four files is missing.
    DataFileError
        Damaged file, images and labels swapped or of different counts, labels
        out of 0..9, images not 28 x 28, or the files of the other set.

    Warns
    -----
    UserWarning
        Where a file has the full count but not the known checksum.
    """
    paths = {stem: find_file(folder, stem) for stem in STEMS}
    missing = [stem for stem, path in paths.items() if path is None]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)} (each with or without .gz); all of "
            f"{', '.join(STEMS)} are needed"
        )
    files = {stem: path for stem, path in paths.items() if path is not None}
    X_train, y_train = _load_split(files, TRAIN_IMAGES, TRAIN_LABELS, family)
    X_test, y_test = _load_split(files, TEST_IMAGES, TEST_LABELS, family)
    return image_dataset(
        family,
        _TITLES[family],
        f"IDX files in {folder.resolve().name}",
        {"train": (X_train, y_train), "test": (X_test, y_test)},
        full_counts=FULL_COUNTS,
        target_names=_CLASSES[family],
        image_shape=(_SIDE, _SIDE, 1),
    )


def _load_split(
    files: dict[str, Path], images_stem: str, labels_stem: str, family: str
) -> tuple[np.ndarray, np.ndarray]:
    images = _read_checked(files[images_stem], images_stem, family, rank=3)
    labels = _read_checked(files[labels_stem], labels_stem, family, rank=1)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise DataFileError(
            f"{files[images_stem]}: images of {images.shape[1]} x {images.shape[2]} "
            f"pixels, expected {_SIDE} x {_SIDE}; read other IDX images with read_idx"
        )
    if len(images) != len(labels):
        raise DataFileError(
            f"{files[images_stem]} holds {len(images):,} images but "
            f"{files[labels_stem]} {len(labels):,} labels; both must come from the "
            f"same download: get them again"
        )
    wrong = np.flatnonzero(labels > 9)
    if wrong.size:
        raise DataFileError(
            f"{files[labels_stem]}: {wrong.size:,} labels out of 0..9, the first "
            f"{labels[wrong[0]]} at position {wrong[0]:,}; this is not the labels file "
            f"of {family}, or it is damaged: get it again"
        )
    rows = images.reshape(len(images), _SIDE * _SIDE)
    return unit_pixels(rows), labels.astype(np.int64)


def _read_checked(path: Path, stem: str, family: str, *, rank: int) -> np.ndarray:
    """Read one file; check its rank and type, that it has rows, and its checksum."""
    array = read_idx(path)
    kinds = {3: "images (rank 3, uint8)", 1: "labels (rank 1, uint8)"}
    if array.ndim != rank or array.dtype != np.uint8:
        swapped = array.dtype == np.uint8 and array.ndim == 4 - rank
        raise DataFileError(
            f"{path}: expected {kinds[rank]}, got "
            + (kinds[4 - rank] if swapped else f"rank {array.ndim}, {array.dtype}")
            + ("; images and labels are swapped: rename the files" if swapped else "")
            + ("" if swapped else "; check that this is the right file")
        )
    if not len(array):
        raise DataFileError(f"{path}: holds no rows; get the file again")
    full = FULL_COUNTS[0] if stem in (TRAIN_IMAGES, TRAIN_LABELS) else FULL_COUNTS[1]
    if len(array) == full:
        _check_content(path, stem, family)
    return array


def _check_content(path: Path, stem: str, family: str) -> None:
    """Raise where the content is that of the other set, warn where of neither."""
    found = {}
    for other, algorithm in _ALGORITHMS.items():
        with open_data(path) as stream:
            content: Any = stream
            digest = partial(hashlib.new, algorithm, usedforsecurity=False)
            found[other] = hashlib.file_digest(content, digest).hexdigest()
    known = {other: _CHECKSUMS[other][STEMS.index(stem)] for other in found}
    if found[family] == known[family]:
        return
    for other in found:
        if found[other] == known[other]:
            raise DataFileError(
                f"{path}: this is the {stem} of {other}, not of {family}; load it as "
                f"{other!r}, or put the right file there"
            )
    warnings.warn(
        f"{path} has the full size, but its {_ALGORITHMS[family]} (uncompressed) is "
        f"{found[family]}, expected {known[family]}: the content is not the "
        f"published {family}; results may not be comparable",
        UserWarning,
        stacklevel=2,
    )
