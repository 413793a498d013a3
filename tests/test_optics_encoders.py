"""Encoders of numbers as bits."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from randkern.optics import BitPlaneEncoder, ThermometerEncoder, ThresholdBinarizer


def tables(dtype=np.float64):
    return npst.arrays(
        dtype,
        st.tuples(st.integers(1, 9), st.integers(1, 4)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    )


@given(tables())
def test_a_thermometer_fills_up(X):
    encoder = ThermometerEncoder(n_levels=5).fit(X)
    bits = encoder.transform(X).reshape(*X.shape, 5)
    assert np.all(np.diff(bits.astype(int), axis=2) <= 0)
    count = (X[:, :, None] > encoder.thresholds_).sum(axis=2)
    assert np.array_equal(bits.sum(axis=2), count)


def split(entries, threshold):
    """Variance within the two groups of entries."""
    groups = entries[entries <= threshold], entries[entries > threshold]
    return sum(len(g) * g.var() for g in groups if len(g))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
def test_otsu_splits_into_the_tightest_groups(rng, convert):
    X = np.where(rng.random((80, 6)) < 0.7, 0, rng.normal(9, 1, (80, 6)).clip(0))
    X += (X > 0) * rng.integers(0, 12, X.shape)
    result = ThresholdBinarizer().fit(convert(X)).threshold_
    best = min(split(X.ravel(), t) for t in X.ravel())
    # A histogram of 256 bins.
    assert split(X.ravel(), result) < 1.02 * best
    assert ThresholdBinarizer().fit(np.array([[0.0, 1.0]])).threshold_ == pytest.approx(
        0.5, abs=0.01
    )
    assert ThresholdBinarizer().fit(np.full((3, 2), 7.0)).threshold_ == 7.0


def test_median_of_what_is_not_zero():
    X = np.array([[0, 0, 1], [2, 0, 30]])
    for rows in (X, sp.csr_matrix(X)):
        assert ThresholdBinarizer("median").fit(rows).threshold_ == 2.0
    assert ThresholdBinarizer("median").fit(0 * X).threshold_ == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_compared_in_their_own_precision(dtype):
    X = np.array([[0.1, 0.2], [0, 0.3]], dtype=dtype)
    for threshold in (0.1, [0.1, 0.1]):
        encoder = ThresholdBinarizer(threshold).fit(X)
        for rows in (X, sp.csr_array(X)):
            bits = encoder.transform(rows)
            bits = bits.toarray() if sp.issparse(bits) else bits
            assert bits.tolist() == [[0, 1], [0, 1]]
    beyond = ThresholdBinarizer(1e300).fit_transform(X)
    assert not beyond.any()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_median_of_two_valued_images_keeps_bits_lit(rng, dtype, convert):
    lit = rng.random((40, 30)) < 0.3
    for value in (1, 255):
        X = convert((lit * value).astype(dtype))
        bits = ThresholdBinarizer("median").fit_transform(X)
        bits = bits.toarray() if sp.issparse(bits) else bits
        assert np.array_equal(bits, lit)
    three = np.array([[0, 7, 9, 9, 9]])
    assert ThresholdBinarizer("median").fit(three).threshold_ == 7
    assert ThresholdBinarizer("median").fit(-three).threshold_ == -9
    assert ThresholdBinarizer("median").fit([[-2.0, -2.0]]).threshold_ == -2


def test_zeros_do_not_repeat_shared_thresholds(rng):
    X = np.where(rng.random((300, 5)) < 0.8, 0, rng.integers(1, 256, (300, 5)))
    encoder = ThermometerEncoder(4, per_column=False).fit(X)
    expected = np.quantile(X[X > 0], [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(encoder.thresholds_[0], expected)
    for image in (255 * (X > 0), 0 * X):
        encoder.fit(image)
        assert not encoder.thresholds_.any()
        lit = encoder.transform(image).reshape(300, 5, 4)
        assert np.array_equal(lit[..., 3], image > 0)


def test_bit_planes_are_those_fitted():
    fitted = BitPlaneEncoder(2).fit([[10.0], [22.0]])
    assert fitted.transform([[10.0], [18.0], [22.0]]).tolist() == [
        [0, 0],
        [1, 0],
        [1, 1],
    ]
    encoder = BitPlaneEncoder(3).fit([[0.0], [7.0]])
    encoder.set_params(bits=5)
    assert encoder.transform([[5.0]]).tolist() == [[1, 0, 1]]
    assert len(encoder.get_feature_names_out()) == 3


def test_quantiles_and_uniform_thresholds(rng):
    X = rng.normal(size=(1000, 2)) * [1, 50]
    own = ThermometerEncoder(3).fit(X)
    np.testing.assert_allclose(own.thresholds_, np.quantile(X, [0.25, 0.5, 0.75], 0).T)
    shared = ThermometerEncoder(3, per_column=False).fit(X)
    assert np.array_equal(shared.thresholds_[0], shared.thresholds_[1])
    uniform = ThermometerEncoder(2, strategy="uniform").fit([[0.0, 2.0], [3.0, 8.0]])
    assert uniform.thresholds_.tolist() == [[1.0, 2.0], [4.0, 6.0]]


@pytest.mark.parametrize("bits", [1, 8, 13, 32])
def test_bit_planes_are_binary_digits(rng, bits):
    X = rng.integers(0, 2**bits, size=(50, 2))
    encoder = BitPlaneEncoder(bits, value_range=(0, 2**bits - 1))
    planes = encoder.fit_transform(X).reshape(50, 2, bits)
    weights = 2 ** np.arange(bits - 1, -1, -1, dtype=np.int64)
    assert np.array_equal(planes @ weights, X)
    beyond = encoder.transform(X * 0 + [[-5, 2.0**40]]).reshape(50, 2, bits)
    assert not beyond[:, 0].any()
    assert beyond[:, 1].all()


def test_tables_and_names():
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [5, 6, 7]})
    assert list(ThresholdBinarizer().fit(table).get_feature_names_out()) == ["a", "b"]
    names = ThermometerEncoder(2).fit(table).get_feature_names_out()
    assert list(names) == ["a_level0", "a_level1", "b_level0", "b_level1"]
    assert list(BitPlaneEncoder(2).fit(table).get_feature_names_out()) == [
        *("a_bit1", "a_bit0", "b_bit1", "b_bit0")
    ]
    framed = BitPlaneEncoder(2).set_output(transform="pandas").fit_transform(table)
    assert list(framed["a_bit1"]) == [0, 1, 1]


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (ThresholdBinarizer("best"), "threshold must be one of"),
        (ThresholdBinarizer(np.nan), "threshold must be"),
        (ThresholdBinarizer([1, 2, 3]), "each of the 2 columns"),
        (ThermometerEncoder(0), "n_levels"),
        (ThermometerEncoder(strategy="kmeans"), "strategy"),
        (BitPlaneEncoder(0), "bits"),
        (BitPlaneEncoder(33), "at most 32"),
        (BitPlaneEncoder(value_range=(1, 1)), "value_range"),
        (BitPlaneEncoder(value_range=(0, np.inf)), "value_range"),
        (BitPlaneEncoder(value_range="ab"), "value_range must be.*'ab'"),
        (BitPlaneEncoder(value_range=5), "value_range must be"),
        (BitPlaneEncoder(value_range=(0, None)), "value_range must be"),
    ],
)
def test_bad_parameters(encoder, message):
    with pytest.raises(ValueError, match=message):
        encoder.fit([[1.0, 2.0], [3.0, 4.0]])
