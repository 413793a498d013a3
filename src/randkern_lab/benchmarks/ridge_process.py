"""Fits of the ridge benchmark, each in a process of its own.

Peak memory is that of a process which has done nothing else: memory that an earlier
fit has freed would serve the next one. The process is ``python -m
randkern_lab.benchmarks.ridge_process REQUEST``; it answers on standard output, both JSON. The
process that waits for it reads the size of its anonymous memory every 10 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from randkern.study.measure import Measurement

from .ridge_contenders import RidgeContender

__all__ = ["ARRAYS", "StreamedTask", "ask_process", "fit_arrays", "fit_stream"]

# The arrays that `fit_arrays` looks for, NAME.npy.
ARRAYS = ("X_train", "y_train", "X_test", "y_test")
_WARM_UP_ROWS = 64
_INTERVAL = 0.01  # seconds


@dataclass(frozen=True)
class StreamedTask:
    """Rows in files: the first `n` for training, `n_test` from row `test_from` on.

    Attributes
    ----------
    X, y : str
        Files as :func:`.row_file.write_rows` writes them.
    d, n, n_test, test_from : int
    """

    X: str
    y: str
    d: int
    n: int
    n_test: int
    test_from: int


def fit_arrays(contender: RidgeContender, folder: str | Path) -> dict[str, Any]:
    """Fit a classifier to arrays on disk in a new process, and say what it took.

    Parameters
    ----------
    contender : RidgeContender
    folder : path
        Holds `ARRAYS`, which the process reads into memory.

    Returns
    -------
    measured : dict
        ``features_seconds``: drawing the features and making those of the training
        rows, null where solving and making them take turns; ``fit_seconds`` of the
        estimator; ``train_seconds``: both; ``predict_seconds`` (test rows, features
        included); ``total_seconds``: train and predict; ``warm_up_seconds``: the same
        on 64 rows before, which loads or compiles code; ``process_seconds``: all from
        start to end, imports included; ``test_error``; ``iterations``, ``residual``
        (null for peers) and ``outcome`` of the solve; ``peak_memory_bytes`` (resident,
        imports and data included) and ``peak_anonymous_bytes`` (without pages of
        files; read every 10 ms; null where the system does not tell).

    Raises
    ------
    ValueError
        If the fit fails, or the process was ended by the system, for instance for
        want of memory.
    """
    return _run({"folder": str(folder), "contender": contender.to_dict()})


def fit_stream(contender: RidgeContender, task: StreamedTask) -> dict[str, Any]:
    """Fit a regressor to rows that are read block by block, in a new process.

    Parameters
    ----------
    contender : RidgeContender
        One of randkern's.
    task : StreamedTask

    Returns
    -------
    measured : dict
        As by :func:`fit_arrays`; ``test_error`` is the share of the variance of the
        test targets that is not explained.
    """
    request = {"task": task.__dict__, "contender": contender.to_dict()}
    return _run(request)


def _run(request: Mapping[str, Any]) -> dict[str, Any]:
    return ask_process(__name__, request)


def ask_process(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a module in a new process, watch its memory, and read its answer.

    Parameters
    ----------
    module : str
        Takes the request as its argument and writes an answer, both JSON.
    request : mapping

    Returns
    -------
    measured : dict
        The answer, ``process_seconds`` and ``peak_anonymous_bytes``.

    Raises
    ------
    ValueError
        If the answer has ``error``, or the process did not end well.
    """
    start = time.perf_counter()
    command = [sys.executable, "-m", module, json.dumps(request)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    peak, answer, complaints = None, "", ""
    try:
        while process.returncode is None:
            try:
                answer, complaints = process.communicate(timeout=_INTERVAL)
            except subprocess.TimeoutExpired:
                now = _anonymous_bytes(process.pid)
                if now is not None:
                    peak = max(peak or 0, now)
    except BaseException:  # an interrupt must not leave it running
        process.kill()
        process.wait()
        raise
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise ValueError(_last_words(process.returncode, complaints))
    measured = json.loads(answer)
    if "error" in measured:
        raise ValueError(measured["error"])
    measured |= {"process_seconds": seconds, "peak_anonymous_bytes": peak}
    return measured


def _last_words(status: int, complaints: str) -> str:
    if status < 0:
        return (
            f"its own process was ended by signal {-status}; there may have been too "
            "little memory"
        )
    lines = complaints.strip().splitlines() or ["no message"]
    return f"its own process ended with status {status}: {lines[-1]}"


def _anonymous_bytes(pid: int) -> int | None:
    """Return the resident memory of a process that is no page of a file."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do in this process what was asked for."""
    contender = RidgeContender(**request["contender"])
    try:
        with Measurement() as measured:
            if "folder" in request:
                answer = _fitted_arrays(contender, Path(request["folder"]))
            else:
                answer = _fitted_stream(contender, StreamedTask(**request["task"]))
    except (ValueError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}
    return answer | {"peak_memory_bytes": measured.peak_bytes}


def _fitted_arrays(contender: RidgeContender, folder: Path) -> dict[str, Any]:
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in ARRAYS)
    few = slice(0, min(_WARM_UP_ROWS, len(X)))
    start = time.perf_counter()
    _classify(_small(contender, len(X[few])), X[few], y[few], X_test[few])
    warm_up = time.perf_counter() - start
    seconds, predicted, classifier = _classify(contender, X, y, X_test)
    return {
        **seconds,
        "warm_up_seconds": warm_up,
        "test_error": float(np.mean(predicted != y_test)),
        **_solve_record(classifier),
    }


