"""What is promised for a number of features is what is measured with it."""

import math

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import randkern as rk

RNG = np.random.default_rng(21)
X = RNG.normal(size=(80, 4))
MIXED = np.hstack([X, RNG.integers(3, size=(80, 1))])
KERNELS = {
    "gaussian": rk.Gaussian(2.0),
    "laplacian": rk.Laplacian(6.0),
    "optical-1": rk.Optical(1),
    "optical-2-bias": rk.Optical(2, 1.0),
    "sum": rk.Gaussian(2.0) + 2.0 * rk.Optical(1),
    "sum-linear": rk.Linear() + rk.Cauchy(4.0),
    "product": rk.Gaussian(2.0, columns=[0, 1]) * rk.Categorical(columns=[4]),
    "default": None,
}


def off_diagonal(values):
    values = values.copy()
    np.fill_diagonal(values, 0.0)
    return values


def measured(kernel, n_components, fourier, seeds):
    """Return the root of the mean squared relative Frobenius error over seeds."""
    kernel = rk.Gaussian("scale") if kernel is None else kernel
    exact = kernel.resolve(MIXED)(MIXED)
    squares = []
    for seed in range(seeds):
        Z = rk.RandomFeatures(
            kernel, n_components, projection="dense", fourier=fourier, random_state=seed
        ).fit_transform(MIXED)
        squares.append(np.sum(off_diagonal(Z @ Z.T - exact) ** 2))
    return math.sqrt(np.mean(squares) / np.sum(off_diagonal(exact) ** 2))


@pytest.mark.nightly
@pytest.mark.parametrize("fourier", ["pair", "offset"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_promise_holds(name, fourier):
    kernel, target = KERNELS[name], 0.12
    n_components = rk.suggest_n_components(kernel, MIXED, target, fourier=fourier)
    error = measured(kernel, n_components, fourier, seeds=40)
    # An average over 40 maps of 3,000 pairs of rows each.
    assert error == pytest.approx(target, rel=0.15)


def test_half_the_error_takes_four_times_the_features():
    one, other = (rk.suggest_n_components(None, X, error) for error in (0.02, 0.01))
    assert other == pytest.approx(4 * one, rel=0.01)


def test_many_rows_are_sampled():
    rows = RNG.normal(size=(1_200, 4))
    whole = rk.suggest_n_components(rk.Gaussian(2.0), rows, max_rows=1_200)
    samples = [
        rk.suggest_n_components(rk.Gaussian(2.0), rows, max_rows=400, random_state=seed)
        for seed in (0, 0, 1)
    ]
    assert samples[0] == samples[1] != samples[2]
    np.testing.assert_allclose(samples, whole, rtol=0.3)


def test_a_dot_product_is_exact_at_its_columns():
    assert rk.suggest_n_components(rk.Linear(), X, 0.05) == 4
    assert rk.suggest_n_components(rk.Linear(), X, 100.0) == 1
    wide = RNG.normal(size=(50, 40))
    few = rk.suggest_n_components(rk.Linear(), wide, 0.7)
    assert 1 < few < 40
    both = rk.Linear(columns=[0, 1]) + rk.Linear(columns=[2])
    assert rk.suggest_n_components(both, X, 0.05) == 3


def test_sums_have_a_column_a_term():
    kernel = rk.Gaussian(9.0) + rk.Gaussian(9.0) + rk.Gaussian(9.0)
    assert rk.suggest_n_components(kernel, X, 50.0) == 3


@pytest.mark.parametrize("wrong", [0, -0.1, np.nan, np.inf, "5%", None, True])
def test_wrong_relative_error(wrong):
    with pytest.raises(ValueError, match="relative_error must be a positive"):
        rk.suggest_n_components(None, X, wrong)


@pytest.mark.parametrize("call", [rk.suggest_n_components, rk.effective_dimension])
def test_wrong_arguments(call):
    for kernel in (3, "rbf", rk.Gaussian):
        with pytest.raises(ValueError, match="kernel (of Scaled )?must be a kernel"):
            call(kernel, X)
    for max_rows in (0, -1, 2.5, "all"):
        with pytest.raises(ValueError, match="max_rows must be a positive integer"):
            call(None, X, max_rows=max_rows)
    with pytest.raises(ValueError, match="NaN"):
        call(None, [[np.nan], [1.0]])


def test_what_cannot_be_promised():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        rk.suggest_n_components(None, X[:1])
    with pytest.raises(ValueError, match="is 0 for all pairs of rows.*lengthscale"):
        rk.suggest_n_components(rk.Gaussian(1e-3), X)
    with pytest.raises(ValueError, match="more than .* features"):
        rk.suggest_n_components(None, X, 1e-12)
    with pytest.raises(ValueError, match="fourier must be one of"):
        rk.suggest_n_components(None, X, fourier="cosine")


# -- Hoeffding's bound ---------------------------------------------------------


def test_hoeffding_formula():
    """q ≥ 2C⁴ log(2/δ)/ε² pairs, 8C⁴ log(2/δ)/ε² single columns."""
    for error, delta, bound in ((0.1, 0.05, 1.0), (0.02, 1e-6, 2.0)):
        q = 2 * bound**4 * math.log(2 / delta) / error**2
        pairs = rk.hoeffding_n_components(error, delta, bound=bound)
        assert pairs == 2 * math.ceil(q)
        offsets = rk.hoeffding_n_components(error, delta, bound=bound, fourier="offset")
        assert offsets == math.ceil(4 * q)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0,), "error"),
        ((-1.0,), "error"),
        ((np.nan,), "error"),
        (("0.1",), "error"),
        ((0.1, 0.0), "failure_probability"),
        ((0.1, 1.0), "failure_probability"),
        ((0.1, np.nan), "failure_probability"),
        ((0.1, "5%"), "failure_probability"),
    ],
)
def test_wrong_arguments_of_hoeffding(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        rk.hoeffding_n_components(*arguments)
    with pytest.raises(ValueError, match="bound must be"):
        rk.hoeffding_n_components(0.1, bound=-1.0)


# -- the effective dimension ---------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("name", ["gaussian", "optical-2-bias", "sum", "product"])
def test_effective_dimension_is_a_trace(name, alpha):
    K = KERNELS[name](MIXED)
    expected = np.trace(np.linalg.solve(K + alpha * np.eye(80), K))
    value = rk.effective_dimension(KERNELS[name], MIXED, alpha)
    assert value == pytest.approx(expected, rel=1e-8)
    assert 0 < value < 80


def test_effective_dimension_is_the_trace_of_the_smoother():
    """The degrees of freedom of scikit-learn's kernel ridge."""
    ridge = KernelRidge(kernel="rbf", gamma=0.125, alpha=0.5)
    hat = ridge.fit(X, np.eye(80)).predict(X)
    value = rk.effective_dimension(rk.Gaussian(2.0), X, 0.5)
    assert value == pytest.approx(np.trace(hat))


def test_effective_dimension_of_a_sample():
    rows = RNG.normal(size=(1_500, 3))
    whole = rk.effective_dimension(rk.Gaussian(2.0), rows, max_rows=1_500)
    sample = rk.effective_dimension(rk.Gaussian(2.0), rows, max_rows=500)
    assert sample == pytest.approx(whole, rel=0.1)
    assert rk.effective_dimension(None, rows.tolist(), max_rows=500) > 0


@pytest.mark.parametrize("alpha", [0, -1.0, np.nan, "1", None])
def test_wrong_alpha(alpha):
    with pytest.raises(ValueError, match="alpha must be a positive finite number"):
        rk.effective_dimension(None, X, alpha)
