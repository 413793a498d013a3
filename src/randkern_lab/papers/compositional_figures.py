"""Figures of the compositional experiments, drawn without a display."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .optical_figures import logarithmic, spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_accuracy", "plot_cost", "plot_structure", "plot_tables"]

# Okabe and Ito's palette; markers and dashes tell the curves apart without it.
_METHODS: dict[str, tuple[str, str, str, Any]] = {
    "skeleton": ("skeleton, merged, analytic constant", "#0072B2", "o", "-"),
    "not-merged": ("skeleton, not merged", "#56B4E9", "s", (0, (4, 2))),
    "constant-drawn": ("skeleton, constant drawn", "#009E73", "D", "-."),
    "plain": ("skeleton, neither", "#999999", "v", ":"),
    "rahimi-recht": ("Rahimi-Recht, dense", "#000000", "X", "-"),
    "structured": ("Fourier, structured", "#D55E00", "^", (0, (6, 2))),
}
_CURVES: dict[str, tuple[str, str, Any]] = {
    "gaussian": ("#000000", "o", "-"),
    "linear": ("#999999", "v", ":"),
    "shallow": ("#D55E00", "^", (0, (4, 2))),
    "deep": ("#0072B2", "s", "-"),
}
_GAINS = {"merging": "merging", "analytic-constant": "constant", "both": "both"}


def plot_accuracy(results: Mapping[str, Any]) -> "Figure":
    """Plot the mean error against D of both kernels, and the paired gains.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.compositional_accuracy.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.compositional_accuracy import Options, run
    >>> from randkern_lab.papers.compositional_figures import plot_accuracy
    >>> figure = plot_accuracy(run(Options(quick=True, n_components=(50, 100))))
    >>> [axes.get_title() for axes in figure.axes]
    ['shallow (Gaussian)', 'deep (convolutional)', 'gains, paired by seed']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 4.6), dpi=150, layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    titles = {"shallow": "shallow (Gaussian)", "deep": "deep (convolutional)"}
    for axes, (kernel, title) in zip(panels, titles.items(), strict=False):
        own = [m for m in results["medians"] if m["kernel"] == kernel]
        sizes = sorted({m["n_components"] for m in own})
        for method, (label, colour, marker, dashes) in _METHODS.items():
            points = sorted(
                (m["n_components"], m["mean_error"])
                for m in own
                if m["method"] == method
            )
            if points:
                axes.plot(
                    *np.transpose(points),
                    color=colour,
                    marker=marker,
                    linestyle=dashes,
                    label=label,
                    lw=1.5,
                    ms=4.5,
                )
        logarithmic(axes, "x", spaced(sizes, 4))
        axes.tick_params(axis="x", labelsize=9)
        logarithmic(axes, "y")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("number of features D")
    described = results["dataset"]
    panels[0].set_ylabel(f"mean |error|, Gram matrix of {described['n_images']} images")
    _plot_gains(panels[2], results)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handlelength=3.2,
    )
    return figure


