"""Random features of skeletons: their mean, their weights, and what they cost.

Draws are compared with exact kernels by bounds from their known variance; all
comparisons of a test together fail by accident less than once in a million.
"""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import randkern as rk
from _cases import redraw, z_bound
from _skeleton_cases import ACTIVATIONS, BASES, points, shapes
from randkern import skeletons as sk
from randkern.backend.compiled_loops import on_one_thread
from randkern.plan import evaluate

RNG = np.random.default_rng(11)
CIRCLE_ROWS = RNG.uniform(-1.6, 1.6, (6, 9))
#: Draws of a map, and bound of the largest error in standard deviations.
N_DRAWS, N_WEIGHTED = 8_000, 4_000
Z = z_bound(200_000)


def features(kernel, X, n_components, seed=0, **options):
    fitted = rk.RandomFeatures(kernel, n_components, random_state=seed, **options)
    return fitted.fit(X)


def entries_of(fitted):
    """Return the drawn entries of a map of one term."""
    (group,) = fitted.plan_.groups
    (factor,) = group.factors
    return factor.projection.drawn(np.empty(0))[0]


def estimate(kernel, X, n_components, seed=0, **options):
    """Return φ(x)·φ(y) of all pairs of rows."""
    phi = features(kernel, X, n_components, seed, **options).transform(X)
    return phi @ phi.T


# -- the mean ----------------------------------------------------------------------

# Powers of heavy-tailed features beyond modulus 1 have no variance.
LIGHT = ["identity", "hermite2", "optical-4", "series"]
COMBINATIONS = [
    pytest.param(activation, base, id=f"{activation}-{base}")
    for activation in ACTIVATIONS
    for base in BASES
    if BASES[base].unit or activation in LIGHT
]


@pytest.mark.nightly
@pytest.mark.parametrize(("activation", "base"), COMBINATIONS)
def test_independent_draws_are_unbiased(activation, base):
    """Within the closed-form variance, for shallow, deep and convolutional ones."""
    X = points(BASES[base], 5, 9, np.random.default_rng(21))
    for shape, skeleton in shapes(ACTIVATIONS[activation], BASES[base]).items():
        if skeleton.complexity(truncated=True) > 100:
            continue  # deep steps: see the test below
        kernel = rk.Compositional(skeleton, deduplicate=False, constant="sampled")
        variance = kernel.feature_variance(X, n_components=N_DRAWS)
        error = np.abs(estimate(kernel, X, N_DRAWS) - skeleton.truncated().kernel(X))
        assert np.all(np.isfinite(variance))
        bound = Z * np.sqrt(np.maximum(variance, 0)) + 1e-9
        # Sums of light tails: the normal bound, widened for their skewness.
        assert np.all(error <= (1.0 if BASES[base].unit else 1.5) * bound), shape


@pytest.mark.nightly
@pytest.mark.parametrize(("activation", "base"), COMBINATIONS)
def test_weighted_columns_are_unbiased(activation, base):
    """The default: no further from the kernel than independent draws may be."""
    X = points(BASES[base], 5, 9, np.random.default_rng(22))
    skeleton = shapes(ACTIVATIONS[activation], BASES[base])["convolutional"]
    if skeleton.complexity(truncated=True) > 100:
        pytest.skip("hundreds of factors a draw: tested once below")
    exact = skeleton.truncated().kernel(X)
    for deduplicate in ("auto", False):
        kernel = rk.Compositional(skeleton, deduplicate=deduplicate)
        variance = kernel.feature_variance(X, n_components=N_WEIGHTED)
        error = np.abs(estimate(kernel, X, N_WEIGHTED) - exact)
        bound = Z * np.sqrt(np.maximum(variance, 0)) + 1e-9
        assert np.all(error <= (1.0 if BASES[base].unit else 1.5) * bound)


