"""Cost of conjugate gradients on streamed rows, against D and against n.

Rows are normal with falling variances, float32, with one target each
(:func:`.row_file.write_rows`), written once into a temporary folder, whose place the
environment variable ``TMPDIR`` sets, and read block by block in every pass. The kernel
is Gaussian with lengthscale √d. Fits against D have the memory limit of the models,
those against n one of their own: features are kept as long as they fit, so that memory
grows with n up to that limit.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..panels import BLUE, ORANGE, RED, SKY, Panel, Style, draw
from ..process import in_fresh_process
from ..runner import Case
from ..tables import (
    Fitted,
    TextTable,
    count,
    fitted_power,
    listing,
    megabytes,
    number,
    of,
    percent,
    seconds,
)
from .ridge_models import fit_stream

__all__ = ["TEST_ROWS", "cases", "exponents", "figure", "measure", "notes", "tables"]

TEST_ROWS = 2000
_AXES = {"n_components": "features D", "n": "training rows n"}
_COSTS = {
    "train_seconds": ("fit", Style("fit", BLUE, "s")),
    "seconds_per_iteration": (
        "an iteration",
        Style("fit, an iteration", SKY, "o", "--"),
    ),
    "peak_memory_bytes": ("peak", Style("peak memory, all resident", RED, "^")),
}
_ANONYMOUS = Style("without pages of files", ORANGE, "v", "--")


def cases(options: Any) -> Iterator[Case]:
    """Return what varies, with the other size fixed."""
    for size in sorted(set(options.scaling_n_components)):
        yield {
            "axis": "n_components",
            "n_components": size,
            "n": options.scaling_fixed_n,
        }
    size = options.scaling_fixed_n_components
    for n in sorted(set(options.scaling_n)):
        yield {"axis": "n", "n_components": size, "n": n}


def measure(
    case: Case, options: Any, limits: Mapping[str, int | None], folder: str
) -> dict[str, Any]:
    """Ask a process of its own."""
    d = options.scaling_d
    most = max(*options.scaling_n, options.scaling_fixed_n)
    request = {
        **case,
        **{"method": "pcg", "family": "gaussian", "degree": 2.0},
        **{"d": d, "lengthscale": math.sqrt(d), "alpha": options.alpha},
        "fit_intercept": True,
        "memory_limit": limits[case["axis"]],
        "seed": options.seed,
        **{"folder": folder, "test_from": most, "n_test": TEST_ROWS},
    }
    found = in_fresh_process(fit_stream, request)
    each = found["train_seconds"] / max(found["iterations"], 1)
    return {"d": d, "seconds_per_iteration": each, **found}


def exponents(
    records: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return how costs grow along each axis, as powers of what varies.

    Parameters
    ----------
    records : sequence of mapping

    Returns
    -------
    exponents : dict
        For each axis, and for ``train_seconds``, ``seconds_per_iteration`` and
        ``peak_memory_bytes``: ``all``, the least-squares slope of the logarithms, and
        ``last``, that between the two largest points, where what does not grow weighs
        least. None with fewer than two points. 1 is linear.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_scaling import exponents
    >>> costs = {"seconds_per_iteration": 1.0, "peak_memory_bytes": 10**8}
    >>> records = [costs | {"axis": "n", "n": n, "train_seconds": 1.0 + n / 1000}
    ...            for n in (1000, 10_000, 100_000)]
    >>> slopes = exponents(records)["n"]["train_seconds"]
    >>> round(slopes["all"], 2), round(slopes["last"], 2)
    (0.85, 0.96)
    """
    slopes: dict[str, dict[str, dict[str, float | None]]] = {}
    for axis in _AXES:
        own = sorted(of(records, axis=axis), key=lambda record: record[axis])
        sizes = [record[axis] for record in own]
        slopes[axis] = {}
        for cost in _COSTS:
            values = [record[cost] for record in own]
            slopes[axis][cost] = {
                "all": fitted_power(sizes, values),
                "last": fitted_power(sizes[-2:], values[-2:]),
            }
    return slopes


def notes(scaling: Mapping[str, Any]) -> Iterator[str]:
    """Return the points that were skipped."""
    for note in scaling["skipped"]:
        where = f"D = {note['n_components']:,}, n = {note['n']:,}"
        yield f"skipped {note['method']}, {where}: {note['reason']}"


