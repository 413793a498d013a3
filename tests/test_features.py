"""`RandomFeatures` as a transformer: containers, tables, pipelines, bad input."""

import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import skops.io
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

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


@pytest.mark.nightly
@parametrize_with_checks([rk.RandomFeatures()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        features(rk.Laplacian("median"), 7, fourier="offset"),
        features(rk.Optical(1, 1.0), 30, centered=True),
        features(rk.Gaussian("scale") * rk.Matern(0.7), 11, projection="qmc"),
    ]
)
def test_scikit_learn_conventions_of_the_others(estimator, check):
    check(estimator)


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


@EVERY_KERNEL
def test_copies(name):
    """Fitted copies give the same features; a clone is one that is not fitted."""
    transformer = of_case(name).fit(POINTS)
    Z = transformer.transform(POINTS)
    again = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(again.transform(POINTS), Z)
    cloned = clone(transformer)
    assert not hasattr(cloned, "plan_")
    np.testing.assert_array_equal(cloned.fit_transform(POINTS), Z)


@pytest.mark.slow
@EVERY_KERNEL
def test_skops_round_trip(name):
    transformer = of_case(name).fit(POINTS)
    dumped = skops.io.dumps(transformer)
    trusted = skops.io.get_untrusted_types(data=dumped)
    loaded = skops.io.loads(dumped, trusted=trusted)
    np.testing.assert_array_equal(
        loaded.transform(POINTS), transformer.transform(POINTS)
    )


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


@pytest.mark.nightly
@given(
    n_rows=st.integers(1, 9),
    width=st.integers(1, 9),
    n_components=st.integers(3, 40),
    exponent=st.integers(-30, 30),
    name=st.sampled_from(["gaussian", "laplacian", "matern", "optical", "sum"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_any_shape_and_scale(n_rows, width, n_components, exponent, name, dtype):
    kernel = {
        "gaussian": rk.Gaussian("scale"),
        "laplacian": rk.Laplacian("median"),
        "matern": rk.Matern(0.3, "scale"),
        "optical": rk.Optical(1, 1.0),
        "sum": rk.Gaussian("scale") + rk.Linear(),
    }[name]
    if name in ("sum", "optical"):
        exponent = min(exponent, 15)  # k(x, x) is the square of a row
    rows = np.random.default_rng(n_rows).normal(size=(n_rows, width))
    rows = (rows * 10.0**exponent).astype(dtype)
    Z = features(kernel, n_components).fit_transform(rows)
    assert Z.shape == (n_rows, n_components)
    assert Z.dtype == dtype
    assert np.all(np.isfinite(Z))


# -- output --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
)
def test_set_output(container, frame):
    transformer = features(rk.Gaussian(), 3).set_output(transform=container)
    for rows in (X, pd.DataFrame(X, columns=list("abcd")), pl.DataFrame(X)):
        out = transformer.fit_transform(rows)
        assert isinstance(out, frame)
        assert list(out.columns) == [f"randomfeatures{i}" for i in range(3)]
    expected = features(rk.Gaussian(), 3).fit_transform(X)
    np.testing.assert_array_equal(transformer.transform(pl.DataFrame(X)), expected)
    table = transformer.fit_transform(pd.DataFrame(X, index=range(100, 140)))
    if container == "pandas":
        assert list(table.index) == list(range(100, 140))


def test_names_of_the_features():
    names = features(rk.Gaussian(), 5).fit(X).get_feature_names_out()
    assert list(names) == [f"randomfeatures{i}" for i in range(5)]
    assert names.dtype == object


# -- input ---------------------------------------------------------------------


@pytest.mark.slow
@EVERY_KERNEL
@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix])
def test_sparse_rows(name, container):
    rows = np.where(RNG.random((30, 4)) < 0.4, 1.0, 0.0)
    transformer = of_case(name)
    np.testing.assert_allclose(
        transformer.fit_transform(container(rows)),
        of_case(name).fit_transform(rows),
        rtol=1e-9,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        transformer.transform(container(rows)), transformer.transform(rows), atol=1e-12
    )


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
    "rows",
    [
        X[:1],
        X[:, :1],
        X[:1, :1],
        np.zeros((5, 3)),
        np.ones((5, 2)),
        np.full((4, 1), -2.5),
    ],
    ids=["one row", "one column", "one number", "zeros", "constant", "constant column"],
)
def test_degenerate_rows(rows):
    for kernel in (
        None,
        rk.Laplacian("median"),
        rk.Optical(2),
        rk.Matern(0.7, "scale"),
    ):
        for n_components in (1, 2, 5):
            Z = features(kernel, n_components).fit_transform(rows)
            assert Z.shape == (len(rows), n_components)
            assert np.all(np.isfinite(Z))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X[0], "2D array"),
        (np.where(X > 2, np.nan, X), "NaN"),
        (np.where(X > 2, -np.inf, X), "infinity"),
        (sp.csr_array(np.where(X > 2, np.nan, X)), "NaN"),
        (X[:0], "0 sample"),
        (X[:, :0], "0 feature"),
        (X * 1j, "[Cc]omplex"),
        ([["a", "b"]], "convert string"),
        (X[:, :, None], "dim"),
    ],
)
def test_bad_rows(rows, message):
    with pytest.raises(ValueError, match=message):
        features().fit(rows)
    transformer = features().fit(X)
    with pytest.raises(ValueError, match=message):
        transformer.transform(rows)


