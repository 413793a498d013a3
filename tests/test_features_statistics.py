"""Random features against their exact kernels: mean, variance, and the rate.

Every comparison is one of at most `N_COMPARISONS` and bounded by Bonferroni, so
that all of this file together would fail by accident for one in a million
choices of the seeds. Each test of a mean states the smallest bias it catches.
"""

import math

import numpy as np
import pytest
from scipy import stats

import randkern as rk
from _cases import (
    CORRELATED,
    FIRST,
    KERNELS,
    POINTS,
    SECOND,
    Case,
    admits,
    draw,
    exact,
    grams,
    has_draws,
    redraw,
    size,
    t_bound,
    variance,
    z_bound,
)
from randkern._random import Stream
from randkern.plan import evaluate
from randkern.projections import (
    ComplexNormalDistribution,
    Mixing,
    NormalDistribution,
    make_projection,
)

N_COMPARISONS = 20_000
Z = z_bound(N_COMPARISONS)
ROUNDING = 1e-9

#: Columns of the maps that give the tests of the mean their power.
WIDE = 2**15
#: The bias that these catch, as a share of √(K(x,x)·K(y,y)).
DETECTABLE = 0.05
#: Small numbers of columns, odd and even.
SMALL = (1, 2, 3, 7, 8)
OPTICAL = [name for name in KERNELS if name.startswith("optical")]


# Every kernel with every Fourier map that makes a difference to it.
MAPS = [
    pytest.param(name, fourier, id=f"{name}-{fourier}")
    for name, case in KERNELS.items()
    if has_draws(case)
    for fourier in (("pair", "offset") if case.phases else ("pair",))
]


def assert_unbiased(case, mean, error, caught, allowed=0.0):
    """Compare means with exact values, given their bounds, and state the power."""
    bias = np.abs(mean - exact(case))
    scale = size(case)
    share = error[scale > 0] / scale[scale > 0]
    assert share.max() <= caught, f"a bias of {share.max():.3f} could go unseen"
    worst = int(np.argmax(bias - error - allowed * scale))
    assert np.all(bias <= error + allowed * scale + ROUNDING), (
        f"mean {mean[worst]:.4f}, bound {error[worst]:.4f}, exact value "
        f"{exact(case)[worst]:.4f} at points {FIRST[worst]} and {SECOND[worst]}"
    )


def independent_terms(features, output):
    """Return the independent terms of φ(x)·φ(y), (pairs of points, draws)."""
    products = features[FIRST] * features[SECOND]
    if output != "pair":
        return products
    full = products.shape[1] // 2 * 2
    sums = products[:, :full].reshape(len(FIRST), -1, 2).sum(axis=2)
    return np.concatenate([sums, products[:, full:]], axis=1)


def wide_moments(plan, n_seeds):
    """Return the mean of φ(x)·φ(y) over seeds, its variance, and the latter's error.

    The variance is estimated from the independent terms within each map.
    """
    mean = np.zeros(len(FIRST))
    second = np.zeros(len(FIRST))
    fourth = np.zeros(len(FIRST))
    for seed in range(n_seeds):
        features = evaluate(redraw(plan, seed), POINTS)
        for group in plan.groups:
            part = features[:, group.start : group.stop]
            terms = independent_terms(part, group.output)
            mean += terms.sum(axis=1) / n_seeds
            if terms.shape[1] > 2:  # more than the exact columns of a dot product
                squares = (terms - terms.mean(axis=1, keepdims=True)) ** 2
                second += squares.sum(axis=1) / n_seeds
                fourth += squares.var(axis=1) * squares.shape[1] / n_seeds**2
    return mean, second, np.sqrt(fourth)


def seeds_for(case, closed, caught):
    """Return how many maps of variance `closed` catch a bias of `caught`."""
    scale = size(case)
    share = closed[scale > 0] / scale[scale > 0] ** 2
    return math.ceil((Z / caught) ** 2 * share.max())


def one_term(param):
    # The columns of a sum are shared out anew for every D.
    return len(KERNELS[param.values[0]].kernel.terms()) == 1


def light_tailed(param):
    return KERNELS[param.values[0]].light_tailed


