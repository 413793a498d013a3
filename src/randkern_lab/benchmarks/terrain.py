"""Heights of terrain between known ones: neighbours, features, and other methods.

The heights are matplotlib's sample of an elevation model, a grid of 344 by 403 places;
``--n`` of them, drawn at random, are known, and 20,000 others are predicted. Methods
are our processes given the nearest rows (Vecchia 1988), those on features, and
scikit-learn's nearest neighbours and boosted trees. Processes of features are learned
from at most 10,000 rows. Scores are the error, the mean negative log density of the
unknown heights, and the share in intervals of 95 %; peers predict no deviation. Each
fit runs in its own process, and fits 200 rows before it is timed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neighbors import KNeighborsRegressor

import randkern

from ..contenders import Contender
from ..figures import add_legend, curves, name_axes, panels
from ..options import CommonOptions, Names, Sizes, option
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, grid, measure_all
from ..tables import listing
from .gp_peers import negative_log_density

# Kilometres between places: three arc seconds, at 36 degrees north.
_SPACING = np.array([0.0925, 0.0745])
_ROUNDING = 1 / 12  # the variance of heights in whole metres
_FEATURE_ROWS, _TEST_ROWS, _NORMAL_95 = 10_000, 20_000, 1.959964


def _kernel() -> Any:
    return 1.0 * randkern.Matern(1.5, lengthscale=np.ones(2))


def _neighbors(k: int, y: np.ndarray) -> Any:
    return randkern.GaussianProcessRegressor(
        _kernel(),
        noise=_ROUNDING / np.var(y),
        n_components=None,
        n_neighbors=k,
        bounds={"noise": "fixed"},
        normalize_y=True,
        random_state=0,
    )


def _features(n_components: int, y: np.ndarray) -> Any:
    return randkern.GaussianProcessRegressor(
        _kernel(), n_components=n_components, normalize_y=True, random_state=0
    )


def _nearest(y: np.ndarray) -> Any:
    return KNeighborsRegressor(4, weights="distance")


def _trees(y: np.ndarray) -> Any:
    return HistGradientBoostingRegressor(random_state=0)


METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, dashes, make=make)
    for name, label, colour, marker, dashes, make in (
        ("neighbors-16", "16 neighbours", "blue", "o", "-", partial(_neighbors, 16)),
        ("neighbors-32", "32 neighbours", "sky", "s", "--", partial(_neighbors, 32)),
        ("features-500", "500 features", "orange", "D", "-", partial(_features, 500)),
        ("features-1000", "1,000 features", "red", "^", "--", partial(_features, 1000)),
        ("nearest", "nearest 4, weighted", "grey", "v", ":", _nearest),
        ("trees", "boosted trees", "black", "X", "-.", _trees),
    )
}


def fit_terrain(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score one method."""
    from matplotlib.cbook import get_sample_data

    with get_sample_data("jacksboro_fault_dem.npz") as file:
        heights = file["elevation"].astype(float)
    places = np.indices(heights.shape).reshape(2, -1).T
    X, y, n = places * _SPACING, heights.ravel(), request["n"]
    order = np.random.default_rng(request["seed"]).permutation(len(X))
    known, unknown = order[:n], order[n : n + _TEST_ROWS]
    name = request["method"]
    fitted = known[:_FEATURE_ROWS] if name.startswith("features") else known
    model, watch = METHODS[name].make(y[fitted]), Stopwatch()
    model.fit(X[fitted], y[fitted])
    fit = watch.lap()
    result: dict[str, Any] = {"n_train": len(fitted), "density": None, "inside": None}
    if isinstance(model, randkern.GaussianProcessRegressor):
        mean, std = model.predict(X[unknown], return_std=True, include_noise=True)
        result["density"] = negative_log_density(y[unknown] - mean, std**2)
        inside = np.abs(y[unknown] - mean) < _NORMAL_95 * std
        result["inside"] = float(inside.mean())
    else:
        mean = model.predict(X[unknown])
    predict = watch.lap()
    return {
        **result,
        "rmse": float(np.sqrt(np.mean((y[unknown] - mean) ** 2))),
        "fit_cpu_seconds": fit.cpu_seconds,
        "predict_cpu_seconds": predict.cpu_seconds,
    }


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench terrain``."""

    n: Sizes = option((10_000, 100_000), "Known places.", quick=(300,))
    methods: Names = option(tuple(METHODS), "", among=METHODS)


SKIPPED_BY = ("method", "n")


def run(options: Options) -> pd.DataFrame:
    """Fit each method at each size, in a process of its own."""

    def measure(case: Case) -> dict[str, Any]:
        own = {"label": METHODS[case["method"]].label, "seed": options.seed}
        return own | in_fresh_process(fit_terrain, case | own, {"n": 200})

    return measure_all(options, grid(n=options.n, method=options.methods), measure)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame,
        "heights between {n:,} known ones",
        "method | fitted | error (m) | −log density | in 95 % | fit | predict",
        "{label} | {n_train:,} | {rmse:.2f} | {density:.2f} | {inside:.1p} | "
        "{fit_cpu_seconds:.3g} | {predict_cpu_seconds:.3g}",
        "fit and predict: CPU seconds, predict of 20,000 unknown heights",
        per="n",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors and densities against the number of known places."""
    figure, (left, right) = panels(2)
    curves(left, frame, "n", "rmse", METHODS)
    curves(right, frame, "n", "density", METHODS, log="x")
    name_axes(left, xlabel="known places", ylabel="error in metres")
    name_axes(right, xlabel="known places", ylabel="negative log density")
    add_legend(figure)
    return figure
