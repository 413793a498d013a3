"""Kernels and features of tensors equal those of arrays, and stay where they are."""

import pickle

import numpy as np
import pytest
import sklearn

import randkern as rk
from _cases import KERNELS, POINTS, PROJECTIONS, admits, draw
from _tensors import (
    DTYPES,
    assert_close,
    dispatch,
    each_device,
    each_dtype,
    host,
    no_host_copies,
    tensor,
    torch,
)
from oracles import primitives as reference
from oracles.hadamard_matrices import block_matrix, signs
from randkern.backend import (
    counter,
    torch_random,
)
from randkern.backend.array_ops import NumpyOps
from randkern.backend.torch_ops import TorchOps
from randkern.plan import evaluate

each_case = pytest.mark.parametrize("name", KERNELS)


# -- entries ----------------------------------------------------------------------


@pytest.mark.nightly
@each_device
@pytest.mark.parametrize(
    "distribution", ["normal", "cauchy", "laplace", "uniform", "sign"]
)
@pytest.mark.parametrize("rectangle", [(0, 5, 0, 64), (3, 9, 5, 300), (7, 8, 70, 71)])
def test_entries_are_those_of_the_cpu(distribution, rectangle, device):
    for key, shift in ((5, 0), (2**64 - 7, 2**33)):
        rows = (rectangle[0] + shift, rectangle[1] + shift)
        expected = counter.random_matrix(key, distribution, *rows, *rectangle[2:])
        got = torch_random.random_matrix(
            key, distribution, *rows, *rectangle[2:], device
        )
        scale = np.maximum(np.abs(expected), 1.0)
        # A phase of half a turn is rounded to 1e-7; a cotangent near a pole by more.
        np.testing.assert_allclose(host(got) / scale, expected / scale, atol=2e-6)
        if distribution in ("uniform", "sign"):
            oracle = reference.random_matrix(key, distribution, *rows, *rectangle[2:])
            assert np.array_equal(host(got), oracle)


@each_device
def test_signs_are_those_of_the_reference(device):
    key = 2**64 - 3
    got = host(torch_random.signs(key, 5, 2, 128, device))
    expected = [[signs(key, 5 + b, stage, 128) for stage in range(6)] for b in (0, 1)]
    assert np.array_equal(got, expected)


@pytest.mark.nightly
@pytest.mark.parametrize("p", [64, 128, 512, 8192])
def test_hadamard_transform(p, rng):
    from randkern.backend import torch_hadamard

    X = rng.normal(size=(2, p))
    H = np.ones((1, 1))
    while len(H) < p:
        H = np.block([[H, H], [H, -H]])
    got = torch_hadamard.transform(tensor(X))
    np.testing.assert_allclose(host(got), X @ H, atol=1e-11 * p)


@pytest.mark.parametrize("unitary", [False, True])
def test_structured_rows_are_those_of_the_reference(unitary):
    from randkern.backend import torch_hadamard

    norms, X = np.array([2.0, 5.0, 1.0]), np.eye(64)
    expected = (
        norms[:, None]
        * np.concatenate([block_matrix(3, b, 64, unitary) for b in (0, 1)])[
            [62, 63, 64]
        ]
    )
    rows = {"key": 3, "norms": tensor(norms), "row_start": 62, "row_stop": 65}
    real, imag = (torch.empty(64, 3, dtype=torch.float64) for _ in range(2))
    if unitary:
        parts = {"out_real": real, "out_imag": imag}
        torch_hadamard.StructuredRows(**rows).project_complex(tensor(X), **parts)
        np.testing.assert_allclose(host(imag), expected.imag.T, atol=1e-12)
    else:
        torch_hadamard.StructuredRows(**rows).project(tensor(X), out=real)
    np.testing.assert_allclose(host(real), expected.real.T, atol=1e-12)


