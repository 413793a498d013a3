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

    @cached_property
    def column_starts(self) -> np.ndarray:
        """Start of every input's columns in `columns`."""
        widths = np.array([base.width for base in self.bases])[self.base]
        return np.concatenate([[0], np.cumsum(widths)])

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
            entering = self.sources[self.starts[i] : self.starts[i + 1]]
            key = kind, float(values[entering].mean())
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

    Parameters
    ----------
    graph : Graph

    Attributes
    ----------
    tables : PathTables
        The tables for draws from the graph.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        points: dict[tuple[int, ...], int] = {}
        starts = graph.column_starts
        owner = np.empty(graph.n_inputs, dtype=np.int64)
        columns = graph.columns.tolist()
        for i, kind in enumerate(graph.base.tolist()):
            point = (kind, *columns[starts[i] : starts[i + 1]])
            owner[i] = points.setdefault(point, len(points))
        self._points = list(points)
        kinds = np.array([point[0] for point in self._points])
        per_base = np.array([base.n_symbols for base in graph.bases])
        widths = np.array([base.width for base in graph.bases])
        self._kinds = kinds
        self._first_symbols = _starts(per_base[kinds])
        self._first_slots = _starts(widths[kinds])
        self._owner = owner

    @property
    def n_symbols(self) -> int:
        return int(self._first_symbols[-1])

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

    @cached_property
    def slot_columns(self) -> np.ndarray:
        """The column that every slot reads."""
        return np.array([column for point in self._points for column in point[1:]])

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
        kinds = np.repeat(self._kinds, np.diff(self._first_slots))[used]
        for kind, base in changed.items():
            chosen = partial(np.flatnonzero, kinds == kind)
            here = ops.constant(owner, ("slots", kind), X, chosen)
            out[:, here] = base.angles(out[:, here])
        return out, ops.constant(owner, "slots", X, lambda: np.arange(len(used)))

    # -- drawing ------------------------------------------------------------------

    @cached_property
    def tables(self) -> PathTables:
        graph = self.graph
        bases = graph.bases
        cumulative = [law.cumulative for law in graph.laws]
        exponents = {
            kind: {"one": 1, "sign": -1, "cycle": base.modulus}[base.exponents]
            for kind, base in enumerate(bases)
        }
        of_symbol = np.repeat(self._kinds, np.diff(self._first_symbols))

        def at_symbols(values: list[int]) -> np.ndarray:
            return np.array(values, dtype=np.int64)[of_symbol]

        return PathTables(
            starts=graph.starts,
            sources=graph.sources,
            law=graph.activation,
            law_starts=np.cumsum([0, *(len(each) for each in cumulative)]),
            cumulative=np.concatenate([np.empty(0), *cumulative]),
            first_symbol=self._first_symbols[self._owner],
            n_symbols=np.array([b.n_symbols for b in bases])[graph.base],
            exponents=np.array(list(exponents.values()))[graph.base],
            merging=at_symbols([_MERGING[base.merging] for base in bases]),
            modulus=at_symbols([base.modulus for base in bases]),
            conjugate=self._conjugates(of_symbol),
            continuous=at_symbols([int(not base.discrete) for base in bases]),
        )

    def _conjugates(self, of_symbol: np.ndarray) -> np.ndarray:
        """Return the symbol of every conjugate, -1 for normal vectors."""
        conjugate = np.arange(self.n_symbols)
        for kind, base in enumerate(self.graph.bases):
            here = of_symbol == kind
            if base.meaning == "gaussian":
                conjugate[here] = -1
            elif base.meaning == "pair":
                # Symbols 2j and 2j + 1 of a point are x_j ± i x_{j+1}.
                first = self._first_symbols[self._points_of_symbols][here]
                conjugate[here] = first + ((np.flatnonzero(here) - first) ^ 1)
        return conjugate

    # -- numbers ------------------------------------------------------------------

    def entries(
        self,
        draws: Draws,
        key: int,
        weights: np.ndarray,
        shifts: np.ndarray,
        columns: np.ndarray,
    ) -> SparseEntries:
        """Return draws as entries of a sparse map, in float64.

        Parameters
        ----------
        key : int
            Key of the normal numbers for features with continuous laws.
        weights, shifts : ndarray of shape (n,)
        columns : ndarray of shape (n + 1,)
        """
        symbols, exponents = unpack(draws.packed)
        counts = np.diff(draws.starts)
        draw = np.repeat(draws.first, counts)
        position = np.arange(len(symbols)) - np.repeat(draws.starts[:-1], counts)
        kind = self._meaning[symbols]
        place = _Place(self, symbols, exponents, draw, position, key)
        is_phase = kind <= _GAUSSIAN
        n_terms = np.where(is_phase, self._n_slots[symbols], 0)
        phase = np.flatnonzero(is_phase)
        slots, coefs = place.phases(phase, kind)
        starts = np.concatenate([[0], np.cumsum(n_terms)])[draws.starts]
        factors = np.flatnonzero(~is_phase)
        factor_starts = np.concatenate([[0], np.cumsum(~is_phase)])[draws.starts]
        return SparseEntries(
            starts,
            slots,
            coefs,
            weights,
            shifts,
            columns,
            factor_starts,
            exponents[factors],
            *place.factors(factors, kind),
        )

    @cached_property
    def _points_of_symbols(self) -> np.ndarray:
        return np.repeat(np.arange(len(self._points)), np.diff(self._first_symbols))

    @cached_property
    def _meaning(self) -> np.ndarray:
        """Meaning of every symbol."""
        of_base = [_MEANINGS.index(base.meaning) for base in self.graph.bases]
        return np.array(of_base)[self._kinds[self._points_of_symbols]]

    @cached_property
    def _n_slots(self) -> np.ndarray:
        """Number of slots in the linear form of every symbol."""
        widths = np.array([base.width for base in self.graph.bases])
        whole = np.isin(self._meaning, (_GAUSSIAN, _DIRECTION))
        return np.where(whole, widths[self._kinds[self._points_of_symbols]], 1)


