"""Blocks of tensors, and rows moved to a device, give what arrays give."""

import copy
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import randkern as rk
from _tensors import DEVICES, dispatch, host, no_host_copies, tensor, torch
from randkern import _validation
from randkern.data import sample as _row_sample
from randkern.data.sample import RowSample
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
each_solver = pytest.mark.parametrize("solver", SOLVERS)
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


@pytest.fixture
def unconfigured(monkeypatch):
    """Let nothing ask whether scikit-learn dispatches: workers might say no."""

    def asked():
        raise AssertionError("tensors met scikit-learn")

    monkeypatch.setattr(_validation, "get_config", asked)


# -- blocks of tensors ---------------------------------------------------------------


@pytest.mark.nightly
@each_device
@each_solver
@pytest.mark.parametrize(
    ("fit_intercept", "weighted"), [(False, False), (True, False), (True, True)]
)
def test_regression_on_blocks(device, solver, fit_intercept, weighted, table):
    X, y, weight = table
    given = X, y, weight if weighted else None
    expected = regressor(solver, fit_intercept=fit_intercept).fit(blocks(*given))
    model = regressor(solver, fit_intercept=fit_intercept)
    rows = blocks(*moved(*given, device=device))
    with dispatch():
        model.fit(rows)
        predictions = model.predict(rows)
        score = model.score(rows)
    assert (
        predictions.device == model.coef_.device == torch.zeros(0, device=device).device
    )
    assert_close(model.coef_, expected.coef_)
    assert_close(predictions, expected.predict(X))
    assert score == pytest.approx(expected.score(blocks(*given)), rel=1e-4)


