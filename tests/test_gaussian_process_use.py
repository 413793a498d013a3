"""What users of processes ask for: bounds, priors, conditioning, paths, noise."""

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import randkern as rk
from randkern.plan import evaluate


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, (80, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=80)


# -- bounds and priors ------------------------------------------------------------


def test_fixed_and_bounded_as_in_scikit_learn(data):
    X, y = data
    model = rk.GaussianProcessRegressor(
        1.5 * rk.Gaussian([1.0, 1.0]),
        noise=0.09,
        n_components=None,
        bounds={"scale": "fixed", "noise": "fixed", "lengthscale": (0.5, 1.5)},
    )
    model.fit(X, y)
    kernel = ConstantKernel(1.5, "fixed") * RBF([1.0, 1.0], (0.5, 1.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = Exact(kernel, alpha=0.09).fit(X, y)
    np.testing.assert_allclose(
        model.kernel_.kernel.lengthscale, expected.kernel_.k2.length_scale, rtol=1e-3
    )
    # The second column is linear: the longest lengthscale is the best.
    assert model.kernel_.kernel.lengthscale[1] == pytest.approx(1.5, rel=1e-12)
    assert model.kernel_.scale == pytest.approx(1.5, rel=1e-12)
    assert model.noise_ == pytest.approx(0.09, rel=1e-12)
    model.set_params(
        bounds={"scale": (2, 2), "noise": (0.1, 0.1), "lengthscale": (2, 2)}
    )
    assert model.fit(X, y).kernel_.scale == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(model.kernel_.kernel.lengthscale, 2.0)
    assert model.noise_ == pytest.approx(0.1, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("D", [None, 60], ids=["exact", "features"])
def test_priors_move_the_end_to_the_posterior_mode(D, data):
    X, y = data
    priors = {"noise": (0.5, 0.1), "kernel__lengthscale": (0.3, 0.2)}
    model = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(1.0), 0.1, D, priors=priors, random_state=0
    ).fit(X, y)

    def negative(theta):
        prior = ((theta[1] - np.log(0.3)) / 0.2) ** 2
        prior += ((theta[2] - np.log(0.5)) / 0.1) ** 2
        return prior / 2 - model.log_marginal_likelihood(theta)

    found = scipy.optimize.minimize(
        negative, model.theta_, method="Nelder-Mead", options={"xatol": 1e-5}
    )
    np.testing.assert_allclose(model.theta_, found.x, atol=5e-3)
    free = rk.GaussianProcessRegressor(
        1.0 * rk.Gaussian(1.0), 0.1, D, random_state=0
    ).fit(X, y)
    assert abs(free.noise_ - 0.5) > 3 * abs(model.noise_ - 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bounds": {"nu": "fixed"}}, "bounds name 'nu', which is not learned"),
        ({"bounds": {"noise": (1.0, 0.1)}}, "must be increasing"),
        ({"priors": {"noise": 0.1}}, "must be .median, sigma."),
        ({"priors": {"noise": (0.1, 0.0)}}, "of positive numbers"),
        (
            {"bounds": {"mean__scale": (1.0, 2.0)}, "mean": "linear"},
            "'mean__scale', which is not learned",
        ),
    ],
)
def test_bad_bounds_and_priors(given, message, data):
    with pytest.raises(ValueError, match=message):
        rk.GaussianProcessRegressor(n_components=20, **given).fit(*data)


def test_bounds_and_priors_name_the_given_kernel_under_a_mean(data):
    kernel = 1.0 * rk.Gaussian(1.0) + 0.5 * rk.Linear()
    model = rk.GaussianProcessRegressor(
        kernel, 0.1, 30, mean="linear", random_state=0,
        bounds={"k1__kernel__lengthscale": (0.9, 1.1), "k2__scale": "fixed"},
        priors={"k1__scale": (3.0, 1e-4)},
    ).fit(*data)  # fmt: skip
    given = model.kernel_.k1
    assert 0.9 <= given.k1.kernel.lengthscale <= 1.1
    assert given.k2.scale == pytest.approx(0.5, rel=1e-12)
    assert given.k1.scale == pytest.approx(3.0, rel=1e-2)


# -- more rows --------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True], ids=["one target", "two"])
@pytest.mark.parametrize("D", [50, None], ids=["features", "exact"])
def test_conditioning_is_a_refit(D, several, data, rng):
    X, y = data
    y = np.column_stack([y, 3 + X[:, 1] ** 2]) if several else y
    weight = rng.uniform(0.5, 2.0, len(X))
    before = slice(0, 60), slice(60, 63), slice(63, 80)
    model = rk.GaussianProcessRegressor(
        1.3 * rk.Gaussian(0.8), 0.04, D, optimizer=None, random_state=0
    )
    whole = model.fit(X, y, weight)
    new = rng.uniform(-3, 3, (20, 2))
    expected = *whole.predict(new, return_std=True), whole.predict(new, return_cov=True)
    value = whole.log_marginal_likelihood_value_
    parts = [(X[s], y[s], weight[s]) for s in before]
    first = model.fit(*parts[0])
    kept = first.predict(new)
    found = first.condition_on(*parts[1]).condition_on(*parts[2])
    mean, std = found.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(std, expected[1], rtol=1e-8)
    np.testing.assert_allclose(
        found.predict(new, return_cov=True)[1], expected[2][1], atol=1e-9
    )
    assert found.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-9)
    np.testing.assert_array_equal(first.predict(new), kept)


