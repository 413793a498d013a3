"""Base spaces, dual activations, graphs and their exact kernels."""

import copy
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import randkern as rk
from _skeleton_cases import ACTIVATIONS, BASES, points, shapes, slow_kernel
from randkern import skeletons as sk
from randkern.skeletons import checks

EVERY_ACTIVATION = pytest.mark.parametrize("name", ACTIVATIONS)
EVERY_BASE = pytest.mark.parametrize("name", BASES)
RHO = np.array([-1.0, -0.9, -0.3, 0.0, 1e-9, 0.4, 0.8, 0.99, 1.0])


# -- dual activations ------------------------------------------------------------


FUNCTIONS = {
    "identity": lambda x: x,
    "hermite2": lambda x: x**2 - 1,
    "relu": lambda x: np.maximum(x, 0),
    "step": lambda x: np.heaviside(x, 0.5),
    "exponential": lambda x: np.exp(0.8 * x),
    "erf": lambda x: 2 * stats.norm.cdf(0.9 * math.sqrt(2) * x) - 1,
    "sine": lambda x: np.sin(1.1 * x),
    "cosine": lambda x: np.cos(0.7 * x),
    "tanh": np.tanh,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rho", [-0.6, 0.3, 0.9])
def test_dual_is_a_gaussian_expectation(name, rho):
    """σ̂(ρ) = E[σ(U)σ(V)]/E[σ(U)²], by two-dimensional quadrature."""
    f = FUNCTIONS[name]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(-9, 9, 37)
    x = (edges[:-1, None] + 0.25 * (nodes + 1)).ravel()
    w = np.tile(0.25 * weights, 36)
    density = w * stats.norm.pdf(x)
    # U = x, V = ρx + √(1 − ρ²)y: the inner integral is broken where V is 0.
    root = math.sqrt(1 - rho**2)
    total = 0.0
    for at, weight in zip(x, density, strict=True):
        if weight * (1 + abs(float(f(np.array(at))))) < 1e-14:
            continue
        v = rho * at + root * x
        if name in ("relu", "step"):
            kink = -rho * at / root
            y = np.concatenate([kink - 9 * (nodes + 1), kink + 9 * (nodes + 1)])
            inner = np.sum(
                np.tile(9 * weights, 2) * stats.norm.pdf(y) * f(rho * at + root * y)
            )
        else:
            inner = np.sum(density * f(v))
        total += weight * float(f(np.array(at))) * inner
    square = np.sum(density * f(x) ** 2)
    expected = float(ACTIVATIONS[name].dual(np.array([rho]))[0])
    assert total / square == pytest.approx(expected, abs=2e-6)


@EVERY_ACTIVATION
def test_series_closed_form_and_slope(name):
    """Σ aₗρˡ is the closed form, Σ l·aₗ its slope at 1; the aₗ are a distribution."""
    activation = ACTIVATIONS[name]
    distribution = activation.degree_distribution()
    coefficients = activation.coefficients(len(distribution.probabilities))
    assert coefficients.min() >= 0
    assert abs(coefficients.sum() + distribution.omitted - 1) < 1e-9
    series = np.polynomial.polynomial.polyval(RHO, coefficients)
    closed = np.asarray(activation.dual(RHO))
    assert np.all(np.abs(series - closed) <= distribution.omitted + 1e-12)
    assert closed[-1] == pytest.approx(1, abs=1e-12)
    slope = activation.derivative_at_one()
    if math.isfinite(slope):
        step = 1e-7
        near = float(activation.dual(np.array([1 - step]))[0])
        assert (1 - near) / step == pytest.approx(slope, rel=2e-3)
        tail = 5e-3 if distribution.omitted > 1e-12 else 1e-9
        assert distribution.mean == pytest.approx(slope, rel=tail)
    else:
        assert distribution.mean == pytest.approx(25.46, abs=0.01)


def test_relu_coefficients_and_tail():
    distribution = sk.ReLU().degree_distribution()
    expected = [1 / math.pi, 0.5, 1 / (2 * math.pi), 0, 1 / (24 * math.pi)]
    np.testing.assert_allclose(distribution.probabilities[:5], expected, rtol=1e-6)
    assert distribution.omitted == pytest.approx(
        math.sqrt(2) / 3 * (math.pi * 1e4) ** -1.5, rel=1e-3
    )
    assert sk.Step().degree_distribution().omitted == pytest.approx(2.5e-3, rel=0.03)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_parameters(dtype):
    """Limits, without overflow, cancellation or warnings."""
    rho = np.array([-1.0, -0.5, 0.0, 0.25, 1.0], dtype=dtype)
    tolerance = 4 * np.finfo(dtype).eps
    for a in (1e-15, 1e-6):
        for activation in (sk.Sine(a), sk.Erf(a)):
            checks.check_activation(activation)
            np.testing.assert_allclose(activation.dual(rho), rho, atol=tolerance)
            assert activation.coefficients(2)[1] == pytest.approx(1)
    large = [sk.Exponential(1e15), sk.Sine(1e15), sk.Cosine(1e15), sk.Erf(1e15)]
    for activation in large:
        checks.check_activation(activation)
        assert activation.dual(rho)[-1] == pytest.approx(1)
    np.testing.assert_array_equal(large[0].dual(rho), rho == 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("degree", [99.5, 100.5, 101, 2000, 2001.5, 20_000])
def test_large_optical_degrees(degree):
    """Coefficients by exact binomials; their mean is m/2, as of 1 − σ̂ at 1."""
    activation = sk.Optical(degree)
    checks.check_activation(activation)
    if degree == 2000:
        total = math.comb(2000, 1000)
        expected = [math.comb(1000, j) ** 2 / total for j in range(1001)]
        np.testing.assert_allclose(
            activation.coefficients(2002)[::2], expected, rtol=1e-10
        )
    step = 1e-3 / degree
    near = float(activation.dual(np.array([1 - step]))[0])
    assert (1 - near) / step == pytest.approx(degree / 2, rel=2e-3)


def test_optical_dual_is_the_optical_kernel():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for degree in (0.5, 1, 2, 3, 4.4):
        kernel = rk.Optical(degree)(X)
        dual = sk.Optical(degree).dual(X @ X.T)
        np.testing.assert_allclose(dual, kernel / kernel[0, 0], rtol=1e-10)


def test_series_of_a_function():
    """The Hermite series of a known function; the constant of a shifted one."""
    relu = sk.from_function(lambda x: np.maximum(x, 0), max_degree=300, name="mine")
    np.testing.assert_allclose(
        relu.coefficients(20), sk.ReLU().coefficients(20), atol=1e-4
    )
    exponential = sk.from_function(lambda x: np.exp(0.8 * x))
    np.testing.assert_allclose(
        exponential.coefficients(30), sk.Exponential(0.8).coefficients(30), atol=1e-12
    )
    assert "mine" in repr(relu)
    overwriting = sk.from_function(lambda x: np.exp(0.8 * x, out=x))
    assert overwriting.values == exponential.values


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.where(x > 0.123, 1.0, 0.0), "degrees above|two quadratures"),
        (lambda x: np.full_like(x, np.nan), "finite numbers"),
        (lambda x: 0 * x, "must be positive"),
        (lambda x: 1.0, "of the shape of its argument"),
        (math.tanh, "tanh cannot be applied to an array.*np.tanh"),
        (
            lambda x: 1j * x,
            "lambda> must return real numbers, got values of type complex",
        ),
        ("relu", "must be a function of an array.*'relu'"),
    ],
)
def test_bad_functions(function, message):
    with pytest.raises(ValueError, match=message):
        sk.from_function(function)