# -- independent draws -------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "fourier"), MAPS)
def test_mean_and_variance(name, fourier):
    """The mean within the closed-form error; the variance as the formula says."""
    case = KERNELS[name]
    n_seeds = seeds_for(case, variance(case, WIDE, fourier), DETECTABLE)
    plan = draw(case, WIDE, projection="streamed", fourier=fourier)
    mean, second, spread = wide_moments(plan, n_seeds)
    closed = variance(case, WIDE, fourier)
    assert_unbiased(case, mean, Z * np.sqrt(closed / n_seeds), DETECTABLE)
    # The odd columns of the terms of a sum are too few to estimate theirs.
    odd = 4 * size(case) ** 2 / WIDE**2
    assert np.all(np.abs(second - closed) <= Z * spread + odd)


@pytest.mark.nightly
@pytest.mark.parametrize("n_components", SMALL)
@pytest.mark.parametrize(("name", "fourier"), [p for p in MAPS if one_term(p)])
def test_narrow_map_is_part_of_a_wide_one(name, fourier, n_components):
    """So that what holds for the mean of wide maps holds for every D from 1.

    The last column of an odd number is a column of offset form.
    """
    case = KERNELS[name]
    narrow = evaluate(draw(case, n_components, fourier=fourier), POINTS)
    wide = evaluate(draw(case, 16, fourier=fourier), POINTS)
    expected = wide[:, :n_components] * math.sqrt(16 / n_components)
    if case.phases and fourier == "pair" and n_components % 2:
        offsets = evaluate(draw(case, 16, fourier="offset"), POINTS)
        last = offsets[:, n_components // 2] * math.sqrt(16 / n_components)
        expected[:, -1] = last
    np.testing.assert_allclose(narrow, expected, rtol=1e-10, atol=1e-12)


def assert_variance(values, closed):
    """Compare the variance over seeds with its formula, by its own error."""
    squares = (values - values.mean(axis=0)) ** 2
    spread = Z * squares.std(axis=0) / math.sqrt(len(values))
    assert np.all(np.abs(squares.mean(axis=0) - closed) <= spread + ROUNDING)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kernel", "n_components"),
    [(rk.Linear(), 1), (rk.Linear(), 3), (2.0 * rk.Linear(columns=[0, 2, 3]), 2)],
)
def test_linear_by_fewer_columns(kernel, n_components):
    """A scaled orthogonal projection: mean and closed-form variance."""
    case = Case(kernel, phases=False)
    values = grams(draw(case, n_components), 1_500)
    closed = variance(case, n_components)
    error = Z * np.sqrt(closed / len(values))
    assert_unbiased(case, values.mean(axis=0), error, caught=0.3)
    assert_variance(values, closed)


def test_linear_is_exact_with_its_columns():
    for kernel in (rk.Linear(), 2.5 * rk.Linear(columns=[1, 3])):
        width = len(kernel.leaves()[0]._selected(4))
        Z_ = evaluate(draw(Case(kernel, phases=False), width), POINTS)
        np.testing.assert_allclose(Z_ @ Z_.T, kernel(POINTS), rtol=1e-14, atol=1e-15)


# -- optical features less their mean ------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTICAL)
def test_centered_is_unbiased(name):
    case = KERNELS[name]
    plan = draw(case, WIDE, projection="streamed", centered=True)
    n_seeds = seeds_for(case, variance(case, WIDE), DETECTABLE / 1.1)
    mean, second, spread = wide_moments(plan, n_seeds)
    assert_unbiased(case, mean, Z * np.sqrt(second / n_seeds), DETECTABLE)
    plain = variance(case, WIDE)
    # The rows that are zero have no variance to lower.
    assert np.all(second - Z * spread <= plain + ROUNDING)
    if case.kernel.degree == 2:
        # (1 + 4c² + 3c⁴)/(D - 1) for unit rows.
        x = np.hstack([POINTS, np.full((6, 1), math.sqrt(case.kernel.bias))])
        norms = np.sum(x**2, axis=1)
        n, dots = norms[FIRST] * norms[SECOND], np.sum(x[FIRST] * x[SECOND], axis=1)
        closed = (n**2 + 4 * n * dots**2 + 3 * dots**4) / (WIDE - 1)
        assert np.all(np.abs(second - closed) <= Z * spread + ROUNDING)
        assert np.all(plain[n > 0] / closed[n > 0] > 2.4)


