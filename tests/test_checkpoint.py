"""Fits that are interrupted or killed go on where they were."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import randkern as rk
from randkern.exceptions import CheckpointError
from randkern.solvers import PCG, Checkpoint, Outcome

N, WIDTH = 300, 4
KERNEL = rk.Gaussian(1.5)


class CrashError(Exception):
    """What a callback raises that ends a fit as a crash would."""


def interrupt_at(iteration, error=KeyboardInterrupt):
    def callback(progress):
        if progress.iteration == iteration:
            raise error

    return callback


@pytest.fixture
def table(rng):
    X = rng.normal(size=(N, WIDTH))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def solver(callback=None, **parameters):
    return PCG(**{"tol": 1e-10, "rank": 10, "callback": callback} | parameters)


def regressor(path=None, **parameters):
    defaults = {"alpha": 0.1, "n_components": 150, "random_state": 0}
    parameters = {"solver": solver()} | defaults | parameters
    return rk.KernelRidgeRegressor(
        parameters.pop("kernel", KERNEL), checkpoint=path, **parameters
    )


def weights_of(model):
    return model.coef_ if hasattr(model, "coef_") else model.dual_coef_


def assert_same(model, expected, tolerance=1e-6):
    weights = weights_of(expected)
    apart = np.abs(weights_of(model) - weights).max()
    assert apart <= tolerance * np.abs(weights).max()
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=tolerance)


def interrupted(model, X, y, iteration=6, **fit):
    """Fit until an iteration is interrupted."""
    stopping = clone(model)
    parameters = vars(model.solver) | {"callback": interrupt_at(iteration)}
    stopping.solver = PCG(**parameters)
    with pytest.raises(KeyboardInterrupt):
        stopping.fit(X, y, **fit)


@pytest.mark.parametrize("n_components", [150, 400, None], ids=str)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_interrupted_fit_goes_on(n_components, fit_intercept, table, path):
    X, y = table
    parameters = {"n_components": n_components, "fit_intercept": fit_intercept}
    full = regressor(**parameters).fit(X, y)
    model = regressor(path, **parameters)
    interrupted(model, X, y)
    assert path.exists()
    seen = []
    model.solver = solver(lambda progress: seen.append(progress.iteration))
    model.fit(X, y)
    assert seen[0] == 7
    assert model.solution_.iterations == full.solution_.iterations == seen[-1]
    assert_same(model, full)
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


def test_the_same_estimator_goes_on(table, path):
    """What it was before the interruption does not get in the way of going on."""
    X, y = table
    model = regressor(path, random_state=None).fit(X[:50], y[:50])
    before = model.predict(X)
    model.solver = solver(interrupt_at(6))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    seen = []
    model.solver = solver(lambda progress: seen.append(progress.iteration))
    model.fit(X, y)
    assert seen[0] == 7


def test_a_fit_may_be_interrupted_again_and_again(table, path):
    X, y = table
    full = regressor().fit(X, y)
    model = regressor(path)
    for iteration in (1, 2, 5, 11):
        interrupted(model, X, y, iteration)
    assert_same(model.fit(X, y), full)


def test_labels_and_weights(table, path, rng):
    X, y = table
    labels = np.digitize(y, [-0.5, 0.5])
    weight = rng.uniform(0, 2, N)

    def classifier(path=None):
        return rk.KernelRidgeClassifier(
            KERNEL,
            0.1,
            150,
            solver=solver(),
            class_weight="balanced",
            checkpoint=path,
            random_state=0,
        )

    full = classifier().fit(X, labels, sample_weight=weight)
    interrupted(classifier(path), X, labels, sample_weight=weight)
    model = classifier(path).fit(X, labels, sample_weight=weight)
    assert_same(model, full)
    with pytest.raises(CheckpointError, match="other rows"):
        interrupted(classifier(path), X, labels, sample_weight=weight)
        classifier(path).fit(X, labels)


def test_streams(table, path):
    X, y = table

    def blocks():
        return iter([(X[:100], y[:100]), (X[100:], y[100:])])

    model = regressor(path)
    full = regressor().fit(rk.RowBlocks(blocks))
    interrupted(model, rk.RowBlocks(blocks), None)
    assert_same(model.fit(rk.RowBlocks(blocks)), full)
    assert not path.exists()


@pytest.mark.parametrize("kernel", [KERNEL, None], ids=["given", "scale"])
def test_without_a_seed_the_features_are_those_of_the_interrupted_fit(
    kernel, table, path
):
    X, y = table
    model = regressor(path, random_state=None, kernel=kernel)
    interrupted(model, X, y)
    key = int(Checkpoint(path).load()["key"])
    seen = []
    model.solver = solver(lambda progress: seen.append(progress.iteration))
    model.fit(X, y)
    assert seen[0] == 7
    assert model._key == key
    assert regressor(random_state=None).fit(X, y)._key != key


def test_the_best_validated_weights_outlive_an_interruption(table, path):
    X, y = table
    y = y + np.random.default_rng(1).normal(size=N)
    parameters = {"alpha": 1e-8, "n_components": 100}
    stopping = {"validation_fraction": 0.3, "patience": 6, "tol": 1e-12}
    full = regressor(solver=solver(**stopping), **parameters).fit(X, y)
    assert full.solution_.outcome is Outcome.VALIDATED
    best = full.solution_.iterations - 6
    assert best > 0
    model = regressor(path, solver=solver(**stopping), **parameters)
    interrupted(model, X, y, best + 2)
    model.fit(X, y)
    assert model.solution_.iterations == full.solution_.iterations
    assert_same(model, full)


# What a killed process leaves.

SCRIPT = """
import os, signal, sys, time
import numpy as np
import randkern as rk
from randkern.solvers import PCG

