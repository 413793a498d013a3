"""Models of tables in scikit-learn's tools for inspection and for decisions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import (
    PartialDependenceDisplay,
    partial_dependence,
    permutation_importance,
)
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import (
    TunedThresholdClassifierCV,
)

import randkern as rk

pytest.importorskip("matplotlib").use("Agg")
pytestmark = pytest.mark.usefixtures("no_deadline")

N = 200
RNG = np.random.default_rng(5)
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "colour": pd.Categorical(RNG.choice(["red", "blue"], N)),
        "noise": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(size=N)),
    }
)
MEAN = np.tanh(TABLE["size"]) + (TABLE["colour"] == "red")
TARGET = (MEAN + 0.1 * RNG.normal(size=N)).to_numpy()
LABELS = np.where(TARGET + 0.5 * RNG.normal(size=N) > 1.2, "yes", "no")
GROUPS = np.arange(N) % 10


def models():
    options = {"time_limit": 2, "random_state": 0}
    return {
        "regressor": (rk.TabularRegressor(**options), TARGET),
        "classifier": (rk.TabularClassifier(**options), LABELS),
    }


@pytest.fixture(scope="module", params=models())
def fitted(request):
    model, y = models()[request.param]
    return model.fit(TABLE, y), y


@pytest.mark.slow
def test_partial_dependence_is_the_mean_prediction(fitted):
    model, _ = fitted
    display = PartialDependenceDisplay.from_estimator(
        model, TABLE, ["size", "colour"], categorical_features=["colour"]
    )
    assert display.axes_.size == 2
    size, colour = (
        partial_dependence(model, TABLE, [name], categorical_features=["colour"])
        for name in ("size", "colour")
    )
    is_classifier = hasattr(model, "classes_")

    def mean_at(name, value):
        rows = TABLE.assign(**{name: value})
        if is_classifier:
            return model.predict_proba(rows)[:, 1].mean()
        return model.predict(rows).mean()

    for name, found in (("size", size), ("colour", colour)):
        for value, mean in zip(
            found["grid_values"][0], found["average"][0], strict=True
        ):
            if name == "colour":
                value = pd.Categorical([value] * N, ["blue", "red"])
            assert mean == pytest.approx(mean_at(name, value), rel=1e-6)
    assert np.diff(size["average"][0]).sum() > 0.3  # from the least to the largest


@pytest.mark.slow
def test_permutation_importance_agrees(fitted):
    model, y = fitted
    found = permutation_importance(model, TABLE, y, n_repeats=3, random_state=0)
    size, colour, noise = found.importances_mean
    assert min(size, colour) > 3 * abs(noise)
    assert model.feature_importances_[:2].min() > model.feature_importances_[2]


@pytest.mark.nightly
def test_tuned_thresholds_are_those_of_the_probabilities():
    rare = np.where(TARGET + 0.5 * RNG.normal(size=N) > 1.9, 1, 0)
    model = rk.TabularClassifier(time_limit=1, random_state=0)
    tuned = TunedThresholdClassifierCV(
        model, scoring="balanced_accuracy", cv=2, thresholds=20, random_state=0
    )
    tuned.fit(TABLE, rare)
    P = tuned.estimator_.predict_proba(TABLE)[:, 1]
    np.testing.assert_array_equal(
        tuned.predict(TABLE), (P >= tuned.best_threshold_).astype(int)
    )
    plain, better = (
        balanced_accuracy_score(rare, found)
        for found in (tuned.estimator_.predict(TABLE), tuned.predict(TABLE))
    )
    assert tuned.best_threshold_ < 0.5
    assert better > plain