def test_deep_steps():
    skeleton = sk.fully_connected(9, 2, "step")
    kernel = rk.Compositional(skeleton)
    error = estimate(kernel, CIRCLE_ROWS, 2000) - skeleton.truncated().kernel(
        CIRCLE_ROWS
    )
    variance = kernel.feature_variance(CIRCLE_ROWS, n_components=2000)
    # The variance is that of the whole series, the draws those of the truncated.
    assert np.all(np.abs(error) <= Z * np.sqrt(variance + 0.02 / 2000))


def mean_over_seeds(kernel, X, n_components, n_seeds):
    """Return the mean of φ(x)·φ(y) over seeds, and its standard error."""
    plan = features(kernel, X, n_components).plan_
    total, square = np.zeros((len(X), len(X))), np.zeros((len(X), len(X)))
    for seed in range(n_seeds):
        Z_small = evaluate(redraw(plan, seed), X)
        assert Z_small.shape == (len(X), n_components)
        gram = Z_small @ Z_small.T
        total += gram / n_seeds
        square += gram**2 / n_seeds
    return total, np.sqrt(np.maximum(square - total**2, 0) / n_seeds)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("base", "constant"),
    [
        *(("circle", "analytic"), ("circle", "sampled")),
        *(("binary", "analytic"), ("categorical-4", "sampled")),
        ("categorical-4", "analytic"),
    ],
)
def test_the_variance_of_independent_draws_is_that_over_seeds(base, constant):
    X = points(BASES[base], 3, 4, np.random.default_rng(23))
    skeleton = sk.fully_connected(4, 2, base=BASES[base]).truncated()
    kernel = rk.Compositional(skeleton, deduplicate=False, constant=constant)
    plan = features(kernel, X, 9).plan_
    draws = np.array([evaluate(redraw(plan, seed), X) for seed in range(1200)])
    squares = (draws @ draws.transpose(0, 2, 1) - skeleton.kernel(X)) ** 2
    spread = squares.std(axis=0) / np.sqrt(len(squares))
    variance = kernel.feature_variance(X, n_components=9)
    bound = z_bound(6 * 9) * spread + 1e-9
    found = squares.mean(axis=0)
    if (base, constant) == ("categorical-4", "analytic"):
        # Features that are real or constant leave columns to other draws.
        assert np.all(found <= variance + bound)
        assert np.all(variance <= 2 * found + bound)
    else:
        assert np.all(np.abs(found - variance) <= bound)
    assert bound.max() < 0.4 * variance.max()  # the power


@pytest.mark.nightly
@pytest.mark.parametrize("n_components", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("base", ["circle", "binary", "categorical-4"])
def test_narrow_maps_are_unbiased(n_components, base):
    """The mean over seeds, for every way in which columns can run short."""
    X = points(BASES[base], 3, 4, np.random.default_rng(23))
    kernel = rk.Compositional(sk.fully_connected(4, 2, base=BASES[base]))
    mean, spread = mean_over_seeds(kernel, X, n_components, 400)
    assert np.all(np.abs(mean - kernel(X)) <= z_bound(15 * 9) * spread + 1e-9)


@pytest.mark.parametrize("n_components", [2, 4])
def test_the_odd_column_beside_the_constant_one(n_components):
    """Draws of degree 1, of which none cancel: their variance is exact.

    A pair has E[cos²τ] for a draw, an odd column E[1 + cos(2τ)/2] with its phase.
    """
    X, p = CIRCLE_ROWS[:3, :3], 0.3
    skeleton = sk.fully_connected(3, 1, sk.PowerSeries([p, 1 - p]))
    kernel = rk.Compositional(skeleton, deduplicate=False)
    cosines = np.cos(X[:, None] - X)
    mean, square = cosines.mean(axis=2), (cosines**2).mean(axis=2)
    n_draws = n_components // 2
    odd = (0.5 + square - mean**2) / n_draws**2
    pairs = (n_draws - 1) * (square - mean**2) / n_draws**2
    found = kernel.feature_variance(X, n_components=n_components)
    np.testing.assert_allclose(found, (1 - p) ** 2 * (odd + pairs), rtol=1e-10)
    mean, spread = mean_over_seeds(kernel, X, n_components, 300)
    assert np.all(np.abs(mean - kernel(X)) <= z_bound(18) * spread)
    assert spread.max() < 0.05


def unequal(base):
    """Return a skeleton of three features of probabilities 1/2, 1/4 and 1/4."""
    nodes = {name: sk.Input(base, j) for j, name in enumerate("abc")}
    nodes |= {"bc": "identity", "out": "identity"}
    edges = [("a", "out"), ("b", "bc"), ("c", "bc"), ("bc", "out")]
    return sk.Skeleton(nodes, edges)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "n_components"), [("circle", 4), ("circle", 5), ("binary", 2)]
)
def test_features_of_unequal_probabilities_are_unbiased(base, n_components):
    """Just below the support: draws of all but one of the features fill the columns.

    Where features are equally likely, their symmetry hides a bias of the weights.
    """
    X = points(BASES[base], 5, 3, np.random.default_rng(24))
    X[0], X[1] = 0.1, [0.1, 1.6, 1.6]  # far apart in the rarer features alone
    if base == "binary":
        X = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, 1.0], [1, 1, -1]])
    kernel = rk.Compositional(unequal(base))
    mean, spread = mean_over_seeds(kernel, X, n_components, 1000)
    off = ~np.eye(len(X), dtype=bool)
    error = np.abs(mean - kernel(X))
    assert np.all(error[off] <= z_bound(3 * 20) * spread[off] + 1e-9)