def test_conditioning_keeps_units(data):
    X, y = data
    model = rk.GaussianProcessRegressor(
        n_components=50, normalize_y=True, optimizer=None, random_state=0
    )
    kept = model.fit(X, 100 + y)
    again = kept.condition_on(X, 100 + y)
    weighted = model.fit(X, 100 + y, np.full(80, 2.0))
    np.testing.assert_allclose(again.predict(X), weighted.predict(X), rtol=1e-9)


# -- paths ------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("D", "features"),
    [(60, "random"), (10, "nystrom"), (None, "random")],
    ids=["features", "landmarks", "exact"],
)
def test_paths_have_the_posterior_distribution(D, features, data, rng):
    X, y = data
    X, y = X[:30], y[:30]
    model = rk.GaussianProcessRegressor(
        *(1.3 * rk.Gaussian(0.8), 0.04, D),
        features=features,
        optimizer=None,
        random_state=0,
    ).fit(X, y)
    new, n = rng.uniform(-3, 3, (6, 2)), 20_000
    paths = model.sample_paths(n, random_state=1)
    draws = paths(new)
    mean, covariance = model.predict(new, return_cov=True)
    spread = np.diag(covariance) ** 0.5
    # Six deviations; of draws of the prior besides what 2,000 features leave: each
    # entry of its covariance is known to 1.3/√1000.
    assert np.all(abs(draws.mean(axis=1) - mean) < 6 * spread / n**0.5)
    found = np.cov(draws)
    own = 6 * np.outer(spread, spread) * (2 / n) ** 0.5
    assert np.all(
        abs(found - covariance) < own + (0 if D == 60 else 6 * 1.3 / 1000**0.5)
    )
    # They are functions: the same values row by row, whatever else is asked for.
    np.testing.assert_allclose(paths(new[::-1])[::-1], draws, atol=1e-10)


def test_exact_paths_meet_targets_without_noise(data):
    X, y = data
    model = rk.GaussianProcessRegressor(
        1.3 * rk.Gaussian(0.3), 1e-6, None, optimizer=None
    ).fit(X[:30], np.column_stack([y[:30], -y[:30]]))
    values = model.sample_paths(5)(X[:30])
    assert values.shape == (30, 2, 5)
    expected = np.column_stack([y[:30], -y[:30]])[:, :, None]
    # Six deviations of the noise.
    np.testing.assert_allclose(values, expected + 0 * values, atol=6e-3)


