"""How to add a kernel, a projection, a solver and a source of rows, by examples.

Each is what ``docs/architecture.md`` says: one class, and one line in the list of the
contract suites, which are then run for it.
"""

import sqlite3
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils._param_validation import StrOptions

import randkern as rk
import test_blocks
import test_features_statistics
import test_kernels
import test_plan
import test_solvers
from _cases import KERNELS, POINTS, PROJECTIONS, Case
from randkern import projections
from randkern._validation import densify
from randkern.backend.namespace import ops_of
from randkern.data import RowBlocks
from randkern.kernels.base import Kernel, Leaf
from randkern.kernels.stationary import Stationary
from randkern.projections import Distribution, Stored
from randkern.solvers import IterativeSolver, Outcome, Progress, Solution
from randkern.solvers.iteration import iterate
from test_solvers import SOLVERS

# -- a kernel ----------------------------------------------------------------------


@dataclass(frozen=True)
class UniformDistribution(Distribution):
    """Independent entries, uniform on [−1, 1]."""

    name = "uniform"
    entries = "uniform"

    def transform(self, rows):
        return 2.0 * rows - 1.0

    def quantile(self, points):
        return 2.0 * points - 1.0


class Sinc(Stationary):
    """Π_j sin(τ_j/ℓ)/(τ_j/ℓ); frequencies are uniform on [−1/ℓ, 1/ℓ]."""

    distribution = UniformDistribution()
    # No gradients: Gaussian processes keep its lengthscale.
    learnable = ()

    def _tile(self, X, Y, same):
        scale = self._inverse_scale(X)
        X, Y = densify(X) * scale, densify(Y) * scale
        values = ops_of(X).float64_ones((X.shape[0], Y.shape[0]), X)
        for x, y in zip(X.T, Y.T, strict=True):
            values *= np.sinc((x[:, None] - y) / np.pi)
        return values


@pytest.fixture
def sinc(monkeypatch):
    # The one line, in tests/_cases.py.
    monkeypatch.setitem(KERNELS, "sinc", Case(Sinc(0.7)))
    return "sinc"


def test_a_kernel_has_exact_values(sinc):
    kernel = KERNELS[sinc].kernel
    test_kernels.test_gram_matrix_is_symmetric_and_positive(kernel)
    test_kernels.test_rows_compared_with_themselves(kernel)
    test_kernels.test_float32_is_kept_and_computed_in_float64(kernel)
    np.testing.assert_array_equal(clone(kernel)(POINTS), kernel(POINTS))


@pytest.mark.parametrize("fourier", ["pair", "offset"])
@pytest.mark.parametrize("projection", ["dense", "streamed", "qmc"])
def test_a_kernel_has_features(sinc, fourier, projection):
    options = sinc, fourier, False, projection
    test_plan.test_ranges_of_columns(*options)
    test_plan.test_sparse_rows(*options)
    test_plan.test_float32(*options)


@pytest.mark.parametrize("fourier", ["pair", "offset"])
def test_features_of_a_kernel_have_its_mean_and_variance(sinc, fourier):
    test_features_statistics.test_mean_and_variance(sinc, fourier)


def test_a_kernel_without_values_is_an_error():
    class Incomplete(Leaf):
        def __init__(self, columns=None):
            self.columns = columns

    with pytest.raises(NotImplementedError, match="Incomplete .*define `_tile`"):
        Incomplete()(POINTS)
    with pytest.raises(TypeError, match="abstract"):
        Kernel()
    with pytest.raises(NotImplementedError, match="define `_profile`, or `_tile`"):
        Stationary()(POINTS)


def test_a_process_keeps_what_a_kernel_cannot_learn(sinc, rng):
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    kernel = 0.5 * Sinc(0.7)
    model = rk.GaussianProcessRegressor(kernel, n_components=None, random_state=0)
    learned = model.fit(X, y).kernel_
    assert learned.kernel.lengthscale == 0.7
    assert learned.scale != 0.5


