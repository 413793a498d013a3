"""Feature maps as layers: the features of the library, and their gradients."""

import copy

import numpy as np
import pytest

import randkern as rk
from _tensors import DEVICES, host, tensor, torch
from randkern.backend import torch_hadamard
from randkern.torch import FeatureMap

each_device = pytest.mark.parametrize("device", DEVICES)
KERNELS = [
    rk.Gaussian(1.3),
    rk.Gaussian([0.7, 1.0, 2.0]),
    rk.Matern(1.5, 0.8),
    rk.Laplacian(2.0),
    2.5 * rk.Gaussian(0.9) + rk.Cauchy([1.0, 2.0, 3.0]),
    rk.Gaussian(0.9, columns=[0]) * rk.Laplacian(2.0, columns=[1, 2]),
    rk.Optical(2, 0.5),
    rk.Optical(1, 0.5) * rk.Gaussian(1.1),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)


@each_kernel
@each_device
def test_features_are_those_of_the_library(kernel, device, rng):
    X = rng.normal(size=(2, 4, 3))
    features = rk.RandomFeatures(kernel, 31, random_state=5)
    expected = features.fit_transform(X.reshape(8, 3))
    layer = FeatureMap(kernel, 3, 31, random_state=5).to(device)
    got = layer(tensor(X, device))
    assert got.shape == (2, 4, 31)
    np.testing.assert_allclose(
        host(got).reshape(8, 31), expected, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("fourier", ["pair", "offset"])
def test_gradients(kernel, fourier, rng):
    layer = FeatureMap(kernel, 3, 7, fourier=fourier, random_state=0)
    x = tensor(rng.normal(size=(3, 3))).requires_grad_()
    parameters = list(layer.parameters())

    def features(x, *values):
        replaced = dict(zip(dict(layer.named_parameters()), values, strict=True))
        return torch.func.functional_call(layer, replaced, (x,))

    assert torch.autograd.gradcheck(features, (x, *parameters))


@pytest.mark.slow
def test_gradients_of_structured_features(rng):
    layer = FeatureMap(rk.Gaussian(8.0), 64, 5, projection="structured", random_state=0)
    x = tensor(rng.normal(size=(2, 64))).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))
    layer(x).sum().backward()
    (gradient,) = (parameter.grad for parameter in layer.parameters())
    step = 1e-6
    values = []
    for sign in (1, -1):
        moved = copy.deepcopy(layer)
        with torch.no_grad():
            moved.log_lengthscales[0] += sign * step
        values.append(moved(x).sum().item())
    assert float(gradient) == pytest.approx(
        (values[0] - values[1]) / (2 * step), rel=1e-6
    )


@pytest.mark.parametrize("projection", ["auto", "structured"])
@pytest.mark.parametrize(
    "kernel",
    [
        *(rk.Optical(degree) for degree in (1, 1.5, 2, 3, 4)),
        rk.Gaussian(1.1) * rk.Optical(1),
        rk.Optical(1) * rk.Optical(3),
    ],
    ids=str,
)
def test_gradients_at_rows_of_zeros(kernel, projection, rng):
    layer = FeatureMap(kernel, 3, 20, projection=projection, random_state=0)
    x = tensor(rng.normal(size=(4, 3)))
    x[0] = 0.0
    x.requires_grad_()
    linear = torch.nn.Linear(3, 3, bias=False, dtype=x.dtype)
    (layer(x).sum() + layer(linear(x)).sum()).backward()
    assert torch.equal(x.grad[0], torch.zeros(3, dtype=x.dtype))
    assert torch.isfinite(x.grad).all() and (x.grad[1:] != 0).all()
    assert torch.isfinite(linear.weight.grad).all()


MAPS = [
    (64, {"projection": "structured"}),
    (5, {"projection": "orthogonal"}),
    (5, {"projection": "dense", "fourier": "offset"}),
]
each_map = pytest.mark.parametrize("width, options", MAPS, ids=str)


def _check_as_new(layer, x, width, options):
    new = FeatureMap(layer.kernel, width, 9, random_state=7, **options)
    x.requires_grad_()
    got = layer(x)
    got.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(got, new(x))


