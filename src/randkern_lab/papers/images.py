"""Images as the papers encode them: lit and dark pixels, or angles on circles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern import skeletons
from randkern.datasets import DATASET_NAMES, load_dataset
from randkern.optics import ThresholdBinarizer
from randkern.study.preparation import prepare

from ..options import DataOptions, option
from ..scoring import held_out_error

# A pixel is lit above 10 of 255 (Ohana et al. 2020, for Fashion-MNIST): pixels are
# multiples of 1/255 rounded to float32, so the threshold lies between two of them.
PIXEL_THRESHOLD = 10.5 / 255
_THRESHOLDS = tuple(np.array([4.5, 10.5, 31.5, 63.5, 95.5, 127.5, 159.5]) / 255)
_SEARCH_ROWS, _SEARCH_COMPONENTS = 6000, 1000
HELD_OUT_ROWS = _SEARCH_ROWS // 4  # of them, on which thresholds are compared
_SEARCH_ALPHAS = tuple(10.0 ** np.arange(-6, 3))


@dataclass(frozen=True)
class BinaryImageOptions(DataOptions):
    """Options of experiments on binarized images (:func:`load_binary_images`)."""

    data: str = option(
        "fashion-mnist",
        "fashion-mnist, fashion-mnist-sample, mnist or digits.",
        quick="digits",
    )


@dataclass(frozen=True)
class CircleImageOptions(DataOptions):
    """Options of experiments on images of angles (:func:`load_circle_images`)."""

    data: str = option("cifar10", "cifar10, mnist or digits.", quick="digits")


@dataclass(frozen=True)
class Images:
    """An image classification data set, one image per row.

    `X_train`, `X_test` are bits (uint8), or angles in [−π/2, π/2] (float32); `shape` is
    (height, width, channels); pixels above `threshold` are lit, which was chosen by
    `threshold_errors` if there are any.
    """

    name: str
    shape: tuple[int, int, int]
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    threshold: float = float("nan")
    threshold_errors: Mapping[float, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the data set is complete."""
        return "sample" not in self.name

    def describe(self) -> dict[str, Any]:
        """Return its entry in the records."""
        described = {
            "name": self.name,
            "image_shape": list(self.shape),
            "n_train": len(self.X_train),
            "n_test": len(self.X_test),
            "n_features": int(self.X_train.shape[1]),
            "n_classes": len(np.unique(self.y_train)),
            "metric": "misclassified share",
        }
        if not np.isnan(self.threshold):
            described |= {
                "complete": self.complete,
                "threshold": f"above {255 * self.threshold:.3g} of 255",
                "mean_lit": float(self.X_train.sum(axis=1, dtype=np.int64).mean()),
                "threshold_errors": [
                    {"above": 255 * threshold, "validation_error": error}
                    for threshold, error in self.threshold_errors.items()
                ],
            }
        return described


def load_binary_images(
    data: str, data_dir: Path | None, threshold: float | None = PIXEL_THRESHOLD
) -> Images:
    """Load an image set and binarize it: pixels above a threshold in [0, 1] are lit.

    If the threshold is None, it is the best of :func:`threshold_errors`, the least of
    several.
    """
    dataset = _load_labelled(data, data_dir)
    complete = prepare(dataset)
    errors: dict[float, float] = {}
    if threshold is None:
        errors = threshold_errors(complete.X_train, complete.y_train)
        threshold = min(errors, key=lambda value: errors[value])
    binarizer = ThresholdBinarizer(threshold).fit(complete.X_train)
    return Images(
        dataset.name,
        dataset.image_shape,
        binarizer.transform(complete.X_train),
        complete.y_train,
        binarizer.transform(complete.X_test),
        complete.y_test,
        float(threshold),
        errors,
    )


def threshold_errors(X: NDArray[Any], y: NDArray[Any]) -> dict[float, float]:
    """Return the errors of thresholds of pixels on held-out rows, as in appendix D.1.

    At most 6,000 of the rows, in [0, 1], are used, a quarter of them for validation,
    with 1,000 optical features of degree 2, at the best of nine penalties.
    """
    rows = np.random.default_rng(0).permutation(len(X))[:_SEARCH_ROWS]
    size = min(_SEARCH_COMPONENTS, len(rows))
    errors = {}
    for threshold in _THRESHOLDS:
        bits = ThresholdBinarizer(threshold).fit_transform(X[rows]).astype(np.float32)
        diagonal = max(1.0, float(np.mean(bits.sum(axis=1) ** 2)))
        alphas = [alpha * diagonal for alpha in _SEARCH_ALPHAS]
        errors[threshold], _ = held_out_error(
            randkern.Optical(2), alphas, size, bits, y[rows], len(rows) // 4
        )
    return errors


def load_circle_images(
    data: str,
    data_dir: Path | None,
    *,
    n_train: int,
    n_test: int | None = None,
    seed: int = 0,
) -> Images:
    """Load images, crop 32 × 32 ones to the central 24 × 24, and map pixels to angles.

    A pixel p in [0, 1] becomes the angle π/2·(2p − 1); `n_train` and `n_test` images
    are drawn, or all if there are fewer.
    """
    dataset = _load_labelled(data, data_dir)
    prepared, rng = prepare(dataset, random_state=seed), np.random.default_rng(seed)
    shape, parts = dataset.image_shape, list[Any]()
    for X, y, most in (
        (prepared.X_train, prepared.y_train, n_train),
        (prepared.X_test, prepared.y_test, n_test),
    ):
        rows = rng.permutation(len(y))[:most]
        pixels = X[rows].reshape(-1, *dataset.image_shape)
        if pixels.shape[1:3] == (32, 32):  # cropped as in the paper
            pixels = pixels[:, 4:28, 4:28]
        shape = pixels.shape[1:]
        flat = pixels.reshape(len(rows), -1).astype(np.float32)
        angles = skeletons.PixelsToAngles(low=0, high=1).fit_transform(flat)
        parts += [np.asarray(angles, dtype=np.float32), y[rows]]
    return Images(dataset.name, shape, *parts)


def build_skeleton(name: str, shape: tuple[int, int, int]) -> skeletons.Skeleton:
    """Return a skeleton over images.

    ``"linear"`` and ``"shallow"`` have one node over all pixels, the identity or a
    ReLU; ``"deep"`` has two convolutions with windows of 5 and stride 2 and a full
    connection, all ReLU (for images below 16 × 16: windows of 3, the first with stride
    1).
    """
    if name == "deep":
        window, stride = (3, 1) if min(shape[:2]) < 16 else (5, 2)
        layers = [skeletons.Conv(window, stride=s) for s in (stride, 2)]
        return skeletons.convolutional(shape, layers=[*layers, skeletons.Dense()])
    activation = {"linear": "identity", "shallow": "relu"}[name]
    return skeletons.fully_connected(int(np.prod(shape)), activation=activation)


def _load_labelled(data: str, data_dir: Path | None) -> Any:
    """Load an image classification data set."""
    dataset: Any = None
    if data in DATASET_NAMES:  # other names are those of tables
        dataset = load_dataset(data, data_dir=data_dir)
    if dataset is None or dataset.image_shape is None:
        raise ValueError(
            f"the data must be images with classes, got {data!r}; for instance "
            "cifar10, mnist, fashion-mnist or digits; randkern compare takes tables"
        )
    return dataset
