"""Gaussian processes as files of ONNX: means, deviations, and names of outputs."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk


@pytest.mark.parametrize(
    "options",
    [
        {"mean": "constant"},
        {"mean": "linear", "normalize_y": True},
        {"mean": "constant", "n_components": None},
        {"features": "nystrom"},
        {"likelihood": "student-t", "mean": "constant"},
        {"likelihood": "poisson"},
        {"kernel": 1.0 * rk.Gaussian(2.0) + 2.0 * rk.Linear(1.0, columns=[])},
    ],
    ids=str,
)
def test_means_and_deviations_of_processes(options, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = rng.poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float)
    model = rk.GaussianProcessRegressor(n_components=30, optimizer=None, random_state=0)
    model.set_params(**options).fit(X, y)
    path = tmp_path / "model.onnx"
    made = rk.export_onnx(model, path, return_std=True)
    assert [output.name for output in made.graph.output] == ["variable", "std"]
    session = onnxruntime.InferenceSession(path)
    expected = model.predict(X, return_std=True)
    for values, right in zip(session.run(None, {"X": X}), expected, strict=True):
        np.testing.assert_allclose(values[:, 0], right, rtol=1e-6, atol=1e-8)


def test_a_pipeline_has_deviations(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    process = rk.GaussianProcessRegressor(
        n_components=50, mean="constant", optimizer=None, noise=100.0, random_state=0
    )
    pipeline = make_pipeline(StandardScaler(), process).fit(X, y)
    path = tmp_path / "model.onnx"
    rk.export_onnx(pipeline, path, return_std=True)
    values, deviations = onnxruntime.InferenceSession(path).run(None, {"X": X})
    mean, std = pipeline.predict(X, return_std=True)
    np.testing.assert_allclose(values[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(deviations[:, 0], std, rtol=1e-6)
    with pytest.raises(ValueError, match="needs a GaussianProcessRegressor"):
        ridge = rk.KernelRidgeRegressor(n_components=10).fit(X, y)
        rk.export_onnx(ridge, path, return_std=True)


@pytest.mark.parametrize("name", ["variable", "label"])
def test_names_of_outputs_are_not_those_of_columns(name, tmp_path):
    X = pd.DataFrame({name: [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 0.0]})
    kinds = {"variable": rk.KernelRidgeRegressor, "label": rk.KernelRidgeClassifier}
    model = kinds[name](n_components=10, random_state=0).fit(X, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="has an output of this name"):
        rk.export_onnx(model, tmp_path / "model.onnx", X)
