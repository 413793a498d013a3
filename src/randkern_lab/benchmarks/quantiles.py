"""Quantiles of a target whose noise depends on the row: errors, coverage, seconds.

Targets of rows of five normal columns are a smooth function plus noise that is normal
in some rows and skewed in others, and whose size depends on a column, so that the true
quantiles are known. Methods predict the quantiles of 5, 50 and 95 %: ours on features
and with the exact kernel, scikit-learn's boosted trees (one model per quantile) and
its linear quantile regression, all with their defaults. Each fit runs in its own
process, and fits 64 rows before it is timed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import gamma, norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import mean_pinball_loss

import randkern

from ..contenders import Contender
from ..figures import add_legend, curves, name_axes, panels
from ..options import CommonOptions, Names, Sizes, option
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, grid, measure_all
from ..tables import listing

LEVELS = (0.05, 0.5, 0.95)
_COLUMNS, _TEST_ROWS, _SHAPE = 5, 5000, 2.0


class OnePerQuantile:
    """A regressor for each quantile, as one model."""

    def __init__(self, make: Callable[[float], Any]) -> None:
        self.models = [make(level) for level in LEVELS]

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        for model in self.models:
            model.fit(X, y)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([model.predict(X) for model in self.models])


def _own(n_components: int | None, seed: int) -> Any:
    return randkern.KernelQuantileRegressor(
        quantiles=LEVELS, n_components=n_components, random_state=seed
    )


def _trees(seed: int) -> Any:
    return OnePerQuantile(
        lambda level: HistGradientBoostingRegressor(
            loss="quantile", quantile=level, random_state=seed
        )
    )


def _linear(seed: int) -> Any:
    return OnePerQuantile(lambda level: QuantileRegressor(quantile=level))


METHODS: Mapping[str, Contender] = {
    "features": Contender("randkern, features", "blue", "o", make=partial(_own, 500)),
    "exact": Contender(
        "randkern, exact", "black", "D", "--", make=partial(_own, None), max_rows=3000
    ),
    "trees": Contender("boosted trees", "red", "v", ":", make=_trees),
    "linear": Contender("linear", "grey", "s", "-.", make=_linear, max_rows=10_000),
}


def draw_rows(
    n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, targets and true quantiles (n, 3)."""
    X = rng.normal(size=(n, _COLUMNS))
    centre = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    size = 0.3 + 0.7 * norm.cdf(2 * X[:, 3])
    skewed = X[:, 4] > 0
    levels = rng.uniform(size=n)

    def noise(level: Any) -> np.ndarray:
        other = (gamma.ppf(level, _SHAPE) - _SHAPE) / np.sqrt(_SHAPE)
        return size * np.where(skewed, other, norm.ppf(level))

    truth = [centre + noise(np.full(n, level)) for level in LEVELS]
    return X, centre + noise(levels), np.column_stack(truth)


def fit_quantiles(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score one method."""
    rng = np.random.default_rng([request["seed"], request["n"]])
    X, y, _ = draw_rows(request["n"], rng)
    X_test, y_test, truth = draw_rows(_TEST_ROWS, rng)
    model, watch = METHODS[request["method"]].make(request["seed"]), Stopwatch()
    model.fit(X, y)
    fit, predicted = watch.lap(), model.predict(X_test)
    inside = (predicted[:, 0] <= y_test) & (y_test <= predicted[:, 2])
    pinball = (
        mean_pinball_loss(y_test, q, alpha=a)
        for q, a in zip(predicted.T, LEVELS, strict=True)
    )
    return {
        "rmse": float(np.sqrt(np.mean((predicted - truth) ** 2))),
        "pinball": float(np.mean(list(pinball))),
        "coverage": float(inside.mean()),
        "crossing": float(np.mean((np.diff(predicted, axis=1) < 0).any(axis=1))),
        "train_seconds": fit.seconds,
        "train_cpu_seconds": fit.cpu_seconds,
    }


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench quantiles``."""

    n: Sizes = option((1000, 3000, 10_000, 30_000), "Rows.", quick=(100,))
    seeds: int = option(3, "Data sets of each size.", quick=1)
    methods: Names = option(tuple(METHODS), "", among=METHODS)


SKIPPED_BY = ("method", "n")


def run(options: Options) -> pd.DataFrame:
    """Fit each method to each data set, in a process of its own."""

    def measure(case: Case) -> dict[str, Any]:
        method = METHODS[case["method"]]
        method.check(case["n"])
        return {
            "label": method.label,
            **in_fresh_process(fit_quantiles, case, {"n": 64}),
        }

    cases = grid(
        n=options.n,
        seed=range(options.seed, options.seed + options.seeds),
        method=options.methods,
    )
    return measure_all(options, cases, measure)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    scores = ["rmse", "pinball", "coverage"]
    means = {
        name: (name, "mean") for name in (*scores, "crossing", "train_cpu_seconds")
    }
    spread = {f"{name}_std": (name, "std") for name in scores}
    seeds = frame.groupby(["label", "n"], sort=False)
    yield from listing(
        seeds.agg(n_seeds=("seed", "size"), **means, **spread).reset_index(),
        "quantiles of 5, 50 and 95 %, and the rows between the outer two (90 %)",
        "method | rows | RMSE | pinball | between | crossing | CPU s",
        "{label} | {n:,} | {rmse:.3f} ± {rmse_std:.3f} | {pinball:.4f} ± "
        "{pinball_std:.4f} | {coverage:.1p} ± {coverage_std:.1p} | "
        "{crossing:.1p} | {train_cpu_seconds:.2f}",
        "means over {n_seeds} data sets, ± standard deviations; RMSE: from the "
        "true quantiles; between and crossing: % of test rows",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors, with the range of the data sets, and seconds."""
    figure, (left, right) = panels(2)
    curves(left, frame, "n", "rmse", METHODS, bars="spread")
    curves(right, frame, "n", "train_cpu_seconds", METHODS, bars="spread")
    name_axes(left, xlabel="training rows", ylabel="RMSE from true quantiles")
    name_axes(right, xlabel="training rows", ylabel="CPU seconds of the fit")
    add_legend(figure)
    return figure
