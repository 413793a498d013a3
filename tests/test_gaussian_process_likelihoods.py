"""Likelihoods of targets other than the Gaussian one, by Laplace's approximation."""

import warnings

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats

import randkern as rk
from _tolerance import condition_of, rounding
from randkern.plan import evaluate

N = 70
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


# -- processes --------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("D", [40, 150], ids=["n > D", "n < D"])
def test_features_are_the_formulas(name, D, data, rng):
    X, y = data[0], data[1][name]
    model = process(name, D).fit(X, y)
    Z = evaluate(model.plan_, X)
    offset = np.log(y.mean())

    def terms(f):
        """Return log densities, their slopes, and the curvature of the posterior."""
        if name == "poisson":
            rate = np.exp(f + offset)
            return scipy.stats.poisson(rate).logpmf(y), y - rate, rate
        log = scipy.stats.t(4, loc=f, scale=0.05**0.5).logpdf(y)
        slope = 5 * (y - f) / (4 * 0.05 + (y - f) ** 2)
        # Fisher's information.
        return log, slope, np.full(N, 5 / (7 * 0.05))

    def negative(b):
        log, slope, _ = terms(Z @ b)
        return 0.5 * b @ b - log.sum(), b - Z.T @ slope

    options = {"gtol": 1e-9, "maxiter": 10_000}
    # Student's t has several modes: the one that steps from 0 lead to.
    start = model.coef_ + 1e-3
    b = scipy.optimize.minimize(negative, start, jac=True, options=options).x
    precision = np.eye(D) + (Z.T * terms(Z @ b)[2]) @ Z
    expected = -negative(b)[0] - 0.5 * np.linalg.slogdet(precision)[1]
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-6)
    new = rng.normal(size=(20, 2))
    Z = evaluate(model.plan_, new)
    variance = np.einsum("ij,ji->i", Z, np.linalg.solve(precision, Z.T))
    if name == "poisson":  # the rate is log-normal
        rate = scipy.stats.lognorm(variance**0.5, scale=np.exp(Z @ b + offset))
        mean, spread, own = rate.mean(), rate.var(), rate.mean()
    else:
        mean, spread, own = Z @ b, variance, 0.05 * scipy.stats.t(4).var()
    for noisy in (False, True):
        found = model.predict(new, return_std=True, include_noise=noisy)
        np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1] ** 2, spread + noisy * own, rtol=2e-5)
    np.testing.assert_array_equal(model.predict(new), found[0])


@BOTH
@SIZES
def test_gradients(D, name, data, rng):
    X, y = data[0], data[1][name]
    weight = rng.integers(0, 4, N).astype(float)
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


@pytest.mark.parametrize("D", [None, 50])
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_gradients_under_a_mean(mean, D, rng):
    # Whose prior variance is 10⁴ times the mean square of the targets.
    X = rng.uniform(-3, 3, (120, 2))
    y = np.sin(2 * X[:, 0]) + 5 * X[:, 0] + 0.1 * rng.normal(size=120)
    model = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(0.6), 0.005, D,
        likelihood="student-t", mean=mean, optimizer=None, random_state=0,
    ).fit(X, y)  # fmt: skip
    theta = model.theta_
    _, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    gram = model.kernel_(X)
    if D is not None:
        gram = evaluate(model.plan_, X) @ evaluate(model.plan_, X).T
    # The inverse of the curvature, 5/(7σ²), is added to the covariance.
    condition = condition_of(gram, 7 * 0.005 / 5)
    h = 1e-3  # longer steps reach another mode
    for step, slope in zip(h * np.eye(len(theta)), slopes, strict=True):
        high, low = map(model.log_marginal_likelihood, (theta + step, theta - step))
        # Values have the errors of the determinant, which the difference divides by h.
        error = rounding(condition) / h
        assert error < 0.5
        assert slope == pytest.approx((high - low) / (2 * h), rel=1e-3, abs=error)


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


