"""Heatmaps of hyperparameter grids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern.plots.records import SYMBOLS, axis_number

from .panels import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    scale, or on one for each value of ``colours`` in the records.

    Records have ``kernel``, ``hyperparameters`` (``alpha``, ``scale``, and
    ``lengthscale`` or ``bias``) and ``validation_error``, a share; `best` maps kernels
    to the ``hyperparameters`` of the cell to frame, if there is such a cell.
    """
    if not records:
        raise ValueError("there are no records to plot; expected at least one")
    rows = [
        panels[first : first + _MAX_PANELS]
        for panels in _panels_by_kernel(records, best or {})
        for first in range(0, len(panels), _MAX_PANELS)
    ]
    width = max(len(row) for row in rows)
    figure = new_figure(2.4 + max(1.65 * width, 3.2), 0.9 + 2.0 * len(rows), dataset)
    norms = {
        colours: _norm([r for r in records if r.get("colours") == colours])
        for colours in dict.fromkeys(record.get("colours") for record in records)
    }
    ratios = [1.0] * width + [0.08]  # the last column has the colour bars
    grid = figure.add_gridspec(len(rows), width + 1, width_ratios=ratios)
    images: dict[Any, Any] = {}
    spans: dict[Any, list[int]] = {colours: [] for colours in norms}
    for i, row in enumerate(rows):
        for j, (colours, title, errors, framed) in enumerate(row):
            # A single panel uses the whole width.
            axes = figure.add_subplot(grid[i, :-1] if len(row) == 1 else grid[i, j])
            images[colours] = _draw_panel(
                axes, title, errors, framed, norms[colours], first=j == 0
            )
            spans[colours].append(i)
    for colours, image in images.items():
        span = slice(spans[colours][0], spans[colours][-1] + 1)
        bar = figure.colorbar(image, cax=figure.add_subplot(grid[span, -1]))
        bar.set_label("validation error", fontsize=8)
        bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
        bar.ax.yaxis.set_minor_formatter(lambda share, _: f"{100 * share:.3g}%")
        bar.ax.tick_params(which="both", labelsize=7, length=3)
        bar.ax.invert_yaxis()  # better is higher
    return figure


def _norm(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return the colour scale of records: logarithmic if errors are positive."""
    from matplotlib.colors import LogNorm, Normalize

    errors = np.array([record["validation_error"] for record in records])
    positive = errors[errors > 0]
    if positive.size and positive.min() < errors.max():
        return LogNorm(positive.min(), errors.max(), clip=True)
    return Normalize(errors.min(), errors.max())


def _panels_by_kernel(
    records: Sequence[Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]
) -> Iterator[list[tuple[Any, str, Any, Any]]]:
    """Yield the panels of each kernel: one, or one per lengthscale or bias.

    They have the name of their colour scale, a title, errors by penalty and another
    quantity, and the cell to frame.
    """
    import pandas as pd

    table = pd.DataFrame([r["hyperparameters"] for r in records])
    table["kernel"] = [r["kernel"] for r in records]
    scales = {record["kernel"]: record.get("colours") for record in records}
    table["error"] = [r["validation_error"] for r in records]
    for kernel, complete in table.groupby("kernel", sort=False):
        own = complete.dropna(axis=1, how="all")
        framed = best.get(str(kernel), {}).get("hyperparameters", {})
        opens = next((name for name in SYMBOLS if name in own), "scale")
        parts, height = {str(kernel): (own, framed)}, opens
        if own.scale.nunique() > 1 and opens != "scale":
            height = "scale"
            parts = {
                f"{kernel}, {SYMBOLS[opens]} = {axis_number(value)}": (
                    part,
                    framed if framed.get(opens) == value else {},
                )
                for value, part in own.groupby(opens)
            }
        yield [
            (scales[kernel], title, part.pivot_table("error", height, "alpha"), cell)
            for title, (part, cell) in parts.items()
        ]


def _draw_panel(
    axes: "Axes", title: str, errors: Any, framed: Any, norm: Any, *, first: bool
) -> Any:
    """Draw one heatmap, and return its mappable for the colour bar."""
    from matplotlib.patches import Rectangle

    image = axes.imshow(
        errors.to_numpy(), norm=norm, cmap="inferno_r", origin="lower", aspect="auto"
    )
    axes.set_title(title, fontsize=8)
    columns = _spread(errors.shape[1], 4)
    texts = [axis_number(errors.columns[j]) for j in columns]
    axes.set_xticks(columns, texts, fontsize=7)
    axes.set_xlabel("α", fontsize=8, labelpad=1)
    rows = _spread(errors.shape[0], 8) if first else []
    axes.set_yticks(rows, [axis_number(errors.index[i]) for i in rows], fontsize=7)
    if first:
        height = str(errors.index.name)
        axes.set_ylabel(f"{height} {SYMBOLS.get(height, '')}".strip(), fontsize=8)
    row, column = (framed.get(a.name) for a in (errors.index, errors.columns))
    if row in errors.index and column in errors.columns:
        i, j = errors.index.get_loc(row), errors.columns.get_loc(column)
        frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="#0072B2", lw=1.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    return image


def _spread(n: int, most: int) -> list[int]:
    """Return at most `most` of n positions, evenly spaced, including the first."""
    step = -(-n // most)
    return list(range(0, n, step))
