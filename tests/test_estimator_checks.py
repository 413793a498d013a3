"""scikit-learn's own checks of every estimator, and what else it expects of a fit."""

import pytest
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

import randkern as rk
from randkern import optics, skeletons

EXACT = {"n_components": None}
ESTIMATORS = [
    *(rk.KernelRidgeRegressor(), rk.KernelRidgeClassifierCV()),
    *(rk.KernelLogistic(), rk.KernelSVC(), rk.KernelSVR()),
    *(rk.KernelQuantileRegressor(), rk.LocalRegressor(), rk.LocalClassifier()),
    rk.NystromFeatures(n_components=20, random_state=0),
    *(skeletons.PixelsToAngles(), skeletons.TableToBases()),
    *(optics.ThresholdBinarizer(), optics.ThermometerEncoder()),
    *(optics.BitPlaneEncoder(), rk.GaussianProcessRegressor(optimizer=None)),
]
OTHER_SETTINGS = [
    *(rk.KernelRidgeRegressor(**EXACT), rk.KernelRidgeClassifier(**EXACT)),
    rk.KernelRidgeRegressorCV(cv="gcv", **EXACT),
    *(rk.KernelSVC(**EXACT), rk.KernelSVR(**EXACT)),
    rk.KernelQuantileRegressor(quantiles=0.5, **EXACT),
    rk.LocalRegressor(LinearRegression(), cell_rows=10),
    rk.LocalClassifier(GaussianNB(), cell_rows=1000),
    rk.RandomFeatures(rk.Laplacian("median"), 7, fourier="offset", random_state=0),
    rk.RandomFeatures(rk.Optical(1, 1.0), 30, centered=True, random_state=0),
    rk.RandomFeatures(rk.Gaussian() * rk.Matern(0.7), 11, projection="qmc"),
    rk.RandomFeatures(rk.Compositional(), 20),
    optics.ThresholdBinarizer(threshold="median"),
    optics.ThermometerEncoder(n_levels=2, strategy="uniform", per_column=False),
]
# They learn hyperparameters in every fit.
LEARNING = [rk.GaussianProcessRegressor(), rk.GaussianProcessClassifier()]
# Many fits each, of which only how the rows are held differs from other checks: those
# need not learn hyperparameters again.
HOLDING_ROWS = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}


@parametrize_with_checks([rk.KernelRidgeClassifier(), rk.RandomFeatures()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks_of_the_others(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks(OTHER_SETTINGS)
def test_scikit_learns_checks_of_other_settings(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks(LEARNING)
def test_scikit_learns_checks_while_it_learns(estimator, check):
    if check.func.__name__ in HOLDING_ROWS or check.keywords.get("readonly_memmap"):
        estimator.set_params(optimizer=None)
    check(estimator)


CLASSIFIERS = [rk.KernelSVC, rk.KernelLogistic, rk.GaussianProcessClassifier]
EVERY_CLASSIFIER = pytest.mark.parametrize(
    "cls", CLASSIFIERS, ids=lambda cls: cls.__name__
)


@EVERY_CLASSIFIER
def test_another_fit_keeps_nothing_of_the_last_one(cls, rng):
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] + X[:, 1] ** 2 > 1).astype(int) + (X[:, 2] > 1)
    model = cls(n_components=None).fit(X, y)
    assert hasattr(model, "X_fit_")
    model.set_params(n_components=20).fit(X, y)
    assert not hasattr(model, "X_fit_") and not hasattr(model, "dual_coef_")
