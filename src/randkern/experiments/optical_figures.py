"""Figures of the optical experiments, drawn without a display.

As in :mod:`randkern.plots`, figures are made directly, not through pyplot.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_optical_ridge"]

# Okabe and Ito's palette; markers and dashes tell the curves apart without it. A
# device's curve has the colour of the computed one.
_CURVES: dict[str, tuple[str, str, str, Any, bool]] = {
    "fourier": ("Fourier", "#000000", "o", "-", True),
    "optical-2": ("optical, m = 2", "#0072B2", "s", "-", True),
    "optical-4": ("optical, m = 4", "#D55E00", "^", "-", True),
    "device-2": ("device, m = 2", "#0072B2", "s", (0, (4, 2)), False),
    "device-4": ("device, m = 4", "#D55E00", "^", (0, (4, 2)), False),
}


def plot_optical_ridge(results: Mapping[str, Any]) -> "Figure":
    """Plot test error against D: features, device, and exact kernels as levels.

    Parameters
    ----------
    results : mapping
        From :func:`randkern.experiments.optical_ridge.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> from randkern.experiments.optical_figures import plot_optical_ridge
    >>> figure = plot_optical_ridge({
    ...     "dataset": {"name": "digits", "n_train": 1347},
    ...     "records": [{"curve": "fourier", "n_components": d, "n_train": 1347,
    ...                  "test_error": 1 / d} for d in (10, 100)]})
    >>> figure.axes[0].get_xlabel()
    'number of random features D'
    """
    from matplotlib.figure import Figure

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
                    label=f"exact, n = {record['n_train']:,}",
                    zorder=1,
                )
    logarithmic(axes, "x", sorted({r["n_components"] for r in records} - {None}))
    logarithmic(axes, "y")
    axes.set_xlabel("number of random features D")
    axes.set_ylabel("test error (%)")
    described = results["dataset"]
    axes.set_title(
        f"{described['name']}, binarized, {described['n_train']:,} training rows",
        fontsize=11,
    )
    figure.legend(loc="outside right upper", frameon=False, handlelength=3.2)
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