# -- merging and the constant feature ------------------------------------------------


@pytest.mark.slow
def test_merging_and_the_constant_column_lower_the_error():
    """Paired over 20 seeds: the ratio of mean errors is below 1 by three errors."""
    X = np.random.default_rng(31).uniform(-1.5, 1.5, (20, 64))
    skeleton = sk.convolutional((8, 8), [sk.Conv(3), sk.Conv(3), sk.Dense()])
    exact = skeleton.kernel(X)
    off = ~np.eye(20, dtype=bool)

    def errors(**options):
        kernel = rk.Compositional(skeleton, **options)
        return np.array(
            [
                np.abs(estimate(kernel, X, 1000, seed) - exact)[off].mean()
                for seed in range(20)
            ]
        )

    plain = errors(deduplicate=False, constant="sampled")
    constant = errors(deduplicate=False)
    merged = errors(constant="sampled")
    both = errors()
    for better, worse in ((constant, plain), (merged, plain), (both, constant)):
        gain = worse - better
        assert gain.mean() > 3 * gain.std(ddof=1) / math.sqrt(20)
    assert both.mean() < 0.6 * plain.mean()


@pytest.mark.parametrize(
    ("skeleton", "n_columns"),
    [
        (sk.fully_connected(5, 2, "identity"), 10),
        (sk.fully_connected(4, 1, "hermite2"), 40),
        (sk.fully_connected(3, 1, "optical"), 24),
        (sk.fully_connected(5, 3, "relu", "binary"), 32),
        (sk.fully_connected(3, 2, "step", sk.categorical(3)), 27),
        (sk.fully_connected(2, 1, "erf", sk.categorical(4)), 16),
        (sk.fully_connected(6, 1, "hermite2", "linear"), 22),
        (sk.fully_connected(2, 1, "hermite2", sk.sphere(3)), 100),
        (sk.fully_connected(2, 1, "identity", sk.sphere(3, "coordinate")), 6),
        (sk.fully_connected(20, 1, "identity", "binary"), 20),
        (sk.fully_connected(20, 1, "hermite2", "binary"), 191),
        (sk.fully_connected(10, 1, "identity", sk.categorical(5)), 41),
        (sk.fully_connected(5, 1, "optical", "binary"), 11),
        (unequal("circle"), 6),
    ],
)
def test_small_supports_are_listed_and_exact(skeleton, n_columns):
    base = skeleton.graph.bases[0]
    n_inputs = skeleton.graph.n_inputs
    X = points(base, 8, n_inputs, np.random.default_rng(32))
    kernel = rk.Compositional(skeleton)
    for n_components in (n_columns, n_columns + 1, n_columns + 40):
        gram = estimate(kernel, X, n_components)
        np.testing.assert_allclose(gram, skeleton.kernel(X), atol=1e-12)


