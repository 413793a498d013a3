"""Evidence of kernels, and kernels that are learned again without each fold."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

import randkern as rk
from randkern._random import root_stream
from randkern.tabular.evidence import Evidence
from randkern.tabular.folds import Folds
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import log_loss, log_squares
from randkern.tabular.out_of_fold import evaluated
from randkern.tabular.presets import SEARCH, Deadline, plan_of
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch
from randkern_lab.benchmarks.families import draw_table

pytestmark = pytest.mark.usefixtures("no_deadline")


def test_evidence_is_the_density_of_contrasts():
    """Of targets less their mean, in an orthonormal basis, with the best variance."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 2))
    weight = rng.uniform(0.5, 2.0, 12)
    kernel = rk.Matern(1.5, np.array([0.7, 2.0]))
    goal = Evidence(kernel, [Table(X, Y, weight, Folds.of_rows(12))], np.arange(2))
    values = []
    for alpha in (0.03, 0.5):
        value, _ = goal(np.log([0.7, 2.0, alpha]))
        gram = kernel(X)
        matrix = gram + alpha * np.diag(weight.mean() / weight)
        contrasts = np.linalg.qr(np.column_stack([np.ones(12), np.eye(12)[:, 1:]]))[0]
        Q = contrasts[:, 1:]
        matrix, Z = Q.T @ matrix @ Q, Q.T @ Y
        variance = np.trace(Z.T @ np.linalg.solve(matrix, Z)) / Z.size
        distribution = scipy.stats.multivariate_normal(np.zeros(11), variance * matrix)
        values.append((value, -2 / Z.size * distribution.logpdf(Z.T).sum()))
    (first, first_density), (second, second_density) = values
    assert first - second == pytest.approx(first_density - second_density, abs=1e-8)


def learning_of(X, Y, labels=None, folds=None):
    folds = folds or Folds.of_rows(len(Y))
    table = Table(X, Y, np.ones(len(Y)), folds, labels)
    loss = log_squares if labels is None else log_loss
    plan = plan_of(*X.shape, 0 if labels is None else 2, 60.0)
    deadline = Deadline(np.inf)
    return Learning.of(table, loss, root_stream(0), plan, deadline)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [False, True])
def test_residuals_are_those_of_kernels_that_do_not_know_the_fold(groups):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    Y = np.sin(2 * X[:, :1]) + 0.2 * rng.normal(size=(60, 1))
    codes = np.repeat(np.arange(5), 12)
    known = learning_of(X, Y, folds=Folds(codes) if groups else None)
    known = replace(known, plan=replace(known.plan, n_refits=2))
    trials = KernelSearch(known, np.arange(len(known.sample)), SEARCH).run()
    table, found = evaluated(trials[:2], known, True)
    assert found == sorted(found, key=lambda refit: refit.loss)
    targets = Y[known.order]
    for refit in found:
        splits = list(table.folds.splits())
        assert len(splits) == len(refit.without) == 5
        for trial, (rest, rows) in zip(refit.without, splits, strict=True):
            if groups:
                members = codes[known.order]
                assert not set(members[rest]) & set(members[rows])
            again = KernelSearch(known, rest, SEARCH).again(refit.trial)
            assert again.alpha == trial.alpha and again.error == trial.error
            U = known.codes[trial.numbers]
            fit = rk.KernelRidgeRegressor(
                trial.kernel, trial.alpha, n_components=None, fit_intercept=True
            ).fit(U[rest], targets[rest])
            expected = targets[rows] - fit.predict(U[rows]).reshape(-1, 1)
            np.testing.assert_allclose(refit.residuals[rows], expected, atol=1e-5)


@pytest.mark.nightly
def test_probabilities_of_few_rows_of_many_columns():
    """The log loss of a coin is 0.69."""
    X, y, test = draw_table("steps", "classification", 150, 25, 3)
    fit = rk.TabularClassifier(20, random_state=0).fit(X[~test], y[~test])
    P = fit.predict_proba(X[test])
    assert -np.log(P[np.arange(len(P)), y[test]]).mean() < 0.65


@pytest.mark.nightly
def test_intervals_of_few_rows_of_many_columns_cover():
    """Of four tables together: 4 standard errors of their mean coverage around 90 %."""
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(580, 25))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=580)
        fit = rk.TabularRegressor(20, random_state=0).fit(X[:80], y[:80])
        low, high = fit.predict_interval(X[80:]).T
        covered.append(((low <= y[80:]) & (y[80:] <= high)).mean())
    # A quantile of 80 residuals covers 90 % with this deviation.
    deviation = np.sqrt(0.09 / 80 + 0.09 / 500)
    assert abs(np.mean(covered) - 0.9) < 4 * deviation / np.sqrt(4)
    assert fit._intervals.sizes.shape == (80, 1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_refits():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 8))
    y = (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)
    first, second = (rk.TabularClassifier(15, random_state=1).fit(X, y) for _ in "ab")
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_probabilities_of_noise_are_those_of_no_model(seed):
    """Those of kernels that have seen all rows would be certain of what they say."""
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(1150, 25)), rng.integers(2, size=1150)
    model = rk.TabularClassifier(10, random_state=0).fit(X[:150], labels[:150])
    chances = model.predict_proba(X[150:])[np.arange(1000), labels[150:]]
    # The log loss of the shares of the 150 labels is below 0.70.
    assert -np.log(chances).mean() < 0.72
