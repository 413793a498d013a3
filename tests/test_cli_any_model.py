"""``randkern info`` and ``predict`` on every estimator that `rk.save` writes."""

import gzip
import inspect
import io
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("skops")
import pandas as pd
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import randkern as rk
from randkern import cli

NEEDED = {"OpticalFeatures": {"device": rk.optics.SimulatedOPU(20, random_state=0)}}
QUICK = {"n_components": 20, "time_limit": 1, "random_state": 0}


def run(*arguments):
    app = cli._build_app()
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def estimators():
    """Public estimators, with few features."""
    for name in rk.__all__:
        kind = getattr(rk, name)
        if not (inspect.isclass(kind) and hasattr(kind, "fit")):
            continue
        known = inspect.signature(kind).parameters
        quick = {key: value for key, value in QUICK.items() if key in known}
        yield name, kind(**NEEDED.get(name, {}), **quick)


def data():
    X = np.random.default_rng(0).random((40, 3))
    y = np.sin(3 * X[:, 0])
    return X, y, np.where(y > np.median(y), "high", "low")


def saved(model, path, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rk.save(model.fit(X, y), path)
    return model


def predicted(model, rows, *options):
    result = run("predict", model, rows, *options)
    assert result.exit_code == 0, result.output
    return pd.read_csv(io.StringIO(result.stdout))


@pytest.fixture
def rows(tmp_path):
    pd.DataFrame(data()[0], columns=list("abc")).to_csv(
        tmp_path / "rows.csv", index=False
    )
    return tmp_path / "rows.csv"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), list(estimators()))
