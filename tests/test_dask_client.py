"""What reaches the process that fits to a Dask collection, however large that is."""

import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import randkern as rk
from randkern.exceptions import MemoryLimitError
from randkern.solvers import PCG

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

WIDTH, ROWS = 40, 500
PART = 8 * WIDTH * ROWS
SUMMED = {
    "features": rk.RandomFeatures(n_components=30),
    "ridge": rk.KernelRidgeRegressor(n_components=30),
    "labels": rk.KernelRidgeClassifier(n_components=30, class_weight="balanced"),
    "pcg": rk.KernelRidgeRegressor(n_components=30, solver=PCG(max_iter=3, tol=1e-2)),
    "process": rk.GaussianProcessRegressor(n_components=30, optimizer=None),
    "logistic": rk.KernelLogistic(n_components=30, max_iter=5),
    "classes": rk.GaussianProcessClassifier(n_components=30, optimizer=None),
    "counts": rk.GaussianProcessRegressor(
        n_components=30, optimizer=None, likelihood="poisson"
    ),
}
STREAMED = {"svc": rk.KernelSVC(n_components=30, max_iter=3)}
ALIKE = ["features", "process", "logistic", "classes", "counts"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def made(number):
    """Return rows of a partition; what a worker reads."""
    X = np.random.default_rng(number).normal(size=(ROWS, WIDTH))
    return np.hstack([X, (X[:, :1] > 0.3).astype(float)])


def collection(n_parts):
    parts = [
        da.from_delayed(dask.delayed(made)(i), (ROWS, WIDTH + 1), float)
        for i in range(n_parts)
    ]
    both = da.concatenate(parts)
    return both[:, :WIDTH], both[:, WIDTH]


def gathered(n_parts):
    X, y = (np.asarray(each) for each in zip(*map(parted, range(n_parts)), strict=True))
    return X.reshape(-1, WIDTH), y.ravel()


def parted(number):
    both = made(number)
    return both[:, :WIDTH], both[:, WIDTH]


@pytest.fixture
def received(monkeypatch):
    """A scheduler that counts the bytes of every result that it hands out."""
    monkeypatch.setattr("randkern._memory._WORKERS_SHARE", 0.0)
    monkeypatch.setattr("randkern.data.sample._SAMPLE_BYTES", PART // 4)
    monkeypatch.setattr("randkern.data.sample._MIN_SAMPLE", 100)
    monkeypatch.setattr("randkern.models.left_out.MAX_LEFT_OUT", 100)
    monkeypatch.setattr("randkern.models._gp_rows._SAMPLE_BYTES", PART // 4)
    monkeypatch.setattr("randkern.models._gp_rows._MIN_ROWS", 100)
    sizes = []

    def get(graph, keys, **options):
        results = dask.get(graph, keys, **options)
        sizes.append(len(pickle.dumps(results)))
        return results

    with dask.config.set(scheduler=get):
        yield sizes


def bytes_received(model, n_parts, received):
    received.clear()
    clone(model).set_params(random_state=0).fit(*collection(n_parts))
    return np.array(received)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMMED)
def test_sums_alone_reach_the_client(name, received):
    few, many = (bytes_received(SUMMED[name], n, received) for n in (4, 16))
    assert len(few) > 0
    # A sample of the rows, sums over features, and a few numbers per partition.
    assert many.max() <= few.max() + 12 * 2000
    assert many.max() < PART // 2
    assert many.sum() <= 1.2 * few.sum() + 12 * 4000


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMED)
def test_streams_bring_one_partition_at_a_time(name, received):
    few, many = (bytes_received(STREAMED[name], n, received) for n in (3, 9))
    assert many.max() <= few.max() + 1000 < 1.1 * PART
    assert len(many) >= 9


@pytest.mark.slow
def test_the_client_does_not_grow(monkeypatch):
    """Beside its weights it holds sums and a sample, whatever there is."""
    monkeypatch.setattr("randkern.data.sample._SAMPLE_BYTES", PART // 4)
    monkeypatch.setattr("randkern._memory._WORKERS_SHARE", 0.0)
    model = rk.KernelLogistic(
        n_components=30, max_iter=1, memory_limit="1MB", random_state=0
    )
    peaks = []
    with dask.config.set(scheduler="synchronous"):
        clone(model).fit(*collection(2))
        for n_parts in (12, 24):
            X, y = collection(n_parts)
            tracemalloc.start()
            clone(model).fit(X, y)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    # The workers are this process here, with the partitions that they look at.
    assert peaks[1] - peaks[0] < 5 * PART, "12 partitions more"


# The same models as of arrays.


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STREAMED, *ALIKE])
def test_the_model_of_arrays(name):
    model = clone((STREAMED | SUMMED)[name]).set_params(random_state=0)
    X, y = gathered(3)
    expected = clone(model).fit(X, y)
    distant, labels = collection(3)
    with dask.config.set(scheduler="synchronous"):
        if name == "features":
            found = clone(model).fit(distant)
            assert found.kernel_.lengthscale == pytest.approx(
                expected.kernel_.lengthscale, rel=1e-12
            )
            np.testing.assert_allclose(found.transform(X), expected.transform(X))
            return
        found = clone(model).fit(distant, labels)
        for method in ("predict", "decision_function", "predict_proba"):
            if not hasattr(model, method):
                continue
            lazily = getattr(found, method)(distant)
            assert isinstance(lazily, da.Array)
            local = getattr(expected, method)(X)
            assert lazily.shape == local.shape
            assert lazily.dtype == local.dtype
            np.testing.assert_allclose(lazily.compute(), local, atol=2e-3)
        if is_classifier(model):
            agreeing = (found.predict(distant).compute() == expected.predict(X)).mean()
            assert agreeing > 0.995
    assert found.n_features_in_ == WIDTH