@each_map
def test_trains_after_inference_mode(width, options, rng):
    torch_hadamard._hadamard_matrix.__wrapped__.cache_clear()
    layer = FeatureMap(rk.Gaussian(2.0), width, 9, random_state=7, **options)
    x = tensor(rng.normal(size=(2, width)))
    with torch.inference_mode():
        layer(x)
    _check_as_new(layer, x, width, options)


@pytest.mark.slow
@each_map
def test_features_after_export(width, options, rng):
    torch_hadamard._hadamard_matrix.__wrapped__.cache_clear()
    layer = FeatureMap(rk.Gaussian(2.0), width, 9, random_state=7, **options)
    x = tensor(rng.normal(size=(2, width)))
    exported = torch.export.export(layer, (x,)).module()
    torch.testing.assert_close(exported(x), layer(x).detach(), check_stride=False)
    _check_as_new(layer, x, width, options)


def test_state_and_repr():
    layer = FeatureMap(rk.Gaussian([1.0, 2.0]), 2, 6, random_state=0)
    other = FeatureMap(rk.Gaussian([3.0, 4.0]), 2, 6, random_state=0)
    other.load_state_dict(layer.state_dict())
    x = torch.ones(1, 2)
    assert torch.equal(layer(x), other(x))
    assert "in_features=2, out_features=6" in repr(layer)
    np.testing.assert_allclose(other.lengthscales, [[1.0, 2.0]])
    assert not list(
        p
        for p in FeatureMap(rk.Gaussian(), 2, 6, learn_lengthscale=False).parameters()
        if p.requires_grad
    )
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_states_of_other_draws_are_refused():
    def layer(**options):
        given = {"random_state": 0} | options
        return FeatureMap(rk.Gaussian(1.0) * rk.Optical(2), 2, 6, **given)

    state = layer().state_dict()
    assert layer().load_state_dict(state).missing_keys == []
    whole = FeatureMap(rk.Gaussian(3.0) * rk.Optical(2.0), 2, 6, random_state=0)
    whole.load_state_dict(state)
    for options in ({"random_state": 1}, {"projection": "dense"}):
        other = layer(**options)
        with pytest.raises(ValueError, match="other random features"):
            other.load_state_dict(state)


def test_autocast_leaves_phases_alone(rng):
    layer = FeatureMap(rk.Gaussian(0.5), 8, 60, projection="dense", random_state=0)
    x = torch.as_tensor(rng.normal(size=(4, 8)), dtype=torch.float32)
    half = x.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        got, from_half = layer(x), layer(half)
    assert torch.equal(got, layer(x))
    assert torch.equal(from_half, layer(half.to(torch.float32)))


def test_bad_arguments():
    with pytest.raises(rk.exceptions.UnresolvedKernelError):
        FeatureMap(rk.Gaussian("scale"), 2)
    with pytest.raises(ValueError, match="one number per term"):
        FeatureMap(rk.Gaussian() + rk.Linear(), 2)
    with pytest.raises(ValueError, match="kernel (of Scaled )?must be a kernel"):
        FeatureMap("rbf", 2)
    layer = FeatureMap(rk.Gaussian(), 2, 6)
    with pytest.raises(ValueError, match="expected in_features=2"):
        layer(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="float32 or float64"):
        layer(torch.zeros(1, 2, dtype=torch.bfloat16))


@pytest.mark.parametrize("projection", ["dense", "structured"])
@pytest.mark.parametrize("kernel", [rk.Gaussian(1.0), rk.Optical(2), rk.Laplacian(4.0)])
def test_products_of_low_precision_leave_features_alone(kernel, projection, rng):
    """``set_float32_matmul_precision`` is for networks; it is left as it was."""
    if isinstance(kernel, rk.Laplacian):
        projection = "dense"  # the distribution of its rows is no other's
    layer = FeatureMap(kernel, 80, 200, projection=projection, random_state=0)
    x = torch.as_tensor(rng.normal(size=(64, 80)), dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        expected = layer(x)
        torch.set_float32_matmul_precision("medium")
        got = layer(x)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    # The phases of Laplacian features are large.
    scale = 20 if isinstance(kernel, rk.Laplacian) else 1
    bound = 2e-6 * scale * max(1.0, float(expected.abs().max()))
    assert float((got - expected).abs().max()) <= bound
