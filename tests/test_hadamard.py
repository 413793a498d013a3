"""The compiled structured projection: against its matrix, and its distributions."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.hadamard_matrices import block_matrix, projection_matrix
from randkern.backend import hadamard
from randkern.backend.compiled_loops import on_one_thread
from randkern.backend.cpu import FAST_LIMIT_F32

DTYPES = [np.float32, np.float64]
TOLERANCE = {np.float32: 4e-6, np.float64: 1e-13}
KEY = 2**63 + 12345

# (d, row_start, row_stop, bias): p from 64 to 1,024, whole and odd ranges.
SHAPES = [
    (5, 0, 64, None),
    (60, 3, 200, 0.7),
    (64, 63, 65, 1.3),
    (100, 0, 128, None),
    (200, 17, 300, 0.5),
    (400, 100, 1100, None),
    (1023, 5, 1000, 0.3),
    (1, 0, 1, 0.0),
]


NAMED = {field.name for field in dataclasses.fields(hadamard.StructuredRows)}


def write(name, X, **options):
    """Call a method of the rows that some of the options name, with the others."""
    named = {key: options.pop(key) for key in NAMED & set(options)}
    getattr(hadamard.StructuredRows(**named), name)(X, **options)


def project(X, norms, start, stop, dtype=np.float64, **options):
    out = np.empty((X.shape[0], stop - start), dtype)
    arguments = dict(key=KEY, norms=norms, row_start=start, row_stop=stop, out=out)
    write("project", X, **arguments, **options)
    return out


def pairs(X, norms, start, stop, dtype=np.float32, **options):
    out = np.empty((X.shape[0], 2 * (stop - start)), dtype)
    write(
        "pairs",
        *(X,),
        key=KEY,
        norms=norms,
        row_start=start,
        row_stop=stop,
        weight=0.5,
        out=out,
        **options,
    )
    return out


def modulus(X, norms, start, stop, power=2.0, dtype=np.float32, **options):
    out = np.empty((X.shape[0], stop - start), dtype)
    write(
        "modulus",
        *(X,),
        key=KEY,
        norms=norms,
        row_start=start,
        row_stop=stop,
        weight=1.0,
        power=power,
        out=out,
        **options,
    )
    return out


def fast_transform(X):
    """Orthonormal Walsh-Hadamard transform of the rows, one bit at a time."""
    p = X.shape[1]
    half = 1
    while half < p:
        Y = X.reshape(len(X), -1, 2, half)
        X = np.stack([Y[:, :, 0] + Y[:, :, 1], Y[:, :, 0] - Y[:, :, 1]], axis=2)
        X = X.reshape(len(X), p)
        half *= 2
    return X / np.sqrt(p)


# Reference


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d, start, stop, bias", SHAPES)
def test_all_features_equal_the_explicit_matrix(d, start, stop, bias, dtype, rng):
    n, m, p = 19, stop - start, hadamard.block_size(d, bias)
    X = rng.standard_normal((n, d))
    scale, norms = rng.uniform(0.5, 2, d), rng.uniform(0.5, 2, m)
    offsets = rng.uniform(0, 2 * np.pi, m)
    padded = np.zeros((n, p))
    padded[:, :d] = X * scale
    if bias:
        padded[:, d] = bias
    options = dict(
        key=KEY,
        norms=norms,
        row_start=start,
        row_stop=stop,
        inverse_scale=scale,
        bias=bias,
    )
    tolerance = TOLERANCE[dtype]

    projected = padded @ projection_matrix(KEY, norms, start, stop, p).T
    out = np.empty((n, m), dtype)
    write("project", X, out=out, **options)
    np.testing.assert_allclose(out, projected, atol=tolerance, rtol=0)
    both = np.empty((n, 2 * m), dtype)
    write("pairs", X, weight=0.5, out=both, **options)
    np.testing.assert_allclose(both[:, ::2], 0.5 * np.cos(projected), atol=tolerance)
    np.testing.assert_allclose(both[:, 1::2], 0.5 * np.sin(projected), atol=tolerance)
    write("cosines", X, weight=0.5, offsets=offsets, out=out, **options)
    cosines = 0.5 * np.cos(projected + offsets)
    np.testing.assert_allclose(out, cosines, atol=tolerance)

    U = projection_matrix(KEY, norms, start, stop, p, unitary=True)
    projected = padded @ U.T
    real, imag = np.empty((2, n, m), dtype)
    write("project_complex", X, out_real=real, out_imag=imag, **options)
    np.testing.assert_allclose(real + 1j * imag, projected, atol=tolerance)
    for power in (1, 2, 3, 4, 0.7):
        write("modulus", X, power=power, weight=0.5, out=out, **options)
        expected = 0.5 * np.abs(projected) ** power
        np.testing.assert_allclose(out, expected, atol=tolerance * expected.max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2**11, 2**13, 2**15, 2**17])
def test_blocks_larger_than_the_cache(p, dtype, rng):
    d, start, stop = p - p // 5, p // 7, p // 7 + p // 6
    X = rng.standard_normal((2, d)) / np.sqrt(d)
    Y = np.zeros((2, p))
    Y[:, :d] = X
    words = p // 64
    for stage in range(3):
        Y = fast_transform(Y * splitmix_signs(KEY, stage * words, words))
    out = project(X, np.ones(stop - start), start, stop, dtype)
    np.testing.assert_allclose(out, Y[:, start:stop], atol=TOLERANCE[dtype], rtol=0)


def splitmix_signs(key, first, n_words):
    """Signs of the first block, vectorised."""
    with np.errstate(over="ignore"):
        counter = np.arange(first + 1, first + n_words + 1, dtype=np.uint64)
        z = np.uint64(key) + counter * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    bits = np.unpackbits(z.astype("<u8").view(np.uint8), bitorder="little")
    return 1.0 - 2.0 * bits


# Shapes and memory layouts


def test_no_columns_of_features(rng):
    assert project(rng.standard_normal((3, 5)), np.empty(0), 7, 7).shape == (3, 0)


def test_only_a_bias():
    out = project(np.empty((2, 0)), np.ones(64), 0, 64, bias=3.0)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 3.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_dtypes_of_the_input(dtype, rng):
    X = rng.integers(0, 5, (37, 66)).astype(dtype)
    norms = rng.uniform(0.1, 0.5, 128)
    expected = pairs(X, norms, 0, 128, dtype)
    read_only = X.copy()
    read_only.flags.writeable = False
    wide = np.zeros((74, 90), dtype)
    wide[::2, 5:71] = X
    unaligned = np.frombuffer(b"." + X.tobytes(), dtype=np.uint8)[1:].view(dtype)
    for same in (
        *(read_only, np.asfortranarray(X), wide[::2, 5:71], X[::-1].copy()[::-1]),
        *(X.astype(np.uint8), X.astype(np.float64), X.astype(">f4")),
        unaligned.reshape(X.shape),
    ):
        assert np.array_equal(pairs(same, norms, 0, 128, dtype), expected)
    assert np.array_equal(X, read_only)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_rows_equal_dense_rows(dtype, rng):
    X = sp.random(50, 300, density=0.1, format="csr", random_state=0, dtype=np.float64)
    duplicated = sp.csr_array(
        (np.r_[X.data, X.data], np.r_[X.indices, X.indices], 2 * X.indptr), X.shape
    )
    # Row i of the second holds the data of other rows; only its sum is of interest.
    norms = rng.uniform(1, 8, 512)
    for sparse in (X, sp.csr_matrix(X), duplicated):
        assert np.array_equal(
            pairs(sparse, norms, 0, 512, dtype, bias=0.5),
            pairs(sparse.toarray(), norms, 0, 512, dtype, bias=0.5),
        )


# The same bits


@pytest.mark.parametrize("features", [pairs, modulus, project])
@pytest.mark.parametrize("n", [5, 300])
def test_same_bits_for_any_number_of_threads(features, n, rng, two_threads):
    X, norms = rng.standard_normal((n, 300)), rng.uniform(1, 8, 1000)
    expected = on_one_thread(features, X, norms, 0, 1000)
    with two_threads():
        assert np.array_equal(features(X, norms, 0, 1000), expected)


@settings(max_examples=25)
@given(
    d=st.sampled_from([3, 64, 100, 300, 1100]),
    cuts=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    rows=st.tuples(st.integers(0, 700), st.integers(0, 700)),
    dtype=st.sampled_from(DTYPES),
    features=st.sampled_from([pairs, modulus, project]),
)
def test_same_bits_however_rows_are_cut(d, cuts, rows, dtype, features):
    rng = np.random.default_rng(d)
    X, norms = rng.standard_normal((40, d)), rng.uniform(1, 40, 700)
    full = features(X, norms, 0, 700, dtype=dtype)
    (a, b), (start, stop) = sorted(cuts), sorted(rows)
    item = 2 if features is pairs else 1
    part = features(X[a:b], norms[start:stop], start, stop, dtype=dtype)
    assert np.array_equal(part, full[a:b, item * start : item * stop])
    order = rng.permutation(40)
    shuffled = features(X[order], norms, 0, 700, dtype=dtype)
    assert np.array_equal(shuffled, full[order])


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_phases_are_as_exact_as_their_own_bits(dtype, rng):
    X, norms = rng.standard_normal((9, 70)), rng.uniform(1, 8, 128)
    X *= 10.0 ** np.arange(9)[:, None]
    phases = project(X, norms, 0, 128, dtype).astype(np.float64)
    out = pairs(X, norms, 0, 128, dtype)
    bound = 2.0**-22 if dtype == np.float32 else 1e-15
    assert np.abs(phases).max() > FAST_LIMIT_F32
    np.testing.assert_allclose(out[:, ::2], 0.5 * np.cos(phases), atol=bound, rtol=0)
    np.testing.assert_allclose(out[:, 1::2], 0.5 * np.sin(phases), atol=bound, rtol=0)
    # A row beyond the range of the polynomials changes no bit of its neighbours.
    assert np.array_equal(out[:2], pairs(X[:2], norms, 0, 128, dtype))


def test_nan_stays_in_its_row(rng):
    X, norms = rng.standard_normal((8, 100)), rng.uniform(1, 8, 128)
    expected = pairs(X, norms, 0, 128)
    X[3, 50] = np.nan
    X[5, 99] = np.inf
    out = pairs(X, norms, 0, 128)
    bad = np.isin(np.arange(8), [3, 5])
    assert np.all(np.isnan(out[bad]))
    assert np.array_equal(out[~bad], expected[~bad])


# The distributions


def unit_inputs(p):
    """Inputs of norm 1, from the sparsest to the flattest."""
    rng = np.random.default_rng(p)
    one_hot = np.eye(p)
    vectors = {
        "one-hot": one_hot[3],
        "two-hot": one_hot[3] + one_hot[5],
        "ones": np.ones(p),
        "binary": (rng.random(p) < 0.5) * 1.0,
        "dense": rng.standard_normal(p),
        "other one-hot": one_hot[5],
    }
    return {name: x / np.linalg.norm(x) for name, x in vectors.items()}


def z_score(values, expected, n_blocks):
    """Blocks are independent; the rows of one are not."""
    means = values.reshape(n_blocks, -1).mean(axis=1)
    return (means.mean() - expected) / (means.std() / np.sqrt(n_blocks))


@pytest.mark.parametrize("p, n_blocks", [(64, 4000), (256, 1000)])
def test_real_rows_are_gaussian_on_sparse_and_flat_inputs(p, n_blocks, rng):
    """Detects a bias of the kernel of 4 × 7e-4 at K = .325, and 2 % of kurtosis."""
    m = p * n_blocks
    norms = np.sqrt(rng.chisquare(p, m))
    X = np.array(list(unit_inputs(p).values()))
    rows = project(X, norms, 0, m)
    distance = np.sqrt(-2 * np.log(0.325))
    for row in rows:
        # 18 comparisons in all: |z| < 4 fails by chance once in 900 runs.
        assert abs(z_score(np.cos(distance * row), 0.325, n_blocks)) < 4
        assert abs(z_score(row**2, 1.0, n_blocks)) < 4
        assert abs(z_score(row**4, 3.0, n_blocks)) < 4


def test_blocks_keep_norms_and_are_independent(rng):
    X = rng.standard_normal((3, 100))
    out = project(X, np.ones(384), 0, 384).reshape(3, 3, 128)
    squares = np.broadcast_to((X**2).sum(axis=1)[:, None], (3, 3))
    np.testing.assert_allclose((out**2).sum(axis=2), squares)
    first, second = block_matrix(KEY, 0, 64), block_matrix(KEY, 1, 64)
    assert np.abs(first @ second.T).max() < 0.8
    assert not np.allclose(block_matrix(KEY + 1, 0, 64), first)


# Memory
