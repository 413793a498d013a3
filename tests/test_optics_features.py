"""Features from devices: their kernel, their calibration, and counts from files."""

import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import randkern as rk
from randkern.optics import (
    LightOnDevice,
    OpticalFeatures,
    SimulatedOPU,
    acquire,
    count_blocks,
    count_features,
    mean_count_per_bit,
)
from randkern.solvers import PCG

N, WIDTH = 12, 120


@pytest.fixture(name="X")
def rows_of_bits(rng):
    return (rng.random((N, WIDTH)) < 0.3).astype(np.uint8)


class FakeOPU:
    """Behaves as lightonml's: cuts floats to uint8, scales as it likes."""

    def __init__(self, n_components):
        self.n_components = n_components
        self.fitted = None

    def fit1d(self, X):
        self.fitted = X.shape[1]
        rng = np.random.default_rng(0)
        shape = (self.fitted, self.n_components)
        self.U = rng.normal(size=shape) + 1j * rng.normal(size=shape)

    def transform(self, X):
        return np.abs(X.astype(np.uint8) @ self.U) ** 2 / 1000

    def linear_transform(self, X):
        return (X.astype(np.uint8) @ self.U).real / 77


def assert_kernel(Z, X, degree, bias, n_components, slack=0.0):
    """Compare the Gram matrix of different rows with its kernel.

    Beside the variance of the features, calibration has a relative error of at most
    that of one row, 1/√D, which enters to the power m. The tails of degree 4 are
    heavy: eight standard deviations leave a normal variable's one in 10¹⁵.
    """
    assert Z.dtype == np.float32
    kernel = rk.Optical(degree, bias)
    exact = kernel(X.astype(float))
    sd = np.sqrt(kernel.feature_variance(X.astype(float), n_components=n_components))
    bound = 8 * (sd + degree * exact / np.sqrt(n_components)) / 2 + slack * exact
    apart = ~np.eye(len(X), dtype=bool)
    error = np.abs(Z.astype(float) @ Z.T.astype(float) - exact)
    assert np.all(error[apart] < bound[apart])
    # The bounds would notice the kernel of another degree or bias.
    brighter = bias + 0.25 * X.sum(axis=1).mean()
    for other in (rk.Optical(degree + 1, bias), rk.Optical(degree, brighter)):
        assert np.any(np.abs(other(X.astype(float)) - exact)[apart] > 2 * bound[apart])


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0, 6])
@pytest.mark.parametrize("degree", [1, 2, 2.5, 3, 4])
def test_features_approximate_their_kernel(X, degree, bias):
    D = 30_000
    device = SimulatedOPU(D, bits=16, read_noise=0, shot_noise=0, random_state=1)
    Z = OpticalFeatures(device, degree, bias).fit_transform(X)
    assert_kernel(Z, X, degree, bias, D)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_eight_noisy_bits_lose_little(X, degree):
    """Rounding and noise have a variance of some 0.7 counts, at a mean of 16.

    For degree 2 they leave products of different rows unbiased; beyond that their
    share of the second moment is 0.7/(2·16²), for degree 1 they bend the root near 0.
    """
    D = 30_000
    Z = OpticalFeatures(SimulatedOPU(D, random_state=1), degree).fit_transform(X)
    assert_kernel(Z, X, degree, 0, D, slack=0.02)
    quiet = SimulatedOPU(D, bits=16, read_noise=0, shot_noise=0, random_state=1)
    ideal = OpticalFeatures(quiet, degree).fit_transform(X)
    relative = np.linalg.norm(Z - ideal) / np.linalg.norm(ideal)
    assert 1e-3 < relative < 0.12


def test_calibration_makes_the_mean_intensity_one(X):
    device = SimulatedOPU(500, random_state=0)
    features = OpticalFeatures(device, n_calibration=N).fit(X)
    counts = device.transform(X, frame=0)
    assert features.scale_ == pytest.approx(
        (counts.mean(axis=1) / X.sum(axis=1)).mean(), rel=1e-12
    )
    assert features.scale_ == pytest.approx(device.gain, rel=0.1)
    some = OpticalFeatures(SimulatedOPU(500, random_state=0), n_calibration=3).fit(X)
    assert some.scale_ == pytest.approx(features.scale_, rel=0.1)
    assert mean_count_per_bit([[4, 6], [30, 10], [9, 9]], [1, 10, 0]) == 3.5


def test_a_device_may_serve_several_maps(X):
    device = SimulatedOPU(20_000, random_state=0)
    one = OpticalFeatures(device, 2).fit(X)
    wider = np.hstack([X, X, X])
    two = OpticalFeatures(device, 2, bias=4).fit(wider)
    assert device.settings.n_features == 3 * WIDTH + 4
    for features, rows, bias in ((one, X, 0), (two, wider, 4)):
        Z = features.transform(rows)
        assert_kernel(Z, rows, 2, bias, 20_000, slack=0.01)


