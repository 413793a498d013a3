"""Memory limits: how they are written, what they stop, and what a fit really takes."""

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import randkern as rk
from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.exceptions import MemoryLimitError
from randkern.study.measure import peak_memory_method

pytestmark = pytest.mark.slow

MB = 10**6


# -- how a limit is written -------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "n_bytes"),
    [
        ("4GB", 4 * 10**9),
        ("500mb", 500 * 10**6),
        ("1.5 GB", 1_500_000_000),
        (" 2 tb ", 2 * 10**12),
        ("64k", 64_000),
        ("1000B", 1000),
        (10**9, 10**9),
        (1e9, 10**9),
        (np.int64(10**9), 10**9),
        (np.float32(1e9), 10**9),
    ],
)
def test_limits(limit, n_bytes):
    resolved = resolve_memory_limit(limit)
    assert resolved == n_bytes
    assert type(resolved) is int


@pytest.mark.parametrize(
    "limit",
    [
        *("lots", "", "GB", "4 parsecs", "-4GB", "1.2.3GB", "4GB extra", "0GB", "nan"),
        *("inf", "9" * 400 + "GB", b"4GB", 0, -1, np.nan, np.inf, True, [4], (1, "GB")),
    ],
    ids=repr,
)
def test_bad_limits(limit):
    with pytest.raises(ValueError, match=r"memory_limit must be .*'4GB'.*got"):
        resolve_memory_limit(limit)


@pytest.mark.parametrize("free", [None, 0, 10**6, 10**12])
def test_default_limit_is_fixed(free, monkeypatch):
    monkeypatch.setattr("randkern._memory.available_memory", lambda: free)
    assert resolve_memory_limit(None) == 2 * 10**9


@pytest.mark.parametrize(("limit", "free"), [("5000\n", 1500), ("max\n", None)])
def test_memory_of_a_container(limit, free, monkeypatch, tmp_path):
    monkeypatch.setattr("randkern._memory._CGROUP", tmp_path)
    before = available_memory()
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 3500\ninactive_file 500\n")
    after = available_memory()
    assert after == free if free else after > 0.5 * before


@given(st.integers(1, 10**15))
def test_a_formatted_size_reads_back(n_bytes):
    text = format_bytes(n_bytes)
    assert abs(resolve_memory_limit(text) - n_bytes) <= max(0.5, 0.06 * n_bytes)


# -- what a limit stops -----------------------------------------------------------


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the largest memory, beyond what there was, while `work` runs."""
    work()  # compiling takes memory of its own
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


CASES = {
    # name: (rows, n_components, limit, what, advice)
    "primal": (1500, 1000, "10MB", "1000 x 1000 matrices", "fewer components"),
    "dual": (1000, 4000, "5MB", "1000 x 1000 dual system", "fewer components"),
    "exact": (1500, None, "10MB", "exact 1500 x 1500 Gram matrix", "random features"),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@EVERY_CASE
def test_the_limit_that_the_error_names_is_enough(case):
    n, n_components, _, _, _ = case
    X, y = np.linspace(0, 1, 2 * n).reshape(n, 2), np.zeros(n)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(), n_components=n_components, solver="cholesky"
    )
    with pytest.raises(MemoryLimitError) as caught:
        model.set_params(memory_limit=1000).fit(X[:200], y[:200])
    named = str(caught.value).split("memory_limit='")[1].split("'")[0]
    model.set_params(memory_limit=named).fit(X[:200], y[:200])


def test_a_penalty_per_target_takes_a_matrix_more():
    """Each penalty factorises a copy of the normal equations."""
    X = np.linspace(0, 1, 3000).reshape(1500, 2)
    named = []
    for alpha in (0.1, [0.1, 1.0]):
        model = rk.KernelRidgeRegressor(rk.Gaussian(), alpha, 1000, solver="cholesky")
        with pytest.raises(MemoryLimitError) as caught:
            model.set_params(memory_limit=1000).fit(X, X)
        limit = str(caught.value).split("memory_limit='")[1].split("'")[0]
        named.append(resolve_memory_limit(limit))
        model.set_params(memory_limit=limit, random_state=0)
        assert peak_bytes(lambda: model.fit(X, X)) < named[-1]  # noqa: B023
    assert named[1] - named[0] == pytest.approx(8 * 1000**2, rel=0.1)


def test_partial_fit_is_stopped_too():
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(), n_components=5000, solver="cholesky", memory_limit="150MB"
    )
    with pytest.raises(MemoryLimitError, match="5000 x 5000"):
        model.partial_fit(np.eye(3), np.ones(3))
    # Nothing is left half done: a later call starts from the beginning.
    with pytest.raises(ValueError, match="partial_fit"):
        model.solve()
    model.set_params(n_components=4).partial_fit(np.eye(3), np.ones(3))
    assert model.predict(np.eye(3)).shape == (3,)


def test_solving_later_needs_less():
    """`partial_fit` keeps the statistics and factorises a copy of them."""
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(), n_components=2000, solver="cholesky", memory_limit="60MB"
    )
    with pytest.raises(MemoryLimitError):
        model.partial_fit(np.eye(3), np.ones(3))
    model.partial_fit(np.eye(3), np.ones(3), solve=False)


def test_few_rows_need_little():
    """The block of features is counted by the rows there are.

    Of many features a few columns are computed at a time, for the dual system.
    """
    model = rk.KernelRidgeRegressor(rk.Gaussian(), n_components=4, memory_limit="20MB")
    model.fit(np.eye(6), np.ones(6))
    model.partial_fit(np.eye(6), np.ones(6))
    model.set_params(n_components=20_000, solver="cholesky", memory_limit="8MB")
    model.fit(np.eye(100, 6), np.ones(100))


def test_features_that_do_not_fit_are_not_computed(monkeypatch):
    monkeypatch.setattr("randkern._memory.available_memory", lambda: 10**8)
    features = rk.RandomFeatures(rk.Gaussian(1.0), 1000, random_state=0)
    features.fit(np.eye(3))
    with pytest.raises(MemoryLimitError, match="features for each of 20000 rows"):
        features.transform(np.zeros((20_000, 3)))


# -- what a fit takes -------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_for_probabilities_count(rng):
    """Those to folds start when the features of the first are released."""
    X, limit = rng.normal(size=(1200, 5)), 4 * MB
    y = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    model = rk.KernelSVC(
        n_components=200,
        features="nystrom",
        tol=0.5,
        probability=True,
        random_state=0,
        memory_limit=limit,
    )
    assert peak_bytes(lambda: model.fit(X, y)) < 1.05 * limit


def test_rows_are_compared_in_little_memory(rng):
    """Hashes of rows, and kernel values behind a warning, take blocks of wide rows."""
    X = rng.normal(size=(100, 10_000))
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(100.0), n_components=20, projection="structured", random_state=0
    )
    assert peak_bytes(lambda: model.fit(X, X[:, 0])) < X.nbytes + 4 * MB


# One fit in a process of its own: tracemalloc sees neither compiled code nor BLAS.
_ALONE = """
import json, re, sys
import numpy as np
import randkern as rk
from randkern._memory import resolve_memory_limit
from randkern.study.measure import Measurement

