"""Products of many features with few columns, and the threads they run on."""

import os
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randkern.backend import skinny_gemm
from randkern.backend.compiled_loops import run_over_ranges

DTYPES = [np.float32, np.float64, np.int16]
KINDS = [np.dtype(dtype).name for dtype in DTYPES]
COUNTS = [0, 1, 7, 8, 9, 129]


@pytest.fixture(params=[1, 2])
def running(request):
    """Make contexts of one thread or of two; of one where no work can be shared."""
    if request.param == 1:
        return lambda shared=True: nullcontext()
    two_threads = request.getfixturevalue("two_threads")
    return lambda shared=True: two_threads() if shared else nullcontext()


def features(n, width, dtype, rng, pitch=None):
    """Return features, of rows `pitch` numbers apart, NaN between them."""
    if dtype == np.int16:
        values = rng.integers(-32767, 32768, size=(n, width))
    else:
        values = rng.normal(size=(n, width))
    if pitch is None:
        return values.astype(dtype)
    filler = 32767 if dtype == np.int16 else np.nan
    wide = np.full((n, pitch), filler, dtype)
    wide[:, :width] = values
    return wide[:, :width]


def other(dtype):
    """Return the dtype of the other factor."""
    return np.float64 if dtype == np.float64 else np.float32


def assert_close(got, expected, sizes, dtype):
    """Compare with the rounding that sums of terms of these sizes have."""
    eps = np.finfo(other(dtype)).eps
    assert got.dtype == np.float64
    assert got.shape == expected.shape
    assert np.all(np.abs(got - expected) <= 40 * eps * sizes + 1e-300)


def check_multiply(Z, V):
    wide, factor = Z.astype(np.float64), V.astype(np.float64)
    got = skinny_gemm.multiply(Z, V)
    sizes = np.abs(wide) @ np.abs(factor).T
    assert_close(got, wide @ factor.T, sizes, Z.dtype)


def check_transposed(Z, P, rng):
    wide, factor = Z.astype(np.float64), P.astype(np.float64)
    out = rng.normal(size=(P.shape[1], Z.shape[1]))
    expected = out + factor.T @ wide
    sizes = np.abs(out) + np.abs(factor).T @ np.abs(wide)
    skinny_gemm.add_transposed(Z, P, out)
    assert_close(out, expected, sizes, Z.dtype)


def check_gram(Z, factors, V, rng):
    wide, factor = Z.astype(np.float64), V.astype(np.float64)
    inner = factors[:, None] * (wide @ factor.T)
    largest = np.abs(factors)[:, None] * (np.abs(wide) @ np.abs(factor).T)
    out = rng.normal(size=V.shape)
    expected = out + inner.T @ wide
    sizes = np.abs(out) + largest.T @ np.abs(wide)
    skinny_gemm.add_gram_product(Z, factors, V, out)
    assert_close(out, expected, sizes, Z.dtype)


def check_all(n, k, width, dtype, rng, pitch=None):
    Z = features(n, width, dtype, rng, pitch)
    V = rng.normal(size=(k, width)).astype(other(dtype))
    P = rng.normal(size=(n, k)).astype(other(dtype))
    factors = rng.uniform(size=n)
    factors[::3] = 0
    check_multiply(Z, V)
    check_transposed(Z, P, rng)
    check_gram(Z, factors, V, rng)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=KINDS)
@pytest.mark.parametrize("width", [64, 512, 576, 1984, 2048, 2112, 2176, 4160])
def test_any_width(dtype, width, rng, running):
    with running():
        check_all(131, 11, width, dtype, rng)


