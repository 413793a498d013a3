"""Values of features, as they were when they were recorded.

Everything else in this suite compares features with what they should be *on average*;
here their values are pinned, so that a change of a draw, of a formula or of the order
of columns is seen, on any machine and with any version of a dependency. Write the
record again by

    python tests/test_golden.py

only where values were meant to change, and say in the changelog which, and why.

The record is compared to 1e-6 of the largest value of a case. Phases are a few radians
here, of which the order of a sum, which is BLAS's own, loses far less.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import randkern as rk
from _cases import KERNELS, PROJECTIONS, Case, admits, has_draws
from _skeleton_cases import ACTIVATIONS, BASES, points
from randkern import skeletons as sk
from randkern.optics import SimulatedOPU

RECORD = Path(__file__).parent / "golden_features.json"
SEED = 20_240_607
N_ROWS = 3  # of which values are recorded

# Two numbers and two columns of categories, for kernels of four columns.
_RNG = np.random.default_rng(SEED)
NARROW = np.hstack([_RNG.uniform(-1, 1, (24, 2)), _RNG.integers(3, size=(24, 2))])
WIDE = _RNG.uniform(-1, 1, (24, 70))
NAMES = ("auto", *PROJECTIONS)

ALL_KERNELS = KERNELS | {
    "coregionalization": Case(
        rk.Coregionalization(
            [[1.0, 0.5], [-1.0, 0.0], [2.0, 1.0]], [0.5, 0.25, 0.0], columns=[3]
        ),
        phases=False,
    ),
}
WIDE_KERNELS = {
    "wide-gaussian": rk.Gaussian("scale"),
    "wide-gaussian-ard": rk.Gaussian(np.linspace(4.0, 8.0, 70)),
    "wide-matern": rk.Matern(1.5, "median"),
    "wide-laplacian": rk.Laplacian("scale"),
    "wide-cauchy": rk.Cauchy("median"),
    "wide-optical": rk.Optical(2, 1.0),
    "wide-gaussian*optical": rk.Gaussian(6.0) * rk.Optical(1),
}


def _feature_cases():
    """Return {name: (kernel, rows, number of features, other arguments)}."""
    cases = {}
    for name, case in ALL_KERNELS.items():
        kernel, n_components = case.kernel, 13 if has_draws(case) else 3
        for projection in NAMES:
            if projection != "auto" and not admits(projection, case):
                continue
            named = {"projection": projection}
            cases[f"{name}/{projection}"] = (kernel, NARROW, n_components, named)
            if case.phases:
                options = named | {"fourier": "offset"}
                cases[f"{name}/{projection}/offset"] = (kernel, NARROW, 7, options)
            if isinstance(kernel, rk.Optical):
                options = named | {"centered": True}
                cases[f"{name}/{projection}/centered"] = (kernel, NARROW, 7, options)
    for name, kernel in WIDE_KERNELS.items():
        for projection in NAMES:
            if projection == "auto" or admits(projection, Case(kernel)):
                named = {"projection": projection}
                cases[f"{name}/{projection}"] = (kernel, WIDE, 24, named)
    # More draws than a block of a structured, or orthogonal, matrix has.
    for projection in ("structured", "orthogonal", "qmc"):
        named = {"projection": projection}
        cases[f"blocks/{projection}"] = (rk.Gaussian("scale"), WIDE, 300, named)
    for name, (skeleton, X) in _skeletons().items():
        cases[name] = (rk.Compositional(skeleton), X, 13, {})
    return cases


def _skeletons():
    """Return {name: skeleton and its rows} of base spaces, activations and images."""
    cases = {}
    for number, (name, base) in enumerate(BASES.items()):
        X = points(base, 8, 3, np.random.default_rng(number))
        cases[f"base/{name}"] = (sk.fully_connected(3, 2, base=base), X)
    X = np.random.default_rng(99).uniform(-1.5, 1.5, (8, 72))
    for name, activation in ACTIVATIONS.items():
        skeleton = sk.fully_connected(3, 2, activation=activation)
        cases[f"activation/{name}"] = (skeleton, X[:, :3])
    layers = [sk.Conv(window=3, stride=1), sk.Pool(window=2), sk.Dense()]
    return cases | {"images": (sk.convolutional((6, 6, 2), layers=layers), X)}


def _features(case):
    """Return features of the first rows; 24 columns of them at most."""
    kernel, X, n_components, options = case
    features = rk.RandomFeatures(kernel, n_components, random_state=SEED, **options)
    Z = features.fit(X).transform(X[:N_ROWS])
    return Z[:, :: -(-n_components // 24)]


BITS = np.random.default_rng(SEED + 2).random((24, 40)) < 0.4
DEVICES = [("structured", degree, bias) for degree in (1, 2, 3.5) for bias in (0, 3)]
DEVICES += [("streamed", 2, 0), ("dense", 2, 3)]


def _device_features(projection, degree, bias):
    device = SimulatedOPU(16, projection=projection, random_state=SEED)
    return rk.OpticalFeatures(device, degree, bias).fit(BITS).transform(BITS[:N_ROWS])


FEATURES = _feature_cases()
DEVICE_NAMES = ["/".join(map(str, device)) for device in DEVICES]


@cache
def _record():
    return json.loads(RECORD.read_text(encoding="utf-8"))


def _assert_as_recorded(values, part, name):
    expected = np.array(_record()[part][name])
    assert np.isfinite(expected).all()
    atol = 1e-6 * np.abs(expected).max()
    np.testing.assert_allclose(
        np.ravel(values), expected, rtol=0, atol=atol, err_msg=name
    )


@pytest.mark.slow
@pytest.mark.parametrize("kernel", dict.fromkeys(n.split("/")[0] for n in FEATURES))
def test_features(kernel):
    for name, case in FEATURES.items():
        if name.split("/")[0] == kernel:
            _assert_as_recorded(_features(case), "features", name)


@pytest.mark.slow
def test_features_of_devices():
    for name, device in zip(DEVICE_NAMES, DEVICES, strict=True):
        _assert_as_recorded(_device_features(*device), "devices", name)


def test_the_record_is_of_these_cases():
    names = {part: list(cases) for part, cases in _record().items()}
    assert names == {"features": list(FEATURES), "devices": DEVICE_NAMES}


def test_every_kernel_is_here():
    public = {getattr(rk, name) for name in rk.__all__}
    kernels = {
        item
        for item in public
        if isinstance(item, type) and issubclass(item, rk.Kernel)
    } - {rk.Kernel, rk.Precomputed}  # which has no features
    parts = [
        part
        for kernel, *_ in FEATURES.values()
        for part in (kernel, *kernel.get_params(deep=True).values())
    ]
    assert kernels <= set(map(type, parts))


def write():
    """Write the record, one case a line."""
    parts = {
        "features": {n: _features(case) for n, case in FEATURES.items()},
        "devices": {
            name: _device_features(*device)
            for name, device in zip(DEVICE_NAMES, DEVICES, strict=True)
        },
    }
    text = []
    for part, cases in parts.items():
        lines = []
        for name, values in cases.items():
            numbers = ",".join(f"{number:.8g}" for number in np.ravel(values))
            lines.append(f"{json.dumps(name)}: [{numbers}]")
        text.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    RECORD.write_text("{\n" + ",\n".join(text) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