name, n, parameters = json.loads(sys.argv[1])
size, limit = parameters["n_components"], parameters.get("memory_limit")
X = np.random.default_rng(0).normal(size=(n, 8))
y = np.sin(X[:, 0]) if name.endswith("Regressor") else X[:, 0] > 0
model = getattr(rk, name)(rk.Gaussian(2.0), random_state=0, **parameters)
# Compiled code is loaded, and BLAS has its buffers.
model.set_params(n_components=size and 64, memory_limit=None).fit(X[:300], y[:300])
if limit is None:
    try:
        model.set_params(n_components=size, memory_limit=1000).fit(X, y)
    except rk.exceptions.MemoryLimitError as error:
        limit = re.search("memory_limit='(.*?)'", str(error))[1]
model.set_params(n_components=size, memory_limit=limit)
with Measurement() as measured:
    model.fit(X, y)
grown = measured.peak_bytes - measured.before_bytes
print(json.dumps([grown, resolve_memory_limit(limit)]))
"""

# What BLAS and LAPACK pack matrices into, tiles, and what the allocator keeps.
SLACK = {"KernelRidgeRegressor": 100 * MB}
FITS = {
    # name: (estimator, rows, parameters); the limit is the one that an error names
    "primal": (
        "KernelRidgeRegressor",
        20_000,
        {"n_components": 2000, "solver": "cholesky"},
    ),
    "exact": (
        "KernelRidgeRegressor",
        4000,
        {"n_components": None, "solver": "cholesky"},
    ),
    "pcg": (
        "KernelRidgeRegressor",
        12_000,
        {"n_components": 3000, "solver": "pcg", "memory_limit": "100MB"},
    ),
    "logistic": (
        "KernelLogistic",
        20_000,
        {"n_components": 1000, "max_iter": 10, "memory_limit": "100MB"},
    ),
    "process": (
        "GaussianProcessRegressor",
        10_000,
        {"n_components": 1500, "optimizer": None},
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(peak_memory_method() != "VmHWM", reason="no exact peak to read")
@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(fit, id=name, marks=[pytest.mark.nightly] * (name != "pcg"))
        for name, fit in FITS.items()
    ],
)
def test_resident_memory_stays_within_the_limit(fit):
    """The features alone are more than all of it, or so is a second matrix."""
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ALONE, json.dumps(fit)],
        capture_output=True,
        text=True,
        check=True,
    )
    grown, limit = json.loads(answer.stdout)
    assert grown < limit + SLACK.get(fit[0], 40 * MB)


# Features of 900 rows take 2.9 MB and more, the Gram matrix 6.5 MB.
LEAVERS = {
    "cholesky": rk.KernelRidgeRegressor(n_components=800, solver="cholesky"),
    "pcg": rk.KernelRidgeRegressor(n_components=800, solver="pcg"),
    "exact": rk.KernelRidgeRegressor(n_components=None),
    "landmarks": rk.KernelRidgeRegressor(
        n_components=400, features="nystrom", solver="pcg"
    ),
    "cv": rk.KernelRidgeRegressorCV(n_components=400),
    "svc": rk.KernelSVC(n_components=800),
    "quantiles": rk.KernelQuantileRegressor(n_components=800, tol=1e-3),
    "svr": rk.KernelSVR(n_components=800),
    "logistic": rk.KernelLogistic(n_components=800),
    "process": rk.GaussianProcessRegressor(n_components=800, optimizer=None),
    "classes": rk.GaussianProcessClassifier(n_components=800, optimizer=None),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.nightly
@pytest.mark.parametrize("name", LEAVERS)
def test_what_a_fit_took_is_free_when_it_ends(name, rng):
    """And not when Python next looks for circles of references."""
    X = rng.normal(size=(900, 3))
    y = np.sign(X[:, 0]) if name in {"svc", "logistic", "classes"} else X[:, 0]
    model = clone(LEAVERS[name]).fit(X[:100], y[:100])
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        model.fit(X, y)
        after = tracemalloc.get_traced_memory()[0]
        gc.collect()
        assert after - tracemalloc.get_traced_memory()[0] < 0.5 * MB
    finally:
        tracemalloc.stop()
        gc.enable()
