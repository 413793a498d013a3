"""Plans: every range of columns, block of rows and dtype gives the same features."""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import randkern as rk
from _cases import KERNELS, POINTS, PROJECTIONS, admits, draw, has_draws
from randkern._random import Stream
from randkern.kernels.base import mean_diagonals
from randkern.kernels.draw import draw_plan
from randkern.kernels.factor_draws import allot
from randkern.plan import Plan, evaluate

D = 21  # odd, so that pairs leave a column over
ROWS = np.vstack([POINTS, np.random.default_rng(1).normal(size=(7, 4))])

# (kernel, fourier, centered): every kind of group, and of several together.
KINDS = [
    ("gaussian", "pair", False),
    ("gaussian-ard", "offset", False),
    ("matern-0.7", "pair", False),
    ("optical-2-bias", "pair", False),
    ("optical-3", "pair", True),
    ("optical-2", "pair", False),
    ("optical-1", "pair", True),
    ("categorical-2", "pair", False),
    ("categorical", "offset", False),
    ("gaussian*categorical", "pair", False),
    ("gaussian*linear*optical", "pair", False),
    ("linear*optical", "pair", False),
    ("sum-optical", "pair", True),
    ("sum", "offset", False),
    ("(a+b)*c", "pair", False),
    ("mixture*mixture", "pair", False),
]
PLANS = [
    pytest.param(*kind, projection, id="-".join((*map(str, kind), projection)))
    for kind in KINDS
    for projection in PROJECTIONS
    if admits(projection, KERNELS[kind[0]])
    # Products of mixtures have a product by BLAS, whose bits depend on the rows.
    and (kind[0], projection) != ("mixture*mixture", "structured")
]
EVERY_PLAN = pytest.mark.parametrize(
    ("name", "fourier", "centered", "projection"), PLANS
)


def make(name, fourier, centered, projection, n_components=D, seed=0):
    return draw(
        KERNELS[name],
        n_components,
        projection=projection,
        fourier=fourier,
        centered=centered,
        stream=Stream(seed),
    )


def assert_same(Z, expected, projection):
    """Structured features are the same bits, the others the same to rounding."""
    if projection == "structured":
        np.testing.assert_array_equal(Z, expected)
    else:
        rounding = 1e-13 if expected.dtype == np.float64 else 2e-6
        scale = np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(Z, expected, rtol=rounding, atol=rounding * scale)


@pytest.mark.nightly
@EVERY_PLAN
def test_ranges_of_columns(name, fourier, centered, projection):
    plan = make(name, fourier, centered, projection)
    whole = evaluate(plan, ROWS)
    assert whole.shape == (13, D)
    # Odd and even ends: they split pairs, and the groups of a sum.
    for start in (0, 1, 2, 7, 20):
        for stop in (start, start + 1, start + 2, start + 5, D - 1, D):
            part = evaluate(plan, ROWS, slice(start, stop))
            assert part.shape == (13, max(0, min(stop, D) - start))
            assert_same(part, whole[:, start:stop], projection)
    assert_same(evaluate(plan, ROWS, slice(-3, None)), whole[:, -3:], projection)


@pytest.mark.nightly
@EVERY_PLAN
def test_blocks_of_rows_and_their_order(name, fourier, centered, projection):
    plan = make(name, fourier, centered, projection)
    whole = evaluate(plan, ROWS)
    for size in (1, 4, 12):
        blocks = [evaluate(plan, ROWS[i : i + size]) for i in range(0, 13, size)]
        assert_same(np.vstack(blocks), whole, projection)
    order = np.random.default_rng(2).permutation(13)
    assert_same(evaluate(plan, ROWS[order]), whole[order], projection)


@pytest.mark.slow
@EVERY_PLAN
def test_sparse_rows(name, fourier, centered, projection):
    plan = make(name, fourier, centered, projection)
    Z = evaluate(plan, sp.csr_array(ROWS))
    assert isinstance(Z, np.ndarray)
    np.testing.assert_allclose(Z, evaluate(plan, ROWS), rtol=1e-11, atol=1e-12)


@pytest.mark.nightly
@EVERY_PLAN
def test_float32(name, fourier, centered, projection):
    """The same features to the rounding of float32, kept as float32."""
    plan = make(name, fourier, centered, projection)
    single = POINTS.astype(np.float32)
    # Categories are compared in the dtype of the rows.
    double = POINTS if "categorical" in name else single.astype(float)
    Z, expected = evaluate(plan, single), evaluate(plan, double)
    assert Z.dtype == np.float32
    scale = max(1.0, np.abs(expected).max())
    # A phase of size p is known to p·2⁻²³ only; heavy tails have large ones.
    np.testing.assert_allclose(Z, expected, atol=3e-5 * scale)


@pytest.mark.slow
@EVERY_PLAN
def test_pickling(name, fourier, centered, projection):
    plan = make(name, fourier, centered, projection)
    expected = evaluate(plan, ROWS)
    dumped = pickle.dumps(plan)
    copy = pickle.loads(dumped)
    np.testing.assert_array_equal(evaluate(copy, ROWS), expected)
    # What evaluating keeps is not pickled.
    assert len(pickle.dumps(make(name, fourier, centered, projection))) == len(dumped)
    wide = make(name, fourier, centered, projection, n_components=10**6)
    assert len(pickle.dumps(wide)) < 10_000


