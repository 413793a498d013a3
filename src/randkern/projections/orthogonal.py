"""Rows in orthogonal blocks, with the norms of independent rows."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from randkern.backend.blas_threads import one_thread_if_short
from randkern.data import row_blocks
from randkern.projections._base import Stored

__all__ = ["Orthogonal"]


class Orthogonal(Stored):
    """Blocks of `width` rows of a Haar orthogonal (or unitary) matrix.

    Rows are rescaled by independent norms, χ_d for a normal law and
    √Gamma(d, 1) for a complex normal one, so that every row has exactly the
    law of an independent one. Rows within a block are dependent, which lowers
    the variance of the estimated kernel (Yu, Suresh, Choromanski,
    Holtmann-Rice, Kumar 2016, "Orthogonal random features").
    """

    name = "orthogonal"

    def draw(self) -> tuple[np.ndarray, ...]:
        d = self.width
        matrix = np.empty((self.n_draws, d), complex if self.law.is_complex else float)
        for index, rows in enumerate(row_blocks(self.n_draws, d)):
            matrix[rows] = self._haar_rows(index, rows.stop - rows.start)
        matrix *= (self._norms() * self.mixing_factors)[:, None]
        if self.law.is_complex:
            return matrix.real.copy(), matrix.imag.copy()
        return (matrix,)

    def _haar_rows(self, index: int, n_rows: int) -> np.ndarray:
        """Return the first rows of block `index`, orthonormal, Haar distributed."""
        rng = self.stream.child("block", index).generator()
        entries = rng.standard_normal((n_rows, self.width))
        if self.law.is_complex:
            entries = entries + 1j * rng.standard_normal((n_rows, self.width))
        with one_thread_if_short(self.width * n_rows**2):
            q, r = scipy.linalg.qr(entries.T, mode="economic", check_finite=False)
        # Mezzadri 2007, "How to generate random matrices from the classical
        # compact groups": without these phases Q is not Haar distributed.
        diagonal = np.diagonal(r)
        return (q * (diagonal / np.abs(diagonal))).T

    def _norms(self) -> np.ndarray:
        generator = self.stream.child("norms").generator()
        return self.law.norms(generator, self.width, self.n_draws)
