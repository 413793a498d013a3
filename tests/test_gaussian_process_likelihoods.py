"""Likelihoods of targets other than the Gaussian one, by Laplace's approximation."""

import warnings

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

import randkern as rk
from randkern.models._gp_likelihoods import Bernoulli, Poisson, StudentT
from randkern.plan import evaluate

N = 70
LIKELIHOODS = {
    "bernoulli": (Bernoulli(), np.array([-1.0, 1.0, 1.0, -1.0])),
    "poisson": (Poisson(0.4), np.array([0.0, 1.0, 3.0, 11.0])),
    "student-t": (StudentT(0.3), np.array([0.0, -2.0, 0.6, 5.0])),
}
EVERY = pytest.mark.parametrize("name", LIKELIHOODS)
BOTH = pytest.mark.parametrize("name", ["poisson", "student-t"])
SIZES = pytest.mark.parametrize("D", [None, 40, 150], ids=["exact", "n > D", "n < D"])


@pytest.fixture
def data(rng):
    """Rows, and targets of each likelihood."""
    X = rng.normal(size=(N, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    noisy = f + 0.2 * rng.standard_t(3, size=N)
    noisy[::9] += 4
    return X, {"poisson": 1.0 * rng.poisson(np.exp(1 + f)), "student-t": noisy}


def process(name, D, kernel=None, **options):
    kernel = 1.5 * rk.Gaussian([1.0, 2.0]) if kernel is None else kernel
    options = {"noise": 0.05, "optimizer": None, "random_state": 0} | options
    return rk.GaussianProcessRegressor(
        kernel, n_components=D, likelihood=name, **options
    )


# -- densities --------------------------------------------------------------------


@EVERY
def test_derivatives_are_those_of_the_log_density(name):
    likelihood, y = LIKELIHOODS[name]
    f, h = np.array([0.3, -0.4, 1.2, 0.8]), 1e-5
    terms = likelihood.terms(f, y)
    high, low = likelihood.terms(f + h, y), likelihood.terms(f - h, y)
    np.testing.assert_allclose(terms.slope, (high.log - low.log) / (2 * h), atol=1e-8)
    change = (high.curvature - low.curvature) / (2 * h)
    np.testing.assert_allclose(terms.change, change, atol=1e-8)
    second = (low.slope - high.slope) / (2 * h)
    if name != "student-t":
        np.testing.assert_allclose(terms.curvature, second, atol=1e-8)
        np.testing.assert_array_equal(terms.step, terms.curvature)
        return
    assert second.min() < 0 < terms.step.min()
    # The parabola touches the density from below.
    away = np.linspace(-9, 9, 200)[:, None]
    below = terms.log + terms.slope * away - 0.5 * terms.step * away**2
    assert np.all(likelihood.terms(f + away, y).log >= below - 1e-12)
    # Fisher's information is the mean of minus the second derivative.

    def integrand(residual):
        at = likelihood.terms(np.zeros(1), np.array([residual]))
        nu, width = 4.0, 4.0 * 0.3
        second = (nu + 1) * (width - residual**2) / (width + residual**2) ** 2
        return float(np.exp(at.log[0]) * second)

    mean = scipy.integrate.quad(integrand, -np.inf, np.inf)[0]
    assert terms.curvature[0] == pytest.approx(mean, rel=1e-7)
    by_noise = likelihood.noise_slopes(f, y)[0]
    high, low = (StudentT(0.3 * np.exp(s)).terms(f, y).log for s in (h, -h))
    np.testing.assert_allclose(by_noise, (high - low) / (2 * h), atol=1e-8)


def test_densities_are_scipys():
    f = np.array([0.3, -0.4, 1.2, 0.8])
    likelihood, y = LIKELIHOODS["poisson"]
    expected = scipy.stats.poisson(np.exp(f + 0.4)).logpmf(y)
    np.testing.assert_allclose(likelihood.terms(f, y).log, expected, rtol=1e-12)
    likelihood, y = LIKELIHOODS["student-t"]
    expected = scipy.stats.t(4, loc=f, scale=0.3**0.5).logpdf(y)
    np.testing.assert_allclose(likelihood.terms(f, y).log, expected, rtol=1e-12)


@BOTH
def test_moments_are_those_of_draws(name, rng):
    likelihood = LIKELIHOODS[name][0]
    n, mean, variance = 10**6, 0.4, 0.09
    f = rng.normal(mean, variance**0.5, n)
    if name == "poisson":
        values, targets = np.exp(f + 0.4), rng.poisson(np.exp(f + 0.4))
    else:
        values, targets = f, f + 0.3**0.5 * rng.standard_t(4, n)
    for draws, of_targets in ((values, False), (targets, True)):
        first, second = likelihood.moments(
            np.array([mean]), np.array([variance]), of_targets
        )
        assert first[0] == pytest.approx(draws.mean(), abs=6 * (draws.var() / n) ** 0.5)
        # The fourth moment of Student's t of 4 degrees of freedom is infinite.
        assert second[0] == pytest.approx(draws.var(), rel=0.05)


# -- processes --------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("D", [40, 150], ids=["n > D", "n < D"])
def test_features_are_the_formulas(name, D, data, rng):
    X, y = data[0], data[1][name]
    model = process(name, D).fit(X, y)
    Z = evaluate(model.plan_, X)
    likelihood = Poisson(np.log(y.mean())) if name == "poisson" else StudentT(0.05)

    def negative(b):
        terms = likelihood.terms(Z @ b, y)
        return 0.5 * b @ b - terms.log.sum(), b - Z.T @ terms.slope

    options = {"gtol": 1e-9, "maxiter": 10_000}
    # Student's t has several modes: the one that steps from 0 lead to.
    start = model.coef_ + 1e-3
    b = scipy.optimize.minimize(negative, start, jac=True, options=options).x
    precision = np.eye(D) + (Z.T * likelihood.terms(Z @ b, y).curvature) @ Z
    expected = -negative(b)[0] - 0.5 * np.linalg.slogdet(precision)[1]
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-6)
    new = rng.normal(size=(20, 2))
    Z = evaluate(model.plan_, new)
    variance = np.einsum("ij,ji->i", Z, np.linalg.solve(precision, Z.T))
    for noisy in (False, True):
        mean, spread = likelihood.moments(Z @ b, variance, noisy)
        found = model.predict(new, return_std=True, include_noise=noisy)
        np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], spread**0.5, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(new), found[0])