def tables(scaling: Mapping[str, Any]) -> Iterator[TextTable]:
    """Return costs against D and against n."""
    for axis, name in _AXES.items():
        own, slopes = of(scaling["records"], axis=axis), scaling["exponents"][axis]
        if not own:
            continue
        fixed = "n" if axis == "n_components" else "n_components"
        columns: dict[str, Callable[[Any], str]] = {
            name: partial(_size, axis=axis),
            "fit": lambda r: seconds(r["train_seconds"]),
            "iterations": lambda r: number(r["iterations"]),
            "an iteration": lambda r: seconds(r["seconds_per_iteration"]),
            "peak": lambda r: megabytes(r["peak_memory_bytes"]),
            "anonymous": lambda r: megabytes(r["peak_anonymous_bytes"]),
            "test error": lambda r: percent(r["test_error"]),
            "outcome": lambda r: r["outcome"].replace("_", " "),
        }
        title = (
            f"pcg on streamed rows, d = {own[0]['d']:,}, "
            f"{'n' if fixed == 'n' else 'D'} = {own[0][fixed]:,}"
        )
        caption = "exponents (all points, last two): " + ", ".join(
            f"{name} {_pair(slopes[cost])}" for cost, (name, _) in _COSTS.items()
        )
        yield listing(title, own, columns, Fitted(caption))


def _size(record: Mapping[str, Any], axis: str) -> str:
    return count(record[axis])


def _pair(slopes: Mapping[str, float | None]) -> str:
    if slopes["all"] is None or slopes["last"] is None:
        return "-"
    return f"{slopes['all']:.2f}, {slopes['last']:.2f}"


def figure(scaling: Mapping[str, Any]) -> Any:
    """Return seconds and peak memory against D and against n, beside slope 1.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_scaling import exponents, figure
    >>> cost = {"train_seconds": 1.0, "seconds_per_iteration": 0.1, "d": 64,
    ...         "peak_memory_bytes": 3e8, "peak_anonymous_bytes": None}
    >>> records = [cost | {"axis": axis, "n": 1000, "n_components": 512}
    ...            for axis in ("n", "n_components")]
    >>> len(figure({"records": records, "exponents": exponents(records)}).axes)
    4
    """
    keys = list(_COSTS)
    shown = ((keys[:2], 1.0, "seconds"), ([keys[2]], 1e-6, "megabytes"))
    panels = [
        Panel(
            xlabel=name,
            ylabel=unit,
            extra=partial(_draw_costs, axis=axis, costs=costs, scale=scale),
        )
        for costs, scale, unit in shown
        for axis, name in _AXES.items()
    ]
    title = "conjugate gradients on streamed rows"
    return draw(scaling, panels, columns=2, size=(4.6, 3.4), title=title)


def _draw_costs(
    axes: Any, scaling: Mapping[str, Any], axis: str, costs: Sequence[str], scale: float
) -> None:
    """Draw costs along an axis with their last slopes, and a line of slope 1."""
    own = sorted(of(scaling["records"], axis=axis), key=lambda record: record[axis])
    drawn = {cost: _COSTS[cost][1] for cost in costs}
    if "peak_memory_bytes" in costs:
        drawn["peak_anonymous_bytes"] = _ANONYMOUS
    for cost, style in drawn.items():
        points = [(r[axis], scale * r[cost]) for r in own if r[cost] is not None]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        look = {"color": style.colour, "marker": style.marker, "ls": style.dashes}
        slope = scaling["exponents"][axis].get(cost, {}).get("last")
        axes.plot(x, y, **look, label=style.label)
        if slope is not None:
            place = (x[-1] * x[-2]) ** 0.5, (y[-1] * y[-2]) ** 0.5
            text = {"textcoords": "offset points", "xytext": (-6, 7), "ha": "right"}
            axes.annotate(f"slope {slope:.2f}", place, fontsize=8, **text)
    sizes = [record[axis] for record in own]
    ends = (
        [0.6 * scale * own[-1][costs[0]] * s / sizes[-1] for s in sizes] if own else []
    )
    axes.plot(sizes, ends, color="0.55", lw=1.0, ls=":", label="slope 1")
    axes.set_xscale("log")
    axes.set_yscale("log")