class Halved(sk.Activation):
    """Not normalised."""

    def dual(self, rho):
        return 0.5 * rho

    def derivative_at_one(self):
        return 0.5

    def coefficients(self, n):
        return np.eye(1, n, 1)[0] / 2


class Mismatched(Halved):
    """A series that is not that of the closed form."""

    def dual(self, rho):
        return rho**2

    def coefficients(self, n):
        return np.eye(1, n, 1)[0]


class Negative(Mismatched):
    """A negative coefficient."""

    def coefficients(self, n):
        return 2 * np.eye(1, n, 2)[0] - np.eye(1, n, 1)[0]


@dataclass
class Square(sk.Activation):
    """ρ², right or wrong in one place; a dataclass that can be changed has no hash."""

    slope: float = 2.0
    share: float = 1.0
    unknown: bool = False

    def dual(self, rho):
        if self.unknown:
            return np.full_like(rho, np.nan)
        return np.where(rho == 1, 1.0, self.share * rho**2)

    def derivative_at_one(self):
        return self.slope

    def coefficients(self, n):
        return self.share * np.eye(1, n, 2)[0]


def test_an_activation_of_ones_own():
    nodes = [circle(0), Square(), Square(), "identity"]
    skeleton = sk.Skeleton(nodes, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert len(skeleton.graph.activations) == 2
    X = np.array([[0.0], [0.4]])
    np.testing.assert_allclose(skeleton.kernel(X), np.cos(X - X.T) ** 2)
    assert sk.fully_connected(2, activation=Square()).complexity() == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: checks.check_activation(Square(unknown=True)), "value at 1 is nan"),
        (
            lambda: checks.check_activation(Square(77.0)),
            "77, but the mean .* is 2",
        ),
        (lambda: checks.check_activation(Square(1.0)), "imply at least 2"),
        (lambda: checks.check_activation(Square(share=0.5)), "sum to 0.5, imply"),
        (lambda: sk.fully_connected(2, activation=Mismatched()), "closed form"),
        (lambda: sk.fully_connected(2, activation=Negative()), "must be at least 0"),
        (lambda: sk.PowerSeries([0.5, 0.6]), "got the sum 1.1"),
        (lambda: sk.PowerSeries([1.5, -0.5]), "at least 0, got -0.5 for degree 1"),
        (lambda: sk.Exponential(0), "a must be a positive"),
        (lambda: sk.Optical(1e6), "degree must be at most 100,000"),
        (
            lambda: sk.Exponential(1e200),
            "a must be between 1e-15 and 1e.15, got 1e.200",
        ),
        (lambda: sk.fully_connected(2, activation="gelu"), "must be one of"),
    ],
)
def test_bad_activations(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- graphs ------------------------------------------------------------------------


def circle(j):
    return sk.Input("circle", j)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ([circle(0), "relu", "relu"], [(0, 1), (1, 2), (2, 1)], "cycle.*1, 2"),
        ([circle(0), "relu", "relu"], [(0, 1), (0, 2)], r"single output.*\[1, 2\]"),
        ([circle(0), circle(1), "relu"], [(0, 2)], "input 1 has no outgoing edges"),
        ([circle(0), "relu"], [], "internal node 1 has no incoming edges"),
        ([circle(0), circle(1), "relu"], [(0, 2), (2, 1)], "ends at an input"),
        ([circle(0), "relu"], [(0, 1), (0, 1)], "duplicate edge"),
        ([circle(0), "relu"], [(0, 3)], "refers to 3"),
        ([circle(0), "relu"], [(0, 1, 2)], "a pair"),
        (["relu"], [], "needs at least one input"),
    ],
)
def test_bad_graphs(nodes, edges, message):
    with pytest.raises(ValueError, match=message):
        sk.Skeleton(nodes, edges)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sk.Input("torus", 0), "base space must be one of"),
        (lambda: sk.Input("circle", [0, 1]), "reads 1 different"),
        (lambda: sk.Input("circle", -1), "non-negative integers"),
        (lambda: sk.sphere(1), "at least 2"),
        (lambda: sk.categorical(1), "at least 2"),
        (lambda: sk.gaussian(0), "scale must be"),
        (lambda: sk.fully_connected(0), "n_inputs must be"),
        (
            lambda: sk.fully_connected(3, depth=2, activation=["relu"]),
            "a list of 2, one per layer",
        ),
        (lambda: sk.convolutional((4, 4), [sk.Conv(2)]), "add Dense"),
        (lambda: sk.convolutional((1, 1), []), "at least one Conv.*got \\[\\]"),
        (lambda: sk.convolutional((4, 4), sk.Dense()), "must be a list.*got Dense"),
        (lambda: sk.convolutional((4, 4), [sk.Conv(5), sk.Dense()]), "does not fit"),
        (lambda: sk.convolutional((0, 4), [sk.Dense()]), "image_shape must be"),
        (lambda: sk.convolutional((4, 4), ["relu"]), "a Conv, Pool or Dense"),
        (lambda: sk.Conv(0), "window must be"),
        (
            lambda: sk.convolutional((4, 4), [sk.Conv(2, padding=2), sk.Dense()]),
            "smaller than its window",
        ),
        (
            lambda: sk.convolutional((4, 4, 2), [sk.Dense()], base=sk.sphere(3)),
            "a pixel has 2 channels",
        ),
        (
            lambda: sk.Skeleton([circle(3), "relu"], [(0, 1)], n_features=2),
            "reads column 3",
        ),
        (
            lambda: sk.Skeleton([circle(3), "relu"], [(0, 1)], n_features=4.7),
            "n_features must be",
        ),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_names_order_and_depth():
    nodes = {
        "out": "relu",
        "left": "erf",
        "right": sk.Exponential(0.5),
        "x": circle(0),
        "y": circle(1),
    }
    edges = [("left", "out"), ("x", "out"), ("x", "left"), ("right", "left")]
    skeleton = sk.Skeleton(nodes, [*edges, ("y", "right")])
    assert skeleton.depth == 3
    assert skeleton.names[:2] == ("x", "y")
    assert skeleton.names[2:] == ("right", "left", "out")
    assert set(skeleton.edges) == {*edges, ("y", "right")}
    assert "Exponential(a=0.5)" in repr(skeleton)
    # C(out) = 1·(C(left) + 1)/2, C(left) = σ̂'(1)·(1 + a²)/2.
    left = sk.Erf().derivative_at_one() * (1 + 0.25) / 2
    assert skeleton.complexity() == pytest.approx((left + 1) / 2)


