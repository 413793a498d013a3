"""Exact kernel values: against other libraries, closed forms, and at the extremes."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel

import randkern as rk
from _cases import ARD, KERNELS, POINTS

TOLERANCE = {"rtol": 1e-12, "atol": 1e-14}
RNG = np.random.default_rng(7)
X = RNG.normal(size=(30, 4))
Y = RNG.normal(size=(20, 4))
STATIONARY = {
    "gaussian": rk.Gaussian(1.3),
    "laplacian": rk.Laplacian(2.0),
    "cauchy": rk.Cauchy(0.9),
    "matern-0.5": rk.Matern(0.5),
    "matern-0.7": rk.Matern(0.7),
    "matern-1.5": rk.Matern(1.5, 1.2),
    "rational-quadratic": rk.RationalQuadratic(0.7, 1.4),
}
EVERY_KERNEL = pytest.mark.parametrize(
    "kernel", [case.kernel for case in KERNELS.values()], ids=list(KERNELS)
)
EVERY_STATIONARY = pytest.mark.parametrize("kernel", STATIONARY.values())


def label(value):
    """Name a parameter the same in every process: a function by its name."""
    return getattr(value, "__name__", str(value))


def cauchy_kernel(X, Y, lengthscale):
    tau = (X[:, None] - Y[None]) / lengthscale
    return np.prod(1 / (1 + tau**2), axis=2)


# -- against other libraries ---------------------------------------------------


@pytest.mark.parametrize("other", [X, Y], ids=["itself", "others"])
@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (rk.Gaussian(1.3), lambda X, Y=X: rbf_kernel(X, Y, gamma=0.5 / 1.3**2)),
        (rk.Gaussian(ARD), gp.RBF(ARD)),
        (rk.Laplacian(2.0), lambda X, Y=X: laplacian_kernel(X, Y, gamma=0.5)),
        (
            rk.Laplacian(ARD),
            lambda X, Y=X: laplacian_kernel(X / ARD, Y / ARD, gamma=1.0),
        ),
        (rk.Cauchy(0.9), lambda X, Y=X: cauchy_kernel(X, Y, 0.9)),
        (rk.Cauchy(ARD), lambda X, Y=X: cauchy_kernel(X, Y, ARD)),
        *((rk.Matern(nu, 1.2), gp.Matern(1.2, nu=nu)) for nu in (0.1, 0.5, 0.7, 1.5)),
        *((rk.Matern(nu, ARD), gp.Matern(ARD, nu=nu)) for nu in (2.5, 3.0, 10.0)),
        (rk.Matern(np.inf, 1.2), gp.Matern(1.2, nu=np.inf)),
        (rk.RationalQuadratic(0.7, 1.4), gp.RationalQuadratic(1.4, alpha=0.7)),
        (rk.RationalQuadratic(40.0), gp.RationalQuadratic(alpha=40.0)),
        (rk.Linear(), linear_kernel),
        (rk.Linear(0.49), gp.DotProduct(sigma_0=0.7)),
        (rk.Linear(0.49, columns=[]), gp.ConstantKernel(0.49)),
        (
            3.0 * rk.Linear() + rk.Gaussian(),
            lambda X, Y=X: 3 * X @ Y.T + gp.RBF()(X, Y),
        ),
        (
            rk.Gaussian() * rk.Matern(0.5),
            lambda X, Y=X: gp.RBF()(X, Y) * gp.Matern(nu=0.5)(X, Y),
        ),
        (
            (rk.Gaussian() + rk.Linear()) * rk.Laplacian(),
            lambda X, Y=X: (gp.RBF()(X, Y) + X @ Y.T) * laplacian_kernel(X, Y, gamma=1),
        ),
        (
            rk.Gaussian(columns=[0, 2]) * rk.Linear(columns=slice(1, 3)),
            lambda X, Y=X: (
                gp.RBF()(X[:, [0, 2]], Y[:, [0, 2]]) * (X[:, 1:3] @ Y[:, 1:3].T)
            ),
        ),
    ],
    ids=label,
)
def test_values_of_other_libraries(kernel, reference, other):
    expected = reference(X) if other is X else reference(X, other)
    np.testing.assert_allclose(kernel(X, other), expected, **TOLERANCE)
    if other is X:
        np.testing.assert_allclose(kernel(X), expected, **TOLERANCE)


mpmath.mp.dps = 40


def matern_value(nu, r):
    if nu == np.inf:
        return float(mpmath.exp(-(mpmath.mpf(r) ** 2) / 2))
    nu = mpmath.mpf(nu)
    z = mpmath.sqrt(2 * nu) * mpmath.mpf(r)
    value = 2 ** (1 - nu) / mpmath.gamma(nu) * z**nu * mpmath.besselk(nu, z)
    return float(value)


@pytest.mark.nightly
@pytest.mark.parametrize("nu", [0.1, 0.7, 1.5, 3, 150, 250, np.inf])
def test_matern_near_and_far(nu):
    """From where K_ν overflows to where it underflows, for every ν."""
    kernel = rk.Matern(nu)
    assert kernel([[1.0]], [[1.0]]).item() == pytest.approx(1.0, rel=1e-12)
    for r in (1e-30, 1e-8, 1e-3, 0.1, 0.7, 2.0, 6.0, 20.0, 300.0):
        value = kernel([[0.0]], [[r]]).item()
        np.testing.assert_allclose(value, matern_value(nu, r), rtol=1e-12, atol=1e-300)
    for r in (1e5, 1e160, 1e300):
        assert 0 <= kernel([[0.0]], [[r]]).item() < 1e-30
    assert np.all(np.diff(kernel([[0.0]], np.linspace(0, 9, 200)[:, None])) <= 0)


def optical_value(m, x, y):
    x, y = mpmath.matrix(x.tolist()), mpmath.matrix(y.tolist())
    norms = mpmath.norm(x) * mpmath.norm(y)
    cosine = min((x.T * y)[0] / norms, 1)
    m = mpmath.mpf(m)
    series = mpmath.hyp2f1(-m / 2, -m / 2, 1, cosine**2)
    return float(norms**m * mpmath.gamma(1 + m / 2) ** 2 * mpmath.re(series))


@pytest.mark.slow
@pytest.mark.parametrize("degree", [0.01, 0.5, 1, 2, 2.7, 3, 4, 11.3, 40.5, 62])
def test_optical_is_the_hypergeometric_series(degree):
    rows = np.vstack([X[:4], -2 * X[0], X[1] + 1e-7, np.eye(4)[:2]])
    expected = [[optical_value(degree, x, y) for y in rows] for x in rows]
    np.testing.assert_allclose(rk.Optical(degree)(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(rk.Optical(degree)(rows, rows), expected, rtol=1e-12)


def test_categorical_is_the_share_of_equal_columns():
    codes = RNG.integers(3, size=(12, 3)).astype(float)
    share = np.mean(codes[:, None] == codes[None], axis=2)
    np.testing.assert_allclose(rk.Categorical()(codes), share, **TOLERANCE)
    one = rk.Categorical(columns=[1])(codes, codes[:4])
    np.testing.assert_array_equal(one, codes[:, 1, None] == codes[None, :4, 1])


# -- what holds for every kernel -----------------------------------------------


@pytest.mark.slow
@EVERY_KERNEL
def test_gram_matrix_is_symmetric_and_positive(kernel):
    rows = np.vstack([POINTS, RNG.choice([0.0, 0.5, 1.0], size=(20, 4))])
    gram = kernel(rows)
    np.testing.assert_allclose(gram, gram.T, rtol=1e-14, atol=1e-16)
    eigenvalues = np.linalg.eigvalsh(gram)
    assert eigenvalues.min() >= -1e-10 * max(1.0, eigenvalues.max())


@EVERY_KERNEL
def test_rows_compared_with_themselves(kernel):
    """Y omitted, Y the same rows, Y a part of them, and the diagonal agree."""
    gram = kernel(POINTS)
    np.testing.assert_allclose(kernel(POINTS, POINTS.copy()), gram, **TOLERANCE)
    np.testing.assert_allclose(kernel(POINTS, POINTS[2:4]), gram[:, 2:4], **TOLERANCE)
    np.testing.assert_allclose(kernel.diag(POINTS), np.diag(gram), **TOLERANCE)
    np.testing.assert_array_equal(kernel(POINTS.tolist()), gram)
    np.testing.assert_array_equal(kernel(POINTS[:, ::-1][:, ::-1]), gram)


@pytest.mark.slow
@EVERY_KERNEL
def test_sparse_rows_equal_dense_ones(kernel):
    rows = np.vstack([POINTS, np.where(RNG.random((9, 4)) < 0.5, 1.0, 0.0)])
    sparse, dense = sp.csr_array(rows), kernel(rows)
    np.testing.assert_allclose(kernel(sparse), dense, **TOLERANCE)
    np.testing.assert_allclose(kernel(sparse, rows[:5]), dense[:, :5], **TOLERANCE)
    np.testing.assert_allclose(kernel(rows[:5], sparse), dense[:5], **TOLERANCE)
    np.testing.assert_allclose(kernel.diag(sparse), np.diag(dense), **TOLERANCE)


@pytest.mark.slow
@EVERY_KERNEL
def test_float32_is_kept_and_computed_in_float64(kernel):
    single = POINTS.astype(np.float32)
    gram, expected = kernel(single), kernel(single.astype(float))
    assert gram.dtype == kernel.diag(single).dtype == np.float32
    np.testing.assert_allclose(gram, expected, rtol=3e-7, atol=1e-9)
    assert kernel(single, POINTS).dtype == kernel(POINTS, single).dtype == np.float64
    assert kernel((POINTS * 10).astype(int)).dtype == np.float64


@pytest.mark.slow
def test_tiles_join_seamlessly():
    """More rows than one tile, as matrix and as blocks of it."""
    rows = RNG.normal(size=(2_500, 3))
    kernel = rk.Gaussian(1.1)
    gram = kernel(rows)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(
        gram[1000:1100], kernel(rows[1000:1100], rows), rtol=1e-9
    )
    np.testing.assert_allclose(kernel(rows, rows[:1030]), gram[:, :1030], rtol=1e-9)


# -- algebra -------------------------------------------------------------------


def test_operators():
    a, b = rk.Gaussian(), rk.Linear()
    assert isinstance(a + b, rk.Sum)
    assert isinstance(a * b, rk.Product)
    for scaled in (2.5 * a, a * 2.5, np.float64(2.5) * a, a * np.float32(2.5)):
        assert isinstance(scaled, rk.Scaled)
        np.testing.assert_allclose(scaled(X), 2.5 * a(X), rtol=1e-15)
    np.testing.assert_allclose(sum([a, b])(X), a(X) + b(X), rtol=1e-15)
    assert a != rk.Gaussian()
    assert len({a, b, a}) == 2


@pytest.mark.parametrize(
    "expression",
    [
        lambda k: k + 1,
        lambda k: 1 + k,
        lambda k: -k,
        lambda k: np.ones(3) * k,
        lambda k: k * "2",
        lambda k: k * [1, 2],
    ],
)
def test_operators_refuse_the_rest(expression):
    with pytest.raises(TypeError):
        expression(rk.Gaussian())


def test_arguments_are_not_changed():
    before, rows = X.copy(), X.copy()
    for case in KERNELS.values():
        case.kernel(rows)
        case.kernel(rows, rows[:3])
        resolved = case.kernel.resolve(rows)
        if not isinstance(resolved, rk.Linear):  # which has at most 4 columns
            resolved.feature_variance(rows[:3], n_components=8)
    np.testing.assert_array_equal(rows, before)


# -- far, huge, tiny, equal ----------------------------------------------------


@EVERY_STATIONARY
def test_far_from_the_origin_nothing_cancels(kernel):
    shift = 2.0**20  # so that the shifted rows are known to 2⁻³²
    rows = np.round(X * 2**20) / 2**20
    np.testing.assert_allclose(kernel(rows + shift), kernel(rows), rtol=1e-8)
    others = np.round(Y * 2**20) / 2**20
    np.testing.assert_allclose(
        kernel(rows + shift, others + shift), kernel(rows, others), rtol=1e-8
    )


@EVERY_STATIONARY
@pytest.mark.parametrize("outlier", [1e4, 1e200])
def test_an_outlier_changes_no_other_value(kernel, outlier):
    rows = np.vstack([X, np.full((1, 4), outlier)])
    gram = kernel(rows)
    np.testing.assert_allclose(gram[:-1, :-1], kernel(X), rtol=1e-11, atol=1e-13)
    assert np.all(gram[-1, :-1] < 1e-2)


@pytest.mark.slow
@EVERY_STATIONARY
@pytest.mark.parametrize("scale", [1e-3, 100.0])
def test_equal_rows_have_the_value_one(kernel, scale):
    """Rough kernels take the root of a distance that must not be rounding."""
    rows = RNG.normal(size=(60, 20)) * scale
    np.testing.assert_allclose(np.diag(kernel(rows, rows.copy())), 1.0, rtol=1e-12)
    twice = np.vstack([rows, rows])
    np.testing.assert_allclose(np.diag(kernel(twice)[:60, 60:]), 1.0, rtol=1e-12)
    sparse = sp.csr_array(rows)
    np.testing.assert_allclose(np.diag(kernel(sparse, rows)), 1.0, rtol=1e-12)


@EVERY_STATIONARY
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_huge_and_tiny_rows(kernel, container):
    gram = kernel(container(X * 1e200))
    np.testing.assert_array_equal(np.diag(gram), 1.0)
    assert np.all(gram[~np.eye(30, dtype=bool)] < 1e-100)
    np.testing.assert_allclose(kernel(container(X * 1e-200)), 1.0, rtol=1e-9)
    huge = clone(kernel).set_params(lengthscale=kernel.lengthscale * 1e200)
    np.testing.assert_allclose(huge(container(X * 1e200)), kernel(X), rtol=1e-11)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("degree", [0.5, 1, 2, 3])
def test_optical_at_extreme_scales(degree, container):
    for scale in (1e200, 1e-200, 1e-310):
        rows = X * scale
        if scale > 1 and degree > 0.5:
            with pytest.raises(
                ValueError, match=r"k\(x, x\) is up to.*scale the input"
            ):
                rk.Optical(degree)(container(rows))
            continue
        gram = rk.Optical(degree)(container(rows))
        assert np.all(np.isfinite(gram))
        if degree == 0.5 and scale != 1e-310:
            np.testing.assert_allclose(gram / scale, rk.Optical(0.5)(X), rtol=1e-11)


def test_overflow_is_an_error_that_says_what_to_do():
    for kernel in (rk.Linear(), rk.Optical(2), rk.Linear() * rk.Linear()):
        with pytest.raises(ValueError, match="scale the input down"):
            kernel(X * 1e200)
    with pytest.raises(ValueError, match="float32.*use float64"):
        rk.Optical(4)((X * 1e10).astype(np.float32))


@pytest.mark.slow
@given(
    rows=hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 5)),
        elements=st.floats(-1e8, 1e8),
    ),
    name=st.sampled_from(sorted(STATIONARY)),
)
def test_stationary_values_lie_between_zero_and_one(rows, name):
    gram = STATIONARY[name](rows)
    assert gram.shape == (len(rows), len(rows))
    assert np.all((gram >= 0) & (gram <= 1))
    np.testing.assert_array_equal(np.diag(gram), 1.0)


# -- the variance of features ---------------------------------------------------


def test_variance_formulas():
    """(1 + K(2τ) − 2K²)/D, (1 + K(2τ)/2 − K²)/D, and (K_2m − K_m²)/D."""
    for kernel in STATIONARY.values():
        value, double = kernel(X, Y), kernel(2 * X, 2 * Y)
        np.testing.assert_allclose(
            kernel.feature_variance(X, Y, 10), (1 + double - 2 * value**2) / 10, 1e-9
        )
        np.testing.assert_allclose(
            kernel.feature_variance(X, Y, 10, fourier="offset"),
            (1 + double / 2 - value**2) / 10,
        )
    # With D odd the last column is an offset: one of three, and the only one.
    value, double = rk.Matern()(X, Y), rk.Matern()(2 * X, 2 * Y)
    offset = 1 + double / 2 - value**2
    pairs = 2 * (1 + double - 2 * value**2)
    for n_components, expected in ((1, offset), (3, (pairs + offset) / 9)):
        got = rk.Matern().feature_variance(X, Y, n_components)
        np.testing.assert_allclose(got, expected, 1e-9)
    gaussian = rk.Gaussian()(X, Y)
    np.testing.assert_allclose(
        rk.Gaussian().feature_variance(X, Y, 2), (1 - gaussian**2) ** 2 / 2, 1e-9
    )
    unit = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    c = unit @ unit.T
    np.testing.assert_allclose(
        rk.Optical(2).feature_variance(unit, n_components=5),
        (3 + 14 * c**2 + 3 * c**4) / 5,
    )
    # As many columns as the rows have: the features are exact.
    exact = rk.Linear().feature_variance(X, Y, X.shape[1])
    np.testing.assert_array_equal(exact, 0.0)
    assert (rk.Linear().feature_variance(X, Y, X.shape[1] - 1) > 0).all()
    for degree, relative in ((1, 1), (2, 5), (3, 19), (4, 69)):
        value = rk.Optical(degree)(unit)[0, 0]
        at_x = rk.Optical(degree).feature_variance(unit, n_components=1)[0, 0]
        assert np.isclose(at_x / value**2, relative)
