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
from randkern import skeletons as sk
from randkern.optics import SimulatedOPU
from randkern.projections import PROJECTIONS

RECORD = Path(__file__).parent / "golden_features.json"
SEED = 20_240_607
TOLERANCE = 1e-6
N_ROWS = 3  # of which values are recorded


def _narrow():
    """Return 24 rows of three numbers and two columns of categories.

    All of them are multiples of 1/64, so that float32 holds them exactly.
    """
    rng = np.random.default_rng(SEED)
    numbers = np.rint(64 * rng.uniform(-1, 1, (24, 3))) / 64
    return np.hstack([numbers, rng.integers(3, size=(24, 2))])


def _wide():
    rng = np.random.default_rng(SEED + 1)
    return np.rint(16 * rng.uniform(-1, 1, (24, 70))) / 16


NARROW, WIDE = _narrow(), _wide()
ARD = np.array([0.75, 1.0, 2.0, 1.5, 4.0])
# What kernels take whose distribution is invariant under rotations.
ROTATED = tuple(PROJECTIONS)
INDEPENDENT = ("auto", "dense", "streamed", "qmc")  # products over coordinates

STATIONARY = {
    "gaussian": rk.Gaussian(1.5),
    "gaussian-ard": rk.Gaussian(ARD),
    "gaussian-scale": rk.Gaussian("scale"),
    "gaussian-median": rk.Gaussian("median"),
    "gaussian-columns": rk.Gaussian(0.5, columns=[2, 0]),
    "matern-0.5": rk.Matern(0.5, 2.0),
    "matern-1.5": rk.Matern(1.5, 1.5),
    "matern-2.5-scale": rk.Matern(2.5, "scale"),
    "matern-inf": rk.Matern(np.inf, ARD),
    "rational-quadratic": rk.RationalQuadratic(0.75, 1.5),
    "rational-quadratic-median": rk.RationalQuadratic(2.0, "median"),
    "scaled": 2.5 * rk.Gaussian(1.25),
    "laplacian": rk.Laplacian(6.0),
    "laplacian-ard": rk.Laplacian(4 * ARD),
    "laplacian-scale": rk.Laplacian("scale"),
    "laplacian-median": rk.Laplacian("median"),
    "cauchy": rk.Cauchy(1.5),
    "cauchy-ard": rk.Cauchy(ARD),
    "cauchy-scale": rk.Cauchy("scale"),
}
OPTICAL = {
    "optical-0.5": rk.Optical(0.5),
    "optical-1": rk.Optical(1),
    "optical-1-bias": rk.Optical(1, 1.5),
    "optical-2": rk.Optical(2),
    "optical-2-bias": rk.Optical(2, 0.5),
    "optical-3.5": rk.Optical(3.5),
    "optical-3.5-bias": rk.Optical(3.5, 1.0),
    "optical-4-columns": rk.Optical(4, columns=[0, 1]),
}


def _uniform(n, d, generator):
    return generator.uniform(-1, 1, size=(n, d))