@pytest.mark.parametrize("nu", [0.05, 0.3, 0.7, 1.0, 1.5, 3.3, 5.5, 20.0, 150.0, 300.0])
def test_matern_by_quadrature(nu):
    squared = np.concatenate([np.geomspace(1e-18, 1e6, 200), [0.0]])
    expected = NumpyOps().matern_correlation(squared, nu)
    got = TorchOps().matern_correlation(tensor(squared), nu)
    np.testing.assert_allclose(host(got), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("m", [0.5, 1.0, 1.7, 2.0, 3.0, 4.0, 7.3])
def test_optical_kernels_by_quadrature(m):
    cosine = np.concatenate([np.linspace(0, 1, 101), 1 - np.geomspace(1e-14, 0.1, 50)])
    got = TorchOps().optical_angles(tensor(cosine), m)
    expected = NumpyOps().optical_angles(cosine, m)
    np.testing.assert_allclose(host(got), expected, rtol=1e-11)


# -- exact values -----------------------------------------------------------------


@pytest.mark.slow
@each_case
@each_dtype
@each_device
def test_exact_values(name, dtype, device):
    kernel = KERNELS[name].kernel.resolve(POINTS)
    dtype, _ = DTYPES[dtype]
    X, Y = POINTS.astype(dtype), POINTS[:2].astype(dtype)
    share = 1e-6 if dtype == np.float32 else 1e-11
    with dispatch():
        assert_close(kernel(tensor(X, device)), kernel(X), share)
        got = kernel(tensor(X, device), tensor(Y, device))
        assert_close(got, kernel(X, Y), share)
        assert_close(kernel.diag(tensor(X, device)), kernel.diag(X), share)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_distances_do_not_cancel(offset, rng):
    X = offset + rng.normal(size=(30, 40))
    X[10:20] = X[:10] + 1e-6 * rng.normal(size=(10, 40))
    kernel = rk.Matern(0.5, 3.0)
    with dispatch():
        assert_close(kernel(tensor(X)), kernel(X), 1e-11)
        assert_close(kernel(tensor(X), tensor(X[:9])), kernel(X, X[:9]), 1e-11)


@pytest.mark.parametrize("size", [1e-170, 1e120])
def test_rows_of_extreme_size(size, rng):
    X = rng.normal(size=(4, 70)) * np.array([1.0, size, 1.0, 0.0])[:, None]
    kernel = rk.Optical(0.5, 1e-3)
    features = rk.RandomFeatures(kernel, 40, random_state=0).fit(X)
    with dispatch():
        assert_close(kernel(tensor(X)), kernel(X), 1e-9)
        got, expected = host(features.transform(tensor(X))), features.transform(X)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


# -- features ---------------------------------------------------------------------


def plans(name):
    """Yield plans of a kernel by every projection and both feature maps."""
    case, D = KERNELS[name], 3 if isinstance(KERNELS[name].kernel, rk.Linear) else 21
    for projection in PROJECTIONS:
        if admits(projection, case):
            for fourier in ("pair", "offset"):
                yield draw(case, D, projection=projection, fourier=fourier)


@pytest.mark.nightly
@each_case
@each_dtype
@each_device
def test_features_are_those_of_numpy(name, dtype, device):
    dtype, share = DTYPES[dtype]
    X = POINTS.astype(dtype)
    for plan in plans(name):
        expected = evaluate(plan, X)
        got = evaluate(plan, tensor(X, device))
        assert got.device.type == device
        assert_close(got, expected, share)
        last = plan.n_components - 1
        subset = evaluate(plan, tensor(X, device), slice(1, last))
        assert_close(subset, expected[:, 1:last], share)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in KERNELS if "compos" not in name])
def test_no_step_leaves_the_device(name, monkeypatch):
    """Tensors without values: a step that mixes them with others fails."""
    shape = (2000, POINTS.shape[1])
    X = torch.empty(shape, dtype=torch.float32, device="meta")
    # It asks for values: which phases are large (here all).
    everywhere = lambda self, values: torch.arange(len(values), device="meta")  # noqa: E731
    monkeypatch.setattr(TorchOps, "flatnonzero", everywhere)
    for plan in plans(name):
        Z = evaluate(plan, X)
        shape = (2000, plan.n_components)
        assert (Z.device.type, Z.shape, Z.dtype) == ("meta", shape, X.dtype)


@pytest.mark.parametrize("projection", ["structured", "streamed"])
@pytest.mark.parametrize(
    "kernel",
    [
        rk.Gaussian(8.0),
        rk.Matern(1.5, 9.0),
        rk.Optical(2, 0.5),
        rk.Optical(1),
        rk.Gaussian(np.linspace(5, 20, 100)),
        rk.Gaussian(9.0, columns=slice(0, 80)) * rk.Linear(columns=[81, 85]),
    ],
    ids=str,
)
def test_many_columns_and_blocks(kernel, projection, rng):
    X = rng.normal(size=(7, 100)).astype(np.float32)
    centered = isinstance(kernel, rk.Optical)
    features = rk.RandomFeatures(
        kernel, 701, projection=projection, centered=centered, random_state=3
    ).fit(X)
    with dispatch():
        assert_close(features.transform(tensor(X)), features.transform(X), 2e-5)


@each_device
def test_the_same_seed_draws_the_same_map(device, rng):
    X = rng.normal(size=(300, 5)).astype(np.float32)
    weight = rng.uniform(size=300) * (rng.uniform(size=300) > 0.3)
    kernels = [
        None,
        rk.Gaussian("median") + rk.Linear(),
        rk.Laplacian("scale"),
        rk.Categorical(columns=[0]) + rk.Optical(1, columns=[1, 2]),
    ]
    X[:, 0] = X[:, 0].round()
    for kernel in kernels:
        features = rk.RandomFeatures(kernel, 50, random_state=7)
        expected = features.fit(X, sample_weight=weight).transform(X)
        with dispatch():
            settings = tensor(X, device)
            got = features.fit(settings, sample_weight=tensor(weight, device))
            assert_close(got.transform(settings), expected, 1e-4)
            again = pickle.loads(pickle.dumps(got))
            assert_close(again.transform(settings), expected, 1e-4)


# -- the device path --------------------------------------------------------------


