"""`n_components="auto"`: doubled as long as rows left out gain by it."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GroupKFold

import randkern as rk

MODELS = [
    rk.KernelRidgeRegressor(),
    rk.KernelRidgeClassifier(),
    rk.KernelRidgeRegressorCV(alphas=[0.1, 1.0]),
    rk.KernelRidgeClassifierCV(alphas=[0.1, 1.0]),
    rk.KernelSVC(),
    rk.KernelSVR(),
    rk.KernelLogistic(),
    rk.KernelQuantileRegressor(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_smooth_function_needs_the_first_number(model, rng):
    X = rng.normal(size=(120, 2))
    y = X[:, 0] > 0 if "Classifier" in repr(model) else np.sin(X[:, 0])
    if isinstance(model, (rk.KernelSVC, rk.KernelLogistic)):
        y = X[:, 0] > 0
    auto = clone(model).set_params(n_components="auto", random_state=0).fit(X, y)
    assert auto.n_components == "auto"
    assert auto.n_components_ == 1000
    assert list(auto.component_errors_) == [1000]
    same = clone(model).set_params(n_components=1000, random_state=0).fit(X, y)
    np.testing.assert_array_equal(auto.predict(X), same.predict(X))


@pytest.fixture(scope="module")
def clusters():
    return make_classification(
        8000,
        30,
        n_informative=15,
        n_clusters_per_class=8,
        class_sep=0.7,
        random_state=0,
    )


@pytest.mark.slow
def test_features_are_doubled_where_that_pays(clusters):
    """The number after the last is no better by a standard error, or over the rows."""
    X, y = clusters
    model = rk.KernelRidgeClassifier(n_components="auto", random_state=0).fit(X, y)
    assert model.n_components_ >= 2000
    assert model.coef_.shape[-1] == model.n_components_
    errors = list(model.component_errors_.values())
    assert errors[0] > errors[1]
    assert model.component_errors_.keys() == {1000 * 2**i for i in range(len(errors))}


@pytest.mark.slow
def test_memory_ends_the_doubling(clusters):
    X, y = clusters
    model = rk.KernelRidgeClassifier(
        n_components="auto", solver="cholesky", memory_limit="100MB", random_state=0
    ).fit(X, y)
    assert model.n_components_ == 1000


def test_rows_of_other_kinds(rng):
    X = rng.normal(size=(60, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(
        y=np.where(X[:, 0] > 0, "u", "v")
    )
    model = rk.KernelRidgeClassifier(n_components="auto", random_state=0)
    weight = rng.uniform(0.5, 1.5, 60)
    a = clone(model).fit(frame, target="y", sample_weight=weight)
    b = clone(model).fit(sp.csr_array(X), frame["y"], weight)
    assert a.n_components_ == b.n_components_ == 1000
    assert (a.predict(frame[list("abc")]) == b.predict(X)).mean() > 0.9


def test_what_cannot_be_found(rng):
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = rk.KernelRidgeRegressor(n_components="auto")
    with pytest.raises(ValueError, match=r"in memory.*RowBlocks"):
        model.fit(rk.RowBlocks.from_arrays(X, y, block_rows=20))
    with pytest.raises(ValueError, match="at least 10 rows, got 5"):
        model.fit(X[:5], y[:5])
    with pytest.raises(ValueError, match="n_components"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="n_components"):
        rk.KernelRidgeRegressor(n_components="automatic").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError):
        model.fit(X, y[:-1])
    assert model.n_components == "auto"


def test_the_search_takes_what_a_fit_takes(rng):
    """Rows, labels and options of the kinds that a number of features takes."""
    X = np.round(rng.normal(size=(60, 3)), 2)
    labels = np.where(X[:, 0] > 0, "a", "b")
    model = rk.KernelRidgeClassifier(n_components="auto", random_state=0)
    expected = clone(model).fit(X, labels)
    for rows, y in (
        (sp.coo_array(X), labels),
        (X, pd.DataFrame({"y": labels})),
        (X, labels.astype(object)),
        (X, labels.astype(np.dtypes.StringDType())),
        (X.tolist(), labels.tolist()),
    ):
        got = clone(model).fit(rows, y)
        assert got.component_errors_ == expected.component_errors_
    groups = np.arange(60) % 6
    chosen = rk.KernelRidgeRegressorCV(
        alphas=[0.1, 1.0], n_components="auto", cv=GroupKFold(3), random_state=0
    )
    with sklearn.config_context(enable_metadata_routing=True):
        chosen.fit(X, X[:, 0], groups=groups)
    assert chosen.n_components_ == 1000
    with pytest.raises(ValueError, match="list of splits"):
        splits = [(np.arange(30), np.arange(30, 60))]
        chosen.set_params(cv=splits).fit(X, X[:, 0])


@pytest.mark.nightly
def test_losses_are_those_of_the_model(clusters, rng):
    """Outliers do not hide a gain from SVR, nor most rows that of a rare class."""
    X, y = clusters
    y = y + 0.01 * rng.normal(size=len(y))
    y[:5] = 1e6
    model = rk.KernelSVR(C=1.0, n_components="auto", max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:4000], y[:4000])
    assert model.n_components_ > 1000
    quantiles = rk.KernelQuantileRegressor(
        quantiles=(0.2, 0.8), n_components="auto", random_state=0
    ).fit(X[:300], y[:300])
    assert quantiles.component_errors_[1000] > 0


def test_a_later_fit_forgets_what_was_found(rng):
    X = rng.normal(size=(60, 3))
    model = rk.KernelRidgeRegressor(n_components="auto", random_state=0)
    assert hasattr(model.fit(X, X[:, 0]), "n_components_")
    assert not hasattr(
        model.set_params(n_components=20).fit(X, X[:, 0]), "n_components_"
    )
    model.set_params(n_components="auto", features="nystrom").fit(X, X[:, 0])
    assert model.n_components_ == model.coef_.size == 60


@pytest.mark.nightly
def test_a_warm_start_is_not_from_another_number(clusters):
    X, y = clusters
    model = rk.KernelRidgeClassifier(
        n_components="auto", solver="pcg", warm_start=True, random_state=0
    ).fit(X, y)
    found = model.n_components_
    assert found > 1000
    assert model.fit(X, y).n_components_ == found
