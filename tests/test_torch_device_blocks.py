"""Blocks of tensors, and rows moved to a device, give what arrays give."""

import copy
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import randkern as rk
from _tensors import DEVICES, dispatch, host, no_host_copies, tensor, torch
from randkern.exceptions import MemoryLimitError
from randkern.solvers import PCG

N = 230
CUTS = (0, 1, 101, 104, 224, N)
SOLVERS = {
    "cholesky": {"solver": "cholesky"},
    "pcg": {"solver": PCG(tol=1e-9)},
    "pcg-short": {"solver": PCG(tol=1e-9, rank=5), "memory_limit": "200kB"},
}
each_device = pytest.mark.parametrize("device", DEVICES)
pytestmark = [
    pytest.mark.slow,
    # Of what PyTorch says of arrays that are only read.
    pytest.mark.filterwarnings("error:The given NumPy array"),
]


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N, 5))
    y = np.column_stack([np.sin(X[:, 0]) + 100, X[:, 1] * X[:, 2]])
    weight = rng.uniform(size=N) * (rng.uniform(size=N) > 0.2)
    weight[1:101] = 0  # a block without weight
    return X, y, weight


def blocks(*arrays):
    """Return arrays, or tensors, as a stream of uneven blocks."""
    return rk.RowBlocks(
        [
            tuple(array[start:stop] for array in arrays if array is not None)
            for start, stop in itertools.pairwise(CUTS)
        ]
    )


def moved(*arrays, device="cpu"):
    return tuple(None if each is None else tensor(each, device) for each in arrays)


def regressor(solver="cholesky", **parameters):
    parameters = {"alpha": 0.5, "n_components": 60} | SOLVERS[solver] | parameters
    return rk.KernelRidgeRegressor(
        rk.Gaussian("scale") + rk.Linear(), random_state=0, **parameters
    )


def labels_of(y, kind):
    codes = np.digitize(y[:, 1], [-0.5, 0.5])
    if kind == "text":
        return np.array(["a", "b", "c"])[codes]
    return codes > 0 if kind == "booleans" else codes * 2


def assert_close(got, expected, tolerance=1e-6):
    got = host(got) if torch.is_tensor(got) else got
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


# -- blocks of tensors ---------------------------------------------------------------


def loader(*arrays, **options):
    data = torch.utils.data
    return data.DataLoader(data.TensorDataset(*map(tensor, arrays)), 50, **options)


def test_loaders_without_an_order_are_refused(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="shuffle=False"):
        rk.RowBlocks(loader(X, y, shuffle=True))
    sampler = torch.utils.data.RandomSampler(range(len(X)))
    batches = torch.utils.data.BatchSampler(sampler, 7, drop_last=False)
    with pytest.raises(ValueError, match="shuffle=False"):
        rk.RowBlocks(torch.utils.data.DataLoader(X, batch_sampler=batches))
    with pytest.raises(TypeError, match=r"DeviceBlocks\(RowBlocks\(blocks\)"):
        rk.DeviceBlocks(loader(X, y))


def test_a_data_loader_of_labels_that_are_text(table):
    X, y, _ = table
    labels = labels_of(y, "text")
    pairs = list(zip(tensor(X), labels.tolist(), strict=True))
    rows = rk.RowBlocks(torch.utils.data.DataLoader(pairs, batch_size=50))
    model = rk.KernelRidgeClassifier(n_components=50, random_state=0)
    expected = copy.deepcopy(model).fit(X, labels).predict(X).tolist()
    with dispatch():
        assert model.fit(rows).predict(rows).tolist() == expected
        assert model.score(rows) == np.mean(labels == expected)
    moved = rk.DeviceBlocks(rows, "cpu")
    assert model.fit(moved).predict(moved).tolist() == expected
    assert model.score(moved) == np.mean(labels == expected)