OTHERS = {
    "polynomial-3": rk.Polynomial(3, 0.5),
    "arc-cosine-0": rk.ArcCosine(0),
    "arc-cosine-2": rk.ArcCosine(2),
    "softmax": rk.Softmax(2.0),
    "softmax-positive": rk.Softmax(2.0, features="positive"),
    "spectral-mixture": rk.SpectralMixture(
        [1.0, 0.5], [[0.25] * 5, [0.5, 0.0, -0.25, 0.0, 0.0]], [[0.125] * 5, [0.25] * 5]
    ),
    "periodic": rk.Periodic(3.0, 1.5),
    "spectral": rk.Spectral(_uniform),
    "coregionalization": rk.Coregionalization(
        [[1.0], [-0.5], [2.0]], [0.25, 0.0, 1.0], columns=[3]
    ),
}
NUMBERS, CODES = [0, 1, 2], [3, 4]
_COMPOSITIONAL = rk.Compositional(sk.fully_connected(3, depth=2), columns=NUMBERS)
COMBINED = {
    "sum": rk.Gaussian(1.5) + 0.5 * rk.Matern(1.5, 2.0),
    "sum-laplacian": 2.0 * rk.Gaussian(1.5) + rk.Laplacian(6.0),
    "sum-optical": rk.Optical(1, 1.0) + 0.25 * rk.Cauchy(1.5),
    "sum-linear": 0.5 * rk.Linear(columns=NUMBERS) + rk.Gaussian("scale"),
    "sum-categorical": rk.Gaussian(1.0, columns=NUMBERS)
    + rk.Categorical(columns=CODES),
    "sum-compositional": _COMPOSITIONAL + 3.0 * rk.Categorical(columns=CODES),
    "gaussian*laplacian": rk.Gaussian(1.5) * rk.Laplacian(8.0),
    "gaussian*matern": rk.Gaussian(1.5, columns=NUMBERS)
    * rk.Matern(1.5, columns=CODES),
    "gaussian*categorical": rk.Gaussian("scale", columns=NUMBERS)
    * rk.Categorical(columns=CODES),
    "gaussian*linear*optical": rk.Gaussian(columns=[0])
    * rk.Linear(columns=[1, 2])
    * rk.Optical(1, 1.0, columns=[3]),
    "linear*optical": rk.Linear() * rk.Optical(2, 0.5),
    "linear*linear": rk.Linear(columns=NUMBERS) * rk.Linear(columns=CODES),
    "compositional*gaussian": _COMPOSITIONAL * rk.Gaussian(1.5, columns=CODES),
    "(a+b)*c": (rk.Gaussian(2.0) + 0.5 * rk.Cauchy(2.0)) * rk.Matern(1.5, 2.0),
}
#: Kernels with one way of their own, whatever projection is asked for.
OWN_WAY = {
    "linear": rk.Linear(),
    "linear-columns": rk.Linear(columns=[1, 3, 4]),
    "categorical": rk.Categorical(columns=CODES),
    "categorical-unseen": rk.Categorical(
        columns=[3], categories=[np.array([0.0, 2.0])]
    ),
    "compositional": _COMPOSITIONAL,
    "compositional-sampled": rk.Compositional(
        sk.fully_connected(3, depth=2),
        deduplicate=False,
        constant="sampled",
        columns=NUMBERS,
    ),
}
WIDE_KERNELS = {
    "gaussian": rk.Gaussian("scale"),
    "gaussian-ard": rk.Gaussian(np.linspace(4.0, 8.0, 70)),
    "matern": rk.Matern(1.5, 8.0),
    "rational-quadratic": rk.RationalQuadratic(1.5, 8.0),
    "laplacian": rk.Laplacian("scale"),
    "cauchy": rk.Cauchy(8.0),
    "optical-1": rk.Optical(1),
    "optical-2-bias": rk.Optical(2, 1.0),
    "optical-3.5": rk.Optical(3.5),
    "gaussian*optical": rk.Gaussian(6.0) * rk.Optical(1),
    "linear": rk.Linear(),
}
BASES = {
    "binary": sk.binary,
    "circle": sk.circle,
    "gaussian": sk.gaussian(0.75),
    "gaussian-2": sk.gaussian(0.5, n=2),
    "categorical-2": sk.categorical(2),
    "categorical-3": sk.categorical(3),
    "linear": sk.linear,
    "sphere-pair": sk.sphere(3),
    "sphere-coordinate": sk.sphere(3, "coordinate"),
    "sphere-direction": sk.sphere(3, "direction"),
}
ACTIVATIONS = {
    "identity": "identity",
    "hermite2": "hermite2",
    "relu": "relu",
    "step": "step",
    "exponential": sk.Exponential(0.75),
    "erf": sk.Erf(1.0),
    "sine": sk.Sine(1.0),
    "cosine": sk.Cosine(0.75),
    "optical-1": sk.Optical(1),
    "optical-2.5": sk.Optical(2.5),
    "series": sk.PowerSeries([0.25, 0.25, 0.0, 0.5]),
}


def _admitted(kernel):
    """Return the projections that a kernel takes."""
    unrotated = (rk.Laplacian, rk.Cauchy, rk.Polynomial)
    free = not any(isinstance(leaf, unrotated) for leaf in kernel.leaves())
    return ROTATED if free else INDEPENDENT


def _on_base(name, rng):
    """Return rows of three inputs on a base space, which float32 holds exactly."""
    base = BASES[name]
    if name == "binary":
        return rng.choice([-1.0, 1.0], (8, 3))
    if name.startswith("categorical"):
        return rng.integers(base.n, size=(8, 3)).astype(float)
    if name.startswith("sphere"):
        directions = np.vstack([np.eye(3), -np.eye(3)])
        return directions[rng.integers(6, size=(8, 3))].reshape(8, -1)
    return np.rint(64 * rng.uniform(-1, 1, (8, 3 * base.width))) / 64


