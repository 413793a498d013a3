"""``randkern bench gp``: Gaussian processes, beside GPyTorch and scikit-learn."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._validation import check_count
from randkern.datasets import load_dataset
from randkern.study.measure import Measurement
from randkern.study.preparation import prepare
from randkern.study.records import describe_machine, installed_versions

from .gpytorch_models import predict_rff, predict_svgp
from .ridge_process import ARRAYS, ask_process
from .timing import Progress, thread_counts

__all__ = ["METHODS", "run"]

METHODS: Mapping[str, str] = {
    "features": "randkern, features",
    "exact": "randkern, exact",
    "scikit-learn": "scikit-learn, exact",
    "rff": "GPyTorch, RFFKernel",
    "svgp": "GPyTorch, SVGP",
}
_EXACT, _GPYTORCH = ("exact", "scikit-learn"), ("rff", "svgp")
_WARM_UP_ROWS = 64
_NOISE = 0.1
_TEST_ROWS = 5000


def run(
    n: int = 100_000,
    *,
    n_features: int = 10,
    n_components: int = 256,
    exact_rows: int = 1000,
    steps: int = 50,
    epochs: int = 10,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Learn and predict, each contender in a process of its own, on two data sets.

    Scikit-learn's diabetes (a quarter held out), and Friedman's first function of
    `n_features` columns, of which 5 matter, with noise of variance 1. Columns and
    targets are
    standardised for all. Every contender learns a lengthscale a column, the variance
    and the noise, from the same start.

    Parameters
    ----------
    n : int, default=100_000
        Generated training rows; 5,000 more are held out (at most n).
    n_features : int, default=10
        Generated columns, at least 5.
    n_components : int, default=256
        D: features, or inducing points of SVGP.
    exact_rows : int, default=1000
        Training rows of the exact processes at most, the first ones.
    steps : int, default=50
        Of Adam, for RFFKernel.
    epochs : int, default=10
        Of SVGP.
    methods : sequence of str, optional
        Of `METHODS`; default: all.
    seed : int, default=0
        Of the split, the generated rows and the features.
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``versions`` (with ``gpytorch``
        and ``torch``, null where missing), ``machine``, ``datasets`` (``name``,
        ``n_train``, ``n_test``, ``n_features``, ``noise_rmse``: the error of the true
        function, null where unknown), ``records`` and ``skipped`` (``dataset``,
        ``method``, ``reason``). A record has ``dataset``, ``method``, ``label``,
        ``n_train`` (rows used), ``n_components`` (null: exact), ``rmse`` (in standard
        deviations of the training targets), ``nlpd`` (mean negative log density of the
        test targets in those units), ``coverage`` (of 95 % intervals), ``seconds`` of
        learning and predicting, ``cpu_seconds`` (the same in processor time, of all
        threads), ``warm_up_seconds``, ``process_seconds``,
        ``peak_memory_bytes`` and ``peak_anonymous_bytes``.

    Raises
    ------
    ValueError
        If an argument is not as described above.
    """
    counts = {"n": n, "n_components": n_components, "exact_rows": exact_rows}
    for name, value in (counts | {"steps": steps, "epochs": epochs}).items():
        check_count(name, value)
    if check_count("n_features", n_features) < 5:
        raise ValueError(f"n_features must be at least 5, got {n_features}.")
    chosen = _known_methods(methods)
    results = _environment(counts | {"steps": steps, "epochs": epochs, "seed": seed})
    results["arguments"] |= {"methods": chosen, "n_features": n_features}
    tasks = [_diabetes(seed), _friedman(n, n_features, seed)]
    total = len(tasks) * len(chosen)
    for done, (task, method) in enumerate((t, m) for t in tasks for m in chosen):
        described = task["described"]
        if progress is not None:
            progress(done, total, f"{described['name']}: {METHODS[method]}")
        used = described["n_train"]
        used = min(used, exact_rows) if method in _EXACT else used
        record: dict[str, Any] = {"dataset": described["name"], "method": method}
        request = {
            "method": method,
            "n_train": used,
            "n_components": min(n_components, used)
            if method == "svgp"
            else n_components,
            **{"steps": steps, "epochs": epochs, "seed": seed},
        }
        try:
            measured = _measure(task["arrays"], request)
        except ValueError as error:
            results["skipped"].append(record | {"reason": str(error)})
            continue
        record |= {"label": METHODS[method], "n_train": used}
        size = None if method in _EXACT else request["n_components"]
        results["records"].append(record | {"n_components": size} | measured)
    if progress is not None:
        progress(total, total, "done")
    results["datasets"] = [task["described"] for task in tasks]
    return results


