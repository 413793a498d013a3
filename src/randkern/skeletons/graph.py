"""Skeletons as arrays: nodes, edges, and the symbols of their base features.

Inputs with the same columns and base space share their symbols. A *slot* is a column of
a row as read by a base space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.backend.paths import (
    ADD,
    COUNT,
    CYCLE,
    SEPARATE,
    Draws,
    PathTables,
    normals,
    unpack,
)
from randkern.backend.sparse_phases import SparseEntries
from randkern.skeletons.activations import Activation, DegreeDistribution
from randkern.skeletons.bases import Base, base_of


@dataclass(frozen=True)
class Input:
    """An input node: columns of a row, and the base space in which they are a point.

    Parameters
    ----------
    base : Base or str
        ``"binary"``, ``"circle"``, ``"gaussian"``, ``"linear"``, or the result of
        :func:`gaussian`, :func:`categorical` or :func:`sphere`.
    columns : int or sequence of int
        Column numbers, as many as the base space reads.

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
                "the columns of an input must be non-negative integers, got "
                f"{self.columns!r}."
            )
        if len(columns) != base.width or len(set(columns.tolist())) != base.width:
            raise ValueError(
                f"an input on {base!r} reads {base.width} different columns, got "
                f"{columns.tolist()}."
            )
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "columns", tuple(columns.tolist()))


def offsets(sizes: np.ndarray) -> np.ndarray:
    """Return where every segment of an array begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ... of every range, concatenated."""
    ends = offsets(sizes)
    return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])


@dataclass(frozen=True, eq=False)
class Graph:
    """A skeleton in arrays.

    Nodes 0, 1, ... are the inputs, followed by the internal nodes in topological order;
    the last is the output. The sources of internal node i are
    ``sources[starts[i]:starts[i + 1]]``.
    """

    bases: tuple[Base, ...]
    base: np.ndarray  # per input, its position in `bases`
    columns: np.ndarray  # of all inputs, concatenated
    activations: tuple[Activation, ...]
    activation: np.ndarray  # per internal node, its position in `activations`
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

    def entering(self, i: int) -> np.ndarray:
        """Return the sources of internal node i."""
        return self.sources[self.starts[i] : self.starts[i + 1]]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The edges, (from, to)."""
        targets = np.repeat(np.arange(self.n_internal), np.diff(self.starts))
        pairs = np.column_stack([self.sources, self.n_inputs + targets])
        return [(source, target) for source, target in pairs.tolist()]

    @cached_property
    def column_starts(self) -> np.ndarray:
        """Start of every input's columns in `columns`."""
        return offsets(np.array([base.width for base in self.bases])[self.base])

    @cached_property
    def distributions(self) -> tuple[DegreeDistribution, ...]:
        """The distribution of degrees of every activation."""
        return tuple(a.degree_distribution() for a in self.activations)

    def spread(self, at_inputs: float, rule: Sequence[Any]) -> float:
        """Return the value at the output: rule[activation](mean over sources)."""
        values = np.full(self.n_inputs + self.n_internal, at_inputs)
        known: dict[tuple[int, float], float] = {}  # nodes of a layer repeat values
        for i, kind in enumerate(self.activation.tolist()):
            key = kind, float(values[self.entering(i)].mean())
            if key not in known:
                known[key] = float(rule[kind](key[1]))
            values[self.n_inputs + i] = known[key]
        return float(values[-1])


_MERGING = {"add": ADD, "cycle": CYCLE, "count": COUNT, "separate": SEPARATE}


