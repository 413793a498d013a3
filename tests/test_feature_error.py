"""The warning where random features cannot tell the values of a kernel apart."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler

import randkern as rk
from randkern.exceptions import FeatureErrorWarning


def texts(n=800, n_words=10_000, n_topics=20, seed=0):
    """Return TF-IDF rows of norm 1, and topics: some words of each are of its own."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_words + 1)
    topics = [rng.choice(n_words, 200, replace=False) for _ in range(n_topics)]
    y = rng.integers(n_topics, size=n)
    counts = np.zeros((n, n_words))
    for row, topic in zip(counts, y, strict=True):
        length = int(rng.lognormal(4.5, 0.6))
        common = rng.choice(n_words, length, p=frequency / frequency.sum())
        own = rng.choice(topics[topic], length // 8 + 1)
        np.add.at(row, np.concatenate([common, own]), 1)
    return sp.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts)), y


@pytest.mark.parametrize("kernel", [rk.Gaussian(1.0), None])
def test_texts(kernel):
    """Features do far worse than landmarks and the exact kernel, and say so."""
    X, y = texts()
    train, test = slice(0, 600), slice(600, None)
    scores = []
    for options in (
        {"n_components": 1000},
        {"n_components": 500, "features": "nystrom"},
        {"n_components": None},
    ):
        model = rk.KernelRidgeClassifier(kernel, 0.1, random_state=0, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FeatureErrorWarning)
            model.fit(X[train], y[train])
        assert len(caught) == (options == {"n_components": 1000})
        for warning in caught:
            assert warning.filename == __file__
            assert "features='nystrom'" in str(warning.message)
        scores.append(model.score(X[test], y[test]))
    assert scores[0] < scores[1] - 0.1
    assert scores[0] < scores[2] - 0.1


@pytest.mark.parametrize(
    "model",
    [
        rk.KernelRidgeRegressor(rk.Gaussian(1.0), random_state=0),
        rk.KernelRidgeRegressorCV(random_state=0),
        rk.KernelLogistic(rk.Gaussian(1.0), random_state=0, max_iter=3),
        rk.KernelSVC(rk.Gaussian(1.0), random_state=0, tol=0.1),
        rk.KernelSVR(rk.Gaussian(1.0), random_state=0),
        rk.GaussianProcessRegressor(
            rk.Gaussian(1.0), n_components=300, optimizer=None, random_state=0
        ),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_model_warns_once(model):
    X, y = texts(200)
    with pytest.warns(FeatureErrorWarning) as caught:
        model.fit(X.toarray(), y == 0)
    assert sum(w.category is FeatureErrorWarning for w in caught) == 1


def test_partial_fit_warns():
    X, y = texts(200)
    model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), random_state=0)
    with pytest.warns(FeatureErrorWarning):
        model.partial_fit(X, y)


@pytest.mark.parametrize("load", [load_digits, load_diabetes, load_breast_cancer])
def test_tables_are_silent(load):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureErrorWarning)
        rk.KernelRidgeRegressor(random_state=0).fit(X, y)
        rk.KernelRidgeRegressorCV(n_components=300, random_state=0).fit(X, y)


def test_the_kernel_that_is_chosen_counts():
    """A process that learns a longer lengthscale does not warn of its start."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 3))
    options = {"n_components": 200, "noise": 0.1, "random_state": 0}
    kernel = rk.Gaussian(0.05)
    with pytest.warns(FeatureErrorWarning):
        rk.KernelRidgeRegressor(kernel, 0.1, 200, random_state=0).fit(X, X.sum(1))
    process = rk.GaussianProcessRegressor(kernel, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureErrorWarning)
        process.fit(X, X.sum(1) + 0.1 * rng.normal(size=300))
    assert process.kernel_.lengthscale > 0.5


def test_weights_of_zero_and_more_components():
    """Rows of weight 0 do not count; enough components, or exact ones, are silent."""
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(200, 3)), 1e3 * rng.normal(size=(2000, 3))
    X = np.concatenate([near, far])
    weight = np.repeat([1.0, 0.0], [200, 2000])
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 1.0, 100, random_state=0)
    with pytest.warns(FeatureErrorWarning):
        model.fit(X, X[:, 0])
    wide = rng.normal(size=(300, 600))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureErrorWarning)
        model.fit(X, X[:, 0], weight)
        rk.KernelRidgeRegressor(rk.Linear(), 1.0, 600).fit(wide, wide[:, 0])
        rk.KernelRidgeRegressor(n_components=20_000, random_state=0).fit(
            wide, wide[:, 0]
        )
    with pytest.warns(FeatureErrorWarning):
        rk.KernelRidgeRegressor(random_state=0).fit(wide, wide[:, 0])


def test_features_stay_the_same():
    """The sample of rows takes no random numbers from the features."""
    X, y = texts(200)
    with pytest.warns(FeatureErrorWarning):
        model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), random_state=0).fit(X, y)
    Z = rk.RandomFeatures(rk.Gaussian(1.0), random_state=0).fit_transform(X)
    np.testing.assert_array_equal(rk.plan.evaluate(model.plan_, X), Z)
