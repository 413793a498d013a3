"""Rows of features that are read again and again: kept, or made anew each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from randkern._tensors import is_tensor
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks, rows_within
from randkern.models._rows import ArrayRows, TrainingRows
from randkern.plan import Plan, evaluate

__all__ = [
    "FEWEST_ROWS",
    "FactorFeatures",
    "FeatureRows",
    "KeptFeatures",
    "PlanFeatures",
]

_BLOCK_BYTES = 32 * 2**20
_TENSOR_BLOCK_BYTES = 512 * 2**20
_ROWS_AT_ONCE = 2**15
# What blocks come down to where memory is short.
FEWEST_ROWS = 16


class FeatureRows(Protocol):
    """Rows of features, of a width that is filled up with zeros."""

    n_rows: int
    width: int
    dtype: np.dtype
    # An array that lies where they do.
    like: Any

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all rows in order; an array may be used again for the next block."""

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return some rows, whose numbers ascend."""

    def part(self, numbers: np.ndarray) -> FeatureRows:
        """Return some rows by themselves, whose numbers ascend."""

    @property
    def kept(self) -> np.ndarray | None:
        """All rows, where they are in memory."""


class KeptFeatures:
    """Rows of features that are an array, whose width is filled up already."""

    def __init__(self, values: np.ndarray):
        self.kept = self.like = values
        self.n_rows, self.width = values.shape
        self.dtype = values.dtype

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for part in row_blocks(self.n_rows, _ROWS_AT_ONCE):
            yield part, self.kept[part]

    def take(self, numbers: np.ndarray) -> np.ndarray:
        return self.kept[numbers]

    def part(self, numbers: np.ndarray) -> KeptFeatures:
        return KeptFeatures(self.kept[numbers])


class PlanFeatures:
    """Random features of training rows, kept if `kept_bytes` hold them.

    In the dtype of the rows, or in float64 if `precise`.
    """

    def __init__(
        self, plan: Plan, rows: TrainingRows, kept_bytes: int, precise: bool = False
    ):
        self.plan = plan
        self.rows = rows
        self.n_rows = rows.n_rows
        self.precise = precise
        self.like = ops_of(rows.like).as_float64(rows.like) if precise else rows.like
        self.dtype = self.like.dtype
        self.width = ops_of(self.like).skinny_gemm.padded(plan.n_components)
        self.kept: np.ndarray | None = None
        row_bytes = self.width * self.dtype.itemsize
        block = _TENSOR_BLOCK_BYTES if is_tensor(self.like) else _BLOCK_BYTES
        block = min(block, kept_bytes) if kept_bytes else block
        self._most = rows_within(block, row_bytes, at_least=FEWEST_ROWS)
        if self.n_rows * row_bytes <= kept_bytes:
            made = self._empty(self.n_rows)
            for part, Z in self._fresh():
                made[part] = Z
            self.kept = made

    def _empty(self, n: int) -> np.ndarray:
        """Return unset rows, with zeros where no feature will be."""
        out = ops_of(self.like).empty((n, self.width), self.like)
        out[:, self.plan.n_components :] = 0
        return out

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        if self.kept is None:
            yield from self._fresh()
            return
        for part in row_blocks(self.n_rows, _ROWS_AT_ONCE):
            yield part, self.kept[part]

    def _fresh(self) -> Iterator[tuple[slice, np.ndarray]]:
        buffer = self._empty(min(self.n_rows, self._most))
        for block in self.rows.blocks(len(buffer)):
            Z = buffer[: len(block.Y)]
            self._evaluate(block.X, Z)
            yield block.rows, Z

    def take(self, numbers: np.ndarray) -> np.ndarray:
        if self.kept is not None:
            return self.kept[numbers]
        Z = self._empty(len(numbers))
        if len(numbers):
            X = self.rows.take(numbers).X
            for part in row_blocks(len(numbers), self._most):
                self._evaluate(X[part], Z[part])
        return Z

    def _evaluate(self, X: Any, Z: np.ndarray) -> None:
        X = ops_of(X).as_float64(X) if self.precise else X
        evaluate(self.plan, X, out=Z[:, : self.plan.n_components])

    def part(self, numbers: np.ndarray) -> KeptFeatures | PlanFeatures:
        if self.kept is not None:
            return KeptFeatures(self.kept[numbers])
        block = self.rows.take(numbers)
        rows = ArrayRows(block.X, block.Y)
        part = PlanFeatures(self.plan, rows, 0, self.precise)
        part._most = self._most
        return part

    def in_float64(self, kept_bytes: int) -> PlanFeatures:
        """Return them in float64, in place of these: they are not kept any longer."""
        self.kept = None
        return PlanFeatures(self.plan, self.rows, kept_bytes, precise=True)


class FactorFeatures(KeptFeatures):
    """Rows of a factor F of an exact Gram matrix, K = FFᵀ, as features.

    F is that of a Cholesky factorisation with pivoting, of as many columns as K has
    rank: equal rows stay equal.
    """

    def __init__(self, gram: np.ndarray):
        factor, self.pivots = ops_of(gram).algebra.pivoted_factor(gram)
        super().__init__(factor)
        self.triangle = factor[self.pivots][:, : len(self.pivots)]