@pytest.mark.parametrize("kernel", [rk.Linear(), rk.Linear() + rk.Gaussian(0.8)])
def test_paths_of_kernels_that_few_features_make(kernel, data):
    X, y = data
    model = rk.GaussianProcessRegressor(kernel, 1e-4, None, optimizer=None).fit(X, y)
    values = model.sample_paths(100)(X)
    spread = 6 * (model.predict(X, return_cov=True)[1].diagonal() / 100) ** 0.5
    assert np.all(abs(values.mean(axis=1) - model.predict(X)) < spread + 0.1)


# -- landmarks --------------------------------------------------------------------


@pytest.mark.parametrize("precise", [False, True], ids=["", "noise per row"])
def test_landmarks_are_the_training_conditional(precise, data, rng):
    # Quiñonero-Candela & Rasmussen 2005, eq. 19, by dense n × n matrices.
    X, y = data
    kernel, noise = 1.3 * rk.Gaussian(0.8), 0.04
    given = rng.uniform(0.5, 2.0, 80) if precise else None
    model = rk.GaussianProcessRegressor(
        *(kernel, noise, 15),
        features="nystrom",
        weights="precision" if precise else "counts",
        optimizer=None,
        random_state=0,
    ).fit(X, y, given)
    new = rng.uniform(-3, 3, (20, 2))
    Z, z = evaluate(model.plan_, X), evaluate(model.plan_, new)
    own = noise / (1.0 if given is None else given)
    K = Z @ Z.T + np.diag(np.broadcast_to(own, 80))
    gain = np.linalg.solve(K, Z @ z.T)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, gain.T @ y, atol=1e-8)
    variance = 1.3 - np.einsum("ij,ij->j", Z @ z.T, gain)
    np.testing.assert_allclose(std, variance**0.5, rtol=1e-8)
    value = scipy.stats.multivariate_normal(np.zeros(80), K).logpdf(y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-9)
    # Rows that are added later have noise of their own, too.
    twice = model.condition_on(X, y, given)
    gain = np.linalg.solve(
        np.kron(np.ones((2, 2)), Z @ Z.T)
        + np.kron(np.eye(2), np.diag(np.broadcast_to(own, 80))),
        np.vstack([Z, Z]) @ z.T,
    )
    np.testing.assert_allclose(twice.predict(new), gain.T @ np.tile(y, 2), atol=1e-8)


# -- noise per row ----------------------------------------------------------------


@pytest.mark.parametrize("D", [None, 50, 200], ids=["exact", "n > D", "n < D"])
def test_precisions_are_scikit_learns_alpha(D, data, rng):
    X, y = data
    variances = rng.uniform(0.01, 0.5, len(X))
    model = rk.GaussianProcessRegressor(
        1.3 * rk.Gaussian(0.8), 1.0, D, optimizer=None, weights="precision",
        random_state=0,
    ).fit(X, y, 1 / variances)  # fmt: skip
    new = rng.uniform(-3, 3, (20, 2))
    if D is None:
        kernel = ConstantKernel(1.3, "fixed") * RBF(0.8, "fixed")
        expected = Exact(kernel, alpha=variances, optimizer=None).fit(X, y)
        value = expected.log_marginal_likelihood_value_
        mean, std = expected.predict(new, return_std=True)
    else:
        Z, z = (evaluate(model.plan_, rows) for rows in (X, new))
        covariance = Z @ Z.T + np.diag(variances)
        solved = np.linalg.solve(covariance, np.column_stack([y, Z @ z.T]))
        mean = z @ Z.T @ solved[:, 0]
        std = np.diag(z @ z.T - z @ Z.T @ solved[:, 1:]) ** 0.5
        sign, log = np.linalg.slogdet(covariance)
        value = -0.5 * (y @ solved[:, 0] + log + len(y) * np.log(2 * np.pi))
    found = model.predict(new, return_std=True)
    np.testing.assert_allclose(found[0], mean, atol=1e-8)
    np.testing.assert_allclose(found[1], std, rtol=1e-6)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-9)
    theta = model.theta_
    value, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-9)
    for step, slope in zip(1e-5 * np.eye(3), slopes, strict=True):
        high, low = map(model.log_marginal_likelihood, (theta + step, theta - step))
        assert slope == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-5)


