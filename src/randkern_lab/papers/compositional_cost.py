"""The cost of compositional features against the sizes of image and map.

Daniely, Frostig, Gupta and Singer (2017), section 5.

The original. It claims that a feature of a ReLU skeleton multiplies one base feature on
average, whatever the image (eq. 11), while a feature of Rahimi and Recht multiplies all
pixels by random numbers, so that the cost of a map of D features does not grow with the
image. No times are given.

Here. Seconds to draw and nanoseconds per entry of the feature matrix are measured on
the same random images of increasing size for the deep skeleton of
``compositional-structure``; a Gaussian skeleton, one exponential node over all pixels;
and its competitor, the map of Rahimi and Recht for the same Gaussian kernel at the
embedded points (cos t, sin t), dense and structured. What does grow for skeletons is
the number of distinct pixels that a map reads. The exact kernel of the deep skeleton is
timed too.

Deviations.

- Equal draws are merged and constants omitted when features are evaluated, as by
  default, but not when drawing is timed, so that one draw is made per feature.
- The dense map is skipped if its matrix would exceed 4 GB.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern.plan import evaluate
from randkern.skeletons import Exponential, fully_connected
from randkern.study.measure import Measurement

from ..figures import DASHED, Style, add_legend, curves, name_axes, panels
from ..options import CommonOptions, Sizes, option
from ..process import Stopwatch
from ..runner import Case, SkippedCase, grid, measure_all
from ..tables import pivot, text
from .compositional_accuracy import FOURIER, embed
from .images import build_skeleton

METHODS = {
    "deep": Style("deep skeleton", "blue"),
    "gaussian": Style("Gaussian skeleton", "green", "s"),
    "rahimi-recht": Style("Rahimi-Recht, dense", "black", "X"),
    "structured": Style("Fourier, structured", "red", "^", DASHED),
}
_SKELETONS = ("deep", "gaussian")
_CHANNELS = 3
_MIN_ROWS, _MOST_BYTES = 64, 4e9


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce compositional-cost``."""

    sides: Sizes = option(
        (24, 32, 48, 64, 96, 128),
        "Sides of the square images.",
        quick=(16, 24),
        least=16,  # two windows of 5 and stride 2 do not fit into a smaller image
    )
    n_components: Sizes = option(
        (10_000, 100_000),
        "Numbers of features at which evaluation is timed.",
        quick=(200, 1000),
    )
    n_draws: int = option(
        100_000, "Features that are drawn for the time of drawing.", quick=1000
    )
    rows: int = option(
        10_000, "Images of the smallest side; fewer as they grow.", quick=100
    )
    exact_rows: int = option(
        1000, "Images of the exact kernel; 0 leaves it out.", quick=40, least=0
    )
    repeats: int = option(3, "Repeats of every time; the least are shown.", quick=1)


