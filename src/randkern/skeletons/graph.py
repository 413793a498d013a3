"""Skeletons as arrays: inputs, internal nodes, and the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randkern.skeletons.activations import Activation
from randkern.skeletons.bases import Base, base_of
from randkern.skeletons.degrees import DegreeLaw


@dataclass(frozen=True)
class Input:
    """An input node: columns of a row, and the base space that they are a point of.

    Parameters
    ----------
    base : Base or str
        ``"binary"``, ``"circle"``, ``"gaussian"``, ``"linear"``, or what
        :func:`gaussian`, :func:`categorical` and :func:`sphere` return.
    columns : int or sequence of int
        As many as the base space reads.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.Input("circle", 3)
    Input(base=circle, columns=(3,))
    """

    base: Any
    columns: Any = 0

    def __post_init__(self) -> None:
        base = base_of(self.base)
        columns = np.atleast_1d(np.asarray(self.columns))
        if columns.ndim != 1 or columns.dtype.kind not in "iu" or np.any(columns < 0):
            raise ValueError(
                "the columns of an input must be numbers of columns from 0, got "
                f"{self.columns!r}."
            )
        if len(columns) != base.width or len(set(columns.tolist())) != base.width:
            raise ValueError(
                f"an input on {base!r} reads {base.width} different columns, got "
                f"{columns.tolist()}."
            )
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "columns", tuple(columns.tolist()))


@dataclass(frozen=True, eq=False)
class Graph:
    """A skeleton in arrays.

    Nodes 0, 1, ... are the inputs; then the internal nodes, each after all that
    enter it; the last is the output. Node i of the internal ones is entered by
    ``sources[starts[i]:starts[i + 1]]``.
    """

    bases: tuple[Base, ...]
    base: np.ndarray  # of every input, its position in `bases`
    columns: np.ndarray  # of all inputs, one after the other
    activations: tuple[Activation, ...]
    activation: np.ndarray  # of every internal node, its position in `activations`
    starts: np.ndarray
    sources: np.ndarray

    def __post_init__(self) -> None:
        for name in ("base", "columns", "activation", "starts", "sources"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def n_inputs(self) -> int:
        return len(self.base)

    @property
    def n_internal(self) -> int:
        return len(self.activation)

    @cached_property
    def column_starts(self) -> np.ndarray:
        """Where the columns of every input begin in `columns`."""
        widths = np.array([base.width for base in self.bases])[self.base]
        return np.concatenate([[0], np.cumsum(widths)])

    @cached_property
    def laws(self) -> tuple[DegreeLaw, ...]:
        """The law of the degree of every activation."""
        return tuple(activation.degree_law() for activation in self.activations)

    def spread(self, at_inputs: np.ndarray, rule: Sequence[Any]) -> np.ndarray:
        """Return v ↦ rule[activation](mean of the values that enter), node by node."""
        values = np.empty(self.n_inputs + self.n_internal)
        values[: self.n_inputs] = at_inputs
        known: dict[tuple[int, float], float] = {}  # the nodes of a layer are alike
        for i, kind in enumerate(self.activation.tolist()):
            entering = self.sources[self.starts[i] : self.starts[i + 1]]
            key = kind, float(values[entering].mean())
            if key not in known:
                known[key] = float(rule[kind](key[1]))
            values[self.n_inputs + i] = known[key]
        return values