def test_precisions_of_blocks_and_of_more_rows(data, rng):
    X, y = data
    weight = rng.uniform(0.1, 3.0, len(X))
    weight[:3] = 0.0
    model = rk.GaussianProcessRegressor(
        rk.Gaussian(0.8), 0.1, 40, optimizer=None, weights="precision", random_state=0
    )
    value = model.fit(X, y, weight).log_marginal_likelihood_value_
    parts = [slice(0, 50), slice(50, 80)]
    blocks = rk.RowBlocks([(X[s], y[s], weight[s]) for s in parts])
    assert model.fit(blocks).log_marginal_likelihood_value_ == pytest.approx(value)
    first, second = ((X[s], y[s], weight[s]) for s in parts)
    found = model.fit(*first).condition_on(*second).log_marginal_likelihood_value_
    assert found == pytest.approx(value, rel=1e-9)


def test_noise_of_new_rows_has_their_weights(data, rng):
    X, y = data
    weight = rng.uniform(0.5, 3.0, len(X))
    for D in (None, 40):
        model = rk.GaussianProcessRegressor(
            rk.Gaussian(0.8), 0.1, D, optimizer=None, weights="precision"
        ).fit(X, y, weight)
        _, alone = model.predict(X, return_std=True)
        _, std = model.predict(X, return_std=True, include_noise=weight)
        np.testing.assert_allclose(std**2, alone**2 + 0.1 / weight, rtol=1e-9)
        _, covariance = model.predict(X, return_cov=True, include_noise=weight)
        np.testing.assert_allclose(np.diag(covariance), std**2, rtol=1e-8)
    wrong = (
        (weight[:-1], "shape"),
        (-weight, "Negative"),
        (0 * weight, "non-zero|is zero"),
    )
    for bad, message in (*wrong, (weight - weight[0], "Negative|must be positive")):
        with pytest.raises(ValueError, match=message):
            model.predict(X, return_std=True, include_noise=bad)
    with pytest.raises(ValueError, match="weights of rows in memory"):
        model.predict(rk.RowBlocks([X]), return_std=True, include_noise=weight)
    model.set_params(weights="counts")
    with pytest.raises(ValueError, match="weights='precision'"):
        model.predict(X, return_std=True, include_noise=weight)
    robust = rk.GaussianProcessRegressor(
        n_components=20, likelihood="student-t", optimizer=None
    ).fit(X, y)
    with pytest.raises(ValueError, match="include_noise needs likelihood='gaussian'"):
        robust.predict(X, return_std=True, include_noise=weight)


# -- progress ---------------------------------------------------------------------


class Listener:
    """Counts tasks, and ends learning once more than `most` have begun."""

    max_propagation_depth = None

    def __init__(self, most):
        self.begun, self.ended, self.most = [], 0, most

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context, **kwargs):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.ended += 1
        return len(self.begun) > self.most


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls", [rk.GaussianProcessRegressor, rk.GaussianProcessClassifier]
)
def test_callbacks_hear_of_learning_and_stop_it(cls, data):
    pytest.importorskip("sklearn.callback")
    X, y = data
    y = y > 0 if cls is rk.GaussianProcessClassifier else y

    ends = []
    for most in (1, 10**6):
        listener = Listener(most)
        model = cls(n_components=30, random_state=0).set_callbacks(listener)
        ends.append(model.fit(X, y).theta_)
        assert len(listener.begun) == listener.ended > 1
        assert "iteration 0" in listener.begun
        # The first stage is told of, and stops.
        assert (len(listener.begun) == 2) == (most == 1)
    assert not np.array_equal(*ends)


