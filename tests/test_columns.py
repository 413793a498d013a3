"""Columns of tables by the types of their values, and targets that are refused."""

import datetime

import numpy as np
import pytest

pytest.importorskip("pandas")
import pandas as pd

import randkern as rk

N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
Y = X[:, 0] + X[:, 1] ** 2


def ridge():
    return rk.KernelRidgeRegressor(n_components=None)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (ridge(), Y),
        (rk.TabularRegressor(time_limit=0.5, random_state=0), Y),
        (rk.TabularEncoder(), None),
        (rk.RandomFeatures(n_components=10), None),
    ],
)
@pytest.mark.parametrize("names", [[0, 1, 2], [("a", 0), ("a", 1), ("b", 0)]])
def test_names_that_are_not_strings_are_compared(model, targets, names):
    table = pd.DataFrame(X)
    table.columns = (
        pd.Index(names) if names[0] == 0 else pd.MultiIndex.from_tuples(names)
    )
    model.fit(table, targets)
    use = getattr(model, "predict", None) or model.transform
    np.testing.assert_array_equal(use(table), use(X))  # arrays have no names
    with pytest.raises(ValueError, match="columns in another order"):
        use(table[table.columns[::-1]])
    with pytest.raises(ValueError, match="has columns that it lacked"):
        use(table.set_axis(["x", "y", "z"], axis=1))
    # A fit to an array forgets them.
    model.fit(X, targets)
    use(table[table.columns[::-1]])


def test_a_column_that_was_empty_is_ignored():
    table = pd.DataFrame({"x": X[:, 0], "note": np.nan})
    encoder = rk.TabularEncoder().fit(table)
    later = table.assign(note=["seen"] * N)
    with pytest.warns(UserWarning, match="'note' was empty .* is ignored"):
        found = encoder.transform(later)
    np.testing.assert_array_equal(found, encoder.transform(table))


def test_unknown_categories_alone_are_named_beside_a_known_one():
    table = pd.DataFrame({"colour": ["red", "blue"] * 20, "size": ["L", "M"] * 20})
    encoder = rk.TabularEncoder().fit(table)
    with pytest.warns(UserWarning, match="'colour' holds no value .*'blue', .*'RED '"):
        encoder.transform(table.assign(colour="RED "))


def test_kernels_refuse_categories_of_another_type():
    table = pd.DataFrame({"x": X[:, 0], "c": ["2", "1"] * (N // 2)})
    kernel = rk.Categorical(columns=["c"]) + rk.Gaussian(columns=["x"])
    model = rk.KernelRidgeRegressor(kernel, n_components=None).fit(table, Y)
    with pytest.raises(ValueError, match="'c' holds no value .* '1', but .* 2; conv"):
        model.predict(table.assign(c=[2, 1] * (N // 2)))


@pytest.mark.filterwarnings("error")
def test_one_known_category_is_enough():
    table = pd.DataFrame({"colour": ["red", "blue", "red"] * 20})
    encoder = rk.TabularEncoder().fit(table)
    rows = pd.DataFrame({"colour": ["RED", "blue", None]})
    encoder.transform(rows)
    encoder.transform(pd.DataFrame({"colour": [None, None]}, dtype=object))


def test_intervals_are_saved_and_loaded(tmp_path):
    pytest.importorskip("skops")
    table = pd.DataFrame({"x": X[:, 0], "bin": pd.cut(X[:, 1], 4)})
    model = rk.TabularRegressor(time_limit=0.5, random_state=0).fit(table, Y)
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


def test_large_integers_are_different_categories():
    ids = pd.Series(pd.Categorical([2**53, 2**53 + 1, None, 2**53] * 10))
    table = pd.DataFrame({"id": ids})
    codes = rk.TabularEncoder().fit_transform(table)
    assert len(np.unique(codes, axis=0)) == 3


def test_offsets_from_utc():
    texts = ["2026-01-01T00:00+01:00", "2026-01-01T00:00+03:00"] * 20
    dates = [datetime.datetime.fromisoformat(text) for text in texts]
    table = pd.DataFrame({"when": pd.Series(dates, dtype=object)})
    codes = rk.TabularEncoder().fit_transform(table)
    np.testing.assert_allclose(codes[:, 0], [1.0, -1.0] * 20)
    naive = [date.replace(tzinfo=None) for date in dates[:20]] + dates[20:]
    table = pd.DataFrame({"when": pd.Series(naive, dtype=object)})
    with pytest.raises(ValueError, match="column 'when' mixes dates.* row 0 holds"):
        rk.TabularEncoder().fit(table)


@pytest.mark.parametrize("dtype", ["object", "str", "string"])
def test_columns_without_a_value_are_ignored(dtype):
    table = pd.DataFrame({"a": X[:, 0], "e": pd.Series([None] * N, dtype=dtype)})
    encoder = rk.TabularEncoder().fit(table)
    assert encoder.transform(table).shape == (N, 1)
    assert encoder.transform(table.assign(e=np.nan)).shape == (N, 1)


def test_null_columns_of_polars_are_ignored():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"a": X[:, 0], "e": [None] * N})
    assert rk.TabularEncoder().fit_transform(table).shape == (N, 1)


def test_texts_of_polars_that_are_all_missing_are_missing_numbers():
    polars = pytest.importorskip("polars")
    encoder = rk.TabularEncoder().fit(polars.DataFrame({"a": X[:, 0], "b": X[:, 1]}))
    empty = polars.Series("b", [None] * N, dtype=polars.String)
    rows = encoder.transform(polars.DataFrame({"a": X[:, 0], "b": empty}))
    expected = encoder.transform(pd.DataFrame({"a": X[:, 0], "b": np.nan}))
    np.testing.assert_array_equal(rows, expected)


def test_booleans_and_empty_columns_of_objects_are_numbers():
    flags = np.array([True, None, False, True] * (N // 4), dtype=object)
    table = pd.DataFrame({"a": X[:, 0], "flag": flags, "empty": [None] * N})
    encoder = rk.TabularEncoder().fit(table)
    numbers = table.assign(flag=table["flag"].astype(float), empty=np.nan)
    again = rk.TabularEncoder().fit(numbers)
    np.testing.assert_array_equal(encoder.transform(table), again.transform(numbers))
    with pytest.warns(UserWarning, match="'empty' was empty"):
        filled = encoder.transform(table.assign(empty="3 kg"))
    np.testing.assert_array_equal(filled, encoder.transform(table))