@EVERY_PLAN
def test_out(name, fourier, centered, projection):
    plan = make(name, fourier, centered, projection)
    expected = evaluate(plan, ROWS)
    frame = np.full((13, D + 4), -9.0)
    out = frame[:, 2:-2]
    assert evaluate(plan, ROWS, out=out) is out
    assert_same(out, expected, projection)
    assert np.all(frame[:, :2] == -9) and np.all(frame[:, -2:] == -9)
    assert evaluate(plan, ROWS[:0]).shape == (0, D)
    some = evaluate(plan, ROWS, slice(3, 8), out=frame[:, 1:6])
    assert_same(some, expected[:, 3:8], projection)


@pytest.mark.nightly
@pytest.mark.parametrize("projection", ["dense", "structured"])
def test_many_rows_and_columns_join(projection):
    """More than one tile of rows, and of draws."""
    rows = np.random.default_rng(4).normal(size=(2_100, 3)).astype(np.float32)
    for kernel in (rk.Gaussian(), rk.Optical(2), rk.Gaussian() * rk.Linear()):
        terms = kernel.terms()
        diagonals = mean_diagonals(terms, rows, None)
        plan = draw_plan(kernel, 9_001, 3, diagonals, Stream(0), projection=projection)
        whole = evaluate(plan, rows[1_000:1_060])
        some = evaluate(plan, rows, slice(8_150, 8_250))
        assert_same(some[1_000:1_060], whole[:, 8_150:8_250], projection)


def test_streamed_entries_are_the_dense_ones():
    for name, case in KERNELS.items():
        if has_draws(case):
            dense, streamed = (
                evaluate(make(name, "pair", False, projection), POINTS)
                for projection in ("dense", "streamed")
            )
            np.testing.assert_allclose(streamed, dense, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("columns", [slice(0, 8, 2), slice(None, None, -1)])
def test_columns_are_a_range(columns):
    with pytest.raises(ValueError, match="slice with step 1"):
        evaluate(draw(KERNELS["gaussian"], 8), POINTS, columns)


@pytest.mark.parametrize(
    "out", [np.empty((6, 7)), np.empty((6, 8), np.float32), np.empty((5, 8))]
)
def test_out_must_fit(out):
    with pytest.raises(ValueError, match=r"out must have shape \(6, 8\)"):
        evaluate(draw(KERNELS["gaussian"], 8), POINTS, out=out)


# -- terms and their columns ---------------------------------------------------


def widths(kernel, n_components, rows=POINTS):
    terms = kernel.resolve(rows).terms()
    most = [term.exact_width(rows.shape[1]) for term in terms]
    return allot(n_components, mean_diagonals(terms, rows, None), most)


def test_terms_share_equally_and_by_square_roots():
    """Half of the columns by either."""
    a, b, c = rk.Gaussian(), rk.Laplacian(), rk.Cauchy()
    assert widths(a + 4.0 * b + 9.0 * c, 36) == [9, 12, 15]
    assert widths(a + b, 7) == [4, 3]
    assert widths(a + 81.0 * b, 200) == [60, 140]
    assert widths(1e-9 * a + b + 1e-100 * c, 3) == [1, 1, 1]
    assert widths(1e-20 * a + b + 1e-100 * c, 60) == [10, 40, 10]
    assert widths((a + b) * (a + 9.0 * c), 80) == [15, 25, 15, 25]
    assert widths(a + 4.0 * (b + 4.0 * c), 84) == [20, 26, 38]
    # A mean diagonal counts as much as a weight: (x·x)² + |x·x|² is 32 on these rows.
    rows = np.full((3, 16), 0.5)
    root = math.sqrt(32)
    assert widths(a + rk.Optical(2), 100, rows)[0] == round(25 + 50 / (1 + root))


def test_a_dot_product_takes_no_more_than_its_columns():
    linear, gaussian = rk.Linear(), rk.Gaussian()
    assert widths(100.0 * linear + gaussian, 50) == [4, 46]
    assert widths(1e6 * linear + rk.Linear(columns=[0]) + gaussian, 50) == [4, 1, 45]
    assert widths(linear, 4) == [4]
    assert widths(linear, 3) == [3]
    assert widths(rk.Linear() * rk.Linear(), 50) == [50]


@pytest.mark.nightly
@given(
    weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6),
    linear=st.booleans(),
    n_components=st.integers(1, 500),
)
def test_shares_add_up(weights, linear, n_components):
    kernel = sum(weight * rk.Gaussian() for weight in weights)
    if linear:
        kernel = kernel + rk.Linear()
    n_terms = len(weights) + linear
    if n_components < n_terms:
        with pytest.raises(ValueError, match=f"fewer than the {n_terms} terms"):
            widths(kernel, n_components)
        return
    shares = widths(kernel, n_components)
    assert sum(shares) == n_components
    assert min(shares) >= 1
    if linear:
        assert shares[-1] <= 4
    else:
        roots = np.sqrt(weights)
        ideal = (roots / roots.sum() + 1 / n_terms) / 2 * n_components
        if min(ideal) < 1:
            return
        assert np.all(np.abs(shares - ideal) < 1)


