"""Pictures of skeletons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._extras import import_extra
from randkern._validation import check_count

if TYPE_CHECKING:
    from randkern.skeletons.graph import Skeleton

__all__ = ["draw_skeleton"]

# More names on a level would overlap.
_MOST_NAMES = 10


def draw_skeleton(skeleton: Skeleton, ax: Any, max_nodes: int) -> Any:
    """Draw a skeleton into Matplotlib axes; see :meth:`Skeleton.plot`."""
    check_count("max_nodes", max_nodes)
    if ax is None:
        pyplot = import_extra("matplotlib.pyplot", "Skeleton.plot", "plot")
        _, ax = pyplot.subplots(figsize=(7.0, 1.2 * (skeleton.depth + 1.5)))
    graph = skeleton.graph
    levels = [np.arange(graph.n_inputs)]
    levels += [nodes + graph.n_inputs for nodes in skeleton.recursion.depths]
    positions: dict[int, tuple[float, float]] = {}
    for height, nodes in enumerate(levels):
        count = min(max_nodes, len(nodes))
        shown = nodes[np.linspace(0, len(nodes) - 1, count).round().astype(int)]
        places = (np.arange(count) + 0.5) / count
        positions |= {
            int(node): (x, height)
            for node, x in zip(shown, places.tolist(), strict=True)
        }
        ax.plot(places, np.full(count, height), "o", markersize=7, color=f"C{height}")
        if count == len(nodes) <= _MOST_NAMES and skeleton.has_names:
            for node, x in zip(shown.tolist(), places.tolist(), strict=True):
                above = {"xytext": (0, 6), "textcoords": "offset points"}
                name = str(skeleton.names[node])
                ax.annotate(name, (x, height), ha="center", fontsize="small", **above)
        label = _label(skeleton, nodes)
        ax.text(1.02, height, label, va="center", ha="left", fontsize="small")
    for node, (x, y) in positions.items():
        internal = node - graph.n_inputs
        if internal < 0:
            continue
        for source in graph.sources[
            graph.starts[internal] : graph.starts[internal + 1]
        ]:
            if int(source) in positions:
                below = positions[int(source)]
                ends = [below[0], x], [below[1], y]
                ax.plot(*ends, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlim(0, 1.35)
    ax.set_ylim(-0.5, len(levels) - 0.5)
    ax.set_axis_off()
    return ax


def _label(skeleton: Skeleton, nodes: np.ndarray) -> str:
    """Return what the nodes of a level are, and how many."""
    graph = skeleton.graph
    if nodes[0] < graph.n_inputs:
        kinds = [graph.bases[kind] for kind in np.unique(graph.base)]
        what = "input"
    else:
        used = np.unique(graph.activation[nodes - graph.n_inputs])
        kinds = [graph.activations[kind] for kind in used]
        what = "node"
    names = ", ".join(repr(kind) for kind in kinds[:3]) + (", ..." if kinds[3:] else "")
    return f"{len(nodes)} {what}{'' if len(nodes) == 1 else 's'}\n{names}"
