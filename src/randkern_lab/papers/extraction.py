"""Image features from files, or from a layer of a PyTorch module."""

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from randkern.datasets import Dataset, load_dataset
from randkern.exceptions import DataFileError
from randkern.study.preparation import prepare

from .networks import pretrained

_BATCH = 128  # images


class Layer(NamedTuple):
    """A layer of a network, by the name of its column in a table and of its module.

    Images are resized to `image_size` pixels per side.
    """

    architecture: str
    layer: str
    module: str
    image_size: int


LAYERS = (
    Layer("ResNet34", "L1", "layer1", 32),
    Layer("ResNet34", "L2", "layer2", 32),
    Layer("ResNet34", "L3", "layer3", 32),
    Layer("ResNet34", "Final", "avgpool", 224),
    Layer("AlexNet", "MP1", "features.2", 32),
    Layer("AlexNet", "MP2", "features.5", 32),
    Layer("AlexNet", "Final", "avgpool", 224),
    Layer("VGG16", "MP2", "features.9", 32),
    Layer("VGG16", "MP3", "features.16", 32),
    Layer("VGG16", "MP4", "features.23", 32),
    Layer("VGG16", "MP5", "features.30", 32),
    Layer("VGG16", "Final", "avgpool", 224),
    # not in the paper
    Layer("SqueezeNet", "Fire5", "pool5", 128),
    Layer("SqueezeNet", "Fire9", "fire9", 128),
    Layer("SqueezeNet", "Final", "fire9", 227),
    Layer("EfficientNet-Lite0", "Final", "_bn1", 64),
)


def extract_features(layer: Layer, images: NDArray[Any], path: Path) -> None:
    """Write the output of a pretrained layer for every image to a ``.npy`` file.

    `images`, of shape (n, height, width, 3) in [0, 1], are resized bilinearly; maps and
    channels are flattened, and rounded to float16.
    """
    network = pretrained(layer.architecture)
    partial, written = path.with_suffix(".part"), None
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH].astype(np.float32)
        rows = network.outputs(layer.module, batch, layer.image_size)
        if written is None:
            size = len(images), rows.shape[1]
            written = open_memmap(partial, "w+", dtype=np.float16, shape=size)
        written[start : start + len(rows)] = rows
    del written  # writes what is left
    partial.replace(path)


# -- labelled features ---------------------------------------------------------------

_FOLDER = "cifar10-squeezenet"


def load_features(
    layer: str,
    data_dir: Path | None,
    *,
    network: str | None = None,
    scratch: Path | None = None,
    quick: bool = False,
) -> Dataset:
    """Load features of training and test images, or extract them from CIFAR-10.

    `layer` is the prefix of the files, ``"pixels"`` for the pixels of CIFAR-10 or, with
    `network`, one of `LAYERS`; extracted features are stored in `scratch` and reused.
    A quick run uses at most 1,000 training and 500 test images, and without a
    directory the pixels of digits.
    """
    if data_dir is None and not quick:
        raise ValueError(
            "the features' directory is needed: give --data-dir, or --quick for a "
            "smoke run on scikit-learn's digits"
        )
    if network is not None and data_dir is not None:
        result = _extracted(network, layer, data_dir, scratch, quick)
    elif data_dir is None or layer == "pixels":
        dataset = load_dataset("cifar10" if data_dir else "digits", data_dir=data_dir)
        data, name = prepare(dataset), f"{dataset.name} (pixels)"
        result = Dataset(name, data.X_train, data.y_train, data.X_test, data.y_test)
    else:
        result = _read(layer, data_dir)
    if not quick:
        return result
    parts = result.X_train[:1000], result.y_train[:1000]
    return Dataset(result.name, *parts, result.X_test[:500], result.y_test[:500])


def _read(layer: str, data_dir: Path) -> Dataset:
    """Return rows and labels from files."""
    folder = data_dir
    if not (folder / f"{layer}_train.npy").is_file() and (data_dir / _FOLDER).is_dir():
        folder = data_dir / _FOLDER
    arrays: list[Any] = []
    for part in ("train", "test"):
        for stem in (layer, "labels"):
            path = folder / f"{stem}_{part}.npy"
            if not path.is_file():
                raise DataFileError(
                    f"{path} is missing: {folder} must hold {layer}_train.npy, "
                    f"{layer}_test.npy, labels_train.npy and labels_test.npy"
                )
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
        X, y = arrays[-2:]
        if X.ndim < 2 or y.shape != (len(X),):
            raise DataFileError(
                f"{folder}: expected a row of features and one label an image, got "
                f"features of shape {X.shape} and labels of shape {y.shape}"
            )
        arrays[-2:] = X.reshape(len(X), -1), np.array(y)
    return Dataset(f"{folder.name} {layer}", *arrays)


def _extracted(
    network: str, layer: str, data_dir: Path, scratch: Path | None, quick: bool
) -> Dataset:
    """Return rows and labels of CIFAR-10 by a pretrained network."""
    known = {(k.architecture.lower(), k.layer.lower()): k for k in LAYERS}
    wanted = known.get((network.lower(), layer.lower()))
    if wanted is None:
        names = ", ".join(f"{k.architecture} {k.layer}" for k in LAYERS)
        raise ValueError(f"no layer {layer!r} of {network!r}; expected one of {names}")
    data: Any = load_dataset("cifar10", data_dir=data_dir)
    result: list[Any] = []
    with nullcontext(scratch) if scratch else TemporaryDirectory() as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for part, rows, labels in (
            ("train", data.X_train, data.y_train),
            ("test", data.X_test, data.y_test),
        ):
            images = np.asarray(rows[:1000] if quick else rows)
            images = images.reshape(-1, *data.image_shape)
            name = f"{wanted.architecture}-{wanted.layer}-{len(images)}-{part}.npy"
            path = folder / name.lower()
            if not path.is_file():
                extract_features(wanted, images, path)
            # A temporary folder is deleted, so its files are read, not mapped.
            X = np.load(path, mmap_mode="r" if scratch else None)
            result += [X, labels[: len(X)]]
    return Dataset(f"{data.name} {wanted.architecture} {wanted.layer}", *result)