def test_bad_blocks(table):
    X, y, weight = table
    X, y = moved(X, y)
    fit = regressor().fit
    bad = X.clone()
    bad[150, 2] = torch.nan
    elsewhere = [(X[:9], y[:9]), (X[9:].to("meta"), y[9:])]
    mixed = [(X[:9], y[:9]), (host(X[9:]), y[9:])]
    targets = [(X[:9], y[:9]), (X[9:], host(y[9:]))]
    widths = [(X[:9], y[:9]), (X[9:, :3], y[9:])]
    negative = -tensor(weight)
    with dispatch():
        with pytest.raises(ValueError, match="block 3, from row 104 on: .*NaN"):
            fit(blocks(bad, y))
        with pytest.raises(ValueError, match="block 1.* on meta, but .* a tensor on c"):
            fit(rk.RowBlocks(elsewhere))
        with pytest.raises(ValueError, match="X is a NumPy array, but in the first"):
            fit(rk.RowBlocks(mixed))
        with pytest.raises(ValueError, match="y is a NumPy array, but in the first"):
            fit(rk.RowBlocks(targets))
        with pytest.raises(ValueError, match="block 1, from row 9 on: .*3 features"):
            fit(rk.RowBlocks(widths))
        with pytest.raises(ValueError, match=r"block .*[Nn]egative"):
            fit(blocks(X, y, negative))
        with pytest.raises(ValueError, match="every sample_weight is zero"):
            fit(blocks(X, y, 0 * negative))
        with pytest.raises(ValueError, match="no rows"):
            fit(rk.RowBlocks([(X[:0], y[:0])]))
        with pytest.raises(ValueError, match="y and sample_weight must be None"):
            fit(blocks(X, y), y)
        model = fit(rk.RowBlocks([(X[:0], y[:0]), (X, y)]))
        with pytest.raises(
            ValueError, match="X is a .*, but the model was fitted on a tensor on cpu"
        ):
            model.predict(rk.RowBlocks([host(X)]))
    with pytest.raises(TypeError, match=r"SCIPY_ARRAY_API=1.*array_api_dispatch=True"):
        fit(rk.RowBlocks([(X.to("meta"), y)]))


# -- rows moved to a device ----------------------------------------------------------


@each_device
def test_a_file_of_rows(device, tmp_path, table):
    X, y, _ = table
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = regressor(alpha=5.0).fit(np.array(mapped), y)
    stream = rk.RowBlocks.from_arrays(mapped, y, block_rows=60)
    for rows, given in ((mapped, (y,)), (stream, ())):
        moved = rk.DeviceBlocks(rows, device)
        model = regressor(alpha=5.0).fit(moved, *given)
        assert_close(model.coef_, expected.coef_, 1e-3)
        assert_close(model.predict(moved), expected.predict(mapped), 1e-4)


def test_dataframes_that_are_moved(table, rng):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["kind"] = rng.choice(["x", "y", "z"], N)
    kernel = rk.Gaussian(columns=["a", "b"]) + rk.Categorical(columns=["kind"])
    model = rk.KernelRidgeRegressor(kernel, n_components=60, random_state=0)
    expected = copy.deepcopy(model).fit(frame, y)
    rows = rk.DeviceBlocks(frame, "cpu")
    assert_close(model.fit(rows, y).predict(rows), expected.predict(frame))


