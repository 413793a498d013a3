"""`RandomFeatures` as a transformer: containers, tables, pipelines, bad input."""

import io
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import randkern as rk
from _cases import (
    FIRST,
    KERNELS,
    POINTS,
    PROJECTIONS,
    SECOND,
    admits,
    exact,
    size,
    variance,
    z_bound,
)

RNG = np.random.default_rng(31)
X = RNG.normal(size=(40, 4))
EVERY_KERNEL = pytest.mark.parametrize("name", KERNELS)


def features(kernel=None, n_components=20, **options):
    return rk.RandomFeatures(kernel, n_components, **({"random_state": 0} | options))


def of_case(name, n_components=20):
    """Features of a kernel of the suite (a dot product has 4 columns at most)."""
    kernel = KERNELS[name].kernel
    return features(kernel, 4 if isinstance(kernel, rk.Linear) else n_components)


# -- the features --------------------------------------------------------------


@pytest.mark.slow
@EVERY_KERNEL
def test_shape_dtype_and_seed(name):
    transformer = of_case(name)
    Z = transformer.fit_transform(POINTS)
    assert Z.shape == (6, transformer.n_components)
    assert Z.dtype == np.float64
    np.testing.assert_array_equal(Z, of_case(name).fit_transform(POINTS))
    np.testing.assert_allclose(Z[2:4], transformer.transform(POINTS[2:4]), rtol=1e-9)
    single = POINTS.astype(np.float32)
    assert transformer.transform(single).dtype == np.float32
    np.testing.assert_allclose(transformer.transform(single), Z, atol=2e-4)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_fitted_map_is_kilobytes(projection):
    transformer = features(rk.Gaussian(), 10**6, projection=projection).fit(X)
    buffer = io.BytesIO()
    pickle.dump(transformer, buffer)
    assert buffer.tell() < 10_000


CLASSES = {name: name.title() for name in PROJECTIONS} | {"qmc": "QuasiMonteCarlo"}


@pytest.mark.nightly
@pytest.mark.parametrize("projection", ["auto", *PROJECTIONS])
@pytest.mark.parametrize("fourier", ["pair", "offset"])
def test_projections_by_name(projection, fourier):
    """Every one approximates the kernel within the variance of independent draws."""
    _, bias = PROJECTIONS.get(projection, (True, 0.0))
    D, bound = 10_000, z_bound(31 * len(FIRST))
    for name in ("gaussian", "laplacian", "optical-1-bias"):
        case = KERNELS[name]
        if projection != "auto" and not admits(projection, case):
            continue
        fitted = features(case.kernel, D, projection=projection, fourier=fourier)
        Z = fitted.fit_transform(POINTS)
        created = type(fitted.plan_.groups[0].factors[0].projection).__name__
        assert created == CLASSES.get(projection, created)
        error = np.abs((Z @ Z.T)[FIRST, SECOND] - exact(case))
        spread = np.sqrt(variance(case, D, fourier))
        assert np.all(error <= bound * spread + bias * size(case) + 1e-9)


def test_no_kernel_is_a_gaussian_of_the_scale():
    transformer = features(None).fit(X)
    assert transformer.kernel is None
    assert transformer.kernel_.lengthscale == pytest.approx(np.sqrt(4 * X.var() / 2))
    expected = features(transformer.kernel_).fit_transform(X)
    np.testing.assert_array_equal(transformer.transform(X), expected)


def test_the_seed():
    for seed in (np.random.RandomState(3), np.random.default_rng(3)):
        one = features(random_state=seed).fit_transform(X)
        other = features(random_state=seed).fit_transform(X)
        assert np.abs(one - other).max() > 0.1
    fresh = [features(random_state=None).fit_transform(X) for _ in range(2)]
    assert np.abs(fresh[0] - fresh[1]).max() > 0.1
    # The features of one seed do not depend on the rows of `fit`.
    fixed = rk.Gaussian(2.0)
    np.testing.assert_array_equal(
        features(fixed).fit(X[:3]).transform(X), features(fixed).fit_transform(X)
    )


