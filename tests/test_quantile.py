"""`KernelQuantileRegressor`: its objective, its coverage, and what it refuses."""

import re
import warnings

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import d2_pinball_score, mean_pinball_loss

import randkern as rk

KERNEL = rk.Gaussian(1.5)
QUANTILES = (0.1, 0.5, 0.9)


def data(rng, n=60):
    X = rng.normal(size=(n, 2))
    noise = 0.1 + 0.3 * abs(X[:, 1])
    return X, 5 + np.sin(2 * X[:, 0]) + noise * rng.normal(size=n)


def raw_quantiles(model, X):
    """Return the quantiles before they are sorted."""
    Z = rk.RandomFeatures(
        model.kernel, model.n_components, random_state=model.random_state
    ).fit_transform(X)
    return Z @ model.coef_.T + model.intercept_


def test_without_a_penalty_it_is_linear_programming_on_the_features(rng):
    X, y = data(rng, 300)
    kernel = rk.Gaussian(0.5)
    model = rk.KernelQuantileRegressor(kernel, 1e-6, n_components=40, random_state=0)
    ours = raw_quantiles(model.fit(X, y), X)
    Z = rk.RandomFeatures(kernel, 40, random_state=0).fit_transform(X)
    for j, quantile in enumerate(QUANTILES):
        theirs = QuantileRegressor(quantile=quantile, alpha=0).fit(Z, y)
        least = mean_pinball_loss(y, theirs.predict(Z), alpha=quantile)
        loss = mean_pinball_loss(y, ours[:, j], alpha=quantile)
        assert loss == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("alpha", [1e-2, 30.0])
@pytest.mark.parametrize("n_components", [40, None])
def test_the_objective_is_least(rng, alpha, n_components):
    """Against the dual quadratic programme, with weights, by a general optimiser."""
    n, quantile = 40, 0.3
    X, y = data(rng, n)
    weight = rng.uniform(0.5, 2, n)
    model = rk.KernelQuantileRegressor(
        KERNEL, alpha, quantile, n_components, tol=1e-9, random_state=0
    ).fit(X, y, weight)
    K = KERNEL(X)
    if n_components:
        Z = rk.RandomFeatures(KERNEL, n_components, random_state=0).fit_transform(X)
        K = Z @ Z.T
    order = np.argsort(y)
    median = y[order][np.searchsorted(weight[order].cumsum(), weight.sum() / 2)]
    unit = np.average(abs(y - median), weights=weight)
    target, C = (y - median) / unit, weight / alpha
    found = minimize(
        lambda a: 0.5 * a @ K @ a - a @ target,
        np.zeros(n),
        jac=lambda a: K @ a - target,
        method="SLSQP",
        bounds=np.stack([(quantile - 1) * C, quantile * C], axis=1),
        constraints=LinearConstraint(np.ones((1, n)), 0, 0),
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    values = (model.predict(X) - median) / unit
    if n_components:
        square = model.coef_ @ model.coef_ / unit**2
    else:
        square = model.dual_coef_ @ KERNEL(model.X_fit_) @ model.dual_coef_ / unit**2
    residual = target - values
    losses = np.maximum(quantile * residual, (quantile - 1) * residual)
    assert 0.5 * square + C @ losses == pytest.approx(-found.fun, rel=1e-7)
    assert model.duality_gap_[0] <= 1e-9


@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_the_unit_of_the_targets_does_not_matter(rng, unit):
    X, y = data(rng)
    model = rk.KernelQuantileRegressor(
        KERNEL, n_components=30, tol=1e-7, random_state=0
    )
    expected = model.fit(X, y).predict(X)
    np.testing.assert_allclose(model.fit(X, unit * y).predict(X), unit * expected)
    np.testing.assert_allclose(
        model.fit(X, 7 - 3 * y).predict(X), 7 - 3 * expected[:, ::-1], atol=1e-4
    )


def test_quantiles_never_cross(rng):
    """Though those of the separate problems do, where there are few rows."""
    X, y = data(rng)
    quantiles = np.arange(1, 20) / 20
    model = rk.KernelQuantileRegressor(
        KERNEL, 1e-3, quantiles, n_components=30, random_state=0
    ).fit(X, y)
    new = rng.normal(size=(500, 2)) * 2
    raw = raw_quantiles(model, new)
    assert (np.diff(raw, axis=1) < 0).any(axis=1).mean() > 0.1
    np.testing.assert_allclose(model.predict(new), np.sort(raw, axis=1))


@pytest.mark.parametrize("quantile", [0.05, 0.5])
def test_conformal_shifts_have_the_coverage_of_split_conformal_prediction(
    rng, quantile
):
    """Given the fit, the coverage of n values is distributed as Beta(k, n + 1 − k)."""
    n_fits, n_held, n_new = 30, 40, 200
    covered = []
    for seed in range(n_fits):
        X, y = data(rng, 200 + n_new)
        model = rk.KernelQuantileRegressor(
            KERNEL,
            0.05,
            quantile,
            40,
            conformal=True,
            tol=1e-2,
            random_state=seed,
        ).fit(X[:200], y[:200])
        below = y[200:] <= model.predict(X[200:])
        covered.append(np.mean(below if quantile >= 0.5 else ~below))
    coverage = max(quantile, 1 - quantile)
    k = np.ceil(coverage * (n_held + 1) - 1e-9)
    mean = k / (n_held + 1)
    assert mean >= coverage - 1e-9
    variance = mean * (1 - mean) * (1 / (n_held + 2) + 1 / n_new)
    assert abs(np.mean(covered) - mean) < 4 * np.sqrt(variance / n_fits)


def test_conformal_fits_do_not_use_targets_that_are_set_aside(rng):
    X, y = data(rng, 30)
    model = rk.KernelQuantileRegressor(
        KERNEL, quantiles=0.5, n_components=10, conformal=True, random_state=0
    )
    coef = model.fit(X, y).coef_
    changed = [
        j
        for j in range(30)
        if (model.fit(X, y + 5 * (np.arange(30) == j)).coef_ != coef).any()
    ]
    assert 0 < len(changed) <= 24


def test_the_score_is_the_mean_of_scikit_learns(rng):
    X, y = data(rng)
    weight = rng.uniform(1, 2, 60)
    model = rk.KernelQuantileRegressor(KERNEL, n_components=30, random_state=0)
    values = model.fit(X, y).predict(X)
    scores = [
        d2_pinball_score(y, values[:, j], sample_weight=weight, alpha=quantile)
        for j, quantile in enumerate(QUANTILES)
    ]
    assert model.score(X, y, weight) == pytest.approx(np.mean(scores))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantiles": (0.9, 0.1)}, "increasing order"),
        ({"quantiles": ()}, "between 0 and 1"),
        ({"quantiles": (0.0, 0.5)}, "between 0 and 1"),
        ({"quantiles": (0.001, 0.5), "conformal": True}, "too few for"),
        ({"validation_fraction": 0.999, "conformal": True}, "or leaves no rows to fit"),
        ({"n_components": 2000, "memory_limit": "1MB"}, "Use fewer components"),
    ],
)
def test_what_it_refuses(rng, options, message):
    X, y = data(rng)
    with pytest.raises((ValueError, MemoryError), match=message):
        rk.KernelQuantileRegressor(**options).fit(X, y)


