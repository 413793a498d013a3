"""What holds for every estimator that is given tensors."""

import copy

import pytest

import randkern as rk
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


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
@pytest.mark.parametrize("dtype", ["float32"])
def test_scikit_learn_finds_the_array_api_respected(estimator, dtype):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    checks.check_array_api_input(
        name(estimator), copy.deepcopy(estimator), "torch", "cpu", dtype
    )