def test_wrong_width():
    transformer = features().fit(X)
    for rows in (X[:, :3], np.hstack([X, X]), sp.csr_array(X[:, :2])):
        with pytest.raises(ValueError, match="features.*expecting 4"):
            transformer.transform(rows)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kernel": "rbf"}, "kernel"),
        ({"kernel": rk.Gaussian}, "kernel"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": -3}, "n_components"),
        ({"n_components": 10.0}, "n_components"),
        ({"n_components": None}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"projection": "sorf"}, "projection"),
        ({"projection": None}, "projection"),
        ({"fourier": "cos"}, "fourier"),
        ({"centered": 1}, "centered"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": 0.5}, "random_state"),
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

RULES = pytest.mark.parametrize(
    "kernel",
    [None, rk.Laplacian("median"), rk.Gaussian("scale") + 0.5 * rk.Optical(2)],
    ids=["scale", "median", "sum"],
)


@RULES
def test_zero_weights_are_ignored(kernel):
    weight = np.repeat([2.0, 0.0], 20)
    rows = X.copy()
    rows[20:] *= 1e5
    one = features(kernel).fit(rows, sample_weight=weight).transform(X)
    other = features(kernel).fit(X[:20]).transform(X)
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(
    "kernel", [None, rk.Gaussian("scale") + 0.5 * rk.Optical(2)], ids=["scale", "sum"]
)
def test_weights_are_repetitions(kernel):
    weight = RNG.integers(1, 5, size=40)
    one = features(kernel).fit(X, sample_weight=weight).transform(X)
    other = features(kernel).fit(np.repeat(X, weight, axis=0)).transform(X)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(39), "sample_weight"),
        (-np.ones(40), "[Nn]egative"),
        (np.full(40, np.nan), "NaN"),
        (np.zeros(40), "zero"),
    ],
)
def test_wrong_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        features().fit(X, sample_weight=weight)


# -- pipelines -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "grid"),
    [
        (rk.Gaussian(), {"kernel__lengthscale": [0.05, 3.0, "scale"]}),
        (rk.Optical(), {"kernel__degree": [1, 2, 2.5], "kernel__bias": [0.0, 1.0]}),
        (
            rk.Gaussian() + 0.5 * rk.Linear(),
            {"kernel__k1__lengthscale": [0.05, 3.0], "kernel__k2__scale": [0.1, 1.0]},
        ),
        (rk.Gaussian("scale"), {"kernel": [rk.Laplacian("scale"), rk.Matern(2.5)]}),
        (None, {"n_components": [3, 150], "fourier": ["pair", "offset"]}),
    ],
    ids=["lengthscale", "degree", "nested", "kernels", "columns"],
)
def test_grid_search_in_a_pipeline(kernel, grid):
    rows, target = make_friedman1(150, n_features=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), features(kernel, 80), Ridge(alpha=1e-2))
    search = GridSearchCV(
        pipeline,
        {f"randomfeatures__{key}": values for key, values in grid.items()},
        cv=3,
        error_score="raise",
    ).fit(rows, target)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(np.isfinite(scores))
    assert len(set(scores)) == len(scores)
    assert search.best_score_ > 0.5
    assert search.predict(rows).shape == (150,)


def test_parameters_reach_the_kernel():
    transformer = features(2.0 * rk.Gaussian(1.0) + rk.Optical())
    transformer.set_params(kernel__k1__kernel__lengthscale=3.0, kernel__k2__degree=1)
    assert transformer.kernel.k1.kernel.lengthscale == 3.0
    assert transformer.get_params()["kernel__k2__degree"] == 1
    with pytest.raises(ValueError, match="Invalid parameter 'gamma'"):
        transformer.set_params(kernel__k2__gamma=1)


def test_the_kernel_is_not_changed_by_fit():
    kernel = rk.Gaussian("scale") * rk.Categorical(columns=[3])
    rows = np.hstack([X[:, :3], RNG.integers(3, size=(40, 1))])
    transformer = features(kernel).fit(rows)
    assert transformer.kernel is kernel
    assert kernel.k1.lengthscale == "scale"
    assert kernel.k2.categories == "auto"
    assert isinstance(transformer.kernel_.k1.lengthscale, float)
