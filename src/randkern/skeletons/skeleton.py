"""Computation skeletons: graphs that compose kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from randkern._extras import import_extra
from randkern._validation import check_count, check_kernel_rows
from randkern.skeletons.activations import Activation, activation_of
from randkern.skeletons.bases import Categories
from randkern.skeletons.checks import check_activation, ordered
from randkern.skeletons.graph import Alphabet, Graph, Input
from randkern.skeletons.recursion import Recursion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more names on a level, labels would overlap.
_MAX_NAMES = 10
_BUILDERS: dict[str, Callable[..., Skeleton]] = {}


def builder(function: Callable[..., Skeleton]) -> Callable[..., Skeleton]:
    """Register a function; its skeletons pickle as its name and arguments."""
    _BUILDERS[function.__name__] = function
    return function


class Skeleton:
    """An acyclic graph of base spaces and dual activations, which defines a kernel.

    Input nodes carry base spaces with kernels κ; an internal node v with dual
    activation σ̂_v has

        κ_v(x, y) = σ̂_v(mean of κ_u(x, y) over the nodes u with an edge into v),

    and the kernel is that of the only node without outgoing edges. Skeletons are
    immutable. :func:`fully_connected` and :func:`convolutional` build common ones.

    Parameters
    ----------
    nodes : sequence or mapping of name to node
        An :class:`Input`, or the activation of an internal node: a name such as
        ``"relu"``, or an :class:`Activation`. The nodes of a sequence are named
        0, 1, ....
    edges : iterable of pairs
        (from, to), by name.
    n_features : int, optional
        Number of columns of the rows; by default the smallest that inputs need.

    Attributes
    ----------
    n_features : int
    depth : int
        Largest number of internal nodes on a path.

    Raises
    ------
    ValueError
        If the graph has a cycle, several outputs, an internal node without incoming
        edges, an input with incoming edges, a duplicate edge, or an edge to an unknown
        node; or if the coefficients of an activation are negative or do not sum to 1.

    References
    ----------
    Daniely, Frostig, Gupta and Singer 2017, "Random features for compositional
    kernels", section 5.

    Examples
    --------
    Two angles that share a node with a category:

    >>> from randkern import skeletons
    >>> nodes = {
    ...     "angle": skeletons.Input("circle", 0),
    ...     "other": skeletons.Input("circle", 1),
    ...     "colour": skeletons.Input(skeletons.categorical(3), 2),
    ...     "shape": skeletons.Exponential(1.0),
    ...     "out": "relu",
    ... }
    >>> edges = [("angle", "shape"), ("other", "shape"), ("shape", "out")]
    >>> skeleton = skeletons.Skeleton(nodes, [*edges, ("colour", "out")])
    >>> skeleton.depth, skeleton.complexity()
    (2, 1.0)
    >>> skeleton.kernel([[0.0, 1.0, 2.0]], [[0.5, 1.0, 2.0]]).round(4)
    array([[0.9718]])
    """

    graph: Graph
    n_features: int
    _recipe: tuple[str, dict[str, Any]] | None
    _names: tuple[Hashable, ...] | None
    _untruncated: Skeleton | None

    def __init__(
        self,
        nodes: Sequence[Any] | Mapping[Hashable, Any],
        edges: Iterable[tuple[Hashable, Hashable]],
        *,
        n_features: int | None = None,
    ):
        named = dict(nodes if isinstance(nodes, Mapping) else enumerate(nodes))
        inputs = {k: v for k, v in named.items() if isinstance(v, Input)}
        activations = {
            k: activation_of(v) for k, v in named.items() if not isinstance(v, Input)
        }
        order, sources = ordered(list(inputs), list(activations), edges)
        number = {name: i for i, name in enumerate([*inputs, *order])}
        bases = tuple(dict.fromkeys(node.base for node in inputs.values()))
        kinds: list[Activation] = []  # by equality: custom ones may not be hashable
        for activation in activations.values():
            if activation not in kinds:
                kinds.append(activation)
        columns = [column for node in inputs.values() for column in node.columns]
        entering = [[number[u] for u in sources[v]] for v in order]
        graph = Graph(
            bases,
            np.array([bases.index(node.base) for node in inputs.values()]),
            np.array(columns),
            tuple(kinds),
            np.array([kinds.index(activations[name]) for name in order], dtype=int),
            np.cumsum([0, *(len(group) for group in entering)]),
            np.array([u for group in entering for u in group], dtype=int),
        )
        self._build(graph, n_features, names=tuple(number))

    def _build(
        self,
        graph: Graph,
        n_features: int | None,
        *,
        recipe: tuple[str, dict[str, Any]] | None = None,
        names: tuple[Hashable, ...] | None = None,
        untruncated: Skeleton | None = None,
    ) -> None:
        """Set the attributes; `untruncated` is the skeleton that this one truncates."""
        for activation in graph.activations:
            check_activation(activation)
        needed = int(graph.columns.max()) + 1
        width = needed if n_features is None else check_count("n_features", n_features)
        if width < needed:
            raise ValueError(
                f"the skeleton reads column {needed - 1}, but n_features={n_features}; "
                f"use n_features={needed} or more."
            )
        attributes = {
            "graph": graph,
            "n_features": width,
            "_recipe": recipe,
            "_names": names,
            "_untruncated": untruncated,
        }
        for name, value in attributes.items():
            object.__setattr__(self, name, value)  # `__setattr__` raises

    @classmethod
    def _of(cls, graph: Graph, n_features: int, **origin: Any) -> Skeleton:
        """Return the skeleton of a graph.

        Its `origin` is ``recipe=(builder, arguments)``, or ``untruncated=``, the
        skeleton that it truncates, and ``names=``.
        """
        self = cls.__new__(cls)
        self._build(graph, n_features, **origin)
        return self

    def __setattr__(self, name: str, value: Any = None) -> None:
        raise AttributeError(
            "the attributes of a skeleton cannot be changed; build another skeleton."
        )

    __delattr__ = __setattr__

    def __deepcopy__(self, memo: Any = None) -> Skeleton:
        return self

    __copy__ = __deepcopy__

    def __getstate__(self) -> dict[str, Any]:
        # The pickle takes kilobytes, whatever the size of the image.
        if self._untruncated is not None:
            return {"whole": self._untruncated}
        if self._recipe is not None:
            return {"recipe": self._recipe}
        return {"nodes": self.nodes, "edges": self.edges, "n_features": self.n_features}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "whole" in state:
            skeleton = state["whole"].truncated()
        elif "recipe" in state:
            name, arguments = state["recipe"]
            skeleton = _BUILDERS[name](**arguments)
        else:
            skeleton = Skeleton(**state)
        self.__dict__.update(skeleton.__dict__)

    def __repr__(self) -> str:
        if self._untruncated is not None:
            return f"{self._untruncated!r}.truncated()"
        if self._recipe is not None:
            name, arguments = self._recipe
            shown = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
            return f"skeletons.{name}({shown})"
        graph = self.graph
        if graph.n_inputs + graph.n_internal <= 12:
            wider = self.n_features > graph.columns.max() + 1
            width = f", n_features={self.n_features}" if wider else ""
            return f"skeletons.Skeleton({self.nodes!r}, {self.edges!r}{width})"
        return (
            f"<Skeleton of {graph.n_inputs} inputs on {_listed(graph.bases)}, "
            f"{graph.n_internal} internal nodes ({_listed(graph.activations)}), "
            f"{len(graph.sources)} edges, depth {self.depth}>"
        )

    @property
    def nodes(self) -> dict[Hashable, Any]:
        """The nodes by name: inputs, then activations in topological order."""
        graph = self.graph
        cuts = graph.column_starts
        nodes: list[Any] = [
            Input(graph.bases[kind], graph.columns[cuts[i] : cuts[i + 1]])
            for i, kind in enumerate(graph.base)
        ]
        nodes += [graph.activations[kind] for kind in graph.activation]
        return dict(zip(self.names, nodes, strict=True))

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The names of the nodes, in the order of :attr:`nodes`."""
        if self._names is not None:
            return self._names
        return tuple(range(self.graph.n_inputs + self.graph.n_internal))

    @property
    def edges(self) -> list[tuple[Hashable, Hashable]]:
        """The edges, (from, to) by name."""
        names = self.names
        return [(names[u], names[v]) for u, v in self.graph.edges]

    def columns_of_numbers(self) -> list[int]:
        """Return the columns that some input reads as numbers, not as categories."""
        graph = self.graph
        codes = np.array([isinstance(base, Categories) for base in graph.bases])
        of_column = np.repeat(codes[graph.base], np.diff(graph.column_starts))
        return np.unique(graph.columns[~of_column]).tolist()

    @cached_property
    def recursion(self) -> Recursion:
        """The exact kernel's recursion, level by level."""
        return Recursion(self.graph)

    @cached_property
    def alphabet(self) -> Alphabet:
        """The symbols that encode random features."""
        return Alphabet(self.graph)

    @property
    def depth(self) -> int:
        """Largest number of internal nodes on a path from an input to the output."""
        return len(self.recursion.depths)

    @property
    def is_unit(self) -> bool:
        """Whether every base feature has modulus 1."""
        return all(base.unit for base in self.graph.bases)

    @property
    def is_real(self) -> bool:
        """Whether every feature is real."""
        return all(base.is_real for base in self.graph.bases)

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """Return the exact kernel matrix.

        Parameters
        ----------
        X : array, tensor, CSR matrix or dataframe of shape (n, n_features)
        Y : the same, of shape (m, n_features), optional
            By default `X`.

        Returns
        -------
        array or tensor of shape (n, m)
        """
        from_rows = check_kernel_rows(X, Y, tensors=True)
        X, Y = from_rows[0], from_rows[1]
        self.check_width(X.shape[1])
        return self.recursion.gram(X, X if Y is None else Y)

    def check_width(self, n_columns: int) -> None:
        """Raise unless rows have `n_features` columns."""
        if n_columns != self.n_features:
            raise ValueError(
                f"the skeleton expects rows with {self.n_features} columns, got "
                f"{n_columns}; build it for these rows, or select columns with "
                "Compositional(skeleton, columns=[...])."
            )

    def truncated(self) -> Skeleton:
        """Return the skeleton whose kernel is exactly the mean of the random features.

        Degrees above 10,000 are not drawn; its activations are the series without them,
        which differ by 1e-7 for the ReLU and by 0.0025 for the step.
        """
        if self._untruncated is not None:
            return self
        graph = self.graph
        series = tuple(activation.truncated() for activation in graph.activations)
        cut = replace(graph, activations=series)
        return Skeleton._of(cut, self.n_features, names=self._names, untruncated=self)

    def complexity(self, *, truncated: bool = False) -> float:
        """Return the expected number of base features in a random feature.

        C(v) = σ̂_v'(1)·mean C(u) over the sources u of v, and 1 at inputs (eq. 11). If
        σ̂'(1) is infinite, as for the step, the mean of the drawn degrees is used.

        Parameters
        ----------
        truncated : bool
            Whether to use the mean of the drawn degrees for all activations.
        """
        graph = self.graph
        slopes = []
        for activation, degrees in zip(
            graph.activations, graph.distributions, strict=True
        ):
            slope = activation.derivative_at_one()
            slopes.append(
                degrees.mean if truncated or not np.isfinite(slope) else slope
            )
        rule = [lambda mean, slope=slope: slope * mean for slope in slopes]
        return graph.spread(1.0, rule)

    def constant_probability(self) -> float:
        """Return the probability that a random feature reaches no input.

        p(v) = σ̂_v(mean p(u)), 0 at inputs, with the truncated series of drawn degrees.
        """
        return self._constant

    @cached_property
    def _constant(self) -> float:
        generating = [degrees.generating for degrees in self.graph.distributions]
        return self.graph.spread(0.0, generating)

    def omitted(self) -> float:
        """Return the largest probability that truncation omits at a node."""
        omitted = [degrees.omitted for degrees in self.graph.distributions]
        return max(omitted, default=0.0)

    def plot(self, ax: Axes | None = None, max_nodes: int = 40) -> Axes:
        """Draw the skeleton, inputs at the bottom; needs Matplotlib.

        Named nodes are labelled on levels with at most ten nodes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default, axes of a new figure.
        max_nodes : int
            On levels with more nodes, so many are drawn, evenly spaced.

        Returns
        -------
        matplotlib axes
        """
        return _draw_skeleton(self, ax, max_nodes)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(repr(value) for value in values)


