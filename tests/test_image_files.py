"""IDX files, CIFAR-10 in all its forms, and every damage they can suffer."""

import errno
import gzip
import hashlib
import io
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from randkern.datasets import files, load_dataset
from randkern.exceptions import DataFileError
from randkern_lab.image_files import cifar, idx, read_idx
from randkern_lab.image_files.cifar import read_pickled_batch

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    """Encode by the format's definition, with struct rather than NumPy's types."""
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(">BBBB", 0, 0, code, array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    letter = {"u1": "B", "i1": "b", "i2": "h", "i4": "i", "f4": "f", "f8": "d"}
    flat = array.ravel().tolist()
    return (
        header
        + sizes
        + struct.pack(f">{len(flat)}{letter[array.dtype.str[1:]]}", *flat)
    )


def write_mnist(folder, n_train=30, n_test=12, seed=0):
    """Write four valid files; return their arrays."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for stem, n in zip(idx.STEMS, (n_train, n_train, n_test, n_test), strict=True):
        if "images" in stem:
            arrays[stem] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        else:
            arrays[stem] = rng.integers(0, 10, n, dtype=np.uint8)
        (folder / f"{stem}.gz").write_bytes(gzip.compress(idx_bytes(arrays[stem]), 1))
    return arrays


# ---------------------------------------------------------------- IDX


@pytest.mark.slow
@given(
    array=st.sampled_from(sorted(CODES)).flatmap(
        lambda code: hnp.arrays(
            np.dtype(code),
            hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
            elements={"allow_nan": False} if code[0] == "f" else None,
        )
    ),
    compress=st.booleans(),
)
def test_idx_round_trip(array, compress, tmp_path_factory):
    path = tmp_path_factory.mktemp("idx") / "file"
    content = idx_bytes(array)
    path.write_bytes(gzip.compress(content) if compress else content)
    read = read_idx(path)
    assert read.dtype == array.dtype and read.dtype.isnative
    np.testing.assert_array_equal(read, array, strict=True)
    read[...] = 0  # Writable, and its own.


def test_idx_suffix_does_not_matter(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    (tmp_path / "plain.gz").write_bytes(idx_bytes(array))
    (tmp_path / "packed").write_bytes(gzip.compress(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(tmp_path / "plain.gz"), array)
    np.testing.assert_array_equal(read_idx(str(tmp_path / "packed")), array)


GOOD = idx_bytes(np.arange(600, dtype=np.uint8).reshape(6, 10, 10) % 251)
PACKED = gzip.compress(GOOD)
DAMAGES = {
    "empty": (b"", "0 bytes"),
    "short magic": (GOOD[:3], "3 bytes"),
    "short header": (GOOD[:9], "9 of 16 bytes"),
    "truncated": (GOOD[:-1], "truncated: 599 bytes of values, expected 600"),
    "trailing": (GOOD + b"\0", "bytes follow the last value"),
    "bad magic": (b"\1" + GOOD[1:], "begins with 01 00 08 03"),
    "unknown type": (b"\0\0\x0a\1" + GOOD[4:], "not an IDX file"),
    "rank over NumPy's": (b"\0\0\x08\xff" + bytes(2000), "rank up to 64"),
    "absurd sizes": (b"\0\0\x08\4" + b"\xff" * 16, "more than can exist"),
    "zero among absurd": (b"\0\0\x0e\4\0\0\0\0" + b"\xff" * 12, "more than can exist"),
    "terabytes promised": (b"\0\0\x08\2\0\0\xff\xff\0\xff\xff\xffabc", "truncated: 3 "),
    "zip": (b"PK\3\4" + bytes(100), "zip archive"),
    "html": (b"<!DOCTYPE html>", "HTML"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
    "packed twice": (gzip.compress(PACKED), "gzip data"),
    "gzip truncated": (PACKED[:-20], "damaged"),
    "gzip without end": (PACKED[:-4], "damaged"),
    "gzip header only": (PACKED[:2], "damaged"),
    "gzip bit flipped": (
        PACKED[:60] + bytes([PACKED[60] ^ 64]) + PACKED[61:],
        "damaged|truncated|follow",
    ),
    "gzip wrong checksum": (PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "CRC"),
    "gzip then junk": (PACKED + b"junk", "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_idx_damage(damage, tmp_path):
    content, message = DAMAGES[damage]
    path = tmp_path / "some-file"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message) as caught:
        read_idx(path)
    assert "some-file" in str(caught.value)


def test_a_disk_error_is_not_reported_as_damage(tmp_path, monkeypatch):
    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(errno.EIO, "Input/output error")

    opened = (lambda raw: Failing(), "gzip")
    monkeypatch.setitem(files._COMPRESSED, PACKED[:2], opened)
    path = tmp_path / "some-file"
    path.write_bytes(PACKED)
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_idx(path)
    assert caught.value.errno == errno.EIO


@given(position=st.integers(0, len(PACKED) - 1), flip=st.integers(1, 255))
def test_idx_any_flipped_byte_is_noticed_or_harmless(position, flip, tmp_path_factory):
    """A gzip file with one byte changed never gives other values."""
    path = tmp_path_factory.mktemp("idx") / "file"
    damaged = bytearray(PACKED)
    damaged[position] ^= flip
    path.write_bytes(damaged)
    try:
        read = read_idx(path)
    except DataFileError:
        return
    assert idx_bytes(read) == GOOD


def test_idx_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here does not exist"):
        read_idx(tmp_path / "nothing-here")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_idx(tmp_path)


# ---------------------------------------------------------------- MNIST family


def test_mnist_files(tmp_path):
    arrays = write_mnist(tmp_path)
    data = load_dataset("mnist", data_dir=tmp_path)
    assert data.name == "mnist sample (30 of 60,000)"
    assert "sample (30 of 60,000)" in data.description
    assert "n = 30 train + 12 test, d = 784" in data.description
    assert data.X_train.dtype == data.X_test.dtype == np.float32
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.image_shape == (28, 28, 1) and data.task == "classification"
    images = arrays[idx.TRAIN_IMAGES].reshape(30, 784)
    np.testing.assert_array_equal(data.X_train, (images / 255.0).astype(np.float32))
    np.testing.assert_array_equal(data.y_test, arrays[idx.TEST_LABELS])


def test_mnist_plain_files_in_subfolder_and_other_spelling(tmp_path):
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    write_mnist(folder)
    for stem in idx.STEMS:
        packed = folder / f"{stem}.gz"
        plain = folder / stem.replace("-idx", ".idx")
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    data = load_dataset("fashion-mnist", data_dir=tmp_path)
    assert data.target_names[9] == "Ankle boot" and len(data.y_test) == 12
    assert data.name == "fashion-mnist sample (30 of 60,000)"


def _swap(folder):
    images, labels = (folder / f"{s}.gz" for s in idx.STEMS[:2])
    images.rename(folder / "keep")
    labels.rename(images)
    (folder / "keep").rename(labels)


def _replace(stem, array):
    return lambda folder: (folder / f"{stem}.gz").write_bytes(idx_bytes(array))


MISLABELLED = {
    "swapped": (_swap, "labels .rank 1, uint8.; images and labels are swapped"),
    "counts": (
        _replace(idx.TRAIN_LABELS, np.zeros(29, np.uint8)),
        r"30 images but .* 29 labels",
    ),
    "label 10": (
        _replace(idx.TEST_LABELS, np.array([1] * 5 + [10] * 7, np.uint8)),
        "7 labels out of 0..9, the first 10 at position 5",
    ),
    "size": (
        _replace(idx.TRAIN_IMAGES, np.zeros((30, 32, 32), np.uint8)),
        "32 x 32 pixels, expected 28 x 28",
    ),
    "type": (
        _replace(idx.TRAIN_IMAGES, np.zeros((30, 28, 28), np.float32)),
        "expected images .* got rank 3, float32",
    ),
    "no rows": (_replace(idx.TEST_LABELS, np.zeros(0, np.uint8)), "no rows"),
}


@pytest.mark.parametrize("case", MISLABELLED)
def test_mnist_mislabelled(case, tmp_path):
    damage, message = MISLABELLED[case]
    write_mnist(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataFileError, match=message):
        load_dataset("mnist", data_dir=tmp_path)


def test_mnist_missing_file(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / f"{idx.TEST_LABELS}.gz").unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {idx.TEST_LABELS} "):
        load_dataset("mnist", data_dir=tmp_path)


def test_mnist_full_size_with_another_checksum_warns(tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "FULL_COUNTS", (60_000, 12))
    write_mnist(tmp_path)
    with pytest.warns(UserWarning, match="has the full size, but its sha256") as caught:
        load_dataset("mnist", data_dir=tmp_path)
    assert len(caught) == 2  # Test images and test labels.
    assert any(idx.TEST_IMAGES in str(warning.message) for warning in caught)


def test_mnist_files_of_the_other_set(tmp_path, monkeypatch):
    """Files whose content is known to be another set's are refused."""
    arrays = write_mnist(tmp_path)
    monkeypatch.setattr(idx, "FULL_COUNTS", (30, 12))
    known = [hashlib.sha256(idx_bytes(arrays[s])).hexdigest() for s in idx.STEMS]
    monkeypatch.setitem(idx._CHECKSUMS, "mnist", tuple(known))
    assert load_dataset("mnist", data_dir=tmp_path).name == "mnist"  # No warning.
    with pytest.raises(DataFileError, match="of mnist, not of fashion-mnist"):
        load_dataset("fashion-mnist", data_dir=tmp_path)


# ---------------------------------------------------------------- CIFAR-10 batches

N = 20  # Records a batch, in place of 10,000.


@pytest.fixture
def batches(monkeypatch):
    """Make images and labels of six small batches."""
    monkeypatch.setattr(cifar, "RECORDS_PER_BATCH", N)
    monkeypatch.setattr(cifar, "FULL_COUNTS", (5 * N, N))
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (6, N, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, (6, N))
    return images, labels


def planes(images):
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def write_binary(folder, batches):
    folder.mkdir(exist_ok=True)
    for name, images, labels in zip(cifar._BINARY_FILES, *batches, strict=True):
        rows = np.hstack([labels[:, None].astype(np.uint8), planes(images)])
        (folder / name).write_bytes(rows.tobytes())


def python2_pickle(images, labels):
    """Write the opcodes of the published files: Python 2 strings, protocol 2."""
    data = planes(images)

    def string(content):
        return b"T" + struct.pack("<i", len(content)) + content

    raw = data.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
        b"(K\x01M" + struct.pack("<H", len(data)) + b"M\x00\x0c\x86"
        b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + string(raw) + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + numbers + b"u."


def write_python(folder, batches, dump=python2_pickle):
    folder.mkdir(exist_ok=True)
    for name, images, labels in zip(cifar._BATCHES, *batches, strict=True):
        (folder / name).write_bytes(dump(images, labels))


def check_cifar10(data, batches):
    images, labels = batches
    assert data.name == "cifar10" and data.image_shape == (32, 32, 3)
    assert data.X_train.shape == (5 * N, 3072) and data.X_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    expected = (images.reshape(6 * N, 3072) / 255.0).astype(np.float32)
    np.testing.assert_array_equal(data.X_train, expected[: 5 * N])
    np.testing.assert_array_equal(data.X_test, expected[5 * N :])
    np.testing.assert_array_equal(data.y_train, labels[:5].ravel())
    np.testing.assert_array_equal(data.y_test, labels[5])


@pytest.mark.parametrize("folder", [".", "cifar10", "cifar-10-batches-bin"])
def test_cifar10_binary(folder, tmp_path, batches):
    write_binary(tmp_path / folder, batches)
    check_cifar10(load_dataset("cifar10", data_dir=tmp_path), batches)


@pytest.mark.filterwarnings("ignore:.*is not the published:UserWarning")
@pytest.mark.parametrize("protocol", [None, 0, 1, 2, 3, 4, 5])
def test_cifar10_python(protocol, tmp_path, batches):
    def dump(images, labels):
        batch = {b"data": planes(images), b"labels": labels.tolist()}
        return pickle.dumps(batch, protocol=protocol)

    if protocol is None:
        write_python(tmp_path / "cifar-10-batches-py", batches)
    else:
        write_python(tmp_path / "cifar-10-batches-py", batches, dump)
    check_cifar10(load_dataset("cifar10", data_dir=tmp_path), batches)


def test_cifar10_python_checksum_warns(tmp_path, batches):
    write_python(tmp_path, batches)
    with pytest.warns(UserWarning, match="MD5"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (N * 3073 - 1, "19 records of 3,073 and 3,072 bytes more"),
        (N * 3073 + 3073, "21 records"),
        (0, "0 bytes"),
        (N * 3074, "expected 61,460"),  # As CIFAR-100 has: two label bytes.
    ],
)
def test_cifar10_binary_size(size, message, tmp_path, batches):
    write_binary(tmp_path, batches)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(size))
    with pytest.raises(DataFileError, match=message) as caught:
        load_dataset("cifar10", data_dir=tmp_path)
    assert "data_batch_3.bin" in str(caught.value)


