"""What holds for every estimator that is given tensors."""

import copy
import pickle

import numpy as np
import pytest
import sklearn

import randkern as rk
from _tensors import dispatch, tensor, torch
from randkern.solvers import PCG

RIDGE = [
    {"n_components": 60, "solver": "cholesky"},
    {"n_components": 301, "solver": "cholesky"},
    {"n_components": None, "solver": "cholesky"},
    {"n_components": 60, "solver": PCG()},
    {"n_components": None, "solver": PCG(rank=15)},
]
MODELS = [
    *(rk.KernelRidgeRegressor(**options, random_state=0) for options in RIDGE),
    *(rk.KernelRidgeClassifier(**options, random_state=0) for options in RIDGE),
    rk.KernelRidgeRegressorCV(n_components=20, random_state=0),
    rk.KernelRidgeClassifierCV(n_components=None, random_state=0),
    rk.KernelRidgeClassifierCV(n_components=20, cv=2, random_state=0),
    rk.GaussianProcessRegressor(n_components=20, random_state=0),
    rk.GaussianProcessRegressor(n_components=None, optimizer=None),
    rk.GaussianProcessClassifier(n_components=20, random_state=0),
    rk.KernelSVC(n_components=20, random_state=0),
    rk.KernelSVC(n_components=None),
    rk.KernelLogistic(n_components=20, random_state=0),
    rk.KernelLogistic(n_components=None),
]
ESTIMATORS = [rk.RandomFeatures(n_components=20, random_state=0), *MODELS]
pytestmark = pytest.mark.slow


def name(estimator):
    return type(estimator).__name__


@pytest.fixture
def data(rng):
    X = rng.normal(size=(120, 3))
    return X, (np.sin(X[:, 0]) + 0.3 * rng.normal(size=120) > 0).astype(float)


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_predictions_are_made_where_the_model_is(model, data):
    X, y = data
    model = sklearn.clone(model).fit(X, y)
    with dispatch():
        with pytest.raises(
            ValueError,
            match="X is a tensor on cpu, but the model was fitted on a NumPy array",
        ):
            model.predict(tensor(X))
        model.fit(tensor(X), tensor(y))
        with pytest.raises(ValueError, match="fitted on a tensor on cpu"):
            model.predict(X)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.predict(tensor(X)), model.predict(tensor(X)))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
@pytest.mark.parametrize("dtype", ["float32"])
def test_scikit_learn_finds_the_array_api_respected(estimator, dtype):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    checks.check_array_api_input(
        name(estimator), copy.deepcopy(estimator), "torch", "cpu", dtype
    )
