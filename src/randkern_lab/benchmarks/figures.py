"""Figures of the benchmarks: one style a method, the same in every figure.

As in :mod:`randkern.plots`, figures are made directly, not through pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_accuracy", "plot_cost", "plot_features", "plot_sweep"]

# Okabe and Ito's palette; markers and dashes tell the methods apart without it.
_STYLES: dict[str, tuple[str, str, Any]] = {
    "dense": ("#000000", "o", "-"),
    "streamed": ("#56B4E9", "X", (0, (3, 1))),
    "orthogonal": ("#009E73", "^", "-."),
    "structured": ("#0072B2", "s", "--"),
    "qmc": ("#CC79A7", "D", ":"),
    "RBFSampler": ("#D55E00", "v", (0, (5, 1, 1, 1, 1, 1))),
    "RBFSampler float32": ("#D55E00", "v", (0, (5, 1, 1, 1, 1, 1))),
    "Nystroem": ("#E69F00", "P", (0, (8, 3))),
}
_OTHER_STYLE = ("#666666", "*", "-")
# Filled bars of the projections, pale ones of the peers.
_OWN, _PEER, _BOUND = "#0072B2", "#C8C8C8", "#D55E00"
_IN_PLACE: dict[str, Any] = {
    "color": "white",
    "marker": "D",
    "ms": 5.0,
    "markeredgecolor": "black",
    "linestyle": "",
    "zorder": 4,
}
_MARKS = ("ns_per_feature", "ns_per_feature_in_place", "bound_ns")
_FAMILY_TITLES = {
    "gaussian": "Gaussian kernel",
    "optical": "optical kernel, degree {degree:g}",
}


def plot_features(results: Mapping[str, Any]) -> Figure:
    """Draw nanoseconds a feature as bars, with the machine's bound of each.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.features.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.benchmarks import features
    >>> from randkern_lab.benchmarks.figures import plot_features
    >>> results = features.run(8, 32, 50, repeats=1, projections=["dense"],
    ...                        families=["gaussian"], memory=False, cold=False)
    >>> plot_features(results).axes[0].get_title(loc="left")
    'Gaussian kernel'
    """
    from matplotlib.figure import Figure

    records, sizes = results["records"], results["arguments"]
    families = list(dict.fromkeys(record["family"] for record in records))
    counts = [sum(r["family"] == family for r in records) for family in families]
    figure = Figure(
        figsize=(7.2, 1.4 + 0.34 * sum(counts) + 0.5 * len(counts)),
        dpi=150,
        layout="constrained",
    )
    panels = figure.subplots(
        len(families), 1, sharex=True, squeeze=False, height_ratios=counts
    )[:, 0]
    for axes, family in zip(panels, families, strict=True):
        own = [record for record in records if record["family"] == family]
        _draw_bars(axes, own)
        title = _FAMILY_TITLES[family].format(degree=sizes["degree"])
        axes.set_title(title, loc="left", fontsize=10)
    marks = [record[key] for record in records for key in _MARKS if record[key]]
    panels[0].set_xlim(min(marks) / 1.8, max(marks) * 2.5)
    panels[-1].set_xlabel("nanoseconds a feature (row × output column)")
    figure.suptitle(
        f"d = {sizes['d']:,}, D = {sizes['n_components']:,}, {sizes['n']:,} rows, "
        f"{results['machine']['cpu_count']} cores",
        fontsize=11,
    )
    _bar_legend(figure)
    return figure


def plot_sweep(sweep: Mapping[str, Any]) -> Figure:
    """Draw time a row against d and against D, on log axes, with growth guides.

    Parameters
    ----------
    sweep : mapping
        From :func:`randkern_lab.benchmarks.features.sweep`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.benchmarks import features
    >>> from randkern_lab.benchmarks.figures import plot_sweep
    >>> sweep = features.sweep([8, 16], [32, 64], d=8, n_components=32, n=50,
    ...                        repeats=1, projections=["dense"])
    >>> len(plot_sweep(sweep).axes)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    fixed = sweep["arguments"]
    drawn: dict[str, Any] = {}
    for axes, axis in zip(panels, ("d", "n_components"), strict=True):
        own = [record for record in sweep["records"] if record["axis"] == axis]
        for method in dict.fromkeys(record["method"] for record in own):
            times = {
                r[axis]: r["seconds"] / r["n"] for r in own if r["method"] == method
            }
            drawn[method] = _draw_curve(
                axes, method, list(times), [1e6 * time for time in times.values()]
            )
        if own:
            drawn |= _draw_guides(axes, own, axis)
            _set_log_ticks(axes, sorted({record[axis] for record in own}))
        axes.set_yscale("log")
        axes.set_ylabel("microseconds a row")
        _plain(axes)
    panels[0].set_xlabel("input columns d")
    panels[0].set_title(f"D = {fixed['n_components']:,} features", fontsize=10)
    panels[1].set_xlabel("features D")
    panels[1].set_title(f"d = {fixed['d']:,} input columns", fontsize=10)
    _legend_right(figure, drawn)
    return figure


