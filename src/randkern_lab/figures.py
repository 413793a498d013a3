"""Figures by matplotlib, drawn without a display: styles, curves, legends, axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette; markers and dashes also distinguish curves.
BLUE, RED = "#0072B2", "#D55E00"
PALETTE = {
    **{"blue": BLUE, "red": RED, "green": "#009E73", "pink": "#CC79A7"},
    **{"black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "grey": "#999999"},
}
DASHED, LONG, DOTTED = (0, (4, 2)), (0, (6, 2)), ":"
#: Labels of axes.
LABELS = {
    "n_components": "number of random features D",
    "n_train": "training rows n",
    "test_error": "test error (%)",
    "fit_seconds": "seconds of fit",
    "cpu_seconds": "processor seconds",
}
PERCENT = ("test_error",)  # shown times 100
# Multiples of powers of ten at ticks of a logarithmic axis.
_SUBS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
_LABELS_THAT_FIT = {"x": 4, "y": 12}
_SHORT = {"x": 0.4, "y": 1.0}  # decades
# Of a column of a legend.
_LEGEND_INCHES = 2.2


@dataclass(frozen=True)
class Style:
    """Style of a curve."""

    label: str
    colour: str = BLUE  # a name in `PALETTE`, or a hexadecimal number
    marker: str = "o"
    dashes: Any = "-"
    filled: bool = True  # whether its markers are

    def __post_init__(self) -> None:
        if not self.colour.startswith("#"):
            object.__setattr__(self, "colour", PALETTE[self.colour])


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure, created without pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def panels(
    n: int, columns: int = 0, size: tuple[float, float] = (4.6, 4.2), title: str = ""
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its `n` panels, of `size` inches each.

    There are `columns` per row, by default all.
    """
    columns = min(columns, n) or n
    rows = -(-n // columns)
    figure = new_figure(size[0] * columns, size[1] * rows, title)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[n:]:
        axes.set_visible(False)
    for axes in grid[:n]:
        axes.grid(color="0.9", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid[:n]


def name_axes(axes: Axes, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Set the title of a panel, in lines that fit, and labels of its axes, if given."""
    columns = axes.get_subplotspec().get_gridspec().ncols
    width = int(10 * axes.figure.get_figwidth() / columns)
    axes.set_title(textwrap.fill(title, width), fontsize=10)
    axes.set_xlabel(xlabel or axes.get_xlabel())
    axes.set_ylabel(ylabel or axes.get_ylabel())


def curves(
    axes: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    styles: Mapping[Any, Style],
    by: str | Sequence[str] = "method",
    *,
    log: str = "xy",
    bars: str = "",
    scale: float | None = None,
) -> None:
    """Draw a curve for each style: means over the rows with the same `x`.

    `by` are the columns whose values define the curves. Rows without `x` are horizontal
    lines. `bars` is a column of half-lengths of error bars, or ``"spread"``: from the
    least to the greatest value. Values of zero have no logarithm, and are not drawn on
    a logarithmic axis. `log` names the logarithmic axes. Labels are those of
    :data:`LABELS`; :func:`name_axes` sets others.
    """
    axes.set(xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y))
    scale = scale or (100.0 if y in PERCENT else 1.0)
    keys = [by] if isinstance(by, str) else list(by)
    if frame.empty or y not in frame:
        return
    shown = frame[frame[y].notna() & ((frame[y] > 0) | ("y" not in log))]
    for value, style in styles.items():
        curve = [value] if isinstance(by, str) else list(value)
        own = shown[(shown[keys] == curve).all(axis=1)]
        levels, at = own[own[x].isna()], own[own[x].notna()].groupby(x)
        means = scale * at[y].mean()
        if len(means):
            lengths: Any = None
            if bars == "spread" and at.size().max() > 1:
                ends = means - scale * at[y].min(), scale * at[y].max() - means
                lengths = [end.clip(lower=0) for end in ends]  # rounding
            elif bars and bars != "spread":
                lengths = scale * at[bars].mean()
            axes.errorbar(
                means.index.to_numpy(float),
                means.to_numpy(float),
                yerr=lengths,
                color=style.colour,
                marker=style.marker,
                linestyle=style.dashes,
                markerfacecolor=style.colour if style.filled else "white",
                label=style.label,
                lw=1.5,
                ms=5.0,
                capsize=2.0,
            )
        if len(levels):
            level = scale * levels[y].mean()
            axes.axhline(level, color=style.colour, linestyle=":", lw=1.0, zorder=1)
    if shown[x].isna().any() and axes.get_legend_handles_labels()[1]:
        axes.plot([], [], color="0.4", lw=1.0, linestyle=":", label="exact kernels")
    for which in log:
        logarithmic(axes, which)


def add_legend(figure: Figure, where: str = "below") -> None:
    """Add one legend of all panels, ``"below"`` or at the ``"right"``."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        own = axes.get_legend_handles_labels()
        handles |= {label: handle for handle, label in zip(*own, strict=True)}
    if not handles:
        return
    place = "outside right upper" if where == "right" else "outside lower center"
    fitting = max(1, int(figure.get_figwidth() / _LEGEND_INCHES))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc=place,
        ncols=1 if where == "right" else min(len(handles), 3, fitting),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def logarithmic(axes: Axes, which: str, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with plain numbers at ticks.

    The default are 1, 2 and 5 times powers of ten, fewer on a long axis, and round
    numbers on a short one.
    """
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    low, high = getattr(axes, f"get_{which}lim")()
    decades, most = math.log10(high / low), _LABELS_THAT_FIT[which]
    fitting = (subs for subs in _SUBS if len(subs) * decades <= most)
    locator: Any = LogLocator(subs=next(fitting, _SUBS[-1]))
    if ticks:
        locator = FixedLocator(ticks)
    elif decades < _SHORT[which]:
        locator = MaxNLocator(most // 2, steps=[1, 2, 5, 10])
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        lambda v, _: f"{v:,.0f}" if v >= 1000 else f"{v:.4g}"  # without exponents
    )
