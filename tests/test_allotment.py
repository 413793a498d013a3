"""How the terms of a sum share its columns, on ten composite kernels.

Run as a script, this file prints how several rules compare: the error of the Gram
matrix, the test error of ridge regression over that of the exact kernel, and the
evidence that a row loses. The oracle is linear algebra with the exact Gram matrix.
"""

import math
import sys

import numpy as np
import pytest

import randkern as rk

RNG = np.random.default_rng(0)
LINE = np.sort(RNG.uniform(0, 100, 600))[:, None]
YEARS = np.sort(RNG.uniform(0, 40, 600))[:, None]
CLOUD = RNG.normal(size=(600, 5))

# name: kernel, rows, variance of the noise
CASES = {
    "slow + fast": (100.0 * rk.Gaussian(8.0) + rk.Gaussian(0.2), LINE, 0.0025),
    "carbon dioxide": (
        4356.0 * rk.Gaussian(67.0)
        + 5.76 * rk.Gaussian(90.0) * rk.Periodic(1.0, 1.3)
        + 0.44 * rk.RationalQuadratic(0.78, 1.2)
        + 0.03 * rk.Gaussian(0.13),
        YEARS,
        0.036,
    ),
    "two scales": (10.0 * rk.Gaussian(6.0) + rk.Gaussian(2.0), CLOUD, 0.01),
    "alike": (rk.Gaussian(3.0) + rk.Matern(1.5, 3.0), CLOUD, 0.1),
    "additive": (sum(rk.Gaussian(1.0, columns=[j]) for j in range(5)), CLOUD, 0.05),
    "additive, falling": (
        sum(100 / 10**j * rk.Gaussian(1.0, columns=[j]) for j in range(4)),
        CLOUD,
        0.01,
    ),
    "linear": (10.0 * rk.Linear() + rk.Gaussian(2.0), CLOUD, 0.05),
    "smooth + rough": (rk.Gaussian(3.0) + 0.01 * rk.Laplacian(1.0), CLOUD, 0.01),
    "product of sums": (
        (rk.Gaussian(2.0, columns=[0, 1]) + 0.1 * rk.Gaussian(1.0, columns=[2]))
        * (rk.Gaussian(4.0, columns=[3]) + 0.05 * rk.Matern(2.5, 1.0, columns=[4])),
        CLOUD,
        0.01,
    ),
    "mixture": (
        rk.SpectralMixture(
            [10.0, 1.0, 0.3], [[0.0], [1.0], [3.0]], [[0.02], [0.02], [0.05]]
        ),
        YEARS,
        0.05,
    ),
}


def by_power(power, equal=0.0):
    """Return the rule of this share divided equally, the rest by a power of weights."""

    def widths(sizes, n_components):
        shares = np.asarray(sizes) ** power
        shares = (1 - equal) * shares / shares.sum() + equal / len(shares)
        exact = np.maximum(n_components * shares, 1)
        found = np.floor(exact).astype(int)
        order = np.argsort(found - exact, kind="stable")
        found[order[: max(n_components - found.sum(), 0)]] += 1
        return found

    return widths


def by_floor(power):
    """Return the rule by a power of weights, but half an equal share at least."""

    def widths(sizes, n_components):
        shares = np.asarray(sizes) ** power
        shares = np.maximum(shares / shares.sum(), 0.5 / len(shares))
        return by_power(1)(shares, n_components)

    return widths


RULES = {
    "weights": by_power(1),
    "square roots": by_power(0.5),
    "equal": by_power(0),
    "weights, floor": by_floor(1),
    "square roots, floor": by_floor(0.5),
    "half equal, weights": by_power(1, equal=0.5),
    "half equal, square roots": by_power(0.5, equal=0.5),
}


def sizes_of(kernel, X):
    return [float(np.mean(term.diag(X))) for term in kernel.terms()]


def assessed(name, n_components, n_seeds=3):
    """Return the error of the kernel, the ratio of test errors, and the lost evidence.

    Means over seeds. `n_components` is a number, or numbers per term.
    """
    kernel, X, noise = CASES[name]
    exact, n = kernel(X), len(X)
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(exact + 1e-8 * np.trace(exact) / n * np.eye(n))
    truth = root @ rng.normal(size=n)
    y = truth + math.sqrt(noise) * rng.normal(size=n)
    train = np.arange(n) % 3 != 0

    def test_error(K):
        system = K[np.ix_(train, train)] + noise * np.eye(train.sum())
        predicted = K[np.ix_(~train, train)] @ np.linalg.solve(system, y[train])
        return np.sqrt(np.mean((predicted - truth[~train]) ** 2))

    def evidence(K):
        factor = np.linalg.cholesky(K + noise * np.eye(n))
        return -0.5 * np.sum(np.linalg.solve(factor, y) ** 2) - np.sum(
            np.log(np.diag(factor))
        )

    best, most, found = test_error(exact), evidence(exact), []
    for seed in range(n_seeds):
        Z = rk.RandomFeatures(kernel, n_components, random_state=seed).fit_transform(X)
        K = Z @ Z.T
        error = np.linalg.norm(K - exact) / np.linalg.norm(exact)
        found.append((error, test_error(K) / best, (most - evidence(K)) / n))
    return np.mean(found, axis=0)


def chosen(name, rule, n_components):
    """Return the widths by a rule; a dot product takes no more than its columns."""
    kernel, X, _ = CASES[name]
    caps = [term.exact_width(X.shape[1]) for term in kernel.terms()]
    fixed = [cap or 0 for cap in caps]
    free = [cap is None for cap in caps]
    sizes = np.array(sizes_of(kernel, X))[free]
    widths = np.array(fixed)
    widths[free] = RULES[rule](sizes, n_components - sum(fixed))
    return widths


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_sums_by_default_are_near_the_best_rules(name):
    """In each measure; the shares by weights lost 120 of evidence per row."""
    default = assessed(name, 600)
    found = {rule: assessed(name, chosen(name, rule, 600)) for rule in RULES}
    best = np.min(list(found.values()), axis=0)
    assert default[0] < 2 * best[0]
    assert default[1] < 1.8 * best[1]
    by_weights = found["weights"]
    assert default[1] < 1.15 * by_weights[1]
    assert default[2] < 0.6 * by_weights[2] + 0.05


@pytest.mark.slow
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


def table():
    """Yield the lines of a table of all rules."""
    for n_components in (150, 600, 2_400):
        yield f"{n_components} columns: kernel, ridge / exact, evidence lost per row"
        for name in CASES:
            yield name
            for rule in RULES:
                found = assessed(name, chosen(name, rule, n_components))
                yield f"  {rule:26s}" + "".join(f"{each:10.3f}" for each in found)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