# -- output --------------------------------------------------------------------


# -- input ---------------------------------------------------------------------


@pytest.mark.slow
def test_wide_sparse_rows_are_not_densified():
    rows = sp.random_array((50, 200_000), density=1e-4, rng=RNG, format="csr")
    for projection in ("streamed", "structured"):
        transformer = features(rk.Gaussian(3.0), 16, projection=projection)
        part = rows[:, :2_000]
        Z = transformer.fit_transform(part)
        np.testing.assert_allclose(Z, transformer.transform(part.toarray()), atol=1e-12)
        assert features(rk.Gaussian(3.0), 4, projection=projection).fit_transform(
            rows
        ).shape == (50, 4)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kernel": "rbf"}, "kernel"),
        ({"n_components": 0}, "n_components"),
        ({"projection": "sorf"}, "projection"),
        ({"fourier": "cos"}, "fourier"),
        ({"centered": 1}, "centered"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_wrong_arguments(options, name):
    with pytest.raises(ValueError, match=name):
        features(**options).fit(X)


@pytest.mark.parametrize(
    ("kernel", "n_components", "message"),
    [
        (rk.Gaussian() + rk.Linear() + rk.Optical(), 2, "fewer than the 3 terms"),
        (
            (rk.Gaussian() + rk.Linear()) * rk.Sum(rk.Cauchy(), rk.Linear()),
            3,
            "4 terms",
        ),
        (rk.Linear(), 5, "exactly 4 features.*use at most 4"),
        (rk.Gaussian([1.0, 2.0]), 10, "2 entries, but .* reads 4 columns"),
        (rk.Gaussian(columns=[7]), 10, "column 7, but the input has 4"),
        (rk.Gaussian("max"), 10, "'scale', 'median'"),
    ],
)
def test_kernels_that_do_not_fit(kernel, n_components, message):
    with pytest.raises(ValueError, match=message):
        features(kernel, n_components).fit(X)


def test_huge_rows_are_an_error_or_right():
    for kernel in (rk.Optical(2), rk.Linear(), rk.Gaussian() + rk.Optical(3)):
        with pytest.raises(ValueError, match="scale the input down"):
            features(kernel, 4).fit(X * 1e200)
    # The lengthscale grows with the rows: the features are the same.
    scaled = features(rk.Gaussian("scale"))
    np.testing.assert_allclose(
        scaled.fit_transform(X * 1e200), scaled.fit_transform(X), atol=1e-12
    )


def test_a_later_term_that_overflows():
    transformer = features(rk.Gaussian() + 1e-6 * rk.Optical(4), 300).fit(X)
    assert transformer.plan_.groups[0].width > 100
    with pytest.raises(ValueError, match="features overflow"):
        transformer.transform(1e100 * X)


def test_rows_whose_squares_leave_the_range_are_refused():
    """Also where k(x, x) = ‖x‖·Γ(1.5) is an ordinary number."""
    for scale, dtype in ((1e25, np.float32), (1e-25, np.float32), (1e200, np.float64)):
        advice = "up" if scale < 1 else "down"
        with pytest.raises(ValueError, match=f"scale the input {advice}"):
            features(rk.Optical(0.5)).fit_transform((X * scale).astype(dtype))


# -- weights -------------------------------------------------------------------


# -- pipelines -----------------------------------------------------------------


def test_the_kernel_is_not_changed_by_fit():
    kernel = rk.Gaussian("scale") * rk.Categorical(columns=[3])
    rows = np.hstack([X[:, :3], RNG.integers(3, size=(40, 1))])
    transformer = features(kernel).fit(rows)
    assert transformer.kernel is kernel
    assert kernel.k1.lengthscale == "scale"
    assert kernel.k2.categories == "auto"
    assert isinstance(transformer.kernel_.k1.lengthscale, float)
