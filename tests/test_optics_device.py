"""The simulated optical processing unit: its matrix, its camera and its limits."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from randkern.backend.camera import expose
from randkern.backend.counter import random_matrix
from randkern.optics import MirrorLayout, OpticalDevice, SimulatedOPU

N, WIDTH, D = 40, 150, 3000
PROJECTIONS = ["structured", "streamed", "dense", "orthogonal"]
# Six standard deviations: less than once in 10⁸.
SIGMAS = 6.0


@pytest.fixture(name="X")
def rows_of_bits(rng):
    return (rng.random((N, WIDTH)) < 0.3).astype(np.uint8)


def ideal(n_components=D, **options):
    """A device of 16 bits without noise."""
    defaults = {"bits": 16, "read_noise": 0.0, "shot_noise": 0.0, "random_state": 0}
    return SimulatedOPU(n_components, **(defaults | options))


# -- the distribution of the counts ---------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_counts_are_intensities_of_the_matrix(X, projection):
    device = ideal(projection=projection)
    counts = device.transform(X).astype(float)
    U = device.matrix()
    assert U.shape == (D, WIDTH)
    light = np.abs(X @ U.T) ** 2
    expected = np.minimum(device.gain * light, device.full_scale)
    # Rounding to an integer, and float32.
    assert np.abs(counts - expected).max() < 0.5 + 1e-5 * device.full_scale
    # |U|² is an exponential variable of mean 1: so is every intensity per lit bit.
    shares = light / X.sum(axis=1)[:, None]
    bound = SIGMAS / np.sqrt(D)
    assert np.abs(shares.mean(axis=1) - 1).max() < bound


def test_entries_of_the_matrix_are_complex_normal(X):
    U = ideal(projection="streamed").calibrate(X).matrix()
    n = U.size
    for part in (U.real, U.imag):
        values = part.ravel() * np.sqrt(2)
        assert abs(values.mean()) < SIGMAS / np.sqrt(n)
        assert abs((values**2).mean() - 1) < SIGMAS * np.sqrt(2 / n)
        assert abs((values**4).mean() - 3) < SIGMAS * np.sqrt(96 / n)
    assert abs((U.real * U.imag).mean()) < SIGMAS * 0.5 / np.sqrt(n)
    assert np.array_equal(
        U[100:107], ideal(projection="streamed").calibrate(X).matrix(100, 107)
    )


def test_noise_has_the_variance_of_its_parameters(X):
    n_reads, n_pixels = 400, 500
    options = {"bits": 16, "random_state": 3, "exposure": 40.0}
    device = SimulatedOPU(n_pixels, read_noise=0.5, shot_noise=0.04, **options)
    reads = device.transform(np.repeat(X[:1], n_reads, axis=0)).astype(float)
    unit = 65535 / 255
    mean = device.gain * np.abs(X[:1] @ device.matrix().T) ** 2
    # Counts so far from 0 and from full scale are not cut off.
    clear = (mean > 10 * unit).ravel() & (mean < 200 * unit).ravel()
    assert clear.sum() > 50
    variance = unit**2 * (0.5**2 + 0.04 * mean / unit)
    z = ((reads - mean) / np.sqrt(variance))[:, clear]
    n = z.size
    assert abs(z.mean()) < SIGMAS / np.sqrt(n)
    assert abs((z**2).mean() - 1) < SIGMAS * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < SIGMAS * np.sqrt(96 / n)
    # Neighbouring pixels, and consecutive reads, are independent.
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < SIGMAS / np.sqrt(n)
    assert abs((z[1:] * z[:-1]).mean()) < SIGMAS / np.sqrt(n)


def test_counts_saturate_and_do_not_wrap(X):
    bright = SimulatedOPU(D, exposure=2e4, random_state=0)
    counts = bright.transform(X)
    light = bright.gain * np.abs(X @ bright.matrix().T) ** 2
    assert counts.dtype == np.uint8
    assert np.all(counts[light > 300] == 255)
    assert (light > 300).mean() > 0.1
    assert SimulatedOPU(10, bits=12, exposure=1e9).transform(X).max() == 4095


@pytest.mark.parametrize("bits", [1, 8, 9, 16])
def test_counts_have_the_bits_of_the_converter(X, bits):
    counts = SimulatedOPU(D, bits=bits, level=0.5, random_state=0).transform(X)
    assert counts.dtype == (np.uint8 if bits <= 8 else np.uint16)
    assert counts.max() == 2**bits - 1


def test_auto_exposure_brings_the_mean_to_its_level(rng):
    few = rng.random((200, 400)) < 0.1
    many = rng.random((200, 400)) < 0.8
    exposures = []
    for rows in (few, many):
        device = SimulatedOPU(D, level=0.1, random_state=0).calibrate(rows)
        counts = device.transform(rows)
        # Correlated rows: at worst the relative error is that of one row.
        assert abs(counts.mean() / 25.5 - 1) < SIGMAS / np.sqrt(D)
        exposures.append(device.settings.exposure)
    # Eight times the light, an eighth of the exposure.
    assert exposures[0] / exposures[1] == pytest.approx(many.sum() / few.sum())
    fixed = SimulatedOPU(D, exposure=70, random_state=0).calibrate(few)
    assert fixed.settings.exposure == 70


# -- determinism -------------------------------------------------------------


def test_same_seed_same_device(X):
    one, two = (SimulatedOPU(D, random_state=7) for _ in range(2))
    first = one.transform(X)
    assert np.array_equal(first, two.transform(X))
    assert not np.array_equal(first, SimulatedOPU(D, random_state=8).transform(X))
    assert not np.array_equal(first, SimulatedOPU(D).transform(X))


def test_reads_differ_by_noise_only(X):
    device = SimulatedOPU(D, random_state=7)
    first, second = device.transform(X), device.transform(X)
    assert device.frame == 2 * N
    difference = first.astype(int) - second
    assert 0 < np.abs(difference).mean() < 1.5
    assert np.array_equal(device.transform(X, frame=0), first)
    assert device.frame == 2 * N
    device.reset()
    assert np.array_equal(device.transform(X), first)
    quiet = SimulatedOPU(D, read_noise=0, shot_noise=0, random_state=7)
    assert np.array_equal(quiet.transform(X), quiet.transform(X))


def test_dense_and_streamed_are_one_matrix(X):
    dense, streamed = (
        SimulatedOPU(50, projection=name, random_state=1).calibrate(X)
        for name in ("dense", "streamed")
    )
    assert np.array_equal(dense.matrix(), streamed.matrix())


def test_clone_copy_and_pickle(X):
    device = SimulatedOPU(200, random_state=None).calibrate(X)
    assert clone(device) is device
    device.transform(X)
    for again in (pickle.loads(pickle.dumps(device)), copy.deepcopy(device)):
        assert again.frame == device.frame
        assert again.settings == device.settings
        frame = device.frame
        assert np.array_equal(again.transform(X), device.transform(X, frame=frame))
    assert len(pickle.dumps(device)) < 2000
    assert isinstance(device, OpticalDevice)
    assert "200" in repr(device)


# -- linear mode ------------------------------------------------------------


def test_linear_mode_has_normal_rows(X):
    n = 20_000
    device = SimulatedOPU(n, projection="streamed", random_state=5).calibrate(X)
    z = device.linear_transform(X[:2]) / np.sqrt(X[:2].sum(axis=1))[:, None]
    assert device.frame == 2 * 2 + 16
    for row in z.astype(float):
        assert abs(row.mean()) < SIGMAS / np.sqrt(n)
        # The camera's noise adds about a percent, and what it cuts off takes some.
        assert abs((row**2).mean() - 1) < 0.03 + SIGMAS * np.sqrt(2 / n)
        # 6 if the anchor's size were not divided out.
        assert abs((row**4).mean() - 3) < 0.3 + SIGMAS * np.sqrt(96 / n)
    cosine = (X[0] @ X[1]) / np.sqrt(X[0].sum() * X[1].sum())
    assert abs((z[0] * z[1]).mean() - cosine) < SIGMAS * np.sqrt(2 / n)
    again = SimulatedOPU(n, projection="streamed", random_state=5).calibrate(X)
    assert np.array_equal(
        again.linear_transform(X[:2]), device.linear_transform(X[:2], frame=0)
    )


# -- size -------------------------------------------------------------------


@pytest.mark.parametrize(("projection", "width"), [("auto", 300), ("streamed", 3)])
def test_a_million_outputs_store_no_matrix(rng, projection, width):
    X = rng.random((3, width)) < 0.5
    X[:, 0] = True
    SimulatedOPU(5000, projection=projection).transform(X)  # compile
    device = SimulatedOPU(10**6, projection=projection, random_state=0)
    tracemalloc.start()
    counts = device.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Tiles of 16 MB, norms of 8 MB a row's worth, counts of 3 MB.
    assert peak < 90e6
    shares = counts.mean(axis=1) / (device.gain * X.sum(axis=1))
    assert np.abs(shares - 1).max() < 0.01


# -- input ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 1.0]], "got the value 0.5; encode it first.*ThresholdBinarizer"),
        ([[0.0, np.nan]], "got the value nan.*ThermometerEncoder"),
        (sp.csr_matrix([[0.0, 3.0]]), "got the value 3"),
        ([["a", "b"]], "bits|numeric|convert"),
        ([[1j, 0]], "[Cc]omplex"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((3, 0)), "0 feature"),
    ],
)
def test_anything_but_bits_is_refused(rows, message):
    device = SimulatedOPU(10, random_state=0)
    for method in (device.transform, device.calibrate, device.linear_transform):
        with pytest.raises(ValueError, match=message):
            method(rows)
    assert device.frame == 0


def test_wrong_width_and_too_many_bits(X):
    device = SimulatedOPU(10, random_state=0).calibrate(X)
    with pytest.raises(ValueError, match="5 columns.*150 bits; call calibrate"):
        device.transform(X[:, :5])
    assert device.calibrate(X[:, :5]).transform(X[:, :5]).shape == (N, 10)
    wide = sp.csr_matrix((1, 912 * 1140 + 1))
    with pytest.raises(ValueError, match="do not fit on 912 x 1140"):
        device.calibrate(wide)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"bits": 0}, "bits"),
        ({"bits": 17}, "at most 16"),
        ({"exposure": "bright"}, "exposure"),
        ({"exposure": -1}, "exposure"),
        ({"level": 0}, "level"),
        ({"read_noise": -0.1}, "read_noise"),
        ({"shot_noise": np.nan}, "shot_noise"),
        ({"projection": "qmc"}, "projection"),
        ({"random_state": "a"}, "random_state"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        SimulatedOPU(**({"n_components": 10} | options))


def test_before_the_first_row():
    device = SimulatedOPU(10)
    for use in (device.matrix, lambda: device.gain, lambda: device.layout):
        with pytest.raises(ValueError, match=r"call calibrate\(X\)"):
            use()
    with pytest.raises(ValueError, match="frame must be a non-negative integer"):
        device.transform([[1]], frame=-1)


# -- mirrors, time, and the compiled camera ----------------------------------


@pytest.mark.parametrize("n_bits", [1, 2, 3, 784, 1000, 12_345, 912 * 1140])
def test_mirrors(n_bits):
    layout = MirrorLayout(n_bits)
    height, width = layout.macro_pixel
    rows, columns = layout.grid
    assert rows * columns >= n_bits
    assert rows * height <= 912
    assert columns * width <= 1140
    assert layout.n_dark == 912 * 1140 - n_bits * height * width
    bits = np.zeros(n_bits, dtype=bool)
    bits[-1] = True
    assert layout.frame(bits).sum() == layout.mirrors_per_bit
    assert layout.frame(np.ones(n_bits)).sum() + layout.n_dark == 912 * 1140


def test_mirrors_refuse_other_rows():
    with pytest.raises(ValueError, match="expects 4 bits, got 3"):
        MirrorLayout(4).frame([0, 1, 0])
    with pytest.raises(ValueError, match="n_bits must be positive"):
        MirrorLayout(0)


@pytest.mark.parametrize("shape", [(3, 9000), (40, 130), (1, 1)])
def test_compiled_camera_against_numpy(rng, shape):
    light = rng.exponential(100, size=shape).astype(np.float32)
    out = np.zeros((shape[0], shape[1] + 5), dtype=np.uint16)
    numbers = {"gain": 0.3, "read_noise": 1.5, "shot_noise": 0.4, "full_scale": 99}
    expose(light, **numbers, key=11, frame=5, pixel=70, out=out[:, 2:-3])
    frames = (5, 5 + shape[0], 70, 70 + shape[1])
    z = random_matrix(11, "normal", *frames, np.float64)
    mean = 0.3 * light.astype(float)
    expected = np.clip(np.rint(mean + np.sqrt(1.5**2 + 0.4 * mean) * z), 0, 99)
    difference = np.abs(out[:, 2:-3].astype(float) - expected)
    assert difference.max() <= 1  # a tie, in float32
    assert (difference > 0).mean() < 1e-3
    assert not out[:, :2].any()
    assert not out[:, -3:].any()
