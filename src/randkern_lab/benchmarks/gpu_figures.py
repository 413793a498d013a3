"""The figure of the benchmark of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from randkern_lab.papers.optical_figures import logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_gpu"]

_LINES = {"structured": "-", "streamed": "--"}


def plot_gpu(results: Mapping[str, Any]) -> Figure:
    """Plot what a feature costs, and batches of features against their number.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.gpu.run`, of the measurements ``features`` or
        ``sweep``.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    records = results["records"]
    features = [r for r in records if r["measurement"] == "features"]
    sweep = [r for r in records if r["measurement"] == "sweep"]
    counted = any(record["joules"] is not None for record in sweep)
    panels = bool(features) + (1 + counted) * bool(sweep)
    if panels == 0:
        raise ValueError(
            "no records to plot: measure 'features' or 'sweep', got "
            f"{sorted({record['measurement'] for record in records})}."
        )
    figure = Figure(figsize=(4.8 * panels, 4.2), dpi=150, layout="constrained")
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    if features:
        _plot_features(axes.pop(0), features)
    for panel, quantity in zip(axes, ("seconds", "joules"), strict=False):
        _plot_sweep(panel, sweep, quantity)
    figure.suptitle(results["device"]["name"], fontsize=10)
    return figure


def _plot_features(axes: Axes, records: list[Mapping[str, Any]]) -> None:
    """Draw picoseconds a feature, beside those of writing it."""
    shown = [record for record in records if record["method"] != "write"]
    names = [record["method"] for record in shown]
    costs = [record["picoseconds_a_feature"] for record in shown]
    axes.plot(costs, names, "o", color="#0072B2")
    (write,) = (r for r in records if r["method"] == "write")
    bound = write["picoseconds_a_feature"]
    axes.axvline(bound, color="#D55E00", linestyle="--")
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.grid(visible=True, axis="both", alpha=0.4)
    axes.set_xlabel("picoseconds a feature (dashed: of writing it)")
    first = records[0]
    axes.set_title(
        f"{first['n']:,} rows, d = {first['d']:,}, D = {first['n_components']:,}",
        fontsize=9,
    )


def _plot_sweep(axes: Axes, records: list[Mapping[str, Any]], quantity: str) -> None:
    """Draw seconds or joules of a batch against the number of features."""
    from matplotlib import colormaps

    batches = sorted({record["n"] for record in records})
    for number, batch in enumerate(batches):
        colour = colormaps["viridis"](0.9 * number / max(1, len(batches) - 1))
        for method, line in _LINES.items():
            own = [r for r in records if (r["n"], r["method"]) == (batch, method)]
            axes.plot(
                [record["n_components"] for record in own],
                [record[quantity] for record in own],
                f"o{line}",
                color=colour,
                label=f"{method}, {batch:,} row{'s' if batch > 1 else ''}",
            )
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    axes.set_xlabel("number of features D")
    axes.set_ylabel(f"{quantity} a batch")
    axes.legend(frameon=False, fontsize=7, handlelength=4)