def test_a_gap_above_the_tolerance_warns(rng):
    X, y = data(rng)
    model = rk.KernelQuantileRegressor(
        n_components=30, alpha=1e-6, tol=1e-30, random_state=0
    )
    with pytest.warns(UserWarning, match="duality gap"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(tol=1e-6).fit(X, y)


def test_an_outlier_does_not_leave_the_others_unfitted(rng):
    """Its loss dominates the objective, of which a gap is a share."""
    X, y = data(rng, 200)
    truth = y.copy()
    y[0] = 1e6
    options = {"quantiles": 0.5, "n_components": 60, "random_state": 0}
    model = rk.KernelQuantileRegressor(KERNEL, 1.0, **options).fit(X, y)
    exact = rk.KernelQuantileRegressor(KERNEL, 1.0, tol=1e-12, **options).fit(X, y)
    error, least = (abs(fit.predict(X) - truth)[1:].mean() for fit in (model, exact))
    assert error < 1.1 * least


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_components", [30, None])
def test_constant_targets_take_no_steps(rng, n_components):
    X, _ = data(rng, 200)
    options = {"n_components": n_components, "random_state": 0}
    model = rk.KernelQuantileRegressor(quantiles=(0.05, 0.5, 0.95), **options)
    model.fit(X, np.full(200, 3.7))
    assert model.n_iter_ == 0 and model.duality_gap_.max() == 0
    np.testing.assert_array_equal(model.predict(X), 3.7)


def test_the_advised_memory_is_enough(rng):
    """Advice of another limit after each retry would never end."""
    X, y = data(rng, 400)
    model = rk.KernelQuantileRegressor(n_components=300, memory_limit="1MB")
    with pytest.raises(MemoryError) as caught:
        model.fit(X, y)
    limit = re.search("memory_limit='(.*)'", str(caught.value))[1]
    model.set_params(memory_limit=limit).fit(X, y)
