"""Singular and nearly singular systems: the outcome is named, no accuracy is lost."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from randkern.exceptions import FeatureErrorWarning
from randkern.solvers import PCG, Outcome

N = 240
KERNEL = rk.Gaussian(3.0)
MODES = {"primal": 80, "dual": 400, "exact": None}
COMPLETE = (Outcome.SUCCESS, Outcome.CONVERGED, Outcome.LOSS_CONVERGED)


def base(rng):
    return rng.normal(size=(N, 4))


INPUTS = {
    "duplicate columns": lambda rng: np.repeat(base(rng), 2, axis=1),
    "constant columns": lambda rng: np.hstack([base(rng), np.ones((N, 2))]),
    "duplicate rows": lambda rng: np.tile(base(rng)[:60], (4, 1)),
    "scales apart": lambda rng: base(rng) * [1, 1e-4, 1e3, 1],
    "all alike": lambda rng: base(rng) * 1e-3,
    "constant": lambda rng: np.ones((N, 3)),
}


def root_mean_square(errors):
    return float(np.sqrt(np.mean(errors**2)))


def fitted_values(X, y, alpha, n_components):
    """Return the predictions at X of the minimiser, by singular values in float64.

    Of all the minimisers that alpha = 0 leaves, that of the smallest norm.
    """
    X = X.astype(np.float64)
    if n_components is None:
        values, vectors = np.linalg.eigh(KERNEL(X))
        values, rounding = np.maximum(values, 0), 1e-13
    else:
        Z = rk.RandomFeatures(KERNEL, n_components, random_state=0).fit_transform(X)
        vectors, values, _ = np.linalg.svd(Z, full_matrices=False)
        values, rounding = values**2, 1e-26
    if alpha == 0:
        shares = (values > rounding * values.max()).astype(float)
    else:
        shares = values / (values + alpha)
    return vectors @ (shares * (vectors.T @ y))


def fit(X, y, alpha, n_components, solver):
    """Return a fitted model and whether it warned."""
    model = rk.KernelRidgeRegressor(
        KERNEL, alpha, n_components, solver=solver, random_state=0
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # No intercept, few features: the conditioning is in question.
        warnings.filterwarnings("ignore", "the mean of y")
        warnings.simplefilter("ignore", FeatureErrorWarning)
        model.fit(X, y)
    return model, bool(caught)


EVERY_SYSTEM = [
    pytest.mark.slow,
    pytest.mark.parametrize("dtype", [np.float64, np.float32]),
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.parametrize("alpha", [0.0, 1e-12]),
    pytest.mark.parametrize("name", INPUTS),
]


def every_system(test):
    for mark in EVERY_SYSTEM:
        test = mark(test)
    return test


def rows_of(name, dtype, rng):
    X = INPUTS[name](rng).astype(dtype)
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)


@pytest.mark.nightly
@every_system
def test_cholesky_loses_nothing_in_silence(dtype, mode, alpha, name, rng):
    """It fits as singular values do with the jitter that it says it has added."""
    X, y = rows_of(name, dtype, rng)
    model, warned = fit(X, y, alpha, MODES[mode], "cholesky")
    outcome, jitter = model.solution_.outcome, model.solution_.jitter
    assert warned == (outcome is not Outcome.SUCCESS)
    assert warned == ("increase alpha" in outcome.value)
    assert (jitter > 0) == (outcome is Outcome.JITTERED)
    # An alpha that balances bias and rounding, at most that of single precision.
    assert jitter <= (1e-3 if dtype == np.float32 else 2e-8)
    apart = model.predict(X) - fitted_values(X, y, alpha + jitter, MODES[mode])
    # The matrix has the trace N, so its rounding errors move a fit by N·eps relative to
    # the penalty. Where they exceed it (single precision, or hardly any penalty) they
    # decide which directions of small eigenvalues count, and no bound follows: these
    # hold a few hundredths of the targets, or a fifth if all rows are alike.
    single = dtype == np.float32 and mode != "exact"
    penalty = max(alpha + jitter, np.finfo(float).tiny)
    most = 2e-2 if not single else 0.2 if name == "all alike" else 0.03
    rounding = np.finfo(np.float32 if single else float).eps * N / penalty
    assert root_mean_square(apart) <= min(10 * rounding, most) * y.std()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", INPUTS)
def test_a_usual_penalty_cures_all(mode, name, rng):
    X = INPUTS[name](rng)
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)
    expected = fitted_values(X, y, 0.1, MODES[mode])
    for solver in ("cholesky", PCG(tol=1e-8)):
        model, warned = fit(X, y, 0.1, MODES[mode], solver)
        assert model.solution_.outcome in COMPLETE
        assert not warned
        np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


def test_a_wrong_residual_is_recomputed(rng):
    """A matrix that is not definite in floating point: rounding fakes convergence."""

    class Rounded:
        size, precision = 60, 0.0

        def matmat(self, V):
            return np.ones((60, 60)) @ V + 1e-9 * rng.normal(size=V.shape)

    solver = PCG(tol=1e-8, rank=0, max_iter=50)
    with pytest.warns(ConvergenceWarning):
        solution = solver.solve(solver.init(Rounded()), rng.normal(size=60))
    assert solution.outcome in (Outcome.ILL_CONDITIONED, Outcome.ITERATION_LIMIT)
    assert np.abs(solution.value).max() < 1e3


def test_no_direction_is_left(rng):
    """A singular system without a solution: the best there is, and its name."""

    class Constant:
        size = 30

        def matmat(self, V):
            return np.ones((30, 30)) @ V

    b = rng.normal(size=30)
    solver = PCG(tol=1e-8, rank=0)
    with pytest.warns(ConvergenceWarning, match="singular to working precision"):
        solution = solver.solve(solver.init(Constant()), b)
    assert solution.outcome is Outcome.ILL_CONDITIONED
    assert solution.residual <= 1.0 + 1e-12
    assert np.all(np.isfinite(solution.value))


# Stopping by the loss.


def targets(X, rng):
    noise = rng.normal(size=len(X))
    bins = np.digitize(X[:, 0] + X[:, 1] ** 2, [-0.5, 0.5, 1.5, 3])
    return {
        "smooth": np.sin(X[:, :1]) + 0.1 * noise[:, None],
        "hard": np.sign(np.sin(6 * X[:, :1]) * X[:, 1:2]),
        "noise": noise[:, None],
        "labels": np.where(bins[:, None] == np.arange(5), 1.0, -1.0),
        "unequal": np.column_stack([1e6 * np.sin(X[:, 0]), 1e-3 * noise, X[:, 2] ** 3]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("lengthscale", [0.3, 2.0])
def test_plateaus_are_not_the_minimum(offset, lengthscale, rng):
    """Features of one column: the loss stands still before its steepest falls."""
    X = rng.normal(size=(1500, 1))
    y = offset + np.sin(3 * X[:, 0])
    kernel, alpha = rk.Gaussian(lengthscale), 1e-2
    scores = []
    for solver in ("cholesky", "pcg"):
        model = rk.KernelRidgeRegressor(
            kernel,
            alpha,
            300,
            solver=solver,
            fit_intercept=bool(offset),
            random_state=0,
        ).fit(X, y)
        assert model.solution_.outcome in COMPLETE
        scores.append(model.score(X, y))
    assert scores[1] > scores[0] - 1e-3


def test_the_bound_of_the_excess_holds(rng):
    """‖r‖²/α bounds it: with one target and no decreases to judge by, it decides."""
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0])
    seen = []
    solver = PCG(tol=1e-12, max_iter=4, rank=0, callback=seen.append)
    kernel, alpha, D = rk.Gaussian(1.0), 1.0, 200
    with pytest.warns(ConvergenceWarning):
        rk.KernelRidgeRegressor(kernel, alpha, D, solver=solver, random_state=0).fit(
            X, y
        )
    Z = rk.RandomFeatures(kernel, D, random_state=0).fit_transform(X)
    best = np.linalg.solve(Z.T @ Z + alpha * np.eye(D), Z.T @ y)

    def loss(weights):
        return np.sum((Z @ weights - y) ** 2) + alpha * np.sum(weights**2)

    for at in seen:
        true = (loss(at.value[:, 0]) - loss(best)) / loss(at.value[:, 0])
        assert true <= at.excess < np.inf


def test_large_penalties_leave_the_classes_apart(rng):
    """Hardly any loss can be gained: what little there is decides."""
    X = rng.normal(size=(1000, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] > 0
    scores = [
        rk.KernelRidgeClassifier(
            rk.Gaussian(2.0), 1e6, 200, solver=solver, random_state=0
        )
        .fit(X, y)
        .score(X, y)
        for solver in ("cholesky", "pcg")
    ]
    assert scores[0] > 0.75
    assert scores[1] > scores[0] - 0.02


@pytest.mark.parametrize(
    ("lengthscale", "alpha", "offset"), [(30.0, 1e-8, 0.0), (10.0, 1e-6, 1e4)]
)
def test_smooth_kernels_are_not_left_early(lengthscale, alpha, offset, rng):
    """Past the known eigenpairs the loss stands still for long, near any residual."""
    X = rng.normal(size=(1500, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=1500) + offset
    models = [
        rk.KernelRidgeRegressor(
            rk.Gaussian(lengthscale), alpha, 200, solver=solver, random_state=0
        ).fit(X, y)
        for solver in ("cholesky", "pcg")
    ]
    assert models[1].solution_.outcome in COMPLETE
    assert models[1].score(X, y) > models[0].score(X, y) - 0.01


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
@pytest.mark.parametrize("n_components", [100, None])
def test_a_huge_target_without_weight_says_nothing(solver, n_components, rng):
    X = rng.normal(size=(300, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    weight = np.ones(300)
    weight[7], spoilt = 0.0, y.copy()
    spoilt[7] = 1e200
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(2.0), 1e-3, n_components, solver=solver, random_state=0
    )
    usual = model.fit(X, y, sample_weight=weight).predict(X)
    np.testing.assert_allclose(
        model.fit(X, spoilt, sample_weight=weight).predict(X), usual, atol=1e-6
    )
