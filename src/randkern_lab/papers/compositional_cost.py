"""What compositional features cost, against the size of the image and of the map.

A feature of a ReLU skeleton multiplies one base feature on average, whatever the image
(Daniely, Frostig, Gupta and Singer 2017, eq. 11): its arithmetic does not grow with the
image. What does is the number of different pixels that a map of D features reads.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._validation import check_count
from randkern.plan import evaluate
from randkern.skeletons import Skeleton
from randkern.study.measure import Measurement

from .circle_images import build_skeleton
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["Options", "figure", "run", "tables"]

_SIDES = (24, 32, 48, 64, 96, 128)
_QUICK_SIDES = (16, 24)
_SIZES, _QUICK_SIZES = (10_000, 100_000), (200, 1000)
_CHANNELS = 3


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce compositional-cost`` takes."""

    sides: Annotated[
        tuple[int, ...] | None, "Sides of the square images; by default 24 to 128."
    ] = None
    n_components: Annotated[
        tuple[int, ...] | None,
        "Numbers of features at which evaluation is timed; by default 10,000 and "
        "100,000.",
    ] = None
    n_draws: Annotated[int, "Features that are drawn for the time of drawing."] = (
        100_000
    )
    rows: Annotated[int, "Images of the smallest side; fewer as they grow."] = 10_000
    exact_rows: Annotated[int, "Images of the exact kernel; 0 leaves it out."] = 1_000
    repeats: Annotated[int, "Repeats of every time; the least are shown."] = 3


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Time the exact kernel, drawing and evaluation for images of every side.

    The skeleton is the deep one of ``compositional-structure``: two convolutions of
    windows of 5 and stride 2 and a full connection, all ReLU, over three channels.
    Pixels are random angles in float32: their values do not matter to the cost.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. A record has ``measure``, ``side``,
        ``seconds`` and ``cpu_seconds`` (the least of the repeats; processor time is
        that of all threads), and

        - ``"draw"``: ``n_draws``, ``nanoseconds`` a feature. Equal draws are not
          merged, so that as many are made as there are features.
        - ``"evaluate"``: ``n_components``, ``rows``, ``nanoseconds`` and
          ``cpu_nanoseconds`` an entry of the feature matrix, ``pixels`` (different
          columns that the map reads) and ``factors`` (pixels a feature, equal ones
          counted once).
        - ``"exact"``: ``rows`` (of both sides of the Gram matrix, in float64) and
          ``peak_bytes`` that it adds to the memory of the process.

    Examples
    --------
    >>> from randkern_lab.papers.compositional_cost import Options, run
    >>> results = run(Options(quick=True, sides=(16,), n_components=(100,)))
    >>> [record["measure"] for record in results["records"]]
    ['draw', 'evaluate', 'exact']
    """
    start = time.perf_counter()
    plan = _plan(options)
    results = begin_results("compositional-cost", options)
    todo = [(side, timer) for side in plan.sides for timer in _timers(plan, side)]
    for done, (side, timer) in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), f"images of {side} × {side}")
        results["records"].append({"side": side} | timer())
    if progress is not None:
        progress(len(todo), len(todo), "done")
    results["seconds"] = time.perf_counter() - start
    results["notes"] = list(_notes(results))
    return results


@dataclass(frozen=True)
class _Plan:
    """Checked options, small ones in a quick run."""

    sides: list[int]
    sizes: list[int]
    n_draws: int
    rows: int
    exact_rows: int
    repeats: int
    seed: int


def _plan(options: Options) -> _Plan:
    given = options.sides or (_QUICK_SIDES if options.quick else _SIDES)
    sides = sorted({check_count("sides", side) for side in given})
    if sides[0] < 16:
        raise ValueError(
            f"sides must be 16 or more, got {sides[0]}: two windows of 5 and stride 2 "
            "do not fit into a smaller image"
        )
    if options.exact_rows < 0:
        raise ValueError(f"exact_rows must be 0 or more, got {options.exact_rows}")
    sizes = options.n_components or (_QUICK_SIZES if options.quick else _SIZES)
    n_draws = check_count("n_draws", options.n_draws)
    rows = check_count("rows", options.rows)
    repeats = check_count("repeats", options.repeats)
    exact_rows = options.exact_rows
    if options.quick:
        n_draws, rows, repeats = min(n_draws, 1000), min(rows, 100), 1
        exact_rows = min(exact_rows, 40)
    return _Plan(
        sides,
        sorted({check_count("n_components", size) for size in sizes}),
        *(n_draws, rows, exact_rows, repeats, options.seed),
    )


def _timers(plan: _Plan, side: int) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield what is to be measured on images of one side."""
    shape = (side, side, _CHANNELS)
    skeleton = build_skeleton("deep", shape)
    yield partial(_draw, skeleton, plan)
    # As many pixels in all as the images of the smallest side have.
    rows = max(64, plan.rows * plan.sides[0] ** 2 // side**2)
    for size in plan.sizes:
        yield partial(_evaluate, skeleton, plan, shape, size, rows)
    if side == plan.sides[0] and plan.exact_rows:
        yield partial(_exact, skeleton, plan, shape)


def _images(n: int, shape: tuple[int, int, int], seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, int(np.prod(shape))), dtype=np.float32)
    return (np.pi * (X - 0.5)).astype(np.float32)


