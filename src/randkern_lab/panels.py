"""Figures from tidy tables, declared by panel and drawn without a display."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .tables import Quantity, Selection, laid_out, quantity, text

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
# An error of zero has no logarithm.
_MIN_HEIGHT = 1e-4
_MANY_TICKS = 7
_MANY_DECADES = 4  # of a y axis, from which only powers of ten have ticks
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


@dataclass(frozen=True)
class Panel(Selection):
    """Curves of one quantity against another; points are means over records.

    Records without `x` are horizontal lines. Labels are templates of the results;
    labels, scales and logarithmic axes are by default those of the quantities.
    """

    x: Quantity | str = ""
    y: Quantity | str = ""
    by: str | tuple[str, ...] = "method"  # the keys whose values define the curves
    # The curves, in the order of the legend.
    styles: Mapping[Any, Style] = field(default_factory=dict)
    title: str = ""  # a template of the results, and of the first record shown
    xlabel: str = ""
    ylabel: str = ""
    log: str | None = None  # the logarithmic axes: "xy", "x", "y" or ""
    scale: float | None = None
    bars: str = ""  # a column of half-lengths of error bars
    # Of a logarithmic x axis; default: the values of `x`; None: 1, 2, 5 times 10ᵏ.
    ticks: Sequence[float] | None = ()
    # Called as `extra(axes, results)` at the end, to draw anything else; the records
    # of the panel are the results' "shown".
    extra: Callable[..., None] | None = None

    def of(self, results: Mapping[str, Any]) -> list[list[Any]]:
        """Return the records of each panel, of which curves need values.

        What `extra` draws alone may need no records.
        """
        own, y = super().of(results), quantity(self.y).key
        if y:
            return [part for part in own if any(r.get(y) is not None for r in part)]
        return own or ([] if self.per else [[]])


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure, created without pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def draw(
    results: Mapping[str, Any],
    panels: Sequence[Panel],
    *,
    columns: int = 0,
    size: tuple[float, float] = (4.6, 4.2),
    title: str = "",
    legend: str = "below",
) -> Figure:
    """Return a figure of panels.

    There are `columns` panels per row, by default all, of `size` inches each. There is
    one legend (``"below"``, ``"right"``) or one per panel (``"inside"``).
    """
    shown = list(laid_out(results, panels))
    columns = max(1, min(columns, len(shown)) or len(shown))
    rows = max(1, -(-len(shown) // columns))
    figure = new_figure(size[0] * columns, size[1] * rows, text(title, results))
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    for axes, (panel, records) in zip(grid.flat, shown, strict=False):
        heading = text(panel.title, {**results, **(records or [{}])[0]})
        lines = [textwrap.fill(line, int(10 * size[0])) for line in heading.split("\n")]
        axes.set_title("\n".join(lines), fontsize=10)
        _draw_panel(axes, panel, results, records)
        own = axes.get_legend_handles_labels()
        if legend == "inside" and own[0] and axes.get_legend() is None:
            axes.legend(frameon=False, fontsize=8, handlelength=3.2)
        handles |= {label: handle for handle, label in zip(*own, strict=True)}
    if legend != "inside" and handles:
        place = "outside right upper" if legend == "right" else "outside lower center"
        fitting = max(1, int(figure.get_figwidth() / _LEGEND_INCHES))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc=place,
            ncols=1 if legend == "right" else min(len(handles), 3, fitting),
            frameon=False,
            fontsize=9,
            handlelength=3.2,
        )
    return figure


def _draw_panel(
    axes: Axes, panel: Panel, results: Mapping[str, Any], records: Sequence[Any]
) -> None:
    """Draw the curves of a panel, and name its axes."""
    axes.grid(color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    x, y = quantity(panel.x), quantity(panel.y)
    if y.key:
        _draw_curves(axes, panel, x, y, records)
    axes.set_xlabel(text(panel.xlabel or x.label or x.heading or x.key, results))
    axes.set_ylabel(text(panel.ylabel or y.label or y.heading or y.key, results))
    if panel.extra is not None:
        panel.extra(axes, {**results, "shown": records})


def _draw_curves(
    axes: Axes, panel: Panel, x: Quantity, y: Quantity, records: Sequence[Any]
) -> None:
    """Draw a curve and a horizontal line for each style that has records."""
    import pandas as pd

    table = pd.DataFrame(records)
    if table.empty or y.key not in table:
        return
    table = table[table[y.key].notna()]
    log = panel.log
    if log is None:
        log = ("x" if x.log else "") + ("y" if y.log else "")
    scale = y.scale if panel.scale is None else panel.scale
    keys = [panel.by] if isinstance(panel.by, str) else list(panel.by)
    rows = list(table[keys].itertuples(index=False, name=None))
    for value, style in panel.styles.items():
        curve = (value,) if isinstance(panel.by, str) else value
        own = table[[row == curve for row in rows]]
        levels = own[own[x.key].isna()]
        means = own[own[x.key].notna()].groupby(x.key)[y.key].mean()
        heights = scale * means.to_numpy(float)
        if "y" in log:
            heights = np.maximum(heights, _MIN_HEIGHT * heights.max(initial=0))
        if len(means):
            bars = own.groupby(x.key)[panel.bars].mean() if panel.bars else None
            axes.errorbar(
                means.index.to_numpy(float),
                heights,
                yerr=None if bars is None else scale * bars.to_numpy(float),
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
            axes.axhline(
                scale * levels[y.key].mean(),
                color=style.colour,
                linestyle=":",
                lw=1.0,
                zorder=1,
            )
    if table[x.key].isna().any() and not axes.get_legend_handles_labels()[1] == []:
        axes.plot([], [], color="0.4", lw=1.0, linestyle=":", label="exact kernels")
    if "x" in log:
        values = sorted(set(table[x.key].dropna()))
        logarithmic(axes, "x", () if panel.ticks is None else panel.ticks or values)
    if "y" in log:
        logarithmic(axes, "y")


def plain_number(value: float) -> str:
    """Return a number of an axis, without an exponent."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def shown_ticks(values: Iterable[float], decades_per_inch: float) -> list[float]:
    """Return those of some values whose labels fit side by side on a logarithmic axis.

    Of many values only powers of ten are shown; of few, these come first, then the
    others, from the greatest down.
    """
    character_inches = 0.085
    gap_inches = 0.12  # between labels
    shown: list[float] = []
    ordered = sorted(set(values), reverse=True)
    powers = [value for value in ordered if math.log10(value).is_integer()]
    if len(ordered) > _MANY_TICKS and len(powers) > 2:
        ordered = powers
    ordered.sort(key=lambda value: value not in powers)
    for value in ordered:
        fits = True
        for other in shown:
            n_characters = len(plain_number(value)) + len(plain_number(other))
            needed = character_inches * n_characters / 2 + gap_inches
            inches = abs(math.log10(value / other)) / decades_per_inch
            fits = fits and inches >= needed
        if fits:
            shown.append(value)
    return sorted(shown)


def logarithmic(axes: Axes, which: str, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with plain numbers at ticks.

    Those of an x axis are labelled where the labels fit. The default are 1, 2 and 5
    times powers of ten, on a long y axis only the powers, on a short one round numbers.
    """
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullLocator,
    )

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    low, high = getattr(axes, f"get_{which}lim")()
    decades = math.log10(high / low)
    major: Any = FixedLocator(ticks)
    minor: Any = NullLocator()
    if ticks and which == "x":
        columns = axes.get_subplotspec().get_gridspec().ncols
        label_inches = 0.9  # of the y axis
        width = axes.figure.get_figwidth() / columns - label_inches
        major = FixedLocator(shown_ticks(ticks, decades / width))
        minor = FixedLocator(ticks)
    elif not ticks and which == "y" and decades > _MANY_DECADES:
        major = LogLocator()
    elif not ticks and which == "y" and decades < 1:
        major = MaxNLocator(6, steps=[1, 2, 5, 10])
    elif not ticks:
        major = LogLocator(subs=(1.0, 2.0, 5.0))
    axis.set_major_locator(major)
    axis.set_minor_locator(minor)
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter("")
