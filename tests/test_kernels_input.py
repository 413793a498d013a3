"""Kernels on dataframes and columns, and the errors of wrong arguments and rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import randkern as rk
from randkern.exceptions import UnresolvedKernelError

TOLERANCE = {"rtol": 1e-12, "atol": 1e-14}
RNG = np.random.default_rng(7)
X = RNG.normal(size=(30, 4))
Y = RNG.normal(size=(20, 4))

# -- dataframes and columns ----------------------------------------------------

TABLE = pd.DataFrame(
    {"age": X[:, 0], "city": list("abc" * 10), "income": X[:, 1], "x": X[:, 2]}
)
MIXED = rk.Gaussian(1.5, columns=["age", "income"]) * rk.Categorical(columns="city")


def test_dataframes_by_column_name():
    city = TABLE["city"].to_numpy()
    numbers = TABLE[["age", "income"]].to_numpy()
    expected = rk.Gaussian(1.5)(numbers) * (city[:, None] == city)
    for table in (TABLE, pl.DataFrame(TABLE.to_dict("list"))):
        np.testing.assert_allclose(MIXED(table), expected, **TOLERANCE)
        np.testing.assert_allclose(MIXED(table, table[:7]), expected[:, :7], rtol=1e-12)
        np.testing.assert_array_equal(MIXED.diag(table), 1.0)
    categories = TABLE.assign(city=TABLE["city"].astype("category"))
    np.testing.assert_allclose(MIXED(categories), expected, **TOLERANCE)


def test_values_that_only_one_table_has():
    other = TABLE[:3].assign(city=["a", "new", None])
    gram = MIXED(TABLE, other)
    assert np.all(gram[:, 1:] == 0)
    assert gram[0, 0] == 1
    features = rk.RandomFeatures(MIXED, 40_000, projection="dense", random_state=0)
    Z, known = features.fit(TABLE).transform(other), features.transform(TABLE)
    np.testing.assert_allclose(known @ Z.T, gram, atol=0.04)
    missing = TABLE.assign(city=[None] * 30)
    np.testing.assert_array_equal(rk.Categorical(columns=["city"])(missing), 1.0)


@pytest.mark.parametrize(
    "columns",
    [[0, 2], (0, 2), np.array([0, 2]), [0, -2], slice(0, 3, 2), [True, False] * 2],
    ids=str,
)
def test_ways_to_name_columns(columns):
    np.testing.assert_allclose(
        rk.Gaussian(columns=columns)(X), rk.Gaussian()(X[:, [0, 2]]), **TOLERANCE
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([4], "column 4, but the input has 4"),
        ([-5], "column -5"),
        ([], "selects no column"),
        (slice(2, 2), "selects no column"),
        ([True, False], "columns must be"),
        ([1.0], "columns must be"),
        (["age"], "no column names"),
        ([[0, 1]], "columns must be"),
    ],
)
def test_wrong_columns(columns, message):
    with pytest.raises(ValueError, match=message):
        rk.Gaussian(columns=columns)(X)


@pytest.mark.parametrize("columns", [None, slice(1, 2), [1]], ids=str)
def test_kernels_with_and_without_names_add(columns):
    numbers = TABLE[["age", "income"]]
    kernel = rk.Gaussian(2.0, columns=["age"]) + rk.Linear(columns=columns)
    numbered = rk.Gaussian(2.0, columns=[0]) + rk.Linear(columns=columns)
    np.testing.assert_array_equal(kernel(numbers), numbered(numbers))


def test_tables_must_match():
    numbers = TABLE[["age", "income"]]
    kernel = rk.Gaussian([1.0, 5.0])
    with pytest.raises(ValueError, match="dataframe"):
        kernel(numbers, numbers.to_numpy())
    with pytest.raises(ValueError, match="reads the column 'q'"):
        rk.Gaussian(columns=["q"])(numbers)
    # By position, "age" would be compared with "income".
    with pytest.raises(ValueError, match=r"column|name"):
        kernel(numbers, numbers[["income", "age"]])
    with pytest.raises(ValueError, match=r"column|name"):
        kernel(numbers, numbers.rename(columns={"age": "size"}))


@pytest.mark.parametrize(
    "kernel",
    [rk.Gaussian(), rk.Linear(), rk.Optical(), rk.Laplacian(columns=["city"])],
    ids=str,
)
def test_text_is_not_a_number(kernel):
    with pytest.raises(ValueError, match="city"):
        kernel(TABLE)


# -- wrong hyperparameters and input -------------------------------------------

NUMBERS = [0, np.nan, None, "big", [1.0, 2.0], True]
WRONG_NUMBERS = pytest.mark.parametrize("value", NUMBERS, ids=str)


@WRONG_NUMBERS
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("nu", lambda v: rk.Matern(v)),
        ("alpha", lambda v: rk.RationalQuadratic(v)),
        ("degree", lambda v: rk.Optical(v)),
        ("scale", lambda v: rk.Scaled(rk.Linear(), v)),
    ],
)
def test_wrong_hyperparameters(name, make, value):
    for kernel in (make(value), make(value) * rk.Gaussian(), rk.Linear() + make(value)):
        with pytest.raises(
            ValueError, match=f"{name} must be a positive finite number"
        ):
            kernel(X)
        with pytest.raises(ValueError, match=f"{name} must be"):
            rk.RandomFeatures(kernel, 10).fit(X)


@pytest.mark.parametrize("kernel", [rk.Gaussian, rk.Laplacian])
@pytest.mark.parametrize(
    "value",
    [*NUMBERS, np.inf, [1, 1, 1, 0], [[1.0] * 4], []],
    ids=str,
)
def test_wrong_lengthscale(kernel, value):
    for call in (kernel(lengthscale=value), rk.Linear() * kernel(lengthscale=value)):
        with pytest.raises(ValueError, match="lengthscale"):
            call(X)
        with pytest.raises(ValueError, match="lengthscale"):
            rk.RandomFeatures(call, 10).fit(X)


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_unresolved(rule):
    kernel = rk.Linear() + 2.0 * rk.Gaussian(rule)
    for call in (kernel, kernel.feature_variance):
        with pytest.raises(UnresolvedKernelError, match=r"call kernel.resolve\(X\)"):
            call(X)
    with pytest.raises(UnresolvedKernelError, match="categories"):
        rk.Categorical().feature_variance(X)


@pytest.mark.parametrize("wrong", [None, 2, "rbf", rk.Gaussian])
def test_algebra_of_kernels_only(wrong):
    for kernel in (rk.Sum(rk.Linear(), wrong), rk.Product(wrong, rk.Linear())):
        with pytest.raises(ValueError, match="k[12] of .* must be a kernel"):
            kernel(X)
    with pytest.raises(ValueError, match="kernel (of Scaled )?must be a kernel"):
        rk.Scaled(wrong, 2.0)(X)


@pytest.mark.parametrize(
    "categories",
    [
        "all",
        None,
        3,
        [np.array([0.0, 1.0])] * 3,
        [np.array([1.0, 0.0])] * 4,
        [np.array([0.0, 0.0])] * 4,
        [np.array(["a", "b"])] * 4,
        [np.array([0.0, np.nan])] * 4,
        [[]] * 4,
    ],
    ids=str,
)
def test_wrong_categories(categories):
    with pytest.raises(ValueError, match="categories must"):
        rk.RandomFeatures(rk.Categorical(categories=categories), 4).fit(X)


def test_widths_must_agree():
    with pytest.raises(ValueError, match="4 columns but Y has 3"):
        rk.Gaussian()(X, Y[:, :3])


@pytest.mark.parametrize("n_components", [0, -1, 2.5, True, "10", None])
def test_variance_of_a_wrong_number_of_columns(n_components):
    with pytest.raises(ValueError, match="n_components"):
        rk.Gaussian().feature_variance(X, n_components=n_components)


def test_variance_of_a_wrong_map():
    with pytest.raises(ValueError, match="fourier must be one of"):
        rk.Gaussian().feature_variance(X, fourier="cosine")


def test_kernels_of_scikit_learn_call_with_two_rows():
    from sklearn.cluster import SpectralClustering
    from sklearn.decomposition import KernelPCA
    from sklearn.kernel_ridge import KernelRidge

    X, kernel = np.random.default_rng(0).normal(size=(20, 3)), rk.Gaussian(2.0)
    gram = kernel(X)
    assert kernel(X[0], X[1]) == pytest.approx(gram[0, 1], rel=1e-12)
    got = KernelPCA(2, kernel=kernel).fit_transform(X)
    expected = KernelPCA(2, kernel="precomputed").fit_transform(gram)
    np.testing.assert_allclose(abs(got), abs(expected), atol=1e-10)
    got = KernelRidge(kernel=kernel).fit(X, X[:, 0]).predict(X)
    expected = KernelRidge(kernel="precomputed").fit(gram, X[:, 0]).predict(gram)
    np.testing.assert_allclose(got, expected, atol=1e-10)
    model = SpectralClustering(2, affinity=kernel, random_state=0).fit(X)
    np.testing.assert_allclose(model.affinity_matrix_, gram, atol=1e-12)


# -- columns of every type --------------------------------------------------------

VALUES = {
    "size": [1.0, 2.5, -3.0, 0.0],
    "town": ["Oslo", "Bonn", None, "Oslo"],
    "count": [1, 2, 3, 4],
    "open": [True, False, True, True],
}
TOWNS = pd.DataFrame(VALUES)
EVERY_TABLE = pytest.mark.parametrize(
    "table",
    [
        TOWNS,
        TOWNS.astype({"town": "category"}),
        TOWNS.astype({"town": object}),
        TOWNS.astype({"town": "string", "count": "Int64", "open": "boolean"}),
        pl.DataFrame(VALUES),
        pl.DataFrame(VALUES).with_columns(pl.col("town").cast(pl.Categorical)),
    ],
    ids=["pandas", "categorical", "object", "nullable", "polars", "polars-categorical"],
)


@EVERY_TABLE
def test_kernels_read_tables(table):
    kernel = rk.Categorical(columns=["town"])
    gram = kernel(table)
    np.testing.assert_array_equal(gram[0], [1, 0, 0, 1])
    np.testing.assert_array_equal(gram[2], [0, 0, 1, 0])  # missing equals missing
    features = rk.RandomFeatures(kernel, 2_000, random_state=0).fit(table)
    Z = features.transform(table)
    np.testing.assert_allclose(Z @ Z.T, gram, atol=0.15)


def test_categories_in_either_precision():
    """0.1 is another number in float32, but the same category."""
    rows = np.array([[0.1], [0.7], [3.0]])
    for one, other in ((rows, rows.astype("f")), (rows.astype("f"), rows)):
        features = rk.RandomFeatures(rk.Categorical(), 20, random_state=0).fit(one)
        np.testing.assert_allclose(
            features.transform(other), features.transform(one), atol=1e-6
        )


def test_missing_numbers_are_errors():
    kernel = rk.Gaussian(columns=["size"]) * rk.Categorical(columns=["town"])
    for table in (
        TOWNS.assign(size=[1.0, np.nan, 2.0, 3.0]),
        TOWNS.assign(size=pd.array([1, None, 2, 3], dtype="Int64")),
        pl.DataFrame(VALUES).with_columns(size=pl.Series([1.0, None, 2.0, 3.0])),
    ):
        for call in (kernel, rk.RandomFeatures(kernel, 4).fit):
            with pytest.raises(ValueError, match="NaN"):
                call(table)


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pd.date_range("2020-01-01", periods=4), "datetime"),
        (pd.to_timedelta([1, 2, 3, 4], unit="s"), "timedelta"),
        ([1j, 2j, 3j, 4j], "complex"),
        ([1, "a", 2.5, "b"], "mixes"),
    ],
    ids=["date", "timedelta", "complex", "mixed"],
)
def test_columns_of_other_types(column, word):
    table = TOWNS.assign(when=column)
    with pytest.raises(ValueError, match=f"'when'.*{word}"):
        rk.Gaussian(columns=["size"])(table)
    with pytest.raises(ValueError, match=f"'when'.*{word}"):
        rk.RandomFeatures(rk.Gaussian(columns=["size"]), 4).fit(table)


def test_a_column_that_changes_its_type():
    kernel = rk.Gaussian(columns=["size"]) * rk.Categorical(columns=["town"])
    features = rk.RandomFeatures(kernel, 4, random_state=0).fit(TOWNS)
    with pytest.raises(ValueError, match="column 'size' is .* but held numbers"):
        features.transform(TOWNS.assign(size=list("abcd")))
    with pytest.raises(ValueError, match="expected a dataframe, got ndarray"):
        features.transform(np.ones((4, 4)))
    with pytest.raises(ValueError, match="feature names"):
        features.transform(TOWNS[["town", "size", "count", "open"]])
