"""Kernels of skeletons of tensors: values, features and models are those of arrays."""

import numpy as np
import pytest

import randkern as rk
from _skeleton_cases import ACTIVATIONS, BASES, points
from _tensors import (
    DTYPES,
    assert_close,
    dispatch,
    each_device,
    each_dtype,
    tensor,
    torch,
)
from randkern import skeletons as sk
from randkern.backend import torch_sparse
from randkern.plan import evaluate
from randkern.torch import FeatureMap

pytestmark = pytest.mark.slow


def mixed(bases, activations=("relu", "hermite2"), seed=0, n_rows=9):
    """Return a skeleton over two inputs of each base, and points of it."""
    rng = np.random.default_rng(seed)
    nodes, edges, parts, column = {}, [], [], 0
    nodes |= {"inner": activations[0], "out": activations[1]}
    for name in bases:
        base = BASES[name]
        parts.append(points(base, n_rows, 2, rng))
        for i in range(2):
            read = list(range(column, column + base.width))
            nodes[name, i] = sk.Input(base, read)
            edges.append(((name, i), "out" if i else "inner"))
            column += base.width
    return sk.Skeleton(nodes, [*edges, ("inner", "out")]), np.hstack(parts)


#: What draws are: phases, signed numbers, or both a modulus and a phase.
ROLES = {
    "phase": ["circle", "binary", "gaussian-2", "categorical-3", "categorical-4"],
    "signed": ["binary", "categorical-2", "linear", "sphere-coordinate"],
    "polar": ["circle", "linear", "sphere-pair", "sphere-direction", "binary"],
}
each_role = pytest.mark.parametrize("role", ROLES)


# -- exact values -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@each_device
def test_dual_activations(activation, device):
    dual = ACTIVATIONS[activation].dual
    rho = np.concatenate([np.linspace(-1, 1, 41), [1 - 1e-9]])
    for dtype, share in ((np.float64, 1e-13), (np.float32, 5e-7)):
        settings = rho.astype(dtype)
        assert_close(dual(tensor(settings, device)), dual(settings), share)


@pytest.mark.parametrize("degree", [0.3, 17.0, 60.0, 61.5, 100.0, 250.0])
def test_duals_of_large_optical_degrees(degree):
    dual = sk.Optical(degree).dual
    rho = np.linspace(-1, 1, 51)
    assert_close(dual(tensor(rho)), dual(rho), 1e-12)
    single = rho.astype(np.float32)
    assert_close(dual(tensor(single)), dual(single), 1e-5)


WRONG = {
    "binary": (0.5, "1 or -1"),
    "categorical-3": (1.5, "a code from 0 to 3"),
    "linear": (1.1, "a number from -1 to 1"),
    "sphere-pair": (2.0, "a vector of norm 1"),
}


@pytest.mark.parametrize("base", WRONG)
@each_dtype
def test_points_off_their_spaces(base, dtype, rng):
    value, expected = WRONG[base]
    X = points(BASES[base], 5, 3, rng).astype(DTYPES[dtype][0])
    kernel = rk.Compositional(sk.fully_connected(3, 1, "relu", BASES[base]))
    features = rk.RandomFeatures(kernel, 10, random_state=0).fit(X)
    X[3, 1] = value
    with dispatch():
        for call in (kernel, kernel.diag, features.transform):
            with pytest.raises(ValueError, match=expected):
                call(tensor(X))
        X[3, 1] = np.nan
        for call in (kernel, features.transform):
            with pytest.raises(ValueError, match="NaN"):
                call(tensor(X))


# -- features ---------------------------------------------------------------------

OPTIONS = {
    "default": {},
    "independent": {"deduplicate": False, "constant": "sampled"},
    "analytic": {"deduplicate": False},
    "merged": {"constant": "sampled"},
}