# -- a projection ------------------------------------------------------------------


class Mirrored(Stored):
    """Independent normal rows, each followed by the same row in reversed order."""

    name = "mirrored"
    # Not that of every rotation, but of no other distribution here.
    needs_rotation_invariance = True

    def draw(self):
        n_parts = 2 if self.distribution.is_complex else 1
        generator = self.stream.child("half").generator()
        half = generator.standard_normal(size=(n_parts, self.n_draws, self.width))
        both = np.stack([half, half[..., ::-1]], axis=2)
        matrix = both.reshape(n_parts, -1, self.width)[:, : self.n_draws]
        matrix = matrix * self.mixing_factors[:, None]
        if self.distribution.is_complex:
            return tuple(self.distribution.part_scale * part for part in matrix)
        return (matrix[0],)


@pytest.fixture
def mirrored(monkeypatch):
    # The line in projections/__init__.py, and the constraint made of it at import.
    monkeypatch.setitem(projections._BY_NAME, "mirrored", Mirrored)
    constraints = {"projection": [StrOptions({"auto", *projections._BY_NAME})]}
    monkeypatch.setattr(
        rk.RandomFeatures,
        "_parameter_constraints",
        rk.RandomFeatures._parameter_constraints | constraints,
    )
    # The line in tests/_cases.py, and what is made of it at import.
    monkeypatch.setitem(PROJECTIONS, "mirrored", (False, 0.0))
    monkeypatch.setitem(test_features_statistics.CORRELATED, "mirrored", 0.0)
    return "mirrored"


@pytest.mark.parametrize(
    ("name", "fourier"),
    [
        ("gaussian-ard", "pair"),
        ("gaussian-ard", "offset"),
        ("matern-1.5", "pair"),
        ("optical-1-bias", "pair"),
    ],
)
def test_a_projection_draws_every_distribution_that_it_suits(mirrored, name, fourier):
    options = name, fourier, False, mirrored
    test_plan.test_ranges_of_columns(*options)
    test_plan.test_blocks_of_rows_and_their_order(*options)
    test_plan.test_sparse_rows(*options)
    test_plan.test_pickling(*options)
    test_features_statistics.test_mean_of_dependent_draws(mirrored, name, fourier)


def test_a_projection_names_the_kernels_that_it_does_not_suit(mirrored):
    features = rk.RandomFeatures(rk.Laplacian(), 40, projection=mirrored)
    with pytest.raises(ValueError, match=r"'mirrored' needs rows .* of Laplacian\(\)"):
        features.fit(POINTS)


# -- a solver ----------------------------------------------------------------------


class TextbookCG(IterativeSolver):
    """Conjugate gradients, every column on its own (Hestenes and Stiefel 1952)."""

    name = "textbook"

    def __init__(self, tol=1e-6, max_iter=500, callback=None):
        self.tol = tol
        self.max_iter = max_iter
        self.callback = callback

    def init(self, system, shift=0.0):
        return system, shift

    def solve(self, state, rhs, *, callback=None, **criteria):
        run = TextbookRun(self, state, rhs)
        seconds = iterate(run, self.max_iter, (self.callback, callback))
        if run.outcome is None:
            run.outcome = Outcome.ITERATION_LIMIT
        return Solution(run.X, run.residual, run.count, run.outcome, seconds=seconds)