@pytest.mark.slow
def test_centered_reaches_the_optical_terms_of_a_sum():
    case = KERNELS["sum-optical"]
    values = grams(draw(case, 30, centered=True), 400)
    error = Z * values.std(axis=0) / 20
    assert_unbiased(case, values.mean(axis=0), error, caught=0.15)


# -- draws that depend on each other -------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("projection", "name", "fourier"),
    [
        pytest.param(projection, *param.values, id=f"{projection}-{param.id}")
        for projection in CORRELATED
        for param in MAPS
        if admits(projection, KERNELS[param.values[0]])
        and KERNELS[param.values[0]].light_tailed
    ],
)
def test_mean_of_dependent_draws(projection, name, fourier):
    """Seeds are independent whatever the draws of one map are."""
    case = KERNELS[name]
    n_seeds = 64
    values = grams(draw(case, 49, projection=projection, fourier=fourier), n_seeds)
    bound = t_bound(N_COMPARISONS, n_seeds)
    error = bound * values.std(axis=0, ddof=1) / math.sqrt(n_seeds)
    allowed = CORRELATED[projection]
    assert_unbiased(case, values.mean(axis=0), error, caught=0.3, allowed=allowed)


@pytest.mark.slow
@pytest.mark.parametrize("projection", CORRELATED)
def test_dependent_draws_lower_the_variance(projection):
    """Of a Gaussian kernel on 16 columns, by D = 32 pairs."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 16)) / 4
    kernel = rk.Gaussian(1.0)
    errors = {"dense": 0.0, projection: 0.0}
    for name in errors:
        for seed in range(60):
            features = rk.RandomFeatures(
                kernel, 64, projection=name, random_state=seed
            ).fit_transform(X)
            errors[name] += np.sum((features @ features.T - kernel(X)) ** 2)
    assert errors[projection] < {"qmc": 1.05}.get(projection, 0.8) * errors["dense"]


# -- orthogonal rows -----------------------------------------------------------

KS_LEVEL = 1e-6


def rows_of(distribution, n_draws=8_000, width=8):
    projection = make_projection(
        "orthogonal", Stream(5), n_draws, width, distribution, ""
    )
    parts = projection.draw()
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


def test_orthogonal_rows_have_the_norms_and_entries_of_independent_ones():
    rows = rows_of(NormalDistribution())
    norms = np.sum(rows**2, axis=1)
    assert stats.kstest(norms, stats.chi2(8).cdf).pvalue > KS_LEVEL
    for row, column in ((0, 0), (3, 5), (7, 7)):
        entries = rows[row::8, column]
        assert stats.kstest(entries, "norm").pvalue > KS_LEVEL
    assert stats.kstest(rows.ravel()[::7], "norm").pvalue > KS_LEVEL


def test_orthogonal_blocks_are_orthogonal():
    rows = rows_of(NormalDistribution(), n_draws=21)
    for block in (rows[:8], rows[8:16], rows[16:]):
        gram = block @ block.T
        off = gram - np.diag(np.diag(gram))
        assert np.abs(off).max() < 1e-12
    assert np.abs(rows[:8] @ rows[8:16].T).max() > 0.1


def test_complex_orthogonal_rows_are_haar():
    """Without the phases of Mezzadri 2007 the first entries would be real."""
    rows = rows_of(ComplexNormalDistribution())
    norms = np.sum(np.abs(rows) ** 2, axis=1)
    assert stats.kstest(norms, stats.gamma(8).cdf).pvalue > KS_LEVEL
    for row, column in ((0, 0), (4, 4), (7, 2)):
        angle = np.angle(rows[row::8, column]) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > KS_LEVEL
    gram = rows[:8] @ rows[:8].conj().T
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-12


def test_mixing_factors_multiply_whole_rows():
    """A Matérn row is one multivariate t: its entries share their χ²."""
    rows = rows_of(NormalDistribution(Mixing("student", 1.5)))
    for row, column in ((0, 0), (5, 3)):
        entries = rows[row::8, column]
        assert stats.kstest(entries, stats.t(3).cdf).pvalue > KS_LEVEL
    # ‖ω‖²/d follows F(d, 2ν), which it would not with a χ² an entry.
    squares = np.sum(rows**2, axis=1) / 8
    assert stats.kstest(squares, stats.f(8, 3).cdf).pvalue > KS_LEVEL
