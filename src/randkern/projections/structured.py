"""Rows by fast Walsh-Hadamard transforms: O(D log d), without a stored matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from randkern._validation import Array, Rows
from randkern.backend.hadamard import block_size
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.projections._base import InputMap, Projection

# Number of rows whose columns are selected at a time.
_SELECTED_ROWS = 4096


class Structured(Projection):
    """Blocks R·H S₃ H S₂ H S₁ of random signs and Hadamard matrices.

    Rows have exactly the norms of independent ones (χ_p, with p the power of
    two, at least 64, that the input is padded to; √Gamma(p, 1) for a complex
    distribution, whose signs are (±1 ± i)/√2). They are orthogonal within a block but
    only approximately normal: no bias of the kernel is visible from p = 64 on
    (Yu, Suresh, Choromanski, Holtmann-Rice, Kumar 2016, "Orthogonal random
    features", section 4).
    """

    name = "structured"
    needs_rotation_invariance = True

    @property
    def block(self) -> int:
        """The padded size p, and number of rows per orthogonal block."""
        return block_size(self.width)

    @cached_property
    def norms(self) -> np.ndarray:
        """Norms of all rows, including their mixing factors."""
        generator = self.stream.child("norms").generator()
        norms = self.distribution.norms(generator, self.block, self.n_draws)
        if self.distribution.mixing is None:
            return norms
        return norms * self.mixing_factors

    def _rows(self, X: Rows, start: int, stop: int, **inputs: Any) -> Any:
        """Return rows `start` to `stop` for arrays like X."""
        norms = ops_of(X).constant(self, "norms", X, lambda: self.norms)
        return ops_of(X).hadamard.StructuredRows(
            self.stream.child("signs").key, norms[start:stop], start, stop, **inputs
        )

    def project(self, X: Rows, start: int, stop: int) -> Array:
        ops = ops_of(X)
        shape = (X.shape[0], stop - start)
        out = ops.empty(shape, X)
        if not self.distribution.is_complex:
            self._rows(X, start, stop).project(X, out=out)
            return out
        imaginary = ops.empty(shape, X)
        rows = self._rows(X, start, stop)
        rows.project_complex(X, out_real=out, out_imag=imaginary)
        return out, imaginary

    def write_pairs(
        self, X: Rows, inputs: InputMap, draws: slice, weight: float, out: np.ndarray
    ) -> None:
        drawn = self._scaled_rows(X, inputs, draws)
        for rows in _selected_blocks(X, inputs):
            block = inputs.select(X[rows])
            drawn.pairs(block, weight=weight, out=out[rows])

    def write_cosines(
        self,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
        offsets: Array,
    ) -> None:
        drawn = self._scaled_rows(X, inputs, draws)
        for rows in _selected_blocks(X, inputs):
            block = inputs.select(X[rows])
            drawn.cosines(block, offsets=offsets, weight=weight, out=out[rows])

    def write_modulus(
        self,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
        power: float,
    ) -> None:
        drawn = self._scaled_rows(X, inputs, draws)
        for rows in _selected_blocks(X, inputs):
            block = inputs.select(X[rows])
            drawn.modulus(block, power=power, weight=weight, out=out[rows])

    def _scaled_rows(self, X: Rows, inputs: InputMap, draws: slice) -> Any:
        """Return rows for draws that scale the columns of X and append the bias."""
        scale = inputs.inverse_scale_like(X)
        bias = inputs.bias or None
        return self._rows(X, draws.start, draws.stop, inverse_scale=scale, bias=bias)


def _selected_blocks(X: Rows, inputs: InputMap) -> Iterator[slice]:
    """Yield row blocks: selecting columns copies rows, so only a few at a time."""
    length = X.shape[0] if inputs.columns is None else _SELECTED_ROWS
    return row_blocks(X.shape[0], max(length, 1))
