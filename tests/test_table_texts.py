"""Columns of free text, and logarithms of targets, in models of tables."""

import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import randkern as rk
from randkern import cli
from randkern.tabular.folds import Folds
from randkern.tabular.target_encoding import TextEncoder, text_columns

pytestmark = pytest.mark.usefixtures("no_deadline")

N = 600


def drawn(n, rng):
    """Texts of words by Zipf's law, and the sums of their weights."""
    ranks = np.arange(1, 401)
    weights = np.random.default_rng(0).normal(size=400)
    texts, values = [], []
    for size in rng.integers(5, 30, size=n):
        words = rng.choice(400, size=size, p=1 / ranks / (1 / ranks).sum())
        texts.append(" ".join(f"w{word}" for word in words))
        values.append(weights[words].sum() / np.sqrt(size))
    table = pd.DataFrame({"x": rng.normal(size=n), "note": texts})
    return table, np.array(values) + 0.3 * rng.normal(size=n)


TABLE, TARGET = drawn(N, np.random.default_rng(1))
NEW, TRUTH = drawn(N, np.random.default_rng(2))


@pytest.fixture(scope="module")
def fitted():
    return rk.TabularRegressor(time_limit=5, random_state=0).fit(TABLE, TARGET)


@pytest.mark.slow
def test_texts_are_predicted_as_well_as_by_a_linear_model(fitted):
    other = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), Ridge())
    other.fit(TABLE["note"], TARGET)
    own, theirs = (
        np.sqrt(np.mean((predicted - TRUTH) ** 2))
        for predicted in (fitted.predict(NEW), other.predict(NEW["note"]))
    )
    assert own < 1.1 * theirs
    assert fitted.feature_importances_[1] > 0.8


@pytest.mark.slow
def test_intervals_cover_texts(fitted):
    low, high = fitted.predict_interval(NEW, coverage=0.9).T
    covered = np.mean((low <= TRUTH) & (TRUTH <= high))
    assert abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 * 2 / N)


@pytest.mark.nightly
def test_classes_of_texts():
    labels, truth = (
        np.where(TARGET > 0, "up", "down"),
        np.where(TRUTH > 0, "up", "down"),
    )
    other = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    other.fit(TABLE["note"], labels)
    model = rk.TabularClassifier(time_limit=5, random_state=0).fit(TABLE, labels)
    errors = 1 - model.score(NEW, truth), 1 - other.score(NEW["note"], truth)
    assert errors[0] < 1.1 * errors[1]


def test_a_row_does_not_see_its_own_target():
    changed = TARGET.copy()
    changed[::3] += 1e-3 * np.arange(len(changed[::3]))
    folds = Folds(np.arange(N) % 3)
    found = [
        TextEncoder(["note"]).fit_transform(TABLE, y, folds=folds)["note score"][::3]
        for y in (TARGET, changed)
    ]
    np.testing.assert_allclose(*found, atol=1e-6)