def test_one_input_is_a_skeleton():
    skeleton = sk.Skeleton([sk.Input("circle", 0)], [])
    assert skeleton.depth == 0
    X = np.array([[0.0], [0.5], [2.0]])
    np.testing.assert_allclose(skeleton.kernel(X), np.cos(X - X.T), atol=1e-15)
    features = rk.RandomFeatures(rk.Compositional(skeleton), 4, random_state=0)
    Z = features.fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, np.cos(X - X.T), atol=1e-14)


def test_complexity_of_known_skeletons():
    for depth in (1, 2, 7):
        assert sk.fully_connected(9, depth).complexity() == 1
        deep = sk.fully_connected(9, depth, sk.Exponential(1.5))
        assert deep.complexity() == pytest.approx(1.5 ** (2 * depth))
    step = sk.fully_connected(9, 2, "step")
    assert step.complexity() == pytest.approx(25.4615**2, rel=1e-4)
    assert step.complexity(truncated=True) == step.complexity()
    assert sk.convolutional((24, 24, 3)).complexity() == 1


@pytest.mark.parametrize(
    ("depth", "expected"), [(1, 0.318), (2, 0.494), (3, 0.605), (4, 0.681), (5, 0.736)]
)
def test_probability_of_the_constant_feature(depth, expected):
    share = sk.fully_connected(5, depth).constant_probability()
    assert share == pytest.approx(expected, abs=5e-4)


