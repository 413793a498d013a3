"""Figures of a report: empty axes, and what was drawn on them as SVG."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._extras import import_extra
from randkern.plots.ticks import legible_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#000000"
ACCENT = "#0b6e99"
PALE = "#9ec9dd"
# The page's names of these colours, which differ in dark mode.
_OF_PAGE = {INK: "var(--ink)", ACCENT: "var(--link)", PALE: "var(--pale)"}
#: Classes that a figure shows at most, each in a colour of its own.
MAX_CLASSES = 6
COLOURS = [ACCENT, *(f"C{k}" for k in range(1, MAX_CLASSES))]
_MAX_POINTS = 1500
# Numbers along an axis, at most, of one figure and of panels side by side.
_TICKS = 5
_TICKS_OF_PANELS = 3

#: A figure as SVG, and a sentence that describes it.
Drawing = tuple[str, str]


def new_axes(height: float) -> tuple[Figure, Any]:
    """Return a figure 5 inches wide with its axes."""
    figure, panels = new_panels(height, 1)
    return figure, panels[0]


def new_panels(height: float, n_panels: int) -> tuple[Figure, Any]:
    """Return a figure 5 inches wide with panels in two columns."""
    import_extra("matplotlib", "A report", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, height), layout="constrained")
    shape = -(-n_panels // 2), min(n_panels, 2)
    grid = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
    for axes in grid[n_panels:]:
        axes.remove()
    panels = list(grid[:n_panels])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def shown_rows(n: int) -> np.ndarray:
    """Return the rows of n that are drawn as points."""
    return np.linspace(0, n - 1, min(n, _MAX_POINTS)).astype(int)


def plain(text: Any) -> str:
    """Escape text so that Matplotlib reads it neither as a formula nor as hidden.

    It leaves labels that begin with an underscore out of legends.
    """
    shown = str(text).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG in the colours of the page."""
    import matplotlib

    for axes in figure.axes:
        legible_ticks(axes, _TICKS if len(figure.axes) == 1 else _TICKS_OF_PANELS)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "randkern"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    known = re.compile("|".join(_OF_PAGE))
    text = re.sub(
        'style="[^"]*"',
        lambda style: known.sub(lambda colour: _OF_PAGE[colour[0]], style[0]),
        out.getvalue(),
    )
    return text[text.index("<svg") :]
