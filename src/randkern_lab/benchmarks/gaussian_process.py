"""Gaussian processes against other libraries: error, density, coverage, seconds.

The data are scikit-learn's diabetes (a quarter held out) and rows of Friedman's first
function (5 columns matter; noise of variance 1; 5,000 rows held out), or tables with
numeric targets (fold 0, or a fifth of the rows, held out; encoded by
`TabularEncoder`). The methods are randkern's features and exact process,
scikit-learn's, GPyTorch's exact process, ``RFFKernel`` (half as many frequencies) and
SVGP, and xGPR, if installed. Columns and targets are standardised for all. All learn a
lengthscale per column (xGPR: one for all), the variance and the noise, from the same
start (xGPR has its own search). GPyTorch is stopped by the density of held-out rows, or
by a budget of seconds (see :mod:`.gp_peers`). GPyTorch and xGPR compute in float32,
`RFFKernel` and the others in float64. Exact processes use only the first of the
generated rows, and no larger tables. Each method runs in its own process, and learns
from 64 rows before it is timed.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import randkern
from randkern.datasets import load_dataset
from randkern.study.preparation import prepare

from ..options import DataOptions, option
from ..panels import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    SKY,
    Panel,
    Style,
    draw,
    logarithmic,
)
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment, SkippedCase, grid
from ..tables import TextTable, count, listing, megabytes, of, seconds, skip_notes
from .contenders import missing_package
from .gp_peers import (
    Predicted,
    predict_gpytorch,
    predict_scikit_learn,
    predict_svgp,
    predict_xgpr,
)
from .rows import known_names, saved_arrays, saved_rows
from .tables import kind_of, read_table, table_paths

__all__ = ["METHODS", "GaussianProcesses", "Options"]

METHODS: Mapping[str, Style] = {
    "features": Style("randkern, features", BLUE, "o"),
    "prior": Style("randkern, far_variance='prior'", SKY, "v"),
    "exact": Style("randkern, exact", BLUE, "D"),
    "scikit-learn": Style("scikit-learn, exact", BLACK, "X"),
    "gpytorch": Style("GPyTorch, exact", RED, "D"),
    "rff": Style("GPyTorch, RFFKernel", RED, "s"),
    "svgp": Style("GPyTorch, SVGP", GREEN, "^"),
    "xgpr": Style("xGPR", ORANGE, "P"),
}
_EXACT = ("exact", "scikit-learn", "gpytorch")
_PACKAGES = dict.fromkeys(("gpytorch", "rff", "svgp"), "gpytorch") | {"xgpr": "xGPR"}
_SCORES = {"rmse": "test RMSE (standard deviations)", "nlpd": "negative log density"}
_WARM_UP_ROWS = 64
_NOISE = 0.1
_TEST_ROWS = 5000


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern bench gp``."""

    n: int = option(100_000, "Generated training rows.", quick=200)
    columns: int = option(10, "Of generated rows; 5 matter.", least=5)
    n_components: int = option(256, "Features.", quick=40)
    inducing: int | None = option(
        None, "Inducing points of SVGP; default: as many as features."
    )
    tables: tuple[str, ...] = option(
        (), "Names of .csv, .csv.gz or .parquet files of --data-dir; default: all."
    )
    target: str = option("target", "Column of the tables to predict.")
    exact_rows: int = option(
        1000, "Training rows of exact processes at most.", quick=80
    )
    budget: float = option(
        200.0,
        "Seconds of all processors that GPyTorch learns at most.",
        quick=1.0,
        least=0.0,
    )
    seeds: int = option(1, "Of draws, from --seed on.")
    methods: tuple[str, ...] = option(
        tuple(METHODS),
        "Of features, prior, exact, scikit-learn, gpytorch, rff, svgp, xgpr.",
        quick=("features", "scikit-learn", "rff", "svgp", "xgpr"),
    )