def plot_accuracy(results: Mapping[str, Any]) -> Figure:
    """Draw Gram error, its ratio to dense, test error, and the optical ratios.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.accuracy.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.benchmarks import accuracy
    >>> from randkern_lab.benchmarks.figures import plot_accuracy
    >>> from randkern.datasets import load_dataset
    >>> results = accuracy.run(load_dataset("iris"), [8, 32], lengthscale=2.0,
    ...                        n_seeds=2, projections=["dense"])
    >>> len(plot_accuracy(results).axes)
    4
    """
    from matplotlib.figure import Figure

    summary = results["summary"]
    gaussian = [entry for entry in summary if entry["family"] == "gaussian"]
    optical = [entry for entry in summary if entry["family"] == "optical"]
    figure = Figure(figsize=(9.6, 7.2), dpi=150, layout="constrained")
    panels = figure.subplots(2, 2)
    drawn = _draw_summary(panels[0, 0], gaussian, "gram_error")
    drawn |= _draw_inverse_root(panels[0, 0], gaussian)
    panels[0, 0].set_ylabel("relative error of the Gram matrix")
    random = [entry for entry in gaussian if entry["method"] != "Nystroem"]
    drawn |= _draw_summary(panels[0, 1], random, "ratio_to_dense", "ratio_se")
    panels[0, 1].axhline(1.0, color="0.6", lw=0.8, zorder=0)
    panels[0, 1].set_ylabel("Gram error, ratio to dense")
    drawn |= _draw_summary(panels[1, 0], gaussian, "test_error")
    level = panels[1, 0].axhline(results["exact"]["test_error"], color="0.4", lw=1.0)
    drawn["exact kernel"] = level
    panels[1, 0].set_ylabel("test error of ridge")
    if optical:
        drawn |= _draw_optical(panels[1, 1], optical)
        panels[1, 1].set_ylabel("Gram error, ratio to dense")
    else:
        panels[1, 1].set_axis_off()
    titles = ("Gaussian", "Gaussian, paired", "Gaussian", "optical, degree 2, paired")
    sizes = sorted({entry["n_components"] for entry in summary})
    shown = list(panels.flat) if optical else list(panels.flat[:3])
    for axes, title in zip(shown, titles[: len(shown)], strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("features D")
        _set_log_ticks(axes, sizes)
        _plain(axes)
    for axes in panels[:, 0]:
        axes.set_yscale("log")
    _percent_ticks(panels[0, 0])
    _percent_ticks(panels[1, 0])
    figure.suptitle(_data_title(results), fontsize=11)
    _legend_right(figure, drawn)
    return figure


def plot_cost(results: Mapping[str, Any]) -> Figure:
    """Draw Gram and test error against the seconds that features and solve take.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.accuracy.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.benchmarks import accuracy
    >>> from randkern_lab.benchmarks.figures import plot_cost
    >>> from randkern.datasets import load_dataset
    >>> results = accuracy.run(load_dataset("iris"), [8, 32], lengthscale=2.0,
    ...                        n_seeds=2, projections=["dense"], optical=False)
    >>> len(plot_cost(results).axes)
    2
    """
    from matplotlib.figure import Figure

    gaussian = [each for each in results["summary"] if each["family"] == "gaussian"]
    figure = Figure(figsize=(9.6, 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    drawn: dict[str, Any] = {}
    for axes, key in zip(panels, ("gram_error", "test_error"), strict=True):
        for method in dict.fromkeys(entry["method"] for entry in gaussian):
            own = [entry for entry in gaussian if entry["method"] == method]
            seconds = [entry["total_seconds"] for entry in own]
            drawn[method] = _draw_curve(
                axes, method, seconds, [entry[key] for entry in own]
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("seconds: features of the training rows, and solve")
        _plain(axes)
        _percent_ticks(axes)
    panels[0].set_ylabel("relative error of the Gram matrix")
    panels[1].set_ylabel("test error of ridge")
    drawn["exact kernel"] = panels[1].axhline(
        results["exact"]["test_error"], color="0.4", lw=1.0
    )
    figure.suptitle(_data_title(results), fontsize=11)
    _legend_right(figure, drawn)
    return figure


def _draw_bars(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw one family's bars from top to bottom, each with its bound."""
    places = np.arange(len(records))
    times = [record["ns_per_feature"] for record in records]
    own = [record["library"] == "randkern" for record in records]
    axes.barh(
        places,
        times,
        height=0.66,
        color=[_OWN if mine else _PEER for mine in own],
        edgecolor="0.25",
        linewidth=0.6,
    )
    for place, record in zip(places, records, strict=True):
        text = f"{record['ns_per_feature']:.3g}"
        if record["library"] == "randkern" and record["speedup_over_float32"]:
            ratio = record["speedup_over_float32"]
            text += f"  ({ratio:.{1 if ratio >= 1 else 2}f}×)"
        right = max(record[key] or 0.0 for key in _MARKS)
        axes.annotate(
            text,
            (right, place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
        if record["ns_per_feature_in_place"]:
            axes.plot(record["ns_per_feature_in_place"], place, **_IN_PLACE)
        if record["bound_ns"]:
            axes.plot(
                [record["bound_ns"]] * 2,
                [place - 0.42, place + 0.42],
                color=_BOUND,
                lw=2.2,
                zorder=3,
            )
    axes.set_yticks(places, [record["method"] for record in records])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.grid(axis="x", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _bar_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=_OWN, edgecolor="0.25"),
        Patch(facecolor=_PEER, edgecolor="0.25"),
        Line2D([], [], **_IN_PLACE),
        Line2D([], [], color=_BOUND, lw=2.2),
    ]
    labels = [
        "randkern (× faster than the float32 peer)",
        "peer",
        "the same into an array in use",
        "measured bound",
    ]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )


def _draw_curve(
    axes: Axes, method: str, x: Any, y: Any, bars: Any = None, filled: bool = True
) -> Any:
    """Draw one method's curve in its style; return its handle."""
    colour, marker, dashes = _STYLES.get(method, _OTHER_STYLE)
    # Two methods may coincide (streamed has the entries of dense): draw the
    # smaller marker of the later one inside the larger.
    size = 4.0 if method == "streamed" else 6.0
    return axes.errorbar(
        x,
        y,
        yerr=bars,
        color=colour,
        marker=marker,
        markerfacecolor=colour if filled else "white",
        linestyle=dashes,
        lw=1.5,
        ms=size,
        capsize=2.0,
        elinewidth=0.9,
    )


def _draw_guides(
    axes: Axes, records: Sequence[Mapping[str, Any]], axis: str
) -> dict[str, Any]:
    """Draw growth from the slowest and the fastest first point."""
    values = np.array(sorted({record[axis] for record in records}), dtype=float)
    if len(values) < 2:
        return {}
    first = [
        1e6 * record["seconds"] / record["n"]
        for record in records
        if record[axis] == values[0]
    ]
    guides: dict[str, Any] = {"linear": (values / values[0], max(first) * 2.2, "-")}
    if axis == "d":
        # D/d blocks of d log d operations each: d log d / d at fixed D.
        growth = np.log2(values) / np.log2(values[0])
        guides["d log d / d"] = (growth, min(first) / 2.2, (0, (1, 1)))
    handles = {}
    for label, (growth, level, dashes) in guides.items():
        (handles[label],) = axes.plot(
            values, level * growth, color="0.55", lw=1.0, linestyle=dashes, zorder=0
        )
    return handles


def _draw_summary(
    axes: Axes,
    entries: Sequence[Mapping[str, Any]],
    key: str,
    error_key: str | None = None,
) -> dict[str, Any]:
    """Draw one quantity against D for each method; bars are standard errors."""
    drawn = {}
    for method in dict.fromkeys(entry["method"] for entry in entries):
        own = [e for e in entries if e["method"] == method and e[key] is not None]
        if not own:
            continue
        sizes = [entry["n_components"] for entry in own]
        bars = None
        if error_key is not None:
            bars = [entry[error_key] or 0.0 for entry in own]
        drawn[method] = _draw_curve(
            axes, method, sizes, [entry[key] for entry in own], bars
        )
    return drawn


def _draw_optical(axes: Axes, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Draw ratios to plain dense: open markers plain, filled ones centred."""
    from matplotlib.lines import Line2D

    for method in dict.fromkeys(entry["method"] for entry in entries):
        for centered in (False, True):
            own = [
                entry
                for entry in entries
                if (entry["method"], entry["centered"]) == (method, centered)
                and entry["ratio_to_dense"] is not None
            ]
            if own:
                _draw_curve(
                    axes,
                    method,
                    [entry["n_components"] for entry in own],
                    [entry["ratio_to_dense"] for entry in own],
                    [entry["ratio_se"] or 0.0 for entry in own],
                    filled=centered,
                )
    axes.axhline(1.0, color="0.6", lw=0.8, zorder=0)
    axes.set_ylim(bottom=0.0)
    open_marker = {"color": "0.3", "marker": "o", "linestyle": "", "ms": 6.0}
    return {
        "optical, plain": Line2D([], [], markerfacecolor="white", **open_marker),
        "optical, centred": Line2D([], [], markerfacecolor="0.3", **open_marker),
    }


def _draw_inverse_root(
    axes: Axes, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Draw 1/√D above the curves."""
    sizes = np.array(sorted({entry["n_components"] for entry in entries}), dtype=float)
    first = [e["gram_error"] for e in entries if e["n_components"] == sizes[0]]
    level = 1.35 * max(first) * np.sqrt(sizes[0])
    (line,) = axes.plot(
        sizes, level / np.sqrt(sizes), color="0.55", lw=1.0, linestyle=(0, (1, 1))
    )
    return {"1/√D": line}


def _set_log_ticks(axes: Axes, values: Sequence[int]) -> None:
    """Put a logarithmic axis with a tick at each value."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
    axes.set_xticks([], minor=True)


def _percent_ticks(axes: Axes) -> None:
    """Write the errors of a logarithmic axis as percentages, a few of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _data_title(results: Mapping[str, Any]) -> str:
    data, seeds = results["dataset"], results["arguments"]["n_seeds"]
    return (
        f"{data['name']}: {data['n_train']:,} rows, {data['n_features']:,} columns, "
        f"ℓ = {results['exact']['lengthscale']:.4g}, {seeds} seeds"
    )


def _legend_right(figure: Figure, drawn: Mapping[str, Any]) -> None:
    """Put the legend beside the axes, where it can cover nothing."""
    figure.legend(
        list(drawn.values()),
        list(drawn),
        loc="outside right upper",
        frameon=False,
        fontsize=9,
        handlelength=4.0,
    )
