"""Convergence of optical features to their kernel: error and tails (appendix C).

Ohana et al. (2020), appendix C.

The original. For features |Ux|^m with real normal U and m > 1, the upper tail
P(k̂(x, y) − k(x, y) ≥ t) is bounded by D·exp(−C(Dt)^{1/m}) with an unknown constant C
(eq. 31); for m = 1 both tails together by 2·exp(−c·min(t²D/K², tD/K)) (eq. 22). The
higher the degree m, the heavier the tails and the slower the convergence. Nothing is
measured; Fig. 2 is cited as evidence.

Here. The error of the Gram matrix of some rows of norm 1 against D = 10² to 10⁵,
compared to the square root of the exact variance, (K_{2m} − K_m²)/D summed over
entries; and how often k̂ is above or below k by some number of standard deviations, for
x = y and for rows at 60 degrees, compared to a normal distribution. `constants` has the
largest C for which the bound of eq. 31 holds in the measurements; that it holds with
this C says nothing. A C independent of D would mean that the bound has the right form;
one that falls with D, that it does not hold with a constant. C falls for every degree,
and none can hold for all D: at a fixed number of standard deviations the share tends to
that of a normal distribution, while Dt grows as √D and the bound tends to 0. (The union
bound of eq. 26 compares every summand with the whole sum, not with its D-th part.) For
m = 1 the largest c of eq. 22 is a table; K is the sub-exponential norm of one summand,
sup_p (E|X|^p)^{1/p}/p, computed from draws. There the bound has the right form: c stays
above a constant for all D, as the exponent grows with t²D.

Deviations.

- C is that of both tails together, and is also given for m = 1: the paper has eq. 31
  for the upper tail and m > 1.
- U is complex normal, as on the device and in the rest of the paper.
- Entries of U are independent (``projection="dense"``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.preprocessing import normalize

import randkern
from randkern.datasets import load_dataset

from ..figures import Style, add_legend, curves, name_axes, panels
from ..options import DataOptions, Sizes, option
from ..runner import Case, grid, measure_all
from ..tables import fitted_power, listing, pivot

DEGREES = (1, 2, 3, 4)
PAIRS = {"equal": 0.0, "60 degrees": np.pi / 3}
_STYLES = {
    1: Style("m = 1", "green", "o", "-."),
    2: Style("m = 2", "blue", "s"),
    3: Style("m = 3", "pink", "D", (0, (4, 2))),
    4: Style("m = 4", "red", "^", ":"),
}
# In units of the formula's standard deviation.
_DEVIATIONS = tuple(np.arange(0.0, 8.25, 0.25))
# Those in the table.
_LISTED, _HEADINGS = (1.0, 2.0, 3.0, 4.0, 6.0), {m: f"m = {m}" for m in DEGREES}
# Columns drawn at a time; every D of them are one estimate.
_COLUMNS = 2**20


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce optical-convergence``."""

    data: str = option("digits", "Whose rows the Gram matrix is of, scaled to norm 1.")
    rows: int = option(40, "Rows of the Gram matrix.", quick=20)
    n_components: Sizes = option(
        (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
        "Numbers of features.",
        quick=(10, 30, 100, 300),
    )
    tail_components: Sizes = option(
        (100, 300, 1000, 3000, 10_000),
        "Numbers of features of the tails.",
        quick=(100,),
    )
    repeats: int = option(100, "Draws of each Gram matrix.", quick=10)
    tail_draws: int = option(50_000, "Draws of the tails.", quick=5000)


def run(options: Options) -> pd.DataFrame:
    """Measure errors of Gram matrices against D, then tails of single entries."""
    data = load_dataset(options.data, data_dir=options.data_dir)
    X = unit_rows(np.asarray(data.X_train, float), options.rows, options.seed)

    def measure(case: Case) -> Any:
        degree, size = case["degree"], case["n_components"]
        seed = options.seed + 100_003 * degree + size
        if case["measure"] == "error":
            return gram_error(X, degree, size, options.repeats, seed)
        return tails(degree, size, options.tail_draws, seed)

    cases = [
        *grid(measure=["error"], degree=DEGREES, n_components=options.n_components),
        *grid(measure=["tail"], degree=DEGREES, n_components=options.tail_components),
    ]
    records = measure_all(options, cases, measure)
    described = {"name": data.name, "n_rows": len(X), "n_features": X.shape[1]}
    records.attrs["dataset"] = described
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from pivot(
        frame.query("measure == 'error'"),
        "relative error of the Gram matrix of {dataset[n_rows]} rows of "
        "{dataset[name]} (formula)",
        "n_components",
        "degree",
        "{error:.4f} ({predicted:.4f})",
        headings=_HEADINGS,
    )
    yield from pivot(
        frame.query(f"measure == 'tail' and deviation in {_LISTED}"),
        "share of {draws:,} draws above / below the kernel by more standard deviations",
        ("pair", "n_components", "deviation"),
        "degree",
        "{share:.2e} / {share_below:.1e}",
        headings=_HEADINGS,
        label=lambda pair, size, deviation: f"{pair}, D = {size:,}: {deviation:g}",
    )
    yield from listing(
        bernstein(frame),
        "equation 22, m = 1: the largest c with which its bound holds",
        "pair | D | K | c",
        "{pair} | {n_components:count} | {K:.3f} | {c:.3f}",
    )
    yield from pivot(
        constants(frame),
        "equation 31: the largest C with which its bound holds",
        ("pair", "n_components"),
        "degree",
        "{C:.3f}",
        headings=_HEADINGS,
        label=lambda pair, size: f"{pair}, {size:,}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors beside the formula, and the tails on both sides."""
    figure, (left, right) = panels(2)
    errors, shown = frame.query("measure == 'error'"), tail(frame)
    markers = {m: replace(style, dashes="") for m, style in _STYLES.items()}
    curves(left, errors, "n_components", "error", markers, "degree")
    title = "error: markers measured, lines the formula"
    name_axes(left, title, ylabel="‖ZZᵀ − K‖ / ‖K‖")
    above = shown[shown.share > 0]
    curves(right, above, "deviation", "share", _STYLES, "degree", log="")
    title = f"tails at D = {shown.n_components.iloc[0]:,.0f}, x = y (dashed: below)"
    label = "deviation from K, in standard deviations of the formula"
    name_axes(right, title, label, "share of draws beyond")
    for degree, style in _STYLES.items():
        own, below = (rows[rows.degree == degree] for rows in (errors, shown))
        look: Mapping[str, Any] = {"color": style.colour, "linestyle": style.dashes}
        left.plot(own.n_components, own.predicted, lw=1.3, **look)
        below, look = below[below.share_below > 0], {"color": style.colour}
        right.plot(below.deviation, below.share_below, "--", lw=1.0, **look)
    own = shown[(shown.degree == 1) & (shown.normal > 0.3 / shown.draws)]
    label = "normal distribution"
    right.plot(own.deviation, own.normal, color="0.4", lw=1.0, label=label)
    right.set_yscale("log")
    add_legend(figure, "right")
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for degree, own in frame.query("measure == 'error'").groupby("degree"):
        exponent = fitted_power(own.n_components, own.error)
        if exponent is not None:
            yield (
                f"m = {degree}: the error falls as D^{exponent:.3f}; a feature's "
                f"variance at x = y is {_relative_variance(degree):.0f} K²"
            )


def tail(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the tails of the figure: those of x = y at the largest D."""
    own = frame.query("measure == 'tail' and pair == 'equal'")
    return own[own.n_components == own.n_components.max()]


def unit_rows(X: NDArray[Any], n: int, seed: int) -> NDArray[np.float64]:
    """Return some nonzero rows, divided by their norms."""
    X = normalize(X[X.any(axis=1)])
    return np.asarray(X[np.random.default_rng(seed).permutation(len(X))[:n]])


def optical_features(
    X: NDArray[Any], degree: int, n_columns: int, seed: int
) -> NDArray[Any]:
    """Return |Ux|^m, not divided by √D, in columns of independent entries."""
    features = randkern.RandomFeatures(
        randkern.Optical(degree), n_columns, projection="dense", random_state=seed
    )
    return np.asarray(features.fit_transform(X) * np.sqrt(n_columns))


def gram_error(
    X: NDArray[Any], degree: int, size: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Return the error of Gram matrices of `size` features, and its formula."""
    exact = randkern.Optical(degree)(X)
    variance = randkern.Optical(2 * degree)(X) - exact**2
    squared = []
    for repeat in range(repeats):
        Z = optical_features(X, degree, size, seed=1000 * seed + repeat)
        squared.append(np.sum((Z @ Z.T / size - exact) ** 2))
    scale = np.linalg.norm(exact)
    error = float(np.sqrt(np.mean(squared)) / scale)
    predicted = float(np.sqrt(variance.sum() / size) / scale)
    return {"error": error, "predicted": predicted, "repeats": repeats}


def tails(degree: int, size: int, draws: int, seed: int) -> Iterator[Case]:
    """Yield how often a product of `size` features deviates from its kernel."""
    # For rows of unit norm, the distribution depends only on their angle.
    X = np.array([[np.cos(angle), np.sin(angle)] for angle in (0.0, *PAIRS.values())])
    exact = randkern.Optical(degree)(X)[0, 1:]
    spread = np.sqrt((randkern.Optical(2 * degree)(X)[0, 1:] - exact**2) / size)
    parts = []
    at_once = max(1, _COLUMNS // size)
    for position, first in enumerate(range(0, draws, at_once)):
        n = min(at_once, draws - first)
        Z = optical_features(X, degree, n * size, seed=1000 * seed + position)
        products = (Z[0] * Z[1:]).reshape(len(PAIRS), n, size).mean(axis=2)
        parts.append((products - exact[:, None]) / spread[:, None])
    deviations = np.concatenate(parts, axis=1)
    for (i, pair), t in product(enumerate(PAIRS), _DEVIATIONS):
        yield {
            "pair": pair,
            "deviation": float(t),
            "t": float(t * spread[i]),
            "share": float(np.mean(deviations[i] > t)),
            "share_below": float(np.mean(deviations[i] < -t)),
            "normal": float(norm.sf(t)),
            "draws": draws,
        }


def constants(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the largest C for which the bound holds at all measured t."""
    own = _beyond(frame)
    D = own.n_components
    own["C"] = (np.log(D) - np.log(own.beyond)) / (D * own.t) ** (1 / own.degree)
    keys = ["degree", "n_components", "pair"]
    return own.groupby(keys, sort=False).C.min().reset_index()


def bernstein(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the largest c for which eq. 22 holds at all measured t, for m = 1."""
    own = _beyond(frame).query("degree == 1")
    own["K"] = own.pair.map(
        {pair: sub_exponential_norm(a) for pair, a in PAIRS.items()}
    )
    exponent = np.minimum((own.t / own.K) ** 2, own.t / own.K) * own.n_components
    own["c"] = (np.log(2) - np.log(own.beyond)) / exponent
    return own.groupby(["pair", "n_components", "K"], sort=False).c.min().reset_index()


def _beyond(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the tails with the share of both sides, where there is any."""
    own = frame.query("measure == 'tail' and t > 0")
    own = own.assign(beyond=own.share + own.share_below)
    return own[own.beyond > 0]


@cache
def sub_exponential_norm(angle: float) -> float:
    """Return sup_p (E|X|^p)^{1/p}/p of |Ux||Uy| − K of unit vectors at an angle."""
    shape = 2, 2, _COLUMNS
    real, imag = np.random.default_rng(0).standard_normal(shape) / np.sqrt(2)
    along, across = real + 1j * imag
    product = np.abs(along) * np.abs(np.cos(angle) * along + np.sin(angle) * across)
    X = np.abs(product - product.mean())
    return float(max(np.mean(X**p) ** (1 / p) / p for p in range(1, 9)))


def _relative_variance(degree: int) -> float:
    X = np.ones((1, 1))
    exact = randkern.Optical(degree)(X)[0, 0]
    return float(randkern.Optical(2 * degree)(X)[0, 0] / exact**2 - 1)
