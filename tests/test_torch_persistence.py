"""Models of tensors in files: read as arrays, or as tensors of a device."""

import io
import zipfile

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import randkern as rk
from _damage import with_checksums
from _tensors import dispatch, host, tensor, torch
from randkern.exceptions import ModelFileError

pytest.importorskip("skops.io")

MODELS = {
    "ridge": rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, 40, random_state=0),
    "exact": rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, None),
    "classifier": rk.KernelRidgeClassifier(rk.Gaussian(2.0), 0.1, 40, random_state=0),
    "search": rk.KernelRidgeRegressorCV(
        rk.Gaussian(2.0), [0.1, 1.0], n_components=40, random_state=0
    ),
    "process": rk.GaussianProcessRegressor(
        rk.Gaussian(2.0), 0.1, 40, optimizer=None, random_state=0
    ),
    "process classifier": rk.GaussianProcessClassifier(
        rk.Gaussian(2.0), 40, optimizer=None, random_state=0
    ),
    "svc": rk.KernelSVC(rk.Gaussian(2.0), 1.0, 40, random_state=0),
    "logistic": rk.KernelLogistic(rk.Gaussian(2.0), 1.0, 40, random_state=0),
    "skeleton": rk.KernelRidgeRegressor(
        rk.Compositional(rk.skeletons.FullyConnected(3, base="linear")),
        *(0.1, 40),
        random_state=0,
    ),
}


@pytest.fixture
def data(rng):
    X = np.tanh(rng.normal(size=(50, 3))).astype(np.float32)
    return X, (X[:, 0] > 0).astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_tensors_are_loaded_as_arrays_or_on_a_device(model, data, tmp_path):
    X, y = data
    path = tmp_path / "model.skops"
    with dispatch():
        model.fit(tensor(X), tensor(y))
        expected = model.predict(tensor(X))
        rk.save(model, path)
        assert isinstance(model.predict(tensor(X)), torch.Tensor)
        again = rk.load(path, device="cpu")
        got = again.predict(tensor(X))
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)
    arrays = rk.load(path).predict(X)
    assert isinstance(arrays, np.ndarray)
    np.testing.assert_allclose(arrays, host(expected), atol=2e-4)


def test_models_that_go_on_and_pipelines_keep_their_tensors(data, tmp_path):
    X, y = data
    path = tmp_path / "model.skops"
    with dispatch():
        model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, 40, random_state=0)
        model.partial_fit(tensor(X[:30]), tensor(y[:30]))
        rk.save(make_pipeline(model), path)
        again = rk.load(path, device="cpu")[-1]
        arrays = rk.load(path)[-1]
        for each in (model, again):
            each.partial_fit(tensor(X[30:]), tensor(y[30:]))
        assert torch.equal(again.coef_, model.coef_)
    arrays.partial_fit(X[30:], y[30:])
    np.testing.assert_allclose(arrays.coef_, host(model.coef_), atol=1e-5)


def test_models_of_device_blocks_are_saved(data, tmp_path):
    X, y = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, 40, random_state=0)
    rows = rk.DeviceBlocks(X, "cpu")
    expected = model.fit(rows, y).predict(rows)
    rk.save(model, tmp_path / "model.skops")
    np.testing.assert_allclose(
        rk.load(tmp_path / "model.skops").predict(X), expected, atol=1e-5
    )
    again = rk.load(tmp_path / "model.skops", device="cpu")
    assert isinstance(again.coef_, torch.Tensor)
    np.testing.assert_array_equal(again.predict(rows), expected)


def test_models_of_arrays_stay_arrays(data, tmp_path):
    X, y = data
    model = rk.KernelRidgeRegressor(n_components=40, random_state=0).fit(X, y)
    rk.save(model, tmp_path / "model.skops")
    again = rk.load(tmp_path / "model.skops", device="cpu")
    assert np.array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="cannot be used"):
        rk.load(tmp_path / "model.skops", device="cuda:77")


def test_only_arrays_of_numbers_become_tensors(data, tmp_path):
    X, y = data
    model = rk.KernelRidgeRegressor(n_components=40, random_state=0)
    with dispatch():
        model.fit(tensor(X), tensor(y))
    rk.save(model, tmp_path / "model.skops")
    with (
        zipfile.ZipFile(tmp_path / "model.skops") as old,
        zipfile.ZipFile(tmp_path / "other.skops", "w") as new,
    ):
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".npy"):
                buffer = io.BytesIO()
                np.save(buffer, np.array(["a", "b"]))
                content = buffer.getvalue()
            new.writestr(name, content)
    content = with_checksums((tmp_path / "other.skops").read_bytes())
    (tmp_path / "other.skops").write_bytes(content)
    with pytest.raises(ModelFileError, match="cannot be read"):
        rk.load(tmp_path / "other.skops", device="cpu")


def test_what_is_shared_stays_shared(data, tmp_path):
    shared = torch.ones(3)
    kernel = rk.Gaussian(2.0)
    kernel.held = {"a": shared, "b": [shared, (1, {"c": shared})], "d": None}
    kernel.function = np.tanh
    rk.save(kernel, tmp_path / "kernel.skops")
    assert kernel.held["a"] is shared
    with zipfile.ZipFile(tmp_path / "kernel.skops") as archive:
        assert sum(name.endswith(".npy") for name in archive.namelist()) == 1
    for device, kind in ((None, np.ndarray), ("cpu", torch.Tensor)):
        again = rk.load(tmp_path / "kernel.skops", device=device).held
        assert again["a"] is again["b"][0] is again["b"][1][1]["c"]
        assert type(again["a"]) is kind
        assert again["a"].tolist() == [1.0, 1.0, 1.0]