def test_models_of_arrays_predict_tables(name, model, rows, tmp_path):
    X, y, labels = data()
    classes = is_classifier(model) or name == "MetricLearner"
    path = tmp_path / "model.skops"
    if name == "OpticalFeatures":
        X = (X > 0.5).astype(float)
    saved(model, path, X, labels if classes else y)
    told = run("info", path)
    assert told.exit_code == 0, told.output
    assert "3 columns" in told.output
    if not hasattr(model, "predict"):
        refused = run("predict", path, rows)
        assert refused.exit_code == 2
        assert f"the file holds a {name}, which cannot predict" in refused.output
        return
    options = ["--probabilities"] * hasattr(model, "predict_proba")
    options += ["--interval", 0.8] * hasattr(model, "predict_interval")
    found = predicted(path, rows, *options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.predict(X)
    if classes:
        assert (found["prediction"] == expected).all()
    elif name == "KernelQuantileRegressor":
        assert list(found) == ["quantile 0.1", "quantile 0.5", "quantile 0.9"]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    else:
        np.testing.assert_allclose(found["prediction"], expected, rtol=1e-6, atol=1e-9)
    if "--probabilities" in options:
        shares = found[["probability of high", "probability of low"]]
        np.testing.assert_allclose(shares, model.predict_proba(X), atol=1e-9)
    if "--interval" in options:
        assert (found["low"] <= found["high"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["RidgeRegressor", "TabularRegressor"])
def test_several_targets_are_numbered(kind, rows, tmp_path):
    X, y, _ = data()
    targets, path = np.column_stack([y, -2 * y, 1 + y]), tmp_path / "model.skops"
    model = rk.KernelRidgeRegressor(n_components=20, random_state=0)
    if kind == "TabularRegressor":
        model = rk.TabularRegressor(time_limit=1, random_state=0)
    saved(model, path, X, targets)
    found = predicted(path, rows)
    assert list(found) == ["prediction 1", "prediction 2", "prediction 3"]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9)
    if hasattr(model, "predict_interval"):
        found = predicted(path, rows, "--interval", 0.8)
        bounds = model.predict_interval(X, coverage=0.8)
        np.testing.assert_allclose(found["low 3"], bounds[:, 2, 0])
        np.testing.assert_allclose(found["high 1"], bounds[:, 0, 1])


@pytest.mark.slow
def test_what_suits_no_model_of_an_array_is_reported(rows, tmp_path):
    X, y, _ = data()
    path = tmp_path / "model.skops"
    model = rk.KernelRidgeRegressor(n_components=20, random_state=0)
    saved(make_pipeline(StandardScaler(), model), path, X[:, :2], y)
    refused = run("predict", path, rows)
    assert refused.exit_code == 2
    assert "an array of 2 columns without names, but" in refused.output
    assert "has 3: a, b, c" in refused.output
    pd.DataFrame({"a": [1.0], "b": ["red"]}).to_csv(tmp_path / "text.csv", index=False)
    refused = run("predict", path, tmp_path / "text.csv")
    assert refused.exit_code == 2
    assert "red" in refused.output
    for unfitted in (model.__class__(), rk.Gaussian(2.0)):
        rk.save(unfitted, path)
        assert run("info", path).exit_code == 0
        assert run("predict", path, rows).exit_code == 2
    assert "not fitted" not in run("info", path).output  # a kernel never is


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_predictions_are_replaced_as_a_whole(suffix, rows, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    X, y, _ = data()
    model, out = tmp_path / "model.skops", tmp_path / f"out.{suffix}"
    saved(rk.KernelRidgeRegressor(n_components=20, random_state=0), model, X, y)
    out.write_bytes(b"old")
    with monkeypatch.context() as patch:
        for method in ("to_csv", "to_parquet"):

            def fill(frame, file, *_, **__):
                file.write(b"half")
                raise OSError(28, "No space left on device")

            patch.setattr(pd.DataFrame, method, fill)
        result = run("predict", model, rows, "--out", out)
    assert result.exit_code == 2
    assert result.stderr == "randkern: error: no space left on device\n"
    assert out.read_bytes() == b"old"
    result = run("predict", model, rows, "--out", out)
    assert result.exit_code == 0, result.output
    found = pd.read_parquet(out) if suffix == "parquet" else pd.read_csv(out)
    assert len(found) == 40
    if suffix == "csv.gz":
        assert gzip.decompress(out.read_bytes()).startswith(b"prediction")
    assert {each.name for each in tmp_path.iterdir()} == {
        "model.skops",
        "rows.csv",
        out.name,
    }
    monkeypatch.setattr(rk, "load", None)
    monkeypatch.setattr("randkern._files.check_writable", _refuse)
    result = run("predict", model, rows, "--out", out)
    assert result.exit_code == 2
    assert f"{tmp_path}: read-only" in result.output


def _refuse(folder):
    raise OSError(30, "Read-only file system", str(folder))


def test_info_computes_importances_only_on_request(tmp_path, monkeypatch):
    """It takes a minute for many rows; `randkern fit` stores them."""
    X, y, _ = data()
    path = tmp_path / "model.skops"
    saved(
        rk.TabularRegressor(1, random_state=0),
        path,
        pd.DataFrame(X, columns=list("abc")),
        y,
    )
    described = run("info", path)
    assert described.exit_code == 0
    assert "importances: not stored; --importances computes them" in described.stdout
    shown = run("info", path, "--importances").stdout
    assert re.search(r"importances:\n  a +\d+%  #+\n", shown)


@pytest.mark.slow
def test_texts_with_spaces_are_those_of_the_fit(tmp_path):
    """pandas keeps the spaces around names and texts that a model is fitted to."""
    levels = np.random.default_rng(0).choice([" low", " high", " none"], 90)
    frame = pd.DataFrame({" level": levels})
    y = frame[" level"].map({" low": 1.0, " high": 5.0, " none": 3.0}).to_numpy()
    model = saved(rk.TabularRegressor(1, random_state=0), tmp_path / "m", frame, y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    predictions = predicted(tmp_path / "m", tmp_path / "rows.csv")["prediction"]
    np.testing.assert_allclose(predictions, model.predict(frame), rtol=1e-6)
