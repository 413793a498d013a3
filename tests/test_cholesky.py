"""The Cholesky solver against dense solves, and what it says when one is in doubt."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from randkern.backend import blas
from randkern.backend.array_ops import NumpyAlgebra
from randkern.exceptions import IllConditionedWarning
from randkern.solvers import Cholesky, Outcome, Solution

EPS = np.finfo(float).eps


def solve(matrix: np.ndarray, rhs: np.ndarray, shift: float = 0.0) -> Solution:
    """Factorise a copy and solve; the arguments stay as they are."""
    solver = Cholesky()
    return solver.solve(solver.init(matrix.copy(), shift), rhs)


def definite(rng: np.random.Generator, n: int) -> np.ndarray:
    rows = rng.normal(size=(n + 10, n))
    return rows.T @ rows


# 1100 rows span two tiles of the copies between the triangles.
@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 31, 1100])
@pytest.mark.parametrize("targets", [None, 1, 3])
def test_agrees_with_a_dense_solve(rng, n, targets):
    matrix = definite(rng, n) + 5 * np.eye(n)
    rhs = rng.normal(size=n if targets is None else (n, targets))
    solution = solve(matrix, rhs, shift=0.5)
    expected = scipy.linalg.solve(matrix + 0.5 * np.eye(n), rhs, assume_a="pos")
    assert solution.value.shape == rhs.shape
    np.testing.assert_allclose(solution.value, expected, rtol=1e-9, atol=1e-12)
    assert solution.outcome is Outcome.SUCCESS
    assert solution.jitter == 0
    assert solution.residual < 1e-11


@given(
    n=st.integers(1, 12),
    scale=st.floats(-100, 100),
    shift=st.floats(0.0, 10.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_scale(n, scale, shift, seed):
    """A·10^s and b·10^s have the same solution, to rounding times the condition."""
    rng = np.random.default_rng(seed)
    matrix = definite(rng, n)
    rhs = rng.normal(size=n)
    factor = 10.0**scale
    solution = solve(matrix * factor, rhs * factor, shift * factor)
    shifted = matrix + shift * np.eye(n)
    error = np.linalg.norm(solution.value - np.linalg.solve(shifted, rhs))
    size = np.linalg.norm(solution.value)
    assert error <= 100 * n * EPS * np.linalg.cond(shifted) * size
    assert solution.outcome is Outcome.SUCCESS


@pytest.mark.filterwarnings("ignore::randkern.exceptions.IllConditionedWarning")
def test_refinement_lowers_the_residual():
    """On an ill-conditioned system the residual is still that of rounding."""
    matrix = scipy.linalg.hilbert(10)
    rhs = matrix @ np.ones((10, 2))
    solution = solve(matrix, rhs)
    size = EPS * np.linalg.norm(matrix) * np.linalg.norm(solution.value)
    assert solution.residual <= 10 * size / np.linalg.norm(rhs[:, 0])
    assert 0 <= solution.iterations <= 2


def test_only_the_upper_triangle_is_read(rng):
    matrix, rhs = definite(rng, 20), rng.normal(size=20)
    upper = np.where(np.tri(20, k=-1, dtype=bool), np.nan, matrix)
    np.testing.assert_array_equal(solve(upper, rhs).value, solve(matrix, rhs).value)


def test_one_factorisation_serves_many_right_hand_sides(rng):
    matrix = definite(rng, 25)
    solver = Cholesky()
    state = solver.init(matrix.copy(), 1.0)
    many = rng.normal(size=(25, 5))
    together = solver.solve(state, many).value
    for j in range(5):
        rhs = many[:, j].copy()
        alone = solver.solve(state, rhs).value
        np.testing.assert_allclose(alone, together[:, j], rtol=1e-12)
        np.testing.assert_array_equal(rhs, many[:, j], err_msg="rhs was changed")


# -- in doubt ---------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [2, 5])
def test_duplicate_columns_need_jitter(rng, repeats):
    """Z = [B, B, ...]: ZᵀZ is singular, the fit Zw is not in doubt."""
    base = rng.normal(size=(50, 20))
    Z, y = np.tile(base, repeats), rng.normal(size=50)
    with pytest.warns(IllConditionedWarning, match="increase alpha.*jitter"):
        solution = solve(Z.T @ Z, Z.T @ y)
    assert solution.outcome is Outcome.JITTERED
    assert 0 < solution.jitter < 1e-9 * np.trace(Z.T @ Z)
    expected = base @ scipy.linalg.lstsq(base, y)[0]
    np.testing.assert_allclose(Z @ solution.value, expected, atol=1e-9)


def test_jitter_is_no_larger_than_it_must_be(rng):
    """Escalation by tens stops at the first multiple that factorises."""
    base = rng.normal(size=(50, 20))
    Z = np.tile(base, 2)
    gram = Z.T @ Z
    with pytest.warns(IllConditionedWarning):
        jitter = solve(gram, np.ones(40)).jitter
    smallest = len(gram) * EPS * np.diagonal(gram).mean()
    assert jitter >= smallest * (1 - 1e-12)
    if jitter > 1.01 * smallest:
        with pytest.raises(np.linalg.LinAlgError):
            scipy.linalg.cholesky(gram + jitter / 10 * np.eye(40))


@pytest.mark.parametrize(
    "matrix",
    [np.diag([1.0, -1.0, 1.0]), -np.eye(3), np.array([[1.0, 9.0], [9.0, 1.0]])],
    ids=["one negative", "negative definite", "saddle"],
)
def test_indefinite_is_an_error(matrix):
    with pytest.raises(np.linalg.LinAlgError, match="far from positive definite"):
        solve(matrix, np.ones(len(matrix)))


def test_a_nearly_singular_matrix_warns(rng):
    """Definite in floating point, but with no certain digit."""
    matrix = np.diag([1.0, 1e-17])
    with pytest.warns(IllConditionedWarning, match="singular to working precision"):
        solution = solve(matrix, np.array([1.0, 1e-17]))
    assert solution.outcome is Outcome.ILL_CONDITIONED
    np.testing.assert_allclose(solution.value, [1.0, 1.0])


# -- what cannot be solved --------------------------------------------------------


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_overflow_on_the_diagonal(value):
    matrix = np.eye(3)
    matrix[1, 1] = value
    with pytest.raises(ValueError, match=r"overflowed.*[Ss]cale the input"):
        solve(matrix, np.ones(3))


@pytest.mark.parametrize(
    ("off_diagonal", "right", "shift"),
    [(np.nan, 1.0, 0.0), (np.inf, 1.0, 0.0), (0.0, np.nan, 0.0), (0.0, 1.0, np.nan)],
    ids=["nan in matrix", "inf in matrix", "nan in rhs", "nan shift"],
)
@pytest.mark.filterwarnings("ignore")
def test_never_returns_nan(off_diagonal, right, shift):
    matrix = np.array([[1.0, off_diagonal], [0.0, 1.0]])
    with pytest.raises((ValueError, np.linalg.LinAlgError)):
        solve(matrix, np.array([right, 1.0]), shift)


@pytest.mark.parametrize("n", [1, 40, 64, 150])
def test_large_matrices_are_factorised_by_panels(monkeypatch, rng, n):
    """LAPACK ends the process where they are larger than 15,000 rows (OpenBLAS)."""
    monkeypatch.setattr(blas, "_MAX_ROWS", 32)
    monkeypatch.setattr(blas, "_PANEL", 32)
    Z = rng.normal(size=(2 * n, n))
    A = Z.T @ Z + np.eye(n)
    given = np.triu(A) + np.tril(rng.normal(size=(n, n)), -1)
    made = given.copy()
    assert blas.factorise_upper(made)
    np.testing.assert_allclose(np.triu(made), np.linalg.cholesky(A).T, atol=1e-12 * n)
    np.testing.assert_array_equal(np.tril(made, -1), np.tril(given, -1))
    lower = NumpyAlgebra().lower_factor(A.copy())
    np.testing.assert_allclose(lower, np.linalg.cholesky(A), atol=1e-12 * n)
    A[-1, -1] = -1.0
    assert not blas.factorise_upper(A)