class TextbookRun:
    """An iteration of :class:`TextbookCG`, an `Iteration`."""

    def __init__(self, solver, state, rhs):
        self.solver, (self.system, self.shift) = solver, state
        self.norms = (rhs * rhs).sum(0) ** 0.5
        self.X, self.R, self.P = 0.0 * rhs, rhs, rhs
        self.count, self.outcome = 0, None

    @property
    def residual(self):
        return float(((self.R * self.R).sum(0) ** 0.5 / self.norms).max())

    def advance(self):
        Q = self.system.matmat(self.P) + self.shift * self.P
        squares = (self.R * self.R).sum(0)
        step = squares / (self.P * Q).sum(0)
        self.X, self.R = self.X + step * self.P, self.R - step * Q
        self.P = self.R + (self.R * self.R).sum(0) / squares * self.P
        self.count += 1
        if self.residual <= self.solver.tol:
            self.outcome = Outcome.CONVERGED
        return True

    def progress(self, seconds):
        return Progress(self.count, self.residual, np.inf, seconds, self.X)


@pytest.fixture
def textbook(monkeypatch):
    # The one line, in tests/test_solvers.py.
    case = TextbookCG(tol=1e-10), lambda rows: rows, lambda rows: rows.cross, 1e-7
    monkeypatch.setitem(SOLVERS, "textbook", case)
    return "textbook"


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
def test_a_solver_solves(textbook, tensors, rng):
    test_solvers.test_it_is_a_dense_solve(textbook, tensors, rng)


def test_a_solver_has_callbacks(textbook, rng):
    test_solvers.test_callbacks_of_the_solver_and_of_the_call_are_both_called(
        textbook, rng
    )


@pytest.mark.parametrize("n_components", [80, None])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_solver_is_that_of_ridge_models(n_components, fit_intercept, rng):
    X = rng.normal(size=(150, 3))
    y = np.sin(X[:, 0]) + 2.0
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0),
        alpha=0.1,
        n_components=n_components,
        fit_intercept=fit_intercept,
        solver=TextbookCG(tol=1e-9),
        random_state=0,
    )
    exact = clone(model).set_params(solver="cholesky").fit(X, y)
    np.testing.assert_allclose(model.fit(X, y).predict(X), exact.predict(X), atol=1e-6)
    assert model.solution_.outcome is Outcome.CONVERGED
    assert model.solution_.iterations > 3


# -- a source of rows --------------------------------------------------------------


class Database:
    """The rows of a table of a database, a block at a time."""

    def __init__(self, path, block_rows):
        self.path, self.block_rows = path, block_rows
        with sqlite3.connect(path) as database:
            (self.n_rows,) = database.execute("SELECT COUNT(*) FROM points").fetchone()
        self.n_blocks = -(-self.n_rows // block_rows)
        self.column_names = ("a", "b")

    def __iter__(self):
        for start in range(0, self.n_rows, self.block_rows):
            with sqlite3.connect(self.path) as database:
                rows = database.execute(
                    "SELECT a, b, y FROM points ORDER BY rowid LIMIT ? OFFSET ?",
                    (self.block_rows, start),
                ).fetchall()
            values = np.array(rows)
            yield values[:, :-1], values[:, -1]


def database_of(path, X, y, block_rows):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE points (a REAL, b REAL, y REAL)")
        rows = np.column_stack([X, y]).tolist()
        database.executemany("INSERT INTO points VALUES (?, ?, ?)", rows)
    return RowBlocks(Database(path, block_rows))


def test_a_source_is_read_in_order(monkeypatch, tmp_path):
    # The one line, in tests/test_blocks.py.
    monkeypatch.setitem(
        test_blocks.SOURCES,
        "database",
        lambda X, y: database_of(tmp_path / "points.db", X, y, 3),
    )
    test_blocks.test_every_pass_yields_the_same_rows("database")


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
def test_a_source_is_that_of_every_model_of_features(solver, rng, tmp_path):
    X = rng.normal(size=(500, 2))
    y = np.sin(X[:, 0])
    rows = database_of(tmp_path / "points.db", X, y, 64)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(1.5), 1e-2, n_components=100, solver=solver, random_state=0
    )
    expected = clone(model).fit(X, y).predict(X)
    atol = {"cholesky": 1e-8, "pcg": 1e-3}[solver]
    np.testing.assert_allclose(model.fit(rows).predict(rows), expected, atol=atol)
