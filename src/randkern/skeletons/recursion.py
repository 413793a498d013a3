"""The exact kernel of a skeleton, and the moments of its features.

The values of all nodes for a tile of pairs of rows are computed level by level: a level
holds the internal nodes of one depth and activation, so that each of its steps is one
array operation. The contribution of inputs to the nodes above them is a matrix product
if their kernels are dot products; neighbouring nodes share its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.skeletons.bases import Base
from randkern.skeletons.graph import Graph, offsets, ranges

# Memory for points checked at a time.
_CHECKED_BYTES = 32 * 2**20
_SMALLEST_TILE = 8
# Memory for embedded coordinates of a row block, repeated for each node reading them.
_BLOCK_BYTES = 64 * 2**20

Dual = Callable[[Any], Any]
# Maps a base and points x, y to (values of pairs, ...), like Base.kernel.
PairValues = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, eq=False)
class _Level:
    """Internal nodes of one depth and activation."""

    nodes: np.ndarray
    activation: int
    from_nodes: Any  # averages the values of internal nodes
    from_inputs: Any  # averages those of inputs whose kernel is not a dot product
    patches: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]


class _Block(NamedTuple):
    """Rows, and their embedded coordinates per level, (nodes, size, rows)."""

    rows: Any
    patches: list[list[Any]]


class Recursion:
    """Computes κ_v = σ̂_v(mean of κ_u) at the output of a graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.depths = _nodes_by_depth(graph)
        self._inputs_of_base = [
            np.flatnonzero(graph.base == kind) for kind in range(len(graph.bases))
        ]

    def points(self, X: Any, kind: int) -> Any:
        """Return the points of all inputs on one base, (rows, inputs, width)."""
        graph = self.graph

        def columns() -> np.ndarray:
            starts = graph.column_starts[self._inputs_of_base[kind]]
            return graph.columns[starts[:, None] + np.arange(graph.bases[kind].width)]

        return X[:, ops_of(X).constant(self, ("columns", kind), X, columns)]

    def check(self, X: Rows) -> None:
        """Raise unless the columns of the rows hold points of their base spaces."""
        n_rows = rows_within(_CHECKED_BYTES, 8 * max(1, len(self.graph.columns)))
        for kind, base in enumerate(self.graph.bases):
            if type(base).check is Base.check:
                continue
            for rows in row_blocks(X.shape[0], n_rows):
                base.check(self.points(densify(X[rows]), kind))

    @cached_property
    def _n_coordinates(self) -> np.ndarray:
        """The dimension of each base's embedding, 0 if its kernel is no dot product."""
        embedded = [base.embed(np.zeros((1, base.width))) for base in self.graph.bases]
        return np.array(
            [0 if points is None else points.shape[-1] for points in embedded]
        )

    @cached_property
    def _dot(self) -> np.ndarray:
        """Whether each base's kernel is a dot product of embedded points."""
        return self._n_coordinates > 0

    @cached_property
    def _coordinates(self) -> np.ndarray:
        """Start of each input's embedded coordinates."""
        order = np.argsort(self.graph.base, kind="stable")  # as in `_embedded`
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = offsets(self._n_coordinates[self.graph.base[order]])[:-1]
        return starts

    def _embedded(self, X: Any) -> Any:
        """Return the embedded points of all inputs, (rows, coordinates)."""
        ops = ops_of(X)
        parts = [ops.empty((X.shape[0], 0), X)]
        for kind, base in enumerate(self.graph.bases):
            if self._dot[kind]:
                embedded = base.embed(self.points(X, kind))
                assert embedded is not None
                parts.append(embedded.reshape(X.shape[0], -1))
        return ops.concatenate(parts, axis=1)

    def _levels(self, dot: np.ndarray) -> list[_Level]:
        """Return the levels; inputs on the bases selected by `dot` become patches."""
        graph = self.graph
        is_dot = dot[graph.base]
        levels = []
        for nodes in self.depths:
            for kind in np.unique(graph.activation[nodes]):
                chosen = nodes[graph.activation[nodes] == kind]
                levels.append(self._level(chosen, int(kind), is_dot))
        return levels

    def _level(self, nodes: np.ndarray, kind: int, is_dot: np.ndarray) -> _Level:
        graph = self.graph
        degrees = np.diff(graph.starts)[nodes]
        target = np.repeat(np.arange(len(nodes)), degrees)
        source = graph.sources[ranges(graph.starts[nodes], degrees)]
        weight = np.repeat(1.0 / np.maximum(degrees, 1), degrees)
        internal = source >= graph.n_inputs
        plain = ~internal
        plain[plain] = ~is_dot[source[plain]]
        entries = ~internal & ~plain

        def averaging(mask: np.ndarray, columns: np.ndarray, width: int) -> Any:
            if not mask.any():
                return None
            pairs = target[mask], columns[mask]
            return sp.csr_array((weight[mask], pairs), shape=(len(nodes), width))

        return _Level(
            nodes,
            kind,
            averaging(internal, source - graph.n_inputs, graph.n_internal),
            averaging(plain, source, graph.n_inputs),
            self._patches(target[entries], source[entries], degrees),
        )

    def _patches(
        self, target: np.ndarray, source: np.ndarray, degrees: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
        """Return (nodes of a level, coordinates, 1/in-degree), by their number."""
        if len(target) == 0:
            return ()
        counts = self._n_coordinates[self.graph.base[source]]
        coordinates = ranges(self._coordinates[source], counts)
        of_node = np.bincount(target, counts, minlength=len(degrees)).astype(int)
        begin = offsets(of_node)
        patches = []
        for size in np.unique(of_node[of_node > 0]):
            chosen = np.flatnonzero(of_node == size)
            index = coordinates[begin[chosen][:, None] + np.arange(size)]
            patches.append((chosen, index, 1.0 / degrees[chosen]))
        return tuple(patches)

    def gram(self, X: Rows, Y: Rows, *, precise: bool = True) -> Any:
        """Return the kernel of all pairs of checked rows, in the dtype of X.

        It is computed in float64, or, if not `precise`, in that dtype, in tiles that
        threads share. If Y is X, only half of them are computed.
        """
        self.check(X)
        if Y is not X:
            self.check(Y)
        ops = ops_of(X)
        out = ops.empty((X.shape[0], Y.shape[0]), X)
        n_rows = self._block_rows(X, precise)
        for rows in row_blocks(X.shape[0], n_rows):
            left = self._block(X[rows], precise, weighted=True)
            for columns in row_blocks(Y.shape[0], n_rows):
                if Y is X and columns.start < rows.start:
                    continue
                right = self._block(Y[columns], precise, weighted=False)
                self._block_pairs(
                    left,
                    right,
                    out[rows, columns],
                    out[columns, rows].T if Y is X else None,
                    half=Y is X and columns == rows,
                )
        return out

    def _block_rows(self, like: Array, precise: bool) -> int:
        entries = sum(
            index.size for level in self._kernel_levels for _, index, _ in level.patches
        )
        itemsize = 8 if precise else like.dtype.itemsize
        n_bytes = itemsize * (entries + len(self.graph.columns) + 1)
        return max(self._tile_side(like), rows_within(_BLOCK_BYTES, n_bytes))

    def _block(self, X: Rows, precise: bool, *, weighted: bool) -> _Block:
        """Return what tiles of the same rows share, times 1/in-degree if `weighted`."""
        ops = ops_of(X)
        rows = densify(X)
        rows = ops.as_float64(rows) if precise else rows
        # Rows innermost, so that a patch is gathered in runs of rows.
        embedded = ops.contiguous(self._embedded(rows).T)
        patches: list[list[Any]] = [[] for _ in self._kernel_levels]
        for level, gathered in zip(self._kernel_levels, patches, strict=True):
            for i, (_, index, weight) in enumerate(level.patches):
                gathered.append(embedded[_cached(level, ("index", i), rows, index)])
                if weighted:
                    shares = _cached(level, ("weight", i), rows, weight)
                    gathered[i] *= ops.asarray(shares, rows)[:, None, None]
        return _Block(rows, patches)

    def _block_pairs(
        self, left: _Block, right: _Block, out: Array, mirrored: Any, half: bool
    ) -> None:
        """Write the kernel of the pairs of two blocks, tile by tile.

        It is also written to `mirrored`, if given; if `half`, only the tiles on and
        above the diagonal are computed.
        """
        side = self._tile_side(out)
        tiles = [
            (rows, columns)
            for rows in row_blocks(len(left.rows), side)
            for columns in row_blocks(len(right.rows), side)
            if not half or columns.start >= rows.start
        ]

        def task(start: int, stop: int) -> None:
            for rows, columns in tiles[start:stop]:
                tile = self._tile(left, rows, right, columns)
                out[rows, columns] = tile
                if mirrored is not None:
                    mirrored[rows, columns] = tile

        n_pairs = out.shape[0] * out.shape[1]
        nanoseconds = 20.0 * n_pairs * (self.graph.n_internal + self.graph.n_inputs)
        ops_of(out).run_over_ranges(task, len(tiles), nanoseconds)

    @cached_property
    def _kernel_levels(self) -> list[_Level]:
        return self._levels(self._dot)

    def _tile_side(self, like: Array) -> int:
        """Return the number of rows and columns of a tile."""
        n_plain = int((~self._dot[self.graph.base]).sum())
        values = 8 * (2 * self.graph.n_internal + 2 * n_plain + 1)
        n_bytes, largest = ops_of(like).tile_size(like)
        return int(np.clip((n_bytes / values) ** 0.5, _SMALLEST_TILE, largest))

    def _tile(self, left: _Block, rows: slice, right: _Block, columns: slice) -> Any:
        """Return the kernel of all pairs of a few rows of two blocks."""
        X, Y = left.rows[rows], right.rows[columns]
        if self.graph.n_internal == 0:
            (base,) = self.graph.bases
            x = self.points(X, 0)
            y = self.points(Y, 0)
            return base.kernel(x, y.swapaxes(0, 1))
        plain = None
        if not all(self._dot):
            plain = self._pair_values(X, Y, _kernel, outer=True)
        size = len(X) * len(Y)

        def products(i: int, number: int) -> Any:
            first, second = left.patches[i][number], right.patches[i][number]
            values = ops_of(X).patch_products(first, second, rows, columns)
            return values.reshape(-1, size)

        levels = self._kernel_levels
        values = self._run(levels, self._duals, size, X, plain, products)
        return values.reshape(len(X), len(Y))

    @property
    def _duals(self) -> list[Dual]:
        return [activation.dual for activation in self.graph.activations]

    def _pair_values(
        self, X: Rows, Y: Rows, function: PairValues, outer: bool = False
    ) -> Any:
        """Return function(base, x, y) for every input, (inputs, pairs).

        Rows are paired in order, or, if `outer`, all pairs of rows are used.
        """
        ops = ops_of(X)
        n_pairs = X.shape[0] * Y.shape[0] if outer else X.shape[0]
        out = ops.empty((self.graph.n_inputs, n_pairs), X)
        for kind, inputs in enumerate(self._inputs_of_base):
            rows_of_kind = _cached(self, ("inputs", kind), X, inputs)
            if outer and function is _kernel and self._dot[kind]:
                out[rows_of_kind] = 0.0
                continue  # computed by a matrix product
            x = self.points(X, kind).swapaxes(0, 1)
            y = self.points(Y, kind).swapaxes(0, 1)
            if outer:
                x, y = x[:, :, None], y[:, None, :]
            values = function(self.graph.bases[kind], x, y)
            if getattr(values, "ndim", 0):  # otherwise one number for all
                values = values.reshape(len(inputs), n_pairs)
            out[rows_of_kind] = values
        return out

    def _run(
        self,
        levels: list[_Level],
        duals: Sequence[Dual],
        size: int,
        like: Array,
        at_inputs: Any,
        patch_means: Callable[[int, int], Any] | None = None,
    ) -> Any:
        """Return the values at the output for `size` pairs, in the dtype of `like`.

        `patch_means` maps the numbers of a level and of a set of its nodes to their
        means over inputs.
        """
        if not levels:
            return at_inputs[0]
        ops = ops_of(like)
        values = ops.empty((self.graph.n_internal, size), like)
        for i, level in enumerate(levels):
            means = None
            for number, (chosen, _, _) in enumerate(level.patches):
                assert patch_means is not None
                products = patch_means(i, number)
                if len(chosen) == len(level.nodes):
                    means = products  # of all nodes, in their order
                    break
                if means is None:
                    means = ops.float64_zeros((len(level.nodes), size), like)
                means[_cached(level, ("of", number), like, chosen)] = products
            for name, matrix, entering in (
                ("inputs", level.from_inputs, at_inputs),
                ("nodes", level.from_nodes, values),
            ):
                if matrix is None:
                    continue
                sums = ops.sparse.product(level, name, matrix, entering)
                if means is None:
                    means = sums
                else:
                    means += sums
            nodes = _cached(level, "nodes", like, level.nodes)
            values[nodes] = duals[level.activation](means)
        return values[-1]

    def diagonal(self, X: Rows) -> Any:
        """Return k(x, x) in float64."""
        ops = ops_of(X)
        out = ops.float64_ones(X.shape[0], X)
        if self.is_normalised:
            return out
        for rows in row_blocks(X.shape[0], self._pairs_at_once(X)):
            block = ops.as_float64(densify(X[rows]))
            values = self._pair_values(block, block, _kernel)
            out[rows] = self._run(
                self._plain_levels, self._duals, len(block), values, values
            )
        return out

    @property
    def is_normalised(self) -> bool:
        """Whether k(x, x) is 1 for every x."""
        return all(base.normalised for base in self.graph.bases)

    def squared_moments(self, X: Rows, Y: Rows) -> tuple[Any, Any]:
        """Return E[(ψ(x)·conj ψ(y))²] and E[|ψ(x)ψ(y)|²] of a feature, in float64.

        This is the kernel's recursion over squared base features, with the truncated
        series of the drawn degrees: if |ψ| may exceed 1, it may be infinite.
        """
        ops = ops_of(X)
        unit = all(base.unit for base in self.graph.bases)
        duals = self._duals if unit else [*map(_series, self.graph.distributions)]
        moments = tuple(
            ops.float64_zeros((X.shape[0], Y.shape[0]), X) for _ in _SQUARES
        )
        n_pairs = self._pairs_at_once(X)
        for columns in row_blocks(Y.shape[0], n_pairs):
            right = ops.as_float64(densify(Y[columns]))
            for rows in row_blocks(X.shape[0], max(1, n_pairs // len(right))):
                left = ops.as_float64(densify(X[rows]))
                for function, out in zip(_SQUARES, moments, strict=True):
                    values = self._pair_values(left, right, function, outer=True)
                    with np.errstate(over="ignore", invalid="ignore"):
                        levels, size = self._plain_levels, values.shape[1]
                        values_at_output = self._run(
                            levels, duals, size, values, values
                        )
                    out[rows, columns] = values_at_output.reshape(len(left), len(right))
        return moments[0], moments[1]

    @cached_property
    def _plain_levels(self) -> list[_Level]:
        return self._levels(np.zeros(len(self.graph.bases), dtype=bool))

    def _pairs_at_once(self, like: Array) -> int:
        n_nodes = self.graph.n_inputs + 2 * self.graph.n_internal
        return rows_within(ops_of(like).tile_size(like)[0], 8 * n_nodes)


def _cached(owner: object, name: Any, like: Array, values: np.ndarray) -> Any:
    """Return values on the device of `like`, cached for the lifetime of `owner`."""
    return ops_of(like).constant(owner, name, like, lambda: values)


def _kernel(base: Any, x: Any, y: Any) -> Any:
    return base.kernel(x, y)


_SQUARES: tuple[PairValues, PairValues] = (
    lambda base, x, y: base.squared(x, y)[0],
    lambda base, x, y: base.squared(x, y)[1],
)


def _series(degrees: Any) -> Dual:
    def dual(rho: Array) -> Any:
        ops = ops_of(rho)
        values = ops.duals.power_series(degrees.probabilities, rho, degrees)
        # NaN comes from infinity times a coefficient of 0.
        return ops.xp.where(values != values, np.inf, values)

    return dual


def _nodes_by_depth(graph: Graph) -> list[np.ndarray]:
    """Return the internal nodes at depths 1, 2, ..., by longest path from an input."""
    depth = np.zeros(graph.n_inputs + graph.n_internal, dtype=np.int64)
    for i in range(graph.n_internal):
        depth[graph.n_inputs + i] = 1 + depth[graph.entering(i)].max()
    internal = depth[graph.n_inputs :]
    return [
        np.flatnonzero(internal == level)
        for level in range(1, internal.max(initial=0) + 1)
    ]
