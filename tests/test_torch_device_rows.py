"""Rows in parts on several devices give what they give in one piece."""

import copy

import numpy as np
import pytest

import randkern as rk
from _tensors import dispatch, host, no_host_copies, tensor, torch
from randkern._random import Stream
from randkern.data import sample
from randkern.data.sharded import DeviceShards, sampled_shards
from randkern.data.training_data import ArrayRows
from randkern.exceptions import MemoryLimitError
from randkern.models.feature_matrix import FeatureMatrix
from randkern.solvers import PCG

pytestmark = pytest.mark.slow

# Where there are several GPUs, parts lie there.
DEVICES = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
SOLVERS = {
    "cholesky": {"solver": "cholesky"},
    "pcg": {"solver": PCG(tol=1e-10)},
    "pcg-short": {"solver": PCG(tol=1e-10), "memory_limit": "3MB"},
    "float32": {"solver": "cholesky", "alpha": 10.0},
}


def devices(n):
    return [DEVICES[i % len(DEVICES)] for i in range(n)]


@pytest.fixture
def table(rng):
    X = rng.normal(size=(400, 5))
    y = np.column_stack([np.sin(X[:, 0]) + 100, X[:, 1] * X[:, 2]])
    return X, y, rng.uniform(size=400) * (rng.uniform(size=400) > 0.2)


def parts(X, cuts=(37, 250)):
    return rk.DeviceRows(
        part.to(device)
        for part, device in zip(
            torch.tensor_split(X, cuts), devices(len(cuts) + 1), strict=True
        )
    )


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_those_of_one_piece(name, fit_intercept, weighted, table):
    X, y, weight = table
    X = X.astype("float32" if name == "float32" else "float64")
    weight = weight if weighted else None
    model = rk.KernelRidgeRegressor(
        rk.Gaussian("median") + rk.Linear(),
        n_components=80,
        fit_intercept=fit_intercept,
        random_state=0,
        **{"alpha": 0.5} | SOLVERS[name],
    )
    with dispatch():
        whole, expected = tensor(X, DEVICES[0]), copy.deepcopy(model)
        weights = None if weight is None else tensor(weight, DEVICES[0])
        expected.fit(whole, tensor(y, DEVICES[0]), weights)
        # Targets and weights may lie elsewhere.
        weights = None if weight is None else tensor(weight)
        model.fit(parts(tensor(X)), tensor(y), weights)
        assert model.coef_.device == torch.device(DEVICES[0])
        apart = (model.coef_ - expected.coef_).abs().max()
        assert float(apart) <= 1e-5 * float(expected.coef_.abs().max())
        again = copy.deepcopy(model).fit(parts(tensor(X)), tensor(y), weights)
        assert torch.equal(again.coef_, model.coef_)
        values = expected.predict(whole)
        torch.testing.assert_close(model.predict(whole), values, rtol=1e-5, atol=1e-4)
        got = model.predict(parts(tensor(X), (100,)))
        torch.testing.assert_close(got, model.predict(whole), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_classifier(class_weight, table):
    X, y, _ = table
    labels = np.digitize(y[:, 1], [-0.5, 0.5])
    model = rk.KernelRidgeClassifier(
        n_components=50, class_weight=class_weight, random_state=0
    )
    expected = copy.deepcopy(model).fit(X, labels)
    with dispatch():
        given = parts(tensor(X))
        model.fit(given, tensor(labels, DEVICES[0]))
        assert host(model.predict(given)).tolist() == expected.predict(X).tolist()
        score = model.score(given, tensor(labels, DEVICES[0]))
    assert score == pytest.approx(expected.score(X, labels), rel=1e-5)


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
def test_no_rows_are_copied_to_the_host(solver, table, monkeypatch):
    X, y, weight = (tensor(array) for array in table)
    model = rk.KernelRidgeRegressor(
        n_components=60, solver=solver, fit_intercept=True, random_state=0
    )
    with dispatch(), no_host_copies(monkeypatch, most=18):
        model.fit(parts(X), y.to(DEVICES[0]), weight.to(DEVICES[0]))
        model.predict(parts(X))


def test_gaussian_process(table):
    X, y, weight = (tensor(array) for array in table)
    model = rk.GaussianProcessRegressor(
        rk.Gaussian(2.0), n_components=60, optimizer=None, random_state=0
    )
    with dispatch():
        whole = copy.deepcopy(model).fit(X, y, weight)
        model.fit(parts(X), y, weight)
        torch.testing.assert_close(model.coef_, whole.coef_.to(DEVICES[0]))
        assert model.theta_.tolist() == whole.theta_.tolist()
        evidence = model.log_marginal_likelihood_value_
        assert evidence == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-9)
        got, expected = model.predict(parts(X, (100,))), whole.predict(X)
    torch.testing.assert_close(got, expected.to(DEVICES[0]))


@pytest.mark.parametrize("multi_class", ["one_vs_rest", "softmax"])
def test_gaussian_process_classifier(multi_class, table):
    X, y, weight = (tensor(array) for array in table)
    labels = (y[:, 1] > -0.5).int() + (y[:, 1] > 0.5).int()
    model = rk.GaussianProcessClassifier(
        rk.Gaussian(2.0),
        n_components=60,
        optimizer=None,
        multi_class=multi_class,
        random_state=0,
    )
    with dispatch():
        expected = copy.deepcopy(model).fit(X, labels, weight).predict_proba(X)
        model.fit(parts(X), labels, weight)
        got = model.predict_proba(X.to(DEVICES[0]))
        of_parts = model.predict_proba(parts(X, (100,)))
    torch.testing.assert_close(got, expected.to(DEVICES[0]), rtol=0, atol=1e-5)
    torch.testing.assert_close(of_parts, got)


