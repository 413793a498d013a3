"""What reaches the process that fits to a Dask collection, however large that is."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

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


# The same models as of arrays.


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
