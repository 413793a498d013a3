"""Gaussian processes of nearest rows: equal to the exact one where k allows it."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import randkern as rk

N = 120
KERNEL = 2.0 * rk.Matern(1.5, np.array([1.0, 2.0])) + 0.5 * rk.Linear()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (N, 2))
    Y = np.column_stack([np.sin(X[:, 0]) * X[:, 1], X[:, 0]])
    Y += 0.1 * rng.normal(size=(N, 2))
    return X, Y, rng.uniform(0.5, 3.0, N), rng.uniform(-4, 4, (40, 2))


def process(n_neighbors=None, kernel=KERNEL, **settings):
    settings = {"noise": 0.05, "optimizer": None, "random_state": 0} | settings
    return rk.GaussianProcessRegressor(
        kernel, n_components=None, n_neighbors=n_neighbors, **settings
    )


@pytest.mark.parametrize(
    ("mean", "weights"),
    [("zero", "counts"), ("constant", "precision"), ("linear", "counts")],
)
def test_all_rows_as_neighbors_are_the_exact_process(mean, weights, data):
    X, Y, w, new = data
    settings = {"mean": mean, "weights": weights, "normalize_y": True}
    exact = process(**settings).fit(X, Y, w)
    nearest = process(N, **settings).fit(X, Y, w)
    for include_noise in (False, True):
        expected = exact.predict(new, return_std=True, include_noise=include_noise)
        got = nearest.predict(new, return_std=True, include_noise=include_noise)
        # Covariances of a vague mean, 10⁴, leave 12 of 16 digits.
        np.testing.assert_allclose(got, expected, atol=1e-8 * abs(Y).max())
    np.testing.assert_array_equal(nearest.predict(new), got[0])
    # The density of the last row, given N − 1 others, is the first that needs all.
    nearest = process(N - 1, **settings).fit(X, Y, w)
    expected = exact.log_marginal_likelihood_value_
    assert nearest.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-5)


def test_each_row_is_the_exact_process_of_its_neighbors(data):
    X, Y, w, new = data
    kernel = rk.Matern(2.5, np.array([0.5, 2.0]))
    mean, std = process(7, kernel).fit(X, Y, w).predict(new, return_std=True)
    for row, x in enumerate(new):
        near = np.argsort((((X - x) / [0.5, 2.0]) ** 2).sum(axis=1))[:7]
        exact = process(None, kernel).fit(X[near], Y[near], w[near])
        expected = exact.predict([x], return_std=True)
        np.testing.assert_allclose(mean[row], expected[0][0], atol=1e-10)
        np.testing.assert_allclose(std[row], expected[1][0], atol=1e-10)


@pytest.fixture
def more(rng):
    """More rows than the likelihood of all of them is used for (300)."""
    X = rng.uniform(-4, 4, (320, 2))
    Y = np.column_stack([np.sin(X[:, 0]) * X[:, 1], X[:, 0]])
    return X, Y + 0.1 * rng.normal(size=Y.shape), rng.uniform(0.5, 3.0, 320)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "weights"), [(1, "counts"), (33, "precision"), (319, "counts")]
)
def test_the_likelihood_is_a_product_with_its_gradient(k, weights, more):
    model = process(k, weights=weights).fit(*more)
    theta, value = model.theta_, model.log_marginal_likelihood_value_
    exact = process(weights=weights).fit(*more).log_marginal_likelihood_value_
    if k == 319:
        assert value == pytest.approx(exact, abs=1e-8)
    else:  # fewer neighbours tell less of these rows
        assert value < exact
    again, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert again == pytest.approx(value, abs=1e-8)
    step = 1e-5
    for e, slope in zip(step * np.eye(len(theta)), gradient, strict=True):
        high, low = map(model.log_marginal_likelihood, (theta + e, theta - e))
        # Values of about 10³ with 15 digits, over the step.
        assert slope == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-5)


@pytest.mark.nightly
def test_a_sample_of_the_conditionals_is_unbiased(rng):
    X = rng.uniform(0, 40, (2400, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2400)
    errors = []
    for seed in range(12):
        model = process(3, rk.Gaussian(1.0), random_state=seed).fit(X, y)
        sampled = model.log_marginal_likelihood(model.theta_)
        errors.append(sampled - model.log_marginal_likelihood_value_)
    assert 0 < abs(np.mean(errors)) < 4 * np.std(errors) / 12**0.5


def test_learning_ends_where_the_exact_process_does():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (600, 2))
    y = np.sin(X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=600)
    kernel = 1.0 * rk.Matern(1.5, np.ones(2))
    exact = process(None, kernel, optimizer="l-bfgs-b").fit(X, y)
    nearest = process(30, kernel, optimizer="l-bfgs-b").fit(X, y)
    # σ² has the relative standard error (2/n)^½ = .058, from residuals alone.
    assert abs(nearest.theta_[-1] - exact.theta_[-1]) < 2 * (2 / 600) ** 0.5
    # Twice the loss by other estimates of four numbers has a χ² distribution with four
    # degrees of freedom, if they are efficient: below 18.5 with probability .999.
    at_nearest = exact.log_marginal_likelihood(nearest.theta_)
    assert 0 <= exact.log_marginal_likelihood_value_ - at_nearest < 18.5 / 2


def test_inputs_of_every_kind(data, tmp_path):
    X, Y, w, new = data
    expected = process(9).fit(X, Y[:, 0], w).predict(new, return_std=True)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = process(9).fit(frame, Y[:, 0], w)
    named = model.predict(pd.DataFrame(new, columns=["a", "b"]), return_std=True)
    np.testing.assert_array_equal(named, expected)
    sparse = process(9).fit(sp.csr_array(X), Y[:, 0], w)
    np.testing.assert_allclose(
        sparse.predict(sp.csr_array(new), return_std=True), expected, atol=1e-10
    )
    rk.save(model, tmp_path / "model")
    again = rk.load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict(pd.DataFrame(new, columns=["a", "b"]), return_std=True), expected
    )
    blocks = rk.RowBlocks([new[:7], new[7:]])
    model = process(9).fit(X, Y[:, 0], w)
    np.testing.assert_allclose(
        model.predict(blocks, return_std=True), expected, atol=1e-10
    )
    single = process(9).fit(X.astype(np.float32), Y[:, 0], w)
    np.testing.assert_allclose(
        single.predict(new.astype(np.float32)), expected[0], atol=1e-3
    )


def test_more_rows_are_added(data):
    X, Y, w, new = data
    both = process(9).fit(X[:80], Y[:80], w[:80]).condition_on(X[80:], Y[80:], w[80:])
    got, expected = (m.predict(new, True) for m in (both, process(9).fit(X, Y, w)))
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_kernels_without_lengthscales_have_nearest_rows(data):
    X, Y, _, new = data
    kernel = rk.ArcCosine(1) + rk.Linear()
    expected = process(None, kernel).fit(X, Y).predict(new, return_std=True)
    got = process(N, kernel).fit(X, Y).predict(new, return_std=True)
    np.testing.assert_allclose(got, expected, atol=1e-8)
    assert np.isfinite(process(9, kernel).fit(X, Y).predict(new)).all()


@pytest.mark.parametrize("weights", ["counts", "precision"])
def test_rows_at_one_place_are_one_neighbor(weights):
    """k nearest rows that are copies of one place told nothing of the others."""
    rng = np.random.default_rng(0)
    places = rng.uniform(size=(15, 2))
    X = np.repeat(places, 6, axis=0)
    y = np.sin(6 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
    w = rng.uniform(0.5, 3.0, len(X))
    kernel, new = rk.Gaussian(0.3), rng.uniform(size=(20, 2))
    exact = process(kernel=kernel, weights=weights).fit(X[:-9], y[:-9], w[:-9])
    near = process(15, kernel, weights=weights).fit(X[:-9], y[:-9], w[:-9])
    for _ in range(2):
        for got, expected in zip(
            near.predict(new, return_std=True),
            exact.predict(new, return_std=True),
            strict=True,
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)
        assert near.log_marginal_likelihood_value_ == pytest.approx(
            exact.log_marginal_likelihood_value_, rel=1e-9
        )
        near, exact = (
            model.condition_on(X[-9:], y[-9:], w[-9:]) for model in (near, exact)
        )


def test_settings_and_questions_it_does_not_answer(data):
    X, Y, _, new = data
    y = Y[:, 0]
    for settings, message in (
        ({"n_components": 100}, "n_components=None"),
        ({"likelihood": "poisson"}, "likelihood='gaussian'"),
        ({"n_neighbors": 0}, "n_neighbors"),
    ):
        with pytest.raises(ValueError, match=message):
            process(5).set_params(**settings).fit(X, abs(y))
    with pytest.raises(ValueError, match="in memory"):
        process(5).fit(rk.RowBlocks([(X, y)]))
    with pytest.raises(rk.exceptions.MemoryLimitError, match="n_neighbors"):
        process(5, memory_limit=100).fit(X, y)
    model = process(5).fit(X, y)
    with pytest.raises(ValueError, match=r"return_cov needs .* n_neighbors=5"):
        model.predict(new, return_cov=True)
    for question in (model.sample_y, model.sample_paths):
        arguments = [new] if question == model.sample_y else []
        with pytest.raises(ValueError, match="n_neighbors=5"):
            question(*arguments)
    assert not hasattr(model, "precision_factor_")