@given(
    n=st.integers(0, 300),
    k=st.integers(1, 40),
    tiles=st.integers(1, 40),
    apart=st.integers(0, 3),
    kind=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(n, k, tiles, apart, kind, seed):
    width = 64 * tiles
    check_all(n, k, width, kind, np.random.default_rng(seed), width + apart)


@pytest.mark.parametrize("dtype", DTYPES, ids=KINDS)
def test_rows_of_factor_zero_add_nothing(dtype, rng):
    Z = features(20, 64, dtype, rng)
    V = rng.normal(size=(3, 64)).astype(other(dtype))
    out = np.zeros((3, 64))
    skinny_gemm.add_gram_product(Z, np.zeros(20), V, out)
    np.testing.assert_array_equal(out, 0)


def test_long_sums_of_single_precision_lose_little(rng):
    """Sums over rows are joined in float64: 20,000 rows err no more than one of 64."""
    Z = np.full((20_000, 64), 0.1, np.float32)
    exact = 20_000 * 64 * float(np.float32(0.1)) ** 2 * 1.0
    out = np.zeros((1, 64))
    skinny_gemm.add_gram_product(Z, np.ones(20_000), np.ones((1, 64), np.float32), out)
    np.testing.assert_allclose(out, exact, rtol=1e-6)


# Quantisation.


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("D", [1, 63, 64, 700])
def test_quantize(dtype, n, D, rng, two_threads):
    Z = rng.normal(size=(n, D)).astype(dtype) * 10.0 ** rng.integers(-6, 6, (n, 1))
    Z = Z.astype(dtype)
    Z[1::4] = 0
    out = np.full((n, skinny_gemm.padded(D)), 7, np.int16)
    scales = np.full(n, np.nan, dtype)
    skinny_gemm.quantize(Z, out, scales)
    if n > 1:
        again, scales_again = np.full_like(out, 7), np.full_like(scales, np.nan)
        with two_threads():
            skinny_gemm.quantize(Z, again, scales_again)
        np.testing.assert_array_equal(again, out)
        np.testing.assert_array_equal(scales_again, scales)
    largest = np.abs(Z).max(axis=1, initial=0)
    error = np.abs(scales[:, None] * out[:, :D].astype(np.float64) - Z)
    assert np.all(error <= 1.6e-5 * largest[:, None])
    np.testing.assert_allclose(scales, largest / 32767, rtol=1e-6)
    np.testing.assert_array_equal(out[:, D:], 7)


# Errors.


# Threads.


def test_nothing_is_called_without_items():
    def task(start, stop):
        raise AssertionError

    run_over_ranges(task, 0, 1e9)
    run_over_ranges(task, -1, 1e9)


@pytest.mark.parametrize("failing", [0, 7, 63])
def test_errors_reach_the_caller(failing):
    def task(start, stop):
        if start <= failing < stop:
            raise LookupError("here")
        time.sleep(0.001)

    with pytest.raises(LookupError, match="here"):
        run_over_ranges(task, 64, 1e9)
    done = []
    run_over_ranges(lambda start, stop: done.append(stop - start), 64, 1e9)
    assert sum(done) == 64


NESTED = """
import threading, time
import numba
numba.set_num_threads(2)
from randkern.backend.compiled_loops import run_over_ranges

done = []
gate = threading.Barrier({callers})

def inner(start, stop):
    time.sleep(0.001)
    done.append(stop - start)

def outer(start, stop):
    for _ in range(start, stop):
        run_over_ranges(inner, 16, 1e9)

def call():
    gate.wait()
    run_over_ranges(outer, 8, 1e9)

threads = [threading.Thread(target=call) for _ in range({callers})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sum(done) == {callers} * 8 * 16, sum(done)
"""


def run_script(script, n_threads="2"):
    environment = os.environ | {"NUMBA_NUM_THREADS": n_threads}
    command = [sys.executable, "-c", script]
    subprocess.run(command, env=environment, check=True, timeout=600)


@pytest.mark.slow
def test_tasks_may_run_ranges_of_their_own():
    """Also where every thread of the pool runs such a task: nobody waits for it."""
    run_script(NESTED.format(callers=5))


FORK = """
import os
import numpy as np
from randkern.backend import skinny_gemm
skinny_gemm._COST = 1e6
Z, V = np.ones((300, 64)), np.ones((2, 64))
expected = skinny_gemm.multiply(Z, V)
child = os.fork()
if child == 0:
    same = np.array_equal(skinny_gemm.multiply(Z, V), expected)
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(skinny_gemm.multiply(Z, V), expected)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_products_work_after_a_fork():
    run_script(FORK)