def test_weights_and_frames():
    X, y = gathered(2)
    weight = np.linspace(0, 2, len(X))
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(y=y, weight=weight)
    table = dd.from_pandas(frame, npartitions=3)
    rows = frame[list("abc")]
    features, process = (
        clone(model).set_params(random_state=0)
        for model in (SUMMED["features"], SUMMED["process"])
    )
    columns = table[list("abc")]
    with dask.config.set(scheduler="synchronous"):
        found = clone(features).fit(columns, sample_weight=table["weight"])
        expected = clone(features).fit(rows, sample_weight=weight)
        np.testing.assert_allclose(found.transform(rows), expected.transform(rows))
        assert found.feature_names_in_.tolist() == list("abc")
        found = clone(process).fit(columns, table["y"], table["weight"])
        expected = clone(process).fit(rows, y, weight)
        np.testing.assert_allclose(found.predict(rows), expected.predict(rows), 1e-6)
        assert found.feature_names_in_.tolist() == list("abc")


# Refusals, before anything is gathered.


def test_too_many_rows_for_the_limit(received, monkeypatch):
    def gather(rows):
        raise AssertionError("the targets of all rows were read")

    monkeypatch.setattr("randkern.data.training_data.TrainingData.targets", gather)
    X = da.zeros((200_000, 2), chunks=(20_000, 2))
    y = da.arange(200_000, chunks=20_000) % 2
    model = rk.KernelSVC(n_components=10, memory_limit="5MB", random_state=0)
    with pytest.raises(MemoryLimitError, match="200000 rows to 10 features"):
        model.fit(X, y)
    with pytest.raises(MemoryLimitError, match="200000 rows to 10 features"):
        model.fit(np.zeros((200_000, 2)), np.arange(200_000) % 2)
    assert max(received) < 1.1 * 20_000 * 3 * 8, "a partition at a time"


@pytest.mark.parametrize("name", [*STREAMED, "process", "logistic"])
def test_the_exact_kernel(name):
    model = clone((STREAMED | SUMMED)[name]).set_params(n_components=None)
    with pytest.raises(ValueError, match="all rows in memory.*or pass an array"):
        model.fit(*collection(2))


def test_what_reads_no_collections():
    X, _ = collection(2)
    process = clone(SUMMED["process"]).fit(*gathered(1))
    with pytest.raises(ValueError, match="return_cov=True needs rows in memory"):
        process.predict(X, return_cov=True)
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(9.0)}), npartitions=2)
    readers = (
        process.sample_y,
        rk.Gaussian(1.0),
        rk.skeletons.TableToBases().fit,
        rk.TabularEncoder().fit,
        lambda rows: rk.KernelRidgeRegressor().partial_fit(rows, np.ones(9)),
    )
    for reader in readers:
        for rows in (X, frame):
            with pytest.raises(TypeError, match=r"X is a Dask .*; pass X.compute\(\)"):
                reader(rows)