@pytest.mark.slow
@each_device
@pytest.mark.parametrize("kind", ["text", "booleans", "integers"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_classification_on_blocks(device, kind, class_weight, table):
    X, y, weight = table
    labels = labels_of(y, kind)
    model = rk.KernelRidgeClassifier(
        n_components=50, class_weight=class_weight, random_state=0
    )
    expected = copy.deepcopy(model).fit(blocks(X, labels, weight))
    given = labels if kind == "text" else tensor(labels, device)
    rows = blocks(tensor(X, device), given, tensor(weight, device))
    with dispatch():
        found = model.fit(rows).predict(rows)
        score = model.score(rows)
    assert_close(model.coef_, expected.coef_, 1e-9)
    if kind != "text":
        assert found.dtype == given.dtype and found.device == given.device
        found = host(found)
    assert found.tolist() == expected.predict(X).tolist()
    # scikit-learn takes the accuracy of tensors in float32.
    assert score == pytest.approx(expected.score(blocks(X, labels, weight)), rel=1e-6)


MODELS = {
    "svc": (rk.KernelSVC, {"tol": 1e-7}, "integers"),
    "logistic": (rk.KernelLogistic, {"tol": 1e-7}, "booleans"),
    "gp": (rk.GaussianProcessRegressor, {"optimizer": None}, "values"),
    "gpc": (rk.GaussianProcessClassifier, {"optimizer": None}, "booleans"),
}


def model_and_targets(name, y):
    """Return a model by its name, and targets that it takes."""
    if name in SOLVERS:
        return regressor(name), y
    if name == "labels":
        return rk.KernelRidgeClassifier(random_state=0), labels_of(y, "integers")
    kind, options, targets = MODELS[name]
    y = y if targets == "values" else labels_of(y, targets)
    return kind(n_components=40, random_state=0, **options), y


def values_of(model, X):
    """Return what a model says of rows, as NumPy arrays."""
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            found = (getattr(model, method)(X),)
            break
    else:
        found = model.predict(X, return_std=True)
    return [host(each) if torch.is_tensor(each) else each for each in found]


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", ["tensors", "moved"])
def test_other_models(name, where, table, request):
    X, y, weight = table
    model, y = model_and_targets(name, y)
    expected = copy.deepcopy(model).fit(blocks(X, y, weight))
    if where == "tensors":
        rows = blocks(*moved(X, y, weight))
        with dispatch():
            found = values_of(model.fit(rows), rows)
            assert torch.is_tensor(model.predict(rows))
    else:
        request.getfixturevalue("unconfigured")
        rows = rk.DeviceBlocks(blocks(X, y, weight), "cpu")
        found = values_of(model.fit(rows), rows)
        assert isinstance(model.predict(rows), np.ndarray)
    for got, right in zip(found, values_of(expected, X), strict=True):
        np.testing.assert_allclose(got, right, atol=2e-4)


each_model = pytest.mark.parametrize("name", ["cholesky", "pcg", "labels", *MODELS])


@pytest.mark.nightly
@each_device
@each_model
def test_no_rows_are_copied_to_the_host(device, name, table, monkeypatch):
    X, y, weight = table
    model, y = model_and_targets(name, y)
    rows = blocks(*moved(X, y, weight, device=device))
    with dispatch(), no_host_copies(monkeypatch, most=18):
        model.fit(rows)
        model.predict(rows)


def test_a_sample_is_that_of_arrays(monkeypatch, rng):
    monkeypatch.setattr(_row_sample, "_MIN_SAMPLE", 40)
    monkeypatch.setattr(_row_sample, "_SAMPLE_BYTES", 0)
    X, weight = rng.normal(size=(N, 3)), rng.uniform(size=N) - 0.3
    weight = weight.clip(0.0)
    found = []
    for make in (np.asarray, tensor):
        sample, generator = RowSample(), np.random.default_rng(1)
        for start, stop in itertools.pairwise(CUTS):
            sample.add(make(X[start:stop]), make(weight[start:stop]), generator)
        found.append([np.asarray(each) for each in sample.rows()])
    assert found[0][0].shape == (40, 3) and (found[0][1] > 0).all()
    for of_arrays, of_tensors in zip(*found, strict=True):
        assert np.array_equal(of_arrays, of_tensors)


def test_precisions(table):
    X, y, _ = table
    single = X.astype(np.float32)
    expected = regressor(alpha=5.0).fit(single, y)
    with dispatch():
        model = regressor(alpha=5.0).fit(blocks(*moved(single, y)))
        assert_close(model.coef_, expected.coef_, 1e-4)
        # Of two precisions the wider one.
        rows = [(tensor(single[:100]), tensor(y[:100]))]
        rows.append((tensor(single[100:].astype(float)), tensor(y[100:])))
        model = regressor(alpha=5.0).fit(rk.RowBlocks(rows))
    assert_close(model.coef_, regressor(alpha=5.0).fit(single.astype(float), y).coef_)


@pytest.mark.slow
def test_targets_of_extreme_size(table):
    X, y, _ = table
    expected = regressor("pcg").fit(blocks(X, y * 1e90))
    with dispatch():
        model = regressor("pcg").fit(blocks(*moved(X, y * 1e90)))
    assert_close(model.coef_ / 1e90, expected.coef_ / 1e90)


@pytest.mark.slow
def test_held_out_rows(table):
    X, y, _ = table
    solver = PCG(tol=1e-12, validation_fraction=0.2)
    expected = regressor(solver="cholesky").set_params(solver=solver)
    model = copy.deepcopy(expected)
    expected.fit(blocks(X, y))
    with dispatch():
        model.fit(blocks(*moved(X, y)))
    assert model.solution_.outcome is expected.solution_.outcome
    assert_close(model.coef_, expected.coef_, 1e-3)


@pytest.mark.slow
def test_one_buffer_for_all_blocks(table):
    X, y, _ = table

    def make():
        rows, targets = torch.empty(46, 5).double(), torch.empty(46, 2).double()
        for start in range(0, N, 46):
            rows[:], targets[:] = tensor(X[start:][:46]), tensor(y[start:][:46])
            yield rows, targets

    expected = regressor("pcg").fit(X, y)
    with dispatch():
        model = regressor("pcg").fit(rk.RowBlocks(make))
    assert_close(model.coef_, expected.coef_, 1e-5)


def loader(*arrays, **options):
    data = torch.utils.data
    return data.DataLoader(data.TensorDataset(*map(tensor, arrays)), 50, **options)


@pytest.mark.slow
def test_a_data_loader(table):
    X, y, weight = table
    expected = regressor("pcg").fit(X, y, weight)
    rows = rk.RowBlocks(loader(X, y, weight))
    with dispatch():
        assert_close(regressor("pcg").fit(rows).coef_, expected.coef_)
    # Without dispatch they are read as arrays; nothing asks where they are moved to.
    model = regressor("pcg").fit(rows)
    assert isinstance(model.coef_, np.ndarray)
    assert_close(model.coef_, expected.coef_)
    assert model.score(rows) == pytest.approx(expected.score(X, y, weight))
    model.fit(rk.DeviceBlocks(rows, "cpu"))
    assert_close(model.coef_, expected.coef_)
    score = model.score(rk.DeviceBlocks(rows, "cpu"))
    assert score == pytest.approx(expected.score(X, y, weight))
    with pytest.raises(ValueError, match="shuffle=False"):
        rk.RowBlocks(loader(X, y, shuffle=True))
    sampler = torch.utils.data.RandomSampler(range(len(X)))
    batches = torch.utils.data.BatchSampler(sampler, 7, drop_last=False)
    with pytest.raises(ValueError, match="shuffle=False"):
        rk.RowBlocks(torch.utils.data.DataLoader(X, batch_sampler=batches))
    with pytest.raises(TypeError, match=r"DeviceBlocks\(RowBlocks\(blocks\)"):
        rk.DeviceBlocks(loader(X, y))
    with pytest.raises(TypeError, match="block 0 is a list"):
        list(rk.RowBlocks([[[1.0, 2.0], [3.0, 4.0]]]))


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


def test_a_process_of_counts_predicts_partitions_on_a_device(table):
    da = pytest.importorskip("dask.array")
    X, y, _ = table
    counts = np.round(3 * np.abs(y.reshape(len(X), -1)[:, 0]))
    model = rk.GaussianProcessRegressor(
        *(rk.Gaussian(2.0), 1.0, 40),
        likelihood="poisson",
        optimizer=None,
        random_state=0,
    )
    expected = copy.deepcopy(model).fit(X, counts).predict(X)
    rows = rk.DeviceBlocks(da.from_array(X, chunks=(60, -1)), "cpu")
    model.fit(rows, da.from_array(counts, chunks=60))
    found = model.predict(rows)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


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


@pytest.mark.nightly
@each_device
@each_solver
@pytest.mark.parametrize("weighted", [False, True])
def test_arrays_that_are_moved(device, solver, weighted, table, unconfigured):
    X, y, weight = table
    weight = weight if weighted else None
    expected = regressor(solver, fit_intercept=True).fit(X, y, weight)
    X.flags.writeable = y.flags.writeable = False  # as those of a file
    rows = rk.DeviceBlocks(X, device)
    model = regressor(solver, fit_intercept=True).fit(rows, y, weight)
    assert model.coef_.device == torch.zeros(0, device=device).device
    assert_close(model.coef_, expected.coef_)
    predictions = model.predict(rows)
    assert isinstance(predictions, np.ndarray)
    assert_close(predictions, expected.predict(X))
    score = model.score(rows, y, sample_weight=weight)
    assert score == pytest.approx(expected.score(X, y, weight), rel=1e-4)
    # Weights follow rows, from wherever they are.
    assert_close(expected.predict(rows), expected.predict(X))


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


@pytest.mark.parametrize("kind", ["text", "integers"])
def test_labels_beside_rows_that_are_moved(kind, table, unconfigured):
    X, y, weight = table
    labels = labels_of(y, kind)
    model = rk.KernelRidgeClassifier(
        rk.Gaussian(2.0), n_components=50, class_weight="balanced", random_state=0
    )
    expected = copy.deepcopy(model).fit(X, labels, weight)
    rows = rk.DeviceBlocks(X, "cpu")
    model.fit(rows, labels, weight)
    assert model.predict(rows).tolist() == expected.predict(X).tolist()
    assert model.decision_function(rows).shape == (N, 3)
    assert model.score(rows, labels) == pytest.approx(expected.score(X, labels))


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


@pytest.mark.slow
@each_device
@each_model
def test_only_sums_come_back(device, name, table, monkeypatch):
    X, y, weight = table
    model, y = model_and_targets(name, y)
    rows = rk.DeviceBlocks(blocks(X, y, weight), device)
    with no_host_copies(monkeypatch, most=18):
        model.fit(rows)


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
@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
@pytest.mark.parametrize("weighted", [False, True])
def test_partitions_that_are_moved(device, solver, weighted, table, da, unconfigured):
    X, y, weight = table
    weight = weight if weighted else None
    expected = regressor(solver, fit_intercept=True).fit(X, y, weight)
    rows = rk.DeviceBlocks(da.from_array(X, chunks=((1, 100, 129), (2, 3))), device)
    model = regressor(solver, fit_intercept=True).fit(rows, y, weight)
    assert isinstance(model.coef_, np.ndarray)
    assert_close(model.coef_, expected.coef_)
    predictions = model.predict(rows)
    assert isinstance(predictions, da.Array) and predictions.shape == y.shape
    assert_close(predictions.compute(), expected.predict(X))
    score = model.score(rows, y, sample_weight=weight)
    assert score == pytest.approx(expected.score(X, y, weight), rel=1e-4)


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
def test_labels_of_partitions(kind, table, da, unconfigured):
    X, y, _ = table
    labels = labels_of(y, kind)
    model = rk.KernelRidgeClassifier(n_components=50, random_state=0)
    expected = copy.deepcopy(model).fit(X, labels)
    rows = rk.DeviceBlocks(da.from_array(X, chunks=(90, -1)), "cpu")
    for fitted in (model.fit(rows, da.from_array(labels, chunks=90)), expected):
        assert fitted.predict(rows).compute().tolist() == expected.predict(X).tolist()


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


def test_dataframes_of_dask(table):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y, _ = table
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["y"] = y[:, 1]
    distant = dd.from_pandas(frame, npartitions=3)
    rows = rk.DeviceBlocks(distant[list("abcde")], "cpu")
    expected = regressor().fit(frame[list("abcde")], y[:, 1])
    model = regressor().fit(rows, distant["y"])
    assert_close(model.coef_, expected.coef_)
    assert model.feature_names_in_.tolist() == list("abcde")
    found = np.asarray(model.predict(rows).compute())
    assert_close(found, expected.predict(frame[list("abcde")]))


def test_partitions_as_a_stream(table, da):
    """A model is fitted to partitions that are moved, and predicts them lazily."""
    X, y, _ = table
    rows = rk.DeviceBlocks(da.from_array(X, chunks=(100, -1)), "cpu")
    labels = y[:, 0] > np.median(y[:, 0])
    model = rk.KernelLogistic(n_components=40, random_state=0)
    expected = model.fit(X, labels).decision_function(X)
    model.fit(rows, labels)
    assert str(model.coef_.device) == "cpu"
    found = model.decision_function(rows)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(), expected, atol=1e-3)
    assert set(model.predict(rows).compute().tolist()) == {False, True}


def test_bad_partitions(table, da):
    X, y, _ = table
    distant, fit = da.from_array(X, chunks=(100, -1)), regressor().fit
    with pytest.raises(ValueError, match=r"partition \d of X: device='cuda:99' cannot"):
        fit(rk.DeviceBlocks(distant, "cuda:99"), y)
    sparse = distant.map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0)))
    with pytest.raises(ValueError, match=r"partition \d of X: sparse rows"):
        fit(rk.DeviceBlocks(sparse, "cpu"), da.from_array(y, chunks=(100, -1)))
    rows = rk.DeviceBlocks(distant, "cpu")
    with pytest.raises(ValueError, match="validation_fraction"):
        regressor().set_params(solver=PCG(validation_fraction=0.1)).fit(rows, y)
    X[150, 1] = np.nan
    bad = rk.DeviceBlocks(da.from_array(X, chunks=(100, -1)), "cpu")
    with pytest.raises(ValueError, match=r"partition 1 .*NaN"):
        fit(bad, y)
    with pytest.raises(TypeError, match="DeviceBlocks"):
        rk.RandomFeatures(random_state=0).fit(X[:9]).transform(rows)