def test_too_few_features_for_the_columns():
    """An endless support of few likely features: the drawing ends all the same."""
    skeleton = sk.fully_connected(1, 1, sk.Exponential(0.3))
    X = CIRCLE_ROWS[:, :1]
    fitted = features(rk.Compositional(skeleton), X, 500)
    Z_wide = fitted.transform(X)
    used = np.abs(Z_wide).sum(axis=0) > 0
    assert 3 <= used.sum() < 50
    assert np.abs(Z_wide @ Z_wide.T - skeleton.kernel(X)).max() < 0.01


@pytest.mark.parametrize("a", [1e-2, 1e-5])
def test_features_that_are_hardly_ever_drawn(a):
    """A constant of probability 1 − a²: the rest is drawn without waiting for it."""
    skeleton = sk.fully_connected(9, 1, sk.Exponential(a))
    gram = estimate(rk.Compositional(skeleton), CIRCLE_ROWS, 4000)
    shape = (gram - skeleton.constant_probability()) / a**2
    exact = (skeleton.kernel(CIRCLE_ROWS) - skeleton.constant_probability()) / a**2
    # Of 200,000 draws nine features get nearly all: weights are within 0.0007.
    np.testing.assert_allclose(shape, exact, atol=0.015)


def test_paths_that_hardly_ever_meet_an_input():
    deep = sk.fully_connected(9, 3, sk.Exponential(1e-3))
    for kernel in (rk.Compositional(deep), rk.Compositional(deep, deduplicate=False)):
        gram = estimate(kernel, CIRCLE_ROWS, 10)  # within 10⁻¹² of a constant
        np.testing.assert_allclose(gram, 1, atol=1e-11)
    rare = sk.fully_connected(9, 2, sk.Exponential(5e-3))
    with pytest.raises(ValueError, match="a share of 2.5e-05 .* reaches an input"):
        features(rk.Compositional(rare), CIRCLE_ROWS, 10).transform(CIRCLE_ROWS)
    sampled = rk.Compositional(rare, constant="sampled")
    np.testing.assert_allclose(estimate(sampled, CIRCLE_ROWS, 50), 1, atol=1e-3)


def test_weights_of_merged_draws():
    """Different entries, no two conjugate; weights sum to one; √P₀ first."""
    skeleton = sk.fully_connected(9, 2)
    kernel = rk.Compositional(skeleton)
    fitted = features(kernel, CIRCLE_ROWS, 1001)
    entries = entries_of(fitted)
    assert entries.weights[0] ** 2 >= skeleton.constant_probability()
    assert np.sum(entries.weights**2) == pytest.approx(1)
    words = {
        tuple(
            zip(entries.slots[a:b].tolist(), entries.coefs[a:b].tolist(), strict=True)
        )
        for a, b in zip(entries.starts[1:-1], entries.starts[2:], strict=True)
    }
    assert len(words) == 500
    assert not words & {tuple((s, -c) for s, c in word) for word in words}
    diagonal = np.diag(estimate(kernel, CIRCLE_ROWS, 1001))
    np.testing.assert_allclose(diagonal, 1, atol=1e-12)


def test_real_skeletons_have_no_imaginary_columns():
    X = points(sk.binary, 6, 40, np.random.default_rng(33))
    kernel = rk.Compositional(sk.fully_connected(40, 1, base="binary"))
    Z_real = features(kernel, X, 301).transform(X)
    assert np.all(np.abs(Z_real).sum(axis=0) > 0)
    np.testing.assert_allclose(np.abs(Z_real), np.abs(Z_real[:1]) + 0 * Z_real)
    plain = clone(kernel).set_params(deduplicate=False, constant="sampled")
    assert set(np.unique(np.abs(features(plain, X, 64).transform(X)))) == {0.125}


