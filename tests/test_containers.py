"""Every model gives one answer, whatever its rows, targets and weights are held in.

Tensors, streams of blocks, files, collections of Dask, and rows that are moved to a
device: a model fitted to them answers as the same model fitted to arrays of NumPy. A
model joins by a line of `_models.py`, a container by a line of `CONTAINERS`.
"""

import copy
import importlib.util
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

import randkern as rk
from _models import MODELS, TABLE, Model, N, answers, arrays_of, assert_alike, host

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    from _tensors import DEVICES, no_host_copies, tensor, torch
else:
    DEVICES = ["cpu"]

#: Uneven blocks, one of a single row, one without rows, one without weight.
CUTS = (0, 1, 101, 104, 104, 224, N)
NAMES = list("abcde")


# -- containers ------------------------------------------------------------------------


def blocks(*arrays: Any) -> rk.RowBlocks:
    """Return arrays, tensors or tables as a stream of uneven blocks."""
    cuts = [slice(*pair) for pair in itertools.pairwise(CUTS)]
    return rk.RowBlocks([tuple(array[rows] for array in arrays) for rows in cuts])


def refilled(*arrays: Any) -> rk.RowBlocks:
    """Return a stream that fills the same arrays, or tensors, anew for each block."""

    def make():
        buffers = [copy.deepcopy(array[:46]) for array in arrays]
        for start in range(0, N, 46):
            for buffer, array in zip(buffers, arrays, strict=True):
                buffer[:] = array[start : start + 46]
            yield tuple(buffers)

    return rk.RowBlocks(make)


def loader(*arrays: np.ndarray) -> rk.RowBlocks:
    """Return a loader of PyTorch as a stream."""
    data = torch.utils.data
    return rk.RowBlocks(data.DataLoader(data.TensorDataset(*map(tensor, arrays)), 50))


def parts(array: np.ndarray, rows: int = 60) -> da.Array:
    return da.from_array(array, chunks=(rows, *array.shape[1:]))


def sparse_parts(X: np.ndarray) -> da.Array:
    return parts(X).map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0)))


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def distant_frame(X: np.ndarray) -> dd.DataFrame:
    return dd.from_pandas(frame(X), npartitions=3)


def _apart(rows: Callable, others: Callable = np.asarray) -> Callable:
    """Hold rows in one kind of container and targets and weights in another."""
    return lambda X, *targets: ((rows(X), *map(others, targets)), rows(X))


def _together(stream: Callable) -> Callable:
    """Hold rows, targets and weights in one stream."""
    return lambda *arrays: ((stream(*arrays),), stream(arrays[0]))


def _moved(make: Callable) -> Callable:
    """Move what `make` makes of rows to a device."""

    def made(X, *targets):
        fit, rows = make(X, *targets)
        moved = [rk.DeviceBlocks(each, DEVICES[-1]) for each in (fit[0], rows)]
        return (moved[0], *fit[1:]), moved[1]

    return made


def _as_tensors(make: Callable) -> Callable:
    return lambda *arrays: make(*(tensor(array, DEVICES[-1]) for array in arrays))


IN_MEMORY = {"tensors": _as_tensors(lambda X, *targets: ((X, *targets), X))}
STREAMS = {
    "blocks": _together(blocks),
    "blocks in one buffer": _together(refilled),
    "blocks of sparse rows": lambda X, *targets: (
        (blocks(sp.csr_array(X), *targets),),
        blocks(sp.csr_array(X)),
    ),
    "blocks of dataframes": lambda X, *targets: (
        (blocks(frame(X), *targets),),
        blocks(frame(X)),
    ),
    "dask": _apart(parts, lambda array: parts(array, 77)),
    "dask beside arrays": _apart(
        lambda X: da.from_array(X, chunks=((1, 100, 129), (2, 3)))
    ),
    "dask of sparse rows": _apart(sparse_parts),
    "dask dataframes": _apart(distant_frame, lambda array: parts(array, 77)),
}
ON_DEVICES = {
    "blocks of tensors": _as_tensors(_together(blocks)),
    "tensors in one buffer": _as_tensors(_together(refilled)),
    "loader": _together(loader),
    "moved array": _moved(_apart(np.asarray)),
    "moved dataframe": _moved(_apart(frame)),
    "moved blocks": _moved(_together(blocks)),
    "moved loader": _moved(_together(loader)),
    "moved dask": _moved(_apart(parts)),
    "moved dask dataframes": _moved(
        _apart(distant_frame, lambda array: parts(array, 77))
    ),
}
CONTAINERS = STREAMS | (IN_MEMORY | ON_DEVICES if HAS_TORCH else {})
OF_TENSORS = ("tensors", "blocks of tensors", "tensors in one buffer")


def context_of(container: str) -> Any:
    """Return the context in which rows are fitted: tensors need dispatch."""
    if container in OF_TENSORS:
        return sklearn.config_context(array_api_dispatch=True)
    return nullcontext()


def reads(case: Model, container: str) -> bool:
    """Tell whether a model takes rows of a container."""
    in_memory, on_host = container in IN_MEMORY, container in STREAMS
    return (case.streams or in_memory) and (case.tensors or on_host)


def each_case(often: Callable[[str, str], bool], *containers: str) -> Any:
    """Run a test for each model and the containers that it reads, most by night."""
    cases = []
    for name, case in MODELS.items():
        for container in containers:
            if container in CONTAINERS and reads(case, container):
                mark = "slow" if often(name, container) else "nightly"
                marks = getattr(pytest.mark, mark)
                cases.append(pytest.param(name, container, marks=marks))
    return pytest.mark.parametrize(("name", "container"), cases)