def _draw_skeleton(skeleton: Skeleton, ax: Any, max_nodes: int) -> Any:
    """Draw a skeleton into Matplotlib axes; see :meth:`Skeleton.plot`."""
    check_count("max_nodes", max_nodes)
    if ax is None:
        pyplot = import_extra("matplotlib.pyplot", "Skeleton.plot", "plot")
        _, ax = pyplot.subplots(figsize=(7.0, 1.2 * (skeleton.depth + 1.5)))
    graph = skeleton.graph
    levels = [np.arange(graph.n_inputs)]
    levels += [nodes + graph.n_inputs for nodes in skeleton.recursion.depths]
    positions: dict[int, tuple[float, float]] = {}
    names = skeleton.names
    for height, nodes in enumerate(levels):
        count = min(max_nodes, len(nodes))
        shown = nodes[np.linspace(0, len(nodes) - 1, count).round().astype(int)]
        places = (np.arange(count) + 0.5) / count
        points = {int(node): (x, height) for node, x in zip(shown, places, strict=True)}
        positions |= points
        ax.plot(places, np.full(count, height), "o", markersize=7, color=f"C{height}")
        are_named = any(not isinstance(name, int) for name in names)
        if count == len(nodes) <= _MAX_NAMES and are_named:
            above: Any = {"xytext": (0, 6), "textcoords": "offset points"}
            for node, point in points.items():
                name = str(names[node])
                ax.annotate(name, point, ha="center", fontsize="small", **above)
        label = _label(skeleton, nodes)
        ax.text(1.02, height, label, va="center", ha="left", fontsize="small")
    for source, node in graph.edges:
        if source in positions and node in positions:
            ends = zip(positions[source], positions[node], strict=True)
            ax.plot(*map(list, ends), color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlim(0, 1.35)
    ax.set_ylim(-0.5, len(levels) - 0.5)
    ax.set_axis_off()
    return ax


def _label(skeleton: Skeleton, nodes: np.ndarray) -> str:
    """Return a label with the kind and number of a level's nodes."""
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