path, how, exact = sys.argv[1], sys.argv[2], sys.argv[3] == "exact"
rng = np.random.default_rng(5)
X = rng.normal(size=(300, 4))
y = np.sin(2 * X[:, 0]) + X[:, 1]

def callback(progress):
    if progress.iteration == 7 and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if progress.iteration == 3 and how == "sleep":
        print("iterating", flush=True)
        time.sleep(600)

model = rk.KernelRidgeRegressor(
    rk.Gaussian(1.5), 0.1, None if exact else 150, fit_intercept=True, random_state=0,
    solver=PCG(tol=1e-10, rank=10, callback=callback), checkpoint=path,
)
model.fit(X, y)
np.save(path + ".npy", model.dual_coef_ if exact else model.coef_)
"""


def run(path, how, kernel):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), how, kernel],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("kernel", ["features", "exact"])
def test_a_killed_process_resumes(kernel, path, tmp_path):
    full = tmp_path / "whole"
    finish(run(full, "run", kernel))
    killed = run(path, "kill", kernel)
    killed.communicate(timeout=600)
    assert killed.returncode == -signal.SIGKILL
    assert Checkpoint(path).load() is not None
    assert len(Checkpoint(path).load()["gains"]) >= 1
    finish(run(path, "run", kernel))
    assert not path.exists()
    expected = np.load(f"{full}.npy")
    apart = np.abs(np.load(f"{path}.npy") - expected).max()
    assert apart <= 1e-6 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_ctrl_c_leaves_the_last_iteration(path):
    process = run(path, "sleep", "features")
    assert process.stdout.readline() == "iterating\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert "KeyboardInterrupt" in errors
    assert len(Checkpoint(path).load()["gains"]) == 3
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_crash_leaves_an_earlier_iteration(table, path):
    X, y = table
    model = regressor(path, solver=solver(interrupt_at(6, CrashError)))
    with pytest.raises(CrashError):
        model.fit(X, y)
    full = regressor().fit(X, y)
    assert_same(regressor(path).fit(X, y), full)


# Files that do not belong to the fit.


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": rk.Gaussian(1.6)},
        {"kernel": rk.Laplacian(1.5)},
        {"alpha": 0.2},
        {"alpha": 0.0},
        {"n_components": 151},
        {"n_components": None},
        {"random_state": 1},
        {"fit_intercept": True},
    ],
    ids=str,
)
def test_another_fit_is_refused(other, table, path):
    X, y = table
    interrupted(regressor(path), X, y)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="delete it to start anew"):
        regressor(path, **other).fit(X, y)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": rk.Gaussian(1.51)},
        {"kernel": rk.Laplacian(1.5)},
        {"kernel": 2.0 * KERNEL},
        {"alpha": 0.2},
    ],
    ids=str,
)
def test_another_exact_kernel_is_refused(other, table, path):
    X, y = table
    interrupted(regressor(path, n_components=None), X, y)
    with pytest.raises(CheckpointError, match="delete it to start anew"):
        regressor(path, n_components=None, **other).fit(X, y)


@pytest.mark.parametrize("n_components", [150, None])
def test_other_rows_are_refused(n_components, table, path):
    X, y = table
    parameters = {"n_components": n_components}
    interrupted(regressor(path, **parameters), X, y)
    for rows, targets in ((X[:-1], y[:-1]), (1.1 * X, y), (X, y + X[:, 0])):
        with pytest.raises(CheckpointError, match="delete it to start anew"):
            regressor(path, **parameters).fit(rows, targets)
    with pytest.raises(CheckpointError, match="delete it to start anew"):
        regressor(path, **parameters).fit(X, np.column_stack([y, y]))


def test_small_targets_are_distinguished(table, path, rng):
    """Beside a large target that is the same."""
    X, y = table
    interrupted(regressor(path), X, np.column_stack([1e6 * y, y]))
    with pytest.raises(CheckpointError, match="belongs to a fit on other rows"):
        regressor(path).fit(X, np.column_stack([1e6 * y, rng.permutation(y)]))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_row_that_differs_is_seen_by_the_exact_kernel(container, table, path):
    X, y = table
    interrupted(regressor(path, n_components=None), container(X), y)
    X[-2] += 1.0
    with pytest.raises(CheckpointError, match="belongs to a fit on other rows"):
        regressor(path, n_components=None).fit(container(X), y)


CHANGES = ["row", "target", "weight", "order"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["pcg", "exact", "pcg of a stream"])
def test_one_change_is_seen(name, change, rng, path):
    """In any of the rows, also in one that no sampled sum has seen."""
    n = 300 if name == "exact" else 4000
    X = rng.normal(size=(n, 3))
    parts = [X, np.sin(X[:, 0]), rng.uniform(1, 2, n)]
    other = [part.copy() for part in parts]
    if change == "order":
        other = [part[::-1].copy() for part in parts]
    else:
        other[CHANGES.index(change)][-3] += 1e-6
    n_components = None if name == "exact" else 50

    def fit(parts, callback=None):
        solver = PCG(tol=1e-14, max_iter=3, callback=callback)
        model = regressor(path, solver=solver, n_components=n_components)
        if name == "pcg of a stream":
            return model.fit(rk.RowBlocks.from_arrays(*parts, block_rows=900))
        return model.fit(*parts)

    with pytest.raises(KeyboardInterrupt):
        fit(parts, interrupt_at(2))
    with pytest.raises(CheckpointError, match="belongs to a fit on other rows"):
        fit(other)
    with pytest.warns(ConvergenceWarning):
        fit(parts)
    assert not path.exists()


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "array", "zip"])
def test_damaged_files_are_named(damage, random_state, table, path):
    X, y = table
    interrupted(regressor(path), X, y)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "flipped":
        content[len(content) // 2] ^= 255
    elif damage == "empty":
        content.clear()
    elif damage == "text":
        content[:] = b"no arrays here"
    path.write_bytes(content)
    with path.open("r+b" if damage not in ("array", "zip") else "wb") as file:
        if damage == "array":
            np.save(file, np.ones(3))
        elif damage == "zip":
            np.savez(file, else_=np.ones(3))
    with pytest.raises(CheckpointError, match=r"fit\.npz"):
        regressor(path, random_state=random_state).fit(X, y)


def test_a_file_that_lacks_something_is_refused(table, path):
    X, y = table
    interrupted(regressor(path), X, y)
    arrays = Checkpoint(path).load()
    for name in ("B", "X", "R", "P", "gains", "shift"):
        np.savez(path, **{k: v for k, v in arrays.items() if k != name})
        with pytest.raises(CheckpointError, match=r"fit\.npz"):
            regressor(path).fit(X, y)


def test_the_folder_must_exist(table, tmp_path):
    X, y = table
    with pytest.raises(CheckpointError, match="folder of checkpoint"):
        regressor(tmp_path / "missing" / "fit.npz").fit(X, y)


def test_a_folder_is_refused_as_a_checkpoint(table, tmp_path):
    X, y = table
    with pytest.raises(CheckpointError, match="is a folder, expected the path"):
        regressor(tmp_path).fit(X, y)


def test_direct_solvers_leave_the_file_alone(table, path):
    X, y = table
    interrupted(regressor(path), X, y)
    regressor(path, solver="cholesky").fit(X, y)
    assert path.exists()


def test_a_stopped_fit_is_complete(table, path):
    X, y = table
    model = regressor(path, solver=solver(lambda progress: progress.iteration == 3))
    assert model.fit(X, y).solution_.outcome is Outcome.STOPPED
    assert not path.exists()


def test_relative_paths_and_texts(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = table
    interrupted(regressor("fit.npz"), X, y)
    assert (tmp_path / "fit.npz").exists()
    assert_same(regressor("fit.npz").fit(X, y), regressor().fit(X, y))


def test_a_resumed_fit_keeps_its_memory(table, path):
    X, y = table
    interrupted(regressor(path), X, y)
    saved = Checkpoint(path).load()
    assert regressor(path)._begin()[0] == saved["memory"]
    assert regressor(path, memory_limit="1GB")._begin()[0] == 10**9


def test_the_file_is_read_once(table, path, monkeypatch):
    X, y = table
    interrupted(regressor(path, random_state=None), X, y)
    read = []
    load = Checkpoint.load

    def counted(self, names=None):
        arrays = load(self, names)
        read.append(sum(array.nbytes for array in arrays.values()))
        return arrays

    monkeypatch.setattr(Checkpoint, "load", counted)
    regressor(path, random_state=None).fit(X, y)
    assert sum(n_bytes > 16 for n_bytes in read) == 1


@pytest.mark.parametrize("n_components", [150, None])
@pytest.mark.parametrize("changed", ["target", "sign", "weight"])
def test_a_single_changed_target_is_refused(n_components, changed, rng, path):
    X = rng.normal(size=(6000, 2)).astype(np.float32)
    y, weight = np.sin(2 * X[:, 0]), np.ones(6000)
    stop = interrupt_at(1)
    created = solver(stop)
    parameters = {"n_components": n_components}
    with pytest.raises(KeyboardInterrupt):
        regressor(path, solver=created, **parameters).fit(X, y, weight)
    if changed == "weight":
        weight[-1] = 0.999
    else:
        y[-1] = -y[-1] if changed == "sign" else y[-1] + 1e-3
    created.set_params(callback=None)
    with pytest.raises(CheckpointError, match="belongs to"):
        regressor(path, solver=created, **parameters).fit(X, y, weight)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("no room"), "may be intact: free some memory"),
        (PermissionError(13, "not yours"), "may be intact.*make the file readable"),
        (OSError(5, "Input/output error"), "may be intact.*disk or network"),
        (OSError(22, "Invalid argument"), "is damaged.*delete it"),
        (EOFError("cut"), "is damaged.*delete it"),
    ],
    ids=repr,
)
def test_a_checkpoint_is_damaged_only_if_its_content_is(
    error, message, table, path, monkeypatch
):
    X, y = table
    interrupted(regressor(path), X, y)

    def read(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("randkern.solvers.iteration.read_arrays", read)
        with pytest.raises(CheckpointError, match=message):
            regressor(path).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr("randkern._files.available_memory", lambda: 1000)
        with pytest.raises(CheckpointError, match="may be intact: free some memory"):
            regressor(path).fit(X, y)
    assert regressor(path).fit(X, y).solution_.outcome is Outcome.CONVERGED
