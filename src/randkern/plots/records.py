"""Figures from records, drawn without a display.

The figures are :class:`matplotlib.figure.Figure` objects created directly, not
through pyplot: nothing is shown, no backend is chosen, no global state changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SYMBOLS", "axis_number", "plot_compare", "save_figure"]

# Okabe and Ito's palette, in an order that alternates dark and light so that
# neighbours differ in grey; markers and dashes tell the curves apart without it.
_STYLES = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#000000", "v", (0, (5, 1, 1, 1, 1, 1))),
    ("#E69F00", "P", (0, (8, 3))),
    ("#56B4E9", "X", (0, (3, 1))),
)
# Least distance of tick labels, in decades, at which they do not touch.
_MIN_TICK_DISTANCE = 0.18
# So many curves have bars at all their points.
_MAX_BARRED = 3
# Errors that differ by more than this factor have a logarithmic axis.
_DECADES = 8
# Symbols of hyperparameters on axes.
SYMBOLS = {"lengthscale": "ℓ", "bias": "ν"}


def plot_compare(
    records: Sequence[Mapping[str, Any]],
    *,
    dataset: str = "",
    score: str = "test_error",
    metric: str = "test error",
    percent: bool = False,
    baseline: Mapping[str, Any] | None = None,
) -> "Figure":
    """Plot test error against the number of features, one curve per kernel.

    A point is the mean over seeds, its bar the standard deviation, and the pale bar
    behind it the standard error of the test rows, if records have it; of more than
    three curves, only the last points have bars. The exact kernel is a horizontal line
    without markers, in the same colour and dashes.

    `records` have the keys ``kernel``, ``n_components`` (None for exact) and the
    `score` to plot; those in which it is None are left out. `dataset` is the title,
    `metric` the label of the vertical axis; with `percent` the scores are labelled as
    percentages. `baseline` is the record of a linear model, which is a grey line. No
    records raise a ValueError.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    records = [record for record in records if record.get(score) is not None]
    if not records:
        raise ValueError("there are no records to plot; expected at least one")
    figure = Figure(figsize=(7.0, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    kernels = list(dict.fromkeys(record["kernel"] for record in records))
    sizes = sorted({r["n_components"] for r in records if r["n_components"]})
    for position, kernel in enumerate(kernels):
        own = [record for record in records if record["kernel"] == kernel]
        _draw_kernel(axes, own, score, kernel, position, len(kernels))
    if baseline is not None and baseline.get(score) is not None:
        style = {"color": "0.6", "lw": 1.0, "zorder": 0}
        axes.axhline(baseline[score], label="linear model", **style)
    ticks = _spaced_ticks(sizes)
    axes.set(xscale="log", xlabel="number of random features D", ylabel=metric)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    if sizes:
        axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
    _scale_errors(axes, [record[score] for record in records], score)
    _format_frame(axes, percent)
    if dataset:
        axes.set_title(dataset)
    handles, labels = axes.get_legend_handles_labels()
    if any(record["n_components"] is None for record in records):
        handles.append(Line2D([], [], color="0.4", lw=1.0))
        labels.append("level lines:\nexact kernels")
    if score == "test_error" and any("standard_error" in r for r in records):
        handles.append(Line2D([], [], color="0.4", alpha=0.4, lw=4.5))
        labels.append("pale: test rows\nthin: seeds")
    _legend(figure, handles, labels)
    return figure


def _scale_errors(axes: "Axes", values: Sequence[float], score: str) -> None:
    """Give errors of several sizes a logarithmic axis, and others one from 0 on."""
    from matplotlib.ticker import LogLocator, NullFormatter

    least = min(values)
    if score == "test_error" and least > 0 and max(values) > _DECADES * least:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif least >= 0:
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Save a figure in the format of the file extension; return the path."""
    path = Path(path)
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:] or None)
    return path


def axis_number(value: float) -> str:
    """Format a number for an axis, very large and small ones as powers of ten.

    Examples
    --------
    >>> from randkern.plots.records import axis_number
    >>> axis_number(2500.0), axis_number(1e-4)
    ('2,500', '$10^{-4}$')
    """
    exponent = round(np.log10(value)) if value > 0 else 0
    if abs(exponent) > 2 and np.isclose(value, 10.0**exponent):
        return f"$10^{{{exponent}}}$"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _draw_kernel(
    axes: "Axes",
    records: Sequence[Mapping[str, Any]],
    score: str,
    kernel: str,
    position: int,
    n_kernels: int,
) -> None:
    """Draw one kernel's curve with error bars, and the line of the exact kernel."""
    colour, marker, dashes = _STYLES[position % len(_STYLES)]
    groups: dict[int | None, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["n_components"], []).append(record)
    for record in groups.pop(None, []):
        level = record[score]
        axes.axhline(level, color=colour, linestyle=dashes, lw=1.0, zorder=1)
    # Bars at the same number of features are drawn side by side, 3 % apart.
    shift = 1.03 ** (position - (n_kernels - 1) / 2)
    sizes = np.array(sorted(filter(None, groups)), dtype=float) * shift
    seeds = [groups[size] for size in sorted(filter(None, groups))]
    errors = [[record[score] for record in own] for own in seeds]
    means = np.array([np.mean(own) for own in errors])
    # Bars of many curves would hide each other.
    barred = slice(-1, None) if n_kernels > _MAX_BARRED else slice(None)
    has_error = score == "test_error"  # whose standard error is known
    if seeds and has_error and all("standard_error" in record for record in records):
        of_rows = [np.mean([r["standard_error"] for r in own]) for own in seeds]
        low = np.subtract(means, of_rows)[barred]
        high = np.add(means, of_rows)[barred]
        style = {"color": colour, "alpha": 0.25, "lw": 4.5, "zorder": 1}
        axes.vlines(sizes[barred], low, high, **style)
    deviations = np.zeros(len(errors))
    deviations[barred] = [np.std(own) for own in errors[barred]]
    axes.errorbar(
        sizes,
        means,
        yerr=deviations,
        label=kernel,
        color=colour,
        marker=marker,
        linestyle=dashes,
        lw=1.6,
        ms=5.5,
        capsize=2.5,
        elinewidth=1.0,
    )


def _format_frame(axes: "Axes", percent: bool) -> None:
    """Draw pale level lines and no frame; label fractions as percentages if wanted."""
    axes.grid(axis="y", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if percent:
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")


def _spaced_ticks(sizes: Sequence[int]) -> list[int]:
    """Return the sizes whose labels do not touch, always including the last."""
    if not sizes:
        return []
    distance = max(_MIN_TICK_DISTANCE, 0.15 * float(np.log10(sizes[-1] / sizes[0])))
    ticks = [sizes[-1]]
    for _, size in pairwise(reversed([*sizes, sizes[-1]])):
        if np.log10(ticks[-1] / size) >= distance:
            ticks.append(size)
    return ticks[::-1]


def _legend(figure: "Figure", handles: Iterable[Any], labels: Iterable[str]) -> None:
    """Put the legend beside the axes, where it covers nothing."""
    figure.legend(
        handles, labels, loc="outside right upper", frameon=False, handlelength=3.2
    )