def test_a_sample_of_many_rows(table, monkeypatch):
    monkeypatch.setattr(sample, "_MIN_SAMPLE", 100)
    monkeypatch.setattr(sample, "_SAMPLE_BYTES", 0)
    X, y, weight = (tensor(array) for array in table)
    model = rk.KernelRidgeRegressor(rk.Gaussian("scale"), n_components=40)
    with dispatch():
        model.set_params(random_state=0).fit(parts(X), y, weight)
        assert float(model.predict(X.to(DEVICES[0])).std()) > 0
    scale = float(model.kernel_.lengthscale)
    whole = rk.Gaussian("scale")
    with dispatch():
        features = rk.RandomFeatures(whole, 10).fit(X)
    assert scale == pytest.approx(features.kernel_.lengthscale, rel=0.1)
    assert scale != features.kernel_.lengthscale


def test_an_exact_model_predicts_parts(table):
    X, y, _ = (tensor(array) for array in table)
    model = rk.KernelRidgeRegressor(n_components=None)
    with dispatch():
        model.fit(X.to(DEVICES[0]), y.to(DEVICES[0]))
        got, expected = model.predict(parts(X)), model.predict(X.to(DEVICES[0]))
    torch.testing.assert_close(got, expected)


def test_splitting():
    X = torch.arange(14.0).reshape(7, 2)
    rows = rk.DeviceRows.split(X, ["cpu", "cpu", "cpu"])
    assert [len(part) for part in rows.parts] == [2, 2, 3]
    assert torch.equal(torch.cat(rows.parts), X)
    assert rows.shape == (7, 2) and len(rows) == 7 and rows.dtype == X.dtype
    assert repr(rows) == "DeviceRows(7 rows: 2 on cpu, 2 on cpu, 3 on cpu)"
    with pytest.raises(ValueError, match="cannot split 7 rows between 8 devices"):
        rk.DeviceRows.split(X, ["cpu"] * 8)
    with pytest.raises(TypeError, match="from_numpy"):
        rk.DeviceRows.split(X.numpy(), ["cpu"])


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        ([], ValueError, "needs at least one tensor"),
        ([np.ones((2, 2))], TypeError, "part 0 of DeviceRows is a ndarray"),
        ([torch.ones(2)], ValueError, r"shape \(2,\)"),
        ([torch.ones(2, 2), torch.ones(0, 2)], ValueError, "at least one row"),
        ([torch.ones(2, 2), torch.ones(2, 3)], ValueError, "3 columns, the first has"),
        ([torch.ones(2, 2), torch.ones(2, 2).double()], TypeError, "convert them"),
    ],
    ids=str,
)
def test_bad_parts(bad, error, match):
    with pytest.raises(error, match=match):
        rk.DeviceRows(bad)


def test_what_takes_no_parts(table):
    X, y, _ = (tensor(array) for array in table)
    rows, fit = parts(X), rk.KernelRidgeRegressor
    with pytest.raises(TypeError, match="DeviceRows cannot be converted"):
        rk.RandomFeatures().fit(rows)
    with pytest.raises(TypeError, match="array_api_dispatch=True"):
        fit().fit(rows, y)
    with dispatch():
        with pytest.raises(ValueError, match="exact kernel"):
            fit(n_components=None).fit(rows, y)
        with pytest.raises(ValueError, match="all rows in one process"):
            fit(solver=PCG(validation_fraction=0.1)).fit(rows, y)
        with pytest.raises(ValueError, match="inconsistent"):
            fit().fit(rows, y[:-1])
        with pytest.raises(ValueError, match="requires y"):
            fit().fit(rows)
        with pytest.raises(MemoryLimitError):
            fit(solver="cholesky", memory_limit=1000).fit(rows, y)
        with pytest.raises(ValueError, match="all rows in memory"):
            rk.KernelRidgeRegressorCV().fit(rows, y)
        with pytest.raises(TypeError, match="DeviceRows is not a supported array type"):
            rk.RandomFeatures().fit(rows)
        bad = X.clone()
        bad[300, 2] = torch.nan
        with pytest.raises(ValueError, match="NaN"):
            fit().fit(parts(bad), y)
        model = fit(random_state=0).fit(rows, y)
        with pytest.raises(ValueError, match="features"):
            model.predict(parts(X[:, :3]))


def test_shards_of_a_device_share_what_features_may_take():
    places = ("cpu", "cpu", "meta", "cpu")
    rows = DeviceShards(
        [ArrayRows(torch.ones(2, 3, device=at), torch.ones(2, 1)) for at in places]
    )
    assert rows.cache_share(900) == 300


def test_samples_of_shards_have_their_weights():
    X, weight = torch.arange(12.0).reshape(6, 2), torch.arange(6.0)
    rows = DeviceShards(
        [
            ArrayRows(X[part], torch.ones(3, 1), weight[part])
            for part in (slice(0, 3), slice(3, 6))
        ]
    )
    plan = rk.RandomFeatures(n_components=8).fit(X.numpy()).plan_
    features = FeatureMatrix(rows, plan)
    _, weights = features.sample(np.array([1, 3, 5]))
    assert weights.tolist() == [1.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("weight", "expected"), [(None, None), ([0, 0], None), ([0, 2], [0, 2])]
)
def test_a_sample_of_weight_0_has_no_weights(weight, expected):
    X = torch.ones(2, 3)
    weight = None if weight is None else torch.tensor(weight)
    rows = DeviceShards([ArrayRows(X, torch.ones(2, 1), weight)])
    sampled, weights = sampled_shards(rows, Stream(0))
    assert torch.equal(sampled, X)
    assert (None if weights is None else weights.tolist()) == expected
