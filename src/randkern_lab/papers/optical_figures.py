"""Figures of the optical experiments, drawn without a display.

As in :mod:`randkern.plots`, figures are made directly, not through pyplot.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "plot_optical_convergence",
    "plot_optical_ridge",
    "plot_projection_cost",
    "plot_transfer_learning",
]

# Okabe and Ito's palette; markers and dashes tell the curves apart without it. A
# device's curve has the colour of the computed one.
_CURVES: dict[str, tuple[str, str, str, Any, bool]] = {
    "fourier": ("Fourier", "#000000", "o", "-", True),
    "optical-2": ("optical, m = 2", "#0072B2", "s", "-", True),
    "optical-4": ("optical, m = 4", "#D55E00", "^", "-", True),
    "device-2": ("device, m = 2", "#0072B2", "s", (0, (4, 2)), False),
    "device-4": ("device, m = 4", "#D55E00", "^", (0, (4, 2)), False),
}
# Name, column of the published table, colour.
_METHODS: dict[str, tuple[str, str | None, str]] = {
    "linear": ("linear", "linear", "#999999"),
    "fourier": ("Fourier", "rbf_fourier", "#000000"),
    "optical-2": ("optical, m = 2", "simulated_optical", "#0072B2"),
    "optical-4": ("optical, m = 4", None, "#0072B2"),
    "device-2": ("device, m = 2", "optical", "#56B4E9"),
}
_PROJECTIONS: dict[str, tuple[str, str, str, Any]] = {
    "dense": ("dense", "#000000", "o", "-"),
    "streamed": ("streamed", "#56B4E9", "X", (0, (4, 2))),
    "structured": ("structured", "#0072B2", "s", "-"),
    "gpu": ("GPU", "#009E73", "^", "-"),
    "P100": ("P100, published ({rows:,} rows)", "#CC79A7", "", ":"),
    "device": ("device, 500 µs a row and 30 W", "#D55E00", "", (0, (6, 2))),
}
_DECADES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
_DEGREES: dict[int, tuple[str, str, Any]] = {
    1: ("#009E73", "o", "-."),
    2: ("#0072B2", "s", "-"),
    3: ("#CC79A7", "D", (0, (4, 2))),
    4: ("#D55E00", "^", ":"),
}


def plot_optical_ridge(results: Mapping[str, Any]) -> "Figure":
    """Plot test error against D: features, device, and exact kernels as levels.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.optical_ridge.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.optical_figures import plot_optical_ridge
    >>> figure = plot_optical_ridge({
    ...     "dataset": {"name": "digits", "n_train": 1347},
    ...     "records": [{"curve": "fourier", "n_components": d, "n_train": 1347,
    ...                  "test_error": 1 / d} for d in (10, 100)]})
    >>> figure.axes[0].get_xlabel()
    'number of random features D'
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.6, 4.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    records = results["records"]
    for curve, (label, colour, marker, dashes, filled) in _CURVES.items():
        own = [r for r in records if r["curve"] == curve]
        points = sorted(
            (r["n_components"], 100 * r["test_error"])
            for r in own
            if r["n_components"] is not None
        )
        if points:
            axes.plot(
                *np.transpose(points),
                color=colour,
                marker=marker,
                linestyle=dashes,
                label=label,
                lw=1.6,
                ms=5.5,
                markerfacecolor=colour if filled else "white",
            )
        for record in own:
            if record["n_components"] is None:
                axes.axhline(
                    100 * record["test_error"],
                    color=colour,
                    lw=1.0,
                    linestyle=":",
                    zorder=1,
                )
    logarithmic(axes, "x", sorted({r["n_components"] for r in records} - {None}))
    logarithmic(axes, "y")
    axes.set_xlabel("number of random features D")
    axes.set_ylabel("test error (%)")
    described = results["dataset"]
    axes.set_title(
        f"{described['name']}, binarized\n{described['n_train']:,} training rows",
        fontsize=11,
    )
    handles, labels = axes.get_legend_handles_labels()
    exact = [r["n_train"] for r in records if r["n_components"] is None]
    if exact:
        handles.append(Line2D([], [], color="0.4", lw=1.0, linestyle=":"))
        labels.append(f"exact kernels,\n{exact[0]:,} training rows")
    figure.legend(
        handles, labels, loc="outside right upper", frameon=False, handlelength=3.2
    )
    return figure


