"""Image data sets in files: MNIST and Fashion-MNIST in IDX files, and CIFAR-10.

`randkern.datasets.load_dataset` finds the loaders by name, through entry points of the
group ``randkern.datasets``. Each takes the folder of the files, or its parent.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from randkern.datasets import Dataset

from . import cifar
from .idx import TRAIN_IMAGES, load_mnist, read_idx

__all__ = ["cifar10", "fashion_mnist", "fashion_mnist_sample", "mnist", "read_idx"]

_SAMPLE = "fashion-mnist-sample"


def mnist(place: Path) -> Dataset:
    """Load MNIST from its four IDX files."""
    return _idx_files("mnist", "mnist", place)


def fashion_mnist(place: Path) -> Dataset:
    """Load Fashion-MNIST from its four IDX files."""
    return _idx_files("fashion-mnist", "fashion-mnist", place)


def fashion_mnist_sample(place: Path) -> Dataset:
    """Load a sample of Fashion-MNIST, in the same four files."""
    return _idx_files(_SAMPLE, "fashion-mnist", place)


def cifar10(place: Path) -> Dataset:
    """Load CIFAR-10 from a folder or a zip archive, in any of its forms."""
    return _load_from("cifar10", place, cifar.load_cifar10, cifar.LOOKED_FOR)


def _idx_files(name: str, family: str, place: Path) -> Dataset:
    load = partial(load_mnist, family=family)
    return _load_from(name, place, load, f"{TRAIN_IMAGES}[.gz]")


def _load_from(
    name: str, place: Path, load: Callable[[Path], Dataset | None], looked_for: str
) -> Dataset:
    """Load the files in a folder or in its sub-folder `name`; raise without any."""
    if not place.exists():
        raise FileNotFoundError(
            f"the data folder {place} does not exist; create it, or pass another one"
        )
    for folder in (place, place / name):
        data = load(folder)
        if data is not None:
            return data
    hint = ""
    if name == "fashion-mnist" and (place / _SAMPLE).is_dir():
        hint = f"; there is a sample of it: load it as {_SAMPLE!r}"
    raise FileNotFoundError(
        f"no files of {name!r} in {place} or {place / name}: looked for "
        f"{looked_for}{hint}"
    )