def test_it_cannot_be_changed_and_copies_are_equal():
    skeletons = [
        sk.fully_connected(4, 2, ["relu", sk.Exponential(0.5)], sk.gaussian(0.3)),
        sk.convolutional((3, 3), [sk.Conv(2), sk.Pool(2), sk.Dense("step")]),
        sk.Skeleton([circle(0), circle(1), "erf"], [(0, 2), (1, 2)], n_features=4),
    ]
    X = np.random.default_rng(0).normal(size=(5, 9))
    for skeleton in skeletons:
        with pytest.raises(AttributeError, match="cannot be changed"):
            skeleton.depth = 3
        with pytest.raises(AttributeError, match="cannot be changed"):
            del skeleton.graph
        with pytest.raises(ValueError, match="read-only"):
            skeleton.graph.sources[0] = 1
        assert copy.deepcopy(skeleton) is skeleton
        names = {name: getattr(sk, name) for name in sk.__all__} | {"skeletons": sk}
        for copied in (
            pickle.loads(pickle.dumps(skeleton)),
            eval(repr(skeleton), names),
        ):
            rows = X[:, : skeleton.n_features]
            assert copied.n_features == skeleton.n_features
            np.testing.assert_array_equal(copied.kernel(rows), skeleton.kernel(rows))
    large = sk.convolutional((224, 224, 3), [sk.Conv(7, 4), sk.Conv(5, 3), sk.Dense()])
    assert len(pickle.dumps(large)) < 1_000