@pytest.mark.parametrize("projection", ["auto", "streamed", "dense", "qmc"])
def test_transform_copies_nothing_to_the_host(projection, monkeypatch, rng):
    X = tensor(rng.normal(size=(20, 70)).astype(np.float32))
    kernel = rk.Gaussian(8.0) + 0.1 * rk.Optical(1, columns=slice(0, 66))
    features = rk.RandomFeatures(kernel, 80, projection=projection, random_state=0)
    with dispatch(), no_host_copies(monkeypatch) as copied:
        Z = features.fit(X).transform(X)
        K = features.kernel_(X)
    assert (Z.dtype, K.dtype, copied) == (torch.float32, torch.float32, [])
    assert float((Z @ Z.T - K).abs().max() / K.max()) < 6 / 80**0.5


def test_what_a_fit_copies_to_the_host(monkeypatch, rng):
    X = tensor(rng.normal(size=(2000, 3)).round())
    kernel = rk.Gaussian("median") * rk.Categorical(columns=[0])
    with dispatch(), no_host_copies(monkeypatch) as copied:
        rk.RandomFeatures(kernel, 10, random_state=0).fit(X)
    assert sorted(set(copied)) == ["median_distance", "unique"]


# -- the boundary -----------------------------------------------------------------


def test_without_dispatch_a_tensor_is_an_array(rng):
    X = rng.normal(size=(6, 3))
    features = rk.RandomFeatures(n_components=8, random_state=0).fit(tensor(X))
    assert isinstance(features.transform(tensor(X)), np.ndarray)


@pytest.mark.parametrize("dispatched", [True, False])
def test_complex_numbers_are_refused(dispatched, rng):
    X, y = tensor(rng.normal(size=(6, 3))), tensor(rng.normal(size=6))
    features = rk.RandomFeatures(rk.Gaussian(), 8, random_state=0).fit(X)
    model = rk.KernelRidgeRegressor(rk.Gaussian(), n_components=8, random_state=0)
    with sklearn.config_context(array_api_dispatch=dispatched):
        for call in (
            lambda: features.fit(X + 1j),
            lambda: features.transform(X + 1j),
            lambda: model.fit(X + 1j, y),
            lambda: model.fit(X, y + 1j),
            lambda: rk.Gaussian()(X + 1j),
            lambda: rk.Gaussian()(X, X + 1j),
        ):
            with pytest.raises(ValueError, match="Complex data not supported"):
                call()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_tensors_that_cannot_be_read(rng):
    X, y = tensor(rng.normal(size=(6, 3))), tensor(np.arange(6) % 2)
    features = rk.RandomFeatures(rk.Gaussian(), 8, random_state=0)
    model = rk.KernelRidgeRegressor(rk.Gaussian(), n_components=8, random_state=0)
    with dispatch():
        for sparse in (X.to_sparse(), X.to_sparse_csr()):
            with pytest.raises(TypeError, match="X is a sparse tensor"):
                features.fit(sparse)
        with pytest.raises(TypeError, match="has no values"):
            features.fit(X.to("meta"))
        with pytest.raises(ValueError, match="so Y must be an array"):
            rk.Gaussian()(X.numpy(), X)
        for rows in (X.numpy(), X.tolist()):
            with pytest.raises(ValueError, match="so y must be an array"):
                model.fit(rows, X[:, 0])
        classifier = rk.KernelRidgeClassifier(
            rk.Gaussian(), n_components=8, random_state=0
        )
        for dtype in (torch.uint16, torch.uint64):
            with pytest.raises(TypeError, match="pass y.to"):
                classifier.fit(X, y.to(dtype))
        weights = [1.0, 2.0, 0.0, 1.0, 1.0, 3.0]
        got = model.fit(X, X[:, 0], sample_weight=weights).predict(X)
        same = model.fit(X, X[:, 0], sample_weight=tensor(np.array(weights)))
        assert torch.equal(got, same.predict(X))


def test_what_computes_on_arrays_only():
    with (
        dispatch(),
        pytest.raises(TypeError, match="tensors are not supported here; pass NumPy"),
    ):
        rk.Gaussian().feature_variance(torch.zeros(3, 2))


def test_bad_shapes():
    kernel = rk.Gaussian()
    features = rk.RandomFeatures(kernel, random_state=0)
    with dispatch():
        features.fit(torch.zeros(4, 3))
        with pytest.raises(ValueError, match="expecting 3 features"):
            features.transform(torch.zeros(4, 2))
        with pytest.raises(ValueError, match="Expected 2D array"):
            features.transform(torch.zeros(4))
        with pytest.raises(ValueError, match="3 columns but Y has 2"):
            kernel(torch.zeros(4, 3), torch.zeros(4, 2))
        with pytest.raises(ValueError, match="Y must be a tensor on the same device"):
            kernel(torch.zeros(4, 3), np.zeros((4, 3)))


def test_a_tensor_elsewhere_needs_dispatch():
    X = torch.empty(3, 2, device="meta")
    with pytest.raises(TypeError, match="SCIPY_ARRAY_API=1"):
        rk.RandomFeatures().fit(X)
    with pytest.raises(TypeError, match="array_api_dispatch=True"):
        rk.Gaussian()(X)