def _plot_gains(axes: "Axes", results: Mapping[str, Any]) -> None:
    """Plot ratios of errors with their intervals, a row each, best read downwards."""
    gains = list(results["gains"])[::-1]
    rows = np.arange(len(gains))
    ratios = np.array([g["ratio"] for g in gains])
    low, high = (np.array([g[key] for g in gains]) for key in ("low", "high"))
    axes.errorbar(
        *(ratios, rows),
        xerr=[ratios - low, high - ratios],
        fmt="o",
        color="#0072B2",
        capsize=3,
        ms=4.5,
    )
    axes.axvline(1.0, color="0.4", lw=1, linestyle="--")
    labels = [
        f"{g['kernel']}, {g['n_components']:,}: {_GAINS[g['gain']]}" for g in gains
    ]
    axes.set_yticks(rows, labels, fontsize=8)
    axes.set_xlim(left=0, right=max(1.1, 1.05 * float(high.max())))
    axes.set_xlabel("error with / error without (95 %)")
    axes.set_title("gains, paired by seed", fontsize=11)
    axes.grid(axis="x", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plot_structure(results: Mapping[str, Any]) -> "Figure":
    """Plot a row a data set: error against D, against n, and seconds of features.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.compositional_structure.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.compositional_figures import plot_structure
    >>> figure = plot_structure({
    ...     "dataset": {"sets": {"digits": {"n_train": 500}}},
    ...     "records": [{"data": "digits", "measure": "features", "curve": "deep",
    ...                  "n_components": d, "n_train": 500, "test_error": 1 / d,
    ...                  "draw_seconds": 0.1, "evaluate_seconds": 0.1,
    ...                  "evaluated_rows": 500} for d in (10, 100)]})
    >>> figure.axes[0].get_ylabel()
    'test error (%)'
    """
    from matplotlib.figure import Figure

    sets = results["dataset"]["sets"]
    figure = Figure(
        figsize=(11.4, 0.6 + 3.6 * len(sets)), dpi=150, layout="constrained"
    )
    rows = figure.subplots(len(sets), 3, squeeze=False)
    for (against_d, against_n, cost), (data, described) in zip(
        rows, sets.items(), strict=True
    ):
        own = [r for r in results["records"] if r["data"] == data]
        features = [r for r in own if r["measure"] == "features"]
        for curve in _CURVES:
            _plot_curve(against_d, features, curve, "n_components", _percent)
            _plot_curve(cost, features, curve, "n_components", _nanoseconds)
            growth = [r for r in own if r["measure"] == "growth" and r["n_components"]]
            _plot_curve(against_n, growth, curve, "n_train", _percent)
            # One of several measures of the same model.
            exact = {
                r["n_train"]: r
                for r in own
                if r["n_components"] is None and r["curve"] == curve
            }
            _plot_curve(
                *(against_n, list(exact.values()), curve, "n_train", _percent),
                hollow=True,
            )
        against_d.set_title(f"{data}, n = {described['n_train']:,}", fontsize=10)
        against_d.set_xlabel("number of features D")
        against_n.set_title(f"{data}, D proportional to n", fontsize=10)
        against_n.set_xlabel("training rows n")
        cost.set_title(f"{data}, drawing and evaluating", fontsize=10)
        cost.set_xlabel("number of features D")
        for axes in (against_d, against_n):
            axes.set_ylabel("test error (%)")
        cost.set_ylabel("ns an entry of the feature matrix")
        sizes = sorted({r["n_components"] for r in features})
        logarithmic(against_d, "x", spaced(sizes, 5))
        logarithmic(cost, "x", spaced(sizes, 5))
        logarithmic(cost, "y")
        growing = sorted({r["n_train"] for r in own if r["measure"] == "growth"})
        if growing:
            logarithmic(against_n, "x", growing)
        else:
            against_n.set_visible(False)
    handles, labels = rows[0, 0].get_legend_handles_labels()
    if any(r["n_components"] is None for r in results["records"]):
        handles.append(_hollow())
        labels.append("exact kernel")
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=5,
        frameon=False,
        handlelength=3.2,
    )
    return figure


def _hollow() -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color="0.3", marker="o", linestyle="", markerfacecolor="none", ms=9
    )


