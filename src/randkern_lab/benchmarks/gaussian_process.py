"""Gaussian processes beside GPyTorch and scikit-learn: error, density, seconds.

Learning and predicting, each contender in a process of its own, on two data sets:
scikit-learn's diabetes (a quarter held out), and Friedman's first function of
``--columns`` columns, of which 5 matter, with noise of variance 1. Columns and targets
are standardised for all. Every contender learns a lengthscale per column, the variance
and the noise, from the same start: lengthscales √d, variance 1, noise 0.1.

randkern on features and exactly; scikit-learn exactly; GPyTorch's RFFKernel by full
gradients of the likelihood and SVGP in batches, in float32 with Adam, where it is
installed.
"""

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.datasets import load_dataset
from randkern.study.preparation import prepare

from ..options import CommonOptions, option
from ..panels import BLACK, BLUE, GREEN, RED, Panel, Style, draw, logarithmic
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment, SkippedCase
from ..tables import TextTable, count, listing, megabytes, of, seconds
from .gpytorch_models import predict_rff, predict_svgp
from .rows import known_names, saved_arrays, saved_rows

__all__ = ["METHODS", "GaussianProcesses", "Options"]

METHODS: Mapping[str, Style] = {
    "features": Style("randkern, features", BLUE),
    "exact": Style("randkern, exact", BLUE, "D"),
    "scikit-learn": Style("scikit-learn, exact", BLACK, "X"),
    "rff": Style("GPyTorch, RFFKernel", RED, "s"),
    "svgp": Style("GPyTorch, SVGP", GREEN, "^"),
}
_EXACT, _GPYTORCH = ("exact", "scikit-learn"), ("rff", "svgp")
_WARM_UP_ROWS, _TEST_ROWS = 64, 5000
_NOISE = 0.1


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern bench gp`` takes."""

    n: int = option(100_000, "Generated training rows.", quick=200)
    columns: int = option(10, "Of generated rows; 5 matter.", least=5)
    n_components: int = option(256, "Features, or inducing points.", quick=40)
    exact_rows: int = option(
        1000, "Training rows of exact processes at most.", quick=80
    )
    steps: int = option(50, "Of Adam, for RFFKernel.", quick=5)
    epochs: int = option(10, "Of SVGP.", quick=1)
    methods: tuple[str, ...] = option(
        tuple(METHODS), "Of features, exact, scikit-learn, rff, svgp."
    )


class GaussianProcesses(Experiment):
    """A process for each contender and data set."""

    name = "gp"
    title = "Error, density and seconds of Gaussian processes, beside GPyTorch."
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Write both data sets to files for the processes."""
        options = self.options
        known_names("method", options.methods, METHODS)
        data = prepare(load_dataset("diabetes"), random_state=options.seed)
        diabetes = data.X_train, data.y_train, data.X_test, data.y_test
        tasks = [
            standardised("diabetes", *diabetes, noise=None),
            friedman(options.n, options.columns, options.seed),
        ]
        self.described = [described for _, described in tasks]
        self.folders = {
            described["name"]: self.resources.enter_context(saved_arrays(*arrays))
            for arrays, described in tasks
        }

    def cases(self) -> Iterator[Case]:
        """Return contenders on both data sets; exact ones take the first rows."""
        for described in self.described:
            for method in dict.fromkeys(self.options.methods):
                n, size = described["n_train"], self.options.n_components
                if method in _EXACT:
                    n = min(n, self.options.exact_rows)
                named = {"dataset": described["name"], "method": method, "n_train": n}
                exact = None if method in _EXACT else size
                yield named | {
                    "n_components": min(size, n) if method == "svgp" else exact
                }

    def measure(self, case: Case) -> dict[str, Any]:
        """Ask a process of its own, which reads the rows that it uses."""
        if case["method"] in _GPYTORCH and importlib.util.find_spec("gpytorch") is None:
            raise SkippedCase("gpytorch is not installed; run: pip install gpytorch")
        options = self.options
        request = {
            **case,
            **{"steps": options.steps, "epochs": options.epochs, "seed": options.seed},
            "folder": self.folders[case["dataset"]],
        }
        try:
            found = in_fresh_process(learn_and_predict, request)
        except ValueError as error:
            raise SkippedCase(str(error)) from error
        return {"label": METHODS[case["method"]].label, **found}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the data sets, and versions of the peers."""
        versions = dict(results["versions"])
        for package in ("torch", "gpytorch"):
            found = importlib.util.find_spec(package) is not None
            versions[package] = metadata.version(package) if found else None
        return {"datasets": self.described, "versions": versions}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the error that noise alone makes, and who was skipped."""
        for data in results["datasets"]:
            if data["noise_rmse"] is not None:
                yield (
                    f"{data['name']}: the true function would have RMSE "
                    f"{data['noise_rmse']:.4f}"
                )
        for note in results["skipped"]:
            yield f"skipped {note['method']}, {note['dataset']}: {note['reason']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return every contender: errors, densities, seconds, memory."""
        columns = {
            "data": lambda r: r["dataset"],
            "method": lambda r: r["label"],
            "rows": lambda r: count(r["n_train"]),
            "D": lambda r: (
                "" if r["n_components"] is None else count(r["n_components"])
            ),
            "RMSE": lambda r: f"{r['rmse']:.4f}",
            "NLPD": lambda r: f"{r['nlpd']:.4f}",
            "95 %": lambda r: f"{100 * r['coverage']:.1f} %",
            "seconds": lambda r: seconds(r["seconds"]),
            "CPU s": lambda r: seconds(r["cpu_seconds"]),
            "peak": lambda r: megabytes(r["peak_memory_bytes"]),
        }
        caption = (
            "NLPD: mean negative log predictive density; 95 %: share of test targets "
            "within intervals; seconds to learn and predict, and those of all "
            "processors; peak of the whole process"
        )
        title = "Gaussian processes, standardised targets"
        return [listing(title, results["records"], columns, caption)]

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return RMSE and negative log density against seconds, by data set."""
        labels = {
            "rmse": "test RMSE (standard deviations)",
            "nlpd": "negative log density",
        }
        panels = [
            Panel(
                title=f"{data['name']}, {data['n_train']:,} rows",
                xlabel="seconds to learn and predict",
                ylabel=label,
                extra=lambda axes, found, d=data, s=score: _points(axes, found, d, s),
            )
            for data in results["datasets"]
            for score, label in labels.items()
        ]
        return draw(results, panels, columns=2, size=(4.8, 3.4), legend="inside")


def friedman(
    n: int, n_features: int, seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return Friedman's first function with noise of variance 1, standardised."""
    from sklearn.datasets import make_friedman1

    n_test = min(n, _TEST_ROWS)
    X, y = make_friedman1(
        n + n_test, n_features=n_features, noise=1.0, random_state=seed
    )
    return standardised("friedman", X[:n], y[:n], X[n:], y[n:], noise=1.0)