def test_truncated_and_strided_skeletons_are_copied():
    """Strides pass over inputs and nodes; a truncation is kept as what it is of."""
    strided = sk.convolutional((7, 8), [sk.Conv(2), sk.Conv(2, 3), sk.Dense()])
    step = sk.Skeleton([circle(0), circle(2), "step"], [(0, 2), (1, 2)], n_features=3)
    default = sk.convolutional((24, 24, 3))
    assert default.n_features == 1728
    assert default.graph.n_inputs == 21 * 21 * 3
    rng = np.random.default_rng(12)
    names = {name: getattr(sk, name) for name in sk.__all__} | {"skeletons": sk}
    for skeleton in (strided, step, default):
        X = rng.normal(size=(3, skeleton.n_features))
        again = sk.Skeleton(
            skeleton.nodes, skeleton.edges, n_features=skeleton.n_features
        )
        np.testing.assert_allclose(again.kernel(X), skeleton.kernel(X), atol=1e-13)
        cut = skeleton.truncated()
        assert cut.truncated() is cut
        for copied in (pickle.loads(pickle.dumps(cut)), eval(repr(cut), names)):
            assert copied.n_features == skeleton.n_features
            np.testing.assert_array_equal(copied.kernel(X), cut.kernel(X))
    # By hand: the second layer reads nodes 0, 1, 3, 4 of the first, in both directions.
    read = np.isin(np.arange(8), (0, 1, 2, 3, 4, 5))
    expected = np.flatnonzero(np.outer(read[:7], read))
    np.testing.assert_array_equal(strided.graph.columns, expected)


def test_repr_of_a_large_free_graph():
    nodes = [circle(j) for j in range(20)] + ["relu"]
    shown = repr(sk.Skeleton(nodes, [(j, 20) for j in range(20)]))
    assert "20 inputs on circle" in shown
    assert "depth 1" in shown


@pytest.mark.nightly
def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = sk.convolutional((24, 24, 3)).plot(max_nodes=20)
    texts = " ".join(text.get_text() for text in axes.texts)
    assert "1323 inputs" in texts
    assert "ReLU()" in texts
    assert sk.fully_connected(3).plot(ax=axes) is axes
    nodes = {"age": circle(0), "height": circle(1), "body": "relu"}
    named = sk.Skeleton(nodes, [("age", "body"), ("height", "body")])
    labels = [text.get_text() for text in named.plot().texts]
    assert {"age", "height", "body"} <= set(labels)
    assert not any(
        text.get_text() == "0" for text in sk.fully_connected(3).plot().texts
    )
    matplotlib.pyplot.close("all")


# -- exact kernels -----------------------------------------------------------------


