"""Figures from records, drawn without a display.

The figures are :class:`matplotlib.figure.Figure` objects made directly, not
through pyplot: nothing is shown, no backend is chosen, no global state changes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_compare", "save_figure"]

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
# Decades: two tick labels nearer than this would touch.
_MIN_TICK_DISTANCE = 0.18


def plot_compare(
    records: Sequence[Mapping[str, Any]],
    *,
    dataset: str = "",
    metric: str = "test error",
    percent: bool = False,
) -> "Figure":
    """Plot test error against the number of features, one curve a kernel.

    A point is the mean over seeds, its bar the standard deviation. A horizontal
    line without markers, in the same colour and dashes, is the exact kernel.

    Parameters
    ----------
    records : sequence of mapping
        With the keys ``kernel``, ``n_components`` (None for exact) and
        ``test_error``; others are ignored. See
        :class:`randkern.experiments.records.Record`.
    dataset : str, default=""
        Name for the title.
    metric : str, default="test error"
        Label of the vertical axis.
    percent : bool, default=False
        Write the errors as percentages: they are shares.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there are no records.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from randkern.plots import plot_compare
    >>> figure = plot_compare([
    ...     {"kernel": "gaussian", "n_components": 100, "test_error": 0.05},
    ...     {"kernel": "gaussian", "n_components": 1000, "test_error": 0.03},
    ...     {"kernel": "gaussian", "n_components": None, "test_error": 0.02},
    ... ], dataset="digits")
    >>> figure.axes[0].get_title()
    'digits'
    """
    from matplotlib.figure import Figure

    if not records:
        raise ValueError("there are no records to plot; expected at least one")
    figure = Figure(figsize=(7.0, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    kernels = list(dict.fromkeys(record["kernel"] for record in records))
    sizes = sorted({r["n_components"] for r in records if r["n_components"]})
    for position, kernel in enumerate(kernels):
        own = [record for record in records if record["kernel"] == kernel]
        _draw_kernel(axes, own, kernel, position, len(kernels))
    _format_axes(axes, sizes, metric)
    if percent:
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    if dataset:
        axes.set_title(dataset)
    _add_legend(figure, axes, records)
    return figure


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure; the format follows the name's ending.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : str or Path

    Returns
    -------
    path : Path

    Examples
    --------
    >>> import tempfile
    >>> from randkern.plots import plot_compare, save_figure
    >>> figure = plot_compare(
    ...     [{"kernel": "linear", "n_components": 10, "test_error": 0.1}])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(figure, folder + "/compare.png").stat().st_size > 1000
    True
    """
    path = Path(path)
    figure.savefig(path)
    return path


def _draw_kernel(
    axes: "Axes",
    records: Sequence[Mapping[str, Any]],
    kernel: str,
    position: int,
    n_kernels: int,
) -> None:
    """Draw one kernel's curve with error bars, and its exact line."""
    colour, marker, dashes = _STYLES[position % len(_STYLES)]
    errors: dict[int, list[float]] = {}
    for record in records:
        if record["n_components"] is None:
            axes.axhline(
                record["test_error"], color=colour, linestyle=dashes, lw=1.0, zorder=1
            )
        else:
            errors.setdefault(record["n_components"], []).append(record["test_error"])
    sizes = np.array(sorted(errors), dtype=float)
    # Bars at the same number of features are set side by side, 3 % apart.
    shift = 1.03 ** (position - (n_kernels - 1) / 2)
    axes.errorbar(
        sizes * shift,
        [np.mean(errors[int(size)]) for size in sizes],
        yerr=[np.std(errors[int(size)]) for size in sizes],
        label=kernel,
        color=colour,
        marker=marker,
        linestyle=dashes,
        lw=1.6,
        ms=5.5,
        capsize=2.5,
        elinewidth=1.0,
    )


def _format_axes(axes: "Axes", sizes: Sequence[int], metric: str) -> None:
    axes.set_xscale("log")
    if sizes:
        axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
        ticks = _spaced_ticks(sizes)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    else:
        axes.set_xticks([])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("number of random features D")
    axes.set_ylabel(metric)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.grid(axis="y", color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _spaced_ticks(sizes: Sequence[int]) -> list[int]:
    """Return those sizes whose labels do not touch, always the last one."""
    distance = max(_MIN_TICK_DISTANCE, 0.09 * float(np.log10(sizes[-1] / sizes[0])))
    ticks = [sizes[-1]]
    for _, size in pairwise(reversed([*sizes, sizes[-1]])):
        if np.log10(ticks[-1] / size) >= distance:
            ticks.append(size)
    return ticks[::-1]


def _add_legend(
    figure: "Figure", axes: "Axes", records: Sequence[Mapping[str, Any]]
) -> None:
    """Put the legend beside the axes, where it can cover nothing."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if any(record["n_components"] is None for record in records):
        handles.append(Line2D([], [], color="0.4", lw=1.0))
        labels.append("level lines:\nexact kernels")
    figure.legend(
        handles, labels, loc="outside right upper", frameon=False, handlelength=3.2
    )
