"""A matrix of kernel values in place of rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

import randkern as rk

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(80, 3)), RNG.normal(size=(20, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
LABELS = np.digitize(Y, [-0.7, 0.7])
KERNEL = rk.Gaussian(1.5)
K, K_NEW = KERNEL(X), KERNEL(X_NEW, X)
MODELS = [
    rk.KernelRidgeRegressor(alpha=0.1, fit_intercept=True),
    rk.KernelRidgeRegressor(alpha=0.1, solver="pcg", random_state=0),
    rk.KernelRidgeClassifier(alpha=0.1),
    rk.KernelRidgeRegressorCV(fit_intercept=True),
    rk.KernelRidgeClassifierCV(),
    rk.KernelSVC(C=3.0),
    rk.KernelSVC(C=3.0, fit_intercept=False),
    rk.KernelSVR(C=3.0),
    rk.KernelQuantileRegressor(alpha=0.1),
    rk.KernelLogistic(C=3.0, tol=1e-10),
    rk.GaussianProcessRegressor(noise=0.1, optimizer=None),
]


def name_of(model):
    return type(model).__name__


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_matrix_gives_what_its_kernel_gives(model, tmp_path):
    y = LABELS if hasattr(model, "classes_") or "Class" in name_of(model) else Y
    if isinstance(model, (rk.KernelSVC, rk.KernelLogistic)):
        y = LABELS
    weight = RNG.uniform(0.5, 2.0, size=80)
    expected = clone(model).set_params(kernel=KERNEL, n_components=None)
    expected.fit(X, y, sample_weight=weight)
    found = clone(model).set_params(kernel=rk.Precomputed(), n_components=None)
    found.fit(K, y, sample_weight=weight)
    method = "decision_function" if hasattr(model, "decision_function") else "predict"
    values = getattr(found, method)(K_NEW)
    np.testing.assert_allclose(
        values, getattr(expected, method)(X_NEW), rtol=1e-10, atol=1e-10
    )
    rk.save(found, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(getattr(loaded, method)(K_NEW), values)


def test_scikit_learn_agrees():
    ridge = rk.KernelRidgeRegressor(rk.Precomputed(), 0.1, None).fit(K, Y)
    expected = KernelRidge(alpha=0.1, kernel="precomputed").fit(K, Y).predict(K_NEW)
    np.testing.assert_allclose(ridge.predict(K_NEW), expected, rtol=1e-8)
    machine = rk.KernelSVC(rk.Precomputed(), 3.0, None, tol=1e-8).fit(K, Y > 0)
    expected = SVC(C=3.0, kernel="precomputed", tol=1e-8).fit(K, Y > 0)
    np.testing.assert_allclose(
        machine.decision_function(K_NEW), expected.decision_function(K_NEW), atol=1e-5
    )


def test_cross_validation_takes_rows_and_columns():
    found = cross_val_score(rk.KernelRidgeRegressor(rk.Precomputed(), 0.1, None), K, Y)
    expected = cross_val_score(rk.KernelRidgeRegressor(KERNEL, 0.1, None), X, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_multiples_and_sums_are_such_kernels():
    kernel = 2.0 * rk.Precomputed() + rk.Precomputed()
    found = rk.KernelRidgeRegressor(kernel, 0.3, None).fit(K, Y).predict(K_NEW)
    expected = rk.KernelRidgeRegressor(KERNEL, 0.1, None).fit(X, Y).predict(X_NEW)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_errors_say_what_is_expected():
    exact = rk.KernelRidgeRegressor(rk.Precomputed(), 0.1, None)
    with pytest.raises(ValueError, match=r"n_samples\) .* got shape \(80, 3\)"):
        exact.fit(X, Y)
    with pytest.raises(ValueError, match="3 features, but .* expecting 80"):
        exact.fit(K, Y).predict(X_NEW)
    for features in ("random", "nystrom"):
        with pytest.raises(ValueError, match="n_components=None"):
            rk.KernelRidgeRegressor(
                rk.Precomputed(), n_components=10, features=features
            ).fit(K, Y)
    with pytest.raises(ValueError, match="n_components=None"):
        rk.RandomFeatures(rk.Precomputed()).fit(K)
    with pytest.raises(ValueError, match="cannot be combined"):
        clone(exact).set_params(kernel=rk.Precomputed() + KERNEL).fit(K, Y)
    process = rk.GaussianProcessRegressor(rk.Precomputed(), n_components=None)
    with pytest.raises(ValueError, match="optimizer=None"):
        process.fit(K, Y)
    process.set_params(optimizer=None).fit(K, Y)
    with pytest.raises(ValueError, match=r"k\(x, x\) of new rows"):
        process.predict(K_NEW, return_std=True)
