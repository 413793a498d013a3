"""Preconditioned conjugate gradients: alone, and behind kernel ridge regression."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from randkern._random import Stream
from randkern.data.training_data import ArrayRows
from randkern.exceptions import MemoryLimitError
from randkern.models.feature_matrix import FeatureMatrix
from randkern.models.linear_operators import FeatureOperator
from randkern.solvers import PCG, Outcome

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
WEIGHT = np.random.default_rng(3).uniform(0, 2, len(X))
WEIGHT[:20] = 0
KERNEL = rk.Gaussian(25.0)


class DenseOperator:
    """A matrix that is given, with its own eigenvectors."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.products = 0

    @property
    def size(self):
        return len(self.matrix)

    def matmat(self, V):
        self.products += 1
        return self.matrix @ V

    def leading_eigenpairs(self, rank):
        values, vectors = np.linalg.eigh(self.matrix)
        return values[::-1][:rank], vectors[:, ::-1][:, :rank]


def decaying(n, rng):
    """Return a positive definite matrix whose eigenvalues fall as 1/i³."""
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (basis / np.arange(1, n + 1) ** 3) @ basis.T


def test_the_preconditioner_saves_iterations(rng):
    matrix = decaying(200, rng)
    b = rng.normal(size=(200, 2))
    iterations = []
    for rank in (0, 10, 40):
        solver = PCG(tol=1e-8, rank=rank)
        solution = solver.solve(solver.init(DenseOperator(matrix), 1e-5), b)
        iterations.append(solution.iterations)
    assert iterations[0] > 1.5 * iterations[1] > 1.5**2 * iterations[2]


def test_dependent_right_hand_sides_and_zeros(rng):
    matrix = decaying(50, rng)
    b = rng.normal(size=50)
    B = np.column_stack([b, 2 * b, np.zeros(50), -b])
    solver = PCG(tol=1e-10, rank=5)
    solution = solver.solve(solver.init(DenseOperator(matrix), 1e-3), B)
    expected = np.linalg.solve(matrix + 1e-3 * np.eye(50), B)
    np.testing.assert_allclose(solution.value, expected, rtol=1e-6, atol=1e-8)


def operator_of(plan, targets, weight, center, kept_bytes, block=64):
    rows = ArrayRows(X, targets, weight)
    statistics = rows.survey()
    features = FeatureMatrix(rows, plan, kept_bytes, block_rows=block)
    return FeatureOperator.with_right_hand_side(
        features, plan, statistics, Stream(1), center=center
    )


@pytest.mark.slow
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_eigenpairs_are_those_of_the_matrix_where_all_rows_are_sampled(center, weight):
    plan = rk.RandomFeatures(KERNEL, 64, random_state=0).fit(X).plan_
    operator, _ = operator_of(plan, Y[:, None], weight, center, 0)
    values, vectors = operator.leading_eigenpairs(150)  # of 4 * 150 rows
    matrix = operator.matmat(np.eye(64))
    assert len(values) == 64
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1], rtol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(64), atol=1e-12)
    scale = values[0]
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-12 * scale)


def test_sampled_eigenvalues_are_scaled_to_all_rows():
    """Rows of cosines and sines have norm 1, so that any sample has the same trace."""
    plan = rk.RandomFeatures(KERNEL, 64, random_state=0).fit(X).plan_
    operator, _ = operator_of(plan, Y[:, None], None, False, 0)
    values, vectors = operator.leading_eigenpairs(64)  # of 4 * 64 rows
    assert values.sum() == pytest.approx(len(X))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(64), atol=1e-12)
    # What is large is found: 256 rows of 600 know it to some 10 %.
    matrix = operator.matmat(np.eye(64))
    np.testing.assert_allclose(values[:4], np.linalg.eigvalsh(matrix)[:-5:-1], rtol=0.2)


@pytest.mark.slow
def test_auto_iterates_where_the_direct_system_does_not_fit():
    rows, labels = np.vstack([X] * 6), np.tile(Y, 6)
    model = rk.KernelRidgeClassifier(
        KERNEL, alpha=1.0, n_components=3000, memory_limit="100MB", random_state=0
    )
    assert model.fit(rows, labels).solution_.outcome is Outcome.LOSS_CONVERGED
    with pytest.raises(MemoryLimitError, match="n_components="):
        model.set_params(solver="cholesky").fit(rows, labels)
    with pytest.raises(MemoryLimitError, match="smaller rank"):
        model.set_params(solver="pcg", memory_limit="5MB").fit(rows, labels)


def test_smaller_blocks_give_the_same_weights():
    model = rk.KernelRidgeRegressor(
        KERNEL, 1e-2, 300, solver=PCG(tol=1e-9, max_iter=3), random_state=0
    )
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for limit in ("100MB", "2.5MB"):
            found.append(model.set_params(memory_limit=limit).fit(X, Y).coef_)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)


def test_auto_factorises_small_systems():
    model = rk.KernelRidgeClassifier(KERNEL, n_components=300, random_state=0)
    assert model.fit(X, Y).solution_.outcome is Outcome.SUCCESS


def test_a_singular_system_is_solved():
    """Rows that repeat, without a penalty: features enough to meet every target."""
    inputs = np.repeat(X[:40], 5, axis=0)
    targets = np.repeat(Y[:40], 5)
    model = rk.KernelRidgeRegressor(
        KERNEL, alpha=0.0, n_components=150, solver=PCG(tol=1e-9), random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(inputs, targets)
    assert model.solution_.outcome is Outcome.CONVERGED
    np.testing.assert_allclose(model.predict(inputs), targets, atol=2e-7)


@pytest.mark.parametrize(
    "solver",
    [
        PCG(tol=-1.0),
        PCG(max_iter=0),
        PCG(rank=-1),
    ],
    ids=repr,
)
def test_arguments_are_checked(rng, solver):
    X = rng.normal(size=(20, 2))
    model = rk.KernelRidgeRegressor(n_components=5, solver=solver)
    with pytest.raises(ValueError, match=r"parameter of PCG must be"):
        model.fit(X, X[:, 0])
