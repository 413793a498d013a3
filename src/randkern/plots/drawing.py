"""What all figures share: colours, labels, bars, ticks, and SVG for pages."""

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#000000"
ACCENT = "#0072B2"
PALE = "#9ec9dd"
# A page's names of these colours, which differ in dark mode.
_OF_PAGE = {
    INK: "var(--ink)",
    ACCENT.lower(): "var(--link)",
    PALE: "var(--pale)",
}
# Numbers along an axis, at most, of one figure and of panels side by side.
_TICKS = 5
_TICKS_OF_PANELS = 3
# Of classes: the first, and others of Matplotlib's.
_CYCLE = [ACCENT, "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
#: Of figures in a page.
STYLE = {
    "axes.prop_cycle": f"cycler('color', {_CYCLE})",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "randkern",
}


def plain(text: Any) -> str:
    """Escape text so that Matplotlib reads it neither as a formula nor as hidden.

    It leaves labels that begin with an underscore out of legends.
    """
    shown = str(text).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def bars(axes: "Axes", names: Sequence[Any], values: np.ndarray, label: str) -> "Axes":
    """Draw horizontal bars, the first on top."""
    places = np.arange(len(names))
    axes.barh(places, values, color=ACCENT)
    axes.set_yticks(places, [plain(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def legible_ticks(axes: "Axes", most: int = _TICKS) -> None:
    """Label linear axes with at most so many numbers, such as 100,000.

    Axes with labels of their own stay as they are.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        # Names along an axis are units.
        if axis.get_scale() != "linear" or axis.have_units():
            continue
        formatter, locator = axis.get_major_formatter(), axis.get_major_locator()
        is_named = isinstance(locator, FixedLocator) and not axis.isDefault_majfmt
        if is_named or isinstance(formatter, FixedFormatter):
            continue
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
        if axis.isDefault_majfmt:
            axis.set_major_formatter(lambda value, _: number(value))


def number(value: float) -> str:
    """Return a number with separated thousands, and exponents from 10¹⁰ on.

    Examples
    --------
    >>> from randkern.plots.drawing import number
    >>> number(100000.0), number(-0.30000000000000004)
    ('100,000', '−0.3')
    """
    return f"{value:,.10g}".replace("-", "−")


def as_svg(figure: "Figure") -> str:
    """Return a figure as SVG in the colours of the page."""
    for axes in figure.axes:
        legible_ticks(axes, _TICKS if len(figure.axes) == 1 else _TICKS_OF_PANELS)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    known = re.compile("|".join(_OF_PAGE))
    text = re.sub(
        'style="[^"]*"',
        lambda style: known.sub(lambda colour: _OF_PAGE[colour[0]], style[0]),
        out.getvalue(),
    )
    return text[text.index("<svg") :]