class GaussianProcesses(Experiment):
    """Gaussian processes on data sets of numbers."""

    name = "gp"
    title = (
        "Error, density and seconds of Gaussian processes, beside GPyTorch and xGPR."
    )
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Write the data sets to files for the processes."""
        options = self.options
        self.methods = known_names("method", options.methods, METHODS)
        self.described, self.folders = {}, {}
        if options.tables and options.data_dir is None:
            raise ValueError("--tables are files of --data-dir, which is not given")
        sets = self._tables() if options.data_dir is not None else self._generated()
        for arrays, described in sets:
            saved = self.resources.enter_context(saved_arrays(*arrays))
            self.folders[described["name"]] = saved
            self.described[described["name"]] = described

    def _generated(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        yield self._diabetes()
        yield self._friedman()

    def _diabetes(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        data = prepare(load_dataset("diabetes"), random_state=self.options.seed)
        arrays = data.X_train, data.y_train, data.X_test, data.y_test
        return _standardised("diabetes", *arrays, noise=None)

    def _tables(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return the tables of the folder with numeric targets."""
        options = self.options
        paths = table_paths(options.data_dir)
        for name in known_names("table", options.tables or tuple(paths), paths):
            request = {"table": name, "path": paths[name], "target": options.target}
            X, y, test = read_table({**request, "fold": 0, "rows": None, "seed": 0})
            if kind_of(y) != "regression":
                continue
            rows, y = (X[~test], X[test]), y.astype(float)
            encoder = randkern.TabularEncoder().fit(rows[0])
            train, held_out = (encoder.transform(part) for part in rows)
            arrays = train, y[~test], held_out, y[test]
            yield _standardised(name, *arrays, noise=None)

    def _friedman(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return Friedman's first function with noise of variance 1."""
        from sklearn.datasets import make_friedman1

        n, d, seed = self.options.n, self.options.columns, self.options.seed
        total = n + min(n, _TEST_ROWS)
        X, y = make_friedman1(total, n_features=d, noise=1.0, random_state=seed)
        return _standardised("friedman", X[:n], y[:n], X[n:], y[n:], noise=1.0)

    def cases(self) -> Iterator[Case]:
        """Return data sets, methods and seeds."""
        first = self.options.seed
        seeds = range(first, first + self.options.seeds)
        yield from grid(dataset=self.described, method=self.methods, seed=seeds)

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the method in its own process, which reads the rows it uses."""
        method, options = case["method"], self.options
        if method in _PACKAGES:
            reason = missing_package(_PACKAGES[method])
            if reason is not None:
                raise SkippedCase(reason)
        used = self.described[case["dataset"]]["n_train"]
        if method in _EXACT:
            if options.data_dir is not None and used > options.exact_rows:
                raise SkippedCase(f"an exact process of {used:,} rows")
            used = min(used, options.exact_rows)
        size = None if method in _EXACT else options.n_components
        if method == "svgp":
            size = min(options.inducing or options.n_components, used)
        request = {
            **{"method": method, "n_train": used, "n_components": size},
            **{"budget": options.budget, "seed": case["seed"]},
            "folder": self.folders[case["dataset"]],
        }
        try:
            found = in_fresh_process(learn, request)
        except ValueError as error:
            raise SkippedCase(str(error)) from error
        named = {"label": METHODS[method].label, "n_train": used, "n_components": size}
        return named | found

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the descriptions of data sets, and the peers' versions."""
        versions = {
            name: metadata.version(name) if importlib.util.find_spec(name) else None
            for name in ("torch", "gpytorch", "xGPR")
        }
        return {
            "datasets": list(self.described.values()),
            "versions": results["versions"] | versions,
            "arguments": results["arguments"] | {"n_features": self.options.columns},
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the error due to noise alone, and the skipped methods."""
        for data in results["datasets"]:
            if data["noise_rmse"] is not None:
                rmse = data["noise_rmse"]
                yield f"{data['name']}: the true function would have RMSE {rmse:.4f}"
        yield from skip_notes(results, "method", "dataset")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return every contender on every data set: scores, seconds, memory."""
        # Older records have no seeds, steps or budget.
        arguments = results["arguments"]
        several = arguments.get("seeds", 1) > 1
        columns = {
            "data": lambda r: r["dataset"],
            "method": lambda r: r["label"],
            **({"seed": lambda r: str(r["seed"])} if several else {}),
            "rows": lambda r: count(r["n_train"]),
            "D": lambda r: (
                "" if r["n_components"] is None else count(r["n_components"])
            ),
            "RMSE": lambda r: f"{r['rmse']:.4f}",
            "NLPD": lambda r: f"{r['nlpd']:.4f}",
            # Older records have no 50 % coverage.
            "50 %": lambda r: (
                f"{100 * r['coverage_50']:.1f} %" if "coverage_50" in r else ""
            ),
            "95 %": lambda r: f"{100 * r['coverage']:.1f} %",
            "steps": _steps,
            "seconds": lambda r: seconds(r["seconds"]),
            "CPU s": lambda r: seconds(r["cpu_seconds"]),
            "peak": lambda r: megabytes(r["peak_memory_bytes"]),
        }
        caption = (
            "NLPD: mean negative log predictive density; 50 %, 95 %: share of test "
            "targets within intervals; steps of Adam, * where the budget of "
            f"{arguments.get('budget', 0):g} CPU s ended them; seconds to learn and "
            "predict, and those of all processors; peak of the whole process"
        )
        title = "Gaussian processes, standardised targets"
        return [listing(title, results["records"], columns, caption)]

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return RMSE and density against seconds, a row per data set."""
        panels = [
            Panel(
                title=f"{data['name']}, {data['n_train']:,} rows",
                xlabel="seconds to learn and predict",
                ylabel=label,
                extra=partial(_points, data=data, score=score),
            )
            for data in results["datasets"]
            for score, label in _SCORES.items()
        ]
        return draw(results, panels, columns=2, size=(4.8, 3.6))


def _steps(record: Mapping[str, Any]) -> str:
    if record.get("steps") is None:
        return ""
    return count(record["steps"]) + "*" * record["out_of_time"]


def _points(axes: Any, results: Mapping[str, Any], data: Any, score: str) -> None:
    for record in of(results["records"], dataset=data["name"]):
        style = METHODS[record["method"]]
        look = {"color": style.colour, "marker": style.marker, "linestyle": ""}
        axes.plot(record["seconds"], record[score], ms=8, label=style.label, **look)
    if score == "rmse" and data["noise_rmse"] is not None:
        axes.axhline(data["noise_rmse"], color="0.4", ls=":", label="noise alone")
    logarithmic(axes, "x")
    axes.margins(x=0.15, y=0.12)


def _standardised(
    name: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
    noise: float | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Standardise columns and targets by the training rows."""
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
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
    return (*arrays, *held_out), described


def learn(request: Mapping[str, Any]) -> dict[str, Any]:
    """Learn and predict in this process."""
    X, y, X_test, y_test = saved_rows(request["folder"], request["n_train"])
    few, watch = slice(0, _WARM_UP_ROWS), Stopwatch()
    size = request["n_components"]
    small = {**request, "n_components": None if size is None else 16, "budget": 0.0}
    _predict(small, X[few], y[few], X_test[few])
    warmed = watch.lap()
    mean, variance, steps, out_of_time = _predict(request, X, y, X_test)
    lap = watch.lap()
    residual, deviation = y_test - mean, np.sqrt(variance)
    low, high = (float(norm.ppf(0.5 + share / 2)) for share in (0.5, 0.95))
    density = 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
    return {
        "rmse": float(np.sqrt(np.mean(residual**2))),
        "nlpd": float(np.mean(density)),
        "coverage": float(np.mean(np.abs(residual) < high * deviation)),
        "coverage_50": float(np.mean(np.abs(residual) < low * deviation)),
        "seconds": lap.seconds,
        "cpu_seconds": lap.cpu_seconds,
        "warm_up_seconds": warmed.seconds,
        "steps": steps,
        "out_of_time": out_of_time,
    }


def _predict(
    request: Mapping[str, Any], X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any]
) -> Predicted:
    """Learn, and return means and variances of the test targets."""
    method, size, seed = request["method"], request["n_components"], request["seed"]
    if method == "scikit-learn":
        return predict_scikit_learn(X, y, X_test, noise=_NOISE)
    if method == "xgpr":
        return predict_xgpr(X, y, X_test, n_components=size, seed=seed)
    if method in ("gpytorch", "rff", "svgp"):
        predict = predict_svgp if method == "svgp" else predict_gpytorch
        asked = {"n_components": size, "noise": _NOISE, "seed": seed}
        return predict(X, y, X_test, budget=request["budget"], **asked)
    lengthscales = np.full(X.shape[1], X.shape[1] ** 0.5)
    kernel = randkern.Gaussian(lengthscales) * 1.0
    far = "prior" if method == "prior" else "features"
    model = randkern.GaussianProcessRegressor(
        kernel, _NOISE, size, far_variance=far, random_state=seed
    )
    mean, sd = model.fit(X, y).predict(X_test, return_std=True, include_noise=True)
    return Predicted(mean, sd**2)