def test_threads_may_share_a_device(X):
    bright, dark = np.ones((30, WIDTH), np.uint8), np.eye(30, WIDTH, dtype=np.uint8)
    wide = np.ones((30, WIDTH + 9), np.uint8)
    device = SimulatedOPU(50, read_noise=0, shot_noise=0, random_state=0)
    maps = [(OpticalFeatures(device).fit(rows), rows) for rows in (bright, dark, wide)]
    expected = [features.transform(rows) for features, rows in maps]
    frame = device.frame

    def work(number):
        features, rows = maps[number % 3]
        if number % 5 == 0:
            features = OpticalFeatures(device).fit(rows)
            return np.array_equal(features.transform(rows), expected[number % 3])
        return np.array_equal(features.transform(rows), expected[number % 3])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(90)))
    finally:
        sys.setswitchinterval(interval)
    # 18 of them have shown 30 frames more to calibrate: none is shown twice.
    assert device.frame == frame + 30 * (90 + 18)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exposure": 1e5}, "% of the counts of .* are saturated: shorten"),
        ({"exposure": 1e-2}, "mean count of .* is .*, lost in rounding: lengthen"),
        ({"bits": 1}, "use a camera of more bits"),
    ],
)
def test_unsuitable_exposures_warn(X, options, message):
    device = SimulatedOPU(2000, random_state=0, **options)
    with pytest.warns(UserWarning, match=message):
        OpticalFeatures(device).fit(X)
    with pytest.warns(UserWarning, match=message.replace("1e5", "1e6")):
        device.linear_transform(X)


@pytest.mark.parametrize("bits", [4, 5, 6, 8, 12])
def test_the_default_exposure_suits_the_bits(X, bits):
    device = SimulatedOPU(8000, bits=bits, random_state=0)
    assert bits < 8 or device.level == 1 / 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = OpticalFeatures(device).fit_transform(X).astype(float)
        device.linear_transform(X)
    exact = rk.Optical(2)(X.astype(float))
    # With 4 bits, level=1/16 has 5 % and level=0.3 has 6 %.
    assert np.linalg.norm(Z @ Z.T - exact) < 0.03 * np.linalg.norm(exact)


def test_calibration_finds_the_few_bright_rows(X):
    rows = np.zeros((50, WIDTH), np.uint8)
    rows[[3, 17]] = X[:2]
    for table in (rows, sp.csr_matrix(rows)):
        features = OpticalFeatures(
            SimulatedOPU(500, random_state=0), n_calibration=2
        ).fit(table)
        assert features.scale_ == pytest.approx(features.device_.gain, rel=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 0}, "degree"),
        ({"bias": 0.5}, "must be an integer"),
        ({"bias": -1}, "bias"),
        ({"n_calibration": 0}, "n_calibration"),
    ],
)
def test_bad_parameters(X, options, message):
    with pytest.raises(ValueError, match=message):
        OpticalFeatures(SimulatedOPU(10), **options).fit(X)


def test_bad_input(X):
    features = OpticalFeatures(SimulatedOPU(10, random_state=0))
    with pytest.raises(NotFittedError):
        features.transform(X)
    for wrong, advice in (
        (X * 0.5, "encode it first"),
        (X - 1.0, "encode it first"),
        (np.full(X.shape, np.nan), "impute"),
    ):
        with pytest.raises(ValueError, match=advice):
            features.fit(wrong)
    with pytest.raises(ValueError, match="all bits of X are 0"):
        features.fit(np.zeros_like(X))
    with pytest.raises(ValueError, match="5 features"):
        features.fit(X).transform(X[:, :5])
    mixed = np.vstack([X, np.zeros_like(X)])
    assert np.isfinite(features.fit_transform(mixed)).all()
    for device in (None, 3, SimulatedOPU):
        with pytest.raises(TypeError, match="device must have"):
            OpticalFeatures(device).fit(X)


def test_clone_keeps_the_device_and_pickles(X):
    features = OpticalFeatures(SimulatedOPU(60), 3, 1).fit(X)
    assert clone(features).device is features.device
    again = pickle.loads(pickle.dumps(features))
    assert np.array_equal(again.transform(X), features.transform(X))


# -- counts in files ---------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 2, 3.5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_count_features(rng, dtype, degree):
    counts = rng.integers(0, 256, size=(7, 33)).astype(dtype)
    expected = (counts / 2.5) ** (degree / 2) / np.sqrt(33)
    found = count_features(counts, scale=2.5, degree=degree)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_features_beyond_float32_are_refused(dtype):
    counts = np.array([[0, 200]], dtype=dtype)
    with pytest.raises(ValueError, match="degree 40 .*overflows float32; use a lower"):
        count_features(counts, scale=1.0, degree=40)
    # What no count reaches may overflow.
    assert np.isfinite(count_features(counts[:, :1], scale=1.0, degree=40)).all()
    with pytest.raises(ValueError, match="overflows float32"):
        count_features(counts, scale=1e-3, degree=900)