def test_variance_of_a_sphere_under_a_heavy_tail_is_infinite():
    X = points(sk.sphere(5), 3, 2, np.random.default_rng(34))
    kernel = rk.Compositional(sk.fully_connected(2, 1, "relu", sk.sphere(5)))
    assert np.isinf(kernel.feature_variance(X)).any()


# -- draws -----------------------------------------------------------------------------


def test_draws_depend_on_the_seed_alone(two_threads):
    """Not on threads, blocks of rows, ranges of columns, or containers."""
    kernel = rk.Compositional(sk.fully_connected(9, 2))
    fitted = features(kernel, CIRCLE_ROWS, 203)
    whole = fitted.transform(CIRCLE_ROWS)
    rows = [fitted.transform(CIRCLE_ROWS[i : i + 1]) for i in range(6)]
    np.testing.assert_array_equal(np.vstack(rows), whole)
    for cut in (1, 2, 100, 101, 202):
        left = evaluate(fitted.plan_, CIRCLE_ROWS, slice(0, cut))
        right = evaluate(fitted.plan_, CIRCLE_ROWS, slice(cut, 203))
        np.testing.assert_array_equal(np.hstack([left, right]), whole)
    out = np.empty((6, 300))
    evaluate(fitted.plan_, CIRCLE_ROWS, out=out[:, 50:253])
    np.testing.assert_array_equal(out[:, 50:253], whole)
    np.testing.assert_array_equal(fitted.transform(sp.csr_array(CIRCLE_ROWS)), whole)
    many = np.tile(CIRCLE_ROWS, (400, 1))
    expected = on_one_thread(fitted.transform, many)
    with two_threads() as work:
        np.testing.assert_array_equal(fitted.transform(many), expected)
    assert work.tasks >= {"sparse_phases"}
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(CIRCLE_ROWS), whole)
    assert not np.array_equal(
        features(kernel, CIRCLE_ROWS, 203, 1).transform(many[:6]), whole
    )


