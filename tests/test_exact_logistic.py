"""Labels of many rows: logistic regression with the exact kernel in cells."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

import randkern as rk

RNG = np.random.default_rng(0)
N = 700
X = pd.DataFrame(RNG.normal(size=(2 * N, 3)), columns=["a", "b", "c"])
CHANCE = expit(3 * np.sin(2 * X.a) + 2 * X.b).to_numpy()
LABELS = np.where(RNG.random(2 * N) < CHANCE, "yes", "no")


@pytest.fixture
def many(planned, no_deadline):
    """Tables of a few hundred rows are fitted like those of many: in one cell."""
    planned(cell_rows=N, learned_rows=400)


def fitted(**arguments):
    model = rk.TabularClassifier(time_limit=3, random_state=0)
    return model.fit(X[:N], LABELS[:N], **arguments)


@pytest.mark.slow
def test_all_rows_are_fitted(many):
    model = fitted()
    assert model.fit_report_["rows_used"] == N
    assert model.fit_report_["rows_held_out"] == 0
    member = model.model_.members[0]
    assert len(member.fit.X) == N
    found = log_loss(LABELS[N:], model.predict_proba(X[N:]))
    best = log_loss(LABELS[N:], np.column_stack([1 - CHANCE, CHANCE])[N:])
    assert found < best + 0.05
    again = model.model_.to_estimator().fit(X[:N], LABELS[:N]).predict_proba(X[N:])
    expected = model.model_.predict(X[N:])
    # Fits end when they exceed the objective's minimum by a thousandth.
    np.testing.assert_allclose(again, expected, rtol=0, atol=3e-3)


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
    member = model.model_.members[0]
    assert len(member.fit.X) == N
    best = np.column_stack([1 - CHANCE, CHANCE]) * ~third[:, None]
    best = np.column_stack([best[:, :1], third, best[:, 1:]])
    assert list(model.classes_) == ["no", "third", "yes"]
    found = log_loss(labels[N:], model.predict_proba(X[N:]))
    assert found < log_loss(labels[N:], best[N:]) + 0.15


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_more_rows_are_fitted_in_cells(planned, no_deadline, n_classes):
    planned(cell_rows=300, learned_rows=400)
    labels = np.where((n_classes > 2) & (X.c > 1), "third", LABELS)
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels[:N])
    assert model.fit_report_["rows_used"] == N
    member = model.model_.members[0]
    assert isinstance(member.fit, rk.LocalClassifier)
    assert max(map(len, member.fit.estimators_samples_)) <= 300
    assert np.mean(model.predict(X[N:]) == labels[N:]) > 0.7
    if n_classes == 2:
        best = log_loss(LABELS[N:], np.column_stack([1 - CHANCE, CHANCE])[N:])
        assert log_loss(labels[N:], model.predict_proba(X[N:])) < best + 0.05


@pytest.mark.slow
def test_groups_in_cells(many):
    model = fitted(groups=np.arange(N) // 3)
    assert np.mean(model.predict(X[N:]) == LABELS[N:]) > 0.7


@pytest.mark.slow
def test_classes_of_one_row_are_fitted(planned, no_deadline):
    """If there is no time for all rows, there is for one of each class."""
    planned(cell_rows=300, fitted_rows=600, learned_rows=400)
    labels = LABELS[:N].astype(object)
    labels[:20] = [f"rare {i}" for i in range(20)]
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels)
    assert 600 <= model.fit_report_["rows_used"] < 620
    assert model.predict_proba(X[N:]).shape == (N, 22)


@pytest.mark.slow
def test_labels_without_noise_do_not_set_the_penalty(no_deadline):
    """Least squares fits them with hardly any, logistic regression with C of 1e6."""
    X = np.random.default_rng(3).uniform(size=(120, 2))
    fit = rk.TabularClassifier(0.5, random_state=0).fit(X, X[:, 0] > 0.5)
    assert all(0.3 <= member.fit.C <= 1e5 for member in fit.model_.members)
    assert fit.score(X, X[:, 0] > 0.5) > 0.97


@pytest.mark.nightly
@pytest.mark.parametrize("n_rare", [1, 40])
def test_classes_of_one_region_have_probabilities(n_rare, no_deadline):
    """Most cells know one class, and say nothing of C and the temperature."""
    r = np.random.default_rng(0)
    rows = r.normal(size=(8000, 6))
    score = rows[:, 0] + 0.5 * rows[:, 1] + 0.3 * r.normal(size=8000)
    y = score >= np.sort(score[:4000])[-n_rare]
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(
        rows[:4000], y[:4000]
    )
    share = np.full(4000, n_rare / 4000)
    constant = log_loss(y[4000:], share)
    assert log_loss(y[4000:], model.predict_proba(rows[4000:])) < 3 * constant
