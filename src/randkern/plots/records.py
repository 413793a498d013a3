"""Figures from records, drawn without a display.

The figures are :class:`matplotlib.figure.Figure` objects created directly, not
through pyplot: nothing is shown, no backend is chosen, no global state changes.
"""

from collections.abc import Mapping, Sequence
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
# Errors that differ by more than this factor are labelled at 1, 2 and 5 per decade.
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

    A point is the mean over seeds, its bar one standard error, from the seeds and, if
    records have it, from the number of test rows; of more than three curves, only the
    last points have bars. Landmarks are a pale, dotted curve in the colour of their
    kernel, and the exact kernel is a level line. Errors have a logarithmic axis.

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
    families = list(dict.fromkeys(map(_family, kernels)))
    for position, kernel in enumerate(kernels):
        own = [record for record in records if record["kernel"] == kernel]
        style = _STYLES[families.index(_family(kernel)) % len(_STYLES)]
        # Bars at the same number of features are drawn side by side, 3 % apart.
        shift = 1.03 ** (position - (len(kernels) - 1) / 2)
        barred = slice(-1, None) if len(kernels) > _MAX_BARRED else slice(None)
        _draw_kernel(axes, own, score, style, shift, barred)
    if baseline is not None and baseline.get(score) is not None:
        grey = {"color": "0.6", "lw": 1.0, "zorder": 0}
        axes.axhline(baseline[score], label="linear model", **grey)
    ticks = _spaced_ticks(sizes)
    axes.set(xscale="log", xlabel="number of features D", ylabel=metric)
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
        labels.append("level line: the exact\nkernel of this colour")
    if any(container.has_yerr for container in axes.containers):
        handles.append(Line2D([], [], color="0.4", marker="|", ms=14, ls=""))
        labels.append("bar: ± one standard error")
    # Beside the axes, where it covers nothing.
    figure.legend(
        handles, labels, loc="outside right upper", frameon=False, handlelength=3.2
    )
    return figure


def _family(kernel: str) -> str:
    """Return the name of a kernel, whatever its features."""
    return kernel.partition(",")[0]


def _scale_errors(axes: "Axes", values: Sequence[float], score: str) -> None:
    """Give errors a logarithmic axis, and scores that may be negative a linear one."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    least, most = min(values), max(values)
    if score != "test_error" or least <= 0:
        if least >= 0:
            axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
        return
    axes.set_yscale("log")
    wide = LogLocator(subs=(1, 2, 5))
    narrow = MaxNLocator(6, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_locator(wide if most > _DECADES * least else narrow)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda error, _: f"{error:g}")


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
    style: tuple[str, str, Any],
    shift: float,
    barred: slice,
) -> None:
    """Draw one kernel's curve with error bars, and the line of the exact kernel."""
    colour, marker, dashes = style
    kernel = records[0]["kernel"]
    has_landmarks = kernel != _family(kernel)
    groups: dict[int | None, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["n_components"], []).append(record)
    for record in groups.pop(None, []):
        axes.axhline(record[score], color=colour, linestyle=dashes, lw=1.0, zorder=1)
    numbers = sorted(filter(None, groups))
    seeds = [groups[size] for size in numbers]
    errors = [[record[score] for record in own] for own in seeds]
    # Bars of many curves would hide each other.
    bars = np.full(len(seeds), np.nan)
    bars[barred] = [_standard_error(own, score) for own in seeds[barred]]
    axes.errorbar(
        np.array(numbers, dtype=float) * shift,
        [np.mean(own) for own in errors],
        yerr=bars,
        label=kernel,
        color=colour,
        marker=marker,
        markerfacecolor="none" if has_landmarks else colour,
        linestyle=":" if has_landmarks else dashes,
        lw=1.6,
        ms=5.5,
        capsize=2.5,
        elinewidth=1.0,
    )


def _standard_error(records: Sequence[Mapping[str, Any]], score: str) -> float:
    """Return the standard error of a mean over seeds, and of that of test rows."""
    values = [record[score] for record in records]
    variance = np.var(values) / max(len(values) - 1, 1)
    if score == "test_error":
        variance += np.mean([r.get("standard_error", 0.0) for r in records]) ** 2
    return float(np.sqrt(variance))


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