def test_cifar10_binary_label(tmp_path, batches):
    batches[1][5, 7] = 11
    write_binary(tmp_path, batches)
    with pytest.raises(DataFileError, match="the first 11 in record 7"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_cifar10_missing_batches(tmp_path, batches):
    write_binary(tmp_path, batches)
    (tmp_path / "data_batch_2.bin").unlink()
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(DataFileError, match=r"lacks data_batch_2.bin, test_batch.bin"):
        load_dataset("cifar10", data_dir=tmp_path)


class Malicious:
    """Runs a callable when a plain unpickler loads it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_cifar10_pickle_runs_nothing(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("still here")
    for function in (os.remove, Path.unlink, eval, exec, getattr, np.load, np.array):
        content = pickle.dumps({b"data": Malicious(function, str(victim))})
        with pytest.raises(DataFileError, match="which is therefore not loaded"):
            read_pickled_batch(tmp_path / "batch", content)
    assert victim.read_text() == "still here"


GOOD_IMAGES = np.zeros((2, 3072), np.uint8)
BAD_PICKLES = {
    "not a pickle": b"hello world",
    "empty": b"",
    "truncated": pickle.dumps({b"data": GOOD_IMAGES, b"labels": [1, 2]})[:-50],
    "a list": pickle.dumps([1, 2, 3]),
    "no labels": pickle.dumps({b"data": GOOD_IMAGES}),
    "float data": pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}),
    "object data": pickle.dumps(
        {b"data": np.array([None, "x"], dtype=object), b"labels": [1, 2]}
    ),
    "wrong shape": pickle.dumps({b"data": GOOD_IMAGES[:, :-1], b"labels": [1, 2]}),
    "wrong count": pickle.dumps({b"data": GOOD_IMAGES, b"labels": [1]}),
    "text labels": pickle.dumps({b"data": GOOD_IMAGES, b"labels": ["a", "b"]}),
    "huge label": pickle.dumps({b"data": GOOD_IMAGES, b"labels": [1, 10**30]}),
    "fortran": pickle.dumps(
        {b"data": np.asfortranarray(GOOD_IMAGES), b"labels": [1, 2]}, protocol=4
    ),
    "other codec": b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x04\0\0\0utf8\x86R.",
}


@pytest.mark.parametrize("case", BAD_PICKLES)
def test_cifar10_bad_pickle(case):
    with pytest.raises(DataFileError, match="data_batch_1"):
        read_pickled_batch(Path("data_batch_1"), BAD_PICKLES[case])


def test_cifar10_pickle_takes_no_memory_that_it_declares():
    tracemalloc.start()
    try:
        with pytest.raises(DataFileError):  # an entry of a table of 50 million
            read_pickled_batch(Path("batch"), b"\x80\x02]r\x80\xf0\xfa\x02.")
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


@given(
    position=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 300)
)
def test_cifar10_pickle_survives_any_damage(position, byte, cut):
    """Whatever a batch holds, the outcome is arrays or a DataFileError."""
    images = np.zeros((1, 32, 32, 3), np.uint8)
    content = bytearray(python2_pickle(images, [3]))
    # Damage the opcodes, not only the pixels, which are most of the bytes.
    head = content.index(bytes(100))
    places = [*range(head), *range(head + 3072, len(content))]
    content[places[position % len(places)]] = byte
    for damaged in (content, content[: max(1, len(content) - cut)]):
        try:
            read_pickled_batch(Path("batch"), bytes(damaged))
        except DataFileError:
            pass


# ---------------------------------------------------------------- image folders

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def encoded(pixels, kind="PNG"):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, quality=95)
    return stream.getvalue()


@pytest.fixture
def image_files():
    """Make {path: pixels}, two images a class and split, and their PNG bytes."""
    rng = np.random.default_rng(2)
    pixels = {
        f"{split}/{name}/{number:04d}.png": rng.integers(
            0, 256, (32, 32, 3), dtype=np.uint8
        )
        for split in ("train", "test")
        for name in reversed(cifar.CLASSES)
        for number in (1, 0)
    }
    return pixels, {path: encoded(image) for path, image in pixels.items()}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def write_folder(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def check_images(data, pixels):
    assert data.name == "cifar10 sample (20 of 50,000)"
    assert data.X_train.shape == data.X_test.shape == (20, 3072)
    # By file name, then class: each run of ten rows holds every class.
    np.testing.assert_array_equal(data.y_train, np.tile(np.arange(10), 2))
    for row in range(20):
        name = f"test/{cifar.CLASSES[row % 10]}/{row // 10:04d}.png"
        expected = (pixels[name].ravel() / 255.0).astype(np.float32)
        np.testing.assert_array_equal(data.X_test[row], expected)


JUNK = {
    "__MACOSX/train/cat/._0000.png": b"junk",
    "train/.DS_Store": b"junk",
    "train/cat/.DS_Store": b"junk",
    "train/cat/._0001.png": b"junk",
    "train/cat/notes.txt": b"junk",
    "preview.png": b"junk",
}


def test_image_zip(tmp_path, image_files):
    pixels, files = image_files
    climbing = {"../train/cat/0000.png": b"junk", "/train/cat/0009.png": b"junk"}
    write_zip(tmp_path / "cifar10.zip", {**JUNK, **climbing, "train/": b"", **files})
    for place in (tmp_path, tmp_path / "cifar10.zip"):
        check_images(load_dataset("cifar10", data_dir=place), pixels)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10.zip"]


def test_image_zip_with_a_folder_around(tmp_path, image_files):
    pixels, files = image_files
    wrapped = {f"data/cifar10/{name}": content for name, content in files.items()}
    (tmp_path / "cifar10").mkdir()
    write_zip(tmp_path / "cifar10" / "cifar-10.zip", wrapped)
    check_images(load_dataset("cifar10", data_dir=tmp_path), pixels)


def test_image_folder(tmp_path, image_files):
    pixels, files = image_files
    write_folder(tmp_path / "cifar10", {**JUNK, **files})
    check_images(load_dataset("cifar10", data_dir=tmp_path), pixels)


def test_image_modes_and_jpeg(tmp_path, image_files):
    files = image_files[1]
    smooth = np.add.outer(np.arange(32), np.arange(32)).astype(np.uint8) * 4
    files["train/cat/0000.png"] = encoded(smooth)
    del files["train/dog/0000.png"]
    colour = np.stack([smooth, smooth[::-1], smooth], axis=2)
    files["train/dog/0000.JPEG"] = encoded(colour, "JPEG")
    write_folder(tmp_path, files)
    data = load_dataset("cifar10", data_dir=tmp_path)
    labels = data.y_train.tolist()
    cat, dog = data.X_train[labels.index(3)], data.X_train[labels.index(5)]
    np.testing.assert_allclose(
        cat.reshape(-1, 3) * 255, np.repeat(smooth.reshape(-1, 1), 3, axis=1)
    )
    assert np.abs(dog * 255 - colour.ravel()).mean() < 12


BAD_IMAGES = {
    "truncated": (lambda good: good[:-200], "unreadable image"),
    "empty": (lambda good: b"", "unreadable image"),
    "not an image": (lambda good: b"GIF89a not really", "unreadable image"),
    "size": (
        lambda good: encoded(np.zeros((33, 32, 3), np.uint8)),
        "32 x 33 pixels, mode RGB, expected 32 x 32",
    ),
    "transparent": (lambda good: encoded(np.zeros((32, 32, 4), np.uint8)), "RGBA"),
    "too large": (lambda good: good + bytes(1 << 20), "expected at most"),
}


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "folder"])
@pytest.mark.parametrize("case", BAD_IMAGES)
def test_unreadable_image_is_named(case, as_zip, tmp_path, image_files):
    damage, message = BAD_IMAGES[case]
    files = image_files[1]
    files["train/frog/0001.png"] = damage(files["train/frog/0001.png"])
    if as_zip:
        write_zip(tmp_path / "cifar10.zip", files)
    else:
        write_folder(tmp_path, files)
    with pytest.raises(DataFileError, match=message) as caught:
        load_dataset("cifar10", data_dir=tmp_path)
    assert "train/frog/0001.png" in str(caught.value)


def test_zip_member_with_wrong_checksum(tmp_path, image_files):
    path = tmp_path / "cifar10.zip"
    write_zip(path, image_files[1])
    content = bytearray(path.read_bytes())
    content[content.index(b"train/deer/0001.png") + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=r"train/deer/0001.png.*CRC"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_zip_members_are_inflated_as_far_as_they_declare(method, tmp_path, image_files):
    _, files = image_files
    name = "train/cat/0000.png"
    write_zip(tmp_path / "cifar10.zip", {k: v for k, v in files.items() if k != name})
    with zipfile.ZipFile(tmp_path / "cifar10.zip", "a", method) as archive:
        archive.writestr(name, bytes(2**25))
        archive.getinfo(name).file_size = 10
    tracemalloc.start()
    try:
        with pytest.raises(DataFileError, match="train/cat/0000.png"):
            load_dataset("cifar10", data_dir=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_image_folder_structure_errors(tmp_path, image_files):
    files = image_files[1]
    path = tmp_path / "cifar10.zip"
    image = files["train/cat/0000.png"]
    cases = [
        ({**files, "train/unicorn/0.png": image}, "unknown class folder 'unicorn'"),
        ({k: v for k, v in files.items() if "test/" not in k}, "no images under test/"),
        ({**files, "again/train/cat/0000.png": image}, "is there 2 times"),
        ({}, "no images under train/"),
    ]
    for members, message in cases:
        write_zip(path, members)
        with pytest.raises(DataFileError, match=message):
            load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize("content", [b"", b"<html>404", b"PK\3\4 cut short"])
def test_not_a_zip(content, tmp_path):
    (tmp_path / "cifar10.zip").write_bytes(content)
    with pytest.raises(DataFileError, match="not a readable zip archive"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_zip_cut_short(tmp_path, image_files):
    path = tmp_path / "cifar10.zip"
    write_zip(path, image_files[1])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataFileError, match="not a readable zip archive"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_lossless_forms_come_first(tmp_path, batches, image_files):
    """Beside image files, the binary version is the one that is read."""
    write_folder(tmp_path, image_files[1])
    write_binary(tmp_path / "cifar-10-batches-bin", batches)
    check_cifar10(load_dataset("cifar10", data_dir=tmp_path), batches)
    shutil.rmtree(tmp_path / "cifar-10-batches-bin")
    assert "image files" in load_dataset("cifar10", data_dir=tmp_path).description
