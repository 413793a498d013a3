"""Ridge on Dask collections gives what it gives on arrays, whatever happens."""

import importlib.util
import os
import signal
import threading
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import randkern as rk
from randkern.exceptions import MemoryLimitError
from randkern.solvers import PCG, Outcome

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.slow

N, WIDTH = 240, 5
KERNEL = rk.Gaussian(2.0)


@contextmanager
def workers(n=2):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            # Workers need no dispatch of scikit-learn, also where they have devices.
            env={"SCIPY_ARRAY_API": "0"},
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    with workers(1) as client:
        yield client


@pytest.fixture
def mortal():
    """A cluster of one test's own, which may lose a worker."""
    with workers() as client:
        yield client


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N, WIDTH))
    y = np.column_stack([np.sin(X[:, 0]) + 3, X[:, 1] * X[:, 2]])
    return X, y + 0.1 * rng.normal(size=y.shape)


def regressor(solver="cholesky", **parameters):
    parameters = {"alpha": 1.0, "n_components": 60} | parameters
    return rk.KernelRidgeRegressor(
        parameters.pop("kernel", KERNEL), solver=solver, random_state=0, **parameters
    )


def coefficients(model):
    return np.column_stack(
        [np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]
    )


def assert_alike(distant, local, tolerance=1e-5):
    expected = coefficients(local)
    difference = np.abs(coefficients(distant) - expected).max()
    assert difference <= tolerance * np.abs(expected).max()


@pytest.mark.slow
def test_chunks_of_unknown_size(client, table):
    X, y = table
    positive = X[:, 0] > 0
    distant, targets = (
        da.from_array(X, chunks=(70, -1)),
        da.from_array(y, chunks=(70, -1)),
    )
    keep = distant[:, 0] > 0
    model = regressor().fit(distant[keep], targets[keep])
    assert_alike(model, regressor().fit(X[positive], y[positive]))
    predictions = model.predict(distant[keep]).compute()
    np.testing.assert_allclose(predictions, model.predict(X[positive]))