def _small(contender: RidgeContender, n: int) -> RidgeContender:
    """Return the same with few features and no limit of memory."""
    fields = contender.to_dict()
    fields["n_components"] = min(contender.n_components, n)
    return RidgeContender(**fields | {"memory_limit": None})


def _classify(
    contender: RidgeContender, X: Any, y: Any, X_test: Any
) -> tuple[dict[str, Any], Any, Any]:
    """Return seconds, predicted classes of the test rows, and the fitted classifier."""
    feature_map, classifier = contender.feature_map(), contender.classifier()
    start = time.perf_counter()
    Z = X if feature_map is None else feature_map.fit(X).transform(X)
    transformed = time.perf_counter()
    classifier.fit(Z, y)
    fitted = time.perf_counter()
    del Z
    Z_test = X_test if feature_map is None else feature_map.transform(X_test)
    predicted = classifier.predict(Z_test)
    end = time.perf_counter()
    seconds = _seconds(start, transformed, fitted, end)
    if feature_map is None:
        seconds["features_seconds"] = None
    return seconds, predicted, classifier


def _seconds(
    start: float, transformed: float, fitted: float, end: float
) -> dict[str, float | None]:
    return {
        "features_seconds": transformed - start,
        "fit_seconds": fitted - transformed,
        "train_seconds": fitted - start,
        "predict_seconds": end - fitted,
        "total_seconds": end - start,
    }


def _solve_record(model: Any) -> dict[str, Any]:
    """Return how the linear solve went."""
    if not hasattr(model, "solution_"):  # scikit-learn's tells which solver it took
        outcome = str(model.solver_)
        return {"iterations": None, "residual": None, "outcome": outcome}
    solution = model.solution_
    return {
        "iterations": int(solution.iterations),
        "residual": float(solution.residual),
        "outcome": solution.outcome.name.lower(),
    }


def _fitted_stream(contender: RidgeContender, task: StreamedTask) -> dict[str, Any]:
    import randkern

    from .row_file import RowFile

    rows = task.test_from + task.n_test
    held_out = slice(task.test_from, rows)
    X_test = RowFile(task.X, (rows, task.d))[held_out]
    y_test = RowFile(task.y, (rows,))[held_out]
    X, y = RowFile(task.X, (task.n, task.d)), RowFile(task.y, (task.n,))
    few = slice(0, min(_WARM_UP_ROWS, task.n))
    start = time.perf_counter()
    warm = randkern.RowBlocks.from_arrays(X[few], y[few])
    _small(contender, few.stop).regressor().fit(warm).predict(X_test[few])
    warmed = time.perf_counter()
    model = contender.regressor().fit(randkern.RowBlocks.from_arrays(X, y))
    fitted = time.perf_counter()
    residual = y_test - model.predict(X_test)
    end = time.perf_counter()
    return {
        **_seconds(warmed, warmed, fitted, end),
        "features_seconds": None,
        "warm_up_seconds": warmed - start,
        "test_error": float(np.mean(residual**2) / np.var(y_test)),
        **_solve_record(model),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(json.loads(sys.argv[1]))))
