"""``randkern bench svm``: support vector machines, beside scikit-learn's."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import randkern

from .._memory import available_memory, format_bytes, resolve_memory_limit
from ..experiments.measure import Measurement
from ..experiments.records import describe_machine, installed_versions
from .labelled_rows import LabelledRows, checked_counts, resolved_lengthscale
from .ridge_process import ARRAYS, ask_process
from .timing import Progress, thread_counts

__all__ = ["METHODS", "run"]

METHODS = {
    "features": "randkern, features",
    "linear-svc": "RBFSampler + LinearSVC",
    "exact": "randkern, exact",
    "svc": "scikit-learn, SVC",
}
_ON_FEATURES = ("features", "linear-svc")
_WARM_UP_ROWS = 64
_WARM_UP_COMPONENTS = 16


def run(
    dataset: Any,
    n_components: Sequence[int] = (1000, 3000),
    *,
    lengthscale: float | str = 5.0,
    C: float = 10.0,
    methods: Sequence[str] | None = None,
    n: int | None = None,
    n_test: int | None = None,
    exact_rows: int = 5000,
    no_peer_above: int | None = 1000,
    memory_limit: int | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit machines with the hinge loss and no intercept, each in its own process.

    On random features of the Gaussian kernel `KernelSVC` beside scikit-learn's
    ``RBFSampler`` and ``LinearSVC(loss="hinge", fit_intercept=False)``; with the exact
    kernel `KernelSVC` beside ``SVC``, which has an intercept and compares the classes
    pair by pair. All have the same float32 rows, kernel and penalty. Each fits 64 rows
    before it is timed, which loads compiled code.

    Parameters
    ----------
    dataset : randkern.datasets.Dataset
        Classification; prepared by :func:`randkern.experiments.preparation.prepare`.
    n_components : sequence of int
        Values of D.
    lengthscale : float or {"scale", "median"}, default=5
    C : float, default=10
        What a unit of the hinge loss costs.
    methods : sequence of str, optional
        Of `METHODS`; default: all.
    n, n_test : int, optional
        Training and test rows at most, drawn once; default: all.
    exact_rows : int, default=5000
        Training rows of the exact kernels at most, the first ones.
    no_peer_above : int, optional, default=1000
        Largest D of ``LinearSVC``.
    memory_limit : int or str, optional
        Of randkern's models.
    seed : int, default=0
        Of the features and the solvers.
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``versions``, ``machine``,
        ``dataset``, ``records`` and ``skipped`` (``method``, ``n_components``,
        ``reason``). A record has ``method``, ``label``, ``n_train`` (rows used),
        ``n_components`` (null: exact), ``test_accuracy``, ``test_error``,
        ``train_seconds`` (features and fit), ``train_cpu_seconds`` (the same in
        processor time, of all threads), ``predict_seconds``, ``warm_up_seconds``,
        ``process_seconds``, ``n_support`` and ``duality_gap`` (the largest of a class,
        relative; both null for ``LinearSVC``, the gap for ``SVC``),
        ``peak_memory_bytes`` and ``peak_anonymous_bytes``.

    Raises
    ------
    ValueError
        If an argument is not as described above, or everything was skipped.
    """
    chosen = _known_methods(methods)
    sizes = checked_counts("n_components", n_components)
    checked_counts("exact_rows", [exact_rows])
    if not 0 < C < float("inf"):
        raise ValueError(f"C must be a positive number, got {C}")
    limit = memory_limit and resolve_memory_limit(memory_limit)
    rows = LabelledRows.of(dataset, n, n_test)
    ell = resolved_lengthscale(lengthscale, rows.X_train)
    common = {"lengthscale": ell, "C": C, "memory_limit": limit, "seed": seed}
    plan = list(_plan(chosen, sizes, len(rows.X_train), exact_rows))
    records, skipped = [], []
    for done, (method, size, n_train) in enumerate(plan):
        if progress is not None:
            progress(done, len(plan), METHODS[method])
        entry: dict[str, Any] = {"method": method, "n_components": size}
        reason = _why_not(method, size, n_train, no_peer_above)
        try:
            if reason is not None:
                raise ValueError(reason)
            measured = _measure(rows, entry | common | {"n_train": n_train})
        except ValueError as error:
            skipped.append(entry | {"reason": str(error)})
            continue
        entry |= {"label": METHODS[method], "n_train": n_train}
        records.append(entry | measured)
    if not records:
        raise ValueError(f"nothing could be run: {skipped[0]['reason']}")
    if progress is not None:
        progress(len(plan), len(plan), "done")
    arguments = {"n_components": sizes, "methods": chosen, "exact_rows": exact_rows}
    return {
        "command": "bench svm",
        "arguments": arguments | common | {"no_peer_above": no_peer_above},
        "versions": installed_versions(),
        "machine": describe_machine() | {"threads": thread_counts()},
        "dataset": rows.description,
        "records": records,
        "skipped": skipped,
    }


