"""Checks at the public boundary: what passes, and what the errors say."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

import randkern as rk
from randkern._tables import TableEncoder, column_names
from randkern._validation import (
    check_choice,
    check_count,
    check_kernel_rows,
    check_positive,
    check_weights,
    densify,
    validate_rows,
)

VALUES = {
    "size": [1.0, 2.5, -3.0, 0.0],
    "town": ["Oslo", "Bonn", None, "Oslo"],
    "count": [1, 2, 3, 4],
    "open": [True, False, True, True],
}
TABLE = pd.DataFrame(VALUES)
# Codes are in sorted order; a missing category has a code of its own.
CODES = np.array([[1, 1, 1, 1], [2.5, 0, 2, 0], [-3, 2, 3, 1], [0, 1, 4, 1]])
EVERY_TABLE = pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.astype({"town": "category"}),
        TABLE.astype({"town": object}),
        TABLE.astype({"town": "string", "count": "Int64", "open": "boolean"}),
        pl.DataFrame(VALUES),
        pl.DataFrame(VALUES).with_columns(pl.col("town").cast(pl.Categorical)),
    ],
    ids=["pandas", "categorical", "object", "nullable", "polars", "polars-categorical"],
)


class Reader(BaseEstimator):
    """The least that `validate_rows` needs."""


# -- scalars -------------------------------------------------------------------


@given(st.floats(min_value=1e-300, max_value=1e300) | st.integers(1, 10**9))
def test_positive_numbers_pass(value):
    assert check_positive("alpha", value) == float(value)
    assert isinstance(check_positive("alpha", value), float)


def test_numbers_of_numpy_pass():
    assert check_positive("alpha", np.float32(0.5)) == 0.5
    assert check_positive("alpha", np.int8(3)) == 3.0
    assert check_positive("bias", 0, zero=True) == 0.0


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, True, None, "1", [1.0], 1j])
def test_other_numbers_fail(value):
    message = f"alpha must be a {{}} finite number, got {value!r}"
    for zero, bound in ((False, "positive"), (True, "non-negative")):
        with pytest.raises(ValueError) as error:
            check_positive("alpha", value, zero=zero)
        assert message.format(bound) in str(error.value)
    with pytest.raises(ValueError, match="positive"):
        check_positive("alpha", 0)


def test_counts():
    assert check_count("max_rows", np.int32(7)) == 7
    for wrong in (0, -2, 1.0, True, None, "3"):
        with pytest.raises(ValueError, match="max_rows must be a positive integer"):
            check_count("max_rows", wrong)


def test_choices():
    assert check_choice("fourier", "pair", ("pair", "offset")) == "pair"
    with pytest.raises(ValueError, match=r"one of \['pair', 'offset'\], got 'both'"):
        check_choice("fourier", "both", ("pair", "offset"))


def test_weights():
    X = np.ones((3, 2))
    assert check_weights(None, X) is None
    weights = check_weights([0, 1, 2], X)
    assert weights.dtype == np.float64
    for wrong, message in (
        (np.ones(2), "sample_weight"),
        ([1, -1, 1], "[Nn]egative"),
        ([0, 0, 0], "zero"),
        ([1, np.nan, 1], "NaN"),
        (np.ones((3, 1)), "1D|shape"),
    ):
        with pytest.raises(ValueError, match=message):
            check_weights(wrong, X)


# -- tables --------------------------------------------------------------------


@EVERY_TABLE
def test_tables_become_numbers(table):
    encoder = TableEncoder.of(table)
    assert encoder.encoded == (1,)
    np.testing.assert_array_equal(encoder.transform(table), CODES)
    assert column_names(table) == ["size", "town", "count", "open"]


@EVERY_TABLE
def test_unknown_values(table):
    encoder = TableEncoder.of(table[:2])
    codes = encoder.transform(table)[:, 1]
    np.testing.assert_array_equal(codes, [1, 0, -1, 1])
    towns = encoder.transform(TABLE.assign(town=["Rome", "Bonn", "Oslo", "Rome"]))
    np.testing.assert_array_equal(towns[:, 1], [-1, 0, 1, -1])
    nothing = encoder.transform(TABLE.assign(town=np.nan))
    assert len(set(nothing[:, 1])) == 1
    with pytest.raises(ValueError, match="'town' is int64 now, but held text"):
        encoder.transform(TABLE.assign(town=[1, 2, 3, 4]))


@EVERY_TABLE
def test_kernels_read_tables(table):
    kernel = rk.Categorical(columns=["town"])
    gram = kernel(table)
    np.testing.assert_array_equal(gram[0], [1, 0, 0, 1])
    np.testing.assert_array_equal(gram[2], [0, 0, 1, 0])  # missing equals missing
    features = rk.RandomFeatures(kernel, 2_000, random_state=0).fit(table)
    Z = features.transform(table)
    np.testing.assert_allclose(Z @ Z.T, gram, atol=0.15)


def test_missing_numbers_are_errors():
    kernel = rk.Gaussian(columns=["size"]) * rk.Categorical(columns=["town"])
    for table in (
        TABLE.assign(size=[1.0, np.nan, 2.0, 3.0]),
        TABLE.assign(size=pd.array([1, None, 2, 3], dtype="Int64")),
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
    table = TABLE.assign(when=column)
    with pytest.raises(ValueError, match=f"'when'.*{word}"):
        rk.Gaussian(columns=["size"])(table)
    with pytest.raises(ValueError, match=f"'when'.*{word}"):
        rk.RandomFeatures(rk.Gaussian(columns=["size"]), 4).fit(table)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([datetime.date(2020, 1, d) for d in (1, 2, 3, 4)]),
        pl.Series([datetime.timedelta(d) for d in (1, 2, 3, 4)]),
        pl.Series([datetime.time(d) for d in (1, 2, 3, 4)]),
    ],
    ids=["date", "duration", "time"],
)
def test_columns_of_other_types_in_polars(column):
    table = pl.DataFrame(VALUES).with_columns(when=column)
    with pytest.raises(ValueError, match="'when' holds .*convert"):
        rk.Gaussian(columns=["size"])(table)


def test_a_column_that_changes_its_type():
    kernel = rk.Gaussian(columns=["size"]) * rk.Categorical(columns=["town"])
    features = rk.RandomFeatures(kernel, 4, random_state=0).fit(TABLE)
    with pytest.raises(ValueError, match="column 'size' is .* but held numbers"):
        features.transform(TABLE.assign(size=list("abcd")))
    with pytest.raises(ValueError, match="expected a dataframe, got ndarray"):
        features.transform(CODES)
    with pytest.raises(ValueError, match="feature names"):
        features.transform(TABLE[["town", "size", "count", "open"]])


def test_tables_of_numbers_need_no_encoder():
    estimator = Reader()
    numbers = TABLE[["size", "count", "open"]]
    rows = validate_rows(estimator, numbers, reset=True)
    np.testing.assert_array_equal(rows, CODES[:, [0, 2, 3]])
    assert estimator.table_encoder_ is None
    assert list(estimator.feature_names_in_) == ["size", "count", "open"]


def test_names_that_are_numbers():
    table = TABLE[["size", "count"]].set_axis([0, 1], axis=1)
    assert column_names(table) is None
    assert column_names(CODES) is None
    np.testing.assert_array_equal(
        rk.Gaussian(columns=[1])(table), rk.Gaussian()(CODES[:, [2]])
    )


# -- arrays --------------------------------------------------------------------


def test_rows_have_one_dtype_and_order():
    single, double = CODES.astype(np.float32), CODES
    X, Y, _ = check_kernel_rows(single, double)
    assert X.dtype == Y.dtype == np.float64
    X, Y, _ = check_kernel_rows(single)
    assert X.dtype == np.float32 and Y is None
    for rows in (np.asfortranarray(double), double[::2], double[:, ::-1]):
        X, _, _ = check_kernel_rows(rows)
        assert X.flags.c_contiguous
        np.testing.assert_array_equal(X, rows)
    for rows in (double.astype(int), double.astype(np.float16), double > 0):
        assert check_kernel_rows(rows)[0].dtype == np.float64


@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix, sp.coo_matrix])
def test_sparse_rows_become_csr(container):
    X, _, _ = check_kernel_rows(container(CODES))
    assert X.format == "csr"
    np.testing.assert_array_equal(densify(X), CODES)


def test_widths():
    estimator = Reader()
    validate_rows(estimator, CODES, reset=True)
    assert estimator.n_features_in_ == 4
    with pytest.raises(ValueError, match="3 features.*expecting 4"):
        validate_rows(estimator, CODES[:, :3], reset=False)
    with pytest.raises(ValueError, match="4 columns but Y has 2"):
        check_kernel_rows(CODES, CODES[:, :2])
