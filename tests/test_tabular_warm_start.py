"""Models of tables that start from the kernels of their last fit."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import randkern as rk
from randkern.tabular.search import KernelSearch

pytestmark = pytest.mark.usefixtures("no_deadline")

RNG = np.random.default_rng(3)
N = 150
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "noise": RNG.normal(size=N),
        "open": RNG.choice(["yes", "no"], N),
    }
)
TARGET = np.sin(2 * TABLE["size"]) + (TABLE["colour"] == "red") + (TABLE.open == "yes")
TARGET = TARGET.to_numpy() + 0.05 * RNG.normal(size=N)
LABELS = np.where(TARGET > np.median(TARGET), "high", "low")
# Rows of a category, and of a gap, that the others lack.
MORE = TABLE.copy()
MORE.loc[120:125, "colour"] = "violet"
MORE.loc[126:130, "open"] = "later"
MORE.loc[131:140, "size"] = np.nan
FEW = MORE[:120]


@pytest.fixture(scope="module")
def regressor(no_deadline):
    # Far more time than the fit takes: models that end early leave out members.
    model = rk.TabularRegressor(10, warm_start=True, random_state=0)
    return model.fit(FEW, TARGET[:120])


def again(model, tmp_path):
    """Return a copy, by way of a file."""
    rk.save(model, tmp_path / "model.skops")
    return rk.load(tmp_path / "model.skops")


@pytest.fixture
def searches(monkeypatch):
    """Return a list that has an entry for each search."""
    found, run = [], KernelSearch.run
    monkeypatch.setattr(
        KernelSearch, "run", lambda *self: found.append(1) or run(*self)
    )
    return found


def test_equal_rows_have_the_same_model(regressor, searches, tmp_path):
    model, predictions = again(regressor, tmp_path), regressor.predict(FEW)
    model.fit(FEW, TARGET[:120])
    np.testing.assert_allclose(model.predict(FEW), predictions, atol=1e-6)
    assert len(model.leaderboard_) <= 3
    assert not searches


def test_equal_labels_have_the_same_model(searches):
    model = rk.TabularClassifier(10, warm_start=True, random_state=0)
    P = model.fit(FEW, LABELS[:120]).predict_proba(FEW)
    again = model.fit(FEW, LABELS[:120]).predict_proba(FEW)
    # Weights of fits depend on logistic regressions, which have this tolerance.
    np.testing.assert_allclose(again, P, atol=1e-3)
    assert len(searches) == 1


def test_more_rows_are_fitted_with_the_same_kernel(regressor, searches, tmp_path):
    model = again(regressor, tmp_path).fit(MORE, TARGET)
    assert not searches
    assert len(model.model_.members[0].fit.X) == N
    # Kernels of noise alone would leave an error of 1.
    assert model.leaderboard_["error"].min() < 0.3
    held = np.abs(regressor.predict(MORE[141:]) - TARGET[141:])
    assert np.abs(model.predict(MORE[141:]) - TARGET[141:]).mean() < 1.3 * held.mean()


def test_other_columns_are_refused(regressor, searches, tmp_path):
    model = again(regressor, tmp_path)
    with pytest.raises(ValueError, match="feature names"):
        model.fit(FEW.rename(columns={"size": "weight"}), TARGET[:120])
    model.predict(FEW)
    model.set_params(warm_start=False).fit(FEW[["size", "open"]], TARGET[:120])
    assert len(searches) == 1


def test_a_first_fit_that_fails_starts_nothing(searches):
    model = rk.TabularRegressor(1, warm_start=True, random_state=0)
    with pytest.raises(ValueError):
        model.fit(FEW, np.full(120, np.nan))
    with pytest.raises(NotFittedError):
        model.predict(FEW)
    model.fit(TABLE, TARGET)
    assert len(searches) == 1