def _known_methods(methods: Sequence[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(METHODS if methods is None else methods))
    for name in chosen:
        if name not in METHODS:
            raise ValueError(
                f"unknown method {name!r}; expected some of {', '.join(METHODS)}"
            )
    if not chosen:
        raise ValueError(f"nothing to run: name some of {', '.join(METHODS)}")
    return chosen


def _plan(
    methods: Sequence[str], sizes: Sequence[int], n: int, exact_rows: int
) -> Iterator[tuple[str, int | None, int]]:
    """Yield methods, numbers of features and of training rows."""
    for size in sizes:
        for method in methods:
            if method in _ON_FEATURES:
                yield method, size, n
    for method in methods:
        if method not in _ON_FEATURES:
            yield method, None, min(n, exact_rows)


def _why_not(
    method: str, size: int | None, n: int, no_peer_above: int | None
) -> str | None:
    """Say why a contender is not run."""
    if method != "linear-svc" or size is None:
        return None
    if no_peer_above is not None and size > no_peer_above:
        return f"it was asked for up to {no_peer_above:,} features only"
    # The features in float32, and in float64 as liblinear reads them.
    needed, free = 12 * n * size, available_memory()
    if free is not None and needed > free:
        return (
            f"its features and their copy take about {format_bytes(needed)}; "
            f"{format_bytes(free)} are free"
        )
    return None


def _measure(rows: LabelledRows, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a process of its own, which reads the rows that it uses."""
    with tempfile.TemporaryDirectory(prefix="randkern-bench-") as folder:
        rows.save(folder, request["n_train"])
        return ask_process(__name__, {**request, "folder": folder})


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do in this process what was asked for."""
    folder = Path(request["folder"])
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in ARRAYS)
    few = _few(y)
    size = request["n_components"] and _WARM_UP_COMPONENTS
    small = {**request, "n_components": size, "memory_limit": None}
    try:
        with Measurement() as measured:
            start = time.perf_counter()
            _machine(small).fit(X[few], y[few]).predict(X_test[:_WARM_UP_ROWS])
            warmed, cpu_warmed = time.perf_counter(), time.process_time()
            machine = _machine(request).fit(X, y)
            fitted, cpu_fitted = time.perf_counter(), time.process_time()
            error = float(np.mean(machine.predict(X_test) != y_test))
            end = time.perf_counter()
    except (ValueError, MemoryError) as failure:
        return {"error": str(failure) or type(failure).__name__}
    support = getattr(machine, "support_", None)
    gap = getattr(machine, "duality_gap_", None)
    return {
        "test_accuracy": 1.0 - error,
        "test_error": error,
        "train_seconds": fitted - warmed,
        "train_cpu_seconds": cpu_fitted - cpu_warmed,
        "predict_seconds": end - fitted,
        "warm_up_seconds": warmed - start,
        "n_support": None if support is None else len(support),
        "duality_gap": None if gap is None else float(np.max(gap)),
        "peak_memory_bytes": measured.peak_bytes,
    }


def _few(y: Any) -> np.ndarray:
    """Return some of the first rows, of every class one."""
    _, firsts = np.unique(y, return_index=True)
    return np.union1d(firsts, np.arange(min(_WARM_UP_ROWS, len(y))))


def _machine(request: Mapping[str, Any]) -> Any:
    """Return the unfitted contender."""
    method, C, seed = request["method"], request["C"], request["seed"]
    size, ell = request["n_components"], request["lengthscale"]
    gamma = 1 / (2 * ell**2)
    if method == "svc":
        from sklearn.svm import SVC

        return SVC(C=C, gamma=gamma)
    if method == "linear-svc":
        from sklearn.kernel_approximation import RBFSampler
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        return make_pipeline(
            RBFSampler(gamma=gamma, n_components=size, random_state=seed),
            LinearSVC(C=C, loss="hinge", fit_intercept=False, random_state=seed),
        )
    return randkern.KernelSVC(
        randkern.Gaussian(ell),
        C,
        size,
        memory_limit=request["memory_limit"],
        random_state=seed,
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(json.loads(sys.argv[1]))))
