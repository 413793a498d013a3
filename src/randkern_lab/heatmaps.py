"""Heatmaps of hyperparameter grids."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from randkern.plots import SYMBOLS, axis_number

from .tables import groups

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
    """Plot hyperparameter grids as heatmaps, one row of panels per kernel.

    There is one panel per lengthscale or bias, with the penalty on the x axis and the
    feature scale on the y axis; with a single scale, a kernel has one panel with its
    lengthscale or bias on the y axis. Brighter is better, on one logarithmic colour
    scale.

    Records have ``kernel``, ``hyperparameters`` (``alpha``, ``scale``, and
    ``lengthscale`` or ``bias``) and ``validation_error``, a share; `best` maps kernels
    to the ``hyperparameters`` of the cell to frame, if there is such a cell.

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
            # A single panel uses the whole width.
            axes = figure.add_subplot(grid[i, :] if len(row) == 1 else grid[i, j])
            image = _draw_panel(axes, panel, norm, first=j == 0)
    bar = figure.colorbar(image, ax=figure.axes, pad=0.02)
    bar.set_label("validation error", fontsize=8)
    bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.ax.yaxis.set_minor_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.ax.tick_params(which="both", labelsize=7, length=3)
    bar.ax.invert_yaxis()  # better is higher
    if dataset:
        figure.suptitle(dataset)
    return figure


class _Panel(NamedTuple):
    """A heatmap of errors by the quantity on the y axis (`height`) and the penalty."""

    title: str
    height: str
    errors: Any
    best: tuple[int, int] | None


def _heatmap_rows(
    records: Sequence[Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]
) -> list[list[_Panel]]:
    """Return rows of at most eight panels, one or more rows per kernel."""
    import pandas as pd

    rows: list[list[_Panel]] = []
    for named, own in groups(records, "kernel"):
        kernel = named["kernel"]
        table = pd.DataFrame([r["hyperparameters"] for r in own])
        table["error"] = [r["validation_error"] for r in own]
        framed = best.get(kernel, {}).get("hyperparameters", {})
        opens = next((name for name in SYMBOLS if name in table), "scale")
        if table.scale.nunique() == 1 or opens == "scale":
            panels = [_panel(kernel, opens, table, framed)]
        else:
            panels = [
                _panel(
                    f"{kernel}, {SYMBOLS[opens]} = {axis_number(value)}",
                    "scale",
                    part,
                    framed if framed.get(opens) == value else {},
                )
                for value, part in table.groupby(opens)
            ]
        rows += [
            panels[i : i + _MAX_PANELS] for i in range(0, len(panels), _MAX_PANELS)
        ]
    return rows


def _panel(title: str, height: str, table: Any, framed: Mapping[str, float]) -> _Panel:
    errors = table.pivot_table(index=height, columns="alpha", values="error")
    place = None
    row, column = framed.get(height), framed.get("alpha")
    if row in errors.index and column in errors.columns:
        place = errors.index.get_loc(row), errors.columns.get_loc(column)
    return _Panel(title, height, errors, place)


def _draw_panel(axes: "Axes", panel: _Panel, norm: Any, *, first: bool) -> Any:
    """Draw one heatmap, and return its mappable for the colour bar."""
    from matplotlib.patches import Rectangle

    errors = panel.errors
    image = axes.imshow(
        errors.to_numpy(), norm=norm, cmap="inferno_r", origin="lower", aspect="auto"
    )
    axes.set_title(panel.title, fontsize=8)
    columns = _spread(errors.shape[1], 4)
    texts = [axis_number(errors.columns[j]) for j in columns]
    axes.set_xticks(columns, texts, fontsize=7)
    axes.set_xlabel("α", fontsize=8, labelpad=1)
    rows = _spread(errors.shape[0], 8) if first else []
    axes.set_yticks(rows, [axis_number(errors.index[i]) for i in rows], fontsize=7)
    if first:
        label = f"{panel.height} {SYMBOLS.get(panel.height, '')}".strip()
        axes.set_ylabel(label, fontsize=8)
    if panel.best is not None:
        i, j = panel.best
        frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="#0072B2", lw=1.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    return image


def _spread(n: int, most: int) -> list[int]:
    """Return at most `most` of n positions, evenly spaced, including the first."""
    step = -(-n // most)
    return list(range(0, n, step))