@pytest.mark.slow
def test_partitions_without_rows(client, table):
    X, y = table
    keep = np.arange(N) < 100  # leaves nothing of the last two chunks
    distant, targets = (
        da.from_array(X, chunks=(80, -1)),
        da.from_array(y, chunks=(80, -1)),
    )
    kept = da.from_array(keep, chunks=80)
    model = regressor().fit(distant[kept], targets[kept])
    assert_alike(model, regressor().fit(X[keep], y[keep]))
    predictions = model.predict(distant[kept]).compute()
    np.testing.assert_allclose(predictions, model.predict(X[keep]))
    rows = pd.DataFrame(X[np.argsort(X[:, 0])], columns=list("abcde"))
    frame = dd.from_pandas(rows, npartitions=3)
    features = rk.RandomFeatures(KERNEL, 20, random_state=0).fit(frame)
    Z = features.transform(frame[frame["a"] < -1]).compute()
    np.testing.assert_allclose(Z, features.transform(rows[rows["a"] < -1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lazy_features_have_the_dtype_that_they_announce(dtype, rng):
    X = rng.normal(size=(20, 3)).astype(dtype)
    features = rk.RandomFeatures(n_components=8, random_state=0).fit(X)
    lazy = features.transform(da.from_array(X, chunks=(10, -1)))
    assert lazy.dtype == lazy.compute(scheduler="synchronous").dtype == dtype


@pytest.mark.slow
def test_a_callback_stays_here(client, table):
    X, y = table
    lock, seen = threading.Lock(), []  # a lock cannot be sent anywhere

    def callback(progress):
        with lock:
            seen.append(progress.iteration)
        return len(seen) == 2

    model = regressor(PCG(callback=callback)).fit(da.from_array(X, chunks=(70, -1)), y)
    assert model.solution_.outcome is Outcome.STOPPED
    assert seen == [1, 2]
    predictions = model.predict(da.from_array(X, chunks=(70, -1)))
    np.testing.assert_allclose(predictions.compute(), model.predict(X))


# Errors.


@pytest.mark.slow
def test_a_bad_number_is_located(client, table):
    X, y = table
    X[150, 2] = np.nan
    with pytest.raises(ValueError, match=r"partition 2 .*NaN"):
        regressor().fit(da.from_array(X, chunks=(60, -1)), y)


@pytest.mark.slow
def test_arguments_that_do_not_fit(client, table):
    X, y = table
    distant = da.from_array(X, chunks=(60, -1))
    with pytest.raises(ValueError, match="requires y"):
        regressor().fit(distant)
    with pytest.raises(ValueError, match="240 rows, but y or sample_weight has 200"):
        regressor().fit(distant, da.from_array(y[:200], chunks=(60, -1)))
    with pytest.raises(ValueError, match="n_components"):
        regressor(n_components=None).fit(distant, y)
    with pytest.raises(MemoryLimitError, match="n_components="):
        regressor(n_components=5000, memory_limit="50MB").fit(distant, y)
    with pytest.raises(ValueError, match="every sample_weight is zero"):
        regressor().fit(distant, y, np.zeros(N))
    with pytest.raises(ValueError, match="features"):
        regressor().fit(X, y).predict(distant[:, :3]).compute()


@pytest.mark.parametrize("ndim", [1, 3])
def test_arrays_of_other_dimensions(ndim, table):
    X, y = table
    shape = {1: (len(X) * X.shape[1],), 3: (*X.shape, 1)}[ndim]
    rows = da.from_array(X.reshape(shape))
    with pytest.raises(ValueError, match="Expected 2D array, got a Dask array of"):
        regressor().fit(rows, da.from_array(y))
    with pytest.raises(ValueError, match="Expected 2D array, got a Dask array of"):
        regressor().fit(X, y).predict(rows)


# A worker that dies.


class Killer:
    """Kills a worker once, in the middle of a fit, and sees what follows."""

    def __init__(self, client):
        self.client = client
        self.killed = None
        self.seen = []

    def __call__(self, progress):
        self.seen.append(progress.iteration)
        if progress.iteration == 3:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            self.killed = self.client.run(os.getpid)[next(iter(workers))]
            os.kill(self.killed, signal.SIGKILL)
        return False


@pytest.mark.nightly
@pytest.mark.parametrize("kept", [0.25, 0.0], ids=["kept", "read again"])
def test_a_worker_killed_during_conjugate_gradients(mortal, kept, table, monkeypatch):
    monkeypatch.setattr("randkern._memory._WORKERS_SHARE", kept)
    X, y = table
    killer = Killer(mortal)
    local = regressor(PCG(tol=1e-9), fit_intercept=True).fit(X, y)
    model = regressor(PCG(tol=1e-9, callback=killer), fit_intercept=True)
    rows = da.from_array(X, chunks=(60, -1))
    if kept and importlib.util.find_spec("torch"):
        rows = rk.DeviceBlocks(rows, "cpu")  # where its copies are lost, too
    model.fit(rows, y)
    with pytest.raises(ProcessLookupError):
        os.kill(killer.killed, 0)
    # It was killed before the fourth product of many, and none began again.
    assert len(killer.seen) >= 8
    assert killer.seen == list(range(1, model.solution_.iterations + 1))
    assert model.solution_.iterations == local.solution_.iterations
    assert_alike(model, local)


def slowly(X):
    time.sleep(0.4)
    return X


@pytest.mark.nightly
def test_a_worker_killed_while_it_sums(mortal, table):
    """In a direct fit, which runs in another thread."""
    X, y = table
    distant = da.from_array(X, chunks=(40, -1)).map_blocks(slowly, dtype=X.dtype)
    model, failed = regressor(), []

    def fit():
        try:
            model.fit(distant, y)
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=fit)
    thread.start()
    time.sleep(0.6)
    victim = next(iter(mortal.run(os.getpid).values()))
    assert thread.is_alive()
    os.kill(victim, signal.SIGKILL)
    thread.join(timeout=600)
    assert not thread.is_alive()
    assert not failed
    assert_alike(model, regressor().fit(X, y))
