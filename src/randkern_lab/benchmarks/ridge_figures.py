"""Figures of the ridge benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_ridge", "plot_ridge_scaling"]

# Okabe and Ito's palette; markers and dashes tell the contenders apart without it.
# Last, where the number of features is written: each has a side of its own.
_STYLES: dict[str, tuple[str, str, Any, tuple[int, int]]] = {
    "pcg": ("#0072B2", "s", "-", (-7, -7)),
    "cholesky": ("#009E73", "^", "--", (0, 10)),
    "auto": ("#CC79A7", "D", ":", (0, -13)),
    "RBFSampler": ("#D55E00", "v", (0, (5, 1, 1, 1, 1, 1)), (7, 5)),
    "two products": ("#D55E00", "v", (0, (5, 1, 1, 1, 1, 1)), (7, 5)),
    "Nystroem": ("#E69F00", "P", (0, (8, 3)), (8, -9)),
}
_ALIGNED = {-7: "right", 0: "center", 7: "left", 8: "left"}
_AXIS_LABELS = {"n_components": "features D", "n": "training rows n"}
_SLOPE_COLOUR = "0.55"
_GUIDE = "guide"
_LEAST_SPAN = 2.0


def plot_ridge(results: Mapping[str, Any]) -> Figure:
    """Draw test error against the seconds of features and fit, both on log axes.

    Every contender has a curve, whose points are its numbers of features.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.ridge.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    summary = results["summary"]
    # An error of zero has no logarithm: half a test row stands for it.
    least = 0.5 / results["dataset"]["n_test"]
    for method in dict.fromkeys(entry["method"] for entry in summary):
        own = sorted(
            (entry for entry in summary if entry["method"] == method),
            key=lambda entry: entry["n_components"],
        )
        _draw_contender(axes, method, own, least)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.1, y=0.12)
    _widen(axes)
    _few_ticks(axes)
    axes.set_xlabel("seconds: features of the training rows, and fit")
    axes.set_ylabel("test error")
    axes.set_title(_title(results), fontsize=10)
    axes.grid(color="0.92", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside lower center", ncols=2, frameon=False, fontsize=9, handlelength=4
    )
    return figure


