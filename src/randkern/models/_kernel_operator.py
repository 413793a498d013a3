"""The exact kernel's matrix as products, for iterative solvers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.blocks import row_blocks
from randkern.kernels import Kernel
from randkern.models._operators import leading

__all__ = ["KernelOperator", "kernel_operator_bytes"]

# Sides of the tiles of the Gram matrix.
_TILE = 2048
# Tiles that making one takes.
_TILES = 6
# Sampled rows for every eigenpair of the preconditioner.
_OVERSAMPLING = 2


def kernel_operator_bytes(
    like: Rows, n: int, n_targets: int, rank: int
) -> tuple[int, int]:
    """Memory of conjugate gradients on the exact kernel, no tile being kept.

    At most, while the preconditioner is built, and while it iterates; for n rows in the
    dtype of `like`, and where that lies.
    """
    itemsize = like.dtype.itemsize
    n_samples = min(n, _OVERSAMPLING * rank)
    side = ops_of(like).skinny_gemm.padded(min(n, _TILE))
    vectors = 8 * 14 * n * n_targets + _TILES * side**2 * itemsize
    iterating = n * rank * itemsize + vectors
    return iterating + n * n_samples * itemsize + 4 * 8 * n_samples**2, iterating


class KernelOperator:
    """The matrix S(I − 1sᵀ) K (I − s1ᵀ)S of the exact kernel, S = diag(√w).

    s are the shares of the rows in the sum of weights if there is an intercept, else
    0. K is symmetric, so that only its upper triangle is made: in tiles, in the dtype
    of the rows and where they lie, as many of which are kept as the memory allows; the
    others are made again for every product.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    X : Rows
    weight : array of shape (n,)
        Where X lies.
    center : bool
    stream : Stream
        Seeds the sample of rows behind the preconditioner.
    kept_bytes : int
        Memory for tiles.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Rows,
        weight: Any,
        center: bool,
        stream: Stream,
        kept_bytes: int,
    ):
        self.kernel = kernel
        self.X = X
        ops = self._ops = ops_of(X)
        self.root = weight**0.5
        self.share = weight / weight.sum() if center else 0.0 * weight
        self.stream = stream
        self.precision = self.rounding = float(np.finfo(ops.numpy_dtype(X)).eps)
        self._side = ops.skinny_gemm.padded(min(X.shape[0], _TILE))
        self._ranges = list(row_blocks(X.shape[0], _TILE))
        self._buffer = self._room()
        self._kept: dict[tuple[int, int], Any] = {}
        self._n_kept = kept_bytes // (self._side**2 * X.dtype.itemsize)

    @property
    def size(self) -> int:
        return self.X.shape[0]

    def _room(self) -> Any:
        return self._ops.skinny_gemm.empty_padded(self._side, self._side, self.X)

    def _tiles(self) -> Iterator[tuple[int, int, Any]]:
        """Yield tiles of the upper triangle, with zeros beyond the last row."""
        for i, rows in enumerate(self._ranges):
            for j in range(i, len(self._ranges)):
                tile = self._kept.get((i, j))
                if tile is None:
                    tile = self._buffer
                    if len(self._kept) < self._n_kept:
                        tile = self._kept[i, j] = self._room()
                    columns = self._ranges[j]
                    other = None if i == j else self.X[columns]
                    values = self.kernel._gram(self.X[rows], other, precise=False)
                    tile[: values.shape[0], : values.shape[1]] = values
                    tile[:, values.shape[1] :] = 0.0
                yield i, j, tile

    def product(self, V: Any) -> Any:
        """Return KV in float64, for V of shape (n, k)."""
        ops, thin, k = self._ops, self._ops.skinny_gemm, V.shape[1]
        size = ops.largest(abs(V)) or 1.0
        lengths = [rows.stop - rows.start for rows in self._ranges]
        right = [thin.empty_padded(k, self._side, self.X) for _ in lengths]
        sums = [ops.zeros((k, self._side), self.X) for _ in lengths]
        for rows, n, part in zip(self._ranges, lengths, right, strict=True):
            part[:, :n] = V[rows].T / size
            part[:, n:] = 0.0
        for i, j, tile in self._tiles():
            tile = tile[: lengths[i]]
            sums[i][:, : lengths[i]] += thin.multiply(tile, right[j]).T
            if i != j:
                left = thin.pack(right[i][:, : lengths[i]].T, tile)
                thin.add_transposed(tile, left, sums[j])
        out = ops.zeros(V.shape, self.X)
        for rows, n, part in zip(self._ranges, lengths, sums, strict=True):
            out[rows] = part[:, :n].T
        out *= size
        return out

    def matmat(self, V: Any) -> Any:
        """Return AV in float64; products within a tile in the dtype of X."""
        U = self.root[:, None] * V
        U -= self.share[:, None] * U.sum(axis=0)
        out = self.product(U)
        out -= self.share @ out
        out *= self.root[:, None]
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return the leading eigenpairs of a Nyström approximation.

        A ≈ C K_m⁻¹ Cᵀ with the columns C of A's factor and the matrix K_m of m sampled
        rows (Williams and Seeger 2001).
        """
        ops = self._ops
        generator = self.stream.child("sample").generator()
        usable = ops.flatnonzero(self.root)
        n_samples = min(_OVERSAMPLING * rank, len(usable))
        sampled = np.sort(generator.choice(len(usable), n_samples, replace=False))
        X = ops.take(self.X, ops.take(usable, sampled))
        gram = ops.as_float64(self.kernel._gram(X, None))
        values, vectors = leading(gram, n_samples)
        inverse_root = ops.asarray(vectors / values**0.5, self.X)
        factor = ops.empty((self.size, len(values)), self.X)
        means = ops.zeros(len(values), self.X)
        for rows in self._ranges:
            columns = self.kernel._gram(self.X[rows], X, precise=False)
            factor[rows] = columns @ inverse_root
            means += self.share[rows] @ ops.as_float64(factor[rows])
        factor -= ops.asarray(means, factor)
        factor *= ops.asarray(self.root, factor)[:, None]
        inner = ops.zeros((len(values), len(values)), self.X)
        ops.add_gram(factor, inner)
        values, vectors = leading(inner, rank)
        basis = factor @ ops.asarray(vectors / values**0.5, factor)
        return ops.to_host(values), basis
