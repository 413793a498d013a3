"""`RandomFeatures` of tables: text beside numbers, columns by name, missing values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import randkern as rk

RNG = np.random.default_rng(32)
N = 40
X = RNG.normal(size=(N, 4))
TABLE = pd.DataFrame(
    {
        "age": X[:, 0],
        "city": RNG.choice(["Oslo", "Bonn", "Rome"], N),
        "income": 1e4 * X[:, 1],
        "job": RNG.choice(["a", "b"], N),
    }
)
POLARS = pl.DataFrame({name: list(TABLE[name]) for name in TABLE})
MIXED = rk.Gaussian("scale", columns=["age", "income"]) * rk.Categorical(
    columns=["city", "job"]
)


def features(kernel=None, n_components=20, **options):
    return rk.RandomFeatures(kernel, n_components, **({"random_state": 0} | options))


# -- tables of mixed type --------------------------------------------------------


@pytest.mark.parametrize("table", [TABLE, POLARS], ids=["pandas", "polars"])
def test_mixed_tables(table):
    transformer = features(MIXED, 20_000, projection="dense").fit(table)
    Z = transformer.transform(table)
    exact = MIXED.resolve(TABLE)(TABLE)
    share = np.mean(
        TABLE[["city", "job"]].to_numpy()[:, None]
        == TABLE[["city", "job"]].to_numpy()[None],
        axis=2,
    )
    numbers = TABLE[["age", "income"]].to_numpy()
    np.testing.assert_allclose(
        exact, rk.Gaussian("scale").resolve(numbers)(numbers) * share, rtol=1e-12
    )
    np.testing.assert_allclose(Z @ Z.T, exact, atol=0.05)
    assert list(transformer.feature_names_in_) == list(TABLE)
    np.testing.assert_array_equal(
        Z, features(MIXED, 20_000, projection="dense").fit_transform(TABLE)
    )


def test_categories_that_fit_did_not_see():
    transformer = features(MIXED, 40_000, projection="dense").fit(TABLE)
    other = TABLE[:4].assign(city=["Oslo", "Lima", None, "Lima"], job=list("abzz"))
    Z, known = transformer.transform(other), transformer.transform(TABLE)
    numbers = rk.Gaussian(transformer.kernel_.k1.lengthscale)(
        other[["age", "income"]].to_numpy(), TABLE[["age", "income"]].to_numpy()
    )
    share = sum(
        0.5 * (other[name].to_numpy()[:, None] == TABLE[name].to_numpy())
        for name in ("city", "job")
    )
    np.testing.assert_allclose(Z @ known.T, numbers * share, atol=0.04)


def test_missing_categories_are_a_category():
    table = TABLE.assign(city=["Oslo", None] * 20)
    kernel = rk.Categorical(columns=["city"])
    for rows in (table, pl.DataFrame({"city": ["Oslo", None] * 20})):
        Z = features(kernel, 3_000).fit_transform(rows)
        np.testing.assert_allclose((Z @ Z.T)[0], [1.0, 0.0] * 20, atol=0.1)


def test_categories_in_either_precision():
    """0.1 is another number in float32, but the same category."""
    rows = np.array([[0.1], [0.7], [3.0]])
    for one, other in ((rows, rows.astype(np.float32)), (rows.astype("f"), rows)):
        transformer = features(rk.Categorical()).fit(one)
        np.testing.assert_allclose(
            transformer.transform(other), transformer.transform(one), atol=1e-6
        )


def test_columns_by_name_and_number():
    table = pd.DataFrame(X, columns=list("abcd"))
    for columns in (["d", "b"], [3, 1], ["d", 1]):
        kernel = rk.Gaussian([1.0, 3.0], columns=columns)
        np.testing.assert_allclose(
            features(kernel).fit_transform(table),
            features(rk.Gaussian([1.0, 3.0])).fit_transform(X[:, [3, 1]]),
            rtol=1e-12,
        )
    with pytest.raises(ValueError, match="no column names"):
        features(rk.Gaussian(columns=["a"])).fit(X)
    with pytest.raises(ValueError, match="reads the column 'z'"):
        features(rk.Gaussian(columns=["z"])).fit(table)


def test_columns_that_moved():
    transformer = features(MIXED).fit(TABLE)
    with pytest.raises(ValueError, match="feature names"):
        transformer.transform(TABLE[["city", "age", "income", "job"]])
    with pytest.raises(ValueError, match="expected a dataframe"):
        transformer.transform(X)


def test_a_fitted_map_forgets_the_table():
    transformer = features(None).fit(TABLE[["age", "income"]])
    transformer.fit(X)
    assert not hasattr(transformer, "feature_names_in_")
    assert transformer.transform(X).shape == (40, 20)
