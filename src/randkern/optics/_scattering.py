"""Light through a scattering medium: |Ux|² in tiles, without storing U."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.hadamard import block_size
from randkern.data import row_blocks
from randkern.nonlinearities import Modulus
from randkern.plan import Factor, Group, Plan, evaluate
from randkern.projections import (
    ComplexNormalLaw,
    InputMap,
    Projection,
    make_projection,
)

# A tile of intensities takes 16 MB: larger ones leave the last cache, smaller ones
# spend their time on starting. Columns are whole blocks of a structured projection.
_TILE_ENTRIES = 2**22
_TILE_COLUMNS = 8192
_STRUCTURED_ROWS = 512
# The other projections multiply by a matrix that they may have to make first.
_OTHER_ROWS = 4096
# Below this width structured rows are visibly not Gaussian.
_STRUCTURED_WIDTH = 64


@dataclass(frozen=True, eq=False)
class ScatteringMedium:
    """A transmission matrix U of independent CN(0, 1) entries, for rows of any width.

    Parameters
    ----------
    n_components : int
    projection : str
    stream : Stream
    """

    n_components: int
    projection: str
    stream: Stream

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plans", {})

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def plan(self, n_features: int) -> Plan:
        """Return the plan of |Ux|² for rows of a width."""
        plans: dict[int, Plan] = self.__dict__["_plans"]
        plan = plans.get(n_features)
        if plan is None:
            plan = self._make_plan(n_features)
            # A dense matrix is worth keeping for one width at a time. Another
            # thread that looks meanwhile finds one dictionary or the other.
            self.__dict__["_plans"] = {n_features: plan}
        return plan

    def _make_plan(self, n_features: int) -> Plan:
        name = self.projection
        if name == "auto":
            name = "structured" if n_features >= _STRUCTURED_WIDTH else "streamed"
        law = ComplexNormalLaw()
        projection = make_projection(
            name, self.stream, self.n_components, n_features, law, self
        )
        factor = Factor(projection, Modulus(2.0), InputMap(n_features))
        group = Group((factor,), 0, self.n_components, 1.0, "amplitude")
        return Plan((group,), n_features)

    def _projection(self, n_features: int) -> Projection:
        return self.plan(n_features).groups[0].factors[0].projection

    def _tile_shape(self, n_rows: int, n_features: int) -> tuple[int, int]:
        """Return how many rows and columns are worked on at a time."""
        structured = self._projection(n_features).name == "structured"
        block = block_size(n_features) if structured else 1
        most_rows = _STRUCTURED_ROWS if structured else _OTHER_ROWS
        n_rows = min(n_rows, most_rows)
        columns = max(_TILE_COLUMNS, block, _TILE_ENTRIES // n_rows)
        n_tiles = -(-self.n_components // columns)
        columns = -(-self.n_components // (n_tiles * block)) * block
        if structured:
            n_rows = min(n_rows, max(16, _TILE_ENTRIES // columns))
        return n_rows, min(columns, self.n_components)

    def _tiles(self, X: Rows) -> Iterator[tuple[slice, slice, Rows]]:
        """Yield rows, columns and the rows of X in float32."""
        n_rows, n_columns = self._tile_shape(*X.shape)
        for rows in row_blocks(X.shape[0], n_rows):
            block = X[rows].astype(np.float32)
            if not sp.issparse(block):
                block = np.ascontiguousarray(block)
            for columns in row_blocks(self.n_components, n_columns):
                yield rows, columns, block

    def intensities(self, X: Rows) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Yield rows, columns and |Ux|² of a tile, an array that is used again."""
        plan = self.plan(X.shape[1])
        scratch: np.ndarray | None = None
        for rows, columns, block in self._tiles(X):
            shape = (block.shape[0], columns.stop - columns.start)
            if scratch is None or scratch.size < shape[0] * shape[1]:
                scratch = np.empty(shape, dtype=np.float32)
            tile = scratch.reshape(-1)[: shape[0] * shape[1]].reshape(shape)
            evaluate(plan, block, columns, out=tile)
            yield rows, columns, tile

    def fields(self, X: Rows) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray]]:
        """Yield rows, columns, and the real and imaginary part of Ux of a tile."""
        projection = self._projection(X.shape[1])
        for rows, columns, block in self._tiles(X):
            real, imag = projection.project(block, columns.start, columns.stop)
            yield rows, columns, real, imag

    def matrix(self, n_features: int, start: int, stop: int) -> np.ndarray:
        """Return rows of U, (stop - start, n_features), in complex128."""
        projection = self._projection(n_features)
        real, imag = projection.project(np.eye(n_features), start, stop)
        return (real + 1j * imag).T