def test_relu_is_the_arc_cosine_kernel_composed_with_itself():
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, (40, 7))
    X[1] = X[0]

    def arc_cosine(c):
        angle = np.arccos(np.clip(c, -1, 1))
        return (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi

    unit = np.hstack([np.cos(X), np.sin(X)]) / math.sqrt(7)
    for depth in (1, 2, 3, 5):
        expected = unit @ unit.T
        for _ in range(depth):
            expected = arc_cosine(expected)
        kernel = sk.fully_connected(7, depth).kernel(X)
        np.testing.assert_allclose(kernel, expected, atol=1e-12)


@pytest.mark.parametrize("a", [0.5, 1.0, 3.0])
def test_exponential_is_gaussian_of_the_embedded_points(a):
    X = np.random.default_rng(2).uniform(-3, 3, (30, 6))
    embedded = np.hstack([np.cos(X), np.sin(X)])
    gaussian = rk.Gaussian(math.sqrt(6) / a)(embedded)
    kernel = sk.fully_connected(6, 1, sk.Exponential(a)).kernel(X)
    np.testing.assert_allclose(kernel, gaussian, atol=1e-13)


@pytest.mark.nightly
@EVERY_BASE
@pytest.mark.parametrize("activation", ["relu", "erf", "optical-2.5"])
def test_slow_recursion(name, activation):
    base = BASES[name]
    rng = np.random.default_rng(5)
    X, Y = points(base, 4, 9, rng), points(base, 3, 9, rng)
    for skeleton in shapes(ACTIVATIONS[activation], base).values():
        expected = [[slow_kernel(skeleton, x, y) for y in Y] for x in X]
        np.testing.assert_allclose(skeleton.kernel(X, Y), expected, atol=1e-12)
        kernel = rk.Compositional(skeleton)
        np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)), atol=1e-12)


def direct_convolution(image, other):
    """Return the kernel of layers with padding, pooling and channels, by loops."""
    relu, erf = sk.ReLU().dual, sk.Erf(0.8).dual
    base = np.cos(image - other)
    height, width = base.shape[:2]
    first = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            near = [
                base[p, q].mean()
                for p in range(i - 1, i + 2)
                for q in range(j - 1, j + 2)
                if 0 <= p < height and 0 <= q < width
            ]
            first[i, j] = relu(np.array([np.mean(near)]))[0]
    pooled = np.array(
        [
            [first[i : i + 2, j : j + 2].mean() for j in range(0, width - 1, 2)]
            for i in range(0, height - 1, 2)
        ]
    )
    second = np.array(
        [
            [erf(np.array([pooled[i : i + 2, j : j + 3].mean()]))[0] for j in (0,)]
            for i in range(pooled.shape[0] - 1)
        ]
    )
    return relu(np.array([second.mean()]))[0]


def test_convolutions_by_loops():
    rng = np.random.default_rng(8)
    layers = [
        sk.Conv(3, padding="same"),
        sk.Pool(2),
        sk.Conv((2, 3), activation=sk.Erf(0.8)),
        sk.Dense(),
    ]
    skeleton = sk.convolutional((7, 6, 2), layers)
    X = rng.uniform(-1.5, 1.5, (5, 7 * 6 * 2))
    images = X.reshape(5, 7, 6, 2)
    expected = [[direct_convolution(x, y) for y in images] for x in images]
    np.testing.assert_allclose(skeleton.kernel(X), expected, atol=1e-13)


def test_free_graph_with_shared_nodes_and_mixed_bases():
    rng = np.random.default_rng(9)
    nodes = {
        "c": sk.Input("circle", 0),
        "again": sk.Input("circle", 0),
        "g": sk.Input(sk.gaussian(0.4, 2), [1, 3]),
        "k": sk.Input(sk.categorical(3), 2),
        "shared": "relu",
        "left": sk.Exponential(1.0),
        "right": "hermite2",
        "out": sk.PowerSeries([0.1, 0.5, 0.4]),
    }
    edges = [
        *(("c", "shared"), ("g", "shared"), ("shared", "left"), ("k", "left")),
        *(("shared", "right"), ("again", "right"), ("left", "out"), ("right", "out")),
    ]
    skeleton = sk.Skeleton(nodes, [*edges, ("k", "out")])
    X = rng.normal(size=(6, 4))
    X[:, 2] = rng.integers(3, size=6)
    expected = [[slow_kernel(skeleton, x, y) for y in X] for x in X]
    np.testing.assert_allclose(skeleton.kernel(X), expected, atol=1e-13)
    assert skeleton.columns_of_numbers() == [0, 1, 3]


