"""The contract of solvers: one protocol, whatever they solve and wherever it lies."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from randkern.exceptions import IllConditionedWarning
from randkern.solvers import PCG, Cholesky, Outcome, Progress, Solution
from randkern.solvers.stopping import Loss

SHIFT = 0.3
REACHED = (Outcome.SUCCESS, Outcome.CONVERGED, Outcome.LOSS_CONVERGED)


@dataclass
class Rows:
    """Rows z_i with targets, and A = Σ z_i z_iᵀ by its products."""

    Z: Any
    Y: Any

    @property
    def size(self):
        return self.Z.shape[1]

    @property
    def gram(self):
        return self.Z.T @ self.Z

    @property
    def cross(self):
        return self.Z.T @ self.Y

    def matmat(self, V):
        return self.Z.T @ (self.Z @ V)

    def leading_eigenpairs(self, rank):
        values, vectors = np.linalg.eigh(np.asarray(self.gram))
        vectors = vectors[:, ::-1][:, :rank].copy()
        if not isinstance(self.Z, np.ndarray):
            vectors = self.Z.new_tensor(vectors)
        return values[::-1][:rank].copy(), vectors


# A solver, what it takes as the system and as the right-hand sides, and how near to a
# dense solve it comes.
SOLVERS = {
    "cholesky": (Cholesky(), lambda r: r.gram, lambda r: r.cross, 1e-11),
    "pcg": (PCG(tol=1e-10), lambda r: r, lambda r: r.cross, 1e-9),
    "pcg-plain": (PCG(tol=1e-10, rank=0), lambda r: r, lambda r: r.cross, 1e-9),
}
ITERATIVE = [name for name in SOLVERS if name != "cholesky"]
each_solver = pytest.mark.parametrize("name", SOLVERS)
each_iterative = pytest.mark.parametrize("name", ITERATIVE)


def rows_of(rng, rank=12, tensors=False):
    """Return rows whose targets are linear in them, but for a little."""
    Z = rng.normal(size=(400, rank)) @ rng.normal(size=(rank, 12)) / rank**0.5
    Y = Z @ rng.normal(size=(12, 2)) + 1e-4 * rng.normal(size=(400, 2))
    if tensors:
        torch = pytest.importorskip("torch")
        Z, Y = torch.as_tensor(Z), torch.as_tensor(Y)
    return Rows(Z, Y)


def solve(name, rows, shift=SHIFT, **options):
    solver, system, rhs, _ = SOLVERS[name]
    state = solver.init(system(rows), shift)
    return solver.solve(state, rhs(rows), **options)


@each_solver
@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
def test_it_is_a_dense_solve(name, tensors, rng):
    rows = rows_of(rng, tensors=tensors)
    solution = solve(name, rows)
    assert isinstance(solution, Solution)
    assert solution.outcome in REACHED
    assert type(solution.value) is type(rows.Z)
    gram, cross = np.asarray(rows.gram), np.asarray(rows.cross)
    expected = np.linalg.solve(gram + SHIFT * np.eye(12), cross)
    size = np.abs(expected).max()
    value = np.asarray(solution.value)
    assert np.abs(value - expected).max() / size < SOLVERS[name][-1]
    # The residual is what it is said to be, in more digits than it was computed in.
    left = cross - (gram + SHIFT * np.eye(12)).astype(np.longdouble) @ value
    true = np.max(
        np.linalg.norm(left.astype(float), axis=0) / np.linalg.norm(cross, axis=0)
    )
    assert 0.1 * true <= solution.residual <= 10 * true + 1e-15


@each_solver
def test_a_singular_system_is_solved_or_named(name, rng):
    """Predictions are right, or the outcome and a warning say that they may not be."""
    rows = rows_of(rng, rank=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve(name, rows, shift=0.0)
    if solution.outcome in REACHED:
        errors = rows.Z @ solution.value - rows.Y
        assert np.abs(errors).max() < 1e-2
    else:
        named = (ConvergenceWarning, IllConditionedWarning)
        assert any(issubclass(each.category, named) for each in caught)


@each_iterative
def test_callbacks_of_the_solver_and_of_the_call_are_both_called(name, rng):
    solver, own, given = SOLVERS[name][0], [], []
    parameters = solver.get_params()

    def stop(at):
        given.append(at)
        return at.iteration == 3

    began = time.perf_counter()
    try:
        solver.set_params(callback=own.append)
        solution = solve(name, rows_of(rng), callback=stop)
    finally:
        solver.set_params(**parameters)
    seconds = [at.seconds for at in given]
    assert 0 < seconds[0] < seconds[1] < seconds[2] <= solution.seconds
    assert solution.seconds < time.perf_counter() - began
    assert solution.outcome is Outcome.STOPPED
    assert solution.iterations == 3
    assert [at.iteration for at in own] == [at.iteration for at in given] == [1, 2, 3]
    assert all(isinstance(at, Progress) for at in given)
    np.testing.assert_array_equal(given[-1].value, solution.value)


@pytest.mark.parametrize(("rounding", "n_more"), [(2e-16, 0), (1e-2, 1)])
def test_the_true_residual_is_computed_where_rounding_may_matter(rounding, n_more, rng):
    rows = rows_of(rng)
    rows.rounding = rounding
    n_products = 0

    def matmat(V):
        nonlocal n_products
        n_products += 1
        return Rows.matmat(rows, V)

    rows.matmat = matmat
    loss = Loss((rows.Y**2).sum(axis=0))
    solver = PCG(rank=0)
    solution = solver.solve(solver.init(rows, SHIFT), rows.cross, loss=loss)
    assert solution.outcome is Outcome.LOSS_CONVERGED
    assert n_products == solution.iterations + n_more


def test_companions_stop_before_the_solution_does(rng):
    """Their traces, which leverages are computed from, need fewer iterations."""
    rows = Rows(rng.normal(size=(400, 80)) * np.logspace(0, -2, 80), None)
    rows.Y = rows.Z @ rng.normal(size=(80, 1))
    probes = rows.Z.T @ rng.choice([-1.0, 1.0], (400, 3))
    n_columns = []

    def matmat(V):
        n_columns.append(V.shape[1])
        return Rows.matmat(rows, V)

    rows.matmat = matmat
    solver = PCG(tol=1e-7, rank=0)
    solution = solver.solve(solver.init(rows, 1e-2), rows.cross, companions=probes)
    exact = np.linalg.solve(rows.gram + 1e-2 * np.eye(80), probes)
    trace = (probes * solution.companions).sum()
    assert trace == pytest.approx((probes * exact).sum(), rel=0.02)
    n_shared = n_columns.index(1)
    assert n_shared < 0.8 * len(n_columns)
    assert set(n_columns[n_shared:]) == {1}


@pytest.mark.parametrize("warm", [False, True])
def test_the_excess_of_the_loss_is_bounded_by_what_is_known(warm, rng):
    rows = rows_of(rng)
    rows.Y += 0.5 * rng.normal(size=rows.Y.shape)
    A, B = rows.gram + SHIFT * np.eye(rows.size), rows.cross
    seen = []
    solver = PCG(rank=0, max_iter=3, loss_tol=1e-9, callback=seen.append)
    initial = (rows.Y**2).sum(axis=0)
    loss = Loss(initial)
    start = 0.7 * np.linalg.solve(A, B) if warm else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.solve(solver.init(rows, SHIFT), B, start=start, loss=loss)
    for progress in seen:
        X = progress.value
        left = ((B - A @ X) ** 2).sum(axis=0) / SHIFT
        now = initial + (X * (A @ X - 2 * B)).sum(axis=0)
        scale = np.maximum(now, 1e-3 * initial)
        expected = np.max(left / np.minimum(scale, 10 * (initial - now)))
        assert progress.excess == pytest.approx(expected, rel=1e-6)
