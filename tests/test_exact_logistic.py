"""Labels of many rows: logistic regression with the exact kernel of all of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

import randkern as rk
from randkern._random import root_stream
from randkern.models import logistic as models
from randkern.tabular import class_choice, class_rows, classifier, exact_logistic
from randkern.tabular.exact_logistic import fit_seconds
from randkern.tabular.learning import Learning
from randkern.tabular.leave_one_out import log_loss as log_loss_of_codes
from randkern.tabular.logistic import Part, logistic
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial
from randkern.tabular.work import Work

RNG = np.random.default_rng(0)
N = 700
X = pd.DataFrame(RNG.normal(size=(2 * N, 3)), columns=["a", "b", "c"])
CHANCE = expit(3 * np.sin(2 * X.a) + 2 * X.b).to_numpy()
LABELS = np.where(RNG.random(2 * N) < CHANCE, "yes", "no")

KIND = {"form": "Gaussian", "numbers": "standard", "metric": "none"}
START = {"theta": np.zeros(3), "origin": np.zeros(2), "objective": 0.0}
TRIAL = Trial(
    **KIND,
    **START,
    kernel=rk.Gaussian(2.0),
    alpha=1.0,
    error=0.5,
    n_rows=200,
    seconds=0,
)


@pytest.fixture
def many(monkeypatch, no_deadline):
    """Tables of a few hundred rows are fitted like those of many."""
    monkeypatch.setattr(class_rows, "_FEATURE_ROWS", 500)
    monkeypatch.setattr(models, "_FACTORISED_ROWS", 500)


def fitted(**arguments):
    model = rk.TabularClassifier(time_limit=3, random_state=0)
    return model.fit(X[:N], LABELS[:N], **arguments)


@pytest.mark.slow
def test_all_rows_are_fitted(many):
    model = fitted()
    assert model.fit_report_["rows_used"] == N
    assert model.fit_report_["rows_held_out"] == 0
    (member,) = model.model_.members
    assert member.fit.n_components is None and len(member.fit.X_fit_) == N
    found = log_loss(LABELS[N:], model.predict_proba(X[N:]))
    best = log_loss(LABELS[N:], np.column_stack([1 - CHANCE, CHANCE])[N:])
    assert found < best + 0.05
    names = {"X": X[:N], "y": LABELS[:N]}
    exec(model.model_.explain(), names)
    expected = model.predict_proba(names["X"])
    np.testing.assert_allclose(names["probabilities"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.nightly
def test_the_penalty_of_few_rows_may_be_too_large_or_too_small(many, monkeypatch):
    """The penalty that is chosen does not depend much on the one of few rows."""
    losses = []
    for first in (0.1, 0.3, 1.0):
        monkeypatch.setattr(rk.tabular.classifier, "_PENALTIES", (first,))
        monkeypatch.setattr(rk.tabular.classifier, "_FIRST_PENALTY", first)
        losses.append(log_loss(LABELS[N:], fitted().predict_proba(X[N:])))
    assert max(losses) < min(losses) + 0.01


@pytest.mark.nightly
def test_weights_count(many):
    heavy = np.where(LABELS[:N] == "yes", 4.0, 1.0)
    shares = [fitted(sample_weight=w).predict_proba(X[N:])[:, 1] for w in (heavy, None)]
    odds = np.log(shares[0] / (1 - shares[0])) - np.log(shares[1] / (1 - shares[1]))
    assert abs(np.median(odds) - np.log(4)) < 0.35


def test_three_classes(many):
    third = X.c.to_numpy() > 1
    labels = np.where(third, "third", LABELS)
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels[:N])
    (member,) = model.model_.members
    assert member.fit.n_components is None and len(member.fit.X_fit_) == N
    best = np.column_stack([1 - CHANCE, CHANCE]) * ~third[:, None]
    best = np.column_stack([best[:, :1], third, best[:, 1:]])
    assert list(model.classes_) == ["no", "third", "yes"]
    found = log_loss(labels[N:], model.predict_proba(X[N:]))
    assert found < log_loss(labels[N:], best[N:]) + 0.15


@pytest.mark.nightly
def test_held_out_groups_choose_the_penalty(many, monkeypatch):
    taken = []
    chosen = classifier.chosen_for_all_rows

    def noted(trials, part, learning, held, rest, *arguments, **options):
        taken.append((held, rest))
        return chosen(trials, part, learning, held, rest, *arguments, **options)

    monkeypatch.setattr(classifier, "chosen_for_all_rows", noted)
    groups = np.arange(N) // 3
    model = fitted(groups=groups)
    ((held, rest),) = taken
    assert not set(groups[held]) & set(groups[rest])
    (member,) = model.model_.members
    assert len(member.fit.X_fit_) == N


@pytest.mark.parametrize("n_classes", [2, 3])
def test_more_rows_are_fitted_in_cells(many, monkeypatch, n_classes):
    """Beside landmarks; rows held out from both weight them."""
    monkeypatch.setattr(class_rows, "_EXACT_SHARE", 0.0)
    monkeypatch.setattr(exact_logistic, "_MAX_ROWS", 300)
    monkeypatch.setattr(
        classifier, "blend_probabilities", lambda P, *_: (np.full(len(P), 0.5), 1.0)
    )
    labels = np.where((n_classes > 2) & (X.c > 1), "third", LABELS)
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels[:N])
    assert model.fit_report_["rows_held_out"] == N // 8
    fits = [member.fit for member in model.model_.members]
    (cells,) = (fit for fit in fits if isinstance(fit, rk.LocalClassifier))
    assert len(cells.estimators_) > 1
    assert max(map(len, cells.estimators_samples_)) <= 300
    assert np.mean(model.predict(X[N:]) == labels[N:]) > 0.7


@pytest.mark.parametrize("n", [510, 560])
def test_rows_that_are_fitted_are_many_without_those_held_out(many, monkeypatch, n):
    """If few could be held out, none are, and there are no cells."""
    monkeypatch.setattr(class_rows, "_EXACT_SHARE", 0.0)
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:n], LABELS[:n])
    report = model.fit_report_
    assert report["rows_held_out"] == max(n - 501, 0) * (n == 560)
    assert report["rows_used"] == n - report["rows_held_out"]
    kinds = {type(member.fit) for member in model.model_.members}
    assert kinds - {rk.KernelLogistic} == ({rk.LocalClassifier} if n == 560 else set())


def test_the_choice_of_a_penalty_leaves_time_for_the_fit():
    """By the clock, where its work takes longer than planned."""
    rng = np.random.default_rng(0)
    learning = known_rows(400, lambda X: X[:, 0] > 0, rng)
    times = iter(np.arange(0.0, 1e6, 5.0))
    work = Work(60.0, clock=lambda: float(next(times)))
    learning = replace(learning, work=work)
    part = Part(TRIAL, 1.0, np.zeros((0, 2)), 0.0)
    rest, held = learning.order[:-50], learning.order[-50:]
    stage = work.stage("the last fit", 60.0)
    arguments = ([TRIAL], part, learning, held, rest, 0, stage)
    class_choice.chosen_for_all_rows(*arguments, is_exact=True, in_cells=False)
    assert work.cut == ["the choice of a penalty"]
    assert work.elapsed < 60


def test_classes_of_one_row_are_fitted(many, monkeypatch):
    """Rows that are held out have no class that the others lack."""
    monkeypatch.setattr(class_rows, "_EXACT_SHARE", 0.0)
    labels = LABELS[:N].astype(object)
    labels[:20] = [f"rare {i}" for i in range(20)]
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels)
    _, n_held, n_fitted = model.model_.held_out
    assert n_held < N // 8 and n_held + n_fitted == N
    for member in model.model_.members:
        assert len(member.fit.classes_) == 22
    assert model.predict_proba(X[N:]).shape == (N, 22)
    assert "one of each rare class" in model.model_.explain()


def test_work_of_several_classes():
    """A product with the kernel reads it once for all of eight columns.

    Fits of several classes take more products than those of two.
    """
    two, four, eight, nine = (fit_seconds(10_000, 10, k) for k in (2, 4, 8, 9))
    assert 1.5 * two < four == eight < nine < 2.5 * four
    assert fit_seconds(20_000, 10, 2) < 4.1 * two


def known_rows(n, labels, rng):
    X = rng.normal(size=(n, 2))
    y = labels(X).astype(int)
    table = Table(X, 2.0 * y[:, None] - 1, np.ones(n), y)
    work = Work(60.0, clock=lambda: 0.0)
    return Learning.of(
        table, None, (200, n // 8), log_loss_of_codes, root_stream(0), work
    )


@pytest.mark.parametrize(("share", "noise"), [(0.01, 1.0), (10.0, 0.1)])
def test_rows_of_the_whole_table_choose_the_penalty(share, noise):
    """The one of smallest log loss in fits by another solver."""
    rng = np.random.default_rng(31)
    learning = known_rows(
        800, lambda X: X.sum(axis=1) + noise * rng.normal(size=len(X)) > 1, rng
    )
    n = len(learning.table)
    rest, held = learning.order[:-100], learning.order[-100:]
    part = Part(TRIAL, share, np.zeros((0, 2)), 0.0)
    stage = learning.work.stage("the last fit", 60.0)
    arguments = ([TRIAL], part, learning, held, rest, 0, stage)
    best = class_choice.chosen_for_all_rows(*arguments, is_exact=True, in_cells=False)
    assert best.trial is TRIAL  # too few rows for cells
    assert n == len(held) + len(rest) and len(best.P) == len(held)
    encoded = learning.encoded_table(TRIAL, learning.table)
    labels = learning.table.labels

    def loss(divisor):
        model = logistic(TRIAL.kernel, divisor / share, None, 0)
        model.set_params(tol=1e-6).fit(encoded.X[rest], labels[rest])
        return log_loss(labels[held], model.predict_proba(encoded.X[held]))

    losses = [loss(divisor) for divisor in class_choice._DIVISORS]
    chosen = class_choice._DIVISORS.index(share / best.share)
    assert chosen == np.argmin(losses) != class_choice._DIVISORS.index(1.0)
    assert best.loss == pytest.approx(min(losses), rel=0.05)


def test_without_time_few_rows_have_chosen_the_penalty():
    rng = np.random.default_rng(0)
    learning = known_rows(400, lambda X: X[:, 0] > 0, rng)
    learning.work.charge(59.9999)
    stage = learning.work.stage("the last fit", 60.0)
    part = Part(TRIAL, 1.0, np.zeros((0, 2)), 0.0)
    rest, held = learning.order[:-50], learning.order[-50:]
    arguments = ([TRIAL], part, learning, held, rest, 0, stage)
    options = {"is_exact": False, "in_cells": True}
    assert class_choice.chosen_for_all_rows(*arguments, **options) is None


def test_rows_of_several_cells_choose_the_penalty(many, monkeypatch):
    """Where the fit is in cells; some of each are held out."""
    monkeypatch.setattr(class_rows, "_EXACT_SHARE", 0.0)
    monkeypatch.setattr(class_choice, "_CELL_ROWS", 100)
    taken = []
    choose = class_choice._with_best_penalty

    def noted(part, pieces, seed, stage):
        taken.append((part, pieces, choose(part, pieces, seed, stage)))
        return taken[-1][-1]

    monkeypatch.setattr(class_choice, "_with_best_penalty", noted)
    rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], LABELS[:N])
    part, pieces, best = taken[0]
    assert 4 <= len(pieces) <= 16
    labels, P = [], []
    for piece in pieces:
        n = piece.n_held
        assert 0 < n == len(piece.table) // 4 and len(piece.table) <= 100
        model = logistic(part.trial.kernel, 1 / best.share / part.trial.alpha, None, 0)
        model.fit(piece.table.X[n:], piece.table.labels[n:], piece.table.weight[n:])
        P.append(model.predict_proba(piece.table.X[:n]))
        labels.append(piece.table.labels[:n])
    expected = log_loss(np.concatenate(labels), np.concatenate(P))
    assert best.loss == pytest.approx(expected, rel=0.05)
