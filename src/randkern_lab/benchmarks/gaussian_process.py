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

from ..contenders import Contender, known_names
from ..options import DataOptions, option
from ..panels import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Panel, draw, logarithmic
from ..process import in_fresh_process
from ..runner import Case, Experiment, SkippedCase, grid
from ..tables import TextTable, count, listing, megabytes, of, seconds, skip_notes
from .gp_peers import (
    NOISE,
    FourierProcess,
    GPyTorchProcess,
    ProcessWithDeviations,
    SparseProcess,
    XGPRProcess,
)
from .rows import Rows, saved, saved_rows, warm_trial
from .tables import kind_of, read_table, table_paths

__all__ = ["METHODS", "GaussianProcesses", "Options", "learn"]


def _own(request: Mapping[str, Any], far_variance: str = "features") -> Any:
    d, size = request["n_features"], request["n_components"]
    model = randkern.GaussianProcessRegressor(
        randkern.Gaussian(np.full(d, d**0.5)) * 1.0,
        NOISE,
        size,
        far_variance=far_variance,
        random_state=request["seed"],
    )
    return ProcessWithDeviations(model, include_noise=True)


def _scikit_learn(request: Mapping[str, Any]) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    d = request["n_features"]
    kernel = ConstantKernel(1.0) * RBF(np.full(d, d**0.5), (1e-5, 1e5))
    # The white kernel is the noise, and is included in the predicted deviations.
    return ProcessWithDeviations(GaussianProcessRegressor(kernel + WhiteKernel(NOISE)))


_prior = partial(_own, far_variance="prior")
METHODS: Mapping[str, Contender] = {
    "features": Contender("randkern, features", BLUE, "o", make=_own),
    "prior": Contender("randkern, far_variance='prior'", SKY, "v", make=_prior),
    "exact": Contender("randkern, exact", BLUE, "D", make=_own),
    "scikit-learn": Contender("scikit-learn, exact", BLACK, "X", make=_scikit_learn),
    "gpytorch": Contender(
        "GPyTorch, exact", RED, "D", make=GPyTorchProcess, needs=("gpytorch",)
    ),
    "rff": Contender(
        "GPyTorch, RFFKernel", RED, "s", make=FourierProcess, needs=("gpytorch",)
    ),
    "svgp": Contender(
        "GPyTorch, SVGP", GREEN, "^", make=SparseProcess, needs=("gpytorch",)
    ),
    "xgpr": Contender("xGPR", ORANGE, "P", make=XGPRProcess, needs=("xGPR",)),
}
_EXACT = ("exact", "scikit-learn", "gpytorch")
_TEST_ROWS = 5000
_SCORES = {"rmse": "test RMSE (standard deviations)", "nlpd": "negative log density"}


def _scores(y: NDArray[Any], law: NDArray[Any]) -> Any:
    """Return scores of predicted means and variances."""
    residual, deviation = y - law[0], np.sqrt(law[1])
    low, high = (
        float(np.mean(np.abs(residual) < norm.ppf(0.5 + share / 2) * deviation))
        for share in (0.5, 0.95)
    )
    return {
        "rmse": float(np.sqrt(np.mean(residual**2))),
        "nlpd": float(-norm.logpdf(residual, scale=deviation).mean()),
        "coverage": high,
        "coverage_50": low,
    }


def learn(request: Mapping[str, Any]) -> dict[str, Any]:
    """Learn and predict in this process."""
    rows = saved_rows(request["folder"], request["n_train"])
    contender = METHODS[request["method"]]
    trial, warm_up, model = warm_trial(contender, request, rows, _scores)
    return {
        **trial.score,
        "seconds": trial.fit.seconds + trial.predict.seconds,
        "cpu_seconds": trial.fit.cpu_seconds + trial.predict.cpu_seconds,
        "warm_up_seconds": warm_up,
        "steps": getattr(model, "steps_", None),
        "out_of_time": getattr(model, "out_of_time_", None),
    }


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
        if options.tables and options.data_dir is None:
            raise ValueError("--tables are files of --data-dir, which is not given")
        self.described, self.folders = {}, {}
        sets = self._generated() if options.data_dir is None else self._tables()
        for name, rows, noise in sets:
            rows, scale = _standardised(rows)
            self.folders[name] = self.resources.enter_context(saved(rows))
            self.described[name] = {
                "name": name,
                "n_train": len(rows.X),
                "n_test": len(rows.X_test),
                "n_features": rows.X.shape[1],
                "noise_rmse": None if noise is None else noise / scale,
            }

    def _generated(self) -> Iterator[tuple[str, Rows, float | None]]:
        """Yield diabetes, and Friedman's first function, with the noise's deviation."""
        from sklearn.datasets import make_friedman1

        n, d, seed = self.options.n, self.options.columns, self.options.seed
        data = prepare(load_dataset("diabetes"), random_state=seed)
        yield (
            "diabetes",
            Rows(data.X_train, data.y_train, data.X_test, data.y_test),
            None,
        )
        total = n + min(n, _TEST_ROWS)
        X, y = make_friedman1(total, n_features=d, noise=1.0, random_state=seed)
        yield "friedman", Rows(X[:n], y[:n], X[n:], y[n:]), 1.0

    def _tables(self) -> Iterator[tuple[str, Rows, None]]:
        """Yield the tables of the folder with numeric targets."""
        options = self.options
        paths = table_paths(options.data_dir)
        for name in known_names("table", options.tables or tuple(paths), paths):
            request = {"table": name, "path": paths[name], "target": options.target}
            X, y, test = read_table({**request, "fold": 0, "rows": None, "seed": 0})
            if kind_of(y) == "regression":
                y, encoder = y.astype(float), randkern.TabularEncoder()
                train, held_out = (
                    encoder.fit_transform(X[~test]),
                    encoder.transform(X[test]),
                )
                yield name, Rows(train, y[~test], held_out, y[test]), None

    def cases(self) -> Iterator[Case]:
        """Return data sets, methods and seeds."""
        first = self.options.seed
        seeds = range(first, first + self.options.seeds)
        yield from grid(dataset=self.described, method=self.methods, seed=seeds)

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the method in its own process, which reads the rows it uses."""
        method, options = case["method"], self.options
        METHODS[method].check()
        described = self.described[case["dataset"]]
        used, size = described["n_train"], options.n_components
        if method in _EXACT:
            if options.data_dir is not None and used > options.exact_rows:
                raise SkippedCase(f"an exact process of {used:,} rows")
            used, size = min(used, options.exact_rows), None
        elif method == "svgp":
            size = min(options.inducing or size, used)
        named = {"n_train": used, "n_components": size}
        request = {"folder": self.folders[case["dataset"]], **case, **named}
        request |= {"budget": options.budget, "n_features": described["n_features"]}
        found = in_fresh_process(learn, request)
        return {"label": METHODS[method].label, **named, **found}

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


def _standardised(rows: Rows) -> tuple[Rows, float]:
    """Standardise by the training rows; return the scale of the targets, too."""
    X, y, X_test, y_test = rows
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    middle, scale = float(y.mean()), float(y.std())
    scaled = [((part - centre) / spread) for part in (X, X_test)]
    y, y_test = (y - middle) / scale, (y_test - middle) / scale
    return Rows(scaled[0], y, scaled[1], y_test), scale
