"""`RandomFeatures` as a transformer: containers, tables, pipelines, bad input."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler

import randkern as rk
from randkern.exceptions import FeatureErrorWarning

RNG = np.random.default_rng(31)
X = RNG.normal(size=(40, 4))


def features(kernel=None, n_components=20, **options):
    return rk.RandomFeatures(kernel, n_components, **({"random_state": 0} | options))


# -- the features --------------------------------------------------------------


def test_no_kernel_is_a_gaussian_of_the_scale():
    transformer = features(None).fit(X)
    assert transformer.kernel is None
    assert transformer.kernel_.lengthscale == pytest.approx(np.sqrt(4 * X.var() / 2))
    expected = features(transformer.kernel_).fit_transform(X)
    np.testing.assert_array_equal(transformer.transform(X), expected)


def test_the_seed():
    for seed in (np.random.RandomState(3), np.random.default_rng(3)):
        one = features(random_state=seed).fit_transform(X)
        other = features(random_state=seed).fit_transform(X)
        assert np.abs(one - other).max() > 0.1
    fresh = [features(random_state=None).fit_transform(X) for _ in range(2)]
    assert np.abs(fresh[0] - fresh[1]).max() > 0.1
    # The features of one seed do not depend on the rows of `fit`.
    fixed = rk.Gaussian(2.0)
    np.testing.assert_array_equal(
        features(fixed).fit(X[:3]).transform(X), features(fixed).fit_transform(X)
    )


# -- input ---------------------------------------------------------------------


@pytest.mark.slow
def test_wide_sparse_rows_are_not_densified():
    rows = sp.random_array((50, 200_000), density=1e-4, rng=RNG, format="csr")
    for projection in ("streamed", "structured"):
        transformer = features(rk.Gaussian(3.0), 16, projection=projection)
        part = rows[:, :2_000]
        Z = transformer.fit_transform(part)
        np.testing.assert_allclose(Z, transformer.transform(part.toarray()), atol=1e-12)
        assert features(rk.Gaussian(3.0), 4, projection=projection).fit_transform(
            rows
        ).shape == (50, 4)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kernel": "rbf"}, "kernel"),
        ({"n_components": 0}, "n_components"),
        ({"projection": "sorf"}, "projection"),
        ({"fourier": "cos"}, "fourier"),
        ({"centered": 1}, "centered"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_wrong_arguments(options, name):
    with pytest.raises(ValueError, match=name):
        features(**options).fit(X)


@pytest.mark.parametrize(
    ("kernel", "n_components", "message"),
    [
        (rk.Gaussian() + rk.Linear() + rk.Optical(), 2, "fewer than the 3 terms"),
        (
            (rk.Gaussian() + rk.Linear()) * rk.Sum(rk.Cauchy(), rk.Linear()),
            3,
            "4 terms",
        ),
        (rk.Linear(), 5, "exactly 4 features.*use at most 4"),
        (rk.Gaussian([1.0, 2.0]), 10, "2 entries, but .* reads 4 columns"),
        (rk.Gaussian(columns=[7]), 10, "column 7, but the input has 4"),
        (rk.Gaussian("max"), 10, "'scale', 'median'"),
    ],
)
def test_kernels_that_do_not_fit(kernel, n_components, message):
    with pytest.raises(ValueError, match=message):
        features(kernel, n_components).fit(X)


def test_huge_rows_are_an_error_or_right():
    for kernel in (rk.Optical(2), rk.Linear(), rk.Gaussian() + rk.Optical(3)):
        with pytest.raises(ValueError, match="scale the input down"):
            features(kernel, 4).fit(X * 1e200)
    # The lengthscale grows with the rows: the features are the same.
    scaled = features(rk.Gaussian("scale"))
    np.testing.assert_allclose(
        scaled.fit_transform(X * 1e200), scaled.fit_transform(X), atol=1e-12
    )


def test_rows_whose_squares_leave_the_range_are_refused():
    """Also where k(x, x) = ‖x‖·Γ(1.5) is an ordinary number."""
    for scale, dtype in ((1e25, np.float32), (1e-25, np.float32), (1e200, np.float64)):
        advice = "up" if scale < 1 else "down"
        with pytest.raises(ValueError, match=f"scale the input {advice}"):
            features(rk.Optical(0.5)).fit_transform((X * scale).astype(dtype))


# -- pipelines -----------------------------------------------------------------


def test_the_kernel_is_not_changed_by_fit():
    kernel = rk.Gaussian("scale") * rk.Categorical(columns=[3])
    rows = np.hstack([X[:, :3], RNG.integers(3, size=(40, 1))])
    transformer = features(kernel).fit(rows)
    assert transformer.kernel is kernel
    assert kernel.k1.lengthscale == "scale"
    assert kernel.k2.categories == "auto"
    assert isinstance(transformer.kernel_.k1.lengthscale, float)


# -- features that hardly distinguish rows ------------------------------------------


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