def test_units_of_targets(data):
    X, y = data[0], data[1]["student-t"]
    # Units of what a normal distribution of the same median deviation has.
    model = process("student-t", 40, normalize_y=True).fit(X, 50 + 9 * y)
    centre = np.median(y)
    unit = np.median(np.abs(y - centre)) / 0.6744897501960817
    scaled = (y - centre) / unit
    plain = process("student-t", 40).fit(X, scaled)
    for a, b, shift in zip(
        model.predict(X, return_std=True, include_noise=True),
        plain.predict(X, return_std=True, include_noise=True),
        (50 + 9 * centre, 0),
        strict=True,
    ):
        np.testing.assert_allclose(a, shift + 9 * unit * b, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("name", "change", "options", "message"),
    [
        ("poisson", lambda y: y - 5, {}, "expects counts"),
        ("poisson", lambda y: 0 * y, {}, "expects counts"),
        (
            "poisson",
            lambda y: y,
            {"normalize_y": True},
            "normalize_y=False, got True",
        ),
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


# -- the softmax of classes -------------------------------------------------------


@pytest.fixture
def classes(rng):
    X = rng.normal(size=(N, 2))
    f = 2 * np.column_stack([np.sin(2 * X[:, 0]), X[:, 1], np.zeros(N)])
    return X, (f + rng.gumbel(size=f.shape)).argmax(axis=1)


def softmax(D, kernel=None, **options):
    kernel = 2.0 * rk.Gaussian([1.0, 2.0]) if kernel is None else kernel
    return rk.GaussianProcessClassifier(
        kernel, D, optimizer=None, random_state=0, **options
    )


def dense_laplace(Z, y):
    """The mode of weights (D, k), their full precision, and the evidence."""
    n, D = Z.shape
    own = np.eye(3)[y]

    def negative(flat):
        b = flat.reshape(D, 3)
        f = Z @ b
        log = (own * f).sum() - scipy.special.logsumexp(f, axis=1).sum()
        slope = Z.T @ (own - scipy.special.softmax(f, axis=1)) - b
        return 0.5 * (b**2).sum() - log, -slope.ravel()

    options = {"gtol": 1e-9, "maxiter": 10_000}
    found = scipy.optimize.minimize(
        negative, np.zeros(3 * D), jac=True, options=options
    )
    b = found.x.reshape(D, 3)
    chance = scipy.special.softmax(Z @ b, axis=1)
    W = chance[:, :, None] * np.eye(3) - chance[:, :, None] * chance[:, None]
    precision = np.einsum("id,icj,ie->dcej", Z, W, Z).reshape(3 * D, 3 * D)
    precision += np.eye(3 * D)
    return b, precision, -found.fun - 0.5 * np.linalg.slogdet(precision)[1]


@pytest.mark.parametrize("D", [30, 100], ids=["n > D", "n < D"])
def test_the_softmax_is_the_formulas(D, classes, rng):
    X, y = classes
    model = softmax(D).fit(X, y)
    b, precision, evidence = dense_laplace(evaluate(model.plan_, X), y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, abs=1e-6)
    new = rng.normal(size=(30, 2))
    Z = evaluate(model.plan_, new)
    wide = np.einsum("id,ce->idce", Z, np.eye(3)).reshape(30, -1, 3)
    covariance = np.einsum("iac,ab,ibe->ice", wide, np.linalg.inv(precision), wide)
    roots = np.linalg.cholesky(covariance)
    f = (Z @ b)[:, None] + rng.normal(size=(30, 20_000, 3)) @ roots.transpose(0, 2, 1)
    expected = scipy.special.softmax(f, axis=2).mean(axis=1)
    # What couples classes is left out: little, of the variances of differences.
    np.testing.assert_allclose(model.predict_proba(new), expected, atol=0.02)


@SIZES
def test_gradients_of_the_softmax(D, classes, rng):
    X, y = classes
    weight = rng.integers(0, 4, N).astype(float)
    kernel = 2.0 * rk.Gaussian([1.0, 2.0]) + rk.Matern(1.5, 1.0) * rk.Linear()
    model = softmax(D, kernel).fit(X, y, weight)
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-8)
    h, at = 1e-4, model.log_marginal_likelihood
    numeric = [
        (at(model.theta_ + h * e) - at(model.theta_ - h * e)) / (2 * h)
        for e in np.eye(len(model.theta_))
    ]
    size = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-5 * size)


def test_the_softmax_is_learned(rng):
    X = rng.uniform(-3, 3, (600, 2))
    f = 3 * np.column_stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 0]), np.zeros(600)])
    y = (f + rng.gumbel(size=f.shape)).argmax(axis=1)
    model = rk.GaussianProcessClassifier(
        1.0 * rk.Gaussian([3.0, 3.0]), 60, random_state=0
    ).fit(X[:250], y[:250])
    lengths = model.kernel_.kernel.lengthscale
    assert lengths[0] < 2 < 0.5 * lengths[1]
    truth = scipy.special.softmax(f, axis=1)
    assert abs(model.predict_proba(X) - truth).mean() < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [None, 100])
def test_two_huge_outliers_do_not_bound_the_noise(n_components):
    """Bounds and starts followed the mean square of the targets: the error was 0.45."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 1))
    f = np.sin(X[:, 0])
    y = f + 0.01 * rng.normal(size=200)
    y[[10, 90]] = 1e6
    model = rk.GaussianProcessRegressor(
        n_components=n_components, likelihood="student-t", random_state=0
    ).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.01
    assert model.noise_ < 1e-3
