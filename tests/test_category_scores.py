"""Categories of many levels: their scores, alone and in models of tables."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.preprocessing import OneHotEncoder

import randkern as rk
from randkern.tabular import encoder
from randkern.tabular.folds import Folds
from randkern.tabular.target_encoding import CategoryScores, scored_columns

pytestmark = pytest.mark.usefixtures("no_deadline")


def table_of(n, n_levels, seed=0, n_columns=1):
    """Targets that mostly depend on the first category."""
    rng = np.random.default_rng(seed)
    effects = np.random.default_rng(99).normal(size=n_levels)
    codes = rng.integers(n_levels, size=(n, n_columns))
    columns = {
        f"c{j}": [f"v{code}" for code in column] for j, column in enumerate(codes.T)
    }
    X = pd.DataFrame({**columns, "x": rng.normal(size=n)})
    y = effects[codes[:, 0]] + np.sin(2 * X["x"]) / 2 + 0.3 * rng.normal(size=n)
    return X, y.to_numpy()


@pytest.mark.parametrize("n_columns", [1, 3])
def test_scores_are_effects_of_ridge_regression_on_the_other_folds(n_columns):
    X, y = table_of(200, 15, n_columns=n_columns)
    codes = np.arange(200) % 4
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 200)
    names = [f"c{j}" for j in range(n_columns)]
    scores = CategoryScores(names)
    added = scores.fit_transform(X, y, weight, Folds(codes)).to_numpy()[:, -n_columns:]
    weight = weight / weight.mean()
    one_hot = OneHotEncoder(sparse_output=False).fit(X[names])
    Z, columns = one_hot.transform(X[names]), np.repeat(np.arange(n_columns), 15)
    expected = np.empty((200, n_columns))
    for fold in range(4):
        known = codes != fold
        ridge = Ridge(0.3).fit(Z[known], y[known], weight[known])
        own = Z[~known] * ridge.coef_
        for j in range(n_columns):
            own_effect = own[:, columns == j].sum(axis=1)
            expected[~known, j] = ridge.intercept_ + own_effect
    np.testing.assert_allclose(added.astype(float), expected, atol=1e-4)


def test_a_row_does_not_see_its_own_target():
    """Not even in a copy of it."""
    X, y = table_of(60, 13)
    X, y = pd.concat([X, X], ignore_index=True), np.append(y, y)
    changed = y.copy()
    changed[[3, 63]] += 100.0
    scores = [
        CategoryScores(["c0"]).fit_transform(X, t)["c0 score"] for t in (y, changed)
    ]
    levels = [t - t.mean() for t in scores]
    same = X["c0"] == X["c0"][3]
    assert scores[0][3] == scores[0][63]
    assert (
        abs(levels[1][3] - levels[0][3]) < abs(levels[1][same] - levels[0][same]).max()
    )


def test_the_only_column_of_a_table_has_scores():
    """Its equal rows are no copies: they have different targets."""
    X, y = table_of(1200, 30)
    scores = CategoryScores(["c0"]).fit_transform(X[["c0"]], y)["c0 score"]
    assert np.corrcoef(scores, y)[0, 1] > 0.8


def test_rare_and_unknown_levels_have_no_effect():
    levels = ["a"] * 6 + ["b"] * 4 + ["twice"] * 2 + ["once"] + [None] * 3
    table, y = pd.DataFrame({"c": levels}), np.arange(16.0)
    scores = CategoryScores(["c"]).fit(table, y)
    new = scores.transform(pd.DataFrame({"c": ["once", "new", None, "a"]}))["c score"]
    assert new[0] == new[1]
    assert new[3] < 5 < new[0] < new[2]
    assert scores.levels_[0].tolist() == ["a", "b", "twice", None]


@pytest.mark.parametrize("classes", [False, True])
def test_several_targets_and_classes_have_a_score_each(classes):
    X, y = table_of(150, 20)
    y = np.digitize(y, [-0.5, 0.5]) if classes else np.column_stack([y, -y])
    added = CategoryScores(["c0"], classes=classes).fit_transform(X, y)
    n = 3 if classes else 2
    assert list(added.columns[2:]) == [f"c0 score {j}" for j in range(1, n + 1)]


def test_which_columns_have_scores():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "few": rng.integers(8, size=3000).astype(str) + np.array("v", dtype=object),
            "many": [f"v{code}" for code in rng.integers(300, size=3000)],
            "more": [f"v{code}" for code in rng.integers(400, size=3000)],
            "single": [f"id {at}" for at in range(3000)],
            "date": pd.date_range("2026-01-01", periods=3000, freq="h"),
            "number": rng.normal(size=3000),
        }
    )
    assert scored_columns(table, 1) == ["more", "many"]
    assert scored_columns(table, 26) == ["more"]
    assert scored_columns(table, 100) == []
    assert scored_columns(table.rename(columns={"few": 3}), 1) == []
    assert scored_columns(table[["number"]].to_numpy(), 1) == []


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_scores_stand_beside_a_column_of_their_name(kind):
    X, y = table_of(1200, 300)
    table = X.assign(**{"c0 score": y})
    assert scored_columns(table, 1) == ["c0"]
    scores = CategoryScores(["c0"]).fit(kind(table.to_dict("list")), y)
    added = scores.transform(kind(table.to_dict("list")))
    assert list(added.columns) == ["c0", "x", "c0 score", "c0 score_"]
    assert scores.sources_.tolist() == [0, 1, 2, 0]
    np.testing.assert_array_equal(added["c0 score"], y)
    expected = CategoryScores(["c0"]).fit(X, y, None, Folds(np.arange(1200) % 3))
    np.testing.assert_array_equal(added["c0 score_"], expected.transform(X)["c0 score"])


def test_the_order_of_rows_does_not_matter_to_scores():
    X, y = table_of(600, 40, n_columns=2)
    order = np.random.default_rng(3).permutation(600)
    scores = CategoryScores(["c0", "c1"]).fit(X, y)
    again = CategoryScores(["c0", "c1"]).fit(X.iloc[order], y[order])
    for own, other in zip(scores.effects_, again.effects_, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)


def test_polars_has_the_folds_of_pandas():
    X, y = table_of(400, 20)
    encoders = [CategoryScores(["c0"]) for _ in range(2)]
    tables = X, pl.DataFrame(X.to_dict("list"))
    found = [
        e.fit_transform(t, y)["c0 score"] for e, t in zip(encoders, tables, strict=True)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_a_sum_of_many_levels_is_fitted_as_well_as_by_linear_regression():
    """Means of levels alone take the effects of the other nine columns for noise."""
    rng = np.random.default_rng(0)
    codes = rng.integers(60, size=(2000, 10))
    y = rng.normal(size=(10, 60))[np.arange(10), codes].sum(axis=1) / np.sqrt(10)
    y += 0.4 * rng.normal(size=2000)
    X = pd.DataFrame(codes).astype(str).radd("v").rename(columns=str)
    hot = OneHotEncoder(handle_unknown="ignore").fit_transform(X)
    ridge = RidgeCV(np.logspace(-1, 2, 9)).fit(hot[:1200].toarray(), y[:1200])
    model = rk.TabularRegressor(5, random_state=0).fit(X[:1200], y[:1200])
    errors = [
        np.sqrt(np.mean((predicted - y[1200:]) ** 2))
        for predicted in (model.predict(X[1200:]), ridge.predict(hot[1200:]))
    ]
    assert errors[0] < 1.1 * errors[1]


def test_columns_of_levels_are_limited_in_all():
    X, _ = table_of(3000, 150, n_columns=40)
    encoder = rk.TabularEncoder().fit(X)
    assert len(encoder.columns_) == 1001
    assert np.bincount(encoder.columns_).max() == 25


@pytest.mark.slow
def test_many_levels_are_as_informative_as_for_boosted_trees(tmp_path):
    X, y = table_of(1200, 120)
    new, truth = table_of(1000, 120, seed=1)
    model = rk.TabularRegressor(4, random_state=0).fit(X, y)
    trees = HistGradientBoostingRegressor(random_state=0)
    as_codes = [
        table.assign(c0=table["c0"].str[1:].astype(int).clip(upper=119))
        for table in (X, new)
    ]
    trees.fit(as_codes[0], y)
    errors = [
        np.sqrt(np.mean((predicted - truth) ** 2))
        for predicted in (model.predict(new), trees.predict(as_codes[1]))
    ]
    assert errors[0] < 0.9 * errors[1]
    low, high = model.predict_interval(new).T
    assert abs(np.mean((low <= truth) & (truth <= high)) - 0.9) < 0.035
    assert model.feature_importances_.shape == (2,)
    assert model.feature_importances_[0] > model.feature_importances_[1]
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))


@pytest.mark.slow
def test_tensors_and_onnx_have_the_same_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "_MAX_LEVELS", 12)
    pytest.importorskip("torch")
    X, y = table_of(200, 16)
    X.loc[:20, "c0"] = None
    model = rk.TabularClassifier(1, random_state=0).fit(X, np.digitize(y, [-0.5, 0.5]))
    assert model.model_.scores is not None
    expected = model.predict_proba(X)
    module = rk.to_torch(model)
    import torch

    place = {level: at for at, level in enumerate(module.categories["c0"])}
    codes = [
        place[None if level is None or level != level else level] for level in X["c0"]
    ]
    rows = torch.tensor(np.column_stack([codes, X["x"]]))
    np.testing.assert_allclose(module(rows).detach().numpy(), expected, atol=1e-9)
    onnxruntime = pytest.importorskip("onnxruntime")
    exported = rk.export_onnx(model, tmp_path / "model.onnx", X)
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    inputs = {
        "c0": X["c0"].fillna("").to_numpy(dtype=object)[:, None],
        "x": X["x"].to_numpy()[:, None],
    }
    _, found = session.run(None, inputs)
    np.testing.assert_allclose(found, expected, atol=1e-9)