SKIPPED_BY = ("method", "side", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Time drawing, evaluating and the exact kernel, side by side of the image."""
    works = {"draw": drawing, "evaluate": evaluating, "exact": exact_values}
    cases, sizes = list[Case](), options.n_components
    for side in options.sides:
        own = {"side": side, "measure": "evaluate"}
        cases += grid(side=[side], measure=["draw"], method=_SKELETONS)
        cases += [own | c for c in grid(method=METHODS, n_components=sizes)]
    if options.exact_rows:
        side = options.sides[0]
        cases.append({"side": side, "measure": "exact", "method": "deep"})
    return measure_all(options, cases, lambda c: works[c["measure"]](options, c))


def _kernel(method: str, side: int, merged: bool) -> Any:
    d = side * side * _CHANNELS
    if method not in _SKELETONS:
        return randkern.Gaussian(float(np.sqrt(d)))
    skeleton = fully_connected(d, activation=Exponential(1.0))
    if method == "deep":
        skeleton = build_skeleton("deep", (side, side, _CHANNELS))
    return randkern.Compositional(skeleton, deduplicate="auto" if merged else False)


def drawing(options: Options, case: Case) -> Case:
    """Time a new map's first use on one row, which is mostly drawing."""
    kernel = _kernel(case["method"], case["side"], merged=False)
    n, seed = options.n_draws, options.seed
    row = np.zeros((1, case["side"] ** 2 * _CHANNELS), dtype=np.float32)
    randkern.RandomFeatures(kernel, 64, random_state=seed).fit_transform(row)
    # Each draw has two columns.
    maps = [
        randkern.RandomFeatures(kernel, 2 * n, random_state=seed + i)
        for i in range(options.repeats)
    ]
    took = _least([partial(item.fit_transform, row) for item in maps])
    return {"n_draws": n, **took, "nanoseconds": 1e9 * took["seconds"] / n}


def evaluating(options: Options, case: Case) -> Case:
    """Time evaluation into a used array of at most about 10⁸ entries."""
    side, size, method = case["side"], case["n_components"], case["method"]
    d = 2 * side * side * _CHANNELS
    if method == "rahimi-recht" and 4 * d * (size // 2) > _MOST_BYTES:
        raise SkippedCase(f"its matrix takes {4e-9 * d * (size // 2):.1f} GB")
    # The same total number of pixels as the images of the smallest side.
    rows = options.rows * min(options.sides) ** 2 // side**2
    rows = max(_MIN_ROWS, min(rows, 10**8 // size))
    X: Any = _images(rows, side, options.seed)
    if method not in _SKELETONS:
        X = embed(X)
    features = randkern.RandomFeatures(
        _kernel(method, side, merged=True),
        size,
        projection=FOURIER.get(method, "auto"),
        random_state=options.seed,
    )
    plan = features.fit(X[:1]).plan_
    out = np.zeros((len(X), size), dtype=np.float32)
    evaluate(plan, X[:_MIN_ROWS], out=out[:_MIN_ROWS])  # draws, compiles
    took = _least([partial(evaluate, plan, X, out=out)] * options.repeats)
    return {
        "rows": len(X),
        **took,
        "nanoseconds": 1e9 * took["seconds"] / out.size,
        "cpu_nanoseconds": 1e9 * took["cpu_seconds"] / out.size,
        **(_pixels_read(plan, out) if method in _SKELETONS else {}),
    }


def exact_values(options: Options, case: Case) -> Case:
    """Time the exact kernel of the deep skeleton, and measure its memory."""
    n = options.exact_rows
    skeleton = build_skeleton("deep", (case["side"], case["side"], _CHANNELS))
    X = _images(2 * n, case["side"], options.seed).astype(np.float64)
    skeleton.kernel(X[:2])  # compiles
    watch = Stopwatch()
    with Measurement() as measured:
        skeleton.kernel(X[:n], X[n:])
    lap = watch.lap()
    peak = measured.peak_bytes - measured.before_bytes
    return {"rows": n, **lap._asdict(), "peak_bytes": peak}


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    own = frame.query("measure == 'draw'")
    title = "seconds to draw (of processor time), by side of the image"
    yield from pivot(
        own, title, "side", "method", "{seconds:.3f} ({cpu_seconds:.3f})", label=str
    )
    own = _evaluated(frame)
    title = (
        "D = {n_components:,}: ns per entry of the feature matrix (of processor "
        "time; pixels read, factors per feature)"
    )
    yield from pivot(own, title, "side", "method", _cell, label=str, per="n_components")


def figure(frame: pd.DataFrame) -> Any:
    """Return times of evaluating and of drawing, and what grows with images."""
    figure, axes = panels(3, size=(3.8, 3.9))
    evaluated, drawn = _evaluated(frame), frame.query("measure == 'draw'")
    size = evaluated.n_components.max()
    evaluated = evaluated[evaluated.n_components == size]
    curves(axes[0], evaluated, "side", "cpu_nanoseconds", METHODS)
    curves(axes[1], drawn, "side", "nanoseconds", METHODS)
    curves(axes[2], evaluated, "side", "pixels", METHODS)
    xlabel = "side of the image"
    title = f"evaluating, D = {size:,.0f}"
    name_axes(axes[0], title, xlabel, "processor ns per entry")
    name_axes(axes[1], "drawing", xlabel, "ns per draw")
    name_axes(axes[2], "what grows", xlabel, "different pixels read")
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    keys = ["method", "n_components"]
    for (method, size), own in _evaluated(frame).groupby(keys, sort=False):
        if len(own) < 2:
            continue
        first, last = own.iloc[0], own.iloc[-1]
        pixels, took, cpu = (
            last[name] / first[name]
            for name in ("pixels", "nanoseconds", "cpu_nanoseconds")
        )
        read = f", pixels read {pixels:.1f}-fold" if pixels == pixels else ""
        yield (
            f"{method}, D = {size:,.0f}: from side {first.side} to side {last.side} "
            f"({(last.side / first.side) ** 2:.0f} times as many pixels) the time of "
            f"an entry grows {took:.2f}-fold, its processor time {cpu:.2f}-fold{read}"
        )
    for record in frame.query("measure == 'exact'").to_dict("records"):
        yield text(
            "exact kernel of {rows:,} × {rows:,} pairs of images of side {side}: "
            "{seconds:.1f} s ({cpu_seconds:.1f} s of processor time), "
            "{peak_bytes:megabytes}",
            record,
        )


def _evaluated(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.query("measure == 'evaluate'")


def _cell(group: pd.DataFrame) -> str:
    (own,) = group.itertuples()
    shown = f"{own.nanoseconds:.2f} ({own.cpu_nanoseconds:.2f}"
    if own.pixels == own.pixels:
        shown += f"; {own.pixels:,.0f}, {own.factors:.2f}"
    return shown + ")"


def _images(n: int, side: int, seed: int) -> NDArray[np.float32]:
    """Return random angles, whose values do not affect the cost."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, side * side * _CHANNELS), dtype=np.float32)
    return (np.pi * (X - 0.5)).astype(np.float32)


def _least(calls: Sequence[Callable[[], Any]]) -> dict[str, float]:
    """Return the minimum wall-clock and CPU times of similar calls."""
    laps = []
    for call in calls:
        watch = Stopwatch()
        call()
        laps.append(watch.lap())
    seconds, cpu_seconds = map(min, zip(*laps, strict=True))
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def _pixels_read(plan: Any, out: Any) -> dict[str, Any]:
    """Return the distinct pixels that a map reads, and the mean per feature."""
    (group,) = plan.groups
    (factor,) = group.factors
    entries, used = factor.projection.drawn(out)
    drawn = max(1, int(np.sum(entries.weights > 0)))
    return {"pixels": len(used), "factors": len(entries.slots) / drawn}