def test_what_is_not_moved(table):
    X, y, _ = table
    fit, sparse = regressor().fit, sp.csr_array(X)
    with pytest.raises(ValueError, match=r"device='gpu:0' cannot be used .*'cpu'"):
        fit(rk.DeviceBlocks(X, "gpu:0"), y)
    with pytest.raises(ValueError, match="device='cuda:99' cannot be used"):
        fit(rk.DeviceBlocks(X, "cuda:99"), y)
    with pytest.raises(ValueError, match="sparse rows cannot be moved"):
        fit(rk.DeviceBlocks(sparse, "cpu"), y)
    with pytest.raises(ValueError, match="sparse rows cannot be moved"):
        fit(X, y).predict(rk.DeviceBlocks(sparse, "cpu"))
    rows = rk.DeviceBlocks(X, "cpu")
    with pytest.raises(ValueError, match="requires y"):
        fit(rows)
    with pytest.raises(ValueError, match="200"):
        fit(rows, y[:200])
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        fit(rk.DeviceBlocks(blocks(X, y), "cpu"), y)
    with pytest.raises(ValueError, match="set n_components"):
        rk.KernelRidgeRegressor(n_components=None).fit(rows, y)
    with pytest.raises(MemoryLimitError):
        regressor(memory_limit=1000).fit(rows, y)
    with pytest.raises(ValueError, match="all rows in memory, got DeviceBlocks"):
        rk.KernelRidgeRegressorCV().fit(rows, y)
    for method in (rk.RandomFeatures().fit, fit(X, y).partial_fit):
        with pytest.raises((TypeError, ValueError), match="DeviceBlocks"):
            method(rows, y)
    with pytest.raises(TypeError, match="already have a device"):
        rk.DeviceBlocks(rk.DeviceBlocks(X, "cpu"))
    with pytest.raises(TypeError, match="got list"):
        rk.DeviceBlocks([1, 2])
    exact = rk.KernelRidgeRegressor(n_components=None).fit(X, y)
    with pytest.raises(ValueError, match="fitted on a NumPy array"):
        exact.predict(rows)


def test_how_it_is_shown(table):
    rows = rk.DeviceBlocks(table[0], device="cpu")
    assert repr(rows) == "DeviceBlocks(ndarray, device='cpu')"
    rows = rk.DeviceBlocks(blocks(*table), torch.device("cpu"))
    assert repr(rows) == "DeviceBlocks(RowBlocks(rows not counted yet), device='cpu')"


# -- on Dask -------------------------------------------------------------------------


@pytest.fixture
def da():
    return pytest.importorskip("dask.array")


@pytest.mark.slow
@each_device
def test_only_sums_cross_the_network(device, table, da, monkeypatch):
    import dask

    X, y, weight = table
    rows = rk.DeviceBlocks(da.from_array(X, chunks=(90, -1)), device)
    with dask.config.set(scheduler="synchronous"):
        # Sums, those of targets too.
        with no_host_copies(monkeypatch, most=18 * 60):
            regressor("pcg").fit(rows, y, weight)


@pytest.mark.parametrize("kind", ["text", "integers"])
def test_a_model_on_a_device_predicts_partitions(kind, table, da):
    """It goes to the workers by way of the host."""
    X, y, _ = table
    labels = labels_of(y, kind)
    model = rk.KernelRidgeClassifier(n_components=50, random_state=0)
    expected = copy.deepcopy(model).fit(X, labels)
    given = labels if kind == "text" else tensor(labels, DEVICES[-1])
    with dispatch():
        model.fit(tensor(X, DEVICES[-1]), given)
    rows = rk.DeviceBlocks(da.from_array(X, chunks=(90, -1)), "cpu")
    assert model.predict(rows).dtype == labels.dtype
    assert model.predict(rows).compute().tolist() == expected.predict(X).tolist()


def test_bad_partitions(table, da):
    X, y, _ = table
    distant, fit = da.from_array(X, chunks=(100, -1)), regressor().fit
    with pytest.raises(ValueError, match=r"partition \d of X: device='cuda:99' cannot"):
        fit(rk.DeviceBlocks(distant, "cuda:99"), y)
    sparse = distant.map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0)))
    with pytest.raises(ValueError, match=r"partition \d of X: sparse rows"):
        fit(rk.DeviceBlocks(sparse, "cpu"), da.from_array(y, chunks=(100, -1)))
    rows = rk.DeviceBlocks(distant, "cpu")
    X[150, 1] = np.nan
    bad = rk.DeviceBlocks(da.from_array(X, chunks=(100, -1)), "cpu")
    with pytest.raises(ValueError, match=r"partition 1 .*NaN"):
        fit(bad, y)
    with pytest.raises(TypeError, match="DeviceBlocks"):
        rk.RandomFeatures(random_state=0).fit(X[:9]).transform(rows)