def standardised(
    name: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
    noise: float | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Shift and divide columns and targets as on the training rows; describe them."""
    centre, spread = X.mean(axis=0), X.std(axis=0)
    middle, scale = float(y.mean()), float(y.std())
    train = (X - centre) / spread, (y - middle) / scale
    test = (X_test - centre) / spread, (y_test - middle) / scale
    described = {
        "name": name,
        "n_train": len(X),
        "n_test": len(X_test),
        "n_features": int(X.shape[1]),
        "noise_rmse": None if noise is None else noise / scale,
    }
    return (*train, *test), described


def learn_and_predict(request: Mapping[str, Any]) -> dict[str, Any]:
    """Learn, predict and score in this process, after 64 rows that warm it up."""
    X, y, X_test, y_test = saved_rows(request["folder"], request["n_train"])
    few = slice(0, _WARM_UP_ROWS)
    small = {**request, "n_components": 16, "steps": 2, "epochs": 1}
    watch = Stopwatch()
    predict(small, X[few], y[few], X_test[few])
    warm_up = watch.lap().seconds
    mean, variance = predict(request, X, y, X_test)
    took = watch.lap()
    residual = y_test - mean
    density = 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
    return {
        "rmse": float(np.sqrt(np.mean(residual**2))),
        "nlpd": float(np.mean(density)),
        "coverage": float(np.mean(np.abs(residual) < 1.96 * np.sqrt(variance))),
        **took._asdict(),
        "warm_up_seconds": warm_up,
    }


def predict(
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


def _points(
    axes: Any, results: Mapping[str, Any], data: Mapping[str, Any], score: str
) -> None:
    for record in of(results["records"], dataset=data["name"]):
        style = METHODS[record["method"]]
        label = f"{record['label']} ({record['n_train']:,} rows)"
        point = record["seconds"], record[score]
        axes.plot(*point, style.marker, color=style.colour, ms=8, label=label)
    if score == "rmse" and data["noise_rmse"] is not None:
        axes.axhline(
            data["noise_rmse"], color="0.4", lw=1.0, ls=":", label="noise alone"
        )
    logarithmic(axes, "x")
    axes.margins(x=0.15, y=0.12)