def test_weights_are_repetitions_before_the_first_step(data, rng):
    """Learning starts at the best scale and noise of weighted rows, as of copies."""
    pytest.importorskip("sklearn.callback")
    X, y = data
    counts = rng.integers(1, 9, len(X))
    rows = np.repeat(np.arange(len(X)), counts)
    starts = []
    for values in ((X, y, counts), (X[rows], y[rows])):
        model = rk.GaussianProcessRegressor(
            rk.Gaussian(0.8), n_components=None, bounds={"lengthscale": "fixed"}
        )
        starts.append(model.set_callbacks(Listener(0)).fit(*values).theta_)
    np.testing.assert_allclose(*starts, atol=1e-3)


# -- what kernels do --------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("D", [None, 60], ids=["exact", "features"])
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_means_are_generalised_least_squares(mean, D, data, rng):
    # Rasmussen & Williams 2006, eqs. 2.41 and 2.42, of a vague prior.
    X, y = data[0] * [1.0, 3.0], data[1] + 7 + data[0] @ [3.0, -2.0]
    kernel, noise = 1.3 * rk.Gaussian([0.8, 2.0]), 0.04
    new = 9 * rng.normal(size=(30, 2))
    model = rk.GaussianProcessRegressor(
        kernel, noise, D, mean=mean, optimizer=None, random_state=0
    ).fit(X, y)
    if D is None:
        K, cross, own = kernel(X), kernel(new, X), kernel.diag(new)
    else:
        whole = model.plan_.groups[0]
        Z, z = (evaluate(model.plan_, A)[:, : whole.stop] for A in (X, new))
        assert whole.stop == D - (3 if mean == "linear" else 1)
        K, cross, own = Z @ Z.T, z @ Z.T, (z**2).sum(axis=1)
    H, h = (np.ones((len(A), 1)) for A in (X, new))
    if mean == "linear":
        H, h = np.hstack([H, X]), np.hstack([h, new])
    inverse = np.linalg.inv(K + noise * np.eye(len(X)))
    A = H.T @ inverse @ H
    beta = np.linalg.solve(A, H.T @ inverse @ y)
    expected = h @ beta + cross @ inverse @ (y - H @ beta)
    R = h - cross @ inverse @ H
    variance = own - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    variance += np.einsum("ij,ji->i", R, np.linalg.solve(A, R.T))
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-3 * abs(expected).max())
    np.testing.assert_allclose(std, variance**0.5, rtol=1e-3)


def test_a_mean_is_not_learned_and_changes_no_scale(data):
    X, y = data
    options = {"n_components": None, "normalize_y": True}
    plain = rk.GaussianProcessRegressor(**options).fit(X, y)
    model = rk.GaussianProcessRegressor(mean="constant", **options).fit(X, y + 1e3)
    assert model.kernel_.k2.scale == pytest.approx(1e4)
    assert model.kernel_.k1.scale < 10 * plain.kernel_.scale
    shifted = 1e3 + plain.predict(X)
    np.testing.assert_allclose(model.predict(X), shifted, atol=0.1)
    far = model.predict([[99.0, 99.0]], return_std=True)
    assert far[0] == pytest.approx(np.mean(y) + 1e3, abs=3 * far[1][0])


# -- units of targets -------------------------------------------------------------


@pytest.mark.parametrize(("mean", "offset"), [("constant", 1e6), ("linear", 290.0)])
def test_a_mean_makes_the_offset_of_targets_irrelevant(mean, offset, data):
    X, y = data
    fits = [
        rk.GaussianProcessRegressor(
            1.0 * rk.Gaussian(1.0), n_components=60, mean=mean, random_state=0
        ).fit(X, shift + 0.01 * y)
        for shift in (0.0, offset)
    ]
    assert fits[1].noise_ == pytest.approx(fits[0].noise_, rel=1e-3)
    (near, spread), (far, other) = (fit.predict(X, return_std=True) for fit in fits)
    np.testing.assert_allclose(far - offset, near, atol=2e-6)
    np.testing.assert_allclose(other, spread, rtol=1e-3)