def _feature_cases():
    """Return {name: (kernel, rows, number of features, other arguments)}."""
    cases = {}
    for name, kernel in (STATIONARY | OPTICAL | OTHERS | COMBINED).items():
        for projection in _admitted(kernel):
            named = {"projection": projection}
            cases[f"narrow/{name}/{projection}"] = (kernel, NARROW, 13, named)
            if name in STATIONARY:
                options = named | {"fourier": "offset"}
                cases[f"offset/{name}/{projection}"] = (kernel, NARROW, 7, options)
            if name in OPTICAL:
                options = named | {"centered": True}
                cases[f"centered/{name}/{projection}"] = (kernel, NARROW, 7, options)
    for name, kernel in WIDE_KERNELS.items():
        for projection in _admitted(kernel):
            named = {"projection": projection}
            cases[f"wide/{name}/{projection}"] = (kernel, WIDE, 24, named)
    for projection in ("auto", "structured"):
        options = {"projection": projection, "centered": True}
        kernel = rk.Optical(2) + rk.Gaussian("scale")
        cases[f"centered/sum/{projection}"] = (kernel, NARROW, 13, options)
    for name, kernel in OWN_WAY.items():
        width = {"linear": 5, "linear-columns": 3}.get(name, 13)
        for projection in PROJECTIONS:
            named = {"projection": projection}
            cases[f"own/{name}/{projection}"] = (kernel, NARROW, width, named)
        options = {"fourier": "offset"}
        cases[f"offset/{name}/auto"] = (kernel, NARROW, min(width, 7), options)
    cases["own/linear/fewer"] = (rk.Linear(), NARROW, 3, {})
    # More draws than a block of a structured, or orthogonal, matrix has.
    for d, X in ((5, NARROW), (70, WIDE)):
        for projection in ("structured", "orthogonal", "qmc"):
            options = {"projection": projection}
            case = (rk.Gaussian("scale"), X, 300, options)
            cases[f"blocks/{d}/{projection}"] = case
    for name, (kernel, X) in _skeletons().items():
        cases[name] = (kernel, X, 13, {})
    return cases


def _skeletons():
    """Return {name: kernel and its rows} of base spaces, activations and images."""
    cases = {}
    for number, name in enumerate(BASES):
        X = _on_base(name, np.random.default_rng(number))
        for depth in (1, 2):
            skeleton = sk.fully_connected(3, depth, base=BASES[name])
            cases[f"base/{name}/{depth}"] = (rk.Compositional(skeleton), X)
    X = _on_base("circle", np.random.default_rng(99))
    for name, activation in ACTIVATIONS.items():
        skeleton = sk.fully_connected(3, 2, activation=activation)
        cases[f"activation/{name}"] = (rk.Compositional(skeleton), X)
    images = np.rint(64 * np.random.default_rng(98).uniform(-1.5, 1.5, (8, 72))) / 64
    layers = [sk.Conv(window=3, stride=1), sk.Pool(window=2), sk.Dense()]
    skeleton = sk.convolutional((6, 6, 2), layers=layers)
    cases["convolutional"] = (rk.Compositional(skeleton), images)
    return cases


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
    atol = TOLERANCE * np.abs(expected).max()
    np.testing.assert_allclose(
        np.ravel(values), expected, rtol=0, atol=atol, err_msg=name
    )


def _group(name):
    """Return the kernel of a case, of any projection, or its kind of skeleton."""
    return name.split("/")[name.count("/") // 2]


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted(set(map(_group, FEATURES))))
def test_features(group):
    for name, case in FEATURES.items():
        if _group(name) == group:
            _assert_as_recorded(_features(case), "features", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICE_NAMES)
def test_features_of_a_device(name):
    values = _device_features(*DEVICES[DEVICE_NAMES.index(name)])
    _assert_as_recorded(values, "devices", name)


def test_the_record_is_of_these_cases():
    names = {part: list(cases) for part, cases in _record().items()}
    assert names == {
        "features": list(FEATURES),
        "devices": DEVICE_NAMES,
    }
    assert RECORD.stat().st_size < 300_000


def test_every_kernel_is_here_with_every_projection_that_it_takes():
    public = [getattr(rk, name) for name in rk.__all__]
    kernels = {
        item
        for item in public
        if isinstance(item, type) and issubclass(item, rk.Kernel)
    } - {rk.Kernel, rk.Precomputed}  # which has no features
    result = {kernel: set() for kernel in kernels}
    for kernel, _, _, options in FEATURES.values():
        parts = [kernel, *kernel.get_params(deep=True).values()]
        for part in parts:
            if isinstance(part, rk.Kernel):
                result[type(part)].add(options.get("projection", "auto"))
    for kernel, projections in result.items():
        independent = kernel in (rk.Laplacian, rk.Cauchy, rk.Polynomial)
        assert projections == set(INDEPENDENT if independent else PROJECTIONS), kernel


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