def plot_optical_convergence(results: Mapping[str, Any]) -> "Figure":
    """Plot errors against D with the formula as lines, and tails beside a normal law.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.optical_convergence.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.optical_convergence import Options, run
    >>> from randkern_lab.papers.optical_figures import plot_optical_convergence
    >>> len(plot_optical_convergence(run(Options(quick=True))).axes)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 4.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    errors = [r for r in results["records"] if r["measure"] == "error"]
    tails = [r for r in results["records"] if r["measure"] == "tail"]
    for degree, (colour, marker, dashes) in _DEGREES.items():
        own = sorted(
            (r["n_components"], r["error"], r["predicted"])
            for r in errors
            if r["degree"] == degree
        )
        sizes, measured, predicted = np.transpose(own)
        left.plot(sizes, predicted, color=colour, linestyle=dashes, lw=1.3)
        left.plot(
            sizes, measured, color=colour, marker=marker, ms=5.5, linestyle="", zorder=3
        )
        beyond = [
            (r["deviation"], r["share"])
            for r in tails
            if r["degree"] == degree and r["share"] > 0
        ]
        right.plot(
            *np.transpose(beyond),
            color=colour,
            linestyle=dashes,
            marker=marker,
            markevery=4,
            ms=5.5,
            lw=1.5,
            label=f"m = {degree}",
        )
    logarithmic(left, "x", sorted({r["n_components"] for r in errors}))
    logarithmic(left, "y")
    left.set_xlabel("number of random features D")
    left.set_ylabel("‖ZZᵀ − K‖ / ‖K‖")
    left.set_title("error: markers measured, lines the formula", fontsize=10)
    normal = sorted({(r["deviation"], r["normal"]) for r in tails})
    normal = [(t, share) for t, share in normal if share > 0.3 / tails[0]["draws"]]
    right.plot(*np.transpose(normal), color="0.4", lw=1.0, label="normal law")
    right.set_yscale("log")
    right.grid(color="0.9", lw=0.7)
    right.spines[["top", "right"]].set_visible(False)
    right.set_xlabel("deviation above K, in standard deviations of the formula")
    right.set_ylabel("share of draws beyond")
    right.set_title(f"tails at D = {tails[0]['n_components']:,}, x = y", fontsize=10)
    right.legend(frameon=False, handlelength=3.2)
    return figure


def plot_transfer_learning(results: Mapping[str, Any]) -> "Figure":
    """Plot test errors as bars, with published ones of other networks as marks.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.transfer_learning.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.optical_figures import plot_transfer_learning
    >>> figure = plot_transfer_learning({
    ...     "dataset": {"name": "digits", "n_train": 1000, "n_features": 64},
    ...     "records": [{"method": "linear", "n_components": None,
    ...                  "test_error": 0.05}], "published": []})
    >>> figure.axes[0].get_ylabel()
    'test error (%)'
    """
    from matplotlib.figure import Figure

    records, published = results["records"], results["published"]
    figure = Figure(figsize=(7.6, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    names = [_METHODS[record["method"]][0] for record in records]
    errors = [100 * record["test_error"] for record in records]
    described = results["dataset"]
    colours = [_METHODS[record["method"]][2] for record in records]
    bars = axes.bar(range(len(names)), errors, 0.62, color=colours, zorder=2)
    axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2)
    for row, marker in zip(published, "ovsDP", strict=False):
        marks = [
            (position, row[column])
            for position, record in enumerate(records)
            if (column := _METHODS[record["method"]][1]) and row.get(column)
        ]
        axes.plot(
            *np.transpose(marks),
            marker=marker,
            color="#D55E00",
            markerfacecolor="white",
            ms=7,
            linestyle="",
            label=f"{row['architecture']} {row['layer']}, published",
            zorder=3,
        )
    axes.set_xticks(range(len(names)), names, fontsize=9)
    axes.set_ylabel("test error (%)")
    axes.set_ylim(0, 1.16 * max([*errors, *_marked(published)]))
    size = max((r["n_components"] or 0 for r in records), default=0)
    features = f", D = {size:,}" if size else ""
    axes.set_title(
        f"{described['name']}, d = {described['n_features']:,}{features}, "
        f"{described['n_train']:,} training rows",
        fontsize=11,
    )
    axes.grid(axis="y", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if published:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _marked(published: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the published errors that are drawn."""
    columns = [column for _, column, _ in _METHODS.values() if column]
    return [row[column] for row in published for column in columns if row.get(column)]


def plot_projection_cost(results: Mapping[str, Any]) -> "Figure":
    """Plot seconds, and joules where they are counted or published, against D.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.projection_cost.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.optical_figures import plot_projection_cost
    >>> from randkern_lab.papers.projection_cost import Options, run
    >>> results = run(Options(quick=True, n_components=(50, 100)))
    >>> [axes.get_ylabel() for axes in plot_projection_cost(results).axes]
    ['seconds for 1,000 rows', 'joules for 1,000 rows']
    """
    from matplotlib.figure import Figure

    records = list(results["records"])
    published = [r for r in results["published"] if r["method"] == "P100"]
    figure = Figure(figsize=(9.6, 4.6), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, quantity in zip(panels, ("seconds", "joules"), strict=True):
        for method, (label, colour, marker, dashes) in _PROJECTIONS.items():
            points = sorted(
                (r["n_components"], 1000 * r[quantity] / r["batch"])
                for r in (published if method == "P100" else records)
                if r["method"] == method and r[quantity]
            )
            if method == "device":
                axes.axhline(
                    points[0][1], color=colour, linestyle=dashes, label=label, lw=1.6
                )
            elif points:
                axes.plot(
                    *np.transpose(points),
                    color=colour,
                    marker=marker,
                    linestyle=dashes,
                    label=label.format(rows=published[0]["batch"]),
                    lw=1.6,
                    ms=4.5,
                )
        logarithmic(axes, "x", _DECADES)
        axes.set_yscale("log")
        axes.set_xlabel("number of features D")
        axes.set_ylabel(f"{quantity} for 1,000 rows")
    widths = {r["columns"] for r in records}
    columns = "D" if len(widths) > 1 else f"{widths.pop():,}"
    panels[0].set_title(
        f"{records[0]['batch']:,} rows of {columns} columns", fontsize=10
    )
    energy = results["energy"]["cpu"]
    panels[1].set_title(f"energy of the processor: {energy}", fontsize=9)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handlelength=3.2,
    )
    return figure


def logarithmic(axes: "Axes", which: str, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with plain numbers at the ticks, or at 1, 2 and 5."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    chosen = spaced(ticks) if ticks else ()
    axis.set_major_locator(
        FixedLocator(chosen) if chosen else LogLocator(subs=(1.0, 2.0, 5.0))
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 10 else f"{v:.3g}")
    )
    axes.grid(color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def spaced(ticks: Sequence[float], most: int = 7) -> list[float]:
    """Return at most so many ticks, the last one among them."""
    step = -(-len(ticks) // most)
    return sorted(list(ticks)[::-1][::step])