def test_draw_i_does_not_depend_on_their_number():
    kernel = rk.Compositional(
        sk.fully_connected(9, 2), deduplicate=False, constant="sampled"
    )
    few = features(kernel, CIRCLE_ROWS, 40).transform(CIRCLE_ROWS)
    many = features(kernel, CIRCLE_ROWS, 4000).transform(CIRCLE_ROWS)
    np.testing.assert_allclose(few, 10 * many[:, :40], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_angles_of_any_size(scale):
    X = CIRCLE_ROWS * scale
    skeleton = sk.fully_connected(9)
    error = estimate(rk.Compositional(skeleton), X, 4000) - skeleton.kernel(X)
    assert np.abs(error).max() < 0.1


def test_skeletons_too_costly_to_draw():
    kernel = rk.Compositional(sk.fully_connected(9, 10, sk.Exponential(3.0)))
    assert kernel(CIRCLE_ROWS).shape == (6, 6)
    with pytest.raises(ValueError, match=r"product of 3.49e\+09 base features"):
        features(kernel, CIRCLE_ROWS, 10).transform(CIRCLE_ROWS)


@pytest.mark.parametrize(("a", "share"), [(1000.0, "1"), (101.0, "0.98")])
def test_degrees_too_large_to_draw(a, share):
    kernel = rk.Compositional(sk.fully_connected(9, 1, sk.Exponential(a)))
    np.testing.assert_allclose(np.diag(kernel(CIRCLE_ROWS)), 1)
    with pytest.raises(ValueError, match=rf"have probability {share},"):
        features(kernel, CIRCLE_ROWS, 10).transform(CIRCLE_ROWS)


# -- in the house ------------------------------------------------------------------


def partner(name):
    return {
        "gaussian": rk.Gaussian(3.0),
        "optical": rk.Optical(1),
        "linear": rk.Linear(columns=[0, 1]),
        "itself": rk.Compositional(sk.fully_connected(9, 1, "exponential")),
        "categorical": rk.Categorical(columns=[0]),
    }[name]


@pytest.mark.nightly
@pytest.mark.parametrize("fourier", ["pair", "offset"])
@pytest.mark.parametrize(
    "name", ["gaussian", "optical", "linear", "itself", "categorical"]
)
def test_sums_and_products(name, fourier):
    """Unbiased within the closed-form variance, for phases, signs and moduli."""
    X = np.random.default_rng(41).uniform(-1, 1, (5, 9))
    X[:, 0] = [-1, 1, 1, -1, 1]
    for base in (sk.circle, sk.linear):
        kernel = rk.Compositional(
            sk.fully_connected(9, 1, ACTIVATIONS["series"], base),
            deduplicate=False,
            constant="sampled",
        )
        for joined in (kernel * partner(name), kernel + 0.3 * partner(name)):
            D = 4_000
            variance = joined.resolve(X).feature_variance(
                X, n_components=D, fourier=fourier
            )
            error = np.abs(estimate(joined, X, D, fourier=fourier) - joined(X))
            assert np.all(error <= 1.5 * Z * np.sqrt(np.maximum(variance, 0)) + 1e-9)


def test_mixed_products_of_a_sphere_have_moduli_and_phases():
    X = np.random.default_rng(42).normal(size=(5, 6))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    skeleton = sk.fully_connected(1, 1, ACTIVATIONS["series"], sk.sphere(6))
    kernel = rk.Compositional(skeleton) * rk.Gaussian(1.5)
    variance = kernel.feature_variance(X, n_components=40_000)
    error = np.abs(estimate(kernel, X, 40_000) - kernel(X))
    assert np.all(error <= 1.5 * Z * np.sqrt(variance))


def test_text_columns_as_categories():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"x": CIRCLE_ROWS[:, 0], "kind": list("abcabc")})
    inputs = [sk.Input("circle", 0), sk.Input(sk.categorical(3), 1)]
    skeleton = sk.Skeleton([*inputs, "relu"], [(0, 2), (1, 2)])
    gram = rk.Compositional(skeleton)(table)
    same = table["kind"].to_numpy()[:, None] == table["kind"].to_numpy()
    mean = (np.cos(CIRCLE_ROWS[:, :1] - CIRCLE_ROWS[:, 0]) + same) / 2
    np.testing.assert_allclose(gram, sk.ReLU().dual(mean), atol=1e-14)
    with pytest.raises(ValueError, match="'kind' holds categories"):
        rk.Compositional(sk.fully_connected(2))(table)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (rk.Compositional("relu"), "skeleton must be"),
        (rk.Compositional(sk.fully_connected(4)), "expects rows with 4 columns, got 9"),
        (rk.Compositional(constant="exact"), "constant must be"),
        (rk.Compositional(deduplicate="yes"), "deduplicate must be"),
        (
            rk.Compositional(sk.fully_connected(9, base="gaussian"), deduplicate=True),
            "no two features are equal",
        ),
        (
            rk.Compositional(sk.FullyConnected(base=sk.sphere(2))),
            "must be a multiple of 2",
        ),
        (rk.Compositional(columns=[12]), "reads column 12"),
    ],
)
def test_bad_kernels(kernel, message):
    with pytest.raises(ValueError, match=message):
        features(kernel, CIRCLE_ROWS, 10)


def test_points_outside_their_space_at_transform():
    for base, row in (("binary", [1, 0.5]), (sk.categorical(3), [0, -1])):
        kernel = rk.Compositional(sk.fully_connected(2, base=base))
        for mapped in (kernel, kernel * rk.Gaussian()):
            fitted = features(mapped, np.ones((2, 2)), 20)
            with pytest.raises(ValueError, match="an input on"):
                fitted.transform([row])


# -- transformers --------------------------------------------------------------------