def test_too_many_columns_for_a_dot_product():
    for kernel, width in ((rk.Linear(), 4), (2.0 * rk.Linear(columns=[1]), 1)):
        message = f"the kernel has exactly {width} features.*use at most {width}"
        with pytest.raises(ValueError, match=message):
            widths(kernel, width + 1)


def test_terms_and_factors_are_independent():
    """Equal kernels in one sum or product must not share their draws."""
    k = rk.Gaussian(0.9)
    both = evaluate(draw_plain(k + k, 40), POINTS)
    assert np.abs(both[:, :20] - both[:, 20:]).max() > 0.1
    product = draw_plain(k * k, 4_000)
    # With one ω twice the estimate would be K(2τ) in place of K(τ)².
    Z = evaluate(product, POINTS)
    np.testing.assert_allclose(Z @ Z.T, k(POINTS) ** 2, atol=0.12)
    first, second = (
        factor.projection.draw()[0] for factor in product.groups[0].factors
    )
    correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert abs(correlation) < 6 / math.sqrt(first.size)


def draw_plain(kernel, n_components) -> Plan:
    diagonals = mean_diagonals(kernel.terms(), POINTS, None)
    return draw_plan(kernel, n_components, 4, diagonals, Stream(3), projection="dense")


def test_centered_needs_features_of_known_mean():
    with pytest.raises(ValueError, match=r"(?s)no term of .* has; use centered=False"):
        make("gaussian*linear*optical", "pair", True, "dense")


@pytest.mark.parametrize("projection", ["orthogonal", "structured"])
@pytest.mark.parametrize(
    ("kernel", "leaf"),
    [
        (rk.Laplacian(2.0), "Laplacian"),
        (rk.Gaussian() + 2.0 * (rk.Optical() * rk.Cauchy(3.0)), "Cauchy"),
    ],
)
def test_a_projection_must_suit_every_leaf(kernel, leaf, projection):
    message = f"projection='{projection}' .*{leaf}.*use projection='dense'"
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(kernel, 20, projection=projection).fit(POINTS)
    rk.RandomFeatures(kernel, 20, projection="auto").fit(POINTS)


# -- the two Fourier conventions -----------------------------------------------


def test_both_fourier_conventions_give_the_same_features():
    """cos(ω·x), ω ~ N(0, ℓ⁻²), and cos(2πw·x), w ~ N(0, (2πℓ)⁻²)."""
    lengthscale = 1.7
    plan = draw_plain(rk.Gaussian(lengthscale), 100)
    normal = plan.groups[0].factors[0].projection.draw()[0].astype(float)
    assert abs(normal.std() - 1) < 0.2
    w = normal / (2 * np.pi * lengthscale)
    phase = 2 * np.pi * POINTS @ w.T
    ours = evaluate(plan, POINTS)
    np.testing.assert_allclose(
        ours[:, ::2], np.sqrt(2 / 100) * np.cos(phase), atol=1e-14
    )
    np.testing.assert_allclose(
        ours[:, 1::2], np.sqrt(2 / 100) * np.sin(phase), atol=1e-14
    )


# -- numbers of features per term ---------------------------------------------------

RNG = np.random.default_rng(0)
CLOUD = RNG.normal(size=(600, 5))


def test_numbers_per_term():
    X = CLOUD[:50]
    kernel = 100.0 * rk.Gaussian(2.0) + rk.Matern(1.5) + rk.Linear()
    for widths in ((10, 30, 5), [10, 30, 5], np.array([10, 30, 5])):
        features = rk.RandomFeatures(kernel, widths, random_state=0).fit(X)
        groups = features.plan_.groups
        assert [group.width for group in groups] == [10, 30, 5]
        assert features.transform(X).shape == (50, 45)
    model = rk.KernelRidgeRegressor(kernel, n_components=(10, 30, 5), random_state=0)
    assert model.fit(X, X[:, 0]).coef_.shape == (45,)
    variance = kernel.feature_variance(X, n_components=(10, 30, 5))
    parts = (100.0 * rk.Gaussian(2.0), rk.Matern(1.5))
    expected = sum(
        part.feature_variance(X, n_components=n)
        for part, n in zip(parts, (10, 30), strict=True)
    )
    np.testing.assert_allclose(variance, expected)  # the dot product is exact


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((10, 30), "2 entries, but the kernel has 3 terms"),
        ((10, 30, 6), r"term 2 .* exactly 5 features"),
        ((10, 0, 5), "every number in n_components must be a positive integer"),
        ((10, 2.5, 5), "every number in n_components must be a positive integer"),
    ],
)
def test_numbers_per_term_are_checked(widths, message):
    kernel = rk.Gaussian() + rk.Matern() + rk.Linear()
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(kernel, widths).fit(CLOUD)