@pytest.mark.nightly
@each_role
@each_dtype
@each_device
@pytest.mark.parametrize("fourier", ["pair", "offset"])
def test_features_are_those_of_numpy(role, dtype, device, fourier, monkeypatch):
    dtype, share = DTYPES[dtype]
    skeleton, X = mixed(ROLES[role], ("relu", "optical"))
    X = X.astype(dtype)
    for options in OPTIONS.values():
        kernel = rk.Compositional(skeleton, **options)
        features = rk.RandomFeatures(kernel, 41, fourier=fourier, random_state=1)
        plan = features.fit(X).plan_
        expected = evaluate(plan, X)
        for block in (2**23, 100, 1)[: 2 if options else 3]:  # entries by rows
            monkeypatch.setattr(torch_sparse, "_BLOCK", block)
            subset = evaluate(plan, tensor(X[: 3 if block == 1 else 9], device))
            assert_close(subset, expected[: len(subset)], share)
        subset = evaluate(plan, tensor(X, device), slice(2, 40))
        assert_close(subset, expected[:, 2:40], share)
        monkeypatch.undo()
        with dispatch():
            again = features.fit(tensor(X, device)).transform(tensor(X, device))
        assert_close(again, expected, share)


@pytest.mark.slow
@pytest.mark.parametrize("fourier", ["pair", "offset"])
@each_role
def test_sums_and_products(role, fourier):
    skeleton, X = mixed(ROLES[role])
    X = np.hstack([X, np.random.default_rng(1).normal(size=(len(X), 2))])
    width = X.shape[1] - 2
    leaf = rk.Compositional(skeleton, columns=slice(0, width))
    other = rk.Gaussian(1.3, columns=[width, width + 1])
    optical = rk.Optical(1, columns=[width, width + 1])
    for kernel in (leaf + 2.0 * other, leaf * other, leaf * leaf, leaf * optical):
        features = rk.RandomFeatures(kernel, 51, fourier=fourier, random_state=4)
        expected = features.fit(X).transform(X)
        with dispatch():
            assert_close(features.transform(tensor(X)), expected, 1e-11)
            assert_close(kernel(tensor(X)), kernel(X), 1e-11)


@each_device
def test_pixels(device, rng):
    pixels = rng.integers(0, 256, (5, 6))
    to_angles = sk.PixelsToAngles().fit(pixels)
    for dtype in (np.uint8, np.int16, np.int64, np.float32, np.float64):
        settings = pixels.astype(dtype)
        with dispatch():
            got = to_angles.fit_transform(tensor(settings, device))
        assert_close(got, to_angles.transform(settings), 1e-7)
    with dispatch(), pytest.raises(ValueError, match="NaN"):
        to_angles.transform(torch.full((2, 6), np.nan, device=device))


# -- layers -----------------------------------------------------------------------


@pytest.mark.slow
@each_role
@pytest.mark.parametrize("weighted", [True, False])
def test_layers(role, weighted):
    skeleton, X = mixed(ROLES[role], n_rows=3)
    width = X.shape[1]
    X = np.hstack([X, np.random.default_rng(1).normal(size=(3, 1))])
    leaf = rk.Compositional(skeleton, columns=slice(0, width))
    other = rk.Gaussian(0.7, columns=[width])
    if weighted and role != "phase":
        kernel = leaf  # that of x·x depends on data
    else:
        kernel = leaf + other if weighted else leaf * other
    layer = FeatureMap(kernel, width + 1, 20, random_state=3)
    features = rk.RandomFeatures(kernel, 20, random_state=3)
    expected = features.fit_transform(X)
    assert_close(layer(tensor(X)), expected, 1e-12)
    # Along coordinates that are numbers; others must stay on their spaces.
    free = [width]
    for name, column in zip(ROLES[role], _first_columns(ROLES[role]), strict=True):
        if name in ("circle", "gaussian-2", "linear"):
            free.append(column)
    full = tensor(X)

    def outputs(moving):
        return layer(full.index_copy(1, torch.tensor(free), moving))

    moving = full[:, free].clone().requires_grad_()
    assert torch.autograd.gradcheck(outputs, (moving,))


def _first_columns(names):
    widths = [2 * BASES[name].width for name in names]
    return np.concatenate([[0], np.cumsum(widths)[:-1]]).tolist()


def test_layers_on_spheres(rng):
    skeleton = sk.fully_connected(3, 1, "relu", sk.sphere(3))  # whose points are not 0
    kernel = rk.Compositional(skeleton) + rk.Gaussian()
    X = points(sk.sphere(3), 4, 3, rng)
    layer = FeatureMap(kernel, 9, 30, random_state=0)
    features = rk.RandomFeatures(kernel, 30, random_state=0)
    assert_close(layer(tensor(X)), features.fit_transform(X), 1e-12)
    X[0, :3] = [0.0, 0.0, 1.0]
    settings = tensor(X).requires_grad_()
    layer(settings).sum().backward()
    assert bool(torch.isfinite(settings.grad).all())