def test_count_helpers_refuse():
    counts = np.ones((2, 3), np.uint8)
    with pytest.raises(ValueError, match="two dimensions"):
        count_features(counts[0], scale=1.0)
    with pytest.raises(ValueError, match="scale"):
        count_features(counts, scale=0.0)
    with pytest.raises(ValueError, match="degree"):
        count_blocks(counts, scale=1.0, degree=-1)
    with pytest.raises(ValueError, match="one number per row"):
        mean_count_per_bit(counts, [1, 2, 3])
    with pytest.raises(ValueError, match="all bits of the rows are 0"):
        mean_count_per_bit(counts, [0, 0])
    with pytest.raises(ValueError, match="sees no light"):
        mean_count_per_bit(0 * counts, [1, 2])


@pytest.mark.parametrize(
    "cut",
    [
        lambda X: X,
        sp.csr_matrix,
        lambda X: rk.RowBlocks.from_arrays(X, block_rows=5),
        lambda X: (X[i : i + 5] for i in range(0, len(X), 5)),
    ],
)
def test_acquired_counts_are_those_of_a_transform(X, cut, tmp_path):
    device = SimulatedOPU(300, random_state=0).calibrate(X)
    seen = []
    path = tmp_path / "counts.npy"
    counts = device.acquire(cut(X), path, progress=lambda *at: seen.append(at))
    assert np.array_equal(counts, device.transform(X, frame=0))
    assert counts.dtype == np.uint8
    assert not counts.flags.writeable
    assert seen[-1][0] == N
    assert np.array_equal(np.load(path), counts)


def test_failed_acquisition_leaves_nothing(X, tmp_path):
    device = SimulatedOPU(30, bits=12, random_state=0)
    path = tmp_path / "counts.npy"
    with pytest.raises(ValueError, match="got the value 0.5"):
        acquire(device, [X, X * 0.5], path)
    with pytest.raises(ValueError, match="no rows"):
        acquire(device, [], path)
    assert list(tmp_path.iterdir()) == []
    assert acquire(device, X, path).dtype == np.uint16


def test_fit_from_stored_counts(rng, tmp_path):
    X = (rng.random((600, 60)) < 0.4).astype(np.uint8)
    y = X[:, :9].sum(axis=1) > 3
    device = SimulatedOPU(200, random_state=0).calibrate(X)
    counts = device.acquire(X, tmp_path / "counts.npy")
    scale = mean_count_per_bit(counts, X.sum(axis=1))
    rows = count_blocks(counts, y, scale=scale, degree=2, block_rows=100)
    assert (rows.n_rows, len(list(rows))) == (600, 6)
    model = rk.KernelRidgeClassifier(
        rk.Linear(), alpha=1.0, n_components=200, solver=PCG(), random_state=0
    )
    streamed = clone(model).fit(rows)
    Z = count_features(counts, scale=scale)
    whole = clone(model).fit(Z, y)
    found, expected = (m.decision_function(Z) for m in (streamed, whole))
    np.testing.assert_allclose(found, expected, atol=2e-2)
    weighted = count_blocks(counts, y, np.ones(600), scale=scale)
    assert next(iter(weighted)).sample_weight is not None


# -- lightonml ---------------------------------------------------------------


@pytest.mark.slow
def test_adapter_guards_and_scales(X):
    opu = FakeOPU(20_000)
    device = LightOnDevice(opu)
    assert clone(device) is device
    with pytest.raises(ValueError, match="encode it first"):
        device.transform(X * 0.5)
    Z = OpticalFeatures(device, 2).fit_transform(X)
    assert opu.fitted == WIDTH
    assert_kernel(Z, X, 2, 0, 20_000)
    assert_kernel(
        OpticalFeatures(opu, 2).fit_transform(sp.csr_matrix(X)), X, 2, 0, 20_000
    )
    with pytest.raises(ValueError, match="120 bits"):
        device.transform(X[:, :4])
    Y = device.linear_transform(X)
    np.testing.assert_allclose(
        (Y * Y).mean(axis=1) / X.sum(axis=1), 1, atol=16 / np.sqrt(20_000)
    )
    assert not device.linear_transform(0 * X).any()
    with pytest.raises(TypeError, match="has no attribute .fit1d"):
        LightOnDevice(SimulatedOPU(3))


@pytest.mark.nightly
def test_simulated_opu_of_lightonml(X):
    lightonml = pytest.importorskip(
        "lightonml", reason="lightonml is not installed (see LightOnDevice)"
    )
    D = 20_000
    device = LightOnDevice(lightonml.OPU(D, simulated=True))
    for degree, bias in ((1, 0), (2, 0), (2, 3), (3, 0)):
        Z = OpticalFeatures(device, degree, bias).fit_transform(X)
        assert_kernel(Z, X, degree, bias, D)
    with pytest.raises(ValueError, match="encode it first"):
        device.transform(X + 0.5)
    Y = device.calibrate(X).linear_transform(X)
    np.testing.assert_allclose(
        (Y * Y).mean(axis=1) / X.sum(axis=1), 1, atol=16 / np.sqrt(D)
    )
