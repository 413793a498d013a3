"""Skeletons as arrays: nodes, edges, and the symbols of their base features.

Inputs with the same columns and base space share their symbols. A *slot* is a column of
a row as read by a base space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from randkern.skeletons.activations import Activation, DegreeLaw
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

    @cached_property
    def column_starts(self) -> np.ndarray:
        """Start of every input's columns in `columns`."""
        return offsets(np.array([base.width for base in self.bases])[self.base])

    @cached_property
    def laws(self) -> tuple[DegreeLaw, ...]:
        """The law of the degree of every activation."""
        return tuple(activation.degree_law() for activation in self.activations)

    def spread(self, at_inputs: np.ndarray, rule: Sequence[Any]) -> np.ndarray:
        """Propagate values: rule[activation](mean over sources), node by node."""
        values = np.empty(self.n_inputs + self.n_internal)
        values[: self.n_inputs] = at_inputs
        known: dict[tuple[int, float], float] = {}  # nodes of a layer repeat values
        for i, kind in enumerate(self.activation.tolist()):
            key = kind, float(values[self.entering(i)].mean())
            if key not in known:
                known[key] = float(rule[kind](key[1]))
            values[self.n_inputs + i] = known[key]
        return values


_MERGING = {"add": ADD, "cycle": CYCLE, "count": COUNT, "separate": SEPARATE}
# Meanings of symbols, numbered: those of phases first.
_MEANINGS = ("phase", "gaussian", "coordinate", "pair", "direction")
_PHASE, _GAUSSIAN, _COORDINATE, _PAIR, _DIRECTION = range(5)


