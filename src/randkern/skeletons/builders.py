"""Common skeletons: fully connected and convolutional."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._memory import check_free
from randkern._validation import check_count
from randkern.skeletons.activations import Activation, Identity, activation_of
from randkern.skeletons.bases import base_of
from randkern.skeletons.graph import Graph, offsets
from randkern.skeletons.skeleton import Skeleton, builder

# Memory of an input or edge, and of a layer, while a skeleton is built and its kernel
# computed.
_INPUT_BYTES = 64
_LAYER_BYTES = 2000


@dataclass(frozen=True)
class Conv:
    """A convolution: one node per position of a window.

    A node averages the nodes under its window; padded positions do not count.

    Parameters
    ----------
    window : int or (int, int)
        Height and width.
    stride : int or (int, int)
        Steps between windows, down and across.
    padding : int, (int, int) or "same"
        Positions by which the window may extend beyond each border; ``"same"`` is half
        the window, so that stride 1 preserves the size (for odd windows).
    activation : activation, optional
        By default, that of the builder.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Conv(5, stride=2)
    Conv(window=5, stride=2, padding=0, activation=None)
    """

    window: Any
    stride: Any = 1
    padding: Any = 0
    activation: Any = None

    def __post_init__(self) -> None:
        self.geometry()
        if self.activation is not None:
            activation_of(self.activation)

    def geometry(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Return (height, width) of the window, the stride and the padding."""
        window = _pair("window", self.window)
        stride = _pair("stride", self.stride)
        if isinstance(self.padding, str) and self.padding == "same":
            return window, stride, (window[0] // 2, window[1] // 2)
        return window, stride, _pair("padding", self.padding, minimum=0)


@dataclass(frozen=True)
class Pool:
    """Average pooling: a convolution whose activation is the identity.

    Parameters
    ----------
    window : int or (int, int)
        Height and width.
    stride : int or (int, int), optional
        By default, the window.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Pool(2)
    Pool(window=2, stride=None)
    """

    window: Any
    stride: Any = None

    def __post_init__(self) -> None:
        self.convolution()

    def convolution(self) -> Conv:
        """Return the equivalent convolution."""
        stride = self.window if self.stride is None else self.stride
        return Conv(self.window, stride, activation=Identity())


@dataclass(frozen=True)
class Dense:
    """A full connection: one node that averages all nodes of the layer before it.

    Parameters
    ----------
    activation : activation, optional
        By default, that of the builder.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Dense("erf")
    Dense(activation='erf')
    """

    activation: Any = None

    def __post_init__(self) -> None:
        if self.activation is not None:
            activation_of(self.activation)


def _pair(name: str, value: Any, minimum: int = 1) -> tuple[int, int]:
    """Return a size as (height, width)."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    sizes = [
        int(part)
        for part in parts
        if isinstance(part, (int, np.integer)) and not isinstance(part, bool)
    ]
    if len(parts) != 2 or len(sizes) != 2 or min(sizes) < minimum:
        kind = "positive" if minimum else "non-negative"
        raise ValueError(
            f"{name} must be a {kind} integer or a pair of {kind} integers, got "
            f"{value!r}; pass for instance {name}=2 or {name}=(2, 2)."
        )
    return sizes[0], sizes[1]


def _check_size(n_bytes: int, what: str) -> None:
    """Raise if a skeleton needs more memory than a fit may use."""
    check_free(
        n_bytes,
        f"a skeleton of {what}",
        "use fewer layers, smaller images or windows",
        share=True,
    )


class _Layers:
    """A graph that grows layer by layer."""

    def __init__(self, n_inputs: int):
        self.n_inputs = self.n_nodes = n_inputs
        self.activations: list[Activation] = []
        self.kinds: list[np.ndarray] = []
        self.degrees: list[np.ndarray] = []
        self.sources: list[np.ndarray] = []

    def add(self, activation: Any, sources: np.ndarray, degrees: Any) -> np.ndarray:
        """Add nodes with the same activation; return their indices."""
        activation = activation_of(activation)
        if activation not in self.activations:
            self.activations.append(activation)
        kind = self.activations.index(activation)
        self.kinds.append(np.full(len(degrees), kind))
        self.sources.append(sources)
        self.degrees.append(np.asarray(degrees))
        self.n_nodes += len(degrees)
        return np.arange(self.n_nodes - len(degrees), self.n_nodes)

    def graph(self, base: Any) -> Graph:
        """Return the graph, whose inputs read consecutive columns.

        It omits nodes that strides skip, since a skeleton has one output.
        """
        degrees = np.concatenate(self.degrees)
        starts = offsets(degrees)
        sources = np.concatenate(self.sources)
        read = np.zeros(self.n_nodes, dtype=bool)
        read[-1] = True
        for i in range(len(degrees) - 1, -1, -1):  # sources come before their targets
            if read[self.n_inputs + i]:
                read[sources[starts[i] : starts[i + 1]]] = True
        inputs, internal = read[: self.n_inputs], read[self.n_inputs :]
        number = np.cumsum(read) - 1
        columns = np.arange(self.n_inputs * base.width).reshape(-1, base.width)
        return Graph(
            (base,),
            np.zeros(int(inputs.sum()), dtype=int),
            columns[inputs].ravel(),
            tuple(self.activations),
            np.concatenate(self.kinds)[internal],
            offsets(degrees[internal]),
            number[sources[np.repeat(internal, degrees)]],
        )


@builder
def fully_connected(
    n_inputs: int, depth: int = 1, activation: Any = "relu", base: Any = "circle"
) -> Skeleton:
    """Return the skeleton of a fully connected network.

    All nodes of a layer have the same kernel, so one node represents them: the first
    averages the inputs, each of the others takes the one before it.

    Parameters
    ----------
    n_inputs : int
        Input i reads column i (or the i-th n columns if the base space has n columns).
    depth : int
        Number of layers.
    activation : str, Activation, or sequence of `depth` of them
        Activation of all layers, or one per layer.
    base : str or Base
        Base space of the inputs.

    Returns
    -------
    Skeleton

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeleton = skeletons.fully_connected(64, depth=2)
    >>> skeleton.depth, skeleton.complexity()
    (2, 1.0)
    """
    n_inputs = check_count("n_inputs", n_inputs)
    depth = check_count("depth", depth)
    _check_size(
        _INPUT_BYTES * n_inputs + _LAYER_BYTES * depth,
        f"{n_inputs} inputs and {depth} layers",
    )
    space = base_of(base)
    several = isinstance(activation, (list, tuple))
    if several and len(activation) != depth:
        raise ValueError(
            f"activation must be a single activation, or a list of {depth}, one per "
            f"layer, got a list of {len(activation)}."
        )
    layers = _Layers(n_inputs)
    nodes = np.arange(n_inputs)
    for layer_activation in activation if several else [activation] * depth:
        nodes = layers.add(layer_activation, nodes, [len(nodes)])
    activation = list(activation) if several else activation
    arguments = dict(n_inputs=n_inputs, depth=depth, activation=activation, base=base)
    recipe = "fully_connected", arguments
    return Skeleton._of(layers.graph(space), n_inputs * space.width, recipe=recipe)


@dataclass(frozen=True)
class FullyConnected:
    """A recipe for :func:`fully_connected` with the data's number of columns.

    ``Compositional(FullyConnected(...))`` takes the number of inputs from the training
    rows.

    Parameters
    ----------
    depth, activation, base
        The arguments of :func:`fully_connected`.

    Examples
    --------
    >>> import randkern as rk
    >>> recipe = rk.skeletons.FullyConnected(depth=2)
    >>> rk.Compositional(recipe).resolve([[0.0, 1.0, 2.0]]).skeleton.n_features
    3
    """

    depth: int = 1
    activation: Any = "relu"
    base: Any = "circle"

    def build(self, n_columns: int) -> Skeleton:
        """Return the skeleton for rows with `n_columns` columns."""
        n_inputs, rest = divmod(n_columns, base_of(self.base).width)
        if rest:
            raise ValueError(
                f"the number of columns must be a multiple of "
                f"{base_of(self.base).width}, which an input on {self.base!r} reads, "
                f"got {n_columns}."
            )
        return fully_connected(n_inputs, self.depth, self.activation, self.base)


@builder
def convolutional(
    image_shape: Sequence[int],
    layers: Iterable[Any] = (Conv(5, 2), Conv(5, 2), Dense()),
    activation: Any = "relu",
    base: Any = "circle",
) -> Skeleton:
    """Return the skeleton of a convolutional network.

    Rows are images, flattened as (height, width, channel). With a base space of one
    column every channel of a pixel is an input, and the nodes above average over the
    channels and the pixels of their window; with a base space of as many columns as
    channels, every pixel is one input.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
        Shape of the images before flattening.
    layers : iterable of Conv, Pool and Dense
        The last must leave one node. The default is that of the paper for images of 24
        by 24 pixels: two convolutions with 5 by 5 windows and stride 2, and one full
        connection. Their windows do not cover the last three rows and columns: the
        kernel reads 1,323 of the 1,728 columns of an image with three channels.
    activation : str or Activation
        Activation of the layers that do not set their own.
    base : str or Base
        Base space of the inputs.

    Returns
    -------
    Skeleton

    Raises
    ------
    ValueError
        If a window does not fit, or more than one node is left at the end.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeleton = skeletons.convolutional((24, 24, 3))
    >>> skeleton.n_features, skeleton.depth
    (1728, 3)
    """
    shape = tuple(np.atleast_1d(np.asarray(image_shape, dtype=object)))
    if len(shape) not in (2, 3):
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels), got "
            f"{image_shape!r}."
        )
    height, width, n_channels = (check_count("image_shape", n) for n in (*shape, 1)[:3])
    space = base_of(base)
    if space.width not in (1, n_channels):
        raise ValueError(
            f"an input on {space!r} reads {space.width} columns, but a pixel has "
            f"{n_channels} channels; use a base space of 1 or {n_channels} columns."
        )
    if not isinstance(layers, Iterable) or not (layers := list(layers)):
        raise ValueError(
            "layers must be a list of at least one Conv, Pool or Dense, got "
            f"{layers!r}; use [Dense()] for one node over all pixels."
        )
    inputs_per_pixel = n_channels // space.width
    _check_size(
        _INPUT_BYTES * height * width * inputs_per_pixel,
        f"images of {height} by {width} pixels",
    )
    graph_layers = _Layers(height * width * inputs_per_pixel)
    grid = np.arange(graph_layers.n_inputs).reshape(height, width, inputs_per_pixel)
    for layer in layers:
        grid = _add_layer(graph_layers, grid, layer, activation)
    if grid.size != 1:
        raise ValueError(
            f"the last layer has {grid.shape[0]} by {grid.shape[1]} nodes, but a "
            "skeleton has a single output; add Dense() as the last layer."
        )
    image_shape = tuple(int(n) for n in shape)
    arguments = dict(
        image_shape=image_shape, layers=layers, activation=activation, base=base
    )
    n_columns = height * width * n_channels
    recipe = "convolutional", arguments
    return Skeleton._of(graph_layers.graph(space), n_columns, recipe=recipe)


def _add_layer(
    graph_layers: _Layers, grid: np.ndarray, layer: Any, default: Any
) -> np.ndarray:
    """Add a layer over a grid of nodes (height, width, channels); return its grid."""
    if isinstance(layer, Dense):
        nodes = graph_layers.add(layer.activation or default, grid.ravel(), [grid.size])
        return nodes.reshape(1, 1, 1)
    conv = layer.convolution() if isinstance(layer, Pool) else layer
    if not isinstance(conv, Conv):
        raise ValueError(f"a layer must be a Conv, Pool or Dense, got {layer!r}.")
    window, stride, padding = conv.geometry()
    n_padded = n_edges = grid.shape[2]
    for n, w, step, border in zip(grid.shape, window, stride, padding, strict=False):
        n_padded *= n + 2 * border
        n_edges *= w * max(0, (n + 2 * border - w) // step + 1)
    what = f"{layer!r} over {grid.size} nodes"
    _check_size(8 * n_padded + _INPUT_BYTES * n_edges, what)
    borders = [(p, p) for p in padding]
    padded = np.pad(grid, [*borders, (0, 0)], constant_values=-1)
    if window[0] > padded.shape[0] or window[1] > padded.shape[1]:
        raise ValueError(
            f"the window {window} of {layer!r} does not fit into the {grid.shape[0]} "
            f"by {grid.shape[1]} nodes below it; use a smaller window or padding."
        )
    if padding[0] >= window[0] or padding[1] >= window[1]:
        raise ValueError(
            f"the padding of {layer!r} must be smaller than its window, got padding "
            f"{padding} and window {window}; use a smaller padding."
        )
    view = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(0, 1))
    view = view[:: stride[0], :: stride[1]]  # (rows, columns, channels, *window)
    patches = view.reshape(view.shape[0] * view.shape[1], -1)
    inside = patches >= 0
    counts = inside.sum(axis=1)
    nodes = graph_layers.add(conv.activation or default, patches[inside], counts)
    return nodes.reshape(view.shape[0], view.shape[1], 1)
