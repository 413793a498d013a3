"""What the ridge models say to input that they cannot take.

Every message names what was wrong, shows what was got, or says what to try.
"""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import randkern as rk
from randkern.exceptions import UnresolvedKernelError

MODELS = [rk.KernelRidgeRegressor, rk.KernelRidgeClassifier]
EVERY_MODEL = pytest.mark.parametrize("cls", MODELS, ids=["regressor", "classifier"])
SYSTEMS = pytest.mark.parametrize(
    "n_components", [20, 130, None], ids=["primal", "dual", "exact"]
)


def with_entry(value: float) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[4, 1] = value
    return X


GOOD = with_entry(0.0)
LABELS = np.arange(30) % 2
BAD_ROWS = {
    "NaN": (with_entry(np.nan), "X contains NaN"),
    "inf": (with_entry(np.inf), "X contains infinity"),
    "1-D": (GOOD[:, 0], "Reshape your data"),
    "3-D": (GOOD[:, :, None], "dim 3"),
    "no row": (GOOD[:0], "0 sample"),
    "no column": (GOOD[:, :0], "0 feature"),
    "complex": (GOOD + 1j, "[Cc]omplex"),
    "text": (np.full((30, 3), "a"), "could not convert|dtype"),
}


@EVERY_MODEL
@SYSTEMS
@pytest.mark.parametrize(("X", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(cls, n_components, X, message):
    model = cls(n_components=n_components)
    with pytest.raises(ValueError, match=message):
        model.fit(X, LABELS[: len(X)])
    model.fit(GOOD, LABELS)
    with pytest.raises(ValueError, match=message if "column" not in message else ""):
        model.predict(X)


@EVERY_MODEL
@SYSTEMS
def test_wrong_width(cls, n_components):
    model = cls(n_components=n_components).fit(GOOD, LABELS)
    with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 3"):
        model.predict(GOOD[:, :2])


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(LABELS, np.nan, 1.0), "y contains NaN"),
        (np.where(LABELS, np.inf, 1.0), "y contains infinity"),
        (LABELS[:7], "inconsistent numbers of samples"),
        (np.full(30, "a"), "y holds texts.*could not convert.*Classifier"),
        (np.ones((30, 2, 2)), "dim 3"),
        (None, "requires y"),
    ],
    ids=["NaN", "inf", "short", "text", "3-D", "None"],
)
def test_bad_targets(method, y, message):
    model = rk.KernelRidgeRegressor(n_components=10)
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(GOOD, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(30), "1 class"),
        (np.linspace(0, 1, 30), "Unknown label type"),
        (np.where(LABELS, np.nan, 1.0), "NaN"),
        (LABELS[:7], "inconsistent numbers of samples"),
        (np.column_stack([LABELS, LABELS]), "1d array"),
        (None, "requires y"),
    ],
    ids=["one class", "continuous", "NaN", "short", "2-D", "None"],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_bad_labels(y, message):
    with pytest.raises(ValueError, match=message):
        rk.KernelRidgeClassifier(n_components=10).fit(GOOD, y)


@EVERY_MODEL
@SYSTEMS
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(30), "[Nn]egative"),
        (np.zeros(30), "zero"),
        (np.full(30, np.nan), "sample_weight contains NaN"),
        (np.full(30, np.inf), "sample_weight contains infinity"),
        (np.ones(7), "sample_weight"),
        (np.ones((30, 2)), "[Ss]ample.weights"),
    ],
    ids=["negative", "all zero", "NaN", "inf", "short", "2-D"],
)
def test_bad_weights(cls, n_components, weights, message):
    with pytest.raises(ValueError, match=message):
        cls(n_components=n_components).fit(GOOD, LABELS, sample_weight=weights)


@pytest.mark.parametrize(
    "class_weight",
    [
        *(
            {0: -1.0, 1: 1.0},
            {0: np.nan, 1: 1.0},
            {0: 0.0, 1: 0.0},
            {0: np.inf, 1: 1.0},
        ),
        *("even", 3.0),
    ],
    ids=str,
)
def test_bad_class_weights(class_weight):
    model = rk.KernelRidgeClassifier(n_components=10, class_weight=class_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="class_weight|sample_weight|[Ww]eights"):
            model.fit(GOOD, LABELS)


BAD_PARAMETERS = {
    "alpha": [-1.0, np.nan, np.inf, "1", None],
    "n_components": [0, -3, 2.5, "all"],
    "solver": ["lbfgs", None],
    "projection": ["circulant", None],
    "fit_intercept": ["yes", None],
    "random_state": ["seed", -1, 1.5],
}


@EVERY_MODEL
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_PARAMETERS.items() for value in values],
)
def test_bad_parameters(cls, name, value):
    """The message names the parameter and shows what was got."""
    with pytest.raises(ValueError, match=name) as caught:
        cls(**{name: value}).fit(GOOD, LABELS)
    assert repr(value) in str(caught.value)


