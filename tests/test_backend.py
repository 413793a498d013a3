"""Every primitive against its NumPy reference, and how matrices are distributed."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oracles import primitives as reference
from randkern.backend import blas, counter, cpu, pairwise
from randkern.backend.compiled_loops import on_one_thread

DTYPES = [np.float32, np.float64]
SHAPES = [(0, 5), (1, 1), (1, 7), (3, 1), (5, 0), (7, 33), (4, 2051)]
# Of a chi-square or Kolmogorov-Smirnov test at a fixed seed.
SMALLEST_P = 1e-6


def tolerance(dtype):
    """Return the bound on the absolute error of a cosine."""
    return 2.0**-22 if dtype == np.float32 else 4e-16


def strided(shape, dtype):
    """Return an output whose rows lie apart, and the whole array around it."""
    full = np.full((shape[0], shape[1] + 5), -77.0, dtype=dtype)
    return full[:, 2 : 2 + shape[1]], full


def read_only(array):
    array.flags.writeable = False
    return array


def sides_untouched(whole, n_columns):
    return np.all(whole[:, :2] == -77) and np.all(whole[:, 2 + n_columns :] == -77)


# Cosine and sine.


@numba.njit
def fast_cos_sin(x, cosine, sine):
    for i in range(x.shape[0]):
        cosine[i], sine[i] = cpu.cos_sin(x[i])


@numba.njit
def wide_cos_sin(x, cosine, sine):
    for i in range(x.shape[0]):
        cosine[i], sine[i] = cpu.cos_sin_wide(x[i])


@numba.njit
def compiled_is_fast(x):
    return cpu.is_fast(x)


def largest_error(function, x):
    cosine, sine = np.empty_like(x), np.empty_like(x)
    function(x, cosine, sine)
    exact = x.astype(np.longdouble)
    return max(
        np.max(np.abs(cosine - np.cos(exact))), np.max(np.abs(sine - np.sin(exact)))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [1.0, 100.0, 1e4, None])
def test_cos_sin_error(dtype, limit):
    fast_limit = cpu.FAST_LIMIT_F32 if dtype == np.float32 else cpu.FAST_LIMIT_F64
    limit = limit or float(fast_limit)
    x = np.random.default_rng(0).uniform(-limit, limit, 100_000)
    # Multiples of a quarter turn, where the reduction cancels most.
    multiples = np.arange(0, limit, np.pi / 2)[-10_000:]
    x = np.concatenate([x, multiples, -multiples, [0.0, -0.0, limit, -limit]])
    x = x.astype(dtype)
    assert compiled_is_fast(x)
    assert largest_error(fast_cos_sin, x) <= tolerance(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_cos_sin_wide_error(dtype):
    largest = np.log10(np.finfo(dtype).max)
    rng = np.random.default_rng(1)
    x = 10 ** rng.uniform(-10, largest, 5_000) * rng.choice([-1, 1], 5_000)
    cosine, sine = np.empty_like(x, dtype), np.empty_like(x, dtype)
    x = x.astype(dtype)
    wide_cos_sin(x, cosine, sine)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(cosine, np.cos(exact), rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(sine, np.sin(exact), rtol=0, atol=tolerance(dtype))


# Elementwise primitives against the reference.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_amplitude", [False, True])
def test_cos_sin_pairs(dtype, shape, with_amplitude):
    rng = np.random.default_rng(2)
    phase = read_only(rng.normal(scale=50, size=shape).astype(dtype))
    amplitude = rng.gamma(1.0, size=shape).astype(dtype) if with_amplitude else None
    out, full = strided((shape[0], 2 * shape[1]), dtype)
    expected = np.empty_like(out)
    cpu.cos_sin_pairs(phase, 0.25, out, amplitude)
    reference.cos_sin_pairs(phase, 0.25, expected, amplitude)
    bound = 2 * tolerance(dtype) * (amplitude.max(initial=1) if with_amplitude else 1)
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound)
    assert sides_untouched(full, 2 * shape[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_amplitude", [False, True])
def test_cosines(dtype, shape, with_amplitude):
    rng = np.random.default_rng(3)
    phase = read_only(rng.normal(scale=50, size=shape).astype(dtype))
    offsets = read_only(rng.uniform(0, 2 * np.pi, shape[1]).astype(dtype))
    amplitude = rng.gamma(1.0, size=shape).astype(dtype) if with_amplitude else None
    out, full = strided(shape, dtype)
    expected = np.empty_like(out)
    cpu.cosines(phase, offsets, 1.5, out, amplitude)
    reference.cosines(phase, offsets, 1.5, expected, amplitude)
    bound = 3 * tolerance(dtype) * (amplitude.max(initial=1) if with_amplitude else 1)
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound)
    assert sides_untouched(full, shape[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_phases_may_be_huge_or_not_finite(dtype):
    phase = np.random.default_rng(4).normal(size=(3, 2000)).astype(dtype)
    phase[1, 5], phase[1, 7], phase[1, 1500] = np.nan, np.inf, -np.inf
    phase[2, :] = 10 ** np.linspace(0, 35, 2000)
    out, expected = np.empty((2, 3, 4000), dtype)
    cpu.cos_sin_pairs(phase, 1.0, out)
    reference.cos_sin_pairs(phase, 1.0, expected)
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance(dtype))
    assert np.isnan(out).sum() == 6
    single, single_expected = np.empty((2, 3, 2000), dtype)
    cpu.cosines(phase, np.zeros(2000, dtype), 1.0, single)
    reference.cosines(phase, np.zeros(2000, dtype), 1.0, single_expected)
    np.testing.assert_allclose(single, single_expected, rtol=0, atol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [0.5, 1, 2, 2.7, 3, 4, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_modulus_power(dtype, power, shape):
    rng = np.random.default_rng(5)
    real = read_only(rng.normal(size=shape).astype(dtype))
    imag = read_only(rng.normal(size=shape).astype(dtype))
    out, full = strided(shape, dtype)
    expected = np.empty_like(out)
    cpu.modulus_power(real, imag, power, 0.3, out)
    reference.modulus_power(real, imag, power, 0.3, expected)
    np.testing.assert_allclose(out, expected, rtol=8 * np.finfo(dtype).eps)
    assert sides_untouched(full, shape[1])
    in_place = real.copy()
    cpu.modulus_power(in_place, imag, power, 0.3, in_place)
    np.testing.assert_array_equal(in_place, out)


# Pairs of rows.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manhattan_distances", "cauchy_kernel"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "n, m, d", [(0, 3, 2), (1, 1, 1), (3, 5, 0), (33, 129, 5), (40, 17, 131)]
)
def test_pairwise(name, dtype, n, m, d):
    rng = np.random.default_rng(7)
    rows = read_only(rng.normal(size=(n, d)).astype(dtype))
    columns = read_only(rng.normal(size=(m, d)).astype(dtype))
    for out_dtype in DTYPES:
        out, full = strided((n, m), out_dtype)
        expected = np.empty((n, m))
        getattr(pairwise, name)(rows, columns, out)
        getattr(reference, name)(rows, columns, expected)
        # Sums of d float64 terms, whatever the input, and one rounding.
        bound = 2 * np.finfo(out_dtype).eps + 1e-15 * max(d, 1)
        tiny = float(np.finfo(out_dtype).smallest_subnormal)
        np.testing.assert_allclose(out, expected, rtol=bound, atol=tiny)
        assert sides_untouched(full, m)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, m", [(0, 3), (3, 0), (1, 1), (33, 129), (400, 1100)])
def test_squared_distances(dtype, n, m):
    rng = np.random.default_rng(17)
    x_norms = read_only(rng.uniform(1, 2, size=n).astype(dtype))
    y_norms = read_only(rng.uniform(1, 2, size=m).astype(dtype))
    out, full = strided((n, m), dtype)
    out[...] = rng.uniform(0, 1.5, size=(n, m))
    expected = out.copy()
    near = pairwise.squared_distances(x_norms, y_norms, 0.25, out)
    expected_near = reference.squared_distances(x_norms, y_norms, 0.25, expected)
    np.testing.assert_allclose(out, expected, atol=8 * np.finfo(dtype).eps)
    assert abs(near - expected_near).sum() <= 1e-4 * n * m  # on the edge
    assert sides_untouched(full, m)


# Products.


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5000, 7), (30, 2100)])
def test_products_accumulate(dtype, shape):
    rng = np.random.default_rng(8)
    features = read_only(rng.uniform(size=shape).astype(dtype))
    gram = np.ones((shape[1], shape[1]))
    expected_gram = gram.copy()
    for _ in range(2):
        blas.add_gram(features, gram)
        reference.add_gram(features, expected_gram)
    rtol = 1e-12 if dtype == np.float64 else 3e-6
    np.testing.assert_allclose(gram, expected_gram, rtol=rtol)
    assert np.all(np.tril(gram, -1) == np.tril(np.ones_like(gram), -1))


def test_long_float32_sums_keep_their_digits():
    # In one float32 sum of 400,000 terms the error is some 1e-5.
    features = np.full((400_000, 1), 0.1, dtype=np.float32)
    gram = np.zeros((1, 1))
    blas.add_gram(features, gram)
    exact = 400_000 * np.float64(np.float32(0.1)) ** 2
    assert abs(gram[0, 0] / exact - 1) < 1e-6


# Errors.


@pytest.mark.parametrize(
    "call",
    [
        lambda a: cpu.cos_sin_pairs(a, 1.0, np.empty((3, 7))),
        lambda a: cpu.cos_sin_pairs(a, 1.0, np.empty((3, 8)), np.empty((3, 3))),
        lambda a: cpu.cosines(a, np.zeros(3), 1.0, np.empty((3, 4))),
        lambda a: cpu.modulus_power(a, a[:2], 2.0, 1.0, np.empty((3, 4))),
        lambda a: cpu.modulus_power(a, a, 0.0, 1.0, np.empty((3, 4))),
        lambda a: cpu.modulus_power(a, a, 2.0, 1.0, np.empty((4, 3)).T),
        lambda a: cpu.modulus_power(a, a, 2.0, 1.0, read_only(np.empty((3, 4)))),
        lambda a: pairwise.manhattan_distances(a, np.ones((2, 3)), np.empty((3, 2))),
        lambda a: pairwise.cauchy_kernel(a, a, np.empty((2, 2))),
        lambda a: pairwise.squared_distances(a[0], a[0], 0.1, np.empty((2, 2))),
        lambda a: blas.add_gram(a, np.zeros((4, 4), np.float32)),
        lambda a: counter.random_matrix(-1, "normal", 0, 1, 0, 1),
        lambda a: counter.random_matrix(0, "gauss", 0, 1, 0, 1),
        lambda a: counter.random_matrix(0, "normal", -1, 1, 0, 1),
        lambda a: counter.random_matrix(0, "normal", 0, 1, 0, 1, np.float16),
    ],
)
def test_bad_arguments_raise(call):
    with pytest.raises(ValueError, match="must|read-only"):
        call(np.ones((3, 4)))


def test_out_of_another_dtype_raises():
    with pytest.raises(TypeError, match="float32 or float64"):
        cpu.cos_sin_pairs(np.ones((1, 1)), 1.0, np.empty((1, 2), dtype=np.float16))


# Threads.


def primitives(seed):
    """Return the results of every compiled primitive on work for several threads."""
    rng = np.random.default_rng(seed)
    phase = rng.normal(size=(901, 3000)).astype(np.float32)
    results = [np.empty((901, 6000), np.float32)]
    cpu.cos_sin_pairs(phase, 1.0, results[0])
    results.append(np.empty_like(phase))
    cpu.cosines(phase, phase[0], 1.0, results[1], phase)
    results.append(np.empty_like(phase))
    cpu.modulus_power(phase, phase, 3.0, 1.0, results[2])
    for function in (pairwise.manhattan_distances, pairwise.cauchy_kernel):
        results.append(np.empty((301, 301)))
        function(phase[:301, :100], phase[:301, :100], results[-1])
    results.append(phase.copy())
    norms = np.ones(3000, np.float32)
    results.append(pairwise.squared_distances(norms[:901], norms, 0.1, results[-1]))
    results.append(counter.random_matrix(seed, "normal", 5, 305, 7, 2007))
    results.append(counter.random_matrix(seed, "normal", 5, 8, 7, 200_007))
    return results


@pytest.mark.slow
def test_threads_do_not_change_the_bits(two_threads):
    one = on_one_thread(primitives, 9)
    with two_threads() as work:
        two = primitives(9)
    assert work.tasks == {"cpu", "pairwise", "counter"}
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_calls_from_several_threads_at_once():
    expected = primitives(10)
    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(primitives, [10, 10, 10]):
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_array_equal(a, b)


# Random matrices.

KNOWN_ANSWERS = [  # of the Random123 distribution, philox4x32-10
    (
        [0, 0, 0, 0],
        [0, 0],
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    ),
    (
        [0xFFFFFFFF] * 4,
        [0xFFFFFFFF] * 2,
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
DISTRIBUTIONS = ["normal", "cauchy", "laplace", "uniform", "sign"]
CORNERS = [(0, 0), (3, 61), (10**9 - 2, 10**9 - 5), (2**32 - 2, 2**32 - 7), (2**40, 17)]


@pytest.mark.parametrize("count, key, words", KNOWN_ANSWERS)
def test_philox_known_answers(count, key, words):
    assert reference.philox4x32(count, key).tolist() == words


@pytest.mark.nightly
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("key", [0, 12345, 2**64 - 1])
def test_random_matrix_against_reference(distribution, corner, key):
    i, j = corner
    for dtype in DTYPES:
        values = counter.random_matrix(key, distribution, i, i + 4, j, j + 300, dtype)
        expected = reference.random_matrix(
            key, distribution, i, i + 4, j, j + 300, np.float64
        )
        assert values.dtype == dtype
        np.testing.assert_allclose(values, expected, rtol=2e-6, atol=6e-7)
        assert np.all(values == values.astype(np.float32))


@given(
    distribution=st.sampled_from(DISTRIBUTIONS),
    row=st.integers(0, 2**33),
    column=st.integers(0, 2**33),
    rows=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    columns=st.tuples(st.integers(0, 1300), st.integers(0, 1300)),
    dtype=st.sampled_from(DTYPES),
)
def test_rectangles_agree_bit_for_bit(distribution, row, column, rows, columns, dtype):
    full = counter.random_matrix(7, distribution, row, row + 12, column, column + 1300)
    (a, b), (c, d) = sorted(rows), sorted(columns)
    part = counter.random_matrix(
        7, distribution, row + a, row + b, column + c, column + d
    )
    np.testing.assert_array_equal(part, full[a:b, c:d])
    again = counter.random_matrix(
        7, distribution, row + a, row + b, column + c, column + d, dtype
    )
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, part)


EXPECTED = {
    "normal": stats.norm(),
    "cauchy": stats.cauchy(),
    "laplace": stats.laplace(),
    "uniform": stats.uniform(),
}


@pytest.mark.slow
@pytest.mark.parametrize("distribution", list(EXPECTED))
@pytest.mark.parametrize("key", [0, 1, 2**63 + 5])
def test_distributions(distribution, key):
    values = counter.random_matrix(key, distribution, 0, 200, 0, 1000, np.float64)
    assert np.all(np.isfinite(values))
    assert stats.kstest(values.ravel(), EXPECTED[distribution].cdf).pvalue > SMALLEST_P
    # One row, one column: whatever depends on a lane of the generator.
    for line in (values[17], values[:, 33]):
        assert stats.kstest(line, EXPECTED[distribution].cdf).pvalue > SMALLEST_P


@pytest.mark.parametrize("distribution", list(EXPECTED))
def test_tails(distribution):
    values = counter.random_matrix(3, distribution, 0, 500, 0, 8000).ravel()
    expected = EXPECTED[distribution]
    for p in (1e-3, 1e-4, 1e-5):
        for count in (
            np.sum(values < expected.ppf(p)),
            np.sum(values > expected.isf(p)),
        ):
            assert stats.binomtest(int(count), values.size, p).pvalue > SMALLEST_P


def test_signs():
    values = counter.random_matrix(4, "sign", 0, 500, 0, 2000)
    assert set(np.unique(values)) == {-1.0, 1.0}
    assert abs(values.mean()) < 5 / np.sqrt(values.size)


def test_entries_are_uncorrelated():
    n = 8_000
    rows = counter.random_matrix(5, "normal", 0, 130, 0, n, np.float64)
    columns = counter.random_matrix(5, "normal", 0, n, 0, 130, np.float64).T
    other_key = counter.random_matrix(6, "normal", 0, 130, 0, n, np.float64)
    next_distribution = counter.random_matrix(5, "laplace", 0, 130, 0, n, np.float64)
    # Squares find what Box-Muller pairs would share.
    for lines in (rows, columns, rows**2, columns**2):
        correlation = np.corrcoef(lines) - np.eye(130)
        assert np.max(np.abs(correlation)) < 6 / np.sqrt(n)
    for other in (other_key, next_distribution):
        correlation = np.corrcoef(rows, other)[:130, 130:]
        assert np.max(np.abs(correlation)) < 6 / np.sqrt(n)
