"""The exact kernel's matrix as products, for iterative solvers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend import cpu, thin
from randkern.blocks import row_blocks
from randkern.kernels import Kernel

__all__ = ["KernelOperator", "kernel_operator_bytes"]

# Sides of the tiles of the Gram matrix.
_TILE = 2048
# Tiles that making one takes.
_TILES = 6
# Sampled rows for every eigenpair of the preconditioner.
_OVERSAMPLING = 2
# Eigenvalues below this share of the first are rounding noise in float32.
_SMALLEST_SHARE = 1e-6


def kernel_operator_bytes(
    n: int, n_targets: int, itemsize: int, rank: int
) -> tuple[int, int]:
    """Memory of conjugate gradients on the exact kernel, no tile being kept.

    At most, while the preconditioner is built, and while it iterates.
    """
    n_samples = min(n, _OVERSAMPLING * rank)
    side = thin.padded(min(n, _TILE))
    vectors = 8 * 14 * n * n_targets + _TILES * side**2 * itemsize
    iterating = n * rank * itemsize + vectors
    return iterating + n * n_samples * itemsize + 4 * 8 * n_samples**2, iterating


class KernelOperator:
    """The matrix S(I − 1sᵀ) K (I − s1ᵀ)S of the exact kernel, S = diag(√w).

    s are the shares of the rows in the sum of weights if there is an intercept, else
    0. K is symmetric, so that only its upper triangle is made: in tiles, in the dtype
    of the rows, as many of which are kept as the memory allows; the others are made
    again for every product.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    X : Rows
    weight : ndarray of shape (n,)
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
        weight: np.ndarray,
        center: bool,
        stream: Stream,
        kept_bytes: int,
    ):
        self.kernel = kernel
        self.X = X
        self.root = np.sqrt(weight)
        self.share = weight / weight.sum() if center else np.zeros(len(weight))
        self.stream = stream
        self.dtype = X.dtype
        self.precision = float(np.finfo(X.dtype).eps)
        side = thin.padded(min(X.shape[0], _TILE))
        self._ranges = list(row_blocks(X.shape[0], _TILE))
        self._buffer = np.zeros((side, side), self.dtype)
        self._kept: dict[tuple[int, int], np.ndarray] = {}
        self._n_kept = kept_bytes // self._buffer.nbytes

    @property
    def size(self) -> int:
        return self.X.shape[0]

    def _tiles(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield tiles of the upper triangle, with zeros beyond the last row."""
        for i, rows in enumerate(self._ranges):
            for j in range(i, len(self._ranges)):
                tile = self._kept.get((i, j))
                if tile is None:
                    tile = self._buffer
                    if len(self._kept) < self._n_kept:
                        tile = self._kept[i, j] = np.zeros_like(self._buffer)
                    columns = self._ranges[j]
                    other = None if i == j else self.X[columns]
                    values = self.kernel._gram(self.X[rows], other, precise=False)
                    tile[: values.shape[0], : values.shape[1]] = values
                    tile[:, values.shape[1] :] = 0.0
                yield i, j, tile

    def product(self, V: np.ndarray) -> np.ndarray:
        """Return KV in float64, for V of shape (n, k)."""
        k = V.shape[1]
        side = len(self._buffer)
        size = float(np.abs(V).max(initial=0.0)) or 1.0
        right = np.zeros((len(self._ranges), k, side), self.dtype)
        out = np.zeros((len(self._ranges), k, side))
        for i, rows in enumerate(self._ranges):
            right[i, :, : rows.stop - rows.start] = V[rows].T / size
        for i, j, tile in self._tiles():
            length = self._ranges[i].stop - self._ranges[i].start
            out[i, :, :length] += thin.multiply(tile[:length], right[j]).T
            if i != j:
                left = np.ascontiguousarray(right[i, :, :length].T)
                thin.add_transposed(tile[:length], left, out[j])
        joined = out.transpose(0, 2, 1)
        parts = [
            joined[i, : rows.stop - rows.start] for i, rows in enumerate(self._ranges)
        ]
        return np.concatenate(parts) * size

    def matmat(self, V: np.ndarray) -> np.ndarray:
        """Return AV in float64; products within a tile in the dtype of X."""
        U = self.root[:, None] * V
        U -= np.outer(self.share, U.sum(axis=0))
        out = self.product(U)
        out -= self.share @ out
        out *= self.root[:, None]
        return out

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the leading eigenpairs of a Nyström approximation.

        A ≈ C K_m⁻¹ Cᵀ with the columns C of A's factor and the matrix K_m of m sampled
        rows (Williams and Seeger 2001).
        """
        n = self.size
        n_samples = min(n, _OVERSAMPLING * rank)
        generator = self.stream.child("sample").generator()
        usable = np.flatnonzero(self.root)
        n_samples = min(n_samples, len(usable))
        sampled = np.sort(generator.choice(usable, n_samples, replace=False))
        X = self.X[sampled]
        values, vectors = scipy.linalg.eigh(
            self.kernel._gram(X, None).astype(np.float64),
            overwrite_a=True,
            check_finite=False,
        )
        kept = values > _SMALLEST_SHARE * max(values[-1], np.finfo(float).tiny)
        inverse_root = (vectors[:, kept] / np.sqrt(values[kept])).astype(self.dtype)
        factor = np.empty((n, int(kept.sum())), self.dtype)
        for rows in self._ranges:
            columns = self.kernel._gram(self.X[rows], X, precise=False)
            factor[rows] = columns @ inverse_root
        factor -= (self.share @ factor).astype(self.dtype)
        factor *= self.root[:, None].astype(self.dtype)
        inner = np.zeros((factor.shape[1], factor.shape[1]))
        cpu.add_gram(factor, inner)
        values, vectors = scipy.linalg.eigh(inner.T, lower=True, overwrite_a=True)
        values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
        kept = values > _SMALLEST_SHARE * max(values[0], np.finfo(float).tiny)
        values, vectors = values[kept], vectors[:, kept]
        basis = factor @ (vectors / np.sqrt(values)).astype(self.dtype)
        return values, basis