class Alphabet:
    """The symbols and slots of a graph, and the `tables` for draws from it.

    `slot_columns` and `slot_bases` are the column that every slot reads, and the
    position of its base space in the graph.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        bases = graph.bases
        points: dict[tuple[int, ...], int] = {}
        columns = graph.columns.tolist()
        starts = graph.column_starts
        owner = np.empty(graph.n_inputs, dtype=np.int64)
        for i, kind in enumerate(graph.base.tolist()):
            point = (kind, *columns[starts[i] : starts[i + 1]])
            owner[i] = points.setdefault(point, len(points))
        kinds = np.array([point[0] for point in points])
        widths = np.array([base.width for base in bases])[kinds]
        self.slot_columns = np.array([c for point in points for c in point[1:]])
        self.slot_bases = np.repeat(kinds, widths)
        # Of every symbol of all points: its base space, and its form there.
        sizes = np.array([len(base.symbols) for base in bases])
        n_symbols = sizes[kinds]
        first_symbols = offsets(sizes[kinds])
        kind_of_symbol = np.repeat(kinds, n_symbols)

        def of_symbols(values: list[Any]) -> np.ndarray:
            return np.array(values)[kind_of_symbol]

        number = ranges(offsets(sizes)[:-1][kinds], n_symbols)
        forms = np.array([symbol for base in bases for symbol in base.symbols])[number]
        conjugate, first, n_terms, self._sizes, second, self._imaginary = forms.T
        slot = np.repeat(offsets(widths)[:-1], n_symbols)
        self._first = slot + first.astype(int)
        self._n_terms = n_terms.astype(int)
        self._second = np.where(second < 0, -1, slot + second).astype(int)
        begin = np.repeat(first_symbols[:-1], n_symbols)
        self._unit = of_symbols([base.unit for base in bases])
        self._discrete = of_symbols([base.discrete for base in bases])
        cumulative = [degrees.cumulative for degrees in graph.distributions]
        exponents = [
            {"one": 1, "sign": -1, "cycle": base.modulus}[base.exponents]
            for base in bases
        ]
        self.tables = PathTables(
            starts=graph.starts,
            sources=graph.sources,
            activation=graph.activation,
            cumulative_starts=np.cumsum([0, *(len(table) for table in cumulative)]),
            cumulative=np.concatenate([np.empty(0), *cumulative]),
            first_symbol=first_symbols[owner],
            n_symbols=sizes[graph.base],
            exponents=np.array(exponents)[graph.base],
            merging=of_symbols([_MERGING[base.merging] for base in bases]),
            modulus=of_symbols([base.modulus for base in bases]),
            conjugate=np.where(conjugate < 0, -1, begin + conjugate).astype(int),
            continuous=(~self._discrete).astype(int),
        )

    def slots(self, X: Any, used: np.ndarray, owner: object) -> tuple[Any, Any]:
        """Return rows, and the column in them of each slot in `used`.

        Features of modulus 1 read angles; if X holds these, the rows are `X` itself.
        For tensors the column numbers are cached on the device for the lifetime of
        `owner`, which uses no other slots.
        """
        ops = ops_of(X)
        columns = ops.constant(owner, "columns", X, lambda: self.slot_columns[used])
        changed = {
            kind: base
            for kind, base in enumerate(self.graph.bases)
            if type(base).angles is not Base.angles
        }
        if not changed:
            return X, columns
        out = X[:, columns]
        for kind, base in changed.items():
            chosen = partial(np.flatnonzero, self.slot_bases[used] == kind)
            slots_of_kind = ops.constant(owner, ("slots", kind), X, chosen)
            out[:, slots_of_kind] = base.angles(out[:, slots_of_kind])
        return out, ops.constant(owner, "slots", X, lambda: np.arange(len(used)))

    def entries(
        self,
        draws: Draws,
        key: int,
        weights: np.ndarray,
        shifts: np.ndarray,
        columns: np.ndarray,
    ) -> SparseEntries:
        """Return draws as entries of a sparse map, in float64.

        `key` is that of the normal numbers for features with continuous distributions;
        n draws have n `weights` and `shifts`, and n + 1 `columns`.
        """
        symbols, exponents = unpack(draws.packed)
        in_phase, n_terms = self._unit[symbols], self._n_terms[symbols]
        # Every term of a linear form has the position of its symbol, and a slot.
        of = np.repeat(np.arange(len(symbols)), n_terms)
        first = self._first[symbols]
        slots = ranges(first, n_terms)
        # The smallest representative keeps phases, and their rounding errors, small.
        modulus = self.tables.modulus[symbols]
        powers = exponents - np.where(2 * exponents > modulus, modulus, 0.0)
        # The sum of e independent vectors is distributed as √e times one.
        powers = np.where(self._discrete[symbols], powers, np.sqrt(np.abs(exponents)))
        coefs = (self._sizes[symbols] * np.where(in_phase, powers, 1.0))[of]
        chosen = np.flatnonzero(~self._discrete[symbols][of])
        if len(chosen):
            at = of[chosen]
            draw = np.searchsorted(draws.starts, at, side="right") - 1
            position = at - draws.starts[draw]
            term = slots[chosen] - first[at]
            values = normals(key, draws.first[draw], position, term)
            direction = ~in_phase[at]
            if direction.any():
                norms = np.sqrt(np.bincount(at, values**2))[at[direction]]
                values[direction] /= norms
            coefs[chosen] *= values
        factor, phase = ~in_phase, in_phase[of]
        return SparseEntries(
            offsets(np.where(in_phase, n_terms, 0))[draws.starts],
            slots[phase],
            coefs[phase],
            weights,
            shifts,
            columns,
            offsets(factor)[draws.starts],
            exponents[factor],
            offsets(n_terms[factor]),
            slots[~phase],
            coefs[~phase],
            self._second[symbols[factor]],
            self._imaginary[symbols[factor]],
        )