def test_pixels_to_angles():
    pixels = np.array([[0, 64, 255]], dtype=np.uint8)
    angles = sk.PixelsToAngles().fit_transform(pixels)
    assert angles.dtype == np.float32
    expected = np.pi / 2 * (2 * pixels.astype(float) / 255 - 1)
    np.testing.assert_allclose(angles, expected, atol=1e-6)
    np.testing.assert_allclose(
        sk.PixelsToAngles(-1, 1).fit_transform([[-1.0, 0.0, 1.0]]),
        [[-np.pi / 2, 0, np.pi / 2]],
    )
    for low, high in ((1, 1), (2, 1), (np.nan, 1), (0, np.inf)):
        with pytest.raises(ValueError, match="low"):
            sk.PixelsToAngles(low, high).fit(pixels)


def test_a_mixed_table_in_a_pipeline():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(51)
    kind = rng.choice(list("pqr"), 400)
    x = rng.normal(size=400)
    y = np.where(kind == "p", x, np.where(kind == "q", -x, 0.0)) > 0
    table = pd.DataFrame({"x": x, "kind": kind, "noise": rng.normal(size=400)})
    to_bases = sk.TableToBases().fit(table)
    assert repr(to_bases.bases_) == "(gaussian(1.0), categorical(4), gaussian(1.0))"
    for n_components in (300, None):
        model = make_pipeline(
            sk.TableToBases(),
            rk.KernelRidgeClassifier(
                rk.Compositional(to_bases.skeleton(sk.Exponential(2.0))),
                alpha=0.1,
                n_components=n_components,
                random_state=0,
            ),
        )
        model.fit(table[:300], y[:300])
        assert model.score(table[300:], y[300:]) > 0.85
    unseen = table[:3].assign(kind=["p", "zebra", "q"])
    assert to_bases.transform(unseen)[1, 1] == 3
    assert len(model.predict(unseen)) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sk.TableToBases(None).fit([[0.0]]), r"use \[\] for no columns"),
        (lambda: sk.TableToBases("kind").fit([[0.0]]), "for a single column"),
        (lambda: sk.TableToBases([], scale=0).fit([[0.0]]), "scale must be"),
        (lambda: sk.TableToBases().fit([[0.0]]).skeleton(depth=0), "depth must be"),
        (lambda: sk.PixelsToAngles("a").fit([[0.0]]), "low and high must be finite"),
    ],
)
def test_bad_transformers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_table_to_circles():
    X = np.array([[0.0, 5.0, 2.0], [4.0, 5.0, 7.0], [1.0, 5.0, 2.0]])
    to_bases = sk.TableToBases(categorical=[2], numbers="circle").fit(X)
    points_ = to_bases.transform(X)
    np.testing.assert_allclose(points_[:, 0], [-np.pi / 2, np.pi / 2, -np.pi / 4])
    np.testing.assert_array_equal(points_[:, 1], 0)
    np.testing.assert_array_equal(points_[:, 2], [0, 1, 0])
    assert to_bases.transform([[0, 0, 9.0]])[0, 2] == 2
    skeleton = to_bases.skeleton("relu", depth=2)
    assert skeleton.depth == 2
    assert skeleton.kernel(points_).shape == (3, 3)
    with pytest.raises(ValueError, match="not a column of the table"):
        sk.TableToBases(categorical=["colour"]).fit(X)
    with pytest.raises(ValueError, match="numbers must be"):
        sk.TableToBases(numbers="torus").fit(X)


@pytest.mark.slow
@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from(["circle", "binary", "gaussian"]),
    st.booleans(),
)
def test_any_width(n_components, n_inputs, base, merged):
    """Exactly D finite columns, of squared norms near the diagonal or below it."""
    X = points(sk.bases.base_of(base), 3, n_inputs, np.random.default_rng(0))
    kernel = rk.Compositional(
        sk.fully_connected(n_inputs, 2, base=base),
        deduplicate="auto" if merged else False,
    )
    Z_any = features(kernel, X, n_components).transform(X)
    assert Z_any.shape == (3, n_components)
    assert np.all(np.isfinite(Z_any))
    assert np.all(np.sum(Z_any**2, axis=1) <= 2 + 1e-9)