COLUMNS = {
    "note": [f"word{i} of some text {i % 7}" for i in range(N)],
    "identifier": [f"id {i}" for i in range(N)],
    "colour": ["dark red of old", "pale blue of new"] * (N // 2),
    "number": np.arange(N),
}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_which_columns_are_texts(kind):
    table = kind(COLUMNS)
    assert text_columns(table) == ["note"]
    assert text_columns(table, ["colour"]) == ["colour"]
    assert text_columns(np.ones((3, 2))) == []
    for rows in (table, np.ones((3, 2))):
        with pytest.raises(ValueError, match="expected columns of a dataframe X"):
            text_columns(rows, ["notes"])
    dtype = "category" if kind is pd.DataFrame else pl.Categorical
    column = table["note"]
    cast = column.astype if kind is pd.DataFrame else column.cast
    other = table.assign(note=cast(dtype)) if kind is pd.DataFrame else None
    other = table.with_columns(cast(dtype)) if other is None else other
    assert text_columns(other) == []


@pytest.mark.slow
def test_texts_of_polars_are_those_of_pandas(fitted):
    found = fitted.predict(pl.from_pandas(NEW))
    np.testing.assert_array_equal(found, fitted.predict(NEW))


@pytest.mark.slow
def test_missing_and_unknown_texts(fitted):
    table = NEW[:3].assign(note=[None, "", "never seen before"])
    predicted = fitted.predict(table.assign(x=0.0))
    # Distances of equal rows are roots of rounding errors.
    assert predicted[0] == pytest.approx(predicted[1], abs=1e-6)
    # A few of its sequences of characters share a number with known ones.
    assert predicted[0] == pytest.approx(predicted[2], abs=0.2 * TARGET.std())


@pytest.mark.nightly
def test_misspelt_names_are_known():
    rng = np.random.default_rng(0)
    names = ["software engineer", "sales manager", "school teacher", "truck driver"]
    codes, texts = rng.integers(4, size=800), []
    for code in codes:
        letters = list(names[code])
        for at in rng.integers(len(letters), size=2):
            letters[at] = "abcdefghijklmnopqrstuvwxyz"[rng.integers(26)]
        texts.append("".join(letters))
    x = rng.normal(size=800)
    y = np.array([1.5, -1.0, 0.5, -0.5])[codes] * np.sign(x)
    table = pd.DataFrame({"name": texts, "x": x})
    model = rk.TabularRegressor(2, text_columns=["name"], random_state=0)
    assert model.fit(table[:400], y[:400]).score(table[400:], y[400:]) > 0.85


@pytest.mark.slow
def test_an_estimator_of_a_model_of_texts(fitted):
    again = fitted.model_.to_estimator().fit(TABLE, TARGET)
    # Distances of equal rows are roots of rounding errors.
    np.testing.assert_allclose(
        again.predict(NEW), fitted.predict(NEW), rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
def test_models_of_texts_have_no_other_form(fitted, tmp_path):
    pytest.importorskip("skl2onnx")
    with pytest.raises(ValueError, match="free text .'note'."):
        rk.export_onnx(fitted, tmp_path / "model.onnx")


def run(*arguments):
    app = cli._build_app()
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.mark.nightly
def test_texts_on_the_command_line(tmp_path):
    TABLE.assign(y=TARGET).to_csv(tmp_path / "table.csv", index=False)
    NEW.to_csv(tmp_path / "new.csv", index=False)
    result = run(
        *("fit", tmp_path / "table.csv", "--target", "y", "--time-limit", 10),
        *("--no-refit", "--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    importances = json.loads((tmp_path / "results.json").read_text())["importances"]
    assert importances["note"] > 0.8
    assert "words on average" in (tmp_path / "report.html").read_text()
    info = run("info", tmp_path / "model.skops").output
    assert any(line.split() == ["note", "text"] for line in info.splitlines())
    result = run("predict", tmp_path / "model.skops", tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(io.StringIO(result.stdout))["prediction"]
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_allclose(found, loaded.predict(NEW), rtol=1e-7)
    as_category = run(
        *("fit", tmp_path / "table.csv", "--target", "y", "--time-limit", 2),
        *("--categorical", "note", "--no-refit", "--out", tmp_path / "other"),
    )
    said = "dropped columns of strings that rarely repeat: 'note'"
    assert said in as_category.output


# -- logarithms --------------------------------------------------------------------

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 2))
PRICE = np.exp(1 + X[:, 0] + np.sin(X[:, 1]) + 0.2 * RNG.normal(size=200))
TRANSFORMS = {"log": (np.log, np.exp), "log1p": (np.log1p, np.expm1)}


@pytest.fixture(scope="module", params=TRANSFORMS)
def logged(request):
    """Return a model with logarithms, one of logarithms, and their inverse."""
    function, inverse = TRANSFORMS[request.param]
    model = rk.TabularRegressor(
        time_limit=2, target_transform=request.param, random_state=0
    )
    plain = rk.TabularRegressor(time_limit=2, random_state=0)
    return model.fit(X, PRICE), plain.fit(X, function(PRICE)), inverse


@pytest.mark.slow
def test_predictions_and_intervals_of_logarithms(logged):
    model, plain, inverse = logged
    new = np.random.default_rng(4).normal(size=(50, 2))
    np.testing.assert_allclose(model.predict(new), inverse(plain.predict(new)))
    np.testing.assert_allclose(
        model.predict_interval(new), inverse(plain.predict_interval(new))
    )


@pytest.mark.slow
def test_an_estimator_of_a_model_of_logarithms(logged):
    again = logged[0].model_.to_estimator().fit(X, PRICE)
    assert isinstance(again, TransformedTargetRegressor)
    np.testing.assert_allclose(again.predict(X), logged[0].predict(X), 1e-6)


@pytest.mark.slow
def test_saved_models_of_logarithms(logged, tmp_path):
    rk.save(logged[0], tmp_path / "model.skops")
    found = rk.load(tmp_path / "model.skops").predict_interval(X)
    np.testing.assert_array_equal(found, logged[0].predict_interval(X))


@pytest.mark.slow
def test_logarithms_in_other_forms(logged, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    rk.export_onnx(logged[0], tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (name,) = (each.name for each in session.get_inputs())
    (found,) = session.run(None, {name: X})
    np.testing.assert_allclose(found.ravel(), logged[0].predict(X), rtol=1e-5)
    torch = pytest.importorskip("torch")
    found = rk.to_torch(logged[0])(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found.ravel(), logged[0].predict(X), rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("log", np.append(PRICE[:-1], 0.0), "above 0, got 0 in row 199; use .*log1p"),
        ("log", np.append(PRICE[:-1], -1.0), "above 0, got -1 in row 199; use .*None"),
        ("log1p", np.append(PRICE[:-1], -1.0), "above -1, got -1 in row 199"),
    ],
)
def test_targets_without_logarithm(name, y, message):
    with pytest.raises(ValueError, match=message):
        rk.TabularRegressor(time_limit=1, target_transform=name).fit(X, y)


@pytest.mark.nightly
def test_logarithms_on_the_command_line(tmp_path):
    table = pd.DataFrame(X, columns=["a", "b"])
    table.assign(price=PRICE, sold=PRICE > 1).to_csv(tmp_path / "t.csv", index=False)
    options = "--log-target", "--time-limit", 4, "--no-refit", "--out", tmp_path
    result = run("fit", tmp_path / "t.csv", "--target", "price", *options)
    assert result.exit_code == 0, result.output
    model = rk.load(tmp_path / "model.skops")
    assert model.target_transform == "log"
    table = table.assign(sold=PRICE > 1)
    predicted = model.predict(table)
    assert np.corrcoef(np.log(predicted), np.log(PRICE))[0, 1] > 0.95
    result = run("fit", tmp_path / "t.csv", "--target", "sold", *options)
    assert result.exit_code == 2
    assert "--log-target needs a numeric target" in result.output