@pytest.fixture(autouse=True)
def in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


def answers_of(name: str, container: str, *arrays: np.ndarray) -> tuple[dict, dict]:
    """Return what a model says, fitted to a container and to arrays."""
    model = MODELS[name].model
    wanted = answers(clone(model).fit(*arrays), arrays, arrays[0])
    with context_of(container):
        fit, rows = CONTAINERS[container](*arrays)
        return answers(clone(model).fit(*fit), fit, rows), wanted


SIMPLE = ("ridge", "ridge, pcg", "ridge classifier", "process", "logistic")


def often(name: str, container: str) -> bool:
    """Run by day every container, and every kind of solver for those of their own."""
    own = ("tensors", "blocks", "dask", "blocks of tensors", "moved dask")
    usual = "ridge" if container in STREAMS else "logistic"
    return name == usual or (name in SIMPLE and container in own)


@each_case(often, *CONTAINERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("error:The given NumPy array")
def test_answers_are_those_of_arrays(name, container):
    case, (X, *others) = MODELS[name], arrays_of(name)
    X = np.where(X > 0.5, X, 0.0) if "sparse" in container else X
    found, wanted = answers_of(name, container, X, *others)
    if is_classifier(case.model):  # a row between two classes may be in either
        assert found.pop("score") == pytest.approx(wanted.pop("score"), abs=0.01)
    if case.sampled:
        P = found.pop("predict_proba")
        np.testing.assert_allclose(P, wanted.pop("predict_proba"), atol=0.05)
    assert_alike(found, wanted, case.tolerance)


@each_case(
    lambda name, container: name in ("ridge, pcg", "process", "logistic"),
    *("tensors", "blocks", "dask", "moved array"),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_answers_are_those_of_arrays_in_single_precision(name, container):
    case, (X, *others) = MODELS[name], arrays_of(name)
    found, wanted = answers_of(name, container, X.astype(np.float32), *others)
    if is_classifier(case.model):
        assert found.pop("score") == pytest.approx(wanted.pop("score"), abs=0.02)
        found.pop("predict_proba", None), wanted.pop("predict_proba", None)
    assert_alike(found, wanted, max(case.tolerance, 1e-3))


NIGHTLY = pytest.mark.nightly
LABELS = {
    "text": np.array(list("abcde"))[TABLE["labels"]],
    "objects": np.array(list("abcde"), dtype=object)[TABLE["labels"]],
    "booleans": TABLE["labels"] > 0,
    "small integers": TABLE["labels"].astype(np.int8),
}


@pytest.mark.parametrize(
    ("kind", "container"),
    [
        pytest.param(
            *(kind, container),
            marks=pytest.mark.slow if kind == "text" else NIGHTLY,
        )
        for kind, labels in LABELS.items()
        for container in CONTAINERS
        # No tensor holds texts.
        if labels.dtype.kind in "bi"
        or not (container in OF_TENSORS or "loader" in container)
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_keep_their_type(kind, container):
    X, labels = TABLE["X"], LABELS[kind]
    model = MODELS["balanced ridge classifier"].model
    expected = clone(model).fit(X, labels).predict(X)
    with context_of(container):
        fit, rows = CONTAINERS[container](X, labels)
        found = host(clone(model).fit(*fit).predict(rows))
    assert np.mean(found == expected) > 0.99
    assert found.dtype == expected.dtype or kind in ("text", "objects")


@each_case(
    lambda name, container: container == "tensors" or name == "logistic",
    *("tensors", "blocks of tensors", "moved blocks"),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_stay_on_their_device(name, container, monkeypatch):
    """A fit takes sums to the host, and predictions nothing."""
    case = MODELS[name]
    fit, rows = CONTAINERS[container](*arrays_of(name))
    model = clone(case.model)
    with context_of(container), no_host_copies(monkeypatch, most=case.copies) as copied:
        model.fit(*fit)
        if container in OF_TENSORS:  # predictions of the others are arrays
            copied.clear()
            model.predict(rows)
            assert not copied


# -- weights ------------------------------------------------------------------------

# Leaving out a copy of a row is not leaving out the row, and landmarks are drawn.
OF_ROWS = ("CV", "landmarks")
WEIGHTED = [
    name
    for name, case in MODELS.items()
    if has_fit_parameter(case.model, "sample_weight")
    and not any(word in name for word in OF_ROWS)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_are_repetitions(name):
    case = MODELS[name]
    X, y = TABLE["X"], TABLE[case.targets]
    counts = np.random.default_rng(1).integers(0, 4, len(X))
    rows = np.repeat(np.arange(len(X)), counts)
    weighted = clone(case.model).fit(X, y, counts)
    listed = clone(case.model).fit(X[rows], y[rows])
    found, wanted = (answers(model, (X, y), X) for model in (weighted, listed))
    for name in ("score", *(["predict_proba"] if case.sampled else [])):
        found.pop(name), wanted.pop(name)
    assert_alike(found, wanted, case.tolerance)
    if hasattr(weighted, "log_marginal_likelihood"):
        theta = weighted.theta_ + 0.1
        for one, other in zip(
            weighted.log_marginal_likelihood(theta, True),
            listed.log_marginal_likelihood(theta, True),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
