"""Gaussian processes against other libraries: error, density, coverage, seconds.

The data are scikit-learn's diabetes (a quarter held out) and rows of Friedman's first
function (5 columns matter; noise of variance 1; 5,000 rows held out), or tables with
numeric targets (fold 0, or a fifth of the rows, held out; encoded by
`TabularEncoder`). The methods are randkern's features and exact process,
scikit-learn's, GPyTorch's exact process, ``RFFKernel`` (half as many frequencies) and
SVGP, if installed. Columns and targets are standardised for all. All learn a
lengthscale per column, the variance and the noise, from the same start. GPyTorch is
stopped by the density of held-out rows, or by a budget of seconds (see
:mod:`.gp_peers`), and computes in float32, `RFFKernel` and the others in float64. Exact
processes use only the first of the generated rows, and no larger tables. Each method
runs in its own process, and learns from 64 rows before it is timed.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.preprocessing import StandardScaler

import randkern
from randkern.datasets import load_dataset
from randkern.study.preparation import prepare

from ..contenders import Contender, versions_of
from ..figures import add_legend, curves, name_axes, panels
from ..options import DataOptions, Names, option
from ..process import in_fresh_process
from ..runner import Case, SkippedCase, grid, measure_all
from ..scoring import fit_and_score
from ..tables import listing
from .gp_peers import (
    NOISE,
    FourierProcess,
    GPyTorchProcess,
    ProcessWithDeviations,
    SparseProcess,
    negative_log_density,
)
from .rows import Rows, few_rows, saved, saved_rows
from .tables import kind_of, read_table, table_paths


def _own(request: Mapping[str, Any]) -> Any:
    d, size = request["n_features"], request["n_components"]
    model = randkern.GaussianProcessRegressor(
        randkern.Gaussian(np.full(d, d**0.5)) * 1.0,
        NOISE,
        size,
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


METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, "", make=make, needs=tuple(needs))
    for name, label, colour, marker, make, *needs in (
        ("features", "randkern, features", "blue", "o", _own),
        ("exact", "randkern, exact", "blue", "D", _own),
        ("scikit-learn", "scikit-learn, exact", "black", "X", _scikit_learn),
        ("gpytorch", "GPyTorch, exact", "red", "D", GPyTorchProcess, "gpytorch"),
        ("rff", "GPyTorch, RFFKernel", "red", "s", FourierProcess, "gpytorch"),
        ("svgp", "GPyTorch, SVGP", "green", "^", SparseProcess, "gpytorch"),
    )
}
_EXACT = ("exact", "scikit-learn", "gpytorch")
_TEST_ROWS = 5000


def _scores(y: NDArray[Any], moments: NDArray[Any]) -> Any:
    """Return scores of predicted means and variances."""
    residual, deviation = y - moments[0], np.sqrt(moments[1])
    low, high = (
        float(np.mean(np.abs(residual) < norm.ppf(0.5 + share / 2) * deviation))
        for share in (0.5, 0.95)
    )
    return {
        "rmse": float(np.sqrt(np.mean(residual**2))),
        "nlpd": negative_log_density(residual, moments[1]),
        "coverage": high,
        "coverage_50": low,
    }


def learn(request: Mapping[str, Any]) -> dict[str, Any]:
    """Learn and predict in this process."""
    rows = saved_rows(request["folder"], request["n_train"])
    model = METHODS[request["method"]].make(request)
    trial = fit_and_score(model, *rows, _scores)
    scores: Any = trial.score
    return {
        **scores,
        "seconds": trial.fit.seconds + trial.predict.seconds,
        "cpu_seconds": trial.fit.cpu_seconds + trial.predict.cpu_seconds,
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
    tables: Names = option(
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
    methods: Names = option(
        tuple(METHODS),
        "",
        among=METHODS,
        quick=("features", "scikit-learn", "rff", "svgp"),
    )


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """Return records with the draw if there are several, and a mark on late steps."""
    several = frame.attrs["arguments"]["seeds"] > 1
    steps = [f"{n:,.0f}" if n == n else "" for n in frame.steps.astype(float)]
    late = np.where(frame.out_of_time.eq(True), "*", "")
    draw = frame.seed if several else None
    return frame.assign(draw=draw, learned=np.char.add(steps, late))


SKIPPED_BY = ("method", "dataset")


def run(options: Options) -> pd.DataFrame:
    """Learn processes on data sets of numbers, each in a process of its own."""
    if options.tables and options.data_dir is None:
        raise ValueError("--tables are files of --data-dir, which is not given")
    described, folders = {}, {}
    with ExitStack() as stack:
        sets = generated(options) if options.data_dir is None else tables_in(options)
        for name, rows, noise in sets:
            rows, scale = _standardised(rows)
            folders[name] = stack.enter_context(saved(rows))
            described[name] = {
                "name": name,
                "n_train": len(rows.X),
                "n_test": len(rows.X_test),
                "n_features": rows.X.shape[1],
                "noise_rmse": None if noise is None else noise / scale,
            }

        def measure(case: Case) -> dict[str, Any]:
            """Run a method in its own process, which reads the rows it uses."""
            method, data = case["method"], described[case["dataset"]]
            METHODS[method].check()
            size: int | None
            used, size = data["n_train"], options.n_components
            if method in _EXACT:
                if options.data_dir is not None and used > options.exact_rows:
                    raise SkippedCase(f"an exact process of {used:,} rows")
                used, size = min(used, options.exact_rows), None
            elif method == "svgp":
                size = min(options.inducing or size, used)
            named = {"n_train": used, "n_components": size}
            request = {"folder": folders[case["dataset"]], **case, **named}
            request |= {"budget": options.budget, "n_features": data["n_features"]}
            few = few_rows(size, budget=0.0)
            result = in_fresh_process(learn, request, few)
            return {"label": METHODS[method].label, **named, **result}

        seeds = range(options.seed, options.seed + options.seeds)
        cases = grid(dataset=described, method=options.methods, seed=seeds)
        records = measure_all(options, cases, measure)
    records.attrs["datasets"] = list(described.values())
    records.attrs["versions"] = versions_of(("torch", "gpytorch"))
    return records


def generated(options: Options) -> Iterator[tuple[str, Rows, float | None]]:
    """Yield diabetes, and Friedman's first function, with the noise's deviation."""
    from sklearn.datasets import make_friedman1

    n, d, seed = options.n, options.columns, options.seed
    data = prepare(load_dataset("diabetes"), random_state=seed)
    yield "diabetes", Rows(data.X_train, data.y_train, data.X_test, data.y_test), None
    total = n + min(n, _TEST_ROWS)
    X, y = make_friedman1(total, n_features=d, noise=1.0, random_state=seed)
    yield "friedman", Rows(X[:n], y[:n], X[n:], y[n:]), 1.0


def tables_in(options: Options) -> Iterator[tuple[str, Rows, None]]:
    """Yield the tables of the folder with numeric targets."""
    paths = table_paths(options.data_dir)
    unknown = ", ".join(sorted(set(options.tables) - set(paths)))
    if unknown:
        raise ValueError(f"no table {unknown} among {', '.join(sorted(paths))}")
    for name in options.tables or paths:
        named = {"table": name, "path": paths[name], "target": options.target}
        request = {**named, "drop": (), "fold": 0, "seed": 0}
        X, y, test = read_table(request)
        if kind_of(y) == "regression":
            y, encoder = y.astype(float), randkern.TabularEncoder()
            train, held_out = (
                encoder.fit_transform(X[~test]),
                encoder.transform(X[test]),
            )
            yield name, Rows(train, y[~test], held_out, y[test]), None


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        _described(frame),
        "Gaussian processes, standardised targets",
        "data | method | seed | rows | D | RMSE | NLPD | 50 % | 95 % | steps | "
        "seconds | CPU s | peak",
        "{dataset} | {label} | {draw} | {n_train:,} | {n_components:,} | "
        "{rmse:.4f} | {nlpd:.4f} | {coverage_50:percent} | {coverage:percent} | "
        "{learned} | {seconds:seconds} | {cpu_seconds:seconds} | "
        "{peak_memory_bytes:megabytes}",
        "NLPD: mean negative log predictive density; 50 %, 95 %: share of test "
        "targets within intervals; steps of Adam, * where the budget of "
        "{arguments[budget]:g} CPU s ended them; seconds to learn and predict, and "
        "those of all processors; peak of the whole process",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors and densities against seconds, for each data set."""
    sets = {data["name"]: data for data in frame.attrs["datasets"]}
    records = frame.groupby("dataset", sort=False)
    labels = {"rmse": "test RMSE (standard deviations)", "nlpd": "negative log density"}
    figure, axes = panels(2 * len(records), 2, (4.8, 3.6))
    for i, (name, own) in enumerate(records):
        for place, (y, label) in zip(axes[2 * i :], labels.items(), strict=False):
            curves(place, own, "seconds", y, METHODS, log="x")
            name_axes(
                place,
                f"{name}, {sets[name]['n_train']:,} rows",
                xlabel="seconds to learn and predict",
                ylabel=label,
            )
        if sets[name]["noise_rmse"] is not None:
            level, look = sets[name]["noise_rmse"], {"color": "0.4", "ls": ":"}
            axes[2 * i].axhline(level, label="noise alone", **look)
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    """Return the error due to noise alone."""
    for data in frame.attrs["datasets"]:
        if data["noise_rmse"] is not None:
            level = data["noise_rmse"]
            yield f"{data['name']}: the true function would have RMSE {level:.4f}"


def _standardised(rows: Rows) -> tuple[Rows, float]:
    """Standardise by the training rows; return the scale of the targets, too."""
    scaler, y_scaler = StandardScaler().fit(rows.X), StandardScaler()
    y_scaler.fit(rows.y[:, None])
    X, X_test = map(scaler.transform, (rows.X, rows.X_test))
    y, y_test = (y_scaler.transform(y[:, None])[:, 0] for y in (rows.y, rows.y_test))
    return Rows(X, y, X_test, y_test), float(y_scaler.scale_[0])
