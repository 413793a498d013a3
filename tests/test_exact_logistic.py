"""Two classes of many rows: logistic regression with the exact kernel of all rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

import randkern as rk
from randkern.models import logistic as models
from randkern.tabular import class_rows

RNG = np.random.default_rng(0)
N = 700
X = pd.DataFrame(RNG.normal(size=(2 * N, 3)), columns=["a", "b", "c"])
CHANCE = expit(3 * np.sin(2 * X.a) + 2 * X.b).to_numpy()
LABELS = np.where(RNG.random(2 * N) < CHANCE, "yes", "no")


@pytest.fixture
def many(monkeypatch, no_deadline):
    """Tables of a few hundred rows are fitted like those of many."""
    monkeypatch.setattr(class_rows, "_FEATURE_ROWS", 500)
    monkeypatch.setattr(models, "_FACTORISED_ROWS", 500)


def fitted(**arguments):
    model = rk.TabularClassifier(time_limit=3, random_state=0)
    return model.fit(X[:N], LABELS[:N], **arguments)


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


def test_the_penalty_of_few_rows_may_be_too_large_or_too_small(many, monkeypatch):
    """The penalty that is chosen does not depend much on the one of few rows."""
    losses = []
    for first in (0.1, 0.3, 1.0):
        monkeypatch.setattr(rk.tabular.classifier, "_PENALTIES", (first,))
        monkeypatch.setattr(rk.tabular.classifier, "_FIRST_PENALTY", first)
        losses.append(log_loss(LABELS[N:], fitted().predict_proba(X[N:])))
    assert max(losses) < min(losses) + 0.01


def test_weights_count(many):
    heavy = np.where(LABELS[:N] == "yes", 4.0, 1.0)
    shares = [fitted(sample_weight=w).predict_proba(X[N:])[:, 1] for w in (heavy, None)]
    odds = np.log(shares[0] / (1 - shares[0])) - np.log(shares[1] / (1 - shares[1]))
    assert abs(np.median(odds) - np.log(4)) < 0.35


def test_three_classes_and_groups_take_the_other_path(many, monkeypatch):
    labels = np.where(X[:N].c > 1, "third", LABELS[:N])
    model = rk.TabularClassifier(time_limit=3, random_state=0).fit(X[:N], labels)
    assert {member.fit.features for member in model.model_.members} <= {
        "local",
        "nystrom",
    }
    model = fitted(groups=np.arange(N) // 3)
    assert all(member.fit.n_components for member in model.model_.members)
