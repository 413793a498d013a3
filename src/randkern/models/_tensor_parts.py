"""Features of training rows that are tensors, and their products, on their device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.blocks import rows_within
from randkern.models._rows import TrainingBlock
from randkern.plan import Plan, evaluate

__all__ = ["TensorParts"]

# A block of features, long enough for products at full speed.
_BLOCK_BYTES = 512 * 2**20
_MOST_ROWS = 4096


class TensorParts:
    """Rows of tensors: features and products are made where these lie.

    What goes in and out are NumPy arrays of shape (k, D), for k targets.
    """

    def __init__(self, plan: Plan, rows: Any, weight_unit: float, kept_bytes: int = 0):
        self.plan, self.rows, self.weight_unit = plan, rows, weight_unit
        self.n_rows = rows.n_rows
        self.dtype = ops_of(rows.X).numpy_dtype(rows.X)
        row = plan.n_components * self.dtype.itemsize
        self._block = min(_MOST_ROWS, rows_within(_BLOCK_BYTES, row, at_least=128))
        self._kept: Any = None
        if rows.n_rows * row <= kept_bytes:
            self._kept = evaluate(plan, rows.X)

    def _blocks(self) -> Iterator[tuple[TrainingBlock, Any, Any]]:
        """Yield blocks of rows, their features and their weights."""
        for block in self.rows.blocks(self._block):
            Z = self._kept[block.rows] if self._kept is not None else None
            Z = evaluate(self.plan, block.X) if Z is None else Z
            weight = None if block.weight is None else block.weight / self.weight_unit
            yield block, Z, weight

    def cross(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return Σ w_i z_i ((y_i − means)/sizes, 1), transposed: shape (k + 1, D)."""
        X = self.rows.X
        ops = ops_of(X)
        out = ops.zeros((self.plan.n_components, len(means) + 1), X)
        center, unit = ops.float64_like(means, X), ops.float64_like(sizes, X)
        for block, Z, weight in self._blocks():
            ones = ops.ones((len(block.Y), 1), X)
            targets = ops.hstack([(block.Y - center) / unit, ones])
            if weight is not None:
                targets = targets * weight[:, None]
            out += Z.T @ ops.asarray(targets, Z)
        return ops.to_host(out).T

    def product(self, V: np.ndarray) -> np.ndarray:
        """Return Σ w_i z_i z_iᵀ V, transposed, for V of shape (k, D)."""
        X = self.rows.X
        ops = ops_of(X)
        right = ops.asarray(np.ascontiguousarray(V.T), X)
        out = ops.zeros(V.shape[::-1], X)
        for _, Z, weight in self._blocks():
            inner = Z @ right
            if weight is not None:
                inner *= ops.asarray(weight, Z)[:, None]
            out += Z.T @ inner
        return ops.to_host(out).T

    def sample(self, rows: np.ndarray) -> tuple[Callable[[slice], Any], Any]:
        """Return a function that gives columns of some rows' features; their weights.

        The rows' numbers ascend.
        """
        block = self.rows.take(rows)
        weight = None if block.weight is None else block.weight / self.weight_unit
        return lambda columns: evaluate(self.plan, block.X, columns), weight
