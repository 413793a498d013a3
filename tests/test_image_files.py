"""IDX files, and CIFAR-10 from batches and from single images."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from randkern.datasets import load_dataset
from randkern.exceptions import DataFileError
from randkern_lab.image_files import read_idx

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def idx_bytes(array):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_mnist(folder, n=30, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {
        f"{split}-{kind}": values
        for split in ("train", "t10k")
        for kind, values in (
            ("images-idx3-ubyte", rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)),
            ("labels-idx1-ubyte", rng.integers(0, 10, n, dtype=np.uint8)),
        )
    }
    for name, values in arrays.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(values), 1))
    return arrays


def test_mnist(tmp_path):
    arrays = write_mnist(tmp_path)
    data = load_dataset("mnist", data_dir=tmp_path)
    assert data.name == "mnist sample (30 of 60,000)"
    expected = arrays["train-images-idx3-ubyte"].reshape(30, 784) / np.float32(255)
    np.testing.assert_array_equal(data.X_train, expected, strict=True)
    np.testing.assert_array_equal(data.y_test, arrays["t10k-labels-idx1-ubyte"])


@pytest.mark.parametrize("content", [b"", b"<html>", b"\0\0\x08\x01\0\0\0\x03\x07"])
def test_damaged_idx(content, tmp_path):
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="labels"):
        read_idx(path)


def test_missing_and_swapped_files(tmp_path):
    arrays = write_mnist(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte.gz"
    images.write_bytes(idx_bytes(arrays["train-labels-idx1-ubyte"]))
    with pytest.raises(DataFileError, match="expected images"):
        load_dataset("mnist", data_dir=tmp_path)
    images.unlink()
    with pytest.raises(FileNotFoundError, match="looked for train-images"):
        load_dataset("mnist", data_dir=tmp_path)


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    names = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    return {
        name: (
            rng.integers(0, 256, (4, 3072), dtype=np.uint8),
            rng.integers(0, 10, 4, dtype=np.uint8),
        )
        for name in names
    }


def test_cifar10_batches(tmp_path, batches):
    for name, (planes, labels) in batches.items():
        content = np.column_stack([labels, planes]).tobytes()
        (tmp_path / f"{name}.bin").write_bytes(content)
    data = load_dataset("cifar10", data_dir=tmp_path)
    planes, labels = batches["test_batch"]
    images = planes.reshape(4, 3, 32, 32).transpose(0, 2, 3, 1).reshape(4, -1)
    np.testing.assert_array_equal(data.X_test, images / np.float32(255))
    np.testing.assert_array_equal(data.y_test, labels)
    assert data.X_train.shape == (20, 3072)


def test_cifar10_images(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG")
    with zipfile.ZipFile(tmp_path / "cifar10.zip", "w") as archive:
        for split in ("train", "test"):
            for name in CLASSES:
                archive.writestr(f"data/{split}/{name}/1.png", png.getvalue())
    data = load_dataset("cifar10", data_dir=tmp_path)
    np.testing.assert_array_equal(data.y_train, range(10))
    np.testing.assert_array_equal(data.X_test[3], pixels.ravel() / np.float32(255))
    with zipfile.ZipFile(tmp_path / "cifar10.zip", "a") as archive:
        archive.writestr("data/test/dog/0.png", png.getvalue()[:60])
    with pytest.raises(DataFileError, match="dog/0.png"):
        load_dataset("cifar10", data_dir=tmp_path)