def plot_cost(results: Mapping[str, Any]) -> "Figure":
    """Plot what an entry, a draw, and the reading of pixels cost by size of the image.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.compositional_cost.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.compositional_cost import Options, run
    >>> from randkern_lab.papers.compositional_figures import plot_cost
    >>> figure = plot_cost(run(Options(quick=True, n_components=(100,))))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['processor ns an entry', 'processor ns a draw', 'different pixels read']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 3.9), dpi=150, layout="constrained")
    entry, draw, pixels = figure.subplots(1, 3)
    evaluated = [r for r in results["records"] if r["measure"] == "evaluate"]
    drawn = [r for r in results["records"] if r["measure"] == "draw"]
    styles = [("#0072B2", "o", "-"), ("#D55E00", "^", (0, (4, 2))), ("0.4", "v", ":")]
    sizes = sorted({r["n_components"] for r in evaluated})
    for i, size in enumerate(sizes):
        colour, marker, dashes = styles[i % len(styles)]
        own = [r for r in evaluated if r["n_components"] == size]
        for axes, key in ((entry, "cpu_nanoseconds"), (pixels, "pixels")):
            axes.plot(
                [r["side"] for r in own],
                [r[key] for r in own],
                color=colour,
                marker=marker,
                linestyle=dashes,
                label=f"D = {size:,}",
                lw=1.5,
                ms=4.5,
            )
    draw.plot(
        [r["side"] for r in drawn],
        [1e9 * r["cpu_seconds"] / r["n_draws"] for r in drawn],
        color="#009E73",
        marker="D",
        lw=1.5,
        ms=4.5,
    )
    sides = sorted({r["side"] for r in drawn})
    for axes, label in (
        (entry, "processor ns an entry"),
        (draw, "processor ns a draw"),
        (pixels, "different pixels read"),
    ):
        logarithmic(axes, "x", sides)
        axes.set_xlabel("side of the image")
        axes.set_ylabel(label)
    for axes in (entry, draw):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    logarithmic(pixels, "y")
    entry.set_title("evaluating", fontsize=11)
    draw.set_title("drawing", fontsize=11)
    pixels.set_title("what grows", fontsize=11)
    entry.legend(frameon=False)
    return figure


def plot_tables(results: Mapping[str, Any]) -> "Figure":
    """Plot the test errors of all splits, and their means, a panel a table.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.compositional_tables.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern_lab.papers.compositional_figures import plot_tables
    >>> from randkern_lab.papers.compositional_tables import Options, run
    >>> figure = plot_tables(run(Options(quick=True, data="wine")))
    >>> figure.axes[0].get_xlabel()
    'test error (%)'
    """
    from matplotlib.figure import Figure

    from .compositional_tables import METHODS

    names = list(results["dataset"]["sets"])
    figure = Figure(figsize=(3 + 2.9 * len(names), 3.6), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    rows = {method: -i for i, method in enumerate(METHODS)}
    marks = {True: ("exact", "#0072B2", "o", 0.12), False: ("", "#D55E00", "^", -0.12)}
    for axes, name in zip(panels, names, strict=True):
        for exact, (label, colour, marker, shift) in marks.items():
            own = [
                r
                for r in results["records"]
                if r["data"] == name and (r["n_components"] is None) == exact
            ]
            label = label or f"{own[0]['n_components']:,} features"
            axes.scatter(
                [_percent(r) for r in own],
                [rows[r["method"]] + shift for r in own],
                color=colour,
                marker=marker,
                s=14,
                alpha=0.3,
                linewidths=0,
            )
            means = [
                m
                for m in results["means"]
                if m["data"] == name and (m["n_components"] is None) == exact
            ]
            axes.scatter(
                [_percent(m) for m in means],
                [rows[m["method"]] + shift for m in means],
                color=colour,
                marker=marker,
                s=48,
                label=label,
            )
        axes.set_title(name, fontsize=11)
        axes.set_xlim(left=0)
        axes.set_xlabel("test error (%)")
        axes.grid(axis="x", color="0.9", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(list(rows.values()), [METHODS[method] for method in rows])
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


def _percent(record: Mapping[str, Any]) -> float:
    return float(100 * record["test_error"])


def _nanoseconds(record: Mapping[str, Any]) -> float:
    seconds = record["draw_seconds"] + record["evaluate_seconds"]
    entries = record["evaluated_rows"] * record["n_components"]
    return float(1e9 * seconds / entries)


def _plot_curve(
    axes: "Axes", records: Any, curve: str, key: str, value: Any, hollow: bool = False
) -> None:
    """Plot a curve, or large hollow markers of the same colour."""
    points = sorted((r[key], value(r)) for r in records if r["curve"] == curve)
    if not points:
        return
    colour, marker, dashes = _CURVES[curve]
    look: dict[str, Any] = {"linestyle": dashes, "label": curve, "lw": 1.5, "ms": 4.5}
    if hollow:
        look = {"linestyle": "", "markerfacecolor": "none", "ms": 9}
    axes.plot(*np.transpose(points), color=colour, marker=marker, **look)