def plot_ridge_scaling(scaling: Mapping[str, Any]) -> Figure:
    """Draw seconds and peak memory against D and against n, with lines of slope 1.

    Parameters
    ----------
    scaling : mapping
        From :func:`randkern_lab.benchmarks.ridge_scaling.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_figures import plot_ridge_scaling
    >>> from randkern_lab.benchmarks.ridge_scaling import exponents
    >>> cost = {"train_seconds": 1.0, "seconds_per_iteration": 0.1, "d": 64,
    ...         "peak_memory_bytes": 3e8, "peak_anonymous_bytes": None}
    >>> records = [cost | {"axis": axis, "n": 1000, "n_components": 512}
    ...            for axis in ("n", "n_components")]
    >>> arguments = {"fixed_n": 1000, "fixed_n_components": 512, "d": 64}
    >>> scaling = {"records": records, "arguments": arguments,
    ...            "exponents": exponents(records)}
    >>> len(plot_ridge_scaling(scaling).axes)
    4
    """
    from matplotlib.figure import Figure

    fixed = scaling["arguments"]
    titles = {
        "n_components": f"n = {fixed['fixed_n']:,} rows of {fixed['d']} columns",
        "n": f"D = {fixed['fixed_n_components']:,} features, {fixed['d']} columns",
    }
    figure = Figure(figsize=(9.0, 6.6), dpi=150, layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    drawn: dict[str, Any] = {}
    for column, (axis, title) in enumerate(titles.items()):
        own = sorted(
            (record for record in scaling["records"] if record["axis"] == axis),
            key=lambda record: record[axis],
        )
        slopes = scaling["exponents"][axis]
        drawn |= _draw_costs(panels[0, column], own, axis, slopes, 1.0, _TIMES)
        drawn |= _draw_costs(panels[1, column], own, axis, slopes, 1e-6, _MEMORIES)
        panels[0, column].set_title(title, fontsize=10)
        panels[1, column].set_xlabel(_AXIS_LABELS[axis])
        if own:
            _size_ticks(panels[1, column], [record[axis] for record in own])
    _frame_rows(panels)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("megabytes")
    figure.suptitle("conjugate gradients on streamed rows", fontsize=11)
    figure.legend(
        list(drawn.values()),
        list(drawn),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


# What is drawn in a panel: cost, label, colour, marker, dashes.
_TIMES = (
    ("train_seconds", "fit", "#0072B2", "s", "-"),
    ("seconds_per_iteration", "fit, an iteration", "#56B4E9", "o", "--"),
)
_MEMORIES = (
    ("peak_memory_bytes", "peak memory, all resident", "#D55E00", "^", "-"),
    ("peak_anonymous_bytes", "without pages of files", "#E69F00", "v", "--"),
)


def _draw_costs(
    axes: Axes,
    records: Sequence[Mapping[str, Any]],
    axis: str,
    slopes: Mapping[str, Any],
    unit: float,
    costs: Sequence[tuple[str, str, str, str, str]],
) -> dict[str, Any]:
    """Draw one panel; return the handles of its curves."""
    handles: dict[str, Any] = {}
    for key, label, colour, marker, dashes in costs:
        points = [(r[axis], r[key] * unit) for r in records if r[key] is not None]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        (handles[label],) = axes.plot(
            x, y, color=colour, marker=marker, ms=6, lw=1.5, linestyle=dashes
        )
        last = slopes.get(key, {}).get("last")
        if last is not None:
            axes.annotate(
                f"slope {last:.2f}",
                ((x[-1] * x[-2]) ** 0.5, (y[-1] * y[-2]) ** 0.5),
                xytext=(-6, 7),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=colour,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    if handles and len(records) > 1:
        key = costs[0][0]
        values = np.array([record[axis] for record in records], dtype=float)
        last = records[-1][key] * unit
        # Below the curve, so that the two do not hide each other.
        (handles["slope 1"],) = axes.plot(
            values,
            0.6 * last * values / values[-1],
            color=_SLOPE_COLOUR,
            lw=1.0,
            linestyle=(0, (1, 1)),
            zorder=0,
            label=_GUIDE,
        )
    axes.grid(axis="y", color="0.92", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return handles


def _frame_rows(panels: Any) -> None:
    """Give the panels of a row the range of their costs: the guides may leave it."""
    for row in panels:
        costs = [
            line.get_ydata()
            for axes in row
            for line in axes.lines
            if line.get_label() != _GUIDE
        ]
        if costs:
            values = np.concatenate(costs)
            row[0].set_ylim(values.min() / 1.7, values.max() * 1.7)
        _plain_ticks(row[0].yaxis, values.max() / values.min() if costs else 1.0)


def _draw_contender(
    axes: Axes, method: str, entries: Sequence[Mapping[str, Any]], least: float
) -> None:
    """Draw one contender's curve, with D beside its points."""
    from matplotlib.patheffects import withStroke

    colour, marker, dashes, offset = _STYLES[method]
    seconds = [entry["train_seconds"] for entry in entries]
    errors = [max(entry["test_error"], least) for entry in entries]
    axes.plot(
        seconds,
        errors,
        color=colour,
        marker=marker,
        ms=6.5,
        lw=1.5,
        linestyle=dashes,
        label=entries[0]["label"],
    )
    for entry, x, y in zip(entries, seconds, errors, strict=True):
        axes.annotate(
            f"{entry['n_components']:,}",
            (x, y),
            xytext=offset,
            textcoords="offset points",
            ha=_ALIGNED[offset[0]],
            va="center",
            fontsize=8,
            color=colour,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def _widen(axes: Axes) -> None:
    """Let errors span a factor at least, so that equal ones look alike."""
    low, high = axes.get_ylim()
    missing = math.sqrt(max(1.0, _LEAST_SPAN * low / high))
    axes.set_ylim(low / missing, high * missing)


def _few_ticks(axes: Axes) -> None:
    """Write errors as percentages and seconds as plain numbers, a few of each."""
    from matplotlib.ticker import FuncFormatter

    low, high = axes.get_ylim()
    _plain_ticks(axes.yaxis, high / low)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.3g} %"))
    low, high = axes.get_xlim()
    _plain_ticks(axes.xaxis, high / low)


def _plain_ticks(axis: Any, span: float) -> None:
    """Write plain numbers on a logarithmic axis whose ends have this ratio."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    subs: tuple[float, ...] = (1.0, 2.0, 5.0)
    if span < 5:  # or there would be a tick or two
        subs = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    elif span > 1000:
        subs = (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def _size_ticks(axes: Axes, values: Sequence[int]) -> None:
    axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
    axes.set_xticks([], minor=True)


def _title(results: Mapping[str, Any]) -> str:
    data, arguments = results["dataset"], results["arguments"]
    kernel = (
        f"Gaussian, ℓ = {arguments['lengthscale']:.4g}"
        if arguments["kernel"] == "gaussian"
        else f"optical, degree {arguments['degree']:g}"
    )
    return (
        f"{data['name']}: {data['n_train']:,} rows of {data['n_features']:,} columns; "
        f"{kernel}, α = {arguments['alpha']:g}; labels: D"
    )
