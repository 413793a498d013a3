"""Features of images from files, or from a layer of a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randkern.datasets import load_dataset
from randkern.exceptions import DataFileError
from randkern.study.preparation import prepare

from .extraction import PAPER_LAYERS, extract_features, load_network
from .reproductions import Progress

__all__ = ["LabelledFeatures", "load_features"]

_FOLDER = "cifar10-squeezenet"


@dataclass(frozen=True)
class LabelledFeatures:
    """Features and labels of training and test images.

    Attributes
    ----------
    name : str
    architecture, layer : str
        As in Table 1 of Ohana et al. (2020), or "" and the name of the files.
    X_train, X_test : ndarray of shape (n, d)
    y_train, y_test : ndarray of shape (n,)
    """

    name: str
    architecture: str
    layer: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]

    def describe(self) -> dict[str, Any]:
        """Return what the records say about it."""
        return {
            "name": self.name,
            "architecture": self.architecture,
            "layer": self.layer,
            "n_train": len(self.X_train),
            "n_test": len(self.X_test),
            "n_features": int(self.X_train.shape[1]),
            "metric": "misclassified share",
        }


def load_features(
    layer: str,
    data_dir: Path | None,
    *,
    network: str | None = None,
    scratch: Path | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> LabelledFeatures:
    """Load features from files, or extract them from CIFAR-10.

    Parameters
    ----------
    layer : str
        Prefix of the files; with `network`, a layer of Table 1.
    data_dir : Path, optional
        None, in a quick run, stands for the pixels of scikit-learn's digits.
    network : str, optional
        ``"ResNet34"``, ``"AlexNet"`` or ``"VGG16"``.
    scratch : Path, optional
        Where extracted features are kept; those that are there are used.
    quick : bool
        At most 1,000 training and 500 test images.
    progress : callable, optional

    Returns
    -------
    features : LabelledFeatures

    Raises
    ------
    ValueError
        If there is no such layer, or no directory was given.
    randkern.exceptions.DataFileError
        If files are missing or do not belong together.

    Examples
    --------
    >>> from randkern_lab.papers.convolutional_features import load_features
    >>> load_features("final", None, quick=True).X_train.shape
    (1000, 64)
    """
    if data_dir is None:
        if not quick:
            raise ValueError(
                "the features' directory is needed: give --data-dir, or --quick for a "
                "smoke run on scikit-learn's digits"
            )
        data = prepare(load_dataset("digits"))
        parts = (data.X_train, data.y_train, data.X_test, data.y_test)
        features = LabelledFeatures("digits (pixels)", "", "pixels", *parts)
    elif network is not None:
        features = _extracted(network, layer, data_dir, scratch, quick, progress)
    else:
        features = _read(layer, data_dir)
    if quick:
        return LabelledFeatures(
            features.name,
            features.architecture,
            features.layer,
            features.X_train[:1000],
            features.y_train[:1000],
            features.X_test[:500],
            features.y_test[:500],
        )
    return features


def _read(layer: str, data_dir: Path) -> LabelledFeatures:
    """Return features that lie in files."""
    folder = data_dir
    if not (folder / f"{layer}_train.npy").is_file() and (data_dir / _FOLDER).is_dir():
        folder = data_dir / _FOLDER
    arrays = []
    for stem in (layer, "labels"):
        for part in ("train", "test"):
            path = folder / f"{stem}_{part}.npy"
            if not path.is_file():
                raise DataFileError(
                    f"{path} is missing: {folder} must hold {layer}_train.npy, "
                    f"{layer}_test.npy, labels_train.npy and labels_test.npy"
                )
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
    X_train, X_test, y_train, y_test = arrays
    for X, y in ((X_train, y_train), (X_test, y_test)):
        if X.ndim < 2 or y.shape != (len(X),):
            raise DataFileError(
                f"{folder}: expected a row of features and one label an image, got "
                f"features of shape {X.shape} and labels of shape {y.shape}"
            )
    return LabelledFeatures(
        folder.name,
        "",
        layer,
        X_train.reshape(len(X_train), -1),
        np.asarray(y_train),
        X_test.reshape(len(X_test), -1),
        np.asarray(y_test),
    )


def _extracted(
    network: str,
    layer: str,
    data_dir: Path,
    scratch: Path | None,
    quick: bool,
    progress: Progress | None,
) -> LabelledFeatures:
    """Return features of CIFAR-10 of a layer of a pretrained network."""
    wanted = next(
        (
            known
            for known in PAPER_LAYERS
            if known.architecture.lower() == network.lower()
            and known.layer.lower() == layer.lower()
        ),
        None,
    )
    if wanted is None:
        names = ", ".join(f"{k.architecture} {k.layer}" for k in PAPER_LAYERS)
        raise ValueError(f"no layer {layer!r} of {network!r}; expected one of {names}")
    data = load_dataset("cifar10", data_dir=data_dir)
    if data.image_shape is None or data.X_test is None:
        raise ValueError(f"{data.name} has no test images")
    module = load_network(wanted.network)
    found = []
    with _folder(scratch) as folder:
        for part, rows in (("train", data.X_train), ("test", data.X_test)):
            images = np.asarray(rows[:1000] if quick else rows)
            images = images.reshape(-1, *data.image_shape)
            path = folder / f"{wanted.network}-{wanted.module}-{len(images)}-{part}.npy"
            if not path.is_file():

                def say(done: int, total: int, part: str = part) -> None:
                    if progress is not None:
                        progress(done, total, f"{network} {layer}: {part} images")

                size = wanted.image_size
                extract_features(
                    module, wanted.module, images, path, image_size=size, progress=say
                )
            # A temporary folder goes: what it holds is read, not mapped.
            found.append(np.load(path, mmap_mode=None if scratch is None else "r"))
    return LabelledFeatures(
        f"{data.name} {wanted.architecture} {wanted.layer}",
        wanted.architecture,
        wanted.layer,
        found[0],
        np.asarray(data.y_train)[: len(found[0])],
        found[1],
        np.asarray(data.y_test)[: len(found[1])],
    )


@contextmanager
def _folder(scratch: Path | None) -> Iterator[Path]:
    if scratch is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
        return
    scratch.mkdir(parents=True, exist_ok=True)
    yield scratch
