"""Penalties chosen on tensors are those chosen on arrays."""

import copy

import numpy as np
import pytest

import randkern as rk
from _tensors import DEVICES, dispatch, host, no_host_copies, tensor, torch

pytestmark = pytest.mark.slow

SYSTEMS = pytest.mark.parametrize(
    "n_components", [11, 71, None], ids=["primal", "dual", "exact"]
)
CRITERIA = {
    "leave-one-out": {},
    "gcv": {"cv": "gcv"},
    "scored": {"scoring": "r2"},
    "folds": {"cv": 3},
}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 3))
    y = np.column_stack([np.sin(X[:, 0]) + 3, X[:, 1] + 0.3 * rng.normal(size=60)])
    weight = rng.uniform(0.2, 2, 60)
    weight[4:9] = 0
    return X, y, weight


@pytest.mark.nightly
@SYSTEMS
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_it_is_that_of_arrays(
    n_components, criterion, fit_intercept, weighted, device, data
):
    X, y, weight = data
    weight = weight if weighted else None
    y = y[:, 0] if criterion == "scored" else y
    model = rk.KernelRidgeRegressorCV(
        rk.Gaussian("scale"),
        np.geomspace(1e-3, 10, 6),
        n_components,
        fit_intercept=fit_intercept,
        random_state=0,
        **CRITERIA[criterion],
    )
    expected = copy.deepcopy(model).fit(X, y, weight)
    with dispatch():
        weights = None if weight is None else tensor(weight, device)
        model.fit(tensor(X, device), tensor(y, device), weights)
        got = model.predict(tensor(X, device))
    assert model.alpha_ == expected.alpha_
    for name, values in expected.cv_results_.items():
        np.testing.assert_allclose(model.cv_results_[name], values, rtol=1e-6)
    np.testing.assert_allclose(host(got), expected.predict(X), rtol=1e-5, atol=1e-8)


@pytest.mark.slow
@SYSTEMS
@pytest.mark.parametrize("criterion", ["leave-one-out", "gcv"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_what_is_copied_to_the_host(
    n_components, criterion, fit_intercept, data, monkeypatch
):
    monkeypatch.setattr("randkern.models.memory._BLOCK_BYTES", 2000)  # several blocks
    X, y, weight = (tensor(array) for array in data)
    model = rk.KernelRidgeRegressorCV(
        rk.Gaussian(2.0), [0.1, 1.0], n_components, fit_intercept=fit_intercept,
        random_state=0, **CRITERIA[criterion],
    )  # fmt: skip
    with dispatch(), no_host_copies(monkeypatch, most=2):
        model.fit(X, y, weight + 0.1)
        assert isinstance(model.predict(X), torch.Tensor)
