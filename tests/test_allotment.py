"""How the terms of a sum share its columns, by default and as asked."""

import numpy as np
import pytest

import randkern as rk

RNG = np.random.default_rng(0)
CLOUD = RNG.normal(size=(600, 5))


@pytest.mark.nightly
def test_more_features_help_small_terms():
    """The fast term has a hundredth of the slow one's variance, and noise is small."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 50, size=(2_000, 1))
    signal = 10 * np.sin(x[:, 0] / 5) + np.sin(6 * x[:, 0])
    y = signal + 0.1 * rng.normal(size=2_000)
    kernel = 100.0 * rk.Gaussian(8.0) + rk.Gaussian(0.2)

    def error(n_components, seed=0):
        model = rk.KernelRidgeRegressor(kernel, 0.01, n_components, random_state=seed)
        predicted = model.fit(x[:1_400], y[:1_400]).predict(x[1_400:])
        return np.sqrt(np.mean((predicted - signal[1_400:]) ** 2))

    # A slow term alone leaves 0.71 of the fast one.
    few, more, many = (
        np.mean([error(n, seed) for seed in range(4)]) for n in (300, 1_000, 3_000)
    )
    assert many < 0.1 * few and many < more < 0.5 * few
    assert many < 1.1 * error(None) < 0.06
    assert error([20, 980]) < 0.06


def test_numbers_per_term():
    X = CLOUD[:50]
    kernel = 100.0 * rk.Gaussian(2.0) + rk.Matern(1.5) + rk.Linear()
    for widths in ((10, 30, 5), [10, 30, 5], np.array([10, 30, 5])):
        features = rk.RandomFeatures(kernel, widths, random_state=0).fit(X)
        groups = features.plan_.groups
        assert [group.width for group in groups] == [10, 30, 5]
        assert features.transform(X).shape == (50, 45)
    model = rk.KernelRidgeRegressor(kernel, n_components=(10, 30, 5), random_state=0)
    assert model.fit(X, X[:, 0]).coef_.shape == (45,)
    variance = kernel.feature_variance(X, n_components=(10, 30, 5))
    parts = (100.0 * rk.Gaussian(2.0), rk.Matern(1.5))
    expected = sum(
        part.feature_variance(X, n_components=n)
        for part, n in zip(parts, (10, 30), strict=True)
    )
    np.testing.assert_allclose(variance, expected)  # the dot product is exact


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((10, 30), "2 entries, but the kernel has 3 terms"),
        ((10, 30, 6), r"term 2 .* exactly 5 features"),
        ((10, 0, 5), "every number in n_components must be a positive integer"),
        ((10, 2.5, 5), "every number in n_components must be a positive integer"),
    ],
)
def test_numbers_per_term_are_checked(widths, message):
    kernel = rk.Gaussian() + rk.Matern() + rk.Linear()
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(kernel, widths).fit(CLOUD)