class _Place:
    """The symbols of draws and their positions, which determine their numbers."""

    def __init__(
        self,
        alphabet: Alphabet,
        symbols: np.ndarray,
        exponents: np.ndarray,
        draw: np.ndarray,
        position: np.ndarray,
        key: int,
    ):
        self.alphabet = alphabet
        self.symbols, self.exponents = symbols, exponents
        self.draw, self.position, self.key = draw, position, key
        self.point = alphabet._points_of_symbols[symbols]
        self.first_slot = alphabet._first_slots[self.point]
        self.letter = symbols - alphabet._first_symbols[self.point]
        scales = np.array([base.scale for base in alphabet.graph.bases])
        self.scale = scales[alphabet._kinds[self.point]]

    def _spread(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (starts, symbol, offset) of the slots that chosen symbols read."""
        sizes = self.alphabet._n_slots[self.symbols[chosen]]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        offset = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return starts, np.repeat(chosen, sizes), offset

    def _normals(self, which: np.ndarray, offset: np.ndarray) -> np.ndarray:
        return normals(self.key, self.draw[which], self.position[which], offset)

    def phases(self, chosen: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the slots and coefficients of terms of the phase."""
        _, which, offset = self._spread(chosen)
        modulus = self.alphabet.tables.modulus[self.symbols[which]]
        coefs = self.exponents[which].astype(float)
        # The smallest representative keeps phases, and their rounding errors, small.
        coefs -= np.where(2 * coefs > modulus, modulus, 0)
        gaussian = kind[which] == _GAUSSIAN
        if gaussian.any():
            drawn, at = which[gaussian], offset[gaussian]
            # The sum of e independent vectors is distributed as √e times one.
            size = self.scale[drawn] * np.sqrt(np.abs(self.exponents[drawn]))
            coefs[gaussian] = size * self._normals(drawn, at)
        return self.first_slot[which] + offset, coefs

    def factors(self, chosen: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the real and imaginary linear forms of factors."""
        starts, which, offset = self._spread(chosen)
        bases = self.alphabet.graph.bases
        width = np.array([base.width for base in bases])[
            self.alphabet._kinds[self.point]
        ]
        meaning = kind[which]
        slots = self.first_slot[which] + offset
        coefs = np.ones(len(which))
        pair, direction = meaning == _PAIR, meaning == _DIRECTION
        slots[pair] += self.letter[which[pair]] // 2
        coefs[pair] = np.sqrt(width[which[pair]] / 2)
        single = meaning == _COORDINATE
        slots[single] += self.letter[which[single]]
        coefs[single] = np.sqrt(width[which[single]])
        if direction.any():
            values = self._normals(which[direction], offset[direction])
            squares = np.zeros(len(self.symbols))
            np.add.at(squares, which[direction], values**2)
            norms = np.sqrt(squares[which[direction]])
            coefs[direction] = values / norms * np.sqrt(width[which[direction]])
        imag_slots = np.full(len(chosen), -1)
        imag_coefs = np.zeros(len(chosen))
        pairs = kind[chosen] == _PAIR
        at = chosen[pairs]
        after = (self.letter[at] // 2 + 1) % width[at]
        imag_slots[pairs] = self.first_slot[at] + after
        imag_coefs[pairs] = (1 - 2 * (self.letter[at] % 2)) * np.sqrt(width[at] / 2)
        return starts, slots, coefs, imag_slots, imag_coefs


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
