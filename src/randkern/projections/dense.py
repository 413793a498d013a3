"""Matrices of random rows: independent, recomputed, orthogonal, quasi-random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from randkern._random import Stream
from randkern._validation import Array, Rows
from randkern.backend.blas import one_thread_if_short
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.projections._base import (
    Distribution,
    InputMap,
    Stored,
    phase_product,
)

# Size of a streamed tile, which stays in the last-level cache.
_TILE_BYTES = 8 * 2**20


class Dense(Stored):
    """I.i.d. rows from a counter-based generator, drawn once and stored.

    The matrix takes n_draws × width × 4 bytes (8 for float64 rows), twice
    that for a complex distribution.
    """

    name = "dense"

    drawing_bytes = 4

    def draw(self) -> tuple[np.ndarray, ...]:
        return self.rows(0, self.n_draws)

    def rows(self, start: int, stop: int, like: Array = None) -> tuple[Any, ...]:
        """Return rows `start` to `stop` of the matrix, or their two parts.

        They are drawn on the device of `like`, the same for any range.
        """
        distribution = self.distribution
        random_matrix = ops_of(like).random_matrix
        parts = tuple(
            random_matrix(key, distribution.entries, start, stop, 0, self.width, like)
            for key in self._keys
        )
        if distribution.is_complex:
            for part in parts:
                part *= distribution.part_scale
            return parts
        return (self._mixed(distribution.transform(parts[0]).T, start, stop, like).T,)

    @property
    def _keys(self) -> list[int]:
        """The keys of the entries, or of those of the real and imaginary parts."""
        names = ("real", "imaginary") if self.distribution.is_complex else ("real",)
        return [self.stream.child(name).key for name in names]

    def _mixed(self, columns: Any, start: int, stop: int, like: Array) -> Any:
        """Return columns of draws `start` to `stop` times their mixing factors."""
        if self.distribution.mixing is None:
            return columns
        ops = ops_of(like)
        factors = ops.constant(self, "mixing", like, lambda: self.mixing_factors)
        return columns * factors[start:stop]


class Streamed(Dense):
    """The entries of :class:`Dense`, recomputed tile by tile and never stored."""

    name = "streamed"

    def stored_bytes(self, itemsize: int) -> int:
        return 0

    def _drawn(self, X: Rows, start: int, stop: int) -> Iterator[Any]:
        """Yield (draws relative to `start`, their rows for arrays like X) per tile."""
        per_tile = rows_within(_TILE_BYTES, 4 * self.width, at_least=16)
        for draws in row_blocks(stop - start, per_tile):
            parts = self.rows(start + draws.start, start + draws.stop, X)
            yield draws, tuple(ops_of(X).asarray(part, X) for part in parts)

    def project(self, X: Rows, start: int, stop: int) -> Array:
        return self._products(X, start, stop, _product)

    def phases(self, X: Rows, start: int, stop: int) -> Array:
        return self._products(X, start, stop, self._phase_product)

    @property
    def _phase_product(self) -> Callable[[Rows, Any], Any]:
        return phase_product if self.distribution.heavy_tailed else _product

    def _products(
        self, X: Rows, start: int, stop: int, product: Callable[[Rows, Any], Any]
    ) -> Any:
        ops = ops_of(X)
        shape = (X.shape[0], stop - start)
        out = tuple(ops.empty(shape, X) for _ in self._keys)
        for draws, matrices in self._drawn(X, start, stop):
            for target, matrix in zip(out, matrices, strict=True):
                target[:, draws] = product(X, matrix)
        return out if self.distribution.is_complex else out[0]

    def _tiles(
        self, X: Rows, inputs: InputMap, start: int, stop: int
    ) -> Iterator[tuple[slice, slice, Any]]:
        # Draws in the outer loop: each tile of the matrix is drawn once.
        blocks = list(row_blocks(X.shape[0], ops_of(X).tile_rows(X)))
        only = inputs.apply(X) if len(blocks) == 1 else None
        for draws, matrices in self._drawn(X, start, stop):
            for rows in blocks:
                block = inputs.apply(X[rows]) if only is None else only
                tiles = tuple(self._phase_product(block, part) for part in matrices)
                yield rows, draws, tiles if self.distribution.is_complex else tiles[0]


def _product(X: Rows, matrix: Array) -> Any:
    return ops_of(X).precise_product(X, matrix.T)


# Largest number of entries of blocks that are decomposed together.
_ENTRIES = 2**16


class Orthogonal(Stored):
    """Blocks of `width` rows of a Haar orthogonal (or unitary) matrix.

    Rows are rescaled by independent norms, χ_d for a normal distribution and
    √Gamma(d, 1) for a complex normal one, so that every row has exactly the
    distribution of an independent one. Rows within a block are dependent, which lowers
    the variance of the estimated kernel (Yu, Suresh, Choromanski,
    Holtmann-Rice, Kumar 2016, "Orthogonal random features").
    """

    name = "orthogonal"
    needs_rotation_invariance = True

    def draw(self) -> tuple[np.ndarray, ...]:
        n, d = self.n_draws, self.width
        n_blocks, n_remaining = divmod(n, d)
        matrix = np.empty((n, d), complex if self.distribution.is_complex else float)
        with one_thread_if_short(d**3):
            for part in row_blocks(n_blocks, max(1, _ENTRIES // d**2)):
                blocks = range(part.start, part.stop)
                rows = slice(part.start * d, part.stop * d)
                matrix[rows] = self._haar_rows(blocks, d).reshape(-1, d)
            if n_remaining:
                matrix[n_blocks * d :] = self._haar_rows(
                    range(n_blocks, n_blocks + 1), n_remaining
                )[0]
        norms = self.distribution.norms(self.stream.child("norms").generator(), d, n)
        matrix *= (norms * self.mixing_factors)[:, None]
        if self.distribution.is_complex:
            return matrix.real.copy(), matrix.imag.copy()
        return (matrix,)

    def _haar_rows(self, blocks: range, n_rows: int) -> np.ndarray:
        """Return the first rows of each block, orthonormal, Haar distributed."""
        draws = 2 if self.distribution.is_complex else 1
        entries = np.empty((len(blocks), draws, n_rows, self.width))
        for index, out in zip(blocks, entries, strict=True):
            rng = self.stream.child("block", index).generator()
            rng.standard_normal(out=out)
        parts = entries.swapaxes(2, 3)
        gaussian = parts[:, 0] + 1j * parts[:, 1] if draws == 2 else parts[:, 0]
        q, r = np.linalg.qr(gaussian)
        # Mezzadri 2007, "How to generate random matrices from the classical
        # compact groups": without these phases Q is not Haar distributed.
        diagonal = np.diagonal(r, axis1=1, axis2=2)
        return (q * (diagonal / np.abs(diagonal))[:, None, :]).swapaxes(1, 2)


# The number of dimensions in SciPy's table of direction numbers.
_SOBOL_DIMENSIONS = 21201
# SciPy's Sobol points are multiples of 2⁻³⁰; half a step keeps them off 0.
_BITS = 30


@dataclass(frozen=True, eq=False)
class QuasiMonteCarlo(Stored):
    """Scrambled Sobol points through the inverse distribution of the rows.

    Each point is uniform, so that the estimate is unbiased; together they
    cover the space evenly, which lowers the variance in few dimensions
    (Avron, Sindhwani, Yang, Mahoney 2016, "Quasi-Monte Carlo feature maps for
    shift-invariant kernels"). A mixing variable takes one more dimension, a
    complex distribution twice as many. The factors of a product share one sequence:
    each uses its own dimensions, from `first_dimension` on.
    """

    name = "qmc"
    shares_sequence = True

    first_dimension: int = 0

    @classmethod
    def create(
        cls,
        stream: Stream,
        n_draws: int,
        width: int,
        distribution: Distribution,
        owner: object,
        first_dimension: int = 0,
    ) -> QuasiMonteCarlo:
        dimensions = first_dimension + distribution.dimensions(width)
        if dimensions > _SOBOL_DIMENSIONS:
            raise ValueError(
                f"projection='qmc' has at most {_SOBOL_DIMENSIONS:,} dimensions, but "
                f"{owner} on {width:,} columns needs {dimensions:,}; use "
                "projection='auto'."
            )
        return cls(
            stream, n_draws, width, distribution, first_dimension=first_dimension
        )

    def draw(self) -> tuple[np.ndarray, ...]:
        return self.distribution.rows_at(self._points())

    @property
    def mixing_factors(self) -> np.ndarray:
        return self.distribution.mixing_at(self._points())

    def _points(self) -> np.ndarray:
        """Return one point of the open unit cube per draw."""
        first = self.first_dimension
        sampler = stats.qmc.Sobol(
            first + self.distribution.dimensions(self.width),
            scramble=True,
            bits=_BITS,
            rng=np.random.default_rng(self.stream.child("sobol").key),
        )
        # SciPy warns if the first points are not a power of 2 in number; they are then
        # less balanced, but not biased.
        points = np.concatenate([sampler.random(1), sampler.random(self.n_draws - 1)])
        return points[:, first:] + 2.0 ** -(_BITS + 1)