@pytest.mark.slow
def test_relu_to_the_last_digits():
    """Against fifty digits, near ±1, 0 and where its two forms of arccos meet."""
    mpmath = pytest.importorskip("mpmath")
    steps = np.logspace(-17, 0, 60)
    rho = np.concatenate([RHO, 1 - steps, steps - 1, 0.5 + steps / 2, [0.5, -0.5]])

    def exact(x):
        x = mpmath.mpf(float(x))
        return (mpmath.sqrt(1 - x**2) + (mpmath.pi - mpmath.acos(x)) * x) / mpmath.pi

    with mpmath.workdps(50):
        expected = np.array([float(exact(x)) for x in rho])
    np.testing.assert_allclose(sk.ReLU().dual(rho), expected, rtol=0, atol=4e-16)
    single = sk.ReLU().dual(rho.astype(np.float32))
    assert single.dtype == np.float32
    rounded = np.array([float(exact(x)) for x in rho.astype(np.float32)])
    np.testing.assert_allclose(single, rounded, rtol=0, atol=6e-8)
    beyond = sk.ReLU().dual(np.array([1.1, -np.inf, np.nan]))
    np.testing.assert_array_equal(beyond, [1, 0, np.nan])


@pytest.mark.parametrize("n_rows", [1, 127, 128, 129, 300])
def test_tiles_join(n_rows):
    X = np.random.default_rng(3).uniform(-1, 1, (n_rows, 16))
    kernel = rk.Compositional(sk.convolutional((4, 4), [sk.Conv(3), sk.Dense()]))
    gram = kernel(X)
    np.testing.assert_allclose(gram, gram.T, atol=1e-15)
    np.testing.assert_allclose(np.diag(gram), 1, atol=1e-14)
    np.testing.assert_allclose(kernel(X, X[-3:]), gram[:, -3:], atol=1e-14)


@pytest.mark.parametrize(
    ("base", "row", "message"),
    [
        ("binary", [1.0, 0.5], "1 or -1, got .0.5"),
        (sk.categorical(3), [0.0, 1.5], "a code from 0 to 3, got .1.5"),
        ("linear", [0.2, 1.1], "from -1 to 1"),
    ],
)
def test_points_outside_their_space(base, row, message):
    skeleton = sk.fully_connected(2, base=base)
    with pytest.raises(ValueError, match=message):
        skeleton.kernel([row])
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(rk.Compositional(skeleton), 10).fit([row])


def test_vectors_off_the_sphere():
    skeleton = sk.fully_connected(1, base=sk.sphere(3))
    with pytest.raises(ValueError, match="norm 1.*Normalizer"):
        skeleton.kernel([[1.0, 0.5, 0.0]])
    assert skeleton.kernel(np.eye(3, dtype=np.float32))[0, 0] == 1


def test_rows_of_another_width():
    skeleton = sk.fully_connected(3)
    with pytest.raises(ValueError, match="expects rows with 3 columns, got 4"):
        skeleton.kernel(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="NaN"):
        skeleton.kernel([[np.nan, 0, 0]])
    with pytest.raises(ValueError, match="infinity"):
        skeleton.kernel([[np.inf, 0, 0]])


@pytest.mark.nightly
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from(sorted(ACTIVATIONS)), min_size=1, max_size=3),
    st.integers(0, 10**6),
)
def test_random_graphs(n_inputs, activations, seed):
    """Any layered graph: the slow recursion, and a diagonal of ones."""
    rng = np.random.default_rng(seed)
    nodes = [sk.Input("circle", j) for j in range(n_inputs)]
    edges = []
    for name in activations:
        here = len(nodes)
        below = rng.choice(here, size=rng.integers(1, here + 1), replace=False)
        edges += [(int(u), here) for u in below]
        nodes.append(ACTIVATIONS[name])
    loose = set(range(len(nodes))) - {u for u, _ in edges}
    edges += [(u, len(nodes)) for u in loose]
    skeleton = sk.Skeleton([*nodes, "identity"], edges)
    X = rng.uniform(-4, 4, (3, n_inputs))
    expected = [[slow_kernel(skeleton, x, y) for y in X] for x in X]
    np.testing.assert_allclose(skeleton.kernel(X), expected, atol=1e-11)
    np.testing.assert_allclose(np.diag(skeleton.kernel(X)), 1, atol=1e-11)