def _draw(skeleton: Skeleton, plan: _Plan) -> dict[str, Any]:
    """Time a fresh map's first use on one row: drawing, and hardly anything else."""
    kernel = randkern.Compositional(skeleton, deduplicate=False)
    row = np.zeros((1, skeleton.n_features), dtype=np.float32)
    few = randkern.RandomFeatures(kernel, 64, random_state=plan.seed)
    few.fit_transform(row)  # compiles
    # One draw has two columns.
    maps = [
        randkern.RandomFeatures(kernel, 2 * plan.n_draws, random_state=plan.seed + i)
        for i in range(plan.repeats)
    ]
    took = _least([partial(each.fit_transform, row) for each in maps])
    described = {"measure": "draw", "n_draws": plan.n_draws}
    return described | took | {"nanoseconds": 1e9 * took["seconds"] / plan.n_draws}


def _least(calls: Sequence[Callable[[], Any]]) -> dict[str, float]:
    """Return the least seconds of like calls, and the least processor time."""
    seconds, processor = [], []
    for call in calls:
        start, used = time.perf_counter(), time.process_time()
        call()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    return {"seconds": min(seconds), "cpu_seconds": min(processor)}


def _evaluate(
    skeleton: Skeleton, plan: _Plan, shape: tuple[int, int, int], size: int, rows: int
) -> dict[str, Any]:
    """Time evaluation into an array in use, of some 10⁸ entries at most."""
    X = _images(max(64, min(rows, 10**8 // size)), shape, plan.seed)
    kernel = randkern.Compositional(skeleton)
    features = randkern.RandomFeatures(kernel, size, random_state=plan.seed)
    features.fit(X[:1])
    out = np.zeros((len(X), size), dtype=np.float32)
    evaluate(features.plan_, X[:64], out=out[:64])  # draws, compiles
    call = partial(evaluate, features.plan_, X, out=out)
    took = _least([call] * plan.repeats)
    (group,) = features.plan_.groups
    (factor,) = group.factors
    entries, used = factor.projection.drawn(out)
    described = {"measure": "evaluate", "n_components": size, "rows": len(X)}
    return {
        **described,
        **took,
        "nanoseconds": 1e9 * took["seconds"] / out.size,
        "cpu_nanoseconds": 1e9 * took["cpu_seconds"] / out.size,
        "pixels": len(used),
        "factors": len(entries.slots) / max(1, int(np.sum(entries.weights > 0))),
    }


def _exact(
    skeleton: Skeleton, plan: _Plan, shape: tuple[int, int, int]
) -> dict[str, Any]:
    n = plan.exact_rows
    X = _images(2 * n, shape, plan.seed).astype(np.float64)
    skeleton.kernel(X[:2])  # compiles
    used = time.process_time()
    with Measurement() as measured:
        skeleton.kernel(X[:n], X[n:])
    return {
        "measure": "exact",
        "rows": n,
        "seconds": measured.seconds,
        "cpu_seconds": time.process_time() - used,
        "peak_bytes": measured.peak_bytes - measured.before_bytes,
    }


# -- results ------------------------------------------------------------------------


def _of(results: Mapping[str, Any], measure: str) -> list[Mapping[str, Any]]:
    return [r for r in results["records"] if r["measure"] == measure]


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    sizes = dict.fromkeys(r["n_components"] for r in _of(results, "evaluate"))
    for size in sizes:
        own = [r for r in _of(results, "evaluate") if r["n_components"] == size]
        first, last = own[0], own[-1]
        if first is not last:
            yield (
                f"D = {size:,}: from side {first['side']} to side {last['side']} "
                f"({_growth(own, 'side', 2):.0f} times as many pixels) the time of an "
                f"entry grows {_growth(own, 'nanoseconds'):.2f}-fold, its processor "
                f"time {_growth(own, 'cpu_nanoseconds'):.2f}-fold, the pixels that the "
                f"map reads {_growth(own, 'pixels'):.1f}-fold"
            )
    for r in _of(results, "exact"):
        yield (
            f"exact kernel of {r['rows']:,} × {r['rows']:,} pairs of images of side "
            f"{r['side']}: {r['seconds']:.1f} s ({r['cpu_seconds']:.1f} s of processor "
            f"time), {r['peak_bytes'] / 1e6:,.0f} MB"
        )
    yield f"all in {results['seconds']:.0f} s"


def _growth(records: Sequence[Mapping[str, Any]], key: str, power: int = 1) -> float:
    return float((records[-1][key] / records[0][key]) ** power)


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return what drawing and evaluating take by the side of the image."""
    evaluated = _of(results, "evaluate")
    sizes = list(dict.fromkeys(r["n_components"] for r in evaluated))
    table = TextTable(
        "seconds to draw (of processor time), ns an entry of the feature matrix (of "
        "processor time; pixels read), by side of the image",
        ("side", "draw", *(f"D = {size:,}" for size in sizes), "factors"),
    )
    for drawn in _of(results, "draw"):
        own = [r for r in evaluated if r["side"] == drawn["side"]]
        table.rows.append(
            (
                str(drawn["side"]),
                f"{drawn['seconds']:.3f} ({drawn['cpu_seconds']:.3f})",
                *(
                    f"{r['nanoseconds']:.2f} ({r['cpu_nanoseconds']:.2f}; "
                    f"{r['pixels']:,})"
                    for r in own
                ),
                f"{own[0]['factors']:.2f}",
            )
        )
    return [table]


def figure(results: Mapping[str, Any]) -> Any:
    """Return the nanoseconds of an entry, and the pixels read, by pixels of images."""
    from .compositional_figures import plot_cost

    return plot_cost(results)
