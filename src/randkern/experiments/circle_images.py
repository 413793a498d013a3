"""Images whose pixels are angles, and the skeletons that read them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..skeletons import (
    Conv,
    Dense,
    PixelsToAngles,
    Skeleton,
    convolutional,
    fully_connected,
)
from .preparation import load_labelled_images, prepare

__all__ = ["CircleImages", "available_images", "build_skeleton", "load_circle_images"]

_FOLDERS = ("cifar10", "mnist")
# The paper's crops of CIFAR-10.
_CROPPED_FROM, _CROP = (32, 32), 24


@dataclass(frozen=True)
class CircleImages:
    """A classification set of images, each pixel an angle in [−π/2, π/2].

    Attributes
    ----------
    name : str
    shape : tuple of int
        (height, width, channels), after the crop.
    X_train, X_test : ndarray of float32
        One image a row.
    y_train, y_test : ndarray
    """

    name: str
    shape: tuple[int, int, int]
    X_train: NDArray[np.float32]
    y_train: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]

    def describe(self) -> dict[str, Any]:
        """Return what the records say about it."""
        return {
            "name": self.name,
            "image_shape": list(self.shape),
            "n_train": len(self.X_train),
            "n_test": len(self.X_test),
            "n_features": int(self.X_train.shape[1]),
            "metric": "misclassified share",
        }

    def take(self, n_train: int, n_test: int) -> "CircleImages":
        """Return the first training and test rows."""
        return replace(
            self,
            X_train=self.X_train[:n_train],
            y_train=self.y_train[:n_train],
            X_test=self.X_test[:n_test],
            y_test=self.y_test[:n_test],
        )


def available_images(data_dir: Path | None) -> tuple[str, ...]:
    """Return which of ``cifar10`` and ``mnist`` have a folder; without one, digits.

    Examples
    --------
    >>> from randkern.experiments.circle_images import available_images
    >>> available_images(None)
    ('digits',)
    """
    if data_dir is None:
        return ("digits",)
    found = tuple(name for name in _FOLDERS if (data_dir / name).exists())
    if found:
        return found
    raise ValueError(
        f"{data_dir} has none of the folders {', '.join(_FOLDERS)}; name the data set "
        "with --data, or leave --data-dir out for scikit-learn's digits"
    )


def load_circle_images(
    data: str,
    data_dir: Path | None,
    *,
    n_train: int,
    n_test: int | None = None,
    seed: int = 0,
) -> CircleImages:
    """Load images, crop those of 32 × 32 to the centre 24 × 24, and map pixels.

    Parameters
    ----------
    data : str
        A name that :func:`randkern.datasets.load_dataset` knows.
    data_dir : Path, optional
    n_train, n_test : int
        How many training and test images are drawn; all where there are fewer.
    seed : int
        Of the choice.

    Returns
    -------
    images : CircleImages
        A pixel p in [0, 1] is the angle π/2·(2p − 1).

    Raises
    ------
    ValueError
        If there is no such set, or its rows are not images with classes.
    OSError
        If its files cannot be read.

    Examples
    --------
    >>> from randkern.experiments.circle_images import load_circle_images
    >>> images = load_circle_images("digits", None, n_train=100)
    >>> images.X_train.shape, images.shape
    ((100, 64), (8, 8, 1))
    """
    dataset = load_labelled_images(data, data_dir)
    prepared = prepare(dataset, random_state=seed)
    rng = np.random.default_rng(seed)
    train = rng.permutation(len(prepared.y_train))[:n_train]
    test = rng.permutation(len(prepared.y_test))[:n_test]
    X_train, shape = _angles(prepared.X_train[train], dataset.image_shape)
    X_test, _ = _angles(prepared.X_test[test], dataset.image_shape)
    return CircleImages(
        name=dataset.name,
        shape=shape,
        X_train=X_train,
        y_train=prepared.y_train[train],
        X_test=X_test,
        y_test=prepared.y_test[test],
    )


def _angles(
    X: NDArray[Any], shape: tuple[int, int, int]
) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
    """Return the angles of the pixels, cropped where the paper crops, and the shape."""
    height, width, channels = shape
    pixels = X.reshape(-1, height, width, channels)
    if (height, width) == _CROPPED_FROM:
        first = (height - _CROP) // 2
        pixels = pixels[:, first : first + _CROP, first : first + _CROP]
    size = (pixels.shape[1], pixels.shape[2], channels)
    flat = pixels.reshape(len(X), -1).astype(np.float32)
    angles = PixelsToAngles(low=0, high=1).fit_transform(flat)
    return np.asarray(angles, dtype=np.float32), size


def build_skeleton(name: str, shape: tuple[int, int, int]) -> Skeleton:
    """Return a skeleton over images.

    Parameters
    ----------
    name : {"linear", "shallow", "deep"}
        One node over all pixels, of the identity or a ReLU; or two convolutions of
        windows of 5 and stride 2 and a full connection, all ReLU (images below
        16 × 16: windows of 3, the first of stride 1).
    shape : tuple of int
        (height, width, channels).

    Returns
    -------
    skeleton : Skeleton

    Examples
    --------
    >>> from randkern.experiments.circle_images import build_skeleton
    >>> skeleton = build_skeleton("deep", (24, 24, 3))
    >>> skeleton.depth, skeleton.complexity()
    (3, 1.0)
    """
    if name == "deep":
        small = min(shape[:2]) < 16
        window = 3 if small else 5
        first = Conv(window, stride=1 if small else 2)
        layers = [first, Conv(window, stride=2), Dense()]
        return convolutional(shape, layers=layers)
    activation = {"linear": "identity", "shallow": "relu"}[name]
    return fully_connected(int(np.prod(shape)), activation=activation)
