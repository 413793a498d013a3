"""Ridge regression on landmarks beside Falkon: error against CPU seconds.

Two generated data sets: ``normal``, 100,000 rows of 20 normal columns, and ``tails``,
41,157 rows of 9 columns whose entries are heavy-tailed, mixtures of three log-normal
columns; targets are sums of sines and of moduli of random projections, with noise of
standard deviation 0.4. Columns and targets are standardised, rows are float32, the
kernel is Gaussian (lengthscales 6 and 2), and the penalty 1e-6 per row. Both methods
solve by conjugate gradients on landmarks (Rudi, Carratino and Rosasco 2017); Falkon
draws its landmarks uniformly. Each fit runs in its own process, and fits 2,000 rows
before it is timed.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error

import randkern

from ..contenders import Contender, check_any, versions_of
from ..figures import add_legend, curves, name_axes, panels
from ..options import CommonOptions, Names, Sizes, option
from ..process import in_fresh_process
from ..runner import Case, grid, measure_all
from ..scoring import fit_and_score
from ..tables import listing

_PENALTY = 1e-6
_TEST_ROWS = 5000
# Rows, columns and lengthscale.
DATA = {"normal": (100_000, 20, 6.0), "tails": (41_157, 9, 2.0)}


def _ours(request: Mapping[str, Any], n: int) -> Any:
    return randkern.KernelRidgeRegressor(
        randkern.Gaussian(request["lengthscale"]),
        _PENALTY * n,
        request["n_components"],
        features="nystrom",
        memory_limit="4GB",
        random_state=request["seed"],
    )


class Falkon:
    """Falkon on arrays and the CPU, with a penalty per row."""

    def __init__(self, request: Mapping[str, Any], n: int) -> None:
        self.torch = importlib.import_module("torch")
        falkon = importlib.import_module("falkon")
        self.model = falkon.Falkon(
            kernel=falkon.kernels.GaussianKernel(request["lengthscale"]),
            penalty=_PENALTY,
            M=min(request["n_components"], n),
            seed=request["seed"],
            error_every=None,
            options=falkon.FalkonOptions(use_cpu=True),
        )

    def fit(self, X: Any, y: Any) -> None:
        self.model.fit(*map(self.torch.from_numpy, (X, y[:, None])))

    def predict(self, X: Any) -> Any:
        return self.model.predict(self.torch.from_numpy(X)).numpy()[:, 0]


METHODS = {
    "landmarks": Contender("randkern, landmarks", "green", "^", "-", make=_ours),
    "falkon": Contender("Falkon", "black", "X", "--", make=Falkon, needs=("falkon",)),
}


def generated(name: str, n: int, seed: int) -> tuple[Any, Any]:
    """Return `n` standardised rows of a data set, and their targets, in float32."""
    d = DATA[name][1]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if name == "tails":
        X = rng.lognormal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.3 * X
    waves, moduli = np.hsplit(X @ rng.normal(size=(d, 6)), 2)
    y = np.sin(waves / 2).sum(axis=1) + 0.2 * np.abs(moduli).sum(axis=1)
    y += 0.4 * rng.normal(size=n)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    return X.astype(np.float32), y.astype(np.float32)


def fit_landmarks(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score one method."""
    n, name = request["n_train"], request["dataset"]
    X, y = generated(name, n + _TEST_ROWS, request["seed"])
    model = METHODS[request["method"]].make(request, n)
    rows = X[:n], y[:n], X[n:], y[n:]
    trial = fit_and_score(model, *rows, root_mean_squared_error)
    return {"rmse": trial.score, **trial.fit._asdict()}


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench landmarks``."""

    data: Names = option(tuple(DATA), "", among=DATA)
    n: int | None = option(None, "Training rows; default: all.", quick=2000)
    n_components: Sizes = option(
        (1000, 2000, 4000), "Numbers of landmarks.", quick=(50, 100)
    )
    methods: Names = option(tuple(METHODS), "", among=METHODS)


SKIPPED_BY = ("method", "dataset", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Fit each method with each number of landmarks, in a process of its own."""

    def measure(case: Case) -> dict[str, Any]:
        contender, (n, d, lengthscale) = METHODS[case["method"]], DATA[case["dataset"]]
        contender.check(n, d, case["n_components"])
        own = {"label": contender.label, "n_train": options.n or n, "d": d}
        own |= {"lengthscale": lengthscale, "seed": options.seed}
        return own | in_fresh_process(fit_landmarks, case | own, {"n_train": 2000})

    cases = grid(
        dataset=options.data, n_components=options.n_components, method=options.methods
    )
    records = measure_all(options, cases, measure)
    check_any(records)
    records.attrs["peers"] = versions_of(["torch", "falkon"])
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame,
        "{dataset}: {n_train:,} rows, {d} columns",
        "landmarks | method | RMSE | CPU s | seconds | peak",
        "{n_components:,} | {label} | {rmse:.4f} | {cpu_seconds:.3g} | {seconds:.3g} | "
        "{peak_memory_bytes:megabytes}",
        "RMSE in standard deviations of the targets; seconds of the fit; peak of the "
        "whole process, with imports and data",
        per="dataset",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return the errors of each data set against CPU seconds."""
    sets = frame.groupby("dataset", sort=False)
    figure, axes = panels(len(sets))
    for place, (name, own) in zip(axes, sets, strict=True):
        curves(place, own, "cpu_seconds", "rmse", METHODS)
        name_axes(place, str(name), "CPU seconds of the fit", "RMSE")
    add_legend(figure)
    return figure
