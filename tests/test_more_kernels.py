"""Kernels beside the stationary and the optical ones: closed forms and gradients."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special
from sklearn.gaussian_process.kernels import ExpSineSquared
from sklearn.metrics.pairwise import polynomial_kernel

import randkern as rk
from _cases import redraw
from randkern._random import Stream
from randkern.kernels.base import mean_diagonals
from randkern.kernels.draw import draw_plan
from randkern.kernels.factor_draws import DrawSlopes
from randkern.kernels.hyperparameters import (
    Hyperparameters,
    add_feature_gradient,
    add_gram_gradient,
    with_kernel,
)
from randkern.plan import evaluate

RNG = np.random.default_rng(5)
X = 0.7 * RNG.normal(size=(6, 3))
Y = 0.7 * RNG.normal(size=(5, 3))
MIXTURE = rk.SpectralMixture(
    [1.0, 0.5], [[0.1, 0.2, 0.0], [0.3, -0.1, 0.2]], [[0.1, 0.2, 0.1], [0.05, 0.1, 0.2]]
)


def uniform(n, d, generator):
    return generator.uniform(-1, 1, size=(n, d))


def one_sided(columns):
    """A kernel whose frequencies are positive, on one column."""

    def sampler(n, d, generator):
        return generator.uniform(0, 2, size=(n, d))

    def value(differences):
        return np.sinc(2 * differences[..., 0] / np.pi)

    return rk.Spectral(sampler, value, columns=columns)


# -- exact values -------------------------------------------------------------


@pytest.mark.parametrize(("degree", "bias"), [(1, 0.0), (2, 1.5), (3, 0.2), (7, 1.0)])
def test_polynomial_is_that_of_scikit_learn(degree, bias):
    expected = polynomial_kernel(X, Y, degree=degree, gamma=1.0, coef0=bias)
    np.testing.assert_allclose(rk.Polynomial(degree, bias)(X, Y), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_its_integral(order):
    """2∫ max(0, w·x)ⁿ max(0, w·y)ⁿ over the plane of x and y, by quadrature."""
    kernel = rk.ArcCosine(order)
    for angle in (0.0, 0.3, 1.5, 2.9):
        # The radial integral is that of r^{2n+1} e^{−r²/2}.
        radial = 2**order * math.factorial(order) / (2 * math.pi)

        def ray(t, angle=angle):
            return (math.cos(t) * math.cos(t - angle)) ** order

        share = integrate.quad(ray, angle - math.pi / 2, math.pi / 2)[0]
        rows = [[2.0, 0.0], [3 * math.cos(angle), 3 * math.sin(angle)]]
        value = kernel(rows)[0, 1]
        assert value == pytest.approx(2 * radial * 6**order * share, rel=1e-7)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_of_parallel_rows(order):
    """k(x, cx) = cⁿ k(x, x), although the cosine of the two is rounded."""
    kernel = rk.ArcCosine(order)
    for c in (0.1, 1.0, 3.0, 7.0):
        expected = c**order * kernel.diag(X)
        np.testing.assert_allclose(np.diag(kernel(X, c * X)), expected, rtol=1e-14)


def test_arc_cosine_of_nothing():
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    for order in (0, 1, 2):
        kernel = rk.ArcCosine(order)
        assert not kernel(rows)[0].any() and kernel(rows)[1, 2] == pytest.approx(0)
        np.testing.assert_allclose(np.diag(kernel(rows)), kernel.diag(rows), rtol=1e-14)
        assert not rk.RandomFeatures(kernel, 7).fit_transform(rows)[0].any()


def test_softmax_is_that_of_attention():
    d = X.shape[1]
    weights = special.softmax(X @ Y.T / math.sqrt(d), axis=1)
    values = rk.Softmax(scale=d**0.25)(X, Y)
    np.testing.assert_allclose(
        values / values.sum(axis=1, keepdims=True), weights, rtol=1e-12
    )


def test_mixture_is_the_transform_of_its_density():
    kernel = rk.SpectralMixture([1.0, 0.5], [[0.4], [1.5]], [[0.2], [0.3]])

    def density(f):
        parts = zip((1.0, 0.5), (0.4, 1.5), (0.2, 0.3), strict=True)
        return sum(
            w * math.exp(-0.5 * ((f - m) / s) ** 2) / (s * math.sqrt(2 * math.pi))
            for w, m, s in parts
        )

    for tau in (0.0, 0.3, 1.1):
        expected = integrate.quad(
            lambda f, tau=tau: density(f) * math.cos(2 * math.pi * f * tau), -4, 6
        )[0]
        assert kernel([[0.0]], [[tau]])[0, 0] == pytest.approx(expected, rel=1e-8)


def test_periodic_is_that_of_scikit_learn():
    for column in range(3):
        ours = rk.Periodic(1.7, 0.8, columns=[column])(X, Y)
        theirs = ExpSineSquared(0.8, 1.7)(X[:, [column]], Y[:, [column]])
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    product = math.prod(
        rk.Periodic(1.7, 0.8, columns=[column])(X, Y) for column in range(3)
    )
    np.testing.assert_allclose(rk.Periodic(1.7, 0.8)(X, Y), product, rtol=1e-12)


def test_sampled_kernel_without_value_is_estimated():
    with_value = rk.Spectral(uniform, lambda T: np.sinc(T / np.pi).prod(axis=-1))
    # Six standard deviations of a mean of 65,536 cosines.
    gap = abs(rk.Spectral(uniform)(X, Y) - with_value(X, Y)).max()
    assert 0 < gap < 6 * math.sqrt(0.5 / 2**16)


# -- features -----------------------------------------------------------------

UNBIASED = {
    "polynomial-3": rk.Polynomial(3, 0.5),
    "arc-cosine-1": rk.ArcCosine(1),
    "arc-cosine-2": rk.ArcCosine(2),
    "softmax-positive": rk.Softmax(2.0, features="positive"),
    "product": rk.Polynomial(2, 1.0) * rk.Gaussian() * rk.ArcCosine(1),
    "mixture*softmax": MIXTURE * rk.Softmax(3.0),
    "sampled*sampled": one_sided([0]) * one_sided([1]),
    "sampled*mixture": one_sided([2]) * MIXTURE,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNBIASED)
def test_features_are_unbiased(name):
    """One map of many independent draws: 7 standard errors by the closed form."""
    kernel, D = UNBIASED[name], 200_001
    Z = rk.RandomFeatures(kernel, D, projection="dense", random_state=0)
    Z = Z.fit_transform(X)
    error = abs(Z @ Z.T - kernel(X))
    bound = 7 * np.sqrt(kernel.feature_variance(X, n_components=D)) + 1e-12
    assert np.all(error < bound)
    # The bound sees an error of a few percent.
    assert np.median(bound / abs(kernel(X)).max()) < 0.06


def test_pairs_of_opposite_draws_vary_less():
    kernels = [rk.Softmax(1.5, features=name) for name in ("hyperbolic", "positive")]
    hyperbolic, positive = (k.feature_variance(X, n_components=100) for k in kernels)
    assert np.all(hyperbolic < positive + 1e-15)
    one, other = (k.feature_variance(X, n_components=1) for k in kernels)
    np.testing.assert_allclose(one, other, rtol=1e-12)
    Z = rk.RandomFeatures(rk.Softmax(1.5), 21, random_state=0).fit_transform(X)
    assert np.all(Z > 0)
    # e^{w·x} and e^{−w·x} side by side: their product does not depend on w.
    products = Z[:, :20:2] * Z[:, 1:20:2]
    np.testing.assert_allclose(products, products[:, :1] + 0 * products, rtol=1e-12)


def test_variances_are_those_over_all_draws():
    rows = X[:, :2]
    # A line through the origin at every angle: squares of its cosine, of period π.
    angles = np.pi * np.arange(12) / 12
    along = rows @ np.stack([np.cos(angles), np.sin(angles)])
    products = 2 * along[:, None] * along
    variance = rk.Linear().feature_variance(rows, n_components=1)
    np.testing.assert_allclose(products.var(axis=2), variance, rtol=1e-12)
    # Two factors (±1 ± i)/√2, of two columns and the bias; a phase of any angle.
    signs = np.array(list(itertools.product([1, -1], repeat=6))).T
    entries = (signs[:3] + 1j * signs[3:]) / np.sqrt(2)
    factors = np.column_stack([rows, np.full(len(rows), 0.5**0.5)]) @ entries
    once = factors[:, None] * factors.conj()
    twice = (once[..., None] * once[..., None, :]).reshape(*once.shape[:2], -1)
    kernel = rk.Polynomial(2, 0.5)
    pair = twice.real.var(axis=2)
    offset = pair + 0.5 * (abs(twice) ** 2).mean(axis=2)
    for n_components, expected in ((2, pair), (1, offset)):
        found = kernel.feature_variance(rows, n_components=n_components)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [rk.Softmax(1.5), rk.Matern() * rk.Gaussian(), rk.Optical(2, 1.0), rk.Periodic()],
    ids=str,
)
def test_variance_of_an_odd_number_is_that_of_pairs_and_one(kernel):
    one, two, five = (kernel.feature_variance(X, n_components=n) for n in (1, 2, 5))
    np.testing.assert_allclose(five, (8 * two + one) / 25, rtol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("n_components", [2, 5])
def test_variance_of_opposite_draws(n_components):
    """The mean of 8,000 maps, and their variance, within 6 of its standard errors."""
    kernel, n_maps = rk.Softmax(5.0), 8_000
    diagonals = np.ones(1)
    estimates = np.empty((n_maps, 3))
    plan = draw_plan(kernel, n_components, 3, diagonals, Stream(0), projection="dense")
    for seed in range(n_maps):
        Z = evaluate(redraw(plan, seed), X[:2])
        estimates[seed] = (Z @ Z.T)[[0, 0, 1], [0, 1, 1]]
    exact = kernel(X[:2])[[0, 0, 1], [0, 1, 1]]
    closed = kernel.feature_variance(X[:2], n_components=n_components)
    closed = closed[[0, 0, 1], [0, 1, 1]]
    squares = (estimates - exact) ** 2
    assert np.all(abs(estimates.mean(axis=0) - exact) < 6 * np.sqrt(closed / n_maps))
    error = squares.std(axis=0) / math.sqrt(n_maps)
    assert np.all(abs(squares.mean(axis=0) - closed) < 6 * error)
    assert np.all(error < 0.1 * closed)


def test_periodic_features_are_periodic():
    features = rk.RandomFeatures(rk.Periodic(1.7, 0.5), 51, random_state=0).fit(X)
    np.testing.assert_allclose(
        features.transform(X + 1.7), features.transform(X), atol=1e-12
    )


# -- learning -----------------------------------------------------------------

LEARNABLE = {
    "mixture": MIXTURE,
    "periodic": rk.Periodic(2.0, 1.2),
    "periodic*gaussian": rk.Periodic(2.0, 0.9) * rk.Gaussian(2.0) + 0.5 * MIXTURE,
    "sampled*periodic": rk.Spectral(uniform) * rk.Periodic(3.0),
    "mixture*mixture": MIXTURE
    * rk.SpectralMixture([1.0], [[0.3, 0.1, 0.2]], [[0.2, 0.1, 0.1]]),
}


def numerical(value, theta):
    steps = 1e-6 * np.eye(len(theta))
    return np.array([(value(theta + e) - value(theta - e)) / 2e-6 for e in steps])


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNABLE)
def test_gradient_of_exact_values(name):
    hyper = Hyperparameters(LEARNABLE[name])
    M, out = RNG.normal(size=(6, 5)), np.zeros(hyper.size)
    add_gram_gradient(hyper, X, Y, M, out)
    expected = numerical(
        lambda theta: (hyper.at(theta).kernel(X, Y) * M).sum(), hyper.theta
    )
    # θ of a mean of 0 is a bound, not a logarithm: it stays.
    np.testing.assert_allclose(out, expected, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_components", "fourier"),
    list(itertools.product(LEARNABLE, (40, 41), ("pair", "offset"))),
)
def test_gradient_of_features(name, n_components, fourier):
    hyper = Hyperparameters(LEARNABLE[name])
    diagonals = mean_diagonals(hyper.kernel.terms(), X, None)
    plan = draw_plan(
        hyper.kernel,
        n_components,
        3,
        diagonals,
        Stream(1),
        projection="dense",
        fourier=fourier,
    )
    Z = evaluate(plan, X)
    G, out = RNG.normal(size=Z.shape), np.zeros(hyper.size)
    add_feature_gradient(hyper, plan, X, Z, G, out)

    def value(theta):
        moved = with_kernel(plan, hyper.kernel, hyper.at(theta).kernel)
        return (evaluate(moved, X) * G).sum()

    np.testing.assert_allclose(out, numerical(value, hyper.theta), atol=1e-7)


def test_derivatives_of_other_columns_raise():
    plan = draw_plan(
        rk.Optical(), 6, 3, np.ones(1), Stream(1), centered=True, projection="dense"
    )
    for group in plan.groups:
        Z = evaluate(plan, X)[:, group.start : group.stop]
        slopes = DrawSlopes(group, X, Z, np.ones_like(Z))
        with pytest.raises(ValueError, match="derivatives of .* are not implemented"):
            _ = slopes.phase
        with pytest.raises(ValueError, match="derivatives of .* are not implemented"):
            _ = slopes.amplitude


def test_reweighted_draws_are_features_of_the_new_kernel():
    """Draws for ℓ = 0.8 estimate the kernel of ℓ = 1 once learning has moved there."""
    old, new = rk.Periodic(2.0, 0.8), rk.Periodic(2.0, 1.0)
    D = 100_000
    plan = draw_plan(old, D, 3, np.ones(1), Stream(2))
    Z = evaluate(with_kernel(plan, old, new), X)
    # The ratio of the probabilities is at most e^{κ_old − κ_new} per column: the
    # variance grows by no more than its product.
    bound = 7 * math.sqrt(2 * math.exp(3 * (0.8**-2 - 1.0)) / D)
    assert abs(Z @ Z.T - new(X)).max() < bound
    assert abs(old(X) - new(X)).max() > 2 * bound


@pytest.mark.nightly
def test_process_learns_a_period():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 12, size=(150, 1)), axis=0)
    y = np.sin(2 * np.pi * t[:, 0] / 1.3) + 0.05 * rng.normal(size=150)
    for n_components in (60, None):
        model = rk.GaussianProcessRegressor(
            rk.Periodic(1.28, 1.0), n_components=n_components, random_state=0
        ).fit(t, y)
        assert model.kernel_.period == pytest.approx(1.3, rel=0.01)
        ahead = np.linspace(20, 24, 40)[:, None]
        truth = np.sin(2 * np.pi * ahead[:, 0] / 1.3)
        assert np.sqrt(np.mean((model.predict(ahead) - truth) ** 2)) < 0.15


# -- bad input ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (rk.Polynomial(1.5), "degree must be a positive integer, got 1.5"),
        (rk.Polynomial(2, -1.0), "bias must be a non-negative finite number"),
        (rk.ArcCosine(3), "order must be 0, 1 or 2, got 3"),
        (rk.ArcCosine(True), "order must be 0, 1 or 2, got True"),
        (rk.Softmax(0.0), "scale must be a positive finite number, got 0.0"),
        (rk.Softmax(features="trig"), "features must be one of"),
        (rk.SpectralMixture([1.0], [[0.0]], [[0.1]]), r"means must be .* \(1, 3\)"),
        (rk.SpectralMixture([], [], []), "weights is empty"),
        (rk.SpectralMixture([-1.0], [[0.0] * 3], [[0.1] * 3]), "weights must be pos"),
        (rk.SpectralMixture(1.0, [[0.0] * 3], [[0.1] * 3]), "weights must be"),
        (rk.Periodic(0.0), "period must be a positive finite number"),
        (rk.Periodic(lengthscale="scale"), "lengthscale must be a positive finite"),
        (rk.Spectral(3), "sampler must be callable, got 3"),
        (rk.Spectral(uniform, 3), "value must be callable or None, got 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_bad_numbers(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel(X)
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(kernel, 4).fit(X)


def test_what_features_cannot_do():
    with pytest.raises(ValueError, match="lengthscale of at least 1e-4"):
        rk.RandomFeatures(rk.Periodic(1.0, 1e-5), 10).fit(X)
    with pytest.raises(ValueError, match="no term of Softmax"):
        rk.RandomFeatures(rk.Softmax(), 10, centered=True).fit(X)
    kernel = rk.Softmax() * rk.Optical()  # its draws are independent
    features = rk.RandomFeatures(kernel, 10, centered=True).fit(X)
    assert [group.output for group in features.plan_.groups] == ["mean", "centered"]


@pytest.mark.parametrize(
    "drawn",
    [
        lambda n, d, generator: np.ones(n),
        lambda n, d, generator: np.ones((n, d + 1)),
        lambda n, d, generator: np.ones((n + 1, d)),
        lambda n, d, generator: np.full((n, d), 1j),
        lambda n, d, generator: None,
    ],
)
def test_samplers_must_return_rows(drawn):
    with pytest.raises(ValueError, match=r"must return .* of shape \(5, 3\), got"):
        rk.RandomFeatures(rk.Spectral(drawn), 10).fit_transform(X)
    with pytest.raises(ValueError, match=r"must return .* of shape \(\d+, 3\), got"):
        rk.Spectral(drawn)(X)


@pytest.mark.parametrize("value", [lambda T: T, lambda T: T.sum(), lambda T: None])
def test_values_must_be_of_pairs(value):
    kernel = rk.Spectral(lambda n, d, generator: generator.normal(size=(n, d)), value)
    with pytest.raises(ValueError, match="value must return an array of shape"):
        kernel(X)


def test_values_that_overflow():
    with pytest.raises(ValueError, match="scale the input down"):
        rk.Softmax()(100 * X)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_mean_that_centred_features_lack_is_that_of_the_draws(order):
    """√2 E[max(0, w·x)ⁿ] with w·x normal, of variance ‖x‖²; a step is 0 at x = 0."""
    rows = np.vstack([X, np.zeros(3)])
    features = rk.RandomFeatures(
        rk.ArcCosine(order), 9, centered=True, random_state=0
    ).fit(rows)
    (mean,) = (group for group in features.plan_.groups if group.output == "mean")
    column = evaluate(features.plan_, rows, slice(mean.start, mean.stop))[:, 0]

    def power(w):
        return (w > 0) * math.sqrt(2) * w**order * math.exp(-(w**2) / 2)

    integral = integrate.quad(power, 0, 12)[0] / math.sqrt(2 * math.pi)
    expected = integral * np.linalg.norm(rows, axis=1) ** order
    expected[-1] = 0.0
    np.testing.assert_allclose(column, expected, rtol=1e-8, atol=0)
