"""Ridge regression and classification of tensors, where they lie."""

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import randkern as rk
from _tensors import DEVICES, dispatch, host, no_host_copies, tensor, torch
from randkern._memory import resolve_memory_limit
from randkern.backend.namespace import ops_of
from randkern.exceptions import IllConditionedWarning, MemoryLimitError
from randkern.models import linear_operators, memory
from randkern.solvers import PCG, Cholesky, Outcome

each_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles of exact kernels, the last of another size."""
    for module in (linear_operators, memory):
        monkeypatch.setattr(module, "KERNEL_TILE", 64)


def rows(rng, n=200, d=5):
    X = rng.normal(size=(n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 100.0
    return X, y, rng.uniform(size=n) * (rng.uniform(size=n) > 0.2)


@pytest.mark.slow
@each_device
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_with_the_exact_kernel_in_several_tiles(
    device, fit_intercept, weighted, rng
):
    X, y, weight = rows(rng)
    Y = np.column_stack([y, -3 * y**2])
    given = (X, Y, weight) if weighted else (X, Y)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian("scale") + rk.Linear(),
        0.3,
        None,
        solver=PCG(tol=1e-9, rank=15),
        memory_limit="1MB",
        fit_intercept=fit_intercept,
        random_state=0,
    )
    expected = copy.deepcopy(model).fit(*given)
    with dispatch():
        model.fit(*(tensor(array, device) for array in given))
        got = model.predict(tensor(X, device))
    np.testing.assert_allclose(host(got), expected.predict(X), rtol=1e-5)
    assert model.dual_coef_.device == got.device
    assert model.solution_.residual < 1e-6


def test_partial_fit(monkeypatch, rng):
    X, y, weight = rows(rng)
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=50, random_state=0)
    expected, parts = copy.deepcopy(model), (slice(0, 120), slice(120, 200))
    for part in parts:
        expected.partial_fit(X[part], y[part], weight[part])
    with dispatch():
        settings = [tensor(array) for array in (X, y, weight)]
        with no_host_copies(monkeypatch, most=12):
            for part in parts:
                model.partial_fit(*(array[part] for array in settings))
        got = model.predict(settings[0])
    np.testing.assert_allclose(host(got), expected.predict(X), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [40, 2000, None], ids=str)
@pytest.mark.parametrize("short", [False, True])
def test_auto_chooses_as_for_arrays(n_components, short, rng):
    X, y, _ = rows(rng, 3000 if n_components == 2000 else 1000)
    options = {"n_components": n_components, "random_state": 0}
    if short:
        options["memory_limit"] = {40: "1MB", 2000: "60MB", None: "7MB"}[n_components]
    expected = rk.KernelRidgeClassifier(**options).fit(X, y > 100)
    with dispatch():
        model = rk.KernelRidgeClassifier(**options).fit(tensor(X), tensor(y > 100))
    direct = Outcome.SUCCESS, Outcome.ILL_CONDITIONED
    assert expected.solution_.outcome in direct or short or n_components == 2000
    chosen = [item.solution_.outcome in direct for item in (model, expected)]
    assert chosen[0] == chosen[1]


# -- conjugate gradients ----------------------------------------------------------


def solved(operator, rhs, **options):
    """Return what conjugate gradients make of a matrix."""
    solver = PCG(rank=10, **options)
    return solver.solve(solver.init(operator, 1e-3), rhs)


class Matrix:
    """A matrix of arrays or tensors, with its own eigenvectors."""

    def __init__(self, matrix):
        self.matrix, self.size = matrix, len(matrix)

    def matmat(self, V):
        return self.matrix @ V

    def leading_eigenpairs(self, rank):
        ops = ops_of(self.matrix)
        values, vectors = ops.algebra.leading_eigenpairs(ops.copy(self.matrix), rank)
        return ops.to_host(values), vectors


@each_device
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 6)], ids=str)
def test_iterations_are_those_of_arrays(shape, device, rng):
    basis = np.linalg.qr(rng.normal(size=(50, 50)))[0]
    matrix = (basis / np.arange(1, 51) ** 3) @ basis.T
    b = rng.normal(size=shape)
    if b.shape[-1] == 6:
        b[:, 3], b[:, 4], b[:, 5] = 2 * b[:, 0], 0.0, b[:, 1] - b[:, 2]
    start = 0.1 * rng.normal(size=shape)
    expected = solved(Matrix(matrix), b, tol=1e-9)
    operator = Matrix(tensor(matrix, device))
    got = solved(operator, tensor(b, device), tol=1e-9)
    assert (got.outcome, got.iterations) == (Outcome.CONVERGED, expected.iterations)
    np.testing.assert_allclose(host(got.value), expected.value, atol=1e-7)
    solver = PCG(tol=1e-9, rank=0, max_iter=500)
    got = solver.solve(
        solver.init(operator, 1e-3), tensor(b, device), start=tensor(start, device)
    )
    np.testing.assert_allclose(host(got.value), expected.value, atol=1e-6)


# -- the boundary -----------------------------------------------------------------


class OfArrays(rk.KernelRidgeRegressor):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        return tags


def test_what_takes_no_tensors(rng):
    X, y, _ = rows(rng)
    with (
        dispatch(),
        pytest.raises(TypeError, match=r"does not support tensors; pass NumPy"),
    ):
        OfArrays().fit(tensor(X), tensor(y))


# -- the factorisation ------------------------------------------------------------


def test_singular_matrices_are_named(rng):
    a = rng.normal(size=(20, 3))
    b = rng.normal(size=(20, 1))
    outcomes = []
    for matrix in (a @ a.T, tensor(a @ a.T)):
        solver = Cholesky(first_jitter=2.0**-26)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            outcomes.append(solver.init(matrix).outcome)
    assert outcomes == [Outcome.JITTERED, Outcome.JITTERED]
    solver = Cholesky()
    with pytest.raises(ValueError, match="not finite"):
        solver.init(torch.full((2, 2), torch.inf, dtype=torch.float64))
    with pytest.raises(np.linalg.LinAlgError, match="far from positive definite"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            solver.init(-torch.eye(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="the right-hand side 2"):
        state = solver.init(torch.eye(3, dtype=torch.float64))
        solver.solve(state, tensor(b[:2]))


# -- memory -----------------------------------------------------------------------


def peak_bytes(function):
    """Return the most bytes of tensors that a call takes at a time."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as run:
        function()
    events = run.profiler.kineto_results.events()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    ]
    held = np.cumsum([n_bytes for _, n_bytes in sorted(changes)])
    return int(max(held, default=0))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_matrices_of_tensors_are_added_up_in_blocks(dtype, monkeypatch):
    Z = torch.randn(64, 3000, dtype=dtype, generator=torch.manual_seed(0))
    gram = torch.zeros(3000, 3000, dtype=torch.float64)
    taken = peak_bytes(lambda: ops_of(gram).add_gram(Z, gram))
    assert taken <= (2**26 if dtype == torch.float32 else 10**6)
    expected = Z.double().T @ Z.double()
    np.testing.assert_allclose(host(gram), host(expected), rtol=1e-4, atol=1e-4)


def test_direct_fits_of_tensors_keep_to_their_budget(rng):
    X, y = tensor(rng.normal(size=(800, 5))), tensor(rng.normal(size=800))
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(3.0), 1.0, 600, solver="cholesky", random_state=0
    )
    with dispatch():
        model.fit(X, y)
        with pytest.raises(MemoryLimitError, match="600 x 600") as caught:
            model.set_params(memory_limit=1000).fit(X, y)
        named = str(caught.value).split("memory_limit='")[1].split("'")[0]
        needed = resolve_memory_limit(named)
        model.set_params(memory_limit=needed)
        assert peak_bytes(lambda: model.fit(X, y)) < 1.1 * needed


def test_the_memory_limit_is_half_of_a_device(monkeypatch):
    """It does not depend on what is free: the same rows take the same path."""
    device = SimpleNamespace(type="cuda")
    properties = SimpleNamespace(total_memory=1000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    limit = ops_of(torch.empty(0)).memory_limit
    assert limit(SimpleNamespace(device=device)) == 500
    assert limit(torch.empty(0)) is None