@EVERY_MODEL
@SYSTEMS
@pytest.mark.parametrize(
    "kernel",
    ["rbf", rk.Gaussian, 3.0, lambda x, y: 0.0],
    ids=["str", "class", "3", "f"],
)
def test_not_a_kernel(cls, n_components, kernel):
    """The message shows how a kernel is written."""
    with pytest.raises((TypeError, ValueError), match=r"kernel must be .*Gaussian\("):
        cls(kernel, n_components=n_components).fit(GOOD, LABELS)


@EVERY_MODEL
@SYSTEMS
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (rk.Gaussian(-1.0), "lengthscale must be a positive"),
        (rk.Gaussian([1.0, 2.0]), "2 entries, but .* reads 3 columns"),
        (rk.Gaussian("auto"), "lengthscale must be"),
        (rk.Gaussian(columns=[7]), "reads column 7, but the input has 3"),
        (rk.Optical(degree=0), "degree must be a positive"),
        (rk.Optical(bias=-1.0), "bias must be a non-negative"),
        (rk.Matern(nu=0), "nu must be a positive"),
        (rk.RationalQuadratic(alpha=-1), "alpha must be a positive"),
        (rk.Scaled(rk.Gaussian(), -2.0), "scale must be a positive"),
        (rk.Sum(rk.Gaussian(), "linear"), "k2 of Sum must be a kernel, got 'linear'"),
    ],
    ids=str,
)
def test_bad_kernels(cls, n_components, kernel, message):
    with pytest.raises(ValueError, match=message):
        cls(kernel, n_components=n_components).fit(GOOD, LABELS)


def test_kernels_and_features_that_do_not_fit():
    model = rk.KernelRidgeRegressor(rk.Linear(), n_components=9)
    with pytest.raises(ValueError, match=r"exactly 3 features.*use at most 3"):
        model.fit(GOOD, LABELS)
    model = rk.KernelRidgeRegressor(rk.Gaussian() + rk.Linear(), n_components=1)
    with pytest.raises(ValueError, match=r"fewer than the 2 terms.*use at least 2"):
        model.fit(GOOD, LABELS)
    model = rk.KernelRidgeRegressor(rk.Laplacian(), projection="orthogonal")
    with pytest.raises(ValueError, match=r"Laplacian.*cauchy.*projection='dense'"):
        model.fit(GOOD, LABELS)
    with pytest.raises(UnresolvedKernelError):
        rk.Gaussian("scale")(GOOD)


@EVERY_MODEL
def test_not_fitted(cls):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        cls().predict(GOOD)


@EVERY_MODEL
def test_a_failed_fit_keeps_the_previous_model(cls):
    """After an error the old weights are those of the old features."""
    model = cls(rk.Gaussian(2.0), n_components=10, random_state=0).fit(GOOD, LABELS)
    before = model.predict(GOOD)
    with pytest.raises(MemoryError):
        model.set_params(n_components=20, memory_limit=10).fit(GOOD + 1, LABELS)
    np.testing.assert_array_equal(model.predict(GOOD), before)


@SYSTEMS
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_predictions_are_finite_or_an_error(n_components):
    """Rows beyond the range of the kernel that `fit` did not see."""
    model = rk.KernelRidgeRegressor(rk.Optical(2), n_components=n_components)
    model.fit(GOOD, LABELS)
    with pytest.raises(ValueError, match="[Ss]cale"):
        model.predict(GOOD * 1e200)


def test_column_names_that_repeat():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(GOOD, columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="'a'"):
        rk.KernelRidgeRegressor(n_components=10).fit(frame, LABELS)


def test_kinds_of_targets():
    """Series, frames and lists are fine; the messages above are for the rest."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    model = rk.KernelRidgeRegressor(n_components=10, random_state=0)
    expected = model.fit(GOOD, LABELS).predict(GOOD)
    frame = pd.DataFrame({"y": LABELS})
    for y in (LABELS.tolist(), LABELS > 0, frame["y"], pl.Series(LABELS)):
        np.testing.assert_array_equal(model.fit(GOOD, y).predict(GOOD), expected)
    two_dimensional = model.fit(GOOD, frame).predict(GOOD)
    np.testing.assert_array_equal(two_dimensional, expected[:, None])
    names = np.array(["no", "yes"])[LABELS]
    classifier = rk.KernelRidgeClassifier(n_components=10, random_state=0)
    predicted = classifier.fit(GOOD, names).predict(GOOD)
    for y in (list(names), pd.Series(names), pd.Categorical(names), pl.Series(names)):
        np.testing.assert_array_equal(classifier.fit(GOOD, y).predict(GOOD), predicted)
