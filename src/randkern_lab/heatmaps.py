"""Grids of hyperparameters as heatmaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern.plots import SYMBOLS, axis_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_grids"]

_MAX_PANELS = 8


def plot_grids(
    records: Sequence[Mapping[str, Any]],
    *,
    best: Mapping[str, Mapping[str, Any]] | None = None,
    dataset: str = "",
) -> "Figure":
    """Plot grids of hyperparameters as heatmaps, a row of panels for each kernel.

    A panel has the penalty across and the feature scale upwards, one panel for each
    lengthscale or bias; where there is a single scale, a kernel has one panel, with
    its lengthscale or bias upwards. Brighter is better, on one logarithmic colour
    scale.

    Parameters
    ----------
    records : sequence of mapping
        With the keys ``kernel``, ``hyperparameters`` (``alpha``, ``scale``, and
        ``lengthscale`` or ``bias``) and ``validation_error``, a share.
    best : mapping, optional
        By kernel, a mapping whose ``hyperparameters`` name the cell to frame.
    dataset : str, default=""
        Name for the title.

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
    >>> from randkern_lab.heatmaps import plot_grids
    >>> figure = plot_grids([
    ...     {"kernel": "gaussian", "validation_error": 0.1 * alpha,
    ...      "hyperparameters": {"lengthscale": 2.0, "scale": 1.0, "alpha": alpha}}
    ...     for alpha in (0.1, 1.0)], dataset="digits")
    >>> figure.axes[0].get_title()
    'gaussian'
    """
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    if not records:
        raise ValueError("there are no records to plot; expected at least one")
    rows = _heatmap_rows(records, best or {})
    width = max(len(row) for row in rows)
    figure = Figure(
        figsize=(2.4 + max(1.65 * width, 3.2), 0.9 + 2.0 * len(rows)),
        dpi=150,
        layout="constrained",
    )
    errors = np.array([record["validation_error"] for record in records])
    positive = errors[errors > 0]
    norm = Normalize(errors.min(), errors.max())
    if positive.size and positive.min() < errors.max():
        norm = LogNorm(positive.min(), errors.max(), clip=True)
    grid = figure.add_gridspec(len(rows), width)
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            # A single panel takes the whole width.
            axes = figure.add_subplot(grid[i, :] if len(row) == 1 else grid[i, j])
            image = _draw_panel(axes, panel, norm, first=j == 0)
    bar = figure.colorbar(image, ax=figure.axes, pad=0.02)
    bar.set_label("validation error", fontsize=8)
    bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.ax.yaxis.set_minor_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.ax.tick_params(which="both", labelsize=7, length=3)
    bar.ax.invert_yaxis()  # the better, the higher
    if dataset:
        figure.suptitle(dataset)
    return figure


@dataclass(frozen=True)
class _Panel:
    """A heatmap: errors[i, j] at heights[i] and alphas[j]; NaN where there is none."""

    title: str
    height: str
    heights: list[float]
    alphas: list[float]
    errors: np.ndarray
    best: tuple[int, int] | None


def _heatmap_rows(
    records: Sequence[Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]
) -> list[list[_Panel]]:
    """Return rows of at most eight panels, a row or more for each kernel."""
    rows = []
    for kernel in dict.fromkeys(record["kernel"] for record in records):
        own = [record for record in records if record["kernel"] == kernel]
        framed = best.get(kernel, {}).get("hyperparameters", {})
        named = own[0]["hyperparameters"]
        opens = next((name for name in SYMBOLS if name in named), None)
        panels = []
        if opens is None or len({r["hyperparameters"]["scale"] for r in own}) == 1:
            panels.append(_panel(kernel, opens or "scale", own, framed))
        else:
            for value in sorted({r["hyperparameters"][opens] for r in own}):
                part = [r for r in own if r["hyperparameters"][opens] == value]
                title = f"{SYMBOLS[opens]} = {axis_number(value)}"
                panels.append(_panel(f"{kernel}, {title}", "scale", part, framed))
        rows += [
            panels[start : start + _MAX_PANELS]
            for start in range(0, len(panels), _MAX_PANELS)
        ]
    return rows


def _panel(
    title: str,
    height: str,
    records: Sequence[Mapping[str, Any]],
    framed: Mapping[str, float],
) -> _Panel:
    named = [record["hyperparameters"] for record in records]
    heights = sorted({values[height] for values in named})
    alphas = sorted({values["alpha"] for values in named})
    errors = np.full((len(heights), len(alphas)), np.nan)
    place = None
    for record, values in zip(records, named, strict=True):
        cell = heights.index(values[height]), alphas.index(values["alpha"])
        errors[cell] = record["validation_error"]
        if values == framed:
            place = cell
    return _Panel(title, height, heights, alphas, errors, place)


def _draw_panel(axes: "Axes", panel: _Panel, norm: Any, *, first: bool) -> Any:
    """Draw one heatmap, and return what its colours are read from."""
    from matplotlib.patches import Rectangle

    image = axes.imshow(
        panel.errors, norm=norm, cmap="inferno_r", origin="lower", aspect="auto"
    )
    axes.set_title(panel.title, fontsize=8)
    columns = _spread(len(panel.alphas), 4)
    axes.set_xticks(
        columns, [axis_number(panel.alphas[j]) for j in columns], fontsize=7
    )
    axes.set_xlabel("α", fontsize=8, labelpad=1)
    rows = _spread(len(panel.heights), 8) if first else []
    axes.set_yticks(rows, [axis_number(panel.heights[i]) for i in rows], fontsize=7)
    if first:
        symbol = SYMBOLS.get(panel.height)
        axes.set_ylabel(
            panel.height if symbol is None else f"{panel.height} {symbol}", fontsize=8
        )
    if panel.best is not None:
        i, j = panel.best
        frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="#0072B2", lw=1.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    return image


def _spread(n: int, most: int) -> list[int]:
    """Return at most so many positions among n, evenly spaced, the first included."""
    step = -(-n // most)
    return list(range(0, n, step))