def _known_methods(methods: Sequence[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(METHODS if methods is None else methods))
    for name in chosen:
        if name not in METHODS:
            raise ValueError(
                f"unknown method {name!r}; expected some of {', '.join(METHODS)}"
            )
    return chosen


def _environment(arguments: dict[str, Any]) -> dict[str, Any]:
    versions: dict[str, str | None] = dict(installed_versions())
    for package in ("torch", "gpytorch"):
        found = importlib.util.find_spec(package) is not None
        versions[package] = metadata.version(package) if found else None
    return {
        "command": "bench gp",
        "arguments": arguments,
        "versions": versions,
        "machine": describe_machine() | {"threads": thread_counts()},
        "records": [],
        "skipped": [],
    }


def _diabetes(seed: int) -> dict[str, Any]:
    data = prepare(load_dataset("diabetes"), random_state=seed)
    arrays = data.X_train, data.y_train, data.X_test, data.y_test
    return _standardised("diabetes", *arrays, noise=None)


def _friedman(n: int, n_features: int, seed: int) -> dict[str, Any]:
    """Return Friedman's first function with noise of variance 1."""
    from sklearn.datasets import make_friedman1

    n_test = min(n, _TEST_ROWS)
    X, y = make_friedman1(
        n + n_test, n_features=n_features, noise=1.0, random_state=seed
    )
    return _standardised("friedman", X[:n], y[:n], X[n:], y[n:], noise=1.0)


def _standardised(
    name: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
    noise: float | None,
) -> dict[str, Any]:
    """Shift and divide columns and targets as on the training rows."""
    centre, spread = X.mean(axis=0), X.std(axis=0)
    middle, scale = float(y.mean()), float(y.std())
    arrays = ((X - centre) / spread, (y - middle) / scale)
    held_out = ((X_test - centre) / spread, (y_test - middle) / scale)
    described = {
        "name": name,
        "n_train": len(X),
        "n_test": len(X_test),
        "n_features": int(X.shape[1]),
        "noise_rmse": None if noise is None else noise / scale,
    }
    return {
        "arrays": dict(zip(ARRAYS, (*arrays, *held_out), strict=True)),
        "described": described,
    }


def _measure(
    arrays: Mapping[str, NDArray[Any]], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Ask a process of its own, which reads the rows that it uses."""
    if request["method"] in _GPYTORCH and importlib.util.find_spec("gpytorch") is None:
        raise ValueError("gpytorch is not installed; run: pip install gpytorch")
    with tempfile.TemporaryDirectory(prefix="randkern-bench-") as folder:
        for name, array in arrays.items():
            kept = array[: request["n_train"]] if name.endswith("train") else array
            np.save(Path(folder) / f"{name}.npy", kept)
        return ask_process(__name__, {**request, "folder": folder})


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do in this process what was asked for."""
    folder = Path(request["folder"])
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in ARRAYS)
    few = slice(0, _WARM_UP_ROWS)
    small = {**request, "n_components": 16, "steps": 2, "epochs": 1}
    try:
        with Measurement() as measured:
            start = time.perf_counter()
            _predict(small, X[few], y[few], X_test[few])
            warmed, cpu_warmed = time.perf_counter(), time.process_time()
            mean, variance = _predict(request, X, y, X_test)
            end, cpu_end = time.perf_counter(), time.process_time()
    except (ValueError, MemoryError, RuntimeError) as error:
        return {"error": str(error) or type(error).__name__}
    residual = y_test - mean
    density = 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
    return {
        "rmse": float(np.sqrt(np.mean(residual**2))),
        "nlpd": float(np.mean(density)),
        "coverage": float(np.mean(np.abs(residual) < 1.96 * np.sqrt(variance))),
        "seconds": end - warmed,
        "cpu_seconds": cpu_end - cpu_warmed,
        "warm_up_seconds": warmed - start,
        "peak_memory_bytes": measured.peak_bytes,
    }


def _predict(
    request: Mapping[str, Any], X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any]
) -> tuple[Any, Any]:
    """Learn, and return means and variances of the test targets."""
    method, size, seed = request["method"], request["n_components"], request["seed"]
    asked: dict[str, Any] = {"n_components": size, "noise": _NOISE, "seed": seed}
    if method == "rff":
        return predict_rff(X, y, X_test, steps=request["steps"], **asked)
    if method == "svgp":
        return predict_svgp(X, y, X_test, epochs=request["epochs"], **asked)
    lengthscales = np.full(X.shape[1], X.shape[1] ** 0.5)
    if method == "scikit-learn":
        return _predict_scikit_learn(lengthscales, X, y, X_test)
    model = randkern.GaussianProcessRegressor(
        1.0 * randkern.Gaussian(lengthscales),
        _NOISE,
        size if method == "features" else None,
        random_state=seed,
    )
    mean, sd = model.fit(X, y).predict(X_test, return_std=True, include_noise=True)
    return mean, sd**2


def _predict_scikit_learn(
    lengthscales: NDArray[Any], X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any]
) -> tuple[Any, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    bounds = (1e-5, 1e5)
    kernel = ConstantKernel(1.0) * RBF(lengthscales, bounds) + WhiteKernel(_NOISE)
    # The white kernel is the noise, and is part of the predicted deviations.
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        # Lengthscales of columns that do not matter end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    mean, sd = model.predict(X_test, return_std=True)
    return mean, sd**2


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(json.loads(sys.argv[1]))))
