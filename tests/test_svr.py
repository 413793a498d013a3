"""`KernelSVR`: the objective against other solvers, and what it refuses."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVR, LinearSVR

import randkern as rk
from randkern.exceptions import MemoryLimitError

KERNEL = rk.Gaussian(1.5)


def data(rng, n=60):
    X = rng.normal(size=(n, 2))
    return X, 5 + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("n_components", [40, 90])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_features_against_scikit_learn(rng, n_components, epsilon):
    X, y = data(rng)
    weight = rng.uniform(0.5, 2, 60)
    options = {"epsilon": epsilon, "tol": 1e-9, "random_state": 0}
    model = rk.KernelSVR(KERNEL, 3.0, n_components, **options).fit(X, y, weight)
    Z = rk.RandomFeatures(KERNEL, n_components, random_state=0).fit_transform(X)
    oracle = SVR(C=3.0, epsilon=epsilon, kernel="linear", tol=1e-9)
    expected = oracle.fit(Z, y, weight).predict(Z)
    assert model.duality_gap_ <= 1e-9

    def objective(values, coef):
        slack = (abs(y - values) - epsilon).clip(0.0)
        return 0.5 * coef @ coef + 3.0 * weight @ slack

    least = objective(expected, oracle.coef_[0])
    reached = objective(model.predict(X), model.coef_)
    assert reached <= (1 + 1e-7) * least
    # ½‖w − w*‖² is at most the excess of either objective; LIBSVM's is rounded.
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-3)


def test_an_outlier_does_not_move_the_others(rng):
    """Its loss dominates the objective, of which a gap is a share; nor is it a mean."""
    X, y = data(rng, 200)
    truth = y.copy()
    y[0] = 1e6
    Z = rk.RandomFeatures(KERNEL, 200, random_state=0).fit_transform(X)
    oracle = LinearSVR(C=10.0, epsilon=0.05, tol=1e-8, max_iter=10**5, random_state=0)
    best = np.median(abs(oracle.fit(Z, truth).predict(Z) - truth))
    for n_components in (200, None):
        model = rk.KernelSVR(
            KERNEL, 10.0, n_components, epsilon=0.05, random_state=0
        ).fit(X, y)
        assert np.median(abs(model.predict(X) - truth)) < 2 * best < 0.2


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_few_passes_end_at_the_optimum(rng):
    """Newton's method continues where passes are too few, and nothing warns."""
    X, y = data(rng, 300)
    y[::17] += 3
    found = []
    for max_iter in (1000, 50):
        model = rk.KernelSVR(KERNEL, 100.0, 128, max_iter=max_iter)
        found.append(model.set_params(random_state=0).fit(X, y).predict(X))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_a_gap_that_is_left_is_measured(rng):
    """A fit that Newton's method may not finish warns of its gap."""
    X, y = data(rng, 300)
    limit = 8 * 300 * 128 * 4
    model = rk.KernelSVR(KERNEL, 1e4, 128, max_iter=2, memory_limit=limit)
    with pytest.warns(ConvergenceWarning, match="duality gap is .* max_iter=2 passes"):
        model.set_params(random_state=0).fit(X, y)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_the_exact_kernel_against_scikit_learn(rng, C, unit):
    """Also in other units of the targets, with C and ε in these units."""
    X, y = data(rng, 300)
    y[::17] += 3
    weight = rng.uniform(0.5, 2, 300)
    weight[:20] = 0.0
    ours = rk.KernelSVR(KERNEL, unit * C, None, epsilon=0.05 * unit, tol=1e-6)
    ours.fit(X, unit * y, weight)
    theirs = SVR(C=C, epsilon=0.05, gamma=1 / (2 * 1.5**2), tol=1e-6)
    theirs.fit(X[20:], y[20:], weight[20:])
    found = ours.predict(X) / unit

    def primal(values, dual, rows):
        slack = (abs(y - values) - 0.05).clip(0.0)
        return 0.5 * dual @ KERNEL(rows) @ dual + C * weight @ slack

    least = primal(theirs.predict(X), theirs.dual_coef_[0], theirs.support_vectors_)
    reached = primal(found, ours.dual_coef_ / unit, ours.X_fit_)
    # Ours is at most the share tol above the optimum, and so above any other objective.
    assert reached <= (1 + 1e-6) * least
    # ½‖w − w*‖² is at most the excess of either objective, and k(x, x) = 1; values
    # without intercepts differ by at most ‖w − w'‖.
    bound = 2 * np.sqrt(2e-6 * least)
    assert np.ptp(found - theirs.predict(X)) < 2 * bound
    assert ours.intercept_ / unit == pytest.approx(theirs.intercept_[0], abs=2e-3)
    assert len(ours.X_fit_) == len(ours.dual_coef_)


@pytest.mark.parametrize("n_components", [20, None])
def test_targets_within_the_tube(rng, n_components):
    """Nothing is left to fit but a constant."""
    X = rng.normal(size=(30, 2))
    model = rk.KernelSVR(KERNEL, 1.0, n_components, random_state=0)
    values = model.fit(X, np.full(30, 3.0)).predict(X)
    np.testing.assert_allclose(values, 3.0, atol=0.1)


def test_what_is_refused(rng):
    X, y = data(rng)
    with pytest.raises(ValueError, match="a single target, got 2; .*MultiOutput"):
        rk.KernelSVR(n_components=5).fit(X, np.stack([y, y], 1))
    with pytest.raises(MemoryLimitError, match="60 rows to 5000 features"):
        rk.KernelSVR(n_components=5000, memory_limit="1MB").fit(X, y)
