"""Fits and predictions on two threads: the same bits, or the same to rounding."""

import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from threadpoolctl import threadpool_info, threadpool_limits

import randkern as rk
from randkern.backend.array_ops import NumpyAlgebra
from randkern.backend.blas import one_thread_if_short
from randkern.backend.compiled_loops import on_one_thread, run_over_ranges

KERNEL = rk.Gaussian("scale")
OPTIONS = {"n_components": 70, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    """Rows in float32, of which features are float32, and three classes."""
    X, y = make_classification(200, 8, n_informative=6, n_classes=3, random_state=0)
    return X.astype(np.float32), y


# The threads of compiled loops.


def test_each_range_is_worked_once(two_threads):
    for n, multiple in [(2, 1), (3, 1), (100, 1), (100, 8), (129, 64)]:
        counts = np.zeros(n, dtype=int)
        starts = []

        def count(start, stop, counts=counts, starts=starts):
            counts[start:stop] += 1
            starts.append(start)

        with two_threads():
            run_over_ranges(count, n, 1.0, multiple)
        assert (counts == 1).all()
        assert all(start % multiple == 0 for start in starts)


#: Model, whether it takes labels, and the modules whose loops share its work.
MODELS = {
    "ridge": (rk.KernelRidgeRegressor(KERNEL, 0.1, **OPTIONS), False, {"cpu"}),
    "ridge-laplacian": (
        rk.KernelRidgeRegressor(rk.Laplacian("scale"), 0.1, None),
        False,
        {"pairwise"},
    ),
    "ridge-exact-pcg": (
        rk.KernelRidgeRegressor(KERNEL, 0.1, None, solver="pcg", random_state=0),
        False,
        {"array_ops", "skinny_gemm"},
    ),
    "svc": (rk.KernelSVC(KERNEL, **OPTIONS), True, {"cpu", "descent", "skinny_gemm"}),
    "logistic": (rk.KernelLogistic(KERNEL, **OPTIONS), True, {"cpu", "skinny_gemm"}),
    "process": (
        rk.GaussianProcessRegressor(KERNEL, 0.1, **OPTIONS),
        False,
        {"cpu", "array_ops"},
    ),
    "process-classes": (
        rk.GaussianProcessClassifier(KERNEL, **OPTIONS),
        True,
        {"cpu", "array_ops", "skinny_gemm"},
    ),
}


def _answers(model, X, y):
    """Return all that a fitted model says of its rows, flat."""
    model = clone(model).fit(X, y)
    if isinstance(model, rk.GaussianProcessRegressor):
        return np.concatenate(model.predict(X, return_std=True))
    for name in ("predict_proba", "decision_function"):
        if hasattr(model, name):
            return np.ravel(getattr(model, name)(X))
    return model.predict(X)


def _targets(data, labels):
    X, y = data
    return y if labels else X[:, 0] + y


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_threads_do_not_change_a_fit(name, data, two_threads):
    model, labels, tasks = MODELS[name]
    y = _targets(data, labels)
    expected = on_one_thread(_answers, model, data[0], y)
    with two_threads() as work:
        got = _answers(model, data[0], y)
    assert work.tasks >= tasks
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_threads_change_conjugate_gradients_by_rounding(dtype, tol, data, two_threads):
    """Each thread sums over rows of its own, and these sums are added up."""
    X, y = data[0].astype(dtype), _targets(data, False)
    model = rk.KernelRidgeRegressor(
        KERNEL, 1.0, solver=rk.solvers.PCG(tol=tol), **OPTIONS
    )
    expected = on_one_thread(_answers, model, X, y)
    with two_threads() as work:
        got = _answers(model, X, y)
    assert work.tasks >= {"cpu", "skinny_gemm"}
    # Both stop at ‖b − Ax‖ ≤ tol·‖b‖, b = Zᵀy: ‖ΔW‖ ≤ 2·tol·‖b‖/alpha, and rows of Z
    # are of norm 1.
    bound = 2 * tol * np.sqrt(len(y)) * np.linalg.norm(y)
    assert np.abs(got - expected).max() <= bound


# The threads of BLAS.

SHORT, LONG = 1e8, 1e10  # operations


def blas_threads():
    """Return the numbers of threads that BLAS libraries have."""
    return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}


@pytest.fixture
def two_of_blas():
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield
        assert blas_threads() == {2}


@pytest.mark.usefixtures("two_of_blas")
def test_short_work_has_one_thread_of_blas():
    for operations, expected in [(1.0, 2), (SHORT, 1), (LONG, 2)]:
        with one_thread_if_short(operations):
            assert blas_threads() == {expected}
        assert blas_threads() == {2}


@pytest.mark.usefixtures("two_of_blas")
def test_threads_of_blas_come_back_after_an_error():
    with pytest.raises(np.linalg.LinAlgError):
        NumpyAlgebra().lower_factor(-np.eye(100))
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_of_blas")
def test_other_threads_leave_the_threads_of_blas_alone():
    """One that began within and ended after would put one thread back, for ever."""
    entered, leave = threading.Event(), threading.Event()

    def work():
        with one_thread_if_short(SHORT):
            entered.set()
            leave.wait(timeout=60)

    thread = threading.Thread(target=work)
    with one_thread_if_short(SHORT):
        thread.start()
        assert entered.wait(timeout=60)
        with one_thread_if_short(SHORT):
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    leave.set()
    thread.join(timeout=60)
    assert blas_threads() == {2}