class Alphabet:
    """The symbols and slots of a graph.

    Attributes
    ----------
    slot_columns, slot_bases : ndarray of shape (n_slots,)
        The column that every slot reads, and its base space's position in the graph.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        points: dict[tuple[int, ...], int] = {}
        columns, starts = graph.columns.tolist(), graph.column_starts
        owner = np.empty(graph.n_inputs, dtype=np.int64)
        for i, kind in enumerate(graph.base.tolist()):
            point = (kind, *columns[starts[i] : starts[i + 1]])
            owner[i] = points.setdefault(point, len(points))
        kinds = np.array([point[0] for point in points])
        widths = np.array([base.width for base in graph.bases])[kinds]
        n_symbols = np.array([base.n_symbols for base in graph.bases])[kinds]
        first_symbols = offsets(n_symbols)
        self.slot_columns = np.array([c for point in points for c in point[1:]])
        self.slot_bases = np.repeat(kinds, widths)
        self._input_symbols = first_symbols[owner]
        # Of every symbol: its base, the first slot of its point, its number there, and
        # its meaning.
        self._base = np.repeat(kinds, n_symbols)
        self._slot = np.repeat(offsets(widths)[:-1], n_symbols)
        self._letter = np.arange(first_symbols[-1])
        self._letter -= np.repeat(first_symbols[:-1], n_symbols)
        self._meaning = self._of_symbols(lambda base: _MEANINGS.index(base.meaning))

    def _of_symbols(self, value: Callable[[Base], Any]) -> np.ndarray:
        """Return what `value` is for the base space of every symbol."""
        return np.array([value(base) for base in self.graph.bases])[self._base]

    @property
    def can_cancel(self) -> bool:
        """Whether a draw that reaches inputs may still be constant."""
        bases = self.graph.bases
        if any(base.exponents == "cycle" for base in bases):
            return True
        once = all(len(law.probabilities) <= 2 for law in self.graph.laws)
        return not once and any(base.merging in ("add", "cycle") for base in bases)

    @property
    def always_complex(self) -> bool:
        """Whether a draw that is not constant is never real."""
        return all(base.never_real for base in self.graph.bases)

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
            here = ops.constant(owner, ("slots", kind), X, chosen)
            out[:, here] = base.angles(out[:, here])
        return out, ops.constant(owner, "slots", X, lambda: np.arange(len(used)))

    @cached_property
    def tables(self) -> PathTables:
        """The tables for draws from the graph."""
        graph = self.graph
        cumulative = [law.cumulative for law in graph.laws]
        exponents = [
            {"one": 1, "sign": -1, "cycle": base.modulus}[base.exponents]
            for base in graph.bases
        ]
        conjugate = np.arange(len(self._base))
        conjugate[self._meaning == _GAUSSIAN] = -1
        # Symbols 2j and 2j + 1 of a point are x_j ± i x_{j+1}.
        pair = self._meaning == _PAIR
        conjugate[pair] += (self._letter[pair] ^ 1) - self._letter[pair]
        return PathTables(
            starts=graph.starts,
            sources=graph.sources,
            law=graph.activation,
            law_starts=np.cumsum([0, *(len(each) for each in cumulative)]),
            cumulative=np.concatenate([np.empty(0), *cumulative]),
            first_symbol=self._input_symbols,
            n_symbols=np.array([base.n_symbols for base in graph.bases])[graph.base],
            exponents=np.array(exponents)[graph.base],
            merging=self._of_symbols(lambda base: _MERGING[base.merging]),
            modulus=self._of_symbols(lambda base: base.modulus),
            conjugate=conjugate,
            continuous=self._of_symbols(lambda base: int(not base.discrete)),
        )

    def entries(
        self,
        draws: Draws,
        key: int,
        weights: np.ndarray,
        shifts: np.ndarray,
        columns: np.ndarray,
    ) -> SparseEntries:
        """Return draws as entries of a sparse map, in float64.

        `key` is that of the normal numbers for features with continuous laws; n draws
        have n `weights` and `shifts`, and n + 1 `columns`.
        """
        symbols, exponents = unpack(draws.packed)
        meaning, width = self._meaning[symbols], self._widths[symbols]
        is_phase = meaning <= _GAUSSIAN
        whole = (meaning == _GAUSSIAN) | (meaning == _DIRECTION)
        n_terms = np.where(whole, width, 1)
        # Every term of a linear form has the position of its symbol, and a slot.
        of = np.repeat(np.arange(len(symbols)), n_terms)
        first = self._first_read[symbols]
        slots = ranges(first, n_terms)
        coefs = self._sizes(symbols, exponents)[of]
        if whole.any():
            chosen = np.flatnonzero(whole[of])
            at = of[chosen]
            draw = np.searchsorted(draws.starts, at, side="right") - 1
            position = at - draws.starts[draw]
            values = normals(
                key, draws.first[draw], position, slots[chosen] - first[at]
            )
            direction = meaning[at] == _DIRECTION
            if direction.any():
                norms = np.sqrt(np.bincount(at, values**2))[at[direction]]
                values[direction] /= norms
            coefs[chosen] *= values
        in_phase = is_phase[of]
        return SparseEntries(
            offsets(np.where(is_phase, n_terms, 0))[draws.starts],
            slots[in_phase],
            coefs[in_phase],
            weights,
            shifts,
            columns,
            offsets(~is_phase)[draws.starts],
            exponents[~is_phase],
            offsets(n_terms[~is_phase]),
            slots[~in_phase],
            coefs[~in_phase],
            *self._imaginary(symbols[~is_phase]),
        )

    @cached_property
    def _widths(self) -> np.ndarray:
        return self._of_symbols(lambda base: base.width)

    @cached_property
    def _first_read(self) -> np.ndarray:
        """The first slot that every symbol reads."""
        share = np.where(self._meaning == _PAIR, 2, 1)
        inside = np.isin(self._meaning, (_COORDINATE, _PAIR))
        return self._slot + np.where(inside, self._letter // share, 0)

    def _sizes(self, symbols: np.ndarray, exponents: np.ndarray) -> np.ndarray:
        """Return the coefficients of symbols, without the normal vectors of some."""
        # The smallest representative keeps phases, and their rounding errors, small.
        modulus = self.tables.modulus[symbols]
        sizes = exponents - np.where(2 * exponents > modulus, modulus, 0.0)
        of_width = np.where(self._meaning == _PAIR, self._widths / 2, self._widths)
        factor = self._meaning[symbols] > _GAUSSIAN
        sizes[factor] = np.sqrt(of_width)[symbols[factor]]
        gaussian = self._meaning[symbols] == _GAUSSIAN
        if gaussian.any():
            # The sum of e independent vectors is distributed as √e times one.
            scale = self._of_symbols(lambda base: base.scale)[symbols[gaussian]]
            sizes[gaussian] = scale * np.sqrt(np.abs(exponents[gaussian]))
        return sizes

    def _imaginary(self, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots and coefficients of factors' imaginary parts, -1 if real."""
        slots, coefs = np.full(len(symbols), -1), np.zeros(len(symbols))
        pairs = self._meaning[symbols] == _PAIR
        at = symbols[pairs]
        width, letter = self._widths[at], self._letter[at]
        slots[pairs] = self._slot[at] + (letter // 2 + 1) % width
        coefs[pairs] = (1 - 2 * (letter % 2)) * np.sqrt(width / 2)
        return slots, coefs