@BOTH
@SIZES
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_gradients(weighted, D, name, data, rng):
    X, y = data[0], data[1][name]
    weight = rng.integers(0, 4, N).astype(float) if weighted else None
    kernel = 2.0 * rk.Gaussian([1.0, 2.0]) + rk.Matern(1.5, 1.0) * rk.Linear()
    model = process(name, D, kernel, noise=0.2).fit(X, y, weight)
    assert ("noise" in model.hyperparameters_) == (name == "student-t")
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-6)
    h, at = 1e-4, model.log_marginal_likelihood
    numeric = [
        (at(model.theta_ + h * e) - at(model.theta_ - h * e)) / (2 * h)
        for e in np.eye(len(model.theta_))
    ]
    size = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-5 * size)


@BOTH
@pytest.mark.parametrize("D", [40, None], ids=["features", "exact"])
def test_a_weight_counts_equal_rows(D, name, data, rng):
    X, y = data[0], data[1][name]
    weight = rng.integers(0, 4, N)
    repeated = np.repeat(np.arange(N), weight)
    weighted = process(name, D).fit(X, y, sample_weight=weight)
    listed = process(name, D).fit(X[repeated], y[repeated])
    for a, b in zip(
        weighted.predict(X, return_std=True),
        listed.predict(X, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@BOTH
def test_landmarks_at_all_rows_are_the_exact_process(name, data, rng):
    X, y, new = data[0], data[1][name], rng.normal(size=(20, 2))
    exact = process(name, None).fit(X, y)
    landmarks = process(name, N, features="nystrom").fit(X, y)
    assert landmarks.log_marginal_likelihood_value_ == pytest.approx(
        exact.log_marginal_likelihood_value_, rel=1e-6
    )
    for a, b in zip(
        landmarks.predict(new, return_std=True),
        exact.predict(new, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@BOTH
def test_streams_are_arrays(name, data):
    X, y = data[0], data[1][name]
    whole = process(name, 40).fit(X, y).predict(X)
    blocks = rk.RowBlocks([(X[:20], y[:20]), (X[20:], y[20:])])
    streamed = process(name, 40).fit(blocks).predict(X)
    np.testing.assert_allclose(streamed, whole, rtol=1e-7)


def test_units_of_targets(data):
    X, y = data[0], data[1]["student-t"]
    # Units of the targets' deviation: a noise of 0.05 of its square.
    model = process("student-t", 40, normalize_y=True).fit(X, 50 + 9 * y)
    scaled = (y - y.mean()) / y.std()
    plain = process("student-t", 40).fit(X, scaled)
    for a, b, shift in zip(
        model.predict(X, return_std=True, include_noise=True),
        plain.predict(X, return_std=True, include_noise=True),
        (50 + 9 * y.mean(), 0),
        strict=True,
    ):
        np.testing.assert_allclose(a, shift + 9 * y.std() * b, rtol=1e-6)


def test_outliers_hardly_move_students_process(rng):
    X = rng.uniform(-3, 3, (300, 1))
    truth = np.sin(2 * X[:, 0])
    y = truth + 0.1 * rng.normal(size=300)
    y[:30] += rng.choice([-5, 5], 30)
    errors = {}
    for name in ("gaussian", "student-t"):
        model = process(name, 60, 1.0 * rk.Gaussian(1.0), optimizer="l-bfgs-b")
        mean, std = model.fit(X, y).predict(X, return_std=True)
        # That of all rows is the one that was learned, of the noise that was found.
        value = model.log_marginal_likelihood(model.theta_)
        assert model.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-6)
        errors[name] = np.sqrt(np.mean((mean - truth) ** 2))
    # 270 good rows, of deviation 0.1, determine about 10 numbers.
    assert errors["student-t"] < 0.3 * errors["gaussian"]
    assert np.mean(abs(mean - truth) < 2 * std) > 0.8


def test_rates_are_learned(rng):
    X = rng.uniform(-3, 3, (500, 1))
    rate = np.exp(3 + 1.5 * np.sin(2 * X[:, 0]))
    y = rng.poisson(rate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = process("poisson", 60, 1.0 * rk.Gaussian(1.0), optimizer="l-bfgs-b")
        mean, std = model.fit(X[:400], y[:400]).predict(X, return_std=True)
    assert np.sqrt(np.mean(np.log(mean / rate) ** 2)) < 0.1
    _, wide = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_allclose(wide**2, std**2 + mean, rtol=1e-9)
    assert 0.88 < np.mean(abs(y[400:] - mean[400:]) < 1.96 * wide[400:]) <= 1
    assert not hasattr(model, "noise_")


def test_files_keep_the_likelihood(data, tmp_path):
    pytest.importorskip("skops")
    X, y = data[0], data[1]["poisson"]
    model = process("poisson", 20).fit(X, y)
    rk.save(model, tmp_path / "model.skops")
    again = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


@pytest.mark.parametrize(
    ("name", "change", "options", "message"),
    [
        ("poisson", lambda y: y - 5, {}, "takes counts"),
        ("poisson", lambda y: 0 * y, {}, "takes counts"),
        ("poisson", lambda y: y, {"normalize_y": True}, "normalize_y=False"),
        ("student-t", lambda y: np.column_stack([y, y]), {}, "MultiOutputRegressor"),
        ("student-t", lambda y: y, {"weights": "precision"}, "weights='counts'"),
    ],
)
def test_what_likelihoods_do_not_take(name, change, options, message, data):
    X, y = data[0], data[1][name]
    with pytest.raises(ValueError, match=message):
        process(name, 20, **options).fit(X, change(y))


@pytest.mark.parametrize("call", ["sample_y", "sample_paths", "condition_on", "cov"])
def test_what_other_likelihoods_do_not_offer(call, data):
    X, y = data[0], data[1]["poisson"]
    model = process("poisson", 20).fit(X, y)
    with pytest.raises(ValueError, match="likelihood='gaussian'"):
        if call == "cov":
            model.predict(X, return_cov=True)
        elif call == "condition_on":
            model.condition_on(X, y)
        else:
            getattr(model, call)(X if call == "sample_y" else 1)
